/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/isa.h"
#include "tests/kernel/k_util.h"

static double
silu(double x)
{
    return x / (1 + exp(-x));
}

static void
check_shape(struct k_dev *d, int T, int F, float *ret_y)
{
    size_t n = (size_t)T * (size_t)F;
    float *gu = malloc(n * 8), *y = k_new(n + (size_t)F);
    int32_t live = T;
    k_fill(gu, 2 * n, 5);
    for (size_t i = 0; i < 2 * n; i += 7)
        gu[i] *= 40;
    const struct fdk_silu_mul_args a = { .y = y, .gu = gu, .n = &live, .T = T + 1, .F = F };
    assert_int_equal(d->ops->silu_mul(&a, d->st), 0);
    k_sync(d);
    k_check(y, n + (size_t)F);
    assert_true(k_untouched(y + n, (size_t)F));
    for (int t = 0; t < T; t++)
        for (int i = 0; i < F; i++) {
            double want = silu(gu[2 * t * F + i]) * gu[2 * t * F + F + i];
            k_assert_near(y[t * F + i], want, 5e-7 * fabs(want) + 1e-34, "y",
                (size_t)(t * F + i));
        }
    if (ret_y != NULL)
        memcpy(ret_y, y, n * 4);
    free(gu);
    k_free(y);
}

static void
test_reference(void **state)
{
    static const int widths[] = { 1, 16, 33, 688, 5000 };
    (void)state;
    for (int i = 0; i < 3; i++) {
        if (!k_has_isa(k_isas[i]))
            continue;
        struct k_dev d;
        k_open(&d, 2, k_isas[i]);
        for (size_t s = 0; s < sizeof(widths) / sizeof(widths[0]); s++)
            for (int T = 1; T < 14; T += 4)
                check_shape(&d, T, widths[s], NULL);
        k_close(&d);
    }
}

static double
gelu_tanh(double x)
{
    return 0.5 * x *
        (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

/* The gate of gelu_mul, from far below 0, where the result is 0, to far above. */
static void
check_gelu(struct k_dev *d, int F)
{
    float *gu = malloc((size_t)F * 8), *y = k_new((size_t)F);
    int32_t live = 1;

    k_fill(gu, 2 * (size_t)F, 6);
    for (int i = 0; i < F; i++)
        gu[i] *= i % 3 == 0 ? 30.0f : 2.0f;
    const struct fdk_silu_mul_args
        a = { .y = y, .gu = gu, .n = &live, .T = 1, .F = F, .gate = FDK_GATE_GELU_TANH };
    assert_int_equal(d->ops->silu_mul(&a, d->st), 0);
    k_sync(d);
    k_check(y, (size_t)F);
    for (int i = 0; i < F; i++) {
        double want = gelu_tanh(gu[i]) * gu[F + i];
        k_assert_near(y[i], want, 1e-6 * fabs(want) + 3e-7 * fabs(gu[i] * gu[F + i]),
            "gelu", (size_t)i);
    }
    free(gu);
    k_free(y);
}

/* Only rows [first, n) of a slice are computed. */
static void
check_softcap(struct k_dev *d, size_t N, float scale, float cap)
{
    enum { FIRST = 5, T = 4, LIVE = 8 };
    size_t n = T * N, done = (LIVE - FIRST) * N;
    float *y = k_new(n), *was = calloc(n, 4);
    int32_t live = LIVE;

    k_fill(y, n, 7);
    for (size_t i = 0; i < n; i++)
        y[i] *= i % 5 == 0 ? 500.0f : 20.0f;
    memcpy(was, y, n * 4);
    const struct fdk_softcap_args a = {
        .y = y,
        .n = &live,
        .first = FIRST,
        .T = T,
        .N = (int32_t)N,
        .scale = scale,
        .cap = cap,
    };
    assert_int_equal(d->ops->softcap(&a, d->st), 0);
    k_sync(d);
    k_check(y, n);
    for (size_t i = 0; i < done; i++) {
        double v = (double)scale * was[i], want = cap > 0 ? cap * tanh(v / cap) : v;
        k_assert_near(y[i], want, 5e-7 * (fabs(want) + cap), "softcap", i);
    }
    assert_memory_equal(y + done, was + done, (n - done) * 4);
    free(was);
    k_free(y);
}

static void
test_gelu_and_softcap(void **state)
{
    static const int widths[] = { 1, 16, 33, 3000 };

    (void)state;
    for (int isa = 0; isa < 3; isa++) {
        struct k_dev d;

        if (!k_has_isa(k_isas[isa]))
            continue;
        k_open(&d, 2, k_isas[isa]);
        for (int i = 0; i < 4; i++) {
            check_gelu(&d, widths[i]);
            check_softcap(&d, (size_t)widths[i], 1, 30);
            check_softcap(&d, (size_t)widths[i], 0.4f, 0);
            check_softcap(&d, (size_t)widths[i], 0.5f, 5);
        }
        k_close(&d);
    }
}

static void
test_threads(void **state)
{
    enum { T = 3, F = 3001 };
    float *one = malloc(T * F * 4), *y = malloc(T * F * 4);
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        struct k_dev d;
        k_open(&d, threads, NULL);
        check_shape(&d, T, F, threads == 1 ? one : y);
        k_close(&d);
        if (threads > 1)
            assert_memory_equal(one, y, T * F * 4);
    }
    free(one);
    free(y);
}

/* Within two units in the last place, also for subnormal results and extreme inputs. */
static void
check_exp(const struct cpu_isa *isa)
{
    enum { N = 200003 };
    float *x = malloc(N * 4), *y = malloc(N * 4);
    for (int i = 0; i < N; i++)
        x[i] = -104.0f + 192.7f * (float)i / N;
    isa->exp(y, x, N);
    for (int i = 0; i < N; i++) {
        double want = exp(x[i]);
        float w = (float)want;
        double ulp = (double)nextafterf(w, INFINITY) - (double)w;
        k_assert_near(y[i], want, 2 * ulp, isa->name, (size_t)i);
    }
    float edge[16] = { 0, -0.0f, -INFINITY, INFINITY, NAN, 88.8f, -1e30f, 1e30f };
    isa->exp(y, edge, 16);
    assert_true(y[0] == 1 && y[1] == 1 && y[2] == 0 && y[3] == INFINITY);
    assert_true(isnan(y[4]) && y[5] == INFINITY && y[6] == 0 && y[7] == INFINITY);
    free(x);
    free(y);
}

static void
test_exp(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        if (fdk_cpu_isa_force(k_isas[i]) == 0)
            check_exp(cpu_isa_pick());
    fdk_cpu_isa_force(NULL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_gelu_and_softcap),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
