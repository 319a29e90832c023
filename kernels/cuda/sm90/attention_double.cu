/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * attention_split.cu for head sets of two halves, 16 query heads each (attention.cuh):
 * for bf16 KV whose tokens are divided among ranks, with the queries of several ranks, by
 * Hopper's products of a warpgroup. Both halves are rows of the same products, so keys
 * and values are read only once, from memory and from shared memory.
 *
 * The producer warp loads chunks of 64 tokens, those of all of the block's splits one
 * after the other, to a ring in shared memory. Two warpgroups alternate between the
 * chunks. Each has 64 rows, of which at most 32 have a head, and its own sums; they do
 * not synchronize until the head set ends. The exponentials of one overlap with the
 * products of the other. The products of a chunk take the tensor cores 512 clocks, the
 * loads about 1,600, so neither warpgroup works ahead. At the end the sums of both are
 * merged, by one warpgroup for each half: here, and in the merge of several blocks, the
 * halves are like two head sets.
 *
 * Tokens of a chunk past the end of the row are not loaded, as their blocks may not be
 * mapped: their scores are masked, and their values set to zero, since a weight of zero
 * times NaN is NaN.
 */
#include "kernels/cuda/sm90/attention_prefill_mma.cuh"
#include "kernels/cuda/sm90/attention_split_merge.cuh"

#define KIND   (RARE | DOUBLE)
#define DIM    128
#define HEADS  (2 * CU_ATT_QUERIES)
#define CHUNK  64                /* tokens: cu_split_chunk() */
#define ARRAY  (CHUNK * DIM * 2) /* bytes of the keys, or the values, of a chunk */
#define EIGHT  (8 * DIM * 2)     /* bytes from 8 tokens to the next 8 */
#define COLUMN 1024              /* bytes from 64 dimensions to the next of 8 tokens */
#define STAGES 3                 /* per warpgroup */
#define WIDE   (DIM + 8)         /* floats of a merged row: no bank conflicts */
#define COPIER_REGISTERS 40      /* of the warpgroup whose first warp is the producer */
#define OTHER_REGISTERS  232

static_assert(THREADS == 2 * 128, "two warpgroups multiply");

/* Shared memory of a block: [STAGES][2 warpgroups] keys and values, then data exchanged
 * between the warpgroups. */
struct double_room {
    static const int sums = STAGES * 2 * 2 * ARRAY; /* [2 warpgroups][HEADS][WIDE] */
    static const int ml = sums + 2 * HEADS * WIDE * 4; /* [2 halves][2][CU_ATT_QUERIES] */
    static const int full = ml + 2 * HEADS * 8;      /* [STAGES][2 warpgroups] */
    static const int empty = full + STAGES * 2 * 8;  /* [STAGES][2 warpgroups] */
    static const int flag = empty + STAGES * 2 * 8;  /* [2 halves][2] */
    static const int bytes = flag + 16;
    static_assert(bytes <= 232448, "fits a block's shared memory");
};

struct double_maps {
    CUtensorMap k, v;
};

/* Position in the ring, whose stages belong alternately to the two warpgroups. */
struct turn_of {
    struct cu_ring_at<STAGES> at; /* among the stages of warpgroup `group` */
    int group;

    __device__ __forceinline__ uint32_t
    stage(void) const
    {
        return (uint32_t)(2 * at.slot + group);
    }
};

/* ---- copying --------------------------------------------------------------- */

/* log2 of the tokens that one copy loads. */
static __device__ __forceinline__ int
piece_shift(const struct split_args &s)
{
    return min(s.block_shift, cu_log2(CHUNK));
}

/* KV blocks of the pieces of a tile's row: this thread's block of the 32 pieces from
 * `first` on, and of the next 32. They are read ahead, as a load from busy memory takes
 * longer than a chunk. */
struct table_part {
    int tile, set;               /* tile and head set */
    int first, block, ahead;
};

/* KV block of piece i; -1: the row has no such piece. */
static __device__ __forceinline__ int
piece_block(const struct walk &w, const struct split_args &s, int i)
{
    const int pos = i << piece_shift(s);
    return pos < w.t.see ? s.table[(int64_t)w.t.state * s.table_stride + (pos >>
        s.block_shift)] : -1;
}

