/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of operations, and fusion. A program is a flat array of operations whose
 * arguments are complete except for those that depend on the step (struct fdk_step). It
 * is bound once to a device: fdk_bind() decides by the table fdk_ops.fusion which runs of
 * adjacent operations the backend may launch as one, and for how many rows. For a step,
 * fdk_launches() lists the launches, fdk_launch() launches one of them, and the caller
 * may do anything with the stream in between.
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

/* An operation that only one backend has: an entry of its fdk_ops.own. */
struct fdk_own_args {
    void *y;            /* (T, N) act, written */
    const void *x, *x2; /* (T, K) act, read; each may be NULL */
    const void *w;      /* (N, K) act, or NULL */
    const int32_t *n;   /* [1] live rows */
    int32_t T, N, K;
    float f[4]; /* further parameters of the operation */
    enum fdk_dtype act;
    void *scratch; /* fdk_own.scratch(); NULL where that is 0 */
    size_t scratch_bytes;
};
struct fdk_own {
    const char *name;
    const char *kernels; /* as fdk_ops.op_kernels() */
    int (*launch)(const struct fdk_own_args *, fdk_stream_t);
    size_t (*scratch)(const struct fdk_own_args *); /* as fdk_op_scratch(); may be NULL:
                                                       0 */
};
/* Returns NULL if the backend has no operation of that name. */
const struct fdk_own *fdk_own_find(const struct fdk_ops *k, const char *name);

/* Rows of an operation: the step's tokens or its outputs. */
enum fdk_rows { FDK_PER_TOKEN, FDK_PER_OUT };

