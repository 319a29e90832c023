/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A prompt takes its blocks while it is computed: the blocks that it holds, those
 * reserved for it, and the sequences that may use these meanwhile. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/sched_fixture.h"

static const struct fx_cfg chunky = { .block_size = 16,
    .n_block = 84,
    .cached = 1,
    .sch = { .max_seqs = 16,
        .max_tokens = 64,
        .max_scores = 1,
        .chunked = 1,
        .max_overtake_ns = 1000000000000 } };

static int32_t
held(const struct fx *f, const struct req *r)
{
    return f->kv->n_held[r->seqs[0].slot];
}

static void
blocks_come_with_their_tokens(void **state)
{
    struct fx_cfg c = chunky;
    struct fx *f;
    struct req *a, *wide, *fits;

    (void)state;
    c.sch.decode_blocks = 2;
    f = fx_new(&c);
    a = fx_plain(f, 1000, 100);
    for (int32_t i = 1; i < 15; i++) {
        (void)fx_step(f);
        assert_int_equal(a->seqs[0].cached_len, 64 * i);
        assert_int_equal(held(f, a), 4 * i);
        assert_int_equal(a->seqs[0].n_owed, 63 + 2 - 4 * i);
        assert_int_equal(kv_available(f->kv), 84 - 4 * i);
    }
    /* no other prompt gets any of the blocks reserved for it */
    wide = fx_plain(f, 19 * 16, 1);
    fits = fx_plain(f, 18 * 16, 1);
    (void)fx_step(f);
    (void)fx_step(f);
    assert_int_equal(wide->seqs[0].state, REQ_ST_WAITING);
    assert_int_equal(fits->seqs[0].state, REQ_ST_RUNNING);
    /* and they are free when it ends */
    fx_cancel(f, a);
    assert_int_equal(f->sch->n_owed, fits->seqs[0].n_owed);
    fx_drain(f, 100);
    assert_int_equal(f->sch->n_owed, 0);
    fx_free(f);
}

static struct req *
ask(struct fx *f, int32_t n_prompt, uint64_t text)
{
    return fx_add(f,
        &(struct fx_ask){ .n_prompt = n_prompt, .max_new = 1, .text = text, .user = 1 });
}

/* Blocks reserved for a prompt keep their cached content until the prompt needs them. */
static void
unfilled_blocks_serve_the_prefix_cache(void **state)
{
    struct fx *f = fx_new(&chunky);
    struct req *r;

    (void)state;
    /* 20 blocks, the least recently used, and 40 */
    (void)ask(f, 320 + 1, 7);
    fx_drain(f, 20);
    (void)ask(f, 640 + 1, 8);
    fx_drain(f, 20);
    /* 62 blocks: 24 are free */
    (void)fx_plain(f, 62 * 16 - 1, 1);
    (void)fx_step(f);
    f->keep = 1;
    r = ask(f, 320 + 8, 7);
    (void)fx_step(f);
    assert_int_equal(r->n_cached, 320);
    fx_drain(f, 100);
    fx_free(f);
}

static const struct fx_cfg slow = { .block_size = 16,
    .n_block = 40,
    .sch = { .max_seqs = 8,
        .max_tokens = 8,
        .max_scores = 1,
        .chunked = 1,
        .max_overtake_ns = 1000000000000 } };

/* Rows that already run may grow into the blocks reserved for a later prompt: it is not
 * preempted while a block is left. */
