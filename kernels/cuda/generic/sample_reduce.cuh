/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums, sorts and extremes over a block and over a cluster. For sample.cu only.
 */
#ifndef FDD_KERNELS_CUDA_GENERIC_SAMPLE_REDUCE_CUH
#define FDD_KERNELS_CUDA_GENERIC_SAMPLE_REDUCE_CUH

#include "kernels/cuda/generic/sample_part.cuh"

/* ---- reductions ------------------------------------------------------------ */

static __device__ __forceinline__ u64
warp_most(u64 key)
{
    uint32_t high = __reduce_max_sync(S_ALL, (uint32_t)(key >> 32));
    uint32_t low = (uint32_t)(key >> 32) == high ? (uint32_t)key : 0;
    return (u64)high << 32 | __reduce_max_sync(S_ALL, low);
}

template<typename N>
static __device__ __forceinline__ N
warp_sum(N v)
{
    for (int i = 16; i > 0; i /= 2)
        v += __shfl_xor_sync(S_ALL, v, i);
    return v;
}

/* Inclusive prefix sum over the block's threads; *ret_all: sum of the block. */
static __device__ u64
block_scan(struct shared &s, u64 v, u64 *ret_all)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int i = 1; i < 32; i *= 2) {
        u64 below = __shfl_up_sync(S_ALL, v, i);
        v += lane >= i ? below : 0;
    }
    __syncthreads();
    if (lane == 31)
        s.scan[warp] = v;
    __syncthreads();
    u64 all = 0, before = 0;
    for (int i = 0; i < S_WARPS; i++) {
        before += i < warp ? s.scan[i] : 0;
        all += s.scan[i];
    }
    *ret_all = all;
    return before + v;
}

/* Sorts the keys of n threads in descending order; the keys of other threads are 0. */
static __device__ u64
block_sort(struct shared &s, u64 key, int n)
{
    int i = (int)threadIdx.x, turn = 0;
    __syncthreads();
    for (int size = 2; size < 2 * n; size *= 2) {
        for (int stride = size / 2; stride > 0; stride /= 2) {
            u64 other;
            if (stride >= 32) {
                s.sort[turn][i] = key;
                __syncthreads();
                other = s.sort[turn][i ^ stride];
                turn ^= 1;
            } else {
                other = __shfl_xor_sync(S_ALL, key, stride);
            }
            int larger = ((i & stride) == 0) == ((i & size) == 0);
            key = (key > other) == larger ? key : other;
        }
    }
    __syncthreads();             /* s.sort is shared with the histogram */
    return key;
}

/* ---- a row's span ---------------------------------------------------------- */

/* Sends each warp's extremes to every block, and returns the row's span in all of
 * them. The barrier also makes all earlier writes visible. */
static __device__ struct span
span_of_row(struct shared &s, struct part &p, u64 best, uint32_t least)
{
    uint32_t lane = threadIdx.x % 32, at = p.rank * S_WARPS + threadIdx.x / 32;
    int turn = p.turn;
    best = warp_most(best);
    least = __reduce_min_sync(S_ALL, least);
    if (lane < p.size) {
        *of_block(&s.best[turn][at], lane) = best;
        *of_block(&s.least[turn][at], lane) = least;
    }
    __syncwarp();
    cluster_sync();
    p.turn ^= 1;
    best = 0;
    for (uint32_t i = lane; i < p.size * S_WARPS; i += 32) {
        best = s.best[turn][i] > best ? s.best[turn][i] : best;
        least = s.least[turn][i] < least ? s.least[turn][i] : least;
    }
    best = warp_most(best);
    least = __reduce_min_sync(S_ALL, least);
    struct span sp = { best, logit_of(best), float_of(least) };
    return sp;
}

/* Returns the sum over all threads of the cluster, in every block. */
static __device__ u64
sum_of_row(struct shared &s, struct part &p, u64 v)
{
    uint32_t lane = threadIdx.x % 32, at = p.rank * S_WARPS + threadIdx.x / 32;
    u64 *slots = s.best[p.turn];
    v = warp_sum(v);
    if (lane < p.size)
        *of_block(&slots[at], lane) = v;
    __syncwarp();
    cluster_sync();
    p.turn ^= 1;
    v = 0;
    for (uint32_t i = lane; i < p.size * S_WARPS; i += 32)
        v += slots[i];
    return warp_sum(v);
}

/* A lower bound that at least `groups` logits reach, or as many as there are slots;
 * slots: those of the row's span. A logit that a bias changed may be in two of them: as
 * few as half of that number reach it then. */
static __device__ float
reached_by(const struct part &p, const u64 *slots, int groups)
{
    int n = (int)p.size * S_WARPS, step = n < groups ? n : groups;
    u64 low = ~0ull;
    for (int g = (int)threadIdx.x % 32; g < step; g += 32) {
        u64 most = 0;
        for (int i = g; i < n; i += step)
            most = slots[i] > most ? slots[i] : most;
        low = most < low ? most : low;
    }
    return logit_of(~warp_most(~low));
}

#endif
