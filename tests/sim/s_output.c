/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Optional outputs of a request beyond ids and text, through the whole pipeline, at every
 * depth, with and without graphs: files of the model, separate special tokens, texts of
 * tokens and prompt, prompts that are only scored.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/worker/files.h"
#include "daemon/worker/tokenizer.h"
#include "tests/sim/sim.h"

/* ---- files -------------------------------------------------------------------------- */

static struct sim_req *
ask_file(struct sim *s, const char *name, uint64_t off, uint32_t len)
{
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    r->p.op = FDP_OP_FILE;
    r->file = name;
    r->file_ask = (struct fdp_file_ask){ .off = off, .len = len };
    sim_submit(s, r, NULL);
    return r;
}

static void
is_file(const struct sim_req *r, const struct fil_file *f, uint32_t off, uint32_t n)
{
    SIM_CHECK(r->code == 0 && r->file_size == f->n && r->n_bytes == n);
    SIM_CHECK(n == 0 || memcmp(r->bytes, f->bytes + off, n) == 0);
}

/* Ranges of a file, and files that do not exist. */
static void
files(struct sim *s, struct sim_rng *g)
{
    const struct fil_file *f = &s->cfg.files->f[FIL_TEMPLATE];
    struct sim_req *r;

    for (int i = 0; i < 20; i++) {
        uint32_t off = sim_range(g, 0, (uint32_t)f->n), len = sim_range(g, 1, 70000);

        r = ask_file(s, f->name, off, len);
        sim_wait(s, r);
        is_file(r, f, off, (uint32_t)(f->n - off < len ? f->n - off : len));
    }
    r = ask_file(s, f->name, f->n, 1);
    sim_wait(s, r);
    is_file(r, f, 0, 0);
    r = ask_file(s, f->name, f->n + 1, 1);
    sim_wait(s, r);
    SIM_CHECK(r->code == FDP_E_BAD_PARAM && r->detail == FDP_D_FILE);
    SIM_CHECK(r->arg == f->n + 1 && r->limit == f->n);
    r = ask_file(s, "chat_parser.json", 0, 1);
    sim_wait(s, r);
    SIM_CHECK(r->code == FDP_E_NO_FILE && r->detail == FDP_D_FILE && r->limit == 0);
    r = ask_file(s, "tokenizer_config.json", 0, 1); /* is too large */
    sim_wait(s, r);
    SIM_CHECK(r->code == FDP_E_NO_FILE && r->arg == 9 && r->limit == 8);
    r = ask_file(s, "config.json", 0, 1);
    sim_wait(s, r);
    SIM_CHECK(r->code == FDP_E_NO_FILE);
    r = sim_req(s);
    r->p.op = FDP_OP_FILE;
    sim_submit(s, r, NULL);
    sim_wait(s, r);
    SIM_CHECK(r->code == FDP_E_BAD_PARAM && r->detail == FDP_D_FILE);
}

/* Slots of the up ring in use. */
static uint32_t
up_used(const struct sim *s)
{
    return fdr_load_acquire(&s->seg->up_tail.v) - fdr_load_relaxed(&s->seg->up_head.v);
}

/* A large file does not delay later requests, nor fill the ring. */
static void
large_file(struct sim *s, struct sim_rng *g)
{
    const struct fil_file *f = &s->cfg.files->f[FIL_VOCABULARY];
    struct sim_req *a[4], *b;

    (void)g;
    for (int i = 0; i < 4; i++)
        a[i] = ask_file(s, f->name, 0, FDP_MAX_FILE_READ);
    b = sim_req(s);
    b->p.max_new = 3;
    b->p.flags |= FDP_F_IGNORE_EOS;
    sim_submit(s, b, "hi");
    while (!b->terminal) {
        (void)pip_poll(s->pip, s->now_ns);
        (void)sim_device(s, 1000);
        SIM_CHECK(up_used(s) < LNK_UP_SLOTS / 4);
        if (up_used(s) >= LNK_UP_SLOTS / 16)
            sim_records(s);
    }
    for (int i = 0; i < 4; i++)
        SIM_CHECK(!a[i]->terminal);
    /* a gate that reads nothing */
    for (int i = 0; i < 200; i++) {
        SIM_CHECK(egr_poll(s->pip->egr, s->now_ns) > 0);
        SIM_CHECK(up_used(s) < LNK_UP_SLOTS / 4);
    }
    sim_drain(s);
    for (int i = 0; i < 4; i++)
        is_file(a[i], f, 0, FDP_MAX_FILE_READ);
}

