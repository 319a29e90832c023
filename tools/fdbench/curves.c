/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/report_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_CURVE  400 /* points of a distribution, and its tail's */
#define N_TAIL   50
#define N_COLUMN 700  /* of a plot over time */
#define N_DOT    1500 /* dots kept: twice as many at most */

/* Distance of about total / want that is 1, 2 or 5 times a power of ten. */
static double
round_step(double total, int want)
{
    double first, step;

    plt_ticks(0, total, want, &first, &step);
    return step;
}

static int
counts(const struct fdb_rec *r, uint32_t repeat)
{
    return !r->warm && r->repeat == repeat && r->code == FDC_OK;
}

static double
since(uint64_t t, uint64_t t0, double unit)
{
    return ((double)t - (double)t0) / unit;
}

/* ---- distributions ------------------------------------------------------------ */

/* The curve of v[n] sorted: all of it if short, else with a denser tail. */
static size_t
curve(const double *v, size_t n, double *x, double *y)
{
    size_t i, k = 0;

    if (n <= N_CURVE + N_TAIL) {
        for (i = 0; i < n; i++) {
            x[i] = v[i];
            y[i] = n > 1 ? 100.0 * (double)i / (double)(n - 1) : 100;
        }
        return n;
    }
    for (i = 0; i < N_CURVE; i++, k++)
        y[k] = 99.0 * (double)i / N_CURVE;
    for (i = 0; i <= N_TAIL; i++, k++)
        y[k] = 99 + (double)i / N_TAIL;
    for (i = 0; i < k; i++)
        x[i] = fdb_percentile(v, n, y[i]);
    return k;
}

static void
mark_percentiles(struct plt *p, const struct fdb_dist_sum *d, int color)
{
    static const struct {
        size_t pct;
        double at;
        const char *name;
    } rows[] = { { 0, 50, "p50" }, { 1, 90, "p90" }, { 3, 99, "p99" } };
    char num[24];
    size_t i;

    for (i = 0; d->n > 0 && i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct plt_mark *m = &p->mark[p->n_mark++];

        m->x = d->pct[rows[i].pct];
        m->y = rows[i].at;
        m->color = color;
        snprintf(m->text, sizeof(m->text), "%s %s ms", rows[i].name, rep_num(m->x, num));
    }
}

static int
distribution(FILE *out, const struct fdb_result *r, enum fdb_metric dist, const char *title)
{
    const size_t cap = N_CURVE + N_TAIL + 1;
    double most = 0;
    uint32_t middle = rep_middle(r), i, n_other = 0;
    size_t n_v = dist == FDB_ITL ? r->log.n_chunk : r->log.n_rec, n, at = 0;
    double *v = calloc(n_v + 1, sizeof(*v));
    double *xy = calloc(2 * PLT_MAX_SERIES * cap, sizeof(*xy));
    const struct fdb_dist_sum *d = rep_dist(&r->sum[middle], dist);
    struct plt p;
    int rc = v != NULL && xy != NULL ? 0 : -ENOMEM;

    plt_init(&p, title, "ms", "% of all at or below");
    p.y_lo = 0;
    p.y_hi = 100;
    for (i = 0; i < r->n; i++)
        most = fmax(most, rep_dist(&r->sum[i], dist)->max);
    p.x_log = d->n > 0 && most > 20 * d->pct[0] && d->pct[0] > 0;
    /* what arrived together has gaps of nearly nothing */
    if (p.x_log)
        p.x_lo = fmax(d->min / 1.1, d->pct[0] / 50);
    /* room for the labels p90 and p99 */
    else if (d->n > 1 && d->pct[3] - d->min > 0.7 * (most - d->min))
        p.x_hi = most + 0.3 * (most - d->min);
    p.note = p.x_log ? "Logarithmic axis." : NULL;
    /* the others first and pale, the middle one over them */
    for (i = 0; rc == 0 && i <= r->n; i++) {
        if (i == middle || (i < r->n && n_other == PLT_MAX_SERIES - 1))
            continue;
        n = fdb_values(&r->log, i < r->n ? i : middle, dist, v);
        fdb_sort(v, n);
        n = curve(v, n, xy + at, xy + at + cap);
        plt_add(&p, PLT_LINE, (int)dist + 1, xy + at, xy + at + cap, n, NULL);
        p.s[p.n_s - 1].faint = i < r->n;
        n_other += i < r->n;
        at += 2 * cap;
    }
    mark_percentiles(&p, d, (int)dist + 1);
    if (rc == 0)
        plt_write(out, &p);
    free(v);
    free(xy);
    return rc;
}

