/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * 16 tokens against a tile's query vectors, by one warp: scores, weights, values, with
 * all sums in registers.
 */
#ifndef FDD_KERNELS_CUDA_SM90_ATTENTION_SPLIT_UNIT_CUH
#define FDD_KERNELS_CUDA_SM90_ATTENTION_SPLIT_UNIT_CUH

#include "kernels/cuda/sm90/attention_split.cuh"

/* Sums of a warp. Scores and outputs are matrices of tokens or dimensions by query
 * vectors, with 8 vectors in each of two halves; a tile of up to 8 vectors skips the
 * second half. A lane's columns of half h are vectors 8 h + lane % 4 * 2 and the next;
 * its rows are lane / 4 and lane / 4 + 8. */
template<int D>
struct sums {
    float o[2][D / 16][4];
    float m[2][2], l[2][2];
    int see[2][2];
};

template<int D>
struct queries {                 /* B operands, [half][16 dimensions] */
    uint32_t x[2][D / 16][2];
};

/* Token of the tile of query vector i; its head is i - token * n_head. */
static __device__ __forceinline__ int
vector_token(const struct split_args &s, int i, int n_head)
{
    return s.n_head_set == 1 ? i * s.inv >> 16 : i >= n_head;
}

/* Number of query heads of a head set, or of this thread's half; *ret_first: the first of
 * them, counting those of a KV head rank by rank. DOUBLE: may be 0 or negative for a
 * second half. */
template<int G>
static __device__ __forceinline__ int
set_heads(const struct split_args &s, const struct walk &w, int *ret_first)
{
    int sub = (w.set - w.head * s.n_head_set) * (G & DOUBLE ? 2 * CU_ATT_QUERIES :
        CU_ATT_QUERIES) + set_half<G>() * CU_ATT_QUERIES;
    *ret_first = w.head * s.group + sub;
    return min(s.group - sub, CU_ATT_QUERIES);
}

/* Rank of head h of that count; *ret_head: its index among the rank's heads. */
template<int G>
static __device__ __forceinline__ int
rank_head(const struct split_args &s, const struct walk &w, int h, int *ret_head)
{
    *ret_head = h;
    if (!(G & RARE) || s.n_rank == 1)
        return 0;
    int i = h - w.head * s.group, rank = (int)((uint32_t)i / (uint32_t)s.rank_group);
    *ret_head = w.head * s.rank_group + i - rank * s.rank_group;
    return rank;
}

static __device__ __forceinline__ uint32_t
bf16_to_half(uint32_t x)
{
    float2 f = __bfloat1622float2(*(const __nv_bfloat162 *)&x);
    return pack<__nv_fp8_e4m3>(fminf(fmaxf(f.x, -65504.0f), 65504.0f),
        fminf(fmaxf(f.y, -65504.0f), 65504.0f));
}

/* Loads the tile's query vectors; the others are 0. With 8-bit keys a lane has four
 * adjacent dimensions, so here too. */
template<int D, typename E, int G>
static __device__ __forceinline__ void
load_queries(struct queries<D> &q, const struct split_args &s, const struct walk &w,
    int lane)
{
    const struct fdk_attention_args &a = s.a;
    int h0, n_head = set_heads<G>(s, w, &h0), n_q = w.t.n_tok * n_head;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int i = lane / 4 + 8 * half, t = vector_token(s, i, n_head), h = i - t * n_head;
        int of, rank = rank_head<G>(s, w, h0 + h, &of);
        const __nv_bfloat16 *x = (const __nv_bfloat16 *)a.qkv +
            (int64_t)(G & RARE ? (w.t.tok + t) * s.n_rank + rank : w.t.tok + t) *
            ((a.H + 2 * a.K) * D) +
            (G & RARE ? of : h0 + h) * D + lane % 4 * (sizeof(E) == 1 ? 4 : 2);
        if (half == 1 && n_q <= 8)
            return;
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
            uint2 v = make_uint2(0, 0);
            if (i < n_q && sizeof(E) == 1) {
                v = *(const uint2 *)(x + 16 * k);
            } else if (i < n_q) {
                v.x = *(const uint32_t *)(x + 16 * k);
                v.y = *(const uint32_t *)(x + 16 * k + 8);
            }
            q.x[half][k][0] = v.x;
            q.x[half][k][1] = v.y;
        }
    }
}

