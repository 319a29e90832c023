/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of one token over paged bf16 KV, for mega_kernel.cu. The tokens of a KV head
 * are divided among several blocks (split-KV), in runs of KV tiles of 16 tokens, one tile
 * per warp at a time. Each of these blocks computes the head's queries from the qkv GEMM
 * itself; the last one also computes the token's key and value. Tokens are the M of both
 * products, query heads the N: keys and values are loaded from memory directly to
 * registers as operands, the first ones while the block waits for the qkv GEMM of other
 * blocks. The sums (m, l, o) of a block's warps are merged in their order; then each
 * block of a head merges all its blocks' sums for a slice of the results.
 */
#ifndef FDD_KERNELS_CUDA_SM90_MEGA_ATTENTION_CUH
#define FDD_KERNELS_CUDA_SM90_MEGA_ATTENTION_CUH

#include "kernels/cuda/generic/qkv_lanes.cuh"
#include "kernels/cuda/sm90/mega_gemm.cuh"

#define UNIT    16               /* tokens of a KV tile */
#define QUERIES MEGA_GROUP
#define LOG2E   1.4426950408889634f
#define UNITS_KNOWN 8            /* tiles per warp whose addresses are computed ahead */
#define Q_ROW(D) (2 * (D) + 64)  /* bytes of a query; 64 avoid bank conflicts */

/* Work of this block, the same in every layer. */
struct att_place {
    int head, split;
    int see;                     /* tokens of KV */
    int u0, u1;                  /* tiles [u0, u1); none if the block has no head */
    int slot;                    /* slot of the new token, -1: it is not stored */
    const int32_t *table;
    int64_t at[MEGA_WARPS][UNITS_KNOWN]; /* offset of the tiles' keys, in layer 0 */
};

/* In shared memory, in the place of a GEMM's input. */
template<int D>
struct att_room {
    float2 ml[MEGA_WARPS][QUERIES];
    __align__(16) unsigned char q[QUERIES * Q_ROW(D)];
    __align__(16) unsigned char own[2][2 * D]; /* the new token's key and value */
    __align__(16) float sums[];  /* [MEGA_WARPS][group][D] */
};

static __host__ __device__ constexpr int
att_room_bytes(int group, int D)
{
    return (int)(D == 64 ? sizeof(struct att_room<64>) : sizeof(struct att_room<128>)) +
        MEGA_WARPS * group * D * 4;
}
static_assert(att_room_bytes(MEGA_GROUP, 128) <= MEGA_X_BYTES, "room");

static __device__ __forceinline__ int64_t
att_unit_find(const struct att_place &p, const struct mega_list &l, int u)
{
    const int pos = u * UNIT, size = l.kv.block_size, block = p.table[pos / size];
    return (int64_t)block * (int64_t)l.kv.block_bytes + ((int64_t)p.head * size + pos %
        size) * l.kv.head_dim * 2;
}

/* Called by all threads. */
static __device__ __forceinline__ void
att_place_find(struct att_place &p, const struct mega_list &l)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    if (threadIdx.x == 0) {
        p.head = (int)blockIdx.x / l.splits;
        p.split = (int)blockIdx.x % l.splits;
        p.see = l.b.pos[0] + 1;
        const int units = p.head < l.K ? (p.see + UNIT - 1) / UNIT : 0;
        p.u0 = (int)((int64_t)p.split * units / l.splits);
        p.u1 = (int)((int64_t)(p.split + 1) * units / l.splits);
        p.slot = l.b.slot_map[0];
        p.table = l.b.block_table + (int64_t)l.b.state[l.b.row[0]] * l.b.table_stride;
    }
    mega_sync();
    const int u = p.u0 + lane * MEGA_WARPS + warp;
    if (lane < UNITS_KNOWN && u < p.u1)
        p.at[warp][lane] = att_unit_find(p, l, u);
    mega_sync();
}

/* Address of the keys of this warp's tile k. */
static __device__ __forceinline__ const char *
att_unit(const struct att_place &p, const struct mega_list &l, int64_t layer, int k)
{
    const int warp = (int)threadIdx.x / 32;
    return (const char *)l.kv.base + layer * (int64_t)l.kv.layer_bytes + (k < UNITS_KNOWN ?
        p.at[warp][k] : att_unit_find(p, l, p.u0 + k * MEGA_WARPS + warp));
}

/* Prefetch keys and values of this block's work items into L2. The new token's
 * are written there meanwhile, but no block reads them from there. */
