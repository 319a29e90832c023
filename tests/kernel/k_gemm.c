/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <float.h>

#include "tests/kernel/k_kv.h"
#include "tests/kernel/k_util.h"

static const enum fdk_dtype dtypes[] = { FDK_F32, FDK_F16, FDK_BF16 };

static void
gemm(struct k_dev *d, float *y, const float *x, const void *w, const float *bias,
    const int32_t *n, const int shape[4], int first, enum fdk_dtype t)
{
    const struct fdk_gemm_args a = {
        .y = y + (size_t)first * (size_t)shape[3],
        .x = x,
        .w = w,
        .bias = bias,
        .n = n,
        .first = first,
        .T = shape[0],
        .N = shape[1],
        .K = shape[2],
        .ldy = shape[3],
        .w_dtype = t,
    };
    assert_int_equal(d->ops->gemm(&a, d->st), 0);
    k_sync(d);
}

/* Compares one shape with double precision, with padded rows and guards. */
static void
check_shape(struct k_dev *d, int T, int N, int K, enum fdk_dtype t)
{
    const int shape[4] = { T + 2, N, K, N + 3 };
    size_t ny = (size_t)(T + 2) * (size_t)(N + 3);
    size_t nw = (size_t)N * (size_t)K, nx = (size_t)T * (size_t)K;
    int32_t live = T;
    float *x = malloc(nx * 4), *exact = malloc(nw * 4), *bias = malloc((size_t)N * 4);
    float *y = k_new(ny);
    void *w = k_weights(nw, t, 7, exact);
    k_fill(x, nx, 1);
    k_fill(bias, (size_t)N, 2);
    gemm(d, y, x, w, N % 2 ? bias : NULL, &live, shape, 0, t);
    k_check(y, ny);
    assert_true(k_untouched(y + (size_t)T * (size_t)(N + 3), 2 * (size_t)(N + 3)));
    for (int m = 0; m < T; m++) {
        for (int n = 0; n < N; n++) {
            double s = N % 2 ? bias[n] : 0, mag = fabs(s);
            for (int k = 0; k < K; k++) {
                double p = (double)x[m * K + k] *
                    (double)exact[(size_t)n * (size_t)K + (size_t)k];
                s += p;
                mag += fabs(p);
            }
            k_assert_near(y[m * (N + 3) + n], s, 1e-6 * mag + 1e-12, "y",
                (size_t)(m * N + n));
        }
        assert_true(k_untouched(y + m * (N + 3) + N, 3));
    }
    free(x);
    free(exact);
    free(bias);
    free(w);
    k_free(y);
}

static void
test_reference(void **state)
{
    static const int shapes[][3] = {
        { 1, 1, 1 },
        { 1, 8, 16 },
        { 1, 17, 33 },
        { 2, 9, 31 },
        { 3, 25, 64 },
        { 4, 24, 100 },
        { 5, 7, 47 },
        { 7, 50, 128 },
        { 8, 6, 15 },
        { 9, 13, 1025 },
        { 13, 31, 48 },
        { 66, 40, 130 },
        { 130, 5, 40 },
        { 1, 300, 256 },
        { 11, 7, 2100 },
    };
    (void)state;
    for (int i = 0; i < 3; i++) {
        if (!k_has_isa(k_isas[i]))
            continue;
        struct k_dev d;
        k_open(&d, 2, k_isas[i]);
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
            for (int t = 0; t < 3; t++)
                check_shape(&d, shapes[s][0], shapes[s][1], shapes[s][2], dtypes[t]);
        k_close(&d);
    }
}

/* A row's bits do not depend on the number of rows in the launch, nor on threads. */
static void
test_invariance(void **state)
{
    enum { T = 70, N = 53, K = 1100 };
    (void)state;
    float *x = malloc(T * K * 4), *exact = malloc(N * K * 4);
    k_fill(x, T * K, 3);
    for (int ti = 0; ti < 3; ti++) {
        void *w = k_weights(N * K, dtypes[ti], 9, exact);
        float *one = NULL;
        for (int isa = 1; isa < 3; isa++)
            for (int threads = 1; threads <= 3; threads++) {
                static const int splits[] = { 1, 2, 3, 4, 5, 7, 8, 16, T };
                if (!k_has_isa(k_isas[isa]))
                    continue;
                struct k_dev d;
                k_open(&d, threads, k_isas[isa]);
                for (size_t s = 0; s < sizeof(splits) / sizeof(splits[0]); s++) {
                    float *y = k_new(T * N);
                    int32_t live = T;
                    const int shape[4] = { splits[s], N, K, N };
                    for (int first = 0; first < T; first += splits[s])
                        gemm(&d, y, x, w, NULL, &live, shape, first, dtypes[ti]);
                    k_check(y, T * N);
                    if (one == NULL)
                        one = y;
                    else
                        assert_memory_equal(y, one, T * N * 4);
                    if (y != one)
                        k_free(y);
                }
                k_close(&d);
            }
        if (one != NULL)
            k_free(one);
        free(w);
    }
    free(x);
    free(exact);
}

