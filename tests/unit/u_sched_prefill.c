/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Prompts over steps: chunks, limits on unfinished and long ones, and the time
 * between tokens. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "tests/unit/sched_fixture.h"

/* ---- chunks ---------------------------------------------------------------------- */

/* k prompts with a token budget: the fixture checks that every step keeps it, that each
 * row begins where the last one ended, and that chunks add up to the prompt. */
static void
plan(struct fx *f, int32_t k, uint64_t *ret_tokens)
{
    uint64_t left = 0;

    for (int32_t i = 0; i < k; i++) {
        int32_t n = (int32_t)fx_rand(f, 1, fx_rand(f, 0, 3) ? 300 : 2000);

        (void)fx_plain(f, n, 1);
        left += (uint64_t)n;
    }
    *ret_tokens = left;
    while (sch_busy(f->sch)) {
        /* it ends: every step computes something */
        assert_true(fx_step(f) > 0);
        assert_true(f->st.n_tok > 0 && (uint64_t)f->st.n_tok <= left);
        left -= (uint64_t)f->st.n_tok;
    }
    assert_int_equal(left, 0);
    assert_int_equal(f->n_ended, k);
}

static void
a9_chunk_planner(void **state)
{
    static const int32_t budgets[] = { 1, 2, 7, 15, 16, 17, 63, 64, 100, 127, 128, 512,
        1000, 2047, 8191, 8192 };
    uint64_t rng = 7;

    (void)state;
    for (int partial = 0; partial <= 8; partial++) {
        for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
            int32_t B = 16 << (rng >> 40) % 4, k = 1 + (int32_t)((rng >> 33) % 64);
            struct fx_cfg c = { .block_size = B,
                .n_block = 70 * (2048 / B),
                .max_req = 64,
                .max_len = 2048,
                .no_check = 1,
                .sch = { .max_seqs = 64,
                    .max_tokens = budgets[i],
                    .max_scores = 1,
                    .chunked = 1,
                    .max_partial = partial,
                    .max_long = (int32_t)((rng >> 50) % 4),
                    .long_threshold = (rng >> 60) % 2 ? 100 : 0 } };
            struct fx *f;
            uint64_t tokens;

            if (budgets[i] < 10)
                k = 1 + k % 3;
            f = fx_new(&c);
            f->rng = rng;
            plan(f, k, &tokens);
            assert_true(f->n_step >= tokens / (uint64_t)budgets[i]);
            fx_free(f);
            rng = rng * 6364136223846793005ull + 1442695040888963407ull;
        }
    }
}

/* A single prompt uses the whole budget. */
static void
a9_nothing_is_wasted(void **state)
{
    (void)state;
    for (int32_t n = 1; n < 200; n += 13) {
        struct fx_cfg c = { .block_size = 16,
            .n_block = 40,
            .sch = { .max_seqs = 4,
                .max_tokens = 48,
                .max_scores = 1,
                .chunked = 1,
                .max_partial = 1,
                .max_long = 1,
                .long_threshold = 20 } };
        struct fx *f = fx_new(&c);

        (void)fx_plain(f, n, 1);
        fx_drain(f, 100);
        assert_int_equal(f->n_step, (n + 47) / 48);
        fx_free(f);
    }
}

static void
whole_prompts_when_not_chunked(void **state)
{
    struct fx_cfg c = { .block_size = 16,
        .n_block = 64,
        .sch = { .max_seqs = 8, .max_tokens = 32, .max_scores = 4 } };
    struct fx *f = fx_new(&c);
    struct req *a = fx_plain(f, 20, 5), *b = fx_plain(f, 20, 5), *d;

    (void)state;
    assert_int_equal(fx_step(f), 1);
    assert_int_equal(a->seqs[0].n_tok, 21);
    assert_int_equal(b->seqs[0].state, REQ_ST_WAITING);
    assert_int_equal(fx_step(f), 2);
    assert_int_equal(fx_row(f, &b->seqs[0])->q_len, 20);
    /* too long for any step: computed in chunks */
    d = fx_plain(f, 70, 2);
    assert_int_equal(fx_step(f), 3);
    assert_int_equal(fx_row(f, &d->seqs[0])->q_len, 30);
    fx_drain(f, 40);
    fx_free(f);
}

