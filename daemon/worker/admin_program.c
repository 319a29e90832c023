/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/admin_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/worker/worker.h"

#define ADM_OPS_TEXT 256

/* ---- launches of a padded size ------------------------------------------------------------- */

/* Equal launches of a step: the same kernels, for operations of the same shape. */
struct adm_group {
    const struct run_form *f;
    struct fdk_launch l; /* the first */
    int32_t times;
    double bytes, roofline_ns; /* sums over all launches */
};
struct adm_list {
    struct run_pad pad;
    struct adm_shape sh;
    struct adm_group *g; /* [n] */
    int32_t n;
    double roofline_ns;
};

static const char *
adm_kernels(const struct adm_list *a, const struct adm_group *g)
{
    struct fdk_step s;

    run_step(&a->pad, &s);
    return fdk_launch_kernels(g->f->bound, &s, &g->l);
}

/* Adds a launch's bytes and roofline bound: the sums over its operations. */
static void
adm_launch_cost(const struct worker *w, const struct adm_list *a, const struct peak *c,
    struct adm_group *g)
{
    struct fdk_step s;

    run_step(&a->pad, &s);
    for (int32_t i = g->l.first; i < g->l.first + g->l.n; i++) {
        struct adm_shape sh = a->sh;
        double bytes, flops;

        if (g->f->op[i].slice > 0)
            sh.out = fdk_op_rows(&g->f->op[i], &s);
        g->roofline_ns += adm_op_cost(w, g->f->line[i], &sh, c, &bytes, &flops);
        g->bytes += bytes;
    }
}

static int
adm_alike(const struct worker *w, const struct adm_list *a, const struct adm_group *x,
    const struct adm_group *y)
{
    const struct mdl_op *p = &w->prog->op[x->f->line[x->l.first]];
    const struct mdl_op *q = &w->prog->op[y->f->line[y->l.first]];

    return (x->l.run < 0) == (y->l.run < 0) && x->l.n == y->l.n && p->kind == q->kind &&
        p->N == q->N && p->K == q->K && p->rows == q->rows &&
        strcmp(adm_kernels(a, x), adm_kernels(a, y)) == 0;
}

static void
adm_group_add(const struct worker *w, struct adm_list *a, const struct adm_group *g)
{
    int32_t i = 0;

    while (i < a->n && !adm_alike(w, a, &a->g[i], g))
        i++;
    if (i == a->n) {
        a->g[a->n++] = *g;
        return;
    }
    a->g[i].times++;
    a->g[i].bytes += g->bytes;
    a->g[i].roofline_ns += g->roofline_ns;
}

/* Lists the launches of a step, equal ones grouped. split: the step is a copy's share of
 * a divided one. Returns 0, or -1 without memory. */
static int
adm_list(const struct worker *w, int32_t T, int32_t O, int split,
    const struct adm_shape *sh, const struct peak *c, struct adm_list *ret)
{
    const struct run_form *f;
    struct fdk_launch *l;
    struct fdk_step s;
    int32_t n;

    *ret = (struct adm_list){ .sh = *sh };
    if (split)
        run_split_init(run_root(w->run), T, O, O, &ret->pad);
    else
        run_pad_init(run_root(w->run), T, O, &ret->pad);
    f = run_pad_form(run_root(w->run), &ret->pad);
    ret->g = mem_array((size_t)f->n, sizeof(*ret->g));
    l = mem_array((size_t)f->n, sizeof(*l));
    if (ret->g == NULL || l == NULL) {
        free(l);
        return -1;
    }
    run_step(&ret->pad, &s);
    n = fdk_launches(f->bound, &s, !w->run->unfused, l);
    for (int32_t i = 0; i < n; i++) {
        struct adm_group g = { .f = f, .l = l[i], .times = 1 };

        adm_launch_cost(w, ret, c, &g);
        ret->roofline_ns += g.roofline_ns;
        adm_group_add(w, ret, &g);
    }
    free(l);
    return 0;
}

/* Writes the launch's operations, such as "gemm silu_mul"; for several layers, those of
 * the first and the number of layers. */
static void
adm_group_ops(const struct worker *w, const struct adm_group *g, char *ret)
{
    int32_t last = g->l.first + g->l.n - 1;
    int32_t layer = w->prog->op[g->f->line[g->l.first]].layer;
    int32_t layers = w->prog->op[g->f->line[last]].layer - layer + 1;

    ret[0] = '\0';
    for (int32_t i = g->l.first; i <= last; i++) {
        const struct mdl_op *op = &w->prog->op[g->f->line[i]];
        size_t n = strlen(ret);

        if (op->layer == layer)
            (void)snprintf(ret + n, ADM_OPS_TEXT - n, "%s%s", n > 0 ? " " : "",
                mdl_op_name(op->kind));
    }
    if (layers > 1)
        (void)snprintf(ret + strlen(ret), ADM_OPS_TEXT - strlen(ret), ", %d layers", layers);
}

