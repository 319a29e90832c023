/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/relay.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/obj.h"
#include "daemon/gate/gate.h"

/* Held records, in order, each as its slots. */
struct rly_chunk {
    struct rly_chunk *next;
    uint32_t used, taken;
    unsigned char data[RLY_CHUNK];
};

#define RLY_AHEAD 12u /* slots of the link; measured with tests/bench/b_gate */

static int
rly_is_terminal(unsigned type)
{
    return type == FDP_T_DONE || type == FDP_T_ERROR;
}

static void
rly_touch(struct gate *g, struct ses *s)
{
    if (!s->dirty) {
        s->dirty = 1;
        TAILQ_INSERT_TAIL(&g->outq, s, out);
        /* for rly_flush() */
        __builtin_prefetch(s->cq.p_tail, 1);
        __builtin_prefetch(s->p_cq_wait, 0);
    }
}

/* In the first pass through the ring: pages for the next cost slots. */
static __attribute__((noinline)) int
rly_grow(struct gate *g, struct ses *s, uint32_t cost)
{
    uint64_t at = (uint64_t)(s->cq.slots - s->d2c.p);
    uint64_t until = at + ((uint64_t)s->cq.tail + cost) * FDP_SLOT;

    if (until > s->d2c.bytes) /* cost has padding: goes on at the start */
        until = s->d2c.bytes;
    if (region_reserve(&s->d2c, (uint32_t)until, g->now) != 0)
        return 0;
    s->growing = s->d2c.ready < s->d2c.bytes;
    return 1;
}

/* Place for n slots in the client's ring, NULL when it has none now. */
static struct fdp_rec *
rly_claim(struct gate *g, struct ses *s, uint32_t n)
{
    struct fdr_prod *p = &s->cq;
    uint32_t cost = fdr_prod_cost(p, n);
    int64_t room = fdr_prod_room(p, cost);
    struct fdp_rec *rec;

    if (room < (int64_t)cost) {
        if (room < 0) { /* V3 */
            log_warn("relay: session %llu (%s, pid %d) has an impossible completion "
                "cursor", (unsigned long long)s->id, s->shown, (int)s->pid);
            ses_kill(g, s, FDP_E_PROTO);
        }
        return NULL;
    }
    if (s->growing && !rly_grow(g, s, cost))
        return NULL;
    if (cost != n) {
        uint32_t pad = cost - n;

        rec = fdr_prod_slot(p, p->tail);
        memset(rec, 0, sizeof(*rec));
        rec->type = FDP_T_PAD;
        rec->n_slot = (uint8_t)pad;
        p->tail += pad;
    }
    rec = fdr_prod_slot(p, p->tail);
    p->tail += n;
    return rec;
}

static void
rly_slow(struct gate *g, struct ses *s, const char *why)
{
    struct jreq *r, *next;

    if (s->slow)
        return;
    s->slow = 1;
    cnt_add(&g->cnt->sessions_slow, 1);
    log_info("relay: session %llu (%s, pid %d) %s: its %u requests end",
        (unsigned long long)s->id, s->shown, (int)s->pid, why, s->n_inflight);
    for (r = TAILQ_FIRST(&s->reqs); r != NULL; r = next) {
        next = TAILQ_NEXT(r, of_ses);
        rly_cancel(g, r, FDP_E_SLOW);
    }
}

/* Room for a record of n slots behind what is held. */
static struct fdp_rec *
rly_hold(struct gate *g, struct ses *s, uint32_t n)
{
    struct rly_chunk *c = s->hold_last;
    uint32_t bytes = n * FDP_SLOT;

    if (c == NULL || c->used + bytes > RLY_CHUNK) {
        c = malloc(sizeof(*c));
        if (c == NULL)
            return NULL;
        c->next = NULL;
        c->used = c->taken = 0;
        if (s->hold_last != NULL)
            s->hold_last->next = c;
        else
            s->hold_first = c;
        s->hold_last = c;
        s->held_bytes += sizeof(*c);
        s->usr->bytes += sizeof(*c);
        cnt_add(&g->cnt->held_bytes, sizeof(*c));
    }
    if (s->n_held == 0) {
        s->t_full = g->now;
        s->full_head = s->cq.head;
        g->n_holding++;
    }
    s->n_held++;
    cnt_add(&g->cnt->records_held, 1);
    c->used += bytes;
    return (struct fdp_rec *)(void *)(c->data + c->used - bytes);
}

