/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A session that outlives its daemon (fdc_open_opts.reconnect_ms). When its daemon is
 * lost it goes down instead of ending. A thread that waits in the library or dispatches
 * opens it again, one thread at a time, with a pause that doubles. A complete new session
 * is made, and its rings, mappings and descriptors replace the old ones, but not while a
 * thread is parked on the old ring. Then lost requests are sent again. When only the
 * worker restarts, requests are lost but not the session.
 */
#include "config.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "libclient/priv.h"

#define FIRST_WAIT_MS 10
#define MAX_WAIT_MS   1000
#define DIAL_MS       1000 /* limit for a daemon that does not answer */
#define FULL_NS       20000000ull
#define MS            1000000ull

/* Sets when fdc__revive() has work next; event loops wake up then. */
static void
set_next(struct fdc *s, uint64_t t)
{
    struct itimerspec it = { .it_value = { .tv_sec = (time_t)(t / 1000000000u),
                                 .tv_nsec = (long)(t % 1000000000u) } };

    s->re.next = t;
    (void)timerfd_settime(s->re.timer, TFD_TIMER_ABSTIME, &it, NULL);
}

void
fdc__lose(struct fdc_req *r, const struct fdp_error *why)
{
    uint64_t now = fdc__now(), ms = why->retry_after_ms;
    struct fdc *s = r->s;

    if (ms < FIRST_WAIT_MS)
        ms = FIRST_WAIT_MS;
    r->j->why = *why;
    r->j->retry = now + (ms < MAX_WAIT_MS ? ms : MAX_WAIT_MS) * MS;
    if (r->j->t_lost == 0)
        r->j->t_lost = now;
    r->lost = 1;
    s->re.n_lost++;
    if (!s->re.down && (s->re.n_lost == 1 || r->j->retry < s->re.next))
        set_next(s, r->j->retry);
}

/* ---- down ------------------------------------------------------------------ */

static void
lose_place(struct fdc *s, uint32_t i, const struct fdp_error *why)
{
    struct fdp_error cancelled = { .code = FDP_E_CANCELLED };
    struct fdc_req *r = s->tags[i].req;

    fdc__tag_release(s, i);
    if (r == NULL)
        return;
    if (r->sending) /* its thread checks this before it sends */
        r->open = 0;
    else if (r->cancelled)
        fdc__end_error(r, &cancelled);
    else if (r->j && fdc__journal_outlives(s, r, why))
        fdc__lose(r, why);
    else
        fdc__end_error(r, why);
}

static int
go_down(struct fdc *s, int why)
{
    struct fdp_error e = { .code = why };

    if (why == FDP_E_PROTO || why == FDP_E_VERSION || why == FDP_E_PERM ||
        why == FDP_E_SLOW || why == FDP_E_NOMEM)
        return 0;
    pthread_mutex_lock(&s->mtx_sq);
    s->re.down = why;
    s->re.t_down = fdc__now();
    s->re.wait_ms = FIRST_WAIT_MS;
    e.code = FDP_E_DISCONNECTED;
    for (uint32_t i = 0; i < s->n_tag; i++)
        if (s->tags[i].used)
            lose_place(s, i, &e);
    pthread_mutex_unlock(&s->mtx_sq);
    /* The old socket would keep fdc_fd() readable until there is a new one. */
    (void)epoll_ctl(s->ep, EPOLL_CTL_DEL, s->sock, NULL);
    shutdown(s->sock, SHUT_RDWR);
    s->eof = 0;
    s->flags = 0;
    set_next(s, s->re.t_down);
    fdc__kick(s);
    fdc__signal_loop(s);
    return 1;
}

/* Ends the lost requests: nothing will take them. */
static void
end_lost(struct fdc *s)
{
    for (struct fdc_req *r = s->all; r; r = r->all_next) {
        if (!r->lost)
            continue;
        r->lost = 0;
        s->re.n_lost--;
        fdc__end_error(r, &r->j->why);
    }
}

