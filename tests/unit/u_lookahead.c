/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* When the next step is due: on a simulated device with given step times. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "daemon/worker/lookahead.h"

#define US     1000ull
#define MS     1000000ull
#define N_STEP 4000
#define FAR_NS (3 * MS)
#define LEARN  20

struct rng {
    uint64_t s;
};

static uint32_t
rnd(struct rng *r, uint32_t n)
{
    r->s = r->s * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(r->s >> 33) % n;
}

/* ---- a host and a device --------------------------------------------------------------- */

struct sum {
    int gaps; /* steps for which the device was idle */
    uint64_t idle_ns, device_ns;
    uint64_t ahead_ns, most_ahead_ns; /* from the pick of a step to its begin */
    uint64_t longest_ns;              /* longest time that the device was idle */
    int far;                          /* steps picked more than FAR_NS before their begin,
              * without the first LEARN */
};

struct play {
    struct rng rng;
    int depth, n_step;
    uint64_t launch_ns;                      /* from a pick until the step is queued */
    uint64_t (*takes)(struct play *, int i); /* duration of step i */
    uint64_t (*predict)(struct play *, int i, uint64_t takes);
    int64_t jump_at, jump_ns; /* the clock of the host and the device jumps */
    int mark_pct;      /* position of a step's mark in percent of its time; more than 100:
                        * it is never reached; 0: no marks */
    uint64_t blind_ns; /* the host may look this late */
};

struct flight {
    uint64_t begin, end;
};

/* Runs a play: the host waits until a step is due or the oldest has ended. */
static struct sum
play(struct play *p)
{
    struct flight f[LKA_MAX_DEPTH + 1];
    uint64_t now = 1000 * MS, last_end = now;
    struct sum sum = { 0 };
    struct lka l;
    int n = 0, i = 0;

    lka_init(&l, p->depth);
    while (i < p->n_step || n > 0) {
        if (n > 0)
            lka_look(&l, now,
                now >= f[0].begin + (f[0].end - f[0].begin) * (uint64_t)p->mark_pct / 100);
        uint64_t due = i < p->n_step ? lka_due(&l, now) : UINT64_MAX;
        uint64_t pick, takes, begin, predict;

        assert_int_equal(l.n, n);
        assert_true(n > 0 || due <= now);
        if (due > now && n > 0 && f[0].end <= now) {
            uint64_t idle = f[0].begin > last_end && i > 1 ? f[0].begin - last_end : 0;

            sum.gaps += idle > 0;
            sum.idle_ns += idle;
            sum.longest_ns = idle > sum.longest_ns ? idle : sum.longest_ns;
            sum.device_ns += f[0].end - f[0].begin;
            lka_collected(&l, f[0].begin, f[0].end, idle);
            last_end = f[0].end;
            n--;
            for (int k = 0; k < n; k++)
                f[k] = f[k + 1];
            continue;
        }
        if (due > now) {
            uint64_t look = lka_look_at(&l, now);

            assert_true(look > now);
            look += look != UINT64_MAX && p->blind_ns > 0
                ? rnd(&p->rng, (uint32_t)p->blind_ns)
                : 0;
            now = look < due ? look : due;
            now = n > 0 && f[0].end < now ? f[0].end : now;
            continue;
        }
        pick = now;
        takes = p->takes(p, i);
        now += p->launch_ns;
        begin = n > 0 && f[n - 1].end > now ? f[n - 1].end : now;
        if (n == 0 && begin < last_end)
            begin = last_end;
        predict = p->predict(p, i, takes);
        lka_launched(&l, pick, now, predict);
        if (p->mark_pct > 0 && lka_wants_mark(&l, predict))
            lka_will_mark(&l);
        assert_true(n <= p->depth);
        f[n++] = (struct flight){ begin, begin + takes };
        sum.ahead_ns += begin - pick;
        sum.far += i >= LEARN && begin - pick > FAR_NS;
        sum.most_ahead_ns =
            begin - pick > sum.most_ahead_ns ? begin - pick : sum.most_ahead_ns;
        if (++i == p->jump_at) {
            now += (uint64_t)p->jump_ns;
            for (int k = 0; k < n; k++) {
                f[k].begin += (uint64_t)p->jump_ns;
                f[k].end += (uint64_t)p->jump_ns;
            }
        }
    }
    return sum;
}

