/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Opening backends, placing buffers by liveness, refusing missing devices and kernels. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "daemon/worker/engine.h"
#include "daemon/worker/memplan.h"
#include "daemon/worker/runner.h"
#include "daemon/worker/weights_priv.h"
#include "kernels/cpu/cpu.h"
#include "tests/test_device.h"

static void
unknown_and_missing_backends(void **state)
{
    struct run_open_args a = { .backend = "tpu", .n_thread = 1, .max_token = 8 };
    struct runner *run = NULL;
    char err[512] = "", why[128];

    (void)state;
    assert_int_equal(run_new(&a, &run, err, sizeof(err)), -ENOTSUP);
    assert_non_null(strstr(err, "tpu"));
    assert_null(run);
    if (fdk_ops_cuda.available(why, sizeof(why)) <= 0) {
        a.backend = "cuda";
        assert_int_equal(run_new(&a, &run, err, sizeof(err)), -ENODEV);
        assert_non_null(strstr(err, "device.backend"));
    }
    assert_null(run_free(NULL));
}

/* Random programs: no two buffers alive at one time share a byte, and the
 * arena is no larger than all of them together. */
static void
placement(void **state)
{
    struct bat_dims d = { .T = 3, .S = 2, .O = 2, .stride = 1, .block_size = 16 };
    unsigned seed = 9;
    size_t saved = 0;

    (void)state;
    for (int round = 0; round < 300; round++) {
        struct mdl_buf buf[20] = { 0 };
        struct mdl_program p = { .buf = buf, .n_buf = 20 };
        size_t off[20], bytes = 0, sum = 0;

        for (int i = 0; i < 20; i++) {
            buf[i].rows = rand_r(&seed) % 2 ? MDL_PER_TOKEN : MDL_PER_OUT;
            buf[i].width = 1 + rand_r(&seed) % 500;
            buf[i].first = rand_r(&seed) % 30;
            buf[i].last = buf[i].first + rand_r(&seed) % 8;
            sum += run_buf_bytes(&p, &d, 1, FDK_F32, i);
        }
        assert_int_equal(run_place(&fdk_ops_cpu, &p, &d, 1, FDK_F32, 0, off, &bytes), 0);
        assert_true(bytes <= sum);
        saved += sum - bytes;
        for (int i = 0; i < 20; i++) {
            assert_true(off[i] % 256 == 0 &&
                off[i] + run_buf_bytes(&p, &d, 1, FDK_F32, i) <= bytes);
            for (int j = 0; j < i; j++) {
                int alive = buf[i].first <= buf[j].last && buf[j].first <= buf[i].last;
                int apart = off[i] + run_buf_bytes(&p, &d, 1, FDK_F32, i) <= off[j] ||
                    off[j] + run_buf_bytes(&p, &d, 1, FDK_F32, j) <= off[i];

                assert_true(!alive || apart);
            }
        }
    }
    assert_true(saved > 0);
}

struct fix {
    struct mdl_program *prog;
    struct runner *run;
};

/* Operations to use instead of the named backend's. */
static const struct fdk_ops *other_ops;

/* The null program, a KV pool of 9 blocks, graphs for 1, 8 and 64 tokens. */
static void
fix_open(struct fix *f, const struct run_open_args *oa, int use_graph, int32_t n_rec,
    int tails)
{
    struct eng_cfg ec = { .max_reqs = 4,
        .max_len = 128,
        .block_size = 16,
        .sch = { .max_seqs = 4, .max_tokens = 64 } };
    struct run_setup_args sa = { .max_block = 9,
        .n_rec = n_rec,
        .n_host = 3,
        .n_penalty = 2,
        .use_graph = use_graph };
    char err[512] = "";

    f->prog = run_null_program();
    f->prog->has_tails = tails;
    f->run = NULL;
    eng_dims(&ec, &sa.dims);
    assert_int_equal(sa.dims.O, 4 + ENG_MAX_SCORES);
    assert_int_equal(sa.dims.stride, 8);
    assert_int_equal(cap_parse("1,8,64", 64, &sa.cap, err, sizeof(err)), 0);
    assert_int_equal(run_new(oa, &f->run, err, sizeof(err)), 0);
    if (other_ops != NULL)
        f->run->k = other_ops;
    assert_int_equal(run_load(f->run, f->prog, NULL, NULL, err, sizeof(err)), 0);
    assert_int_equal(mpl_layout(1, 0, 1, 1, 16, FDK_F32, &sa.kv[0]), 0);
    assert_int_equal(run_setup(f->run, &sa, err, sizeof(err)), 0);
    assert_int_equal(run_map_kv(f->run, 9, err, sizeof(err)), 0);
}

