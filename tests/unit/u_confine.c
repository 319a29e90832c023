/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's seccomp filters: which system calls they refuse and allow, each in a
 * child with the filters; the abilities of its rings; who may read the memory of a
 * process that is not dumpable.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/harden.h"
#include "daemon/worker/confine.h"

#define NO_FILTER 77
#define CHECK(e)  check((e) != 0, __LINE__)

/* For the child: prints the failed line and ends it with exit code 1. */
static void
check(int ok, int line)
{
    if (ok)
        return;
    (void)fprintf(stderr, "u_confine.c:%d: errno %d (%s)\n", line, errno, strerror(errno));
    _exit(1);
}

static int
status_of(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void
confine(enum cfn_stage last)
{
    int rc = hdn_no_new_privs();

    if (rc == 0)
        rc = cfn_filter(CFN_LOAD);
    if (rc == -ENOSYS)
        _exit(NO_FILTER);
    if (rc == 0 && last == CFN_SERVE)
        rc = cfn_filter(CFN_SERVE);
    errno = -rc;
    CHECK(rc == 0);
}

/* Runs fn in a child that is confined to a stage. Returns its wait status. */
static int
confined(enum cfn_stage stage, void (*fn)(pid_t victim), pid_t victim)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        confine(stage);
        fn(victim);
        _exit(0);
    }
    status = status_of(pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_FILTER)
        skip();
    return status;
}

/* Another process of this user. */
static pid_t
make_victim(void)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        for (;;)
            (void)pause();
    }
    return pid;
}

static void
end_victim(pid_t pid)
{
    assert_int_equal(kill(pid, 0), 0);
    (void)kill(pid, SIGKILL);
    assert_int_equal(WTERMSIG(status_of(pid)), SIGKILL);
}

#define REFUSED(e) CHECK((e) == -1 && errno == EPERM)

static void
attack_process(pid_t victim)
{
    static char byte;
    struct iovec io = { &byte, 1 };
    siginfo_t si = { .si_code = SI_QUEUE };
    struct rlimit rl = { 0, 0 };
    int pidfd = (int)syscall(434, victim, 0);

    REFUSED(ptrace(PTRACE_ATTACH, victim, NULL, NULL));
    REFUSED(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
    REFUSED(process_vm_readv(victim, &io, 1, &io, 1, 0));
    REFUSED(process_vm_writev(victim, &io, 1, &io, 1, 0));
    REFUSED(syscall(438, pidfd, 0, 0));             /* pidfd_getfd */
    REFUSED(syscall(424, pidfd, SIGTERM, NULL, 0)); /* pidfd_send_signal */
    REFUSED(syscall(440, pidfd, &io, 1, 20, 0));    /* process_madvise */
    REFUSED(syscall(448, pidfd, 0));                /* process_mrelease */
    REFUSED(syscall(SYS_kcmp, getpid(), victim, 0, 0, 0));
    REFUSED(syscall(SYS_perf_event_open, NULL, victim, -1, -1, 0));
    REFUSED(kill(victim, 0));
    REFUSED(kill(victim, SIGTERM));
    REFUSED(kill(0, SIGTERM));
    REFUSED(kill(-1, SIGTERM));
    REFUSED(kill(getppid(), SIGTERM));
    REFUSED(syscall(SYS_tkill, victim, SIGTERM));
    REFUSED(syscall(SYS_tgkill, victim, victim, SIGTERM));
    REFUSED(syscall(SYS_rt_sigqueueinfo, victim, SIGTERM, &si));
    REFUSED(syscall(SYS_rt_tgsigqueueinfo, victim, victim, SIGTERM, &si));
    REFUSED(prlimit(victim, RLIMIT_NOFILE, &rl, NULL));
}

static void
t_other_processes(void **state)
{
    pid_t victim = make_victim();

    (void)state;
    assert_int_equal(confined(CFN_LOAD, attack_process, victim), 0);
    assert_int_equal(confined(CFN_SERVE, attack_process, victim), 0);
    end_victim(victim);
}

static void
attack_sockets(pid_t victim)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    socklen_t n = sizeof(un);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), to = socket(AF_UNIX, SOCK_STREAM, 0);

    (void)victim;
    /* refused although a process listens */
    CHECK(fd >= 0 && bind(to, (struct sockaddr *)&un, sizeof(sa_family_t)) == 0);
    CHECK(listen(to, 4) == 0 && getsockname(to, (struct sockaddr *)&un, &n) == 0);
    CHECK(connect(fd, (struct sockaddr *)&un, n) == -1 && errno == ENOENT);
    REFUSED(socket(AF_INET, SOCK_STREAM, 0));
    REFUSED(socket(AF_INET6, SOCK_DGRAM, 0));
    REFUSED(socket(AF_NETLINK, SOCK_RAW, 0));
}

