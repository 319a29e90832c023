/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/worker/quant.h"
#include "kernels/cpu/cpu.h"

#define MAX_N 2100

/* ---- parameters ---- */

static void
parse_refused(enum par_quant_weights weights, int64_t group, const char *line)
{
    struct qnt q = { FDK_U8, 7 };
    char err[256] = "";

    assert_int_equal(qnt_parse(weights, group, &q, err, sizeof(err)), -EINVAL);
    if (strncmp(err, line, strlen(line)) != 0 || strchr(err, '\n') != NULL)
        fail_msg("'%s'; expected '%s'", err, line);
    assert_int_equal(q.group, 7);
}

static void
parameters(void **state)
{
    static const int64_t groups[] = { 0, 32, 64, 128 };
    struct qnt q;
    char err[256];

    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(qnt_parse(PAR_QUANT_WEIGHTS_WINT8, groups[i], &q, err, sizeof(err)),
            0);
        assert_int_equal(q.dtype, FDK_I8);
        assert_int_equal(q.group, groups[i]);
        assert_string_equal(qnt_name(&q), "wint8");
        assert_int_equal(qnt_parse(PAR_QUANT_WEIGHTS_WINT4, groups[i], &q, err, sizeof(err)),
            0);
        assert_int_equal(q.dtype, FDK_I4);
        assert_string_equal(qnt_name(&q), "wint4");
        assert_int_equal(qnt_parse(PAR_QUANT_WEIGHTS_FP8, groups[i], &q, err, sizeof(err)),
            0);
        assert_int_equal(q.dtype, FDK_F8E4M3);
        assert_int_equal(q.group, groups[i]);
        assert_string_equal(qnt_name(&q), "fp8");
    }
    assert_int_equal(qnt_parse(PAR_QUANT_WEIGHTS_NONE, 0, &q, err, sizeof(err)), 0);
    assert_int_equal(q.dtype, FDK_F32);
    assert_string_equal(qnt_name(&q), "none");
    parse_refused(PAR_QUANT_WEIGHTS_FP8, 16, "quant.group_size=16 is not one of");
    parse_refused(PAR_QUANT_WEIGHTS_NONE, 64, "quant.group_size=64 has nothing to act on");
    parse_refused(PAR_QUANT_WEIGHTS_WINT4, 48,
        "quant.group_size=48 is not one of 0 (a scale per row), ");
    parse_refused(PAR_QUANT_WEIGHTS_WINT8, -32, "quant.group_size=-32 is not one of");
    parse_refused(PAR_QUANT_WEIGHTS_WINT8, (int64_t)1 << 32,
        "quant.group_size=4294967296 is not one of");
}

static void
group_counts(void **state)
{
    const struct qnt row = { FDK_I8, 0 }, g32 = { FDK_I4, 32 };

    (void)state;
    assert_int_equal(qnt_groups(&row, 1), 1);
    assert_int_equal(qnt_group(&row, 4097), 4097);
    assert_int_equal(qnt_groups(&row, 4097), 1);
    assert_int_equal(qnt_groups(&g32, 31), 1);
    assert_int_equal(qnt_group(&g32, 31), 31);
    assert_int_equal(qnt_groups(&g32, 32), 1);
    assert_int_equal(qnt_groups(&g32, 33), 2);
    assert_int_equal(qnt_group(&g32, 33), 32);
    assert_int_equal(qnt_groups(&g32, 96), 3);
}

/* ---- rows ---- */

static const enum fdk_dtype types[] = { FDK_I8, FDK_I4, FDK_F8E4M3 };
#define N_TYPE 3

static int
quant_row(void *dst, float *scale, const void *src, enum fdk_dtype t, int32_t n,
    const struct qnt *q, int32_t *ret_at)
{
    return cpu_quant_row(dst, scale, src, t, n, q->dtype, qnt_group(q, n), ret_at);
}

struct packed {
    int8_t v[MAX_N]; /* the unpacked numbers; for e4m3 the bytes */
    float scale[MAX_N];
    int32_t n_group;
};