static void
fix_new_tails(struct fix *f, int use_graph, int32_t n_rec, enum fdk_exec exec, int tails)
{
    int32_t dev = td_dev();
    struct run_open_args oa = { .backend = "null",
        .n_device = dev + 1,
        .dead = td_dead(),
        .rank = &dev,
        .n_thread = 1,
        .max_token = 64,
        .exec = exec };

    fix_open(f, &oa, use_graph, n_rec, tails);
}

static void
fix_new(struct fix *f, int use_graph, int32_t n_rec, enum fdk_exec exec)
{
    fix_new_tails(f, use_graph, n_rec, exec, 0);
}

static void
fix_free(struct fix *f)
{
    (void)run_free(f->run);
    (void)mdl_free(f->prog);
}

/* Makes the record of a step without tokens. */
static struct bat_rec *
empty_step(struct runner *run, int32_t i, int32_t T_pad, int32_t graph)
{
    struct bat_rec *rec = &run->rec[i];

    rec->T_pad = T_pad;
    rec->graph = graph;
    bat_layout(&run->dims, T_pad, &rec->layout);
    rec->upd = (struct bat_updates){ .idx = rec->layout.bytes,
        .rows = rec->layout.bytes,
        .delta = rec->layout.bytes,
        .bytes = rec->layout.bytes };
    memset(rec->plan, 0, rec->layout.bytes);
    return rec;
}

static void
null_program_runs(void **state)
{
    struct bat_rec *rec;
    uint64_t t0 = 0, t1 = 0;
    struct fix f;

    (void)state;
    fix_new(&f, 1, 2, FDK_EXEC_DEFAULT);
    assert_int_equal(f.run->n_rec, 2);
    assert_int_equal(run_root(f.run)->n_pad, 3);
    assert_int_equal(run_root(f.run)->pad[2].T, 64);
    assert_int_equal(run_root(f.run)->pad[0].O, 1);
    assert_int_equal(run_root(f.run)->pad[1].S, 4);
    assert_int_equal(run_warm(f.run, 1), 0);
    for (int32_t i = 0; i < 3; i++) {
        assert_non_null(run_root(f.run)->pad[i].graph);
        assert_int_equal(run_root(f.run)->few[i].T, 0);
    }
    /* an empty step is launched and completes */
    rec = empty_step(f.run, 1, 8, 1);
    assert_int_equal(run_launch(f.run, rec), 0);
    assert_int_equal(run_collect(f.run, rec, &t0, &t1), 0);
    assert_true(f.run->n_graph == 1 && f.run->n_eager == 0);
    rec = empty_step(f.run, 0, 9, 0);
    assert_int_equal(run_launch(f.run, rec), 0);
    assert_int_equal(run_collect(f.run, rec, &t0, &t1), 0);
    assert_true(f.run->n_graph == 1 && f.run->n_eager == 1);
    fix_free(&f);
}

static int
no_sample(const struct fdk_sample_args *a, fdk_stream_t st)
{
    (void)a;
    (void)st;
    return -ENOTSUP;
}

/* An operation without a kernel fails the start, and is named. */
static void
operation_without_kernel(void **state)
{
    struct fdk_ops ops = fdk_ops_null;
    struct fix f;

    (void)state;
    ops.sample = no_sample;
    other_ops = &ops;
    fix_new(&f, 0, 2, FDK_EXEC_DEFAULT);
    other_ops = NULL;
    assert_string_equal(run_error(f.run), "unknown");
    assert_int_equal(run_warm(f.run, 1), -ENOTSUP);
    assert_string_equal(run_error(f.run),
        "sample of N 259, K 259: the backend null has no kernel for it");
    fix_free(&f);
}

