/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of virtual devices or GPUs for tests of collectives: a context with one stream
 * for each rank, buffers with guards, and random numbers with their sums in rank order.
 * Include config.h first, as for k_util.h.
 */
#ifndef FDD_TESTS_KERNEL_K_RANKS_H
#define FDD_TESTS_KERNEL_K_RANKS_H

#include "kernels/collective.h"
#include "tests/kernel/k_util.h"

#include <time.h>

#define OK(call)  assert_int_equal((call), 0)
#define POISON    0x7f
#define GUARD     64
#define MAX_BUF   400
#define LIMIT_US  400000 /* time limit in tests where a rank does not arrive */
#define FREEZE_US 120000000

static const struct fdk_ops *ops;
static int on_cpu, n_device;

struct side {
    struct fdk_ctx *ctx;
    struct fdk_group *g;
    int n;
    fdk_stream_t st[FDK_MAX_RANKS];
    struct {
        int rank;
        char *p;
        size_t bytes;
    } buf[MAX_BUF];
    int n_buf;
    uint64_t seed;
};

/* ---- the fixture --------------------------------------------------------------- */

static inline void
side_devices(struct side *s, int n, enum fdk_exec exec)
{
    const struct fdk_open_args args = { .n_device = n, .n_thread = 1, .exec = exec };
    char err[256] = "";
    memset(s, 0, sizeof(*s));
    s->n = n;
    s->seed = (uint64_t)n * 77 + 5;
    if (ops->open(&args, &s->ctx, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    for (int i = 0; i < n; i++)
        OK(ops->stream_new(s->ctx, i, &s->st[i]));
}

static inline void
side_open(struct side *s, const struct fdk_group_args *a)
{
    struct fdk_group_args b = *a;
    char err[256] = "";
    side_devices(s, a->n_rank, FDK_EXEC_DEFAULT);
    b.spin_limit_us = b.spin_limit_us != 0 ? b.spin_limit_us : FREEZE_US;
    if (ops->group_new(s->ctx, &b, &s->g, err, sizeof(err)) != 0)
        fail_msg("%s", err);
}

static inline void
side_sync(struct side *s)
{
    for (int i = 0; i < s->n; i++)
        if (ops->stream_sync(s->st[i]) != 0)
            fail_msg("rank %d: %s", i, ops->error_text(s->ctx, i));
}

static inline void *
put(struct side *s, int rank, const void *src, size_t bytes)
{
    void *p;
    assert_true(s->n_buf < MAX_BUF);
    OK(ops->mem_alloc(s->ctx, rank, bytes + GUARD, &p));
    if (ops->on_host) {
        memset(p, POISON, bytes + GUARD);
        if (src != NULL)
            memcpy(p, src, bytes);
    } else {
        OK(ops->fill(s->st[rank], p, POISON, bytes + GUARD));
        if (src != NULL)
            OK(ops->copy(s->st[rank], p, src, bytes));
        OK(ops->stream_sync(s->st[rank]));
    }
    s->buf[s->n_buf].rank = rank;
    s->buf[s->n_buf].p = p;
    s->buf[s->n_buf++].bytes = bytes;
    return p;
}

/* Copies from a rank's memory. The caller has synchronized the streams. */
static inline void
get(struct side *s, int rank, void *dst, const void *src, size_t bytes)
{
    if (ops->on_host) {
        memcpy(dst, src, bytes);
        return;
    }
    OK(ops->copy(s->st[rank], dst, src, bytes));
    OK(ops->stream_sync(s->st[rank]));
}

static inline void
drop(struct side *s, int check)
{
    unsigned char guard[GUARD];
    for (int i = 0; i < s->n_buf; i++) {
        if (check)
            get(s, s->buf[i].rank, guard, s->buf[i].p + s->buf[i].bytes, GUARD);
        for (int k = 0; k < GUARD && check; k++)
            assert_int_equal(guard[k], POISON);
        ops->mem_free(s->ctx, s->buf[i].rank, s->buf[i].p);
    }
    s->n_buf = 0;
}

static inline void
side_close(struct side *s)
{
    drop(s, 0);
    for (int i = 0; i < s->n; i++)
        ops->stream_free(s->st[i]);
    ops->group_free(s->g);
    ops->close(s->ctx);
}

static inline uint64_t
now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000;
}

/* ---- numbers -------------------------------------------------------------------- */

static inline uint16_t
f16_nearest(float x)
{
    int e;
    double v = fabs((double)x);
    (void)frexp(v, &e);
    e = e < -13 ? -13 : e;
    v = ldexp(rint(ldexp(v, 11 - e)), e - 11);
    return (
        uint16_t)((signbit(x) ? 0x8000 : 0) | (v >= 65536 ? 0x7c00 : k_to_f16((float)v)));
}

static inline float
f32_of(const char *p, enum fdk_dtype t)
{
    float f;
    uint16_t h;
    if (t == FDK_F32)
        return memcpy(&f, p, 4), f;
    memcpy(&h, p, 2);
    return (h & 0x7fff) == 0x7c00 && t == FDK_F16 ? INFINITY : (float)k_from_half(h, t);
}

static inline void
rounded(char *p, float x, enum fdk_dtype t)
{
    uint16_t h = t == FDK_BF16 ? k_to_bf16(x) : f16_nearest(x);
    if (t == FDK_F32)
        memcpy(p, &x, 4);
    else
        memcpy(p, &h, 2);
}

/* n random numbers for a rank; some sums of f16 are subnormal. */
static inline char *
numbers(struct side *s, size_t n, enum fdk_dtype t)
{
    size_t eb = fdk_dtype_bytes(t);
    char *x = malloc(n * eb + 1);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) {
        float v = k_normal(&s->seed) * (i % 13 == 3 ? 1e-6f : 1.0f);
        rounded(x + i * eb, v, t);
    }
    return x;
}

