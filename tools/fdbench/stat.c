/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

#define BEHIND_MS    10.0
#define BEHIND_SHARE 0.05
#define N_CODE       100 /* statuses, 0 to -99 */

const double fdb_pct[FDB_N_PCT] = { 50, 90, 95, 99, 99.9, 100 };
const char *const fdb_mmm[3] = { "median", "min", "max" };
const char *const fdb_stats[FDB_N_STAT] = { "mean", "std", "min", "p50", "p90", "p95",
    "p99", "p99.9", "max" };
const struct fdb_metric fdb_metrics[FDB_N_METRIC] = {
    { "requests_ok", "requests that ended well", "", FDB_COUNT, 1 },
    { "requests_failed", "requests that failed", "", FDB_COUNT, 1 },
    { "prompt_tokens", "prompt tokens", "", FDB_COUNT, 0 },
    { "cached_tokens", "found in the prefix cache", "tokens", FDB_COUNT, 0 },
    { "output_tokens", "output tokens", "", FDB_COUNT, 0 },
    { "duration_s", "duration", "s", FDB_REAL, 1 },
    { "requests_per_s", "request throughput", "requests/s", FDB_REAL, 1 },
    { "output_tokens_per_s", "output throughput", "tokens/s", FDB_REAL, 1 },
    { "total_tokens_per_s", "total throughput", "tokens/s", FDB_REAL, 1 },
    { "output_tokens_per_s_per_user", "output per user, 1 / median TPOT", "tokens/s",
        FDB_REAL, 0 },
    { "goodput_per_s", "goodput", "requests/s", FDB_LIMITED, 1 },
    { "attainment", "share within the limits", "", FDB_LIMITED, 1 },
    { "max_concurrent_requests", "most requests open at a time", "", FDB_COUNT, 0 },
    { "sends_delayed", "sends that waited for room in the session", "", FDB_COUNT, 0 },
    { "fdbench_cpu_share", "fdbench's own processor use", "of a core", FDB_REAL, 0 },
    { "late_ms", "worst lateness of a send", "ms", FDB_REAL, 0 },
    { "ttft_ms", "TTFT", "ms", FDB_DIST, 1 },
    { "tpot_ms", "TPOT", "ms", FDB_DIST, 1 },
    { "itl_ms", "ITL", "ms", FDB_DIST, 1 },
    { "e2e_ms", "E2E", "ms", FDB_DIST, 1 },
    { "queue_ms", "queue", "ms", FDB_DIST, 0 },
    { "prompt_len", "prompt", "tokens", FDB_DIST, 0 },
    { "output_len", "output", "tokens", FDB_DIST, 0 },
};

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

/* ---- statistics ---------------------------------------------------------- */

