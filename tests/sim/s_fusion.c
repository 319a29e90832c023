/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A fusion added by a test's backend: the cpu backend's operations and one row of a
 * table, a GEMM of gate and up with silu_mul. It reads its inputs while it writes, and
 * the intermediate result never reaches the program's memory. Tokens and logprobs have
 * the bits of separate operations, with and without graphs. An operation between the two
 * disables this fusion, and only this one.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/worker/admin_priv.h"
#include "daemon/worker/worker.h"
#include "tests/sim/sim.h"

#define T_MOST 256
#define N_REQ  4

static char dir[64];
static int n_launched;

/* ---- the fusion ----------------------------------------------------------------------- */

static int32_t
gate_covers(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, int32_t n,
    int32_t *ret_least, int32_t *ret_most)
{
    (void)ctx;
    (void)dev;
    (void)n;
    *ret_least = 2;
    *ret_most = T_MOST;
    return op[1].silu_mul.gu == op[0].gemm.y ? 2 : 0;
}

static int
gate_prepare(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, int32_t n, void **ret)
{
    (void)ctx;
    (void)dev;
    (void)n;
    *ret = mem_array((size_t)T_MOST * (size_t)op->gemm.N, sizeof(float));
    return *ret == NULL ? -ENOMEM : 0;
}

static void
gate_release(struct fdk_ctx *ctx, int dev, void *data)
{
    (void)ctx;
    (void)dev;
    free(data);
}

/* Both operations for rows [first, first + n). */
static int
gate_rows(float *between, const struct fdk_op *op, int32_t first, int32_t n, fdk_stream_t st)
{
    static const int32_t all = T_MOST;
    struct fdk_gemm_args g = op[0].gemm;
    struct fdk_silu_mul_args s = op[1].silu_mul;
    int rc;

    g.first = first;
    g.T = s.T = n;
    g.y = between;
    s.gu = between;
    s.n = &all;
    s.y = (float *)s.y + (size_t)first * (size_t)s.F;
    rc = fdk_ops_cpu.gemm(&g, st);
    return rc != 0 ? rc : fdk_ops_cpu.silu_mul(&s, st);
}

/* Half of the rows, then the others, which read their inputs when the
 * first results are written. */
static int
gate_launch(void *data, const struct fdk_op *op, int32_t n, const struct fdk_step *s,
    fdk_stream_t st)
{
    int32_t rows = fdk_op_rows(op, s), half = rows / 2;
    int rc = gate_rows(data, op, 0, half, st);

    SIM_CHECK(n == 2);
    n_launched++;
    return rc != 0 ? rc : gate_rows(data, op, half, rows - half, st);
}

static const struct fdk_fusion fusions[] = {
    { "gate", "gate", { FDK_OP_GEMM, FDK_OP_SILU_MUL }, 2, 1, gate_covers, gate_prepare,
        gate_release, gate_launch },
};
static struct fdk_ops ops;

/* ---- an operation between ----------------------------------------------------------------- */