static __device__ __forceinline__ void
att_prefetch(const struct att_place &p, const struct mega_list &l, int64_t layer)
{
    const int lane = (int)threadIdx.x % 32;
    int u = p.u0 + (int)threadIdx.x / 32;
    for (int k = 0; u < p.u1 && k < UNITS_KNOWN; u += MEGA_WARPS, k++)
        if (lane * 128 < min(p.see - u * UNIT, UNIT) * l.kv.head_dim * 2) {
            const char *at = att_unit(p, l, layer, k) + lane * 128;
            asm volatile("prefetch.global.L2 [%0];" :: "l"(at));
            asm volatile("prefetch.global.L2 [%0];" :: "l"(at + l.kv.v_bytes));
        }
}

/* ---- queries, key, value --------------------------------------------------------- */

/* Computes the head's queries to the room and, in the last block, the new token's key and
 * value to the room and the KV cache. Each group of lanes of a warp computes a vector. */
template<int D>
static __device__ __forceinline__ void
att_vectors(struct att_room<D> *room, const struct att_place &p, const struct mega_list &l,
    const struct mega_layer &y, const struct words &w)
{
    const int n_lane = D / 8, per = 32 / n_lane, group = l.group;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int i = warp * per + lane / n_lane, live = i < group + 2;
    const struct lanes g = { n_lane, lane % n_lane, n_lane, l.rot / 16 };
    struct fdk_qkv_args a = {};
    struct cu_raw8<float> cs[2];
    struct cu_raw8<__nv_bfloat16> raw;
    float v[8];
    if (warp * per >= group + 2)
        return;
    a.cs = l.cs;
    a.kv = l.kv;
    a.D = D;
    a.rot = l.rot;
    a.layer = (int)y.kv_layer;
    a.eps = l.qk_eps;
    /* a group of lanes without a vector loads the value again and does not use it */
    const int vector = i < group ? p.head * group + i : l.H + p.head + (i > group ? l.K :
        0);
    lanes_cs(g, a, 0, cs);
    words_take4<1>(raw.word, w, l.at.qkv + word_of_piece(vector * D / 8 + g.at), 0, 1);
    cu_widen8(raw, v);
    if (y.q_norm != NULL || y.k_norm != NULL)
        lanes_norm(g, a, i < group ? y.q_norm : i == group ? y.k_norm : NULL, v);
    lanes_rotate(g, cs, i <= group, v);
    if (i < group) {
        cu_store8((__nv_bfloat16 *)(room->q + i * Q_ROW(D)), (size_t)g.at, v);
    } else if (live && p.split == l.splits - 1) {
        cu_store8((__nv_bfloat16 *)room->own[i - group], (size_t)g.at, v);
        if (p.slot >= 0)
            lanes_kv<__nv_bfloat16>(g, a, v, p.slot, p.head, i > group, 1);
    }
}

/* ---- a warp's products --------------------------------------------------------- */

/* Sums of a warp: o[c][w] are dimensions 64 c + 8 g + 2 w and the next one, of queries
 * 2 t and 2 t + 1; m is a base-2 logarithm, l the sum of only this lane's tokens. */
template<int D>
struct att_sums {
    float m[2], l[2];
    float o[D / 64][4][4];
};

/* A lane's share of a tile: keys of tokens g and g + 8, pieces t, t + 4, ... of 16 bytes;
 * values of tokens 2 t, 2 t + 1, 2 t + 8, 2 t + 9, pieces g, g + 8. */
template<int D>
struct att_kv {
    uint4 k[2][D / 32], v[4][D / 64];
};

static __device__ __forceinline__ int
value_token(int j)
{
    return 2 * ((int)threadIdx.x % 4) + j % 2 + j / 2 * 8;
}

/* Loads n tokens. Memory past them may hold NaN, so the rest is 0. */
template<int D>
static __device__ __forceinline__ void
att_load(struct att_kv<D> &kv, const char *keys, size_t v_bytes, int n)
{
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    const uint4 zero = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int i = 0; i < D / 32; i++)
            kv.k[h][i] = g + 8 * h < n ? __ldcg((const uint4 *)(keys + (g + 8 * h) * D *
                2) + t + 4 * i) : zero;
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int c = 0; c < D / 64; c++)
            kv.v[j][c] = value_token(j) < n ? __ldcg((const uint4 *)(keys + v_bytes +
                value_token(j) * D * 2) + g + 8 * c) : zero;
}

/* Replaces token `own` of the tile by the new token. key, value: its vectors in shared
 * memory. */
template<int D>
static __device__ __forceinline__ void
att_own(struct att_kv<D> &kv, int own, const uint4 *key, const uint4 *value)
{
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int i = 0; i < D / 32; i++)
            if (g + 8 * h == own)
                kv.k[h][i] = key[t + 4 * i];
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int c = 0; c < D / 64; c++)
            if (value_token(j) == own)
                kv.v[j][c] = value[g + 8 * c];
}

/* Scores of a tile. query: address of this lane's query in shared memory, pieces t, t +
 * 4, ... */
