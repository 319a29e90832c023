/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The lock of a device, with a second process. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/devowner.h"
#include "daemon/common/dir.h"
#include "daemon/worker/devlock.h"
#include "tests/unit/tmp_fixture.h"

#define UUID "GPU-1a2b3c4d-5e6f-7081-92a3-b4c5d6e7f809"

static char dir[128], err[1200];
static const struct dlk_owner me = { 4711, "qwen", "/run/fdd/qwen" };
static const struct dlk_owner other = { 4712, "", "/run/fdd" };

static int
setup(void **state)
{
    int rc = tmp_make(state);

    (void)snprintf(dir, sizeof(dir), "%s/fdd/devices", tmp_root);
    err[0] = '\0';
    return rc;
}

static int
take(int shared, const struct dlk_owner *o)
{
    int fd = -1, rc = dlk_take(dir, UUID, shared, o, &fd, err, sizeof(err));

    return rc != 0 ? rc : fd;
}

/* Starts a process that takes the lock and keeps it until it is killed.
 * Returns the result of taking it. */
static int
other_process(int shared, const struct dlk_owner *o, pid_t *ret_pid)
{
    int pipe_fd[2], rc = -1;

    assert_int_equal(pipe(pipe_fd), 0);
    *ret_pid = fork();
    assert_true(*ret_pid >= 0);
    if (*ret_pid == 0) {
        rc = take(shared, o);
        rc = rc >= 0 ? 0 : rc;
        if (write(pipe_fd[1], &rc, sizeof(rc)) == sizeof(rc) && rc == 0)
            for (;;)
                pause();
        _exit(0);
    }
    assert_int_equal(read(pipe_fd[0], &rc, sizeof(rc)), sizeof(rc));
    (void)close(pipe_fd[0]);
    (void)close(pipe_fd[1]);
    return rc;
}

static void
end(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void
test_misuse(void **state)
{
    static const char *const bad[] = { "", "..", "a/b", "GPU 1", "../x", "a.b" };
    char path[300];
    int fd = -7;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(dlk_take(dir, bad[i], 0, &me, &fd, err, sizeof(err)), -EINVAL);
        assert_non_null(strstr(err, "no usable UUID"));
    }
    assert_int_equal(fd, -7);
    assert_int_not_equal(access(dir, F_OK), 0);
    /* a missing parent, a file instead of the folder, a folder of another user */
    (void)snprintf(path, sizeof(path), "%s/a/b/c/devices", tmp_root);
    assert_int_equal(dlk_take(path, UUID, 0, &me, &fd, err, sizeof(err)), -ENOENT);
    assert_non_null(strstr(err, path));
    (void)snprintf(path, sizeof(path), "%s/file", tmp_root);
    fclose(fopen(path, "w"));
    assert_int_equal(dlk_take(path, UUID, 0, &me, &fd, err, sizeof(err)), -ENOTDIR);
    (void)snprintf(path, sizeof(path), "%s/open", tmp_root);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(chmod(path, 0777), 0);
    assert_int_equal(dlk_take(path, UUID, 0, &me, &fd, err, sizeof(err)), -EPERM);
    assert_non_null(strstr(err, "mode 0777"));
    dlk_drop(-1);
}

/* Another user's symbolic link instead of the file is not followed. */
static void
test_links(void **state)
{
    char path[300], victim[300];
    int fd;
    struct stat st;

    (void)state;
    fd = take(0, &me);
    assert_true(fd >= 0);
    dlk_drop(fd);
    (void)snprintf(path, sizeof(path), "%s/" UUID, dir);
    (void)snprintf(victim, sizeof(victim), "%s/victim", tmp_root);
    assert_int_equal(unlink(path), 0);
    fclose(fopen(victim, "w"));
    assert_int_equal(symlink(victim, path), 0);
    assert_int_equal(take(0, &me), -ELOOP);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(link(victim, path), 0);
    assert_int_equal(take(0, &me), -EPERM);
    assert_int_equal(stat(victim, &st), 0);
    assert_int_equal(st.st_size, 0);
}

