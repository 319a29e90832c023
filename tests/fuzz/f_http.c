/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an HTTP request: however they are split, the reader gives the same result,
 * frames lie within the input, and a chunked body is within its limit.
 */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/h1.h"

#define MUST(e) \
    do { \
        if (!(e)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #e); \
            abort(); \
        } \
    } while (0)
#define MAX_BODY 1000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void
chunks(const char *p, size_t n)
{
    struct buf whole = { NULL }, cut = { NULL };
    struct h1_chunks a = { 0 }, b = { 0 };
    const char *why = NULL;
    size_t used, at = 0;
    int ra = h1_chunk(&a, p, n, &used, &whole, MAX_BODY, &why), rb = 0;

    while (at < n && rb == 0) {
        size_t one;

        rb = h1_chunk(&b, p + at, 1, &one, &cut, MAX_BODY, &why);
        at += one;
    }
    MUST(ra == rb && whole.n == cut.n && whole.n <= MAX_BODY && used <= n);
    MUST(ra == -413 || at == used);
    MUST(whole.n == 0 || memcmp(whole.p, cut.p, whole.n) == 0);
    buf_fini(&whole);
    buf_fini(&cut);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *p = (const char *)data;
    size_t scanned = 0;
    struct h1 h, cut;
    int whole = h1_head(&h, p, n, 4096, &scanned), rc = 0;

    scanned = 0;
    for (size_t i = 1; i <= n && rc == 0; i++)
        rc = h1_head(&cut, p, i, 4096, &scanned);
    /* in a text with two errors, a split may report the first one */
    MUST(whole >= 0 ? rc == whole : rc < 0);
    if (whole > 0) {
        MUST((size_t)whole <= n && memcmp(p + whole - 4, "\r\n\r\n", 4) == 0);
        MUST(h.path.at + h.path.n <= (uint32_t)whole &&
            h.host.at + h.host.n <= (uint32_t)whole);
        MUST(!(h.chunked && h.has_length));
        MUST(h.minor == 0 || h.host.n > 0);
        chunks(p + whole, n - (size_t)whole);
    }
    chunks(p, n);
    return 0;
}
