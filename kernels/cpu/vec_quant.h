/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Sixteen quantized weights of one row and group as floats: stored * scale,
 * rounded once, as fdk_gemm_args says. Private to kernels/cpu/isa_gemm.c.
 * FDK_F8E4M3: 0x7f and 0xff are NaN whatever the scale, and scales are at
 * most FLT_MAX / 448.
 *
 * q_scale() prepares a group's scale; q_load() converts. With
 * AVX-512 the sixteen possible values of a group of 4-bit weights are a table, and a
 * weight is looked up instead of computed: broadcast, shift, permute. This
 * gives the sixteen weights in another order of lanes. q_order() reorders x
 * in the same way and q_unorder() restores the order of the sums: each lane
 * still adds the same products in the same order.
 *
 * The bits of an e4m3 number, shifted up by one below the sign, are those of
 * the half-precision number that is 2^-8 times as large, subnormals included.
 * The processor converts it; the scale undoes the factor exactly.
 */
#ifndef FDD_KERNELS_CPU_VEC_QUANT_H
#define FDD_KERNELS_CPU_VEC_QUANT_H

#include <math.h>

#include "kernels/cpu/kv8.h"
#include "kernels/cpu/vec.h"

#define Q_TABLE(t) (CPU_ISA == 2 && (t) == FDK_I4)

VEC size_t
q_bytes(enum fdk_dtype t, size_t n)
{
    return t == FDK_I4 ? n / 2 : n;
}

VEC v16
q_order(v16 x, enum fdk_dtype t)
{
#if CPU_ISA == 2
    if (Q_TABLE(t)) {
        const __m512i lane =
            _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
        x.a = (vf)_mm512_permutexvar_ps(lane, (__m512)x.a);
    }
#else
    (void)t;
#endif
    return x;
}

VEC v16
q_unorder(v16 x, enum fdk_dtype t)
{
#if CPU_ISA == 2
    if (Q_TABLE(t)) {
        const __m512i lane =
            _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
        x.a = (vf)_mm512_permutexvar_ps(lane, (__m512)x.a);
    }
#else
    (void)t;
#endif
    return x;
}

VEC v16
q_scale(float scale, enum fdk_dtype t)
{
    /* Where half precision is used, the converted number is 2^-8 of the e4m3 number. */
    v16 s = v_set1(CPU_ISA != 0 && t == FDK_F8E4M3 ? scale * 256 : scale);
#if CPU_ISA == 2
    if (Q_TABLE(t)) {
        const __m512 v =
            _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
        s.a = (vf)_mm512_mul_ps((__m512)s.a, v);
    }
#else
    (void)t;
#endif
    return s;
}

#if CPU_ISA != 0
/* Converts sixteen e4m3 numbers to half precision, times 2^-8; NaN becomes
 * 2^-8 * 480. */
VEC __m256i
q_f8_half(__m128i b)
{
    __m256i h = _mm256_slli_epi16(_mm256_cvtepi8_epi16(b), 7);
    return _mm256_and_si256(h, _mm256_set1_epi16((int16_t)0xbfff));
}
#endif

#if CPU_ISA == 2
VEC v16
q_load(const void *p, v16 s, enum fdk_dtype t)
{
    v16 r;
    if (t == FDK_I4) {
        const __m512i shift = _mm512_setr_epi64(0, 4, 8, 12, 16, 20, 24, 28);
        int64_t w;
        memcpy(&w, p, 8);
        /* The permutation reads only the low four bits of each lane. */
        __m512i i = _mm512_srlv_epi64(_mm512_set1_epi64(w), shift);
        r.a = (vf)_mm512_permutexvar_ps(i, (__m512)s.a);
    } else if (t == FDK_F8E4M3) {
        __m128i b = _mm_loadu_si128(p);
        __mmask16 ok = _mm_cmpneq_epi8_mask(_mm_add_epi8(b, b), _mm_set1_epi8(-2));
        r.a = (vf)_mm512_mask_mul_ps(_mm512_set1_ps(NAN), ok,
            _mm512_cvtph_ps(q_f8_half(b)), (__m512)s.a);
    } else {
        __m512i i = _mm512_cvtepi8_epi32(_mm_loadu_si128(p));
        r.a = (vf)_mm512_mul_ps(_mm512_cvtepi32_ps(i), (__m512)s.a);
    }
    return r;
}
#elif CPU_ISA == 1
VEC __m256i
q_half(const void *p, int half, enum fdk_dtype t)
{
    if (t == FDK_I4) {
        const __m256i shift = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0);
        int32_t w;
        memcpy(&w, (const char *)p + 4 * half, 4);
        return _mm256_srai_epi32(_mm256_sllv_epi32(_mm256_set1_epi32(w), shift), 28);
    }
    return _mm256_cvtepi8_epi32(
        _mm_loadl_epi64((const __m128i *)(const void *)((const char *)p + 8 * half)));
}

