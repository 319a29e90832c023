/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * How the attention kernels share a step. The plan kernel (attention_plan.cu)
 * runs once a step and cuts the step's rows into work, in device memory at
 * fdk_att_plan_args.plan: rows with CU_ATT_LONG_MIN query tokens or more, where
 * cu_att_long_fits(), become tiles of attention_prefill.cu; all others are
 * attention_split.cu's where cu_att_split_fits(), or attention_chunk.cu's with the same
 * plan where cu_att_chunk_takes(), or attention_double.cu's where cu_att_double(), else
 * ops_attention.cu's. Those of the kernels that a launch may need run in every layer; one
 * without work ends at once.
 *
 * In deterministic contexts a token's bits must not depend on which kernel it meets:
 * attention_chunk.cu adds up as attention_prefill.cu does, to the bit; where it does not
 * take a launch there are no long rows.
 *
 * fdk_att_plan_args.n_done counts tiles of the fdk_work list (att_shape: tiles of bt
 * tokens); a kernel that finishes n tokens from a tile's begin adds ceil(n / bt), once
 * for all heads.
 */
#ifndef FDD_KERNELS_CUDA_ATTENTION_CUH
#define FDD_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/fdk_cuda.cuh"

#define CU_ATT_LONG_MIN  64      /* query tokens of a long row, at least */
#define CU_ATT_LONG_TILE 128     /* query tokens of a long tile, at least */
#define CU_ATT_LONG_ROW  2048    /* of a long row, from which on tiles may be longer */
#define CU_ATT_QUERIES   16      /* query vectors of a tile of the other kernels */
#define CU_SPLIT_CHUNK   128     /* tokens of a chunk, at absolute multiples, at most */
#define CU_SPLIT_UNIT    16      /* tokens that a warp takes of a chunk */
#define CU_SPLIT_UNITS   (CU_SPLIT_CHUNK / CU_SPLIT_UNIT)
#define CU_SPLIT_FEW     2       /* deterministic: log2 of the chunks in a row of a split */
#define CU_SPLIT_PARTS   16      /* and splits of a row in attention_split.cu */
#define CU_PART_GROW     256     /* and chunks from which on splits grow elsewhere */
#define CU_SPLIT_BLOCKS  160     /* blocks of a launch, at most */

struct cu_att_long {             /* query tokens of one row */
    int32_t row;
    int32_t tok, n;              /* [tok, tok + n) of the step's tokens */
    int32_t kv;                  /* KV tokens that the last of them sees; the one before
                                    sees one less */
};
struct cu_att_plan {             /* what fdk_att_plan_args.plan begins with */
    int32_t n_long;              /* entries of the list, which begins behind this struct:
                                    those with most KV tokens first, about */
    int32_t bt;
    int32_t n_split;             /* tiles of attention_split.cu and its like */
    int32_t long_tile;           /* query tokens of a long tile */
    int32_t more[12];
};

/*
 * The work of attention_split.cu, attention_chunk.cu and attention_double.cu: tiles of up to
 * CU_ATT_QUERIES query vectors, each with the history that its last token sees, in splits of
 * whole chunks. The list of all splits, by tile, head set and split, is cut into equal
 * pieces, or about equal ones of whole head sets, one per block. A head set is one KV head
 * with up to 16 of its query heads. Of keys in shares, these are the heads of all ranks that
 * ask, and a head set of attention_double.cu has up to 32 of them, 16 in each of its halves.
 */
