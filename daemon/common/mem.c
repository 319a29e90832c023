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

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif

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
mem_share(const char *name, size_t bytes, void **ret, int *ret_fd)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    void *p;
    int rc;

    if (fd < 0 && errno == EINVAL) /* kernel before 6.3 */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    rc = fchmod(fd, 0400) != 0 ? -errno : 0;
    /* Take the pages now: too little memory must be an error here, not a SIGBUS later. */
    if (rc == 0)
        rc = -posix_fallocate(fd, 0, (off_t)bytes);
    if (rc == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        rc = -errno;
    if (rc == 0) {
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        rc = p == MAP_FAILED ? -errno : 0;
    }
    if (rc != 0) {
        (void)close(fd);
        return rc;
    }
    *ret = p;
    *ret_fd = fd;
    return 0;
}

void
mem_unshare(void *p, size_t bytes, int fd)
{
    if (p != NULL)
        (void)munmap(p, bytes);
    if (fd >= 0)
        (void)close(fd);
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

int
mem_look(int fd, size_t bytes, const void **ret)
{
    struct stat st;
    void *p;
    int seals;

    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size != (off_t)bytes)
        return -EPROTO;
    seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
        return -EPROTO;
    p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return -errno;
    *ret = p;
    return 0;
}
