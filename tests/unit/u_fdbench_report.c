/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdbench's reports: numbers over repeats; text, JSON and CSV agree with each other; HTML
 * is small and escaped, and a browser draws it. */
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
    struct fdb_run run = { .cpu_ns = 12345678,
        .max_concurrent_requests = 16,
        .n_held = repeat };
    uint32_t i;

    for (i = 0; i < 16; i++)
        lane[i] = begin + i * 700000;
    for (i = 0; i < n_request; i++) {
        const struct fdb_rec *q;

        lane[i % 16] =
            draw(9999) + add_request(&r->log, repeat, i, lane[i % 16], i % 50 == 49);
        q = &r->log.rec[r->log.n_rec - 1];
        if (run.t_begin == 0 || q->t_send < run.t_begin)
            run.t_begin = q->t_send;
        if (q->t_end > run.t_end)
            run.t_end = q->t_end;
        if ((double)(q->t_send - q->t_due) / 1e6 > run.late_ms)
            run.late_ms = (double)(q->t_send - q->t_due) / 1e6;
        run.n_preempted += q->n_preempted;
    }
    fdb_add_repeat(r, fdb_summarize(&r->log, repeat, &run, &r->cfg.slo), &run);
}

static void
make(struct fdb_result *r, uint32_t n_repeat, uint32_t n_request)
{
    uint32_t i;

    seed = 42;
    memset(r, 0, sizeof(*r));
    r->repeats = json_array();
    r->head = json_pack("{s:s, s:s, s:s, s:s}", "command", "serve", "args",
        "fdbench serve -c 16 --label '<b>&\"quoted\"</b>'", "time",
        "2026-01-02T03:04:05Z", "host", "host, 2 x <processor>");
    snprintf(r->model.name, sizeof(r->model.name), "de<mo> \xff model");
    r->model.vocab = 512;
    r->model.max_model_len = 2048;
    r->cfg = (struct fdb_cfg){ .arrival = FDB_CLOSED,
        .concurrency = 16,
        .n_request = n_request,
        .n_warm = 4,
        .n_repeat = n_repeat,
        .in = { 32, 95 },
        .out = { 48, 48 },
        .n_turn = 1,
        .seed = UINT64_MAX,
        .slo = { .ttft_ms = 9, .tpot_ms = 2 },
        .slo_attain = 0.9 };
    add_request(&r->log, 0, 0, T0 - 900000000u, 0);
    r->log.rec[0].warm = 1;
    for (i = 0; i < n_repeat; i++)
        add_repeat(r, i, n_request);
}

/* The i-th repeat. */
static json_t *
repeat(const struct fdb_result *r, size_t i)
{
    json_t *one = json_array_get(r->repeats, i);

    assert_non_null(one);
    return one;
}

static void
set(json_t *o, const char *key, double v)
{
    assert_int_equal(0, json_object_set_new(o, key, json_real(v)));
}

static void
make_steps(struct fdb_result *r)
{
    uint32_t i;

    for (i = 0; i < 6; i++) {
        json_t *sum = json_deep_copy(repeat(r, 0));
        json_t *tpot = json_object_get(sum, "tpot_ms");
        double attain = 1 - 0.04 * i;

        set(tpot, "p50", fct_real(tpot, "p50") * (1 + 0.15 * i));
        set(sum, "output_tokens_per_s_per_user", 1000 / fct_real(tpot, "p50"));
        set(sum, "output_tokens_per_s", fct_real(sum, "output_tokens_per_s") * (i + 1) / 6);
        set(sum, "goodput_per_s", 10.0 * i);
        set(sum, "attainment", attain);
        fdb_add_step(r, i == 5 ? 24 : 1 << i, sum, attain >= r->cfg.slo_attain, 0);
    }
    r->found = 4;
}

enum form { TEXT, CSV, HTML };

