/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdbench's reports: numbers over repeats, text, JSON and CSV that agree with
 * each other, ticks, HTML that stays small, closed and escaped. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/fdbench/fdbench.h"
#include "tools/fdbench/report_priv.h"

#define T0 5000000000000u

/* ---- a result ----------------------------------------------------------------- */

static uint64_t seed;

static uint64_t
draw(uint64_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % n;
}

/* Request i of a repeat that began at t: 16 at a time, about 1 ms a token. */
static uint64_t
add_request(struct fdb_log *log, uint32_t repeat, uint32_t i, uint64_t t, int failed)
{
    struct fdb_chunk c[64];
    struct fdb_rec r = { .index = i,
        .repeat = repeat,
        .max_new = 48,
        .conversation = i,
        .n_prompt = 32 + (uint32_t)draw(64),
        .t_due = t,
        .t_send = t + draw(40000),
        .queue_ns = draw(3000000),
        .n_preempted = i % 37 == 5 };

    t = r.t_send + 2000000 + draw(9000000);
    r.n_cached = i % 3 == 0 ? 16 : 0;
    while (!failed && r.n_out < r.max_new) {
        uint32_t n = draw(10) == 0 ? 2 : 1;

        c[r.n_chunk++] = (struct fdb_chunk){ t, n };
        r.n_out += n;
        t += 600000 + draw(900000) + (draw(200) == 0 ? 40000000 : 0);
    }
    r.t_first = failed ? 0 : c[0].t_ns;
    r.code = failed ? FDC_E_QUEUE_FULL : FDC_OK;
    r.finish = failed ? FDC_FIN_NONE : FDC_FIN_LENGTH;
    r.t_end = t + 20000;
    assert_int_equal(0, fdb_log_rec(log, &r, c));
    return r.t_end;
}

static void
add_repeat(struct fdb_result *r, uint32_t repeat, uint32_t n_request)
{
    uint64_t begin = T0 + repeat * 60000000000u, lane[16];
    struct fdb_run *run = &r->run[repeat];
    uint32_t i;

    for (i = 0; i < 16; i++)
        lane[i] = begin + i * 700000;
    *run = (struct fdb_run){ .cpu_ns = 12345678,
        .max_concurrent_requests = 16,
        .n_held = repeat };
    for (i = 0; i < n_request; i++) {
        const struct fdb_rec *q;

        lane[i % 16] =
            draw(9999) + add_request(&r->log, repeat, i, lane[i % 16], i % 50 == 49);
        q = &r->log.rec[r->log.n_rec - 1];
        if (run->t_begin == 0 || q->t_send < run->t_begin)
            run->t_begin = q->t_send;
        if (q->t_end > run->t_end)
            run->t_end = q->t_end;
        if ((double)(q->t_send - q->t_due) / 1e6 > run->late_ms)
            run->late_ms = (double)(q->t_send - q->t_due) / 1e6;
    }
    assert_int_equal(0, fdb_summarize(&r->log, repeat, run, &r->cfg.slo, &r->sum[repeat]));
}

static void
make(struct fdb_result *r, uint32_t n_repeat, uint32_t n_request)
{
    uint32_t i;

    seed = 42;
    memset(r, 0, sizeof(*r));
    r->command = "serve";
    snprintf(r->args, sizeof(r->args),
        "fdbench serve -c 16 --label "
        "'<b>&\"quoted\"</b>'");
    snprintf(r->time, sizeof(r->time), "2026-01-02T03:04:05Z");
    snprintf(r->host, sizeof(r->host), "host, 2 x <processor>");
    snprintf(r->model.name, sizeof(r->model.name), "de<mo> \xff model");
    r->model.vocab = 512;
    r->model.max_model_len = 2048;
    r->cfg = (struct fdb_cfg){ .arrival = FDB_CLOSED,
        .concurrency = 16,
        .n_request = n_request,
        .n_warm = 4,
        .n_repeat = n_repeat,
        .in = { FDB_UNIFORM, 32, 95 },
        .out = { FDB_FIXED, 48, 48 },
        .n_turn = 1,
        .seed = UINT64_MAX,
        .slo = { .ttft_ms = 9, .tpot_ms = 2 },
        .slo_attain = 0.9 };
    r->n = n_repeat;
    r->run = calloc(n_repeat + 1, sizeof(*r->run));
    r->sum = calloc(n_repeat + 1, sizeof(*r->sum));
    assert_true(r->run != NULL && r->sum != NULL);
    add_request(&r->log, 0, 0, T0 - 900000000u, 0);
    r->log.rec[0].warm = 1;
    for (i = 0; i < n_repeat; i++)
        add_repeat(r, i, n_request);
}