/* A group of two ranks, with the devices in another order than the context's: each
 * rank has its own pool and events, a step is done when both ranks have done it,
 * and only rank 0 is counted. */
static void
a_group_of_two(void **state)
{
    static const int32_t rank[] = { 2, 0 }, same[] = { 1, 1 }, far[] = { 0, 3 };
    struct run_open_args oa = { .backend = "null",
        .n_device = 3,
        .dead = 2,
        .n_rank = 2,
        .rank = same,
        .n_thread = 1,
        .max_token = 64,
        .exec = FDK_EXEC_DEFER };
    const struct kv_copy copy = { 3, 2, 1 };
    struct fix f = { .run = NULL };
    struct bat_rec *rec;
    uint64_t t0, t1;
    char err[512] = "";

    (void)state;
    assert_int_equal(run_new(&oa, &f.run, err, sizeof(err)), -ENODEV);
    assert_non_null(strstr(err, "rank 1 on device 1"));
    oa.rank = far;
    assert_int_equal(run_new(&oa, &f.run, err, sizeof(err)), -ENODEV);
    oa.rank = rank;
    oa.dead = 1;
    assert_int_equal(run_new(&oa, &f.run, err, sizeof(err)), -ENODEV);
    assert_non_null(strstr(err, "rank 1 (null-0): no stream: "));
    oa.dead = 2;
    fix_open(&f, &oa, 1, 2, 0);
    assert_int_equal(f.run->n_rank, 2);
    assert_int_equal(run_warm(f.run, 1), 0);
    for (int i = 0; i < 2; i++) {
        const struct run_dev *dev = &f.run->dev[i];

        assert_int_equal(dev->idx, rank[i]);
        assert_true(fdk_cpu_memory_used(f.run->ctx, dev->idx) > dev->mem.kv);
        for (int32_t k = 0; k < dev->n_pad; k++)
            assert_non_null(dev->pad[k].graph);
        memset(dev->d_kv, i + 1, (size_t)(9 * f.run->kv[0].block_bytes));
    }
    assert_int_equal(run_copies(f.run, &copy, 1), 0);
    rec = empty_step(f.run, 1, 8, 1);
    assert_int_equal(run_launch(f.run, rec), 0);
    assert_int_equal(run_done(f.run, rec), 0);
    while (!run_ranks_idle(f.run))
        clk_sleep_ns(CLK_US);
    assert_int_equal(f.run->k->event_sync(f.run->dev[0].ev_end[1]), 0);
    assert_int_equal(run_done(f.run, rec), 0); /* not yet done on the other rank */
    assert_int_equal(run_collect(f.run, rec, &t0, &t1), 0);
    assert_int_equal(run_done(f.run, rec), 1);
    assert_true(f.run->n_graph == 1 && f.run->n_eager == 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(f.run->dev[i].h_kv[2 * f.run->kv[0].block_bytes], i + 1);
    fdk_cpu_fail_after(f.run->ctx, rank[1], 1);
    rec = empty_step(f.run, 0, 9, 0);
    (void)run_launch(f.run, rec);
    assert_int_equal(run_collect(f.run, rec, &t0, &t1), -EIO);
    assert_string_equal(run_error(f.run), "rank 1 (null-0): failure injected by a test");
    assert_string_equal(f.run->k->error_text(f.run->ctx, rank[0]), "");
    fix_free(&f);
}

/* Steps complete in order, and not before the device ran them. */
static void
steps_follow_each_other(void **state)
{
    struct bat_rec *rec[3];
    uint64_t t0 = 0, t1 = 0;
    struct fix f;

    (void)state;
    fix_new(&f, 0, 3, FDK_EXEC_DEFER);
    for (int32_t i = 0; i < 3; i++) {
        rec[i] = empty_step(f.run, i, 5, 0);
        assert_int_equal(run_launch(f.run, rec[i]), 0);
    }
    for (int32_t i = 0; i < 3; i++)
        assert_int_equal(run_done(f.run, rec[i]), 0);
    assert_int_equal(run_wait(f.run, rec[1]), 0);
    assert_int_equal(run_done(f.run, rec[0]), 1);
    assert_int_equal(run_done(f.run, rec[1]), 1);
    assert_int_equal(run_done(f.run, rec[2]), 0);
    assert_int_equal(run_collect(f.run, rec[2], &t0, &t1), 0);
    fix_free(&f);
}

/* Blocks are copied to the host and back before the next step runs. */
static void
block_copies(void **state)
{
    const struct kv_copy orders[] = { { 3, 2, 1 }, { 5, 2, 0 }, { 5, 0, 1 } };
    struct bat_rec *rec;
    size_t n, i;
    int32_t n_copy = 0;
    struct fix f;

    (void)state;
    fix_new(&f, 0, 1, FDK_EXEC_DEFER);
    n = (size_t)f.run->kv[0].block_bytes;
    for (i = 0; i < 9 * n; i++)
        run_root(f.run)->d_kv[i] = (unsigned char)(i / n + i % n * 16);
    assert_int_equal(run_copies(f.run, NULL, 0), 0);
    assert_int_equal(run_copies(f.run, orders, 3), 0);
    rec = empty_step(f.run, 0, 1, 0);
    assert_int_equal(run_launch(f.run, rec), 0);
    assert_memory_not_equal(run_root(f.run)->d_kv + 5 * n, run_root(f.run)->d_kv + 3 * n, n);
    /* the step waits for the copies */
    assert_int_equal(run_wait(f.run, rec), 0);
    assert_memory_equal(run_root(f.run)->d_kv + 5 * n, run_root(f.run)->d_kv + 3 * n, n);
    assert_memory_equal(run_root(f.run)->h_kv, run_root(f.run)->d_kv + 3 * n, n);
    assert_memory_equal(run_root(f.run)->h_kv + 2 * n, run_root(f.run)->d_kv + 3 * n, n);
    assert_true(run_copy_ns(f.run, &n_copy) > 0);
    assert_int_equal(n_copy, 3);
    assert_int_equal(run_copy_ns(f.run, &n_copy), 0);
    fix_free(&f);
}

/* After a change of sizes the old graphs are freed, each new one is recorded by the first
 * step that needs it, and memory does not grow from change to change. */
static void
recapture(void **state)
{
    static const char *const lists[] = { "1,8,64", "3,5,7,9", "64", "1,2,3,4,5,6,7,8" };
    struct bat_rec *rec;
    uint64_t t0 = 0, t1 = 0;
    char err[256];
    struct fix f;

    (void)state;
    fix_new(&f, 1, 1, FDK_EXEC_DEFAULT);
    assert_int_equal(run_warm(f.run, 0), 0);
    assert_null(run_root(f.run)->pad[0].graph);
    for (int i = 0; i < 40; i++) {
        struct cap c;

        assert_int_equal(cap_parse(lists[i % 4], 64, &c, err, sizeof(err)), 0);
        assert_int_equal(run_recapture(f.run, i % 5 != 0, &c), 0);
        assert_int_equal(run_root(f.run)->n_pad, c.n);
        for (int32_t k = 0; k < c.n; k++) {
            assert_int_equal(run_root(f.run)->pad[k].T, c.size[k]);
            assert_null(run_root(f.run)->pad[k].graph);
        }
        if (i % 3 == 0)
            assert_int_equal(run_warm(f.run, 1), 0);
        rec = empty_step(f.run, 0, c.size[c.n - 1], 1);
        assert_int_equal(run_launch(f.run, rec), 0);
        assert_int_equal(run_collect(f.run, rec, &t0, &t1), 0);
        assert_int_equal(run_root(f.run)->pad[c.n - 1].graph != NULL, i % 5 != 0);
    }
    fix_free(&f);
}

/* The number of a step's outputs decides which of a size's two graphs it replays; a step
 * in which all tokens have outputs uses the graph for all tokens. */
static void
few_outputs(void **state)
{
    static const struct {
        int32_t T, n_out, O;
        enum mdl_tail tail;
        int graph;
    } steps[] = {
        { 1, 1, 1, MDL_TAIL_TOKENS, 1 },
        { 8, 8, 8, MDL_TAIL_TOKENS, 1 },
        { 8, 5, 8, MDL_TAIL_TOKENS, 1 },
        { 8, 4, 4, MDL_TAIL_OUTPUTS, 1 },
        { 8, 0, 4, MDL_TAIL_OUTPUTS, 1 },
        { 64, 33, 64, MDL_TAIL_TOKENS, 1 },
        { 64, 32, 32, MDL_TAIL_OUTPUTS, 1 },
        { 64, 1, 32, MDL_TAIL_OUTPUTS, 1 },
        /* without a graph: no padding */
        { 9, 9, 9, MDL_TAIL_TOKENS, 0 },
        { 9, 5, 5, MDL_TAIL_TOKENS, 0 },
        { 9, 3, 3, MDL_TAIL_OUTPUTS, 0 },
        { 9, 0, 0, MDL_TAIL_OUTPUTS, 0 },
    };
    struct fix f;

    (void)state;
    fix_new_tails(&f, 1, 1, FDK_EXEC_DEFAULT, 1);
    assert_int_equal(run_n_graph(f.run->k, f.prog, &f.run->cap), 5);
    assert_int_equal(run_root(f.run)->few[0].T, 0);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct bat_rec *rec = empty_step(f.run, 0, steps[i].T, steps[i].graph);
        uint64_t n_graph = f.run->n_graph, t0 = 0, t1 = 0;
        const struct run_pad *pad = &run_root(f.run)->eager[0];

        for (int32_t k = 0; k < run_root(f.run)->n_pad && steps[i].graph; k++)
            if (run_root(f.run)->pad[k].T == steps[i].T)
                pad = steps[i].tail == MDL_TAIL_OUTPUTS
                    ? &run_root(f.run)->few[k]
                    : &run_root(f.run)->pad[k];
        for (int32_t k = 0; k < run_root(f.run)->n_pad; k++)
            assert_true(run_root(f.run)->pad[k].graph == NULL &&
                run_root(f.run)->few[k].graph == NULL);
        rec->n_out = steps[i].n_out;
        assert_int_equal(run_launch(f.run, rec), 0);
        assert_int_equal(run_collect(f.run, rec, &t0, &t1), 0);
        assert_int_equal(pad->T, steps[i].T);
        assert_int_equal(pad->O, steps[i].O);
        assert_int_equal(pad->tail, steps[i].tail);
        assert_int_equal(f.run->n_graph - n_graph, steps[i].graph);
        assert_int_equal(pad->graph != NULL, steps[i].graph);
        assert_int_equal(run_recapture(f.run, 1, &f.run->cap), 0);
    }
    /* all of them at the start */
    assert_int_equal(run_warm(f.run, 1), 0);
    for (int32_t k = 0; k < run_root(f.run)->n_pad; k++) {
        assert_non_null(run_root(f.run)->pad[k].graph);
        assert_int_equal(run_root(f.run)->few[k].graph != NULL, k > 0);
    }
    fix_free(&f);
}

