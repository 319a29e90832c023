/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sysexits.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/dir.h"
#include "daemon/common/log.h"
#include "daemon/gate/advice.h"
#include "daemon/gate/names.h"
#include "daemon/gate/peer.h"
#include "libclient/fdwhere.h"

#define RTD_LISTEN_FIRST 3 /* as systemd's SD_LISTEN_FDS_START */
#define RTD_BACKLOG      128
#define RTD_GROUPS_MAX   256

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

void
rtd_init(struct rtd *rt)
{
    memset(rt, 0, sizeof(*rt));
    rt->lock_fd = rt->listen_fd = rt->admin_fd = -1;
    rt->group = rt->admin_group = (gid_t)-1;
}

void
rtd_fini(struct rtd *rt)
{
    if (rt->listen_fd >= 0)
        (void)close(rt->listen_fd);
    if (rt->admin_fd >= 0)
        (void)close(rt->admin_fd);
    if (rt->own_socket)
        (void)unlink(rt->socket);
    if (rt->own_admin)
        (void)unlink(rt->admin_socket);
    /* The lock file stays: if it were unlinked, two daemons could hold locks on two files
     * of that name. */
    if (rt->lock_fd >= 0)
        (void)close(rt->lock_fd);
    rtd_init(rt);
}

/* ---- folder and lock ----------------------------------------------------- */

static int
rtd_choose_dir(struct rtd *rt, const struct par *par, const struct fdw_env *e, char *err,
    size_t err_bytes)
{
    const char *dir = par->daemon_runtime_dir[0] != '\0' ? par->daemon_runtime_dir : NULL;
    const char *name = rt->instance[0] != '\0' ? rt->instance : NULL;
    int rc = fdw_home(e, dir, name, geteuid() == 0, rt->dir, sizeof(rt->dir));

    if (rc == -ENOENT)
        (void)snprintf(err, err_bytes,
            "no runtime folder: neither daemon.runtime_dir "
            "nor FDD_RUNTIME_DIR nor XDG_RUNTIME_DIR is set; fix: --set "
            "daemon.runtime_dir=DIR");
    else if (rc == -EINVAL)
        (void)snprintf(err, err_bytes, "\"%s\" is no instance's name: " FDW_NAME_RULE,
            rt->instance);
    else if (rc != 0)
        (void)snprintf(err, err_bytes,
            "the runtime folder's path is longer than %d bytes", FDW_PATH_BYTES - 1);
    else if (rt->dir[0] != '/')
        rc = snprintf(err, err_bytes,
            "runtime folder \"%s\" is not an absolute path; fix: "
            "daemon.runtime_dir or FDD_RUNTIME_DIR",
            rt->dir);
    return rc != 0 ? EX_CONFIG : 0;
}

static int
rtd_check_dir(const struct rtd *rt, char *err, size_t err_bytes)
{
    char own[PAR_STR_BYTES], owner[64], me[64];
    struct stat st;
    pid_t pid;
    uid_t uid;

    if (lstat(rt->dir, &st) != 0 || !S_ISDIR(st.st_mode)) {
        (void)snprintf(err, err_bytes, "runtime folder %s is not a directory", rt->dir);
        return EX_CANTCREAT;
    }
    if (st.st_uid == geteuid() && !(st.st_mode & 0022))
        return 0;
    if (adv_daemon_in(rt->dir, &pid, &uid)) {
        adv_other_daemon(rt->dir, pid, uid, err, err_bytes);
        return EX_CANTCREAT;
    }
    adv_own_dir(own, sizeof(own));
    names_ask(st.st_uid, owner, sizeof(owner));
    names_ask(geteuid(), me, sizeof(me));
    if (st.st_uid != geteuid())
        (void)snprintf(err, err_bytes,
            "runtime folder %s belongs to user %s, not to user "
            "%s; fix: another folder: %s",
            rt->dir, owner, me, own);
    else
        (void)snprintf(err, err_bytes,
            "runtime folder %s can be written by others (mode "
            "%04o); fix: another folder, which fdd makes: %s",
            rt->dir, (unsigned)(st.st_mode & 07777), own);
    return EX_NOPERM;
}

