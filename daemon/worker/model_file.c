/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/model_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int
mdl_fail(int rc, char *err, size_t err_bytes, const char *fmt, ...)
{
    va_list ap;

    if (err_bytes == 0)
        return rc;
    va_start(ap, fmt);
    vsnprintf(err, err_bytes, fmt, ap);
    va_end(ap);
    return rc;
}

char *
mdl_printable(char *dst, size_t n, const char *text, size_t text_n)
{
    size_t m = text_n < n ? text_n : n - 1;

    for (size_t i = 0; i < m; i++)
        dst[i] = text[i] >= 32 && text[i] < 127 ? text[i] : '?';
    dst[m] = '\0';
    if (m < text_n && m >= 3)
        memcpy(dst + m - 3, "...", 3);
    return dst;
}

/* Write to err which component of the path failed, so that the user can fix it. */
static int
open_failed(const char *dir, const char *name, int rc, char *err, size_t err_bytes)
{
    struct stat st;
    const char *sep = name[0] != '\0' ? "/" : "";

    if (rc == -EACCES || rc == -EPERM)
        return mdl_fail(-EACCES, err, err_bytes,
            "%s%s%s: %s for uid %u; give it a copy that it can read, or run fdd as a user "
            "that can read it",
            dir, sep, name, strerror(-rc), (unsigned)geteuid());
    if (rc == -ENOENT && name[0] != '\0' && stat(dir, &st) == 0)
        return mdl_fail(rc, err, err_bytes,
            "%s/%s: %s; a model directory holds config.json, *.safetensors and "
            "tokenizer.json as downloaded from its publisher",
            dir, name, strerror(-rc));
    if (rc == -ENOENT || rc == -ENOTDIR)
        return mdl_fail(rc, err, err_bytes, "%s: %s; model.path names a model directory",
            dir, strerror(-rc));
    return mdl_fail(rc, err, err_bytes, "%s%s%s: %s", dir, sep, name, strerror(-rc));
}

int
mdl_open_file(const char *dir, const char *name, char *err, size_t err_bytes)
{
    struct stat st;
    int dfd, fd, rc = 0;

    dfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dfd < 0)
        return open_failed(dir, "", -errno, err, err_bytes);
    /* O_NONBLOCK: a FIFO must not block the start. */
    fd = openat(dfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        rc = -errno;
    if (rc == -ENOENT && fstatat(dfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        close(dfd);
        return mdl_fail(-EINVAL, err, err_bytes,
            "%s/%s: a link to a file that is not there; "
            "the download is not complete, or only the links were copied",
            dir, name);
    }
    close(dfd);
    if (rc != 0)
        return open_failed(dir, name, rc, err, err_bytes);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return mdl_fail(-EINVAL, err, err_bytes, "%s/%s: not a regular file", dir, name);
    }
    return fd;
}

int
mdl_read_file(const char *dir, const char *name, size_t max, char **ret, size_t *ret_n,
    char *err, size_t err_bytes)
{
    struct stat st;
    size_t have = 0, size;
    char *p;
    int fd, rc;

    fd = mdl_open_file(dir, name, err, err_bytes);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) != 0) {
        rc = mdl_fail(-errno, err, err_bytes, "%s/%s: %s", dir, name, strerror(errno));
        goto close_fd;
    }
    if (st.st_size < 0 || (uint64_t)st.st_size > max) {
        rc = mdl_fail(-EFBIG, err, err_bytes, "%s/%s: %lld bytes, the limit is %zu", dir,
            name, (long long)st.st_size, max);
        goto close_fd;
    }
    size = (size_t)st.st_size;
    p = malloc(size + 1);
    if (p == NULL) {
        rc = mdl_fail(-ENOMEM, err, err_bytes, "%s/%s: no memory for %zu bytes", dir,
            name, size);
        goto close_fd;
    }
    while (have < size) {
        ssize_t n = pread(fd, p + have, size - have, (off_t)have);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            rc = mdl_fail(-errno, err, err_bytes, "%s/%s: %s", dir, name, strerror(errno));
            goto free_p;
        }
        if (n == 0)
            break;
        have += (size_t)n;
    }
    p[have] = '\0';
    close(fd);
    *ret = p;
    *ret_n = have;
    return 0;
free_p:
    free(p);
close_fd:
    close(fd);
    return rc;
}
