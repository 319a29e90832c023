/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Prefix affinity: chains, the table, and which group is found for a prompt. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/gate/affinity.h"

#define N_MAX  256u
#define BYTES  5000u
#define USER   1000u
#define KIND   1u
#define GROUPS 3u

static const uint64_t key[2] = { 0x0123456789abcdefull, 0xfedcba9876543210ull };
static const uint8_t no_salt[16];
static unsigned char text[AFF_BYTES + 4096u];

struct tab {
    struct aff a;
    uint32_t generation[GROUPS];
};

static int
open_tab(void **state)
{
    static struct tab t;

    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (unsigned char)(i * 131 + i / 251 * 17);
    if (aff_init(&t.a, N_MAX, key) != 0)
        return -1;
    for (uint32_t i = 0; i < GROUPS; i++)
        t.generation[i] = 7;
    *state = &t;
    return 0;
}

static int
close_tab(void **state)
{
    struct tab *t = *state;

    aff_check(&t->a);
    aff_fini(&t->a);
    return 0;
}

static struct aff_chain
chain(const struct tab *t, uint64_t user, const uint8_t *salt, uint64_t n)
{
    struct aff_chain c;

    aff_chain(&t->a, user, salt, KIND, text, n, &c);
    return c;
}

static uint32_t
find(const struct tab *t, struct aff_chain c, uint32_t *ret_bytes)
{
    return aff_find(&t->a, &c, t->generation, GROUPS, ret_bytes);
}

static void
note(struct tab *t, struct aff_chain c, uint32_t group)
{
    aff_note(&t->a, &c, group, t->generation[group]);
}

/* Chains of prompts with a common beginning have a common beginning. */
static void
t_chain(void **state)
{
    const struct tab *t = *state;
    struct aff_chain a = chain(t, USER, no_salt, BYTES), b;

    assert_int_equal(aff_bytes(0), 256);
    assert_int_equal(aff_bytes(1), 512);
    assert_int_equal(aff_bytes(15), 4096);
    assert_int_equal(aff_bytes(16), 5120);
    assert_int_equal(a.n, 16);
    for (uint64_t n = 0; n < BYTES; n++) {
        b = chain(t, USER, no_salt, n);
        assert_int_equal(b.n, n / 256 < 16 ? n / 256 : 16);
        assert_memory_equal(a.hash, b.hash, b.n * sizeof(b.hash[0]));
    }
    text[1500] ^= 1;
    b = chain(t, USER, no_salt, BYTES);
    assert_memory_equal(a.hash, b.hash, 5 * sizeof(b.hash[0]));
    for (uint32_t i = 5; i < b.n; i++)
        assert_true(a.hash[i] != b.hash[i]);
    text[1500] ^= 1;
}

/* Bytes after AFF_BYTES are not read. */
static void
t_long(void **state)
{
    const struct tab *t = *state;
    struct aff_chain a = chain(t, USER, no_salt, AFF_BYTES);
    struct aff_chain b = chain(t, USER, no_salt, UINT32_MAX);

    assert_int_equal(a.n, AFF_HASHES);
    assert_int_equal(aff_bytes(a.n - 1), AFF_BYTES);
    assert_memory_equal(&a, &b, sizeof(a));
}

/* Chains of the same bytes have nothing in common if the user, the salt or the daemon's
 * secret differs, or if they are ids instead of text. */
