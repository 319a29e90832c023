/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The stages on their own threads, and a device with its own thread that is slower or
 * faster than they are: every answer equals the simple loop's.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "tests/sim/ref.h"

#ifdef FDD_SANITIZED
#define N_REQ 60
#else
#define N_REQ 250
#endif
#define N_CONTENT 60

static void
drain(struct sim *s)
{
    (void)lnk_claim(&s->gate, 0, LNK_T_DRAIN, 0, 0, 0);
    lnk_flush(&s->gate);
    pip_join(s->pip);
}

static void
submit(struct sim *s, struct sim_rng *g, const struct ref *f)
{
    struct sim_req *r = sim_req(s);

    if (r == NULL)
        return;
    ref_fill(f, r, sim_range(g, 0, N_CONTENT - 1));
    r->user = 1 + (sim_u32(g) % 4 == 0);
    r->p.priority = (int32_t)sim_range(g, 0, 2) - 1;
    sim_submit(s, r, NULL);
    if (sim_u32(g) % 7 == 0)
        sim_cancel(s, r, FDP_E_CANCELLED);
}

static void
run(const struct sim_cfg *c, struct sim_rng *g, struct ref *f)
{
    struct sim *s = sim_new(c);
    uint64_t until = clk_now_ns() + 60 * CLK_S;
    const struct cnt_worker *w = &s->cnt->w;

    ref_watch(f, s);
    SIM_CHECK(pip_start(s->pip) == 0);
    while (s->next_id < N_REQ || s->n_open > 0) {
        if (s->next_id < N_REQ)
            submit(s, g, f);
        if (sim_u32(g) % 16 == 0)
            clk_sleep_ns(sim_range(g, 1, 300) * 1000);
        if (c->graph && sim_u32(g) % 200 == 0) {
            struct cap cap;

            cap_default((int32_t)sim_range(g, 1, 128), &cap);
            if (eng_set_graph(s->pip->eng, 1, &cap) == 0)
                pip_ring_engine(s->pip);
        }
        sim_records(s);
        SIM_CHECK(clk_now_ns() < until);
    }
    drain(s);
    (void)printf("  depth %d, delay %llu us: %llu steps, %llu done, %llu errors, %llu late "
                 "rows\n",
        c->depth, (unsigned long long)c->delay_ns / 1000,
        (unsigned long long)cnt_get(&w->steps), (unsigned long long)s->n_done,
        (unsigned long long)s->n_error, (unsigned long long)cnt_get(&w->rows_discarded));
    SIM_CHECK(s->n_done + s->n_error == N_REQ && s->n_done > N_REQ / 2);
    eng_check(s->pip->eng);
    sim_free(s);
}

static void
all(struct sim_rng *g, const char *dir)
{
    static const uint64_t delays[] = { 0, 30000, 300000 };
    const struct ref_cfg rc = { .ask = dir != NULL ? REF_ALL & ~REF_TEXT : REF_ALL,
        .n_content = N_CONTENT,
        .max_prompt = 100,
        .max_new = 30,
        .seed = 31 };
    struct sim_cfg c = { .max_reqs = 48,
        .max_seqs = 16,
        .max_tokens = 128,
        .max_len = 256,
        .n_block = 40,
        .block_size = 16,
        .chunked = 1,
        .n_penalty = 8,
        .real_clock = 1,
        .exec = FDK_EXEC_THREAD,
        .prefix = 1,
        .n_host = 16,
        .model_dir = dir,
        .check_tokens = dir == NULL };
    struct ref *f = ref_new(&c, &rc);

    for (int depth = 0; depth <= ENG_MAX_DEPTH; depth += 2) {
        c.depth = depth;
        c.graph = depth != 2;
        c.delay_ns = delays[depth / 2];
        run(&c, g, f);
    }
    ref_free(f);
}

static void
threads_null(struct sim_rng *g)
{
    all(g, NULL);
}

static void
threads_cpu(struct sim_rng *g)
{
    char dir[64];

    sim_model(dir);
    all(g, dir);
    sim_model_rm(dir);
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = {
        SIM_TEST(threads_null),
        SIM_TEST(threads_cpu),
    };

    return sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
