/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A pairing heap: finds the first of many objects. Its nodes are members of the objects,
 * so that nothing is allocated and nothing can fail. Among equal keys the lower seq is
 * first. Adding takes constant time; removing any of n nodes log n on average over many
 * calls.
 */
#ifndef FDD_DAEMON_GATE_HEAP_H
#define FDD_DAEMON_GATE_HEAP_H

#include <stdint.h>

struct heap_node {
    int64_t key; /* set by the caller; must not change while it is in a heap */
    uint64_t seq;
    struct heap_node *child; /* first child */
    struct heap_node *next;  /* next sibling */
    struct heap_node *prev;  /* previous sibling; for a first child its parent */
};

struct heap {
    struct heap_node *first; /* NULL: empty */
};

/* n must not be in a heap. */
void heap_add(struct heap *h, struct heap_node *n);
/* n must be in h. */
void heap_remove(struct heap *h, struct heap_node *n);

#endif
