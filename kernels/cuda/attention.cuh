/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * How the attention kernels divide a step. The plan kernel (attention_plan.cu)
 * runs once a step and divides the step's rows into work items, in device memory at
 * fdk_att_plan_args.plan. If cu_att_long_fits(), rows with CU_ATT_LONG_MIN query tokens
 * or more become tiles of attention_prefill.cu. All other rows are computed by
 * attention_split.cu if cu_att_split_fits(), or, with the same plan, by
 * attention_chunk.cu if cu_att_chunk_takes() or attention_double.cu if cu_att_double(),
 * else by generic/attention_plain.cu. Every layer launches all kernels that the step may
 * need; a kernel without work ends at once.
 *
 * In deterministic contexts a token's bits must not depend on the kernel that computes
 * it: attention_chunk.cu has the same sums as attention_prefill.cu, to the bit; for
 * launches that attention_chunk.cu does not support there are no long rows.
 *
 * fdk_att_plan_args.n_done counts tiles of the fdk_work list (att_shape: tiles of bt
 * tokens); a kernel that finishes n tokens from a tile's begin adds ceil(n / bt), once
 * for all heads.
 */
#ifndef FDD_KERNELS_CUDA_ATTENTION_CUH
#define FDD_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/fdk_cuda.cuh"

#define CU_ATT_LONG_MIN  64      /* least query tokens of a long row */
#define CU_ATT_LONG_TILE 128     /* query tokens of a long tile, or more */
#define CU_ATT_LONG_ROW  2048    /* mean query tokens of long rows for longer tiles */
#define CU_ATT_QUERIES   16      /* query vectors of a tile of the other kernels */
#define CU_SPLIT_CHUNK   128     /* most tokens of a chunk; chunks start at multiples */
#define CU_SPLIT_UNIT    16      /* tokens of a chunk per warp */
#define CU_SPLIT_UNITS   (CU_SPLIT_CHUNK / CU_SPLIT_UNIT)
#define CU_SPLIT_FEW     2       /* deterministic: log2 of a split's consecutive
                                    chunks */
#define CU_SPLIT_PARTS   16      /* deterministic: most splits of a row in
                                    attention_split.cu */
#define CU_PART_GROW     256     /* deterministic: chunk from which splits grow in
                                    the other kernels */
#define CU_SPLIT_BLOCKS  160     /* most blocks of a launch */

struct cu_att_long {             /* query tokens of one row */
    int32_t row;
    int32_t tok, n;              /* [tok, tok + n) of the step's tokens */
    int32_t kv;                  /* KV tokens that the last of them sees; the one before
                                    sees one less */
};
struct cu_att_plan {             /* head of fdk_att_plan_args.plan */
    int32_t n_long;              /* entries of the list of struct cu_att_long that follows
                                    this struct, roughly by descending KV tokens */
    int32_t bt;
    int32_t n_split;             /* tiles of attention_split.cu, _chunk.cu or
                                    _double.cu */
    int32_t long_tile;           /* query tokens of a long tile */
    int32_t more[12];
};

/*
 * The work of attention_split.cu, attention_chunk.cu and attention_double.cu: tiles of up
 * to CU_ATT_QUERIES query vectors, each with the history that its last token sees, in
 * splits of full chunks. The list of all splits, sorted by tile, head set and split, is
 * divided into equal runs, or roughly equal runs of full head sets, or such that no block
 * has splits of two head sets (struct cu_set_cut), one run per block. A head set is one
 * KV head with up to 16 of its query heads. Where ranks share the keys (fdk_kv.n_own),
 * these are the heads of all ranks with queries, and a head set of attention_double.cu
 * has up to 32 of them, 16 in each of its halves.
 */
