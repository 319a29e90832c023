/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/tokenizer.h"
#include "daemon/worker/tokenizer_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LD_MAX_DEPTH      16
#define LD_MAX_TEXT_BYTES 4096u

/* The pattern of the ByteLevel pre-tokenizer. */
static const char ld_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* Of Digits, whose table has the numbers of Unicode 17 already. */
static const char ld_digit[] = "[\\p{N}\\x{11de0}-\\x{11de9}\\x{16ff4}-\\x{16ff6}]";

static int
ld_read(struct tok_ld *ld, char **ret, size_t *ret_n)
{
    struct stat st;
    char *buf = NULL;
    size_t n = 0;
    ssize_t got;
    int fd, rc;

    fd = open(ld->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT && lstat(ld->file, &st) == 0)
        return tok_ld_err(ld, -EINVAL,
            "a link to a file that is not there; the download is not complete, or only "
            "the links were copied");
    if (fd < 0)
        return tok_ld_err(ld, -errno, "cannot open: %s", strerror(errno));
    if (fstat(fd, &st)) {
        rc = tok_ld_err(ld, -errno, "cannot stat: %s", strerror(errno));
        goto close_fd;
    }
    rc = -EINVAL;
    if (!S_ISREG(st.st_mode)) {
        tok_ld_err(ld, rc, "not a regular file");
        goto close_fd;
    }
    if (st.st_size < 0 || (uint64_t)st.st_size > TOK_MAX_FILE_BYTES) {
        rc = tok_ld_err(ld, -EFBIG, "%lld bytes are more than the %zu allowed",
            (long long)st.st_size, TOK_MAX_FILE_BYTES);
        goto close_fd;
    }
    buf = malloc((size_t)st.st_size + 1);
    if (!buf) {
        rc = tok_ld_err(ld, -ENOMEM, "out of memory");
        goto close_fd;
    }
    while (n < (size_t)st.st_size) {
        got = read(fd, buf + n, (size_t)st.st_size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            rc = tok_ld_err(ld, got ? -errno : -EIO, "cannot read: %s",
                got ? strerror(errno) : "file got shorter");
            free(buf);
            goto close_fd;
        }
        n += (size_t)got;
    }
    rc = 0;
    *ret = buf;
    *ret_n = n;
close_fd:
    close(fd);
    return rc;
}

static int
ld_json(struct tok_ld *ld, size_t flags, json_t **ret)
{
    json_error_t je;
    char *buf = NULL;
    size_t n = 0;
    int rc = ld_read(ld, &buf, &n);

    if (rc)
        return rc;
    je = (json_error_t){ .line = 0 };
    errno = 0;
    *ret = json_loadb(buf, n, JSON_REJECT_DUPLICATES | flags, &je);
    /* jansson calls most allocations that fail an invalid token, or nothing. */
    rc = errno == ENOMEM || (!*ret && json_error_code(&je) == json_error_out_of_memory);
    free(buf);
    if (rc) {
        json_decref(*ret);
        return tok_ld_err(ld, -ENOMEM, "out of memory");
    }
    if (!*ret)
        return tok_ld_err(ld, -EINVAL, "line %d column %d: %s", je.line, je.column, je.text);
    if (!json_is_object(*ret)) {
        json_decref(*ret);
        return tok_ld_err(ld, -EINVAL, "the top level is not an object");
    }
    return 0;
}

static const char *
ld_type(const json_t *o)
{
    const char *s = json_string_value(json_object_get(o, "type"));

    return s ? s : "(none)";
}

/* A boolean member; `missing` where it is absent or refused. */
static int
ld_bool(struct tok_ld *ld, const json_t *o, const char *name, bool missing, bool *ret)
{
    const json_t *v = json_object_get(o, name);

    *ret = missing;
    if (v && !json_is_boolean(v))
        return tok_ld_err(ld, -EINVAL, "%s: \"%s\" is not true or false", ld_type(o), name);
    if (v)
        *ret = json_is_true(v);
    return 0;
}

