/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The normal forms of Unicode, in the version of the reference. */
#include "config.h"

#include "daemon/worker/tokenizer_norm.h"

#include <errno.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "daemon/common/text.h"

#define NORM_PART_BYTES    4096u
#define NORM_SORT_SMALL    24u
#define NORM_IN(table, cp) tok_in(table, sizeof(table) / sizeof((table)[0]), cp)

/*
 * Combining marks that are newer than the reference's normalization tables. The
 * reference therefore does not reorder them.
 */
static const struct tok_range norm_unordered[] = {
    { 0x7fd, 0x7fd },
    { 0x898, 0x89f },
    { 0x8ca, 0x8d3 },
    { 0x9fe, 0x9fe },
    { 0xc3c, 0xc3c },
    { 0xd3b, 0xd3c },
    { 0xeba, 0xeba },
    { 0x1715, 0x1715 },
    { 0x1abf, 0x1ace },
    { 0x1df6, 0x1dfa },
    { 0xa82c, 0xa82c },
    { 0x10d24, 0x10d27 },
    { 0x10eab, 0x10eac },
    { 0x10efd, 0x10eff },
    { 0x10f46, 0x10f50 },
    { 0x10f82, 0x10f85 },
    { 0x11070, 0x11070 },
    { 0x1133b, 0x1133b },
    { 0x1145e, 0x1145e },
    { 0x11839, 0x1183a },
    { 0x1193d, 0x1193e },
    { 0x11943, 0x11943 },
    { 0x119e0, 0x119e0 },
    { 0x11a34, 0x11a34 },
    { 0x11a47, 0x11a47 },
    { 0x11a99, 0x11a99 },
    { 0x11d42, 0x11d42 },
    { 0x11d44, 0x11d45 },
    { 0x11d97, 0x11d97 },
    { 0x11f41, 0x11f42 },
    { 0x16ff0, 0x16ff1 },
    { 0x1e08f, 0x1e08f },
    { 0x1e130, 0x1e136 },
    { 0x1e2ae, 0x1e2ae },
    { 0x1e2ec, 0x1e2ef },
    { 0x1e4ec, 0x1e4ef },
};

/* Newer than those tables, too: characters that decompose under NFKC and NFKD only. */
static const struct tok_range norm_uncompat[] = {
    { 0x32ff, 0x32ff },
    { 0xa7f2, 0xa7f4 },
    { 0xab69, 0xab69 },
    { 0x10781, 0x10785 },
    { 0x10787, 0x107b0 },
    { 0x107b2, 0x107ba },
    { 0x1e030, 0x1e06d },
    { 0x1f16c, 0x1f16c },
    { 0x1fbf0, 0x1fbf9 },
};

/* The least lead byte of a character that may change: all below U+0300 is in form C,
 * with lead bytes below 0xcc. */
static uint8_t
norm_lead(enum tok_norm_kind kind)
{
    return kind == TOK_NORM_NFC ? 0xcc : 0x80;
}

bool
tok_norm_form_inert(enum tok_norm_kind kind, const uint8_t *s, size_t n)
{
    uint8_t lead = norm_lead(kind);
    size_t i;

    if (lead == 0x80)
        return tok_is_ascii(s, n);
    for (i = 0; i < n; i++)
        if (s[i] >= lead)
            return false;
    return true;
}

static int
norm_ccc(uint32_t cp)
{
    int ccc = utf8proc_get_property((utf8proc_int32_t)cp)->combining_class;

    return ccc && NORM_IN(norm_unordered, cp) ? 0 : ccc;
}

/*
 * Orders a run of marks by class, keeping equals in order. Runs are short in ordinary
 * text, but an attacker can make them long, hence the counting sort.
 */
static void
norm_sort_marks(int32_t *cp, int32_t *tmp, size_t n)
{
    size_t count[256] = { 0 }, at = 0, i, j;

    if (n <= NORM_SORT_SMALL) {
        for (i = 1; i < n; i++) {
            int32_t x = cp[i];
            int ccc = norm_ccc((uint32_t)x);
            for (j = i; j && norm_ccc((uint32_t)cp[j - 1]) > ccc; j--)
                cp[j] = cp[j - 1];
            cp[j] = x;
        }
        return;
    }
    for (i = 0; i < n; i++)
        count[norm_ccc((uint32_t)cp[i]) & 255]++;
    for (i = 0; i < 256; i++) {
        size_t c = count[i];
        count[i] = at;
        at += c;
    }
    for (i = 0; i < n; i++)
        tmp[count[norm_ccc((uint32_t)cp[i]) & 255]++] = cp[i];
    memcpy(cp, tmp, n * sizeof(*cp));
}

