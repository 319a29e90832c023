/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec_quant.h"

/*
 * y[m][n] = sum over k of x[m][k] w[n][k]: lane k % 16 adds k, in ascending
 * order, by one fused multiply-add each; then v_sum's tree. Every path below
 * keeps that order, so all have the same bits.
 *
 * Few rows: weights are converted in registers when they are loaded.
 * Many rows: panels of NR weight rows are unpacked to floats once per MB rows
 * of x, in slices of KC that stay in L1; the lanes of
 * the running sums are kept in memory from slice to slice.
 *
 * Quantized weights are converted to floats first: the bits are those of
 * FDK_F32 weights with these values.
 */
#if CPU_ISA == 2
enum { NR1 = 8, NR2 = 8, NR3 = 8, NR4 = 6, MR = 4, NR = 6 };
#elif CPU_ISA == 1
enum { NR1 = 4, NR2 = 2, NR3 = 1, NR4 = 1, MR = 2, NR = 2 };
#else
enum { NR1 = 2, NR2 = 1, NR3 = 1, NR4 = 1, MR = 2, NR = 1 };
#endif
enum { KC = 1024, MB = 64, PACK_MIN = 16 };

_Static_assert(CPU_GEMM_ALIGN % NR1 == 0 && CPU_GEMM_ALIGN % NR == 0, "whole tiles");
_Static_assert((KC * NR + MB * NR * 16) * 4 <= 1 << 20, "fits a thread's scratch");

VEC size_t
w_bytes(enum fdk_dtype t)
{
    return t == FDK_F32 ? 4 : 2;
}

/* Reduces mr x nr sums and stores those of the first nr_live columns. */
VEC void
tile_store(const struct fdk_gemm_args *a, int m, int n, v16 (*acc)[8], const int mr,
    const int nr, int nr_live)
{
    float out[4][8];
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++) {
        int j = 0;
#pragma GCC unroll 2
        for (; j + 4 <= nr; j += 4)
            v_sum4(&out[i][j], acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
#pragma GCC unroll 4
        for (; j < nr; j++)
            out[i][j] = v_sum(acc[i][j]);
    }
    for (int i = 0; i < mr; i++) {
        float *y = (float *)a->y + (size_t)(m + i - a->first) * (size_t)a->ldy + n;
        for (int j = 0; j < nr_live; j++)
            y[j] = a->bias != NULL ? out[i][j] + a->bias[n + j] : out[i][j];
    }
}

VEC void
tile_direct(const struct fdk_gemm_args *a, int m, int n, const int mr, const int nr,
    const enum fdk_dtype t)
{
    const size_t K = (size_t)a->K, wb = w_bytes(t);
    const float *x = (const float *)a->x + (size_t)m * K;
    const char *w = (const char *)a->w + (size_t)n * K * wb;
    v16 acc[4][8];
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 8
        for (int j = 0; j < nr; j++)
            acc[i][j] = v_zero();
    size_t k = 0;
    for (; k + 16 <= K; k += 16) {
        v16 xv[4];
#pragma GCC unroll 4
        for (int i = 0; i < mr; i++)
            xv[i] = v_load(x + (size_t)i * K + k);
#pragma GCC unroll 8
        for (int j = 0; j < nr; j++) {
            const char *p = w + ((size_t)j * K + k) * wb;
            v16 wv = v_load_w(p, t);
            /* The rows of the next tile are too short for the hardware prefetcher. */
            if (nr > 1)
                __builtin_prefetch(p + (size_t)nr * K * wb, 0, 2);
#pragma GCC unroll 4
            for (int i = 0; i < mr; i++)
                acc[i][j] = v_fma(xv[i], wv, acc[i][j]);
        }
    }
    if (k < K) {
        v16 xv[4];
#pragma GCC unroll 4
        for (int i = 0; i < mr; i++)
            xv[i] = v_load_n(x + (size_t)i * K + k, (int)(K - k), 0);
#pragma GCC unroll 8
        for (int j = 0; j < nr; j++) {
            v16 wv = v_load_w_n(w + ((size_t)j * K + k) * wb, t, (int)(K - k));
#pragma GCC unroll 4
            for (int i = 0; i < mr; i++)
                acc[i][j] = v_fma(xv[i], wv, acc[i][j]);
        }
    }
    tile_store(a, m, n, acc, mr, nr, nr);
}