/* Issues the loads of the next split's queries, which overlap with the end of this
 * split. */
template<int D, typename E, int G>
static __device__ __forceinline__ void
load_next_queries(struct queries<D> &q, const struct split_args &s, struct walk w, int lane)
{
    step<G>(w, s);
    if (w.left > 0)
        load_queries<D, E, G>(q, s, w, lane);
}

/* Clears the sums and converts the queries to the type of the products. */
template<int D, typename E, int G>
static __device__ __forceinline__ void
begin_sums(struct sums<D> &u, struct queries<D> &q, const struct split_args &s,
    const struct walk &w, int lane)
{
    int h0, n_head = set_heads<G>(s, w, &h0);
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u.see[half][i] = w.t.see + vector_token(s, 8 * half + lane % 4 * 2 + i,
                n_head);
            u.m[half][i] = -INFINITY;
            u.l[half][i] = 0;
        }
#pragma unroll
        for (int j = 0; j < D / 16; j++)
            u.o[half][j][0] = u.o[half][j][1] = u.o[half][j][2] = u.o[half][j][3] = 0;
        if (std::is_same<E, __nv_fp8_e4m3>::value)
#pragma unroll
            for (int k = 0; k < D / 16; k++) {
                q.x[half][k][0] = bf16_to_half(q.x[half][k][0]);
                q.x[half][k][1] = bf16_to_half(q.x[half][k][1]);
            }
    }
}

/* p[h]: scores of the tile's 16 tokens by the vectors of half h. */
template<int D, typename E>
static __device__ __forceinline__ void
unit_scores(float p[2][4], const struct queries<D> &q, uint32_t at, bool two, int lane)
{
    const int row = shape<D, E>::row;
    float odd[2][4] = {};
    uint32_t b[4][4];
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[4];
        const int each = sizeof(E) == 1 ? 8 : 4;
        if (k % each == 0)
#pragma unroll
            for (int i = 0; i < 4 && k / each * 4 + i < (row + 16) / 32; i++)
                load4(b[i], piece<row>(at, 0, lane % 16, 2 * (k / each * 4 + i) +
                    lane / 16));
        if (sizeof(E) == 1) {
            widen4<E, false>(b[k / 2 % 4][k % 2 * 2], &a[0], &a[2]);
            widen4<E, false>(b[k / 2 % 4][k % 2 * 2 + 1], &a[1], &a[3]);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[i] = b[k % 4][i];
        }
        mma<E>(k % 2 ? odd[0] : p[0], a, q.x[0][k][0], q.x[0][k][1]);
        if (two)
            mma<E>(k % 2 ? odd[1] : p[1], a, q.x[1][k][0], q.x[1][k][1]);
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        p[i / 4][i % 4] += odd[i / 4][i % 4];
}

/* log2 of the weight of the largest score: keeps small weights from underflowing in half
 * precision. */
template<typename E>
static __device__ __forceinline__ constexpr float
high(void)
{
    return std::is_same<E, __nv_fp8_e4m3>::value ? 12 : 0;
}

