/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Text through the whole pipeline: stop strings across token borders, text
 * held back, resuming from PRIOR_IDS at any token, long texts tokenized in
 * slices while others run, and the ops that answer without the engine. The
 * reference decodes all ids at once and looks for stop strings naively.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/worker/tokenizer.h"
#include "tests/sim/sim.h"

#define MAX_OUT 300

struct ref {
    uint32_t ids[MAX_OUT], n; /* all expected tokens */
    size_t at[MAX_OUT + 1];   /* bytes of text after n tokens */
    char text[MAX_OUT * 4];
    int stop;       /* the last token is a stop id */
    uint32_t n_tok; /* tokens delivered */
    size_t n_text;  /* text delivered */
    int stop_str;
};

static void
ref_chain(const struct sim *s, const struct sim_req *r, struct ref *f)
{
    uint32_t prev = r->prompt[r->n_prompt - 1];
    struct dtk d;
    size_t n = 0;

    dtk_init(&d, s->tok, (r->p.flags & FDP_F_KEEP_SPECIAL) == 0);
    f->n = 0;
    f->stop = 0;
    f->at[0] = 0;
    while (f->n < r->p.max_new && !f->stop) {
        prev = sim_expect(s, r, f->n, prev, &f->stop);
        f->ids[f->n++] = prev;
        if (!f->stop || (r->p.flags & (FDP_F_KEEP_SPECIAL | FDP_F_KEEP_STOP)) != 0)
            n += dtk_push(&d, prev, (uint8_t *)f->text + n, sizeof(f->text) - n);
        f->at[f->n] = n;
    }
    f->at[f->n] += dtk_finish(&d, (uint8_t *)f->text + n, sizeof(f->text) - n);
}

/* End of the first stop string that is complete; of several, the longest. */
static void
ref_stop(const struct sim_req *r, struct ref *f)
{
    f->n_tok = f->n;
    f->n_text = f->at[f->n];
    f->stop_str = -1;
    for (size_t end = 1; end <= f->at[f->n]; end++) {
        size_t best = 0;

        for (uint32_t k = 0; k < r->n_stop_text; k++) {
            size_t len = strlen(r->stop_text[k]);

            if (len <= end && len > best &&
                memcmp(f->text + end - len, r->stop_text[k], len) == 0) {
                best = len;
                f->stop_str = (int)k;
            }
        }
        if (best == 0)
            continue;
        f->n_text = (r->p.flags & FDP_F_KEEP_STOP) != 0 ? end : end - best;
        for (f->n_tok = 0; f->at[f->n_tok] < end; f->n_tok++)
            continue;
        return;
    }
}

/* Bytes of text that have been sent after n tokens. */
static size_t
ref_sent(const struct sim_req *r, const struct ref *f, uint32_t n)
{
    size_t have = f->at[n], hold = 0;

    for (uint32_t k = 0; k < r->n_stop_text; k++) {
        size_t len = strlen(r->stop_text[k]);

        for (size_t m = 1; m < len && m <= have; m++)
            if (m > hold && memcmp(f->text + have - m, r->stop_text[k], m) == 0)
                hold = m;
    }
    return have - hold;
}

static void
take_stop_text(struct sim_rng *g, const struct ref *f, struct sim_req *r, uint32_t k)
{
    size_t n = f->at[f->n], lo, len;

    if (n == 0 || sim_u32(g) % 6 == 0) {
        (void)snprintf(r->stop_text[k], sizeof(r->stop_text[k]), "zqzqzq");
        return;
    }
    lo = sim_range(g, 0, (uint32_t)n - 1);
    while (lo > 0 && (f->text[lo] & 0xc0) == 0x80)
        lo--;
    len = sim_range(g, 1, 24);
    if (len > n - lo)
        len = n - lo;
    while (lo + len < n && (f->text[lo + len] & 0xc0) == 0x80)
        len++;
    if (len > sizeof(r->stop_text[k]) - 1 || memchr(f->text + lo, 0, len) != NULL) {
        (void)snprintf(r->stop_text[k], sizeof(r->stop_text[k]), "qq");
        return;
    }
    memcpy(r->stop_text[k], f->text + lo, len);
    r->stop_text[k][len] = '\0';
}

static struct sim_req *
make(struct sim *s, struct sim_rng *g, struct ref *f)
{
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    r->n_prompt = sim_range(g, 1, 30);
    r->prompt = mem_array(r->n_prompt, 4);
    for (uint32_t i = 0; i < r->n_prompt; i++)
        r->prompt[i] = sim_range(g, 0, 258);
    r->p.max_new = sim_range(g, 1, MAX_OUT);
    r->p.flags |= FDP_F_TEXT;
    if (sim_u32(g) % 2 == 0)
        r->p.flags |= FDP_F_IGNORE_EOS;
    if (sim_u32(g) % 4 == 0)
        r->p.flags |= FDP_F_KEEP_STOP;
    if (sim_u32(g) % 4 == 0)
        r->p.flags |= FDP_F_KEEP_SPECIAL;
    if (sim_u32(g) % 3 == 0) {
        r->n_stop = 2;
        r->stop[0] = sim_range(g, 0, 258);
        r->stop[1] = sim_range(g, 0, 258);
    }
    if (sim_u32(g) % 3 == 0)
        r->p.stream_interval = (uint16_t)sim_range(g, 2, 50);
    ref_chain(s, r, f);
    r->n_stop_text = sim_range(g, 0, 3);
    for (uint32_t k = 0; k < r->n_stop_text; k++)
        take_stop_text(g, f, r, k);
    ref_stop(r, f);
    return r;
}

