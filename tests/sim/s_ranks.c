/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A group of ranks compared with one device: tiny random models, virtual devices with
 * threads. T ranks add in another order, so logprobs are near those of one device, and
 * tokens differ where two were about equally likely. Runs of T ranks give the same bits
 * however steps are composed, launched, preempted and resumed.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "daemon/worker/profile.h"
#include "kernels/cpu/cpu.h"
#include "tests/sim/ranks.h"

/* ---- one device and T ranks --------------------------------------------------------------- */

static void
rm(const char *dir)
{
    sim_model_rm(dir);
}

/* Every family with every number of ranks that can divide it. */
static void
families_on_ranks(struct sim_rng *g)
{
    (void)g;
    for (size_t i = 0; i < N_FAMILY; i++)
        for (size_t k = 0; k < N_HEADS; k++) {
            static struct book one, got, again;
            const struct heads *h = &all_heads[k];
            char dir[64], what[64];
            struct sim_cfg c;
            int ties;

            if (FEW && (i + k) % N_HEADS != 0)
                continue;
            model(&families[i], h, dir);
            (void)snprintf(what, sizeof(what), "%s on %d", families[i].name, h->T);
            c = base(dir, 1);
            answers(&c, 1, 0, &one, NULL);
            c = base(dir, h->T);
            answers(&c, 0, 0, &got, NULL);
            ties = near(&one, &got, NEAR, what);
            c.graph = 1;
            c.depth = 2;
            c.max_tokens = 48;
            answers(&c, 1, 0, &again, NULL);
            same(&got, &again, what);
            (void)printf("  %s: %d near ties\n", what, ties);
            rm(dir);
        }
}

/* The same bits for all compositions of steps. */
static void
ways_of_running(struct sim_rng *g)
{
    static const int32_t tokens[] = { 1, 7, 64, 256 };
    static struct book ref, got;
    char dir[64], what[64];
    struct sim_cfg c;

    (void)g;
    for (size_t k = 0; k < 2; k++) {
        model(&families[k * 3], &all_heads[k], dir);
        c = base(dir, all_heads[k].T);
        answers(&c, 0, 0, &ref, NULL);
        for (int i = 0; i < 4; i++) {
            c.depth = i;
            c.max_tokens = tokens[i];
            c.max_seqs = tokens[i] < 8 ? tokens[i] : 8;
            c.graph = i % 2;
            c.unfused = i == 2;
            c.lazy = i == 3;
            (void)snprintf(what, sizeof(what), "%d tokens, depth %d", tokens[i], i);
            answers(&c, 1, 0, &got, NULL);
            same(&ref, &got, what);
        }
        rm(dir);
    }
}

/* Ranks without access to each other's memory give the same bits. */
static void
through_the_host(struct sim_rng *g)
{
    static struct book ref, got;
    char dir[64], what[64];
    struct sim_cfg c;

    (void)g;
    for (size_t k = 0; k < N_HEADS; k++) {
        struct sim *s;

        model(&families[k * 2], &all_heads[k], dir);
        c = base(dir, all_heads[k].T);
        answers(&c, 0, 0, &ref, NULL);
        c.in_host = 1;
        c.graph = k % 2 == 0;
        c.depth = 2;
        s = sim_new(&c);
        answers(&c, 1, 0, &got, s);
        SIM_CHECK(run_root(s->run)->mem.collectives == 0);
        SIM_CHECK(run_root(s->run)->mem.in_host > 0);
        for (int32_t i = 0; i < all_heads[k].T; i++)
            SIM_CHECK(s->run->h_embed[i] != NULL);
        sim_free(s);
        (void)snprintf(what, sizeof(what), "%s on %d", families[k * 2].name, all_heads[k].T);
        same(&ref, &got, what);
        rm(dir);
    }
}

/* Too few blocks: sequences are preempted; cached blocks are
 * copied to the host and back. */
