/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Calls that sleep are made by helper threads while the caller goes on. A call that would
 * sleep for ever does not delay the next ones, and is ended. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/gate/memfile.h"
#include "daemon/gate/offloop.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#define LEFT_ALONE(p) __lsan_ignore_object(p)
#else
#define LEFT_ALONE(p) (void)(p)
#endif

#define LINGER_S 5           /* three of them in turn take longer than WAIT_NS */
#define CALL_NS  (1 * CLK_S) /* far below the time of a lingering close */
#define WAIT_NS  (10 * CLK_S)

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static int seals_wait; /* set: sealing does not end */

/* Replaces libc's function. */
int
fcntl(int fd, int cmd, ...)
{
    va_list ap;
    long arg;

    va_start(ap, cmd);
    arg = va_arg(ap, long);
    va_end(ap);
    while (cmd == F_ADD_SEALS && (arg & F_SEAL_FUTURE_WRITE) != 0 &&
        __atomic_load_n(&seals_wait, __ATOMIC_ACQUIRE))
        clk_sleep_ns(CLK_MS);
    return (int)syscall(SYS_fcntl, fd, cmd, arg);
}

static int
is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void
until_done(const struct ofl *o)
{
    uint64_t end = clk_now_ns() + WAIT_NS;
    struct ofl_count c;

    for (;;) {
        ofl_count(o, &c);
        if (c.done == c.put)
            return;
        if (clk_now_ns() > end)
            fail_msg("%llu of %llu jobs after %d s", (unsigned long long)c.done,
                (unsigned long long)c.put, (int)(WAIT_NS / CLK_S));
        clk_sleep_ns(CLK_MS);
    }
}

/* Returns a connected TCP socket whose data is not read: its close sleeps. */
static int
lingering(int *ret_listener)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct linger l = { .l_onoff = 1, .l_linger = LINGER_S };
    static const char junk[1 << 16];
    socklen_t len = sizeof(a);
    int small = 4096, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || to < 0)
        skip(); /* no TCP here */
    (void)setsockopt(to, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    if (bind(to, (struct sockaddr *)&a, sizeof(a)) != 0 || listen(to, 4) != 0 ||
        getsockname(to, (struct sockaddr *)&a, &len) != 0 ||
        connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0)
        skip();
    while (send(fd, junk, sizeof(junk), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        continue;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)), 0);
    *ret_listener = to;
    return fd;
}

/* Returns the daemon's end of a UNIX socket in whose queue n lingering sockets wait. */
static int
trap(int n, int *ret_keep)
{
    union {
        struct cmsghdr h;
        char room[CMSG_SPACE(sizeof(int))];
    } ctl;
    struct iovec io = { (char *)(uintptr_t) "x", 1 };
    struct msghdr m = { .msg_iov = &io,
        .msg_iovlen = 1,
        .msg_control = &ctl,
        .msg_controllen = sizeof(ctl) };
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    for (int i = 0; i < n; i++) {
        int fd = lingering(&ret_keep[i]);

        memset(&ctl, 0, sizeof(ctl));
        ctl.h.cmsg_level = SOL_SOCKET;
        ctl.h.cmsg_type = SCM_RIGHTS;
        ctl.h.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&ctl.h), &fd, sizeof(fd));
        assert_int_equal(sendmsg(pair[0], &m, MSG_NOSIGNAL), 1);
        /* the one in the queue is the last reference */
        (void)close(fd);
    }
    ret_keep[n] = pair[0];
    return pair[1];
}

static void
t_close(void **state)
{
    struct ofl *o = ofl_new(8);
    int pair[2];

    (void)state;
    assert_non_null(o);
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    assert_int_equal(ofl_close(o, pair[0]), 0);
    assert_int_equal(ofl_close(o, -1), 0);
    until_done(o);
    assert_false(is_open(pair[0]));
    assert_true(is_open(pair[1]));
    (void)close(pair[1]);
    assert_null(ofl_free(o, WAIT_NS));
}

/* Without threads the call itself does the job. */
static void
t_no_thread(void **state)
{
    struct ofl_count c;
    int pair[2];

    (void)state;
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    assert_int_equal(ofl_close(NULL, pair[0]), 0);
    assert_int_equal(ofl_close(NULL, pair[1]), 0);
    assert_false(is_open(pair[0]));
    ofl_count(NULL, &c);
    assert_int_equal(c.put, 0);
    assert_null(ofl_free(NULL, 0));
}

/* A client's trap: the caller goes on at once, other descriptors are closed meanwhile,
 * and the close that would last LINGER_S ends much earlier. */