/* A pattern member: {"String": ...} or {"Regex": ...}. */
static int
ld_pattern(struct tok_ld *ld, const json_t *o, struct tok_rx *rx)
{
    const json_t *pattern = json_object_get(o, "pattern"), *v;
    bool literal;
    char why[200];
    int rc;

    v = json_object_get(pattern, "String");
    literal = v != NULL;
    if (!v)
        v = json_object_get(pattern, "Regex");
    if (!json_is_string(v) || !json_string_length(v))
        return tok_ld_err(ld, -EINVAL,
            "%s: \"pattern\" is not {\"Regex\": ...} or "
            "{\"String\": ...} with text in it",
            ld_type(o));
    rc = tok_rx_compile(rx, json_string_value(v), json_string_length(v), literal, why,
        sizeof(why));
    if (rc)
        return tok_ld_err(ld, rc, "%s: pattern \"%.100s\": %s", ld_type(o),
            json_string_value(v), why);
    return 0;
}

static int
ld_list(struct tok_ld *ld, const json_t *o, const char *name, const char *what, int depth,
    int (*one)(struct tok_ld *, const json_t *, int))
{
    const json_t *list = json_object_get(o, name), *v;
    size_t i;
    int rc = 0;

    if (!json_is_array(list))
        return tok_ld_err(ld, -EINVAL, "%s Sequence has no array \"%s\"", what, name);
    if (depth == LD_MAX_DEPTH)
        return tok_ld_err(ld, -EINVAL, "%s is nested deeper than %d", what, LD_MAX_DEPTH);
    for (i = 0; !rc && i < json_array_size(list); i++) {
        v = json_array_get(list, i);
        rc = one(ld, v, depth + 1);
    }
    return rc;
}

static int
ld_norm_text(struct tok_ld *ld, const json_t *o, const char *name, struct tok_buf *ret)
{
    const json_t *v = json_object_get(o, name);

    if (!json_is_string(v) || json_string_length(v) > LD_MAX_TEXT_BYTES)
        return tok_ld_err(ld, -EINVAL,
            "normalizer %s: \"%s\" is not a string of at "
            "most %u bytes",
            ld_type(o), name, LD_MAX_TEXT_BYTES);
    if (tok_buf_put(ret, json_string_value(v), json_string_length(v)))
        return tok_ld_err(ld, -ENOMEM, "out of memory");
    return 0;
}

static int
ld_normalizer(struct tok_ld *ld, const json_t *o, int depth)
{
    static const char *const names[] = { "NFC", "NFD", "NFKC", "NFKD", "Lowercase",
        "Strip", "Prepend", "Replace" };
    struct tok_norm *norm = &ld->tok->norm;
    struct tok_norm_op *op;
    const char *type = ld_type(o);
    unsigned i;
    int rc;

    if (!strcmp(type, "Sequence"))
        return ld_list(ld, o, "normalizers", "normalizer", depth, ld_normalizer);
    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strcmp(type, names[i]))
            break;
    if (i == sizeof(names) / sizeof(names[0]))
        return tok_ld_err(ld, -ENOTSUP,
            "normalizer type \"%.60s\" is not supported "
            "(supported: NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, "
            "Replace, Sequence)",
            type);
    if (norm->n_ops == TOK_MAX_NORMS)
        return tok_ld_err(ld, -EINVAL, "more than %d normalizers", TOK_MAX_NORMS);
    op = &norm->op[norm->n_ops++];
    op->kind = (enum tok_norm_kind)i;
    if (op->kind == TOK_NORM_STRIP) {
        rc = ld_bool(ld, o, "strip_left", true, &op->left);
        return rc ? rc : ld_bool(ld, o, "strip_right", true, &op->right);
    }
    if (op->kind == TOK_NORM_PREPEND)
        return ld_norm_text(ld, o, "prepend", &op->text);
    if (op->kind == TOK_NORM_REPLACE) {
        rc = ld_pattern(ld, o, &op->rx);
        return rc ? rc : ld_norm_text(ld, o, "content", &op->text);
    }
    return 0;
}

static int
ld_behavior(struct tok_ld *ld, const json_t *o, enum tok_behavior *ret)
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
        "pre_tokenizer Split: behavior \"%.60s\" is not "
        "supported (supported: Removed, Isolated, MergedWithPrevious, "
        "MergedWithNext, Contiguous)",
        s ? s : "(none)");
}

static int
ld_builtin(struct tok_ld *ld, const char *pattern, struct tok_rx *rx)
{
    char why[200];
    int rc = tok_rx_compile(rx, pattern, strlen(pattern), false, why, sizeof(why));

    return rc ? tok_ld_err(ld, rc, "built-in pattern: %s", why) : 0;
}