/* Describes the daemon that holds the lock; its user owns the lock file. */
static void
rtd_locked_by(const struct rtd *rt, int pid_fd, char *err, size_t err_bytes)
{
    char pid[32];
    struct stat st;
    ssize_t n = pread(pid_fd, pid, sizeof(pid) - 1, 0);

    pid[n > 0 ? n : 0] = '\0';
    if (fstat(rt->lock_fd, &st) != 0)
        st.st_uid = geteuid();
    adv_other_daemon(rt->dir, atoi(pid), st.st_uid, err, err_bytes);
}

static int
rtd_lock(struct rtd *rt, char *err, size_t err_bytes)
{
    char lock[PAR_STR_BYTES + 16], path[PAR_STR_BYTES + 16];
    char pid[32];
    int pid_fd = -1;
    int rc;

    (void)snprintf(lock, sizeof(lock), "%s/" FDW_LOCK, rt->dir);
    (void)snprintf(path, sizeof(path), "%s/" FDW_PID, rt->dir);
    rc = dir_open(lock, DIR_LOCK, &rt->lock_fd);
    if (rc == 0)
        rc = dir_open(path, DIR_READABLE, &pid_fd);
    if (rc != 0) {
        (void)snprintf(err, err_bytes, "cannot open %s: %s",
            rt->lock_fd < 0 ? lock : path, strerror(-rc));
        return rc == -EACCES || rc == -EPERM ? EX_NOPERM : EX_CANTCREAT;
    }
    (void)snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    if (flock(rt->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        rtd_locked_by(rt, pid_fd, err, err_bytes);
        rc = EX_CANTCREAT;
    } else if ((rc = dir_put(pid_fd, pid)) != 0) {
        (void)snprintf(err, err_bytes, "cannot write %s: %s", path, strerror(-rc));
        rc = EX_CANTCREAT;
    }
    (void)close(pid_fd);
    return rc;
}

int
rtd_open_dir(struct rtd *rt, const struct par *par, char *err, size_t err_bytes)
{
    struct fdw_env e;
    int rc;

    fdw_env_get(&e);
    rc = rtd_choose_dir(rt, par, &e, err, err_bytes);
    if (rc != 0)
        return rc;
    if (fdw_device_dir(&e, rt->dir, (unsigned long)geteuid(), rt->device_dir,
            sizeof(rt->device_dir)) != 0)
        rt->device_dir[0] = '\0';
    rc = dir_make(rt->dir, rt->instance[0] != '\0');
    if (rc != 0) {
        char own[PAR_STR_BYTES];

        adv_own_dir(own, sizeof(own));
        (void)snprintf(err, err_bytes,
            "cannot create runtime folder %s: %s; fix: another "
            "folder: %s",
            rt->dir, strerror(-rc), own);
        return rc == -EACCES || rc == -EPERM ? EX_NOPERM : EX_CANTCREAT;
    }
    rc = rtd_check_dir(rt, err, err_bytes);
    if (rc != 0)
        return rc;
    rc = rtd_lock(rt, err, err_bytes);
    if (rc != 0)
        return rc;
    if (par->ipc_socket[0] != '\0')
        (void)snprintf(rt->socket, sizeof(rt->socket), "%s", par->ipc_socket);
    else if (par->daemon_runtime_dir[0] == '\0' && !rt->is_named && e.socket != NULL)
        (void)snprintf(rt->socket, sizeof(rt->socket), "%s", e.socket);
    else
        (void)snprintf(rt->socket, sizeof(rt->socket), "%.*s/fdd.sock",
            (int)sizeof(rt->socket) - 16, rt->dir);
    if (par->ipc_admin_socket[0] != '\0')
        (void)snprintf(rt->admin_socket, sizeof(rt->admin_socket), "%s",
            par->ipc_admin_socket);
    else
        (void)snprintf(rt->admin_socket, sizeof(rt->admin_socket), "%.*s/admin.sock",
            (int)sizeof(rt->admin_socket) - 16, rt->dir);
    return 0;
}

/* ---- sockets ------------------------------------------------------------- */

void
rtd_groups(struct rtd *rt, const struct par *par)
{
    const struct group *gr;

    gr = par->ipc_group[0] != '\0' ? getgrnam(par->ipc_group) : NULL;
    rt->group = gr != NULL ? gr->gr_gid : (gid_t)-1;
    gr = par->ipc_admin_group[0] != '\0' ? getgrnam(par->ipc_admin_group) : NULL;
    rt->admin_group = gr != NULL ? gr->gr_gid : (gid_t)-1;
}

/* Is something at this path that is no socket? */
static int
rtd_is_file(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && !S_ISSOCK(st.st_mode);
}

/* Does a process answer at this path? Only then is it in use. */
static int
rtd_answers(const struct sockaddr_un *sa, int type)
{
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int rc;

    if (fd < 0)
        return 1;
    rc = connect(fd, (const struct sockaddr *)sa, sizeof(*sa));
    if (rc != 0)
        rc = errno;
    (void)close(fd);
    return rc != ECONNREFUSED && rc != ENOENT;
}

static int
rtd_bind_error(const char *path, int error, char *err, size_t err_bytes)
{
    if (error == EADDRINUSE)
        (void)snprintf(err, err_bytes,
            rtd_is_file(path)
                ? "socket %s: a file that is no socket is there; fix: another ipc.socket, "
                  "ipc.admin_socket or daemon.runtime_dir"
                : "socket %s is in use by another program; fix: stop that one, or another "
                  "ipc.socket, ipc.admin_socket or daemon.runtime_dir",
            path);
    else
        (void)snprintf(err, err_bytes, "cannot bind socket %s: %s", path, strerror(error));
    return error == EACCES ? EX_NOPERM : EX_CANTCREAT;
}

static int
rtd_bind(const char *path, int type, mode_t mode, gid_t gid, int *ret_fd, char *err,
    size_t err_bytes)
{
    struct sockaddr_un sa;
    mode_t old;
    int fd, rc;

    memset(&sa, 0, sizeof(sa));
    sa.sun_family = AF_UNIX;
    if (strlen(path) >= sizeof(sa.sun_path)) {
        (void)snprintf(err, err_bytes,
            "socket path %s has %zu bytes, the system allows "
            "%zu; fix: a shorter daemon.runtime_dir",
            path, strlen(path), sizeof(sa.sun_path) - 1);
        return EX_CONFIG;
    }
    memcpy(sa.sun_path, path, strlen(path));
    fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        (void)snprintf(err, err_bytes, "cannot make a socket: %s", strerror(errno));
        return EX_OSERR;
    }
    /* With this umask no client can connect between bind and chmod. */
    old = umask(0177);
    rc = bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 ? errno : 0;
    if (rc == EADDRINUSE && !rtd_is_file(path) && !rtd_answers(&sa, type)) {
        /* Left by a daemon that was killed: this one holds the folder's lock. */
        log_info("gate: removing the dead socket %s", path);
        (void)unlink(path);
        rc = bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 ? errno : 0;
    }
    (void)umask(old);
    if (rc != 0) {
        (void)close(fd);
        return rtd_bind_error(path, rc, err, err_bytes);
    }
    if (gid != (gid_t)-1 && chown(path, (uid_t)-1, gid) != 0)
        log_warn("gate: cannot give %s to group %u: %s; only the daemon's own user and "
                 "group may connect",
            path, (unsigned)gid, strerror(errno));
    if (chmod(path, mode) != 0 || listen(fd, RTD_BACKLOG) != 0) {
        (void)snprintf(err, err_bytes, "cannot listen at %s: %s", path, strerror(errno));
        (void)unlink(path);
        (void)close(fd);
        return EX_OSERR;
    }
    *ret_fd = fd;
    return 0;
}

