/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The paused gate: it queues requests, sends and loses none, and
 * requests that must end still end. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "tests/unit/gate_fixture.h"

static json_t *
ask(struct fix *f, const char *line)
{
    json_t *rq = json_loads(line, 0, NULL);
    json_t *r;

    assert_non_null(rq);
    r = ctl_execute(&f->g->ctl, NULL, rq, CTL_ADMIN, f->now);
    json_decref(rq);
    assert_non_null(r);
    return r;
}

static void
pause_is(struct fix *f, int on, int paused, const char *state)
{
    json_t *r = ask(f, on ? "{\"cmd\":\"pause\"}" : "{\"cmd\":\"pause\",\"off\":true}");

    assert_true(json_is_true(json_object_get(r, "ok")));
    assert_int_equal(json_is_true(json_object_get(r, "paused")), paused);
    assert_string_equal(json_string_value(json_object_get(r, "state")), state);
    json_decref(r);
    r = ask(f, "{\"cmd\":\"status\"}");
    assert_int_equal(json_is_true(json_object_get(r, "paused")), paused);
    assert_string_equal(json_string_value(json_object_get(r, "state")), state);
    json_decref(r);
}

static void
counts_are(struct fix *f, int queued, int running)
{
    json_t *r = ask(f, "{\"cmd\":\"status\"}"), *q = json_object_get(r, "requests");

    assert_int_equal(json_integer_value(json_object_get(q, "queued")), queued);
    assert_int_equal(json_integer_value(json_object_get(q, "running")), running);
    json_decref(r);
}

static void
refused(struct fix *f, const char *line, const char *error, const char *fix)
{
    json_t *r = ask(f, line);

    assert_true(json_is_false(json_object_get(r, "ok")));
    assert_non_null(strstr(json_string_value(json_object_get(r, "error")), error));
    assert_string_equal(json_string_value(json_object_get(r, "fix")), fix);
    json_decref(r);
}

static void
t_queues(void **state)
{
    struct fix f;
    struct fcl c;
    uint64_t first, id;

    (void)state;
    fix_open(&f, NULL);
    pause_is(&f, 1, 1, "starting"); /* also before the model is loaded */
    pause_is(&f, 0, 0, "starting");
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_submit(&c, 1, 4, 10);
    fix_step(&f, 1);
    first = fix_take(&f, NULL, NULL, NULL);
    assert_int_not_equal(first, 0);
    pause_is(&f, 1, 1, "paused");
    pause_is(&f, 1, 1, "paused");
    for (unsigned tag = 2; tag <= 4; tag++)
        fcl_submit(&c, tag, 4, 10);
    fix_step(&f, 3000);
    assert_int_equal(fix_take(&f, NULL, NULL, NULL), 0);
    counts_are(&f, 3, 1);
    /* a running request ends, and its credit is not used for another */
    fix_wdone(&f, first);
    fix_step(&f, 1);
    assert_int_equal(fix_take(&f, NULL, NULL, NULL), 0);
    counts_are(&f, 3, 0);
    assert_int_equal(f.g->wrk[0].link.credits_used, 0);
    gate_check(f.g);
    /* a queued request can be cancelled */
    fcl_cancel(&c, 3);
    fix_step(&f, 1);
    counts_are(&f, 2, 0);
    assert_int_equal(fcl_error(&c, 3).code, FDP_E_CANCELLED);
    pause_is(&f, 0, 0, "running");
    fix_step(&f, 1);
    for (int i = 0; i < 2; i++) {
        id = fix_take(&f, NULL, NULL, NULL);
        assert_int_not_equal(id, 0);
        fix_wdone(&f, id);
    }
    assert_int_equal(fix_take(&f, NULL, NULL, NULL), 0);
    fix_step(&f, 1);
    counts_are(&f, 0, 0);
    refused(&f, "{\"cmd\":\"pause\",\"off\":1}", "true or false", "fdctl pause --help");
    fcl_close(&c);
    fix_close(&f);
}

/* Requests expire in the queue, and rejected ones get a plausible time to retry after. */
static void
t_deadlines_and_hints(void **state)
{
    static const char *const sets[] = { "sched.max_queued_tokens=100", NULL };
    struct fix f;
    struct fcl c;
    struct fdp_error e;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    pause_is(&f, 1, 1, "paused");
    fcl_ask(&c, (struct fask){ .tag = 1, .max_new = 60, .ttl_queue_ms = 500 });
    fix_step(&f, 100);
    counts_are(&f, 1, 0);
    fcl_ask(&c, (struct fask){ .tag = 2, .max_new = 60 });
    fix_step(&f, 1);
    e = fcl_error(&c, 2);
    assert_int_equal(e.code, FDP_E_QUEUE_FULL);
    assert_in_range(e.retry_after_ms, 500, 2000);
    fix_step(&f, 500);
    fix_step(&f, 10);
    fcl_want_error(&c, 1, FDP_E_DEADLINE, 0);
    counts_are(&f, 0, 0);
    assert_int_equal(fix_take(&f, NULL, NULL, NULL), 0);
    fcl_close(&c);
    fix_close(&f);
}

