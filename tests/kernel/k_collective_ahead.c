/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * An all-reduce in two launches, fdk_ops.reduce_send() and reduce_take(): the bits of one, in
 * two halves by turns, and what is refused or fails.
 */
#include "config.h"

#include <errno.h>

#include "kernels/program.h"
#include "tests/kernel/k_ranks.h"

static const enum fdk_dtype types[] = { FDK_F32, FDK_BF16, FDK_F16 };

static struct fdk_group_args
two_ranks(uint64_t ahead)
{
    return (struct fdk_group_args){ .n_rank = 2, .ahead_bytes = ahead };
}

/* Rows of which some are live, on both ranks. */
struct rows {
    int32_t T, live, C, norm;
    enum fdk_dtype t;
    size_t n, eb;
    char *x[2], *d_x[2], *d_y[2], *want_y[2];
    float *r, *w, *want_r[2];
    char *d_r[2], *d_w[2], *d_n[2];
};

/* A half: rows `at` .. at + T. What is sent ahead says nothing of the norm. */
static struct fdk_all_reduce_args
half_args(const struct side *s, const struct rows *r, int q, int32_t at, int32_t T)
{
    size_t skip = (size_t)at * (size_t)r->C;

    return (struct fdk_all_reduce_args){ .group = s->g,
        .y = r->d_y[q] + skip * r->eb,
        .x = r->d_x[q] + skip * r->eb,
        .residual = r->norm ? (float *)(void *)(r->d_r[q] + skip * 4) : NULL,
        .w = r->norm ? (const float *)(const void *)r->d_w[q] : NULL,
        .n = (const int32_t *)(const void *)r->d_n[q],
        .T = T,
        .C = r->C,
        .eps = 1e-5f,
        .act = r->t };
}

static void
rows_new(struct side *s, struct rows *r)
{
    r->n = (size_t)r->T * (size_t)r->C;
    r->eb = fdk_dtype_bytes(r->t);
    r->r = (float *)(void *)numbers(s, r->n, FDK_F32);
    r->w = (float *)(void *)numbers(s, (size_t)r->C, FDK_F32);
    for (int q = 0; q < 2; q++) {
        r->x[q] = numbers(s, r->n, r->t);
        r->d_x[q] = put(s, q, r->x[q], r->n * r->eb);
        r->d_y[q] = put(s, q, NULL, r->n * r->eb);
        r->d_r[q] = put(s, q, r->r, r->n * 4);
        r->d_w[q] = put(s, q, r->w, (size_t)r->C * 4);
        r->d_n[q] = put(s, q, &r->live, 4);
        r->want_y[q] = malloc(r->n * r->eb + 1);
        r->want_r[q] = malloc(r->n * 4 + 1);
        assert_true(r->want_y[q] != NULL && r->want_r[q] != NULL);
    }
}

static void
rows_free(struct side *s, struct rows *r)
{
    for (int q = 0; q < 2; q++) {
        free(r->x[q]);
        free(r->want_y[q]);
        free(r->want_r[q]);
    }
    free(r->r);
    free(r->w);
    drop(s, 1);
}

/* The live rows of y, and the residual, as one launch leaves them. */
static void
rows_want(struct side *s, struct rows *r)
{
    for (int q = 0; q < 2; q++) {
        const struct fdk_all_reduce_args a = half_args(s, r, q, 0, r->T);
        OK(ops->all_reduce(&a, s->st[q]));
    }
    side_sync(s);
    for (int q = 0; q < 2; q++) {
        get(s, q, r->want_y[q], r->d_y[q], r->n * r->eb);
        get(s, q, r->want_r[q], r->d_r[q], r->n * 4);
        OK(ops->copy(s->st[q], r->d_r[q], r->r, r->n * 4));
        OK(ops->fill(s->st[q], r->d_y[q], POISON, r->n * r->eb));
    }
    side_sync(s);
}

/* Rows are computed again: a rank after the other, each in the order send, send, take, send,
 * take, .. that two halves have. */
static void
rows_ahead(struct side *s, struct rows *r, int times)
{
    const int32_t half = fdk_half_rows(r->T), at[2] = { 0, half },
                  T[2] = { half, r->T - half };

    for (int i = 0; i < 2 * times + 2; i++)
        for (int k = 0; k < 2; k++) {
            const int q = (i + k) % 2;
            const struct fdk_all_reduce_args a = half_args(s, r, q, at[i % 2], T[i % 2]);
            if (i >= 2) {
                OK(ops->reduce_take(&a, s->st[q]));
                if (i < 2 * times)
                    OK(ops->copy(s->st[q], a.residual, r->r + at[i % 2] * r->C,
                        (size_t)T[i % 2] * (size_t)r->C * 4));
            }
            if (i < 2 * times) {
                struct fdk_all_reduce_args plain = a;
                plain.residual = NULL;
                plain.w = NULL;
                OK(ops->reduce_send(&plain, s->st[q]));
            }
        }
    side_sync(s);
}

static void
ahead_case(struct side *s, struct rows *r, int times)
{
    const size_t live = (size_t)(r->live < r->T ? r->live : r->T) * (size_t)r->C;

    rows_new(s, r);
    rows_want(s, r);
    rows_ahead(s, r, times);
    for (int q = 0; q < 2; q++) {
        has(s, q, r->d_y[q], r->want_y[q], live * r->eb, "y");
        has(s, q, r->d_r[q], (const char *)r->want_r[q], live * 4, "the residual");
    }
    rows_free(s, r);
}

