/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/tokenizer_load.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/worker/tokenizer.h"

#define DEC_BYTE 0x80000000u /* flag in tok_dec_text.n: a byte, not a text */
/* Most bytes that one byte of a run becomes; detok.c makes room for them. */
#define DEC_GROWTH 3u
/* A token's text; its length is sent with 16 bits (files.c). */
#define DEC_MAX_BYTES (16u * BPE_MAX_TOKEN_BYTES - 1)

enum dec_kind {
    DEC_REPLACE,
    DEC_META,
    DEC_WORDPIECE,
    DEC_STRIP,
    DEC_BPE,
    DEC_JOIN,
    DEC_FALLBACK
};

struct dec_op {
    enum dec_kind kind;
    struct tok_norm norm;                 /* REPLACE, of one op */
    struct tok_buf text;                  /* WORDPIECE: prefix, BPE: suffix */
    uint8_t mark[TOK_CHAR_BYTES], n_mark; /* META, STRIP */
    bool drop_first;                      /* META: remove the marks of the first token */
    bool cleanup;                         /* WORDPIECE */
    uint32_t start, stop;                 /* STRIP */
};

struct dec_load {
    struct tok_ld *ld;
    struct dec_op op[TOK_MAX_DECODERS];
    unsigned n_ops;
    bool fallback, fused;
    struct tok_rx_run rx;
    struct tok_norm_run run;
    struct tok_buf a, b;
    struct tok_buf pool;
};

void
tok_dec_fini(struct tok_dec *dec)
{
    unsigned i, k;

    for (i = TOK_PLACES; i--;) {
        for (k = 0; k < i && dec->text[k] != dec->text[i]; k++)
            ;
        if (k == i)
            free(dec->text[i]);
        dec->text[i] = NULL;
    }
    free(dec->bytes);
}

const struct tok_dec *
tok_dec_of(const struct tok *tok)
{
    return &tok->dec;
}

int
tok_dec_text(const struct tok *tok, uint32_t id, unsigned place, const uint8_t **ret,
    size_t *ret_n, unsigned *ret_flags, int *ret_byte)
{
    const struct tok_dec_text *t;
    unsigned flags;
    int rc = bpe_token(tok->bpe, id, ret, ret_n, &flags);

    if (rc)
        return rc;
    *ret_flags = (flags & BPE_TOK_ADDED ? TOK_ID_ADDED : 0u) |
        (flags & BPE_TOK_SPECIAL ? TOK_ID_SPECIAL : 0u);
    *ret_byte = -1;
    if (!tok->dec.text[0])
        return 0;
    t = &tok->dec.text[place][id];
    *ret = tok->dec.bytes + t->off;
    *ret_n = t->n;
    if (t->n & DEC_BYTE) {
        *ret_byte = (int)(t->n & 255);
        *ret_n = 1;
    }
    return 0;
}

bool
tok_ld_is_bytes(const json_t *decoder)
{
    const json_t *first = json_array_get(json_object_get(decoder, "decoders"), 0);

    if (!strcmp(tok_ld_type(decoder), "Sequence"))
        return first && tok_ld_is_bytes(first);
    return !strcmp(tok_ld_type(decoder), "ByteLevel");
}

/* ---- the decoder's output for one token ---- */

/* Replaces each occurrence of the n bytes, not 0, of find, which may be NUL. */
static int
dec_swap(const struct tok_buf *in, const void *find, size_t n, const char *by,
    struct tok_buf *out)
{
    size_t at = 0;

    out->n = 0;
    while (at < in->n) {
        bool hit = in->n - at >= n && !memcmp(in->p + at, find, n);
        if (hit ? tok_buf_put(out, by, strlen(by)) : tok_buf_put(out, in->p + at, 1))
            return -ENOMEM;
        at += hit ? n : 1;
    }
    return 0;
}

static int
dec_clean(struct tok_buf *text, struct tok_buf *tmp)
{
    static const char *const rows[][2] = { { " .", "." }, { " ?", "?" }, { " !", "!" },
        { " ,", "," }, { " ' ", "'" }, { " n't", "n't" }, { " 'm", "'m" },
        { " do not", " don't" }, { " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" } };
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tok_buf was = *text;

        if (dec_swap(text, rows[i][0], strlen(rows[i][0]), rows[i][1], tmp))
            return -ENOMEM;
        *text = *tmp;
        *tmp = was;
    }
    return 0;
}