struct cu_split_cut {            /* what a split is; by cu_split_cut_of() */
    int32_t few;                 /* log2 of the chunks in a row of it */
    int32_t most;                /* splits a row has at most */
    int32_t skip;                /* chunks from one row of a split to the next */
    int32_t grow;                /* splits are those of cu_part_few() */
    int32_t slots;               /* sums of splits that a block leaves to others, at most */
};
struct cu_split_tile {
    int32_t tok, n_tok;          /* query tokens of the step */
    int32_t see;                 /* KV tokens that the first of them sees */
    int32_t n_chunk;             /* up to the last that they see; of the tokens here */
    int32_t first;               /* splits of one head set in all tiles before */
    int32_t state;               /* state slot of the row */
    int32_t old;                 /* KV tokens of the row that no kernel of this step
                                    writes: all but its own if its first token is the
                                    last of its state. Else the row may be new, and share
                                    blocks that others fill in this step: 0 */
    int32_t begin;               /* the first chunk that one of them sees */
};
struct cu_split_start {          /* where a block begins */
    int32_t tile, set, part;
    int32_t n;                   /* splits of the block; 0: nothing to do */
    int32_t at, total;           /* index of its first split, splits in the list */
    int32_t pad[2];
    struct cu_split_tile first;  /* a copy of the tile */
    int32_t block[CU_SPLIT_UNITS]; /* of the KV pool: where its first units are */
};
struct cu_split_plan {           /* behind the long list: of layers without a window, then,
                                    if there are some, of those with one */
    struct cu_split_start *start; /* [CU_SPLIT_BLOCKS] */
    struct cu_split_tile *tile;  /* [n_work_max] */
    uint32_t *arrived;           /* [n_work_max][cu_split_counts()] blocks that are done
                                    with their splits; 0 between launches */
};

/* Query tokens of a step's long tiles, whose rows have n of them in all. With a head dim of 64
 * three warpgroups (attention_prefill.cu) have one head each then, but the last chunks of short
 * rows cost more than that is worth. */
static inline __host__ __device__ int
cu_att_long_tile(int D, int n_row, int n)
{
    return D == 64 && n / CU_ATT_LONG_ROW >= n_row ? 192 : CU_ATT_LONG_TILE;
}

/* Ranks whose queries are in qkv. */
static inline __host__ __device__ int
cu_att_ranks(const struct fdk_kv *kv)
{
    return kv->n_own > 1 ? kv->n_own : 1;
}

/* attention_double.cu takes the launch, of those that cu_att_split_fits(). */
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

/* Their halves: each has a count of blocks. */
static inline int
cu_split_counts(const struct fdk_attention_args *a)
{
    return cu_split_sets(a) * cu_set_halves(a);
}

/* Tokens of a chunk of a split: several chunks must have room in shared memory, and
 * attention_double.cu has two warpgroups that take turns with them. */
static inline int
cu_split_chunk(const struct fdk_attention_args *a)
{
    if (cu_att_double(a))
        return CU_SPLIT_CHUNK / 2;
    return a->kv.dtype != FDK_BF16 || a->D <= 128 ? CU_SPLIT_CHUNK : a->D == 192 ? 64 : 48;
}

/* cap * tanh(x * by / 2), by in powers of two. */
static __device__ __forceinline__ float
cu_soft_cap(float x, float by, float cap)
{
    float e, r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(__fmul_rn(x, by)));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(e + 1));
    return fmaf(-2 * cap, r, cap);
}

/* Tiles that T tokens in at most S rows can have. */
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

/* fdk_attention_args.window as an unsigned bound of distances: without one, any. */
static inline __host__ __device__ int
cu_att_window(int window)
{
    return window > 0 ? window : INT32_MAX;
}

/* The first key that a query sees which is the see-th token of its row. */
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

/* Splits of deterministic contexts with bf16 KV: four chunks each, from CU_PART_GROW on
 * eight, and twice as many whenever the chunks before have doubled, so that few of them
 * make a long row and positions alone decide. log2 of the chunks of c's split; it begins at
 * a multiple of these. */
static inline __host__ __device__ int
cu_part_few(int c)
{
    return CU_SPLIT_FEW + (c < CU_PART_GROW ? 0 : cu_log2(c / CU_PART_GROW) + 1);
}

/* Chunk c is the first of its split. */
static inline __host__ __device__ bool
cu_part_begins(int c)
{
    return (c & ((1 << cu_part_few(c)) - 1)) == 0;
}

/* Splits of n_chunk chunks. G: they may grow. */
template<bool G = true>
static inline __host__ __device__ int
cu_split_parts(int n_chunk, const struct cu_split_cut &c)
{
    int few = G && c.grow ? cu_part_few(n_chunk - 1) : c.few;
    int n = (n_chunk + (1 << few) - 1) >> few;
    /* In the size of n_chunk's split; each smaller size has half as many more. */
    n += (few - c.few) * (CU_PART_GROW >> (CU_SPLIT_FEW + 1));
    return n < c.most ? n : c.most;
}

