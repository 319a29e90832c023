/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The daemon as a service: its behaviour if the model is unavailable for a while, its
 * messages to the service manager, and its advice. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/gate/advice.h"
#include "tests/unit/gate_fixture.h"

/* ---- a model that is unavailable ------------------------------------------- */

static void
die_soon(struct fix *f, int code)
{
    (void)snprintf(f->seg->w.error, sizeof(f->seg->w.error), "why");
    fix_die(f, code << 8);
}

/* Worker exits that end the daemon at its start are retried without limit once a worker
 * was ready, and do not count as a crash loop. */
static void
t_away(void **state)
{
    static const int codes[] = { 66, 78, 77, 69 };
    static const char *const sets[] = { "model.path=/nonexistent/model",
        "daemon.crash_max=3", NULL };
    struct fix f;
    struct fcl c;

    (void)state;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        const struct wrk *w;

        fix_open(&f, sets);
        w = &f.g->wrk[0];
        fix_ready(&f);
        assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
        fix_die(&f, 9);
        fix_step(&f, 200);
        for (unsigned n = 0; n < 20; n++) {
            assert_int_equal(f.n_spawn, 2 + n);
            die_soon(&f, codes[i]);
            assert_int_equal(f.g->life.exit_code, -1);
            assert_int_equal(w->st, WRK_BACKOFF);
            assert_string_equal(w->error, "why");
            assert_true(w->fix[0] != '\0' && w->backoff_ms <= 10000);
            if (n == 0) /* while the model is unavailable, requests wait */
                fcl_submit(&c, 1, 4, 10);
            fix_step(&f, 10000);
        }
        assert_int_equal(f.g->env.st, GATE_RUNNING);
        fix_ready(&f);
        assert_int_equal(w->st, WRK_READY);
        assert_true(fix_take(&f, NULL, NULL, NULL) != 0);
        fcl_close(&c);
        fix_close(&f);
    }
}

/* The pause doubles each time, up to daemon.restart_max_ms. */
static void
t_pauses(void **state)
{
    static const uint32_t pause[] = { 100, 200, 300, 300, 300 };
    static const char *const sets[] = { "daemon.restart_max_ms=300",
        "daemon.crash_max=100", NULL };
    struct fix f;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    for (size_t i = 0; i < sizeof(pause) / sizeof(pause[0]); i++) {
        fix_die(&f, 9);
        assert_int_equal(f.g->wrk[0].st, WRK_BACKOFF);
        assert_int_equal(f.g->wrk[0].backoff_ms, pause[i]);
        fix_step(&f, pause[i] - 10);
        assert_int_equal(f.n_spawn, 1 + i);
        fix_step(&f, 20);
        assert_int_equal(f.n_spawn, 2 + i);
    }
    fix_close(&f);
}

/* Crashes count as before. */
static void
t_crashes_count(void **state)
{
    static const char *const sets[] = { "daemon.crash_max=3", NULL };
    struct fix f;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    for (int i = 0; i < 3; i++) {
        fix_die(&f, 9);
        fix_step(&f, 1000);
    }
    assert_int_equal(f.g->env.st, GATE_DEGRADED);
    fix_close(&f);
}

/* ---- the service manager --------------------------------------------------- */

/* Its stop timeout is extended by the time that a drain may take. */
static void
t_stop_notice(void **state)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    char text[256];
    unsigned long long us = 0;
    struct fix f;
    ssize_t n;
    int fd;

    (void)state;
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "/tmp/u_service.%d", (int)getpid());
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(setenv("NOTIFY_SOCKET", sa.sun_path, 1), 0);
    life_stop(&f.g->life, 300 * 1000000000ull, 0);
    assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
    n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
    assert_true(n > 0);
    text[n] = '\0';
    assert_int_equal(sscanf(text, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu", &us), 1);
    assert_true(us > 300 * 1000000ull);
    (void)close(fd);
    (void)unlink(sa.sun_path);
    fix_close(&f);
}

/* A short interval of the watchdog is kept, also while there is nothing to do. */
static void
t_watchdog(void **state)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    char text[64];
    struct fix f;
    unsigned n = 0;
    int fd;

    (void)state;
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "/tmp/u_service.%d", (int)getpid());
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(setenv("WATCHDOG_USEC", "1000000", 1), 0);
    f.g->watchdog_ns = rtd_watchdog_ns();
    assert_int_equal(unsetenv("WATCHDOG_USEC"), 0);
    assert_int_equal(setenv("NOTIFY_SOCKET", sa.sun_path, 1), 0);
    for (int i = 0; i < 100; i++) {
        fix_step(&f, 100);
        while (recv(fd, text, sizeof(text), MSG_DONTWAIT) > 0)
            n += memcmp(text, "WATCHDOG=1", 10) == 0;
    }
    assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
    assert_in_range(n, 19, 21);
    (void)close(fd);
    (void)unlink(sa.sun_path);
    fix_close(&f);
}

