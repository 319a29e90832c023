/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Which worker program the gate starts: the one with CUDA, a package of its own, is
 * preferred where a GPU may be used. The search begins at the folder of the running
 * program, so this program copies itself into an installed tree and runs there.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/param.h"
#include "daemon/gate/supervise.h"

/* When run as a copy: prints the program found, or the error number. */
static int
probe(const char *backend, const char *worker)
{
    struct par_set *ps = par_new();
    char at[PAR_STR_BYTES * 2], *real;
    int rc;

    if (par_set_text(ps, "device.backend", backend, PAR_FROM_SET, at, sizeof(at)) != 0 ||
        par_set_text(ps, "daemon.worker", worker, PAR_FROM_SET, at, sizeof(at)) != 0)
        return 1;
    rc = sup_find_worker(par_get(ps), at, sizeof(at));
    real = rc == 0 ? realpath(at, NULL) : NULL;
    (void)printf("%d %s\n", rc, real != NULL ? real : "-");
    free(real);
    par_free(ps);
    return 0;
}

struct tree {
    char dir[64]; /* sbin/fdd and libexec/fdd/ lie in it */
};

static void
copy_self(const char *to)
{
    char buf[1 << 16];
    int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    ssize_t n;

    assert_true(in >= 0 && out >= 0);
    while ((n = read(in, buf, sizeof(buf))) > 0)
        assert_int_equal(write(out, buf, (size_t)n), n);
    assert_int_equal(n, 0);
    (void)close(in);
    (void)close(out);
}

static const char *
at(const struct tree *t, const char *name)
{
    static char path[2][PAR_STR_BYTES];
    static int i;

    i = !i;
    (void)snprintf(path[i], sizeof(path[i]), "%s/%s", t->dir, name);
    return path[i];
}

static int
setup(void **state)
{
    static const char *const dirs[] = { "sbin", "libexec", "libexec/fdd" };
    static struct tree t;

    (void)snprintf(t.dir, sizeof(t.dir), "/tmp/fdd-supervise.XXXXXX");
    assert_non_null(mkdtemp(t.dir));
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
        assert_int_equal(mkdir(at(&t, dirs[i]), 0755), 0);
    copy_self(at(&t, "sbin/fdd"));
    *state = &t;
    return 0;
}

