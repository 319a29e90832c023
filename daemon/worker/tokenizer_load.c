/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/tokenizer.h"
#include "daemon/worker/tokenizer_json.h"
#include "daemon/worker/tokenizer_load.h"

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

#include "daemon/common/text.h"

#define LD_MAX_REST ((size_t)16 << 20) /* limit of the JSON that jansson reads */
#define LD_OUT      "null"             /* replaces a value that jansson does not read */

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
        rc = tok_ld_no_memory(ld);
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

/* Number of lines in the values left out that precede an offset in the remaining text. */
static int
ld_lines_out(const struct tok_ld *ld, const char *text, size_t offset)
{
    const struct tok_value *v[2] = { &ld->vocab, &ld->merges };
    size_t out = 0, i, k;
    int lines = 0;

    if (v[1]->s < v[0]->s) {
        v[0] = &ld->merges;
        v[1] = &ld->vocab;
    }
    for (i = 0; i < 2; i++) {
        if (!v[i]->n || (size_t)(v[i]->s - text) - out >= offset)
            continue;
        for (k = 0; k < v[i]->n; k++)
            lines += v[i]->s[k] == '\n';
        out += v[i]->n - strlen(LD_OUT);
    }
    return lines;
}

/* text: the whole file if buf is the file without its vocabulary and merges, or NULL. */
static int
ld_parse(struct tok_ld *ld, const char *buf, size_t n, size_t flags, const char *text,
    json_t **ret)
{
    json_error_t je = { .line = 0 };
    bool no_memory;

    errno = 0;
    *ret = json_loadb(buf, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | flags, &je);
    /* jansson reports most failed allocations as an invalid token, or not at all */
    no_memory =
        errno == ENOMEM || (!*ret && json_error_code(&je) == json_error_out_of_memory);
    if (no_memory) {
        json_decref(*ret);
        return tok_ld_no_memory(ld);
    }
    if (!*ret)
        return tok_ld_err(ld, -EINVAL, "line %d column %d: %s",
            je.line + (text ? ld_lines_out(ld, text, (size_t)je.position) : 0), je.column,
            je.text);
    if (!json_is_object(*ret)) {
        json_decref(*ret);
        return tok_ld_err(ld, -EINVAL, "the top level is not an object");
    }
    return 0;
}

static int
ld_syntax(struct tok_ld *ld, const struct tok_js *js)
{
    size_t line, column;

    tok_js_place(js, &line, &column);
    return tok_ld_err(ld, -EINVAL, "line %zu column %zu: %s", line, column, js->why);
}

/* A member to be located, or whose own members are. */
struct ld_want {
    const char *name;
    struct tok_value *value;
    const struct ld_want *inner; /* NULL: none */
};

/* Scans an object for the members in want, and notes the first value of each name. want
 * ends with a name NULL. */
static bool
ld_members(struct tok_js *js, const struct ld_want *want)
{
    struct tok_js_text key;
    const struct ld_want *w;
    size_t at;

    if (!tok_js_take(js, '{'))
        return false;
    if (tok_js_maybe(js, '}'))
        return true;
    do {
        if (!tok_js_string(js, &key) || !tok_js_take(js, ':'))
            return false;
        for (w = want; w->name && !tok_js_is(&key, w->name); w++)
            ;
        if (tok_js_peek(js) == 0)
            return tok_js_skip(js);
        at = js->at;
        if (w->inner && js->s[at] == '{' ? !ld_members(js, w->inner) : !tok_js_skip(js))
            return false;
        if (w->value && !w->value->n)
            *w->value = (struct tok_value){ js->s + at, js->at - at, js->n_items };
    } while (tok_js_maybe(js, ','));
    return tok_js_take(js, '}');
}

/* Appends text[a .. b) without the value in it; b NULL: up to that value. */
static int
ld_without(struct tok_buf *out, const char *a, const char *b, const struct tok_value *value)
{
    if (tok_buf_put(out, a, (size_t)(value->s - a)) ||
        tok_buf_put(out, LD_OUT, strlen(LD_OUT)))
        return -ENOMEM;
    return b ? tok_buf_put(out, value->s + value->n, (size_t)(b - value->s) - value->n) : 0;
}

/*
 * Parses a tokenizer.json without its vocabulary and merges, which stay text: as
 * jansson's values they would take most of the time and memory.
 */
