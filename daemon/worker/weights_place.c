/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan's second half: where in the arena each weight goes, in which type,
 * and the pieces of work that bring it there.
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

static void
quantized(struct wts_place *pl, int32_t cols, const struct qnt *q)
{
    pl->dtype = q->dtype;
    pl->cols = cols;
    pl->group = qnt_group(q, cols);
}

/* A checkpoint's e4m3 weight has rows and scales as one that is quantized here. */
static void
keep_fp8(struct wts_place *pl, const struct mdl_program *p, int32_t cols)
{
    const struct qnt q = { FDK_F8E4M3, p->cfg.quant == MDL_QUANT_BLOCK ? MDL_FP8_BLOCK : 0 };

    quantized(pl, cols, &q);
}

static uint64_t
scale_bytes(const struct wts_place *pl, uint64_t rows)
{
    return rows * (uint64_t)((pl->cols - 1) / pl->group + 1) * sizeof(float);
}

/* The matrices of the layers' GEMMs; a head (LOGITS) is none of them. */
static int
mark_quantized(struct wts_plan *wp, const struct mdl_program *p, char *err, size_t err_bytes)
{
    for (int32_t i = 0; i < p->n_op; i++) {
        const struct mdl_op *o = &p->op[i];
        const struct wts_ref *w = o->w >= 0 ? &p->w[o->w] : NULL;

        if (o->kind != MDL_OP_GEMM || o->layer < 0 || w->alias >= 0)
            continue;
        if (wp->qnt.dtype == FDK_I4 && w->cols % 2 != 0)
            return mdl_fail(-EINVAL, err, err_bytes,
                "W_MODEL: tensor %s has %d columns: quant.weights=wint4 packs two of a "
                "row into a byte and needs an even number; use wint8 or none",
                w->name[0], w->cols);
        quantized(&wp->place[o->w], w->cols, &wp->qnt);
    }
    return 0;
}

/* Bytes of a weight with its scales; where the scales begin goes to pl. */
static int
size_weight(struct wts_place *pl, uint64_t *ret)
{
    uint64_t rows, bytes;

    if (pl->cols == 0) {
        pl->dtype = pl->src;
        return __builtin_mul_overflow(pl->n_elt, fdk_dtype_bytes(pl->dtype), ret);
    }
    rows = pl->n_elt / (uint64_t)pl->cols;
    bytes = rows * fdk_row_bytes(pl->dtype, (size_t)pl->cols);
    bytes = (bytes + WTS_ALIGN - 1) / WTS_ALIGN * WTS_ALIGN;
    pl->scale_off = pl->off + bytes;
    *ret = bytes + scale_bytes(pl, rows);
    return 0;
}

static int
place_weights(struct wts_plan *wp, const struct mdl_program *p, char *err, size_t err_bytes)
{
    uint64_t at = 0, bytes, by_type[FDK_DTYPE__N] = { 0 };

    for (int32_t i = 0; i < p->n_w; i++) {
        const struct wts_ref *w = &p->w[i];
        struct wts_place *pl = &wp->place[i];

        pl->alias = w->alias;
        for (int k = 0; k < w->n_part; k++)
            pl->n_elt += (uint64_t)w->rows[k] * (uint64_t)(w->cols > 0 ? w->cols : 1);
        if (w->alias >= 0)
            continue;
        pl->src = w->as_f32 ? FDK_F32 : wp->dummy ? p->cfg.dtype : stack_dtype(wp, w);
        if (pl->src == FDK_F8E4M3)
            keep_fp8(pl, p, w->cols);
        pl->off = at;
        if (w->cols > 0)
            by_type[pl->src] += pl->n_elt * fdk_dtype_bytes(pl->src);
        if (size_weight(pl, &bytes) ||
            __builtin_add_overflow(at, (bytes + WTS_ALIGN - 1) / WTS_ALIGN * WTS_ALIGN, &at))
            return mdl_fail(-EOVERFLOW, err, err_bytes,
                "W_LIMIT: the weights' size overflows");
    }
    for (int32_t i = 0; i < p->n_w; i++) {
        if (p->w[i].alias >= 0) {
            wp->place[i].dtype = wp->place[p->w[i].alias].dtype;
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

/* The scales of rows of an e4m3 weight that begin at arena offset `to`, each for
 * as many rows as the checkpoint's scheme says. */
static void
add_scales(struct wts_plan *wp, const struct mdl_program *p, const struct wts_piece *of,
    int32_t rows, uint64_t to)
{
    const struct wts_place *pl = &wp->place[of->place];
    const struct wts_tensor *t = wts_fp8_scale(wp, of->tensor);
    struct wts_piece *pc = &wp->piece[wp->n_piece++];

    *pc = (struct wts_piece){ .file = t->file,
        .place = of->place,
        .src = t->dtype,
        .dst = FDK_F32,
        .off = t->off,
        .n_elt = t->bytes / fdk_dtype_bytes(t->dtype),
        .dst_off = to,
        .tensor = t->name };
    if (p->cfg.quant == MDL_QUANT_CHANNEL)
        return;
    pc->rep = p->cfg.quant == MDL_QUANT_BLOCK ? MDL_FP8_BLOCK : rows;
    pc->rep_cols = (pl->cols - 1) / pl->group + 1;
    pc->rep_rows = rows;
}

static void
plan_pieces(struct wts_plan *wp, const struct mdl_program *p)
{
    for (int32_t i = 0; i < p->n_w; i++) {
        const struct wts_ref *w = &p->w[i];
        const struct wts_place *pl = &wp->place[i];
        uint64_t at = pl->off, scale = pl->scale_off;

        for (int k = 0; k < w->n_part && w->alias < 0; k++) {
            const struct wts_tensor *t = wts_find(wp, w->name[k]);
            struct wts_piece *pc = &wp->piece[wp->n_piece++];
            uint64_t rows = (uint64_t)w->rows[k];

            *pc = (struct wts_piece){ .file = t->file,
                .place = i,
                .src = t->dtype,
                .dst = pl->dtype,
                .off = t->off,
                .n_elt = t->bytes / fdk_dtype_bytes(t->dtype),
                .dst_off = at,
                .tensor = t->name };
            if (pl->cols == 0) {
                at += pc->n_elt * fdk_dtype_bytes(pl->dtype);
                continue;
            }
            if (pl->src == FDK_F8E4M3) {
                add_scales(wp, p, pc, w->rows[k], scale);
            } else {
                pc->cols = pl->cols;
                pc->scale_off = scale;
            }
            at += rows * fdk_row_bytes(pl->dtype, (size_t)pl->cols);
            scale += scale_bytes(pl, rows);
        }
    }
    qsort(wp->piece, (size_t)wp->n_piece, sizeof(*wp->piece), by_place);
}

/* What each weight looks like in a trained model, roughly: outputs of unit
 * scale from inputs of unit scale, norms near one. */
static void
plan_dummy(struct wts_plan *wp, const struct mdl_program *p)
{
    for (int32_t i = 0; i < p->n_w; i++) {
        const struct wts_ref *w = &p->w[i];
        struct wts_place *pl = &wp->place[i];

        if (w->alias >= 0)
            continue;
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
            .dst = pl->dtype,
            .n_elt = pl->n_elt,
            .dst_off = pl->off,
            .scale_off = pl->scale_off,
            .cols = pl->cols };
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
