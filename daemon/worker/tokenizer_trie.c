/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/tokenizer_trie.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define TRI_BYTES 256u
#define TRI_FREE  UINT32_MAX /* value of `from` in a free cell */
#define TRI_TRIES 24u        /* free cells tried for a node with several bytes */
#define TRI_FEW   16u        /* most entries that are sorted by insertion */

/* Entries e[lo .. hi) share the first `depth` bytes, which lead to the node. */
struct tri_work {
    uint32_t node, lo, hi, depth;
};

/* Free cells form a ring through cell 0: base is the next cell, value the previous
 * one. */
struct tri_builder {
    struct tri t;
    uint32_t end; /* cells from here on are free */
    struct tri_entry *e, *spare;
    struct tri_work *work;
    uint32_t n_work, cap_work;
};

static void
tri_give(struct tri *t, uint32_t i)
{
    uint32_t last = (uint32_t)t->cell[0].value;

    t->cell[i] = (struct tri_cell){ 0, TRI_FREE, (int32_t)last };
    t->cell[last].base = i;
    t->cell[0].value = (int32_t)i;
}

static void
tri_take(struct tri *t, uint32_t i, uint32_t from)
{
    uint32_t next = t->cell[i].base, before = (uint32_t)t->cell[i].value;

    t->cell[before].base = next;
    t->cell[next].value = (int32_t)before;
    t->cell[i] = (struct tri_cell){ 0, from, -1 };
}

/* Doubles the number of cells. */
static int
tri_grow(struct tri *t)
{
    uint32_t n = 2 * t->n, i;
    struct tri_cell *cell = n <= INT32_MAX ? realloc(t->cell, n * sizeof(*cell)) : NULL;

    if (!cell)
        return -ENOMEM;
    t->cell = cell;
    i = t->n;
    t->n = n;
    for (; i < n; i++)
        tri_give(t, i);
    return 0;
}

static int
tri_init(struct tri *t, size_t n)
{
    uint32_t i;

    t->n = 4 * TRI_BYTES;
    while (t->n < 2 * n && t->n < INT32_MAX / 4)
        t->n *= 2;
    t->cell = malloc(t->n * sizeof(*t->cell));
    if (!t->cell)
        return -ENOMEM;
    /* a base is a free cell minus a byte: the first cells stay unused, so that it is
     * not negative */
    for (i = 0; i < TRI_BYTES; i++)
        t->cell[i] = (struct tri_cell){ 0, 0, -1 };
    t->cell[0].value = 0;
    for (; i < t->n; i++)
        tri_give(t, i);
    return 0;
}

/* Whether the cells of these n sorted bytes are free with this base. */
static bool
tri_fits(const struct tri *t, uint32_t base, const uint8_t *byte, unsigned n)
{
    unsigned i;

    if (base + byte[n - 1] >= t->n)
        return false;
    for (i = 1; i < n; i++)
        if (t->cell[base + byte[i]].from != TRI_FREE)
            return false;
    return true;
}

/* Gives a node children for these n sorted bytes, n > 0. */
static int
tri_place(struct tri_builder *b, uint32_t node, const uint8_t *byte, unsigned n)
{
    struct tri *t = &b->t;
    uint32_t at = t->cell[0].base, tries = 0, base, last;
    unsigned i;

    while (at && tries < TRI_TRIES && !tri_fits(t, at - byte[0], byte, n)) {
        at = t->cell[at].base;
        tries++;
    }
    if (!at || tries == TRI_TRIES)
        at = b->end;
    base = at - byte[0];
    last = base + byte[n - 1];
    if (last >= t->n && tri_grow(t))
        return -ENOMEM;
    t->cell[node].base = base;
    for (i = 0; i < n; i++)
        tri_take(t, base + byte[i], node);
    if (last >= b->end)
        b->end = last + 1;
    return 0;
}

/* Adds the rest of a single entry below a node. */
static int
tri_tail(struct tri_builder *b, uint32_t node, const struct tri_entry *e, uint32_t depth)
{
    struct tri *t = &b->t;

    for (; depth < e->n; depth++) {
        if (tri_place(b, node, &e->s[depth], 1))
            return -ENOMEM;
        node = t->cell[node].base + e->s[depth];
    }
    t->cell[node].value = e->value;
    return 0;
}

