/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/program.h"
#include "tests/kernel/k_two.h"

#include "kernels/cuda/hooks.h"

#include <dirent.h>
#include <errno.h>

/*
 * Matrix products of the cuda backend compared with the cpu backend: fresh random data,
 * odd sizes, padding that must not be touched, poison after every buffer and in the rows
 * of x that are not live. K products are added in another order, so the tolerance is a
 * small multiple of the rounding of their sum.
 */

enum {
    PAD = 3,     /* launch sizes exceed the live counts by this */
    FEW = 8,     /* up to this number of rows a row's bits do not depend on the launch */
    STREAM = 128 /* rows of a launch that streams 16-bit weights */
};

struct kind { /* types of weights, activations, results */
    enum fdk_dtype w, act, y;
};
static const struct kind kinds[] = {
    { FDK_BF16, FDK_BF16, FDK_BF16 },
    { FDK_BF16, FDK_BF16, FDK_F32 },
    { FDK_F32, FDK_F32, FDK_F32 },
    { FDK_F16, FDK_F32, FDK_F32 },
    { FDK_I8, FDK_BF16, FDK_BF16 },
    { FDK_I4, FDK_BF16, FDK_F32 },
    { FDK_I8, FDK_F32, FDK_F32 },
    { FDK_I4, FDK_F32, FDK_F32 },
};
#define N_KIND (sizeof(kinds) / sizeof(kinds[0]))

struct mat {
    int T, N, K, ldy, group; /* T live rows */
    struct kind kind;
    int bias;
    const float *x, *scale, *b;
    const void *w;
};

static int
quantized(enum fdk_dtype t)
{
    return t == FDK_I8 || t == FDK_I4;
}

static void
random_mat(struct mat *m)
{
    size_t nx = (size_t)m->T * (size_t)m->K, nw = (size_t)m->N * (size_t)m->K;
    size_t ns = (size_t)m->N * (size_t)((m->K - 1) / m->group + 1);
    float *x = malloc(nx * 4), *s = malloc(ns * 4), *b = malloc((size_t)m->N * 4);
    tw_normal(x, nx);
    tw_normal(s, ns);
    tw_normal(b, (size_t)m->N);
    /* Numbers that are exact in a 16-bit type, so that rounding x makes no difference. */
    for (size_t i = 0; i < nx && m->kind.w != FDK_F32; i++)
        x[i] = m->kind.w == FDK_F16 ? (float)k_from_half(k_to_f16(x[i]), FDK_F16)
                                    : (float)k_from_half(k_to_bf16(x[i]), FDK_BF16);
    if (quantized(m->kind.w)) {
        unsigned char *w = malloc(nw);
        for (size_t i = 0; i < nw; i++)
            w[i] = (unsigned char)k_rand(&tw.seed);
        m->w = w;
    } else {
        float *exact = malloc(nw * 4);
        m->w = k_weights(nw, m->kind.w, k_rand(&tw.seed), exact);
        free(exact);
    }
    m->x = x;
    m->scale = s;
    m->b = b;
}

static void
free_mat(struct mat *m)
{
    free((void *)(uintptr_t)m->x);
    free((void *)(uintptr_t)m->scale);
    free((void *)(uintptr_t)m->b);
    free((void *)(uintptr_t)m->w);
}

/* Launches rows from `first` on, `split` at a time; rows beyond T are poison or anything.
 * The cpu uses fp32. Returns the T live rows as floats with stride ldy. */
