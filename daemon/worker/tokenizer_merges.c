/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Merges: those of a tokenizer.json, and those that follow from a vocabulary. */
#include "config.h"

#include "daemon/worker/tokenizer.h"
#include "daemon/worker/tokenizer_json.h"
#include "daemon/worker/tokenizer_load.h"

#include <errno.h>
#include <stdlib.h>

#define MRG_BATCH 32u /* looked up at once */

/* ---- merges of a tokenizer.json ---- */

/* A merge in the file: a + b bytes of `names`, and of `bytes` for a model of bytes. */
struct mrg_line {
    size_t at, a, b;
    size_t bytes;
};

struct mrg {
    struct tok_ld *ld;
    struct mrg_line line[MRG_BATCH];
    struct bpe_key key[2 * MRG_BATCH]; /* both sides of each */
    struct bpe_merge merge[MRG_BATCH];
    uint32_t rank; /* rank of the first merge */
    unsigned n;
    uint32_t last; /* result of the previous merge */
    struct tok_buf names, bytes;
};

/* Reads a merge in either form, "a b" or ["a", "b"]. */
static int
mrg_read(struct mrg *g, struct tok_js *js, struct mrg_line *line)
{
    struct tok_buf *out = &g->names;
    struct tok_js_text a, b;
    uint8_t *s, *space;

    line->at = out->n;
    if (tok_js_maybe(js, '[')) {
        if (tok_js_peek(js) != '"' || !tok_js_string(js, &a) || !tok_js_maybe(js, ',') ||
            tok_js_peek(js) != '"' || !tok_js_string(js, &b) || !tok_js_maybe(js, ']'))
            return -EINVAL;
        if (tok_buf_room(out, a.n + b.n + 1))
            return -ENOMEM;
        out->n += line->a = tok_js_plain(&a, out->p + out->n);
        out->n += line->b = tok_js_plain(&b, out->p + out->n);
        return 0;
    }
    if (tok_js_peek(js) != '"' || !tok_js_string(js, &a))
        return -EINVAL;
    if (tok_buf_room(out, a.n + 1))
        return -ENOMEM;
    s = out->p + out->n;
    line->b = tok_js_plain(&a, s);
    space = memchr(s, ' ', line->b);
    if (!space || memchr(space + 1, ' ', line->b - (size_t)(space + 1 - s)))
        return -EINVAL;
    line->a = (size_t)(space - s);
    line->b -= line->a + 1;
    memmove(space, space + 1, line->b);
    out->n += line->a + line->b;
    return 0;
}

/* Reads the next n merges, or those before an invalid one. */
static int
mrg_read_all(struct mrg *g, struct tok_js *js, size_t n)
{
    int rc = 0;

    g->names.n = g->bytes.n = 0;
    for (g->n = 0; g->n < n; g->n++) {
        rc = mrg_read(g, js, &g->line[g->n]);
        if (rc)
            return rc;
        tok_js_maybe(js, ',');
    }
    return 0;
}

/* Looks up the ids of both sides of all merges read. */
static int
mrg_find(struct mrg *g)
{
    bool of_bytes = g->ld->tok->kind == TOK_MODEL_BYTES, raw = false;
    size_t at = 0, n;
    unsigned i;

    if (tok_buf_room(&g->bytes, g->names.n + 1))
        return -ENOMEM;
    for (i = 0; i < 2 * g->n; i++) {
        const struct mrg_line *line = &g->line[i / 2];
        const uint8_t *s = g->names.p + line->at + (i % 2 ? line->a : 0);

        n = i % 2 ? line->b : line->a;
        if (i % 2 == 0)
            g->line[i / 2].bytes = at;
        if (of_bytes && n <= TOK_MAX_TOKEN_BYTES) {
            n = tok_ld_bytes(s, n, g->bytes.p + at, &raw);
            s = g->bytes.p + at;
            at += n;
        }
        g->key[i] = (struct bpe_key){ .s = s, .n = n, .raw = raw };
    }
    bpe_find_all(g->ld->tok->bpe, g->key, 2 * (size_t)g->n);
    return 0;
}

/* Whether an id is a vocabulary entry of these bytes. */
static bool
mrg_is(const struct bpe *bpe, uint32_t id, const uint8_t *s, size_t n)
{
    const uint8_t *p;
    unsigned flags;
    size_t len;

    return !bpe_token(bpe, id, &p, &len, &flags) && len == n && !memcmp(p, s, n) &&
        (flags & (BPE_TOK_VOCAB | BPE_TOK_RAW)) == BPE_TOK_VOCAB;
}

/* The id that merge i makes: mostly the result of the previous merge, or the id after
 * it. */
