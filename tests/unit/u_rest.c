/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that makes the loop wait: again and again it fills its own memory and
 * punches holes into it while the loop reads it. The rings of its user are paused,
 * and no other user's. With F_SEAL_FUTURE_WRITE it cannot punch holes, so here the
 * kernel does not have that.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/gate/loopstat.h"
#include "daemon/gate/rest.h"
#include "tests/unit/gate_fixture.h"

#define UID         1000u
#define PATIENCE_NS (20 * CLK_S)

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* Replaces libc's function: acts as a kernel before 5.1. */
int
fcntl(int fd, int cmd, ...)
{
    va_list ap;
    long arg;

    va_start(ap, cmd);
    arg = va_arg(ap, long);
    va_end(ap);
    if (cmd == F_ADD_SEALS && (arg & F_SEAL_FUTURE_WRITE) != 0) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_fcntl, fd, cmd, arg);
}

static void
punch_for_ever(const struct fcl *c)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* if this test fails */
    for (;;) {
        memset(c->c2d, 0, c->w.c2d_bytes);
        (void)fallocate(c->c2d_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
            c->w.c2d_bytes);
    }
}

/* Polls until some session is paused. Returns 0 if none was. */
static int
poll_until_rest(struct fix *f)
{
    uint64_t t = clk_now_ns();

    while (f->g->ses.n_rest == 0 && clk_now_ns() - t < PATIENCE_NS) {
        rst_watch(&f->g->ses);
        (void)gate_poll(f->g, f->now);
    }
    return f->g->ses.n_rest != 0;
}

static void
t_rest(void **state)
{
    static const char *const sets[] = { "ipc.arena_bytes=8388608", NULL };
    struct fix f;
    struct fcl bad, same, late, other;
    struct frec r;
    int64_t waits;
    pid_t pid;

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &bad, UID, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &same, UID, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &other, UID + 1, NULL), FDP_OK);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        punch_for_ever(&bad);
    waits = loopstat_switches();
    if (!poll_until_rest(&f)) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        assert_true(loopstat_switches() - waits < 20);
        skip(); /* one processor */
    }
    assert_int_equal(f.g->ses.n_rest, 2); /* both sessions of its user */
    assert_int_equal(fcl_open(&f, &late, UID, NULL), FDP_OK);
    assert_int_equal(f.g->ses.n_rest, 3); /* and new ones */
    fcl_ping(&same, 1);
    fcl_ping(&late, 1);
    fcl_ping(&other, 1);
    fix_step(&f, 0);
    assert_false(fcl_recv(&same, &r));
    assert_false(fcl_recv(&late, &r));
    assert_true(fcl_recv(&other, &r) && r.h.tag == 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    fix_step(&f, USR_REST_MIN_NS / CLK_MS);
    assert_int_equal(f.g->ses.n_rest, 0);
    fix_step(&f, 0);
    assert_true(fcl_recv(&same, &r) && r.h.tag == 1);
    assert_true(fcl_recv(&late, &r) && r.h.tag == 1);
    fcl_close(&bad);
    fcl_close(&same);
    fcl_close(&late);
    fcl_close(&other);
    fix_step(&f, 0);
    fix_close(&f);
}

/* The pause is longer each time, up to a limit; a user that leaves and
 * comes back is still known. */
static void
t_longer(void **state)
{
    struct usr u = { .key = UID };
    uint64_t now = CLK_S;

    (void)state;
    assert_int_equal(usr_rest(&u, now), now + USR_REST_MIN_NS);
    assert_int_equal(usr_rest(&u, now), now + 4 * (uint64_t)USR_REST_MIN_NS);
    for (int i = 0; i < 20; i++)
        (void)usr_rest(&u, now);
    assert_int_equal(u.t_rest, now + USR_REST_MAX_NS);
    assert_int_equal(usr_rest(&u, now + 1), now + 1 + USR_REST_MAX_NS);
    now = u.t_rest + USR_REST_FORGET_NS;
    assert_int_equal(usr_rest(&u, now), now + USR_REST_MIN_NS);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_rest),
        cmocka_unit_test(t_longer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
