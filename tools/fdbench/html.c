/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

#include "libclient/fdproto.h"

#define N_BODY   100 /* points of a distribution's curve up to p99 */
#define N_TAIL   50  /* points after p99 */
#define N_SHOWN  16  /* repeats with a curve */
#define N_COLUMN 800 /* columns that a repeat's time is divided into */
#define N_STEP   50  /* intervals of a repeat's time, for gaps between tokens */

static const char page[] = {
#include "tools/fdbench/report.html.inc"
};

/* {METRIC: [[[value, percent], ...] of each repeat, the middle one last]} */
static json_t *
curves(const struct fdb_log *log, size_t n_repeat, size_t middle)
{
    double *v = calloc(log->n_chunk + log->n_rec + 1, sizeof(*v)), percent;
    json_t *o = json_object(), *list, *curve;
    size_t i, n_other, k, n;

    for (int m = FDB_TTFT; v != NULL && m <= FDB_E2E; m++) {
        list = json_array();
        for (i = n_other = 0; i <= n_repeat; i++) {
            if (i == middle || (i < n_repeat && ++n_other >= N_SHOWN))
                continue;
            n = fdb_values(log, (uint32_t)(i < n_repeat ? i : middle), (enum fdb_times)m, v);
            fdb_sort(v, n);
            curve = json_array();
            for (k = 0; n > 0 && k <= N_BODY + N_TAIL; k++) {
                percent = k < N_BODY ? 99.0 * (double)k / N_BODY
                                     : 99 + (double)(k - N_BODY) / N_TAIL;
                json_array_append_new(curve,
                    json_pack("[f,f]", fdb_percentile(v, n, percent), percent));
            }
            json_array_append_new(list, curve);
        }
        json_object_set_new(o, fdb_metrics[FDB_FIRST_DIST + m].key, list);
    }
    free(v);
    return o;
}

/* A repeat, cut into columns of equal width. */
struct span {
    double t0, wall_s;
    int few; /* each request is a dot; else only the lowest and highest of a column */
    json_t *dots;
    struct {
        double open, waiting; /* changes of these counts; span_json() sums them up */
        double tokens;
        /* Requests sent in the column: of lowest, of highest TTFT, and a failed one. */
        const struct fdb_rec *lowest, *highest, *failed;
    } c[N_COLUMN + 1];
    struct fct_buf gap[N_STEP]; /* doubles: ms */
};

/* Time since the repeat began, in columns. */
static double
columns(const struct span *s, uint64_t t)
{
    return fmin(fmax(((double)t - s->t0) / 1e9 / s->wall_s, 0), 1) * N_COLUMN;
}

static size_t
column(const struct span *s, uint64_t t)
{
    return (size_t)fmin(columns(s, t), N_COLUMN - 1);
}

/* Add [t, TTFT, whether it failed] of a request; NULL: do nothing. */
static void
add_dot(struct span *s, const struct fdb_rec *q)
{
    if (q != NULL)
        json_array_append_new(s->dots,
            json_pack("[f,f,b]", ((double)q->t_send - s->t0) / 1e9,
                fct_ms(q->t_send, q->t_first), q->code != FDC_OK || q->t_first == 0));
}

static int
add_request(struct span *s, const struct fdb_rec *q, const struct fdb_chunk *c)
{
    size_t at = column(s, q->t_send), sent = (size_t)ceil(columns(s, q->t_send));
    uint64_t t_first = q->t_first != 0 ? q->t_first : q->t_end;
    const struct fdb_rec **lowest = &s->c[at].lowest, **highest = &s->c[at].highest;
    double ms;

    if (q->t_send == 0)
        return 0;
    s->c[sent].open++;
    s->c[sent].waiting++;
    s->c[(size_t)ceil(columns(s, q->t_end))].open--;
    s->c[(size_t)ceil(columns(s, t_first))].waiting--;
    if (s->few)
        add_dot(s, q);
    else if (q->code != FDC_OK || q->t_first == 0)
        s->c[at].failed = q;
    else if (*lowest == NULL)
        *lowest = *highest = q;
    else if (t_first - q->t_send < (*lowest)->t_first - (*lowest)->t_send)
        *lowest = q;
    else if (t_first - q->t_send > (*highest)->t_first - (*highest)->t_send)
        *highest = q;
    for (uint32_t i = 0; i < q->n_chunk; i++) {
        at = column(s, c[i].t_ns);
        s->c[at].tokens += c[i].n_tok;
        if (i == 0 || q->code != FDC_OK)
            continue;
        ms = fct_ms(c[i - 1].t_ns, c[i].t_ns);
        if (fct_buf_add(&s->gap[at / (N_COLUMN / N_STEP)], &ms, sizeof(ms)) != 0)
            return -ENOMEM;
    }
    return 0;
}

