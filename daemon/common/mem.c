/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void *
mem_zalloc(size_t bytes)
{
    return calloc(1, bytes != 0 ? bytes : 1);
}

void *
mem_array(size_t n, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    return mem_zalloc(bytes);
}

void *
mem_regrow(void *p, size_t n, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    return realloc(p, bytes != 0 ? bytes : 1);
}

void *
mem_aligned(size_t align, size_t bytes)
{
    void *p;

    if (bytes == 0)
        bytes = 1;
    if (posix_memalign(&p, align, bytes) != 0)
        return NULL;
    memset(p, 0, bytes);
    return p;
}

int
mem_add_u64(uint64_t a, uint64_t b, uint64_t *ret)
{
    uint64_t r;

    if (__builtin_add_overflow(a, b, &r))
        return -EOVERFLOW;
    *ret = r;
    return 0;
}

int
mem_mul_u64(uint64_t a, uint64_t b, uint64_t *ret)
{
    uint64_t r;

    if (__builtin_mul_overflow(a, b, &r))
        return -EOVERFLOW;
    *ret = r;
    return 0;
}

/* ---- shared memory -------------------------------------------------------- */

int
mem_share(const char *name, const char *anon, gid_t gid, mode_t alone, size_t bytes,
    void **ret, int *ret_fd)
{
    void *p;
    int fd, rc;

    if (name != NULL) {
        (void)shm_unlink(name);
        fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    } else {
        fd = memfd_create(anon, MFD_CLOEXEC);
    }
    if (fd < 0)
        return -errno;
    if (gid == (gid_t)-1 || fchown(fd, (uid_t)-1, gid) != 0)
        rc = fchmod(fd, alone);
    else
        rc = fchmod(fd, 0640);
    /* Take the pages now: a full /dev/shm must be an error here, not a
     * SIGBUS later. */
    rc = rc != 0 ? -errno : -posix_fallocate(fd, 0, (off_t)bytes);
    if (rc == 0) {
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        rc = p == MAP_FAILED ? -errno : 0;
    }
    if (rc != 0) {
        mem_unshare(name, NULL, 0, fd);
        return rc;
    }
    *ret = p;
    *ret_fd = fd;
    return 0;
}

int
mem_reopen(int fd)
{
    char path[32];
    int ro;

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ro = open(path, O_RDONLY | O_CLOEXEC);
    return ro >= 0 ? ro : -errno;
}

void
mem_unshare(const char *name, void *p, size_t bytes, int fd)
{
    if (p != NULL)
        (void)munmap(p, bytes);
    if (fd >= 0)
        (void)close(fd);
    if (name != NULL && name[0] != '\0')
        (void)shm_unlink(name);
}
