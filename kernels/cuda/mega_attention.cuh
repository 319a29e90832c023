/*
 * Attention of a few tokens over paged bf16 KV, for mega_kernel.cu. An item is a token's
 * query heads of one KV head and a run of its chunks; a chunk is 16 tokens for each of
 * some warps. Tokens of KV are the M of both products, query heads are N: a warp's keys
 * and values go from memory to registers as operands, with no stop in shared memory. Sums
 * (m, l, o) of a block's warps are merged in their order, those of a KV head's items
 * by the block that comes last, in the order of items.
 */
#ifndef FDD_KERNELS_CUDA_MEGA_ATTENTION_CUH
#define FDD_KERNELS_CUDA_MEGA_ATTENTION_CUH

#include "kernels/cuda/attention_split_mma.cuh"
#include "kernels/cuda/mega_gemm.cuh"

#define UNIT    16               /* tokens of a warp's products */
#define QUERIES 8                /* query heads of a KV head, at most */
#define LOG2E   1.4426950408889634f
#define BLOCKS_KNOWN 8           /* of a warp's chunks: KV blocks are looked up before */

/* How the tokens' chunks are dealt out to items: the same in every layer, so it is
 * found out once, in shared memory. */
struct att_item {
    int t, head;
    int part, n_part;            /* of the head's items */
    int first;                   /* item of part 0 */
    int c0, c1;                  /* chunks */
};

struct att_deal {
    int warps;                   /* that take part: a chunk is UNIT * warps tokens */
    int per;                     /* chunks of an item */
    int n;                       /* items */
    int see[MEGA_ROWS];          /* tokens of KV, 0: the row is not live */
    int begin[MEGA_ROWS + 1];    /* a token's first item */
    const int32_t *table[MEGA_ROWS];
    struct att_item mine;        /* item blockIdx.x */
    int32_t block[MEGA_WARPS][BLOCKS_KNOWN]; /* of its chunks, by warp */
};

static __device__ __forceinline__ int
att_chunks(const struct att_deal &d, int t)
{
    return (d.see[t] + UNIT * d.warps - 1) / (UNIT * d.warps);
}

static __device__ __forceinline__ struct att_item
att_item_of(const struct att_deal &d, int K, int i)
{
    struct att_item x = {};
    while (x.t < MEGA_ROWS - 1 && i >= d.begin[x.t + 1])
        x.t++;
    int at = i - d.begin[x.t];
    x.n_part = (d.begin[x.t + 1] - d.begin[x.t]) / K;
    x.head = at / x.n_part;
    x.part = at - x.head * x.n_part;
    x.first = i - x.part;
    x.c0 = x.part * d.per;
    x.c1 = min(x.c0 + d.per, att_chunks(d, x.t));
    return x;
}

/* Few tokens of KV are spread over as many blocks as there are: the fewer warps of a
 * block take part. */
static __device__ __forceinline__ void
att_share(struct att_deal &d, int K)
{
    int all = 0, chunks = 0;
    for (int t = 0; t < MEGA_ROWS; t++)
        all += (d.see[t] + UNIT - 1) / UNIT;
    d.warps = MEGA_WARPS;
    while (d.warps > 4 && all * K < d.warps * (int)gridDim.x)
        d.warps /= 2;
    for (int t = 0; t < MEGA_ROWS; t++)
        chunks += att_chunks(d, t);
    d.per = max(1, (chunks * K - 1) / (int)gridDim.x + 1);
    d.begin[0] = 0;
    for (int t = 0; t < MEGA_ROWS; t++)
        d.begin[t + 1] = d.begin[t] + (att_chunks(d, t) + d.per - 1) / d.per * K;
    d.n = d.begin[MEGA_ROWS];
    if ((int)blockIdx.x < d.n)
        d.mine = att_item_of(d, K, (int)blockIdx.x);
}

/* All threads; rows: live tokens of the step. */
static __device__ void
att_deal_out(struct att_deal &d, const struct mega_list &l, int rows)
{
    const int t = (int)threadIdx.x, warp = t / 32, lane = t % 32;
    if (t < MEGA_ROWS) {
        d.see[t] = t < rows ? l.b.pos[t] + 1 : 0;
        d.table[t] = t < rows ? l.b.block_table + (int64_t)l.b.state[l.b.row[t]] *
            l.b.table_stride : NULL;
    }
    mega_sync();
    if (t == 0)
        att_share(d, l.kv.n_kv_head);
    mega_sync();
    if ((int)blockIdx.x >= d.n || lane >= BLOCKS_KNOWN)
        return;
    int pos = ((d.mine.c0 + lane) * d.warps + warp) * UNIT;
    if (warp < d.warps && d.mine.c0 + lane < d.mine.c1 && pos < d.see[d.mine.t])
        d.block[warp][lane] = d.table[d.mine.t][pos / l.kv.block_size];
}

