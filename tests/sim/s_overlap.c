/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps launched ahead of the one whose results are awaited, at every depth: the same
 * answers as the simple loop, however host and device interleave; aborts, ends and
 * preemptions at every moment; no late token is delivered.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "tests/sim/ref.h"

#define MAX_DEPTH ENG_MAX_DEPTH

/* Number of repetitions of a test: few in check, many in a long run. */
static int
rounds(int few, int many)
{
    const char *v = getenv("FDD_SIM_STEPS");

#ifdef FDD_SANITIZED
    few = few / 4 + 1;
#endif
    return v != NULL && strtoull(v, NULL, 10) >= 1000000 ? many : few;
}

static struct sim_cfg
base(int depth)
{
    return (struct sim_cfg){ .max_reqs = 16,
        .max_seqs = 8,
        .max_tokens = 48,
        .max_len = 160,
        .n_block = 40,
        .block_size = 16,
        .chunked = 1,
        .depth = depth,
        .exec = FDK_EXEC_DEFER,
        .n_penalty = 8,
        .check_tokens = 1 };
}

/* Checks that, with no request left, every block and every slot is available. */
static void
all_free(const struct sim *s)
{
    const struct engine *e = s->pip->eng;

    SIM_CHECK(e->n_live == 0 && e->sch->n_slot_free == s->cfg.max_seqs);
    SIM_CHECK(e->sch->n_penalty_free == s->cfg.n_penalty);
    SIM_CHECK(e->kv->n_free + e->kv->n_cached == s->cfg.n_block && e->n_flight == 0);
}

/* ---- d3 ----------------------------------------------------------------------------------- */

/* Six requests, staggered, some cancelled; the same requests at every depth. */
static void
workload(uint64_t seed, int depth, struct ref *f, const struct sim_cfg *like)
{
    struct sim_rng g = { seed };
    struct sim_cfg c = *like;
    struct sim_req *r[6] = { NULL };
    uint32_t at[6], stop[6], content[6];
    struct sim *s;

    for (int i = 0; i < 6; i++) {
        at[i] = sim_range(&g, 0, 20);
        stop[i] = sim_u32(&g) % 4 == 0 ? at[i] + sim_range(&g, 0, 40) : UINT32_MAX;
        content[i] = sim_range(&g, 0, 79);
    }
    c.depth = depth;
    c.n_block = (int32_t)sim_range(&g, 11, 40);
    c.graph = sim_u32(&g) % 2;
    c.prefix = sim_u32(&g) % 2;
    c.pace = (enum sim_pace)sim_range(&g, 0, 2);
    c.seed = seed;
    s = sim_new(&c);
    ref_watch(f, s);
    for (uint32_t t = 0; t < 62; t++) {
        for (int i = 0; i < 6; i++) {
            if (at[i] == t)
                r[i] = ref_ask(f, s, content[i]);
            if (stop[i] == t && !r[i]->terminal)
                sim_cancel(s, r[i], FDP_E_CANCELLED);
        }
        (void)sim_poll(s);
    }
    sim_drain(s);
    sim_free(s);
}

static void
d3_workloads(struct sim_rng *g, const char *dir, int n)
{
    static const int depths[] = { 0, 1, 2, 4 };
    const struct ref_cfg rc = { .ask = dir != NULL ? REF_ALL & ~REF_TEXT : REF_ALL,
        .n_content = 80,
        .max_prompt = 100,
        .max_new = 40,
        .seed = 3 };
    struct sim_cfg like = base(0);
    struct ref *f;

    like.model_dir = dir;
    like.check_tokens = dir == NULL;
    f = ref_new(&like, &rc);
    for (int i = 0; i < n; i++) {
        uint64_t seed = sim_u32(g);

        for (size_t k = 0; k < sizeof(depths) / sizeof(depths[0]); k++)
            workload(seed, depths[k], f, &like);
    }
    ref_free(f);
}

static void
d3_same_output_at_every_depth(struct sim_rng *g)
{
    char dir[64];

    d3_workloads(g, NULL, rounds(80, 800));
    sim_model(dir);
    d3_workloads(g, dir, rounds(20, 200));
    sim_model_rm(dir);
}

