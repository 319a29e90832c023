/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdbench: percentiles, the requests of a run, its log and summary, the search for a
 * limit, options and files. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/fdbench_fixture.h"

/* ---- percentiles --------------------------------------------------------- */

static void
test_percentile(void **state)
{
    static const double v[] = { 1, 2, 3, 4 }, one[] = { 7 }, two[] = { 0, 10 };
    double w[] = { 4, 1, 3, 2 };
    json_t *d;

    (void)state;
    assert_true(fdb_percentile(v, 4, 0) == 1);
    assert_true(fdb_percentile(v, 4, 25) == 1.75);
    assert_true(fdb_percentile(v, 4, 50) == 2.5);
    assert_true(fdb_percentile(v, 4, 100) == 4);
    assert_true(fdb_percentile(one, 1, 99) == 7);
    assert_true(fdb_percentile(two, 2, 90) == 9);
    assert_true(isnan(fdb_percentile(v, 0, 50)));
    d = fdb_dist(w, 4);
    assert_true(N(d, "n") == 4);
    assert_true(N(d, "mean") == 2.5 && N(d, "min") == 1 && N(d, "p50") == 2.5);
    assert_true(N(d, "max") == 4 && fabs(N(d, "std") - sqrt(1.25)) < 1e-15);
    json_decref(d);
    d = fdb_dist(w, 0);
    assert_true(N(d, "n") == 0 && isnan(N(d, "mean")) && isnan(N(d, "std")) &&
        isnan(N(d, "p99")));
    json_decref(d);
}

/* Percentiles of arrays of many sizes and kinds, as numpy computes them. */
static const char numpy_program[] =
    "import sys, struct\n"
    "try: import numpy as np\n"
    "except ImportError: sys.exit(3)\n"
    "b = open(sys.argv[1], 'rb').read()\n"
    "while b:\n"
    "    n = struct.unpack('<Q', b[:8])[0]\n"
    "    v = np.frombuffer(b[8:8 + 8 * n], '<f8')\n"
    "    b = b[8 + 8 * n:]\n"
    "    print(' '.join(float(np.percentile(v, p)).hex()"
    " for p in (50, 90, 95, 99, 99.9, 100)))\n";

static int
cmp_dbl(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void
make_values(double *v, uint64_t n, uint64_t seed)
{
    uint64_t i;

    for (i = 0; i < n; i++)
        v[i] = (double)(fdb_mix(seed, i) % 1000000007u) / 1e6;
}

static void
test_numpy(void **state)
{
    static const uint64_t sizes[] = { 1, 2, 3, 5, 10, 11, 99, 100, 101, 640, 1000, 1001,
        4097, 20000 };
    static double v[20000];
    char path[] = "/tmp/u_fdbench.XXXXXX", prog[] = "/tmp/u_fdbench.XXXXXX", cmd[128];
    FILE *f = fdopen(mkstemp(path), "w");
    size_t i, k, n_line = 0;
    int rc;

    (void)state;
    assert_non_null(f);
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        make_values(v, sizes[i], i);
        fwrite(&sizes[i], 8, 1, f);
        fwrite(v, 8, sizes[i], f);
    }
    fclose(f);
    f = fdopen(mkstemp(prog), "w");
    assert_non_null(f);
    fputs(numpy_program, f);
    fclose(f);
    snprintf(cmd, sizeof(cmd), "python3 %s %s 2>/dev/null", prog, path);
    f = popen(cmd, "r");
    assert_non_null(f);
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char word[FDB_N_PCT][64];

        if (fscanf(f, "%63s %63s %63s %63s %63s %63s", word[0], word[1], word[2], word[3],
                word[4], word[5]) != 6)
            break;
        n_line++;
        make_values(v, sizes[i], i);
        qsort(v, sizes[i], sizeof(*v), cmp_dbl);
        for (k = 0; k < FDB_N_PCT; k++)
            assert_true(fdb_percentile(v, sizes[i], fdb_pct[k]) == strtod(word[k], NULL));
    }
    rc = pclose(f);
    unlink(path);
    unlink(prog);
    /* No python3, or no numpy. */
    if (n_line == 0 && rc != 0)
        skip();
    assert_int_equal(n_line, sizeof(sizes) / sizeof(sizes[0]));
}

