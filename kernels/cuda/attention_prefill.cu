/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of many query tokens of a row (cu_att_long): bf16, head dims 64 and 128,
 * on Hopper's asynchronous matrix units.
 *
 * The work of a tile of the list is cut into units: 64 of its query tokens, one head. A
 * block takes as many units of one KV head as it has warpgroups to multiply. One warp
 * copies: the units' queries, then keys and values in chunks of 128 tokens at absolute
 * multiples, a ring of them in shared memory. Each of the other warpgroups has a unit:
 * scores of chunk j + 1 are on their way while the weights of chunk j become bf16 in
 * registers, from where they meet the values. The warpgroups take turns, so that one's
 * exponentials pass under the others' products.
 *
 * A query's sums run over its chunks in ascending order and see nothing of the other
 * queries in the unit: a chunk beyond what a query sees multiplies its sums by 1 and
 * adds 0. So its bits depend on its position and the row's KV alone. In deterministic
 * contexts they restart with each split (cu_part_few()), and splits are merged one by
 * one, to the bits of attention_chunk.cu: code that must match it there says so.
 *
 * Tokens of a chunk that the row does not have are not copied, as their blocks may not
 * be mapped: their scores are masked, and their values set to zero, since a weight of
 * zero does not silence a NaN.
 */
#include "kernels/cuda/attention_prefill_copy.cuh"

#include <math.h>

#define LOG2_E  1.4426950408889634f

/* ---- multiplying ----------------------------------------------------------- */

struct softmax {                 /* of two queries of a thread; l: of its own columns */
    float m[2], l[2], alpha[2];
};

/* The queries as what a product takes from registers. */
template<int D>
static __device__ __forceinline__ void
load_queries(uint32_t (&r)[D / 4], uint32_t q)
{
    int t = (int)threadIdx.x % 128, row = t / 32 * 16 + t % 32 / 4;
#pragma unroll
    for (int i = 0; i < D / 4; i++) {
        int y = row + i % 2 * 8, unit = i / 4 % 4 * 2 + i / 2 % 2;
        uint32_t at = q + (uint32_t)(i / 16 * (ROWS * 128) + y * 128 +
            (unit ^ y % 8) * 16 + t % 4 * 4);
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r[i]) : "r"(at));
    }
}

template<int D>
static __device__ __forceinline__ void
multiply_keys(float (&sc)[64], uint32_t q, const uint32_t (&r)[D / 4], uint32_t k)
{
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        uint32_t half = (uint32_t)(i / 4), in = (uint32_t)(i % 4 * 32);
        uint64_t b = matrix(k + half * 1024 + in, 0, shape<D>::eight);
        if constexpr (shape<D>::q_regs)
            mma_rs<0>(sc, r + 4 * i, b, i > 0);
        else
            mma_ss(sc, matrix(q + half * (ROWS * 128) + in, 0, 1024), b, i > 0);
    }
}

template<int D>
static __device__ __forceinline__ void
multiply_values(float (&o)[D / 2], const uint32_t (&p)[32], uint32_t v, int add)
{
#pragma unroll
    for (int i = 0; i < CHUNK / 16; i++)
        mma_rs<1>(o, p + 4 * i,
            matrix(v + (uint32_t)(i * 2 * shape<D>::eight), 1024, shape<D>::eight),
            add || i > 0);
}

/* Scores of tokens from see[] on, counted from the chunk's begin, count nothing. */
static __device__ __forceinline__ void
mask(float (&sc)[64], const int (&see)[2])
{
    int at = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 64; i++)
        if (i / 4 * 8 + i % 2 + at >= see[i / 2 % 2])
            sc[i] = -INFINITY;
}