static float *
run_gemm(struct two_dev *t, const struct mat *m, int split)
{
    const int32_t live = m->T;
    const int cpu = t == &tw.cpu, T = m->T + split; /* the last launch may reach beyond */
    const enum fdk_dtype act = cpu ? FDK_F32 : m->kind.act;
    const enum fdk_dtype yt = cpu ? FDK_F32 : m->kind.y;
    size_t groups = (size_t)((m->K - 1) / m->group + 1);
    size_t n = (size_t)T * (size_t)m->ldy, row = (size_t)m->K * fdk_dtype_bytes(act);
    struct fdk_gemm_args a = {
        .y = tw_new_act(t, NULL, n, yt),
        .x = tw_new(t, NULL, (size_t)T * row),
        .w = tw_new(t, m->w, (size_t)m->N * fdk_row_bytes(m->kind.w, (size_t)m->K)),
        .w_scale = tw_new(t, m->scale, (size_t)m->N * groups * 4),
        .w_group = m->group,
        .bias = m->bias ? tw_new(t, m->b, (size_t)m->N * 4) : NULL,
        .n = tw_new(t, &live, 4),
        .T = split,
        .N = m->N,
        .K = m->K,
        .ldy = m->ldy,
        .w_dtype = m->kind.w,
        .act = act,
        .y_dtype = yt,
    };
    void *x = tw_new_act(t, m->x, (size_t)m->T * (size_t)m->K, act), *y0 = a.y;
    OK(t->d.ops->copy(t->d.st, (void *)(uintptr_t)a.x, x, (size_t)m->T * row));
    a.scratch_bytes = t->d.ops->gemm_scratch(&a);
    if (a.scratch_bytes > 0)
        a.scratch = tw_new(t, NULL, a.scratch_bytes);
    for (; a.first < m->T; a.first += split) {
        OK(t->d.ops->gemm(&a, t->d.st));
        a.y = (char *)a.y + (size_t)split * (size_t)a.ldy * fdk_dtype_bytes(yt);
    }
    float *y = tw_read_act(t, y0, (size_t)m->T * (size_t)m->ldy, yt);
    tw_free(t);
    return y;
}

/* Rounding of fp32 sums of K products in another order grows with the root of K;
 * quantized weights reach 128 times their scale. */
static void
gemm_against_cpu(void **state)
{
    static const int shape[][4] = {
        /* T, N, K, group */
        { 1, 8, 16, 16 },
        { 3, 33, 48, 48 },
        { 17, 64, 128, 32 },
        { 65, 100, 250, 250 },
        { 64, 256, 512, 128 },
        { 129, 96, 1024, 64 },
        { 600, 64, 64, 64 },
        { 1, 1, 64, 64 },
        { 8, 65, 192, 64 },
        { 9, 1000, 320, 64 },
        { 30, 129, 4160, 64 },
        { 33, 2100, 256, 128 },
        { 128, 8200, 128, 128 },
        { 100, 20, 1088, 64 },
        { 600, 3000, 256, 256 },
        { 600, 6144, 256, 256 },
        { 500, 12000, 128, 128 },
    };
    (void)state;
    for (size_t ki = 0; ki < N_KIND; ki++)
        for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
            if (!tw_takes(ki + i, 5))
                continue;
            struct mat m = { .T = shape[i][0],
                .N = shape[i][1],
                .K = shape[i][2],
                .ldy = shape[i][1] + (i % 2 ? 3 : 0),
                .group = shape[i][3],
                .kind = kinds[ki],
                .bias = (int)(i + ki) % 2 };
            random_mat(&m);
            float *want = run_gemm(&tw.cpu, &m, m.T);
            float *got = run_gemm(&tw.gpu, &m, m.T + PAD);
            double unit = quantized(m.kind.w) ? 128 : 1;
            tw_near_act(got, want, (size_t)m.T * (size_t)m.ldy, m.kind.y, 1e-6,
                unit * 1e-6 * m.K, "gemm");
            free(want);
            free(got);
            free_mat(&m);
        }
}

/* A row's bits do not depend on how many rows a launch has: always for fp32 weights; for
 * 16-bit weights up to STREAM rows and within each range of rows above (doc/kernels.md);
 * for all weights on a deterministic device. Quantized weights: k_cuda_quant.c. */
static const struct {
    int rows, range;
} splits[] = {
    { 1, 0 },
    { 3, 0 },
    { 8, 0 },
    { 9, 0 },
    { 16, 0 },
    { 20, 0 },
    { 32, 0 },
    { 40, 0 },
    { 64, 0 },
    { 100, 0 },
    { 128, 0 },
    { 200, 2 },
    { 256, 2 },
    { 300, 3 },
    { 512, 3 },
};

static void
rows_stand_alone(const struct mat *m, int exact, size_t from)
{
    size_t n = (size_t)m->T * (size_t)m->N;
    float *few = run_gemm(&tw.gpu, m, FEW), *same = NULL;
    int range = 0;
    for (size_t k = from; k < sizeof(splits) / sizeof(splits[0]); k++) {
        if (!tw_takes(k + 1, 5))
            continue;
        float *got = run_gemm(&tw.gpu, m, splits[k].rows);
        if (exact || splits[k].range == 0) {
            tw_same(got, few, n * 4, "gemm rows");
        } else if (splits[k].range == range) {
            tw_same(got, same, n * 4, "gemm rows of a range");
        } else {
            /* Two bf16 results may be rounded to neighbours. */
            tw_near(got, few, n, m->kind.y == FDK_BF16 ? 0x1p-7 : 2e-6, 2e-6 * m->K,
                "few or many");
            free(same);
            same = got;
            got = NULL;
            range = splits[k].range;
        }
        free(got);
    }
    free(same);
    free(few);
}

