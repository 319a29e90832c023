/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of fusions: runs of operations that one kernel computes. If an entry is
 * removed, its operations are launched separately, and nothing else changes. Also the
 * names of the kernels of single operations, and which operations the backend supports.
 */
#include "kernels/cuda/generic/vec8.cuh"

#include <stdio.h>

/* ---- a GEMM of gate and up, and silu_mul ---------------------------------------- */

/* Largest number of rows for which the output and the input do not overlap. */
static int64_t
rows_apart(const struct fdk_gemm_args *g, const struct fdk_silu_mul_args *s)
{
    const uintptr_t x = (uintptr_t)g->x, y = (uintptr_t)s->y;
    return x < y ? (int64_t)((y - x) / ((size_t)g->K * 2)) :
        (int64_t)((x - y) / ((size_t)s->F * 2));
}

static int
gate_fits(const struct cu_dev *d, const struct fdk_op *op, int32_t *ret_most)
{
    const struct fdk_gemm_args *g = &op[0].gemm;
    const struct fdk_silu_mul_args *s = &op[1].silu_mul;
    const int64_t apart = rows_apart(g, s);
    if (apart < *ret_most)
        *ret_most = (int32_t)apart;
    return d->sm90a && op[0].slice == 0 && s->gu == g->y && s->n == g->n &&
        s->act == FDK_BF16 && s->gate == FDK_GATE_SILU && g->y_dtype == FDK_BF16 && g->N == 2 * s->F &&
        g->ldy == g->N && cu_gemm_stream_fits(g);
}

static int32_t
mid_covers(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, int32_t n,
    int32_t *ret_least, int32_t *ret_most)
{
    (void)n;
    *ret_least = cu_gemm_stream_mid_least(&op[0].gemm);
    *ret_most = CU_STREAM_ROWS;
    return gate_fits(&ctx->dev[dev], op, ret_most) ? 2 : 0;
}

/* For more than CU_STREAM_ROWS rows the bits differ from those of separate launches. */
static int32_t
wide_covers(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, int32_t n,
    int32_t *ret_least, int32_t *ret_most)
{
    const struct fdk_silu_mul_args *s = &op[1].silu_mul;
    (void)n;
    *ret_least = CU_STREAM_ROWS + 1;
    return !ctx->deterministic && s->F % 16 == 0 && (uintptr_t)s->y % 16 == 0 &&
        gate_fits(&ctx->dev[dev], op, ret_most) ? 2 : 0;
}

static int
gate_launch(int (*launch)(const struct fdk_gemm_args *, const struct fdk_silu_mul_args *,
    int, fdk_stream_t), const struct fdk_op *op, const struct fdk_step *s, fdk_stream_t st)
{
    struct fdk_gemm_args g = op[0].gemm;
    struct fdk_silu_mul_args m = op[1].silu_mul;
    int rc = cu_stream_enter(st);
    g.T = m.T = fdk_op_rows(op, s);
    if (rc == 0)
        rc = launch(&g, &m, cu_stream_of(st)->dev->n_proc, st);
    if (rc == -ENOTSUP)
        __atomic_store_n(&cu_stream_of(st)->dev->fell_back, 1, __ATOMIC_RELAXED);
    return rc;
}

static int
mid_launch(void *data, const struct fdk_op *op, int32_t n, const struct fdk_step *s,
    fdk_stream_t st)
{
    (void)data;
    (void)n;
    return gate_launch(cu_gemm_stream_mid_silu, op, s, st);
}

static int
wide_launch(void *data, const struct fdk_op *op, int32_t n, const struct fdk_step *s,
    fdk_stream_t st)
{
    (void)data;
    (void)n;
    return gate_launch(cu_gemm_silu, op, s, st);
}

/* ---- a sum over ranks and the norm after it -------------------------------------- */

static int
reduce_norm_launch(void *data, const struct fdk_op *op, int32_t n, const struct fdk_step *s,
    fdk_stream_t st)
{
    const struct fdk_all_reduce_args a = fdk_reduce_norm_args(op, s);
    (void)data;
    (void)n;
    return cu_all_reduce(&a, st);
}

/* ---- the table ------------------------------------------------------------------- */

extern "C" {
const struct fdk_fusion cu_fusions[CU_FUSIONS] = {
    { "decode_layers", "mega_kernel", { CU_MEGA_KINDS }, 9, 0, cu_mega_covers,
        cu_mega_prepare, cu_mega_release, cu_mega_run },
    { "decode_layers_ranks", "mega_kernel", { CU_MEGA_RANKS_KINDS }, 9, 0, cu_mega_covers,
        cu_mega_prepare, cu_mega_release, cu_mega_run },
    { "gemm_silu_mul", "mid_kernel", { FDK_OP_GEMM, FDK_OP_SILU_MUL }, 2, 1, mid_covers,
        NULL, NULL, mid_launch },
    { "gemm_silu_mul_wide", "joint_kernel", { FDK_OP_GEMM, FDK_OP_SILU_MUL }, 2, 1,
        wide_covers, NULL, NULL, wide_launch },
    { "all_reduce_rmsnorm", "collective_kernel", { FDK_OP_ALL_REDUCE, FDK_OP_RMSNORM }, 2, 0,
        fdk_reduce_norm_covers, NULL, NULL, reduce_norm_launch },
};
}