int
crv_latency(FILE *out, const struct fdb_result *r)
{
    static const char *const titles[] = { "Time to first token (TTFT)",
        "Time per output token (TPOT)", "Gap between arrivals (ITL)", "End to end (E2E)" };
    int rc = 0;

    for (int i = FDB_TTFT; rc == 0 && i <= FDB_E2E; i++)
        rc = distribution(out, r, (enum fdb_metric)i, titles[i]);
    return rc;
}

/* ---- over time ------------------------------------------------------------------ */

struct span { /* the repeat shown */
    const struct fdb_result *r;
    uint32_t repeat;
    uint64_t t0;
    double wall_s;
};

static int
throughput(FILE *out, const struct span *s)
{
    const struct fdb_log *log = &s->r->log;
    double width = round_step(s->wall_s, 100), *xy, n_bin;
    char note[120], num[24];
    struct plt p;
    size_t i, k, n;
    uint32_t j;

    width = width < 1e-3 ? 1e-3 : width;
    n_bin = floor(s->wall_s / width + 0.5);
    n = n_bin < 1 ? 1 : (size_t)n_bin;
    xy = calloc(2 * n, sizeof(*xy));
    if (xy == NULL)
        return -ENOMEM;
    plt_init(&p, "Output tokens per second", "s since the first request", "tokens/s");
    snprintf(note, sizeof(note), "In steps of %s ms.", rep_num(width * 1e3, num));
    for (i = 0; i < log->n_rec; i++) {
        const struct fdb_rec *q = &log->rec[i];

        if (q->warm || q->repeat != s->repeat)
            continue;
        for (j = 0; j < q->n_chunk; j++) {
            double t = since(log->chunk[q->chunk + j].t_ns, s->t0, 1e9);

            k = t > 0 ? (size_t)(t / width) : 0;
            xy[n + (k < n ? k : n - 1)] += log->chunk[q->chunk + j].n_tok;
        }
    }
    for (i = 0; i < n; i++) {
        /* the last step takes what is left of the time, or half a step more */
        double from = (double)i * width, to = i + 1 < n ? from + width : s->wall_s;

        xy[i] = (from + to) / 2;
        xy[n + i] = to > from ? xy[n + i] / (to - from) : (double)NAN;
    }
    p.y_lo = p.x_lo = 0;
    p.x_hi = s->wall_s;
    p.note = note;
    plt_add(&p, PLT_AREA, 5, xy, xy + n, log->n_chunk > 0 ? n : 0, NULL);
    p.h[0].at = s->r->sum[s->repeat].out_tok_s;
    snprintf(p.h[0].text, sizeof(p.h[0].text), "mean %s", rep_num(p.h[0].at, num));
    p.n_h = p.h[0].at > 0;
    plt_write(out, &p);
    free(xy);
    return 0;
}

struct change {
    double t;
    int open, waiting;
};

static int
by_time(const void *a, const void *b)
{
    const struct change *x = a, *y = b;

    if (x->t != y->t)
        return x->t < y->t ? -1 : 1;
    return x->open - y->open; /* an end before the begin that it allowed */
}

static size_t
changes(const struct span *s, struct change *c)
{
    const struct fdb_log *log = &s->r->log;
    size_t i, n = 0;

    for (i = 0; i < log->n_rec; i++) {
        const struct fdb_rec *q = &log->rec[i];

        if (q->warm || q->repeat != s->repeat || q->t_send == 0 || q->t_end == 0)
            continue;
        c[n++] = (struct change){ since(q->t_send, s->t0, 1e9), 1, 1 };
        c[n++] = (struct change){ since(q->t_first ? q->t_first : q->t_end, s->t0, 1e9),
            0, -1 };
        c[n++] = (struct change){ since(q->t_end, s->t0, 1e9), -1, 0 };
    }
    qsort(c, n, sizeof(*c), by_time);
    return n;
}