/* The name of the i-th passed descriptor: the socket unit's name or its
 * FileDescriptorName=. "socket" if the service manager gives none. */
static void
rtd_listen_name(const char *names, int i, char *ret, size_t ret_bytes)
{
    while (names != NULL && i-- > 0) {
        names = strchr(names, ':');
        names = names != NULL ? names + 1 : NULL;
    }
    (void)snprintf(ret, ret_bytes, "%.*s", names != NULL ? (int)strcspn(names, ":") : 0,
        names != NULL ? names : "");
    if (ret[0] == '\0')
        (void)snprintf(ret, ret_bytes, "socket");
}

/* Takes over sockets of the service manager, recognised by their type. */
static void
rtd_take_listen_fds(struct rtd *rt)
{
    const char *pid = getenv("LISTEN_PID");
    const char *num = getenv("LISTEN_FDS");
    const char *names = getenv("LISTEN_FDNAMES");
    int n = num != NULL ? atoi(num) : 0;

    if (pid == NULL || atoi(pid) != (int)getpid())
        return;
    for (int fd = RTD_LISTEN_FIRST; fd < RTD_LISTEN_FIRST + n && n <= 16; fd++) {
        socklen_t len = sizeof(int);
        int type = 0;
        int fl = fcntl(fd, F_GETFL);

        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
        if (fl < 0 || fcntl(fd, F_SETFL, fl | O_NONBLOCK) != 0 ||
            getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0)
            continue;
        if (type == SOCK_SEQPACKET && rt->listen_fd < 0) {
            rt->listen_fd = fd;
            rtd_listen_name(names, fd - RTD_LISTEN_FIRST, rt->socket_unit,
                sizeof(rt->socket_unit));
        } else if (type == SOCK_STREAM && rt->admin_fd < 0)
            rt->admin_fd = fd;
        else
            (void)close(fd);
    }
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
}