/* A stop does not wait for queued requests if there is no worker: none is started. */
static void
t_stop_without_worker(void **state)
{
    static const char *const sets[] = { "model.path=/nonexistent/model", NULL };
    struct fix f;
    struct fcl c;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fix_die(&f, 9);
    fix_step(&f, 200);
    die_soon(&f, 66);
    assert_int_equal(f.g->wrk[0].st, WRK_BACKOFF);
    fcl_submit(&c, 1, 4, 10);
    fix_step(&f, 0);
    assert_int_equal(f.g->fair.n_queued, 1);
    life_stop(&f.g->life, 300 * 1000000000ull, 0);
    fix_step(&f, 100);
    assert_int_equal(f.g->life.exit_code, 0);
    assert_int_equal(fcl_error(&c, 1).code, FDP_E_DRAINING);
    fcl_close(&c);
    fix_close(&f);
}

/* ---- advice ---------------------------------------------------------------- */

static void
no_harm(const char *text)
{
    assert_null(strstr(text, "chmod"));
    assert_null(strstr(text, "chown"));
    assert_null(strstr(text, "install -d"));
}

/* The systemd unit cannot see /home, whatever the modes are. */
static void
t_protect_home(void **state)
{
    char text[768];

    (void)state;
    assert_int_equal(setenv("INVOCATION_ID", "1", 1), 0);
    assert_int_equal(setenv("RUNTIME_DIRECTORY", "/run/fdd", 1), 0);
    adv_model("/home/no-such-user/model", "fdd@a", 0, NULL, text, sizeof(text));
    assert_non_null(strstr(text, "ProtectHome"));
    assert_non_null(strstr(text, "/var/lib/fdd"));
    assert_non_null(strstr(text, "systemctl edit fdd@a"));
    assert_non_null(strstr(text, "\nProtectHome=tmpfs\n"));
    assert_non_null(strstr(text, "\nBindReadOnlyPaths=/home/no-such-user/model\n"));
    no_harm(text);
    adv_model("/srv/nothing/model", "fdd", 0, NULL, text, sizeof(text));
    assert_non_null(strstr(text, "ls -ld /srv/nothing"));
    /* run from a terminal of a desktop session */
    assert_int_equal(unsetenv("RUNTIME_DIRECTORY"), 0);
    adv_model("/home/no-such-user/model", "fdd", 0, NULL, text, sizeof(text));
    assert_null(strstr(text, "ProtectHome"));
    assert_int_equal(unsetenv("INVOCATION_ID"), 0);
    adv_model("/home/no-such-user/model", "fdd", 0, NULL, text, sizeof(text));
    assert_null(strstr(text, "ProtectHome"));
    assert_non_null(strstr(text, "does not exist"));
}

/* If one file in it cannot be read the advice is a copy, not another mode or owner. */
static void
t_no_right(void **state)
{
    char text[768];

    (void)state;
    adv_model("/tmp", "fdd", 1, NULL, text, sizeof(text));
    assert_non_null(strstr(text, "cp -rL --no-preserve=mode,ownership /tmp "));
    no_harm(text);
    adv_model("/tmp", "fdd", 0, NULL, text, sizeof(text));
    assert_string_equal(text, "");
}

/* A worker that was ready may no longer read its model: the loop makes the advice with
 * names from its table, not from the name service. */
static void
t_advice_in_loop(void **state)
{
    static const char *const sets[] = { "model.path=/tmp", NULL };
    struct names *n;
    struct fix f;

    (void)state;
    fix_open(&f, sets);
    n = &f.g->names;
    for (uint32_t i = 0; i < n->n_rows; i++) {
        if (n->rows[i].uid == geteuid())
            (void)snprintf(n->rows[i].name, sizeof(n->rows[i].name), "of-the-table");
    }
    fix_ready(&f);
    die_soon(&f, 77);
    assert_non_null(strstr(f.g->wrk[0].fix, "a copy that user of-the-table may read"));
    fix_close(&f);
}

