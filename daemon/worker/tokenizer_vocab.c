/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* qsort_r */
#endif

#include "daemon/worker/tokenizer.h"
#include "daemon/worker/tokenizer_priv.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/*
 * Turns the spelling of a token in the file into its bytes: characters of the
 * byte alphabet into the bytes they stand for or, if there is any other, the
 * text itself (*ret_raw). out has TOK_MAX_TOKEN_BYTES.
 */
static size_t
voc_bytes(const char *s, size_t n, uint8_t *out, bool *ret_raw)
{
    size_t i = 0, k = 0;
    uint32_t cp;
    int b;

    while (i < n) {
        i += tok_utf8_get((const uint8_t *)s + i, &cp);
        b = bpe_char_to_byte(cp);
        if (b < 0) {
            memcpy(out, s, n);
            *ret_raw = true;
            return n;
        }
        out[k++] = (uint8_t)b;
    }
    *ret_raw = false;
    return k;
}

static int
voc_id(struct tok_ld *ld, const char *name, const json_t *v, uint32_t *ret)
{
    json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;

    if (id < 0 || id >= (json_int_t)BPE_MAX_IDS)
        return tok_ld_err(ld, -EINVAL, "token \"%.60s\": id %lld is not in 0 .. %u", name,
            (long long)id, BPE_MAX_IDS - 1);
    *ret = (uint32_t)id;
    return 0;
}

static int
voc_add(struct tok_ld *ld, const char *s, size_t n, uint32_t id, unsigned flags)
{
    uint8_t bytes[TOK_MAX_TOKEN_BYTES];
    bool raw;
    int rc;

    if (n > TOK_MAX_TOKEN_BYTES)
        return tok_ld_err(ld, -EINVAL,
            "token of id %u has %zu bytes, more than the %u "
            "allowed",
            (unsigned)id, n, TOK_MAX_TOKEN_BYTES);
    n = voc_bytes(s, n, bytes, &raw);
    rc = bpe_add_token(ld->tok->bpe, id, bytes, n, flags | (raw ? BPE_TOK_RAW : 0));
    if (rc == -EEXIST)
        return tok_ld_err(ld, -EINVAL,
            "token \"%.60s\" has id %u, which another token "
            "has already",
            s, (unsigned)id);
    if (rc)
        return tok_ld_err(ld, rc, "token \"%.60s\": %s", s, strerror(-rc));
    if (n > ld->tok->max_token_bytes)
        ld->tok->max_token_bytes = n;
    return 0;
}

/* The highest id + 1 over vocabulary and added tokens, all in range. */
static int
voc_count(struct tok_ld *ld, const json_t *vocab, uint32_t *ret)
{
    uint32_t n = 0, id = 0;
    const char *name;
    json_t *v;
    size_t i;
    int rc;

    if (json_object_size(vocab) > TOK_MAX_VOCAB)
        return tok_ld_err(ld, -EINVAL,
            "model: vocabulary of %zu tokens, more than the "
            "%u allowed",
            json_object_size(vocab), TOK_MAX_VOCAB);
    json_object_foreach((json_t *)vocab, name, v) {
        rc = voc_id(ld, name, v, &id);
        if (rc)
            return rc;
        n = id >= n ? id + 1 : n;
    }
    if (ld->added && !json_is_null(ld->added) && !json_is_array(ld->added))
        return tok_ld_err(ld, -EINVAL, "\"added_tokens\" is not an array");
    json_array_foreach(ld->added, i, v) {
        name = json_string_value(json_object_get(v, "content"));
        if (!name)
            return tok_ld_err(ld, -EINVAL, "added_tokens item %zu has no \"content\"", i);
        rc = voc_id(ld, name, json_object_get(v, "id"), &id);
        if (rc)
            return rc;
        n = id >= n ? id + 1 : n;
    }
    if (!n)
        return tok_ld_err(ld, -EINVAL, "model: the vocabulary is empty");
    *ret = n;
    return 0;
}

