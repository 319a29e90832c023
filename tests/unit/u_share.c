/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares of the loop's time: a client that has had more than its share waits,
 * and no other does.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/slice.h"
#include "daemon/gate/fair.h"
#include "daemon/gate/share.h"
#include "tests/unit/gate_fixture.h"

#define UID   1000u
#define RATIO 10u
#define OVER  (2 * CLK_MS)

static void
t_debt(void **state)
{
    struct share s = { .debt_ns = 0 };
    uint64_t now = CLK_S;

    (void)state;
    shr_spend(&s, SHR_BURST_NS, RATIO, now);
    assert_int_equal(shr_until(&s, RATIO), 0);
    shr_spend(&s, OVER, RATIO, now);
    assert_int_equal(shr_until(&s, RATIO), now + RATIO * OVER);
    /* time reduces the debt, however often it is checked */
    for (int i = 0; i < 1000; i++)
        shr_spend(&s, 0, RATIO, now + (uint64_t)i * (RATIO - 1));
    assert_int_equal(shr_until(&s, RATIO), now + RATIO * OVER);
    now += RATIO * OVER;
    shr_spend(&s, 1, RATIO, now);
    assert_int_equal(shr_until(&s, RATIO), now + RATIO);
    /* idle time does not build up credit */
    now += 100 * CLK_S;
    shr_spend(&s, SHR_BURST_NS + OVER, RATIO, now);
    assert_int_equal(shr_until(&s, RATIO), now + RATIO * OVER);
}

/* A client that had too much is served in small pieces from then on, even with less debt,
 * until it has been idle for a while. */
static void
t_even(void **state)
{
    struct share s = { .debt_ns = 0 };
    uint64_t now = CLK_S;

    (void)state;
    shr_spend(&s, SHR_BURST_NS + 1, RATIO, now);
    now += RATIO * (SHR_BURST_NS - 10);
    shr_spend(&s, 5, RATIO, now);
    assert_int_equal(shr_until(&s, RATIO), now + RATIO * 5);
    now += SHR_FRESH_NS - 1;
    shr_spend(&s, 5, RATIO, now);
    assert_int_equal(shr_until(&s, RATIO), now + RATIO * 5);
    now += SHR_FRESH_NS;
    shr_spend(&s, 5, RATIO, now);
    assert_int_equal(shr_until(&s, RATIO), 0);
    /* after a long piece the wait is not longer than the debt */
    now += SHR_FRESH_NS;
    shr_spend(&s, SHR_BURST_NS + 1, RATIO, now);
    assert_int_equal(shr_until(&s, RATIO), now + RATIO * SHR_PIECE_NS);
}

/* Time limits an iteration, so the loop is never late. */
static void
open_timed(struct fix *f, const char *const *sets)
{
    fix_open(f, sets);
    f->g->t_begun = clk_now_ns() + 3600 * CLK_S;
}

static struct usr *
user(struct fix *f, uint64_t key)
{
    return usr_get(&f->g->fair, key, f->now);
}

static void
overspend(struct fix *f, uint64_t key)
{
    user(f, key)->time = (struct share){ .debt_ns = SHR_BURST_NS + OVER, .t = f->now };
}

static int
answered(struct fcl *c, uint64_t tag)
{
    struct frec r;

    return fcl_recv(c, &r) && r.h.tag == tag;
}

static void
t_rings(void **state)
{
    struct fix f;
    struct fcl a, same, other, late;

    (void)state;
    open_timed(&f, NULL);
    assert_int_equal(fcl_open(&f, &a, UID, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &same, UID, NULL), FDP_OK);
    fcl_ping(&a, 1);
    fix_step(&f, 0);
    assert_true(answered(&a, 1));
    assert_int_equal(user(&f, UID)->time.debt_ns, 0); /* it is the only user */
    assert_int_equal(fcl_open(&f, &other, UID + 1, NULL), FDP_OK);
    fcl_ping(&a, 2);
    fix_step(&f, 0);
    assert_true(answered(&a, 2));
    assert_true(user(&f, UID)->time.debt_ns > 0);
    overspend(&f, UID);
    fcl_ping(&a, 3);
    fcl_ping(&same, 3);
    fcl_ping(&other, 3);
    fix_step(&f, 0);
    assert_false(answered(&a, 3));
    assert_false(answered(&same, 3));
    assert_true(answered(&other, 3));
    assert_int_equal(fcl_connect(&f, &late, UID, NULL), FDP_E_LIMIT);
    assert_int_equal(ses_park(&f.g->ses), 0);
    assert_int_equal(f.g->ses.t_read, usr_until(user(&f, UID)));
    ses_unpark(&f.g->ses);
    fix_step(&f, USR_RATIO * OVER / CLK_MS + 10);
    assert_true(answered(&a, 3));
    assert_true(answered(&same, 3));
    fcl_close(&a);
    fcl_close(&same);
    fcl_close(&other);
    fix_step(&f, 0);
    assert_int_equal(f.g->fair.n_here, 0);
    fix_close(&f);
}

/* All rings of a user together get some microseconds of an
 * iteration, whatever they hold. */
