/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The internals that bpe.c fills and bpe_merge.c reads. */
#ifndef FDD_DAEMON_WORKER_BPE_PRIV_H
#define FDD_DAEMON_WORKER_BPE_PRIV_H

#include "daemon/worker/bpe.h"

#define BPE_NO_RANK    UINT32_MAX
#define BPE_JOIN_LOG2  20
#define BPE_CHAR_BYTES 4 /* of a UTF-8 character */

/* The tokens that a byte of a pretoken starts as. */
struct bpe_byte {
    uint32_t id[2];
    uint8_t n; /* tokens in id; 0: unknown byte */
};

struct bpe_token {
    uint32_t off; /* into the arena */
    uint16_t len; /* BPE_ABSENT: no such token */
    uint8_t flags;
};

struct bpe_slot {
    uint32_t id; /* token id + 1, 0: empty */
    uint32_t hash;
};

struct bpe {
    uint32_t magic;
    uint32_t n_ids;
    struct bpe_token *token; /* [n_ids] */
    uint8_t *arena;
    size_t arena_n, arena_cap;
    struct bpe_slot *slot;
    uint32_t slot_mask;
    struct bpe_merge *merge; /* rank BPE_NO_RANK: empty */
    uint32_t merge_mask, n_merges, max_merges;
    struct bpe_byte byte[256]; /* initial tokens, for pretokens of bytes */
    int32_t ascii[128];        /* ids of ASCII characters, for pretokens of characters;
                                  -1: none */
    int32_t fallback[256];     /* ids of "<0xXX>", -1: none */
    bool all_fallback;
    /*
     * Bits, indexed by a hash of two adjacent characters; 1: some merge can join them.
     * NULL: no pretoken may be cut.
     */
    uint64_t *join;
    struct bpe_opts opts;
};

static inline uint32_t
bpe_pair_hash(uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 35);
}

/* The merge cell of (left, right), or the empty cell where it belongs. */
static inline struct bpe_merge *
bpe_merge_cell(const struct bpe *bpe, uint32_t left, uint32_t right)
{
    uint32_t i = bpe_pair_hash(left, right) & bpe->merge_mask;

    for (;; i = (i + 1) & bpe->merge_mask) {
        struct bpe_merge *m = &bpe->merge[i];
        if (m->rank == BPE_NO_RANK || (m->left == left && m->right == right))
            return m;
    }
}

/* Bytes of the valid UTF-8 character that begins with this byte. */
static inline unsigned
bpe_char_len(uint8_t first)
{
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

#endif
