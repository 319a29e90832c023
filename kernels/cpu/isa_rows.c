/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/isa_ops.h"

#include <math.h>

static void
load_row(float *dst, const void *src, enum fdk_dtype t, size_t n, float scale)
{
    const char *p = src;
    const size_t eb = t == FDK_F32 ? 4 : 2;
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v_store(dst + i, v_mul(v_load_w(p + i * eb, t), v_set1(scale)));
    if (i < n)
        v_store_n(dst + i, v_mul(v_load_w_n(p + i * eb, t, (int)(n - i)), v_set1(scale)),
            (int)(n - i));
}

/* x += scale add for n numbers; returns acc plus the squares of x. */
VEC v16
add_squares(float *x, const float *add, int n, v16 scale, v16 acc)
{
    v16 s = v_fma(v_load_upto(add, n), scale, v_load_upto(x, n));
    v_store_upto(x, s, n);
    return v_fma(s, s, acc);
}

/* Returns n numbers of v, times inv and weights w. */
VEC v16
norm_of(const float *w, float offset, const float *v, int n, v16 inv)
{
    v16 s = v_load_upto(w, n);
    if (offset != 0)
        s = v_add(s, v_set1(offset));
    return v_mul(s, v_mul(v_load_upto(v, n), inv));
}

static void
norm_pre(const struct fdk_rmsnorm_args *a, float *y, float *x, const float *add, float scale)
{
    const int C = a->C;
    const float *w = a->w, offset = a->offset;
    v16 acc = v_zero(), by = v_set1(scale);
    int i = 0;
    for (; add != NULL && i + 16 <= C; i += 16)
        acc = add_squares(x + i, add + i, 16, by, acc);
    if (add != NULL && i < C)
        acc = add_squares(x + i, add + i, C - i, by, acc);
    float sum = add != NULL ? v_sum(acc) : v_sum_squares(x, C);
    v16 inv = v_set1(1.0f / sqrtf(sum / (float)C + a->eps));
    for (i = 0; i + 16 <= C; i += 16)
        v_store(y + i, norm_of(w + i, offset, x + i, 16, inv));
    if (i < C)
        v_store_n(y + i, norm_of(w + i, offset, x + i, C - i, inv), C - i);
}

static void
norm_post(const struct fdk_rmsnorm_args *a, float *y, float *x, const float *add,
    float scale)
{
    const int C = a->C;
    v16 inv = v_zero();
    if (add != NULL)
        inv = v_set1(1.0f / sqrtf(v_sum_squares(add, C) / (float)C + a->eps));
    for (int i = 0; i < C; i += 16) {
        int n = C - i < 16 ? C - i : 16;
        v16 s = v_load_upto(x + i, n);
        if (add != NULL) {
            s = v_fma(norm_of(a->w + i, a->offset, add + i, n, inv), v_set1(scale), s);
            v_store_upto(x + i, s, n);
        }
        if (y != NULL)
            v_store_upto(y + i, s, n);
    }
}

static void
rmsnorm(const struct fdk_rmsnorm_args *a, int t)
{
    size_t off = (size_t)t * (size_t)a->C;
    float *y = a->y != NULL ? (float *)a->y + off : NULL;
    const float *add = a->add != NULL ? (const float *)a->add + off : NULL;
    float scale = a->add_scale != 0 ? a->add_scale : 1;
    (a->norm == FDK_NORM_POST ? norm_post : norm_pre)(a, y, a->x + off, add, scale);
}

VEC v16
silu(v16 g, v16 u)
{
    v16 e = v_exp(v_sub(v_zero(), g));
    return v_mul(v_div(g, v_add(v_set1(1), e)), u);
}

static void
silu_mul(float *y, const float *g, const float *u, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v_store(y + i, silu(v_load(g + i), v_load(u + i)));
    if (i < n)
        v_store_n(y + i,
            silu(v_load_n(g + i, (int)(n - i), 0), v_load_n(u + i, (int)(n - i), 0)),
            (int)(n - i));
}

/* 1 - tanh(x) = 2 / (exp(2 x) + 1), which is 0 or 2 where exp is Inf or 0. */
VEC v16
one_less_tanh(v16 x)
{
    return v_div(v_set1(2), v_add(v_exp(v_add(x, x)), v_set1(1)));
}

/* g / 2 (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))) u */
VEC v16
gelu(v16 g, v16 u)
{
    v16 cube = v_mul(v_mul(v_mul(g, g), g), v_set1(0.044715f));
    v16 t = one_less_tanh(v_mul(v_add(g, cube), v_set1(0.79788456080286535588f)));
    return v_mul(v_sub(g, v_mul(v_mul(g, v_set1(0.5f)), t)), u);
}

