/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend in this one file: the cpu backend, two operations of its own, a
 * weight layout that no other code knows (column after column), and a fusion that
 * is one row of a table. A program of its operations and a whole model give the
 * same bits as the cpu backend.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/worker/weights_priv.h"
#include "kernels/cpu/cpu.h"
#include "tests/sim/sim.h"

#define COLUMNS 1 /* its layout */

static int n_packed, n_unpacked, n_fused, no_fused_launch;

/* ---- the layout: columns ----------------------------------------------------------------- */

#define TAIL 300 /* bytes that the layout needs after the scales */

/* Two 4-bit values share a byte: those matrices keep the row layout. */
static int
columns_layout(struct fdk_weight *w)
{
    int rc = fdk_ops_cpu.weight_layout(w);

    if (rc != 0 || w->format == FDK_I4)
        return rc;
    w->layout = COLUMNS;
    w->bytes += TAIL;
    return 0;
}

static int
tail_is(const struct fdk_weight *w, int byte)
{
    const unsigned char *p = (const unsigned char *)w->data + w->bytes - TAIL;
    int same = 0;

    for (int i = 0; i < TAIL; i++)
        same += p[i] == byte;
    return same == TAIL;
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

/* Copies values to rows [first, first + n) of w; r holds these rows from row 0 on. */
static void
transpose(const struct fdk_weight *w, const struct fdk_weight *r, int64_t first, int64_t n)
{
    size_t elt = fdk_dtype_bytes(w->format);

    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < w->cols; k++)
            memcpy((char *)w->data + (size_t)(k * w->rows + first + i) * elt,
                (const char *)r->data + (size_t)(i * w->cols + k) * elt, elt);
}

/* Packs as rows first, then moves the values; scales are where the row layout has them. */
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
    memset((char *)a->w.data + a->w.bytes - TAIL, 0x5a, TAIL);
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

/* ---- what it accepts --------------------------------------------------------------------------- */

static int
extra_takes(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, char *why, size_t n)
{
    struct fdk_op rows = *op;

    if (op->kind == FDK_OP_GEMM && op->gemm.w_layout == COLUMNS)
        rows.gemm.w_layout = FDK_LAYOUT_ROWS;
    return fdk_ops_cpu.op_takes(ctx, dev, &rows, why, n);
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

/* Runs the program. Returns the names of its launches as one text; t gets the results. */
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
    /* other backends refuse its operations and layout */
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

/* Adds an operation that computes nothing: the fusion across it ends,
 * and the bits stay the same. */
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

/* A preparation that fails, such as a tensor map that cannot be made. */
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
        /* four matrices in a layer; 4-bit ones keep the row layout, the head does not */
        SIM_CHECK(some >= (quant[i].dtype == FDK_I4 ? 0 : 4));
        SIM_CHECK((n_packed > before) == (some > 0));
    }
}

/* ---- checkpoints ------------------------------------------------------------------------------------ */

/* weight_pack() of a fake device with separate memory. */
static int
after_stream_pack(const struct fdk_pack_args *a, fdk_stream_t st)
{
    int rc = fdk_ops_cpu.stream_sync(st);

    return rc != 0 ? rc : columns_pack(a, NULL);
}

static char *
arena_of(const struct wts_plan *wp, const struct fdk_ops *k, struct fdk_ctx *ctx)
{
    const struct wts_load_args la = { .buffer_bytes = 1u << 16 };
    char err[512] = "";
    void *arena;

    SIM_CHECK(k->mem_alloc(ctx, 0, wts_bytes(wp), &arena) == 0);
    memset(arena, 0xee, wts_bytes(wp));
    if (wts_load(wp, k, ctx, &(struct wts_at){ 0, arena }, 1, &la, err, sizeof(err)) != 0)
        sim_fail(__FILE__, __LINE__, err);
    return arena;
}

/* Checks that values and scales of each weight of b, in columns or not,
 * equal those of a, in rows. */
