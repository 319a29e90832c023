/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that grow: input, bodies, answers. A failed allocation is remembered, so that a
 * writer looks once, at the end. One thread.
 */
#ifndef FDD_HTTP_BUF_H
#define FDD_HTTP_BUF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct buf {
    char *p; /* [n], and room for a zero behind it */
    size_t n, room;
    int failed; /* no memory: what was added since is lost */
};

void buf_fini(struct buf *b);
/* Forget what is in it; give back what is more than keep bytes. */
void buf_clear(struct buf *b, size_t keep);
/* It has failed, for want of memory elsewhere. */
void buf_fail(struct buf *b);
/* Has any of this process? */
int buf_any_failed(void);
/* Room for more bytes behind n, and a zero. NULL: no memory. */
char *buf_room(struct buf *b, size_t more);
/* Where room is lacking. */
void buf_add_more(struct buf *b, const void *p, size_t n);
static inline void
buf_add(struct buf *b, const void *p, size_t n)
{
    if (n == 0 || b->room - b->n <= n) {
        buf_add_more(b, p, n);
        return;
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = '\0';
}
/* Of a constant it is a store or two. */
static inline void
buf_str(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}
__attribute__((format(printf, 2, 3))) void buf_fmt(struct buf *b, const char *fmt, ...);
void buf_u64(struct buf *b, uint64_t v);
/* Drop n bytes at the front. */
void buf_drop(struct buf *b, size_t n);

/* The value of a hex digit; -1: it is none. */
int buf_hex(char c);
/* A JSON string with its quotes. What is no UTF-8 becomes U+FFFD. */
void buf_json(struct buf *b, const char *p, size_t n);
/* A number in the fewest digits that give it back; infinities are +-9999. */
void buf_real(struct buf *b, double v);

#endif
