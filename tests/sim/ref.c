/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/sim/ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"

struct ref_sample {
    uint32_t *ids;
    uint32_t n_ids;
    char *text;
    uint32_t n_text;
    uint64_t lp_hash;
    struct fdp_choice_end end;
};

struct ref_answer {
    int have;
    uint64_t score_hash;
    struct ref_sample s[SIM_MAX_N];
};

struct ref {
    struct ref_cfg cfg;
    struct sim *s;
    struct ref_answer *a; /* [n_content] */
};

struct ref *
ref_new(const struct sim_cfg *like, const struct ref_cfg *cfg)
{
    struct ref *f = mem_zalloc(sizeof(*f));
    struct sim_cfg c = *like;

    SIM_CHECK(f != NULL);
    c.depth = 0;
    c.exec = FDK_EXEC_INLINE;
    c.graph = c.prefix = c.n_host = c.drain_every = 0;
    c.delay_ns = 0;
    c.real_clock = 0;
    c.max_reqs = 2;
    c.max_seqs = SIM_MAX_N;
    c.n_penalty = like->n_penalty > 0 ? SIM_MAX_N : 0;
    c.max_tokens = like->max_len;
    c.chunked = 1;
    c.capture = NULL;
    c.n_block = SIM_MAX_N * (like->max_len / like->block_size + 2);
    c.keep_all = 1;
    c.sch = (struct sch_cfg){ .fcfs = 1, .unshared = 1 };
    f->cfg = *cfg;
    f->s = sim_new(&c);
    f->a = mem_array(cfg->n_content, sizeof(*f->a));
    SIM_CHECK(f->a != NULL);
    return f;
}

void
ref_free(struct ref *f)
{
    sim_free(f->s);
    for (uint32_t i = 0; i < f->cfg.n_content; i++)
        for (int k = 0; k < SIM_MAX_N; k++) {
            free(f->a[i].s[k].ids);
            free(f->a[i].s[k].text);
        }
    free(f->a);
    free(f);
}

/* ---- contents ------------------------------------------------------------------------ */

static int
ref_asks(const struct ref *f, struct sim_rng *g, unsigned what, uint32_t share)
{
    return sim_u32(g) % share == 0 && (f->cfg.ask & what) != 0;
}

static void
ref_prompt(const struct ref *f, struct sim_rng *g, struct sim_req *r)
{
    struct sim_rng family = { f->cfg.seed + 77 + sim_range(g, 0, 4) };
    uint32_t shared = 0, most = f->cfg.max_prompt;

    r->n_prompt = sim_u32(g) % 3 == 0
        ? sim_range(g, 1, most)
        : sim_range(g, 1, most < 40 ? most : 40);
    if (ref_asks(f, g, REF_SHARED, 1) && sim_u32(g) % 4 != 0)
        shared = sim_range(g, 0, r->n_prompt);
    r->prompt = mem_array(r->n_prompt, 4);
    for (uint32_t i = 0; i < r->n_prompt; i++)
        r->prompt[i] = sim_range(i < shared ? &family : g, 0, RUN_NULL_VOCAB - 1);
}

static void
ref_sampling(const struct ref *f, struct sim_rng *g, struct sim_req *r)
{
    if (ref_asks(f, g, REF_RANDOM, 2)) {
        r->p.temperature = 0.2f + (float)sim_range(g, 0, 10) * 0.1f;
        r->p.top_k = sim_u32(g) % 2 ? sim_range(g, 1, 60) : 0;
        r->p.top_p = sim_u32(g) % 2 ? 0.9f : 1;
        r->p.min_p = sim_u32(g) % 4 == 0 ? 0.05f : 0;
    }
    if (ref_asks(f, g, REF_PENALTY, 3)) {
        r->p.repetition_penalty = sim_u32(g) % 2 ? 1.3f : 1;
        r->p.presence_penalty = 0.3f;
        r->p.frequency_penalty = sim_u32(g) % 2 ? 0.4f : 0;
    }
    if (ref_asks(f, g, REF_SAMPLES, 6))
        r->p.n = (uint16_t)sim_range(g, 2, SIM_MAX_N);
}