/* ---- arrivals and lengths ------------------------------------------------ */

/* Mean of the gaps in seconds, and their coefficient of variation. */
static void
gaps_of(enum fdb_arrival arrival, double burst, double *ret_mean, double *ret_cv)
{
    enum { N = 40000 };
    double sum = 0, squares = 0, gap;
    struct fdb_cfg c;
    struct fdb_work *w;
    struct fdb_ask a;
    uint64_t last = 0;
    size_t n = 0;

    cfg_of(&c, arrival, 100, N);
    c.burstiness = burst;
    assert_int_equal(fdb_work_new(&c, &model, 5, &w), 0);
    while (fdb_work_next(w, &a)) {
        assert_true(a.due_ns >= last);
        assert_true(n > 0 || a.due_ns == 0);
        gap = (double)(a.due_ns - last) / 1e9;
        last = a.due_ns;
        sum += gap;
        squares += gap * gap;
        n++;
    }
    free(w);
    assert_int_equal(n, N);
    *ret_mean = sum / (N - 1);
    *ret_cv = sqrt(fmax(squares / (N - 1) - *ret_mean * *ret_mean, 0)) / *ret_mean;
}

static void
test_arrivals(void **state)
{
    static const struct {
        enum fdb_arrival kind;
        double burst, cv, tol;
    } rows[] = { { FDB_CONSTANT, 1, 0, 0.001 }, { FDB_POISSON, 1, 1, 0.05 },
        { FDB_GAMMA, 1, 1, 0.05 }, { FDB_GAMMA, 0.25, 2, 0.15 },
        { FDB_GAMMA, 4, 0.5, 0.03 } };
    double mean, cv;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        gaps_of(rows[i].kind, rows[i].burst, &mean, &cv);
        assert_true(fabs(mean - 0.01) < 0.0004);
        assert_true(fabs(cv - rows[i].cv) < rows[i].tol);
    }
}

static void
test_ramp(void **state)
{
    uint32_t early = 0, late = 0, after = 0, before = 0;
    struct fdb_cfg c;
    struct fdb_work *w;
    struct fdb_ask a;

    (void)state;
    cfg_of(&c, FDB_RAMP, 300, 0);
    c.rate_from = 100;
    c.duration_s = 10;
    assert_int_equal(fdb_work_new(&c, &model, 5, &w), 0);
    while (fdb_work_next(w, &a) && a.due_ns < 12000000000u) {
        before = a.conversation;
        if (a.due_ns < 5000000000u)
            early++;
        else if (a.due_ns < 10000000000u)
            late++;
        else
            after++;
    }
    /* 100/s, growing by 20/s each second: 750, 1250, then 600 at 300/s. */
    assert_in_range(early, 660, 840);
    assert_in_range(late, 1130, 1370);
    assert_in_range(after, 510, 690);
    assert_int_equal(before + 1, early + late + after);
    free(w);
}

static void
test_lengths(void **state)
{
    uint32_t in[10] = { 0 }, out[7] = { 0 }, i, other = 0;
    struct fdb_ask a, b, d;
    struct fdb_work *w, *same, *fresh;
    struct fdb_cfg c;

    (void)state;
    cfg_of(&c, FDB_CLOSED, 0, 3000);
    assert_int_equal(fdb_work_new(&c, &model, 1, &w), 0);
    assert_int_equal(fdb_work_new(&c, &model, 1, &same), 0);
    assert_int_equal(fdb_work_new(&c, &model, 2, &fresh), 0);
    for (i = 0; i < 3000; i++) {
        assert_int_equal(fdb_work_next(w, &a), 1);
        assert_int_equal(fdb_work_next(same, &b), 1);
        assert_int_equal(fdb_work_next(fresh, &d), 1);
        assert_memory_equal(&a, &b, sizeof(a));
        other += a.n_new != d.n_new;
        assert_int_equal(a.conversation, i);
        assert_true(a.n_new >= 3 && a.n_new <= 9 && a.max_new >= 2 && a.max_new <= 6);
        in[a.n_new]++;
        out[a.max_new]++;
    }
    assert_int_equal(fdb_work_next(w, &a), 0);
    assert_true(other > 1000);
    for (i = 3; i <= 9; i++)
        assert_in_range(in[i], 3000 / 7 - 120, 3000 / 7 + 120);
    for (i = 2; i <= 6; i++)
        assert_in_range(out[i], 3000 / 5 - 120, 3000 / 5 + 120);
    free(w);
    free(same);
    free(fresh);
}

