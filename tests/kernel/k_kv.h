/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of KV caches and attention: cache layouts, e4m3 conversion as the format
 * defines it, and work lists with guards.
 */
#ifndef FDD_TESTS_KERNEL_K_KV_H
#define FDD_TESTS_KERNEL_K_KV_H

#include "tests/kernel/k_util.h"

/* The value of an e4m3 byte. */
static inline float
k_from_f8(uint8_t c)
{
    int e = c >> 3 & 15, m = c & 7;
    float v = e == 0 ? ldexpf((float)m, -9) : ldexpf((float)(8 + m), e - 10);
    if ((c & 0x7f) == 0x7f)
        v = NAN;
    return c & 0x80 ? -v : v;
}

/* The e4m3 byte nearest to x: ties to even, saturated at 448, NaN for NaN. */
static inline uint8_t
k_to_f8(float x)
{
    uint8_t sign = signbit(x) ? 0x80 : 0;
    double a = fabs((double)x);
    int lo = 0, hi = 126;
    if (isnan(x))
        return sign | 0x7f;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if ((double)k_from_f8((uint8_t)mid) <= a)
            lo = mid;
        else
            hi = mid;
    }
    double below = a - (double)k_from_f8((uint8_t)lo);
    double above = (double)k_from_f8((uint8_t)hi) - a;
    int up = above < below || (above == below && hi % 2 == 0);
    return (uint8_t)(sign | (up ? hi : lo));
}

/* Fills in the layout of a KV cache: values, then scales if the type has separate ones.
 * The caller sets base. Returns the size of n_block blocks in bytes, a multiple of 4. */
static inline size_t
k_kv_layout(struct fdk_kv *kv, int K, int B, int D, int n_layer, int n_block,
    enum fdk_dtype t)
{
    uint64_t values = ((uint64_t)(K * B * D) * fdk_dtype_bytes(t) + 3) & ~(uint64_t)3;
    uint64_t scales = t == FDK_I8 ? (uint64_t)(K * B) * 4 : 0;
    *kv = (struct fdk_kv){
        .v_bytes = values,
        .k_scale_off = 2 * values,
        .v_scale_off = 2 * values + scales,
        .layer_bytes = 2 * (values + scales),
        .block_size = B,
        .n_kv_head = K,
        .head_dim = D,
        .dtype = t,
    };
    kv->block_bytes = (uint64_t)n_layer * kv->layer_bytes;
    return (size_t)n_block * kv->block_bytes;
}

/* Address of element 0 of a head's vector. */
static inline char *
k_kv_at(const struct fdk_kv *kv, int layer, int slot, int head, int value)
{
    return (char *)kv->base + (uint64_t)(slot / kv->block_size) * kv->block_bytes +
        (uint64_t)layer * kv->layer_bytes + (value ? kv->v_bytes : 0) +
        (size_t)((head * kv->block_size + slot % kv->block_size) * kv->head_dim) *
        fdk_dtype_bytes(kv->dtype);
}

static inline char *
k_kv_scale_at(const struct fdk_kv *kv, int layer, int slot, int head, int value)
{
    return (char *)kv->base + (uint64_t)(slot / kv->block_size) * kv->block_bytes +
        (uint64_t)layer * kv->layer_bytes + (value ? kv->v_scale_off : kv->k_scale_off) +
        (size_t)(head * kv->block_size + slot % kv->block_size) * 4;
}

struct k_plan {            /* a work list with guards after it */
    struct fdk_work *work; /* [n_max + K_GUARD] */
    int32_t n_work, n_max, a, bt;
    uint32_t n_done;
};

/* Sets the arguments that attention takes from a plan; the work list has room for any
 * distribution of the tokens over rows. */
static inline void
k_plan_init(struct k_dev *d, struct fdk_attention_args *a, struct k_plan *p)
{
    d->ops->att_shape(a, &p->a, &p->bt);
    p->n_max = fdk_tiles_max(a->b->max_row, a->T, p->a, p->bt);
    p->work = malloc((size_t)(p->n_max + K_GUARD) * sizeof(*p->work));
    assert_non_null(p->work);
    memset(p->work, 0x7f, (size_t)(p->n_max + K_GUARD) * sizeof(*p->work));
    p->n_work = 0x7f7f7f7f;
    p->n_done = 0x7f7f7f7f;
    a->work = p->work;
    a->n_work = &p->n_work;
    a->n_done = &p->n_done;
    a->n_work_max = p->n_max;
}

static inline void
k_plan_launch(struct k_dev *d, const struct fdk_batch *b, struct k_plan *p)
{
    const struct fdk_att_plan_args a = {
        .work = p->work,
        .n_work = &p->n_work,
        .n_done = &p->n_done,
        .b = b,
        .a = p->a,
        .bt = p->bt,
        .n_max = p->n_max,
    };
    assert_int_equal(d->ops->att_plan(&a, d->st), 0);
}

static inline void
k_plan_free(struct k_plan *p)
{
    for (int i = 0; i < K_GUARD; i++) {
        assert_int_equal(p->work[p->n_max + i].row, 0x7f7f7f7f);
        assert_int_equal(p->work[p->n_max + i].tile, 0x7f7f7f7f);
    }
    free(p->work);
}

#endif