/* Paths are quoted as one word in the commands and lines that have them. */
static void
t_odd_paths(void **state)
{
    char dir[] = "/tmp/u_service XXXXXX", path[64], want[128], text[768];

    (void)state;
    assert_non_null(mkdtemp(dir));
    adv_model(dir, "fdd", 1, NULL, text, sizeof(text));
    (void)snprintf(want, sizeof(want), "mode,ownership '%s' ", dir);
    assert_non_null(strstr(text, want));
    (void)snprintf(path, sizeof(path), "%s/it's", dir);
    adv_model(path, "fdd", 0, NULL, text, sizeof(text));
    (void)snprintf(want, sizeof(want), "ls -ld '%s/it'\\''s' ", dir);
    assert_non_null(strstr(text, want));
    assert_int_equal(setenv("INVOCATION_ID", "1", 1), 0);
    assert_int_equal(setenv("RUNTIME_DIRECTORY", "/run/fdd", 1), 0);
    adv_model("/home/no-such-user/a 100%:b", "fdd", 0, NULL, text, sizeof(text));
    assert_non_null(strstr(text, "=\"/home/no-such-user/a 100%%\\:b\"\n"));
    assert_int_equal(unsetenv("INVOCATION_ID"), 0);
    assert_int_equal(unsetenv("RUNTIME_DIRECTORY"), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void
open_dir(const char *dir, int rc, char *err, size_t err_bytes)
{
    struct par_set *ps = par_new();
    struct rtd rt;

    assert_int_equal(par_set_text(ps, "daemon.runtime_dir", dir, PAR_FROM_SET, err,
                         err_bytes),
        0);
    rtd_init(&rt);
    err[0] = '\0';
    assert_int_equal(rtd_open_dir(&rt, par_get(ps), err, err_bytes), rc);
    rtd_fini(&rt);
    (void)par_free(ps);
}

/* A folder that other users may write: without a daemon in it,
 * then with one that answers. */
static void
t_folder(void **state)
{
    char dir[] = "/tmp/u_service.XXXXXX", err[RTD_ERR_BYTES], want[128];
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    int fd;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chmod(dir, 01777), 0);
    open_dir(dir, 77, err, sizeof(err));
    assert_non_null(strstr(err, "can be written by others"));
    assert_non_null(strstr(err, "--set daemon.runtime_dir="));
    no_harm(err);
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/admin.sock", dir);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    open_dir(dir, 77, err, sizeof(err)); /* dead */
    assert_int_equal(listen(fd, 4), 0);
    open_dir(dir, 73, err, sizeof(err));
    (void)snprintf(want, sizeof(want), "another fdd (pid %d, user ", (int)getpid());
    assert_non_null(strstr(err, want));
    assert_non_null(strstr(err, dir));
    no_harm(err);
    (void)close(fd);
    (void)unlink(sa.sun_path);
    (void)rmdir(dir);
}

/* If a service manager listens on the socket this is reported,
 * and no daemon is started. */
static void
t_starts_nothing(void **state)
{
    char dir[] = "/tmp/u_service.XXXXXX", err[RTD_ERR_BYTES];
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    int fd;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chmod(dir, 01777), 0);
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/fdd.sock", dir);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    open_dir(dir, 77, err, sizeof(err)); /* no process listens */
    assert_int_equal(listen(fd, 4), 0);
    open_dir(dir, 73, err, sizeof(err));
    assert_non_null(strstr(err, "another fdd (user "));
    assert_int_equal(accept(fd, NULL, NULL), -1);
    (void)close(fd);
    (void)unlink(sa.sun_path);
    (void)rmdir(dir);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_away),
        cmocka_unit_test(t_pauses),
        cmocka_unit_test(t_crashes_count),
        cmocka_unit_test(t_stop_notice),
        cmocka_unit_test(t_stop_without_worker),
        cmocka_unit_test(t_watchdog),
        cmocka_unit_test(t_protect_home),
        cmocka_unit_test(t_no_right),
        cmocka_unit_test(t_advice_in_loop),
        cmocka_unit_test(t_odd_paths),
        cmocka_unit_test(t_folder),
        cmocka_unit_test(t_starts_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