/* Computes rows [first, min(first + T, *n)) and no others; there may be no row. */
static void
test_window(void **state)
{
    enum { N = 10, K = 20 };
    struct k_dev d;
    (void)state;
    k_open(&d, 2, NULL);
    float *x = malloc(9 * K * 4), *w = malloc(N * K * 4);
    k_fill(x, 9 * K, 1);
    k_fill(w, N * K, 2);
    for (int32_t live = 0; live <= 9; live++) {
        float *y = k_new(9 * N);
        const int shape[4] = { 3, N, K, N };
        gemm(&d, y, x, w, NULL, &live, shape, 4, FDK_F32);
        int end = live < 4 ? 4 : live < 7 ? live : 7;
        assert_true(k_untouched(y, 4 * N));
        for (int m = 4; m < end; m++)
            assert_false(k_untouched(y + m * N, 1));
        assert_true(k_untouched(y + end * N, (size_t)(9 - end) * N));
        k_free(y);
    }
    free(x);
    free(w);
    k_close(&d);
}

/* ---- quantized weights --------------------------------------------------- */

struct quant {
    void *w;              /* exactly as large as the tensor */
    float *scale, *exact; /* exact: the exact floats they represent */
    int group;
};

/* The number that element k of a row represents, before its scale. */
static float
quant_stored(const uint8_t *row, int k, enum fdk_dtype t)
{
    int v = (int8_t)row[t == FDK_I4 ? k / 2 : k];
    if (t == FDK_F8E4M3)
        return k_from_f8(row[k]);
    if (t == FDK_I4)
        v = k % 2 == 0 ? (int8_t)(row[k / 2] << 4) >> 4 : v >> 4;
    return (float)v;
}

static struct quant
quant_new(int N, int K, int group, enum fdk_dtype t)
{
    struct quant q = { .group = group };
    size_t row = fdk_row_bytes(t, (size_t)K), n_group = (size_t)((K - 1) / group + 1);
    uint64_t seed = (uint64_t)(N * 7 + K * 3 + group);
    uint8_t *w = malloc((size_t)N * row);
    q.w = w;
    q.scale = malloc((size_t)N * n_group * 4);
    q.exact = malloc((size_t)N * (size_t)K * 4);
    assert_true(w != NULL && q.scale != NULL && q.exact != NULL);
    for (size_t i = 0; i < (size_t)N * row; i++)
        do
            w[i] = (uint8_t)k_rand(&seed);
        while (t == FDK_F8E4M3 && (w[i] & 0x7f) == 0x7f);
    for (size_t i = 0; i < (size_t)N * n_group; i++)
        q.scale[i] = i % 11 == 3 ? 0 : k_normal(&seed) * (i % 7 == 1 ? 1e-41f : 0.01f);
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++) {
            q.exact[(size_t)n * (size_t)K + (size_t)k] =
                quant_stored(w + (size_t)n * row, k, t) *
                q.scale[(size_t)n * n_group + (size_t)(k / group)];
        }
    return q;
}

static void
quant_free(struct quant *q)
{
    free(q->w);
    free(q->scale);
    free(q->exact);
}

/* Multiplies T rows in launches of `split` with the packed
 * weights or with their floats. */
static float *
quant_gemm(struct k_dev *d, const struct quant *q, const float *x, const int shape[3],
    int split, enum fdk_dtype t)
{
    int32_t live = shape[0];
    float *y = k_new((size_t)shape[0] * (size_t)shape[1]);
    struct fdk_gemm_args a = {
        .y = y,
        .x = x,
        .w = t == FDK_F32 ? q->exact : q->w,
        .w_scale = q->scale,
        .w_group = q->group,
        .n = &live,
        .T = split,
        .N = shape[1],
        .K = shape[2],
        .ldy = shape[1],
        .w_dtype = t,
    };
    for (; a.first < shape[0]; a.first += split) {
        a.y = y + (size_t)a.first * (size_t)a.ldy;
        assert_int_equal(d->ops->gemm(&a, d->st), 0);
    }
    k_sync(d);
    k_check(y, (size_t)shape[0] * (size_t)shape[1]);
    return y;
}

