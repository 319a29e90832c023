/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of many query tokens of a row (cu_att_long): bf16, head dims 64, 80, 96, 128,
 * 192 and 256, on Hopper's asynchronous matrix units.
 *
 * The work of a tile of the list is divided into units: 64 of its query tokens, one head.
 * A work item is as many units of one KV head as a block has consumer warpgroups. The
 * producer warp finds the block's items and loads them: the item's description, its
 * queries, then keys and values in chunks of 128 tokens, or of 64 with the larger head
 * dims, at absolute multiples, to a ring in shared memory. Each consumer warpgroup
 * computes a unit: the scores of chunk j + 1 are in flight while the weights of chunk j
 * are converted to bf16 in registers and then multiplied with the values. The warpgroups
 * alternate, so that the exponentials of one overlap with the products of the others.
 * Chunks that no query of the tile sees are not loaded, those that no query of a unit
 * sees not multiplied.
 *
 * A query's sums run over its chunks in ascending order and do not depend on the other
 * queries in the unit: a chunk after the last token that a query sees multiplies its sums
 * by 1 and adds 0, one entirely before its window leaves them 0. So its bits depend only
 * on its position and the row's KV. In deterministic contexts, where head dims are up to
 * 128, the sums restart with each split (cu_part_few()), and splits are merged one by
 * one, with the bits of attention_chunk.cu: comments mark the code that must match it.
 *
 * Tokens of a chunk past the end of the row are not loaded, as their blocks may not
 * be mapped: their scores are masked, and their values set to zero, since a weight of
 * zero times NaN is NaN.
 */
#include "kernels/cuda/sm90/attention_prefill_copy.cuh"

#include <math.h>

#define LOG2_E  1.4426950408889634f

/* ---- multiplying ----------------------------------------------------------- */

struct softmax {                 /* for two queries of a thread; l: sum over its
                                    columns */
    float m[2], l[2], alpha[2];
};

/* Loads the queries to registers as the A operand. */
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
multiply_keys(float (&sc)[shape<D>::chunk / 2], uint32_t q, const uint32_t (&r)[D / 4],
    uint32_t k)
{
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        uint32_t half = (uint32_t)(i / 4), in = (uint32_t)(i % 4 * 32);
        uint64_t b = matrix(k + half * shape<D>::wide + in, 0, shape<D>::eight);
        if constexpr (shape<D>::q_regs)
            mma_rs<0>(sc, r + 4 * i, b, i > 0);
        else
            mma_ss(sc, matrix(q + half * (ROWS * 128) + in, 0, 1024), b, i > 0);
    }
}

template<int D>
static __device__ __forceinline__ void
multiply_values(float (&o)[D / 2], const uint32_t (&p)[shape<D>::chunk / 4], uint32_t v,
    int add)
{
#pragma unroll
    for (int i = 0; i < shape<D>::chunk / 16; i++)
        mma_rs<1>(o, p + 4 * i,
            matrix(v + (uint32_t)(i * 2 * shape<D>::eight), shape<D>::wide,
                shape<D>::eight), add || i > 0);
}

/* Masks the scores of tokens from see[] on, counted from the chunk's begin; X: also of
 * tokens more than `window` before see[]. */
template<bool X, int N>
static __device__ __forceinline__ void
mask(float (&sc)[N], const int (&see)[2], int window)
{
    int at = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int col = i / 4 * 8 + i % 2 + at, end = see[i / 2 % 2];
        if (X ? (unsigned)(end - 1 - col) >= (unsigned)window : col >= end)
            sc[i] = -INFINITY;
    }
}

/* Online softmax: converts scores to weights; alpha: factor of the sums so far. */
template<int N>
static __device__ __forceinline__ void
weigh(float (&sc)[N], struct softmax *x, float scale)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = x->m[r], other = sc[2 * r + 1];
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            top = fmaxf(top, sc[i + 2 * r]);
            other = fmaxf(other, sc[i + 2 * r + 1]);
        }
        top = fmaxf(top, other);
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        float ref = top == -INFINITY ? 0 : top * scale, sum = 0;
        /* Exactly 1 if the maximum has not grown, without the rounding of the product. */
        x->alpha[r] = top == x->m[r] ? 1 : exp2_fast(fmaf(x->m[r], scale, -ref));
        x->m[r] = top;