template<int D>
static __device__ __forceinline__ void
att_scores(float p[4], const struct att_kv<D> &kv, uint32_t query)
{
    float odd[4] = {};
    p[0] = p[1] = p[2] = p[3] = 0;
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        uint32_t q[4];
        quant_take<16>(q, query + (uint32_t)(64 * i));
        quant_mma(p, kv.k[0][i].x, kv.k[1][i].x, kv.k[0][i].y, kv.k[1][i].y, q[0], q[1]);
        quant_mma(odd, kv.k[0][i].z, kv.k[1][i].z, kv.k[0][i].w, kv.k[1][i].w, q[2], q[3]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        p[i] += odd[i];
}

/* Maximum over the lanes that hold the same queries. */
static __device__ __forceinline__ float
att_max(float x)
{
#pragma unroll
    for (int i = 4; i < 32; i *= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
    return x;
}

static __device__ __forceinline__ float
att_sum(float x)
{
#pragma unroll
    for (int i = 4; i < 32; i *= 2)
        x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}

/* Online softmax: converts scores of n tokens (g, g + 8; queries 2 t, 2 t + 1) to
 * weights. */
template<int D>
static __device__ __forceinline__ void
att_softmax(float p[4], struct att_sums<D> &s, float scale, int n)
{
    const int g = (int)threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float a = g < n ? p[i] * scale : -INFINITY;
        float b = g + 8 < n ? p[i + 2] * scale : -INFINITY;
        float m = fmaxf(s.m[i], att_max(fmaxf(a, b))), alpha = power2(s.m[i] - m);
        p[i] = power2(a - m);
        p[i + 2] = power2(b - m);
        s.l[i] = fmaf(s.l[i], alpha, p[i] + p[i + 2]);
        s.m[i] = m;
#pragma unroll
        for (int c = 0; c < D / 64; c++)
#pragma unroll
            for (int w = 0; w < 4; w++) {
                s.o[c][w][i] *= alpha;
                s.o[c][w][i + 2] *= alpha;
            }
    }
}

/* Adds weights times values: dimensions 2 w and 2 w + 1 of the pieces, tokens along K. */
template<int D>
static __device__ __forceinline__ void
att_values(struct att_sums<D> &s, const float p[4], const uint4 v[4][D / 64])
{
    uint32_t b0 = turn(pack<__nv_bfloat16>(p[0], p[1]));
    uint32_t b1 = turn(pack<__nv_bfloat16>(p[2], p[3]));
#pragma unroll
    for (int c = 0; c < D / 64; c++)
#pragma unroll
        for (int w = 0; w < 4; w++) {
            uint32_t x[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                x[j] = w == 0 ? v[j][c].x : w == 1 ? v[j][c].y : w == 2 ? v[j][c].z :
                    v[j][c].w;
            quant_mma(s.o[c][w], __byte_perm(x[0], x[1], 0x5410),
                __byte_perm(x[0], x[1], 0x7632), __byte_perm(x[2], x[3], 0x5410),
                __byte_perm(x[2], x[3], 0x7632), b0, b1);
        }
}

/* Computes this warp's tiles; the load of the first one has been issued. */
template<int D>
static __device__ __forceinline__ void
att_warp(struct att_sums<D> &s, struct att_kv<D> &kv, const struct att_room<D> *room,
    const struct att_place &p, const struct mega_list &l, int64_t layer)
{
    const int query = (int)threadIdx.x % 32 / 4, last = (p.see - 1) / UNIT;
    const uint32_t row = cu_smem(room->q) + (uint32_t)(query * Q_ROW(D) +
        (int)threadIdx.x % 4 * 16);
    int u = p.u0 + (int)threadIdx.x / 32;
#pragma unroll 1
    for (int k = 0; u < p.u1; u += MEGA_WARPS, k++) {
        const int n = min(p.see - u * UNIT, UNIT);
        float w[4];
        if (k > 0)
            att_load<D>(kv, att_unit(p, l, layer, k), l.kv.v_bytes, n);
        if (u == last)
            att_own<D>(kv, n - 1, (const uint4 *)room->own[0], (const uint4 *)room->own[1]);
        att_scores<D>(w, kv, row);
        att_softmax<D>(w, s, l.scale * LOG2E, n);
        att_values<D>(s, w, kv.v);
    }
}

/* ---- merging ------------------------------------------------------------------- */

/* Elements of the merged o per thread: query i / D, dimension i % D for i = thread,
 * thread + MEGA_THREADS, .. */
#define OWN(D) (QUERIES * (D) / MEGA_THREADS)

/* Stores a warp's sums in the room. */
template<int D>
static __device__ __forceinline__ void
att_put(struct att_room<D> *room, const struct att_sums<D> &s, int group)
{
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    const int warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float l = att_sum(s.l[i]);
        if (g == 0)
            room->ml[warp][2 * t + i] = make_float2(s.m[i], l);
        if (2 * t + i >= group)
            continue;
        float *o = room->sums + (warp * group + 2 * t + i) * D + 8 * g;
#pragma unroll
        for (int c = 0; c < D / 64; c++)
#pragma unroll
            for (int w = 0; w < 4; w += 2)
                *(float4 *)(o + 64 * c + 2 * w) = make_float4(s.o[c][w][i],
                    s.o[c][w][i + 2], s.o[c][w + 1][i], s.o[c][w + 1][i + 2]);
    }
}

/* Merges the warps' sums in their order and sends them to the other blocks of the
 * head. */
template<int D>
static __device__ __forceinline__ void
att_give(const struct words &w, const struct att_room<D> *room, const struct att_place &p,
    const struct mega_list &l, int warps)
{
    const int block = p.head * l.splits + p.split;
#pragma unroll
    for (int i = 0; i < OWN(D); i++) {
        const int at = (int)threadIdx.x + i * MEGA_THREADS, q = at / D;
        float m = -INFINITY, sum = 0, o = 0;
        if (at >= l.group * D)
            break;
#pragma unroll 1
        for (int k0 = 0; k0 < warps; k0 += 4) {
            float2 ml[4];
            float v[4], top = m;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int j = min(k0 + k, warps - 1);
                ml[k] = room->ml[j][q];
                v[k] = room->sums[(j * l.group + q) * D + at % D];
                top = fmaxf(top, ml[k].x);
            }
            const float was = power2(m - top);
            sum *= was;
            o *= was;
            m = top;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float f = k0 + k < warps ? power2(ml[k].x - m) : 0;
                sum = fmaf(ml[k].y, f, sum);
                o = fmaf(v[k], f, o);
            }
        }
        word_put(w, l.at.part + block * l.group * D + at, __float_as_uint(o));
        if (at % D != 0)
            continue;
        word_put(w, l.at.ml + 2 * (block * l.group + q), __float_as_uint(m));
        word_put(w, l.at.ml + 2 * (block * l.group + q) + 1, __float_as_uint(sum));
    }
}

