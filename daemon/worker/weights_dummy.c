/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Random weights of realistic scale. Counter-based: element i of a weight is a function
 * of (seed, weight, i) only, made in blocks of DUMMY_BLOCK so that the compiler
 * vectorizes the inner loop; no transcendental functions. A device makes the same bits
 * (fdk_ops.dummy).
 */
#include "config.h"

#include "daemon/worker/weights_priv.h"

#include <string.h>

#define DUMMY_BLOCK 2048 /* elements; y and h on the stack: 12 KiB, in L1 */

#if defined(__x86_64__)
#define VARIANT_AVX2 1
#endif

static uint64_t
mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* Standard deviation of the sum of four random bytes, sqrt((256^2 - 1) / 3). The sum
 * less its mean is close to normal. */
#define SUM_SD 147.8

static inline __attribute__((always_inline)) float
element(uint32_t i, uint32_t k0, uint32_t k1, float mean, float scale)
{
    uint32_t x = i * 0x9e3779b9u + k0;

    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= (x >> 16) ^ k1;
    x = (x & 0x00ff00ffu) + (x >> 8 & 0x00ff00ffu);
    x = (x & 0xffffu) + (x >> 16);
    return mean + scale * (float)((int32_t)x - 510);
}

/* Rounds to nearest, ties to even; f is finite. */
static inline __attribute__((always_inline)) uint16_t
to_bf16(float f)
{
    uint32_t u;

    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* One of y and h is not NULL: the output. */
static inline __attribute__((always_inline)) void
make(float *restrict y, uint16_t *restrict h, uint32_t k0, uint32_t k1, float mean,
    float scale)
{
    if (h != NULL) {
        for (uint32_t i = 0; i < DUMMY_BLOCK; i++)
            h[i] = to_bf16(element(i, k0, k1, mean, scale));
    } else {
        for (uint32_t i = 0; i < DUMMY_BLOCK; i++)
            y[i] = element(i, k0, k1, mean, scale);
    }
}

static void
make_plain(float *y, uint16_t *h, uint32_t k0, uint32_t k1, float mean, float scale)
{
    make(y, h, k0, k1, mean, scale);
}

#ifdef VARIANT_AVX2
__attribute__((target("avx2"))) static void
make_avx2(float *y, uint16_t *h, uint32_t k0, uint32_t k1, float mean, float scale)
{
    make(y, h, k0, k1, mean, scale);
}
#endif

/* Values under the smallest normal half (6e-5) become zero. */
static void
to_f16(uint16_t *y, const float *x)
{
    for (int i = 0; i < DUMMY_BLOCK; i++) {
        uint32_t u, m;

        memcpy(&u, &x[i], 4);
        m = (u & 0x7fffffff) + 0xfff + (u >> 13 & 1);
        y[i] =
            (uint16_t)((u >> 16 & 0x8000) | (m < 0x38800000 ? 0 : (m - 0x38000000) >> 13));
    }
}

struct fdk_dummy_args
wts_dummy_args(const struct wts_plan *wp, int32_t idx, uint64_t first, uint64_t n)
{
    const struct wts_place *w = &wp->place[idx];

    return (struct fdk_dummy_args){ .key = mix64(mix64(wp->seed) ^ (uint64_t)w->dummy),
        .first = first,
        .n = n,
        .mean = w->fill == WTS_FILL_NORM ? 1 : 0,
        .scale = (float)(w->scale / SUM_SD) };
}

/* Make a block in y or, if h is not NULL, as bf16 in h. */
static void
make_block(const struct fdk_dummy_args *a, uint64_t block, float *y, uint16_t *h)
{
    uint64_t key = mix64(a->key ^ block);

#ifdef VARIANT_AVX2
    if (__builtin_cpu_supports("avx2")) {
        make_avx2(y, h, (uint32_t)key, (uint32_t)(key >> 32), a->mean, a->scale);
        return;
    }
#endif
    make_plain(y, h, (uint32_t)key, (uint32_t)(key >> 32), a->mean, a->scale);
}

void
wts_dummy_fill(const struct wts_plan *wp, int32_t idx, uint64_t first, size_t n, void *dst)
{
    const struct fdk_dummy_args a = wts_dummy_args(wp, idx, first, n);
    enum fdk_dtype t = wp->place[idx].src;
    size_t elt = t == FDK_F32 ? 4 : 2;
    float y[DUMMY_BLOCK];
    uint16_t h[DUMMY_BLOCK];
    char *out = dst;

    while (n > 0) {
        size_t at = first % DUMMY_BLOCK, m = DUMMY_BLOCK - at;

        m = m < n ? m : n;
        make_block(&a, first / DUMMY_BLOCK, y, t == FDK_BF16 ? h : NULL);
        if (t == FDK_F16)
            to_f16(h, y);
        memcpy(out, (t == FDK_F32 ? (const char *)y : (const char *)h) + at * elt, m * elt);
        out += m * elt;
        first += m;
        n -= m;
    }
}
