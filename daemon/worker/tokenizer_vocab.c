/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* "model" of a tokenizer.json. */
#include "config.h"

#include "daemon/worker/tokenizer.h"
#include "daemon/worker/tokenizer_json.h"
#include "daemon/worker/tokenizer_load.h"

#include <errno.h>
#include <stdlib.h>

/* An entry of the vocabulary, as text of the file. */
struct voc_entry {
    struct tok_js_text name;
    double score; /* UNIGRAM */
    uint32_t id;
};

struct voc {
    struct tok_ld *ld;
    struct voc_entry *e;
    size_t n, cap;
};

/* A string of the file with escapes decoded, valid until the next call. */
static const uint8_t *
voc_plain(struct tok_ld *ld, const struct tok_js_text *t, size_t *ret_n)
{
    *ret_n = t->n;
    if (!t->escaped)
        return (const uint8_t *)t->s;
    ld->scratch.n = 0;
    if (tok_buf_room(&ld->scratch, t->n + 1))
        return NULL;
    *ret_n = tok_js_plain(t, ld->scratch.p);
    return ld->scratch.p;
}

/* ---- the vocabulary ---- */

static int
voc_id(struct tok_ld *ld, const char *name, size_t n, int64_t id, uint32_t *ret)
{
    if (id < 0 || id >= (int64_t)BPE_MAX_IDS)
        return tok_ld_err(ld, -EINVAL, "token \"%.*s\": id %lld is not in 0 .. %u",
            (int)(n > 60 ? 60 : n), name, (long long)id, BPE_MAX_IDS - 1);
    *ret = (uint32_t)id;
    return 0;
}

static int
voc_more(struct voc *voc)
{
    size_t cap = voc->cap ? 2 * voc->cap : 4096;
    struct voc_entry *e;

    if (voc->n == TOK_MAX_VOCAB)
        return tok_ld_err(voc->ld, -EINVAL,
            "model: vocabulary of more than the %u tokens allowed", TOK_MAX_VOCAB);
    if (voc->n < voc->cap)
        return 0;
    e = realloc(voc->e, cap * sizeof(*e));
    if (!e)
        return tok_ld_no_memory(voc->ld);
    voc->e = e;
    voc->cap = cap;
    return 0;
}

/* {"token": id, ...} */
static int
voc_read_object(struct voc *voc, struct tok_js *js)
{
    struct tok_ld *ld = voc->ld;
    int rc;

    if (!tok_js_take(js, '{') || tok_js_maybe(js, '}'))
        return 0;
    do {
        struct voc_entry *e;
        double id = -1;

        rc = voc_more(voc);
        if (rc)
            return rc;
        e = &voc->e[voc->n++];
        if (!tok_js_string(js, &e->name) || !tok_js_take(js, ':'))
            return 0;
        if (!tok_js_number(js, &id) || id < -1e15 || id > 1e15 || id != (double)(int64_t)id)
            return tok_ld_err(ld, -EINVAL, "token \"%.*s\": its id is not an integer",
                (int)(e->name.n > 60 ? 60 : e->name.n), e->name.s);
        rc = voc_id(ld, e->name.s, e->name.n, (int64_t)id, &e->id);
        if (rc)
            return rc;
    } while (tok_js_maybe(js, ','));
    return 0;
}

/* [["token", score], ...] */
static int
voc_read_array(struct voc *voc, struct tok_js *js)
{
    int rc;

    if (!tok_js_take(js, '[') || tok_js_maybe(js, ']'))
        return 0;
    do {
        struct voc_entry *e;

        rc = voc_more(voc);
        if (rc)
            return rc;
        e = &voc->e[voc->n];
        e->id = (uint32_t)voc->n++;
        if (!tok_js_maybe(js, '[') || !tok_js_string(js, &e->name) ||
            !tok_js_take(js, ',') || !tok_js_number(js, &e->score) || !tok_js_take(js, ']'))
            return tok_ld_err(voc->ld, -EINVAL,
                "model: \"vocab\" item %u is not [\"token\", score]", (unsigned)e->id);
    } while (tok_js_maybe(js, ','));
    return 0;
}

