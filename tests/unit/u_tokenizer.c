/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokenizer compared with the reference library's ids for the texts of
 * tests/parity/tok (see tools/dev/dump_tokenizer_vectors.py), and its errors for files
 * and texts it has to refuse.
 */
#include "config.h"

#include "daemon/worker/tokenizer.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/tok_fixture.h"

static const char *const kinds[] = { "gpt2", "gpt2-prefix", "llama3", "qwen2", "mixed",
    "spm-llama", "spm-gemma", "spm-first", "unigram-t5", "unigram-xlmr", "unigram-bytes",
    "bert", "bert-cased", "falcon", "suffix-bpe", "prefix-bpe", "spm-file-bpe",
    "spm-file-unigram" };

static struct tok *
load(const char *kind)
{
    char path[4096], err[512] = "";
    struct tok *tok = NULL;

    data_path(path, sizeof(path), kind, "");
    if (tok_load(path, &tok, err, sizeof(err)))
        fail_msg("%s", err);
    return tok;
}

static size_t
unhex(const char *s, char *out)
{
    size_t n = 0;
    unsigned byte;

    for (; *s != '-' && sscanf(s, "%2x", &byte) == 1; s += 2)
        out[n++] = (char)byte;
    return n;
}

static void
check_ids(struct tok_enc *enc, const char *list, const char *where, unsigned line)
{
    const uint32_t *ids;
    size_t n, i;
    char *end;

    ids = tok_enc_ids(enc, &n);
    for (i = 0; *list && *list != '-'; i++) {
        unsigned long want = strtoul(list, &end, 10);
        if (i >= n || ids[i] != want)
            fail_msg("%s line %u: id %zu is %ld, not %lu", where, line, i,
                i < n ? (long)ids[i] : -1L, want);
        list = *end == ',' ? end + 1 : end;
    }
    if (i != n)
        fail_msg("%s line %u: %zu ids, not %zu", where, line, n, i);
}

static void
vectors(void **state)
{
    static const size_t steps[] = { 1, 5, 1 << 20 };
    char path[4096], *line = NULL, *text, *flag;
    size_t cap = 0, k, n = 0, done;
    ssize_t len;

    (void)state;
    text = malloc(1 << 16);
    for (k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        struct tok *tok = load(kinds[k]);
        struct tok_enc *enc = tok_enc_new(tok);
        unsigned at = 0;
        FILE *f;

        data_path(path, sizeof(path), kinds[k], ".vec");
        f = fopen(path, "r");
        if (!f || !enc)
            fail_msg("%s: %s", path, strerror(errno));
        for (done = 0; (len = getline(&line, &cap, f)) > 0;) {
            char *word[4], *save = NULL;
            unsigned i;

            at++;
            line[len - 1] = 0;
            for (i = 0; i < 4; i++)
                word[i] = strtok_r(i ? NULL : line, " ", &save);
            assert_non_null(word[3]);
            if (*word[0] != 'e')
                continue;
            if (*word[2] != '=') {
                assert_true(strlen(word[2]) < 1 << 17);
                n = unhex(word[2], text);
            }
            for (flag = word[1]; *flag; flag += *flag == ',') {
                unsigned flags = (unsigned)strtoul(flag, &flag, 10);
                if (encode(enc, text, n, flags, steps[done++ % 3]) != 1)
                    fail_msg("%s line %u: not encoded", path, at);
                check_ids(enc, word[3], path, at);
            }
        }
        assert_true(done > 300);
        fclose(f);
        tok_enc_free(enc);
        tok_free(tok);
    }
    free(line);
    free(text);
}

static void
tables(void **state)
{
    struct tok *tok = load("llama3");
    const uint8_t *p;
    size_t n;
    unsigned flags;
    int id;

    (void)state;
    id = tok_token_id(tok, "<|begin_of_text|>", 17);
    assert_true(id > 0);
    assert_int_equal(tok_bos_id(tok), id);
    assert_int_equal(tok_eos_id(tok), tok_token_id(tok, "<|eot_id|>", 10));
    assert_int_equal(tok_id_bytes(tok, (uint32_t)id, &p, &n, &flags), 0);
    assert_int_equal(flags, TOK_ID_ADDED | TOK_ID_SPECIAL);
    assert_int_equal(n, 17);
    assert_memory_equal(p, "<|begin_of_text|>", 17);
    id = tok_token_id(tok, " the", 4);
    assert_int_equal(tok_id_bytes(tok, (uint32_t)id, &p, &n, &flags), 0);
    assert_int_equal(flags, 0);
    assert_memory_equal(p, " the", 4);
    assert_true(tok_token_id(tok, "\xff", 1) >= 0);
    assert_int_equal(tok_token_id(tok, "no such token at all", 20), -ENOENT);
    assert_int_equal(tok_token_id(tok, "<|begin_of_text", 15), -ENOENT);
    assert_int_equal(tok_id_bytes(tok, tok_vocab_size(tok), &p, &n, &flags), -ENOENT);
    assert_int_equal(tok_id_bytes(tok, tok_vocab_size(tok) - 1, &p, &n, &flags), 0);
    tok_free(tok);
    tok = load("qwen2");
    assert_int_equal(tok_bos_id(tok), -1);
    id = tok_token_id(tok, "<tool_call>", 11);
    assert_int_equal(tok_id_bytes(tok, (uint32_t)id, &p, &n, &flags), 0);
    assert_int_equal(flags, TOK_ID_ADDED);
    tok_free(tok);
}

