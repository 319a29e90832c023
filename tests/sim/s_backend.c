/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend in this one file: the cpu backend, two operations of its own, a weight layout
 * that no other code knows (columns one behind the other), and a fusion that is one row of
 * a table. A program of its operations and a whole model give the bits of the cpu backend.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/worker/admin_priv.h"
#include "daemon/worker/memplan.h"
#include "daemon/worker/weights_priv.h"
#include "daemon/worker/worker.h"
#include "kernels/cpu/cpu.h"
#include "tests/sim/sim.h"

#define COLUMNS 1 /* its layout */

static int n_packed, n_unpacked, n_fused, no_fused_launch;

/* ---- the layout: columns ----------------------------------------------------------------- */

/* 4 bits share a byte: those matrices stay rows. */
static int
columns_layout(struct fdk_weight *w)
{
    int rc = fdk_ops_cpu.weight_layout(w);

    if (rc == 0 && w->format != FDK_I4)
        w->layout = COLUMNS;
    return rc;
}

static const char *
columns_name(int32_t layout)
{
    return layout == COLUMNS ? "columns" : fdk_ops_cpu.layout_name(layout);
}

static struct fdk_weight
as_rows(const struct fdk_weight *w, void *data)
{
    struct fdk_weight r = *w;

    SIM_CHECK(fdk_weight_rows(&r) == 0);
    r.data = data;
    return r;
}

/* Values from rows [first, first + n) of r, whose first is row 0 there, to w. */
static void
transpose(const struct fdk_weight *w, const struct fdk_weight *r, int64_t first, int64_t n)
{
    size_t elt = fdk_dtype_bytes(w->format);

    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < w->cols; k++)
            memcpy((char *)w->data + (size_t)(k * w->rows + first + i) * elt,
                (const char *)r->data + (size_t)(i * w->cols + k) * elt, elt);
}

/* By way of rows; scales stand where those of rows do. */
static int
columns_pack(const struct fdk_pack_args *a, fdk_stream_t st)
{
    struct fdk_pack_args b = *a;
    const size_t scales = (size_t)fdk_weight_groups(&a->w) * sizeof(float);
    char *at = (char *)a->w.data + a->w.scale_at + (size_t)a->first * scales;
    int rc;

    if (a->w.layout != COLUMNS)
        return fdk_ops_cpu.weight_pack(a, st);
    __atomic_fetch_add(&n_packed, 1, __ATOMIC_RELAXED);
    if (a->what == FDK_PACK_SCALES) {
        memcpy(at, a->x, (size_t)a->n * scales);
        return 0;
    }
    b.w.rows = (int32_t)a->n;
    b.w = as_rows(&b.w, NULL);
    b.w.data = calloc(1, b.w.bytes);
    b.first = 0;
    SIM_CHECK(b.w.data != NULL);
    rc = fdk_ops_cpu.weight_pack(&b, st);
    if (rc == 0)
        transpose(&a->w, &b.w, a->first, a->n);
    if (rc == 0 && a->w.group > 0 && a->x_dtype != a->w.format)
        memcpy(at, fdk_weight_at(&b.w, FDK_PACK_SCALES, 0), (size_t)a->n * scales);
    free(b.w.data);
    return rc;
}

struct unpack {
    struct fdk_gemm_args g;
};

static void
unpack(const void *args)
{
    const struct fdk_gemm_args *g = &((const struct unpack *)args)->g;
    size_t elt = fdk_dtype_bytes(g->w_dtype);

    for (size_t i = 0; i < (size_t)g->N; i++)
        for (size_t k = 0; k < (size_t)g->K; k++)
            memcpy((char *)g->scratch + (i * (size_t)g->K + k) * elt,
                (const char *)g->w + (k * (size_t)g->N + i) * elt, elt);
}

static size_t
columns_scratch(const struct fdk_gemm_args *a)
{
    return a->w_layout == COLUMNS ? (size_t)a->N * fdk_row_bytes(a->w_dtype, (size_t)a->K)
                                  : fdk_ops_cpu.gemm_scratch(a);
}

