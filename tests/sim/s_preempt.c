/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Preemption storms: the pool holds one sequence of full length and a few blocks
 * more, and many long outputs reach its limit together. Every token is the expected
 * one although most are computed several times; the oldest always finishes; no block
 * is lost at the end.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "tests/sim/sim.h"

static void
submit(struct sim *s, struct sim_rng *g, uint32_t n_prompt, uint32_t max_new, uint16_t n,
    int32_t priority)
{
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    r->n_prompt = n_prompt;
    r->prompt = mem_array(n_prompt, 4);
    for (uint32_t i = 0; i < n_prompt; i++)
        r->prompt[i] = sim_range(g, 0, 255);
    r->p.max_new = max_new;
    r->p.n = n;
    r->p.priority = priority;
    r->p.flags |= FDP_F_IGNORE_EOS;
    r->p.set |= FDP_S_LOGPROBS;
    if (n == 1) {
        r->p.set |= FDP_S_PROMPT_LOGPROBS;
        r->p.prompt_logprobs = 2;
    }
    sim_submit(s, r, NULL);
}

static void
storm(struct sim_rng *g, int32_t n_block, int32_t max_tokens, int chunked, int depth)
{
    struct sim_cfg cfg = { .max_reqs = 24,
        .max_seqs = 24,
        .max_tokens = max_tokens,
        .max_len = 256,
        .n_block = n_block,
        .block_size = 16,
        .chunked = chunked,
        .graph = depth > 0,
        .depth = depth,
        .check_tokens = 1,
        .exec = depth > 0 ? FDK_EXEC_DEFER : FDK_EXEC_INLINE };
    struct sim *s = sim_new(&cfg);
    uint64_t n_pre, t0 = s->n_poll;

    for (int i = 0; i < 20; i++) {
        submit(s, g, sim_range(g, 1, 60), sim_range(g, 100, 190),
            sim_u32(g) % 4 == 0 ? SIM_MAX_N : 1, (int32_t)sim_range(g, 0, 2) - i / 16);
        /* the last requests arrive while others run */
        for (int k = 0; k < 10 && i >= 15; k++)
            (void)sim_poll(s);
    }
    sim_drain(s);
    SIM_CHECK(s->n_done == 20 && s->n_error == 0);
    n_pre = s->pip->eng->sch->n_preempted;
    (void)printf("  %d blocks %d tokens: %llu preempted, %llu polls\n", n_block,
        max_tokens, (unsigned long long)n_pre, (unsigned long long)(s->n_poll - t0));
    SIM_CHECK(n_pre > 0);
    sim_free(s);
}

/* The oldest request, or that of the best priority, finishes first although all compete
 * for its blocks, and the reserve at admission prevents a new storm in each step. */
static void
order(struct sim_rng *g, int best)
{
    struct sim_cfg cfg = { .max_reqs = 8,
        .max_seqs = 8,
        .max_tokens = 64,
        .max_len = 256,
        .n_block = 16,
        .block_size = 16,
        .chunked = 1,
        .check_tokens = 1 };
    struct sim *s = sim_new(&cfg);
    struct sim_req *first;

    for (int i = 0; i < 6; i++)
        submit(s, g, 20, 200, 1, i != best);
    first = &s->reqs[best];
    sim_wait(s, first);
    for (int i = 0; i < 6; i++)
        SIM_CHECK(i == best || !s->reqs[i].terminal);
    SIM_CHECK(first->done.n_preempted == 0);
    sim_drain(s);
    SIM_CHECK(s->pip->eng->sch->n_preempted < 60);
    sim_free(s);
}

int
main(int argc, char **argv)
{
    struct sim_rng g = { sim_seed(argc, argv) };
    uint64_t rounds = sim_steps(20000) / 10000 + 1;

    for (uint64_t i = 0; i < rounds; i++) {
        storm(&g, 16, 64, 1, 0);
        storm(&g, 18, 24, 1, 2);
        storm(&g, 33, 256, 0, 0);
        storm(&g, 33, 256, 0, 4);
        order(&g, 0);
        order(&g, 5);
    }
    return 0;
}
