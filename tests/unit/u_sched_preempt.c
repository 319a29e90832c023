/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Who is preempted, and for whom. The fixture compares all tokens. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/sched_fixture.h"

static const struct fx_cfg base = { .block_size = 8, .n_block = 64, .max_req = 64,
    .sch = { .max_seqs = 8, .max_tokens = 256, .max_scores = 4, .chunked = 1,
    .max_overtake_ns = 100000000 } };

static struct req *
ask(struct fx *f, int32_t n_prompt, int32_t max_new, int32_t priority)
{
    return fx_add(f, &(struct fx_ask) { .n_prompt = n_prompt, .max_new = max_new,
        .text = 1000 + f->id, .priority = priority });
}

static uint32_t
n_preempted(const struct req *r)
{
    return r->n_preempted;
}

/* ---- blocks lack ----------------------------------------------------------------- */

/* Four, admitted in the order of their index, need a second block each and the pool has
 * two in all beyond their first. Who is preempted: a bit each. */
static unsigned
who_gives_way(const int32_t *priority, int32_t depth, int fcfs)
{
    struct fx_cfg c = base;
    struct fx *f;
    struct req *r[4];
    unsigned who = 0;

    c.n_block = 4;
    c.depth = depth;
    c.sch.fcfs = fcfs;
    f = fx_new(&c);
    f->keep = 1;
    for (int i = 0; i < 4; i++) {
        r[i] = ask(f, 4, 20, priority[i]);
        (void)fx_step(f);
    }
    while (f->st.n_preempted == 0)
        (void)fx_step(f);
    for (int i = 0; i < 4; i++)
        who |= (unsigned)(n_preempted(r[i]) > 0) << i;
    fx_drain(f, 400);
    fx_free(f);
    return who;
}

static void
lowest_priority_gives_way(void **state)
{
    static const struct { int32_t priority[4]; unsigned who; } t[] = {
        { { 0, 0, 0, 0 }, 8 }, { { 0, 9, 0, 0 }, 2 }, { { 9, 0, 0, 0 }, 1 },
        { { 5, 9, 5, 9 }, 8 }, { { 5, 9, 9, 5 }, 4 }, { { -1, -2, -3, -4 }, 1 },
        { { INT32_MAX, 0, 0, INT32_MIN }, 1 } };

    (void)state;
    for (int32_t depth = 0; depth <= 4; depth++) {
        for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
            assert_int_equal(who_gives_way(t[i].priority, depth, 0), t[i].who);
            assert_int_equal(who_gives_way(t[i].priority, depth, 1), 8);
        }
    }
}

/* The best priority is never preempted, nor waits longer for a block than leaving ones
 * take to give theirs, whoever was admitted before it. */
static void
best_priority_makes_progress(void **state)
{
    (void)state;
    for (int32_t depth = 0; depth <= 4; depth++) {
        struct fx_cfg c = base;
        struct fx *f;
        struct req *best;
        int32_t seen = 0, stuck = 0;

        c.n_block = 12;
        c.depth = depth;
        f = fx_new(&c);
        f->keep = 1;
        for (int i = 0; i < 6; i++)
            (void)ask(f, 5 + i, 80 - i, 5 + i % 3);
        (void)fx_step(f);
        best = ask(f, 7, 80, 0);
        while (best->n_live > 0) {
            const struct seq *s = &best->seqs[0];

            (void)fx_step(f);
            stuck = s->cached_len > seen || s->device_len >= s->max_len ? 0 : stuck + 1;
            seen = s->cached_len;
            assert_true(stuck <= depth);
        }
        assert_int_equal(n_preempted(best), 0);
        assert_true(f->sch->n_preempted > 0);
        fx_drain(f, 2000);
        assert_int_equal(f->n_ended, 7);
        fx_free(f);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lowest_priority_gives_way),
        cmocka_unit_test(best_priority_makes_progress),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
