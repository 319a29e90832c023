/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine when something runs out: room in the queue to egress, memory for graphs.
 * Also its counters when results come late, and its beats when they do not come.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/common/mem.h"
#include "tests/sim/sim.h"

#define N_WAIT 2000 /* requests that end without a token */

static struct sim_req *
ask(struct sim *s, uint32_t n_prompt, uint32_t max_new)
{
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    r->n_prompt = n_prompt;
    r->prompt = mem_array(n_prompt, 4);
    for (uint32_t i = 0; i < n_prompt; i++)
        r->prompt[i] = 3 + i % 200;
    r->p.max_new = max_new;
    return r;
}

static uint32_t
room(const struct sim *s)
{
    struct que *q = &s->pip->q_token;
    uint32_t n = 0;

    while (que_has_room(q, n + 1))
        n++;
    return n;
}

/* Egress reads nothing. Steps are in flight, and there is room for their results but
 * for little more. Then requests end that never had a row. Their ends must not use
 * the room for the results. */
static void
ends_leave_room_for_results(struct sim_rng *g)
{
    struct sim_cfg c = { .max_reqs = N_WAIT + 1,
        .max_seqs = 1,
        .max_tokens = 256,
        .max_len = 8192,
        .n_block = 600,
        .block_size = 16,
        .chunked = 1,
        .depth = ENG_MAX_DEPTH,
        .exec = FDK_EXEC_DEFER,
        .pace = SIM_PACE_NONE };
    struct sim *s = sim_new(&c);
    struct engine *e = s->pip->eng;
    struct sim_req *r = ask(s, 8000, 2), *wait[N_WAIT];
    uint64_t full;
    uint32_t left;

    (void)g;
    /* a step is 256 logprobs of the prompt with 20 alternatives each */
    r->p.set |= FDP_S_PROMPT_LOGPROBS;
    r->p.prompt_logprobs = 20;
    sim_submit(s, r, NULL);
    (void)ing_poll(s->pip->ing, s->now_ns);
    /* number of steps collected; one more may be launched after depth others */
    full = (room(s) - e->room * (ENG_MAX_DEPTH + 1)) / (256 * 6) + ENG_MAX_DEPTH + 1;
    while (e->epoch < full) {
        (void)eng_poll(e, s->now_ns);
        if (e->epoch < full)
            (void)sim_device(s, 1);
    }
    SIM_CHECK(e->n_flight == ENG_MAX_DEPTH + 1);
    for (int i = 0; i < N_WAIT; i++) {
        wait[i] = ask(s, 4, 1);
        sim_submit(s, wait[i], NULL);
        (void)ing_poll(s->pip->ing, s->now_ns);
    }
    for (int i = 0; i < N_WAIT; i++) {
        sim_cancel(s, wait[i], FDP_E_CANCELLED);
        (void)ing_poll(s->pip->ing, s->now_ns);
    }
    (void)eng_poll(e, s->now_ns);
    left = room(s);
    (void)printf("  %d steps on their way, room %u, %d requests to end\n", e->n_flight,
        left, e->n_live - 1);
    SIM_CHECK(left < (uint32_t)N_WAIT + (uint32_t)e->n_flight * 256 * 6);
    SIM_CHECK(left >= (uint32_t)e->n_flight * 256 * 6);
    while (e->n_flight > 0) {
        (void)sim_device(s, 1000);
        (void)eng_poll(e, s->now_ns);
    }
    for (int i = 0; s->n_open > 0; i++) {
        SIM_CHECK(i < 10000);
        (void)sim_device(s, 1000);
        (void)sim_poll(s);
    }
    SIM_CHECK(s->n_done == 1 && s->n_error == N_WAIT);
    sim_free(s);
}

/* Rows that had ended before the host noticed give no tokens. */
static void
late_rows_are_no_tokens(struct sim_rng *g)
{
    for (int32_t depth = 0; depth <= ENG_MAX_DEPTH; depth++) {
        struct sim_cfg c = { .max_reqs = 8,
            .max_seqs = 8,
            .max_tokens = 64,
            .max_len = 256,
            .n_block = 200,
            .block_size = 16,
            .chunked = 1,
            .depth = depth,
            .exec = FDK_EXEC_DEFER,
            .pace = SIM_PACE_SLOW,
            .seed = 5,
            .check_tokens = 1 };
        struct sim *s = sim_new(&c);
        const struct cnt_worker *w = &s->cnt->w;

        for (int i = 0; i < 40; i++) {
            struct sim_req *r = ask(s, 20, 30);
            uint32_t at = sim_range(g, 0, 9), id = r->prompt[19];
            int stop;

            for (uint32_t k = 0; k <= at; k++)
                id = sim_expect(s, r, k, id, &stop);
            r->stop[0] = id;
            r->n_stop = 1;
            sim_submit(s, r, NULL);
            if (s->n_open == 8)
                sim_drain(s);
        }
        sim_drain(s);
        (void)printf("  depth %d: %llu tokens, %llu late\n", depth,
            (unsigned long long)cnt_get(&w->generation_tokens),
            (unsigned long long)cnt_get(&w->rows_discarded));
        SIM_CHECK(depth == 0 || cnt_get(&w->rows_discarded) > 0);
        SIM_CHECK(cnt_get(&w->generation_tokens) == s->n_tokens);
        sim_free(s);
    }
}

