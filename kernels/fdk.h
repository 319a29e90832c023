/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * fdk: the C ABI of compute. A backend is one const struct fdk_ops: devices,
 * memory, streams, events, graphs, one launcher per operation, and the fusions, runs of
 * operations that it can launch as one (kernels/program.h).
 *
 *   fdk_ops_cpu    kernels/cpu: a complete virtual device; defines what each
 *                  operation means (fp32 accumulation)
 *   fdk_ops_cuda   kernels/cuda
 *   fdk_ops_null   kernels/null.c: echoes its input and takes no time (tests)
 *
 * Rules: a launcher only launches. It never allocates, synchronizes, prints
 * or reads the environment, so every launcher can be captured into a graph. Exception: a
 * backend may cache data that it derives from an argument at its first use.
 * Launch shapes come from the padded sizes in the argument struct; live
 * counts and all other values that vary from step to step are read through device
 * pointers when the operation runs. Functions return 0 or -errno: -EINVAL
 * for arguments no backend could run, -ENOTSUP for arguments this backend cannot run,
 * -ENOMEM, -EIO once a device has failed (sticky: every later call on the
 * device returns -EIO; fdk_ops.error_text returns the reason).
 *
 * Letters: T tokens in step (padded), S rows (sequences) in step (padded),
 * O output rows (padded), L layers, H query heads, K kv heads, D head dim,
 * C hidden size, F ffn size, V vocabulary, B block size. Tensors are dense,
 * last index fastest.
 *
 * The residual stream and the logits are fp32. Other activations have the
 * type `act` of the launch: FDK_F32, or the type that fdk_ops.act() returns for the
 * weights (FDK_F32 on virtual devices). Sums are fp32 for all input types.
 *
 * CPU numerics: every output element is reduced in one fixed order that does not depend
 * on T, S, the number of threads or the chunking (16 lanes over the reduced
 * index, then one tree; attention in chunks of FDK_ATT_CHUNK tokens that start at
 * absolute multiples), so the values of a row do not depend on the batch composition.
 */
#ifndef FDD_KERNELS_FDK_H
#define FDD_KERNELS_FDK_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/rules.h"

/* Functions for both host code and kernels. */
#ifdef __CUDACC__
#define FDK_BOTH static __host__ __device__ inline
#else
#define FDK_BOTH static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st *fdk_stream_t;
typedef struct CUevent_st *fdk_event_t;
struct fdk_ctx;   /* an open backend with n devices */
struct fdk_graph; /* an instantiated graph that can be replayed */
struct fdk_op;    /* kernels/program.h */
struct fdk_fusion;
struct fdk_own;
struct fdk_group; /* this and the next six: kernels/collective.h */
struct fdk_group_args;
struct fdk_group_ways;
struct fdk_all_reduce_args;
struct fdk_all_gather_args;
struct fdk_kv_share_args;
struct fdk_row_share_args;

enum fdk_dtype {
    FDK_F32 = 0,
    FDK_F16,
    FDK_BF16,
    FDK_I32,
    FDK_U8,
    FDK_I8,
    FDK_F8E4M3,
    FDK_I4,
    FDK_DTYPE__N
};
size_t fdk_dtype_bytes(enum fdk_dtype t); /* 0 for FDK_I4 */
/* Bytes of a row of n elements. FDK_I4 packs two elements in a byte, the first in the
 * low half, as two's complement; then n must be even. */
size_t fdk_row_bytes(enum fdk_dtype t, size_t n);
const char *fdk_dtype_name(enum fdk_dtype t);
int fdk_is_float(enum fdk_dtype t); /* F32, F16, BF16 */
int fdk_is_quant(enum fdk_dtype t); /* I8, I4, F8E4M3 */
/* Converts n elements of type t (F16, BF16) to F32; the bits of a NaN are kept. src may
 * overlap dst if it begins at least 2 n bytes after dst. */
void fdk_to_f32(void *dst, const void *src, enum fdk_dtype t, size_t n);

#define FDK_ATT_CHUNK     64 /* tokens per attention chunk, at absolute multiples */
#define FDK_MAX_KV_GROUPS 8  /* KV groups of a program */
#define FDK_MAX_LOGPROBS  20
#define FDK_MAX_STOP_IDS  80
#define FDK_MAX_RANKS     8 /* kernels/collective.h */

/* ---- the arrays of a step ------------------------------------------------------ */

/* Device arrays of one step, at fixed addresses. All are equal on all ranks except the
 * block tables. Padding: tokens >= *n_tok, rows >= *n_row, outputs >= *n_out
 * are skipped; a graph that does write KV for them writes to the dummy slot. */
struct fdk_batch {
    const int32_t *n_tok, *n_row, *n_out; /* [1] live counts */
    const int32_t *ids;         /* [T] token id, -1 = fdk_row.last_token of the row */
    const int32_t *pos;         /* [T] absolute position */
    const int32_t *slot_map;    /* [T] KV slot: block * block_size + offset */
    const int32_t *row;         /* [T] row of the token */
    const int32_t *q_start;     /* [S + 1] first token of each row */
    const int32_t *kv_len;      /* [S] KV tokens of the row after this step */
    const int32_t *state;       /* [S] state slot of the row */
    const int32_t *block_table; /* [slots][table_stride] this rank's blocks, by state
                                  slot: the table of row r begins at entry
                                  state[r] * table_stride. An entry whose tokens no
                                  query of the step may read can be any block */
    const struct fdk_out *out;  /* [O] gather list: tokens whose logits are computed */
    int32_t table_stride;
    int32_t max_row; /* upper bound of S for this step's launches */
};

