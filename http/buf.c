/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/buf.h"

#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/text.h"

static atomic_int any_failed;

void
buf_fail(struct buf *b)
{
    b->failed = 1;
    atomic_store_explicit(&any_failed, 1, memory_order_relaxed);
}

int
buf_any_failed(void)
{
    return atomic_load_explicit(&any_failed, memory_order_relaxed);
}

void
buf_fini(struct buf *b)
{
    free(b->p);
    memset(b, 0, sizeof(*b));
}

void
buf_clear(struct buf *b, size_t keep)
{
    if (b->room > keep) {
        free(b->p);
        b->p = NULL;
        b->room = 0;
    }
    b->n = 0;
    b->failed = 0;
}

char *
buf_room(struct buf *b, size_t more)
{
    size_t want = b->n + more + 1, room = b->room;
    char *p;

    if (want <= b->room)
        return b->p + b->n;
    /* Double it; from a MiB on add a quarter, so that a large body does not take twice
     * its size. */
    if (want < 256)
        room = 256;
    else
        room = want + (want < (1u << 20) ? want : want / 4);
    p = realloc(b->p, room);
    if (p == NULL) {
        buf_fail(b);
        return NULL;
    }
    b->p = p;
    b->room = room;
    return p + b->n;
}

void
buf_add_more(struct buf *b, const void *p, size_t n)
{
    char *to = buf_room(b, n);

    if (to == NULL)
        return;
    if (n > 0)
        memcpy(to, p, n);
    b->n += n;
    b->p[b->n] = '\0';
}

void
buf_fmt(struct buf *b, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (n > 0)
        buf_add(b, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

void
buf_u64(struct buf *b, uint64_t v)
{
    char text[20], *p = text + sizeof(text);

    do
        *--p = (char)('0' + v % 10);
    while ((v /= 10) != 0);
    buf_add(b, p, (size_t)(text + sizeof(text) - p));
}

void
buf_drop(struct buf *b, size_t n)
{
    if (n < b->n)
        memmove(b->p, b->p + n, b->n - n);
    b->n = n < b->n ? b->n - n : 0;
}

int
buf_hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0'
        : c >= 'a' && c <= 'f'  ? c - 'a' + 10
        : c >= 'A' && c <= 'F'  ? c - 'A' + 10
                                : -1;
}

/* Number of bytes from p that need no escape. */
static size_t
plain(const char *p, size_t n)
{
    size_t i = 0;

    while (i < n && (unsigned char)p[i] >= 0x20 && (unsigned char)p[i] < 0x7f &&
        p[i] != '"' && p[i] != '\\')
        i++;
    return i;
}

void
buf_json(struct buf *b, const char *p, size_t n)
{
    buf_add(b, "\"", 1);
    while (n > 0) {
        size_t k = plain(p, n);
        unsigned char c;

        buf_add(b, p, k);
        p += k;
        n -= k;
        if (n == 0)
            break;
        c = (unsigned char)*p;
        k = 1;
        if (c == '"' || c == '\\') {
            char text[2] = { '\\', (char)c };

            buf_add(b, text, 2);
        } else if (c == '\n') {
            buf_add(b, "\\n", 2);
        } else if (c < 0x20 || c == 0x7f) {
            buf_fmt(b, "\\u%04x", c);
        } else {
            uint32_t cp;

            k = txt_char(p, n, &cp);
            if (k == 0)
                buf_add(b, "\xef\xbf\xbd", 3);
            else
                buf_add(b, p, k);
            k = k == 0 ? 1 : k;
        }
        p += k;
        n -= k;
    }
    buf_add(b, "\"", 1);
}

void
buf_real(struct buf *b, double v)
{
    char text[40];
    int digits = 6;

    if (isnan(v)) {
        buf_str(b, "null");
        return;
    }
    if (isinf(v)) {
        buf_str(b, v < 0 ? "-9999.0" : "9999.0");
        return;
    }
    do
        (void)snprintf(text, sizeof(text), "%.*g", digits, v);
    while (strtod(text, NULL) != v && ++digits <= 17);
    if (strpbrk(text, ".en") == NULL)
        (void)strncat(text, ".0", sizeof(text) - strlen(text) - 1);
    buf_str(b, text);
}
