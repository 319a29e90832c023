/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads weights to shared memory for mega_kernel.cu. A row group is 16 rows of w; a block
 * computes full row groups. A chunk is 16 rows by 128 bytes of w; half a stage of the ring
 * has one chunk for each warp, adjacent along K. The two halves of a stage are of two row
 * groups, so that x is read once for both, or adjacent along K: the last one of an odd
 * number of row groups, and those of gate and up.
 *
 * One thread only loads stages, of all GEMMs one after the other, as far ahead as the
 * ring has room.
 */
#ifndef FDD_KERNELS_CUDA_SM90_MEGA_RING_CUH
#define FDD_KERNELS_CUDA_SM90_MEGA_RING_CUH

#include "kernels/cuda/sm90/gemm_quant.cuh"
#include "kernels/cuda/sm90/mega.cuh"

#define DEPTH_LEAST 5            /* stages of the ring: as many as there is room for */
#define DEPTH_MOST 6
#define FLIGHT     4             /* most halves of stages being loaded at once */
#define FLIGHT_WAIT 2            /* the same while the block waits for packets */
static_assert(FLIGHT < DEPTH_LEAST && FLIGHT_WAIT >= 2,
    "struct ring_ask counts stages of one half too, and may wait for one of two");
#define EVEN       8             /* row groups of a block that count as a few */
#define CHUNK      2048          /* bytes of a chunk: 128 of each of 16 rows of w */
#define HALF       (MEGA_WARPS * CHUNK) /* bytes of a half of a stage */
#define SCALES     (16 * 2 * MEGA_WARPS) /* most scales of a half: [row][128 elements] */

struct __align__(16) ring_what {
    int group[2];                /* row groups of a stage; the second one -1: none */
    int more;                    /* the GEMM has more row groups after these */
    int halves;                  /* of the stage */
};

/* Its stages of weights are at the start of the block's dynamic shared memory. */
struct mega_ring {
    float *scale;                /* [depth][2][SCALES]; used for weights with
                                    a scale per 128 elements */
    uint64_t full[DEPTH_MOST], empty[DEPTH_MOST];
    struct ring_what what[DEPTH_MOST];
    __align__(16) unsigned char zero[64];
    int waits;                   /* 1: the block waits for packets */
};

extern __shared__ __align__(1024) unsigned char mega_memory[];

/* Address of the chunks of half h of a stage. */
static __device__ __forceinline__ uint32_t
ring_half(int slot, int h)
{
    return cu_smem(mega_memory) + (uint32_t)((2 * slot + h) * HALF);
}

static __device__ __forceinline__ float *
ring_scale(const struct mega_ring *r, int slot, int h)
{
    return r->scale + (2 * slot + h) * SCALES;
}

static __device__ __forceinline__ void
ring_start(struct mega_ring *r, float *scale)
{
    r->waits = 1;
    r->scale = scale;
    for (int i = 0; i < (int)sizeof(r->zero); i++)
        r->zero[i] = 0;
    for (int i = 0; i < DEPTH_MOST; i++) {
        cu_bar_init(cu_smem(&r->full[i]), 1);
        cu_bar_init(cu_smem(&r->empty[i]), MEGA_WARPS);
    }
    cu_bar_ready();
}

/* Position in the ring of the loading thread, or of a consumer warp. */
struct ring_at : cu_ring_place {
    int depth;

    __device__ __forceinline__ void
    next(void)
    {
        cu_ring_place::next(depth);
    }
};

/* Groups of 128 elements, each with its own scale, in a row of a half. */
static __host__ __device__ constexpr int
stage_units(int type)
{
    return MEGA_WARPS * mega_chunk(type) / 128;
}

/* Loads rows of half h of a stage, from row `to` of its chunks on: the chunks from c on, w
 * and its scales. The map has the number of rows. */
template<int W>
static __device__ __forceinline__ void
ring_copy(struct mega_ring *r, int slot, int h, int to, const struct mega_matrix &m,
    int scaled, int row, int c, uint64_t policy)
{
    const uint32_t bar = cu_smem(&r->full[slot]);
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global"
        ".mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;"
        :: "r"(ring_half(slot, h) + (uint32_t)(to * (MEGA_WARPS * 128))), "l"(m.map), "r"(0),
        "r"(row), "r"(c), "r"(bar), "l"(policy) : "memory");
    if (scaled)
        quant_box2(cu_smem(ring_scale(r, slot, h) + to * stage_units(W)),
            (const CUtensorMap *)m.scale_map, c * mega_chunk(W) / 128, row, bar);
}

/* State of the loading thread: its position, that of the oldest stage being loaded, and how
 * many halves are. */
struct ring_ask {
    struct ring_at at, oldest;
    int flight;
    uint64_t policy;

    /* Waits until the next slot is free and few enough halves are being loaded, with n
     * more: early loads must take no bandwidth from loads that other blocks wait for, and
     * packets arrive behind what the block asked for before. */
    __device__ __forceinline__ void
    wait(struct mega_ring *r, int n)
    {
        cu_bar_wait(cu_smem(&r->empty[at.slot]), at.parity);
        flight += n;
        while (flight > (*(volatile int *)&r->waits ? FLIGHT_WAIT : FLIGHT)) {
            cu_bar_wait(cu_smem(&r->full[oldest.slot]), oldest.parity);
            flight -= r->what[oldest.slot].halves;
            oldest.next();
        }
    }

