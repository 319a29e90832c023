/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The gate's segments: the descriptor that a peer of the admin socket gets,
 * and how the peer can use it. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/trace.h"
#include "daemon/gate/statseg.h"
#include "tests/unit/count_fds.h"
#include "tests/unit/gate_fixture.h"

#define READERS 71000
#define ADMINS  72000

static int
dial(struct fix *f, gid_t gid)
{
    int sv[2];

    f->g->rt.group = READERS;
    f->g->rt.admin_group = ADMINS;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
    (void)ctl_adopt(&f->g->ctl, sv[0], 4711, 5000, gid, f->now);
    return sv[1];
}

/* Reads the next bytes of the replies, and the descriptor that came with them or -1. */
static size_t
take(int fd, char *text, size_t text_bytes, int *ret_fd)
{
    char ctl[CMSG_SPACE(sizeof(int) * 4)] __attribute__((aligned(8)));
    struct iovec iov = { text, text_bytes - 1 };
    struct msghdr m = { .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = ctl,
        .msg_controllen = sizeof(ctl) };
    ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *h;

    *ret_fd = -1;
    if (n < 0)
        return 0;
    text[n] = '\0';
    h = CMSG_FIRSTHDR(&m);
    if (h != NULL && h->cmsg_type == SCM_RIGHTS) {
        assert_int_equal(h->cmsg_len, CMSG_LEN(sizeof(int)));
        memcpy(ret_fd, CMSG_DATA(h), sizeof(int));
    }
    return (size_t)n;
}

static void
say(struct fix *f, int fd, const char *lines)
{
    assert_int_equal(send(fd, lines, strlen(lines), 0), (ssize_t)strlen(lines));
    for (int i = 0; i < 4; i++)
        fix_step(f, 1000); /* a reader's next command has to wait for its turn */
}

