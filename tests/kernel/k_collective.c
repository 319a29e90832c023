/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives: sums to the bit, rows with and without a residual, gathers.
 */
#include "config.h"

#include "tests/kernel/k_ranks.h"

/* ---- sums ------------------------------------------------------------------------ */

static const enum fdk_dtype types[] = { FDK_F32, FDK_BF16, FDK_F16 };

static void
t_sums(void **state)
{
    static const size_t few[] = { 63, 64, 65, 127, 511, 1000, 4095, 4096, 4097, 8191 };
    int n;
    (void)state;
    FOR_WORLDS(n)
    for (int k = 0; k < KINDS; k++) {
        const struct fdk_group_args a = kind(k, n);
        struct side s;
        side_open(&s, &a);
        for (size_t i = 0; i < 3; i++) {
            for (size_t m = 1 + (size_t)k; m < 50; m += K_SLOW ? 7 : 3)
                sum_case(&s, m, types[i], m % 2 != 0, m / 3 % 3);
            for (size_t j = (size_t)k + i; j < sizeof(few) / sizeof(few[0]); j += 3)
                sum_case(&s, few[j], types[i], j % 2 == 0, j / 2 % 2);
        }
        side_close(&s);
    }
}

static void
t_large_sums(void **state)
{
    const size_t m = K_SLOW ? 1u << 16 : 1u << 20;
    int n;
    (void)state;
    FOR_WORLDS(n)
    for (int k = 2; k < KINDS; k++) {
        const struct fdk_group_args a = kind(k, n);
        struct side s;
        side_open(&s, &a);
        sum_case(&s, 16384 - 1, FDK_F32, 1, 0);
        sum_case(&s, 16384, FDK_F32, 0, 0);
        sum_case(&s, 16384 + 1, FDK_F32, 1, 0);
        sum_case(&s, m + 1, FDK_BF16, 0, 0);
        sum_case(&s, m - 1, FDK_F32, 1, 1);
        side_close(&s);
    }
}

/* Numbers of pieces beyond 2^32 and 2^48. */
static void
t_counts(void **state)
{
    const struct fdk_group_args a = kind(1, n_device < 3 ? 2 : 3);
    struct side s;
    (void)state;
    if (!on_cpu)
        skip();
    side_open(&s, &a);
    for (int i = 0; i < 2; i++) {
        fdk_cpu_group_seq(s.g, (UINT64_C(1) << (i == 0 ? 32 : 48)) - 4);
        for (size_t m = 1; m < 17; m++)
            sum_case(&s, m, FDK_F32, 0, 0);
    }
    side_close(&s);
}

/* ---- rows ------------------------------------------------------------------------- */

/* Checks y within the type's rounding; in fp32 within the effect of
 * another order of squares. */
static void
norm_near(const char *y, const float *res, const float *w, float offset, int32_t C,
    enum fdk_dtype t)
{
    double sum = 0, rel = t == FDK_F32 ? 2e-6 : t == FDK_F16 ? 0x1p-10 : 0x1p-7;
    for (int32_t c = 0; c < C; c++)
        sum += (double)res[c] * res[c];
    double inv = 1 / sqrt(sum / C + 1e-5);
    for (int32_t c = 0; c < C; c++) {
        double want = ((double)w[c] + offset) * (res[c] * inv),
               got = f32_of(y + (size_t)c * fdk_dtype_bytes(t), t);
        k_assert_near(got, want, fabs(want) * rel + 1e-7, "norm", (size_t)c);
    }
}

static void
check_fused(struct side *s, struct sum_rows *r)
{
    size_t live = (size_t)r->live * (size_t)r->C;
    char *sum = sum_of(r->x, s->n, r->n, r->t), *y = malloc(r->n * r->eb + 1);
    assert_non_null(y);
    for (size_t i = 0; i < live; i++)
        r->r[i] += f32_of(sum + i * r->eb, r->t);
    get(s, 0, y, r->d_y[0], r->n * r->eb);
    for (int32_t t = 0; t < r->live; t++)
        norm_near(y + (size_t)t * (size_t)r->C * r->eb, r->r + (size_t)t * (size_t)r->C,
            r->w, r->offset, r->C, r->t);
    for (size_t i = live * r->eb; i < r->n * r->eb; i++)
        assert_int_equal(y[i], POISON);
    for (int q = 0; q < s->n; q++) {
        has(s, q, r->d_r[q], (char *)r->r, r->n * 4, "residual");
        has(s, q, r->d_y[q], y, r->n * r->eb, "normed");
    }
    free(sum);
    free(y);
}

/* Sum and norm in two launches: the same bits on the cpu
 * backend, whose rmsnorm is fp32. */