/* Sorts entries, longer than depth, by the byte at depth; stable. */
static void
tri_sort(struct tri_builder *b, uint32_t lo, uint32_t hi, uint32_t depth)
{
    uint32_t at[TRI_BYTES + 1] = { 0 }, i, k;

    if (hi - lo <= TRI_FEW) {
        for (i = lo + 1; i < hi; i++) {
            struct tri_entry e = b->e[i];

            for (k = i; k > lo && b->e[k - 1].s[depth] > e.s[depth]; k--)
                b->e[k] = b->e[k - 1];
            b->e[k] = e;
        }
        return;
    }
    for (i = lo; i < hi; i++)
        at[b->e[i].s[depth] + 1]++;
    for (i = 1; i < TRI_BYTES; i++)
        at[i] += at[i - 1];
    for (i = lo; i < hi; i++)
        b->spare[at[b->e[i].s[depth]]++] = b->e[i];
    memcpy(b->e + lo, b->spare, (hi - lo) * sizeof(*b->e));
}

static int
tri_push(struct tri_builder *b, struct tri_work w)
{
    uint32_t cap = b->cap_work ? 2 * b->cap_work : TRI_BYTES;
    struct tri_work *work;

    if (b->n_work == b->cap_work) {
        work = realloc(b->work, cap * sizeof(*work));
        if (!work)
            return -ENOMEM;
        b->work = work;
        b->cap_work = cap;
    }
    b->work[b->n_work++] = w;
    return 0;
}

/* Removes entries that end at the node; the last of them gives its value. */
static uint32_t
tri_ends(struct tri_builder *b, struct tri_work w)
{
    uint32_t i, k = w.lo;

    for (i = w.lo; i < w.hi; i++)
        if (b->e[i].n > w.depth)
            b->e[k++] = b->e[i];
        else if (w.depth)
            b->t.cell[w.node].value = b->e[i].value;
    return k;
}

static int
tri_node(struct tri_builder *b, struct tri_work w)
{
    uint8_t byte[TRI_BYTES] = { 0 };
    uint32_t first[TRI_BYTES + 1], i;
    unsigned n = 0;
    int rc;

    w.hi = tri_ends(b, w);
    if (w.lo == w.hi)
        return 0;
    if (w.hi - w.lo == 1)
        return tri_tail(b, w.node, &b->e[w.lo], w.depth);
    tri_sort(b, w.lo, w.hi, w.depth);
    for (i = w.lo; i < w.hi; i++)
        if (!n || b->e[i].s[w.depth] != byte[n - 1]) {
            byte[n] = b->e[i].s[w.depth];
            first[n++] = i;
        }
    first[n] = w.hi;
    rc = tri_place(b, w.node, byte, n);
    for (i = n; !rc && i--;)
        rc = tri_push(b,
            (struct tri_work){ b->t.cell[w.node].base + byte[i], first[i], first[i + 1],
                w.depth + 1 });
    return rc;
}

/* Clears the free cells, and frees those that no base can reach. */
static int
tri_seal(struct tri_builder *b)
{
    uint32_t n = b->end + TRI_BYTES, i;
    struct tri_cell *cell = realloc(b->t.cell, n * sizeof(*cell));

    if (!cell)
        return -ENOMEM;
    for (i = 0; i < n; i++)
        if (i >= b->end || i == 0 || cell[i].from == TRI_FREE)
            cell[i] = (struct tri_cell){ 0, 0, -1 };
    b->t = (struct tri){ cell, n };
    return 0;
}

int
tri_build(struct tri *t, struct tri_entry *e, size_t n)
{
    struct tri_builder b = { .end = TRI_BYTES, .e = e };
    int rc = n < INT32_MAX ? tri_init(&b.t, n) : -ENOMEM;

    b.spare = malloc((n ? n : 1) * sizeof(*b.spare));
    if (!b.spare)
        rc = -ENOMEM;
    if (!rc)
        rc = tri_push(&b, (struct tri_work){ TRI_ROOT, 0, (uint32_t)n, 0 });
    while (!rc && b.n_work)
        rc = tri_node(&b, b.work[--b.n_work]);
    rc = rc ? rc : tri_seal(&b);
    free(b.spare);
    free(b.work);
    if (rc)
        tri_fini(&b.t);
    *t = b.t;
    return rc;
}

void
tri_fini(struct tri *t)
{
    free(t->cell);
    *t = (struct tri){ 0 };
}
