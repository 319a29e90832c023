/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Weighted shares of users, credits counted in sequences, reserved rows, priorities,
 * deadlines in the queue.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obj.h"
#include "daemon/gate/conf.h"
#include "tests/unit/gate_fixture.h"

/* The worker serves a request completely. */
static void
work(struct fix *f, uint64_t id, const struct lnk_submit *sub)
{
    fix_waccept(f, id, 1);
    fix_wtokens(f, id, sub->req.n * sub->req.max_new);
    fix_wdone(f, id);
}

/* A user with 60 requests does not delay one with 2. */
static void
t_two_users(void **state)
{
    struct fix f;
    struct fcl a, b;
    struct lnk_submit sub;
    int n_a = 0, n_b = 0;
    uint64_t id;

    (void)state;
    fix_open(&f, NULL);
    assert_int_equal(fcl_open(&f, &a, 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &b, 1001, NULL), FDP_OK);
    for (unsigned i = 1; i <= 60; i++)
        fcl_submit(&a, i, 4, 1000);
    fix_step(&f, 0);
    fcl_submit(&b, 1, 4, 1000);
    fcl_submit(&b, 2, 4, 1000);
    fix_step(&f, 0);
    fix_ready(&f);
    while ((id = fix_take(&f, &sub, NULL, NULL)) != 0) {
        n_a += sub.user == 1000;
        n_b += sub.user == 1001;
        if (n_b < 2)
            assert_true(n_a <= 5); /* each needs four turns */
        fix_wdone(&f, id);
        fix_step(&f, 0);
    }
    assert_int_equal(n_a, 60);
    assert_int_equal(n_b, 2);
    fcl_close(&a);
    fcl_close(&b);
    fix_close(&f);
}

/* Users with short requests take turns early, not after a hundred requests. */
static void
t_short_requests(void **state)
{
    static const char *const sets[] = { "sched.max_inflight_per_client=500",
        "sched.max_inflight_per_user=500", "sched.max_concurrency=1000", NULL };
    struct fix f;
    struct fcl a, b;
    struct lnk_submit sub = { 0 };
    struct frec r;
    uint64_t id[200];
    int sent[2] = { 0, 0 }, n = 0;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &a, 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &b, 1001, NULL), FDP_OK);
    for (unsigned i = 1; i <= 100; i++) {
        fcl_submit(&a, i, 4, 20);
        fcl_submit(&b, i, 4, 20);
    }
    for (int done = 0; done < 120; done++) {
        fix_step(&f, 0);
        while ((id[n] = fix_take(&f, &sub, NULL, NULL)) != 0) {
            sent[sub.user == 1001]++;
            n++;
        }
        assert_true(abs(sent[0] - sent[1]) <= 18);
        work(&f, id[done], &sub);
        while (fcl_recv(&a, &r) || fcl_recv(&b, &r))
            continue;
    }
    assert_true(sent[0] + sent[1] >= 120);
    while ((id[0] = fix_take(&f, &sub, NULL, NULL)) != 0)
        ;
    fcl_close(&a);
    fcl_close(&b);
    fix_close(&f);
}

/* Shares count tokens, not requests: short and long requests in a worker that gives each
 * row the same number of tokens in a step. */