void
fdc__die(struct fdc *s, int why)
{
    struct fdp_error e = { .code = why };

    if (s->dead || s->re.down || (s->re.ms && go_down(s, why)))
        return;
    s->dead = why;
    for (uint32_t i = 0; i < s->n_tag; i++) {
        struct fdc_req *r = s->tags[i].used ? s->tags[i].req : NULL;
        if (!s->tags[i].used)
            continue;
        fdc__tag_release(s, i);
        if (r)
            fdc__end_error(r, &e);
    }
    end_lost(s);
    shutdown(s->sock, SHUT_RDWR);
    fdc__kick(s);
    if (s->fd_armed)
        fdc__signal_local(s);
}

/* No daemon came back: the session ends as it would have without reconnecting. */
static void
give_up_all(struct fdc *s, int why)
{
    s->re.ms = 0;
    s->re.down = 0;
    fdc__die(s, why);
    fdc__kick(s);
}

/* ---- up --------------------------------------------------------------------- */

#define SWAP(field) \
    do { \
        __typeof__(s->field) old_ = s->field; \
        s->field = f->field; \
        f->field = old_; \
    } while (0)

/* Replaces the old connection by f's; f gets the old one. */
static void
adopt(struct fdc *s, struct fdc *f)
{
    struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP };
    uint32_t a_size = f->a_size;

    pthread_mutex_lock(&s->mtx_sq);
    SWAP(sock);
    SWAP(bell);
    SWAP(c2d);
    SWAP(d2c);
    SWAP(w);
    SWAP(sq);
    SWAP(sq_wait);
    SWAP(need_wakeup);
    SWAP(arena);
    __atomic_store_n(&s->a_size, a_size, __ATOMIC_RELAXED);
    SWAP(a_span);
    s->a_used = s->a_at = 0;
    s->a_retired = f->a_retired;
    SWAP(cq);
    SWAP(cq_wait);
    SWAP(state);
    SWAP(tags);
    SWAP(n_tag);
    SWAP(tag_free);
    s->n_open = s->n_cancel = 0;
    s->re.n_done++;
    /* An old tag must not be taken for a new one. */
    for (uint32_t i = 0; i < s->n_tag; i++)
        s->tags[i].gen = s->re.n_done << 16 | 1;
    s->re.down = 0;
    pthread_mutex_unlock(&s->mtx_sq);
    (void)epoll_ctl(s->ep, EPOLL_CTL_ADD, s->sock, &ev);
    s->eof = 0;
    fdc__session_free(f, 0);
}

/* Returns 1 if the model is another one, or the new daemon has none yet. */
static int
is_other_model(const struct fdc *s, const struct fdc *f)
{
    static const uint8_t none[32];

    return memcmp(s->re.digest, none, 32) != 0 &&
        memcmp(s->re.digest, f->w.model_digest, 32) != 0;
}

static void
came_back(struct fdc *s, struct fdc *f)
{
    int other = is_other_model(s, f);

    memcpy(s->re.digest, f->w.model_digest, 32);
    adopt(s, f);
    if (other) /* they cannot go on with this model */
        end_lost(s);
    fdc__kick(s);
    fdc__signal_loop(s);
}

/* Is the failure final? Then there is a daemon and it refuses this client. */
static int
is_final(int rc)
{
    return rc == FDP_E_VERSION || rc == FDP_E_PERM || rc == FDP_E_PROTO;
}

static void
reopen(struct fdc *s)
{
    struct fdc_open_opts o = s->re.o;
    struct fdc_open_error e = { 0 };
    uint64_t wait_ms = s->re.wait_ms;
    struct fdc *f;
    int rc;

    if (o.connect_timeout_ms == 0 || o.connect_timeout_ms > DIAL_MS)
        o.connect_timeout_ms = DIAL_MS;
    s->re.dialing = 1;
    pthread_mutex_unlock(&s->mtx);
    rc = fdc__dial(&o, &f, &e);
    if (rc == 0 && f->w.vocab == 0) {
        fdc__session_free(f, 0); /* it is still loading, so its model is not known */
        rc = FDP_E_LOADING;
    }
    pthread_mutex_lock(&s->mtx);
    s->re.dialing = 0;
    if (rc == 0) {
        came_back(s, f);
        return;
    }
    if (is_final(rc) ||
        (s->re.ms != UINT32_MAX && fdc__now() - s->re.t_down > s->re.ms * MS)) {
        give_up_all(s, is_final(rc) ? rc : s->re.down);
        return;
    }
    if (e.retry_after_ms > wait_ms)
        wait_ms = e.retry_after_ms;
    s->re.wait_ms = s->re.wait_ms * 2 < MAX_WAIT_MS ? s->re.wait_ms * 2 : MAX_WAIT_MS;
    set_next(s, fdc__now() + (wait_ms < MAX_WAIT_MS ? wait_ms : MAX_WAIT_MS) * MS);
    fdc__kick(s); /* others sleep until this attempt ends */
}

