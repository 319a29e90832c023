/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The work of a block of attention_prefill.cu, and its producer warp: which
 * units it computes, where their queries, keys and values are, and when there is room for
 * them in shared memory.
 */
#ifndef FDD_KERNELS_CUDA_SM90_ATTENTION_PREFILL_COPY_CUH
#define FDD_KERNELS_CUDA_SM90_ATTENTION_PREFILL_COPY_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/sm90/attention_prefill_mma.cuh"

#define ROWS    64               /* query tokens of a unit */
#define BLOCK 128         /* most tokens of a KV block */

struct maps {
    CUtensorMap q, k, v;
};

struct scores {                  /* how products become scores in powers of two */
    float scale;                 /* factor of the products */
    float cap, by;               /* arguments of cu_soft_cap(); cap 0: no soft cap */
    int window;                  /* cu_att_window() */
};

/* Registers allow three warpgroups with a head dim of 64, else two, which also keep their
 * queries in registers if these need few (q_regs). Rows of keys and values are divided
 * into columns of 64 dimensions: the columns of eight tokens are adjacent, or, if the
 * last column is not full (apart), each column of a chunk is separate, padded with
 * zeros. */
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
    static constexpr int eight = apart ? 1024 : 8 * D * 2; /* bytes per 8 tokens */
    static constexpr int wide = apart ? chunk * 128 : 1024; /* bytes per column */
    /* Registers per thread of the consumer and of the producer warps. With 128 dimensions
     * 232 registers are 3 % slower than 240. */
    static constexpr int regs = D == 64 ? 160 : D == 128 || D == 192 ? 240 : 232;
    static constexpr int copier_regs = D == 64 ? 32 : regs == 240 ? 24 : 40;
};
/* X: support for a window and a soft cap, which costs time in launches without them. Only
 * head dims 64 and 128, the usual ones, also have a kernel without X. */

/* F: the sums of splits are merged in shared memory. */
template<int D, bool F>
struct ring {
    static constexpr int stages = D == 64 ? (F ? 4 : 6) : F || D == 256 ? 2 : 3;
    static constexpr int all_bytes = F ? ROWS * D * 4 : 0; /* merged sums of a unit so
                                                              far */
    static constexpr int bytes = shape<D>::groups * (shape<D>::q_bytes + all_bytes) +
        2 * stages * shape<D>::kv_bytes + 1024;
    static_assert(bytes <= 232448 - 8 * (4 * stages + 2), "fits a block's shared memory");
};

/* Addresses of the buffers, of the full and empty barriers of each stage of keys and of
 * values, and of the barriers of the queries. */