struct cu_split_cut {            /* shape of splits, by cu_split_cut_of() */
    int32_t few;                 /* log2 of the number of adjacent chunks of a split */
    int32_t most;                /* most splits of a row */
    int32_t skip;                /* chunks skipped after each such run of a split */
    int32_t grow;                /* 1: the size of splits is that of cu_part_few() */
    int32_t slots;               /* most sums of splits that a block leaves to others */
};
struct cu_split_tile {
    int32_t tok, n_tok;          /* query tokens of the step */
    int32_t see;                 /* KV tokens that the first of them sees */
    int32_t n_chunk;             /* chunks up to the last they see; of this rank's
                                    tokens */
    int32_t first;               /* splits of one head set in all tiles before */
    int32_t state;               /* state slot of the row */
    int32_t old;                 /* leading KV tokens of the row that were written before
                                    this step. Known only if its first token is the last
                                    one of its state: all but its own. Else 0: the row may
                                    be new, and share blocks that others fill in this
                                    step */
    int32_t begin;               /* the first chunk that one of them sees */
};
struct cu_split_start {          /* first split of a block */
    int32_t tile, set, part;
    int32_t n;                   /* splits of the block; 0: nothing to do */
    int32_t at, total;           /* index of its first split, splits in the list */
    int32_t from, to;            /* first block of its first head set, last block of its
                                    last head set */
    struct cu_split_tile first;  /* a copy of the tile */
    int32_t block[CU_SPLIT_UNITS]; /* blocks of the KV cache with its first chunk */
};
struct cu_split_plan {           /* after the long list: one for layers without a window,
                                    then one for layers with a window if there are any */
    struct cu_split_start *start; /* [CU_SPLIT_BLOCKS] */
    struct cu_split_tile *tile;  /* [n_work_max] */
    uint32_t *arrived;           /* [n_work_max][cu_split_counts()] blocks that have
                                    finished their splits; 0 between launches */
};

/* Query tokens per long tile, in a step whose n_row long rows have n query tokens in all.
 * With a head dim of 64, 192 tokens let three warpgroups (attention_prefill.cu) work on
 * one head. For short rows the additional work in the last chunks costs more than that
 * gains. */
static inline __host__ __device__ int
cu_att_long_tile(int D, int n_row, int n)
{
    return D == 64 && n / CU_ATT_LONG_ROW >= n_row ? 192 : CU_ATT_LONG_TILE;
}

/* Number of ranks whose queries are in qkv. */
static inline __host__ __device__ int
cu_att_ranks(const struct fdk_kv *kv)
{
    return kv->n_own > 1 ? kv->n_own : 1;
}

/* Does attention_double.cu compute the launch? Only if cu_att_split_fits(). */
static inline int
cu_att_double(const struct fdk_attention_args *a)
{
    return a->kv.n_own > 1 && a->kv.dtype == FDK_BF16 && a->D == 128 &&
        a->H / a->K * a->kv.n_own > CU_ATT_QUERIES;
}

/* Halves of a head set. */
static inline int
cu_set_halves(const struct fdk_attention_args *a)
{
    return cu_att_double(a) ? 2 : 1;
}

/* Head sets of all KV heads. */
static inline int
cu_split_sets(const struct fdk_attention_args *a)
{
    int n = a->H / a->K * cu_att_ranks(&a->kv), each = cu_set_halves(a) * CU_ATT_QUERIES;
    return a->K * ((n + each - 1) / each);
}

/* Halves of all head sets: each has a counter of blocks. */
static inline int
cu_split_counts(const struct fdk_attention_args *a)
{
    return cu_split_sets(a) * cu_set_halves(a);
}

/* Tokens of a chunk of a split: several chunks must fit in shared memory, and two
 * warpgroups of attention_double.cu alternate between chunks. */
static inline int
cu_split_chunk(const struct fdk_attention_args *a)
{
    if (cu_att_double(a))
        return CU_SPLIT_CHUNK / 2;
    return a->kv.dtype != FDK_BF16 || a->D <= 128 ? CU_SPLIT_CHUNK : a->D == 192 ? 64 : 48;
}

/* cap * tanh(x * by / 2); by includes the factor log2(e). */
static __device__ __forceinline__ float
cu_soft_cap(float x, float by, float cap)
{
    float e, r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(__fmul_rn(x, by)));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(e + 1));
    return fmaf(-2 * cap, r, cap);
}

