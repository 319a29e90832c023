/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A model is a program: config.json becomes a flat array of operations over
 * numbered buffers and named weights. Pure planning: nothing here touches a
 * device. Called once by the worker's main thread at load; read-only after.
 *
 *   mdl_config_read()   config.json (+ generation_config.json) to struct
 *                       mdl_config, every field checked against the maxima below
 *   mdl_build()         the family's builder emits the program of a rank, which all
 *                       ranks of a tensor-parallel group share
 *   wts_plan()/load     (weights.h) load the program's weights from files
 *   run_setup()         (runner.h) places buffers, binds pointers
 *
 * A family is one file model_<family>.c with one struct mdl_family. To add a family,
 * write that file and add a line to mdl_families[].
 */
#ifndef FDD_DAEMON_WORKER_MODEL_H
#define FDD_DAEMON_WORKER_MODEL_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/fdk.h"

#define MDL_MAX_LAYER    512
#define MDL_MAX_HEAD     1024
#define MDL_MAX_HEAD_DIM 512
#define MDL_MAX_HIDDEN   131072
#define MDL_MAX_FFN      1048576
#define MDL_MAX_VOCAB    4194304
#define MDL_MAX_POS      16777216
#define MDL_MAX_EOS      8
#define MDL_NAME         128 /* bytes of a weight's name */
#define MDL_MAX_PART     3   /* tensors stacked into one weight (q, k, v) */

enum mdl_rope {
    MDL_ROPE_DEFAULT,
    MDL_ROPE_LINEAR,
    MDL_ROPE_DYNAMIC,
    MDL_ROPE_LLAMA3,
    MDL_ROPE_YARN,
    MDL_ROPE_LONGROPE
};

/* Norms of queries and keys: none, one per head, or one over all heads of a token. */
enum mdl_qk_norm { MDL_QK_NONE, MDL_QK_HEAD, MDL_QK_ALL };

/* What one scale of a checkpoint's e4m3 matrix applies to. */
enum mdl_quant { MDL_QUANT_NONE, MDL_QUANT_BLOCK, MDL_QUANT_TENSOR, MDL_QUANT_CHANNEL };
#define MDL_FP8_BLOCK 128 /* rows and columns of a block */

/* Sampling defaults from generation_config.json; NAN: the field is absent. */
struct mdl_sampling {
    int do_sample; /* 0: false; 1: true or absent */
    double temperature, top_p, top_k, min_p, repetition_penalty;
};

struct mdl_config {
    char family[32]; /* "llama", "qwen3" */
    char architecture[64];
    int32_t n_layer, n_head, n_kv_head, head_dim, hidden, ffn, vocab;
    int32_t max_pos;
    int32_t window; /* keys that a query sees in layers with a window; 0: all */
    uint8_t windowed[MDL_MAX_LAYER]; /* 1: the layer has the window, and with
                                        rope_local_theta its rotations */
    float norm_eps, norm_offset; /* norm_offset is added to the weights of all norms */
    int tied, qkv_bias, o_bias, mlp_bias;
    enum mdl_qk_norm qk_norm;
    enum fdk_gate gate;
    /* Factors of the embeddings, of a sublayer's output, of the product of queries and
     * keys, and of the logits. */
    float embed_scale, residual_scale, attention_scale, logit_scale;
    float att_softcap, logit_softcap; /* 0: none */
    enum mdl_rope rope;
    int32_t rot;     /* how many elements of a head are rotated */
    int interleaved; /* rotates 2 i with 2 i + 1; else i with rot / 2 + i */
    uint8_t no_rope[MDL_MAX_LAYER]; /* 1: the layer has no rotation */
    double rope_theta, rope_factor;
    double rope_local_theta; /* theta of layers with a window, unscaled; 0: rope_theta */
    double rope_attention;   /* cos and sin are multiplied by it */
    double rope_low_freq, rope_high_freq;  /* llama3 */
    double rope_beta_fast, rope_beta_slow; /* yarn */
    int rope_truncate;
    float rope_short[MDL_MAX_HEAD_DIM / 2], rope_long[MDL_MAX_HEAD_DIM / 2]; /* longrope */
    int32_t rope_original_max_pos;
    enum fdk_dtype dtype; /* as in config.json; a tensor's own type takes precedence */
    enum mdl_quant quant; /* NONE: no e4m3 weights */
    int32_t n_eos, eos[MDL_MAX_EOS];
    int32_t bos; /* -1 if none */
    struct mdl_sampling gen;
    char ignored[512];  /* fields of config.json that are not read: "a, b" */
    uint64_t digest[4]; /* SHA-256 of config.json's bytes */
};