/* Advances p so that piece i is among the 32 from p.first on. */
static __device__ __forceinline__ void
table_reach(struct table_part &p, const struct walk &w, const struct split_args &s, int i)
{
    const int thread = (int)threadIdx.x % 32;
    if (p.tile != w.tile || p.set != w.set) {
        p = { w.tile, w.set, i, piece_block(w, s, i + thread),
            piece_block(w, s, i + 32 + thread) };
    } else if (i - p.first >= 32) {
        p.first += 32;
        p.block = p.ahead;
        p.ahead = piece_block(w, s, p.first + 32 + thread);
    }
}

/* Loads a chunk to `to`; each thread loads a piece if its block is not -1. eight: index
 * of the chunk's first group of 8 tokens in the block. */
static __device__ __forceinline__ void
copy_chunk(const struct split_args &s, const struct double_maps &m, uint32_t to,
    uint32_t bar, int eight, int block, int thread)
{
    const uint32_t bytes = (uint32_t)DIM * 2 << piece_shift(s);
    const int n = __popc(__ballot_sync(0xffffffffu, block >= 0));
    if (thread == 0)
        cu_bar_expect(bar, (uint32_t)n * 2 * bytes);
    __syncwarp();
    if (block >= 0) {
        fetch(to + (uint32_t)thread * bytes, &m.k, 0, eight, block, bar);
        fetch(to + ARRAY + (uint32_t)thread * bytes, &m.v, 0, eight, block, bar);
    }
    __syncwarp();
}

/* The producer warp: loads all chunks of the block, those of old tokens before the
 * previous kernel ends. A chunk without tokens has no stage. */
static __device__ __forceinline__ void
run_copies(char *mem, const struct split_args &s, const struct double_maps &m,
    struct walk w, struct table_part p)
{
    const int thread = (int)threadIdx.x % 32, mask = (1 << s.block_shift) - 1;
    const int per = CHUNK >> piece_shift(s);
    const uint32_t base = cu_smem(mem);
    struct turn_of t = { { { 0, 0 } }, 0 };
    bool waited = false;
    for (; w.left > 0; step<KIND>(w, s)) {
        const int pos = w.chunk * CHUNK, i = w.chunk * per;
        const int eight = (w.head << s.block_shift | (pos & mask)) / 8;
        if (pos >= w.t.see)
            continue;
        if (!waited && pos + CHUNK > w.t.old) {
            cu_dep_wait();
            waited = true;
        }
        table_reach(p, w, s, i);
        int block = __shfl_sync(0xffffffffu, p.block, (i - p.first + thread) % 32);
        block = thread < per ? block : -1;
        cu_bar_wait(base + double_room::empty + 8 * t.stage(), (uint32_t)t.at.parity ^ 1);
        copy_chunk(s, m, base + t.stage() * (2 * ARRAY), base + double_room::full +
            8 * t.stage(), eight, block, thread);
        if (t.group == 1)
            t.at.next();
        t.group ^= 1;
    }
}

/* ---- multiplying ----------------------------------------------------------- */

struct top {                     /* for two heads of a thread; l: sum over its columns */
    float m[2], l[2];
};

/* Number of query heads of the head set; *ret_first: the first, counted as in
 * set_heads(). */
static __device__ __forceinline__ int
all_heads(const struct split_args &s, const struct walk &w, int *ret_first)
{
    int sub = (w.set - w.head * s.n_head_set) * HEADS;
    *ret_first = w.head * s.group + sub;
    return min(s.group - sub, HEADS);
}

/* Loads queries from memory as A operands. Rows without a head are 0. */
static __device__ __forceinline__ void
load_rows(uint32_t (&q)[DIM / 4], const struct split_args &s, const struct walk &w)
{
    const struct fdk_attention_args &a = s.a;
    const int thread = set_thread<KIND>();
    int first, n = all_heads(s, w, &first);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = thread / 32 * 16 + thread % 32 / 4 + 8 * r, of;
        int rank = rank_head<KIND>(s, w, first + row, &of);
        const uint32_t *x = (const uint32_t *)((const __nv_bfloat16 *)a.qkv +
            ((int64_t)w.t.tok * s.n_rank + rank) * ((a.H + 2 * a.K) * DIM) + of * DIM) +
            thread % 4;
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            q[2 * i + r] = row < n ? x[4 * i] : 0;
    }
}

