/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tokenizer tests. Include cmocka.h first. */
#ifndef FDD_TESTS_TOK_FIXTURE_H
#define FDD_TESTS_TOK_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/worker/tokenizer.h"

/* Path of tests/parity/tok/<kind><tail>. */
static inline void
data_path(char *out, size_t n, const char *kind, const char *tail)
{
    const char *top = getenv("FDD_SRC"), *dir = top ? top : getenv("srcdir");

    assert_in_range(snprintf(out, n, "%s/tests/parity/tok/%s%s", dir ? dir : ".", kind, tail),
        1, n - 1);
}

/* Encodes the whole text, step bytes at a time. Returns 0 or -errno. */
static inline int
encode(struct tok_enc *enc, const char *text, size_t n, unsigned flags, size_t step)
{
    int rc = tok_enc_begin(enc, text, n, flags);

    while (!rc)
        rc = tok_enc_step(enc, step);
    return rc;
}

/* Writes bytes to a file of this name in a new folder, loads a tokenizer from
 * the folder and removes it. */
static inline int
load_bytes(const char *name, const void *bytes, size_t n, struct tok **ret, char *err,
    size_t err_bytes)
{
    char dir[] = "/tmp/u_tokenizer.XXXXXX", path[64];
    FILE *f;
    int rc;

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    err[0] = 0;
    rc = tok_load(dir, ret, err, err_bytes);
    unlink(path);
    rmdir(dir);
    return rc;
}

#endif
