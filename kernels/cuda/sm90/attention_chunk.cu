/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Split-KV attention as in attention_split.cu, but only for bf16 KV, and with all warps
 * of a block working together on each chunk: they share its largest scores, so that their
 * sums need no merge.
 *
 * Each warp computes the scores of 16 tokens of a chunk, adding the dimensions in
 * their order; all warps find the largest scores; the weights relative to them are stored
 * in shared memory as operands. Then each warp has 16 dimensions of the results, or twice
 * 16 that are 128 apart, and adds all tokens of the chunk to them in their order. For
 * head dims above 128 not all warps compute scores, and a score is summed in two chains.
 *
 * Up to a head dim of 128 that is what attention_prefill.cu does, to the bit: a product
 * of 16 dimensions or tokens has the same bits by mma.sync and by wgmma, with queries as
 * its rows or as its columns. In deterministic contexts splits depend only on positions,
 * and both kernels merge them one by one in their order, so a token has the same bits in
 * both.
 *
 * Loads, the iteration over a block's splits and the merge of blocks are those of
 * attention_split.cu.
 */
#include "kernels/cuda/sm90/attention_split_merge.cuh"

typedef __nv_bfloat16 bf16;

/* Shared memory of a block: the ring of struct shape, then data exchanged between
 * warps. */
template<int D>
struct room {
    typedef struct shape<D, bf16> sh;
    static const int dims = D / 16;                 /* groups of 16 dimensions */
    static const int halves = D == 64 ? 1 : 2;      /* halves of the queries per warp */
    static const int tiles = (dims + WARPS - 1) / WARPS; /* such groups per warp */
    static const int n_unit = sh::n_unit;
    static const int wide = D + 8;                  /* of a result: no bank conflicts */
    static const int top = sh::merge;               /* [WARPS][CU_ATT_QUERIES] scores */
    static const int sum = top + WARPS * CU_ATT_QUERIES * 4; /* [WARPS][4][QUERIES] */
    static const int alpha = sum + WARPS * 4 * CU_ATT_QUERIES * 4;
    static const int m = alpha + CU_ATT_QUERIES * 4;
    static const int l = m + CU_ATT_QUERIES * 4;    /* [4][CU_ATT_QUERIES] */
    static const int p = l + 4 * CU_ATT_QUERIES * 4; /* [WARPS][2][32] pairs of weights */
    static const int o = p + WARPS * 2 * 32 * 8;    /* [CU_ATT_QUERIES][wide] */
    static const int fold = o + CU_ATT_QUERIES * wide * 4;
    static const int full = fold + CU_ATT_QUERIES * D / 2 * 16;
    static const int flag = full + n_unit * sh::n_stage * 8;
    static const int bytes = flag + 16;
    static_assert(bytes <= 232448, "fits a block's shared memory");
    static_assert(halves == 2 || WARPS == 2 * dims, "each has its dimensions and queries");
};

/* Sums of a warp: results of 16 dimensions by 8 queries, in the layout of struct sums. */
template<int D>
struct chunk_sums {
    float o[room<D>::tiles][room<D>::halves][4];
    float m[2][2];
    float l;                     /* this thread's sum of weights: query tid % 16, tokens
                                    tid / 16 * 2 and the next of each 8 */
    int see[2][2];
};

template<int D, int G>
static __device__ __forceinline__ void
begin_chunks(struct chunk_sums<D> &u, const struct split_args &s, const struct walk &w,
    int lane)
{
    int h0, n_head = set_heads<G>(s, w, &h0);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u.see[i / 2][i % 2] = w.t.see + vector_token(s, 8 * (i / 2) + lane % 4 * 2 + i % 2,
            n_head);
        u.m[i / 2][i % 2] = -INFINITY;
#pragma unroll
        for (int h = 0; h < room<D>::tiles * room<D>::halves; h++)
            u.o[h / room<D>::halves][h % room<D>::halves][i] = 0;
    }
    u.l = 0;
}

