/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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
    /* A FIFO in its place must not hold us up. */
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
