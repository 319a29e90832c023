/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The measured service rate and its uses: times to retry after, and the rejection of
 * requests that would only expire.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "daemon/common/clk.h"
#include "tests/unit/gate_fixture.h"

/* The daemon is full, with this rate: the time to retry after is the
 * time until a request ends. */
static void
hint_at(double rate)
{
    static const char *const sets[] = { "sched.max_concurrency=24", NULL };
    struct fdp_error e;
    struct fix f;
    struct fcl c;
    struct fslow w = { .n = 0 };
    uint64_t tag = 1;
    double want = 200 / rate * 1e3;
    uint32_t first;

    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (; tag <= 25; tag++)
        fcl_ask(&c, (struct fask){ .tag = tag, .max_new = 198 });
    fix_step(&f, 10);
    first = fcl_error(&c, 25).retry_after_ms;
    assert_true(first >= 1 && first <= 10);
    fslow_work(&f, &w, 0, 100); /* no rate is known: as long as it has run so far */
    fcl_ask(&c, (struct fask){ .tag = tag++, .max_new = 198 });
    fix_step(&f, 0);
    e = fcl_error(&c, tag - 1);
    assert_true(e.retry_after_ms >= 90 && e.retry_after_ms <= 120);
    for (int i = 0; i < 600; i++) {
        fslow_work(&f, &w, rate, 10);
        while (f.g->jnl.n_open < 24 - 24 / ADM_KEPT_SHARE) {
            fcl_ask(&c, (struct fask){ .tag = tag++, .max_new = 198 });
            fix_step(&f, 0);
        }
        (void)fcl_errors(&c, 0);
    }
    fcl_ask(&c, (struct fask){ .tag = tag, .max_new = 198 });
    fix_step(&f, 0);
    e = fcl_error(&c, tag);
    assert_int_equal(e.code, FDP_E_QUEUE_FULL);
    print_message("%.0f tokens/s: hint %u ms, requests end every %.0f ms\n", rate,
        e.retry_after_ms, want);
    assert_true(e.retry_after_ms > want * 0.8 - 1 && e.retry_after_ms < want * 1.25 + 1);
    fcl_close(&c);
    fix_close(&f);
}

static void
hints_follow_the_measured_rate(void **state)
{
    (void)state;
    hint_at(500);
    hint_at(5000);
    hint_at(40000);
}

/* At a user's own limit the time to retry after follows from its share; at the token
 * limit from the excess tokens. */
static void
hints_of_other_limits(void **state)
{
    static const char *const sets[] = { "sched.max_queued_tokens=8000",
        "sched.max_inflight_per_client=20", NULL };
    struct fdp_error e;
    struct fix f;
    struct fcl a, b, other;
    struct fslow w = { .n = 0 };
    uint64_t tag = 1;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &a, 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &b, 1001, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &other, 1002, NULL), FDP_OK);
    for (int i = 0; i < 300; i++) {
        while (f.g->ses.v[0]->c.n_inflight < 20 || f.g->ses.v[1]->c.n_inflight < 20) {
            if (f.g->ses.v[0]->c.n_inflight < 20)
                fcl_ask(&a, (struct fask){ .tag = tag++, .max_new = 198 });
            if (f.g->ses.v[1]->c.n_inflight < 20)
                fcl_ask(&b, (struct fask){ .tag = tag++, .max_new = 198 });
            fix_step(&f, 0);
        }
        fslow_work(&f, &w, 1000, 10);
        (void)fcl_errors(&a, 0), (void)fcl_errors(&b, 0);
    }
    while (f.g->ses.v[0]->c.n_inflight < 20)
        fcl_ask(&a, (struct fask){ .tag = tag++, .max_new = 198 }), fix_step(&f, 0);
    (void)fcl_errors(&a, 0);
    fcl_ask(&a, (struct fask){ .tag = tag, .max_new = 198 });
    fix_step(&f, 0);
    e = fcl_error(&a, tag);
    assert_int_equal(e.code, FDP_E_LIMIT);
    assert_true(e.retry_after_ms > 320 && e.retry_after_ms < 500);  /* 200 * 2 / 1000 s */
    fcl_ask(&other, (struct fask){ .tag = ++tag, .max_new = 198 }); /* it has no
                                                                     * requests */
    fcl_ask(&other, (struct fask){ .tag = ++tag, .max_new = 4000 });
    fix_step(&f, 0);
    e = fcl_error(&other, tag);
    assert_int_equal(e.code, FDP_E_QUEUE_FULL);
    {
        double ms = (double)(f.g->fair.cost_queued + 4002 - 8000);

        assert_true(e.retry_after_ms > ms * 0.8 && e.retry_after_ms < ms * 1.25);
    }
    fcl_close(&a);
    fcl_close(&b);
    fcl_close(&other);
    fix_close(&f);
}

/* ---- early refusal -------------------------------------------------------------- */

