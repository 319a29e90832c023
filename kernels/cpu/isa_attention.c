/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/kv8.h"

#include <math.h>

/*
 * Computes an item: the query vectors of some tokens of a row that share a KV head.
 * Keys and values of a chunk are converted once for all of them; then every
 * query vector is processed separately: 64 scores, running maximum,
 * weights, weighted values in ascending token order. A chunk's arithmetic does
 * not depend on the other queries of the item or on where blocks end.
 */
enum { CHUNK = FDK_ATT_CHUNK, NQ = CPU_ATT_QUERIES };
_Static_assert(CHUNK == 64, "four vectors of scores");

struct att_scratch {
    float kv[2 * CHUNK * CPU_MAX_HEAD_DIM]; /* converted keys, then values */
    float q[NQ * CPU_MAX_HEAD_DIM];
    float o[NQ * CPU_MAX_HEAD_DIM];
    float m[NQ], l[NQ];
    int32_t first[NQ], n_kv[NQ]; /* the query sees this rank's tokens [first, n_kv) */
    float *y[NQ], *sum[NQ];      /* sum: receives the log-sum-exp of scores, or NULL */
    const float *k[CHUNK], *v[CHUNK];
};
_Static_assert(sizeof(struct att_scratch) <= 1 << 20, "fits a thread's scratch");

/* The functions that process a chunk are not instrumented under TSan, which would take
 * more than half of the time of tests. They write only scratch, and read only data that
 * load_chunk() has read or reported with TSAN_READS(): the head of each vector, as
 * vectors are written as a whole. */
#ifdef FDD_TSAN
void __tsan_read4(void *p);
#define TSAN_READS(p) __tsan_read4((void *)(uintptr_t)(p))
#define IN_SCRATCH    __attribute__((noinline, no_sanitize("thread")))
#else
#define TSAN_READS(p) ((void)0)
#define IN_SCRATCH
#endif

VEC size_t
kv_elt(enum fdk_dtype t)
{
    return t == FDK_F32 ? 4 : t == FDK_BF16 ? 2 : 1;
}

/* Scale of the vector at `token` (head * B + offset) of the layer at p. */
VEC float
kv_scale(const struct fdk_kv *kv, const char *p, size_t token, int layer, int value)
{
    float s;
    if (kv->dtype == FDK_I8) {
        memcpy(&s, p + (value ? kv->v_scale_off : kv->k_scale_off) + 4 * token, 4);
        return s;
    }
    if (kv->scale == NULL)
        return 1;
    return kv->scale[(size_t)(2 * layer + value) * (size_t)kv->n_kv_head +
        token / (size_t)kv->block_size];
}

VEC void
widen(float *dst, const void *src, enum fdk_dtype t, size_t n)
{
    size_t i = 0;
    const char *p = src;
    for (; i + 16 <= n; i += 16)
        v_store(dst + i, v_load_w(p + i * (t == FDK_F32 ? 4 : 2), t));
    if (i < n)
        v_store_n(dst + i, v_load_w_n(p + i * (t == FDK_F32 ? 4 : 2), t, (int)(n - i)),
            (int)(n - i));
}

static void
load_vector(float *dst, const struct fdk_kv *kv, const char *layer_at, size_t token,
    int layer, int value)
{
    const size_t D = (size_t)kv->head_dim;
    const void *p = layer_at + (value ? kv->v_bytes : 0) + token * D * kv_elt(kv->dtype);
    if (kv->dtype == FDK_BF16)
        widen(dst, p, FDK_BF16, D);
    else if (kv->dtype == FDK_I8)
        kv8_get_i8(dst, p, D, kv_scale(kv, layer_at, token, layer, value));
    else
        kv8_get_f8(dst, p, D, kv_scale(kv, layer_at, token, layer, value));
}

/* Points s->k and s->v to the n tokens from pos on, as floats. Tokens before the first
 * that a query sees are not read, since a weight of 0 times NaN is NaN: that first token
 * replaces them. */