static int
columns_gemm(const struct fdk_gemm_args *a, fdk_stream_t st)
{
    struct unpack u = { *a };
    int rc;

    if (a->w_layout != COLUMNS)
        return fdk_ops_cpu.gemm(a, st);
    if (a->scratch_bytes < columns_scratch(a))
        return -EINVAL;
    rc = fdk_cpu_call(st, unpack, &u, sizeof(u));
    u.g.w = a->scratch;
    u.g.w_layout = FDK_LAYOUT_ROWS;
    n_unpacked++;
    return rc != 0 ? rc : fdk_ops_cpu.gemm(&u.g, st);
}

/* ---- operations of its own ------------------------------------------------------------------ */

/* y[t] = x[t] - f[0] * x2[t], all (T, N) */
static void
sub(const void *args)
{
    const struct fdk_own_args *a = args;
    const float *x = a->x, *x2 = a->x2;
    float *y = a->y;
    int32_t rows = *a->n < a->T ? *a->n : a->T;

    for (size_t i = 0; i < (size_t)rows * (size_t)a->N; i++)
        y[i] = x[i] - a->f[0] * x2[i];
}

static int
sub_launch(const struct fdk_own_args *a, fdk_stream_t st)
{
    if (a->y == NULL || a->x == NULL || a->x2 == NULL || a->act != FDK_F32)
        return -EINVAL;
    return fdk_cpu_call(st, sub, a, sizeof(*a));
}

static int
noop_launch(const struct fdk_own_args *a, fdk_stream_t st)
{
    (void)a;
    (void)st;
    return 0;
}

static const struct fdk_own owns[] = {
    { "sub", "sub_kernel", sub_launch, NULL },
    { "noop", "", noop_launch, NULL },
};

/* ---- what it takes ----------------------------------------------------------------------------- */

static int32_t head_dims = 512, slow_width;

static int
extra_takes(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, char *why, size_t n)
{
    struct fdk_op rows = *op;

    if (op->kind == FDK_OP_ATTENTION && op->attention.D > head_dims) {
        (void)snprintf(why, n, "head dimensions of up to %d", head_dims);
        return -ENOTSUP;
    }
    if (op->kind == FDK_OP_SILU_MUL && op->silu_mul.F < slow_width) {
        (void)snprintf(why, n, "widths from %d on", slow_width);
        return 1;
    }
    if (op->kind == FDK_OP_GEMM && op->gemm.w_layout == COLUMNS)
        rows.gemm.w_layout = FDK_LAYOUT_ROWS;
    return fdk_ops_cpu.op_takes(ctx, dev, &rows, why, n);
}

/* Up to 16 rows, up to 64, more. */
static int32_t
extra_class(struct fdk_ctx *ctx, int dev, const struct fdk_gemm_args *a)
{
    (void)ctx;
    (void)dev;
    return a->T <= 16 ? 16 : a->T <= 64 ? 64 : INT32_MAX;
}

/* ---- a fusion --------------------------------------------------------------------------------- */

static int32_t
mlp_covers(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, int32_t n,
    int32_t *ret_least, int32_t *ret_most)
{
    (void)ctx;
    (void)dev;
    (void)n;
    (void)ret_least;
    (void)ret_most;
    return op[1].silu_mul.gu == op[0].gemm.y ? 2 : 0;
}

static int
mlp_launch(void *data, const struct fdk_op *op, int32_t n, const struct fdk_step *s,
    fdk_stream_t st)
{
    int rc = 0;

    (void)data;
    if (no_fused_launch)
        return -ENOTSUP;
    n_fused++;
    for (int32_t i = 0; i < n && rc == 0; i++) {
        struct fdk_op one = op[i];

        fdk_op_complete(&one, s);
        rc = one.kind == FDK_OP_GEMM ? columns_gemm(&one.gemm, st)
                                     : fdk_ops_cpu.silu_mul(&one.silu_mul, st);
    }
    return rc;
}