static void
t_linger(void **state)
{
    struct ofl *o = ofl_new(64);
    struct ofl_count c;
    uint64_t t0, t;
    int keep[4], fd, pair[2];

    (void)state;
    assert_non_null(o);
    fd = trap(3, keep);
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    t0 = clk_now_ns();
    assert_int_equal(ofl_close(o, fd), 0);
    assert_int_equal(ofl_close(o, pair[0]), 0);
    t = clk_now_ns() - t0;
    if (t > CALL_NS)
        fail_msg("two calls took %llu us", (unsigned long long)(t / CLK_US));
    t0 = clk_now_ns();
    while (is_open(pair[0]) && clk_now_ns() - t0 < WAIT_NS)
        clk_sleep_ns(CLK_MS);
    assert_false(is_open(pair[0]));
    until_done(o);
    ofl_count(o, &c);
    assert_true(c.interrupted >= 1);
    assert_int_equal(c.threads, OFL_THREADS);
    for (int i = 0; i < 4; i++)
        (void)close(keep[i]);
    (void)close(pair[1]);
    assert_null(ofl_free(o, WAIT_NS));
}

/* A job that never ends: other threads do the other jobs, at some time the queue
 * fills, and that is reported. */
static void
t_hang(void **state)
{
    struct ofl *o = ofl_new(64);
    struct ofl_count c;
    pid_t hung[OFL_THREADS];
    int pair[2], n = 0;

    (void)state;
    assert_non_null(o);
    for (int i = 0; i < OFL_THREADS - 1; i++) {
        hung[i] = fork();
        if (hung[i] == 0) {
            for (;;)
                (void)pause();
        }
        assert_int_equal(ofl_reap(o, hung[i], NULL), 0);
    }
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    assert_int_equal(ofl_close(o, pair[0]), 0);
    for (uint64_t t0 = clk_now_ns(); is_open(pair[0]); clk_sleep_ns(CLK_MS))
        assert_true(clk_now_ns() - t0 < WAIT_NS);
    /* now all threads hang */
    hung[OFL_THREADS - 1] = fork();
    if (hung[OFL_THREADS - 1] == 0) {
        for (;;)
            (void)pause();
    }
    assert_int_equal(ofl_reap(o, hung[OFL_THREADS - 1], NULL), 0);
    for (uint64_t t0 = clk_now_ns(); clk_now_ns() - t0 < WAIT_NS; clk_sleep_ns(CLK_MS)) {
        ofl_count(o, &c);
        if (c.busy == OFL_THREADS)
            break;
    }
    assert_int_equal(c.busy, OFL_THREADS);
    assert_int_equal(c.threads, OFL_THREADS);
    while (ofl_close(o, pair[1]) == 0 && n < 1000)
        pair[1] = dup(2), n++;
    assert_int_equal(n, 64);
    assert_int_equal(ofl_close(o, pair[1]), -EAGAIN);
    assert_true(is_open(pair[1]));
    ofl_count(o, &c);
    assert_int_equal(c.refused, 2);
    for (int i = 0; i < OFL_THREADS; i++)
        (void)kill(hung[i], SIGKILL);
    until_done(o);
    assert_int_equal(ofl_close(o, pair[1]), 0);
    assert_null(ofl_free(o, WAIT_NS));
    assert_false(is_open(pair[1]));
}

/* Seals that hang, as a client can arrange, leave threads for other jobs. */
static void
t_seals_hang(void **state)
{
    struct ofl *o = ofl_new(64);
    struct memfiles m = { .c2d = { .kind = MEMFILE_THEIRS, .bytes = 65536 },
        .d2c = { .kind = MEMFILE_OURS, .bytes = 65536 } };
    struct ofl_exit e = { 0 };
    struct ofl_ret seal[OFL_THREADS], late, made;
    uint32_t n_user[OFL_THREADS] = { 0 };
    uint64_t end = clk_now_ns() + WAIT_NS;
    pid_t pid;
    int fd = memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING), n = 0;

    (void)state;
    memset(seal, 0, sizeof(seal));
    memset(&late, 0, sizeof(late));
    memset(&made, 0, sizeof(made));
    seals_wait = 1;
    for (int i = 0; i < OFL_THREADS; i++) {
        int rc = ofl_seal(o, fd, &n_user[i / OFL_SEALS_USER], &seal[i]);

        assert_int_equal(rc, i < OFL_SEALS ? 0 : -EBUSY);
        n += rc == 0;
        if ((i + 1) % OFL_SEALS_USER == 0 && i < OFL_SEALS)
            assert_int_equal(ofl_seal(o, fd, &n_user[i / OFL_SEALS_USER], &late), -EBUSY);
    }
    assert_int_equal(ofl_make(o, &m, &made), 0);
    pid = fork();
    if (pid == 0)
        _exit(3);
    assert_int_equal(ofl_reap(o, pid, &e), 0);
    while (
        (ofl_rc(&made) == -EINPROGRESS || !__atomic_load_n(&e.is_done, __ATOMIC_ACQUIRE)) &&
        clk_now_ns() < end)
        clk_sleep_ns(CLK_MS);
    assert_int_equal(ofl_rc(&made), 0);
    assert_int_equal(e.status, 3);
    for (int i = 0; i < n; i++)
        assert_int_equal(ofl_rc(&seal[i]), -EINPROGRESS);
    __atomic_store_n(&seals_wait, 0, __ATOMIC_RELEASE);
    until_done(o);
    for (int i = 0; i < OFL_THREADS; i++)
        assert_int_equal(n_user[i], 0);
    assert_int_equal(ofl_seal(o, fd, &n_user[0], &late), 0);
    until_done(o);
    memfile_close(&m.c2d);
    memfile_close(&m.d2c);
    (void)close(m.bell);
    (void)close(fd);
    assert_null(ofl_free(o, WAIT_NS));
}