/* The i-th group of 16 dimensions of the warp; room::dims or more: there is none. */
template<int D>
static __device__ __forceinline__ int
warp_dims(int warp, int i)
{
    return room<D>::halves == 1 ? warp % room<D>::dims : warp + i * WARPS;
}

/* p[h] = scores of the warp's 16 tokens by the vectors of half h. */
template<int D>
static __device__ __forceinline__ void
chunk_scores(float p[2][4], const struct queries<D> &q, uint32_t at, bool two, int lane)
{
    const int row = shape<D, bf16>::row, each = D <= 128 ? D / 16 : D / 32;
    float odd[2][4] = {};
#pragma unroll
    for (int from = 0; from < D / 16; from += each) {
        uint32_t b[each][4];
#pragma unroll
        for (int k = 0; k < each; k++)
            load4(b[k], piece<row>(at, 0, lane % 16, 2 * (from + k) + lane / 16));
#pragma unroll
        for (int k = 0; k < each; k++) {
            float (*sum)[4] = D > 128 && k % 2 ? odd : p;
            mma<bf16>(sum[0], b[k], q.x[0][from + k][0], q.x[0][from + k][1]);
            if (two)
                mma<bf16>(sum[1], b[k], q.x[1][from + k][0], q.x[1][from + k][1]);
        }
    }
#pragma unroll
    for (int i = 0; i < 8 && D > 128; i++)
        p[i / 4][i % 4] += odd[i / 4][i % 4];
}

/* Applies the soft cap, masks scores that a query does not see, and stores the largest
 * score of the warp's tokens. */
template<int D, int G>
static __device__ __forceinline__ void
unit_top(char *mem, float p[2][4], const struct split_args &s, const struct chunk_sums<D> &u,
    int pos, bool two, int warp, int lane)
{
    float *top = (float *)(mem + room<D>::top) + warp * CU_ATT_QUERIES + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int h = i / 2, c = i % 2;
        if (h == 1 && !two)
            continue;
        if ((G & RARE) && s.cap > 0) {
            p[h][c] = cu_soft_cap(p[h][c], s.cap_by * s.a.scale * LOG2E, s.cap);
            p[h][c + 2] = cu_soft_cap(p[h][c + 2], s.cap_by * s.a.scale * LOG2E, s.cap);
        }
        if (!sees<G>(u.see[h][c], pos + lane / 4, s.window))
            p[h][c] = -INFINITY;
        if (!sees<G>(u.see[h][c], pos + lane / 4 + 8, s.window))
            p[h][c + 2] = -INFINITY;
        float most = fmaxf(p[h][c], p[h][c + 2]);
#pragma unroll
        for (int k = 4; k < 32; k *= 2)
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, k));
        if (lane < 4)
            top[8 * h + c] = most;
    }
}

/* Online softmax: stores the weights of the warp's tokens and the factor alpha of the
 * sums so far for all warps, and the sums of weights of two tokens of each 8. Has the
 * bits of weigh() in attention_prefill.cu. */
