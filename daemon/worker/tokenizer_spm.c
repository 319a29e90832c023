/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * SentencePiece's tokenizer.model: a protocol buffer of pieces with scores, the options
 * of the trainer and the normalizer.
 */
#include "config.h"

#include "daemon/worker/tokenizer.h"
#include "daemon/worker/tokenizer_load.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "daemon/common/text.h"

enum spm_type {
    SPM_NORMAL = 1,
    SPM_UNKNOWN,
    SPM_CONTROL,
    SPM_USER,
    SPM_UNUSED,
    SPM_BYTE
};
enum spm_model { SPM_UNIGRAM = 1, SPM_BPE };

/* A field: its bytes, or its value. */
struct spm_field {
    uint32_t number, wire;
    const uint8_t *s;
    size_t n;
    uint64_t value;
};

struct spm_piece {
    const uint8_t *s;
    size_t n;
    float score;
    uint32_t id;
    uint64_t type;
};

struct spm {
    struct tok_ld *ld;
    struct spm_piece *e;
    size_t n, cap;
    uint64_t model;
    int64_t bos, eos;
    int64_t unk; /* id of the unknown piece, -1: none */
    bool byte_fallback, suffix;
    struct tok_norm_op *norm;
};

/* A reader of a message. */
struct spm_in {
    const uint8_t *s;
    size_t n, at;
};

static bool
spm_varint(struct spm_in *in, uint64_t *ret)
{
    unsigned shift;

    *ret = 0;
    for (shift = 0; shift < 64 && in->at < in->n; shift += 7) {
        uint8_t b = in->s[in->at++];

        *ret |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80)
            return true;
    }
    return false;
}

/* Reads the next field. 1: in *f; 0: end of the message; -EINVAL: invalid. */
static int
spm_next(struct spm_in *in, struct spm_field *f)
{
    uint64_t tag;
    size_t i;

    if (in->at == in->n)
        return 0;
    if (!spm_varint(in, &tag) || tag >> 3 == 0 || tag >> 3 > UINT32_MAX)
        return -EINVAL;
    *f = (struct spm_field){ .number = (uint32_t)(tag >> 3), .wire = tag & 7 };
    switch (f->wire) {
    case 0:
        return spm_varint(in, &f->value) ? 1 : -EINVAL;
    case 1:
    case 5:
        f->n = f->wire == 1 ? 8 : 4;
        break;
    case 2:
        if (!spm_varint(in, &f->value))
            return -EINVAL;
        f->n = f->value > SIZE_MAX ? SIZE_MAX : (size_t)f->value;
        break;
    default:
        return -EINVAL;
    }
    if (f->n > in->n - in->at)
        return -EINVAL;
    f->s = in->s + in->at;
    in->at += f->n;
    for (i = 0; f->wire != 2 && i < f->n; i++)
        f->value |= (uint64_t)f->s[i] << 8 * i;
    return 1;
}

static int
spm_bad(struct spm *m, const char *what, uint32_t field)
{
    return tok_ld_err(m->ld, -EINVAL, "%s: field %u is not as SentencePiece writes it",
        what, (unsigned)field);
}

static int
spm_read_piece(struct spm *m, const uint8_t *s, size_t n)
{
    struct spm_in in = { .s = s, .n = n };
    struct spm_field f = { 0 };
    struct spm_piece *e;
    int rc;

    if (m->n == TOK_MAX_VOCAB)
        return tok_ld_err(m->ld, -EINVAL, "more than the %u pieces allowed", TOK_MAX_VOCAB);
    if (m->n == m->cap) {
        size_t cap = m->cap ? 2 * m->cap : 4096;

        e = realloc(m->e, cap * sizeof(*e));
        if (!e)
            return tok_ld_no_memory(m->ld);
        m->e = e;
        m->cap = cap;
    }
    e = &m->e[m->n];
    *e = (struct spm_piece){ .type = SPM_NORMAL, .id = (uint32_t)m->n++ };
    while ((rc = spm_next(&in, &f)) > 0) {
        uint32_t bits = (uint32_t)f.value;

        if (f.number == 1 && f.wire == 2) {
            e->s = f.s;
            e->n = f.n;
        } else if (f.number == 2 && f.wire == 5) {
            memcpy(&e->score, &bits, sizeof(bits));
        } else if (f.number == 3 && f.wire == 0) {
            e->type = f.value;
        } else if (f.number <= 3) {
            rc = -EINVAL;
            break;
        }
    }
    if (rc || !e->n || e->n > TOK_MAX_TOKEN_BYTES || txt_utf8(e->s, e->n) != e->n ||
        !isfinite(e->score) || e->type < SPM_NORMAL || e->type > SPM_BYTE)
        return tok_ld_err(m->ld, -EINVAL,
            "piece %u: not UTF-8 of 1 to %u bytes with a finite score and a type of 1 to 6",
            (unsigned)e->id, TOK_MAX_TOKEN_BYTES);
    if (e->type == SPM_UNUSED)
        return tok_ld_err(m->ld, -ENOTSUP,
            "piece %u \"%.*s\" is of the type UNUSED, which is "
            "not supported",
            (unsigned)e->id, (int)(e->n > 60 ? 60 : e->n), (const char *)e->s);
    return 0;
}

