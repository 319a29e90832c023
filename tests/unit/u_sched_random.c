/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Random use: invariants after every step, nothing lost, no request stuck. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/sched_fixture.h"

static uint64_t
n_steps(uint64_t share)
{
    const char *s = getenv("FDD_SIM_STEPS");
    uint64_t n = s != NULL ? strtoull(s, NULL, 10) : 100000;

    if (s == NULL && getenv("FDD_LONG") != NULL)
        n = 1000000;
#ifdef FDD_SANITIZED
    n /= 10;
#endif
    return n / share;
}

static struct req *
live(struct fx *f)
{
    uint32_t i = fx_rand(f, 0, (uint32_t)f->cfg.max_req - 1);

    return f->reqs[i].r != NULL && f->reqs[i].r->n_live > 0 ? f->reqs[i].r : NULL;
}

/* Makes the next turn of a conversation: an earlier prompt with
 * its answer, and a question. */
static int
follow(struct fx *f)
{
    const struct fx_req *q = &f->reqs[fx_rand(f, 0, (uint32_t)f->cfg.max_req - 1)];
    uint32_t *ids;
    int32_t n;

    if (q->r == NULL || q->seqs[0].end + 2 >= f->cfg.max_len)
        return 0;
    n = q->seqs[0].end;
    ids = malloc((size_t)(n + 1) * sizeof(*ids));
    for (int32_t i = 0; i < n; i++)
        ids[i] = q->seqs[0].ids[i];
    ids[n] = 7;
    (void)fx_add(f,
        &(struct fx_ask){ .n_prompt = n + 1,
            .ids = ids,
            .max_new = 1 + (int32_t)fx_rand(f, 0, 1) * (f->cfg.max_len - n - 2),
            .stops = 1,
            .user = fx_rand(f, 0, 1) });
    free(ids);
    return 1;
}

static void
arrive(struct fx *f)
{
    int32_t room = f->cfg.max_len;
    struct fx_ask a = { .text = fx_rand(f, 0, 2),
        .user = fx_rand(f, 0, 1),
        .n_prompt = (int32_t)fx_rand(f, 1, (uint32_t)room / 2),
        .priority = (int32_t)fx_rand(f, 0, 2),
        .stops = fx_rand(f, 0, 1) };

    if (f->rp.n_free == 0 || (fx_rand(f, 0, 3) == 0 && follow(f)))
        return;
    if (fx_rand(f, 0, 2) > 0)
        a.n_prompt = (int32_t)fx_rand(f, 1, (uint32_t)room / 6 + 1);
    a.max_new = (int32_t)fx_rand(f, 1, (uint32_t)(room - a.n_prompt));
    if (fx_rand(f, 0, 3) > 0 && a.max_new > 40)
        a.max_new = 40;
    a.n_same = fx_rand(f, 0, 1) ? (int32_t)fx_rand(f, 0, (uint32_t)a.n_prompt) : 0;
    a.n = fx_rand(f, 0, 5) == 0 ? (int32_t)fx_rand(f, 2, 6) : 1;
    a.scores = fx_rand(f, 0, 9) == 0;
    a.penalized = f->cfg.sch.n_penalty > 0 && fx_rand(f, 0, 5) == 0;
    if (fx_rand(f, 0, 19) == 0)
        a.deadline_total_ns = f->now + fx_rand(f, 1, 60) * f->step_ns;
    if (fx_rand(f, 0, 19) == 0)
        a.deadline_queue_ns = f->now + fx_rand(f, 1, 60) * f->step_ns;
    if (a.n_prompt > 1 && a.n == 1 && fx_rand(f, 0, 9) == 0)
        a.n_prior = 1;
    (void)fx_add(f, &a);
}

static int32_t
draw(uint64_t *rng, int32_t n)
{
    *rng = *rng * 6364136223846793005ull + 1442695040888963407ull;
    return (int32_t)((*rng >> 33) % (uint64_t)n);
}

