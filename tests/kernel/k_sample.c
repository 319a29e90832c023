/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/kernel/k_draws.h"
#include "tests/kernel/k_util.h"

/*
 * Sampling: Philox compared with its published vectors, greedy choices and scores
 * with references, drawn frequencies with exact probabilities, and the state that a
 * row keeps between steps.
 */

enum { MAX_V = 9000 };

struct bench { /* rows of logits with all other arguments */
    struct k_dev d;
    struct k_step s;
    struct fdk_row rows[K_MAX_ROW];
    struct fdk_result res[K_MAX_ROW];
    float *logits, *keep; /* keep: the input, as sampling may overwrite logits */
    uint16_t *counts;     /* NULL: none */
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
    k_step_init(&b->s);
    for (int i = 0; i < K_MAX_ROW; i++) {
        b->rows[i] = (struct fdk_row){
            .top_p = 1,
            .max_len = 1 << 30,
            .len = 10,
            .penalty = -1,
            .generation = 100u + (unsigned)i,
        };
        b->s.state[i] = i;
        b->s.out[i] = (struct fdk_out){ .row = i, .n_top = 0, .pos = 10 };
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
    free(b);
}

static void
fill_logits(struct bench *b, uint64_t seed, float width)
{
    k_fill(b->keep, K_MAX_ROW * (size_t)b->V, seed);
    for (size_t i = 0; i < K_MAX_ROW * (size_t)b->V; i++)
        b->keep[i] *= width;
}

static void
draw(struct bench *b)
{
    memcpy(b->logits, b->keep, K_MAX_ROW * (size_t)b->V * 4);
    struct fdk_sample_args a = {
        .results = b->res,
        .state = b->rows,
        .logits = b->logits,
        .b = &b->s.b,
        .counts = b->counts,
        .R = K_MAX_ROW,
        .V = b->V,
    };
    a.scratch_bytes = b->d.ops->sample_scratch(&a);
    a.scratch = malloc(a.scratch_bytes);
    assert_int_equal(b->d.ops->sample(&a, b->d.st), 0);
    k_sync(&b->d);
    free(a.scratch);
}

/* Rows of logits with a stride: memory between them is not used. */
static void
test_rows_apart(void **state)
{
    enum { N = 333, LD = 344 };
    (void)state;
    for (int more = 0; more < 2; more++) {
        struct bench *b = bench_new(2, NULL, more ? N + 3 : N);
        struct fdk_result want[K_MAX_ROW];
        float *wide = malloc(K_MAX_ROW * LD * sizeof(float));
        assert_non_null(wide);
        fill_logits(b, 5, 3);
        for (int i = 0; i < K_MAX_ROW; i++) {
            b->rows[i].temperature = i % 2 != 0 ? 0.8f : 0;
            b->rows[i].seed = (uint64_t)i;
            b->s.out[i].n_top = 4;
        }
        struct fdk_row rows[K_MAX_ROW];
        memcpy(rows, b->rows, sizeof(rows));
        draw(b);
        memcpy(want, b->res, sizeof(want));
        memcpy(b->rows, rows, sizeof(rows));
        for (int i = 0; i < K_MAX_ROW * LD; i++)
            wide[i] = 1e9f;
        for (int i = 0; i < K_MAX_ROW; i++)
            memcpy(wide + i * LD, b->keep + (size_t)i * (size_t)b->V,
                (size_t)b->V * sizeof(float));
        struct fdk_sample_args a = {
            .results = b->res,
            .state = b->rows,
            .logits = wide,
            .b = &b->s.b,
            .R = K_MAX_ROW,
            .V = b->V,
            .ldl = LD,
        };
        a.scratch_bytes = b->d.ops->sample_scratch(&a);
        a.scratch = malloc(a.scratch_bytes);
        assert_int_equal(b->d.ops->sample(&a, b->d.st), 0);
        k_sync(&b->d);
        assert_memory_equal(b->res, want, sizeof(want));
        a.ldl = b->V - 1;
        assert_int_equal(b->d.ops->sample(&a, b->d.st), -EINVAL);
        free(a.scratch);
        free(wide);
        bench_free(b);
    }
}

static void
test_philox(void **state)
{
    /* Random123 kat_vectors, philox4x32 10. */
    static const uint32_t kat[][10] = {
        { 0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 },
        { ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd },
        { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0,
            0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 },
    };
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        uint32_t r[4];
        fdk_philox((uint64_t)kat[i][5] << 32 | kat[i][4], kat[i], r);
        assert_memory_equal(r, kat[i] + 6, 16);
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

/* Compares greedy choices, log-probabilities and alternatives with a plain search. */
static void
check_greedy(struct bench *b, int n_top)
{
    for (int i = 0; i < K_MAX_ROW; i++) {
        b->s.out[i].n_top = n_top;
        b->s.out[i].kind = i % 3 == 2 ? FDK_OUT_SCORE : FDK_OUT_SAMPLE;
        b->s.out[i].target = i * 7 % b->V;
    }
    draw(b);
    for (int i = 0; i < K_MAX_ROW; i++) {
        const float *x = b->keep + (size_t)i * (size_t)b->V;
        const struct fdk_result *r = &b->res[i];
        double lse = log_sum(x, b->V);
        int best = 0, used[FDK_MAX_LOGPROBS];
        for (int j = 1; j < b->V; j++)
            best = x[j] > x[best] ? j : best;
        assert_int_equal(r->bad, 0);
        assert_int_equal(r->token, i % 3 == 2 ? i * 7 % b->V : best);
        assert_int_equal(r->generation, 100 + i);
        assert_int_equal(b->rows[i].len, i % 3 == 2 ? 10 : 11);
        b->rows[i].len = 10;
        k_assert_near(r->logprob, x[r->token] - lse, 3e-6, "logprob", (size_t)i);
        assert_int_equal(r->n_top, n_top < b->V ? n_top : b->V);
        for (int k = 0; k < r->n_top; k++) {
            int c = -1;
            for (int j = 0; j < b->V; j++) {
                int seen = 0;
                for (int u = 0; u < k; u++)
                    seen |= used[u] == j;
                if (!seen && (c < 0 || x[j] > x[c]))
                    c = j;
            }
            used[k] = c;
            assert_int_equal(r->top_id[k], c);
            k_assert_near(r->top_logprob[k], x[c] - lse, 3e-6, "top", (size_t)k);
        }
    }
}

static void
test_greedy(void **state)
{
    static const int sizes[] = { 1, 3, 16, 50, 4096, 4097, MAX_V };
    (void)state;
    for (int i = 0; i < 3; i++)
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]) && k_has_isa(k_isas[i]);
             s++) {
            struct bench *b = bench_new(1 + (int)s % 3, k_isas[i], sizes[s]);
            fill_logits(b, s, 3);
            check_greedy(b, (int)s * 3);
            /* Many ties: the lower id wins everywhere. */
            for (int j = 0; j < K_MAX_ROW * b->V; j++)
                b->keep[j] = (float)(int)b->keep[j];
            check_greedy(b, FDK_MAX_LOGPROBS);
            bench_free(b);
        }
}