/* A prompt that never fits with the others is computed in chunks in the end. */
static void
whole_prompts_do_not_starve(void **state)
{
    struct fx_cfg c = { .block_size = 16,
        .n_block = 256,
        .max_len = 256,
        .sch = { .max_seqs = 8, .max_tokens = 32, .max_scores = 4 } };
    struct fx *f = fx_new(&c);
    struct req *a;

    (void)state;
    /* this one runs for long */
    (void)fx_plain(f, 4, 200);
    (void)fx_step(f);
    a = fx_plain(f, 32, 1);
    f->keep = 1;
    for (int i = 0; a->t_start_ns == 0; i++) {
        assert_true(i < 40);
        if (i % 2 == 0)
            (void)fx_plain(f, 4, 8);
        (void)fx_step(f);
    }
    fx_drain(f, 250);
    fx_free(f);
}

/* ---- long and short -------------------------------------------------------------- */

static const struct fx_cfg mixed = { .block_size = 16,
    .n_block = 1024,
    .max_req = 64,
    .max_len = 4096,
    .sch = { .max_seqs = 32,
        .max_tokens = 256,
        .max_scores = 4,
        .chunked = 1,
        .max_partial = 4,
        .max_long = 1,
        .long_threshold = 400 } };

static void
e11_short_behind_three_long(void **state)
{
    (void)state;
    for (int32_t partial = 0; partial <= 4; partial++) {
        struct fx_cfg c = mixed;
        struct fx *f;
        struct req *lng[3], *sh;

        c.sch.max_partial = partial;
        f = fx_new(&c);
        for (int i = 0; i < 3; i++)
            lng[i] = fx_plain(f, 2000, 4);
        sh = fx_plain(f, 40, 4);
        (void)fx_step(f);
        /* in this step, complete, together with a long one that gets the rest */
        assert_non_null(fx_row(f, &sh->seqs[0]));
        assert_true(fx_row(f, &sh->seqs[0])->sample);
        assert_int_equal(fx_row(f, &lng[0]->seqs[0])->q_len, 256 - 40);
        assert_null(fx_row(f, &lng[1]->seqs[0]));
        assert_null(fx_row(f, &lng[2]->seqs[0]));
        fx_drain(f, 100);
        fx_free(f);
    }
}

/* A long prompt that takes little of each step because of its logprobs is still the only
 * long one (the fixture counts). */
static void
e11_limit_holds_for_slow_ones(void **state)
{
    struct fx *f = fx_new(&mixed);
    struct req *a, *b;

    (void)state;
    f->keep = 1;
    a = fx_add(f, &(struct fx_ask){ .n_prompt = 900, .max_new = 1, .scores = 1 });
    b = fx_plain(f, 900, 1);
    while (a->seqs[0].cached_len < 890) {
        (void)fx_step(f);
        assert_int_equal(fx_row(f, &a->seqs[0])->q_len, 4);
        assert_int_equal(b->seqs[0].state, REQ_ST_WAITING);
    }
    fx_cancel(f, a);
    fx_drain(f, 100);
    fx_free(f);
}

/* A long prompt counts as long until its last token, not only while more than the
 * threshold is left: the next long one starts when it is done. */
static void
e11_long_to_its_end(void **state)
{
    struct fx *f = fx_new(&mixed);
    struct req *a = fx_plain(f, 900, 1), *b = fx_plain(f, 900, 1), *sh;

    (void)state;
    f->keep = 1;
    while (a->seqs[0].cached_len < 768) {
        (void)fx_step(f);
        assert_int_equal(fx_row(f, &a->seqs[0])->q_len, 256);
        assert_int_equal(b->seqs[0].state, REQ_ST_WAITING);
    }
    /* the last 132 tokens and the short prompts, then the other long one takes the rest */
    sh = fx_plain(f, 40, 1);
    (void)fx_step(f);
    assert_true(fx_row(f, &a->seqs[0])->sample);
    assert_true(fx_row(f, &sh->seqs[0])->sample);
    assert_int_equal(fx_row(f, &b->seqs[0])->q_len, 256 - 132 - 40);
    fx_drain(f, 100);
    fx_free(f);
}