static void
make_steps(struct fdb_result *r)
{
    uint32_t i;

    r->n_step = 6;
    r->step = calloc(r->n_step, sizeof(*r->step));
    assert_non_null(r->step);
    for (i = 0; i < r->n_step; i++) {
        struct fdb_step *s = &r->step[i];

        s->sum = r->sum[0];
        s->load = i == 5 ? 24 : 1 << i;
        s->sum.tpot.pct[0] *= 1 + 0.15 * i;
        s->sum.out_tok_s *= (i + 1) / 6.0;
        s->goodput = 10.0 * i;
        s->attain = 1 - 0.04 * i;
        s->within = s->attain >= r->cfg.slo_attain;
    }
    r->found = 4;
}

static void
drop(struct fdb_result *r)
{
    fdb_log_fini(&r->log);
    free(r->run);
    free(r->sum);
    free(r->step);
}

/* What a report writes; free() it. */
static char *
written(const struct fdb_result *r, int (*fn)(FILE *, const struct fdb_result *))
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    assert_non_null(f);
    assert_int_equal(0, fn(f, r));
    fclose(f);
    return text;
}

static int
as_text(FILE *f, const struct fdb_result *r)
{
    fdb_report_text(f, r);
    return 0;
}

static size_t
count(const char *text, const char *what)
{
    size_t n = 0;

    for (; (text = strstr(text, what)) != NULL; text++)
        n++;
    return n;
}

static const json_t *
at(const json_t *j, const char *a, const char *b, const char *c)
{
    j = json_object_get(j, a);
    j = b != NULL ? json_object_get(j, b) : j;
    j = c != NULL ? json_object_get(j, c) : j;
    assert_non_null(j);
    return j;
}

/* ---- tests -------------------------------------------------------------------- */

static void
over_repeats(void **state)
{
    struct fdb_result r;
    struct rep_mmm m;

    (void)state;
    make(&r, 3, 32);
    r.sum[0].out_tok_s = 30;
    r.sum[1].out_tok_s = 10;
    r.sum[2].out_tok_s = 20;
    r.sum[2].goodput = -1;
    assert_int_equal(0, rep_across_scalar(&r, 7, &m));
    assert_string_equal("output_tokens_per_s", rep_scalars[7].key);
    assert_true(m.median == 20 && m.min == 10 && m.max == 30);
    assert_int_equal(2, rep_middle(&r));
    assert_string_equal("goodput_per_s", rep_scalars[10].key);
    assert_int_equal(0, rep_across_scalar(&r, 10, &m));
    assert_true(isnan(m.median) && isnan(m.min) && isnan(m.max));
    r.sum[0].ttft.pct[3] = 4;
    r.sum[1].ttft.pct[3] = 1;
    r.n = 2;
    assert_string_equal("p99", rep_stats[6]);
    assert_int_equal(0, rep_across_stat(&r, 0, 6, &m));
    assert_true(m.median == 2.5 && m.min == 1 && m.max == 4);
    assert_int_equal(1, rep_middle(&r)); /* of two the lower */
    drop(&r);
}

static void
numbers_and_ticks(void **state)
{
    static const struct {
        double v;
        const char *text;
    } rows[] = { { 0, "0" }, { 12, "12" }, { 0.12345, "0.1235" },
        { 0.0012345, "0.001234" }, { 1.23456, "1.235" }, { 99.994, "99.99" },
        { 123.456, "123.5" }, { 12345.6, "12346" }, { -3.5, "-3.500" }, { NAN, "-" } };
    static const struct {
        double lo, hi, first, step;
    } ticks[] = { { 0, 10, 0, 2 }, { 0, 1, 0, 0.2 }, { 3, 97, 20, 20 },
        { 0, 0.003, 0, 0.0005 }, { 0, 4.2e6, 0, 1e6 }, { 5, 5, 5, 1 } };
    double first, step;
    char num[24];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_string_equal(rows[i].text, rep_num(rows[i].v, num));
    for (i = 0; i < sizeof(ticks) / sizeof(ticks[0]); i++) {
        plt_ticks(ticks[i].lo, ticks[i].hi, 6, &first, &step);
        assert_true(fabs(step - ticks[i].step) < 1e-9 * ticks[i].step);
        assert_true(fabs(first - ticks[i].first) < 1e-9 * ticks[i].step);
    }
}

