/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by attention_split.cu and attention_chunk.cu: the layout of shared memory, the
 * iteration over a block's splits, and the loads that run ahead of it.
 * attention_double.cu uses only the iteration.
 */
#ifndef FDD_KERNELS_CUDA_SM90_ATTENTION_SPLIT_CUH
#define FDD_KERNELS_CUDA_SM90_ATTENTION_SPLIT_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/sm90/attention_split_mma.cuh"

#define UNIT    CU_SPLIT_UNIT
#define WARPS   CU_SPLIT_UNITS
#define THREADS (32 * WARPS)
#define REGISTERS 216            /* leaves registers for blocks of the previous kernel */
#define LOG2E   1.4426950408889634f

/* Are rows of that many bytes stored contiguously, in lines of 128 bytes? */
static inline __host__ __device__ constexpr bool
end_to_end(int row)
{
    return row != 64 && row % 128 != 0;
}

/* Layout of a block's shared memory. A warp's tile has keys, then values: 16 rows of up
 * to 128 bytes, then the next 128 bytes of each row, or the rows contiguously. n_unit:
 * warps that load and compute tiles of a chunk. */
template<int D, typename E>
struct shape {
    static const bool scaled = std::is_same<E, int8_t>::value;
    static const int row = D * (int)sizeof(E);
    static const bool lines = end_to_end(row);
    static const int half = UNIT * row;            /* bytes of the keys or values of a
                                                      tile */
    static const int stage = (2 * half + 1023) / 1024 * 1024;
    static const int n_unit = sizeof(E) == 1 || D <= 128 ? WARPS : D == 192 ? 4 : 3;
    static const int n_stage = n_unit < WARPS ? 3 : (D > 128 ? 18432 : scaled ? 20480 :
        24576) / stage;                            /* per warp */
    static const int group = D <= 128 ? 4 : 2;     /* query vectors merged at a time */
    static const int wide = D + 8;                 /* floats of a row; no bank
                                                      conflicts */
    static const int scales = n_unit * n_stage * stage; /* [n_unit][n_stage][2][UNIT] */
    static const int merge = scales + (scaled ? n_unit * n_stage * 2 * UNIT * 4 : 0);
    static const int sums = merge + WARPS * group * wide * 4;
    static const int fold = sums + WARPS * CU_ATT_QUERIES * 8;
    static const int full = fold + CU_ATT_QUERIES * D / 2 * 16; /* [n_unit][n_stage] */
    static const int flag = full + n_unit * n_stage * 8;
    static const int bytes = flag + 16;
    static_assert(bytes <= 232448, "fits a block's shared memory");
    static_assert(n_stage >= 2, "one is read, one is filled");
};

/* Sums of a split in the scratch, for the block that merges the row. */
template<int D>
struct part_sum {
    float o[CU_ATT_QUERIES][D];
    float ml[CU_ATT_QUERIES][2];
};

struct split_args {
    struct fdk_attention_args a;
    struct cu_split_plan plan;
    const int32_t *table;
    int32_t table_stride;
    int32_t block_shift;         /* log2 of the block size */
    int32_t n_set, n_head_set;   /* head sets in all; head sets of one KV head */
    int32_t group;               /* query heads of a KV head over all ranks */
    int32_t n_rank, rank_group;  /* ranks whose queries are in qkv; query heads per
                                    rank */
    int32_t inv;                 /* i * inv >> 16 is i / group, for query vectors i */
    int32_t det;                 /* deterministic */
    struct cu_split_cut cut;
    int32_t window;              /* cu_att_window() */
    float cap, cap_by;           /* soft cap of scores times log2(e), 0: none; factor of
                                    the products before the cap */
    const char *layer;           /* the layer in block 0 of the pool */
};

/* Launches n_block blocks of attention_chunk.cu or attention_double.cu instead of
 * attention_split.cu's. cu_att_double_launch() makes tensor maps of its own. It returns
 * -ENOTSUP if it could not make them, and has then launched nothing. */
void cu_att_chunk_launch(const struct split_args &s, const CUtensorMap &map, int n_block,
    cudaStream_t st);
int cu_att_double_launch(const struct split_args &s, cu_encode_fn encode, int n_block,
    cudaStream_t st);

/* Address of piece k of 16 bytes of row `row` of the keys or values of a tile at `at`, as
 * swizzled by TMA. */
template<int ROW>
static __device__ __forceinline__ uint32_t
piece(uint32_t at, int value, int row, int k)
{
    at += (uint32_t)(value * UNIT * ROW);
    if (end_to_end(ROW)) {
        at += (uint32_t)(row * ROW + 16 * k);
        return at ^ (at >> 3 & 0x70);
    }
    return at + (uint32_t)(ROW >= 128 ? k / 8 * (UNIT * 128) + row * 128 +
        16 * ((k ^ row) & 7) : row * 64 + 16 * ((k ^ row >> 1) & 3));
}

/* ---- iterating over a block's splits -------------------------------------- */

