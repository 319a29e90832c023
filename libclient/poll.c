/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libclient/priv.h"

#define LEAVE_NS   1000000 /* time in which a thread parked on a dead ring leaves it */
#define SPIN_LOOKS 32      /* reads of the ring's cursor between looks at the clock */

/* ---- waking -------------------------------------------------------------- */

static void
futex_wait(const uint32_t *word, int op, uint32_t seen, uint64_t ns)
{
    struct timespec ts = { .tv_sec = (time_t)(ns / 1000000000u),
        .tv_nsec = (long)(ns % 1000000000u) };
    (void)syscall(SYS_futex, word, op, seen, ns == FDC_NEVER ? NULL : &ts, NULL, 0);
}

/* ---- a request's queue --------------------------------------------------- */

static uint32_t
rec_span(uint32_t len)
{
    return (uint32_t)(sizeof(struct fdp_rec) + ((len + 7) & ~7u));
}

static struct chunk *
chunk_get(struct fdc *s)
{
    struct chunk *c = s->pool;

    if (c)
        s->pool = c->next;
    else if (s->pool_fresh < s->pool_n)
        c = &s->pool_base[s->pool_fresh++];
    else
        c = (struct chunk *)malloc(sizeof(*c));
    if (c) {
        c->next = NULL;
        c->rd = c->wr = 0;
    }
    return c;
}

static void
chunk_put(struct fdc *s, struct chunk *c)
{
    if (c < s->pool_base || c >= s->pool_base + s->pool_n) {
        free(c);
        return;
    }
    c->next = s->pool;
    s->pool = c;
}

void
fdc__queue_free(struct fdc_req *r)
{
    while (r->first) {
        struct chunk *c = r->first;
        r->first = c->next;
        chunk_put(r->s, c);
    }
    r->last = NULL;
    r->unread = 0;
}

static inline __attribute__((always_inline)) int /* a call per record costs */
queue_put(struct fdc *s, struct fdc_req *r, const struct fdp_rec *h, const void *payload)
{
    uint32_t span = rec_span(h->len);
    struct chunk *c = r->last;
    unsigned char *d;

    if (r->unread + span > s->max_unread)
        return 0;
    if (c == NULL || c->wr + span > FDC_CHUNK_DATA) {
        c = chunk_get(s);
        if (c == NULL)
            return 0;
        if (r->last)
            r->last->next = c;
        else
            r->first = c;
        r->last = c;
    }
    d = (unsigned char *)c->data + c->wr;
    memcpy(d, h, sizeof(*h));
    memcpy(d + sizeof(*h), payload, h->len);
    c->wr += span;
    r->unread += span;
    return 1;
}

/* Frees the chunks to which the last event pointed. */
static void
queue_settle(struct fdc_req *r)
{
    struct chunk *c;

    while ((c = r->first) != NULL && c->rd == c->wr) {
        if (c->next == NULL) {
            c->rd = c->wr = 0;
            return;
        }
        r->first = c->next;
        chunk_put(r->s, c);
    }
}

/* ---- from the completion ring to the queues ------------------------------ */

static void
take_terminal(struct fdc *s, uint32_t i, const struct fdp_rec *h, const void *payload)
{
    struct fdc_req *r = s->tags[i].req;

    fdc__tag_release(s, i);
    if (r == NULL)
        return;
    if (r->j && h->type == FDP_T_ERROR && !r->cancelled &&
        fdc__journal_outlives(s, r, (const struct fdp_error *)payload)) {
        fdc__lose(r, (const struct fdp_error *)payload);
        return;
    }
    if (r->j && r->j->end.type)
        (void)queue_put(s, r, &r->j->end, &r->j->end_data);
    if (h->type == FDP_T_DONE)
        memcpy(&r->end.done, payload, sizeof(r->end.done));
    else
        memcpy(&r->end.error, payload, sizeof(r->end.error));
    if (h->type == FDP_T_ERROR)
        r->end.error.code = fdc__told(r->end.error.code, FDP_E_INTERNAL);
    r->term = h->type;
    r->open = 0;
    fdc__ready(r);
}

/* Ends the request for the program, cancels it at the daemon and drops its further
 * records. */
static void
give_up(struct fdc *s, struct tag_entry *t, const struct fdp_error *e)
{
    struct fdc_req *r = t->req;

    t->req = NULL;
    s->n_cancel += !t->cancel;
    t->cancel = 1;
    fdc__end_error(r, e);
}