/* Format and layout of the first matrix that the launch reads. */
static void
adm_group_weight(const struct worker *w, const struct adm_group *g, json_t *o)
{
    const struct fdk_ops *k = w->run->k;

    for (int32_t i = g->l.first; i < g->l.first + g->l.n; i++) {
        const struct fdk_op *op = &g->f->op[i];

        if (op->kind != FDK_OP_GEMM)
            continue;
        adm_set(o, "format", json_string(fdk_dtype_name(op->gemm.w_dtype)));
        adm_set(o, "layout",
            json_string(k->layout_name != NULL ? k->layout_name(op->gemm.w_layout) : ""));
        return;
    }
}

/* For an operation launched separately on a slow kernel: writes what would make it
 * faster. */
static void
adm_group_slow(const struct worker *w, const struct adm_list *a,
    const struct adm_group *g, json_t *o)
{
    char why[RUN_TAKES_TEXT];
    struct fdk_step s;

    run_step(&a->pad, &s);
    if (g->l.run < 0 &&
        run_op_takes(run_root(w->run), g->f, g->l.first, &s, why, sizeof(why)) == 1)
        adm_set(o, "slow", json_string(why));
}

static json_t *
adm_group_json(const struct worker *w, const struct adm_list *a, const struct adm_group *g)
{
    const struct mdl_op *op = &w->prog->op[g->f->line[g->l.first]];
    char ops[ADM_OPS_TEXT];
    json_t *o = json_object();

    adm_group_ops(w, g, ops);
    adm_set(o, "least_tokens", json_integer(a->pad.T));
    adm_set(o, "tokens", json_integer(a->pad.T));
    adm_set(o, "outputs", json_integer(a->pad.O));
    adm_set(o, "fused", json_boolean(g->l.run >= 0));
    adm_set(o, "divided", json_boolean(a->pad.split));
    adm_set(o, "launch", json_string(fdk_launch_name(g->f->bound, &g->l)));
    adm_set(o, "kernels", json_string(adm_kernels(a, g)));
    adm_set(o, "ops", json_string(ops));
    adm_set(o, "N", json_integer(op->N));
    adm_set(o, "K", json_integer(op->kind == MDL_OP_SAMPLE ? 0 : op->K));
    adm_set(o, "times", json_integer(g->times));
    adm_set(o, "bytes", json_real(g->bytes));
    adm_set(o, "roofline_us", json_real(g->roofline_ns / 1e3));
    adm_set(o, "share", json_real(a->roofline_ns > 0 ? g->roofline_ns / a->roofline_ns : 0));
    adm_group_weight(w, g, o);
    adm_group_slow(w, a, g, o);
    return o;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static int
adm_same(const json_t *a, const json_t *b)
{
    static const char *const key[] = { "fused", "divided", "launch", "kernels", "ops",
        "N", "K", "times", "format", "layout", "slow" };

    for (size_t i = 0; i < sizeof(key) / sizeof(key[0]); i++) {
        const json_t *x = json_object_get(a, key[i]), *y = json_object_get(b, key[i]);

        if ((x != NULL || y != NULL) && !json_equal(x, y)) /* json_equal(NULL, NULL): 0 */
            return 0;
    }
    return 1;
}

/* If the last n launches of all, those of a smaller size, equal the n launches of b,
 * replaces them by b's with the smaller size's least_tokens. Returns whether it did. */
static int
adm_merge(json_t *all, const json_t *b)
{
    size_t n = json_array_size(b), at = json_array_size(all);

    if (at < n || n == 0)
        return 0;
    at -= n;
    for (size_t i = 0; i < n; i++)
        if (!adm_same(json_array_get(all, at + i), json_array_get(b, i)))
            return 0;
    for (size_t i = 0; i < n; i++) {
        json_t *o = json_array_get(b, i);

        (void)json_object_set(o, "least_tokens",
            json_object_get(json_array_get(all, at + i), "least_tokens"));
        (void)json_array_set(all, at + i, o);
    }
    return 1;
}

/* The shape of rows of kv tokens each. */
static struct adm_shape
adm_shape_of(double tok, double row, double out, double kv)
{
    return (struct adm_shape){ tok, row, out, row * kv, tok * kv };
}

static void
adm_size(struct worker *w, int32_t T, int32_t O, int split, double kv,
    const struct peak *c, json_t *all)
{
    struct adm_shape sh = adm_shape_of(T, T < w->run->dims.S ? T : w->run->dims.S, O, kv);
    struct adm_list a;
    json_t *b;

    if (adm_list(w, T, O, split, &sh, c, &a) == 0) {
        b = json_array();
        for (int32_t i = 0; i < a.n; i++)
            (void)json_array_append_new(b, adm_group_json(w, &a, &a.g[i]));
        if (!adm_merge(all, b))
            (void)json_array_extend(all, b);
        json_decref(b);
    }
    free(a.g);
}

/* Launches of every size of the initial capture list and of the largest step: with the
 * most outputs, then with few; and of a copy's share of the largest step. Sizes with the
 * same launches are merged. */
static json_t *
adm_launches(struct worker *w, double kv, const struct peak *c)
{
    const struct bat_dims *d = &w->run->dims;
    json_t *all = json_array();

    for (int few = 0; few < 2; few++)
        for (int32_t i = 0; i <= w->cap.n; i++) {
            int32_t T = i < w->cap.n ? w->cap.size[i] : d->T;
            int32_t O = few ? run_few(w->run->k, w->prog, T) : bat_pad_outs(d, T);

            if (O > 0 && T <= d->T && (i < w->cap.n || i == 0 || T > w->cap.size[i - 1]))
                adm_size(w, T, O, 0, kv, c, all);
        }
    if (w->run->n_copy > 1)
        adm_size(w, bat_share(d->T, 0, w->run->n_copy), 1, 1, kv, c, all);
    return all;
}

/* Common sizes, padded, and the largest step without a graph. */
static json_t *
adm_sizes(struct worker *w, double kv, const struct peak *c)
{
    static const int32_t known[] = { 1, 8, 64, 128, 512, INT32_MAX };
    const struct bat_dims *d = &w->run->dims;
    int32_t before = 0;
    json_t *all = json_array();

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        int eager = known[i] == INT32_MAX;
        int32_t T = eager ? d->T : cap_map(&w->run->cap, known[i]);
        struct adm_shape sh;
        struct adm_list a;
        json_t *o, *l;

        if (T == 0 || T > d->T || (!eager && T == before))
            continue;
        before = T;
        sh = adm_shape_of(T, T < d->S ? T : d->S, bat_pad_outs(d, T), kv);
        if (adm_list(w, T, bat_pad_outs(d, T), 0, &sh, c, &a) == 0) {
            o = json_object();
            l = json_array();
            for (int32_t j = 0; j < a.n; j++)
                (void)json_array_append_new(l, adm_group_json(w, &a, &a.g[j]));
            adm_set(o, "tokens", json_integer(T));
            adm_set(o, "outputs", json_integer(a.pad.O));
            adm_set(o, "graph", json_boolean(!eager && run_uses_graph(w->run)));
            adm_set(o, "roofline_us", json_real(a.roofline_ns / 1e3));
            adm_set(o, "launches", l);
            (void)json_array_append_new(all, o);
        }
        free(a.g);
    }
    return all;
}

