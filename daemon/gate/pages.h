/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory in whole pages for the gate's loop, given back to the kernel in pieces, one per
 * loop iteration: to give back 16 MiB at once takes 3 ms, and malloc() would keep them.
 *
 * Address space is never unmapped. mmap() and munmap() write the kernel's list of the
 * mappings of pages of neighbours, under a lock that memory reclaim and compaction hold
 * while they look who maps a page: if such a thread waits for a processor, so would the
 * loop. MADV_DONTNEED takes no such lock. So memory comes in slots of a power of two
 * bytes, cut from mappings of at least PGS_SLAB bytes; a slot that was given back has no
 * pages and is used again. What stays is address space, for the highest use of each size
 * so far in full slabs, and its page tables, 1/512 of it. Huge pages are off: nothing is
 * freed before all of one is given back.
 *
 * Called by the thread of the loop.
 */
#ifndef FDD_DAEMON_GATE_PAGES_H
#define FDD_DAEMON_GATE_PAGES_H

#include <stdint.h>

#define PGS_PIECE (256u << 10) /* bytes given back at a time, which takes some 25 us */
#define PGS_SLAB  (16u << 20)
#define PGS_MIN   14 /* slots of 1 << 14 bytes, and up to 1 << 31 */
#define PGS_SIZES 18

struct pgs_old;
struct pgs_slab;
/* All zero: no memory yet. */
struct pages {
    struct {
        unsigned char **free; /* a stack of slots without pages */
        uint32_t n_free, n;   /* of n slots in all */
    } of[PGS_SIZES];
    struct pgs_old *first; /* freed slots that still have pages */
    struct pgs_slab *slabs;
};

/* Returns at least that many bytes, all zero, or NULL: no memory, or more than 2 GiB. */
void *pgs_new(struct pages *g, uint32_t bytes);
/* p is from pgs_new(), with the same bytes, of which at most the first `used` were
 * written. */
void pgs_free(struct pages *g, void *p, uint32_t bytes, uint32_t used);
/* Gives back one piece of what was freed. Returns the number of pieces, 0 or 1. */
int pgs_sweep(struct pages *g);
/* Unmaps everything, freed or not. */
void pgs_fini(struct pages *g);

#endif