/* ---- no memory for graphs ------------------------------------------------------------- */

static const struct fdk_ops *real;
static struct fdk_ops poor;

static int
poor_graph_end(fdk_stream_t st, struct fdk_graph **ret)
{
    struct fdk_graph *graph = NULL;
    int rc = real->graph_end(st, &graph);

    (void)ret;
    if (rc == 0)
        real->graph_free(graph);
    return rc != 0 ? rc : -ENOMEM;
}

/* Graphs that cannot be recorded while requests run are left out. */
static void
no_memory_for_graphs(struct sim_rng *g)
{
    static const struct cap other = { .n = 2, .size = { 8, 16 } };

    (void)g;
    for (int set = 0; set <= 1; set++) {
        struct sim_cfg c = { .max_reqs = 8,
            .max_seqs = 8,
            .max_tokens = 64,
            .max_len = 256,
            .n_block = 200,
            .block_size = 16,
            .chunked = 1,
            .depth = 2,
            .exec = FDK_EXEC_DEFER,
            .graph = 1,
            .lazy = !set,
            .check_tokens = 1 };
        struct sim *s = sim_new(&c);

        real = s->run->k;
        poor = *real;
        poor.graph_end = poor_graph_end;
        s->run->k = &poor;
        for (int i = 0; i < 8; i++)
            sim_submit(s, ask(s, 5, 20), NULL);
        if (set)
            SIM_CHECK(eng_set_graph(s->pip->eng, 1, &other) == 0);
        sim_drain(s);
        SIM_CHECK(s->n_done == 8 && s->run->n_graph == 0 && s->run->n_eager > 0);
        SIM_CHECK(!s->run->use_graph);
        s->run->k = real;
        sim_free(s);
    }
}

/* The device does nothing. Commands come meanwhile and are handled, but are no beats: the
 * gate must see that the worker hangs. */
static void
commands_are_no_beats(struct sim_rng *g)
{
    (void)g;
    for (int32_t depth = 1; depth <= ENG_MAX_DEPTH; depth++) {
        struct sim_cfg c = { .max_reqs = 32,
            .max_seqs = 2,
            .max_tokens = 64,
            .max_len = 256,
            .n_block = 100,
            .block_size = 16,
            .chunked = 1,
            .depth = depth,
            .exec = FDK_EXEC_DEFER,
            .pace = SIM_PACE_NONE };
        struct sim *s = sim_new(&c);
        struct engine *e = s->pip->eng;
        const struct lnk_beat *b = &s->seg->w.beat;
        uint64_t n = b->beats;

        for (int i = 0; i < 10; i++)
            (void)sim_poll(s);
        SIM_CHECK(b->beats >= n + 10); /* idle */
        sim_submit(s, ask(s, 20, 60), NULL);
        while (e->n_flight == 0)
            (void)sim_poll(s);
        n = b->beats;
        for (int i = 0; i < 10; i++) {
            struct sim_req *r = ask(s, 20, 1);

            sim_submit(s, r, NULL);
            (void)sim_poll(s);
            sim_cancel(s, r, FDP_E_CANCELLED);
            (void)sim_poll(s);
        }
        SIM_CHECK(s->n_error > 5 && e->n_flight > 0);
        SIM_CHECK(b->beats == n);
        (void)sim_device(s, 1000);
        (void)sim_poll(s);
        SIM_CHECK(b->beats == n + 1);
        while (s->n_open > 0) {
            (void)sim_device(s, 1000);
            (void)sim_poll(s);
        }
        SIM_CHECK(s->n_done > 0);
        sim_free(s);
    }
}

int
main(int argc, char **argv)
{
    static const struct sim_test all[] = { SIM_TEST(ends_leave_room_for_results),
        SIM_TEST(late_rows_are_no_tokens), SIM_TEST(no_memory_for_graphs),
        SIM_TEST(commands_are_no_beats) };

    return sim_run(argc, argv, all, sizeof(all) / sizeof(all[0]));
}