static void
older_rows_borrow(void **state)
{
    struct fx *f = fx_new(&slow);
    struct req *a;
    int n_lent = 0;

    (void)state;
    for (int i = 0; i < 4; i++)
        (void)fx_plain(f, 2, 120);
    (void)fx_step(f);
    f->keep = 1;
    /* 4 of its tokens in each step, and 4 blocks for the other rows every 16
     * steps: of their 32 it leaves 10 */
    a = fx_plain(f, 30 * 16 - 8, 8);
    while (a->n_preempted == 0) {
        int32_t was = kv_available(f->kv);

        assert_true(req_is_prefill(&a->seqs[0]) || a->t_start_ns == 0);
        (void)fx_step(f);
        if (a->n_preempted > 0) {
            assert_true(was < 4);
        } else {
            assert_int_equal(held(f, a) + a->seqs[0].n_owed, 30);
            n_lent += kv_available(f->kv) < a->seqs[0].n_owed;
        }
    }
    assert_true(n_lent > 10);
    fx_drain(f, 1000);
    assert_int_equal(a->code, 0);
    fx_free(f);
}

/* Rows admitted later do not: the prompt gets its tokens in every step, and those
 * rows preempt one another. */
static void
later_rows_do_not(void **state)
{
    struct fx *f = fx_new(&slow);
    struct req *a;

    (void)state;
    f->keep = 1;
    a = fx_plain(f, 34 * 16 - 8, 8);
    (void)fx_step(f);
    for (int i = 0; i < 4; i++)
        (void)fx_plain(f, 2, 120);
    while (req_is_prefill(&a->seqs[0])) {
        (void)fx_step(f);
        assert_non_null(fx_row(f, &a->seqs[0]));
        assert_true(kv_available(f->kv) >= a->seqs[0].n_owed);
    }
    assert_int_equal(a->n_preempted, 0);
    assert_true(f->sch->n_preempted > 0);
    fx_drain(f, 2000);
    fx_free(f);
}

/* Two long prompts half computed, and rows that grow into the blocks reserved for them:
 * one prompt is preempted, once, and is not resumed before there is room. */
static void
long_prompts_do_not_thrash(void **state)
{
    struct fx_cfg c = { .block_size = 16,
        .n_block = 64,
        .max_req = 16,
        .sch = { .max_seqs = 8, .max_tokens = 12, .max_scores = 1, .chunked = 1 } };

    (void)state;
    for (int cached = 0; cached < 2; cached++)
        for (int32_t depth = 0; depth <= 2; depth++) {
            struct fx *f;

            c.cached = cached;
            c.depth = depth;
            f = fx_new(&c);
            for (int i = 0; i < 4; i++)
                (void)fx_plain(f, 8, 250);
            (void)fx_step(f);
            (void)fx_plain(f, 26 * 16, 8);
            (void)fx_plain(f, 26 * 16, 8);
            fx_drain(f, 800);
            assert_int_equal(f->n_ended, 6);
            assert_in_range(f->sch->n_preempted, 1, 3);
            fx_free(f);
        }
}

/* For an urgent request a half computed prompt counts with the blocks that it would give
 * back: those it holds and those reserved for it. */
static void
urgent_gets_what_is_kept(void **state)
{
    struct fx *f = fx_new(&chunky);
    struct req *low, *urgent;

    (void)state;
    f->keep = 1;
    low = fx_add(f,
        &(struct fx_ask){ .n_prompt = 80 * 16 - 8, .max_new = 8, .text = 1, .priority = 1 });
    (void)fx_step(f);
    (void)fx_step(f);
    assert_int_equal(held(f, low), 8);
    urgent =
        fx_add(f, &(struct fx_ask){ .n_prompt = 60 * 16 - 8, .max_new = 8, .text = 2 });
    (void)fx_step(f);
    (void)fx_step(f);
    assert_int_equal(low->n_preempted, 1);
    assert_int_equal(urgent->seqs[0].state, REQ_ST_RUNNING);
    fx_drain(f, 200);
    fx_free(f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_come_with_their_tokens),
        cmocka_unit_test(unfilled_blocks_serve_the_prefix_cache),
        cmocka_unit_test(older_rows_borrow),
        cmocka_unit_test(later_rows_do_not),
        cmocka_unit_test(long_prompts_do_not_thrash),
        cmocka_unit_test(urgent_gets_what_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
