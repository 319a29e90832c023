/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Normal forms of Hangul compared with Python's unicodedata: tests/parity/tok/hangul.vec,
 * made by tools/dev/dump_hangul_vectors.py. Charsmaps compared with their definition.
 */
#include "config.h"

#include "daemon/common/text.h"
#include "daemon/worker/tokenizer_priv.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Converts hexadecimal characters joined by "+" to UTF-8. */
static size_t
text_of(const char *s, uint8_t *out)
{
    size_t n = 0;
    char *end;

    for (;; s = end + 1) {
        n += txt_put((uint32_t)strtoul(s, &end, 16), out + n);
        if (*end != '+')
            return n;
    }
}

static void
check(enum tok_norm_kind kind, const char *in, const char *want, unsigned line)
{
    const struct tok_norm norm = { .op = { { .kind = kind } }, .n_ops = 1 };
    struct tok_norm_run run = { 0 };
    struct tok_buf out = { 0 };
    uint8_t a[256], b[256];
    size_t n = text_of(in, a), n_want = text_of(want, b);

    assert_int_equal(tok_norm_apply(&norm, &run, a, n, &out), 0);
    if (out.n != n_want || memcmp(out.p, b, n_want) != 0)
        fail_msg("hangul.vec line %u: form %d of %s is not %s but %.*s", line, (int)kind,
            in, want, (int)out.n, (const char *)out.p);
    tok_buf_fini(&out);
    tok_norm_run_fini(&run);
}

/* Regression: NFC and NFKC lost U+11A7 after a syllable of two letters. */
static void
hangul(void **state)
{
    static const enum tok_norm_kind forms[] = { TOK_NORM_NFC, TOK_NORM_NFD, TOK_NORM_NFKC,
        TOK_NORM_NFKD };
    const char *top = getenv("FDD_SRC"), *dir = top ? top : getenv("srcdir");
    char path[4096], *line = NULL, *save = NULL, in[64];
    unsigned at = 0, n_lv = 0, n_text = 0;
    size_t cap = 0;
    FILE *f;

    (void)state;
    snprintf(path, sizeof(path), "%s/tests/parity/tok/hangul.vec", dir ? dir : ".");
    f = fopen(path, "r");
    assert_non_null(f);
    while (getline(&line, &cap, f) > 0) {
        char *kind = strtok_r(line, " \n", &save), *first = strtok_r(NULL, " \n", &save);

        at++;
        assert_non_null(first);
        if (strcmp(kind, "lv") == 0) {
            for (unsigned t = 0x11a7; t < 0x11c4; t++) {
                char *want = strtok_r(NULL, ",\n", &save);

                assert_non_null(want);
                snprintf(in, sizeof(in), "%s+%x", first, t);
                check(TOK_NORM_NFC, in, want, at);
                check(TOK_NORM_NFKC, in, want, at);
            }
            n_lv++;
            continue;
        }
        for (int i = 0; i < 4; i++) {
            char *want = strtok_r(NULL, " \n", &save);

            assert_non_null(want);
            check(forms[i], first, want, at);
        }
        n_text++;
    }
    assert_int_equal(n_lv, 399);
    assert_int_equal(n_text, 400);
    free(line);
    fclose(f);
}

/* ---- charsmaps ---- */

#define CELLS 1024u

/* Adds an edge to a new node of a double array. Returns the node's cell. */
static uint32_t
edge(uint32_t *cell, uint32_t node, uint8_t c, uint32_t to, int text)
{
    cell[node ^ c] = c | ((to ^ node ^ c) << 10) | (text >= 0 ? 1u << 8 : 0);
    if (text >= 0)
        cell[to] = 0x80000000u | (uint32_t)text;
    return to;
}

/* Makes a charsmap of CELLS cells and n bytes of texts. */
static void
init_map(struct tok_charsmap *map, const uint32_t *cell, const char *text, size_t n)
{
    size_t bytes = 4 + 4 * CELLS + n;
    uint8_t *blob = malloc(bytes);
    const char *why = "";

    assert_non_null(blob);
    blob[0] = blob[2] = blob[3] = 0;
    blob[1] = 4 * CELLS >> 8;
    for (uint32_t i = 0; i < 4 * CELLS; i++)
        blob[4 + i] = (uint8_t)(cell[i / 4] >> 8 * (i % 4));
    memcpy(blob + 4 + 4 * CELLS, text, n);
    if (tok_charsmap_init(map, blob, bytes, &why) != 0)
        fail_msg("%s", why);
    free(blob);
}

