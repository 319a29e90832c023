/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights on virtual devices: the rows of FDK_LAYOUT_ROWS, filled by the loader's
 * threads.
 */
#include "config.h"

#include "kernels/cpu/vdev.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* The compilers' default leaves these loops scalar. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#define BLOCK    512 /* weights converted at a time, on the stack; even */
#define INF_BITS 0x7f800000u

#if defined(__x86_64__)
#define VARIANT_AVX2 1
#endif

/* ---- inner loops, at most BLOCK elements ---- */

struct loops {
    void (*from_bf16)(float *y, const void *src, int32_t n);
    uint32_t (*most)(const float *x, int32_t n);
    void (*to_int)(int8_t *y, const float *x, int32_t n, float scale, float lo, float hi);
    void (*pack)(uint8_t *out, const int8_t *y, int32_t n);
    void (*e4m3)(uint8_t *y, const float *x, int32_t n, float scale);
};

static inline __attribute__((always_inline)) void
from_bf16(float *y, const void *src, int32_t n)
{
    const char *p = src;

    for (int32_t i = 0; i < n; i++) {
        uint16_t h;
        uint32_t u;

        memcpy(&h, p + 2 * (size_t)i, 2);
        u = (uint32_t)h << 16;
        memcpy(&y[i], &u, 4);
    }
}

/* The largest element as (magnitude, sign) bits: magnitudes have the same order as
 * integers and as floats, with NaN and Inf largest; of equal magnitudes the negative one
 * is larger. */
static inline __attribute__((always_inline)) uint32_t
most_of(const float *x, int32_t n)
{
    uint32_t most = 0;

    for (int32_t i = 0; i < n; i++) {
        uint32_t u;

        memcpy(&u, &x[i], 4);
        u = u << 1 | u >> 31;
        most = u > most ? u : most;
    }
    return most;
}

/* Adding 1.5 * 2^23 gives the nearest integer, ties to even; the low bits of the sum are
 * that integer. */
static inline __attribute__((always_inline)) void
to_int(int8_t *y, const float *x, int32_t n, float scale, float lo, float hi)
{
    for (int32_t i = 0; i < n; i++) {
        float v = x[i] / scale;
        int32_t u;

        v = v < lo ? lo : v;
        v = v > hi ? hi : v;
        v += 12582912.0f;
        memcpy(&u, &v, 4);
        y[i] = (int8_t)(u - 0x4b400000);
    }
}

/* Packs 2 n values to n bytes. */
static inline __attribute__((always_inline)) void
pack_pairs(uint8_t *out, const int8_t *y, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        uint16_t v;

        memcpy(&v, &y[2 * i], 2);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        v = (uint16_t)(v << 8 | v >> 8);
#endif
        out[i] = (uint8_t)((v & 15) | (v >> 4 & 0xf0));
    }
}

/* Conversion to the nearest e4m3, ties to even, saturating at 448. From 2^-6 on the
 * float's bits are rounded in place; smaller numbers are multiples of 2^-9, and the low
 * bits of the sum are that multiple. */
static inline __attribute__((always_inline)) void
round_e4m3(uint8_t *y, const float *x, int32_t n, float scale)
{
    for (int32_t i = 0; i < n; i++) {
        float v = x[i] / scale, mag;
        uint32_t u, a, big, small;

        memcpy(&u, &v, 4);
        a = u & 0x7fffffff;
        memcpy(&mag, &a, 4);
        mag = mag * 512 + 0x1p23f;
        memcpy(&small, &mag, 4);
        big = ((a + 0x7ffff + (a >> 20 & 1)) >> 20) - (120u << 3);
        big = a < 0x3c800000 ? small & 0xff : big;
        big = a >= 0x43e00000 ? 0x7e : big;
        y[i] = (uint8_t)(big | (u >> 24 & 0x80));
    }
}

#define LOOPS(name, attr) \
    attr static void from_bf16_##name(float *y, const void *src, int32_t n) \
    { \
        from_bf16(y, src, n); \
    } \
    attr static uint32_t most_##name(const float *x, int32_t n) \
    { \
        return most_of(x, n); \
    } \
    attr static void to_int_##name(int8_t *y, const float *x, int32_t n, float scale, \
        float lo, float hi) \
    { \
        to_int(y, x, n, scale, lo, hi); \
    } \
    attr static void pack_##name(uint8_t *out, const int8_t *y, int32_t n) \
    { \
        pack_pairs(out, y, n); \
    } \
    attr static void e4m3_##name(uint8_t *y, const float *x, int32_t n, float scale) \
    { \
        round_e4m3(y, x, n, scale); \
    } \
    static const struct loops loops_##name = { from_bf16_##name, most_##name, \
        to_int_##name, pack_##name, e4m3_##name };

