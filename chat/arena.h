/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded memory of one template or one rendering, allocated piece by piece and freed as
 * a whole. Any thread, one at a time.
 */
#ifndef FDD_CHAT_ARENA_H
#define FDD_CHAT_ARENA_H

#include <stddef.h>

struct arn_chunk;
struct arena {
    struct arn_chunk *chunk; /* newest first */
    size_t at, room;         /* bytes of the newest: used, and in all */
    size_t used, limit;      /* bytes of all chunks, and the most allowed */
};

void arn_init(struct arena *a, size_t limit);
void arn_fini(struct arena *a);
/* Returns zeroed memory, aligned to 16. NULL: the limit is reached, or no memory. */
void *arn_get(struct arena *a, size_t bytes);

#endif