/* If rows of a GEMM are free up to a number, steps of up to that number of tokens have
 * only one graph, and a decoding step never gathers more rows than before. */
static void
few_where_rows_are_free(void **state)
{
    const struct fdk_ops k = { .gemm_rows = 128 }, each = { .gemm_rows = 0 };
    struct mdl_program p = { .has_tails = 1 }, none = { 0 };
    struct runner run = { .k = &k, .prog = &p, .dims = { .T = 8192, .S = 256, .O = 512 } };

    (void)state;
    assert_int_equal(run_few(&k, &p, 1), 0);
    assert_int_equal(run_few(&k, &p, 128), 0);
    assert_int_equal(run_few(&k, &p, 144), 72);
    assert_int_equal(run_few(&k, &p, 256), 128);
    assert_int_equal(run_few(&k, &p, 8192), 128);
    assert_int_equal(run_few(&each, &p, 1), 0);
    assert_int_equal(run_few(&each, &p, 2), 1);
    assert_int_equal(run_few(&each, &p, 512), 256);
    assert_int_equal(run_few(&k, &none, 8192) + run_few(&each, &none, 512), 0);
    for (int32_t T = 1; T <= 512; T++)
        assert_int_equal(run_tail(&run, T, T), MDL_TAIL_TOKENS);
    assert_int_equal(run_tail(&run, 128, 1), MDL_TAIL_TOKENS);
    assert_int_equal(run_tail(&run, 129, 64), MDL_TAIL_OUTPUTS);
    assert_int_equal(run_tail(&run, 129, 65), MDL_TAIL_TOKENS);
    assert_int_equal(run_tail(&run, 512, 129), MDL_TAIL_TOKENS);
    assert_int_equal(run_tail(&run, 513, 512), MDL_TAIL_OUTPUTS);
    assert_int_equal(run_tail(&run, 2048, 1), MDL_TAIL_OUTPUTS);
    run.prog = &none;
    assert_int_equal(run_tail(&run, 2048, 1), MDL_TAIL_TOKENS);
}

