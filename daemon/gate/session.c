/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/counter.h"
#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/gate/admit.h"
#include "daemon/gate/env.h"
#include "daemon/gate/fair.h"
#include "daemon/gate/intake.h"
#include "daemon/gate/journal.h"
#include "daemon/gate/names.h"
#include "daemon/gate/offloop.h"
#include "daemon/gate/opening.h"
#include "daemon/gate/peer.h"
#include "daemon/gate/places.h"
#include "daemon/gate/request.h"
#include "daemon/gate/rest.h"
#include "daemon/gate/watch.h"
#include "libclient/fdproto.h"

#define SES_HELLO_MAX 512
#define SES_RETRY_MS  100u
/* Time charged for a doorbell that rings, for a session from its hello to its end, and
 * for a violation of the protocol. */
#define SES_BELL_NS  5000u
#define SES_OPEN_NS  200000u
#define SES_PROTO_NS 10000000u

int
ses_init(struct sessions *t)
{
    t->next_id = 1;
    region_bin_init(&t->bin);
    STAILQ_INIT(&t->unwanted);
    t->max = SES_MAX;
    t->v = mem_array(SES_MAX, sizeof(struct ses *));
    return t->v != NULL ? 0 : -ENOMEM;
}

void
ses_fini(struct sessions *t)
{
    if (t->n != 0)
        ses_goodbye(t, FDP_E_DISCONNECTED);
    free(t->v);
    t->v = NULL;
}

/* ---- end ----------------------------------------------------------------- */

static struct ses *
ses_free(struct sessions *t, struct ses *s)
{
    itk_drop(t->intake, &s->c);
    cli_drop(t->clients, &s->c);
    opn_drop(t, s);
    region_drop(&t->bin, &s->c.c2d, t->ofl);
    if (s->c.quiet)
        region_drop(&t->bin, &s->c.d2c, t->ofl);
    else /* the client is still to read its last records and the GOODBYE */
        region_drop_late(&t->bin, &s->c.d2c, t->env->now, t->ofl);
    t->n_rest -= (s->c.rests & CLI_RESTS_LOOP) != 0;
    t->n_seals -= s->is_sealing;
    if (s->doorbell >= 0) {
        wch_del(t->watch, s->doorbell, s);
        (void)close(s->doorbell);
    }
    if (s->c.fd >= 0) {
        wch_del(t->watch, s->c.fd, s);
        (void)ofl_close(t->ofl, s->c.fd);
    }
    if (s->c.usr != NULL)
        usr_leave(t->reqs->fair, s->c.usr);
    OBJ_FREE(s, SES_MAGIC);
    return NULL;
}

static void
ses_unlist(struct sessions *t, struct ses *s)
{
    struct ses *last = t->v[--t->n];

    ASSERT(t->v[s->slot] == s);
    last->slot = s->slot;
    t->v[s->slot] = last;
    t->v[t->n] = NULL;
    cnt_set(&t->env->cnt->sessions, t->n);
}

/* Tells the client that no further records come. Only stores and wake-ups: the client may
 * have written anything to its memory. So how it waits is not read, and it is woken in
 * both ways. */