static const struct fdk_fusion fusions[] = {
    { "mlp", "mlp_kernel", { FDK_OP_GEMM, FDK_OP_SILU_MUL }, 2, 0, mlp_covers, NULL, NULL,
        mlp_launch },
};

static struct fdk_ops extra;

static void
extra_new(int fused)
{
    extra = fdk_ops_cpu;
    extra.weight_layout = columns_layout;
    extra.layout_name = columns_name;
    extra.weight_pack = columns_pack;
    extra.gemm = columns_gemm;
    extra.gemm_scratch = columns_scratch;
    extra.op_takes = extra_takes;
    extra.gemm_class = extra_class;
    extra.own = owns;
    extra.n_own = sizeof(owns) / sizeof(owns[0]);
    extra.fusion = fusions;
    extra.n_fusion = fused ? sizeof(fusions) / sizeof(fusions[0]) : 0;
}

/* ---- a program of few operations ---------------------------------------------------------------- */

enum { T = 7, LIVE = 5, C = 48, F = 40, N_OP = 5 };

struct tiny {
    struct fdk_ctx *ctx;
    fdk_stream_t st;
    float x[T * C], gu[T * 2 * F], h[T * F], diff[T * F];
    struct fdk_weight w;
    int32_t n;
    char scratch[8 * 2 * F * C];
};

/* diff = silu_mul(x w^T) - 0.5 gate, the weight quantized to `format`. */
static int32_t
tiny_ops(struct tiny *t, const struct fdk_ops *k, int noop, struct fdk_op *op)
{
    int32_t n = 0;

    op[n++] = (struct fdk_op){ .kind = FDK_OP_GEMM,
        .gemm = { .y = t->gu,
            .x = t->x,
            .w = t->w.data,
            .w_scale = (float *)(void *)((char *)t->w.data + t->w.scale_at),
            .w_group = t->w.group,
            .w_layout = t->w.layout,
            .w_dtype = t->w.format,
            .n = &t->n,
            .N = 2 * F,
            .K = C,
            .ldy = 2 * F } };
    SIM_CHECK(fdk_op_scratch(k, t->ctx, &op[0]) <= sizeof(t->scratch));
    fdk_op_set_scratch(&op[0], t->scratch, sizeof(t->scratch));
    if (noop)
        op[n++] = (struct fdk_op){ .kind = FDK_OP_OWN, .is = fdk_own_find(k, "noop") };
    op[n++] = (struct fdk_op){ .kind = FDK_OP_SILU_MUL,
        .silu_mul = { .y = t->h, .gu = t->gu, .n = &t->n, .F = F } };
    if (fdk_own_find(k, "sub") != NULL)
        op[n++] = (struct fdk_op){ .kind = FDK_OP_OWN,
            .is = fdk_own_find(k, "sub"),
            .own = { .y = t->diff, .x = t->h, .x2 = t->h, .n = &t->n, .N = F, .f = { 0.5f } } };
    return n;
}

