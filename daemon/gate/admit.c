/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/admit.h"

#include "daemon/common/clk.h"
#include "daemon/gate/check.h"
#include "daemon/gate/client.h"
#include "daemon/gate/dispatch.h"
#include "daemon/gate/env.h"
#include "daemon/gate/fair.h"
#include "libclient/fdproto.h"

#define ADM_PAUSED_MS   1000u /* the end of a pause is not known */
#define ADM_AWAY_MS     1000u /* no worker, or its loading progress is not known */
#define ADM_LOAD_MIN_MS 100u

/* ---- when to try again ------------------------------------------------------- */

/* ms to wait while the daemon drains or stops: until the open requests have ended, at
 * most to the deadline of a stop. A stop adds the time that the worker took to become
 * ready, as the next daemon's will. When a drain is taken back is not known. */
static uint32_t
adm_drain_ms(const struct admit *a)
{
    uint64_t now = a->env->now;
    uint64_t ms = a->jnl->n_open == 0
        ? 0
        : svc_ms(&a->fair->svcrate, a->fair->cost_open, now, ADM_RETRY_MAX_MS);

    if (a->env->st == GATE_STOPPING) {
        uint64_t left =
            a->env->stop_deadline > now ? (a->env->stop_deadline - now) / CLK_MS : 0;

        ms = (ms < left ? ms : left) + dsp_loaded_ms(a->dsp);
    }
    return ms == 0              ? ADM_PAUSED_MS
        : ms > ADM_RETRY_MAX_MS ? ADM_RETRY_MAX_MS
                                : (uint32_t)ms;
}

uint32_t
adm_retry_ms(const struct admit *a)
{
    uint64_t ms;

    if (a->env->st != GATE_RUNNING)
        return adm_drain_ms(a);
    if (dsp_is_up(a->dsp) && a->env->paused)
        return ADM_PAUSED_MS;
    if (dsp_is_up(a->dsp))
        return svc_ms(&a->fair->svcrate, fair_mean_cost(a->fair), a->env->now,
            ADM_RETRY_MAX_MS);
    ms = dsp_load_ms(a->dsp, a->env->now);
    if (ms == 0)
        return ADM_AWAY_MS;
    return ms < ADM_LOAD_MIN_MS ? ADM_LOAD_MIN_MS
        : ms > ADM_RETRY_MAX_MS ? ADM_RETRY_MAX_MS
                                : (uint32_t)ms;
}

/* ms that this many tokens take at the service rate; 0: unknown, use adm_retry_ms(). */
static uint32_t
adm_tokens_ms(const struct admit *a, uint64_t tokens)
{
    if (!dsp_is_up(a->dsp) || a->env->paused)
        return 0;
    return svc_ms(&a->fair->svcrate, tokens, a->env->now, ADM_RETRY_MAX_MS);
}

/* ---- entries and limits ------------------------------------------------------ */

/* Rejects with E_LIMIT. retry_ms: the time until one of the user's requests ends, at its
 * share of the service rate. */
static int
adm_over_limit(const struct admit *a, const struct usr *u, unsigned detail, int64_t limit,
    struct chk_err *e)
{
    (void)chk_fail(e, FDP_E_LIMIT, detail, (uint64_t)limit);
    e->retry_ms =
        adm_tokens_ms(a, fair_mean_cost(a->fair) * a->fair->weight_active / u->weight);
    return 1;
}

/* Entries that only a user without requests may take. */
static uint32_t
adm_kept(const struct admit *a)
{
    uint32_t n = a->jnl->n_max / ADM_KEPT_SHARE;

    return n < ADM_KEPT_MAX ? n : ADM_KEPT_MAX;
}