static void
depth_is_refused(void **state)
{
    char err[256] = "";

    (void)state;
    for (int depth = -1; depth <= ENG_MAX_DEPTH + 1; depth += ENG_MAX_DEPTH + 2) {
        struct eng_cfg ec = { .depth = depth };
        struct engine *e = NULL;

        assert_int_equal(eng_new(&ec, NULL, &e, err, sizeof(err)), -EINVAL);
        assert_non_null(strstr(err, "device.overlap_depth"));
        assert_null(e);
    }
}

/* ---- weights of several ranks ------------------------------------------------------------- */

static int64_t
count_read(void *arg, uint64_t off, size_t n, int64_t res)
{
    (void)off;
    (void)n;
    *(uint64_t *)arg += res > 0 ? (uint64_t)res : 0;
    return res;
}

/* Two ranks with the same weights: the files are read once. */
static void
weights_are_read_once(void **state)
{
    static const int32_t rank[] = { 2, 0 };
    const struct run_open_args oa = { .backend = "cpu",
        .n_device = 3,
        .dead = 2,
        .n_rank = 2,
        .rank = rank,
        .n_thread = 1,
        .max_token = 8 };
    const char *src = getenv("FDD_SRC");
    char path[512], err[512] = "";

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/tests/parity/models/llama31-gqa-tied-bf16",
        src != NULL ? src : ".");
    for (int background = 0; background < 2; background++) {
        struct wts_load_args la = { .buffer_bytes = 1u << 20, .background = background };
        struct mdl_program *prog = NULL;
        struct mdl_config cfg;
        struct wts_plan *wp = NULL;
        struct runner *run = NULL;
        uint64_t want = 0, got = 0;

        assert_int_equal(mdl_config_read(path, &cfg, err, sizeof(err)), 0);
        assert_int_equal(mdl_build(&cfg, 1, &prog, err, sizeof(err)), 0);
        assert_int_equal(wts_plan_new(path, prog, 0, 0, &wp, err, sizeof(err)), 0);
        for (int32_t i = 0; i < wp->n_piece; i++)
            want += wp->piece[i].n_elt * fdk_dtype_bytes(wp->piece[i].src);
        wp->st->fault = count_read;
        wp->st->fault_arg = &got;
        assert_int_equal(run_new(&oa, &run, err, sizeof(err)), 0);
        assert_int_equal(run_load(run, prog, wp, &la, err, sizeof(err)), 0);
        assert_int_equal(run_load_wait(run, err, sizeof(err)), 0);
        assert_true(want > 0 && got == want);
        assert_ptr_not_equal(run->dev[0].d_weights, run->dev[1].d_weights);
        assert_memory_equal(run->dev[0].d_weights, run->dev[1].d_weights, wts_bytes(wp));
        (void)run_free(run);
        (void)wts_plan_free(wp);
        (void)mdl_free(prog);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_and_missing_backends),
        cmocka_unit_test(placement),
        cmocka_unit_test(null_program_runs),
        cmocka_unit_test(operation_without_kernel),
        cmocka_unit_test(a_group_of_two),
        cmocka_unit_test(steps_follow_each_other),
        cmocka_unit_test(block_copies),
        cmocka_unit_test(recapture),
        cmocka_unit_test(few_outputs),
        cmocka_unit_test(few_where_rows_are_free),
        cmocka_unit_test(depth_is_refused),
        cmocka_unit_test(weights_are_read_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