/* Unread events exceed the limit, or there is no memory for them. */
static __attribute__((noinline)) void
too_much(struct fdc *s, struct tag_entry *t, const struct fdp_rec *h)
{
    struct fdp_error e = { .code = FDP_E_NOMEM };

    if (t->req->unread + rec_span(h->len) > s->max_unread)
        e.code = FDP_E_UNREAD;
    give_up(s, t, &e);
}

/* Cuts off what the program received before a restart. Returns 0 if nothing is left. */
static __attribute__((noinline)) int
is_new(struct fdc *s, struct tag_entry *t, struct fdp_rec *h, const unsigned char **payload)
{
    int rc = fdc__journal_take(t->req->j, h, payload);

    if (rc < 0) {
        struct fdp_error e = t->req->j->why;

        if (e.code == 0) /* it was never lost */
            e.code = FDP_E_PROTO;
        give_up(s, t, &e);
    }
    return rc > 0;
}

/* Queues a record. Returns -1 if its sample is not one of its request's. */
static int
take_record(struct fdc *s, const struct fdp_rec *h, const unsigned char *payload)
{
    uint32_t i = (uint32_t)h->tag;
    struct tag_entry *t;
    struct fdp_rec cut;
    struct fdc_req *r;

    if (h->tag == 0) {
        if (h->type == FDP_T_EVENT)
            fdc__session_event(s, payload, h->len);
        return 0;
    }
    if (i >= s->n_tag || !s->tags[i].used || s->tags[i].gen != h->tag >> 32)
        return 0;
    if (h->type == FDP_T_DONE || h->type == FDP_T_ERROR) {
        take_terminal(s, i, h, payload);
        return 0;
    }
    t = &s->tags[i];
    r = t->req;
    if (r == NULL || h->type >= FDP_T__N || h->type == FDP_T_EVENT)
        return 0;
    if (h->sample >= r->n)
        return -1;
    if (r->j) {
        cut = *h;
        h = &cut;
        if (!is_new(s, t, &cut, &payload))
            return 0;
    }
    if (h->type == FDP_T_IDS)
        __atomic_store_n(&r->n_out[h->sample], h->position + h->len / 4, __ATOMIC_RELAXED);
    else if (h->type == FDP_T_SPECIAL)
        __atomic_store_n(&r->n_out[h->sample], h->position + 1, __ATOMIC_RELAXED);
    if (queue_put(s, r, h, payload)) {
        fdc__ready(r);
        return 0;
    }
    too_much(s, t, h);
    return 0;
}

/* Takes a TOKENS record as the IDS and TEXT records it stands for. Returns -1 if it is
 * malformed. */
static int
take_tokens(struct fdc *s, const struct fdp_rec *h, const unsigned char *payload)
{
    struct fdp_rec part = *h;
    struct fdp_tokens t;

    if (h->len < sizeof(t))
        return -1;
    memcpy(&t, payload, sizeof(t));
    if (t.n_ids == 0 || t.n_text == 0 || FDP_TOKENS_LEN(t.n_ids, t.n_text) > h->len)
        return -1;
    part.type = FDP_T_IDS;
    part.len = t.n_ids * 4u;
    if (take_record(s, &part, payload + sizeof(t)))
        return -1;
    part.type = FDP_T_TEXT;
    part.position = t.text_off;
    part.len = t.n_text;
    return take_record(s, &part, payload + sizeof(t) + t.n_ids * 4u);
}

/* Prefetches the request of the record at a slot: with many streams it is not in the
 * cache. */
static inline void
prefetch_req(const struct fdc *s, uint32_t at)
{
    const struct fdp_rec *h = (const struct fdp_rec *)fdr_cons_slot(&s->cq, at);
    uint32_t i = (uint32_t)h->tag;

    if (i < s->n_tag)
        __builtin_prefetch(s->tags[i].req);
}

/* Takes n slots, the last of which must end a record. */
static int
take_slots(struct fdc *s, uint32_t n)
{
    uint32_t at = s->cq.head, left = n, taken = 0;

    while (left) {
        const unsigned char *slot = (const unsigned char *)fdr_cons_slot(&s->cq, at);
        struct fdp_rec h;
        memcpy(&h, slot, sizeof(h));
        if (h.n_slot == 0 || h.n_slot > left ||
            (at & (s->cq.n_slot - 1)) + h.n_slot > s->cq.n_slot)
            return -1;
        if (left > h.n_slot)
            prefetch_req(s, at + h.n_slot);
        if (h.type != FDP_T_PAD) {
            if (h.len > h.n_slot * FDP_SLOT - sizeof(h) || h.len > FDP_REC_MAX_LEN)
                return -1;
            if (h.type == FDP_T_TOKENS ? take_tokens(s, &h, slot + sizeof(h))
                                       : !fdc__payload_ok(&h, slot + sizeof(h)) ||
                        take_record(s, &h, slot + sizeof(h)))
                return -1;
            taken++;
        }
        at += h.n_slot;
        left -= h.n_slot;
    }
    fdr_cons_release(&s->cq, n);
    return (int)taken;
}