static void
t_files(struct sim_rng *g)
{
    static unsigned char small[100000], large[3u << 20];
    struct files fs = { .magic = FIL_MAGIC };
    struct sim_cfg c = sim_small;

    for (size_t i = 0; i < sizeof(large); i++)
        large[i] = (unsigned char)sim_u32(g);
    memcpy(small, large + 77, sizeof(small));
    fs.f[FIL_TEMPLATE] =
        (struct fil_file){ "chat_template.jinja", small, sizeof(small), 0, 8 };
    fs.f[FIL_TOKENIZER_CONFIG] =
        (struct fil_file){ "tokenizer_config.json", NULL, 0, 9, 8 };
    fs.f[FIL_GENERATION_CONFIG].name = "generation_config.json";
    fs.f[FIL_PARSER].name = "chat_parser.json";
    fs.f[FIL_VOCABULARY] = (struct fil_file){ "vocabulary", large, sizeof(large), 0, 8 };
    c.files = &fs;
    sim_everywhere(&c, g, files);
    sim_everywhere(&c, g, large_file);
}

/* ---- separate special tokens -------------------------------------------------------- */

#define MAX_OUT 120
struct apart { /* the expected output */
    uint32_t ids[MAX_OUT], n_tok, n_special;
    char text[4 * MAX_OUT];
    uint32_t n_text, run; /* run: begin of the text after the last special token */
    int stop_str;
};

/* Returns whether a stop string ends in the text from byte n on; cuts the text there. */
static int
apart_stop(const struct sim_req *r, struct apart *a, uint32_t n)
{
    for (uint32_t end = n + 1; end <= a->n_text; end++) {
        uint32_t best = 0;

        for (uint32_t k = 0; k < r->n_stop_text; k++) {
            uint32_t len = (uint32_t)strlen(r->stop_text[k]);

            if (len > end - a->run || len <= best ||
                memcmp(a->text + end - len, r->stop_text[k], len) != 0)
                continue;
            best = len;
            a->stop_str = (int)k;
        }
        if (best > 0) {
            a->n_text = (r->p.flags & FDP_F_KEEP_STOP) != 0 ? end : end - best;
            return 1;
        }
    }
    return 0;
}

static void
apart(const struct sim *s, const struct sim_req *r, struct apart *a)
{
    uint32_t id = r->prompt[r->n_prompt - 1], was;
    int stop = 0, shows = (r->p.flags & (FDP_F_KEEP_STOP | FDP_F_KEEP_SPECIAL)) != 0;
    struct dtk d;

    *a = (struct apart){ .stop_str = -1 };
    dtk_init(&d, s->tok, 1);
    while (a->n_tok < r->p.max_new && !stop) {
        id = sim_expect(s, r, a->n_tok, id, &stop);
        a->ids[a->n_tok++] = id;
        was = a->n_text;
        if (id >= RUN_NULL_BOS) {
            a->n_text += (uint32_t)dtk_finish(&d, (uint8_t *)a->text + was, 8);
            if (apart_stop(r, a, was))
                return;
            a->n_special++;
            a->run = a->n_text;
        } else if (!stop || shows) {
            a->n_text += (uint32_t)dtk_push(&d, id, (uint8_t *)a->text + was, 8);
            if (apart_stop(r, a, was))
                return;
        }
    }
    was = a->n_text;
    a->n_text += (uint32_t)dtk_finish(&d, (uint8_t *)a->text + was, 8);
    (void)apart_stop(r, a, was);
}

static struct sim_req *
ask_apart(struct sim *s, struct sim_rng *g)
{
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    r->n_prompt = sim_range(g, 1, 30);
    r->prompt = mem_array(r->n_prompt, 4);
    for (uint32_t i = 0; i < r->n_prompt; i++)
        r->prompt[i] = sim_range(g, 0, 258);
    r->p.max_new = sim_range(g, 1, MAX_OUT);
    r->p.flags = FDP_F_TEXT | FDP_F_ALONE | (sim_u32(g) % 2 ? FDP_F_IGNORE_EOS : 0) |
        (sim_u32(g) % 4 == 0 ? FDP_F_KEEP_STOP : 0) |
        (sim_u32(g) % 4 == 0 ? FDP_F_KEEP_SPECIAL : 0);
    r->p.stream_interval = (uint16_t)(sim_u32(g) % 2 ? sim_range(g, 2, 40) : 0);
    if (sim_u32(g) % 3 == 0) {
        r->p.set |= FDP_S_LOGPROBS;
        r->p.logprobs = (uint8_t)sim_range(g, 0, 4);
        r->p.flags |= FDP_F_TOKEN_TEXT;
    }
    return r;
}

