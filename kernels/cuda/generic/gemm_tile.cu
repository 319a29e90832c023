/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * y = x w^T: a plain tile kernel in fp32, for weights (fp32), shapes and devices that the
 * other kernels do not support. Sums are in ascending order of k, and batch-invariant.
 */
#include "kernels/cuda/fdk_cuda.cuh"

#define TILE_K 32

/* One weight as fp32; a quantized weight times its scale, rounded to fp32. */
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

int
cu_gemm_tile(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st)
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

cudaError_t
cu_gemm_tile_load(void)
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
    return cu_load(k, sizeof(k) / sizeof(k[0]));
}
