/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/request.h"

#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/counter.h"
#include "daemon/common/link.h"
#include "daemon/common/log.h"
#include "daemon/common/obj.h"
#include "daemon/gate/check.h"
#include "daemon/gate/client.h"
#include "daemon/gate/dispatch.h"
#include "daemon/gate/env.h"
#include "daemon/gate/fair.h"
#include "daemon/gate/journal.h"
#include "daemon/gate/reqlog.h"
#include "daemon/gate/wlink.h"
#include "libclient/fdproto.h"

/* A live worker ends a request within this time after its deadline. */
#define RQ_OVERDUE_NS (1 * CLK_S)

/* Number of r among all open requests, for the worker. */
static uint32_t
rq_place(const struct reqs *rs, const struct jreq *r)
{
    return (uint32_t)(r - rs->jnl->pool);
}

/* ---- begin ----------------------------------------------------------------- */

static void
rq_set_deadlines(const struct env *env, struct jreq *r)
{
    const struct fdp_req *q = &r->req;
    uint64_t wait = (uint64_t)env->par->sched_max_waiting_time_ms;

    if (q->ttl_queue_ms != 0 && (wait == 0 || q->ttl_queue_ms < wait))
        wait = q->ttl_queue_ms;
    if (wait != 0)
        r->deadline_queue = env->now + wait * CLK_MS;
    if (q->ttl_total_ms != 0)
        r->deadline_total = env->now + q->ttl_total_ms * CLK_MS;
}

void
rq_add(struct reqs *rs, const struct rq_new *n)
{
    struct jreq *r =
        jnl_add(rs->jnl, n->cli, n->usr, n->req, n->blob, n->blob_bytes, rs->env->now);

    ASSERT(r != NULL);
    r->cost = n->cost;
    r->est_prompt = n->est_prompt;
    r->kind = n->req->op == FDP_OP_SUBMIT ? FAIR_GEN : FAIR_OTHER;
    r->prompt_len = n->items->n_prompt_ids;
    r->items = *n->items;
    r->checked = n->checked != 0;
    rq_set_deadlines(rs->env, r);
    cnt_add(&rs->env->cnt->requests_total, 1);
    fair_push(rs->fair, r);
}

/* ---- end ------------------------------------------------------------------- */

/* Counts, at the end of a request, the estimated work that need not be done. */
static void
rq_settle(struct reqs *rs, struct jreq *r, int done)
{
    uint64_t did = (uint64_t)r->n_out + (r->accepted ? r->est_prompt : 0);

    if (r->kind != FAIR_GEN)
        return;
    /* Cancelled work is not counted: it says nothing about the service rate. */
    if (done && did < r->cost)
        svc_add(&rs->fair->svcrate, r->cost - did);
    fair_settle(r);
}

/* Is this terminal record well formed? A dying worker may write anything, and a client
 * would end its session for a record that it cannot read. */
static int
rq_is_whole(const struct fdp_rec *rec)
{
    return rec->len ==
        (rec->type == FDP_T_DONE ? sizeof(struct fdp_done) : sizeof(struct fdp_error));
}

/* Sends the worker's well-formed terminal record, with the time of submission filled
 * in. */
static void
rq_tell_rec(struct reqs *rs, struct jreq *r, const struct fdp_rec *rec)
{
    struct fdp_done done;
    struct fdp_error e = { .code = FDP_OK };
    int is_done = rec->type == FDP_T_DONE;

    if (is_done)
        memcpy(&done, rec + 1, sizeof(done));
    else
        memcpy(&e, rec + 1, sizeof(e));
    rql_end(rs->log, r, e.code, is_done ? &done : NULL);
    if (r->cli == NULL)
        return;
    if (is_done)
        done.t_submit = r->t_submit;
    (void)cli_put(rs->clients, r->cli, r->tag, rec,
        is_done ? (const void *)&done : rec + 1, 0);
}

static void
rq_tell_error(struct reqs *rs, struct jreq *r, const struct fdp_error *e)
{
    rql_end(rs->log, r, e->code, NULL);
    if (r->cli != NULL)
        cli_error(rs->clients, r->cli, r->tag, e);
    log_debug("request: %llu ended with code %d", (unsigned long long)r->id, e->code);
}