template<int D>
static __device__ __forceinline__ void
unit_weights(char *mem, float p[2][4], struct chunk_sums<D> &u, float scale, bool two,
    int warp, int lane)
{
    const float *top = (const float *)(mem + room<D>::top) + lane % 4 * 2;
    float *sum = (float *)(mem + room<D>::sum) + (warp * 4 + lane / 8) * CU_ATT_QUERIES +
        lane % 4 * 2;
    float *alphas = (float *)(mem + room<D>::alpha) + lane % 4 * 2;
    uint2 *to = (uint2 *)(mem + room<D>::p) + warp * 2 * 32 + lane;
    const bool has = room<D>::n_unit == WARPS || warp < room<D>::n_unit;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (h == 1 && !two)
            continue;
        float most[2] = { u.m[h][0], u.m[h][1] };
#pragma unroll
        for (int w = 0; w < room<D>::n_unit; w++) {
            float2 t = *(const float2 *)(top + w * CU_ATT_QUERIES + 8 * h);
            most[0] = fmaxf(most[0], t.x);
            most[1] = fmaxf(most[1], t.y);
        }
#pragma unroll
        for (int c = 0; c < 2; c++) {
            float ref = most[c] == -INFINITY ? 0 : most[c] * scale;
            float alpha = most[c] == u.m[h][c] ? 1 : power2(fmaf(u.m[h][c], scale, -ref));
            float &x = p[h][c], &y = p[h][c + 2];
            u.m[h][c] = most[c];
            x = power2(fmaf(x, scale, -ref));
            y = power2(fmaf(y, scale, -ref));
            float both = x + __shfl_xor_sync(0xffffffffu, x, 4);
            both += y + __shfl_xor_sync(0xffffffffu, y, 4);
            if (has && lane / 4 % 2 == 0)
                sum[8 * h + c] = both;
            if (warp == 0 && lane < 4)
                alphas[8 * h + c] = alpha;
#pragma unroll
            for (int i = 0; i < room<D>::halves; i++)
                if (room<D>::halves == 2 ? i == h : warp / room<D>::dims == h)
#pragma unroll
                    for (int j = 0; j < room<D>::tiles; j++) {
                        u.o[j][i][c] *= alpha;
                        u.o[j][i][c + 2] *= alpha;
                    }
        }
        uint2 both = make_uint2(turn(pack<bf16>(p[h][0], p[h][1])),
            turn(pack<bf16>(p[h][2], p[h][3])));
        if (has)
            to[32 * h] = both;
    }
}

/* Adds a chunk to the results of this warp's dimensions and to the sums of weights. Loads
 * all operands before the first product. stage: the same in every warp's ring. */
template<int D>
static __device__ __forceinline__ void
chunk_values(char *mem, struct chunk_sums<D> &u, int stage, bool two, int warp, int lane)
{
    typedef struct shape<D, bf16> sh;
    typedef struct room<D> rm;
    const int first = rm::halves == 2 ? 0 : warp / rm::dims;
    const uint2 *p = (const uint2 *)(mem + rm::p) + first * 32 + lane;
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(mem) + (uint32_t)(stage *
        sh::stage);
#pragma unroll
    for (int i = 0; i < rm::tiles; i++) {
        const int dim = warp_dims<D>(warp, i);
        if ((first > 0 && !two) || (rm::dims % WARPS != 0 && dim >= rm::dims))
            continue;
        uint32_t b[rm::n_unit][4];
        uint2 x[rm::n_unit][rm::halves];
#pragma unroll
        for (int w = 0; w < rm::n_unit; w++) {
            load4_turned(b[w], piece<sh::row>(at + (uint32_t)(w * sh::n_stage * sh::stage), 1,
                lane % 16, 2 * dim + lane / 16));
#pragma unroll
            for (int h = 0; h < rm::halves; h++)
                if (h == 0 || two)
                    x[w][h] = p[(2 * w + h) * 32];
        }
#pragma unroll
        for (int w = 0; w < rm::n_unit; w++) {
            const uint32_t v[4] = { b[w][0], b[w][2], b[w][1], b[w][3] };
            mma<bf16>(u.o[i][0], v, x[w][0].x, x[w][0].y);
            if (rm::halves == 2 && two)
                mma<bf16>(u.o[i][rm::halves - 1], v, x[w][rm::halves - 1].x,
                    x[w][rm::halves - 1].y);
        }
    }
    int tid = (int)threadIdx.x;
    if (tid < 4 * CU_ATT_QUERIES && (tid % CU_ATT_QUERIES < 8 || two)) {
        const float *from = (const float *)(mem + rm::sum) + tid;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < rm::n_unit; w++)
            sum += from[w * 4 * CU_ATT_QUERIES];
        u.l = fmaf(u.l, ((const float *)(mem + rm::alpha))[tid % CU_ATT_QUERIES], sum);
    }
}