static void
gemm_rows_stand_alone(void **state)
{
    static const int shape[][2] = { { 64, 128 }, { 256, 512 }, { 1000, 2048 },
        { 6144, 2048 }, { 2048, 8192 } };
    static const struct kind kind[] = { { FDK_BF16, FDK_BF16, FDK_F32 },
        { FDK_BF16, FDK_BF16, FDK_BF16 }, { FDK_F32, FDK_F32, FDK_F32 },
        { FDK_I8, FDK_BF16, FDK_BF16 }, { FDK_I4, FDK_BF16, FDK_BF16 } };
    (void)state;
    for (size_t ki = 0; ki < (tw.deterministic ? 5 : 3); ki++)
        for (size_t i = 0; i < (ki == 0 ? 5 : 2) && tw_takes(i, 8); i++) {
            struct mat m = { .T = 200,
                .N = shape[i][0],
                .K = shape[i][1],
                .ldy = shape[i][0],
                .group = 64,
                .kind = kind[ki] };
            random_mat(&m);
            rows_stand_alone(&m, tw.deterministic || ki >= 2, i < 2 ? 0 : 1);
            free_mat(&m);
        }
}

/* Content of x beyond the live rows, finite or not, does not affect live rows,
 * and there may be no live row: with a small K, a K with all stages, and several
 * tiles of w per thread block. */
static void
ignores_dead_rows(int T, int K, int live)
{
    enum { N = 16904 };
    struct two_dev *t = &tw.gpu;
    struct mat m = { .T = T,
        .N = N,
        .K = K,
        .ldy = N,
        .group = K,
        .kind = { FDK_BF16, FDK_BF16, FDK_F32 } };
    random_mat(&m);
    float *want = run_gemm(t, &m, T), *x = malloc((size_t)T * (size_t)K * 4);
    size_t lives = (size_t)live * N * 4, bytes = (size_t)T * N * 4;
    const int32_t n = live;
    memcpy(x, m.x, (size_t)T * (size_t)K * 4);
    for (size_t k = (size_t)live * (size_t)K; k < (size_t)T * (size_t)K; k++)
        x[k] = k % 2 ? NAN : INFINITY;
    struct fdk_gemm_args a = { .y = tw_new(t, NULL, bytes),
        .x = tw_new_act(t, x, (size_t)T * (size_t)K, FDK_BF16),
        .w = tw_new(t, m.w, (size_t)N * (size_t)K * 2),
        .n = tw_new(t, &n, 4),
        .T = T,
        .N = N,
        .K = K,
        .ldy = N,
        .w_dtype = FDK_BF16,
        .act = FDK_BF16,
        .y_dtype = FDK_F32 };
    a.scratch_bytes = t->d.ops->gemm_scratch(&a);
    if (a.scratch_bytes > 0)
        a.scratch = tw_new(t, NULL, a.scratch_bytes);
    OK(t->d.ops->gemm(&a, t->d.st));
    OK(t->d.ops->gemm(&a, t->d.st));
    unsigned char *y = tw_read(t, a.y, bytes);
    tw_same(y, want, lives, "live rows");
    if (T <= STREAM || tw.deterministic)
        for (size_t k = lives; k < bytes; k++)
            assert_int_equal(y[k], TW_POISON);
    free(y);
    tw_free(t);
    free(want);
    free(x);
    free_mat(&m);
}

static void
gemm_ignores_dead_rows(void **state)
{
    static const int rows[] = { 8, 16, 20, 64, 100, 200 };
    static const int depth[] = { 256, 1088 };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (size_t k = 0; k < 2 && tw_takes(i + k + 1, 2); k++) {
            ignores_dead_rows(rows[i], depth[k], 0);
            ignores_dead_rows(rows[i], depth[k], tw_int(1, rows[i]));
        }
}

