/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/kernel/k_two.h"

#include "kernels/cuda/hooks.h"

/*
 * Matrix products with quantized weights on the cuda backend compared with the cpu
 * backend, for activations of both types. Activations are exact in bf16, so that rounding
 * them makes no difference.
 */

enum { PAD = 3 };

struct mat {
    int T, N, K, ldy, group; /* T: live rows */
    enum fdk_dtype t, act, y;
    int bias;
    float *x, *scale, *b;
    unsigned char *w;
};

static const enum fdk_dtype types[] = { FDK_I4, FDK_I8, FDK_F8E4M3 };
#define N_TYPE (sizeof(types) / sizeof(types[0]))

/* The largest stored magnitude. */
static double
largest(enum fdk_dtype t)
{
    return t == FDK_I4 ? 8 : t == FDK_I8 ? 128 : 448;
}

/* Launches rows from `first` on, `split` at a time; rows beyond T are poison. */
static float *
run_gemm(struct two_dev *t, const struct mat *m, int split)
{
    const int32_t live = m->T;
    const enum fdk_dtype act = t == &tw.cpu ? FDK_F32 : m->act;
    const enum fdk_dtype y_dtype = t == &tw.cpu ? FDK_F32 : m->y;
    size_t T = (size_t)m->T + (size_t)split; /* the last launch may reach beyond */
    size_t groups = (size_t)((m->K - 1) / m->group + 1);
    float *x = malloc(T * (size_t)m->K * 4);
    struct fdk_gemm_args a = {
        .y = tw_new_act(t, NULL, T * (size_t)m->ldy, y_dtype),
        .w = tw_new(t, m->w, (size_t)m->N * fdk_row_bytes(m->t, (size_t)m->K)),
        .w_scale = tw_new(t, m->scale, (size_t)m->N * groups * 4),
        .w_group = m->group,
        .bias = m->bias ? tw_new(t, m->b, (size_t)m->N * 4) : NULL,
        .n = tw_new(t, &live, 4),
        .T = split,
        .N = m->N,
        .K = m->K,
        .ldy = m->ldy,
        .w_dtype = m->t,
        .act = act,
        .y_dtype = y_dtype,
    };
    memcpy(x, m->x, (size_t)m->T * (size_t)m->K * 4);
    for (size_t i = (size_t)m->T * (size_t)m->K; i < T * (size_t)m->K; i++)
        x[i] = NAN;
    a.x = tw_new_act(t, x, T * (size_t)m->K, act);
    a.scratch_bytes = t->d.ops->gemm_scratch(&a);
    if (a.scratch_bytes > 0)
        a.scratch = tw_new(t, NULL, a.scratch_bytes);
    char *y0 = a.y;
    for (; a.first < m->T; a.first += split) {
        a.y = y0 + (size_t)a.first * (size_t)m->ldy * fdk_dtype_bytes(y_dtype);
        OK(t->d.ops->gemm(&a, t->d.st));
    }
    float *y = tw_read_act(t, y0, T * (size_t)m->ldy, y_dtype);
    tw_free(t);
    free(x);
    return y;
}

static void
random_mat(struct mat *m)
{
    size_t nx = (size_t)m->T * (size_t)m->K, nw = (size_t)m->N * (size_t)m->K;
    size_t ns = (size_t)m->N * (size_t)((m->K - 1) / m->group + 1);
    m->x = malloc(nx * 4);
    m->scale = malloc(ns * 4);
    m->b = malloc((size_t)m->N * 4);
    m->w = malloc(nw);
    tw_normal(m->x, nx);
    tw_as_act(m->x, nx, FDK_BF16);
    tw_normal(m->scale, ns);
    tw_normal(m->b, (size_t)m->N);
    for (size_t i = 0; i < nw; i++) {
        m->w[i] = (unsigned char)k_rand(&tw.seed);
        if (m->t == FDK_F8E4M3 && (m->w[i] & 0x7f) == 0x7f)
            m->w[i] ^= 1; /* no NaN */
    }
}

static void
free_mat(struct mat *m)
{
    free(m->x);
    free(m->scale);
    free(m->b);
    free(m->w);
}

/* Compares fp32 sums of K products in another order; memory outside
 * the rows must stay poison. */
static void
check(struct mat *m, int split)
{
    random_mat(m);
    float *want = run_gemm(&tw.cpu, m, split), *got = run_gemm(&tw.gpu, m, split);
    size_t n = ((size_t)m->T + (size_t)split) * (size_t)m->ldy;
    const uint32_t poison = 0x01010101u * TW_POISON;
    double tol = largest(m->t) * 1e-6 * m->K;
    for (size_t i = 0; i < n; i++)
        if (memcmp(&want[i], &poison, 4) != 0)
            tw_near_act(got + i, want + i, 1, m->y, 1e-6, tol, "gemm");
        else if (m->y == FDK_F32)
            tw_same(got + i, want + i, 4, "poison");
        else
            assert_true(k_to_bf16(got[i]) == (uint16_t)poison);
    free(want);
    free(got);
    free_mat(m);
}

