/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Merges the sums (m, l, o) of warps, splits and blocks, always in the same order.
 */
#ifndef FDD_KERNELS_CUDA_SM90_ATTENTION_SPLIT_MERGE_CUH
#define FDD_KERNELS_CUDA_SM90_ATTENTION_SPLIT_MERGE_CUH

#include "kernels/cuda/sm90/attention_split_unit.cuh"

#define LN2 0.69314718055994531f

struct pair {                    /* of a query vector: two numbers of o with their m, l */
    float m, l, x, y;
};

/* Merges `more` into `all`. Maxima are base-2 logarithms. */
static __device__ __forceinline__ void
fold(struct pair &all, const struct pair &more)
{
    float top = fmaxf(all.m, more.m), ref = top == -INFINITY ? 0 : top;
    float a = power2(all.m - ref), b = power2(more.m - ref);
    all.m = top;
    all.l = fmaf(all.l, a, __fmul_rn(more.l, b));
    all.x = fmaf(all.x, a, __fmul_rn(more.x, b));
    all.y = fmaf(all.y, a, __fmul_rn(more.y, b));
}

/* Stores query vectors r0 .. r0 + each - 1 of this warp in shared memory. */
template<int D, typename E>
static __device__ __forceinline__ void
put_group(char *mem, const struct sums<D> &u, int r0, float scale, int warp, int lane)
{
    const int wide = shape<D, E>::wide, each = shape<D, E>::group;
    float *to = (float *)(mem + shape<D, E>::merge) + warp * each * wide;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = 8 * half + lane % 4 * 2 - r0;
        if (row < 0 || row >= each)
            continue;
        float *x = to + row * wide + lane / 4 * (sizeof(E) == 1 ? 2 : 1);
#pragma unroll
        for (int j = 0; j < D / 16; j++) {
            const float *o = u.o[half][j];
            if (sizeof(E) == 1) {
                *(float2 *)(x + 16 * j) = make_float2(o[0] * scale, o[2] * scale);
                *(float2 *)(x + wide + 16 * j) = make_float2(o[1] * scale, o[3] * scale);
            } else {
                x[16 * j] = o[0];
                x[16 * j + 8] = o[2];
                x[wide + 16 * j] = o[1];
                x[wide + 16 * j + 8] = o[3];
            }
        }
    }
}

/* Merges N warps' sums of a query vector in their order. o: two numbers of the first
 * warp, APART floats before those of the next; ml: m and l of the first warp. */
template<int N, int APART>
static __device__ __forceinline__ struct pair
merge_warps(const float *o, const float2 *ml)
{
    struct pair r = { -INFINITY, 0, 0, 0 };
#pragma unroll
    for (int w = 0; w < N; w++)
        r.m = fmaxf(r.m, ml[w * CU_ATT_QUERIES].x);
    float ref = r.m == -INFINITY ? 0 : r.m;
#pragma unroll
    for (int w = 0; w < N; w++) {
        float2 s = ml[w * CU_ATT_QUERIES];
        float2 v = *(const float2 *)(o + w * APART);
        float e = power2(s.x - ref);
        r.l = fmaf(s.y, e, r.l);
        r.x = fmaf(v.x, e, r.x);
        r.y = fmaf(v.y, e, r.y);
    }
    return r;
}

/* Stores a result where ranks share the keys and a tile is one token, like put_share() of
 * the plain kernel. x, y: two numbers of o with their m, l. */
template<int G>
static __device__ __forceinline__ void
put_share(const struct split_args &s, const struct walk &w, int q, int col, float m, float l,
    float x, float y)
{
    const struct fdk_attention_args &a = s.a;
    int h, h0;
    (void)set_heads<G>(s, w, &h0);
    int rank = rank_head<G>(s, w, h0 + q, &h);
    float *row = (float *)a.y + ((int64_t)w.t.tok * s.n_rank + rank) * (a.H * (a.D + 1));
    bool some = l > 0;
    row[h * a.D + col] = some ? __fdiv_rn(x, l) : l;
    row[h * a.D + col + 1] = some ? __fdiv_rn(y, l) : l;
    if (col == 0)
        row[a.H * a.D + h] = l == 0 ? -INFINITY : fmaf(m, LN2, logf(l));
}

template<int G>
static __device__ __forceinline__ void
put_result(const struct split_args &s, const struct walk &w, int q, int col,
    struct pair v)
{
    const struct fdk_attention_args &a = s.a;
    if ((G & RARE) && s.n_rank > 1) {
        put_share<G>(s, w, q, col, v.m, v.l, v.x, v.y);
        return;
    }
    int h0, n_head = set_heads<G>(s, w, &h0), t = vector_token(s, q, n_head);
    __nv_bfloat16 *y = (__nv_bfloat16 *)a.y + ((int64_t)(w.t.tok + t) * a.H + h0 + q -
        t * n_head) * a.D + col;
    bool some = v.l > 0;
    float inv = some ? __frcp_rn(v.l) : 1;
    *(uint32_t *)y = pack<__nv_bfloat16>(some ? v.x * inv : v.l, some ? v.y * inv : v.l);
}

