/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake machine for the tests of fdctl doctor: files below a folder, system calls and
 * libraries with results that the test sets. There is one for each program; main() wraps
 * every test in T().
 */
#ifndef FDD_TESTS_UNIT_DOCTOR_FIXTURE_H
#define FDD_TESTS_UNIT_DOCTOR_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/fdctl/doctor/doctor.h"

static char root[512];
static struct doc d;
static struct fct conn;
static struct par_set *ps;
static struct doc_uring uring;
static int pidfd_rc, libs; /* libs: bits, 1 libcuda, 2 cublasLt 12 */

static inline void
try_uring(struct doc_uring *ret)
{
    *ret = uring;
}

static inline int
try_pidfd(void)
{
    return pidfd_rc;
}

static inline int
try_fine(void)
{
    return 0;
}

static inline int
try_lib(const char *name)
{
    if (strcmp(name, "libcuda.so.1") == 0)
        return (libs & 1) != 0 ? 0 : -ENOENT;
    return strcmp(name, "libcublasLt.so.12") == 0 && (libs & 2) != 0 ? 0 : -ENOENT;
}

static const struct doc_tries tries = {
    .uring = try_uring, .pidfd = try_pidfd, .memfd = try_fine, .futex = try_fine, .lib = try_lib
};

static inline void
put_n(const char *path, const char *text, size_t n)
{
    char full[1024];
    FILE *f;

    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        (void)mkdir(full, 0755);
        *p = '/';
    }
    f = fopen(full, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

static inline void
put(const char *path, const char *text)
{
    put_n(path, text, strlen(text));
}

static inline int
setup(void **state)
{
    const char *tmp = getenv("TMPDIR");

    (void)state;
    snprintf(root, sizeof(root), "%s/u_doctor.XXXXXX", tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(root));
    memset(&conn, 0, sizeof(conn));
    strcpy(conn.dir, "/run/fdd");
    strcpy(conn.socket, "/run/fdd/fdd.sock");
    strcpy(conn.admin, "/run/fdd/admin.sock");
    memset(&uring, 0, sizeof(uring));
    pidfd_rc = 0;
    libs = 3;
    ps = par_new();
    d = (struct doc){ .root = root,
        .tries = &tries,
        .f = &conn,
        .par = par_get(ps),
        .par_from = "the test",
        .uid = geteuid(),
        .kernel = "6.1.0-18-amd64",
        .machine = "x86_64",
        .checks = json_array(),
        .group = "test" };
    unsetenv("FDD_CUBLASLT");
    return 0;
}

static inline int
teardown(void **state)
{
    char cmd[600];

    (void)state;
    json_decref(d.checks);
    par_free(ps);
    snprintf(cmd, sizeof(cmd), "rm -rf '%s'", root);
    return system(cmd);
}

static inline const json_t *
find(const char *name)
{
    for (size_t i = 0; i < json_array_size(d.checks); i++) {
        const json_t *c = json_array_get(d.checks, i);

        if (strcmp(json_string_value(json_object_get(c, "name")), name) == 0)
            return c;
    }
    print_error("no check '%s' in %s\n", name, json_dumps(d.checks, JSON_INDENT(1)));
    fail();
    return NULL;
}

static inline const char *
get(const char *name, const char *key)
{
    return json_string_value(json_object_get(find(name), key));
}

/* Checks one result: its state, a substring of its value, and a substring of its fix;
 * NULL: it must have no fix. */
static inline void
is(const char *name, const char *state, const char *value, const char *fix)
{
    assert_string_equal(get(name, "state"), state);
    if (strstr(get(name, "value"), value) == NULL) {
        print_error("%s: '%s' is not in '%s'\n", name, value, get(name, "value"));
        fail();
    }
    if (fix == NULL) {
        assert_string_equal(get(name, "fix"), "");
    } else if (strstr(get(name, "fix"), fix) == NULL) {
        print_error("%s: '%s' is not in '%s'\n", name, fix, get(name, "fix"));
        fail();
    }
}

/* Checks that a result has a fix if and only if its state is not ok. */
static inline void
all_have_fixes(void)
{
    for (size_t i = 0; i < json_array_size(d.checks); i++) {
        const json_t *c = json_array_get(d.checks, i);
        const char *st = json_string_value(json_object_get(c, "state"));
        const char *fix = json_string_value(json_object_get(c, "fix"));

        assert_int_equal(strcmp(st, "ok") == 0, fix[0] == '\0');
        assert_true(json_string_value(json_object_get(c, "value"))[0] != '\0');
    }
}

static inline void
run(const char *group)
{
    size_t i = 0;

    while (strcmp(doc_group_name(i), group) != 0)
        i++;
    json_array_clear(d.checks);
    doc_run(&d, i);
    all_have_fixes();
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