static void
t_tokens(void **state)
{
    static const char *const sets[] = { "sched.max_inflight_per_client=500",
        "sched.max_inflight_per_user=500", "sched.max_concurrency=1000", NULL };
    struct fix f;
    struct fcl a, b;
    struct lnk_submit sub;
    struct {
        uint64_t id;
        int user;
        uint32_t left;
    } row[FIX_CREDITS];
    uint64_t tok[2] = { 0, 0 };
    int n = 0;

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &a, 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &b, 1001, NULL), FDP_OK);
    for (unsigned i = 1; i <= 240; i++) {
        fcl_submit(&a, i, 4, 100);
        if (i <= 24)
            fcl_submit(&b, i, 4, 2000);
        if (i % 20 == 0)
            fix_step(&f, 0);
    }
    fix_step(&f, 0);
    assert_int_equal(f.g->fair.n_queued, 264);
    fix_ready(&f);
    while (f.g->ses.v[0]->c.usr->queue[FAIR_GEN].active) {
        while (n < (int)FIX_CREDITS && (row[n].id = fix_take(&f, &sub, NULL, NULL)) != 0) {
            row[n].user = sub.user == 1001;
            row[n++].left = sub.req.max_new;
        }
        for (int i = 0; i < n; i++) {
            fix_wtokens(&f, row[i].id, 50);
            tok[row[i].user] += 50;
            row[i].left -= 50;
            if (row[i].left == 0) {
                fix_wdone(&f, row[i].id);
                row[i--] = row[--n];
            }
        }
        fix_step(&f, 1);
    }
    assert_true(tok[0] > 20000);
    assert_true(tok[0] < tok[1] * 5 / 4 && tok[1] < tok[0] * 5 / 4);
    fcl_close(&a);
    fcl_close(&b);
    fix_close(&f);
}

static void
t_priority(void **state)
{
    static const int prio[] = { 0, 5, -3, 0, -3, 5 };
    static const uint64_t order[] = { 3, 5, 1, 4, 2, 6 };
    unsigned char b[32] __attribute__((aligned(8)));
    uint32_t one = 1;
    struct lnk_submit sub;
    struct fix f;
    struct fcl c;
    struct fdp_req q;

    (void)state;
    fix_open(&f, NULL);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (unsigned i = 0; i < 6; i++) {
        fcl_req(&q, FDP_OP_SUBMIT, i + 1);
        q.priority = prio[i];
        fcl_send(&c, &q, b, fcl_item(b, 0, FDP_IT_PROMPT_IDS, &one, 4), i * 64);
    }
    fix_step(&f, 0);
    fix_ready(&f);
    for (unsigned i = 0; i < 6; i++) {
        assert_true(fix_take(&f, &sub, NULL, NULL) != 0);
        assert_int_equal(sub.req.tag, order[i]);
        assert_true(sub.req.set & FDP_S_SEED);
    }
    fcl_close(&c);
    fix_close(&f);
}

static void
t_credits(void **state)
{
    struct fix f;
    struct fcl c;
    uint64_t ids[FIX_CREDITS + 1];

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (unsigned i = 1; i <= 20; i++)
        fcl_submit(&c, i, 4, 10);
    fix_step(&f, 0);
    for (unsigned i = 0; i < FIX_CREDITS; i++) {
        ids[i] = fix_take(&f, NULL, NULL, NULL);
        assert_true(ids[i] != 0);
    }
    assert_true(fix_take(&f, NULL, NULL, NULL) == 0);
    fix_step(&f, 100);
    assert_true(fix_take(&f, NULL, NULL, NULL) == 0);
    fix_wdone(&f, ids[3]);
    fix_werror(&f, ids[4], FDP_E_DEADLINE);
    fix_step(&f, 0);
    assert_true(fix_take(&f, NULL, NULL, NULL) != 0);
    assert_true(fix_take(&f, NULL, NULL, NULL) != 0);
    assert_true(fix_take(&f, NULL, NULL, NULL) == 0);
    fcl_close(&c);
    fix_close(&f);
}

static void
t_deadlines(void **state)
{
    static const char *const sets[] = { "sched.max_waiting_time_ms=500", NULL };
    unsigned char b[32] __attribute__((aligned(8)));
    uint32_t one = 1;
    struct fix f;
    struct fcl c;
    struct fdp_req q;
    struct frec r;

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (unsigned i = 1; i <= 3; i++) {
        fcl_req(&q, FDP_OP_SUBMIT, i);
        q.ttl_queue_ms = i == 1 ? 100 : 0;
        q.ttl_total_ms = i == 2 ? 200 : 0;
        fcl_send(&c, &q, b, fcl_item(b, 0, FDP_IT_PROMPT_IDS, &one, 4), i * 64);
    }
    fix_step(&f, 0);
    fix_step(&f, 90);
    assert_false(fcl_recv(&c, &r));
    fix_step(&f, 20);
    fcl_want_error(&c, 1, FDP_E_DEADLINE, 0);
    fix_step(&f, 100);
    fcl_want_error(&c, 2, FDP_E_DEADLINE, 0);
    fix_step(&f, 200);
    assert_false(fcl_recv(&c, &r));
    fix_step(&f, 100);
    fcl_want_error(&c, 3, FDP_E_DEADLINE, 0);
    assert_int_equal(f.g->env.cnt->requests_expired, 3);
    assert_int_equal(f.g->jnl.n_open, 0);
    fcl_close(&c);
    fix_close(&f);
}