/* An event loop may rely on the thread that drains: see fdc_dispatch(). */
static void
tell_loop(struct fdc *s)
{
    if (s->fd_armed && s->n_ready)
        fdc__signal_local(s);
}

int
fdc__drain(struct fdc *s)
{
    uint32_t budget = s->cq.n_slot, total = 0, st;

    if (s->dead)
        return s->dead;
    if (s->re.down || s->re.n_lost) {
        fdc__revive(s);
        if (s->dead || s->re.down)
            return s->dead;
    }
    /* Read before the ring: GOODBYE and hang-up come after the last record. */
    st = fdr_load_acquire(&s->state->state);
    for (;;) {
        int64_t n = fdr_cons_avail(&s->cq);
        int taken = n > 0 ? take_slots(s, (uint32_t)n) : (int)n;
        if (taken < 0) {
            /* The daemon empties the rings some seconds after it ended the session; only
             * then is the state 0. */
            fdc__die(s,
                fdr_load_acquire(&s->state->state) != 0 ? FDP_E_PROTO : FDP_E_DISCONNECTED);
            break;
        }
        if (n == 0)
            break;
        total += (uint32_t)taken;
        if (budget <= (uint32_t)n) {
            tell_loop(s);
            return (int)total;
        }
        budget -= (uint32_t)n;
    }
    if (s->dead || s->re.down)
        return s->dead;
    if (s->n_cancel && fdc__flush_cancels(s))
        fdc__die(s, FDP_E_PROTO);
    if (st == FDP_ST_GOODBYE) {
        uint32_t why = fdr_load_relaxed(&s->state->reason);
        fdc__die(s,
            why < 1000 ? fdc__told(-(int)why, FDP_E_DISCONNECTED) : FDP_E_DISCONNECTED);
    } else if (s->eof) {
        fdc__die(s, FDP_E_DISCONNECTED);
    }
    tell_loop(s);
    return s->dead ? s->dead : (int)total;
}

/* ---- waiting ------------------------------------------------------------- */

static inline void
relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static int
spin(struct fdc *s, uint32_t seen, uint64_t deadline)
{
    uint64_t now = fdc__now(), end = now + s->spin_ns;

    if (end > deadline)
        end = deadline;
    while (now < end) {
        for (int i = 0; i < SPIN_LOOKS; i++) {
            if (fdr_load_acquire(s->cq.p_tail) != seen)
                return 1;
            relax();
        }
        now = fdc__now();
    }
    return 0;
}

static int
hung_up(const struct fdc *s)
{
    struct pollfd p = { .fd = s->sock, .events = POLLRDHUP };
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}

void
fdc__look(struct fdc *s)
{
    if (!s->dead && !s->re.down && hung_up(s))
        s->eof = 1;
    (void)fdc__drain(s);
}

/* Runs without mtx, in the parked thread only. seen: cq_tail when the ring was empty.
 * Returns 1 if the daemon has hung up. */
static int
park(struct fdc *s, uint32_t seen, uint64_t deadline)
{
    uint64_t now, ns = FDC_PARK_NS;

    if (s->spin_ns && spin(s, seen, deadline))
        return 0;
    now = fdc__now();
    if (now >= deadline)
        return 0;
    if (deadline - now < ns)
        ns = deadline - now;
    /* Pairs with the daemon's fdr_publish(cq_tail), fdr_flag_check(cq_wait). */
    fdr_flag_raise(s->cq_wait, FDP_WAIT_FUTEX);
    if (fdr_flag_check(s->cq.p_tail) == seen &&
        fdr_load_acquire(&s->state->state) != FDP_ST_GOODBYE)
        futex_wait(s->cq.p_tail, FUTEX_WAIT, seen, ns);
    return fdr_load_acquire(s->cq.p_tail) == seen && hung_up(s);
}

/* Called after a park and by fdc_dispatch(), with mtx held and no thread parked: sets how
 * the daemon is to wake us. Returns 0 if the ring has records. */
