/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/kernel/k_util.h"

static void
norm(struct k_dev *d, float *y, float *x, const float *add, const float *w,
    const int32_t *n, int T, int C)
{
    const struct fdk_rmsnorm_args a = {
        .y = y,
        .x = x,
        .add = add,
        .w = w,
        .n = n,
        .T = T,
        .C = C,
        .eps = 1e-5f,
    };
    assert_int_equal(d->ops->rmsnorm(&a, d->st), 0);
    k_sync(d);
}

static void
check_shape(struct k_dev *d, int T, int C, int with_add, float *ret_y)
{
    size_t n = (size_t)T * (size_t)C, all = n + (size_t)C;
    float *x = k_new(all), *x0 = malloc(n * 4), *add = malloc(n * 4);
    float *w = malloc((size_t)C * 4), *y = k_new(all);
    int32_t live = T;
    k_fill(x, n, 1);
    memcpy(x0, x, n * 4);
    k_fill(add, n, 2);
    k_fill(w, (size_t)C, 3);
    norm(d, y, x, with_add ? add : NULL, w, &live, T + 1, C);
    k_check(y, all);
    k_check(x, all);
    assert_true(k_untouched(y + n, (size_t)C));
    for (int t = 0; t < T; t++) {
        double sq = 0;
        for (int i = t * C; i < (t + 1) * C; i++) {
            float v = with_add ? x0[i] + add[i] : x0[i];
            assert_true(x[i] == v);
            sq += (double)v * v;
        }
        double inv = 1 / sqrt(sq / C + 1e-5f);
        for (int i = 0; i < C; i++) {
            double want = x[t * C + i] * inv * w[i];
            k_assert_near(y[t * C + i], want, 1e-6 * fabs(want) + 1e-12, "y",
                (size_t)(t * C + i));
        }
    }
    if (ret_y != NULL)
        memcpy(ret_y, y, n * 4);
    free(x0);
    free(add);
    free(w);
    k_free(x);
    k_free(y);
}

static void
test_reference(void **state)
{
    static const int widths[] = { 1, 15, 16, 17, 64, 100, 257, 4096 };
    (void)state;
    for (int i = 0; i < 3; i++) {
        if (!k_has_isa(k_isas[i]))
            continue;
        struct k_dev d;
        k_open(&d, 2, k_isas[i]);
        for (size_t s = 0; s < sizeof(widths) / sizeof(widths[0]); s++)
            for (int T = 1; T <= 20; T += 6)
                check_shape(&d, T, widths[s], T % 4 == 1, NULL);
        k_close(&d);
    }
}

/* The result that struct fdk_rmsnorm_args describes, in double precision. */
static void
expect(const struct fdk_rmsnorm_args *a, const float *x, const float *add, double *ret_x,
    double *ret_y)
{
    double scale = a->add_scale != 0 ? a->add_scale : 1, sq = 0, inv;
    int post = a->norm == FDK_NORM_POST;

    for (int i = 0; i < a->C; i++) {
        ret_x[i] = x[i] + (add != NULL && !post ? scale * add[i] : 0);
        sq += post && add != NULL ? (double)add[i] * add[i] : ret_x[i] * ret_x[i];
    }
    inv = 1 / sqrt(sq / a->C + a->eps);
    for (int i = 0; i < a->C; i++) {
        double w = (double)a->w[i] + a->offset;

        if (post && add != NULL)
            ret_x[i] += scale * w * add[i] * inv;
        ret_y[i] = post ? ret_x[i] : w * ret_x[i] * inv;
    }
}

static void
check_attributes(struct k_dev *d, struct fdk_rmsnorm_args a, int with_add, int with_y)
{
    enum { T = 3 };
    size_t C = (size_t)a.C, n = T * C;
    float *x = k_new(n), *x0 = malloc(n * 4), *add = malloc(n * 4), *w = malloc(C * 4);
    float *y = k_new(n);
    double *want = malloc(C * 16);
    int32_t live = T;

    k_fill(x, n, 1);
    memcpy(x0, x, n * 4);
    k_fill(add, n, 2);
    k_fill(w, C, 3);
    a.x = x;
    a.w = w;
    a.y = with_y ? y : NULL;
    a.add = with_add ? add : NULL;
    a.n = &live;
    a.T = T;
    assert_int_equal(d->ops->rmsnorm(&a, d->st), 0);
    k_sync(d);
    k_check(x, n);
    k_check(y, n);
    assert_true(with_y || k_untouched(y, n));
    for (size_t t = 0; t < T; t++) {
        expect(&a, x0 + t * C, with_add ? add + t * C : NULL, want, want + C);
        for (size_t i = 0; i < C; i++) {
            k_assert_near(x[t * C + i], want[i], 3e-6 * (fabs(want[i]) + 1), "x", i);
            if (with_y)
                k_assert_near(y[t * C + i], want[C + i], 3e-6 * (fabs(want[C + i]) + 1),
                    "y", i);
        }
    }
    free(x0);
    free(add);
    free(w);
    free(want);
    k_free(x);
    k_free(y);
}

/* Offset of the weights, scale of the addend, place of the norm. */
static void
test_attributes(void **state)
{
    static const int widths[] = { 1, 17, 64, 100 };

    (void)state;
    for (int isa = 0; isa < 3; isa++) {
        struct k_dev d;

        if (!k_has_isa(k_isas[isa]))
            continue;
        k_open(&d, 1, k_isas[isa]);
        for (int i = 0; i < 4 * 16; i++) {
            struct fdk_rmsnorm_args a = { .C = widths[i / 16], .eps = 1e-5f };
            int post = i % 2, with_y = !post || i / 2 % 2;

            a.norm = post ? FDK_NORM_POST : FDK_NORM_PRE;
            a.offset = i / 4 % 2 ? 1 : 0;
            a.add_scale = i / 8 % 2 ? 0.4f : 0;
            check_attributes(&d, a, 1, with_y);
            check_attributes(&d, a, 0, with_y);
        }
        k_close(&d);
    }
}

static void
test_threads(void **state)
{
    enum { T = 37, C = 1000 };
    float *y[3];
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        struct k_dev d;
        k_open(&d, threads, NULL);
        y[threads - 1] = malloc(T * C * 4);
        check_shape(&d, T, C, 1, y[threads - 1]);
        k_close(&d);
        assert_memory_equal(y[threads - 1], y[0], T * C * 4);
    }
    for (int i = 0; i < 3; i++)
        free(y[i]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
