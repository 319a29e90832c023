/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The block pool by hand: misuse, limits, sharing, eviction. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "tests/unit/kv_fixture.h"

/* A sequence of n full blocks that runs in step epoch. */
static void
fill(struct kv *kv, int32_t slot, const struct kv_hash *h, int32_t n)
{
    int32_t had = kv->n_held[slot];

    assert_int_equal(kv_grow(kv, slot, n * kv->block_size), 0);
    for (int32_t i = had; i < n; i++)
        kv_register(kv, slot, i, &h[i]);
    kv_check(kv);
}

static struct kv_match
found(const struct kv *kv, const struct kv_hash *h, int32_t n)
{
    struct kv_match m;

    kv_find(kv, h, n, &m);
    return m;
}

static void
grows_to_the_last_block(void **state)
{
    struct kv *kv = pool(4, 16, 2, 64, 0, 0);

    (void)state;
    assert_int_equal(kv_blocks(kv, 0), 0);
    assert_int_equal(kv_blocks(kv, 16), 1);
    assert_int_equal(kv_blocks(kv, 17), 2);
    assert_int_equal(kv_grow(kv, 0, 48), 0);
    assert_int_equal(kv->n_free, 1);
    /* more than is left: nothing changes */
    assert_int_equal(kv_grow(kv, 1, 32), -ENOSPC);
    assert_int_equal(kv->n_held[1], 0);
    assert_int_equal(kv->n_free, 1);
    assert_int_equal(kv_grow(kv, 1, 1), 0);
    assert_int_equal(kv_grow(kv, 1, 16), 0);
    assert_int_equal(kv->n_free, 0);
    assert_int_equal(kv_grow(kv, 1, 17), -ENOSPC);
    kv_check(kv);
    kv_drop(kv, 0, 0);
    assert_int_equal(kv->n_free, 3);
    kv_drop(kv, 1, 0);
    kv_check(kv);
    assert_int_equal(kv->n_free, 4);
    kv_free(kv);
}

static void
dummy_block_is_never_handed_out(void **state)
{
    struct kv *kv = pool(3, 16, 1, 48, 0, 0);

    (void)state;
    assert_int_equal(kv_grow(kv, 0, 48), 0);
    for (int i = 0; i < 3; i++)
        assert_true(kv->table[i] > 0);
    assert_int_equal(kv_slot(kv, 0, 0, 0), kv->table[0] * 16);
    assert_int_equal(kv_slot(kv, 0, 0, 33), kv->table[2] * 16 + 1);
    kv_drop(kv, 0, 0);
    kv_free(kv);
}

static void
blocks_wait_for_their_step(void **state)
{
    struct kv *kv = pool(4, 16, 2, 64, 0, 0);

    (void)state;
    assert_int_equal(kv_grow(kv, 0, 32), 0);
    assert_int_equal(kv_grow(kv, 1, 32), 0);
    /* in any order, also epochs of the same list (16 apart) */
    kv_drop(kv, 1, 22);
    kv_drop(kv, 0, 6);
    kv_check(kv);
    assert_int_equal(kv->n_free, 0);
    assert_int_equal(kv->n_deferred, 4);
    kv_collect(kv, 5);
    assert_int_equal(kv->n_free, 0);
    kv_collect(kv, 6);
    kv_check(kv);
    assert_int_equal(kv->n_free, 2);
    assert_int_equal(kv_grow(kv, 0, 64), -ENOSPC);
    kv_collect(kv, 60);
    assert_int_equal(kv->n_free, 4);
    kv_check(kv);
    kv_free(kv);
}

/* ---- prefix cache ---------------------------------------------------------------- */

