/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* From hello to welcome: files made off the loop, and sessions that end meanwhile. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/gate/offloop.h"
#include "daemon/gate/session.h"
#include "tests/unit/count_fds.h"
#include "tests/unit/gate_fixture.h"

#define UID     1000u
#define WAIT_MS 5000u

static uint32_t on_loop, off_loop; /* number of files made on the loop's
                                    * thread, and on others */
static uint32_t held;              /* threads wait until it is 0 */
static int no_memory;

/* Replaces libc's function. */
int
memfd_create(const char *name, unsigned flags)
{
    if (syscall(SYS_gettid) == getpid()) {
        on_loop++;
    } else {
        (void)__atomic_add_fetch(&off_loop, 1, __ATOMIC_RELAXED);
        while (__atomic_load_n(&held, __ATOMIC_ACQUIRE))
            clk_sleep_ns(CLK_MS);
    }
    return (int)syscall(SYS_memfd_create, name, flags);
}

int
fallocate(int fd, int mode, off_t at, off_t n)
{
    if (no_memory && !(mode & FALLOC_FL_PUNCH_HOLE)) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, at, n);
}

static void
open_with_threads(struct fix *f)
{
    fix_open(f, NULL);
    f->g->ofl = f->g->ses.ofl = ofl_new(256);
    assert_non_null(f->g->ofl);
    assert_int_equal(wch_add(&f->g->watch, ofl_fd(f->g->ofl), EPOLLIN, WCH_OFL, NULL), 0);
    on_loop = off_loop = 0;
}

/* Runs the loop until all threads are idle and it queues nothing more. */
static void
settle(struct fix *f)
{
    struct ofl_count c = { .put = 1 };
    uint64_t put = 0;

    for (uint32_t ms = 0; ms < WAIT_MS && (c.done != c.put || c.put != put); ms++) {
        clk_sleep_ns(CLK_MS);
        ofl_count(f->g->ofl, &c);
        put = c.done == c.put ? c.put : 0;
        fix_step(f, 2);
        ofl_count(f->g->ofl, &c);
    }
    assert_int_equal(c.done, c.put);
    assert_int_equal(c.put, put);
}

/* Sends a hello, and lets the gate take it. */
static int
say_hello(struct fix *f)
{
    struct fdp_hello h;
    int sv[2];

    fcl_hello(&h);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                         sv),
        0);
    assert_int_equal(ses_adopt(&f->g->ses, sv[0], 100, UID, UID), 0);
    assert_int_equal(send(sv[1], &h, sizeof(h), MSG_NOSIGNAL), sizeof(h));
    fix_step(f, 0);
    return sv[1];
}

static void
t_made(void **state)
{
    struct fix f;
    struct fcl c;

    (void)state;
    open_with_threads(&f);
    assert_int_equal(fcl_open(&f, &c, UID, NULL), FDP_OK);
    assert_int_equal(on_loop, 0);
    assert_int_equal(off_loop, 2);
    settle(&f);
    fcl_ping(&c, 1);
    fix_step(&f, 0);
    assert_int_equal(f.g->ses.v[0]->c.st, CLI_OPEN);
    fcl_close(&c);
    fix_step(&f, 0);
    fix_close(&f);
}

/* Other sessions are served while the files of one are made. It may leave meanwhile; data
 * from it before its welcome ends it. */
static void
t_leaves(void **state)
{
    struct fix f;
    int fd, n;

    (void)state;
    for (int how = 0; how < 2; how++) {
        open_with_threads(&f);
        settle(&f);
        n = count_fds();
        __atomic_store_n(&held, 1, __ATOMIC_RELEASE);
        fd = say_hello(&f);
        assert_int_equal(f.g->ses.n_opens, 1);
        assert_int_equal(f.g->ses.v[0]->c.st, CLI_MAKES);
        if (how == 0)
            (void)close(fd);
        else
            assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), 1);
        fix_step(&f, 2);
        assert_int_equal(f.g->ses.n, 0);
        assert_int_equal(f.g->ses.n_opens, 0);
        assert_false(STAILQ_EMPTY(&f.g->ses.unwanted));
        __atomic_store_n(&held, 0, __ATOMIC_RELEASE);
        settle(&f);
        assert_int_equal(off_loop, 2);
        assert_true(STAILQ_EMPTY(&f.g->ses.unwanted));
        if (how != 0)
            (void)close(fd);
        assert_int_equal(count_fds(), n);
        fix_close(&f);
    }
}

static void
t_ends(void **state)
{
    struct fix f;
    int fd, n = count_fds();

    (void)state;
    open_with_threads(&f);
    __atomic_store_n(&held, 1, __ATOMIC_RELEASE);
    fd = say_hello(&f);
    ses_goodbye(&f.g->ses, FDP_E_DISCONNECTED);
    assert_int_equal(f.g->ses.n, 0);
    __atomic_store_n(&held, 0, __ATOMIC_RELEASE);
    fix_close(&f);
    (void)close(fd);
    assert_int_equal(count_fds(), n);
}

static void
t_no_memory(void **state)
{
    struct fdp_welcome w;
    struct fix f;
    int fd, n;

    (void)state;
    open_with_threads(&f);
    settle(&f);
    n = count_fds();
    no_memory = 1;
    fd = say_hello(&f);
    settle(&f);
    no_memory = 0;
    assert_int_equal(recv(fd, &w, sizeof(w), MSG_DONTWAIT), sizeof(w));
    assert_int_equal(w.err, FDP_E_OVERLOAD);
    assert_true(w.retry_after_ms != 0);
    assert_int_equal(f.g->ses.n, 0);
    (void)close(fd);
    assert_int_equal(count_fds(), n);
    fix_close(&f);
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_made),
        cmocka_unit_test(t_leaves),
        cmocka_unit_test(t_ends),
        cmocka_unit_test(t_no_memory),
    };

    return cmocka_run_group_tests_name("opening", tests, NULL, NULL);
}
