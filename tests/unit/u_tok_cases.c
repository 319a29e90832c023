/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Small tokenizer.json files, each with the tokenizers library's
 * result for a text or ids. */
#include "config.h"

#include "daemon/worker/tokenizer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "daemon/worker/detok.h"
#include "tests/tok_fixture.h"

#define MANY 16

struct text_case {
    const char *json, *text;
    size_t n;
    uint32_t ids[MANY];
};

#define PIECES \
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":100,\"vocab\":{\"?\":0,\"x\":1,\"y\":2}}"
#define ADDED(id, text, flags) "{\"id\":" #id ",\"content\":\"" text "\"" flags "}"
#define SPECIAL                ",\"special\":true"
#define NORMAL                 ",\"normalized\":true"

static struct tok *
load(const char *json)
{
    struct tok *tok = NULL;
    char err[512];

    if (load_bytes("tokenizer.json", json, strlen(json), &tok, err, sizeof(err)) != 0)
        fail_msg("%s: %s", json, err);
    return tok;
}

static void
encodes(const struct text_case *c)
{
    struct tok *tok = load(c->json);
    struct tok_enc *enc = tok_enc_new(tok);

    for (size_t step = 1; step < 100; step += 49) {
        const uint32_t *ids;
        size_t n;

        assert_int_equal(encode(enc, c->text, strlen(c->text), TOK_PARSE_SPECIAL, step), 1);
        ids = tok_enc_ids(enc, &n);
        if (n != c->n || memcmp(ids, c->ids, n * sizeof(*ids)) != 0)
            fail_msg("'%s': %zu ids, first %u", c->text, n, n > 0 ? (unsigned)ids[0] : 0);
    }
    tok_enc_free(enc);
    tok_free(tok);
}

static void
decodes(const char *json, const uint32_t *ids, size_t n, bool skip, const char *want)
{
    struct tok *tok = load(json);
    struct dtk d;
    uint8_t out[256];
    size_t at = 0;

    dtk_init(&d, tok, skip);
    for (size_t i = 0; i < n; i++)
        at += dtk_push(&d, ids[i], out + at, sizeof(out) - at);
    at += dtk_finish(&d, out + at, sizeof(out) - at);
    out[at] = '\0';
    assert_string_equal((char *)out, want);
    tok_free(tok);
}

/* Regression: in a BPE of characters without an unknown token, an unknown character
 * vanishes and its neighbours join; they were not joined. */
static void
unknown_leaves_nothing(void **state)
{
    static const struct text_case c = {
        "{\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"model\":{\"type\":\"BPE\","
        "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}",
        "a_b-a __ba+.b", 4, { 2, 0, 1, 2 }
    };

    (void)state;
    encodes(&c);
}

/* Regression: joiners within emoji and Indic text must not split a
 * word for Whitespace, but did. */
static void
joiners(void **state)
{
    static const struct text_case c = {
        "{\"pre_tokenizer\":{\"type\":\"Whitespace\"}," PIECES "}",
        "x\xe2\x80\x8dy x \xe2\x80\x8c.", 4, { 0, 1, 0, 0 }
    };

    (void)state;
    encodes(&c);
}

/* Regression: the format controls of hieroglyphs from Unicode
 * 15 were missing in \p{Cf}. */
static void
newer_controls(void **state)
{
    static const struct text_case c = {
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{Cf}\"},"
        "\"behavior\":\"Removed\",\"invert\":false}," PIECES "}",
        "x\xf0\x93\x90\xb9y\xf0\x93\x90\xbfx", 3, { 1, 2, 1 }
    };

    (void)state;
    encodes(&c);
}

/* Regression: if rstrip consumes all of a following token with lstrip, that token
 * must vanish; it remained. */
static void
stripped_away(void **state)
{
    static const struct text_case c = {
        "{\"added_tokens\":[" ADDED(3, "<m>", ",\"rstrip\":true") "," ADDED(4, "\\n",
            ",\"lstrip\":true") "]," PIECES "}",
        "<m>\n<m>x\ny", 5, { 3, 3, 1, 4, 2 }
    };

    (void)state;
    encodes(&c);
}

/* Regression: with right Strip before Metaspace's "first", a text that
 * begins with a tab got no mark. */