/* Exactly sized buffers, so that the sanitizer sees a byte too many. */
static void
quantize(const float *x, int32_t n, const struct qnt *q, struct packed *ret)
{
    size_t bytes = fdk_row_bytes(q->dtype, (size_t)n);
    int32_t at = -1;
    uint8_t *out = malloc(bytes);
    float *scale, *src = malloc((size_t)n * 4);

    ret->n_group = qnt_groups(q, n);
    scale = malloc((size_t)ret->n_group * 4);
    assert_true(out != NULL && scale != NULL && src != NULL);
    memcpy(src, x, (size_t)n * 4);
    assert_int_equal(quant_row(out, scale, src, FDK_F32, n, q, &at), 0);
    memcpy(ret->scale, scale, (size_t)ret->n_group * 4);
    for (int32_t i = 0; i < n; i++) {
        int b = out[q->dtype == FDK_I4 ? i / 2 : i];

        if (q->dtype == FDK_I4)
            b = ((b >> (i % 2 * 4)) & 15) << 4;
        ret->v[i] = q->dtype == FDK_I4 ? (int8_t)((int8_t)b / 16) : (int8_t)b;
    }
    free(out);
    free(scale);
    free(src);
}

/* The number of an e4m3 byte, from the format's definition. */
static double
e4m3(unsigned b)
{
    int e = b >> 3 & 15, m = b & 7;
    double v = e == 0 ? ldexp(m, -9) : ldexp(m + 8, e - 10);

    return b & 0x80 ? -v : v;
}

/* The byte nearest to v, found by trying all; ties to even. */
static uint8_t
to_e4m3(float v)
{
    unsigned best = 0;

    for (unsigned b = 1; b < 0x7f; b++) {
        double d = fabs(e4m3(b) - fabs((double)v)), e = fabs(e4m3(best) - fabs((double)v));

        if (d < e || (d == e && b % 2 == 0))
            best = b;
    }
    return (uint8_t)(best | (signbit(v) ? 0x80 : 0));
}

static void
rounding_e4m3(void **state)
{
    const struct qnt q = { FDK_F8E4M3, 0 };
    static struct packed p;
    float x[MAX_N] = { 448 };
    int32_t n = 1;

    (void)state;
    /* Scale 1: each number, the middle to the next one, and both neighbours of that. */
    for (unsigned b = 0; b < 0x7e; b++) {
        float lo = (float)e4m3(b), mid = (float)(e4m3(b) + e4m3(b + 1)) / 2;

        for (int s = 0; s < 2; s++) {
            const float v[] = { lo, mid, nextafterf(mid, 0), nextafterf(mid, 1000) };

            for (int i = 0; i < 4; i++)
                x[n++] = s == 0 ? v[i] : -v[i];
        }
    }
    quantize(x, n, &q, &p);
    assert_true(p.scale[0] == 1);
    for (int32_t i = 0; i < n; i++)
        if ((uint8_t)p.v[i] != to_e4m3(x[i]))
            fail_msg("%.9g: %02x, expected %02x", (double)x[i], (unsigned)(uint8_t)p.v[i],
                (unsigned)to_e4m3(x[i]));
    /* The ends of fp32: the largest number, and scales of few bits, where
     * w / scale can be more than 448. */
    x[0] = -FLT_MAX;
    x[1] = FLT_MAX;
    x[2] = 1e-45f;
    quantize(x, 3, &q, &p);
    assert_true(p.scale[0] == FLT_MAX / 448);
    assert_true((uint8_t)p.v[0] == 0xfe && p.v[1] == 0x7e && p.v[2] == 0);
    x[0] = 667 * 0x1p-149f;
    x[1] = -333 * 0x1p-149f;
    quantize(x, 2, &q, &p);
    assert_true(x[0] / p.scale[0] > 600 && p.v[0] == 0x7e);
    assert_int_equal((uint8_t)p.v[1], to_e4m3(x[1] / p.scale[0]));
}