/* Zeroes the values after the first n tokens. */
static __device__ __forceinline__ void
clear_behind(uint32_t v, int n)
{
    for (int i = set_thread<KIND>(); i < (CHUNK - n) * (DIM / 8); i += THREADS / 2) {
        int tok = n + i / (DIM / 8), at = i % (DIM / 8);
        uint32_t to = v + (uint32_t)(tok / 8 * EIGHT + at / 8 * COLUMN + tok % 8 * 128 +
            (at ^ tok) % 8 * 16);
        asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" :: "r"(to), "r"(0)
            : "memory");
    }
    fence_async();
    set_sync<KIND>();
}

/* Converts products to scores: applies the soft cap and masks tokens from n on. */
static __device__ __forceinline__ void
see_scores(float (&sc)[CHUNK / 2], const struct split_args &s, float score, int n)
{
    if (s.cap > 0)
#pragma unroll
        for (int i = 0; i < CHUNK / 2; i++)
            sc[i] = cu_soft_cap(sc[i], score * s.cap_by, s.cap);
    if (n < CHUNK)
#pragma unroll
        for (int i = 0; i < CHUNK / 2; i++)
            if (i / 4 * 8 + i % 2 + (int)threadIdx.x % 4 * 2 >= n)
                sc[i] = -INFINITY;
}

/* Online softmax: converts scores to weights and rescales the sums. */
static __device__ __forceinline__ void
weigh(uint32_t (&p)[CHUNK / 4], float (&sc)[CHUNK / 2], float (&o)[DIM / 2], struct top &x,
    float scale)
{
    float alpha[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = x.m[r], other = sc[2 * r + 1], sum[2] = {};
#pragma unroll
        for (int i = 0; i < CHUNK / 2; i += 4) {
            most = fmaxf(most, sc[i + 2 * r]);
            other = fmaxf(other, sc[i + 2 * r + 1]);
        }
        most = fmaxf(most, other);
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        /* No token seen so far: weights are 0, not NaN. */
        float ref = most == -INFINITY ? 0 : most * scale;
        /* Exactly 1 if the maximum has not grown, without the rounding of the product. */
        alpha[r] = most == x.m[r] ? 1 : power2(fmaf(x.m[r], scale, -ref));
        x.m[r] = most;
#pragma unroll
        for (int i = 0; i < CHUNK / 2; i += 4) {
            float *two = sc + i + 2 * r;
            two[0] = power2(fmaf(two[0], scale, -ref));
            two[1] = power2(fmaf(two[1], scale, -ref));
            sum[i / 4 % 2] += two[0] + two[1];
        }
        x.l[r] = fmaf(x.l[r], alpha[r], sum[0] + sum[1]);
    }
#pragma unroll
    for (int i = 0; i < CHUNK / 4; i++)
        p[i] = pack_bf16(sc[2 * i], sc[2 * i + 1]);
    if (__any_sync(0xffffffffu, alpha[0] != 1 || alpha[1] != 1))
#pragma unroll
        for (int i = 0; i < DIM / 2; i++)
            o[i] *= alpha[i / 2 % 2];
}

/* Computes the chunk at `at`; n: tokens of the row from the chunk's first on; busy: this
 * warp has heads. */
static __device__ __forceinline__ void
attend(float (&o)[DIM / 2], struct top &x, const uint32_t (&q)[DIM / 4],
    const struct split_args &s, float score, uint32_t at, int n, bool busy)
{
    float sc[CHUNK / 2];
    uint32_t p[CHUNK / 4] = {};
    if (n < CHUNK)
        clear_behind(at + ARRAY, n);
    cu_wgmma_begin();
#pragma unroll
    for (int i = 0; i < DIM / 16; i++)
        mma_rs<0>(sc, q + 4 * i, matrix(at + (uint32_t)(i / 4 * COLUMN + i % 4 * 32), 0,
            EIGHT), i > 0);
    cu_wgmma_end();
    cu_wgmma_wait<0>();
    cu_wgmma_hold(sc);
    if (busy) {
        see_scores(sc, s, score, n);
        weigh(p, sc, o, x, s.cap > 0 ? 1 : score);
    }
    cu_wgmma_begin();
#pragma unroll
    for (int i = 0; i < CHUNK / 16; i++)
        mma_rs<1>(o, p + 4 * i, matrix(at + ARRAY + (uint32_t)(i * 2 * EIGHT), COLUMN,
            EIGHT), 1);
    cu_wgmma_end();
    cu_wgmma_wait<0>();
    cu_wgmma_hold(o);
}

/* ---- the end of a head set ------------------------------------------------- */

/* Barrier of both warpgroups. */
static __device__ __forceinline__ void
both_sync(void)
{
    named_sync(3, THREADS);
}

