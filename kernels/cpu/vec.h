/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Sixteen float lanes as one value on machines of any vector width. A v16 consists of
 * machine vectors: GCC keeps those in registers, but would pass a vector type
 * wider than the machine's through memory.
 *
 * Private to kernels/cpu/isa_*.c; CPU_ISA says which set this build is for.
 */
#ifndef FDD_KERNELS_CPU_VEC_H
#define FDD_KERNELS_CPU_VEC_H

#include <stdint.h>
#include <string.h>

#include "kernels/fdk.h"

/* Optimized even in debug builds, so that sums stay in registers. */
#if !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#ifndef CPU_ISA
#define CPU_ISA 0
#endif

#define VEC            static inline __attribute__((always_inline, unused))
#define CPU_CAT2(a, b) a##b
#define CPU_CAT(a, b)  CPU_CAT2(a, b)
#if CPU_ISA == 2
#define ISA_NAME(f) CPU_CAT(f, _avx512)
#elif CPU_ISA == 1
#define ISA_NAME(f) CPU_CAT(f, _avx2)
#else
#define ISA_NAME(f) CPU_CAT(f, _generic)
#endif

/* ---- one machine vector -------------------------------------------------- */

#if CPU_ISA == 2
#include <immintrin.h>
#define VW 16
#define NP 1
#elif CPU_ISA == 1
#include <immintrin.h>
#define VW 8
#define NP 2
#else
#define VW 4
#define NP 4
#endif

typedef float vf __attribute__((vector_size(VW * 4)));
typedef int32_t vi __attribute__((vector_size(VW * 4)));
typedef float vfu __attribute__((vector_size(VW * 4), aligned(4), may_alias));
typedef uint16_t vh __attribute__((vector_size(VW * 2)));
typedef uint32_t vu __attribute__((vector_size(VW * 4)));

VEC vf
vf_set1(float x)
{
    return x - (vf){ 0 };
}

VEC vf
vf_fma(vf a, vf b, vf c)
{
#if CPU_ISA == 2
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif CPU_ISA == 1
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    vf r;
    for (int i = 0; i < VW; i++)
        r[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return r;
#else
    return a * b + c; /* built with -ffp-contract=off */
#endif
}

VEC vf
vf_max(vf a, vf b)
{
#if CPU_ISA == 2
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif CPU_ISA == 1
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
    vi m = a > b;
    return (vf)((m & (vi)a) | (~m & (vi)b));
#endif
}

VEC vf
vf_min(vf a, vf b)
{
#if CPU_ISA == 2
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif CPU_ISA == 1
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
    vi m = a < b;
    return (vf)((m & (vi)a) | (~m & (vi)b));
#endif
}

VEC vf
vf_bf16(const void *p)
{
#if CPU_ISA == 2
    __m256i h = _mm256_loadu_si256(p);
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16);
#elif CPU_ISA == 1
    __m128i h = _mm_loadu_si128(p);
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16);
#else
    vh h;
    memcpy(&h, p, sizeof(h));
    return (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}

VEC vf
vf_f16(const void *p)
{
#if CPU_ISA == 2
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256(p));
#elif CPU_ISA == 1
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128(p));
#else
    vh h;
    memcpy(&h, p, sizeof(h));
    vu u = __builtin_convertvector(h, vu);
    vu sign = (u & 0x8000) << 16, mag = (u & 0x7fff) << 13;
    /* Exponents differ by 112; Inf and NaN keep an all-ones exponent. */
    vf v = (vf)mag * 0x1p112f;
    vu special = (vu)(mag >= (0x7c00u << 13)) & 0x7f800000u;
    return (vf)((vu)v | special | sign);
#endif
}

/* Error below 1.5 ulp over the full range; exp(-Inf) = 0, NaN stays. The
 * Taylor polynomial of degree 7 is within 0.1 ulp on |r| <= ln(2) / 2. */
VEC vf
vf_exp(vf x)
{
    vf c = vf_max(vf_min(x, vf_set1(89.0f)), vf_set1(-105.0f));
    vf n = vf_fma(c, vf_set1(1.44269504088896341f), vf_set1(12582912.0f)) -
        vf_set1(12582912.0f);
    vf r = vf_fma(n, vf_set1(-0x1.62e4p-1f), c);
    r = vf_fma(n, vf_set1(-1.42860677e-6f), r);
    vf p = vf_set1(1.0f / 5040);
    p = vf_fma(p, r, vf_set1(1.0f / 720));
    p = vf_fma(p, r, vf_set1(1.0f / 120));
    p = vf_fma(p, r, vf_set1(1.0f / 24));
    p = vf_fma(p, r, vf_set1(1.0f / 6));
    p = vf_fma(p, r, vf_set1(0.5f));
    p = vf_fma(p, r * r, r) + 1.0f;
    /* 2^n in two factors: n may be below the normal exponents or at 128. */
    vi k = __builtin_convertvector(n, vi);
    vi k0 = k >> 1;
    vf s0 = (vf)((k0 + 127) << 23), s1 = (vf)((k - k0 + 127) << 23);
    vf y = p * s0 * s1;
    vi nan = x != x;
    return (vf)((nan & (vi)x) | (~nan & (vi)y));
}