static int
cmp_dbl(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void
fdb_sort(double *v, size_t n)
{
    if (n > 0)
        qsort(v, n, sizeof(*v), cmp_dbl);
}

double
fdb_percentile(const double *v, size_t n, double p)
{
    /* volatile: a fused multiply-add would differ in the last bit from other programs. */
    volatile double part;
    double h, t, diff;
    size_t at;

    if (n == 0)
        return NAN;
    h = (double)(n - 1) * (p / 100);
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

json_t *
fdb_dist(double *v, size_t n)
{
    json_t *o = json_pack("{s:I}", "n", (json_int_t)n);
    double stat[FDB_N_STAT], mean, sum = 0;
    volatile double square;
    size_t i;

    for (i = 0; i < n; i++)
        sum += v[i];
    mean = sum / (double)n; /* NAN if n is 0 */
    for (sum = 0, i = 0; i < n; i++) {
        square = (v[i] - mean) * (v[i] - mean);
        sum += square;
    }
    fdb_sort(v, n);
    stat[0] = mean;
    stat[1] = sqrt(sum / (double)n);
    stat[2] = fdb_percentile(v, n, 0);
    for (i = 0; i < FDB_N_PCT; i++)
        stat[3 + i] = fdb_percentile(v, n, fdb_pct[i]);
    for (i = 0; i < FDB_N_STAT; i++)
        json_object_set_new(o, fdb_stats[i], fct_json_real(stat[i]));
    return o;
}

json_t *
fdb_mmm_of(const json_t *list, const char *key, const char *stat, int partly)
{
    size_t i, n = 0, n_list = json_array_size(list);
    double *v = calloc(n_list + 1, sizeof(*v));
    json_t *ret;

    if (v == NULL)
        return NULL;
    for (i = 0; i < n_list; i++) {
        v[n] = fdb_figure(json_array_get(list, i), key, stat, NULL);
        n += !isnan(v[n]);
    }
    if (n < n_list && !partly)
        n = 0;
    fdb_sort(v, n);
    ret = json_pack("{s:o, s:o, s:o}", "median", fct_json_real(fdb_percentile(v, n, 50)),
        "min", fct_json_real(fdb_percentile(v, n, 0)), "max",
        fct_json_real(fdb_percentile(v, n, 100)));
    free(v);
    return ret;
}

double
fdb_figure(const json_t *o, const char *a, const char *b, const char *c)
{
    o = json_object_get(o, a);
    o = b != NULL ? json_object_get(o, b) : o;
    o = c != NULL ? json_object_get(o, c) : o;
    return json_is_number(o) ? json_number_value(o) : (double)NAN;
}

/* ---- one request --------------------------------------------------------- */

static double
tpot_ms(const struct fdb_rec *r)
{
    return fct_ms(r->t_first, r->t_end) / (double)(r->n_out - 1);
}

int
fdb_has_limit(const struct fdb_slo *slo)
{
    return slo->ttft_ms > 0 || slo->tpot_ms > 0 || slo->itl_ms > 0 || slo->e2e_ms > 0;
}

static int
is_over(double ms, double limit)
{
    return limit > 0 && ms > limit;
}

int
fdb_within(const struct fdb_log *log, const struct fdb_rec *r, const struct fdb_slo *slo)
{
    const struct fdb_chunk *c = log->chunk + r->chunk;
    /* A request without tokens counts its end as the first token. */
    uint64_t t_first = r->t_first != 0 ? r->t_first : r->t_end;
    int is = r->code == FDC_OK && !is_over(fct_ms(r->t_send, t_first), slo->ttft_ms) &&
        !is_over(fct_ms(r->t_send, r->t_end), slo->e2e_ms) &&
        (r->n_out < 2 || !is_over(tpot_ms(r), slo->tpot_ms));

    for (uint32_t i = 1; is && slo->itl_ms > 0 && i < r->n_chunk; i++)
        is = !is_over(fct_ms(c[i - 1].t_ns, c[i].t_ns), slo->itl_ms);
    return is;
}

/* ---- summary ------------------------------------------------------------- */

int
fdb_is_of(const struct fdb_rec *r, uint32_t repeat)
{
    return r->repeat == repeat && !r->warm;
}

int
fdb_fell_behind(const struct fdb_log *log, uint32_t repeat)
{
    uint64_t first = UINT64_MAX;
    const struct fdb_rec *r, *last = NULL;
    double late;

    for (r = log->rec; r < log->rec + log->n_rec; r++) {
        /* a later turn is due when the one before it has ended */
        if (!fdb_is_of(r, repeat) || r->turn > 0)
            continue;
        first = MIN(first, r->t_due);
        last = last == NULL || r->t_due >= last->t_due ? r : last;
    }
    late = last != NULL ? fct_ms(last->t_due, last->t_send) : 0;
    return late > BEHIND_MS && late > BEHIND_SHARE * fct_ms(first, last->t_due);
}

int
fdb_code_of(const char *name)
{
    int i = 0;

    while (i < N_CODE && strcmp(fdc_status_name(-i), name) != 0)
        i++;
    return -i;
}

int
fdb_commonest(const json_t *summary)
{
    json_t *errors = json_object_get(summary, "errors");
    const char *first = json_object_iter_key(json_object_iter(errors));

    return first != NULL ? fdb_code_of(first) : FDC_OK;
}

int
fdb_exit_of(const json_t *summaries)
{
    const json_t *one;
    size_t i;

    json_array_foreach(summaries, i, one)
        if (fct_num(one, "requests_ok") > 0)
            return 0;
    return fct_exit_code(fdb_commonest(json_array_get(summaries, 0)));
}

size_t
fdb_values(const struct fdb_log *log, uint32_t repeat, enum fdb_times m, double *v)
{
    const struct fdb_rec *r;
    size_t n = 0;

    for (r = log->rec; r < log->rec + log->n_rec; r++) {
        const struct fdb_chunk *c = log->chunk + r->chunk;

        if (!fdb_is_of(r, repeat) || r->code != FDC_OK)
            continue;
        for (uint32_t k = 1; m == FDB_ITL && k < r->n_chunk; k++)
            v[n++] = fct_ms(c[k - 1].t_ns, c[k].t_ns);
        if (m == FDB_ITL || (m <= FDB_TPOT && r->t_first == 0) ||
            (m == FDB_TPOT && r->n_out < 2))
            continue;
        v[n++] = m == FDB_TTFT ? fct_ms(r->t_send, r->t_first)
            : m == FDB_TPOT    ? tpot_ms(r)
            : m == FDB_E2E     ? fct_ms(r->t_send, r->t_end)
            : m == FDB_QUEUE   ? (double)r->queue_ns / 1e6
            : m == FDB_IN      ? r->n_prompt
                               : r->n_out;
    }
    return n;
}

/* {status: number of requests that failed with it}, the most frequent first */
static json_t *
errors_json(const struct fdb_log *log, uint32_t repeat)
{
    uint32_t n[N_CODE] = { 0 };
    json_t *o = json_object();
    const struct fdb_rec *r;
    int i, most;

    for (r = log->rec; r < log->rec + log->n_rec; r++)
        if (fdb_is_of(r, repeat) && r->code > -N_CODE)
            n[-r->code]++;
    for (n[0] = 0;; n[most] = 0) {
        for (i = most = 0; i < N_CODE; i++)
            most = n[i] > n[most] ? i : most;
        if (n[most] == 0)
            return o;
        json_object_set_new(o, fdc_status_name(-most), json_integer(n[most]));
    }
}

json_t *
fdb_summarize(const struct fdb_log *log, uint32_t repeat, const struct fdb_run *run,
    const struct fdb_slo *slo)
{
    double s = run->t_end > run->t_begin ? (double)(run->t_end - run->t_begin) / 1e9 : 0;
    double *v = calloc(log->n_chunk + log->n_rec + 1, sizeof(*v));
    double n = 0, n_ok = 0, n_prompt = 0, n_cached = 0, n_out = 0, n_within = 0;
    json_t *dist[FDB_N_TIMES], *o;
    const struct fdb_rec *r;
    size_t i;

    if (v == NULL)
        return NULL;
    for (r = log->rec; r < log->rec + log->n_rec; r++) {
        n += fdb_is_of(r, repeat);
        if (!fdb_is_of(r, repeat) || r->code != FDC_OK)
            continue;
        n_ok++;
        n_prompt += r->n_prompt;
        n_cached += r->n_cached;
        n_out += r->n_out;
        n_within += fdb_within(log, r, slo);
    }
    for (i = 0; i < FDB_N_TIMES; i++)
        dist[i] = fdb_dist(v, fdb_values(log, repeat, (enum fdb_times)i, v));
    free(v);

#define RATE(x) (s > 0 ? (x) / s : 0)
    const double scalars[FDB_FIRST_DIST] = { n_ok, n - n_ok, n_prompt, n_cached, n_out, s,
        RATE(n_ok), RATE(n_out), RATE(n_prompt + n_out),
        1000 / fdb_figure(dist[FDB_TPOT], "p50", NULL, NULL), RATE(n_within),
        n > 0 ? n_within / n : 0, run->max_concurrent_requests, run->n_held,
        RATE((double)run->cpu_ns / 1e9), run->late_ms };
#undef RATE
    o = json_object();
    for (i = 0; i < FDB_FIRST_DIST; i++)
        json_object_set_new(o, fdb_metrics[i].key,
            fdb_metrics[i].kind == FDB_COUNT ? json_integer((json_int_t)scalars[i])
                : fdb_metrics[i].kind == FDB_LIMITED && !fdb_has_limit(slo)
                ? json_null()
                : fct_json_real(scalars[i]));
    for (i = 0; i < FDB_N_TIMES; i++)
        json_object_set_new(o, fdb_metrics[FDB_FIRST_DIST + i].key, dist[i]);
    json_object_set_new(o, "errors", errors_json(log, repeat));
    return o;
}