static inline char *
sum_of(char *const *x, int n_rank, size_t n, enum fdk_dtype t)
{
    size_t eb = fdk_dtype_bytes(t);
    char *y = malloc(n * eb + 1);
    assert_non_null(y);
    for (size_t i = 0; i < n; i++) {
        float sum = f32_of(x[0] + i * eb, t);
        for (int q = 1; q < n_rank; q++)
            sum += f32_of(x[q] + i * eb, t);
        rounded(y + i * eb, sum, t);
    }
    return y;
}

static inline void
same(const char *got, const char *want, size_t bytes, const char *what, int rank)
{
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != want[i])
            fail_msg("%s: rank %d, byte %zu of %zu is %#x, expected %#x", what, rank, i,
                bytes, (unsigned char)got[i], (unsigned char)want[i]);
}

/* Checks the bytes that rank has at p. */
static inline void
has(struct side *s, int rank, const void *p, const char *want, size_t bytes,
    const char *what)
{
    char *got = malloc(bytes + 1);
    assert_non_null(got);
    get(s, rank, got, p, bytes);
    same(got, want, bytes, what, rank);
    free(got);
}

/* The kinds of group that most cases run with: 0 sends whole operands, 1 sends
 * shares, 2 has the defaults, 3 goes through host memory. Kinds 0 and 1 need
 * many pieces for an operand. */
static inline struct fdk_group_args
kind(int i, int n)
{
    return (struct fdk_group_args){
        .n_rank = n,
        .bytes = i >= 2 ? 0
            : on_cpu    ? 4u * 2 * 32 * (unsigned)n * 8
                        : 64u * 2 * 16384,
        .one_shot_bytes = i == 0 ? UINT64_MAX : i == 1,
        .packet_bytes = i == 2 ? 0 : 1,
        .in_host = i == 3,
    };
}
#define KINDS 4

static const int worlds[] = { 2, 3, 4, 6, 8 };
#define FOR_WORLDS(n) \
    for (size_t w_ = 0; w_ < 5; w_++) \
        if ((n = worlds[w_]) <= n_device)

/* Checks one all-reduce. skew: number of elements by which the operands are
 * misaligned. Some f16 sums overflow. */
static inline void
sum_case(struct side *s, size_t n, enum fdk_dtype t, int in_place, size_t skew)
{
    size_t eb = fdk_dtype_bytes(t);
    char *x[FDK_MAX_RANKS], *d_y[FDK_MAX_RANKS];
    for (int q = 0; q < s->n; q++) {
        x[q] = numbers(s, n + skew, t);
        for (size_t i = 7; i < n + skew; i += 1001)
            rounded(x[q] + i * eb, 60000, t);
        char *d_x = put(s, q, x[q], (n + skew) * eb);
        d_y[q] = in_place ? d_x : put(s, q, x[q], (n + skew) * eb);
        const struct fdk_all_reduce_args a = {
            .group = s->g,
            .y = d_y[q] + skew * eb,
            .x = d_x + skew * eb,
            .T = 1,
            .C = (int32_t)n,
            .act = t,
        };
        OK(ops->all_reduce(&a, s->st[q]));
        memmove(x[q], x[q] + skew * eb, n * eb);
    }
    side_sync(s);
    char *want = sum_of(x, s->n, n, t);
    for (int q = 0; q < s->n; q++) {
        has(s, q, d_y[q] + skew * eb, want, n * eb, fdk_dtype_name(t));
        free(x[q]);
    }
    free(want);
    drop(s, 1);
}

