/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* GEMMs, alone and fused with silu_mul. */
#include "config.h"

#include "tests/parity/golden_ops.h"

static const int rows[] = { 1, 2, 8, 33, 64, 128, 257, 640, 2048 };

struct shape {
    const char *name;
    int N, K;
};
static const struct shape shapes[] = {
    { "tiny.qkv", 512, 256 },
    { "tiny.down", 256, 704 },
    { "1b.qkv", 3072, 2048 },
    { "1b.o", 2048, 2048 },
    { "1b.gate_up", 16384, 2048 },
    { "1b.down", 2048, 8192 },
    { "8b.qkv", 6144, 4096 },
    { "8b.o", 4096, 4096 },
    { "8b.gate_up", 28672, 4096 },
    { "8b.down", 4096, 14336 },
};

struct kind { /* type of weights, and their groups; 0: one scale for a row */
    enum fdk_dtype t;
    int group;
};
static const struct kind kinds[] = { { FDK_BF16, 0 }, { FDK_F16, 0 }, { FDK_F32, 0 },
    { FDK_I8, 0 }, { FDK_I8, 128 }, { FDK_I4, 128 }, { FDK_I4, 32 }, { FDK_F8E4M3, 0 },
    { FDK_F8E4M3, 128 } };

struct weight {
    const void *w;
    const float *scale;
};

static int
quantized(enum fdk_dtype t)
{
    return t == FDK_I8 || t == FDK_I4 || t == FDK_F8E4M3;
}

/* Weights of a shape are the same for all numbers of rows, so
 * they are kept between cases. */
static void
weight_new(struct weight *w, const struct shape *s, const struct kind *k)
{
    size_t n = (size_t)s->N * (size_t)s->K;
    int group = k->group > 0 ? k->group : s->K;
    size_t groups = (size_t)s->N * (size_t)((s->K - 1) / group + 1);
    float *scale = malloc(groups * 4);

    *w = (struct weight){ .w = go_numbers(n, k->t, 0.02f) };
    for (size_t i = 0; i < groups && scale != NULL; i++)
        scale[i] = 0.0002f * (1 + 0.01f * (float)go_int(0, 99));
    if (quantized(k->t))
        w->scale = go_copy(scale, groups * 4);
    free(scale);
    g.n_buf = 0; /* the weights do not belong to the case */
}

static void
weight_free(struct weight *w)
{
    g.ops->mem_free(g.ctx, 0, (void *)(uintptr_t)w->w);
    if (w->scale != NULL)
        g.ops->mem_free(g.ctx, 0, (void *)(uintptr_t)w->scale);
}

static struct fdk_gemm_args
arguments(const struct shape *s, const struct kind *k, const struct weight *w, int T,
    enum fdk_dtype y, int bias)
{
    const int32_t live = T;
    enum fdk_dtype act = k->t == FDK_F32 || k->t == FDK_F16 ? FDK_F32 : g.act;
    struct fdk_gemm_args a = {
        .y = go_new((size_t)T * (size_t)s->N * fdk_dtype_bytes(y)),
        .x = go_numbers((size_t)T * (size_t)s->K, act, 1),
        .w = w->w,
        .w_scale = w->scale,
        .w_group = k->group > 0 ? k->group : s->K,
        .bias = bias ? go_numbers((size_t)s->N, FDK_F32, 1) : NULL,
        .n = go_copy(&live, 4),
        .T = T,
        .N = s->N,
        .K = s->K,
        .ldy = s->N,
        .w_dtype = k->t,
        .act = act,
        .y_dtype = y,
    };

    a.scratch_bytes = g.ops->gemm_scratch(&a);
    if (a.scratch_bytes > 0)
        a.scratch = go_new(a.scratch_bytes);
    return a;
}

static int
begin(const char *op, const struct shape *s, const struct kind *k, int T, const char *more)
{
    return go_begin((double)T * s->N * s->K, "%s %s N=%d K=%d %s group=%d T=%d%s", op,
        s->name, s->N, s->K, fdk_dtype_name(k->t), k->group, T, more);
}

static void
gemm(const struct shape *s, const struct kind *k, const struct weight *w, int T, int bias,
    int wide)
{
    enum fdk_dtype y = wide || k->t == FDK_F32 || k->t == FDK_F16 ? FDK_F32 : g.act;

    if (!begin("gemm", s, k, T, bias ? " bias" : wide ? " y=f32" : ""))
        return;
    struct fdk_gemm_args a = arguments(s, k, w, T, y, bias);
    go_end1(g.ops->gemm(&a, g.st), a.y, (size_t)T * (size_t)s->N * fdk_dtype_bytes(y));
}

/* The product itself need not be stored. */
static void
gemm_silu(const struct shape *s, const struct kind *k, const struct weight *w, int T)
{
    size_t bytes = (size_t)T * (size_t)(s->N / 2) * fdk_dtype_bytes(g.act);
    int rc;

    if (!begin("gemm+silu_mul", s, k, T, ""))
        return;
    struct fdk_gemm_args a = arguments(s, k, w, T, g.act, 0);
    struct fdk_silu_mul_args m = { .y = go_new(bytes),
        .gu = a.y,
        .n = a.n,
        .T = T,
        .F = s->N / 2,
        .act = g.act };
    rc = g.ops->gemm(&a, g.st);
    if (rc == 0)
        rc = g.ops->silu_mul(&m, g.st);
    go_end1(rc, m.y, bytes);
}

/* Returns whether a case with these weights can be run. */
static int
wanted(const struct shape *s)
{
    return (double)s->N * s->K <= g.most &&
        (strncmp(g.only, "gemm", 4) == 0 || g.only[0] == '\0');
}

static void
shape_cases(const struct shape *s, const struct kind *k)
{
    struct weight w;
    int gate_up = strstr(s->name, "gate_up") != NULL;

    if (!wanted(s))
        return;
    begin("weights", s, k, 0, "");
    weight_new(&w, s, k);
    for (size_t i = 0; i < GO_N(rows); i++) {
        gemm(s, k, &w, rows[i], 0, 0);
        if (i % 3 == 0)
            gemm(s, k, &w, rows[i], 0, 1);
        if (strstr(s->name, "qkv") != NULL)
            gemm(s, k, &w, rows[i], 1, 0);
        if (gate_up && k->t != FDK_F32 && k->t != FDK_F16)
            gemm_silu(s, k, &w, rows[i]);
    }
    weight_free(&w);
}

void
go_gemm_cases(void)
{
    static const struct shape head = { "8b.head", 128256, 4096 };
    static const struct kind bf16 = { FDK_BF16, 0 };
    struct weight w;

    for (size_t k = 0; k < GO_N(kinds); k++)
        for (size_t i = 0; i < GO_N(shapes); i++)
            if (kinds[k].t != FDK_F32 || strncmp(shapes[i].name, "8b", 2) != 0)
                shape_cases(&shapes[i], &kinds[k]);
    if (!wanted(&head))
        return;
    begin("weights", &head, &bf16, 0, "");
    weight_new(&w, &head, &bf16);
    for (int T = 1; T <= 256; T *= 4)
        gemm(&head, &bf16, &w, T, 0, 1);
    weight_free(&w);
}
