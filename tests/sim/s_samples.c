/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of several samples through the whole pipeline, at every depth, with graphs and
 * without: they share the blocks of their prompt, and the best of them may be returned.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "tests/sim/sim.h"

/* ---- samples that share a prompt ------------------------------------------------------------ */

static struct sim_req *
ask_samples(struct sim *s, struct sim_rng *g)
{
    struct sim_req *r = sim_req(s);
    uint32_t n_prompt =
        sim_range(g, 1, 5) == 1 ? sim_range(g, 1, 20) : sim_range(g, 1, 400);

    SIM_CHECK(r != NULL);
    r->n_prompt = n_prompt;
    r->prompt = mem_array(n_prompt, 4);
    for (uint32_t i = 0; i < n_prompt; i++)
        r->prompt[i] = sim_range(g, 0, 258);
    r->p.n =
        (uint16_t)(sim_range(g, 1, 8) == 1 ? sim_range(g, 30, 64) : sim_range(g, 2, 9));
    r->p.max_new = sim_range(g, 1, 60);
    r->p.seed = sim_u32(g);
    r->p.temperature = 1;
    r->p.set |= FDP_S_LOGPROBS;
    r->p.logprobs = 2;
    if (sim_range(g, 1, 3) == 1)
        r->p.presence_penalty = 1;
    if (sim_range(g, 1, 4) == 1) {
        r->p.set |= FDP_S_PROMPT_LOGPROBS;
        r->p.prompt_from = sim_range(g, 0, n_prompt - 1);
    }
    sim_submit(s, r, NULL);
    return r;
}

static struct {
    const char *model;
    uint64_t n_preempted, n_same;
} smp;

/* Tokens and bits of logprobs equal those of samples that run one after another
 * and each compute the prompt. */
static void
samples(struct sim *s, struct sim_rng *g)
{
    struct sim_cfg c = sim_small;
    struct sim *ref;
    struct sim_req *r[3], *q;

    c.model_dir = smp.model;
    c.n_penalty = c.max_seqs = 64;
    c.n_block = 64 * 32;
    c.max_tokens = 512;
    c.sch.unshared = 1;
    ref = sim_new(&c);
    for (int i = 0; i < 12; i++) {
        struct sim_rng from[3];

        for (int k = 0; k < 3; k++) {
            from[k] = *g;
            r[k] = ask_samples(s, g);
            for (uint32_t n = sim_range(g, 0, 6); n > 0; n--)
                (void)sim_poll(s);
        }
        if (i % 4 == 3)
            sim_cancel(s, r[i % 3], FDP_E_CANCELLED);
        sim_drain(s);
        for (int k = 0; k < 3; k++) {
            q = ask_samples(ref, &from[k]);
            sim_wait(ref, q);
            SIM_CHECK(q->code == 0 && (r[k]->code == 0 || r[k]->cancelled));
            for (int j = 0; j < q->p.n && r[k]->code == 0; j++) {
                SIM_CHECK(r[k]->s[j].n_ids == q->s[j].n_ids);
                SIM_CHECK(memcmp(r[k]->s[j].ids, q->s[j].ids, q->s[j].n_ids * 4u) == 0);
                SIM_CHECK(r[k]->s[j].lp_hash == q->s[j].lp_hash);
                smp.n_same += q->s[j].n_ids;
            }
            SIM_CHECK(r[k]->code != 0 || r[k]->score_hash == q->score_hash);
        }
    }
    smp.n_preempted += s->pip->eng->sch->n_preempted;
    sim_drain(ref);
    sim_free(ref);
}

/* Number of prompt tokens that were computed. */
static void
computed(struct sim *s, struct sim_rng *g)
{
    struct sim_req *r = sim_req(s);

    (void)g;
    r->n_prompt = 900;
    r->prompt = mem_array(900, 4);
    r->p.n = 8;
    r->p.max_new = 5;
    r->p.flags = FDP_F_IGNORE_EOS;
    sim_submit(s, r, NULL);
    sim_wait(s, r);
    SIM_CHECK(r->code == 0 && r->done.output_tokens == 40);
    SIM_CHECK(s->cnt->w.prompt_tokens == 900 + 7);
}

static void
t_samples(struct sim_rng *g)
{
    struct sim_cfg c = sim_small;
    char model[64];

    sim_model(model);
    smp.model = model;
    c.model_dir = model;
    c.max_seqs = 12;
    c.n_penalty = 12;
    c.n_block = 44;
    sim_everywhere(&c, g, samples);
    sim_model_rm(model);
    (void)printf("  %llu tokens, %llu preempted\n", (unsigned long long)smp.n_same,
        (unsigned long long)smp.n_preempted);
    SIM_CHECK(smp.n_preempted > 20);
    c = sim_small;
    c.max_len = 1024;
    c.max_seqs = 8;
    sim_everywhere(&c, g, computed);
}

/* ---- the best of the samples ----------------------------------------------------------------- */

/* All samples of a request, and their mean logprobs. */
struct drawn {
    struct sim_req *r;
    double sum[FDP_MAX_N];
    uint32_t n_total;
};
static struct drawn drawn;

