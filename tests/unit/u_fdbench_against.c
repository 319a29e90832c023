/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdbench serve --against: two reports become a table; a report of a different run is
 * refused, and the error names the difference. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/listen.h"
#include "tools/fdbench/fdbench.h"

static const struct fdb_row trace_rows[] = { { 0.5, 100, 20, 1 }, { 0.75, 200, 30, 2 },
    { 2, 50, 5, 4 } };

/* ---- reports ------------------------------------------------------------------- */

static json_t *
dist(double p50, double p99, double max)
{
    return json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "n", 3, "mean", p50,
        "min", p50, "p50", p50, "p90", p50, "p95", p50, "p99", p99, "p99.9", p99, "max",
        max);
}

/* Scales rates by x and times by 1 / x. */
static json_t *
sum(double x)
{
    return json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o}",
        "requests_ok", 3, "requests_failed", 0, "duration_s", 4 / x, "requests_per_s",
        0.75 * x, "output_tokens_per_s", 13.75 * x, "total_tokens_per_s", 100 * x,
        "goodput_per_s", 0.5 * x, "attainment", 1.0, "ttft_ms",
        dist(58 / x, 240 / x, 250 / x), "tpot_ms", dist(10 / x, 12 / x, 13 / x), "itl_ms",
        dist(6 / x, 80 / x, 151 / x), "e2e_ms", dist(300 / x, 400 / x, 500 / x));
}

static void
make(struct fdb_result *r, double x)
{
    static const struct fdb_run run;

    memset(r, 0, sizeof(*r));
    r->repeats = json_array();
    fdb_add_repeat(r, sum(x), &run);
    fdb_cfg_init(&r->cfg);
    r->cfg.arrival = FDB_TRACE;
    r->cfg.trace = "some/open.csv";
    r->cfg.row = trace_rows;
    r->cfg.n_row = r->cfg.n_request = 3;
    r->cfg.n_warm = 0;
    r->cfg.slo.ttft_ms = 60;
    r->head = json_pack("{s:s, s:s, s:s, s:s}", "command", "serve", "args",
        "fdbench serve --trace some/open.csv", "time", "2026-01-02T03:04:05Z", "host",
        "host (2 x processor)");
    r->daemon = json_pack("{s:s, s:s, s:s, s:s}", "commit", "abc1234", "version", "0.2.0",
        "device", "cuda:0", "device_uuid", "GPU-1");
    snprintf(r->model.name, sizeof(r->model.name), "llama");
    memset(r->model.digest, 0x11, sizeof(r->model.digest));
}

static json_t *
report_of(const struct fdb_result *m)
{
    json_t *j = fdb_report_json(m);

    assert_non_null(j);
    return j;
}

/* Writes a report to a file, as --json does, and reads it back. */
static json_t *
through_file(json_t *j, int any, int *ret_rc)
{
    char path[] = "/tmp/u_fdbench_against.XXXXXX";
    json_t *back = NULL;
    FILE *f = fdopen(mkstemp(path), "w");

    assert_non_null(f);
    assert_int_equal(0, json_dumpf(j, f, JSON_INDENT(2)));
    fclose(f);
    *ret_rc = fdb_against_read(path, any, &back);
    (void)unlink(path);
    return back;
}

static char *
table(const json_t *before, const json_t *now)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    assert_non_null(f);
    fdb_against_text(f, before, now);
    fclose(f);
    return text;
}

/* Returns the line that begins with label, with each run of blanks as one. */
static const char *
line(const char *text, const char *label)
{
    static char ret[512];
    size_t n = 0, i;

    while (strncmp(text, label, strlen(label)) != 0) {
        text = strchr(text, '\n');
        if (text == NULL || text[1] == '\0')
            fail_msg("no line %s", label);
        text++;
    }
    for (i = 0; text[i] != '\n' && text[i] != '\0' && n + 1 < sizeof(ret); i++)
        if (text[i] != ' ' || (n > 0 && ret[n - 1] != ' '))
            ret[n++] = text[i];
    ret[n] = '\0';
    return ret;
}

/* ---- tests --------------------------------------------------------------------- */