static void
is_apart(const struct sim_req *r, const struct apart *a)
{
    const struct sim_sample *sm = &r->s[0];

    SIM_CHECK(r->code == 0 && sm->n_ids == a->n_tok);
    SIM_CHECK(memcmp(sm->ids, a->ids, a->n_tok * 4u) == 0);
    SIM_CHECK(sm->end.stop_str == a->stop_str && sm->end.n_tokens == a->n_tok);
    if (r->n_prior == 0)
        SIM_CHECK(sm->n_special == a->n_special);
    SIM_CHECK(sm->n_text == 0 || sm->text_at + sm->n_text == a->n_text);
    SIM_CHECK(sm->n_text == 0 || memcmp(sm->text, a->text + sm->text_at, sm->n_text) == 0);
    if (r->n_prior == 0)
        SIM_CHECK(sm->n_text == a->n_text && (sm->n_text == 0 || sm->text_at == 0));
    SIM_CHECK(
        r->n_token_text == ((r->p.flags & FDP_F_TOKEN_TEXT) != 0 ? sm->n_logprobs : 0));
}

/* Once from the start, and once as if the first tokens had been delivered before. */
static void
apart_once(struct sim *s, struct sim_rng *g, uint64_t *n_special, uint64_t *n_stop)
{
    struct sim_req *r = ask_apart(s, g), *q;
    struct apart a;

    apart(s, r, &a);
    if (a.n_text > 12 && sim_u32(g) % 2 == 0) {
        uint32_t at = sim_range(g, 0, a.n_text - 9), n = sim_range(g, 1, 8);

        while (at > 0 && (a.text[at] & 0xc0) == 0x80)
            at--;
        if (memchr(a.text + at, 0, n) == NULL) {
            memcpy(r->stop_text[0], a.text + at, n);
            r->n_stop_text = 1;
        }
    }
    apart(s, r, &a);
    *n_special += a.n_special;
    *n_stop += a.stop_str >= 0;
    sim_submit(s, r, NULL);
    sim_wait(s, r);
    is_apart(r, &a);
    q = sim_req(s);
    SIM_CHECK(q != NULL && q != r);
    q->p = r->p;
    q->n_prompt = r->n_prompt;
    q->prompt = mem_array(r->n_prompt, 4);
    memcpy(q->prompt, r->prompt, r->n_prompt * 4u);
    memcpy(q->stop_text, r->stop_text, sizeof(q->stop_text));
    q->n_stop_text = r->n_stop_text;
    q->n_prior = sim_range(g, 0, a.n_tok);
    q->prior = mem_array(q->n_prior + 1u, 4);
    memcpy(q->prior, a.ids, q->n_prior * 4u);
    sim_submit(s, q, NULL);
    sim_wait(s, q);
    is_apart(q, &a);
}

static void
alone(struct sim *s, struct sim_rng *g)
{
    uint64_t n_special = 0, n_stop = 0, n = 150;

    for (uint64_t i = 0; i < n; i++)
        apart_once(s, g, &n_special, &n_stop);
    SIM_CHECK(n_special > n / 8 && n_stop > n / 10);
}

static void
t_alone(struct sim_rng *g)
{
    sim_everywhere(&sim_small, g, alone);
}

/* ---- texts of prompt and tokens -------------------------------------------------------- */

