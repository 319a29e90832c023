/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/text.h"

#include <string.h>

#define TXT_WORD 63

/* Bytes of the well-formed character at p that begins with no ASCII; 0: none. */
static inline size_t
txt_len(const unsigned char *p, size_t n)
{
    unsigned c = p[0], lo = 0x80, hi = 0xbf;
    size_t len = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;

    if (c < 0xc2 || c > 0xf4 || n < len)
        return 0;
    if (c == 0xe0)
        lo = 0xa0; /* overlong below */
    else if (c == 0xed)
        hi = 0x9f; /* surrogates above */
    else if (c == 0xf0)
        lo = 0x90; /* overlong below */
    else if (c == 0xf4)
        hi = 0x8f; /* past U+10FFFF above */
    if (p[1] < lo || p[1] > hi)
        return 0;
    if (len > 2 && (p[2] & 0xc0) != 0x80)
        return 0;
    if (len > 3 && (p[3] & 0xc0) != 0x80)
        return 0;
    return len;
}

size_t
txt_char(const void *s, size_t n, uint32_t *ret_cp)
{
    const unsigned char *p = s;
    uint32_t cp;
    size_t len;

    if (n == 0)
        return 0;
    if (p[0] < 0x80) {
        *ret_cp = p[0];
        return 1;
    }
    len = txt_len(p, n);
    if (len == 0)
        return 0;
    cp = p[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++)
        cp = cp << 6 | (p[i] & 0x3fu);
    *ret_cp = cp;
    return len;
}

size_t
txt_utf8(const void *s, size_t n)
{
    const unsigned char *p = s;
    size_t i = 0, len;

    while (i < n) {
        uint64_t w;

        if (p[i] >= 0x80) {
            len = txt_len(p + i, n - i);
            if (len == 0)
                return i;
            i += len;
            continue;
        }
        if (n - i >= 8) {
            memcpy(&w, p + i, 8);
            if ((w & 0x8080808080808080ull) == 0) {
                i += 8;
                continue;
            }
        }
        i++;
    }
    return n;
}

unsigned
txt_distance(const char *a, const char *b)
{
    unsigned char row[TXT_WORD + 2];
    size_t i, j, n = strnlen(b, TXT_WORD);

    for (j = 0; j <= n; j++)
        row[j] = (unsigned char)j;
    for (i = 0; i < TXT_WORD && a[i] != '\0'; i++) {
        unsigned char diag = row[0];

        row[0] = (unsigned char)(i + 1);
        for (j = 1; j <= n; j++) {
            unsigned char up = row[j], best = (unsigned char)(diag + (a[i] != b[j - 1]));

            if (up + 1 < best)
                best = (unsigned char)(up + 1);
            if (row[j - 1] + 1 < best)
                best = (unsigned char)(row[j - 1] + 1);
            diag = up;
            row[j] = best;
        }
    }
    return row[n];
}