/* Exact distribution after temperature, min_p, top_k and top_p. */
static void
distribution(const float *x, int V, const struct fdk_row *st, double *ret_p)
{
    static int order[MAX_V];
    int n = V;
    double m = x[0], z = 0, cum = 0;
    for (int i = 0; i < V; i++) {
        int j = i;
        for (; j > 0 && x[i] > x[order[j - 1]]; j--)
            order[j] = order[j - 1];
        order[j] = i;
        m = x[i] > m ? x[i] : m;
    }
    for (int i = 0; i < V; i++)
        ret_p[i] = exp((x[i] - m) / (double)st->temperature);
    while (n > 1 && ret_p[order[n - 1]] < (double)st->min_p)
        n--;
    if (st->top_k > 0 && (int)st->top_k < n)
        n = (int)st->top_k;
    for (int i = 0; i < n; i++)
        z += ret_p[order[i]];
    for (int i = 0; i < n && st->top_p < 1; i++) {
        cum += ret_p[order[i]];
        if (cum >= (double)st->top_p * z)
            n = i + 1;
    }
    z = 0;
    for (int i = 0; i < V; i++)
        if (i >= n)
            ret_p[order[i]] = 0;
        else
            z += ret_p[order[i]];
    for (int i = 0; i < V; i++)
        ret_p[i] /= z;
}