static void
see_drawn(void *arg, struct sim_req *r, const struct fdp_rec *rec)
{
    struct drawn *d = arg;

    if (r == d->r && rec->type == FDP_T_LOGPROBS)
        d->sum[rec->sample] += (double)((const struct fdp_logprob *)(rec + 1))->logprob;
}

static void
fill_best(struct sim_req *r, struct sim_rng *g)
{
    r->n_prompt = sim_range(g, 1, 80);
    r->prompt = mem_array(r->n_prompt, 4);
    for (uint32_t i = 0; i < r->n_prompt; i++)
        r->prompt[i] = sim_range(g, 0, 258);
    r->p.max_new = sim_range(g, 1, 40);
    r->p.seed = sim_u32(g);
    r->p.temperature = 1.5f;
    r->n_stop = 4; /* so that they have different lengths */
    for (int i = 0; i < 4; i++)
        r->stop[i] = sim_range(g, 0, 258);
}

/* Checks that sample k of q is the k-th best of all. */
static void
is_best(const struct drawn *d, const struct sim_req *q)
{
    uint32_t left = d->n_total;

    SIM_CHECK(q->code == 0 && q->done.output_tokens == d->n_total);
    for (int k = 0; k < q->p.n; k++) {
        const struct sim_sample *is = &q->s[k], *was = NULL;
        double mean = 0;

        for (int i = 0; i < d->r->p.n; i++) {
            int rank = 0;

            mean = d->sum[i] / d->r->s[i].n_ids;
            for (int j = 0; j < d->r->p.n; j++) {
                double m = d->sum[j] / d->r->s[j].n_ids;

                rank += m > mean || (m == mean && j < i);
            }
            was = &d->r->s[i];
            if (rank == k)
                break;
        }
        SIM_CHECK(
            is->n_ids == was->n_ids && memcmp(is->ids, was->ids, was->n_ids * 4u) == 0);
        SIM_CHECK(is->end.mean_logprob == (float)mean && was->end.mean_logprob == 0);
        SIM_CHECK(is->end.finish == was->end.finish && is->end.stop_id == was->end.stop_id);
        SIM_CHECK(is->end.n_tokens == is->n_ids);
        if ((q->p.set & FDP_S_LOGPROBS) != 0)
            SIM_CHECK(is->lp_hash == was->lp_hash);
        left -= is->n_ids;
    }
    SIM_CHECK(left < d->n_total);
}

static void
best(struct sim *s, struct sim_rng *g)
{
    s->record = see_drawn;
    s->record_arg = &drawn;
    for (int i = 0; i < 8; i++) {
        struct sim_rng again = *g;
        struct sim_req *q;
        int n = i == 7 ? 40 : (int)sim_range(g, 2, 9);
        uint32_t logprobs = sim_range(g, 0, 3);

        drawn = (struct drawn){ .r = sim_req(s) };
        again = *g;
        fill_best(drawn.r, g);
        drawn.r->p.n = (uint16_t)n;
        drawn.r->p.set |= FDP_S_LOGPROBS;
        drawn.r->p.logprobs = (uint8_t)logprobs;
        sim_submit(s, drawn.r, NULL);
        sim_wait(s, drawn.r);
        SIM_CHECK(drawn.r->code == 0);
        for (int k = 0; k < n; k++)
            drawn.n_total += drawn.r->s[k].n_ids;
        q = sim_req(s);
        SIM_CHECK(q != drawn.r);
        fill_best(q, &again);
        q->p.best_of = (uint16_t)n;
        q->p.n = (uint16_t)sim_range(g, 1, (uint32_t)n - 1);
        q->p.stream_interval = (uint16_t)sim_range(g, 0, 9);
        if (i % 2 == 0) {
            q->p.set |= FDP_S_LOGPROBS;
            q->p.logprobs = (uint8_t)logprobs;
        }
        sim_submit(s, q, NULL);
        while (!q->terminal) {
            (void)sim_poll(s);
            /* nothing is sent before all samples have ended */
            SIM_CHECK(s->pip->eng->n_live == 0 || q->s[0].n_ids == 0);
        }
        is_best(&drawn, q);
    }
    s->record = NULL;
}

/* Cancelled at any time: either no sample or all were sent. */
static void
best_cancelled(struct sim *s, struct sim_rng *g)
{
    for (int i = 0; i < 25; i++) {
        struct sim_req *q = sim_req(s);

        fill_best(q, g);
        q->p.best_of = 6;
        q->p.n = 2;
        sim_submit(s, q, NULL);
        for (int k = 0; k < i && !q->terminal; k++)
            (void)sim_poll(s);
        if (!q->terminal)
            sim_cancel(s, q, FDP_E_CANCELLED);
        sim_wait(s, q);
        SIM_CHECK(q->code == 0 || q->code == FDP_E_CANCELLED);
        for (int k = 0; k < 2 && q->accepted; k++)
            SIM_CHECK(q->code != 0
                    ? q->s[k].n_ids == 0 && q->s[k].end.finish == FDP_FIN_ERROR
                    : q->s[k].n_ids > 0);
        for (int k = 2; k < 6; k++)
            SIM_CHECK(!q->s[k].ended);
    }
}