/* Launch names as one text; what they compute is in t. */
static const char *
tiny_run(const struct fdk_ops *k, enum fdk_dtype format, int noop, int graph, struct tiny *t)
{
    static char text[128];
    const struct fdk_open_args oa = { .n_device = 1, .n_thread = 1 };
    const struct fdk_step s = { .T = T, .O = T };
    struct fdk_pack_args pa = { .n = 2 * F, .x_dtype = FDK_F32 };
    struct fdk_graph *g = NULL;
    struct fdk_launch l[N_OP];
    struct fdk_op op[N_OP];
    struct fdk_bound *b;
    float w[2 * F * C];
    char err[128] = "";
    uint64_t bad = UINT64_MAX;
    int32_t n;

    *t = (struct tiny){ .n = LIVE };
    for (int i = 0; i < T * C; i++)
        t->x[i] = (float)(i * 37 % 101 - 50) / 17;
    for (int i = 0; i < 2 * F * C; i++)
        w[i] = (float)(i * 53 % 97 - 48) / 31;
    SIM_CHECK(k->open(&oa, &t->ctx, err, sizeof(err)) == 0);
    SIM_CHECK(k->stream_new(t->ctx, 0, &t->st) == 0);
    t->w = (struct fdk_weight){ .format = format,
        .rows = 2 * F,
        .cols = C,
        .group = format == FDK_F32 ? 0 : C };
    SIM_CHECK(k->weight_layout(&t->w) == 0);
    SIM_CHECK(k->mem_alloc(t->ctx, 0, t->w.bytes, &t->w.data) == 0);
    pa.w = t->w;
    pa.x = w;
    pa.bad = &bad;
    SIM_CHECK(k->weight_pack(&pa, NULL) == 0 && bad == UINT64_MAX);
    n = tiny_ops(t, k, noop, op);
    SIM_CHECK(fdk_bind(k, t->ctx, 0, op, n, &b) == 0);
    n = fdk_launches(b, &s, 1, l);
    text[0] = '\0';
    if (graph)
        SIM_CHECK(k->graph_begin(t->st) == 0);
    for (int32_t i = 0; i < n; i++) {
        SIM_CHECK(fdk_launch(b, &s, &l[i], t->st) == 0);
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s",
            i > 0 ? " " : "", fdk_launch_name(b, &l[i]));
    }
    if (graph) {
        SIM_CHECK(k->graph_end(t->st, &g) == 0 && k->graph_launch(g, t->st) == 0);
        SIM_CHECK(k->stream_sync(t->st) == 0);
        k->graph_free(g);
    }
    SIM_CHECK(k->stream_sync(t->st) == 0);
    fdk_unbind(b);
    k->mem_free(t->ctx, 0, t->w.data);
    k->stream_free(t->st);
    k->close(t->ctx);
    return text;
}

static void
one_operation_and_one_layout(struct sim_rng *rng)
{
    static const enum fdk_dtype format[] = { FDK_F32, FDK_I8, FDK_F8E4M3, FDK_I4 };
    static struct tiny want, got;

    (void)rng;
    extra_new(1);
    for (size_t i = 0; i < sizeof(format) / sizeof(format[0]); i++)
        for (int graph = 0; graph < 2; graph++) {
            int before = n_unpacked;

            SIM_CHECK(strcmp(tiny_run(&fdk_ops_cpu, format[i], 0, graph, &want),
                          "gemm silu_mul") == 0);
            SIM_CHECK(strcmp(tiny_run(&extra, format[i], 0, graph, &got), "mlp sub") == 0);
            SIM_CHECK(memcmp(got.h, want.h, sizeof(want.h)) == 0);
            SIM_CHECK((n_unpacked > before) == (format[i] != FDK_I4));
            SIM_CHECK(strcmp(extra.layout_name(got.w.layout),
                          format[i] == FDK_I4 ? "rows" : "columns") == 0);
            for (int e = 0; e < T * F; e++)
                SIM_CHECK(got.diff[e] == (e < LIVE * F ? got.h[e] - 0.5f * got.h[e] : 0));
        }
    /* what only this backend knows is refused by others */
    {
        struct fdk_gemm_args g = { .N = 1, .K = 1, .T = 1, .ldy = 1, .w_layout = COLUMNS };
        struct fdk_pack_args p = { .w = { .layout = COLUMNS, .rows = 1, .cols = 1 },
            .n = 1 };

        p.w.data = &g;
        p.x = &g;
        SIM_CHECK(fdk_ops_cpu.weight_pack(&p, NULL) == -ENOTSUP);
        SIM_CHECK(fdk_own_find(&fdk_ops_cpu, "sub") == NULL);
    }
}