/* For quantized weights: one group after the other, its scales in registers. */
VEC void
tile_quant(const struct fdk_gemm_args *a, int m, int n, const int mr, const int nr,
    const enum fdk_dtype t)
{
    const size_t K = (size_t)a->K, G = (size_t)a->w_group, row = q_bytes(t, K);
    const size_t n_group = (K - 1) / G + 1;
    const float *x = (const float *)a->x + (size_t)m * K;
    const float *scale = a->w_scale + (size_t)n * n_group;
    const char *w = (const char *)a->w + (size_t)n * row;
    const size_t line = t == FDK_I4 ? 8 : 4; /* steps of k per cache line */
    v16 acc[4][8], s[8], xv[4];
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 8
        for (int j = 0; j < nr; j++)
            acc[i][j] = v_zero();
    for (size_t k = 0, end, g = 0; k < K; k = end, g++) {
        end = K - k < G ? K : k + G;
#pragma GCC unroll 8
        for (int j = 0; j < nr; j++)
            s[j] = q_scale(scale[(size_t)j * n_group + g], t);
        for (; k + 16 <= end; k += 16) {
            const char *p = w + q_bytes(t, k);
#pragma GCC unroll 4
            for (int i = 0; i < mr; i++)
                xv[i] = q_order(v_load(x + (size_t)i * K + k), t);
            /* Prefetches each line of the next tile once, for some rows at each step. */
            if (nr > 1)
#pragma GCC unroll 8
                for (size_t j = (size_t)nr; j < 2 * (size_t)nr; j += line)
                    __builtin_prefetch(p + (j + k / 16 % line) * row, 0, 2);
#pragma GCC unroll 8
            for (int j = 0; j < nr; j++) {
                v16 wv = q_load(p + (size_t)j * row, s[j], t);
#pragma GCC unroll 4
                for (int i = 0; i < mr; i++)
                    acc[i][j] = v_fma(xv[i], wv, acc[i][j]);
            }
        }
    }
    if (K % 16 != 0) { /* the last K % 16 elements */
        const size_t k = K / 16 * 16;
#pragma GCC unroll 4
        for (int i = 0; i < mr; i++)
            xv[i] = q_order(v_load_n(x + (size_t)i * K + k, (int)(K - k), 0), t);
#pragma GCC unroll 8
        for (int j = 0; j < nr; j++) {
            v16 wv = q_load_n(w + (size_t)j * row + q_bytes(t, k),
                scale[(size_t)(j + 1) * n_group - 1], t, (int)(K - k));
#pragma GCC unroll 4
            for (int i = 0; i < mr; i++)
                acc[i][j] = v_fma(xv[i], wv, acc[i][j]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 8
        for (int j = 0; j < nr; j++)
            acc[i][j] = q_unorder(acc[i][j], t);
    tile_store(a, m, n, acc, mr, nr, nr);
}

VEC int
is_quant(enum fdk_dtype t)
{
    return t == FDK_I8 || t == FDK_I4 || t == FDK_F8E4M3;
}

VEC void
tile_any(const struct fdk_gemm_args *a, int m, int n, const int mr, const int nr,
    const enum fdk_dtype t)
{
    if (is_quant(t))
        tile_quant(a, m, n, mr, nr, t);
    else
        tile_direct(a, m, n, mr, nr, t);
}

VEC void
rows_direct(const struct fdk_gemm_args *a, int m, int n0, int n1, const int mr,
    const int nr, const enum fdk_dtype t)
{
    int n = n0;
    for (; n + nr <= n1; n += nr)
        tile_any(a, m, n, mr, nr, t);
    for (; n < n1; n++)
        tile_any(a, m, n, mr, 1, t);
}

VEC void
gemm_direct(const struct fdk_gemm_args *a, int m0, int m1, int n0, int n1,
    const enum fdk_dtype t)
{
    /* Columns in the outer loop, so that weights are read from memory once. */
    enum { STEP = 24 };
    for (int n = n0; n < n1; n += STEP) {
        int ne = n1 - n < STEP ? n1 : n + STEP, m = m0;
        for (; MR >= 4 && m1 - m >= 4; m += 4)
            rows_direct(a, m, n, ne, 4, NR4, t);
        for (; MR >= 3 && m1 - m >= 3; m += 3)
            rows_direct(a, m, n, ne, 3, NR3, t);
        for (; m1 - m >= 2; m += 2)
            rows_direct(a, m, n, ne, 2, NR2, t);
        for (; m < m1; m++)
            rows_direct(a, m, n, ne, 1, NR1, t);
    }
}

/* Unpacks columns [k0, k1) of NR weight rows, interleaved by 16; rows from `live` on are
 * 0. */
VEC void
pack(float *dst, const struct fdk_gemm_args *a, int n, int live, size_t k0, size_t k1,
    const enum fdk_dtype t)
{
    const size_t K = (size_t)a->K, wb = w_bytes(t);
    const char *w = (const char *)a->w + (size_t)n * K * wb;
    for (size_t k = k0; k < k1; k += 16)
#pragma GCC unroll 8
        for (int j = 0; j < NR; j++, dst += 16) {
            const char *p = w + ((size_t)j * K + k) * wb;
            if (j >= live)
                v_store(dst, v_zero());
            else if (k + 16 <= k1)
                v_store(dst, v_load_w(p, t));
            else
                v_store(dst, v_load_w_n(p, t, (int)(k1 - k)));
        }
}

/* pack() for quantized rows; a slice may begin within a group. */
VEC void
pack_quant(float *dst, const struct fdk_gemm_args *a, int n, int live, size_t k0,
    size_t k1, const enum fdk_dtype t)
{
    const size_t K = (size_t)a->K, G = (size_t)a->w_group, row = q_bytes(t, K);
    const size_t n_group = (K - 1) / G + 1;
    const char *w = (const char *)a->w + (size_t)n * row;
    const float *scale = a->w_scale + (size_t)n * n_group + k0 / G;
    size_t end = (k0 / G + 1) * G;
    for (size_t k = k0; k < k1; k += 16) {
        if (k == end) {
            end += G;
            scale++;
        }
#pragma GCC unroll 8
        for (int j = 0; j < NR; j++, dst += 16) {
            const char *p = w + (size_t)j * row + q_bytes(t, k);
            v16 v = v_zero();
            if (j < live && k + 16 <= k1)
                v = q_load(p, q_scale(scale[(size_t)j * n_group], t), t);
            else if (j < live)
                v = q_load_n(p, scale[(size_t)j * n_group], t, (int)(k1 - k));
            v_store(dst, q_unorder(v, t));
        }
    }
}

VEC void
tile_packed(const float *w, const float *x, size_t K, size_t len, v16 (*acc)[8],
    const int mr)
{
    size_t k = 0;
    for (; k + 16 <= len; k += 16, w += NR * 16) {
        v16 xv[4];
#pragma GCC unroll 4
        for (int i = 0; i < mr; i++)
            xv[i] = v_load(x + (size_t)i * K + k);
#pragma GCC unroll 8
        for (int j = 0; j < NR; j++) {
            v16 wv = v_load(w + j * 16);
#pragma GCC unroll 4
            for (int i = 0; i < mr; i++)
                acc[i][j] = v_fma(xv[i], wv, acc[i][j]);
        }
    }
    if (k < len) {
        v16 xv[4];
#pragma GCC unroll 4
        for (int i = 0; i < mr; i++)
            xv[i] = v_load_n(x + (size_t)i * K + k, (int)(len - k), 0);
#pragma GCC unroll 8
        for (int j = 0; j < NR; j++) {
            v16 wv = v_load(w + j * 16);
#pragma GCC unroll 4
            for (int i = 0; i < mr; i++)
                acc[i][j] = v_fma(xv[i], wv, acc[i][j]);
        }
    }
}

struct panel {
    const struct fdk_gemm_args *a;
    const float *w; /* packed */
    float *sums;    /* lanes of the running sums of rows m0.. */
    size_t k0, k1;
    int n, live;
};

VEC void
panel_rows(const struct panel *p, int m, float *sums, const int mr)
{
    const struct fdk_gemm_args *a = p->a;
    const size_t K = (size_t)a->K;
    v16 acc[4][8];
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 8
        for (int j = 0; j < NR; j++)
            acc[i][j] = p->k0 == 0 ? v_zero() : v_load(sums + (i * NR + j) * 16);
    tile_packed(p->w, (const float *)a->x + (size_t)m * K + p->k0, K, p->k1 - p->k0, acc,
        mr);
    if (p->k1 == K) {
        tile_store(a, m, p->n, acc, mr, NR, p->live);
        return;
    }
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 8
        for (int j = 0; j < NR; j++)
            v_store(sums + (i * NR + j) * 16, acc[i][j]);
}

VEC void
gemm_packed(const struct fdk_gemm_args *a, int m0, int m1, int n0, int n1, float *scratch,
    const enum fdk_dtype t)
{
    const size_t K = (size_t)a->K;
    struct panel p = { .a = a, .w = scratch, .sums = scratch + KC * NR };
    for (int mb = m0; mb < m1; mb += MB) {
        int me = m1 - mb < MB ? m1 : mb + MB;
        for (p.n = n0; p.n < n1; p.n += NR) {
            p.live = n1 - p.n < NR ? n1 - p.n : NR;
            for (p.k0 = 0; p.k0 < K; p.k0 = p.k1) {
                p.k1 = K - p.k0 < KC ? K : p.k0 + KC;
                if (is_quant(t))
                    pack_quant(scratch, a, p.n, p.live, p.k0, p.k1, t);
                else
                    pack(scratch, a, p.n, p.live, p.k0, p.k1, t);
                float *sums = p.sums;
                int m = mb;
                for (; me - m >= MR; m += MR, sums += MR * NR * 16)
                    panel_rows(&p, m, sums, MR);
                for (; m < me; m++, sums += NR * 16)
                    panel_rows(&p, m, sums, 1);
            }
        }
    }
}

#define GEMM_TYPE(name, t) \
    static void name(const struct fdk_gemm_args *a, int m0, int m1, int n0, int n1, \
        void *scratch) \
    { \
        if (m1 - m0 < PACK_MIN) \
            gemm_direct(a, m0, m1, n0, n1, t); \
        else \
            gemm_packed(a, m0, m1, n0, n1, scratch, t); \
    }
GEMM_TYPE(gemm_f32, FDK_F32)
GEMM_TYPE(gemm_f16, FDK_F16)
GEMM_TYPE(gemm_bf16, FDK_BF16)
GEMM_TYPE(gemm_i8, FDK_I8)
GEMM_TYPE(gemm_i4, FDK_I4)
GEMM_TYPE(gemm_f8, FDK_F8E4M3)

void
ISA_NAME(cpu_gemm)(const struct fdk_gemm_args *a, int m0, int m1, int n0, int n1,
    void *scratch)
{
    if (a->w_dtype == FDK_BF16)
        gemm_bf16(a, m0, m1, n0, n1, scratch);
    else if (a->w_dtype == FDK_F16)
        gemm_f16(a, m0, m1, n0, n1, scratch);
    else if (a->w_dtype == FDK_I8)
        gemm_i8(a, m0, m1, n0, n1, scratch);
    else if (a->w_dtype == FDK_I4)
        gemm_i4(a, m0, m1, n0, n1, scratch);
    else if (a->w_dtype == FDK_F8E4M3)
        gemm_f8(a, m0, m1, n0, n1, scratch);
    else
        gemm_f32(a, m0, m1, n0, n1, scratch);
}
