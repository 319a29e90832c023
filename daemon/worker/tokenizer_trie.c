/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/tokenizer_trie.h"

#include "daemon/common/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TRI_FIRST_CELLS 1024u

int
tri_init(struct tri *t)
{
    t->cell = calloc(TRI_FIRST_CELLS, sizeof(*t->cell));
    t->mask = TRI_FIRST_CELLS - 1;
    t->n_nodes = TRI_ROOT;
    return t->cell ? 0 : -ENOMEM;
}

void
tri_fini(struct tri *t)
{
    free(t->cell);
    *t = (struct tri){ 0 };
}

/* Twice the cells. */
static int
tri_grow(struct tri *t)
{
    uint32_t mask = 2 * t->mask + 1, i, k;
    struct tri_cell *cell = calloc((size_t)mask + 1, sizeof(*cell));

    if (!cell)
        return -ENOMEM;
    for (i = 0; i <= t->mask; i++) {
        if (!t->cell[i].key)
            continue;
        for (k = tri_hash(t->cell[i].key) & mask; cell[k].key; k = (k + 1) & mask)
            ;
        cell[k] = t->cell[i];
    }
    free(t->cell);
    t->cell = cell;
    t->mask = mask;
    return 0;
}

int
tri_put(struct tri *t, const uint8_t *entry, size_t n, int32_t value)
{
    struct tri_cell *c = NULL;
    uint32_t node = TRI_ROOT, cp = 0, i;
    size_t at = 0;

    while (at < n) {
        uint64_t key;

        if (t->n_nodes > t->mask / 2 && tri_grow(t))
            return -ENOMEM;
        at += txt_char(entry + at, n - at, &cp);
        key = (uint64_t)node << 21 | cp;
        for (i = tri_hash(key) & t->mask; t->cell[i].key && t->cell[i].key != key;)
            i = (i + 1) & t->mask;
        c = &t->cell[i];
        if (!c->key)
            *c = (struct tri_cell){ key, ++t->n_nodes, -1 };
        node = c->node;
    }
    if (c)
        c->value = value;
    return 0;
}