template<int D>
struct shared {
    uint32_t q, k, v, all, item;
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
struct turn {                    /* position in a ring of N stages */
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

struct item {                    /* work item: units of one KV head. A tile has first one
                                    item of each KV head of the group, then the next of
                                    each */
    int tok, n, kv;              /* struct cu_att_long; n 0: there are no more items */
    int kv_head, unit, end;      /* units [unit, end) of the KV head */
    int each;                    /* units of a head */
    int begin;                   /* chunks [begin, n_chunk) */
    int n_chunk;
};

struct cut {                     /* division of one KV head of a tile; made by cut_of() */
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

/*
 * At a time all blocks work on a group of as many KV heads as fit in L2 with their keys
 * and values: reading memory takes power from the tensor cores. The items of a group
 * are those of the first tile of the list, then of the next, so they are ordered by cost.
 * The group has places for them, an even number for each block. Blocks are assigned to
 * places alternately in ascending and descending order, so that each gets about the same
 * work.
 */
#define HEAD_BYTES (8 << 20) /* most bytes of keys and values of a group's longest row */

struct order {
    int heads;                   /* KV heads of a group: a divisor of all */
    int items, room;             /* of a group: number of items, and of places */
    int places;                  /* places of a block in all groups */
};

template<int D>
static __device__ __forceinline__ struct order
order_of(const struct fdk_attention_args &a, const struct cut &u, int n_tile)
{
    const struct cu_att_plan *plan = (const struct cu_att_plan *)a.plan;
    const int g = (int)gridDim.x;
    int64_t bytes = n_tile > 0 ? (int64_t)cu_att_long_list(plan)->kv * D * 4 : 0;
    struct order r;
    r.heads = a.K;
    for (int i = a.K; --i > 0 && a.window == 0 && r.heads * bytes > HEAD_BYTES &&
         i * n_tile * u.sets >= 2 * g;)
        r.heads = a.K % i == 0 ? i : r.heads;
    r.items = r.heads * n_tile * u.sets;
    r.room = (r.items + 2 * g - 1) / (2 * g) * 2 * g;
    r.places = a.K / r.heads * (r.room / g);
    return r;
}

/* The block's next 32 items, one in each thread of the producer warp: reading them one by
 * one would take several times the latency of memory for each. */
struct agenda {
    int at;                      /* number of this block's next place */
    uint32_t left;               /* mask of the threads whose items are left */
    int tok, kv, slot;           /* this thread's item: tok, kv of cu_att_long, state
                                    slot */
    uint32_t what;               /* its tokens, KV head << 10, set << 21 */
};

struct place {                   /* place of an item */
    int group, x;                /* group of KV heads, index of the place in it */
    bool taken;                  /* there is an item */
};

/* The block's i-th place. The order is reversed in every second group. */
static __device__ __forceinline__ struct place
place_of(const struct order &r, int i)
{
    int g = (int)gridDim.x, b = (int)blockIdx.x, x = i * g;
    struct place p;
    p.group = x / r.room;
    p.x = x - p.group * r.room + ((i ^ p.group) & 1 ? g - 1 - b : b);
    p.taken = i < r.places && p.x < r.items;
    return p;
}

/* Adds a long tile to n_done: the number of tiles of bt tokens of the row that begin in
 * it, as such a tile may overlap two long ones. */
static __device__ __forceinline__ void
report(const struct fdk_attention_args &a, const struct fdk_batch &b,
    const struct cu_att_long &l)
{
    int at = l.tok - b.q_start[l.row], bt = ((const struct cu_att_plan *)a.plan)->bt;
    atomicAdd(a.n_done, (uint32_t)((at + l.n + bt - 1) / bt - (at + bt - 1) / bt));
}

/* Loads the items of the block's next 32 places. */
static __device__ __forceinline__ void
next_items(const struct fdk_attention_args &a, const struct fdk_batch &b,
    const struct cut &u, const struct order &r, struct agenda *g)
{
    const int of_tile = r.heads * u.sets;
    struct place p = place_of(r, g->at + (int)threadIdx.x % 32);
    g->at += 32;
    g->left = __ballot_sync(0xffffffffu, p.taken);
    if (!p.taken)
        return;
    int entry = p.x / of_tile, in = p.x - entry * of_tile, set = in / r.heads;
    int kv_head = p.group * r.heads + in - set * r.heads;
    struct cu_att_long l = cu_att_long_list((const struct cu_att_plan *)a.plan)[entry];
    g->tok = l.tok;
    g->kv = l.kv;
    g->slot = b.state[l.row];
    g->what = (uint32_t)l.n | (uint32_t)kv_head << 10 | (uint32_t)set << 21;
    if (kv_head == 0 && set == 0)
        report(a, b, l);
}

/* Thread of the warp with the block's next item; -1: there is none. */
static __device__ __forceinline__ int
find_item(const struct fdk_attention_args &a, const struct fdk_batch &b,
    const struct cut &u, const struct order &r, struct agenda *g)
{
    while (g->left == 0) {
        if (g->at >= r.places)
            return -1;
        next_items(a, b, u, r, g);
    }
    int who = __ffs((int)g->left) - 1;
    g->left &= g->left - 1;
    return who;
}

template<int D, bool X>
static __device__ __forceinline__ struct item
item_of(const struct fdk_attention_args &a, const struct cut &u, const struct agenda &g,
    int who)
{
    uint32_t what = __shfl_sync(0xffffffffu, g.what, who);
    struct item it;
    it.tok = __shfl_sync(0xffffffffu, g.tok, who);
    it.kv = __shfl_sync(0xffffffffu, g.kv, who);
    it.n = (int)(what & 1023);
    it.kv_head = (int)(what >> 10 & 2047);
    it.unit = (int)(what >> 21) * u.per;
    it.end = min(it.unit + u.per, u.units);
    it.each = D == 64 ? u.each : 2;
    it.begin = X ? cu_att_first(it.kv - it.n + 1, a.window) / shape<D>::chunk : 0;
    it.n_chunk = (it.kv + shape<D>::chunk - 1) / shape<D>::chunk;
    return it;
}

/* Stores an item for the consumer warps, before the barrier of its queries completes. */
static __device__ __forceinline__ void
put_item(uint32_t at, const struct item &it)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" :: "r"(at), "r"(it.tok),
        "r"(it.n), "r"(it.kv), "r"(it.kv_head) : "memory");
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" :: "r"(at + 16), "r"(it.unit),
        "r"(it.end), "r"(it.each), "r"(it.begin) : "memory");
}

