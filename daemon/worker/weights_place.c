/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The second half of the plan: the offset and the type of each weight in the arena, and
 * the pieces that bring it there.
 */
#include "config.h"

#include "daemon/worker/weights_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/model_priv.h"

static enum fdk_dtype
stack_dtype(const struct wts_plan *wp, const struct wts_ref *w)
{
    enum fdk_dtype t = wts_find(wp, w->name[0])->dtype;

    for (int k = 1; k < w->n_part; k++)
        if (wts_find(wp, w->name[k])->dtype != t)
            return FDK_F32;
    return w->as_f32 ? FDK_F32 : t;
}

/* Set format and group. A rank must have whole groups of a row, unless a scale holds
 * for the whole row, which all ranks' columns then share. */
static int
quantized(struct wts_place *pl, const struct wts_ref *w, const struct qnt *q,
    const char *advice, char *err, size_t err_bytes)
{
    int32_t group = qnt_group(q, w->cols);

    pl->w.format = q->dtype;
    pl->row_scale = group == w->cols && w->rank_cols < w->cols;
    pl->w.group = pl->row_scale ? w->rank_cols : group;
    if (w->rank_cols % pl->w.group == 0 || w->rank_cols == w->cols)
        return 0;
    return mdl_fail(-EINVAL, err, err_bytes,
        "W_MODEL: tensor %s has %d columns, which are %d for each of %d ranks: no multiple "
        "of the %d that share a scale; %s",
        w->name[0], w->cols, w->rank_cols, w->cols / w->rank_cols, group, advice);
}

/* Treat a checkpoint's e4m3 weight like one that is quantized here. */
static int
keep_fp8(struct wts_place *pl, const struct mdl_program *p, const struct wts_ref *w,
    char *err, size_t err_bytes)
{
    const struct qnt q = { FDK_F8E4M3, p->cfg.quant == MDL_QUANT_BLOCK ? MDL_FP8_BLOCK : 0 };

    return quantized(pl, w, &q,
        "set parallel.tensor_parallel_size to a size that does not cut the checkpoint's "
        "blocks",
        err, err_bytes);
}

/* Mark the matrices of the layers' GEMMs, not a head (LOGITS). */
static int
mark_quantized(struct wts_plan *wp, const struct mdl_program *p, char *err, size_t err_bytes)
{
    int rc = 0;

    for (int32_t i = 0; i < p->n_op && rc == 0; i++) {
        const struct mdl_op *o = &p->op[i];
        const struct wts_ref *w = o->w >= 0 ? &p->w[o->w] : NULL;

        if (o->kind != MDL_OP_GEMM || o->layer < 0 || w->alias >= 0)
            continue;
        if (wp->qnt.dtype == FDK_I4 && w->rank_cols % 2 != 0)
            return mdl_fail(-EINVAL, err, err_bytes,
                "W_MODEL: tensor %s has %d columns%s: quant.weights=wint4 packs two of a "
                "row into a byte and needs an even number; use wint8 or none",
                w->name[0], w->rank_cols, w->rank_cols < w->cols ? " for each rank" : "");
        rc = quantized(&wp->place[o->w], w, &wp->qnt,
            "set quant.group_size to one that divides them, or to 0 (a scale per row)",
            err, err_bytes);
    }
    return rc;
}

/* Does an operation other than a GEMM read it? */
static int
read_by_others(const struct mdl_program *p, int32_t w)
{
    for (int32_t i = 0; i < p->n_op; i++) {
        const struct mdl_op *o = &p->op[i];
        int gemm = o->kind == MDL_OP_GEMM || o->kind == MDL_OP_LOGITS;
        const int32_t ids[] = { gemm ? -1 : o->w, o->w2, o->bias };

        for (size_t k = 0; k < sizeof(ids) / sizeof(ids[0]); k++)
            if (ids[k] == w || (ids[k] >= 0 && p->w[ids[k]].alias == w))
                return 1;
    }
    return 0;
}

