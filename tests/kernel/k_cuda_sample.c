/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/kernel/k_two.h"

/*
 * Sampling on the cuda backend compared with the cpu backend: chosen tokens, row states,
 * penalty counts and alternatives must be equal, log-probabilities within fp32 rounding.
 * A draw could differ only if two scores agree to 15 digits, or a prefix ends within
 * 10^-7 of top_p, which is too unlikely for random numbers.
 */

enum { O = 14, R_MAX = 16, MAX_POOL = 4 };

/* Rows that run() launches; a test may set fewer than in.s.n_out. */
static int n_launch = R_MAX;

struct draw { /* inputs and results of a launch */
    struct k_step s;
    struct fdk_row rows[K_MAX_ROW];
    struct fdk_result res[R_MAX];
    uint16_t *counts; /* (MAX_POOL, V) or NULL */
    int32_t *rules;   /* (MAX_POOL, fdk_rules_words(V)) or NULL */
    float *chosen;    /* (MAX_POOL, FDK_MAX_CHOSEN), with rules */
    float *logits;    /* (R_MAX, V) */
    int V, first;
};

static struct draw in, want, got;

static void
draw_new(int V, float width)
{
    memset(&in, 0, sizeof(in));
    k_step_init(&in.s);
    in.V = V;
    in.logits = malloc(R_MAX * (size_t)V * 4);
    in.s.n_out = O;
    for (size_t i = 0; i < R_MAX * (size_t)V; i++)
        in.logits[i] = k_normal(&tw.seed) * width;
    for (int i = 0; i < K_MAX_ROW; i++) {
        in.rows[i] = (struct fdk_row){ .top_p = 1,
            .max_len = 1 << 30,
            .len = 10,
            .penalty = -1,
            .repetition = 1,
            .seed = k_rand(&tw.seed),
            .sample = (uint32_t)i,
            .generation = 100u + (unsigned)i };
        in.s.state[i] = (i * 3 + 1) % K_MAX_ROW;
        in.s.out[i] = (struct fdk_out){ .row = i, .n_top = 0, .pos = 10 + i };
    }
}

static void
draw_free(void)
{
    free(in.logits);
    free(in.counts);
    free(in.rules);
    in.counts = NULL;
    in.rules = NULL;
}

static void
run(struct two_dev *t, struct draw *out)
{
    char *d = NULL;
    struct fdk_batch b = tw_step(t, &in.s, &d);
    size_t nc = (size_t)MAX_POOL * (size_t)in.V * 2;
    size_t nr = (size_t)MAX_POOL * fdk_rules_words(in.V) * 4;
    struct fdk_sample_args a = {
        .results = tw_new(t, NULL, sizeof(in.res)),
        .state = tw_new(t, in.rows, sizeof(in.rows)),
        .counts = in.counts != NULL ? tw_new(t, in.counts, nc) : NULL,
        .rules = in.rules != NULL ? tw_new(t, in.rules, nr) : NULL,
        .rules_words = (int32_t)fdk_rules_words(in.V),
        .chosen = tw_new(t, NULL, MAX_POOL * FDK_MAX_CHOSEN * 4),
        .logits = tw_new(t, in.logits, R_MAX * (size_t)in.V * 4),
        .b = &b,
        .first = in.first,
        .R = n_launch - in.first,
        .V = in.V,
    };
    a.scratch_bytes = t->d.ops->sample_scratch(&a);
    if (a.scratch_bytes > 0)
        a.scratch = tw_new(t, NULL, a.scratch_bytes);
    OK(t->d.ops->sample(&a, t->d.st));
    tw_get(t, out->res, a.results, sizeof(out->res));
    tw_get(t, out->rows, a.state, sizeof(out->rows));
    if (in.counts != NULL)
        out->counts = tw_read(t, a.counts, nc);
    if (in.rules != NULL) {
        out->rules = tw_read(t, a.rules, nr);
        out->chosen = tw_read(t, a.chosen, MAX_POOL * FDK_MAX_CHOSEN * 4);
    }
    tw_free(t);
}

