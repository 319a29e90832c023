/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit KV: conversion of vectors of n floats to bytes and back. Plain loops, which the
 * compiler vectorizes; no sums, so every instruction set gives the
 * same bits. The stored values, with all arithmetic in fp32:
 *
 *   FDK_I8      scale = |largest| / 127; x / scale rounded half to even. A
 *               scale that is 0, Inf or NaN stores zeros: NaN and Inf in a
 *               vector make all of it NaN when it is read.
 *   FDK_F8E4M3  x / scale rounded to nearest even, at most 448 in magnitude;
 *               NaN stays NaN.
 *
 * Private to kernels/cpu/isa_*.c.
 */
#ifndef FDD_KERNELS_CPU_KV8_H
#define FDD_KERNELS_CPU_KV8_H

#include "kernels/cpu/vec.h"

VEC uint32_t
f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

VEC float
f32_from(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

/* Returns the scale. */
VEC float
kv8_put_i8(int8_t *restrict dst, const float *restrict x, size_t n)
{
    uint32_t top = 0; /* compared as integers, so that NaN is largest */
    for (size_t i = 0; i < n; i++) {
        uint32_t a = f32_bits(x[i]) & 0x7fffffff;
        top = a > top ? a : top;
    }
    float scale = f32_from(top) / 127;
    if (scale == 0 || top >= 0x7f800000) {
        memset(dst, 0, n);
        return scale;
    }
    /* The last place of the sum is 1, so it is rounded, and its low byte is the value. */
    for (size_t i = 0; i < n; i++) {
        float q = x[i] / scale;
        q = q > 127 ? 127 : q;
        q = q < -127 ? -127 : q;
        dst[i] = (int8_t)(uint8_t)f32_bits(q + 0x1.8p23f);
    }
    return scale;
}

VEC void
kv8_get_i8(float *restrict dst, const int8_t *restrict src, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = (float)src[i] * scale;
}

VEC uint8_t
f8_round(float x)
{
    uint32_t u = f32_bits(x), a = u & 0x7fffffff;
    uint32_t big = ((a + 0x7ffff + (a >> 20 & 1)) >> 20) - (120u << 3);
    uint32_t small = f32_bits(f32_from(a) * 512 + 0x1p23f) & 0xff;
    uint32_t r = a < 0x3c800000 ? small : big; /* subnormal below 2^-6 */
    r = a >= 0x43e00000 ? 0x7e : r;            /* 448 and more */
    r = a > 0x7f800000 ? 0x7f : r;
    return (uint8_t)(u >> 24 & 0x80) | (uint8_t)r;
}

/* The exponent biases differ by 120; this holds for subnormal numbers too. */
VEC float
f8_float(uint32_t c)
{
    uint32_t mag = c & 0x7f;
    uint32_t v = f32_bits(f32_from(mag << 20) * 0x1p120f) | (c & 0x80) << 24;
    return f32_from(mag == 0x7f ? 0x7fc00000 : v);
}

VEC void
kv8_put_f8(uint8_t *restrict dst, const float *restrict x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = f8_round(x[i] / scale);
}

VEC void
kv8_get_f8(float *restrict dst, const uint8_t *restrict src, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = f8_float(src[i]) * scale;
}

#endif
