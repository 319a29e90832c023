/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/tokenizer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "daemon/common/text.h"

#define NORM_PART_BYTES 4096u
#define NORM_MAX_GROWTH 16u /* U+FDFA grows elevenfold under NFKC */
#define NORM_SLACK      65536u
#define NORM_SORT_SMALL 24u

struct norm_range {
    uint32_t lo, hi;
};

/*
 * Combining marks younger than the reference's normalization tables, which
 * it therefore leaves where they stand.
 */
static const struct norm_range norm_unordered[] = {
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

/* Characters younger than them that decompose under NFKC and NFKD only. */
static const struct norm_range norm_uncompat[] = {
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

/* Starters that join no character before them in any normal form. */
static const struct norm_range norm_cuttable[] = {
    { 0x0400, 0x0482 },
    { 0x0621, 0x064a },
    { 0x0904, 0x0939 },
    { 0x0e01, 0x0e30 },
    { 0x3041, 0x3096 },
    { 0x30a1, 0x30fa },
    { 0x4e00, 0x9fff },
    { 0xac00, 0xd7a3 },
};

static bool
norm_in(const struct norm_range *r, size_t n, uint32_t cp)
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

#define NORM_IN(table, cp) norm_in(table, sizeof(table) / sizeof((table)[0]), cp)

unsigned
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

bool
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

void
tok_norm_fini(struct tok_norm *norm)
{
    unsigned i;

    for (i = 0; i < norm->n_ops; i++) {
        tok_rx_fini(&norm->op[i].rx);
        tok_buf_fini(&norm->op[i].text);
    }
    norm->n_ops = 0;
}

void
tok_norm_run_fini(struct tok_norm_run *run)
{
    tok_buf_fini(&run->a);
    tok_buf_fini(&run->b);
    free(run->cp);
    run->cp = NULL;
    run->cap_cp = 0;
}

static bool
norm_is_form(const struct tok_norm_op *op)
{
    return op->kind <= TOK_NORM_NFKD;
}

/* The first lead byte whose characters a form may change. */
static uint8_t
norm_lead(const struct tok_norm_op *op)
{
    /* All below U+0300 is in form C: their lead bytes are below 0xcc. */
    return op->kind == TOK_NORM_NFC ? 0xcc : 0x80;
}

static bool
norm_form_inert(const struct tok_norm_op *op, const uint8_t *s, size_t n)
{
    uint8_t lead = norm_lead(op);
    size_t i;

    for (i = 0; i < n; i++)
        if (s[i] >= lead)
            return false;
    return true;
}

bool
tok_norm_is_inert(const struct tok_norm *norm, const uint8_t *s, size_t n)
{
    unsigned i;

    for (i = 0; i < norm->n_ops; i++)
        if (!norm_is_form(&norm->op[i]) || !norm_form_inert(&norm->op[i], s, n))
            return false;
    return true;
}

size_t
tok_norm_cut(const struct tok_norm *norm, const uint8_t *s, size_t n, size_t at, size_t want)
{
    unsigned i;
    size_t end;

    for (i = 0; i < norm->n_ops; i++)
        if (!norm_is_form(&norm->op[i]))
            return n;
    if (n - at <= want)
        return n;
    for (end = at + (want ? want : 1); end < n; end++) {
        uint32_t cp;

        if ((s[end] & 0xc0) == 0x80)
            continue;
        tok_utf8_get(s + end, &cp);
        if (cp < 0x80 || NORM_IN(norm_cuttable, cp))
            return end;
    }
    return n;
}

static int
norm_ccc(uint32_t cp)
{
    int ccc = utf8proc_get_property((utf8proc_int32_t)cp)->combining_class;

    return ccc && NORM_IN(norm_unordered, cp) ? 0 : ccc;
}

/*
 * Orders a run of marks by class, keeping equals in order. Runs are short in
 * texts and as long as he likes with an attacker, hence the counting sort.
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

/* Decomposes s into run->cp, marks unordered. */
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
            /* Younger than the reference's tables as well. */
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
 * Composes in place. The reference takes marks that its tables lack for
 * starters, and does not know that U+11935 U+11930 compose: to compose the
 * parts between such characters one by one amounts to the same. So it does for
 * U+11A7, which composes with nothing and which utf8proc takes for the empty
 * trailing consonant of a syllable and drops.
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

static int
norm_form_part(const struct tok_norm_op *op, struct tok_norm_run *run, const uint8_t *s,
    size_t n, struct tok_buf *out)
{
    bool compat = op->kind == TOK_NORM_NFKC || op->kind == TOK_NORM_NFKD;
    bool compose = op->kind == TOK_NORM_NFC || op->kind == TOK_NORM_NFKC;
    size_t k, i;
    uint8_t utf8[4];
    int rc;

    if (norm_form_inert(op, s, n))
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

static int
norm_form(const struct tok_norm_op *op, struct tok_norm_run *run, const uint8_t *s,
    size_t n, struct tok_buf *out)
{
    struct tok_norm one = { .n_ops = 1 };
    size_t at, end;
    int rc = 0;

    one.op[0] = *op;
    for (at = 0; !rc && at < n; at = end) {
        end = tok_norm_cut(&one, s, n, at, NORM_PART_BYTES);
        rc = norm_form_part(op, run, s + at, end - at, out);
    }
    return rc;
}

/* Lower case, with the letters that Unicode 16 and 17 brought. */
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

static int
norm_lower(const uint8_t *s, size_t n, struct tok_buf *out)
{
    uint8_t utf8[4];
    uint32_t cp;
    size_t i = 0;
    int rc = 0;

    while (!rc && i < n) {
        i += tok_utf8_get(s + i, &cp);
        if (cp == 0x130) {
            rc = tok_buf_put(out, "i\xcc\x87", 3);
            continue;
        }
        cp = norm_lower_one(cp);
        rc = tok_buf_put(out, utf8, txt_put(cp, utf8));
    }
    return rc;
}

static int
norm_strip(const struct tok_norm_op *op, const uint8_t *s, size_t n, struct tok_buf *out)
{
    size_t a = 0, b = n, i;
    uint32_t cp;

    while (op->left && a < n) {
        unsigned len = tok_utf8_get(s + a, &cp);
        if (!tok_is_space(cp))
            break;
        a += len;
    }
    while (op->right && b > a) {
        for (i = b - 1; (s[i] & 0xc0) == 0x80; i--)
            ;
        tok_utf8_get(s + i, &cp);
        if (!tok_is_space(cp))
            break;
        b = i;
    }
    return tok_buf_put(out, s + a, b - a);
}

static int
norm_replace(const struct tok_norm_op *op, struct tok_norm_run *run, const uint8_t *s,
    size_t n, size_t limit, struct tok_buf *out)
{
    size_t at = 0, done = 0, a, b;
    uint32_t cp;
    int rc;

    while (at <= n) {
        rc = tok_rx_find(&op->rx, run->rx, s, n, false, at, &a, &b);
        if (rc < 0)
            return rc;
        if (!rc)
            break;
        if (b == a && b == done && at != 0) {
            /* An empty match right behind the last one does not count. */
            if (at == n)
                break;
            at += tok_utf8_get(s + at, &cp);
            continue;
        }
        if (tok_buf_put(out, s + done, a - done) || tok_buf_put(out, op->text.p, op->text.n))
            return -ENOMEM;
        if (out->n > limit)
            return -E2BIG;
        done = b;
        if (b > a)
            at = b;
        else if (b < n)
            at = b + tok_utf8_get(s + b, &cp);
        else
            break;
    }
    return tok_buf_put(out, s + done, n - done);
}

static int
norm_one(const struct tok_norm_op *op, struct tok_norm_run *run, const uint8_t *s,
    size_t n, size_t limit, struct tok_buf *out)
{
    switch (op->kind) {
    case TOK_NORM_LOWERCASE:
        return norm_lower(s, n, out);
    case TOK_NORM_STRIP:
        return norm_strip(op, s, n, out);
    case TOK_NORM_PREPEND:
        if (n && tok_buf_put(out, op->text.p, op->text.n))
            return -ENOMEM;
        return tok_buf_put(out, s, n);
    case TOK_NORM_REPLACE:
        return norm_replace(op, run, s, n, limit, out);
    default:
        return norm_form(op, run, s, n, out);
    }
}

int
tok_norm_apply(const struct tok_norm *norm, struct tok_norm_run *run, const uint8_t *s,
    size_t n, struct tok_buf *out)
{
    size_t limit = n * NORM_MAX_GROWTH + NORM_SLACK;
    struct tok_buf *to = &run->a;
    unsigned i;
    int rc;

    for (i = 0; i + 1 < norm->n_ops; i++) {
        to->n = 0;
        rc = norm_one(&norm->op[i], run, s, n, limit, to);
        if (rc)
            return rc;
        if (to->n > limit)
            return -E2BIG;
        s = to->p;
        n = to->n;
        to = to == &run->a ? &run->b : &run->a;
    }
    if (!norm->n_ops)
        return tok_buf_put(out, s, n);
    return norm_one(&norm->op[i], run, s, n, limit + out->n, out);
}