static void
ses_say_goodbye(struct ses *s)
{
    struct fdp_state *st = (struct fdp_state *)(void *)(s->c.d2c.p + FDP_D2C_STATE);

    if (s->c.cq.pub != s->c.cq.tail) {
        s->c.cq.pub = s->c.cq.tail;
        fdr_publish(s->c.cq.p_tail, s->c.cq.tail);
    }
    fdr_store_relaxed(&st->reason, (uint32_t)-s->c.why);
    fdr_store_release(&st->state, FDP_ST_GOODBYE);
    cli_wake_thread(&s->c);
    (void)send(s->c.fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void
ses_end(struct sessions *t, struct ses *s)
{
    if (!s->c.quiet && s->c.d2c.p != NULL)
        ses_say_goodbye(s);
    rq_cancel_client(t->reqs, &s->c, FDP_E_CANCELLED, 1);
    if (s->c.usr != NULL && s->c.why == FDP_E_PROTO)
        itk_spend_time(t->intake, &s->c, SES_PROTO_NS);
    if (s->c.d2c.p != NULL)
        log_debug("session: %llu closed: %s pid %d uid %u, %llu requests, %s",
            (unsigned long long)s->c.id, s->c.shown, (int)s->c.pid, (unsigned)s->c.uid,
            (unsigned long long)s->c.n_requests,
            s->c.why == FDP_OK ? "client left" : "ended by the daemon");
    ses_unlist(t, s);
    (void)ses_free(t, s);
}

void
ses_reap(struct sessions *t, int all)
{
    if (t->clients->n_doomed == 0)
        return;
    for (uint32_t i = t->n; i-- > 0;) {
        if (t->v[i]->c.st != CLI_DOOMED)
            continue;
        ses_end(t, t->v[i]);
        if (--t->clients->n_doomed == 0 || (!all && env_is_late(t->env)))
            return;
    }
    ASSERT(t->clients->n_doomed == 0);
}

/* ---- begin --------------------------------------------------------------- */

/* When a session ends cannot be predicted: clients retry at their usual interval. */
static uint32_t
ses_retry_ms(const struct sessions *t)
{
    uint32_t ms = adm_retry_ms(t->adm);

    return ms < SES_RETRY_MS ? SES_RETRY_MS : ms;
}

/* Sends a welcome with an error status. */
static void
ses_send_refusal(struct sessions *t, int fd, int code, uint32_t retry_ms)
{
    const struct fdp_welcome w = { .magic = FDP_MAGIC,
        .major = FDP_MAJOR,
        .minor = FDP_MINOR,
        .size = sizeof(w),
        .err = code,
        .retry_after_ms = retry_ms };

    (void)send(fd, &w, sizeof(w), MSG_DONTWAIT | MSG_NOSIGNAL);
    cnt_add(&t->env->cnt->sessions_refused, 1);
}

/* Refuses a peer that has no session yet. */
static int
ses_refuse(struct sessions *t, int fd, int code, uint32_t retry_ms)
{
    ses_send_refusal(t, fd, code, retry_ms);
    (void)ofl_close(t->ofl, fd);
    return -EACCES;
}

/* The table is full for this user: closes another session, if one may be (places.h).
 * Returns 1 if there is room now. */
static int
ses_make_room(struct sessions *t, const struct usr *u)
{
    struct ses *s;
    struct plc p;

    plc_begin(&p, (uint32_t)u->n_ses, t->env->now);
    for (uint32_t i = 0; i < t->n; i++) {
        s = t->v[i];
        if (s->c.st != CLI_DOOMED)
            plc_look(&p, (int)i,
                &(struct plc_ses){ (uint32_t)s->c.usr->n_ses, s->c.n_inflight,
                    s->c.t_used });
    }
    if (p.at < 0)
        return 0;
    s = t->v[p.at];
    log_info("session: %llu (%s, pid %d, uid %u) is closed to make room for user "
             "%u: ipc.max_clients sessions are open, %u of them its user's; it was idle for %llu s",
        (unsigned long long)s->c.id, s->c.shown, (int)s->c.pid, (unsigned)s->c.uid,
        (unsigned)u->key, p.best.sessions,
        (unsigned long long)((t->env->now - s->c.t_used) / CLK_S));
    cli_kill(t->clients, &s->c, FDP_E_DISCONNECTED);
    ses_reap(t, 0);
    return 1;
}

static int
ses_has_room(const struct sessions *t, int is_kept)
{
    uint64_t max = (uint64_t)t->env->par->ipc_max_clients + (is_kept ? PLC_KEPT : 0);

    return t->n < t->max && t->n < max;
}

static int
ses_admit(struct sessions *t, struct usr *u, uid_t uid, int trusted, const char **ret_why)
{
    int is_kept = trusted || uid == 0 || uid == geteuid();

    *ret_why = NULL;
    if (t->env->par->ipc_refuse_own_uid && uid == geteuid()) {
        *ret_why = "it runs as the daemon's own user (ipc.refuse_own_uid)";
        return FDP_E_PERM;
    }
    if (!trusted && u->n_ses >= (uint64_t)t->env->par->ipc_max_clients_per_user) {
        *ret_why = "its user has ipc.max_clients_per_user sessions";
        return FDP_E_LIMIT;
    }
    if (!trusted &&
        !usr_connect(u, (uint64_t)t->env->par->ipc_connects_per_second, t->env->now)) {
        *ret_why = "its user connects more often than ipc.connects_per_second";
        return FDP_E_LIMIT;
    }
    if (!trusted && usr_until(u) > t->env->now) {
        *ret_why = "its user has had its share of the daemon's time";
        return FDP_E_LIMIT;
    }
    if (!ses_has_room(t, is_kept) && !ses_make_room(t, u)) {
        *ret_why = "ipc.max_clients sessions are open, or as many as there are descriptors";
        return FDP_E_LIMIT;
    }
    return FDP_OK;
}

int
ses_adopt(struct sessions *t, int fd, pid_t pid, uid_t uid, gid_t gid)
{
    int trusted = names_in_list(t->names, uid);
    struct usr *u = usr_get(t->reqs->fair, uid, t->env->now);
    const char *why;
    struct ses *s;
    int code;

    if (u == NULL)
        return ses_refuse(t, fd, FDP_E_OVERLOAD, ses_retry_ms(t));
    code = ses_admit(t, u, uid, trusted, &why);
    if (code != FDP_OK) {
        log_debug("session: pid %d uid %u refused: %s", (int)pid, (unsigned)uid, why);
        return ses_refuse(t, fd, code, code == FDP_E_LIMIT ? ses_retry_ms(t) : 0);
    }
    OBJ_ALLOC(s, SES_MAGIC);
    if (s == NULL)
        return ses_refuse(t, fd, FDP_E_OVERLOAD, ses_retry_ms(t));
    s->c.st = CLI_HELLO;
    s->c.fd = fd;
    s->doorbell = -1;
    s->c.trusted = trusted != 0;
    s->c.id = t->next_id++;
    s->c.pid = pid;
    s->c.uid = uid;
    s->c.gid = gid;
    s->c.usr = u;
    s->t_open = s->c.t_used = t->env->now;
    TAILQ_INIT(&s->c.reqs);
    usr_enter(t->reqs->fair, u);
    if (wch_add(t->watch, fd, EPOLLIN | EPOLLRDHUP, WCH_SES, s) != 0) {
        s->c.fd = -1;
        (void)ses_free(t, s);
        return ses_refuse(t, fd, FDP_E_OVERLOAD, ses_retry_ms(t));
    }
    s->slot = t->n;
    t->v[t->n++] = s;
    t->clients->n_hello++;
    return 0;
}

/* ---- handshake ----------------------------------------------------------- */

/* Returns 0, or the status with which to refuse. */
static int
ses_check_hello(const struct ses *s, const unsigned char *buf, size_t n,
    struct fdp_hello *ret)
{
    struct fdp_hello h;

    if (n < sizeof(h) || n > SES_HELLO_MAX)
        return FDP_E_PROTO;
    memcpy(&h, buf, sizeof(h));
    if (h.magic != FDP_MAGIC)
        return FDP_E_PROTO;
    if (h.major != FDP_MAJOR) {
        log_warn("session: pid %d (uid %u) speaks protocol %u.%u, this daemon %d.%d; refused",
            (int)s->c.pid, (unsigned)s->c.uid, h.major, h.minor, FDP_MAJOR, FDP_MINOR);
        return FDP_E_VERSION;
    }
    if (h.size != n || h.rsv0 != 0 || h.rsv1 != 0)
        return FDP_E_PROTO;
    for (size_t i = sizeof(h); i < n; i++) {
        if (buf[i] != 0) /* a newer client requires something unknown */
            return FDP_E_VERSION;
    }
    if (h.feat_need & ~(uint64_t)FDP_FEAT_ALL)
        return FDP_E_VERSION;
    *ret = h;
    return FDP_OK;
}

/* The program's name, printable ASCII only: it goes to logs and JSON. */
static void
ses_set_name(struct ses *s, const char name[32])
{
    size_t n = 0;

    while (n < 32 && name[n] != '\0') {
        s->c.name[n] = name[n] >= 0x20 && name[n] < 0x7f ? name[n] : '?';
        n++;
    }
    s->c.name[n] = '\0';
    (void)log_quote(s->c.name, s->c.shown, sizeof(s->c.shown));
}

static void
ses_reject(struct sessions *t, struct ses *s, int code)
{
    ses_send_refusal(t, s->c.fd, code, code == FDP_E_OVERLOAD ? ses_retry_ms(t) : 0);
    cli_kill(t->clients, &s->c, FDP_OK);
}

/* The memory of s has been made, with result rc. */
static void
ses_made(struct sessions *t, struct ses *s, int rc)
{
    if (rc == 0) {
        s->c.st = CLI_MAPS;
        cnt_add(&t->env->cnt->sessions_total, 1);
        cnt_set(&t->env->cnt->sessions, t->n);
        log_debug("session: %llu open: %s pid %d uid %u, %u us",
            (unsigned long long)s->c.id, s->c.shown, (int)s->c.pid, (unsigned)s->c.uid,
            (unsigned)((clk_now_ns() - s->t_open) / CLK_US));
    } else if (rc == -EPIPE || rc == -ECONNRESET) {
        cli_kill(t->clients, &s->c, FDP_OK);
    } else {
        log_warn("session: cannot set up shared memory for pid %d: %s", (int)s->c.pid,
            strerror(-rc));
        ses_reject(t, s, FDP_E_OVERLOAD);
    }
}

static void
ses_hello(struct sessions *t, struct ses *s)
{
    unsigned char buf[SES_HELLO_MAX + 1];
    struct fdp_hello h;
    ssize_t n;
    int code, rc;

    n = peer_recv(s->c.fd, buf, sizeof(buf));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0 && errno == EBADMSG)
        log_warn("session: pid %d uid %u sent descriptors with its hello", (int)s->c.pid,
            (unsigned)s->c.uid);
    if (n <= 0) {
        cli_kill(t->clients, &s->c, FDP_OK);
        return;
    }
    code = ses_check_hello(s, buf, (size_t)n, &h);
    if (code != FDP_OK) {
        ses_reject(t, s, code);
        return;
    }
    ses_set_name(s, h.name);
    itk_spend_time(t->intake, &s->c, SES_OPEN_NS);
    s->c.st = CLI_MAKES;
    t->clients->n_hello--;
    rc = opn_begin(t, s, &h);
    if (rc != 0)
        ses_made(t, s, rc);
    else if (t->ofl == NULL)
        ses_off_done(t);
}

/* ---- from the welcome to the first request -------------------------------------- */

/* Watches or ignores s's doorbell: one that rings without requests also wakes the
 * loop. */
static void
ses_hear(struct sessions *t, struct ses *s, int on)
{
    s->is_deaf = !on;
    wch_change(t->watch, s->doorbell, on ? SES_BELL_EVENTS : 0, WCH_BELL, s);
}

/* Seals its memory, off the loop. If too many are being sealed, it is tried again when one
 * of them is done. */
static void
ses_seal(struct sessions *t, struct ses *s)
{
    int rc = region_seal(&s->c.c2d, &s->c.usr->n_seals, t->ofl);

    if (rc == 0 || rc == -EBUSY)
        return;
    log_warn("session: cannot seal the memory of pid %d: %s", (int)s->c.pid, strerror(-rc));
    cli_kill(t->clients, &s->c, FDP_E_OVERLOAD);
}

void
ses_bell(struct sessions *t, struct ses *s)
{
    itk_spend_time(t->intake, &s->c, SES_BELL_NS);
    if (s->c.st == CLI_OPEN && itk_until(&s->c) > t->env->now)
        ses_hear(t, s, 0);
    if (s->c.st != CLI_MAPS || s->is_sealing)
        return;
    s->is_sealing = 1;
    t->n_seals++;
    ses_seal(t, s);
    if (t->ofl == NULL)
        ses_off_done(t);
}

static void
ses_begin(struct sessions *t, struct ses *s, int rc)
{
    s->is_sealing = 0;
    t->n_seals--;
    if (s->c.st != CLI_MAPS)
        return;
    if (rc != 0 && rc != -EINVAL) { /* a kernel before 5.1: rest.h bounds the harm */
        log_warn("session: %llu (%s, pid %d) has sealed its memory: %s",
            (unsigned long long)s->c.id, s->c.shown, (int)s->c.pid, strerror(-rc));
        cli_kill(t->clients, &s->c, FDP_E_PROTO);
        return;
    }
    s->c.st = CLI_OPEN;
    rst_open(t, &s->c);
    if (s->ev.kind != 0)
        (void)cli_emit(t->clients, &s->c, 0, FDP_T_EVENT, &s->ev, sizeof(s->ev), 1);
}

void
ses_off_done(struct sessions *t)
{
    int rc;

    opn_sweep(t);
    for (uint32_t i = 0; i < t->n && t->n_seals + t->n_opens + t->intake->n_waits != 0;
         i++) {
        struct ses *s = t->v[i];

        if (s->c.rests & CLI_RESTS_READ)
            itk_read_done(t->intake, &s->c);
        if (s->is_sealing && s->c.st == CLI_MAPS && s->c.c2d.sealed == NULL)
            ses_seal(t, s);
        if (s->is_sealing && s->c.c2d.sealed != NULL &&
            (rc = region_sealed(&s->c.c2d)) != -EINPROGRESS)
            ses_begin(t, s, rc);
        if (s->opening != NULL && s->c.st == CLI_MAKES &&
            (rc = opn_end(t, s)) != -EINPROGRESS)
            ses_made(t, s, rc);
    }
}

void
ses_event(struct sessions *t, struct ses *s)
{
    char c;
    ssize_t n;

    OBJ_CHECK(s, SES_MAGIC);
    if (s->c.st == CLI_DOOMED)
        return;
    if (s->c.st == CLI_HELLO) {
        ses_hello(t, s);
        return;
    }
    n = recv(s->c.fd, &c, 1, MSG_DONTWAIT | MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        log_warn("session: %llu (%s, pid %d) sent data after its handshake",
            (unsigned long long)s->c.id, s->c.shown, (int)s->c.pid);
        cli_kill(t->clients, &s->c, FDP_E_PROTO);
        return;
    }
    /* Requests that it submitted before it disconnected are dropped. */
    cli_kill(t->clients, &s->c, FDP_OK);
}

/* ---- all sessions -------------------------------------------------------- */

/* Handles a client that does not read its completions. */
static void
ses_check_slow(struct sessions *t, struct client *c)
{
    switch (
        cli_check_slow(t->clients, c, (uint64_t)t->env->par->ipc_slow_client_ms * CLK_MS)) {
    case CLI_KEEPS_UP:
        break;
    case CLI_SLOW:
        rq_slow(t->reqs, c, "does not read its completions");
        break;
    case CLI_STUCK:
        /* It did not even read its terminal records. */
        log_info("session: %llu (%s, pid %d) is closed: it reads nothing",
            (unsigned long long)c->id, c->shown, (int)c->pid);
        cli_kill(t->clients, c, FDP_E_SLOW);
        break;
    }
}

void
ses_tick(struct sessions *t)
{
    uint64_t limit = (uint64_t)t->env->par->ipc_handshake_timeout_ms * CLK_MS;
    struct client *c, *next;

    region_bin_tick(&t->bin, t->env->now, t->ofl);
    if (t->n_rest != 0)
        rst_tick(t);
    for (c = TAILQ_FIRST(&t->clients->holdq); c != NULL; c = next) {
        next = TAILQ_NEXT(c, hold);
        if (c->st == CLI_OPEN)
            ses_check_slow(t, c);
    }
    for (uint32_t i = 0; i < t->n && t->clients->n_hello != 0; i++) {
        struct ses *s = t->v[i];

        /* After a stall of the loop the hello may have arrived unread. */
        if (s->c.st == CLI_HELLO && t->env->now - s->t_open >= limit)
            ses_hello(t, s);
        if (s->c.st == CLI_HELLO && t->env->now - s->t_open >= limit) {
            log_debug("session: pid %d did not finish its handshake", (int)s->c.pid);
            cnt_add(&t->env->cnt->sessions_refused, 1);
            cli_kill(t->clients, &s->c, FDP_OK);
        }
    }
}

void
ses_announce(struct sessions *t, uint32_t state, uint32_t kind, uint32_t arg)
{
    struct fdp_event ev = { kind, arg };

    for (uint32_t i = 0; i < t->n; i++) {
        struct ses *s = t->v[i];
        struct fdp_state *st;

        if (s->c.st != CLI_OPEN && s->c.st != CLI_MAPS)
            continue;
        st = (struct fdp_state *)(void *)(s->c.d2c.p + FDP_D2C_STATE);
        fdr_store_release(&st->state, state);
        if (kind != 0 && s->c.st == CLI_MAPS)
            s->ev = ev;
        else if (kind != 0)
            (void)cli_emit(t->clients, &s->c, 0, FDP_T_EVENT, &ev, sizeof(ev), 1);
    }
}

void
ses_trust(struct sessions *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        t->v[i]->c.trusted = names_in_list(t->names, t->v[i]->c.uid) != 0;
}

void
ses_goodbye(struct sessions *t, int code)
{
    for (uint32_t i = 0; i < t->n; i++) {
        struct ses *s = t->v[i];

        if (s->c.st != CLI_DOOMED) {
            cli_kill(t->clients, &s->c, FDP_OK);
            s->c.quiet = s->c.d2c.p == NULL;
            s->c.why = code;
        }
    }
    ses_reap(t, 1);
}

/* Its ring is not read before this time. */
static uint64_t
ses_t_read(const struct client *c)
{
    uint64_t t = itk_until(c);

    return c->t_read > t ? c->t_read : t;
}

/* Would the next iteration read its ring? */
static int
ses_is_read(const struct sessions *t, const struct client *c)
{
    return c->st_rests == CLI_ST_READ && c->n_held == 0 && ses_t_read(c) <= t->env->now;
}

int
ses_park(struct sessions *t)
{
    int found = 0;

    t->t_read = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct client *c = &t->v[i]->c;
        uint64_t t_read = ses_t_read(c);

        if (t->v[i]->is_deaf && t_read <= t->env->now)
            ses_hear(t, t->v[i], 1);
        if (ses_is_read(t, c))
            fdr_flag_raise(t->v[i]->p_need_wakeup, 1);
        else if (t_read > t->env->now && (t->t_read == 0 || t_read < t->t_read))
            t->t_read = t_read;
    }
    /* Each flag was raised with a full barrier; now check the rings once more. */
    for (uint32_t i = 0; i < t->n; i++) {
        if (ses_is_read(t, &t->v[i]->c) && fdr_cons_recheck(&t->v[i]->c.sq) != 0)
            found = 1;
    }
    return found;
}

