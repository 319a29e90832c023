/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading weights: one chunk of a file at a time, by pread or through a ring of
 * io_uring, and evaluating the result of each read.
 */
#include "config.h"

#include "daemon/worker/weights_load.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/worker/model_priv.h"

/* ---- files ---- */

static int
same(const struct wts_file *f, const struct stat *st)
{
    return st->st_dev == f->dev && st->st_ino == f->ino && st->st_size == f->size &&
        st->st_mtim.tv_sec == f->mtime.tv_sec && st->st_mtim.tv_nsec == f->mtime.tv_nsec;
}

int
wts_check_unchanged(const struct wts_plan *wp, char *err, size_t err_bytes)
{
    struct stat st;

    for (int32_t i = 0; i < wp->n_file; i++) {
        const struct wts_file *f = &wp->file[i];

        if (fstat(f->fd, &st) != 0)
            return mdl_fail(-EIO, err, err_bytes, "W_IO: %s: %s", f->path, strerror(errno));
        if (!same(f, &st))
            return mdl_fail(-EINVAL, err, err_bytes,
                "W_CHANGED: %s: changed since its header "
                "was read; load again when it is complete",
                f->path);
        if (stat(f->path, &st) != 0 || !same(f, &st))
            return mdl_fail(-EINVAL, err, err_bytes,
                "W_CHANGED: %s: replaced or removed since "
                "its header was read; load again",
                f->path);
    }
    return 0;
}

/* ---- chunks ---- */

int
wts_read_result(const struct wts_plan *wp, struct wts_read *r, int64_t res, char *err,
    size_t err_bytes)
{
    const struct wts_file *f = &wp->file[r->file];
    uint64_t off = r->off + r->have;

    if (res == -EINTR || res == -EAGAIN)
        return 0;
    if (res == -EIO && r->n_eio++ < WTS_EIO_RETRY)
        return 0;
    if (res < 0)
        return mdl_fail(-EIO, err, err_bytes, "W_IO: %s: byte %llu (tensor %s): %s",
            f->path, (unsigned long long)off, r->tensor, strerror((int)-res));
    if (res == 0)
        return mdl_fail(-EINVAL, err, err_bytes,
            "W_TRUNC: %s: ends at byte %llu, within tensor %s", f->path,
            (unsigned long long)off, r->tensor);
    r->have += (size_t)res;
    return r->have == r->want;
}

int64_t
wts_read_some(const struct wts_plan *wp, const struct wts_read *r)
{
    ssize_t n = pread(wp->file[r->file].fd, r->to + r->have, r->want - r->have,
        (off_t)(r->off + r->have));

    return n < 0 ? -errno : n;
}

int
wts_read_queue(const struct wts_plan *wp, struct io_uring *ring, struct wts_read *r)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

    if (sqe == NULL)
        return -ENOSPC;
    io_uring_prep_read(sqe, wp->file[r->file].fd, r->to + r->have,
        (unsigned)(r->want - r->have), r->off + r->have);
    io_uring_sqe_set_data(sqe, r);
    return 0;
}

int
wts_read_exact(const struct wts_file *f, void *p, size_t n, uint64_t off, char *err,
    size_t err_bytes)
{
    size_t have = 0;

    while (have < n) {
        ssize_t r = pread(f->fd, (char *)p + have, n - have, (off_t)(off + have));

        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return mdl_fail(-EIO, err, err_bytes, "W_IO: %s: reading byte %llu: %s",
                f->path, (unsigned long long)(off + have), strerror(errno));
        if (r == 0)
            return mdl_fail(-EINVAL, err, err_bytes, "W_TRUNC: %s: ends at byte %llu",
                f->path, (unsigned long long)(off + have));
        have += (size_t)r;
    }
    return 0;
}
