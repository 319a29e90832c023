/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif

#include "daemon/worker/tokenizer_norm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NORM_PIECE_BYTES 4096u

/* Starters that do not join the character before them in any normal form. */
static const struct tok_range norm_cuttable[] = {
    { 0x0400, 0x0482 },
    { 0x0621, 0x064a },
    { 0x0904, 0x0939 },
    { 0x0e01, 0x0e30 },
    { 0x3041, 0x3096 },
    { 0x30a1, 0x30fa },
    { 0x4e00, 0x9fff },
    { 0xac00, 0xd7a3 },
};

void
tok_norm_fini(struct tok_norm *norm)
{
    unsigned i;

    for (i = 0; i < norm->n_ops; i++) {
        tok_rx_fini(&norm->op[i].rx);
        tok_buf_fini(&norm->op[i].find);
        tok_buf_fini(&norm->op[i].text);
        tok_charsmap_fini(&norm->op[i].map);
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

bool
tok_norm_is_inert(const struct tok_norm *norm, const uint8_t *s, size_t n)
{
    unsigned i;

    for (i = 0; i < norm->n_ops; i++)
        if (!norm_is_form(&norm->op[i]) || !tok_norm_form_inert(norm->op[i].kind, s, n))
            return false;
    return true;
}

/* ASCII letters and digits: text may be cut before them, since no form joins them to
 * the character before. */
static bool
norm_is_alnum(uint32_t cp)
{
    return (cp >= '0' && cp <= '9') || ((cp | 32) >= 'a' && (cp | 32) <= 'z');
}

/* Whether the normalizer can work on pieces that begin with such letters, digits or
 * starters. */
static bool
norm_in_pieces(const struct tok_norm_op *op)
{
    uint32_t cp;

    if (op->kind != TOK_NORM_REPLACE)
        return op->kind != TOK_NORM_STRIP && op->kind != TOK_NORM_PRECOMPILED &&
            op->kind != TOK_NORM_SENTENCEPIECE;
    return op->find.n && tok_utf8_get(op->find.p, &cp) == op->find.n &&
        !norm_is_alnum(cp) &&
        !tok_in(norm_cuttable, sizeof(norm_cuttable) / sizeof(norm_cuttable[0]), cp);
}

size_t
tok_norm_cut(const struct tok_norm *norm, const uint8_t *s, size_t n, size_t at, size_t want)
{
    unsigned i;
    size_t end;

    for (i = 0; i < norm->n_ops; i++)
        if (!norm_in_pieces(&norm->op[i]))
            return n;
    if (n - at <= want)
        return n;
    for (end = at + (want ? want : 1); end < n; end++) {
        uint32_t cp;

        if ((s[end] & 0xc0) == 0x80)
            continue;
        tok_utf8_get(s + end, &cp);
        if (norm_is_alnum(cp) ||
            tok_in(norm_cuttable, sizeof(norm_cuttable) / sizeof(norm_cuttable[0]), cp))
            return end;
    }
    return n;
}

static int
norm_strip(const struct tok_norm_op *op, struct tok_norm_run *run, const uint8_t *s,
    size_t n, struct tok_buf *out)
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
    if (a && !run->later)
        run->cut_off = true;
    return tok_buf_put(out, s + a, b - a);
}

static int
norm_replace_rx(const struct tok_norm_op *op, struct tok_norm_run *run, const uint8_t *s,
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
            /* an empty match directly after the last match does not count */
            if (at == n)
                break;
            at += tok_utf8_get(s + at, &cp);
            continue;
        }
        if (!a && b && !op->text.n && !run->later)
            run->cut_off = true;
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
norm_replace(const struct tok_norm_op *op, struct tok_norm_run *run, const uint8_t *s,
    size_t n, size_t limit, struct tok_buf *out)
{
    size_t done = 0, a;
    const uint8_t *hit;

    if (!op->find.n)
        return norm_replace_rx(op, run, s, n, limit, out);
    while (done < n) {
        hit = op->find.n == 1 ? memchr(s + done, op->find.p[0], n - done)
                              : memmem(s + done, n - done, op->find.p, op->find.n);
        if (!hit)
            break;
        a = (size_t)(hit - s);
        if (!a && !op->text.n && !run->later)
            run->cut_off = true;
        if (tok_buf_room(out, a - done + op->text.n))
            return -ENOMEM;
        memcpy(out->p + out->n, s + done, a - done);
        out->n += a - done;
        if (op->text.n)
            memcpy(out->p + out->n, op->text.p, op->text.n);
        out->n += op->text.n;
        if (out->n > limit)
            return -E2BIG;
        done = a + op->find.n;
    }
    return tok_buf_put(out, s + done, n - done);
}

/* A normal form, computed in pieces that fit the cache. */
static int
norm_form(const struct tok_norm_op *op, struct tok_norm_run *run, const uint8_t *s,
    size_t n, struct tok_buf *out)
{
    struct tok_norm one = { .op = { { .kind = op->kind } }, .n_ops = 1 };
    size_t at, end;
    int rc = 0;

    for (at = 0; !rc && at < n; at = end) {
        end = tok_norm_cut(&one, s, n, at, NORM_PIECE_BYTES);
        rc = tok_norm_form(op->kind, run, s + at, end - at, out);
    }
    return rc;
}

static int
norm_one(const struct tok_norm_op *op, struct tok_norm_run *run, const uint8_t *s,
    size_t n, size_t limit, struct tok_buf *out)
{
    switch (op->kind) {
    case TOK_NORM_STRIP:
        return norm_strip(op, run, s, n, out);
    case TOK_NORM_PREPEND:
        if (n && !run->later && tok_buf_put(out, op->text.p, op->text.n))
            return -ENOMEM;
        return tok_buf_put(out, s, n);
    case TOK_NORM_REPLACE:
        return norm_replace(op, run, s, n, limit, out);
    case TOK_NORM_PRECOMPILED:
        return tok_norm_map(&op->map, run, s, n, out);
    case TOK_NORM_SENTENCEPIECE:
        return tok_norm_sentencepiece(op, run, s, n, out);
    case TOK_NORM_NFC:
    case TOK_NORM_NFD:
    case TOK_NORM_NFKC:
    case TOK_NORM_NFKD:
        return norm_form(op, run, s, n, out);
    default:
        return tok_norm_chars(op->kind, run, s, n, out);
    }
}

int
tok_norm_apply(const struct tok_norm *norm, struct tok_norm_run *run, const uint8_t *s,
    size_t n, struct tok_buf *out)
{
    size_t limit = TOK_NORM_LIMIT(n);
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