/* Stores this warp's 16 heads in shared memory. */
static __device__ __forceinline__ void
put_sums(char *mem, const float (&o)[DIM / 2], const struct top &x, float score)
{
    const int group = set_half<KIND>(), half = set_thread<KIND>() / 32;
    const int thread = (int)threadIdx.x % 32;
    float2 *ml = (float2 *)(mem + double_room::ml) + (2 * half + group) * CU_ATT_QUERIES;
    float *to = (float *)(mem + double_room::sums) + (group * HEADS + half *
        CU_ATT_QUERIES + thread / 4) * WIDE + thread % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float l = x.l[r];
        l += __shfl_xor_sync(0xffffffffu, l, 1);
        l += __shfl_xor_sync(0xffffffffu, l, 2);
        if (thread % 4 == 0)
            ml[thread / 4 + 8 * r] = make_float2(x.m[r] * score, l);
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            *(float2 *)(to + 8 * r * WIDE + 8 * i) = make_float2(o[4 * i + 2 * r],
                o[4 * i + 2 * r + 1]);
    }
}

#define ITEMS (CU_ATT_QUERIES * (DIM / 2) / (THREADS / 2))
#define AHEAD 2                  /* blocks whose sums are loaded at the same time */

/* The results of a thread: two dimensions each, of heads THREADS / DIM apart. */
struct items {
    struct pair v[ITEMS];
};

static __device__ __forceinline__ int
item_head(int i)
{
    return (set_thread<KIND>() + i * (THREADS / 2)) / (DIM / 2);
}

static __device__ __forceinline__ int
item_column(void)
{
    return set_thread<KIND>() % (DIM / 2) * 2;
}

/* Loads the sums of n_q heads in a block's slot; those of other heads are 0. */
static __device__ __forceinline__ void
load_items(struct items &all, const struct split_args &s, int block, int slot, int n_q)
{
    const auto *x = slot_of<DIM, KIND>(s, block, slot);
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int q = item_head(i);
        float2 o = {}, ml = { -INFINITY, 0 };
        if (q < n_q) {
            o = __ldcg((const float2 *)&x->o[q][item_column()]);
            ml = __ldcg((const float2 *)x->ml[q]);
        }
        all.v[i] = { ml.x, ml.y, o.x, o.y };
    }
}

/* fold_others() for all items at a time, so that they wait for memory together. */
static __device__ __forceinline__ void
fold_items(struct items &all, const struct split_args &s, const struct ending &e,
    int n_q)
{
#pragma unroll 1
    for (int b = e.first + 1; b <= e.end; b += AHEAD) {
        struct items more[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            load_items(more[k], s, b + k, 1, b + k <= e.end ? n_q : 0);
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
#pragma unroll
            for (int i = 0; i < ITEMS; i++)
                if (b + k <= e.end)
                    fold(all.v[i], more[k].v[i]);
    }
}

/* Stores item i as the result, like put_share(). */
static __device__ __forceinline__ void
put_item(const struct split_args &s, const struct walk &w, const struct items &all, int i)
{
    const struct fdk_attention_args &a = s.a;
    const auto &v = all.v[i];
    int h, h0, col = item_column();
    (void)set_heads<KIND>(s, w, &h0);
    const int rank = rank_head<KIND>(s, w, h0 + item_head(i), &h);
    float *row = (float *)a.y + ((int64_t)w.t.tok * s.n_rank + rank) * (a.H * (DIM + 1));
    const bool some = v.l > 0;
    const float inv = some ? __frcp_rn(v.l) : 1;
    row[h * DIM + col] = some ? v.x * inv : v.l;
    row[h * DIM + col + 1] = some ? v.y * inv : v.l;
    if (col == 0)
        row[a.H * DIM + h] = v.l == 0 ? -INFINITY : LN2 * (v.m + __log2f(v.l));
}

/* Stores the items as results, or in this block's scratch. */
static __device__ __forceinline__ void
put_items(const struct items &all, const struct split_args &s, const struct walk &w,
    bool result, bool own, int n_q)
{
    auto *x = slot_of<DIM, KIND>(s, (int)blockIdx.x, own ? 0 : 1);
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int q = item_head(i), col = item_column();
        if (q >= n_q)
            continue;
        if (result) {
            put_item(s, w, all, i);
            continue;
        }
        *(float2 *)&x->o[q][col] = make_float2(all.v[i].x, all.v[i].y);
        if (col == 0)
            *(float2 *)x->ml[q] = make_float2(all.v[i].m, all.v[i].l);
    }
}