/* It computes nothing; the fusion across it goes, and the bits stay. */
static void
noop_between_ends_a_fusion(struct sim_rng *rng)
{
    static struct tiny want, got;
    int before;

    (void)rng;
    extra_new(1);
    before = n_fused;
    SIM_CHECK(strcmp(tiny_run(&extra, FDK_I8, 0, 0, &want), "mlp sub") == 0);
    SIM_CHECK(n_fused == before + 1);
    SIM_CHECK(strcmp(tiny_run(&extra, FDK_I8, 1, 0, &got), "gemm noop silu_mul sub") == 0);
    SIM_CHECK(n_fused == before + 1);
    SIM_CHECK(memcmp(got.diff, want.diff, sizeof(want.diff)) == 0);
    extra_new(0);
    SIM_CHECK(strcmp(tiny_run(&extra, FDK_I8, 0, 0, &got), "gemm silu_mul sub") == 0);
    SIM_CHECK(memcmp(got.diff, want.diff, sizeof(want.diff)) == 0);
}

/* Such as a tensor map that cannot be made. */
static void
a_fused_launch_falls_back(struct sim_rng *rng)
{
    static struct tiny want, got;

    (void)rng;
    extra_new(1);
    SIM_CHECK(strcmp(tiny_run(&extra, FDK_I8, 0, 0, &want), "mlp sub") == 0);
    no_fused_launch = 1;
    for (int graph = 0; graph < 2; graph++) {
        SIM_CHECK(strcmp(tiny_run(&extra, FDK_I8, 0, graph, &got), "mlp sub") == 0);
        SIM_CHECK(memcmp(got.diff, want.diff, sizeof(want.diff)) == 0);
    }
    no_fused_launch = 0;
}

/* ---- a whole model ---------------------------------------------------------------------------------- */

static char dir[64];

static uint64_t
tokens(const struct sim_cfg *c, int32_t *ret_columns)
{
    struct sim *s = sim_new(c);
    struct sim_req *r = sim_req(s);
    struct sim_rng g = { 7 };
    uint64_t h;

    *ret_columns = 0;
    for (int32_t i = 0; i < s->prog->n_w; i++)
        *ret_columns += wts_weight(s->wp, i).layout == COLUMNS;
    r->n_prompt = 33;
    r->prompt = mem_array(r->n_prompt, 4);
    for (uint32_t i = 0; i < r->n_prompt; i++)
        r->prompt[i] = sim_range(&g, 3, 250);
    r->p.max_new = 8;
    r->p.flags |= FDP_F_IGNORE_EOS;
    r->p.set |= FDP_S_LOGPROBS;
    r->p.logprobs = 4;
    sim_submit(s, r, NULL);
    sim_drain(s);
    SIM_CHECK(r->code == 0 && r->s[0].n_ids == 8);
    h = r->s[0].lp_hash;
    for (int i = 0; i < 8; i++)
        h = h * 31 + r->s[0].ids[i];
    sim_free(s);
    return h;
}

static void
a_model_in_its_layout(struct sim_rng *rng)
{
    struct sim_cfg c = { .max_reqs = 4,
        .max_seqs = 2,
        .max_tokens = 64,
        .max_len = 64,
        .n_block = 20,
        .block_size = 16,
        .chunked = 1,
        .exec = FDK_EXEC_DEFER,
        .pace = SIM_PACE_FAST,
        .backend = "cpu",
        .model_dir = dir };
    static const struct qnt quant[] = { { FDK_F32, 0 }, { FDK_I8, 32 }, { FDK_I4, 32 } };

    (void)rng;
    extra_new(1);
    for (size_t i = 0; i < sizeof(quant) / sizeof(quant[0]); i++) {
        int32_t none, some;
        uint64_t want;
        int before = n_packed;

        c.quant = quant[i];
        c.ops = NULL;
        want = tokens(&c, &none);
        SIM_CHECK(none == 0 && n_packed == before);
        c.ops = &extra;
        SIM_CHECK(tokens(&c, &some) == want);
        /* four matrices a layer; of 4 bits they stay rows, and the head does not */
        SIM_CHECK(some >= (quant[i].dtype == FDK_I4 ? 0 : 4));
        SIM_CHECK((n_packed > before) == (some > 0));
    }
}

/* ---- copies ---------------------------------------------------------------------------------------- */

/* What host_alloc, mem_alloc and mem_reserve gave, all that a device reads without the
 * driver's help. */
