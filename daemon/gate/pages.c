/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/pages.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Written over the start of a freed slot. */
struct pgs_old {
    struct pgs_old *next;
    uint32_t bytes; /* at the start of the slot that still have pages */
    uint32_t size;
};

struct pgs_slab {
    struct pgs_slab *next;
    void *p;
    size_t bytes;
};

/* A slot is never smaller than a page. */
static uint32_t
pgs_size(uint32_t bytes)
{
    uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE), size = 0;

    while (size < PGS_SIZES &&
        (bytes > 1u << (PGS_MIN + size) || page > 1u << (PGS_MIN + size)))
        size++;
    return size;
}

/* Maps a slab of at least one slot and adds its slots to the free ones. */
static int
pgs_map(struct pages *g, uint32_t size)
{
    size_t one = (size_t)1 << (PGS_MIN + size), bytes = one > PGS_SLAB ? one : PGS_SLAB;
    uint32_t n = g->of[size].n + (uint32_t)(bytes / one);
    unsigned char **free_ = realloc(g->of[size].free, n * sizeof(*free_));
    struct pgs_slab *s = malloc(sizeof(*s));

    if (free_ != NULL)
        g->of[size].free = free_;
    if (free_ == NULL || s == NULL) {
        free(s);
        return -1;
    }
    s->bytes = bytes;
    s->p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->p == MAP_FAILED) {
        free(s);
        return -1;
    }
    (void)madvise(s->p, bytes, MADV_NOHUGEPAGE); /* fails where there are none */
    s->next = g->slabs;
    g->slabs = s;
    for (size_t at = bytes; at != 0; at -= one)
        free_[g->of[size].n_free++] = (unsigned char *)s->p + at - one;
    g->of[size].n = n;
    return 0;
}

void *
pgs_new(struct pages *g, uint32_t bytes)
{
    uint32_t size = pgs_size(bytes);

    if (size == PGS_SIZES || (g->of[size].n_free == 0 && pgs_map(g, size) != 0))
        return NULL;
    return g->of[size].free[--g->of[size].n_free];
}

void
pgs_free(struct pages *g, void *p, uint32_t bytes, uint32_t used)
{
    struct pgs_old *o = p;

    o->next = g->first;
    o->bytes = used > sizeof(*o) ? used : (uint32_t)sizeof(*o);
    o->size = pgs_size(bytes);
    g->first = o;
}

/* Afterwards all bytes are 0, even if the kernel keeps the pages (locked memory). */
static void
pgs_give(void *p, uint32_t bytes)
{
    if (madvise(p, bytes, MADV_DONTNEED) != 0)
        memset(p, 0, bytes);
}

int
pgs_sweep(struct pages *g)
{
    struct pgs_old *o = g->first;
    uint32_t size, rest;

    if (o == NULL)
        return 0;
    if (o->bytes <= PGS_PIECE) {
        size = o->size;
        g->first = o->next;
        pgs_give(o, o->bytes);
        g->of[size].free[g->of[size].n_free++] = (unsigned char *)o;
        return 1;
    }
    rest = (o->bytes - 1) / PGS_PIECE * PGS_PIECE;
    pgs_give((char *)o + rest, o->bytes - rest);
    o->bytes = rest;
    return 1;
}

void
pgs_fini(struct pages *g)
{
    struct pgs_slab *s, *next;

    for (s = g->slabs; s != NULL; s = next) {
        next = s->next;
        (void)munmap(s->p, s->bytes);
        free(s);
    }
    for (uint32_t i = 0; i < PGS_SIZES; i++)
        free(g->of[i].free);
    memset(g, 0, sizeof(*g));
}
