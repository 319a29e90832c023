/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The block pool with several KV groups, of which some have a window. */
#include "config.h"

#include "daemon/worker/kvcache_priv.h"
#include "tests/unit/kv_fixture.h"

#define B       4
#define N_GROUP 3
#define N_SLOT  3
#define MAX_LEN 48

/* Groups without a window, with one of 6 tokens, and with one of 11. */
static const int32_t window[N_GROUP] = { 0, 6, 11 };

static struct kv *
groups(int32_t n_block, int32_t n_host, int32_t max_copy)
{
    struct kv *kv = kv_new(&(struct kv_cfg){ .n_block = n_block,
        .block_size = B,
        .n_slot = N_SLOT,
        .max_len = MAX_LEN,
        .n_host = n_host,
        .max_copy = max_copy,
        .n_group = N_GROUP,
        .window = { window[0], window[1], window[2] },
        .max_step = 8 });

    assert_non_null(kv);
    return kv;
}

/* The first token that the token at position pos reads. */
static int32_t
first_read(int32_t g, int32_t pos)
{
    return window[g] > 0 && pos >= window[g] ? pos - window[g] + 1 : 0;
}

/* Blocks are dropped once no token from a position on reads them, not before, and become
 * free when the last step that may read them is collected. */
static void
blocks_behind_windows_go(void **state)
{
    struct kv *kv = groups(60, 0, 0);
    int32_t next = 0;

    (void)state;
    for (int32_t pos = 0; pos < MAX_LEN; pos++) {
        int32_t held = 0;

        assert_int_equal(kv_grow(kv, 0, pos + 1), 0);
        if (pos >= next)
            next = kv_slide(kv, 0, pos, (uint64_t)pos + 1);
        kv_check(kv);
        for (int32_t g = 0; g < N_GROUP; g++) {
            int32_t went = first_read(g, pos) / B;

            assert_int_equal(kv_first(kv, g, pos), went);
            held += pos / B + 1 - went;
            for (int32_t i = went; i <= pos / B; i++)
                assert_false(kv_is_free(kv, kv_row(kv, 0, g)[i]));
        }
        assert_int_equal(kv_held(kv, 0), held);
        assert_int_equal(held + kv->n_deferred + kv->n_free, 60);
    }
    /* the two windows dropped 42 / 4 and 37 / 4 blocks */
    assert_int_equal(kv->n_deferred, 10 + 9);
    kv_collect(kv, MAX_LEN - 8);
    assert_int_equal(kv->n_deferred, 2 + 2);
    kv_collect(kv, MAX_LEN);
    assert_int_equal(kv->n_deferred, 0);
    kv_drop(kv, 0, 0);
    kv_check(kv);
    assert_int_equal(kv->n_free, 60);
    kv_free(kv);
}

/* With the largest chunks, a sequence holds as many blocks as kv_most()
 * and kv_lack_from() predict. */
static void
no_more_is_held_than_planned(void **state)
{
    struct kv *kv = groups(60, 0, 0);
    int32_t all = kv_lack_from(kv, 0, MAX_LEN / B, 1), most = 0;

    (void)state;
    assert_int_equal(kv_most(6, 8, B), 5);
    assert_int_equal(kv_most(11, 8, B), 6);
    assert_int_equal(all, 12 + 5 + 6);
    for (int32_t odd = 0; odd < B; odd++) {
        for (int32_t pos = odd, n; pos < MAX_LEN; pos += n) {
            n = pos + 8 < MAX_LEN ? 8 : MAX_LEN - pos;
            if (pos > 0)
                (void)kv_slide(kv, 0, pos - 1, 0);
            assert_int_equal(kv_lack_from(kv, 0, MAX_LEN / B, 1), all);
            assert_true(kv_held(kv, 0) + kv_lack(kv, 0, MAX_LEN / B) <= all);
            assert_int_equal(kv_grow(kv, 0, pos + n), 0);
            for (int32_t g = 0; g < N_GROUP; g++)
                assert_true(kv->n_held[0] - kv->empty[g] <= kv->most[g]);
            most = kv_held(kv, 0) > most ? kv_held(kv, 0) : most;
        }
        assert_int_equal(kv_lack(kv, 0, MAX_LEN / B), 0);
        kv_drop(kv, 0, 0);
    }
    assert_true(most > all - N_GROUP && most <= all);
    /* a sequence that begins after a cached prefix lacks the
     * blocks that it does not attach */
    assert_int_equal(kv_lack_from(kv, 24, MAX_LEN / B, 1), 12 + 5 + 6);
    assert_int_equal(kv_lack_from(kv, 24, MAX_LEN / B, 0), 12 - 6 + 5 - 2 + 6 - 3);
    kv_free(kv);
}

