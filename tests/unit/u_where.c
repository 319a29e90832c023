/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The rule by which fdd, fdctl and libfdclient find each other. */
#include "config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "libclient/fdclient.h"
#include "libclient/fdwhere.h"
#include "tests/unit/tmp_fixture.h"
#include "tools/fdctl/lib/fct.h"

/* tmp_root/path, as a folder, or a file when it ends in .sock; in one of 4 places. */
static const char *
make(const char *path)
{
    static char full[4][256];
    static int at;
    char *p = full[at++ % 4], *s;

    (void)snprintf(p, sizeof(full[0]), "%s/%s", tmp_root, path);
    for (s = strchr(p + 1, '/'); s != NULL; s = strchr(s + 1, '/')) {
        *s = '\0';
        (void)mkdir(p, 0755);
        *s = '/';
    }
    if (strstr(path, ".sock") != NULL)
        fclose(fopen(p, "w"));
    else
        (void)mkdir(p, 0755);
    return p;
}

static void
test_names(void **state)
{
    static const char *const good[] = { "a", "qwen3-8b", "_x", "0", "llama_70b",
        "abcdefghijklmnopqrstuvwxyz012345" };
    static const char *const bad[] = { "", "devices", "fdd", "-x", "A", "a/b", "..", ".",
        "a b", "a.ini", "a\n", "\303\244", "abcdefghijklmnopqrstuvwxyz0123456" };
    char path[FDW_PATH_BYTES] = "untouched";
    struct fdw_env e = { .system_dir = "/run/fdd" };

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_int_equal(fdw_is_name(good[i]), 1);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(fdw_is_name(bad[i]), 0);
        assert_int_equal(fdw_find(&e, NULL, bad[i], path, sizeof(path)), -EINVAL);
        assert_int_equal(fdw_find(&e, "/x", bad[i], path, sizeof(path)), -EINVAL);
        assert_int_equal(fdw_home(&e, NULL, bad[i], 1, path, sizeof(path)), -EINVAL);
        e.instance = bad[i];
        assert_int_equal(fdw_find_socket(&e, path, sizeof(path)), -EINVAL);
        e.xdg = tmp_root;
        assert_int_equal(fdw_find_socket(&e, path, sizeof(path)), -EINVAL);
        e.instance = e.xdg = NULL;
    }
    assert_string_equal(path, "untouched");
}

static void
test_too_long(void **state)
{
    char dir[600], path[FDW_PATH_BYTES], small[8] = "same";
    struct fdw_env e = { .system_dir = "/run/fdd" };

    (void)state;
    memset(dir, 'd', sizeof(dir) - 1);
    dir[0] = '/';
    dir[sizeof(dir) - 1] = '\0';
    assert_int_equal(fdw_find(&e, dir, NULL, path, sizeof(path)), -ENAMETOOLONG);
    assert_int_equal(fdw_home(&e, dir, NULL, 0, path, sizeof(path)), -ENAMETOOLONG);
    e.unit_dir = dir;
    assert_int_equal(fdw_home(&e, NULL, NULL, 0, path, sizeof(path)), -ENAMETOOLONG);
    e.socket = dir;
    assert_int_equal(fdw_find_socket(&e, path, sizeof(path)), -ENAMETOOLONG);
    assert_int_equal(fdw_find(&e, "/run/fdd", NULL, small, sizeof(small)), -ENAMETOOLONG);
    assert_string_equal(small, "same");
}

#define FIND(dir, name, want) \
    do { \
        assert_int_equal(fdw_find(&e, dir, name, path, sizeof(path)), 0); \
        assert_string_equal(path, want); \
    } while (0)