#pragma unroll
        for (int i = 0; i < N; i += 8) {
            float part[2];
#pragma unroll
            for (int k = 0; k < 2; k++) {
                float *two = sc + i + 4 * k + 2 * r;
                two[0] = exp2_fast(fmaf(two[0], scale, -ref));
                two[1] = exp2_fast(fmaf(two[1], scale, -ref));
                part[k] = two[0] + two[1];
            }
            sum += part[0] + part[1]; /* the order of attention_chunk.cu */
        }
        x->l[r] = fmaf(x->l[r], x->alpha[r], sum);
    }
}

template<int N>
static __device__ __forceinline__ void
pack_weights(uint32_t (&p)[N / 2], const float (&sc)[N])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        p[i] = pack_bf16(sc[2 * i], sc[2 * i + 1]);
}

/* Multiplies the sums by alpha. With large head dims a warp whose maxima have not grown
 * skips this, as the factors are 1. */
template<int D>
static __device__ __forceinline__ void
rescale(float (&o)[D / 2], const struct softmax &x)
{
    if (D > 128 && !__any_sync(0xffffffffu, x.alpha[0] != 1 || x.alpha[1] != 1))
        return;
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

struct folded {                  /* for two queries of a thread: merge of all splits so
                                    far, maxima as base-2 logarithms; sums o are at
                                    `at` */
    float m[2], l[2];
    uint32_t at;
};

/* Merges a split into those so far, with the bits of fold() of attention_split_merge.cuh.
 * first: there are none so far; last: the result stays in o, else o becomes 0 for the
 * next split. Each thread uses its own area of shared memory. */
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

/* Zeroes the values from token n of a chunk on. Each warpgroup does so itself, as it
 * would otherwise have to wait for another one. */
template<int D>
static __device__ __forceinline__ void
clear_values(uint32_t v, int n, int group)
{
    for (int i = (int)threadIdx.x % 128; i < (shape<D>::chunk - n) * (D / 8); i += 128) {
        int tok = n + i / (D / 8), at = i % (D / 8);
        uint32_t to = v + (uint32_t)(tok / 8 * shape<D>::eight + at / 8 * shape<D>::wide +
            tok % 8 * 128 + (at ^ tok) % 8 * 16);
        asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" :: "r"(to), "r"(0)
            : "memory");
    }
    fence_async();
    named_sync(1 + shape<D>::groups + group, 128);
}

/* Transposes four words of four lanes: lane i gets word i of each lane, in their
 * order. */
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
store(const struct fdk_attention_args &a, const struct item &it, int u,
    const float (&o)[D / 2], const float (&sum)[2], int row)
{
    int head = it.kv_head * (a.H / a.K) + u / it.each;
    int n = unit_rows<D>(it, u);
    int first = it.tok + u % it.each * ROWS + row;
    int quarter = (int)threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float l = sum[r];
        float by = l > 0 ? 1 / l : l;
        __nv_bfloat16 *y = (__nv_bfloat16 *)a.y + ((size_t)(first + 8 * r) *
            (size_t)a.H + (size_t)head) * D;
#pragma unroll
        for (int i = 0; i < (D + 31) / 32; i++) {
            uint32_t w[4] = {};
#pragma unroll
            for (int j = 0; j < 4 && 32 * i + 8 * j < D; j++)
                w[j] = pack_bf16(o[16 * i + 4 * j + 2 * r] * by,
                    o[16 * i + 4 * j + 2 * r + 1] * by);
            uint4 v = swap_words(w[0], w[1], w[2], w[3], quarter);
            if (row + 8 * r < n && 32 * i + 8 * quarter < D)
                *(uint4 *)(y + 32 * i + 8 * quarter) = v;
        }
    }
}

