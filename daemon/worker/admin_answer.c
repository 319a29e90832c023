/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/admin.h"
#include "daemon/worker/admin_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/log.h"
#include "daemon/worker/worker.h"

void
adm_set(json_t *o, const char *key, json_t *v)
{
    (void)json_object_set_new(o, key, v);
}

json_t *
adm_int(uint64_t v)
{
    return json_integer((json_int_t)v);
}

json_t *
adm_error(const char *text)
{
    return json_pack("{s:b, s:s}", "ok", 0, "error", text);
}

json_t *
adm_kv_groups(const struct worker *w)
{
    json_t *list = json_array();
    char layers[256];

    for (int32_t i = 0; i < w->prog->n_kv_group; i++) {
        const struct mdl_kv_group *g = &w->prog->kv_group[i];
        json_t *o = json_object();

        mdl_kv_layers(w->prog, i, layers, sizeof(layers));
        adm_set(o, "group", json_integer(i));
        adm_set(o, "layers", json_string(layers));
        adm_set(o, "kv_heads", json_integer(g->n_kv_head));
        adm_set(o, "head_dim", json_integer(g->head_dim));
        adm_set(o, "window", json_integer(g->window));
        adm_set(o, "token_bytes", adm_int(w->mpl.block_bytes / (uint64_t)w->mpl.block_size));
        adm_set(o, "most_blocks", json_integer(mpl_most(&w->mpl, i)));
        (void)json_array_append_new(list, o);
    }
    return list;
}

/* ---- operations ------------------------------------------------------------------------------- */

static json_t *
adm_op_weights(const struct mdl_program *p, const struct mdl_op *op)
{
    const int32_t ids[] = { op->w, op->w2, op->bias };
    json_t *a = json_array();

    for (size_t k = 0; k < 3; k++)
        for (int32_t i = 0; ids[k] >= 0 && i < p->w[ids[k]].n_part; i++)
            (void)json_array_append_new(a, json_string(p->w[ids[k]].name[i]));
    return a;
}

/* The data type whose measured FLOP/s bound the operation. Narrower types are converted
 * before the product. */
static enum fdk_dtype
adm_flop_dtype(const struct worker *w, const struct mdl_op *op)
{
    enum fdk_dtype t = FDK_F32;

    if (w->wp != NULL && (op->kind == MDL_OP_GEMM || op->kind == MDL_OP_LOGITS))
        t = wts_dtype(w->wp, op->w);
    else if (op->kind == MDL_OP_ATTENTION)
        t = w->kv[0].dtype;
    return t == FDK_F32 || t == FDK_F16 ? t : FDK_BF16;
}

/* Bytes that the operation reads from other ranks. */
static double
adm_link_bytes(const struct worker *w, const struct mdl_op *op, const struct adm_shape *s)
{
    double elt = op->w >= 0 && w->wp != NULL ? wts_elt_bytes(w->wp, op->w) : 4;

    return mdl_op_link_bytes(w->prog, op, s->tok, s->out, elt,
        (double)fdk_dtype_bytes(w->kv[0].dtype), (double)fdk_dtype_bytes(w->run->act));
}

static double
adm_link_ns(const struct worker *w, const struct mdl_op *op, const struct adm_shape *s)
{
    return w->link_bps > 0 ? adm_link_bytes(w, op, s) / w->link_bps * 1e9 : 0;
}

double
adm_op_cost(const struct worker *w, int32_t i, const struct adm_shape *s,
    const struct peak *c, double *ret_bytes, double *ret_flops)
{
    const struct mdl_op *op = &w->prog->op[i];
    double bytes = 0, flops = 0, unused, elt = 4, rows;
    double kv = (double)fdk_dtype_bytes(w->kv[0].dtype);
    double act = (double)fdk_dtype_bytes(w->run->act);

    if (op->w >= 0 && w->wp != NULL)
        elt = wts_elt_bytes(w->wp, op->w);
    if (op->kind == MDL_OP_ATTENTION) {
        /* rows differ in length; a prompt's token reads only the tokens before it */
        rows = s->row > 0 ? s->row : 1;
        mdl_op_cost(w->prog, op, s->tok, rows, s->ctx / rows, elt, kv, act, &bytes, &unused);
        if (op->tail == MDL_TAIL_OUTPUTS)
            mdl_op_cost(w->prog, op, s->out, rows, s->ctx / rows, elt, kv, act, &unused,
                &flops);
        else
            mdl_op_cost(w->prog, op, s->tok, rows, s->tok > 0 ? s->pair / s->tok : 0, elt,
                kv, act, &unused, &flops);
    } else {
        mdl_op_cost(w->prog, op, s->tok, s->out, 0, elt, kv, act, &bytes, &flops);
    }
    *ret_bytes = bytes;
    *ret_flops = flops;
    return c != NULL ? fmax(peak_roofline_ns(c, bytes, flops, adm_flop_dtype(w, op)),
                           adm_link_ns(w, op, s))
                     : 0;
}

