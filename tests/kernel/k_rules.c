/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/kernel/k_draws.h"
#include "tests/kernel/k_util.h"

#include <stdio.h>
#include <stdlib.h>

/*
 * Rules of a row: biases, allowed ids, banned sequences, chosen logprobs and the
 * bound of reasoning: compared with simple code on random rows, with the order that
 * the logits processors of transformers give (rules_reference.txt), and drawn
 * frequencies with exact probabilities.
 */

enum { MAX_V = 300, N_PROMPT_MAX = 40 };

struct want { /* rules of a row as requested */
    int n_bias, n_allowed, n_ban, n_chosen;
    int bias_id[MAX_V];
    float bias[MAX_V];
    int allowed[MAX_V];
    int ban_n[64], ban[64][FDK_MAX_BAN_LEN];
    int chosen[FDK_MAX_CHOSEN];
    int open_id, close_id, max_reason, inside;
};

struct bench {
    struct k_dev d;
    struct k_step s;
    struct fdk_row rows[K_MAX_ROW];
    struct fdk_result res[K_MAX_ROW];
    struct want want[K_MAX_ROW];
    int tok[K_MAX_ROW][4096]; /* of each row, rows[i].len of them */
    float *logits, *keep;
    uint16_t *counts;
    int32_t *pool;
    float chosen[K_MAX_ROW * FDK_MAX_CHOSEN];
    int V;
};

static struct bench *
bench_new(int threads, const char *isa, int V)
{
    struct bench *b = calloc(1, sizeof(*b));
    k_open(&b->d, threads, isa);
    b->V = V;
    b->logits = malloc(K_MAX_ROW * (size_t)V * 4);
    b->keep = malloc(K_MAX_ROW * (size_t)V * 4);
    b->counts = calloc(K_MAX_ROW * (size_t)V, 2);
    b->pool = malloc(K_MAX_ROW * fdk_rules_words(V) * 4);
    memset(b->pool, 0x5a, K_MAX_ROW * fdk_rules_words(V) * 4);
    k_step_init(&b->s);
    for (int i = 0; i < K_MAX_ROW; i++) {
        b->rows[i] = (struct fdk_row){ .top_p = 1,
            .max_len = 1 << 30,
            .penalty = -1,
            .repetition = 1 };
        b->want[i].max_reason = -1;
        b->s.state[i] = i;
        b->s.out[i] = (struct fdk_out){ .row = i, .n_top = 0 };
    }
    b->s.n_out = K_MAX_ROW;
    return b;
}

static void
bench_free(struct bench *b)
{
    k_close(&b->d);
    free(b->logits);
    free(b->keep);
    free(b->counts);
    free(b->pool);
    free(b);
}

/* ---- an entry, written by hand ------------------------------------------------ */

static void
put_entry(struct bench *b, int row)
{
    const struct want *w = &b->want[row];
    int32_t *e = b->pool + (size_t)row * fdk_rules_words(b->V), at = FDK_RULES_HEAD;
    struct fdk_rules *h = (struct fdk_rules *)(void *)e;
    *h = (struct fdk_rules){ .n_bias = w->n_bias,
        .bias = at,
        .n_ban = w->n_ban,
        .n_chosen = w->n_chosen,
        .open_id = w->open_id,
        .close_id = w->close_id,
        .max_reason = w->max_reason,
        .in_reason = w->inside };
    for (int id = 0, n = 0; id < b->V; id++)
        for (int i = 0; i < w->n_bias; i++)
            if (w->bias_id[i] == id) {
                e[at + n] = id;
                memcpy(&e[at + w->n_bias + n++], &w->bias[i], 4);
            }
    at += 2 * w->n_bias;
    h->chosen = at;
    for (int i = 0; i < w->n_chosen; i++)
        e[at++] = w->chosen[i];
    if (w->n_allowed > 0) {
        h->allowed = at;
        for (int i = 0; i < (b->V + 31) / 32; i++)
            e[at + i] = 0;
        for (int i = 0; i < w->n_allowed; i++)
            e[at + w->allowed[i] / 32] =
                (int32_t)((uint32_t)e[at + w->allowed[i] / 32] | 1u << w->allowed[i] % 32);
        at += (b->V + 31) / 32;
    }
    h->ban = at;
    at += w->n_ban + 1;
    for (int i = 0; i < w->n_ban; i++) {
        e[h->ban + i] = at;
        for (int j = 0; j < w->ban_n[i]; j++)
            e[at++] = w->ban[i][j];
    }
    e[h->ban + w->n_ban] = at;
    for (int p = 0; p < b->rows[row].len; p++)
        h->recent[p % FDK_MAX_BAN_LEN] = b->tok[row][p];
    assert_true((size_t)at <= fdk_rules_words(b->V));
    fdk_out_rules(&b->s.out[row], row, h);
}