static void
t_reap(void **state)
{
    struct ofl *o = ofl_new(8);
    pid_t pid = fork();

    (void)state;
    assert_non_null(o);
    if (pid == 0)
        _exit(3);
    assert_int_equal(ofl_reap(o, pid, NULL), 0);
    until_done(o);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_null(ofl_free(o, WAIT_NS));
}

/* Frees all pages of a file, even while it is mapped; its descriptor stays open. */
static void
t_punch(void **state)
{
    size_t bytes = (9u << 20) + 4096;
    struct ofl *o = ofl_new(8);
    int fd = memfd_create("t", MFD_CLOEXEC);
    uint32_t is_done = 0;
    struct stat st;
    char *p;

    (void)state;
    assert_non_null(o);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    memset(p, 1, bytes);
    assert_int_equal(ofl_punch(o, fd, bytes, &is_done), 0);
    until_done(o);
    assert_int_equal(is_done, 1);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_blocks, 0);
    assert_int_equal(st.st_size, bytes);
    assert_int_equal(p[bytes - 1], 0);
    assert_int_equal(munmap(p, bytes), 0);
    assert_int_equal(close(fd), 0);
    assert_null(ofl_free(o, WAIT_NS));
}

/* Jobs queued before the end are done; a job that hangs does not delay the end. */
static void
t_end(void **state)
{
    struct ofl *o = ofl_new(512);
    int fds[400];
    uint64_t t0;
    pid_t pid;

    (void)state;
    for (int i = 0; i < 400; i++)
        fds[i] = dup(2);
    for (int i = 0; i < 400; i++)
        assert_int_equal(ofl_close(o, fds[i]), 0);
    assert_null(ofl_free(o, WAIT_NS));
    for (int i = 0; i < 400; i++)
        assert_false(is_open(fds[i]));
    o = ofl_new(8);
    pid = fork();
    if (pid == 0) {
        for (;;)
            (void)pause();
    }
    assert_int_equal(ofl_reap(o, pid, NULL), 0);
    LEFT_ALONE(o); /* a hanging thread keeps the memory it uses */
    t0 = clk_now_ns();
    assert_null(ofl_free(o, 50 * CLK_MS));
    assert_true(clk_now_ns() - t0 < 5 * CLK_S);
    (void)kill(pid, SIGKILL);
}

/* Many jobs from one caller are done by all threads, each once. */
static void
t_many(void **state)
{
    struct ofl *o = ofl_new(64);
    struct ofl_count c;
    uint64_t n = 0;

    (void)state;
    assert_non_null(o);
    for (int i = 0; i < 20000; i++) {
        int fd = dup(2);

        assert_true(fd >= 0);
        while (ofl_close(o, fd) != 0)
            clk_sleep_ns(10 * CLK_US);
        n++;
    }
    until_done(o);
    ofl_count(o, &c);
    assert_int_equal(c.put, n);
    assert_int_equal(c.done, n);
    assert_int_equal(c.threads, OFL_THREADS);
    assert_null(ofl_free(o, WAIT_NS));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_close),
        cmocka_unit_test(t_no_thread),
        cmocka_unit_test(t_linger),
        cmocka_unit_test(t_hang),
        cmocka_unit_test(t_seals_hang),
        cmocka_unit_test(t_reap),
        cmocka_unit_test(t_punch),
        cmocka_unit_test(t_end),
        cmocka_unit_test(t_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
