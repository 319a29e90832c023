/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader of tokenizer.json under valgrind, which reports branches on uninitialized
 * variables. Compiled without optimization, which can hide such branches.
 */
#pragma GCC optimize("O0")
#include "config.h"

/* Replaces the library's function. */
#include "daemon/worker/tokenizer_load.c"
#include "daemon/worker/tokenizer_load_pre.c"
#include "daemon/worker/tokenizer_added.c"

#include <setjmp.h>

#include <cmocka.h>

#define BYTES "{\"type\":\"ByteLevel\"}"
#define FILE_OF(pre, added) \
    "{\"version\":\"1.0\",\"pre_tokenizer\":" pre ",\"decoder\":" BYTES \
    ",\"added_tokens\":" added ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}," \
    "\"merges\":[]}}"
#define SPLIT(invert) \
    "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"}," \
    "\"behavior\":\"Isolated\",\"invert\":" invert "}"

static const struct refusal {
    const char *json, *says;
} refusals[] = {
    { FILE_OF("{\"type\":\"Digits\",\"individual_digits\":3}", "[]"),
        "Digits: \"individual_digits\" is not true or false" },
    { FILE_OF("{\"type\":\"ByteLevel\",\"use_regex\":\"x\"}", "[]"),
        "ByteLevel: \"use_regex\" is not true or false" },
    { FILE_OF("{\"type\":\"ByteLevel\",\"add_prefix_space\":1}", "[]"),
        "ByteLevel: \"add_prefix_space\" is not true or false" },
    { FILE_OF(SPLIT("1"), "[]"), "Split: \"invert\" is not true or false" },
    { FILE_OF(BYTES, "[{\"id\":1,\"content\":\"x\",\"special\":1}]"),
        "\"special\" is not true or false" },
};

/* Regression: fdd-worker read an uninitialized variable if "individual_digits" of
 * tokenizer.json was neither true nor false. */
static void
refused_booleans(void **state)
{
    char path[] = "/tmp/u_tok_unset.XXXXXX", err[512];

    (void)state;
    close(mkstemp(path));
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct tok *tok = NULL;
        FILE *f = fopen(path, "w");

        assert_non_null(f);
        fputs(refusals[i].json, f);
        fclose(f);
        assert_int_equal(tok_load(path, &tok, err, sizeof(err)), -EINVAL);
        if (!strstr(err, refusals[i].says))
            fail_msg("case %zu: %s", i, err);
    }
    unlink(path);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(refused_booleans) };
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    (void)argv;
#ifdef FDD_SANITIZED
    puts("skipped: valgrind does not run what a sanitizer is in");
    return 77;
#endif
    if (argc > 1)
        return cmocka_run_group_tests(tests, NULL, NULL);
    self[n > 0 ? n : 0] = 0;
    execlp("valgrind", "valgrind", "-q", "--error-exitcode=99", self, "inside",
        (char *)NULL);
    puts("skipped: no valgrind here");
    return 77;
}
