/* Deficit round-robin over users, priorities, deadlines while queued. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/unit/gate_fixture.h"

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
            assert_true(n_a <= 5); /* a quantum is two of these */
        fix_wdone(&f, id);
        fix_step(&f, 0);
    }
    assert_int_equal(n_a, 60);
    assert_int_equal(n_b, 2);
    fcl_close(&a);
    fcl_close(&b);
    fix_close(&f);
}

/* Shares go by tokens, not by requests. */
static void
t_tokens(void **state)
{
    static const char *const sets[] = { "sched.max_inflight_per_client=500",
        "sched.max_inflight_per_user=500", "sched.max_concurrency=1000", NULL };
    struct fix f;
    struct fcl a, b;
    struct lnk_submit sub;
    uint64_t tok_a = 0, tok_b = 0, id;

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &a, 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &b, 1001, NULL), FDP_OK);
    for (unsigned i = 1; i <= 240; i++) {
        fcl_submit(&a, i, 4, 100);
        if (i <= 24)
            fcl_submit(&b, i, 4, 4000);
        if (i % 20 == 0)
            fix_step(&f, 0);
    }
    fix_step(&f, 0);
    assert_int_equal(f.g->fair.n_queued, 264);
    fix_ready(&f);
    for (int i = 0; i < 120; i++) {
        id = fix_take(&f, &sub, NULL, NULL);
        assert_true(id != 0);
        *(sub.user == 1000 ? &tok_a : &tok_b) += sub.req.max_new + 5;
        fix_wdone(&f, id);
        fix_step(&f, 0);
    }
    assert_true(tok_a > 8000 && tok_b > 8000);
    assert_true(tok_a < tok_b * 3 / 2 && tok_b < tok_a * 2);
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
        assert_true(sub.req.flags & FDP_F_SEED);
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
    fix_werror(&f, ids[4], FDP_E_KV_FULL);
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
    assert_int_equal(f.g->cnt->requests_expired, 3);
    assert_int_equal(f.g->jnl.n_open, 0);
    fcl_close(&c);
    fix_close(&f);
}

/* A gateway acts for others; fairness goes by whom it acts for. */
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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_two_users),
        cmocka_unit_test(t_tokens),
        cmocka_unit_test(t_priority),
        cmocka_unit_test(t_credits),
        cmocka_unit_test(t_deadlines),
        cmocka_unit_test(t_delegated),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
