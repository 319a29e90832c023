/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/relay.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/obj.h"
#include "daemon/gate/gate.h"
#include "daemon/gate/intake.h"

/* A worker that lives ends a request sooner than that after its deadline. */
#define RLY_OVERDUE_NS (1 * CLK_S)
#define RLY_RESTART_MIN_MS 100u
#define RLY_RESTART_MAX_MS 60000u

/* More of the blob that is being sent. 1: complete. */
static int
rly_send_blob(struct gate *g, struct wrk *w)
{
    struct jreq *r = w->sending;

    while (w->sent < r->blob_bytes) {
        uint32_t n = r->blob_bytes - w->sent;
        void *to;

        if (n > FDP_REC_MAX_LEN)
            n = FDP_REC_MAX_LEN;
        to = lnk_claim(&w->lnk, r->id, LNK_T_BLOB, 0, 0, n);
        if (to == NULL)
            return 0;
        memcpy(to, r->blob + w->sent, n);
        w->sent += n;
    }
    w->sending = NULL;
    if (r->st == JNL_SENDING)
        r->st = JNL_RUNNING;
    if (r->ended)
        jnl_free(g, r);
    return 1;
}

/* A request that waited for the model is checked against it now. */
static int
rly_check_late(struct gate *g, struct jreq *r)
{
    struct itk_limits lim;
    struct itk_err e;

    if (r->checked)
        return 0;
    itk_limits(g, r->ses, &lim);
    if (itk_check_req(&r->req, &lim, &e) ||
        itk_check_model(&r->req, r->blob, r->blob_bytes, &lim, &e)) {
        rly_end(g, r, e.code, 0, e.detail, e.arg);
        return 1;
    }
    r->checked = 1;
    return 0;
}

static int
rly_send_submit(struct gate *g, struct wrk *w, struct jreq *r, uint64_t now_ns)
{
    struct lnk_submit sub;
    void *to = lnk_claim(&w->lnk, r->id, LNK_T_SUBMIT, 0, 0, sizeof(sub));

    if (to == NULL)
        return 0;
    memset(&sub, 0, sizeof(sub));
    sub.req = r->req;
    sub.user = r->usr->key;
    sub.t_submit_ns = r->t_submit;
    sub.deadline_queue_ns = r->deadline_queue;
    sub.deadline_total_ns = r->deadline_total;
    sub.place = (uint32_t)(r - g->jnl.pool);
    memcpy(to, &sub, sizeof(sub));
    r->st = JNL_SENDING;
    r->t_sent = now_ns;
    r->beside = g->jnl.n_open - g->fair.n_queued - 1;
    w->sending = r;
    w->sent = 0;
    fair_charge(g, w, r);
    return 1;
}

static int
rly_send_cancels(struct wrk *w)
{
    struct jreq *r;
    int n = 0;

    while ((r = TAILQ_FIRST(&w->cancelq)) != NULL) {
        struct lnk_cancel *c = lnk_claim(&w->lnk, r->id, LNK_T_CANCEL, 0, 0, sizeof(*c));

        if (c == NULL)
            break;
        c->code = r->end_code;
        c->rsv = 0;
        TAILQ_REMOVE(&w->cancelq, r, link);
        r->in_cancelq = 0;
        n++;
    }
    return n;
}

static int
rly_send_pending(struct wrk *w)
{
    static const struct { uint32_t bit; unsigned type; } what[] = {
        { WRK_PEND_RELOAD, LNK_T_RELOAD }, { WRK_PEND_DRAIN, LNK_T_DRAIN } };
    int n = 0;

    for (size_t i = 0; w->pend != 0 && i < sizeof(what) / sizeof(what[0]); i++) {
        if ((w->pend & what[i].bit) &&
            lnk_claim(&w->lnk, 0, what[i].type, 0, 0, 0) != NULL) {
            w->pend &= ~what[i].bit;
            n++;
        }
    }
    return n;
}

static int
rly_expired(const struct jreq *r, uint64_t now_ns)
{
    return (r->deadline_queue != 0 && now_ns >= r->deadline_queue) ||
        (r->deadline_total != 0 && now_ns >= r->deadline_total);
}

/* What is to be sent next. Questions go first: they are short, few at a time
 * and need no row. */
static struct jreq *
rly_next(struct gate *g, const struct wrk *w)
{
    struct jreq *r = fair_pop(g, w, FAIR_SIDE);

    return r != NULL ? r : fair_pop(g, w, FAIR_GEN);
}

int
rly_down(struct gate *g, struct wrk *w, uint64_t now_ns)
{
    int n = 0;

    if (w->seg == NULL || w->dead || w->lnk.bad)
        return 0;
    if (w->sending != NULL && !rly_send_blob(g, w))
        goto flush;
    n += rly_send_cancels(w);
    n += rly_send_pending(w);
    while (w->st == WRK_READY && !g->paused && n < (int)RLY_BATCH) {
        struct jreq *r = rly_next(g, w);

        if (r == NULL)
            break;
        /* From here r is in no queue. */
        r->st = JNL_SENDING;
        if (rly_expired(r, now_ns)) {
            cnt_add(&g->cnt->requests_expired, 1);
            rly_end(g, r, FDP_E_DEADLINE, 0, 0, 0);
            continue;
        }
        if (rly_check_late(g, r))
            continue;
        if (!rly_send_submit(g, w, r, now_ns)) {
            fair_unpop(g, r);
            break;
        }
        n++;
        if (!rly_send_blob(g, w))
            break;
    }
flush:
    lnk_flush(&w->lnk);
    return n;
}

