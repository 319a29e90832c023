/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * y = x w^T: which kernel computes it.
 *
 *   gemm_stream.cu   bf16 weights and activations, up to CU_STREAM_ROWS rows; in a
 *                    deterministic context any number (gemm_stream_wide.cu)
 *   gemm_lt.cu       16-bit weights through cuBLASLt
 *   gemm_quant.cu    int8, int4 and e4m3 weights
 *   here             a plain tile kernel in fp32 for all the rest (fp32 weights, shapes
 *                    and devices that the others do not take): sums in ascending
 *                    order of k
 *
 * A row's sums are batch-invariant within each of
 * these; between gemm_stream.cu and gemm_lt.cu, that is between CU_STREAM_ROWS rows
 * and more, last bits may differ, unless the context was opened deterministic.
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
tile_gemm(const struct fdk_gemm_args *a, fdk_stream_t st)
{
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
        (a->y_dtype != a->act && a->y_dtype != FDK_F32))
        return -ENOTSUP;
    if (a->w_dtype == FDK_F32 || a->w_dtype == FDK_F16 || a->w_dtype == FDK_BF16)
        return 0;
    if (a->w_dtype != FDK_I8 && a->w_dtype != FDK_I4 && a->w_dtype != FDK_F8E4M3)
        return (unsigned)a->w_dtype < FDK_DTYPE__N ? -ENOTSUP : -EINVAL;
    return a->w_scale == NULL || a->w_group <= 0 || a->w_group > a->K ||
        (a->w_dtype == FDK_I4 && a->K % 2 != 0) ? -EINVAL : 0;
}

/* Of whichever kernel may take it: what is not known here is the device, and whether
 * the context is deterministic. */
size_t
cu_gemm_scratch(const struct fdk_gemm_args *a)
{
    size_t most = 0, n;
    if (a->T <= 0 || a->K <= 0)
        return 0;
    if (cu_gemm_quant_fits(a))
        return cu_gemm_quant_scratch(a);
    if (cu_lt_fits(a))
        most = cu_lt_scratch(a);
    if (cu_gemm_stream_fits(a) && (n = cu_gemm_stream_scratch(a)) > most)
        most = n;
    return most;
}

int
cu_gemm_launch(const struct fdk_gemm_args *a, fdk_stream_t st)
{
    const struct cu_dev *d = cu_stream_of(st)->dev;
    if (d->sm90a && cu_gemm_quant_fits(a))
        return cu_gemm_quant(a, d->n_proc, d->ctx->deterministic, st);
    if (d->sm90a && cu_gemm_stream_fits(a) &&
        (a->T <= CU_STREAM_ROWS || d->ctx->deterministic))
        return cu_gemm_stream(a, d->n_proc, st);
    int rc = cu_lt_fits(a) ? cu_lt_gemm(a, st) : 1;
    return rc == 1 ? tile_gemm(a, st) : rc;
}

static int
gemm_enter(const struct fdk_gemm_args *a, fdk_stream_t st)
{
    int rc = cu_op_enter(st);
    if (rc == 0)
        rc = gemm_valid(a);
    if (rc != 0)
        return rc;
    size_t need = cu_gemm_scratch(a);
    return need > 0 && (a->scratch == NULL || a->scratch_bytes < need) ? -EINVAL : 0;
}

int
cu_gemm(const struct fdk_gemm_args *a, fdk_stream_t st)
{
    int rc = gemm_enter(a, st);
    if (rc != 0)
        return rc;
    rc = cu_mega_gemm(a, st);
    return rc != 0 ? cu_taken(rc) : cu_gemm_launch(a, st);
}

/* Only cuBLASLt leaves a choice. */
int
cu_gemm_choose(const struct fdk_gemm_args *a, fdk_stream_t st)
{
    int rc = gemm_enter(a, st);
    if (rc != 0 || !cu_lt_fits(a))
        return rc;
    const struct cu_dev *d = cu_stream_of(st)->dev;
    if (!d->sm90a || !cu_gemm_stream_fits(a))
        return cu_lt_choose(a, 1, st);
    return d->ctx->deterministic ? 0 : cu_lt_choose(a, CU_STREAM_ROWS + 1, st);
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