/* Texts without a boundary, in slices: the work of each slice is bounded. */
static void
slices(void **state)
{
    static const char *const units[] = { "a", " ", "\n", "\xcc\x81\xcc\x96", "a b ",
        "<|im_start|>", "\xe4\xb8\xad", "'" };
    size_t n = 300000, i, k, want, got, steps;
    struct tok *tok = load("qwen2");
    struct tok_enc *enc = tok_enc_new(tok);
    char *text = malloc(n + 32);
    uint32_t *ids = malloc(n * sizeof(*ids));
    const uint32_t *found;
    int rc;

    (void)state;
    assert_non_null(enc);
    for (k = 0; k < sizeof(units) / sizeof(units[0]); k++) {
        for (i = 0; i < n; i += strlen(units[k]))
            memcpy(text + i, units[k], strlen(units[k]));
        assert_int_equal(encode(enc, text, i, TOK_PARSE_SPECIAL, SIZE_MAX), 1);
        found = tok_enc_ids(enc, &want);
        assert_true(want && want <= n);
        memcpy(ids, found, want * sizeof(*ids));
        assert_int_equal(tok_enc_begin(enc, text, i, TOK_PARSE_SPECIAL), 0);
        for (steps = 1; !(rc = tok_enc_step(enc, 10000)); steps++)
            ;
        assert_int_equal(rc, 1);
        found = tok_enc_ids(enc, &got);
        assert_int_equal(got, want);
        assert_memory_equal(ids, found, want * sizeof(*ids));
        if (*units[k] != '<' && steps < 10)
            fail_msg("unit %zu took %zu steps", k, steps);
    }
    free(ids);
    free(text);
    tok_enc_free(enc);
    tok_free(tok);
}

/* One megabyte of the worst text of each kind, at once and in slices. */
static void
megabytes(void **state)
{
    static const char *const names[] = { "spm-llama", "spm-first", "unigram-t5",
        "unigram-bytes", "bert", "falcon", "spm-file-unigram" };
    static const char *const fill[] = { "a", " ", "\xe2\x96\x81", "e\xcc\x81",
        "\xe4\xb8\xad", "the ", "\n" };
    size_t n = 1000000, i, k, t, want, got;
    char *text = malloc(n + 8);
    uint32_t *ids = malloc((4 * n + 8) * sizeof(*ids));

    (void)state;
    for (t = 0; t < sizeof(names) / sizeof(names[0]); t++) {
        struct tok *tok = load(names[t]);
        struct tok_enc *enc = tok_enc_new(tok);

        for (k = 0; k < sizeof(fill) / sizeof(fill[0]); k++) {
            for (i = 0; i < n; i += strlen(fill[k]))
                memcpy(text + i, fill[k], strlen(fill[k]));
            assert_int_equal(encode(enc, text, i, 0, SIZE_MAX), 1);
            want = 0;
            tok_enc_ids(enc, &want);
            assert_true(want <= 4 * n);
            if (want)
                memcpy(ids, tok_enc_ids(enc, &want), want * sizeof(*ids));
            assert_int_equal(encode(enc, text, i, 0, 4096), 1);
            tok_enc_ids(enc, &got);
            assert_int_equal(got, want);
            if (want)
                assert_memory_equal(ids, tok_enc_ids(enc, &got), want * sizeof(*ids));
        }
        tok_enc_free(enc);
        tok_free(tok);
    }
    free(ids);
    free(text);
}

static void
bad_text(void **state)
{
    static const char *const bad[] = { "\xff", "a\xc0\x80", "\xed\xa0\x80",
        "\xf4\x90\x80\x80", "\xe4\xb8", "\x80", "\xc3", "12345678\xf0\x80\x80\x80" };
    struct tok *tok = load("gpt2");
    struct tok_enc *enc = tok_enc_new(tok);
    size_t i, n;

    (void)state;
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(tok_enc_begin(enc, bad[i], strlen(bad[i]), 0), -EILSEQ);
        assert_int_equal(tok_enc_step(enc, 1), -EINVAL);
    }
    assert_int_equal(encode(enc, "x\0y", 3, 0, 1), 1);
    tok_enc_ids(enc, &n);
    assert_int_equal(n, 3);
    tok_enc_free(enc);
    tok_free(tok);
}

/* A tokenizer.json with one section replaced. */
#define PRE                "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"
#define DEC                "{\"type\":\"ByteLevel\"}"
#define VOCAB(vocab, rest) "{\"vocab\":" vocab ",\"merges\":" rest "}"
#define MODEL              VOCAB("{\"a\":0,\"b\":1,\"ab\":2}", "[\"a b\"],\"type\":\"BPE\"")
#define FILE_OF(norm, pre, post, dec, added, model) \
    "{\"version\":\"1.0\",\"normalizer\":" norm ",\"pre_tokenizer\":" pre \
    ",\"post_processor\":" post ",\"decoder\":" dec ",\"added_tokens\":" added \
    ",\"model\":" model "}"
#define SPLIT(rx) \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\"," \
    "\"pattern\":{\"Regex\":\"" rx "\"},\"behavior\":\"Isolated\"," \
    "\"invert\":false}," PRE "]}"