static void
shed_what_would_expire(void **state)
{
    struct fdp_error e;
    struct fix f;
    struct fcl a, b;
    struct fslow w = { .n = 0 };
    uint64_t tag = 1;
    char err[256];

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &a, 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &b, 1001, NULL), FDP_OK);
    for (; tag <= 60; tag++) {
        fcl_ask(&a, (struct fask){ .tag = tag, .max_new = 198 });
        if (tag % 20 == 0)
            fix_step(&f, 0);
    }
    /* 52 queued; the service rate is unknown: none is rejected */
    fcl_ask(&a, (struct fask){ .tag = ++tag, .max_new = 198, .ttl_queue_ms = 20 });
    fix_step(&f, 0);
    assert_int_equal(fcl_errors(&a, tag), 0);
    fslow_work(&f, &w, 1000, 3000); /* 15 done; 5 s of one second per 1000 remain */
    (void)fcl_errors(&a, 0);
    fcl_ask(&a, (struct fask){ .tag = ++tag, .max_new = 198, .ttl_queue_ms = 2000 });
    fix_step(&f, 0);
    e = fcl_error(&a, tag);
    assert_true(e.code == FDP_E_OVERLOAD && e.detail == FDP_D_TTL);
    {
        double wait = (double)f.g->fair.cost_queued;

        assert_true(e.arg > wait * 0.8 && e.arg < wait * 1.25);
        assert_int_equal(e.retry_after_ms, e.arg - 2000);
    }
    fcl_ask(&a, (struct fask){ .tag = ++tag, .max_new = 198, .ttl_total_ms = 2000 });
    fix_step(&f, 0);
    assert_int_equal(fcl_error(&a, tag).code, FDP_E_OVERLOAD);
    assert_int_equal(f.g->env.cnt->requests_shed, 2);
    assert_int_equal(f.g->env.cnt->requests_expired, 1); /* the one from before a rate was
                                                          * known */
    /* enough time, or no limit */
    fcl_ask(&a, (struct fask){ .tag = ++tag, .max_new = 198, .ttl_queue_ms = 30000 });
    fcl_ask(&a, (struct fask){ .tag = ++tag, .max_new = 198 });
    fix_step(&f, 0);
    assert_true(fcl_errors(&a, tag) == 0 && fcl_errors(&a, tag - 1) == 0);
    /* only its own requests are ahead of the other user's request */
    fcl_ask(&b, (struct fask){ .tag = 1, .max_new = 198, .ttl_queue_ms = 500 });
    fix_step(&f, 0);
    assert_int_equal(fcl_errors(&b, 1), 0);
    /* the daemon's own limit counts as well */
    assert_int_equal(par_set_text(f.g->cnf.ps, "sched.max_waiting_time_ms", "1500",
                         PAR_FROM_RUNTIME, err, sizeof(err)),
        0);
    fcl_ask(&a, (struct fask){ .tag = ++tag, .max_new = 198 });
    fix_step(&f, 0);
    assert_int_equal(fcl_error(&a, tag).code, FDP_E_OVERLOAD);
    /* long after, the rate is no longer known */
    fslow_work(&f, &w, 100000, 1000);
    fix_step(&f, 20000);
    assert_true(f.g->jnl.n_open == 0 && svc_rate(&f.g->fair.svcrate, f.now) == 0);
    fcl_close(&a);
    fcl_close(&b);
    fix_close(&f);
}

/* The rate of a worker with one client that needs no more is not its capacity: a later
 * burst is not rejected for lack of time. */
static void
light_load_is_no_measure(void **state)
{
    struct fix f;
    struct fcl c;
    struct fslow w = { .n = 0 };

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_ask(&c, (struct fask){ .tag = 1000, .max_new = 4000 });
    fslow_work(&f, &w, 100, 4000);
    assert_true(svc_rate(&f.g->fair.svcrate, f.now) == 0);
    for (unsigned i = 1; i <= 30; i++)
        fcl_ask(&c, (struct fask){ .tag = i, .max_new = 198, .ttl_queue_ms = 5000 });
    fix_step(&f, 10);
    assert_int_equal(f.g->env.cnt->requests_shed, 0);
    assert_int_equal(f.g->jnl.n_open, 31);
    fcl_close(&c);
    fix_close(&f);
}

static void
want_about(uint32_t ms, double want)
{
    if (ms < want * 0.8 || ms > want * 1.25)
        fail_msg("%u ms instead of about %.0f", ms, want);
}

/* Time to retry after, while it drains: until the open requests have ended. While it
 * stops: until then or the deadline, plus the time that the worker took to get ready. */
static void
t_drain_hint(void **state)
{
    static const char *const sets[] = { "sched.max_concurrency=24", NULL };
    struct fslow w = { .n = 0 };
    struct fdp_error e;
    struct fix f;
    struct fcl c;
    uint64_t tag = 1;

    (void)state;
    fix_open(&f, sets);
    fix_step(&f, 3000);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (int i = 0; i < 600; i++) {
        while (f.g->jnl.n_open < 24 - 24 / ADM_KEPT_SHARE) {
            fcl_ask(&c, (struct fask){ .tag = tag++, .max_new = 198 });
            fix_step(&f, 0);
        }
        (void)fcl_errors(&c, 0);
        fslow_work(&f, &w, 1000, 10);
    }
    life_drain(&f.g->life, 1);
    fcl_ask(&c, (struct fask){ .tag = tag, .max_new = 198 });
    fix_step(&f, 0);
    e = fcl_error(&c, tag++);
    assert_int_equal(e.code, FDP_E_DRAINING);
    want_about(e.retry_after_ms, (double)f.g->fair.cost_open); /* at 1000 tokens per
                                                                * second */
    life_stop(&f.g->life, 1000 * CLK_MS, 0);
    fcl_ask(&c, (struct fask){ .tag = tag, .max_new = 198 });
    fix_step(&f, 0);
    e = fcl_error(&c, tag++);
    assert_int_equal(e.code, FDP_E_DRAINING);
    want_about(e.retry_after_ms, 1000 + 3000);
    life_stop_now(&f.g->life, 0);
    e = fcl_error(&c, tag - 3);
    assert_int_equal(e.code, FDP_E_DRAINING);
    want_about(e.retry_after_ms, 3000);
    fcl_close(&c);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hints_follow_the_measured_rate),
        cmocka_unit_test(hints_of_other_limits),
        cmocka_unit_test(shed_what_would_expire),
        cmocka_unit_test(light_load_is_no_measure),
        cmocka_unit_test(t_drain_hint),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