/* Scores to weights; alpha: what the sums so far are worth against them. */
static __device__ __forceinline__ void
weigh(float (&sc)[64], struct softmax *x, float scale)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = x->m[r], other = sc[2 * r + 1];
#pragma unroll
        for (int i = 0; i < 64; i += 4) {
            top = fmaxf(top, sc[i + 2 * r]);
            other = fmaxf(other, sc[i + 2 * r + 1]);
        }
        top = fmaxf(top, other);
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        float ref = top == -INFINITY ? 0 : top * scale, sum = 0;
        /* 1 where nothing is larger: the product's rounding must not show. */
        x->alpha[r] = top == x->m[r] ? 1 : exp2_fast(fmaf(x->m[r], scale, -ref));
        x->m[r] = top;
#pragma unroll
        for (int i = 0; i < 64; i += 8) {
            float part[2];
#pragma unroll
            for (int k = 0; k < 2; k++) {
                float *two = sc + i + 4 * k + 2 * r;
                two[0] = exp2_fast(fmaf(two[0], scale, -ref));
                two[1] = exp2_fast(fmaf(two[1], scale, -ref));
                part[k] = two[0] + two[1];
            }
            sum += part[0] + part[1]; /* as a unit's are in attention_chunk.cu */
        }
        x->l[r] = fmaf(x->l[r], x->alpha[r], sum);
    }
}

static __device__ __forceinline__ void
pack_weights(uint32_t (&p)[32], const float (&sc)[64])
{
#pragma unroll
    for (int i = 0; i < 32; i++)
        p[i] = pack_bf16(sc[2 * i], sc[2 * i + 1]);
}

template<int D>
static __device__ __forceinline__ void
rescale(float (&o)[D / 2], const struct softmax &x)
{
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        o[i] *= x.alpha[i / 2 % 2];
}

static __device__ __forceinline__ float
quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

struct folded {                  /* of two queries of a thread: all splits so far, maxima in
                                    powers of two; what they have summed up is at `at` */
    float m[2], l[2];
    uint32_t at;
};

/* Another split to those so far, to the bits of fold() of attention_split_merge.cuh. first:
 * there are none; last: the results to o, else it is 0 for the next split. Of what is in
 * shared memory each thread has its own. */
template<int D>
static __device__ __forceinline__ void
fold_part(struct folded *all, float (&o)[D / 2], const struct softmax &x, float scale,
    bool first, bool last)
{
    float a[2], b[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float m = __fmul_rn(x.m[r], scale), l = quad_sum(x.l[r]);
        float top = first ? m : fmaxf(all->m[r], m), ref = top == -INFINITY ? 0 : top;
        a[r] = exp2_fast(all->m[r] - ref);
        b[r] = exp2_fast(m - ref);
        all->l[r] = first ? l : fmaf(all->l[r], a[r], __fmul_rn(l, b[r]));
        all->m[r] = top;
    }
#pragma unroll
    for (int i = 0; i < D / 2; i += 4) {
        const uint32_t at = all->at + (uint32_t)i * (128 * 4);
        float v[4];
        if (!first) {
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(at) : "memory");
#pragma unroll
            for (int k = 0; k < 4; k++)
                o[i + k] = fmaf(v[k], a[k / 2], __fmul_rn(o[i + k], b[k / 2]));
        }
        if (last)
            continue;
        asm volatile("st.shared.v4.f32 [%4], {%0, %1, %2, %3};" :: "f"(o[i]),
            "f"(o[i + 1]), "f"(o[i + 2]), "f"(o[i + 3]), "r"(at) : "memory");
        o[i] = o[i + 1] = o[i + 2] = o[i + 3] = 0;
    }
}

/* Values from token n of a chunk on become zeros. By each warpgroup for itself: it
 * would have to wait for the other otherwise. */
template<int D>
static __device__ __forceinline__ void
clear_values(uint32_t v, int n, int group)
{
    for (int i = (int)threadIdx.x % 128; i < (CHUNK - n) * (D / 8); i += 128) {
        int tok = n + i / (D / 8), at = i % (D / 8);
        uint32_t to = v + (uint32_t)(tok / 8 * shape<D>::eight + at / 8 * 1024 +
            tok % 8 * 128 + at % 8 * 16);
        asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" :: "r"(to), "r"(0)
            : "memory");
    }
    fence_async();
    named_sync(1 + shape<D>::groups + group, 128);
}