static void
check(const struct sim_req *r, const struct ref *f)
{
    const struct sim_sample *sm = &r->s[0];

    SIM_CHECK(r->code == 0 && sm->n_ids == f->n_tok && sm->end.n_tokens == f->n_tok);
    SIM_CHECK(memcmp(sm->ids, f->ids, f->n_tok * 4u) == 0);
    SIM_CHECK(sm->end.stop_str == f->stop_str);
    SIM_CHECK(
        sm->end.finish == (f->stop_str >= 0 || f->stop ? FDP_FIN_STOP : FDP_FIN_LENGTH));
    SIM_CHECK(sm->text_at + sm->n_text == f->n_text || (sm->n_text == 0 && r->n_prior > 0));
    SIM_CHECK(sm->n_text == 0 || memcmp(sm->text, f->text + sm->text_at, sm->n_text) == 0);
    SIM_CHECK(r->done.output_tokens == f->n_tok);
}

/* Resumes as if the first k tokens had been delivered by a worker that died. Regression:
 * with all tokens delivered and a last stop id that begins a character, the client saw a
 * replacement character after the end. */
static void
resume(struct sim *s, struct sim_rng *g, const struct sim_req *of, const struct ref *f)
{
    struct sim_req *r = sim_req(s);
    size_t sent;

    SIM_CHECK(r != NULL && r != of);
    r->n_prior = sim_range(g, 0, f->n_tok);
    r->n_prompt = of->n_prompt;
    r->prompt = mem_array(r->n_prompt, 4);
    memcpy(r->prompt, of->prompt, r->n_prompt * 4u);
    r->prior = mem_array(r->n_prior + 1u, 4);
    memcpy(r->prior, f->ids, r->n_prior * 4u);
    memcpy(r->stop, of->stop, sizeof(r->stop));
    r->n_stop = of->n_stop;
    memcpy(r->stop_text, of->stop_text, sizeof(r->stop_text));
    r->n_stop_text = of->n_stop_text;
    r->p.flags = of->p.flags;
    r->p.max_new = of->p.max_new;
    sent = r->n_prior == f->n_tok ? 0 : ref_sent(r, f, r->n_prior);
    sim_submit(s, r, NULL);
    sim_wait(s, r);
    check(r, f);
    if (r->n_prior < f->n_tok && r->s[0].n_text > 0)
        SIM_CHECK(r->s[0].text_at == sent);
}

static void
stops(struct sim *s, struct sim_rng *g, uint64_t rounds)
{
    struct ref *f = mem_zalloc(sizeof(*f));
    uint64_t n_hit = 0;

    for (uint64_t i = 0; i < rounds; i++) {
        struct sim_req *r = make(s, g, f);

        sim_submit(s, r, NULL);
        sim_wait(s, r);
        check(r, f);
        n_hit += f->stop_str >= 0;
        resume(s, g, r, f);
    }
    (void)printf("  %llu of %llu ended by a stop string\n", (unsigned long long)n_hit,
        (unsigned long long)rounds);
    SIM_CHECK(n_hit > rounds / 10);
    SIM_CHECK(s->n_combined > rounds);
    free(f);
}

static struct sim_req *
op(struct sim *s, unsigned what, const char *text, const uint32_t *ids, uint32_t n)
{
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    r->p.op = (uint16_t)what;
    if (ids != NULL) {
        r->n_prompt = n;
        r->prompt = mem_array(n + 1u, 4);
        memcpy(r->prompt, ids, n * 4u);
    }
    sim_submit(s, r, text);
    return r;
}

/* Names of special tokens in prompts and for TOKENIZE are text, or
 * with the flag the tokens. */
static void
special(struct sim *s)
{
    static const char text[] = "h\xc3\xa9llo <|eos|>";
    static const uint32_t flags[] = { 0, FDP_F_PARSE_SPECIAL };
    const uint32_t n_bytes = sizeof(text) - 1;

    for (int i = 0; i < 4; i++) {
        struct sim_req *r = sim_req(s);
        uint32_t n = flags[i % 2] != 0 ? n_bytes - 6 : n_bytes;

        SIM_CHECK(r != NULL);
        r->p.op = i < 2 ? FDP_OP_TOKENIZE : FDP_OP_SUBMIT;
        r->p.flags |= flags[i % 2] | FDP_F_PROMPT_IDS;
        r->p.max_new = 1;
        sim_submit(s, r, text);
        sim_wait(s, r);
        SIM_CHECK(r->code == 0 && r->n_prompt_ids == n && r->done.prompt_tokens == n);
        for (uint32_t k = 0; k < n; k++)
            SIM_CHECK(r->prompt_ids[k] ==
                (flags[i % 2] != 0 && k == n - 1 ? (uint32_t)RUN_NULL_EOS
                                                 : (unsigned char)text[k]));
    }
}