/* Decodes of 5 ms, every eighth step with 20 to 60 ms of prefill; 2 % of noise. */
static uint64_t
mixed(struct play *p, int i)
{
    uint64_t us = i % 8 == 7 ? 20000 + rnd(&p->rng, 40000) : 5000;

    return us * (980 + rnd(&p->rng, 41));
}

static uint64_t
tiny(struct play *p, int i)
{
    (void)i;
    return (100 + rnd(&p->rng, 20)) * US;
}

/* Steps ten times as long from the middle on, then as before. */
static uint64_t
slower(struct play *p, int i)
{
    uint64_t ns = mixed(p, i);

    return i / 500 % 2 == 1 ? 10 * ns : ns;
}

static uint64_t
right(struct play *p, int i, uint64_t takes)
{
    (void)i;
    return takes * (990 + rnd(&p->rng, 21)) / 1000;
}

static uint64_t
third(struct play *p, int i, uint64_t takes)
{
    return right(p, i, takes) / 3;
}

static uint64_t
triple(struct play *p, int i, uint64_t takes)
{
    return right(p, i, takes) * 3;
}

/* Predictions of a model that has seen only the former pace. */
static uint64_t
stale(struct play *p, int i, uint64_t takes)
{
    return i / 500 % 2 == 1 ? right(p, i, takes) / 10 : right(p, i, takes);
}

/* Predictions of a model that does not distinguish kinds of steps. */
static uint64_t
rough(struct play *p, int i, uint64_t takes)
{
    (void)i;
    return takes * (700 + rnd(&p->rng, 601)) / 1000;
}

/* A burst of prompts. */
static uint64_t
burst(struct play *p, int i)
{
    (void)i;
    return (30000 + rnd(&p->rng, 30000)) * US;
}

static uint64_t
unknown(struct play *p, int i, uint64_t takes)
{
    (void)p;
    (void)i;
    (void)takes;
    return 0;
}

static uint64_t
huge(struct play *p, int i, uint64_t takes)
{
    (void)p;
    (void)i;
    (void)takes;
    return UINT64_MAX;
}

/* ---- the tests ----------------------------------------------------------------------------- */

static void
t_idle_is_due_at_once(void **state)
{
    struct lka l;

    (void)state;
    lka_init(&l, 2);
    assert_true(lka_due(&l, 5) <= 5);
    lka_launched(&l, 1 * MS, 2 * MS, 5 * MS);
    lka_collected(&l, 2 * MS, 7 * MS, 0);
    assert_true(lka_due(&l, 7 * MS) <= 7 * MS);
}

static void
t_never_deeper_than_depth(void **state)
{
    struct lka l;

    (void)state;
    for (int depth = 0; depth <= LKA_MAX_DEPTH; depth++) {
        lka_init(&l, depth);
        for (int i = 0; i <= depth; i++) {
            assert_true(lka_due(&l, 100 * MS) <= 100 * MS);
            lka_launched(&l, 100 * MS, 100 * MS, i % 2 ? 0 : 10 * US);
        }
        assert_true(lka_due(&l, UINT64_MAX - 1) == UINT64_MAX);
        lka_collected(&l, 100 * MS, 101 * MS, 0);
        assert_true(depth == 0 || lka_due(&l, 200 * MS) <= 200 * MS);
    }
}

