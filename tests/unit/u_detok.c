/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Incremental detokenization compared with the reference's decoding of whole sequences
 * (tests/parity/tok) and, for random bytes, with a simple form of the replacement rule.
 */
#include "config.h"

#include "daemon/worker/detok.h"
#include "daemon/worker/tokenizer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_TEXT 65536

static const char *const kinds[] = { "gpt2", "gpt2-prefix", "llama3", "qwen2", "mixed",
    "spm-llama", "spm-gemma", "spm-first", "unigram-t5", "unigram-xlmr", "unigram-bytes",
    "bert", "bert-cased", "falcon", "suffix-bpe", "prefix-bpe" };

static struct tok *
load(const char *kind, char *path, size_t n)
{
    const char *top = getenv("FDD_SRC"), *dir = top ? top : getenv("srcdir");
    struct tok *tok = NULL;
    char err[512] = "";

    assert_in_range(snprintf(path, n, "%s/tests/parity/tok/%s", dir ? dir : ".", kind), 1,
        n - 5);
    if (tok_load(path, &tok, err, sizeof(err)))
        fail_msg("%s", err);
    strcat(path, ".vec");
    return tok;
}

/* Returns whether s is valid UTF-8; its last character may be incomplete. */
static bool
whole_characters(const uint8_t *s, size_t n)
{
    size_t i, len;

    for (i = 0; i < n; i += len) {
        len = s[i] < 0x80 ? 1 : s[i] < 0xe0 ? 2 : s[i] < 0xf0 ? 3 : 4;
        if ((s[i] & 0xc0) == 0x80 || n - i < len)
            return false;
    }
    return true;
}

static size_t
decode(struct dtk *d, const struct tok *tok, const char *list, uint8_t *out)
{
    size_t at = 0, n, max = dtk_max_bytes(tok);
    uint8_t *one = malloc(max);
    char *end;

    while (*list && *list != '-') {
        uint32_t id = (uint32_t)strtoul(list, &end, 10);

        n = dtk_push(d, id, one, max);
        assert_true(n <= max && at + n < MAX_TEXT);
        assert_true(whole_characters(one, n));
        memcpy(out + at, one, n);
        at += n;
        list = *end == ',' ? end + 1 : end;
    }
    n = dtk_finish(d, one, max);
    assert_true(n <= max && whole_characters(one, n));
    memcpy(out + at, one, n);
    free(one);
    return at + n;
}

static void
vectors(void **state)
{
    char path[4096], *line = NULL;
    uint8_t *want = malloc(MAX_TEXT), *got = malloc(MAX_TEXT);
    size_t cap = 0, k, n, i, done;
    ssize_t len;

    (void)state;
    for (k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        struct tok *tok = load(kinds[k], path, sizeof(path));
        FILE *f = fopen(path, "r");
        unsigned at = 0;
        struct dtk d;

        assert_non_null(f);
        for (done = 0; (len = getline(&line, &cap, f)) > 0;) {
            char *word[4], *save = NULL;

            at++;
            line[len - 1] = 0;
            for (i = 0; i < 4; i++)
                word[i] = strtok_r(i ? NULL : line, " ", &save);
            if (*word[0] != 'd')
                continue;
            dtk_init(&d, tok, *word[1] == '1');
            n = decode(&d, tok, word[2], got);
            for (i = 0; word[3][0] != '-' && word[3][2 * i]; i++) {
                unsigned byte;
                assert_int_equal(sscanf(word[3] + 2 * i, "%2x", &byte), 1);
                want[i] = (uint8_t)byte;
            }
            if (n != i || memcmp(want, got, n))
                fail_msg("%s line %u: decoded otherwise", path, at);
            done++;
        }
        assert_true(done > 100);
        fclose(f);
        tok_free(tok);
    }
    free(line);
    free(want);
    free(got);
}

/*
 * The replacement rule applied to a whole text: at each invalid place the longest prefix
 * of a character, or else one byte, becomes one replacement mark.
 */