/* Both spellings of a merge: "a b" and ["a", "b"]. */
static int
voc_merge_names(const json_t *v, const char **a, size_t *an, const char **b, size_t *bn)
{
    const json_t *x, *y;
    const char *s, *space;
    size_t n;

    if (json_is_string(v)) {
        s = json_string_value(v);
        n = json_string_length(v);
        space = memchr(s, ' ', n);
        if (!space || memchr(space + 1, ' ', n - (size_t)(space + 1 - s)))
            return -EINVAL;
        *a = s;
        *an = (size_t)(space - s);
        *b = space + 1;
        *bn = n - *an - 1;
        return 0;
    }
    x = json_array_get(v, 0);
    y = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_string(x) || !json_is_string(y))
        return -EINVAL;
    *a = json_string_value(x);
    *an = json_string_length(x);
    *b = json_string_value(y);
    *bn = json_string_length(y);
    return 0;
}

static int
voc_merge(struct tok_ld *ld, const json_t *vocab, const json_t *v, uint32_t rank)
{
    char both[2 * TOK_MAX_TOKEN_BYTES];
    const json_t *left, *right, *into = NULL;
    const char *a, *b;
    size_t an, bn;

    if (voc_merge_names(v, &a, &an, &b, &bn))
        return tok_ld_err(ld, -EINVAL, "model: merge %u is not \"a b\" or [\"a\", \"b\"]",
            (unsigned)rank);
    left = json_object_getn(vocab, a, an);
    right = json_object_getn(vocab, b, bn);
    if (left && right) {
        memcpy(both, a, an);
        memcpy(both + an, b, bn);
        into = json_object_getn(vocab, both, an + bn);
    }
    if (!into)
        return tok_ld_err(ld, -EINVAL,
            "model: merge %u (\"%.*s\" and \"%.*s\"): a part "
            "or the result is not in the vocabulary",
            (unsigned)rank, (int)(an > 60 ? 60 : an), a, (int)(bn > 60 ? 60 : bn), b);
    return bpe_add_merge(ld->tok->bpe, (uint32_t)json_integer_value(left),
        (uint32_t)json_integer_value(right), rank, (uint32_t)json_integer_value(into));
}

/* Members of the model that must be absent, null, "" or 0. */
static int
voc_unused(struct tok_ld *ld)
{
    static const char *const names[] = { "dropout", "continuing_subword_prefix",
        "end_of_word_suffix" };
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const json_t *v = json_object_get(ld->model, names[i]);
        if (!v || json_is_null(v) || (json_is_string(v) && !json_string_length(v)) ||
            (json_is_number(v) && json_number_value(v) == 0.0))
            continue;
        return tok_ld_err(ld, -ENOTSUP, "model: \"%s\" is not supported (must be null)",
            names[i]);
    }
    return 0;
}

static int
voc_opts(struct tok_ld *ld, const json_t *vocab)
{
    struct bpe_opts *opts = &ld->opts;
    const json_t *unk = json_object_get(ld->model, "unk_token"), *id;

    opts->ignore_merges = json_is_true(json_object_get(ld->model, "ignore_merges"));
    opts->byte_fallback = json_is_true(json_object_get(ld->model, "byte_fallback"));
    opts->fuse_unk = json_is_true(json_object_get(ld->model, "fuse_unk"));
    opts->unk_id = -1;
    if (!unk || json_is_null(unk))
        return 0;
    id = json_is_string(unk) ? json_object_get(vocab, json_string_value(unk)) : NULL;
    if (!id)
        return tok_ld_err(ld, -EINVAL, "model: \"unk_token\" is not in the vocabulary");
    opts->unk_id = json_integer_value(id);
    return 0;
}

