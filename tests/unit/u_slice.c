/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Time bounds an iteration of the gate's loop: an iteration that is late does one piece
 * of each phase, and the next goes on where it stopped. Here every iteration is late,
 * since its begin is set to the first nanosecond of the clock. The end of the daemon is
 * not bounded.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "daemon/gate/relay.h"
#include "tests/unit/gate_fixture.h"

#define UID 1000u
#define N   8u

static void
be_late(struct fix *f)
{
    f->g->t_begun = 1;
}

/* Opens the gate and N sessions. */
static void
open_all(struct fix *f, struct fcl *c)
{
    fix_open(f, NULL);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(fcl_open(f, &c[i], UID, NULL), FDP_OK);
}

static uint32_t
taken(const struct fix *f)
{
    return (uint32_t)f->g->env.cnt->pings;
}

/* Records of many users: each iteration takes one piece, some turns of ITK_USER_TURN
 * records, beginning with the session at which the last one stopped. */
static void
t_intake(void **state)
{
    struct fix f;
    struct fcl c[N];
    struct fdp_req q;
    struct frec r;
    const uint32_t turns = ITK_LOOK / ITK_USER_TURN;

    (void)state;
    fix_open(&f, NULL);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(fcl_open(&f, &c[i], UID + i, NULL), FDP_OK);
    for (uint32_t i = 0; i < 2 * N * ITK_LOOK; i++) {
        fcl_req(&q, FDP_OP_PING, 1 + i);
        fcl_send(&c[i % N], &q, NULL, 0, 0);
    }
    f.g->ses.first = 0;
    be_late(&f);
    for (uint32_t k = 1; k <= 2 * N; k++) {
        (void)gate_poll(f.g, f.now);
        assert_int_equal(taken(&f), k * ITK_LOOK);
        for (uint32_t i = 0; i < N; i++) { /* each session in turn */
            uint32_t n = 0, is_turn = (i + N - (k - 1) * turns % N) % N < turns;

            while (fcl_recv(&c[i], &r))
                n++;
            assert_int_equal(n, is_turn ? ITK_USER_TURN : 0);
        }
    }
    for (uint32_t i = 0; i < N; i++)
        fcl_close(&c[i]);
    fix_step(&f, 0);
    fix_close(&f);
}

/* Tokens of a worker, in order. */
static void
t_relay(void **state)
{
    static const char *const sets[] = { "ipc.cq_slots=16384", NULL };
    uint64_t id, before = 0;
    uint32_t polls = 0;
    struct fix f;
    struct fcl c;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, UID, NULL), FDP_OK);
    fcl_submit(&c, 1, 1, 4000);
    fix_step(&f, 0);
    id = fix_take(&f, NULL, NULL, NULL);
    be_late(&f);
    f.g->env.cnt->slots_relayed = 0;
    fix_wtokens(&f, id, 150 * (FDP_REC_MAX_LEN / 4)); /* of 64 slots each */
    while (f.g->env.cnt->slots_relayed != 150 * FDP_REC_MAX_SLOTS) {
        (void)gate_poll(f.g, f.now);
        assert_true(f.g->env.cnt->slots_relayed > before);
        assert_in_range(f.g->env.cnt->slots_relayed - before, 1,
            RLY_LOOK + FDP_REC_MAX_SLOTS);
        before = f.g->env.cnt->slots_relayed;
        polls++;
    }
    assert_true(polls > 150 * FDP_REC_MAX_SLOTS / RLY_LOOK);
    fcl_close(&c);
    fix_step(&f, 0);
    fix_close(&f);
}