static void
gelu_mul(float *y, const float *g, const float *u, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        int m = n - i < 16 ? (int)(n - i) : 16;
        v_store_upto(y + i, gelu(v_load_upto(g + i, m), v_load_upto(u + i, m)), m);
    }
}

static void
softcap(float *y, size_t n, float scale, float cap)
{
    for (size_t i = 0; i < n; i += 16) {
        int m = n - i < 16 ? (int)(n - i) : 16;
        v16 v = v_mul(v_load_upto(y + i, m), v_set1(scale));
        if (cap > 0)
            v = v_mul(v_set1(cap), v_sub(v_set1(1), one_less_tanh(v_div(v, v_set1(cap)))));
        v_store_upto(y + i, v, m);
    }
}

/* ---- sampling ------------------------------------------------------------ */

static float
row_max(const float *x, int n)
{
    v16 m = v_set1(-INFINITY);
    int i = 0;
    for (; i + 16 <= n; i += 16)
        m = v_max(m, v_load(x + i));
    if (i < n)
        m = v_max(m, v_load_n(x + i, n - i, -INFINITY));
    return v_maxval(m);
}

static float
sum_exp(const float *x, int n, float max, float inv_t)
{
    v16 acc = v_zero(), m = v_set1(max), t = v_set1(inv_t);
    int i = 0;
    for (; i + 16 <= n; i += 16)
        acc = v_add(acc, v_exp(v_mul(v_sub(v_load(x + i), m), t)));
    if (i < n)
        acc = v_add(acc, v_exp(v_mul(v_sub(v_load_n(x + i, n - i, -INFINITY), m), t)));
    return v_sum(acc);
}

static void
penalize(float *restrict dst, const float *restrict x, const uint16_t *restrict counts,
    int n, const struct fdk_row *st)
{
    const float rep = st->repetition, freq = st->frequency, pres = st->presence;
    for (int i = 0; i < n; i++) {
        int32_t c = counts[i], out = c & 0x7fff;
        float v = x[i], w = v > 0 ? v / rep : v * rep;
        v = c != 0 ? w : v;
        w = v - freq * (float)out;
        dst[i] = out != 0 ? w - pres : v;
    }
}

static void
slice(const float *x, int n, int want_sum, struct cpu_slice *ret)
{
    /* 0 * x is 0 for numbers and NaN for Inf and NaN. */
    v16 zero = v_zero(), bad = v_zero(), m = v_set1(-INFINITY);
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        v16 v = v_load(x + i);
        bad = v_fma(v, zero, bad);
        m = v_max(m, v);
    }
    if (i < n) {
        bad = v_fma(v_load_n(x + i, n - i, 0), zero, bad);
        m = v_max(m, v_load_n(x + i, n - i, -INFINITY));
    }
    ret->finite = v_sum(bad) == 0;
    ret->max = ret->finite ? v_maxval(m) : 0;
    ret->sum = ret->finite && want_sum ? sum_exp(x, n, ret->max, 1) : 0;
}

static int
next_ge(const float *x, int from, int n, float bound)
{
    int i = from;
    for (; i + 16 <= n; i += 16) {
        unsigned m = v_mask_ge(v_load(x + i), v_set1(bound));
        if (m != 0)
            return i + __builtin_ctz(m);
    }
    for (; i < n; i++)
        if (x[i] >= bound)
            return i;
    return n;
}