static void
draw(struct bench *b)
{
    memcpy(b->logits, b->keep, K_MAX_ROW * (size_t)b->V * 4);
    struct fdk_sample_args a = { .results = b->res,
        .state = b->rows,
        .logits = b->logits,
        .b = &b->s.b,
        .counts = b->counts,
        .rules = b->pool,
        .rules_words = (int32_t)fdk_rules_words(b->V),
        .chosen = b->chosen,
        .R = K_MAX_ROW,
        .V = b->V };
    for (int i = 0; i < K_MAX_ROW; i++)
        b->s.out[i].pos = b->rows[i].len;
    a.scratch_bytes = b->d.ops->sample_scratch(&a);
    a.scratch = malloc(a.scratch_bytes);
    assert_int_equal(b->d.ops->sample(&a, b->d.st), 0);
    k_sync(&b->d);
    free(a.scratch);
    for (int i = 0; i < b->s.n_out; i++)
        if (b->res[i].token >= 0)
            b->tok[i][b->rows[i].len - 1] = b->res[i].token;
}

/* ---- simple code ------------------------------------------------------------------ */

static int
ends_with(const struct bench *b, int row, const int *seq, int n)
{
    int len = b->rows[row].len;
    for (int j = 0; j < n; j++)
        if (n > len || b->tok[row][len - n + j] != seq[j])
            return 0;
    return 1;
}

/* Masks and biases the logits of a row. */
static void
processed(const struct bench *b, int row, float *x)
{
    const struct want *w = &b->want[row];
    const struct fdk_row *st = &b->rows[row];
    memcpy(x, b->keep + (size_t)row * (size_t)b->V, (size_t)b->V * 4);
    for (int i = 0; i < w->n_bias; i++)
        x[w->bias_id[i]] += w->bias[i];
    for (int id = 0; id < b->V; id++) {
        int seen = 0, ok = w->n_allowed == 0;
        for (int p = 0; p < st->len && st->penalty >= 0; p++)
            seen |= b->tok[row][p] == id;
        if (seen)
            x[id] = x[id] > 0 ? x[id] / st->repetition : x[id] * st->repetition;
        for (int i = 0; i < w->n_allowed; i++)
            ok |= w->allowed[i] == id;
        if (!ok)
            x[id] = -INFINITY;
    }
    for (int i = 0; i < w->n_ban; i++)
        if (ends_with(b, row, w->ban[i], w->ban_n[i] - 1))
            x[w->ban[i][w->ban_n[i] - 1]] = -INFINITY;
    for (int i = 0; st->len < st->min_len && i < st->n_stop; i++)
        x[st->stop_ids[i]] = -INFINITY;
}

static int
best_of(const float *x, int V)
{
    int best = -1;
    for (int i = 0; i < V; i++)
        if (x[i] > -INFINITY && (best < 0 || x[i] > x[best]))
            best = i;
    return best;
}

static int
rnd(uint64_t *g, int n)
{
    *g = *g * 6364136223846793005ull + 1442695040888963407ull;
    return (int)((*g >> 33) % (uint64_t)n);
}

/* Draws distinct ids. */
static void
add_biases(struct want *w, int V, uint64_t *g)
{
    for (int i = rnd(g, 20) + 1; i-- > 0;) {
        int id = rnd(g, V), twice = 0;
        for (int k = 0; k < w->n_bias; k++)
            twice |= w->bias_id[k] == id;
        if (twice)
            continue;
        w->bias_id[w->n_bias] = id;
        w->bias[w->n_bias++] = (float)(rnd(g, 2000) - 1000) * 0.01f;
    }
}

