/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/vdev.h"
#include "kernels/program.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Launchers check all that can be checked without reading device memory, so that
 * an invalid program fails at the launch, by the rules of every backend. */

static int
weight_dtype(enum fdk_dtype t)
{
    if (t == FDK_F32 || t == FDK_F16 || t == FDK_BF16)
        return 0;
    return (unsigned)t < FDK_DTYPE__N ? -ENOTSUP : -EINVAL;
}

/* Groups must be multiples of 16 elements, so that the inner loop has one scale. */
static int
gemm_weights(const struct fdk_gemm_args *a)
{
    if (a->w_dtype != FDK_I8 && a->w_dtype != FDK_I4 && a->w_dtype != FDK_F8E4M3)
        return weight_dtype(a->w_dtype);
    if (a->w_scale == NULL || a->w_group <= 0 || a->w_group > a->K ||
        (a->w_dtype == FDK_I4 && a->K % 2 != 0))
        return -EINVAL;
    return a->w_group % 16 != 0 && a->w_group != a->K ? -ENOTSUP : 0;
}

/* Do the areas of a layer, values of K and V and for FDK_I8 their scales, fit without
 * overlap? */
static int
kv_layout_valid(const struct fdk_kv *kv, uint64_t values, uint64_t scales)
{
    const uint64_t at[4] = { 0, kv->v_bytes, kv->k_scale_off, kv->v_scale_off };
    const uint64_t bytes[4] = { values, values, scales, scales };
    int n = scales != 0 ? 4 : 2;
    if (scales != 0 &&
        (kv->layer_bytes | kv->block_bytes | at[2] | at[3] | (uintptr_t)kv->base) %
                sizeof(float) !=
            0)
        return 0;
    for (int i = 0; i < n; i++) {
        if (bytes[i] > kv->layer_bytes || at[i] > kv->layer_bytes - bytes[i])
            return 0;
        for (int j = 0; j < i; j++)
            if (at[i] < at[j] + bytes[j] && at[j] < at[i] + bytes[i])
                return 0;
    }
    return 1;
}

static int
kv_valid(const struct fdk_kv *kv, int K, int D, int layer)
{
    if (kv->base == NULL || kv->block_size <= 0 || kv->n_kv_head != K ||
        kv->head_dim != D || layer < 0 || kv->n_own < 0 || kv->n_own > FDK_MAX_RANKS ||
        kv->own < 0 || (kv->own != 0 && kv->own >= kv->n_own))
        return -EINVAL;
    if (kv->dtype != FDK_F32 && kv->dtype != FDK_BF16 && kv->dtype != FDK_I8 &&
        kv->dtype != FDK_F8E4M3)
        return (unsigned)kv->dtype < FDK_DTYPE__N ? -ENOTSUP : -EINVAL;
    if (kv->layer_bytes == 0 || (uint64_t)layer >= kv->block_bytes / kv->layer_bytes)
        return -EINVAL;
    uint64_t tokens = (uint64_t)K * (uint64_t)kv->block_size;
    return kv_layout_valid(kv, tokens * (uint64_t)D * fdk_dtype_bytes(kv->dtype),
               kv->dtype == FDK_I8 ? tokens * sizeof(float) : 0)
        ? 0
        : -EINVAL;
}

static int
heads_valid(int T, int H, int K, int D)
{
    if (T <= 0 || H <= 0 || K <= 0 || D <= 0 || H % K != 0)
        return -EINVAL;
    return D > CPU_MAX_HEAD_DIM ? -ENOTSUP : 0;
}

int
fdk_cpu_call(fdk_stream_t st, void (*fn)(const void *args), const void *args, size_t bytes)
{
    struct cpu_cmd c = { .op = CMD_CALL };
    if (st == NULL || fn == NULL || bytes > sizeof(c.u.call.args))
        return -EINVAL;
    c.u.call.fn = fn;
    memcpy(c.u.call.args, args, bytes);
    return cpu_push(st, &c);
}

int
vdev_row_update(const struct fdk_row_update_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_ROW_UPDATE };
    if (st == NULL || a->n_max < 0 || a->state == NULL || a->rows == NULL ||
        a->idx == NULL || a->n == NULL)
        return -EINVAL;
    if (a->n_delta != NULL && (a->table == NULL || a->delta == NULL || a->n_delta_max < 0))
        return -EINVAL;
    c.u.row_update = *a;
    return cpu_push(st, &c);
}

static int
att_plan_valid(const struct fdk_att_plan_args *a)
{
    return a->a > 0 && a->bt > 0 && a->n_max > 0 && a->work != NULL &&
        a->n_work != NULL && a->n_done != NULL && a->b != NULL && a->b->max_row > 0;
}

