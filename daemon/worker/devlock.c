/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/devlock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/devowner.h"
#include "daemon/common/dir.h"

#define DLK_TEXT   700
#define DLK_TRIES  20
#define DLK_NAP_NS 10000000L

/* No other user may be able to remove a lock file. */
static int
check_dir(const char *dir, struct stat *st, char *err, size_t err_bytes)
{
    if (lstat(dir, st) != 0 || !S_ISDIR(st->st_mode)) {
        (void)snprintf(err, err_bytes,
            "the folder of device locks %s is not a directory; "
            "remove it, or set device.shared = yes where no other fdd uses the device",
            dir);
        return -ENOTDIR;
    }
    if ((st->st_uid != geteuid() && geteuid() != 0) || (st->st_mode & 0022) != 0) {
        (void)snprintf(err, err_bytes,
            "the folder of device locks %s belongs to uid %u, mode "
            "%04o: other users than uid %u may write it; run fdd as its owner, or choose "
            "another daemon.runtime_dir",
            dir, (unsigned)st->st_uid, (unsigned)(st->st_mode & 07777),
            (unsigned)geteuid());
        return -EPERM;
    }
    return 0;
}

static int
open_file(const char *path, mode_t mode, const struct stat *dir, int *ret_fd)
{
    int fd = -1, rc = dir_open(path, mode, &fd);
    struct stat st;

    if (rc != 0)
        return rc;
    /* Root made the file in a folder of the daemon's user, who must be able to open
     * it. */
    if (geteuid() == 0 &&
        (fstat(fd, &st) != 0 ||
            (st.st_uid != dir->st_uid && fchown(fd, dir->st_uid, dir->st_gid) != 0))) {
        (void)close(fd);
        return -EPERM;
    }
    *ret_fd = fd;
    return 0;
}

static int
write_holder(const char *path, const struct stat *dir, const struct dlk_owner *o)
{
    char text[DLK_TEXT], name[DLK_TEXT + 100];
    int fd, rc,
        n = snprintf(text, sizeof(text), "%ld %s %s\n", (long)o->pid,
            o->instance[0] != '\0' ? o->instance : "-", o->home);

    if (n < 0 || (size_t)n >= sizeof(text))
        return -ENAMETOOLONG;
    (void)snprintf(name, sizeof(name), "%s" DOW_SUFFIX, path);
    rc = open_file(name, DIR_READABLE, dir, &fd);
    if (rc != 0)
        return rc;
    rc = dir_put(fd, text);
    (void)close(fd);
    return rc;
}

static int
taken(const char *path, const char *uuid, int shared, char *err, size_t err_bytes)
{
    char who[800];
    const char *home;
    struct dow o;

    dow_read(path, &o);
    dow_text(&o, who, sizeof(who));
    home = o.home;
    (void)snprintf(err, err_bytes,
        "device %s is taken by another %s; name another device in "
        "device.list, or stop that one%s%s%s, or let them share it: device.shared = yes "
        "%s",
        uuid, who, home[0] != '\0' ? " (fdctl --runtime-dir " : "", home,
        home[0] != '\0' ? " stop)" : "", shared ? "there too" : "for both");
    return -EBUSY;
}

/* Retries, since dow_look() takes the lock for a moment. */
static int
lock(int fd, int shared)
{
    const struct timespec nap = { .tv_nsec = DLK_NAP_NS };
    int rc, tries = DLK_TRIES;

    while ((rc = flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB)) != 0 &&
        errno == EWOULDBLOCK && --tries > 0)
        (void)nanosleep(&nap, NULL);
    return rc == 0 ? 0 : -errno;
}

int
dlk_take(const char *dir, const char *uuid, int shared, const struct dlk_owner *o,
    int *ret_fd, char *err, size_t err_bytes)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789-_";
    char path[700];
    struct stat st;
    int fd = -1, rc;

    if (uuid[0] == '\0' || uuid[strspn(uuid, letters)] != '\0' || strlen(uuid) > 64) {
        (void)snprintf(err, err_bytes, "device \"%.64s\" has no usable UUID", uuid);
        return -EINVAL;
    }
    rc = dir_make(dir, 1);
    if (rc == 0 && (rc = check_dir(dir, &st, err, err_bytes)) != 0)
        return rc;
    (void)snprintf(path, sizeof(path), "%.600s/%s", dir, uuid);
    if (rc == 0)
        rc = open_file(path, DIR_LOCK, &st, &fd);
    if (rc == 0)
        rc = lock(fd, shared);
    if (rc == -EWOULDBLOCK)
        rc = taken(path, uuid, shared, err, err_bytes);
    if (rc == 0)
        rc = write_holder(path, &st, o);
    if (rc == 0) {
        *ret_fd = fd;
        return 0;
    }
    if (rc != -EBUSY)
        (void)snprintf(err, err_bytes,
            "cannot lock device %s with the file %s: %s; make the "
            "folder (sudo systemd-tmpfiles --create fdd.conf under the units), or choose "
            "another daemon.runtime_dir",
            uuid, path, strerror(-rc));
    dlk_drop(fd);
    return rc;
}

void
dlk_drop(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}