/* Returns the output of a report; free() it. */
static char *
written(const struct fdb_result *r, enum form form)
{
    json_t *report = fdb_report_json(r);
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    assert_true(f != NULL && report != NULL);
    if (form == TEXT)
        fdb_report_text(f, report);
    else if (form == CSV)
        (void)fdb_report_csv(f, report, &r->log);
    else
        assert_int_equal(0, fdb_report_html(f, report, &r->log));
    fclose(f);
    json_decref(report);
    return text;
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

/* ---- the page ------------------------------------------------------------------ */

/* Returns the data that the page embeds. */
static json_t *
data_of(const char *page)
{
    const char *from = strstr(page, "id=\"data\">");
    json_t *j;

    assert_non_null(from);
    from += strlen("id=\"data\">");
    j = json_loadb(from, (size_t)(strstr(from, "</script>") - from), 0, NULL);
    assert_non_null(j);
    return j;
}

/* Returns the page as a browser renders it, without its scripts; NULL if there
 * is no browser. free() it. */
static char *
rendered(const char *page)
{
    char dir[] = "/tmp/u_fdbench_page.XXXXXX", cmd[500], *dom, *end;
    size_t n = 0;
    FILE *f;

    if (getenv("FDD_SAN_RUN") != NULL || system("command -v chromium >/dev/null") != 0)
        return NULL;
    assert_non_null(mkdtemp(dir));
    snprintf(cmd, sizeof(cmd), "%s/a.html", dir);
    f = fopen(cmd, "w");
    assert_non_null(f);
    fputs(page, f);
    fclose(f);
    snprintf(cmd, sizeof(cmd),
        "HOME=%s timeout 120 chromium --headless --no-sandbox --disable-gpu "
        "--user-data-dir=%s/profile --dump-dom file://%s/a.html 2>/dev/null",
        dir, dir, dir);
    f = popen(cmd, "r");
    assert_non_null(f);
    dom = NULL;
    assert_true(getdelim(&dom, &n, '\0', f) > 0);
    pclose(f);
    snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    assert_int_equal(0, system(cmd));
    end = strstr(dom, "</main>");
    assert_non_null(end);
    *end = '\0';
    return dom;
}

/* ---- tests -------------------------------------------------------------------- */

static void
over_repeats(void **state)
{
    struct fdb_result r;
    json_t *j, *data;
    const json_t *m;
    char *page;

    (void)state;
    make(&r, 3, 32);
    set(repeat(&r, 0), "output_tokens_per_s", 30);
    set(repeat(&r, 1), "output_tokens_per_s", 10);
    set(repeat(&r, 2), "output_tokens_per_s", 20);
    json_object_set_new(repeat(&r, 2), "goodput_per_s", json_null());
    j = fdb_report_json(&r);
    m = at(j, "across_repeats", "output_tokens_per_s", NULL);
    assert_true(fct_real(m, "median") == 20 && fct_real(m, "min") == 10 &&
        fct_real(m, "max") == 30);
    m = at(j, "across_repeats", "goodput_per_s", NULL);
    assert_true(json_is_null(at(m, "median", NULL, NULL)) &&
        json_is_null(at(m, "min", NULL, NULL)) && json_is_null(at(m, "max", NULL, NULL)));
    json_decref(j);
    page = written(&r, HTML);
    data = data_of(page);
    assert_int_equal(2, fct_num(data, "middle"));
    json_decref(data);
    free(page);
    set(json_object_get(repeat(&r, 0), "ttft_ms"), "p99", 4);
    set(json_object_get(repeat(&r, 1), "ttft_ms"), "p99", 1);
    json_array_remove(r.repeats, 2);
    j = fdb_report_json(&r);
    m = at(j, "across_repeats", "ttft_ms", "p99");
    assert_true(fct_real(m, "median") == 2.5 && fct_real(m, "min") == 1 &&
        fct_real(m, "max") == 4);
    json_decref(j);
    page = written(&r, HTML);
    data = data_of(page);
    assert_int_equal(1, fct_num(data, "middle")); /* of two the lower */
    json_decref(data);
    free(page);
    fdb_result_fini(&r);
}

static void
numbers(void **state)
{
    static const struct {
        double v;
        const char *text;
    } rows[] = { { 0, "0" }, { 12, "12" }, { 0.12345, "0.1235" },
        { 0.0012345, "0.001234" }, { 1.23456, "1.235" }, { 99.994, "99.99" },
        { 123.456, "123.5" }, { 12345.6, "12346" }, { -3.5, "-3.500" }, { NAN, "-" } };
    char num[24];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_string_equal(rows[i].text, fct_figure(rows[i].v, num));
}

static void
set_step(struct fdb_result *r, size_t i, int within, int behind)
{
    json_t *step = json_array_get(r->steps, i);

    json_object_set_new(step, "within", json_boolean(within));
    json_object_set_new(step, "sent_in_time", json_boolean(!behind));
}

static void
text_has_every_metric(void **state)
{
    struct fdb_result r;
    char *text, *page;
    size_t i;

    (void)state;
    make(&r, 1, 100);
    text = written(&r, TEXT);
    for (i = 0; i < FDB_N_METRIC; i++)
        assert_non_null(strstr(text, fdb_metrics[i].label));
    for (i = 0; i < FDB_N_STAT; i++)
        assert_non_null(strstr(text, fdb_stats[i]));
    assert_non_null(strstr(text, "2 failed with E_QUEUE_FULL"));
    assert_non_null(strstr(text, "3 preemptions"));
    assert_null(strstr(text, "median  "));
    assert_null(strstr(text, "nan"));
    free(text);
    fdb_result_fini(&r);
    make(&r, 3, 20);
    make_steps(&r);
    text = written(&r, TEXT);
    assert_non_null(strstr(text, "TTFT ms        median "));
    assert_non_null(strstr(text, "output tokens  median "));
    assert_non_null(strstr(text,
        "largest load within the limits: 4 requests at a "
        "time\n"));
    assert_null(strstr(text, "not sent in time"));
    free(text);
    r.bound = 4;
    set_step(&r, 4, 1, 1);
    set_step(&r, 5, 0, 1);
    r.cfg.arrival = FDB_POISSON;
    r.cfg.n_turn = 2;
    text = written(&r, TEXT);
    assert_non_null(strstr(text, "Poisson arrivals, 0 conversations/s"));
    assert_non_null(strstr(text,
        "largest load within the limits: 4 conversations/s, the "
        "most that can be tried\n"));
    assert_int_equal(1, count(text, "not sent in time"));
    free(text);
    page = written(&r, HTML);
    text = rendered(page);
    free(page);
    if (text != NULL) {
        assert_int_equal(1, count(text, "not sent in time"));
        assert_non_null(strstr(text, "conversations/s, the most tried"));
    }
    free(text);
    fdb_result_fini(&r);
}

/* No request succeeded: there are no percentiles, and no output has any. */
static void
nothing_measured(void **state)
{
    struct fdb_result r;
    json_t *j;
    char *text, *page;

    (void)state;
    make(&r, 1, 0);
    text = written(&r, TEXT);
    assert_null(strstr(text, "nan"));
    free(text);
    j = fdb_report_json(&r);
    assert_non_null(j);
    assert_true(json_is_null(
        at(json_array_get(json_object_get(j, "repeats"), 0), "ttft_ms", "p99", NULL)));
    json_decref(j);
    page = written(&r, HTML);
    text = rendered(page);
    free(page);
    if (text != NULL) {
        assert_int_equal(8, count(text, "no data"));
        assert_null(strstr(text, "NaN"));
        assert_null(strstr(text, "<svg viewBox"));
    }
    free(text);
    fdb_result_fini(&r);
}

static void
json_is_exact(void **state)
{
    struct fdb_result r;
    json_t *j, *again;
    const json_t *one;
    char *text;
    double *v;
    size_t n;

    (void)state;
    make(&r, 2, 60);
    make_steps(&r);
    j = fdb_report_json(&r);
    assert_non_null(j);
    text = json_dumps(j, JSON_REAL_PRECISION(17));
    again = json_loads(text, 0, NULL);
    assert_true(json_equal(j, again));
    one = json_array_get(json_object_get(again, "repeats"), 1);
    assert_true(json_equal(one, repeat(&r, 1)));
    v = calloc(r.log.n_chunk, sizeof(*v));
    n = fdb_values(&r.log, 1, FDB_ITL, v);
    fdb_sort(v, n);
    assert_true(
        json_real_value(at(one, "itl_ms", "p99.9", NULL)) == fdb_percentile(v, n, 99.9));
    assert_int_equal(n, json_integer_value(at(one, "itl_ms", "n", NULL)));
    free(v);
    assert_true(json_real_value(at(one, "output_tokens_per_s", NULL, NULL)) ==
        fct_real(one, "output_tokens") / fct_real(one, "duration_s"));
    assert_int_equal(1, json_integer_value(at(one, "errors", "E_QUEUE_FULL", NULL)));
    assert_string_equal("18446744073709551615",
        json_string_value(at(again, "config", "seed", NULL)));
    assert_string_equal("de<mo> \xef\xbf\xbd model",
        json_string_value(at(again, "model", "name", NULL)));
    assert_true(json_real_value(
                    at(at(again, "across_repeats", "ttft_ms", "p50"), "max", NULL, NULL)) ==
        fmax(fdb_figure(repeat(&r, 0), "ttft_ms", "p50", NULL),
            fdb_figure(repeat(&r, 1), "ttft_ms", "p50", NULL)));
    assert_int_equal(6, json_array_size(at(again, "search", "steps", NULL)));
    free(text);
    json_decref(j);
    json_decref(again);
    fdb_result_fini(&r);
}

static void
csv_has_it_all(void **state)
{
    struct fdb_result r;
    char *text, *line, *field, want[64];
    size_t n = 0, n_comma;

    (void)state;
    make(&r, 2, 60);
    text = written(&r, CSV);
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
    fdb_result_fini(&r);
}

/* The script in the repository computes the same numbers from the log, and
 * detects one changed nanosecond. */
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
        assert_int_equal(0, fdb_report_csv(f, j, &r.log));
        assert_int_equal(0, fclose(f));
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
    fdb_result_fini(&r);
}

