/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* When a worker counts as hung, by a clock of the test's own. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/link.h"
#include "daemon/gate/hang.h"

#define T0      (100 * CLK_S)
#define LOOK_NS (100 * CLK_MS)

struct look {
    struct hng h;
    struct lnk_beat b;
    struct hng_limits l;
    uint64_t now;
    char why[160];
};

static void
begin(struct look *k)
{
    memset(k, 0, sizeof(*k));
    k->now = T0;
    k->l = (struct hng_limits){ .hang_ns = 5 * CLK_S, .first_ns = 600 * CLK_S };
    k->b = (struct lnk_beat){ .beats = 7,
        .step_began_ns = T0,
        .activity = LNK_ACT_SERVE,
        .step_expect_ns = 20 * CLK_MS };
    hng_init(&k->h, k->now);
}

static enum hng_verdict
look(struct look *k)
{
    return hng_look(&k->h, &k->b, &k->l, k->now, k->why, sizeof(k->why));
}

/* Look every 100 ms without a beat until the verdict comes; ms that it took, at
 * most max_ms. All before it must be other. */
static uint64_t
until(struct look *k, enum hng_verdict v, uint64_t max_ms)
{
    uint64_t from = k->now;

    while (k->now - from < max_ms * CLK_MS) {
        k->now += LOOK_NS;
        if (look(k) == v)
            return (k->now - from) / CLK_MS;
    }
    return max_ms;
}

static void
never(struct look *k, uint64_t ms)
{
    for (uint64_t t = 0; t < ms * CLK_MS; t += LOOK_NS) {
        k->now += LOOK_NS;
        assert_int_not_equal(look(k), HNG_KILL);
    }
}

static void
t_hangs(void **state)
{
    struct look k;

    (void)state;
    begin(&k);
    assert_int_equal(look(&k), HNG_FINE);
    assert_int_equal(until(&k, HNG_WARN, 60000), 2600);
    assert_non_null(strstr(k.why,
        "not moved for 2.6 s; its last step began 2.6 s ago and was "
        "expected to take 0.020 s"));
    assert_int_equal(until(&k, HNG_KILL, 60000), 2500);
    assert_non_null(strstr(k.why, "not moved for 5.1 s"));
}

static void
t_beats(void **state)
{
    struct look k;

    (void)state;
    begin(&k);
    (void)look(&k);
    for (int i = 0; i < 1000; i++) {
        k.b.beats++;
        k.now += 2 * CLK_S - LOOK_NS;
        assert_int_equal(look(&k), HNG_FINE);
    }
    assert_int_equal(until(&k, HNG_WARN, 60000), 2600);
    k.b.beats++;
    k.now += LOOK_NS;
    assert_int_equal(look(&k), HNG_MOVES);
    /* the full time starts again */
    assert_int_equal(until(&k, HNG_KILL, 60000), 5100);
}

/* Ten times what its step was expected to take, where that is more. */
static void
t_long_step(void **state)
{
    struct look k;

    (void)state;
    begin(&k);
    k.b.step_expect_ns = 3 * CLK_S;
    (void)look(&k);
    assert_int_equal(until(&k, HNG_KILL, 60000), 30100);
    begin(&k);
    k.b.step_expect_ns = UINT64_MAX / 4;
    (void)look(&k);
    never(&k, 3600000);
}

/* Nothing is known of the first steps of a model on this device. */
static void
t_first_step(void **state)
{
    struct look k;

    (void)state;
    begin(&k);
    k.b.step_expect_ns = 0;
    (void)look(&k);
    assert_int_equal(until(&k, HNG_KILL, 900000), 600100);
    /* none was launched: it does not wait for one */
    begin(&k);
    k.b.step_expect_ns = k.b.step_began_ns = 0;
    (void)look(&k);
    assert_int_equal(until(&k, HNG_KILL, 900000), 5100);
    assert_string_equal(k.why, "it has not moved for 5.1 s");
}

static void
t_other_work(void **state)
{
    static const uint32_t acts[] = { LNK_ACT_LOAD, LNK_ACT_CAPTURE, LNK_ACT_PROFILE };
    struct look k;

    (void)state;
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
        begin(&k);
        k.b.activity = acts[i];
        (void)look(&k);
        never(&k, 3600000);
        /* from its end on it is judged again, from now */
        k.b.activity = LNK_ACT_SERVE;
        assert_int_equal(until(&k, HNG_KILL, 60000), 5100);
    }
}

static void
t_off(void **state)
{
    struct look k;

    (void)state;
    begin(&k);
    k.l.hang_ns = 0;
    (void)look(&k);
    assert_int_equal(until(&k, HNG_WARN, 60000), 5100);
    never(&k, 3600000);
}

/* The gate or the machine stood still: the worker did not hang meanwhile. */
static void
t_gap(void **state)
{
    struct look k;

    (void)state;
    begin(&k);
    (void)look(&k);
    k.now += 3600 * CLK_S;
    assert_int_equal(look(&k), HNG_FINE);
    assert_int_equal(until(&k, HNG_KILL, 60000), 5100);
}

static void
t_excused(void **state)
{
    struct look k;

    (void)state;
    begin(&k);
    (void)look(&k);
    assert_int_equal(until(&k, HNG_KILL, 60000), 5100);
    hng_excuse(&k.h, k.now);
    assert_int_equal(until(&k, HNG_KILL, 60000), 5100);
}

static void
t_tracer(void **state)
{
    (void)state;
    assert_false(hng_has_tracer(""));
    assert_false(hng_has_tracer("Name:\tfdd-worker\nTracerPid:\t0\nUid:\t1\n"));
    assert_true(hng_has_tracer("Name:\tfdd-worker\nTracerPid:\t4711\nUid:\t1\n"));
    assert_false(hng_has_tracer("Name:\tTracerPid:\t1\nTracerPid:\t0\n"));
}

/* A short buffer holds a cut text. */
static void
t_short(void **state)
{
    struct look k;

    (void)state;
    begin(&k);
    memset(k.why, 'x', sizeof(k.why));
    k.now += LOOK_NS;
    (void)look(&k);
    for (int i = 0; i < 60; i++) {
        k.now += LOOK_NS;
        (void)hng_look(&k.h, &k.b, &k.l, k.now, k.why, 10);
    }
    assert_int_equal(strlen(k.why), 9);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_hangs),
        cmocka_unit_test(t_beats),
        cmocka_unit_test(t_long_step),
        cmocka_unit_test(t_first_step),
        cmocka_unit_test(t_other_work),
        cmocka_unit_test(t_off),
        cmocka_unit_test(t_gap),
        cmocka_unit_test(t_excused),
        cmocka_unit_test(t_tracer),
        cmocka_unit_test(t_short),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
