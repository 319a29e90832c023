/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Step times measured before the first request, on virtual devices. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "tests/sim/sim.h"

static struct sim_cfg
base(void)
{
    return (struct sim_cfg){ .max_reqs = 16,
        .max_seqs = 16,
        .max_tokens = 600,
        .max_len = 2048,
        .n_block = 700,
        .block_size = 16,
        .chunked = 1,
        .graph = 1,
        .real_clock = 1,
        .depth = 2,
        .check_tokens = 1 };
}

static struct sim_req *
ask(struct sim *s)
{
    struct sim_req *r = sim_req(s);

    r->n_prompt = 40;
    r->prompt = mem_array(40, 4);
    for (uint32_t i = 0; i < 40; i++)
        r->prompt[i] = i;
    r->p.max_new = 10;
    r->p.flags |= FDP_F_IGNORE_EOS;
    sim_submit(s, r, NULL);
    return r;
}

/* Steps are predicted about right from the first request on; the pool and
 * the answers are unchanged. */
static void
m1_known_before_the_first_request(struct sim_rng *g)
{
    const struct cost_step one = { .n_tok = 4, .n_ctx = 400 };
    struct sim_cfg c = base();
    struct sim *s;

    (void)g;
    c.delay_ns = 2 * CLK_MS;
    s = sim_new(&c);
    SIM_CHECK(cost_predict(&s->pip->eng->cost, &one) == 0);
    SIM_CHECK(eng_prime(s->pip->eng, 10 * CLK_S) == 0);
    SIM_CHECK(cost_predict(&s->pip->eng->cost, &one) >= 19 * CLK_MS / 10);
    SIM_CHECK(cost_predict(&s->pip->eng->cost, &one) < 4 * CLK_MS);
    SIM_CHECK(s->run->n_graph == 0 && s->run->n_eager == 0);
    eng_check(s->pip->eng);
    for (int i = 0; i < 8; i++)
        (void)ask(s);
    sim_drain(s);
    SIM_CHECK(s->n_done == 8);
    sim_free(s);
}

/* It keeps its time limit. Steps of a device too slow for it are not predicted. */
static void
m2_within_its_time(struct sim_rng *g)
{
    const struct cost_step one = { .n_tok = 4, .n_ctx = 400 };
    struct sim_cfg c = base();
    uint64_t t0;
    struct sim *s;

    (void)g;
    c.delay_ns = 20 * CLK_MS;
    s = sim_new(&c);
    t0 = clk_now_ns();
    SIM_CHECK(eng_prime(s->pip->eng, 25 * CLK_MS) == 0);
    SIM_CHECK(s->run->n_rec > 0 && s->pip->eng->cost.n <= 1);
    SIM_CHECK(cost_predict(&s->pip->eng->cost, &one) == 0);
    (void)printf("  %.1f ms of 25\n", (double)(clk_now_ns() - t0) / 1e6);
    (void)ask(s);
    sim_drain(s);
    sim_free(s);
}

/* The times of requests' steps soon count for more. */
static void
m3_requests_count_for_more(struct sim_rng *g)
{
    const struct cost_step one = { .n_tok = 8, .n_ctx = 320 };
    struct sim_cfg c = base();
    struct sim *s;

    (void)g;
    s = sim_new(&c);
    s->run->delay_ns = CLK_MS;
    SIM_CHECK(eng_prime(s->pip->eng, 10 * CLK_S) == 0);
    for (int i = 0; i < 2000; i++)
        cost_learn(&s->pip->eng->cost, &one, 5 * CLK_MS);
    SIM_CHECK(cost_predict(&s->pip->eng->cost, &one) > 4 * CLK_MS);
    SIM_CHECK(cost_predict(&s->pip->eng->cost, &one) < 6 * CLK_MS);
    sim_free(s);
}

/* Steps of a real model write blocks, and the answers to requests are unchanged. */
static void
m4_requests_answer_the_same(struct sim_rng *g)
{
    uint64_t hash[2] = { 0 };
    char dir[64];

    (void)g;
    sim_model(dir);
    for (int primed = 0; primed < 2; primed++) {
        struct sim_cfg c = base();
        struct sim_req *r;
        struct sim *s;

        c.model_dir = dir;
        c.check_tokens = 0;
        s = sim_new(&c);
        if (primed)
            SIM_CHECK(eng_prime(s->pip->eng, 10 * CLK_S) == 0);
        r = ask(s);
        sim_wait(s, r);
        SIM_CHECK(r->code == 0);
        for (uint32_t i = 0; i < r->s[0].n_ids; i++)
            hash[primed] = hash[primed] * 31 + r->s[0].ids[i];
        sim_drain(s);
        sim_free(s);
    }
    SIM_CHECK(hash[0] == hash[1]);
    sim_model_rm(dir);
}

/* There is a prefill for each range of rows with its own choice of GEMMs, up to the
 * largest step: a choice made in a request's step would delay all other requests. */
static void
m5_each_range_of_rows_comes_before_requests(struct sim_rng *g)
{
    static const int32_t most[] = { 600, 1100, 2100 }, range[] = { 512, 1024, 2048 };

    (void)g;
    for (size_t i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
        struct sim_cfg c = base();
        struct sim *s;

        c.max_tokens = most[i];
        c.max_len = 4096;
        s = sim_new(&c);
        SIM_CHECK(eng_prime(s->pip->eng, 10 * CLK_S) == 0);
        SIM_CHECK(s->pip->eng->cost.most.n_tok == range[i]);
        sim_free(s);
    }
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = {
        SIM_TEST(m1_known_before_the_first_request),
        SIM_TEST(m2_within_its_time),
        SIM_TEST(m3_requests_count_for_more),
        SIM_TEST(m4_requests_answer_the_same),
        SIM_TEST(m5_each_range_of_rows_comes_before_requests),
    };

    return sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