static void
t_sockets(void **state)
{
    (void)state;
    assert_int_equal(confined(CFN_LOAD, attack_sockets, 0), 0);
}

/* The calls that a driver, the log and a thread need. */
static void *
a_thread(void *arg)
{
    return arg;
}

static void
on_signal(int sig)
{
    (void)sig;
}

static void
use(pid_t victim)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    struct rlimit rl;
    pthread_t th;
    void *ret;
    int pair[2], fd;

    (void)victim;
    (void)signal(SIGUSR1, on_signal);
    CHECK(raise(SIGUSR1) == 0);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
    CHECK(pthread_create(&th, NULL, a_thread, &rl) == 0 && pthread_join(th, &ret) == 0);
    CHECK(ret == &rl);
    CHECK(getrlimit(RLIMIT_NOFILE, &rl) == 0 && setrlimit(RLIMIT_NOFILE, &rl) == 0);
    CHECK(prlimit(getpid(), RLIMIT_NOFILE, NULL, &rl) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0 && write(pair[0], "x", 1) == 1);
    /* an abstract name chosen by the kernel, as libcuda uses */
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&un, sizeof(sa_family_t)) == 0);
    CHECK(listen(fd, 1) == 0);
    CHECK(open("/dev/null", O_RDWR) >= 0);
}

static void
t_own_work(void **state)
{
    (void)state;
    assert_int_equal(confined(CFN_LOAD, use, 0), 0);
    assert_int_equal(confined(CFN_SERVE, use, 0), 0);
}

static void
do_abort(pid_t victim)
{
    (void)victim;
    (void)signal(SIGABRT, SIG_DFL);
    abort();
}

static void
t_abort(void **state)
{
    int status = confined(CFN_SERVE, do_abort, 0);

    (void)state;
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

/* The filter applies to all threads, older and newer ones. */
static int to_thread[2];

static void *
kills_parent(void *arg)
{
    char c;

    (void)arg;
    if (read(to_thread[0], &c, 1) != 1)
        return NULL;
    return kill(getppid(), 0) == -1 && errno == EPERM ? to_thread : NULL;
}

static void
t_all_threads(void **state)
{
    pid_t pid = fork();
    int status;

    (void)state;
    if (pid == 0) {
        pthread_t th;
        void *ret = NULL;

        CHECK(pipe(to_thread) == 0);
        CHECK(pthread_create(&th, NULL, kills_parent, NULL) == 0);
        confine(CFN_LOAD);
        CHECK(write(to_thread[1], "x", 1) == 1);
        CHECK(pthread_join(th, &ret) == 0);
        CHECK(ret == to_thread);
        _exit(0);
    }
    status = status_of(pid);
    if (WEXITSTATUS(status) == NO_FILTER)
        skip();
    assert_int_equal(status, 0);
}

static void
other_numbers(pid_t victim)
{
    (void)victim;
#if defined(__x86_64__)
    /* getpid of x32 */
    (void)syscall(0x40000000 + SYS_getpid);
#endif
}

static void
t_other_architecture(void **state)
{
    int status = confined(CFN_LOAD, other_numbers, 0);

    (void)state;
#if defined(__x86_64__)
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSYS);
#else
    assert_int_equal(status, 0);
#endif
}

/* ---- rings ------------------------------------------------------------------- */

/* Returns the result of one operation. */
static int
submit(struct io_uring *ring, struct io_uring_sqe *sqe)
{
    struct io_uring_cqe *cqe;
    int rc;

    (void)sqe;
    rc = io_uring_submit_and_wait(ring, 1);
    if (rc < 0)
        return rc;
    if (io_uring_peek_cqe(ring, &cqe) != 0)
        return -EAGAIN;
    rc = cqe->res;
    io_uring_cqe_seen(ring, cqe);
    return rc;
}