    /* Starts a stage with n halves, of these row groups. */
    template<int W>
    __device__ __forceinline__ void
    begin(struct mega_ring *r, int scaled, int group, int second, int more, int n)
    {
        wait(r, n);
        r->what[at.slot] = { { group, second }, more, n };
        cu_bar_expect(cu_smem(&r->full[at.slot]),
            n * (HALF + (scaled ? 16 * stage_units(W) * 4 : 0)));
    }

    /* Two row groups. */
    template<int W>
    __device__ __forceinline__ void
    two(struct mega_ring *r, const struct mega_matrix &m, int scaled, int group, int second,
        int more, int chunks)
    {
#pragma unroll 1
        for (int c = 0; c < chunks; c += MEGA_WARPS) {
            begin<W>(r, scaled, group, second, more, 2);
            ring_copy<W>(r, at.slot, 0, 0, m, scaled, group * 16, c, policy);
            ring_copy<W>(r, at.slot, 1, 0, m, scaled, second * 16, c, policy);
            at.next();
        }
    }

    /* One row group: 16 rows or, if there are F rows of gate, eight of gate and as many of
     * up. */
    template<int W>
    __device__ __forceinline__ void
    one(struct mega_ring *r, const struct mega_matrix &m, int scaled, int group, int more,
        int chunks, int F)
    {
        const int row = group * (F > 0 ? 8 : 16);
#pragma unroll 1
        for (int c0 = 0; c0 < chunks; c0 += 2 * MEGA_WARPS) {
            const int n = c0 + MEGA_WARPS < chunks ? 2 : 1;
            begin<W>(r, scaled, group, -1, more, n);
            for (int h = 0; h < n; h++) {
                const int c = c0 + h * MEGA_WARPS;
                ring_copy<W>(r, at.slot, h, 0, m, scaled, row, c, policy);
                if (F > 0)
                    ring_copy<W>(r, at.slot, h, 8, m, scaled, F + row, c, policy);
            }
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
    const int n = s.N / 16, step = (int)gridDim.x, chunks = s.K / mega_chunk(W);
    int g = (int)blockIdx.x;
#pragma unroll 1
    for (; g + step < n; g += 2 * step)
        ask.two<W>(r, m, s.scaled, g, g + step, g + 2 * step < n, chunks);
    if (g < n)
        ask.one<W>(r, m, s.scaled, g, 0, chunks, 0);
}

/*
 * Gate and up: a row group has the same rows of both. There are many, and memory bandwidth
 * differs between multiprocessors: after its first two row groups each block claims further
 * ones from a counter. The next one is claimed while one is loaded; the last block to claim
 * resets the counter. A few row groups of one stage each are evenly divided: their loads
 * would wait for the claims.
 */
template<int W>
static __device__ __forceinline__ void
feed_gate_up(struct ring_ask &ask, struct mega_ring *r, const struct mega_matrix &m,
    const struct mega_shape &s, uint32_t *claimed)
{
    const int n = s.N / 16, step = (int)gridDim.x, chunks = s.K / mega_chunk(W);
    const bool claims = chunks > 2 * MEGA_WARPS || n > EVEN * step;
    int now = (int)blockIdx.x, next = now + step;
#pragma unroll 1
    while (now < n) {
        const uint32_t claim = claims ? atomicAdd(claimed, 1u) : 0;
        ask.one<W>(r, m, s.scaled, now, next < n, chunks, s.N / 2);
        if (claims && claim == (uint32_t)n - 1)
            *claimed = 0;
        now = next;
        next = claims ? (int)claim + 2 * step : next + step;
    }
}

/* One thread: loads the weights of all GEMMs of all layers. */
template<int W>
static __device__ __forceinline__ void
ring_feed(const struct mega_list &l, struct mega_ring *r)
{
    struct ring_ask ask = { { { 0, 1 }, l.depth }, { { 0, 0 }, l.depth }, 0, 0 };
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(ask.policy));
#pragma unroll 1
    for (int i = 0; i < l.n * MEGA_PRODUCTS; i++) {
        const int p = i % MEGA_PRODUCTS, layer = i / MEGA_PRODUCTS;
        if (p == MEGA_GU)
            feed_gate_up<W>(ask, r, l.layer[layer].m[p], l.shape[p],
                &l.state->claimed[layer]);
        else
            feed_product<W>(ask, r, l.layer[layer].m[p], l.shape[p]);
    }
}

/* Called before and after a wait for packets. */
static __device__ __forceinline__ void
ring_waits(struct mega_ring *r, int waits)
{
    if (threadIdx.x == 0)
        *(volatile int *)&r->waits = waits;
}

/* Releases the stage for this warp. */
static __device__ __forceinline__ void
ring_leave(struct mega_ring *r, struct ring_at &at)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        cu_bar_arrive(cu_smem(&r->empty[at.slot]));
    at.next();
}

#endif