static void
add_bans(struct bench *b, int row, uint64_t *g)
{
    struct want *w = &b->want[row];
    w->n_ban = rnd(g, 30);
    for (int i = 0; i < w->n_ban; i++) {
        int len = b->rows[row].len, n = rnd(g, 3) ? 1 + rnd(g, 3) : 1 + rnd(g, 32);
        w->ban_n[i] = n;
        /* usually the last tokens of the row, so that they match */
        for (int j = 0; j < n; j++)
            w->ban[i][j] = j < n - 1 && n - 1 <= len && rnd(g, 40) != 0
                ? b->tok[row][len - (n - 1) + j]
                : rnd(g, b->V);
    }
}

static void
random_rows(struct bench *b, uint64_t *g)
{
    k_fill(b->keep, K_MAX_ROW * (size_t)b->V, *g);
    for (int i = 0; i < K_MAX_ROW; i++) {
        struct want *w = &b->want[i];
        *w = (struct want){ .max_reason = -1 };
        b->rows[i].len = rnd(g, N_PROMPT_MAX);
        for (int p = 0; p < b->rows[i].len; p++)
            b->tok[i][p] = rnd(g, b->V);
        b->s.out[i].rules = 0;
        b->rows[i].penalty = rnd(g, 2) ? i : -1;
        b->rows[i].repetition = b->rows[i].penalty >= 0 ? 1.7f : 1;
        b->rows[i].n_stop = rnd(g, 3);
        b->rows[i].min_len = b->rows[i].len + rnd(g, 3);
        for (int k = 0; k < b->rows[i].n_stop; k++)
            b->rows[i].stop_ids[k] = rnd(g, b->V);
        b->rows[i].done = FDK_DONE_NO;
        memset(b->counts + (size_t)i * (size_t)b->V, 0, (size_t)b->V * 2);
        for (int p = 0; p < b->rows[i].len; p++)
            b->counts[(size_t)i * (size_t)b->V + (size_t)b->tok[i][p]] = 0x8000;
        if (rnd(g, 5) == 0)
            continue; /* without rules */
        if (rnd(g, 2))
            add_biases(w, b->V, g);
        if (rnd(g, 2))
            for (int n = rnd(g, 12) + 1; w->n_allowed < n;)
                w->allowed[w->n_allowed++] = rnd(g, b->V);
        if (rnd(g, 2))
            add_bans(b, i, g);
        w->n_chosen = rnd(g, 2) ? rnd(g, FDK_MAX_CHOSEN + 1) : 0;
        for (int k = 0; k < w->n_chosen; k++)
            w->chosen[k] = rnd(g, b->V);
        put_entry(b, i);
    }
}

static double
log_sum(const float *x, int V)
{
    double m = x[0], s = 0;
    for (int i = 1; i < V; i++)
        m = x[i] > m ? x[i] : m;
    for (int i = 0; i < V; i++)
        s += exp(x[i] - m);
    return m + log(s);
}

/* Random rules over several steps: the greedy token, raw logprobs, and rows without
 * any id left among others. */
static void
test_random(void **state)
{
    static const int sizes[] = { 3, 33, 64, 129, MAX_V };
    static float x[K_MAX_ROW][MAX_V];
    uint64_t g = 5;
    int n_empty = 0;
    (void)state;
    for (int round = 0; round < 60; round++) {
        const char *isa = k_isas[round % 3];
        if (!k_has_isa(isa))
            continue;
        struct bench *b = bench_new(1 + round % 3, isa, sizes[round % 5]);
        random_rows(b, &g);
        for (int step = 0; step < 40; step++) {
            for (int i = 0; i < K_MAX_ROW; i++)
                processed(b, i, x[i]);
            draw(b);
            for (int i = 0; i < K_MAX_ROW; i++) {
                const struct fdk_result *r = &b->res[i];
                const float *raw = b->keep + (size_t)i * (size_t)b->V;
                int best = best_of(x[i], b->V);
                double lse = log_sum(raw, b->V);
                if (b->rows[i].done != FDK_DONE_NO && r->token < 0)
                    continue; /* it ended with a stop id in an earlier step */
                assert_int_equal(r->token, best);
                assert_int_equal(r->bad, best < 0 ? FDK_BAD_EMPTY : 0);
                n_empty += best < 0;
                if (best >= 0)
                    k_assert_near(r->logprob, raw[best] - lse, 3e-6, "logprob", (size_t)i);
                for (int k = 0; k < b->want[i].n_chosen && b->s.out[i].rules > 0; k++)
                    k_assert_near(b->chosen[i * FDK_MAX_CHOSEN + k],
                        raw[b->want[i].chosen[k]] - lse, 3e-6, "chosen", (size_t)k);
            }
        }
        bench_free(b);
    }
    assert_true(n_empty > 10);
}

