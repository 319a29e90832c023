/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * e4m3 matrices of a checkpoint and their scales: next to X.weight the tensor
 * X.weight_scale_inv or X.weight_scale (two names for the same: value = stored *
 * scale), of a shape that follows from quantization_config (mdl_config.quant). Scales
 * of activations (X.input_scale and the like) are not used.
 */
#include "config.h"

#include "daemon/worker/weights_priv.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/model_priv.h"

#define E4M3_MAX 448
#define READ_ELT 2048 /* scales read at a time, on the stack */

static const char *const scale_ends[] = { "_scale_inv", "_scale" };
static const char *const act_ends[] = { "input_scale", "activation_scale",
    "input_scale_ub" };

/* The tensor with a weight's scales, the first if both names exist; *ret_n: how many
 * do. */
static const struct wts_tensor *
find_scale(const struct wts_plan *wp, const char *weight, int *ret_n)
{
    const struct wts_tensor *t = NULL;
    char name[MDL_NAME + 16];

    *ret_n = 0;
    for (size_t i = 0; i < sizeof(scale_ends) / sizeof(scale_ends[0]); i++) {
        const struct wts_tensor *s;

        (void)snprintf(name, sizeof(name), "%s%s", weight, scale_ends[i]);
        s = wts_find(wp, name);
        *ret_n += s != NULL;
        t = t == NULL ? s : t;
    }
    return t;
}

const struct wts_tensor *
wts_fp8_scale(const struct wts_plan *wp, const char *weight)
{
    int n;

    return find_scale(wp, weight, &n);
}

/* Is name PREFIX.end for an e4m3 tensor PREFIX.weight? */
static int
belongs(const struct wts_plan *wp, const char *name, const char *end)
{
    size_t n = strlen(name), e = strlen(end);
    const struct wts_tensor *t;
    char weight[MDL_NAME];

    if (n <= e || n - e + sizeof("weight") > sizeof(weight) || name[n - e - 1] != '.' ||
        strcmp(name + n - e, end) != 0)
        return 0;
    (void)snprintf(weight, sizeof(weight), "%.*sweight", (int)(n - e), name);
    t = wts_find(wp, weight);
    return t != NULL && t->dtype == FDK_F8E4M3;
}

enum wts_fp8_use
wts_fp8_use(const struct wts_plan *wp, const char *name)
{
    char end[32];

    for (size_t i = 0; i < sizeof(scale_ends) / sizeof(scale_ends[0]); i++) {
        (void)snprintf(end, sizeof(end), "weight%s", scale_ends[i]);
        if (belongs(wp, name, end))
            return WTS_FP8_SCALE;
    }
    for (size_t i = 0; i < sizeof(act_ends) / sizeof(act_ends[0]); i++)
        if (belongs(wp, name, act_ends[i]))
            return WTS_FP8_UNUSED;
    return WTS_FP8_NOT;
}

/* ---- checks ---- */

static int
check_shape(const struct wts_plan *wp, const struct wts_tensor *t, int32_t rows,
    int32_t cols, enum mdl_quant quant, char *err, size_t err_bytes)
{
    const int64_t b = MDL_FP8_BLOCK, blocks[2] = { (rows + b - 1) / b, (cols + b - 1) / b };
    const int64_t n = t->n_dim > 0 ? t->shape[0] : 1, m = t->n_dim > 1 ? t->shape[1] : 1;
    char a[128], want[64];
    int ok;

    if (quant == MDL_QUANT_BLOCK) {
        ok = t->n_dim == 2 && n == blocks[0] && m == blocks[1];
        wts_shape_text(want, sizeof(want), blocks, 2);
    } else if (quant == MDL_QUANT_TENSOR) {
        ok = t->n_dim <= 2 && n == 1 && m == 1;
        (void)snprintf(want, sizeof(want), "() or (1)");
    } else {
        ok = (t->n_dim == 1 || t->n_dim == 2) && n == rows && m == 1;
        (void)snprintf(want, sizeof(want), "(%d, 1) or (%d)", rows, rows);
    }
    if (ok)
        return 0;
    wts_shape_text(a, sizeof(a), t->shape, t->n_dim);
    return mdl_fail(-EINVAL, err, err_bytes,
        "W_MODEL: %s: tensor %s has shape %s; the "
        "quantization_config of config.json (%s) asks for %s",
        wp->file[t->file].path, t->name, a, mdl_quant_name(quant), want);
}

