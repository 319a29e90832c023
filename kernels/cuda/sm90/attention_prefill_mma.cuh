/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Hopper's instructions used by attention_prefill.cu and attention_double.cu: tensor
 * copies, matrix products of a warpgroup (PTX ISA, "Asynchronous Warpgroup Level Matrix
 * Instructions"). Only for sm_90a.
 *
 * Thread t of the warpgroup holds these elements of an m64nNk16 accumulator: columns
 * 8 i + t % 4 * 2 and the next, of rows t / 32 * 16 + t % 32 / 4 (d[4 i], d[4 i + 1]) and
 * eight more (d[4 i + 2], d[4 i + 3]).
 */
#ifndef FDD_KERNELS_CUDA_SM90_ATTENTION_PREFILL_MMA_CUH
#define FDD_KERNELS_CUDA_SM90_ATTENTION_PREFILL_MMA_CUH

#include "kernels/cuda/sm90/sm90.cuh"

/* Named barrier `id` for n threads: named_sync() waits, named_arrive() only arrives. */
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

/* Makes ordinary stores to shared memory visible to the tensor cores. */
static __device__ __forceinline__ void
fence_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Descriptor of a matrix in shared memory, 128-byte swizzle, atoms of 1,024 bytes.
 * K-major: sbo bytes from 8 rows to the next. MN-major: lbo bytes from 64 columns to the
 * next, sbo from 8 steps of k to the next. */
static __device__ __forceinline__ uint64_t
matrix(uint32_t at, uint32_t lbo, uint32_t sbo)
{
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)(lbo >> 4) << 16 |
        (uint64_t)(sbo >> 4) << 32 | (uint64_t)1 << 62;
}

/* R*: operands of d; T*: their numbers %0 .. in the text. After them come a in registers
 * or in shared memory, b in shared memory, whether to add, and the order of b. */
#define R8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
    "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define R32(i) R8(i), R8(i + 8), R8(i + 16), R8(i + 24)
#define T8(a) "%" #a "0, %" #a "1, %" #a "2, %" #a "3, %" #a "4, %" #a "5, %" #a "6, %" #a "7"
#define T10(a) T8(a) ", %" #a "8, %" #a "9"
#define T30 T10() ", " T10(1) ", " T10(2)
#define T60 T30 ", " T10(3) ", " T10(4) ", " T10(5)
#define T90 T60 ", " T10(6) ", " T10(7) ", " T10(8)
#define T32 T30 ", %30, %31"
#define T40 T30 ", " T10(3)
#define T48 T40 ", " T8(4)
#define T64 T60 ", %60, %61, %62, %63"
#define T96 T90 ", %90, %91, %92, %93, %94, %95"
#define T128 T90 ", " T10(9) ", " T10(10) ", " T10(11) ", " T8(12)
#define PRODUCT(n) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 "
#define MMA_SS(n, text, a, b, add, ...) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #add ", 0;\n" PRODUCT(n) \
        "{" text "}, %" #a ", %" #b ", p, 1, 1, 0, 0;\n}" \
        : __VA_ARGS__ : "l"(x), "l"(y), "r"(more))
#define MMA_RS(n, text, a0, a1, a2, a3, b, add, mn, ...) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #add ", 0;\n" PRODUCT(n) \
        "{" text "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b \
        ", p, 1, 1, %" #mn ";\n}" \
        : __VA_ARGS__ : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(y), "r"(more), \
          "n"(MN))

/* d (+)= x y^T: both from shared memory, K-major. */
template<int R>
static __device__ __forceinline__ void
mma_ss(float (&d)[R], uint64_t x, uint64_t y, int more)
{
    static_assert(R == 32 || R == 64, "only these sizes exist");
    if constexpr (R == 32)
        MMA_SS(64, T32, 32, 33, 34, R32(0));
    else
        MMA_SS(128, T64, 64, 65, 66, R32(0), R32(32));
}

/* d (+)= x y: x in registers, y in shared memory: MN-major, or K-major without mn. */
template<int MN, int R>
static __device__ __forceinline__ void
mma_rs(float (&d)[R], const uint32_t *x, uint64_t y, int more)
{
    static_assert(R == 32 || R == 40 || R == 48 || R == 64 || R == 96 || R == 128,
        "only these sizes exist");
    if constexpr (R == 32)
        MMA_RS(64, T32, 32, 33, 34, 35, 36, 37, 38, R32(0));
    else if constexpr (R == 40)
        MMA_RS(80, T40, 40, 41, 42, 43, 44, 45, 46, R32(0), R8(32));
    else if constexpr (R == 48)
        MMA_RS(96, T48, 48, 49, 50, 51, 52, 53, 54, R32(0), R8(32), R8(40));
    else if constexpr (R == 64)
        MMA_RS(128, T64, 64, 65, 66, 67, 68, 69, 70, R32(0), R32(32));
    else if constexpr (R == 96)
        MMA_RS(192, T96, 96, 97, 98, 99, 100, 101, 102, R32(0), R32(32), R32(64));
    else
        MMA_RS(256, T128, 128, 129, 130, 131, 132, 133, 134, R32(0), R32(32), R32(64),
            R32(96));
}

#undef R8
#undef R32
#undef T8
#undef T10
#undef T30
#undef T60
#undef T90
#undef T32
#undef T40
#undef T48
#undef T64
#undef T96
#undef T128
#undef PRODUCT
#undef MMA_SS
#undef MMA_RS

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