int
tok_ld_model(struct tok_ld *ld)
{
    const json_t *type = json_object_get(ld->model, "type");
    const json_t *vocab = json_object_get(ld->model, "vocab");
    const json_t *merges = json_object_get(ld->model, "merges");
    struct tok *tok = ld->tok;
    const char *name;
    json_t *v;
    size_t i;
    int rc;

    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "BPE")))
        return tok_ld_err(ld, -ENOTSUP,
            "model type \"%.60s\" is not supported "
            "(supported: BPE)",
            json_is_string(type) ? json_string_value(type) : "(none)");
    if (!json_is_object(vocab) || !json_is_array(merges))
        return tok_ld_err(ld, -EINVAL,
            "model: no object \"vocab\" or no array "
            "\"merges\"");
    rc = voc_unused(ld);
    rc = rc ? rc : voc_count(ld, vocab, &tok->n_ids);
    rc = rc ? rc : voc_opts(ld, vocab);
    if (rc)
        return rc;
    if (json_array_size(merges) > 2 * (size_t)BPE_MAX_IDS)
        return tok_ld_err(ld, -EINVAL, "model: %zu merges, more than the %u allowed",
            json_array_size(merges), 2 * BPE_MAX_IDS);
    tok->bpe = bpe_new(tok->n_ids, (uint32_t)json_array_size(merges));
    if (!tok->bpe)
        return tok_ld_err(ld, -ENOMEM, "out of memory");
    json_object_foreach((json_t *)vocab, name, v) {
        rc = voc_add(ld, name, strlen(name), (uint32_t)json_integer_value(v), BPE_TOK_VOCAB);
        if (rc)
            return rc;
    }
    json_array_foreach(merges, i, v) {
        rc = voc_merge(ld, vocab, v, (uint32_t)i);
        if (rc)
            return rc;
    }
    return 0;
}

/* Appends an entry with these bytes; what set->e has room for. */
static int
voc_set_put(struct tok_set *set, const struct tok_added *t, const void *bytes, size_t n)
{
    struct tok_added *e = &set->e[set->n];

    if (set->bytes.n + n > UINT32_MAX)
        return -ENOMEM;
    *e = *t;
    e->off = (uint32_t)set->bytes.n;
    e->n = (uint32_t)n;
    if (tok_buf_put(&set->bytes, bytes, n))
        return -ENOMEM;
    set->n++;
    return 0;
}

static int
voc_set_cmp(const void *pa, const void *pb, void *bytes)
{
    const struct tok_added *a = pa, *b = pb;
    const uint8_t *s = bytes;
    uint32_t n = a->n < b->n ? a->n : b->n;
    int d = memcmp(s + a->off, s + b->off, n);

    if (d)
        return d;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    /* Of equal ones the special comes first, then the one entered first. */
    if (a->special != b->special)
        return a->special ? -1 : 1;
    return a->off < b->off ? -1 : a->off > b->off;
}