/* A row without an id left keeps its state, and other rows go on. */
static void
test_empty(void **state)
{
    struct bench *b = bench_new(2, NULL, 70);
    (void)state;
    k_fill(b->keep, K_MAX_ROW * 70, 3);
    b->want[2].n_allowed = 1;
    b->want[2].allowed[0] = 40;
    b->want[2].n_ban = 1;
    b->want[2].ban_n[0] = 1;
    b->want[2].ban[0][0] = 40;
    put_entry(b, 2);
    for (int t = 0; t < 2; t++) {
        b->rows[2].temperature = (float)t;
        draw(b);
        for (int i = 0; i < K_MAX_ROW; i++) {
            assert_int_equal(b->res[i].bad, i == 2 ? FDK_BAD_EMPTY : 0);
            assert_int_equal(b->res[i].token < 0, i == 2);
            assert_int_equal(b->rows[i].len, i == 2 ? 0 : t + 1);
        }
    }
    bench_free(b);
}

/* ---- reasoning ----------------------------------------------------------------------- */

/* Runs a step in which `id` has the highest logit. Returns the token chosen. */
static int
step(struct bench *b, int id)
{
    for (int i = 0; i < b->V; i++)
        b->keep[i] = i == id ? 9 : 0;
    draw(b);
    assert_int_equal(b->res[0].bad, 0);
    return b->res[0].token;
}

static void
test_reasoning(void **state)
{
    (void)state;
    for (int max = 0; max < 4; max++)
        for (int inside = 0; inside < 2; inside++) {
            struct bench *b = bench_new(1, NULL, 50);
            b->s.n_out = 1;
            b->want[0] = (struct want){ .open_id = 7,
                .close_id = 8,
                .max_reason = max,
                .inside = inside,
                .n_ban = 1,
                .ban_n = { 1 },
                .ban = { { 8 } },
                .n_allowed = 3,
                .allowed = { 7, 9, 20 } };
            b->rows[0].temperature = 0.001f;
            put_entry(b, 0);
            if (!inside) {
                assert_int_equal(step(b, 20), 20); /* before reasoning begins, nothing
                                                    * counts */
                assert_int_equal(step(b, 7), 7);
            }
            for (int i = 0; i < max; i++)
                assert_int_equal(step(b, i == 1 ? 7 : 9), i == 1 ? 7 : 9);
            /* forced, although it is banned, not allowed and has a small logit */
            assert_int_equal(step(b, 9), 8);
            assert_int_equal(step(b, 20), 20);
            /* reasoning begins again: nothing is left of the bound */
            assert_int_equal(step(b, 7), 7);
            assert_int_equal(step(b, 9), 8);
            bench_free(b);
        }
}

/* The model ends reasoning itself: the count stays. */
static void
test_reasoning_twice(void **state)
{
    struct bench *b = bench_new(1, NULL, 50);
    static const int ask[] = { 7, 9, 9, 8, 9, 9, 9, 7, 9, 9, 9, 9 };
    static const int want[] = { 7, 9, 9, 8, 9, 9, 9, 7, 9, 8, 9, 9 };
    (void)state;
    b->s.n_out = 1;
    b->want[0] = (struct want){ .open_id = 7, .close_id = 8, .max_reason = 3 };
    put_entry(b, 0);
    for (int i = 0; i < 12; i++)
        assert_int_equal(step(b, ask[i]), want[i]);
    bench_free(b);
}

/* ---- distributions ------------------------------------------------------------------- */