/* Running sums as steps: every change, or, of many, the largest, smallest and
 * last value of each column of the plot. ret: x, open, waiting, 3 rows of cap. */
static size_t
stairs(const struct change *c, size_t n, double wall_s, double *ret, size_t cap)
{
    double open = 0, wait = 0, hi[2] = { 0 }, lo[2] = { 0 };
    size_t i, k = 0, column, last = 0;
    int many = n + 1 > 3 * N_COLUMN;

#define PUT(t, a, b) \
    do { \
        if (k < cap) { \
            ret[k] = (t); \
            ret[cap + k] = (a); \
            ret[2 * cap + k++] = (b); \
        } \
    } while (0)
    for (i = 0; i < n; i++) {
        column = (size_t)(fmax(c[i].t, 0) / fmax(wall_s, 1e-9) * N_COLUMN);
        if (many && column != last) {
            double t = ((double)last + 0.5) * wall_s / N_COLUMN;

            PUT(t, hi[0], hi[1]);
            PUT(t, lo[0], lo[1]);
            PUT(t, open, wait);
            hi[0] = lo[0] = open;
            hi[1] = lo[1] = wait;
            last = column;
        }
        open += c[i].open;
        wait += c[i].waiting;
        hi[0] = fmax(hi[0], open);
        lo[0] = fmin(lo[0], open);
        hi[1] = fmax(hi[1], wait);
        lo[1] = fmin(lo[1], wait);
        if (!many)
            PUT(c[i].t, open, wait);
    }
    if (many)
        PUT(wall_s, open, wait);
#undef PUT
    return k;
}

static int
requests_open(FILE *out, const struct span *s)
{
    const size_t cap = 3 * N_COLUMN + 8;
    struct change *c = calloc(3 * s->r->log.n_rec + 1, sizeof(*c));
    double *v = calloc(3 * cap, sizeof(*v));
    struct plt p;
    size_t n = 0;

    plt_init(&p, "Requests open", "s since the first request", "requests");
    p.x_lo = p.y_lo = 0;
    p.x_hi = s->wall_s;
    if (c != NULL && v != NULL) {
        n = changes(s, c);
        n = stairs(c, n, s->wall_s, v, cap);
        plt_add(&p, PLT_STEP, 1, v, v + cap, n, "sent, not ended");
        plt_add(&p, PLT_STEP, 2, v, v + 2 * cap, n, "of them without a token");
        plt_write(out, &p);
    }
    n = c != NULL && v != NULL;
    free(c);
    free(v);
    return n ? 0 : -ENOMEM;
}

/* Of many dots the lowest and highest of each of N_DOT equal parts of the
 * list; x and y are changed in place. */
static size_t
thin(double *x, double *y, size_t n)
{
    size_t part, i, k = 0;

    if (n <= 2 * N_DOT)
        return n;
    for (part = 0; part < N_DOT; part++) {
        size_t from = part * n / N_DOT, to = (part + 1) * n / N_DOT, lo = from, hi = from;
        double a[4];

        for (i = from; i < to; i++) {
            lo = y[i] < y[lo] ? i : lo;
            hi = y[i] > y[hi] ? i : hi;
        }
        a[0] = x[lo];
        a[1] = y[lo];
        a[2] = x[hi];
        a[3] = y[hi];
        x[k] = a[0];
        y[k++] = a[1];
        x[k] = a[2];
        y[k++] = a[3];
    }
    return k;
}