/* Compares the rules on the device after the launch, and the logprobs of chosen ids. */
static void
compare_rules(void)
{
    tw_same(got.rules, want.rules, (size_t)MAX_POOL * fdk_rules_words(in.V) * 4, "rules");
    for (int i = 0; i < MAX_POOL; i++) {
        const int32_t *e = in.rules + (size_t)i * fdk_rules_words(in.V);
        for (int k = 0; k < ((const struct fdk_rules *)(const void *)e)->n_chosen; k++)
            k_assert_near(got.chosen[i * FDK_MAX_CHOSEN + k],
                want.chosen[i * FDK_MAX_CHOSEN + k], 5e-6, "chosen", (size_t)k);
    }
    free(got.rules);
    free(want.rules);
    free(got.chosen);
    free(want.chosen);
}

/* The tolerance of a log-probability: fp32 exponentials of V ids. */
static void
compare(void)
{
    run(&tw.cpu, &want);
    run(&tw.gpu, &got);
    for (int o = 0; o < R_MAX; o++) {
        struct fdk_result *g = &got.res[o], *w = &want.res[o];
        assert_int_equal(g->token, w->token);
        if (o < in.first || o >= O)
            continue; /* poison in both, as the equal token shows */
        assert_int_equal(g->done, w->done);
        assert_int_equal(g->bad, w->bad);
        assert_int_equal(g->generation, w->generation);
        assert_int_equal(g->n_top, w->n_top);
        k_assert_near(g->logprob, w->logprob, 5e-6, "logprob", (size_t)o);
        for (int i = 0; i < w->n_top; i++) {
            assert_int_equal(g->top_id[i], w->top_id[i]);
            k_assert_near(g->top_logprob[i], w->top_logprob[i], 5e-6, "top", (size_t)i);
        }
    }
    tw_same(&got.res[O], &want.res[O], (R_MAX - O) * sizeof(got.res[0]), "padding");
    tw_same(got.rows, want.rows, sizeof(got.rows), "states");
    if (in.counts != NULL) {
        tw_same(got.counts, want.counts, (size_t)MAX_POOL * (size_t)in.V * 2, "counts");
        free(got.counts);
        free(want.counts);
    }
    if (in.rules != NULL)
        compare_rules();
}

static void
greedy_and_scores(void **state)
{
    static const int sizes[] = { 1, 3, 50, 4097, 32000, 400003 };
    (void)state;
    for (int i = 0; i < 12; i++) {
        if (!tw_takes((size_t)i, 3))
            continue;
        draw_new(sizes[i / 2], 3);
        for (int o = 0; o < O; o++) {
            in.s.out[o].n_top = o % 5 == 0 ? -1 : tw_int(0, FDK_MAX_LOGPROBS + 2);
            in.s.out[o].kind = o % 3 == 2 ? FDK_OUT_SCORE : FDK_OUT_SAMPLE;
            in.s.out[o].target = o == 5 ? in.V : tw_int(0, in.V - 1);
        }
        /* Ties go to the lower id; zeros have two signs. */
        for (int j = 0; i % 2 && j < R_MAX * in.V; j++)
            in.logits[j] = (float)(int)in.logits[j] * (j % 7 == 0 ? -0.0f : 1);
        in.first = i % 4;
        compare();
        draw_free();
    }
}

static void
masks_stops_and_bad_numbers(void **state)
{
    (void)state;
    for (int round = 0; round < 6; round++) {
        draw_new(round % 2 ? 40 : 1000, 4);
        for (int i = 0; i < K_MAX_ROW; i++) {
            struct fdk_row *r = &in.rows[i];
            r->temperature = i % 3 == 0 ? 0 : 0.8f;
            r->min_len = tw_int(8, 14);
            r->max_len = tw_int(10, 13);
            r->n_stop = tw_int(0, FDK_MAX_STOP_IDS);
            for (int k = 0; k < r->n_stop; k++)
                r->stop_ids[k] = tw_int(-1, round % 2 ? 44 : 200);
            r->done = i % 5 == 4 ? FDK_DONE_STOP : FDK_DONE_NO;
            in.s.out[i].n_top = i % 2 ? 3 : -1;
        }
        /* Every id masked, a NaN, an Inf of each sign. */
        in.rows[2].n_stop = 40;
        in.rows[2].min_len = 20;
        for (int k = 0; k < 40; k++)
            in.rows[2].stop_ids[k] = k;
        in.logits[3 * in.V + in.V / 2] = NAN;
        in.logits[4 * in.V + in.V - 1] = INFINITY;
        in.logits[5 * in.V] = -INFINITY;
        compare();
        draw_free();
    }
}

