/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the kernel tests: an open context with one stream, buffers with guards on
 * both sides, seeded numbers, and a step's arrays in one struct. Memory of the cpu device
 * is host memory: tests read and write it in place after a sync.
 */
#ifndef FDD_TESTS_KERNEL_K_UTIL_H
#define FDD_TESTS_KERNEL_K_UTIL_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>

#include <cmocka.h>

#include "kernels/cpu/cpu.h"
#include "kernels/fdk.h"

/* Sanitizer builds run fewer of the cases that differ only in their numbers. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define K_SLOW 1
#else
#define K_SLOW 0
#endif

#define K_GUARD  64 /* floats on each side */
#define K_CANARY 0x7fc0dead

struct k_dev {
    const struct fdk_ops *ops;
    struct fdk_ctx *ctx;
    fdk_stream_t st;
};

static inline void
k_open(struct k_dev *d, int n_thread, const char *isa)
{
    const struct fdk_open_args args = {
        .n_device = 1,
        .n_thread = n_thread,
        .max_token = 4096,
        .spin_us = 50,
    };
    char err[256];
    assert_int_equal(fdk_cpu_isa_force(isa), 0);
    d->ops = &fdk_ops_cpu;
    assert_int_equal(d->ops->open(&args, &d->ctx, err, sizeof(err)), 0);
    assert_int_equal(d->ops->stream_new(d->ctx, 0, &d->st), 0);
    fdk_cpu_isa_force(NULL);
}

static inline void
k_close(struct k_dev *d)
{
    d->ops->stream_free(d->st);
    d->ops->close(d->ctx);
}

static inline void
k_sync(struct k_dev *d)
{
    assert_int_equal(d->ops->stream_sync(d->st), 0);
}

/* n floats between canaries. */
static inline float *
k_new(size_t n)
{
    uint32_t *p = malloc((n + 2 * K_GUARD) * 4);
    assert_non_null(p);
    for (size_t i = 0; i < n + 2 * K_GUARD; i++)
        p[i] = K_CANARY;
    return (float *)(void *)(p + K_GUARD);
}

static inline void
k_check(const float *x, size_t n)
{
    uint32_t g[K_GUARD];
    memcpy(g, x - K_GUARD, sizeof(g));
    for (int i = 0; i < K_GUARD; i++)
        assert_int_equal(g[i], K_CANARY);
    memcpy(g, x + n, sizeof(g));
    for (int i = 0; i < K_GUARD; i++)
        assert_int_equal(g[i], K_CANARY);
}

static inline int
k_untouched(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, 4);
        if (u != K_CANARY)
            return 0;
    }
    return 1;
}

static inline void
k_free(float *x)
{
    free(x - K_GUARD);
}