void
rq_end(struct reqs *rs, struct jreq *r, const struct fdp_rec *rec, const struct fdp_error *e)
{
    static const struct fdp_error broken = { .code = FDP_E_INTERNAL };
    struct cnt_gate *cnt = rs->env->cnt;
    int is_told = rec != NULL;

    OBJ_CHECK(r, JREQ_MAGIC);
    if (rec != NULL && !rq_is_whole(rec)) {
        log_error("request: the worker ended %llu with a record of type %u and %u bytes",
            (unsigned long long)r->id, rec->type, rec->len);
        rec = NULL;
        e = &broken;
    }
    if (r->st == JNL_QUEUED)
        fair_remove(rs->fair, r);
    cnt_add(r->cli == NULL                           ? &cnt->requests_dropped
            : rec != NULL && rec->type == FDP_T_DONE ? &cnt->requests_done
                                                     : &cnt->requests_error,
        1);
    if (is_told)
        rq_settle(rs, r, rec != NULL && rec->type == FDP_T_DONE);
    if (rec != NULL)
        rq_tell_rec(rs, r, rec);
    else
        rq_tell_error(rs, r, e);
    dsp_end(r);
    fair_return(rs->fair, r);
    fair_drop(rs->fair, r);
    jnl_free(rs->jnl, r);
}

static void
rq_end_code(struct reqs *rs, struct jreq *r, int code, uint32_t retry_ms)
{
    const struct fdp_error e = { .code = code, .retry_after_ms = retry_ms };

    rq_end(rs, r, NULL, &e);
}

void
rq_cancel(struct reqs *rs, struct jreq *r, int code, uint32_t retry_ms)
{
    OBJ_CHECK(r, JREQ_MAGIC);
    if (r->st == JNL_QUEUED) {
        rq_end_code(rs, r, code, retry_ms);
        return;
    }
    if (r->st == JNL_ENDING)
        return;
    r->st = JNL_ENDING;
    r->end_code = code;
    wlk_cancel(r->with, r);
}

void
rq_cancel_client(struct reqs *rs, struct client *c, int code, int orphan)
{
    struct jreq *r, *next;

    for (r = TAILQ_FIRST(&c->reqs); r != NULL; r = next) {
        next = TAILQ_NEXT(r, of_ses);
        if (orphan)
            jnl_orphan(rs->jnl, r);
        rq_cancel(rs, r, code, 0);
    }
}

void
rq_slow(struct reqs *rs, struct client *c, const char *why)
{
    if (c->slow)
        return;
    c->slow = 1;
    cnt_add(&rs->env->cnt->sessions_slow, 1);
    log_info("request: session %llu (%s, pid %d) %s: its %u requests end",
        (unsigned long long)c->id, c->shown, (int)c->pid, why, c->n_inflight);
    rq_cancel_client(rs, c, FDP_E_SLOW, 0);
}

void
rq_cancel_all(struct reqs *rs, int code, uint32_t retry_ms)
{
    for (uint32_t i = 0; i < rs->jnl->n_max; i++) {
        if (rs->jnl->pool[i].st != JNL_FREE)
            rq_cancel(rs, &rs->jnl->pool[i], code, retry_ms);
    }
}

void
rq_end_all(struct reqs *rs, int code, uint32_t retry_ms)
{
    for (uint32_t i = 0; i < rs->jnl->n_max; i++) {
        struct jreq *r = &rs->jnl->pool[i];

        if (r->st != JNL_FREE)
            rq_end_code(rs, r,
                r->st == JNL_ENDING && r->end_code != 0 ? r->end_code : code, retry_ms);
    }
    ASSERT(rs->fair->credits_used == 0);
}

/* Returns r to its queue, as if it had not been sent. */
static void
rq_requeue(struct reqs *rs, struct jreq *r)
{
    dsp_end(r);
    fair_return(rs->fair, r);
    fair_unpop(rs->fair, r);
}

/* May r move to another group? Its client must have no output yet, and it must not have
 * killed several workers. */
static int
rq_may_move(const struct reqs *rs, const struct jreq *r)
{
    return rs->dsp->n > 1 && r->st != JNL_ENDING && r->t_first == 0 &&
        (r->told & JNL_TOLD_OUTPUT) == 0 && r->n_moved < RQ_MOVES &&
        (rs->env->st != GATE_STOPPING || dsp_is_up(rs->dsp));
}

