/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the tests of the block pool: a pool, and block hashes for a family of texts.
 */
#ifndef FDD_TESTS_UNIT_KV_FIXTURE_H
#define FDD_TESTS_UNIT_KV_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/worker/kvcache.h"

static const struct pfx_key key = { 11, 13 };

static inline struct kv *
pool(int32_t n_block, int32_t block_size, int32_t n_slot, int32_t max_len, int32_t n_host,
    int32_t max_copy)
{
    struct kv *kv = kv_new(&(struct kv_cfg){ .n_block = n_block,
        .block_size = block_size,
        .n_slot = n_slot,
        .max_len = max_len,
        .n_host = n_host,
        .max_copy = max_copy });

    assert_non_null(kv);
    return kv;
}

/* Hashes of the first n blocks of 4 tokens of text number doc. Digit i of doc in
 * base 3, the lowest first, selects the content of block i, so texts with equal
 * low digits share a prefix. */
static inline void
hashes(uint64_t user, uint32_t doc, int32_t n, struct kv_hash *ret)
{
    static const uint8_t salt[16];
    struct kv_hash h;

    pfx_root(&key, user, salt, 0, &h);
    for (int32_t i = 0; i < n; i++, doc /= 3) {
        uint32_t ids[4] = { doc % 3, (uint32_t)i, 5, 6 };

        pfx_next(&key, &h, ids, 4, &h);
        ret[i] = h;
    }
}

#endif