template<int D, int G>
static __device__ __forceinline__ struct part_sum<D> *
slot_of(const struct split_args &s, int block, int slot)
{
    if (G & DOUBLE)
        return (struct part_sum<D> *)s.a.scratch + 2 * (block * s.cut.slots + slot) +
            set_half<G>();
    return (struct part_sum<D> *)s.a.scratch + block * s.cut.slots + slot;
}

/* State when a block has finished its splits of a head set. */
struct ending {
    bool own, last;              /* it had the first split; it had the last one */
    bool open;                   /* own, but other blocks have the remaining splits */
    bool shared;                 /* the head set is shared with other blocks */
    int first, end;              /* shared: blocks first .. end have it */
    int at;                      /* deterministic: index of its first split */
};

static __device__ __forceinline__ struct ending
ending_of(const struct split_args &s, const struct walk &w, bool own)
{
    struct ending e = {};
    e.own = own;
    e.last = w.part + 1 == w.n_part;
    e.open = own && !e.last && w.left == 1;
    e.shared = e.open || (!own && (e.last || w.left == 1));
    e.first = own ? (int)blockIdx.x : w.from;
    e.end = e.last ? (int)blockIdx.x : w.to;
    if (s.det)
        e.at = w.t.first * s.n_set + w.set * w.n_part;
    return e;
}

/* Two numbers of query vector q: merges the splits of the other blocks one by one into
 * those that the first block has merged. */
template<int D, int G>
static __device__ __forceinline__ void
fold_others(const struct split_args &s, const struct ending &e, int total, int n_part,
    int q, int col, struct pair &all)
{
    int n_block = (int)gridDim.x;
    int begin = s.det ? cu_split_begin(total, n_block, e.first + 1) - e.at : e.first + 1;
    int end = s.det ? n_part : e.end + 1;
    for (int p = begin; p < end; p += 4) {
        struct pair v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (p + k >= end)
                continue;
            const struct part_sum<D> *x = s.det ? slot_of<D, G>(s,
                cu_split_block(total, n_block, e.at + p + k), p + k) :
                slot_of<D, G>(s, p + k, 1);
            float2 o = __ldcg((const float2 *)&x->o[q][col]);
            float2 ml = __ldcg((const float2 *)x->ml[q]);
            v[k] = pair{ ml.x, ml.y, o.x, o.y };
        }
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (p + k < end)
                fold(all, v[k]);
    }
}

/* Merges all splits of the head set; by its first n_thread threads in the last block to
 * arrive. */
template<int D, int G>
static __device__ void
combine(const struct split_args &s, const struct walk &w, const struct ending &e,
    int total, int n_q, int n_thread)
{
    const struct part_sum<D> *x = slot_of<D, G>(s, e.first, 0);
    for (int i = set_thread<G>(); i < n_q * D / 2; i += n_thread) {
        int q = i / (D / 2), col = i % (D / 2) * 2;
        float2 o = __ldcg((const float2 *)&x->o[q][col]);
        float2 ml = __ldcg((const float2 *)x->ml[q]);
        struct pair all = { ml.x, ml.y, o.x, o.y };
        fold_others<D, G>(s, e, total, w.n_part, q, col, all);
        put_result<G>(s, w, q, col, all);
    }
}

template<int G>
static __device__ __forceinline__ uint32_t *
arrivals(const struct split_args &s, const struct walk &w)
{
    if (G & DOUBLE)
        return s.plan.arrived + 2 * ((int64_t)w.tile * s.n_set + w.set) + set_half<G>();
    return s.plan.arrived + (int64_t)w.tile * s.n_set + w.set;
}

template<int G>
static __device__ __forceinline__ void
all_arrived(const struct split_args &s, const struct walk &w, uint32_t *arrived)
{
    *arrived = 0;
    if (w.set == 0 && set_half<G>() == 0)
        atomicAdd(s.a.n_done, 1u);
}

/* Signals that this block has written its splits of the head set; the last block to
 * arrive merges. A block with more work uses one warp for this, a block at its end all
 * warps. */
template<int D, int G>
static __device__ void
arrive(const struct split_args &s, const struct walk &w, const struct ending &e,
    int total, int n_q, int *flag)
{
    bool alone = w.left > 1;
    if (alone && (uint32_t)set_thread<G>() >= 32)
        return;
    if (set_thread<G>() == 0) {
        uint32_t *c = arrivals<G>(s, w);
        __threadfence();
        *flag = atomicAdd(c, 1u) == (uint32_t)(e.end - e.first);
        if (*flag) {
            all_arrived<G>(s, w, c);
            __threadfence();
        }
    }
    if (alone)
        __syncwarp();
    else
        set_sync<G>();
    if (*flag)
        combine<D, G>(s, w, e, total, n_q, alone ? 32 : set_threads<G>());
    __syncwarp();
}