LOOPS(plain, )
#ifdef VARIANT_AVX2
LOOPS(avx2, __attribute__((target("avx2"))))
#endif

static const struct loops *
pick_loops(void)
{
#ifdef VARIANT_AVX2
    if (__builtin_cpu_supports("avx2"))
        return &loops_avx2;
#endif
    return &loops_plain;
}

/* ---- a row ---- */

struct row {
    const struct loops *l;
    const char *src;
    enum fdk_dtype t;
    enum fdk_dtype to;
    uint8_t *out; /* next byte */
    int32_t at;   /* index in the row of the block in buf */
    float buf[BLOCK];
};

static void
get_block(struct row *r, int32_t at, int32_t n)
{
    size_t elt = r->t == FDK_F32 ? 4 : 2;
    const char *p = r->src + elt * (size_t)at;

    r->at = at;
    if (r->t == FDK_F32)
        memcpy(r->buf, p, 4 * (size_t)n);
    else if (r->t == FDK_BF16)
        r->l->from_bf16(r->buf, p, n);
    else
        fdk_to_f32(r->buf, p, r->t, (size_t)n);
}

/* Updates *top with n elements at x. Returns 0, or -EDOM if one is not finite. */
static int
add_top(const struct row *r, const float *x, int32_t n, uint32_t *top, int32_t *ret_at)
{
    uint32_t m = r->l->most(x, n);
    int32_t i = 0;

    if (m >> 1 >= INF_BITS) {
        while (isfinite(x[i]))
            i++;
        *ret_at = r->at + (int32_t)(x - r->buf) + i;
        return -EDOM;
    }
    *top = m > *top ? m : *top;
    return 0;
}

static float
top_scale(const struct row *r, uint32_t top)
{
    uint32_t bits = top >> 1;
    float f;

    memcpy(&f, &bits, 4);
    if (r->to == FDK_I4)
        f = (top & 1) != 0 ? f / 8 : -f / 8;
    else
        f /= r->to == FDK_I8 ? 127 : 448;
    return f == 0 ? 0 : f; /* not -0 */
}

static void
put(struct row *r, const float *x, int32_t n, float scale)
{
    int8_t y[BLOCK];

    if (scale == 0) {
        memset(r->out, 0, fdk_row_bytes(r->to, (size_t)n));
    } else if (r->to == FDK_F8E4M3) {
        r->l->e4m3(r->out, x, n, scale);
    } else if (r->to == FDK_I8) {
        r->l->to_int(y, x, n, scale, -127, 127);
        memcpy(r->out, y, (size_t)n);
    } else {
        r->l->to_int(y, x, n, scale, -8, 7);
        r->l->pack(r->out, y, n / 2);
    }
    r->out += fdk_row_bytes(r->to, (size_t)n);
}

/* Groups of at most BLOCK elements: each block has full groups. */
static int
small_groups(struct row *r, float *scale, int32_t n, int32_t group, int32_t *ret_at)
{
    int32_t step = BLOCK / group * group;

    for (int32_t at = 0; at < n; at += step) {
        int32_t m = n - at < step ? n - at : step;

        get_block(r, at, m);
        for (int32_t g = 0; g < m; g += group, scale++) {
            int32_t k = m - g < group ? m - g : group;
            uint32_t top = 0;
            int rc = add_top(r, r->buf + g, k, &top, ret_at);

            if (rc != 0)
                return rc;
            *scale = top_scale(r, top);
            put(r, r->buf + g, k, *scale);
        }
    }
    return 0;
}

/* The group is the row, which is read twice. The scale is computed from all `len`
 * elements, of which n from `first` on are stored. */
static int
whole_row(struct row *r, float *scale, int32_t len, int32_t first, int32_t n,
    int32_t *ret_at)
{
    uint32_t top = 0;

    for (int32_t at = 0; at < len; at += BLOCK) {
        int32_t m = len - at < BLOCK ? len - at : BLOCK;
        int rc;

        get_block(r, at, m);
        rc = add_top(r, r->buf, m, &top, ret_at);
        if (rc != 0)
            return rc;
    }
    *scale = top_scale(r, top);
    for (int32_t at = 0; at < n; at += BLOCK) {
        int32_t m = n - at < BLOCK ? n - at : BLOCK;

        get_block(r, first + at, m);
        put(r, r->buf, m, *scale);
    }
    return 0;
}

