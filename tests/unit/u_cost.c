/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The cost model of step times: what it learns, and estimates that it must never give. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "daemon/worker/cost.h"

struct rng {
    uint64_t s;
};

static uint32_t
rnd(struct rng *r, uint32_t n)
{
    r->s = r->s * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(r->s >> 33) % n;
}

/* A device: coefficients of a step's time in ns. */
struct device {
    double c0, tok, ctx, pair;
};

static double
takes(const struct device *d, const struct cost_step *s)
{
    return d->c0 + d->tok * s->n_tok + d->ctx * (double)s->n_ctx +
        d->pair * (double)s->n_pair;
}

/* Draws a step: mostly decodes, some mixed, some large prefills. */
static struct cost_step
some_step(struct rng *r)
{
    struct cost_step s = { .n_tok = 1 + (int32_t)rnd(r, 256) };

    s.n_ctx = (int64_t)s.n_tok * rnd(r, 4000);
    if (rnd(r, 3) == 0) {
        int32_t q = 1 + (int32_t)rnd(r, 4096);

        s.n_tok += q;
        s.n_pair = (int64_t)q * rnd(r, 20000);
    }
    return s;
}

static void
learn(struct cost *c, const struct device *d, struct rng *r, int n, int noise)
{
    for (int i = 0; i < n; i++) {
        struct cost_step s = some_step(r);
        double ns = takes(d, &s);

        if (noise > 0)
            ns *= 1 + ((double)rnd(r, 2001) - 1000) / 100000 * noise;
        cost_learn(c, &s, (uint64_t)ns);
    }
}

/* Largest relative error over fresh steps, in percent. */
static double
worst(const struct cost *c, const struct device *d, struct rng *r)
{
    double most = 0;

    for (int i = 0; i < 500; i++) {
        struct cost_step s = some_step(r);
        double t = takes(d, &s), e = ((double)cost_predict(c, &s) - t) / t * 100;

        e = e < 0 ? -e : e;
        most = e > most ? e : most;
    }
    return most;
}

static const struct device cpu = { 300000, 90000, 40, 12 };
static const struct device gpu = { 900000, 1500, 0.9, 0.05 };

/* ---- a GPU: the longer of reading weights and arithmetic --------------------------- */

/* ns of a step of an 8B model in bf16 on an H200. Measured in ms: decode batches of
 * 1, 32, 128 and 256 at context 1,024: 3.82, 5.0, 8.66, 14.85; prefills of 128, 2,048
 * and 8,192 tokens: 5.3, 47.4, 210. A smooth maximum, (w^1.5 + a^1.5)^(2/3), is
 * within 4 % of all of them. */
static double
h200_ns(const struct cost_step *s)
{
    double w = 3.79, a = 0.0223 * s->n_tok, lo = 0, hi = w + a;
    double sum = w * w * w, sum_a = a * a * a;

    /* x^3 = (w^1.5 + a^1.5)^2 = w^3 + a^3 + 2 (w a)^1.5, solved by bisection */
    for (int i = 0; i < 60; i++) {
        double mid = (lo + hi) / 2, m3 = mid * mid * mid, d = m3 - sum - sum_a;

        /* d >= 2 (w a)^1.5, both sides squared */
        if (d > 0 && d * d > 4 * w * a * w * a * w * a)
            hi = mid;
        else
            lo = mid;
    }
    return (lo + 27e-6 * (double)s->n_ctx + 0.81e-6 * (double)s->n_pair) * 1e6;
}

static void
h200_device_is_as_measured(void **state)
{
    static const struct {
        struct cost_step s;
        double ms;
    } m[] = { { { 1, 1024, 0 }, 3.82 }, { { 32, 32 * 1024, 0 }, 5.0 },
        { { 128, 128 * 1024, 0 }, 8.66 }, { { 256, 256 * 1024, 0 }, 14.85 },
        { { 128, 0, 128 * 64 }, 5.3 }, { { 2048, 0, 2048ll * 1024 }, 47.4 },
        { { 8192, 0, 8192ll * 4096 }, 210 } };

    (void)state;
    for (size_t i = 0; i < sizeof(m) / sizeof(m[0]); i++) {
        double r = h200_ns(&m[i].s) / 1e6 / m[i].ms;

        assert_true(r > 0.96 && r < 1.04);
    }
}

/* Draws decodes of up to 128 rows, some with chunks of up to 2,000 tokens. */
static struct cost_step
serving_step(struct rng *r)
{
    int32_t rows = 1 + (int32_t)rnd(r, 128);
    struct cost_step s = { .n_tok = rows, .n_ctx = (int64_t)rows * (200 + rnd(r, 1500)) };

    if (rnd(r, 5) == 0) {
        int32_t q = 16 + (int32_t)rnd(r, 1984);

        s.n_tok += q;
        s.n_pair = (int64_t)q * (q / 2 + (int32_t)rnd(r, 2) * 1000);
    }
    return s;
}

/* Checks accuracy near the time target, which limits chunks: 64 to 256 decoding rows with
 * 500 to 2,000 prompt tokens, and the sizes by which the target is chosen. */
