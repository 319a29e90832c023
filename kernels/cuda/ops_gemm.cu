/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * y = x w^T: the table of kernels that compute it, and the dispatch.
 *
 * A row's sums are batch-invariant within each kernel; gemm_stream.cu, gemm_stream_mid.cu
 * and gemm_stream_wide.cu give the same bits.
 */
#include "kernels/cuda/fdk_cuda.cuh"

static int
gemm_valid(const struct fdk_gemm_args *a)
{
    if (a->T <= 0 || a->N <= 0 || a->K <= 0 || a->ldy < a->N || a->first < 0 ||
        a->y == NULL || a->x == NULL || a->w == NULL || a->n == NULL)
        return -EINVAL;
    if ((a->act != FDK_F32 && a->act != FDK_BF16) ||
        (a->y_dtype != a->act && a->y_dtype != FDK_F32) || a->w_layout != FDK_LAYOUT_ROWS)
        return -ENOTSUP;
    if (a->w_dtype == FDK_F32 || a->w_dtype == FDK_F16 || a->w_dtype == FDK_BF16)
        return 0;
    if (a->w_dtype != FDK_I8 && a->w_dtype != FDK_I4 && a->w_dtype != FDK_F8E4M3)
        return (unsigned)a->w_dtype < FDK_DTYPE__N ? -ENOTSUP : -EINVAL;
    return a->w_scale == NULL || a->w_group <= 0 || a->w_group > a->K ||
        (a->w_dtype == FDK_I4 && a->K % 2 != 0) ? -EINVAL : 0;
}

static int
lt_gemm(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st)
{
    (void)n_proc;
    return cu_lt_gemm(a, st);
}

static int
widen_fits(const struct fdk_gemm_args *a)
{
    return cu_gemm_quant_fits(a) && cu_quant_widen_fits(a);
}

#define F(type) (1u << FDK_##type)
#define QUANT   (F(I8) | F(I4) | F(F8E4M3))
#define ALL     (~0u)

enum { ANY, NO, ONLY };              /* in deterministic contexts: also, not, only */

/* A launch is computed by the first entry that supports it. If its launch() returns 1, or
 * -ENOTSUP because a tensor map could not be made, nothing was launched, and the next
 * entry that supports the launch is used. most: most rows of a launch; fits() may require
 * a least number. */
static const struct gemm_kernel {
    const char *kernels;             /* as fdk_ops.op_kernels() */
    unsigned formats;                /* of weights */
    int32_t most;
    int deterministic, sm90a;
    int (*fits)(const struct fdk_gemm_args *a); /* NULL: every shape */
    size_t (*scratch)(const struct fdk_gemm_args *a); /* NULL: none */
    int (*launch)(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st);
} table[] = {
    { "round_x? narrow_kernel", QUANT, CU_QUANT_ROWS, NO, 1, cu_gemm_quant_fits,
        cu_gemm_quant_scratch, cu_quant_narrow },
    { "round_x? quant_mid_kernel", QUANT, CU_QUANT_MID, NO, 1, cu_gemm_quant_fits,
        cu_gemm_quant_scratch, cu_quant_mid },
    { "round_x? quant_widen_kernel", QUANT, CU_QUANT_FEW, NO, 1, widen_fits,
        cu_gemm_quant_scratch, cu_quant_widen },
    { "order_x wide_kernel", QUANT, INT32_MAX, ANY, 1, cu_gemm_quant_fits,
        cu_quant_wide_scratch, cu_quant_wide },
    { "mid_kernel", F(BF16), CU_STREAM_ROWS, ANY, 1, cu_gemm_stream_mid_fits, NULL,
        cu_gemm_stream_mid },
    { "stream_kernel", F(BF16), CU_STREAM_ROWS, ANY, 1, cu_gemm_stream_fits, NULL,
        cu_gemm_stream },
    { "wide_kernel", F(BF16), INT32_MAX, ONLY, 1, cu_gemm_stream_fits, NULL,
        cu_gemm_stream_wide },
    { "narrow_kernel? - bias_kernel?", F(F16) | F(BF16), INT32_MAX, ANY, 0, cu_lt_fits,
        cu_lt_scratch, lt_gemm },
    { "tile_kernel", ALL, INT32_MAX, ANY, 0, NULL, NULL, cu_gemm_tile },
};
#define N_TABLE ((int)(sizeof(table) / sizeof(table[0])))
#define LT      (N_TABLE - 2)        /* index of cuBLASLt */

static int
gemm_takes(const struct gemm_kernel *g, const struct cu_dev *d,
    const struct fdk_gemm_args *a)
{
    const int det = d->ctx->deterministic;
    return (g->formats >> a->w_dtype & 1) && a->T <= g->most && (!g->sm90a || d->sm90a) &&
        (g->deterministic == ANY || (g->deterministic == ONLY) == (det != 0)) &&
        (g->fits == NULL || g->fits(a));
}