enum fdk_out_kind {
    FDK_OUT_SAMPLE = 0, /* sample the row's next token */
    FDK_OUT_SCORE = 1   /* logprob of token .target (prompt logprobs) */
};
struct fdk_out {
    int32_t tok; /* index into the step's tokens */
    int32_t row;
    int32_t kind;   /* enum fdk_out_kind */
    int32_t target; /* FDK_OUT_SCORE: token to score */
    int32_t n_top;  /* top logprobs to return, 0..FDK_MAX_LOGPROBS; -1 = no
                                  logprob at all */
    int32_t pos;    /* absolute position of the token to be chosen */
    int32_t rules;  /* FDK_OUT_SAMPLE: index + 1 of the row's entry in the pool of
                                  rules; 0: none */
    int32_t n_bias, bias, allowed; /* as in this entry, so that a device can load its lists
                                  before it has the entry */
};

/* Lets o refer to entry `at` of the pool of rules, which has the lists of e. */
static inline void
fdk_out_rules(struct fdk_out *o, int32_t at, const struct fdk_rules *e)
{
    o->rules = at + 1;
    o->n_bias = e->n_bias;
    o->bias = e->bias;
    o->allowed = e->allowed;
}

/* Row state: the sampling parameters of a running sequence, and the state that the device
 * keeps between steps. Indexed by state slot. */
struct fdk_row {
    uint64_t seed;
    uint32_t sample;           /* index among the request's samples */
    uint32_t top_k;            /* 0 = off */
    float temperature;         /* 0 = greedy */
    float top_p, min_p;        /* 1 / 0 = off */
    int32_t last_token;        /* written by sampling */
    int32_t len;               /* tokens of prompt and output; each sampling adds 1 */
    int32_t min_len;           /* stop ids cannot be chosen before this length */
    int32_t max_len;           /* done when len reaches it */
    int32_t done;              /* FDK_DONE_* */
    int32_t penalty;           /* index into the pool of penalty counts, -1 = none */
    float presence, frequency; /* 0 = off; read only with penalty >= 0 */
    float repetition;          /* 1 = off */
    uint32_t generation;       /* of the slot: copied to every result */
    int32_t n_stop;
    int32_t stop_ids[FDK_MAX_STOP_IDS];
};
#define FDK_DONE_NO     0
#define FDK_DONE_STOP   1 /* last_token is a stop id */
#define FDK_DONE_LENGTH 2

/* One per output row, copied to the host after the step. */
struct fdk_result {
    int32_t token; /* sampled, or the scored target */
    int32_t done;  /* FDK_DONE_* after this token */
    uint32_t generation;
    int32_t bad;   /* 0 or FDK_BAD_*; if not 0, token is -1 */
    float logprob; /* of token, log-softmax of the raw logits */
    int32_t n_top;
    int32_t top_id[FDK_MAX_LOGPROBS]; /* sorted by logprob, then by id */
    float top_logprob[FDK_MAX_LOGPROBS];
};
#define FDK_BAD_LOGITS 1 /* NaN or Inf */
#define FDK_BAD_EMPTY  2 /* masks and rules leave no id */

/* Paged KV of one rank for the layers of a KV group, which share blocks. Layer l of the
 * group in block b begins at base + b * block_bytes + l * layer_bytes: K[K][B][D] there,
 * V[K][B][D] at + v_bytes. For 8-bit types value = stored * scale:
 *   FDK_I8      scales are float[K][B] at + k_scale_off and + v_scale_off: the largest
 *               magnitude of the head's vector at that token / 127
 *   FDK_F8E4M3  one scale per (layer, K or V, head) for all tokens: `scale` below
 * Blocks of all groups have the same size and are in one pool; each group has its own
 * block tables and slots (fdk_batch).
 *
 * n_own ranks that hold the same heads may divide the tokens of each block. Block tables,
 * slots and positions then count whole blocks of n_own * block_size tokens; a rank holds
 * block_size tokens of each block, from token own * block_size on. So the ranks of a
 * group read the same tables and need no allocator of their own, each holds 1 / n_own of
 * any sequence to within a block, and its tokens of a row are in the order of
 * positions. */
struct fdk_kv {
    void *base;
    uint64_t block_bytes, layer_bytes, v_bytes;
    uint64_t k_scale_off, v_scale_off; /* in a layer; FDK_I8 only */
    const float *scale; /* [layers of the group][2][K] on the device; NULL: all 1 */
    int32_t block_size; /* tokens of a block that this rank holds */
    int32_t n_kv_head, head_dim;
    enum fdk_dtype dtype;
    int32_t n_own, own; /* ranks that divide a block, and this one's index among them;
                           n_own 0 or 1: this rank holds all tokens */
};
/* How many of the positions 0 .. n - 1 this rank holds. */
FDK_BOTH int32_t
fdk_kv_count(const struct fdk_kv *kv, int32_t n)
{
    int32_t whole, rest;

    if (kv->n_own <= 1)
        return n;
    whole = n / (kv->n_own * kv->block_size);
    rest = n - whole * kv->n_own * kv->block_size - kv->own * kv->block_size;
    rest = rest < 0 ? 0 : rest < kv->block_size ? rest : kv->block_size;
    return whole * kv->block_size + rest;
}
/* Where this rank holds a slot's token: block * block_size + offset; -1: it does not. */
FDK_BOTH int32_t
fdk_kv_place(const struct fdk_kv *kv, int32_t slot)
{
    int32_t n = kv->block_size, at;

    if (kv->n_own <= 1 || slot < 0)
        return slot;
    at = slot % (kv->n_own * n) - kv->own * n;
    return at < 0 || at >= n ? -1 : slot / (kv->n_own * n) * n + at;
}
/* Index of the rank that holds the token of a slot: 0 .. n_own - 1. */
FDK_BOTH int32_t
fdk_kv_owner(const struct fdk_kv *kv, int32_t slot)
{
    return kv->n_own <= 1 ? 0 : slot % (kv->n_own * kv->block_size) / kv->block_size;
}