static void
shared_from_the_step_that_fills_it(void **state)
{
    struct kv *kv = pool(8, 4, 3, 32, 0, 0);
    struct kv_hash h[4];
    struct kv_match m;

    (void)state;
    hashes(1, 0, 4, h);
    assert_int_equal(found(kv, h, 4).n, 0);
    fill(kv, 0, h, 3);
    m = found(kv, h, 4);
    assert_int_equal(m.n, 3);
    assert_int_equal(m.n_idle, 0);
    assert_int_equal(m.n_host, 0);
    assert_int_equal(kv_attach(kv, 1, h, 4), 3);
    assert_int_equal(kv_available(kv), 5);
    assert_memory_equal(kv->table, kv->table + kv->stride, 3 * sizeof(int32_t));
    /* it grows after them; the holders drop them one after another */
    assert_int_equal(kv_grow(kv, 1, 13), 0);
    kv_check(kv);
    kv_drop(kv, 0, 4);
    assert_int_equal(kv->n_deferred, 0);
    /* it never ran itself, but step 4 still has the three */
    kv_drop(kv, 1, 0);
    kv_check(kv);
    assert_int_equal(kv->n_deferred, 3);
    assert_int_equal(kv->n_free, 5);
    m = found(kv, h, 4);
    assert_int_equal(m.n, 3);
    assert_int_equal(m.n_idle, 0);
    /* attached while pending_free, dropped again, collected */
    assert_int_equal(kv_attach(kv, 2, h, 3), 3);
    kv_check(kv);
    assert_int_equal(kv->n_deferred, 0);
    kv_drop(kv, 2, 0);
    assert_int_equal(kv->n_deferred, 3);
    kv_collect(kv, 4);
    kv_check(kv);
    assert_int_equal(kv->n_cached, 3);
    assert_int_equal(kv_available(kv), 8);
    assert_int_equal(found(kv, h, 4).n_idle, 3);
    assert_int_equal(kv->n_lookup, 7);
    assert_int_equal(kv->n_hit, 6);
    kv_free(kv);
}

static void
end_loses_its_place_before_beginning(void **state)
{
    struct kv *kv = pool(8, 4, 2, 32, 0, 0);
    struct kv_hash h[4], g[4];

    (void)state;
    hashes(1, 0, 4, h);
    hashes(2, 0, 4, g);
    fill(kv, 0, h, 4);
    fill(kv, 1, g, 4);
    kv_drop(kv, 0, 0);
    kv_drop(kv, 1, 0);
    for (int32_t i = 1; i <= 8; i++) {
        assert_int_equal(kv_grow(kv, 0, i * 4), 0);
        kv_check(kv);
        assert_int_equal(found(kv, h, 4).n, i < 4 ? 4 - i : 0);
        assert_int_equal(found(kv, g, 4).n, i < 4 ? 4 : 8 - i);
    }
    assert_int_equal(kv->n_evicted, 8);
    kv_free(kv);
}

static void
use_makes_young(void **state)
{
    struct kv *kv = pool(4, 4, 2, 16, 0, 0);
    struct kv_hash h[2], g[2];

    (void)state;
    hashes(1, 0, 2, h);
    hashes(2, 0, 2, g);
    fill(kv, 0, h, 2);
    kv_drop(kv, 0, 0);
    fill(kv, 0, g, 2);
    kv_drop(kv, 0, 0);
    assert_int_equal(kv_attach(kv, 1, h, 2), 2);
    kv_drop(kv, 1, 0);
    assert_int_equal(kv_grow(kv, 0, 8), 0);
    assert_int_equal(found(kv, h, 2).n, 2);
    assert_int_equal(found(kv, g, 2).n, 0);
    kv_check(kv);
    kv_free(kv);
}