#define SPLIT_FILE(rx) FILE_OF("null", SPLIT(rx), "null", DEC, "[]", MODEL)

#define META(rest)     "{\"type\":\"Metaspace\",\"replacement\":\"_\"," rest "}"
#define MAP(blob)      "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"" blob "\"}"
#define DECS(a, b)     "{\"type\":\"Sequence\",\"decoders\":[" a "," b "]}"
#define UNIGRAM(vocab, unk) \
    "{\"type\":\"Unigram\",\"vocab\":" vocab ",\"unk_id\":" unk "}"
#define WORDPIECE(unk, max) \
    "{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"unk_token\":" unk \
    ",\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":" max "}"

struct refusal {
    const char *json;
    int rc;
    const char *says; /* NULL: loads */
};

static const struct refusal refusals[] = {
    { FILE_OF("null", PRE, "null", DEC, "[]", MODEL), 0, NULL },
    { "", -EINVAL, "line 1" },
    { "[]", -EINVAL, "not an object" },
    { "{\"version\":\"2.0\"}", -ENOTSUP, "version" },
    { "{\"model\":{},\"model\":{}}", -EINVAL, "duplicate" },
    { "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}} x", -EINVAL, "text after the end" },
    { "{\"model\":{\"vocab\":{\"a\":0,},\"merges\":[]}}", -EINVAL,
        "line 1 column 26: expected a string" },
    { "{\"model\":{\"vocab\":{\"a\":\n01},\"merges\":[]}}", -EINVAL, "line 2 column 1: " },
    { "{\"model\":{\"vocab\":{\"\\ud800\":0},\"merges\":[]}}", -EINVAL, "invalid escape" },
    { "{\"model\":{\"vocab\":{\"\xff\":0},\"merges\":[]}}", -EINVAL, "not valid UTF-8" },
    { FILE_OF("null", "null", "null", "null", "[]", MODEL), 0, NULL },
    { FILE_OF("null", "{\"type\":\"Metaspace\"}", "null", DEC, "[]", MODEL), -EINVAL,
        "Metaspace: \"replacement\" is not one character" },
    { FILE_OF("null", META("\"prepend_scheme\":\"odd\""), "null", DEC, "[]", MODEL),
        -ENOTSUP, "\"prepend_scheme\" is \"odd\", not one of always, first, never" },
    { FILE_OF("null", META("\"add_prefix_space\":false,\"prepend_scheme\":\"always\""),
          "null", DEC, "[]", MODEL),
        -EINVAL, "\"add_prefix_space\" is false, \"prepend_scheme\" is \"always\"" },
    { FILE_OF("null", "{\"type\":\"UnicodeScripts\"}", "null", DEC, "[]", MODEL), -ENOTSUP,
        "pre_tokenizer type \"UnicodeScripts\" is not supported (supported: ByteLevel, " },
    { FILE_OF("null", "{\"type\":\"Punctuation\",\"behavior\":\"Odd\"}", "null", DEC,
          "[]", MODEL),
        -ENOTSUP, "Punctuation: behavior \"Odd\"" },
    { FILE_OF("null", "{\"type\":\"Sequence\",\"pretokenizers\":[" PRE "," PRE "]}",
          "null", DEC, "[]", MODEL),
        -ENOTSUP, "ByteLevel twice" },
    { FILE_OF("{\"type\":\"Nmt\"}", PRE, "null", DEC, "[]", MODEL), -ENOTSUP,
        "normalizer type \"Nmt\"" },
    { FILE_OF("{\"type\":\"Precompiled\"}", PRE, "null", DEC, "[]", MODEL), -EINVAL,
        "\"precompiled_charsmap\": not a string" },
    { FILE_OF(MAP("A"), PRE, "null", DEC, "[]", MODEL), -EINVAL, "not base64" },
    { FILE_OF(MAP("AAAAAA=="), PRE, "null", DEC, "[]", MODEL), -EINVAL, "double array" },
    { FILE_OF(MAP("BAAAAAAAAAA="), PRE, "null", DEC, "[]", MODEL), -EINVAL, "ended by NUL" },
    { FILE_OF("{\"type\":\"BertNormalizer\",\"lowercase\":1}", PRE, "null", DEC, "[]", MODEL),
        -EINVAL, "BertNormalizer: \"lowercase\" is not" },
    { FILE_OF("null", PRE, "null", "{\"type\":\"WordPiece\"}", "[]", MODEL), -EINVAL,
        "WordPiece: \"prefix\" is not a string" },
    { FILE_OF("null", PRE, "null", "{\"type\":\"CTC\"}", "[]", MODEL), -ENOTSUP,
        "decoder type \"CTC\" is not supported" },
    { FILE_OF("null", PRE, "null", "{\"type\":\"Strip\",\"content\":\" \",\"start\":-1}",
          "[]", MODEL),
        -EINVAL, "Strip: \"start\" is not in 0 .. 65535" },
    { FILE_OF("null", PRE, "null",
          DECS("{\"type\":\"Fuse\"}", "{\"type\":\"ByteFallback\"}"), "[]", MODEL),
        -ENOTSUP, "decoder type \"ByteFallback\" after Fuse" },
    { FILE_OF("null", PRE, "null", DECS("{\"type\":\"ByteFallback\"}", DEC), "[]", MODEL),
        -ENOTSUP, "decoder type \"ByteLevel\" after ByteFallback" },
    { FILE_OF("null", PRE, "null", DEC, "[]", "{\"type\":\"WordLevel\"}"), -ENOTSUP,
        "model type \"WordLevel\" is not supported (supported: BPE, Unigram, WordPiece)" },
    { FILE_OF("null", PRE, "null", DEC, "[]", "{\"type\":\"Unigram\"}"), -EINVAL,
        "no array \"vocab\"" },
    { FILE_OF("null", PRE, "null", DEC, "[]", UNIGRAM("[[\"a\",0]]", "null")), -EINVAL,
        "\"unk_id\" is not in 0 .. 0" },
    { FILE_OF("null", PRE, "null", DEC, "[]", UNIGRAM("[[\"a\",0],[\"b\"]]", "0")),
        -EINVAL, "\"vocab\" item 1 is not [\"token\", score]" },
    { FILE_OF("null", PRE, "null", DEC, "[]", UNIGRAM("[[\"a\",0]]", "0")), 0, NULL },
    { FILE_OF("null", PRE, "null", DEC, "[]", WORDPIECE("\"a\"", "100")), 0, NULL },
    { FILE_OF("null", PRE, "null", DEC, "[]", WORDPIECE("\"x\"", "100")), -EINVAL,
        "\"unk_token\" is \"x\", which is not in the vocabulary" },
    { FILE_OF("null", PRE, "null", DEC, "[]", WORDPIECE("\"a\"", "-1")), -EINVAL,
        "\"max_input_chars_per_word\"" },
    { FILE_OF("null", PRE, "null", DEC, "[]",
          "{\"vocab\":{\"a\":0},\"merges\":[],\"byte_fallback\":1}"),
        -EINVAL, "\"byte_fallback\" is not true or false" },
    { FILE_OF("null", PRE, "null", DEC, "[]",
          "{\"vocab\":{\"a\":0},\"merges\":[],\"byte_fallback\":true,"
          "\"end_of_word_suffix\":\"x\"}"),
        -ENOTSUP, "\"byte_fallback\" with" },
    { FILE_OF("null", PRE, "null", DEC, "[]", "{\"vocab\":{\"a\":0},\"merges\":{}}"),
        -EINVAL, "no array \"merges\"" },
    { FILE_OF("null", PRE, "null", DEC, "[]", "{\"vocab\":{\"a\":0.5},\"merges\":[]}"),
        -EINVAL, "token \"a\": its id is not an integer" },
    { FILE_OF("null", PRE, "null", DEC, "[]", "{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}"),
        -EINVAL, "has the token \"a\" twice" },
    { FILE_OF("null", PRE, "{\"type\":\"Odd\"}", DEC, "[]", MODEL), -ENOTSUP,
        "post_processor type \"Odd\"" },
    { FILE_OF("null", PRE, "{\"type\":\"BertProcessing\",\"sep\":[\"a\",7],\"cls\":[\"a\",0]}",
          DEC, "[]", MODEL),
        -EINVAL, "id 7" },
    { FILE_OF("null", PRE, "null", DEC, "[]", "{\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}"),
        -EINVAL, "merge 0 (\"a\" and \"b\")" },
    { FILE_OF("null", PRE, "null", DEC, "[]", "{\"vocab\":{\"a\":0},\"merges\":[\"ab\"]}"),
        -EINVAL, "merge 0 is not" },
    { FILE_OF("null", PRE, "null", DEC, "[]", "{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}"),
        -EINVAL, "merge 0 is not" },
    { FILE_OF("null", PRE, "null", DEC, "[]", "{\"vocab\":{\"a\":-1},\"merges\":[]}"),
        -EINVAL, "id -1" },
    { FILE_OF("null", PRE, "null", DEC, "[]", "{\"vocab\":{\"a\":1048576},\"merges\":[]}"),
        -EINVAL, "id 1048576" },
    { FILE_OF("null", PRE, "null", DEC, "[]", "{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}"),
        -EINVAL, "another token" },
    { FILE_OF("null", PRE, "null", DEC, "[]",
          "{\"vocab\":{\"a\":0},\"merges\":[],"
          "\"dropout\":0.1}"),
        -ENOTSUP, "dropout" },
    { FILE_OF("null", PRE, "null", DEC, "[]",
          "{\"vocab\":{\"a\":0},\"merges\":[],"
          "\"unk_token\":\"u\"}"),
        -EINVAL, "unk_token" },
    { FILE_OF("null", PRE, "null", DEC, "[{\"id\":1,\"content\":\"x\"}]", MODEL), -EINVAL,
        "another token" },
    { FILE_OF("null", PRE, "null", DEC, "[{\"id\":9,\"content\":\"a\"}]", MODEL), -EINVAL,
        "has id 9, but 0" },
    { FILE_OF("null", PRE, "null", DEC, "[{\"id\":9}]", MODEL), -EINVAL, "no \"content\"" },
    { FILE_OF("null", PRE, "null", DEC, "[{\"id\":9,\"content\":\"x\",\"special\":1}]",
          MODEL),
        -EINVAL, "\"special\" is not" },
    { FILE_OF("{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}", PRE,
          "null", DEC, "[{\"id\":9,\"content\":\" \",\"normalized\":true}]", MODEL),
        -ENOTSUP, "normalizes to nothing" },
    { SPLIT_FILE("[^\\\\S\\\\w]|\\\\p{Lu}+(?i:a)(?=b)x{2,3}"), 0, NULL },
    { SPLIT_FILE("(a"), -EINVAL, "parenthesis" },
    { SPLIT_FILE("\\\\p{Han}"), -ENOTSUP, "\\p{Han}" },
    { SPLIT_FILE("[a&&b]"), -ENOTSUP, "&&" },
    { SPLIT_FILE("[a[b]]"), -ENOTSUP, "inside brackets" },
    { SPLIT_FILE("a(?i)b"), -ENOTSUP, "(?i" },
    { SPLIT_FILE("(*ACCEPT)"), -EINVAL, "(*" },
    { SPLIT_FILE("a{1,2}+"), -ENOTSUP, "\"+\" after" },
    { SPLIT_FILE("(a)\\\\1"), -ENOTSUP, "\\1" },
};