/* An attention tile of a step. Tiles are planned from the row lengths and read from
 * device memory, so that a launch does not depend on how the tokens are divided among the
 * rows. Row i has ceil(q_len[i] * a / b) tiles; a, b: fdk_ops.att_shape. */
struct fdk_work {
    int32_t row, tile;
};
/* Upper bound of the number of tiles of m tokens in at most n rows:
 * floor((m a + min(n, m) (b - gcd(a, b))) / b). */
int32_t fdk_tiles_max(int32_t n, int32_t m, int32_t a, int32_t b);
/* Host: has one of the tokens [first, end) an output? Call it with ascending ranges; *at,
 * 0 before the first call, keeps the index into the outputs, which ascend by token. */
int fdk_has_output(const struct fdk_batch *b, int32_t *at, int32_t first, int32_t end);

/* ---- operations ---------------------------------------------------------- */

struct fdk_delta {
    int32_t at, block;
};
struct fdk_row_update_args {    /* state[idx[i]] = rows[i], i < *n, and
                                  table[delta[i].at] = delta[i].block, i < *n_delta */
    struct fdk_row *state;      /* [max rows] */
    const struct fdk_row *rows; /* [n_max] */
    const int32_t *idx;         /* [n_max] */
    const int32_t *n;           /* [1] */
    int32_t n_max;
    int32_t *table;                /* fdk_batch.block_table */
    const struct fdk_delta *delta; /* [n_delta_max] */
    const int32_t *n_delta;        /* [1]; NULL: no deltas */
    int32_t n_delta_max;
};
struct fdk_att_plan_args { /* lists the step's tiles, row by row, each row's ascending */
    struct fdk_work *work; /* [n_max]; entries >= *n_work are {-1, -1} */
    int32_t *n_work;       /* [1] */
    uint32_t *n_done;      /* [1] set to 0 */
    const struct fdk_batch *b;
    int32_t a, bt;                        /* query rows per token, query rows of a tile */
    int32_t n_max;                        /* fdk_tiles_max(S, T, a, bt) of the launch */
    const struct fdk_attention_args *att; /* of a layer of the step, of one without a
                                             window if there is one */
    void *plan;                           /* the backend's data, att_plan_bytes() bytes */
    size_t plan_bytes;
    int32_t outputs; /* att_plan_host: 1: list only tiles with a token of b->out, which
                                  ascends by tok; rows of other tiles are not written */
};
/* y[t] = w[ids[t]], or the row's last token where ids[t] is -1. A sharded table is in the
 * memory of several devices: row i is row i % shard_rows of shard[i / shard_rows], read
 * in place. */
struct fdk_embed_args {
    float *y;      /* (T, C) */
    const void *w; /* (V, C); not read if the table is sharded */
    const struct fdk_row *state;
    const struct fdk_batch *b;
    int32_t T, C, V;
    enum fdk_dtype w_dtype;
    float scale;        /* 1 for most families */
    int32_t shard_rows; /* 0: w is the whole table; else V <= FDK_MAX_RANKS shard_rows */
    const void *shard[FDK_MAX_RANKS]; /* (shard_rows, C) each */
};
/* Are all pointers of the table set, and do the shards hold V rows? */
int fdk_embed_valid(const struct fdk_embed_args *a);
/* Whether a norm precedes or follows a sublayer. norm(v) = v / rms(v) * (w + offset); s
 * is add_scale. */
enum fdk_norm {
    FDK_NORM_PRE, /* before a sublayer: x += s add (if any); y = norm(x) */
    FDK_NORM_POST /* after it: x += s norm(add) (if any); y = x (if there is y) */
};
struct fdk_rmsnorm_args {
    void *y;          /* (T, C) act; with FDK_NORM_POST it may be NULL */
    float *x;         /* (T, C) residual stream */
    const void *add;  /* (T, C) act, or NULL */
    const float *w;   /* (C); FDK_NORM_POST without add: not read */
    const int32_t *n; /* [1] live rows of x */
    int32_t T, C;
    float eps;
    float offset;    /* added to the weights */
    float add_scale; /* 0 means 1 */
    enum fdk_norm norm;
    enum fdk_dtype act;
};
struct fdk_gemm_args {    /* y = x w^T (+ bias) */
    void *y;              /* (T, N) y_dtype, rows ldy apart */
    const void *x;        /* (first + T, K) act, rows >= *n may hold anything */
    const void *w;        /* (N, K) */
    const float *w_scale; /* FDK_I8, FDK_I4, FDK_F8E4M3: (N, ceil(K / w_group)),
                                  value = stored * scale rounded to fp32; else NULL */
    int32_t w_group;      /* elements of K that share a scale; K: all */
    int32_t w_layout;     /* fdk_weight.layout of w; w_scale is NULL if the layout
                                  keeps its scales within w */
    const float *bias;    /* (N) or NULL */
    const int32_t *n;     /* [1] live rows of x */
    int32_t first;        /* rows [first, min(first + T, *n)) of x are computed;
                                  the first row of y is row first */
    int32_t T, N, K, ldy;
    enum fdk_dtype w_dtype, act, y_dtype; /* y_dtype: act or FDK_F32 */
    void *scratch;                        /* gemm_scratch(); NULL where that is 0 */
    size_t scratch_bytes;
};
/*
 * Frequencies that depend on the longest length of a sequence: n = the row's max_len,
 * which is fixed while the sequence runs, so that its keys need not be rotated again.
 *   FDK_ROPE_LONG  n > long_from: the second rot / 2 elements of inv_freq
 *   FDK_ROPE_NTK   n > long_from: theta^(-2 i / rot) with theta = ntk_theta *
 *                  (ntk_factor n / long_from - ntk_factor + 1)^(rot / (rot - 2))
 */