/* Returns whether the two operations are one launch. */
static int
joins(int T, int F, int over_x)
{
    return !over_x &&
        ((T > STREAM / 2 && T <= STREAM) ||
            (T > 3 * STREAM / 8 && T <= STREAM && 2 * F >= 4096) ||
            (T > STREAM && !tw.deterministic && F % 16 == 0));
}

/* Runs y = silu_mul of a product as a program; fused 0: as two launches. */
static unsigned char *
silu_behind(const struct fdk_gemm_args *a, void *y, int fused)
{
    const struct k_dev *d = &tw.gpu.d;
    const struct fdk_op op[2] = { { .kind = FDK_OP_GEMM, .gemm = *a },
        { .kind = FDK_OP_SILU_MUL,
            .silu_mul = { .y = y, .gu = a->y, .n = a->n, .F = a->N / 2, .act = FDK_BF16 } } };
    const struct fdk_step s = { .T = a->T, .O = a->T };
    struct fdk_bound *b = NULL;
    struct fdk_launch l[2];
    OK(fdk_bind(d->ops, d->ctx, 0, op, 2, &b));
    int n = fdk_launches(b, &s, fused, l);
    assert_int_equal(n, fused && joins(a->T, a->N / 2, y == a->x) ? 1 : 2);
    for (int i = 0; i < n; i++)
        OK(fdk_launch(b, &s, &l[i], d->st));
    fdk_unbind(b);
    return tw_read(&tw.gpu, y, (size_t)a->T * (size_t)a->N);
}

/* More rows: as two launches, the GEMM may add K in another order, and
 * rounds before it adds a bias. */
static void
silu_near(const uint16_t *got, const uint16_t *want, size_t n, int bias)
{
    float *a = malloc(n * 4 + 4), *b = malloc(n * 4 + 4);
    size_t differ = 0;
    for (size_t i = 0; i < n; i++) {
        a[i] = (float)k_from_half(got[i], FDK_BF16);
        b[i] = (float)k_from_half(want[i], FDK_BF16);
        differ += got[i] != want[i];
    }
    if (!bias)
        assert_true(differ <= n / 100);
    assert_true(n == 0 || tw_distance(a, b, n) < 5e-3);
    free(a);
    free(b);
}

/* A product of gate and up followed by silu_mul: one launch where there is a kernel for
 * it, up to STREAM rows with the bits of two launches; two launches if silu_mul
 * overwrites the product's input. */
static void
silu_joined(int T, int live, int F, int K, int bias)
{
    struct two_dev *t = &tw.gpu;
    struct mat m = { .T = T,
        .N = 2 * F,
        .K = K,
        .ldy = 2 * F,
        .group = K,
        .kind = { FDK_BF16, FDK_BF16, FDK_BF16 } };
    const int32_t n = live;
    const size_t out = (size_t)T * (size_t)F * 2, in = (size_t)T * (size_t)K * 2;
    const size_t lives = (size_t)live * (size_t)F * 2;
    random_mat(&m);
    struct fdk_gemm_args a = { .x = tw_new_act(t, m.x, (size_t)T * (size_t)K, FDK_BF16),
        .w = tw_new(t, m.w, (size_t)m.N * (size_t)K * 2),
        .n = tw_new(t, &n, 4),
        .T = T,
        .bias = bias ? tw_new(t, m.b, (size_t)m.N * 4) : NULL,
        .N = m.N,
        .K = K,
        .ldy = m.N,
        .w_dtype = FDK_BF16,
        .act = FDK_BF16,
        .y_dtype = FDK_BF16 };
    a.scratch_bytes = t->d.ops->gemm_scratch(&a);
    if (a.scratch_bytes > 0)
        a.scratch = tw_new(t, NULL, a.scratch_bytes);
    a.y = tw_new(t, NULL, 2 * out);
    unsigned char *want = silu_behind(&a, tw_new(t, NULL, out), 0);
    a.y = tw_new(t, NULL, 2 * out);
    unsigned char *got = silu_behind(&a, tw_new(t, NULL, out), 1);
    if (T <= STREAM || tw.deterministic)
        tw_same(got, want, out, "silu joined");
    else
        silu_near((uint16_t *)got, (uint16_t *)want, lives / 2, bias);
    for (size_t i = lives; i < out; i++)
        assert_int_equal(got[i], TW_POISON);
    free(got);
    got = tw_read(t, a.y, 2 * out);
    for (size_t i = 0; joins(T, F, 0) && i < 2 * out; i++)
        assert_int_equal(got[i], TW_POISON);
    free(got);
    void *x = tw_new(t, NULL, in > out ? in : out);
    OK(t->d.ops->copy(t->d.st, x, (void *)(uintptr_t)a.x, in));
    a.x = x;
    got = silu_behind(&a, x, 1);
    tw_same(got, want, lives, "silu over x");
    free(got);
    free(want);
    tw_free(t);
    free_mat(&m);
}