/* Most long tiles of T tokens in at most S rows. */
static inline __host__ __device__ int
cu_att_long_max(int T, int S)
{
    int rows = T / CU_ATT_LONG_MIN;
    return T / CU_ATT_LONG_TILE + (rows < S ? rows : S);
}

static inline __device__ const struct cu_att_long *
cu_att_long_list(const struct cu_att_plan *p)
{
    return (const struct cu_att_long *)(p + 1);
}

/* fdk_attention_args.window as an upper bound of distances: INT32_MAX without a
 * window. */
static inline __host__ __device__ int
cu_att_window(int window)
{
    return window > 0 ? window : INT32_MAX;
}

/* First key that the see-th token of a row sees. */
static inline __host__ __device__ int
cu_att_first(int see, int window)
{
    int most = cu_att_window(window);
    return see > most ? see - most : 0;
}

static inline __host__ __device__ int
cu_log2(int x)
{
#ifdef __CUDA_ARCH__
    return 31 - __clz(x);
#else
    return 31 - __builtin_clz((unsigned)x);
#endif
}

/* log2 of the number of chunks in the split of chunk c, in deterministic contexts with
 * bf16 KV: four chunks per split, eight from chunk CU_PART_GROW on, and twice as many
 * each time the chunk number doubles. So a long row has few splits, and they depend only
 * on positions. A split begins at a multiple of its size. */
static inline __host__ __device__ int
cu_part_few(int c)
{
    return CU_SPLIT_FEW + (c < CU_PART_GROW ? 0 : cu_log2(c / CU_PART_GROW) + 1);
}

/* Is chunk c the first of its split? */
static inline __host__ __device__ bool
cu_part_begins(int c)
{
    return (c & ((1 << cu_part_few(c)) - 1)) == 0;
}

/* Number of splits of n_chunk chunks. G: splits may grow. */
template<bool G = true>
static inline __host__ __device__ int
cu_split_parts(int n_chunk, const struct cu_split_cut &c)
{
    int few = G && c.grow ? cu_part_few(n_chunk - 1) : c.few;
    int n = (n_chunk + (1 << few) - 1) >> few;
    /* n counts splits of the last size; each smaller size adds half as many again. */
    n += (few - c.few) * (CU_PART_GROW >> (CU_SPLIT_FEW + 1));
    return n < c.most ? n : c.most;
}

/* The first chunk of split i. */
template<bool G = true>
static inline __host__ __device__ int
cu_part_chunk(int i, const struct cu_split_cut &c)
{
    const int each = CU_PART_GROW >> CU_SPLIT_FEW; /* number of splits of the first
                                                      size */
    if (!G || !c.grow || i < each)
        return i << c.few;
    const int k = (i - each) / (each / 2) + 1;     /* number of times the size has
                                                      doubled */
    return (i - each / 2 * k) << (c.few + k);
}

/* Index of the split of chunk c, counted from the row's first chunk. */
template<bool G = true>
static inline __host__ __device__ int
cu_part_of(int c, const struct cu_split_cut &cut)
{
    return cu_split_parts<G>(c + 1, cut) - 1;
}

/* Number of splits of chunks begin .. n_chunk - 1. */
template<bool G = true>
static inline __host__ __device__ int
cu_tile_parts(int begin, int n_chunk, const struct cu_split_cut &c)
{
    return cu_split_parts<G>(n_chunk, c) - cu_part_of<G>(begin, c);
}

/* First chunk of split i of a tile that begins at chunk `begin`. */
template<bool G = true>
static inline __host__ __device__ int
cu_tile_chunk(int i, int begin, const struct cu_split_cut &c)
{
    int chunk = cu_part_chunk<G>(i + cu_part_of<G>(begin, c), c);
    return chunk > begin ? chunk : begin;
}

/* Index of the first split of block b of n, of `total` splits. */
static inline __host__ __device__ int
cu_split_begin(int total, int n, int b)
{
    int more = total % n;
    return total / n * b + (b < more ? b : more);
}

/* How blocks are given whole head sets or a share of one, none of two. */
struct cu_set_cut {
    int32_t n_block, total;      /* blocks, and splits of all head sets */
    int32_t more;                /* see cu_set_uneven() */
    int32_t n_q;                 /* most query vectors of a head set */
};