static void
rly_drop_chunk(struct gate *g, struct ses *s)
{
    struct rly_chunk *c = s->hold_first;

    s->hold_first = c->next;
    if (c->next == NULL)
        s->hold_last = NULL;
    s->held_bytes -= sizeof(*c);
    s->usr->bytes -= sizeof(*c);
    cnt_add(&g->cnt->held_bytes, -(uint64_t)sizeof(*c));
    free(c);
}

void
rly_drop_held(struct gate *g, struct ses *s)
{
    while (s->hold_first != NULL)
        rly_drop_chunk(g, s);
    if (s->n_held != 0) {
        cnt_add(&g->cnt->records_held, -(uint64_t)s->n_held);
        s->n_held = 0;
        g->n_holding--;
    }
}

/* Held records to the ring, as many as fit. */
static void
rly_unhold(struct gate *g, struct ses *s)
{
    while (s->n_held != 0) {
        struct rly_chunk *c = s->hold_first;
        const struct fdp_rec *from = (const void *)(c->data + c->taken);
        struct fdp_rec *to = rly_claim(g, s, from->n_slot);

        if (to == NULL)
            return;
        memcpy(to, from, sizeof(*from) + from->len);
        c->taken += from->n_slot * FDP_SLOT;
        s->n_held--;
        cnt_add(&g->cnt->records_held, -(uint64_t)1);
        rly_touch(g, s);
        if (c->taken == c->used)
            rly_drop_chunk(g, s);
    }
    s->slow = 0;
    g->n_holding--;
}

/* The hot path: a record to a ring with room costs no call. */
static inline int
rly_put(struct gate *g, struct ses *s, uint64_t tag, unsigned type, unsigned sample,
    uint32_t position, const void *payload, uint32_t len, int best_effort)
{
    uint32_t n = FDP_REC_SLOTS(len);
    struct fdp_rec *to = NULL;

    if (s->st != SES_OPEN)
        return -ENOBUFS;
    if (s->n_held == 0)
        to = rly_claim(g, s, n);
    if (to != NULL) {
        rly_touch(g, s);
    } else {
        if (best_effort || s->st != SES_OPEN)
            return -ENOBUFS;
        to = rly_hold(g, s, n);
        if (to == NULL) {
            log_warn("relay: no memory to hold records of session %llu",
                (unsigned long long)s->id);
            ses_kill(g, s, FDP_E_OVERLOAD);
            return -ENOBUFS;
        }
    }
    to->tag = tag;
    to->type = (uint8_t)type;
    to->n_slot = (uint8_t)n;
    to->sample = (uint16_t)sample;
    to->position = position;
    to->len = len;
    to->rsv = 0;
    /* Only len bytes: what follows in the worker's slot may be another
     * client's. */
    memcpy(to + 1, payload, len);
    return 0;
}

int
rly_emit(struct gate *g, struct ses *s, uint64_t tag, unsigned type, unsigned sample,
    uint32_t position, const void *payload, uint32_t len, int best_effort)
{
    ASSERT(len <= FDP_REC_MAX_LEN);
    return rly_put(g, s, tag, type, sample, position, payload, len, best_effort);
}

void
rly_emit_error(struct gate *g, struct ses *s, uint64_t tag, int code,
    uint32_t retry_after_ms, uint32_t detail, uint32_t arg)
{
    struct fdp_error e = { code, retry_after_ms, detail, arg };

    (void)rly_emit(g, s, tag, FDP_T_ERROR, 0, 0, &e, sizeof(e), 0);
}

