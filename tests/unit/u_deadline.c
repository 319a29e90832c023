/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Total deadlines, enforced by the gate when the worker does not keep them. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "daemon/common/obj.h"
#include "tests/unit/gate_fixture.h"

static void
submit(struct fcl *c, uint64_t tag, uint32_t ttl_total_ms)
{
    unsigned char buf[16] __attribute__((aligned(8)));
    const uint32_t id = 1;
    struct fdp_req q;

    fcl_req(&q, FDP_OP_SUBMIT, tag);
    q.max_new = 10;
    q.ttl_total_ms = ttl_total_ms;
    fcl_send(c, &q, buf, fcl_item(buf, 0, FDP_IT_PROMPT_IDS, &id, sizeof(id)), 0);
}

/* Regression: a request with --timeout-ms 1500 stayed open for as long
 * as its worker was stopped. */
static void
t_hung_worker(void **state)
{
    struct fix f;
    struct fcl c;
    struct frec r;
    uint64_t id, other;
    int code = 0;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    submit(&c, 7, 1500);
    submit(&c, 8, 0);
    fix_step(&f, 1);
    id = fix_take(&f, NULL, NULL, NULL);
    other = fix_take(&f, NULL, NULL, NULL);
    assert_true(id != 0 && other != 0);
    while (fcl_recv(&c, &r))
        assert_int_not_equal(r.h.type, FDP_T_ERROR);
    /* a running worker gets a moment to end the request itself */
    fix_step(&f, 1600);
    assert_int_equal(fcl_recv(&c, &r), 0);
    fix_step(&f, 1000);
    fix_step(&f, 1000);
    fcl_want_error(&c, 7, FDP_E_DEADLINE, 0);
    assert_int_equal(fcl_recv(&c, &r), 0);
    assert_int_equal(fix_take_cancel(&f, &code), id);
    assert_int_equal(code, FDP_E_DEADLINE);
    /* its own terminal record comes late and is discarded; the credit returns */
    assert_int_equal(f.g->wrk[0].link.credits_used, 2);
    fix_werror(&f, id, FDP_E_DEADLINE);
    fix_wdone(&f, other);
    fix_step(&f, 1);
    assert_int_equal(f.g->wrk[0].link.credits_used, 0);
    assert_int_equal(fcl_recv(&c, &r), 1);
    assert_int_equal(r.h.type, FDP_T_DONE);
    assert_int_equal(r.h.tag, 8);
    assert_int_equal(fcl_recv(&c, &r), 0);
    gate_check(f.g);
    fcl_close(&c);
    fix_close(&f);
}

/* A request that the worker has queued and not begun ends at its deadline with one
 * terminal record, even if the worker is busy with a step of some seconds. A request that
 * has begun is ended by the worker. */
static void
t_not_begun(void **state)
{
    struct fix f;
    struct fcl c;
    struct frec r;
    struct lnk_submit sub;
    uint64_t begun, waits;
    int code = 0;

    (void)state;
    fix_open(&f, (const char *const[]){ "sched.max_waiting_time_ms=300", NULL });
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    submit(&c, 7, 0);
    fix_step(&f, 1);
    begun = fix_take(&f, NULL, NULL, NULL);
    assert_true(begun != 0);
    submit(&c, 8, 0);
    fix_step(&f, 1);
    waits = fix_take(&f, &sub, NULL, NULL);
    assert_true(waits != 0);
    fix_unbegin(&f, &sub);
    fix_step(&f, 290);
    while (fcl_recv(&c, &r))
        assert_int_not_equal(r.h.type, FDP_T_ERROR);
    fix_step(&f, 12);
    fcl_want_error(&c, 8, FDP_E_DEADLINE, 0);
    assert_int_equal(fcl_recv(&c, &r), 0);
    assert_int_equal(fix_take_cancel(&f, &code), waits);
    assert_int_equal(code, FDP_E_DEADLINE);
    assert_int_equal(f.g->env.cnt->requests_expired, 1);
    /* later the worker ends it too; the other request goes on */
    fix_step(&f, 3000);
    fix_werror(&f, waits, FDP_E_DEADLINE);
    fix_wtokens(&f, begun, 1);
    fix_wdone(&f, begun);
    fix_step(&f, 2);
    assert_int_equal(fcl_errors(&c, 8), 0);
    assert_int_equal(f.g->wrk[0].link.credits_used, 0);
    assert_int_equal(f.g->env.cnt->requests_done, 1);
    gate_check(f.g);
    fcl_close(&c);
    fix_close(&f);
}

/* A request's own queue deadline counts as well. A request that has tokens or was
 * cancelled is not touched. The worker may die meanwhile. */
static void
t_not_begun_ends(void **state)
{
    struct fix f;
    struct fcl c;
    struct frec r;
    struct lnk_submit sub;
    uint64_t id[4];

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_ask(&c, (struct fask){ .tag = 1, .max_new = 4, .ttl_queue_ms = 200 });
    fcl_ask(&c, (struct fask){ .tag = 2, .max_new = 4, .ttl_total_ms = 250 });
    fcl_ask(&c, (struct fask){ .tag = 3, .max_new = 4, .ttl_queue_ms = 200 });
    fcl_ask(&c, (struct fask){ .tag = 4, .max_new = 4, .ttl_queue_ms = 5000 });
    fix_step(&f, 1);
    for (int i = 0; i < 4; i++) {
        assert_true((id[i] = fix_take(&f, &sub, NULL, NULL)) != 0);
        fix_unbegin(&f, &sub);
    }
    fix_wtokens(&f, id[0], 1);
    fcl_cancel(&c, 3);
    fix_step(&f, 1);
    while (fcl_recv(&c, &r))
        assert_int_not_equal(r.h.type, FDP_T_ERROR);
    fix_step(&f, 220);
    assert_int_equal(fcl_recv(&c, &r), 0);
    fix_step(&f, 40);
    fcl_want_error(&c, 2, FDP_E_DEADLINE, 0);
    assert_int_equal(fcl_recv(&c, &r), 0);
    fix_die(&f, 9);
    assert_int_equal(fcl_error(&c, 1).code, FDP_E_GPU_RESET);
    fix_step(&f, 6000);
    assert_int_equal(fcl_errors(&c, 2), 0);
    gate_check(f.g);
    fcl_close(&c);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_hung_worker),
        cmocka_unit_test(t_not_begun),
        cmocka_unit_test(t_not_begun_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