/* ---- prompts ------------------------------------------------------------- */

static void
test_prefixes(void **state)
{
    struct fct_buf p[4];
    struct fdb_cfg c;
    struct fdb_work *w;
    struct fdb_ask a;
    size_t i, k;

    (void)state;
    memset(p, 0, sizeof(p));
    cfg_of(&c, FDB_CLOSED, 0, 4);
    c.prefix_len = 200;
    c.n_prefix = 2;
    assert_int_equal(fdb_work_new(&c, &model, 1, &w), 0);
    for (i = 0; i < 4; i++) {
        assert_int_equal(fdb_work_next(w, &a), 1);
        assert_int_equal(fdb_work_prompt(w, &a, &p[i]), 0);
        assert_int_equal(N_IDS(p[i]), 200 + a.n_new);
        for (k = 0; k < N_IDS(p[i]); k++)
            assert_true(IDS(p[i])[k] < VOCAB && IDS(p[i])[k] != BOS && IDS(p[i])[k] != EOS);
    }
    assert_memory_equal(IDS(p[0]), IDS(p[2]), 800);
    assert_memory_equal(IDS(p[1]), IDS(p[3]), 800);
    assert_memory_not_equal(IDS(p[0]), IDS(p[1]), 800);
    assert_memory_not_equal(IDS(p[0]) + 200, IDS(p[2]) + 200, 12);
    for (i = 0; i < 4; i++)
        free(p[i].p);
    free(w);
}

static void
test_turns(void **state)
{
    static const uint32_t answer[] = { 1, 2, 3 };
    struct fct_buf p = { .n = 0 };
    uint32_t n_request = 0, before[600], n_before;
    struct fdb_cfg c;
    struct fdb_work *w;
    struct fdb_ask a;

    (void)state;
    cfg_of(&c, FDB_CLOSED, 0, 8);
    c.n_turn = 3;
    c.prefix_len = 4;
    assert_int_equal(fdb_work_new(&c, &model, 1, &w), 0);
    while (fdb_work_next(w, &a)) {
        assert_int_equal(a.turn, 0);
        assert_int_equal(fdb_work_prompt(w, &a, &p), 0);
        assert_int_equal(N_IDS(p), 4 + a.n_new);
        for (n_request++; a.more; n_request++) {
            assert_int_equal(fct_buf_add(&p, answer, sizeof(answer)), 0);
            n_before = (uint32_t)N_IDS(p);
            memcpy(before, IDS(p), n_before * sizeof(*before));
            fdb_work_turn(w, &a);
            assert_int_equal(a.n_prefix, 0);
            assert_int_equal(fdb_work_prompt(w, &a, &p), 0);
            assert_int_equal(N_IDS(p), n_before + a.n_new);
            assert_memory_equal(IDS(p), before, n_before * sizeof(*before));
        }
    }
    /* Three, three and two turns. */
    assert_int_equal(n_request, 8);
    free(p.p);
    free(w);
}