static void
ops(struct sim *s)
{
    const uint32_t ids[] = { 'h', 0xc3, 0xa9, 257, 'o', 0xe2, 0x82 };
    const uint32_t bad[] = { 1, 259 };
    struct sim_req *r;

    special(s);
    r = op(s, FDP_OP_DETOKENIZE, NULL, ids, 7);
    sim_wait(s, r);
    SIM_CHECK(r->code == 0 && strcmp(r->s[0].text, "h\xc3\xa9o\xef\xbf\xbd") == 0);
    r = op(s, FDP_OP_DETOKENIZE, NULL, ids, 0);
    sim_wait(s, r);
    SIM_CHECK(r->code == 0 && r->s[0].n_text == 0);
    r = op(s, FDP_OP_DETOKENIZE, NULL, bad, 2);
    sim_wait(s, r);
    SIM_CHECK(r->code == FDP_E_BAD_TOKEN && r->arg == 259);
    r = op(s, FDP_OP_TOKENIZE, "", NULL, 0);
    sim_wait(s, r);
    SIM_CHECK(r->code == 0 && r->n_prompt_ids == 0);
    r = op(s, FDP_OP_INFO, NULL, NULL, 0);
    sim_wait(s, r);
    SIM_CHECK(r->code == 0 && r->info.vocab == RUN_NULL_VOCAB);
    r = op(s, FDP_OP_PING, NULL, NULL, 0);
    sim_wait(s, r);
    SIM_CHECK(r->code == 0);
    r = op(s, FDP_OP_SUBMIT, "", NULL, 0);
    sim_wait(s, r);
    SIM_CHECK(r->code == FDP_E_BAD_PARAM && r->detail == FDP_D_PROMPT && !r->accepted);
    r = op(s, FDP_OP_SUBMIT, "\xff\xfe", NULL, 0);
    sim_wait(s, r);
    SIM_CHECK(r->code == FDP_E_BAD_TEXT);
    r = op(s, FDP_OP_SUBMIT, NULL, bad, 2);
    sim_wait(s, r);
    SIM_CHECK(r->code == FDP_E_BAD_TOKEN && r->detail == FDP_D_PROMPT_ID);
}

/* A long text must not delay a short one that arrives after it. */
static void
slices(struct sim *s)
{
    uint32_t n = 400000;
    char *text = mem_zalloc(n + 1);
    struct sim_req *a, *b;

    for (uint32_t i = 0; i < n; i++)
        text[i] = i % 6 == 5 ? ' ' : (char)('a' + i % 23);
    a = op(s, FDP_OP_TOKENIZE, text, NULL, 0);
    b = sim_req(s);
    b->p.max_new = 3;
    b->p.flags |= FDP_F_TEXT | FDP_F_PROMPT_IDS | FDP_F_IGNORE_EOS;
    sim_submit(s, b, "hi");
    sim_wait(s, b);
    SIM_CHECK(!a->terminal && b->code == 0 && b->n_prompt_ids == 2);
    sim_wait(s, a);
    SIM_CHECK(a->code == 0 && a->n_prompt_ids == n);
    for (uint32_t i = 0; i < n; i++)
        SIM_CHECK(a->prompt_ids[i] == (unsigned char)text[i]);
    /* too long to run; cancelled while in slices */
    a = op(s, FDP_OP_SUBMIT, text, NULL, 0);
    sim_wait(s, a);
    SIM_CHECK(a->code == FDP_E_TOO_LONG && a->arg == n &&
        a->limit == (uint32_t)s->cfg.max_len - 1);
    a = op(s, FDP_OP_SUBMIT, text, NULL, 0);
    (void)sim_poll(s);
    sim_cancel(s, a, FDP_E_CANCELLED);
    sim_wait(s, a);
    SIM_CHECK(a->code == FDP_E_CANCELLED && !a->accepted);
    free(text);
}

int
main(int argc, char **argv)
{
    struct sim_rng g = { sim_seed(argc, argv) };
    struct sim_cfg cfg = { .max_reqs = 8,
        .max_seqs = 4,
        .max_tokens = 64,
        .max_len = 512,
        .n_block = 64,
        .block_size = 16,
        .chunked = 1 };

    for (int depth = 0; depth <= 4; depth += 2) {
        struct sim *s;

        cfg.depth = depth;
        cfg.exec = depth > 0 ? FDK_EXEC_DEFER : FDK_EXEC_DEFAULT;
        cfg.prefix = depth == 4;
        cfg.seed = (uint64_t)depth;
        s = sim_new(&cfg);
        ops(s);
        slices(s);
        stops(s, &g, sim_steps(20000) / 200 + 10);
        sim_drain(s);
        sim_free(s);
    }
    return 0;
}
