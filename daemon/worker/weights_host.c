/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks of weights: how large, where they go, and their conversion on the
 * host.
 */
#include "config.h"

#include "daemon/worker/weights_load.h"

#include <errno.h>
#include <string.h>

#include "daemon/worker/model_priv.h"

/* ---- sizes and places ---- */

size_t
wts_src_bytes(const struct wts_piece *pc, uint64_t n)
{
    return (size_t)n * fdk_dtype_bytes(pc->src);
}

int
wts_is_plain(const struct wts_piece *pc)
{
    return pc->cols == 0 && pc->rep == 0 && pc->src == pc->dst;
}

size_t
wts_row_bytes(const struct wts_piece *pc)
{
    if (pc->cols > 0)
        return wts_src_bytes(pc, (uint64_t)pc->cols);
    return pc->rep == 0 ? 0
                        : wts_src_bytes(pc, (uint64_t)pc->rep_cols) +
            (size_t)pc->rep * (size_t)pc->rep_cols * fdk_dtype_bytes(pc->dst);
}

uint64_t
wts_chunk_elts(const struct wts_piece *pc, size_t bytes)
{
    size_t row = wts_row_bytes(pc);
    uint64_t cols = (uint64_t)(pc->cols > 0 ? pc->cols : pc->rep_cols);

    if (row == 0)
        return bytes / fdk_dtype_bytes(pc->src);
    return (bytes > row ? bytes / row : 1) * cols;
}

/* Rows of repeated scales before element i, and in all. */
static uint64_t
repeated_rows(const struct wts_piece *pc, uint64_t i)
{
    uint64_t n = i / (uint64_t)pc->rep_cols * (uint64_t)pc->rep;

    return n < (uint64_t)pc->rep_rows ? n : (uint64_t)pc->rep_rows;
}

/* Bytes that the first i elements fill. */
static uint64_t
values_before(const struct wts_piece *pc, uint64_t i)
{
    if (pc->cols > 0)
        return i / (uint64_t)pc->cols * fdk_row_bytes(pc->dst, (size_t)pc->cols);
    if (pc->rep > 0)
        i = repeated_rows(pc, i) * (uint64_t)pc->rep_cols;
    return i * fdk_dtype_bytes(pc->dst);
}

static uint64_t
scales_before(const struct wts_plan *wp, const struct wts_piece *pc, uint64_t i)
{
    if (pc->cols == 0)
        return 0;
    return i / (uint64_t)pc->cols * (uint64_t)qnt_groups(&wp->qnt, pc->cols) *
        sizeof(float);
}

uint64_t
wts_chunk_to(const struct wts_chunk *c)
{
    return c->pc->dst_off + values_before(c->pc, c->first);
}

uint64_t
wts_chunk_scales(const struct wts_plan *wp, const struct wts_chunk *c)
{
    return c->pc->scale_off + scales_before(wp, c->pc, c->first);
}

size_t
wts_chunk_values(const struct wts_chunk *c)
{
    return (size_t)(values_before(c->pc, c->first + c->n_elt) -
        values_before(c->pc, c->first));
}

size_t
wts_chunk_bytes(const struct wts_plan *wp, const struct wts_chunk *c)
{
    return wts_chunk_values(c) +
        (size_t)(scales_before(wp, c->pc, c->first + c->n_elt) -
            scales_before(wp, c->pc, c->first));
}

/* ---- conversion ---- */

int
wts_not_finite(const struct wts_piece *pc, uint64_t i, char *err, size_t err_bytes)
{
    uint64_t cols = (uint64_t)pc->cols;

    return mdl_fail(-EINVAL, err, err_bytes,
        "W_MODEL: tensor %s: element (%llu, %llu) is not finite, which cannot be "
        "quantized; set quant.weights=none, or mend the checkpoint",
        pc->tensor != NULL ? pc->tensor : "(dummy)", (unsigned long long)(i / cols),
        (unsigned long long)(i % cols));
}

static int
pack_rows(const struct wts_plan *wp, const struct wts_chunk *c, char *dst, float *scale,
    const char *src, char *err, size_t err_bytes)
{
    const struct wts_piece *pc = c->pc;
    size_t cols = (size_t)pc->cols, raw = wts_src_bytes(pc, cols);
    size_t row = fdk_row_bytes(pc->dst, cols), n = c->n_elt / cols;
    size_t n_group = (size_t)qnt_groups(&wp->qnt, pc->cols);
    int32_t at;

    for (size_t i = 0; i < n; i++)
        if (qnt_row(dst + i * row, scale + i * n_group, src + i * raw, pc->src, pc->cols,
                &wp->qnt, &at) != 0)
            return wts_not_finite(pc, c->first + i * cols + (uint64_t)at, err, err_bytes);
    return 0;
}

/* Each row of scales to all the rows it holds for. */
static void
repeat_rows(const struct wts_chunk *c, char *dst, const char *src)
{
    const struct wts_piece *pc = c->pc;
    size_t cols = (size_t)pc->rep_cols, row = cols * fdk_dtype_bytes(pc->dst);

    for (uint64_t i = 0; i < c->n_elt; i += cols) {
        uint64_t n =
            repeated_rows(pc, c->first + i + cols) - repeated_rows(pc, c->first + i);

        if (n > 0 && pc->src == pc->dst)
            memcpy(dst, src + wts_src_bytes(pc, i), row);
        else if (n > 0)
            wts_to_f32(dst, src + wts_src_bytes(pc, i), pc->src, cols);
        for (uint64_t k = 1; k < n; k++)
            memcpy(dst + k * row, dst, row);
        dst += n * row;
    }
}

int
wts_convert(const struct wts_plan *wp, const struct wts_chunk *c, void *dst, float *scale,
    const void *src, char *err, size_t err_bytes)
{
    const struct wts_piece *pc = c->pc;

    if (pc->cols > 0)
        return pack_rows(wp, c, dst, scale, src, err, err_bytes);
    if (pc->rep > 0)
        repeat_rows(c, dst, src);
    else if (pc->src == pc->dst)
        memcpy(dst, src, wts_src_bytes(pc, c->n_elt));
    else
        wts_to_f32(dst, src, pc->src, c->n_elt);
    return 0;
}