int
fdc__arm(struct fdc *s)
{
    if (!s->fd_armed) {
        fdr_store_relaxed(s->cq_wait, FDP_WAIT_SPIN);
        return 1;
    }
    fdr_flag_raise(s->cq_wait, FDP_WAIT_FD);
    return fdr_flag_check(s->cq.p_tail) == s->cq.head;
}

static int
holds(const struct fdc *s, enum wait_kind kind, const struct fdc_req *r)
{
    switch (kind) {
    case WAIT_REQ:
        return r->unread || r->term;
    case WAIT_ANY:
        return s->rdy_first != NULL;
    case WAIT_TAG:
        return s->tag_free != 0;
    case WAIT_ROOM:
        return s->room;
    case WAIT_UP:
        return !s->re.down;
    }
    return 1;
}

static void
wait_parked(struct fdc *s, enum wait_kind kind, uint64_t deadline)
{
    uint32_t seen = s->cq.head;
    int eof;

    s->parked = kind == WAIT_ANY ? PARKED_ANY : PARKED;
    pthread_mutex_unlock(&s->mtx);
    eof = park(s, seen, deadline);
    pthread_mutex_lock(&s->mtx);
    s->parked = 0;
    if (eof)
        s->eof = 1;
    if (s->re.down) /* an event loop could not open the session again meanwhile */
        fdc__signal_loop(s);
    /* An event loop may rely on this thread to drain: see fdc_dispatch(). */
    if (!fdc__arm(s))
        (void)fdc__drain(s);
}

static void
wait_behind(struct fdc *s, enum wait_kind kind, struct fdc_req *r, uint64_t deadline)
{
    struct waiter w = { .next = s->waiters, .req = r, .kind = kind };
    uint64_t now = fdc__now();
    struct waiter **p;

    s->waiters = &w;
    if (kind == WAIT_REQ)
        r->n_waiter++;
    else
        s->n_any++;
    pthread_mutex_unlock(&s->mtx);
    if (deadline == FDC_NEVER)
        futex_wait(&w.wake, FUTEX_WAIT_PRIVATE, 0, FDC_NEVER);
    else if (now < deadline)
        futex_wait(&w.wake, FUTEX_WAIT_PRIVATE, 0, deadline - now);
    pthread_mutex_lock(&s->mtx);
    for (p = &s->waiters; *p != &w; p = &(*p)->next)
        ;
    *p = w.next;
    if (kind == WAIT_REQ)
        r->n_waiter--;
    else
        s->n_any--;
}

int
fdc__any_open(const struct fdc *s)
{
    for (const struct fdc_req *r = s->all; r; r = r->all_next)
        if (r->open && !r->internal)
            return 1;
    return 0;
}

static uint64_t
sleep_until(const struct fdc *s, uint64_t deadline)
{
    uint64_t until;

    if (!s->re.down && !s->re.n_lost)
        return deadline;
    if (s->re.down && s->re.dialing)
        return deadline; /* the thread that dials wakes the others */
    until = s->re.down && s->parked ? fdc__now() + LEAVE_NS : s->re.next;
    return until < deadline ? until : deadline;
}

/* For a program that only polls: nothing tells it that the daemon was killed. Called when
 * the ring was empty; most calls only read a clock that needs no system call. Returns 1 if
 * the daemon has hung up. */
static int
look_at_times(struct fdc *s)
{
    struct timespec ts;
    uint64_t now;

    if (s->parked || s->re.down)
        return 0;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    now = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
    if (now < s->next_look)
        return 0;
    s->next_look = now + FDC_PARK_NS;
    if (!hung_up(s))
        return 0;
    s->eof = 1;
    return 1;
}

int
fdc__wait(struct fdc *s, enum wait_kind kind, struct fdc_req *r, uint64_t deadline)
{
    uint64_t until;
    int rc = 0, n;

    for (;;) {
        if (holds(s, kind, r)) {
            rc = 1;
            break;
        }
        n = fdc__drain(s);
        if (holds(s, kind, r)) {
            rc = 1;
            break;
        }
        if (s->dead) {
            rc = s->dead;
            break;
        }
        if (kind == WAIT_ANY && !fdc__any_open(s)) {
            rc = FDC_NOTHING;
            break;
        }
        if (deadline == 0 && n == 0 && look_at_times(s))
            continue;
        if (deadline == 0 || (deadline != FDC_NEVER && fdc__now() >= deadline))
            break;
        if (s->cq.tail != s->cq.head && !s->re.down)
            continue; /* the drain used up its budget */
        until = sleep_until(s, deadline);
        if (s->parked || s->re.down)
            wait_behind(s, kind, r, until);
        else
            wait_parked(s, kind, until);
    }
    /* A leaving thread hands its place at the ring to a waiting one. */
    if (!s->parked && s->waiters)
        fdc__wake_waiter(s->waiters);
    return rc;
}

