/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary tables, and query and key norms, rotation and the KV write. A group of
 * lanes has a head's vector, eight numbers per lane; for other head dimensions
 * a warp has a head, with its vector in shared memory.
 */
#include "kernels/cuda/generic/qkv_lanes.cuh"

#define QKV_WARPS   8
#define QKV_THREADS 128
#define QKV_ALL_THREADS 256
/* With QKV_TOKENS tokens or more, a group of lanes computes QKV_HEADS heads of a token
 * with the same cos and sin; two with QKV_SOME or more. */
#define QKV_TOKENS  264
#define QKV_HEADS   6
#define QKV_SOME    192

int
cu_kv_valid(const struct fdk_kv *kv, int T, int H, int K, int D, int layer)
{
    if (T <= 0 || H <= 0 || K <= 0 || D <= 0 || H % K != 0 || kv->base == NULL ||
        kv->block_size <= 0 || kv->n_kv_head != K || kv->head_dim != D || layer < 0 ||
        kv->n_own < 0 || kv->n_own > FDK_MAX_RANKS || kv->own < 0 ||
        (kv->own != 0 && kv->own >= kv->n_own))
        return -EINVAL;
    if (D > CU_MAX_HEAD_DIM)
        return -ENOTSUP;
    if (kv->dtype != FDK_F32 && kv->dtype != FDK_BF16 && kv->dtype != FDK_I8 &&
        kv->dtype != FDK_F8E4M3)
        return (unsigned)kv->dtype < FDK_DTYPE__N ? -ENOTSUP : -EINVAL;
    uint64_t tokens = (uint64_t)K * (uint64_t)kv->block_size;
    uint64_t half = tokens * (uint64_t)D * fdk_dtype_bytes(kv->dtype);
    if (kv->v_bytes < half || kv->layer_bytes < kv->v_bytes + half ||
        (uint64_t)layer >= kv->block_bytes / kv->layer_bytes)
        return -EINVAL;
    /* Vectors that are multiples of 16 bytes are read 16 bytes at a time. */
    if ((uint64_t)D * fdk_dtype_bytes(kv->dtype) % 16 == 0 &&
        ((uintptr_t)kv->base | kv->block_bytes | kv->layer_bytes | kv->v_bytes) % 16 != 0)
        return -ENOTSUP;
    if (kv->dtype == FDK_I8 && (kv->k_scale_off % 4 != 0 || kv->v_scale_off % 4 != 0 ||
        kv->k_scale_off + 4 * tokens > kv->layer_bytes ||
        kv->v_scale_off + 4 * tokens > kv->layer_bytes))
        return -EINVAL;
    return 0;
}

static __global__ void
rope_table_kernel(struct fdk_rope_table_args a, struct fdk_batch b)
{
    int t = (int)blockIdx.x, half = a.rot / 2;
    cu_dep_next();
    cu_dep_wait();
    if (t >= cu_clip(b.n_tok, a.T))
        return;
    float *cs = a.cs + (size_t)t * (size_t)a.rot;
    for (int i = (int)threadIdx.x; i < half; i += (int)blockDim.x) {
        float sin, cos;
        sincosf(__fmul_rn((float)b.pos[t], a.inv_freq[i]), &sin, &cos);
        cs[i] = cos * a.scale;
        cs[half + i] = sin * a.scale;
    }
}

/* Frequencies by the longest length of the token's sequence. */
static __global__ void
rope_len_kernel(struct fdk_rope_table_args a, struct fdk_batch b)
{
    int t = (int)blockIdx.x, half = a.rot / 2;
    cu_dep_next();
    cu_dep_wait();
    if (t >= cu_clip(b.n_tok, a.T))
        return;
    float *cs = a.cs + (size_t)t * (size_t)a.rot;
    const int n = a.state[b.state[b.row[t]]].max_len, beyond = n > a.long_from;
    const float *freq = a.inv_freq + (beyond && a.len == FDK_ROPE_LONG ? half : 0);
    const float m = a.ntk_factor, theta = a.ntk_theta *
        powf(m * (float)n / (float)a.long_from - (m - 1), (float)a.rot / (float)(a.rot - 2));
    for (int i = (int)threadIdx.x; i < half; i += (int)blockDim.x) {
        float sin, cos, f = freq[i];
        if (beyond && a.len == FDK_ROPE_NTK)
            f = 1.0f / powf(theta, (float)(2 * i) / (float)a.rot);
        sincosf(__fmul_rn((float)b.pos[t], f), &sin, &cos);
        cs[i] = cos * a.scale;
        cs[half + i] = sin * a.scale;
    }
}