/* First entry from i on that supports the launch. The last one supports all. */
static int
gemm_row(const struct cu_dev *d, const struct fdk_gemm_args *a, int i)
{
    while (!gemm_takes(&table[i], d, a))
        i++;
    return i;
}

/* Most scratch of all entries that may compute the GEMM with at most a->T rows: device,
 * context and alignment of the operands are not known here. */
size_t
cu_gemm_scratch(const struct fdk_gemm_args *a)
{
    struct fdk_gemm_args b = *a;
    size_t most = 0, n;
    if (a->T <= 0 || a->K <= 0)
        return 0;
    b.x = b.w = b.w_scale = NULL;
    b.y = NULL;
    for (int i = 0; i < N_TABLE; i++) {
        const struct gemm_kernel *g = &table[i];
        if (g->scratch == NULL || !(g->formats >> a->w_dtype & 1))
            continue;
        b.T = a->T < g->most ? a->T : g->most;
        if ((g->fits == NULL || g->fits(&b)) && (n = g->scratch(&b)) > most)
            most = n;
    }
    return most;
}

const char *
cu_gemm_kernels(const struct cu_dev *d, const struct fdk_gemm_args *a)
{
    return table[gemm_row(d, a, 0)].kernels;
}

int
cu_gemm_slow(const struct cu_dev *d, const struct fdk_gemm_args *a)
{
    return gemm_row(d, a, 0) == N_TABLE - 1;
}

/* In deterministic contexts no bits depend on the number of rows. gemm_quant_widen.cu has
 * a different order of sums for up to half of CU_QUANT_FEW rows. */
int32_t
cu_gemm_class(struct fdk_ctx *ctx, int dev, const struct fdk_gemm_args *a)
{
    const struct cu_dev *d = &ctx->dev[dev];
    int i = gemm_row(d, a, 0);
    if (ctx->deterministic)
        return INT32_MAX;
    if (i == LT)
        return cu_lt_class(d, a->T);
    return table[i].most == CU_QUANT_FEW && a->T <= CU_QUANT_FEW / 2 ? CU_QUANT_FEW / 2 :
        table[i].most;
}

static int
gemm_enter(const struct fdk_gemm_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc == 0)
        rc = gemm_valid(a);
    if (rc != 0)
        return rc;
    size_t need = cu_gemm_scratch(a);
    return need > 0 && (a->scratch == NULL || (uintptr_t)a->scratch % 16 != 0 ||
        a->scratch_bytes < need) ? -EINVAL : 0;
}

int
cu_gemm(const struct fdk_gemm_args *a, fdk_stream_t st)
{
    struct cu_dev *d;
    int rc = gemm_enter(a, st);
    if (rc != 0)
        return rc;
    d = cu_stream_of(st)->dev;
    int i = gemm_row(d, a, 0);
    while ((rc = table[i].launch(a, d->n_proc, st)) == 1 || rc == -ENOTSUP) {
        if (rc == -ENOTSUP)
            __atomic_store_n(&d->fell_back, 1, __ATOMIC_RELAXED);
        i = gemm_row(d, a, i + 1);
    }
    return rc;
}

/* Only cuBLASLt has several algorithms. */
int
cu_gemm_choose(const struct fdk_gemm_args *a, fdk_stream_t st)
{
    int rc = gemm_enter(a, st);
    if (rc != 0 || !cu_lt_fits(a))
        return rc;
    const struct cu_dev *d = cu_stream_of(st)->dev;
    struct fdk_gemm_args b = *a;
    if (gemm_row(d, a, 0) != LT)
        return 0;
    /* the least number of rows that is not computed by an earlier entry */
    for (b.T = 1; gemm_row(d, &b, 0) != LT; )
        b.T = table[gemm_row(d, &b, 0)].most + 1;
    return cu_lt_choose(a, b.T, st);
}

int
cu_gemm_open(struct fdk_ctx *ctx, const char *cache_dir, char *err, size_t err_bytes)
{
    return cu_lt_open(ctx, cache_dir, err, err_bytes);
}

void
cu_gemm_close(struct fdk_ctx *ctx)
{
    cu_lt_close(ctx);
}

cudaError_t
cu_gemm_load(int sm90a)
{
    cudaError_t e = cu_gemm_tile_load();
    if (e == cudaSuccess)
        e = cu_lt_load();
    if (e == cudaSuccess && sm90a)
        e = cu_gemm_stream_load();
    if (e == cudaSuccess && sm90a)
        e = cu_gemm_quant_load();
    return e;
}