static void
preempted_and_swapped(struct sim_rng *g)
{
    static struct book ref, got;
    char dir[64];
    struct sim_cfg c;
    struct sim *s;

    (void)g;
    for (size_t k = 0; k < 2; k++) {
        model(&families[k], &all_heads[k], dir);
        c = base(dir, all_heads[k].T);
        answers(&c, 0, 0, &ref, NULL);
        c.n_block = 11;
        c.max_tokens = 48;
        c.depth = 2;
        c.graph = 1;
        s = sim_new(&c);
        answers(&c, 1, 0, &got, s);
        SIM_CHECK(s->pip->eng->sch->n_preempted > 0);
        sim_free(s);
        same(&ref, &got, "preempted");
        c.prefix = 1;
        c.n_host = 40;
        s = sim_new(&c);
        answers(&c, 0, 2, &got, s);
        SIM_CHECK(s->pip->eng->kv->n_in > 0 && s->pip->eng->kv->n_out > 0);
        SIM_CHECK(s->pip->eng->kv->n_hit > 0);
        sim_free(s);
        /* prompts found in the cache have no logprobs of their tokens */
        for (int i = 0; i < N_REQ; i++)
            SIM_CHECK(memcmp(got.a[i].ids, ref.a[i].ids, sizeof(ref.a[i].ids)) == 0 &&
                memcmp(got.a[i].lp, ref.a[i].lp, sizeof(ref.a[i].lp)) == 0);
        rm(dir);
    }
}

/* Weights in 8 and 4 bits, KV caches in 8 bits. */
static void
formats(struct sim_rng *g)
{
    static const struct {
        struct qnt q;
        int32_t kv;
    } kinds[] = { { { FDK_I8, 0 }, FDK_F32 + 1 }, { { FDK_I4, 32 }, FDK_F32 + 1 },
        { { FDK_F8E4M3, 0 }, FDK_F32 + 1 }, { { FDK_I8, 32 }, FDK_F32 + 1 },
        { { FDK_F32, 0 }, FDK_I8 + 1 }, { { FDK_F32, 0 }, FDK_F8E4M3 + 1 },
        { { FDK_F32, 0 }, FDK_BF16 + 1 } };
    static struct book one, got, again;

    (void)g;
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
            char dir[64], what[64];
            struct sim_cfg c;

            if (FEW && (i + k) % 2 != 0)
                continue;
            model(&families[0], &all_heads[k], dir);
            (void)snprintf(what, sizeof(what), "format %zu on %d", i, all_heads[k].T);
            c = base(dir, 1);
            c.quant = kinds[i].q;
            c.kv_dtype = kinds[i].kv;
            answers(&c, 1, 0, &one, NULL);
            c.n_rank = all_heads[k].T;
            answers(&c, 0, 0, &got, NULL);
            /* a key rounded to another 8-bit number changes logprobs by more */
            (void)near(&one, &got, kinds[i].kv != FDK_F32 + 1 ? 2e-2f : NEAR, what);
            c.graph = 1;
            c.depth = 2;
            c.max_tokens = 33;
            answers(&c, 1, 0, &again, NULL);
            same(&got, &again, what);
            rm(dir);
        }
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* Late launch threads change nothing. */
static void
late_launches(struct sim_rng *g)
{
    static struct book ref, got;
    char dir[64];
    struct sim_cfg c;

    model(&families[0], &all_heads[1], dir);
    c = base(dir, all_heads[1].T);
    answers(&c, 1, 0, &ref, NULL);
    c.depth = 3;
    c.graph = 1;
    answers_late(&c, g, &got);
    same(&ref, &got, "launched late");
    rm(dir);
}

/* Runs a step in the runner only: it must return -EIO within
 * the limit and name the rank. */