static void
t_turn(void **state)
{
    static struct fcl c[8];
    struct fix f;
    struct fcl other;
    uint32_t n = 0, n_of[8] = { 0 };

    (void)state;
    open_timed(&f, NULL);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(fcl_open(&f, &c[i], UID, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &other, UID + 1, NULL), FDP_OK);
    for (uint32_t i = 0; i < 8; i++) {
        for (uint64_t tag = 1; tag <= 2 * ITK_USER_TURN; tag++)
            fcl_ping(&c[i], tag);
    }
    user(&f, UID)->time = (struct share){ .t_even = 1, .t_work = f.now, .t = f.now };
    (void)gate_poll(f.g, f.now);
    for (uint32_t i = 0; i < 8; i++) {
        while (answered(&c[i], n_of[i] + 1))
            n_of[i]++;
        assert_true(n_of[i] == 0 || n_of[i] == ITK_USER_TURN);
        n += n_of[i];
    }
    assert_int_equal(n, ITK_USER_TURN); /* then the user waits */
    for (uint32_t ms = 0; ms < 1000 && n < 8 * 2 * ITK_USER_TURN; ms++) {
        fix_step(&f, 1);
        for (uint32_t i = 0; i < 8; i++) {
            for (; answered(&c[i], n_of[i] + 1); n++)
                n_of[i]++;
        }
    }
    assert_int_equal(n, 8 * 2 * ITK_USER_TURN);
    for (uint32_t i = 0; i < 8; i++)
        fcl_close(&c[i]);
    fcl_close(&other);
    fix_step(&f, 0);
    fix_close(&f);
}

/* A trusted client acts for many users. */
static void
t_trusted(void **state)
{
    static const char *const sets[] = { "ipc.trusted_users=4242", NULL };
    struct fix f;
    struct fcl a, other;

    (void)state;
    open_timed(&f, sets);
    assert_int_equal(fcl_open(&f, &a, 4242, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &other, UID, NULL), FDP_OK);
    overspend(&f, 4242);
    fcl_ping(&a, 1);
    fix_step(&f, 0);
    assert_true(answered(&a, 1));
    fcl_close(&a);
    fcl_close(&other);
    fix_step(&f, 0);
    fix_close(&f);
}

/* A protocol violation costs the user time, not only the session that ends. */
static void
t_violation(void **state)
{
    struct fix f;
    struct fcl bad, same, other;

    (void)state;
    open_timed(&f, NULL);
    assert_int_equal(fcl_open(&f, &bad, UID, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &same, UID, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &other, UID + 1, NULL), FDP_OK);
    fdr_publish((uint32_t *)(void *)(bad.c2d + FDP_C2D_SQ_TAIL), 0x7fffffff);
    fix_step(&f, 0);
    assert_int_equal(fcl_state(&bad), FDP_ST_GOODBYE);
    assert_true(usr_until(user(&f, UID)) > f.now);
    fcl_ping(&same, 1);
    fcl_ping(&other, 1);
    fix_step(&f, 0);
    assert_false(answered(&same, 1));
    assert_true(answered(&other, 1));
    fcl_close(&bad);
    fcl_close(&same);
    fcl_close(&other);
    fix_step(&f, 0);
    fix_close(&f);
}

/* A doorbell that never stops is ignored for a while, and no wake-up is lost. */
static void
t_bell(void **state)
{
    struct fix f;
    struct fcl a, other;
    int n = 0;

    (void)state;
    open_timed(&f, NULL);
    assert_int_equal(fcl_open(&f, &a, UID, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &other, UID + 1, NULL), FDP_OK);
    for (; n < 10000; n++) {
        fcl_ring(&a);
        if (gate_events(f.g, 0) == 0)
            break;
    }
    assert_in_range(n, 100, 9999);
    fcl_ping(&a, 1);
    fcl_ring(&a);
    assert_int_equal(gate_events(f.g, 0), 0);
    fcl_ring(&other);
    assert_int_equal(gate_events(f.g, 0), 1);
    f.now = usr_until(user(&f, UID)) + 10 * CLK_MS;
    f.g->env.now = f.now;
    assert_int_equal(ses_park(&f.g->ses), 1);
    ses_unpark(&f.g->ses);
    assert_int_equal(gate_events(f.g, 0), 1);
    fix_step(&f, 1);
    assert_true(answered(&a, 1));
    fcl_close(&a);
    fcl_close(&other);
    fix_step(&f, 0);
    fix_close(&f);
}

/* Connections beyond the share wait in the backlog, and are taken later. */
static void
t_accept(void **state)
{
    struct sockaddr_un sa;
    socklen_t len;
    struct fix f;
    int c;

    (void)state;
    open_timed(&f, NULL);
    c = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    fix_listen(&f, 4, &sa, &len);
    f.g->lsn.time = (struct share){ .debt_ns = SHR_BURST_NS + OVER, .t = f.now };
    assert_int_equal(connect(c, (struct sockaddr *)&sa, len), 0);
    f.g->env.now = f.now;
    assert_int_equal(gate_events(f.g, 0), 1);
    fix_step(&f, LSN_RATIO * OVER / CLK_MS - 1);
    assert_int_equal(f.g->ses.n, 0);
    fix_step(&f, 5);
    assert_int_equal(f.g->ses.n, 1);
    assert_true(f.g->lsn.time.debt_ns > 0);
    (void)close(c);
    fix_step(&f, 0);
    fix_close(&f);
}

static void
t_slice(void **state)
{
    int rc = slc_set(SLC_NS);

    (void)state;
    if (rc == -ENOSYS || rc == -EINVAL || rc == -EPERM)
        skip();
    assert_int_equal(rc, 0);
    if (slc_get() != SLC_NS && slc_get() == 0)
        skip(); /* a kernel before 6.12 accepts the option without effect */
    assert_int_equal(slc_get(), SLC_NS);
    assert_int_equal(slc_set(0), 0);
    assert_true(slc_get() != SLC_NS);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_debt),
        cmocka_unit_test(t_even),
        cmocka_unit_test(t_turn),
        cmocka_unit_test(t_rings),
        cmocka_unit_test(t_trusted),
        cmocka_unit_test(t_violation),
        cmocka_unit_test(t_bell),
        cmocka_unit_test(t_accept),
        cmocka_unit_test(t_slice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
