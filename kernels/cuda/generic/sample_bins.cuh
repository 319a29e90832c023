/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Histograms of a row over the distance from its best logit, and lists of ids
 * in the shared memory of rank 0. For sample.cu only.
 */
#ifndef FDD_KERNELS_CUDA_GENERIC_SAMPLE_BINS_CUH
#define FDD_KERNELS_CUDA_GENERIC_SAMPLE_BINS_CUH

#include "kernels/cuda/generic/sample_reduce.cuh"

#define WIDEST 64.0f             /* range of logits below the best that bins cover */
#define LIGHTEST 27.8f           /* exp(-LIGHTEST) counts as no mass */

/* Bins of ids: by distance from the best logit first, then by bits of the key. */
struct bins {
    float max, scale;
    int near_bin;                /* -1: the first division */
    int shift, above_shift;      /* this division uses the bits of the key from shift to
                                    above_shift; the higher bits equal prefix */
    u64 prefix;
};

/* An id's bin, best first; -1: none. */
static __device__ __forceinline__ int
bin_of(const struct bins &b, float x, int id)
{
    if (!(x > -INFINITY))
        return -1;
    float far = (b.max - x) * b.scale;
    int bin = far < (float)(S_BINS - 1) ? (int)far : S_BINS - 1;
    if (b.near_bin < 0)
        return bin;
    u64 key = key_of(x, id);
    if (bin != b.near_bin || (b.above_shift < 64 && key >> b.above_shift != b.prefix))
        return -1;
    return S_BINS - 1 - (int)(key >> b.shift & (S_BINS - 1));
}

/* Count or mass of an id. inv_t: 1 / temperature. */
template<int MASS>
static __device__ __forceinline__ u64
weight(float x, float max, float inv_t)
{
    return MASS ? (u64)(exp_of((x - max) * inv_t) * MASS_UNIT) : 1;
}

/* Masks the ids of a quad with keys below `least`. */
static __device__ __forceinline__ void
drop_below(float4 &v, int id, float edge, u64 least)
{
    v.x = v.x > edge || key_of(v.x, id) >= least ? v.x : -INFINITY;
    v.y = v.y > edge || key_of(v.y, id + 1) >= least ? v.y : -INFINITY;
    v.z = v.z > edge || key_of(v.z, id + 2) >= least ? v.z : -INFINITY;
    v.w = v.w > edge || key_of(v.w, id + 3) >= least ? v.w : -INFINITY;
}

/* ---- histograms ------------------------------------------------------------ */

/* Makes the block's histogram of ids with logits from low on and keys from `least` on. */
template<int MASS>
static __device__ void
histogram(struct shared &s, const struct part &p, const struct bins &b, float inv_t,
    float low, u64 least)
{
    float edge = logit_of(least);
    low = edge > low ? edge : low;
    for (int i = (int)threadIdx.x; i < S_BINS; i += S_THREADS)
        s.hist.lo[i] = s.hist.hi[i] = 0;
    __syncthreads();
    for (int q = (int)threadIdx.x; q < p.n_quad; q += S_THREADS) {
        float4 v = p.x[q];
        if (!(most_of(v) >= low))
            continue;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float x = nth(v, j);
            int id = p.first + 4 * q + j, bin;
            if (!(x >= low) || (bin = bin_of(b, x, id)) < 0 ||
                (x == edge && key_of(x, id) < least))
                continue;
            u64 w = weight<MASS>(x, b.max, inv_t);
            uint32_t lo = (uint32_t)w, hi = (uint32_t)(w >> 32);
            if (lo != 0 && atomicAdd(&s.hist.lo[bin], lo) > ~lo)
                hi++;
            if (MASS && hi != 0)
                atomicAdd(&s.hist.hi[bin], hi);
        }
    }
    __syncwarp();
    cluster_sync();
}

/* Sums the blocks' histograms to s.merged of every block: each block sums its share of
 * the bins. */
static __device__ void
merge(struct shared &s, const struct part &p)
{
    int n = S_BINS / (int)p.size;
    uint32_t c = threadIdx.x & (p.size - 1);
    for (int i = (int)threadIdx.x; i < S_BINS; i += S_THREADS) {
        int bin = (int)p.rank * n + i / (int)p.size;
        u64 v = (u64)*of_block(&s.hist.hi[bin], c) << 32;
        v += *of_block(&s.hist.lo[bin], c);
        for (uint32_t j = p.size / 2; j > 0; j /= 2)
            v += __shfl_xor_sync(S_ALL, v, j);
        *of_block(&s.merged[bin], c) = v;
    }
    __syncwarp();
    cluster_sync();
}

/* ---- lists ----------------------------------------------------------------- */

/* Begins a list in rank 0; returns its counter. */
static __device__ __forceinline__ uint32_t *
list_begin(struct shared &s, struct part &p)
{
    return of_block(&s.n_list[p.n_list++ % S_LISTS], 0);
}

static __device__ __forceinline__ void
list_add(struct shared &s, uint32_t *n, u64 key)
{
    uint32_t i = atomicAdd(n, 1u);
    if (i < S_LIST)
        *of_block(&s.list[i], 0) = key;
}

/* Returns how many keys the cluster has added. */
static __device__ __forceinline__ int
list_end(uint32_t *n)
{
    __syncwarp();
    cluster_sync();
    return (int)*(volatile uint32_t *)n;
}

/* Lists all ids with logits from low on and keys from cut on. Returns how many. */
static __device__ int
list_from(struct shared &s, struct part &p, float low, u64 cut)
{
    uint32_t *n = list_begin(s, p);
    for (int q = (int)threadIdx.x; q < p.n_quad; q += S_THREADS) {
        float4 v = p.x[q];
        if (!(most_of(v) >= low))
            continue;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float x = nth(v, j);
            u64 key = x >= low ? key_of(x, p.first + 4 * q + j) : 0;
            if (key != 0 && key >= cut)
                list_add(s, n, key);
        }
    }
    return list_end(n);
}

static __device__ int
list_bin(struct shared &s, struct part &p, const struct bins &b, int bin, float low,
    u64 least)
{
    uint32_t *n = list_begin(s, p);
    for (int q = (int)threadIdx.x; q < p.n_quad; q += S_THREADS) {
        float4 v = p.x[q];
        if (!(most_of(v) >= low))
            continue;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float x = nth(v, j);
            int id = p.first + 4 * q + j;
            if (x >= low && bin_of(b, x, id) == bin && key_of(x, id) >= least)
                list_add(s, n, key_of(x, id));
        }
    }
    return list_end(n);
}

#endif
