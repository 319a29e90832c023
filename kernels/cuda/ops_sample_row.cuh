/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A row's logits into shared memory, raw and as they may be chosen from. For
 * ops_sample.cu only.
 */
#ifndef FDD_KERNELS_CUDA_OPS_SAMPLE_ROW_CUH
#define FDD_KERNELS_CUDA_OPS_SAMPLE_ROW_CUH

#include "kernels/cuda/ops_sample_reduce.cuh"

struct row {
    const float *raw;            /* (V) in memory */
    const uint16_t *counts;      /* (V) or NULL */
    const int32_t *rules;        /* the row's entry of the pool, or NULL */
    int V, pos, best_id;
    float max, inv_t;            /* of the penalized, masked logits */
};

/* ---- reading a row --------------------------------------------------------- */

struct seen {                    /* by one thread */
    float max, min;
    int quad;                    /* first with max; -1: none */
};

static __device__ __forceinline__ void
see(struct seen &t, const float4 &v, int q, int masked)
{
    float m = most_of(v);
    if (m > t.max) {
        t.max = m;
        t.quad = q;
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        t.min = fminf(t.min, masked && !(nth(v, j) > -INFINITY) ? INFINITY : nth(v, j));
}

/* A thread's own part of the span; its quads are its own writes. */
static __device__ struct span
span_seen(struct shared &s, struct part &p, const struct seen &t, int bad)
{
    u64 key = 0;
    if (t.quad >= 0) {
        float4 v = p.x[t.quad];
        int j = v.x == t.max ? 0 : v.y == t.max ? 1 : v.z == t.max ? 2 : 3;
        key = key_of(t.max, p.first + 4 * t.quad + j);
    }
    return span_of_row(s, p, bad ? BAD : key, bits_of(t.min));
}

/* Rows that do not begin at a multiple of 16 bytes. */
static __device__ __forceinline__ float4
load_quad(const float *raw, int id, int V)
{
    float4 v;
    v.x = id < V ? raw[id] : -INFINITY;
    v.y = id + 1 < V ? raw[id + 1] : -INFINITY;
    v.z = id + 2 < V ? raw[id + 2] : -INFINITY;
    v.w = id + 3 < V ? raw[id + 3] : -INFINITY;
    return v;
}

static __device__ __forceinline__ int
is_bad(float x)
{
    return (__float_as_uint(x) & 0x7f800000u) == 0x7f800000u;
}

/* Quads q, q + S_THREADS, ... of the block. */
static __device__ __forceinline__ void
fetch(const struct part &p, const float *raw, int V, int q, float4 v[4])
{
    const float4 *from = (const float4 *)(raw + p.first);
    if (V % 4 == 0) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (q + j * S_THREADS < p.n_quad)
                v[j] = __ldcg(from + q + j * S_THREADS);
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++)
            v[j] = load_quad(raw, p.first + 4 * (q + j * S_THREADS), V);
    }
}

/* What fetch() got into shared memory. Returns whether one is not finite. */
static __device__ __forceinline__ int
keep_fetched(const struct part &p, int V, int q, const float4 v[4], struct seen &t)
{
    int bad = 0;
#pragma unroll
    for (int j = 0; j < 4; j++, q += S_THREADS) {
        int id = p.first + 4 * q;
        if (q >= p.n_quad)
            break;
        bad |= is_bad(v[j].x) | (is_bad(v[j].y) & id + 1 < V) |
            (is_bad(v[j].z) & id + 2 < V) | (is_bad(v[j].w) & id + 3 < V);
        see(t, v[j], q, V % 4 != 0);
        p.x[q] = v[j];
    }
    return bad;
}

/* The block's part of the row that is begun when this one is done. */
static __device__ __forceinline__ void
ask_ahead(const float *from, int n_quad)
{
    if (n_quad > 0)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(from),
            "r"(n_quad * 16) : "memory");
}

/* ---- penalties and masks --------------------------------------------------- */

static __device__ __forceinline__ float
penalized(const struct fdk_row &st, float x, uint16_t c)
{
    if (c == 0)
        return x;
    x = x > 0 ? __fdiv_rn(x, st.repetition) : __fmul_rn(x, st.repetition);
    if ((c & 0x7fff) != 0) {
        x = __fsub_rn(x, __fmul_rn(st.frequency, (float)(c & 0x7fff)));
        x = __fsub_rn(x, st.presence);
    }
    return x;
}