/* Allocating the next pages of a ring counts for the piece. */
static void
t_grow(void **state)
{
    const uint32_t full = REGION_STEP / FDP_SLOT / FDP_REC_MAX_SLOTS - 1;
    struct fix f;
    struct fcl c[N];
    uint64_t id[N];

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(fcl_open(&f, &c[i], UID + i, NULL), FDP_OK);
        fcl_submit(&c[i], 1, 1, 4000);
        fix_step(&f, 0);
        id[i] = fix_take(&f, NULL, NULL, NULL);
        assert_true(id[i] != 0);
        fix_wtokens(&f, id[i], full * (FDP_REC_MAX_LEN / 4));
        fix_step(&f, 0);
    }
    for (uint32_t i = 0; i < N; i++)
        fix_wtokens(&f, id[i], FDP_REC_MAX_LEN / 4);
    f.g->env.cnt->slots_relayed = 0;
    be_late(&f);
    (void)gate_poll(f.g, f.now);
    assert_int_equal(f.g->env.cnt->slots_relayed, FDP_REC_MAX_SLOTS);
    for (uint32_t i = 0; i < N; i++)
        fcl_close(&c[i]);
    fix_step(&f, 0);
    fix_close(&f);
}

/* Requests that waited while the daemon was paused: RQ_LOOK in an iteration, none lost. */
static void
t_send(void **state)
{
    struct fix f;
    struct fcl c;
    uint32_t n = 0;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, UID, NULL), FDP_OK);
    f.g->wrk[0].link.ready.credits = 4 * RQ_LOOK;
    fair_grant(&f.g->fair, 4 * RQ_LOOK, 0);
    f.g->env.paused = 1;
    for (uint32_t k = 1; k <= 2 * RQ_LOOK; k++)
        fcl_submit(&c, k, 1, 4);
    fix_step(&f, 0);
    assert_int_equal(f.g->fair.n_queued, 2 * RQ_LOOK);
    f.g->env.paused = 0;
    be_late(&f);
    (void)gate_poll(f.g, f.now);
    assert_int_equal(f.g->fair.n_queued, RQ_LOOK + 1);
    assert_int_not_equal(gate_poll(f.g, f.now), 0); /* the loop does not sleep in
                                                     * between */
    assert_int_equal(f.g->fair.n_queued, 2);
    while (f.g->fair.n_queued != 0)
        assert_int_not_equal(gate_poll(f.g, f.now), 0);
    while (fix_take(&f, NULL, NULL, NULL) != 0)
        n++;
    assert_int_equal(n, 2 * RQ_LOOK);
    fcl_close(&c);
    fix_step(&f, 0);
    fix_close(&f);
}

/* Many sessions end: one in each iteration, until all have ended. */
static void
t_reap(void **state)
{
    struct fix f;
    struct fcl c[N];

    (void)state;
    open_all(&f, c);
    be_late(&f);
    for (uint32_t i = 0; i < N; i++)
        cli_kill(&f.g->clients, &f.g->ses.v[i]->c, FDP_E_PROTO);
    for (uint32_t i = 1; i <= N; i++) {
        assert_int_not_equal(gate_poll(f.g, f.now), 0);
        assert_int_equal(f.g->ses.n, N - i);
    }
    for (uint32_t i = 0; i < N; i++)
        fcl_close(&c[i]);
    fix_close(&f);
}

/* At the end of the daemon there is no next iteration: all sessions get the reason. */
static void
t_goodbye(void **state)
{
    struct fix f;
    struct fcl c[N];

    (void)state;
    open_all(&f, c);
    f.g->env.until = 1;
    life_stop_now(&f.g->life, 0);
    assert_int_equal(f.g->ses.n, 0);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(fcl_state(&c[i]), FDP_ST_GOODBYE);
        assert_int_equal(fcl_reason(&c[i]), -FDP_E_DRAINING);
        fcl_close(&c[i]);
    }
    fix_close(&f);
}

/* ---- held records, limited by counts ------------------------------------------- */

#define HELD 9000u /* slots for each client, more than its ring has */

static void
pile_up(struct fix *f, struct fcl *c, uint64_t *ids, uint32_t n)
{
    static const uint32_t tokens[512];

    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(fcl_open(f, &c[i], UID + i, NULL), FDP_OK);
        fcl_submit(&c[i], 1, 1, 4000);
        fix_step(f, 0);
        ids[i] = fix_take(f, NULL, NULL, NULL);
    }
    for (uint32_t k = 0; k < 2 * HELD / 33 + 1; k++) {
        for (uint32_t i = 0; i < n; i++)
            fix_wsend(f, ids[i], FDP_T_IDS, tokens, sizeof(tokens)); /* 33 slots */
        fix_step(f, 0);
    }
    for (uint32_t i = 0; i < n; i++)
        assert_true(f->g->ses.v[i]->c.n_held * 33 >= HELD);
}

