/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The shapes that a backend's kernels accept: a shape without a kernel fails the start. A
 * shape for which there is only a slow kernel is reported in the log and in `fdctl
 * program`, and so is a list of sizes that divides a class of rows.
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
#include "daemon/worker/worker.h"
#include "tests/sim/sim.h"

static char dir[64];
static struct fdk_ops extra;

/* ---- a backend ------------------------------------------------------------------------------- */

static int32_t head_dims = 512, slow_width;

static int
extra_takes(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, char *why, size_t n)
{
    if (op->kind == FDK_OP_ATTENTION && op->attention.D > head_dims) {
        (void)snprintf(why, n, "head dimensions of up to %d", head_dims);
        return -ENOTSUP;
    }
    if (op->kind == FDK_OP_SILU_MUL && op->silu_mul.F < slow_width) {
        (void)snprintf(why, n, "widths from %d on", slow_width);
        return 1;
    }
    return fdk_ops_cpu.op_takes(ctx, dev, op, why, n);
}

/* Classes of rows: up to 16, up to 64, more. */
static int32_t
extra_class(struct fdk_ctx *ctx, int dev, const struct fdk_gemm_args *a)
{
    (void)ctx;
    (void)dev;
    return a->T <= 16 ? 16 : a->T <= 64 ? 64 : INT32_MAX;
}

static const char *
extra_fell_back(struct fdk_ctx *ctx, int dev)
{
    (void)ctx;
    (void)dev;
    return "no maps: slower";
}

static int
unknown_layout(struct fdk_weight *w)
{
    int rc = fdk_ops_cpu.weight_layout(w);

    w->layout = 7;
    return rc;
}

static int
pack_nothing(const struct fdk_pack_args *a, fdk_stream_t st)
{
    (void)a;
    (void)st;
    return 0;
}

static void
extra_new(void)
{
    extra = fdk_ops_cpu;
    extra.op_takes = extra_takes;
    extra.gemm_class = extra_class;
}

/* ---- starts ----------------------------------------------------------------------------------- */

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
        rc = mdl_build(&w->cfg, 1, &w->prog, t->err, sizeof(t->err));
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
            FDK_BF16, &sa.kv[0]);
    if (rc == 0)
        rc = run_setup(w->run, &sa, t->err, sizeof(t->err));
    if (rc == 0)
        rc = run_check(w->run, t->err, sizeof(t->err));
    if (rc == 0)
        run_check_launches(w->run);
    memcpy(w->kv, sa.kv, sizeof(w->kv));
    w->mpl.block_size = 16;
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

/* The first launch of this name that `fdctl program` shows for a step of this size. */
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

/* Calls start(), which must succeed, and keeps its log. */
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
    extra_new();
    head_dims = 8;
    SIM_CHECK(start(&t, "1,16,64") == -ENOTSUP);
    if (strstr(t.err, "no kernel for operation attention of layer 0 (") == NULL ||
        strstr(t.err, "head dimension ") == NULL ||
        strstr(t.err, "takes head dimensions of up to 8") == NULL)
        sim_fail(__FILE__, __LINE__, t.err);
    end(&t);
    head_dims = 512;
    extra.weight_layout = unknown_layout;
    extra.weight_pack = pack_nothing;
    SIM_CHECK(start(&t, "1,16,64") == -ENOTSUP);
    if (strstr(t.err, "no kernel for operation gemm of layer 0 (") == NULL ||
        strstr(t.err, "takes weights in the layout rows") == NULL)
        sim_fail(__FILE__, __LINE__, t.err);
    end(&t);
    extra.weight_layout = no_layout;
    SIM_CHECK(start(&t, "1,16,64") == -ENOTSUP);
    if (strstr(t.err, "no GEMM of the cpu backend takes a matrix (") == NULL)
        sim_fail(__FILE__, __LINE__, t.err);
    end(&t);
}

/* Kernels, bytes, shares and the layout of weights; slow kernels in
 * the log and in the answer. */
static void
a_slow_kernel_is_said(struct sim_rng *rng)
{
    static struct start t;
    static char logged[8192];

    (void)rng;
    for (int slow = 0; slow < 2; slow++) {
        json_t *q = json_object(), *o, *l, *s;
        double share = 0;
        size_t i;

        extra_new();
        slow_width = slow ? 4096 : 0;
        extra.fell_back = slow ? extra_fell_back : NULL;
        start_logged(&t, "1,16,64", logged, sizeof(logged));
        SIM_CHECK(times_in(logged, "a slow kernel computes") == slow);
        SIM_CHECK(times_in(logged, "operation silu_mul of layer 0 (width ") == slow);
        SIM_CHECK(times_in(logged, "takes widths from 4096 on") == slow);
        SIM_CHECK(times_in(logged, "no maps: slower") == slow);
        t.w.peak.have = 1;
        t.w.peak.c = (struct peak){ .read_bps = 1e10, .flops = { [FDK_F32] = 1e11 } };
        o = adm_program(&t.w, q);
        SIM_CHECK(strcmp(text_of(o, "slow"), slow ? "no maps: slower" : "") == 0);
        l = shown(o, 16, "silu_mul");
        SIM_CHECK(l != NULL && json_is_false(json_object_get(l, "fused")));
        SIM_CHECK(strcmp(text_of(l, "kernels"), "silu_mul") == 0);
        SIM_CHECK(strcmp(text_of(l, "slow"), slow ? "widths from 4096 on" : "") == 0);
        l = shown(o, 16, "gemm");
        SIM_CHECK(strcmp(text_of(l, "layout"), "rows") == 0 &&
            strcmp(text_of(l, "slow"), "") == 0);
        SIM_CHECK(json_number_value(json_object_get(l, "bytes")) > 0);
        SIM_CHECK(json_array_size(json_object_get(o, "sizes")) == 4);
        s = json_array_get(json_object_get(o, "sizes"), 0);
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
    extra_new();
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
    static const struct sim_test tests[] = { SIM_TEST(no_kernel_ends_the_start),
        SIM_TEST(a_slow_kernel_is_said), SIM_TEST(a_list_that_cuts_a_class_is_said) };
    int rc;

    sim_model(dir);
    rc = sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
    sim_model_rm(dir);
    return rc;
}