static int
first_tokens(FILE *out, const struct span *s)
{
    const struct fdb_log *log = &s->r->log;
    const struct fdb_dist_sum *d = &s->r->sum[s->repeat].ttft;
    size_t i, n = 0, n_bad = 0, room = log->n_rec + 1;
    double *v = calloc(4 * room, sizeof(*v)), *bad = v != NULL ? v + 2 * room : NULL;
    struct plt p;
    char num[24];

    if (v == NULL)
        return -ENOMEM;
    plt_init(&p, "Time to first token over time", "s since the first request", "TTFT in ms");
    p.y_log = d->n > 0 && d->max > 20 * d->pct[0] && d->min > 0;
    if (!p.y_log)
        p.y_lo = 0;
    p.x_lo = 0;
    p.x_hi = s->wall_s;
    for (i = 0; i < log->n_rec; i++) {
        const struct fdb_rec *q = &log->rec[i];

        if (counts(q, s->repeat) && q->t_first != 0) {
            v[n] = since(q->t_send, s->t0, 1e9);
            v[room + n++] = since(q->t_first, q->t_send, 1e6);
        } else if (!q->warm && q->repeat == s->repeat && q->t_send != 0) {
            bad[n_bad] = since(q->t_send, s->t0, 1e9);
            bad[room + n_bad++] = p.y_log ? d->min : 0;
        }
    }
    p.note =
        n > 2 * N_DOT ? "Of many dots the lowest and highest in turn are drawn." : NULL;
    plt_add(&p, PLT_DOTS, 1, v, v + room, thin(v, v + room, n), "a request");
    p.s[0].faint = n > 300;
    plt_add(&p, PLT_CROSS, 0, bad, bad + room, thin(bad, bad + room, n_bad), "failed");
    p.h[0].at = d->n > 0 ? d->pct[0] : 0;
    snprintf(p.h[0].text, sizeof(p.h[0].text), "p50 %s", rep_num(p.h[0].at, num));
    p.n_h = d->n > 0;
    plt_write(out, &p);
    free(v);
    return 0;
}

struct gap {
    double t, ms;
};

static int
by_moment(const void *a, const void *b)
{
    const struct gap *x = a, *y = b;

    return (x->t > y->t) - (x->t < y->t);
}

static int
gaps(FILE *out, const struct span *s)
{
    const struct fdb_log *log = &s->r->log;
    struct gap *g = calloc(log->n_chunk + 1, sizeof(*g));
    double width = fmax(round_step(s->wall_s, 60), 1e-3), *v, *xy;
    size_t i, from, n = 0, k = 0, cap = (size_t)(s->wall_s / width) + 2;
    char note[120], num[24];
    struct plt p;
    uint32_t j;

    v = calloc(log->n_chunk + 1, sizeof(*v));
    xy = calloc(3 * cap, sizeof(*xy));
    for (i = 0; g != NULL && i < log->n_rec; i++) {
        const struct fdb_chunk *c = log->chunk + log->rec[i].chunk;

        for (j = 1; counts(&log->rec[i], s->repeat) && j < log->rec[i].n_chunk; j++)
            g[n++] = (struct gap){ fmax(since(c[j].t_ns, s->t0, 1e9), 0),
                since(c[j].t_ns, c[j - 1].t_ns, 1e6) };
    }
    if (g != NULL)
        qsort(g, n, sizeof(*g), by_moment);
    for (from = 0; g != NULL && v != NULL && xy != NULL && from < n && k < cap; k++) {
        double bin = floor(g[from].t / width);

        for (i = from; i < n && floor(g[i].t / width) <= bin; i++)
            v[i - from] = g[i].ms;
        fdb_sort(v, i - from);
        xy[k] = (bin + 0.5) * width;
        xy[cap + k] = fdb_percentile(v, i - from, 50);
        xy[2 * cap + k] = fdb_percentile(v, i - from, 99);
        from = i;
    }
    plt_init(&p, "Gap between arrivals over time", "s since the first request", "ITL in ms");
    snprintf(note, sizeof(note), "In steps of %s ms.", rep_num(width * 1e3, num));
    p.note = note;
    p.x_lo = p.y_lo = 0;
    p.x_hi = s->wall_s;
    i = g != NULL && v != NULL && xy != NULL;
    if (i) {
        plt_add(&p, PLT_LINE, 2, xy, xy + 2 * cap, k, "p99");
        plt_add(&p, PLT_LINE, 3, xy, xy + cap, k, "p50");
        plt_write(out, &p);
    }
    free(g);
    free(v);
    free(xy);
    return i ? 0 : -ENOMEM;
}