/* ---- d4 ----------------------------------------------------------------------------------- */

static struct sim_req *
ask(struct sim *s, uint32_t n_prompt, uint32_t max_new, unsigned flags)
{
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    r->n_prompt = n_prompt;
    r->prompt = mem_array(n_prompt, 4);
    for (uint32_t i = 0; i < n_prompt; i++)
        r->prompt[i] = (uint32_t)(r->id * 7 + i) % 256;
    r->p.max_new = max_new;
    r->p.flags |= flags;
    sim_submit(s, r, NULL);
    return r;
}

static void
finish(struct sim *s, struct sim_req *r)
{
    for (int i = 0; !r->terminal; i++) {
        (void)sim_poll(s);
        (void)sim_device(s, INT32_MAX);
        SIM_CHECK(i < 1000);
    }
}

/* Cancels a request after `polls` host polls, in the last `lag` of which the device did
 * not run, and some more commands of the device: it is queued, in a chunk of its prompt,
 * launched, half computed, or computed and not collected. */
static void
abort_at(struct sim *s, int polls, int lag, int32_t commands)
{
    struct sim_req *r = ask(s, 100, 20, FDP_F_IGNORE_EOS), *next;
    uint32_t n;

    for (int i = 0; i < polls; i++) {
        (void)sim_poll(s);
        if (i < polls - lag)
            (void)sim_device(s, INT32_MAX);
    }
    (void)sim_device(s, commands);
    if (r->terminal)
        return;
    sim_cancel(s, r, FDP_E_CANCELLED);
    (void)ing_poll(s->pip->ing, s->now_ns);
    n = r->s[0].n_ids;
    finish(s, r);
    /* results after the cancel are discarded */
    SIM_CHECK(r->code == FDP_E_CANCELLED && r->s[0].n_ids <= n + 1);
    for (int i = 0; i < MAX_DEPTH + 2; i++) {
        (void)sim_device(s, INT32_MAX);
        (void)sim_poll(s);
    }
    all_free(s);
    next = ask(s, 20, 3, FDP_F_IGNORE_EOS);
    finish(s, next);
    SIM_CHECK(next->code == 0 && next->s[0].n_ids == 3);
}

/* A stopped device gets depth steps ahead of the awaited one, and no more. */
static void
d2_steps_ahead(struct sim_rng *g)
{
    (void)g;
    for (int depth = 1; depth <= MAX_DEPTH; depth++) {
        struct sim_cfg c = base(depth);
        struct sim_req *r;
        struct sim *s;

        c.pace = SIM_PACE_NONE;
        s = sim_new(&c);
        r = ask(s, 10, 20, FDP_F_IGNORE_EOS);
        for (int i = 0; i < 40; i++)
            (void)sim_poll(s);
        SIM_CHECK(s->pip->eng->n_flight == depth + 1);
        finish(s, r);
        sim_free(s);
    }
}

static void
d4_abort_at_every_phase(struct sim_rng *g)
{
    static const int32_t commands[] = { 0, 3, INT32_MAX };

    (void)g;
    for (int depth = 0; depth <= MAX_DEPTH; depth++) {
        struct sim_cfg c = base(depth);
        struct sim *s;

        c.pace = SIM_PACE_NONE;
        c.max_tokens = 16;
        c.max_seqs = 2;
        c.graph = depth % 2;
        s = sim_new(&c);
        for (int polls = 0; polls < 14; polls++)
            for (int lag = 0; lag <= depth + 1; lag++)
                for (int k = 0; k < 3; k++)
                    abort_at(s, polls, lag, commands[k]);
        sim_free(s);
    }
}

/* Queued after another request: it never ran. */
static void
d4_abort_while_queued(struct sim_rng *g)
{
    (void)g;
    for (int depth = 0; depth <= MAX_DEPTH; depth++) {
        struct sim_cfg c = base(depth);
        struct sim_req *a, *b;
        struct sim *s;

        c.max_seqs = 1;
        s = sim_new(&c);
        a = ask(s, 30, 30, FDP_F_IGNORE_EOS);
        b = ask(s, 30, 30, FDP_F_IGNORE_EOS);
        for (int i = 0; i < 5; i++)
            (void)sim_poll(s);
        sim_cancel(s, b, FDP_E_CANCELLED);
        (void)sim_poll(s);
        sim_records(s);
        SIM_CHECK(b->terminal && b->s[0].n_ids == 0 && !a->terminal);
        sim_drain(s);
        SIM_CHECK(a->code == 0 && a->s[0].n_ids == 30);
        all_free(s);
        sim_free(s);
    }
}