/* A prompt as text and as ids: its text is the text of the ids. */
static void
echo(struct sim *s, struct sim_rng *g)
{
    for (int i = 0; i < 12; i++) {
        struct sim_req *r = sim_req(s);
        uint32_t n = i < 4 ? 5000 : sim_range(g, 1, 90), want = 0;
        char *text = mem_zalloc(3 * n + 8);
        struct dtk d;

        r->n_prompt = n;
        r->prompt = mem_array(n, 4);
        for (uint32_t k = 0; k < n; k++)
            r->prompt[k] = i % 2 == 0 ? sim_range(g, 0, 258)
                : k % 2 == 0          ? 0xc3
                                      : sim_range(g, 0xa0, 0xbf);
        r->p.max_new = 1 + (uint32_t)i % 3;
        r->p.flags = FDP_F_PROMPT_TEXT | (i % 3 == 0 ? FDP_F_KEEP_SPECIAL : 0) |
            (i % 2 == 0 ? FDP_F_TEXT : 0);
        r->p.set |= i % 4 == 0 ? FDP_S_PROMPT_LOGPROBS | FDP_S_LOGPROBS : 0;
        r->p.flags |= i % 4 == 0 ? FDP_F_TOKEN_TEXT : 0;
        dtk_init(&d, s->tok, (r->p.flags & FDP_F_KEEP_SPECIAL) == 0);
        text = mem_regrow(text, 9 * n + 8, 1);
        for (uint32_t k = 0; k < n; k++)
            want += (uint32_t)dtk_push(&d, r->prompt[k], (uint8_t *)text + want, 32);
        want += (uint32_t)dtk_finish(&d, (uint8_t *)text + want, 8);
        sim_submit(s, r, NULL);
        sim_wait(s, r);
        SIM_CHECK(r->code == 0 && r->n_prompt_text == want);
        SIM_CHECK(want == 0 || memcmp(r->prompt_text, text, want) == 0);
        SIM_CHECK(r->n_token_text == (i % 4 == 0 ? r->n_scores + r->s[0].n_logprobs : 0));
        free(text);
    }
}

/* Cancelled at any time, also after the prompt has ended and before
 * the engine has the request. */
static void
echo_cancelled(struct sim *s, struct sim_rng *g)
{
    for (uint32_t i = 0; i < 12; i++) {
        struct sim_req *r = sim_req(s);
        uint32_t n = 5500;

        r->n_prompt = n;
        r->prompt = mem_array(n, 4);
        for (uint32_t k = 0; k < n; k++)
            r->prompt[k] = sim_range(g, 0, 255);
        r->p.max_new = 300;
        r->p.flags = FDP_F_IGNORE_EOS | (i % 2 ? FDP_F_PROMPT_TEXT : FDP_F_PROMPT_IDS);
        sim_submit(s, r, NULL);
        for (uint32_t k = 0; k < i / 2; k++)
            (void)sim_poll(s);
        SIM_CHECK(!r->terminal);
        sim_cancel(s, r, FDP_E_CANCELLED);
        sim_wait(s, r);
        SIM_CHECK(r->code == FDP_E_CANCELLED);
        SIM_CHECK(!r->accepted || r->s[0].end.finish == FDP_FIN_ERROR);
    }
}

static void
t_echo(struct sim_rng *g)
{
    struct sim_cfg c = sim_small;

    c.max_len = 6000;
    c.n_block = 400;
    c.max_tokens = 512;
    sim_everywhere(&c, g, echo);
    sim_everywhere(&c, g, echo_cancelled);
}

/* ---- prompts that are only scored --------------------------------------------------------- */

static struct sim_req *
ask_scored(struct sim *s, struct sim_rng *g, uint32_t n_prompt, uint32_t max_new)
{
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    r->n_prompt = n_prompt;
    r->prompt = mem_array(n_prompt, 4);
    for (uint32_t i = 0; i < n_prompt; i++)
        r->prompt[i] = sim_range(g, 0, 258);
    r->p.set |= FDP_S_PROMPT_LOGPROBS | FDP_S_MAX_NEW;
    r->p.prompt_logprobs = (uint8_t)sim_range(g, 0, 5);
    r->p.max_new = max_new;
    return r;
}