/* Each mark becomes a space, or is removed. */
static int
dec_meta(const struct dec_op *op, const struct tok_buf *in, bool first, struct tok_buf *out)
{
    return dec_swap(in, op->mark, op->n_mark, first && op->drop_first ? "" : " ", out);
}

static int
dec_wordpiece(const struct dec_op *op, const struct tok_buf *in, bool first,
    struct tok_buf *out, struct tok_buf *tmp)
{
    size_t skip = 0;

    out->n = 0;
    if (!first && in->n >= op->text.n &&
        (!op->text.n || !memcmp(in->p, op->text.p, op->text.n)))
        skip = op->text.n;
    else if (!first && tok_buf_put(out, " ", 1))
        return -ENOMEM;
    if (tok_buf_put(out, in->p + skip, in->n - skip))
        return -ENOMEM;
    return op->cleanup ? dec_clean(out, tmp) : 0;
}

static bool
dec_is(const struct dec_op *op, const uint8_t *s, size_t n)
{
    return n >= op->n_mark && !memcmp(s, op->mark, op->n_mark);
}

static int
dec_strip(const struct dec_op *op, const struct tok_buf *in, struct tok_buf *out)
{
    size_t a = 0, b = in->n;
    uint32_t i;

    for (i = 0; i < op->start && dec_is(op, in->p + a, b - a); i++)
        a += op->n_mark;
    for (i = 0; i < op->stop && b - a >= op->n_mark; i++) {
        if (!dec_is(op, in->p + b - op->n_mark, op->n_mark))
            break;
        b -= op->n_mark;
    }
    out->n = 0;
    return tok_buf_put(out, in->p + a, b - a);
}

static int
dec_bpe(const struct dec_op *op, const struct tok_buf *in, bool last, struct tok_buf *out)
{
    size_t at = 0, n = op->text.n;

    out->n = 0;
    while (at < in->n) {
        bool hit = n && in->n - at >= n && !memcmp(in->p + at, op->text.p, n);
        if (hit ? tok_buf_put(out, " ", !last) : tok_buf_put(out, in->p + at, 1))
            return -ENOMEM;
        at += hit ? n : 1;
    }
    return 0;
}

static int
dec_apply(struct dec_load *d, const struct dec_op *op, unsigned place,
    struct tok_buf *text, struct tok_buf *out)
{
    bool first = place & TOK_AT_FIRST;

    out->n = 0;
    switch (op->kind) {
    case DEC_REPLACE:
        return tok_norm_apply(&op->norm, &d->run, text->n ? text->p : (const uint8_t *)"",
            text->n, out);
    case DEC_META:
        return dec_meta(op, text, first, out);
    case DEC_WORDPIECE:
        return dec_wordpiece(op, text, first, out, &d->run.a);
    case DEC_STRIP:
        return dec_strip(op, text, out);
    case DEC_BPE:
        return dec_bpe(op, text, place & TOK_AT_LAST, out);
    default: /* DEC_JOIN */
        if (!first && tok_buf_put(out, " ", 1))
            return -ENOMEM;
        return tok_buf_put(out, text->p, text->n);
    }
}

static int
dec_hex(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0'
        : (c | 32) >= 'a' && (c | 32) <= 'f'
        ? (c | 32) - 'a' + 10
        : -1;
}

/* The byte that "<0xXX>" names, or -1. */
static int
dec_byte(const struct tok_buf *t)
{
    int hi, lo;

    if (t->n != 6 || memcmp(t->p, "<0x", 3) != 0 || t->p[5] != '>')
        return -1;
    hi = t->p[3] == '+' ? 0 : dec_hex(t->p[3]);
    lo = dec_hex(t->p[4]);
    return hi < 0 || lo < 0 ? -1 : hi << 4 | lo;
}

static int
dec_too_long(struct dec_load *d, size_t n, uint32_t id)
{
    return tok_ld_err(d->ld, -EINVAL,
        "decoder makes %zu bytes of the token of id %u, more than the %u allowed", n,
        (unsigned)id, DEC_MAX_BYTES);
}

/* Puts the text of s at a position into the pool. */
static int
dec_one(struct dec_load *d, const uint8_t *s, size_t n, unsigned place, uint32_t id,
    struct tok_dec_text *ret)
{
    struct tok_buf *text = &d->a, *out = &d->b, *was;
    int rc, byte;
    unsigned i;

