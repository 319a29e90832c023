/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Which sequences are preempted, and for which others. The fixture compares all tokens. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/sched_fixture.h"

static const struct fx_cfg base = { .block_size = 8,
    .n_block = 64,
    .max_req = 64,
    .sch = { .max_seqs = 8,
        .max_tokens = 256,
        .max_scores = 4,
        .chunked = 1,
        .max_overtake_ns = 100000000 } };

static struct req *
ask(struct fx *f, int32_t n_prompt, int32_t max_new, int32_t priority)
{
    return fx_add(f,
        &(struct fx_ask){ .n_prompt = n_prompt,
            .max_new = max_new,
            .text = 1000 + f->id,
            .priority = priority });
}

static uint32_t
n_preempted(const struct req *r)
{
    return r->n_preempted;
}

/* ---- lack of blocks -------------------------------------------------------------- */

/* Four sequences, admitted in order of their index, need a second block each, and the
 * pool has two besides their first ones. Returns a bit for each preempted one. */
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
    static const struct {
        int32_t priority[4];
        unsigned who;
    } t[] = { { { 0, 0, 0, 0 }, 8 }, { { 0, 9, 0, 0 }, 2 }, { { 9, 0, 0, 0 }, 1 },
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

/* The best priority is never preempted, and waits for a block only until preempted
 * sequences give theirs back, whatever was admitted before it. */
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

/* ---- an urgent arrival ----------------------------------------------------------- */

/* Starts rows of 40 prompt tokens and up to 32 more, with these priorities. */
static struct fx *
running(const struct fx_cfg *c, const int32_t *priority, int n, struct req **r)
{
    struct fx *f = fx_new(c);

    f->keep = 1;
    for (int i = 0; i < n; i++) {
        r[i] = ask(f, 40, 32, priority[i]);
        (void)fx_step(f);
        assert_int_equal(r[i]->seqs[0].state, REQ_ST_RUNNING);
    }
    return f;
}

/* Number of steps until r has its first row, or -1 if it has none after `most` steps. */
static int
steps_to_start(struct fx *f, const struct req *r, int most)
{
    for (int i = 0; i < most; i++) {
        (void)fx_step(f);
        if (fx_row(f, &r->seqs[0]) != NULL)
            return i;
    }
    return -1;
}

static unsigned
gone(struct req **r, int n)
{
    unsigned who = 0;

    for (int i = 0; i < n; i++)
        who |= (unsigned)(n_preempted(r[i]) > 0) << i;
    return who;
}

/* The pool or all rows are in use: which sequences are preempted for a request that needs
 * as much as one or two of them. */
static void
urgent_preempts(void **state)
{
    static const struct {
        int32_t priority[4], urgent, n_prompt;
        int rows, fcfs;
        unsigned who;
    } t[] = { { { 1, 1, 1, 1 }, 0, 40, 0, 0, 8 }, { { 1, 1, 1, 1 }, 0, 80, 0, 0, 12 },
        { { 9, 1, 9, 1 }, 0, 40, 0, 0, 4 }, { { 9, 1, 9, 1 }, 0, 80, 0, 0, 5 },
        { { 9, 1, 5, 1 }, 3, 80, 0, 0, 5 }, { { 9, 1, 1, 0 }, 0, 80, 0, 0, 5 },
        { { 1, 1, 1, 1 }, 0, 40, 1, 0, 8 }, { { 9, 1, 9, 1 }, 0, 40, 1, 0, 4 },
        { { 1, 5, 1, 1 }, 1, 40, 1, 0, 2 },
        /* none has a worse priority; priorities do not count; or those are not enough */
        { { 1, 1, 1, 1 }, 1, 40, 0, 0, 0 }, { { 1, 1, 1, 1 }, 2, 40, 0, 0, 0 },
        { { 1, 1, 1, 1 }, 1, 40, 1, 0, 0 }, { { 1, 1, 1, 1 }, 0, 40, 0, 1, 0 },
        { { 1, 1, 1, 1 }, 0, 40, 1, 1, 0 }, { { 5, 1, 1, 1 }, 1, 80, 0, 0, 0 } };

    (void)state;
    for (int32_t depth = 0; depth <= 4; depth++) {
        for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
            struct fx_cfg c = base;
            struct req *r[4], *u;
            struct fx *f;
            int start;

            c.depth = depth;
            c.sch.fcfs = t[i].fcfs;
            /* nine blocks each, at the end */
            c.n_block = t[i].rows ? 64 : 36;
            c.sch.decode_blocks = 4;
            c.sch.max_seqs = t[i].rows ? 4 : 8;
            f = running(&c, t[i].priority, 4, r);
            u = ask(f, t[i].n_prompt, 8, t[i].urgent);
            start = steps_to_start(f, u, 2 + depth);
            assert_int_equal(gone(r, 4), t[i].who);
            assert_true((start >= 0) == (t[i].who != 0));
            assert_int_equal(n_preempted(u), 0);
            fx_drain(f, 1000);
            fx_free(f);
        }
    }
}

