/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* "post_processor" of a tokenizer.json. */
#include "config.h"

#include "daemon/worker/tokenizer_load.h"

#include <errno.h>

static int
post_template_id(struct tok_ld *ld, json_int_t id, uint32_t *list, unsigned *n)
{
    const uint8_t *p;
    size_t len;
    unsigned flags;

    if (id < 0 || id >= (json_int_t)ld->tok->n_ids ||
        bpe_token(ld->tok->bpe, (uint32_t)id, &p, &len, &flags))
        return tok_ld_err(ld, -EINVAL, "post_processor names id %lld, which no token has",
            (long long)id);
    if (*n == TOK_MAX_TEMPLATE)
        return tok_ld_err(ld, -EINVAL, "post_processor writes more than %d tokens",
            TOK_MAX_TEMPLATE);
    list[(*n)++] = (uint32_t)id;
    return 0;
}

/* The ids of one special token of a template. */
static int
post_template_special(struct tok_ld *ld, const json_t *o, const json_t *item,
    uint32_t *list, unsigned *n)
{
    const char *name = json_string_value(json_object_get(item, "id"));
    const json_t *all = json_object_get(o, "special_tokens"), *ids;
    size_t i;
    int rc = 0;

    ids = name ? json_object_get(json_object_get(all, name), "ids") : NULL;
    if (!json_is_array(ids))
        return tok_ld_err(ld, -EINVAL,
            "post_processor TemplateProcessing: special token "
            "\"%.60s\" has no \"ids\"",
            name ? name : "(none)");
    for (i = 0; !rc && i < json_array_size(ids); i++) {
        const json_t *v = json_array_get(ids, i);
        rc = post_template_id(ld, json_is_integer(v) ? json_integer_value(v) : -1, list, n);
    }
    return rc;
}

struct post_frame {
    uint32_t before[TOK_MAX_TEMPLATE], after[TOK_MAX_TEMPLATE];
    unsigned n_before, n_after;
};

/* Adds a frame around the tokens of the processors before it. */
static int
post_wrap(struct tok_ld *ld, const struct post_frame *f)
{
    struct tok *tok = ld->tok;
    unsigned k = f->n_before;

    if (tok->n_prefix + k > TOK_MAX_TEMPLATE ||
        tok->n_suffix + f->n_after > TOK_MAX_TEMPLATE)
        return tok_ld_err(ld, -EINVAL, "post_processor writes more than %d tokens",
            TOK_MAX_TEMPLATE);
    memmove(tok->prefix + k, tok->prefix, tok->n_prefix * sizeof(tok->prefix[0]));
    memcpy(tok->prefix, f->before, k * sizeof(tok->prefix[0]));
    memcpy(tok->suffix + tok->n_suffix, f->after, f->n_after * sizeof(tok->suffix[0]));
    tok->n_prefix += k;
    tok->n_suffix += f->n_after;
    return 0;
}

static int
post_template(struct tok_ld *ld, const json_t *o)
{
    const json_t *single = json_object_get(o, "single"), *seq;
    struct post_frame f = { .n_before = 0 };
    bool seen = false;
    size_t i;
    int rc = 0;

    for (i = 0; !rc && i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        const json_t *special = json_object_get(item, "SpecialToken");

        seq = json_object_get(item, "Sequence");
        if (special && seen)
            rc = post_template_special(ld, o, special, f.after, &f.n_after);
        else if (special)
            rc = post_template_special(ld, o, special, f.before, &f.n_before);
        else if (seq && !seen)
            seen = true;
        else
            return tok_ld_err(ld, -ENOTSUP,
                "post_processor TemplateProcessing: "
                "\"single\" item %zu is not a special token or the only "
                "sequence",
                i);
    }
    if (rc)
        return rc;
    if (!seen)
        return tok_ld_err(ld, -ENOTSUP,
            "post_processor TemplateProcessing: \"single\" "
            "has no sequence");
    return post_wrap(ld, &f);
}

/* Bert and Roberta: "cls": [text, id] before and "sep": [text, id] after. */
static int
post_cls_sep(struct tok_ld *ld, const json_t *o)
{
    const json_t *cls = json_array_get(json_object_get(o, "cls"), 1);
    const json_t *sep = json_array_get(json_object_get(o, "sep"), 1);
    struct post_frame f = { .n_before = 0 };
    int rc;

    rc = post_template_id(ld, json_is_integer(cls) ? json_integer_value(cls) : -1,
        f.before, &f.n_before);
    rc = rc ? rc
            : post_template_id(ld, json_is_integer(sep) ? json_integer_value(sep) : -1,
                  f.after, &f.n_after);
    return rc ? rc : post_wrap(ld, &f);
}

int
tok_ld_post_processor(struct tok_ld *ld, const json_t *o, int depth)
{
    const char *type = tok_ld_type(o);
    json_t *list = NULL;
    size_t i;
    int rc;

    if (!strcmp(type, "Sequence")) {
        rc = tok_ld_list(ld, o, "processors", "post_processor", depth, &list);
        for (i = 0; !rc && i < json_array_size(list); i++)
            rc = tok_ld_post_processor(ld, json_array_get(list, i), depth + 1);
        return rc;
    }
    if (!strcmp(type, "ByteLevel"))
        return 0;
    if (!strcmp(type, "TemplateProcessing"))
        return post_template(ld, o);
    if (!strcmp(type, "BertProcessing") || !strcmp(type, "RobertaProcessing"))
        return post_cls_sep(ld, o);
    return tok_ld_err(ld, -ENOTSUP,
        "post_processor type \"%.60s\" is not supported "
        "(supported: ByteLevel, TemplateProcessing, BertProcessing, "
        "RobertaProcessing, Sequence)",
        type);
}
