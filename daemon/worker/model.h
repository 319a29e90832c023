/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A model is a program: config.json becomes a flat array of operations over
 * numbered buffers and named weights. Pure planning: nothing here touches a
 * device. Called once by the worker's main thread at load; read-only after.
 *
 *   mdl_config_read()   config.json (+ generation_config.json) to struct
 *                       mdl_config, every field checked against the maxima below
 *   mdl_build()         the family's builder emits the program of a rank; it is the
 *                       same for all ranks of a tensor-parallel group
 *   wts_plan()/load     (weights.h) files to the program's weights
 *   run_open()          (runner.h) places buffers, binds pointers
 *
 * A family is one file model_<family>.c with one struct mdl_family; adding
 * one is writing that file and its line in mdl_families[].
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

/* Norms of queries and keys: none, each head's, or one over all heads of a token. */
enum mdl_qk_norm { MDL_QK_NONE, MDL_QK_HEAD, MDL_QK_ALL };

/* What the scales of a checkpoint's e4m3 matrices hold for. */
enum mdl_quant { MDL_QUANT_NONE, MDL_QUANT_BLOCK, MDL_QUANT_TENSOR, MDL_QUANT_CHANNEL };
#define MDL_FP8_BLOCK 128 /* rows and columns of a block */

/* Of generation_config.json; NAN: it says nothing. */
struct mdl_sampling {
    int do_sample; /* 0: false, else 1 */
    double temperature, top_p, top_k, min_p, repetition_penalty;
};

struct mdl_config {
    char family[32]; /* "llama", "qwen3" */
    char architecture[64];
    int32_t n_layer, n_head, n_kv_head, head_dim, hidden, ffn, vocab;
    int32_t max_pos;
    int32_t window; /* keys that a query sees in layers with a window; 0: none has one */
    uint8_t windowed[MDL_MAX_LAYER];
    float norm_eps, norm_offset; /* of the weights of all norms */
    int tied, qkv_bias, o_bias, mlp_bias;
    enum mdl_qk_norm qk_norm;
    enum fdk_gate gate;
    /* What the embeddings, what a sublayer adds, queries by keys, and logits are
     * multiplied by. */
    float embed_scale, residual_scale, attention_scale, logit_scale;
    float att_softcap, logit_softcap; /* 0: none */
    enum mdl_rope rope;
    int32_t rot;                    /* numbers of a head that are rotated, */
    int interleaved;                /* 2 i with 2 i + 1; else i with rot / 2 + i */
    uint8_t no_rope[MDL_MAX_LAYER]; /* not in this layer */
    double rope_theta, rope_factor;
    double rope_local_theta; /* of layers with a window, without scaling; 0: as the others */
    double rope_attention;                 /* cos and sin are multiplied by it */
    double rope_low_freq, rope_high_freq;  /* llama3 */
    double rope_beta_fast, rope_beta_slow; /* yarn */
    int rope_truncate;
    float rope_short[MDL_MAX_HEAD_DIM / 2], rope_long[MDL_MAX_HEAD_DIM / 2]; /* longrope */
    int32_t rope_original_max_pos;
    enum fdk_dtype dtype; /* as config.json names it; files decide */
    enum mdl_quant quant; /* NONE: no e4m3 weights */
    int32_t n_eos, eos[MDL_MAX_EOS];
    int32_t bos; /* -1 if none */
    struct mdl_sampling gen;
    char ignored[512];  /* fields of config.json that are not read: "a, b" */
    uint64_t digest[4]; /* SHA-256 of config.json's bytes */
};

/* How a weight is split over the ranks of a tensor-parallel group. FIRST: rank 0 has it, the
 * others have zeros in its place: a bias of what is summed over the ranks. */
enum wts_shard { WTS_WHOLE, WTS_ROWS, WTS_COLS, WTS_FIRST };

/* Rows of a weight that are split by themselves: rank r has rank_rows of them, from
 * r / share * rank_rows on. What would lie behind the last one are zeros. */
