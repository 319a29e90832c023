/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors of eight numbers, in 16-byte words, for operations on rows of
 * activations of either type: loaded as stored, converted to fp32 where
 * they are used, rounded to nearest when they are stored.
 */
#ifndef FDD_KERNELS_CUDA_GENERIC_VEC8_CUH
#define FDD_KERNELS_CUDA_GENERIC_VEC8_CUH

#include "kernels/cuda/fdk_cuda.cuh"

/* Eight numbers of type A as stored in memory. */
template<typename A>
struct cu_raw8 {
    uint4 word[sizeof(A) / 2];
};

/* Vector i of row p, which is aligned to 16 bytes. */
template<typename A>
static __device__ __forceinline__ struct cu_raw8<A>
cu_load8(const A *p, size_t i)
{
    struct cu_raw8<A> r;
#pragma unroll
    for (size_t k = 0; k < sizeof(A) / 2; k++)
        r.word[k] = ((const uint4 *)p)[i * (sizeof(A) / 2) + k];
    return r;
}

template<typename A>
static __device__ __forceinline__ struct cu_raw8<A>
cu_zero8(void)
{
    struct cu_raw8<A> r = {};
    return r;
}

template<typename A>
static __device__ __forceinline__ void
cu_widen8(const struct cu_raw8<A> &r, float v[8])
{
    const A *e = reinterpret_cast<const A *>(&r);
#pragma unroll
    for (int k = 0; k < 8; k++)
        v[k] = cu_widen(e[k]);
}

static __device__ __forceinline__ void
cu_store8(float *p, size_t i, const float v[8])
{
    ((float4 *)p)[2 * i] = make_float4(v[0], v[1], v[2], v[3]);
    ((float4 *)p)[2 * i + 1] = make_float4(v[4], v[5], v[6], v[7]);
}

static __device__ __forceinline__ void
cu_store8(__nv_bfloat16 *p, size_t i, const float v[8])
{
    __nv_bfloat162 h[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
        h[k] = __floats2bfloat162_rn(v[2 * k], v[2 * k + 1]);
    ((uint4 *)p)[i] = *reinterpret_cast<const uint4 *>(h);
}

/* v += add; returns the sum of the squares of v. */
template<typename A>
static __device__ __forceinline__ float
cu_norm_add8(float v[8], const struct cu_raw8<A> &add)
{
    float plus[8], sum = 0;
    cu_widen8(add, plus);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        v[k] += plus[k];
        sum = fmaf(v[k], v[k], sum);
    }
    return sum;
}

/* y = w (x inv) for vector i of the row. */
template<typename A>
static __device__ __forceinline__ void
cu_norm_out8(A *y, const struct cu_raw8<float> &w, size_t i, float v[8], float inv)
{
    float s[8];
    cu_widen8(w, s);
#pragma unroll
    for (int k = 0; k < 8; k++)
        v[k] = s[k] * (v[k] * inv);
    cu_store8(y, i, v);
}

static __device__ __forceinline__ void
cu_round(float *p, float x)
{
    *p = x;
}

static __device__ __forceinline__ void
cu_round(__nv_bfloat16 *p, float x)
{
    *p = __float2bfloat16_rn(x);
}

/* Prefetch constants into L1, before cu_dep_wait(). */
static __device__ __forceinline__ void
cu_prefetch(const void *p)
{
    asm volatile("prefetch.global.L1 [%0];" :: "l"(p));
}

/* Returns 0, or a launcher's error for an activation type without a kernel. */
static inline int
cu_act_valid(enum fdk_dtype act)
{
    if (act == FDK_F32 || act == FDK_BF16)
        return 0;
    return (unsigned)act < FDK_DTYPE__N ? -ENOTSUP : -EINVAL;
}

/* Is it the norm that the vectorized kernels and the megakernel support? */
static inline int
cu_norm_usual(const struct fdk_rmsnorm_args *a)
{
    return a->norm == FDK_NORM_PRE && a->offset == 0 &&
        (a->add_scale == 0 || a->add_scale == 1);
}

/* Are all four addresses aligned to 16 bytes? NULL counts as aligned. */
static inline int
cu_aligned(const void *a, const void *b, const void *c, const void *d)
{
    return (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d) & 15) == 0;
}

#endif