/* How a weight is split over the ranks of a tensor-parallel group. FIRST: rank 0 has the
 * weight, other ranks have zeros: for the bias of a GEMM whose results the ranks sum. */
enum wts_shard { WTS_WHOLE, WTS_ROWS, WTS_COLS, WTS_FIRST };

/* A range of a weight's rows that is split on its own: rank r has rank_rows of them, from
 * row r / share * rank_rows on. Rows beyond the last one are zeros. */
struct wts_cut {
    int32_t rows, rank_rows, share;
};

/* One weight of the program: 1..MDL_MAX_PART checkpoint tensors of equal
 * width stacked by rows. A rank has the rows of its cuts, stacked, and rank_cols columns:
 * with WTS_COLS those from r * rank_cols on. */
struct wts_ref {
    int32_t n_part;
    char name[MDL_MAX_PART][MDL_NAME];
    int32_t rows[MDL_MAX_PART];
    int32_t cols; /* 1-D tensors: cols = 0, rows = length */
    int32_t n_cut;
    struct wts_cut cut[MDL_MAX_PART]; /* cover all rows; need not match the tensors */
    int32_t rank_cols;
    enum wts_shard shard;
    int32_t split;  /* with mdl_program.n_split > 1: the rank whose columns the
                       weight has */
    int32_t as_f32; /* converted at load (norms, biases) */
    int32_t alias;  /* index of the ref that holds the bytes (tied head), -1: none */
};

enum mdl_op_kind {
    MDL_OP_EMBED,
    MDL_OP_ROPE_TABLE,
    MDL_OP_RMSNORM,
    MDL_OP_GEMM,
    MDL_OP_QKV,
    MDL_OP_ATTENTION,
    MDL_OP_MERGE,
    MDL_OP_SILU_MUL,
    MDL_OP_GATHER,
    MDL_OP_LOGITS,
    MDL_OP_SOFTCAP,
    MDL_OP_SAMPLE,
    MDL_OP_ALLREDUCE,
    MDL_OP_ALLGATHER,
    MDL_OP_COLUMNS,
    MDL_OP_ADD,
    MDL_OP_KVSHARE,
    MDL_OP_ROWSHARE,
    MDL_OP__N
};

/* The rows of a buffer or an operation: one per token of the step, or one per output. */
enum mdl_rows { MDL_PER_TOKEN, MDL_PER_OUT };

/*
 * After the last layer has written its keys and values, only output rows
 * matter. The program has two tails, and a step runs one of them after the
 * operations of MDL_TAIL_BOTH:
 *
 *   TOKENS   computes all tokens and gathers the output rows of the final norm. It
 *            launches only the layer's operations and one gather. Used for steps whose
 *            tokens are mostly outputs, or so few that reading the weights determines the
 *            time
 *   OUTPUTS  computes attention for the tiles that have an output; gathers output rows of
 *            its result and of the residual stream; output projection, MLP and final norm
 *            have only these rows. A step without outputs runs no tail
 *
 * Both tails give a row the same bits if the bits of its GEMMs do not depend on the
 * number of rows.
 */
enum mdl_tail { MDL_TAIL_BOTH, MDL_TAIL_TOKENS, MDL_TAIL_OUTPUTS };

struct mdl_buf {
    char name[16];
    enum mdl_rows rows;
    int32_t width;       /* elements per row */
    int32_t f32;         /* 1: fp32; 0: the type of activations */
    int32_t first, last; /* first and last operation that use it. Only x and the rope
                            tables are used in more than one layer */
};

