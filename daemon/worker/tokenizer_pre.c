/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif

#include "daemon/worker/tokenizer_pre.h"

#include <errno.h>

#include "daemon/common/text.h"

/* Finds the next character of the stage's class. */
static int
pre_find_class(const struct tok_stage *st, struct tok_pre_iter *it, size_t *ret_a,
    size_t *ret_b)
{
    bool space = st->kind == TOK_STAGE_SPACE;
    uint32_t cp;

    while (it->at < it->n) {
        *ret_a = it->at;
        it->at += tok_utf8_get(it->s + it->at, &cp);
        *ret_b = it->at;
        if (space ? tok_is_space(cp) : tok_is_punct(cp))
            return 1;
    }
    return 0;
}

/* Finds the next match of the stage's pattern; an empty one right after a match is
 * skipped. */
static int
pre_find(struct tok_pre *pre, const struct tok_stage *st, struct tok_pre_iter *it,
    size_t *ret_a, size_t *ret_b)
{
    uint32_t cp;
    int rc;

    if (st->kind != TOK_STAGE_RX)
        return pre_find_class(st, it, ret_a, ret_b);
    while (it->at <= it->n) {
        rc = tok_rx_find(&st->rx, pre->rx, it->s, it->n, it->ascii, it->at, ret_a, ret_b);
        if (rc <= 0)
            return rc;
        if (*ret_a != *ret_b || !it->have_last || it->last != *ret_b) {
            it->have_last = true;
            it->last = it->at = *ret_b;
            return 1;
        }
        it->at += it->at < it->n ? tok_utf8_get(it->s + it->at, &cp) : 1;
    }
    return 0;
}

/* The next element of the piece. 1: in *ret; 0: end of the piece; or -errno. */
static int
pre_elem(struct tok_pre *pre, const struct tok_stage *st, struct tok_pre_iter *it,
    struct tok_pre_elem *ret)
{
    size_t a, b;
    int rc;

    if (it->held) {
        it->held = false;
        *ret = it->ahead;
        return 1;
    }
    if (it->pend) {
        it->pend = false;
        *ret = (struct tok_pre_elem){ it->pend_a, it->pend_b, !st->invert };
        return 1;
    }
    if (it->end)
        return 0;
    rc = pre_find(pre, st, it, &a, &b);
    if (rc < 0)
        return rc;
    if (!rc) {
        it->end = true;
        *ret = (struct tok_pre_elem){ it->prev, it->n, st->invert };
        return it->prev < it->n;
    }
    if (a > it->prev) {
        *ret = (struct tok_pre_elem){ it->prev, a, st->invert };
        it->pend = true;
        it->pend_a = a;
        it->pend_b = b;
    } else {
        *ret = (struct tok_pre_elem){ a, b, !st->invert };
    }
    it->prev = b;
    return 1;
}

/* Whether the behavior joins y to x, which directly precedes it. */
static bool
pre_joins(enum tok_behavior behavior, const struct tok_pre_elem *x,
    const struct tok_pre_elem *y)
{
    if (behavior == TOK_CONTIGUOUS)
        return x->match == y->match;
    if (behavior == TOK_MERGED_PREV)
        return !x->match && y->match;
    return x->match && !y->match;
}

/* The next piece that the stage cuts out of its piece; may be empty. */
static int
pre_cut(struct tok_pre *pre, const struct tok_stage *st, struct tok_pre_iter *it,
    struct tok_pre_elem *ret)
{
    struct tok_pre_elem next;
    int rc = pre_elem(pre, st, it, ret);

    if (rc <= 0 || st->behavior == TOK_ISOLATED)
        return rc;
    if (st->behavior == TOK_REMOVED) {
        while (rc > 0 && ret->match)
            rc = pre_elem(pre, st, it, ret);
        return rc;
    }
    while ((rc = pre_elem(pre, st, it, &next)) > 0) {
        if (!pre_joins(st->behavior, ret, &next)) {
            it->held = true;
            it->ahead = next;
            break;
        }
        ret->b = next.b;
        if (st->behavior != TOK_CONTIGUOUS)
            break;
    }
    return rc < 0 ? rc : 1;
}

/* The next piece up to a mark; each mark begins a piece. */
static int
pre_cut_meta(const struct tok_stage *st, struct tok_pre_iter *it, struct tok_pre_elem *ret)
{
    size_t from = it->at, skip = st->n_mark;
    const uint8_t *hit = NULL;

    if (from == it->n)
        return 0;
    if (it->n - from < skip || memcmp(it->s + from, st->mark, skip) != 0)
        skip = 0;
    if (st->split)
        hit = memmem(it->s + from + skip, it->n - from - skip, st->mark, st->n_mark);
    it->at = hit ? (size_t)(hit - it->s) : it->n;
    *ret = (struct tok_pre_elem){ from, it->at, false };
    return 1;
}