/* Prompts above the threshold are computed together if they fit into one step. */
static void
a9_long_ones_that_fit_go_at_once(void **state)
{
    struct fx_cfg c = mixed;
    struct fx *f;

    (void)state;
    c.sch.max_tokens = 2048;
    c.sch.max_partial = 1;
    f = fx_new(&c);
    for (int i = 0; i < 4; i++)
        (void)fx_plain(f, 500, 1);
    assert_int_equal(fx_step(f), 4);
    assert_int_equal(f->n_ended, 4);
    fx_free(f);
}

/* Short prompts arrive without end. Every long one still gets its turn, in order
 * of arrival, within the time that its own tokens and those of earlier long ones
 * need at half of each step. */
static void
e11_long_ones_wait_bounded(void **state)
{
    struct fx *f = fx_new(&mixed);
    struct req *lng[3];
    uint64_t id[3];
    int done = 0;

    (void)state;
    for (int i = 0; i < 3; i++) {
        lng[i] = fx_plain(f, 2000, 1);
        id[i] = lng[i]->id;
    }
    f->keep = 1;
    for (int i = 0; done < 3; i++) {
        /* 200 tokens of short prompts a step, and their decodes */
        assert_true(i < 3 * 2000 / (256 / 4));
        for (int k = 0; k < 5 && f->rp.n_free > 8; k++)
            (void)fx_plain(f, 40, 3);
        (void)fx_step(f);
        while (done < 3 && lng[done]->n_live == 0) {
            assert_int_equal(lng[done]->id, id[done]);
            done++;
        }
        for (int k = 0; k < f->cfg.max_req; k++) {
            struct req *r = f->reqs[k].r;

            if (r == NULL || r->n_live > 0 || r->n_prompt == 2000)
                continue;
            free(f->reqs[k].seqs[0].ids);
            free(f->reqs[k].seqs[0].digest);
            free(f->reqs[k].seqs);
            f->reqs[k].r = NULL;
            req_put(&f->rp, r);
        }
    }
    fx_drain(f, 100);
    fx_free(f);
}

/* A request that needs many blocks is overtaken by small ones only
 * a limited number of times. */
static void
e11_wide_one_waits_bounded(void **state)
{
    struct fx_cfg c = mixed;
    struct fx *f;
    struct req *wide;

    (void)state;
    c.n_block = 64;
    c.max_len = 64 * 16;
    f = fx_new(&c);
    for (int i = 0; i < 6; i++) {
        (void)fx_plain(f, 40, 30);
        (void)fx_step(f);
    }
    wide = fx_plain(f, 58 * 16, 2);
    for (int i = 0; wide->t_start_ns == 0; i++) {
        /* overtaken 16 times, then running ones must end; and while the
         * pool is full none is admitted */
        assert_true(i < 16 + 2 * 30);
        if (f->rp.n_free > 0)
            (void)fx_plain(f, 40, 30);
        (void)fx_step(f);
    }
    fx_drain(f, 400);
    fx_free(f);
}

/* A look at a long queue is bounded, but reaches all requests in time. */
static void
deep_queue_is_searched_in_turns(void **state)
{
    struct fx_cfg c = mixed;
    struct fx *f;
    struct req *sh;

    (void)state;
    c.max_req = 600;
    f = fx_new(&c);
    for (int i = 0; i < 500; i++)
        (void)fx_plain(f, 1000, 1);
    sh = fx_plain(f, 10, 1);
    f->keep = f->cfg.no_check = 1;
    for (int i = 0; sh->t_start_ns == 0; i++) {
        assert_true(i <= 500 / 32 + 1);
        (void)fx_step(f);
    }
    for (int i = 0; i < 600; i++)
        if (f->reqs[i].r != NULL && f->reqs[i].r->n_live > 0)
            fx_cancel(f, f->reqs[i].r);
    fx_drain(f, 10);
    fx_free(f);
}

/* ---- budget ---------------------------------------------------------------------- */