/* ---- single operations ------------------------------------------------------------ */

const char *
cu_op_kernels(struct fdk_ctx *ctx, int dev, const struct fdk_op *op)
{
    switch (op->kind) {
    case FDK_OP_EMBED:
        return "embed_kernel";
    case FDK_OP_ROPE_TABLE:
        return op->rope_table.len == FDK_ROPE_ANY ? "rope_table_kernel" : "rope_len_kernel";
    case FDK_OP_RMSNORM:
        return cu_norm_usual(&op->rmsnorm) ? "rmsnorm_" : "rmsnorm_any";
    case FDK_OP_GEMM:
        return cu_gemm_kernels(&ctx->dev[dev], &op->gemm);
    case FDK_OP_QKV:
        if (op->qkv.norm_offset != 0 || op->qkv.interleaved)
            return op->qkv.norm_all ? "qkv_norm_all qkv_kernel" : "qkv_kernel";
        return op->qkv.norm_all ? "qkv_norm_all qkv_" : "qkv_";
    case FDK_OP_ATTENTION:
        return cu_attention_kernels(&ctx->dev[dev], &op->attention);
    case FDK_OP_MERGE:
        return "merge_shares_kernel";
    case FDK_OP_SILU_MUL:
        return op->silu_mul.gate == FDK_GATE_SILU ? "silu_mul_" : "gelu_mul_kernel";
    case FDK_OP_SOFTCAP:
        return "softcap_kernel";
    case FDK_OP_GATHER:
        return "gather_kernel";
    case FDK_OP_SAMPLE:
        return "sample_kernel";
    case FDK_OP_ALL_REDUCE:
    case FDK_OP_ALL_GATHER:
        return "collective_kernel";
    case FDK_OP_KV_SHARE:
    case FDK_OP_ROW_SHARE:
        return "copies_kernel";
    default:
        return "";
    }
}

/* ---- supported operations
 * ----------------------------------------------------------- */

static int
say(int rc, char *why, size_t why_bytes, const char *text)
{
    if (why_bytes > 0)
        snprintf(why, why_bytes, "%s", text);
    return rc;
}

static int
gemm_takes_op(const struct cu_dev *d, const struct fdk_gemm_args *a, char *why,
    size_t why_bytes)
{
    if (a->w_layout != FDK_LAYOUT_ROWS)
        return say(-ENOTSUP, why, why_bytes, "weights in the layout rows");
    if (!fdk_is_float(a->w_dtype) && !fdk_is_quant(a->w_dtype))
        return say(-ENOTSUP, why, why_bytes, "weights in f32, f16, bf16, i8, i4, f8e4m3");
    if (!cu_gemm_slow(d, a))
        return 0;
    if (fdk_is_quant(a->w_dtype) && !d->sm90a)
        return say(1, why, why_bytes, "quantized weights fast only on compute capability 9.0");
    if (fdk_is_quant(a->w_dtype))
        return say(1, why, why_bytes, "quantized weights fast where K is a multiple of "
            "32, with scales per row or per a multiple of 32 elements");
    return say(1, why, why_bytes, "16-bit weights fast where N and K are multiples of 8");
}

static int
attention_takes_op(const struct cu_dev *d, const struct fdk_attention_args *a, char *why,
    size_t why_bytes)
{
    if (a->D > CU_MAX_HEAD_DIM) {
        snprintf(why, why_bytes, "head dimensions of up to %d", CU_MAX_HEAD_DIM);
        return -ENOTSUP;
    }
    if (cu_attention_slow(d, a))
        return say(1, why, why_bytes, !d->sm90a ?
            "attention fast only on compute capability 9.0" :
            "head dimensions of 64, 80, 96, 128, 192, 256 fast, with bf16 activations, KV in "
            "bf16, i8, f8e4m3 and kv.block_size a power of two from 16 on");
    return 0;
}

const char *
cu_fell_back(struct fdk_ctx *ctx, int dev)
{
    return __atomic_load_n(&ctx->dev[dev].fell_back, __ATOMIC_RELAXED) ?
        "the driver refused tensor maps: kernels without TMA compute in place of others, which "
        "is slower" : "";
}

int
cu_op_takes(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, char *why,
    size_t why_bytes)
{
    const struct cu_dev *d = &ctx->dev[dev];
    if (op->kind == FDK_OP_GEMM)
        return gemm_takes_op(d, &op->gemm, why, why_bytes);
    if (op->kind == FDK_OP_ATTENTION)
        return attention_takes_op(d, &op->attention, why, why_bytes);
    return 0;
}
