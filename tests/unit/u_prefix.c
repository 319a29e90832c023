/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Hashes of blocks: compared with the reference implementation, and
 * the data that a hash covers. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "daemon/worker/prefix.h"

#define B 16

/* Key 00 01 .. 0f, as in the reference. */
static const struct pfx_key ref_key = { 0x0706050403020100u, 0x0f0e0d0c0b0a0908u };

/* Output of the reference implementation for the message 00 01 .. len - 1. */
static const struct {
    size_t len;
    uint8_t out[16];
} vectors[] = {
    { 0,
        { 0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7,
            0x55, 0x02, 0x93 } },
    { 1,
        { 0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b,
            0x22, 0xfc, 0x45 } },
    { 2,
        { 0x81, 0x77, 0x22, 0x8d, 0xa4, 0xa4, 0x5d, 0xc7, 0xfc, 0xa3, 0x8b, 0xde, 0xf6,
            0x0a, 0xff, 0xe4 } },
    { 3,
        { 0x9c, 0x70, 0xb6, 0x0c, 0x52, 0x67, 0xa9, 0x4e, 0x5f, 0x33, 0xb6, 0xb0, 0x29,
            0x85, 0xed, 0x51 } },
    { 4,
        { 0xf8, 0x81, 0x64, 0xc1, 0x2d, 0x9c, 0x8f, 0xaf, 0x7d, 0x0f, 0x6e, 0x7c, 0x7b,
            0xcd, 0x55, 0x79 } },
    { 5,
        { 0x13, 0x68, 0x87, 0x59, 0x80, 0x77, 0x6f, 0x88, 0x54, 0x52, 0x7a, 0x07, 0x69,
            0x0e, 0x96, 0x27 } },
    { 6,
        { 0x14, 0xee, 0xca, 0x33, 0x8b, 0x20, 0x86, 0x13, 0x48, 0x5e, 0xa0, 0x30, 0x8f,
            0xd7, 0xa1, 0x5e } },
    { 7,
        { 0xa1, 0xf1, 0xeb, 0xbe, 0xd8, 0xdb, 0xc1, 0x53, 0xc0, 0xb8, 0x4a, 0xa6, 0x1f,
            0xf0, 0x82, 0x39 } },
    { 8,
        { 0x3b, 0x62, 0xa9, 0xba, 0x62, 0x58, 0xf5, 0x61, 0x0f, 0x83, 0xe2, 0x64, 0xf3,
            0x14, 0x97, 0xb4 } },
    { 15,
        { 0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11, 0x7e, 0x08, 0xec, 0x0f, 0x97,
            0xcf, 0xc3, 0xd9 } },
    { 16,
        { 0x6e, 0xe2, 0xa4, 0xca, 0x67, 0xb0, 0x54, 0xbb, 0xfd, 0x33, 0x15, 0xbf, 0x85,
            0x23, 0x05, 0x77 } },
    { 24,
        { 0x2d, 0xb4, 0x79, 0xae, 0x78, 0xbd, 0x50, 0xd8, 0x88, 0x2a, 0x8a, 0x17, 0x8a,
            0x61, 0x32, 0xad } },
    { 63,
        { 0x51, 0x50, 0xd1, 0x77, 0x2f, 0x50, 0x83, 0x4a, 0x50, 0x3e, 0x06, 0x9a, 0x97,
            0x3f, 0xbd, 0x7c } },
};

static int
same(const struct kv_hash *x, const struct kv_hash *y)
{
    return x->a == y->a && x->b == y->b;
}

static size_t
put_le(uint8_t *p, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = (uint8_t)(v >> 8 * i);
    return (size_t)n;
}

static void
reference_vectors(void **state)
{
    uint8_t in[64], out[16];

    (void)state;
    for (size_t i = 0; i < sizeof(in); i++)
        in[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        struct kv_hash h;

        pfx_bytes(&ref_key, in, vectors[i].len, &h);
        (void)put_le(out, h.a, 8);
        (void)put_le(out + 8, h.b, 8);
        assert_memory_equal(out, vectors[i].out, 16);
    }
}