/* ---- a warp's products --------------------------------------------------------- */

/* Sums of a warp: o[c][w] are dimensions 64 c + 8 g + 2 w and the next one, of queries
 * 2 t and 2 t + 1; m in powers of two, l of this lane's tokens alone. */
template<int D>
struct att_sums {
    float m[2], l[2];
    float o[D / 64][4][4];
};

/* Keys of tokens g and g + 8: pieces t, t + 4, ... of 16 bytes. */
template<int D>
static __device__ __forceinline__ void
att_load_keys(uint4 k[2][D / 32], const __nv_bfloat16 *at, int n)
{
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int i = 0; i < D / 32; i++)
            k[h][i] = g + 8 * h < n ? __ldcg((const uint4 *)(at + (g + 8 * h) * D) + t +
                4 * i) : make_uint4(0, 0, 0, 0);
}

/* Values of tokens 2 t, 2 t + 1, 2 t + 8, 2 t + 9: pieces g, g + 8. What lies beyond the
 * last token may be no number: zeros. */
template<int D>
static __device__ __forceinline__ void
att_load_values(uint4 v[4][D / 64], const __nv_bfloat16 *at, int n)
{
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int c = 0; c < D / 64; c++) {
            int tok = 2 * t + j % 2 + j / 2 * 8;
            v[j][c] = tok < n ? __ldcg((const uint4 *)(at + tok * D) + g + 8 * c) :
                make_uint4(0, 0, 0, 0);
        }
}

/* From the first cache, anew each time: registers are what there is least of. */
static __device__ __forceinline__ uint4
att_query(const uint4 *at, bool live)
{
    uint4 q = make_uint4(0, 0, 0, 0);
    if (live)
        asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
            : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w) : "l"(at) : "memory");
    return q;
}

/* query: of this lane's, pieces t, t + 4, ... */
template<int D>
static __device__ __forceinline__ void
att_scores(float p[4], const __nv_bfloat16 *keys, int n, const uint4 *query, bool live)
{
    uint4 k[2][D / 32];
    float odd[4] = {};
    att_load_keys<D>(k, keys, n);
    p[0] = p[1] = p[2] = p[3] = 0;
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        uint4 q = att_query(query + 4 * i, live);
        quant_mma(p, k[0][i].x, k[1][i].x, k[0][i].y, k[1][i].y, q.x, q.y);
        quant_mma(odd, k[0][i].z, k[1][i].z, k[0][i].w, k[1][i].w, q.z, q.w);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        p[i] += odd[i];
}

/* Over the lanes that hold the same queries. */
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

/* Scores of n tokens (g, g + 8; queries 2 t, 2 t + 1) to weights. */
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

/* Dimensions 2 w and 2 w + 1 of the pieces, tokens along K. */
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

/* Where a chunk's tokens begin, for this warp; ret_n: how many there are. */
static __device__ __forceinline__ const char *
att_unit(const struct att_deal &d, const struct mega_list &l, const struct att_item &x,
    int own, int layer, int c, int *ret_n)
{
    const int warp = (int)threadIdx.x / 32, size = l.kv.block_size;
    int pos = (c * d.warps + warp) * UNIT;
    *ret_n = warp < d.warps ? min(d.see[x.t] - pos, UNIT) : 0;
    if (*ret_n <= 0)
        return NULL;
    int block = own && c - x.c0 < BLOCKS_KNOWN ? d.block[warp][c - x.c0] :
        d.table[x.t][pos / size];
    return kv_layer(l.kv, block, layer) + ((size_t)x.head * (size_t)size +
        (size_t)(pos % size)) * (size_t)l.kv.head_dim * 2;
}

/* Keys and values of this block's chunks on their way to the second cache. What is
 * written there meanwhile is seen all the same. */