static void
two_files_one_table(void **state)
{
    struct fdb_result a, b;
    json_t *was, *is, *j;
    char *text;
    int rc;

    (void)state;
    make(&a, 1);
    make(&b, 2);
    /* allowed differences: the path of the same trace, the seed, user and machine */
    b.cfg.trace = "elsewhere/open.csv";
    b.cfg.seed = a.cfg.seed + 1;
    json_object_set_new(b.daemon, "commit", json_string("def5678"));
    json_object_set_new(b.daemon, "device_uuid", json_string("GPU-2"));
    j = report_of(&a);
    was = through_file(j, 0, &rc);
    assert_int_equal(0, rc);
    assert_true(json_equal(j, was));
    json_decref(j);
    is = report_of(&b);
    text = table(was, is);
    assert_null(strstr(text, "not comparable"));
    assert_null(strstr(text, "medians"));
    assert_string_equal("before now ratio", line(text, "                    "));
    assert_string_equal("TTFT p50, ms 58 29 0.500", line(text, "TTFT p50"));
    assert_string_equal("TTFT p99, ms 240 120 0.500", line(text, "TTFT p99"));
    assert_string_equal("TTFT max, ms 250 125 0.500", line(text, "TTFT max"));
    assert_string_equal("TPOT p50, ms 10 5 0.500", line(text, "TPOT p50"));
    assert_string_equal("TPOT p99, ms 12 6 0.500", line(text, "TPOT p99"));
    assert_string_equal("TPOT max, ms 13 6.500 0.500", line(text, "TPOT max"));
    assert_string_equal("ITL p50, ms 6 3 0.500", line(text, "ITL p50"));
    assert_string_equal("ITL p99, ms 80 40 0.500", line(text, "ITL p99"));
    assert_string_equal("ITL max, ms 151 75.50 0.500", line(text, "ITL max"));
    assert_string_equal("E2E max, ms 500 250 0.500", line(text, "E2E max"));
    assert_string_equal("output throughput, tokens/s 13.75 27.50 2.000",
        line(text, "output throughput"));
    assert_string_equal("goodput, requests/s 0.5000 1 2.000", line(text, "goodput"));
    assert_string_equal("share within the limits 1 1 1.000", line(text, "share"));
    assert_string_equal("requests that failed 0 0 -", line(text, "requests that failed"));
    assert_string_equal("commit before abc1234, fdd 0.2.0", line(text, "commit"));
    assert_non_null(strstr(text, "now     def5678, fdd 0.2.0\n"));
    assert_string_equal("device before cuda:0 GPU-1 of host (2 x processor)",
        line(text, "device"));
    assert_non_null(strstr(text, "now     cuda:0 GPU-2 of host (2 x processor)\n"));
    assert_string_equal("limits both TTFT 60 ms", line(text, "limits"));
    free(text);
    json_decref(was);
    json_decref(is);
    fdb_result_fini(&a);
    fdb_result_fini(&b);
}

static void
no_goodput(struct fdb_result *m)
{
    json_t *one = json_array_get(m->repeats, 0);

    json_object_set_new(one, "goodput_per_s", json_null());
    json_object_set_new(one, "attainment", json_null());
}

/* Goodput under other limits is not compared; a report without data about the daemon and
 * control characters of a file do no harm. */
static void
limits_and_unknowns(void **state)
{
    struct fdb_result a, b;
    json_t *was, *is;
    char *text;

    (void)state;
    make(&a, 1);
    make(&b, 1);
    b.cfg.slo.itl_ms = 50;
    b.cfg.slo_attain = 0.9;
    json_object_clear(a.daemon);
    json_object_set_new(a.head, "args", json_string("fdbench \033[2J"));
    was = report_of(&a);
    is = report_of(&b);
    text = table(was, is);
    assert_string_equal("goodput, requests/s 0.5000 0.5000 -", line(text, "goodput"));
    assert_string_equal("limits before TTFT 60 ms", line(text, "limits"));
    assert_non_null(strstr(text, "now     TTFT 60 ms, ITL 50 ms\n"));
    assert_string_equal("commit before not known", line(text, "commit"));
    assert_null(strchr(text, '\033'));
    free(text);
    json_decref(is);
    /* limits that only a search uses do not count */
    a.cfg.slo_attain = 0.5;
    b.cfg.slo.itl_ms = 0;
    json_decref(was);
    was = report_of(&a);
    is = report_of(&b);
    text = table(was, is);
    assert_string_equal("goodput, requests/s 0.5000 0.5000 1.000", line(text, "goodput"));
    free(text);
    json_decref(was);
    json_decref(is);
    /* no limit in either: no goodput */
    a.cfg.slo.ttft_ms = b.cfg.slo.ttft_ms = 0;
    no_goodput(&a);
    no_goodput(&b);
    was = report_of(&a);
    is = report_of(&b);
    text = table(was, is);
    assert_null(strstr(text, "goodput"));
    assert_null(strstr(text, "nan"));
    free(text);
    json_decref(was);
    json_decref(is);
    fdb_result_fini(&a);
    fdb_result_fini(&b);
}

static void
several_runs(void **state)
{
    struct fdb_result a, b;
    json_t *was, *is;
    char *text, why[256];

    (void)state;
    make(&a, 1);
    make(&b, 1);
    b.cfg.n_repeat = 2;
    fdb_add_repeat(&b, sum(2), &(struct fdb_run){ .t_begin = 1 });
    was = report_of(&a);
    is = report_of(&b);
    assert_int_equal(0, fdb_against_differs(was, is, why, sizeof(why)));
    text = table(was, is);
    assert_non_null(strstr(text, "medians of 1 and of 2 runs\n"));
    assert_string_equal("ITL p99, ms 80 60 0.750", line(text, "ITL p99"));
    free(text);
    json_decref(was);
    json_decref(is);
    fdb_result_fini(&a);
    fdb_result_fini(&b);
}