int
cu_rope_table(const struct fdk_rope_table_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (a->T <= 0 || a->rot <= 0 || a->rot % 2 != 0 || a->cs == NULL ||
        a->inv_freq == NULL || a->b == NULL ||
        (a->len != FDK_ROPE_ANY && (a->state == NULL || a->long_from <= 0)) ||
        (a->len == FDK_ROPE_NTK && a->rot <= 2))
        return -EINVAL;
    if (a->len == FDK_ROPE_ANY)
        cu_chain(rope_table_kernel, dim3((unsigned)a->T), 64, 0, cu_raw(st), *a, *a->b);
    else
        cu_chain(rope_len_kernel, dim3((unsigned)a->T), 64, 0, cu_raw(st), *a, *a->b);
    return cu_launched(st, "rope_table");
}

/* ---- a group of lanes per head ------------------------------------------- */

/* Each group computes heads first, first + step, ...; the next head's vector is loaded
 * while this one's is rotated. */
template<typename A, typename E>
static __global__ void __launch_bounds__(QKV_THREADS)
qkv_vectors(struct fdk_qkv_args a, struct fdk_batch b, int n_lane)
{
    struct lanes g = { n_lane, (int)threadIdx.x % n_lane, a.D / 8, a.rot / 16 };
    int t = (int)blockIdx.x, groups = QKV_THREADS / n_lane;
    int h = (int)blockIdx.y * groups + (int)threadIdx.x / n_lane;
    int step = groups * (int)gridDim.y, rest = (int)threadIdx.x / n_lane;
    A *row = (A *)a.qkv + (size_t)t * (size_t)(a.H + 2 * a.K) * (size_t)a.D;
    struct cu_raw8<float> cs[2];
    cu_dep_next();
    if (a.q_norm != NULL && g.at < g.used)
        cu_prefetch(a.q_norm + 8 * g.at);
    if (a.k_norm != NULL && g.at < g.used)
        cu_prefetch(a.k_norm + 8 * g.at);
    cu_dep_wait();
    int live = cu_clip(b.n_tok, a.T), all = a.H + 2 * a.K;
    if (a.T >= QKV_TOKENS && t >= live)
        return;
    int slot = fdk_kv_place(&a.kv, b.slot_map[t]);
    struct cu_raw8<A> raw = cu_zero8<A>();
    if (h < all && g.at < g.used)
        raw = cu_load8(row + (size_t)h * (size_t)a.D, (size_t)g.at);
    lanes_cs(g, a, t, cs);
    if (t >= live)
        return;
    if (slot < 0)
        all = a.H;
    for (; h - rest < all; h += step) {
        struct cu_raw8<A> next = cu_zero8<A>();
        if (h + step < all && g.at < g.used)
            next = cu_load8(row + (size_t)(h + step) * (size_t)a.D, (size_t)g.at);
        lanes_head<A, E>(g, a, row, h, slot, raw, cs, h >= all);
        raw = next;
    }
}

/* ---- a warp per head ----------------------------------------------------- */

/* x: the head's vector in this warp's shared memory. */
static __device__ void
rotate(float *x, const float *norm, const float *cs, const struct fdk_qkv_args &a,
    int lane)
{
    int half = a.rot / 2;
    if (norm != NULL) {
        float sum = 0;
        for (int i = lane; i < a.D; i += 32)
            sum = fmaf(x[i], x[i], sum);
        float inv = 1.0f / sqrtf(cu_warp_sum(sum) / (float)a.D + a.eps);
        for (int i = lane; i < a.D; i += 32)
            x[i] = (norm[i] + a.norm_offset) * (x[i] * inv);
        __syncwarp();
    }
    for (int i = lane; i < half; i += 32) {
        int r = a.interleaved ? 2 * i : i, j = a.interleaved ? r + 1 : half + i;
        float re = x[r], im = x[j], c = cs[i], s = cs[half + i];
        x[r] = fmaf(re, c, -__fmul_rn(im, s));
        x[j] = fmaf(im, c, __fmul_rn(re, s));
    }
    __syncwarp();
}

static __device__ float
largest(const float *x, int n, int lane)
{
    uint32_t m = 0;
    for (int i = lane; i < n; i += 32)
        m = max(m, __float_as_uint(x[i]) & 0x7fffffffu);
    return __uint_as_float(__reduce_max_sync(0xffffffffu, m));
}

