/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int
dir_one(const char *path)
{
    mode_t mode = geteuid() == 0 ? 0755 : 0700;

    return mkdir(path, mode) == 0 || errno == EEXIST ? 0 : -errno;
}

int
dir_make(const char *path, int with_parent)
{
    char parent[PATH_MAX];
    int rc = dir_one(path);
    char *slash;

    if (rc != -ENOENT || !with_parent)
        return rc;
    if (strlen(path) >= sizeof(parent))
        return -ENAMETOOLONG;
    memcpy(parent, path, strlen(path) + 1);
    slash = strrchr(parent, '/');
    if (slash == NULL || slash == parent)
        return -ENOENT;
    *slash = '\0';
    rc = dir_one(parent);
    return rc != 0 ? rc : dir_one(path);
}

int
dir_open(const char *path, mode_t mode, int *ret_fd)
{
    /* A FIFO in its place must not block us. */
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
    struct stat st;
    int rc = 0;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1)
        rc = -EPERM;
    else if ((st.st_mode & 07777) != mode && fchmod(fd, mode) != 0)
        rc = -errno;
    if (rc != 0) {
        (void)close(fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

int
dir_put(int fd, const char *text)
{
    size_t n = strlen(text);

    if (pwrite(fd, text, n, 0) != (ssize_t)n)
        return -EIO;
    return ftruncate(fd, (off_t)n) == 0 ? 0 : -errno;
}

ssize_t
dir_read(const char *path, int flags, char *ret, size_t ret_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
    struct stat st;
    ssize_t k = -1, n = 0;

    ret[0] = '\0';
    if (fd < 0)
        return -errno;
    errno = EINVAL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        while ((k = read(fd, ret + n, ret_bytes - 1 - (size_t)n)) > 0)
            n += k;
    ret[n] = '\0';
    if (k < 0 && n == 0)
        n = -errno;
    (void)close(fd);
    return n;
}

int
dir_cache(const char *param, int is_system, char *ret, size_t ret_bytes)
{
    const char *e = getenv("CACHE_DIRECTORY"), *tail = "";
    int n = INT_MAX;

    if (param[0] != '\0')
        e = param;
    else if (e != NULL && e[0] != '\0')
        n = (int)strcspn(e, ":");
    else if (is_system)
        e = "/var/cache/fdd";
    else if ((e = getenv("XDG_CACHE_HOME")) != NULL && e[0] != '\0')
        tail = "/fdd";
    else if ((e = getenv("HOME")) != NULL && e[0] != '\0')
        tail = "/.cache/fdd";
    else
        return -ENOENT;
    n = snprintf(ret, ret_bytes, "%.*s%s", n, e, tail);
    return n <= 0 ? -ENOENT : (size_t)n < ret_bytes ? 0 : -ENAMETOOLONG;
}