int
cpu_quant_row(void *dst, float *scale, const void *src, enum fdk_dtype t, int32_t n,
    enum fdk_dtype to, int32_t group, int32_t *ret_at)
{
    struct row r;

    r.l = pick_loops();
    r.src = src;
    r.t = t;
    r.to = to;
    r.out = dst;
    return group <= BLOCK ? small_groups(&r, scale, n, group, ret_at)
                          : whole_row(&r, scale, n, 0, n, ret_at);
}

/* ---- a weight's rows ---- */

/* Quantizes row i of x. -EDOM: *ret_at is the index in the row of an element that is not
 * finite. */
static int
quantize_row(const struct fdk_pack_args *a, int64_t i, int32_t *ret_at)
{
    const struct fdk_weight *w = &a->w;
    size_t elt = fdk_dtype_bytes(a->x_dtype), raw = (size_t)fdk_pack_x_cols(a) * elt;
    void *to = fdk_weight_at(w, FDK_PACK_VALUES, a->first + i);
    float *scale = fdk_weight_at(w, FDK_PACK_SCALES, a->first + i);
    const char *src = (const char *)a->x + (size_t)i * raw;
    struct row r;
    int rc;

    if (!a->x_row_scale) {
        rc = cpu_quant_row(to, scale, src + elt * (size_t)a->x_at, a->x_dtype, w->cols,
            w->format, w->group, ret_at);
        if (rc != 0)
            *ret_at += a->x_at;
        return rc;
    }
    r.l = pick_loops();
    r.src = src;
    r.t = a->x_dtype;
    r.to = w->format;
    r.out = to;
    return whole_row(&r, scale, fdk_pack_x_cols(a), a->x_at, w->cols, ret_at);
}

static void
quantize(const struct fdk_pack_args *a)
{
    for (int64_t i = 0; i < a->n; i++) {
        int32_t at;
        uint64_t bad;

        if (quantize_row(a, i, &at) == 0)
            continue;
        bad = a->bad_first + (uint64_t)i * (uint64_t)fdk_pack_x_cols(a) + (uint64_t)at;
        if (bad < *a->bad)
            *a->bad = bad;
        return;
    }
}

/* Copies or converts n elements of x from element `at` on. */
static void
take(const struct fdk_pack_args *a, void *to, size_t at, size_t n)
{
    enum fdk_dtype t = a->x_dtype;
    const char *x = (const char *)a->x + fdk_row_bytes(t, at);

    if (a->what == FDK_PACK_SCALES || t == a->w.format)
        memcpy(to, x, fdk_row_bytes(t, n));
    else
        fdk_to_f32(to, x, t, n);
}

int
vdev_weight_pack(const struct fdk_pack_args *a, fdk_stream_t st)
{
    const struct fdk_weight *w = &a->w;
    size_t n = (size_t)a->n, width = (size_t)fdk_pack_width(a);
    size_t x_cols = (size_t)fdk_pack_x_cols(a);
    int rc = fdk_pack_check(a);

    (void)st;
    if (rc != 0)
        return rc;
    if (a->what == FDK_PACK_VALUES && a->x_dtype != w->format && w->group > 0)
        quantize(a);
    else if (x_cols == width)
        take(a, fdk_weight_at(w, a->what, a->first), 0, n * width);
    else
        for (size_t i = 0; i < n; i++)
            take(a, fdk_weight_at(w, a->what, a->first + (int64_t)i),
                i * x_cols + (size_t)a->x_at, width);
    return 0;
}

/* The GEMM reads rows: always FDK_LAYOUT_ROWS. */
int
vdev_weight_layout(struct fdk_weight *w)
{
    if (!fdk_is_float(w->format) && !fdk_is_quant(w->format))
        return -ENOTSUP;
    if (fdk_is_quant(w->format) && w->group != w->cols && w->group % 16 != 0)
        return -ENOTSUP;
    return fdk_weight_rows(w);
}

const char *
vdev_layout_name(int32_t layout)
{
    return layout == FDK_LAYOUT_ROWS ? "rows" : "unknown";
}