static void
bad_files(void **state)
{
    char path[] = "/tmp/u_tokenizer.XXXXXX", err[512];
    size_t i;

    (void)state;
    close(mkstemp(path));
    for (i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const struct refusal *r = &refusals[i];
        struct tok *tok = NULL;
        FILE *f = fopen(path, "w");
        int rc;

        assert_non_null(f);
        fputs(r->json, f);
        fclose(f);
        err[0] = 0;
        rc = tok_load(path, &tok, err, sizeof(err));
        if (rc != r->rc || (r->says && (!strstr(err, r->says) || !strstr(err, path))))
            fail_msg("case %zu: %d \"%s\", not %d \"%s\"", i, rc, err, r->rc,
                r->says ? r->says : "");
        assert_true((tok != NULL) == !rc);
        tok_free(tok);
    }
    unlink(path);
    assert_int_equal(tok_load(path, &(struct tok *){ NULL }, err, sizeof(err)), -ENOENT);
    assert_non_null(strstr(err, path));
    /* a dangling link does not count as a model without a tokenizer */
    assert_int_equal(symlink("/nonexistent", path), 0);
    assert_int_equal(tok_load(path, &(struct tok *){ NULL }, err, sizeof(err)), -EINVAL);
    assert_non_null(strstr(err, "not there"));
    unlink(path);
    assert_int_equal(tok_load("/dev/zero", &(struct tok *){ NULL }, err, sizeof(err)),
        -EINVAL);
    assert_non_null(strstr(err, "not a regular file"));
    assert_int_equal(tok_load("/nonexistent", &(struct tok *){ NULL }, err, 1), -ENOENT);
}