/* A gateway acts for other users; fairness is between these users. */
static void
t_delegated(void **state)
{
    static const char *const sets[] = { "ipc.trusted_users=1000", NULL };
    unsigned char b[32] __attribute__((aligned(8)));
    uint32_t one = 1;
    struct lnk_submit sub;
    struct fix f;
    struct fcl c;
    struct fdp_req q;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_req(&q, FDP_OP_SUBMIT, 1);
    q.user = 0xabcdef0123456789ull;
    fcl_send(&c, &q, b, fcl_item(b, 0, FDP_IT_PROMPT_IDS, &one, 4), 0);
    fix_step(&f, 0);
    assert_true(fix_take(&f, &sub, NULL, NULL) != 0);
    assert_true(sub.user == q.user);
    fcl_close(&c);
    fix_close(&f);
}

/* ---- shares -------------------------------------------------------------- */

#define N_USER 7
#define N_EACH 64

/* A user's requests, without a session: only their order matters here. */
struct crowd {
    struct usr *u;
    struct jreq r[N_EACH];
    uint64_t sent;
};

static uint32_t
draw_cost(unsigned *seed, int shape)
{
    switch (shape) {
    case 0: /* much shorter than a quantum */
        return 1 + (uint32_t)rand_r(seed) % 100;
    case 1: /* much longer */
        return 1 + (uint32_t)rand_r(seed) % 50000;
    default: /* sometimes very long */
        return rand_r(seed) % 20 == 0 ? 100000 : 1 + (uint32_t)rand_r(seed) % 3000;
    }
}

/* Compares every user's share, at every moment, with the share of its weight. */
static void
share_round(struct fix *f, unsigned *seed)
{
    static struct crowd c[N_USER];
    uint64_t all = 0, weights = 0, max = 0;

    for (unsigned i = 0; i < N_USER; i++) {
        int shape = rand_r(seed) % 3;

        memset(&c[i], 0, sizeof(c[i]));
        c[i].u = usr_get(&f->g->fair, 5000 + i, f->now);
        assert_non_null(c[i].u);
        weights += c[i].u->weight;
        for (unsigned k = 0; k < N_EACH; k++) {
            struct jreq *r = &c[i].r[k];

            *r = (struct jreq){ .magic = JREQ_MAGIC,
                .usr = c[i].u,
                .req.n = 1,
                .cost = draw_cost(seed, shape) };
            max = r->cost > max ? r->cost : max;
            fair_push(&f->g->fair, r);
        }
    }
    for (int step = 0; step < 40000; step++) {
        struct jreq *r = fair_pop(&f->g->fair, FAIR_GEN);
        struct crowd *k;

        assert_non_null(r);
        k = &c[r->usr->key - 5000];
        k->sent += r->cost;
        all += r->cost;
        fair_charge(&f->g->fair, r);
        r->n_out = r->cost;
        fair_settle(r);
        fair_return(&f->g->fair, r);
        fair_push(&f->g->fair, r); /* the user always has queued requests */
        for (unsigned i = 0; i < N_USER; i++) {
            double share = (double)all * c[i].u->weight / (double)weights;
            /* the bound: one request, and as much for each other user */
            double most = (double)max,
                   least = -most * N_USER * c[i].u->weight / (double)weights;
            double off = (double)c[i].sent - share;

            if (off > most + 1 || off < least - 1)
                pan_panic("step %d user %u weight %u: %.0f tokens off its share, "
                          "allowed %.0f to %.0f",
                    step, i, c[i].u->weight, off, least, most);
        }
    }
    for (unsigned i = 0; i < N_USER; i++) {
        for (unsigned k = 0; k < N_EACH; k++)
            fair_remove(&f->g->fair, &c[i].r[k]);
    }
    assert_true(f->g->fair.weight_queued == 0 && f->g->fair.cost_queued == 0);
    f->g->fair.cost_open = f->g->fair.n_gen = 0; /* these requests never were open */
}