/* Foreign texts appear only in the data, where none can be markup. */
static void
html_is_escaped(void **state)
{
    struct fdb_result r;
    json_t *report, *data;
    char *page, *text, *again;

    (void)state;
    make(&r, 3, 200);
    make_steps(&r);
    json_object_set_new(r.head, "args",
        json_string("</script><script>alert(1)</script><!--"));
    page = written(&r, HTML);
    assert_int_equal(2, count(page, "<script"));
    assert_int_equal(2, count(page, "</script>"));
    assert_null(strstr(page, "de<mo>"));
    assert_null(strstr(page, "<!--<"));
    assert_non_null(strstr(page, "de\\u003cmo> \xef\xbf\xbd model"));
    /* no external resources, and no script but its own */
    assert_null(strstr(page, "http://"));
    assert_null(strstr(page, "https://"));
    assert_null(strstr(page, "src="));
    assert_null(strstr(page, "url("));
    assert_null(strstr(page, "innerHTML"));
    assert_null(strstr(page, "nan"));
    assert_non_null(strstr(page,
        "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-"));
    /* the report equals that of --json to nine digits */
    data = data_of(page);
    report = fdb_report_json(&r);
    text = json_dumps(report, JSON_REAL_PRECISION(9) | JSON_SORT_KEYS);
    again = json_dumps(json_object_get(data, "report"),
        JSON_REAL_PRECISION(9) | JSON_SORT_KEYS);
    assert_string_equal(text, again);
    assert_int_equal(3, json_array_size(at(data, "curves", "e2e_ms", NULL)));
    assert_int_equal(151,
        json_array_size(json_array_get(at(data, "curves", "e2e_ms", NULL), 2)));
    free(text);
    free(again);
    free(page);
    json_decref(data);
    json_decref(report);
    fdb_result_fini(&r);
}