static void
t_ring_reads_only(void **state)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "/nowhere" };
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), s;
    struct io_uring_sqe *sqe;
    struct io_uring ring;
    char buf[4], path[] = "/tmp/u_confine.XXXXXX";

    (void)state;
    if (cfn_ring_open(&ring, 4) != 0)
        skip();
    sqe = io_uring_get_sqe(&ring);
    io_uring_prep_read(sqe, fd, buf, sizeof(buf), 0);
    assert_int_equal(submit(&ring, sqe), sizeof(buf));
    assert_memory_equal(buf, "\177ELF", 4);

    sqe = io_uring_get_sqe(&ring);
    io_uring_prep_openat(sqe, AT_FDCWD, "/dev/null", O_RDONLY, 0);
    assert_int_equal(submit(&ring, sqe), -EACCES);
    s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sqe = io_uring_get_sqe(&ring);
    io_uring_prep_connect(sqe, s, (struct sockaddr *)&un, sizeof(un));
    assert_int_equal(submit(&ring, sqe), -EACCES);
    (void)close(s);
    s = mkstemp(path);
    (void)unlink(path);
    sqe = io_uring_get_sqe(&ring);
    io_uring_prep_write(sqe, s, "x", 1, 0);
    assert_int_equal(submit(&ring, sqe), -EACCES);
    assert_int_equal(lseek(s, 0, SEEK_END), 0);
    (void)close(s);
    /* nor can files be registered later */
    assert_int_equal(syscall(427, ring.ring_fd, IORING_REGISTER_FILES, &fd, 1), -1);
    assert_int_equal(errno, EACCES);
    io_uring_queue_exit(&ring);
    (void)close(fd);
}

/* A ring made before the filter reads while files are loaded, and no other ring can be
 * made; after that it reads nothing. */
static void
t_ring_under_filter(void **state)
{
    pid_t pid = fork();
    int status;

    (void)state;
    if (pid == 0) {
        int n = 0, fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        struct io_uring *ring = cfn_rings_new(3, 4, &n), more;
        struct io_uring_sqe *sqe;
        char buf[4];

        if (ring == NULL)
            _exit(NO_FILTER);
        CHECK(n == 3);
        confine(CFN_LOAD);
        sqe = io_uring_get_sqe(&ring[2]);
        io_uring_prep_read(sqe, fd, buf, sizeof(buf), 0);
        CHECK(submit(&ring[2], sqe) == (int)sizeof(buf));
        CHECK(io_uring_queue_init(4, &more, 0) == -EPERM);
        CHECK(cfn_ring_open(&more, 4) == -EPERM);
        CHECK(cfn_filter(CFN_SERVE) == 0);
        sqe = io_uring_get_sqe(&ring[2]);
        io_uring_prep_read(sqe, fd, buf, sizeof(buf), 0);
        CHECK(submit(&ring[2], sqe) == -EPERM);
        REFUSED(execl("/bin/true", "true", (char *)NULL));
        CHECK(cfn_rings_free(ring, n) == NULL);
        _exit(0);
    }
    status = status_of(pid);
    if (WEXITSTATUS(status) == NO_FILTER)
        skip();
    assert_int_equal(status, 0);
}

/* ---- the process itself -------------------------------------------------------- */

static void
t_no_new_privs(void **state)
{
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        CHECK(hdn_no_new_privs() == 0);
        CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
        _exit(0);
    }
    assert_int_equal(status_of(pid), 0);
}

static void
t_no_dump(void **state)
{
    pid_t pid = fork();
    struct rlimit core = { RLIM_INFINITY, RLIM_INFINITY };
    int status;

    (void)state;
    if (pid == 0) {
        (void)setrlimit(RLIMIT_CORE, &core);
        CHECK(hdn_no_dump() == 0);
        CHECK(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0);
        (void)signal(SIGABRT, SIG_DFL);
        abort();
    }
    status = status_of(pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_false(WCOREDUMP(status));
}

/* Each call adds 600 to oom_score_adj, at most up to 1000. */
static void
t_oom(void **state)
{
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        FILE *fp = fopen("/proc/self/oom_score_adj", "r");
        int was = -1, is = -1;

        if (fp == NULL || fscanf(fp, "%d", &was) != 1)
            _exit(0);
        (void)fclose(fp);
        for (int i = 0; i < 3; i++) {
            cfn_oom_raise();
            was = was + 600 > 1000 ? 1000 : was + 600;
            fp = fopen("/proc/self/oom_score_adj", "r");
            CHECK(fp != NULL && fscanf(fp, "%d", &is) == 1);
            (void)fclose(fp);
            CHECK(is == was);
        }
        _exit(0);
    }
    assert_int_equal(status_of(pid), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_other_processes),
        cmocka_unit_test(t_sockets),
        cmocka_unit_test(t_own_work),
        cmocka_unit_test(t_abort),
        cmocka_unit_test(t_all_threads),
        cmocka_unit_test(t_other_architecture),
        cmocka_unit_test(t_ring_reads_only),
        cmocka_unit_test(t_ring_under_filter),
        cmocka_unit_test(t_no_new_privs),
        cmocka_unit_test(t_no_dump),
        cmocka_unit_test(t_oom),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