static void
check_draws(int V, float width, struct fdk_row params, const char *isa)
{
    int rounds = k_draw_steps();
    static double p[MAX_V];
    static int count[MAX_V];
    struct bench *b = bench_new(2, isa, V);
    fill_logits(b, 77, width);
    for (int i = 1; i < K_MAX_ROW; i++)
        memcpy(b->keep + (size_t)i * (size_t)V, b->keep, (size_t)V * 4);
    memset(count, 0, sizeof(count));
    distribution(b->keep, V, &params, p);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < K_MAX_ROW; i++) {
            b->rows[i].temperature = params.temperature;
            b->rows[i].top_k = params.top_k;
            b->rows[i].top_p = params.top_p;
            b->rows[i].min_p = params.min_p;
            b->rows[i].seed = 42 + (uint64_t)i % 4;
            b->rows[i].sample = (uint32_t)i / 4;
            b->s.out[i].pos = round;
            b->s.out[i].n_top = -1;
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
    static const struct fdk_row params[] = {
        { .temperature = 1, .top_p = 1 },
        { .temperature = 0.6f, .top_p = 1 },
        { .temperature = 2, .top_p = 1, .top_k = 5 },
        { .temperature = 1, .top_p = 0.7f },
        { .temperature = 1.5f, .top_p = 0.9f, .top_k = 20 },
        { .temperature = 1, .top_p = 1, .min_p = 0.05f },
        { .temperature = 0.8f, .top_p = 0.95f, .top_k = 40, .min_p = 0.02f },
        { .temperature = 2, .top_p = 0.6f, .min_p = 0.3f },
        { .temperature = 1.5f, .top_p = 0.5f, .top_k = 30, .min_p = 0.2f },
        { .temperature = 1, .top_p = 0, .top_k = 0 },
        { .temperature = 1, .top_p = 1, .top_k = 1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(params) / sizeof(params[0]); i++) {
        check_draws(50, 1.5f, params[i], i % 2 ? NULL : "generic");
        check_draws(130, 4, params[i], i % 2 ? "generic" : NULL);
    }
}

/* Gumbel-max by the documented rule, in simple code. */
static int
reference_draw(const float *x, int V, const struct fdk_row *st, uint32_t pos)
{
    double best = -INFINITY;
    int id = -1;
    for (int i = 0; i < V; i++) {
        const uint32_t ctr[4] = { pos, st->sample, 0, (uint32_t)i / 4 };
        uint32_t w[4];
        fdk_philox(st->seed, ctr, w);
        double s = (double)x[i] / (double)st->temperature -
            log(-log(((double)w[i % 4] + 0.5) * 0x1p-32));
        if (s > best) {
            best = s;
            id = i;
        }
    }
    return id;
}

/* The shortcuts over the whole vocabulary never miss the winner; the number of threads,
 * the instruction set and the row's place do not matter. */
static void
test_exact_draw(void **state)
{
    (void)state;
    for (int isa = 0; isa < 3; isa++)
        for (int threads = 1; threads <= 3 && k_has_isa(k_isas[isa]); threads++) {
            struct bench *b = bench_new(threads, k_isas[isa], 4500 + threads);
            fill_logits(b, 5, 0.5f + (float)threads);
            for (int round = 0; round < 8; round++) {
                for (int i = 0; i < K_MAX_ROW; i++) {
                    b->rows[i].seed = (uint64_t)i << 33 | 7;
                    b->rows[i].temperature = 0.1f + 0.3f * (float)i;
                    b->s.out[i].pos = round;
                }
                draw(b);
                for (int i = 0; i < K_MAX_ROW; i++)
                    assert_int_equal(b->res[i].token,
                        reference_draw(b->keep + (size_t)i * (size_t)b->V, b->V,
                            &b->rows[i], (uint32_t)round));
            }
            bench_free(b);
        }
}

static void
test_bad_logits(void **state)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    (void)state;
    for (int isa = 0; isa < 3; isa++)
        for (int k = 0; k < 9 && k_has_isa(k_isas[isa]); k++) {
            struct bench *b = bench_new(2, k_isas[isa], 4100);
            static const int where[] = { 0, 2077, 4099 };
            fill_logits(b, 5, 1);
            b->keep[3 * b->V + where[k / 3]] = bad[k % 3];
            draw(b);
            for (int i = 0; i < K_MAX_ROW; i++) {
                assert_int_equal(b->res[i].bad, i == 3);
                assert_int_equal(b->res[i].token == -1, i == 3);
                assert_int_equal(b->rows[i].len, i == 3 ? 10 : 11);
            }
            bench_free(b);
        }
}