static void
test_text(void **state)
{
    static const char words[] = "h\xc3\xa9llo w\xc3\xb6rld \xe2\x82\xac\xf0\x9f\x98\x80 ";
    struct fct_buf p = { .n = 0 };
    struct fdb_cfg c;
    struct fdb_work *w;
    struct fdb_ask a;
    size_t i;

    (void)state;
    cfg_of(&c, FDB_CLOSED, 0, 200);
    c.text = 1;
    c.token_bytes = 3.5;
    assert_int_equal(fdb_cfg_read(&c), 0);
    assert_true(c.n_words > 4096);
    for (i = 0; i < 2; i++) {
        assert_int_equal(fdb_work_new(&c, &model, 1, &w), 0);
        while (fdb_work_next(w, &a)) {
            assert_int_equal(fdb_work_prompt(w, &a, &p), 0);
            assert_int_equal(fct_check_utf8("a prompt", p.p, p.n), 0);
            /* Text cut in the middle of a character is completed. */
            assert_true((double)p.n >= a.n_new * 3.5);
            assert_true((double)p.n <= a.n_new * 3.5 + 12);
        }
        free(w);
        fdb_cfg_fini(&c);
        c.words = i == 0 ? strdup(words) : NULL;
        c.n_words = strlen(words);
        c.dataset = "words";
    }
    free(p.p);
}

/* ---- log and summary ----------------------------------------------------- */

#define T(ms) ((uint64_t)(ms)*1000000u)

static void
add(struct fdb_log *log, uint32_t repeat, int warm, int code, const uint64_t *t, uint32_t n)
{
    struct fdb_chunk c[8];
    struct fdb_rec r = { .index = (uint32_t)log->n_rec,
        .repeat = repeat,
        .warm = (uint8_t)warm,
        .code = code,
        .n_prompt = 10,
        .n_cached = 4,
        .n_out = n,
        .t_due = t[0],
        .t_send = t[0],
        .t_end = t[n + 1],
        .queue_ns = T(1),
        .n_chunk = n };
    uint32_t i;

    for (i = 0; i < n; i++)
        c[i] = (struct fdb_chunk){ .t_ns = t[i + 1], .n_tok = 1 };
    r.t_first = n > 0 ? t[1] : 0;
    assert_int_equal(fdb_log_rec(log, &r, c), 0);
}

static void
fill_log(struct fdb_log *log)
{
    const uint64_t a[] = { T(100), T(120), T(130), T(150), T(150) };
    const uint64_t b[] = { T(100), T(140), T(141) };
    const uint64_t bad[] = { T(100), T(101) };

    add(log, 0, 1, 0, b, 1);
    add(log, 0, 0, 0, a, 3);
    add(log, 0, 0, 0, b, 1);
    add(log, 0, 0, FDC_E_QUEUE_FULL, bad, 0);
    add(log, 0, 0, FDC_E_CANCELLED, bad, 0);
    add(log, 0, 0, FDC_E_CANCELLED, bad, 0);
    add(log, 1, 0, 0, a, 3);
}

static void
test_summary(void **state)
{
    struct fdb_run run = { .t_begin = T(100),
        .t_end = T(600),
        .cpu_ns = T(50),
        .late_ms = 3,
        .max_concurrent_requests = 5,
        .n_held = 2 };
    struct fdb_slo slo = { .ttft_ms = 30 };
    struct fdb_log log = { .n_rec = 0 };
    const json_t *d;
    json_t *s;

    (void)state;
    fill_log(&log);
    s = fdb_summarize(&log, 0, &run, &slo);
    assert_true(N(s, "requests_ok") == 2 && N(s, "requests_failed") == 3);
    d = json_object_get(s, "errors");
    assert_int_equal(json_object_size(d), 2);
    assert_true(N(d, "E_CANCELLED") == 2 && N(d, "E_QUEUE_FULL") == 1);
    assert_int_equal(fdb_commonest(s), FDC_E_CANCELLED);
    assert_true(N(s, "prompt_tokens") == 20 && N(s, "cached_tokens") == 8 &&
        N(s, "output_tokens") == 4);
    assert_true(N(s, "duration_s") == 0.5 && N(s, "requests_per_s") == 4 &&
        N(s, "output_tokens_per_s") == 8 && N(s, "total_tokens_per_s") == 48);
    assert_true(fabs(N(s, "fdbench_cpu_share") - 0.1) < 1e-12 && N(s, "late_ms") == 3 &&
        N(s, "max_concurrent_requests") == 5 && N(s, "sends_delayed") == 2);
    d = json_object_get(s, "ttft_ms");
    assert_true(N(d, "n") == 2 && N(d, "mean") == 30 && N(d, "min") == 20);
    /* An answer of one token has no time per output token. */
    d = json_object_get(s, "tpot_ms");
    assert_true(N(d, "n") == 1 && N(d, "mean") == 15);
    d = json_object_get(s, "itl_ms");
    assert_true(
        N(d, "n") == 2 && N(d, "min") == 10 && N(d, "max") == 20 && N(d, "mean") == 15);
    d = json_object_get(s, "e2e_ms");
    assert_true(N(d, "n") == 2 && N(d, "min") == 41 && N(d, "max") == 50);
    assert_true(fdb_figure(s, "queue_ms", "mean", NULL) == 1 &&
        fdb_figure(s, "prompt_len", "mean", NULL) == 10 &&
        fdb_figure(s, "output_len", "mean", NULL) == 2);
    /* One of five is within the limits: 20 ms, not 40, and three failed. */
    assert_true(N(s, "goodput_per_s") == 2 && N(s, "attainment") == 0.2);
    json_decref(s);
    s = fdb_summarize(&log, 1, &run, &(struct fdb_slo){ .e2e_ms = 50 });
    assert_true(N(s, "requests_ok") == 1 && N(s, "attainment") == 1);
    assert_int_equal(fdb_commonest(s), FDC_OK);
    json_decref(s);
    s = fdb_summarize(&log, 2, &run, &(struct fdb_slo){ 0, 0, 0, 0 });
    assert_true(N(s, "requests_ok") == 0 && isnan(N(s, "goodput_per_s")) &&
        isnan(N(s, "attainment")) && isnan(fdb_figure(s, "ttft_ms", "mean", NULL)));
    json_decref(s);
    fdb_log_fini(&log);
}

