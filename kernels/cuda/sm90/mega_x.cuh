/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The input of a GEMM of mega_kernel.cu: one row x, in shared memory in the form that the
 * tensor cores need for the type of weights.
 *
 * bf16 weights are multiplied with x as it is. For other types, each 128 elements of x
 * share a power of two as scale. For e4m3 weights x is in half precision, exact except
 * for elements below 2^-28 of the largest. Integer weights stay integers: x is written in
 * three digits of base 256, each a column of the product. The digits hold 21 bits and a
 * sign, so that parts below 2^-22 of the largest of the 128 elements are lost, as in a
 * sum of floats.
 */
#ifndef FDD_KERNELS_CUDA_SM90_MEGA_X_CUH
#define FDD_KERNELS_CUDA_SM90_MEGA_X_CUH

#include "kernels/cuda/generic/vec8.cuh"
#include "kernels/cuda/sm90/mega_meet.cuh"
#include "kernels/cuda/sm90/mega_words.cuh"

#define DIGITS 3
#define DIGITS_AT 147            /* 126 + the 21 bits that digits hold: e of x_bring() */
#define HALVES_AT 141            /* 126 + 15 for half precision */
#define TAKEN  7                 /* times 8 elements that a thread loads at once */

/* Barrier of the consumer warps. */
static __device__ __forceinline__ void
mega_sync(void)
{
    asm volatile("bar.sync 1, %0;" :: "n"(MEGA_THREADS) : "memory");
}

static __host__ __device__ constexpr bool
integers(int type)
{
    return type == FDK_I4 || type == FDK_I8;
}

static __host__ __device__ constexpr bool
has_units(int type)
{
    return type != FDK_BF16;
}

/* The power of two of each 128 elements; stored after the elements. */
template<int W>
static __device__ __forceinline__ const float *
x_units(const unsigned char *x, int K)
{
    return (const float *)(x + (integers(W) ? DIGITS * (K + 16) : 2 * K));
}

/* Factor for 128 elements: 2^(e - up). up: biased exponent of the largest of them, so
 * that the products are below 2^(e - 126). */
static __device__ __forceinline__ float
x_bring(uint32_t up, uint32_t e)
{
    return __uint_as_float((e + 127 - up) << 23);
}

/* Stores the inverse factor, for the results. */
template<int W>
static __device__ __forceinline__ void
x_unit_put(unsigned char *x, int K, int i, uint32_t up, uint32_t e)
{
    if (i % 16 == 0)                             /* NaN and Inf become NaN */
        ((float *)x_units<W>(x, K))[i / 16] = up == 255 ? NAN :
            __uint_as_float((up - (e - 127)) << 23);
}

/* Byte d of each of four 32-bit values. */
static __device__ __forceinline__ uint32_t
bytes4(int d, uint32_t a, uint32_t b, uint32_t c, uint32_t e)
{
    const uint32_t pick = (uint32_t)(d | (4 + d) << 4);
    return __byte_perm(__byte_perm(a, b, pick), __byte_perm(c, e, pick), 0x5410);
}

