/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Scales of an fp8 KV cache in the checkpoint: for each layer one tensor for keys and
 * one for values, under either of two names.
 */
#include "config.h"

#include "daemon/worker/weights_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/model_priv.h"

#define LAYER "model.layers."

/* [K or V][variant of the name] */
static const char *const ends[2][2] = {
    { "self_attn.k_scale", "self_attn.k_proj.k_scale" },
    { "self_attn.v_scale", "self_attn.v_proj.v_scale" },
};

static void
scale_name(char s[MDL_NAME], long layer, const char *end)
{
    snprintf(s, MDL_NAME, LAYER "%ld.%s", layer, end);
}

int
wts_is_kv_scale(const struct mdl_program *p, const char *name)
{
    char want[MDL_NAME];
    long layer;

    if (strncmp(name, LAYER, strlen(LAYER)) != 0)
        return 0;
    layer = strtol(name + strlen(LAYER), NULL, 10);
    if (layer < 0 || layer >= p->cfg.n_layer)
        return 0;
    for (int i = 0; i < 4; i++) {
        scale_name(want, layer, ends[i / 2][i % 2]);
        if (strcmp(name, want) == 0)
            return 1;
    }
    return 0;
}

int32_t
wts_n_kv_scale(const struct wts_plan *wp)
{
    return wp->n_kv_scale;
}

/* Find the tensor for a layer's keys or values. -EINVAL: there is none, or two. */
static int
find_scale(const struct wts_plan *wp, int32_t layer, int value,
    const struct wts_tensor **ret, char *err, size_t err_bytes)
{
    const struct wts_tensor *t[2];
    char name[MDL_NAME];

    for (int i = 1; i >= 0; i--) {
        scale_name(name, layer, ends[value][i]);
        t[i] = wts_find(wp, name);
    }
    if (t[0] != NULL && t[1] != NULL)
        return mdl_fail(-EINVAL, err, err_bytes,
            "W_MODEL: %s: layer %d has its KV scale twice: %s and %s; keep one",
            wp->file[t[1]->file].path, layer, t[0]->name, t[1]->name);
    *ret = t[0] != NULL ? t[0] : t[1];
    if (*ret != NULL)
        return 0;
    return mdl_fail(-EINVAL, err, err_bytes,
        "W_MODEL: %s: layer %d: tensor %s is missing, though the checkpoint has %d other "
        "KV scales; kv.dtype = fp8 takes those of every layer, or none",
        wp->file[0].path, layer, name, wp->n_kv_scale);
}

static int
check_scale(const struct wts_plan *wp, const struct wts_tensor *t, int32_t K, char *err,
    size_t err_bytes)
{
    const char *path = wp->file[t->file].path;
    char shape[128];

    if (t->n_dim > 1 || (t->n_dim == 1 && t->shape[0] != 1 && t->shape[0] != K)) {
        wts_shape_text(shape, sizeof(shape), t->shape, t->n_dim);
        return mdl_fail(-EINVAL, err, err_bytes,
            "W_MODEL: %s: tensor %s has shape %s; a KV scale is one number, or one for "
            "each of the %d KV heads",
            path, t->name, shape, K);
    }
    if (t->dtype > FDK_BF16)
        return mdl_fail(-EINVAL, err, err_bytes,
            "W_MODEL: %s: tensor %s has dtype %s, which is not supported; supported: "
            "F32, F16, BF16",
            path, t->name, t->dtype_name);
    return 0;
}

/* Read to ret[K]; 16-bit values are first read into ret's second half. */
static int
read_scale(const struct wts_plan *wp, const struct wts_tensor *t, int32_t K, float *ret,
    char *err, size_t err_bytes)
{
    const struct wts_file *f = &wp->file[t->file];
    size_t n = t->n_dim == 0 ? 1 : (size_t)t->shape[0];
    char *raw = (char *)ret + (t->dtype == FDK_F32 ? 0 : 2 * n);
    int rc = wts_read_exact(f, raw, (size_t)t->bytes, t->off, err, err_bytes);

    if (rc != 0)
        return rc;
    if (t->dtype != FDK_F32)
        fdk_to_f32(ret, raw, t->dtype, n);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(ret[i]) || !(ret[i] > 0))
            return mdl_fail(-EINVAL, err, err_bytes,
                "W_MODEL: %s: tensor %s: element %zu is %g; a KV scale is finite and "
                "greater than 0",
                f->path, t->name, i, (double)ret[i]);
    for (size_t i = n; i < (size_t)K; i++)
        ret[i] = ret[0];
    return 0;
}

void
wts_kv_scales_of(const struct mdl_program *p, const float *scale, int32_t rank, float *ret)
{
    size_t n = (size_t)p->n_kv_head, first = (size_t)(rank / p->kv_share) * n;

    for (int32_t i = 0; i < 2 * p->cfg.n_layer; i++)
        memcpy(ret + (size_t)i * n, scale + (size_t)i * (size_t)p->cfg.n_kv_head + first,
            n * sizeof(*ret));
}

int
wts_kv_scales(const struct wts_plan *wp, const struct mdl_program *p, float *ret,
    char *err, size_t err_bytes)
{
    int32_t K = p->cfg.n_kv_head, n = 2 * p->cfg.n_layer;
    int rc = 0;

    for (size_t i = 0; i < (size_t)n * (size_t)K; i++)
        ret[i] = 1;
    if (wp->n_kv_scale == 0)
        return 0;
    for (int32_t i = 0; i < n && rc == 0; i++) {
        const struct wts_tensor *t = NULL;

        rc = find_scale(wp, i / 2, i % 2, &t, err, err_bytes);
        if (rc == 0)
            rc = check_scale(wp, t, K, err, err_bytes);
        if (rc == 0)
            rc = read_scale(wp, t, K, ret + (size_t)i * (size_t)K, err, err_bytes);
    }
    return rc != 0 ? rc : wts_check_unchanged(wp, err, err_bytes);
}