static void
put_file(const char *dir, const char *name, const char *text)
{
    char path[64];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Regression: a tokenizer_config.json as saved by transformers, with model_max_length
 * 10^30, was refused with "too big integer". */
static void
endless_length(void **state)
{
    char dir[] = "/tmp/u_tokenizer.XXXXXX", path[64], err[512] = "";
    struct tok *tok = NULL;
    int rc;

    (void)state;
    assert_non_null(mkdtemp(dir));
    put_file(dir, "tokenizer.json", FILE_OF("null", PRE, "null", DEC, "[]", MODEL));
    put_file(dir, "tokenizer_config.json",
        "{\"backend\":\"tokenizers\",\"eos_token\":"
        "\"b\",\"model_max_length\":1000000000000000019884624838656}");
    rc = tok_load(dir, &tok, err, sizeof(err));
    snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/tokenizer_config.json", dir);
    unlink(path);
    rmdir(dir);
    if (rc)
        fail_msg("%s", err);
    assert_int_equal(tok_eos_id(tok), 1);
    tok_free(tok);
}

static void
drop_files(const char *dir, const char *const *names, size_t n)
{
    char path[128];

    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

/* Regression: "bos_token": "" was refused as a token that the tokenizer does not have. */
static void
empty_token(void **state)
{
    static const char *const names[] = { "tokenizer.json", "tokenizer_config.json" };
    char dir[] = "/tmp/u_tokenizer.XXXXXX", err[512] = "";
    struct tok *tok = NULL;
    int rc;

    (void)state;
    assert_non_null(mkdtemp(dir));
    put_file(dir, names[0], FILE_OF("null", PRE, "null", DEC, "[]", MODEL));
    put_file(dir, names[1], "{\"bos_token\":\"\",\"eos_token\":{\"content\":\"\"}}");
    rc = tok_load(dir, &tok, err, sizeof(err));
    drop_files(dir, names, 2);
    if (rc)
        fail_msg("%s", err);
    assert_true(tok_bos_id(tok) == -1 && tok_eos_id(tok) == -1);
    tok_free(tok);
}

static void
copy_file(const char *from, const char *dir, const char *name)
{
    char path[128], buf[65536];
    FILE *in = fopen(from, "r"), *out;
    size_t n;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    out = fopen(path, "w");
    assert_true(in != NULL && out != NULL);
    while ((n = fread(buf, 1, sizeof(buf), in)) > 0)
        assert_int_equal(fwrite(buf, 1, n, out), n);
    fclose(in);
    fclose(out);
}

/* Regression: of a folder with a tokenizer.model the message said that tokenizer.json does
 * not have the token. */
static void
named_file(void **state)
{
    static const char *const names[] = { "tokenizer.model", "tokenizer_config.json" };
    char dir[] = "/tmp/u_tokenizer.XXXXXX", from[4096], err[512] = "";
    struct tok *tok = NULL;
    int rc;

    (void)state;
    assert_non_null(mkdtemp(dir));
    data_path(from, sizeof(from), "spm-file-bpe", "/tokenizer.model");
    copy_file(from, dir, names[0]);
    put_file(dir, names[1], "{\"eos_token\":\"<|im_end|>\"}");
    rc = tok_load(dir, &tok, err, sizeof(err));
    drop_files(dir, names, 2);
    assert_int_equal(rc, -EINVAL);
    assert_non_null(strstr(err, "\"<|im_end|>\", which tokenizer.model does not have"));
}

#define ADDED(id, text, more) \
    "\"" id "\":{\"content\":\"" text "\",\"normalized\":true" more "}"
/* Regression: of a folder with a tokenizer.model, the added tokens in other files were plain
 * text, so that a model did not see the marks of its turns. The ids are transformers'. */
static void
added_listed(void **state)
{
    static const char *const names[] = { "tokenizer.model", "tokenizer_config.json",
        "added_tokens.json" };
    static const char text[] = "<|im_start|>user hello<|im_end|> x<call>y <call> z";
    static const struct {
        const char *config, *added;
        uint32_t ids[15];
        size_t n;
    } rows[] = {
        { "{\"eos_token\":\"<|im_end|>\"}",
            "{\"<|im_start|>\":600,\"<|im_end|>\":601,\"<call>\":602}",
            { 600, 399, 268, 322, 286, 447, 601, 4, 494, 602, 367, 444, 602, 4, 127 }, 15 },
        { "{\"eos_token\":\"<|im_end|>\",\"added_tokens_decoder\":{"
          "\"0\":{\"content\":\"<unk>\"}," ADDED("600", "<|im_start|>",
              ",\"special\":true") "," ADDED("601", "<|im_end|>",
              ",\"special\":true,\"rstrip\":true") "," ADDED("602", "<call>",
              ",\"lstrip\":true") "}}",
            "{\"<|im_start|>\":7}",
            { 600, 399, 268, 322, 286, 447, 601, 444, 494, 602, 367, 602, 4, 127 }, 14 },
        { "{}", "{\"<call>\":1048576}", { 0 }, 0 },
        { "{}", "{\"<call>\":5}", { 0 }, 0 },
    };
    char from[4096], err[512] = "";

    (void)state;
    data_path(from, sizeof(from), "spm-file-bpe", "/tokenizer.model");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char dir[] = "/tmp/u_tokenizer.XXXXXX";
        struct tok *tok = NULL;
        struct tok_enc *enc;
        const uint32_t *ids;
        size_t n;
        int rc;

        assert_non_null(mkdtemp(dir));
        copy_file(from, dir, names[0]);
        put_file(dir, names[1], rows[i].config);
        put_file(dir, names[2], rows[i].added);
        rc = tok_load(dir, &tok, err, sizeof(err));
        drop_files(dir, names, 3);
        if (!rows[i].n) {
            assert_true(rc == -EINVAL || rc == -ENOTSUP);
            assert_non_null(strstr(err, "\"<call>\""));
            continue;
        }
        if (rc)
            fail_msg("%s", err);
        enc = tok_enc_new(tok);
        assert_int_equal(encode(enc, text, sizeof(text) - 1, TOK_PARSE_SPECIAL, 1), 1);
        ids = tok_enc_ids(enc, &n);
        assert_int_equal(n, rows[i].n);
        assert_memory_equal(ids, rows[i].ids, n * sizeof(*ids));
        assert_int_equal(tok_eos_id(tok), 601);
        assert_int_equal(tok_vocab_size(tok), 603);
        tok_enc_free(enc);
        tok_free(tok);
    }
}

/* A control character of the file does not get into the message. */
static void
control_bytes(void **state)
{
    static const char *const configs[] = { "{\"eos_token\":\x1b}",
        "{\"eos_token\":\"\\u001b[31m\\n\"}" };
    char dir[] = "/tmp/u_tokenizer.XXXXXX", path[64], err[512];
    struct tok *tok = NULL;

    (void)state;
    assert_non_null(mkdtemp(dir));
    put_file(dir, "tokenizer.json", FILE_OF("null", PRE, "null", DEC, "[]", MODEL));
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        put_file(dir, "tokenizer_config.json", configs[i]);
        assert_int_equal(tok_load(dir, &tok, err, sizeof(err)), -EINVAL);
        assert_non_null(strstr(err, "tokenizer_config.json: "));
        assert_null(strpbrk(err, "\x1b\n"));
    }
    snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/tokenizer_config.json", dir);
    unlink(path);
    rmdir(dir);
}