/* The highest id + 1 of vocabulary and added tokens, all checked for range. */
static int
voc_count(const struct voc *voc, uint32_t *ret)
{
    struct tok_ld *ld = voc->ld;
    uint32_t n = 0, id = 0;
    const char *name;
    json_t *v, *num;
    size_t i;
    int rc;

    for (i = 0; i < voc->n; i++)
        n = voc->e[i].id >= n ? voc->e[i].id + 1 : n;
    if (ld->added && !json_is_null(ld->added) && !json_is_array(ld->added))
        return tok_ld_err(ld, -EINVAL, "\"added_tokens\" is not an array");
    json_array_foreach(ld->added, i, v) {
        name = json_string_value(json_object_get(v, "content"));
        if (!name)
            return tok_ld_err(ld, -EINVAL, "added_tokens item %zu has no \"content\"", i);
        num = json_object_get(v, "id");
        rc = voc_id(ld, name, strlen(name),
            json_is_integer(num) ? json_integer_value(num) : -1, &id);
        if (rc)
            return rc;
        n = id >= n ? id + 1 : n;
    }
    if (!n)
        return tok_ld_err(ld, -EINVAL, "model: the vocabulary is empty");
    *ret = n;
    return 0;
}

static int
voc_read(struct voc *voc, bool array)
{
    struct tok_ld *ld = voc->ld;
    struct tok_js js = { .s = ld->vocab.s, .n = ld->vocab.n };

    if (!js.n || *js.s != (array ? '[' : '{'))
        return tok_ld_err(ld, -EINVAL, "model: no %s \"vocab\"", array ? "array" : "object");
    return array ? voc_read_array(voc, &js) : voc_read_object(voc, &js);
}

static int
voc_enter(const struct voc *voc, unsigned flags)
{
    struct tok_ld *ld = voc->ld;
    const uint8_t *s;
    size_t i, n;
    int rc = 0;

    for (i = 0; !rc && i < voc->n; i++) {
        s = voc_plain(ld, &voc->e[i].name, &n);
        rc = s ? tok_ld_put(ld, s, n, voc->e[i].id, flags) : tok_ld_no_memory(ld);
    }
    return rc;
}

/* ---- the models ---- */

/* Reads a boolean that may be null. */
static int
voc_flag(struct tok_ld *ld, const char *name, bool *ret)
{
    *ret = false;
    if (json_is_null(json_object_get(ld->model, name)))
        return 0;
    return tok_ld_bool(ld, ld->model, name, false, ret);
}

static int
voc_affix(struct tok_ld *ld, const char *name, uint8_t *ret, uint8_t *ret_n)
{
    const json_t *v = json_object_get(ld->model, name);

    if (!v || json_is_null(v))
        return 0;
    if (!json_is_string(v) || json_string_length(v) > BPE_MAX_AFFIX)
        return tok_ld_err(ld, -ENOTSUP,
            "model: \"%s\" is not null or a string of at most %u bytes", name,
            BPE_MAX_AFFIX);
    memcpy(ret, json_string_value(v), json_string_length(v));
    *ret_n = (uint8_t)json_string_length(v);
    return 0;
}

static int
voc_opts(struct tok_ld *ld)
{
    const json_t *dropout = json_object_get(ld->model, "dropout");
    struct bpe_opts *o = &ld->opts;
    int rc = voc_flag(ld, "ignore_merges", &o->ignore_merges);

    rc = rc ? rc : voc_flag(ld, "byte_fallback", &o->byte_fallback);
    rc = rc ? rc : voc_flag(ld, "fuse_unk", &o->fuse_unk);
    rc = rc ? rc : voc_affix(ld, "continuing_subword_prefix", o->prefix, &o->n_prefix);
    rc = rc ? rc : voc_affix(ld, "end_of_word_suffix", o->suffix, &o->n_suffix);
    if (!rc && dropout && !json_is_null(dropout) &&
        (!json_is_number(dropout) || json_number_value(dropout) != 0.0))
        return tok_ld_err(ld, -ENOTSUP,
            "model: \"dropout\" is not supported (must be null or 0)");
    if (!rc && o->byte_fallback && (o->n_prefix || o->n_suffix))
        return tok_ld_err(ld, -ENOTSUP,
            "model: \"byte_fallback\" with \"continuing_subword_prefix\" or "
            "\"end_of_word_suffix\" is not supported");
    return rc;
}