/* Online softmax: converts the scores of one half's vectors to weights. */
template<int D, typename E, int G>
static __device__ __forceinline__ void
unit_softmax(float p[4], struct sums<D> &u, int half, float scale, int pos,
    int window, int lane)
{
    float alpha[2], *m = u.m[half];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = m[i], &x = p[i], &y = p[i + 2];
        if (!sees<G>(u.see[half][i], pos + lane / 4, window))
            x = -INFINITY;
        if (!sees<G>(u.see[half][i], pos + lane / 4 + 8, window))
            y = -INFINITY;
        top = fmaxf(top, fmaxf(x, y));
#pragma unroll
        for (int k = 4; k < 32; k *= 2)
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, k));
        /* No token seen so far: weights are 0, not NaN. */
        float ref = top == -INFINITY ? 0 : top * scale;
        /* Exactly 1 if the maximum has not grown, without the rounding of the product. */
        alpha[i] = top == m[i] ? 1 : power2(fmaf(m[i], scale, -ref));
        m[i] = top;
        ref -= high<E>();
        x = power2(fmaf(x, scale, -ref));
        y = power2(fmaf(y, scale, -ref));
        u.l[half][i] = fmaf(u.l[half][i], alpha[i], x + y);
    }
    if (__any_sync(0xffffffffu, alpha[0] != 1 || alpha[1] != 1))
#pragma unroll
        for (int j = 0; j < D / 16; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                u.o[half][j][i] *= alpha[i % 2];
}

/* Adds weights times values, 16 dimensions at a time; with 8-bit values even dimensions
 * are rows 0 to 7 and odd ones rows 8 to 15. */
template<int D, typename E>
static __device__ __forceinline__ void
unit_values(struct sums<D> &u, const float p[2][4], uint32_t at, bool two, int lane)
{
    const int row = shape<D, E>::row;
    uint32_t w[2][2];
#pragma unroll
    for (int i = 0; i < 4; i++)
        w[i / 2][i % 2] = turn(pack<E>(p[i / 2][i % 2 * 2], p[i / 2][i % 2 * 2 + 1]));
#pragma unroll
    for (int k = 0; k < (row + 16) / 32; k++) {
        uint32_t b[4];
        load4_turned(b, piece<row>(at, 1, lane % 16, 2 * k + lane / 16));
#pragma unroll
        for (int i = 0; i < (sizeof(E) == 1 ? 2 : 1); i++) {
            const int j = sizeof(E) == 1 ? 2 * k + i : k;
            if (j >= D / 16)
                continue;
            uint32_t a[4] = { b[0], b[2], b[1], b[3] };
            if (sizeof(E) == 1) {
                widen4<E, true>(b[2 * i], &a[0], &a[1]);
                widen4<E, true>(b[2 * i + 1], &a[2], &a[3]);
            }
            mma<E>(u.o[0][j], a, w[0][0], w[0][1]);
            if (two)
                mma<E>(u.o[1][j], a, w[1][0], w[1][1]);
        }
    }
}

/* two: the tile has more than 8 vectors. */
template<int D, typename E, int G>
static __device__ __forceinline__ void
attend_unit(struct sums<D> &u, const struct queries<D> &q, const struct split_args &s,
    float score, const float *scales, uint32_t at, int pos, bool two, int lane)
{
    typedef struct shape<D, E> sh;
    float p[2][4] = {};
    const float *scale = scales + lane / 4;
    unit_scores<D, E>(p, q, at, two, lane);
    if (sh::scaled)
#pragma unroll
        for (int i = 0; i < 8; i++)
            p[i / 4][i % 4] *= scale[i % 4 / 2 * 8];
    const bool capped = (G & RARE) && s.cap > 0;
    if (capped)
#pragma unroll
        for (int i = 0; i < 8; i++)
            p[i / 4][i % 4] = cu_soft_cap(p[i / 4][i % 4], score * s.cap_by, s.cap);
    const float scaled = capped ? 1 : score;
    unit_softmax<D, E, G>(p[0], u, 0, scaled, pos, s.window, lane);
    if (two)
        unit_softmax<D, E, G>(p[1], u, 1, scaled, pos, s.window, lane);
    if (sh::scaled)
#pragma unroll
        for (int i = 0; i < 8; i++)
            p[i / 4][i % 4] *= scale[UNIT + i % 4 / 2 * 8];
    unit_values<D, E>(u, p, at, two, lane);
}

#endif