/* G, here and below: features that are compiled in only for launches that need them. */
#define GROW    1                /* splits grow (struct cu_split_cut) */
#define RARE    2                /* a window, a soft cap, or fdk_kv.n_own > 1 */
#define DOUBLE  4                /* half of THREADS for each half of a head set; used with
                                    RARE, but without a window; tiles have one token,
                                    splits one chunk */

template<int G>
static __host__ __device__ constexpr bool
may_window(void)
{
    return (G & (RARE | DOUBLE)) == RARE;
}

/* The half of a head set that this thread computes; the number of threads of a half; the
 * index of this thread in its half. */
template<int G>
static __device__ __forceinline__ int
set_half(void)
{
    return G & DOUBLE ? (int)threadIdx.x / (THREADS / 2) : 0;
}

template<int G>
static __host__ __device__ constexpr int
set_threads(void)
{
    return G & DOUBLE ? THREADS / 2 : THREADS;
}

template<int G>
static __device__ __forceinline__ int
set_thread(void)
{
    return G & DOUBLE ? (int)threadIdx.x % (THREADS / 2) : (int)threadIdx.x;
}

/* Barrier of the threads of a half. DOUBLE uses named barriers 1 and 2. */
template<int G>
static __device__ __forceinline__ void
set_sync(void)
{
    if (G & DOUBLE)
        asm volatile("bar.sync %0, %1;" :: "r"(1 + set_half<G>()), "n"(THREADS / 2) :
            "memory");
    else
        __syncthreads();
}

struct walk {
    struct cu_split_tile t;
    int tile, set, head, part, chunk;
    int n_part;                  /* splits of a head set */
    int before;                  /* splits of the row that are before the window */
    int left;                    /* splits left, this one included */
    int from, to;                /* as in cu_split_start */
};

template<int G>
static __device__ __forceinline__ void
load_tile(struct walk &w, const struct split_args &s, const struct cu_split_tile *tile)
{
    const int4 *p = (const int4 *)tile;
    int4 x = p[0], y = p[1];
    w.t.tok = x.x;
    w.t.n_tok = G & DOUBLE ? 1 : x.y;
    w.t.see = G & RARE ? fdk_kv_count(&s.a.kv, x.z) : x.z;
    w.t.n_chunk = x.w;
    w.t.first = y.x;
    w.t.state = y.y;
    w.t.old = G & RARE ? fdk_kv_count(&s.a.kv, y.z) : y.z;
    w.t.begin = y.w;
    w.n_part = G & DOUBLE ? w.t.n_chunk : cu_split_parts<(G & GROW) != 0>(w.t.n_chunk, s.cut);
    w.before = may_window<G>() ? cu_part_of<(G & GROW) != 0>(w.t.begin, s.cut) : 0;
    w.n_part -= w.before;
}

/* First chunk of the split. */
template<int G>
static __device__ __forceinline__ int
part_begin(const struct walk &w, const struct split_args &s)
{
    int chunk = G & DOUBLE ? w.part : cu_part_chunk<(G & GROW) != 0>(w.before + w.part, s.cut);
    return may_window<G>() ? max(chunk, w.t.begin) : chunk;
}

template<int G>
static __device__ __forceinline__ int
next_chunk(const struct walk &w, const struct split_args &s)
{
    int c = w.chunk + 1, few = (G & GROW) && s.cut.grow ? cu_part_few(c) : s.cut.few;
    return (c & ((1 << few) - 1)) == 0 ? c + s.cut.skip : c;
}

template<int G>
static __device__ __forceinline__ void
step(struct walk &w, const struct split_args &s)
{
    w.chunk = next_chunk<G>(w, s);
    if (!(G & DOUBLE) && w.chunk < w.t.n_chunk)
        return;
    w.left--;
    if (++w.part == w.n_part) {
        w.part = 0;
        if (++w.set == s.n_set) {
            w.set = 0;
            w.tile++;
            if (w.left > 0)
                load_tile<G>(w, s, s.plan.tile + w.tile);
        }
        w.head = s.n_head_set == 1 ? w.set : w.set / s.n_head_set;
    }
    w.chunk = part_begin<G>(w, s);
}

/* Number of tokens of this warp's tile, one of N in the chunk, and their first position;
 * 0 if all are before the window. */
template<int N, int G>
static __device__ __forceinline__ int
unit_tokens(const struct walk &w, const struct split_args &s, int warp, int *ret_pos)
{
    int pos = (w.chunk * N + warp) * UNIT;
    *ret_pos = pos;
    if (N < WARPS && warp >= N)
        return 0;
    return may_window<G>() && pos + UNIT <= w.t.see - s.window ? 0 :
        min(w.t.see + w.t.n_tok - 1 - pos, UNIT);
}

/* Does the see-th token of a row see the token at pos? */
template<int G>
static __device__ __forceinline__ bool
sees(int see, int pos, int window)
{
    if (!may_window<G>())
        return pos < see;
    return (unsigned)(see - 1 - pos) < (unsigned)window;
}

struct feed {                    /* state of a warp's loads */
    struct walk w;               /* position of the next tile to load */
    int block;                   /* its entry in the block table */
    int waited;
    uint32_t ring, scales, full; /* this warp's, in shared memory */
};