/* The time of a pause does not count for the worker's speed. */
static void
t_rate(void **state)
{
    struct fslow w = { .n = 0 };
    struct fix f;
    struct fcl c;
    double before;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (unsigned tag = 1; tag <= 2 * FIX_CREDITS; tag++)
        fcl_ask(&c, (struct fask){ .tag = tag, .max_new = 1000 });
    fix_step(&f, 1);
    fslow_take(&f, &w);
    fslow_work(&f, &w, 2000, 2000);
    before = svc_rate(&f.g->fair.svcrate, f.now);
    assert_true(before > 1500);
    pause_is(&f, 1, 1, "paused");
    for (int i = 0; i < 100; i++)
        fix_step(&f, 50);
    assert_true(svc_rate(&f.g->fair.svcrate, f.now) > before * 0.9);
    fcl_close(&c);
    fix_close(&f);
}

static void
t_drain_ends_it(void **state)
{
    struct fix f;
    struct fcl c;
    json_t *r;
    uint64_t id;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    pause_is(&f, 1, 1, "paused");
    fcl_submit(&c, 1, 4, 10);
    fix_step(&f, 10);
    assert_int_equal(fix_take(&f, NULL, NULL, NULL), 0);
    r = ask(&f, "{\"cmd\":\"drain\"}");
    assert_true(json_is_true(json_object_get(r, "ok")));
    json_decref(r);
    fix_step(&f, 1);
    id = fix_take(&f, NULL, NULL, NULL);
    assert_int_not_equal(id, 0);
    refused(&f, "{\"cmd\":\"pause\"}", "draining", "fdctl drain --off");
    refused(&f, "{\"cmd\":\"pause\",\"off\":true}", "draining", "fdctl drain --off");
    fix_wdone(&f, id);
    fix_step(&f, 1);
    r = ask(&f, "{\"cmd\":\"drain\",\"off\":true}");
    json_decref(r);
    pause_is(&f, 0, 0, "running"); /* the pause does not come back */
    fcl_close(&c);
    fix_close(&f);
}

static void
t_stop_ends_it(void **state)
{
    struct fix f;
    struct fcl c;
    uint64_t id;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    pause_is(&f, 1, 1, "paused");
    fcl_submit(&c, 1, 4, 10);
    fix_step(&f, 10);
    life_stop(&f.g->life, 60 * CLK_S, 0);
    fix_step(&f, 1);
    id = fix_take(&f, NULL, NULL, NULL);
    assert_int_not_equal(id, 0);
    refused(&f, "{\"cmd\":\"pause\"}", "stopping", "fdctl status");
    fix_wdone(&f, id);
    fix_step(&f, 10);
    assert_int_equal(f.g->jnl.n_open, 0);
    assert_int_equal(f.g->life.step, 2);
    fcl_close(&c);
    fix_close(&f);
}

/* Queued requests wait for the next worker, and for the end of the pause. */
static void
t_worker_dies(void **state)
{
    struct fix f;
    struct fcl c;
    uint64_t id;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_submit(&c, 1, 4, 10);
    fix_step(&f, 1);
    assert_int_not_equal(fix_take(&f, NULL, NULL, NULL), 0);
    pause_is(&f, 1, 1, "paused");
    fcl_submit(&c, 2, 4, 10);
    fix_step(&f, 1);
    fix_die(&f, 9);
    for (int i = 0; i < 100 && f.n_spawn < 2; i++)
        fix_step(&f, 100);
    assert_int_equal(f.n_spawn, 2);
    fcl_error(&c, 1);
    fix_ready(&f);
    fix_step(&f, 100);
    assert_int_equal(fix_take(&f, NULL, NULL, NULL), 0);
    counts_are(&f, 1, 0);
    pause_is(&f, 0, 0, "running");
    fix_step(&f, 1);
    id = fix_take(&f, NULL, NULL, NULL);
    assert_int_not_equal(id, 0);
    fix_wdone(&f, id);
    fix_step(&f, 1);
    fcl_close(&c);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_queues),
        cmocka_unit_test(t_deadlines_and_hints),
        cmocka_unit_test(t_rate),
        cmocka_unit_test(t_drain_ends_it),
        cmocka_unit_test(t_stop_ends_it),
        cmocka_unit_test(t_worker_dies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