static void
share_is_within_a_request(void **state)
{
    unsigned seed = getenv("SEED") != NULL ? (unsigned)atoi(getenv("SEED")) : 11;
    struct fix f;

    (void)state;
    print_message("SEED=%u\n", seed);
    for (int round = 0; round < 6; round++) {
        struct fair_weight list[N_USER];

        fix_open(&f, NULL);
        fix_ready(&f);
        for (unsigned i = 0; i < N_USER; i++)
            list[i] = (struct fair_weight){ 5000 + i,
                round == 0
                    ? 1
                    : 1 + (uint32_t)rand_r(&seed) % (round < 4 ? 8 : FAIR_WEIGHT_MAX) };
        fair_set_weights(&f.g->fair, list, N_USER);
        share_round(&f, &seed);
        fix_close(&f);
    }
}

static void
weights_text(void **state)
{
    static const char *const bad[][2] = { { "0", "\"0\": no weight" },
        { "1000", "\"1000\": no weight" }, { "1000:", "from 1 to 1000" },
        { "1000:0", "from 1 to 1000" }, { "1000:1001", "from 1 to 1000" },
        { "1000:-1", "from 1 to 1000" }, { "1000:2.5", "from 1 to 1000" },
        { "1000:99999999999999999999", "from 1 to 1000" }, { ":3", "no user before" },
        { "1:2,no-such-user-here:3,2:2", "\"no-such-user-here:3\": this system has no" },
        { "18446744073709551616:1", "64 bits" }, { "1:2,3:4,1:5", "\"1:5\": user 1 has" },
        { "root:2 0:3", "\"0:3\": user 0 has" }, { "1000 :2", "\"1000\": no weight" } };
    struct fair_weight w[FAIR_WEIGHTS];
    char long_text[PAR_STR_BYTES] = "";
    char err[256];
    uint32_t n = 77;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        n = 77;
        assert_int_equal(fair_parse_weights(bad[i][0], w, &n, err, sizeof(err)), -EINVAL);
        assert_int_equal(n, 77);
        if (strstr(err, bad[i][1]) == NULL)
            fail_msg("%s: %s", bad[i][0], err);
        assert_non_null(strstr(err, "sched.user_weights"));
    }
    assert_int_equal(fair_parse_weights("", w, &n, err, sizeof(err)), 0);
    assert_int_equal(n, 0);
    assert_int_equal(fair_parse_weights(" root:4, 1000:2,18446744073709551615:1000,", w,
                         &n, err, sizeof(err)),
        0);
    assert_int_equal(n, 3);
    assert_true(w[0].key == 0 && w[0].weight == 4 && w[1].key == 1000);
    assert_true(w[2].key == UINT64_MAX && w[2].weight == 1000);
    /* as many as fit into a parameter */
    for (int i = 0; i < 99; i++)
        (void)snprintf(long_text + strlen(long_text), 8, "%d:1,", i + 1);
    assert_int_equal(fair_parse_weights(long_text, w, &n, err, sizeof(err)), 0);
    assert_int_equal(n, 99);
    /* one item that is too long */
    memset(long_text, 'x', sizeof(long_text) - 1);
    assert_int_equal(fair_parse_weights(long_text, w, &n, err, sizeof(err)), -EINVAL);
}

