/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A client may park thousands of threads on its completion cursor: the daemon
 * wakes one, and pays for one. The end of its session wakes one, too. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <linux/futex.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "tests/unit/gate_fixture.h"

#define N 8

static const uint32_t *word;
static uint32_t seen, n_begun, n_woken;

static void *
sleeper(void *arg)
{
    struct timespec limit = { 1, 0 };

    (void)arg;
    __atomic_fetch_add(&n_begun, 1, __ATOMIC_RELAXED);
    if (syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0) == 0)
        __atomic_fetch_add(&n_woken, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* Lets n threads of the client sleep on its cursor. */
static void
park(const struct fcl *c, pthread_t *th, uint32_t n)
{
    n_begun = n_woken = 0;
    word = (const uint32_t *)(const void *)(c->d2c + FDP_D2C_CQ_TAIL);
    seen = fdr_load_acquire(word);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(pthread_create(&th[i], NULL, sleeper, NULL), 0);
    while (__atomic_load_n(&n_begun, __ATOMIC_RELAXED) < n)
        clk_sleep_ns(CLK_MS);
    clk_sleep_ns(200 * CLK_MS); /* asleep now */
}

static void
t_one(void **state)
{
    struct fix f;
    struct fcl c;
    struct fdp_req q;
    struct frec rec;
    pthread_t th[N];

    (void)state;
    fix_open(&f, NULL);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    park(&c, th, N);
    fdr_flag_raise((uint32_t *)(void *)(c.c2d + FDP_C2D_CQ_WAIT), FDP_WAIT_FUTEX);
    fcl_req(&q, FDP_OP_PING, 1);
    q.max_new = 0;
    fcl_send(&c, &q, NULL, 0, 0);
    fix_step(&f, 0);
    assert_true(fcl_recv(&c, &rec));
    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_join(th[i], NULL), 0);
    assert_int_equal(n_woken, 1);
    fcl_close(&c);
    fix_close(&f);
}

/* No record comes at the end of the session, and the cursor stays as it is. */
static void
t_goodbye(void **state)
{
    struct fix f;
    struct fcl c;
    pthread_t th;

    (void)state;
    fix_open(&f, NULL);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    park(&c, &th, 1);
    ses_goodbye(&f.g->ses, FDP_E_DRAINING);
    assert_int_equal(pthread_join(th, NULL), 0);
    assert_int_equal(n_woken, 1);
    assert_int_equal(fcl_state(&c), FDP_ST_GOODBYE);
    fcl_close(&c);
    fix_close(&f);
}

/* A client that waits for room is told that requests were taken; others are not. */
static void
t_room(void **state)
{
    struct fix f;
    struct fcl c;
    struct fdp_req q;
    struct frec rec;
    struct fdp_event ev;

    (void)state;
    fix_open(&f, NULL);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (uint32_t wait = 0; wait < 2; wait++) {
        fdr_flag_raise((uint32_t *)(void *)(c.c2d + FDP_C2D_SQ_WAIT), wait);
        fcl_req(&q, FDP_OP_PING, 1 + wait);
        q.max_new = 0;
        fcl_send(&c, &q, NULL, 0, 0);
        fix_step(&f, 0);
        assert_true(fcl_recv(&c, &rec));
        assert_int_equal(rec.h.type, FDP_T_DONE);
        assert_int_equal(fcl_recv(&c, &rec), (int)wait);
    }
    assert_int_equal(rec.h.type, FDP_T_EVENT);
    assert_int_equal(rec.h.tag, 0);
    memcpy(&ev, rec.data, sizeof(ev));
    assert_int_equal(ev.kind, FDP_EV_ROOM);
    fcl_close(&c);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_one),
        cmocka_unit_test(t_goodbye),
        cmocka_unit_test(t_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