/* Signals that this block has stored its sums of a head set that it shares. The last block
 * to arrive merges. */
static __device__ __forceinline__ void
arrive_half(const struct split_args &s, const struct walk &w, const struct ending &e, int n_q,
    int *flag)
{
    struct items all;
    set_sync<KIND>();
    if (set_thread<KIND>() == 0) {
        uint32_t *c = arrivals<KIND>(s, w);
        __threadfence();
        *flag = atomicAdd(c, 1u) == (uint32_t)(e.end - e.first);
        if (*flag) {
            all_arrived<KIND>(s, w, c);
            __threadfence();
        }
    }
    set_sync<KIND>();
    if (!*flag)
        return;
    load_items(all, s, e.first, 0, n_q);
    fold_items(all, s, e, n_q);
    put_items(all, s, w, true, false, n_q);
}

/* finish() of attention_split_merge.cuh, by one warpgroup for each half. */
static __device__ __forceinline__ void
finish_halves(char *mem, const struct split_args &s, const struct walk &w,
    const float (&o)[DIM / 2], const struct top &x, float score, bool own)
{
    const int half = set_half<KIND>(), tid = set_thread<KIND>();
    const float *sums = (const float *)(mem + double_room::sums) + half * CU_ATT_QUERIES *
        WIDE;
    const float2 *ml = (const float2 *)(mem + double_room::ml) + half * HEADS;
    int *flag = (int *)(mem + double_room::flag) + 2 * half;
    int h0, n_q = set_heads<KIND>(s, w, &h0);
    const struct ending e = ending_of(s, w, own);
    both_sync();                 /* the sums of the last head set have been read */
    if (e.open && tid == 0)
        flag[1] = others_here<KIND>(s, w, e);
    if (tid < 2 * 32)
        put_sums(mem, o, x, score);
    both_sync();
    const bool here = e.open && flag[1], last = here || (e.own && e.last);
    struct items all;
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
        all.v[i] = merge_warps<2, HEADS * WIDE>(sums + item_head(i) * WIDE + item_column(),
            ml + item_head(i));
    if (here)
        fold_items(all, s, e, n_q);
    put_items(all, s, w, last, e.own, n_q);
    if (!last)
        arrive_half(s, w, e, n_q, flag);
    else if (!here && w.set == 0 && threadIdx.x == 0)
        atomicAdd(s.a.n_done, 1u);
}

/* ---- the kernel ------------------------------------------------------------ */

static __device__ __forceinline__ void
let_go(uint32_t bar)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        cu_bar_arrive(bar);
}

/* A warpgroup: its chunks of the block's splits. */
static __device__ __forceinline__ void
run_products(char *mem, const struct split_args &s, struct walk w)
{
    /* The shuffle tells the compiler that the value is uniform in the warp. */
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
    const float score = s.a.scale * LOG2E;
    const uint32_t base = cu_smem(mem);
    struct turn_of t = { { { 0, 0 } }, warp / 4 };
    bool own = w.chunk == 0;
    int next = 0;                /* warpgroup of the next chunk */
    uint32_t q[DIM / 4];
    load_rows(q, s, w);
    while (w.left > 0) {
        const int n_chunk = min(w.left, w.n_part - w.chunk); /* of this head set */
        const int n_full = min(n_chunk, (w.t.see + CHUNK - 1) / CHUNK - w.chunk);
        int first, n = w.t.see - w.chunk * CHUNK;
        const bool busy = warp % 4 * 16 < all_heads(s, w, &first);
        struct top x = { { -INFINITY, -INFINITY }, { 0, 0 } };
        float o[DIM / 2];
#pragma unroll
        for (int i = 0; i < DIM / 2; i++)
            o[i] = 0;
#pragma unroll 1
        for (int i = 0; i < n_full; i++, n -= CHUNK, next ^= 1) {
            if (next != t.group)
                continue;
            cu_bar_wait(base + double_room::full + 8 * t.stage(), (uint32_t)t.at.parity);
            attend(o, x, q, s, score, base + t.stage() * (2 * ARRAY), n, busy);
            let_go(base + double_room::empty + 8 * t.stage());
            t.at.next();
        }
        w.chunk = w.part += n_chunk - 1;
        w.left -= n_chunk - 1;
        struct walk behind = w;
        step<KIND>(behind, s);
        if (behind.left > 0)     /* overlaps with the end of this head set */
            load_rows(q, s, behind);
        finish_halves(mem, s, w, o, x, s.cap > 0 ? 1 : score, own);
        w = behind;
        own = true;
    }
}