static size_t
lossy(const uint8_t *s, size_t n, uint8_t *out)
{
    static const uint8_t table[][5] = {
        /* first low, first high, second low, second high, length */
        { 0x00, 0x7f, 0, 0, 1 },
        { 0xc2, 0xdf, 0x80, 0xbf, 2 },
        { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
        { 0xe1, 0xec, 0x80, 0xbf, 3 },
        { 0xed, 0xed, 0x80, 0x9f, 3 },
        { 0xee, 0xef, 0x80, 0xbf, 3 },
        { 0xf0, 0xf0, 0x90, 0xbf, 4 },
        { 0xf1, 0xf3, 0x80, 0xbf, 4 },
        { 0xf4, 0xf4, 0x80, 0x8f, 4 },
    };
    size_t i = 0, k = 0, len, r;

    while (i < n) {
        for (r = 0; r < 9 && (s[i] < table[r][0] || s[i] > table[r][1]); r++)
            ;
        len = 1;
        if (r < 9 && table[r][4] > 1 && i + 1 < n && s[i + 1] >= table[r][2] &&
            s[i + 1] <= table[r][3])
            for (len = 2; len < table[r][4] && i + len < n; len++)
                if ((s[i + len] & 0xc0) != 0x80)
                    break;
        if (r < 9 && len == table[r][4]) {
            memcpy(out + k, s + i, len);
            k += len;
        } else {
            memcpy(out + k, "\xef\xbf\xbd", 3);
            k += 3;
        }
        i += len;
    }
    return k;
}

static void
random_bytes(void **state)
{
    static const uint8_t pool[] = { 'a', 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc2,
        0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff };
    char path[4096];
    struct tok *tok = load("llama3", path, sizeof(path));
    uint8_t raw[24], want[80], got[80], one[64];
    uint32_t id[256];
    unsigned b, round, i, n;
    struct dtk d;

    (void)state;
    for (b = 0; b < 256; b++) {
        char c = (char)b;
        int found = tok_token_id(tok, &c, 1);
        assert_true(found >= 0);
        id[b] = (uint32_t)found;
    }
    srandom(5);
    dtk_init(&d, tok, false);
    for (round = 0; round < 50000; round++) {
        size_t at = 0, len;

        n = (unsigned)random() % sizeof(raw);
        for (i = 0; i < n; i++) {
            raw[i] = pool[(unsigned)random() % sizeof(pool)];
            len = dtk_push(&d, id[raw[i]], one, 6);
            assert_true(len <= 6);
            memcpy(got + at, one, len);
            at += len;
        }
        at += dtk_finish(&d, got + at, 3);
        assert_int_equal(at, lossy(raw, n, want));
        assert_memory_equal(got, want, at);
    }
    tok_free(tok);
}

static void
limits(void **state)
{
    char path[4096];
    struct tok *tok = load("qwen2", path, sizeof(path));
    uint32_t a = (uint32_t)tok_token_id(tok, "a", 1);
    uint32_t lead = (uint32_t)tok_token_id(tok, "\xe4", 1);
    uint32_t mid = (uint32_t)tok_token_id(tok, "\xb8", 1);
    uint32_t end = (uint32_t)tok_token_id(tok, "<|im_end|>", 10);
    uint8_t out[64];
    struct dtk d;

    (void)state;
    dtk_init(&d, tok, true);
    assert_int_equal(dtk_push(&d, end, out, 0), 0);
    assert_int_equal(dtk_push(&d, UINT32_MAX, out, 0), 0);
    assert_int_equal(dtk_push(&d, a, out, 5), DTK_NO_SPACE);
    assert_int_equal(dtk_push(&d, a, out, 6), 1);
    assert_int_equal(dtk_push(&d, lead, out, sizeof(out)), 0);
    /* Passing over ids without output keeps an unfinished character. */
    assert_int_equal(dtk_push(&d, mid, NULL, 0), 0);
    assert_int_equal(dtk_push(&d, (uint32_t)tok_token_id(tok, "\xad", 1), out, 6), 3);
    assert_memory_equal(out, "\xe4\xb8\xad", 3);
    assert_int_equal(dtk_push(&d, lead, out, 6), 0);
    assert_int_equal(dtk_finish(&d, out, 2), DTK_NO_SPACE);
    assert_int_equal(dtk_finish(&d, out, 3), 3);
    assert_memory_equal(out, "\xef\xbf\xbd", 3);
    assert_int_equal(dtk_finish(&d, out, 3), 0);
    dtk_init(&d, tok, false);
    assert_int_equal(dtk_push(&d, end, out, sizeof(out)), 10);
    tok_free(tok);
}

static size_t
push_all(struct dtk *d, const struct tok *tok, const char *const *names, size_t n, char *out)
{
    size_t at = 0, i;

    for (i = 0; i < n; i++) {
        int id = tok_token_id(tok, names[i], strlen(names[i]));

        assert_true(id >= 0);
        at += dtk_push(d, (uint32_t)id, (uint8_t *)out + at, MAX_TEXT - at);
    }
    return at;
}

/* The space before the first token is removed at the beginning of a
 * text, but not after a prompt. */
static void
resumed(void **state)
{
    static const char *const first[] = { "\xe2\x96\x81the" }, *const begin[] = { "<s>" };
    char path[4096], *out = malloc(MAX_TEXT);
    struct tok *tok = load("spm-llama", path, sizeof(path));
    uint32_t the = (uint32_t)tok_token_id(tok, first[0], 6);
    uint32_t bos = (uint32_t)tok_token_id(tok, begin[0], 3);
    struct dtk d;

    (void)state;
    dtk_init(&d, tok, true);
    assert_int_equal(push_all(&d, tok, first, 1, out), 3);
    dtk_init(&d, tok, true);
    dtk_resume(&d, &bos, 1);
    assert_int_equal(push_all(&d, tok, first, 1, out), 3);
    dtk_init(&d, tok, true);
    dtk_resume(&d, (uint32_t[]){ bos, the, bos }, 3);
    assert_int_equal(push_all(&d, tok, first, 1, out), 4);
    assert_memory_equal(out, " the", 4);
    dtk_init(&d, tok, false);
    dtk_resume(&d, &bos, 1);
    assert_int_equal(push_all(&d, tok, first, 1, out), 4);
    tok_free(tok);
    free(out);
}

/* A run of byte tokens is output when it ends or gets long; every byte once. */
static void
runs(void **state)
{
    static const char *const snow[] = { "<0xE2>", "<0x98>", "<0x83>" }, *const a[] = { "a" },
                             *const bad[] = { "<0xE2>", "<0x98>", "<0xFF>" };
    char path[4096], *out = malloc(MAX_TEXT);
    struct tok *tok = load("spm-llama", path, sizeof(path));
    struct dtk d;
    size_t at, i, n;

    (void)state;
    dtk_init(&d, tok, false);
    for (i = at = 0; i < 400; i++) {
        n = push_all(&d, tok, snow, 3, out + at);
        assert_true(n % 3 == 0);
        at += n;
        if (i == 10)
            assert_int_equal(at, 0);
    }
    assert_true(at > 3 * 400 - DTK_RUN - 3);
    at += push_all(&d, tok, a, 1, out + at);
    assert_int_equal(at, 3 * 400 + 1);
    for (i = 0; i < 400; i++)
        assert_memory_equal(out + 3 * i, "\xe2\x98\x83", 3);
    /* one invalid byte, and the whole run is replaced */
    at = push_all(&d, tok, snow, 3, out);
    at += push_all(&d, tok, bad, 3, out + at);
    at += push_all(&d, tok, snow, 2, out + at);
    assert_int_equal(at, 3 * 8);
    for (i = 0; i < 8; i++)
        assert_memory_equal(out + 3 * i, "\xef\xbf\xbd", 3);
    assert_int_equal(push_all(&d, tok, a, 1, out), 1);
    tok_free(tok);
    free(out);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors),
        cmocka_unit_test(random_bytes),
        cmocka_unit_test(limits),
        cmocka_unit_test(resumed),
        cmocka_unit_test(runs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