static void
load_chunk(struct att_scratch *s, const struct cpu_attend *job, int pos, int n)
{
    const struct fdk_attention_args *a = job->a;
    const struct fdk_kv *kv = &a->kv;
    const int32_t *table =
        a->b->block_table + (size_t)a->b->state[job->row] * (size_t)a->b->table_stride;
    const size_t D = (size_t)a->D;
    for (int i = 0; i < n; i++) {
        int at = pos + i > s->first[0] ? pos + i : s->first[0];
        int block = at / kv->block_size, off = at % kv->block_size;
        const char *p = (const char *)kv->base + (uint64_t)table[block] * kv->block_bytes +
            (uint64_t)a->layer * kv->layer_bytes;
        size_t token = (size_t)job->kv_head * (size_t)kv->block_size + (size_t)off;
        if (kv->dtype == FDK_F32) {
            s->k[i] = (const float *)(const void *)p + token * D;
            s->v[i] = (const float *)(const void *)(p + kv->v_bytes) + token * D;
            TSAN_READS(s->k[i]);
            TSAN_READS(s->v[i]);
            continue;
        }
        float *k = s->kv + (size_t)i * D, *v = s->kv + (size_t)(CHUNK + i) * D;
        load_vector(k, kv, p, token, a->layer, 0);
        load_vector(v, kv, p, token, a->layer, 1);
        s->k[i] = k;
        s->v[i] = v;
    }
}

VEC v16
load_tail(const float *p, size_t i, size_t D)
{
    return D - i >= 16 ? v_load(p + i) : v_load_n(p + i, (int)(D - i), 0);
}

VEC void
scores4(const struct att_scratch *s, const float *q, size_t D, int j, float *sc,
    const int whole)
{
    v16 c0 = v_zero(), c1 = c0, c2 = c0, c3 = c0;
    const float *k0 = s->k[j], *k1 = s->k[j + 1], *k2 = s->k[j + 2], *k3 = s->k[j + 3];
    for (size_t i = 0; i < D; i += 16) {
        v16 x = whole ? v_load(q + i) : load_tail(q, i, D);
        c0 = v_fma(x, whole ? v_load(k0 + i) : load_tail(k0, i, D), c0);
        c1 = v_fma(x, whole ? v_load(k1 + i) : load_tail(k1, i, D), c1);
        c2 = v_fma(x, whole ? v_load(k2 + i) : load_tail(k2, i, D), c2);
        c3 = v_fma(x, whole ? v_load(k3 + i) : load_tail(k3, i, D), c3);
    }
    v_sum4(sc + j, c0, c1, c2, c3);
}

/* cap * tanh(sc / cap) of a chunk's scores. */
VEC void
soft_cap(float *sc, float cap)
{
    for (int j = 0; j < CHUNK; j += 16) {
        v16 e = v_exp(v_mul(v_load(sc + j), v_set1(2 / cap)));
        v_store(sc + j, e);
    }
    for (int j = 0; j < CHUNK; j++)
        sc[j] = cap * (1 - 2 / (sc[j] + 1));
}

/* Scores of one query with keys [begin, n); the other scores of the chunk are -Inf. */
IN_SCRATCH static void
chunk_scores(const struct att_scratch *s, const struct fdk_attention_args *a,
    const float *q, int begin, int n, float *sc)
{
    const size_t D = (size_t)a->D;
    int j = 0;
    for (; D % 16 == 0 && j + 4 <= n; j += 4)
        scores4(s, q, D, j, sc, 1);
    for (; j + 4 <= n; j += 4)
        scores4(s, q, D, j, sc, 0);
    for (; j < n; j++) {
        v16 c = v_zero();
        for (size_t i = 0; i < D; i += 16)
            c = v_fma(load_tail(q, i, D), load_tail(s->k[j], i, D), c);
        sc[j] = v_sum(c);
    }
    for (j = 0; j < n; j++)
        sc[j] *= a->scale;
    for (j = n; j < CHUNK; j++)
        sc[j] = 0;
    if (a->softcap > 0)
        soft_cap(sc, a->softcap);
    for (j = 0; j < CHUNK; j++)
        if (j < begin || j >= n)
            sc[j] = -INFINITY;
}