static int
ld_outline(struct tok_ld *ld, const char *buf, size_t n, json_t **ret)
{
    struct tok_value config = { 0 }, vocab = { 0 };
    const struct ld_want inner[] = { { "vocab", &ld->vocab, NULL },
        { "merges", &ld->merges, NULL }, { NULL, NULL, NULL } };
    const struct ld_want top[] = { { "model", NULL, inner }, { "config", &config, NULL },
        { "vocab", &vocab, NULL }, { NULL, NULL, NULL } };
    struct tok_value *first = &ld->vocab, *second = &ld->merges;
    struct tok_js js = { .s = buf, .n = n };
    struct tok_buf rest = { 0 };
    int rc = 0;

    if (tok_js_peek(&js) != '{' && js.at < n && tok_js_skip(&js))
        return tok_ld_err(ld, -EINVAL, "the top level is not an object");
    if (!js.why && ld_members(&js, top) && tok_js_peek(&js))
        js.why = "text after the end";
    if (!js.why && js.at < n)
        js.why = "text after the end";
    if (js.why)
        return ld_syntax(ld, &js);
    if (!ld->vocab.n && config.n && vocab.n) {
        ld->tekken = true;
        ld->vocab = vocab;
    }
    if (second->n && (!first->n || second->s < first->s)) {
        first = &ld->merges;
        second = &ld->vocab;
    }
    if (n - ld->vocab.n - ld->merges.n > LD_MAX_REST)
        return tok_ld_err(ld, -EFBIG,
            "%zu bytes outside the model's vocabulary and merges are more than the %zu allowed",
            n - ld->vocab.n - ld->merges.n, LD_MAX_REST);
    if (!first->n)
        return ld_parse(ld, buf, n, 0, NULL, ret);
    rc = ld_without(&rest, buf, second->n ? NULL : buf + n, first);
    if (!rc && second->n)
        rc = ld_without(&rest, first->s + first->n, buf + n, second);
    rc = rc ? tok_ld_no_memory(ld) : ld_parse(ld, (char *)rest.p, rest.n, 0, buf, ret);
    tok_buf_fini(&rest);
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
ld_parts(struct tok_ld *ld, json_t *root)
{
    const json_t *version = json_object_get(root, "version");
    const json_t *decoder = json_object_get(root, "decoder");
    int rc = 0;

    ld->model = json_object_get(root, "model");
    ld->added = json_object_get(root, "added_tokens");
    if (json_is_null(decoder))
        decoder = NULL;
    ld->dec_bytes = tok_ld_is_bytes(decoder);
    if (version && (!json_is_string(version) || strcmp(json_string_value(version), "1.0")))
        rc = tok_ld_err(ld, -ENOTSUP, "\"version\" is not \"1.0\"");
    if (!rc && decoder && !json_is_object(decoder))
        rc = tok_ld_err(ld, -EINVAL, "decoder is not an object");
    rc = rc ? rc : ld_optional_part(ld, root, "normalizer", tok_ld_normalizer);
    rc = rc ? rc : ld_optional_part(ld, root, "pre_tokenizer", tok_ld_pre_tokenizer);
    rc = rc ? rc : tok_ld_model(ld);
    rc = rc ? rc : tok_ld_stages(ld);
    rc = rc ? rc : tok_ld_added(ld);
    rc = rc ? rc : tok_ld_decoder(ld, decoder);
    return rc ? rc : ld_optional_part(ld, root, "post_processor", tok_ld_post_processor);
}

static int
ld_json(struct tok_ld *ld, const char *buf, size_t n)
{
    size_t good = txt_utf8(buf, n);
    json_t *root;
    int rc;

    if (good != n) {
        struct tok_js js = { .s = buf, .n = n, .at = good, .why = "not valid UTF-8" };
        return ld_syntax(ld, &js);
    }
    rc = ld_outline(ld, buf, n, &root);
    if (rc)
        return rc;
    rc = ld->tekken ? tok_ld_tekken(ld, root) : ld_parts(ld, root);
    json_decref(root);
    return rc;
}

/* Whether the first line is base64, a space and a number. */
static bool
ld_is_rank(const char *s, size_t n)
{
    static const char base64[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    size_t i = 0, from;

    while (i < n && s[i] && strchr(base64, s[i]))
        i++;
    if (!i || i == n || s[i++] != ' ')
        return false;
    for (from = i; i < n && s[i] >= '0' && s[i] <= '9'; i++)
        ;
    return i > from && (i == n || s[i] == '\n');
}

/* Reads the object in a file that may be missing: *ret is NULL then. */
static int
ld_object(struct tok_ld *ld, const char *file, json_t **ret)
{
    const char *before = ld->file;
    struct stat st;
    char *buf = NULL;
    size_t n = 0;
    int rc;

    *ret = NULL;
    if (lstat(file, &st) != 0 && errno == ENOENT)
        return 0;
    ld->file = file;
    /* model_max_length is often 10^30, written as an integer */
    rc = ld_read(ld, &buf, &n);
    if (!rc && n > LD_MAX_REST)
        rc = tok_ld_err(ld, -EFBIG, "%zu bytes are more than the %zu allowed", n,
            LD_MAX_REST);
    rc = rc ? rc : ld_parse(ld, buf, n, JSON_DECODE_INT_AS_REAL, NULL, ret);
    free(buf);
    ld->file = before;
    return rc;
}

/* Whether a member of tokenizer_config.json names the token as special. */
static bool
ld_is_special(const json_t *config, const char *token)
{
    static const char *const names[] = { "bos_token", "eos_token", "unk_token",
        "sep_token", "pad_token", "cls_token", "mask_token", "additional_special_tokens",
        "extra_special_tokens" };
    const json_t *v, *e;
    size_t i, k;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        v = json_object_get(config, names[i]);
        for (k = 0; k < (json_is_array(v) ? json_array_size(v) : 1); k++) {
            e = json_is_array(v) ? json_array_get(v, k) : v;
            e = json_is_object(e) ? json_object_get(e, "content") : e;
            if (json_is_string(e) && !strcmp(json_string_value(e), token))
                return true;
        }
    }
    return false;
}

/* Appends a token as tokenizer.json lists it; takes o, NULL: out of memory. */
static int
ld_list_added(struct tok_ld *ld, json_t *list, json_t *o, const char *name, double id)
{
    const json_t *content = json_object_get(o, "content");
    int rc = 0;

    if (!o)
        return tok_ld_no_memory(ld);
    if (!json_is_string(content) || !json_string_length(content) || !(id >= 0) ||
        id >= TOK_MAX_VOCAB || id != (double)(uint32_t)id)
        rc = tok_ld_err(ld, -EINVAL,
            "added token \"%.60s\" has no \"content\", or no id of 0 .. %u", name,
            TOK_MAX_VOCAB - 1);
    else if (json_object_set_new(o, "id", json_integer((json_int_t)id)) ||
        json_array_append(list, o))
        rc = tok_ld_no_memory(ld);
    json_decref(o);
    return rc;
}

/* The tokens of "added_tokens_decoder", by id. */
static int
ld_list_decoder(struct tok_ld *ld, json_t *from, json_t *list)
{
    const char *key;
    json_t *v;
    int rc = 0;

    json_object_foreach(from, key, v) {
        char *end;
        double id = *key >= '0' && *key <= '9' ? strtod(key, &end) : -1;

        rc = ld_list_added(ld, list, json_copy(v), key, id < 0 || *end ? -1 : id);
        if (rc)
            break;
    }
    return rc;
}

/* The tokens of added_tokens.json, by name. */
static int
ld_list_names(struct tok_ld *ld, json_t *from, const json_t *config, json_t *list)
{
    const char *key;
    json_t *v;
    int rc = 0;

    json_object_foreach(from, key, v) {
        bool special = ld_is_special(config, key);

        rc = ld_list_added(ld, list,
            json_pack("{s:s, s:b, s:b}", "content", key, "special", special, "normalized",
                !special),
            key, json_is_number(v) ? json_number_value(v) : -1);
        if (rc)
            break;
    }
    return rc;
}

/*
 * The added tokens that tokenizer_config.json, or else added_tokens.json, lists for a
 * tokenizer.model: an array of objects as in a tokenizer.json.
 */
static int
ld_listed(struct tok_ld *ld, json_t **ret)
{
    const char *before = ld->file;
    char file[PATH_MAX];
    size_t dir = strlen(ld->config) - strlen("tokenizer_config.json");
    json_t *config = NULL, *names = NULL, *decoder, *list = json_array();
    int n = snprintf(file, sizeof(file), "%.*sadded_tokens.json", (int)dir, ld->config);
    int rc = list && n > 0 ? 0 : tok_ld_no_memory(ld);

    rc = rc ? rc : ld_object(ld, ld->config, &config);
    decoder = json_object_get(config, "added_tokens_decoder");
    if (!rc && json_is_object(decoder)) {
        ld->file = ld->config;
        rc = ld_list_decoder(ld, decoder, list);
    } else if (!rc) {
        rc = ld_object(ld, file, &names);
        ld->file = file;
        rc = rc ? rc : ld_list_names(ld, names, config, list);
    }
    ld->file = before;
    json_decref(names);
    json_decref(config);
    if (rc)
        json_decref(list);
    else
        *ret = list;
    return rc;
}

static int
ld_tokenizer(struct tok_ld *ld)
{
    char *buf = NULL;
    size_t n = 0;
    int rc = ld_read(ld, &buf, &n);

    if (rc)
        return rc;
    /* a protocol buffer begins with the tag of its first field, ranks with base64 */
    if (n && *buf == '\n' && n > 1 && (unsigned char)buf[1] != '{' && buf[1] != '\n') {
        rc = ld_listed(ld, &ld->added);
        rc = rc ? rc : tok_ld_sentencepiece(ld, (const uint8_t *)buf, n);
        json_decref(ld->added);
        ld->added = NULL;
    } else if (n && ld_is_rank(buf, n))
        rc = tok_ld_tiktoken(ld, buf, n);
    else
        rc = ld_json(ld, buf, n);
    tok_buf_fini(&ld->scratch);
    free(buf);
    return rc;
}

/* "bos_token" and the like: null, a string, or an object with "content". An empty string
 * is as null: no added token is empty. */
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
    if (json_string_length(v) == 0)
        return 0;
    id = tok_token_id(ld->tok, json_string_value(v), json_string_length(v));
    if (id < 0)
        return tok_ld_err(ld, -EINVAL, "\"%s\" is \"%.100s\", which %s does not have",
            name, json_string_value(v), ld->tokens);
    *ret = id;
    return 0;
}