static void
random_params(struct fdk_row *r)
{
    static const uint32_t ks[] = { 0, 0, 1, 2, 40, 5000, 1u << 30 };
    static const float ps[] = { 1, 1, 0.9f, 0.5f, 0.01f, 0, 0.999f };
    static const float ms[] = { 0, 0, 0.05f, 0.5f, 1 };
    static const float ts[] = { 1, 0.7f, 0.2f, 1.8f, 1e-6f };
    r->top_k = ks[tw_int(0, 6)];
    r->top_p = ps[tw_int(0, 6)];
    r->min_p = ms[tw_int(0, 4)];
    r->temperature = ts[tw_int(0, 4)];
}

static void
draws_equal_the_cpu(void **state)
{
    static const int sizes[] = { 2, 17, 300, 4096, 32000, 151936 };
    (void)state;
    for (int round = 0; round < 36; round++) {
        if (!tw_takes((size_t)round, 7))
            continue;
        draw_new(sizes[round % 6], round % 3 ? 2.5f : 6);
        for (int i = 0; i < K_MAX_ROW; i++)
            random_params(&in.rows[i]);
        /* Many equal logits at every border. */
        for (int j = 0; round % 4 == 3 && j < R_MAX * in.V; j++)
            in.logits[j] = (float)(int)in.logits[j];
        compare();
        draw_free();
    }
}

/* Crowded logits: values that a histogram, a list or a bound cannot distinguish. */
static void
crowd(int kind, size_t row)
{
    float *x = in.logits + row * (size_t)in.V;
    for (int i = 0; i < in.V; i++) {
        float u = x[i];
        x[i] = kind == 0 ? 1.5f : /* all equal */
            kind == 1 ? (i == 77 % in.V ? 900 : u)
                      : /* the others far below */
            kind == 2 ? 1 + 1e-6f * u
                      : /* few bits apart */
            kind == 3 ? (i % 3 ? -3e38f : u)
                      : /* padding */
            kind == 4 ? floorf(u) * 1e-20f
                      : /* ties, tiny */
            kind == 5 ? (i < 2000 ? 3 : u - 8)
                      : /* a plateau at the top */
            kind == 6 ? u * 1e36f
                      :                /* wide beyond any exponential */
            (float)(in.V - i) * 1e-3f; /* in order */
    }
}

static void
crowded_draws_equal_the_cpu(void **state)
{
    static const uint32_t ks[] = { 0, 1, 64, 65, 130, 300, 512, 513, 3000, 20000 };
    (void)state;
    for (int round = 0; round < 24; round++) {
        if (!tw_takes((size_t)round, 5))
            continue;
        draw_new(round % 3 == 0 ? 50257 : round % 3 == 1 ? 128256 : 4001, 2);
        for (int i = 0; i < R_MAX; i++)
            crowd((round + i) % 8, (size_t)i);
        for (int i = 0; i < K_MAX_ROW; i++) {
            random_params(&in.rows[i]);
            in.rows[i].top_k = ks[tw_int(0, 9)];
            in.s.out[i].n_top = i % 3 == 0 ? tw_int(0, FDK_MAX_LOGPROBS) : -1;
        }
        compare();
        draw_free();
    }
}

/* Each warp has one of the best ids, and top_k is about their number. */
static void
best_ids_of_each_warp(void **state)
{
    enum { V = 128256, BLOCKS = 8, WARPS = 16, SHARE = V / 4 / BLOCKS };
    static const uint32_t ks[] = { BLOCKS * WARPS - 1, BLOCKS * WARPS, BLOCKS * WARPS + 1 };
    (void)state;
    draw_new(V, 2.5f);
    for (size_t r = 0; r < R_MAX; r++)
        for (int i = 0; i < BLOCKS * WARPS; i++)
            in.logits[r * V + (size_t)(4 * (i / WARPS * SHARE + 32 * (i % WARPS)))] += 100;
    for (int i = 0; i < K_MAX_ROW; i++) {
        in.rows[i].temperature = 30;
        in.rows[i].top_k = ks[i % 3];
        in.rows[i].top_p = i % 4 == 3 ? 0.9f : 1;
        in.s.out[i].n_top = i % 2 ? FDK_MAX_LOGPROBS : -1;
    }
    compare();
    draw_free();
}

