/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/live.h"

#include <string.h>

#include "http/conn.h"
#include "http/route.h"

#define LIVE_MS     900  /* an answer is reused for this time: pages ask once a second */
#define LIVE_OLD_MS 5000 /* the longest time over which current rates are computed */

/* Copy the counters. seg: the sums of all groups; from: the segment they were
 * taken from. */
static void
sample(const struct cnt_seg *from, const struct cnt_seg *seg, uint64_t now_ms,
    struct live_at *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->ms = now_ms;
    ret->seg = from;
    if (from == NULL)
        return;
    memcpy(ret->boot_id, seg->boot_id, sizeof(ret->boot_id));
    ret->generation = __atomic_load_n(&seg->generation, __ATOMIC_RELAXED);
    ret->output = cnt_get(&seg->w.generation_tokens);
    ret->prompt = cnt_get(&seg->w.prompt_tokens);
    ret->cached = cnt_get(&seg->w.cached_tokens);
    for (int i = 0; i < CNT_MAX_BUCKET; i++) {
        ret->ttft.bucket[i] = cnt_get(&seg->h[CNT_H_ttft].bucket[i]);
        ret->itl.bucket[i] = cnt_get(&seg->h[CNT_H_itl].bucket[i]);
    }
}

static int
is_interval(const struct live_at *old, const struct live_at *now)
{
    return old->seg != NULL && now->seg != NULL &&
        memcmp(old->boot_id, now->boot_id, sizeof(now->boot_id)) == 0 &&
        old->generation == now->generation && now->ms - old->ms <= LIVE_OLD_MS;
}

static void
put_number(struct buf *b, const char *name, int is_known, double v)
{
    buf_fmt(b, ",\"%s\":", name);
    if (is_known)
        buf_fmt(b, "%.6g", v);
    else
        buf_str(b, "null");
}

static void
put_rate(const struct live *l, const char *name, uint64_t old, uint64_t now, struct buf *b)
{
    double s = (double)(l->now.ms - l->old.ms) / 1000;

    put_number(b, name, is_interval(&l->old, &l->now) && s > 0,
        s > 0 && now > old ? (double)(now - old) / s : 0);
}

/* Quantiles of the values between the two moments; those above the last bound count as
 * that bound. */
static void
put_quantiles(const struct live *l, const char *p50, const char *p99,
    enum cnt_hist_idx which, struct buf *b)
{
    const struct cnt_hist_row *row = cnt_hist_row(which);
    const uint64_t *old = which == CNT_H_ttft ? l->old.ttft.bucket : l->old.itl.bucket;
    const uint64_t *now = which == CNT_H_ttft ? l->now.ttft.bucket : l->now.itl.bucket;
    double last = (double)row->bound[row->n_bound - 1], v[2] = { -1, -1 };
    uint64_t grew[CNT_MAX_BUCKET];

    for (int i = 0; i < CNT_MAX_BUCKET; i++)
        grew[i] = now[i] > old[i] ? now[i] - old[i] : 0;
    if (is_interval(&l->old, &l->now)) {
        v[0] = cnt_hist_quantile(row, grew, 0.5);
        v[1] = cnt_hist_quantile(row, grew, 0.99);
    }
    put_number(b, p50, v[0] >= 0, (v[0] < last ? v[0] : last) / 1e6);
    put_number(b, p99, v[1] >= 0, (v[1] < last ? v[1] : last) / 1e6);
}

static void
put_gauge(struct buf *b, const char *name, const struct cnt_seg *seg, uint64_t v)
{
    put_number(b, name, seg != NULL, (double)v);
}

static void
put_daemon(const struct live *l, const struct cnt_seg *s, struct buf *b)
{
    const struct cnt_seg *seg = l->now.seg;
    uint64_t blocks = cnt_get(&s->w.kv_blocks_total);
    double all = blocks > 0 ? (double)blocks : 1;

    put_rate(l, "tokens_per_s", l->old.output, l->now.output, b);
    put_rate(l, "prompt_tokens_per_s", l->old.prompt, l->now.prompt, b);
    put_rate(l, "cached_tokens_per_s", l->old.cached, l->now.cached, b);
    put_quantiles(l, "ttft_p50_ms", "ttft_p99_ms", CNT_H_ttft, b);
    put_quantiles(l, "itl_p50_ms", "itl_p99_ms", CNT_H_itl, b);
    put_number(b, "kv_used", blocks > 0, (double)cnt_get(&s->w.kv_blocks_used) / all);
    put_number(b, "kv_cached", blocks > 0, (double)cnt_get(&s->w.kv_blocks_cached) / all);
    put_gauge(b, "running", seg, cnt_get(&s->w.requests_running));
    put_gauge(b, "queued", seg,
        cnt_get(&s->g.requests_queued) + cnt_get(&s->w.requests_waiting));
    put_gauge(b, "users", seg, cnt_get(&s->g.users));
    put_gauge(b, "sessions", seg, cnt_get(&s->g.sessions));
}

void
live_json(struct live *l, const struct live_gateway *g)
{
    const struct cnt_seg *seg = g->seg;
    struct cnt_seg sum = { .magic = 0 };
    struct buf *b = &l->text;

    if (l->now.ms != 0 && seg == l->now.seg && seg != NULL &&
        g->now_ms - l->now.ms < LIVE_MS)
        return;
    l->old = l->now;
    if (seg != NULL)
        (void)cnt_of_group(seg, CNT_ALL_GROUPS, &sum);
    sample(seg, &sum, g->now_ms, &l->now);
    b->n = 0;
    buf_str(b, "{\"model\":");
    buf_json(b, g->model, strlen(g->model));
    put_daemon(l, &sum, b);
    buf_fmt(b, ",\"http_connections\":%u,\"http_streams\":%u,\"why\":", g->connections,
        g->streams);
    buf_json(b, g->why, strlen(g->why));
    buf_str(b, "}\n");
}

void
live_fini(struct live *l)
{
    buf_fini(&l->text);
}

void
rt_live(struct conn *c)
{
    struct gw *g = c->g;
    struct live *l = &g->live;
    struct link *of = gw_first(g);
    struct metrics all;
    struct live_gateway now = { .seg = of != NULL ? link_stats(of) : NULL,
        .why = of != NULL ? sta_why(&of->stats) : "no model is served",
        .model = of != NULL ? of->served->name : "",
        .now_ms = g->now_ms,
        .connections = atomic_load_explicit(&g->sh->n_conn, memory_order_relaxed) };

    (void)met_all(g, &all);
    now.streams = all.streams;
    live_json(l, &now);
    conn_reply(c, 200, "application/json", "Cache-Control: no-store\r\n", l->text.p,
        l->text.n);
}
