/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "chat/arena.h"

#include <stdlib.h>
#include <string.h>

#define ARN_CHUNK 16384u
#define ARN_ALIGN 16u

struct arn_chunk {
    struct arn_chunk *next;
    size_t bytes;
    unsigned char data[] __attribute__((aligned(16)));
};

void
arn_init(struct arena *a, size_t limit)
{
    *a = (struct arena){ .limit = limit };
}

void
arn_fini(struct arena *a)
{
    while (a->chunk != NULL) {
        struct arn_chunk *c = a->chunk;

        a->chunk = c->next;
        free(c);
    }
    a->room = a->at = a->used = 0;
}

void *
arn_get(struct arena *a, size_t bytes)
{
    void *p;

    if (bytes > a->limit)
        return NULL;
    bytes = (bytes + ARN_ALIGN - 1) & ~(size_t)(ARN_ALIGN - 1);
    if (bytes > a->room - a->at) {
        size_t n = bytes > ARN_CHUNK ? bytes : ARN_CHUNK;
        struct arn_chunk *c;

        if (n > a->limit - a->used && bytes <= a->limit - a->used)
            n = bytes;
        if (n > a->limit - a->used)
            return NULL;
        c = malloc(sizeof(*c) + n);
        if (c == NULL)
            return NULL;
        c->next = a->chunk;
        c->bytes = n;
        a->chunk = c;
        a->used += n;
        a->at = 0;
        a->room = n;
    }
    p = a->chunk->data + a->at;
    a->at += bytes;
    memset(p, 0, bytes);
    return p;
}