/* Lane i of four gets word i of each of them, in their order. */
static __device__ __forceinline__ uint4
swap_words(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3, int i)
{
    bool odd = i & 1, high = i & 2;
    uint32_t x = __shfl_xor_sync(0xffffffffu, odd ? w0 : w1, 1);
    uint32_t y = __shfl_xor_sync(0xffffffffu, odd ? w2 : w3, 1);
    uint32_t a0 = odd ? x : w0, a1 = odd ? w1 : x;      /* word odd of this pair */
    uint32_t b0 = odd ? y : w2, b1 = odd ? w3 : y;      /* word 2 + odd */
    x = __shfl_xor_sync(0xffffffffu, high ? a0 : b0, 2);
    y = __shfl_xor_sync(0xffffffffu, high ? a1 : b1, 2);
    return high ? make_uint4(x, y, b0, b1) : make_uint4(a0, a1, x, y);
}

template<int D>
static __device__ __forceinline__ void
store(const struct fdk_attention_args &a, const struct item &it, int unit,
    const float (&o)[D / 2], const float (&sum)[2], int row)
{
    int head = it.kv_head * (a.H / a.K) + unit / HALVES, n = unit_rows(it, unit);
    int first = it.at.tok + unit % HALVES * ROWS + row;
    int quarter = (int)threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float l = sum[r];
        float by = l > 0 ? 1 / l : l;
        __nv_bfloat16 *y = (__nv_bfloat16 *)a.y + ((size_t)(first + 8 * r) *
            (size_t)a.H + (size_t)head) * D;
#pragma unroll
        for (int i = 0; i < D / 32; i++) {
            uint32_t w[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                w[j] = pack_bf16(o[16 * i + 4 * j + 2 * r] * by,
                    o[16 * i + 4 * j + 2 * r + 1] * by);
            uint4 v = swap_words(w[0], w[1], w[2], w[3], quarter);
            if (row + 8 * r < n)
                *(uint4 *)(y + 32 * i + 8 * quarter) = v;
        }
    }
}

template<int D, bool F>
struct consumer {                /* where a warpgroup stands in the rings */
    struct turn<ring<D, F>::stages> tk, tv;
    uint32_t q_phase;
    int group, row;              /* row: this thread's first query in the unit */
    bool speaks;                 /* for its warp */
};

static __device__ __forceinline__ void
let_go(uint32_t bar, bool speaks)
{
    __syncwarp();
    if (speaks)
        cu_bar_arrive(bar);
}

template<int D>
static __device__ __forceinline__ void
wait_turn(int group)
{
    named_sync(1 + group, 256);
}

template<int D>
static __device__ __forceinline__ void
pass_turn(int group)
{
    named_arrive(1 + (group + 1) % shape<D>::groups, 256);
}

/* Of chunk c, scores at sc, to weights. first: tokens that query 0 of the unit sees. */
static __device__ __forceinline__ void
chunk_weights(float (&sc)[64], struct softmax *x, int first, int c, int row, float scale)
{
    if ((c + 1) * CHUNK > first) {
        int see[2] = { first + row - c * CHUNK, first + row + 8 - c * CHUNK };
        mask(sc, see);
    }
    weigh(sc, x, scale);
}

/* Go along without a unit. The queries are waited for as elsewhere: barriers know how
 * many arrived, not which, so no warp may arrive twice in one phase. */