/* Queues r for another group. died: the worker ended by itself, perhaps because of r. */
static void
rq_move(struct reqs *rs, struct wlk *l, int died, struct jreq *r)
{
    /* If sch_start_row() stored its id, it began in time: no queue deadline any more. */
    if (l->seg != NULL &&
        __atomic_load_n(&l->seg->started[rq_place(rs, r) % LNK_PLACES],
            __ATOMIC_ACQUIRE) == r->id)
        r->deadline_queue = 0;
    r->n_moved += died != 0;
    r->accepted = 0;
    rq_requeue(rs, r);
    cnt_add(&rs->env->cnt->requests_moved, 1);
}

void
rq_link_gone(struct reqs *rs, struct wlk *l, int died, int code, uint32_t retry_ms)
{
    struct jreq *r;
    uint32_t n = 0, n_moved = 0;

    /* From the last to the first, so that their order in the queue is restored. */
    while ((r = TAILQ_LAST(&l->sendq, jreq_q)) != NULL) {
        ASSERT(r->st == JNL_SENDING && r->with == l);
        rq_requeue(rs, r);
    }
    for (uint32_t i = 0; i < rs->jnl->n_max; i++) {
        r = &rs->jnl->pool[i];
        if (r->st == JNL_FREE || r->with != l)
            continue;
        if (rq_may_move(rs, r)) {
            n_moved++;
            rq_move(rs, l, died, r);
            continue;
        }
        n++;
        rq_end_code(rs, r, r->st == JNL_ENDING ? r->end_code : code,
            r->st == JNL_ENDING ? 0 : retry_ms);
    }
    ASSERT(TAILQ_EMPTY(&l->cancelq) && l->credits_used == 0 && l->n_sending == 0);
    ASSERT(l->n_with == 0 && l->due == 0);
    svc_reset(&rs->fair->svcrate);
    if (n != 0)
        log_warn("relay: %u requests ended with their worker", n);
    if (n_moved != 0)
        log_info("relay: %u requests go from worker %d to another", n_moved, l->group);
}

/* ---- down ------------------------------------------------------------------ */

/* Checks a request that waited for the model. Returns 1 if it was rejected and ended. */
static int
rq_check_late(struct reqs *rs, struct jreq *r)
{
    struct chk_limits lim;
    struct fdp_error fe;
    struct chk_err e;

    if (r->checked)
        return 0;
    chk_limits(rs->env->par, dsp_ready(rs->dsp), r->cli != NULL && r->cli->trusted, &lim);
    if (chk_req(&r->req, &lim, &e) || chk_model(&r->req, &r->items, &lim, &e)) {
        fe = chk_tell(&e);
        rq_end(rs, r, NULL, &fe);
        return 1;
    }
    r->checked = 1;
    return 0;
}

static int
rq_expired(const struct jreq *r, uint64_t now_ns)
{
    return (r->deadline_queue != 0 && now_ns >= r->deadline_queue) ||
        (r->deadline_total != 0 && now_ns >= r->deadline_total);
}

static void
rq_end_expired(struct reqs *rs, struct jreq *r)
{
    cnt_add(&rs->env->cnt->requests_expired, 1);
    rq_end_code(rs, r, FDP_E_DEADLINE, 0);
}

/* Takes the next request to send. Non-generating requests go first: they are short, few
 * at a time and need no row. */
static struct jreq *
rq_next(struct reqs *rs)
{
    struct jreq *r = fair_pop(rs->fair, FAIR_OTHER);

    return r != NULL ? r : fair_pop(rs->fair, FAIR_GEN);
}

/* Sends r, which is in no queue. Returns 0 if no link has room now. */
static int
rq_send_one(struct reqs *rs, struct jreq *r)
{
    fair_charge(rs->fair, r);
    if (!dsp_send(rs->dsp, r, rq_place(rs, r))) {
        fair_return(rs->fair, r);
        fair_unpop(rs->fair, r);
        return 0;
    }
    r->t_sent = rs->env->now;
    r->n_concurrent = rs->jnl->n_open - rs->fair->n_queued - 1;
    if (r->in_startq)
        fair_note_deadline(rs->fair, r);
    return 1;
}