template<int N, int G>
static __device__ __forceinline__ void
feed_entry(struct feed &f, const struct split_args &s, int warp)
{
    int pos;
    if (f.w.left > 0 && unit_tokens<N, G>(f.w, s, warp, &pos) > 0)
        f.block = s.table[(int64_t)f.w.t.state * s.table_stride + (pos >> s.block_shift)];
}

/* Issues the loads of the next tile. Tokens of this step are only in the KV cache when
 * the previous kernel has ended. */
template<int D, typename E, int G>
static __device__ __forceinline__ void
feed_unit(struct feed &f, const struct split_args &s, const CUtensorMap *map, int warp,
    int lane, int stage)
{
    typedef struct shape<D, E> sh;
    if (f.w.left <= 0)
        return;
    int pos, n = unit_tokens<sh::n_unit, G>(f.w, s, warp, &pos);
    if (n > 0) {
        if (!f.waited && pos + n > f.w.t.old) {
            cu_dep_wait();
            f.waited = 1;
        }
        int token = (f.w.head << s.block_shift) + (pos & ((1 << s.block_shift) - 1));
        uint32_t bar = f.full + (uint32_t)stage * 8;
        if (lane == 0) {
            cu_bar_expect(bar, 2 * sh::half + (sh::scaled ? 2 * UNIT * 4 : 0));
            fetch(f.ring + (uint32_t)(stage * sh::stage), map, sh::lines ?
                token / UNIT * (sh::half / 128) : token, 0, f.block, bar);
        }
        if (sh::scaled && lane < 2) {
            const struct fdk_kv &kv = s.a.kv;
            const char *from = s.layer + (uint64_t)(uint32_t)f.block * kv.block_bytes +
                (lane == 0 ? kv.k_scale_off : kv.v_scale_off);
            __syncwarp(3);
            fetch_bytes(f.scales + (uint32_t)(2 * stage + lane) * UNIT * 4,
                from + (int64_t)token * 4, UNIT * 4, bar);
        }
    }
    step<G>(f.w, s);
    feed_entry<sh::n_unit, G>(f, s, warp);
}

/* Issues the loads of a block's first tiles and waits for the previous kernel. full:
 * offset of the barriers in mem. Returns the number of splits of all blocks; 0: this
 * block has no work.
 *
 * No kernel starts before the plan has ended, so the plan, the block tables and the
 * tokens of earlier steps may be read before the wait. Tokens of this step may not; some
 * may be in blocks that the row shares with another row: see cu_split_tile.old. */
template<int D, typename E, int G>
static __device__ __forceinline__ int
begin_parts(char *mem, int full, const struct split_args &s, const CUtensorMap *map,
    struct feed &f, struct walk &w)
{
    typedef struct shape<D, E> sh;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    uint32_t base = (uint32_t)__cvta_generic_to_shared(mem);
    const struct cu_split_start *start = s.plan.start + blockIdx.x;
    if (threadIdx.x == 0)
        cu_prefetch_map(map);
    int4 x = *(const int4 *)start, y = *(const int4 *)&start->at;
    f = {};
    load_tile<G>(f.w, s, &start->first);
    f.block = warp < sh::n_unit ? start->block[warp] : 0;
    f.w.tile = x.x;
    f.w.set = x.y;
    f.w.head = s.n_head_set == 1 ? x.y : x.y / s.n_head_set;
    f.w.part = x.z;
    f.w.chunk = part_begin<G>(f.w, s);
    f.w.left = x.w;
    f.w.from = y.z;
    f.w.to = y.w;
    w = f.w;
    if (w.left <= 0) {
        if (blockIdx.x == 0)
            cu_dep_wait();            /* so that the grid ends after the one before it */
        return 0;
    }
    f.ring = base + (uint32_t)(warp * sh::n_stage * sh::stage);
    f.scales = base + (uint32_t)(sh::scales + warp * sh::n_stage * 2 * UNIT * 4);
    f.full = base + (uint32_t)(full + warp * sh::n_stage * 8);
    if (warp < sh::n_unit && lane < sh::n_stage)
        cu_bar_init(f.full + (uint32_t)lane * 8, 1);
    cu_bar_ready();
    __syncwarp();
    for (int i = 0; i < sh::n_stage; i++)
        feed_unit<D, E, G>(f, s, map, warp, lane, i);
    if (!f.waited)
        cu_dep_wait();
    f.waited = 1;
    cu_dep_next();
    return y.y;
}

/* Zeroes the values after the first n tokens: the memory may hold anything, and a weight
 * of 0 times a value must be 0. */
template<int D, typename E>
static __device__ __noinline__ void
clear_values(uint32_t stage, float *scales, int n, int lane)
{
    typedef struct shape<D, E> sh;
    for (int i = lane; i < (UNIT - n) * (sh::row / 16); i += 32)
        asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" :: "r"(piece<sh::row>(stage,
            1, n + i / (sh::row / 16), i % (sh::row / 16))), "r"(0) : "memory");
    if (sh::scaled && lane < UNIT - n)
        scales[UNIT + n + lane] = 0;
    cu_written();
}

#endif