static void
ref_stops(const struct ref *f, struct sim_rng *g, struct sim_req *r)
{
    if (!ref_asks(f, g, REF_STOP, 2))
        r->p.flags |= FDP_F_IGNORE_EOS;
    if (ref_asks(f, g, REF_STOP, 4)) {
        r->n_stop = sim_range(g, 1, 8);
        for (uint32_t i = 0; i < r->n_stop; i++)
            r->stop[i] = sim_range(g, 0, RUN_NULL_VOCAB - 1);
        r->p.min_new = sim_range(g, 0, r->p.max_new < 20 ? r->p.max_new : 20);
    }
    if (ref_asks(f, g, REF_TEXT, 3)) {
        r->p.flags |= FDP_F_TEXT;
        r->n_stop_text = sim_range(g, 0, 2);
        for (uint32_t i = 0; i < r->n_stop_text; i++)
            (void)snprintf(r->stop_text[i], sizeof(r->stop_text[i]), "%c",
                (int)sim_range(g, 'a', 'z'));
    }
}

void
ref_item(struct sim_req *r, unsigned type, const void *p, uint32_t len)
{
    struct fdp_item it = { .type = (uint16_t)type, .len = len };
    unsigned char *at;

    r->items = mem_regrow(r->items, r->n_items + FDP_ITEM_SPAN(len), 1);
    at = r->items + r->n_items;
    memset(at, 0, FDP_ITEM_SPAN(len));
    memcpy(at, &it, sizeof(it));
    memcpy(at + sizeof(it), p, len);
    r->n_items += (uint32_t)FDP_ITEM_SPAN(len);
}

/* Draws distinct ids, so that a few masked ids leave some of them. */
static void
ref_allowed(struct sim_rng *g, struct sim_req *r)
{
    uint32_t ids[100], n = sim_range(g, 24, 100), at = sim_u32(g) % RUN_NULL_VOCAB;

    for (uint32_t i = 0; i < n; i++)
        ids[i] = (at + i * 2) % RUN_NULL_VOCAB;
    ref_item(r, FDP_IT_ALLOWED_IDS, ids, n * 4);
}

/* At most three single ids and six sequences of two. */
static void
ref_bans(struct sim_rng *g, struct sim_req *r)
{
    uint32_t n = sim_range(g, 1, 9), near = sim_u32(g) % RUN_NULL_VOCAB;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t ids[2] = { (near + sim_range(g, 0, 3)) % RUN_NULL_VOCAB,
            (near + sim_range(g, 0, 3)) % RUN_NULL_VOCAB };

        ref_item(r, FDP_IT_BAD_IDS, ids, i < 3 ? 4 : 8);
    }
    if (sim_u32(g) % 2 == 0 && (r->p.flags & FDP_F_TEXT) != 0)
        ref_item(r, FDP_IT_BAD_WORDS, "e", 1);
}

static void
ref_biases(struct sim_rng *g, struct sim_req *r)
{
    struct fdp_bias b[20];
    uint32_t n = sim_range(g, 1, 20), at = sim_u32(g) % RUN_NULL_VOCAB;

    for (uint32_t i = 0; i < n; i++)
        b[i] = (struct fdp_bias){ (at + i * 7) % RUN_NULL_VOCAB,
            (float)sim_range(g, 0, 40) * 0.25f - 5 };
    ref_item(r, FDP_IT_LOGIT_BIAS, b, n * (uint32_t)sizeof(b[0]));
}

static void
ref_rules(struct sim_rng *g, struct sim_req *r)
{
    if (sim_u32(g) % 2 == 0)
        ref_allowed(g, r);
    if (sim_u32(g) % 2 == 0)
        ref_bans(g, r);
    if (sim_u32(g) % 2 == 0)
        ref_biases(g, r);
    if (sim_u32(g) % 2 == 0) {
        struct fdp_reasoning re = { .max_tokens = sim_range(g, 0, 6),
            .open_id = sim_range(g, 0, 20),
            .close_id = sim_range(g, 21, 40) };

        if (sim_u32(g) % 2 == 0)
            r->prompt[sim_range(g, 0, r->n_prompt - 1)] = re.open_id;
        ref_item(r, FDP_IT_REASONING, &re, sizeof(re));
    }
    if ((r->p.set & FDP_S_LOGPROBS) != 0 && sim_u32(g) % 2 == 0) {
        uint32_t ids[FDP_MAX_LOGPROB_IDS];

        r->n_chosen = sim_range(g, 1, FDP_MAX_LOGPROB_IDS);
        for (uint32_t i = 0; i < r->n_chosen; i++)
            ids[i] = sim_range(g, 0, RUN_NULL_VOCAB - 1);
        ref_item(r, FDP_IT_LOGPROB_IDS, ids, r->n_chosen * 4);
    }
}

