/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * y = x w^T: the table of kernels that compute it, which is all there is of dispatch, and
 * the kernel of its last row: a plain tile kernel in fp32 (fp32 weights, shapes and devices
 * that the others do not take) with sums in ascending order of k.
 *
 * A row's sums are batch-invariant within each kernel; gemm_stream.cu and its two others
 * make the same bits.
 */
#include "kernels/cuda/fdk_cuda.cuh"

#define TILE_K 32

/* ---- the tile kernel ----------------------------------------------------- */

/* One weight as fp32; quantized ones times their scale, rounded to fp32. */
template<int T>
static __device__ __forceinline__ float
weight_at(const struct fdk_gemm_args &a, int n, int k)
{
    size_t row = (size_t)n * (size_t)a.K;
    if (T == FDK_F32)
        return ((const float *)a.w)[row + (size_t)k];
    if (T == FDK_F16)
        return __half2float(((const __half *)a.w)[row + (size_t)k]);
    if (T == FDK_BF16)
        return __bfloat162float(((const __nv_bfloat16 *)a.w)[row + (size_t)k]);
    int groups = (a.K - 1) / a.w_group + 1;
    float q;
    if (T == FDK_F8E4M3) {
        q = __half2float(__half(__nv_cvt_fp8_to_halfraw(
            ((const __nv_fp8_storage_t *)a.w)[row + (size_t)k], __NV_E4M3)));
    } else if (T == FDK_I8) {
        q = ((const int8_t *)a.w)[row + (size_t)k];
    } else {
        int byte = ((const uint8_t *)a.w)[row / 2 + (size_t)(k / 2)];
        q = (float)(((k % 2 != 0 ? byte >> 4 : byte & 15) ^ 8) - 8);
    }
    return __fmul_rn(q, a.w_scale[(size_t)n * (size_t)groups + (size_t)(k / a.w_group)]);
}

static __device__ __forceinline__ float
x_at(const struct fdk_gemm_args &a, int m, int k)
{
    size_t i = (size_t)m * (size_t)a.K + (size_t)k;
    return a.act == FDK_F32 ? ((const float *)a.x)[i] :
        __bfloat162float(((const __nv_bfloat16 *)a.x)[i]);
}

static __device__ __forceinline__ void
put_y(const struct fdk_gemm_args &a, int m, int n, float y)
{
    size_t i = (size_t)(m - a.first) * (size_t)a.ldy + (size_t)n;
    y = a.bias != NULL ? y + a.bias[n] : y;
    if (a.y_dtype == FDK_F32)
        ((float *)a.y)[i] = y;
    else
        ((__nv_bfloat16 *)a.y)[i] = __float2bfloat16_rn(y);
}

