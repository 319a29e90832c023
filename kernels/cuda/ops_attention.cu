/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the kernels for a layer's attention: those of sm90 (attention.cuh), or the
 * plain one (generic/attention_plain.cu).
 */
#include "kernels/cuda/attention.cuh"

/* A query row is a token: the query heads of a KV head share the loaded keys and
 * values. */
void
cu_att_shape(const struct fdk_attention_args *a, int32_t *ret_a, int32_t *ret_bt)
{
    int32_t group = a->H / a->K;
    *ret_a = 1;
    *ret_bt = group < CU_ATT_QUERIES ? CU_ATT_QUERIES / group : 1;
}

size_t
cu_attention_scratch(struct fdk_ctx *ctx, const struct fdk_attention_args *a)
{
    size_t plain = cu_att_plain_scratch(a), split = cu_att_split_scratch(ctx, a);
    return plain > split ? plain : split;
}

enum { ATT_LONG = 1, ATT_SPLIT = 2 };

/* Returns ATT_* for the sm90 kernels of a launch; without a plan only the plain one
 * runs. */
static int
attention_form(const struct cu_dev *dev, const struct fdk_attention_args *a)
{
    int planned = a->plan != NULL && cu_att_sm90a(dev->ctx), det = dev->ctx->deterministic;
    return (planned && cu_att_long_fits(a, det) ? ATT_LONG : 0) |
        (planned && cu_att_split_fits(a, det) ? ATT_SPLIT : 0);
}

const char *
cu_attention_kernels(const struct cu_dev *d, const struct fdk_attention_args *a)
{
    static const char *const name[2][3] = {
        { "attention_kernel merge_kernel?", "split_kernel", "chunk_kernel" },
        { "long_kernel attention_kernel merge_kernel?", "long_kernel split_kernel",
            "long_kernel chunk_kernel" },
    };
    const int form = attention_form(d, a);
    const int split = !(form & ATT_SPLIT) ? 0 :
        cu_att_chunk_takes(a, d->ctx->deterministic) ? 2 : 1;
    if (a->kv.n_own > 1 && split > 0)
        return cu_att_double(a) ? "double_kernel attention_kernel merge_kernel?" : split == 2 ?
            "chunk_kernel attention_kernel merge_kernel?" :
            "split_kernel attention_kernel merge_kernel?";
    return name[form & ATT_LONG][split];
}

int
cu_attention_slow(const struct cu_dev *d, const struct fdk_attention_args *a)
{
    return !(attention_form(d, a) & ATT_SPLIT);
}

/* A kernel that cannot make its tensor map launches nothing; then the plain kernel is
 * used. */
static int
attention_run(const struct fdk_attention_args *a, fdk_stream_t st)
{
    struct cu_dev *d = cu_stream_of(st)->dev;
    const int form = attention_form(d, a);
    int rc = form & ATT_LONG ? cu_att_long(a, st) : 0, done = form & ATT_LONG && rc == 0;
    if (rc == 0 && (form & ATT_SPLIT))
        rc = cu_att_split(a, st);
    else if (rc == 0)
        return cu_att_plain(a, 1, done ? CU_ATT_LONG_MIN : INT32_MAX, st);
    if (rc == 0 && a->kv.n_own > 1) /* rows of one token are done */
        return cu_att_plain(a, 2, INT32_MAX, st);
    if (rc != -ENOTSUP)
        return rc;
    __atomic_store_n(&d->fell_back, 1, __ATOMIC_RELAXED);
    return cu_att_plain(a, 1, done ? CU_ATT_LONG_MIN : INT32_MAX, st);
}

int
cu_attention(const struct fdk_attention_args *a, fdk_stream_t st)
{
    int32_t qa, bt;
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (a->y == NULL || a->qkv == NULL || a->b == NULL || a->b->table_stride <= 0 ||
        a->b->state == NULL || a->work == NULL || a->n_work == NULL || a->n_done == NULL ||
        a->window < 0 || !(a->softcap >= 0) ||
        (a->window > 0 && a->window != a->step_window) || !fdk_asks_valid(a))
        return -EINVAL;
    rc = cu_kv_valid(&a->kv, a->T, a->H, a->K, a->D, a->layer);
    if (rc != 0)
        return rc;
    if (a->act != FDK_F32 && a->act != FDK_BF16)
        return -ENOTSUP;
    cu_att_shape(a, &qa, &bt);
    if (a->n_work_max < fdk_tiles_max(a->b->max_row, a->T, qa, bt))
        return -EINVAL;
    if (a->n_work_max == 0)
        return 0;
    return attention_run(a, st);
}

cudaError_t
cu_attention_load(void)
{
    cudaError_t e = cu_att_plain_load();
    if (e == cudaSuccess)
        e = cu_att_plan_load();
    if (e == cudaSuccess)
        e = cu_att_split_load();
    return e == cudaSuccess ? cu_att_long_load() : e;
}