static void
rounding(void **state)
{
    /* scale 1 for wint8; ties to even, then the ends */
    const float x[] = { 127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, -126.5f,
        0.49999997f, -0.0f, 1e-30f };
    const int8_t want[] = { 127, 0, 2, 2, 0, -2, -2, 126, -126, 0, 0, 0 };
    /* scale 1 for wint4: -8 is the element of largest magnitude */
    const float y[] = { -8, 7.4f, 7.9f, 0.5f, 1.5f, -7.5f, -6.5f, 8 };
    const int8_t want4[] = { -8, 7, 7, 0, 2, -8, -6, 7 };
    const struct qnt q8 = { FDK_I8, 0 }, q4 = { FDK_I4, 0 };
    struct packed p;
    float z[8];

    (void)state;
    quantize(x, 12, &q8, &p);
    assert_true(p.scale[0] == 1);
    assert_memory_equal(p.v, want, 12);
    quantize(y, 8, &q4, &p);
    assert_true(p.scale[0] == 1);
    assert_memory_equal(p.v, want4, 8);
    /* Only a positive one has this magnitude: the scale is negative, the rest mirrored. */
    for (int i = 0; i < 8; i++)
        z[i] = i == 7 ? 7.0f : -y[i];
    quantize(z, 8, &q4, &p);
    assert_true(p.scale[0] == -1);
    assert_memory_equal(p.v, want4, 7);
    assert_int_equal(p.v[7], -7);
}

static void
zeros_and_small_scales(void **state)
{
    const struct qnt q8 = { FDK_I8, 32 }, q4 = { FDK_I4, 32 }, qf = { FDK_F8E4M3, 32 };
    struct packed p;
    float x[96] = { 0 };

    (void)state;
    x[3] = -0.0f;
    x[40] = 1e-45f; /* divided by 127 it is 0 */
    x[64] = 1e-40f; /* divided by 127 it has few bits left */
    x[65] = -0.9e-40f;
    quantize(x, 96, &q8, &p);
    assert_int_equal(p.n_group, 3);
    for (int i = 0; i < 64; i++)
        assert_int_equal(p.v[i], 0);
    assert_true(p.scale[0] == 0 && !signbit(p.scale[0]) && p.scale[1] == 0);
    assert_true(p.scale[2] > 0 && p.v[64] == 127 && p.v[65] < -100);
    quantize(x, 96, &q4, &p);
    assert_true(p.scale[0] == 0 && !signbit(p.scale[0]) && p.scale[1] == 0 &&
        !signbit(p.scale[1]));
    assert_true(p.scale[2] < 0 && p.v[64] == -8 && p.v[65] == 7);
    quantize(x, 96, &qf, &p);
    for (int i = 0; i < 64; i++)
        assert_int_equal(p.v[i], 0);
    assert_true(p.scale[0] == 0 && !signbit(p.scale[0]) && p.scale[1] == 0);
    assert_true(p.scale[2] > 0 && p.v[64] == 0x7e && (p.v[65] & 0x80) != 0);
}

static float
number(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (float)((int32_t)(*s >> 32)) * 0x1p-31f;
}

/* Straight from the definition, in one loop per group, by the C library. */
static void
expect(const float *x, int32_t n, const struct qnt *q, struct packed *ret)
{
    int32_t group = q->group == 0 ? n : q->group;

    ret->n_group = 0;
    for (int32_t g = 0; g < n; g += group) {
        float top = 0, scale;

        for (int32_t i = g; i < n && i < g + group; i++)
            if (fabsf(x[i]) > fabsf(top) || (fabsf(x[i]) == fabsf(top) && x[i] < 0))
                top = x[i];
        scale = q->dtype == FDK_I8 ? fabsf(top) / 127
            : q->dtype == FDK_I4   ? -(top / 8)
                                   : fabsf(top) / 448;
        for (int32_t i = g; i < n && i < g + group; i++) {
            float v = scale == 0 ? 0 : nearbyintf(x[i] / scale);

            if (q->dtype == FDK_F8E4M3) {
                ret->v[i] = (int8_t)(scale == 0 ? 0 : to_e4m3(x[i] / scale));
                continue;
            }
            v = q->dtype == FDK_I4 && v > 7 ? 7 : v;
            assert_true(fabsf(v) <= (q->dtype == FDK_I8 ? 127 : 8));
            ret->v[i] = (int8_t)v;
        }
        ret->scale[ret->n_group++] = scale;
    }
}