enum fdk_rope_len { FDK_ROPE_ANY, FDK_ROPE_LONG, FDK_ROPE_NTK };
struct fdk_rope_table_args { /* cs[t] = cos, sin of pos[t] * inv_freq, times scale */
    float *cs;               /* (T, rot) cos[rot/2] then sin[rot/2] */
    const float *inv_freq;   /* (rot / 2); FDK_ROPE_LONG: (2, rot / 2) */
    const struct fdk_batch *b;
    const struct fdk_row *state; /* read unless FDK_ROPE_ANY */
    int32_t T, rot;
    float scale; /* attention factor of the rope type */
    enum fdk_rope_len len;
    int32_t long_from;
    float ntk_theta, ntk_factor;
};
struct fdk_qkv_args {             /* QK norm, rotary embedding, KV write, in this order */
    void *qkv;                    /* (T, (H + 2 K) D) act: q is rotated in place */
    const float *q_norm, *k_norm; /* (D) or NULL; norm_all: (H D), (K D) */
    const float *cs;              /* (T, rot); not read if rot is 0 */
    const struct fdk_batch *b;
    struct fdk_kv kv;
    int32_t T, H, K, D, rot;
    int32_t layer;          /* of its KV group */
    float eps, norm_offset; /* norm_offset is added to the weights of the norms */
    int32_t norm_all; /* 1: one norm over all of q, one over all of k; 0: per head */
    /* norm_all over the heads of n_all ranks: their rows of qkv as all_gather writes
     * them, (T, n_all (H + 2 K) D); each all_share consecutive ranks have the same KV
     * heads. NULL: the norm is over qkv only. */
    const void *all;
    int32_t n_all, all_share;
    int32_t interleaved; /* 1: 2 i is rotated with 2 i + 1; 0: i with rot / 2 + i */
    enum fdk_dtype act;
};
/* Causal over the row's paged KV: a query at position p sees the keys of positions
 * max(0, p - window + 1) .. p. Up to fdk_ops.att_back tokens of this rank before the
 * window may be read too, so they must hold finite numbers. The score is s = scale *
 * query . key, or with a softcap softcap * tanh(s / softcap).
 *
 * With kv.n_own > 1 the queries are those of the n_own ranks with the same KV heads, and
 * this rank holds a share of the keys. qkv then has these ranks' rows as all_gather
 * writes them. For each of these ranks y has the results of its heads over the keys of
 * this rank, then for each head the log-sum-exp of its scores (-Inf, and results 0, for a
 * head that sees no key of this rank). fdk_ops.merge combines the shares. */
