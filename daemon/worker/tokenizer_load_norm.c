/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* "normalizer" of a tokenizer.json. */
#include "config.h"

#include "daemon/worker/tokenizer_load.h"

#include <errno.h>
#include <stdlib.h>

static int
norm_op(struct tok_ld *ld, enum tok_norm_kind kind, struct tok_norm_op **ret)
{
    struct tok_norm *norm = &ld->tok->norm;

    if (norm->n_ops == TOK_MAX_NORMS)
        return tok_ld_err(ld, -EINVAL, "more than %d normalizers", TOK_MAX_NORMS);
    *ret = &norm->op[norm->n_ops++];
    (*ret)->kind = kind;
    return 0;
}

static int
norm_add(struct tok_ld *ld, enum tok_norm_kind kind)
{
    struct tok_norm_op *op = NULL;

    return norm_op(ld, kind, &op);
}

/* BertNormalizer stands for up to four normalizers in a row. */
static int
norm_bert(struct tok_ld *ld, const json_t *o)
{
    const json_t *accents = json_object_get(o, "strip_accents");
    bool clean, chinese, lower = true, strip;
    int rc = tok_ld_bool(ld, o, "clean_text", true, &clean);

    rc = rc ? rc : tok_ld_bool(ld, o, "handle_chinese_chars", true, &chinese);
    rc = rc ? rc : tok_ld_bool(ld, o, "lowercase", true, &lower);
    strip = lower;
    if (!rc && accents && !json_is_null(accents))
        rc = tok_ld_bool(ld, o, "strip_accents", true, &strip);
    if (!rc && clean)
        rc = norm_add(ld, TOK_NORM_BERT_CLEAN);
    if (!rc && chinese)
        rc = norm_add(ld, TOK_NORM_BERT_CHINESE);
    if (!rc && strip)
        rc = norm_add(ld, TOK_NORM_NFD);
    if (!rc && strip)
        rc = norm_add(ld, TOK_NORM_BERT_MARKS);
    return !rc && lower ? norm_add(ld, TOK_NORM_LOWERCASE) : rc;
}

static int
norm_digit(char c)
{
    static const char all[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *p = c ? strchr(all, c) : NULL;

    return p ? (int)(p - all) : -1;
}

int
tok_base64(const char *s, size_t n, struct tok_buf *ret)
{
    uint32_t bits = 0;
    unsigned have = 0;
    size_t i;

    if (n && n % 4 == 0)
        for (; have < 2 && s[n - 1] == '='; have++)
            n--;
    if (n % 4 == 1)
        return -EINVAL;
    if (tok_buf_room(ret, n))
        return -ENOMEM;
    for (i = 0, have = 0; i < n; i++) {
        int d = norm_digit(s[i]);

        if (d < 0)
            return -EINVAL;
        bits = bits << 6 | (uint32_t)d;
        have += 6;
        if (have >= 8) {
            have -= 8;
            ret->p[ret->n++] = (uint8_t)(bits >> have);
        }
    }
    return bits & ((1u << have) - 1) ? -EINVAL : 0;
}

static int
norm_precompiled(struct tok_ld *ld, const json_t *o, struct tok_norm_op *op)
{
    const json_t *v = json_object_get(o, "precompiled_charsmap");
    struct tok_buf blob = { 0 };
    const char *why = "not base64";
    int rc = -EINVAL;

    if (json_is_string(v) && json_string_length(v))
        rc = tok_base64(json_string_value(v), json_string_length(v), &blob);
    else
        why = "not a string with text in it";
    if (!rc)
        rc = tok_charsmap_init(&op->map, blob.p, blob.n, &why);
    tok_buf_fini(&blob);
    if (rc == -ENOMEM)
        return tok_ld_no_memory(ld);
    return rc
        ? tok_ld_err(ld, rc, "normalizer Precompiled: \"precompiled_charsmap\": %s", why)
        : 0;
}

static int
norm_strip(struct tok_ld *ld, const json_t *o, struct tok_norm_op *op)
{
    int rc = tok_ld_bool(ld, o, "strip_left", true, &op->left);

    return rc ? rc : tok_ld_bool(ld, o, "strip_right", true, &op->right);
}

static int
norm_prepend(struct tok_ld *ld, const json_t *o, struct tok_norm_op *op)
{
    return tok_ld_text(ld, o, "prepend", &op->text);
}

static int
norm_replace(struct tok_ld *ld, const json_t *o, struct tok_norm_op *op)
{
    int rc = tok_ld_pattern(ld, o, &op->rx, &op->find);

    return rc ? rc : tok_ld_text(ld, o, "content", &op->text);
}

int
tok_ld_normalizer(struct tok_ld *ld, const json_t *o, int depth)
{
    static const struct {
        const char *name;
        enum tok_norm_kind kind;
        int (*read)(struct tok_ld *, const json_t *, struct tok_norm_op *);
    } rows[] = { { "NFC", TOK_NORM_NFC, NULL }, { "NFD", TOK_NORM_NFD, NULL },
        { "NFKC", TOK_NORM_NFKC, NULL }, { "NFKD", TOK_NORM_NFKD, NULL },
        { "Lowercase", TOK_NORM_LOWERCASE, NULL },
        { "StripAccents", TOK_NORM_STRIP_ACCENTS, NULL },
        { "Strip", TOK_NORM_STRIP, norm_strip },
        { "Prepend", TOK_NORM_PREPEND, norm_prepend },
        { "Replace", TOK_NORM_REPLACE, norm_replace },
        { "Precompiled", TOK_NORM_PRECOMPILED, norm_precompiled } };
    const char *type = tok_ld_type(o);
    struct tok_norm_op *op = NULL;
    json_t *list = NULL;
    size_t i;
    int rc;

    if (!strcmp(type, "Sequence")) {
        rc = tok_ld_list(ld, o, "normalizers", "normalizer", depth, &list);
        for (i = 0; !rc && i < json_array_size(list); i++)
            rc = tok_ld_normalizer(ld, json_array_get(list, i), depth + 1);
        return rc;
    }
    if (!strcmp(type, "BertNormalizer"))
        return norm_bert(ld, o);
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(type, rows[i].name) != 0)
            continue;
        rc = norm_op(ld, rows[i].kind, &op);
        return rc || !rows[i].read ? rc : rows[i].read(ld, o, op);
    }
    return tok_ld_err(ld, -ENOTSUP,
        "normalizer type \"%.60s\" is not supported (supported: NFC, NFD, NFKC, NFKD, "
        "Lowercase, Strip, StripAccents, Prepend, Replace, BertNormalizer, Precompiled, "
        "Sequence)",
        type);
}
