/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Vocabularies whose order is the order of their merges: tiktoken's files of ranks and
 * Mistral's tekken.json. The adjacent tokens that merge first are those whose joined
 * bytes are the token of the lowest rank.
 */
#include "config.h"

#include "daemon/worker/tokenizer.h"
#include "daemon/worker/tokenizer_json.h"
#include "daemon/worker/tokenizer_load.h"

#include <errno.h>
#include <stdio.h>

#define RNK_CL100K(digits) \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/*
 * A file of ranks holds no pattern and no special tokens. The published files are
 * recognised by their number of ranks. Special tokens without a name of their own are
 * numbered.
 */
static const struct rnk_file {
    uint32_t n_ranks, n_special;
    const char *pattern;
    int bos, eos; /* index into the special tokens, -1: none */
    const char *special[12];
    const char *stem;
    unsigned number;
} rnk_files[] = {
    { 128000, 256, RNK_CL100K("\\p{N}{1,3}"), 0, 1,
        { "<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
            "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>",
            "<|reserved_special_token_2|>", "<|start_header_id|>", "<|end_header_id|>",
            "<|eom_id|>", "<|eot_id|>", "<|python_tag|>" },
        "<|reserved_special_token_", 3 },
    { 151643, 208, RNK_CL100K("\\p{N}"), -1, 0,
        { "<|endoftext|>", "<|im_start|>", "<|im_end|>" }, "<|extra_", 0 },
};

static int
rnk_stages(struct tok_ld *ld, const char *pattern, size_t n)
{
    struct tok_stage *st = &ld->tok->stage[0];
    char why[200];
    int rc = tok_rx_compile(&st->rx, pattern, n, false, why, sizeof(why));

    if (rc)
        return tok_ld_err(ld, rc, "config: pattern \"%.100s\": %s", pattern, why);
    st->kind = TOK_STAGE_RX;
    st->behavior = TOK_ISOLATED;
    ld->tok->n_stages = 1;
    ld->tok->dec.lossy = true;
    ld->tok->dec.max_bytes = ld->tok->max_token_bytes;
    return 0;
}

/* Adds the merges that make ids first .. first + n - 1, in this order. */
static int
rnk_merges(struct tok_ld *ld, uint32_t first, uint32_t n)
{
    struct tok_merges m = { 0 };
    uint32_t i;
    int rc = 0;

    for (i = 0; !rc && i < n; i++)
        rc = tok_ld_halves(ld, first + i, i, false, &m);
    if (!rc)
        return tok_ld_enter(ld, &m);
    free(m.m);
    return rc;
}

static int
rnk_begin(struct tok_ld *ld, uint32_t n_ids, size_t n_special)
{
    ld->tok->kind = TOK_MODEL_BYTES;
    ld->tok->n_ids = n_ids;
    ld->opts = (struct bpe_opts){ .ignore_merges = true, .unk_id = -1 };
    ld->tok->bpe = bpe_new(n_ids, 0);
    return ld->tok->bpe ? tok_ld_sets(ld, n_special) : tok_ld_no_memory(ld);
}

/* Adds a token with exactly these bytes. */
static int
rnk_put(struct tok_ld *ld, uint32_t id, const uint8_t *s, size_t n)
{
    int rc = bpe_add_token(ld->tok->bpe, id, s, n, BPE_TOK_VOCAB);

    if (rc)
        return tok_ld_err(ld, -EINVAL, "token of rank or id %u: %s", (unsigned)id,
            rc == -EEXIST         ? "its rank is another's already"
                : rc == -ENOTUNIQ ? "another has the same bytes"
                                  : strerror(-rc));
    if (n > ld->tok->max_token_bytes)
        ld->tok->max_token_bytes = n;
    return 0;
}

int
tok_ld_special(struct tok_ld *ld, uint32_t id, const char *s, size_t n)
{
    struct tok_added t = { .id = id, .special = true };
    int rc = tok_ld_set_put(ld, &ld->tok->all, &t, s, n);

    rc = rc ? rc : tok_ld_set_put(ld, &ld->tok->raw, &t, s, n);
    if (rc)
        return rc;
    rc = bpe_add_token(ld->tok->bpe, id, (const uint8_t *)s, n,
        BPE_TOK_ADDED | BPE_TOK_SPECIAL | BPE_TOK_RAW);
    if (n > ld->tok->max_token_bytes)
        ld->tok->max_token_bytes = n;
    return rc ? tok_ld_err(ld, rc, "special token \"%.60s\" has id %u: %s", s,
                    (unsigned)id, strerror(-rc))
              : 0;
}

/* ---- tiktoken ---- */