static void
first_behind_strip(void **state)
{
    static const struct text_case c = {
        "{\"normalizer\":{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true},"
        "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\","
        "\"prepend_scheme\":\"first\",\"split\":false},\"model\":{\"type\":\"BPE\","
        "\"vocab\":{\"_\":0,\"\\t\":1,\"a\":2},\"merges\":[]}}",
        "\ta ", 3, { 0, 1, 2 }
    };

    (void)state;
    encodes(&c);
}

/* Regression: a special token that decodes to its normal form is left out if that form is
 * the text of a special token, as in the library. It was always left out, and a token
 * that is not special never was. */
static void
shown_special(void **state)
{
    static const char lower[] =
        "{\"normalizer\":{\"type\":\"Lowercase\"},\"decoder\":{\"type\":\"Fuse\"},"
        "\"added_tokens\":[" ADDED(3, "END", SPECIAL NORMAL) "," ADDED(4, "AB",
            NORMAL) "," ADDED(5, "ab", SPECIAL) "," ADDED(6, "eos",
            SPECIAL NORMAL) "]," PIECES "}";
    static const uint32_t ids[] = { 1, 3, 4, 5, 6, 2 };

    (void)state;
    decodes(lower, ids, 6, false, "xendababeosy");
    decodes(lower, ids, 6, true, "xendy");
}

/* BPEDecoder without a suffix puts a space around each character: refused. */
static void
empty_suffix(void **state)
{
    static const char json[] =
        "{\"decoder\":{\"type\":\"BPEDecoder\",\"suffix\":\"\"}," PIECES "}";
    struct tok *tok = NULL;
    char err[512];

    (void)state;
    assert_int_equal(load_bytes("tokenizer.json", json, strlen(json), &tok, err,
                         sizeof(err)),
        -ENOTSUP);
    assert_non_null(strstr(err, "decoder BPEDecoder: \"suffix\" is empty"));
}

/* Limits the memory of what could take all of it; 0: no limit. Sanitizers need more. */
static void
limit_memory(rlim_t most)
{
#ifndef FDD_SANITIZED
    struct rlimit rl;

    assert_int_equal(getrlimit(RLIMIT_AS, &rl), 0);
    rl.rlim_cur = most != 0 && most < rl.rlim_max ? most : rl.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_AS, &rl), 0);
#else
    (void)most;
#endif
}

/* Regression: with NUL as Metaspace's mark the load did not end, and took all memory. */
static void
nul_mark(void **state)
{
    static const char json[] =
        "{\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\\u0000\","
        "\"prepend_scheme\":\"always\"},\"model\":{\"type\":\"BPE\",\"merges\":[],"
        "\"vocab\":{\"x\\u0000y\":0,\"z\":1}}}";
    static const uint32_t ids[] = { 0, 0, 1 };

    (void)state;
    limit_memory((rlim_t)1 << 29);
    decodes(json, ids, 3, false, "xyx yz");
    limit_memory(0);
}

/* Regression: a token's text was measured after all decoders only, each of which can
 * multiply it: a tokenizer.json of a few KiB took gigabytes. */
static void
growing_decoders(void **state)
{
#define TWICE "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"}"
    char json[8192], a[4097], err[512];
    struct tok *tok = NULL;
    int n;

    (void)state;
    memset(a, 'a', sizeof(a) - 1);
    a[sizeof(a) - 1] = '\0';
    n = snprintf(json, sizeof(json),
        "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" TWICE "," TWICE "," TWICE
        "," TWICE "," TWICE "," TWICE "," TWICE "," TWICE
        "]},\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"%s\":0}}}",
        a);
    assert_int_equal(load_bytes("tokenizer.json", json, (size_t)n, &tok, err, sizeof(err)),
        -EINVAL);
    /* the fourth of eight decoders is the last that is applied */
    if (strstr(err, "decoder makes 65536 bytes of the token of id 0") == NULL)
        fail_msg("%s", err);
#undef TWICE
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_leaves_nothing),
        cmocka_unit_test(joiners),
        cmocka_unit_test(newer_controls),
        cmocka_unit_test(stripped_away),
        cmocka_unit_test(first_behind_strip),
        cmocka_unit_test(shown_special),
        cmocka_unit_test(empty_suffix),
        cmocka_unit_test(nul_mark),
        cmocka_unit_test(growing_decoders),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