/* Have all other blocks of the head set arrived? Then this block is the last. */
template<int G>
static __device__ __forceinline__ int
others_here(const struct split_args &s, const struct walk &w, const struct ending &e)
{
    uint32_t n, *c = arrivals<G>(s, w);
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(n) : "l"(c) : "memory");
    if (n != (uint32_t)(e.end - e.first))
        return 0;
    all_arrived<G>(s, w, c);
    return 1;
}

/* Stores m and l of a warp. ml: [warps][CU_ATT_QUERIES]. */
template<int D, typename E>
static __device__ __forceinline__ void
put_ml(float2 *ml, const struct sums<D> &u, float score, int warp, int lane)
{
    ml += warp * CU_ATT_QUERIES + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float l = u.l[i / 2][i % 2];
        for (int k = 4; k < 32; k *= 2)
            l += __shfl_xor_sync(0xffffffffu, l, k);
        if (lane < 4)
            ml[8 * (i / 2) + i % 2] = make_float2(u.m[i / 2][i % 2] * score - high<E>(),
                l);
    }
}

/* Stores the block's merged sums of query vector q, numbers at col: merged with its
 * earlier splits in `held` (if deterministic), as the result, or in the
 * scratch. here: the sums of all other blocks are in the scratch. */
template<int D, int G>
static __device__ __forceinline__ void
put_pair(struct pair *held, const struct split_args &s, const struct walk &w,
    const struct ending &e, int total, bool here, int q, int col, struct pair v)
{
    if (e.own && s.det && w.part > 0) {
        struct pair all = *held;
        fold(all, v);
        v = all;
    }
    if (here)
        fold_others<D, G>(s, e, total, w.n_part, q, col, v);
    if (here || (e.own && e.last)) {
        put_result<G>(s, w, q, col, v);
    } else if (e.own && !e.open) {
        *held = v;
    } else {
        struct part_sum<D> *x = slot_of<D, G>(s, (int)blockIdx.x, e.own ? 0 : s.det ?
            w.part : 1);
        *(float2 *)&x->o[q][col] = make_float2(v.x, v.y);
        if (col == 0)
            *(float2 *)x->ml[q] = make_float2(v.m, v.l);
    }
}

/* Called after a block has stored all its sums of a head set. flag[1]: the head set is
 * open and all other blocks had arrived. */
template<int D, int G>
static __device__ __forceinline__ void
settle(const struct split_args &s, const struct walk &w, const struct ending &e, int total,
    int n_q, int *flag)
{
    if (e.own && e.last) {
        if (w.set == 0 && threadIdx.x == 0)
            atomicAdd(s.a.n_done, 1u);
    } else if (e.shared && !(e.open && flag[1])) {
        arrive<D, G>(s, w, e, total, n_q, flag);
    }
}

/* Merges the warps' sums of the block's splits of a head set, and stores the result. own:
 * the block has the head set's first split. Then its sums need no scratch, as it is
 * usually the last to arrive: the others began with their splits of this head set. */
template<int D, typename E, int G>
static __device__ void
finish(char *mem, const struct split_args &s, const struct walk &w, struct sums<D> &u,
    float score, bool own, int total)
{
    typedef struct shape<D, E> sh;
    const int each = sh::group;
    int tid = (int)threadIdx.x, warp = tid / 32, lane = tid % 32, h0;
    int n_q = w.t.n_tok * set_heads<G>(s, w, &h0), *flag = (int *)(mem + sh::flag);
    float scale = std::is_same<E, __nv_fp8_e4m3>::value ?
        kv_head_scale(s.a.kv, s.a.layer, 1, w.head) : 1;
    const struct ending e = ending_of(s, w, own);
    if (e.open && tid == 0)
        flag[1] = others_here<G>(s, w, e);
    put_ml<D, E>((float2 *)(mem + sh::sums), u, score, warp, lane);
    for (int r0 = 0; r0 < n_q; r0 += each) {
        put_group<D, E>(mem, u, r0, scale, warp, lane);
        __syncthreads();
        int q = r0 + tid / (D / 2), col = tid % (D / 2) * 2;
        if (tid < each * D / 2 && q < n_q)
            put_pair<D, G>((struct pair *)(mem + sh::fold) + q * (D / 2) + col / 2, s, w, e,
                total, e.open && flag[1], q, col, merge_warps<WARPS, each * sh::wide>((float *)
                (mem + sh::merge) + q % each * sh::wide + col, (float2 *)(mem + sh::sums) + q));
        __syncthreads();
    }
    settle<D, G>(s, w, e, total, n_q, flag);
}

#endif