/* ---- what is refused ----------------------------------------------------------- */

static struct fdb_row other_rows[3];

static void
to_closed(struct fdb_cfg *c)
{
    c->arrival = FDB_CLOSED;
    c->trace = NULL;
    c->row = NULL;
    c->n_row = 0;
    c->concurrency = 8;
    c->in = c->out = (struct fdb_len){ 16, 16 };
}

static void
other_trace(struct fdb_result *m)
{
    memcpy(other_rows, trace_rows, sizeof(other_rows));
    other_rows[1].n_out++;
    m->cfg.row = other_rows;
}

static void
other_time(struct fdb_result *m)
{
    memcpy(other_rows, trace_rows, sizeof(other_rows));
    other_rows[2].time_s += 1e-9;
    m->cfg.row = other_rows;
}

static void
closed_loop(struct fdb_result *m)
{
    to_closed(&m->cfg);
}

static void
other_model(struct fdb_result *m)
{
    snprintf(m->model.name, sizeof(m->model.name), "qwen");
}

static void
other_files(struct fdb_result *m)
{
    m->model.digest[31]++;
}

static void
warmer(struct fdb_result *m)
{
    m->cfg.n_warm = 8;
}

static void
hotter(struct fdb_result *m)
{
    m->cfg.req.p.temperature = 0.5f;
}

static void
until_eos(struct fdb_result *m)
{
    m->cfg.req.p.flags &= ~(uint32_t)FDC_F_IGNORE_EOS;
}

static void
longer(struct fdb_result *m)
{
    m->cfg.req.p.min_new = 128;
}

static void
stops(struct fdb_result *m)
{
    m->cfg.req.list[FCT_L_STOP] = json_pack("[s]", "\n");
}

static void
hurried(struct fdb_result *m)
{
    m->cfg.req.o.ttl_total_ms = 500;
}

static void
whole_stop(struct fdb_result *m)
{
    m->cfg.req.p.flags |= FDC_F_KEEP_STOP;
}

static void
broken_off(struct fdb_result *m)
{
    json_object_set_new(json_array_get(m->repeats, 0), "requests_ok", json_integer(1));
}

static void
one_repeat_short(struct fdb_result *m)
{
    m->cfg.n_repeat = 2;
}

static void
as_text(struct fdb_result *m)
{
    m->cfg.text = 1;
}

/* Each is one change of the earlier report, and only that is named. */
static void
refused(void **state)
{
    static const struct {
        void (*change)(struct fdb_result *);
        const char *says;
    } rows[] = { { other_trace, "digest of --trace was " },
        { other_time, "digest of --trace was " },
        { closed_loop, "arrivals was closed, is trace" }, { closed_loop, "-c was 8, is 0" },
        { closed_loop, "digest of --trace was none, is " },
        { other_model, "model was qwen, is llama" },
        { other_files, "model llama was of other files (digest " },
        { warmer, "--warmup was 8, is 0" }, { hotter, "temperature was 0.5000, is " },
        { longer, "min_tokens was 128, is none" }, { stops, "stop was [\"\\n\"], is none" },
        { hurried, "timeout_ms was 500" }, { whole_stop, "keep_stop was true, is none" },
        { until_eos, "eos was true, is false" }, { as_text, "--text was true, is false" },
        { broken_off, "the earlier run was broken off after 1 of 3 requests" },
        { one_repeat_short, "the earlier run was broken off after 1 of 2 repeats" } };
    char why[1024], shown[1100], *text;
    struct fdb_result a, b;
    json_t *was, *is;
    size_t i;
    unsigned n;

    (void)state;
    make(&b, 1);
    json_array_clear(b.repeats); /* as before the run */
    is = report_of(&b);
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        make(&a, 1);
        rows[i].change(&a);
        was = report_of(&a);
        n = fdb_against_differs(was, is, why, sizeof(why));
        assert_non_null(strstr(why, rows[i].says));
        assert_int_equal(rows[i].change == closed_loop ? 3 : 1, n);
        text = table(was, is);
        snprintf(shown, sizeof(shown), "not comparable: %s", why);
        assert_non_null(strstr(text, shown));
        free(text);
        json_decref(was);
        fdb_result_fini(&a);
        fct_req_fini(&a.cfg.req);
    }
    json_decref(is);
    fdb_result_fini(&b);
}

