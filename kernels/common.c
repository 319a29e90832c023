/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/fdk.h"

#include <stdio.h>
#include <sys/sysinfo.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[FDK_DTYPE__N] = {
    [FDK_F32] = { "f32", 4 },
    [FDK_F16] = { "f16", 2 },
    [FDK_BF16] = { "bf16", 2 },
    [FDK_I32] = { "i32", 4 },
    [FDK_U8] = { "u8", 1 },
    [FDK_I8] = { "i8", 1 },
    [FDK_F8E4M3] = { "f8e4m3", 1 },
    [FDK_I4] = { "i4", 0 },
};

size_t
fdk_dtype_bytes(enum fdk_dtype t)
{
    return (unsigned)t < FDK_DTYPE__N ? dtypes[t].bytes : 0;
}

size_t
fdk_row_bytes(enum fdk_dtype t, size_t n)
{
    return t == FDK_I4 ? n / 2 : n * fdk_dtype_bytes(t);
}

const char *
fdk_dtype_name(enum fdk_dtype t)
{
    return (unsigned)t < FDK_DTYPE__N ? dtypes[t].name : "unknown";
}

int32_t
fdk_tiles_max(int32_t n, int32_t m, int32_t a, int32_t b)
{
    if (n <= 0 || m <= 0 || a <= 0 || b <= 0)
        return 0;
    int64_t g = a, r = b;
    while (r != 0) {
        int64_t t = g % r;
        g = r;
        r = t;
    }
    /* A row wastes most, b - gcd, when its length leaves gcd in the last tile. */
    int64_t tiles = ((int64_t)m * a + (int64_t)(n < m ? n : m) * (b - g)) / b;
    return tiles < INT32_MAX ? (int32_t)tiles : INT32_MAX;
}

/* MemAvailable counts the page cache, which sysinfo does not. */
uint64_t
fdk_host_mem_free(void)
{
    char line[128];
    unsigned long long kib = 0;
    struct sysinfo si;
    FILE *f = fopen("/proc/meminfo", "re");
    int found = 0;
    while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL)
        found = sscanf(line, "MemAvailable: %llu kB", &kib) == 1;
    if (f != NULL)
        fclose(f);
    if (found)
        return (uint64_t)kib * 1024;
    return sysinfo(&si) == 0 ? (uint64_t)si.freeram * si.mem_unit : 0;
}

/* Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3"
 * (2011): multipliers and Weyl constants are the algorithm's. */
void
fdk_philox(uint64_t key, const uint32_t ctr[4], uint32_t ret[4])
{
    uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int i = 0; i < 10; i++) {
        uint64_t a = (uint64_t)c0 * 0xD2511F53u;
        uint64_t b = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    ret[0] = c0;
    ret[1] = c1;
    ret[2] = c2;
    ret[3] = c3;
}

int
fdk_has_output(const struct fdk_batch *b, int32_t *at, int32_t first, int32_t end)
{
    while (*at < *b->n_out && b->out[*at].tok < first)
        ++*at;
    return *at < *b->n_out && b->out[*at].tok < end;
}