static struct sim_req *
ask_text(struct sim *s, struct sim_rng *g, const char *stop, uint32_t flags,
    uint16_t best_of)
{
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    fill_best(r, g);
    r->n_stop = 0;
    r->p.temperature = 0;
    r->p.flags = FDP_F_TEXT | flags;
    r->p.best_of = best_of;
    if (stop != NULL)
        (void)snprintf(r->stop_text[0], sizeof(r->stop_text[0]), "%.8s", stop);
    r->n_stop_text = stop != NULL && stop[0] != '\0';
    sim_submit(s, r, NULL);
    sim_wait(s, r);
    SIM_CHECK(r->code == 0);
    return r;
}

/* Text, stop strings and separate special tokens with the null model, whose samples are
 * equal: same results as without best_of. */
static void
best_text(struct sim *s, struct sim_rng *g)
{
    static const uint32_t flags[] = { 0, FDP_F_ALONE, FDP_F_KEEP_STOP,
        FDP_F_ALONE | FDP_F_TOKEN_TEXT };
    int n_stop = 0;

    for (int i = 0; i < 40; i++) {
        struct sim_rng again = *g, third = *g;
        struct sim_req *r = ask_text(s, g, NULL, flags[i % 4], 0), *q;
        char stop[16] = "";

        if (i % 2 == 0 && r->s[0].n_text > 8) {
            uint32_t at = sim_range(g, 0, r->s[0].n_text - 4), n = 1;

            while ((r->s[0].text[at] & 0xc0) == 0x80)
                at--;
            while ((r->s[0].text[at + n] & 0xc0) == 0x80)
                n++;
            memcpy(stop, r->s[0].text + at, n);
        }
        r = ask_text(s, &again, stop, flags[i % 4], 0);
        n_stop += r->s[0].end.stop_str >= 0;
        q = ask_text(s, &third, stop, flags[i % 4], 3);
        SIM_CHECK(q != r && q->s[0].n_ids == r->s[0].n_ids);
        SIM_CHECK(memcmp(q->s[0].ids, r->s[0].ids, r->s[0].n_ids * 4u) == 0);
        SIM_CHECK(q->s[0].n_text == r->s[0].n_text && q->s[0].text_at == r->s[0].text_at);
        SIM_CHECK(r->s[0].n_text == 0 ||
            memcmp(q->s[0].text, r->s[0].text, r->s[0].n_text) == 0);
        SIM_CHECK(q->s[0].n_special == r->s[0].n_special);
        SIM_CHECK(q->s[0].end.stop_str == r->s[0].end.stop_str);
        SIM_CHECK(q->done.output_tokens == 3 * r->s[0].n_ids);
    }
    SIM_CHECK(n_stop > 5);
}

/* The memory for samples is bounded. */
static void
best_bound(struct sim *s, struct sim_rng *g)
{
    const uint32_t each = (20000 - 10) * 21 * 8, most = (64u << 20) / each;

    (void)g;
    for (uint32_t i = 0; i < 4; i++) {
        struct sim_req *r = sim_req(s);

        r->n_prompt = 10;
        r->prompt = mem_array(10, 4);
        r->p.best_of = (uint16_t)(i == 1 ? most : most + 1);
        r->p.set |= FDP_S_LOGPROBS;
        r->p.logprobs = 20;
        r->n_prior = i == 3;
        r->prior = mem_array(2, 4);
        if (i == 2) /* a mean needs no memory */
            r->p.set ^= FDP_S_LOGPROBS;
        sim_submit(s, r, NULL);
        if (i == 1 || i == 2) {
            (void)sim_poll(s);
            SIM_CHECK(!r->terminal);
            sim_cancel(s, r, FDP_E_CANCELLED);
        }
        sim_wait(s, r);
        if (i == 0)
            SIM_CHECK(r->code == FDP_E_BAD_PARAM && r->detail == FDP_D_BEST_OF &&
                r->arg == most + 1 && r->limit == most);
        else if (i == 3)
            SIM_CHECK(r->code == FDP_E_BAD_PARAM && r->detail == FDP_D_PRIOR);
        else
            SIM_CHECK(r->code == FDP_E_CANCELLED);
    }
}

static void
t_best(struct sim_rng *g)
{
    struct sim_cfg c = sim_small;
    char model[64];

    sim_model(model);
    c.model_dir = model;
    c.max_seqs = 10;
    sim_everywhere(&c, g, best);
    sim_everywhere(&c, g, best_cancelled);
    sim_model_rm(model);
    sim_everywhere(&sim_small, g, best_text);
    c = sim_small;
    c.max_len = 20000;
    c.n_block = 1300;
    sim_everywhere(&c, g, best_bound);
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = { SIM_TEST(t_samples), SIM_TEST(t_best) };

    return sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