static void
random_rows(void **state)
{
    static const int32_t lens[] = { 1, 2, 3, 16, 31, 32, 33, 64, 100, 128, 510, 512, 514,
        640, 1023, 1024, 2098 };
    static const int32_t groups[] = { 0, 32, 64, 128 };
    static struct packed got, want;
    float x[MAX_N];
    uint64_t seed = 1;

    (void)state;
    for (size_t l = 0; l < sizeof(lens) / sizeof(lens[0]); l++)
        for (int k = 0; k < 4 * N_TYPE; k++) {
            struct qnt q = { types[k % N_TYPE], groups[k / N_TYPE] };
            int32_t n = lens[l];

            if (q.dtype == FDK_I4 && n % 2 != 0)
                continue;
            for (int rep = 0; rep < 20; rep++) {
                for (int32_t i = 0; i < n; i++)
                    x[i] = number(&seed) * (rep % 4 == 3 && i % 50 < 9 ? 0 : 0.05f);
                /* equal magnitudes of both signs */
                if (rep % 5 == 0)
                    x[n / 2] = -x[0];
                quantize(x, n, &q, &got);
                expect(x, n, &q, &want);
                assert_int_equal(got.n_group, want.n_group);
                assert_memory_equal(got.v, want.v, n);
                for (int32_t g = 0; g < got.n_group; g++)
                    assert_true(got.scale[g] == want.scale[g]);
            }
        }
}

/* 16-bit sources give the same result as their values in floats. */
static void
source_types(void **state)
{
    static struct packed want;
    const int32_t n = 700;
    uint16_t bf[700], h[700];
    float xb[700], xh[700];
    uint64_t seed = 3;

    (void)state;
    for (int32_t i = 0; i < n; i++) {
        uint32_t u;
        float f = number(&seed);

        memcpy(&u, &f, 4);
        bf[i] = (uint16_t)(u >> 16);
        u &= 0xffff0000;
        memcpy(&xb[i], &u, 4);
        h[i] = (uint16_t)((seed >> 60 & 8) << 12 | (10 + i % 5) << 10 | (i * 37 & 1023));
        xh[i] = ldexpf((float)(1024 + (i * 37 & 1023)), 10 + i % 5 - 25) *
            (h[i] & 0x8000 ? -1 : 1);
    }
    for (int k = 0; k < 3 * N_TYPE; k++) {
        const struct qnt q = { types[k % N_TYPE], k / N_TYPE * 32 };
        int8_t a[700], b[700];
        float sa[700], sb[700];
        int32_t at;

        quantize(xb, n, &q, &want);
        assert_int_equal(quant_row(a, sa, xb, FDK_F32, n, &q, &at), 0);
        assert_int_equal(quant_row(b, sb, bf, FDK_BF16, n, &q, &at), 0);
        assert_memory_equal(a, b, fdk_row_bytes(q.dtype, (size_t)n));
        assert_memory_equal(sa, sb, (size_t)want.n_group * 4);
        assert_int_equal(quant_row(a, sa, xh, FDK_F32, n, &q, &at), 0);
        assert_int_equal(quant_row(b, sb, h, FDK_F16, n, &q, &at), 0);
        assert_memory_equal(a, b, fdk_row_bytes(q.dtype, (size_t)n));
        assert_memory_equal(sa, sb, (size_t)want.n_group * 4);
    }
}

static void
not_finite(void **state)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    float x[1200], scale[64];
    int8_t out[1200];

    (void)state;
    for (int b = 0; b < 3; b++)
        for (int k = 0; k < 4 * N_TYPE; k++)
            for (int32_t i = 0; i < 1200; i += 133) {
                const struct qnt q = { types[k % N_TYPE],
                    (int32_t[]){ 0, 32, 64, 128 }[k / N_TYPE] };
                int32_t at = -1;

                for (int32_t j = 0; j < 1200; j++)
                    x[j] = 1;
                x[i] = bad[b];
                assert_int_equal(quant_row(out, scale, x, FDK_F32, 1200, &q, &at), -EDOM);
                assert_int_equal(at, i);
            }
}