/* The result equals, to the bit, that of FDK_F32 weights with the same values, on each
 * ISA and for any number of rows. */
static void
quant_shape(const int shape[3], int group, enum fdk_dtype t)
{
    static const int splits[] = { 1, 2, 3, 4, 7, 20, 70 };
    struct quant q = quant_new(shape[1], shape[2], group, t);
    size_t ny = (size_t)shape[0] * (size_t)shape[1];
    float *x = malloc((size_t)shape[0] * (size_t)shape[2] * 4), *fused = NULL;
    assert_non_null(x);
    k_fill(x, (size_t)shape[0] * (size_t)shape[2], 5);
    for (int i = 0; i < 3; i++) {
        struct k_dev d;
        if (!k_has_isa(k_isas[i]))
            continue;
        k_open(&d, 2, k_isas[i]);
        float *want = quant_gemm(&d, &q, x, shape, shape[0], FDK_F32);
        for (size_t s = 0; s < sizeof(splits) / sizeof(splits[0]); s++) {
            if (s > 0 && splits[s] > shape[0])
                break;
            float *y = quant_gemm(&d, &q, x, shape, splits[s], t);
            if (memcmp(y, want, ny * 4) != 0)
                fail_msg("%s %s %dx%dx%d group %d, %d rows a launch", k_isas[i],
                    fdk_dtype_name(t), shape[0], shape[1], shape[2], group, splits[s]);
            k_free(y);
        }
        /* generic x86-64 has no fused multiply-add */
        if (i > 0 && fused != NULL)
            assert_memory_equal(fused, want, ny * 4);
        if (i > 0 && fused == NULL)
            fused = want;
        else
            k_free(want);
        k_close(&d);
    }
    if (fused != NULL)
        k_free(fused);
    free(x);
    quant_free(&q);
}

static void
test_quantized_bits_are_those_of_f32(void **state)
{
    static const int shapes[][3] = {
        { 1, 1, 2 },
        { 1, 17, 34 },
        { 3, 25, 64 },
        { 4, 24, 100 },
        { 7, 50, 128 },
        { 9, 13, 1026 },
        { 20, 40, 130 },
        { 70, 31, 2100 },
        { 1, 300, 256 },
    };
    (void)state;
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        int K = shapes[s][2];
        quant_shape(shapes[s], K, FDK_I8);
        quant_shape(shapes[s], K, FDK_I4);
        quant_shape(shapes[s], K, FDK_F8E4M3);
        for (int g = 16; g <= 128 && g < K; g *= 2) {
            quant_shape(shapes[s], g, FDK_I8);
            quant_shape(shapes[s], g, FDK_I4);
            quant_shape(shapes[s], g, FDK_F8E4M3);
        }
    }
    quant_shape((const int[3]){ 5, 7, 47 }, 47, FDK_I8);
    quant_shape((const int[3]){ 18, 7, 1025 }, 32, FDK_I8);
    quant_shape((const int[3]){ 18, 7, 1030 }, 1024, FDK_I4);
    quant_shape((const int[3]){ 5, 7, 47 }, 47, FDK_F8E4M3);
    quant_shape((const int[3]){ 18, 7, 1025 }, 128, FDK_F8E4M3);
}

/* Every single e4m3 byte, in the middle and at the odd end of a row, times scales up to
 * the limits; x selects one weight. */