/* Runs two users with endless work. Returns the ratio of their tokens. */
static double
ratio_of(struct fix *f, struct fcl *a, struct fcl *b, int steps)
{
    double tok[2] = { 0, 0 };
    struct lnk_submit sub;
    uint64_t tag[2] = { 1000, 1000 }, id;

    for (int i = 0; i < 40; i++) {
        fcl_submit_for(a, tag[0]++, 1, 400, 0);
        fcl_submit_for(b, tag[1]++, 1, 400, 0);
    }
    fix_step(f, 0);
    for (int i = 0; i < steps; i++) {
        struct frec r;

        assert_true((id = fix_take(f, &sub, NULL, NULL)) != 0);
        tok[sub.user == 1001] += sub.req.max_new;
        fcl_submit_for(sub.user == 1001 ? b : a, tag[sub.user == 1001]++, 1, 400, 0);
        work(f, id, &sub);
        fix_step(f, 0);
        while (fcl_recv(a, &r) || fcl_recv(b, &r))
            continue;
    }
    while ((id = fix_take(f, &sub, NULL, NULL)) != 0) {
        work(f, id, &sub);
        fix_step(f, 0);
    }
    return tok[0] / tok[1];
}

static void
skip_reload(struct fix *f)
{
    const struct fdp_rec *r;

    fix_step(f, 0);
    r = fix_wpeek(f);
    assert_true(r != NULL && r->type == LNK_T_RELOAD);
    fix_wnext(f, r);
}

/* Weights hold through gate and worker, and may change at run time. */
static void
weights_in_force(void **state)
{
    static const char *const sets[] = { "sched.user_weights=1000:4", NULL };
    struct fix f;
    struct fcl a, b;
    double ratio;
    char err[256];

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &a, 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &b, 1001, NULL), FDP_OK);
    assert_int_equal(a.fd >= 0 && f.g->ses.v[0]->c.usr->weight == 4, 1);
    ratio = ratio_of(&f, &a, &b, 500);
    assert_true(ratio > 3.5 && ratio < 4.5);
    assert_int_equal(par_set_text(f.g->cnf.ps, "sched.user_weights", "1000:1,1001:3",
                         PAR_FROM_RUNTIME, err, sizeof(err)),
        0);
    cnf_apply(&f.g->cnf);
    skip_reload(&f);
    ratio = ratio_of(&f, &a, &b, 500);
    assert_true(ratio > 0.25 && ratio < 0.42);
    /* back to the file's values (there is no file): all equal */
    assert_int_equal(cnf_reload(&f.g->cnf, NULL), 0);
    skip_reload(&f);
    ratio = ratio_of(&f, &a, &b, 500);
    assert_true(ratio > 0.85 && ratio < 1.2);
    fcl_close(&a);
    fcl_close(&b);
    fix_close(&f);
}

/* A user whose answers stop early is charged for the tokens
 * generated, not for the limit. */
static void
settled_by_what_was_done(void **state)
{
    struct fix f;
    struct fcl a, b;
    struct lnk_submit sub;
    double tok[2] = { 0, 0 };
    uint64_t tag = 1, id;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &a, 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &b, 1001, NULL), FDP_OK);
    for (int i = 0; i < 60; i++, tag++) {
        fcl_submit_for(&a, tag, 1, 2000, 0); /* limit 2000, needs 200 */
        fcl_submit_for(&b, tag, 1, 200, 0);
    }
    fix_step(&f, 0);
    for (int i = 0; i < 600; i++, tag++) {
        struct frec r;

        assert_true((id = fix_take(&f, &sub, NULL, NULL)) != 0);
        tok[sub.user == 1001] += 200;
        fcl_submit_for(sub.user == 1001 ? &b : &a, tag, 1, sub.req.max_new, 0);
        fix_waccept(&f, id, 1);
        fix_wtokens(&f, id, 200);
        fix_wdone(&f, id);
        fix_step(&f, 0);
        while (fcl_recv(&a, &r) || fcl_recv(&b, &r))
            continue;
    }
    assert_true(tok[0] > tok[1] * 0.8 && tok[1] > tok[0] * 0.8);
    fcl_close(&a);
    fcl_close(&b);
    fix_close(&f);
}

/* ---- credits and cap ------------------------------------------------------- */