static void
test_order(void **state)
{
    char path[FDW_PATH_BYTES], want[256];
    struct fdw_env e = { .system_dir = "/run/fdd", .xdg = tmp_root };

    (void)state;
    /* XDG only once there is a socket */
    FIND(NULL, NULL, "/run/fdd");
    FIND(NULL, "q", "/run/fdd/q");
    (void)snprintf(want, sizeof(want), "%s/fdd", tmp_root);
    make("fdd/fdd.sock");
    FIND(NULL, NULL, want);
    FIND(NULL, "q", "/run/fdd/q");
    make("fdd/q/fdd.sock");
    (void)snprintf(want, sizeof(want), "%s/fdd/q", tmp_root);
    FIND(NULL, "q", want);
    e.instance = "q";
    FIND(NULL, NULL, want);
    FIND(NULL, "r", "/run/fdd/r");
    /* FDD_RUNTIME_DIR before it, whether there is something or not */
    e.runtime_dir = "/none//";
    FIND(NULL, NULL, "/none/q");
    e.instance = NULL;
    FIND(NULL, NULL, "/none");
    FIND(NULL, "q", "/none/q");
    /* an option before all, and an instance of the environment not in it */
    e.instance = "q";
    FIND("/opt/", NULL, "/opt");
    FIND("/opt", "r", "/opt/r");
    e.instance = NULL;
    /* the socket alone */
    assert_int_equal(fdw_find_socket(&e, path, sizeof(path)), 0);
    assert_string_equal(path, "/none/fdd.sock");
    e.socket = "/s/x.sock";
    assert_int_equal(fdw_find_socket(&e, path, sizeof(path)), 0);
    assert_string_equal(path, "/s/x.sock");
    FIND(NULL, NULL, "/none");
}

/* tmp_root kept by sudo -E the XDG folder of a user, who then answered tmp_root's fdctl. */
static void
test_foreign_xdg(void **state)
{
    char path[FDW_PATH_BYTES];
    struct fdw_env e = { .system_dir = "/run/fdd", .xdg = tmp_root };
    const char *dir;

    (void)state;
    if (geteuid() != 0)
        skip();
    make("fdd/fdd.sock");
    dir = make("fdd");
    assert_int_equal(chown(dir, 12345, 12345), 0);
    FIND(NULL, NULL, "/run/fdd");
}

static void
test_home(void **state)
{
    char path[FDW_PATH_BYTES];
    struct fdw_env e = { .system_dir = "/run/fdd" };

    (void)state;
#define HOME(dir, name, is_root, want) \
    do { \
        assert_int_equal(fdw_home(&e, dir, name, is_root, path, sizeof(path)), 0); \
        assert_string_equal(path, want); \
    } while (0)
    assert_int_equal(fdw_home(&e, NULL, NULL, 0, path, sizeof(path)), -ENOENT);
    HOME(NULL, NULL, 1, "/run/fdd");
    HOME(NULL, "q", 1, "/run/fdd/q");
    e.xdg = "/x";
    HOME(NULL, NULL, 0, "/x/fdd");
    HOME(NULL, "q", 0, "/x/fdd/q");
    HOME(NULL, NULL, 1, "/run/fdd");
    e.unit_dir = "/run/fdd/q:/run/other";
    HOME(NULL, "q", 0, "/run/fdd/q");
    HOME(NULL, "q", 1, "/run/fdd/q");
    e.runtime_dir = "/r";
    HOME(NULL, NULL, 0, "/r");
    HOME(NULL, "q", 0, "/r/q");
    HOME("/here/", "q", 0, "/here");
}