/* Writes a vocabulary of "ab" and the bytes but one, in a byte-level file's alphabet or by
 * name. */
static void
byte_vocab(char *out, size_t n, bool named, unsigned but)
{
    size_t at = (size_t)snprintf(out, n, "{\"ab\":256");

    for (unsigned b = 0; b < 256; b++) {
        unsigned cp = b <= 32      ? 256 + b
            : b >= 127 && b <= 160 ? 256 + 33 + b - 127
            : b == 173             ? 256 + 67
                                   : b;

        if (b != but)
            at += (size_t)snprintf(out + at, n - at,
                named ? ",\"<0x%02X>\":%u" : ",\"\\u%04x\":%u", named ? b : cp, b);
    }
    snprintf(out + at, n - at, "}");
}

/* Regression: a tokenizer.json of bytes with an unk_token that is not in its vocabulary was
 * refused. The library looks it up only for an unknown character. */
static void
unknown_unknown(void **state)
{
    static const struct {
        bool named;
        unsigned but;
        const char *more;
        int rc;
    } rows[] = { { false, 256, "", 0 }, { false, 7, "", -EINVAL },
        { true, 256, ",\"byte_fallback\":true", 0 },
        { true, 7, ",\"byte_fallback\":true", -EINVAL }, { true, 256, "", -EINVAL } };
    char vocab[8192], file[10000], err[512];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tok *tok = NULL;
        int rc;

        byte_vocab(vocab, sizeof(vocab), rows[i].named, rows[i].but);
        snprintf(file, sizeof(file),
            FILE_OF("null", "%s", "null", "%s", "[]",
                "{\"type\":\"BPE\",\"vocab\":%s,\"merges\":[],\"unk_token\":\"[UNK]\"%s}"),
            rows[i].named ? "null" : PRE, rows[i].named ? "null" : DEC, vocab,
            rows[i].more);
        rc = load_bytes("tokenizer.json", file, strlen(file), &tok, err, sizeof(err));
        if (rc != rows[i].rc)
            fail_msg("row %zu: %d \"%s\"", i, rc, err);
        assert_true(!rc || strstr(err, "\"unk_token\" is \"[UNK]\", which is not in"));
        tok_free(tok);
    }
}

