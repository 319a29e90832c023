/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for the items of requests. A long one is a mapping of its own and is given
 * back in pieces, one an iteration of the loop: 16 MiB at once take 3 ms, and malloc()
 * would keep them. The thread of the loop calls.
 */
#ifndef FDD_DAEMON_GATE_BLOB_H
#define FDD_DAEMON_GATE_BLOB_H

#include <stdint.h>

#define BLB_LONG  65536u     /* longer ones are mapped */
#define BLB_PIECE (1u << 20) /* unmapped at a time: some 100 us */

struct blb_old;
struct blobs {
    struct blb_old *first;
}; /* freed, and still mapped in part */

/* NULL: no memory. */
unsigned char *blb_new(uint32_t bytes);
/* p NULL: nothing. */
void blb_free(struct blobs *b, unsigned char *p, uint32_t bytes);
/* Unmap a piece. Returns the work done. */
int blb_sweep(struct blobs *b);
void blb_fini(struct blobs *b);

#endif