static void
text_has_every_metric(void **state)
{
    struct fdb_result r;
    char *text;
    size_t i;

    (void)state;
    make(&r, 1, 100);
    text = written(&r, as_text);
    for (i = 0; i < REP_N_SCALAR; i++)
        assert_non_null(strstr(text, rep_scalars[i].label));
    for (i = 0; i < REP_N_DIST; i++)
        assert_non_null(strstr(text, rep_dists[i].label));
    for (i = 0; i < REP_N_STAT; i++)
        assert_non_null(strstr(text, rep_stats[i]));
    assert_non_null(strstr(text, "2 failed with E_QUEUE_FULL"));
    assert_non_null(strstr(text, "3 preemptions"));
    assert_null(strstr(text, "median  "));
    assert_null(strstr(text, "nan"));
    free(text);
    drop(&r);
    make(&r, 3, 20);
    make_steps(&r);
    text = written(&r, as_text);
    assert_non_null(strstr(text, "TTFT ms        median "));
    assert_non_null(strstr(text, "output tokens  median "));
    assert_non_null(strstr(text,
        "largest load within the limits: 4 requests at a "
        "time\n"));
    assert_null(strstr(text, "not sent in time"));
    free(text);
    r.bound = 4;
    r.step[4].behind = r.step[4].within = 1;
    r.step[5].behind = 1;
    r.step[5].within = 0;
    r.cfg.arrival = FDB_POISSON;
    r.cfg.n_turn = 2;
    text = written(&r, as_text);
    assert_non_null(strstr(text, "Poisson arrivals, 0 conversations/s"));
    assert_non_null(strstr(text,
        "largest load within the limits: 4 conversations/s, the "
        "most that can be tried\n"));
    assert_int_equal(1, count(text, "not sent in time"));
    free(text);
    text = written(&r, fdb_report_html);
    assert_int_equal(1, count(text, "not sent in time"));
    assert_non_null(strstr(text, "conversations/s, the most tried"));
    free(text);
    drop(&r);
}

/* Nothing ended well: no percentile exists, and no output says otherwise. */
static void
nothing_measured(void **state)
{
    struct fdb_result r;
    json_t *j;
    char *text;

    (void)state;
    make(&r, 1, 0);
    text = written(&r, as_text);
    assert_null(strstr(text, "nan"));
    free(text);
    j = fdb_report_json(&r);
    assert_non_null(j);
    assert_true(json_is_null(
        at(json_array_get(json_object_get(j, "repeats"), 0), "ttft_ms", "p99", NULL)));
    json_decref(j);
    text = written(&r, fdb_report_html);
    assert_int_equal(8, count(text, "no data"));
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "<svg viewBox"));
    free(text);
    drop(&r);
}

static void
json_is_exact(void **state)
{
    struct fdb_result r;
    json_t *j, *again;
    const json_t *one;
    char *text;

    (void)state;
    make(&r, 2, 60);
    make_steps(&r);
    j = fdb_report_json(&r);
    assert_non_null(j);
    text = json_dumps(j, JSON_REAL_PRECISION(17));
    again = json_loads(text, 0, NULL);
    assert_true(json_equal(j, again));
    one = json_array_get(json_object_get(again, "repeats"), 1);
    assert_true(json_real_value(at(one, "itl_ms", "p99.9", NULL)) == r.sum[1].itl.pct[4]);
    assert_true(json_real_value(at(one, "output_tokens_per_s", NULL, NULL)) ==
        r.sum[1].out_tok_s);
    assert_int_equal(r.sum[1].itl.n, json_integer_value(at(one, "itl_ms", "n", NULL)));
    assert_int_equal(1, json_integer_value(at(one, "errors", "E_QUEUE_FULL", NULL)));
    assert_string_equal("18446744073709551615",
        json_string_value(at(again, "config", "seed", NULL)));
    assert_string_equal("de<mo> \xef\xbf\xbd model",
        json_string_value(at(again, "model", "name", NULL)));
    assert_true(json_real_value(at(at(again, "across_repeats", "ttft_ms", "p50"), "max",
                    NULL, NULL)) == fmax(r.sum[0].ttft.pct[0], r.sum[1].ttft.pct[0]));
    assert_int_equal(6, json_array_size(at(again, "search", "steps", NULL)));
    free(text);
    json_decref(j);
    json_decref(again);
    drop(&r);
}

