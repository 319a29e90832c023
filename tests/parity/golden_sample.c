/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Sampling with every kind of parameter, for samples and for scores. */
#include "config.h"

#include "tests/parity/golden_ops.h"

enum { POOL = 8 };

static struct go_step s;
static struct fdk_row state[GO_ROW];
static uint16_t *counts;
static int32_t *rules;

enum kind {
    GREEDY,
    DRAW,
    TOP_K,
    TOP_P,
    MIN_P,
    ALL,
    STOPS,
    PENALTIES,
    BIAS,
    ALLOWED,
    BANS,
    REASONING,
    TIES,
    SCORES,
    KINDS
};
static const char *const names[KINDS] = { "greedy", "draw", "top_k", "top_p", "min_p",
    "all", "stops", "penalties", "bias", "allowed", "bans", "reasoning", "ties", "scores" };

static void
row_parameters(struct fdk_row *r, enum kind kind, int i, int V)
{
    static const uint32_t ks[] = { 1, 2, 40, 5000, 1u << 30 };
    static const float ps[] = { 0.9f, 0.5f, 0.01f, 0.999f };
    static const float ms[] = { 0.05f, 0.5f, 1, 0.001f };

    *r = (struct fdk_row){ .top_p = 1,
        .max_len = 1 << 30,
        .len = 40,
        .penalty = -1,
        .repetition = 1,
        .seed = go_rand(),
        .sample = (uint32_t)i,
        .temperature = kind == GREEDY || kind == SCORES ? 0 : 0.2f * (float)(1 + i % 8),
        .generation = 100u + (unsigned)i };
    if (kind == TOP_K || kind == ALL)
        r->top_k = ks[i % 5];
    if (kind == TOP_P || kind == ALL)
        r->top_p = ps[i % 4];
    if (kind == MIN_P || kind == ALL)
        r->min_p = ms[i % 4];
    if (kind == STOPS) {
        r->n_stop = FDK_MAX_STOP_IDS;
        r->min_len = 39 + i % 4;
        r->max_len = 40 + i % 3;
        for (int k = 0; k < r->n_stop; k++)
            r->stop_ids[k] = go_int(0, V - 1);
    }
    if ((kind == PENALTIES || kind == ALL) && i < POOL) {
        r->penalty = POOL - 1 - i;
        r->repetition = 1.3f;
        r->presence = 0.4f;
        r->frequency = 0.2f;
    }
}

/* Counts of prompt ids, output ids and both. */
static void
count_ids(int V)
{
    counts = calloc(POOL * (size_t)V, sizeof(*counts));
    for (int i = 0; counts != NULL && i < POOL * V / 50; i++)
        counts[go_rand() % (uint64_t)(POOL * V)] =
            (uint16_t)(go_int(0, 1) << 15 | go_int(0, 9));
}

static void
add_bias(struct fdk_rules *r, int32_t *e, int32_t *at, int V)
{
    r->n_bias = 100;
    r->bias = *at;
    for (int k = 0; k < r->n_bias; k++) {
        float x = 3 * go_normal();

        e[*at + k] = k * (V / 100) + go_int(0, V / 100 - 1);
        memcpy(&e[*at + r->n_bias + k], &x, 4);
    }
    *at += 2 * r->n_bias;
}

/* Sequences of 1, 2 and 3 ids whose beginnings are the row's last tokens. */
static void
add_bans(struct fdk_rules *r, int32_t *e, int32_t *at, int V)
{
    r->n_ban = 90;
    r->ban = *at;
    *at += r->n_ban + 1;
    for (int k = 0; k < r->n_ban; k++) {
        e[r->ban + k] = *at;
        for (int n = k % 3; n > 0; n--)
            e[(*at)++] = r->recent[(40 - n) % FDK_MAX_BAN_LEN];
        e[(*at)++] = go_int(0, V - 1);
    }
    e[r->ban + r->n_ban] = *at;
}

