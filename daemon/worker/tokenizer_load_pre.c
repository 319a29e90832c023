/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* "pre_tokenizer" of a tokenizer.json. */
#include "config.h"

#include "daemon/worker/tokenizer_load.h"

#include <errno.h>

/* The pattern of the ByteLevel pre-tokenizer. */
static const char pre_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* The pattern of Digits, whose table already has the numbers of Unicode 17. */
static const char pre_digit[] = "[\\p{N}\\x{11de0}-\\x{11de9}\\x{16ff4}-\\x{16ff6}]";

/* The pattern of Whitespace. In brackets, since there \w has no superscripts. The
 * joiners are word characters in its library, but not in that of Split. */
static const char pre_words[] = "[\\w\\x{200c}\\x{200d}]+|[^\\w\\s\\x{200c}\\x{200d}]+";

static int
pre_stage(struct tok_ld *ld, enum tok_stage_kind kind, struct tok_stage **ret)
{
    struct tok *tok = ld->tok;

    /* the last stage is reserved for CUT */
    if (tok->n_stages == TOK_MAX_STAGES - 1)
        return tok_ld_err(ld, -EINVAL, "more than %d pre_tokenizers", TOK_MAX_STAGES - 1);
    *ret = &tok->stage[tok->n_stages++];
    (*ret)->kind = kind;
    return 0;
}

static int
pre_behavior(struct tok_ld *ld, const json_t *o, enum tok_behavior *ret)
{
    static const char *const names[] = { "Removed", "Isolated", "MergedWithPrevious",
        "MergedWithNext", "Contiguous" };
    const char *s = json_string_value(json_object_get(o, "behavior"));
    unsigned i;

    for (i = 0; s && i < sizeof(names) / sizeof(names[0]); i++) {
        if (!strcmp(s, names[i])) {
            *ret = (enum tok_behavior)i;
            return 0;
        }
    }
    return tok_ld_err(ld, -ENOTSUP,
        "pre_tokenizer %.20s: behavior \"%.60s\" is not supported (supported: Removed, "
        "Isolated, MergedWithPrevious, MergedWithNext, Contiguous)",
        tok_ld_type(o), s ? s : "(none)");
}

static int
pre_builtin(struct tok_ld *ld, const char *pattern, struct tok_stage *st)
{
    char why[200];
    int rc = tok_rx_compile(&st->rx, pattern, strlen(pattern), false, why, sizeof(why));

    return rc ? tok_ld_err(ld, rc, "built-in pattern: %s", why) : 0;
}

static int
pre_byte_level(struct tok_ld *ld, const json_t *o, struct tok_stage *st)
{
    bool regex;
    int rc = tok_ld_bool(ld, o, "add_prefix_space", true, &st->prefix_space);

    rc = rc ? rc : tok_ld_bool(ld, o, "use_regex", true, &regex);
    ld->byte_level = true;
    if (rc || !regex)
        return rc;
    st->kind = TOK_STAGE_RX;
    st->behavior = TOK_ISOLATED;
    return pre_builtin(ld, pre_gpt2, st);
}

static int
pre_split(struct tok_ld *ld, const json_t *o, struct tok_stage *st)
{
    int rc = pre_behavior(ld, o, &st->behavior);

    st->kind = TOK_STAGE_RX;
    rc = rc ? rc : tok_ld_bool(ld, o, "invert", false, &st->invert);
    return rc ? rc : tok_ld_pattern(ld, o, &st->rx, NULL);
}

static int
pre_digits(struct tok_ld *ld, const json_t *o, struct tok_stage *st)
{
    bool single;
    int rc = tok_ld_bool(ld, o, "individual_digits", false, &single);

    st->kind = TOK_STAGE_RX;
    st->behavior = single ? TOK_ISOLATED : TOK_CONTIGUOUS;
    return rc ? rc : pre_builtin(ld, pre_digit, st);
}

static int
pre_metaspace(struct tok_ld *ld, const json_t *o, struct tok_stage *st)
{
    static const char *const schemes[] = { "never", "first", "always" };
    const json_t *v = json_object_get(o, "prepend_scheme"), *old;
    const char *s = v ? json_string_value(v) : "always";
    unsigned i;
    int rc = tok_ld_char(ld, o, "replacement", st->mark, &st->n_mark);

    st->kind = TOK_STAGE_META;
    rc = rc ? rc : tok_ld_bool(ld, o, "split", true, &st->split);
    if (rc)
        return rc;
    for (i = 0; i < 3 && (!s || strcmp(s, schemes[i]) != 0); i++)
        ;
    if (i == 3)
        return tok_ld_err(ld, -ENOTSUP,
            "pre_tokenizer Metaspace: \"prepend_scheme\" is \"%.60s\", not one of always, "
            "first, never",
            s ? s : "(none)");
    st->prepend = (enum tok_prepend)i;
    old = json_object_get(o, "add_prefix_space");
    if (old && json_is_false(old) && v && st->prepend != TOK_PREPEND_NEVER)
        return tok_ld_err(ld, -EINVAL,
            "pre_tokenizer Metaspace: \"add_prefix_space\" is false, \"prepend_scheme\" is "
            "\"%s\"",
            s);
    if (old && json_is_false(old))
        st->prepend = TOK_PREPEND_NEVER;
    return 0;
}

