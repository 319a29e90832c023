/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of one template or one rendering: taken piece by piece, given back at
 * once, and bounded. Any thread, one at a time.
 */
#ifndef FDD_CHAT_ARENA_H
#define FDD_CHAT_ARENA_H

#include <stddef.h>

struct arn_chunk;
struct arena {
    struct arn_chunk *chunk; /* newest first */
    size_t at, room;         /* in the newest */
    size_t used, limit;      /* bytes of all */
};

void arn_init(struct arena *a, size_t limit);
void arn_fini(struct arena *a);
/* Zeroed, aligned to 16. NULL: the limit is reached, or there is no memory. */
void *arn_get(struct arena *a, size_t bytes);

#endif