/* Merges the sums of all blocks of the head for this block's slice of the results: two
 * results per group of l.splits lanes, each of which reads the sums of one block. */
template<int D>
static __device__ __forceinline__ void
att_combine(const struct words &w, const struct mega_list &l, const struct att_place &p)
{
    const int all = l.group * D, bits = 31 - __clz(l.splits), n = all >> bits;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < all / 2; i += MEGA_THREADS) {
        const int j = p.split * n + 2 * (i >> bits);
        const int block = p.head * l.splits + (i & (l.splits - 1));
        const uint2 o = words_take2(w, l.at.part + block * all + j);
        const uint2 ml = words_take2(w, l.at.ml + 2 * (block * l.group + j / D));
        float m = __uint_as_float(ml.x), s[3] = { __uint_as_float(ml.y),
            __uint_as_float(o.x), __uint_as_float(o.y) };
        for (int k = 1; k < l.splits; k *= 2)
            m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, k));
        const float f = power2(__uint_as_float(ml.x) - m);
#pragma unroll
        for (int e = 0; e < 3; e++)
            s[e] *= f;
        for (int k = 1; k < l.splits; k *= 2)
#pragma unroll
            for (int e = 0; e < 3; e++)
                s[e] += __shfl_xor_sync(0xffffffffu, s[e], k);
        if ((i & (l.splits - 1)) == 0)
            word_put(w, l.at.att + word_of_pair((p.head * all + j) / 2),
                pack<__nv_bfloat16>(s[1] / s[0], s[2] / s[0]));
    }
}

/* Called by all blocks; the room may be reused afterwards. */
template<int D>
static __device__ __forceinline__ void
mega_run_attention(struct att_room<D> *room, const struct att_place &p,
    const struct mega_list &l, const struct mega_layer &y, const struct words &w)
{
    struct att_sums<D> s = {};
    struct att_kv<D> kv;
    const int u = p.u0 + (int)threadIdx.x / 32;
    if (p.head >= l.K)
        return;
    att_load<D>(kv, att_unit(p, l, y.kv_layer, 0), l.kv.v_bytes, u < p.u1 ? min(p.see - u *
        UNIT, UNIT) : 0);
    s.m[0] = s.m[1] = -INFINITY;
    att_vectors<D>(room, p, l, y, w);
    mega_sync();
    att_warp<D>(s, kv, room, p, l, y.kv_layer);
    if (u < p.u1)
        att_put<D>(room, s, l.group);
    mega_sync();
    att_give<D>(w, room, p, l, min(MEGA_WARPS, p.u1 - p.u0));
    mega_sync();
    att_combine<D>(w, l, p);
}

#endif