/* All forms, with several tiles of w per thread block and with few, and the kernel for
 * shapes that no other accepts. */
static void
against_cpu(void **state)
{
    static const int shape[][4] = {
        /* T, N, K, group */
        { 1, 8, 16, 16 },
        { 1, 64, 4096, 128 },
        { 2, 100, 4096, 4096 },
        { 3, 33, 96, 32 },
        { 8, 48, 2048, 128 },
        { 7, 70, 5120, 256 },
        { 13, 20, 480, 96 },
        { 16, 40, 4096, 64 },
        { 17, 64, 128, 32 },
        { 16, 33, 14336, 128 },
        { 65, 100, 250, 250 },
        { 64, 256, 512, 128 },
        { 129, 96, 1024, 64 },
        { 300, 200, 160, 160 },
        { 600, 64, 64, 64 },
        { 20, 4500, 256, 128 },
        { 40, 8600, 256, 64 },
        { 100, 4100, 1024, 128 },
        { 128, 6200, 512, 512 },
        { 90, 300, 2048, 64 },
        { 65, 8600, 320, 32 },
        { 127, 9000, 640, 128 },
        { 80, 5000, 2048, 256 },
        { 50, 3000, 4096, 512 },
        { 33, 30000, 384, 384 },
        { 100, 15100, 512, 128 },
        { 70, 200, 480, 480 },
        { 100, 512, 1536, 128 },
        { 64, 16384, 1024, 128 },
    };
    static const enum fdk_dtype kinds[][2] = { { FDK_BF16, FDK_BF16 },
        { FDK_BF16, FDK_F32 }, { FDK_F32, FDK_F32 } };
    (void)state;
    for (size_t ti = 0; ti < N_TYPE; ti++)
        for (size_t i = 0; i < 3 * sizeof(shape) / sizeof(shape[0]); i++) {
            const int *s = shape[i / 3];
            if (!tw_takes(i + 5 * ti, 13))
                continue;
            struct mat m = { .T = s[0],
                .N = s[1],
                .K = s[2],
                .ldy = s[1] + (i / 3 % 2 ? 3 : 0),
                .group = s[3],
                .t = types[ti],
                .act = kinds[i % 3][0],
                .y = kinds[i % 3][1],
                .bias = (int)(i + ti) % 2 };
            check(&m, m.T + PAD);
        }
}

/* Launches that do not begin at the first row; the last one is short. */
static void
parts_of_rows(void **state)
{
    static const int split[] = { 5, 16, 24, 100, 130 };
    (void)state;
    for (size_t ti = 0; ti < N_TYPE; ti++)
        for (size_t i = 0; i < sizeof(split) / sizeof(split[0]); i++) {
            if (!tw_takes(ti + i, 3))
                continue;
            struct mat m = { .T = 140,
                .N = 96,
                .K = 512,
                .ldy = 96,
                .group = 128,
                .t = types[ti],
                .act = i % 2 ? FDK_F32 : FDK_BF16,
                .y = FDK_F32 };
            check(&m, split[i]);
        }
}

/* Every stored value times a power of two is exact. */
static void
every_value(void **state)
{
    (void)state;
    for (size_t ti = 0; ti < N_TYPE; ti++)
        for (int T = 1; T <= 33 && tw_takes(ti, 2); T += 16) {
            struct mat m = { .T = T,
                .N = 256,
                .K = 128,
                .ldy = 256,
                .group = 128,
                .t = types[ti],
                .act = FDK_BF16,
                .y = FDK_F32 };
            random_mat(&m);
            for (size_t i = 0; i < (size_t)T * 128; i++)
                m.x[i] = i % 128 == i / 128 * 3 ? 0.25f : 0;
            for (int i = 0; i < 256; i++) {
                m.scale[i] = 2;
                int code = m.t == FDK_F8E4M3 && (i & 0x7f) == 0x7f ? 0 : i;
                memset(m.w + (size_t)i * fdk_row_bytes(m.t, 128), code,
                    fdk_row_bytes(m.t, 128));
            }
            float *want = run_gemm(&tw.cpu, &m, T), *got = run_gemm(&tw.gpu, &m, T);
            for (size_t i = 0; i < (size_t)T * 256; i++)
                if (got[i] != want[i])
                    tw_same(&got[i], &want[i], 4, "value");
            free(want);
            free(got);
            free_mat(&m);
        }
}

