/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Barriers in shared memory (mbarrier) and clusters of blocks. Waits and arrivals are of
 * the block: .acquire.cluster and .release.cluster would invalidate L1
 * and wait for memory, which data shared by TMA and tensor cores does not need.
 */
#ifndef FDD_KERNELS_CUDA_BARRIER_CUH
#define FDD_KERNELS_CUDA_BARRIER_CUH

#include "kernels/cuda/fdk_cuda.cuh"

static __device__ __forceinline__ uint32_t
cu_smem(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void
cu_bar_init(uint32_t bar, uint32_t count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
        :: "r"(bar), "r"(count) : "memory");
}

/* Barriers are ready for copies, in this thread; others must meet it first. */
static __device__ __forceinline__ void
cu_bar_ready(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void
cu_bar_expect(uint32_t bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
        :: "r"(bar), "r"(bytes) : "memory");
}

static __device__ __forceinline__ void
cu_bar_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}

static __device__ __forceinline__ void
cu_bar_wait(uint32_t bar, uint32_t parity)
{
    asm volatile("{\n\t.reg .pred p;\n\t"
        "again_%=:\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t"
        "@!p bra again_%=;\n\t}" :: "r"(bar), "r"(parity) : "memory");
}

/* A place in a ring of stages, each with a barrier, and that barrier's parity there. */
struct cu_ring_place {
    int slot, parity;

    __device__ __forceinline__ void
    next(int n_stage)
    {
        if (++slot == n_stage) {
            slot = 0;
            parity ^= 1;
        }
    }
};

/* In a ring of N. */
template<int N>
struct cu_ring_at : cu_ring_place {
    __device__ __forceinline__ void
    next(void)
    {
        cu_ring_place::next(N);
    }
};

/* What this warp wrote to shared memory may be read by the copy engine and the tensor
 * cores, once who asks them to has been told. */
static __device__ __forceinline__ void
cu_written(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
}

/* In whichever block of the cluster: bar comes from cu_remote(). Orders nothing that
 * another block reads. */
static __device__ __forceinline__ void
cu_bar_arrive_at(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" :: "r"(bar) : "memory");
}

/* ---- clusters ---------------------------------------------------------------------- */

static __device__ __forceinline__ int
cu_cluster_rank(void)
{
    uint32_t r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return (int)r;
}

/* The same place in block `rank` of the cluster. */
static __device__ __forceinline__ uint32_t
cu_remote(uint32_t at, int rank)
{
    uint32_t r;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at), "r"(rank));
    return r;
}

/* All threads of all blocks of the cluster meet; it orders no memory but barriers that
 * cu_bar_ready() came behind. */
static __device__ __forceinline__ void
cu_cluster_arrive(void)
{
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

static __device__ __forceinline__ void
cu_cluster_wait(void)
{
    asm volatile("barrier.cluster.wait;" ::: "memory");
}

#endif