struct wts_cut {
    int32_t rows, rank_rows, share;
};

/* One weight of the program: 1..MDL_MAX_PART checkpoint tensors of equal
 * width stacked by rows. A rank has the rows of its cuts, one below the other, and rank_cols
 * columns: WTS_COLS: those from r * rank_cols on. */
struct wts_ref {
    int32_t n_part;
    char name[MDL_MAX_PART][MDL_NAME];
    int32_t rows[MDL_MAX_PART];
    int32_t cols; /* 1-D tensors: cols = 0, rows = length */
    int32_t n_cut;
    struct wts_cut cut[MDL_MAX_PART]; /* all rows, whatever tensor they are of */
    int32_t rank_cols;
    enum wts_shard shard;
    int32_t split; /* of a program with n_split > 1: the weight is what rank `split` has */
    int32_t as_f32; /* converted at load (norms, biases) */
    int32_t alias;  /* index of the ref holding the bytes (tied head), -1 */
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

/* Rows a buffer or an operation has: tokens of the step or output rows. */
enum mdl_rows { MDL_PER_TOKEN, MDL_PER_OUT };

/*
 * Behind the last layer's keys and values only output rows matter. The program has this
 * tail twice, and a step runs the operations of one of them besides those of
 * MDL_TAIL_BOTH:
 *
 *   TOKENS   all tokens go on; the final norm's output rows are gathered. Nothing is
 *            launched besides the layers' operations and one gather, so it is the one
 *            for steps whose tokens are mostly outputs, or so few that the weights' bytes
 *            are the time
 *   OUTPUTS  attention is computed for the tiles that have an output; output rows of its
 *            result and of the residual stream are gathered; output projection, MLP and
 *            final norm have these rows alone. A step without outputs has no tail
 *
 * A row's bits are the same in both as far as its GEMMs' are for any number of rows.
 */
enum mdl_tail { MDL_TAIL_BOTH, MDL_TAIL_TOKENS, MDL_TAIL_OUTPUTS };

struct mdl_buf {
    char name[16];
    enum mdl_rows rows;
    int32_t width;       /* elements per row */
    int32_t f32;         /* 1: of fp32; 0: of the run's activation type */
    int32_t first, last; /* operations between which it is alive, both
                                     included; a buffer is written and read within
                                     one layer only, but for x and the rope table */
};

/*
 * What each kind uses besides layer and rows (fields not named are -1 or 0):
 *
 *   EMBED       out; w (N, K) = (vocabulary, hidden), of which each rank has
 *               program.vocab_rows rows: that of token i is with rank i / vocab_rows;
 *               f = scale
 *   ROPE_TABLE  out (width rot); f = rope_scale; frequencies: program.inv_freq from
 *               freq on, and mdl_rope_args()
 *   RMSNORM     in, in2 or -1, out; w (N); f = eps; norm, scale = fdk_rmsnorm_args.add_scale.
 *               FDK_NORM_POST: out or -1, and no w without in2
 *   GEMM        in (width K), out (width N); w (N, K); bias or -1
 *   QKV         in = out = the qkv buffer; in2 = the rope table or -1: no rotation;
 *               w, w2 = q norm, k norm or -1; f = eps. With a norm over all heads of several
 *               ranks in = the rows of all of them
 *   ATTENTION   in = qkv; out (width H D); f = scale; window, softcap or 0. Of several
 *               ranks that share KV heads' tokens: in = their rows, out (width
 *               kv_split H (D + 1), fp32) = fdk_attention_args.y
 *   MERGE       in = such shares of this rank's heads; out (width H D)
 *   SILU_MUL    in (width 2 N); out (width N); the program's cfg.gate
 *   GATHER      in (per token), out (per output row); N = width
 *   LOGITS      a GEMM over output rows; out (width N = program.vocab_rows)
 *   SOFTCAP     in = out = logits; N = width; scale; softcap or 0
 *   SAMPLE      in = logits, of all ranks; N = vocabulary; K = width of in
 *   ALLREDUCE   in = out; N = width: the sum over the ranks. Stands between a GEMM and the
 *               RMSNORM whose in2 is its out
 *   ALLGATHER   in (width N), out (width n_rank N): a row of each rank one behind the other.
 *               owners: of the kv_split ranks that share tokens alone; each: in has as many
 *               rows of N in one, one for each of them
 *   COLUMNS     in (width K), out (width N): the columns of in from first on
 *   ADD         in, in2, out (width N): out = in + in2
 *   KVSHARE     keys and values that the QKV before it wrote, to and from the other copies; in
 *               steps that copies divide alone
 *   ROWSHARE    what was sampled and scored, between copies: the last operation
 * ALLREDUCE and ALLGATHER are in programs of several ranks alone, KVSHARE and ROWSHARE in those
 * of several copies, COLUMNS and ADD in those of mdl_build_reference().
 */
struct mdl_op {
    enum mdl_op_kind kind;
    int32_t layer; /* -1 outside of layers */
    enum mdl_rows rows;
    enum mdl_tail tail;
    int32_t in, in2, out; /* buffer ids, -1 none; RMSNORM: in = residual
                                     stream, in2 = what is added first */
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
/* Layers whose keys and values share blocks: each group has its own block table for each
 * sequence. All have the same KV heads, dims and window. */
struct mdl_kv_group {
    int32_t n_layer, n_kv_head, head_dim;
    int32_t window; /* 0: none */
};
/* A layer's group, and which of its layers it is. */
struct mdl_kv_at {
    int32_t group, layer;
};

struct mdl_program {
    struct mdl_config cfg;
    const struct mdl_names *names; /* of its family */
    int32_t n_rank;                /* of the tensor-parallel group, 1..FDK_MAX_RANKS */
    int32_t n_split; /* products that make up one whose sum several ranks share; 1: one */
    int32_t n_copy;  /* of all these ranks: they divide long prompts; 1: there is one */
    /* What a rank has; cfg has the model's numbers. */
    int32_t n_head, n_kv_head, ffn;
    int32_t kv_share; /* rank r has the KV heads from r / kv_share * n_kv_head on */
    int32_t kv_split; /* ranks that divide the tokens of a block among them: each kv_split /
                            kv_copies consecutive ones, which divides kv_share, of kv_copies
                            copies. Rank r of copy p is (p % kv_copies) kv_split / kv_copies +
                            r % (kv_split / kv_copies) of them */
    int32_t kv_copies;  /* 1: each copy has all tokens; n_copy: all of them share */
    int32_t vocab_rows; /* of embedding and head; behind the vocabulary they are zeros */
    struct mdl_op *op;
    int32_t n_op;
    struct mdl_buf *buf;
    int32_t n_buf;
    struct wts_ref *w;
    int32_t n_w;
    struct mdl_kv_group kv_group[FDK_MAX_KV_GROUPS];
    int32_t n_kv_group; /* at least 1 */
    struct mdl_kv_at kv_at[MDL_MAX_LAYER];
    float *inv_freq; /* (n_freq) rope scaling applied: rot / 2 values; longrope: two of
                        them; then, with rope_local_theta, those */
    int32_t n_freq, rot;
    float rope_scale;
    int has_tails; /* operations of MDL_TAIL_TOKENS and _OUTPUTS */
    int err;       /* of the first mdl_add_* that failed, 0 */
};

/* Tensors of a layer, without "model.layers.N." and ".weight". */
struct mdl_names {
    /* Norms before and behind attention, and the same of the MLP; NULL: there is none. */
    const char *pre_attention, *post_attention, *pre_mlp, *post_mlp;
    const char *qkv,
        *gate_up; /* one tensor; NULL: q_proj, k_proj, v_proj; gate_proj, up_proj */
};

/* A whole number in place of a field of config.json that is not there. */
struct mdl_default {
    const char *key;
    int32_t value;
};
/* Tensors whose names begin so, and how they begin in the program. */
struct mdl_rename {
    const char *from, *to;
};

struct mdl_family {
    const char *name;                 /* model_type of config.json */
    const char *const *architectures; /* NULL ended */
    /* Extra tensors ignored; * matches digits, and . at the end whatever follows. */
    const char *const *harmless;
    /* The object of config.json that describes the text model, of a model of several kinds
     * of input; NULL: config.json itself does. With its model_type, and what its absent
     * fields are, ended by a NULL key. */
    const char *nested, *nested_type;
    const struct mdl_default *nested_defaults;
    const struct mdl_rename *renames; /* ended by a NULL from; NULL: there are none */
    const char *const *fields;        /* of config.json that it alone reads; NULL ended */
    const struct mdl_names *names;    /* NULL: Llama's */
    const char *act_field; /* of the MLP, gelu_pytorch_tanh; NULL: hidden_act, silu */
    int default_tied, default_bias; /* tie_word_embeddings, attention_bias */
    double default_eps;             /* rms_norm_eps; 0: 1e-6 */
    double default_theta;           /* rope_theta; 0: 10000 */
    double default_local_theta;     /* rope_local_base_freq; 0: it has none */
    double default_partial; /* partial_rotary_factor; 0: the family does not read it */
    int rope_su;            /* rope types su and yarn mean longrope */
    int32_t default_head_dim; /* 0: hidden_size / num_attention_heads, as for null_head_dim */
    int null_head_dim;        /* of null */
    int32_t default_kv_head; /* num_key_value_heads; 0, or no divisor: num_attention_heads */
    int32_t default_original; /* original_max_position_embeddings, which one next to the rope
                                 type does not change; 0: max_position_embeddings */
    int32_t default_window; /* sliding_window; 0: the family has no windows;
                                 MDL_MAX_POS: none unless it is given */
    int32_t full_every;     /* every n-th layer has no window; 0: this is not so */
    int default_windowed;   /* 1: use_sliding_window is not read, it is true; 0: false */
    int bias_unread;  /* attention_bias; q, k, v and the output projection have none */
    int types_unread; /* layer_types; of Phi-3, all layers have the window or none */
    int32_t default_full; /* max_window_layers: layers before the first with a window; 0: it
                                 is not read */
    /* Family-specific fields of config.json (a json_t *), after the common ones. */
    int (*config)(const void *json, struct mdl_config *cfg, char *err, size_t err_bytes);
    int (*build)(struct mdl_program *p);
};
extern const struct mdl_family *const mdl_families[]; /* NULL ended */
const struct mdl_family *mdl_family(const char *name);

/* Read and check dir/config.json and, if there, dir/generation_config.json.
 * -ENOENT, -EACCES, -EINVAL with one line in err: file, field, value, range. */
int mdl_config_read(const char *dir, struct mdl_config *ret, char *err, size_t err_bytes);
/* The same from memory (fuzzing); gen may be NULL. */
int mdl_config_parse(const char *json, size_t n, const char *gen, size_t gen_n,
    struct mdl_config *ret, char *err, size_t err_bytes);

/* How a model is divided among ranks. */
struct mdl_ranks {
    int32_t n;      /* tensor parallel */
    int32_t n_copy; /* mdl_program.n_copy */
    int32_t kv_split; /* decode context parallel: mdl_program.kv_split; 0: all of a copy that
                         have the same KV heads */
    int32_t n_split; /* mdl_program.n_split; with one rank */
    int32_t block;   /* tokens of a KV block, which kv_split has to divide; 0: any */
};
/* Ranks of a copy with the same KV heads; 1 where the model cannot be split over n. */
int32_t mdl_kv_share(const struct mdl_config *cfg, int32_t n);
/* The program of a rank. -EINVAL: the model cannot be split so; err names the
 * field, its value, and which sizes can be. -ENOMEM, -ENOTSUP. */
int mdl_build_ranks(const struct mdl_config *cfg, const struct mdl_ranks *ranks,
    struct mdl_program **ret, char *err, size_t err_bytes);
/* The same of n_rank ranks which hold all tokens of their KV heads each. */
int mdl_build(const struct mdl_config *cfg, int32_t n_rank, struct mdl_program **ret,
    char *err, size_t err_bytes);
/* The program of one device that computes what n_split ranks do: each product whose addends
 * are spread over ranks is n_split products over the columns that they have, added in the
 * order of ranks. With fp32 activations its results are the bits of that many ranks. For
 * tests; the backend must have the operations "columns" and "add". Errors as mdl_build(). */
int mdl_build_reference(const struct mdl_config *cfg, int32_t n_split,
    struct mdl_program **ret, char *err, size_t err_bytes);
struct mdl_program *mdl_free(struct mdl_program *p);
/* The layers of a KV group: "0-4 6-10", cut to ret_bytes. */
void mdl_kv_layers(const struct mdl_program *p, int32_t group, char *ret, size_t ret_bytes);

/* Cost of an operation for T tokens of O rows (one output each) that see kv
 * context tokens each: bytes moved and floating-point operations. act_bytes: of an
 * activation; those of the residual stream and of logits are fp32. */
void mdl_op_cost(const struct mdl_program *p, const struct mdl_op *op, double T, double O,
    double kv, double w_elt_bytes, double kv_elt_bytes, double act_bytes,
    double *ret_bytes, double *ret_flops);
/* Bytes that a rank must take from others at least for an operation of T tokens or O rows,
 * 0 with one rank. */
double mdl_op_link_bytes(const struct mdl_program *p, const struct mdl_op *op, double T,
    double O, double w_elt_bytes, double kv_elt_bytes, double act_bytes);
/* Does a step with this tail run it? KVSHARE: if copies divide the step besides. */
static inline int
mdl_op_runs(const struct mdl_op *op, enum mdl_tail tail)
{
    return op->tail == MDL_TAIL_BOTH || op->tail == tail;
}
/* For a ROPE_TABLE: all but pointers and T. */
void mdl_rope_args(const struct mdl_program *p, const struct mdl_op *op,
    struct fdk_rope_table_args *ret);
/* Requests that may have more tokens than this have frequencies of their own, with ret_each
 * those of each greatest length others; 0: frequencies do not depend on lengths. */
int32_t mdl_rope_from(const struct mdl_config *c, int32_t *ret_each);
const char *mdl_rope_name(enum mdl_rope kind);
const char *mdl_op_name(enum mdl_op_kind k);
/* "none", "fp8, a scale per row" ... */
const char *mdl_quant_name(enum mdl_quant q);
uint64_t mdl_n_param(const struct mdl_program *p);

/* Building blocks for families (model_build.c). Each returns the id or -1
 * after recording -ENOMEM in p. */
int mdl_add_buf(struct mdl_program *p, const char *name, enum mdl_rows rows, int32_t width);
int mdl_add_w(struct mdl_program *p, const char *name, int32_t rows, int32_t cols,
    enum wts_shard shard, int as_f32);
int mdl_add_w3(struct mdl_program *p, const char *a, int32_t a_rows, const char *b,
    int32_t b_rows, const char *c, int32_t c_rows, int32_t cols, enum wts_shard shard,
    int as_f32); /* c may be NULL; WTS_ROWS: each part is a cut, split evenly */
/* Other cuts of weight w, if that is not -1; c[n] has all its rows. */
void mdl_set_cuts(struct mdl_program *p, int32_t w, const struct wts_cut *c, int32_t n);
int mdl_add_op(struct mdl_program *p, struct mdl_op op);
/* Dense pre-norm decoder with RMSNorm, RoPE, GQA and a SiLU-gated MLP: what
 * Llama, Qwen2 and Qwen3 are; families pass their differences in cfg. */
int mdl_build_dense(struct mdl_program *p);

#endif