static int
spm_read_trainer(struct spm *m, const uint8_t *s, size_t n)
{
    struct spm_in in = { .s = s, .n = n };
    struct spm_field f = { 0 };
    int rc;

    while ((rc = spm_next(&in, &f)) > 0) {
        bool known = f.number == 3 || f.number == 24 || f.number == 35 ||
            f.number == 41 || f.number == 42;

        if (known && f.wire != 0)
            return spm_bad(m, "trainer_spec", f.number);
        if (f.number == 3)
            m->model = f.value;
        else if (f.number == 24)
            m->suffix = f.value != 0;
        else if (f.number == 35)
            m->byte_fallback = f.value != 0;
        else if (f.number == 41)
            m->bos = (int32_t)f.value;
        else if (f.number == 42)
            m->eos = (int32_t)f.value;
    }
    return rc ? spm_bad(m, "trainer_spec", f.number) : 0;
}

static int
spm_read_normalizer(struct spm *m, const uint8_t *s, size_t n)
{
    struct spm_in in = { .s = s, .n = n };
    struct spm_field f = { 0 };
    const char *why;
    int rc;

    while ((rc = spm_next(&in, &f)) > 0) {
        if (f.number >= 2 && f.number <= 5 && f.wire != (f.number == 2 ? 2 : 0))
            return spm_bad(m, "normalizer_spec", f.number);
        if (f.number == 2 && f.n) {
            if (m->norm->map.n_cells)
                return spm_bad(m, "normalizer_spec", 2);
            rc = tok_charsmap_init(&m->norm->map, f.s, f.n, &why);
            if (rc)
                return tok_ld_err(m->ld, rc, "normalizer_spec: precompiled_charsmap: %s",
                    why);
        }
        if (f.number == 3)
            m->norm->dummy_prefix = f.value != 0;
        else if (f.number == 4)
            m->norm->one_space = f.value != 0;
        else if (f.number == 5)
            m->norm->escape = f.value != 0;
    }
    return rc ? spm_bad(m, "normalizer_spec", f.number) : 0;
}

static int
spm_read(struct spm *m, const uint8_t *s, size_t n)
{
    struct spm_in in = { .s = s, .n = n };
    struct spm_field f = { 0 };
    int rc, got;

    while ((got = spm_next(&in, &f)) > 0) {
        if (f.number <= 3 && f.wire != 2)
            return spm_bad(m, "the file", f.number);
        rc = f.number == 1  ? spm_read_piece(m, f.s, f.n)
            : f.number == 2 ? spm_read_trainer(m, f.s, f.n)
            : f.number == 3 ? spm_read_normalizer(m, f.s, f.n)
                            : 0;
        if (rc)
            return rc;
    }
    if (got)
        return spm_bad(m, "the file", f.number);
    if (!m->n)
        return tok_ld_err(m->ld, -EINVAL, "no pieces: not a tokenizer.model");
    if (m->model != SPM_UNIGRAM && m->model != SPM_BPE)
        return tok_ld_err(m->ld, -ENOTSUP,
            "trainer_spec: model_type %llu is not supported (supported: 1 UNIGRAM, 2 BPE)",
            (unsigned long long)m->model);
    if (m->suffix)
        return tok_ld_err(m->ld, -ENOTSUP,
            "trainer_spec: treat_whitespace_as_suffix is not supported");
    return 0;
}

/* ---- building the tokenizer ---- */

/* A user defined piece is searched in normalized text here, while SentencePiece
 * excludes it from normalization: so the normalizer must not change it. It is tested
 * after a letter, since a text loses leading spaces. */