/* There is no other request whose steps would pass the cancel on. */
static void
d4_full_batch_abort_ends_at_once(struct sim_rng *g)
{
    (void)g;
    for (int depth = 0; depth <= MAX_DEPTH; depth++) {
        struct sim_cfg c = base(depth);
        struct sim_req *r[8];
        struct sim *s;
        int polls = 0;

        c.pace = SIM_PACE_FAST;
        s = sim_new(&c);
        for (int i = 0; i < 8; i++)
            r[i] = ask(s, 10, 100, FDP_F_IGNORE_EOS);
        for (int i = 0; i < 12; i++)
            (void)sim_poll(s);
        SIM_CHECK(s->pip->eng->sch->running.n == 8);
        for (int i = 0; i < 8; i++)
            sim_cancel(s, r[i], FDP_E_CANCELLED);
        for (; s->n_open > 0; polls++)
            (void)sim_poll(s);
        SIM_CHECK(polls <= depth + 2);
        all_free(s);
        sim_free(s);
    }
}

/* ---- d5 ----------------------------------------------------------------------------------- */

#define N_D5 18

/* Prompts of one to three blocks, and one token less and more. */
static void
d5_fill(struct sim_req *r, uint32_t i)
{
    struct sim_rng g = { 50 + i };

    r->n_prompt = 16 * (i % 3 + 1) + i / 3 % 3 - 1;
    r->prompt = mem_array(r->n_prompt, 4);
    for (uint32_t k = 0; k < r->n_prompt; k++)
        r->prompt[k] = sim_range(&g, 3, 250);
    r->p.max_new = 20 + i;
    r->p.flags |= FDP_F_IGNORE_EOS;
    r->p.set |= FDP_S_LOGPROBS;
    r->p.logprobs = 2;
    r->p.temperature = i >= 9 ? 0.9f : 0;
    r->p.frequency_penalty = i % 4 == 0 ? 0.5f : 0;
}

static void
d5_run(struct ref *f, const struct sim_cfg *c)
{
    struct sim *s = sim_new(c);
    uint64_t n_pre;

    ref_watch(f, s);
    for (uint32_t i = 0; i < N_D5; i++)
        (void)ref_ask(f, s, i);
    sim_drain(s);
    n_pre = s->pip->eng->sch->n_preempted;
    SIM_CHECK(s->n_done == N_D5 && n_pre > 0);
    sim_free(s);
}

static void
d5_preempted_and_resumed_same_text(struct sim_rng *g)
{
    const struct ref_cfg rc = { .n_content = N_D5, .fill = d5_fill };
    struct sim_cfg c = base(0);
    char dir[64];
    struct ref *f;

    sim_model(dir);
    c.model_dir = dir;
    c.check_tokens = 0;
    c.max_reqs = N_D5;
    c.max_len = 96;
    f = ref_new(&c, &rc);
    for (int i = 0; i < rounds(10, 60); i++) {
        c.depth = i % 5;
        c.n_block = 7 + i % 4;
        c.graph = i / 5 % 2;
        c.prefix = sim_u32(g) % 2;
        c.pace = (enum sim_pace)sim_range(g, 0, 2);
        c.seed = sim_u32(g);
        d5_run(f, &c);
    }
    ref_free(f);
    sim_model_rm(dir);
}

/* ---- d6 ----------------------------------------------------------------------------------- */

/* One or two slots with quickly changing owners while the device lags: every
 * token must be its owner's. */