static void
fits_a_gpu_near_the_target(void **state)
{
    double most = 0;
    struct cost c;
    struct rng r = { 21 };

    (void)state;
    cost_init(&c);
    for (int i = 0; i < 3000; i++) {
        struct cost_step s = serving_step(&r);

        cost_learn(&c, &s, (uint64_t)(h200_ns(&s) * (0.98 + rnd(&r, 5) * 0.01)));
    }
    for (int32_t rows = 64; rows <= 256; rows += 64) {
        for (int32_t q = 500; q <= 2000; q += 250) {
            struct cost_step s = { rows + q, rows * 1024, (int64_t)q * q / 2 };
            double e = (double)cost_predict(&c, &s) / h200_ns(&s) - 1;

            e = e < 0 ? -e : e;
            most = e > most ? e : most;
        }
    }
    assert_true(most < 0.05);
    /* 80 % of the device's full speed needs some 500 tokens */
    assert_in_range(cost_efficient(&c, 80, 8192), 350, 650);
}

/* The fraction of a step's time that does not depend on its tokens. */
static void
efficient_sizes(void **state)
{
    struct cost c;
    struct rng r = { 23 };

    (void)state;
    cost_init(&c);
    assert_int_equal(cost_efficient(&c, 80, 100), 0);
    /* 300 us of a step, 90 us of a token: 4 * 300 / 90 */
    learn(&c, &cpu, &r, 2000, 0);
    assert_in_range(cost_efficient(&c, 80, 1000), 12, 14);
    assert_in_range(cost_efficient(&c, 50, 1000), 3, 4);
    /* 900 us and 1.5 us: 2400 */
    cost_init(&c);
    learn(&c, &gpu, &r, 2000, 0);
    assert_in_range(cost_efficient(&c, 80, 8192), 2300, 2500);
    assert_int_equal(cost_efficient(&c, 80, 2000), 2000);
    /* the time of a step does not depend on its tokens */
    cost_init(&c);
    for (int i = 0; i < 100; i++)
        cost_learn(&c, &(struct cost_step){ .n_tok = 1 }, 1000000);
    assert_in_range(cost_efficient(&c, 80, 77), 1, 77);
}

static void
says_nothing_before_it_knows(void **state)
{
    struct cost_step s = { .n_tok = 10 };
    struct cost c;

    (void)state;
    cost_init(&c);
    for (int i = 0; i < COST_MIN_STEPS; i++) {
        assert_int_equal(cost_predict(&c, &s), 0);
        cost_learn(&c, &s, 1000000);
    }
    assert_true(cost_predict(&c, &s) > 900000 && cost_predict(&c, &s) < 1100000);
}

static void
fits_what_it_saw(void **state)
{
    const struct device *devices[] = { &cpu, &gpu };

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct cost c;
        struct rng r = { 3 };

        cost_init(&c);
        learn(&c, devices[i], &r, 300, 0);
        assert_true(worst(&c, devices[i], &r) < 1);
        /* 10 % of noise */
        cost_init(&c);
        learn(&c, devices[i], &r, 2000, 10);
        assert_true(worst(&c, devices[i], &r) < 10);
    }
}

static void
follows_a_device_that_changes(void **state)
{
    struct device slow = { 2 * gpu.c0, 2 * gpu.tok, 2 * gpu.ctx, 2 * gpu.pair };
    struct cost c;
    struct rng r = { 5 };

    (void)state;
    cost_init(&c);
    learn(&c, &gpu, &r, 3000, 2);
    learn(&c, &slow, &r, 8000, 2);
    assert_true(worst(&c, &slow, &r) < 10);
    learn(&c, &gpu, &r, 8000, 2);
    assert_true(worst(&c, &gpu, &r) < 10);
}

/* After long decoding only, estimates must stay bounded and still know about what a
 * prefill costs. One slow step is not a trend. */
static void
equal_steps_and_hiccups(void **state)
{
    struct cost_step s = { .n_tok = 64, .n_ctx = 64000 };
    struct cost c;
    struct rng r = { 9 };
    double was;

    (void)state;
    cost_init(&c);
    learn(&c, &gpu, &r, 1000, 2);
    for (int i = 0; i < 100000; i++)
        cost_learn(&c, &s, (uint64_t)(takes(&gpu, &s) * (0.98 + rnd(&r, 5) * 0.01)));
    assert_true(worst(&c, &gpu, &r) < 60);
    learn(&c, &gpu, &r, 300, 2);
    assert_true(worst(&c, &gpu, &r) < 10);
    was = (double)cost_predict(&c, &s);
    cost_learn(&c, &s, 1000000000);
    assert_true((double)cost_predict(&c, &s) < was * 1.05);
    assert_true((double)cost_predict(&c, &s) > was * 0.95);
    cost_learn(&c, &s, 1);
    assert_true((double)cost_predict(&c, &s) < was * 1.05);
    assert_true((double)cost_predict(&c, &s) > was * 0.95);
}

/* Times that grow faster than linearly: the best line would start below 0. The best line
 * that does not goes through 0, and its slope is known. */