/* End what has expired in a user's queue. Returns the next deadline in it, or 0. */
static uint64_t
rly_expire(struct gate *g, struct lane *l, uint64_t now_ns)
{
    struct jreq *r, *next;
    uint64_t t = 0;

    for (r = TAILQ_FIRST(&l->q); r != NULL; r = next) {
        next = TAILQ_NEXT(r, link);
        if (rly_expired(r, now_ns)) {
            cnt_add(&g->cnt->requests_expired, 1);
            rly_end(g, r, FDP_E_DEADLINE, 0, 0, 0);
            continue;
        }
        if (fair_deadline(r) != 0 && (t == 0 || fair_deadline(r) < t))
            t = fair_deadline(r);
    }
    return t;
}

/* Its client gets the terminal record; what the worker still says is dropped. */
static void
rly_end_early(struct gate *g, struct jreq *r)
{
    cnt_add(&g->cnt->requests_expired, 1);
    rly_emit_error(g, r->ses, r->tag, FDP_E_DEADLINE, 0, 0, 0);
    rql_end(g, r, FDP_E_DEADLINE, NULL);
    jnl_orphan(g, r);
    rly_cancel(g, r, FDP_E_DEADLINE);
}

/* The same of what the worker has and did not begin: it looks at its queue
 * between steps, and a step may be long. Returns the next deadline, or 0. */
static uint64_t
rly_expire_sent(struct gate *g, struct wrk *w, uint64_t now_ns)
{
    struct jreq *r, *next;
    uint64_t t = 0;

    for (r = TAILQ_FIRST(&w->startq); r != NULL; r = next) {
        uint64_t *at = &w->seg->started[(uint32_t)(r - g->jnl.pool) % LNK_PLACES];
        /* pairs with sch_start_row() */
        int gone = r->st == JNL_ENDING || r->t_first != 0 ||
            __atomic_load_n(at, __ATOMIC_ACQUIRE) == r->id;

        next = TAILQ_NEXT(r, start);
        if (gone || rly_expired(r, now_ns))
            fair_begun(w, r);
        else if (t == 0 || fair_deadline(r) < t)
            t = fair_deadline(r);
        if (!gone && rly_expired(r, now_ns))
            rly_end_early(g, r);
    }
    return t;
}

void
rly_deadlines(struct gate *g, uint64_t now_ns)
{
    struct fair *f = &g->fair;
    uint64_t t_next = 0;

    if (f->t_next == 0 || now_ns < f->t_next)
        return;
    for (int k = 0; k < FAIR_KINDS; k++) {
        struct lane *l, *l_next;

        for (l = TAILQ_FIRST(&f->round[k]); l != NULL; l = l_next) {
            uint64_t t;

            l_next = TAILQ_NEXT(l, act);
            t = rly_expire(g, l, now_ns);
            if (t != 0 && (t_next == 0 || t < t_next))
                t_next = t;
        }
    }
    for (uint32_t i = 0; i < g->n_wrk; i++) {
        uint64_t t = g->wrk[i].seg != NULL ? rly_expire_sent(g, &g->wrk[i], now_ns) : 0;

        if (t != 0 && (t_next == 0 || t < t_next))
            t_next = t;
    }
    f->t_next = t_next;
}

void
rly_overdue(struct gate *g, uint64_t now_ns)
{
    for (uint32_t i = 0; i < g->jnl.n_max && g->jnl.n_open != 0; i++) {
        struct jreq *r = &g->jnl.pool[i];

        if (r->st == JNL_FREE || r->st == JNL_QUEUED || r->ses == NULL ||
            r->deadline_total == 0 || now_ns < r->deadline_total + RLY_OVERDUE_NS)
            continue;
        rly_end_early(g, r);
    }
}

/* ms until the next worker is ready, if it takes as long as this one did. */
static uint32_t
rly_restart_ms(const struct wrk *w)
{
    uint64_t ms = w->backoff_ms + RLY_RESTART_MIN_MS;

    if (w->t_ready > w->t_start)
        ms += (w->t_ready - w->t_start) / CLK_MS;
    return ms < RLY_RESTART_MAX_MS ? (uint32_t)ms : RLY_RESTART_MAX_MS;
}

void
rly_worker_gone(struct gate *g, struct wrk *w)
{
    struct jnl *j = &g->jnl;
    struct jreq *r = w->sending;
    uint32_t n = 0;

    w->sending = NULL;
    w->pend = 0;
    if (r != NULL && r->st == JNL_SENDING) {
        fair_return(g, w, r);
        fair_unpop(g, r);
    }
    for (uint32_t i = 0; i < j->n_max; i++) {
        r = &j->pool[i];
        if (r->st == JNL_FREE || r->st == JNL_QUEUED)
            continue;
        n++;
        if (r->st == JNL_ENDING)
            rly_end(g, r, r->end_code, 0, 0, 0);
        else
            rly_end(g, r, FDP_E_GPU_RESET, rly_restart_ms(w), 0, 0);
    }
    ASSERT(TAILQ_EMPTY(&w->cancelq) && w->credits_used == 0);
    drain_reset(&g->fair.drain);
    if (n != 0)
        log_warn("relay: %u requests ended with their worker", n);
}