static void
make_rules(enum kind kind, int V)
{
    size_t each = fdk_rules_words(V);

    rules = calloc(POOL * each, 4);
    for (int i = 0; rules != NULL && i < POOL; i++) {
        int32_t *e = rules + (size_t)i * each, at = FDK_RULES_HEAD;
        struct fdk_rules *r = (void *)e;

        r->max_reason = -1;
        for (int k = 0; k < FDK_MAX_BAN_LEN; k++)
            r->recent[k] = go_int(0, V - 1);
        if (kind == BIAS)
            add_bias(r, e, &at, V);
        if (kind == ALLOWED) {
            r->allowed = at;
            for (int k = 0; k < (V + 31) / 32; k++)
                e[at++] = (int32_t)go_rand();
        }
        if (kind == BANS)
            add_bans(r, e, &at, V);
        if (kind == REASONING) {
            r->open_id = 5;
            r->close_id = 6;
            r->max_reason = 10;
            r->in_reason = 1;
            r->n_reason = 7 + i;
        }
        r->n_chosen = FDK_MAX_CHOSEN;
        r->chosen = at;
        for (int k = 0; k < r->n_chosen; k++)
            e[at++] = go_int(0, V - 1);
    }
}

static float *
make_logits(enum kind kind, size_t n)
{
    float *x = go_host(n, FDK_F32, 3);

    for (size_t i = 0; kind == TIES && i < n; i++)
        x[i] = (float)(int)x[i];
    return x;
}

static void
launch(int R, int V)
{
    struct fdk_batch b = go_batch(&s);
    size_t each = fdk_rules_words(V), c = (size_t)(POOL * V) * 2, r = POOL * each * 4;
    size_t chosen = POOL * FDK_MAX_CHOSEN * 4;
    struct fdk_sample_args a = {
        .results = go_new((size_t)R * sizeof(*a.results)),
        .state = go_copy(state, sizeof(state)),
        .counts = counts != NULL ? go_copy(counts, c) : NULL,
        .rules = rules != NULL ? go_copy(rules, r) : NULL,
        .chosen = rules != NULL ? go_new(chosen) : NULL,
        .rules_words = (int32_t)each,
        .logits = g.buf[0],
        .b = &b,
        .R = R,
        .V = V,
    };
    int rc, n = 2;
    const void *out[5] = { a.results, a.state };
    size_t bytes[5] = { (size_t)R * sizeof(*a.results), sizeof(state) };

    a.scratch_bytes = g.ops->sample_scratch(&a);
    if (a.scratch_bytes > 0)
        a.scratch = go_new(a.scratch_bytes);
    rc = g.ops->sample(&a, g.st);
    if (counts != NULL) {
        out[n] = a.counts;
        bytes[n++] = c;
    }
    if (rules != NULL) {
        out[n] = a.rules;
        bytes[n++] = r;
        out[n] = a.chosen;
        bytes[n++] = chosen;
    }
    go_end(rc, out, bytes, n);
}

static void
sample(enum kind kind, int R, int V)
{
    float *logits;

    if (!go_begin(20.0 * R * V, "sample %s R=%d V=%d", names[kind], R, V))
        return;
    go_step_init(&s);
    for (int i = 0; i < R; i++)
        go_step_row(&s, 1, 39);
    for (int i = 0; i < R; i++) {
        s.out[i].kind = kind == SCORES ? FDK_OUT_SCORE : FDK_OUT_SAMPLE;
        s.out[i].target = go_int(0, V - 1);
        s.out[i].n_top = i % 3 == 0 ? -1 : (i * 7) % (FDK_MAX_LOGPROBS + 1);
    }
    for (int i = 0; i < R; i++)
        row_parameters(&state[s.state[i]], kind, i, V);
    if (kind == PENALTIES || kind == ALL)
        count_ids(V);
    if (kind >= BIAS && kind <= REASONING)
        make_rules(kind, V);
    for (int i = 0; i < R && i < POOL && rules != NULL; i++) {
        const int at = (i + 3) % POOL;
        fdk_out_rules(&s.out[i], at,
            (const void *)(rules + (size_t)at * fdk_rules_words(V)));
    }
    logits = make_logits(kind, (size_t)R * (size_t)V);
    go_copy(logits, (size_t)R * (size_t)V * 4);
    free(logits);
    launch(R, V);
    free(counts);
    free(rules);
    counts = NULL;
    rules = NULL;
}

void
go_sample_cases(void)
{
    static const int rows[] = { 1, 8, 64 };
    static const int vocab[] = { 1000, 32000, 128256, 151936 };

    for (int kind = 0; kind < KINDS; kind++)
        for (size_t r = 0; r < GO_N(rows); r++)
            for (size_t v = 0; v < GO_N(vocab); v++)
                sample((enum kind)kind, rows[r], vocab[v]);
}
