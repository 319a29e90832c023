/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The ids that top_k and top_p keep, and the few best ids in order. For
 * sample.cu only.
 *
 * A cut is the smallest kept key. It is found without sorting the row: a
 * histogram over the distance from the best logit gives the bin in which the
 * wanted count or mass is reached, and only the ids of that bin are sorted. A
 * bin with more than S_LIST ids is divided again by the bits of its keys.
 *
 * Masses are integers (units of 2^-40 of the best id's probability), so that
 * results do not depend on the order of addition.
 */
#ifndef FDD_KERNELS_CUDA_GENERIC_SAMPLE_KEEP_CUH
#define FDD_KERNELS_CUDA_GENERIC_SAMPLE_KEEP_CUH

#include "kernels/cuda/generic/sample_bins.cuh"

#define THROUGH_LIST 64          /* most ids that are found without a histogram */

/* The mass that top_p keeps of `mass`. */
static __device__ __forceinline__ u64
share(float top_p, u64 mass)
{
    double want = ceil((double)top_p * (double)mass);
    u64 n = want > 1 ? (u64)want : 1;
    return n < mass ? n : mass;
}

/* Sets s.bin to the bin of s.merged in which `want` is reached, and s.left to the rest to
 * reach in it. Returns the weight of all bins; if `want` is that or more, s.bin
 * is the last bin that is not empty. */
static __device__ u64
crossing(struct shared &s, u64 want)
{
    int i = 2 * (int)threadIdx.x;
    u64 a = s.merged[i], b = s.merged[i + 1], all;
    u64 upto = block_scan(s, a + b, &all), before = upto - a - b;
    want = want < all ? want : all;
    if (before < want && upto >= want) {
        int second = before + a < want;
        s.bin = i + second;
        s.left = want - before - (second ? a : 0);
    }
    __syncthreads();
    return all;
}

/* Rank 0: sends the key of the list at which `want` is reached to every block. */
template<int MASS>
static __device__ void
cut_in_list(struct shared &s, const struct part &p, int n, u64 want, float max,
    float inv_t)
{
    int i = (int)threadIdx.x;
    u64 all, key = block_sort(s, i < n ? s.list[i] : 0, n);
    u64 w = key != 0 ? weight<MASS>(logit_of(key), max, inv_t) : 0;
    u64 upto = block_scan(s, w, &all);
    if (upto - w < want && upto >= want)
        for (uint32_t c = 0; c < p.size; c++)
            *of_block(&s.cut, c) = key;
}

/* The largest key such that the ids from it on have weight `want` or more, among those
 * from key `least` on with logits from `low` on; 1 if there are not more of these than the
 * wanted count. */
template<int MASS>
static __device__ u64
find_cut(struct shared &s, struct part &p, const struct span &sp, float inv_t, float low,
    u64 least, u64 want)
{
    float range = MASS ? LIGHTEST / inv_t : WIDEST;
    float all = sp.max - (low > sp.min ? low : sp.min);
    range = all < range ? all : range;
    float scale = (float)S_BINS / range;
    struct bins b = { sp.max, scale < 1e30f ? scale : 1e30f, -1, 64, 64, 0 };
    for (int n = 2 * S_LIST; n > S_LIST;) {
        histogram<MASS>(s, p, b, inv_t, low, least);
        merge(s, p);
        if (crossing(s, want) <= want && !MASS && b.near_bin < 0)
            return 1;
        int bin = s.bin;
        want = s.left;
        n = list_bin(s, p, b, bin, low, least);
        if (n <= S_LIST) {
            if (p.rank == 0)
                cut_in_list<MASS>(s, p, n, want, sp.max, inv_t);
        } else if (b.near_bin < 0) {
            b.near_bin = bin;
            b.shift = 54;
        } else {
            b.prefix = b.prefix << (b.above_shift - b.shift) |
                (u64)(S_BINS - 1 - bin) & ((1ull << (b.above_shift - b.shift)) - 1);
            b.above_shift = b.shift;
            b.shift = b.shift > 10 ? b.shift - 10 : 0;
        }
    }
    __syncwarp();
    cluster_sync();
    return s.cut;
}

/* The cut of top_k; 1 if there are not more ids. */
static __device__ u64
cut_by_count(struct shared &s, struct part &p, const struct span &sp, int k)
{
    int n = (int)p.size * S_WARPS;
    float low = k <= n ? reached_by(p, s.best[p.turn ^ 1], n) : -INFINITY;
#pragma unroll 1
    for (;; low = -INFINITY) {
        u64 cut = find_cut<0>(s, p, sp, 1, low, 0, (u64)k);
        if (cut != 1 || !(low > -INFINITY))
            return cut;
    }
}

/* The cut of top_p over the ids from key `least` on. Skips ids with so little mass that
 * all of them together have less than half of the mass that top_p leaves out. */
static __device__ u64
cut_by_mass(struct shared &s, struct part &p, const struct span &sp, float inv_t,
    u64 least, float top_p, int V)
{
    float edge = logit_of(least), low = sp.max - LIGHTEST / inv_t;
    u64 mass = 0;
    for (int q = (int)threadIdx.x; q < p.n_quad; q += S_THREADS) {
        float4 v = p.x[q];
        if (least > 1)
            drop_below(v, p.first + 4 * q, edge, least);
        mass += quad_mass(v, sp.max, inv_t);
    }
    mass = sum_of_row(s, p, mass);
    float light = 0.5f * (1 - top_p) * ((float)mass / MASS_UNIT) / (float)V;
    light = sp.max + logf(light) / inv_t;
    low = light > low ? light : low;
    return find_cut<1>(s, p, sp, inv_t, low, least, share(top_p, mass));
}

/* Lists the best `need` ids, and maybe more, in rank 0; returns how many. need:
 * at most S_LIST. */
static __device__ int
list_best(struct shared &s, struct part &p, const struct span &sp, int need)
{
    if (need <= THROUGH_LIST && need <= (int)p.size * S_WARPS) {
        float low = reached_by(p, s.best[p.turn ^ 1], need <= 32 ? 32 : THROUGH_LIST);
        int n = list_from(s, p, low, 0);
        if (n <= S_LIST && (n >= need || !(low > -INFINITY)))
            return n;
    }
    u64 cut = cut_by_count(s, p, sp, need);
    int n = list_from(s, p, logit_of(cut), cut);
    return n < S_LIST ? n : S_LIST;
}

#endif