struct fdk_attention_args {
    void *y;         /* (T, H D) act; n_own > 1: (T, n_own, H (D + 1)) fp32 */
    const void *qkv; /* (T, (H + 2 K) D) act, q part is read; n_own > 1: (T, n_own, ..) */
    const struct fdk_batch *b;
    struct fdk_kv kv;
    const struct fdk_work *work; /* of att_plan */
    const int32_t *n_work;
    uint32_t *n_done; /* each layer adds the number of tiles that it computed */
    const void *plan; /* of att_plan */
    int32_t n_work_max;
    int32_t asks, n_ask; /* n_own > 1: computes only the queries of ranks
                                [asks, asks + n_ask), whose step is b. Both 0: those of
                                all ranks, which then have the same step */
    int32_t T, H, K, D;
    int32_t layer;       /* of its KV group */
    int32_t window;      /* 0: none, all positions 0 .. p are seen */
    int32_t step_window; /* the same window of all the step's layers that have one; 0: no
                            layer has one. Equal in all launches of a step and in its
                            plan */
    float scale;
    float softcap; /* 0: none */
    enum fdk_dtype act;
    void *scratch;
    size_t scratch_bytes;
};
/* Are asks and n_ask within the ranks? */
FDK_BOTH int
fdk_asks_valid(const struct fdk_attention_args *a)
{
    int32_t n = a->kv.n_own > 1 ? a->kv.n_own : 1;

    return a->asks >= 0 && a->n_ask >= 0 && a->asks <= n && a->n_ask <= n - a->asks &&
        (a->asks == 0 || a->n_ask > 0);
}
/* y = attention over the keys of all ranks: merges the shares x in the order of ranks. */
struct fdk_merge_args {
    void *y;          /* (T, H D) act */
    const float *x;   /* (T, n_own, H (D + 1)), each share as in fdk_attention_args.y */
    const int32_t *n; /* [1] live rows */
    int32_t T, H, D, n_own;
    enum fdk_dtype act;
};
enum fdk_gate { FDK_GATE_SILU, FDK_GATE_GELU_TANH };
struct fdk_silu_mul_args { /* y = gate(gu[:, :F]) * gu[:, F:] */
    void *y;               /* (T, F) act */
    const void *gu;        /* (T, 2 F) act */
    const int32_t *n;      /* [1] live rows */
    int32_t T, F;
    enum fdk_gate gate;
    enum fdk_dtype act;
};
/* Are `all`, n_all and all_share valid? `all` is allowed only with norm_all. */
int fdk_qkv_all_valid(const struct fdk_qkv_args *a);
struct fdk_softcap_args { /* y = cap tanh(v / cap), v = scale y; cap 0: y = v */
    float *y;             /* (T, N): the first row is row first */
    const int32_t *n;     /* [1] live rows */
    int32_t first, T, N;  /* rows [first, min(first + T, *n)) */
    float scale, cap;
};
struct fdk_gather_args { /* y[o] = x[out[o].tok] */
    void *y;             /* (O, C) act */
    const void *x;       /* (T, C) act */
    const struct fdk_batch *b;
    int32_t O, C;
    enum fdk_dtype act;
};
struct fdk_sample_args {        /* results[o], and the row's state for FDK_OUT_SAMPLE */
    struct fdk_result *results; /* (O) */
    struct fdk_row *state;
    uint16_t *counts; /* (pool, V) penalty counts, NULL: none; bit 15: the id
                                  is in the prompt, the rest: how often in the output */
    int32_t *rules;   /* (pool, rules_words), NULL: none */
    float *chosen; /* (pool, FDK_MAX_CHOSEN): written for a row with rules and logprobs:
                                  the logprobs of the ids of fdk_rules.chosen */
    int32_t rules_words;
    float *logits; /* (R, V), rows ldl apart: of outputs [first, first + R) of the O;
                                  may be overwritten */
    const struct fdk_batch *b;
    int32_t first, R, V;
    int32_t ldl; /* at least V; 0 means V */
    void *scratch;
    size_t scratch_bytes;
};
/*
 * Sampling order: logprobs from the raw logits; biases; penalties; masks (stop ids
 * below min_len, ids that are not allowed, banned ids); temperature; min_p relative to
 * the best id; top_k; top_p over the ids left (the order of vLLM's V1 sampler; biases
 * come before penalties in transformers too); then argmax of logit / temperature + Gumbel
 * noise. Ties go to the lower id. Noise: Philox4x32-10, key = seed, counter = (position,
 * sample, purpose 0, id / 4), word id % 4. So the noise of a seed does not depend on the
 * batch composition, and a resumed request continues it. The noise of a word w
 * is -log(-log((w + 1/2) / 2^32)); scores are compared in double precision.
 *
 * Penalties of rows with penalty >= 0: the logit of an id in prompt or output is divided
 * by repetition if positive, else multiplied; then frequency * count and presence are
 * subtracted from the logits of output ids. Sampling a token adds it to the row's counts,
 * which saturate at 0x7fff.
 *
 * An output with rules > 0 follows a struct fdk_rules. A forced id is chosen regardless
 * of its logit, the masks and the biases; otherwise all masks apply, and if they leave no
 * id the result is FDK_BAD_EMPTY.
 *
 * Stop ids are masked while len < min_len. top_p keeps the fewest most probable ids
 * whose sum reaches it (at least one id); min_p is relative to the
 * best id's probability. A row that is already done keeps its state; its result is token
 * -1, its done bits and no logprob. Bad logits leave the state unchanged.
 * FDK_OUT_SCORE reads only the state's generation and writes nothing; a
 * target outside the vocabulary is bad.
 */

/* ---- weights --------------------------------------------------------------- */

/*
 * A matrix (rows, cols) of weights. The format is the type of its values, the layout
 * their order in memory. FDK_LAYOUT_ROWS is common to all backends: consecutive rows of
 * fdk_row_bytes(), then, from scale_at on, fp32 scales (rows, ceil(cols / group)). Every
 * other layout is private to a backend, which chooses the layout and size of a GEMM's
 * matrix (fdk_ops.weight_layout), fills it (weight_pack) and reads it in its GEMM.
 *
 * When weights are quantized here, the scale of a group of elements is a function of m,
 * its element of largest magnitude:
 *
 *   FDK_I8      |m| / 127, values -127..127
 *   FDK_I4      -m / 8, values -8..7; if both m and -m occur, m is the negative one
 *   FDK_F8E4M3  |m| / 448, values of at most 448
 *
 * value = x / scale rounded to nearest, ties to even. All in IEEE fp32; a scale of 0
 * makes all values 0.
 */
#define FDK_LAYOUT_ROWS 0
struct fdk_weight {
    enum fdk_dtype format;
    int32_t layout;
    int32_t rows, cols;
    int32_t group;     /* elements of a row that share a scale; 0: no scales */
    uint64_t bytes;    /* of values and scales */
    uint64_t scale_at; /* offset of the scales from data, a multiple of 256; 0: no scales,
                          or the layout keeps them elsewhere */
    void *data;        /* 256-byte aligned */
};
enum fdk_pack { FDK_PACK_VALUES, FDK_PACK_SCALES };

/* Sets layout FDK_LAYOUT_ROWS, bytes and scale_at. Returns 0 or -EOVERFLOW. */
int fdk_weight_rows(struct fdk_weight *w);
/* Address of a row's values or scales in FDK_LAYOUT_ROWS; NULL: another layout. */
void *fdk_weight_at(const struct fdk_weight *w, enum fdk_pack what, int64_t row);
int32_t fdk_weight_groups(const struct fdk_weight *w); /* scales of a row; 0: none */

