/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that clients pass: the loop neither takes them over nor waits
 * for their last close. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/gate/offloop.h"
#include "daemon/gate/peer.h"
#include "tests/unit/gate_fixture.h"

#define LINGER_S 4
#define CALL_NS  (500 * CLK_MS) /* far below LINGER_S, above a busy machine's delays */

/* Returns a connected TCP socket with data that no process reads: its close sleeps. */
static int
lingering(void)
{
    static int to = -1;
    static const char junk[1 << 16];
    struct sockaddr_in a = { .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct linger l = { .l_onoff = 1, .l_linger = LINGER_S };
    socklen_t len = sizeof(a);
    int small = 4096, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (to < 0) {
        to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (to < 0)
            skip(); /* no TCP here */
        (void)setsockopt(to, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
        if (bind(to, (struct sockaddr *)&a, sizeof(a)) != 0 || listen(to, 16) != 0)
            skip();
    }
    if (fd < 0 || getsockname(to, (struct sockaddr *)&a, &len) != 0 ||
        connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0)
        skip();
    while (send(fd, junk, sizeof(junk), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        continue;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)), 0);
    return fd;
}

/* Sends fd and drops the last own reference to it. Returns the result of sendmsg(). */
static ssize_t
pass(int sock, const void *p, size_t n, int fd)
{
    union {
        struct cmsghdr h;
        char room[CMSG_SPACE(sizeof(int))];
    } ctl;
    struct iovec io = { (void *)(uintptr_t)p, n };
    struct msghdr m = { .msg_iov = &io,
        .msg_iovlen = 1,
        .msg_control = &ctl,
        .msg_controllen = sizeof(ctl) };
    ssize_t rc;

    memset(&ctl, 0, sizeof(ctl));
    ctl.h.cmsg_level = SOL_SOCKET;
    ctl.h.cmsg_type = SCM_RIGHTS;
    ctl.h.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&ctl.h), &fd, sizeof(fd));
    rc = sendmsg(sock, &m, MSG_NOSIGNAL);
    (void)close(fd);
    return rc;
}

static void
t_recv(void **state)
{
    int types[] = { SOCK_STREAM, SOCK_SEQPACKET };

    (void)state;
    for (int i = 0; i < 2; i++) {
        char buf[16];
        int sv[2];

        assert_int_equal(socketpair(AF_UNIX, types[i], 0, sv), 0);
        assert_int_equal(peer_recv(sv[0], buf, sizeof(buf)), -1);
        assert_int_equal(errno, EAGAIN);
        assert_int_equal(send(sv[1], "abc", 3, 0), 3);
        assert_int_equal(pass(sv[1], "def", 3, dup(sv[1])), 3);
        if (types[i] == SOCK_SEQPACKET) {
            assert_int_equal(peer_recv(sv[0], buf, sizeof(buf)), 3);
            assert_memory_equal(buf, "abc", 3);
        }
        /* the descriptor is not received, so the second time is the same */
        for (int k = 0; k < 2; k++) {
            errno = 0;
            assert_int_equal(peer_recv(sv[0], buf, sizeof(buf)), -1);
            assert_int_equal(errno, EBADMSG);
        }
        (void)close(sv[1]);
        (void)close(sv[0]);
        assert_int_equal(socketpair(AF_UNIX, types[i], 0, sv), 0);
        (void)close(sv[1]);
        assert_int_equal(peer_recv(sv[0], buf, sizeof(buf)), 0);
        (void)close(sv[0]);
    }
}

/* Accepted sockets receive no descriptors, if the kernel supports that. */
static void
t_forbid(void **state)
{
    int types[] = { SOCK_STREAM, SOCK_SEQPACKET };

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct sockaddr_un sa = { .sun_family = AF_UNIX };
        int l = socket(AF_UNIX, types[i], 0), c = socket(AF_UNIX, types[i], 0), rc;
        socklen_t len = sizeof(sa);

        assert_int_equal(bind(l, (struct sockaddr *)&sa, sizeof(sa_family_t)), 0);
        assert_int_equal(getsockname(l, (struct sockaddr *)&sa, &len), 0);
        rc = peer_forbid_fds(l);
        if (rc == -ENOPROTOOPT)
            skip(); /* Linux before 6.16 */
        assert_int_equal(rc, 0);
        assert_int_equal(listen(l, 1), 0);
        assert_int_equal(connect(c, (struct sockaddr *)&sa, len), 0);
        assert_int_equal(pass(c, "x", 1, dup(c)), -1);
        assert_int_equal(errno, EPERM);
        assert_int_equal(send(c, "x", 1, 0), 1);
        (void)close(c);
        (void)close(l);
    }
}