/* Whether each byte of a text is in the vocabulary, by itself or as "<0xXX>". */
static bool
voc_all_bytes(struct tok_ld *ld)
{
    const struct bpe *bpe = ld->tok->bpe;
    bool plain = ld->tok->kind == TOK_MODEL_BYTES, named = ld->opts.byte_fallback;
    char name[8];

    for (unsigned b = 0; b < 256; b++) {
        uint8_t byte = (uint8_t)b;
        (void)snprintf(name, sizeof(name), "<0x%02X>", b);
        plain = plain && bpe_find(bpe, &byte, 1) >= 0;
        named = named && bpe_find(bpe, (const uint8_t *)name, 6) >= 0;
    }
    return plain || named;
}

/* Looks up the id of the unknown token by its name. It may be missing if nothing is
 * unknown: the library looks it up when it needs it. */
static int
voc_unk(struct tok_ld *ld, bool required, int64_t *ret)
{
    const json_t *unk = json_object_get(ld->model, "unk_token");
    int id;

    *ret = -1;
    if (!required && (!unk || json_is_null(unk)))
        return 0;
    if (!json_is_string(unk))
        return tok_ld_err(ld, -EINVAL, "model: \"unk_token\" is not a string");
    id = tok_ld_find(ld, json_string_value(unk), json_string_length(unk));
    if (id >= 0)
        *ret = id;
    else if (required || !voc_all_bytes(ld))
        return tok_ld_err(ld, -EINVAL,
            "model: \"unk_token\" is \"%.60s\", which is not in the vocabulary",
            json_string_value(unk));
    return 0;
}

static int
voc_new(struct tok_ld *ld, struct voc *voc, size_t n_merges, unsigned flags)
{
    int rc = voc_count(voc, &ld->tok->n_ids);

    if (rc)
        return rc;
    ld->tok->bpe = bpe_new(ld->tok->n_ids, (uint32_t)n_merges);
    return ld->tok->bpe ? voc_enter(voc, flags) : tok_ld_no_memory(ld);
}

static int
voc_bpe(struct tok_ld *ld, struct voc *voc)
{
    size_t n = ld->merges.n_items;
    int rc = voc_opts(ld);

    if (!ld->merges.n || *ld->merges.s != '[')
        return tok_ld_err(ld, -EINVAL, "model: no array \"merges\"");
    if (n > 2 * (size_t)BPE_MAX_IDS)
        return tok_ld_err(ld, -EINVAL, "model: %zu merges, more than the %u allowed", n,
            2 * BPE_MAX_IDS);
    if (ld->byte_level && ld->dec_bytes && !ld->opts.n_prefix && !ld->opts.n_suffix)
        ld->tok->kind = TOK_MODEL_BYTES;
    else
        ld->tok->kind = TOK_MODEL_CHARS;
    ld->opts.chars = ld->tok->kind == TOK_MODEL_CHARS;
    rc = rc ? rc : voc_read(voc, false);
    rc = rc ? rc : voc_new(ld, voc, n, BPE_TOK_VOCAB);
    rc = rc ? rc : voc_unk(ld, false, &ld->opts.unk_id);
    return rc ? rc : tok_ld_merges(ld, n);
}