void
ses_unpark(struct sessions *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->v[i]->c.st == CLI_OPEN)
            fdr_store_relaxed(t->v[i]->p_need_wakeup, 0);
    }
}

int
ses_poll(struct sessions *t)
{
    uint32_t at = t->first < t->n ? t->first : 0;
    int work = 0;

    itk_begin(t->intake);
    t->first = at + 1;
    if (t->t_watch != 0)
        return rst_poll(t);
    for (uint32_t left = t->n; left != 0; left--) {
        struct client *c = &t->v[at]->c;

        if (itk_is_due(c)) {
            if (itk_is_spent(t->intake)) { /* the next iteration begins here */
                t->first = at;
                break;
            }
            work += itk_poll(t->intake, c);
        }
        at = at + 1 < t->n ? at + 1 : 0;
    }
    return work;
}

void
ses_check(const struct sessions *t)
{
    uint32_t n_hello = 0, n_doomed = 0, n = 0, n_jobs = 0, n_rest = 0;
    uint32_t n_seals = 0, n_opens = 0, n_waits = 0;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < t->n; i++) {
        const struct ses *s = t->v[i];

        OBJ_CHECK(s, SES_MAGIC);
        ASSERT(s->slot == i);
        ASSERT((s->c.n_held != 0) == (s->c.hold_first != NULL));
        n_hello += s->c.st == CLI_HELLO;
        n_doomed += s->c.st == CLI_DOOMED;
        n_jobs += s->c.job != NULL;
        n_rest += (s->c.rests & CLI_RESTS_LOOP) != 0;
        n_waits += (s->c.rests & CLI_RESTS_READ) != 0;
        n_seals += s->is_sealing;
        n_opens += s->opening != NULL;
        jnl_check_client(t->reqs->jnl, &s->c, &n, &bytes);
    }
    ASSERT(n_hello == t->clients->n_hello && n_doomed == t->clients->n_doomed);
    ASSERT(n_jobs == t->intake->n_jobs && n_rest == t->n_rest);
    ASSERT(n_seals == t->n_seals && n_opens == t->n_opens && n_waits == t->intake->n_waits);
    jnl_check(t->reqs->jnl, n, bytes);
    rq_check(t->reqs);
}