template<typename E>
static __device__ void
kv_write(const struct fdk_qkv_args &a, const float *x, int slot, int head, int which,
    int lane)
{
    float scale = 1, *token_scale;
    E *dst = kv_at<E>(a, slot, head, which, &token_scale);
    if (sizeof(E) == 1 && a.kv.dtype == FDK_I8) {
        scale = largest(x, a.D, lane) / 127.0f;
        if (lane == 0)
            *token_scale = scale;
    } else if (sizeof(E) == 1) {
        scale = kv_head_scale(a.kv, a.layer, which, head);
    }
    for (int i = lane; i < a.D; i += 32)
        dst[i] = kv_narrow<E>(x[i], scale);
}

template<typename A, typename E>
static __global__ void __launch_bounds__(QKV_WARPS * 32)
qkv_kernel(struct fdk_qkv_args a, struct fdk_batch b)
{
    __shared__ float buf[QKV_WARPS][CU_MAX_HEAD_DIM];
    int t = (int)blockIdx.x, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    cu_dep_next();
    cu_dep_wait();
    if (t >= cu_clip(b.n_tok, a.T))
        return;
    A *row = (A *)a.qkv + (size_t)t * (size_t)(a.H + 2 * a.K) * (size_t)a.D;
    const float *cs = a.cs + (size_t)t * (size_t)a.rot;
    float *x = buf[warp];
    int slot = fdk_kv_place(&a.kv, b.slot_map[t]);
    int heads = slot < 0 ? a.H : a.H + 2 * a.K;
    int h = (int)blockIdx.y * QKV_WARPS + warp;
    if (h >= heads)
        return;
    A *src = row + (size_t)h * (size_t)a.D;
    for (int i = lane; i < a.D; i += 32)
        x[i] = cu_widen(src[i]);
    __syncwarp();
    if (h < a.H) {
        rotate(x, a.q_norm, cs, a, lane);
        for (int i = lane; i < a.D; i += 32)
            cu_round(&src[i], x[i]);
    } else if (h < a.H + a.K) {
        rotate(x, a.k_norm, cs, a, lane);
        kv_write<E>(a, x, slot, h - a.H, 0, lane);
    } else {
        kv_write<E>(a, x, slot, h - a.H - a.K, 1, lane);
    }
}

/* ---- one norm over all heads ----------------------------------------------- */

/* A thread's term of the sum of squares over the heads of all ranks. `share` neighbouring
 * ranks hold the same numbers, so the n numbers of every share-th rank are added, in the
 * order of one rank that holds them all. */
template<typename A>
static __device__ __forceinline__ float
squares_of_all(const struct fdk_qkv_args &a, int t, int n, int first, int share)
{
    const size_t row = (size_t)(a.H + 2 * a.K) * (size_t)a.D;
    const A *x = (const A *)a.all + (size_t)t * (size_t)a.n_all * row + first;
    float sum = 0;
    for (int i = (int)threadIdx.x; i < a.n_all / share * n; i += QKV_ALL_THREADS) {
        float v = cu_widen(x[(size_t)(i / n * share) * row + (size_t)(i % n)]);
        sum = fmaf(v, v, sum);
    }
    return sum;
}

/* Norm of the queries (blockIdx.y = 0) or keys (1) of a token, in place. */
template<typename A>
static __global__ void __launch_bounds__(QKV_ALL_THREADS)
qkv_norm_all(struct fdk_qkv_args a, struct fdk_batch b)
{
    __shared__ float sums[QKV_ALL_THREADS / 32];
    const int t = (int)blockIdx.x, k = (int)blockIdx.y;
    const int n = (k ? a.K : a.H) * a.D, share = k ? a.all_share : 1;
    const float *w = k ? a.k_norm : a.q_norm;
    cu_dep_next();
    cu_dep_wait();
    if (w == NULL || t >= cu_clip(b.n_tok, a.T))
        return;
    A *x = (A *)a.qkv + (size_t)t * (size_t)(a.H + 2 * a.K) * (size_t)a.D +
        (k ? (size_t)a.H * (size_t)a.D : 0);
    float sum = 0;
    if (a.all != NULL)
        sum = squares_of_all<A>(a, t, n, k ? a.H * a.D : 0, share);
    for (int i = (int)threadIdx.x; i < n && a.all == NULL; i += QKV_ALL_THREADS) {
        float v = cu_widen(x[i]);
        sum = fmaf(v, v, sum);
    }
    sum = cu_warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < QKV_ALL_THREADS / 32; i++)
        sum += sums[i];
    float inv = rsqrtf(sum / (float)(a.all != NULL ? a.n_all / share * n : n) + a.eps);
    for (int i = (int)threadIdx.x; i < n; i += QKV_ALL_THREADS)
        cu_round(&x[i], (w[i] + a.norm_offset) * (cu_widen(x[i]) * inv));
}

/* ---- launching ----------------------------------------------------------- */

/* Number of lanes of a group, or 0: this shape has a warp per head. Does not depend
 * on T. */
