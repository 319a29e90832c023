/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Hopper's instructions as attention_prefill.cu uses them: tensor copies, matrix products
 * of a warpgroup (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"). Only for
 * sm_90a.
 *
 * Of an m64nNk16 accumulator, thread t of the warpgroup holds, of rows
 * t / 32 * 16 + t % 32 / 4 (d[4 i], d[4 i + 1]) and eight more (d[4 i + 2], d[4 i + 3]),
 * the columns 8 i + t % 4 * 2 and the next.
 */
#ifndef FDD_KERNELS_CUDA_ATTENTION_PREFILL_MMA_CUH
#define FDD_KERNELS_CUDA_ATTENTION_PREFILL_MMA_CUH

#include "kernels/cuda/barrier.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/wgmma.cuh"

/* Barrier id for n threads, of which some only say that they were there. */
static __device__ __forceinline__ void
named_sync(int id, int n)
{
    asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(n) : "memory");
}

static __device__ __forceinline__ void
named_arrive(int id, int n)
{
    asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(n) : "memory");
}

static __device__ __forceinline__ void
copy_3d(uint32_t dst, const CUtensorMap *map, uint32_t bar, int a, int b, int c)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier"
        "::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
        :: "r"(dst), "l"(map), "r"(bar), "r"(a), "r"(b), "r"(c) : "memory");
}

static __device__ __forceinline__ void
copy_5d(uint32_t dst, const CUtensorMap *map, uint32_t bar, int group, int block)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier"
        "::complete_tx::bytes [%0], [%1, {%3, %3, %3, %4, %5}], [%2];"
        :: "r"(dst), "l"(map), "r"(bar), "r"(0), "r"(group), "r"(block) : "memory");
}

/* What ordinary stores put into shared memory is there for the tensor cores. */
static __device__ __forceinline__ void
fence_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* A matrix in shared memory, 128-byte swizzle, atoms of 1,024 bytes. K-major: sbo
 * bytes from 8 rows to the next. MN-major: lbo bytes from 64 columns to the next, sbo
 * from 8 steps of k to the next. */
static __device__ __forceinline__ uint64_t
matrix(uint32_t at, uint32_t lbo, uint32_t sbo)
{
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)(lbo >> 4) << 16 |
        (uint64_t)(sbo >> 4) << 32 | (uint64_t)1 << 62;
}

#define D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
    "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define REGS32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGS64 REGS32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
    "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, " \
    "%60, %61, %62, %63"

/* d (+)= a b^T: both from shared memory, K-major. */
static __device__ __forceinline__ void
mma_ss(float (&d)[64], uint64_t a, uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" REGS64 "}, "
        "%64, %65, p, 1, 1, 0, 0;\n}"
        : D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56)
        : "l"(a), "l"(b), "r"(add));
}

/* d (+)= a b: a in registers, b in shared memory: MN-major, or K-major without mn. */
template<int MN>
static __device__ __forceinline__ void
mma_rs(float (&d)[64], const uint32_t *a, uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" REGS64 "}, "
        "{%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}"
        : D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(MN));
}

template<int MN>
static __device__ __forceinline__ void
mma_rs(float (&d)[32], const uint32_t *a, uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" REGS32 "}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"
        : D8(0), D8(8), D8(16), D8(24)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(MN));
}

#undef D8
#undef REGS32
#undef REGS64

static __device__ __forceinline__ float
exp2_fast(float x)
{
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

/* Two floats as bf16, x in the low half. */
static __device__ __forceinline__ uint32_t
pack_bf16(float x, float y)
{
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    return r;
}

#endif
