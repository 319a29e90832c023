/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TXT_WORD 63

/* Length of a character that begins with c, which is not ASCII; 0: c begins none. */
static inline size_t
txt_lead(unsigned c)
{
    return c < 0xc2 || c > 0xf4 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* Can c be the second byte of a character that begins with lead? */
static inline int
txt_second(unsigned lead, unsigned c)
{
    unsigned lo = 0x80, hi = 0xbf;

    if (lead == 0xe0)
        lo = 0xa0; /* lower ones are overlong forms */
    else if (lead == 0xed)
        hi = 0x9f; /* higher ones are surrogates */
    else if (lead == 0xf0)
        lo = 0x90; /* lower ones are overlong forms */
    else if (lead == 0xf4)
        hi = 0x8f; /* higher ones are past U+10FFFF */
    return c >= lo && c <= hi;
}

/* Length of the well-formed character at p, which does not begin with ASCII; 0: none. */
static inline size_t
txt_len(const unsigned char *p, size_t n)
{
    size_t len = txt_lead(p[0]);

    if (len == 0 || n < len || !txt_second(p[0], p[1]))
        return 0;
    if (len > 2 && (p[2] & 0xc0) != 0x80)
        return 0;
    if (len > 3 && (p[3] & 0xc0) != 0x80)
        return 0;
    return len;
}

size_t
txt_goes_on(const void *s, size_t n, unsigned char c)
{
    const unsigned char *p = s;

    if (n == 0)
        return c < 0x80 ? 1 : txt_lead(c);
    if (n == 1 ? !txt_second(p[0], c) : (c & 0xc0) != 0x80)
        return 0;
    return txt_lead(p[0]);
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

size_t
txt_put(uint32_t cp, void *ret)
{
    size_t len = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4, i;
    unsigned char *p = ret;

    for (i = len; i-- > 1; cp >>= 6)
        p[i] = (unsigned char)(0x80 | (cp & 0x3f));
    p[0] = (unsigned char)(len == 1 ? cp : (0xf00u >> len & 0xff) | cp);
    return len;
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

int
txt_field(const char *text, const char *key, char *ret, size_t ret_bytes)
{
    size_t n = strlen(key), len;

    while (strncmp(text, key, n) != 0 || strchr(" \t:=", text[n]) == NULL) {
        text += strcspn(text, "\n");
        if (*text++ == '\0')
            return -ENOENT;
    }
    text += n + strspn(text + n, " \t:=");
    len = strcspn(text, "\n");
    while (len > 0 && strchr(" \t\r\"", text[len - 1]) != NULL)
        len--;
    if (len > 0 && *text == '"')
        text++, len--;
    (void)snprintf(ret, ret_bytes, "%.*s", (int)len, text);
    return 0;
}

static int
txt_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int
txt_range(const char **list, unsigned long *ret_from, unsigned long *ret_to)
{
    const char *p = *list;
    char *end;

    if (!txt_is_digit(*p))
        return *p == '\0' || *p == '\n' ? 0 : -EINVAL;
    *ret_from = *ret_to = strtoul(p, &end, 10);
    if (*end == '-' && txt_is_digit(end[1]))
        *ret_to = strtoul(end + 1, &end, 10);
    if (*ret_from > *ret_to ||
        (*end == ',' ? !txt_is_digit(end[1]) : *end != '\0' && *end != '\n'))
        return -EINVAL;
    *list = *end == ',' ? end + 1 : end;
    return 1;
}

int
txt_add(char *text, size_t bytes, const char *fmt, ...)
{
    size_t at = strlen(text);
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text + at, bytes - at, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < bytes - at)
        return 0;
    text[at] = '\0';
    return -ENOSPC;
}