static void
d6_slot_reuse(struct sim_rng *g)
{
    int n = rounds(4000, 100000);

    for (int depth = 1; depth <= MAX_DEPTH; depth++) {
        struct sim_cfg c = base(depth);
        struct sim *s;

        c.max_seqs = depth % 2 + 1;
        c.pace = SIM_PACE_SLOW;
        c.graph = depth / 2 % 2;
        c.seed = (uint64_t)depth;
        s = sim_new(&c);
        for (int i = 0; i < n / MAX_DEPTH;) {
            if (s->n_open < 4) {
                struct sim_req *r = ask(s, sim_range(g, 1, 20), sim_range(g, 1, 12), 0);

                i++;
                if (sim_u32(g) % 3 == 0) {
                    for (uint32_t k = sim_range(g, 0, 6); k > 0; k--)
                        (void)sim_poll(s);
                    if (!r->terminal)
                        sim_cancel(s, r, FDP_E_CANCELLED);
                }
            }
            (void)sim_poll(s);
        }
        sim_drain(s);
        SIM_CHECK(cnt_get(&s->cnt->w.rows_discarded) > 0);
        all_free(s);
        sim_free(s);
    }
}

/* ---- d7 ----------------------------------------------------------------------------------- */

/* Number of engine steps from the first to the last token of seven clients, while an
 * eighth stops reading and is ended for that. */
static uint64_t
steps_of_others(int depth, int slow)
{
    struct sim_cfg c = base(depth);
    struct sim_req *r[8];
    struct sim *s;
    uint64_t steps;

    c.pace = SIM_PACE_FAST;
    c.n_block = 80;
    s = sim_new(&c);
    for (int i = 0; i < 8; i++)
        r[i] = ask(s, 10, 100, FDP_F_IGNORE_EOS);
    for (int i = 0; i < 40; i++)
        (void)sim_poll(s);
    if (slow)
        sim_cancel(s, r[7], FDP_E_SLOW);
    for (int i = 0; i < 7; i++) {
        sim_wait(s, r[i]);
        SIM_CHECK(r[i]->code == 0 && r[i]->s[0].n_ids == 100);
    }
    SIM_CHECK(!slow || r[7]->code == FDP_E_SLOW);
    steps = s->pip->eng->epoch;
    sim_drain(s);
    sim_free(s);
    return steps;
}

static void
d7_slow_client_blocks_only_itself(struct sim_rng *g)
{
    (void)g;
    for (int depth = 0; depth <= MAX_DEPTH; depth++) {
        uint64_t fair = steps_of_others(depth, 0), slow = steps_of_others(depth, 1);

        SIM_CHECK(slow * 100 <= fair * 105 && fair * 100 <= slow * 105);
    }
}

/* ---- d8 ----------------------------------------------------------------------------------- */

/* Fields of a record that this step did not write contain garbage. */
static void
d8_poisoned_records(struct sim_rng *g)
{
    const struct ref_cfg rc = { .ask = REF_ALL,
        .n_content = 40,
        .max_prompt = 100,
        .max_new = 40,
        .seed = 8 };
    struct sim_cfg like = base(0);
    struct ref *f = ref_new(&like, &rc);

    for (int depth = 0; depth <= MAX_DEPTH; depth++) {
        struct sim_cfg c = base(depth);
        struct sim *s;

        c.graph = depth % 2;
        c.n_block = 14;
        c.seed = sim_u32(g);
        s = sim_new(&c);
        ref_watch(f, s);
        for (int i = 0; i < rounds(600, 6000); i++) {
            if (s->n_open < 12)
                (void)ref_ask(f, s, sim_range(g, 0, 39));
            for (int32_t k = 0; k < s->run->n_rec; k++) {
                struct bat_rec *rec = &s->run->rec[k];

                if (rec->epoch != 0)
                    continue;
                memset(rec->plan, 0x5a, bat_plan_bytes(&s->run->dims));
                memset(rec->results, 0x5a, (size_t)s->run->dims.O * sizeof(*rec->results));
                memset(rec->outs, 0x5a, (size_t)s->run->dims.O * sizeof(*rec->outs));
            }
            (void)sim_poll(s);
        }
        sim_drain(s);
        SIM_CHECK(s->n_done > (uint64_t)rounds(600, 6000) / 30);
        sim_free(s);
    }
    ref_free(f);
}

/* ---- d9, d10 -------------------------------------------------------------------------------- */

/* Ends that the host cannot foresee cost at most the steps ahead;
 * ends by length cost none. */
