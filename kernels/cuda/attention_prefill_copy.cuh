/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What a block of attention_prefill.cu has to do, and the warp of it that copies: which
 * units, where their queries, keys and values lie, and when there is room for them in
 * shared memory.
 */
#ifndef FDD_KERNELS_CUDA_ATTENTION_PREFILL_COPY_CUH
#define FDD_KERNELS_CUDA_ATTENTION_PREFILL_COPY_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_prefill_mma.cuh"

#define CHUNK   128              /* KV tokens */
#define ROWS    64               /* query tokens of a unit */
#define HALVES  2                /* units of a tile's head */

static_assert(CU_ATT_LONG_TILE == HALVES * ROWS, "units of a tile");

struct maps {
    CUtensorMap q, k, v;
};

/* Registers allow three warpgroups with a head dim of 64, and two with 128 that keep
 * their queries in registers besides. */
template<int D>
struct shape {
    static constexpr bool q_regs = D == 128;
    static constexpr int groups = D == 128 ? 2 : 3;
    static constexpr int threads = 128 * (groups + 1);
    static constexpr int q_bytes = ROWS * D * 2;        /* of a unit */
    static constexpr int kv_bytes = CHUNK * D * 2;
    static constexpr int eight = 8 * D * 2;     /* eight tokens: D / 64 atoms */
};

/* F: what parts have summed up is folded in shared memory. */
template<int D, bool F>
struct ring {
    static constexpr int stages = F ? (D == 128 ? 2 : 4) : D == 128 ? 3 : 6;
    static constexpr int all_bytes = F ? ROWS * D * 4 : 0; /* of a unit's parts so far */
    static constexpr int bytes = shape<D>::groups * (shape<D>::q_bytes + all_bytes) +
        2 * stages * shape<D>::kv_bytes + 1024;
};

/* Addresses: of the buffers; of barriers for each stage, full and empty, of keys and of
 * values; of those of the queries. */
template<int D>
struct shared {
    uint32_t q, k, v, all;
    uint32_t full_k, empty_k, full_v, empty_v, full_q, empty_q;

    __device__ __forceinline__ uint32_t
    k_at(int stage) const
    {
        return k + (uint32_t)(stage * shape<D>::kv_bytes);
    }

    __device__ __forceinline__ uint32_t
    v_at(int stage) const
    {
        return v + (uint32_t)(stage * shape<D>::kv_bytes);
    }
};

template<int N>
struct turn {                    /* place in a ring of N */
    int stage;
    uint32_t phase;

    __device__ __forceinline__ void
    next(void)
    {
        if (++stage == N) {
            stage = 0;
            phase ^= 1;
        }
    }
};

struct item {                    /* units of one KV head; items of a tile: first one of
                                    each KV head, then the next of each */
    struct cu_att_long at;
    int state;                   /* the row's slot */
    int kv_head, unit, end;      /* units [unit, end) of the KV head */
    int n_chunk;
};

struct cut {                     /* of a KV head's part of a tile; made by cut_of() */
    int units, sets, per;        /* units, items, units of an item */
};

/* What this block does, each lane of a warp with an item of 32: reading them one by one
 * would take several times a memory's latency before each. */
struct agenda {
    int n;                       /* items of all blocks */
    int tok, n_tok, kv, slot;    /* of this lane's item */
};

/* The list is sorted by cost: through it to and fro, every block gets about the same. */
static __device__ __forceinline__ int
item_number(int i)
{
    int g = (int)gridDim.x, b = (int)blockIdx.x;
    return i * g + (i % 2 ? g - 1 - b : b);
}

/* The i-th item of the block, i ascending from 0; false: there is none. */
static __device__ __forceinline__ bool
find_item(const struct fdk_attention_args &a, const struct fdk_batch &b,
    const struct cut &u, struct agenda *g, int i, struct item *ret)
{
    int mine = item_number(i + (int)threadIdx.x % 32), x = item_number(i);
    if (i % 32 == 0 && mine < g->n) {
        struct cu_att_long l = cu_att_long_list((const struct cu_att_plan *)a.plan)
            [mine / (a.K * u.sets)];
        g->tok = l.tok;
        g->n_tok = l.n;
        g->kv = l.kv;
        g->slot = b.state[l.row];
    }
    ret->at.tok = __shfl_sync(0xffffffffu, g->tok, i % 32);
    ret->at.n = __shfl_sync(0xffffffffu, g->n_tok, i % 32);
    ret->at.kv = __shfl_sync(0xffffffffu, g->kv, i % 32);
    ret->state = __shfl_sync(0xffffffffu, g->slot, i % 32);
    ret->kv_head = x % a.K;
    ret->unit = x / a.K % u.sets * u.per;
    ret->end = ret->unit + u.per < u.units ? ret->unit + u.per : u.units;
    ret->n_chunk = (ret->at.kv + CHUNK - 1) / CHUNK;
    return x < g->n;
}