/* Longest prefix of a 12-block text, among its first n blocks, with complete windows. */
static int32_t
longest(const uint8_t there[N_GROUP][MAX_LEN / B], int32_t n)
{
    for (; n > 0; n--) {
        int whole = 1;

        for (int32_t g = 0; g < N_GROUP; g++)
            for (int32_t i = first_read(g, n * B) / B; i < n; i++)
                whole &= there[g][i];
        if (whole)
            break;
    }
    return n;
}

/* A text of 12 blocks computed token by token: blocks that left its windows are idle. */
static void
compute(struct kv *kv, int32_t slot, const struct kv_hash *h)
{
    for (int32_t pos = 0; pos < MAX_LEN; pos++) {
        assert_int_equal(kv_grow(kv, slot, pos + 1), 0);
        (void)kv_slide(kv, slot, pos, 0);
        if (pos % B == B - 1)
            kv_register(kv, slot, pos / B, &h[pos / B]);
    }
}

/* A prefix of `used` blocks was used last. Another text takes idle blocks,
 * the oldest first. The lookup of the first n blocks must find the longest
 * prefix with complete windows. */
static int32_t
found_after(const struct kv_hash *h, int32_t used, int32_t take, int32_t n)
{
    struct kv *kv = groups(36, 0, 0);
    uint8_t there[N_GROUP][MAX_LEN / B];
    struct kv_match m;
    int32_t want;

    compute(kv, 0, h);
    kv_drop(kv, 0, 0);
    assert_int_equal(kv->n_cached, 36);
    assert_int_equal(kv_attach(kv, 0, h, used), used);
    kv_drop(kv, 0, 0);
    assert_int_equal(kv_grow(kv, 1, take * B), 0);
    for (int32_t g = 0; g < N_GROUP; g++)
        for (int32_t i = 0; i < MAX_LEN / B; i++) {
            struct kv_hash name = kv_name(&h[i], g);

            there[g][i] = kv_find_dev(kv, &name) >= 0;
        }
    want = longest(there, n);
    kv_find(kv, h, n, &m);
    assert_int_equal(m.n, want);
    assert_int_equal(m.n_dev, want);
    assert_int_equal(kv_attach(kv, 0, h, n), want);
    kv_check(kv);
    assert_int_equal(kv_held(kv, 0), m.n_idle);
    for (int32_t g = 0; g < N_GROUP; g++)
        assert_int_equal(kv->empty[g], first_read(g, want * B) / B);
    kv_free(kv);
    return want;
}

static void
prefix_needs_whole_windows(void **state)
{
    int32_t shorter = 0, none = 0;
    struct kv_hash h[MAX_LEN / B];

    (void)state;
    hashes(1, 0, MAX_LEN / B, h);
    for (int32_t used = 0; used < MAX_LEN / B; used++)
        for (int32_t take = 0; take < MAX_LEN / B; take++)
            for (int32_t n = 1; n <= MAX_LEN / B; n++) {
                int32_t got = found_after(h, used, take, n);

                shorter += got > 0 && got < n;
                none += got == 0;
            }
    assert_true(shorter > 0 && none > 0);
}

/* Each group has blocks of its own, under names of their own. */
static void
groups_have_their_own_blocks(void **state)
{
    struct kv *kv = groups(60, 0, 0);
    struct kv_hash h[MAX_LEN / B];
    uint8_t seen[61] = { 0 };

    (void)state;
    hashes(1, 0, MAX_LEN / B, h);
    compute(kv, 0, h);
    for (int32_t g = 0; g < N_GROUP; g++)
        for (int32_t i = 0; i < MAX_LEN / B; i++) {
            struct kv_hash name = kv_name(&h[i], g);
            int32_t b = kv_find_dev(kv, &name);

            assert_true(b > 0 && seen[b]++ == 0);
            if (i >= kv->empty[g])
                assert_int_equal(b, kv_row(kv, 0, g)[i]);
        }
    assert_int_equal(kv_slot(kv, 0, 2, 45), kv_row(kv, 0, 2)[11] * B + 1);
    assert_true(kv_has(kv, &h[3]));
    kv_forget(kv, &h[3]);
    kv_forget(kv, &h[11]);
    kv_check(kv);
    assert_false(kv_has(kv, &h[3]));
    for (int32_t g = 0; g < N_GROUP; g++) {
        struct kv_hash name = kv_name(&h[11], g);

        assert_true(kv_find_dev(kv, &name) < 0);
    }
    assert_int_equal(kv_attach(kv, 1, h, 12), 3);
    kv_drop(kv, 0, 0);
    kv_drop(kv, 1, 0);
    kv_check(kv);
    assert_int_equal(kv->n_cached, 36 - 6);
    kv_free(kv);
}

/* A sample begins with the blocks that its first token reads, while the
 * other sample still has them. */