static void
csv_has_it_all(void **state)
{
    struct fdb_result r;
    char *text, *line, *field, want[64];
    size_t n = 0, n_comma;

    (void)state;
    make(&r, 2, 60);
    text = written(&r, fdb_report_csv);
    assert_int_equal(r.log.n_rec + 1, count(text, "\r\n"));
    for (line = text; *line != '\0'; line = strstr(line, "\r\n") + 2, n++) {
        size_t len = strcspn(line, "\r");

        for (field = line, n_comma = 0; field < line + len; field++)
            n_comma += *field == ',';
        assert_int_equal(18, n_comma);
    }
    /* the last arrival of the last request that has one */
    assert_true(r.log.n_chunk > 0);
    snprintf(want, sizeof(want), "%llu:%u\r\n",
        (unsigned long long)r.log.chunk[r.log.n_chunk - 1].t_ns,
        r.log.chunk[r.log.n_chunk - 1].n_tok);
    assert_int_equal(1, count(text, want));
    assert_int_equal(2, count(text, ",E_QUEUE_FULL,none,"));
    free(text);
    drop(&r);
}

/* The committed script computes the same numbers from the log, and sees one
 * changed nanosecond. */
static void
recomputed(void **state)
{
    const char *src = getenv("srcdir");
    char dir[] = "/tmp/u_fdbench_report.XXXXXX", path[3][80], cmd[600];
    struct fdb_result r;
    json_t *j;
    FILE *f;
    int i;

    (void)state;
    if (system("python3 -c 'import json' 2>/dev/null") != 0)
        skip();
    make(&r, 3, 60);
    assert_non_null(mkdtemp(dir));
    for (i = 0; i < 3; i++)
        snprintf(path[i], sizeof(path[i]), "%s/%d", dir, i);
    j = fdb_report_json(&r);
    assert_int_equal(0, json_dump_file(j, path[1], JSON_REAL_PRECISION(17)));
    for (i = 0; i < 3; i += 2) {
        f = fopen(path[i], "w");
        assert_non_null(f);
        assert_int_equal(0, fdb_report_csv(f, &r));
        fclose(f);
        r.log.chunk[r.log.rec[70].chunk + 3].t_ns++;
    }
    snprintf(cmd, sizeof(cmd), "python3 %s/tests/bench/recompute %s %s >&2",
        src != NULL ? src : ".", path[0], path[1]);
    assert_int_equal(0, system(cmd));
    snprintf(cmd, sizeof(cmd), "python3 %s/tests/bench/recompute %s %s | grep -q itl_ms",
        src != NULL ? src : ".", path[2], path[1]);
    assert_int_equal(0, system(cmd));
    for (i = 0; i < 3; i++)
        (void)remove(path[i]);
    (void)remove(dir);
    json_decref(j);
    drop(&r);
}

static void
html_is_closed_and_escaped(void **state)
{
    struct fdb_result r;
    char *text;

    (void)state;
    make(&r, 3, 200);
    make_steps(&r);
    text = written(&r, fdb_report_html);
    assert_int_equal(11, count(text, "<figure>"));
    assert_int_equal(11, count(text, "</figure>"));
    assert_int_equal(count(text, "<svg"), count(text, "</svg>"));
    assert_int_equal(count(text, "<table"), count(text, "</table>"));
    assert_int_equal(count(text, "<div"), count(text, "</div>"));
    assert_int_equal(0, count(text, "no data"));
    /* the name's own marks, and none of the page's */
    assert_null(strstr(text, "de<mo>"));
    assert_non_null(strstr(text, "de&lt;mo&gt; &#xfffd; model"));
    assert_null(strstr(text, "<b>&\"quoted"));
    assert_non_null(strstr(text, "&lt;b&gt;&amp;&quot;quoted&quot;&lt;/b&gt;"));
    assert_null(strstr(text, "<script"));
    assert_null(strstr(text, "http://"));
    assert_null(strstr(text, "https://"));
    assert_null(strstr(text, "src="));
    assert_null(strstr(text, "url("));
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf\""));
    free(text);
    drop(&r);
}

static void
html_stays_small(void **state)
{
    struct fdb_result r;
    char *text;

    (void)state;
    make(&r, 20, 2500);
    text = written(&r, fdb_report_html);
    assert_true(strlen(text) < 2000000);
    assert_true(strlen(text) > 60000);
    free(text);
    drop(&r);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_repeats),
        cmocka_unit_test(numbers_and_ticks),
        cmocka_unit_test(text_has_every_metric),
        cmocka_unit_test(nothing_measured),
        cmocka_unit_test(json_is_exact),
        cmocka_unit_test(csv_has_it_all),
        cmocka_unit_test(recomputed),
        cmocka_unit_test(html_is_closed_and_escaped),
        cmocka_unit_test(html_stays_small),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