static void
check_parts(struct side *s, struct sum_rows *r)
{
    char *y[FDK_MAX_RANKS];
    for (int q = 0; q < s->n; q++) {
        y[q] = malloc(r->n * 4 + 1);
        assert_non_null(y[q]);
        get(s, q, y[q], r->d_y[q], r->n * 4);
        OK(ops->copy(s->st[q], r->d_r[q], r->r, r->n * 4));
    }
    for (int q = 0; q < s->n; q++) {
        const struct fdk_all_reduce_args a = sum_rows_args(s, r, q, 0);
        const struct fdk_rmsnorm_args b = { .y = r->d_y[q],
            .x = r->d_r[q],
            .add = r->d_y[q],
            .w = r->d_w[q],
            .n = r->d_n[q],
            .T = r->T,
            .C = r->C,
            .eps = 1e-5f,
            .offset = r->offset };
        OK(ops->all_reduce(&a, s->st[q]));
        OK(ops->rmsnorm(&b, s->st[q]));
    }
    side_sync(s);
    for (int q = 0; q < s->n; q++) {
        has(s, q, r->d_y[q], y[q], r->n * 4, "in two launches");
        free(y[q]);
    }
}

static void
fused_case(struct side *s, int32_t T, int32_t live, int32_t C, enum fdk_dtype t)
{
    struct sum_rows r;
    sum_rows_new(s, &r, T, live, C, t);
    r.offset = C % 2 != 0 ? 1 : 0;
    for (int q = 0; q < s->n; q++) {
        const struct fdk_all_reduce_args a = sum_rows_args(s, &r, q, 1);
        OK(ops->all_reduce(&a, s->st[q]));
    }
    side_sync(s);
    if (t == FDK_F32 && on_cpu)
        check_parts(s, &r);
    for (int q = 0; q < s->n; q++) /* the state after the first launch */
        OK(ops->copy(s->st[q], r.d_r[q], r.r, r.n * 4));
    for (int q = 0; q < s->n; q++) {
        const struct fdk_all_reduce_args a = sum_rows_args(s, &r, q, 1);
        OK(ops->all_reduce(&a, s->st[q]));
    }
    side_sync(s);
    check_fused(s, &r);
    sum_rows_free(s, &r, 1);
}

static void
t_fused(void **state)
{
    static const int32_t T[] = { 1, 3, 9, 17 }, C[] = { 1, 5, 64, 1000, 2056 };
    int n;
    (void)state;
    FOR_WORLDS(n)
    for (int k = 0; k < KINDS; k++) {
        const struct fdk_group_args a = kind(k, n);
        struct side s;
        side_open(&s, &a);
        for (int i = 0; i < 3; i++)
            for (int j = K_SLOW; j < 4; j += 1 + K_SLOW)
                for (int c = 0; c < (K_SLOW ? 4 : 5); c++)
                    fused_case(&s, T[j], c % 2 != 0 ? T[j] : T[j] / 2, C[c], types[i]);
        side_close(&s);
    }
}

/* Without a residual; rows that are not live are neither read nor written. */
static void
t_live_rows(void **state)
{
    struct side s;
    struct sum_rows r;
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        const struct fdk_group_args a = kind(k, n_device < 3 ? 2 : 3);
        side_open(&s, &a);
        for (int32_t live = -1; live < 9; live++) {
            sum_rows_new(&s, &r, 7, live, 33, FDK_BF16);
            for (int q = 0; q < s.n; q++) {
                const struct fdk_all_reduce_args b = sum_rows_args(&s, &r, q, 0);
                OK(ops->all_reduce(&b, s.st[q]));
            }
            side_sync(&s);
            char *want = sum_of(r.x, s.n, r.n, r.t);
            int32_t there = live < 0 ? 0 : live < 7 ? live : 7;
            memset(want + (size_t)there * 66, POISON, (size_t)(7 - there) * 66);
            for (int q = 0; q < s.n; q++)
                has(&s, q, r.d_y[q], want, r.n * 2, "live rows");
            free(want);
            sum_rows_free(&s, &r, 1);
        }
        side_close(&s);
    }
}

/* ---- gathers ------------------------------------------------------------------------ */

static void
gather_rows(struct side *s, int32_t T, int32_t first, int32_t live, int32_t C,
    int32_t more, enum fdk_dtype t)
{
    size_t eb = fdk_dtype_bytes(t), row = (size_t)C * eb, ldy = row * (size_t)s->n;
    ldy += (size_t)more * eb;
    char *want = malloc((size_t)T * ldy), *x = malloc((size_t)T * row);
    void *d_y[FDK_MAX_RANKS];
    assert_true(want != NULL && x != NULL);
    memset(want, POISON, (size_t)T * ldy);
    for (int q = 0; q < s->n; q++) {
        for (size_t i = 0; i < (size_t)T * row; i++)
            x[i] = (char)k_rand(&s->seed);
        for (int32_t i = 0; i < T && first + i < live; i++)
            memcpy(want + (size_t)i * ldy + row * (size_t)q, x + (size_t)i * row, row);
        d_y[q] = put(s, q, NULL, (size_t)T * ldy);
        const struct fdk_all_gather_args a = {
            .group = s->g,
            .y = d_y[q],
            .x = put(s, q, x, (size_t)T * row),
            .n = live < first + T ? put(s, q, &live, sizeof(live)) : NULL,
            .first = first,
            .T = T,
            .C = C,
            .ldy = (int32_t)(ldy / eb),
            .dtype = t,
        };
        OK(ops->all_gather(&a, s->st[q]));
    }
    side_sync(s);
    for (int q = 0; q < s->n; q++)
        has(s, q, d_y[q], want, (size_t)T * ldy, "gather");
    free(want);
    free(x);
    drop(s, 1);
}