/* ---- no memory ---- */

static long n_left;

static void *
failing_malloc(size_t n)
{
    if (n_left-- > 0)
        return malloc(n);
    errno = ENOMEM;
    return NULL;
}

/* Regression: a lack of memory for a tokenizer.json was reported
 * as "invalid token near ..." */
static void
no_memory(void **state)
{
    char path[] = "/tmp/u_tokenizer.XXXXXX", err[512], text[600];
    struct tok *tok = NULL;
    int rc = -ENOMEM;
    long n;

    (void)state;
    close(mkstemp(path));
    /* names longer than jansson's first buffer of a string */
    snprintf(text, sizeof(text), "%s",
        FILE_OF("null", PRE, "null", DEC,
            "[{\"id\":3,"
            "\"content\":\"a token of more bytes than thirty-two, all told\"}]",
            MODEL));
    unlink(path);
    mkdir(path, 0700);
    put_file(path, "tokenizer.json", text);
    json_set_alloc_funcs(failing_malloc, free);
    for (n = 0; rc == -ENOMEM && n < 100000; n++) {
        n_left = n;
        err[0] = 0;
        rc = tok_load(path, &tok, err, sizeof(err));
        if (rc && (rc != -ENOMEM || !strstr(err, "/tokenizer.json: out of memory")))
            break;
    }
    json_set_alloc_funcs(malloc, free);
    snprintf(text, sizeof(text), "%s/tokenizer.json", path);
    unlink(text);
    rmdir(path);
    if (rc)
        fail_msg("%ld allocations: %d \"%s\"", n, rc, err);
    assert_true(n > 50);
    tok_free(tok);
}

static int
load_for(const char *file, int32_t vocab, struct tok **ret, char *err, size_t err_bytes)
{
    char path[] = "/tmp/u_tokenizer.XXXXXX";
    FILE *f;
    int rc;

    close(mkstemp(path));
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(file, f);
    fclose(f);
    rc = tok_load_for(path, vocab, ret, err, err_bytes);
    unlink(path);
    return rc;
}

/* Regression: "--check" and a start accepted the tokenizer of another model. */
static void
other_vocabulary(void **state)
{
    char path[4096], err[512] = "";
    struct tok *tok = NULL;

    (void)state;
    data_path(path, sizeof(path), "qwen2", "");
    assert_int_equal(tok_load_for(path, 1802, &tok, err, sizeof(err)), -EINVAL);
    assert_null(tok);
    snprintf(path + strlen(path), 64,
        "/tokenizer.json: token \"<|im_end|>\" has id 1802, "
        "config.json says vocab_size = 1802: ");
    assert_ptr_equal(strstr(err, path), err);
    assert_non_null(strstr(err, "put this model's tokenizer.json in its place"));
}

#define BEYOND "[{\"id\":3,\"content\":\"<image>\",\"special\":true}]"
#define BEGIN \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}," \
    "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"x\":{\"ids\":[3]}}}"
/* Regression: the small Gemma 3 models were refused, since they share the tokenizer.json
 * of those for images: its last token is beyond their vocab_size. */