/* The same logprobs as those of a request that samples. */
static void
scored_once(struct sim *s, struct sim_rng *g)
{
    uint32_t n_prompt = sim_range(g, 1, 300);
    struct sim_rng again = *g;
    struct sim_req *r = ask_scored(s, g, n_prompt, 1), *q;
    uint64_t hash, n;

    r->p.prompt_from =
        sim_u32(g) % 2 != 0 && n_prompt > 1 ? sim_range(g, 0, n_prompt - 1) : 0;
    sim_submit(s, r, NULL);
    sim_wait(s, r);
    SIM_CHECK(r->code == 0);
    hash = r->score_hash;
    n = r->n_scores;
    q = ask_scored(s, &again, n_prompt, 0);
    q->p.prompt_from = r->p.prompt_from;
    q->p.n = (uint16_t)sim_range(g, 1, 4);
    q->p.flags = FDP_F_TEXT | FDP_F_PROMPT_IDS | FDP_F_PROMPT_TEXT;
    sim_submit(s, q, NULL);
    sim_wait(s, q);
    SIM_CHECK(q->code == 0 && q->score_hash == hash && q->n_scores == n);
    SIM_CHECK(q->n_prompt_ids == n_prompt && q->done.output_tokens == 0);
    SIM_CHECK(q->done.prompt_tokens == n_prompt && q->done.t_first == 0);
    for (int i = 0; i < q->p.n; i++)
        SIM_CHECK(q->s[i].n_ids == 0 && q->s[i].n_text == 0 &&
            q->s[i].end.finish == FDP_FIN_LENGTH && q->s[i].end.n_tokens == 0);
}

static void
scored(struct sim *s, struct sim_rng *g)
{
    uint32_t prior = 5;
    struct sim_req *r, *q;

    for (int i = 0; i < 30; i++)
        scored_once(s, g);
    /* as many tokens as the model's length; and one more */
    r = ask_scored(s, g, (uint32_t)s->cfg.max_len, 0);
    sim_submit(s, r, NULL);
    sim_wait(s, r);
    SIM_CHECK(r->code == 0 && r->n_scores == (uint32_t)s->cfg.max_len - 1);
    r = ask_scored(s, g, (uint32_t)s->cfg.max_len + 1, 0);
    sim_submit(s, r, NULL);
    sim_wait(s, r);
    SIM_CHECK(r->code == FDP_E_TOO_LONG && r->limit == (uint32_t)s->cfg.max_len);
    /* nothing to compute: it does not wait for the engine */
    r = ask_scored(s, g, 100, 0);
    r->p.set &= ~FDP_S_PROMPT_LOGPROBS;
    r->p.prompt_logprobs = 0;
    r->p.n = 3;
    r->p.flags = FDP_F_PROMPT_TEXT;
    sim_submit(s, r, NULL);
    (void)ing_poll(s->pip->ing, s->now_ns);
    (void)egr_poll(s->pip->egr, s->now_ns);
    sim_records(s);
    SIM_CHECK(r->terminal && r->code == 0 && r->n_prompt_text > 0);
    /* options that make no sense with scoring */
    r = ask_scored(s, g, 10, 0);
    r->n_prior = 1;
    r->prior = mem_array(1, 4);
    r->prior[0] = prior;
    sim_submit(s, r, NULL);
    sim_wait(s, r);
    SIM_CHECK(r->code == FDP_E_BAD_PARAM && r->detail == FDP_D_PRIOR);
    r = ask_scored(s, g, 10, 0);
    r->p.prompt_from = 10;
    sim_submit(s, r, NULL);
    sim_wait(s, r);
    SIM_CHECK(r->code == FDP_E_BAD_PARAM && r->detail == FDP_D_PROMPT_FROM);
    SIM_CHECK(r->arg == 10 && r->limit == 9);
    /* cancelled in the middle, while others generate */
    for (int i = 0; i < 20; i++) {
        r = ask_scored(s, g, 400, 0);
        sim_submit(s, r, NULL);
        q = ask_scored(s, g, sim_range(g, 1, 60), sim_range(g, 0, 9));
        sim_submit(s, q, NULL);
        for (uint32_t k = sim_range(g, 0, 12); k > 0; k--)
            (void)sim_poll(s);
        if (!r->terminal)
            sim_cancel(s, r, FDP_E_CANCELLED);
        sim_wait(s, r);
        SIM_CHECK(r->code == FDP_E_CANCELLED || r->code == 0);
        SIM_CHECK(!r->accepted ||
            r->s[0].end.finish == (r->code != 0 ? FDP_FIN_ERROR : FDP_FIN_LENGTH));
        sim_wait(s, q);
        SIM_CHECK(q->code == 0);
    }
}

static void
t_scored(struct sim_rng *g)
{
    sim_everywhere(&sim_small, g, scored);
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = { SIM_TEST(t_files), SIM_TEST(t_alone),
        SIM_TEST(t_echo), SIM_TEST(t_scored) };

    return sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
