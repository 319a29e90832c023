/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes of the contents of KV blocks: hash i of a sequence covers its first
 * (i + 1) * block_size token ids, the user, the salt and the rotation, so that equal
 * hashes mean equal KV and no user finds another user's blocks. SipHash-2-4
 * with 128 bits of output, chained, under a key drawn when the worker starts.
 * Pure functions; ingress hashes prompts, in slices, the engine hashes generated
 * tokens. {0, 0} stands for no hash and is never returned.
 */
#ifndef FDD_DAEMON_WORKER_PREFIX_H
#define FDD_DAEMON_WORKER_PREFIX_H

#include <stddef.h>
#include <stdint.h>

struct kv_hash {
    uint64_t a, b;
};
struct pfx_key {
    uint64_t k0, k1;
};

/* Draw a key from the system's random generator. 0 or -errno. */
int pfx_key_new(struct pfx_key *ret);
/* The hash that block 0 is chained to. rope identifies the frequencies by which keys are
 * rotated (ing_cfg.rope_from): requests share blocks only if their rope is equal. */
void pfx_root(const struct pfx_key *key, uint64_t user, const uint8_t salt[16],
    int32_t rope, struct kv_hash *ret);
/* Hash of the n ids of a block that follows the block with hash prev. ret may be prev. */
void pfx_next(const struct pfx_key *key, const struct kv_hash *prev, const uint32_t *ids,
    int32_t n, struct kv_hash *ret);
/* SipHash-2-4-128 of len bytes: a and b are the little-endian halves. */
void pfx_bytes(const struct pfx_key *key, const void *p, size_t len, struct kv_hash *ret);

#endif