static int
ld_byte_level(struct tok_ld *ld, const json_t *o, struct tok_stage *st)
{
    bool regex;
    int rc = ld_bool(ld, o, "add_prefix_space", true, &st->prefix_space);

    rc = rc ? rc : ld_bool(ld, o, "use_regex", true, &regex);
    if (rc || !regex)
        return rc;
    st->behavior = TOK_ISOLATED;
    return ld_builtin(ld, ld_gpt2, &st->rx);
}

static int
ld_pre_tokenizer(struct tok_ld *ld, const json_t *o, int depth)
{
    struct tok *tok = ld->tok;
    struct tok_stage *st;
    const char *type = ld_type(o);
    bool single;
    int rc;

    if (!strcmp(type, "Sequence"))
        return ld_list(ld, o, "pretokenizers", "pre_tokenizer", depth, ld_pre_tokenizer);
    if (ld->byte_level)
        return tok_ld_err(ld, -ENOTSUP,
            "pre_tokenizer type \"%.60s\" after ByteLevel is "
            "not supported: ByteLevel must be the last",
            type);
    if (tok->n_stages == TOK_MAX_STAGES)
        return tok_ld_err(ld, -EINVAL, "more than %d pre_tokenizers", TOK_MAX_STAGES);
    st = &tok->stage[tok->n_stages++];
    if (!strcmp(type, "ByteLevel")) {
        ld->byte_level = true;
        return ld_byte_level(ld, o, st);
    }
    if (!strcmp(type, "Split")) {
        rc = ld_behavior(ld, o, &st->behavior);
        rc = rc ? rc : ld_bool(ld, o, "invert", false, &st->invert);
        return rc ? rc : ld_pattern(ld, o, &st->rx);
    }
    if (!strcmp(type, "Digits")) {
        rc = ld_bool(ld, o, "individual_digits", false, &single);
        st->behavior = single ? TOK_ISOLATED : TOK_CONTIGUOUS;
        return rc ? rc : ld_builtin(ld, ld_digit, &st->rx);
    }
    return tok_ld_err(ld, -ENOTSUP,
        "pre_tokenizer type \"%.60s\" is not supported "
        "(supported: ByteLevel, Split, Digits, Sequence)",
        type);
}

static int
ld_template_id(struct tok_ld *ld, json_int_t id, uint32_t *list, unsigned *n)
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
ld_template_special(struct tok_ld *ld, const json_t *o, const json_t *item,
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
        rc = ld_template_id(ld, json_is_integer(v) ? json_integer_value(v) : -1, list, n);
    }
    return rc;
}

struct ld_frame {
    uint32_t before[TOK_MAX_TEMPLATE], after[TOK_MAX_TEMPLATE];
    unsigned n_before, n_after;
};