/* Each sample is a row: a request of n samples takes n credits, at most all. */
static void
credits_are_sequences(void **state)
{
    struct fix f;
    struct fcl c;
    struct lnk_submit sub;
    uint64_t id[3];

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_submit_for(&c, 1, 3, 10, 0);
    fcl_submit_for(&c, 2, 4, 10, 0);
    fcl_submit_for(&c, 3, 2, 10, 0);  /* 1 is left */
    fcl_submit_for(&c, 4, 1, 10, 0);  /* must not overtake the one before it */
    fcl_submit_for(&c, 5, 64, 10, 0); /* more than there are */
    fix_step(&f, 0);
    id[0] = fix_take(&f, &sub, NULL, NULL);
    id[1] = fix_take(&f, &sub, NULL, NULL);
    assert_int_equal(sub.req.tag, 2);
    assert_int_equal(fix_take(&f, &sub, NULL, NULL), 0);
    assert_int_equal(f.g->wrk[0].link.credits_used, 7);
    fix_wdone(&f, id[0]);
    fix_step(&f, 0);
    id[0] = fix_take(&f, &sub, NULL, NULL);
    assert_int_equal(sub.req.tag, 3);
    id[2] = fix_take(&f, &sub, NULL, NULL);
    assert_int_equal(sub.req.tag, 4);
    assert_int_equal(f.g->wrk[0].link.credits_used, 7);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fix_take(&f, &sub, NULL, NULL), 0); /* needs all of them */
        fix_wdone(&f, id[i]);
        fix_step(&f, 0);
    }
    assert_true((id[0] = fix_take(&f, &sub, NULL, NULL)) != 0);
    assert_int_equal(sub.req.n, 64);
    assert_int_equal(f.g->wrk[0].link.credits_used, FIX_CREDITS);
    fix_wdone(&f, id[0]);
    fix_step(&f, 0);
    assert_int_equal(f.g->wrk[0].link.credits_used, 0);
    fcl_close(&c);
    fix_close(&f);
}

/* The first user holds all rows until another one wants some. */
static void
cap_while_others_wait(void **state)
{
    struct fix f;
    struct fcl a, b;
    struct lnk_submit sub;
    uint64_t id[200];
    int user[200], n = 0, from = 0, held[2] = { 0, 0 };

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &a, 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &b, 1001, NULL), FDP_OK);
    for (unsigned i = 1; i <= 100; i++)
        fcl_submit_for(&a, i, 1, 1, 0); /* so short that all fit into a quantum */
    fix_step(&f, 0);
    while ((id[n] = fix_take(&f, &sub, NULL, NULL)) != 0)
        user[n++] = 0;
    assert_int_equal(n, FIX_CREDITS); /* the only user: gets all of them */
    held[0] = n;
    for (unsigned i = 1; i <= 10; i++)
        fcl_submit_for(&b, i, 1, 1, 0);
    fix_step(&f, 0);
    for (int done = 0; done < 13; done++) { /* b's last request is sent after
                                             * 12 rows were freed */
        held[user[from]]--;
        work(&f, id[from++], &sub);
        fix_step(&f, 0);
        while ((id[n] = fix_take(&f, &sub, NULL, NULL)) != 0) {
            user[n] = sub.user == 1001;
            held[user[n++]]++;
        }
        assert_int_equal(held[0] + held[1], FIX_CREDITS); /* no row stays unused */
        if (done < 3) /* b first, until it has its share */
            assert_int_equal(held[1], done + 1);
        if (f.g->ses.v[1]->c.usr->queue[FAIR_GEN].active && done >= 3)
            assert_true(held[0] <= 5 && held[1] <= 5);
    }
    while (from < n) {
        work(&f, id[from++], &sub);
        fix_step(&f, 0);
        while ((id[n] = fix_take(&f, &sub, NULL, NULL)) != 0)
            n++;
    }
    assert_int_equal(n, 110);
    assert_int_equal(f.g->fair.weight_active, 0);
    fcl_close(&a);
    fcl_close(&b);
    fix_close(&f);
}

/* 20 users run one request each and want no more: the cap of two other users does not
 * leave the remaining rows empty. */