static void
best_of_those_not_negative(void **state)
{
    struct rng r = { 13 };
    struct cost_step s = { .n_tok = 100 };
    double sx = 0, sxx = 0, got;
    struct cost c;

    (void)state;
    cost_init(&c);
    for (int i = 0; i < 400; i++) {
        struct cost_step t = { .n_tok = 20 + (int32_t)rnd(&r, COST_KNEE - 20) };
        double ns = 100.0 * t.n_tok * t.n_tok, x = t.n_tok / ns, w = 1;

        cost_learn(&c, &t, (uint64_t)ns);
        for (int k = i; k < 399; k++)
            w *= 0.9993;
        sx += x * w;
        sxx += x * x * w;
    }
    got = (double)cost_predict(&c, &s) / (sx / sxx * 100);
    assert_true(got > 0.97 && got < 1.03);
}

/* Any input gives a sane estimate. */
static void
never_negative_always_monotone(void **state)
{
    struct cost c;
    struct rng r = { 11 };

    (void)state;
    cost_init(&c);
    for (int i = 0; i < 20000; i++) {
        struct cost_step s = some_step(&r), t = s;

        cost_learn(&c, &s,
            rnd(&r, 100) == 0 ? rnd(&r, 2) * UINT64_MAX : 1000 + rnd(&r, 50000000));
        for (int k = 0; k < COST_N; k++)
            assert_true(c.c[k] >= 0);
        if (c.n < COST_MIN_STEPS)
            continue;
        assert_true(cost_predict(&c, &s) > 0);
        t.n_tok += (int32_t)rnd(&r, 100);
        assert_true(cost_predict(&c, &t) >= cost_predict(&c, &s));
        t.n_ctx += rnd(&r, 100000);
        assert_true(cost_predict(&c, &t) >= cost_predict(&c, &s));
        t.n_pair += rnd(&r, 10000000);
        assert_true(cost_predict(&c, &t) >= cost_predict(&c, &s));
    }
}

static void
copies(void **state)
{
    struct cost c;

    (void)state;
    cost_init(&c);
    assert_true(c.copy_ns == 0);
    cost_learn_copy(&c, 0, 500);
    assert_true(c.copy_ns == 0);
    cost_learn_copy(&c, 4, 4000);
    assert_true(c.copy_ns == 1000);
    for (int i = 0; i < 100; i++)
        cost_learn_copy(&c, 2, 4000);
    assert_true(c.copy_ns > 1990 && c.copy_ns <= 2000);
}

/* The estimate for hang detection is never too short because of steps not seen yet. */
static void
expects_no_less_of_larger_steps(void **state)
{
    const struct cost_step one = { .n_tok = 1, .n_ctx = 100 };
    const struct cost_step five = { .n_tok = 5, .n_pair = 15 };
    const struct cost_step many = { .n_tok = 2000, .n_pair = 2000 * 1000 };
    const struct cost_step far = { .n_tok = 1, .n_ctx = 1000000 };
    struct cost c;

    (void)state;
    cost_init(&c);
    assert_int_equal(cost_expect(&c, &one), 0);
    cost_learn(&c, &five, 2000000);
    /* not enough for a prediction, but for a rough estimate */
    assert_int_equal(cost_predict(&c, &one), 0);
    assert_int_equal(cost_expect(&c, &one), 2000000);
    assert_int_equal(cost_expect(&c, &five), 2000000);
    assert_int_equal(cost_expect(&c, &many), 2000000ull * 400);
    /* a token takes as long as five: the line predicts nothing for 2,000 */
    for (int i = 0; i < 200; i++)
        cost_learn(&c, &one, 2000000);
    assert_true(cost_predict(&c, &many) < 2000000ull * 40);
    assert_true(cost_expect(&c, &many) >= 2000000ull * 400);
    assert_true(cost_expect(&c, &far) >= 2000000ull * 60);
    assert_int_equal(cost_expect(&c, &one), cost_predict(&c, &one));
    /* from the first such step on its own measured time counts */
    for (int i = 0; i < 50; i++)
        cost_learn(&c, &many, 40000000);
    assert_int_equal(cost_expect(&c, &many), cost_predict(&c, &many));
    assert_true(cost_expect(&c, &many) < 60000000);
    cost_learn(&c, &one, UINT64_MAX / 2);
    assert_true(cost_expect(&c, &many) <= (uint64_t)9e18 + 1);
    assert_true(
        cost_expect(&c, &(struct cost_step){ .n_tok = INT32_MAX }) <= (uint64_t)9e18);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_nothing_before_it_knows),
        cmocka_unit_test(fits_what_it_saw),
        cmocka_unit_test(h200_device_is_as_measured),
        cmocka_unit_test(fits_a_gpu_near_the_target),
        cmocka_unit_test(efficient_sizes),
        cmocka_unit_test(follows_a_device_that_changes),
        cmocka_unit_test(equal_steps_and_hiccups),
        cmocka_unit_test(best_of_those_not_negative),
        cmocka_unit_test(never_negative_always_monotone),
        cmocka_unit_test(copies),
        cmocka_unit_test(expects_no_less_of_larger_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