VEC v16
q_load(const void *p, v16 s, enum fdk_dtype t)
{
    v16 r;
    if (t == FDK_F8E4M3) {
        __m128i b = _mm_loadu_si128(p);
        __m128i nan = _mm_cmpeq_epi8(_mm_add_epi8(b, b), _mm_set1_epi8(-2));
        __m256i h = _mm256_or_si256(q_f8_half(b), _mm256_cvtepi8_epi16(nan));
        r.a = (vf)_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(h)), (__m256)s.a);
        r.b = (vf)_mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(h, 1)),
            (__m256)s.b);
        return r;
    }
    r.a = (vf)_mm256_mul_ps(_mm256_cvtepi32_ps(q_half(p, 0, t)), (__m256)s.a);
    r.b = (vf)_mm256_mul_ps(_mm256_cvtepi32_ps(q_half(p, 1, t)), (__m256)s.b);
    return r;
}
#else
typedef uint8_t q_u4 __attribute__((vector_size(4)));
typedef int16_t q_h4 __attribute__((vector_size(8)));
typedef int16_t q_h8 __attribute__((vector_size(16)));

/* Piece i of four of sixteen 4-bit integers, as floats. */
VEC vf
q_piece(const char *p, int i)
{
    q_u4 b;
    q_h4 h;
    memcpy(&b, p + 4 * (i / 2), 4);
    /* Moves a byte's halves to the halves of its 32-bit lane, in order. */
    vu v = __builtin_convertvector(b, vu);
    q_h8 all = (q_h8)((v | v << 12) & 0x000f000fu);
    all = (all ^ 8) - 8;
    memcpy(&h, (const char *)&all + 8 * (i % 2), 8);
    return __builtin_convertvector(__builtin_convertvector(h, vi), vf);
}

/* Converts four e4m3 numbers. The exponent biases differ by 120. A subnormal number has
 * no leading 1: it is converted as if it had one, with the exponent of the smallest
 * normal numbers, and the value of that leading 1 is subtracted. */
VEC vf
q_f8_piece(const char *p)
{
    q_u4 b;
    memcpy(&b, p, 4);
    vu v = __builtin_convertvector(b, vu), mag = v & 0x7f;
    vu small = (vu)(mag < 8), nan = (vu)(mag == 0x7f);
    vf f = (vf)((mag << 20) + (120u << 23) + (small & 1u << 23));
    f -= (vf)(small & 0x3c800000u); /* 2^-6 */
    return (vf)((vu)f | (v & 0x80) << 24 | (nan & 0x7fc00000u));
}

VEC v16
q_load(const void *p, v16 s, enum fdk_dtype t)
{
    int8_t q[16];
    float f[16];
    v16 r;
#define S_FLOAT8(m, i) r.m = q_f8_piece((const char *)p + 4 * (i)) * s.m;
    if (t == FDK_F8E4M3) {
        V_EACH(S_FLOAT8)
        return r;
    }
#define S_QUANT(m, i)  r.m = q_piece(p, i) * s.m;
    if (t == FDK_I4) {
        V_EACH(S_QUANT)
        return r;
    }
    memcpy(q, p, 16);
    for (int i = 0; i < 16; i++)
        f[i] = (float)q[i];
    return v_mul(v_load(f), s);
}
#endif

/* n < 16 weights as floats; the rest of f is +0 for either sign of scale. */
static __attribute__((noinline)) void
q_tail(float f[16], const uint8_t *b, float scale, enum fdk_dtype t, int n)
{
    for (int i = 0; i < 16; i++) {
        float q = 0;
        if (i < n && t == FDK_I4)
            q = (float)(((b[i / 2] >> (i % 2 * 4) & 15) ^ 8) - 8);
        else if (i < n && t == FDK_F8E4M3)
            q = f8_float(b[i]);
        else if (i < n)
            q = (float)(int8_t)b[i];
        f[i] = i < n ? q * scale : 0;
    }
}

VEC v16
q_load_n(const void *p, float scale, enum fdk_dtype t, int n)
{
    float f[16];
    q_tail(f, p, scale, t, n);
    return q_order(v_load(f), t);
}

#endif
