/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The gain of the prefix cache: requests of 2,048 tokens of which 90 % are a common
 * prefix, with 16 output tokens, with and without the cache, on the demo model (a tiny
 * one if that is missing).
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "tests/sim/sim.h"

#define N_IN     2048
#define N_SHARED 1843
#define N_OUT    16
#define N_REQ    24
#define LIMIT    4.0

static void
ask(struct sim *s, uint64_t k)
{
    struct sim_rng all = { 1 }, own = { 1000 + k };
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    r->n_prompt = N_IN;
    r->prompt = mem_array(N_IN, 4);
    for (uint32_t i = 0; i < N_IN; i++)
        r->prompt[i] = sim_range(i < N_SHARED ? &all : &own, 3, 250);
    r->p.max_new = N_OUT;
    r->p.flags |= FDP_F_IGNORE_EOS;
    sim_submit(s, r, NULL);
}

/* Requests per second, eight at a time, after the first one has ended. */
static double
rate(const char *dir, int prefix, uint64_t *ret_cached)
{
    struct sim_cfg cfg = { .max_reqs = 8,
        .max_seqs = 8,
        .max_tokens = 512,
        .max_len = N_IN + N_OUT,
        .n_block = 8 * 34,
        .block_size = 64,
        .chunked = 1,
        .graph = 1,
        .lazy = 1,
        .real_clock = 1,
        .depth = 2,
        .prefix = prefix,
        .model_dir = dir,
        .threads = (int32_t)sysconf(_SC_NPROCESSORS_ONLN) };
    struct sim *s = sim_new(&cfg);
    uint64_t k = 0, t0;
    double v;

    ask(s, k++);
    sim_drain(s);
    t0 = clk_now_ns();
    while (k <= N_REQ) {
        if (s->n_open < 8)
            ask(s, k++);
        if (!sim_poll(s))
            (void)eng_wait(s->pip->eng);
    }
    sim_drain(s);
    v = N_REQ * 1e9 / (double)(clk_now_ns() - t0);
    *ret_cached = cnt_get(&s->cnt->w.cached_tokens);
    SIM_CHECK(s->n_done == N_REQ + 1 && s->n_error == 0);
    sim_free(s);
    return v;
}

int
main(void)
{
    const char *src = getenv("FDD_SRC");
    uint64_t cached;
    char dir[512];
    double off, on;
    int tiny;

    (void)snprintf(dir, sizeof(dir), "%s/conf/models/demo", src != NULL ? src : ".");
    tiny = access(dir, R_OK) != 0;
    if (tiny)
        sim_model(dir);
    off = rate(dir, 0, &cached);
    SIM_CHECK(cached == 0);
    on = rate(dir, 1, &cached);
    (void)printf("%s model, %d tokens in, %d of them shared, %d out:\n",
        tiny ? "tiny" : "demo", N_IN, N_SHARED, N_OUT);
    (void)printf("%-44s %8.2f req/s\n", "  cache off", off);
    (void)printf("%-44s %8.2f req/s  %.0f %% of the tokens found\n", "  cache on", on,
        100.0 * (double)cached / ((double)N_IN * (N_REQ + 1)));
    (void)printf("%-44s %8.2f x   limit %4.0f x  ratio %5.2f\n", "  on against off",
        on / off, LIMIT, on / off / LIMIT);
    if (tiny)
        sim_model_rm(dir);
    return 0;
}