/* Two daemons of one user have one folder of locks, wherever each lives. */
static void
test_device_dir(void **state)
{
    char path[FDW_PATH_BYTES], want[256];
    struct fdw_env e = { .system_dir = "/run/fdd" };

    (void)state;
#define DEVS(home, want) \
    do { \
        assert_int_equal(fdw_device_dir(&e, home, 7, path, sizeof(path)), 0); \
        assert_string_equal(path, want); \
    } while (0)
    DEVS("/run/fdd", "/run/fdd/devices");
    DEVS("/run/fdd/q", "/run/fdd/devices");
    (void)snprintf(want, sizeof(want), "%s/fdd-devices-7", tmp_root);
    DEVS(make("a"), want);
    DEVS(make("b"), want);
    DEVS("/tmp", access("/", W_OK) == 0 ? "/fdd-devices-7" : "/tmp/devices");
    DEVS("/nowhere/x", "/nowhere/x/devices");
    e.xdg = "/x";
    DEVS("/run/fdd/q", "/run/fdd/devices");
    DEVS("/run/fddx", "/x/fdd/devices");
    DEVS("/x/fdd/q", "/x/fdd/devices");
    DEVS(tmp_root, "/x/fdd/devices");
}

/* What the library and fdctl make of one environment is the same socket. */
static void
test_both_agree(void **state)
{
    static const char *const names[] = { "FDD_SOCKET", "FDD_RUNTIME_DIR", "FDD_INSTANCE",
        "XDG_RUNTIME_DIR" };
    char values[4][300];
    struct fct f;

    (void)state;
    make("fdd/fdd.sock");
    make("fdd/q/fdd.sock");
    (void)snprintf(values[0], sizeof(values[0]), "%s/s.sock", tmp_root);
    (void)snprintf(values[1], sizeof(values[1]), "%s/run", tmp_root);
    (void)snprintf(values[2], sizeof(values[2]), "q");
    (void)snprintf(values[3], sizeof(values[3]), "%s", tmp_root);
    setenv("RUNTIME_DIRECTORY", "/run/another-unit", 1);
    for (int mask = 0; mask < 16; mask++) {
        for (int i = 0; i < 4; i++)
            (void)(mask >> i & 1 ? setenv(names[i], values[i], 1) : unsetenv(names[i]));
        assert_int_equal(fct_paths(&f, NULL, NULL, NULL, NULL), 0);
        assert_string_equal(f.socket, fdc_default_socket());
        assert_null(strstr(f.dir, "another-unit"));
    }
    setenv("FDD_INSTANCE", "../../tmp", 1);
    unsetenv("FDD_SOCKET");
    assert_string_equal(fdc_default_socket(), "");
    assert_int_equal(fct_paths(&f, NULL, NULL, NULL, NULL), 64);
    for (int i = 0; i < 4; i++)
        unsetenv(names[i]);
    unsetenv("RUNTIME_DIRECTORY");
    assert_string_equal(fdc_default_socket(), "/run/fdd/fdd.sock");
}

/* $FDD_SOCKET names the client socket alone; its folder counts where it has an
 * admin socket. */
static void
test_env_socket(void **state)
{
    struct fct f;
    char want[256];

    (void)state;
    setenv("FDD_SOCKET", make("one.sock"), 1);
    assert_int_equal(fct_paths(&f, NULL, NULL, NULL, NULL), 0);
    assert_string_equal(f.admin, "/run/fdd/admin.sock");
    make("admin.sock");
    assert_int_equal(fct_paths(&f, NULL, NULL, NULL, NULL), 0);
    (void)snprintf(want, sizeof(want), "%s/admin.sock", tmp_root);
    assert_string_equal(f.admin, want);
    /* options before it */
    assert_int_equal(fct_paths(&f, NULL, NULL, NULL, "q"), 0);
    assert_string_equal(f.socket, "/run/fdd/q/fdd.sock");
    assert_string_equal(f.instance, "q");
    assert_int_equal(fct_paths(&f, NULL, NULL, "/opt", NULL), 0);
    assert_string_equal(f.socket, "/opt/fdd.sock");
    unsetenv("FDD_SOCKET");
}

#define T(f) cmocka_unit_test_setup_teardown(f, tmp_make, tmp_drop)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_names),
        T(test_too_long),
        T(test_order),
        T(test_foreign_xdg),
        T(test_home),
        T(test_device_dir),
        T(test_both_agree),
        T(test_env_socket),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