static int
ld_config(struct tok_ld *ld)
{
    json_t *root;
    int rc = ld_object(ld, ld->file, &root);

    if (rc || !root)
        return rc;
    rc = ld_named_token(ld, root, "bos_token", &ld->tok->bos);
    rc = rc ? rc : ld_named_token(ld, root, "eos_token", &ld->tok->eos);
    json_decref(root);
    return rc;
}

/* The file in a folder: the first of these names that exists, else the first name. */
static int
ld_choose(const char *dir, char *file, size_t bytes)
{
    static const char *const names[] = { "tokenizer.json", "tekken.json",
        "tokenizer.model", "qwen.tiktoken" };
    struct stat st;
    size_t i;
    int n;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        n = snprintf(file, bytes, "%s/%s", dir, names[i]);
        if (n < 0 || (size_t)n >= bytes)
            return -ENAMETOOLONG;
        if (lstat(file, &st) == 0)
            return 0;
    }
    snprintf(file, bytes, "%s/%s", dir, names[0]);
    return 0;
}

/* Sets the paths of both files. */
static int
ld_paths(const char *path, char *file, char *config, size_t bytes)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    int a = 0, b, dir;

    if (!stat(path, &st) && S_ISDIR(st.st_mode)) {
        if (ld_choose(path, file, bytes))
            return -ENAMETOOLONG;
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
    ld.config = config;
    rc = ld_tokenizer(&ld);
    if (!rc) {
        ld.tokens = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
        ld.file = config;
        rc = ld_config(&ld);
    }
    if (rc)
        ld.tok = tok_free(ld.tok);
    /* else malloc keeps the memory of a large vocabulary's parsed JSON */
    malloc_trim(0);
    if (!rc)
        *ret = ld.tok;
    return rc;
}