/* The data of the plots: all tokens, the highest number of open
 * requests, gaps in the right bin. */
static void
html_over_time(void **state)
{
    double tokens = 0, open = 0, wall;
    int n_failed = 0;
    struct fdb_result r;
    const json_t *column, *time;
    json_t *data;
    char *page;
    size_t i;

    (void)state;
    make(&r, 1, 200);
    page = written(&r, HTML);
    data = data_of(page);
    time = at(data, "time", NULL, NULL);
    wall = fct_real(time, "wall_s");
    assert_true(fabs(wall - fct_real(repeat(&r, 0), "duration_s")) < 1e-6);
    json_array_foreach(at(time, "columns", NULL, NULL), i, column) {
        tokens += json_number_value(json_array_get(column, 2));
        open = fmax(open, json_number_value(json_array_get(column, 0)));
        assert_true(json_number_value(json_array_get(column, 1)) <=
            json_number_value(json_array_get(column, 0)));
    }
    assert_int_equal(800, i);
    assert_true(tokens == fct_real(repeat(&r, 0), "output_tokens"));
    /* each dot is a request: 196 succeeded, 4 failed */
    json_array_foreach(at(time, "dots", NULL, NULL), i, column)
        n_failed += json_is_true(json_array_get(column, 2));
    assert_true(i == 200 && n_failed == 4);
    assert_true(open == 16);
    json_array_foreach(at(time, "gaps", NULL, NULL), i, column) {
        assert_true(json_number_value(json_array_get(column, 0)) < wall);
        assert_true(json_number_value(json_array_get(column, 1)) <=
            json_number_value(json_array_get(column, 2)));
        assert_true(json_number_value(json_array_get(column, 2)) <=
            fdb_figure(repeat(&r, 0), "itl_ms", "max", NULL) * 1.000001);
    }
    assert_int_equal(50, i);
    free(page);
    json_decref(data);
    fdb_result_fini(&r);
}