/* A row's bits do not depend on how many rows a launch has: among launches of
 * up to 16 rows, of 17 to 32, to 64, to 128, of more, and among all launches
 * on a deterministic device. */
static void
rows_stand_alone(void **state)
{
    static const int few[] = { 1, 2, 3, 8, 9, 16 };
    static const int many[] = { 17, 32, 40, 64, 100, 128, 150, 200 };
    static const int shape[][3] = { { 64, 128, 64 }, { 512, 4096, 128 },
        { 96, 14336, 128 }, { 256, 5120, 5120 }, { 80, 480, 96 } };
    (void)state;
    for (size_t ti = 0; ti < N_TYPE; ti++)
        for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
            if (!tw_takes(ti + i, 4))
                continue;
            struct mat m = { .T = 48,
                .N = shape[i][0],
                .K = shape[i][1],
                .ldy = shape[i][0],
                .group = shape[i][2],
                .t = types[ti],
                .act = FDK_BF16,
                .y = FDK_F32 };
            size_t bytes = (size_t)m.T * (size_t)m.N * 4;
            random_mat(&m);
            float *large[] = { run_gemm(&tw.gpu, &m, 24), run_gemm(&tw.gpu, &m, 48),
                run_gemm(&tw.gpu, &m, 70), run_gemm(&tw.gpu, &m, 130) };
            float *small = run_gemm(&tw.gpu, &m, 12);
            for (int k = 0; k < 4 && tw.deterministic; k++)
                tw_same(small, large[k], bytes, "deterministic rows");
            for (size_t k = 0; k < sizeof(few) / sizeof(few[0]); k++) {
                float *got = run_gemm(&tw.gpu, &m, few[k]);
                tw_same(got, small, bytes, "few rows");
                free(got);
            }
            for (size_t k = 0; k < sizeof(many) / sizeof(many[0]); k++) {
                float *got = run_gemm(&tw.gpu, &m, many[k]);
                tw_same(got, large[k / 2], bytes, "many rows");
                free(got);
            }
            for (int k = 0; k < 4; k++)
                free(large[k]);
            free(small);
            free_mat(&m);
        }
}

static void
arguments(void **state)
{
    static float v[64];
    const struct k_dev *d = &tw.gpu.d;
    struct fdk_gemm_args a = { .y = v,
        .x = v,
        .w = v,
        .n = (int32_t *)v,
        .T = 1,
        .N = 1,
        .K = 32,
        .ldy = 1,
        .w_group = 32,
        .act = FDK_BF16,
        .y_dtype = FDK_BF16 };
    (void)state;
    for (size_t i = 0; i < N_TYPE; i++) {
        a.w_dtype = types[i];
        a.w_scale = NULL;
        assert_int_equal(d->ops->gemm(&a, d->st), -EINVAL);
        a.w_scale = v;
        a.w_group = 0;
        assert_int_equal(d->ops->gemm(&a, d->st), -EINVAL);
        a.w_group = 33;
        assert_int_equal(d->ops->gemm(&a, d->st), -EINVAL);
        a.w_group = 32;
        a.y_dtype = FDK_F16;
        assert_int_equal(d->ops->gemm(&a, d->st), -ENOTSUP);
        a.y_dtype = FDK_BF16;
        assert_true(d->ops->gemm_scratch(&a) > 0);
        a.scratch = NULL;
        assert_int_equal(d->ops->gemm(&a, d->st), -EINVAL);
    }
}

/* If no tensor map can be made, other kernels compute the same result. */
static void
without_tensor_maps(void **state)
{
    assert_int_equal(fdk_cuda_fail_maps(1), 0);
    against_cpu(state);
    assert_true(fdk_cuda_fail_maps(0) > 0);
    assert_string_not_equal(tw.gpu.d.ops->fell_back(tw.gpu.d.ctx, 0), "");
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_cpu),
        cmocka_unit_test(without_tensor_maps),
        cmocka_unit_test(parts_of_rows),
        cmocka_unit_test(every_value),
        cmocka_unit_test(rows_stand_alone),
        cmocka_unit_test(arguments),
    };
    const struct CMUnitTest deterministic[] = {
        cmocka_unit_test(against_cpu),
        cmocka_unit_test(rows_stand_alone),
    };
    int rc = tw_open();
    if (rc != 0)
        return rc;
    if (argc > 1)
        cmocka_set_skip_filter(argv[1]);
    rc = cmocka_run_group_tests_name("k_cuda_quant", tests, NULL, NULL);
    if (tw_open_deterministic())
        return 1;
    rc += cmocka_run_group_tests_name("k_cuda_quant deterministic", deterministic, NULL,
        NULL);
    tw_close();
    return rc;
}