static __device__ __forceinline__ uint32_t
larger2(uint32_t a, uint32_t b)
{
    uint32_t r;                                  /* NaN stays NaN */
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* Largest magnitude of the 128 elements in 16 adjacent lanes, as the bits of a float. */
static __device__ __forceinline__ uint32_t
x_most(const uint4 &v)
{
    const uint32_t sign = 0x7fff7fffu;
    uint32_t m = larger2(larger2(v.x & sign, v.y & sign), larger2(v.z & sign, v.w & sign));
#pragma unroll
    for (int k = 8; k > 0; k /= 2)
        m = larger2(m, __shfl_xor_sync(0xffffffffu, m, k));
    return max(m << 16, m & 0xffff0000u);
}

/* Writes elements 8 i to 8 i + 7, bf16, as digits; 16 adjacent lanes have 128 elements.
 * An element times a power of two, below 2^21 in magnitude, added to 1.5 * 2^23 + 0x8080
 * is an integer in the last three bytes of the sum: digits plus 0x40, 0x80 and 0x80. */
template<int W>
static __device__ __forceinline__ void
x_digits(unsigned char *x, int K, int i, bool in, const uint4 &v)
{
    const uint32_t half[4] = { v.x, v.y, v.z, v.w };
    const uint32_t up = max(x_most(v) >> 23, 22u); /* 2^(up - 126) is above all of them */
    const float bring = x_bring(up, DIGITS_AT);
    uint32_t u[8];
#pragma unroll
    for (int e = 0; e < 8; e++)
        u[e] = __float_as_uint(fmaf(__uint_as_float(e % 2 == 0 ? half[e / 2] << 16 :
            half[e / 2] & 0xffff0000u), bring, 12615808.0f));
    if (!in)
        return;
#pragma unroll
    for (int d = 0; d < DIGITS; d++) {
        const uint32_t off = d == DIGITS - 1 ? 0x40404040u : 0;
        uint32_t a = W == FDK_I4 ? bytes4(d, u[0], u[2], u[4], u[6]) :
            bytes4(d, u[0], u[1], u[2], u[3]);
        uint32_t b = W == FDK_I4 ? bytes4(d, u[1], u[3], u[5], u[7]) :
            bytes4(d, u[4], u[5], u[6], u[7]);
        *(uint2 *)(x + d * (K + 16) + 8 * i) = make_uint2((a + off) ^ 0x80808080u,
            (b + off) ^ 0x80808080u);
    }
    x_unit_put<W>(x, K, i, up, DIGITS_AT);
}

/* Writes elements 8 i to 8 i + 7 in half precision: below 2^15. */
static __device__ __forceinline__ void
x_halves(unsigned char *x, int K, int i, bool in, const uint4 &v)
{
    const uint32_t half[4] = { v.x, v.y, v.z, v.w };
    const uint32_t up = max(x_most(v) >> 23, 22u);
    const float bring = x_bring(up, HALVES_AT);
    uint32_t u[4];
#pragma unroll
    for (int e = 0; e < 4; e++)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(u[e]) :
            "f"(__uint_as_float(half[e] & 0xffff0000u) * bring),
            "f"(__uint_as_float(half[e] << 16) * bring));
    if (!in)
        return;
    *(uint4 *)(x + 16 * i) = make_uint4(u[0], u[1], u[2], u[3]);
    x_unit_put<FDK_F8E4M3>(x, K, i, up, HALVES_AT);
}

/* Writes eight bf16 elements per lane; called by all lanes of a warp. in: this lane has
 * any. */
template<int W>
static __device__ __forceinline__ void
x_put(unsigned char *x, int K, int i, bool in, const uint4 &v)
{
    if constexpr (integers(W))
        x_digits<W>(x, K, i, in, v);
    else if constexpr (W == FDK_F8E4M3)
        x_halves(x, K, i, in, v);
    else if (in)
        *(uint4 *)(x + 16 * i) = v;
}

/* Reads x from the packets that other blocks write from `at` on. */
template<int W>
static __device__ __forceinline__ void
x_take(unsigned char *x, const struct words &w, int at, int K)
{
    const int n = K / 8, step = 4 * MEGA_THREADS;
#pragma unroll 1
    for (int i0 = 0; i0 < n; i0 += TAKEN * MEGA_THREADS) {
        const int i = i0 + (int)threadIdx.x;
        struct words4<TAKEN> v;
        words_ask(v, w, at + word_of_piece(i), step, (n - i + MEGA_THREADS - 1) /
            MEGA_THREADS);
#pragma unroll
        for (int k = 0; k < TAKEN; k++)
            if (i0 + k * MEGA_THREADS < n)
                x_put<W>(x, K, i + k * MEGA_THREADS, i + k * MEGA_THREADS < n,
                    words_get(v, k, w, at + word_of_piece(i), step));
    }
    mega_sync();
}

/* ---- norms ----------------------------------------------------------------------- */

