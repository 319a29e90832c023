/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Normalizers of single characters. */
#include "config.h"

#include "daemon/worker/tokenizer_norm.h"

#include <errno.h>
#include <utf8proc.h>

#include "daemon/common/text.h"

static const struct tok_range norm_chinese[] = {
    { 0x3400, 0x4dbf },
    { 0x4e00, 0x9fff },
    { 0xf900, 0xfaff },
    { 0x20000, 0x2a6df },
    { 0x2a700, 0x2b81f },
    { 0x2b920, 0x2ceaf },
    { 0x2f800, 0x2fa1f },
};

bool
tok_in(const struct tok_range *r, size_t n, uint32_t cp)
{
    size_t lo = 0;

    while (n) {
        size_t half = n / 2;
        if (cp > r[lo + half].hi) {
            lo += half + 1;
            n -= half + 1;
        } else if (cp < r[lo + half].lo) {
            n = half;
        } else {
            return true;
        }
    }
    return false;
}

bool
tok_is_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || cp == 32 || cp == 0x85 || cp == 0xa0 ||
        cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
        cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

bool
tok_is_word(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return cp == 0x200c || cp == 0x200d || (cp >= 0x24b6 && cp <= 0x24e9) ||
            (cp >= 0x1f130 && cp <= 0x1f149) || (cp >= 0x1f150 && cp <= 0x1f169) ||
            (cp >= 0x1f170 && cp <= 0x1f189) || tok_rx_is_newer_word(cp);
    }
}

bool
tok_is_punct(uint32_t cp)
{
    return tok_in(tok_tab_punct, tok_n_punct, cp);
}

/* Lower case, including the letters added by Unicode 16 and 17. */
static uint32_t
norm_lower_one(uint32_t cp)
{
    static const struct {
        uint32_t lo, hi;
        int32_t by;
    } newer[] = {
        { 0x1c89, 0x1c89, 1 },
        { 0xa7cb, 0xa7cb, 0x264 - 0xa7cb },
        { 0xa7cc, 0xa7cc, 1 },
        { 0xa7ce, 0xa7ce, 1 },
        { 0xa7d2, 0xa7d2, 1 },
        { 0xa7d4, 0xa7d4, 1 },
        { 0xa7da, 0xa7da, 1 },
        { 0xa7dc, 0xa7dc, 0x19b - 0xa7dc },
        { 0x10d50, 0x10d65, 0x20 },
        { 0x16ea0, 0x16eb8, 0x1b },
    };
    size_t i;

    if (cp >= 0x1c89)
        for (i = 0; i < sizeof(newer) / sizeof(newer[0]); i++)
            if (cp >= newer[i].lo && cp <= newer[i].hi)
                return (uint32_t)((int32_t)cp + newer[i].by);
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
}

/* Whether the normalizer removes the character. */
static bool
norm_drops(enum tok_norm_kind kind, uint32_t cp)
{
    if (cp >= 0x20 && cp < 0x7f)
        return false;
    if (kind == TOK_NORM_STRIP_ACCENTS)
        return tok_in(tok_tab_mark, tok_n_mark, cp);
    if (kind == TOK_NORM_BERT_MARKS)
        return tok_in(tok_tab_bert_mark, tok_n_bert_mark, cp);
    return kind == TOK_NORM_BERT_CLEAN && tok_in(tok_tab_bert_drop, tok_n_bert_drop, cp);
}

/* Writes what the character becomes, at most 6 bytes, to out. Returns the bytes. */
static size_t
norm_becomes(enum tok_norm_kind kind, uint32_t cp, uint8_t *out)
{
    size_t n;

    if (kind == TOK_NORM_LOWERCASE) {
        if (cp != 0x130)
            return txt_put(norm_lower_one(cp), out);
        memcpy(out, "i\xcc\x87", 3);
        return 3;
    }
    if (kind == TOK_NORM_BERT_CLEAN && tok_is_space(cp))
        cp = ' ';
    if (kind != TOK_NORM_BERT_CHINESE ||
        !tok_in(norm_chinese, sizeof(norm_chinese) / sizeof(norm_chinese[0]), cp))
        return txt_put(cp, out);
    out[0] = ' ';
    n = 1 + txt_put(cp, out + 1);
    out[n] = ' ';
    return n + 1;
}

int
tok_norm_chars(enum tok_norm_kind kind, struct tok_norm_run *run, const uint8_t *s,
    size_t n, struct tok_buf *out)
{
    uint8_t utf8[8];
    uint32_t cp;
    size_t i = 0;

    while (i < n) {
        if (tok_buf_room(out, sizeof(utf8)))
            return -ENOMEM;
        i += tok_utf8_get(s + i, &cp);
        if (!norm_drops(kind, cp))
            out->n += norm_becomes(kind, cp, out->p + out->n);
        else if (!out->n && !run->later)
            run->cut_off = true;
    }
    return 0;
}