static void
e4m3_bytes(struct k_dev *d, float scale, int n_row)
{
    enum { N = 256, K = 21, MAX_T = 20 };
    static const int at[2] = { 3, 20 };
    uint8_t *w = malloc(N * K);
    float s[N], x[MAX_T * K] = { 0 }, y[MAX_T * N];
    int32_t n = n_row;
    assert_non_null(w);
    for (int i = 0; i < 2; i++) {
        const struct fdk_gemm_args a = { .y = y,
            .x = x,
            .w = w,
            .w_scale = s,
            .w_group = K,
            .n = &n,
            .T = n,
            .N = N,
            .K = K,
            .ldy = N,
            .w_dtype = FDK_F8E4M3 };
        memset(w, 0, N * K);
        memset(x, 0, sizeof(x));
        for (int r = 0; r < n; r++)
            x[r * K + at[i]] = 1;
        for (int r = 0; r < N; r++) {
            w[r * K + at[i]] = (uint8_t)r;
            s[r] = scale;
        }
        assert_int_equal(d->ops->gemm(&a, d->st), 0);
        k_sync(d);
        for (int r = 0; r < n * N; r++) {
            float want = k_from_f8((uint8_t)(r % N)) * scale;
            if (isnan(want) ? !isnan(y[r]) : y[r] != want)
                fail_msg("byte %02x in column %d, scale %g, %d rows: %g, expected %g",
                    (unsigned)(r % N), at[i], (double)scale, n_row, (double)y[r],
                    (double)want);
        }
    }
    free(w);
}

static void
test_every_e4m3_byte(void **state)
{
    static const float scales[] = { 1, 0.3f, 1e-3f, 1e-41f, 1e-45f, 0, FLT_MAX / 448 };
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct k_dev d;
        if (!k_has_isa(k_isas[i]))
            continue;
        k_open(&d, 2, k_isas[i]);
        for (size_t s = 0; s < sizeof(scales) / sizeof(scales[0]); s++) {
            e4m3_bytes(&d, scales[s], 1);
            e4m3_bytes(&d, scales[s], 20);
        }
        k_close(&d);
    }
}

static void
test_quantized_arguments(void **state)
{
    struct k_dev d;
    float v[64] = { 0 };
    int32_t n = 1;
    (void)state;
    k_open(&d, 1, NULL);
    struct fdk_gemm_args a = { .y = v,
        .x = v,
        .w = v,
        .w_scale = v,
        .w_group = 32,
        .n = &n,
        .T = 1,
        .N = 1,
        .K = 40,
        .ldy = 1,
        .w_dtype = FDK_I4 };
    assert_int_equal(d.ops->gemm(&a, d.st), 0);
    a.w_scale = NULL;
    assert_int_equal(d.ops->gemm(&a, d.st), -EINVAL);
    a.w_scale = v;
    a.w_group = 0;
    assert_int_equal(d.ops->gemm(&a, d.st), -EINVAL);
    a.w_group = 41;
    assert_int_equal(d.ops->gemm(&a, d.st), -EINVAL);
    a.w_group = 24;
    assert_int_equal(d.ops->gemm(&a, d.st), -ENOTSUP);
    a.w_group = a.K = 39;
    assert_int_equal(d.ops->gemm(&a, d.st), -EINVAL);
    a.w_dtype = FDK_I8;
    assert_int_equal(d.ops->gemm(&a, d.st), 0);
    a.w_dtype = FDK_F8E4M3;
    assert_int_equal(d.ops->gemm(&a, d.st), 0);
    a.w_group = 24;
    assert_int_equal(d.ops->gemm(&a, d.st), -ENOTSUP);
    a.w_scale = NULL;
    assert_int_equal(d.ops->gemm(&a, d.st), -EINVAL);
    k_sync(&d);
    k_close(&d);
}

static void
test_arguments(void **state)
{
    struct k_dev d;
    float v[16] = { 0 };
    int32_t n = 1;
    (void)state;
    k_open(&d, 1, NULL);
    struct fdk_gemm_args
        a = { .y = v, .x = v, .w = v, .n = &n, .T = 1, .N = 1, .K = 1, .ldy = 1 };
    a.w_dtype = FDK_I8;
    assert_int_equal(d.ops->gemm(&a, d.st), -EINVAL);
    a.w_dtype = FDK_F8E4M3;
    assert_int_equal(d.ops->gemm(&a, d.st), -EINVAL);
    a.w_dtype = FDK_U8;
    assert_int_equal(d.ops->gemm(&a, d.st), -ENOTSUP);
    a.w_dtype = (enum fdk_dtype)99;
    assert_int_equal(d.ops->gemm(&a, d.st), -EINVAL);
    a.w_dtype = FDK_F32;
    a.ldy = 0;
    assert_int_equal(d.ops->gemm(&a, d.st), -EINVAL);
    a.ldy = 1;
    a.K = 0;
    assert_int_equal(d.ops->gemm(&a, d.st), -EINVAL);
    k_close(&d);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_invariance),
        cmocka_unit_test(test_quantized_arguments),
        cmocka_unit_test(test_quantized_bits_are_those_of_f32),
        cmocka_unit_test(test_every_e4m3_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