/* Runs iterations of the loop; none may wait. */
static void
rounds(struct fix *f)
{
    for (int i = 0; i < 5; i++) {
        uint64_t t = clk_now_ns();

        (void)gate_events(f->g, 0);
        fix_step(f, 100);
        assert_true(clk_now_ns() - t < CALL_NS);
    }
}

/* The helper gets one more job, which ends long after the loop went on. */
static void
slept_elsewhere(struct fix *f)
{
    struct ofl_count c;
    uint64_t end = clk_now_ns() + 20 * CLK_S;

    do {
        ofl_count(f->g->ofl, &c);
        clk_sleep_ns(CLK_MS);
    } while (c.done < c.put && clk_now_ns() < end);
    assert_int_equal(c.done, c.put);
    assert_true(c.interrupted > 0);
}

/* Descriptors in the hello, after it, and to a daemon that refuses the session. */
static void
t_session(void **state)
{
    static const char *const sets[] = { "ipc.max_clients_per_user=1", NULL };
    struct fdp_hello h;

    (void)state;
    fcl_hello(&h);
    for (int how = 0; how < 3; how++) {
        struct fix f;
        struct fcl c;
        int sv[2];

        fix_open(&f, sets);
        f.g->ofl = f.g->ses.ofl = ofl_new(64);
        assert_non_null(f.g->ofl);
        assert_int_equal(socketpair(AF_UNIX,
                             SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv),
            0);
        if (how == 0) {
            assert_true(pass(sv[1], &h, sizeof(h), lingering()) > 0);
            assert_int_equal(ses_adopt(&f.g->ses, sv[0], 1, 1000, 1000), 0);
        } else {
            assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
            assert_true(pass(how == 1 ? c.fd : sv[1], "x", 1, lingering()) > 0);
            if (how == 2) {
                uint64_t t = clk_now_ns();

                assert_int_not_equal(ses_adopt(&f.g->ses, sv[0], 1, 1000, 1000), 0);
                assert_true(clk_now_ns() - t < CALL_NS);
            }
        }
        rounds(&f);
        assert_int_equal(f.g->ses.n, how == 2);
        slept_elsewhere(&f);
        (void)close(sv[1]);
        if (how != 0)
            fcl_close(&c);
        rounds(&f);
        fix_close(&f);
    }
}

/* On the admin socket, from a client that is served and from one that is refused. */
static void
t_admin(void **state)
{
    (void)state;
    for (uid_t uid = 0; uid <= 1000; uid += 1000) {
        uint64_t t;
        struct fix f;
        char buf[1024];
        int sv[2], rc;

        fix_open(&f, NULL);
        f.g->ofl = f.g->ctl.ofl = ofl_new(64);
        assert_non_null(f.g->ofl);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                             0, sv),
            0);
        assert_true(pass(sv[1], "x", 1, lingering()) > 0);
        t = clk_now_ns();
        rc = ctl_adopt(&f.g->ctl, sv[0], 1, uid, uid + 54321, f.now);
        assert_int_equal(rc != 0, uid != 0);
        assert_true(clk_now_ns() - t < CALL_NS);
        rounds(&f);
        slept_elsewhere(&f);
        while (recv(sv[1], buf, sizeof(buf), MSG_DONTWAIT) > 0)
            continue;
        assert_int_not_equal(errno, EAGAIN); /* closed */
        (void)close(sv[1]);
        fix_close(&f);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_recv),
        cmocka_unit_test(t_forbid),
        cmocka_unit_test(t_session),
        cmocka_unit_test(t_admin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