static void
test_within(void **state)
{
    static const struct {
        struct fdb_slo slo;
        int want;
    } rows[] = { { { 20, 15, 20, 50 }, 1 }, { { 19.9, 0, 0, 0 }, 0 },
        { { 0, 14.9, 0, 0 }, 0 }, { { 0, 0, 19.9, 0 }, 0 }, { { 0, 0, 0, 49.9 }, 0 } };
    struct fdb_log log = { .n_rec = 0 };
    size_t i;

    (void)state;
    fill_log(&log);
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(fdb_within(&log, &log.rec[1], &rows[i].slo), rows[i].want);
    assert_int_equal(fdb_within(&log, &log.rec[2],
                         &(struct fdb_slo){ .tpot_ms = 0.1, .itl_ms = 0.1 }),
        1);
    assert_int_equal(fdb_within(&log, &log.rec[3], &(struct fdb_slo){ .e2e_ms = 1000 }), 0);
    fdb_log_fini(&log);
}

/* ---- search -------------------------------------------------------------- */

/* Checks n requests at 10 ms intervals, the last of which is sent late_ms late. */
static int
falls_behind(uint32_t n, double late_ms, uint32_t turn)
{
    struct fdb_log log = { .n_rec = 0 };
    uint32_t i;
    int rc;

    for (i = 0; i < n; i++) {
        struct fdb_rec r = { .index = i, .t_due = 1000000000u + 10000000u * (uint64_t)i };

        r.t_send = r.t_due + (i + 1 == n ? (uint64_t)(late_ms * 1e6) : 1000);
        r.turn = i + 1 == n ? turn : 0;
        assert_int_equal(fdb_log_rec(&log, &r, NULL), 0);
    }
    /* other repeats and the warm-up do not count */
    assert_int_equal(
        fdb_log_rec(&log,
            &(struct fdb_rec){ .repeat = 1, .t_due = 1, .t_send = UINT64_C(1) << 40 }, NULL),
        0);
    assert_int_equal(fdb_log_rec(&log,
                         &(struct fdb_rec){ .warm = 1,
                             .t_due = UINT64_C(1) << 39,
                             .t_send = UINT64_C(1) << 40 },
                         NULL),
        0);
    rc = fdb_fell_behind(&log, 0);
    fdb_log_fini(&log);
    return rc;
}