template<int D>
static __device__ __forceinline__ struct item
get_item(uint32_t at)
{
    struct item it;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(it.tok), "=r"(it.n),
        "=r"(it.kv), "=r"(it.kv_head) : "r"(at) : "memory");
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(it.unit), "=r"(it.end),
        "=r"(it.each), "=r"(it.begin) : "r"(at + 16) : "memory");
    it.n_chunk = (it.kv + shape<D>::chunk - 1) / shape<D>::chunk;
    return it;
}

/* Tokens of unit u; 0: there is no such unit. */
template<int D>
static __device__ __forceinline__ int
unit_rows(const struct item &it, int u)
{
    int n = it.n - u % it.each * ROWS;
    return u >= it.end || n < 0 ? 0 : n < ROWS ? n : ROWS;
}

struct source {                  /* where a row's keys and values are */
    const int32_t *table;
    int n_block, group0;         /* blocks of the row; groups of 8 tokens before the
                                    head's */
};

struct pieces {                  /* division of a chunk into pieces, one per block */
    int per, log_per;            /* pieces of a chunk */
    int log_more;                /* log2 of the chunks of a block, if that is longer */
};

struct piece {                   /* piece of a chunk */
    int block, eight;            /* block, -1: none; group of 8 tokens in the block */
};

template<int D>
static __device__ __forceinline__ struct piece
lane_piece(const struct source &s, const struct pieces &of, int chunk, int lane)
{
    const bool cut = shape<D>::chunk < BLOCK; /* blocks may be */
    int i = (chunk << of.log_per) + lane, at = cut ? i >> of.log_more : i;
    struct piece p = { -1, 0 };
    if (lane < of.per && at < s.n_block)
        p.block = s.table[at];
    if (cut)
        p.eight = (i & ((1 << of.log_more) - 1)) * (shape<D>::chunk / 8);
    return p;
}

template<int D>
static __device__ __forceinline__ void
copy_chunk(const CUtensorMap *map, uint32_t dst, uint32_t bar, int group0,
    const struct pieces &of, const struct piece &p, int lane)
{
    int bytes = shape<D>::kv_bytes >> of.log_per;
    int n = __popc(__ballot_sync(0xffffffffu, p.block >= 0));
    if (lane == 0)
        cu_bar_expect(bar, (uint32_t)(n * bytes));
    __syncwarp();
    if (p.block < 0)
        return;
    if constexpr (shape<D>::apart)
        for (int i = 0; i < shape<D>::columns; i++)
            copy_3d(dst + (uint32_t)(i * shape<D>::wide + lane * bytes / shape<D>::columns),
                map, bar, 64 * i, (group0 + p.eight) * 8, p.block);
    else
        copy_5d(dst + (uint32_t)(lane * bytes), map, bar, group0 + p.eight, p.block);
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
        int tok = it.tok + u % it.each * ROWS, head = it.kv_head * heads + u / it.each;
        if (unit_rows<D>(it, u) == 0)
            continue;
        if constexpr (sh::apart)
            for (int i = 0; i < sh::columns; i++)
                copy_3d(to + (uint32_t)(i * ROWS * 128), &m.q, s.full_q, 64 * i, tok, head);
        else
            copy_3d(to, &m.q, s.full_q, 0, tok, head * (D / 64));
    }
}