/* Sets w to the block's first split. */
static __device__ __forceinline__ void
begin_walk(struct walk &w, const struct split_args &s, const struct cu_split_start *start)
{
    const int4 x = *(const int4 *)start, y = *(const int4 *)&start->at;
    load_tile<KIND>(w, s, &start->first);
    w.tile = x.x;
    w.set = x.y;
    w.head = s.n_head_set == 1 ? x.y : x.y / s.n_head_set;
    w.part = x.z;
    w.chunk = part_begin<KIND>(w, s);
    w.left = x.w;
    w.from = y.z;
    w.to = y.w;
}

/* Only the plan, the block tables and old tokens are read before the wait. */
static __global__ void __launch_bounds__(THREADS + 128, 1)
double_kernel(const __grid_constant__ struct split_args s,
    const __grid_constant__ struct double_maps m)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) char mem[];
    const int tid = (int)threadIdx.x;
    const struct cu_split_start *start = s.plan.start + blockIdx.x;
    const bool copies = tid >= THREADS;
    struct walk w;
    struct table_part p = { -1, -1, 0, -1, -1 };
    begin_walk(w, s, start);
    if (w.left <= 0) {
        if (blockIdx.x == 0)
            cu_dep_wait();       /* so that the grid ends after the one before it */
        return;
    }
    if (tid < STAGES * 2) {
        cu_bar_init(cu_smem(mem) + (uint32_t)(double_room::full + 8 * tid), 1);
        cu_bar_init(cu_smem(mem) + (uint32_t)(double_room::empty + 8 * tid), 4);
        cu_bar_ready();
    }
    if (tid == THREADS) {
        cu_prefetch_map(&m.k);
        cu_prefetch_map(&m.v);
    }
    if (copies)
        table_reach(p, w, s, w.chunk * (CHUNK >> piece_shift(s)));
    __syncthreads();
    if (copies) {                /* a warpgroup: setmaxnreg applies to all of its warps */
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(COPIER_REGISTERS));
        if (tid < THREADS + 32)
            run_copies(mem, s, m, w, p);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(OTHER_REGISTERS));
        cu_dep_wait();
        cu_dep_next();
        run_products(mem, s, w);
    }
#endif
}

/* ---- launching ------------------------------------------------------------- */

/* Tensor map of keys or values of the layer, a tile per piece, as in map_kv() of
 * attention_prefill.cu: groups of eight tokens, columns of 64 dimensions, tokens, so that
 * groups have the same distance in shared memory for every block size. */
static int
map_eights(CUtensorMap *m, cu_encode_fn encode, const struct split_args &s, uint64_t off)
{
    const struct fdk_kv *kv = &s.a.kv;
    const cuuint64_t all = (cuuint64_t)kv->block_size * (cuuint64_t)kv->n_kv_head;
    const cuuint64_t dim[5] = { 64, 8, DIM / 64, all / 8, (cuuint64_t)1 << 31 };
    const cuuint64_t stride[4] = { DIM * 2, 128, EIGHT, kv->block_bytes };
    const cuuint32_t size[5] = { 64, 8, DIM / 64,
        (cuuint32_t)(kv->block_size < CHUNK ? kv->block_size : CHUNK) / 8, 1 };
    const cuuint32_t one[5] = { 1, 1, 1, 1, 1 };
    CUresult r = cu_make_map(encode, m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5,
        (void *)(uintptr_t)(s.layer + off), dim, stride, size, one,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? 0 : -ENOTSUP;
}

int
cu_att_double_launch(const struct split_args &s, cu_encode_fn encode, int n_block,
    cudaStream_t st)
{
    struct double_maps m;
    int rc = map_eights(&m.k, encode, s, 0);
    if (rc == 0)
        rc = map_eights(&m.v, encode, s, s.a.kv.v_bytes);
    if (rc == 0)
        cu_chain(double_kernel, n_block, THREADS + 128, double_room::bytes, st, s, m);
    return rc;
}

cudaError_t
cu_att_double_load(void)
{
    return cudaFuncSetAttribute((const void *)double_kernel,
        cudaFuncAttributeMaxDynamicSharedMemorySize, double_room::bytes);
}
