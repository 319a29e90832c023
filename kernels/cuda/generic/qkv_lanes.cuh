/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Query and key norms, rotation and the KV write of a head's vector, which a group of
 * lanes holds, eight numbers per lane.
 */
#ifndef FDD_KERNELS_CUDA_GENERIC_QKV_LANES_CUH
#define FDD_KERNELS_CUDA_GENERIC_QKV_LANES_CUH

#include "kernels/cuda/generic/kv.cuh"
#include "kernels/cuda/generic/vec8.cuh"

/* Address of the head's vector of a token's slot: which = 0 for keys, 1 for values. */
template<typename E>
static __device__ __forceinline__ E *
kv_at(const struct fdk_qkv_args &a, int slot, int head, int which, float **ret_scale)
{
    const struct fdk_kv &kv = a.kv;
    int off = slot % kv.block_size;
    char *layer = kv_layer(kv, slot / kv.block_size, a.layer);
    *ret_scale = kv_token_scale(kv, layer, which, head, off);
    return (E *)(layer + (which ? kv.v_bytes : 0)) +
        ((size_t)head * (size_t)kv.block_size + (size_t)off) * (size_t)a.D;
}

/* ---- a group of lanes per head ------------------------------------------- */

struct lanes {
    int n;                       /* lanes of a group: 1, 2, 4 .. 32 */
    int at;                      /* this one's index in it */
    int used;                    /* D / 8: the others hold zeros */
    int half;                    /* rot / 16 */
};

/* Sum over the lanes of the group, returned in each. */
static __device__ __forceinline__ float
lanes_sum(const struct lanes &g, float x)
{
    for (int i = g.n / 2; i > 0; i /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}

/* Compares as integers, so that NaN is largest and makes the scale NaN. */
static __device__ __forceinline__ float
lanes_largest(const struct lanes &g, const float v[8])
{
    uint32_t m = 0;
#pragma unroll
    for (int k = 0; k < 8; k++)
        m = max(m, __float_as_uint(v[k]) & 0x7fffffffu);
    for (int i = g.n / 2; i > 0; i /= 2)
        m = max(m, __shfl_xor_sync(0xffffffffu, m, i));
    return __uint_as_float(m);
}

/* norm: the head's weights, or NULL even if other groups of the warp have a norm. */
static __device__ __forceinline__ void
lanes_norm(const struct lanes &g, const struct fdk_qkv_args &a, const float *norm,
    float v[8])
{
    float sum = 0, w[8];
#pragma unroll
    for (int k = 0; k < 8; k++)
        sum = fmaf(v[k], v[k], sum);
    float inv = 1.0f / sqrtf(lanes_sum(g, sum) / (float)a.D + a.eps);
    if (norm == NULL || g.at >= g.used)
        return;
    cu_widen8(cu_load8(norm, (size_t)g.at), w);
#pragma unroll
    for (int k = 0; k < 8; k++)
        v[k] = w[k] * (v[k] * inv);
}

/* The two halves of the first rot numbers are the real and imaginary parts: the other
 * part of a pair is in the lane g.half away. turn: 0 for a value, which is not
 * rotated. */
static __device__ __forceinline__ void
lanes_rotate(const struct lanes &g, const struct cu_raw8<float> cs[2], int turn,
    float v[8])
{
    int real = g.at < g.half, rotated = g.at < 2 * g.half;
    int other = !rotated ? g.at : real ? g.at + g.half : g.at - g.half;
    float c[8], s[8];
    cu_widen8(cs[0], c);
    cu_widen8(cs[1], s);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        float o = __shfl_sync(0xffffffffu, v[k], other, g.n);
        float r = __fmul_rn(o, s[k]);
        if (turn && rotated)
            v[k] = fmaf(v[k], c[k], real ? -r : r);
    }
}

/* cos and sin of the pairs of which this lane holds a part. */
static __device__ __forceinline__ void
lanes_cs(const struct lanes &g, const struct fdk_qkv_args &a, int t,
    struct cu_raw8<float> ret[2])
{
    const float *cs = a.cs + (size_t)t * (size_t)a.rot;
    int i = g.at < g.half ? g.at : g.at - g.half;
    ret[0] = ret[1] = cu_zero8<float>();
    if (g.at < 2 * g.half) {
        ret[0] = cu_load8(cs, (size_t)i);
        ret[1] = cu_load8(cs, (size_t)(g.half + i));
    }
}

static __device__ __forceinline__ void
kv_put8(float *p, int i, const float v[8], float scale)
{
    (void)scale;
    cu_store8(p, (size_t)i, v);
}

static __device__ __forceinline__ void
kv_put8(__nv_bfloat16 *p, int i, const float v[8], float scale)
{
    (void)scale;
    cu_store8(p, (size_t)i, v);
}

template<typename E>
static __device__ __forceinline__ void
kv_put8(E *p, int i, const float v[8], float scale)
{
    __align__(8) E e[8];
    static_assert(sizeof(e) == 8, "bytes");
#pragma unroll
    for (int k = 0; k < 8; k++)
        e[k] = kv_narrow<E>(v[k], scale);
    ((uint2 *)p)[i] = *reinterpret_cast<const uint2 *>(e);
}

template<typename E>
static __device__ __forceinline__ void
lanes_kv(const struct lanes &g, const struct fdk_qkv_args &a, const float v[8], int slot,
    int head, int which, int write)
{
    float scale = 1, *token_scale;
    E *dst = kv_at<E>(a, slot, head, which, &token_scale);
    if (sizeof(E) == 1 && a.kv.dtype == FDK_I8) {
        scale = lanes_largest(g, v) / 127.0f;
        if (write && g.at == 0)
            *token_scale = scale;
    } else if (sizeof(E) == 1) {
        scale = kv_head_scale(a.kv, a.layer, which, head);
    }
    if (write)
        kv_put8(dst, g.at, v, scale);
}

/* Computes one head per group; called by all lanes of the warp: one group may have a
 * query while another has a key. dead: a group without a head. */
template<typename A, typename E>
static __device__ __forceinline__ void
lanes_head(const struct lanes &g, const struct fdk_qkv_args &a, A *row, int h, int slot,
    const struct cu_raw8<A> &raw, const struct cu_raw8<float> cs[2], int dead)
{
    float v[8];
    int value = h >= a.H + a.K, write = !dead && g.at < g.used;
    cu_widen8(raw, v);
    if (a.q_norm != NULL || a.k_norm != NULL)
        lanes_norm(g, a, h < a.H ? a.q_norm : value ? NULL : a.k_norm, v);
    lanes_rotate(g, cs, !value, v);
    if (write && h < a.H)
        cu_store8(row + (size_t)h * (size_t)a.D, (size_t)g.at, v);
    if (slot < 0 || !__any_sync(0xffffffffu, h >= a.H))
        return;
    int head = dead || h < a.H ? 0 : value ? h - a.H - a.K : h - a.H;
    lanes_kv<E>(g, a, v, slot, head, value, write && h >= a.H);
}

#endif