static void
cap_leaves_no_row_unused(void **state)
{
    static const char *const sets[] = { "ipc.trusted_users=1000", NULL };
    struct fix f;
    struct fcl c;
    struct lnk_submit sub;
    uint64_t tag = 1;
    int n = 0;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    f.g->wrk[0].link.ready.credits = 100;
    fair_grant(&f.g->fair, 100, 0);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (unsigned i = 0; i < 20; i++)
        fcl_submit_for(&c, tag++, 1, 10, 100 + i);
    for (unsigned i = 0; i < 200; i++) {
        fcl_submit_for(&c, tag++, 1, 10, 200 + i % 2);
        if (i % 50 == 0)
            fix_step(&f, 0);
    }
    fix_step(&f, 0);
    while (fix_take(&f, &sub, NULL, NULL) != 0)
        n++;
    assert_int_equal(n, 100);
    assert_int_equal(f.g->wrk[0].link.credits_used, 100);
    fcl_close(&c);
    fix_close(&f);
}

/* A ping of the worker or a request to its tokenizer does not wait for a row. */
/* The last rows are kept for users who have none: a user at its limit leaves them, and a
 * new user's request is sent at once. */
static void
rows_are_kept_for_who_has_none(void **state)
{
    static const char *const sets[] = { "sched.reserved_seqs=2", "sched.max_num_seqs=6",
        NULL };
    struct fix f;
    struct fcl a, b, c;
    struct lnk_submit sub;
    uint64_t users = 0, id;
    int n = 0;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f); /* 8 credits: 2 of them wait in the worker for a row */
    assert_int_equal(fcl_open(&f, &a, 1000, NULL), FDP_OK);
    for (uint64_t tag = 100; tag < 120; tag++) /* the only user: gets all of them */
        fcl_submit(&a, tag, 1, 1000);
    fix_step(&f, 2);
    for (n = 0; (id = fix_take(&f, &sub, NULL, NULL)) != 0; n++)
        fix_wdone(&f, id);
    assert_int_equal(n, 8);
    for (uint64_t tag = 100; tag < 120; tag++)
        fcl_cancel(&a, tag);
    fix_step(&f, 0);
    assert_int_equal(f.g->jnl.n_open, 0);
    n = 0;
    assert_int_equal(fcl_open(&f, &b, 1001, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &c, 1002, NULL), FDP_OK);
    fix_step(&f, 2);
    for (uint64_t tag = 1; tag <= 20; tag++)
        fcl_submit(&a, tag, 1, 1000);
    fix_step(&f, 2);
    while (fix_take(&f, &sub, NULL, NULL) != 0)
        n++;
    assert_int_equal(n, 4);
    for (uint64_t tag = 1; tag <= 3; tag++)
        fcl_submit(&b, tag, 1, 4);
    fcl_submit(&c, 1, 1, 4);
    fix_step(&f, 0);
    for (n = 0; fix_take(&f, &sub, NULL, NULL) != 0; n++)
        users += sub.user;
    assert_true(n == 2 && users == 1001 + 1002);
    /* none reserved: one user gets all */
    assert_int_equal(par_set_text(f.g->cnf.ps, "sched.reserved_seqs", "0",
                         PAR_FROM_RUNTIME, (char[256]){ 0 }, 256),
        0);
    fix_step(&f, 2);
    fix_step(&f, 0);
    for (n = 0; fix_take(&f, &sub, NULL, NULL) != 0; n++)
        continue;
    assert_int_equal(n, 2);
    fcl_close(&a);
    fcl_close(&b);
    fcl_close(&c);
    fix_close(&f);
}

/* If other users may come, rows are reserved before the first of them does: the requests
 * that one user has at the worker by then may take minutes. */