static inline uint64_t
k_rand(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Roughly normal, variance 1. */
static inline float
k_normal(uint64_t *s)
{
    double x = 0;
    for (int i = 0; i < 12; i++)
        x += (double)(k_rand(s) >> 11) * 0x1p-53;
    return (float)(x - 6);
}

static inline void
k_fill(float *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        x[i] = k_normal(&seed);
}

static inline uint16_t
k_to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Truncates instead of rounding: any half is good as a weight, subnormal or not. */
static inline uint16_t
k_to_f16(float x)
{
    int e;
    float m = frexpf(fabsf(x), &e);
    unsigned s = x < 0 ? 0x8000 : 0;
    if (x == 0)
        return (uint16_t)s;
    if (e < -13)
        return (uint16_t)(s | (unsigned)ldexpf(m, e + 24));
    return (uint16_t)(s | (unsigned)(e + 14) << 10 | ((unsigned)(m * 2048) & 1023));
}

static inline double
k_from_half(uint16_t h, enum fdk_dtype t)
{
    if (t == FDK_BF16) {
        uint32_t u = (uint32_t)h << 16;
        float f;
        memcpy(&f, &u, 4);
        return f;
    }
    int e = h >> 10 & 31, m = h & 1023;
    double v = e == 0 ? ldexp(m, -24) : ldexp(m + 1024, e - 25);
    return h & 0x8000 ? -v : v;
}

/* n random weights of type t; ret_exact gets their exact values. */
static inline void *
k_weights(size_t n, enum fdk_dtype t, uint64_t seed, float *ret_exact)
{
    /* Exactly as large as the tensor, so that ASan sees a read past it. */
    char *w = malloc(n * fdk_dtype_bytes(t));
    assert_non_null(w);
    for (size_t i = 0; i < n; i++) {
        float x = k_normal(&seed) * (i % 97 == 5 ? 1e-6f : 1.0f);
        if (t == FDK_F32) {
            memcpy(w + 4 * i, &x, 4);
        } else {
            uint16_t h = t == FDK_BF16 ? k_to_bf16(x) : k_to_f16(x);
            memcpy(w + 2 * i, &h, 2);
            x = (float)k_from_half(h, t);
        }
        ret_exact[i] = x;
    }
    return w;
}

static inline void
k_assert_near(double got, double want, double tol, const char *what, size_t i)
{
    if (fabs(got - want) <= tol)
        return;
    print_error("%s[%zu]: %.9g, expected %.9g within %.3g\n", what, i, got, want, tol);
    fail();
}

static const char *const k_isas[] = { "generic", "avx2", "avx512" };

/* Returns whether this machine has isa; for loops over k_isas. */
static inline int
k_has_isa(const char *isa)
{
    int ok = fdk_cpu_isa_force(isa) == 0;
    fdk_cpu_isa_force(NULL);
    return ok;
}

#ifndef K_MAX_TOK
#define K_MAX_TOK 640
#endif
#define K_MAX_ROW 16
#ifndef K_STRIDE
#define K_STRIDE 64 /* entries of a row in the block table */
#endif
/* State slot of row r: not in the order of rows, as in a running engine. */
#define K_SLOT(r) (((r)*5 + 3) % K_MAX_ROW)

struct k_step {
    int32_t n_tok, n_row, n_out;
    int32_t ids[K_MAX_TOK], pos[K_MAX_TOK], slot_map[K_MAX_TOK], row[K_MAX_TOK];
    int32_t q_start[K_MAX_ROW + 1], kv_len[K_MAX_ROW], state[K_MAX_ROW];
    int32_t block_table[K_MAX_ROW * K_STRIDE];
    struct fdk_out out[K_MAX_TOK];
    struct fdk_batch b;
};

/* Pointers to the arrays of the step at s, which may be in device memory. */
static inline struct fdk_batch
k_batch_at(struct k_step *s, int32_t max_row)
{
    return (struct fdk_batch){
        .n_tok = &s->n_tok,
        .n_row = &s->n_row,
        .n_out = &s->n_out,
        .ids = s->ids,
        .pos = s->pos,
        .slot_map = s->slot_map,
        .row = s->row,
        .q_start = s->q_start,
        .kv_len = s->kv_len,
        .block_table = s->block_table,
        .state = s->state,
        .out = s->out,
        .table_stride = K_STRIDE,
        .max_row = max_row,
    };
}

static inline void
k_step_init(struct k_step *s)
{
    memset(s, 0, sizeof(*s));
    s->b = k_batch_at(s, K_MAX_ROW);
    for (int r = 0; r < K_MAX_ROW; r++)
        s->state[r] = K_SLOT(r);
}

/* Arguments to plan a step for the attention a, which has its buffers already.
 * qa, bt: from att_shape(). */
static inline struct fdk_att_plan_args
k_plan_of(const struct fdk_attention_args *a, int32_t qa, int32_t bt, size_t plan_bytes)
{
    return (struct fdk_att_plan_args){ .work = (void *)(uintptr_t)a->work,
        .n_work = (void *)(uintptr_t)a->n_work,
        .n_done = a->n_done,
        .b = a->b,
        .a = qa,
        .bt = bt,
        .n_max = a->n_work_max,
        .att = a,
        .plan = (void *)(uintptr_t)a->plan,
        .plan_bytes = plan_bytes };
}

/* Appends a row of n tokens after `before` cached ones. The ids of its blocks are
 * scattered over n_block by an odd multiplier and depend on salt. */
static inline void
k_step_row(struct k_step *s, int n, int before, int block_size, int n_block, int salt)
{
    int r = s->n_row++, at = K_SLOT(r) * K_STRIDE;
    for (int i = 0; i * block_size < before + n; i++)
        s->block_table[at + i] = ((salt * 17 + i) * 7 + 3) % n_block;
    for (int i = 0; i < n; i++) {
        int t = s->n_tok++, p = before + i;
        s->ids[t] = 1;
        s->pos[t] = p;
        s->row[t] = r;
        s->slot_map[t] = s->block_table[at + p / block_size] * block_size + p % block_size;
    }
    s->q_start[r + 1] = s->n_tok;
    s->kv_len[r] = before + n;
}

#endif
