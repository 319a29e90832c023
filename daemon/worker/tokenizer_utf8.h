/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Characters of text that is known to be valid UTF-8. */
#ifndef FDD_DAEMON_WORKER_TOKENIZER_UTF8_H
#define FDD_DAEMON_WORKER_TOKENIZER_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Reads one character of valid UTF-8 at s; returns its length. */
static inline unsigned
tok_utf8_get(const uint8_t *s, uint32_t *ret_cp)
{
    if (s[0] < 0x80) {
        *ret_cp = s[0];
        return 1;
    }
    if (s[0] < 0xe0) {
        *ret_cp = (uint32_t)(s[0] & 0x1f) << 6 | (s[1] & 0x3f);
        return 2;
    }
    if (s[0] < 0xf0) {
        *ret_cp =
            (uint32_t)(s[0] & 0xf) << 12 | (uint32_t)(s[1] & 0x3f) << 6 | (s[2] & 0x3f);
        return 3;
    }
    *ret_cp = (uint32_t)(s[0] & 7) << 18 | (uint32_t)(s[1] & 0x3f) << 12 |
        (uint32_t)(s[2] & 0x3f) << 6 | (s[3] & 0x3f);
    return 4;
}

/* The start of the character that ends at end, > 0. */
static inline size_t
tok_utf8_back(const uint8_t *s, size_t end)
{
    do
        end--;
    while ((s[end] & 0xc0) == 0x80);
    return end;
}

static inline bool
tok_is_ascii(const uint8_t *s, size_t n)
{
    uint64_t v;

    for (; n >= 8; s += 8, n -= 8) {
        memcpy(&v, s, 8);
        if (v & 0x8080808080808080u)
            return false;
    }
    for (; n; s++, n--)
        if (*s >= 0x80)
            return false;
    return true;
}

#endif