/* Blocks given back for one sequence do not go to another, however few it needs. */
static void
given_up_blocks_are_for_the_urgent(void **state)
{
    (void)state;
    for (int32_t depth = 0; depth <= 4; depth++) {
        struct fx_cfg c = base;
        struct req *r[4], *u, *small;
        struct fx *f;

        c.depth = depth;
        c.n_block = 25;
        c.sch.decode_blocks = 1;
        f = running(&c, (int32_t[]){ 1, 1, 1, 1 }, 4, r);
        u = ask(f, 120, 8, 0);
        small = ask(f, 2, 4, 1);
        while (u->seqs[0].state == REQ_ST_WAITING) {
            (void)fx_step(f);
            assert_true(small->seqs[0].state == REQ_ST_WAITING ||
                u->seqs[0].state != REQ_ST_WAITING);
        }
        fx_drain(f, 1000);
        fx_free(f);
    }
}

/* For one long prompt many rows are preempted over several steps, and all rows for many
 * prompts that arrive together. */
static void
few_go_in_a_step(void **state)
{
    (void)state;
    for (int32_t depth = 0; depth <= 4; depth++) {
        for (int many = 0; many < 2; many++) {
            struct fx_cfg c = base;
            struct fx *f;
            int32_t total = 0, most = 0;

            c.depth = depth;
            c.n_block = many ? 64 : 24;
            c.sch.max_seqs = 12;
            f = fx_new(&c);
            f->keep = 1;
            for (int i = 0; i < 12; i++)
                (void)ask(f, 9, 6, 7);
            (void)fx_step(f);
            assert_int_equal(f->sch->running.n, 12);
            for (int i = 0; i < (many ? 6 : 1); i++)
                (void)ask(f, many ? 9 : 160, 4, 0);
            for (int i = 0; i < 4 + depth; i++) {
                (void)fx_step(f);
                total += f->st.n_urged;
                most = f->st.n_urged > most ? f->st.n_urged : most;
            }
            assert_int_equal(most, SCH_MAX_URGED);
            assert_true(total > SCH_MAX_URGED);
            assert_true(!many || total <= 6);
            fx_drain(f, 1000);
            fx_free(f);
        }
    }
}

/* Urgent requests arrive without end: another one is preempted a limited
 * number of times, then it runs. */
static void
urgent_starve_nobody(void **state)
{
    (void)state;
    for (int32_t depth = 0; depth <= 4; depth += 2) {
        struct fx_cfg c = base;
        struct req *low;
        struct fx *f;
        int i = 0;

        c.depth = depth;
        c.sch.max_seqs = 1;
        c.max_req = 256;
        f = fx_new(&c);
        low = ask(f, 20, 100, 1);
        f->keep = 1;
        for (; low->n_live > 0; i++) {
            assert_true(i < 1000);
            if (f->sch->waiting.n == 0 && f->rp.n_free > 0)
                (void)ask(f, 8, 2, 0);
            (void)fx_step(f);
        }
        assert_int_equal(n_preempted(low), SCH_MAX_PREEMPTED);
        fx_drain(f, 1000);
        fx_free(f);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lowest_priority_gives_way),
        cmocka_unit_test(best_priority_makes_progress),
        cmocka_unit_test(urgent_preempts),
        cmocka_unit_test(given_up_blocks_are_for_the_urgent),
        cmocka_unit_test(few_go_in_a_step),
        cmocka_unit_test(urgent_starve_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