static int
check_values(const struct wts_plan *wp, const struct wts_tensor *t, char *err,
    size_t err_bytes)
{
    const struct wts_file *f = &wp->file[t->file];
    size_t elt = fdk_dtype_bytes(t->dtype);
    uint64_t n = t->bytes / elt;
    float raw[READ_ELT], v[READ_ELT];

    for (uint64_t at = 0; at < n; at += READ_ELT) {
        size_t m = n - at < READ_ELT ? (size_t)(n - at) : READ_ELT;
        int rc = wts_read_exact(f, raw, m * elt, t->off + at * elt, err, err_bytes);

        if (rc != 0)
            return rc;
        if (t->dtype == FDK_F32)
            memcpy(v, raw, m * elt);
        else
            fdk_to_f32(v, raw, t->dtype, m);
        for (size_t i = 0; i < m; i++)
            if (!(v[i] > 0) || v[i] > FLT_MAX / E4M3_MAX)
                return mdl_fail(-EINVAL, err, err_bytes,
                    "W_MODEL: %s: tensor %s: element %llu is %g; a scale is greater "
                    "than 0, and %d times it is finite",
                    f->path, t->name, (unsigned long long)(at + i), (double)v[i], E4M3_MAX);
    }
    return 0;
}

static int
check_scale(const struct wts_plan *wp, const struct wts_tensor *w, int32_t rows,
    int32_t cols, enum mdl_quant quant, char *err, size_t err_bytes)
{
    const char *path = wp->file[w->file].path;
    const struct wts_tensor *t;
    int n, rc;

    t = find_scale(wp, w->name, &n);
    if (n == 0)
        return mdl_fail(-EINVAL, err, err_bytes,
            "W_MODEL: %s: tensor %s is %s, but there "
            "is neither %s%s nor %s%s with its scales",
            path, w->name, w->dtype_name, w->name, scale_ends[0], w->name, scale_ends[1]);
    if (n > 1)
        return mdl_fail(-EINVAL, err, err_bytes,
            "W_MODEL: %s: tensor %s has its scales "
            "twice: %s%s and %s%s; keep one",
            path, w->name, w->name, scale_ends[0], w->name, scale_ends[1]);
    if (t->dtype != FDK_F32 && t->dtype != FDK_F16 && t->dtype != FDK_BF16)
        return mdl_fail(-EINVAL, err, err_bytes,
            "W_MODEL: %s: tensor %s has dtype %s, "
            "which is not supported for scales; supported: F32, F16, BF16",
            wp->file[t->file].path, t->name, t->dtype_name);
    rc = check_shape(wp, t, rows, cols, quant, err, err_bytes);
    return rc != 0 ? rc : check_values(wp, t, err, err_bytes);
}

/* Is weight w multiplied by GEMM or LOGITS only, not read by EMBED? */
static int
is_matrix(const struct mdl_program *p, int32_t w)
{
    int found = 0;

    for (int32_t i = 0; i < p->n_op; i++) {
        const struct mdl_op *o = &p->op[i];

        if (o->w != w)
            continue;
        if (o->kind != MDL_OP_GEMM && o->kind != MDL_OP_LOGITS)
            return 0;
        found = 1;
    }
    return found;
}

static int
check_weight(const struct wts_plan *wp, const struct mdl_program *p, int32_t i, char *err,
    size_t err_bytes)
{
    const struct wts_tensor *fp8 = NULL, *other = NULL;
    const struct wts_ref *w = &p->w[i];
    int rc = 0;

    for (int k = 0; k < w->n_part; k++) {
        const struct wts_tensor *t = wts_find(wp, w->name[k]);

        *(t->dtype == FDK_F8E4M3 ? &fp8 : &other) = t;
    }
    if (fp8 == NULL)
        return 0;
    if (p->cfg.quant == MDL_QUANT_NONE)
        return mdl_fail(-EINVAL, err, err_bytes,
            "W_MODEL: %s: tensor %s is %s, but "
            "config.json has no quantization_config, which says how it is scaled",
            wp->file[fp8->file].path, fp8->name, fp8->dtype_name);
    if (!is_matrix(p, i))
        return mdl_fail(-EINVAL, err, err_bytes,
            "W_MODEL: %s: tensor %s has dtype %s, "
            "which is supported for the matrices of products only; supported here: F32, "
            "F16, BF16",
            wp->file[fp8->file].path, fp8->name, fp8->dtype_name);
    if (other != NULL)
        return mdl_fail(-EINVAL, err, err_bytes,
            "W_MODEL: %s: tensor %s is %s and %s is "
            "%s; they are computed as one matrix, so both have to be %s or neither",
            wp->file[fp8->file].path, fp8->name, fp8->dtype_name, other->name,
            other->dtype_name, fp8->dtype_name);
    for (int k = 0; k < w->n_part && rc == 0; k++)
        rc = check_scale(wp, wts_find(wp, w->name[k]), w->rows[k], w->cols, p->cfg.quant,
            err, err_bytes);
    return rc;
}

int
wts_fp8_check(const struct wts_plan *wp, const struct mdl_program *p, char *err,
    size_t err_bytes)
{
    int rc = 0;

    for (int32_t i = 0; i < p->n_w && rc == 0; i++)
        if (p->w[i].alias < 0)
            rc = check_weight(wp, p, i, err, err_bytes);
    return rc;
}