static __device__ __forceinline__ void
att_prefetch(const struct gemm_also &also)
{
    const struct att_deal &d = *also.deal;
    const struct mega_list &l = *also.l;
    const int lane = (int)threadIdx.x % 32;
    if ((int)blockIdx.x >= d.n)
        return;
    for (int c = d.mine.c0; c < min(d.mine.c1, d.mine.c0 + BLOCKS_KNOWN); c++) {
        int n;
        const char *at = att_unit(d, l, d.mine, 1, also.kv_layer, c, &n);
        if (lane * 128 < n * l.kv.head_dim * 2) {
            asm volatile("prefetch.global.L2 [%0];" :: "l"(at + lane * 128));
            asm volatile("prefetch.global.L2 [%0];" :: "l"(at + l.kv.v_bytes + lane * 128));
        }
    }
}

/* This warp's share of an item. own: it is d.mine. */
template<int D>
static __device__ __forceinline__ void
att_warp(struct att_sums<D> &s, const struct att_deal &d, const struct mega_list &l,
    const struct mega_attention &a, const struct att_item &x, int own)
{
    const int query = (int)threadIdx.x % 32 / 4, group = a.H / a.K;
    const uint4 *row = (const uint4 *)((const __nv_bfloat16 *)a.qkv + ((int64_t)x.t *
        (a.H + 2 * a.K) + x.head * group + query) * D) + threadIdx.x % 4;
    for (int c = x.c0; c < x.c1; c++) {
        int n;
        const char *keys = att_unit(d, l, x, own, a.layer, c, &n);
        if (n <= 0)
            break;
        float p[4];
        att_scores<D>(p, (const __nv_bfloat16 *)keys, n, row, query < group);
        uint4 v[4][D / 64];
        att_load_values<D>(v, (const __nv_bfloat16 *)(keys + l.kv.v_bytes), n);
        att_softmax<D>(p, s, a.scale * LOG2E, n);
        att_values<D>(s, p, v);
    }
}

/* ---- merging ------------------------------------------------------------------- */

/* A block's sums of an item: o, then m and l of each query. */
template<int D>
struct att_part {
    float o[QUERIES][D];
    float ml[QUERIES][2];
};

/* What the block's threads have of the merged o: query i / D, dimension i % D for
 * i = thread, thread + MEGA_THREADS. */
#define OWN(D) (QUERIES * (D) / MEGA_THREADS)

template<int D>
static __device__ __forceinline__ void
att_put(float *sums, const struct att_sums<D> &s, const float f[2], int slot, int group)
{
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (2 * t + i >= group)
            continue;
        float *o = sums + (slot * group + 2 * t + i) * D + 8 * g;
#pragma unroll
        for (int c = 0; c < D / 64; c++)
#pragma unroll
            for (int w = 0; w < 4; w += 2)
                *(float4 *)(o + 64 * c + 2 * w) = make_float4(s.o[c][w][i] * f[i],
                    s.o[c][w][i + 2] * f[i], s.o[c][w + 1][i] * f[i],
                    s.o[c][w + 1][i + 2] * f[i]);
    }
}

/* The warps' sums made one, in their order: o is left with the threads, m and l in
 * ml[query] of shared memory. */
template<int D>
static __device__ void
att_merge(float o[OWN(D)], float *sums, float2 *ml, const struct att_sums<D> &s, int warps,
    int group)
{
    const int warp = (int)threadIdx.x / 32, t = (int)threadIdx.x % 4;
    const int room = SUMS_BYTES / 4 / (group * D); /* warps at a time */
    float f[2];
    float2 *all = ml + QUERIES;                    /* [warp][query] */
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float sum = att_sum(s.l[i]);
        if (warp < warps && threadIdx.x % 32 < 4)
            all[warp * QUERIES + 2 * t + i] = make_float2(s.m[i], sum);
    }
    mega_sync();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float m = -INFINITY, sum = 0;
        for (int w = 0; w < warps; w++)
            m = fmaxf(m, all[w * QUERIES + 2 * t + i].x);
        float ref = m == -INFINITY ? 0 : m;
        for (int w = 0; w < warps; w++)
            sum = fmaf(all[w * QUERIES + 2 * t + i].y, power2(all[w * QUERIES + 2 * t +
                i].x - ref), sum);
        f[i] = power2(s.m[i] - ref);
        if (threadIdx.x < 4)
            ml[2 * t + i] = make_float2(m, sum);
    }
#pragma unroll
    for (int i = 0; i < OWN(D); i++)
        o[i] = 0;
    for (int w0 = 0; w0 < warps; w0 += room) {
        if (warp >= w0 && warp < min(w0 + room, warps))
            att_put<D>(sums, s, f, warp - w0, group);
        mega_sync();
#pragma unroll
        for (int i = 0; i < OWN(D); i++) {
            int at = (int)threadIdx.x + i * MEGA_THREADS;
            for (int w = 0; w < min(room, warps - w0) && at < group * D; w++)
                o[i] += sums[w * group * D + at];
        }
        mega_sync();
    }
}