static struct {
    char *at;
    size_t bytes;
} pinned[512];
static int n_pinned, n_copied, n_tables, watch_copies;

static void
pinned_add(int rc, void *p, size_t bytes)
{
    SIM_CHECK(n_pinned < (int)(sizeof(pinned) / sizeof(pinned[0])));
    if (rc == 0) {
        pinned[n_pinned].at = p;
        pinned[n_pinned++].bytes = bytes;
    }
}

static int
pinned_host(struct fdk_ctx *ctx, size_t bytes, void **ret)
{
    int rc = fdk_ops_cpu.host_alloc(ctx, bytes, ret);

    pinned_add(rc, *ret, bytes);
    return rc;
}

static int
pinned_alloc(struct fdk_ctx *ctx, int dev, size_t bytes, void **ret)
{
    int rc = fdk_ops_cpu.mem_alloc(ctx, dev, bytes, ret);

    pinned_add(rc, *ret, bytes);
    return rc;
}

static int
pinned_reserve(struct fdk_ctx *ctx, int dev, size_t bytes, void **ret)
{
    int rc = fdk_ops_cpu.mem_reserve(ctx, dev, bytes, ret);

    pinned_add(rc, *ret, bytes);
    return rc;
}

static int
is_pinned(const void *p, size_t bytes)
{
    for (int i = 0; i < n_pinned; i++)
        if ((const char *)p >= pinned[i].at &&
            (const char *)p + bytes <= pinned[i].at + pinned[i].bytes)
            return 1;
    return 0;
}

static int
pinned_copy(fdk_stream_t st, void *dst, const void *src, size_t bytes)
{
    if (watch_copies)
        SIM_CHECK(is_pinned(src, bytes) && is_pinned(dst, bytes));
    n_copied += watch_copies;
    n_tables += watch_copies && bytes > BAT_MAX_DELTA * sizeof(int32_t) && bytes < 512;
    return fdk_ops_cpu.copy(st, dst, src, bytes);
}

/* A prompt whose blocks are more than a plan has room for, all new in one step. */
static void
a_step_copies_pinned_memory(struct sim_rng *rng)
{
    const struct sim_cfg c = { .max_reqs = 4,
        .max_seqs = 2,
        .max_tokens = 512,
        .max_len = 512,
        .n_block = 200,
        .block_size = 4,
        .chunked = 1,
        .exec = FDK_EXEC_DEFER,
        .pace = SIM_PACE_FAST,
        .backend = "cpu",
        .ops = &extra,
        .model_dir = dir };
    struct sim *s;
    struct sim_req *r;

    (void)rng;
    extra_new(1);
    extra.host_alloc = pinned_host;
    extra.mem_alloc = pinned_alloc;
    extra.mem_reserve = pinned_reserve;
    extra.copy = pinned_copy;
    n_pinned = 0;
    s = sim_new(&c);
    r = sim_req(s);
    r->n_prompt = 4 * (BAT_MAX_DELTA + 16);
    r->prompt = mem_array(r->n_prompt, 4);
    for (uint32_t i = 0; i < r->n_prompt; i++)
        r->prompt[i] = 3 + i % 200;
    r->p.max_new = 3;
    r->p.flags |= FDP_F_IGNORE_EOS;
    watch_copies = 1;
    sim_submit(s, r, NULL);
    sim_drain(s);
    watch_copies = 0;
    SIM_CHECK(r->code == 0 && r->s[0].n_ids == 3);
    SIM_CHECK(n_copied > 0 && n_tables > 0);
    sim_free(s);
}

/* ---- what no kernel takes, or a slow one ------------------------------------------------------------- */

struct start {
    struct worker w;
    struct cnt_seg *cnt;
    char err[512];
};