/* One line: base64, a space, the rank. */
static int
rnk_line(struct tok_ld *ld, const char *s, size_t n, unsigned line, uint32_t *ret_rank)
{
    const char *space = memchr(s, ' ', n);
    size_t a = space ? (size_t)(space - s) : n, i;
    uint64_t rank = 0;
    int rc = -EINVAL;

    ld->scratch.n = 0;
    if (space && a + 1 < n && n - a < 12)
        rc = tok_base64(s, a, &ld->scratch);
    for (i = a + 1; !rc && i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            rc = -EINVAL;
        rank = rank * 10 + (uint64_t)(s[i] - '0');
    }
    if (!rc && (!ld->scratch.n || ld->scratch.n > TOK_MAX_TOKEN_BYTES))
        rc = -EINVAL;
    if (rc == -ENOMEM)
        return tok_ld_no_memory(ld);
    if (rc)
        return tok_ld_err(ld, rc, "line %u: not a token in base64, a space and its rank",
            line);
    if (rank >= BPE_MAX_IDS)
        return tok_ld_err(ld, -EINVAL, "line %u: rank %llu is not in 0 .. %u", line,
            (unsigned long long)rank, BPE_MAX_IDS - 1);
    *ret_rank = (uint32_t)rank;
    return 0;
}

/* Reads all lines: counts the ranks, or adds them. */
static int
rnk_lines(struct tok_ld *ld, const char *s, size_t n, bool enter, uint32_t *ret_n)
{
    unsigned line = 1;
    size_t at, end;
    uint32_t rank = 0;
    int rc = 0;

    *ret_n = 0;
    for (at = 0; !rc && at < n; at = end + 1, line++) {
        const char *hit = memchr(s + at, '\n', n - at);

        end = hit ? (size_t)(hit - s) : n;
        if (end == at)
            continue;
        rc = rnk_line(ld, s + at, end - at, line, &rank);
        if (!rc && enter)
            rc = rnk_put(ld, rank, ld->scratch.p, ld->scratch.n);
        ++*ret_n;
    }
    return rc;
}

static int
rnk_specials(struct tok_ld *ld, const struct rnk_file *f)
{
    unsigned number = f->number;
    char name[64];
    uint32_t i, k = 0;
    int rc = 0;

    for (i = 0; !rc && i < f->n_special; i++) {
        if (f->special[k])
            snprintf(name, sizeof(name), "%s", f->special[k++]);
        else
            snprintf(name, sizeof(name), "%s%u|>", f->stem, number++);
        rc = tok_ld_special(ld, f->n_ranks + i, name, strlen(name));
    }
    return rc;
}

int
tok_ld_tiktoken(struct tok_ld *ld, const char *s, size_t n)
{
    const struct rnk_file *f = rnk_files;
    const struct rnk_file *end = rnk_files + sizeof(rnk_files) / sizeof(rnk_files[0]);
    uint32_t count;
    int rc = rnk_lines(ld, s, n, false, &count);

    if (rc)
        return rc;
    while (f < end && f->n_ranks != count)
        f++;
    if (f == end)
        return tok_ld_err(ld, -ENOTSUP,
            "%u ranks, and no tokenizer.json that says how text is split: only the files of "
            "Llama 3 (128000) and Qwen (151643) are known",
            (unsigned)count);
    rc = rnk_begin(ld, count + f->n_special, f->n_special);
    rc = rc ? rc : rnk_lines(ld, s, n, true, &count);
    rc = rc ? rc : rnk_merges(ld, 0, count);
    rc = rc ? rc : rnk_specials(ld, f);
    rc = rc ? rc : tok_ld_seal(ld);
    rc = rc ? rc : rnk_stages(ld, f->pattern, strlen(f->pattern));
    if (rc)
        return rc;
    ld->tok->bos = f->bos < 0 ? -1 : (int)count + f->bos;
    ld->tok->eos = f->eos < 0 ? -1 : (int)count + f->eos;
    if (f->bos >= 0)
        ld->tok->prefix[ld->tok->n_prefix++] = count + (uint32_t)f->bos;
    return 0;
}

/* ---- tekken.json ---- */

static const char *const rnk_tekken[] = { "<unk>", "<s>", "</s>", "[INST]", "[/INST]",
    "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
    "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]",
    "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]" };

struct rnk_tekken {
    json_int_t n_ids, n_special;
    const char *pattern;
    size_t n_pattern;
};

static int
rnk_config(struct tok_ld *ld, const json_t *config, struct rnk_tekken *ret)
{
    const json_t *size = json_object_get(config, "default_vocab_size");
    const json_t *special = json_object_get(config, "default_num_special_tokens");
    const json_t *pattern = json_object_get(config, "pattern");

    if (!json_is_integer(size) || json_integer_value(size) <= 0 ||
        json_integer_value(size) > (json_int_t)BPE_MAX_IDS)
        return tok_ld_err(ld, -EINVAL, "config: \"default_vocab_size\" is not in 1 .. %u",
            BPE_MAX_IDS);
    if (!json_is_integer(special) || json_integer_value(special) < 0 ||
        json_integer_value(special) >= json_integer_value(size))
        return tok_ld_err(ld, -EINVAL,
            "config: \"default_num_special_tokens\" is not in 0 .. %lld",
            (long long)json_integer_value(size) - 1);
    if (!json_is_string(pattern))
        return tok_ld_err(ld, -EINVAL, "config: \"pattern\" is not a string");
    *ret = (struct rnk_tekken){ json_integer_value(size), json_integer_value(special),
        json_string_value(pattern), json_string_length(pattern) };
    return 0;
}

