/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What a block of attention_prefill.cu has to do, and the warp of it that copies: which
 * units, where their queries, keys and values lie, and when there is room for them in
 * shared memory.
 */
#ifndef FDD_KERNELS_CUDA_SM90_ATTENTION_PREFILL_COPY_CUH
#define FDD_KERNELS_CUDA_SM90_ATTENTION_PREFILL_COPY_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/sm90/attention_prefill_mma.cuh"

#define ROWS    64               /* query tokens of a unit */
#define BLOCK 128         /* tokens of a block, at most */

struct maps {
    CUtensorMap q, k, v;
};

struct scores {                  /* what becomes of a product: */
    float scale;                 /* to powers of two */
    float cap, by;               /* or by cu_soft_cap(); cap 0: not */
    int window;                  /* cu_att_window() */
};

/* Registers allow three warpgroups with a head dim of 64, else two, which keep their queries
 * in registers too where these are few. Rows of keys and values are cut into columns of 64
 * dimensions: those of eight tokens side by side, or, if the last is not full, each column
 * of a chunk for itself, with zeros where a row has no more. */
template<int D>
struct shape {
    static constexpr int chunk = D <= 128 ? 128 : 64;   /* KV tokens */
    static constexpr bool q_regs = D != 64 && D != 256;
    static constexpr int groups = D == 64 ? 3 : 2;
    static constexpr int threads = 128 * (groups + 1);
    static constexpr int columns = (D + 63) / 64;
    static constexpr bool apart = D % 64 != 0;
    static constexpr int q_bytes = ROWS * columns * 128; /* of a unit */
    static constexpr int kv_bytes = chunk * columns * 128;
    static constexpr int eight = apart ? 1024 : 8 * D * 2; /* from eight tokens to the next */
    static constexpr int wide = apart ? chunk * 128 : 1024; /* from a column to the next */
};
/* X: what a launch may have that others would pay for: a window, or a soft cap. Most have
 * neither, and most head dims are 64 or 128: for the others there is one kernel for both. */

/* F: what parts have summed up is folded in shared memory. */
template<int D, bool F>
struct ring {
    static constexpr int stages = D == 64 ? (F ? 4 : 6) : F || D == 256 ? 2 : 3;
    static constexpr int all_bytes = F ? ROWS * D * 4 : 0; /* of a unit's parts so far */
    static constexpr int bytes = shape<D>::groups * (shape<D>::q_bytes + all_bytes) +
        2 * stages * shape<D>::kv_bytes + 1024;
    static_assert(bytes <= 232448 - 8 * (4 * stages + 2), "what a block may have");
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
    int begin, n_chunk;          /* chunks [begin, n_chunk) */
    int each;                    /* units of a head */
};

struct cut {                     /* of a KV head's part of a tile; made by cut_of() */
    int units, sets, per;        /* units, items, units of an item */
    int each;                    /* units of a head */
};

template<int D>
static __host__ __device__ struct cut
cut_of(int heads, int long_tile)
{
    struct cut u;
    u.each = long_tile / ROWS;
    u.units = u.each * heads;
    u.sets = (u.units + shape<D>::groups - 1) / shape<D>::groups;
    u.per = (u.units + u.sets - 1) / u.sets;
    return u;
}

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
template<int D, bool X>
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
    ret->each = D == 64 ? u.each : 2;
    ret->begin = X ? cu_att_first(ret->at.kv - ret->at.n + 1, a.window) / shape<D>::chunk : 0;
    ret->n_chunk = (ret->at.kv + shape<D>::chunk - 1) / shape<D>::chunk;
    return x < g->n;
}

/* Tokens of a unit; none: there is no such unit. */
template<int D>
static __device__ __forceinline__ int
unit_rows(const struct item &it, int u)
{
    int n = it.at.n - u % it.each * ROWS;
    return u >= it.end || n < 0 ? 0 : n < ROWS ? n : ROWS;
}

struct source {                  /* of a row's keys and values */
    const int32_t *table;
    int n_block, group0;         /* of the row; eights of tokens before the head's */
    int per, log_per;            /* pieces of a chunk */
    int log_more;                /* of a block, where that is longer */
};

struct piece {                   /* of a chunk */
    int block, eight;            /* -1: none; of the block */
};

template<int D>
static __device__ __forceinline__ struct piece
lane_piece(const struct source &s, int chunk, int lane)
{
    const bool cut = shape<D>::chunk < BLOCK; /* blocks may be */
    int i = (chunk << s.log_per) + lane, at = cut ? i >> s.log_more : i;
    struct piece p = { -1, 0 };
    if (lane < s.per && at < s.n_block)
        p.block = s.table[at];
    if (cut)
        p.eight = (i & ((1 << s.log_more) - 1)) * (shape<D>::chunk / 8);
    return p;
}