static void
test_two(void **state)
{
    pid_t pid, pid2;
    int fd;

    (void)state;
    assert_int_equal(other_process(0, &me, &pid), 0);
    assert_int_equal(take(0, &other), -EBUSY);
    assert_non_null(strstr(err,
        "device " UUID " is taken by another fdd (pid 4711, instance "
        "qwen, in /run/fdd/qwen)"));
    assert_non_null(strstr(err, "fdctl --runtime-dir /run/fdd/qwen stop"));
    assert_non_null(strstr(err, "device.shared = yes for both"));
    assert_int_equal(take(1, &other), -EBUSY);
    assert_non_null(strstr(err, "device.shared = yes there too"));
    /* another device is free */
    assert_int_equal(dlk_take(dir, "GPU-2", 0, &other, &fd, err, sizeof(err)), 0);
    dlk_drop(fd);
    /* death by SIGKILL releases the lock */
    end(pid);
    fd = take(0, &other);
    assert_true(fd >= 0);
    assert_int_equal(other_process(0, &me, &pid2), -EBUSY);
    end(pid2);
    dlk_drop(fd);
    assert_int_equal(other_process(0, &me, &pid), 0);
    end(pid);
}

/* Checking whether a device is held does not block a daemon that takes it. */
static void
test_looked_at(void **state)
{
    char path[300];
    struct dow o;
    pid_t pid;
    int fd, looker;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/" UUID, dir);
    assert_int_equal(dow_look(path, &o), -ENOENT);
    fd = take(0, &me);
    assert_true(fd >= 0);
    assert_int_equal(dow_look(path, &o), 1);
    assert_int_equal(o.pid, 4711);
    assert_string_equal(o.instance, "qwen");
    assert_string_equal(o.home, "/run/fdd/qwen");
    dlk_drop(fd);
    assert_int_equal(dow_look(path, &o), 0);
    looker = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(looker, LOCK_EX), 0);
    pid = fork();
    if (pid == 0) {
        (void)usleep(15000);
        (void)flock(looker, LOCK_UN);
        _exit(0);
    }
    fd = take(0, &me);
    assert_true(fd >= 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(looker);
    dlk_drop(fd);
}

static void
test_shared(void **state)
{
    pid_t pid;
    int fd;

    (void)state;
    assert_int_equal(other_process(1, &other, &pid), 0);
    assert_int_equal(take(0, &me), -EBUSY);
    assert_non_null(strstr(err, "pid 4712, no instance, in /run/fdd)"));
    fd = take(1, &me);
    assert_true(fd >= 0);
    end(pid);
    /* one of two has ended: the other still holds it */
    assert_int_equal(other_process(0, &other, &pid), -EBUSY);
    end(pid);
    dlk_drop(fd);
    assert_int_equal(other_process(0, &other, &pid), 0);
    end(pid);
}

static mode_t
mode_of(const char *name)
{
    char path[300];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

/* Another user cannot open the file, since he could then keep it locked, but
 * still learns who has the device. This also holds for a file left by a
 * version that let him open it. */
static void
test_strangers(void **state)
{
    char path[300];
    mode_t old;
    struct dow o;
    pid_t pid;
    int fd, status;

    (void)state;
    assert_int_equal(dir_make(dir, 1), 0);
    old = umask(077);
    fd = take(0, &me);
    (void)umask(old);
    assert_true(fd >= 0);
    assert_int_equal(mode_of(UUID), 0600);
    assert_int_equal(mode_of(UUID DOW_SUFFIX), 0644);
    dlk_drop(fd);
    (void)snprintf(path, sizeof(path), "%s/" UUID, dir);
    assert_int_equal(chmod(path, 0644), 0);
    fd = take(0, &(struct dlk_owner){ getpid(), "qwen", "/run/fdd/qwen" });
    assert_true(fd >= 0);
    assert_int_equal(mode_of(UUID), 0600);
    if (geteuid() != 0)
        goto drop;
    assert_int_equal(chmod(tmp_root, 0755), 0);
    pid = fork();
    if (pid == 0) { /* this process is not an fdd, so it is not taken for the holder */
        if (setgid(65534) != 0 || setuid(65534) != 0)
            _exit(1);
        if (open(path, O_RDONLY) >= 0 || errno != EACCES)
            _exit(2);
        dow_read(path, &o);
        _exit(o.pid != getppid() ? 3 : dow_look(path, &o) != 0 ? 4 : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
drop:
    dlk_drop(fd);
}

/* Programs that are started do not inherit the descriptor. */
static void
test_cloexec(void **state)
{
    int fd;

    (void)state;
    fd = take(0, &me);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    dlk_drop(fd);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, tmp_drop)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_misuse),
        T(test_links),
        T(test_two),
        T(test_shared),
        T(test_cloexec),
        T(test_looked_at),
        T(test_strangers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
