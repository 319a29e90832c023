/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Helpers of the kernels for sm_90a: barriers in shared memory and the rings they guard,
 * clusters of blocks, tensor maps, matrix products of a warpgroup (PTX ISA: mbarrier,
 * cp.async.bulk.tensor, "Asynchronous Warpgroup Level Matrix Instructions").
 *
 * Waits and arrivals have block scope: .acquire.cluster and .release.cluster would
 * invalidate L1 and wait for memory, which is not needed for data that only TMA and
 * tensor cores access.
 */
#ifndef FDD_KERNELS_CUDA_SM90_SM90_CUH
#define FDD_KERNELS_CUDA_SM90_SM90_CUH

#include <cuda.h>

#include "kernels/cuda/fdk_cuda.cuh"

/* ---- barriers
 * ------------------------------------------------------------------------ */

static __device__ __forceinline__ void
cu_bar_init(uint32_t bar, uint32_t count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
        :: "r"(bar), "r"(count) : "memory");
}

/* After cu_bar_init(): makes the barriers visible to TMA copies of this thread. Other
 * threads must synchronize with it before they use them. */
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

/* Position in a ring of stages: the stage's slot, and the parity to wait for at its
 * barrier. */
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

/* Position in a ring of N stages. */
template<int N>
struct cu_ring_at : cu_ring_place {
    __device__ __forceinline__ void
    next(void)
    {
        cu_ring_place::next(N);
    }
};

/* Makes this warp's writes to shared memory visible to TMA and the tensor cores. The
 * thread that issues their instructions must still synchronize with this warp. */
static __device__ __forceinline__ void
cu_written(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
}

/* Arrives at a barrier of any block of the cluster: bar comes from cu_remote(). Does not
 * order writes that another block reads. */
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

/* Address `at` of shared memory in block `rank` of the cluster. */
static __device__ __forceinline__ uint32_t
cu_remote(uint32_t at, int rank)
{
    uint32_t r;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at), "r"(rank));
    return r;
}

/* Barrier of all threads of the cluster, with cu_cluster_wait(). The only memory it
 * orders is that of barriers after cu_bar_ready(). */
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

/* ---- tensor maps
 * --------------------------------------------------------------------- */

typedef CUresult (*cu_encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
    const cuuint64_t *, const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
    CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill);

/* Calls the driver's encode function. If it is missing, or a test makes it fail, no map
 * can be made: the caller launches nothing and returns -ENOTSUP, and another kernel is
 * used. */
template<class... A>
static inline CUresult
cu_make_map(cu_encode_fn encode, A... a)
{
    return encode == NULL || cu_map_refused() ? CUDA_ERROR_NOT_SUPPORTED : encode(a...);
}

/* Prefetches the descriptor itself before the first copy that uses it. */
static __device__ __forceinline__ void
cu_prefetch_map(const CUtensorMap *m)
{
    asm volatile("prefetch.tensormap [%0];" :: "l"(m) : "memory");
}

/* *ret: cuTensorMapEncodeTiled, or NULL if the driver does not have it or the query
 * failed. Returns the error of the query. */
static inline cudaError_t
cu_find_encode(cu_encode_fn *ret)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *f = NULL;
    cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000,
        cudaEnableDefault, &found);
    *ret = e == cudaSuccess && found == cudaDriverEntryPointSuccess ? (cu_encode_fn)f :
        NULL;
    return e;
}

/* ---- products of a warpgroup
 * ----------------------------------------------------------- */

/* Must precede products whose registers were written by other instructions. */
static __device__ __forceinline__ void
cu_wgmma_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Commits the products since the last call as a group. */
static __device__ __forceinline__ void
cu_wgmma_end(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until all groups but the last N are done. */
template<int N>
static __device__ __forceinline__ void
cu_wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}

/* Keeps d in its registers: the compiler cannot see that a product in flight writes
 * them. */
template<int N>
static __device__ __forceinline__ void
cu_wgmma_hold(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i]) :: "memory");
}

/* D*: registers of d as read-write operands of inline PTX. P*: their operand numbers in
 * the text of the instruction. */
#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(i) D4(i), D4(i + 4), D4(i + 8), D4(i + 12)
#define D64 D16(0), D16(16), D16(32), D16(48)
#define P4(a, b, c, e) "%" #a ", %" #b ", %" #c ", %" #e
#define P16A P4(0, 1, 2, 3) ", " P4(4, 5, 6, 7) ", " P4(8, 9, 10, 11) ", " \
    P4(12, 13, 14, 15)
#define P16B P4(16, 17, 18, 19) ", " P4(20, 21, 22, 23) ", " P4(24, 25, 26, 27) ", " \
    P4(28, 29, 30, 31)
#define P16C P4(32, 33, 34, 35) ", " P4(36, 37, 38, 39) ", " P4(40, 41, 42, 43) ", " \
    P4(44, 45, 46, 47)
#define P16D P4(48, 49, 50, 51) ", " P4(52, 53, 54, 55) ", " P4(56, 57, 58, 59) ", " \
    P4(60, 61, 62, 63)

#endif
