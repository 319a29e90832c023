/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks of weights: how large, where they go, and what of them is prepared on the host.
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
    return pc->cols == 0 && pc->rep == 0;
}

static size_t
repeated_bytes(const struct wts_piece *pc)
{
    return (size_t)pc->rep_cols * sizeof(float);
}

size_t
wts_row_bytes(const struct wts_piece *pc)
{
    if (pc->cols > 0)
        return wts_src_bytes(pc, (uint64_t)pc->cols);
    return pc->rep == 0
        ? 0
        : wts_src_bytes(pc, (uint64_t)pc->rep_cols) + (size_t)pc->rep * repeated_bytes(pc);
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

/* Rows that the first i elements fill; of a plain piece not asked for. */
static uint64_t
rows_before(const struct wts_piece *pc, uint64_t i)
{
    return pc->rep > 0 ? repeated_rows(pc, i) : i / (uint64_t)pc->cols;
}

struct fdk_weight
wts_weight_in(const struct wts_plan *wp, int32_t i, void *arena)
{
    struct fdk_weight w = wp->place[i].w;

    w.data = (char *)arena + wp->place[i].off;
    return w;
}

void *
wts_chunk_to(const struct wts_plan *wp, const struct wts_chunk *c, void *arena)
{
    const struct wts_piece *pc = c->pc;
    const struct fdk_weight w = wts_weight_in(wp, pc->place, arena);

    if (wts_is_plain(pc))
        return (char *)fdk_weight_at(&w, pc->what, pc->row) + wts_src_bytes(pc, c->first);
    return pc->rep > 0
        ? fdk_weight_at(&w, pc->what, pc->row + (int64_t)repeated_rows(pc, c->first))
        : NULL;
}

struct fdk_pack_args
wts_chunk_pack(const struct wts_plan *wp, const struct wts_chunk *c, void *arena,
    const void *x, uint64_t *bad)
{
    const struct wts_piece *pc = c->pc;
    const uint64_t row = rows_before(pc, c->first);

    return (struct fdk_pack_args){ .w = wts_weight_in(wp, pc->place, arena),
        .what = pc->what,
        .x_dtype = pc->rep > 0 ? FDK_F32 : pc->src,
        .first = pc->row + (int64_t)row,
        .n = (int64_t)(rows_before(pc, c->first + c->n_elt) - row),
        .x = x,
        .bad = bad,
        .bad_first = c->at };
}

size_t
wts_chunk_filled(const struct wts_plan *wp, const struct wts_chunk *c)
{
    const struct wts_piece *pc = c->pc;
    const struct fdk_weight *w = &wp->place[pc->place].w;
    size_t scales = (size_t)fdk_weight_groups(w) * sizeof(float), n;

    if (wts_is_plain(pc))
        return wts_src_bytes(pc, c->n_elt);
    n = (size_t)(rows_before(pc, c->first + c->n_elt) - rows_before(pc, c->first));
    if (pc->rep > 0)
        return n * scales;
    return n *
        (fdk_row_bytes(w->format, (size_t)w->cols) + (pc->src != w->format ? scales : 0));
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

void
wts_repeat(const struct wts_chunk *c, void *dst, const void *src)
{
    const struct wts_piece *pc = c->pc;
    size_t cols = (size_t)pc->rep_cols, row = repeated_bytes(pc);
    const char *from = src;
    char *to = dst;

    for (uint64_t i = 0; i < c->n_elt; i += cols) {
        uint64_t n =
            repeated_rows(pc, c->first + i + cols) - repeated_rows(pc, c->first + i);

        if (n > 0 && pc->src == FDK_F32)
            memcpy(to, from + wts_src_bytes(pc, i), row);
        else if (n > 0)
            fdk_to_f32(to, from + wts_src_bytes(pc, i), pc->src, cols);
        for (uint64_t k = 1; k < n; k++)
            memcpy(to + k * row, to, row);
        to += n * row;
    }
}