static void
rows_are_kept_for_who_may_come(void **state)
{
    static const char *const sets[] = { "sched.reserved_seqs=2", "sched.max_num_seqs=6",
        NULL };
    struct fix f;
    struct fcl a, b;
    struct lnk_submit sub;
    int n = 0;

    (void)state;
    fix_open(&f, sets);
    f.g->rt.is_shared = 1;
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &a, 1000, NULL), FDP_OK);
    fix_step(&f, 2);
    for (uint64_t tag = 1; tag <= 20; tag++)
        fcl_submit(&a, tag, 1, 1000);
    fix_step(&f, 2);
    while (fix_take(&f, &sub, NULL, NULL) != 0)
        n++;
    assert_int_equal(n, 4);
    assert_int_equal(fcl_open(&f, &b, 1001, NULL), FDP_OK);
    fcl_submit(&b, 1, 1, 4);
    fix_step(&f, 0);
    assert_true(fix_take(&f, &sub, NULL, NULL) != 0 && sub.user == 1001);
    fcl_close(&a);
    fcl_close(&b);
    fix_close(&f);
}

static void
questions_wait_for_no_row(void **state)
{
    struct lnk_submit sub;
    struct fix f;
    struct fcl c;
    struct fdp_req q;
    uint64_t id;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (unsigned i = 1; i <= 30; i++)
        fcl_submit_for(&c, i, 1, 10, 0);
    fix_step(&f, 0);
    for (unsigned i = 0; i < FIX_CREDITS; i++)
        assert_true(fix_take(&f, &sub, NULL, NULL) != 0);
    assert_int_equal(fix_take(&f, &sub, NULL, NULL), 0);
    for (unsigned i = 0; i < FAIR_OTHER_MAX + 1; i++) {
        fcl_req(&q, FDP_OP_PING, 100 + i);
        q.flags = FDP_F_DEEP;
        fcl_send(&c, &q, NULL, 0, 0);
    }
    fix_step(&f, 0);
    for (unsigned i = 0; i < FAIR_OTHER_MAX; i++) {
        assert_true((id = fix_take(&f, &sub, NULL, NULL)) != 0);
        assert_int_equal(sub.req.op, FDP_OP_PING);
    }
    assert_int_equal(fix_take(&f, &sub, NULL, NULL), 0); /* they have a limit too */
    assert_int_equal(f.g->wrk[0].link.credits_used, FIX_CREDITS);
    fix_wdone(&f, id);
    fix_step(&f, 0);
    assert_true(fix_take(&f, &sub, NULL, NULL) != 0);
    assert_int_equal(sub.req.tag, 100 + FAIR_OTHER_MAX);
    fcl_close(&c);
    fix_close(&f);
}

/* sched.policy = fcfs: only the order of arrival counts. */
static void
fcfs_ignores_priority(void **state)
{
    static const char *const sets[] = { "sched.policy=fcfs", NULL };
    unsigned char b[16] __attribute__((aligned(8)));
    const uint32_t one = 1;
    struct lnk_submit sub;
    struct fix f;
    struct fcl c;
    struct fdp_req q;

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (unsigned i = 1; i <= 5; i++) {
        fcl_req(&q, FDP_OP_SUBMIT, i);
        q.priority = -(int32_t)i;
        fcl_send(&c, &q, b, fcl_item(b, 0, FDP_IT_PROMPT_IDS, &one, 4), 0);
    }
    fix_step(&f, 0);
    fix_ready(&f);
    for (unsigned i = 1; i <= 5; i++) {
        assert_true(fix_take(&f, &sub, NULL, NULL) != 0);
        assert_int_equal(sub.req.tag, i);
    }
    fcl_close(&c);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_two_users),
        cmocka_unit_test(t_short_requests),
        cmocka_unit_test(t_tokens),
        cmocka_unit_test(t_priority),
        cmocka_unit_test(t_credits),
        cmocka_unit_test(t_deadlines),
        cmocka_unit_test(t_delegated),
        cmocka_unit_test(share_is_within_a_request),
        cmocka_unit_test(weights_text),
        cmocka_unit_test(weights_in_force),
        cmocka_unit_test(settled_by_what_was_done),
        cmocka_unit_test(credits_are_sequences),
        cmocka_unit_test(cap_while_others_wait),
        cmocka_unit_test(cap_leaves_no_row_unused),
        cmocka_unit_test(rows_are_kept_for_who_has_none),
        cmocka_unit_test(rows_are_kept_for_who_may_come),
        cmocka_unit_test(questions_wait_for_no_row),
        cmocka_unit_test(fcfs_ignores_priority),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
