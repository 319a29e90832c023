/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks of weights: their size, the destinations of their rows in each rank, and
 * conversions on the host.
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

/* Rows made of the repeated scales before element i. */
static uint64_t
repeated_rows(const struct wts_piece *pc, uint64_t i)
{
    uint64_t n = i / (uint64_t)pc->rep_cols * (uint64_t)pc->rep;

    return n < (uint64_t)pc->rep_rows ? n : (uint64_t)pc->rep_rows;
}

/* Rows that the first i elements fill; not for a plain piece. */
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

/* ---- which rows of a chunk each rank has ---- */

/* A cut, and its first row in the model's weight and in a rank's. Cuts follow one
 * another. */
struct cut_at {
    const struct wts_cut *cut;
    int64_t model, rank;
};

static struct cut_at
cut_at(const struct wts_place *pl, int32_t n)
{
    struct cut_at c = { &pl->cut[n], 0, 0 };

    for (int32_t i = 0; i < n; i++) {
        c.model += pl->cut[i].rows;
        c.rank += pl->cut[i].rank_rows;
    }
    return c;
}

/* Number of rows of a cut that a rank has, from *ret_first on. */
static int64_t
rank_has(const struct wts_place *pl, const struct wts_cut *c, int32_t rank,
    int64_t *ret_first)
{
    int64_t first = (int64_t)(rank / c->share) * c->rank_rows, left = c->rows - first;

    *ret_first = first;
    if ((pl->shard == WTS_FIRST && rank > 0) || left < 0)
        return 0;
    return left < c->rank_rows ? left : c->rank_rows;
}

int
wts_next_dest(const struct wts_plan *wp, const struct wts_chunk *c, int32_t n_at,
    int32_t *i, struct wts_dest *ret)
{
    const struct wts_piece *pc = c->pc;
    const struct wts_place *pl = &wp->place[pc->place];
    int64_t begin, end;

    if (wts_is_plain(pc)) {
        *ret = (struct wts_dest){ .at = *i };
        return (*i)++ < n_at;
    }
    begin = pc->row + (int64_t)rows_before(pc, c->first);
    end = pc->row + (int64_t)rows_before(pc, c->first + c->n_elt);
    while (*i < n_at * pl->n_cut) {
        int32_t at = *i % n_at, rank = at % wp->n_rank;
        const struct cut_at cut = cut_at(pl, *i / n_at);
        int64_t first, has = rank_has(pl, cut.cut, rank, &first), from, to;

        ++*i;
        first += cut.model;
        from = begin > first ? begin : first;
        to = end < first + has ? end : first + has;
        if (from >= to)
            continue;
        *ret = (struct wts_dest){ at, cut.rank + from - first, to - from, from - begin };
        return 1;
    }
    return 0;
}

int
wts_next_zeros(const struct wts_plan *wp, int32_t place, int32_t n_at, int32_t *i,
    struct wts_dest *ret)
{
    const struct wts_place *pl = &wp->place[place];

    while (*i < n_at * pl->n_cut) {
        int32_t at = *i % n_at;
        const struct cut_at cut = cut_at(pl, *i / n_at);
        int64_t first, has = rank_has(pl, cut.cut, at % wp->n_rank, &first);

        ++*i;
        if (has == cut.cut->rank_rows)
            continue;
        *ret = (struct wts_dest){ at, cut.rank + has, cut.cut->rank_rows - has, 0 };
        return 1;
    }
    return 0;
}

/* Bytes of a row in the buffer that holds the chunk. */
static size_t
x_row_bytes(const struct wts_piece *pc)
{
    return pc->rep > 0 ? repeated_bytes(pc) : wts_src_bytes(pc, (uint64_t)pc->cols);
}

size_t
wts_dest_off(const struct wts_chunk *c, const struct wts_dest *d)
{
    return d->n == 0 ? 0 : (size_t)d->from * x_row_bytes(c->pc);
}

size_t
wts_dest_bytes(const struct wts_chunk *c, const struct wts_dest *d)
{
    return d->n == 0 ? wts_src_bytes(c->pc, c->n_elt) : (size_t)d->n * x_row_bytes(c->pc);
}

void *
wts_dest_to(const struct wts_plan *wp, const struct wts_chunk *c,
    const struct wts_dest *d, void *arena)
{
    const struct wts_piece *pc = c->pc;
    const struct wts_place *pl = &wp->place[pc->place];
    const struct fdk_weight w = wts_weight_in(wp, pc->place, arena);

    if (d->n == 0)
        return (char *)fdk_weight_at(&w, pc->what, pc->row) + wts_src_bytes(pc, c->first);
    if (pc->rep > 0 ? pc->rep_cols != fdk_weight_groups(&w)
                    : pc->src != w.format || pl->cols != w.cols)
        return NULL;
    return fdk_weight_at(&w, pc->what, d->row);
}

struct fdk_pack_args
wts_dest_pack(const struct wts_plan *wp, const struct wts_chunk *c,
    const struct wts_dest *d, void *arena, const void *x, uint64_t *bad)
{
    const struct wts_piece *pc = c->pc;
    const struct wts_place *pl = &wp->place[pc->place];
    struct fdk_pack_args a = { .w = wts_weight_in(wp, pc->place, arena),
        .what = pc->what,
        .x_dtype = pc->rep > 0 ? FDK_F32 : pc->src,
        .first = d->row,
        .n = d->n,
        .x = x,
        .x_cols = pc->rep > 0 ? pc->rep_cols : pc->cols,
        .bad = bad,
        .bad_first = c->at + (uint64_t)d->from * (uint64_t)pc->cols };
    int32_t width = fdk_pack_width(&a);

    if (width < a.x_cols)
        a.x_at = (pl->split + d->at % wp->n_rank) * width;
    a.x_row_scale = pl->row_scale && pc->rep == 0;
    return a;
}

size_t
wts_dest_filled(const struct wts_plan *wp, const struct wts_chunk *c,
    const struct wts_dest *d)
{
    const struct wts_piece *pc = c->pc;
    const struct fdk_weight *w = &wp->place[pc->place].w;
    size_t scales = (size_t)fdk_weight_groups(w) * sizeof(float);

    if (d->n == 0)
        return wts_src_bytes(pc, c->n_elt);
    if (pc->rep > 0)
        return (size_t)d->n * scales;
    return (size_t)d->n *
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

size_t
wts_repeat_bytes(const struct wts_chunk *c)
{
    return (size_t)(rows_before(c->pc, c->first + c->n_elt) - rows_before(c->pc, c->first)) *
        repeated_bytes(c->pc);
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
