/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* "added_tokens" of a tokenizer.json. */
#include "config.h"

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* qsort_r */
#endif

#include "daemon/worker/tokenizer.h"
#include "daemon/worker/tokenizer_load.h"

#include <errno.h>
#include <stdlib.h>

int
tok_ld_set_put(struct tok_ld *ld, struct tok_set *set, const struct tok_added *t,
    const void *bytes, size_t n)
{
    struct tok_added *e = &set->e[set->n];

    if (set->bytes.n + n > UINT32_MAX)
        return tok_ld_no_memory(ld);
    *e = *t;
    e->off = (uint32_t)set->bytes.n;
    e->n = (uint32_t)n;
    if (tok_buf_put(&set->bytes, bytes, n))
        return tok_ld_no_memory(ld);
    set->n++;
    return 0;
}

static int
add_set_cmp(const void *pa, const void *pb, void *bytes)
{
    const struct tok_added *a = pa, *b = pb;
    const uint8_t *s = bytes;
    uint32_t n = a->n < b->n ? a->n : b->n;
    int d = memcmp(s + a->off, s + b->off, n);

    if (d)
        return d;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    /* of equal entries, the special one first, then the one added first */
    if (a->special != b->special)
        return a->special ? -1 : 1;
    return a->off < b->off ? -1 : a->off > b->off;
}

/* Sorts, keeps the first of equal entries, and sets the index. */
static void
add_set_seal(struct tok_set *set)
{
    uint32_t i, k = 0;
    unsigned c;

    if (set->n)
        qsort_r(set->e, set->n, sizeof(*set->e), add_set_cmp, set->bytes.p);
    for (i = 0; i < set->n; i++) {
        const struct tok_added *e = &set->e[i], *last = k ? &set->e[k - 1] : NULL;
        if (last && last->n == e->n &&
            !memcmp(set->bytes.p + last->off, set->bytes.p + e->off, e->n))
            continue;
        set->e[k++] = *e;
    }
    set->n = k;
    for (c = 0, i = 0; c < 256; c++) {
        while (i < k && set->bytes.p[set->e[i].off] < c)
            i++;
        set->first[c] = i;
    }
}

int
tok_ld_sets(struct tok_ld *ld, size_t n)
{
    struct tok *tok = ld->tok;

    tok->all.e = calloc(n + 1, sizeof(*tok->all.e));
    tok->raw.e = calloc(n + 1, sizeof(*tok->raw.e));
    tok->normed.e = calloc(n + 1, sizeof(*tok->normed.e));
    return tok->all.e && tok->raw.e && tok->normed.e ? 0 : tok_ld_no_memory(ld);
}

/*
 * An added token that decodes to its normal form is left out of decoded text if that
 * form is the content of a special token: the reference compares the decoded form.
 */
static void
add_shown(struct tok *tok)
{
    for (uint32_t i = 0; i < tok->normed.n; i++) {
        const struct tok_added *e = &tok->normed.e[i];
        int64_t k = tok_set_match(&tok->all, tok->normed.bytes.p + e->off, e->n);

        bpe_flag(tok->bpe, e->id, BPE_TOK_SPECIAL,
            k >= 0 && tok->all.e[k].n == e->n && tok->all.e[k].special);
    }
}

int
tok_ld_seal(struct tok_ld *ld)
{
    struct tok *tok = ld->tok;
    uint32_t before = tok->all.n;
    int rc;

    add_set_seal(&tok->all);
    add_shown(tok);
    add_set_seal(&tok->raw);
    add_set_seal(&tok->normed);
    if (tok->all.n != before)
        return tok_ld_err(ld, -EINVAL, "added_tokens lists a token twice");
    rc = bpe_seal(tok->bpe, &ld->opts);
    return rc ? tok_ld_err(ld, rc, "model: %s", strerror(-rc)) : 0;
}

/*
 * Adds a token to be searched in normalized text. It decodes to its normal form, as in
 * the reference.
 */