static void
test_behind(void **state)
{
    struct fdb_log none = { .n_rec = 0 };

    (void)state;
    assert_false(fdb_fell_behind(&none, 0));
    assert_false(falls_behind(101, 49, 0));
    assert_true(falls_behind(101, 51, 0));
    assert_false(falls_behind(101, 51, 1));
    /* a short moment does not count, however short the run */
    assert_false(falls_behind(2, 9, 0));
    assert_true(falls_behind(2, 11, 0));
}

struct world {
    double limit;
    int whole, n, fail_at;
};

static int
try_world(void *arg, double load, int *ret_within)
{
    struct world *w = arg;

    assert_true(!w->whole || load == floor(load));
    *ret_within = load <= w->limit;
    return ++w->n == w->fail_at ? FCT_EX_INT : 0;
}

static void
test_search(void **state)
{
    struct world w = { .n = 0 };
    double found, limit;

    (void)state;
    for (limit = 1; limit <= 128; limit++) {
        w = (struct world){ .limit = limit, .whole = 1 };
        assert_int_equal(fdb_search(7, 1, 128, 1, try_world, &w, &found), 0);
        assert_true(found == limit);
        assert_true(w.n <= 14);
    }
    w = (struct world){ .limit = 0.5 };
    assert_int_equal(fdb_search(8, 1, 128, 1, try_world, &w, &found), 0);
    assert_true(found == 0);
    for (limit = 0.02; limit < 5e5; limit *= 3.7) {
        w = (struct world){ .limit = limit };
        assert_int_equal(fdb_search(10, 0.01, 1e6, 0, try_world, &w, &found), 0);
        assert_true(found <= limit && found * 1.051 >= limit);
    }
    w = (struct world){ .limit = 1e9 };
    assert_int_equal(fdb_search(10, 0.01, 1e6, 0, try_world, &w, &found), 0);
    assert_true(found == 1e6);
    w = (struct world){ .limit = 20, .fail_at = 3 };
    assert_int_equal(fdb_search(8, 1, 128, 1, try_world, &w, &found), FCT_EX_INT);
    assert_int_equal(w.n, 3);
}

/* ---- options and files --------------------------------------------------- */

static void
test_options(void **state)
{
    struct fdb_len len = { 0, 0 };
    uint32_t u = 0;
    double d = 0;

    (void)state;
    assert_int_equal(fdb_opt_len("--input", "12", &len), 0);
    assert_true(len.lo == 12 && len.hi == 12);
    assert_int_equal(fdb_opt_len("--input", "1:100", &len), 0);
    assert_true(len.lo == 1 && len.hi == 100);
    SAYS(fdb_opt_len("--input", "9:3", &len), 64,
        "fdctl: --input 9:3: must be N or "
        "LO:HI, whole numbers from 1 to 16777216, LO not above HI\n");
    listen_begin();
    assert_int_equal(fdb_opt_len("--input", "0", &len), 64);
    assert_int_equal(fdb_opt_len("--input", "", &len), 64);
    assert_int_equal(fdb_opt_len("--input", ":5", &len), 64);
    assert_int_equal(fdb_opt_len("--input", "5:", &len), 64);
    assert_int_equal(fdb_opt_len("--input", "5:6:7", &len), 64);
    assert_int_equal(fdb_opt_len("--input", "1:16777217", &len), 64);
    assert_int_equal(fdb_opt_len("--input", "99999999999999999999", &len), 64);
    assert_int_equal(fdb_opt_len("--input", "-3", &len), 64);
    (void)listen_end();
    assert_int_equal(fct_u32("-c", "7", 1, 7, &u), 0);
    assert_int_equal(u, 7);
    SAYS(fct_u32("-c", "8", 1, 7, &u), 64,
        "fdctl: -c 8: must be a whole number from 1 to 7\n");
    SAYS(fct_u32("-c", "-1", 1, 7, &u), 64,
        "fdctl: -c -1: must be a whole number from 1 to 7\n");
    SAYS(fct_dbl_in("--rate", "nan", 0.01, 10, &d), 64,
        "fdctl: --rate nan: must be a number from 0.01 to 10\n");
    assert_int_equal(u, 7);
}

static char trace_path[] = "/tmp/u_fdbench_trace.XXXXXX";