/* Number of blocks for a head set of n splits, each with one or more; 0: there are too few.
 * With 16 query vectors the merge of a block's sums takes about as long as 2 / 5 of a
 * split. */
static inline __host__ __device__ int
cu_set_blocks(int n, const struct cu_set_cut &c)
{
    int k = (int)((int64_t)n * c.n_block / c.total);
    while (k > n || (k > 1 && (int64_t)k * k * c.n_q > 40 * (int64_t)n))
        k--;
    return k;
}

/* Is it better to divide all splits evenly, because a block of such a head set has more
 * than `more` splits more than the mean? No, if further blocks would not be faster. */
static inline __host__ __device__ bool
cu_set_uneven(int n, const struct cu_set_cut &c)
{
    const int64_t k = cu_set_blocks(n, c);
    return k == 0 || ((n - 1) / k + 1 - c.more > c.total / c.n_block &&
        (k + 1) * (k + 1) * c.n_q <= 40 * (int64_t)n);
}

/* Block that computes split i. */
static inline __host__ __device__ int
cu_split_block(int total, int n, int i)
{
    int each = total / n, more = total % n, at = more * (each + 1);
    return i < at ? i / (each + 1) : more + (i - at) / each;
}

/* attention_plan.cu: *ret: addresses of the lists for launches with a->window; ret may be
 * NULL. Returns the bytes of the complete plan. */
size_t cu_att_plan_lay_out(const struct fdk_attention_args *a, int n_work_max, void *plan,
    struct cu_split_plan *ret);
cudaError_t cu_att_plan_load(void);

/* attention_prefill.cu. cu_att_long_fits(): may a launch with these heads, types and T
 * have long rows? Depends only on values known at the launch. */
int cu_att_long_fits(const struct fdk_attention_args *a, int deterministic);
int cu_att_long(const struct fdk_attention_args *a, fdk_stream_t st);
cudaError_t cu_att_long_load(void);

/* generic/attention_plain.cu: any launch. Skips rows of less than `least` tokens and rows
 * of long_min tokens or more. cu_att_plain_scratch(): bytes for the largest launch of up
 * to T tokens that has a block per split. */
size_t cu_att_plain_scratch(const struct fdk_attention_args *a);
int cu_att_plain(const struct fdk_attention_args *a, int least, int long_min, fdk_stream_t st);
cudaError_t cu_att_plain_load(void);

/* attention_split.cu. Where ranks share the keys (fdk_kv.n_own) it computes only rows of
 * one token, and the plan lists no others. */
int cu_att_split_fits(const struct fdk_attention_args *a, int deterministic);
struct cu_split_cut cu_split_cut_of(const struct fdk_attention_args *a, int deterministic);
size_t cu_att_split_scratch(const struct fdk_ctx *ctx, const struct fdk_attention_args *a);
int cu_att_split(const struct fdk_attention_args *a, fdk_stream_t st);
cudaError_t cu_att_split_load(void);

/* attention_chunk.cu. cu_att_chunk_takes() does not depend on T, so that all tokens of a
 * row are computed by the same kernel. */
int cu_att_chunk_takes(const struct fdk_attention_args *a, int deterministic);
cudaError_t cu_att_chunk_load(void); /* by cu_att_split_load() */

/* attention_double.cu */
cudaError_t cu_att_double_load(void); /* by cu_att_split_load() */

/* The devices of a context share a plan. It is for kernels and a number of blocks that
 * every one of them can run. */

/* Blocks of a launch. */
static inline int
cu_split_blocks(const struct fdk_ctx *ctx)
{
    int n = CU_SPLIT_BLOCKS;
    for (int i = 0; i < ctx->n_dev; i++)
        n = ctx->dev[i].n_proc < n ? ctx->dev[i].n_proc : n;
    return n;
}

static inline int
cu_att_sm90a(const struct fdk_ctx *ctx)
{
    int all = 1;
    for (int i = 0; i < ctx->n_dev; i++)
        all &= ctx->dev[i].sm90a;
    return all;
}

#endif
