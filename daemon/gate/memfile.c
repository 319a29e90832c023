/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/memfile.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/mem.h"

/* Missing in the oldest headers and kernels that fdd is built for. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* No F_SEAL_SEAL if a seal is to be added later. A client that adds seals to its own
 * memory harms only itself. */
static int
memfile_open(const struct memfile *f, const char *name)
{
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | (f->kind == MEMFILE_OURS ? F_SEAL_SEAL : 0);
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    int rc;

    if (fd < 0 && errno == EINVAL) /* kernel before 6.3 */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, f->bytes) != 0 || fcntl(fd, F_ADD_SEALS, seals) != 0) {
        rc = -errno;
        (void)close(fd);
        return rc;
    }
    return fd;
}

/* Opens a read-only descriptor, after setting the file's mode to 0400. */
static int
memfile_share(int fd)
{
    return fchmod(fd, 0400) == 0 ? mem_reopen(fd) : -errno;
}

static void
close_one(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

void
memfile_close(struct memfile *f)
{
    close_one(&f->fd);
    close_one(&f->share);
}

int
memfile_make(struct memfile *f, const char *name)
{
    uint32_t first = f->bytes < MEMFILE_STEP ? f->bytes : MEMFILE_STEP;
    int rc;

    f->share = -1;
    f->fd = memfile_open(f, name);
    if (f->fd < 0)
        return f->fd;
    if (f->kind == MEMFILE_OURS) {
        /* The loop's page faults then find the pages, and a lack of memory is reported
         * here. */
        rc = fallocate(f->fd, FALLOC_FL_KEEP_SIZE, 0, first) == 0 ? 0 : -errno;
        f->share = rc == 0 ? memfile_share(f->fd) : rc;
    } else {
        f->share = fcntl(f->fd, F_DUPFD_CLOEXEC, 0);
        if (f->share < 0)
            f->share = -errno;
    }
    rc = f->share < 0 ? f->share : 0;
    if (rc != 0)
        memfile_close(f);
    return rc;
}

int
memfile_seal(int fd)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0 ? 0 : -errno;
}

int
memfiles_make(struct memfiles *m)
{
    int rc = memfile_make(&m->c2d, "fdd-c2d");

    if (rc != 0)
        return rc;
    rc = memfile_make(&m->d2c, "fdd-d2c");
    if (rc != 0)
        goto close_c2d;
    m->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->bell >= 0)
        return 0;
    rc = -errno;
    memfile_close(&m->d2c);
close_c2d:
    memfile_close(&m->c2d);
    return rc;
}