static int
group_lanes(const struct fdk_qkv_args *a)
{
    int n = 1;
    if (a->norm_offset != 0 || a->interleaved || a->D % 8 != 0 || a->rot % 16 != 0 || !cu_aligned(a->qkv, a->q_norm, a->k_norm,
        a->cs) || (size_t)a->D * fdk_dtype_bytes(a->kv.dtype) % 16 != 0)
        return 0;
    while (n < a->D / 8)
        n *= 2;
    return n;
}

template<typename A, typename E>
static void
qkv_launch(const struct fdk_qkv_args *a, cudaStream_t s)
{
    unsigned heads = (unsigned)(a->H + 2 * a->K), T = (unsigned)a->T, parts;
    int n = group_lanes(a);
    if (n == 0) {
        cu_chain(qkv_kernel<A, E>, dim3(T, (heads + QKV_WARPS - 1) / QKV_WARPS),
            QKV_WARPS * 32, 0, s, *a, *a->b);
        return;
    }
    parts = (heads * (unsigned)n + QKV_THREADS - 1) / QKV_THREADS;
    if (a->T >= QKV_TOKENS)
        parts = (parts + QKV_HEADS - 1) / QKV_HEADS;
    else if (a->T >= QKV_SOME)
        parts = (parts + 1) / 2;
    cu_chain(qkv_vectors<A, E>, dim3(T, parts), QKV_THREADS, 0, s, *a, *a->b, n);
}

template<typename A>
static void
qkv_dispatch(const struct fdk_qkv_args *a, cudaStream_t s)
{
    if (a->kv.dtype == FDK_F32)
        qkv_launch<A, float>(a, s);
    else if (a->kv.dtype == FDK_BF16)
        qkv_launch<A, __nv_bfloat16>(a, s);
    else if (a->kv.dtype == FDK_I8)
        qkv_launch<A, int8_t>(a, s);
    else
        qkv_launch<A, __nv_fp8_e4m3>(a, s);
}

static void
norm_all_launch(const struct fdk_qkv_args *a, cudaStream_t s)
{
    dim3 grid((unsigned)a->T, 2);
    if (a->act == FDK_F32)
        cu_chain(qkv_norm_all<float>, grid, QKV_ALL_THREADS, 0, s, *a, *a->b);
    else
        cu_chain(qkv_norm_all<__nv_bfloat16>, grid, QKV_ALL_THREADS, 0, s, *a, *a->b);
}

static int
qkv_run(const struct fdk_qkv_args *a, fdk_stream_t st)
{
    struct fdk_qkv_args rest = *a;
    if (a->norm_all && (a->q_norm != NULL || a->k_norm != NULL)) {
        norm_all_launch(a, cu_raw(st));
        rest.q_norm = rest.k_norm = NULL;
        a = &rest;
    }
    if (a->act == FDK_F32)
        qkv_dispatch<float>(a, cu_raw(st));
    else
        qkv_dispatch<__nv_bfloat16>(a, cu_raw(st));
    return cu_launched(st, "qkv");
}

int
cu_qkv(const struct fdk_qkv_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (a->rot < 0 || a->rot > a->D || a->rot % 2 != 0 || a->qkv == NULL ||
        (a->rot != 0 && a->cs == NULL) || a->b == NULL || !fdk_qkv_all_valid(a))
        return -EINVAL;
    rc = cu_kv_valid(&a->kv, a->T, a->H, a->K, a->D, a->layer);
    if (rc == 0)
        rc = cu_act_valid(a->act);
    return rc != 0 ? rc : qkv_run(a, st);
}

template<typename A>
static cudaError_t
act_load(void)
{
    const void *const k[] = {
        (const void *)qkv_kernel<A, float>, (const void *)qkv_vectors<A, float>,
        (const void *)qkv_kernel<A, __nv_bfloat16>,
        (const void *)qkv_vectors<A, __nv_bfloat16>,
        (const void *)qkv_kernel<A, int8_t>, (const void *)qkv_vectors<A, int8_t>,
        (const void *)qkv_kernel<A, __nv_fp8_e4m3>,
        (const void *)qkv_vectors<A, __nv_fp8_e4m3>, (const void *)qkv_norm_all<A>,
    };
    return cu_load(k, sizeof(k) / sizeof(k[0]));
}

cudaError_t
cu_qkv_load(void)
{
    const void *const k[] = { (const void *)rope_table_kernel,
        (const void *)rope_len_kernel };
    cudaError_t e = cu_load(k, 2);
    if (e == cudaSuccess)
        e = act_load<float>();
    return e != cudaSuccess ? e : act_load<__nv_bfloat16>();
}