static void
e12_step_tokens(void **state)
{
    (void)state;
    /* decodes count towards it, even more of them than a step can hold */
    for (int32_t budget = 1; budget <= 40; budget += 3) {
        struct fx_cfg c = { .block_size = 8,
            .n_block = 300,
            .max_req = 20,
            .depth = 2,
            .sch = { .max_seqs = 16,
                .max_tokens = budget,
                .max_scores = 1,
                .chunked = 1,
                .max_partial = 2 } };
        struct fx *f = fx_new(&c);
        uint64_t full = 0;

        for (int i = 0; i < 20; i++)
            (void)fx_plain(f, 1 + i * 3, 10);
        while (sch_busy(f->sch)) {
            (void)fx_step(f);
            assert_true(f->st.n_tok <= budget);
            full += f->st.n_tok == budget;
        }
        assert_true(full > 0);
        assert_int_equal(f->n_ended, 20);
        fx_free(f);
    }
}

/* The oldest request advances in every step, even as a prompt among decodes. */
static void
e12_oldest_prompt_gets_a_token(void **state)
{
    struct fx_cfg c = { .block_size = 8,
        .n_block = 300,
        .sch = { .max_seqs = 16,
            .max_tokens = 8,
            .max_scores = 1,
            .chunked = 1,
            .max_partial = 0,
            .long_threshold = 20 } };
    struct fx *f = fx_new(&c);
    struct req *a = fx_plain(f, 100, 4);

    (void)state;
    for (int i = 0; i < 12; i++)
        (void)fx_plain(f, 1, 200);
    while (req_is_prefill(&a->seqs[0]) || a->t_start_ns == 0) {
        (void)fx_step(f);
        assert_non_null(fx_row(f, &a->seqs[0]));
    }
    fx_cancel(f, a);
    fx_drain(f, 1000);
    fx_free(f);
}

/* ---- time ------------------------------------------------------------------------ */

static void
teach(struct cost *c)
{
    cost_init(c);
    for (int i = 0; i < 400; i++) {
        struct cost_step s = { .n_tok = 1 + i * 37 % 500,
            .n_ctx = i * 97 % 5000,
            .n_pair = (int64_t)(i * 53 % 300) * 700 };

        cost_learn(c, &s,
            200000 + (uint64_t)s.n_tok * 4000 + (uint64_t)s.n_ctx * 10 +
                (uint64_t)s.n_pair * 5);
    }
}

/* With running decodes a prompt gets the rest of the time; without them,
 * all tokens of the budget. */
static void
time_budget_cuts_prefill(void **state)
{
    struct cost cost;
    struct fx_cfg c = { .block_size = 16,
        .n_block = 400,
        .sch = { .max_seqs = 16,
            .max_tokens = 512,
            .max_scores = 1,
            .chunked = 1,
            .max_partial = 1,
            .itl_target_ns = 1000000,
            .cost = &cost } };
    struct fx *f;
    struct req *a, *b;
    int n = 0;

    (void)state;
    teach(&cost);
    f = fx_new(&c);
    a = fx_plain(f, 600, 200);
    assert_int_equal(fx_step(f), 1);
    assert_int_equal(f->st.n_tok, 512);
    (void)fx_step(f);
    b = fx_plain(f, 2000, 1);
    f->keep = 1;
    while (b->n_live > 0) {
        (void)fx_step(f);
        assert_non_null(fx_row(f, &a->seqs[0]));
        assert_true(cost_predict(&cost, &f->st.cost) <= 1000000);
        /* and the chunk is not shorter than necessary */
        if (fx_row(f, &b->seqs[0]) != NULL && !fx_row(f, &b->seqs[0])->sample) {
            struct cost_step more = f->st.cost;

            more.n_tok += 2;
            more.n_pair += 2 * b->seqs[0].cached_len + 3;
            assert_true(cost_predict(&cost, &more) > 1000000);
            assert_true(f->st.n_tok < 512);
        }
        assert_true(n++ < 60);
    }
    fx_drain(f, 300);
    fx_free(f);
}

