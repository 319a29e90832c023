/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A worker whose process ends slowly: the gate keeps serving meanwhile. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/gate/offloop.h"
#include "tests/unit/gate_fixture.h"

static int is_slow; /* set: collecting a zombie takes some time */
static int n_here;  /* calls of waitid() on the thread of the loop */

/* Replaces libc's function. */
int
waitid(idtype_t type, id_t id, siginfo_t *si, int how)
{
    if (syscall(SYS_gettid) == getpid())
        n_here++;
    else
        while (__atomic_load_n(&is_slow, __ATOMIC_ACQUIRE))
            clk_sleep_ns(CLK_MS);
    return (int)syscall(SYS_waitid, type, id, si, how, NULL);
}

/* A killed worker has no requests any more, though its process still exists: its requests
 * end at once, and new ones wait for the next worker. */
static void
t_killed(void **state)
{
    struct fix f;
    struct fcl c, other;
    struct frec r;
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        (void)pause();
        _exit(0);
    }
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &other, 1001, NULL), FDP_OK);
    fcl_submit(&c, 7, 2, 4);
    fix_step(&f, 0);
    assert_int_not_equal(fix_take(&f, NULL, NULL, NULL), 0);
    f.g->wrk[0].pid = pid;
    f.g->wrk[0].pidfd = dup(2); /* of a process that has not ended */
    sup_kill(&f.g->wrk[0], "a test");
    fix_step(&f, 2);
    assert_int_equal(f.g->wrk[0].dead, 0);
    assert_string_equal(sup_phase_name(&f.g->wrk[0]), "exiting"); /* waiting clients are
                                                                   * served */
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_EVENT);
    fcl_want_error(&c, 7, FDP_E_GPU_RESET, 0);
    fcl_submit(&other, 8, 2, 4); /* it is not sent to the ending worker */
    fix_step(&f, 5000);
    assert_int_equal(f.n_spawn, 1);
    assert_int_equal(f.g->fair.n_queued, 1);
    assert_int_equal(f.g->jnl.n_open, 1);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    fix_die(&f, SIGKILL);
    while (fcl_recv(&c, &r))
        assert_int_not_equal(r.h.type, FDP_T_EVENT); /* sent only once */
    fix_step(&f, 1000);
    assert_int_equal(f.n_spawn, 2);
    fix_ready(&f);
    fix_step(&f, 2);
    assert_int_not_equal(fix_take(&f, NULL, NULL, NULL), 0);
    fcl_close(&c);
    fcl_close(&other);
    fix_step(&f, 0);
    fix_close(&f);
}

/* Its exit status comes slowly: another thread waits for it, and no event of the dead
 * process keeps the loop busy. */
static void
t_slow_status(void **state)
{
    struct ofl *o = ofl_new(64);
    uint64_t until = clk_now_ns() + 20 * CLK_S;
    struct fdp_req q;
    struct frec r;
    struct fix f;
    struct fcl c;
    pid_t pid = fork();

    (void)state;
    if (pid == 0)
        _exit(3);
    assert_non_null(o);
    fix_open(&f, NULL);
    fix_ready(&f);
    n_here = 0;
    __atomic_store_n(&is_slow, 1, __ATOMIC_RELEASE);
    f.g->sup.ofl = o;
    f.g->wrk[0].pid = pid;
    f.g->wrk[0].pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    assert_int_equal(wch_add(&f.g->watch, f.g->wrk[0].pidfd, EPOLLIN, WCH_WRK_PID,
                         &f.g->wrk[0]),
        0);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    while (f.g->wrk[0].exit == NULL && n_here == 0 && clk_now_ns() < until)
        (void)gate_events(f.g, 1);
    assert_int_equal(n_here, 0);
    assert_int_equal(gate_events(f.g, 0), 0);
    fcl_req(&q, FDP_OP_PING, 1);
    q.max_new = 0;
    fcl_send(&c, &q, NULL, 0, 0);
    fix_step(&f, 2);
    assert_true(fcl_recv(&c, &r) && r.h.tag == 1 && r.h.type == FDP_T_DONE);
    assert_int_equal(f.g->wrk[0].dead, 0);
    __atomic_store_n(&is_slow, 0, __ATOMIC_RELEASE);
    while (f.g->wrk[0].st != WRK_BACKOFF && clk_now_ns() < until) {
        clk_sleep_ns(CLK_MS);
        fix_step(&f, 2);
    }
    assert_int_equal(f.g->wrk[0].st, WRK_BACKOFF);
    assert_string_equal(f.g->wrk[0].last_death, "exited with 3");
    assert_int_equal(n_here, 0);
    assert_null(ofl_free(o, 10 * CLK_S));
    f.g->sup.ofl = NULL;
    fcl_close(&c);
    fix_step(&f, 0);
    fix_close(&f);
}

/* At the end of the daemon: a child that does not end, and one that does. */
static void
t_collect(void **state)
{
    uint64_t t = clk_now_ns();
    pid_t pid = fork();

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            (void)pause();
    }
    (void)alarm(20);
    assert_int_equal(sup_collect(pid, 50 * CLK_MS), 0);
    assert_true(clk_now_ns() - t >= 50 * CLK_MS);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(sup_collect(pid, 10 * CLK_S), 1);
    assert_int_equal(sup_collect(pid, 10 * CLK_S), 1); /* not our child any more */
    (void)alarm(0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_killed),
        cmocka_unit_test(t_slow_status),
        cmocka_unit_test(t_collect),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
