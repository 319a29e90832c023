/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The prefix cache seen from a request: hits are reported, a hit gives the same tokens as
 * a cold run, no user finds another user's blocks, and blocks evicted to the host come
 * back unchanged. A tiny model on the cpu backend: its tokens depend on every byte of KV.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "tests/sim/ref.h"

#define B         16
#define N_CONTENT 96
#define SCORED    48 /* contents from here on have prompt logprobs */

static char dir[64];

static struct sim_cfg
base(int depth)
{
    return (struct sim_cfg){ .max_reqs = 16,
        .max_seqs = 8,
        .max_tokens = 64,
        .max_len = 128,
        .n_block = 60,
        .block_size = B,
        .chunked = 1,
        .depth = depth,
        .exec = FDK_EXEC_DEFER,
        .n_penalty = 8,
        .prefix = 1,
        .model_dir = dir,
        .graph = depth % 2 };
}

/* Fills in prompts with lengths around block borders; i / 12 selects one of four prompts;
 * from SCORED on the same with prompt logprobs. */
static void
fill(struct sim_req *r, uint32_t i)
{
    static const uint32_t n[12] = { 1, 15, 16, 17, 31, 32, 33, 47, 48, 64, 65, 80 };
    struct sim_rng g = { 900 + i % SCORED / 12 };

    r->n_prompt = n[i % 12];
    r->prompt = mem_array(r->n_prompt, 4);
    for (uint32_t k = 0; k < r->n_prompt; k++)
        r->prompt[k] = sim_range(&g, 3, 250);
    r->p.max_new = 20;
    r->p.seed = i;
    r->p.flags |= FDP_F_IGNORE_EOS;
    r->p.set |= FDP_S_LOGPROBS;
    r->p.logprobs = 3;
    if (i >= SCORED)
        r->p.set |= FDP_S_PROMPT_LOGPROBS;
    if (i % 3 == 1) {
        r->p.temperature = 0.8f;
        r->p.top_p = 0.95f;
    }
    if (i % 5 == 2) {
        r->p.repetition_penalty = 1.2f;
        r->p.presence_penalty = 0.4f;
    }
}

static struct ref *
reference(void)
{
    const struct ref_cfg rc = { .n_content = N_CONTENT, .fill = fill };
    struct sim_cfg c = base(0);

    return ref_new(&c, &rc);
}

static struct sim_req *
ask_as(struct ref *f, struct sim *s, uint32_t content, uint64_t user, uint8_t salt)
{
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    ref_fill(f, r, content);
    r->user = user;
    r->p.salt[15] = salt;
    sim_submit(s, r, NULL);
    return r;
}

/* Number of tokens in full blocks before the last token. */
static uint32_t
most_cached(const struct sim_req *r)
{
    return (r->n_prompt - 1) / B * B;
}

static void
hits_are_reported_and_cost_no_bit(struct sim_rng *g)
{
    struct ref *f = reference();

    for (int depth = 0; depth <= ENG_MAX_DEPTH; depth++) {
        struct sim_cfg c = base(depth);
        struct sim *s;

        c.seed = sim_u32(g);
        c.n_block = 200;
        s = sim_new(&c);
        ref_watch(f, s);
        for (int again = 0; again < 3; again++) {
            /* the longest last: it finds the blocks of the shorter ones */
            for (uint32_t i = 0; i < 24; i++) {
                struct sim_req *r = ask_as(f, s, i, 1, 0);

                sim_wait(s, r);
                SIM_CHECK(r->code == 0);
                SIM_CHECK(r->done.cached_tokens <= most_cached(r));
                if (again > 0)
                    SIM_CHECK(r->done.cached_tokens == most_cached(r));
                if (again == 0 && i % 12 <= 3)
                    SIM_CHECK(r->done.cached_tokens == (i % 12 == 3 ? B : 0));
            }
        }
        SIM_CHECK(cnt_get(&s->cnt->w.cached_tokens) > 0);
        sim_drain(s);
        sim_free(s);
    }
    ref_free(f);
}

/* Equal requests that arrive together: the first computes, the others attach the blocks
 * that it is about to compute. */