static void
gemm_joins_silu(void **state)
{
    static const int shape[][4] = {
        /* T, live, F, K */
        { 128, 128, 14336, 128 },
        { 100, 97, 8192, 320 },
        { 128, 0, 512, 64 },
        { 65, 60, 3080, 1088 },
        { 70, 70, 333, 128 },
        { 127, 16, 5000, 256 },
        { 56, 56, 6144, 512 },
        { 40, 39, 4096, 256 },
        { 1, 1, 2048, 256 },
        { 8, 8, 2048, 64 },
        { 129, 128, 1024, 256 },
        { 129, 129, 14336, 128 },
        { 200, 200, 1008, 1088 },
        { 255, 130, 4096, 256 },
        { 257, 257, 2048, 512 },
        { 300, 0, 512, 64 },
        { 513, 500, 3088, 192 },
        { 576, 576, 5008, 320 },
        { 624, 624, 8192, 128 },
        { 600, 300, 333, 128 },
        /* 128 or fewer of the last 256 rows: the thread blocks of a cluster share them */
        { 384, 384, 1024, 256 },
        { 640, 640, 14336, 128 },
        { 640, 640, 1040, 4096 },
        { 610, 600, 1040, 320 },
        { 640, 512, 3088, 192 },
        { 2176, 2170, 2048, 128 },
        { 2048, 2047, 4096, 256 },
        { 3000, 1025, 4096, 128 },
        { 8191, 8191, 1024, 192 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++)
        if (tw_takes(i + 2, 3))
            silu_joined(shape[i][0], shape[i][1], shape[i][2], shape[i][3], (int)i % 2);
}

/* Any fp32 activations with 16-bit weights: only the rounding of x differs. */
static void
gemm_rounds_activations(void **state)
{
    struct mat m = { .T = 50,
        .N = 128,
        .K = 512,
        .ldy = 128,
        .group = 512,
        .kind = { FDK_F16, FDK_F32, FDK_F32 } };
    (void)state;
    random_mat(&m);
    tw_normal((float *)(uintptr_t)m.x, 50 * 512);
    float *want = run_gemm(&tw.cpu, &m, 50), *got = run_gemm(&tw.gpu, &m, 50);
    assert_true(tw_distance(got, want, 50 * 128) < 4e-3);
    free(want);
    free(got);
    free_mat(&m);
}

/* Number of lines of the only file in dir. */
static int
choices(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    char path[400] = "", line[512];
    FILE *f;
    int n = 0;
    assert_non_null(d);
    while ((e = readdir(d)) != NULL)
        if (e->d_name[0] != '.')
            snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
    closedir(d);
    f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        n++;
    if (f != NULL)
        fclose(f);
    return n;
}

/* Opens a context and chooses for up to 700 rows. The choice launches each algorithm, also one
 * from the file: y is written. */
static void
choose_in(const char *dir)
{
    char err[256];
    const struct fdk_open_args args = { .n_device = 1, .cache_dir = dir };
    const struct fdk_ops *ops = &fdk_ops_cuda;
    struct fdk_ctx *ctx;
    fdk_stream_t st;
    void *m[5];
    const int32_t live = 700;
    uint16_t y[2];
    struct fdk_gemm_args a = { .T = live,
        .N = 1024,
        .K = 512,
        .ldy = 1024,
        .w_dtype = FDK_BF16,
        .act = FDK_BF16,
        .y_dtype = FDK_BF16 };
    OK(ops->open(&args, &ctx, err, sizeof(err)));
    OK(ops->stream_new(ctx, 0, &st));
    a.scratch_bytes = ops->gemm_scratch(&a);
    const size_t bytes[5] = { 700 * 512 * 2, 1024 * 512 * 2, 700 * 1024 * 2, 4,
        a.scratch_bytes + 1 };
    for (int i = 0; i < 5; i++) {
        OK(ops->mem_alloc(ctx, 0, bytes[i], &m[i]));
        OK(ops->fill(st, m[i], i == 2 ? 0xff : 0, bytes[i]));
    }
    a.x = m[0];
    a.w = m[1];
    a.y = m[2];
    a.n = m[3];
    assert_int_equal(ops->gemm_choose(&a, st), -EINVAL);
    a.scratch = m[4];
    OK(ops->copy(st, m[3], &live, 4));
    OK(ops->gemm_choose(&a, st));
    OK(ops->copy(st, &y[0], m[2], 2));
    OK(ops->copy(st, &y[1], (char *)m[2] + bytes[2] - 2, 2));
    OK(ops->stream_sync(st));
    assert_int_equal(y[0], 0);
    assert_int_equal(y[1], 0);
    assert_int_equal(choices(dir), 5);
    for (a.T = 1; a.T <= 700; a.T += 37)
        OK(ops->gemm(&a, st));
    OK(ops->stream_sync(st));
    assert_int_equal(choices(dir), 5);
    for (int i = 0; i < 5; i++)
        ops->mem_free(ctx, 0, m[i]);
    ops->stream_free(st);
    ops->close(ctx);
}

/* One for each class of rows: 129 to 256, 384, 512, 640, and 700 for up to 768. */
static void
gemm_chooses_ahead(void **state)
{
    char dir[] = "/tmp/k_cuda_gemm.XXXXXX", cmd[64];
    (void)state;
    assert_non_null(mkdtemp(dir));
    choose_in(dir);
    choose_in(dir);
    snprintf(cmd, sizeof(cmd), "rm -r %s", dir);
    assert_int_equal(system(cmd), 0);
}

static void
gemm_arguments(void **state)
{
    static float v[64];
    const struct k_dev *d = &tw.gpu.d;
    struct fdk_gemm_args a = { .y = v,
        .x = v,
        .w = v,
        .n = (int32_t *)v,
        .T = 1,
        .N = 1,
        .K = 8,
        .ldy = 1,
        .w_dtype = FDK_U8,
        .act = FDK_BF16,
        .y_dtype = FDK_BF16 };
    (void)state;
    assert_int_equal(d->ops->gemm(&a, d->st), -ENOTSUP);
    a.w_dtype = FDK_I8;
    assert_int_equal(d->ops->gemm(&a, d->st), -EINVAL);
    a.w_dtype = FDK_BF16;
    a.y_dtype = FDK_F16;
    assert_int_equal(d->ops->gemm(&a, d->st), -ENOTSUP);
    a.y_dtype = FDK_BF16;
    a.act = FDK_F16;
    assert_int_equal(d->ops->gemm(&a, d->st), -ENOTSUP);
    a.act = FDK_BF16;
    a.ldy = 0;
    assert_int_equal(d->ops->gemm(&a, d->st), -EINVAL);
}

/* If no tensor map can be made, other kernels compute the same result. */
static void
without_tensor_maps(void **state)
{
    assert_int_equal(fdk_cuda_fail_maps(1), 0);
    gemm_against_cpu(state);
    assert_true(fdk_cuda_fail_maps(0) > 0);
    assert_string_not_equal(tw.gpu.d.ops->fell_back(tw.gpu.d.ctx, 0), "");
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemm_against_cpu),
        cmocka_unit_test(without_tensor_maps),
        cmocka_unit_test(gemm_rows_stand_alone),
        cmocka_unit_test(gemm_ignores_dead_rows),
        cmocka_unit_test(gemm_joins_silu),
        cmocka_unit_test(gemm_rounds_activations),
        cmocka_unit_test(gemm_chooses_ahead),
        cmocka_unit_test(gemm_arguments),
    };
    const struct CMUnitTest deterministic[] = {
        cmocka_unit_test(gemm_against_cpu),
        cmocka_unit_test(gemm_rows_stand_alone),
        cmocka_unit_test(gemm_ignores_dead_rows),
        cmocka_unit_test(gemm_joins_silu),
    };
    int rc = tw_open();
    if (rc != 0)
        return rc;
    if (argc > 1)
        cmocka_set_skip_filter(argv[1]);
    rc = cmocka_run_group_tests_name("k_cuda_gemm", tests, NULL, NULL);
    if (tw_open_deterministic())
        return 1;
    rc += cmocka_run_group_tests_name("k_cuda_gemm deterministic", deterministic, NULL,
        NULL);
    tw_close();
    return rc;
}