/* The quantization error is at most half a step, except at the upper end of wint4. */
static void
error_bound(void **state)
{
    const struct qnt q8 = { FDK_I8, 64 }, q4 = { FDK_I4, 64 }, qf = { FDK_F8E4M3, 64 };
    static struct packed p;
    float x[MAX_N];
    uint64_t seed = 9;

    (void)state;
    for (int32_t i = 0; i < 2048; i++)
        x[i] = number(&seed);
    quantize(x, 2048, &q8, &p);
    for (int32_t i = 0; i < 2048; i++) {
        float s = p.scale[i / 64];

        assert_true(fabsf((float)p.v[i] * s - x[i]) <= s * 0.5001f);
    }
    quantize(x, 2048, &q4, &p);
    for (int32_t i = 0; i < 2048; i++) {
        float s = p.scale[i / 64], d = fabsf((float)p.v[i] * s - x[i]);

        assert_true(d <= fabsf(s) * (p.v[i] == 7 ? 1.0001f : 0.5001f));
    }
    /* Three bits of mantissa, and steps of 2^-9 below 2^-6. */
    quantize(x, 2048, &qf, &p);
    for (int32_t i = 0; i < 2048; i++) {
        double s = (double)p.scale[i / 64], v = e4m3((uint8_t)p.v[i]) * s;
        double most = fmax(fabs((double)x[i]) / 16, s * 0x1p-10);

        assert_true(fabs(v - (double)x[i]) <= most * 1.0001);
    }
}

/* ---- packing ---- */

/* Arguments beyond the rows, or without a conversion, are refused;
 * other rows are unchanged. */
static void
packs_rows(void **state)
{
    float x[2 * 96], out[4 * 96];
    uint64_t bad = UINT64_MAX;
    const struct fdk_pack_args good = { .w = { FDK_F32, .rows = 4, .cols = 96, .data = out },
        .x_dtype = FDK_F32,
        .first = 1,
        .n = 2,
        .x = x };
    struct fdk_pack_args a = good;

    (void)state;
    for (int i = 0; i < 2 * 96; i++)
        x[i] = (float)i;
    memset(out, 0xee, sizeof(out));
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), 0);
    assert_memory_equal(out + 96, x, sizeof(x));
    for (size_t i = 0; i < 96 * sizeof(float); i++)
        assert_true(((unsigned char *)out)[i] == 0xee &&
            ((unsigned char *)(out + 3 * 96))[i] == 0xee);
    a.first = 3;
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), -EINVAL);
    a = good;
    a.w.layout = 1;
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), -ENOTSUP);
    a = good;
    a.what = FDK_PACK_SCALES; /* the format has no scales */
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), -EINVAL);
    a = good;
    a.x_dtype = FDK_I8;
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), -ENOTSUP);
    a = good;
    a.w.format = FDK_BF16; /* this format is not quantized */
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), -ENOTSUP);
    a = good;
    a.w.format = FDK_I4;
    a.w.group = 32;
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), -EINVAL); /* bad is missing */
    a.bad = &bad;
    a.bad_first = 1000;
    assert_int_equal(fdk_ops_cpu.weight_layout(&a.w), 0);
    assert_true(a.w.scale_at == 256 && a.w.bytes == 256 + 4 * 3 * sizeof(float));
    assert_true(a.w.bytes <= sizeof(out));
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), 0);
    assert_true(bad == UINT64_MAX);
    x[96 + 5] = INFINITY;
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), 0);
    assert_true(bad == 1000 + 96 + 5);
    a.w.group = 33;
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), -EINVAL);
    a.w.group = 32;
    a.w.cols = 95;
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), -EINVAL);
}

/* Quantizes the columns from x_at on of each row, with their own scale or
 * with that of the whole row. */