    text->n = 0;
    if (tok_buf_put(text, s, n))
        return tok_ld_no_memory(d->ld);
    for (i = 0; i < d->n_ops; i++) {
        if (d->op[i].kind == DEC_FALLBACK) {
            byte = dec_byte(text);
            if (byte < 0)
                continue;
            *ret = (struct tok_dec_text){ 0, DEC_BYTE | (uint32_t)byte };
            ret->off = (uint32_t)d->pool.n;
            return tok_buf_put(&d->pool, &(uint8_t){ (uint8_t)byte }, 1)
                ? tok_ld_no_memory(d->ld)
                : 0;
        }
        rc = dec_apply(d, &d->op[i], place, text, out);
        if (rc)
            return tok_ld_err(d->ld, rc, "decoder: token of id %u: %s", (unsigned)id,
                strerror(-rc));
        if (out->n > DEC_MAX_BYTES) /* the next decoder could multiply it */
            return dec_too_long(d, out->n, id);
        was = text;
        text = out;
        out = was;
    }
    if (text->n > DEC_MAX_BYTES || d->pool.n > UINT32_MAX - DEC_MAX_BYTES)
        return dec_too_long(d, text->n, id);
    *ret = (struct tok_dec_text){ (uint32_t)d->pool.n, (uint32_t)text->n };
    if (text->n > d->ld->tok->dec.max_bytes)
        d->ld->tok->dec.max_bytes = text->n;
    return tok_buf_put(&d->pool, text->p, text->n) ? tok_ld_no_memory(d->ld) : 0;
}

/* ---- the decoders of the file ---- */

static int
dec_refuse(struct dec_load *d, const char *type)
{
    return tok_ld_err(d->ld, -ENOTSUP, "decoder type \"%.60s\" after %s is not supported",
        type, d->fused ? "Fuse or ByteLevel" : "ByteFallback");
}

static int
dec_count(struct dec_load *d, const json_t *o, const char *name, uint32_t *ret)
{
    const json_t *v = json_object_get(o, name);

    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 65535)
        return tok_ld_err(d->ld, -EINVAL, "decoder %s: \"%s\" is not in 0 .. 65535",
            tok_ld_type(o), name);
    *ret = (uint32_t)json_integer_value(v);
    return 0;
}

static int
dec_read_strip(struct dec_load *d, const json_t *o, struct dec_op *op)
{
    int rc = tok_ld_char(d->ld, o, "content", op->mark, &op->n_mark);

    op->kind = DEC_STRIP;
    rc = rc ? rc : dec_count(d, o, "start", &op->start);
    return rc ? rc : dec_count(d, o, "stop", &op->stop);
}

static int
dec_read_meta(struct dec_load *d, const json_t *o, struct dec_op *op)
{
    const json_t *scheme = json_object_get(o, "prepend_scheme");
    const char *name = json_string_value(scheme);
    int rc = tok_ld_char(d->ld, o, "replacement", op->mark, &op->n_mark);

    op->kind = DEC_META;
    rc = rc ? rc : tok_ld_bool(d->ld, o, "add_prefix_space", true, &op->drop_first);
    if (rc || !scheme)
        return rc;
    if (!name ||
        (strcmp(name, "always") != 0 && strcmp(name, "first") != 0 &&
            strcmp(name, "never") != 0))
        return tok_ld_err(d->ld, -ENOTSUP,
            "decoder Metaspace: \"prepend_scheme\" is \"%.60s\", not one of always, first, "
            "never",
            name ? name : "(none)");
    op->drop_first = strcmp(name, "never") != 0;
    return 0;
}

static int
dec_read_replace(struct dec_load *d, const json_t *o, struct dec_op *op)
{
    struct tok_norm_op *r = &op->norm.op[0];
    int rc;

    op->kind = DEC_REPLACE;
    op->norm.n_ops = 1;
    r->kind = TOK_NORM_REPLACE;
    rc = tok_ld_pattern(d->ld, o, &r->rx, &r->find);
    return rc ? rc : tok_ld_text(d->ld, o, "content", &r->text);
}

static int
dec_read_piece(struct dec_load *d, const json_t *o, struct dec_op *op)
{
    int rc;

    if (!strcmp(tok_ld_type(o), "BPEDecoder")) {
        op->kind = DEC_BPE;
        rc = tok_ld_text(d->ld, o, "suffix", &op->text);
        return rc || op->text.n
            ? rc
            : tok_ld_err(d->ld, -ENOTSUP,
                  "decoder BPEDecoder: \"suffix\" is empty, which is not "
                  "supported");
    }
    op->kind = DEC_WORDPIECE;
    rc = tok_ld_text(d->ld, o, "prefix", &op->text);
    return rc ? rc : tok_ld_bool(d->ld, o, "cleanup", true, &op->cleanup);
}

