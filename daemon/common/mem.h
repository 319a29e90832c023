/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Checked allocation. Sizes that overflow fail like memory that is not
 * there; nothing here aborts or logs. Memory is freed with free().
 */
#ifndef FDD_DAEMON_COMMON_MEM_H
#define FDD_DAEMON_COMMON_MEM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Zeroed; bytes 0 gives a valid pointer. NULL: no memory. */
void *mem_zalloc(size_t bytes);
/* n * size zeroed bytes, NULL when the product overflows. */
void *mem_array(size_t n, size_t size);
/* Grow an array to n elements, keeping what it holds; new bytes are not
 * set. NULL: p is unchanged. */
void *mem_regrow(void *p, size_t n, size_t size);
/* Zeroed, aligned (a power of two >= sizeof(void *)). */
void *mem_aligned(size_t align, size_t bytes);

/* Sums and products that fail instead of wrapping: 0, or -EOVERFLOW with
 * *ret unchanged. */
int mem_add_u64(uint64_t a, uint64_t b, uint64_t *ret);
int mem_mul_u64(uint64_t a, uint64_t b, uint64_t *ret);

/* A new shared memory object of bytes zeros, mapped: POSIX shared memory called
 * name (an old one goes first), or an anonymous one called anon where name is
 * NULL. Group gid reads it (mode 0640); where that is (gid_t)-1 or cannot be
 * given, the mode is alone. 0 or -errno. */
int mem_share(const char *name, const char *anon, gid_t gid, mode_t alone, size_t bytes,
    void **ret, int *ret_fd);
/* Its file opened anew for reading alone, so that who gets this descriptor cannot
 * write through it: a descriptor, or -errno. Needs /proc. */
int mem_reopen(int fd);
/* Unmap, close and unlink what mem_share() made; each may be missing. */
void mem_unshare(const char *name, void *p, size_t bytes, int fd);

#endif