template<int D, bool F>
static __device__ __forceinline__ void
skip(const struct shared<D> &s, struct consumer<D, F> *w, const struct item &it)
{
    cu_bar_wait(s.full_q, w->q_phase);
    let_go(s.empty_q, w->speaks);
#pragma unroll 1
    for (int c = 0; c < it.n_chunk; c++) {
        wait_turn<D>(w->group);
        pass_turn<D>(w->group);
        cu_bar_wait(s.full_k + 8 * (uint32_t)w->tk.stage, w->tk.phase);
        let_go(s.empty_k + 8 * (uint32_t)w->tk.stage, w->speaks);
        w->tk.next();
        cu_bar_wait(s.full_v + 8 * (uint32_t)w->tv.stage, w->tv.phase);
        let_go(s.empty_v + 8 * (uint32_t)w->tv.stage, w->speaks);
        w->tv.next();
    }
}

template<int D, bool F>
static __device__ __forceinline__ void
attend(const struct fdk_attention_args &a, const struct shared<D> &s,
    struct consumer<D, F> *w, const struct item &it, int unit)
{
    float sc[64], o[D / 2], scale = a.scale * LOG2_E;
    uint32_t p[32], r[D / 4], q = s.q + (uint32_t)(w->group * shape<D>::q_bytes);
    struct softmax x = { { -INFINITY, -INFINITY }, { 0, 0 }, { 0, 0 } };
    struct softmax x0 = x;
    struct folded all = { {}, {}, s.all + (uint32_t)(w->group * ring<D, F>::all_bytes) +
        threadIdx.x % 128 * 16 };
    int first = it.at.kv - it.at.n + 1 + unit % HALVES * ROWS;
    /* As attention_chunk.cu begins: a sum of nothing but -0 is 0. */
#pragma unroll
    for (int i = 0; i < D / 2 && F; i++)
        o[i] = 0;
    cu_bar_wait(s.full_q, w->q_phase);
    if constexpr (shape<D>::q_regs) {
        load_queries<D>(r, q);
        let_go(s.empty_q, w->speaks);
    }
#pragma unroll 1
    for (int c = 0; c < it.n_chunk; c++) {
        cu_bar_wait(s.full_k + 8 * (uint32_t)w->tk.stage, w->tk.phase);
        wait_turn<D>(w->group);
        cu_wgmma_begin();
        multiply_keys<D>(sc, q, r, s.k_at(w->tk.stage));
        cu_wgmma_end();
        if (c > 0) {
            cu_bar_wait(s.full_v + 8 * (uint32_t)w->tv.stage, w->tv.phase);
            cu_wgmma_begin();
            multiply_values<D>(o, p, s.v_at(w->tv.stage), F || c > 1);
            cu_wgmma_end();
            pass_turn<D>(w->group);
            cu_wgmma_wait<1>();
        } else {
            pass_turn<D>(w->group);
            cu_wgmma_wait<0>();
        }
        cu_wgmma_hold(sc);
        let_go(s.empty_k + 8 * (uint32_t)w->tk.stage, w->speaks);
        w->tk.next();
        if (!shape<D>::q_regs && c + 1 == it.n_chunk)
            let_go(s.empty_q, w->speaks);
        if (F && c > 0 && cu_part_begins(c)) {
            x0 = x;
            x.m[0] = x.m[1] = -INFINITY;
            x.l[0] = x.l[1] = 0;
        }
        chunk_weights(sc, &x, first, c, w->row, scale);
        if (c > 0) {
            cu_wgmma_wait<0>();
            cu_wgmma_hold(o);
            let_go(s.empty_v + 8 * (uint32_t)w->tv.stage, w->speaks);
            w->tv.next();
            if (F && cu_part_begins(c))
                fold_part<D>(&all, o, x0, scale, c == 1 << CU_SPLIT_FEW, false);
            else
                rescale<D>(o, x);
        }
        pack_weights(p, sc);
    }
    cu_bar_wait(s.full_v + 8 * (uint32_t)w->tv.stage, w->tv.phase);
    if (it.at.kv % CHUNK != 0)
        clear_values<D>(s.v_at(w->tv.stage), it.at.kv % CHUNK, w->group);
    cu_wgmma_begin();
    multiply_values<D>(o, p, s.v_at(w->tv.stage), F || it.n_chunk > 1);
    cu_wgmma_end();
    cu_wgmma_wait<0>();
    cu_wgmma_hold(o);
    let_go(s.empty_v + 8 * (uint32_t)w->tv.stage, w->speaks);
    w->tv.next();
    if (F) {
        fold_part<D>(&all, o, x, scale, it.n_chunk <= 1 << CU_SPLIT_FEW, true);
    } else {
        all.l[0] = quad_sum(x.l[0]);
        all.l[1] = quad_sum(x.l[1]);
    }
    store<D>(a, it, unit, o, all.l, w->row);
}