static void
t_whose(void **state)
{
    static const uint8_t salt[16] = { 1 };
    static const uint64_t other_key[2] = { 1, 2 };
    struct tab *t = *state;
    struct aff_chain a = chain(t, USER, no_salt, BYTES), other[4];
    struct aff other_tab;
    uint32_t bytes;

    note(t, a, 1);
    assert_int_equal(find(t, a, &bytes), 1);
    assert_int_equal(bytes, 4096);
    other[0] = chain(t, USER + 1, no_salt, BYTES);
    other[1] = chain(t, USER, salt, BYTES);
    aff_chain(&t->a, USER, no_salt, KIND + 1, text, BYTES, &other[2]);
    assert_int_equal(aff_init(&other_tab, N_MAX, other_key), 0);
    aff_chain(&other_tab, USER, no_salt, KIND, text, BYTES, &other[3]);
    for (int k = 0; k < 4; k++) {
        assert_int_equal(find(t, other[k], &bytes), AFF_NONE);
        assert_int_equal(bytes, 0);
        for (uint32_t i = 0; i < a.n; i++)
            assert_true(a.hash[i] != other[k].hash[i]);
    }
    aff_fini(&other_tab);
}

/* The group with the longest common beginning is found, not the
 * last that had a beginning. */
static void
t_longest(void **state)
{
    struct tab *t = *state;
    uint32_t bytes;

    note(t, chain(t, USER, no_salt, 4096), 0);
    note(t, chain(t, USER, no_salt, 1024), 2);
    assert_int_equal(find(t, chain(t, USER, no_salt, BYTES), &bytes), 0);
    assert_int_equal(bytes, 4096);
    assert_int_equal(find(t, chain(t, USER, no_salt, 1100), &bytes), 2);
    assert_int_equal(bytes, 1024);
    note(t, chain(t, USER, no_salt, 4096), 1);
    assert_int_equal(find(t, chain(t, USER, no_salt, BYTES), &bytes), 1);
}

/* The entries of a worker that died are dropped; a group that is down is not found. */
static void
t_generation(void **state)
{
    struct tab *t = *state;
    uint32_t bytes;

    note(t, chain(t, USER, no_salt, 1024), 2);
    note(t, chain(t, USER, no_salt, 4096), 0);
    note(t, chain(t, USER, no_salt, 512), 2);
    t->generation[0]++;
    assert_int_equal(find(t, chain(t, USER, no_salt, BYTES), &bytes), 2);
    assert_int_equal(bytes, 512);
    t->generation[2] = 0;
    assert_int_equal(find(t, chain(t, USER, no_salt, BYTES), &bytes), AFF_NONE);
    assert_int_equal(bytes, 0);
}

/* The table is bounded: the least recently used entry is evicted, the end of a
 * chain before its beginning. */
static void
t_bound(void **state)
{
    struct tab *t = *state;
    struct aff_chain kept = chain(t, 1, no_salt, 4096);
    uint32_t bytes, n_cut = 0;

    note(t, kept, 1);
    for (uint64_t user = 2; user < 2000; user++) {
        note(t, chain(t, user, no_salt, 4096), (uint32_t)(user % GROUPS));
        if (user % 8 == 0)
            note(t, kept, 1);
        aff_check(&t->a);
        assert_true(t->a.n <= N_MAX);
    }
    assert_int_equal(t->a.n, N_MAX);
    assert_int_equal(find(t, kept, &bytes), 1);
    assert_int_equal(find(t, chain(t, 1999, no_salt, 4096), &bytes), 1999 % GROUPS);
    assert_int_equal(bytes, 4096);
    assert_int_equal(find(t, chain(t, 2, no_salt, 4096), &bytes), AFF_NONE);
    /* the beginning of the chain is what remains */
    note(t, chain(t, 5000, no_salt, 1024), 0);
    for (uint64_t user = 1950; user < 2000; user++) {
        uint32_t g = find(t, chain(t, user, no_salt, 4096), &bytes);

        assert_true(g == AFF_NONE || g == user % GROUPS);
        n_cut += g != AFF_NONE && bytes < 4096;
        assert_true(g == AFF_NONE || bytes == 4096 || bytes == 4096 - 1024);
    }
    assert_int_equal(n_cut, 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_tab, close_tab)

int
main(void)
{
    const struct CMUnitTest tests[] = { TEST(t_chain), TEST(t_long), TEST(t_whose),
        TEST(t_longest), TEST(t_generation), TEST(t_bound) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
