/*
 * Checked allocation. Sizes that overflow fail like memory that is not
 * there; nothing here aborts or logs. Memory is freed with free().
 */
#ifndef FDD_DAEMON_COMMON_MEM_H
#define FDD_DAEMON_COMMON_MEM_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed; bytes 0 gives a valid pointer. NULL: no memory. */
void *mem_zalloc(size_t bytes);
/* n * size zeroed bytes, NULL when the product overflows. */
void *mem_array(size_t n, size_t size);
/* Grow an array to n elements, keeping what it holds; new bytes are not
 * set. NULL: p is unchanged. */
void *mem_regrow(void *p, size_t n, size_t size);
/* Zeroed, aligned (a power of two >= sizeof(void *)). */
void *mem_aligned(size_t align, size_t bytes);
char *mem_strdup(const char *s);

/* Sums and products that fail instead of wrapping: 0, or -EOVERFLOW with
 * *ret unchanged. */
int mem_add_u64(uint64_t a, uint64_t b, uint64_t *ret);
int mem_mul_u64(uint64_t a, uint64_t b, uint64_t *ret);

#endif