/* That the tile of the i-th item is done: how many tiles of the row begin in it, as those
 * of bt tokens may lie across two of these. */
static __device__ void
report(const struct fdk_attention_args &a, const struct fdk_batch &b, const struct cut &u,
    int i, int bt)
{
    struct cu_att_long l = cu_att_long_list((const struct cu_att_plan *)a.plan)
        [item_number(i) / (a.K * u.sets)];
    int at = l.tok - b.q_start[l.row];
    atomicAdd(a.n_done, (uint32_t)((at + l.n + bt - 1) / bt - (at + bt - 1) / bt));
}

template<int D, bool F>
static __device__ __forceinline__ void
consume(const struct fdk_attention_args &a, const struct fdk_batch &b,
    const struct cut &u, const struct shared<D> &s, int n, int bt)
{
    int thread = (int)threadIdx.x % 128;
    struct consumer<D, F> w;
    w.tk = { 0, 0 };
    w.tv = { 0, 0 };
    w.q_phase = 0;
    /* By a shuffle, so that the compiler knows it to be the same in the warp. */
    w.group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0);
    w.row = thread / 32 * 16 + thread % 32 / 4;
    w.speaks = thread % 32 == 0;
    if (w.group == shape<D>::groups - 1)
        pass_turn<D>(w.group);
    struct agenda g = { n, 0, 0, 0, 0 };
    struct item it;
    for (int i = 0; find_item(a, b, u, &g, i, &it); i++) {
        int unit = it.unit + w.group;
        if (unit_rows(it, unit) > 0)
            attend<D, F>(a, s, &w, it, unit);
        else
            skip<D, F>(s, &w, it);
        w.q_phase ^= 1;
        if (unit == 0 && it.kv_head == 0 && thread == 0)
            report(a, b, u, i, bt);
    }
    if (w.group == 0)
        wait_turn<D>(w.group);
}

template<int D, bool F>
static __device__ __forceinline__ struct shared<D>
lay_out(unsigned char *mem, uint64_t *bar)
{
    constexpr int N = ring<D, F>::stages;
    struct shared<D> s;
    s.q = (cu_smem(mem) + 1023) & ~1023u;
    s.k = s.q + shape<D>::groups * shape<D>::q_bytes;
    s.v = s.k + N * shape<D>::kv_bytes;
    s.all = s.v + N * shape<D>::kv_bytes;
    s.full_k = cu_smem(bar);
    s.empty_k = s.full_k + 8 * N;
    s.full_v = s.empty_k + 8 * N;
    s.empty_v = s.full_v + 8 * N;
    s.full_q = s.empty_v + 8 * N;
    s.empty_q = s.full_q + 8;
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < N; i++) {
            cu_bar_init(s.full_k + 8 * i, 1);
            cu_bar_init(s.full_v + 8 * i, 1);
            cu_bar_init(s.empty_k + 8 * i, 4 * shape<D>::groups);
            cu_bar_init(s.empty_v + 8 * i, 4 * shape<D>::groups);
        }
        cu_bar_init(s.full_q, 1);
        cu_bar_init(s.empty_q, 4 * shape<D>::groups);
        cu_bar_ready();
    }
    return s;
}

