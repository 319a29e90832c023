/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses of a token's keys and values, and conversion of a float to the stored type.
 */
#ifndef FDD_KERNELS_CUDA_GENERIC_KV_CUH
#define FDD_KERNELS_CUDA_GENERIC_KV_CUH

#include "kernels/cuda/fdk_cuda.cuh"

#include <math.h>

static __device__ __forceinline__ char *
kv_layer(const struct fdk_kv &kv, int block, int layer)
{
    return (char *)kv.base + (uint64_t)block * kv.block_bytes +
        (uint64_t)layer * kv.layer_bytes;
}

/* FDK_I8: the scale of one head's vector at one token; which: 0 K, 1 V. */
static __device__ __forceinline__ float *
kv_token_scale(const struct fdk_kv &kv, char *layer, int which, int head, int off)
{
    return (float *)(layer + (which ? kv.v_scale_off : kv.k_scale_off)) +
        (size_t)head * (size_t)kv.block_size + (size_t)off;
}

/* FDK_F8E4M3: the scale of a head in a layer. */
static __device__ __forceinline__ float
kv_head_scale(const struct fdk_kv &kv, int layer, int which, int head)
{
    if (kv.scale == NULL)
        return 1;
    return kv.scale[((size_t)layer * 2 + (size_t)which) * (size_t)kv.n_kv_head +
        (size_t)head];
}

template<typename E>
static __device__ __forceinline__ E kv_narrow(float x, float scale);

template<>
__device__ __forceinline__ float
kv_narrow<float>(float x, float scale)
{
    (void)scale;
    return x;
}

template<>
__device__ __forceinline__ __nv_bfloat16
kv_narrow<__nv_bfloat16>(float x, float scale)
{
    (void)scale;
    return __float2bfloat16_rn(x);
}

template<>
__device__ __forceinline__ int8_t
kv_narrow<int8_t>(float x, float scale)
{
    if (!(scale > 0 && scale < INFINITY))
        return 0;
    return (int8_t)fminf(fmaxf(rintf(__fdiv_rn(x, scale)), -127.0f), 127.0f);
}

/* Saturates at the largest number of the type. */
template<>
__device__ __forceinline__ __nv_fp8_e4m3
kv_narrow<__nv_fp8_e4m3>(float x, float scale)
{
    __nv_fp8_e4m3 r;
    r.__x = __nv_cvt_float_to_fp8(__fdiv_rn(x, scale), __NV_SATFINITE, __NV_E4M3);
    return r;
}

static __device__ __forceinline__ float
cu_widen(int8_t x)
{
    return (float)x;
}

static __device__ __forceinline__ float
cu_widen(__nv_fp8_e4m3 x)
{
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.__x, __NV_E4M3)));
}

#endif
