/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the GEMMs with quantized weights that use wgmma. A is 64 rows of w for a
 * group of four warps, converted to bf16 in registers; B is rows of x in shared memory.
 * Both are loaded through a ring of stages of BK elements of K: first x, in two halves of
 * K, then w.
 *
 * The order of k within a product is free as long as both operands agree: of 32
 * elements of K, lane (g, t) has the 8 consecutive ones from 8 t on of rows g and
 * g + 8 of w, and x is reordered accordingly.
 *
 * The tensor cores sum the products of UNIT elements; that sum times its
 * scale is added to the row's sum in fp32, in ascending order of k. UNIT is BK, or 32 if
 * groups are not multiples of BK.
 */
#ifndef FDD_KERNELS_CUDA_SM90_GEMM_QUANT_WGMMA_CUH
#define FDD_KERNELS_CUDA_SM90_GEMM_QUANT_WGMMA_CUH

#include "kernels/cuda/sm90/gemm_quant.cuh"
#include "kernels/cuda/sm90/sm90.cuh"

#define BK 128

/* ---- stages ------------------------------------------------------------------------ */

struct ring {
    int slot;
    uint32_t parity;
};

template<int DEPTH>
static __device__ __forceinline__ void
onward(struct ring *r)
{
    if (++r->slot == DEPTH) {
        r->slot = 0;
        r->parity ^= 1;
    }
}

/* ---- wgmma ------------------------------------------------------------------------- */

/* Descriptor of rows of 128 bytes at `at`, from byte `off` of each row on, with 128-byte
 * swizzle. */
static __device__ __forceinline__ uint64_t
operand(uint32_t at, uint32_t off)
{
    uint32_t low = (((at & 0x3ffff) >> 4) | 1 << 16) + (off >> 4);
    return (uint64_t)low | (uint64_t)(1024 >> 4 | 1 << 30) << 32;
}

#define WGMMA(n, d, a, b, add) "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #add ", 0;\n\t" \
    "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" d "}, {" a "}, %" #b \
    ", p, 1, 1, 0;\n\t}"
#define AB "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add)

/* d (+)= a b over 16 elements of K. */
template<int N>
static __device__ __forceinline__ void
multiply(float (&d)[N], const uint32_t *a, uint64_t b, int add)
{
    if constexpr (N == 16)
        asm volatile(WGMMA(32, P16A, P4(16, 17, 18, 19), 20, 21) : D16(0) : AB);
    else
        asm volatile(WGMMA(128, P16A ", " P16B ", " P16C ", " P16D, P4(64, 65, 66, 67), 68,
            69)
            : D64 : AB);
}

/* ---- a stage ----------------------------------------------------------------------- */

/* Loads the lane's weights of 32 elements of K, rows g and g + 8 of the warp. at: the
 * stage's rows of w, with 64-byte swizzle for 4-bit weights, else 128-byte swizzle. */
template<int W>
static __device__ __forceinline__ void
take_w(uint32_t v[2][2], uint32_t at, int row, int j)
{
    const uint32_t t = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t r = (uint32_t)(row + 8 * h);
        if constexpr (W == FDK_I4)
            asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v[h][0])
                : "r"(at + r * 64 + (((uint32_t)j ^ (r / 2 % 4)) * 16) + 4 * t));
        else
            asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(v[h][0]), "=r"(v[h][1])
                : "r"(at + r * 128 + (((uint32_t)(2 * j) + t / 2) ^ (r % 8)) * 16 +
                t % 2 * 8));
    }
}

/* Converts weights to the A operands of twice 16 elements. */
template<int W>
static __device__ __forceinline__ void
widen(uint32_t a[2][4], const uint32_t v[2][2], uint32_t ones)
{
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[s][i] = quant_pair<W>(v[i % 2], 2 * s + i / 2, ones);
}

template<int N>
static __device__ __forceinline__ void
scale_sums(float (&total)[N], float (&d)[N], float s0, float s1)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        total[i] = fmaf(i % 4 < 2 ? s0 : s1, d[i], total[i]);
}

#endif