/* ---- the program -------------------------------------------------------------------------------- */

static const char *
adm_buf(const struct mdl_program *p, int32_t i)
{
    return i >= 0 ? p->buf[i].name : "";
}

static double
adm_arg(const json_t *q, const char *key, double def, double most)
{
    const json_t *v = json_object_get(q, key);
    double d = json_is_number(v) ? json_number_value(v) : def;

    return d >= 1 && d <= most ? d : def;
}

json_t *
adm_program(struct worker *w, const json_t *q)
{
    double kv = adm_arg(q, "context", 128, 1e7), sum_ns = 0;
    double tok = adm_arg(q, "tokens", 1, 1e6), S = w->run->dims.S;
    double rows = adm_arg(q, "rows", tok < S ? tok : S, 1e6);
    struct adm_shape sh = adm_shape_of(tok, rows, rows, kv);
    json_t *o = json_object(), *ops = json_array();
    struct peak peak;
    const struct peak *c = adm_peak(w, 0, &peak);
    enum mdl_tail tail;

    tail = run_tail(w->run, (int32_t)sh.tok, (int32_t)sh.out);
    for (int32_t i = 0; i < w->prog->n_op; i++) {
        const struct mdl_op *op = &w->prog->op[i];
        json_t *e;

        if (!mdl_op_runs(op, tail))
            continue;
        e = json_object();
        sum_ns += adm_op(w, i, &sh, c, e);
        adm_set(e, "rows", json_string(op->rows == MDL_PER_OUT ? "O" : "T"));
        adm_set(e, "in", json_string(adm_buf(w->prog, op->in)));
        adm_set(e, "in2", json_string(adm_buf(w->prog, op->in2)));
        adm_set(e, "out", json_string(adm_buf(w->prog, op->out)));
        (void)json_array_append_new(ops, e);
    }
    adm_set(o, "ok", json_true());
    adm_set(o, "tokens", json_real(sh.tok));
    adm_set(o, "rows", json_real(sh.out));
    adm_set(o, "context", json_real(kv));
    adm_set(o, "measured_peak", adm_peak_json(w, c));
    adm_set(o, "roofline_us", json_real(sum_ns / 1e3));
    adm_set(o, "n_ops", json_integer((json_int_t)json_array_size(ops)));
    adm_set(o, "kv_groups", adm_kv_groups(w));
    adm_set(o, "ops", ops);
    if (run_fell_back(w->run)[0] != '\0')
        adm_set(o, "slow", json_string(run_fell_back(w->run)));
    adm_set(o, "launches", adm_launches(w, kv, c));
    adm_set(o, "sizes", adm_sizes(w, kv, c));
    return o;
}