/* Reads all records. Returns the number of slots. */
static uint32_t
read_all(struct fcl *c)
{
    struct frec r;
    uint32_t n = 0;

    while (fcl_recv(c, &r))
        n += r.h.n_slot;
    return n;
}

/* Clients that read again get a piece each in an iteration; if that is late, one does. */
static void
t_unhold(void **state)
{
    static const char *const sets[] = { "ipc.cq_slots=8192", NULL };
    uint32_t all = 2 * (2 * HELD / 33 + 1) * 33, first, second;
    struct fix f;
    struct fcl c[2];
    uint64_t ids[2];

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    pile_up(&f, c, ids, 2);
    first = read_all(&c[0]);
    second = read_all(&c[1]);
    for (int turn = 0; turn < 4; turn++) {
        uint32_t a, b;

        assert_int_not_equal(gate_poll(f.g, f.now), 0); /* it does not sleep on it */
        a = read_all(&c[0]);
        b = read_all(&c[1]);
        assert_in_range(a, CLI_PIECE, CLI_PIECE + FDP_REC_MAX_SLOTS);
        assert_in_range(b, CLI_PIECE, CLI_PIECE + FDP_REC_MAX_SLOTS);
        first += a;
        second += b;
    }
    be_late(&f);
    for (int turn = 0; turn < 4; turn++) {
        uint32_t a, b;

        assert_int_not_equal(gate_poll(f.g, f.now), 0);
        a = read_all(&c[0]);
        b = read_all(&c[1]);
        assert_true((a == 0) != (b == 0));
        assert_in_range(a + b, CLI_PIECE, CLI_PIECE + FDP_REC_MAX_SLOTS);
        first += a;
        second += b;
    }
    assert_in_range(first > second ? first - second : second - first, 0,
        CLI_PIECE + FDP_REC_MAX_SLOTS);
    while (f.g->env.cnt->records_held != 0) {
        fix_step(&f, 0);
        first += read_all(&c[0]);
        second += read_all(&c[1]);
    }
    fix_step(&f, 0);
    assert_int_equal(first + read_all(&c[0]) + second + read_all(&c[1]), all);
    for (int i = 0; i < 2; i++)
        fcl_close(&c[i]);
    fix_step(&f, 0);
    fix_close(&f);
}

/* A client leaves: CLI_CHUNKS blocks of its memory are freed in an iteration. */
static void
t_old(void **state)
{
    static const char *const sets[] = { "ipc.cq_slots=128", NULL };
    struct fix f;
    struct fcl c;
    uint64_t id;
    uint32_t blocks, n = 0;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    pile_up(&f, &c, &id, 1);
    for (uint32_t k = 0; k < 2000; k++) {
        fix_wtokens(&f, id, FDP_REC_MAX_LEN / 4);
        if (k % 100 == 0)
            fix_step(&f, 0);
    }
    fix_step(&f, 0);
    blocks = (uint32_t)(f.g->env.cnt->held_bytes / CLI_CHUNK);
    assert_true(blocks > 3 * CLI_CHUNKS);
    cli_kill(&f.g->clients, &f.g->ses.v[0]->c, FDP_OK);
    (void)gate_poll(f.g, f.now);
    assert_int_equal(f.g->ses.n, 0);
    assert_int_equal(f.g->env.cnt->held_bytes, 0);
    for (n = 1; f.g->clients.old != NULL; n++)
        assert_int_not_equal(gate_poll(f.g, f.now), 0);
    assert_int_equal(n, (blocks + CLI_CHUNKS - 1) / CLI_CHUNKS);
    fcl_close(&c);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_intake),
        cmocka_unit_test(t_relay),
        cmocka_unit_test(t_grow),
        cmocka_unit_test(t_send),
        cmocka_unit_test(t_reap),
        cmocka_unit_test(t_goodbye),
        cmocka_unit_test(t_unhold),
        cmocka_unit_test(t_old),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
