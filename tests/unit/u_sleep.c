/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The loop sleeps when there is nothing to do, measured with the real clock. The gate
 * is a forked process: its memory is a copy of the test's; rings, counters and the
 * worker's link are shared. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "tests/unit/gate_fixture.h"

static const char *const sets[] = { "ipc.spin_us=0", NULL };

static uint64_t
count(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static pid_t
start(struct fix *f)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test does not call stop() */
        _exit(gate_run(f->g));
    }
    return pid;
}

static void
stop(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Sends a request that is refused. */
static void
send_bad(struct fcl *c)
{
    struct fdp_req q;

    fcl_req(&q, FDP_OP_SUBMIT, 5); /* no prompt */
    fcl_send(c, &q, NULL, 0, 0);
}

/* If a client's requests are refused without being looked at, its ring is
 * read every 10 ms, four records at a time. Records wait in it meanwhile,
 * and no thread spins on that. */
static void
t_eager_ring(void **state)
{
    struct fix f;
    struct fcl c;
    struct frec r;
    const struct cnt_gate *cnt;
    uint64_t t, unseen, loops;
    pid_t pid;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    cnt = f.g->env.cnt;
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    pid = start(&f);
    t = clk_now_ns();
    while (count(&cnt->requests_unseen) == 0) {
        assert_true(clk_now_ns() - t < 20 * CLK_S);
        if (fdr_prod_room(&c.sq, 1) >= 1)
            send_bad(&c);
        while (fcl_recv(&c, &r))
            continue;
    }
    t = clk_now_ns();
    unseen = count(&cnt->requests_unseen);
    loops = count(&cnt->loops);
    while (clk_now_ns() - t < 500 * CLK_MS) {
        while (fdr_prod_room(&c.sq, 1) >= 1)
            send_bad(&c);
        clk_sleep_ns(CLK_MS);
        while (fcl_recv(&c, &r))
            continue;
    }
    unseen = count(&cnt->requests_unseen) - unseen;
    loops = count(&cnt->loops) - loops;
    stop(pid);
    print_message("%u unseen, %u iterations\n", (unsigned)unseen, (unsigned)loops);
    assert_true(loops < 2000); /* spinning: some 100,000 */
    assert_true(unseen > 50);  /* asleep for 100 ms at a time: 20 */
    fcl_close(&c);
    fix_close(&f);
}

/* An impossible record of the worker stays in its ring. Until the worker's end is
 * noticed, which comes as an event, the loop sleeps and takes events. */
static void
t_bad_link(void **state)
{
    struct fix f;
    struct fcl c;
    const struct cnt_gate *cnt;
    struct fdp_rec *rec;
    uint64_t t, loops;
    pid_t pid;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    cnt = f.g->env.cnt;
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    rec = (struct fdp_rec *)lnk_claim(&f.w, 1, FDP_T_DONE, 0, 0, 0) - 1;
    rec->n_slot = 0;
    lnk_flush(&f.w);
    pid = start(&f);
    clk_sleep_ns(50 * CLK_MS);
    loops = count(&cnt->loops);
    clk_sleep_ns(200 * CLK_MS);
    loops = count(&cnt->loops) - loops;
    print_message("%u iterations\n", (unsigned)loops);
    assert_int_equal(shutdown(c.fd, SHUT_RDWR), 0); /* the other process has the socket
                                                     * too */
    t = clk_now_ns();
    while (count(&cnt->sessions) != 0 && clk_now_ns() - t < 5 * CLK_S)
        clk_sleep_ns(CLK_MS);
    assert_int_equal(count(&cnt->sessions), 0);
    assert_true(loops < 2000);
    stop(pid);
    fcl_close(&c);
    fix_step(&f, 0);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(t_eager_ring),
        cmocka_unit_test(t_bad_link) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
