#include "config.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/vdev.h"

#include <errno.h>

/* Launchers check what can be checked without reading device memory, so that
 * a wrong program fails where it is launched, by every backend's rules. */

static int
weight_dtype(enum fdk_dtype t)
{
    if (t == FDK_F32 || t == FDK_F16 || t == FDK_BF16)
        return 0;
    return (unsigned)t < FDK_DTYPE__N ? -ENOTSUP : -EINVAL;
}

static int
kv_valid(const struct fdk_kv *kv, int K, int D, int layer)
{
    if (kv->base == NULL || kv->block_size <= 0 || kv->n_kv_head != K ||
        kv->head_dim != D || layer < 0)
        return -EINVAL;
    if (kv->dtype != FDK_F32 && kv->dtype != FDK_BF16)
        return (unsigned)kv->dtype < FDK_DTYPE__N ? -ENOTSUP : -EINVAL;
    uint64_t half = (uint64_t)K * (uint64_t)kv->block_size * (uint64_t)D *
        fdk_dtype_bytes(kv->dtype);
    if (kv->v_bytes < half || kv->layer_bytes < kv->v_bytes + half ||
        kv->block_bytes < kv->layer_bytes)
        return -EINVAL;
    return 0;
}

static int
heads_valid(int T, int H, int K, int D)
{
    if (T <= 0 || H <= 0 || K <= 0 || D <= 0 || H % K != 0)
        return -EINVAL;
    return D > CPU_MAX_HEAD_DIM ? -ENOTSUP : 0;
}

int
vdev_row_update(const struct fdk_row_update_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_ROW_UPDATE };
    if (st == NULL || a->n_max < 0 || a->state == NULL || a->rows == NULL ||
        a->idx == NULL || a->n == NULL)
        return -EINVAL;
    c.u.row_update = *a;
    return cpu_push(st, &c);
}

int
vdev_embed(const struct fdk_embed_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_EMBED };
    if (st == NULL || a->T <= 0 || a->C <= 0 || a->V <= 0 || a->y == NULL ||
        a->w == NULL || a->b == NULL)
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
    if (st == NULL || a->T <= 0 || a->C <= 0 || a->y == NULL || a->x == NULL ||
        a->w == NULL || a->n == NULL)
        return -EINVAL;
    c.u.rmsnorm = *a;
    return cpu_push(st, &c);
}

int
vdev_gemm(const struct fdk_gemm_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_GEMM };
    if (st == NULL || a->T <= 0 || a->N <= 0 || a->K <= 0 || a->ldy < a->N ||
        a->first < 0 || a->y == NULL || a->x == NULL || a->w == NULL || a->n == NULL)
        return -EINVAL;
    int rc = weight_dtype(a->w_dtype);
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
        a->inv_freq == NULL || a->b == NULL)
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
        (a->rot != 0 && a->cs == NULL) || a->b == NULL)
        return -EINVAL;
    if (rc == 0)
        rc = kv_valid(&a->kv, a->K, a->D, a->layer);
    if (rc != 0)
        return rc;
    c.u.qkv = *a;
    return cpu_push(st, &c);
}

size_t
vdev_attention_scratch(const struct fdk_attention_args *a)
{
    (void)a;
    return 0;
}

int
vdev_attention(const struct fdk_attention_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_ATTENTION };
    int rc = heads_valid(a->T, a->H, a->K, a->D);
    if (st == NULL || a->y == NULL || a->qkv == NULL || a->b == NULL ||
        a->b->table_stride <= 0)
        return -EINVAL;
    if (!st->dev->ctx->immediate && a->T > st->dev->ctx->max_token)
        return -EINVAL;
    if (rc == 0)
        rc = kv_valid(&a->kv, a->K, a->D, a->layer);
    if (rc != 0)
        return rc;
    c.u.attention = *a;
    return cpu_push(st, &c);
}

int
vdev_silu_mul(const struct fdk_silu_mul_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_SILU_MUL };
    if (st == NULL || a->T <= 0 || a->F <= 0 || a->y == NULL || a->gu == NULL ||
        a->n == NULL)
        return -EINVAL;
    c.u.silu_mul = *a;
    return cpu_push(st, &c);
}

int
vdev_gather(const struct fdk_gather_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_GATHER };
    if (st == NULL || a->O <= 0 || a->C <= 0 || a->y == NULL || a->x == NULL ||
        a->b == NULL)
        return -EINVAL;
    c.u.gather = *a;
    return cpu_push(st, &c);
}

int
vdev_sample(const struct fdk_sample_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_SAMPLE };
    if (st == NULL || a->R <= 0 || a->V <= 0 || a->first < 0 || a->results == NULL ||
        a->state == NULL || a->b == NULL)
        return -EINVAL;
    if (!st->dev->ctx->immediate && (a->logits == NULL ||
        (a->scratch == NULL || a->scratch_bytes < vdev_sample_scratch(a))))
        return -EINVAL;
    c.u.sample = *a;
    return cpu_push(st, &c);
}