/* The bias of an id, by bisection. */
static __device__ float
bias_of(const struct fdk_rules &ru, const int32_t *entry, int id)
{
    const int32_t *ids = entry + ru.bias;
    int low = 0, n = ru.n_bias;
    while (low < n) {
        int mid = (low + n) / 2;
        if (ids[mid] < id)
            low = mid + 1;
        else
            n = mid;
    }
    return low < ru.n_bias && ids[low] == id ? __int_as_float(ids[ru.n_bias + low]) : 0;
}

/* Biases, to the logits of n ids from first on. */
static __device__ void
add_biases(const struct fdk_rules &ru, const int32_t *entry, float *x, int first, int n)
{
    for (int i = (int)threadIdx.x; i < ru.n_bias; i += S_THREADS) {
        int at = entry[ru.bias + i] - first;
        if (at >= 0 && at < n)
            x[at] = __fadd_rn(x[at], __int_as_float(entry[ru.bias + ru.n_bias + i]));
    }
}

static __device__ void
mask_banned(const struct fdk_rules &ru, const int32_t *entry, int32_t len, float *x,
    int first, int n)
{
    for (int i = (int)threadIdx.x; i < ru.n_ban; i += S_THREADS) {
        int id = fdk_rules_banned(&ru, entry, i, len), at = id - first;
        if (id >= 0 && at >= 0 && at < n)
            x[at] = -INFINITY;
    }
}

/* Without the ids of a quad that are not allowed. */
static __device__ __forceinline__ float4
allowed_quad(const int32_t *allowed, float4 v, int id)
{
    uint32_t bits = (uint32_t)allowed[id / 32] >> id % 32;
    v.x = bits & 1 ? v.x : -INFINITY;
    v.y = bits & 2 ? v.y : -INFINITY;
    v.z = bits & 4 ? v.z : -INFINITY;
    v.w = bits & 8 ? v.w : -INFINITY;
    return v;
}

static __device__ __forceinline__ ushort4
load_counts(const struct row &r, int id)
{
    if (r.counts == NULL)
        return make_ushort4(0, 0, 0, 0);
    if (r.V % 4 == 0)
        return __ldcg((const ushort4 *)(r.counts + id));
    return make_ushort4(r.counts[id], id + 1 < r.V ? r.counts[id + 1] : 0,
        id + 2 < r.V ? r.counts[id + 2] : 0, id + 3 < r.V ? r.counts[id + 3] : 0);
}

/* The row as it may be chosen from, where it is not the raw one. What is masked
 * remains so whatever the penalties. */
static __device__ struct span
prepare(struct shared &s, struct part &p, const struct row &r, int mask)
{
    struct seen t = { -INFINITY, INFINITY, -1 };
    const int32_t *allowed = NULL;
    if (r.rules != NULL) {
        float *x = (float *)p.x;
        add_biases(s.rules, r.rules, x, p.first, 4 * p.n_quad);
        __syncthreads();
        mask_banned(s.rules, r.rules, s.st.len, x, p.first, 4 * p.n_quad);
        allowed = s.rules.allowed != 0 ? r.rules + s.rules.allowed : NULL;
    }
    int n = s.st.n_stop < FDK_MAX_STOP_IDS ? s.st.n_stop : FDK_MAX_STOP_IDS;
    for (int i = (int)threadIdx.x; mask && i < n; i += S_THREADS) {
        int at = s.st.stop_ids[i] - p.first;
        if (s.st.stop_ids[i] >= 0 && s.st.stop_ids[i] < r.V && at >= 0 &&
            at < 4 * p.n_quad)
            ((float *)p.x)[at] = -INFINITY;
    }
    __syncthreads();
#pragma unroll 4
    for (int q = (int)threadIdx.x; q < p.n_quad; q += S_THREADS) {
        ushort4 c = load_counts(r, p.first + 4 * q);
        float4 v = p.x[q];
        if ((c.x | c.y | c.z | c.w) != 0) {
            v.x = penalized(s.st, v.x, c.x);
            v.y = penalized(s.st, v.y, c.y);
            v.z = penalized(s.st, v.z, c.z);
            v.w = penalized(s.st, v.w, c.w);
        }
        if (allowed != NULL)
            v = allowed_quad(allowed, v, p.first + 4 * q);
        if (allowed != NULL || (c.x | c.y | c.z | c.w) != 0)
            p.x[q] = v;
        see(t, v, q, 1);
    }
    return span_seen(s, p, t, 0);
}

#endif