static int
start(struct start *t, const char *sizes)
{
    const struct run_open_args oa = { .backend = "cpu", .n_thread = 1, .max_token = 64 };
    struct run_setup_args sa = { .max_block = 9, .n_rec = 1, .use_graph = 1 };
    const struct eng_cfg ec = { .max_reqs = 4,
        .max_len = 128,
        .block_size = 16,
        .sch = { .max_seqs = 4, .max_tokens = 64 } };
    const struct wts_load_args la = { .buffer_bytes = 1u << 20 };
    struct worker *w = &t->w;
    int rc;

    *t = (struct start){ .cnt = mem_aligned(128, sizeof(*t->cnt)) };
    SIM_CHECK(t->cnt != NULL);
    w->stat = t->cnt;
    eng_dims(&ec, &sa.dims);
    SIM_CHECK(cap_parse(sizes, 64, &w->cap, t->err, sizeof(t->err)) == 0);
    sa.cap = w->cap;
    rc = mdl_config_read(dir, &w->cfg, t->err, sizeof(t->err));
    if (rc == 0)
        rc = mdl_build(&w->cfg, &w->prog, t->err, sizeof(t->err));
    if (rc == 0)
        rc = wts_plan_new(dir, w->prog, 1, 7, &w->wp, t->err, sizeof(t->err));
    if (rc == 0)
        rc = run_new(&oa, &w->run, t->err, sizeof(t->err));
    SIM_CHECK(rc == 0);
    w->run->k = &extra;
    rc = wts_plan_layout(w->wp, w->prog, &extra, t->err, sizeof(t->err));
    if (rc == 0)
        rc = run_load(w->run, w->prog, w->wp, &la, t->err, sizeof(t->err));
    if (rc == 0)
        rc = mpl_layout(w->cfg.n_layer, 0, w->cfg.n_kv_head, w->cfg.head_dim, 16,
            FDK_BF16, &sa.kv);
    if (rc == 0)
        rc = run_setup(w->run, &sa, t->err, sizeof(t->err));
    if (rc == 0)
        rc = run_check(w->run, t->err, sizeof(t->err));
    w->kv = sa.kv;
    return rc;
}

static void
end(struct start *t)
{
    t->w.run = run_free(t->w.run);
    t->w.wp = wts_plan_free(t->w.wp);
    t->w.prog = mdl_free(t->w.prog);
    free(t->cnt);
}

/* The first launch of that name that `fdctl program` shows for a step of that size. */
static json_t *
shown(json_t *program, int32_t tokens, const char *name)
{
    size_t i, j;
    json_t *s, *l;

    json_array_foreach(json_object_get(program, "sizes"), i, s)
        if (json_integer_value(json_object_get(s, "tokens")) == tokens)
            json_array_foreach(json_object_get(s, "launches"), j, l)
                if (strcmp(json_string_value(json_object_get(l, "launch")), name) == 0)
                    return l;
    return NULL;
}

static const char *
text_of(json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s != NULL ? s : "";
}

/* start(), which succeeds, and what it logs. */
static void
start_logged(struct start *t, const char *sizes, char *ret, size_t n)
{
    FILE *f = tmpfile();
    int saved = dup(STDERR_FILENO);
    size_t got;

    SIM_CHECK(f != NULL && saved >= 0);
    log_init("sim", "warn");
    SIM_CHECK(dup2(fileno(f), STDERR_FILENO) >= 0);
    SIM_CHECK(start(t, sizes) == 0);
    SIM_CHECK(dup2(saved, STDERR_FILENO) >= 0 && close(saved) == 0);
    rewind(f);
    got = fread(ret, 1, n - 1, f);
    ret[got] = '\0';
    SIM_CHECK(fclose(f) == 0);
}

static int
times_in(const char *text, const char *what)
{
    int n = 0;

    for (; (text = strstr(text, what)) != NULL; text++)
        n++;
    return n;
}

static int
no_layout(struct fdk_weight *w)
{
    (void)w;
    return -ENOTSUP;
}