/* Launches of one row and of all have clusters of different sizes. */
static void
a_row_has_its_bits_in_any_company(void **state)
{
    static struct draw all;
    (void)state;
    for (int round = 0; round < 4 && tw_takes((size_t)round, 4); round++) {
        draw_new(round % 2 ? 128256 : 151936, round < 2 ? 2.5f : 6);
        for (int i = 0; i < K_MAX_ROW; i++) {
            random_params(&in.rows[i]);
            in.s.out[i].n_top = i % FDK_MAX_LOGPROBS;
        }
        run(&tw.gpu, &all);
        for (int o = 0; o < O; o++) {
            in.first = o; /* the first row of logits belongs to this output */
            n_launch = o + 1;
            memcpy(in.logits, in.logits + (size_t)o * (size_t)in.V, (size_t)in.V * 4);
            run(&tw.gpu, &got);
            tw_same(&got.res[o], &all.res[o], sizeof(got.res[o]), "result");
        }
        in.first = 0;
        n_launch = R_MAX;
        draw_free();
    }
}

/* With fewer rows, the row after the last may hold anything. */
static void
rows_that_nobody_asked_for(void **state)
{
    (void)state;
    draw_new(32000, 3);
    n_launch = 4;
    in.s.n_out = 2;
    for (int o = 2; o < R_MAX; o++)
        in.s.out[o].row = in.s.state[o] = 1 << 30;
    run(&tw.gpu, &got);
    for (int o = 0; o < 2; o++)
        assert_true(got.res[o].token >= 0 && got.res[o].bad == 0);
    for (int o = 2; o < R_MAX; o++)
        assert_int_equal(got.res[o].token, TW_POISON * 0x01010101);
    n_launch = R_MAX;
    draw_free();
}

static void
penalties_equal_the_cpu(void **state)
{
    (void)state;
    for (int round = 0; round < 12; round++) {
        if (!tw_takes((size_t)round, 5))
            continue;
        draw_new(round % 2 ? 333 : 20000, 3);
        in.counts = calloc(MAX_POOL * (size_t)in.V, 2);
        for (size_t i = 0; i < MAX_POOL * (size_t)in.V; i++)
            in.counts[i] = (uint16_t)(tw_int(0, 3) ? 0
                    : tw_int(0, 1)                 ? (tw_int(0, 1) << 15) + tw_int(0, 5)
                                                   : 0x7fff + (tw_int(0, 1) << 15));
        for (int i = 0; i < MAX_POOL; i++) {
            struct fdk_row *r = &in.rows[i];
            random_params(r);
            r->temperature = round % 3 == 0 ? 0 : 0.9f;
            r->penalty = i;
            r->presence = 0.25f * (float)tw_int(-4, 4);
            r->frequency = 0.01f * (float)tw_int(-10, 10);
            r->repetition = 1 + 0.1f * (float)tw_int(-3, 5);
            in.s.out[i].n_top = 4;
        }
        compare();
        draw_free();
    }
}

/* Makes an entry with all kinds of lists. left: number of ids
 * that may be chosen, 0: all. */
static void
random_rules(int32_t *e, int len, int left)
{
    struct fdk_rules *h = (struct fdk_rules *)(void *)e;
    int32_t at = FDK_RULES_HEAD, step = in.V / 64;
    *h = (struct fdk_rules){ .max_reason = tw_int(-1, 3),
        .open_id = 1,
        .close_id = 2,
        .in_reason = tw_int(0, 1),
        .n_reason = tw_int(0, 3),
        .n_bias = tw_int(0, 60),
        .bias = at };
    for (int i = 0; i < h->n_bias; i++) {
        float bias = 0.25f * (float)tw_int(-20, 20);
        e[at + i] = i * step + tw_int(0, step - 1);
        memcpy(&e[at + h->n_bias + i], &bias, 4);
    }
    at += 2 * h->n_bias;
    if (left > 0) {
        h->allowed = at;
        memset(e + at, 0, ((size_t)in.V + 31) / 32 * 4);
        for (int i = 0; i < left; i++) {
            int id = tw_int(0, in.V - 1);
            e[at + id / 32] = (int32_t)((uint32_t)e[at + id / 32] | 1u << id % 32);
        }
        at += (in.V + 31) / 32;
    }
    for (int i = 0; i < FDK_MAX_BAN_LEN; i++)
        h->recent[i] = tw_int(0, 2);
    h->n_ban = tw_int(0, FDK_MAX_BANS);
    h->ban = at;
    at += h->n_ban + 1;
    for (int i = 0; i < h->n_ban; i++) {
        int n = tw_int(0, 3);
        e[h->ban + i] = at;
        for (int k = n; k > 0; k--)
            e[at++] = tw_int(0, 3) ? h->recent[(len - k) % FDK_MAX_BAN_LEN] : 3;
        e[at++] = tw_int(0, in.V - 1);
    }
    e[h->ban + h->n_ban] = at;
    h->n_chosen = tw_int(0, FDK_MAX_CHOSEN);
    h->chosen = at;
    for (int i = 0; i < h->n_chosen; i++)
        e[at++] = tw_int(0, in.V - 1);
}

