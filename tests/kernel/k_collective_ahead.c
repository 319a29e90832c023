/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * An all-reduce in two launches, fdk_ops.reduce_send() and reduce_take(): the bits of a
 * single launch, two halves in turn, refused arguments and failures.
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

/* Rows with or without a norm after the sum, and the expected result, from one launch. */
struct halves {
    struct sum_rows r;
    int norm;
    char *want_y[2], *want_r[2];
};

/* Arguments for rows `at` .. at + T - 1. */
static struct fdk_all_reduce_args
half_args(const struct side *s, const struct halves *h, int q, int32_t at, int32_t T)
{
    const size_t skip = (size_t)at * (size_t)h->r.C;
    struct fdk_all_reduce_args a = sum_rows_args(s, &h->r, q, h->norm);

    a.y = (char *)a.y + skip * h->r.eb;
    a.x = (const char *)a.x + skip * h->r.eb;
    a.residual = a.residual != NULL ? a.residual + skip : NULL;
    a.T = T;
    return a;
}

static void
halves_new(struct side *s, struct halves *h, int32_t T, int32_t live, int32_t C,
    enum fdk_dtype t, int norm)
{
    sum_rows_new(s, &h->r, T, live, C, t);
    h->norm = norm;
    for (int q = 0; q < 2; q++) {
        h->want_y[q] = malloc(h->r.n * h->r.eb + 1);
        h->want_r[q] = malloc(h->r.n * 4 + 1);
        assert_true(h->want_y[q] != NULL && h->want_r[q] != NULL);
    }
}

/* Frees the buffers. guards: 0 after a failure, when buffers cannot be read. */
static void
halves_free(struct side *s, struct halves *h, int guards)
{
    for (int q = 0; q < 2; q++) {
        free(h->want_y[q]);
        free(h->want_r[q]);
    }
    sum_rows_free(s, &h->r, guards);
}

/* Checks that the live rows of y and the residual equal those of one launch. */
static void
rows_want(struct side *s, struct halves *h)
{
    for (int q = 0; q < 2; q++) {
        const struct fdk_all_reduce_args a = half_args(s, h, q, 0, h->r.T);
        OK(ops->all_reduce(&a, s->st[q]));
    }
    side_sync(s);
    for (int q = 0; q < 2; q++) {
        get(s, q, h->want_y[q], h->r.d_y[q], h->r.n * h->r.eb);
        get(s, q, h->want_r[q], h->r.d_r[q], h->r.n * 4);
        OK(ops->copy(s->st[q], h->r.d_r[q], h->r.r, h->r.n * 4));
        OK(ops->fill(s->st[q], h->r.d_y[q], POISON, h->r.n * h->r.eb));
    }
    side_sync(s);
}

/* Computes the rows again in halves: one rank after another, each in the order send,
 * send, take, send, take, .. */