/* columns: [open, waiting, tokens]; gaps: [t, p50, p99] */
static json_t *
span_json(struct span *s)
{
    json_t *list = json_array(), *gaps = json_array();
    size_t i;

    for (i = 0; i < N_COLUMN && s->wall_s > 0; i++) {
        json_array_append_new(list,
            json_pack("[f,f,f]", s->c[i].open, s->c[i].waiting, s->c[i].tokens));
        add_dot(s, s->c[i].lowest);
        add_dot(s, s->c[i].highest != s->c[i].lowest ? s->c[i].highest : NULL);
        add_dot(s, s->c[i].failed);
        s->c[i + 1].open += s->c[i].open;
        s->c[i + 1].waiting += s->c[i].waiting;
    }
    for (i = 0; i < N_STEP; i++) {
        double *v = (double *)(void *)s->gap[i].p;
        size_t n = s->gap[i].n / sizeof(*v);

        fdb_sort(v, n);
        if (n > 0)
            json_array_append_new(gaps,
                json_pack("[f,f,f]", ((double)i + 0.5) * s->wall_s / N_STEP,
                    fdb_percentile(v, n, 50), fdb_percentile(v, n, 99)));
        free(v);
    }
    return json_pack("{s:f, s:f, s:o, s:o, s:o}", "wall_s", s->wall_s, "gap_step_s",
        s->wall_s / N_STEP, "columns", list, "dots", s->dots, "gaps", gaps);
}

static json_t *
over_time(const struct fdb_log *log, const json_t *repeat)
{
    struct span s = { .t0 = fct_real(repeat, "begin_ns"),
        .wall_s = fct_real(repeat, "duration_s"),
        .dots = json_array() };
    const struct fdb_rec *q;
    json_t *ret;
    int rc = 0;

    s.few = fct_num(repeat, "requests_ok") + fct_num(repeat, "requests_failed") <
        2 * N_COLUMN;
    for (q = log->rec; rc == 0 && s.wall_s > 0 && q < log->rec + log->n_rec; q++)
        if (fdb_is_of(q, (uint32_t)fct_num(repeat, "repeat")))
            rc = add_request(&s, q, log->chunk + q->chunk);
    ret = span_json(&s);
    if (rc == 0)
        return ret;
    json_decref(ret);
    return NULL;
}

static json_t *
page_data(const struct fdb_log *log, const json_t *report)
{
    const json_t *repeats = json_object_get(report, "repeats"), *one;
    json_t *metrics = json_array(), *statuses = json_object(), *n;
    /* the repeat whose output tokens/s are the (lower) median */
    double median = fdb_figure(report, "across_repeats", "output_tokens_per_s", "median"),
           best = -1, v;
    size_t middle = 0, i;
    const char *name;

    for (i = 0; i < FDB_N_METRIC; i++)
        json_array_append_new(metrics,
            json_pack("{s:s, s:s, s:s, s:b}", "key", fdb_metrics[i].key, "label",
                fdb_metrics[i].label, "unit", fdb_metrics[i].unit, "is_distribution",
                fdb_metrics[i].kind == FDB_DIST));
    json_array_foreach(repeats, i, one) {
        v = fct_real(one, "output_tokens_per_s");
        middle = v <= median && v > best ? i : middle;
        best = v <= median ? fmax(v, best) : best;
        json_object_foreach(json_object_get(one, "errors"), name, n)
            json_object_set_new(statuses, name,
                json_string(fdc_strerror(fdb_code_of(name))));
    }
    return json_pack("{s:O, s:o, s:o, s:o, s:I, s:o, s:o, s:o}", "report", report,
        "metrics", metrics, "statuses", statuses, "limits",
        fdb_filled(FDB_LIMITS, report), "middle", (json_int_t)middle, "curves",
        curves(log, json_array_size(repeats), middle), "time",
        over_time(log, json_array_get(repeats, middle)), "protocol",
        json_sprintf("%d.%d", FDP_MAJOR, FDP_MINOR));
}

int
fdb_report_html(FILE *out, const json_t *report, const void *log)
{
    static const char here[] = "@DATA@";
    const char *end = memmem(page, sizeof(page), here, strlen(here)), *c;
    json_t *data = page_data(log, report);
    char *text = json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(9));

    json_decref(data);
    if (text == NULL)
        return -ENOMEM;
    fwrite(page, 1, (size_t)(end - page), out);
    /* escape '<', so that no text in the data ends the script element */
    for (c = text; *c != '\0'; c++)
        if (*c == '<')
            fputs("\\u003c", out);
        else
            fputc(*c, out);
    end += strlen(here);
    fwrite(end, 1, (size_t)(page + sizeof(page) - end), out);
    free(text);
    return 0;
}