/* The decodes leave no time: a prompt gets one block of tokens in every fourth step. */
static void
time_budget_starves_nobody(void **state)
{
    struct cost cost;
    struct fx_cfg c = { .block_size = 16,
        .n_block = 400,
        .sch = { .max_seqs = 16,
            .max_tokens = 512,
            .max_scores = 1,
            .chunked = 1,
            .max_partial = 1,
            .itl_target_ns = 1000,
            .cost = &cost } };

    (void)state;
    teach(&cost);
    for (int chunked = 0; chunked < 2; chunked++) {
        struct fx *f;
        struct req *b;
        int dry = 0, got = 0;

        c.sch.chunked = chunked;
        f = fx_new(&c);
        (void)fx_plain(f, 10, 200);
        (void)fx_step(f);
        b = fx_plain(f, 100, 1);
        f->keep = 1;
        while (b->n_live > 0) {
            const struct sch_row *row;

            (void)fx_step(f);
            row = fx_row(f, &b->seqs[0]);
            if (row == NULL) {
                assert_true(++dry <= 3);
                continue;
            }
            /* nor does it take more */
            assert_int_equal(dry, 3);
            dry = 0;
            got++;
            assert_true(chunked ? row->q_len <= 16 : row->q_len == 100);
            assert_true(!chunked || row->sample || row->q_len == 16);
        }
        assert_int_equal(got, chunked ? 7 : 1);
        fx_drain(f, 300);
        fx_free(f);
    }
}

/* A partly computed long prompt uses at most half of the time before a short one is
 * considered: the short one is computed at once, or, if decodes take all the time, in the
 * next step with time for prompts. */
static void
e11_short_beside_long_in_time(void **state)
{
    static const uint64_t targets[] = { 1000000, 1000 };
    struct cost cost;
    struct fx_cfg c = { .block_size = 16,
        .n_block = 400,
        .sch = { .max_seqs = 16,
            .max_tokens = 512,
            .max_scores = 1,
            .chunked = 1,
            .max_partial = 1,
            .max_long = 1,
            .long_threshold = 160,
            .cost = &cost } };

    (void)state;
    teach(&cost);
    for (size_t i = 0; i < 2; i++) {
        struct fx *f;
        struct req *lng, *sh;
        int n = 0;

        c.sch.itl_target_ns = targets[i];
        f = fx_new(&c);
        (void)fx_plain(f, 10, 400);
        (void)fx_step(f);
        f->keep = 1;
        lng = fx_plain(f, 3000, 1);
        (void)fx_plain(f, 3000, 1);
        while (lng->seqs[0].cached_len < 100)
            (void)fx_step(f);
        sh = fx_plain(f, 5, 1);
        while (sh->n_live > 0) {
            (void)fx_step(f);
            n++;
        }
        assert_in_range(n, 1, i == 0 ? 1 : 4);
        assert_int_equal(lng->seqs[0].state, REQ_ST_RUNNING);
        fx_cancel(f, lng);
        fx_drain(f, 4000);
        fx_free(f);
    }
}

/* Teaches the cost model a device with these us per step and per token. */
static void
teach_line(struct cost *c, double step_us, double tok_us)
{
    cost_init(c);
    for (int i = 0; i < 400; i++) {
        struct cost_step s = { .n_tok = 1 + i * 37 % 900 };

        cost_learn(c, &s, (uint64_t)((step_us + tok_us * s.n_tok) * 1000));
    }
}

/* Returns whether a prompt of the step continues in the next. */
static int
is_cut(const struct fx *f)
{
    for (int32_t i = 0; i < f->st.n_row; i++)
        if (!f->st.rows[i].sample)
            return 1;
    return 0;
}

/* 30 prompts wait while one decodes, on a device whose steps take base_us and 20 us for
 * each token. Each step completes a prompt. With much to compute, prompts take 4 times as
 * long as the step's decodes, between 18 and 39 ms; with little, 18 ms or as long as the
 * device needs for 80 % of its speed. Returns how many steps it took. */