/* May other users connect? From the socket's mode and group: a service manager may have
 * made it. */
static int
rtd_look_shared(const struct rtd *rt)
{
    struct stat st;

    if (stat(rt->socket, &st) != 0)
        return 0;
    return (st.st_mode & S_IWOTH) != 0 ||
        ((st.st_mode & S_IWGRP) != 0 && st.st_gid == rt->group && st.st_gid != 0);
}

int
rtd_open_sockets(struct rtd *rt, const struct par *par, char *err, size_t err_bytes)
{
    int rc;

    (void)par;
    rtd_take_listen_fds(rt);
    if (rt->listen_fd < 0) {
        rc = rtd_bind(rt->socket, SOCK_SEQPACKET, 0660, rt->group, &rt->listen_fd, err,
            err_bytes);
        if (rc != 0)
            return rc;
        rt->own_socket = 1;
    }
    if (rt->admin_fd < 0) {
        /* Credentials are checked after the connect, so that a refusal can say what to
         * do. */
        rc = rtd_bind(rt->admin_socket, SOCK_STREAM, 0666, (gid_t)-1, &rt->admin_fd, err,
            err_bytes);
        if (rc != 0)
            return rc;
        rt->own_admin = 1;
    }
    if (peer_forbid_fds(rt->listen_fd) != 0 || peer_forbid_fds(rt->admin_fd) != 0)
        log_debug("gate: this kernel cannot refuse passed descriptors (SO_PASSRIGHTS); "
                  "they are closed off the loop");
    rt->is_shared = rtd_look_shared(rt);
    return 0;
}

/* ---- service manager and users ------------------------------------------- */

unsigned long long
rtd_watchdog_ns(void)
{
    const char *us = getenv("WATCHDOG_USEC");
    const char *pid = getenv("WATCHDOG_PID");
    unsigned long long ns;

    if (us == NULL || (pid != NULL && atoi(pid) != (int)getpid()))
        return 0;
    ns = strtoull(us, NULL, 10) * 500ull; /* half the interval */
    return ns < CLK_S ? ns : CLK_S;
}

int
rtd_peer_in_group(int fd, gid_t gid, gid_t want)
{
    gid_t groups[RTD_GROUPS_MAX];
    socklen_t len = sizeof(groups);

    if (want == (gid_t)-1)
        return 0;
    if (gid == want)
        return 1;
    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len) != 0)
        return 0;
    for (size_t i = 0; i < len / sizeof(gid_t); i++) {
        if (groups[i] == want)
            return 1;
    }
    return 0;
}
