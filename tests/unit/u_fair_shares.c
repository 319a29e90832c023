/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Users' shares of a worker: the gate's queues (fair.c) and the worker's scheduler, step
 * by step. Each user has a number of clients, and each client sends its next request when
 * it has its answer.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/common/obj.h"
#include "daemon/gate/fair.h"
#include "tests/unit/sched_fixture.h"

#define N_USER   4
#define MAX_OPEN 500
#define ROWS     8
#define AHEAD    8 /* credits beyond the rows, as the worker grants them */

/* A user's clients. */
struct crowd {
    uint32_t n_open, weight;
    int32_t prompt, out; /* tokens of a request */
    uint32_t n;          /* samples of a request, 0: 1 */
    uint32_t limit;      /* limit of output tokens, 0: out */
    int from, to;        /* first and last step in which it sends; to 0: always */
    /* results */
    struct usr *usr;
    struct jreq jr[MAX_OPEN];
    int due[MAX_OPEN]; /* step at which the client sends again, -1: it waits */
    uint64_t tokens;
    uint32_t n_done; /* requests */
    int most_wait;   /* steps from sending to a row */
};

struct world {
    struct fair fair;
    struct fx *fx;
    struct crowd *c;
    struct jreq *of[64]; /* by req.idx */
    int step, n_user, began[64], is_begun[64];
    uint64_t rows; /* rows in use, sum over steps */
    uint64_t id;
};

static uint32_t
samples(const struct crowd *c)
{
    return c->n != 0 ? c->n : 1;
}

static void
open_world(struct world *w, struct crowd *c, int n)
{
    struct fx_cfg cfg = { .block_size = 16,
        .n_block = 4000,
        .max_req = 64,
        .max_len = 3000,
        .depth = 2,
        .no_check = 1,
        .sch = { .max_seqs = ROWS,
            .max_tokens = 512,
            .max_scores = 4,
            .chunked = 1,
            .max_overtake_ns = 1000000000 } };
    struct fair_weight list[N_USER];

    memset(w, 0, sizeof(*w));
    w->c = c;
    w->n_user = n;
    fair_init(&w->fair);
    for (int i = 0; i < n; i++)
        list[i] = (struct fair_weight){ 1000 + (uint64_t)i, c[i].weight ? c[i].weight : 1 };
    fair_set_weights(&w->fair, list, (uint32_t)n);
    fair_grant(&w->fair, ROWS + AHEAD, 0);
    for (int i = 0; i < n; i++) {
        c[i].usr = usr_get(&w->fair, list[i].key, 1);
        assert_non_null(c[i].usr);
    }
    w->fx = fx_new(&cfg);
    w->fx->keep = 1;
    w->fx->step_ns = 5000000;
}

static int
sends(const struct world *w, const struct crowd *c)
{
    return w->step >= c->from && (c->to == 0 || w->step < c->to);
}

static void
send_all(struct world *w)
{
    for (int u = 0; u < w->n_user; u++) {
        struct crowd *c = &w->c[u];

        for (uint32_t i = 0; sends(w, c) && i < c->n_open; i++) {
            if (c->due[i] < 0 || c->due[i] > w->step)
                continue;
            c->jr[i] = (struct jreq){ .magic = JREQ_MAGIC,
                .usr = c->usr,
                .kind = FAIR_GEN,
                .id = ++w->id,
                .tag = i,
                .t_sent = (uint64_t)w->step,
                .req.n = (uint16_t)samples(c),
                .prompt_len = (uint32_t)c->prompt,
                .est_prompt = (uint32_t)c->prompt,
                .cost = (uint32_t)c->prompt +
                    samples(c) * (c->limit != 0 ? c->limit : (uint32_t)c->out) };
            c->due[i] = -1;
            c->usr->n_inflight++;
            fair_push(&w->fair, &c->jr[i]);
        }
    }
}

static void
dispatch(struct world *w)
{
    struct jreq *j;

    while ((j = fair_pop(&w->fair, FAIR_GEN)) != NULL) {
        const struct crowd *c = &w->c[j->usr->key - 1000];
        struct req *r;

        fair_charge(&w->fair, j);
        r = fx_add(w->fx,
            &(struct fx_ask){ .n_prompt = c->prompt,
                .max_new = c->out,
                .n = (int32_t)samples(c),
                .text = 1000 + w->fx->id });
        r->user = j->usr->key;
        j->accepted = 1;
        j->st = JNL_RUNNING;
        w->of[r->idx] = j;
        w->is_begun[r->idx] = 0;
    }
}