/* ---- lost requests ------------------------------------------------------------ */

static int
push_again(struct fdc *s, struct fdc_req *r, struct fdp_req *slot, const struct blob *b,
    uint32_t span)
{
    int rc;

    if (!fdc__tag_take(s, r))
        return FDP_E_LIMIT;
    slot->tag = r->tag;
    pthread_mutex_lock(&s->mtx_sq);
    rc = fdc__push(s, slot, b, span);
    pthread_mutex_unlock(&s->mtx_sq);
    if (rc) {
        fdc__tag_untake(s, r);
        r->open = 1;
    }
    return rc;
}

/* Reduces the request's time limits by the time passed. E_DEADLINE: they have passed. */
static int
shorten(struct fdp_req *q, const struct journal *j, uint64_t now)
{
    uint64_t ms = (now - j->t_submit) / MS;

    if (j->accepted)
        q->ttl_queue_ms = 0;
    if ((q->ttl_total_ms && q->ttl_total_ms <= ms) ||
        (q->ttl_queue_ms && q->ttl_queue_ms <= ms))
        return FDP_E_DEADLINE;
    if (q->ttl_total_ms)
        q->ttl_total_ms -= (uint32_t)ms;
    if (q->ttl_queue_ms)
        q->ttl_queue_ms -= (uint32_t)ms;
    return 0;
}

/* Returns 0 if sent; E_FULL or E_LIMIT: not now; else why it cannot be sent. */
static int
send_again(struct fdc *s, struct fdc_req *r, uint64_t now)
{
    struct journal *j = r->j;
    struct fdc_params prior = { .prior_ids = j->ids, .n_prior = j->safe };
    struct blob b = { .type = -1, .prompt = j->items, .prompt_bytes = j->n_items };
    struct fdp_req q = j->slot;
    uint32_t span;
    int rc = shorten(&q, j, now);

    if (rc)
        return rc;
    if (s->re.ms != UINT32_MAX && now - j->t_lost > s->re.ms * MS)
        return j->why.code;
    b.p = &prior;
    q.n_prior = j->safe;
    rc = fdc__blob_bytes(s, &b, &span);
    return rc ? rc : push_again(s, r, &q, &b, span);
}

/* Tries one lost request. Returns when to try it again; FDC_NEVER: it was sent or
 * ended. */
static uint64_t
try_again(struct fdc *s, struct fdc_req *r, uint64_t now)
{
    struct journal *j = r->j;
    struct fdp_error e = j->why;
    int rc;

    if (now < j->retry)
        return j->retry;
    rc = send_again(s, r, now);
    if (rc == FDP_E_FULL || rc == FDP_E_LIMIT)
        return j->retry = now + FULL_NS;
    r->lost = 0;
    s->re.n_lost--;
    if (rc == 0)
        return FDC_NEVER;
    if (rc == FDP_E_PROTO)
        fdc__die(s, rc);
    if (rc != e.code)
        e = (struct fdp_error){ .code = rc };
    fdc__end_error(r, &e);
    return FDC_NEVER;
}

/* Sends lost requests, the oldest first. */
static void
send_lost(struct fdc *s)
{
    uint64_t now = fdc__now(), next = FDC_NEVER, t;
    struct fdc_req *r = s->all;

    while (r && r->all_next)
        r = r->all_next;
    for (; r && !s->re.down && !s->dead; r = r->all_prev) {
        if (!r->lost)
            continue;
        t = try_again(s, r, now);
        next = t < next ? t : next;
    }
    if (s->re.n_lost && !s->re.down)
        set_next(s, next);
}

void
fdc__revive(struct fdc *s)
{
    if (s->re.dialing || fdc__now() < s->re.next)
        return;
    if (s->re.down) {
        if (s->parked) /* on the old ring; it was woken, and signals event loops */
            return;
        reopen(s);
    }
    if (!s->re.down && !s->dead && s->re.n_lost)
        send_lost(s);
}