/* A decoder after ByteFallback also applies to the text of a run of bytes, which is not
 * known at load: keeps its replacement for detok.c. */
static int
dec_in_run(struct dec_load *d, const json_t *o, const struct dec_op *op)
{
    struct tok_swap *swap = &d->ld->tok->dec.swap;
    const struct tok_norm_op *r = &op->norm.op[0];
    uint32_t cp;

    if (swap->n_from || (op->kind != DEC_META && op->kind != DEC_REPLACE))
        return dec_refuse(d, tok_ld_type(o));
    if (op->kind == DEC_META) {
        *swap = (struct tok_swap){ .n_from = op->n_mark, .n_to = 1, .to = " " };
        memcpy(swap->from, op->mark, op->n_mark);
        return 0;
    }
    if (!r->find.n || tok_utf8_get(r->find.p, &cp) != r->find.n ||
        r->text.n > TOK_CHAR_BYTES || r->text.n > DEC_GROWTH * r->find.n)
        return dec_refuse(d, tok_ld_type(o));
    swap->n_from = (uint8_t)r->find.n;
    swap->n_to = (uint8_t)r->text.n;
    memcpy(swap->from, r->find.p, r->find.n);
    if (r->text.n)
        memcpy(swap->to, r->text.p, r->text.n);
    return 0;
}

/* After Fuse only Strip is supported, for the whole text. */
static int
dec_read_fused(struct dec_load *d, const json_t *o)
{
    struct tok_dec *dec = &d->ld->tok->dec;
    struct dec_op op = { 0 };
    int rc;

    if (!strcmp(tok_ld_type(o), "Fuse"))
        return 0;
    if (strcmp(tok_ld_type(o), "Strip") != 0 || dec->n_strip)
        return dec_refuse(d, tok_ld_type(o));
    rc = dec_read_strip(d, o, &op);
    memcpy(dec->strip, op.mark, sizeof(op.mark));
    dec->n_strip = op.n_mark;
    dec->strip_start = op.start;
    dec->strip_stop = op.stop;
    return rc;
}

static int
dec_read(struct dec_load *d, const json_t *o, int depth)
{
    static const struct {
        const char *name;
        int (*read)(struct dec_load *, const json_t *, struct dec_op *);
    } rows[] = { { "Metaspace", dec_read_meta }, { "WordPiece", dec_read_piece },
        { "BPEDecoder", dec_read_piece }, { "Strip", dec_read_strip },
        { "Replace", dec_read_replace } };
    json_t *list = NULL;
    const char *type = tok_ld_type(o);
    size_t i;
    int rc = 0;

    if (!strcmp(type, "Sequence")) {
        rc = tok_ld_list(d->ld, o, "decoders", "decoder", depth, &list);
        for (i = 0; !rc && i < json_array_size(list); i++)
            rc = dec_read(d, json_array_get(list, i), depth + 1);
        return rc;
    }
    if (d->fused)
        return dec_read_fused(d, o);
    if (!strcmp(type, "Fuse") || (!strcmp(type, "ByteLevel") && !d->fallback)) {
        d->fused = true;
        d->ld->tok->dec.lossy = *type == 'B';
        return 0;
    }
    if (d->n_ops == TOK_MAX_DECODERS)
        return tok_ld_err(d->ld, -EINVAL, "more than %u decoders", TOK_MAX_DECODERS);
    if (!strcmp(type, "ByteFallback") && !d->fallback) {
        d->op[d->n_ops++].kind = DEC_FALLBACK;
        d->fallback = true;
        return 0;
    }
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (!strcmp(type, rows[i].name)) {
            struct dec_op *op = &d->op[d->n_ops++];

            rc = rows[i].read(d, o, op);
            return rc || !d->fallback ? rc : dec_in_run(d, o, op);
        }
    if (d->fallback && (!strcmp(type, "ByteLevel") || !strcmp(type, "ByteFallback")))
        return dec_refuse(d, type);
    return tok_ld_err(d->ld, -ENOTSUP,
        "decoder type \"%.60s\" is not supported (supported: ByteLevel, ByteFallback, Fuse, "
        "Metaspace, WordPiece, BPEDecoder, Replace, Strip, Sequence)",
        type);
}

/* ---- the texts of all tokens ---- */