static void
test_state(void **state)
{
    struct bench *b = bench_new(2, NULL, 100);
    (void)state;
    fill_logits(b, 6, 1);
    for (int i = 0; i < K_MAX_ROW; i++)
        b->keep[i * 100 + 40 + i] = 50; /* the greedy choice */
    b->rows[0].stop_ids[1] = 40;
    b->rows[0].n_stop = 2;
    b->rows[1].max_len = 11;
    b->rows[2].stop_ids[0] = 42; /* masked below min_len */
    b->rows[2].n_stop = 1;
    b->rows[2].min_len = 11;
    b->rows[3].done = FDK_DONE_STOP;
    b->rows[3].last_token = 9;
    b->s.state[4] = 5; /* rows and states have different order */
    b->s.state[5] = 4;
    b->s.n_out = 6;
    memset(b->res, 0x55, sizeof(b->res));
    draw(b);
    assert_int_equal(b->res[0].token, 40);
    assert_int_equal(b->res[0].done, FDK_DONE_STOP);
    assert_int_equal(b->rows[0].done, FDK_DONE_STOP);
    assert_int_equal(b->res[1].done, FDK_DONE_LENGTH);
    assert_int_equal(b->rows[1].last_token, 41);
    assert_int_not_equal(b->res[2].token, 42);
    assert_int_equal(b->res[2].done, FDK_DONE_NO);
    assert_int_equal(b->res[3].token, -1);
    assert_int_equal(b->res[3].done, FDK_DONE_STOP);
    assert_int_equal(b->rows[3].len, 10);
    assert_int_equal(b->rows[3].last_token, 9);
    assert_int_equal(b->rows[5].last_token, 44);
    assert_int_equal(b->res[4].generation, 105);
    assert_int_equal(b->res[6].token, 0x55555555);
    draw(b); /* now min_len is reached */
    assert_int_equal(b->res[2].token, 42);
    assert_int_equal(b->res[2].done, FDK_DONE_STOP);
    assert_int_equal(b->res[0].token, -1);
    bench_free(b);
}

/* ---- penalties ----------------------------------------------------------- */

static float
penalized(float x, uint16_t c, const struct fdk_row *st)
{
    if (c == 0)
        return x;
    x = x > 0 ? x / st->repetition : x * st->repetition;
    if ((c & 0x7fff) != 0) {
        volatile float all = st->frequency * (float)(c & 0x7fff);
        x -= all;
        x -= st->presence;
    }
    return x;
}

/* Half the ids unseen, some in the prompt, some in the output, some in both; row i has
 * the counts (i * 5) % 16, except rows 3 and 11, which have none. */
static void
penalty_rows(struct bench *b, uint64_t seed)
{
    size_t n = K_MAX_ROW * (size_t)b->V;
    b->counts = malloc(n * 2);
    for (size_t i = 0; i < n; i++) {
        uint64_t r = k_rand(&seed);
        b->counts[i] = (uint16_t)(r & 1 ? 0 : (r & 2) << 14 | (r & 4 ? r >> 8 & 7 : 0));
    }
    for (int i = 0; i < K_MAX_ROW; i++) {
        struct fdk_row *st = &b->rows[i];
        st->penalty = i % 8 == 3 ? -1 : i * 5 % K_MAX_ROW;
        st->repetition = i % 4 == 0 ? 1 : 0.7f + 0.11f * (float)i;
        st->frequency = i % 3 == 0 ? 0 : 0.3f * (float)(i - 7);
        st->presence = i % 5 == 0 ? 0 : 0.17f * (float)i - 1;
        st->temperature = i < 8 ? 0 : 0.4f + 0.1f * (float)i;
        st->seed = (uint64_t)i << 34 | 5;
        b->s.out[i].n_top = 2;
    }
}