/* "ab" becomes "X", "Q" becomes "q", "e" and an accent one character, "Z" nothing. */
static void
make_map(struct tok_charsmap *map)
{
    static const char text[] = "X\0q\0\xc3\xa9";
    uint32_t cell[CELLS] = { 0 }, root = 256, node;

    cell[0] = root << 10;
    node = edge(cell, root, 'a', 512, -1);
    edge(cell, node, 'b', 514, 0);
    edge(cell, root, 'Q', 516, 2);
    edge(cell, root, 'Z', 524, 1);
    node = edge(cell, root, 'e', 768, -1);
    node = edge(cell, node, 0xcc, 520, -1);
    edge(cell, node, 0x81, 522, 4);
    init_map(map, cell, text, sizeof(text));
}

static void
map_as(struct tok_norm_op *op, const char *in, const char *want)
{
    const struct tok_norm norm = { .op = { *op }, .n_ops = 1 };
    struct tok_norm_run run = { 0 };
    struct tok_buf out = { 0 };

    assert_int_equal(tok_norm_apply(&norm, &run, (const uint8_t *)in, strlen(in), &out), 0);
    if (out.n != strlen(want) || memcmp(out.p, want, out.n) != 0)
        fail_msg("form %d of %s is not %s but %.*s", (int)op->kind, in, want, (int)out.n,
            (const char *)out.p);
    tok_buf_fini(&out);
    tok_norm_run_fini(&run);
}

/* SentencePiece takes the longest entry, the Precompiled
 * normalizer an entry for a grapheme. */
static void
charsmap(void **state)
{
    struct tok_norm_op op = { .kind = TOK_NORM_PRECOMPILED };

    (void)state;
    make_map(&op.map);
    map_as(&op, "cab ab Q", "cab ab q");
    map_as(&op,
        "eee\xcc\x81"
        "e aQbQ",
        "ee\xc3\xa9"
        "e aqbq");
    map_as(&op,
        "a\xcc\x81"
        "bQ\r\nQ",
        "a\xcc\x81"
        "bq\r\nq");
    op.kind = TOK_NORM_SENTENCEPIECE;
    map_as(&op, "cab ab Q", "cX X q");
    map_as(&op,
        "eee\xcc\x81"
        "e aQbQ",
        "ee\xc3\xa9"
        "e aqbq");
    map_as(&op, "aab bba a", "aX bba a");
    /* A text that becomes empty keeps the prefix. */
    op.dummy_prefix = true;
    map_as(&op, "ZZ", " ");
    map_as(&op, "ZaZ", " a");
    map_as(&op, "", "");
    op.one_space = true;
    map_as(&op, "ZZ", "");
    tok_charsmap_fini(&op.map);
}

/* Regression: a text was measured after each grapheme only. One letter with many accents,
 * each with a long entry, took gigabytes. */
static void
long_grapheme(void **state)
{
    enum { N_TEXT = 100000, N_ACCENT = 500 };
    uint32_t cell[CELLS] = { 0 }, root = 256, node;
    struct tok_norm norm = { .op = { { .kind = TOK_NORM_PRECOMPILED } }, .n_ops = 1 };
    char *text = malloc(N_TEXT + 1), in[1 + 2 * N_ACCENT] = "e";
    struct tok_norm_run run = { 0 };
    struct tok_buf out = { 0 };

    (void)state;
    assert_non_null(text);
    memset(text, 'x', N_TEXT);
    text[N_TEXT] = '\0';
    cell[0] = root << 10;
    node = edge(cell, root, 0xcc, 520, -1);
    edge(cell, node, 0x81, 522, 0);
    init_map(&norm.op[0].map, cell, text, N_TEXT + 1);
    for (int i = 0; i < N_ACCENT; i++)
        memcpy(in + 1 + 2 * i, "\xcc\x81", 2);
    assert_int_equal(tok_norm_apply(&norm, &run, (const uint8_t *)in, sizeof(in), &out),
        -E2BIG);
    assert_in_range(out.n, TOK_NORM_LIMIT(sizeof(in)), TOK_NORM_LIMIT(sizeof(in)) + N_TEXT);
    tok_buf_fini(&out);
    tok_norm_run_fini(&run);
    tok_norm_fini(&norm);
    free(text);
}

int
main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(hangul),
        cmocka_unit_test(charsmap), cmocka_unit_test(long_grapheme) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