static int
pre_punctuation(struct tok_ld *ld, const json_t *o, struct tok_stage *st)
{
    st->kind = TOK_STAGE_PUNCT;
    st->behavior = TOK_ISOLATED;
    return json_object_get(o, "behavior") ? pre_behavior(ld, o, &st->behavior) : 0;
}

static int
pre_whitespace(struct tok_ld *ld, const json_t *o, struct tok_stage *st)
{
    (void)o;
    st->kind = TOK_STAGE_RX;
    st->behavior = TOK_REMOVED;
    st->invert = true;
    return pre_builtin(ld, pre_words, st);
}

static int
pre_whitespace_split(struct tok_ld *ld, const json_t *o, struct tok_stage *st)
{
    (void)ld;
    (void)o;
    st->kind = TOK_STAGE_SPACE;
    st->behavior = TOK_REMOVED;
    return 0;
}

static int
pre_bert(struct tok_ld *ld, const json_t *o, struct tok_stage *st)
{
    int rc = pre_whitespace_split(ld, o, st);

    rc = rc ? rc : pre_stage(ld, TOK_STAGE_PUNCT, &st);
    if (!rc)
        st->behavior = TOK_ISOLATED;
    return rc;
}

/* Add the stage that spells bytes before a stage that follows ByteLevel: it sees
 * spelled text. */
static int
pre_spelled(struct tok_ld *ld)
{
    struct tok_stage *st = NULL;

    if (!ld->byte_level || ld->spelled)
        return 0;
    ld->spelled = true;
    return pre_stage(ld, TOK_STAGE_SPELL, &st);
}

int
tok_ld_pre_tokenizer(struct tok_ld *ld, const json_t *o, int depth)
{
    static const struct {
        const char *name;
        int (*read)(struct tok_ld *, const json_t *, struct tok_stage *);
    } rows[] = { { "ByteLevel", pre_byte_level }, { "Split", pre_split },
        { "Digits", pre_digits }, { "Metaspace", pre_metaspace },
        { "Punctuation", pre_punctuation }, { "Whitespace", pre_whitespace },
        { "WhitespaceSplit", pre_whitespace_split }, { "BertPreTokenizer", pre_bert } };
    const char *type = tok_ld_type(o);
    struct tok_stage *st = NULL;
    json_t *list = NULL;
    size_t i;
    int rc;

    if (!strcmp(type, "Sequence")) {
        rc = tok_ld_list(ld, o, "pretokenizers", "pre_tokenizer", depth, &list);
        for (i = 0; !rc && i < json_array_size(list); i++)
            rc = tok_ld_pre_tokenizer(ld, json_array_get(list, i), depth + 1);
        return rc;
    }
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (!strcmp(type, rows[i].name))
            break;
    if (i == sizeof(rows) / sizeof(rows[0]))
        return tok_ld_err(ld, -ENOTSUP,
            "pre_tokenizer type \"%.60s\" is not supported (supported: ByteLevel, Split, "
            "Digits, Metaspace, Punctuation, Whitespace, WhitespaceSplit, "
            "BertPreTokenizer, Sequence)",
            type);
    if (ld->byte_level && !i)
        return tok_ld_err(ld, -ENOTSUP, "pre_tokenizer has ByteLevel twice");
    rc = pre_spelled(ld);
    rc = rc ? rc : pre_stage(ld, TOK_STAGE_PASS, &st);
    return rc ? rc : rows[i].read(ld, o, st);
}

int
tok_ld_stages(struct tok_ld *ld)
{
    struct tok *tok = ld->tok;
    struct tok_stage *st = NULL;
    int rc = 0;

    tok->unspell = ld->spelled && tok->kind == TOK_MODEL_BYTES;
    if (tok->kind != TOK_MODEL_BYTES)
        rc = pre_spelled(ld);
    if (!rc && !tok->n_stages)
        rc = pre_stage(ld, TOK_STAGE_PASS, &st);
    if (!rc && tok->kind == TOK_MODEL_CHARS && !ld->opts.ignore_merges)
        tok->stage[tok->n_stages++].kind = TOK_STAGE_CUT;
    return rc;
}