/* Philox4x32-10 on 16 consecutive counters; see fdk_philox(). */
static void
philox16(const struct cpu_gumbel *g, uint32_t first, uint32_t *ret)
{
    uint32_t c0[16], c1[16], c2[16], c3[16];
    uint32_t k0 = (uint32_t)g->seed, k1 = (uint32_t)(g->seed >> 32);
    for (int i = 0; i < 16; i++) {
        c0[i] = g->pos;
        c1[i] = g->sample;
        c2[i] = 0;
        c3[i] = first + (uint32_t)i;
    }
    for (int r = 0; r < 10; r++) {
        for (int i = 0; i < 16; i++) {
            uint64_t a = (uint64_t)c0[i] * 0xD2511F53u;
            uint64_t b = (uint64_t)c2[i] * 0xCD9E8D57u;
            c0[i] = (uint32_t)(b >> 32) ^ c1[i] ^ k0;
            c1[i] = (uint32_t)b;
            c2[i] = (uint32_t)(a >> 32) ^ c3[i] ^ k1;
            c3[i] = (uint32_t)a;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < 16; i++) {
        ret[4 * i] = c0[i];
        ret[4 * i + 1] = c1[i];
        ret[4 * i + 2] = c2[i];
        ret[4 * i + 3] = c3[i];
    }
}

/*
 * The noise -log(-log u) of u = 1 - v is at most -log v, as -log(1 - v) >= v.
 * v = (~word + 1/2) / 2^32 >= 2^(e - 31) where e is the exponent of ~word / 2,
 * so (31 - e) log 2 bounds the noise; a bound of 0.001 covers the rounding
 * of this function's own arithmetic near the best score.
 */
static uint64_t
gumbel(const struct cpu_gumbel *g, uint32_t word[CPU_GUMBEL_IDS])
{
    float ub[CPU_GUMBEL_IDS];
    if (((row_max(g->x, g->n) - g->max) * g->inv_t + 23.0f) < g->best)
        return 0;
    philox16(g, (uint32_t)g->first / 4, word);
    for (int i = 0; i < CPU_GUMBEL_IDS; i++) {
        float f = (float)(int32_t)(~word[i] >> 1);
        int32_t u;
        memcpy(&u, &f, 4);
        int32_t e = f >= 1.0f ? (u >> 23) - 127 : -2;
        ub[i] = (float)(31 - e) * 0.69314718f + 0.001f;
    }
    uint64_t mask = 0;
    for (int i = 0; i < CPU_GUMBEL_IDS && i < g->n; i += 16) {
        int n = g->n - i;
        v16 x = n >= 16 ? v_load(g->x + i) : v_load_n(g->x + i, n, -INFINITY);
        x = v_mul(v_sub(x, v_set1(g->max)), v_set1(g->inv_t));
        uint64_t m = v_mask_ge(v_add(x, v_load(ub + i)), v_set1(g->best));
        if (n < 16)
            m &= (1u << n) - 1;
        mask |= m << i;
    }
    return mask;
}

/* ---- tests and benchmarks ------------------------------------------------ */

static void
exp_row(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        v_store(y + i, v_exp(v_load(x + i)));
    if (i < n)
        v_store_n(y + i, v_exp(v_load_n(x + i, (int)(n - i), 0)), (int)(n - i));
}

/* Reads eight pages of a block in parallel and prefetches the next block's lines: a
 * single sequential stream has a third less bandwidth per core. */
static float
stream_read(const float *x, size_t n)
{
    enum { PAGE = 1024, BLOCK = 8 * PAGE };
    v16 acc[8];
    for (int j = 0; j < 8; j++)
        acc[j] = v_zero();
    for (size_t b = 0; b + BLOCK <= n; b += BLOCK)
        for (int i = 0; i < PAGE; i += 16)
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) {
                const float *p = x + b + j * PAGE + i;
                __builtin_prefetch(p + BLOCK, 0, 2);
                acc[j] = v_add(acc[j], v_load(p));
            }
    for (int j = 1; j < 8; j++)
        acc[0] = v_add(acc[0], acc[j]);
    return v_sum(acc[0]);
}

static float
peak_fma(long n_iter)
{
    enum { N = 12 / NP * NP < 4 ? 4 : 12 };
    vf acc[N];
    vf x = vf_set1(0.999f), y = vf_set1(0.001f);
    for (int i = 0; i < N; i++)
        acc[i] = vf_set1((float)i);
    for (long it = 0; it < n_iter * 256; it += N * VW) {
#pragma GCC unroll 12
        for (int i = 0; i < N; i++)
            acc[i] = vf_fma(acc[i], x, y);
    }
    float s = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < VW; j++)
            s += acc[i][j];
    return s;
}

const struct cpu_isa ISA_NAME(cpu_isa) = {
    .name = CPU_ISA == 2 ? "avx512"
        : CPU_ISA == 1   ? "avx2"
                         : "generic",
    .gemm_align = CPU_GEMM_ALIGN,
    .load_row = load_row,
    .rmsnorm = rmsnorm,
    .gemm = ISA_NAME(cpu_gemm),
    .qkv = ISA_NAME(cpu_qkv),
    .attend = ISA_NAME(cpu_attend),
    .merge = ISA_NAME(cpu_merge),
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
    .softcap = softcap,
    .penalize = penalize,
    .slice = slice,
    .max = row_max,
    .sum_exp = sum_exp,
    .next_ge = next_ge,
    .gumbel = gumbel,
    .exp = exp_row,
    .stream_read = stream_read,
    .peak_fma = peak_fma,
};
