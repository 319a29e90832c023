/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Random traffic: long and short prompts, several samples, cancels at any moment, clients
 * that die (all of their requests cancelled at once), deadlines, priorities, prompt
 * logprobs, a gate that reads late. Structures are checked after every step; every
 * request ends once; every token is the expected one.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "tests/sim/sim.h"

static void
random_prompt(struct sim_rng *g, struct sim_req *r, uint32_t n)
{
    r->n_prompt = n;
    r->prompt = mem_array(n, 4);
    for (uint32_t i = 0; i < n; i++)
        r->prompt[i] = sim_range(g, 0, RUN_NULL_VOCAB - 1);
}

static void
submit(struct sim *s, struct sim_rng *g)
{
    struct sim_req *r = sim_req(s);
    uint32_t longest = (uint32_t)s->cfg.max_len - 1;

    if (r == NULL)
        return;
    random_prompt(g, r,
        sim_u32(g) % 8 == 0 ? sim_range(g, 1, longest)
                            : sim_range(g, 1, longest < 40 ? longest : 40));
    r->p.max_new = sim_u32(g) % 8 == 0 ? 0 : sim_range(g, 1, 60);
    r->p.n = sim_u32(g) % 6 == 0 ? (uint16_t)sim_range(g, 2, SIM_MAX_N) : 1;
    r->p.priority = sim_u32(g) % 4 == 0 ? (int32_t)sim_range(g, 0, 4) - 2 : 0;
    r->p.stream_interval = sim_u32(g) % 4 == 0 ? (uint16_t)sim_range(g, 1, 40) : 0;
    if (sim_u32(g) % 2 == 0)
        r->p.flags |= FDP_F_IGNORE_EOS;
    if (sim_u32(g) % 5 == 0) {
        r->p.set |= FDP_S_LOGPROBS;
        r->p.logprobs = (uint8_t)sim_range(g, 0, 20);
    }
    if (sim_u32(g) % 5 == 0) {
        r->p.set |= FDP_S_PROMPT_LOGPROBS;
        r->p.prompt_logprobs = (uint8_t)sim_range(g, 0, 20);
    }
    if (sim_u32(g) % 8 == 0) {
        r->n_stop = sim_range(g, 1, 8);
        for (uint32_t i = 0; i < r->n_stop; i++)
            r->stop[i] = sim_range(g, 0, RUN_NULL_VOCAB - 1);
        r->p.min_new = sim_range(g, 0, r->p.max_new < 20 ? r->p.max_new : 20);
    }
    if (sim_u32(g) % 16 == 0)
        r->p.ttl_total_ms = sim_range(g, 1, 200);
    if (sim_u32(g) % 16 == 0)
        r->p.ttl_queue_ms = sim_range(g, 1, 100);
    sim_submit(s, r, NULL);
}

static uint64_t
run(const struct sim_cfg *cfg, struct sim_rng *g, uint64_t steps, uint32_t rate)
{
    struct sim *s = sim_new(cfg);
    uint64_t n_pre;

    for (uint64_t i = 0; i < steps; i++) {
        /* bursts and lulls */
        uint32_t burst = i / 200 % 3 == 2 ? 0 : rate;

        for (uint32_t k = 0; k < burst; k++)
            if (sim_u32(g) % 100 < 20)
                submit(s, g);
        if (sim_u32(g) % 50 == 0)
            sim_cancel_some(s, g, 8);
        if (sim_u32(g) % 500 == 0)
            sim_cancel_some(s, g, 1);
        (void)sim_poll(s);
        sim_check_errors(s);
    }
    sim_drain(s);
    n_pre = s->pip->eng->sch->n_preempted;
    (void)printf("  %llu done %llu errors %llu tokens %llu preempted\n",
        (unsigned long long)s->n_done, (unsigned long long)s->n_error,
        (unsigned long long)s->n_tokens, (unsigned long long)n_pre);
    SIM_CHECK(s->n_done > steps / 200);
    sim_free(s);
    return n_pre;
}

int
main(int argc, char **argv)
{
    struct sim_rng g = { sim_seed(argc, argv) };
    uint64_t steps = sim_steps(20000) / 5 + 1, n_pre = 0;
    static const struct sim_cfg cfgs[] = {
        /* plenty of room */
        { .max_reqs = 64,
            .max_seqs = 32,
            .max_tokens = 128,
            .max_len = 512,
            .n_block = 400,
            .block_size = 16,
            .chunked = 1,
            .check_tokens = 1 },
        /* one request fits, the rest compete for blocks */
        { .max_reqs = 64,
            .max_seqs = 16,
            .max_tokens = 64,
            .max_len = 256,
            .n_block = 17,
            .block_size = 16,
            .chunked = 1,
            .check_tokens = 1,
            .depth = 2,
            .exec = FDK_EXEC_DEFER },
        /* prompts in one piece, graphs, a gate that reads late */
        { .max_reqs = 48,
            .max_seqs = 8,
            .max_tokens = 256,
            .max_len = 256,
            .n_block = 40,
            .block_size = 16,
            .chunked = 0,
            .graph = 1,
            .check_tokens = 1,
            .drain_every = 50 },
        /* one token in a step */
        { .max_reqs = 8,
            .max_seqs = 1,
            .max_tokens = 1,
            .max_len = 64,
            .n_block = 8,
            .block_size = 16,
            .chunked = 1,
            .check_tokens = 1 },
        /* odd sizes, many samples */
        { .max_reqs = 32,
            .max_seqs = 24,
            .max_tokens = 31,
            .max_len = 200,
            .n_block = 23,
            .block_size = 16,
            .chunked = 1,
            .graph = 1,
            .check_tokens = 1,
            .depth = 4,
            .exec = FDK_EXEC_DEFER,
            .pace = SIM_PACE_SLOW },
    };

    for (size_t i = 0; i < sizeof(cfgs) / sizeof(cfgs[0]); i++)
        n_pre += run(&cfgs[i], &g, steps, cfgs[i].max_seqs > 1 ? 4 : 1);
    SIM_CHECK(n_pre > 0);
    return 0;
}
