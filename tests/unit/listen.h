/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Captures what a call prints on standard error. Include it after cmocka.h.
 */
#ifndef FDD_TESTS_UNIT_LISTEN_H
#define FDD_TESTS_UNIT_LISTEN_H

#include <stdio.h>
#include <unistd.h>

static char said[4096];
static int saved_stderr;

static void
listen_begin(void)
{
    FILE *f = tmpfile();

    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    assert_non_null(f);
    dup2(fileno(f), STDERR_FILENO);
    fclose(f);
}

static const char *
listen_end(void)
{
    ssize_t n;

    fflush(stderr);
    n = pread(STDERR_FILENO, said, sizeof(said) - 1, 0);
    said[n > 0 ? n : 0] = '\0';
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    return said;
}

#define SAYS(call, code, text) \
    do { \
        int rc_; \
        listen_begin(); \
        rc_ = (call); \
        assert_string_equal(listen_end(), text); \
        assert_int_equal(rc_, code); \
    } while (0)

#endif