/* 256 threads, TM rows by TN columns; a thread's outputs are 16 apart. */
template<int T, int TM, int TN>
static __global__ void __launch_bounds__(256)
tile_kernel(struct fdk_gemm_args a)
{
    __shared__ float xs[TM][TILE_K + 1], ws[TN][TILE_K + 1];
    const int RM = TM / 16, RN = TN / 16;
    int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    cu_dep_next();
    cu_dep_wait();
    int m0 = a.first + (int)blockIdx.y * TM, n0 = (int)blockIdx.x * TN;
    int end = a.first + a.T < *a.n ? a.first + a.T : *a.n;
    float acc[RM][RN] = {};
    if (m0 >= end)
        return;
    for (int k0 = 0; k0 < a.K; k0 += TILE_K) {
        for (int i = (int)threadIdx.x; i < TM * TILE_K; i += 256) {
            int m = m0 + i / TILE_K, k = k0 + i % TILE_K;
            xs[i / TILE_K][i % TILE_K] = m < end && k < a.K ? x_at(a, m, k) : 0;
        }
        for (int i = (int)threadIdx.x; i < TN * TILE_K; i += 256) {
            int n = n0 + i / TILE_K, k = k0 + i % TILE_K;
            ws[i / TILE_K][i % TILE_K] = n < a.N && k < a.K ? weight_at<T>(a, n, k) : 0;
        }
        __syncthreads();
        for (int k = 0; k < TILE_K; k++)
            for (int i = 0; i < RM; i++)
                for (int j = 0; j < RN; j++)
                    acc[i][j] = fmaf(xs[ty + 16 * i][k], ws[tx + 16 * j][k], acc[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < RM; i++)
        for (int j = 0; j < RN; j++) {
            int m = m0 + ty + 16 * i, n = n0 + tx + 16 * j;
            if (m < end && n < a.N)
                put_y(a, m, n, acc[i][j]);
        }
}

template<int T>
static void
tile_launch(const struct fdk_gemm_args *a, cudaStream_t s)
{
    if (a->T <= 16)
        cu_chain(tile_kernel<T, 16, 16>, dim3(((unsigned)a->N + 15) / 16, 1), 256, 0, s, *a);
    else
        cu_chain(tile_kernel<T, 64, 64>, dim3(((unsigned)a->N + 63) / 64,
            ((unsigned)a->T + 63) / 64), 256, 0, s, *a);
}

static int
tile_gemm(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st)
{
    (void)n_proc;
    cudaStream_t s = cu_raw(st);
    if (a->w_dtype == FDK_F32)
        tile_launch<FDK_F32>(a, s);
    else if (a->w_dtype == FDK_F16)
        tile_launch<FDK_F16>(a, s);
    else if (a->w_dtype == FDK_BF16)
        tile_launch<FDK_BF16>(a, s);
    else if (a->w_dtype == FDK_I8)
        tile_launch<FDK_I8>(a, s);
    else if (a->w_dtype == FDK_I4)
        tile_launch<FDK_I4>(a, s);
    else
        tile_launch<FDK_F8E4M3>(a, s);
    return cu_launched(st, "gemm");
}

/* ---- the operation ------------------------------------------------------- */

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

enum { ANY, NO, ONLY };              /* contexts that are deterministic */

/* The first row that takes a launch computes it; where its launch() is 1, the next one that
 * does, and so where that is -ENOTSUP: a tensor map could not be made, and nothing was
 * launched. rows: of a launch, most at most, fits() may have a least number. */
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
    { "tile_kernel", ALL, INT32_MAX, ANY, 0, NULL, NULL, tile_gemm },
};
#define N_TABLE ((int)(sizeof(table) / sizeof(table[0])))
#define LT      (N_TABLE - 2)        /* the row of cuBLASLt */

static int
gemm_takes(const struct gemm_kernel *g, const struct cu_dev *d,
    const struct fdk_gemm_args *a)
{
    const int det = d->ctx->deterministic;
    return (g->formats >> a->w_dtype & 1) && a->T <= g->most && (!g->sm90a || d->sm90a) &&
        (g->deterministic == ANY || (g->deterministic == ONLY) == (det != 0)) &&
        (g->fits == NULL || g->fits(a));
}

/* From row i of the table on. The last takes all. */
static int
gemm_row(const struct cu_dev *d, const struct fdk_gemm_args *a, int i)
{
    while (!gemm_takes(&table[i], d, a))
        i++;
    return i;
}

/* Of every row that may take it with as many rows or less: device and context are not
 * known, nor where operands lie. */
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

/* In deterministic contexts no bit depends on the number of rows. Of quantized weights, up to
 * half of CU_QUANT_FEW rows have sums of their own. */
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

/* Only cuBLASLt leaves a choice. */
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
    /* the least number of rows that the kernels before it leave */
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
    static const void *const k[] = {
        (const void *)tile_kernel<FDK_F32, 16, 16>, (const void *)tile_kernel<FDK_F32, 64, 64>,
        (const void *)tile_kernel<FDK_F16, 16, 16>, (const void *)tile_kernel<FDK_F16, 64, 64>,
        (const void *)tile_kernel<FDK_BF16, 16, 16>,
        (const void *)tile_kernel<FDK_BF16, 64, 64>,
        (const void *)tile_kernel<FDK_I8, 16, 16>, (const void *)tile_kernel<FDK_I8, 64, 64>,
        (const void *)tile_kernel<FDK_I4, 16, 16>, (const void *)tile_kernel<FDK_I4, 64, 64>,
        (const void *)tile_kernel<FDK_F8E4M3, 16, 16>,
        (const void *)tile_kernel<FDK_F8E4M3, 64, 64>,
    };
    cudaError_t e = cu_load(k, sizeof(k) / sizeof(k[0]));
    if (e == cudaSuccess)
        e = cu_lt_load();
    if (e == cudaSuccess && sm90a)
        e = cu_gemm_stream_load();
    if (e == cudaSuccess && sm90a)
        e = cu_gemm_quant_load();
    return e;
}
