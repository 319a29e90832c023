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

/* ---- shared memory -------------------------------------------------------- */

/* A new memfd of bytes zeros, mapped. It has no name that others could take first;
 * name is what /proc/PID/fd shows of it. Mode 0400: a descriptor of it cannot be
 * opened again for writing by another user. Sealed against resizing. 0 or -errno. */
int mem_share(const char *name, size_t bytes, void **ret, int *ret_fd);
/* Unmap and close what mem_share() made; each may be missing. */
void mem_unshare(void *p, size_t bytes, int fd);
/* Its file opened again for reading alone, to be handed out: a duplicate of fd can
 * write. A descriptor, or -errno. Needs /proc. */
int mem_reopen(int fd);
/* Map another process's memfd of exactly these bytes for reading; fd stays open.
 * 0; -EPROTO: of another size, no memfd, or its owner could shrink it, which would
 * end a reader by SIGBUS; else -errno. */
int mem_look(int fd, size_t bytes, const void **ret);

#endif