/* Writes x to rows [first, first + n) of a weight. A row of x may be longer than a row of
 * w, which then gets a window of x's columns: the share of a rank in a matrix that is
 * split by columns. */
struct fdk_pack_args {
    struct fdk_weight w;
    enum fdk_pack what;     /* FDK_PACK_SCALES: only the scales, x (n, groups) FDK_F32 */
    enum fdk_dtype x_dtype; /* type of the values: FDK_F32, FDK_F16, FDK_BF16, or
                               w.format, whose scales come in a call of their own */
    int64_t first, n;
    const void *x;       /* (n, x_cols) */
    int32_t x_cols;      /* elements of a row of x; 0: as many as a row of w */
    int32_t x_at;        /* column of x that becomes w's column 0; even for FDK_I4 */
    int32_t x_row_scale; /* 1: a row's scale is computed from all its x_cols elements;
                            w.group is w.cols */
    uint64_t *bad; /* [1] used if w has scales and x does not. If an element i of x that
                            is stored or counts for a scale is not finite, *bad becomes
                            bad_first + i if that is less; then the rows are undefined */
    uint64_t bad_first;
};
/* Elements of a row that are written to w, and elements of a row of x. */
int32_t fdk_pack_width(const struct fdk_pack_args *a);
int32_t fdk_pack_x_cols(const struct fdk_pack_args *a);
/* Returns 0, -EINVAL, or -ENOTSUP for another layout than FDK_LAYOUT_ROWS and for types
 * between which there is no conversion. */
int fdk_pack_check(const struct fdk_pack_args *a);

struct fdk_dummy_args {     /* elements [first, first + n) of random weights */
    void *y;                /* (n) y_dtype: FDK_F32, FDK_F16, FDK_BF16 */
    uint64_t key, first, n; /* the key determines the stream of elements */
    float mean, scale;      /* mean + scale * (-510..510, roughly normal) */
    enum fdk_dtype y_dtype;
};

/* ---- devices ------------------------------------------------------------- */

/* When a virtual device runs the commands of its streams. */
enum fdk_exec {
    FDK_EXEC_DEFAULT = 0, /* cpu: THREAD, null: INLINE */
    FDK_EXEC_THREAD,      /* a thread per stream */
    FDK_EXEC_INLINE,      /* immediately, in the calling thread */
    FDK_EXEC_DEFER        /* when a caller waits or calls fdk_vdev_step() */
};
#define FDK_MAX_DEVICES 32 /* of a context */
struct fdk_open_args {
    int32_t n_device;      /* 1..FDK_MAX_DEVICES */
    const int32_t *device; /* [n_device] indices below available(), each at most once;
                                  device i of the context is device[i]. NULL: 0, 1, .. */
    uint32_t dead;         /* tests: bit i: device i of the context fails every call */
    int32_t n_thread;      /* cpu: threads per device; 0 = processors / n_device */
    int32_t max_token;     /* upper bound of T, for internal scratch; 0: 8192 */
    int32_t spin_us;       /* cpu: how long idle pool threads poll */
    int32_t nice;          /* cpu: nice value of its threads above the caller's, 0..19 */
    enum fdk_exec exec;    /* cpu and null: who runs the commands */
    int32_t deterministic; /* cuda: batch-invariant, at some cost; the cpu backend
                                  always is */
    const char *cache_dir; /* cuda: folder that keeps measured choices of algorithms
                                  for later starts; NULL: none */
};
/* Measured peak of a device. */
enum fdk_probe {
    FDK_PROBE_READ, /* bytes/s read from memory far larger than its caches */
    FDK_PROBE_LINK, /* bytes/s copied from another device's memory; cpu: as READ.
                                  -ENOTSUP: no other device can be reached */
    FDK_PROBE_FLOPS /* operations/s on fp32, bf16 or fp16: on the cpu a loop
                                  of multiply-adds in registers, of the GEMM's vector
                                  width; on cuda such a loop for fp32, a large GEMM for
                                  the 16-bit types */
};
struct fdk_device_info {
    char name[64];
    uint64_t mem_total, mem_free; /* on_host: the device's share of the host's */
    int32_t n_proc;               /* SMs, or threads */
    uint32_t peer_mask; /* bit i: device i of the context is reachable by peer copy */
};
struct fdk_ops {
    const char *name;
    int32_t on_host;   /* 1: devices are threads of this process, and the host can read
                                  and write their memory */
    int32_t echo;      /* 1: computes nothing: tokens depend only on the input */
    int32_t gemm_rows; /* rows of a GEMM up to which reading the weights
                                  determines its time; 0: each row takes time */
    int32_t att_back;  /* tokens before a query's window that attention may read */
    /* Type of the activations of a model whose matrices are mostly of type w. */
    enum fdk_dtype (*act)(enum fdk_dtype w);
    /* Returns the number of devices, or -errno and the reason in why. */
    int (*available)(char *why, size_t why_bytes);
    /* UUID of device dev of available(): "GPU-" and 36 characters. Opens no device and
     * uses none of its memory. NULL: devices of this backend have no UUID. */
    int (*device_uuid)(int dev, char *ret, size_t ret_bytes);
    /* Can device dev of available() read and write the memory of device other? Returns 1,
     * 0 or -errno. Opens no device and uses none of its memory. NULL: all can. */
    int (*device_peer)(int dev, int other);
    int (*open)(const struct fdk_open_args *, struct fdk_ctx **ret, char *err,
        size_t err_bytes);
    void (*close)(struct fdk_ctx *);
    int (*device_info)(struct fdk_ctx *, int dev, struct fdk_device_info *ret);
    const char *(*error_text)(struct fdk_ctx *, int dev);
    /* CPUs near the device, "0-15,32-47". -errno: not known. NULL: all are. */
    int (*device_cpus)(struct fdk_ctx *, int dev, char *ret, size_t ret_bytes);
    /* Measures the peak with all processors, best of several runs. Takes up to a second
     * and allocates memory meanwhile. Any thread, at any time; other work on the device
     * and the probe slow each other down. t: type for FDK_PROBE_FLOPS. Returns 0,
     * -ENOTSUP if this device cannot measure it, or -ENOMEM. */
    int (*probe)(struct fdk_ctx *, int dev, enum fdk_probe, enum fdk_dtype t, double *ret);