/*
 * Fields that each kind uses besides layer and rows (all others are -1 or 0):
 *
 *   EMBED       out; w (N, K) = (vocabulary, hidden). Each rank has program.vocab_rows
 *               rows; the row of token i is on rank i / vocab_rows; f = scale
 *   ROPE_TABLE  out (width rot); f = rope_scale; frequencies: program.inv_freq from
 *               freq on, and mdl_rope_args()
 *   RMSNORM     in, in2 or -1, out; w (N); f = eps; norm, scale =
 *               fdk_rmsnorm_args.add_scale. FDK_NORM_POST: out or -1, and no w without
 *               in2
 *   GEMM        in (width K), out (width N); w (N, K); bias or -1
 *   QKV         in = out = the qkv buffer; in2 = the rope table or -1: no rotation;
 *               w, w2 = q norm, k norm or -1; f = eps. With several ranks and a norm over
 *               all heads: in = the rows of all ranks
 *   ATTENTION   in = qkv; out (width H D); f = scale; window, softcap or 0. If several
 *               ranks share the tokens of KV heads: in = the rows of these ranks, out
 *               (width kv_split H (D + 1), fp32) = fdk_attention_args.y
 *   MERGE       in = all ranks' partial results for this rank's heads; out (width H D)
 *   SILU_MUL    in (width 2 N); out (width N); the program's cfg.gate
 *   GATHER      in (per token), out (per output row); N = width
 *   LOGITS      a GEMM over output rows; out (width N = program.vocab_rows)
 *   SOFTCAP     in = out = logits; N = width; scale; softcap or 0
 *   SAMPLE      in = logits of all ranks; N = vocabulary; K = width of in
 *   ALLREDUCE   in = out; N = width: the sum over the ranks. Follows a GEMM and precedes
 *               the RMSNORM whose in2 is its out
 *   ALLGATHER   in (width N), out (width n_rank N): concatenates the rows of all ranks.
 *               owners: only among the kv_split ranks that share tokens; each: a row of
 *               in holds kv_split rows of width N, one for each of these ranks
 *   COLUMNS     in (width K), out (width N): the columns of in from first on
 *   ADD         in, in2, out (width N): out = in + in2
 *   KVSHARE     exchanges the keys and values that the preceding QKV wrote with the other
 *               copies; runs only in steps that copies divide
 *   ROWSHARE    exchanges sampled tokens and logprobs between copies: the last operation
 * Only programs of several ranks have ALLREDUCE and ALLGATHER, only those of several
 * copies KVSHARE and ROWSHARE, only those of mdl_build_reference() COLUMNS and ADD.
 */
struct mdl_op {
    enum mdl_op_kind kind;
    int32_t layer; /* -1 outside of layers */
    enum mdl_rows rows;
    enum mdl_tail tail;
    int32_t in, in2, out; /* buffer ids, -1 none; RMSNORM: in = residual
                             stream, in2 = added to it first */
    int32_t w, w2, bias;  /* wts_ref indices, -1 none; QKV: w, w2 = q, k norm */
    int32_t N, K;         /* GEMM, LOGITS: (N, K) of w */
    float f;              /* eps, attention scale, embedding scale, rope scale */
    int32_t window;       /* ATTENTION: keys that a query sees, 0: all */
    float softcap, scale;
    enum fdk_norm norm;   /* RMSNORM */
    int32_t freq;         /* ROPE_TABLE */
    int32_t owners, each; /* ALLGATHER */
    int32_t first;        /* COLUMNS */
};

struct mdl_names;
/* A KV group: layers whose keys and values share blocks. A sequence has one block table
 * per group. All layers of a group have the same KV heads, dims and window. */
struct mdl_kv_group {
    int32_t n_layer, n_kv_head, head_dim;
    int32_t window; /* 0: none */
};
/* A layer's KV group, and its index among the group's layers. */
struct mdl_kv_at {
    int32_t group, layer;
};

struct mdl_program {
    struct mdl_config cfg;
    const struct mdl_names *names; /* tensor names of the family */
    int32_t n_rank;  /* ranks of the tensor-parallel group, 1..FDK_MAX_RANKS */
    int32_t n_split; /* mdl_build_reference(): GEMMs that replace one row-parallel GEMM;
                        else 1 */
    int32_t n_copy;  /* copies of the model, each with n_rank ranks, that divide
                        long prompts */
    /* Numbers of one rank; cfg has those of the model. */
    int32_t n_head, n_kv_head, ffn;
    int32_t kv_share;  /* rank r has the KV heads from r / kv_share * n_kv_head on */
    int32_t kv_split;  /* ranks that divide the tokens of a block among them: n = kv_split
                          / kv_copies consecutive ranks of each of kv_copies copies; n
                          divides kv_share. Rank r of copy p has index (p % kv_copies) n +
                          r % n among them */
    int32_t kv_copies; /* 1: each copy has the KV of all tokens; n_copy: all copies
                          share it */
    int32_t vocab_rows; /* rows of embedding and head per rank; beyond the
                           vocabulary zeros */
    struct mdl_op *op;
    int32_t n_op;
    struct mdl_buf *buf;
    int32_t n_buf;
    struct wts_ref *w;
    int32_t n_w;
    struct mdl_kv_group kv_group[FDK_MAX_KV_GROUPS];
    int32_t n_kv_group; /* at least 1 */
    struct mdl_kv_at kv_at[MDL_MAX_LAYER];
    float *inv_freq; /* (n_freq) rope scaling applied: a table of rot / 2 values, for
                        longrope two; then, with rope_local_theta, a table for it */
    int32_t n_freq, rot;
    float rope_scale;
    int has_tails; /* there are operations of MDL_TAIL_TOKENS and _OUTPUTS */
    int err;       /* -errno of the first mdl_add_* that failed, 0 */
};