static int
mrg_into(struct mrg *g, unsigned i)
{
    const struct bpe_key *left = &g->key[2 * i], *right = left + 1;
    size_t skip = g->ld->opts.n_prefix, n = left->n + right->n;
    const struct bpe *bpe = g->ld->tok->bpe;
    uint8_t both[2 * TOK_MAX_TOKEN_BYTES];

    if (left->id < 0 || right->id < 0 || right->n < skip)
        return -ENOENT;
    if (left->raw || right->raw) {
        const struct mrg_line *line = &g->line[i];

        return tok_ld_find(g->ld, (const char *)g->names.p + line->at, line->a + line->b);
    }
    if (skip) {
        memcpy(both, left->s, left->n);
        memcpy(both + left->n, right->s + skip, right->n - skip);
        return bpe_find(bpe, both, n - skip);
    }
    /* the right side directly follows the left one in memory */
    if (mrg_is(bpe, g->last, left->s, n))
        return (int)g->last;
    if (mrg_is(bpe, g->last + 1, left->s, n))
        return (int)g->last + 1;
    return bpe_find(bpe, left->s, n);
}

static int
mrg_enter(struct mrg *g)
{
    unsigned i;
    int rc, into;

    for (i = 0; i < g->n; i++) {
        const struct mrg_line *line = &g->line[i];
        const char *a = (const char *)g->names.p + line->at;

        into = mrg_into(g, i);
        if (into < 0)
            return tok_ld_err(g->ld, -EINVAL,
                "model: merge %u (\"%.*s\" and \"%.*s\"): a side or the result is not in "
                "the vocabulary",
                (unsigned)g->rank + i, (int)(line->a > 60 ? 60 : line->a), a,
                (int)(line->b > 60 ? 60 : line->b), a + line->a);
        g->last = (uint32_t)into;
        g->merge[i] = (struct bpe_merge){ (uint32_t)g->key[2 * i].id,
            (uint32_t)g->key[2 * i + 1].id, g->rank + i, g->last };
    }
    rc = bpe_add_merges(g->ld->tok->bpe, g->merge, g->n);
    return rc ? tok_ld_err(g->ld, rc, "model: merges from %u on: %s", (unsigned)g->rank,
                    strerror(-rc))
              : 0;
}

int
tok_ld_merges(struct tok_ld *ld, size_t n)
{
    struct tok_js js = { .s = ld->merges.s, .n = ld->merges.n };
    struct mrg g = { .ld = ld };
    int rc = 0, bad = 0;

    tok_js_take(&js, '[');
    for (; !rc && !bad && g.rank < n; g.rank += g.n) {
        size_t left = n - g.rank;

        bad = mrg_read_all(&g, &js, left < MRG_BATCH ? left : MRG_BATCH);
        if (bad == -ENOMEM || mrg_find(&g))
            rc = tok_ld_no_memory(ld);
        rc = rc ? rc : mrg_enter(&g);
    }
    tok_buf_fini(&g.names);
    tok_buf_fini(&g.bytes);
    if (bad && !rc)
        return tok_ld_err(ld, bad, "model: merge %u is not \"a b\" or [\"a\", \"b\"]",
            (unsigned)g.rank);
    return rc;
}

/* ---- merges of a vocabulary ---- */

static int
mrg_add(struct tok_ld *ld, struct tok_merges *to, struct bpe_merge merge)
{
    size_t cap = to->cap ? 2 * to->cap : 4096;
    struct bpe_merge *m;

    if (to->n == to->cap) {
        m = to->n < BPE_MAX_MERGES ? realloc(to->m, cap * sizeof(*m)) : NULL;
        if (!m)
            return tok_ld_no_memory(ld);
        to->m = m;
        to->cap = cap;
    }
    to->m[to->n++] = merge;
    return 0;
}

int
tok_ld_halves(struct tok_ld *ld, uint32_t id, uint32_t rank, bool chars,
    struct tok_merges *to)
{
    struct bpe_key left[MRG_BATCH], right[MRG_BATCH];
    size_t n, at = 1, i, count, found;
    const uint8_t *s;
    unsigned flags;
    int rc = 0;

    if (bpe_token(ld->tok->bpe, id, &s, &n, &flags) || !(flags & BPE_TOK_VOCAB))
        return 0;
    while (!rc && at < n) {
        for (count = 0; at < n && count < MRG_BATCH; at++)
            if (!chars || (s[at] & 0xc0) != 0x80)
                left[count++] = (struct bpe_key){ .s = s, .n = at };
        bpe_find_all(ld->tok->bpe, left, count);
        for (i = found = 0; i < count; i++)
            if (left[i].id >= 0) {
                left[found] = left[i];
                right[found++] = (struct bpe_key){ .s = s + left[i].n, .n = n - left[i].n };
            }
        bpe_find_all(ld->tok->bpe, right, found);
        for (i = 0; !rc && i < found; i++)
            if (right[i].id >= 0)
                rc = mrg_add(ld, to,
                    (struct bpe_merge){ (uint32_t)left[i].id, (uint32_t)right[i].id, rank,
                        id });
    }
    return rc;
}

int
tok_ld_enter(struct tok_ld *ld, struct tok_merges *m)
{
    int rc = bpe_room(ld->tok->bpe, (uint32_t)m->n);

    rc = rc ? rc : bpe_add_merges(ld->tok->bpe, m->m, m->n);
    free(m->m);
    *m = (struct tok_merges){ 0 };
    return rc ? tok_ld_err(ld, rc, "merges: %s", strerror(-rc)) : 0;
}