static int32_t
same_weights(const struct mdl_program *p, const struct wts_plan *a, char *in_a,
    const struct wts_plan *b, char *in_b)
{
    int32_t n = 0;

    for (int32_t i = 0; i < p->n_w; i++) {
        struct fdk_weight x = wts_weight(a, i), y = wts_weight(b, i), t;
        size_t scales = (size_t)x.rows * (size_t)fdk_weight_groups(&x) * sizeof(float);
        size_t values = (size_t)x.rows * fdk_row_bytes(x.format, (size_t)x.cols);

        SIM_CHECK(
            x.layout == FDK_LAYOUT_ROWS && x.format == y.format && x.group == y.group);
        x.data = in_a + wts_offset(a, i);
        y.data = in_b + wts_offset(b, i);
        SIM_CHECK(memcmp((char *)x.data + x.scale_at, (char *)y.data + y.scale_at,
                      x.group > 0 ? scales : 0) == 0);
        t = y;
        t.data = calloc(1, values + 1);
        SIM_CHECK(t.data != NULL);
        if (y.layout == COLUMNS)
            transpose(&t, &x, 0, x.rows);
        SIM_CHECK(memcmp(y.data, y.layout == COLUMNS ? t.data : x.data, values) == 0);
        free(t.data);
        SIM_CHECK(y.layout != COLUMNS || tail_is(&y, 0x5a));
        n += y.layout == COLUMNS;
    }
    return n;
}

/* Weights of several tensors, quantized ones with separate scales, and two types. */
static void
checkpoints_in_its_layout(struct sim_rng *rng)
{
    static const char *const model[] = { "llama31-gqa-tied-bf16", "llama-bias-mixed",
        "llama-fp8-channel", "llama-fp8-tensor", "llama-fp8-fbgemm" };
    static const struct fdk_open_args oa = { .n_device = 1, .n_thread = 1 };
    const char *src = getenv("FDD_SRC");

    (void)rng;
    for (size_t i = 0; i < 2 * sizeof(model) / sizeof(model[0]); i++) {
        struct mdl_program *p = NULL;
        struct mdl_config cfg;
        struct wts_plan *wp[2] = { NULL };
        struct fdk_ctx *ctx;
        char path[512], err[512] = "", *arena[2];

        extra_new(1);
        if (i % 2 != 0) {
            extra.on_host = 0;
            extra.weight_pack = after_stream_pack;
        }
        (void)snprintf(path, sizeof(path), "%s/tests/parity/models/%s",
            src != NULL ? src : ".", model[i / 2]);
        SIM_CHECK(fdk_ops_cpu.open(&oa, &ctx, err, sizeof(err)) == 0);
        for (int k = 0; k < 2; k++) {
            p = mdl_free(p);
            if (mdl_config_read(path, &cfg, err, sizeof(err)) != 0 ||
                mdl_build(&cfg, 1, &p, err, sizeof(err)) != 0 ||
                wts_plan_new(path, p, 0, 0, &wp[k], err, sizeof(err)) != 0 ||
                wts_plan_layout(wp[k], p, k == 0 ? &fdk_ops_cpu : &extra, err,
                    sizeof(err)) != 0)
                sim_fail(__FILE__, __LINE__, err);
            arena[k] = arena_of(wp[k], k == 0 ? &fdk_ops_cpu : &extra, ctx);
        }
        SIM_CHECK(same_weights(p, wp[0], arena[0], wp[1], arena[1]) >= 4);
        for (int k = 0; k < 2; k++) {
            fdk_ops_cpu.mem_free(ctx, 0, arena[k]);
            (void)wts_plan_free(wp[k]);
        }
        (void)mdl_free(p);
        fdk_ops_cpu.close(ctx);
    }
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = { SIM_TEST(one_operation_and_one_layout),
        SIM_TEST(noop_between_ends_a_fusion), SIM_TEST(a_fused_launch_falls_back),
        SIM_TEST(a_model_in_its_layout), SIM_TEST(checkpoints_in_its_layout) };
    int rc;

    sim_model(dir);
    rc = sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
    sim_model_rm(dir);
    return rc;
}