static int
pre_piece(struct tok_pre *pre, const struct tok_stage *st, struct tok_pre_iter *it,
    struct tok_pre_elem *ret)
{
    switch (st->kind) {
    case TOK_STAGE_RX:
    case TOK_STAGE_SPACE:
    case TOK_STAGE_PUNCT:
        return pre_cut(pre, st, it, ret);
    case TOK_STAGE_META:
        return pre_cut_meta(st, it, ret);
    case TOK_STAGE_CUT:
        if (it->at == it->n)
            return 0;
        ret->a = it->at;
        ret->b = it->at = bpe_cut(pre->tok->bpe, it->s, it->n, it->at);
        return 1;
    default:
        *ret = (struct tok_pre_elem){ 0, it->n, false };
        it->busy = false;
        return 1;
    }
}

/* ---- stages that rewrite a piece, to out ---- */

static int
pre_meta(const struct tok_stage *st, const uint8_t *s, size_t n, bool start,
    struct tok_buf *out)
{
    bool has = n >= st->n_mark && memcmp(s, st->mark, st->n_mark) == 0;
    size_t at = 0, end;

    if (tok_buf_room(out, n + st->n_mark))
        return -ENOMEM;
    if (!has && s[0] != ' ' &&
        (st->prepend == TOK_PREPEND_ALWAYS || (st->prepend == TOK_PREPEND_FIRST && start))) {
        memcpy(out->p, st->mark, st->n_mark);
        out->n = st->n_mark;
    }
    while (at < n) {
        const uint8_t *hit = memchr(s + at, ' ', n - at);

        end = hit ? (size_t)(hit - s) : n;
        if (tok_buf_room(out, n - at + st->n_mark))
            return -ENOMEM;
        memcpy(out->p + out->n, s + at, end - at);
        out->n += end - at;
        if (hit) {
            memcpy(out->p + out->n, st->mark, st->n_mark);
            out->n += st->n_mark;
        }
        at = end + (hit != NULL);
    }
    return 0;
}

static int
pre_spell(const uint8_t *s, size_t n, struct tok_buf *out)
{
    size_t i;

    if (tok_buf_room(out, 2 * n))
        return -ENOMEM;
    for (i = 0; i < n; i++)
        out->n += txt_put(bpe_byte_to_char(s[i]), out->p + out->n);
    return 0;
}

/* Gives a stage the piece s[0 .. n), n > 0. */
static int
pre_feed(struct tok_pre *pre, unsigned stage, const uint8_t *s, size_t n, size_t first)
{
    const struct tok_stage *st = &pre->tok->stage[stage];
    struct tok_pre_iter *it = &pre->it[stage];
    struct tok_buf *buf = &pre->buf[stage];
    int rc = 0;

    buf->n = 0;
    if (st->kind == TOK_STAGE_META)
        rc = pre_meta(st, s, n, first != 0, buf);
    else if (st->kind == TOK_STAGE_SPELL)
        rc = pre_spell(s, n, buf);
    else if (st->prefix_space && s[0] != ' ' && !(rc = tok_buf_put(buf, " ", 1)))
        rc = tok_buf_put(buf, s, n);
    if (rc)
        return rc;
    if (buf->n) {
        first += first && buf->n > n ? buf->n - n : 0;
        s = buf->p;
        n = buf->n;
    }
    it->s = s;
    it->n = n;
    it->busy = true;
    it->first = first;
    it->end = it->held = it->have_last = it->pend = false;
    it->at = it->prev = 0;
    it->ascii = st->kind == TOK_STAGE_RX && tok_is_ascii(s, n);
    return 0;
}

void
tok_pre_reset(struct tok_pre *pre, size_t keep)
{
    unsigned k;

    for (k = 0; k < TOK_MAX_STAGES; k++) {
        pre->it[k].busy = false;
        if (pre->buf[k].cap > keep)
            tok_buf_fini(&pre->buf[k]);
    }
}

int
tok_pre_begin(struct tok_pre *pre, const uint8_t *s, size_t n, size_t first)
{
    return pre_feed(pre, 0, s, n, first);
}

int
tok_pre_next(struct tok_pre *pre, const uint8_t **ret_s, size_t *ret_n)
{
    const struct tok *tok = pre->tok;
    unsigned k = tok->n_stages - 1;

    for (;;) {
        const struct tok_stage *st = &tok->stage[k];
        struct tok_pre_iter *it = &pre->it[k];
        struct tok_pre_elem e = { 0 };
        int rc;

        if (!it->busy) {
            if (!k)
                return 0;
            k--;
            continue;
        }
        rc = pre_piece(pre, st, it, &e);
        if (rc < 0)
            return rc;
        if (!rc)
            it->busy = false;
        if (!rc || e.a == e.b)
            continue;
        if (k == tok->n_stages - 1) {
            *ret_s = it->s + e.a;
            *ret_n = e.b - e.a;
            return 1;
        }
        rc = pre_feed(pre, k + 1, it->s + e.a, e.b - e.a,
            it->first > e.a ? it->first - e.a : 0);
        if (rc)
            return rc;
        k++;
    }
}