template<int D, bool F>
struct consumer {                /* state of a consumer warpgroup */
    struct turn<ring<D, F>::stages> tk, tv;
    int group, row;              /* row: this thread's first query in the unit */
    bool speaks;                 /* this thread arrives at barriers for its warp */
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

/* Converts the scores sc of chunk c to weights. first: position in its row of query 0 of
 * the unit, counted from 1. */
template<bool X, int N>
static __device__ __forceinline__ void
chunk_weights(float (&sc)[N], struct softmax *x, const struct scores &s, float scale,
    int first, int c, int row)
{
    const int chunk = 2 * N;
    if (X && s.cap > 0)
#pragma unroll
        for (int i = 0; i < N; i++)
            sc[i] = cu_soft_cap(sc[i], s.by, s.cap);
    if ((c + 1) * chunk > first || (X && c * chunk < first + ROWS - 1 - s.window)) {
        int see[2] = { first + row - c * chunk, first + row + 8 - c * chunk };
        mask<X>(sc, see, s.window);
    }
    weigh(sc, x, scale);
}

/* Waits for and releases chunks [c, end) without using them. */
template<int D, bool F>
static __device__ __forceinline__ void
skip_chunks(const struct shared<D> &s, struct consumer<D, F> *w, int c, int end)
{
#pragma unroll 1
    for (; c < end; c++) {
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

/* Skips an item in which this warpgroup has no unit. */
template<int D, bool F>
static __device__ __forceinline__ void
skip(const struct shared<D> &s, struct consumer<D, F> *w, const struct item &it)
{
    let_go(s.empty_q, w->speaks);
    skip_chunks<D, F>(s, w, it.begin, it.n_chunk);
}

/* Computes a unit over the chunks that its queries see. */
template<int D, bool F, bool X>
static __device__ __forceinline__ void
attend(const struct fdk_attention_args &a, const struct scores &how,
    const struct shared<D> &s, struct consumer<D, F> *w, const struct item &it, int u)
{
    const int chunk = shape<D>::chunk;
    const float scale = X ? how.scale : a.scale * LOG2_E;
    float sc[chunk / 2], o[D / 2];
    uint32_t p[chunk / 4], r[D / 4], q = s.q + (uint32_t)(w->group * shape<D>::q_bytes);
    struct softmax x = { { -INFINITY, -INFINITY }, { 0, 0 }, { 0, 0 } };
    struct softmax x0 = x;
    struct folded all = { {}, {}, s.all + (uint32_t)(w->group * ring<D, F>::all_bytes) +
        threadIdx.x % 128 * 16 };
    bool some = false;           /* a split has been merged */
    int first = it.kv - it.n + 1 + u % it.each * ROWS;
    int begin = X ? max(first - how.window, 0) / chunk : 0;
    int end = D == 64 || X ? (first + unit_rows<D>(it, u) - 2) / chunk + 1 : it.n_chunk;
    /* Start from 0 as attention_chunk.cu does: then a sum of only -0 is 0. */
#pragma unroll
    for (int i = 0; i < D / 2 && F; i++)
        o[i] = 0;
    if constexpr (shape<D>::q_regs) {
        load_queries<D>(r, q);
        let_go(s.empty_q, w->speaks);
    }
    if (X)
        skip_chunks<D, F>(s, w, it.begin, begin);
#pragma unroll 1
    for (int c = begin; c < end; c++) {
        cu_bar_wait(s.full_k + 8 * (uint32_t)w->tk.stage, w->tk.phase);
        wait_turn<D>(w->group);
        cu_wgmma_begin();
        multiply_keys<D>(sc, q, r, s.k_at(w->tk.stage));
        cu_wgmma_end();
        if (c > begin) {
            cu_bar_wait(s.full_v + 8 * (uint32_t)w->tv.stage, w->tv.phase);
            cu_wgmma_begin();
            multiply_values<D>(o, p, s.v_at(w->tv.stage), F || c > begin + 1);
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
        if (!shape<D>::q_regs && c + 1 == end)
            let_go(s.empty_q, w->speaks);
        if (F && c > begin && cu_part_begins(c)) {
            x0 = x;
            x.m[0] = x.m[1] = -INFINITY;
            x.l[0] = x.l[1] = 0;
        }
        chunk_weights<X>(sc, &x, how, scale, first, c, w->row);
        if (c > begin) {
            cu_wgmma_wait<0>();
            cu_wgmma_hold(o);
            let_go(s.empty_v + 8 * (uint32_t)w->tv.stage, w->speaks);
            w->tv.next();
            if (F && cu_part_begins(c)) {
                fold_part<D>(&all, o, x0, scale, X ? !some : c == 1 << CU_SPLIT_FEW, false);
                some = true;
            } else {
                rescale<D>(o, x);
            }
        }
        pack_weights(p, sc);
    }
    cu_bar_wait(s.full_v + 8 * (uint32_t)w->tv.stage, w->tv.phase);
    if (end == it.n_chunk && it.kv % chunk != 0)
        clear_values<D>(s.v_at(w->tv.stage), it.kv % chunk, w->group);
    cu_wgmma_begin();
    multiply_values<D>(o, p, s.v_at(w->tv.stage), F || end > begin + 1);
    cu_wgmma_end();
    cu_wgmma_wait<0>();
    cu_wgmma_hold(o);
    let_go(s.empty_v + 8 * (uint32_t)w->tv.stage, w->speaks);
    w->tv.next();
    if (D == 64 || X)
        skip_chunks<D, F>(s, w, end, it.n_chunk);
    if (F) {
        fold_part<D>(&all, o, x, scale, X ? !some : end <= 1 << CU_SPLIT_FEW, true);
    } else {
        all.l[0] = quad_sum(x.l[0]);
        all.l[1] = quad_sum(x.l[1]);
    }
    store<D>(a, it, u, o, all.l, w->row);
}

template<int D, bool F, bool X>
static __device__ __forceinline__ void
consume(const struct fdk_attention_args &a, const struct scores &how,
    const struct shared<D> &s)
{
    int thread = (int)threadIdx.x % 128;
    struct consumer<D, F> w;
    w.tk = { 0, 0 };
    w.tv = { 0, 0 };
    /* The shuffle tells the compiler that the value is uniform in the warp. */
    w.group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0);
    w.row = thread / 32 * 16 + thread % 32 / 4;
    w.speaks = thread % 32 == 0;
    if (w.group == shape<D>::groups - 1)
        pass_turn<D>(w.group);
    for (uint32_t q_phase = 0;; q_phase ^= 1) {
        cu_bar_wait(s.full_q, q_phase);
        struct item it = get_item<D>(s.item);
        if (it.n == 0)
            break;
        int unit = it.unit + w.group;
        if (unit_rows<D>(it, unit) > 0)
            attend<D, F, X>(a, how, s, &w, it, unit);
        else
            skip<D, F>(s, &w, it);
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

template<int D, bool F, bool X>
static __global__ void __launch_bounds__(shape<D>::threads, 1)
long_kernel(struct fdk_attention_args a, struct fdk_batch b, struct cut u,
    struct scores how, int n_max, const __grid_constant__ struct maps m)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char mem[];
    __shared__ uint64_t bar[4 * ring<D, F>::stages + 2];
    __shared__ __align__(16) struct item item;
    struct shared<D> s = lay_out<D, F>(mem, bar);
    s.item = cu_smem(&item);
    cu_dep_next();
    if (threadIdx.x == 0) {
        cu_prefetch_map(&m.q);
        cu_prefetch_map(&m.k);
        cu_prefetch_map(&m.v);
    }
    __syncthreads();
    cu_dep_wait();
    const struct cu_att_plan *plan = (const struct cu_att_plan *)a.plan;
    if (D == 64)
        u = cut_of<D>(a.H / a.K, plan->long_tile);
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(shape<D>::copier_regs));
        if (threadIdx.x < 32)
            produce<D, F, X>(a, b, m, u, s, cu_clip(&plan->n_long, n_max));
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(shape<D>::regs));
        consume<D, F, X>(a, how, s);
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
    CUresult r = cu_make_map(encode, m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        (cuuint32_t)rank, (void *)(uintptr_t)at, dim, stride, box, step,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? 0 : -ENOTSUP;
}

/* Tensor map of keys or values of the layer; a tile is a piece of a block of a head. From
 * the outermost dimension: groups of eight tokens, columns of 64 dimensions, tokens,
 * elements. So groups of tokens have the same distance in shared memory for every block
 * size. Or (apart) a tile is one column. */
static int
map_kv(CUtensorMap *m, const struct fdk_attention_args *a, int tokens, uint64_t off)
{
    const struct fdk_kv *kv = &a->kv;
    const char *at = (const char *)kv->base + (uint64_t)a->layer * kv->layer_bytes + off;
    cuuint64_t d = (cuuint64_t)a->D, all = (cuuint64_t)(kv->block_size * a->K);
    cuuint64_t blocks = (cuuint64_t)1 << 31;
    const cuuint64_t dim[5] = { 64, 8, d / 64, all / 8, blocks };
    const cuuint64_t stride[4] = { d * 2, 128, 8 * d * 2, kv->block_bytes };
    const cuuint32_t box[5] = { 64, 8, (cuuint32_t)d / 64, (cuuint32_t)tokens / 8, 1 };
    const cuuint64_t apart_dim[3] = { d, all, blocks };
    const cuuint64_t apart_stride[2] = { d * 2, kv->block_bytes };
    const cuuint32_t apart_box[3] = { 64, (cuuint32_t)tokens, 1 };
    return d % 64 == 0 ? encode_map(m, 5, at, dim, stride, box) :
        encode_map(m, 3, at, apart_dim, apart_stride, apart_box);
}

static int
map_queries(CUtensorMap *m, const struct fdk_attention_args *a)
{
    cuuint64_t d = (cuuint64_t)a->D, row = (cuuint64_t)(a->H + 2 * a->K) * d * 2;
    const int apart = d % 64 != 0;
    const cuuint64_t dim[3] = { apart ? d : 64, (cuuint64_t)a->T,
        apart ? (cuuint64_t)a->H : (cuuint64_t)a->H * d / 64 };
    const cuuint64_t stride[2] = { row, apart ? d * 2 : 128 };
    const cuuint32_t box[3] = { 64, ROWS, apart ? 1 : (cuuint32_t)d / 64 };
    return encode_map(m, 3, a->qkv, dim, stride, box);
}

/* Which kernel computes a token depends on the chunking of its prompt: in deterministic
 * contexts there must be another kernel with the same bits. */
int
cu_att_long_fits(const struct fdk_attention_args *a, int deterministic)
{
    const struct fdk_kv *kv = &a->kv;
    int b = kv->block_size;
    uint64_t odd = (uintptr_t)kv->base | kv->block_bytes | kv->layer_bytes | kv->v_bytes;
    return encode != NULL && kv->n_own <= 1 && (!deterministic || (a->D <= 128 && cu_att_chunk_takes(a, 1))) &&
        a->T >= CU_ATT_LONG_MIN && a->act == FDK_BF16 && kv->dtype == FDK_BF16 &&
        (a->D == 64 || a->D == 80 || a->D == 96 || a->D == 128 || a->D == 192 ||
        a->D == 256) && (b == 16 || b == 32 || b == 64 || b == 128) && a->K > 0 && a->H % a->K == 0 &&
        odd % 16 == 0 && kv->block_bytes < (uint64_t)1 << 40 && a->scale > 0;
}

static struct scores
scores_of(const struct fdk_attention_args *a)
{
    struct scores s = { a->scale * (float)LOG2_E, 0, 0, cu_att_window(a->window) };
    if (a->softcap > 0) {
        s.cap = a->softcap * (float)LOG2_E;
        s.by = 2 / a->softcap * a->scale * (float)LOG2_E;
        s.scale = 1;
    }
    return s;
}

template<int D, bool F>
static int
launch(const struct fdk_attention_args *a, fdk_stream_t st)
{
    const bool plain = D != 64 && D != 128;
    struct maps m;
    struct cut u = cut_of<D>(a->H / a->K, CU_ATT_LONG_TILE);
    int n_max = cu_att_long_max(a->T, a->b->max_row), n_proc = cu_stream_of(st)->dev->n_proc;
    int tokens = a->kv.block_size < shape<D>::chunk ? a->kv.block_size : shape<D>::chunk;
    int64_t items = (int64_t)n_max * a->K * (D == 64 ? a->H / a->K : u.sets);
    int rc = map_queries(&m.q, a);
    if (rc == 0)
        rc = map_kv(&m.k, a, tokens, 0);
    if (rc == 0)
        rc = map_kv(&m.v, a, tokens, a->kv.v_bytes);
    /* Limits of the bit fields in struct agenda; D 64: the size of the tile is not known
     * yet. */
    if (rc == 0 && (items > INT32_MAX || a->K > 2047 || 4 * (a->H / a->K) > 2047))
        rc = -ENOTSUP;
    if (rc != 0)
        return rc;
    dim3 grid((unsigned)(items < n_proc ? items : n_proc));
    if (a->window == 0 && a->softcap == 0)
        cu_chain(long_kernel<D, F, plain>, grid, shape<D>::threads, ring<D, F>::bytes,
            cu_raw(st), *a, *a->b, u, scores_of(a), n_max, m);
    else
        cu_chain(long_kernel<D, F, true>, grid, shape<D>::threads, ring<D, F>::bytes,
            cu_raw(st), *a, *a->b, u, scores_of(a), n_max, m);
    return cu_launched(st, "attention_long");
}

int
cu_att_long(const struct fdk_attention_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    const int fixed = cu_stream_of(st)->dev->ctx->deterministic;
    if (!cu_att_long_fits(a, fixed))
        return -ENOTSUP;
    if (a->y == NULL || a->qkv == NULL || a->b == NULL || a->plan == NULL ||
        a->n_done == NULL || a->layer < 0 || a->kv.head_dim != a->D ||
        a->kv.n_kv_head != a->K || ((uintptr_t)a->qkv | (uintptr_t)a->y) % 16 != 0)
        return -EINVAL;
    switch (a->D) {
    case 64:
        return fixed ? launch<64, true>(a, st) : launch<64, false>(a, st);
    case 80:
        return fixed ? launch<80, true>(a, st) : launch<80, false>(a, st);
    case 96:
        return fixed ? launch<96, true>(a, st) : launch<96, false>(a, st);
    case 128:
        return fixed ? launch<128, true>(a, st) : launch<128, false>(a, st);
    case 192:
        return launch<192, false>(a, st);
    default:
        return launch<256, false>(a, st);
    }
}

template<int D, bool F>
static cudaError_t
prepare(void)
{
    cudaError_t e = cudaFuncSetAttribute(long_kernel<D, F, true>,
        cudaFuncAttributeMaxDynamicSharedMemorySize, ring<D, F>::bytes);
    return e != cudaSuccess ? e : cudaFuncSetAttribute(long_kernel<D, F, D != 64 && D != 128>,
        cudaFuncAttributeMaxDynamicSharedMemorySize, ring<D, F>::bytes);
}

/* Without the driver's encode function, or if compiled for another architecture, this
 * kernel is not used: then the compiled kernel is empty and has no barriers in shared
 * memory. */
cudaError_t
cu_att_long_load(void)
{
    struct cudaFuncAttributes attr;
    cu_encode_fn f;
    cudaError_t (*const each[])(void) = { prepare<128, false>, prepare<128, true>,
        prepare<64, false>, prepare<64, true>, prepare<80, false>, prepare<80, true>,
        prepare<96, false>, prepare<96, true>, prepare<192, false>, prepare<256, false> };
    cudaError_t e = cudaFuncGetAttributes(&attr, long_kernel<128, false, false>);
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