static int
spm_check_user(struct spm *m, const struct spm_piece *e)
{
    const struct tok_norm norm = { .op = { *m->norm }, .n_ops = 1 };
    struct tok_norm_run run = { .later = true };
    struct tok_buf in = { 0 }, out = { 0 };
    int rc = tok_buf_put(&in, "x", 1) || tok_buf_put(&in, e->s, e->n)
        ? -ENOMEM
        : tok_norm_apply(&norm, &run, in.p, in.n, &out);

    if (rc)
        rc = tok_ld_err(m->ld, rc, "piece %u: %s", (unsigned)e->id, strerror(-rc));
    else if (out.n != in.n || memcmp(out.p, in.p, in.n) != 0)
        rc = tok_ld_err(m->ld, -ENOTSUP,
            "piece %u: \"%.*s\" is USER_DEFINED, but the normalizer changes it, which is "
            "not supported",
            (unsigned)e->id, (int)(e->n > 60 ? 60 : e->n), (const char *)e->s);
    tok_buf_fini(&in);
    tok_buf_fini(&out);
    tok_norm_run_fini(&run);
    return rc;
}

static int
spm_enter(struct spm *m, const struct spm_piece *e)
{
    struct tok_added t = { .id = e->id };
    unsigned flags = BPE_TOK_VOCAB;
    int rc;

    if (e->type == SPM_CONTROL)
        return tok_ld_special(m->ld, e->id, (const char *)e->s, e->n);
    if (e->type == SPM_UNKNOWN) {
        if (m->unk >= 0)
            return tok_ld_err(m->ld, -EINVAL, "pieces %u and %u are both unknown",
                (unsigned)m->unk, (unsigned)e->id);
        m->unk = e->id;
        flags = BPE_TOK_ADDED | BPE_TOK_SPECIAL;
    }
    if (e->type == SPM_USER) {
        flags |= BPE_TOK_ADDED;
        rc = spm_check_user(m, e);
        rc = rc ? rc : tok_ld_set_put(m->ld, &m->ld->tok->normed, &t, e->s, e->n);
        rc = rc ? rc : tok_ld_set_put(m->ld, &m->ld->tok->all, &t, e->s, e->n);
        if (rc)
            return rc;
    }
    return tok_ld_put(m->ld, e->s, e->n, e->id, flags);
}

static int
spm_better(const void *pa, const void *pb)
{
    const struct spm_piece *a = pa, *b = pb;

    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

/* Adds the merges; pieces of higher score merge first. Reorders m->e. */
static int
spm_merges(struct spm *m)
{
    struct tok_merges all = { 0 };
    size_t i;
    int rc = 0;

    qsort(m->e, m->n, sizeof(*m->e), spm_better);
    for (i = 0; !rc && i < m->n; i++)
        if (m->e[i].type == SPM_NORMAL)
            rc = tok_ld_halves(m->ld, m->e[i].id, (uint32_t)i, true, &all);
    if (!rc)
        return tok_ld_enter(m->ld, &all);
    free(all.m);
    return rc;
}

static int
spm_unigram(struct spm *m)
{
    struct tok *tok = m->ld->tok;
    size_t i;
    int rc = 0;

    tok->uni = uni_new(tok->n_ids);
    if (!tok->uni)
        return tok_ld_no_memory(m->ld);
    for (i = 0; !rc && i < m->n; i++)
        if (m->e[i].type == SPM_NORMAL)
            rc = uni_add(tok->uni, m->e[i].id, (double)m->e[i].score);
    rc = rc ? rc : uni_seal(tok->uni, tok->bpe, (uint32_t)m->unk, m->byte_fallback);
    if (rc)
        return tok_ld_err(m->ld, rc, "pieces: %s", strerror(-rc));
    uni_single(tok->uni);
    return 0;
}

/* Marks become spaces and "<0xXX>" bytes; a leading space is removed if the normalizer
 * adds one or removes leading spaces. */
static int
spm_decoder(struct spm *m)
{
    json_t *o = json_pack("{s:s, s:[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}]}", "type",
        "Sequence", "decoders", "type", "Replace", "pattern", "String", "\xe2\x96\x81",
        "content", " ", "type", "ByteFallback", "type", "Fuse");
    int rc = 0;

    if (o && (m->norm->dummy_prefix || m->norm->one_space))
        rc = json_array_append_new(json_object_get(o, "decoders"),
            json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ", "start", 1,
                "stop", 0));
    rc = !o || rc ? tok_ld_no_memory(m->ld) : tok_ld_decoder(m->ld, o);
    json_decref(o);
    return rc;
}