static void
t_unknown_is_due_at_once(void **state)
{
    struct lka l;

    (void)state;
    lka_init(&l, 4);
    lka_launched(&l, 0, 0, 50 * MS);
    assert_true(lka_due(&l, 1) > 1);
    lka_launched(&l, 1, 1, 0);
    assert_true(lka_due(&l, 1) <= 1);
    lka_collected(&l, 0, 50 * MS, 0);
    assert_true(lka_due(&l, 50 * MS) <= 50 * MS);
}

static void
t_due_is_the_end_less_the_lead(void **state)
{
    struct lka l;

    (void)state;
    lka_init(&l, 2);
    for (int i = 0; i < 400; i++) {
        uint64_t t = (uint64_t)i * 20 * MS;

        lka_launched(&l, t, t + 150 * US, 20 * MS);
        if (i == 399) {
            assert_in_range(lka_end(&l), t + 19 * MS, t + 20 * MS);
            assert_int_equal(lka_due(&l, t + MS), lka_end(&l) - lka_lead(&l));
            assert_in_range(lka_lead(&l), 200 * US, 500 * US);
            /* it lasts longer than expected: it may end at any time */
            assert_true(lka_due(&l, t + 30 * MS) <= t + 30 * MS);
            lka_launched(&l, t + MS, t + MS, 20 * MS);
            assert_in_range(lka_due(&l, t + 2 * MS), t + 38 * MS, t + 40 * MS);
            return;
        }
        lka_collected(&l, t, t + 20 * MS, 0);
    }
}

/* A device with exact predictions never waits, and no step is
 * picked long before its begin. */
static void
t_late_picks_and_no_gaps(void **state)
{
    (void)state;
    for (int depth = 1; depth <= 4; depth++) {
        struct play p = { .rng = { 7 },
            .depth = depth,
            .n_step = N_STEP,
            .launch_ns = 150 * US,
            .takes = mixed,
            .predict = right };
        struct sum s = play(&p);

        assert_true(s.gaps <= N_STEP / 100);
        assert_true(s.idle_ns * 1000 < s.device_ns);
        assert_true(s.ahead_ns / N_STEP < 2 * MS);
        assert_true(s.most_ahead_ns < 35 * MS);
    }
}

/* Steps shorter than the lead: as many steps ahead as depth allows. */
static void
t_short_steps_fill_the_queue(void **state)
{
    struct play p = { .rng = { 3 },
        .depth = 4,
        .n_step = N_STEP,
        .launch_ns = 50 * US,
        .takes = tiny,
        .predict = right };
    struct sum s = play(&p);

    (void)state;
    assert_true(s.gaps <= N_STEP / 100);
    assert_true(s.ahead_ns / N_STEP > 100 * US);
}

/* Predictions wrong by a factor of 3, steps that take 10 times as
 * long: some gaps, then none. */
static void
t_wrong_predictions(void **state)
{
    static const struct {
        uint64_t (*takes)(struct play *, int);
        uint64_t (*predict)(struct play *, int, uint64_t);
        int gaps;
        uint64_t longest;
    } are[] = {
        { mixed, third, N_STEP / 40, 60 * MS },
        { mixed, triple, N_STEP / 40, 60 * MS },
        { slower, right, N_STEP / 40, 600 * MS },
        { slower, stale, N_STEP / 25, 600 * MS },
        { mixed, unknown, 1, MS },
        { mixed, huge, N_STEP, MS },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(are) / sizeof(are[0]); i++) {
        struct play p = { .rng = { 11 },
            .depth = 2,
            .n_step = N_STEP,
            .launch_ns = 150 * US,
            .takes = are[i].takes,
            .predict = are[i].predict };
        struct sum s = play(&p);

        assert_true(s.gaps <= are[i].gaps);
        assert_true(s.longest_ns <= are[i].longest);
        /* the gaps are below 5 % of the device's time */
        assert_true(s.idle_ns * 20 < s.device_ns);
    }
}