static void
html_is_drawn(void **state)
{
    static const char policy[] = "Content-Security-Policy", end[] = "</body>";
    struct fdb_result r;
    char *page, *text, *probed = NULL;
    size_t n;
    FILE *f;

    (void)state;
    make(&r, 3, 200);
    make_steps(&r);
    page = written(&r, HTML);
    text = rendered(page);
    if (text == NULL) {
        free(page);
        fdb_result_fini(&r);
        skip();
    }
    assert_int_equal(11, count(text, "<figure>"));
    assert_int_equal(11, count(text, "</figure>"));
    assert_int_equal(11, count(text, "<svg viewBox"));
    assert_int_equal(count(text, "<svg"), count(text, "</svg>"));
    assert_int_equal(count(text, "<table"), count(text, "</table>"));
    assert_int_equal(0, count(text, "no data"));
    /* the marks of the name are text, not tags of the page */
    assert_null(strstr(text, "de<mo>"));
    assert_non_null(strstr(text, "de&lt;mo&gt; \xef\xbf\xbd model"));
    assert_null(strstr(text, "<b>&amp;\"quoted"));
    assert_non_null(strstr(text, "'&lt;b&gt;&amp;\"quoted\"&lt;/b&gt;'"));
    assert_null(strstr(text, "NaN"));
    assert_null(strstr(text, "undefined"));
    assert_null(strstr(text, "Infinity"));
    free(text);
    /* a foreign script does not run; without the policy it does, and sees the ticks */
    f = open_memstream(&probed, &n);
    text = strstr(page, end);
    fprintf(f,
        "%.*s<script>document.querySelector('main').append('ticks', JSON.stringify("
        "[[0, 10], [0, 1], [3, 97], [0, 0.003], [0, 4.2e6], [5, 5]].map(a => {"
        "const t = ticks(a[0], a[1], 6); return [t.first, Number(t.step.toFixed(9))]; })));"
        "</script>%s",
        (int)(text - page), page, text);
    fclose(f);
    text = rendered(probed);
    assert_null(strstr(text, "ticks["));
    free(text);
    memset(strstr(probed, policy), 'x', strlen(policy));
    text = rendered(probed);
    assert_non_null(
        strstr(text, "ticks[[0,2],[0,0.2],[20,20],[0,0.0005],[0,1000000],[5,1]]"));
    free(text);
    free(probed);
    free(page);
    fdb_result_fini(&r);
}

static void
html_stays_small(void **state)
{
    struct fdb_result r;
    char *text;

    (void)state;
    make(&r, 20, 2500);
    text = written(&r, HTML);
    assert_true(strlen(text) < 2000000);
    assert_true(strlen(text) > 60000);
    free(text);
    fdb_result_fini(&r);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_repeats),
        cmocka_unit_test(numbers),
        cmocka_unit_test(text_has_every_metric),
        cmocka_unit_test(nothing_measured),
        cmocka_unit_test(json_is_exact),
        cmocka_unit_test(csv_has_it_all),
        cmocka_unit_test(recomputed),
        cmocka_unit_test(html_is_escaped),
        cmocka_unit_test(html_over_time),
        cmocka_unit_test(html_is_drawn),
        cmocka_unit_test(html_stays_small),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
