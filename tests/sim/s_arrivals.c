/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Serving in virtual time (arrivals.h): results no worse than those in arrivals.ref; the
 * just-in-time pick and the time target have their effect; nothing starves or hangs if
 * durations or the clock are wrong. With options: a single run (--help).
 */
#include "config.h"

#include "tests/sim/arrivals.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED    1
#define WORSE   1.10 /* times the reference value: too much */
#define N_SHORT 2000
#define N_LONG  100000

static const struct {
    const char *name;
    enum arr_kind kind;
    double rate;
    int32_t share;
} cases[] = {
    /* share: fraction of the requests, as those cases take longer */
    { "poisson-8", ARR_POISSON, 8, 1 }, { "poisson-16", ARR_POISSON, 16, 1 },
    { "burst-8", ARR_BURST, 8, 4 }, { "long-4", ARR_LONG, 4, 4 },
    { "tail-6", ARR_TAIL, 6, 4 }, { "greedy-8", ARR_GREEDY, 8, 4 }
};
#define N_CASE (sizeof(cases) / sizeof(cases[0]))

static struct par_set *
params(const char *name, const char *value)
{
    struct par_set *ps = par_new();
    char err[512];

    assert_non_null(ps);
    if (name != NULL && par_set_text(ps, name, value, PAR_FROM_SET, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    return ps;
}

static struct arr_cfg
config(const struct par_set *ps)
{
    struct arr_cfg c = { .par = par_get(ps), .seed = SEED, .ttft_ms = 200, .itl_ms = 60 };

    arr_dev_h200_8b(&c.dev);
    return c;
}

/* Runs a load; every request must get all of its tokens. */
static struct arr_sum
run(const struct arr_cfg *c, const struct arr_load *l)
{
    struct arr_sum s;

    arr_run(c, l, &s);
    assert_int_equal(s.n_ok, l->n);
    return s;
}

static struct arr_sum
run_poisson(const struct arr_cfg *c, double rate, int32_t n)
{
    struct arr_load l = arr_load_make(ARR_POISSON, rate, n, SEED);
    struct arr_sum s = run(c, &l);

    arr_load_fini(&l);
    return s;
}

/* ---- the device ---------------------------------------------------------------------- */

static void
t_device_is_as_measured(void **state)
{
    static const struct {
        struct cost_step s;
        double ms;
    } m[] = { { { 1, 1024, 0 }, 3.83 }, { { 8, 8 * 1024, 0 }, 4.16 },
        { { 32, 32 * 1024, 0 }, 5.08 }, { { 64, 64 * 1500, 0 }, 7.39 },
        { { 128, 128 * 1024, 0 }, 8.60 }, { { 256, 256 * 1024, 0 }, 14.18 },
        { { 128, 0, 128 * 64 }, 4.78 }, { { 2048, 0, 2048ll * 1024 }, 46.1 },
        { { 8192, 0, 8192ll * 4096 }, 201.7 } };
    struct arr_dev d;

    (void)state;
    arr_dev_h200_8b(&d);
    d.scale = 1;
    for (size_t i = 0; i < sizeof(m) / sizeof(m[0]); i++) {
        double r = arr_dev_ns(&d, &m[i].s, m[i].s.n_tok) / 1e6 / m[i].ms;

        if (r < 0.97 || r > 1.03)
            fail_msg("%d tokens take %.3f of what was measured", m[i].s.n_tok, r);
    }
}

/* ---- figures --------------------------------------------------------------------------- */

static int32_t
case_n(size_t i, int is_long)
{
    return (is_long ? N_LONG : N_SHORT) / cases[i].share;
}

static struct arr_sum
run_case(size_t i, int is_long)
{
    struct par_set *ps = params(NULL, NULL);
    struct arr_cfg c = config(ps);
    struct arr_load l =
        arr_load_make(cases[i].kind, cases[i].rate, case_n(i, is_long), SEED);
    struct arr_sum s;

    if (cases[i].kind == ARR_LONG)
        c.dev.max_len = 131072;
    s = run(&c, &l);
    arr_load_fini(&l);
    par_free(ps);
    return s;
}

static void
ref_path(char *ret, size_t bytes)
{
    const char *top = getenv("FDD_SRC"), *src = top != NULL ? top : getenv("srcdir");

    (void)snprintf(ret, bytes, "%s/tests/sim/arrivals.ref", src != NULL ? src : ".");
}

/* Reads the reference values of a case. */
static void
ref_of(const char *name, int32_t n, double *ret_ttft, double *ret_itl)
{
    char path[4096], line[256], word[32];
    FILE *f;
    int at;

    ref_path(path, sizeof(path));
    f = fopen(path, "re");
    if (f == NULL)
        fail_msg("%s cannot be read", path);
    while (fgets(line, sizeof(line), f) != NULL)
        if (sscanf(line, "%31s %d %lf %lf", word, &at, ret_ttft, ret_itl) == 4 &&
            strcmp(word, name) == 0 && at == n) {
            (void)fclose(f);
            return;
        }
    (void)fclose(f);
    fail_msg("no figures of %s with %d requests in %s", name, n, path);
}

static int
is_worse(const char *name, const char *what, double now, double ref)
{
    if (now > ref * WORSE) {
        (void)printf("%s: %s %.2f ms, committed %.2f: %.1f %% more\n", name, what, now,
            ref, (now / ref - 1) * 100);
        return 1;
    }
    if (now * WORSE < ref)
        (void)printf("%s: %s %.2f ms, committed %.2f: better; s_arrivals --update keeps it\n",
            name, what, now, ref);
    return 0;
}

static void
t_no_worse_than_committed(void **state)
{
    int is_long = getenv("FDD_SIM_STEPS") != NULL, n_worse = 0;

    (void)state;
    for (size_t i = 0; i < N_CASE; i++) {
        double ttft = 0, itl = 0;
        struct arr_sum s;

        ref_of(cases[i].name, case_n(i, is_long), &ttft, &itl);
        s = run_case(i, is_long);
        (void)printf("%-10s %6d requests: TTFT p50 %.2f p99 %.1f, ITL p99 %.2f max %.1f ms; "
                     "%.2f s of CPU\n",
            cases[i].name, case_n(i, is_long), s.ttft.p50, s.ttft.p99, s.itl.p99,
            s.itl.max, s.cpu_s);
        n_worse += is_worse(cases[i].name, "TTFT p50", s.ttft.p50, ttft);
        n_worse += is_worse(cases[i].name, "ITL p99", s.itl.p99, itl);
    }
    assert_int_equal(n_worse, 0);
}

static int
update(void)
{
    char path[4096];
    FILE *f;

    ref_path(path, sizeof(path));
    f = fopen(path, "we");
    if (f == NULL) {
        perror(path);
        return 1;
    }
    (void)fputs("# s_arrivals --update writes this: case, requests, TTFT p50 and ITL p99 in "
                "ms\n",
        f);
    for (int is_long = 0; is_long <= 1; is_long++)
        for (size_t i = 0; i < N_CASE; i++) {
            struct arr_sum s = run_case(i, is_long);

            (void)fprintf(f, "%s %d %.2f %.2f\n", cases[i].name, case_n(i, is_long),
                s.ttft.p50, s.itl.p99);
        }
    return fclose(f) == 0 ? 0 : 1;
}

/* ---- effect of the mechanisms ---------------------------------------------------------- */

/* Compared with a pick as soon as a step may be launched: new requests are in the next
 * step, and the device does not wait for it. */
static void
t_pick_in_time(void **state)
{
    struct par_set *ps = params("device.overlap_depth", "2");
    struct arr_cfg c = config(ps);
    struct arr_sum due, early;

    (void)state;
    due = run_poisson(&c, 16, N_SHORT);
    c.policy = ARR_EARLY;
    early = run_poisson(&c, 16, N_SHORT);
    assert_true(due.ttft.p50 < early.ttft.p50 * 0.85);
    assert_true(due.ahead.p50 < 1 && due.ahead.p99 < early.ahead.p99 / 4);
    assert_true(due.gap.p50 < 2 && due.gap.p99 < 20);
    assert_true(due.tok_s > early.tok_s * 0.995);
    par_free(ps);
}

static void
t_time_target(void **state)
{
    struct par_set *ps = params("sched.itl_target_ms", "40"),
                   *off = params("sched.itl_target_ms", "0");
    struct arr_cfg c = config(ps);
    struct arr_sum on = run_poisson(&c, 16, N_SHORT), none;

    (void)state;
    c.par = par_get(off);
    none = run_poisson(&c, 16, N_SHORT);
    assert_true(on.itl.p99 < 48 && on.itl.max < 80);
    assert_true(none.itl.p99 > 60);
    assert_true(on.ttft.p50 < none.ttft.p50 * 1.15);
    par_free(ps);
    par_free(off);
}

/* Clients that send the next request when an answer ends. Answers that begin with few
 * others end with many: if steps with many decodes have no more room for prompts, a queue
 * builds up. */
static struct arr_sum
closed(int32_t c, int32_t n, int32_t n_out)
{
    struct par_set *ps = params(NULL, NULL);
    struct arr_cfg cfg = config(ps);
    struct arr_load l = arr_load_closed(c, n, 1024, n_out);
    struct arr_sum s = run(&cfg, &l);

    (void)printf("%d at once: TTFT p50 %.1f, ITL p99 %.1f ms, %.0f tokens/s\n", c,
        s.ttft.p50, s.itl.p99, s.tok_s);
    arr_load_fini(&l);
    par_free(ps);
    return s;
}

static void
t_many_at_once(void **state)
{
    struct arr_sum s;

    (void)state;
    s = closed(64, 192, 512);
    assert_true(s.ttft.p50 < 140 && s.itl.p99 < 36 && s.tok_s > 6130);
    s = closed(256, 512, 1024);
    assert_true(s.ttft.p50 < 800);
}

static void
t_same_seed_same_figures(void **state)
{
    struct par_set *ps = params(NULL, NULL);
    struct arr_cfg c = config(ps);
    struct arr_sum a = run_poisson(&c, 16, 500), b = run_poisson(&c, 16, 500);

    (void)state;
    assert_true(a.ttft.p50 == b.ttft.p50 && a.itl.p99 == b.itl.p99 && a.wall_s == b.wall_s);
    c.seed++;
    b = run_poisson(&c, 16, 500);
    assert_true(a.ttft.p50 != b.ttft.p50);
    par_free(ps);
}

/* ---- bad input --------------------------------------------------------------------------- */

/* Every request ends (checked by run()), none waits long, and all structures are
 * consistent after each step. */
static void
fault(const char *name, struct arr_fault f, double most_ms)
{
    struct par_set *ps = params(NULL, NULL);
    struct arr_cfg c = config(ps);
    struct arr_sum s;

    c.fault = f;
    c.check = getenv("FDD_SIM_STEPS") != NULL;
    s = run_poisson(&c, 12, 500);
    (void)printf("%-12s TTFT p50 %.1f max %.0f, ITL p99 %.1f max %.0f ms\n", name,
        s.ttft.p50, s.ttft.max, s.itl.p99, s.itl.max);
    if (s.ttft.max > most_ms || s.itl.max > most_ms)
        fail_msg("%s: somebody waited more than %.0f ms", name, most_ms);
    par_free(ps);
}

static void
t_cost_wrong(void **state)
{
    (void)state;
    fault("cost x 3", (struct arr_fault){ .wrong = 3 }, 1500);
    fault("cost / 3", (struct arr_fault){ .wrong = 1.0 / 3 }, 1500);
}

/* A fault of two seconds; the queue of that time needs a while. */
static void
t_steps_slow(void **state)
{
    (void)state;
    fault("steps x 10",
        (struct arr_fault){ .slow = 10,
            .slow_from_ns = 10000000000u,
            .slow_to_ns = 12000000000u },
        6000);
}

static void
t_clock_jumps(void **state)
{
    (void)state;
    fault("clock +10 s",
        (struct arr_fault){ .jump_ns = 10000000000, .jump_at_ns = 10000000000u }, 1500);
    fault("clock -10 s",
        (struct arr_fault){ .jump_ns = -10000000000, .jump_at_ns = 10000000000u }, 1500);
    fault("clock to, fro",
        (struct arr_fault){ .jump_ns = -3000000,
            .jump_at_ns = 1000000000u,
            .jump_every_ns = 7000000u },
        1500);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_device_is_as_measured),
        cmocka_unit_test(t_no_worse_than_committed),
        cmocka_unit_test(t_pick_in_time),
        cmocka_unit_test(t_time_target),
        cmocka_unit_test(t_many_at_once),
        cmocka_unit_test(t_same_seed_same_figures),
        cmocka_unit_test(t_cost_wrong),
        cmocka_unit_test(t_steps_slow),
        cmocka_unit_test(t_clock_jumps),
    };

    if (argc == 2 && strcmp(argv[1], "--update") == 0)
        return update();
    if (argc > 1)
        return arr_tool(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