static int
norm_room(struct tok_norm_run *run, size_t n)
{
    int32_t *p;

    if (n <= run->cap_cp)
        return 0;
    p = realloc(run->cp, n * sizeof(*p));
    if (!p)
        return -ENOMEM;
    run->cp = p;
    run->cap_cp = n;
    return 0;
}

/* Decomposes s into run->cp, without ordering the marks. */
static int
norm_decompose(struct tok_norm_run *run, const uint8_t *s, size_t n, bool compat,
    size_t *ret_n)
{
    size_t i = 0, k = 0;

    while (i < n) {
        utf8proc_option_t opt = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
        utf8proc_ssize_t got;
        uint32_t cp;
        int last = 0;

        if (run->cap_cp - k < 32 && norm_room(run, run->cap_cp * 2 + 256))
            return -ENOMEM;
        i += tok_utf8_get(s + i, &cp);
        if (compat && !NORM_IN(norm_uncompat, cp))
            opt |= UTF8PROC_COMPAT;
        if (cp == 0x11938) {
            /* newer than the reference's tables, too */
            run->cp[k++] = (int32_t)cp;
            continue;
        }
        got = utf8proc_decompose_char((utf8proc_int32_t)cp, run->cp + k, 32, opt, &last);
        if (got < 0 || got > 32)
            return -E2BIG;
        k += (size_t)got;
    }
    *ret_n = k;
    return 0;
}

static void
norm_order(struct tok_norm_run *run, size_t n)
{
    size_t i = 0, j;

    while (i < n) {
        if (run->cp[i] < 0x300 || !norm_ccc((uint32_t)run->cp[i])) {
            i++;
            continue;
        }
        for (j = i + 1; j < n && norm_ccc((uint32_t)run->cp[j]); j++)
            ;
        norm_sort_marks(run->cp + i, run->cp + n, j - i);
        i = j;
    }
}

/*
 * Composes in place. The reference treats marks that are missing in its tables as
 * starters, and does not compose U+11935 U+11930. Composing the text between such
 * characters separately has the same result. The same is done for U+11A7, which
 * composes with nothing, but which utf8proc would take for an empty trailing consonant
 * of a syllable and drop.
 */
static int
norm_compose(int32_t *cp, size_t n, size_t *ret_n)
{
    size_t i, j, to = 0;

    for (i = 0; i < n; i = j) {
        utf8proc_ssize_t m;

        for (j = i + 1; j < n; j++)
            if (cp[j] == 0x11930 || cp[j] == 0x11a7 ||
                NORM_IN(norm_unordered, (uint32_t)cp[j]))
                break;
        m = utf8proc_normalize_utf32(cp + i, (utf8proc_ssize_t)(j - i),
            UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (m < 0)
            return -E2BIG;
        if (to != i)
            memmove(cp + to, cp + i, (size_t)m * sizeof(*cp));
        to += (size_t)m;
    }
    *ret_n = to;
    return 0;
}

int
tok_norm_form(enum tok_norm_kind kind, struct tok_norm_run *run, const uint8_t *s,
    size_t n, struct tok_buf *out)
{
    bool compat = kind == TOK_NORM_NFKC || kind == TOK_NORM_NFKD;
    bool compose = kind == TOK_NORM_NFC || kind == TOK_NORM_NFKC;
    size_t k, i;
    uint8_t utf8[4];
    int rc;

    if (tok_norm_form_inert(kind, s, n))
        return tok_buf_put(out, s, n);
    rc = norm_decompose(run, s, n, compat, &k);
    if (rc || (rc = norm_room(run, 2 * k)))
        return rc;
    norm_order(run, k);
    if (compose && (rc = norm_compose(run->cp, k, &k)))
        return rc;
    for (i = 0; i < k; i++) {
        rc = tok_buf_put(out, utf8, txt_put((uint32_t)run->cp[i], utf8));
        if (rc)
            return rc;
    }
    return 0;
}