/* Stores the sums of a complete split. own: the block had the head set from its first
 * split on. */
template<int D, int G>
static __device__ void
finish_part(char *mem, const struct split_args &s, const struct walk &w,
    const struct chunk_sums<D> &u, float scale, bool own, int total)
{
    typedef struct room<D> rm;
    int tid = (int)threadIdx.x, warp = tid / 32, lane = tid % 32, h0;
    int n_q = w.t.n_tok * set_heads<G>(s, w, &h0), *flag = (int *)(mem + rm::flag);
    float *m = (float *)(mem + rm::m), *l = (float *)(mem + rm::l);
    float *o = (float *)(mem + rm::o);
    const struct ending e = ending_of(s, w, own);
    if (e.open && tid == 0)
        flag[1] = others_here<G>(s, w, e);
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (warp == 0 && lane < 4)
            m[8 * (i / 2) + lane * 2 + i % 2] = u.m[i / 2][i % 2] * scale;
    if (tid < 4 * CU_ATT_QUERIES)
        l[tid] = u.l;
#pragma unroll
    for (int j = 0; j < rm::tiles * rm::halves; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int h = j % rm::halves, dim = warp_dims<D>(warp, j / rm::halves);
            int q = 8 * (rm::halves == 2 ? h : warp / rm::dims) + lane % 4 * 2 + i % 2;
            if (rm::dims % WARPS == 0 || dim < rm::dims || rm::halves == 1)
                o[q * rm::wide + 16 * dim + lane / 4 + i / 2 * 8] =
                    u.o[j / rm::halves][h][i];
        }
    __syncthreads();
    const int each = THREADS / (D / 2);
    int col = tid % (D / 2) * 2;
    for (int q = tid / (D / 2); q < n_q && tid < each * (D / 2); q += each) {
        float2 x = *(const float2 *)(o + q * rm::wide + col);
        float l01 = l[q] + l[CU_ATT_QUERIES + q];
        float l23 = l[2 * CU_ATT_QUERIES + q] + l[3 * CU_ATT_QUERIES + q];
        struct pair v = { m[q], l01 + l23, x.x, x.y };
        put_pair<D, G>((struct pair *)(mem + rm::fold) + q * (D / 2) + col / 2, s, w, e, total,
            e.open && flag[1], q, col, v);
    }
    __syncthreads();
    settle<D, G>(s, w, e, total, n_q, flag);
}

template<int D, int G>
static __device__ __forceinline__ void
run_chunks(char *mem, const struct split_args &s, const CUtensorMap *map, struct feed &f,
    struct walk w, int total)
{
    typedef struct shape<D, bf16> sh;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, stage = 0, pos;
    int before = -1;             /* ring stage of the previous chunk */
    bool own = w.part == 0, fresh = true, two = false;
    uint32_t parity = 0;
    struct queries<D> q;
    struct chunk_sums<D> u;
    const float scale = (G & RARE) && s.cap > 0 ? 1 : s.a.scale * LOG2E;
    load_queries<D, bf16, G>(q, s, w, lane);
    while (w.left > 0) {
        if (fresh) {
            int h0;
            begin_chunks<D, G>(u, s, w, lane);
            two = w.t.n_tok * set_heads<G>(s, w, &h0) > 8;
            fresh = false;
        }
        int n = unit_tokens<sh::n_unit, G>(w, s, warp, &pos);
        float p[2][4] = {};
        if (n > 0) {
            cu_bar_wait(f.full + (uint32_t)stage * 8, parity >> stage & 1);
            parity ^= 1u << stage;
            chunk_scores<D>(p, q, f.ring + (uint32_t)(stage * sh::stage), two, lane);
        }
        if (sh::n_unit == WARPS || warp < sh::n_unit) {
            if (n < UNIT)        /* the products include all tokens of a chunk */
                clear_values<D, bf16>(f.ring + (uint32_t)(stage * sh::stage), NULL,
                    max(n, 0), lane);
            unit_top<D, G>(mem, p, s, u, pos, two, warp, lane);
        }
        __syncthreads();         /* also: all have finished the previous chunk */
        if (before >= 0)
            feed_unit<D, bf16, G>(f, s, map, warp, lane, before);
        unit_weights<D>(mem, p, u, scale, two, warp, lane);
        __syncthreads();
        chunk_values<D>(mem, u, stage, two, warp, lane);
        if (next_chunk<G>(w, s) >= w.t.n_chunk && (s.det || w.left == 1 ||
            w.part + 1 == w.n_part)) {
            load_next_queries<D, bf16, G>(q, s, w, lane);
            finish_part<D, G>(mem, s, w, u, scale, own, total);
            fresh = true;
        }
        step<G>(w, s);
        own |= w.part == 0;
        before = stage;
        stage = stage + 1 == sh::n_stage ? 0 : stage + 1;
    }
}

