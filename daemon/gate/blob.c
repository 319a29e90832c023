/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/blob.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Written over the start of a freed blob. */
struct blb_old {
    struct blb_old *next;
    uint32_t bytes;
};

unsigned char *
blb_new(uint32_t bytes)
{
    void *p;

    if (bytes <= BLB_LONG)
        return malloc(bytes);
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p != MAP_FAILED ? p : NULL;
}

void
blb_free(struct blobs *b, unsigned char *p, uint32_t bytes)
{
    struct blb_old *o = (void *)p;

    if (bytes <= BLB_LONG || p == NULL) {
        free(p);
        return;
    }
    o->next = b->first;
    o->bytes = bytes;
    b->first = o;
}

int
blb_sweep(struct blobs *b)
{
    struct blb_old *o = b->first;
    uint32_t rest;

    if (o == NULL)
        return 0;
    if (o->bytes <= BLB_PIECE) {
        b->first = o->next;
        (void)munmap(o, o->bytes);
        return 1;
    }
    /* from the end, at a multiple of BLB_PIECE, so that the rest is one mapping */
    rest = (o->bytes - 1) / BLB_PIECE * BLB_PIECE;
    (void)munmap((char *)o + rest, o->bytes - rest);
    o->bytes = rest;
    return 1;
}

void
blb_fini(struct blobs *b)
{
    while (blb_sweep(b))
        continue;
}