static void
gather_case(struct side *s, int32_t T, int32_t C, int32_t more, enum fdk_dtype t)
{
    gather_rows(s, T, 0, T, C, more, t);
}

/* An exchange: each rank has a different row of C elements for each other rank. */
static void
exchange_rows(struct side *s, int32_t T, int32_t live, int32_t C, enum fdk_dtype t)
{
    size_t n = (size_t)s->n, row = (size_t)C * fdk_dtype_bytes(t),
           all = (size_t)T * n * row;
    char *want = malloc(n * all), *x = malloc(all);
    void *d_y[FDK_MAX_RANKS];
    assert_true(want != NULL && x != NULL);
    memset(want, POISON, n * all);
    for (size_t q = 0; q < n; q++) {
        for (size_t i = 0; i < all; i++)
            x[i] = (char)k_rand(&s->seed);
        for (size_t i = 0; i < (size_t)T && (int32_t)i < live; i++)
            for (size_t to = 0; to < n; to++)
                memcpy(want + to * all + (i * n + q) * row, x + (i * n + to) * row, row);
        d_y[q] = put(s, (int)q, NULL, all);
        const struct fdk_all_gather_args a = {
            .group = s->g,
            .y = d_y[q],
            .x = put(s, (int)q, x, all),
            .n = live < T ? put(s, (int)q, &live, sizeof(live)) : NULL,
            .T = T,
            .C = C,
            .ldy = (int32_t)n * C,
            .each = 1,
            .dtype = t,
        };
        OK(ops->all_gather(&a, s->st[q]));
    }
    side_sync(s);
    for (size_t q = 0; q < n; q++)
        has(s, (int)q, d_y[q], want + q * all, all, "exchange");
    free(want);
    free(x);
    drop(s, 1);
}

static void
t_exchange(void **state)
{
    static const int32_t T[] = { 1, 2, 7, 33 }, C[] = { 1, 4, 63, 264, 3000 };
    int n;
    (void)state;
    FOR_WORLDS(n)
    {
        const struct fdk_group_args a = kind(n % 2, n);
        struct side s;
        side_open(&s, &a);
        for (int i = 0; i < 4; i++)
            for (int c = 0; c < (K_SLOW ? 4 : 5); c++) {
                exchange_rows(&s, T[i], T[i], C[c], FDK_F32);
                exchange_rows(&s, T[i], T[i] / 2, C[c], FDK_BF16);
            }
        side_close(&s);
    }
}

/* Slices of the live rows: the last one is short, and one after it is empty. */
static void
t_gather_slices(void **state)
{
    int n;
    (void)state;
    FOR_WORLDS(n)
    {
        const struct fdk_group_args a = kind(0, n);
        struct side s;
        side_open(&s, &a);
        for (int32_t first = 0; first < 20; first += 4)
            gather_rows(&s, 4, first, 14, 33, 5, FDK_F32);
        sum_case(&s, 300, FDK_F32, 0, 0);
        side_close(&s);
    }
}

static void
t_gathers(void **state)
{
    static const enum fdk_dtype kinds[] = { FDK_F32, FDK_BF16, FDK_U8, FDK_I32 };
    int n;
    (void)state;
    FOR_WORLDS(n)
    for (int k = 0; k < KINDS; k += k == 0 ? 2 : 1) {
        const struct fdk_group_args a = kind(k, n);
        struct side s;
        side_open(&s, &a);
        for (int i = 0; i < 4; i++) {
            gather_case(&s, 1, 1, 0, kinds[i]);
            gather_case(&s, 1, 4099, 0, kinds[i]);
            gather_case(&s, 5, 16, 0, kinds[i]);
            gather_case(&s, 7, 33, 3, kinds[i]);
            sum_case(&s, 300, FDK_F32, 0, 0);
            gather_case(&s, 3, 2048, 16, kinds[i]);
        }
        side_close(&s);
    }
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_sums),
        cmocka_unit_test(t_large_sums),
        cmocka_unit_test(t_counts),
        cmocka_unit_test(t_live_rows),
        cmocka_unit_test(t_fused),
        cmocka_unit_test(t_gathers),
        cmocka_unit_test(t_exchange),
        cmocka_unit_test(t_gather_slices),
    };
    return both_backends(tests, sizeof(tests) / sizeof(tests[0]), argc, argv);
}