/* Names of a layer's tensors, without "model.layers.N."; those of norms without
 * ".weight" too. */
struct mdl_names {
    /* Norms before and after attention, and before and after the MLP; NULL: no such
     * norm. */
    const char *pre_attention, *post_attention, *pre_mlp, *post_mlp;
    const char *qkv,
        *gate_up; /* NULL: separate tensors q_proj, k_proj, v_proj; gate_proj, up_proj */
};

/* An integer that stands in for an absent field of config.json. */
struct mdl_default {
    const char *key;
    int32_t value;
};
/* Tensors whose names begin with `from` begin with `to` in the program. */
struct mdl_rename {
    const char *from, *to;
};

struct mdl_family {
    const char *name;                 /* model_type of config.json */
    const char *const *architectures; /* NULL ended */
    /* Unused tensors to ignore; * matches digits, and a final . matches any rest. */
    const char *const *harmless;
    /* For a multimodal model: the object of config.json that describes the text model,
     * its model_type, and the defaults of its fields, ended by a NULL key. nested NULL:
     * config.json itself describes the text model. */
    const char *nested, *nested_type;
    const struct mdl_default *nested_defaults;
    const struct mdl_rename *renames; /* ended by a NULL from; NULL: there are none */
    const char *const *fields;        /* fields that not all families read; NULL ended */
    const struct mdl_names *names;    /* NULL: Llama's */
    const char *act_field; /* field of the MLP's activation, default gelu_pytorch_tanh;
                              NULL: hidden_act, default silu */
    /* Defaults of fields of config.json. */
    int default_tied, default_bias; /* tie_word_embeddings, attention_bias */
    double default_eps;             /* rms_norm_eps; 0: 1e-6 */
    double default_theta;           /* rope_theta; 0: 10000 */
    double default_local_theta;     /* rope_local_base_freq; 0: the family has no
                                       such field */
    double default_partial;   /* partial_rotary_factor; 0: the family does not read it */
    int rope_su;              /* rope types su and yarn mean longrope */
    int32_t default_head_dim; /* head_dim; 0: hidden_size / num_attention_heads */
    int null_head_dim;        /* 1: a head_dim of null means that quotient too */
    int32_t default_kv_head;  /* num_key_value_heads; if 0 or no
                                 divisor: num_attention_heads */
    int32_t default_original; /* original_max_position_embeddings, read only at the top
                                 level; 0: max_position_embeddings */
    int32_t default_window;   /* sliding_window; 0: the family has no windows;
                                 MDL_MAX_POS: no window unless the field is set */
    int32_t full_every;       /* every n-th layer has no window; 0: no such rule */
    int default_windowed; /* 1: use_sliding_window is not read and counts as true; 0: its
                             default is false */
    int bias_unread;  /* attention_bias is not read: q, k, v and output have no bias */
    int types_unread; /* layer_types has no effect: all layers have the window or none */
    int32_t default_full; /* max_window_layers: layers before the first with a window; 0:
                             the field is not read */
    /* Reads the family's own fields of config.json (a json_t *), after the common
     * ones. */
    int (*config)(const void *json, struct mdl_config *cfg, char *err, size_t err_bytes);
    int (*build)(struct mdl_program *p);
};
extern const struct mdl_family *const mdl_families[]; /* NULL ended */
const struct mdl_family *mdl_family(const char *name);

/* Read and check dir/config.json and, if it exists, dir/generation_config.json. Returns
 * 0, or -ENOENT, -EACCES, -EINVAL with one line in err: file, field, value, range. */
int mdl_config_read(const char *dir, struct mdl_config *ret, char *err, size_t err_bytes);
/* As mdl_config_read(), from texts in memory; gen may be NULL. */
int mdl_config_parse(const char *json, size_t n, const char *gen, size_t gen_n,
    struct mdl_config *ret, char *err, size_t err_bytes);

/* How a model is divided among ranks. */
struct mdl_ranks {
    int32_t n;        /* tensor parallel: mdl_program.n_rank */
    int32_t n_copy;   /* mdl_program.n_copy */
    int32_t kv_split; /* decode context parallel: mdl_program.kv_split; 0: all ranks of a
                         copy with the same KV heads */
    int32_t n_split;  /* mdl_program.n_split; above 1 only if n is 1 */
    int32_t block;    /* tokens of a KV block, a multiple of kv_split; 0: not checked */
};
/* How many of n ranks of a copy have the same KV heads; 1 if n ranks cannot split
 * the model. */
