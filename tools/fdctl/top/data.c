/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/top/top.h"


void
top_sample(const struct cnt_seg *seg, uint32_t group, uint64_t now_ns, struct top_raw *ret)
{
    struct cnt_seg now;

    if (cnt_of_group(seg, group, &now) != 0) /* of a daemon that came since */
        (void)cnt_of_group(seg, CNT_ALL_GROUPS, &now);
    ret->t_ns = now_ns;
    ret->generation = now.generation;
    ret->g = now.g;
    ret->w = now.w;
    memcpy(ret->h, now.h, sizeof(ret->h));
}

double
top_quantile(const uint64_t *bucket, const struct cnt_hist_row *row, double q)
{
    double v = cnt_hist_quantile(row, bucket, q);

    return v > (double)row->bound[row->n_bound - 1]
        ? (double)row->bound[row->n_bound - 1]
        : v;
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
quantiles(const struct top_raw *old, const struct top_raw *now, struct top_rates *ret)
{
    static const enum cnt_hist_idx which[TOP_L__N] = { CNT_H_ttft, CNT_H_itl, CNT_H_tpot,
        CNT_H_queue, CNT_H_e2e };
    uint64_t delta[CNT_MAX_BUCKET];

    for (int i = 0; i < TOP_L__N; i++) {
        const struct cnt_hist *was = &old->h[which[i]], *is = &now->h[which[i]];
        const struct cnt_hist_row *row = cnt_hist_row(which[i]);
        struct top_quant *q = &ret->lat[i];

        q->n = 0;
        for (uint32_t b = 0; b < CNT_MAX_BUCKET; b++) {
            delta[b] = is->bucket[b] > was->bucket[b] ? is->bucket[b] - was->bucket[b] : 0;
            q->n += delta[b];
        }
        q->p50 = top_quantile(delta, row, 0.5);
        q->p90 = top_quantile(delta, row, 0.9);
        q->p99 = top_quantile(delta, row, 0.99);
    }
}

void
top_rates(const struct top_raw *old, const struct top_raw *now, struct top_rates *ret)
{
    const struct cnt_worker *a = &old->w, *b = &now->w;
    double secs = now->t_ns > old->t_ns ? (double)(now->t_ns - old->t_ns) / 1e9 : 0;
    double steps = grew(a->steps, b->steps), n, cached;

    memset(ret, 0, sizeof(*ret));
    ret->secs = secs;
    cached = grew(a->cached_tokens, b->cached_tokens);
    ret->in_cached = per(cached, secs);
    ret->in = per(cached + grew(a->prompt_tokens, b->prompt_tokens), secs);
    ret->out = per(grew(a->generation_tokens, b->generation_tokens), secs);
    ret->steps = per(steps, secs);
    ret->busy = per(grew(a->model_ns, b->model_ns) / 1e9, secs);
    if (ret->busy > 1)
        ret->busy = 1; /* a step is counted when it ends */
    ret->step_ns = per(grew(a->model_ns, b->model_ns), steps);
    ret->gap_ns = per(grew(a->gap_ns, b->gap_ns), steps);
    ret->batch_seqs = per(grew(a->step_seqs, b->step_seqs), steps);
    ret->batch_tokens =
        per(grew(old->h[CNT_H_step_tokens].sum, now->h[CNT_H_step_tokens].sum), steps);
    n = grew(a->steps_graph, b->steps_graph);
    ret->graph = per(n, n + grew(a->steps_eager, b->steps_eager));
    ret->kv = per((double)b->kv_blocks_used, (double)b->kv_blocks_total);
    ret->hit = per(grew(a->prefix_hits, b->prefix_hits),
        grew(a->prefix_lookups, b->prefix_lookups));
    ret->done = per(grew(old->g.requests_done, now->g.requests_done), secs);
    ret->errors = per(grew(old->g.requests_error, now->g.requests_error), secs);
    ret->rejected = per(grew(old->g.requests_rejected, now->g.requests_rejected), secs);
    ret->cancelled = per(grew(a->cancelled, b->cancelled), secs);
    ret->preempted = per(grew(a->preemptions, b->preemptions), secs);
    ret->evicted = per(grew(a->prefix_evictions, b->prefix_evictions), secs);
    quantiles(old, now, ret);
}

/* ---- history ------------------------------------------------------------- */

void
top_history_add(struct top_history *h, const struct top_rates *r)
{
    double v[TOP_S__N] = { -1, -1, -1, -1 };

    if (r != NULL) {
        v[TOP_S_OUT] = r->out;
        v[TOP_S_IN] = r->in;
        v[TOP_S_BUSY] = r->busy;
        v[TOP_S_KV] = r->kv;
    }
    for (int i = 0; i < TOP_S__N; i++)
        h->v[i][h->at] = (float)v[i];
    h->at = (h->at + 1) % TOP_HISTORY;
    if (h->n < TOP_HISTORY)
        h->n++;
}

struct top_series
top_history_line(const struct top_history *h, enum top_line line)
{
    struct top_series s = { h->v[line], TOP_HISTORY, h->at, h->n };

    return s;
}
