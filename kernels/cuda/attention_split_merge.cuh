/*
 * Sums (m, l, o) of warps, parts and blocks made one, always in the same order.
 */
#ifndef FDD_KERNELS_CUDA_ATTENTION_SPLIT_MERGE_CUH
#define FDD_KERNELS_CUDA_ATTENTION_SPLIT_MERGE_CUH

#include "kernels/cuda/attention_split_unit.cuh"

struct pair {                    /* of a query vector: two numbers of o under m, l */
    float m, l, x, y;
};

/* Maxima are in powers of two. */
static __device__ __forceinline__ void
fold(struct pair &all, const struct pair &part)
{
    float top = fmaxf(all.m, part.m), ref = top == -INFINITY ? 0 : top;
    float a = power2(all.m - ref), b = power2(part.m - ref);
    all.m = top;
    all.l = fmaf(all.l, a, __fmul_rn(part.l, b));
    all.x = fmaf(all.x, a, __fmul_rn(part.x, b));
    all.y = fmaf(all.y, a, __fmul_rn(part.y, b));
}

/* Query vectors r0 .. r0 + GROUP - 1 of this warp to shared memory. */
template<int D, typename E>
static __device__ __forceinline__ void
put_group(char *mem, const struct sums<D> &u, int r0, float scale, int warp, int lane)
{
    float *to = (float *)(mem + shape<D, E>::merge) + warp * GROUP * shape<D, E>::wide;
    int c = lane % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = lane / 4 + 8 * half - r0;
        if (row < 0 || row >= GROUP)
            continue;
        float *x = to + row * shape<D, E>::wide;
        const int h = 2 * half;
#pragma unroll
        for (int j = 0; j < D / 8; j += 2) {
            const float *a = u.o[j] + h, *b = u.o[j + 1] + h;
            if (sizeof(E) == 1) {
                *(float4 *)(x + 8 * j + 4 * c) = make_float4(a[0] * scale, b[0] * scale,
                    a[1] * scale, b[1] * scale);
            } else {
                *(float2 *)(x + 8 * j + 2 * c) = make_float2(a[0], a[1]);
                *(float2 *)(x + 8 * j + 8 + 2 * c) = make_float2(b[0], b[1]);
            }
        }
    }
}

/* The warps' sums of query vector q, numbers at col, in the warps' order. */
template<int D, typename E>
static __device__ __forceinline__ struct pair
merge_warps(const char *mem, int q, int col)
{
    const float *o = (const float *)(mem + shape<D, E>::merge) +
        q % GROUP * shape<D, E>::wide + col;
    const float2 *ml = (const float2 *)(mem + shape<D, E>::sums) + q;
    struct pair r = { -INFINITY, 0, 0, 0 };
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        r.m = fmaxf(r.m, ml[w * CU_ATT_QUERIES].x);
    float ref = r.m == -INFINITY ? 0 : r.m;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        float2 s = ml[w * CU_ATT_QUERIES];
        float2 v = *(const float2 *)(o + w * GROUP * shape<D, E>::wide);
        float e = power2(s.x - ref);
        r.l = fmaf(s.y, e, r.l);
        r.x = fmaf(v.x, e, r.x);
        r.y = fmaf(v.y, e, r.y);
    }
    return r;
}

static __device__ __forceinline__ void
put_result(const struct split_args &s, const struct walk &w, int q, int col,
    struct pair v)
{
    const struct fdk_attention_args &a = s.a;
    int h0, n_head = set_heads(s, w, &h0), t = vector_token(s, q, n_head);
    __nv_bfloat16 *y = (__nv_bfloat16 *)a.y + ((int64_t)(w.t.tok + t) * a.H + h0 + q -
        t * n_head) * a.D + col;
    bool some = v.l > 0;
    float inv = some ? __frcp_rn(v.l) : 1;
    *(uint32_t *)y = pack<__nv_bfloat16>(some ? v.x * inv : v.l, some ? v.y * inv : v.l);
}

template<int D>
static __device__ __forceinline__ struct part_sum<D> *
slot_of(const struct split_args &s, int block, int slot)
{
    return (struct part_sum<D> *)s.a.scratch + block * s.slots + slot;
}

/* All parts of the head set, by the last of its blocks: what the first of them had
 * folded, then the others' one by one. */