static __device__ __forceinline__ struct source
source_of(const struct fdk_attention_args &a, const struct fdk_batch &b,
    const struct agenda &g, int who)
{
    int slot = __shfl_sync(0xffffffffu, g.slot, who);
    int kv = __shfl_sync(0xffffffffu, g.kv, who);
    int kv_head = (int)(__shfl_sync(0xffffffffu, g.what, who) >> 10 & 2047);
    struct source s;
    s.table = b.block_table + (size_t)slot * (size_t)b.table_stride;
    s.n_block = (kv + a.kv.block_size - 1) / a.kv.block_size;
    s.group0 = kv_head * (a.kv.block_size / 8);
    return s;
}

template<int D>
static __device__ __forceinline__ struct pieces
pieces_of(int block_size)
{
    struct pieces p;
    p.per = max(shape<D>::chunk / block_size, 1);
    p.log_per = cu_log2(p.per);
    p.log_more = cu_log2(max(block_size / shape<D>::chunk, 1));
    return p;
}

/* The producer warp. Keys of a chunk are loaded before the values of the previous chunk,
 * in the order of use; the next item's first blocks are looked up while this one is
 * loaded. */
template<int D, bool F, bool X>
static __device__ __forceinline__ void
produce(const struct fdk_attention_args &a, const struct fdk_batch &b,
    const struct maps &m, const struct cut &u, const struct shared<D> &s, int n_tile)
{
    constexpr int N = ring<D, F>::stages;
    const struct order r = order_of<D>(a, u, n_tile);
    const struct pieces of = pieces_of<D>(a.kv.block_size);
    int lane = (int)threadIdx.x % 32;
    struct piece now = { -1, 0 }, next = now;
    struct turn<N> tk = { 0, 1 }, tv = { 0, 1 };
    struct agenda g = {};
    struct source src, src2 = {};
    uint32_t q_phase = 1;
    int at = find_item(a, b, u, r, &g), begin2 = 0;
    struct item it = item_of<D, X>(a, u, g, at < 0 ? 0 : at);
    src = source_of(a, b, g, at < 0 ? 0 : at);
    if (at >= 0)
        next = lane_piece<D>(src, of, it.begin, lane);
    for (; at >= 0; q_phase ^= 1) {
        at = find_item(a, b, u, r, &g);
        if (at >= 0) {
            src2 = source_of(a, b, g, at);
            begin2 = X ? item_of<D, X>(a, u, g, at).begin : 0;
        }
        for (int c = it.begin; c <= it.n_chunk; c++) {
            struct piece last = now;
            now = next;
            if (c + 1 < it.n_chunk)
                next = lane_piece<D>(src, of, c + 1, lane);
            else if (c + 1 == it.n_chunk && at >= 0)
                next = lane_piece<D>(src2, of, begin2, lane);
            if (c < it.n_chunk) {
                cu_bar_wait(s.empty_k + 8 * (uint32_t)tk.stage, tk.phase);
                copy_chunk<D>(&m.k, s.k_at(tk.stage), s.full_k + 8 * (uint32_t)tk.stage,
                    src.group0, of, now, lane);
                tk.next();
            }
            if (c == it.begin) {
                cu_bar_wait(s.empty_q, q_phase);
                if (lane == 0) {
                    put_item(s.item, it);
                    copy_queries<D>(m, s, it, a.H / a.K);
                }
                __syncwarp();
                continue;
            }
            cu_bar_wait(s.empty_v + 8 * (uint32_t)tv.stage, tv.phase);
            copy_chunk<D>(&m.v, s.v_at(tv.stage), s.full_v + 8 * (uint32_t)tv.stage,
                src.group0, of, last, lane);
            tv.next();
        }
        it = item_of<D, X>(a, u, g, at < 0 ? 0 : at);
        src = src2;
    }
    cu_bar_wait(s.empty_q, q_phase);
    it.n = 0;
    if (lane == 0) {
        put_item(s.item, it);
        cu_bar_arrive(s.full_q);
    }
}

#endif