    /* 256-byte aligned, contents undefined. */
    int (*mem_alloc)(struct fdk_ctx *, int dev, size_t bytes, void **ret);
    /* The caller has waited for all work that uses the memory. */
    void (*mem_free)(struct fdk_ctx *, int dev, void *p);
    int (*host_alloc)(struct fdk_ctx *, size_t bytes, void **ret); /* pinned */
    void (*host_free)(struct fdk_ctx *, void *p);
    /* Reserves an address range without memory; graphs may be captured with its
     * addresses. Offsets and sizes are multiples of the page size on the cpu; multiples
     * of 2 MiB suit every backend. */
    int (*mem_reserve)(struct fdk_ctx *, int dev, size_t bytes, void **ret);
    int (*mem_map)(struct fdk_ctx *, int dev, void *base, size_t off, size_t bytes);
    int (*mem_unmap)(struct fdk_ctx *, int dev, void *base, size_t off, size_t bytes);
    int (*mem_release)(struct fdk_ctx *, int dev, void *base, size_t bytes);

    int (*stream_new)(struct fdk_ctx *, int dev, fdk_stream_t *ret);
    void (*stream_free)(fdk_stream_t);
    int (*stream_sync)(fdk_stream_t);
    int (*stream_wait)(fdk_stream_t, fdk_event_t);  /* later work waits for the event */
    int (*stream_delay)(fdk_stream_t, uint64_t ns); /* tests: busy device */
    int (*stream_fail)(fdk_stream_t); /* tests: the device fails when the stream
                                  reaches this, on cuda by a write to an invalid
                                  address */
    /* When all earlier work of the stream is done, *host (4 bytes from host_alloc)
     * becomes *value, which is in device memory; host threads that load *host with
     * acquire see it soon after. Can be captured. */
    int (*stream_mark)(fdk_stream_t, uint32_t *host, const uint32_t *value);
    int (*event_new)(struct fdk_ctx *, int dev, fdk_event_t *ret);
    void (*event_free)(fdk_event_t);
    int (*event_record)(fdk_event_t, fdk_stream_t);
    int (*event_query)(fdk_event_t); /* 1 done, 0 not yet, -EIO */
    int (*event_sync)(fdk_event_t);
    /* event_sync() with a timeout at until_ns: 1 done, 0 not yet, -EIO. expect_ns: time
     * at which completion is expected, 0 unknown; the caller sleeps until shortly before.
     * Times are CLOCK_MONOTONIC. */
    int (*event_wait)(fdk_event_t, uint64_t expect_ns, uint64_t until_ns);
    uint64_t (*event_ns)(fdk_event_t); /* time of completion, CLOCK_MONOTONIC-like */

    /* Any direction between host and device. */
    int (*copy)(fdk_stream_t, void *dst, const void *src, size_t bytes);
    int (*copy_peer)(fdk_stream_t, int dst_dev, void *dst, int src_dev, const void *src,
        size_t bytes);
    int (*fill)(fdk_stream_t, void *dst, int byte, size_t bytes);

    /* Later launches are captured, not run. Meanwhile stream_sync, stream_wait and
     * event_record return -EBUSY, graph_begin and graph_launch -EINVAL. */
    int (*graph_begin)(fdk_stream_t);
    int (*graph_end)(fdk_stream_t, struct fdk_graph **ret);
    int (*graph_launch)(struct fdk_graph *, fdk_stream_t);
    void (*graph_free)(struct fdk_graph *);