static void
no_kernel_ends_the_start(struct sim_rng *rng)
{
    static struct start t;

    (void)rng;
    extra_new(1);
    head_dims = 8;
    SIM_CHECK(start(&t, "1,16,64") == -ENOTSUP);
    if (strstr(t.err, "no kernel for operation attention of layer 0 (") == NULL ||
        strstr(t.err, "head dimension ") == NULL ||
        strstr(t.err, "takes head dimensions of up to 8") == NULL)
        sim_fail(__FILE__, __LINE__, t.err);
    end(&t);
    head_dims = 512;
    extra.weight_layout = no_layout;
    SIM_CHECK(start(&t, "1,16,64") == -ENOTSUP);
    if (strstr(t.err, "no GEMM of the cpu backend takes a matrix (") == NULL)
        sim_fail(__FILE__, __LINE__, t.err);
    end(&t);
}

/* What one kernel is, what is one launch, what is slow, and in which layout weights are. */
static void
a_slow_kernel_is_said(struct sim_rng *rng)
{
    static struct start t;
    static char logged[8192];

    (void)rng;
    for (int fused = 0; fused < 2; fused++) {
        json_t *q = json_object(), *o, *l, *s;
        double share = 0;
        size_t i;

        extra_new(fused);
        slow_width = fused ? 0 : 4096;
        start_logged(&t, "1,16,64", logged, sizeof(logged));
        SIM_CHECK(times_in(logged, "a slow kernel computes") == !fused);
        SIM_CHECK(times_in(logged, "operation silu_mul of layer 0 (width ") == !fused);
        SIM_CHECK(times_in(logged, "takes widths from 4096 on") == !fused);
        t.w.peak.have = 1;
        t.w.peak.c = (struct peak){ .read_bps = 1e10, .flops = { [FDK_F32] = 1e11 } };
        o = adm_program(&t.w, q);
        l = shown(o, 16, fused ? "mlp" : "silu_mul");
        SIM_CHECK(l != NULL && json_is_true(json_object_get(l, "fused")) == fused);
        SIM_CHECK(strcmp(text_of(l, "kernels"), fused ? "mlp_kernel" : "silu_mul") == 0);
        SIM_CHECK(strcmp(text_of(l, "layout"), fused ? "columns" : "") == 0);
        SIM_CHECK(strcmp(text_of(l, "slow"), fused ? "" : "widths from 4096 on") == 0);
        SIM_CHECK(json_number_value(json_object_get(l, "bytes")) > 0);
        SIM_CHECK((shown(o, 16, "silu_mul") == NULL) == fused);
        s = json_array_get(json_object_get(o, "sizes"), 0);
        SIM_CHECK(json_array_size(json_object_get(o, "sizes")) == 4);
        json_array_foreach(json_object_get(s, "launches"), i, l)
            share += json_number_value(json_object_get(l, "share"));
        SIM_CHECK(share > 0.999 && share < 1.001);
        s = json_array_get(json_object_get(o, "sizes"), 3);
        SIM_CHECK(json_is_false(json_object_get(s, "graph")));
        json_decref(o);
        json_decref(q);
        end(&t);
    }
    slow_width = 0;
}

static void
a_list_that_cuts_a_class_is_said(struct sim_rng *rng)
{
    static struct start t;
    static char text[8192];

    (void)rng;
    extra_new(1);
    start_logged(&t, "1,8,64", text, sizeof(text));
    if (strstr(text, "steps of 9 to 16 tokens are padded to 64") == NULL ||
        strstr(text, "add 16") == NULL)
        sim_fail(__FILE__, __LINE__, text);
    end(&t);
    start_logged(&t, "1,16,64", text, sizeof(text));
    SIM_CHECK(strcmp(text, "") == 0);
    end(&t);
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = { SIM_TEST(one_operation_and_one_layout),
        SIM_TEST(noop_between_ends_a_fusion), SIM_TEST(a_fused_launch_falls_back),
        SIM_TEST(a_model_in_its_layout), SIM_TEST(a_step_copies_pinned_memory),
        SIM_TEST(no_kernel_ends_the_start), SIM_TEST(a_slow_kernel_is_said),
        SIM_TEST(a_list_that_cuts_a_class_is_said) };
    int rc;

    sim_model(dir);
    rc = sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
    sim_model_rm(dir);
    return rc;
}
