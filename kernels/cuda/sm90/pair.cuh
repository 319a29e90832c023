/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Adds the sums of a CTA pair, two blocks of a cluster that have computed the same
 * results over different splits of K. Eight warps multiply; warps of the same number in
 * both blocks have sums of the same results. Block 0 owns the results of warps 0 to 3,
 * block 1 the others. The warp of the other block copies its sums to the owner's ring,
 * after both blocks have finished reading their rings.
 */
#ifndef FDD_KERNELS_CUDA_SM90_PAIR_CUH
#define FDD_KERNELS_CUDA_SM90_PAIR_CUH

#include "kernels/cuda/sm90/sm90.cuh"

#define PAIR_WARPS 8

struct cu_pair {                 /* barriers, in each block's shared memory */
    uint64_t done;               /* all warps of the cluster have read their rings */
    uint64_t sent[PAIR_WARPS];   /* the other block's sums for this warp have arrived */
    uint64_t taken;              /* all these sums have been read: the ring is free
                                    again */
};

/* Bytes of each block's ring used to exchange N sums per lane. */
static constexpr int
cu_pair_bytes(int N)
{
    return PAIR_WARPS * N * 128;
}

/* Called by one thread; cu_bar_ready() and a block barrier must follow. */
static __device__ __forceinline__ void
cu_pair_init(struct cu_pair *p)
{
    cu_bar_init(cu_smem(&p->done), PAIR_WARPS * 2);
    for (int i = 0; i < PAIR_WARPS; i++)
        cu_bar_init(cu_smem(&p->sent[i]), 1);
    cu_bar_init(cu_smem(&p->taken), PAIR_WARPS);
}

/* Does this block own the results of the calling warp? */
static __device__ __forceinline__ int
cu_pair_mine(int rank)
{
    return (int)threadIdx.x / (32 * PAIR_WARPS / 2) == rank;
}

/* Called by the producer of the ring, with the parity of the previous exchange.
 * Afterwards the ring may be filled again, and the block may end, as the other block
 * sends no more. */
static __device__ __forceinline__ void
cu_pair_over(struct cu_pair *p, int parity)
{
    cu_bar_wait(cu_smem(&p->done), parity);
    cu_bar_wait(cu_smem(&p->taken), parity);
}

/* Called by warps 0 to 7 of both blocks, which have finished reading their rings: adds
 * the other block's d to d if this block owns the results. lives: 0 if the warp's results
 * are not needed; equal in both blocks and in every call. parity: of the number of
 * earlier calls. Uses named barrier 3. */
template<int N>
static __device__ __forceinline__ void
cu_pair_add(float (&d)[N], unsigned char *ring, struct cu_pair *p, int rank, int lives,
    int parity)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int bytes = N * 128, mine = cu_pair_mine(rank);
    unsigned char *in = ring + warp % (PAIR_WARPS / 2) * bytes;
    unsigned char *leaves = in + PAIR_WARPS / 2 * bytes;
    const uint32_t sent = cu_smem(&p->sent[warp]);
    if (mine && lives && lane == 0)
        cu_bar_expect(sent, bytes);
    __syncwarp();
    if (lane < 2)
        cu_bar_arrive_at(cu_remote(cu_smem(&p->done), lane));
    asm volatile("bar.sync 3, %0;" :: "n"(PAIR_WARPS * 32) : "memory");
    if (!mine) {
        if (!lives)
            return;
#pragma unroll
        for (int i = 0; i < N / 4; i++)
            *(float4 *)(leaves + i * 512 + lane * 16) = make_float4(d[4 * i], d[4 * i + 1],
                d[4 * i + 2], d[4 * i + 3]);
        cu_written();
        cu_bar_wait(cu_smem(&p->done), parity);
        if (lane == 0)
            asm volatile("cp.async.bulk.shared::cluster.shared::cta"
                ".mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                :: "r"(cu_remote(cu_smem(in), rank ^ 1)), "r"(cu_smem(leaves)),
                "r"(bytes), "r"(cu_remote(sent, rank ^ 1)) : "memory");
        return;
    }
    if (lives) {
        cu_bar_wait(sent, parity);
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            const float4 v = *(const float4 *)(in + i * 512 + lane * 16);
            d[4 * i] += v.x;
            d[4 * i + 1] += v.y;
            d[4 * i + 2] += v.z;
            d[4 * i + 3] += v.w;
        }
    }
    cu_written();
    if (lane < 2)
        cu_bar_arrive_at(cu_remote(cu_smem(&p->taken), lane));
}

#endif
