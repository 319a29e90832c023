/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads weights to shared memory for mega_kernel.cu. A row group is 16 rows of w; a block
 * computes full row groups. A chunk is 16 rows by 128 bytes of w; a stage of the ring has
 * one chunk for each warp, adjacent along K, of two row groups, so that x is read once
 * for both.
 *
 * One thread only loads stages, of all GEMMs one after the other: how far
 * it is ahead depends only on the size of the ring.
 */
#ifndef FDD_KERNELS_CUDA_SM90_MEGA_RING_CUH
#define FDD_KERNELS_CUDA_SM90_MEGA_RING_CUH

#include "kernels/cuda/sm90/gemm_quant.cuh"
#include "kernels/cuda/sm90/mega.cuh"

#define DEPTH      5             /* stages of the ring */
#define FLIGHT     2             /* most stages being loaded at once */
#define CHUNK      2048          /* bytes of a chunk: 128 of each of 16 rows of w */
#define HALF       (MEGA_WARPS * CHUNK) /* bytes of a row group in a stage */
#define SCALES     (16 * 2 * MEGA_WARPS) /* most scales of a half: [row][128 elements] */

struct __align__(16) ring_what {
    int group[2];                /* row groups of a stage; the second one -1: none */
    int more;                    /* the GEMM has more row groups after these */
    int unused;
};

struct __align__(1024) mega_ring {
    unsigned char w[DEPTH][2][HALF];
    float scale[DEPTH][2][SCALES];
    uint64_t full[DEPTH], empty[DEPTH];
    struct ring_what what[DEPTH];
    __align__(16) unsigned char zero[64];
};

static __device__ __forceinline__ void
ring_start(struct mega_ring *r)
{
    for (int i = 0; i < (int)sizeof(r->zero); i++)
        r->zero[i] = 0;
    for (int i = 0; i < DEPTH; i++) {
        cu_bar_init(cu_smem(&r->full[i]), 1);
        cu_bar_init(cu_smem(&r->empty[i]), MEGA_WARPS);
    }
    cu_bar_ready();
}

/* Position in the ring of the loading thread, or of a consumer warp. */
typedef struct cu_ring_at<DEPTH> ring_at;

/* Groups of 128 elements, each with its own scale, in a row of a half. */
static __host__ __device__ constexpr int
stage_units(int type)
{
    return MEGA_WARPS * mega_chunk(type) / 128;
}

/* Loads half h of a stage: the chunks from c on of a row group, w and its scales. */
template<int W>
static __device__ __forceinline__ void
ring_copy(struct mega_ring *r, int slot, int h, const struct mega_matrix &m, int scaled,
    int group, int c, uint64_t policy)
{
    const uint32_t bar = cu_smem(&r->full[slot]);
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global"
        ".mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;"
        :: "r"(cu_smem(r->w[slot][h])), "l"(m.map), "r"(0), "r"(group * 16), "r"(c),
        "r"(bar), "l"(policy) : "memory");
    if (scaled)
        quant_box2(cu_smem(r->scale[slot][h]), (const CUtensorMap *)m.scale_map,
            c * mega_chunk(W) / 128, group * 16, bar);
}

/* State of the loading thread: its position, and that of the stage FLIGHT before. */
struct ring_ask {
    ring_at at, landed;
    int asked;
    uint64_t policy;

    /* Waits until the next slot is free and at most FLIGHT stages are being loaded: early
     * loads must not take bandwidth from loads that other blocks wait for. */
    __device__ __forceinline__ void
    wait(struct mega_ring *r)
    {
        cu_bar_wait(cu_smem(&r->empty[at.slot]), at.parity);
        if (++asked > FLIGHT) {
            cu_bar_wait(cu_smem(&r->full[landed.slot]), landed.parity);
            landed.next();
        }
    }

    template<int W>
    __device__ __forceinline__ void
    groups(struct mega_ring *r, const struct mega_matrix &m, int scaled,
        const struct ring_what &what, int chunks)
    {
        const int bytes = HALF + (scaled ? 16 * stage_units(W) * 4 : 0);
#pragma unroll 1
        for (int c = 0; c < chunks; c += MEGA_WARPS) {
            wait(r);
            r->what[at.slot] = what;
            cu_bar_expect(cu_smem(&r->full[at.slot]), what.group[1] < 0 ? bytes :
                2 * bytes);
            ring_copy<W>(r, at.slot, 0, m, scaled, what.group[0], c, policy);
            if (what.group[1] >= 0)
                ring_copy<W>(r, at.slot, 1, m, scaled, what.group[1], c, policy);
            at.next();
        }
    }
};

/* Loads the block's row groups of a GEMM, evenly divided among the blocks, two at a
 * time. */
template<int W>
static __device__ __forceinline__ void
feed_product(struct ring_ask &ask, struct mega_ring *r, const struct mega_matrix &m,
    const struct mega_shape &s)
{
    const int n = s.N / 16, step = (int)gridDim.x;
#pragma unroll 1
    for (int g = (int)blockIdx.x; g < n; g += 2 * step)
        ask.groups<W>(r, m, s.scaled, { { g, g + step < n ? g + step : -1 },
            g + 2 * step < n, 0 }, s.K / mega_chunk(W));
}

/*
 * Gate and up: a stage has the same rows of both. There are many such work items, and
 * memory bandwidth differs between multiprocessors: after its first two items each block
 * claims further ones from a counter. The next one is claimed while one is loaded; the
 * last block to claim resets the counter.
 */
template<int W>
static __device__ __forceinline__ void
feed_pairs(struct ring_ask &ask, struct mega_ring *r, const struct mega_matrix &m,
    const struct mega_shape &s, uint32_t *claimed)
{
    const int n = s.N / 32;
    int now = (int)blockIdx.x, next = now + (int)gridDim.x;
#pragma unroll 1
    while (now < n) {
        const uint32_t claim = atomicAdd(claimed, 1u);
        ask.groups<W>(r, m, s.scaled, { { now, now + n }, next < n, 0 },
            s.K / mega_chunk(W));
        if (claim == (uint32_t)n - 1)
            *claimed = 0;
        now = next;
        next = (int)claim + 2 * (int)gridDim.x;
    }
}

/* One thread: loads the weights of all GEMMs of all layers. */
template<int W>
static __device__ __forceinline__ void
ring_feed(const struct mega_list &l, struct mega_ring *r)
{
    struct ring_ask ask = { { 0, 1 }, { 0, 0 }, 0, 0 };
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(ask.policy));
#pragma unroll 1
    for (int i = 0; i < l.n * MEGA_PRODUCTS; i++) {
        const int p = i % MEGA_PRODUCTS, layer = i / MEGA_PRODUCTS;
        if (p == MEGA_GU)
            feed_pairs<W>(ask, r, l.layer[layer].m[p], l.shape[p],
                &l.state->claimed[layer]);
        else
            feed_product<W>(ask, r, l.layer[layer].m[p], l.shape[p]);
    }
}

/* Releases the stage for this warp. */
static __device__ __forceinline__ void
ring_leave(struct mega_ring *r, ring_at &at)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        cu_bar_arrive(cu_smem(&r->empty[at.slot]));
    at.next();
}

#endif