int
rq_send(struct reqs *rs)
{
    int n = dsp_has_due(rs->dsp) ? dsp_send_due(rs->dsp) : 0;
    uint32_t looked = 0;

    while (rs->fair->n_queued != 0 && !rs->env->paused && n < (int)RQ_SEND_BATCH &&
        dsp_is_up(rs->dsp)) {
        struct jreq *r = rq_next(rs);

        if (r == NULL)
            break;
        if (++looked % RQ_LOOK == 0 && env_is_late(rs->env)) {
            fair_unpop(rs->fair, r);
            n++; /* so that the loop continues without sleeping */
            break;
        }
        r->st = JNL_SENDING;
        if (rq_expired(r, rs->env->now)) {
            rq_end_expired(rs, r);
            continue;
        }
        if (rq_check_late(rs, r))
            continue;
        if (!rq_send_one(rs, r))
            break;
        n++;
    }
    if (n != 0)
        dsp_flush(rs->dsp);
    return n;
}

/* ---- deadlines --------------------------------------------------------------- */

/* The earlier of two times, where 0 means never. */
static uint64_t
rq_earlier(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* Ends expired requests in a user's queue. Returns the next deadline in it, or 0. */
static uint64_t
rq_expire_queued(struct reqs *rs, struct uqueue *l)
{
    struct jreq *r, *next;
    uint64_t t = 0;

    for (r = TAILQ_FIRST(&l->q); r != NULL; r = next) {
        next = TAILQ_NEXT(r, link);
        if (rq_expired(r, rs->env->now))
            rq_end_expired(rs, r);
        else
            t = rq_earlier(t, fair_deadline(r));
    }
    return t;
}

/* Sends the client the terminal record; later records of the worker are dropped. */
static void
rq_end_early(struct reqs *rs, struct jreq *r)
{
    const struct fdp_error e = { .code = FDP_E_DEADLINE };

    cnt_add(&rs->env->cnt->requests_expired, 1);
    rq_tell_error(rs, r, &e);
    jnl_orphan(rs->jnl, r);
    rq_cancel(rs, r, FDP_E_DEADLINE, 0);
}

/* The same for requests that a worker has but did not begin: it checks its queue only
 * between steps, and a step may be long. Returns the next deadline, or 0. */
static uint64_t
rq_expire_sent(struct reqs *rs, struct wlk *l)
{
    struct jreq *r, *next;
    uint64_t t = 0;

    for (r = TAILQ_FIRST(&l->startq); r != NULL; r = next) {
        uint64_t *at = &l->seg->started[rq_place(rs, r) % LNK_PLACES];
        /* pairs with sch_start_row() */
        int gone = r->st == JNL_ENDING || r->t_first != 0 ||
            __atomic_load_n(at, __ATOMIC_ACQUIRE) == r->id;

        next = TAILQ_NEXT(r, start);
        if (gone || rq_expired(r, rs->env->now))
            dsp_begun(r);
        else
            t = rq_earlier(t, fair_deadline(r));
        if (!gone && r->cli != NULL && rq_expired(r, rs->env->now))
            rq_end_early(rs, r);
    }
    return t;
}

void
rq_deadlines(struct reqs *rs)
{
    struct fair *f = rs->fair;
    uint64_t t_next = 0;

    if (f->t_next == 0 || rs->env->now < f->t_next)
        return;
    for (int k = 0; k < FAIR_KINDS; k++) {
        struct uqueue *l, *l_next;

        for (l = TAILQ_FIRST(&f->active[k]); l != NULL; l = l_next) {
            l_next = TAILQ_NEXT(l, act);
            t_next = rq_earlier(t_next, rq_expire_queued(rs, l));
        }
    }
    for (uint32_t i = 0; i < rs->dsp->n; i++) {
        if (rs->dsp->link[i]->seg != NULL)
            t_next = rq_earlier(t_next, rq_expire_sent(rs, rs->dsp->link[i]));
    }
    f->t_next = t_next;
}

void
rq_overdue(struct reqs *rs)
{
    for (uint32_t i = 0; i < rs->jnl->n_max && rs->jnl->n_open != 0; i++) {
        struct jreq *r = &rs->jnl->pool[i];

        if (r->st == JNL_FREE || r->st == JNL_QUEUED || r->cli == NULL ||
            r->deadline_total == 0 || rs->env->now < r->deadline_total + RQ_OVERDUE_NS)
            continue;
        rq_end_early(rs, r);
    }
}

void
rq_check(const struct reqs *rs)
{
    fair_check(rs->fair);
    dsp_check(rs->dsp, rs->fair->credits_used);
}