void
rly_end(struct gate *g, struct jreq *r, int code, uint32_t retry_after_ms,
    uint32_t detail, uint32_t arg)
{
    OBJ_CHECK(r, JREQ_MAGIC);
    if (r->st == JNL_QUEUED)
        fair_remove(g, r);
    if (r->in_cancelq) {
        TAILQ_REMOVE(&g->wrk[0].cancelq, r, link);
        r->in_cancelq = 0;
    }
    if (r->ses != NULL) {
        rly_emit_error(g, r->ses, r->tag, code, retry_after_ms, detail, arg);
        cnt_add(&g->cnt->requests_error, 1);
    } else {
        cnt_add(&g->cnt->requests_dropped, 1);
    }
    log_debug("relay: request %llu ended with code %d", (unsigned long long)r->id, code);
    rql_end(g, r, code, NULL);
    jnl_free(g, r);
}

void
rly_cancel(struct gate *g, struct jreq *r, int code)
{
    OBJ_CHECK(r, JREQ_MAGIC);
    if (r->st == JNL_QUEUED) {
        rly_end(g, r, code, code == FDP_E_DRAINING ? gate_retry_ms(g) : 0, 0, 0);
        return;
    }
    if (r->st == JNL_ENDING)
        return;
    r->st = JNL_ENDING;
    r->end_code = code;
    r->in_cancelq = 1;
    TAILQ_INSERT_TAIL(&g->wrk[0].cancelq, r, link);
}

/* ---- up ------------------------------------------------------------------ */

/* What was thought of a request and is not left to do any more. */
static void
rly_settle(struct gate *g, struct jreq *r, int done)
{
    uint64_t did = (uint64_t)r->n_out + (r->accepted ? r->est_prompt : 0);

    if (r->kind != FAIR_GEN)
        return;
    /* Cancelled work says nothing about how fast work is done. */
    if (done && did < r->cost)
        drain_add(&g->fair.drain, r->cost - did);
    fair_settle(g, r);
}

static void
rly_log(struct gate *g, struct jreq *r, const struct fdp_rec *rec)
{
    struct fdp_done done;
    struct fdp_error e;

    if (rec->type == FDP_T_DONE && rec->len == sizeof(done)) {
        memcpy(&done, rec + 1, sizeof(done));
        rql_end(g, r, FDP_OK, &done);
    } else if (rec->type == FDP_T_ERROR && rec->len >= sizeof(e)) {
        memcpy(&e, rec + 1, sizeof(e));
        rql_end(g, r, e.code, NULL);
    } else {
        rql_end(g, r, rec->type == FDP_T_DONE ? FDP_OK : FDP_E_INTERNAL, NULL);
    }
}

/* The terminal record of the worker: the credits come back. */
static void
rly_finish(struct gate *g, struct wrk *w, struct jreq *r, const struct fdp_rec *rec)
{
    struct fdp_done done;

    rly_settle(g, r, rec->type == FDP_T_DONE);
    rly_log(g, r, rec);
    if (r->ses == NULL) {
        cnt_add(&g->cnt->requests_dropped, 1);
    } else if (rec->type == FDP_T_DONE && rec->len == sizeof(done)) {
        memcpy(&done, rec + 1, sizeof(done));
        done.t_submit = r->t_submit;
        (void)rly_put(g, r->ses, r->tag, FDP_T_DONE, 0, 0, &done, sizeof(done), 0);
        cnt_add(&g->cnt->requests_done, 1);
    } else {
        (void)rly_put(g, r->ses, r->tag, rec->type, rec->sample, rec->position, rec + 1,
            rec->len, 0);
        cnt_add(rec->type == FDP_T_DONE ? &g->cnt->requests_done :
            &g->cnt->requests_error, 1);
    }
    if (r->in_cancelq) {
        TAILQ_REMOVE(&w->cancelq, r, link);
        r->in_cancelq = 0;
    }
    if (w->sending == r) {
        /* Refused before its items were complete: freed with the last. */
        if (r->ses != NULL)
            jnl_orphan(g, r);
        r->st = JNL_ENDING;
        r->ended = 1;
        return;
    }
    jnl_free(g, r);
}

/* Ids of a TOKENS record; the worker that wrote it may have been dying. */
static inline uint32_t
rly_tokens(const struct fdp_rec *rec)
{
    const struct fdp_tokens *t = (const void *)(rec + 1);

    return rec->len >= sizeof(*t) ? t->n_ids : 0;
}

