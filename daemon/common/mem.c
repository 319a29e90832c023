#include "config.h"

#include "daemon/common/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

char *
mem_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = malloc(n);

    if (p != NULL)
        memcpy(p, s, n);
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
