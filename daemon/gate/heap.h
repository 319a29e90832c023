/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of many is first: a pairing heap of nodes inside what they stand for, so
 * that nothing is allocated and nothing can fail. Of like keys the lesser seq is first.
 * To add takes constant time; to remove any of n, log n on average over many calls.
 */
#ifndef FDD_DAEMON_GATE_HEAP_H
#define FDD_DAEMON_GATE_HEAP_H

#include <stdint.h>

struct heap_node {
    int64_t key; /* the caller's, and not to change while it is in a heap */
    uint64_t seq;
    struct heap_node *child; /* its first */
    struct heap_node *next;  /* sibling */
    struct heap_node *prev;  /* sibling, of a first child the parent */
};

struct heap {
    struct heap_node *first; /* NULL: empty */
};

/* n is in no heap. */
void heap_add(struct heap *h, struct heap_node *n);
/* n is in h. */
void heap_remove(struct heap *h, struct heap_node *n);

#endif