static int
burst(double base_us)
{
    struct cost cost;
    struct fx_cfg c = { .block_size = 16,
        .n_block = 4000,
        .max_len = 16000,
        .sch = { .max_seqs = 64,
            .max_tokens = 8192,
            .max_scores = 1,
            .chunked = 1,
            .max_partial = 1,
            .itl_target_ns = SCH_ITL_AUTO,
            .cost = &cost } };
    struct fx *f;
    int n = 0, n_cut = 0, n_tiled = 0;

    teach_line(&cost, base_us, 20);
    f = fx_new(&c);
    if (base_us < 4500) /* 80 % of the full speed in less than the target */
        assert_in_range(sch_itl_target(f->sch), SCH_ITL_NS, SCH_ITL_NS);
    f->keep = f->cfg.no_check = 1;
    (void)fx_plain(f, 12000, 60);
    assert_int_equal(fx_step(f), 1);
    assert_int_equal(f->st.n_tok, 8192);
    /* the rest is the end of a prompt, which is not cut but ends the step */
    for (int i = 0; i < 30; i++)
        (void)fx_plain(f, 1000, 60);
    assert_int_equal(fx_step(f), 1);
    assert_int_equal(f->st.n_tok, 12000 - 8192);
    while (f->sch->waiting.n > 0) {
        int32_t wait = f->sch->waiting.n;
        struct cost_step decodes = { 0 };
        uint64_t room, most, ns;

        assert_true(n++ < 60);
        (void)fx_step(f);
        assert_true(f->st.n_sample > 0);
        decodes.n_tok = f->st.n_decode;
        decodes.n_ctx = f->st.cost.n_ctx;
        room = cost_predict(&cost, &decodes);
        ns = cost_predict(&cost, &f->st.cost) - room;
        most = 4 * room < 39000000 ? 4 * room : 39000000;
        most = most > 18000000 ? most : 18000000;
        assert_true(ns <= most);
        assert_true(base_us > 7500 || ns + room <= SCH_ITL_NS);
        /* tiles may leave a quarter of it unused */
        assert_true(wait < 17 || ns > most * 7 / 10);
        assert_true(wait > 1 || ns <= (uint64_t)(base_us < 4500 ? 18e6 : 4e3 * base_us));
        n_cut += is_cut(f);
        n_tiled += is_cut(f) && f->st.n_tok % 128 == 0;
    }
    /* where there is room for more than 80 % of the speed, chunks fill whole tiles */
    assert_true(base_us > 4500 || (n_cut > 8 && n_tiled > n_cut * 3 / 4));
    fx_drain(f, 300);
    fx_free(f);
    return n;
}

/* A first token does not wait for more prompts than the device needs to be fast: the
 * longer the decodes take, the more of them. */
static void
first_tokens_are_not_held_back(void **state)
{
    int few, some, many;

    (void)state;
    few = burst(3000);
    some = burst(7000);
    many = burst(9000);
    assert_true(few > some && some > many && many > 10);
}

/* Runs a prompt of n tokens, some of them in the prefix cache, while a row decodes.
 * Returns its longest step, and the longest except its last two. */
static void
room_of(int32_t n, int32_t n_cached, uint64_t *ret_most, uint64_t *ret_late)
{
    struct cost cost;
    struct fx_cfg c = { .block_size = 16,
        .n_block = 2000,
        .max_len = 16000,
        .cached = 1,
        .sch = { .max_seqs = 16,
            .max_tokens = 8192,
            .max_scores = 1,
            .chunked = 1,
            .max_partial = 1,
            .itl_target_ns = SCH_ITL_AUTO,
            .cost = &cost } };
    struct fx *f;
    struct req *r;
    uint64_t last = 0;

    /* 20 us for a token, 4 ms for a step */
    teach_line(&cost, 4000, 20);
    f = fx_new(&c);
    f->cfg.no_check = 1;
    if (n_cached > 0) {
        (void)fx_add(f,
            &(struct fx_ask){ .n_prompt = n_cached, .max_new = 1, .text = 7, .user = 1 });
        fx_drain(f, 10);
    }
    f->keep = 1;
    (void)fx_plain(f, 10, 300);
    (void)fx_step(f);
    r = fx_add(f, &(struct fx_ask){ .n_prompt = n, .max_new = 1, .text = 7, .user = 1 });
    *ret_most = *ret_late = 0;
    while (r->n_live > 0) {
        uint64_t ns;

        (void)fx_step(f);
        ns = cost_predict(&cost, &f->st.cost);
        if (r->n_live > 0)
            *ret_late = last;
        last = fx_row(f, &r->seqs[0]) != NULL ? ns : last;
        *ret_most = last > *ret_most ? last : *ret_most;
    }
    assert_int_equal(r->n_cached, n_cached);
    fx_drain(f, 400);
    fx_free(f);
}

