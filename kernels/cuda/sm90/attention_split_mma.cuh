/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions used by attention_split.cu: TMA copies (PTX ISA,
 * "cp.async.bulk.tensor"), matrix products of a warp, and the conversion of stored bytes
 * to their operands. For sm_90 and later.
 */
#ifndef FDD_KERNELS_CUDA_SM90_ATTENTION_SPLIT_MMA_CUH
#define FDD_KERNELS_CUDA_SM90_ATTENTION_SPLIT_MMA_CUH

#include "kernels/cuda/generic/kv.cuh"
#include "kernels/cuda/sm90/sm90.cuh"

#include <type_traits>

/* Loads a TMA tile of block `block` that is read once. at, eight: its second and fourth
 * coordinates; the first and the third are 0. */
static __device__ __forceinline__ void
fetch(uint32_t to, const CUtensorMap *m, int at, int eight, int block, uint32_t bar)
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::"
        "complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %2, %4, %5}], [%6], %7;"
        :: "r"(to), "l"(m), "r"(0), "r"(at), "r"(eight), "r"(block), "r"(bar), "l"(policy)
        : "memory");
}

static __device__ __forceinline__ void
fetch_bytes(uint32_t to, const void *src, uint32_t bytes, uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1], %2, [%3];" :: "r"(to), "l"(src), "r"(bytes), "r"(bar) : "memory");
}

static __device__ __forceinline__ void
load4(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

static __device__ __forceinline__ void
load4_turned(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

/* Product in bf16, or in half precision for e4m3. */
template<typename E>
static __device__ __forceinline__ void
mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    if (std::is_same<E, __nv_fp8_e4m3>::value)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Transposes 8 by 8 two-byte numbers. */
static __device__ __forceinline__ uint32_t
turn(uint32_t x)
{
    uint32_t r;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(x));
    return r;
}

static __device__ __forceinline__ float
power2(float x)
{
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

/* Packs two numbers for a product with E. */
template<typename E>
static __device__ __forceinline__ uint32_t
pack(float lo, float hi)
{
    uint32_t r;
    if (std::is_same<E, __nv_fp8_e4m3>::value)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

/* Converts four stored bytes exactly to two registers: bytes 0 1 and 2 3, or if TURNED 0
 * 2 and 1 3. int8 is 128 + its low seven bits, minus 128 or, if negative, 256. */
template<typename E, bool TURNED>
static __device__ __forceinline__ void
widen4(uint32_t x, uint32_t *a, uint32_t *b)
{
    if (std::is_same<E, int8_t>::value) {
        uint32_t *r[2] = { a, b };
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t y = TURNED ? x >> 8 * i : __byte_perm(x, 0, i ? 0x4342 : 0x4140);
            uint32_t low = (y & 0x007f007fu) | 0x43004300u;
            uint32_t off = (y & 0x00800080u) | 0x43004300u;
            asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(*r[i]) : "r"(low), "r"(off));
        }
    } else {
        uint32_t y = TURNED ? __byte_perm(x, 0, 0x3120) : x;
        asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; "
            "cvt.rn.f16x2.e4m3x2 %1, h;}" : "=r"(*a), "=r"(*b) : "r"(y));
    }
}

#endif