static void
t_halves(void **state)
{
    static const int32_t T[] = { 2, 3, 9, 34, 300 }, C[] = { 1, 5, 64, 1000, 2056 };
    const struct fdk_group_args a = two_ranks(256 * 2056 * 4);
    struct side s;

    (void)state;
    side_open(&s, &a);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 5; j++)
            for (int c = 0; c < 5; c += 1 + K_SLOW)
                for (int norm = 0; norm < 2; norm++) {
                    struct rows r = { .T = T[j],
                        .live = c % 2 != 0 ? T[j] : T[j] - T[j] / 3,
                        .C = C[c],
                        .t = types[i],
                        .norm = norm };
                    ahead_case(&s, &r, norm ? 3 : 1);
                }
    side_close(&s);
}

/* Between the two there may be other collectives. */
static void
t_others_between(void **state)
{
    const struct fdk_group_args a = two_ranks(1 << 16);
    struct rows r = { .T = 8, .live = 8, .C = 64, .t = FDK_F32 };
    char *other[2];
    struct side s;

    (void)state;
    side_open(&s, &a);
    rows_new(&s, &r);
    rows_want(&s, &r);
    for (int q = 0; q < 2; q++)
        other[q] = put(&s, q, NULL, r.n * r.eb);
    for (int i = 0; i < 40; i++) {
        const int q = i % 2;
        struct fdk_all_reduce_args h = half_args(&s, &r, q, 0, 8);
        OK(ops->reduce_send(&h, s.st[q]));
        h.y = other[q];
        OK(ops->all_reduce(&h, s.st[q]));
        h.y = r.d_y[q];
        OK(ops->reduce_take(&h, s.st[q]));
    }
    side_sync(&s);
    for (int q = 0; q < 2; q++) {
        has(&s, q, r.d_y[q], r.want_y[q], r.n * r.eb, "y");
        has(&s, q, other[q], r.want_y[q], r.n * r.eb, "the sum between");
    }
    rows_free(&s, &r);
    side_close(&s);
}

/* Without room, out of turn, in a recording. */
static void
t_refused(void **state)
{
    struct fdk_group_args a = two_ranks(8 * 64 * 4);
    struct rows r = { .T = 9, .live = 9, .C = 64, .t = FDK_F32 };
    struct fdk_all_reduce_args h;
    struct fdk_group_ways ways;
    struct fdk_graph *g;
    struct side s;

    (void)state;
    side_open(&s, &a);
    rows_new(&s, &r);
    ops->group_ways(s.g, NULL, &ways);
    assert_int_equal(ways.ahead_bytes, 8 * 64 * 4);
    h = half_args(&s, &r, 0, 0, 9);
    assert_int_equal(ops->reduce_send(&h, s.st[0]), -ENOTSUP);
    h.T = 8;
    assert_int_equal(ops->reduce_take(&h, s.st[0]), -EINVAL);
    OK(ops->graph_begin(s.st[0]));
    assert_int_equal(ops->reduce_send(&h, s.st[0]), -ENOTSUP);
    OK(ops->graph_end(s.st[0], &g));
    ops->graph_free(g);
    OK(ops->reduce_send(&h, s.st[0]));
    OK(ops->reduce_send(&h, s.st[0]));
    assert_int_equal(ops->reduce_send(&h, s.st[0]), -EINVAL);
    h = half_args(&s, &r, 1, 0, 8);
    OK(ops->reduce_send(&h, s.st[1]));
    OK(ops->reduce_send(&h, s.st[1]));
    for (int i = 0; i < 4; i++) {
        h = half_args(&s, &r, i % 2, 0, 8);
        OK(ops->reduce_take(&h, s.st[i % 2]));
    }
    assert_int_equal(ops->reduce_take(&h, s.st[1]), -EINVAL);
    side_sync(&s);
    rows_free(&s, &r);
    side_close(&s);
    a.in_host = 1;
    side_open(&s, &a);
    ops->group_ways(s.g, NULL, &ways);
    assert_int_equal(ways.ahead_bytes, 0);
    side_close(&s);
}

/* Rank 1 sends other rows, or does not come. */
static void
one_of_two(const struct fdk_group_args *a, int other, const char *want)
{
    struct rows r = { .T = 8, .live = 8, .C = 64, .t = FDK_F32 };
    struct fdk_all_reduce_args h;
    struct side s;

    side_open(&s, a);
    rows_new(&s, &r);
    h = half_args(&s, &r, 0, 0, 8);
    OK(ops->reduce_send(&h, s.st[0]));
    OK(ops->reduce_take(&h, s.st[0]));
    if (other) {
        h = half_args(&s, &r, 1, 0, 4);
        OK(ops->reduce_send(&h, s.st[1]));
    }
    assert_int_equal(ops->stream_sync(s.st[0]), -EIO);
    assert_non_null(strstr(ops->error_text(s.ctx, 0), want));
    (void)ops->stream_sync(s.st[1]);
    for (int q = 0; q < 2; q++) {
        free(r.x[q]);
        free(r.want_y[q]);
        free(r.want_r[q]);
    }
    free(r.r);
    free(r.w);
    side_close(&s);
}

static void
t_fails(void **state)
{
    struct fdk_group_args a = two_ranks(1 << 16);

    (void)state;
    a.spin_limit_us = 200000;
    one_of_two(&a, 0, "rank 1 did not come within 200 ms");
    one_of_two(&a, 1, "different operations");
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_halves),
        cmocka_unit_test(t_others_between),
        cmocka_unit_test(t_refused),
        cmocka_unit_test(t_fails),
    };

    return both_backends(tests, sizeof(tests) / sizeof(tests[0]), argc, argv);
}