template<int D>
static __device__ __forceinline__ void
copy_chunk(const CUtensorMap *map, uint32_t dst, uint32_t bar, const struct source &s,
    const struct piece &p, int lane)
{
    int bytes = shape<D>::kv_bytes >> s.log_per;
    int n = __popc(__ballot_sync(0xffffffffu, p.block >= 0));
    if (lane == 0)
        cu_bar_expect(bar, (uint32_t)(n * bytes));
    __syncwarp();
    if (p.block < 0)
        return;
    if constexpr (shape<D>::apart)
        for (int i = 0; i < shape<D>::columns; i++)
            copy_3d(dst + (uint32_t)(i * shape<D>::wide + lane * bytes / shape<D>::columns),
                map, bar, 64 * i, (s.group0 + p.eight) * 8, p.block);
    else
        copy_5d(dst + (uint32_t)(lane * bytes), map, bar, s.group0 + p.eight, p.block);
}

template<int D>
static __device__ __forceinline__ void
copy_queries(const struct maps &m, const struct shared<D> &s, const struct item &it,
    int heads)
{
    typedef struct shape<D> sh;
    uint32_t n = 0;
    for (int u = it.unit; u < it.end; u++)
        n += unit_rows<D>(it, u) > 0;
    cu_bar_expect(s.full_q, n * sh::q_bytes);
    for (int u = it.unit; u < it.end; u++) {
        uint32_t to = s.q + (uint32_t)((u - it.unit) * sh::q_bytes);
        int tok = it.at.tok + u % it.each * ROWS, head = it.kv_head * heads + u / it.each;
        if (unit_rows<D>(it, u) == 0)
            continue;
        if constexpr (sh::apart)
            for (int i = 0; i < sh::columns; i++)
                copy_3d(to + (uint32_t)(i * ROWS * 128), &m.q, s.full_q, 64 * i, tok, head);
        else
            copy_3d(to, &m.q, s.full_q, 0, tok, head * (D / 64));
    }
}

template<int D>
static __device__ __forceinline__ struct source
find_source(const struct fdk_attention_args &a, const struct fdk_batch &b,
    const struct item &it)
{
    struct source s = {};
    s.table = b.block_table + (size_t)it.state * (size_t)b.table_stride;
    s.n_block = (it.at.kv + a.kv.block_size - 1) / a.kv.block_size;
    s.group0 = it.kv_head * (a.kv.block_size / 8);
    s.per = max(shape<D>::chunk / a.kv.block_size, 1);
    s.log_per = cu_log2(s.per);
    s.log_more = cu_log2(max(a.kv.block_size / shape<D>::chunk, 1));
    return s;
}

/* Keys of a chunk go before the values of the chunk before it, as they are needed; the
 * next item's first blocks are looked up while this one is copied. */
template<int D, bool F, bool X>
static __device__ __forceinline__ void
produce(const struct fdk_attention_args &a, const struct fdk_batch &b,
    const struct maps &m, const struct cut &u, const struct shared<D> &s, int n)
{
    constexpr int N = ring<D, F>::stages;
    int lane = (int)threadIdx.x % 32;
    struct piece now = { -1, 0 }, next = now;
    struct turn<N> tk = { 0, 1 }, tv = { 0, 1 };
    struct agenda g = { n, 0, 0, 0, 0 };
    struct item it, it2;
    bool more = find_item<D, X>(a, b, u, &g, 0, &it);
    struct source src = find_source<D>(a, b, it), src2;
    if (more)
        next = lane_piece<D>(src, it.begin, lane);
    for (int i = 0; more; i++) {
        more = find_item<D, X>(a, b, u, &g, i + 1, &it2);
        src2 = find_source<D>(a, b, it2);
        for (int c = it.begin; c <= it.n_chunk; c++) {
            struct piece last = now;
            now = next;
            if (c + 1 < it.n_chunk)
                next = lane_piece<D>(src, c + 1, lane);
            else if (c + 1 == it.n_chunk && more)
                next = lane_piece<D>(src2, it2.begin, lane);
            if (c < it.n_chunk) {
                cu_bar_wait(s.empty_k + 8 * (uint32_t)tk.stage, tk.phase);
                copy_chunk<D>(&m.k, s.k_at(tk.stage), s.full_k + 8 * (uint32_t)tk.stage,
                    src, now, lane);
                tk.next();
            }
            if (c == it.begin) {
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
