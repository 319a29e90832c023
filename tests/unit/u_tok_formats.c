/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokenizers in other formats than tokenizer.json: ranks, tekken.json, tokenizer.model.
 * Expected ids of the last are in tests/parity/tok, which u_tokenizer reads.
 */
#include "config.h"

#include "daemon/worker/tokenizer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/worker/detok.h"
#include "tests/tok_fixture.h"

static size_t
base64(const uint8_t *s, size_t n, char *out)
{
    static const char all[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t k = 0, i;

    for (i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)s[i] << 16 | (i + 1 < n ? (uint32_t)s[i + 1] << 8 : 0) |
            (i + 2 < n ? s[i + 2] : 0);
        out[k++] = all[v >> 18];
        out[k++] = all[v >> 12 & 63];
        out[k++] = i + 1 < n ? all[v >> 6 & 63] : '=';
        out[k++] = i + 2 < n ? all[v & 63] : '=';
    }
    out[k] = 0;
    return k;
}

/* Ranks as in Llama 3, of bytes, "th", "he", "the" and fillers. */
static void
ranks(void **state)
{
    static const char *const own[] = { "th", "he", "the", " t", " the" };
    static const uint32_t want[] = { 128000, 'x', 260, 'r', 258, 128009 };
    char *file = malloc(4 << 20), err[512];
    struct tok *tok = NULL;
    struct tok_enc *enc;
    uint8_t token[8];
    const uint32_t *ids;
    size_t n = 0, len;
    uint32_t i;

    (void)state;
    for (i = 0; i < 128000; i++) {
        len = 1;
        token[0] = (uint8_t)i;
        if (i >= 256 && i < 261)
            memcpy(token, own[i - 256], len = strlen(own[i - 256]));
        else if (i >= 256)
            len = (size_t)snprintf((char *)token, sizeof(token), "%05xz", (unsigned)i);
        n += base64(token, len, file + n);
        n += (size_t)sprintf(file + n, " %u\n", (unsigned)i);
    }
    if (load_bytes("tokenizer.model", file, n, &tok, err, sizeof(err)))
        fail_msg("%s", err);
    assert_int_equal(tok_vocab_size(tok), 128256);
    assert_int_equal(tok_bos_id(tok), 128000);
    assert_int_equal(tok_eos_id(tok), 128001);
    assert_int_equal(tok_token_id(tok, "<|reserved_special_token_247|>", 30), 128255);
    enc = tok_enc_new(tok);
    assert_int_equal(encode(enc, "x the<|eot_id|>", 15, 3, 1), 1);
    ids = tok_enc_ids(enc, &n);
    assert_int_equal(n, 4);
    assert_int_equal(ids[2], 260);
    assert_int_equal(encode(enc, "x therthe<|eot_id|>", 19, 3, 1), 1);
    ids = tok_enc_ids(enc, &n);
    assert_int_equal(n, sizeof(want) / sizeof(want[0]));
    assert_memory_equal(ids, want, sizeof(want));
    tok_enc_free(enc);
    tok_free(tok);
    assert_int_equal(load_bytes("tokenizer.model", "QQ== 0\n", 7, &tok, err, sizeof(err)),
        -ENOTSUP);
    assert_non_null(strstr(err, "1 ranks, and no tokenizer.json"));
    assert_int_equal(load_bytes("tokenizer.model", "QQ== 0\nQ 1\n", 11, &tok, err,
                         sizeof(err)),
        -EINVAL);
    assert_non_null(strstr(err, "line 2: not a token in base64"));
    free(file);
}

#define TEKKEN(config, vocab) "{\"config\":{" config "},\"vocab\":[" vocab "]}"
#define TEKKEN_CONFIG \
    "\"pattern\":\"[^ ]+| +\",\"default_vocab_size\":7,\"default_num_special_tokens\":3"
#define TEKKEN_ITEM(rank, bytes) "{\"rank\":" rank ",\"token_bytes\":\"" bytes "\"}"

