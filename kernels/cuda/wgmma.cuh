/*
 * What every kernel with matrix products of a warpgroup does around them (PTX ISA,
 * "Asynchronous Warpgroup Level Matrix Instructions"). Only for sm_90a.
 */
#ifndef FDD_KERNELS_CUDA_WGMMA_CUH
#define FDD_KERNELS_CUDA_WGMMA_CUH

#include <cuda_runtime.h>

/* Before products whose registers were written otherwise. */
static __device__ __forceinline__ void
cu_wgmma_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* The products since the last end are a group. */
static __device__ __forceinline__ void
cu_wgmma_end(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* All but the last N groups are done. */
template<int N>
static __device__ __forceinline__ void
cu_wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}

/* The compiler does not know that a product in flight writes d. */
template<int N>
static __device__ __forceinline__ void
cu_wgmma_hold(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i]) :: "memory");
}

#endif