static void
collect(struct world *w)
{
    for (int k = 0; k < w->fx->cfg.max_req; k++) {
        struct req *r = w->fx->reqs[k].r;
        struct crowd *c;
        struct jreq *j;

        if (r == NULL)
            continue;
        j = w->of[k];
        c = &w->c[j->usr->key - 1000];
        if (!w->is_begun[k] && r->t_start_ns != 0) {
            int wait = w->step - (int)j->t_sent;

            w->is_begun[k] = 1;
            c->most_wait = wait > c->most_wait ? wait : c->most_wait;
        }
        if (r->n_live > 0)
            continue;
        j->n_out = samples(c) * (uint32_t)c->out;
        c->tokens += (uint64_t)c->prompt + j->n_out;
        c->n_done++;
        fair_settle(j);
        fair_return(&w->fair, j);
        fair_drop(&w->fair, j);
        c->usr->n_inflight--;
        c->due[j->tag] = w->step + 1; /* the client needs a step to see the answer */
        for (int32_t i = 0; i < r->n_seq; i++) {
            free(w->fx->reqs[k].seqs[i].ids);
            free(w->fx->reqs[k].seqs[i].digest);
        }
        free(w->fx->reqs[k].seqs);
        w->fx->reqs[k].r = NULL;
        req_put(&w->fx->rp, r);
    }
}

static void
run(struct world *w, int steps)
{
    for (int end = w->step + steps; w->step < end; w->step++) {
        collect(w);
        /* a request that ended makes room before its client sends again */
        dispatch(w);
        send_all(w);
        dispatch(w);
        (void)fx_step(w->fx);
        w->rows += (uint64_t)w->fx->st.n_row;
        if (w->step % 64 == 0)
            fair_check(&w->fair);
    }
}

/* Resets the results: earlier steps do not count. */
static void
forget(struct world *w)
{
    for (int u = 0; u < w->n_user; u++) {
        w->c[u].tokens = w->c[u].n_done = 0;
        w->c[u].most_wait = 0;
    }
    w->rows = 0;
}

static void
close_world(struct world *w)
{
    for (int u = 0; u < w->n_user; u++)
        w->c[u].to = 1;
    for (int u = 0; u < w->n_user; u++)
        for (uint32_t k = 0; k < w->c[u].n_open; k++) {
            struct jreq *j = &w->c[u].jr[k];

            if (w->c[u].due[k] >= 0 || j->st != JNL_QUEUED)
                continue;
            fair_remove(&w->fair, j);
            fair_drop(&w->fair, j);
            w->c[u].usr->n_inflight--;
            w->c[u].due[k] = 0;
        }
    run(w, 6000);
    assert_int_equal(w->fair.credits_used, 0);
    assert_int_equal(w->fair.weight_active, 0);
    fair_check(&w->fair);
    fair_fini(&w->fair);
    fx_free(w->fx);
}

/* ---- equal shares ------------------------------------------------------------------ */

/* Checks that the weighted tokens of the first two users are equal within a tolerance, in
 * windows of a number of steps, while all rows are in use. */
static void
want_equal(const struct crowd *given, int n, int window, double within)
{
    static struct crowd c[N_USER];
    static struct world w;

    memset(c, 0, sizeof(c));
    memcpy(c, given, (size_t)n * sizeof(*c));
    open_world(&w, c, n);
    run(&w, window / 2);
    for (int k = 0; k < 4; k++) {
        double a, b, rows;

        forget(&w);
        run(&w, window);
        a = (double)c[0].tokens / c[0].usr->weight;
        b = (double)c[1].tokens / c[1].usr->weight;
        rows = (double)w.rows / window;
        if (a > b * (1 + within) || b > a * (1 + within) || rows < 0.9 * ROWS)
            fail_msg("window %d: %u and %u requests of %d and %d tokens: %.0f and %.0f tokens, "
                     "%.2f rows",
                k, c[0].n_open, c[1].n_open, c[0].prompt + c[0].out,
                c[1].prompt + c[1].out, a, b, rows);
    }
    close_world(&w);
}

/* Shares are equal in any order of arrival: rows of answers that end together must not
 * stay with their user for ever. */
static void
requests_buy_nothing(void **state)
{
    (void)state;
    for (int few = 0; few < 150; few += 31)
        for (int many = 0; many < 80; many += 13)
            want_equal((struct crowd[]){ { .n_open = 16, .prompt = 6, .out = 50, .from = few },
                           { .n_open = 500, .prompt = 6, .out = 50, .from = many },
                           { .n_open = 1, .prompt = 6, .out = 50 } },
                3, 1500, 0.1);
}

static void
long_prompts_against_long_answers(void **state)
{
    (void)state;
    want_equal((struct crowd[]){ { .n_open = 500, .prompt = 1000, .out = 20 },
                   { .n_open = 500, .prompt = 6, .out = 300 } },
        2, 6000, 0.1);
    want_equal((struct crowd[]){ { .n_open = 20, .prompt = 1000, .out = 20 },
                   { .n_open = 500, .prompt = 6, .out = 300 } },
        2, 6000, 0.1);
}

static void
samples_count(void **state)
{
    (void)state;
    want_equal((struct crowd[]){ { .n_open = 16, .prompt = 6, .out = 50, .n = 4 },
                   { .n_open = 500, .prompt = 6, .out = 50 } },
        2, 3000, 0.1);
    want_equal((struct crowd[]){ { .n_open = 30, .prompt = 6, .out = 50, .n = 8 },
                   { .n_open = 500, .prompt = 6, .out = 50 } },
        2, 3000, 0.1);
}