int
vdev_att_plan_host(struct fdk_ctx *ctx, int dev, const struct fdk_att_plan_args *a)
{
    if (dev < 0 || dev >= ctx->n_dev || !att_plan_valid(a))
        return -EINVAL;
    if (cpu_failed(&ctx->dev[dev]))
        return -EIO;
    if (ctx->math)
        return cpu_att_plan(a) < 0 ? 0 : -EINVAL;
    *a->n_work = 0;
    *a->n_done = 0;
    return 0;
}

int
vdev_att_plan(const struct fdk_att_plan_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_ATT_PLAN };
    if (st == NULL || !att_plan_valid(a) || a->outputs)
        return -EINVAL;
    c.u.att_plan = *a;
    return cpu_push(st, &c);
}

int
vdev_embed(const struct fdk_embed_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_EMBED };
    if (st == NULL || a->T <= 0 || a->C <= 0 || a->V <= 0 || a->y == NULL ||
        !fdk_embed_valid(a) || a->b == NULL)
        return -EINVAL;
    int rc = weight_dtype(a->w_dtype);
    if (rc != 0)
        return rc;
    c.u.embed = *a;
    return cpu_push(st, &c);
}

int
vdev_rmsnorm(const struct fdk_rmsnorm_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_RMSNORM };
    int post = a->norm == FDK_NORM_POST;
    if (st == NULL || a->T <= 0 || a->C <= 0 || (a->y == NULL && !post) || a->x == NULL ||
        (a->w == NULL && (!post || a->add != NULL)) || a->n == NULL || a->act != FDK_F32)
        return -EINVAL;
    c.u.rmsnorm = *a;
    return cpu_push(st, &c);
}

/* Virtual devices compute only in fp32. */
enum fdk_dtype
vdev_act(enum fdk_dtype w)
{
    (void)w;
    return FDK_F32;
}

size_t
vdev_gemm_scratch(const struct fdk_gemm_args *a)
{
    (void)a;
    return 0;
}

int
vdev_gemm(const struct fdk_gemm_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_GEMM };
    if (st == NULL || a->T <= 0 || a->N <= 0 || a->K <= 0 || a->ldy < a->N ||
        a->first < 0 || a->y == NULL || a->x == NULL || a->w == NULL || a->n == NULL)
        return -EINVAL;
    if (a->act != FDK_F32 || a->y_dtype != FDK_F32 || a->w_layout != FDK_LAYOUT_ROWS)
        return -ENOTSUP;
    int rc = gemm_weights(a);
    if (rc != 0)
        return rc;
    c.u.gemm = *a;
    return cpu_push(st, &c);
}

int
vdev_rope_table(const struct fdk_rope_table_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_ROPE_TABLE };
    if (st == NULL || a->T <= 0 || a->rot <= 0 || a->rot % 2 != 0 || a->cs == NULL ||
        a->inv_freq == NULL || a->b == NULL ||
        (a->len != FDK_ROPE_ANY && (a->state == NULL || a->long_from <= 0)) ||
        (a->len == FDK_ROPE_NTK && a->rot <= 2))
        return -EINVAL;
    c.u.rope_table = *a;
    return cpu_push(st, &c);
}

int
vdev_qkv(const struct fdk_qkv_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_QKV };
    int rc = heads_valid(a->T, a->H, a->K, a->D);
    if (st == NULL || a->rot < 0 || a->rot > a->D || a->rot % 2 != 0 || a->qkv == NULL ||
        (a->rot != 0 && a->cs == NULL) || a->b == NULL || a->act != FDK_F32 ||
        !fdk_qkv_all_valid(a))
        return -EINVAL;
    if (rc == 0)
        rc = kv_valid(&a->kv, a->K, a->D, a->layer);
    if (rc != 0)
        return rc;
    c.u.qkv = *a;
    return cpu_push(st, &c);
}

/* A query row is a token: the query heads of a KV head share the loaded keys and
 * values. */
void
vdev_att_shape(const struct fdk_attention_args *a, int32_t *ret_a, int32_t *ret_bt)
{
    int32_t group = a->H / a->K;
    *ret_a = 1;
    *ret_bt = group < CPU_ATT_QUERIES ? CPU_ATT_QUERIES / group : 1;
}

size_t
vdev_attention_scratch(struct fdk_ctx *ctx, const struct fdk_attention_args *a)
{
    (void)ctx;
    (void)a;
    return 0;
}

