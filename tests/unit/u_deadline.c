/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Total deadlines at the gate, when the worker does not keep them. */
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

/* A stopped worker kept a request with --timeout-ms 1500 for as long as it
 * was stopped. */
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
    /* a worker that lives has a moment to say it itself */
    fix_step(&f, 1600);
    assert_int_equal(fcl_recv(&c, &r), 0);
    fix_step(&f, 1000);
    fix_step(&f, 1000);
    fcl_want_error(&c, 7, FDP_E_DEADLINE, 0);
    assert_int_equal(fcl_recv(&c, &r), 0);
    assert_int_equal(fix_take_cancel(&f, &code), id);
    assert_int_equal(code, FDP_E_DEADLINE);
    /* its own word comes late and reaches nobody; the credit returns */
    assert_int_equal(f.g->wrk[0].credits_used, 2);
    fix_werror(&f, id, FDP_E_DEADLINE);
    fix_wdone(&f, other);
    fix_step(&f, 1);
    assert_int_equal(f.g->wrk[0].credits_used, 0);
    assert_int_equal(fcl_recv(&c, &r), 1);
    assert_int_equal(r.h.type, FDP_T_DONE);
    assert_int_equal(r.h.tag, 8);
    assert_int_equal(fcl_recv(&c, &r), 0);
    gate_check(f.g);
    fcl_close(&c);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_hung_worker),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