static void
broken(const char *dir, void (*fault)(struct sim *s), int other, const char *want)
{
    struct sim_cfg c = base(dir, 2);
    static const int32_t dummy[64];
    const struct bat_synth synth = { .n_prefill = 5, .table = dummy, .own = dummy };
    uint64_t t0, begin, end;
    struct bat_rec *rec;
    struct sim *s;
    int rc;

    c.spin_limit_ms = 300;
    s = sim_new(&c);
    rec = &s->run->rec[0];
    bat_make(s->pip->eng->bat, &synth, 1, rec);
    rec->marks = NULL;
    fault(s);
    t0 = clk_now_ns();
    rc = run_launch(s->run, rec);
    if (rc == 0)
        rc = run_collect(s->run, rec, &begin, &end);
    SIM_CHECK(rc == -EIO);
    /* the other rank gives up too, or has not launched the step
     * when it learns of the failure */
    while (__atomic_load_n(&s->run->ranks->at[other].done, __ATOMIC_ACQUIRE) !=
        s->run->ranks->tail)
        SIM_CHECK(clk_now_ns() - t0 < 20 * CLK_S);
    (void)s->run->k->stream_sync(s->run->dev[other].stream);
    SIM_CHECK(clk_now_ns() - t0 < 20 * CLK_S);
    if (strstr(run_error(s->run), want) == NULL) {
        (void)fprintf(stderr, "%s: not %s\n", run_error(s->run), want);
        SIM_CHECK(0);
    }
    (void)pip_free(s->pip);
    s->pip = NULL;
    s->run = run_free(s->run);
    sim_drop(s);
}

static void
fails(struct sim *s)
{
    SIM_CHECK(run_fail(s->run, 1) == 0);
}

static void
stops(struct sim *s)
{
    run_stall(s->run, 1);
}

static void
stops_first(struct sim *s)
{
    run_stall(s->run, 0);
}

static void
dies_inside(struct sim *s)
{
    fdk_cpu_fail_after(s->run->ctx, 1, 9);
}

static void
ranks_that_break(struct sim_rng *g)
{
    char dir[64];

    (void)g;
    model(&families[0], &all_heads[0], dir);
    broken(dir, fails, 0, "rank 1 (cpu-1): a test made the device fail");
    broken(dir, stops, 0, "rank 1 (cpu-1): collective: rank 1 did not arrive within 300 ms");
    broken(dir, stops_first, 1,
        "rank 0 (cpu-0): collective: rank 0 did not arrive within 300 ms");
    broken(dir, dies_inside, 0, "rank 1 (cpu-1): failure injected by a test");
    rm(dir);
}

/* A measured step: all ranks launch it in the same way as the rank with the events. */
static void
measured(struct sim_rng *g)
{
    static const int32_t dummy[64];
    const struct bat_synth synth = { .n_prefill = 5, .table = dummy, .own = dummy };
    struct prf *p = NULL;
    uint64_t begin, end;
    struct sim_cfg c;
    struct sim *s;
    char dir[64];

    (void)g;
    model(&families[0], &all_heads[0], dir);
    c = base(dir, 2);
    s = sim_new(&c);
    SIM_CHECK(prf_new(s->run, 1, NULL, &p) == 0);
    for (int i = 0; i < 6; i++) {
        struct bat_rec *rec = &s->run->rec[0];

        bat_make(s->pip->eng->bat, &synth, i == 0, rec);
        rec->marks = i % 2 == 1 ? &p->marks[0] : NULL;
        SIM_CHECK(run_launch(s->run, rec) == 0);
        SIM_CHECK(run_collect(s->run, rec, &begin, &end) == 0);
        SIM_CHECK(rec->marks == NULL || rec->marks->n > s->prog->n_op / 2);
        rec->marks = NULL;
    }
    (void)prf_free(p);
    sim_free(s);
    rm(dir);
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = { SIM_TEST(families_on_ranks),
        SIM_TEST(ways_of_running), SIM_TEST(through_the_host),
        SIM_TEST(preempted_and_swapped), SIM_TEST(formats), SIM_TEST(late_launches),
        SIM_TEST(ranks_that_break), SIM_TEST(measured) };

    return sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