static void
draw_cfg(uint64_t *g, struct fx_cfg *c, struct cost *cost)
{
    int32_t B = 1 << (2 + draw(g, 3));
    struct sch_cfg *s = &c->sch;

    c->block_size = B;
    c->n_block = 8 + draw(g, 40);
    c->n_host = draw(g, 2) ? draw(g, 30) : 0;
    c->max_copy = draw(g, 12);
    c->max_drop = draw(g, 3) == 0 ? 1 + draw(g, 9) : 0;
    c->max_req = 4 + draw(g, 40);
    c->cached = draw(g, 4) > 0;
    c->append_first = draw(g, 2);
    c->max_len = B * (2 + draw(g, c->n_block - 1));
    s->max_seqs = 1 + draw(g, 12);
    s->max_tokens = 1 + draw(g, 100);
    s->max_scores = 1 + draw(g, 20);
    s->chunked = draw(g, 4) > 0;
    s->max_partial = draw(g, 4);
    s->max_long = draw(g, 3);
    s->long_threshold = draw(g, 2) ? draw(g, 80) : 0;
    s->reserve_blocks = draw(g, 3) ? 0 : draw(g, 16);
    s->decode_blocks = draw(g, 4);
    s->n_penalty = draw(g, 3);
    s->fcfs = draw(g, 2);
    s->max_overtake_ns = draw(g, 3) == 0 ? 0 : (uint64_t)draw(g, 200) * 1000000;
    if (draw(g, 2)) {
        s->cost = cost;
        s->itl_target_ns =
            draw(g, 3) == 0 ? SCH_ITL_AUTO : 200000 + (uint64_t)draw(g, 2000000);
    }
}

/* Several KV groups, some with windows, in a pool that holds at least one request. */
static void
draw_groups(uint64_t *g, struct fx_cfg *c)
{
    int32_t places = (c->max_len + c->block_size - 1) / c->block_size, need = 0;

    c->n_group = 1 + draw(g, 4);
    for (int32_t i = 0; i < c->n_group; i++) {
        int32_t most = places;

        c->window[i] = draw(g, 3) > 0 ? 2 + draw(g, 90) : 0;
        if (c->window[i] > 0)
            most = kv_most(c->window[i], c->sch.max_tokens, c->block_size);
        need += most < places ? most : places;
    }
    c->n_block = need + draw(g, 2 * need);
}

static void
disturb(struct fx *f)
{
    struct req *r;

    if (fx_rand(f, 0, 40) == 0 && (r = live(f)) != NULL)
        fx_cancel(f, r);
    if (fx_rand(f, 0, 40) == 0 && (r = live(f)) != NULL) {
        f->reqs[r->idx].touched = 1;
        sch_end(f->sch, &r->seqs[r->n_seq - 1]);
    }
}

struct sum {
    uint64_t slid, dups, preempted, urged, cached, copied, late, tokens, ended;
};

/* Number of unused places in the blocks of running sequences. */
static uint64_t
n_empty(const struct fx *f)
{
    uint64_t n = 0;

    for (const struct seq *s = f->sch->running.head; s != NULL; s = s->next)
        n += (uint64_t)f->kv->n_empty[s->slot];
    return n;
}

/* Runs one random configuration from start to end. */
static void
life(uint64_t seed, int32_t depth, int grouped, uint64_t steps, struct sum *sum)
{
    struct fx_cfg c = { .depth = depth };
    struct cost cost;
    uint64_t rng = seed;
    uint32_t idle;
    struct fx *f;

    cost_init(&cost);
    draw_cfg(&rng, &c, &cost);
    if (grouped)
        draw_groups(&rng, &c);
    idle = (uint32_t)draw(&rng, 3) * 4 + 1;
    f = fx_new(&c);
    f->rng = seed;
    while (f->n_step < steps) {
        if (fx_rand(f, 0, idle) == 0 || !sch_busy(f->sch))
            arrive(f);
        disturb(f);
        sum->slid += n_empty(f);
        if (fx_step(f) > 0 && c.sch.cost != NULL)
            cost_learn(&cost, &f->st.cost,
                50000 + (uint64_t)f->st.cost.n_tok * 20000 +
                    (uint64_t)f->st.cost.n_pair * 10);
        if (cost.n > 0 && fx_rand(f, 0, 50) == 0)
            cost_learn_copy(&cost, 1, fx_rand(f, 1, 1000000));
    }
    fx_drain(f, 1000000);
    sum->preempted += f->sch->n_preempted;
    sum->urged += f->n_urged;
    sum->cached += f->n_cached;
    sum->copied += f->n_copy;
    sum->dups += f->n_dup;
    sum->late += f->n_late;
    sum->tokens += f->n_token;
    sum->ended += f->n_ended;
    fx_free(f);
}

static void
lives(int32_t depth, int grouped, uint64_t seed)
{
    uint64_t total = n_steps(5), one = 200;
    struct sum sum = { 0 };

    for (uint64_t i = 0; i * one < total; i++)
        life(seed + i, depth, grouped, one, &sum);
    (void)printf("depth %d: %llu tokens, %llu requests, %llu preempted, %llu for "
                 "urgent ones, %llu tokens attached, %llu blocks copied, %llu late\n",
        depth, (unsigned long long)sum.tokens, (unsigned long long)sum.ended,
        (unsigned long long)sum.preempted, (unsigned long long)sum.urged,
        (unsigned long long)sum.cached, (unsigned long long)sum.copied,
        (unsigned long long)sum.late);
    assert_true(
        sum.urged > 0 && sum.preempted > sum.urged && sum.cached > 0 && sum.copied > 0);
    assert_true((sum.late > 0) == (depth > 0));
    assert_true((sum.slid > 0) == grouped && sum.dups > 0);
}