/* The segment can only be read. */
static void
reads_only(int fd, size_t bytes, uint32_t magic)
{
    const uint32_t *p;

    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    assert_ptr_equal(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
        MAP_FAILED);
    p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    assert_int_equal(p[0], magic);
    assert_int_equal(mprotect((void *)(uintptr_t)p, bytes, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(munmap((void *)(uintptr_t)p, bytes), 0);
}

static void
test_who_gets_what(void **state)
{
    char text[4096];
    struct fix f;
    int fd, got;

    (void)state;
    fix_open(&f, NULL);
    fd = dial(&f, 5000);
    assert_true(take(fd, text, sizeof(text), &got) > 0);
    assert_non_null(strstr(text, "may not use"));
    assert_int_equal(got, -1);
    (void)close(fd);
    fd = dial(&f, READERS);
    say(&f, fd, "{\"cmd\":\"stat_fd\"}\n");
    assert_true(take(fd, text, sizeof(text), &got) > 0);
    assert_non_null(strstr(text, "\"ok\":true"));
    reads_only(got, sizeof(struct cnt_seg), CNT_MAGIC);
    (void)close(got);
    say(&f, fd, "{\"cmd\":\"trace_fd\"}\n");
    assert_true(take(fd, text, sizeof(text), &got) > 0);
    assert_non_null(strstr(text, "may not use"));
    assert_int_equal(got, -1);
    (void)close(fd);
    fd = dial(&f, ADMINS);
    say(&f, fd, "{\"cmd\":\"trace_fd\"}\n");
    assert_true(take(fd, text, sizeof(text), &got) > 0);
    reads_only(got, sizeof(struct trc_seg), TRC_MAGIC);
    (void)close(got);
    (void)close(fd);
    fix_step(&f, 0);
    fix_close(&f);
}

/* Earlier replies come without the descriptor, and a second one is not sent
 * before the first has been read. */
static void
test_one_on_its_way(void **state)
{
    char text[65536];
    struct fix f;
    int fd, got, other;

    (void)state;
    fix_open(&f, NULL);
    fd = dial(&f, READERS);
    say(&f, fd, "{\"cmd\":\"help\"}\n");
    do {
        assert_int_equal(take(fd, text, 2, &got), 1);
        assert_int_equal(got, -1);
    } while (text[0] != '\n');
    say(&f, fd, "{\"cmd\":\"stat_fd\"}\n{\"cmd\":\"stat_fd\"}\n");
    assert_true(take(fd, text, sizeof(text), &got) > 0);
    assert_int_equal(strncmp(text, "{\"ok\":true,\"bytes\":", 18), 0);
    assert_true(got >= 0);
    (void)close(got);
    if (strstr(text, "earlier replies have been read") == NULL)
        assert_true(take(fd, text, sizeof(text), &other) > 0);
    assert_non_null(strstr(text, "earlier replies have been read"));
    assert_int_equal(take(fd, text, sizeof(text), &other), 0);
    say(&f, fd, "{\"cmd\":\"stat_fd\"}\n");
    say(&f, fd, "{\"cmd\":\"stat_fd\"}\n");
    assert_true(take(fd, text, sizeof(text), &got) > 0);
    assert_true(got >= 0);
    (void)close(got);
    (void)take(fd, text, sizeof(text), &got);
    assert_int_equal(got, -1);
    (void)close(fd);
    fix_step(&f, 0);
    fix_close(&f);
}

/* A peer that goes away before its reply leaves no descriptor open. */
static void
test_nothing_is_left(void **state)
{
    struct fix f;
    int fd, before;

    (void)state;
    fix_open(&f, NULL);
    before = count_fds();
    for (int i = 0; i < 8; i++) {
        fd = dial(&f, READERS);
        if (i % 2 != 0) /* sends a command, and does not read the reply */
            assert_int_equal(shutdown(fd, SHUT_RD), 0);
        say(&f, fd, "{\"cmd\":\"stat_fd\"}\n{\"cmd\":\"stat_fd\"}\n");
        (void)close(fd);
        fix_step(&f, 0);
    }
    for (int i = 0; i < 1000 && count_fds() != before; i++)
        (void)usleep(1000); /* connections may be closed by a thread */
    assert_int_equal(count_fds(), before);
    fix_close(&f);
}

/* Another user who has a descriptor cannot open its file again. */
static void
test_not_opened_anew(void **state)
{
    char text[4096], path[32];
    struct stat st;
    struct fix f;
    int fd, got, status = -1;
    pid_t pid;

    (void)state;
    fix_open(&f, NULL);
    fd = dial(&f, READERS);
    say(&f, fd, "{\"cmd\":\"stat_fd\"}\n");
    assert_true(take(fd, text, sizeof(text), &got) > 0);
    assert_true(got >= 0);
    assert_int_equal(fstat(got, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0400);
    assert_int_equal(fcntl(got, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
        F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    pid = fork();
    if (pid == 0) {
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", got);
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
            _exit(2);
        if (open(path, O_RDWR) >= 0 || errno != EACCES)
            _exit(1);
        /* the owner may open it, another user can only use the descriptor */
        _exit(geteuid() == 65534 && open(path, O_RDONLY) >= 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    (void)close(got);
    (void)close(fd);
    fix_step(&f, 0);
    fix_close(&f);
}

/* The gauges equal the numbers given, and the model is named once. */
static void
test_gauges(void **state)
{
    static const uint64_t boot[2] = { 7, 8 };
    struct seg_now now = { 1, 2, 3, 4, 5, 6, 7, 8, 3, 2, 11, NULL };
    struct cnt_seg *seg;
    int fd;

    (void)state;
    assert_int_equal(seg_open(boot, 3, &seg, &fd), 0);
    assert_true(cnt_fits(seg));
    seg_tick(seg, &now);
    assert_int_equal(seg->g.uptime_ns, 1);
    assert_int_equal(seg->g.sessions, 2);
    assert_int_equal(seg->g.users, 3);
    assert_int_equal(seg->g.requests_queued, 4);
    assert_int_equal(seg->g.requests_running, 5);
    assert_int_equal(seg->g.journal_bytes, 6);
    assert_int_equal(seg->g.queued_tokens, 7);
    assert_int_equal(seg->g.service_rate, 8);
    assert_int_equal(seg->g.groups, 3);
    assert_int_equal(seg->g.groups_ready, 2);
    assert_int_equal(seg->g.placed_cached, 11);
    seg_worker(seg, 2, 10, 9);
    assert_int_equal(seg[2].generation, 9);
    assert_int_equal(seg[2].worker_pid, 10);
    assert_int_equal(seg->worker_pid, 0);
    assert_string_equal(seg->model, "");
    /* Regression: requests at a group's worker when it died counted as running, and its
     * blocks as used, until it was started again. */
    for (int i = 0; i < 3; i++) {
        cnt_set(&seg[i].w.requests_running, 3);
        cnt_set(&seg[i].w.kv_blocks_used, 15);
        cnt_set(&seg[i].w.requests_total, 20);
    }
    seg_worker_gone(seg, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cnt_get(&seg[i].w.requests_running), i == 1 ? 0 : 3);
        assert_int_equal(cnt_get(&seg[i].w.kv_blocks_used), i == 1 ? 0 : 15);
        assert_int_equal(cnt_get(&seg[i].w.requests_total), 20);
    }
    assert_int_equal(cnt_get(&seg->g.sessions), 2);
    now.model = "one";
    seg_tick(seg, &now);
    now.model = "two";
    seg_tick(seg, &now);
    assert_string_equal(seg->model, "one");
    assert_string_equal(seg[2].model, "one");
    seg->version++;
    assert_false(cnt_fits(seg));
    seg_close(seg, fd);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_gets_what),
        cmocka_unit_test(test_one_on_its_way),
        cmocka_unit_test(test_nothing_is_left),
        cmocka_unit_test(test_not_opened_anew),
        cmocka_unit_test(test_gauges),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
