/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/obj.h"
#include "daemon/gate/gate.h"
#include "daemon/gate/intake.h"
#include "daemon/gate/offloop.h"
#include "daemon/gate/peer.h"
#include "daemon/gate/places.h"
#include "daemon/gate/relay.h"

#define SES_ACCEPTS 64   /* connections per round */
#define SES_HELLO_MAX 512
#define SES_RETRY_MS 100u
#define SES_CQ_MIN 128u  /* a record of 64 slots and its padding */

_Static_assert(SES_CQ_MIN >= 2 * FDP_REC_MAX_SLOTS, "a longest record always fits");

/* ---- end ----------------------------------------------------------------- */

static struct ses *
ses_free(struct gate *g, struct ses *s)
{
    rly_drop_held(g, s);
    if (s->dirty)
        TAILQ_REMOVE(&g->outq, s, out);
    region_empty(&s->c2d, g->ofl);
    if (s->quiet)
        region_empty(&s->d2c, g->ofl);
    else /* its last records and the GOODBYE are still to be read */
        region_empty_later(&g->late, &s->d2c, g->now, g->ofl);
    if (s->doorbell >= 0) {
        gate_unwatch(g, s->doorbell, s);
        (void)close(s->doorbell);
    }
    if (s->fd >= 0) {
        gate_unwatch(g, s->fd, s);
        (void)ofl_close(g->ofl, s->fd);
    }
    if (s->usr != NULL) {
        ASSERT(s->usr->n_ses > 0);
        s->usr->n_ses--;
    }
    OBJ_FREE(s, SES_MAGIC);
    return NULL;
}

static void
ses_unlist(struct gate *g, struct ses *s)
{
    struct ses *last = g->ses[--g->n_ses];

    ASSERT(g->ses[s->slot] == s);
    last->slot = s->slot;
    g->ses[s->slot] = last;
    g->ses[g->n_ses] = NULL;
    cnt_set(&g->cnt->sessions, g->n_ses);
}

void
ses_kill(struct gate *g, struct ses *s, int code)
{
    OBJ_CHECK(s, SES_MAGIC);
    if (s->st == SES_DOOMED)
        return;
    if (s->st == SES_HELLO)
        g->n_hello--;
    s->why = code;
    s->quiet = s->st == SES_HELLO || code == FDP_OK;
    s->st = SES_DOOMED;
    g->n_doomed++;
    if (code != FDP_OK)
        cnt_add(&g->cnt->sessions_killed, 1);
}

/* Tell the client that nothing follows. Only stores and a wake-up: its
 * memory may be anything by now. */