/* ---- sixteen lanes ------------------------------------------------------- */

typedef struct {
    vf a;
#if NP >= 2
    vf b;
#endif
#if NP == 4
    vf c, d;
#endif
} v16;

#if NP == 1
#define V_EACH(S) S(a, 0)
#elif NP == 2
#define V_EACH(S) S(a, 0) S(b, 1)
#else
#define V_EACH(S) S(a, 0) S(b, 1) S(c, 2) S(d, 3)
#endif

#define V_DEFINE2(name, expr) \
    VEC v16 name(v16 x, v16 y) \
    { \
        v16 r; \
        V_EACH(expr) \
        return r; \
    }
#define S_ADD(m, i) r.m = x.m + y.m;
#define S_SUB(m, i) r.m = x.m - y.m;
#define S_MUL(m, i) r.m = x.m * y.m;
#define S_DIV(m, i) r.m = x.m / y.m;
#define S_MAX(m, i) r.m = vf_max(x.m, y.m);
V_DEFINE2(v_add, S_ADD)
V_DEFINE2(v_sub, S_SUB)
V_DEFINE2(v_mul, S_MUL)
V_DEFINE2(v_div, S_DIV)
V_DEFINE2(v_max, S_MAX)

VEC v16
v_set1(float x)
{
    v16 r;
#define S_SET(m, i) r.m = vf_set1(x);
    V_EACH(S_SET)
    return r;
}

VEC v16
v_zero(void)
{
    v16 r;
#define S_ZERO(m, i) r.m = (vf){ 0 };
    V_EACH(S_ZERO)
    return r;
}

VEC v16
v_fma(v16 x, v16 y, v16 z)
{
    v16 r;
#define S_FMA(m, i) r.m = vf_fma(x.m, y.m, z.m);
    V_EACH(S_FMA)
    return r;
}

VEC v16
v_exp(v16 x)
{
    v16 r;
#define S_EXP(m, i) r.m = vf_exp(x.m);
    V_EACH(S_EXP)
    return r;
}

VEC v16
v_load(const float *p)
{
    v16 r;
#define S_LOAD(m, i) r.m = (vf) * (const vfu *)(p + VW * i);
    V_EACH(S_LOAD)
    return r;
}

VEC void
v_store(float *p, v16 x)
{
#define S_STORE(m, i) *(vfu *)(p + VW * i) = (vfu)x.m;
    V_EACH(S_STORE)
}

/* Loads n of 16 lanes, 0 < n < 16; the others are `fill`. */
VEC v16
v_load_n(const float *p, int n, float fill)
{
    float buf[16];
    for (int i = 0; i < 16; i++)
        buf[i] = i < n ? p[i] : fill;
    return v_load(buf);
}

VEC void
v_store_n(float *p, v16 x, int n)
{
    float buf[16];
    v_store(buf, x);
    for (int i = 0; i < n; i++)
        p[i] = buf[i];
}

/* Sixteen weights of any type as floats; t is a constant where speed matters. */
VEC v16
v_load_w(const void *p, enum fdk_dtype t)
{
    if (t == FDK_F32)
        return v_load(p);
    const uint16_t *h = p;
    v16 r;
#define S_BF16(m, i) r.m = vf_bf16(h + VW * i);
#define S_F16(m, i)  r.m = vf_f16(h + VW * i);
    if (t == FDK_BF16) {
        V_EACH(S_BF16)
    } else {
        V_EACH(S_F16)
    }
    return r;
}

VEC v16
v_load_w_n(const void *p, enum fdk_dtype t, int n)
{
    char buf[64] = { 0 };
    memcpy(buf, p, (size_t)n * (t == FDK_F32 ? 4 : 2));
    return v_load_w(buf, t);
}