/* A prompt that does not fit into two steps of the longest target has that target in all
 * of its steps, not only while much is left. Another prompt has the shortest target, and
 * so has the uncached rest of a long prompt. */
static void
long_prompt_keeps_its_room(void **state)
{
    const uint64_t least = SCH_ROOM_LEAST_NS * 6 / 5 + 4500000;
    uint64_t most, late;

    (void)state;
    room_of(5000, 0, &most, &late);
    assert_in_range(late, SCH_ROOM_MOST_NS * 9 / 10, SCH_ITL_NS);
    assert_in_range(most, late, SCH_ITL_NS);
    room_of(2500, 0, &most, &late);
    assert_in_range(most, SCH_ROOM_LEAST_NS * 3 / 4, least);
    room_of(7500, 5008, &most, &late);
    assert_in_range(most, SCH_ROOM_LEAST_NS * 3 / 4, least);
}

/* Chunks cut by the time limit fill tiles: of 512 tokens if that shortens them little,
 * else of 256 or 128; slightly longer is preferred to much shorter. */
static void
cut_steps_fill_tiles(void **state)
{
    static const struct {
        double tok_us;
        int32_t n;
    } t[] = { /* time for 530, 600, 700, 880 and 330 tokens */
        { 34, 512 }, { 30, 512 }, { 25.7, 640 }, { 20.4, 768 }, { 54.5, 256 }
    };

    (void)state;
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        struct cost cost;
        struct fx_cfg c = { .block_size = 16,
            .n_block = 400,
            .sch = { .max_seqs = 16,
                .max_tokens = 8192,
                .max_scores = 1,
                .chunked = 1,
                .max_partial = 1,
                .itl_target_ns = SCH_ITL_AUTO,
                .cost = &cost } };
        struct fx *f;

        teach_line(&cost, 1000, t[i].tok_us);
        f = fx_new(&c);
        (void)fx_plain(f, 10, 200);
        (void)fx_step(f);
        (void)fx_plain(f, (int32_t)(50000 / t[i].tok_us), 1);
        (void)fx_step(f);
        assert_true(cost_predict(&cost, &f->st.cost) <= 1000000 + SCH_ITL_NS);
        assert_int_equal(f->st.n_tok, t[i].n);
        fx_drain(f, 300);
        fx_free(f);
    }
}

/* Runs a prompt of 1,500 tokens, one row that decodes, and short prompts, on a device
 * that takes 100 ms for a step and 10 ms for a token, and 10 ms more for each 500 tokens
 * before it; 80 % of its speed are 40 tokens without context. Returns how many steps a
 * short prompt waited at most, and sets the longest step. */
static int
deep(int32_t block_size, uint64_t *ret_most)
{
    struct cost cost;
    struct fx_cfg c = { .block_size = block_size,
        .n_block = 6400 / block_size,
        .max_len = 2000,
        .max_req = 400,
        .sch = { .max_seqs = 16,
            .max_tokens = 512,
            .max_scores = 1,
            .chunked = 1,
            .max_partial = 2,
            .max_long = 1,
            .long_threshold = 200,
            .max_overtake_ns = 20000000,
            .itl_target_ns = SCH_ITL_AUTO,
            .cost = &cost } };
    struct req *r, *brief = NULL;
    int wait = 0, most_wait = 0, n = 0;
    struct fx *f;

    cost_init(&cost);
    for (int i = 0; i < 400; i++) {
        struct cost_step s = { .n_tok = 1 + i * 37 % 90,
            .n_pair = (int64_t)(i * 53 % 90) * 900 };

        cost_learn(&cost, &s,
            100000000 + (uint64_t)s.n_tok * 10000000 + (uint64_t)s.n_pair * 20000);
    }
    f = fx_new(&c);
    f->keep = f->cfg.no_check = 1;
    (void)fx_plain(f, 10, 900);
    assert_int_equal(fx_step(f), 1);
    r = fx_plain(f, 1500, 1);
    *ret_most = 0;
    while (r->n_live > 0) {
        uint64_t ns;

        assert_true(n++ < 800);
        if (brief == NULL && n > 25) { /* from now on the long prompt has waited */
            brief = fx_plain(f, 12, 1);
            wait = 0;
        }
        (void)fx_step(f);
        ns = cost_predict(&cost, &f->st.cost);
        *ret_most = ns > *ret_most ? ns : *ret_most;
        wait++;
        if (brief != NULL && brief->n_live > 0)
            continue;
        most_wait = brief != NULL && wait > most_wait ? wait : most_wait;
        brief = NULL;
    }
    fx_drain(f, 2000);
    fx_free(f);
    return most_wait;
}