int
vdev_attention(const struct fdk_attention_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_ATTENTION };
    int rc = heads_valid(a->T, a->H, a->K, a->D);
    int32_t qa, bt;
    if (st == NULL || a->y == NULL || a->qkv == NULL || a->b == NULL ||
        a->b->table_stride <= 0 || a->b->state == NULL || a->work == NULL ||
        a->n_work == NULL || a->n_done == NULL || a->act != FDK_F32 || a->window < 0 ||
        !(a->softcap >= 0) || (a->window > 0 && a->window != a->step_window) ||
        !fdk_asks_valid(a))
        return -EINVAL;
    if (rc == 0)
        rc = kv_valid(&a->kv, a->K, a->D, a->layer);
    if (rc != 0)
        return rc;
    vdev_att_shape(a, &qa, &bt);
    if (a->n_work_max < fdk_tiles_max(a->b->max_row, a->T, qa, bt))
        return -EINVAL;
    c.u.attention = *a;
    return cpu_push(st, &c);
}

int
vdev_merge(const struct fdk_merge_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_MERGE };
    if (st == NULL || a->T <= 0 || a->H <= 0 || a->D <= 0 || a->n_own < 1 ||
        a->n_own > FDK_MAX_RANKS || a->y == NULL || a->x == NULL || a->n == NULL ||
        a->act != FDK_F32)
        return -EINVAL;
    c.u.merge = *a;
    return cpu_push(st, &c);
}

int
vdev_silu_mul(const struct fdk_silu_mul_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_SILU_MUL };
    if (st == NULL || a->T <= 0 || a->F <= 0 || a->y == NULL || a->gu == NULL ||
        a->n == NULL || a->act != FDK_F32)
        return -EINVAL;
    c.u.silu_mul = *a;
    return cpu_push(st, &c);
}

int
vdev_softcap(const struct fdk_softcap_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_SOFTCAP };
    if (st == NULL || a->T <= 0 || a->N <= 0 || a->first < 0 || a->n == NULL ||
        !(a->cap >= 0) || (st->dev->ctx->math && a->y == NULL))
        return -EINVAL;
    c.u.softcap = *a;
    return cpu_push(st, &c);
}

int
vdev_gather(const struct fdk_gather_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_GATHER };
    if (st == NULL || a->O <= 0 || a->C <= 0 || a->y == NULL || a->x == NULL ||
        a->b == NULL || a->act != FDK_F32)
        return -EINVAL;
    c.u.gather = *a;
    return cpu_push(st, &c);
}

int
vdev_sample(const struct fdk_sample_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_SAMPLE };
    if (st == NULL || a->R <= 0 || a->V <= 0 || (a->ldl != 0 && a->ldl < a->V) ||
        a->first < 0 || a->results == NULL || a->state == NULL || a->b == NULL)
        return -EINVAL;
    if (st->dev->ctx->math &&
        (a->logits == NULL ||
            (a->scratch == NULL || a->scratch_bytes < vdev_sample_scratch(a))))
        return -EINVAL;
    c.u.sample = *a;
    return cpu_push(st, &c);
}

/* ---- supported operations ------------------------------------------------ */

static const char *
gemm_not_taken(const struct fdk_gemm_args *a)
{
    if (a->w_layout != FDK_LAYOUT_ROWS)
        return "weights in the layout rows";
    if (!fdk_is_float(a->w_dtype) && !fdk_is_quant(a->w_dtype))
        return "weights in f32, f16, bf16, i8, i4, f8e4m3";
    if (fdk_is_quant(a->w_dtype) && a->w_group % 16 != 0 && a->w_group != a->K)
        return "scales per row or per a multiple of 16 elements";
    return a->act != FDK_F32 ? "activations in f32" : NULL;
}

static const char *
heads_not_taken(int D, const struct fdk_kv *kv)
{
    if (D > CPU_MAX_HEAD_DIM)
        return "head dimensions of up to 512";
    if (kv->dtype != FDK_F32 && kv->dtype != FDK_BF16 && kv->dtype != FDK_I8 &&
        kv->dtype != FDK_F8E4M3)
        return "KV in f32, bf16, i8, f8e4m3";
    return NULL;
}
_Static_assert(CPU_MAX_HEAD_DIM == 512, "heads_not_taken() names this limit");

int
vdev_op_takes(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, char *why,
    size_t why_bytes)
{
    const char *not = NULL;

    (void)dev;
    if (!ctx->math)
        return 0;
    if (op->kind == FDK_OP_GEMM)
        not = gemm_not_taken(&op->gemm);
    else if (op->kind == FDK_OP_QKV)
        not = heads_not_taken(op->qkv.D, &op->qkv.kv);
    else if (op->kind == FDK_OP_ATTENTION)
        not = heads_not_taken(op->attention.D, &op->attention.kv);
    else if (op->kind == FDK_OP_EMBED && weight_dtype(op->embed.w_dtype) != 0)
        not = "a table in f32, f16, bf16";
    if (not != NULL)
        (void)snprintf(why, why_bytes, "%s", not );
    return not != NULL ? -ENOTSUP : 0;
}