static void
rows_ahead(struct side *s, struct halves *h, int times)
{
    const int32_t half = fdk_half_rows(h->r.T), at[2] = { 0, half },
                  T[2] = { half, h->r.T - half };

    for (int i = 0; i < 2 * times + 2; i++)
        for (int k = 0; k < 2; k++) {
            const int q = (i + k) % 2;
            const struct fdk_all_reduce_args a = half_args(s, h, q, at[i % 2], T[i % 2]);
            if (i >= 2) {
                OK(ops->reduce_take(&a, s->st[q]));
                if (i < 2 * times)
                    OK(ops->copy(s->st[q], a.residual, h->r.r + at[i % 2] * h->r.C,
                        (size_t)T[i % 2] * (size_t)h->r.C * 4));
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
ahead_case(struct side *s, struct halves *h, int times)
{
    const size_t live = (size_t)(h->r.live < h->r.T ? h->r.live : h->r.T) * (size_t)h->r.C;

    rows_want(s, h);
    rows_ahead(s, h, times);
    for (int q = 0; q < 2; q++) {
        has(s, q, h->r.d_y[q], h->want_y[q], live * h->r.eb, "y");
        has(s, q, h->r.d_r[q], (const char *)h->want_r[q], live * 4, "the residual");
    }
}

static void
one_size(struct side *s, int32_t T, int32_t live, int32_t C, enum fdk_dtype type, int norm)
{
    struct halves h;

    halves_new(s, &h, T, live, C, type, norm);
    ahead_case(s, &h, norm ? 3 : 1);
    halves_free(s, &h, 1);
}

static void
t_halves(void **state)
{
    static const int32_t T[] = { 2, 3, 9, 34, 300 }, C[] = { 1, 5, 64, 1000, 2056 };
    static const int32_t wide[] = { 4096, 8192, 8200 }; /* rows that fit into a GPU's
                                                         * registers, and rows that do
                                                         * not */
    const struct fdk_group_args a = two_ranks(256 * 2056 * 4);
    struct side s;

    (void)state;
    side_open(&s, &a);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 5; j++)
            for (int c = 0; c < 5; c += 1 + K_SLOW)
                for (int norm = 0; norm < 2; norm++)
                    one_size(&s, T[j], c % 2 != 0 ? T[j] : T[j] - T[j] / 3, C[c],
                        types[i], norm);
    for (int i = 0; i < 3; i++)
        for (int c = 0; c < 3; c++)
            one_size(&s, 20, 19, wide[c], types[i], 1);
    side_close(&s);
}

/* Between send and take there may be other collectives. */
static void
t_others_between(void **state)
{
    const struct fdk_group_args a = two_ranks(1 << 16);
    struct halves h;
    char *other[2];
    struct side s;

    (void)state;
    side_open(&s, &a);
    halves_new(&s, &h, 8, 8, 64, FDK_F32, 0);
    rows_want(&s, &h);
    for (int q = 0; q < 2; q++)
        other[q] = put(&s, q, NULL, h.r.n * h.r.eb);
    for (int i = 0; i < 40; i++) {
        const int q = i % 2;
        struct fdk_all_reduce_args b = half_args(&s, &h, q, 0, 8);
        OK(ops->reduce_send(&b, s.st[q]));
        b.y = other[q];
        OK(ops->all_reduce(&b, s.st[q]));
        b.y = h.r.d_y[q];
        OK(ops->reduce_take(&b, s.st[q]));
    }
    side_sync(&s);
    for (int q = 0; q < 2; q++) {
        has(&s, q, h.r.d_y[q], h.want_y[q], h.r.n * h.r.eb, "y");
        has(&s, q, other[q], h.want_y[q], h.r.n * h.r.eb, "the sum between");
    }
    halves_free(&s, &h, 1);
    side_close(&s);
}

/* Refused: without room, in the wrong order, in a recording. */
static void
t_refused(void **state)
{
    struct fdk_group_args a = two_ranks(8 * 64 * 4);
    struct halves h;
    struct fdk_all_reduce_args b;
    struct fdk_group_ways ways;
    struct fdk_graph *g;
    struct side s;

    (void)state;
    side_open(&s, &a);
    halves_new(&s, &h, 9, 9, 64, FDK_F32, 0);
    ops->group_ways(s.g, NULL, &ways);
    assert_int_equal(ways.ahead_bytes, 8 * 64 * 4);
    b = half_args(&s, &h, 0, 0, 9);
    assert_int_equal(ops->reduce_send(&b, s.st[0]), -ENOTSUP);
    b.T = 8;
    assert_int_equal(ops->reduce_take(&b, s.st[0]), -EINVAL);
    OK(ops->graph_begin(s.st[0]));
    assert_int_equal(ops->reduce_send(&b, s.st[0]), -ENOTSUP);
    OK(ops->graph_end(s.st[0], &g));
    ops->graph_free(g);
    OK(ops->reduce_send(&b, s.st[0]));
    OK(ops->reduce_send(&b, s.st[0]));
    assert_int_equal(ops->reduce_send(&b, s.st[0]), -EINVAL);
    b = half_args(&s, &h, 1, 0, 8);
    OK(ops->reduce_send(&b, s.st[1]));
    OK(ops->reduce_send(&b, s.st[1]));
    for (int i = 0; i < 4; i++) {
        b = half_args(&s, &h, i % 2, 0, 8);
        OK(ops->reduce_take(&b, s.st[i % 2]));
    }
    assert_int_equal(ops->reduce_take(&b, s.st[1]), -EINVAL);
    side_sync(&s);
    halves_free(&s, &h, 1);
    side_close(&s);
    a.in_host = 1;
    side_open(&s, &a);
    ops->group_ways(s.g, NULL, &ways);
    assert_int_equal(ways.ahead_bytes, 0);
    side_close(&s);
}

/* Rank 1 sends other rows, or does not arrive. */
static void
one_of_two(const struct fdk_group_args *a, int other, const char *want)
{
    struct halves h;
    struct fdk_all_reduce_args b;
    struct side s;

    side_open(&s, a);
    halves_new(&s, &h, 8, 8, 64, FDK_F32, 0);
    b = half_args(&s, &h, 0, 0, 8);
    OK(ops->reduce_send(&b, s.st[0]));
    OK(ops->reduce_take(&b, s.st[0]));
    if (other) {
        b = half_args(&s, &h, 1, 0, 4);
        OK(ops->reduce_send(&b, s.st[1]));
    }
    assert_int_equal(ops->stream_sync(s.st[0]), -EIO);
    assert_non_null(strstr(ops->error_text(s.ctx, 0), want));
    (void)ops->stream_sync(s.st[1]);
    halves_free(&s, &h, 0);
    side_close(&s);
}

static void
t_fails(void **state)
{
    struct fdk_group_args a = two_ranks(1 << 16);

    (void)state;
    a.spin_limit_us = 200000;
    one_of_two(&a, 0, "rank 1 did not arrive within 200 ms");
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