static void
duplicates_share_one_prefill(struct sim_rng *g)
{
    struct ref *f = reference();

    for (int depth = 0; depth <= ENG_MAX_DEPTH; depth++) {
        struct sim_cfg c = base(depth);
        struct sim_req *r[8];
        struct sim *s;
        uint64_t want = 0;

        c.seed = sim_u32(g);
        c.max_tokens = 128;
        s = sim_new(&c);
        ref_watch(f, s);
        for (int i = 0; i < 8; i++)
            r[i] = ask_as(f, s, 11, 1, 0);
        sim_drain(s);
        for (int i = 0; i < 8; i++) {
            SIM_CHECK(r[i]->code == 0 &&
                r[i]->done.cached_tokens == (i > 0 ? most_cached(r[i]) : 0));
            want += r[i]->n_prompt - r[i]->done.cached_tokens;
        }
        SIM_CHECK(cnt_get(&s->cnt->w.prompt_tokens) == want);
        sim_free(s);
    }
    ref_free(f);
}

static void
users_and_salts_are_apart(struct sim_rng *g)
{
    struct ref *f = reference();
    struct sim_cfg c = base(2);
    struct sim *s;

    c.seed = sim_u32(g);
    c.n_block = 200;
    s = sim_new(&c);
    ref_watch(f, s);
    for (int again = 0; again < 2; again++)
        for (uint64_t user = 1; user < 4; user++)
            for (uint8_t salt = 0; salt < 3; salt++) {
                struct sim_req *r = ask_as(f, s, 10, user, salt);

                sim_wait(s, r);
                SIM_CHECK(r->done.cached_tokens == (again ? most_cached(r) : 0));
            }
    sim_drain(s);
    sim_free(s);
    ref_free(f);
}

/* Prompt logprobs must be computed, so their prompts are computed too.
 * Regression: those blocks did not enter the cache, and a prompt that was scored
 * first was computed twice. */
static void
prompt_logprobs_are_computed(struct sim_rng *g)
{
    struct ref *f = reference();

    for (int depth = 0; depth <= ENG_MAX_DEPTH; depth++) {
        struct sim_cfg c = base(depth);
        struct sim *s;

        c.seed = sim_u32(g);
        s = sim_new(&c);
        ref_watch(f, s);
        for (int again = 0; again < 3; again++) {
            struct sim_req *r = ask_as(f, s, SCORED + 11, 0, 0), *next;

            sim_wait(s, r);
            SIM_CHECK(r->code == 0 && r->n_scores == r->n_prompt - 1);
            SIM_CHECK(r->done.cached_tokens == 0);
            next = ask_as(f, s, 11, 0, 0);
            sim_wait(s, next);
            SIM_CHECK(next->code == 0 && next->done.cached_tokens == most_cached(next));
        }
        sim_drain(s);
        sim_free(s);
    }
    ref_free(f);
}

/* All requests scored, in a pool that holds few: those preempted in the middle of a
 * prompt continue where their logprobs stopped. */
static void
scored_prompts_give_way(struct sim_rng *g)
{
    struct ref *f = reference();
    uint64_t n_pre = 0, n_hit = 0;

    for (int turn = 0; turn < 20; turn++) {
        struct sim_cfg c = base(turn % 5);
        struct sim *s;

        c.n_block = 3 * 7 - 1 - turn % 6;
        c.max_seqs = 3;
        c.max_tokens = turn % 2 ? 256 : 24;
        c.n_host = turn / 10 * 6;
        c.seed = sim_u32(g);
        s = sim_new(&c);
        ref_watch(f, s);
        for (uint32_t i = 0; i < 12; i++)
            (void)ask_as(f, s, (i % 4 != 3 ? SCORED : 0) + 11 + i % 3 * 12, 0, 0);
        sim_drain(s);
        SIM_CHECK(s->n_done == 12 && s->n_error == 0);
        n_pre += s->pip->eng->sch->n_preempted;
        n_hit += s->pip->eng->kv->n_hit;
        sim_free(s);
    }
    SIM_CHECK(n_pre > 0 && n_hit > 0);
    ref_free(f);
}