/* wts_piece.cols for values that have this type in the checkpoint. */
static int32_t
whole_rows(const struct wts_plan *wp, const struct wts_place *pl, enum fdk_dtype src)
{
    return wp->n_rank == 1 && pl->w.cols == pl->cols && src == pl->w.format &&
            pl->w.layout == FDK_LAYOUT_ROWS
        ? 0
        : pl->cols;
}

static int
lay_out(const struct wts_plan *wp, const struct mdl_program *p, int32_t i, char *err,
    size_t err_bytes)
{
    const struct wts_ref *w = &p->w[i];
    struct fdk_weight *to = &wp->place[i].w;
    int rc;

    if (w->cols > 0 && wp->k != NULL && wp->k->weight_layout != NULL &&
        !read_by_others(p, i))
        rc = wp->k->weight_layout(to);
    else
        rc = fdk_weight_rows(to);
    if (rc == -ENOTSUP)
        return mdl_fail(rc, err, err_bytes,
            "W_MODEL: tensor %s: no GEMM of the %s backend takes a matrix (%d, %d) of %s with "
            "%d elements to a scale; set quant.weights or quant.group_size to what it takes",
            w->name[0], wp->k->name, to->rows, to->cols, fdk_dtype_name(to->format),
            to->group);
    return rc != 0 ? mdl_fail(rc, err, err_bytes, "W_LIMIT: the weights' size overflows")
                   : 0;
}

/* Set a rank's share of a weight. */
static void
shape(struct wts_place *pl, const struct wts_ref *w)
{
    pl->alias = w->alias;
    pl->cols = w->cols > 0 ? w->cols : 1;
    pl->w.cols = w->cols > 0 ? w->rank_cols : 1;
    pl->shard = w->shard;
    pl->split = w->split;
    pl->n_cut = w->n_cut;
    memcpy(pl->cut, w->cut, sizeof(pl->cut));
    for (int k = 0; k < w->n_cut; k++)
        pl->w.rows += w->cut[k].rank_rows;
}

static int
place_weights(struct wts_plan *wp, const struct mdl_program *p, char *err, size_t err_bytes)
{
    uint64_t at = 0, by_type[FDK_DTYPE__N] = { 0 };
    int rc;

    for (int32_t i = 0; i < p->n_w; i++) {
        const struct wts_ref *w = &p->w[i];
        struct wts_place *pl = &wp->place[i];

        shape(pl, w);
        if (w->alias >= 0)
            continue;
        pl->src = w->as_f32 ? FDK_F32 : wp->dummy ? p->cfg.dtype : stack_dtype(wp, w);
        rc = pl->src == FDK_F8E4M3 ? keep_fp8(pl, p, w, err, err_bytes) : 0;
        if (pl->w.group == 0)
            pl->w.format = pl->src;
        pl->off = at;
        if (w->cols > 0)
            by_type[pl->src] += wts_n_elt(&pl->w) * fdk_dtype_bytes(pl->src);
        if (rc == 0)
            rc = lay_out(wp, p, i, err, err_bytes);
        if (rc != 0)
            return rc;
        if (__builtin_add_overflow(at,
                (pl->w.bytes + WTS_ALIGN - 1) / WTS_ALIGN * WTS_ALIGN, &at))
            return mdl_fail(-EOVERFLOW, err, err_bytes,
                "W_LIMIT: the weights' size overflows");
    }
    for (int32_t i = 0; i < p->n_w; i++) {
        if (p->w[i].alias >= 0) {
            wp->place[i].w = wp->place[p->w[i].alias].w;
            wp->place[i].off = wp->place[p->w[i].alias].off;
        }
    }
    wp->bytes = at;
    wp->main_dtype = FDK_F32;
    for (int t = 0; t < FDK_DTYPE__N; t++)
        if (by_type[t] > by_type[wp->main_dtype])
            wp->main_dtype = (enum fdk_dtype)t;
    return 0;
}

static int
by_place(const void *a, const void *b)
{
    const struct wts_piece *x = a, *y = b;

    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return x->off < y->off ? -1 : x->off > y->off;
}

/* Add a piece for the scales of `rows` rows of an e4m3 weight; the checkpoint's scheme
 * says for how many rows each scale holds. */