static void
samples_share_windows(void **state)
{
    struct kv *kv = groups(60, 0, 0);
    const int32_t n_tok = 22;

    (void)state;
    assert_int_equal(kv_grow(kv, 0, n_tok + 1), 0);
    (void)kv_slide(kv, 0, n_tok, 0);
    assert_true(kv_can_share(kv, 0, n_tok));
    kv_share(kv, 1, 0, n_tok);
    kv_check(kv);
    for (int32_t g = 0; g < N_GROUP; g++) {
        assert_int_equal(kv->empty[N_GROUP + g], first_read(g, n_tok) / B);
        for (int32_t i = kv->empty[N_GROUP + g]; i < n_tok / B; i++)
            assert_int_equal(kv_row(kv, 1, g)[i], kv_row(kv, 0, g)[i]);
    }
    assert_int_equal(kv_grow(kv, 1, n_tok), 0);
    kv_dup(kv, 1, 0, n_tok / B, 3);
    kv_check(kv);
    assert_int_equal(kv->n_dup, N_GROUP);
    for (int32_t g = 0; g < N_GROUP; g++) {
        assert_int_equal(kv->dup[g].from, kv_row(kv, 0, g)[n_tok / B]);
        assert_int_equal(kv->dup[g].to, kv_row(kv, 1, g)[n_tok / B]);
    }
    kv_copied(kv);
    /* 17 / 4 is the first place that the token at 22 sees in group 1; one at 25 sees none of
     * it */
    assert_int_equal(kv_grow(kv, 0, 26), 0);
    (void)kv_slide(kv, 0, 24, 0);
    assert_true(kv_can_share(kv, 0, n_tok));
    (void)kv_slide(kv, 0, 25, 0);
    assert_false(kv_can_share(kv, 0, n_tok));
    kv_check(kv);
    kv_drop(kv, 0, 0);
    kv_drop(kv, 1, 0);
    kv_check(kv);
    assert_int_equal(kv->n_free + kv->n_deferred, 60);
    kv_free(kv);
}

/* Evicted blocks come back for complete windows. If there are too few copy commands for
 * that, only the blocks on the device are used. */
static void
windows_come_back_from_the_host(void **state)
{
    struct kv_hash h[MAX_LEN / B];

    (void)state;
    hashes(1, 0, MAX_LEN / B, h);
    for (int32_t max_copy = 64; max_copy >= 8; max_copy -= 56) {
        struct kv *kv = groups(36, 40, max_copy);
        struct kv_match m;

        compute(kv, 0, h);
        kv_drop(kv, 0, 0);
        for (int32_t n = B; n <= MAX_LEN; n += B) {
            assert_int_equal(kv_grow(kv, 1, n), 0);
            kv_copied(kv);
        }
        assert_int_equal(kv->n_host_used, 36);
        kv_drop(kv, 1, 0);
        kv_find(kv, h, 11, &m);
        kv_check(kv);
        if (max_copy == 64) {
            assert_int_equal(m.n, 11);
            /* 44 - 5 and 44 - 10 are the first tokens that the token at 44 reads */
            assert_int_equal(m.n_host, 11 + 11 - 9 + 11 - 8);
            assert_int_equal(kv_attach(kv, 0, h, 11), 11);
            assert_int_equal(kv->n_copy, m.n_host);
            for (int32_t i = 0; i < kv->n_copy; i++)
                assert_false(kv->copy[i].to_host);
        } else {
            assert_int_equal(m.n, 0);
            assert_int_equal(kv_attach(kv, 0, h, 11), 0);
            assert_int_equal(kv_held(kv, 0), 0);
        }
        kv_check(kv);
        kv_free(kv);
    }
}

/* A block dropped before its tokens were known keeps no name. */
static void
blocks_that_went_get_no_name(void **state)
{
    struct kv *kv = groups(60, 0, 0);
    struct kv_hash h[MAX_LEN / B];

    (void)state;
    hashes(1, 0, MAX_LEN / B, h);
    assert_int_equal(kv_grow(kv, 0, 30), 0);
    (void)kv_slide(kv, 0, 29, 0);
    for (int32_t i = 0; i < 7; i++)
        kv_register(kv, 0, i, &h[i]);
    kv_check(kv);
    for (int32_t g = 0; g < N_GROUP; g++)
        for (int32_t i = 0; i < 7; i++) {
            struct kv_hash name = kv_name(&h[i], g);

            assert_int_equal(kv_find_dev(kv, &name) >= 0, i >= kv->empty[g]);
        }
    kv_free(kv);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_behind_windows_go),
        cmocka_unit_test(no_more_is_held_than_planned),
        cmocka_unit_test(prefix_needs_whole_windows),
        cmocka_unit_test(groups_have_their_own_blocks),
        cmocka_unit_test(samples_share_windows),
        cmocka_unit_test(windows_come_back_from_the_host),
        cmocka_unit_test(blocks_that_went_get_no_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