/* Four prompts by turns in a pool that holds about two of them. */
static void
swapped_out_and_back(struct sim_rng *g)
{
    struct ref *f = reference();

    for (int turn = 0; turn < 10; turn++) {
        struct sim_cfg c = base(turn % 5);
        struct sim *s;

        c.n_block = 14;
        c.n_host = turn < 5 ? 40 : 9;
        c.max_seqs = 2;
        c.pace = (enum sim_pace)(turn % 3);
        c.seed = sim_u32(g);
        s = sim_new(&c);
        ref_watch(f, s);
        for (uint32_t i = 0; i < 40; i++) {
            while (s->n_open > 2)
                (void)sim_poll(s);
            (void)ask_as(f, s, i % 4 * 12 + 11 - sim_range(g, 0, 2), 1, 0);
        }
        sim_drain(s);
        SIM_CHECK(s->n_error == 0 && s->pip->eng->kv->n_out > 0);
        SIM_CHECK(s->pip->eng->kv->n_in > 0);
        sim_free(s);
    }
    ref_free(f);
}

/* An entry of the penalty pool has one owner after another, and the counts of a
 * preempted owner are made again. */
static void
penalties_are_its_own(struct sim_rng *g)
{
    const struct ref_cfg rc = { .ask = REF_PENALTY | REF_RANDOM,
        .n_content = 40,
        .max_prompt = 60,
        .max_new = 40,
        .seed = 12 };
    struct sim_cfg c = base(0);
    struct ref *f = ref_new(&c, &rc);
    uint64_t n_pre = 0;

    for (int turn = 0; turn < 10; turn++) {
        struct sim *s;

        c = base(turn % 5);
        c.n_penalty = turn % 2 + 1;
        c.n_block = 9;
        c.max_len = 112;
        c.prefix = turn / 5;
        c.seed = sim_u32(g);
        s = sim_new(&c);
        ref_watch(f, s);
        for (int i = 0; i < 30; i++) {
            while (s->n_open > 5)
                (void)sim_poll(s);
            (void)ref_ask(f, s, sim_range(g, 0, 39));
        }
        sim_drain(s);
        SIM_CHECK(s->n_error == 0);
        n_pre += s->pip->eng->sch->n_preempted;
        sim_free(s);
    }
    SIM_CHECK(n_pre > 0);
    ref_free(f);
}

/* One or a few blocks are missing for all to run together: the
 * youngest waits or is preempted. */
static void
e10_pool_one_block_short(struct sim_rng *g)
{
    struct ref *f = reference();
    uint64_t n_pre = 0;

    for (int turn = 0; turn < 20; turn++) {
        struct sim_cfg c = base(turn % 5);
        struct sim *s;

        c.prefix = turn / 5 % 2;
        c.n_host = turn / 10 * 6;
        c.max_seqs = 3;
        c.max_tokens = 256;
        c.n_block = 3 * 7 - 1 - turn % 6;
        c.seed = sim_u32(g);
        s = sim_new(&c);
        ref_watch(f, s);
        /* 80 + 20 tokens: seven blocks each, no two alike */
        for (uint32_t i = 0; i < 3; i++)
            (void)ask_as(f, s, 11 + i * 12, 1, 0);
        sim_drain(s);
        SIM_CHECK(s->n_done == 3 && s->n_error == 0 && s->n_poll < 2000);
        n_pre += s->pip->eng->sch->n_preempted;
        sim_free(s);
    }
    SIM_CHECK(n_pre > 0);
    ref_free(f);
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = {
        SIM_TEST(hits_are_reported_and_cost_no_bit),
        SIM_TEST(duplicates_share_one_prefill),
        SIM_TEST(users_and_salts_are_apart),
        SIM_TEST(prompt_logprobs_are_computed),
        SIM_TEST(scored_prompts_give_way),
        SIM_TEST(swapped_out_and_back),
        SIM_TEST(penalties_are_its_own),
        SIM_TEST(e10_pool_one_block_short),
    };
    int rc;

    sim_model(dir);
    rc = sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
    sim_model_rm(dir);
    return rc;
}