/* Tokens of a unit; none: there is no such unit. */
static __device__ __forceinline__ int
unit_rows(const struct item &it, int unit)
{
    int n = it.at.n - unit % HALVES * ROWS;
    return unit >= it.end || n < 0 ? 0 : n < ROWS ? n : ROWS;
}

struct source {                  /* of a row's keys and values */
    const int32_t *table;
    int n_block, group0;         /* of the row; eights of tokens before the head's */
    int per, log_per;            /* blocks in a chunk */
};

/* Block number of this lane's block of a chunk; -1: none. */
static __device__ __forceinline__ int
lane_block(const struct source &s, int chunk, int lane)
{
    int i = (chunk << s.log_per) + lane;
    return lane < s.per && i < s.n_block ? s.table[i] : -1;
}

template<int D>
static __device__ __forceinline__ void
copy_chunk(const CUtensorMap *map, uint32_t dst, uint32_t bar, const struct source &s,
    int block, int lane)
{
    int bytes = shape<D>::kv_bytes >> s.log_per;
    int n = __popc(__ballot_sync(0xffffffffu, block >= 0));
    if (lane == 0)
        cu_bar_expect(bar, (uint32_t)(n * bytes));
    __syncwarp();
    if (block >= 0)
        copy_5d(dst + (uint32_t)(lane * bytes), map, bar, s.group0, block);
}

template<int D>
static __device__ __forceinline__ void
copy_queries(const struct maps &m, const struct shared<D> &s, const struct item &it,
    int heads)
{
    uint32_t n = 0;
    for (int u = it.unit; u < it.end; u++)
        n += unit_rows(it, u) > 0;
    cu_bar_expect(s.full_q, n * shape<D>::q_bytes);
    for (int u = it.unit; u < it.end; u++)
        if (unit_rows(it, u) > 0)
            copy_3d(s.q + (uint32_t)((u - it.unit) * shape<D>::q_bytes), &m.q,
                s.full_q, 0, it.at.tok + u % HALVES * ROWS,
                (it.kv_head * heads + u / HALVES) * (D / 64));
}

static __device__ __forceinline__ struct source
find_source(const struct fdk_attention_args &a, const struct fdk_batch &b,
    const struct item &it)
{
    struct source s;
    s.table = b.block_table + (size_t)it.state * (size_t)b.table_stride;
    s.n_block = (it.at.kv + a.kv.block_size - 1) / a.kv.block_size;
    s.group0 = it.kv_head * (a.kv.block_size / 8);
    s.per = CHUNK / a.kv.block_size;
    s.log_per = cu_log2(s.per);
    return s;
}

/* Keys of a chunk go before the values of the chunk before it, as they are needed; the
 * next item's first blocks are looked up while this one is copied. */
template<int D, bool F>
static __device__ __forceinline__ void
produce(const struct fdk_attention_args &a, const struct fdk_batch &b,
    const struct maps &m, const struct cut &u, const struct shared<D> &s, int n)
{
    constexpr int N = ring<D, F>::stages;
    int lane = (int)threadIdx.x % 32, block = -1, next = -1;
    struct turn<N> tk = { 0, 1 }, tv = { 0, 1 };
    struct agenda g = { n, 0, 0, 0, 0 };
    struct item it, it2;
    bool more = find_item(a, b, u, &g, 0, &it);
    struct source src = find_source(a, b, it), src2;
    if (more)
        next = lane_block(src, 0, lane);
    for (int i = 0; more; i++) {
        more = find_item(a, b, u, &g, i + 1, &it2);
        src2 = find_source(a, b, it2);
        for (int c = 0; c <= it.n_chunk; c++) {
            int last = block;
            block = next;
            if (c + 1 < it.n_chunk)
                next = lane_block(src, c + 1, lane);
            else if (c + 1 == it.n_chunk && more)
                next = lane_block(src2, 0, lane);
            if (c < it.n_chunk) {
                cu_bar_wait(s.empty_k + 8 * (uint32_t)tk.stage, tk.phase);
                copy_chunk<D>(&m.k, s.k_at(tk.stage), s.full_k + 8 * (uint32_t)tk.stage,
                    src, block, lane);
                tk.next();
            }
            if (c == 0) {
                cu_bar_wait(s.empty_q, ~(uint32_t)i & 1);
                if (lane == 0)
                    copy_queries<D>(m, s, it, a.H / a.K);
                __syncwarp();
                continue;
            }
            cu_bar_wait(s.empty_v + 8 * (uint32_t)tv.stage, tv.phase);
            copy_chunk<D>(&m.v, s.v_at(tv.stage), s.full_v + 8 * (uint32_t)tv.stage, src,
                last, lane);
            tv.next();
        }
        it = it2;
        src = src2;
    }
}

#endif