static void
e9_invariants_depth_0(void **state)
{
    (void)state;
    lives(0, 0, 1);
}

static void
e9_invariants_depth_1(void **state)
{
    (void)state;
    lives(1, 0, 1001);
}

static void
e9_invariants_depth_2(void **state)
{
    (void)state;
    lives(2, 0, 2001);
}

static void
e9_invariants_depth_3(void **state)
{
    (void)state;
    lives(3, 0, 3001);
}

static void
e9_invariants_depth_4(void **state)
{
    (void)state;
    lives(4, 0, 4001);
}

/* With windows: blocks that leave them are dropped, and each token finds the blocks
 * that it reads in each group. */
static void
windows_depth_0(void **state)
{
    (void)state;
    lives(0, 1, 5001);
}

static void
windows_depth_2(void **state)
{
    (void)state;
    lives(2, 1, 6001);
}

static void
windows_depth_4(void **state)
{
    (void)state;
    lives(4, 1, 7001);
}

/* A pool with one block less than its requests need together: all finish with the
 * expected output, and the oldest advances. */
static uint64_t
short_by_one(int32_t depth, int32_t n, int32_t B, int cached)
{
    const int32_t blocks = 6;
    struct fx_cfg c = { .depth = depth,
        .block_size = B,
        .n_block = n * blocks - 1,
        .cached = cached,
        .append_first = depth & 1,
        .sch = { .max_seqs = n, .max_tokens = 1024, .max_scores = 4, .chunked = 1 } };
    struct fx *f = fx_new(&c);
    int32_t most = 0, stuck = 0, seen = -1;
    uint64_t oldest = 0, n_preempted;

    for (int32_t i = 0; i < n; i++) {
        /* later ones are ahead, so that the oldest lacks a block */
        (void)fx_plain(f, 2 * B + 1 + i % 3, 4 * B - 1 - i % 3);
    }
    while (sch_busy(f->sch)) {
        const struct seq *s;

        (void)fx_step(f);
        s = f->sch->running.head;
        if (s == NULL)
            continue;
        /* the oldest has more computed tokens, or another is the oldest */
        if (s->req->id != oldest || s->cached_len > seen)
            stuck = 0;
        else
            stuck++;
        if (s->device_len >= s->max_len)
            stuck = 0;
        oldest = s->req->id;
        seen = s->cached_len;
        if (stuck > most)
            most = stuck;
    }
    /* a victim's blocks come back when its last step is collected */
    assert_true(most <= depth);
    /* at most one is preempted for the one missing block */
    n_preempted = f->sch->n_preempted;
    assert_true(n_preempted <= 1);
    assert_int_equal(f->n_ended, n);
    fx_free(f);
    return n_preempted;
}

static void
e10_one_block_short(void **state)
{
    (void)state;
    for (int32_t depth = 0; depth <= 4; depth++) {
        uint64_t n_preempted = 0;

        for (int32_t n = 2; n <= 6; n++)
            for (int cached = 0; cached < 2; cached++)
                n_preempted += short_by_one(depth, n, n % 2 ? 16 : 4, cached);
        assert_true(n_preempted > 0);
    }
}

/* The smallest pool that can run anything at all: one request fills it. */
static void
e10_pool_of_one_request(void **state)
{
    (void)state;
    for (int32_t depth = 0; depth <= 4; depth++) {
        struct fx_cfg c = { .depth = depth,
            .block_size = 8,
            .n_block = 4,
            .cached = depth & 1,
            .n_host = depth & 2,
            .max_copy = 4,
            .sch = { .max_seqs = 4,
                .max_tokens = 16,
                .max_scores = 4,
                .chunked = 1,
                .max_partial = 1,
                .reserve_blocks = 3,
                .decode_blocks = 8 } };
        struct fx *f = fx_new(&c);

        for (int i = 0; i < 6; i++)
            (void)fx_plain(f, 5 + i, 27 - i);
        fx_drain(f, 2000);
        assert_int_equal(f->n_ended, 6);
        fx_free(f);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e9_invariants_depth_0),
        cmocka_unit_test(e9_invariants_depth_1),
        cmocka_unit_test(e9_invariants_depth_2),
        cmocka_unit_test(e9_invariants_depth_3),
        cmocka_unit_test(e9_invariants_depth_4),
        cmocka_unit_test(windows_depth_0),
        cmocka_unit_test(windows_depth_2),
        cmocka_unit_test(windows_depth_4),
        cmocka_unit_test(e10_one_block_short),
        cmocka_unit_test(e10_pool_of_one_request),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
