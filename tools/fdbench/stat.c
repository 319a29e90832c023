/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BEHIND_MS    10.0
#define BEHIND_SHARE 0.05

const double fdb_pct[FDB_N_PCT] = { 50, 90, 95, 99, 99.9, 100 };

/* ---- the log ------------------------------------------------------------- */

int
fdb_log_rec(struct fdb_log *log, const struct fdb_rec *r, const struct fdb_chunk *c)
{
    if (fct_room(&log->rec, log->n_rec + 1, &log->cap_rec, sizeof(*log->rec)) != 0 ||
        fct_room(&log->chunk, log->n_chunk + r->n_chunk, &log->cap_chunk,
            sizeof(*log->chunk)) != 0)
        return -ENOMEM;
    log->rec[log->n_rec] = *r;
    log->rec[log->n_rec++].chunk = log->n_chunk;
    if (r->n_chunk > 0)
        memcpy(log->chunk + log->n_chunk, c, r->n_chunk * sizeof(*c));
    log->n_chunk += r->n_chunk;
    return 0;
}

void
fdb_log_fini(struct fdb_log *log)
{
    free(log->rec);
    free(log->chunk);
    memset(log, 0, sizeof(*log));
}

/* ---- distributions ------------------------------------------------------- */

static int
cmp_dbl(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void
fdb_sort(double *v, size_t n)
{
    qsort(v, n, sizeof(*v), cmp_dbl);
}

double
fdb_percentile(const double *v, size_t n, double p)
{
    /* volatile: a product fused with the sum would differ in the last bit
     * from what every other program computes. */
    volatile double part;
    double h, t, diff;
    size_t at;

    if (n == 0)
        return NAN;
    h = (double)(n - 1) * (p / 100);
    if (!(h > 0))
        return v[0];
    at = (size_t)h;
    if (at >= n - 1)
        return v[n - 1];
    t = h - (double)at;
    diff = v[at + 1] - v[at];
    if (t >= 0.5) {
        part = diff * (1 - t);
        return v[at + 1] - part;
    }
    part = diff * t;
    return v[at] + part;
}

void
fdb_dist_of(double *v, size_t n, struct fdb_dist_sum *ret)
{
    struct fdb_dist_sum d = { .n = n, .mean = NAN, .std = NAN, .min = NAN, .max = NAN };
    volatile double square;
    double sum = 0;
    size_t i;

    for (i = 0; i < n; i++)
        sum += v[i];
    if (n > 0)
        d.mean = sum / (double)n;
    for (sum = 0, i = 0; i < n; i++) {
        square = (v[i] - d.mean) * (v[i] - d.mean);
        sum += square;
    }
    if (n > 0) {
        d.std = sqrt(sum / (double)n);
        fdb_sort(v, n);
        d.min = v[0];
        d.max = v[n - 1];
    }
    for (i = 0; i < FDB_N_PCT; i++)
        d.pct[i] = fdb_percentile(v, n, fdb_pct[i]);
    *ret = d;
}

/* ---- one request --------------------------------------------------------- */

/* From a to b; both happened, a first. */
static double
span_ms(uint64_t a, uint64_t b)
{
    return b > a ? (double)(b - a) / 1e6 : 0;
}

static double
tpot_ms(const struct fdb_rec *r)
{
    return span_ms(r->t_first, r->t_end) / (double)(r->n_out - 1);
}

int
fdb_within(const struct fdb_log *log, const struct fdb_rec *r, const struct fdb_slo *slo)
{
    const struct fdb_chunk *c = log->chunk + r->chunk;
    uint32_t i;

    if (r->code != FDC_OK)
        return 0;
    /* What has no token has its answer when it ends. */
    if (slo->ttft_ms > 0 &&
        span_ms(r->t_send, r->t_first != 0 ? r->t_first : r->t_end) > slo->ttft_ms)
        return 0;
    if (slo->e2e_ms > 0 && span_ms(r->t_send, r->t_end) > slo->e2e_ms)
        return 0;
    if (slo->tpot_ms > 0 && r->n_out > 1 && tpot_ms(r) > slo->tpot_ms)
        return 0;
    for (i = 1; slo->itl_ms > 0 && i < r->n_chunk; i++)
        if (span_ms(c[i - 1].t_ns, c[i].t_ns) > slo->itl_ms)
            return 0;
    return 1;
}

/* ---- summary ------------------------------------------------------------- */

static int
is_of(const struct fdb_rec *r, uint32_t repeat)
{
    return r->repeat == repeat && !r->warm;
}

int
fdb_fell_behind(const struct fdb_log *log, uint32_t repeat)
{
    uint64_t first = UINT64_MAX, last = 0, send = 0;
    double late;
    size_t i;

    for (i = 0; i < log->n_rec; i++) {
        const struct fdb_rec *r = &log->rec[i];

        /* a later turn is due when the one before it has ended */
        if (!is_of(r, repeat) || r->turn > 0)
            continue;
        first = r->t_due < first ? r->t_due : first;
        if (r->t_due >= last) {
            last = r->t_due;
            send = r->t_send;
        }
    }
    late = span_ms(last, send);
    return late > BEHIND_MS && late > BEHIND_SHARE * span_ms(first, last);
}

static void
count_failure(struct fdb_sum *s, int32_t code)
{
    struct fdb_fail one;
    uint32_t i = 0;

    s->n_failed++;
    while (i < s->n_fail && s->fail[i].code != code)
        i++;
    if (i == FDB_N_FAIL)
        return;
    if (i == s->n_fail)
        s->fail[s->n_fail++] = (struct fdb_fail){ .code = code };
    s->fail[i].n++;
    for (; i > 0 && s->fail[i].n > s->fail[i - 1].n; i--) {
        one = s->fail[i];
        s->fail[i] = s->fail[i - 1];
        s->fail[i - 1] = one;
    }
}

/* What metric m says of the request, from ret on; how many values. */
static size_t
values_of(const struct fdb_log *log, const struct fdb_rec *r, enum fdb_metric m, double *ret)
{
    const struct fdb_chunk *c = log->chunk + r->chunk;

    if ((m == FDB_TTFT || m == FDB_TPOT) && r->t_first == 0)
        return 0;
    if (m == FDB_TPOT && r->n_out < 2)
        return 0;
    if (m == FDB_ITL) {
        for (uint32_t k = 1; k < r->n_chunk; k++)
            ret[k - 1] = span_ms(c[k - 1].t_ns, c[k].t_ns);
        return r->n_chunk > 0 ? r->n_chunk - 1 : 0;
    }
    *ret = m == FDB_TTFT ? span_ms(r->t_send, r->t_first)
        : m == FDB_TPOT  ? tpot_ms(r)
        : m == FDB_E2E   ? span_ms(r->t_send, r->t_end)
        : m == FDB_QUEUE ? (double)r->queue_ns / 1e6
        : m == FDB_IN    ? r->n_prompt
                         : r->n_out;
    return 1;
}

size_t
fdb_values(const struct fdb_log *log, uint32_t repeat, enum fdb_metric m, double *v)
{
    size_t i, n = 0;

    for (i = 0; i < log->n_rec; i++)
        if (is_of(&log->rec[i], repeat) && log->rec[i].code == FDC_OK)
            n += values_of(log, &log->rec[i], m, &v[n]);
    return n;
}

static void
rates(const struct fdb_run *run, const struct fdb_slo *slo, uint32_t n_within,
    struct fdb_sum *s)
{
    uint32_t n = s->n_ok + s->n_failed;

    s->wall_s = run->t_end > run->t_begin ? (double)(run->t_end - run->t_begin) / 1e9 : 0;
    s->late_ms = run->late_ms;
    s->max_concurrent_requests = run->max_concurrent_requests;
    s->n_held = run->n_held;
    s->goodput = s->attain = -1;
    if (s->wall_s > 0) {
        s->req_s = s->n_ok / s->wall_s;
        s->out_tok_s = (double)s->n_out / s->wall_s;
        s->total_tok_s = (double)(s->n_prompt + s->n_out) / s->wall_s;
        s->cpu_share = (double)run->cpu_ns / 1e9 / s->wall_s;
    }
    if (slo->ttft_ms > 0 || slo->tpot_ms > 0 || slo->itl_ms > 0 || slo->e2e_ms > 0) {
        s->goodput = s->wall_s > 0 ? n_within / s->wall_s : 0;
        s->attain = n > 0 ? (double)n_within / n : 0;
    }
}

int
fdb_summarize(const struct fdb_log *log, uint32_t repeat, const struct fdb_run *run,
    const struct fdb_slo *slo, struct fdb_sum *ret)
{
    size_t i, room = log->n_chunk > log->n_rec ? log->n_chunk : log->n_rec;
    double *v = calloc(room + 1, sizeof(*v));
    struct fdb_sum s = { .n_ok = 0 };
    struct fdb_dist_sum *to[FDB_N_METRIC] = { &s.ttft, &s.tpot, &s.itl, &s.e2e, &s.queue,
        &s.n_in, &s.n_gen };
    uint32_t n_within = 0;

    if (v == NULL)
        return -ENOMEM;
    for (i = 0; i < log->n_rec; i++) {
        const struct fdb_rec *r = &log->rec[i];

        if (!is_of(r, repeat))
            continue;
        if (r->code != FDC_OK) {
            count_failure(&s, r->code);
            continue;
        }
        s.n_ok++;
        s.n_prompt += r->n_prompt;
        s.n_cached += r->n_cached;
        s.n_out += r->n_out;
        n_within += (uint32_t)fdb_within(log, r, slo);
    }
    rates(run, slo, n_within, &s);
    for (i = 0; i < FDB_N_METRIC; i++)
        fdb_dist_of(v, fdb_values(log, repeat, (enum fdb_metric)i, v), to[i]);
    free(v);
    *ret = s;
    return 0;
}