/* Puts a frame around what the processors before it have written. */
static int
ld_wrap(struct tok_ld *ld, const struct ld_frame *f)
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
ld_template(struct tok_ld *ld, const json_t *o)
{
    const json_t *single = json_object_get(o, "single"), *seq;
    struct ld_frame f = { .n_before = 0 };
    bool seen = false;
    size_t i;
    int rc = 0;

    for (i = 0; !rc && i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        const json_t *special = json_object_get(item, "SpecialToken");

        seq = json_object_get(item, "Sequence");
        if (special && seen)
            rc = ld_template_special(ld, o, special, f.after, &f.n_after);
        else if (special)
            rc = ld_template_special(ld, o, special, f.before, &f.n_before);
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
    return ld_wrap(ld, &f);
}

/* Bert and Roberta: "cls": [text, id] before and "sep": [text, id] after. */
static int
ld_cls_sep(struct tok_ld *ld, const json_t *o)
{
    const json_t *cls = json_array_get(json_object_get(o, "cls"), 1);
    const json_t *sep = json_array_get(json_object_get(o, "sep"), 1);
    struct ld_frame f = { .n_before = 0 };
    int rc;

    rc = ld_template_id(ld, json_is_integer(cls) ? json_integer_value(cls) : -1, f.before,
        &f.n_before);
    rc = rc ? rc
            : ld_template_id(ld, json_is_integer(sep) ? json_integer_value(sep) : -1,
                  f.after, &f.n_after);
    return rc ? rc : ld_wrap(ld, &f);
}

static int
ld_post_processor(struct tok_ld *ld, const json_t *o, int depth)
{
    const char *type = ld_type(o);

    if (!strcmp(type, "Sequence"))
        return ld_list(ld, o, "processors", "post_processor", depth, ld_post_processor);
    if (!strcmp(type, "ByteLevel"))
        return 0;
    if (!strcmp(type, "TemplateProcessing"))
        return ld_template(ld, o);
    if (!strcmp(type, "BertProcessing") || !strcmp(type, "RobertaProcessing"))
        return ld_cls_sep(ld, o);
    return tok_ld_err(ld, -ENOTSUP,
        "post_processor type \"%.60s\" is not supported "
        "(supported: ByteLevel, TemplateProcessing, BertProcessing, "
        "RobertaProcessing, Sequence)",
        type);
}

static int
ld_decoder(struct tok_ld *ld, const json_t *o, int depth)
{
    const char *type = ld_type(o);

    if (!strcmp(type, "Sequence"))
        return ld_list(ld, o, "decoders", "decoder", depth, ld_decoder);
    if (!strcmp(type, "ByteLevel"))
        ld->byte_level = true;
    else if (strcmp(type, "Fuse") || !ld->byte_level)
        return tok_ld_err(ld, -ENOTSUP,
            "decoder type \"%.60s\" is not supported "
            "(supported: ByteLevel, then Fuse, Sequence)",
            type);
    return 0;
}

/* A part that must be there and bring in ByteLevel. */
static int
ld_bytes_part(struct tok_ld *ld, const json_t *root, const char *name,
    int (*one)(struct tok_ld *, const json_t *, int))
{
    const json_t *o = json_object_get(root, name);
    int rc;

    ld->byte_level = false;
    if (!json_is_object(o))
        return tok_ld_err(ld, -ENOTSUP,
            "%s is missing or null; only byte-level "
            "tokenizers are supported (%s type \"ByteLevel\")",
            name, name);
    rc = one(ld, o, 0);
    if (!rc && !ld->byte_level)
        return tok_ld_err(ld, -ENOTSUP,
            "%s has no ByteLevel; only byte-level tokenizers "
            "are supported",
            name);
    return rc;
}

static int
ld_optional_part(struct tok_ld *ld, const json_t *root, const char *name,
    int (*one)(struct tok_ld *, const json_t *, int))
{
    const json_t *o = json_object_get(root, name);

    if (!o || json_is_null(o))
        return 0;
    if (!json_is_object(o))
        return tok_ld_err(ld, -EINVAL, "%s is not an object", name);
    return one(ld, o, 0);
}

static int
ld_tokenizer(struct tok_ld *ld)
{
    json_t *root;
    const json_t *version;
    int rc = ld_json(ld, 0, &root);

    if (rc)
        return rc;
    version = json_object_get(root, "version");
    ld->model = json_object_get(root, "model");
    ld->added = json_object_get(root, "added_tokens");
    if (version && (!json_is_string(version) || strcmp(json_string_value(version), "1.0")))
        rc = tok_ld_err(ld, -ENOTSUP, "\"version\" is not \"1.0\"");
    rc = rc ? rc : ld_optional_part(ld, root, "normalizer", ld_normalizer);
    rc = rc ? rc : ld_bytes_part(ld, root, "pre_tokenizer", ld_pre_tokenizer);
    rc = rc ? rc : ld_bytes_part(ld, root, "decoder", ld_decoder);
    rc = rc ? rc : tok_ld_model(ld);
    rc = rc ? rc : tok_ld_added(ld);
    rc = rc ? rc : ld_optional_part(ld, root, "post_processor", ld_post_processor);
    json_decref(root);
    return rc;
}

/* "bos_token" and the like: null, a string, or an object with "content". */
static int
ld_named_token(struct tok_ld *ld, const json_t *root, const char *name, int *ret)
{
    const json_t *v = json_object_get(root, name);
    int id;

    if (!v || json_is_null(v))
        return 0;
    if (json_is_object(v))
        v = json_object_get(v, "content");
    if (!json_is_string(v))
        return tok_ld_err(ld, -EINVAL,
            "\"%s\" is not a string, an object with "
            "\"content\", or null",
            name);
    id = tok_token_id(ld->tok, json_string_value(v), json_string_length(v));
    if (id < 0)
        return tok_ld_err(ld, -EINVAL,
            "\"%s\" is \"%.100s\", which tokenizer.json does "
            "not have",
            name, json_string_value(v));
    *ret = id;
    return 0;
}

static int
ld_config(struct tok_ld *ld)
{
    json_t *root;
    struct stat st;
    int rc;

    if (lstat(ld->file, &st) != 0 && errno == ENOENT)
        return 0;
    /* model_max_length is often 10^30, written as an integer. */
    rc = ld_json(ld, JSON_DECODE_INT_AS_REAL, &root);
    if (rc)
        return rc;
    rc = ld_named_token(ld, root, "bos_token", &ld->tok->bos);
    rc = rc ? rc : ld_named_token(ld, root, "eos_token", &ld->tok->eos);
    json_decref(root);
    return rc;
}

/* The names of both files. */
static int
ld_paths(const char *path, char *file, char *config, size_t bytes)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    int a, b, dir;

    if (!stat(path, &st) && S_ISDIR(st.st_mode)) {
        a = snprintf(file, bytes, "%s/tokenizer.json", path);
        b = snprintf(config, bytes, "%s/tokenizer_config.json", path);
    } else {
        dir = slash && slash - path < PATH_MAX ? (int)(slash - path) + 1 : 0;
        a = snprintf(file, bytes, "%s", path);
        b = snprintf(config, bytes, "%.*stokenizer_config.json", dir, path);
    }
    return a < 0 || b < 0 || (size_t)a >= bytes || (size_t)b >= bytes ? -ENAMETOOLONG : 0;
}

