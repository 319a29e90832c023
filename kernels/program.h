/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of operations, and fusion. A program is a flat array of operations whose
 * pointers are complete but for what the size of a step brings (struct fdk_step). It is
 * bound once to a device: fdk_bind() decides by the rows of fdk_ops.fusion which runs of
 * adjacent operations the backend may launch as one, and for how many rows. For a step,
 * fdk_launches() lists what is to be launched, fdk_launch() launches one entry, and the
 * caller may do anything with the stream in between.
 *
 * Launches of the programs of a device come from one stream at a time. A bound program is
 * read-only: fdk_launches() may be called by any thread.
 */
#ifndef FDD_KERNELS_PROGRAM_H
#define FDD_KERNELS_PROGRAM_H

#include "kernels/collective.h"
#include "kernels/fdk.h"

#ifdef __cplusplus
extern "C" {
#endif

enum fdk_op_kind {
    FDK_OP_EMBED,
    FDK_OP_ROPE_TABLE,
    FDK_OP_RMSNORM,
    FDK_OP_GEMM,
    FDK_OP_QKV,
    FDK_OP_ATTENTION,
    FDK_OP_MERGE,
    FDK_OP_SILU_MUL,
    FDK_OP_SOFTCAP,
    FDK_OP_GATHER,
    FDK_OP_SAMPLE,
    FDK_OP_ALL_REDUCE,
    FDK_OP_ALL_GATHER,
    FDK_OP_KV_SHARE,
    FDK_OP_ROW_SHARE, /* every step runs it */
    FDK_OP_OWN,       /* struct fdk_own */
    FDK_OP__N
};
const char *fdk_op_name(enum fdk_op_kind kind);

/* An operation that one backend alone has: a row of its fdk_ops.own, and nothing elsewhere. */
struct fdk_own_args {
    void *y;            /* (T, N) act, written */
    const void *x, *x2; /* (T, K) act, read; each may be NULL */
    const void *w;      /* (N, K) act, or NULL */
    const int32_t *n;   /* [1] live rows */
    int32_t T, N, K;
    float f[4]; /* what the operation takes besides */
    enum fdk_dtype act;
    void *scratch; /* fdk_own.scratch(); NULL where that is 0 */
    size_t scratch_bytes;
};
struct fdk_own {
    const char *name;
    const char *kernels; /* as fdk_ops.op_kernels() */
    int (*launch)(const struct fdk_own_args *, fdk_stream_t);
    size_t (*scratch)(const struct fdk_own_args *); /* as fdk_op_scratch(); may be NULL: 0 */
};
/* NULL: the backend has none of that name. */
const struct fdk_own *fdk_own_find(const struct fdk_ops *k, const char *name);

/* Rows of an operation: the step's tokens or its outputs. */
enum fdk_rows { FDK_PER_TOKEN, FDK_PER_OUT };

struct fdk_op {
    enum fdk_op_kind kind;
    enum fdk_rows rows;
    int32_t needs_output; /* 1: steps without outputs do without it */
    int32_t first,
        slice; /* GEMM, SOFTCAP, SAMPLE, ALL_GATHER: rows [first, first + slice); slice 0: all */
    int32_t att;              /* QKV, ATTENTION, KV_SHARE: index in fdk_step.att */
    const struct fdk_own *is; /* OWN: which one */
    union {
        struct fdk_embed_args embed;
        struct fdk_rope_table_args rope_table;
        struct fdk_rmsnorm_args rmsnorm;
        struct fdk_gemm_args gemm;
        struct fdk_qkv_args qkv;
        struct fdk_attention_args attention;
        struct fdk_merge_args merge;
        struct fdk_silu_mul_args silu_mul;
        struct fdk_softcap_args softcap;
        struct fdk_gather_args gather;
        struct fdk_sample_args sample;
        struct fdk_all_reduce_args all_reduce;
        struct fdk_all_gather_args all_gather;
        struct fdk_kv_share_args kv_share;
        struct fdk_row_share_args row_share;
        struct fdk_own_args own;
    };
};

/* Its types and shape, without rows: "96 x 48, i8 in groups of 32, layout rows". */
void fdk_op_text(const struct fdk_ops *k, const struct fdk_op *op, char *ret, size_t n);

/* Of a step: plans of the KV groups and of the tail; the same of each copy that divides it;
 * and the slots of a stage (fdk_kv_share_args). */
#define FDK_ATT_STEP  (FDK_MAX_KV_GROUPS + 1)
#define FDK_ATT_STAGE (FDK_ATT_STEP * (1 + FDK_MAX_RANKS))
#define FDK_MAX_ATT   (FDK_ATT_STAGE + 1)

/* What the size of a step brings. */
struct fdk_step {
    const struct fdk_batch *b;
    int32_t T, O;         /* tokens, outputs (0: none), padded */
    int32_t n_work;       /* attention tiles at most */
    int32_t halves;       /* 1: fdk_launches() may list its rows in two halves */
    const int32_t *range; /* KV_SHARE, ROW_SHARE of a step that copies divide: theirs of */
    const int32_t *at;    /* these names; else NULL */
    struct { /* of a KV group: its slots and block tables, and of att_plan: */
        const struct fdk_batch *b;
        const struct fdk_work *work;
        const int32_t *n_work;
        uint32_t *n_done;
        const void *plan;
    } att[FDK_MAX_ATT];
};
/* Rows that the operation has in the step; 0: the step does not run it. */
int32_t fdk_op_rows(const struct fdk_op *op, const struct fdk_step *s);
/* Fill in what the step brings, for an operation that it runs. */
void fdk_op_complete(struct fdk_op *op, const struct fdk_step *s);
/* Launch a complete operation by itself. */
int fdk_op_launch(const struct fdk_ops *k, const struct fdk_op *op, fdk_stream_t st);
/* Scratch of a complete operation: enough for every launch of it with as many rows or
 * less. Shapes and types count; no pointer but fdk_attention_args.b is read. */
size_t
fdk_op_scratch(const struct fdk_ops *k, struct fdk_ctx *ctx, const struct fdk_op *op);
/* Give the operation its scratch. */
void fdk_op_set_scratch(struct fdk_op *op, void *scratch, size_t bytes);

#define FDK_OPERANDS 3
/* First bytes of the buffers that the operation reads, and of those that it writes; not of
 * weights, KV and row states. One that is written in place is among both. Returns how many. */
int32_t fdk_op_reads(const struct fdk_op *op, const void *ret[FDK_OPERANDS]);
int32_t fdk_op_writes(const struct fdk_op *op, const void *ret[FDK_OPERANDS]);

/*
 * A fusion: how a run of operations becomes one launch. Of what the run writes, memory gets
 * the results of its last operation, the residual stream and the KV cache. fdk_bind() leaves
 * a fusion out where an operation behind the run reads anything else of it, and where the
 * operations of the run do not have the same rows.
 */
#define FDK_FUSION_OPS 9
struct fdk_fusion {
    const char *name;
    const char *kernels;                   /* as fdk_ops.op_kernels() */
    enum fdk_op_kind kind[FDK_FUSION_OPS]; /* what it begins with */
    int32_t n;                             /* of kind */
    int32_t keeps_inputs; /* 1: the launch reads its inputs while it writes: buffers must be
                             placed so that none of them is reused within the run */
    /* Operations from op[0] on, of n, that one launch covers; 0: none. Those of `kind` are
     * there. ret_least, ret_most: for how many rows, 1 and INT32_MAX before the call. */
    int32_t (*covers)(struct fdk_ctx *, int dev, const struct fdk_op *op, int32_t n,
        int32_t *ret_least, int32_t *ret_most);
    /* What launching needs, made once; may be NULL. -ENOTSUP: there will be no fusion. The
     * same of launch(), which has launched nothing then: the operations are launched as if
     * there were none. */
    int (*prepare)(struct fdk_ctx *, int dev, const struct fdk_op *op, int32_t n,
        void **ret);
    void (*release)(struct fdk_ctx *, int dev, void *data); /* may be NULL */
    int (*launch)(void *data, const struct fdk_op *op, int32_t n,
        const struct fdk_step *s, fdk_stream_t st);
};

/* For rows of fdk_ops.fusion that begin with ALL_REDUCE and RMSNORM: 2 where the second adds
 * what the first sums and is the norm of fdk_all_reduce_args.residual, else 0. */
int32_t fdk_reduce_norm_covers(struct fdk_ctx *ctx, int dev, const struct fdk_op *op,
    int32_t n, int32_t *ret_least, int32_t *ret_most);
/* Both as one operation of the step. */
struct fdk_all_reduce_args
fdk_reduce_norm_args(const struct fdk_op *op, const struct fdk_step *s);

/*
 * Halves. Where two ranks sum what each has a share of, the links rest during the GEMMs and the
 * GEMMs during the sums. The operations between two attentions work on each row by itself: with
 * fdk_step.halves they are launched for the first half of the rows and for the second by turns,
 * and a sum as fdk_ops.reduce_send() and reduce_take(). So one half's operands travel under the
 * other half's GEMMs. Buffers of such operations must not share memory. Groups have two ranks
 * and room (fdk_group_ways.ahead_bytes) for fdk_half_rows() rows of what is summed, and the
 * stream does not record.
 */
FDK_BOTH int32_t
fdk_half_rows(int32_t T) /* of the first half: whole tiles of a GEMM where there are several */
{
    int32_t half = (T + 1) / 2;
    return half <= 128 ? half : (half + 127) / 128 * 128;
}
/* Does it work on each row by itself, and can its rows be divided? */
int fdk_by_row(enum fdk_op_kind kind);
/* Operations from op[0] on, of n, that may be launched in halves; 0: none, or no sum is among
 * them. */
int32_t fdk_halves(const struct fdk_op *op, int32_t n);

enum fdk_launch_as {
    FDK_LAUNCH_RUN,  /* the operations */
    FDK_LAUNCH_SEND, /* an ALL_REDUCE: fdk_ops.reduce_send() */
    FDK_LAUNCH_TAKE  /* the same, and what the fusion has besides: reduce_take() */
};
struct fdk_bound;
struct fdk_launch {
    int32_t first, n; /* operations [first, first + n) */
    int32_t run;      /* index of the bound fusion, -1: an operation by itself */
    int32_t at, rows; /* of the rows: `rows` from `at` on; rows 0: all */
    enum fdk_launch_as as;
};

/* Copies op[n]. -ENOMEM, -EIO. */
int fdk_bind(const struct fdk_ops *k, struct fdk_ctx *ctx, int dev,
    const struct fdk_op *op, int32_t n, struct fdk_bound **ret);
void fdk_unbind(struct fdk_bound *bound);
/* Launches of n operations at most, in halves. */
#define FDK_LAUNCHES(n) (4 * (n))
/* What a step launches, in order, into ret[n of fdk_bind()], or ret[FDK_LAUNCHES(n)] of a step
 * in halves. Returns how many. fused 0: each operation by itself. */
int32_t fdk_launches(const struct fdk_bound *bound, const struct fdk_step *s, int fused,
    struct fdk_launch *ret);
int fdk_launch(const struct fdk_bound *bound, const struct fdk_step *s,
    const struct fdk_launch *l, fdk_stream_t st);
/* Of the fusion, or of the operation. */
const char *fdk_launch_name(const struct fdk_bound *bound, const struct fdk_launch *l);
/* Names of its kernels, as fdk_ops.op_kernels(). */
const char *fdk_launch_kernels(const struct fdk_bound *bound, const struct fdk_step *s,
    const struct fdk_launch *l);

#ifdef __cplusplus
}
#endif
#endif
