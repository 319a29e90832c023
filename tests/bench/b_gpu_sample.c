/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling of the CUDA backend by number of rows and options, in a recorded graph.
 * Launches use different logits in turn; small batches use 64 rows of them, which stay in
 * the cache, as in a real step, whose last matrix product has just written them. Also the
 * time to read the logits once at the device's peak rate.
 * Usage: b_gpu_sample [-w WIDTH] (of the logits' normal distribution, 2.5)
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "tests/bench/gpu_bench.h"

enum { POOL = 512, R_MAX = 256, N_BIAS = 300, N_BAN = 16 };
enum { RULE_BIAS = 1, RULE_MASK = 2, RULE_BAN = 4 };

struct step { /* on the device */
    int32_t n_out, state[R_MAX];
    struct fdk_out out[R_MAX];
};

static float *logits;    /* (POOL, V) */
static uint16_t *counts; /* (R_MAX, V) */
static struct fdk_row *rows;
static int32_t *rules; /* (R_MAX, fdk_rules_words) */
static struct step *step;
static struct fdk_result *results;
static struct fdk_rules head; /* of every entry */

static const struct kind {
    const char *name;
    struct fdk_row row;
    int n_top, counts, rules; /* rules: bits RULE_* */
} kinds[] = {
    { "greedy", { .top_p = 1 }, -1, 0, 0 },
    { "temperature 0.8", { .temperature = 0.8f, .top_p = 1 }, -1, 0, 0 },
    { "top_k 50, top_p 0.9", { .temperature = 1, .top_k = 50, .top_p = 0.9f }, -1, 0, 0 },
    { "top_k 1000", { .temperature = 1, .top_k = 1000, .top_p = 1 }, -1, 0, 0 },
    { "top_p 0.95", { .temperature = 1, .top_p = 0.95f }, -1, 0, 0 },
    { "min_p 0.05", { .temperature = 1, .top_p = 1, .min_p = 0.05f }, -1, 0, 0 },
    { "greedy, penalties", { .top_p = 1, .presence = 0.5f, .repetition = 1.1f }, -1, 1, 0 },
    { "top_p 0.95, penalties",
        { .temperature = 1, .top_p = 0.95f, .presence = 0.5f, .repetition = 1.1f }, -1, 1,
        0 },
    { "greedy, 5 alternatives", { .top_p = 1 }, 5, 0, 0 },
    { "top_k 50, 5 alternatives", { .temperature = 1, .top_k = 50, .top_p = 0.9f }, 5, 0, 0 },
    { "greedy, bias", { .top_p = 1 }, -1, 0, RULE_BIAS },
    { "greedy, mask", { .top_p = 1 }, -1, 0, RULE_MASK },
    { "greedy, banned", { .top_p = 1 }, -1, 0, RULE_BAN },
    { "greedy, both", { .top_p = 1 }, -1, 0, RULE_BIAS | RULE_MASK },
    { "temperature 0.8, bias", { .temperature = 0.8f, .top_p = 1 }, -1, 0, RULE_BIAS },
    { "temperature 0.8, mask", { .temperature = 0.8f, .top_p = 1 }, -1, 0, RULE_MASK },
    { "temperature 0.8, banned", { .temperature = 0.8f, .top_p = 1 }, -1, 0, RULE_BAN },
    { "temperature 0.8, both", { .temperature = 0.8f, .top_p = 1 }, -1, 0,
        RULE_BIAS | RULE_MASK },
    { "top_k 50, top_p 0.9, bias", { .temperature = 1, .top_k = 50, .top_p = 0.9f }, -1,
        0, RULE_BIAS },
    { "top_k 50, top_p 0.9, mask", { .temperature = 1, .top_k = 50, .top_p = 0.9f }, -1,
        0, RULE_MASK },
    { "top_k 50, top_p 0.9, banned", { .temperature = 1, .top_k = 50, .top_p = 0.9f }, -1,
        0, RULE_BAN },
    { "top_k 50, top_p 0.9, both", { .temperature = 1, .top_k = 50, .top_p = 0.9f }, -1,
        0, RULE_BIAS | RULE_MASK },
    { "top_p 0.95, bias", { .temperature = 1, .top_p = 0.95f }, -1, 0, RULE_BIAS },
    { "top_p 0.95, mask", { .temperature = 1, .top_p = 0.95f }, -1, 0, RULE_MASK },
    { "top_p 0.95, banned", { .temperature = 1, .top_p = 0.95f }, -1, 0, RULE_BAN },
    { "top_p 0.95, both", { .temperature = 1, .top_p = 0.95f }, -1, 0,
        RULE_BIAS | RULE_MASK },
};

static uint64_t
next(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void
fill(int32_t V, float width)
{
    uint64_t seed = 7;
    size_t n = (size_t)V * 8;
    float *x = mem_array(n, 4);
    uint16_t *c = mem_array((size_t)V, 2);

    if (x == NULL || c == NULL)
        exit(1);
    for (size_t i = 0; i < n; i++) {
        double u = 0;

        for (int j = 0; j < 3; j++) {
            uint64_t w = next(&seed);

            u += (double)(w & 0xffff) + (double)(w >> 16 & 0xffff) +
                (double)(w >> 32 & 0xffff) + (double)(w >> 48);
        }
        x[i] = width * (float)(u / 65536 - 6);
    }
    for (size_t r = 0; r < POOL; r += 8)
        gb_upload(logits + r * (size_t)V, x, n * 4);
    for (int32_t i = 0; i < V; i++)
        c[i] = next(&seed) % 64 != 0 ? 0 : (uint16_t)(1 + (next(&seed) % 2 << 15));
    for (size_t r = 0; r < R_MAX; r++)
        gb_upload(counts + r * (size_t)V, c, (size_t)V * 2);
    free(x);
    free(c);
}

/* The same rules in every row's entry: N_BIAS ids over the vocabulary, and a mask that lets
 * every id but one of seven through, or N_BAN banned ids. */
static void
fill_rules(int32_t V, int which)
{
    const size_t words = fdk_rules_words(V);
    int32_t *e = mem_array(words, 4), at = FDK_RULES_HEAD;
    struct fdk_rules *r = (struct fdk_rules *)e;
    const float up = 0.25f;

    if (e == NULL)
        exit(1);
    r->max_reason = -1;
    if ((which & RULE_BIAS) != 0) {
        r->n_bias = N_BIAS;
        r->bias = at;
        for (int32_t i = 0; i < N_BIAS; i++) {
            e[at + i] = (int32_t)((int64_t)i * V / N_BIAS);
            memcpy(&e[at + N_BIAS + i], &up, 4);
        }
        at += 2 * N_BIAS;
    }
    if ((which & RULE_MASK) != 0) {
        r->allowed = at;
        for (int32_t id = 0; id < V; id++)
            if (id % 7 != 3)
                e[at + id / 32] |= (int32_t)(1u << id % 32);
        at += (V + 31) / 32;
    }
    if ((which & RULE_BAN) != 0) {
        r->n_ban = N_BAN;
        r->ban = at;
        for (int32_t i = 0; i <= N_BAN; i++)
            e[at + i] = at + N_BAN + 1 + i;
        for (int32_t i = 0; i < N_BAN; i++)
            e[at + N_BAN + 1 + i] = (int32_t)((int64_t)i * V / N_BAN);
    }
    head = *r;
    for (size_t i = 0; i < R_MAX; i++)
        gb_upload(rules + i * words, e, words * 4);
    free(e);
}

static void
states(const struct kind *k, int32_t R)
{
    static struct fdk_row h[R_MAX];
    static struct step s;

    s.n_out = R;
    for (int32_t i = 0; i < R_MAX; i++) {
        h[i] = k->row;
        h[i].seed = 1000 + (uint64_t)i;
        h[i].max_len = 1 << 30;
        h[i].penalty = k->counts ? i : -1;
        h[i].repetition = k->counts ? k->row.repetition : 1;
        s.state[i] = i;
        s.out[i] = (struct fdk_out){ .row = i, .n_top = k->n_top, .pos = 100 + i };
        if (k->rules != 0)
            fdk_out_rules(&s.out[i], i, &head);
    }
    gb_upload(rows, h, sizeof(h));
    gb_upload(step, &s, sizeof(s));
}

/* Seconds of one launch, the best of several replays. */
static double
timed(struct fdk_sample_args *a)
{
    int32_t n = a->R >= 64 ? 16 : 64, turns = (a->R < 8 ? 64 : POOL) / a->R;

    OK(ops->sample(a, gb.st));
    OK(ops->graph_begin(gb.st));
    for (int32_t i = 0; i < n; i++) {
        a->logits = logits + (size_t)(i % turns * a->R) * (size_t)a->V;
        OK(ops->sample(a, gb.st));
    }
    return gb_replay(n);
}

/* Returns whether b chooses the same as a, which has no rules. */
static int
same_row(const struct kind *a, const struct kind *b)
{
    return a->n_top == b->n_top && a->counts == b->counts &&
        a->row.temperature == b->row.temperature && a->row.top_k == b->row.top_k &&
        a->row.top_p == b->row.top_p;
}

/* Prints a row; with rules also the ratio to the time without. */
static void
table(int32_t V, float width)
{
    static double us[sizeof(kinds) / sizeof(kinds[0])][4];
    static const int32_t sizes[] = { 1, 8, 64, 256 };
    const struct fdk_batch b = { .n_out = &step->n_out,
        .state = step->state,
        .out = step->out };

    fill(V, width);
    (void)printf("\n%d ids, us%*s", V, 14, "");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        (void)printf("%5d rows", sizes[i]);
    (void)printf("\n%-26s", "reading the logits");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        (void)printf("%10.1f", sizes[i] * 4e6 * V / gb.read_rate);
    (void)printf("\n");
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        size_t plain = 0;

        (void)printf("%-26s", kinds[k].name);
        while (kinds[k].rules != 0 && !same_row(&kinds[plain], &kinds[k]))
            plain++;
        if (kinds[k].rules != 0)
            fill_rules(V, kinds[k].rules);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            struct fdk_sample_args a = { .results = results,
                .state = rows,
                .counts = kinds[k].counts ? counts : NULL,
                .rules = rules,
                .rules_words = (int32_t)fdk_rules_words(V),
                .logits = logits,
                .b = &b,
                .R = sizes[i],
                .V = V };

            a.scratch_bytes = ops->sample_scratch(&a);
            a.scratch = a.scratch_bytes > 0 ? gb_device(a.scratch_bytes) : NULL;
            states(&kinds[k], sizes[i]);
            us[k][i] = timed(&a) * 1e6;
            (void)printf("%10.1f", us[k][i]);
            if (kinds[k].rules != 0)
                (void)printf(" (%.2f)", us[k][i] / us[plain][i]);
            if (a.scratch != NULL)
                ops->mem_free(gb.ctx, 0, a.scratch);
        }
        (void)printf("\n");
        (void)fflush(stdout);
    }
}

int
main(int argc, char **argv)
{
    static const int32_t vocab[] = { 128256, 151936 };
    const struct fdk_open_args args = { .n_device = 1 };
    float width = argc > 2 && strcmp(argv[1], "-w") == 0 ? strtof(argv[2], NULL) : 2.5f;
    int rc;

    rc = gb_open("b_gpu_sample", &args);
    if (rc != 0)
        return rc;
    (void)printf("%s; peak read %.0f GB/s; logits of width %.1f\n", gb.info.name,
        gb.read_rate / 1e9, (double)width);
    logits = gb_device((size_t)POOL * 151936 * 4);
    counts = gb_device((size_t)R_MAX * 151936 * 2);
    rules = gb_device(R_MAX * fdk_rules_words(151936) * 4);
    rows = gb_device(R_MAX * sizeof(*rows));
    step = gb_device(sizeof(*step));
    results = gb_device(R_MAX * sizeof(*results));
    for (size_t i = 0; i < sizeof(vocab) / sizeof(vocab[0]); i++)
        table(vocab[i], width);
    return 0;
}