static void
weights_count(void **state)
{
    (void)state;
    want_equal((struct crowd[]){ { .n_open = 100, .prompt = 6, .out = 50, .weight = 3 },
                   { .n_open = 500, .prompt = 6, .out = 50, .from = 20 } },
        2, 3000, 0.1);
    want_equal((struct crowd[]){ { .n_open = 100, .prompt = 6, .out = 50 },
                   { .n_open = 500, .prompt = 6, .out = 50, .weight = 4, .from = 20 } },
        2, 5000, 0.1);
}

/* Tokens of the limit that are not generated cost nothing, neither
 * at the end nor before it. */
static void
answers_end_early(void **state)
{
    (void)state;
    want_equal((struct crowd[]){ { .n_open = 100, .prompt = 6, .out = 50, .limit = 2900 },
                   { .n_open = 500, .prompt = 6, .out = 50 } },
        2, 1500, 0.1);
}

/* ---- few requests ------------------------------------------------------------------ */

/* A user with one request at a time cannot use its share: the other user gets the rest.
 * Its request waits for a free row, not for the other user's turn. */
static void
the_rest_is_used(void **state)
{
    static struct crowd c[N_USER];
    static struct world w;

    (void)state;
    memset(c, 0, sizeof(c));
    c[0] = (struct crowd){ .n_open = 1, .prompt = 6, .out = 50, .from = 33 };
    c[1] = (struct crowd){ .n_open = 500, .prompt = 6, .out = 50 };
    open_world(&w, c, 2);
    run(&w, 500);
    forget(&w);
    run(&w, 3000);
    assert_true((double)w.rows / 3000 > 0.94 * ROWS);
    assert_true(c[0].n_done >= 3000 / 105); /* an answer takes 51 steps, and
                                     * waiting for a row as long */
    assert_true(c[0].most_wait <= 53);
    assert_true(c[1].n_done > 3000 / 51 * (ROWS - 2));
    close_world(&w);
}

/* A user with as many requests as there are rows has nearly its share: the other user's
 * requests at the worker do not keep its own from rows. */
static void
few_have_rows(void **state)
{
    static struct crowd c[N_USER];
    static struct world w;

    (void)state;
    memset(c, 0, sizeof(c));
    c[0] = (struct crowd){ .n_open = 8, .prompt = 6, .out = 50, .from = 17 };
    c[1] = (struct crowd){ .n_open = 500, .prompt = 6, .out = 52 };
    open_world(&w, c, 2);
    run(&w, 2000);
    forget(&w);
    run(&w, 4000);
    assert_true(c[0].tokens > c[1].tokens * 3 / 4);
    close_world(&w);
}

/* A user who was away has no claim to tokens that others got meanwhile. */
static void
idle_time_is_no_credit(void **state)
{
    static struct crowd c[N_USER];
    static struct world w;

    (void)state;
    for (int before = 0; before < 2; before++) {
        memset(c, 0, sizeof(c));
        /* the user had no requests before, or one at a time */
        c[0] = (struct crowd){ .n_open = 500, .prompt = 6, .out = 50, .from = 4000 };
        c[1] = (struct crowd){ .n_open = 500, .prompt = 6, .out = 50 };
        open_world(&w, c, 2);
        if (before) {
            c[0].n_open = 1;
            c[0].from = 0;
        }
        run(&w, 4000);
        c[0].n_open = 500;
        run(&w, 150);
        forget(&w);
        run(&w, 1000);
        assert_true(c[0].tokens < c[1].tokens * 6 / 5 && c[1].tokens < c[0].tokens * 6 / 5);
        close_world(&w);
    }
}

/* No user starves: neither one whose requests need all credits, nor one
 * among users that come and go. */
static void
none_starves(void **state)
{
    static struct crowd c[N_USER];
    static struct world w;

    (void)state;
    memset(c, 0, sizeof(c));
    c[0] = (struct crowd){ .n_open = 4, .prompt = 6, .out = 50, .n = 16 };
    c[1] = (struct crowd){ .n_open = 500, .prompt = 6, .out = 20 };
    c[2] = (struct crowd){ .n_open = 1, .prompt = 6, .out = 20 };
    c[3] = (struct crowd){ .n_open = 1, .prompt = 6, .out = 20 };
    open_world(&w, c, 4);
    fair_grant(&w.fair, ROWS + AHEAD, 3);
    run(&w, 8000);
    assert_true(c[0].tokens > c[1].tokens / 2);
    assert_true(c[1].tokens > 20000);
    close_world(&w);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_buy_nothing),
        cmocka_unit_test(long_prompts_against_long_answers),
        cmocka_unit_test(samples_count),
        cmocka_unit_test(weights_count),
        cmocka_unit_test(answers_end_early),
        cmocka_unit_test(the_rest_is_used),
        cmocka_unit_test(few_have_rows),
        cmocka_unit_test(idle_time_is_no_credit),
        cmocka_unit_test(none_starves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