/* ---- reading ------------------------------------------------------------- */

static void
pop_event(struct fdc_req *r, struct fdc_event *ev)
{
    struct chunk *c = r->first;
    const unsigned char *d = (const unsigned char *)c->data + c->rd;
    struct fdp_rec h;

    memcpy(&h, d, sizeof(h));
    ev->type = h.type;
    ev->sample = h.sample;
    ev->position = h.position;
    ev->data = d + sizeof(h);
    switch (h.type) {
    case FDP_T_PROMPT_IDS:
    case FDP_T_IDS:
        ev->n = h.len / 4;
        break;
    case FDP_T_LOGPROBS:
    case FDP_T_PROMPT_LOGPROBS:
        ev->n = h.len / 8;
        break;
    case FDP_T_TEXT:
    case FDP_T_PROMPT_TEXT:
    case FDP_T_BYTES:
    case FDP_T_REPLY:
        ev->n = h.len;
        break;
    case FDP_T_TOKEN_TEXT:
        ev->n = *(const uint16_t *)ev->data;
        break;
    default:
        ev->n = 1;
    }
    c->rd += rec_span(h.len);
    r->unread -= rec_span(h.len);
}

static void
end_event(struct fdc_req *r, struct fdc_event *ev)
{
    ev->type = r->term;
    ev->sample = ev->position = 0;
    ev->n = 1;
    ev->data = &r->end;
    r->term_read = 1;
    fdc__queue_free(r);
}

int
fdc__next(struct fdc_req *r, struct fdc_event *ret_event, uint64_t deadline)
{
    struct fdc *s = r->s;
    int rc = 1, more;

    pthread_mutex_lock(&s->mtx);
    queue_settle(r);
    if (!r->unread && !r->term) {
        rc = fdc__wait(s, WAIT_REQ, r, deadline);
        queue_settle(r); /* another thread may have read meanwhile */
    }
    if (rc == 0)
        rc = deadline ? FDP_E_TIMEOUT : FDP_E_AGAIN;
    else if (r->unread) {
        pop_event(r, ret_event);
    } else if (r->term_read)
        rc = 0;
    else if (r->term)
        end_event(r, ret_event);
    more = r->unread || (r->term && !r->term_read);
    if (!more)
        fdc__unready(r);
    ret_event->more = (uint32_t)more;
    pthread_mutex_unlock(&s->mtx);
    return rc;
}

int
fdc_next(fdc_req_t *r, struct fdc_event *ret_event, int timeout_ms)
{
    int rc = fdc__check_req(r);

    if (rc)
        return rc;
    if (ret_event == NULL || ret_event->size < sizeof(*ret_event))
        return FDP_E_INVAL;
    r->text_len = 0;
    return fdc__next(r, ret_event, fdc__deadline(timeout_ms));
}

int
fdc_wait_any(fdc_t *s, fdc_req_t **ret_req, int timeout_ms)
{
    uint64_t deadline = fdc__deadline(timeout_ms);
    struct fdc_req *r;
    int rc = fdc__check(s);

    if (rc)
        return rc;
    if (ret_req == NULL)
        return FDP_E_INVAL;
    pthread_mutex_lock(&s->mtx);
    if (s->rdy_first)
        rc = 1;
    else if (s->dead)
        rc = s->dead;
    else
        rc = fdc__wait(s, WAIT_ANY, NULL, deadline);
    if (rc == 0)
        rc = deadline ? FDP_E_TIMEOUT : FDP_E_AGAIN;
    else if (rc == FDC_NOTHING)
        rc = 0;
    else if (rc == 1) {
        /* All readable requests take turns. */
        r = s->rdy_first;
        if (r->rdy_next) { /* the next one: with many streams it is not in the cache */
            __builtin_prefetch(r->rdy_next->first);
            __builtin_prefetch(r->rdy_next->user);
        }
        fdc__unready(r);
        fdc__append_ready(s, r);
        *ret_req = r;
    }
    pthread_mutex_unlock(&s->mtx);
    return rc;
}
