/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for the items of requests. A long blob is a mapping of its own and is given back
 * in pieces, one per loop iteration: to unmap 16 MiB at once takes 3 ms, and malloc()
 * would keep the memory. Called by the thread of the loop.
 */
#ifndef FDD_DAEMON_GATE_BLOB_H
#define FDD_DAEMON_GATE_BLOB_H

#include <stdint.h>

#define BLB_LONG  65536u       /* longer blobs are mappings of their own */
#define BLB_PIECE (256u << 10) /* bytes unmapped at a time, which takes some 25 us */

struct blb_old;
struct blobs {
    struct blb_old *first;
}; /* freed blobs that are still partly mapped */

/* Allocates a blob. NULL: no memory. */
unsigned char *blb_new(uint32_t bytes);
/* p may be NULL. */
void blb_free(struct blobs *b, unsigned char *p, uint32_t bytes);
/* Unmaps one piece. Returns the number of pieces unmapped, 0 or 1. */
int blb_sweep(struct blobs *b);
void blb_fini(struct blobs *b);

#endif