static void
same_contents_twice_stay_private(void **state)
{
    struct kv *kv = pool(6, 4, 3, 12, 0, 0);
    struct kv_hash h[3];

    (void)state;
    hashes(1, 0, 3, h);
    fill(kv, 0, h, 2);
    fill(kv, 1, h, 3);
    kv_register(kv, 0, 1, &h[1]);
    kv_check(kv);
    assert_int_equal(kv_attach(kv, 2, h, 3), 3);
    assert_int_equal(kv->table[2 * kv->stride], kv->table[0]);
    assert_int_equal(kv->table[2 * kv->stride + 2], kv->table[kv->stride + 2]);
    kv_drop(kv, 1, 0);
    kv_check(kv);
    /* two of them had no name */
    assert_int_equal(kv->n_free, 3);
    kv_free(kv);
}

/* An attach must not evict the blocks that it attaches. */
static void
attach_never_evicts_what_it_attaches(void **state)
{
    struct kv *kv = pool(4, 4, 3, 16, 3, 16);
    struct kv_hash h[4];
    struct kv_match m;

    (void)state;
    hashes(1, 0, 4, h);
    fill(kv, 0, h, 4);
    kv_drop(kv, 0, 0);
    /* the last two go to the host */
    assert_int_equal(kv_grow(kv, 1, 8), 0);
    assert_int_equal(kv->n_copy, 2);
    kv_copied(kv);
    kv_drop(kv, 1, 0);
    m = found(kv, h, 4);
    assert_int_equal(m.n, 4);
    assert_int_equal(m.n_host, 2);
    assert_int_equal(m.n_idle, 2);
    assert_int_equal(kv_grow(kv, 1, 4), 0);
    /* one block is free, the others hold the prefix itself */
    assert_int_equal(kv_attach(kv, 0, h, 4), 3);
    kv_check(kv);
    assert_int_equal(kv->n_copy, 1);
    assert_false(kv->copy[0].to_host);
    assert_int_equal(kv_available(kv), 0);
    kv_free(kv);
}

/* Held, pending_free, idle, on the host: the block stays, without its name. */
static void
forgotten_blocks_are_not_found(void **state)
{
    struct kv *kv = pool(4, 4, 3, 16, 3, 16);
    struct kv_hash h[4];

    (void)state;
    hashes(1, 0, 4, h);
    fill(kv, 0, h, 4);
    kv_forget(kv, &h[3]);
    kv_check(kv);
    assert_int_equal(found(kv, h, 4).n, 3);
    assert_int_equal(kv->n_held[0], 4);
    kv_drop(kv, 0, 9);
    kv_forget(kv, &h[2]);
    kv_check(kv);
    assert_int_equal(found(kv, h, 4).n, 2);
    assert_int_equal(kv->n_deferred, 4);
    kv_collect(kv, 9);
    kv_check(kv);
    assert_int_equal(kv->n_free, 2);
    kv_forget(kv, &h[1]);
    kv_check(kv);
    assert_int_equal(kv->n_free, 3);
    /* all blocks are taken: the first goes to the host */
    assert_int_equal(kv_grow(kv, 1, 16), 0);
    assert_int_equal(found(kv, h, 4).n_host, 1);
    kv_forget(kv, &h[0]);
    kv_forget(kv, &h[0]);
    kv_check(kv);
    assert_int_equal(found(kv, h, 4).n, 0);
    assert_int_equal(kv->n_host_used, 0);
    kv_drop(kv, 1, 9);
    fill(kv, 0, h, 4);
    assert_int_equal(found(kv, h, 4).n, 4);
    kv_free(kv);
}