/* The rows of a step, with residual and norm weights: room for T rows of C elements, of
 * which the first `live` are in use. */
struct sum_rows {
    int32_t T, live, C;
    enum fdk_dtype t;
    size_t n, eb;
    char *x[FDK_MAX_RANKS], *d_x[FDK_MAX_RANKS], *d_y[FDK_MAX_RANKS];
    float *r, *w, offset;
    void *d_r[FDK_MAX_RANKS], *d_w[FDK_MAX_RANKS], *d_n[FDK_MAX_RANKS];
};

static inline void
sum_rows_new(struct side *s, struct sum_rows *r, int32_t T, int32_t live, int32_t C,
    enum fdk_dtype t)
{
    *r = (struct sum_rows){ .T = T, .live = live, .C = C, .t = t };
    r->n = (size_t)T * (size_t)C;
    r->eb = fdk_dtype_bytes(t);
    r->r = (float *)(void *)numbers(s, r->n, FDK_F32);
    r->w = (float *)(void *)numbers(s, (size_t)C, FDK_F32);
    for (int q = 0; q < s->n; q++) {
        r->x[q] = numbers(s, r->n, t);
        r->d_x[q] = put(s, q, r->x[q], r->n * r->eb);
        r->d_y[q] = put(s, q, NULL, r->n * r->eb);
        r->d_r[q] = put(s, q, r->r, r->n * 4);
        r->d_w[q] = put(s, q, r->w, (size_t)C * 4);
        r->d_n[q] = put(s, q, &r->live, 4);
    }
}

static inline void
sum_rows_free(struct side *s, struct sum_rows *r, int guards)
{
    for (int q = 0; q < s->n; q++)
        free(r->x[q]);
    free(r->r);
    free(r->w);
    drop(s, guards);
}

static inline struct fdk_all_reduce_args
sum_rows_args(const struct side *s, const struct sum_rows *r, int q, int fused)
{
    return (struct fdk_all_reduce_args){
        .group = s->g,
        .y = r->d_y[q],
        .x = r->d_x[q],
        .residual = fused ? r->d_r[q] : NULL,
        .w = fused ? r->d_w[q] : NULL,
        .n = r->d_n[q],
        .T = r->T,
        .C = r->C,
        .eps = 1e-5f,
        .offset = r->offset,
        .act = r->t,
    };
}

/* Runs the tests on virtual devices and, if there are at least two, on GPUs. only:
 * "cpu", "cuda", or "" for both. most: the largest number of ranks. filter: name of the
 * one test to run, or NULL. */
static inline int
on_backends(const struct CMUnitTest *tests, size_t n, const char *only, int most,
    const char *filter)
{
    char why[256] = "";
    int rc = 0;
    if (filter == NULL)
        filter = getenv("SIM_TEST");
    if (filter != NULL)
        cmocka_set_test_filter(filter);
    ops = &fdk_ops_cpu;
    on_cpu = 1;
    n_device = most;
    if (strcmp(only, "cuda") != 0)
        rc = _cmocka_run_group_tests("cpu", tests, n, NULL, NULL);
    if (strcmp(only, "cpu") == 0)
        return rc;
    n_device = fdk_ops_cuda.available(why, sizeof(why));
    if (n_device < 2) {
        printf("SKIP: cuda: %s\n", n_device == 1 ? "collectives need two devices" : why);
        return only[0] != '\0' ? 77 : rc;
    }
    n_device = n_device < most ? n_device : most;
    ops = &fdk_ops_cuda;
    on_cpu = 0;
    return rc | _cmocka_run_group_tests("cuda", tests, n, NULL, NULL);
}

static inline int
both_backends(const struct CMUnitTest *tests, size_t n, int argc, char **argv)
{
    return on_backends(tests, n, "", FDK_MAX_RANKS, argc > 1 ? argv[1] : NULL);
}

#endif
