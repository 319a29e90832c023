/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/heap.h"

#include <stddef.h>

#include "daemon/common/obj.h"

static int
precedes(const struct heap_node *a, const struct heap_node *b)
{
    return a->key != b->key ? a->key < b->key : a->seq < b->seq;
}

/* Merges two heaps, whose first nodes have no siblings. */
static struct heap_node *
meld(struct heap_node *a, struct heap_node *b)
{
    if (a == NULL || (b != NULL && precedes(b, a))) {
        struct heap_node *t = a;

        a = b;
        b = t;
    }
    if (b == NULL)
        return a;
    b->prev = a;
    b->next = a->child;
    if (b->next != NULL)
        b->next->prev = b;
    a->child = b;
    return a;
}

/* Merges siblings into one heap: two by two from the front, then these from the back. */
static struct heap_node *
meld_all(struct heap_node *n)
{
    struct heap_node *done = NULL, *all = NULL;

    while (n != NULL) {
        struct heap_node *a = n, *b = n->next;

        n = b != NULL ? b->next : NULL;
        a->next = a->prev = NULL;
        if (b != NULL)
            b->next = b->prev = NULL;
        a = meld(a, b);
        a->next = done;
        done = a;
    }
    while (done != NULL) {
        n = done->next;
        done->next = NULL;
        all = meld(all, done);
        done = n;
    }
    return all;
}

void
heap_add(struct heap *h, struct heap_node *n)
{
    n->child = n->next = n->prev = NULL;
    h->first = meld(h->first, n);
}

void
heap_remove(struct heap *h, struct heap_node *n)
{
    struct heap_node *below = meld_all(n->child);

    if (h->first == n) {
        h->first = below;
    } else {
        ASSERT(n->prev != NULL);
        if (n->prev->child == n)
            n->prev->child = n->next;
        else
            n->prev->next = n->next;
        if (n->next != NULL)
            n->next->prev = n->prev;
        h->first = meld(h->first, below);
    }
    n->child = n->next = n->prev = NULL;
}
