/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The model of step times: what it learns, what it must never say. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "daemon/worker/cost.h"

struct rng { uint64_t s; };

static uint32_t
rnd(struct rng *r, uint32_t n)
{
    r->s = r->s * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(r->s >> 33) % n;
}

/* ns of a step on a device with these coefficients. */
struct device { double c0, tok, ctx, pair; };

static double
takes(const struct device *d, const struct cost_step *s)
{
    return d->c0 + d->tok * s->n_tok + d->ctx * (double)s->n_ctx +
        d->pair * (double)s->n_pair;
}

/* Mostly decodes, some mixed, some large prefills. */
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

/* Long decoding alone must neither blow up nor forget what a prefill costs by
 * much, and one hiccup is not a trend. */
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

/* Times that bend upwards: a line would start below 0. The best of those that
 * do not goes through 0, and its slope is known. */
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
        struct cost_step t = { .n_tok = 20 + (int32_t)rnd(&r, 200) };
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

/* Whatever it is told. */
static void
never_negative_always_monotone(void **state)
{
    struct cost c;
    struct rng r = { 11 };

    (void)state;
    cost_init(&c);
    for (int i = 0; i < 20000; i++) {
        struct cost_step s = some_step(&r), t = s;

        cost_learn(&c, &s, rnd(&r, 100) == 0 ? rnd(&r, 2) * UINT64_MAX :
            1000 + rnd(&r, 50000000));
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

/* For a watcher: never too short because of what was not seen yet. */
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
    /* not enough for a prediction, and yet some idea */
    assert_int_equal(cost_predict(&c, &one), 0);
    assert_int_equal(cost_expect(&c, &one), 2000000);
    assert_int_equal(cost_expect(&c, &five), 2000000);
    assert_int_equal(cost_expect(&c, &many), 2000000ull * 400);
    /* a token takes as long as five: the line says nothing of 2,000 */
    for (int i = 0; i < 200; i++)
        cost_learn(&c, &one, 2000000);
    assert_true(cost_predict(&c, &many) < 2000000ull * 40);
    assert_true(cost_expect(&c, &many) >= 2000000ull * 400);
    assert_true(cost_expect(&c, &far) >= 2000000ull * 60);
    assert_int_equal(cost_expect(&c, &one), cost_predict(&c, &one));
    /* from the first such step on its own time counts */
    for (int i = 0; i < 50; i++)
        cost_learn(&c, &many, 40000000);
    assert_int_equal(cost_expect(&c, &many), cost_predict(&c, &many));
    assert_true(cost_expect(&c, &many) < 60000000);
    cost_learn(&c, &one, UINT64_MAX / 2);
    assert_true(cost_expect(&c, &many) <= (uint64_t)9e18 + 1);
    assert_true(cost_expect(&c, &(struct cost_step) { .n_tok = INT32_MAX }) <= (uint64_t)9e18);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_nothing_before_it_knows),
        cmocka_unit_test(fits_what_it_saw),
        cmocka_unit_test(follows_a_device_that_changes),
        cmocka_unit_test(equal_steps_and_hiccups),
        cmocka_unit_test(best_of_those_not_negative),
        cmocka_unit_test(never_negative_always_monotone),
        cmocka_unit_test(copies),
        cmocka_unit_test(expects_no_less_of_larger_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