template<int D, int G>
static __global__ void __maxnreg__(REGISTERS)
chunk_kernel(const __grid_constant__ struct split_args s,
    const __grid_constant__ CUtensorMap map)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(1024) char mem[];
    struct walk w;
    struct feed f;
    int total = begin_parts<D, bf16, G>(mem, room<D>::full, s, &map, f, w);
    if (total > 0)
        run_chunks<D, G>(mem, s, &map, f, w, total);
#endif
}

/* ---- launching ------------------------------------------------------------- */

/* With a head dim of 64 or 80 the exchange between warps takes longer than a chunk. */
int
cu_att_chunk_takes(const struct fdk_attention_args *a, int deterministic)
{
    return a->kv.dtype == FDK_BF16 && cu_att_split_fits(a, deterministic) &&
        (deterministic || a->D > 80);
}

template<int D>
static void
launch(const struct split_args &s, const CUtensorMap &map, int n_block, cudaStream_t st)
{
    const int plain = D == 64 || D == 128 ? GROW : GROW | RARE;
    if (s.a.window == 0 && s.cap == 0 && s.n_rank == 1)
        cu_chain(chunk_kernel<D, plain>, n_block, THREADS, room<D>::bytes, st, s, map);
    else
        cu_chain(chunk_kernel<D, GROW | RARE>, n_block, THREADS, room<D>::bytes, st, s,
            map);
}

void
cu_att_chunk_launch(const struct split_args &s, const CUtensorMap &map, int n_block,
    cudaStream_t st)
{
    switch (s.a.D) {
    case 64:
        return launch<64>(s, map, n_block, st);
    case 80:
        return launch<80>(s, map, n_block, st);
    case 96:
        return launch<96>(s, map, n_block, st);
    case 128:
        return launch<128>(s, map, n_block, st);
    case 192:
        return launch<192>(s, map, n_block, st);
    default:
        return launch<256>(s, map, n_block, st);
    }
}

template<int D>
static cudaError_t
load(void)
{
    const int plain = D == 64 || D == 128 ? GROW : GROW | RARE;
    cudaError_t e = cudaFuncSetAttribute((const void *)chunk_kernel<D, GROW | RARE>,
        cudaFuncAttributeMaxDynamicSharedMemorySize, room<D>::bytes);
    return e != cudaSuccess ? e : cudaFuncSetAttribute((const void *)chunk_kernel<D, plain>,
        cudaFuncAttributeMaxDynamicSharedMemorySize, room<D>::bytes);
}

cudaError_t
cu_att_chunk_load(void)
{
    cudaError_t (*const all[])(void) = { load<64>, load<80>, load<96>, load<128>, load<192>,
        load<256> };
    cudaError_t e = cudaSuccess;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && e == cudaSuccess; i++)
        e = all[i]();
    return e;
}
