/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/top/top.h"

double
top_quantile(const uint64_t *bucket, const struct cnt_hist_row *row, double q)
{
    return fmin(cnt_hist_quantile(row, bucket, q), (double)row->bound[row->n_bound - 1]);
}

static double
grew(uint64_t old, uint64_t now)
{
    return now > old ? (double)(now - old) : 0;
}

static double
per(double v, double by)
{
    return by > 0 ? v / by : TOP_NONE;
}

static void
quantiles(const struct cnt_seg *old, const struct cnt_seg *now, double secs,
    struct top_rates *ret)
{
    static const enum cnt_hist_idx which[TOP_L__N] = { CNT_H_ttft, CNT_H_itl, CNT_H_tpot,
        CNT_H_queue, CNT_H_e2e };
    uint64_t delta[CNT_MAX_BUCKET];

    for (int i = 0; i < TOP_L__N; i++) {
        const struct cnt_hist *was = &old->h[which[i]], *is = &now->h[which[i]];
        const struct cnt_hist_row *row = cnt_hist_row(which[i]);
        struct top_quant *q = &ret->lat[i];

        for (uint32_t b = 0; b < CNT_MAX_BUCKET; b++)
            delta[b] = (uint64_t)grew(was->bucket[b], is->bucket[b]);
        q->n = secs > 0 ? (double)cnt_hist_count(row, delta) : TOP_NONE;
        q->p50 = top_quantile(delta, row, 0.5);
        q->p90 = top_quantile(delta, row, 0.9);
        q->p99 = top_quantile(delta, row, 0.99);
    }
}

void
top_rates(const struct cnt_seg *old, const struct cnt_seg *now, double secs,
    struct top_rates *ret)
{
    const struct cnt_worker *a = &old->w, *b = &now->w;
    double steps = grew(a->steps, b->steps), model_ns = grew(a->model_ns, b->model_ns);
    double cached = grew(a->cached_tokens, b->cached_tokens);
    double graph = grew(a->steps_graph, b->steps_graph);

    ret->in_cached = per(cached, secs);
    ret->in = per(cached + grew(a->prompt_tokens, b->prompt_tokens), secs);
    ret->out = per(grew(a->generation_tokens, b->generation_tokens), secs);
    ret->steps = per(steps, secs);
    ret->busy = fmin(per(model_ns / 1e9, secs), 1); /* a step is counted when it ends */
    ret->step_ns = per(model_ns, steps);
    ret->gap_ns = per(grew(a->gap_ns, b->gap_ns), steps);
    ret->batch_seqs = per(grew(a->step_seqs, b->step_seqs), steps);
    ret->batch_tokens =
        per(grew(old->h[CNT_H_step_tokens].sum, now->h[CNT_H_step_tokens].sum), steps);
    ret->graph = per(graph, graph + grew(a->steps_eager, b->steps_eager));
    ret->kv =
        secs > 0 ? per((double)b->kv_blocks_used, (double)b->kv_blocks_total) : TOP_NONE;
    ret->hit = per(grew(a->prefix_hits, b->prefix_hits),
        grew(a->prefix_lookups, b->prefix_lookups));
    ret->done = per(grew(old->g.requests_done, now->g.requests_done), secs);
    ret->errors = per(grew(old->g.requests_error, now->g.requests_error), secs);
    ret->rejected = per(grew(old->g.requests_rejected, now->g.requests_rejected), secs);
    ret->cancelled = per(grew(a->cancelled, b->cancelled), secs);
    ret->preempted = per(grew(a->preemptions, b->preemptions), secs);
    ret->evicted = per(grew(a->prefix_evictions, b->prefix_evictions), secs);
    quantiles(old, now, secs, ret);
}