static void
check_penalties(struct bench *b, int round)
{
    size_t V = (size_t)b->V;
    float *x = malloc(V * 4);
    uint16_t *before = malloc(K_MAX_ROW * V * 2);
    memcpy(before, b->counts, K_MAX_ROW * V * 2);
    for (int i = 0; i < K_MAX_ROW; i++)
        b->s.out[i].pos = round;
    draw(b);
    for (int i = 0; i < K_MAX_ROW; i++) {
        const struct fdk_row *st = &b->rows[i];
        const float *raw = b->keep + (size_t)i * V;
        uint16_t *counts = st->penalty < 0 ? NULL : before + (size_t)st->penalty * V;
        int best = 0, top = 0;
        for (size_t j = 0; j < V; j++) {
            x[j] = counts != NULL ? penalized(raw[j], counts[j], st) : raw[j];
            best = x[j] > x[best] ? (int)j : best;
            top = raw[j] > raw[top] ? (int)j : top;
        }
        if (st->temperature > 0)
            best = reference_draw(x, b->V, st, (uint32_t)round);
        assert_int_equal(b->res[i].token, best);
        assert_int_equal(b->res[i].top_id[0], top);
        k_assert_near(b->res[i].logprob, raw[best] - log_sum(raw, b->V), 3e-6, "logprob",
            (size_t)i);
        if (counts != NULL && (counts[best] & 0x7fff) != 0x7fff)
            counts[best]++;
    }
    assert_memory_equal(before, b->counts, K_MAX_ROW * V * 2);
    free(before);
    free(x);
}

static void
test_penalties(void **state)
{
    static const int sizes[] = { 3, 61, 1000, 4099 };
    (void)state;
    for (int k = 0; k < 12; k++) {
        if (!k_has_isa(k_isas[k % 3]))
            continue;
        struct bench *b = bench_new(1 + k % 2, k_isas[k % 3], sizes[k / 3]);
        penalty_rows(b, (uint64_t)k);
        fill_logits(b, (uint64_t)k, 2);
        for (int round = 0; round < 12; round++)
            check_penalties(b, round);
        bench_free(b);
    }
}

/* Counts change for sampled tokens of rows that have them, and nowhere else. */
static void
test_penalty_counts(void **state)
{
    struct bench *b = bench_new(2, NULL, 40);
    (void)state;
    fill_logits(b, 3, 0.1f);
    b->counts = calloc(K_MAX_ROW * 40, 2);
    for (int i = 0; i < K_MAX_ROW; i++) {
        b->keep[i * 40 + 9] = 50;
        b->rows[i].penalty = i;
        b->rows[i].repetition = 1;
        b->counts[i * 40 + 9] = 6;
    }
    b->counts[0 * 40 + 9] = 0x7fff; /* the maximum */
    b->counts[1 * 40 + 9] = 0xffff;
    b->counts[2 * 40 + 9] = 0xfffe;
    b->rows[3].penalty = -1;
    b->rows[4].done = FDK_DONE_STOP;
    b->keep[5 * 40 + 1] = NAN;
    b->s.out[6].kind = FDK_OUT_SCORE;
    b->s.out[6].target = 9;
    b->rows[7].frequency = 1e30f;  /* 9 can no longer win */
    b->rows[8].frequency = -1e38f; /* overflows: no order is left */
    b->rows[9].min_len = 11;       /* both at once */
    b->rows[9].stop_ids[0] = 9;
    b->rows[9].n_stop = 1;
    b->rows[9].presence = 0.01f;
    b->s.n_out = 10;
    draw(b);
    static const uint16_t want[] = { 0x7fff, 0xffff, 0xffff, 6, 6, 6, 6, 6, 6, 6, 6 };
    for (int i = 0; i < 11; i++)
        assert_int_equal(b->counts[i * 40 + 9], want[i]);
    for (int i = 0; i < 10; i++) {
        int sum = 0;
        for (int j = 0; j < 40; j++)
            sum += j != 9 && b->counts[i * 40 + j] == 1;
        assert_int_equal(sum, i == 7 || i == 9);
        assert_int_equal(b->res[i].bad, i == 5 || i == 8);
        assert_int_equal(b->res[i].token == 9, i != 4 && i != 5 && i < 7);
    }
    assert_int_equal(b->rows[8].len, 10);
    draw(b); /* no stop id is masked now */
    assert_int_equal(b->res[9].token, 9);
    assert_int_equal(b->counts[9 * 40 + 9], 7);
    bench_free(b);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_rows_apart),
        cmocka_unit_test(test_bad_logits),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_exact_draw),
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_penalty_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