/* Exact distribution of processed logits after temperature, min_p, top_k and top_p. */
static void
distribution(const float *x, int V, const struct fdk_row *st, double *ret_p)
{
    int order[MAX_V], n = 0;
    double m = x[best_of(x, V)], z = 0, cum = 0;
    for (int i = 0; i < V; i++) {
        int j = n;
        ret_p[i] = 0;
        if (!(x[i] > -INFINITY))
            continue;
        for (; j > 0 && x[i] > x[order[j - 1]]; j--)
            order[j] = order[j - 1];
        order[j] = i;
        n++;
        ret_p[i] = exp((x[i] - m) / (double)st->temperature);
    }
    int kept = n;
    while (kept > 1 && ret_p[order[kept - 1]] < (double)st->min_p)
        kept--;
    if (st->top_k > 0 && (int)st->top_k < kept)
        kept = (int)st->top_k;
    for (int i = 0; i < kept; i++)
        z += ret_p[order[i]];
    for (int i = 0; i < kept && st->top_p < 1; i++) {
        cum += ret_p[order[i]];
        if (cum >= (double)st->top_p * z)
            kept = i + 1;
    }
    z = 0;
    for (int i = 0; i < n; i++)
        if (i >= kept)
            ret_p[order[i]] = 0;
        else
            z += ret_p[order[i]];
    for (int i = 0; i < V; i++)
        ret_p[i] /= z;
}

/* All rows have the same rules, which always have a token of row 0. */
static void
check_draws(const struct want *w, struct fdk_row params, const char *isa)
{
    enum { V = 80 };
    struct bench *b = bench_new(1, isa, V);
    static double p[MAX_V];
    static int count[MAX_V];
    static float x[MAX_V];
    int rounds = k_draw_steps();
    k_fill(b->keep, V, 11);
    for (int i = 0; i < V; i++)
        b->keep[i] *= 2;
    memset(count, 0, sizeof(count));
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < K_MAX_ROW; i++) {
            if (i > 0)
                memcpy(b->keep + (size_t)i * V, b->keep, V * 4);
            b->want[i] = *w;
            b->rows[i] = params;
            b->rows[i].max_len = 1 << 30;
            b->rows[i].penalty = -1;
            b->rows[i].repetition = 1;
            b->rows[i].seed = 1000 + (uint64_t)round;
            b->rows[i].sample = (uint32_t)i;
            b->rows[i].len = 3;
            b->tok[i][0] = 4;
            b->tok[i][1] = 5;
            b->tok[i][2] = 6;
            b->s.out[i].n_top = -1;
            put_entry(b, i);
        }
        if (round == 0) {
            processed(b, 0, x);
            distribution(x, V, &b->rows[0], p);
        }
        draw(b);
        for (int i = 0; i < K_MAX_ROW; i++) {
            assert_in_range(b->res[i].token, 0, V - 1);
            count[b->res[i].token]++;
        }
    }
    k_check_counts(p, count, V, rounds * K_MAX_ROW);
    bench_free(b);
}

