/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif

#include "http/page.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/sha256.h"
#include "http/conn.h"
#include "http/route.h"

#define PAGE_MAX     40960
#define PAGE_HASH    45 /* base64 of 32 bytes, and a zero */
#define PAGE_HEADERS 1024

static const unsigned char page[] = {
#include "http/page.inc"
};
_Static_assert(sizeof(page) <= PAGE_MAX, "the page stays small");

static void
base64(const uint8_t *in, size_t n, char *ret)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)in[i] << 16;

        v |= i + 1 < n ? (uint32_t)in[i + 1] << 8 : 0;
        v |= i + 2 < n ? in[i + 2] : 0;
        *ret++ = digits[v >> 18];
        *ret++ = digits[v >> 12 & 63];
        *ret++ = i + 1 < n ? digits[v >> 6 & 63] : '=';
        *ret++ = i + 2 < n ? digits[v & 63] : '=';
    }
    *ret = '\0';
}

/* The hash of the text between two tags, in the form of a CSP header. */
static int
hash_between(const char *text, size_t n, const char *from, const char *to, char *ret)
{
    const char *a = memmem(text, n, from, strlen(from)), *b;
    struct sha256 s;
    uint8_t sum[32];

    if (a == NULL)
        return -EINVAL;
    a += strlen(from);
    b = memmem(a, n - (size_t)(a - text), to, strlen(to));
    if (b == NULL)
        return -EINVAL;
    sha256_init(&s);
    sha256_add(&s, a, (size_t)(b - a));
    sha256_end(&s, sum);
    base64(sum, sizeof(sum), ret);
    return 0;
}

int
page_headers(const char *text, size_t n, char *ret, size_t ret_bytes)
{
    char script[PAGE_HASH], style[PAGE_HASH];
    int k;

    if (hash_between(text, n, "<script>", "</script>", script) != 0 ||
        hash_between(text, n, "<style>", "</style>", style) != 0)
        return -EINVAL;
    /* Trusted types: text of an answer cannot become markup, even by a bug in the script. */
    k = snprintf(ret, ret_bytes,
        "Content-Security-Policy: default-src 'none'; script-src 'sha256-%s'; "
        "style-src 'sha256-%s'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Referrer-Policy: no-referrer\r\n"
        "Cache-Control: no-cache\r\n",
        script, style);
    return k < 0 || (size_t)k >= ret_bytes ? -ENOSPC : 0;
}

void
rt_page(struct conn *c)
{
    struct problem bad;
    char headers[PAGE_HEADERS];

    if (!c->g->par->http_page) {
        (void)prb_set(&bad, 404, "page_off", "the page is turned off (http.page)");
        conn_problem(c, &bad);
        return;
    }
    if (page_headers((const char *)page, sizeof(page), headers, sizeof(headers)) != 0) {
        (void)prb_set(&bad, 500, NULL, "the page has no script or no style");
        conn_problem(c, &bad);
        return;
    }
    conn_reply(c, 200, "text/html; charset=utf-8", headers, page, sizeof(page));
}