VEC void
values(float *o, const struct att_scratch *s, const float *p, int n, float alpha,
    const int nv)
{
    v16 acc[8];
#pragma GCC unroll 8
    for (int i = 0; i < nv; i++)
        acc[i] = v_mul(v_load(o + 16 * i), v_set1(alpha));
    size_t off = (size_t)(o - s->o) % CPU_MAX_HEAD_DIM;
    for (int j = 0; j < n; j++) {
        v16 w = v_set1(p[j]);
        const float *v = s->v[j] + off;
#pragma GCC unroll 8
        for (int i = 0; i < nv; i++)
            acc[i] = v_fma(w, v_load(v + 16 * i), acc[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < nv; i++)
        v_store(o + 16 * i, acc[i]);
}

IN_SCRATCH static void
chunk_values(float *o, const struct att_scratch *s, const float *p, int n, float alpha,
    size_t D)
{
    size_t i = 0;
    for (; CPU_ISA == 2 && i + 128 <= D; i += 128)
        values(o + i, s, p, n, alpha, 8);
    for (; CPU_ISA >= 1 && i + 64 <= D; i += 64)
        values(o + i, s, p, n, alpha, 4);
    for (; i + 32 <= D; i += 32)
        values(o + i, s, p, n, alpha, 2);
    for (; i + 16 <= D; i += 16)
        values(o + i, s, p, n, alpha, 1);
    for (; i < D; i++) {
        float acc = o[i] * alpha;
        for (int j = 0; j < n; j++)
            acc = __builtin_fmaf(p[j], s->v[j][i], acc);
        o[i] = acc;
    }
}

/* Processes tokens [begin, n) of the chunk for query q. */
IN_SCRATCH static void
chunk_query(struct att_scratch *s, const struct fdk_attention_args *a, int q, int begin,
    int n)
{
    float sc[CHUNK];
    float *o = s->o + (size_t)q * CPU_MAX_HEAD_DIM;
    chunk_scores(s, a, s->q + (size_t)q * CPU_MAX_HEAD_DIM, begin, n, sc);
    v16 vm =
        v_max(v_max(v_load(sc), v_load(sc + 16)), v_max(v_load(sc + 32), v_load(sc + 48)));
    float m = s->m[q], mc = v_maxval(vm);
    float top = mc > m ? mc : m;
    v16 sum = v_zero();
    for (int j = 0; j < CHUNK; j += 16) {
        v16 p = v_exp(v_sub(v_load(sc + j), v_set1(top)));
        v_store(sc + j, p);
        sum = v_add(sum, p);
    }
    v16 alpha = v_exp(v_set1(m - top));
    float al[16];
    v_store(al, alpha);
    s->l[q] = __builtin_fmaf(s->l[q], al[0], v_sum(sum));
    s->m[q] = top;
    chunk_values(o, s, sc, n, al[0], (size_t)a->D);
}

/* Sets the address of the results of head h of rank r at token t. */
static void
set_result(struct att_scratch *s, int n, const struct fdk_attention_args *a, size_t t,
    size_t r, size_t h)
{
    const size_t D = (size_t)a->D, H = (size_t)a->H;
    float *row;
    s->sum[n] = NULL;
    if (a->kv.n_own <= 1) {
        s->y[n] = (float *)a->y + (t * H + h) * D;
        return;
    }
    row = (float *)a->y + (t * (size_t)a->kv.n_own + r) * H * (D + 1);
    s->y[n] = row + h * D;
    s->sum[n] = row + H * D + h;
}

/* Gathers the query vectors of heads h0 .. h0 + n_head of rank r. */
static int
load_queries(struct att_scratch *s, const struct cpu_attend *job, int r, int h0, int n_head)
{
    const struct fdk_attention_args *a = job->a;
    const size_t D = (size_t)a->D, row = (size_t)(a->H + 2 * a->K) * D;
    const size_t n_own = a->kv.n_own > 1 ? (size_t)a->kv.n_own : 1;
    int n = 0;
    for (int t = job->tok; t < job->tok + job->n_tok; t++)
        for (int h = h0; h < h0 + n_head; h++, n++) {
            int first = a->window > 0 ? a->b->pos[t] + 1 - a->window : 0;
            int see = a->b->pos[t] + 1;
            if (see > a->b->kv_len[job->row])
                see = a->b->kv_len[job->row];
            memcpy(s->q + (size_t)n * CPU_MAX_HEAD_DIM,
                (const float *)a->qkv + ((size_t)t * n_own + (size_t)r) * row +
                    (size_t)h * D,
                D * sizeof(float));
            memset(s->o + (size_t)n * CPU_MAX_HEAD_DIM, 0, D * sizeof(float));
            s->m[n] = -INFINITY;
            s->l[n] = 0;
            s->first[n] = first > 0 ? fdk_kv_count(&a->kv, first) : 0;
            s->n_kv[n] = fdk_kv_count(&a->kv, see);
            set_result(s, n, a, (size_t)t, (size_t)r, (size_t)h);
        }
    return n;
}

static void
attend_heads(struct att_scratch *s, const struct cpu_attend *job, int r, int h0, int n_head)
{
    int n = load_queries(s, job, r, h0, n_head), last = 0;
    for (int q = 0; q < n; q++)
        last = s->n_kv[q] > last ? s->n_kv[q] : last;
    if (s->first[0] >= last) /* all tokens that the queries see are on other ranks */
        last = 0;
    for (int pos = s->first[0] / CHUNK * CHUNK; pos < last; pos += CHUNK) {
        load_chunk(s, job, pos, last - pos < CHUNK ? last - pos : CHUNK);
        for (int q = 0; q < n; q++) {
            int begin = s->first[q] > pos ? s->first[q] - pos : 0;
            int see = s->n_kv[q] - pos < CHUNK ? s->n_kv[q] - pos : CHUNK;
            if (begin < see)
                chunk_query(s, job->a, q, begin, see);
        }
    }
    for (int q = 0; q < n; q++) {
        const float *o = s->o + (size_t)q * CPU_MAX_HEAD_DIM;
        for (int i = 0; i < job->a->D; i++)
            s->y[q][i] = s->l[q] > 0 ? o[i] / s->l[q] : s->l[q];
        if (s->sum[q] != NULL)
            *s->sum[q] = s->l[q] == 0 ? -INFINITY : s->m[q] + logf(s->l[q]);
    }
}

void
ISA_NAME(cpu_attend)(const struct cpu_attend *job, void *scratch)
{
    int group = job->a->H / job->a->K, h0 = job->kv_head * group;
    int step = NQ / job->n_tok, n_own = job->a->kv.n_own > 1 ? job->a->kv.n_own : 1;
    int first = job->a->n_ask > 0 ? job->a->asks : 0;
    int end = job->a->n_ask > 0 ? first + job->a->n_ask : n_own;
    for (int r = first; r < end; r++)
        for (int h = 0; h < group; h += step)
            attend_heads(scratch, job, r, h0 + h, group - h < step ? group - h : step);
}

/* Weights of the shares: softmax of their log-sum-exp. A share without keys has weight
 * 0. */
static void
share_weights(const struct fdk_merge_args *a, const float *x, int h, float *ret)
{
    const size_t width = (size_t)a->H * (size_t)(a->D + 1);
    float top = -INFINITY, sum = 0;
    for (int p = 0; p < a->n_own; p++) {
        ret[p] = x[(size_t)p * width + (size_t)a->H * (size_t)a->D + (size_t)h];
        top = ret[p] > top ? ret[p] : top;
    }
    for (int p = 0; p < a->n_own; p++) {
        ret[p] = ret[p] == -INFINITY ? 0 : expf(ret[p] - top);
        sum += ret[p];
    }
    for (int p = 0; p < a->n_own; p++)
        ret[p] = sum == 0 ? 0 : ret[p] / sum;
}

void
ISA_NAME(cpu_merge)(const struct fdk_merge_args *a, int t)
{
    const size_t D = (size_t)a->D, width = (size_t)a->H * (D + 1);
    const float *x = a->x + (size_t)t * (size_t)a->n_own * width;
    float *y = (float *)a->y + (size_t)t * (size_t)a->H * D, w[FDK_MAX_RANKS];
    for (int h = 0; h < a->H; h++) {
        share_weights(a, x, h, w);
        for (size_t i = 0; i < D; i++) {
            float sum = 0;
            for (int p = 0; p < a->n_own; p++)
                sum = __builtin_fmaf(w[p], x[(size_t)p * width + (size_t)h * D + i], sum);
            y[(size_t)h * D + i] = sum;
        }
    }
}

/* ---- query and key norms, rotary embedding, KV write --------------------- */

VEC float
head_inv(const float *x, int n, const struct fdk_qkv_args *a)
{
    return 1.0f / sqrtf(v_sum_squares(x, n) / (float)n + a->eps);
}

/* 1 / rms of the n numbers at x, which begin at `first` in the token's row, together with
 * those of the other ranks, if a->all is set. share: consecutive ranks that have the same
 * numbers. */
VEC float
all_inv(const float *x, int n, int t, size_t first, int share, const struct fdk_qkv_args *a)
{
    const size_t row = (size_t)(a->H + 2 * a->K) * (size_t)a->D;
    const float *all = a->all;
    int rows = all != NULL ? a->n_all / share : 1;
    float sum;
    if (all == NULL)
        return head_inv(x, n, a);
    all += (size_t)t * (size_t)a->n_all * row + first;
    sum = v_sum_squares_rows(all, n, (size_t)share * row, rows);
    return 1.0f / sqrtf(sum / (float)(n * rows) + a->eps);
}

/* Elements i and half + i are the real and the imaginary part. */
VEC void
rotate_halves(float *x, const float *cs, int half)
{
    for (int i = 0; i < half; i++) {
        float re = x[i], im = x[half + i], c = cs[i], s = cs[half + i];
        float p = im * s, q = re * s;
        x[i] = __builtin_fmaf(re, c, -p);
        x[half + i] = __builtin_fmaf(im, c, q);
    }
}

/* Elements 2 i and 2 i + 1 are the real and the imaginary part. */
VEC void
rotate_neighbours(float *x, const float *cs, int half)
{
    for (int i = 0; i < half; i++) {
        float re = x[2 * i], im = x[2 * i + 1], c = cs[i], s = cs[half + i];
        float p = im * s, q = re * s;
        x[2 * i] = __builtin_fmaf(re, c, -p);
        x[2 * i + 1] = __builtin_fmaf(im, c, q);
    }
}

/* Normalizes src, if norm is set, to src inv (norm + norm_offset), and rotates it to dst.
 * dst may be src. */
static void
rotate(float *dst, const float *src, const float *norm, float inv, const float *cs,
    const struct fdk_qkv_args *a)
{
    const int D = a->D;
    const float offset = a->norm_offset;
    for (int i = 0; i < D; i++)
        dst[i] = norm != NULL ? (norm[i] + offset) * (src[i] * inv) : src[i];
    if (a->interleaved)
        rotate_neighbours(dst, cs, a->rot / 2);
    else
        rotate_halves(dst, cs, a->rot / 2);
}

/* Normalizes and rotates head h of the token's heads at src; inv_all: 1 / rms for
 * norm_all. */
static void
rotate_head(float *dst, const float *src, int h, const float *norm, float inv_all,
    const float *cs, const struct fdk_qkv_args *a)
{
    src += (size_t)h * (size_t)a->D;
    if (norm == NULL)
        rotate(dst, src, NULL, 1, cs, a);
    else if (a->norm_all)
        rotate(dst, src, norm + (size_t)h * (size_t)a->D, inv_all, cs, a);
    else
        rotate(dst, src, norm, head_inv(src, a->D, a), cs, a);
}

/* Stores the vector at `token` (head * B + offset) of the layer at p. */
static void
kv_store(const struct fdk_kv *kv, char *p, size_t token, int layer, int value,
    const float *src)
{
    const size_t D = (size_t)kv->head_dim;
    char *dst = p + (value ? kv->v_bytes : 0) + token * D * kv_elt(kv->dtype);
    if (kv->dtype == FDK_F32) {
        memcpy(dst, src, D * 4);
    } else if (kv->dtype == FDK_I8) {
        float scale = kv8_put_i8((int8_t *)dst, src, D);
        memcpy(p + (value ? kv->v_scale_off : kv->k_scale_off) + 4 * token, &scale, 4);
    } else if (kv->dtype == FDK_F8E4M3) {
        kv8_put_f8((uint8_t *)dst, src, D, kv_scale(kv, p, token, layer, value));
    } else {
        for (size_t i = 0; i < D; i++) {
            uint16_t h = bf16_round(src[i]);
            memcpy(dst + 2 * i, &h, 2);
        }
    }
}

void
ISA_NAME(cpu_qkv)(const struct fdk_qkv_args *a, int t)
{
    const struct fdk_kv *kv = &a->kv;
    const size_t D = (size_t)a->D;
    float *q = (float *)a->qkv + (size_t)t * (size_t)(a->H + 2 * a->K) * D;
    const float *k = q + (size_t)a->H * D, *v = k + (size_t)a->K * D;
    const float *cs = a->rot > 0 ? a->cs + (size_t)t * (size_t)a->rot : NULL;
    float buf[CPU_MAX_HEAD_DIM], inv = 1;
    if (a->norm_all && a->q_norm != NULL)
        inv = all_inv(q, a->H * a->D, t, 0, 1, a);
    for (int h = 0; h < a->H; h++)
        rotate_head(q + (size_t)h * D, q, h, a->q_norm, inv, cs, a);
    int32_t slot = fdk_kv_place(kv, a->b->slot_map[t]);
    if (slot < 0)
        return;
    char *p = (char *)kv->base + (uint64_t)(slot / kv->block_size) * kv->block_bytes +
        (uint64_t)a->layer * kv->layer_bytes;
    if (a->norm_all && a->k_norm != NULL)
        inv = all_inv(k, a->K * a->D, t, (size_t)(k - q), a->all_share, a);
    for (int h = 0; h < a->K; h++) {
        size_t token = (size_t)h * (size_t)kv->block_size + (size_t)(slot % kv->block_size);
        rotate_head(buf, k, h, a->k_norm, inv, cs, a);
        kv_store(kv, p, token, a->layer, 0, buf);
        kv_store(kv, p, token, a->layer, 1, v + (size_t)h * D);
    }
}