static void
out_rules(struct fdk_out *o, int32_t at)
{
    fdk_out_rules(o, at, (const void *)(in.rules + (size_t)at * fdk_rules_words(in.V)));
}

static void
rules_equal_the_cpu(void **state)
{
    static const int sizes[] = { 20000, 333, 128256 };
    (void)state;
    for (int round = 0; round < 24; round++) {
        if (!tw_takes((size_t)round, 5))
            continue;
        draw_new(sizes[round / 3 % 3], 3);
        in.counts = calloc(MAX_POOL * (size_t)in.V, 2);
        in.rules = calloc(MAX_POOL * fdk_rules_words(in.V), 4);
        for (size_t i = 0; i < MAX_POOL * (size_t)in.V; i++)
            in.counts[i] = (uint16_t)(tw_int(0, 3) ? 0 : 0x8000);
        for (int i = 0; i < MAX_POOL; i++) {
            struct fdk_row *r = &in.rows[i];
            random_params(r);
            r->temperature = round % 3 == 0 ? 0 : 0.9f;
            r->len = 40;
            r->penalty = round % 4 < 2 ? i : -1;
            r->repetition = 1.3f;
            r->min_len = tw_int(38, 44);
            r->n_stop = tw_int(0, FDK_MAX_STOP_IDS);
            for (int k = 0; k < r->n_stop; k++)
                r->stop_ids[k] = tw_int(0, in.V - 1);
            random_rules(in.rules + (size_t)i * fdk_rules_words(in.V), r->len,
                i == 0 ? 0 : 1 << tw_int(0, 6));
            in.s.out[i].n_top = i % 2 ? 4 : -1;
        }
        for (int o = 0; o < K_MAX_ROW; o++)
            if (in.s.state[in.s.out[o].row] < MAX_POOL)
                out_rules(&in.s.out[o], in.s.state[in.s.out[o].row]);
        compare();
        draw_free();
    }
}

/* A row too long for the shared memory of a cluster. */
static void
too_many_ids(void **state)
{
    static float v[4];
    struct k_step s;
    (void)state;
    k_step_init(&s);
    struct fdk_sample_args a = { .results = (void *)v,
        .state = (void *)v,
        .logits = v,
        .b = &s.b,
        .R = 1,
        .V = 786433 };
    assert_int_equal(tw.gpu.d.ops->sample(&a, tw.gpu.d.st), -ENOTSUP);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_and_scores),
        cmocka_unit_test(masks_stops_and_bad_numbers),
        cmocka_unit_test(draws_equal_the_cpu),
        cmocka_unit_test(crowded_draws_equal_the_cpu),
        cmocka_unit_test(best_ids_of_each_warp),
        cmocka_unit_test(a_row_has_its_bits_in_any_company),
        cmocka_unit_test(rows_that_nobody_asked_for),
        cmocka_unit_test(penalties_equal_the_cpu),
        cmocka_unit_test(rules_equal_the_cpu),
        cmocka_unit_test(too_many_ids),
    };
    int rc = tw_open();
    if (rc != 0)
        return rc;
    if (argc > 1)
        cmocka_set_skip_filter(argv[1]);
    rc = cmocka_run_group_tests_name("k_cuda_sample", tests, NULL, NULL);
    tw_close();
    return rc;
}