static uint64_t
late_rows(int depth, int by_stop, enum sim_pace pace)
{
    struct sim_cfg c = base(depth);
    struct sim *s;
    uint64_t late, n_stopped = 0;

    c.pace = pace;
    s = sim_new(&c);
    for (int i = 0; i < 60; i++) {
        struct sim_req *r = sim_req(s);

        r->n_prompt = 5;
        r->prompt = mem_array(5, 4);
        for (uint32_t k = 0; k < 5; k++)
            r->prompt[k] = (uint32_t)i + k;
        r->p.max_new = 40;
        if (by_stop) {
            r->n_stop = 8;
            for (uint32_t k = 0; k < 8; k++)
                r->stop[k] = k * 30 + (uint32_t)i % 30;
        } else {
            r->p.flags |= FDP_F_IGNORE_EOS;
        }
        sim_submit(s, r, NULL);
        sim_wait(s, r);
        SIM_CHECK(r->code == 0);
        n_stopped += r->s[0].end.finish == FDP_FIN_STOP;
    }
    late = cnt_get(&s->cnt->w.rows_discarded);
    SIM_CHECK(by_stop ? n_stopped > 20 : n_stopped == 0);
    SIM_CHECK(late <= n_stopped * (uint64_t)depth);
    sim_drain(s);
    sim_free(s);
    return late;
}

static void
d9_rows_behind_an_end(struct sim_rng *g)
{
    (void)g;
    for (int depth = 0; depth <= MAX_DEPTH; depth++) {
        SIM_CHECK(late_rows(depth, 0, SIM_PACE_SLOW) == 0);
        SIM_CHECK((late_rows(depth, 1, SIM_PACE_SLOW) > 0) == (depth > 0));
        (void)late_rows(depth, 1, SIM_PACE_FAST);
    }
}

static void
d10_one_token_after_full_blocks(struct sim_rng *g)
{
    (void)g;
    for (int depth = 0; depth <= MAX_DEPTH; depth++) {
        for (uint32_t n = 1; n <= 4; n++) {
            struct sim_cfg c = base(depth);
            struct sim_req *r;
            struct sim *s;

            c.max_seqs = 1;
            c.max_len = 16 * (int32_t)n + 1;
            c.n_block = (int32_t)n + 1;
            c.prefix = depth % 2;
            c.pace = SIM_PACE_SLOW;
            s = sim_new(&c);
            for (int again = 0; again < 3; again++) {
                r = ask(s, 16 * n, 1, FDP_F_IGNORE_EOS);
                sim_wait(s, r);
                SIM_CHECK(r->code == 0 && r->s[0].n_ids == 1);
                SIM_CHECK(r->s[0].end.finish == FDP_FIN_LENGTH);
            }
            sim_drain(s);
            sim_free(s);
        }
    }
}

/* ---- d11 ---------------------------------------------------------------------------------- */

/* A request with rules continues from the state that it had when it was cut off. */
static void
d11_from(struct sim *s, const struct ref *f, uint32_t content, int *n_ruled)
{
    struct sim_req *r = ref_ask(f, s, content);
    uint32_t n = 0, *ids, n_reasoning;

    sim_wait(s, r);
    SIM_CHECK(r->code == 0);
    if (r->n_items == 0 || r->p.n != 1)
        return;
    ++*n_ruled;
    n = r->s[0].n_ids;
    n_reasoning = r->s[0].end.n_reasoning;
    ids = mem_array(n + 1, 4);
    memcpy(ids, r->s[0].ids, n * 4u);
    for (uint32_t cut = 1; cut < n; cut += 1 + n / 6) {
        struct sim_req *next = sim_req(s);

        ref_fill(f, next, content);
        next->p.set &= ~FDP_S_PROMPT_LOGPROBS;
        next->p.prompt_logprobs = 0;
        next->n_prior = cut;
        next->prior = mem_array(cut, 4);
        memcpy(next->prior, ids, cut * 4u);
        sim_submit(s, next, NULL);
        sim_wait(s, next);
        SIM_CHECK(next->code == 0 && next->s[0].n_ids == n);
        SIM_CHECK(memcmp(next->s[0].ids, ids, n * 4u) == 0);
        SIM_CHECK(next->s[0].end.n_reasoning == n_reasoning);
    }
    free(ids);
}