static void
tekken(void **state)
{
    static const char good[] = TEKKEN(TEKKEN_CONFIG,
        TEKKEN_ITEM("0", "YQ==") "," TEKKEN_ITEM("1", "Yg==") "," TEKKEN_ITEM("2",
            "YWI=") "," TEKKEN_ITEM("3", "IA==") "," TEKKEN_ITEM("4", "Yw=="));
    static const struct {
        const char *json, *says;
    } bad[] = {
        { TEKKEN("", ""), "\"default_vocab_size\" is not in 1 .." },
        { TEKKEN("\"default_vocab_size\":7,\"default_num_special_tokens\":7", ""),
            "\"default_num_special_tokens\" is not in 0 .. 6" },
        { TEKKEN(TEKKEN_CONFIG, TEKKEN_ITEM("0", "YQ==")),
            "\"vocab\" has 1 items, fewer than the 4 of config" },
        { TEKKEN(TEKKEN_CONFIG, TEKKEN_ITEM("1", "YQ==")),
            "vocab item 0: \"rank\" is not 0" },
        { TEKKEN(TEKKEN_CONFIG, TEKKEN_ITEM("0", "Y")), "vocab item 0: no \"token_bytes\"" },
        { TEKKEN(TEKKEN_CONFIG, TEKKEN_ITEM("0", "YQ==") "," TEKKEN_ITEM("1", "YQ==")),
            "another has the same bytes" },
    };
    struct tok *tok = NULL;
    struct tok_enc *enc;
    const uint32_t *ids;
    char err[512];
    size_t n, i;

    (void)state;
    if (load_bytes("tekken.json", good, strlen(good), &tok, err, sizeof(err)))
        fail_msg("%s", err);
    enc = tok_enc_new(tok);
    assert_int_equal(encode(enc, "ab a</s>", 8, 3, 1), 1);
    ids = tok_enc_ids(enc, &n);
    assert_int_equal(n, 5);
    assert_memory_equal(ids, ((uint32_t[]){ 1, 5, 6, 3, 2 }), n * sizeof(*ids));
    tok_enc_free(enc);
    tok_free(tok);
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(load_bytes("tekken.json", bad[i].json, strlen(bad[i].json), &tok,
                             err, sizeof(err)),
            -EINVAL);
        if (!strstr(err, bad[i].says))
            fail_msg("case %zu: %s", i, err);
    }
}

#define UNK_PIECE "\n\x09\n\x05<unk>\x18\x02"
/* No dummy prefix; repeated white space, and white space around the text, is removed. */
#define NO_PREFIX "\x1a\x04\x18\0 \x01"

/* Regression: the first space of a text came back though the normalizer removes it, and
 * user defined pieces that the normalizer changes were not found. */
static void
stripping_model(void **state)
{
    static const char good[] = UNK_PIECE
        "\n\x06\n\x04\xe2\x96\x81"
        "a" NO_PREFIX;
    static const char bad[] = UNK_PIECE "\n\x06\n\x02  \x18\x04" NO_PREFIX;
    struct tok *tok = NULL;
    struct dtk d;
    uint8_t out[64];
    char err[512];
    size_t n;

    (void)state;
    if (load_bytes("tokenizer.model", good, sizeof(good) - 1, &tok, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    dtk_init(&d, tok, false);
    n = dtk_push(&d, 1, out, sizeof(out));
    n += dtk_push(&d, 1, out + n, sizeof(out) - n);
    n += dtk_finish(&d, out + n, sizeof(out) - n);
    assert_int_equal(n, 3);
    assert_memory_equal(out, "a a", 3);
    tok_free(tok);
    assert_int_equal(load_bytes("tokenizer.model", bad, sizeof(bad) - 1, &tok, err,
                         sizeof(err)),
        -ENOTSUP);
    assert_non_null(strstr(err, "piece 1: \"  \" is USER_DEFINED, but the normalizer"));
}

/* Every prefix of a tokenizer.model is either refused or loaded,
 * and so are broken fields. */
static void
bad_models(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } bad[] = {
        { "\n\x03\n\x01"
          "a",
            5, "no piece is of the type UNKNOWN" },
        { "\n\x05\n\x01"
          "a\x18\x05",
            7, "is of the type UNUSED" },
        { "\n\x05\n\x01"
          "a\x18\x07",
            7, "piece 0: not UTF-8" },
        { "\n\x03\n\x01\xff", 5, "piece 0: not UTF-8" },
        { "\n\x03\n\x01"
          "a\x12\x02\x18\x03",
            9, "model_type 3 is not supported" },
        { "\n\x03\n\x01"
          "a\x12\x02\xc0\x01",
            9, "trainer_spec: field" },
        { "\n\x03\n\x01"
          "a\x1a\x03\x12\x01x",
            10, "precompiled_charsmap: its first four" },
        { "\n\x7f", 2, "the file: field 1 is not" },
        { "\n\x02\x08\x01", 4, "piece 0: not UTF-8" },
    };
    struct tok *tok = NULL;
    char path[4096], err[512], *whole = malloc(1 << 17);
    size_t i, n;
    FILE *f;

    (void)state;
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_true(load_bytes("tokenizer.model", bad[i].bytes, bad[i].n, &tok, err,
                        sizeof(err)) < 0);
        if (!strstr(err, bad[i].says))
            fail_msg("case %zu: %s", i, err);
    }
    data_path(path, sizeof(path), "spm-file-unigram", "/tokenizer.model");
    f = fopen(path, "r");
    assert_non_null(f);
    n = fread(whole, 1, 1 << 17, f);
    fclose(f);
    for (i = 2; i < n; i += 1 + i / 16) {
        int rc = load_bytes("tokenizer.model", whole, i, &tok, err, sizeof(err));

        assert_true(rc == 0 ? tok != NULL : err[0] != 0);
        tok = tok_free(tok);
    }
    free(whole);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks),
        cmocka_unit_test(tekken),
        cmocka_unit_test(stripping_model),
        cmocka_unit_test(bad_models),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
