/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/lib/fct.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "daemon/common/mem.h"

/* Longest wait for the gate's answer; short for root, who may read the gate's files. */
#define SEG_ASK_MS  5000
#define SEG_ROOT_MS 500

struct segment {
    const char *what; /* name in messages */
    const char *cmd;  /* admin request that returns its descriptor */
    const char *link; /* target of its link in /proc/PID/fd */
    int is_trace;
    uint32_t group; /* the trace's group; all groups' links are equal */
};

/* Map the segment of fd; a trace segment has its group in it, which must be the right
 * one. ret is a pointer to the pointer to the segment, also below. */
static int
look(const struct segment *s, int fd, void *ret)
{
    const struct trc_seg *trace;
    int rc = s->is_trace ? trc_look(fd, &trace) : cnt_look(fd, ret);

    if (rc != 0 || !s->is_trace)
        return rc;
    if (trace->group == s->group) {
        *(const struct trc_seg **)ret = trace;
        return 0;
    }
    trc_leave((struct trc_seg *)(uintptr_t)trace);
    return -ENOENT;
}

/* Has the process of this folder in /proc the effective user uid? The folder's owner does
 * not tell: it is root if the process is not dumpable. */
static int
acts_as(int proc, uid_t uid)
{
    char text[2048];
    const char *p;
    unsigned long real, effective;
    int fd = openat(proc, "status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

    if (fd >= 0)
        close(fd);
    if (n < 0)
        return 0;
    text[n] = '\0';
    p = strstr(text, "\nUid:");
    return p != NULL && sscanf(p + 5, "%lu %lu", &real, &effective) == 2 &&
        effective == (unsigned long)uid;
}

/* Look for the segment in dir, a process's fd folder (-1: none). Only links to the memfd
 * are opened, since opening a device or a FIFO may have side effects. */
static int
look_in(int dir, const struct segment *s, void *ret)
{
    DIR *d = dir >= 0 ? fdopendir(dir) : NULL;
    struct dirent *e;
    char link[64];
    int rc = -ENOENT, fd;

    while (d != NULL && rc != 0 && (e = readdir(d)) != NULL) {
        ssize_t n = readlinkat(dir, e->d_name, link, sizeof(link));

        if (n != (ssize_t)strlen(s->link) || memcmp(link, s->link, (size_t)n) != 0)
            continue;
        fd = openat(dir, e->d_name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0)
            continue;
        rc = look(s, fd, ret);
        close(fd);
    }
    if (d != NULL)
        closedir(d);
    else if (dir >= 0)
        close(dir);
    return rc;
}

/* Find and map the segment. Returns 0 or -errno; -EBUSY: the daemon refused it, why. */
static int
find(const struct fct *f, const struct segment *s, int timeout_ms, void *ret,
    char *ret_why, size_t why_bytes)
{
    int fd = fct_ask_fd(f, s->cmd, s->group, timeout_ms, ret_why, why_bytes);
    int rc = fd, seen = -ENOENT;
    struct stat st;
    char path[32];
    pid_t pid;

    if (fd >= 0) {
        rc = look(s, fd, ret);
        close(fd);
        return rc;
    }
    if (rc == -EACCES || rc == -EPERM)
        return rc;
    /* The process named in the runtime folder's fdd.pid, if it runs as the folder's
     * owner. The open folder refers to it even if its pid is used again. */
    pid = fct_daemon_pid(f);
    snprintf(path, sizeof(path), "/proc/%ld", (long)pid);
    fd = pid > 0 && stat(f->dir, &st) == 0
        ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC)
        : -1;
    if (fd >= 0 && acts_as(fd, st.st_uid))
        seen = look_in(openat(fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC), s, ret);
    if (fd >= 0)
        close(fd);
    if (seen == 0)
        return 0;
    return rc == -ECONNREFUSED || rc == -EPIPE || rc == -ECONNRESET ? -ENOENT : rc;
}

/* Map the segment. Returns 0, or -errno if timeout_ms is not 0, else an exit code. */
static int
map(const struct fct *f, const struct segment *s, int timeout_ms, void *ret)
{
    int most_ms = geteuid() == 0 ? SEG_ROOT_MS : SEG_ASK_MS;
    char text[600], why[1200] = "";
    int rc = find(f, s, timeout_ms != 0 ? timeout_ms : most_ms, ret, why, sizeof(why));
    struct stat st = { .st_gid = 0 };

    if (rc == 0 || timeout_ms != 0)
        return rc;
    snprintf(text, sizeof(text), "%s of %s", s->what, f->dir);
    if ((rc == -EACCES || rc == -EPERM) && s->is_trace)
        return fct_fail(EX_NOPERM,
            "%s: permission denied; the administrators' group (ipc.admin_group) may "
            "read it, and root:\n  sudo fdctl trace",
            text);
    if (rc == -EACCES || rc == -EPERM) {
        /* the client socket's group is that whose members may read */
        (void)stat(f->socket, &st);
        return fct_no_permission(text, st.st_gid);
    }
    if (rc == -ENXIO)
        return fct_usage(
            "--group %u: the daemon has no such group; fdctl status shows its groups",
            s->group);
    if (rc == -EPROTO)
        return fct_fail(EX_PROTOCOL, "%s: made by another version of fdd", text);
    if (rc == -EBUSY)
        return fct_fail(EX_TEMPFAIL, "%s: %s", text, why);
    if (rc == -ETIMEDOUT)
        return fct_fail(EX_TEMPFAIL,
            "%s: the daemon gives no answer; root can read them all the same", text);
    snprintf(text, sizeof(text), "with the runtime folder %s", f->dir);
    return fct_no_daemon(f, text, f->dir, strerror(-rc));
}

int
fct_seg_open(const struct fct *f, int timeout_ms, const struct cnt_seg **ret_seg)
{
    const struct segment s = { "statistics", "stat_fd", "/memfd:" CNT_MEMFD " (deleted)",
        0, 0 };

    return map(f, &s, timeout_ms, ret_seg);
}

int
fct_trace_open(const struct fct *f, uint32_t group, int timeout_ms,
    const struct trc_seg **ret_seg)
{
    const struct segment s = { "trace", "trace_fd", "/memfd:" TRC_MEMFD " (deleted)", 1,
        group };

    return map(f, &s, timeout_ms, ret_seg);
}

int
fct_seg_alive(const struct cnt_seg *seg)
{
    return __atomic_load_n(&seg->magic, __ATOMIC_ACQUIRE) == CNT_MAGIC &&
        (kill(seg->gate_pid, 0) == 0 || errno == EPERM);
}

int
fct_seg_snap_group(const struct cnt_seg *seg, uint32_t group, struct cnt_seg *ret_seg)
{
    if (cnt_of_group(seg, group, ret_seg) != 0)
        return fct_usage("--group %u: the daemon's groups are 0 to %u", group,
            cnt_n_group(seg) - 1);
    fct_plain(seg->model, sizeof(seg->model), ret_seg->model, sizeof(ret_seg->model));
    return 0;
}

struct cnt_seg *
fct_seg_snap_each(const struct cnt_seg *seg)
{
    uint32_t n = cnt_n_group(seg);
    struct cnt_seg *all = mem_aligned(_Alignof(struct cnt_seg), cnt_bytes(n));

    for (uint32_t i = 0; all != NULL && i < n; i++) {
        (void)fct_seg_snap_group(seg, i, &all[i]);
        all[i].n_group = n;
    }
    return all;
}