double
adm_op(const struct worker *w, int32_t i, const struct adm_shape *s, const struct peak *c,
    json_t *o)
{
    const struct mdl_op *op = &w->prog->op[i];
    double bytes, flops, roofline_ns = adm_op_cost(w, i, s, c, &bytes, &flops);

    adm_set(o, "index", json_integer(i));
    adm_set(o, "kind", json_string(mdl_op_name(op->kind)));
    adm_set(o, "layer", json_integer(op->layer));
    adm_set(o, "N", json_integer(op->N));
    /* for sampling, K is the stride of logit rows */
    adm_set(o, "K", json_integer(op->kind == MDL_OP_SAMPLE ? 0 : op->K));
    adm_set(o, "weights", adm_op_weights(w->prog, op));
    adm_set(o, "bytes", json_real(bytes));
    adm_set(o, "flops", json_real(flops));
    if (w->run->n_rank > 1)
        adm_set(o, "link_bytes", json_real(adm_link_bytes(w, op, s)));
    adm_set(o, "roofline_us", json_real(roofline_ns / 1e3));
    return roofline_ns;
}

/* Measures the bandwidth from another rank's memory; kept until the process ends. */
static void
adm_link(struct worker *w, int remeasure, const struct peak *c)
{
    double bps = 0;

    if (w->run->n_rank == 1 || w->peak_fixed || (w->link_bps > 0 && !remeasure))
        return;
    if (w->run->k->on_host)
        w->link_bps = c->read_bps;
    else if (w->run->k->probe(w->run->ctx, run_root(w->run)->idx, FDK_PROBE_LINK, FDK_F32,
                 &bps) == 0)
        w->link_bps = bps;
}

/* ---- measured peak ---------------------------------------------------------------------------------- */

const struct peak *
adm_peak(struct worker *w, int remeasure, struct peak *c)
{
    const struct cnt_worker *n = &w->stat->w;
    uint64_t steps = cnt_get(&n->steps);
    int busy, rc;

    if (w->peak_fixed && !w->peak.have)
        return NULL;
    remeasure = remeasure && !w->peak_fixed;
    (void)snprintf(w->peak.dir, sizeof(w->peak.dir), "%s", w->par.daemon_cache_dir);
    busy = cnt_get(&n->requests_running) + cnt_get(&n->requests_waiting) > 0;
    rc = peak_get(&w->peak, w->run->k, w->run->ctx, run_root(w->run)->idx, busy,
        remeasure, c);
    w->peak_busy = rc == 0 && !w->peak.have && (busy || cnt_get(&n->steps) != steps);
    if (rc != 0 && rc != -ENOTSUP)
        log_warn("peak: cannot measure what the device can do: %s", strerror(-rc));
    if (rc == 0)
        adm_link(w, remeasure, c);
    return rc == 0 ? c : NULL;
}

void
adm_measure(struct worker *w)
{
    struct peak c;

    if (w->run->n_rank == 1 || w->run->k->on_host)
        return;
    (void)adm_peak(w, 0, &c);
    w->peak_fixed = 1;
}

json_t *
adm_peak_json(const struct worker *w, const struct peak *c)
{
    json_t *o, *f;

    if (c == NULL)
        return json_null();
    o = json_object();
    f = json_object();
    for (int t = 0; t < FDK_DTYPE__N; t++)
        if (c->flops[t] > 0)
            adm_set(f, fdk_dtype_name((enum fdk_dtype)t), json_real(c->flops[t]));
    adm_set(o, "read_bytes_per_s", json_real(c->read_bps));
    if (w->link_bps > 0)
        adm_set(o, "link_bytes_per_s", json_real(w->link_bps));
    adm_set(o, "flops_per_s", f);
    adm_set(o, "measured_s", adm_int(c->measured_s));
    adm_set(o, "from", json_string(w->peak.from));
    adm_set(o, "file", json_string(w->peak.file));
    adm_set(o, "under_load", json_boolean(w->peak_busy));
    return o;
}