/* By id: the added tokens that are searched in normalized text. */
static int
dec_normal_forms(struct tok_ld *ld, const struct tok_added ***ret)
{
    const struct tok_set *set = &ld->tok->normed;
    uint32_t i;

    *ret = set->n ? calloc(ld->tok->n_ids, sizeof(**ret)) : NULL;
    if (set->n && !*ret)
        return tok_ld_no_memory(ld);
    for (i = 0; i < set->n; i++)
        (*ret)[set->e[i].id] = &set->e[i];
    return 0;
}

/* A text that consists of characters of the byte alphabet becomes bytes, as by
 * ByteLevel. */
static int
dec_unspell(struct tok_buf *t, struct tok_buf *tmp)
{
    size_t i = 0;
    uint32_t cp;
    int b;

    tmp->n = 0;
    while (i < t->n) {
        i += tok_utf8_get(t->p + i, &cp);
        b = bpe_char_to_byte(cp);
        if (b < 0)
            return 0;
        if (tok_buf_put(tmp, &(uint8_t){ (uint8_t)b }, 1))
            return -ENOMEM;
    }
    memcpy(t->p, tmp->p, tmp->n);
    t->n = tmp->n;
    return 0;
}

static int
dec_texts(struct dec_load *d, const struct tok_added *const *normal)
{
    struct tok *tok = d->ld->tok;
    struct tok_dec *dec = &tok->dec;
    unsigned places = dec->by_last ? 4 : dec->by_first ? 2 : 1, p, flags;
    const uint8_t *s;
    size_t n;
    uint32_t id;
    int rc;

    for (p = 0; p < TOK_PLACES; p++) {
        dec->text[p] = p < places ? calloc(tok->n_ids, sizeof(*dec->text[p]))
                                  : dec->text[p & (places - 1)];
        if (!dec->text[p])
            return tok_ld_no_memory(d->ld);
    }
    for (id = 0; id < tok->n_ids; id++) {
        if (bpe_token(tok->bpe, id, &s, &n, &flags))
            continue;
        if (normal && normal[id]) {
            s = tok->normed.bytes.p + normal[id]->off;
            n = normal[id]->n;
        }
        for (p = 0; p < places; p++) {
            struct tok_dec_text *t = &dec->text[p][id];

            rc = dec_one(d, s, n, p, id, t);
            if (rc)
                return rc;
            if (dec->lossy && !(t->n & DEC_BYTE)) {
                struct tok_buf text = { d->pool.p + t->off, t->n, t->n };

                if (dec_unspell(&text, &d->a))
                    return tok_ld_no_memory(d->ld);
                t->n = (uint32_t)text.n;
                d->pool.n = t->off + text.n;
            }
        }
    }
    dec->bytes = d->pool.p;
    d->pool = (struct tok_buf){ 0 };
    return 0;
}

static void
dec_fini(struct dec_load *d)
{
    unsigned i;

    for (i = 0; i < d->n_ops; i++) {
        tok_norm_fini(&d->op[i].norm);
        tok_buf_fini(&d->op[i].text);
    }
    tok_norm_run_fini(&d->run);
    tok_rx_run_fini(&d->rx);
    tok_buf_fini(&d->a);
    tok_buf_fini(&d->b);
    tok_buf_fini(&d->pool);
}

int
tok_ld_decoder(struct tok_ld *ld, const json_t *o)
{
    struct tok_dec *dec = &ld->tok->dec;
    struct dec_load d = { .ld = ld, .run = { .rx = &d.rx } };
    const struct tok_added **normal = NULL;
    unsigned i;
    int rc;

    if (tok_rx_run_init(&d.rx))
        return tok_ld_no_memory(ld);
    dec->max_bytes = ld->tok->max_token_bytes;
    rc = o ? dec_read(&d, o, 0) : 0;
    if (!o)
        d.op[d.n_ops++].kind = DEC_JOIN;
    dec->fallback = d.fallback;
    for (i = 0; i < d.n_ops; i++) {
        enum dec_kind kind = d.op[i].kind;
        dec->by_last |= kind == DEC_BPE;
        dec->by_first |= kind == DEC_WORDPIECE || kind == DEC_JOIN ||
            (kind == DEC_META && d.op[i].drop_first);
    }
    rc = rc ? rc : dec_normal_forms(ld, &normal);
    /* for a model of bytes without decoders, the vocabulary has the texts */
    if (!rc && (ld->tok->kind != TOK_MODEL_BYTES || d.n_ops))
        rc = dec_texts(&d, normal);
    free(normal);
    dec_fini(&d);
    return rc;
}