static int
read_trace(const char *text, struct fdb_cfg *c)
{
    FILE *f = fopen(trace_path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    fdb_cfg_init(c);
    c->trace = trace_path;
    return fdb_cfg_read(c);
}

#define TRACE_SAYS(text, want) \
    do { \
        char buf_[256]; \
        snprintf(buf_, sizeof(buf_), "fdctl: %s%s\n", trace_path, want); \
        SAYS(read_trace(text, &c), 65, buf_); \
        fdb_cfg_fini(&c); \
    } while (0)

static void
test_trace(void **state)
{
    struct fdb_cfg c;
    struct fdb_work *w;
    struct fdb_ask a;
    char want[160];
    int fd = mkstemp(trace_path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(read_trace("time_s,prompt_tokens,output_tokens\r\n# why\n\n"
                                "5,10,20\r\n 5.5 , 7 , 3\n6,1,1",
                         &c),
        0);
    assert_int_equal(c.n_row, 3);
    c.arrival = FDB_TRACE;
    c.prefix_len = 8;
    assert_int_equal(fdb_work_new(&c, &model, 1, &w), 0);
    assert_int_equal(fdb_work_next(w, &a), 1);
    assert_true(a.due_ns == 0 && a.n_prefix == 8 && a.n_new == 2 && a.max_new == 20);
    assert_int_equal(fdb_work_next(w, &a), 1);
    assert_true(a.due_ns == 500000000u && a.n_prefix == 7 && a.n_new == 0);
    assert_int_equal(fdb_work_next(w, &a), 1);
    assert_int_equal(fdb_work_next(w, &a), 0);
    free(w);
    fdb_cfg_fini(&c);
    TRACE_SAYS("", ": no requests; a line is time_s,prompt_tokens,output_tokens");
    TRACE_SAYS("0,1,2\n\n1,2\n",
        ":3: 2 fields; a line is time_s,prompt_tokens,output_tokens");
    TRACE_SAYS("0,1,2,3\n",
        ":1: more than 3 fields; a line is time_s,prompt_tokens,output_tokens");
    TRACE_SAYS("2,1,2\n1,1,2\n", ":2: time_s \"1\": is before the line above (2)");
    TRACE_SAYS("-1,1,2\n",
        ":1: time_s \"-1\": must be a number of seconds from 0 to 31536000");
    TRACE_SAYS("0,0,2\n",
        ":1: prompt_tokens \"0\": must be a whole number from 1 to 16777216");
    TRACE_SAYS("0,1,2x\n",
        ":1: output_tokens \"2x\": must be a whole number from 1 to 16777216");
    assert_int_equal(read_trace("0,10,20\n1,99990,11\n", &c), 0);
    c.arrival = FDB_TRACE;
    snprintf(want, sizeof(want),
        "fdctl: %s:2: 99990 prompt and 11 output tokens: the "
        "model takes 100000 together\n",
        trace_path);
    SAYS(fdb_work_new(&c, &model, 1, &w), 65, want);
    fdb_cfg_fini(&c);
    unlink(trace_path);
}

static void
test_too_long(void **state)
{
    struct fdb_cfg c;
    struct fdb_work *w;

    (void)state;
    cfg_of(&c, FDB_CLOSED, 0, 4);
    c.prefix_len = 99980;
    c.n_turn = 2;
    SAYS(fdb_work_new(&c, &model, 1, &w), 64,
        "fdctl: --prefix-len 99980, then --turns 2 "
        "of --input 9 and --output 6: 100010 tokens; the model takes 100000\n");
    c.n_turn = 1;
    assert_int_equal(fdb_work_new(&c, &model, 1, &w), 0);
    free(w);
}

int
main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_percentile),
        cmocka_unit_test(test_numpy), cmocka_unit_test(test_arrivals),
        cmocka_unit_test(test_ramp), cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_prefixes), cmocka_unit_test(test_turns),
        cmocka_unit_test(test_text), cmocka_unit_test(test_summary),
        cmocka_unit_test(test_within), cmocka_unit_test(test_behind),
        cmocka_unit_test(test_search), cmocka_unit_test(test_options),
        cmocka_unit_test(test_trace), cmocka_unit_test(test_too_long) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