/* What a record says of its request. Returns its output tokens. */
static inline uint32_t
rly_note(struct gate *g, struct jreq *r, const struct fdp_rec *rec)
{
    uint32_t n_tok = 0;

    if (rec->type == FDP_T_IDS || rec->type == FDP_T_TOKENS) {
        n_tok = rec->type == FDP_T_IDS ? rec->len / 4 : rly_tokens(rec);
        r->n_out += n_tok;
        if (r->t_first == 0)
            r->t_first = g->now;
    } else if (rec->type == FDP_T_ACCEPTED && rec->len >= sizeof(struct fdp_accepted)) {
        struct fdp_accepted a;

        memcpy(&a, rec + 1, sizeof(a));
        r->prompt_len = a.prompt_len;
        r->cached_len = a.cached_len;
        if (!r->accepted && r->kind == FAIR_GEN)
            drain_add(&g->fair.drain, r->est_prompt);
        r->accepted = 1;
    } else if (rec->type == FDP_T_CHOICE_END &&
        rec->len >= sizeof(struct fdp_choice_end)) {
        struct fdp_choice_end c;

        memcpy(&c, rec + 1, sizeof(c));
        if (r->finish == FDP_FIN_NONE && c.finish <= FDP_FIN_ERROR)
            r->finish = (uint8_t)c.finish;
        else if (r->finish != c.finish)
            r->finish = JREQ_FIN_MIXED;
    }
    return n_tok;
}

static uint32_t
rly_one(struct gate *g, struct wrk *w, const struct fdp_rec *rec)
{
    struct jreq *r = jnl_find(&g->jnl, rec->tag);
    uint32_t n_tok;

    if (r == NULL || r->st == JNL_QUEUED || r->ended) {
        log_debug("relay: record type %u for unknown request %llu", rec->type,
            (unsigned long long)rec->tag);
        return 0;
    }
    if (rly_is_terminal(rec->type)) {
        rly_finish(g, w, r, rec);
        return 0;
    }
    n_tok = rly_note(g, r, rec);
    if (r->ses == NULL)
        return n_tok;
    if (r->st == JNL_ENDING && r->end_code == FDP_E_SLOW && rec->type != FDP_T_CHOICE_END)
        return n_tok;
    (void)rly_put(g, r->ses, r->tag, rec->type, rec->sample, rec->position, rec + 1,
        rec->len, 0);
    if (r->ses->n_held != 0 && !r->ses->trusted &&
        r->ses->usr->bytes > (uint64_t)g->par->sched_max_bytes_per_user)
        rly_slow(g, r->ses, "lets more output pile up than its user may hold");
    return n_tok;
}

/* Records about the worker itself. */
static void
rly_special(struct gate *g, struct wrk *w, const struct fdp_rec *rec, uint64_t now_ns)
{
    struct jreq *r;

    switch (rec->type) {
    case LNK_T_READY:
        if (rec->len >= sizeof(struct lnk_ready))
            sup_on_ready(g, w, (const struct lnk_ready *)(const void *)(rec + 1), now_ns);
        break;
    case LNK_T_TOKENIZED:
        r = jnl_find(&g->jnl, rec->tag);
        if (r != NULL && rec->len >= sizeof(struct lnk_tokenized))
            r->prompt_len = ((const struct lnk_tokenized *)(const void *)(rec + 1))
                ->prompt_len;
        break;
    case LNK_T_STATE: /* the state itself is read by sup_poll() */
        break;
    default:
        log_warn("relay: worker %d sent a record of unknown type %u", w->idx, rec->type);
    }
}

/* How many records in a row were for one session, seen from rly_prefetch(). */
struct rly_run { const struct ses *s; uint32_t n; };

/* Rings of many clients do not stay in the cache: fetch the slot that a
 * later record of the link will be written to. What lies at that place may
 * be the middle of a record; then its tag is nobody's. */