template<int D>
static __device__ void
combine(const struct split_args &s, const struct walk &w, int total, int n_q)
{
    int n_block = (int)gridDim.x, n = w.n_part;
    int at = w.t.first * s.n_set + w.set * n;
    int b0 = cu_split_block(total, n_block, at);
    int begin = s.det ? cu_split_begin(total, n_block, b0 + 1) - at : b0 + 1;
    int end = s.det ? n : cu_split_block(total, n_block, at + n - 1) + 1;
    for (int i = (int)threadIdx.x; i < n_q * D / 2; i += THREADS) {
        int q = i / (D / 2), col = i % (D / 2) * 2;
        struct pair all = { -INFINITY, 0, 0, 0 };
        for (int p = begin - 1; p < end; p += 8) {
            struct pair v[8];
#pragma unroll
            for (int k = 0; k < 8; k++) {
                if (p + k >= end)
                    continue;
                const struct part_sum<D> *x = p + k < begin ? slot_of<D>(s, b0, 0) :
                    s.det ? slot_of<D>(s, cu_split_block(total, n_block, at + p + k),
                    p + k) : slot_of<D>(s, p + k, 1);
                float2 o = __ldcg((const float2 *)&x->o[q][col]);
                float2 ml = __ldcg((const float2 *)x->ml[q]);
                v[k] = pair{ ml.x, ml.y, o.x, o.y };
            }
#pragma unroll
            for (int k = 0; k < 8; k++)
                if (p + k < begin)
                    all = v[k];
                else if (p + k < end)
                    fold(all, v[k]);
        }
        put_result(s, w, q, col, all);
    }
}

/* This block has written its parts of the head set: the last one to come merges. */
template<int D>
static __device__ void
arrive(const struct split_args &s, const struct walk &w, int total, int n_q, int *flag)
{
    int n = w.n_part, at = w.t.first * s.n_set + w.set * n;
    if (threadIdx.x == 0) {
        uint32_t *c = s.plan.arrived + (int64_t)w.tile * s.n_set + w.set;
        int others = cu_split_block(total, (int)gridDim.x, at + n - 1) -
            cu_split_block(total, (int)gridDim.x, at);
        __threadfence();
        *flag = atomicAdd(c, 1u) == (uint32_t)others;
        if (*flag) {
            *c = 0;
            if (w.set == 0)
                atomicAdd(s.a.n_done, 1u);
        }
        __threadfence();
    }
    __syncthreads();
    if (*flag)
        combine<D>(s, w, total, n_q);
}

/* The warps' sums are complete for these parts of the block. own: the block has had
 * the head set from its first part on. */
template<int D, typename E>
static __device__ void
finish(char *mem, const struct split_args &s, const struct walk &w, struct sums<D> &u,
    float score, bool own, int total)
{
    typedef struct shape<D, E> sh;
    int tid = (int)threadIdx.x, warp = tid / 32, lane = tid % 32, h0;
    int n_q = w.t.n_tok * set_heads(s, w, &h0);
    bool det = s.det, last = w.part + 1 == w.n_part;
    float scale = std::is_same<E, __nv_fp8_e4m3>::value ?
        kv_head_scale(s.a.kv, s.a.layer, 1, w.head) : 1;
    struct pair *held = (struct pair *)(mem + sh::fold);
    float2 *ml = (float2 *)(mem + sh::sums) + warp * CU_ATT_QUERIES + lane / 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float l = u.l[r];
        l += __shfl_xor_sync(0xffffffffu, l, 1);
        l += __shfl_xor_sync(0xffffffffu, l, 2);
        if (lane % 4 == 0)
            ml[8 * r] = make_float2(u.m[r] * score - high<E>(), l);
    }
    for (int r0 = 0; r0 < n_q; r0 += GROUP) {
        put_group<D, E>(mem, u, r0, scale, warp, lane);
        __syncthreads();
        int q = r0 + tid / (D / 2), col = tid % (D / 2) * 2;
        if (tid < GROUP * D / 2 && q < n_q) {
            struct pair v = merge_warps<D, E>(mem, q, col);
            struct pair *h = held + q * (D / 2) + col / 2;
            if (own && det && w.part > 0) {
                struct pair all = *h;
                fold(all, v);
                v = all;
            }
            if (own && last) {
                put_result(s, w, q, col, v);
            } else if (own && w.left > 1) {
                *h = v;
            } else {
                struct part_sum<D> *x = slot_of<D>(s, (int)blockIdx.x,
                    own ? 0 : det ? w.part : 1);
                *(float2 *)&x->o[q][col] = make_float2(v.x, v.y);
                if (col == 0)
                    *(float2 *)x->ml[q] = make_float2(v.m, v.l);
            }
        }
        __syncthreads();
    }
    if (own && last) {
        if (w.set == 0 && tid == 0)
            atomicAdd(s.a.n_done, 1u);
    } else if (last || w.left == 1) {
        arrive<D>(s, w, total, n_q, (int *)(mem + sh::flag));
    }
}

#endif