/* A block's message is the hash before it and its ids, little-endian. */
static void
message_of_a_block(void **state)
{
    uint32_t ids[7] = { 1, 0x01020304, 0xffffffff, 0, 5, 0x80000000, 77 };
    struct kv_hash prev = { 0x1122334455667788u, 0x99aabbccddeeff00u };

    (void)state;
    for (int32_t n = 0; n <= 7; n++) {
        struct kv_hash got, want;
        uint8_t m[64];
        size_t at = put_le(m, prev.a, 8);

        at += put_le(m + at, prev.b, 8);
        for (int32_t i = 0; i < n; i++)
            at += put_le(m + at, ids[i], 4);
        pfx_bytes(&ref_key, m, at, &want);
        pfx_next(&ref_key, &prev, ids, n, &got);
        assert_true(same(&got, &want));
        got = prev;
        pfx_next(&ref_key, &got, ids, n, &got);
        assert_true(same(&got, &want));
    }
}

static void
chain(const struct pfx_key *key, uint64_t user, const uint8_t salt[16],
    const uint32_t *ids, int32_t n, struct kv_hash *ret)
{
    struct kv_hash h;

    pfx_root(key, user, salt, 0, &h);
    for (int32_t i = 0; i < n; i++) {
        pfx_next(key, &h, ids + (size_t)i * B, B, &h);
        ret[i] = h;
    }
}

static void
name_covers_all_before_it(void **state)
{
    uint8_t salt[16] = { 0 };
    uint32_t ids[4 * B];
    struct kv_hash was[4], now[4];

    (void)state;
    for (uint32_t i = 0; i < 4 * B; i++)
        ids[i] = i * 7;
    chain(&ref_key, 1000, salt, ids, 4, was);
    for (int32_t at = 0; at < 4 * B; at++) {
        ids[at] ^= 1u << (at % 32);
        chain(&ref_key, 1000, salt, ids, 4, now);
        for (int32_t i = 0; i < 4; i++)
            assert_int_equal(same(&was[i], &now[i]), i < at / B);
        ids[at] ^= 1u << (at % 32);
    }
    /* the same tokens at another place give another hash */
    for (uint32_t i = 0; i < 4 * B; i++)
        ids[i] = i % B;
    chain(&ref_key, 1000, salt, ids, 4, now);
    for (int i = 1; i < 4; i++)
        assert_false(same(&now[i], &now[i - 1]));
}

static void
keyed_by_user_and_salt(void **state)
{
    struct pfx_key other = { ref_key.k0, ref_key.k1 ^ 1 };
    uint8_t salt[16] = { 0 };
    uint32_t ids[B] = { 0 };
    struct kv_hash a, b;

    (void)state;
    chain(&ref_key, 1000, salt, ids, 1, &a);
    chain(&ref_key, 1000, salt, ids, 1, &b);
    assert_true(same(&a, &b));
    chain(&ref_key, 1001, salt, ids, 1, &b);
    assert_false(same(&a, &b));
    chain(&ref_key, 1000 + (1ull << 40), salt, ids, 1, &b);
    assert_false(same(&a, &b));
    for (int i = 0; i < 16; i++) {
        salt[i] = 1;
        chain(&ref_key, 1000, salt, ids, 1, &b);
        assert_false(same(&a, &b));
        salt[i] = 0;
    }
    chain(&other, 1000, salt, ids, 1, &b);
    assert_false(same(&a, &b));
}

/* Blocks whose keys were rotated by other frequencies have other hashes. */
static void
by_rotation(void **state)
{
    uint8_t salt[16] = { 0 };
    struct kv_hash root[4];

    (void)state;
    for (int32_t i = 0; i < 4; i++)
        pfx_root(&ref_key, 1000, salt, i < 3 ? i : INT32_MAX, &root[i]);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            assert_int_equal(same(&root[i], &root[j]), i == j);
}

static void
keys_differ(void **state)
{
    struct pfx_key a, b;

    (void)state;
    assert_int_equal(pfx_key_new(&a), 0);
    assert_int_equal(pfx_key_new(&b), 0);
    assert_memory_not_equal(&a, &b, sizeof(a));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_vectors),
        cmocka_unit_test(message_of_a_block),
        cmocka_unit_test(name_covers_all_before_it),
        cmocka_unit_test(keyed_by_user_and_salt),
        cmocka_unit_test(by_rotation),
        cmocka_unit_test(keys_differ),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