static inline void
rly_prefetch(const struct gate *g, const struct lnk *l, struct rly_run *run)
{
    const struct fdp_rec *rec;
    const struct jreq *r;

    if ((uint32_t)(l->in.tail - l->in.head) <= RLY_AHEAD)
        return;
    rec = fdr_cons_slot(&l->in, l->in.head + RLY_AHEAD);
    r = jnl_find(&g->jnl, rec->tag);
    if (r == NULL || r->ses == NULL)
        return;
    if (r->ses != run->s) {
        run->s = r->ses;
        run->n = 0;
    }
    __builtin_prefetch(fdr_prod_slot(&run->s->cq, run->s->cq.tail + run->n), 1);
    if (run->n < RLY_AHEAD)
        run->n++;
}

int
rly_poll(struct gate *g, struct wrk *w, uint64_t now_ns)
{
    const struct fdp_rec *rec;
    struct rly_run run = { NULL, 0 };
    uint64_t n_tok = 0, n_slot = 0;
    uint32_t n = 0;

    if (w->seg == NULL)
        return 0;
    while (n < RLY_BATCH && (rec = lnk_peek(&w->lnk)) != NULL) {
        rly_prefetch(g, &w->lnk, &run);
        if (rec->type < FDP_T__N)
            n_tok += rly_one(g, w, rec);
        else
            rly_special(g, w, rec, now_ns);
        n_slot += rec->n_slot;
        lnk_next(&w->lnk, rec);
        n++;
    }
    if (n != 0) {
        cnt_add(&g->cnt->records_up, n);
        cnt_add(&g->cnt->slots_up, n_slot);
        cnt_add(&g->cnt->tokens_up, n_tok);
        drain_add(&g->fair.drain, n_tok);
    }
    if (w->lnk.bad && !w->dead && w->pid > 0)
        sup_kill(g, w, "its rings are corrupt");
    return (int)n;
}

static void
rly_wake(struct gate *g, struct ses *s)
{
    /* pairs with the client's fdr_flag_raise() of cq_wait */
    uint32_t how = fdr_flag_check(s->p_cq_wait);

    if (how == FDP_WAIT_FUTEX) {
        (void)syscall(SYS_futex, s->d2c.p + FDP_D2C_CQ_TAIL, FUTEX_WAKE, INT_MAX, NULL,
            NULL, 0);
        cnt_add(&g->cnt->wakes_futex, 1);
    } else if (how == FDP_WAIT_FD) {
        /* A full socket means that a wake-up is waiting there already. */
        (void)send(s->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        cnt_add(&g->cnt->wakes_fd, 1);
    }
}

void
rly_flush(struct gate *g)
{
    struct ses *s;

    if (g->n_holding != 0) {
        for (uint32_t i = 0; i < g->n_ses; i++) {
            if (g->ses[i]->n_held != 0 && g->ses[i]->st == SES_OPEN)
                rly_unhold(g, g->ses[i]);
        }
    }
    while ((s = TAILQ_FIRST(&g->outq)) != NULL) {
        TAILQ_REMOVE(&g->outq, s, out);
        s->dirty = 0;
        if (s->st != SES_OPEN || s->cq.pub == s->cq.tail)
            continue;
        s->cq.pub = s->cq.tail;
        fdr_publish(s->cq.p_tail, s->cq.tail);
        rly_wake(g, s);
    }
}

void
rly_check_slow(struct gate *g, struct ses *s, uint64_t now_ns)
{
    uint64_t limit = (uint64_t)g->par->ipc_slow_client_ms * CLK_MS;

    if (s->n_held == 0)
        return;
    /* Asking for the whole ring looks at the client's cursor in any case. */
    if (fdr_prod_room(&s->cq, s->cq.n_slot) < 0) {
        ses_kill(g, s, FDP_E_PROTO);
        return;
    }
    if (s->cq.head != s->full_head) {
        s->full_head = s->cq.head;
        s->t_full = now_ns;
        return;
    }
    if (now_ns - s->t_full < limit)
        return;
    if (s->slow && s->n_inflight == 0) {
        /* Not even its terminal records were read. */
        log_info("relay: session %llu (%s, pid %d) is closed: it reads nothing",
            (unsigned long long)s->id, s->shown, (int)s->pid);
        ses_kill(g, s, FDP_E_SLOW);
        return;
    }
    s->t_full = now_ns;
    rly_slow(g, s, "does not read its completions");
}
