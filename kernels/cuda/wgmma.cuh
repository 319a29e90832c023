/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
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

/* Registers of d as operands that are read and written, and their numbers in the text of an
 * instruction. */
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
