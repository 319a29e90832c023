/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/tokenizer_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int
tok_buf_put(struct tok_buf *b, const void *p, size_t n)
{
    if (n > b->cap - b->n) {
        size_t cap = b->cap ? b->cap : 256;
        uint8_t *q;

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
    }
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

int
tok_ld_err(struct tok_ld *ld, int rc, const char *fmt, ...)
{
    va_list ap;
    int n;

    n = snprintf(ld->err, ld->err_bytes, "%s: ", ld->file);
    if (n >= 0 && (size_t)n < ld->err_bytes) {
        va_start(ap, fmt);
        vsnprintf(ld->err + n, ld->err_bytes - (size_t)n, fmt, ap);
        va_end(ap);
    }
    return rc;
}