/* The highest id of the vocabulary, and of the tokens that a text may get without naming
 * them. -1: none. */
static int64_t
ld_highest(const struct tok *tok)
{
    int64_t id = (int64_t)tok->n_ids - 1;
    unsigned flags, i;
    const uint8_t *p;
    size_t n;

    while (id >= 0 &&
        (bpe_token(tok->bpe, (uint32_t)id, &p, &n, &flags) || !(flags & BPE_TOK_VOCAB)))
        id--;
    id = tok->bos > id ? tok->bos : id;
    id = tok->eos > id ? tok->eos : id;
    for (i = 0; i < tok->n_prefix; i++)
        id = tok->prefix[i] > id ? tok->prefix[i] : id;
    for (i = 0; i < tok->n_suffix; i++)
        id = tok->suffix[i] > id ? tok->suffix[i] : id;
    return id;
}

int
tok_load_for(const char *path, int32_t vocab, struct tok **ret, char *err, size_t err_bytes)
{
    char file[PATH_MAX], config[PATH_MAX];
    struct tok_ld ld = { .file = file, .err = err, .err_bytes = err_bytes };
    int rc = tok_load(path, &ld.tok, err, err_bytes);
    const uint8_t *p;
    unsigned flags;
    int64_t id;
    size_t n;

    if (rc)
        return rc;
    id = ld_highest(ld.tok);
    if (id < vocab) {
        *ret = ld.tok;
        return 0;
    }
    if (ld_paths(path, file, config, sizeof(file)) ||
        bpe_token(ld.tok->bpe, (uint32_t)id, &p, &n, &flags))
        n = 0;
    tok_ld_err(&ld, -EINVAL,
        "token \"%.*s\" has id %u, config.json says vocab_size = %d: "
        "the tokenizer is another model's; put this model's tokenizer.json in its "
        "place, or name its folder with model.tokenizer",
        (int)(n > 60 ? 60 : n), n ? (const char *)p : "", (unsigned)id, (int)vocab);
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
        uni_free(tok->uni);
        tri_fini(&tok->wpc.trie);
        bpe_free(tok->bpe);
        tok_dec_fini(&tok->dec);
        free(tok);
    }
    return NULL;
}
