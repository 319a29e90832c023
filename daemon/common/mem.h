/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Checked allocation. A size that overflows fails like missing memory; nothing here
 * aborts or logs. Memory is freed with free().
 */
#ifndef FDD_DAEMON_COMMON_MEM_H
#define FDD_DAEMON_COMMON_MEM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Zeroed; bytes 0 gives a valid pointer. NULL: no memory. */
void *mem_zalloc(size_t bytes);
/* n * size zeroed bytes; NULL also when the product overflows. */
void *mem_array(size_t n, size_t size);
/* Grow an array to n elements, keeping its contents; new bytes are not set. NULL: no
 * memory, and p is unchanged. */
void *mem_regrow(void *p, size_t n, size_t size);
/* Zeroed; align is a power of two >= sizeof(void *). */
void *mem_aligned(size_t align, size_t bytes);

/* Sums and products that fail instead of wrapping: 0, or -EOVERFLOW with
 * *ret unchanged. */
int mem_add_u64(uint64_t a, uint64_t b, uint64_t *ret);
int mem_mul_u64(uint64_t a, uint64_t b, uint64_t *ret);

/* ---- shared memory -------------------------------------------------------- */

/* Make a zeroed memfd of `bytes` and map it. It has no name that others could take first;
 * /proc/PID/fd shows it as name. Mode 0400: another user cannot open its descriptor
 * again for writing. Sealed against resizing. 0 or -errno. */
int mem_share(const char *name, size_t bytes, void **ret, int *ret_fd);
/* Unmap and close the memory of mem_share(); p may be NULL and fd -1. */
void mem_unshare(void *p, size_t bytes, int fd);
/* Open the memory's file again for reading only, to be handed out: a duplicate of fd
 * could write. A descriptor, or -errno. Needs /proc. */
int mem_reopen(int fd);
/* Map another process's memfd of exactly these bytes for reading; fd stays open. 0;
 * -EPROTO: another size, not a memfd, or not sealed against shrinking, which could end
 * a reader by SIGBUS; else -errno. */
int mem_look(int fd, size_t bytes, const void **ret);

#endif