static int
add_normed(struct tok_ld *ld, struct tok_norm_run *run, const struct tok_added *t,
    const char *s, size_t n, unsigned flags)
{
    struct tok_buf out = { 0 };
    int rc = tok_norm_apply(&ld->tok->norm, run, (const uint8_t *)s, n, &out);

    if (rc)
        tok_ld_err(ld, rc, "added token \"%.60s\": %s", s, strerror(-rc));
    else if (!out.n)
        rc = tok_ld_err(ld, -ENOTSUP, "added token \"%.60s\" normalizes to nothing", s);
    else
        rc = tok_ld_set_put(ld, &ld->tok->normed, t, out.p, out.n);
    if (!rc && flags & BPE_TOK_VOCAB)
        rc = tok_ld_put(ld, (const uint8_t *)s, n, t->id, flags);
    else if (!rc)
        rc = tok_ld_put(ld, out.p, out.n, t->id, flags);
    tok_buf_fini(&out);
    return rc;
}

static int
add_flags(struct tok_ld *ld, const json_t *o, struct tok_added *t, bool *normalized)
{
    static const char *const names[] = { "special", "single_word", "lstrip", "rstrip",
        "normalized" };
    bool *const to[] = { &t->special, &t->single_word, &t->lstrip, &t->rstrip, normalized };
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const json_t *v = json_object_get(o, names[i]);
        if (v && !json_is_boolean(v))
            return tok_ld_err(ld, -EINVAL,
                "added token \"%.60s\": \"%s\" is not true or false",
                json_string_value(json_object_get(o, "content")), names[i]);
        *to[i] = json_is_true(v);
    }
    return 0;
}

static int
add_one(struct tok_ld *ld, struct tok_norm_run *run, const json_t *o)
{
    const json_t *content = json_object_get(o, "content");
    const char *s = json_string_value(content);
    size_t n = json_string_length(content);
    struct tok_added t = { .id = (uint32_t)json_integer_value(json_object_get(o, "id")) };
    unsigned flags = BPE_TOK_ADDED;
    bool normalized;
    int rc = add_flags(ld, o, &t, &normalized), known;

    if (rc || !n)
        return rc;
    known = tok_ld_find(ld, s, n);
    if (known >= 0 && known != (int)t.id)
        return tok_ld_err(ld, -EINVAL,
            "added token \"%.60s\" has id %u, but %d in the vocabulary", s,
            (unsigned)t.id, known);
    if (n > TOK_MAX_TOKEN_BYTES)
        return tok_ld_err(ld, -EINVAL,
            "added token of id %u has %zu bytes, more than the %u allowed",
            (unsigned)t.id, n, TOK_MAX_TOKEN_BYTES);
    flags |= (t.special ? BPE_TOK_SPECIAL : 0) |
        (known >= 0 ? BPE_TOK_VOCAB | BPE_TOK_LAST : 0);
    rc = tok_ld_set_put(ld, &ld->tok->all, &t, s, n);
    if (!rc && normalized)
        return add_normed(ld, run, &t, s, n, flags);
    rc = rc ? rc : tok_ld_set_put(ld, &ld->tok->raw, &t, s, n);
    return rc ? rc : tok_ld_put(ld, (const uint8_t *)s, n, t.id, flags);
}

int
tok_ld_added_enter(struct tok_ld *ld)
{
    struct tok_rx_run rx = { 0 };
    struct tok_norm_run run = { .rx = &rx };
    size_t i;
    json_t *v;
    int rc = tok_rx_run_init(&rx) ? tok_ld_no_memory(ld) : 0;

    json_array_foreach(ld->added, i, v) {
        if (rc)
            break;
        rc = add_one(ld, &run, v);
    }
    tok_norm_run_fini(&run);
    tok_rx_run_fini(&rx);
    return rc;
}

int
tok_ld_added(struct tok_ld *ld)
{
    size_t n = json_array_size(ld->added);
    int rc;

    if (n > TOK_MAX_VOCAB)
        return tok_ld_err(ld, -EINVAL, "%zu added tokens, more than the %u allowed", n,
            TOK_MAX_VOCAB);
    rc = tok_ld_sets(ld, n);
    rc = rc ? rc : tok_ld_added_enter(ld);
    return rc ? rc : tok_ld_seal(ld);
}