/* Sums the lanes by a tree: i and i + 8, then + 4, + 2, + 1. */
VEC float
v_sum(v16 x)
{
#if CPU_ISA == 2
    __m512 z = (__m512)x.a;
    __m256 y = _mm256_add_ps(_mm512_castps512_ps256(z), _mm512_extractf32x8_ps(z, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
#elif CPU_ISA == 1
    __m256 y = (__m256)(x.a + x.b);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
#else
    vf q = (x.a + x.c) + (x.b + x.d);
    return (q[0] + q[2]) + (q[1] + q[3]);
#endif
}

/* Four sums at once, each by the same tree. */
VEC void
v_sum4(float ret[4], v16 p, v16 q, v16 r, v16 s)
{
#if CPU_ISA >= 1
    __m128 f[4];
#if CPU_ISA == 2
#define S_HALF(v) \
    _mm256_add_ps(_mm512_castps512_ps256((__m512)(v).a), \
        _mm512_extractf32x8_ps((__m512)(v).a, 1))
#else
#define S_HALF(v) (__m256)((v).a + (v).b)
#endif
    const __m256 h[4] = { S_HALF(p), S_HALF(q), S_HALF(r), S_HALF(s) };
    for (int i = 0; i < 4; i++)
        f[i] = _mm_add_ps(_mm256_castps256_ps128(h[i]), _mm256_extractf128_ps(h[i], 1));
    __m128 a = _mm_add_ps(_mm_unpacklo_ps(f[0], f[1]), _mm_unpackhi_ps(f[0], f[1]));
    __m128 b = _mm_add_ps(_mm_unpacklo_ps(f[2], f[3]), _mm_unpackhi_ps(f[2], f[3]));
    _mm_storeu_ps(ret, _mm_add_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a)));
#else
    ret[0] = v_sum(p);
    ret[1] = v_sum(q);
    ret[2] = v_sum(r);
    ret[3] = v_sum(s);
#endif
}

/* Loads n numbers, at most 16; the rest is 0. */
VEC v16
v_load_upto(const float *p, int n)
{
    return n >= 16 ? v_load(p) : v_load_n(p, n, 0);
}

VEC void
v_store_upto(float *p, v16 v, int n)
{
    if (n >= 16)
        v_store(p, v);
    else
        v_store_n(p, v, n);
}

VEC float
v_sum_squares(const float *x, int n)
{
    v16 acc = v_zero();
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        v16 v = v_load(x + i);
        acc = v_fma(v, v, acc);
    }
    if (i < n) {
        v16 v = v_load_n(x + i, n - i, 0);
        acc = v_fma(v, v, acc);
    }
    return v_sum(acc);
}

/* Sum of the squares of n numbers at x, n at x + stride, and so on, `rows` times; has the
 * bits of v_sum_squares() of all of them in one row. */
VEC float
v_sum_squares_rows(const float *x, int n, size_t stride, int rows)
{
    v16 acc = v_zero();
    float buf[16];
    int have = 0;
    for (int r = 0; r < rows; r++) {
        const float *p = x + (size_t)r * stride;
        for (int i = 0, m; i < n; i += m) {
            m = n - i < 16 - have ? n - i : 16 - have;
            memcpy(buf + have, p + i, (size_t)m * sizeof(*buf));
            have = (have + m) % 16;
            if (have == 0)
                acc = v_fma(v_load(buf), v_load(buf), acc);
        }
    }
    if (have > 0) {
        v16 v = v_load_n(buf, have, 0);
        acc = v_fma(v, v, acc);
    }
    return v_sum(acc);
}

VEC float
v_maxval(v16 x)
{
#if CPU_ISA == 2
    return _mm512_reduce_max_ps((__m512)x.a);
#elif CPU_ISA == 1
    __m256 y = (__m256)vf_max(x.a, x.b);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
#else
    vf q = vf_max(vf_max(x.a, x.c), vf_max(x.b, x.d));
    float a = q[0] > q[1] ? q[0] : q[1], b = q[2] > q[3] ? q[2] : q[3];
    return a > b ? a : b;
#endif
}

/* Mask with bit i set if x[i] >= y[i]. */
VEC unsigned
v_mask_ge(v16 x, v16 y)
{
#if CPU_ISA == 2
    return _mm512_cmp_ps_mask((__m512)x.a, (__m512)y.a, _CMP_GE_OQ);
#elif CPU_ISA == 1
    return (unsigned)_mm256_movemask_ps((__m256)(x.a >= y.a)) |
        (unsigned)_mm256_movemask_ps((__m256)(x.b >= y.b)) << 8;
#else
    unsigned m = 0;
#define S_GE(f, i) \
    { \
        vi g = x.f >= y.f; \
        for (int j = 0; j < VW; j++) \
            m |= (unsigned)(g[j] & 1) << (VW * i + j); \
    }
    V_EACH(S_GE)
    return m;
#endif
}

/* Round to nearest even; NaN stays NaN. */
VEC uint16_t
bf16_round(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

#endif