int32_t mdl_kv_share(const struct mdl_config *cfg, int32_t n);
/* Build the program of a rank. Returns 0, -ENOMEM, -ENOTSUP or -EINVAL: the model cannot
 * be split so; err names the field, its value, and the sizes that are possible. */
int mdl_build_ranks(const struct mdl_config *cfg, const struct mdl_ranks *ranks,
    struct mdl_program **ret, char *err, size_t err_bytes);
/* As mdl_build_ranks(), for n_rank ranks that each hold all tokens of their KV heads. */
int mdl_build(const struct mdl_config *cfg, int32_t n_rank, struct mdl_program **ret,
    char *err, size_t err_bytes);
/* For tests: build a program for one device that computes the results of n_split
 * ranks. Each row-parallel GEMM becomes n_split GEMMs over the columns of one rank
 * each, added in the order of ranks. With fp32 activations its results equal those of
 * n_split ranks bit by bit. The backend must have the operations "columns" and "add".
 * Errors as mdl_build(). */
int mdl_build_reference(const struct mdl_config *cfg, int32_t n_split,
    struct mdl_program **ret, char *err, size_t err_bytes);
struct mdl_program *mdl_free(struct mdl_program *p);
/* Text of a KV group's layers, like "0-4 6-10", cut to ret_bytes. */
void mdl_kv_layers(const struct mdl_program *p, int32_t group, char *ret, size_t ret_bytes);

/* Cost of an operation in a step of T tokens, O rows with one output each, and kv tokens
 * of context per row: bytes moved and floating-point operations. act_bytes: bytes of an
 * activation; the residual stream and logits are fp32. */
void mdl_op_cost(const struct mdl_program *p, const struct mdl_op *op, double T, double O,
    double kv, double w_elt_bytes, double kv_elt_bytes, double act_bytes,
    double *ret_bytes, double *ret_flops);
/* Fewest bytes that a rank must receive from other ranks for an operation of T tokens or
 * O rows; 0 with one rank. */
double mdl_op_link_bytes(const struct mdl_program *p, const struct mdl_op *op, double T,
    double O, double w_elt_bytes, double kv_elt_bytes, double act_bytes);
/* Does a step with this tail run the operation? (KVSHARE only if copies divide the
 * step.) */
static inline int
mdl_op_runs(const struct mdl_op *op, enum mdl_tail tail)
{
    return op->tail == MDL_TAIL_BOTH || op->tail == tail;
}
/* Fill the arguments of a ROPE_TABLE, except pointers and T. */
void mdl_rope_args(const struct mdl_program *p, const struct mdl_op *op,
    struct fdk_rope_table_args *ret);
/* Returns the length in tokens above which a request's rope frequencies differ; 0: they
 * do not depend on its length. *ret_each 1: above it they differ for each greatest
 * length; 0: they are one other set. */
int32_t mdl_rope_from(const struct mdl_config *c, int32_t *ret_each);
const char *mdl_rope_name(enum mdl_rope kind);
const char *mdl_op_name(enum mdl_op_kind k);
/* "none", "fp8, a scale per row" ... */
const char *mdl_quant_name(enum mdl_quant q);
uint64_t mdl_n_param(const struct mdl_program *p);

/* Building blocks for families (model_build.c). Each returns the id, or -1 after
 * setting p->err to -ENOMEM. */
int mdl_add_buf(struct mdl_program *p, const char *name, enum mdl_rows rows, int32_t width);
int mdl_add_w(struct mdl_program *p, const char *name, int32_t rows, int32_t cols,
    enum wts_shard shard, int as_f32);
int mdl_add_w3(struct mdl_program *p, const char *a, int32_t a_rows, const char *b,
    int32_t b_rows, const char *c, int32_t c_rows, int32_t cols, enum wts_shard shard,
    int as_f32); /* c may be NULL; WTS_ROWS: each tensor is a cut, split evenly */
/* Replace the cuts of weight w, unless w is -1; c[n] covers all its rows. */
void mdl_set_cuts(struct mdl_program *p, int32_t w, const struct wts_cut *c, int32_t n);
int mdl_add_op(struct mdl_program *p, struct mdl_op op);
/* Build a dense decoder with RMSNorm, RoPE, GQA and a gated MLP, like Llama. Families
 * pass their differences in cfg and names. */
int mdl_build_dense(struct mdl_program *p);

#endif