void
ref_fill(const struct ref *f, struct sim_req *r, uint32_t content)
{
    struct sim_rng g = { f->cfg.seed * 1000003 + content };

    r->content = content;
    if (f->cfg.fill != NULL) {
        f->cfg.fill(r, content);
        return;
    }
    ref_prompt(f, &g, r);
    r->p.max_new = sim_range(&g, 1, f->cfg.max_new);
    r->p.seed = 1000 + content;
    ref_sampling(f, &g, r);
    ref_stops(f, &g, r);
    if (sim_u32(&g) % 2 == 0) {
        r->p.set |= FDP_S_LOGPROBS;
        r->p.logprobs = (uint8_t)sim_range(&g, 0, 5);
    }
    if (ref_asks(f, &g, REF_SCORES, 6)) {
        r->p.set |= FDP_S_PROMPT_LOGPROBS;
        r->p.prompt_logprobs = (uint8_t)sim_range(&g, 0, 5);
    }
    if (ref_asks(f, &g, REF_PENALTY, 1) && ref_asks(f, &g, REF_RULES, 3))
        ref_rules(&g, r);
}

/* ---- answers -------------------------------------------------------------------------- */

static void
ref_answer(struct ref *f, uint32_t content)
{
    struct ref_answer *a = &f->a[content];
    struct sim_req *r = sim_req(f->s);

    SIM_CHECK(r != NULL);
    ref_fill(f, r, content);
    sim_submit(f->s, r, NULL);
    sim_wait(f->s, r);
    SIM_CHECK(r->code == 0);
    a->have = 1;
    a->score_hash = r->score_hash;
    for (int k = 0; k < r->p.n; k++) {
        struct sim_sample *sm = &r->s[k];

        a->s[k] = (struct ref_sample){ sm->ids, sm->n_ids, sm->text, sm->n_text,
            sm->lp_hash, sm->end };
        sm->ids = NULL;
        sm->text = NULL;
    }
}

static void
ref_check_sample(const struct sim_req *r, const struct sim_sample *sm,
    const struct ref_sample *a)
{
    uint32_t n = sm->n_text;

    SIM_CHECK(sm->n_ids <= a->n_ids);
    SIM_CHECK(sm->n_ids == 0 || memcmp(sm->ids, a->ids, sm->n_ids * 4u) == 0);
    /* cut within a character: its replacement mark ends the text */
    if (r->code != 0 && n >= 3 && memcmp(sm->text + n - 3, "\xef\xbf\xbd", 3) == 0)
        n -= 3;
    SIM_CHECK(n <= a->n_text);
    SIM_CHECK(n == 0 || memcmp(sm->text, a->text, n) == 0);
    if (r->code != 0)
        return;
    SIM_CHECK(sm->n_ids == a->n_ids && sm->n_text == a->n_text);
    SIM_CHECK(sm->lp_hash == a->lp_hash);
    SIM_CHECK(sm->end.finish == a->end.finish && sm->end.n_tokens == a->end.n_tokens);
    SIM_CHECK(sm->end.n_reasoning == a->end.n_reasoning);
    SIM_CHECK(sm->end.stop_id == a->end.stop_id && sm->end.stop_str == a->end.stop_str);
}

void
ref_check(struct ref *f, const struct sim_req *r)
{
    if (!r->accepted)
        return;
    if (!f->a[r->content].have)
        ref_answer(f, r->content);
    for (int k = 0; k < r->p.n; k++)
        ref_check_sample(r, &r->s[k], &f->a[r->content].s[k]);
    SIM_CHECK(r->code != 0 || r->score_hash == f->a[r->content].score_hash);
}

static void
ref_ended(void *arg, struct sim_req *r)
{
    ref_check(arg, r);
}

void
ref_watch(struct ref *f, struct sim *s)
{
    s->ended = ref_ended;
    s->ended_arg = f;
}

struct sim_req *
ref_ask(const struct ref *f, struct sim *s, uint32_t content)
{
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    ref_fill(f, r, content);
    sim_submit(s, r, NULL);
    return r;
}
