/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/tokenizer_rx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int
tok_buf_room(struct tok_buf *b, size_t n)
{
    size_t cap = b->cap ? b->cap : 256;
    uint8_t *q;

    if (n <= b->cap - b->n)
        return 0;
    while (cap - b->n < n) {
        if (cap > SIZE_MAX / 2)
            return -ENOMEM;
        cap *= 2;
    }
    q = realloc(b->p, cap);
    if (!q)
        return -ENOMEM;
    b->p = q;
    b->cap = cap;
    return 0;
}

int
tok_buf_put(struct tok_buf *b, const void *p, size_t n)
{
    if (tok_buf_room(b, n))
        return -ENOMEM;
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    return 0;
}

void
tok_buf_fini(struct tok_buf *b)
{
    free(b->p);
    *b = (struct tok_buf){ 0 };
}