static void
d11_rules_go_on_after_prior_ids(struct sim_rng *g)
{
    const struct ref_cfg rc = { .ask = REF_ALL & ~(REF_TEXT | REF_SAMPLES),
        .n_content = 40,
        .max_prompt = 60,
        .max_new = 40,
        .seed = 9 };
    char dir[64];
    int n_ruled = 0;

    (void)g;
    sim_model(dir);
    for (int model = 0; model < 2; model++) {
        struct sim_cfg c = base(2 + model);
        struct sim *s;
        struct ref *f;

        c.graph = 1;
        c.pace = SIM_PACE_FAST;
        c.model_dir = model ? dir : NULL;
        c.check_tokens = 0;
        f = ref_new(&c, &rc);
        s = sim_new(&c);
        for (uint32_t i = 0; i < rc.n_content; i++)
            d11_from(s, f, i, &n_ruled);
        sim_drain(s);
        sim_free(s);
        ref_free(f);
    }
    sim_model_rm(dir);
    SIM_CHECK(n_ruled > 15);
}

/* ---- d12 ---------------------------------------------------------------------------------- */

/* Allowed and banned ids that leave none to choose: at once, or after a first token. */
static struct sim_req *
d12_ask(struct sim *s, int at_once)
{
    static const uint32_t allowed[] = { 40, 41 };
    struct sim_req *r = sim_req(s);

    r->n_prompt = 5;
    r->prompt = mem_array(5, 4);
    r->p.max_new = 20;
    ref_item(r, FDP_IT_ALLOWED_IDS, allowed, 8);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t pair[2] = { 40 + i / 2, 40 + i % 2 };

        ref_item(r, FDP_IT_BAD_IDS, at_once ? pair + 1 : pair, at_once ? 4 : 8);
    }
    sim_submit(s, r, NULL);
    return r;
}

static void
d12_nothing_left_ends_that_request_alone(struct sim_rng *g)
{
    char dir[64];

    (void)g;
    sim_model(dir);
    for (int depth = 0; depth <= MAX_DEPTH; depth++)
        for (int kind = 0; kind < 4; kind++) {
            struct sim_cfg c = base(depth);
            struct sim_req *r[2], *other;
            struct sim *s;

            c.model_dir = kind / 2 ? dir : NULL;
            c.check_tokens = kind / 2 == 0;
            c.graph = kind % 2;
            s = sim_new(&c);
            other = ask(s, 20, 30, FDP_F_IGNORE_EOS);
            r[0] = d12_ask(s, 0);
            r[1] = d12_ask(s, 1);
            for (int i = 0; i < 2; i++) {
                sim_wait(s, r[i]);
                SIM_CHECK(r[i]->code == FDP_E_BAD_PARAM);
                SIM_CHECK(r[i]->detail == FDP_D_ALLOWED);
                SIM_CHECK(r[i]->s[0].n_ids == (i == 0));
                SIM_CHECK(r[i]->s[0].end.finish == FDP_FIN_ERROR);
            }
            sim_wait(s, other);
            SIM_CHECK(other->code == 0 && other->s[0].n_ids == 30);
            sim_drain(s);
            all_free(s);
            sim_free(s);
        }
    sim_model_rm(dir);
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = {
        SIM_TEST(d2_steps_ahead),
        SIM_TEST(d3_same_output_at_every_depth),
        SIM_TEST(d4_abort_at_every_phase),
        SIM_TEST(d4_abort_while_queued),
        SIM_TEST(d4_full_batch_abort_ends_at_once),
        SIM_TEST(d5_preempted_and_resumed_same_text),
        SIM_TEST(d6_slot_reuse),
        SIM_TEST(d7_slow_client_blocks_only_itself),
        SIM_TEST(d8_poisoned_records),
        SIM_TEST(d9_rows_behind_an_end),
        SIM_TEST(d10_one_token_after_full_blocks),
        SIM_TEST(d11_rules_go_on_after_prior_ids),
        SIM_TEST(d12_nothing_left_ends_that_request_alone),
    };

    return sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
