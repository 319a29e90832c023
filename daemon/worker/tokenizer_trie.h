/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Entries of valid UTF-8 by their characters, for walking down along a text. */
#ifndef FDD_DAEMON_WORKER_TOKENIZER_TRIE_H
#define FDD_DAEMON_WORKER_TOKENIZER_TRIE_H

#include <stddef.h>
#include <stdint.h>

#define TRI_ROOT 1u /* 0: nowhere */

/* An edge: the node it leads to, and the value of the entry that ends there. */
struct tri_cell {
    uint64_t key; /* node it leaves, then character; 0: empty */
    uint32_t node;
    int32_t value; /* -1: none ends there */
};

struct tri {
    struct tri_cell *cell;
    uint32_t mask, n_nodes; /* nodes are 1 .. n_nodes */
};

/* An empty one, to be given to tri_fini(). -ENOMEM. */
int tri_init(struct tri *t);

void tri_fini(struct tri *t);

/* Enters a entry of n bytes, n > 0; a later value replaces the earlier. -ENOMEM. */
int tri_put(struct tri *t, const uint8_t *entry, size_t n, int32_t value);

static inline uint32_t
tri_hash(uint64_t key)
{
    return (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32);
}

/* Along the character cp from a node: its edge, NULL if there is none. */
static inline const struct tri_cell *
tri_step(const struct tri *t, uint32_t node, uint32_t cp)
{
    uint64_t key = (uint64_t)node << 21 | cp;
    uint32_t i = tri_hash(key) & t->mask;

    for (;; i = (i + 1) & t->mask) {
        if (t->cell[i].key == key)
            return &t->cell[i];
        if (!t->cell[i].key)
            return NULL;
    }
}

#endif
