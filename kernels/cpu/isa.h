/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Inner loops, built once per instruction set from the same sources
 * (isa_*.c with CPU_ISA = 0 generic, 1 avx2 + fma + f16c, 2 avx512) and
 * selected when a context is opened. All of them reduce in the same 16 lanes
 * and tree; generic x86-64 has no fused multiply-add, so its last bits
 * differ from those of the other two, which are equal.
 *
 * These functions are single-threaded: kernels/cpu/exec.c divides the output
 * elements among the pool's threads and calls them for ranges.
 */
#ifndef FDD_KERNELS_CPU_ISA_H
#define FDD_KERNELS_CPU_ISA_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/fdk.h"

#define CPU_MAX_HEAD_DIM 512
#define CPU_VOCAB_SLICE  4096 /* ids in a slice; logits are reduced by slices */
#define CPU_ATT_QUERIES  32   /* query vectors per attention item */
#define CPU_GUMBEL_IDS   64   /* ids per gumbel() call */

struct cpu_slice { /* reduction of a slice of a row's logits */
    float max;
    float sum; /* sum of exp(x - max), if want_sum */
    int32_t finite;
};

struct cpu_attend { /* one item: one KV head, some tokens of a row */
    const struct fdk_attention_args *a;
    int32_t row, tok, n_tok, kv_head;
};

struct cpu_gumbel {
    const float *x; /* logits of the ids first .. first + n */
    uint64_t seed;
    uint32_t pos, sample;
    int32_t first, n; /* first is a multiple of CPU_GUMBEL_IDS */
    float max, inv_t; /* score = (x - max) * inv_t + noise */
    float best;
};

struct cpu_isa {
    const char *name;
    int gemm_align; /* output columns per tile: N is divided at multiples of it */
    void (*load_row)(float *dst, const void *src, enum fdk_dtype t, size_t n, float scale);
    /* For row t. */
    void (*rmsnorm)(const struct fdk_rmsnorm_args *a, int t);
    void (*gemm)(const struct fdk_gemm_args *a, int m0, int m1, int n0, int n1,
        void *scratch);
    void (*qkv)(const struct fdk_qkv_args *a, int t);
    void (*attend)(const struct cpu_attend *job, void *scratch);
    /* For row t. */
    void (*merge)(const struct fdk_merge_args *a, int t);
    void (*silu_mul)(float *y, const float *g, const float *u, size_t n);
    void (*gelu_mul)(float *y, const float *g, const float *u, size_t n);
    /* In place, as in struct fdk_softcap_args. */
    void (*softcap)(float *y, size_t n, float scale, float cap);

    /* dst = x after penalties; counts as in struct fdk_sample_args. */
    void (*penalize)(float *dst, const float *x, const uint16_t *counts, int n,
        const struct fdk_row *st);
    void (*slice)(const float *x, int n, int want_sum, struct cpu_slice *ret);
    float (*max)(const float *x, int n);
    float (*sum_exp)(const float *x, int n, float max, float inv_t);
    /* First i in [from, n) with x[i] >= bound, or n. */
    int (*next_ge)(const float *x, int from, int n, float bound);
    /* Writes the random words of ids from g->first on. Returns a mask: bit i set if id
     * first + i may score at least g->best. */
    uint64_t (*gumbel)(const struct cpu_gumbel *g, uint32_t ret_word[CPU_GUMBEL_IDS]);

    /* For tests and benchmarks. */
    void (*exp)(float *y, const float *x, size_t n);
    float (*stream_read)(const float *x, size_t n);
    float (*peak_fma)(long n_iter); /* 256 fused multiply-adds each */
};

extern const struct cpu_isa cpu_isa_generic;
#if defined(__x86_64__)
extern const struct cpu_isa cpu_isa_avx2, cpu_isa_avx512;
#endif

const struct cpu_isa *cpu_isa_pick(void);

#endif