/* The residual stream, or a norm's weights: vectors of 8 elements from 8 (thread +
 * MEGA_THREADS k) on. Each block's stream has its own memory, mostly in L2: it arrives
 * before the values to add to it. */
struct norm_row {
    struct cu_raw8<float> v[MEGA_UNITS];
};

static __device__ __forceinline__ struct norm_row
row_load(const float *x, int C)
{
    struct norm_row r;
#pragma unroll
    for (int k = 0; k < MEGA_UNITS; k++) {
        int i = (int)threadIdx.x + k * MEGA_THREADS;
        r.v[k] = i < C / 8 ? cu_load8(x, (size_t)i) : cu_zero8<float>();
    }
    return r;
}

/* Returns the block's sum in every thread. part: a float for each warp. */
static __device__ __forceinline__ float
block_sum(float sum, float *part)
{
    sum = cu_warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    mega_sync();
    sum = 0;
#pragma unroll
    for (int i = 0; i < MEGA_WARPS; i++)
        sum += part[i];
    return sum;
}

/* Input and output of a norm. Added to the stream: meet if set, else add if set, else
 * words. */
struct norm_of {
    const float *from;           /* [C] the stream before */
    const uint4 *add;            /* bf16 */
    struct words words;          /* packets from `at` on */
    int at;                      /* -1: nothing is added */
    struct meet_at meet;         /* sums over the ranks */
    float *to;                   /* [C] the stream after */
    const float *weight;         /* [C] */
};

template<bool RANKS>
static __device__ __forceinline__ void
norm_take(uint4 add[MEGA_UNITS], const struct norm_of &n, int C)
{
    const int i = (int)threadIdx.x, all = (C / 8 - i + MEGA_THREADS - 1) / MEGA_THREADS;
    if (RANKS && n.meet.meet != NULL) {
#pragma unroll
        for (int k = 0; k < MEGA_UNITS; k += 2)  /* more at once would spill registers */
            meet_take<2>(add + k, n.meet, word_of_piece(i) + 4 * MEGA_THREADS * k,
                4 * MEGA_THREADS, all - k);
        return;
    }
    if (!RANKS && n.add == NULL) {
        words_take4<MEGA_UNITS>(add, n.words, n.at + word_of_piece(i), 4 * MEGA_THREADS,
            n.at < 0 ? 0 : all);
        return;
    }
#pragma unroll
    for (int k = 0; k < MEGA_UNITS; k++)
        add[k] = k < all && n.add != NULL ? n.add[i + k * MEGA_THREADS] :
            make_uint4(0, 0, 0, 0);
}

/* Adds to the residual stream and writes its norm to x. */
template<int W, bool RANKS>
static __device__ __forceinline__ void
x_norm(unsigned char *x, const struct norm_of &n, int C, float eps, float *part)
{
    const struct norm_row before = row_load(n.from, C);
    struct norm_row weight;
    float v[MEGA_UNITS][8], sum = 0;
    uint4 add[MEGA_UNITS];
    if (!RANKS)
        weight = row_load(n.weight, C);
    norm_take<RANKS>(add, n, C);
    if (RANKS)                                   /* later: the sums need the registers */
        weight = row_load(n.weight, C);
#pragma unroll
    for (int k = 0; k < MEGA_UNITS; k++) {
        const struct cu_raw8<__nv_bfloat16> raw = { { add[k] } };
        cu_widen8(before.v[k], v[k]);
        sum += cu_norm_add8(v[k], raw);
    }
    const float inv = rsqrtf(block_sum(sum, part) / (float)C + eps);
#pragma unroll
    for (int k = 0; k < MEGA_UNITS; k++) {
        const int i = (int)threadIdx.x + k * MEGA_THREADS;
        __align__(16) __nv_bfloat16 y[8];
        if (k * MEGA_THREADS >= C / 8)
            break;
        if (i < C / 8)
            cu_store8(n.to, (size_t)i, v[k]);
        cu_norm_out8(y, weight.v[k], 0, v[k], inv);
        x_put<W>(x, C, i, i < C / 8, *(const uint4 *)y);
    }
    mega_sync();
}

#endif