int
crv_time(FILE *out, const struct fdb_result *r)
{
    struct span s = { .r = r, .repeat = rep_middle(r) };
    int rc;

    s.t0 = r->run[s.repeat].t_begin;
    s.wall_s = fmax(since(r->run[s.repeat].t_end, s.t0, 1e9), 0);
    rc = throughput(out, &s);
    rc = rc == 0 ? requests_open(out, &s) : rc;
    rc = rc == 0 ? first_tokens(out, &s) : rc;
    return rc == 0 ? gaps(out, &s) : rc;
}

/* ---- a search ------------------------------------------------------------------- */

static int
by_load(const void *a, const void *b)
{
    const struct fdb_step *x = a, *y = b;

    return (x->load > y->load) - (x->load < y->load);
}

static void
search_plots(FILE *out, const struct fdb_result *r, const struct fdb_step *step, double *v)
{
    double *load = v, *good = v + r->n_step, *attain = good + r->n_step,
           *user = attain + r->n_step, *out_s = user + r->n_step;
    struct plt p;
    char num[24];
    uint32_t i;

    for (i = 0; i < r->n_step; i++) {
        load[i] = step[i].load;
        good[i] = step[i].goodput >= 0 ? step[i].goodput : (double)NAN;
        attain[i] = step[i].attain >= 0 ? step[i].attain * 100 : (double)NAN;
        user[i] = rep_scalar(&step[i].sum, REP_PER_USER);
        out_s[i] = step[i].sum.out_tok_s;
    }
    plt_init(&p, "Goodput over load", rep_load_unit(&r->cfg),
        "requests/s within the limits");
    p.x_lo = p.y_lo = 0;
    plt_add(&p, PLT_CHAIN, 1, load, good, r->n_step, NULL);
    p.v[0].at = r->found;
    snprintf(p.v[0].text, sizeof(p.v[0].text), "found: %s", rep_num(r->found, num));
    p.n_v = r->found > 0;
    plt_write(out, &p);
    p.title = "Requests within the limits over load";
    p.y_label = "% of the requests";
    p.y_hi = 100;
    p.s[0].y = attain;
    p.s[0].color = 3;
    p.h[0].at = r->cfg.slo_attain * 100;
    snprintf(p.h[0].text, sizeof(p.h[0].text), "asked for: %s %%",
        rep_num(r->cfg.slo_attain * 100, num));
    p.n_h = 1;
    plt_write(out, &p);
    plt_init(&p, "Throughput over speed for one user",
        "tokens/s for a user (1 / median TPOT)", "output tokens/s");
    p.x_lo = p.y_lo = 0;
    plt_add(&p, PLT_CHAIN, 4, user, out_s, r->n_step, NULL);
    for (i = 0; i < r->n_step && p.n_mark < PLT_MAX_MARK; i++)
        if (isfinite(user[i])) {
            p.mark[p.n_mark] =
                (struct plt_mark){ .x = user[i], .y = out_s[i], .color = 4, .above = 1 };
            snprintf(p.mark[p.n_mark++].text, 40, "%s", rep_num(load[i], num));
        }
    p.note = "The label of a point is its load.";
    plt_write(out, &p);
}

int
crv_search(FILE *out, const struct fdb_result *r)
{
    struct fdb_step *step = calloc((size_t)r->n_step + 1, sizeof(*step));
    double *v = calloc(5 * ((size_t)r->n_step + 1), sizeof(*v));
    int rc = step != NULL && v != NULL ? 0 : -ENOMEM;

    if (rc == 0) {
        memcpy(step, r->step, r->n_step * sizeof(*step));
        qsort(step, r->n_step, sizeof(*step), by_load);
        search_plots(out, r, step, v);
    }
    free(step);
    free(v);
    return rc;
}