    /* Query rows per token and per tile of attention over these heads. */
    void (*att_shape)(const struct fdk_attention_args *, int32_t *ret_a, int32_t *ret_bt);
    /* Bytes of fdk_att_plan_args.plan for n_work_max tiles; may be NULL: 0. */
    size_t (*att_plan_bytes)(const struct fdk_attention_args *, int32_t n_work_max);
    /* Bytes of scratch that suffice for every launch with at most that many rows. Depends
     * only on shapes and types. */
    size_t (*gemm_scratch)(const struct fdk_gemm_args *);
    /* kv, scale and b->table_stride must be those of the launch. */
    size_t (*attention_scratch)(struct fdk_ctx *, const struct fdk_attention_args *);
    size_t (*sample_scratch)(const struct fdk_sample_args *);
    int (*row_update)(const struct fdk_row_update_args *, fdk_stream_t);
    int (*att_plan)(const struct fdk_att_plan_args *, fdk_stream_t);
    /* att_plan on the host, synchronous: all pointers are host pointers, including those
     * of block tables and outputs. The caller copies the results to a device unchanged;
     * they are for every device of the context. */
    int (*att_plan_host)(struct fdk_ctx *, int dev, const struct fdk_att_plan_args *);
    int (*embed)(const struct fdk_embed_args *, fdk_stream_t);
    int (*rmsnorm)(const struct fdk_rmsnorm_args *, fdk_stream_t);
    int (*gemm)(const struct fdk_gemm_args *, fdk_stream_t);
    /* Selects the best algorithm for GEMMs of 1 to a->T rows. Without this the first
     * launch with a number of rows does so. Waits for the stream; y is overwritten. May
     * be NULL. */
    int (*gemm_choose)(const struct fdk_gemm_args *, fdk_stream_t);
    int (*rope_table)(const struct fdk_rope_table_args *, fdk_stream_t);
    int (*qkv)(const struct fdk_qkv_args *, fdk_stream_t);
    int (*attention)(const struct fdk_attention_args *, fdk_stream_t);
    int (*silu_mul)(const struct fdk_silu_mul_args *, fdk_stream_t);
    int (*softcap)(const struct fdk_softcap_args *, fdk_stream_t);
    int (*merge)(const struct fdk_merge_args *, fdk_stream_t);
    int (*gather)(const struct fdk_gather_args *, fdk_stream_t);
    int (*sample)(const struct fdk_sample_args *, fdk_stream_t);

    /* Chooses the layout of a matrix that only GEMMs read, from its format, rows, cols
     * and group; sets layout, bytes and scale_at. -ENOTSUP: no GEMM takes such a
     * matrix. */
    int (*weight_layout)(struct fdk_weight *);
    const char *(*layout_name)(int32_t layout);
    /* With on_host, x and the weight are in host memory, the call has finished the work
     * when it returns, and the stream may be NULL. Several threads may call it for
     * different rows. */
    int (*weight_pack)(const struct fdk_pack_args *, fdk_stream_t);
    int (*dummy)(const struct fdk_dummy_args *, fdk_stream_t); /* on_host: may be NULL */

    /* Runs of operations that one launch may cover (kernels/program.h); earlier entries
     * of the table are preferred. NULL: none. */
    const struct fdk_fusion *fusion;
    int32_t n_fusion;
    /* Operations that no other backend has (kernels/program.h). NULL: none. */
    const struct fdk_own *own;
    int32_t n_own;
    /* Kernels of a complete operation in the order of launch: substrings of their
     * symbols, separated by blanks. One with ? is launched only if needed; "-" stands for
     * the kernels of a library. NULL: the backend has no kernels. */
    const char *(*op_kernels)(struct fdk_ctx *, int dev, const struct fdk_op *);
    /* Is there a kernel for an operation that is complete except for its pointers?
     * Returns 0 if there is, 1 if there is only one far from the device's measured peak,
     * -ENOTSUP if there is none. For 1 and -ENOTSUP why gets the supported values ("head
     * dimensions of up to 256"). NULL: not known before the launch. */
    int (*op_takes)(struct fdk_ctx *, int dev, const struct fdk_op *, char *why,
        size_t why_bytes);
    /* Describes in what launches so far deviated from op_takes(), such as running without
     * tensor maps because the driver refused them; "" or NULL: in nothing. */
    const char *(*fell_back)(struct fdk_ctx *, int dev);
    /* The largest number of rows that the same kernels compute with the same bits as a->T
     * rows. NULL: any number. */
    int32_t (*gemm_class)(struct fdk_ctx *, int dev, const struct fdk_gemm_args *a);

    /* kernels/collective.h */
    int (*group_new)(struct fdk_ctx *, const struct fdk_group_args *,
        struct fdk_group **ret, char *err, size_t err_bytes);
    void (*group_free)(struct fdk_group *);
    uint64_t (*group_bytes)(struct fdk_ctx *, const struct fdk_group_args *);
    void (*group_abort)(struct fdk_group *, int32_t rank);
    void (*group_ways)(struct fdk_group *, const struct fdk_group_ways *set,
        struct fdk_group_ways *was);
    int (*all_reduce)(const struct fdk_all_reduce_args *, fdk_stream_t);
    int (*all_gather)(const struct fdk_all_gather_args *, fdk_stream_t);
    int (*reduce_send)(const struct fdk_all_reduce_args *, fdk_stream_t);
    int (*reduce_take)(const struct fdk_all_reduce_args *, fdk_stream_t);
    int (*kv_share)(const struct fdk_kv_share_args *, fdk_stream_t);
    int (*row_share)(const struct fdk_row_share_args *, fdk_stream_t);
};

extern const struct fdk_ops fdk_ops_cpu;
extern const struct fdk_ops fdk_ops_cuda; /* built without CUDA: available() says so */
extern const struct fdk_ops fdk_ops_null;

/* Writes the list of CPUs near the PCI device bus_id ("0000:1B:00.0") from the kernel's
 * folder sysfs ("/sys"). Returns 0 or -errno. */
int fdk_pci_cpus(const char *sysfs, const char *bus_id, char *ret, size_t ret_bytes);

/* Free memory of the machine in bytes (MemAvailable); 0 unknown. */
uint64_t fdk_host_mem_free(void);

/* FDK_EXEC_DEFER: runs up to n commands that are due, round robin over the
 * streams. Returns how many ran. Tests simulate a slow or fast device with it. */
int32_t fdk_vdev_step(struct fdk_ctx *, int32_t n);

/* Philox4x32-10 as the sampler uses it; also for tests and host code. */
void fdk_philox(uint64_t key, const uint32_t ctr[4], uint32_t ret[4]);

#ifdef __cplusplus
}
#endif
#endif