static void
t_a_clock_that_jumps(void **state)
{
    static const int64_t jumps[] = { 3600000000000, -900000000, -1, 1 };

    (void)state;
    for (size_t i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
        struct play p = { .rng = { 5 },
            .depth = 2,
            .n_step = N_STEP,
            .launch_ns = 150 * US,
            .takes = mixed,
            .predict = right,
            .jump_at = 500,
            .jump_ns = jumps[i] };
        struct sum s = play(&p);

        assert_true(s.gaps <= N_STEP / 100);
    }
}

/* ---- marks --------------------------------------------------------------------------------- */

/* A mark corrects a model that is 30 % off, at any position and however late the host
 * looks; without it, many steps are picked far ahead. */
static void
t_marks_tell_the_end(void **state)
{
    static const struct {
        int pct;
        uint64_t blind_ns;
    } are[] = { { 0, 0 }, { 75, 0 }, { 75, 500 * US }, { 60, 0 }, { 85, 0 } };

    (void)state;
    for (int depth = 1; depth <= 4; depth++) {
        for (size_t k = 0; k < sizeof(are) / sizeof(are[0]); k++) {
            struct play p = { .rng = { 13 },
                .depth = depth,
                .n_step = N_STEP,
                .launch_ns = 150 * US,
                .takes = burst,
                .predict = rough,
                .mark_pct = are[k].pct,
                .blind_ns = are[k].blind_ns };
            struct sum s = play(&p);

            assert_true(s.idle_ns * 1000 < s.device_ns);
            if (are[k].pct == 0) {
                assert_true(s.far > N_STEP / 4);
                continue;
            }
            assert_true(s.far <= (are[k].pct == 75 ? 0 : N_STEP / 500));
            assert_true(s.ahead_ns / N_STEP < 1500 * US);
        }
    }
}

/* Short steps between long ones: steps after a long one are in time too. */
static void
t_marks_among_short_steps(void **state)
{
    struct play p = { .rng = { 17 },
        .depth = 2,
        .n_step = N_STEP,
        .launch_ns = 150 * US,
        .takes = mixed,
        .predict = rough,
        .mark_pct = 75 };
    struct sum with = play(&p), without;

    (void)state;
    p.rng.s = 17;
    p.mark_pct = 0;
    without = play(&p);
    assert_true(with.far * 4 < without.far);
    assert_true(with.idle_ns * 1000 < with.device_ns);
}

/* The host waits for a step's end, not for its mark; then no mark is set for a while. */
static void
t_a_mark_that_never_comes(void **state)
{
    struct play p = { .rng = { 19 },
        .depth = 2,
        .n_step = N_STEP,
        .launch_ns = 150 * US,
        .takes = burst,
        .predict = right,
        .mark_pct = 1000 };
    struct sum s = play(&p);

    (void)state;
    assert_in_range(s.gaps, N_STEP / LKA_UNMARKED / 2, N_STEP / LKA_UNMARKED + N_STEP / 100);
    assert_true(s.longest_ns <= MS);
}

static void
t_only_long_steps_have_marks(void **state)
{
    struct lka l;

    (void)state;
    lka_init(&l, 2);
    assert_true(lka_wants_mark(&l, LKA_MARK_NS));
    assert_false(lka_wants_mark(&l, LKA_MARK_NS - 1));
    assert_false(lka_wants_mark(&l, 0));
    assert_true(lka_look_at(&l, 5) == UINT64_MAX);
    lka_launched(&l, 0, 0, 20 * MS);
    assert_true(lka_look_at(&l, 5) == UINT64_MAX);
    lka_will_mark(&l);
    assert_in_range(lka_look_at(&l, 5), MS, 20 * MS);
    assert_true(lka_due(&l, 5) == UINT64_MAX);
    lka_look(&l, 14900 * US, 0);
    assert_true(lka_due(&l, 14900 * US) == UINT64_MAX);
    lka_look(&l, 15 * MS, 1);
    assert_true(lka_look_at(&l, 15 * MS) == UINT64_MAX);
    assert_in_range(lka_due(&l, 15 * MS), 18 * MS, 20 * MS);
    /* seen long after it was reached: it tells no more than the model */
    lka_collected(&l, 0, 20 * MS, 0);
    lka_launched(&l, 20 * MS, 20 * MS, 20 * MS);
    lka_will_mark(&l);
    lka_look(&l, 36 * MS, 1);
    assert_true(lka_due(&l, 36 * MS) <= 36 * MS);
    lka_init(&l, 0);
    assert_false(lka_wants_mark(&l, LKA_MARK_NS));
}