static void
add_scales(struct wts_plan *wp, const struct mdl_program *p, const struct wts_piece *of,
    int32_t rows)
{
    const struct wts_tensor *t = wts_fp8_scale(wp, of->tensor);
    struct wts_piece *pc = &wp->piece[wp->n_piece++];

    *pc = (struct wts_piece){ .file = t->file,
        .place = of->place,
        .what = FDK_PACK_SCALES,
        .src = t->dtype,
        .off = t->off,
        .n_elt = t->bytes / fdk_dtype_bytes(t->dtype),
        .row = of->row,
        .tensor = t->name };
    pc->rep = p->cfg.quant == MDL_QUANT_BLOCK ? MDL_FP8_BLOCK
        : p->cfg.quant == MDL_QUANT_CHANNEL
        ? 1
        : rows;
    pc->rep_cols = 1;
    if (!wp->place[of->place].row_scale)
        pc->rep_cols = (wp->place[of->place].cols - 1) / wp->place[of->place].w.group + 1;
    pc->rep_rows = rows;
}

static void
plan_pieces(struct wts_plan *wp, const struct mdl_program *p)
{
    for (int32_t i = 0; i < p->n_w; i++) {
        const struct wts_ref *w = &p->w[i];
        const struct wts_place *pl = &wp->place[i];
        int64_t row = 0;

        for (int k = 0; k < w->n_part && w->alias < 0; k++) {
            const struct wts_tensor *t = wts_find(wp, w->name[k]);
            struct wts_piece *pc = &wp->piece[wp->n_piece++];

            *pc = (struct wts_piece){ .file = t->file,
                .place = i,
                .src = t->dtype,
                .off = t->off,
                .n_elt = t->bytes / fdk_dtype_bytes(t->dtype),
                .row = row,
                .tensor = t->name };
            pc->cols = whole_rows(wp, pl, t->dtype);
            if (pl->src == FDK_F8E4M3)
                add_scales(wp, p, pc, w->rows[k]);
            row += w->rows[k];
        }
    }
    qsort(wp->piece, (size_t)wp->n_piece, sizeof(*wp->piece), by_place);
}

/* Scales roughly as in a trained model: outputs of unit scale from inputs of unit
 * scale, norms near one. */
static void
plan_dummy(struct wts_plan *wp, const struct mdl_program *p)
{
    int32_t n = -1;

    for (int32_t i = 0; i < p->n_w; i++) {
        const struct wts_ref *w = &p->w[i];
        struct wts_place *pl = &wp->place[i];
        uint64_t rows = 0;

        n += w->split == 0;
        pl->dummy = n;
        if (w->alias >= 0)
            continue;
        for (int k = 0; k < w->n_part; k++)
            rows += (uint64_t)w->rows[k];
        pl->fill = w->cols > 0 ? WTS_FILL_LINEAR
            : strstr(w->name[0], "norm") != NULL
            ? WTS_FILL_NORM
            : WTS_FILL_BIAS;
        pl->scale = 0.02f;
        if (pl->fill == WTS_FILL_LINEAR && strstr(w->name[0], "embed") == NULL)
            pl->scale = 1 / sqrtf((float)w->cols);
        wp->piece[wp->n_piece++] = (struct wts_piece){ .file = -1,
            .place = i,
            .src = pl->src,
            .n_elt = rows * (uint64_t)pl->cols,
            .cols = whole_rows(wp, pl, pl->src) };
    }
}

int
wts_place_all(struct wts_plan *wp, const struct mdl_program *p, char *err, size_t err_bytes)
{
    int rc = 0;

    memset(wp->place, 0, (size_t)wp->n_place * sizeof(*wp->place));
    wp->n_piece = 0;
    if (wp->qnt.dtype != FDK_F32)
        rc = mark_quantized(wp, p, err, err_bytes);
    if (rc == 0)
        rc = place_weights(wp, p, err, err_bytes);
    if (rc != 0)
        return rc;
    if (wp->dummy)
        plan_dummy(wp, p);
    else
        plan_pieces(wp, p);
    return 0;
}