/* Inserts, before the first silu_mul, a norm of the residual stream that nothing reads. */
static void
put_between(struct mdl_program *p)
{
    int32_t at = 0, buf = mdl_add_buf(p, "unread", MDL_PER_TOKEN, p->cfg.hidden);
    struct mdl_op op;

    SIM_CHECK(buf >= 0);
    while (p->op[at].kind != MDL_OP_SILU_MUL)
        at++;
    SIM_CHECK(p->op[at].rows == MDL_PER_TOKEN && p->op[at - 2].kind == MDL_OP_RMSNORM);
    op = p->op[at - 2];
    op.in2 = -1;
    op.out = buf;
    SIM_CHECK(mdl_add_op(p, op) >= 0);
    for (int32_t i = p->n_op - 1; i > at; i--)
        p->op[i] = p->op[i - 1];
    p->op[at] = op;
    for (int32_t i = 0; i < p->n_buf; i++) {
        p->buf[i].first += p->buf[i].first >= at;
        p->buf[i].last += p->buf[i].last >= at;
    }
    p->buf[buf].first = p->buf[buf].last = at;
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* Number of launches of a step of T tokens with O outputs, and of fused ones. */
static int32_t
launches(struct sim *s, int32_t T, int32_t O, int32_t *ret_fused)
{
    const struct run_form *f = run_form(run_root(s->run), run_tail(s->run, T, O));
    struct fdk_launch *l = mem_array((size_t)f->n, sizeof(*l));
    struct fdk_step step = { .T = T, .O = O };
    int32_t n;

    SIM_CHECK(l != NULL);
    n = fdk_launches(f->bound, &step, 1, l);
    *ret_fused = 0;
    for (int32_t i = 0; i < n; i++)
        *ret_fused += strcmp(fdk_launch_name(f->bound, &l[i]), "gate") == 0;
    free(l);
    return n;
}

/* Number of times that `fdctl program` shows the fusion in a step of 64 tokens. */
static int32_t
shown(struct sim *s)
{
    struct worker w = { .run = s->run,
        .prog = s->prog,
        .wp = s->wp,
        .cfg = s->prog->cfg,
        .cap = s->run->cap,
        .mpl = { .block_size = s->cfg.block_size, .max_len = s->cfg.max_len },
        .stat = s->cnt,
        .peak = { .have = 1, .c = { .read_bps = 1e10, .flops = { [FDK_F32] = 1e11 } } } };
    json_t *q = json_object(), *o = adm_program(&w, q), *z, *l;
    int32_t times = 0;
    size_t i, j;

    json_array_foreach(json_object_get(o, "sizes"), i, z)
        if (json_integer_value(json_object_get(z, "tokens")) == 64)
            json_array_foreach(json_object_get(z, "launches"), j, l)
                if (json_is_true(json_object_get(l, "fused")))
                    times += (int32_t)json_integer_value(json_object_get(l, "times"));
    json_decref(o);
    json_decref(q);
    return times;
}

static void
run(const struct sim_cfg *c, uint64_t *ret_hash, int32_t *ret_fused)
{
    struct sim *s = sim_new(c);
    struct sim_rng g = { 7 };
    struct sim_req *r[N_REQ];
    int32_t few;

    (void)launches(s, 200, 8, ret_fused);
    (void)launches(s, 64, c->max_seqs, &few);
    SIM_CHECK(shown(s) == few);
    (void)launches(s, 1, 1, &few);
    SIM_CHECK(few == 0); /* the fusion does not accept one row */
    for (int i = 0; i < N_REQ; i++) {
        r[i] = sim_req(s);
        r[i]->n_prompt = 3 + 11 * (uint32_t)i;
        r[i]->prompt = mem_array(r[i]->n_prompt, 4);
        for (uint32_t k = 0; k < r[i]->n_prompt; k++)
            r[i]->prompt[k] = sim_range(&g, 3, 250);
        r[i]->p.max_new = 12;
        r[i]->p.flags |= FDP_F_IGNORE_EOS;
        r[i]->p.set |= FDP_S_LOGPROBS;
        r[i]->p.logprobs = 4;
        sim_submit(s, r[i], NULL);
    }
    sim_drain(s);
    for (int i = 0; i < N_REQ; i++) {
        SIM_CHECK(r[i]->code == 0 && r[i]->s[0].n_ids == 12);
        ret_hash[i] = r[i]->s[0].lp_hash;
        for (int k = 0; k < 12; k++)
            ret_hash[i] = ret_hash[i] * 31 + r[i]->s[0].ids[k];
    }
    sim_free(s);
}

static void
fused_steps(struct sim_rng *g)
{
    struct sim_cfg c = { .max_reqs = 16,
        .max_seqs = 8,
        .max_tokens = T_MOST,
        .max_len = 256,
        .n_block = 120,
        .block_size = 16,
        .chunked = 1,
        .exec = FDK_EXEC_DEFER,
        .pace = SIM_PACE_FAST,
        .backend = "cpu",
        .model_dir = dir };
    uint64_t want[N_REQ], got[N_REQ];
    int32_t none, all, one_less;

    (void)g;
    run(&c, want, &none);
    SIM_CHECK(none == 0 && n_launched == 0);
    ops = fdk_ops_cpu;
    ops.fusion = fusions;
    ops.n_fusion = sizeof(fusions) / sizeof(fusions[0]);
    c.ops = &ops;
    for (c.graph = 0; c.graph < 2; c.graph++) {
        c.edit = NULL;
        n_launched = 0;
        run(&c, got, &all);
        SIM_CHECK(memcmp(got, want, sizeof(got)) == 0);
        SIM_CHECK(all > 1 && n_launched > all);
        c.edit = put_between;
        run(&c, got, &one_less);
        SIM_CHECK(memcmp(got, want, sizeof(got)) == 0);
        SIM_CHECK(one_less == all - 1);
    }
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = { SIM_TEST(fused_steps) };
    int rc;

    sim_model(dir);
    rc = sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
    sim_model_rm(dir);
    return rc;
}