/* A step does not grow with the context before its chunk: at the end of a long prompt a
 * token takes four times as long, and there are fewer of them. Half of the time is left
 * to other prompts, and the long one always goes on. After three steps with less than a
 * block of prompt tokens (32 here; 900 ms) there is one block, whatever it takes. */
static void
deep_prompt_leaves_room(void **state)
{
    uint64_t most;
    int wait;

    (void)state;
    wait = deep(4, &most);
    assert_true(most <= 530000000);
    assert_true(wait > 0 && wait <= 3);
    wait = deep(32, &most);
    assert_true(most <= 1020000000);
    assert_true(wait > 0 && wait <= 4);
}

/* On a device too slow for 44 ms a chunk is still large enough for 80 % of its full
 * speed; a configured target is kept in any case. */
static void
chunks_are_efficient(void **state)
{
    struct cost cost;
    struct fx_cfg c = { .block_size = 16,
        .n_block = 400,
        .sch = { .max_seqs = 16,
            .max_tokens = 512,
            .max_scores = 1,
            .chunked = 1,
            .max_partial = 1,
            .cost = &cost } };

    (void)state;
    /* 100 ms for a step and 10 ms for a token: 40 tokens, 510 ms with a decoding row */
    teach_line(&cost, 100000, 10000);
    for (int automatic = 0; automatic < 2; automatic++) {
        struct fx *f;
        struct req *b;

        c.sch.itl_target_ns = automatic ? SCH_ITL_AUTO : SCH_ITL_NS;
        f = fx_new(&c);
        assert_in_range(sch_itl_target(f->sch), automatic ? 500000000 : SCH_ITL_NS,
            automatic ? 520000000 : SCH_ITL_NS);
        f->keep = 1;
        (void)fx_plain(f, 10, 200);
        (void)fx_step(f);
        b = fx_plain(f, 210, 1);
        while (b->n_live > 0) {
            const struct sch_row *row;

            (void)fx_step(f);
            row = fx_row(f, &b->seqs[0]);
            if (!automatic)
                assert_true(row == NULL || row->q_len <= 16);
            else if (!row->sample)
                assert_in_range(row->q_len, 39, 41);
        }
        fx_drain(f, 300);
        fx_free(f);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a9_chunk_planner),
        cmocka_unit_test(a9_nothing_is_wasted),
        cmocka_unit_test(e11_long_to_its_end),
        cmocka_unit_test(a9_long_ones_that_fit_go_at_once),
        cmocka_unit_test(whole_prompts_when_not_chunked),
        cmocka_unit_test(whole_prompts_do_not_starve),
        cmocka_unit_test(e11_short_behind_three_long),
        cmocka_unit_test(e11_limit_holds_for_slow_ones),
        cmocka_unit_test(e11_long_ones_wait_bounded),
        cmocka_unit_test(e11_wide_one_waits_bounded),
        cmocka_unit_test(deep_queue_is_searched_in_turns),
        cmocka_unit_test(e12_step_tokens),
        cmocka_unit_test(e12_oldest_prompt_gets_a_token),
        cmocka_unit_test(time_budget_cuts_prefill),
        cmocka_unit_test(time_budget_starves_nobody),
        cmocka_unit_test(first_tokens_are_not_held_back),
        cmocka_unit_test(long_prompt_keeps_its_room),
        cmocka_unit_test(cut_steps_fill_tiles),
        cmocka_unit_test(deep_prompt_leaves_room),
        cmocka_unit_test(chunks_are_efficient),
        cmocka_unit_test(e11_short_beside_long_in_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