static int
voc_unigram(struct tok_ld *ld, struct voc *voc)
{
    const json_t *unk = json_object_get(ld->model, "unk_id");
    json_int_t unk_id = json_is_integer(unk) ? json_integer_value(unk) : -1;
    size_t i;
    int rc = voc_flag(ld, "byte_fallback", &ld->opts.byte_fallback);

    ld->tok->kind = TOK_MODEL_UNIGRAM;
    ld->opts.unk_id = -1;
    rc = rc ? rc : voc_read(voc, true);
    rc = rc ? rc : voc_new(ld, voc, 0, BPE_TOK_VOCAB | BPE_TOK_LAST);
    if (!rc && (unk_id < 0 || unk_id >= (json_int_t)voc->n))
        rc = tok_ld_err(ld, -EINVAL, "model: \"unk_id\" is not in 0 .. %zu", voc->n - 1);
    if (rc)
        return rc;
    ld->tok->uni = uni_new(ld->tok->n_ids);
    if (!ld->tok->uni)
        return tok_ld_no_memory(ld);
    for (i = 0; !rc && i < voc->n; i++)
        if (voc->e[i].name.n)
            rc = uni_add(ld->tok->uni, (uint32_t)i, voc->e[i].score);
    rc = rc
        ? rc
        : uni_seal(ld->tok->uni, ld->tok->bpe, (uint32_t)unk_id, ld->opts.byte_fallback);
    return rc ? tok_ld_err(ld, rc, "model: %s", strerror(-rc)) : 0;
}

/* Builds the trie of all entries, and finds the node after the prefix of continuing
 * pieces. */
static int
voc_index(struct tok_ld *ld, const struct voc *voc, const char *prefix, size_t n_prefix)
{
    struct tri_entry *e = calloc(voc->n ? voc->n : 1, sizeof(*e));
    struct wpc *wpc = &ld->tok->wpc;
    unsigned flags;
    size_t i, n;
    int rc = e ? 0 : -ENOMEM;

    for (i = 0; !rc && i < voc->n; i++) {
        rc = bpe_token(ld->tok->bpe, voc->e[i].id, &e[i].s, &n, &flags);
        e[i].n = (uint32_t)n;
        e[i].value = (int32_t)voc->e[i].id;
    }
    rc = rc ? rc : tri_build(&wpc->trie, e, voc->n);
    free(e);
    wpc->inner = rc ? 0 : TRI_ROOT;
    for (i = 0; wpc->inner && i < n_prefix; i++)
        wpc->inner = tri_step(&wpc->trie, wpc->inner, (uint8_t)prefix[i]);
    return rc ? tok_ld_no_memory(ld) : 0;
}

static int
voc_wordpiece(struct tok_ld *ld, struct voc *voc)
{
    const json_t *prefix = json_object_get(ld->model, "continuing_subword_prefix");
    const json_t *max = json_object_get(ld->model, "max_input_chars_per_word");
    struct wpc *wpc = &ld->tok->wpc;
    int64_t unk;
    int rc;

    ld->tok->kind = TOK_MODEL_WORDPIECE;
    ld->opts.unk_id = -1;
    if (!json_is_string(prefix))
        return tok_ld_err(ld, -EINVAL,
            "model: \"continuing_subword_prefix\" is not a string");
    if (!json_is_integer(max) || json_integer_value(max) < 0)
        return tok_ld_err(ld, -EINVAL,
            "model: \"max_input_chars_per_word\" is not an integer that is not negative");
    wpc->max_chars = (size_t)json_integer_value(max);
    rc = voc_read(voc, false);
    rc = rc ? rc : voc_new(ld, voc, 0, BPE_TOK_VOCAB);
    rc = rc ? rc : voc_unk(ld, true, &unk);
    if (rc)
        return rc;
    wpc->unk_id = (uint32_t)unk;
    return voc_index(ld, voc, json_string_value(prefix), json_string_length(prefix));
}

int
tok_ld_model(struct tok_ld *ld)
{
    const json_t *type = json_object_get(ld->model, "type");
    const char *name = json_is_string(type) ? json_string_value(type) : "(none)";
    struct voc voc = { .ld = ld };
    int rc;

    if (!json_is_object(ld->model))
        return tok_ld_err(ld, -EINVAL, "\"model\" is not an object");
    if (!type || !strcmp(name, "BPE"))
        rc = voc_bpe(ld, &voc);
    else if (!strcmp(name, "Unigram"))
        rc = voc_unigram(ld, &voc);
    else if (!strcmp(name, "WordPiece"))
        rc = voc_wordpiece(ld, &voc);
    else
        rc = tok_ld_err(ld, -ENOTSUP,
            "model type \"%.60s\" is not supported (supported: BPE, Unigram, WordPiece)",
            name);
    free(voc.e);
    return rc;
}