/*
 * The added tokens that other files list. Those of pieces are entered as pieces. Where the
 * normalizer adds a space to a text, transformers searches them before normalization.
 */
static int
spm_read_added(struct spm *m)
{
    struct tok_ld *ld = m->ld;
    size_t i;

    ld->tok->n_ids = (uint32_t)m->n;
    for (i = json_array_size(ld->added); i-- > 0;) {
        json_t *o = json_array_get(ld->added, i), *content = json_object_get(o, "content");
        size_t id = (size_t)json_integer_value(json_object_get(o, "id"));

        if (id < m->n) {
            const struct spm_piece *e = &m->e[id];
            if (json_string_length(content) != e->n ||
                memcmp(json_string_value(content), e->s, e->n) != 0)
                return tok_ld_err(ld, -ENOTSUP,
                    "piece %zu is \"%.*s\", added tokens name it \"%.60s\", which is not "
                    "supported",
                    id, (int)(e->n > 60 ? 60 : e->n), (const char *)e->s,
                    json_string_value(content));
            json_array_remove(ld->added, i);
            continue;
        }
        if (m->norm->dummy_prefix && json_object_set_new(o, "normalized", json_false()))
            return tok_ld_no_memory(ld);
        if (id >= ld->tok->n_ids)
            ld->tok->n_ids = (uint32_t)id + 1;
    }
    return 0;
}

static int
spm_build(struct spm *m)
{
    struct tok_ld *ld = m->ld;
    struct tok *tok = ld->tok;
    size_t i;
    int rc;

    tok->kind = m->model == SPM_BPE ? TOK_MODEL_CHARS : TOK_MODEL_UNIGRAM;
    rc = spm_read_added(m);
    if (rc)
        return rc;
    tok->bpe = bpe_new(tok->n_ids, 0);
    if (!tok->bpe)
        return tok_ld_no_memory(ld);
    rc = tok_ld_sets(ld, m->n + json_array_size(ld->added));
    for (i = 0; !rc && i < m->n; i++)
        rc = spm_enter(m, &m->e[i]);
    rc = rc ? rc : tok_ld_added_enter(ld);
    if (!rc && m->unk < 0)
        rc = tok_ld_err(ld, -EINVAL, "no piece is of the type UNKNOWN");
    ld->opts = (struct bpe_opts){ .byte_fallback = m->byte_fallback,
        .fuse_unk = true,
        .chars = true,
        .unk_id = m->unk };
    if (!rc)
        rc = m->model == SPM_BPE ? spm_merges(m) : spm_unigram(m);
    rc = rc ? rc : tok_ld_stages(ld);
    rc = rc ? rc : tok_ld_seal(ld);
    rc = rc ? rc : spm_decoder(m);
    if (rc)
        return rc;
    for (i = 0; i < m->n; i++) {
        if (m->e[i].type == SPM_CONTROL && m->e[i].id == m->bos)
            tok->bos = (int)m->bos;
        if (m->e[i].type == SPM_CONTROL && m->e[i].id == m->eos)
            tok->eos = (int)m->eos;
    }
    if (m->model == SPM_BPE && tok->bos >= 0)
        tok->prefix[tok->n_prefix++] = (uint32_t)tok->bos;
    if (m->model == SPM_UNIGRAM && tok->eos >= 0)
        tok->suffix[tok->n_suffix++] = (uint32_t)tok->eos;
    return 0;
}

int
tok_ld_sentencepiece(struct tok_ld *ld, const uint8_t *s, size_t n)
{
    struct tok_norm *norm = &ld->tok->norm;
    struct spm m = { .ld = ld, .model = SPM_UNIGRAM, .bos = 1, .eos = 2, .unk = -1 };
    int rc;

    norm->n_ops = 1;
    m.norm = &norm->op[0];
    *m.norm = (struct tok_norm_op){ .kind = TOK_NORM_SENTENCEPIECE,
        .dummy_prefix = true,
        .one_space = true,
        .escape = true };
    rc = spm_read(&m, s, n);
    rc = rc ? rc : spm_build(&m);
    free(m.e);
    return rc;
}