static void
orders_run_out(void **state)
{
    struct kv *kv = pool(3, 4, 2, 16, 3, 2);
    struct kv_hash h[3];

    (void)state;
    hashes(1, 0, 3, h);
    fill(kv, 0, h, 3);
    kv_drop(kv, 0, 0);
    assert_int_equal(kv_grow(kv, 1, 12), 0);
    /* no copy command was left for the third: the beginning of the text is lost */
    assert_int_equal(kv->n_copy, 2);
    assert_int_equal(kv->n_out, 2);
    assert_int_equal(kv->n_evicted, 3);
    kv_check(kv);
    assert_int_equal(found(kv, h, 3).n, 0);
    kv_copied(kv);
    kv_drop(kv, 1, 0);
    fill(kv, 0, h, 1);
    assert_int_equal(kv_grow(kv, 1, 8), 0);
    kv_drop(kv, 0, 0);
    kv_drop(kv, 1, 0);
    assert_int_equal(found(kv, h, 3).n_host, 2);
    assert_int_equal(kv_attach(kv, 0, h, 3), 3);
    kv_check(kv);
    assert_int_equal(kv->n_in, 2);
    kv_drop(kv, 0, 0);
    /* no copy command is left: the beginning is lost again */
    assert_int_equal(kv_grow(kv, 1, 12), 0);
    kv_drop(kv, 1, 0);
    assert_int_equal(kv_attach(kv, 0, h, 3), 0);
    kv_copied(kv);
    fill(kv, 0, h, 1);
    kv_drop(kv, 0, 0);
    assert_int_equal(kv_attach(kv, 0, h, 3), 3);
    kv_check(kv);
    kv_free(kv);
}

/* More blocks are evicted than there are copy commands: the beginning is saved rather
 * than the end, which was evicted first. Blocks that come back find commands. */
static void
beginnings_are_saved_before_ends(void **state)
{
    struct kv *kv = pool(12, 4, 3, 48, 40, 8);
    struct kv_hash h[12], g[12];
    struct kv_match m;

    (void)state;
    hashes(1, 0, 12, h);
    hashes(2, 0, 12, g);
    fill(kv, 0, h, 12);
    kv_drop(kv, 0, 0);
    kv_copied(kv);
    /* in two calls, so that the first commands are for the end */
    assert_int_equal(kv_grow(kv, 1, 20), 0);
    kv_check(kv);
    assert_int_equal(found(kv, h, 12).n, 10);
    assert_int_equal(kv_grow(kv, 1, 48), 0);
    kv_check(kv);
    assert_int_equal(kv->n_copy, 6);
    /* two more could come back before the next step, six after it */
    m = found(kv, h, 12);
    assert_int_equal(m.n, 2);
    assert_int_equal(m.n_dev, 0);
    kv_drop(kv, 1, 0);
    assert_int_equal(kv_attach(kv, 2, h, 12), 2);
    kv_check(kv);
    assert_int_equal(kv->n_copy, 8);
    kv_drop(kv, 2, 0);
    kv_copied(kv);
    m = found(kv, h, 12);
    assert_int_equal(m.n, 6);
    assert_int_equal(m.n_dev, 2);
    assert_int_equal(m.n_host, 4);
    assert_int_equal(kv_attach(kv, 2, h, 12), 6);
    kv_check(kv);
    kv_drop(kv, 2, 0);
    kv_copied(kv);
    /* all six into a pool full of other blocks: no command is used for those */
    fill(kv, 1, g, 12);
    kv_drop(kv, 1, 0);
    kv_copied(kv);
    m = found(kv, h, 12);
    assert_int_equal(m.n_host, 6);
    assert_int_equal(kv_attach(kv, 2, h, 12), 6);
    kv_check(kv);
    assert_int_equal(kv->n_in, 12);
    kv_free(kv);
}