/* Sorts, drops all but the first of equal entries, indexes. */
static void
voc_set_seal(struct tok_set *set)
{
    uint32_t i, k = 0;
    unsigned c;

    if (set->n)
        qsort_r(set->e, set->n, sizeof(*set->e), voc_set_cmp, set->bytes.p);
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

/*
 * Enters a token to be looked for in normalized text. It decodes to its
 * normal form, as in the reference.
 */
static int
voc_put_normed(struct tok_ld *ld, struct tok_norm_run *run, const struct tok_added *t,
    const char *s, size_t n, unsigned flags)
{
    struct tok_buf out = { 0 };
    int rc = tok_norm_apply(&ld->tok->norm, run, (const uint8_t *)s, n, &out);

    if (rc)
        tok_ld_err(ld, rc, "added token \"%.60s\": %s", s, strerror(-rc));
    else if (!out.n)
        rc = tok_ld_err(ld, -ENOTSUP, "added token \"%.60s\" normalizes to nothing", s);
    else if (voc_set_put(&ld->tok->normed, t, out.p, out.n) || tok_buf_put(&out, "", 1))
        rc = tok_ld_err(ld, -ENOMEM, "out of memory");
    else if (flags & BPE_TOK_VOCAB)
        rc = voc_add(ld, s, n, t->id, flags);
    else
        rc = voc_add(ld, (const char *)out.p, out.n - 1, t->id, flags);
    tok_buf_fini(&out);
    return rc;
}

static int
voc_added_one(struct tok_ld *ld, struct tok_norm_run *run, const json_t *o)
{
    static const char *const names[] = { "special", "single_word", "lstrip", "rstrip",
        "normalized" };
    const json_t *content = json_object_get(o, "content"), *known;
    const char *s = json_string_value(content);
    size_t n = json_string_length(content), i;
    struct tok_added t = { .id = (uint32_t)json_integer_value(json_object_get(o, "id")) };
    unsigned flags;
    bool normalized;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const json_t *v = json_object_get(o, names[i]);
        if (v && !json_is_boolean(v))
            return tok_ld_err(ld, -EINVAL,
                "added token \"%.60s\": \"%s\" is not true or "
                "false",
                s, names[i]);
    }
    t.special = json_is_true(json_object_get(o, "special"));
    t.single_word = json_is_true(json_object_get(o, "single_word"));
    t.lstrip = json_is_true(json_object_get(o, "lstrip"));
    t.rstrip = json_is_true(json_object_get(o, "rstrip"));
    normalized = json_is_true(json_object_get(o, "normalized"));
    if (!n)
        return 0;
    known = json_object_get(json_object_get(ld->model, "vocab"), s);
    if (known && json_integer_value(known) != (json_int_t)t.id)
        return tok_ld_err(ld, -EINVAL,
            "added token \"%.60s\" has id %u, but %lld in the "
            "vocabulary",
            s, (unsigned)t.id, (long long)json_integer_value(known));
    flags = BPE_TOK_ADDED | (t.special ? BPE_TOK_SPECIAL : 0) | (known ? BPE_TOK_VOCAB : 0);
    if (n > TOK_MAX_TOKEN_BYTES)
        return tok_ld_err(ld, -EINVAL,
            "added token of id %u has %zu bytes, more than the "
            "%u allowed",
            (unsigned)t.id, n, TOK_MAX_TOKEN_BYTES);
    if (voc_set_put(&ld->tok->all, &t, s, n) ||
        (!normalized && voc_set_put(&ld->tok->raw, &t, s, n)))
        return tok_ld_err(ld, -ENOMEM, "out of memory");
    return normalized ? voc_put_normed(ld, run, &t, s, n, flags)
                      : voc_add(ld, s, n, t.id, flags);
}

int
tok_ld_added(struct tok_ld *ld)
{
    struct tok *tok = ld->tok;
    size_t n = json_array_size(ld->added), i;
    struct tok_rx_run rx = { 0 };
    struct tok_norm_run run = { .rx = &rx };
    json_t *v;
    int rc = 0;

    if (n > TOK_MAX_VOCAB)
        return tok_ld_err(ld, -EINVAL, "%zu added tokens, more than the %u allowed", n,
            TOK_MAX_VOCAB);
    tok->all.e = calloc(n + 1, sizeof(*tok->all.e));
    tok->raw.e = calloc(n + 1, sizeof(*tok->raw.e));
    tok->normed.e = calloc(n + 1, sizeof(*tok->normed.e));
    if (!tok->all.e || !tok->raw.e || !tok->normed.e || tok_rx_run_init(&rx))
        return tok_ld_err(ld, -ENOMEM, "out of memory");
    json_array_foreach(ld->added, i, v) {
        rc = voc_added_one(ld, &run, v);
        if (rc)
            break;
    }
    if (!rc) {
        uint32_t before = tok->all.n;

        voc_set_seal(&tok->all);
        voc_set_seal(&tok->raw);
        voc_set_seal(&tok->normed);
        if (tok->all.n != before)
            rc = tok_ld_err(ld, -EINVAL, "added_tokens lists a token twice");
    }
    if (!rc && (rc = bpe_seal(tok->bpe, &ld->opts)))
        tok_ld_err(ld, rc, "model: %s", strerror(-rc));
    tok_norm_run_fini(&run);
    tok_rx_run_fini(&rx);
    return rc;
}