/* Differences in options that only a closed or a random load has. */
static void
refused_loads(void **state)
{
    static const char *const says[] = { "-c was 8, is 16", "--input was 16, is 16:64",
        "--output was 16, is 24", "--prefix-len was 0, is 4", "--prefixes was 1, is 2",
        "--turns was 1, is 3", "-n was 3, is 4", "--duration was 0, is 2.500",
        "--rate was 0, is 7", "--rate-from was 0, is 2", "--burstiness was 1, is 3" };
    struct fdb_result a, b;
    json_t *was, *is;
    char why[1024], cut[20];
    size_t i;

    (void)state;
    make(&a, 1);
    to_closed(&a.cfg);
    was = report_of(&a);
    make(&b, 1);
    to_closed(&b.cfg);
    b.cfg.concurrency = 16;
    b.cfg.in = (struct fdb_len){ 16, 64 };
    b.cfg.out.lo = b.cfg.out.hi = 24;
    b.cfg.prefix_len = 4;
    b.cfg.n_prefix = 2;
    b.cfg.n_turn = 3;
    b.cfg.n_request = 4;
    b.cfg.duration_s = 2.5;
    b.cfg.rate = 7;
    b.cfg.rate_from = 2;
    b.cfg.burstiness = 3;
    is = report_of(&b);
    assert_int_equal(sizeof(says) / sizeof(says[0]),
        fdb_against_differs(was, is, why, sizeof(why)));
    for (i = 0; i < sizeof(says) / sizeof(says[0]); i++)
        assert_non_null(strstr(why, says[i]));
    /* also counted if they do not fit */
    assert_int_equal(sizeof(says) / sizeof(says[0]),
        fdb_against_differs(was, is, cut, sizeof(cut)));
    assert_true(strlen(cut) == sizeof(cut) - 1 && strncmp(cut, why, strlen(cut)) == 0);
    json_decref(was);
    json_decref(is);
    fdb_result_fini(&a);
    fdb_result_fini(&b);
}

static void
not_read(json_t *j, int any, const char *says)
{
    const char *text;
    json_t *back;
    int rc;

    listen_begin();
    back = through_file(j, any, &rc);
    text = listen_end();
    assert_int_equal(EX_DATAERR, rc);
    assert_null(back);
    assert_non_null(strstr(text, says));
}

static void
wrong_files(void **state)
{
    struct fdb_result a;
    json_t *j, *back;
    const char *text;
    int rc;

    (void)state;
    make(&a, 1);
    j = report_of(&a);
    json_object_set_new(j, "format", json_integer(FDB_FORMAT + 1));
    not_read(j, 0, "of another version of fdbench");
    back = through_file(j, 1, &rc);
    assert_int_equal(0, rc);
    json_decref(back);
    json_object_del(j, "format");
    not_read(j, 0, "report format 0 instead of");
    json_object_set_new(j, "command", json_string("latency"));
    not_read(j, 1, "not what fdbench serve --json writes");
    json_object_set_new(j, "command", json_string("serve"));
    json_object_del(j, "across_repeats");
    not_read(j, 1, "not what fdbench serve --json writes");
    json_decref(j);
    j = json_array();
    not_read(j, 1, "not what fdbench serve --json writes");
    json_decref(j);
    listen_begin();
    rc = fdb_against_read("/dev/null", 1, &back);
    text = listen_end();
    assert_int_equal(EX_DATAERR, rc);
    assert_non_null(strstr(text, "--against /dev/null:"));
    listen_begin();
    rc = fdb_against_read("/nonexistent/before.json", 0, &back);
    (void)listen_end();
    assert_int_equal(EX_NOINPUT, rc);
    fdb_result_fini(&a);
}

/* A file with other contents, allowed by --against-any, gives a table of dashes. */
static void
empty_report(void **state)
{
    struct fdb_result a;
    json_t *was = json_pack("{s:s, s:{s:s}, s:{s:i, s:{s:s}}, s:i, s:s}", "command",
               "serve", "config", "limits", "none", "across_repeats", "ttft_ms", 3,
               "tpot_ms", "p50", "x", "repeats", 7, "model", "llama"),
           *is;
    char *text;

    (void)state;
    make(&a, 1);
    is = report_of(&a);
    text = table(was, is);
    assert_string_equal("TTFT p50, ms - 58 -", line(text, "TTFT p50"));
    assert_string_equal("TPOT p50, ms - 10 -", line(text, "TPOT p50"));
    assert_non_null(strstr(text, "not comparable: model was none, is llama"));
    free(text);
    text = table(is, was);
    assert_string_equal("ITL max, ms 151 - -", line(text, "ITL max"));
    free(text);
    json_decref(was);
    json_decref(is);
    fdb_result_fini(&a);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_files_one_table),
        cmocka_unit_test(limits_and_unknowns),
        cmocka_unit_test(several_runs),
        cmocka_unit_test(refused),
        cmocka_unit_test(refused_loads),
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(empty_report),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