/* {"rank": 0, "token_bytes": "AA==", ...} */
static int
rnk_item(struct tok_ld *ld, struct tok_js *js, uint32_t i, uint32_t first)
{
    struct tok_js_text key, bytes = { 0 };
    int64_t rank = -1;
    bool good = tok_js_take(js, '{');
    int rc;

    while (good && tok_js_string(js, &key) && tok_js_take(js, ':')) {
        if (tok_js_is(&key, "rank"))
            good = tok_js_integer(js, &rank);
        else if (tok_js_is(&key, "token_bytes"))
            good = tok_js_string(js, &bytes);
        else
            good = tok_js_skip(js);
        good = good && tok_js_maybe(js, ',');
    }
    good = !js->why && tok_js_take(js, '}');
    ld->scratch.n = 0;
    rc = good && bytes.n ? tok_base64(bytes.s, bytes.n, &ld->scratch) : -EINVAL;
    if (rc == -ENOMEM)
        return tok_ld_no_memory(ld);
    if (rc || !ld->scratch.n || ld->scratch.n > TOK_MAX_TOKEN_BYTES)
        return tok_ld_err(ld, -EINVAL,
            "vocab item %u: no \"token_bytes\" in base64 of 1 to %u bytes", (unsigned)i,
            TOK_MAX_TOKEN_BYTES);
    if (rank != (int64_t)i)
        return tok_ld_err(ld, -EINVAL, "vocab item %u: \"rank\" is not %u", (unsigned)i,
            (unsigned)i);
    return rnk_put(ld, first + i, ld->scratch.p, ld->scratch.n);
}

/* The special tokens of the file, or the known ones if it has no list. */
static int
rnk_tekken_specials(struct tok_ld *ld, const json_t *list, const struct rnk_tekken *t)
{
    size_t known = sizeof(rnk_tekken) / sizeof(rnk_tekken[0]);
    char name[64];
    json_int_t i;
    int rc = 0;

    for (i = 0; !rc && i < t->n_special; i++) {
        const json_t *o = json_array_get(list, (size_t)i);
        const json_t *s = json_object_get(o, "token_str");

        if (o &&
            (!json_is_string(s) || !json_string_length(s) ||
                json_integer_value(json_object_get(o, "rank")) != i))
            return tok_ld_err(ld, -EINVAL,
                "special_tokens item %lld: no \"token_str\", or \"rank\" is not %lld",
                (long long)i, (long long)i);
        if (o)
            rc = tok_ld_special(ld, (uint32_t)i, json_string_value(s),
                json_string_length(s));
        else if (!json_array_size(list) && (size_t)i < known)
            rc = tok_ld_special(ld, (uint32_t)i, rnk_tekken[i], strlen(rnk_tekken[i]));
        else {
            snprintf(name, sizeof(name), "<SPECIAL_%lld>", (long long)i);
            rc = tok_ld_special(ld, (uint32_t)i, name, strlen(name));
        }
    }
    return rc;
}

int
tok_ld_tekken(struct tok_ld *ld, const json_t *root)
{
    const json_t *list = json_object_get(root, "special_tokens");
    struct tok_js js = { .s = ld->vocab.s, .n = ld->vocab.n };
    struct rnk_tekken t = { 0 };
    uint32_t n, i;
    int rc = rnk_config(ld, json_object_get(root, "config"), &t);

    if (rc)
        return rc;
    n = (uint32_t)(t.n_ids - t.n_special);
    if (!js.n || *js.s != '[')
        return tok_ld_err(ld, -EINVAL, "no array \"vocab\"");
    rc = rnk_begin(ld, (uint32_t)t.n_ids, (size_t)t.n_special);
    tok_js_take(&js, '[');
    for (i = 0; !rc && i < n; i++) {
        rc = rnk_item(ld, &js, i, (uint32_t)t.n_special);
        if (!rc && !tok_js_maybe(&js, ',') && i + 1 < n)
            rc = tok_ld_err(ld, -EINVAL,
                "\"vocab\" has %u items, fewer than the %u of config", (unsigned)i + 1,
                (unsigned)n);
    }
    rc = rc ? rc : rnk_merges(ld, (uint32_t)t.n_special, n);
    rc = rc ? rc : rnk_tekken_specials(ld, list, &t);
    rc = rc ? rc : tok_ld_seal(ld);
    rc = rc ? rc : rnk_stages(ld, t.pattern, t.n_pattern);
    if (rc)
        return rc;
    ld->tok->bos = tok_token_id(ld->tok, "<s>", 3);
    ld->tok->eos = tok_token_id(ld->tok, "</s>", 4);
    if (ld->tok->bos >= 0)
        ld->tok->prefix[ld->tok->n_prefix++] = (uint32_t)ld->tok->bos;
    return 0;
}
