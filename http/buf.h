/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing buffer of bytes for input, bodies and answers. A failed allocation is
 * remembered, so that a writer checks once, at the end. One thread.
 */
#ifndef FDD_HTTP_BUF_H
#define FDD_HTTP_BUF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct buf {
    char *p; /* [n], and room for a zero after it */
    size_t n, room;
    int failed; /* an allocation failed: bytes added since are lost */
};

void buf_fini(struct buf *b);
/* Empty it, and free its memory if that is more than keep bytes. */
void buf_clear(struct buf *b, size_t keep);
/* Mark it as failed, because memory was lacking elsewhere. */
void buf_fail(struct buf *b);
/* Has any buffer of this process failed? */
int buf_any_failed(void);
/* Make room for `more` bytes and a terminating zero after the n bytes. Returns the start
 * of the room; NULL: no memory. */
char *buf_room(struct buf *b, size_t more);
/* buf_add() for when room is lacking. */
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
/* For a constant string the compiler makes it a few stores. */
static inline void
buf_str(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}
__attribute__((format(printf, 2, 3))) void buf_fmt(struct buf *b, const char *fmt, ...);
void buf_u64(struct buf *b, uint64_t v);
/* Drop n bytes at the front. */
void buf_drop(struct buf *b, size_t n);

/* The value of a hex digit; -1: c is not one. */
int buf_hex(char c);
/* Add a JSON string with its quotes. Invalid UTF-8 becomes U+FFFD. */
void buf_json(struct buf *b, const char *p, size_t n);
/* Add a number in the fewest digits that read back the same; infinities are +-9999. */
void buf_real(struct buf *b, double v);

#endif
