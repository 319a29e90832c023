#include "config.h"

#include "tests/kernel/k_util.h"

static const enum fdk_dtype dtypes[] = { FDK_F32, FDK_F16, FDK_BF16 };

static void
gemm(struct k_dev *d, float *y, const float *x, const void *w, const float *bias,
    const int32_t *n, const int shape[4], int first, enum fdk_dtype t)
{
    const struct fdk_gemm_args a = {
        .y = y, .x = x, .w = w, .bias = bias, .n = n, .first = first, .T = shape[0],
        .N = shape[1], .K = shape[2], .ldy = shape[3], .w_dtype = t,
    };
    assert_int_equal(d->ops->gemm(&a, d->st), 0);
    k_sync(d);
}

/* One shape against double precision, with padded rows and guards. */
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
                double p = (double)x[m * K + k] * (double)exact[(size_t)n * (size_t)K + (size_t)k];
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
        { 1, 1, 1 }, { 1, 8, 16 }, { 1, 17, 33 }, { 2, 9, 31 }, { 3, 25, 64 }, { 4, 24, 100 },
        { 5, 7, 47 }, { 7, 50, 128 }, { 8, 6, 15 }, { 9, 13, 1025 }, { 13, 31, 48 },
        { 66, 40, 130 }, { 130, 5, 40 }, { 1, 300, 256 }, { 11, 7, 2100 },
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

/* A row's bits do not depend on how many rows come with it, nor on threads. */
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

/* Rows [first, min(first + T, *n)) and no other; no row at all is fine. */
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

static void
test_arguments(void **state)
{
    struct k_dev d;
    float v[16] = { 0 };
    int32_t n = 1;
    (void)state;
    k_open(&d, 1, NULL);
    struct fdk_gemm_args a = { .y = v, .x = v, .w = v, .n = &n, .T = 1, .N = 1, .K = 1, .ldy = 1 };
    a.w_dtype = FDK_I8;
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
        cmocka_unit_test(test_arguments), cmocka_unit_test(test_reference),
        cmocka_unit_test(test_window), cmocka_unit_test(test_invariance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