/* The first chunk of split i. */
template<bool G = true>
static inline __host__ __device__ int
cu_part_chunk(int i, const struct cu_split_cut &c)
{
    const int each = CU_PART_GROW >> CU_SPLIT_FEW; /* splits of the first size */
    if (!G || !c.grow || i < each)
        return i << c.few;
    const int k = (i - each) / (each / 2) + 1;     /* the size */
    return (i - each / 2 * k) << (c.few + k);
}

/* The split of chunk c, of a row that has not all of them. */
template<bool G = true>
static inline __host__ __device__ int
cu_part_of(int c, const struct cu_split_cut &cut)
{
    return cu_split_parts<G>(c + 1, cut) - 1;
}

/* Splits of chunks begin .. n_chunk - 1. */
template<bool G = true>
static inline __host__ __device__ int
cu_tile_parts(int begin, int n_chunk, const struct cu_split_cut &c)
{
    return cu_split_parts<G>(n_chunk, c) - cu_part_of<G>(begin, c);
}

/* The first chunk of split i of those. */
template<bool G = true>
static inline __host__ __device__ int
cu_tile_chunk(int i, int begin, const struct cu_split_cut &c)
{
    int chunk = cu_part_chunk<G>(i + cu_part_of<G>(begin, c), c);
    return chunk > begin ? chunk : begin;
}

/* Block b of n begins at this one of `total` splits. */
static inline __host__ __device__ int
cu_split_begin(int total, int n, int b)
{
    int more = total % n;
    return total / n * b + (b < more ? b : more);
}

/* The block of split i. */
static inline __host__ __device__ int
cu_split_block(int total, int n, int i)
{
    int each = total / n, more = total % n, at = more * (each + 1);
    return i < at ? i / (each + 1) : more + (i - at) / each;
}

/* attention_plan.cu: where the lists of a launch with a->window lie; ret may be NULL.
 * Returns the bytes of the whole plan. */
size_t cu_att_plan_lay_out(const struct fdk_attention_args *a, int n_work_max, void *plan,
    struct cu_split_plan *ret);
cudaError_t cu_att_plan_load(void);

/* attention_prefill.cu. fits: with these heads, types and this T a launch may have long
 * rows; known when it is made. */
int cu_att_long_fits(const struct fdk_attention_args *a, int deterministic);
int cu_att_long(const struct fdk_attention_args *a, fdk_stream_t st);
cudaError_t cu_att_long_load(void);

/* generic/attention_plain.cu: any launch. Rows of less than least tokens, and of long_min and
 * more, are left out. scratch: of the largest launch up to T tokens whose splits are blocks. */
size_t cu_att_plain_scratch(const struct fdk_attention_args *a);
int cu_att_plain(const struct fdk_attention_args *a, int least, int long_min, fdk_stream_t st);
cudaError_t cu_att_plain_load(void);

/* attention_split.cu. Of keys in shares (fdk_kv.n_own) it takes rows of one token alone, and the
 * plan lists no others. */
int cu_att_split_fits(const struct fdk_attention_args *a, int deterministic);
struct cu_split_cut cu_split_cut_of(const struct fdk_attention_args *a, int deterministic);
size_t cu_att_split_scratch(const struct fdk_ctx *ctx, const struct fdk_attention_args *a);
int cu_att_split(const struct fdk_attention_args *a, fdk_stream_t st);
cudaError_t cu_att_split_load(void);

/* attention_chunk.cu. takes: whatever T, so that a row's tokens have one kernel's bits. */
int cu_att_chunk_takes(const struct fdk_attention_args *a, int deterministic);
cudaError_t cu_att_chunk_load(void); /* by cu_att_split_load() */

/* attention_double.cu */
cudaError_t cu_att_double_load(void); /* the same */

/* Blocks of a launch on a device of n_proc. */
static inline int
cu_split_blocks(int n_proc)
{
    return n_proc < CU_SPLIT_BLOCKS ? n_proc : CU_SPLIT_BLOCKS;
}

#endif