static void
t_a_clock_that_jumps_at_a_mark(void **state)
{
    static const int64_t jumps[] = { 3600000000000, -900000000, -20000000, 20000000 };

    (void)state;
    for (size_t i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
        struct play p = { .rng = { 23 },
            .depth = 2,
            .n_step = N_STEP,
            .launch_ns = 150 * US,
            .takes = burst,
            .predict = rough,
            .mark_pct = 75,
            .jump_at = 500,
            .jump_ns = jumps[i] };
        struct sum s = play(&p);

        assert_true(s.gaps <= N_STEP / 50);
        assert_true(s.far <= 2);
    }
}

/* One slow launch hardly counts; if all are slow the full time counts. */
static void
t_lead_follows_launches(void **state)
{
    struct lka l;

    (void)state;
    lka_init(&l, 1);
    for (int i = 0; i < 50; i++) {
        lka_launched(&l, 0, 100 * US, 0);
        lka_collected(&l, 0, 1, 0);
    }
    assert_true(lka_lead(&l) <= LKA_MARGIN_START + 100 * US);
    lka_launched(&l, 0, 150 * MS, 0);
    lka_collected(&l, 0, 1, 0);
    assert_true(lka_lead(&l) <= LKA_MARGIN_START + 1300 * US);
    for (int i = 0; i < 5; i++) {
        lka_launched(&l, 0, 9 * MS, 0);
        lka_collected(&l, 0, 1, 0);
    }
    assert_true(lka_lead(&l) >= 9 * MS);
    for (int i = 0; i < 1000; i++) {
        lka_launched(&l, 0, 100 * US, 0);
        lka_collected(&l, 0, 1, 0);
    }
    assert_true(lka_lead(&l) <= LKA_MARGIN_START + 200 * US);
}

static void
t_margin_is_bounded(void **state)
{
    struct lka l;

    (void)state;
    lka_init(&l, 1);
    for (int i = 0; i < 100; i++) {
        lka_launched(&l, 0, 0, 0);
        lka_collected(&l, 0, 1, 100 * MS);
    }
    assert_int_equal(lka_lead(&l), LKA_MARGIN_MAX);
    for (int i = 0; i < 3000; i++) {
        lka_launched(&l, 0, 0, 0);
        lka_collected(&l, 0, 1, LKA_IDLE_NS);
    }
    assert_in_range(lka_lead(&l), LKA_MARGIN_MIN, LKA_MARGIN_MIN + US);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_idle_is_due_at_once),
        cmocka_unit_test(t_never_deeper_than_depth),
        cmocka_unit_test(t_unknown_is_due_at_once),
        cmocka_unit_test(t_due_is_the_end_less_the_lead),
        cmocka_unit_test(t_late_picks_and_no_gaps),
        cmocka_unit_test(t_short_steps_fill_the_queue),
        cmocka_unit_test(t_wrong_predictions),
        cmocka_unit_test(t_a_clock_that_jumps),
        cmocka_unit_test(t_marks_tell_the_end),
        cmocka_unit_test(t_marks_among_short_steps),
        cmocka_unit_test(t_a_mark_that_never_comes),
        cmocka_unit_test(t_only_long_steps_have_marks),
        cmocka_unit_test(t_a_clock_that_jumps_at_a_mark),
        cmocka_unit_test(t_lead_follows_launches),
        cmocka_unit_test(t_margin_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