/* A long table is freed in slices; an allocation that needs its blocks gets them. */
static void
long_tables_go_a_part_at_a_time(void **state)
{
    struct kv *kv = kv_new(&(struct kv_cfg){ .n_block = 40,
        .block_size = 4,
        .n_slot = 3,
        .max_len = 160,
        .max_drop = 5 });
    struct kv_hash h[12];

    (void)state;
    assert_non_null(kv);
    hashes(1, 0, 12, h);
    fill(kv, 0, h, 12);
    fill(kv, 1, h, 3);
    assert_int_equal(kv_grow(kv, 2, 72), 0);
    kv_drop(kv, 0, 3);
    kv_drop(kv, 1, 3);
    kv_drop(kv, 2, 4);
    kv_check(kv);
    assert_int_equal(kv->n_pending, 33);
    assert_int_equal(kv->n_free, 7);
    /* the blocks can still be attached */
    assert_int_equal(found(kv, h, 12).n, 12);
    assert_int_equal(kv_attach(kv, 0, h, 2), 2);
    kv_collect(kv, 2);
    kv_check(kv);
    assert_int_equal(kv->n_pending, 28);
    assert_int_equal(kv->n_deferred, 5);
    kv_collect(kv, 3);
    kv_check(kv);
    assert_int_equal(kv->n_cached, 10);
    /* the first is held again, step 4 is in flight: 7 and 13 can be reclaimed */
    assert_int_equal(kv_reclaim(kv, 14), 17);
    assert_int_equal(kv_grow(kv, 1, 84), -ENOSPC);
    kv_check(kv);
    assert_int_equal(kv->n_pending, 0);
    assert_int_equal(kv->n_deferred, 18);
    assert_int_equal(kv_grow(kv, 1, 80), 0);
    kv_collect(kv, 4);
    kv_check(kv);
    assert_int_equal(kv_available(kv), 18);
    kv_free(kv);
}

/* Blocks without a name in two tables, a copy of the block after them,
 * and when they become free. */
static void
shared_without_a_name(void **state)
{
    struct kv_cfg c = { .n_block = 8, .block_size = 4, .n_slot = 3, .max_len = 32 };
    struct kv *kv = kv_new(&c);
    const int32_t *a, *b;

    (void)state;
    assert_int_equal(kv_grow(kv, 0, 11), 0);
    kv_share(kv, 1, 0, 11);
    kv_check(kv);
    assert_int_equal(kv_available(kv), 5);
    assert_int_equal(kv_grow(kv, 1, 11), 0);
    a = kv->table;
    b = kv->table + kv->stride;
    assert_true(a[0] == b[0] && a[1] == b[1] && a[2] != b[2]);
    kv_dup(kv, 1, 0, 2, 7);
    kv_check(kv);
    assert_int_equal(kv->n_dup, 1);
    assert_true(kv->dup[0].from == a[2] && kv->dup[0].to == b[2]);
    kv_copied(kv);
    assert_int_equal(kv->n_dup, 0);
    /* the first goes; the copy of step 7 still has to be read */
    kv_drop(kv, 0, 3);
    kv_collect(kv, 6);
    kv_check(kv);
    assert_int_equal(kv_available(kv), 4);
    assert_int_equal(kv->n_deferred, 1);
    kv_collect(kv, 7);
    assert_int_equal(kv_available(kv), 5);
    /* shared blocks may get a name */
    kv_share(kv, 2, 1, 8);
    kv_register(kv, 1, 0, &(struct kv_hash){ 1, 2 });
    kv_check(kv);
    kv_drop(kv, 1, 7);
    assert_int_equal(kv_available(kv), 6);
    kv_drop(kv, 2, 7);
    kv_check(kv);
    assert_int_equal(kv_available(kv), 8);
    assert_int_equal(kv->n_cached, 1);
    kv_free(kv);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_without_a_name),
        cmocka_unit_test(grows_to_the_last_block),
        cmocka_unit_test(dummy_block_is_never_handed_out),
        cmocka_unit_test(blocks_wait_for_their_step),
        cmocka_unit_test(shared_from_the_step_that_fills_it),
        cmocka_unit_test(end_loses_its_place_before_beginning),
        cmocka_unit_test(use_makes_young),
        cmocka_unit_test(same_contents_twice_stay_private),
        cmocka_unit_test(attach_never_evicts_what_it_attaches),
        cmocka_unit_test(forgotten_blocks_are_not_found),
        cmocka_unit_test(orders_run_out),
        cmocka_unit_test(beginnings_are_saved_before_ends),
        cmocka_unit_test(long_tables_go_a_part_at_a_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
