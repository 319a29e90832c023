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

/* Within two units in the last place, subnormal results and the ends too. */
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
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
