/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A trie of byte strings, to be followed along a text: a double array. */
#ifndef FDD_DAEMON_WORKER_TOKENIZER_TRIE_H
#define FDD_DAEMON_WORKER_TOKENIZER_TRIE_H

#include <stddef.h>
#include <stdint.h>

#define TRI_ROOT 1u /* node 0 is nowhere */

/* A node. Its child for a byte is the cell base + byte, if the `from` of that cell is
 * this node. */
struct tri_cell {
    uint32_t base, from;
    int32_t value; /* of the entry that ends here, or -1 */
};

struct tri {
    struct tri_cell *cell;
    uint32_t n; /* base + 255 < n in every cell */
};

struct tri_entry {
    const uint8_t *s; /* n bytes */
    uint32_t n;
    int32_t value; /* >= 0 */
};

/*
 * Builds a trie; free it with tri_fini(). Of equal entries the last counts; empty
 * entries are ignored. Reorders e. 0 or -ENOMEM, with t empty.
 */
int tri_build(struct tri *t, struct tri_entry *e, size_t n);

void tri_fini(struct tri *t);

/* The child of a node (not 0) for a byte, or 0 if there is none. */
static inline uint32_t
tri_step(const struct tri *t, uint32_t node, uint8_t byte)
{
    uint32_t to = t->cell[node].base + byte;

    return t->cell[to].from == node ? to : 0;
}

/* The value of the entry that ends at a node, or -1. */
static inline int32_t
tri_value(const struct tri *t, uint32_t node)
{
    return t->cell[node].value;
}

#endif