struct fdk_op {
    enum fdk_op_kind kind;
    enum fdk_rows rows;
    int32_t needs_output; /* 1: a step without outputs skips the operation */
    int32_t first,
        slice; /* GEMM, SOFTCAP, SAMPLE, ALL_GATHER: rows [first, first + slice); slice 0:
                  all */
    int32_t att;              /* QKV, ATTENTION, KV_SHARE: index in fdk_step.att */
    const struct fdk_own *is; /* OWN: the entry of fdk_ops.own */
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

/* Text of an operation's types and shape, without rows: "96 x 48, i8 in groups of 32,
 * layout rows". */
void fdk_op_text(const struct fdk_ops *k, const struct fdk_op *op, char *ret, size_t n);

/* Entries of fdk_step.att: those of the KV groups and of the tail; then as many again for
 * each copy that shares the step; then the slots of a stage (fdk_kv_share_args). */
#define FDK_ATT_STEP  (FDK_MAX_KV_GROUPS + 1)
#define FDK_ATT_STAGE (FDK_ATT_STEP * (1 + FDK_MAX_RANKS))
#define FDK_MAX_ATT   (FDK_ATT_STAGE + 1)

/* Arguments of operations that differ from step to step. */
struct fdk_step {
    const struct fdk_batch *b;
    int32_t T, O;         /* tokens, outputs (0: none), padded */
    int32_t n_work;       /* upper bound of attention tiles */
    int32_t halves;       /* 1: fdk_launches() may list the rows in two halves */
    const int32_t *range; /* fdk_kv_share_args.range and fdk_row_share_args.at of a
                             step */
    const int32_t *at;    /* that several copies share; else NULL */
    struct { /* of a KV group: the batch with the group's slots and block tables,
                and the results of att_plan */
        const struct fdk_batch *b;
        const struct fdk_work *work;
        const int32_t *n_work;
        uint32_t *n_done;
        const void *plan;
    } att[FDK_MAX_ATT];
};
/* Number of rows of the operation in the step; 0: the step does not run it. */
int32_t fdk_op_rows(const struct fdk_op *op, const struct fdk_step *s);
/* Fills in the step's arguments of an operation that the step runs. */
void fdk_op_complete(struct fdk_op *op, const struct fdk_step *s);
/* Launches a complete operation by itself. */
int fdk_op_launch(const struct fdk_ops *k, const struct fdk_op *op, fdk_stream_t st);
/* Bytes of scratch of a complete operation, enough for every launch of it with at most
 * that many rows. Depends on shapes and types; the only pointer read is
 * fdk_attention_args.b. */
size_t
fdk_op_scratch(const struct fdk_ops *k, struct fdk_ctx *ctx, const struct fdk_op *op);
/* Sets the operation's scratch. */
void fdk_op_set_scratch(struct fdk_op *op, void *scratch, size_t bytes);

#define FDK_OPERANDS 3
/* Start addresses of the buffers that the operation reads or writes, without weights, KV
 * and row states. A buffer that is updated in place is in both lists. Returns their
 * number. */
int32_t fdk_op_reads(const struct fdk_op *op, const void *ret[FDK_OPERANDS]);
int32_t fdk_op_writes(const struct fdk_op *op, const void *ret[FDK_OPERANDS]);

/*
 * A fusion launches a run of operations as one. It stores only the results of the run's
 * last operation, the residual stream and the KV cache. fdk_bind() does not use a fusion
 * where a later operation reads another result of the run, or where the operations of the
 * run do not have the same rows.
 */
#define FDK_FUSION_OPS 9
struct fdk_fusion {
    const char *name;
    const char *kernels;                   /* as fdk_ops.op_kernels() */
    enum fdk_op_kind kind[FDK_FUSION_OPS]; /* kinds of the run's first operations */
    int32_t n;                             /* length of kind */
    int32_t keeps_inputs; /* 1: the launch reads its inputs while it writes: the memory of
                             an input must not be reused within the run */
    /* Returns how many of the n operations from op[0] on one launch covers; 0: none. The
     * first ones are of the kinds above. Sets the range of rows *ret_least .. *ret_most,
     * which is 1 .. INT32_MAX before the call. */
    int32_t (*covers)(struct fdk_ctx *, int dev, const struct fdk_op *op, int32_t n,
        int32_t *ret_least, int32_t *ret_most);
    /* Prepares data for launch(), once per run; may be NULL. -ENOTSUP: the run is not
     * fused. launch() may return -ENOTSUP too, having launched nothing: then the
     * operations are launched without this fusion. */
    int (*prepare)(struct fdk_ctx *, int dev, const struct fdk_op *op, int32_t n,
        void **ret);
    void (*release)(struct fdk_ctx *, int dev, void *data); /* may be NULL */
    int (*launch)(void *data, const struct fdk_op *op, int32_t n,
        const struct fdk_step *s, fdk_stream_t st);
};

/* fdk_fusion.covers() of fusions that begin with ALL_REDUCE and RMSNORM: 2 if the RMSNORM
 * adds the sum and is the norm of fdk_all_reduce_args.residual, else 0. */
int32_t fdk_reduce_norm_covers(struct fdk_ctx *ctx, int dev, const struct fdk_op *op,
    int32_t n, int32_t *ret_least, int32_t *ret_most);
/* Arguments of one all-reduce that does both operations. */
struct fdk_all_reduce_args
fdk_reduce_norm_args(const struct fdk_op *op, const struct fdk_step *s);

/*
 * Halves. In a group of two ranks with all-reduces the links are idle during the GEMMs
 * and the tensor cores during the all-reduces. The operations between two attentions
 * treat each row by itself: with fdk_step.halves they are launched alternately for the
 * first and the second half of the rows, and an all-reduce as fdk_ops.reduce_send() and
 * reduce_take(). So one half's operands are transferred during the other half's GEMMs.
 * Buffers of such operations must not share memory. The group needs room
 * (fdk_group_ways.ahead_bytes) for fdk_half_rows() rows of an all-reduce, and the stream
 * must not be capturing.
 */
/* Rows of the first half: a multiple of a GEMM tile's 128 rows if more than that. */
FDK_BOTH int32_t
fdk_half_rows(int32_t T)
{
    int32_t half = (T + 1) / 2;
    return half <= 128 ? half : (half + 127) / 128 * 128;
}
/* Does an operation treat each row by itself, and can its rows be divided? */
int fdk_by_row(enum fdk_op_kind kind);
/* How many of the n operations from op[0] on may be launched in halves; 0: none, or there
 * is no ALL_REDUCE among them. */
int32_t fdk_halves(const struct fdk_op *op, int32_t n);

enum fdk_launch_as {
    FDK_LAUNCH_RUN,  /* the operations as they are */
    FDK_LAUNCH_SEND, /* fdk_ops.reduce_send() of an ALL_REDUCE */
    FDK_LAUNCH_TAKE  /* fdk_ops.reduce_take() of an ALL_REDUCE, with the norm if fused */
};
struct fdk_bound;
struct fdk_launch {
    int32_t first, n; /* operations [first, first + n) */
    int32_t run;      /* index of the bound fusion, -1: an operation by itself */
    int32_t at, rows; /* first row and number of rows; rows 0: all */
    enum fdk_launch_as as;
};

/* Copies op[n]. Returns 0, -ENOMEM or -EIO. */
int fdk_bind(const struct fdk_ops *k, struct fdk_ctx *ctx, int dev,
    const struct fdk_op *op, int32_t n, struct fdk_bound **ret);
void fdk_unbind(struct fdk_bound *bound);
/* Most launches of n operations in a step that is divided into halves. */
#define FDK_LAUNCHES(n) (4 * (n))
/* Writes the launches of a step to ret, in order. ret has room for the n of fdk_bind(),
 * or for FDK_LAUNCHES(n) if the step is divided into halves. Returns the number of
 * launches. fused 0: each operation is launched by itself. */
int32_t fdk_launches(const struct fdk_bound *bound, const struct fdk_step *s, int fused,
    struct fdk_launch *ret);
int fdk_launch(const struct fdk_bound *bound, const struct fdk_step *s,
    const struct fdk_launch *l, fdk_stream_t st);
/* Name of the fusion or of the operation. */
const char *fdk_launch_name(const struct fdk_bound *bound, const struct fdk_launch *l);
/* Names of the launch's kernels, as fdk_ops.op_kernels(). */
const char *fdk_launch_kernels(const struct fdk_bound *bound, const struct fdk_step *s,
    const struct fdk_launch *l);

#ifdef __cplusplus
}
#endif
#endif