static void
shared_tokens(void **state)
{
    static const char shared[] = FILE_OF("null", PRE, "null", DEC, BEYOND, MODEL);
    struct tok *tok = NULL;
    char path[4096], err[512] = "";
    struct tok_enc *enc;
    const uint32_t *ids;
    size_t n;

    (void)state;
    if (load_for(shared, 3, &tok, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    enc = tok_enc_new(tok);
    assert_int_equal(encode(enc, "ab<image>", 9, TOK_PARSE_SPECIAL, 1), 1);
    ids = tok_enc_ids(enc, &n);
    assert_true(n == 2 && ids[0] == 2 && ids[1] == 3);
    tok_enc_free(enc);
    tok_free(tok);
    tok = NULL;
    assert_int_equal(load_for(shared, 2, &tok, err, sizeof(err)), -EINVAL);
    assert_non_null(strstr(err, "token \"ab\" has id 2, "));
    assert_int_equal(load_for(FILE_OF("null", PRE, BEGIN, DEC, BEYOND, MODEL), 3, &tok,
                         err, sizeof(err)),
        -EINVAL);
    assert_non_null(strstr(err, "token \"<image>\" has id 3, "));
    data_path(path, sizeof(path), "qwen2", "");
    assert_int_equal(tok_load_for(path, 1803, &tok, err, sizeof(err)), 0);
    tok_free(tok);
}

/* A piece that the text's first character was mapped to also begins the text. */
static void
first_piece(void **state)
{
    static const char file[] = FILE_OF("{\"type\":\"NFKC\"}",
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"}," META(
            "\"prepend_scheme\":\"first\"") "]}",
        "null", "null", "[]",
        UNIGRAM("[[\"u\",0],[\"_\",-1],[\"a\",-2],[\"\xcc\x83\",-3]]", "0"));
    static const struct {
        const char *text;
        size_t n;
        uint32_t ids[4];
    } rows[] = { { "\xcb\x9c", 2, { 1, 3 } }, { "a\xcb\x9c", 3, { 1, 2, 3 } },
        { " a", 1, { 2 } }, { "aa a", 4, { 1, 2, 2, 2 } } };
    struct tok *tok = NULL;
    struct tok_enc *enc;
    const uint32_t *ids;
    char err[512];
    size_t n, i;

    (void)state;
    if (load_bytes("tokenizer.json", file, strlen(file), &tok, err, sizeof(err)))
        fail_msg("%s", err);
    enc = tok_enc_new(tok);
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(encode(enc, rows[i].text, strlen(rows[i].text), 0, 1), 1);
        ids = tok_enc_ids(enc, &n);
        assert_int_equal(n, rows[i].n);
        assert_memory_equal(ids, rows[i].ids, n * sizeof(*ids));
    }
    tok_enc_free(enc);
    tok_free(tok);
}

/* The text that jansson reads of a file is bounded; it does not
 * read vocabulary and merges. */
static void
large(void **state)
{
    static const char head[] = "{\"x\":\"",
                      tail[] = "\",\"model\":{\"vocab\":{},\"merges\":[]}}";
    size_t n = (17u << 20) + sizeof(head);
    char *file = malloc(n + sizeof(tail)), err[512];
    struct tok *tok = NULL;

    (void)state;
    memset(file, 'x', n);
    memcpy(file, head, sizeof(head) - 1);
    memcpy(file + n, tail, sizeof(tail));
    assert_int_equal(load_bytes("tokenizer.json", file, n + sizeof(tail) - 1, &tok, err,
                         sizeof(err)),
        -EFBIG);
    assert_non_null(strstr(err, "bytes outside the model's vocabulary and merges"));
    free(file);
}

/* Names of special tokens in the ranges are text, as without
 * TOK_PARSE_SPECIAL; others are tokens. */
static void
spans(void **state)
{
    static const char text[] = "<|im_start|>a<|im_end|>b<|im_end|>";
    static const struct {
        struct tok_span s[3];
        size_t n;
        int tokens;
    } rows[] = { { { { 0, 0 } }, 0, 3 }, { { { 0, 34 } }, 1, 0 }, { { { 12, 1 } }, 1, 3 },
        { { { 12, 12 } }, 1, 2 }, { { { 0, 1 }, { 22, 1 } }, 2, 1 },
        { { { 11, 1 }, { 13, 1 }, { 33, 1 } }, 3, 0 }, { { { 24, 10 } }, 1, 2 } };
    struct tok *tok = load("qwen2");
    struct tok_enc *enc = tok_enc_new(tok);
    int start = tok_token_id(tok, "<|im_start|>", 12),
        stop = tok_token_id(tok, "<|im_end|>", 10), found, rc;
    const uint32_t *ids;
    size_t n;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(tok_enc_begin(enc, text, 34, TOK_PARSE_SPECIAL), 0);
        tok_enc_spans(enc, rows[i].s, rows[i].n);
        while ((rc = tok_enc_step(enc, 1)) == 0)
            continue;
        assert_int_equal(rc, 1);
        ids = tok_enc_ids(enc, &n);
        found = 0;
        for (size_t k = 0; k < n; k++)
            found += ids[k] == (uint32_t)start || ids[k] == (uint32_t)stop;
        assert_int_equal(found, rows[i].tokens);
    }
    tok_enc_free(enc);
    tok_free(tok);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans),
        cmocka_unit_test(vectors),
        cmocka_unit_test(tables),
        cmocka_unit_test(slices),
        cmocka_unit_test(megabytes),
        cmocka_unit_test(bad_text),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(endless_length),
        cmocka_unit_test(empty_token),
        cmocka_unit_test(named_file),
        cmocka_unit_test(added_listed),
        cmocka_unit_test(control_bytes),
        cmocka_unit_test(unknown_unknown),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(other_vocabulary),
        cmocka_unit_test(shared_tokens),
        cmocka_unit_test(first_piece),
        cmocka_unit_test(large),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
