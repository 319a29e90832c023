/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for the items of requests: short ones from malloc(), long ones as whole pages.
 * Called by the thread of the loop.
 */
#ifndef FDD_DAEMON_GATE_BLOB_H
#define FDD_DAEMON_GATE_BLOB_H

#include <stdint.h>

#define BLB_LONG 65536u /* longer blobs are whole pages */

struct pages;

/* Allocates a blob. NULL: no memory. */
unsigned char *blb_new(struct pages *g, uint32_t bytes);
/* p may be NULL. At most the first `used` of its bytes were written. pgs_sweep() then gives
 * back a long one. */
void blb_free(struct pages *g, unsigned char *p, uint32_t bytes, uint32_t used);

#endif