template<int D>
static __device__ __forceinline__ void
att_result(const struct mega_attention &a, const struct att_item &x, int at, float o,
    float l)
{
    __nv_bfloat16 *y = (__nv_bfloat16 *)a.y + ((int64_t)x.t * a.H + x.head * (a.H / a.K)) *
        D + at;
    *y = __float2bfloat16_rn(o / l);
}

/* By the last block of a head: its items' sums, in their order. */
template<int D>
static __device__ void
att_combine(const struct mega_attention &a, const struct att_item &x)
{
    const struct att_part<D> *part = (const struct att_part<D> *)a.scratch + x.first;
    const int group = a.H / a.K;
    for (int at = (int)threadIdx.x; at < group * D; at += MEGA_THREADS) {
        int q = at / D;
        float m = -INFINITY, l = 0, o = 0;
        for (int p0 = 0; p0 < x.n_part; p0 += 8) {
            float2 ml[8];
            float v[8];
#pragma unroll
            for (int k = 0; k < 8; k++) {
                const struct att_part<D> *from = part + min(p0 + k, x.n_part - 1);
                ml[k] = __ldcg((const float2 *)from->ml[q]);
                v[k] = __ldcg(&from->o[q][at % D]);
            }
#pragma unroll
            for (int k = 0; k < 8; k++)
                if (p0 + k < x.n_part) {
                    float top = fmaxf(m, ml[k].x), was = power2(m - top);
                    float now = power2(ml[k].x - top);
                    l = fmaf(l, was, ml[k].y * now);
                    o = fmaf(o, was, v[k] * now);
                    m = top;
                }
        }
        att_result<D>(a, x, at, o, l);
    }
}

/* What attention has in shared memory besides its deal: sums of SUMS_BYTES; m and l of
 * queries, the block's, then its warps'. */
struct att_room {
    float *sums;
    float2 *ml;
    int *flag;
};

/* This block's part is there; 1 in the block that is the head's last. */
static __device__ __forceinline__ int
att_arrive(const struct mega_list &l, const struct att_item &x, int *flag)
{
    mega_sync();
    if (threadIdx.x == 0) {
        uint32_t *c = &l.state->parts[x.t * MEGA_HEADS + x.head], before;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
            : "=r"(before) : "l"(c) : "memory");
        *flag = before + 1 == (uint32_t)x.n_part;
        if (*flag)
            *c = 0;
    }
    mega_sync();
    return *flag;
}

template<int D>
static __device__ void
att_run(const struct att_deal &d, const struct mega_list &l,
    const struct mega_attention &a, int item, const struct att_room &room)
{
    const struct att_item x = item == (int)blockIdx.x ? d.mine : att_item_of(d, a.K, item);
    const int group = a.H / a.K;
    struct att_sums<D> s = {};
    float o[OWN(D)];
    s.m[0] = s.m[1] = -INFINITY;
    att_warp<D>(s, d, l, a, x, item == (int)blockIdx.x);
    att_merge<D>(o, room.sums, room.ml, s, d.warps, group);
    struct att_part<D> *part = (struct att_part<D> *)a.scratch + item;
#pragma unroll
    for (int i = 0; i < OWN(D); i++) {
        int at = (int)threadIdx.x + i * MEGA_THREADS;
        if (at >= group * D)
            continue;
        if (x.n_part == 1) {
            att_result<D>(a, x, at, o[i], room.ml[at / D].y);
            continue;
        }
        part->o[at / D][at % D] = o[i];
        if (at % D == 0)
            *(float2 *)part->ml[at / D] = room.ml[at / D];
    }
    if (x.n_part > 1 && att_arrive(l, x, room.flag))
        att_combine<D>(a, x);
}

template<int D>
static __device__ __forceinline__ void
mega_run_attention(const struct att_deal &d, const struct mega_list &l,
    const struct mega_attention &a, const struct att_room &room)
{
    if (blockIdx.x == 0 && threadIdx.x == 0)
        atomicAdd(a.n_done, (uint32_t)max(0, min(a.n_work_max, *a.n_work)));
    for (int i = (int)blockIdx.x; i < d.n; i += (int)gridDim.x) {
        att_run<D>(d, l, a, i, room);
        mega_sync();
    }
}

#endif