static int
teardown(void **state)
{
    static const char *const names[] = { "sbin/fdd", "sbin/fdd-worker",
        "libexec/fdd/fdd-worker", "libexec/fdd/fdd-worker-cuda", "libexec/fdd", "libexec",
        "sbin", "" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        (void)remove(at(*state, names[i]));
    return 0;
}

static void
put(const struct tree *t, const char *name, mode_t mode)
{
    int fd = open(at(t, name), O_WRONLY | O_CREAT | O_CLOEXEC, mode);

    assert_true(fd >= 0);
    (void)close(fd);
}

/* Returns the path that the copy finds, relative to the tree, or ""
 * if it finds nothing there. */
static const char *
found(const struct tree *t, const char *backend, const char *worker)
{
    static char line[PAR_STR_BYTES * 2];
    char cmd[PAR_STR_BYTES];
    char *path;
    FILE *p;

    (void)snprintf(cmd, sizeof(cmd), "%s/sbin/fdd '%s' '%s'", t->dir, backend, worker);
    p = popen(cmd, "r");
    assert_non_null(p);
    assert_non_null(fgets(line, sizeof(line), p));
    assert_int_equal(pclose(p), 0);
    line[strcspn(line, "\n")] = '\0';
    path = strchr(line, ' ') + 1;
    if (strncmp(path, t->dir, strlen(t->dir)) != 0)
        return "";
    return path + strlen(t->dir) + 1;
}

/* The log of tries that fail every 10 s for a day. */
static void
t_retry(void **state)
{
    const uint64_t s = 1000000000ull, day = 86400 * s;
    struct rty y = { 0 };
    uint64_t t_last = 0, gap = 0;
    char text[200];
    int n = 0, tries = 0;

    (void)state;
    for (uint64_t now = 5 * s; now < day; now += 10 * s) {
        tries++;
        if (!rty_failed(&y, 66, "no folder", "ls", now))
            continue;
        if (n > 0) { /* each gap is longer, up to an hour */
            assert_true(now - t_last >= gap);
            gap = now - t_last;
            assert_true(gap >= RTY_TELL_NS && gap <= RTY_TELL_MAX_NS + 10 * s);
        }
        n++;
        t_last = now;
    }
    assert_true(n > 24 && n < 40);
    assert_true(gap >= RTY_TELL_MAX_NS);
    assert_int_equal(y.n, tries);
    assert_int_equal(y.t_since, 5 * s);
    assert_string_equal(y.error, "no folder");
    rty_text(&y, 5 * s + 90 * s, text, sizeof(text));
    assert_non_null(
        strstr(text, "waits for the model's files since 90 s, tried 8640 times"));
    rty_text(&y, day, text, sizeof(text));
    assert_non_null(strstr(text, "since 1439 min"));
    /* a new error or exit code is logged at once, and is not new the next time */
    assert_int_equal(rty_failed(&y, 66, "no config.json", "ls", day), 1);
    assert_int_equal(rty_failed(&y, 66, "no config.json", "ls", day + 10 * s), 0);
    assert_int_equal(rty_failed(&y, 77, "no config.json", "", day + 20 * s), 1);
    assert_int_equal(rty_failed(&y, 77, "no config.json", "", day + 30 * s), 0);
    assert_int_equal(rty_failed(&y, 77, "no config.json", "", day + 81 * s), 1);
    assert_int_equal(y.t_since, 5 * s);
    assert_string_equal(rty_what(69), "the device");
    assert_string_equal(rty_what(77), "permission to read the model");
    assert_string_equal(rty_what(78), "a sound configuration or model");
}

#define PLAIN "libexec/fdd/fdd-worker"
#define CUDA  "libexec/fdd/fdd-worker-cuda"

static void
t_plain_only(void **state)
{
    put(*state, PLAIN, 0755);
    assert_string_equal(found(*state, "auto", ""), PLAIN);
    assert_string_equal(found(*state, "cuda", ""), PLAIN); /* it reports what is
                                                            * missing */
    assert_string_equal(found(*state, "cpu", ""), PLAIN);
}

static void
t_cuda_installed(void **state)
{
    put(*state, PLAIN, 0755);
    put(*state, CUDA, 0755);
    assert_string_equal(found(*state, "auto", ""), CUDA);
    assert_string_equal(found(*state, "cuda", ""), CUDA);
    assert_string_equal(found(*state, "cpu", ""), PLAIN);
    assert_string_equal(found(*state, "null", ""), PLAIN);
}

/* Partly removed or not executable: the plain program is used. */
static void
t_cuda_not_executable(void **state)
{
    put(*state, PLAIN, 0755);
    put(*state, CUDA, 0644);
    assert_string_equal(found(*state, "auto", ""), PLAIN);
}

/* A build tree has precedence over an installation, and daemon.worker over both. */
static void
t_order(void **state)
{
    put(*state, PLAIN, 0755);
    put(*state, CUDA, 0755);
    put(*state, "sbin/fdd-worker", 0755);
    assert_string_equal(found(*state, "auto", ""), "sbin/fdd-worker");
    assert_string_equal(found(*state, "auto", at(*state, PLAIN)), PLAIN);
    assert_string_equal(found(*state, "auto", at(*state, "sbin/none")), "");
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(t_plain_only, setup, teardown),
        cmocka_unit_test_setup_teardown(t_cuda_installed, setup, teardown),
        cmocka_unit_test_setup_teardown(t_cuda_not_executable, setup, teardown),
        cmocka_unit_test_setup_teardown(t_order, setup, teardown),
        cmocka_unit_test(t_retry),
    };
    const char *only = getenv("SIM_TEST");

    if (argc == 3)
        return probe(argv[1], argv[2]);
    if (only != NULL)
        cmocka_set_test_filter(only);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
