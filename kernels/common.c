/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/fdk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
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

int
fdk_is_float(enum fdk_dtype t)
{
    return t == FDK_F32 || t == FDK_F16 || t == FDK_BF16;
}

int
fdk_is_quant(enum fdk_dtype t)
{
    return t == FDK_I8 || t == FDK_I4 || t == FDK_F8E4M3;
}

int
fdk_qkv_all_valid(const struct fdk_qkv_args *a)
{
    return a->all == NULL ||
        (a->norm_all && a->n_all >= 1 && a->all_share >= 1 && a->n_all % a->all_share == 0);
}

/* ---- weights ------------------------------------------------------------- */

#define WEIGHT_ALIGN 256

int32_t
fdk_weight_groups(const struct fdk_weight *w)
{
    return w->group > 0 ? (w->cols - 1) / w->group + 1 : 0;
}

int
fdk_weight_rows(struct fdk_weight *w)
{
    const uint64_t rows = (uint64_t)w->rows;
    uint64_t bytes, scales = rows * (uint64_t)fdk_weight_groups(w) * sizeof(float);
    if (__builtin_mul_overflow(rows, fdk_row_bytes(w->format, (size_t)w->cols), &bytes) ||
        bytes > INT64_MAX)
        return -EOVERFLOW;
    w->layout = FDK_LAYOUT_ROWS;
    w->scale_at = 0;
    if (w->group > 0)
        bytes = w->scale_at = (bytes + WEIGHT_ALIGN - 1) / WEIGHT_ALIGN * WEIGHT_ALIGN;
    w->bytes = bytes + scales;
    return 0;
}

void *
fdk_weight_at(const struct fdk_weight *w, enum fdk_pack what, int64_t row)
{
    const size_t scales = (size_t)fdk_weight_groups(w) * sizeof(float);
    if (w->layout != FDK_LAYOUT_ROWS)
        return NULL;
    return what == FDK_PACK_VALUES
        ? (char *)w->data + (size_t)row * fdk_row_bytes(w->format, (size_t)w->cols)
        : (char *)w->data + w->scale_at + (size_t)row * scales;
}

int32_t
fdk_pack_width(const struct fdk_pack_args *a)
{
    return a->what == FDK_PACK_SCALES ? fdk_weight_groups(&a->w) : a->w.cols;
}

int32_t
fdk_pack_x_cols(const struct fdk_pack_args *a)
{
    return a->x_cols > 0 ? a->x_cols : fdk_pack_width(a);
}

static int
pack_window_check(const struct fdk_pack_args *a)
{
    if (a->x_cols < 0 || a->x_at < 0 || fdk_pack_x_cols(a) - a->x_at < fdk_pack_width(a) ||
        (a->w.format == FDK_I4 && a->what == FDK_PACK_VALUES && a->x_at % 2 != 0) ||
        (a->x_dtype == FDK_I4 && fdk_pack_x_cols(a) % 2 != 0))
        return -EINVAL;
    return a->x_row_scale != 0 && a->w.group != a->w.cols ? -EINVAL : 0;
}

int
fdk_pack_check(const struct fdk_pack_args *a)
{
    const struct fdk_weight *w = &a->w;
    if (w->data == NULL || a->x == NULL || w->cols < 1 || a->first < 0 || a->n < 1 ||
        a->first + a->n > w->rows || (unsigned)a->what > FDK_PACK_SCALES)
        return -EINVAL;
    if (w->group < 0 || w->group > w->cols ||
        (w->group != 0 && w->group != w->cols && w->group % 32 != 0) ||
        (w->format == FDK_I4 && w->cols % 2 != 0) || pack_window_check(a) != 0)
        return -EINVAL;
    if (w->layout != FDK_LAYOUT_ROWS)
        return -ENOTSUP;
    if (a->what == FDK_PACK_SCALES)
        return w->group > 0 && a->x_dtype == FDK_F32 ? 0 : -EINVAL;
    if (a->x_dtype == w->format)
        return 0;
    if (!fdk_is_float(a->x_dtype))
        return -ENOTSUP;
    if (w->group > 0)
        return a->bad == NULL ? -EINVAL : fdk_is_quant(w->format) ? 0 : -ENOTSUP;
    return w->format == FDK_F32 ? 0 : -ENOTSUP;
}

static uint32_t
f16_bits(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff, u;
    float f;

    if (e == 31)
        return sign | 0x7f800000 | m << 13;
    if (e != 0)
        return sign | (e + 112) << 23 | m << 13;
    f = (float)m * 0x1p-24f;
    memcpy(&u, &f, 4);
    return sign | u;
}

/* noipa: gcc 12 at -O2, when it could relate dst to src, rewrote the address of the
 * stores, considered the function free of side effects and dropped calls. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((noipa))
#endif
void
fdk_to_f32(void *dst, const void *src, enum fdk_dtype t, size_t n)
{
    const char *from = src;
    char *to = dst;

    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        uint32_t u;

        memcpy(&h, from + 2 * i, 2);
        u = t == FDK_BF16 ? (uint32_t)h << 16 : f16_bits(h);
        memcpy(to + 4 * i, &u, 4);
    }
}

int
fdk_embed_valid(const struct fdk_embed_args *a)
{
    if (a->shard_rows == 0)
        return a->w != NULL;
    if (a->shard_rows < 0 || (int64_t)a->shard_rows * FDK_MAX_RANKS < a->V)
        return 0;
    for (int64_t i = 0; i * a->shard_rows < a->V; i++)
        if (a->shard[i] == NULL)
            return 0;
    return 1;
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
    /* A row wastes most, b - gcd, if its length leaves gcd query rows in the last
     * tile. */
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

int
fdk_pci_cpus(const char *sysfs, const char *bus_id, char *ret, size_t ret_bytes)
{
    char path[256], id[32];
    size_t n = strlen(bus_id);
    if (n >= sizeof(id))
        return -EINVAL;
    for (size_t i = 0; i <= n; i++)
        id[i] = (char)(bus_id[i] >= 'A' && bus_id[i] <= 'F' ? bus_id[i] + ('a' - 'A')
                                                            : bus_id[i]);
    snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/local_cpulist", sysfs, id);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return -errno;
    n = fread(ret, 1, ret_bytes - 1, f);
    fclose(f);
    ret[n] = '\0';
    if (n == ret_bytes - 1 && strchr(ret, '\n') == NULL)
        return -E2BIG;
    ret[strcspn(ret, "\n")] = '\0';
    return ret[0] != '\0' ? 0 : -ENOENT;
}

/* Multipliers and Weyl constants are from Salmon, Moraes, Dror, Shaw: "Parallel random
 * numbers: as easy as 1, 2, 3" (2011). */
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