template<int D, bool F>
static __global__ void __launch_bounds__(shape<D>::threads, 1)
long_kernel(struct fdk_attention_args a, struct fdk_batch b, struct cut u,
    int n_max, const __grid_constant__ struct maps m)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char mem[];
    __shared__ uint64_t bar[4 * ring<D, F>::stages + 2];
    struct shared<D> s = lay_out<D, F>(mem, bar);
    cu_dep_next();
    if (threadIdx.x == 0) {
        cu_prefetch_map(&m.q);
        cu_prefetch_map(&m.k);
        cu_prefetch_map(&m.v);
    }
    __syncthreads();
    cu_dep_wait();
    const struct cu_att_plan *plan = (const struct cu_att_plan *)a.plan;
    int n = cu_clip(&plan->n_long, n_max) * a.K * u.sets;
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(D == 128 ? 24 : 32));
        if (threadIdx.x < 32)
            produce<D, F>(a, b, m, u, s, n);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(D == 128 ? 240 : 160));
        consume<D, F>(a, b, u, s, n, plan->bt);
    }
#endif
}

/* ---- launching ------------------------------------------------------------- */

static cu_encode_fn encode;         /* set by cu_att_long_load(), always to the same */

static int
encode_map(CUtensorMap *m, int rank, const void *at, const cuuint64_t *dim,
    const cuuint64_t *stride, const cuuint32_t *box)
{
    const cuuint32_t step[5] = { 1, 1, 1, 1, 1 };
    CUresult r = encode(m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, (cuuint32_t)rank,
        (void *)(uintptr_t)at, dim, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? 0 : -EINVAL;
}

/* Keys or values of the layer, one box a block of a head: eight tokens, of these each
 * half of the head, of this each token, of this 64 elements, so that eights of tokens
 * lie evenly apart in shared memory whatever the block size. */
static int
map_kv(CUtensorMap *m, const struct fdk_attention_args *a, uint64_t off)
{
    const struct fdk_kv *kv = &a->kv;
    cuuint64_t d = (cuuint64_t)a->D, eights = (cuuint64_t)kv->block_size / 8;
    const cuuint64_t dim[5] = { 64, 8, d / 64, eights * (cuuint64_t)a->K,
        (cuuint64_t)1 << 31 };
    const cuuint64_t stride[4] = { d * 2, 128, 8 * d * 2, kv->block_bytes };
    const cuuint32_t box[5] = { 64, 8, (cuuint32_t)d / 64, (cuuint32_t)eights, 1 };
    return encode_map(m, 5, (const char *)kv->base + (uint64_t)a->layer *
        kv->layer_bytes + off, dim, stride, box);
}

static int
map_queries(CUtensorMap *m, const struct fdk_attention_args *a)
{
    cuuint64_t d = (cuuint64_t)a->D, row = (cuuint64_t)(a->H + 2 * a->K) * d * 2;
    const cuuint64_t dim[3] = { 64, (cuuint64_t)a->T, (cuuint64_t)a->H * d / 64 };
    const cuuint64_t stride[2] = { row, 128 };
    const cuuint32_t box[3] = { 64, ROWS, (cuuint32_t)d / 64 };
    return encode_map(m, 3, a->qkv, dim, stride, box);
}

/* Which kernel a token meets depends on how its prompt was cut into steps: there must be
 * another one with the same bits. */
int
cu_att_long_fits(const struct fdk_attention_args *a, int deterministic)
{
    const struct fdk_kv *kv = &a->kv;
    int b = kv->block_size;
    uint64_t odd = (uintptr_t)kv->base | kv->block_bytes | kv->layer_bytes | kv->v_bytes;
    return encode != NULL && (!deterministic || cu_att_chunk_takes(a, 1)) &&
        a->T >= CU_ATT_LONG_MIN && a->act == FDK_BF16 && kv->dtype == FDK_BF16 &&
        (a->D == 64 || a->D == 128) &&
        (b == 16 || b == 32 || b == 64 || b == 128) && a->K > 0 && a->H % a->K == 0 &&
        odd % 16 == 0 && kv->block_bytes < (uint64_t)1 << 40 && a->scale > 0;
}

static struct cut
cut_of(int heads, int groups)
{
    struct cut u;
    u.units = HALVES * heads;
    u.sets = (u.units + groups - 1) / groups;
    u.per = (u.units + u.sets - 1) / u.sets;
    return u;
}

template<int D, bool F>
static void
launch(const struct fdk_attention_args *a, const struct maps &m, const struct cut &u,
    int n_max, dim3 grid, cudaStream_t st)
{
    cu_chain(long_kernel<D, F>, grid, shape<D>::threads, ring<D, F>::bytes, st, *a, *a->b,
        u, n_max, m);
}

int
cu_att_long(const struct fdk_attention_args *a, fdk_stream_t st)
{
    struct maps m;
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    const struct cu_dev *dev = cu_stream_of(st)->dev;
    const int fixed = dev->ctx->deterministic;
    if (!cu_att_long_fits(a, fixed))
        return -ENOTSUP;
    if (a->y == NULL || a->qkv == NULL || a->b == NULL || a->plan == NULL ||
        a->n_done == NULL || a->layer < 0 || a->kv.head_dim != a->D ||
        a->kv.n_kv_head != a->K || ((uintptr_t)a->qkv | (uintptr_t)a->y) % 16 != 0)
        return -EINVAL;
    rc = map_queries(&m.q, a);
    if (rc == 0)
        rc = map_kv(&m.k, a, 0);
    if (rc == 0)
        rc = map_kv(&m.v, a, a->kv.v_bytes);
    if (rc != 0)
        return rc;
    int n_max = cu_att_long_max(a->T, a->b->max_row);
    int n_proc = dev->n_proc;
    struct cut u = cut_of(a->H / a->K, a->D == 128 ? shape<128>::groups :
        shape<64>::groups);
    int64_t items = (int64_t)n_max * a->K * u.sets;
    if (items > INT32_MAX)
        return -ENOTSUP;
    dim3 grid((unsigned)(items < n_proc ? items : n_proc));
    if (a->D == 128 && fixed)
        launch<128, true>(a, m, u, n_max, grid, cu_raw(st));
    else if (a->D == 128)
        launch<128, false>(a, m, u, n_max, grid, cu_raw(st));
    else if (fixed)
        launch<64, true>(a, m, u, n_max, grid, cu_raw(st));
    else
        launch<64, false>(a, m, u, n_max, grid, cu_raw(st));
    return cu_launched(st, "attention_long");
}

template<int D, bool F>
static cudaError_t
prepare(void)
{
    return cudaFuncSetAttribute(long_kernel<D, F>,
        cudaFuncAttributeMaxDynamicSharedMemorySize, ring<D, F>::bytes);
}

/* Without the driver's call, or compiled for no Hopper, attention does without this
 * kernel: what is compiled then has no body, so no barriers. */
cudaError_t
cu_att_long_load(void)
{
    struct cudaFuncAttributes attr;
    cu_encode_fn f;
    cudaError_t (*const each[])(void) = { prepare<128, false>, prepare<128, true>,
        prepare<64, false>, prepare<64, true> };
    cudaError_t e = cudaFuncGetAttributes(&attr, long_kernel<128, false>);
    if (e != cudaSuccess || attr.sharedSizeBytes == 0)
        return e;
    e = cu_find_encode(&f);
    if (f == NULL) {
        (void)cudaGetLastError();
        return cudaSuccess;
    }
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]) && e == cudaSuccess; i++)
        e = each[i]();
    if (e == cudaSuccess)
        __atomic_store_n(&encode, f, __ATOMIC_RELEASE);
    return e;
}