static void
pack_window(const struct qnt *q, int32_t x_cols, int32_t x_at, int32_t n, int row_scale)
{
    enum { ROWS = 5 };
    float x[ROWS * 1600], whole[1600], scale[64], *scales;
    char out[ROWS * 1600 + 512 + ROWS * 64 * 4], row[1600];
    uint64_t seed = (uint64_t)(x_cols + x_at), bad = UINT64_MAX;
    struct fdk_pack_args a = { .w = { q->dtype, .rows = ROWS, .cols = n,
                                   .group = row_scale ? n : qnt_group(q, n) },
        .x_dtype = FDK_F32,
        .n = ROWS,
        .x = x,
        .x_cols = x_cols,
        .x_at = x_at,
        .x_row_scale = row_scale,
        .bad = &bad };
    int32_t at;

    for (int32_t i = 0; i < ROWS * x_cols; i++)
        x[i] = number(&seed) * (float)(1 + i % x_cols);
    assert_int_equal(fdk_ops_cpu.weight_layout(&a.w), 0);
    assert_true(a.w.bytes <= sizeof(out));
    a.w.data = out;
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), 0);
    assert_true(bad == UINT64_MAX);
    for (int32_t r = 0; r < ROWS; r++) {
        int32_t groups = fdk_weight_groups(&a.w);
        size_t bytes = fdk_row_bytes(q->dtype, (size_t)n), off = 0;

        if (row_scale) {
            memcpy(whole, x + r * x_cols, (size_t)x_cols * 4);
            off = fdk_row_bytes(q->dtype, (size_t)x_at);
        } else {
            memcpy(whole, x + r * x_cols + x_at, (size_t)n * 4);
        }
        assert_int_equal(cpu_quant_row(row, scale, whole, FDK_F32, row_scale ? x_cols : n,
                             q->dtype, row_scale ? x_cols : a.w.group, &at),
            0);
        assert_memory_equal(out + (size_t)r * bytes, row + off, bytes);
        scales = (float *)(void *)(out + a.w.scale_at);
        assert_memory_equal(scales + r * groups, scale, (size_t)groups * 4);
    }
    /* A value that is not finite is found in all elements that the scale depends on. */
    x[2 * x_cols + x_at + n - 1] = NAN;
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), 0);
    assert_int_equal(bad, 2 * x_cols + x_at + n - 1);
    bad = UINT64_MAX;
    x[2 * x_cols + x_at + n - 1] = 0;
    x[x_cols + (x_at + n) % x_cols] = INFINITY;
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), 0);
    assert_true(bad == (row_scale ? (uint64_t)(x_cols + (x_at + n) % x_cols) : UINT64_MAX));
}

static void
packs_windows(void **state)
{
    static const struct qnt schemes[] = { { FDK_I8, 0 }, { FDK_I4, 0 }, { FDK_F8E4M3, 0 },
        { FDK_I8, 32 }, { FDK_I4, 64 }, { FDK_F8E4M3, 128 } };
    float x[2 * 8], out[2 * 4];
    struct fdk_pack_args a = { .w = { FDK_F32, .rows = 2, .cols = 4, .data = out },
        .x_dtype = FDK_F32,
        .n = 2,
        .x = x,
        .x_cols = 8,
        .x_at = 3 };
    uint64_t bad = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
        for (int32_t rank = 0; rank < 3; rank++) {
            pack_window(&schemes[i], 3 * 128, rank * 128, 128, schemes[i].group == 0);
            pack_window(&schemes[i], 3 * 512, rank * 512, 512, schemes[i].group == 0);
        }
    for (int i = 0; i < 16; i++)
        x[i] = (float)i;
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), 0);
    for (int i = 0; i < 8; i++)
        assert_true(out[i] == (float)(i / 4 * 8 + 3 + i % 4));
    a.x_at = 5; /* beyond the row */
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), -EINVAL);
    a.x_at = -1;
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), -EINVAL);
    a.x_at = 0;
    a.x_cols = 3;
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), -EINVAL);
    a.x_cols = 8;
    a.x_row_scale = 1; /* the format has no scale */
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), -EINVAL);
    a.w.format = FDK_I4;
    a.w.group = 4;
    a.bad = &bad;
    assert_int_equal(fdk_ops_cpu.weight_layout(&a.w), 0);
    a.x_at = 1; /* half a byte */
    assert_int_equal(fdk_ops_cpu.weight_pack(&a, NULL), -EINVAL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters),
        cmocka_unit_test(group_counts),
        cmocka_unit_test(rounding),
        cmocka_unit_test(rounding_e4m3),
        cmocka_unit_test(zeros_and_small_scales),
        cmocka_unit_test(random_rows),
        cmocka_unit_test(source_types),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(error_bound),
        cmocka_unit_test(packs_rows),
        cmocka_unit_test(packs_windows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
