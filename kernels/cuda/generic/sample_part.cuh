/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A row of logits distributed over the shared memory of a cluster of blocks, and
 * the data that the blocks exchange. For sample.cu only.
 *
 * Block `rank` of `size` has the ids from part.first on. A quad is four ids,
 * the first a multiple of four: one 16-byte access, one Philox counter, one
 * term of a sum, so that results do not depend on the number of blocks of a row.
 *
 * All values that decide branches of the cluster are equal in every block, so
 * all of them take the same branches and reach the same barriers. Slots have
 * an entry per warp of the cluster; a set of them is overwritten only after a
 * later barrier.
 */
#ifndef FDD_KERNELS_CUDA_GENERIC_SAMPLE_PART_CUH
#define FDD_KERNELS_CUDA_GENERIC_SAMPLE_PART_CUH

#include "kernels/cuda/fdk_cuda.cuh"

#include <math.h>

#define S_THREADS 512
#define S_WARPS (S_THREADS / 32)
#define S_LOGITS ((size_t)192 << 10)     /* most bytes of logits in a block */
#define S_CLUSTER 16             /* most blocks of a row; a power of two */
#define S_SLOTS (S_CLUSTER * S_WARPS)
#define S_BINS 1024
#define S_LIST S_THREADS
#define S_LISTS 48               /* lists; more than a row can need */
#define S_ALL 0xffffffffu
#define LOG2E 1.4426950408889634f
#define MASS_UNIT 1099511627776.0f   /* 2^40 */

typedef unsigned long long u64;

struct shared {                  /* besides the logits */
    struct fdk_row st;           /* a copy */
    struct fdk_result res;       /* used in rank 0 */
    struct fdk_rules rules;      /* a copy, if the row has rules */
    u64 best[2][S_SLOTS];        /* a warp's largest key; the two sets alternate */
    uint32_t least[2][S_SLOTS];  /* its smallest logit, as ordered bits */
    u64 sum[S_SLOTS];            /* used in rank 0: sums of exponentials of raw logits */
    union {
        struct { uint32_t lo[S_BINS], hi[S_BINS]; } hist; /* this block's */
        u64 sort[2][S_LIST];
    };
    u64 merged[S_BINS];          /* the row's histogram */
    u64 list[S_LIST];            /* used in rank 0: unordered keys */
    uint32_t n_list[S_LISTS];    /* used in rank 0: keys of each list, counted even after
                                    the list is full */
    u64 scan[S_WARPS];
    double win[S_WARPS];
    int win_id[S_WARPS];
    u64 cut, left;
    int bin;
};

struct part {
    float4 *x;                   /* (n_quad) in shared memory; -INFINITY past the end */
    int first, n_quad;
    uint32_t rank, size;
    int turn;                    /* set of slots to be used next */
    int n_list;                  /* lists begun */
};

struct span {                    /* extremes of a row's logits, without -INFINITY */
    u64 best;                    /* key; 0: none; see BAD */
    float max, min;
};
#define BAD (~0ull)              /* not a key: some logit is not finite */

/* ---- keys: the logit's bits made monotonous, then the complemented id ----- */

static __device__ __forceinline__ uint32_t
bits_of(float x)
{
    uint32_t u = __float_as_uint(x + 0.0f);     /* -0 is 0 */
    return u ^ (u & 0x80000000u ? S_ALL : 0x80000000u);
}

static __device__ __forceinline__ float
float_of(uint32_t u)
{
    return __uint_as_float(u ^ (u & 0x80000000u ? 0x80000000u : S_ALL));
}

/* 0 for a masked id. */
static __device__ __forceinline__ u64
key_of(float x, int id)
{
    return x > -INFINITY ? (u64)bits_of(x) << 32 | (uint32_t)~id : 0;
}

/* -INFINITY for keys 0 and 1; as a cut, 1 keeps all ids that are not masked. */
static __device__ __forceinline__ float
logit_of(u64 key)
{
    return key <= 1 ? -INFINITY : float_of((uint32_t)(key >> 32));
}

static __device__ __forceinline__ int
id_of(u64 key)
{
    return (int)~(uint32_t)key;
}

/* ---- quads ------------------------------------------------------------------- */

static __device__ __forceinline__ float
nth(const float4 &v, int j)
{
    return j == 0 ? v.x : j == 1 ? v.y : j == 2 ? v.z : v.w;
}

static __device__ __forceinline__ float
most_of(const float4 &v)
{
    return fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
}

/* 2^x for x <= 0, 0 below 2^-126. */
static __device__ __forceinline__ float
exp2_of(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float
exp_of(float x)
{
    return exp2_of(x * LOG2E);
}

static __device__ __forceinline__ u64
quad_mass(const float4 &v, float max, float inv_t)
{
    float e = (exp_of((v.x - max) * inv_t) + exp_of((v.y - max) * inv_t)) +
        (exp_of((v.z - max) * inv_t) + exp_of((v.w - max) * inv_t));
    return __float2ull_rn(e * MASS_UNIT);
}

/* ---- the cluster ----------------------------------------------------------- */

static __device__ __forceinline__ uint32_t
cluster_rank(void)
{
    uint32_t r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

static __device__ __forceinline__ uint32_t
cluster_size(void)
{
    uint32_t r;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(r));
    return r;
}

static __device__ __forceinline__ void
cluster_arrive(void)
{
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

static __device__ __forceinline__ void
cluster_wait(void)
{
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

static __device__ __forceinline__ void
cluster_sync(void)
{
    cluster_arrive();
    cluster_wait();
}

/* Address of the same variable in block `rank`. */
template<typename T>
static __device__ __forceinline__ T *
of_block(T *p, uint32_t rank)
{
    u64 at;
    asm("mapa.u64 %0, %1, %2;" : "=l"(at) : "l"(p), "r"(rank));
    return (T *)at;
}

#endif