int
tok_load(const char *path, struct tok **ret, char *err, size_t err_bytes)
{
    char file[PATH_MAX], config[PATH_MAX];
    struct tok_ld ld = { .file = file, .err = err, .err_bytes = err_bytes };
    int rc;

    if (ld_paths(path, file, config, sizeof(file))) {
        ld.file = path;
        return tok_ld_err(&ld, -ENAMETOOLONG, "the path is too long");
    }
    ld.tok = calloc(1, sizeof(*ld.tok));
    if (!ld.tok)
        return tok_ld_err(&ld, -ENOMEM, "out of memory");
    ld.tok->magic = TOK_MAGIC;
    ld.tok->bos = ld.tok->eos = -1;
    rc = ld_tokenizer(&ld);
    if (!rc) {
        ld.file = config;
        rc = ld_config(&ld);
    }
    if (rc)
        ld.tok = tok_free(ld.tok);
    /* The parsed JSON of a large vocabulary stays in malloc's hands else. */
    malloc_trim(0);
    if (!rc)
        *ret = ld.tok;
    return rc;
}

int
tok_load_for(const char *path, int32_t vocab, struct tok **ret, char *err, size_t err_bytes)
{
    char file[PATH_MAX], config[PATH_MAX];
    struct tok_ld ld = { .file = file, .err = err, .err_bytes = err_bytes };
    int rc = tok_load(path, &ld.tok, err, err_bytes);
    const uint8_t *p;
    unsigned flags;
    size_t n;

    if (rc)
        return rc;
    if (vocab >= 0 && ld.tok->n_ids <= (uint32_t)vocab) {
        *ret = ld.tok;
        return 0;
    }
    if (ld_paths(path, file, config, sizeof(file)) ||
        bpe_token(ld.tok->bpe, ld.tok->n_ids - 1, &p, &n, &flags))
        n = 0;
    tok_ld_err(&ld, -EINVAL,
        "token \"%.*s\" has id %u, config.json says vocab_size = %d: "
        "the tokenizer is another model's; put this model's tokenizer.json in its "
        "place, or name its folder with model.tokenizer",
        (int)(n > 60 ? 60 : n), n ? (const char *)p : "", (unsigned)ld.tok->n_ids - 1,
        (int)vocab);
    tok_free(ld.tok);
    return -EINVAL;
}

static void
ld_set_fini(struct tok_set *set)
{
    free(set->e);
    tok_buf_fini(&set->bytes);
}

struct tok *
tok_free(struct tok *tok)
{
    unsigned i;

    if (tok && tok->magic == TOK_MAGIC) {
        tok->magic = 0;
        for (i = 0; i < tok->n_stages; i++)
            tok_rx_fini(&tok->stage[i].rx);
        tok_norm_fini(&tok->norm);
        ld_set_fini(&tok->all);
        ld_set_fini(&tok->raw);
        ld_set_fini(&tok->normed);
        bpe_free(tok->bpe);
        free(tok);
    }
    return NULL;
}