int
adm_check(const struct admit *a, const struct client *c, const struct usr *u,
    uint64_t bytes, struct chk_err *e)
{
    const struct par *par = a->env->par;
    uint32_t n_max = a->jnl->n_max;

    if (a->env->st == GATE_DEGRADED)
        return chk_fail(e, FDP_E_GPU_LOST, 0, 0);
    if (a->env->st != GATE_RUNNING)
        return chk_fail(e, FDP_E_DRAINING, 0, 0);
    if (u->n_inflight != 0)
        n_max -= adm_kept(a);
    if (a->jnl->n_open >= n_max)
        return chk_fail(e, dsp_is_up(a->dsp) ? FDP_E_QUEUE_FULL : FDP_E_LOADING, 0,
            a->jnl->n_max);
    if (c->trusted)
        return 0;
    if (c->n_inflight >= (uint64_t)par->sched_max_inflight_per_client)
        return adm_over_limit(a, u, 0, par->sched_max_inflight_per_client, e);
    if (u->n_inflight >= (uint64_t)par->sched_max_inflight_per_user)
        return adm_over_limit(a, u, 0, par->sched_max_inflight_per_user, e);
    if (u->bytes + bytes > (uint64_t)par->sched_max_bytes_per_user)
        return adm_over_limit(a, u, FDP_D_BLOB, par->sched_max_bytes_per_user, e);
    return 0;
}

/* ---- what may wait ----------------------------------------------------------- */

int
adm_is_full(const struct admit *a)
{
    return a->fair->cost_queued != 0 || a->jnl->n_open >= a->jnl->n_max;
}

/* A request's deadline for its start, in ms from now; 0: none. */
static uint64_t
adm_patience_ms(const struct admit *a, const struct fdp_req *q)
{
    uint64_t ms = (uint64_t)a->env->par->sched_max_waiting_time_ms;

    if (q->ttl_queue_ms != 0 && (ms == 0 || q->ttl_queue_ms < ms))
        ms = q->ttl_queue_ms;
    if (q->ttl_total_ms != 0 && (ms == 0 || q->ttl_total_ms < ms))
        ms = q->ttl_total_ms;
    return ms;
}

uint64_t
adm_max_queued(const struct admit *a)
{
    uint64_t max = (uint64_t)a->env->par->sched_max_queued_tokens;

    return max != 0 ? max : (uint64_t)a->jnl->n_max * ADM_TOKENS_EACH;
}

/* Tokens that must be served before the queue can take cost more of this user; 0: it can
 * now. A user without a request has a reserve on top, which only such users use. */
static uint64_t
adm_excess(const struct admit *a, const struct usr *u, uint64_t cost)
{
    uint64_t max = adm_max_queued(a), queued = a->fair->cost_queued;
    uint64_t first = a->fair->cost_first;

    if (queued == 0 || queued + cost <= max)
        return 0;
    if (u->n_inflight == 0 && (first == 0 || first + cost <= max / ADM_KEPT_SHARE))
        return 0;
    return queued + cost - max;
}

/* ms by which the deadline would pass before the request starts; 0: it would
 * not, or the wait is unknown. */
static uint64_t
adm_lateness_ms(const struct admit *a, const struct usr *u, const struct fdp_req *q)
{
    uint64_t patience = adm_patience_ms(a, q);
    double rate, ms;

    if (patience == 0)
        return 0;
    rate = svc_rate(&a->fair->svcrate, a->env->now);
    if (rate <= 0 || (double)a->fair->cost_queued * 1e3 / rate <= (double)patience)
        return 0;
    ms = (double)fair_ahead(a->fair, u, q->priority) * 1e3 / rate;
    return ms > (double)patience ? (uint64_t)(ms - (double)patience) + 1 : 0;
}

int
adm_check_queue(const struct admit *a, const struct usr *u, const struct fdp_req *q,
    uint64_t cost, struct chk_err *e)
{
    int up = dsp_is_up(a->dsp);
    uint64_t excess, late;

    if (q->op != FDP_OP_SUBMIT)
        return 0;
    excess = adm_excess(a, u, cost);
    if (excess != 0) {
        (void)chk_fail(e, up ? FDP_E_QUEUE_FULL : FDP_E_LOADING, FDP_D_MAX_NEW,
            a->fair->cost_queued + cost - excess);
        e->retry_ms = adm_tokens_ms(a, excess);
        return 1;
    }
    late = up ? adm_lateness_ms(a, u, q) : 0;
    if (late != 0) {
        (void)chk_fail(e, FDP_E_OVERLOAD, FDP_D_TTL, late + adm_patience_ms(a, q));
        e->retry_ms = late < ADM_RETRY_MAX_MS ? (uint32_t)late : ADM_RETRY_MAX_MS;
        return 1;
    }
    return 0;
}