static void
test_distributions(void **state)
{
    static const struct want rules[] = {
        { .max_reason = -1,
            .n_bias = 4,
            .bias_id = { 3, 60, 9, 41 },
            .bias = { 2.5f, 1, -3, -100 } },
        { .max_reason = -1, .n_allowed = 9, .allowed = { 1, 2, 5, 31, 32, 33, 64, 77, 79 } },
        { .max_reason = -1,
            .n_ban = 5,
            .ban_n = { 1, 3, 2, 2, 4 },
            .ban = { { 12 }, { 5, 6, 20 }, { 6, 21 }, { 5, 22 }, { 4, 5, 6, 23 } } },
        { .max_reason = -1,
            .n_bias = 2,
            .bias_id = { 31, 5 },
            .bias = { 1.5f, -1 },
            .n_allowed = 7,
            .allowed = { 31, 5, 6, 7, 8, 70, 71 },
            .n_ban = 2,
            .ban_n = { 1, 2 },
            .ban = { { 7 }, { 6, 8 } } },
    };
    static const struct fdk_row params[] = {
        { .temperature = 1, .top_p = 1 },
        { .temperature = 0.7f, .top_p = 0.8f },
        { .temperature = 1.5f, .top_p = 1, .top_k = 6 },
        { .temperature = 1, .top_p = 1, .min_p = 0.1f },
        { .temperature = 1.2f, .top_p = 0.9f, .top_k = 20, .min_p = 0.02f },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        for (size_t k = 0; k < sizeof(params) / sizeof(params[0]); k++)
            check_draws(&rules[i], params[k], (i + k) % 2 ? NULL : "generic");
}

/* ---- transformers ---------------------------------------------------------------------- */

static FILE *
open_reference(void)
{
    const char *src = getenv("srcdir") != NULL ? getenv("srcdir") : getenv("FDD_SRC");
    char path[4096];
    snprintf(path, sizeof(path), "%s/tests/kernel/rules_reference.txt",
        src != NULL ? src : ".");
    FILE *f = fopen(path, "r");
    if (f == NULL)
        print_error("cannot open %s\n", path);
    assert_non_null(f);
    return f;
}

static int
next_int(FILE *f)
{
    int v = 0;
    assert_int_equal(fscanf(f, "%d", &v), 1);
    return v;
}

static float
next_float(FILE *f)
{
    unsigned u = 0;
    float v;
    assert_int_equal(fscanf(f, "%x", &u), 1);
    memcpy(&v, &u, 4);
    return v;
}

/* Reads a case: logits, the row's tokens, rules; then the remaining ids, best first. */
static int
read_case(FILE *f, struct bench *b, int *order)
{
    struct want *w = &b->want[0];
    *w = (struct want){ .max_reason = -1 };
    for (int i = 0; i < b->V; i++)
        b->keep[i] = next_float(f);
    b->rows[0].len = next_int(f);
    for (int p = 0; p < b->rows[0].len; p++)
        b->tok[0][p] = next_int(f);
    b->rows[0].repetition = next_float(f);
    b->rows[0].penalty = 0;
    memset(b->counts, 0, (size_t)b->V * 2);
    for (int p = 0; p < b->rows[0].len; p++)
        b->counts[b->tok[0][p]] = 0x8000;
    w->n_bias = next_int(f);
    for (int i = 0; i < w->n_bias; i++) {
        w->bias_id[i] = next_int(f);
        w->bias[i] = next_float(f);
    }
    w->n_allowed = next_int(f);
    for (int i = 0; i < w->n_allowed; i++)
        w->allowed[i] = next_int(f);
    w->n_ban = next_int(f);
    for (int i = 0; i < w->n_ban; i++) {
        w->ban_n[i] = next_int(f);
        for (int j = 0; j < w->ban_n[i]; j++)
            w->ban[i][j] = next_int(f);
    }
    int n = next_int(f);
    for (int i = 0; i < n; i++)
        order[i] = next_int(f);
    return n;
}

/* Greedy choices, each banned afterwards, come in the order of the processed logits, and
 * stop when all ids that are not masked were chosen. */
static void
test_transformers(void **state)
{
    FILE *f = open_reference();
    char word[32];
    int n_case = 0, order[MAX_V];
    (void)state;
    while (fscanf(f, "%31s", word) == 1) {
        if (strcmp(word, "case") != 0) { /* the comment at its head */
            assert_true(word[0] == '#' && fscanf(f, "%*[^\n]") >= 0);
            continue;
        }
        struct bench *b = bench_new(1, k_isas[0], next_int(f));
        b->s.n_out = 1;
        int n = read_case(f, b, order), len = b->rows[0].len, n_own = b->want[0].n_ban;
        for (int i = 0; i <= n; i++) {
            int32_t *e = b->pool;
            put_entry(b, 0);
            b->rows[0].len = len;
            /* ids already chosen are no longer allowed */
            struct fdk_rules *h = (struct fdk_rules *)(void *)e;
            if (h->allowed == 0) {
                h->allowed = (int32_t)fdk_rules_words(b->V) - (b->V + 31) / 32;
                memset(e + h->allowed, 0xff, (size_t)(b->V + 31) / 32 * 4);
            }
            for (int k = 0; k < i; k++)
                e[h->allowed + order[k] / 32] &= (int32_t) ~(1u << order[k] % 32);
            draw(b);
            assert_int_equal(b->res[0].token, i < n ? order[i] : -1);
            assert_int_equal(b->res[0].bad, i < n ? 0 : FDK_BAD_EMPTY);
            b->rows[0].len = len;
            for (int k = 0; k < b->V; k++)
                b->counts[k] &= 0x8000;
        }
        assert_int_equal(b->want[0].n_ban, n_own);
        bench_free(b);
        n_case++;
    }
    (void)fclose(f);
    assert_int_equal(n_case, 24);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_reasoning_twice),
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