static void
ses_say_goodbye(struct ses *s)
{
    struct fdp_state *st = (struct fdp_state *)(void *)(s->d2c.p + FDP_D2C_STATE);

    if (s->cq.pub != s->cq.tail) {
        s->cq.pub = s->cq.tail;
        fdr_publish(s->cq.p_tail, s->cq.tail);
    }
    fdr_store_relaxed(&st->reason, (uint32_t)-s->why);
    fdr_store_release(&st->state, FDP_ST_GOODBYE);
    (void)send(s->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void
ses_end(struct gate *g, struct ses *s)
{
    struct jreq *r;

    if (!s->quiet && s->d2c.p != NULL)
        ses_say_goodbye(s);
    while ((r = TAILQ_FIRST(&s->reqs)) != NULL) {
        jnl_orphan(g, r);
        rly_cancel(g, r, FDP_E_CANCELLED);
    }
    if (s->d2c.p != NULL)
        log_debug("session: %llu closed: %s pid %d uid %u, %llu requests, %s",
            (unsigned long long)s->id, s->shown, (int)s->pid, (unsigned)s->uid,
            (unsigned long long)s->n_requests,
            s->why == FDP_OK ? "client left" : "ended by the daemon");
    ses_unlist(g, s);
    (void)ses_free(g, s);
}

void
ses_reap(struct gate *g, uint64_t now_ns)
{
    (void)now_ns;
    if (g->n_doomed == 0)
        return;
    for (uint32_t i = g->n_ses; i-- > 0;) {
        if (g->ses[i]->st == SES_DOOMED) {
            ses_end(g, g->ses[i]);
            g->n_doomed--;
        }
    }
    ASSERT(g->n_doomed == 0);
}

/* ---- begin --------------------------------------------------------------- */

static void
ses_send_welcome(int fd, const struct fdp_welcome *w)
{
    (void)send(fd, w, sizeof(*w), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* A refusal before there is a session. */
/* When sessions end is known to nobody: not sooner than clients may ask. */
static uint32_t
ses_retry_ms(const struct gate *g)
{
    uint32_t ms = gate_retry_ms(g);

    return ms < SES_RETRY_MS ? SES_RETRY_MS : ms;
}

static int
ses_refuse(struct gate *g, int fd, int code, uint32_t retry_ms)
{
    struct fdp_welcome w;

    memset(&w, 0, sizeof(w));
    w.magic = FDP_MAGIC;
    w.major = FDP_MAJOR;
    w.minor = FDP_MINOR;
    w.size = sizeof(w);
    w.err = code;
    w.retry_after_ms = retry_ms;
    ses_send_welcome(fd, &w);
    (void)ofl_close(g->ofl, fd);
    cnt_add(&g->cnt->sessions_refused, 1);
    return -EACCES;
}

/* The table is full for this user: the one that leaves makes room at once. */
static int
ses_make_room(struct gate *g, const struct usr *u, uint64_t now_ns)
{
    struct ses *s;
    struct plc p;

    plc_begin(&p, (uint32_t)u->n_ses, now_ns);
    for (uint32_t i = 0; i < g->n_ses; i++) {
        s = g->ses[i];
        if (s->st != SES_DOOMED)
            plc_look(&p, (int)i, &(struct plc_ses) { (uint32_t)s->usr->n_ses,
                s->n_inflight, s->t_used });
    }
    if (p.at < 0)
        return 0;
    s = g->ses[p.at];
    log_info("session: %llu (%s, pid %d, uid %u) is closed for user %u: "
        "ipc.max_clients are open, %u of its user, idle for %llu s",
        (unsigned long long)s->id, s->shown, (int)s->pid, (unsigned)s->uid,
        (unsigned)u->key, p.best.sessions,
        (unsigned long long)((now_ns - s->t_used) / CLK_S));
    ses_kill(g, s, FDP_E_DISCONNECTED);
    ses_reap(g, now_ns);
    return 1;
}

static int
ses_has_room(const struct gate *g, int is_kept)
{
    uint64_t max = (uint64_t)g->par->ipc_max_clients + (is_kept ? PLC_KEPT : 0);

    return g->n_ses < g->max_ses && g->n_ses < max;
}

static int
ses_admit(struct gate *g, struct usr *u, uid_t uid, int trusted, uint64_t now_ns,
    const char **ret_why)
{
    int is_kept = trusted || uid == 0 || uid == geteuid();

    *ret_why = NULL;
    if (g->par->ipc_refuse_own_uid && uid == geteuid()) {
        *ret_why = "it runs as the daemon's own user (ipc.refuse_own_uid)";
        return FDP_E_PERM;
    }
    if (!trusted && u->n_ses >= (uint64_t)g->par->ipc_max_clients_per_user) {
        *ret_why = "its user has ipc.max_clients_per_user sessions";
        return FDP_E_LIMIT;
    }
    if (!trusted && !usr_connect(g, u, now_ns)) {
        *ret_why = "its user connects more often than ipc.connects_per_second";
        return FDP_E_LIMIT;
    }
    if (!ses_has_room(g, is_kept) && !ses_make_room(g, u, now_ns)) {
        *ret_why = "ipc.max_clients sessions are open, or as many as there are descriptors";
        return FDP_E_LIMIT;
    }
    return FDP_OK;
}

int
ses_adopt(struct gate *g, int fd, pid_t pid, uid_t uid, gid_t gid, uint64_t now_ns)
{
    int trusted = names_in_list(&g->names, uid);
    struct usr *u = usr_get(g, uid, now_ns);
    const char *why;
    struct ses *s;
    int code;

    if (u == NULL)
        return ses_refuse(g, fd, FDP_E_OVERLOAD, ses_retry_ms(g));
    code = ses_admit(g, u, uid, trusted, now_ns, &why);
    if (code != FDP_OK) {
        log_debug("session: pid %d uid %u refused: %s", (int)pid, (unsigned)uid, why);
        return ses_refuse(g, fd, code, code == FDP_E_LIMIT ? ses_retry_ms(g) : 0);
    }
    OBJ_ALLOC(s, SES_MAGIC);
    if (s == NULL)
        return ses_refuse(g, fd, FDP_E_OVERLOAD, ses_retry_ms(g));
    s->st = SES_HELLO;
    s->fd = fd;
    s->doorbell = -1;
    s->trusted = trusted != 0;
    s->id = g->next_ses_id++;
    s->pid = pid;
    s->uid = uid;
    s->gid = gid;
    s->usr = u;
    s->t_open = s->t_used = now_ns;
    TAILQ_INIT(&s->reqs);
    u->n_ses++;
    if (gate_watch(g, fd, EPOLLIN | EPOLLRDHUP, GATE_EV_SES, s) != 0) {
        s->fd = -1;
        (void)ses_free(g, s);
        return ses_refuse(g, fd, FDP_E_OVERLOAD, ses_retry_ms(g));
    }
    s->slot = g->n_ses;
    g->ses[g->n_ses++] = s;
    g->n_hello++;
    return 0;
}

int
ses_accept(struct gate *g, uint64_t now_ns)
{
    int n;

    for (n = 0; n < SES_ACCEPTS; n++) {
        struct ucred cred;
        int fd = lsn_accept(&g->lsn, g->rt.listen_fd, "session", g->ofl, now_ns, &cred);

        if (fd < 0)
            return n;
        (void)ses_adopt(g, fd, cred.pid, cred.uid, cred.gid, now_ns);
    }
    lsn_later(&g->lsn, now_ns);
    return n;
}

/* ---- handshake ----------------------------------------------------------- */

static uint32_t
ses_pow2(uint32_t want, uint32_t lo, uint32_t hi)
{
    uint32_t v = lo;

    while (v < want && v < hi)
        v *= 2;
    return v;
}

/* The geometry: the client's wishes within the limits. */
static void
ses_geometry(const struct gate *g, const struct fdp_hello *h, struct fdp_welcome *w)
{
    uint64_t max = (uint64_t)g->par->ipc_max_session_bytes;
    uint32_t sq = h->sq_slots != 0 ? h->sq_slots : (uint32_t)g->par->ipc_sq_slots;
    uint32_t cq = h->cq_slots != 0 ? h->cq_slots : (uint32_t)g->par->ipc_cq_slots;
    uint64_t arena = h->arena_bytes != 0 ? h->arena_bytes :
        (uint64_t)g->par->ipc_arena_bytes;
    uint64_t rest;

    w->sq_slots = ses_pow2(sq, 16, 65536);
    w->cq_slots = ses_pow2(cq, SES_CQ_MIN, 1048576);
    /* What was asked for shrinks until it fits; the rings of the smallest
     * size take 11 KiB, and max_session_bytes is 1 MiB at least. */
    while ((uint64_t)w->cq_slots * FDP_SLOT > max / 4 && w->cq_slots > SES_CQ_MIN)
        w->cq_slots /= 2;
    while ((uint64_t)w->sq_slots * sizeof(struct fdp_req) > max / 4 && w->sq_slots > 16)
        w->sq_slots /= 2;
    w->sq_off = FDP_C2D_SLOTS;
    w->cq_off = FDP_D2C_SLOTS;
    w->arena_off = w->sq_off + w->sq_slots * (uint32_t)sizeof(struct fdp_req);
    w->d2c_bytes = (w->cq_off + w->cq_slots * FDP_SLOT + 4095) & ~4095u;
    rest = max - w->d2c_bytes - w->arena_off;
    if (arena > rest)
        arena = rest;
    w->c2d_bytes = ((uint32_t)arena + w->arena_off + 4095) & ~4095u;
    if ((uint64_t)w->c2d_bytes + w->d2c_bytes > max)
        w->c2d_bytes -= 4096;
    w->arena_bytes = w->c2d_bytes - w->arena_off;
}

/* Both regions; descriptors for the client. */
static int
ses_map(struct ses *s, const struct fdp_welcome *w, int ret_fds[2])
{
    int rc = region_make(&s->c2d, "fdd-c2d", w->c2d_bytes, REGION_THEIRS, &ret_fds[0]);

    if (rc != 0)
        return rc;
    rc = region_make(&s->d2c, "fdd-d2c", w->d2c_bytes, REGION_OURS, &ret_fds[1]);
    if (rc != 0)
        (void)close(ret_fds[0]);
    s->growing = 1;
    return rc;
}

static int
ses_send_fds(int fd, const struct fdp_welcome *w, const int fds[FDP_N_FDS])
{
    char ctl[CMSG_SPACE(sizeof(int) * FDP_N_FDS)] __attribute__((aligned(8)));
    struct iovec iov = { (void *)(uintptr_t)w, sizeof(*w) };
    struct msghdr m;
    struct cmsghdr *c;

    memset(&m, 0, sizeof(m));
    memset(ctl, 0, sizeof(ctl));
    m.msg_iov = &iov;
    m.msg_iovlen = 1;
    m.msg_control = ctl;
    m.msg_controllen = sizeof(ctl);
    c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * FDP_N_FDS);
    memcpy(CMSG_DATA(c), fds, sizeof(int) * FDP_N_FDS);
    return sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(*w) ? 0 :
        -errno;
}

static void
ses_fill_welcome(const struct gate *g, const struct ses *s, const struct fdp_hello *h,
    struct fdp_welcome *w)
{
    const struct wrk *k = &g->wrk[0];

    memset(w, 0, sizeof(*w));
    w->magic = FDP_MAGIC;
    w->major = FDP_MAJOR;
    w->minor = FDP_MINOR;
    w->size = sizeof(*w);
    w->feat_on = (h->feat_want | h->feat_need) & FDP_FEAT_ALL;
    w->boot_id[0] = g->boot_id[0];
    w->boot_id[1] = g->boot_id[1];
    w->session_id = s->id;
    ses_geometry(g, h, w);
    w->max_inflight = s->trusted ? g->jnl.n_max :
        (uint32_t)g->par->sched_max_inflight_per_client;
    if (w->max_inflight > g->jnl.n_max)
        w->max_inflight = g->jnl.n_max;
    if (k->st == WRK_READY) {
        w->max_model_len = k->ready.info.max_model_len;
        w->vocab = k->ready.info.vocab;
        memcpy(w->model_digest, k->ready.info.model_digest, sizeof(w->model_digest));
        memcpy(w->model_name, k->ready.info.model_name, sizeof(w->model_name));
        w->model_name[sizeof(w->model_name) - 1] = '\0';
    }
}

static int
ses_open(struct gate *g, struct ses *s, const struct fdp_hello *h)
{
    struct fdp_welcome w;
    struct fdp_state *st;
    int fds[FDP_N_FDS];
    int rc;

    ses_fill_welcome(g, s, h, &w);
    rc = ses_map(s, &w, fds);
    if (rc != 0)
        return rc;
    s->doorbell = fds[2] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->doorbell < 0) {
        rc = -errno;
        goto close_fds;
    }
    /* Edge-triggered and never read: whatever the client does to the shared
     * descriptor costs only itself. */
    rc = gate_watch(g, s->doorbell, EPOLLIN | EPOLLET, GATE_EV_BELL, s);
    if (rc != 0)
        goto close_fds;
    s->arena = s->c2d.p + w.arena_off;
    s->arena_bytes = w.arena_bytes;
    s->p_cq_wait = (uint32_t *)(void *)(s->c2d.p + FDP_C2D_CQ_WAIT);
    s->p_need_wakeup = (uint32_t *)(void *)(s->d2c.p + FDP_D2C_SQ_NEED_WAKEUP);
    fdr_cons_init(&s->sq, s->c2d.p + w.sq_off,
        (uint32_t *)(void *)(s->c2d.p + FDP_C2D_SQ_TAIL),
        (uint32_t *)(void *)(s->d2c.p + FDP_D2C_SQ_HEAD), w.sq_slots,
        sizeof(struct fdp_req));
    fdr_prod_init(&s->cq, s->d2c.p + w.cq_off,
        (uint32_t *)(void *)(s->d2c.p + FDP_D2C_CQ_TAIL),
        (uint32_t *)(void *)(s->c2d.p + FDP_C2D_CQ_HEAD), w.cq_slots, FDP_SLOT);
    st = (struct fdp_state *)(void *)(s->d2c.p + FDP_D2C_STATE);
    st->boot_id[0] = g->boot_id[0];
    st->boot_id[1] = g->boot_id[1];
    fdr_store_release(&st->state, g->st == GATE_RUNNING ? FDP_ST_RUN : FDP_ST_DRAIN);
    rc = ses_send_fds(s->fd, &w, fds);

close_fds:
    (void)close(fds[0]);
    (void)close(fds[1]);
    return rc;
}

/* 0 or the status to refuse with. */
static int
ses_check_hello(const unsigned char *buf, size_t n, struct fdp_hello *ret)
{
    struct fdp_hello h;

    if (n < sizeof(h) || n > SES_HELLO_MAX)
        return FDP_E_PROTO;
    memcpy(&h, buf, sizeof(h));
    if (h.magic != FDP_MAGIC)
        return FDP_E_PROTO;
    if (h.major != FDP_MAJOR) {
        log_warn("session: a client speaks protocol %u.%u, this daemon %d.%d; refused",
            h.major, h.minor, FDP_MAJOR, FDP_MINOR);
        return FDP_E_VERSION;
    }
    if (h.size != n || h.rsv0 != 0 || h.rsv1 != 0)
        return FDP_E_PROTO;
    for (size_t i = sizeof(h); i < n; i++) {
        if (buf[i] != 0) /* a newer client insists on something unknown */
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
        s->name[n] = name[n] >= 0x20 && name[n] < 0x7f ? name[n] : '?';
        n++;
    }
    s->name[n] = '\0';
    (void)log_quote(s->name, s->shown, sizeof(s->shown));
}

static void
ses_hello(struct gate *g, struct ses *s, uint64_t now_ns)
{
    unsigned char buf[SES_HELLO_MAX + 1];
    struct fdp_welcome w;
    struct fdp_hello h;
    ssize_t n;
    int code, rc;

    n = peer_recv(s->fd, buf, sizeof(buf));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0 && errno == EBADMSG)
        log_warn("session: pid %d uid %u sent descriptors with its hello", (int)s->pid,
            (unsigned)s->uid);
    if (n <= 0) {
        ses_kill(g, s, FDP_OK);
        return;
    }
    code = ses_check_hello(buf, (size_t)n, &h);
    if (code == FDP_OK) {
        ses_set_name(s, h.name);
        rc = ses_open(g, s, &h);
        if (rc == 0) {
            s->st = SES_OPEN;
            g->n_hello--;
            cnt_add(&g->cnt->sessions_total, 1);
            cnt_set(&g->cnt->sessions, g->n_ses);
            log_debug("session: %llu open: %s pid %d uid %u, %u us",
                (unsigned long long)s->id, s->shown, (int)s->pid, (unsigned)s->uid,
                (unsigned)((clk_now_ns() - now_ns) / CLK_US));
            return;
        }
        if (rc == -EPIPE || rc == -ECONNRESET) {
            ses_kill(g, s, FDP_OK);
            return;
        }
        log_warn("session: cannot set up shared memory for pid %d: %s", (int)s->pid,
            strerror(-rc));
        code = FDP_E_OVERLOAD;
    }
    memset(&w, 0, sizeof(w));
    w.magic = FDP_MAGIC;
    w.major = FDP_MAJOR;
    w.minor = FDP_MINOR;
    w.size = sizeof(w);
    w.err = code;
    w.retry_after_ms = code == FDP_E_OVERLOAD ? ses_retry_ms(g) : 0;
    ses_send_welcome(s->fd, &w);
    cnt_add(&g->cnt->sessions_refused, 1);
    ses_kill(g, s, FDP_OK);
}

void
ses_event(struct gate *g, struct ses *s, uint64_t now_ns)
{
    char c;
    ssize_t n;

    OBJ_CHECK(s, SES_MAGIC);
    if (s->st == SES_DOOMED)
        return;
    if (s->st == SES_HELLO) {
        ses_hello(g, s, now_ns);
        return;
    }
    n = recv(s->fd, &c, 1, MSG_DONTWAIT | MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        log_warn("session: %llu (%s, pid %d) sent data after its handshake",
            (unsigned long long)s->id, s->shown, (int)s->pid);
        ses_kill(g, s, FDP_E_PROTO);
        return;
    }
    /* What it submitted before it left is not wanted any more. */
    ses_kill(g, s, FDP_OK);
}

/* ---- all sessions -------------------------------------------------------- */

void
ses_tick(struct gate *g, uint64_t now_ns)
{
    uint64_t limit = (uint64_t)g->par->ipc_handshake_timeout_ms * CLK_MS;

    region_late_tick(&g->late, now_ns, g->ofl);
    if (lsn_due(&g->lsn, now_ns))
        (void)ses_accept(g, now_ns);
    if (g->n_hello == 0 && g->n_holding == 0)
        return;
    for (uint32_t i = 0; i < g->n_ses; i++) {
        struct ses *s = g->ses[i];

        /* After a stall of the loop the hello may be there, unread. */
        if (s->st == SES_HELLO && now_ns - s->t_open >= limit)
            ses_hello(g, s, now_ns);
        if (s->st == SES_HELLO && now_ns - s->t_open >= limit) {
            log_debug("session: pid %d did not finish its handshake", (int)s->pid);
            cnt_add(&g->cnt->sessions_refused, 1);
            ses_kill(g, s, FDP_OK);
        } else if (s->st == SES_OPEN) {
            rly_check_slow(g, s, now_ns);
        }
    }
}

void
ses_announce(struct gate *g, uint32_t state, uint32_t kind, uint32_t arg)
{
    struct fdp_event ev = { kind, arg };

    for (uint32_t i = 0; i < g->n_ses; i++) {
        struct ses *s = g->ses[i];
        struct fdp_state *st;

        if (s->st != SES_OPEN)
            continue;
        st = (struct fdp_state *)(void *)(s->d2c.p + FDP_D2C_STATE);
        fdr_store_release(&st->state, state);
        if (kind != 0)
            (void)rly_emit(g, s, 0, FDP_T_EVENT, 0, 0, &ev, sizeof(ev), 1);
    }
}

void
ses_goodbye(struct gate *g, int code)
{
    for (uint32_t i = 0; i < g->n_ses; i++) {
        struct ses *s = g->ses[i];

        if (s->st != SES_DOOMED) {
            ses_kill(g, s, FDP_OK);
            s->quiet = s->d2c.p == NULL;
            s->why = code;
        }
    }
    ses_reap(g, g->now);
}

int
ses_park(struct gate *g)
{
    int found = 0;

    for (uint32_t i = 0; i < g->n_ses; i++) {
        if (g->ses[i]->st == SES_OPEN && g->ses[i]->n_held == 0)
            fdr_flag_raise(g->ses[i]->p_need_wakeup, 1);
    }
    /* Each flag went up by a full barrier; now look once more. */
    for (uint32_t i = 0; i < g->n_ses; i++) {
        if (g->ses[i]->st == SES_OPEN && g->ses[i]->n_held == 0 &&
            fdr_cons_recheck(&g->ses[i]->sq) != 0)
            found = 1;
    }
    return found;
}

void
ses_unpark(struct gate *g)
{
    for (uint32_t i = 0; i < g->n_ses; i++) {
        if (g->ses[i]->st == SES_OPEN)
            fdr_store_relaxed(g->ses[i]->p_need_wakeup, 0);
    }
}

void
ses_check(const struct gate *g)
{
    uint32_t n_hello = 0, n_doomed = 0, n_holding = 0;

    for (uint32_t i = 0; i < g->n_ses; i++) {
        const struct ses *s = g->ses[i];

        OBJ_CHECK(s, SES_MAGIC);
        ASSERT(s->slot == i);
        ASSERT((s->n_held != 0) == (s->hold_first != NULL));
        n_hello += s->st == SES_HELLO;
        n_doomed += s->st == SES_DOOMED;
        n_holding += s->n_held != 0;
    }
    ASSERT(n_hello == g->n_hello && n_doomed == g->n_doomed);
    ASSERT(n_holding == g->n_holding);
}
