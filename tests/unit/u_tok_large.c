/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Vocabularies and merges with many entries: what is read or refused, and the cost. */
#include "config.h"

#include "daemon/worker/tokenizer.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/tok_fixture.h"

#define HEAD \
    "{\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\"," \
    "\"add_prefix_space\":false,\"use_regex\":false},\"model\":{\"type\":\"BPE\",\n"
#define LETTERS 26u
#define TWOS    (LETTERS * LETTERS)

/*
 * Makes a file of all tokens of two letters, with ids in alphabetical order, then the
 * letters. Merge i makes token i, or the i-th from the end; `bad` replaces merge `at`.
 * Each merge is one line, the first is line 3.
 */
static char *
twos_file(bool backwards, unsigned at, const char *bad, const char *tail, size_t *ret_n)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, ret_n);

    assert_non_null(f);
    fputs(HEAD "\"vocab\":{", f);
    for (unsigned i = 0; i < TWOS; i++)
        fprintf(f, "\"%c%c\":%u,", 'a' + i / LETTERS, 'a' + i % LETTERS, i);
    for (unsigned i = 0; i < LETTERS; i++)
        fprintf(f, "%s\"%c\":%u", i ? "," : "", 'a' + i, TWOS + i);
    fputs("},\"merges\":[", f);
    for (unsigned i = 0; i < TWOS; i++) {
        unsigned k = backwards ? TWOS - 1 - i : i;

        fputs(i ? ",\n" : "\n", f);
        if (i == at)
            fputs(bad, f);
        else
            fprintf(f, "\"%c %c\"", 'a' + k / LETTERS, 'a' + k % LETTERS);
    }
    fprintf(f, "]%s}", tail);
    fclose(f);
    return text;
}

static void
all_entered(void **state)
{
    char err[512], *text, two[2];
    const uint32_t *ids;
    size_t n;

    (void)state;
    for (int backwards = 0; backwards < 2; backwards++) {
        struct tok *tok = NULL;
        struct tok_enc *enc;

        text = twos_file(backwards, TWOS, "", "}", &n);
        if (load_bytes("tokenizer.json", text, n, &tok, err, sizeof(err)) != 0)
            fail_msg("%s", err);
        free(text);
        enc = tok_enc_new(tok);
        assert_non_null(enc);
        for (unsigned i = 0; i < TWOS; i++) {
            two[0] = (char)('a' + i / LETTERS);
            two[1] = (char)('a' + i % LETTERS);
            assert_int_equal(encode(enc, two, 2, 0, 100), 1);
            ids = tok_enc_ids(enc, &n);
            assert_int_equal(n, 1);
            assert_int_equal(ids[0], i);
        }
        /* The merge of lower rank comes first: "ab" or "za". */
        assert_int_equal(encode(enc, "zab", 3, 0, 100), 1);
        ids = tok_enc_ids(enc, &n);
        assert_int_equal(n, 2);
        assert_int_equal(ids[1], backwards ? TWOS + 1 : 1);
        (void)tok_enc_free(enc);
        (void)tok_free(tok);
    }
}

/* The first wrong merge is named, wherever it is. */
static void
wrong_merge(void **state)
{
    static const struct {
        unsigned at;
        const char *bad, *tail, *says;
    } rows[] = {
        { 40, "\"a 1\"", "}", "merge 40 (\"a\" and \"1\"): a side or the result is not" },
        { 40, "\"a 1\",\"ab\"", "}", "merge 40 (\"a\" and \"1\"): a side or the result" },
        { 40, "\"a b\",\"ab\"", "}", "merge 41 is not \"a b\" or" },
        { 63, "[\"a\"]", "}", "merge 63 is not \"a b\" or" },
        { 64, "[\"a\",\"ab\"]", "}", "merge 64 (\"a\" and \"ab\"): a side or the result" },
        { 675, "7", "}", "merge 675 is not \"a b\" or" },
        { 3, "\"a b\"", "},\n\"x\":1,\n\"x\":2", "line 680 column 3: duplicate" },
    };
    char err[512], *text;
    struct tok *tok = NULL;
    size_t n;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        text = twos_file(false, rows[i].at, rows[i].bad, rows[i].tail, &n);
        assert_int_equal(load_bytes("tokenizer.json", text, n, &tok, err, sizeof(err)),
            -EINVAL);
        if (strstr(err, rows[i].says) == NULL)
            fail_msg("row %zu: %s", i, err);
        free(text);
    }
}

#ifndef FDD_SANITIZED

/* Peak of the resident memory since the last reset, in bytes. */
static size_t
highest(bool reset)
{
    char line[128];
    size_t kb = 0;
    FILE *f;
    int fd = reset ? open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC) : -1;

    if (fd >= 0) {
        assert_int_equal(write(fd, "5", 1), 1);
        close(fd);
    }
    f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "VmHWM: %zu", &kb) == 1)
            break;
    fclose(f);
    assert_true(kb > 0);
    return kb << 10;
}

/* 100 MB of vocabulary need a small multiple of that in memory, and
 * a few seconds of CPU time. */
static void
hundred_megabytes(void **state)
{
    char path[] = "/tmp/u_tok_large.XXXXXX", err[512] = "";
    unsigned n = 1000000, size = 88;
    struct tok *tok = NULL;
    uint64_t seed = 1;
    size_t before;
    clock_t begun;
    FILE *f = fdopen(mkstemp(path), "w");
    int rc;

    (void)state;
    assert_non_null(f);
    fputs(HEAD "\"merges\":[],\"vocab\":{", f);
    for (unsigned i = 0; i < n; i++) {
        char name[128];

        for (unsigned k = 0; k < size; k += 8) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            snprintf(name + k, 9, "%08x", (unsigned)(seed >> 32));
        }
        fprintf(f, "%s\"%s\":%u", i ? ",\n" : "", name, i);
    }
    fputs("}}}", f);
    assert_true(ftell(f) > 95000000);
    fclose(f);
    before = highest(true);
    begun = clock();
    rc = tok_load(path, &tok, err, sizeof(err));
    unlink(path);
    if (rc != 0)
        fail_msg("%s", err);
    assert_int_equal(tok_vocab_size(tok), n);
    assert_true((double)(clock() - begun) / CLOCKS_PER_SEC < 10);
    assert_true(highest(false) - before < (size_t)400 << 20);
    (void)tok_free(tok);
}

#endif

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_entered),
        cmocka_unit_test(wrong_merge),
#ifndef FDD_SANITIZED
        cmocka_unit_test(hundred_megabytes),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
