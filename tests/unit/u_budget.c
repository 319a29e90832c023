/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits on the cost of one user's requests for the loop: bytes and records per
 * iteration, checks before any byte is copied, and the cost of refusals.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/gate/intake.h"
#include "tests/unit/gate_fixture.h"

#define UID     1000u
#define N_USERS 8u
#define TEXT    (ITK_INLINE - 8) /* its item is ITK_INLINE bytes, and copied at once */

static uint64_t
copied(const struct fix *f)
{
    return f->g->env.cnt->copied_bytes;
}

/* A text of n bytes at the start of the arena. Returns the bytes of its item. */
static uint32_t
put_text(struct fcl *c, uint32_t n)
{
    struct fdp_item it = { .type = FDP_IT_PROMPT_TEXT, .len = n };
    unsigned char *to = c->c2d + c->w.arena_off;

    assert_true(FDP_ITEM_SPAN(n) <= c->w.arena_bytes);
    memset(to, 0, FDP_ITEM_SPAN(n));
    memcpy(to, &it, sizeof(it));
    memset(to + sizeof(it), 'x', n);
    return (uint32_t)FDP_ITEM_SPAN(n);
}

/* A request whose items are these bytes of the arena. */
static void
send_items(struct fcl *c, unsigned op, uint64_t tag, uint32_t bytes)
{
    struct fdp_req q;

    fcl_req(&q, op, tag);
    q.len = bytes;
    fcl_send(c, &q, NULL, 0, 0);
}

static struct fdp_error
answer(struct fcl *c)
{
    struct fdp_error e = { .code = FDP_OK };
    struct frec r;

    if (fcl_recv(c, &r)) {
        assert_true(r.h.type == FDP_T_ERROR && r.h.len == sizeof(e));
        memcpy(&e, r.data, sizeof(e));
    }
    return e;
}

/* ---- one iteration ----------------------------------------------------------- */

/* Sessions of one user share a budget of bytes per iteration, and
 * so do all users together. */
static void
t_bytes(void **state)
{
    const uint32_t each = 40000;
    struct fix f;
    struct fcl c[N_USERS];
    uint64_t before;

    (void)state;
    for (uint32_t users = 1; users <= N_USERS; users += N_USERS - 1) {
        uint32_t limit = users == 1 ? ITK_USER_BYTES : ITK_LOOP_BYTES;

        fix_open(&f, NULL);
        for (uint32_t i = 0; i < N_USERS; i++)
            assert_int_equal(fcl_open(&f, &c[i], UID + i % users, NULL), FDP_OK);
        for (uint32_t i = 0; i < N_USERS; i++) {
            for (uint32_t k = 1; k <= 4; k++)
                send_items(&c[i], FDP_OP_TOKENIZE, k, put_text(&c[i], each));
        }
        before = copied(&f);
        (void)gate_poll(f.g, f.now);
        /* a copy that began within the budget is finished */
        assert_in_range(copied(&f) - before, limit, limit + each + sizeof(struct fdp_item));
        fix_step(&f, 0);
        assert_int_equal(copied(&f) - before, 4 * N_USERS * FDP_ITEM_SPAN(each));
        assert_int_equal(f.g->jnl.n_open, 4 * N_USERS);
        for (uint32_t i = 0; i < N_USERS; i++)
            fcl_close(&c[i]);
        fix_close(&f);
    }
}

/* The same for records, however many sessions send them. */
static void
t_records(void **state)
{
    struct fix f;
    struct fcl c[N_USERS], other;

    (void)state;
    fix_open(&f, NULL);
    for (uint32_t i = 0; i < N_USERS; i++)
        assert_int_equal(fcl_open(&f, &c[i], UID, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &other, UID + 1, NULL), FDP_OK);
    for (uint32_t i = 0; i < N_USERS; i++) {
        for (uint32_t k = 1; k <= ITK_BATCH; k++)
            fcl_cancel(&c[i], k);
    }
    fcl_submit(&other, 1, 1, 4);
    (void)gate_poll(f.g, f.now);
    assert_int_equal(f.g->env.cnt->cancels_unknown, ITK_USER_BATCH);
    assert_int_equal(f.g->jnl.n_open, 1);
    fix_step(&f, 0);
    assert_int_equal(f.g->env.cnt->cancels_unknown, N_USERS * ITK_BATCH);
    for (uint32_t i = 0; i < N_USERS; i++)
        fcl_close(&c[i]);
    fcl_close(&other);
    fix_close(&f);
}

/* More users than an iteration's bytes are enough for: all get the same. */
static void
t_rotation(void **state)
{
    const uint32_t polls = N_USERS, per_poll = ITK_LOOP_BYTES / ITK_INLINE;
    struct fix f;
    struct fcl c[N_USERS];

    (void)state;
    assert_true(per_poll < N_USERS);
    fix_open(&f, NULL);
    for (uint32_t i = 0; i < N_USERS; i++)
        assert_int_equal(fcl_open(&f, &c[i], UID + i, NULL), FDP_OK);
    for (uint32_t i = 0; i < N_USERS; i++) {
        for (uint32_t k = 1; k <= polls; k++)
            send_items(&c[i], FDP_OP_TOKENIZE, k, put_text(&c[i], TEXT));
    }
    for (uint32_t k = 0; k < polls; k++)
        (void)gate_poll(f.g, f.now);
    for (uint32_t i = 0; i < N_USERS; i++)
        assert_int_equal(fdr_load_acquire(c[i].sq.p_head), polls * per_poll / N_USERS);
    for (uint32_t i = 0; i < N_USERS; i++)
        fcl_close(&c[i]);
    fix_close(&f);
}

/* A few users with many sessions use up the bytes of every iteration. The next iteration
 * continues where the last one stopped, so a user with a short request waits for one turn
 * of all sessions, in iterations that serve per_poll sessions each. */
static void
t_turn(void **state)
{
    const uint32_t n = 40, n_users = 5, per_poll = ITK_LOOP_BYTES / ITK_INLINE;
    struct fix f;
    struct fcl c[40], other;
    struct fdp_req q;
    struct frec r;
    uint32_t polls = 0;

    (void)state;
    fix_open(&f, NULL);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(fcl_open(&f, &c[i], UID + i % n_users, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &other, UID + n_users, NULL), FDP_OK);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 1; k <= n; k++)
            send_items(&c[i], FDP_OP_TOKENIZE, k, put_text(&c[i], TEXT));
    }
    fcl_req(&q, FDP_OP_PING, 1);
    fcl_send(&other, &q, NULL, 0, 0);
    f.g->ses.first = 0;
    while (!fcl_recv(&other, &r)) {
        assert_true(polls < 100);
        (void)gate_poll(f.g, f.now);
        polls++;
    }
    assert_true(polls > 1 && polls <= n / per_poll + 1);
    for (uint32_t i = 0; i < n; i++)
        fcl_close(&c[i]);
    fcl_close(&other);
    fix_close(&f);
}

/* ---- before the copy ----------------------------------------------------------- */

/* Checks that the next record of c is this error, sent at once and
 * without a copy of the items. */
static void
refused_unseen(struct fix *f, struct fcl *c, int code, unsigned detail)
{
    uint64_t before = copied(f);
    struct fdp_error e;

    (void)gate_poll(f->g, f->now);
    e = answer(c);
    assert_int_equal(e.code, code);
    assert_int_equal(e.detail, detail);
    assert_int_equal(copied(f), before);
    assert_int_equal(f->g->itk.n_jobs, 0);
}

/* Long items that exceed a limit of tokens, bytes, or requests. */
static void
t_cost_first(void **state)
{
    static const char *const sets[] = { "sched.max_queued_tokens=1000",
        "sched.max_bytes_per_user=1048576", "sched.max_inflight_per_client=2",
        "ipc.arena_bytes=2097152", NULL };
    struct fix f;
    struct fcl c;

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &c, UID, NULL), FDP_OK);
    fcl_submit(&c, 1, 1, 4); /* none has too many tokens by itself */
    fix_step(&f, 0);
    assert_int_equal(f.g->jnl.n_open, 1);
    send_items(&c, FDP_OP_SUBMIT, 2, put_text(&c, 500000));
    refused_unseen(&f, &c, FDP_E_LOADING, FDP_D_MAX_NEW);
    send_items(&c, FDP_OP_TOKENIZE, 3, put_text(&c, 1500000));
    refused_unseen(&f, &c, FDP_E_LIMIT, FDP_D_BLOB);
    fcl_submit(&c, 4, 1, 4);
    fix_step(&f, 0);
    assert_int_equal(f.g->jnl.n_open, 2);
    send_items(&c, FDP_OP_TOKENIZE, 5, put_text(&c, 500000));
    refused_unseen(&f, &c, FDP_E_LIMIT, 0);
    fcl_cancel(&c, 4);
    fix_step(&f, 0);
    (void)fcl_error(&c, 4);
    send_items(&c, FDP_OP_TOKENIZE, 6, put_text(&c, 500000));
    fix_step(&f, 0);
    assert_int_equal(f.g->jnl.n_open, 2);
    fcl_close(&c);
    fix_close(&f);
}

/* ---- refusals -------------------------------------------------------------------- */

/* Sends one request of this many bytes. Returns whether it was
 * refused without being looked at. */
static int
is_unseen(struct fix *f, struct fcl *c, uint32_t bytes)
{
    uint64_t before = f->g->env.cnt->requests_unseen;

    send_items(c, FDP_OP_TOKENIZE, 2, bytes);
    fix_step(f, 0);
    assert_true(answer(c).code != FDP_OK);
    return f->g->env.cnt->requests_unseen != before;
}

/* A refusal counts whatever its code is: those after which the client
 * may try again cost as much. */
static void
t_retry_counts(void **state)
{
    static const char *const sets[] = { "sched.max_inflight_per_client=1", NULL };
    struct fix f;
    struct fcl c;
    uint32_t n, bytes;

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &c, UID, NULL), FDP_OK);
    bytes = put_text(&c, 8);
    send_items(&c, FDP_OP_TOKENIZE, 1, bytes);
    fix_step(&f, 0);
    assert_int_equal(f.g->jnl.n_open, 1);
    for (n = 0; n <= ITK_REFUSED_PER_S && !is_unseen(&f, &c, bytes); n++)
        continue;
    assert_int_equal(n, ITK_REFUSED_PER_S);
    fcl_close(&c);
    fix_close(&f);
}

/* Another program of the same user, which sent nothing that was
 * refused, is served as before. */
static void
t_others_of_the_user(void **state)
{
    struct fix f;
    struct fcl bad, good;
    uint32_t n;

    (void)state;
    fix_open(&f, NULL);
    assert_int_equal(fcl_open(&f, &bad, UID, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &good, UID, NULL), FDP_OK);
    for (n = 0; n <= ITK_REFUSED_PER_S && !is_unseen(&f, &bad, 0); n++)
        continue;
    assert_int_equal(n, ITK_REFUSED_PER_S);
    for (uint64_t tag = 1; tag <= 2 * ITK_EAGER_BATCH; tag++)
        fcl_submit(&good, tag, 1, 4);
    (void)gate_poll(f.g, f.now);
    assert_int_equal(f.g->jnl.n_open, 2 * ITK_EAGER_BATCH);
    assert_int_equal(answer(&good).code, FDP_OK);
    assert_true(is_unseen(&f, &bad, 0));
    fcl_close(&bad);
    fcl_close(&good);
    fix_close(&f);
}

/* A gateway's ring has the requests of many users: refusing those of one without a look
 * must not stop the ring from being read. */
/* Long items that are refused after they were read count by bytes, not by number. */
static void
t_refused_bytes(void **state)
{
    uint32_t bytes, end;
    uint64_t tag = 0;
    struct fix f;
    struct fcl c;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, UID, NULL), FDP_OK);
    bytes = put_text(&c, c.w.arena_bytes / 2);
    end = fcl_item(c.c2d + c.w.arena_off, bytes, FDP_IT__N, NULL, 0);
    for (int ms = 0; ms < 3000; ms++) {
        if (fdr_prod_room(&c.sq, 1) > 0)
            send_items(&c, FDP_OP_SUBMIT, ++tag, end);
        fix_step(&f, 1);
        (void)fcl_errors(&c, 0);
    }
    /* the budget of a second at once, and the same for each further second */
    assert_in_range(copied(&f), 3 * 128 * (uint64_t)ITK_INLINE,
        5 * 256 * (uint64_t)ITK_INLINE);
    assert_true(f.g->env.cnt->requests_unseen > 100);
    fcl_close(&c);
    fix_close(&f);
}

static void
t_gateway(void **state)
{
    static const char *const sets[] = { "ipc.trusted_users=1000", NULL };
    struct fdp_req q;
    struct frec r;
    struct fcl c;
    struct fix f;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, UID, NULL), FDP_OK);
    fcl_req(&q, FDP_OP_SUBMIT, 5); /* no prompt */
    q.user = 7;
    for (uint32_t i = 0; i < ITK_REFUSED_PER_S + 2 * ITK_EAGER_BATCH; i++) {
        fcl_send(&c, &q, NULL, 0, 0);
        (void)gate_poll(f.g, f.now);
        while (fcl_recv(&c, &r))
            assert_int_equal(r.h.type, FDP_T_ERROR);
    }
    assert_int_equal(f.g->env.cnt->requests_unseen, 2 * ITK_EAGER_BATCH);
    fcl_ask(&c, (struct fask){ .tag = 6, .max_new = 4, .user = 8 });
    (void)gate_poll(f.g, f.now);
    assert_int_equal(f.g->jnl.n_open, 1);
    fcl_close(&c);
    fix_step(&f, 0);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_bytes),
        cmocka_unit_test(t_records),
        cmocka_unit_test(t_rotation),
        cmocka_unit_test(t_turn),
        cmocka_unit_test(t_cost_first),
        cmocka_unit_test(t_retry_counts),
        cmocka_unit_test(t_others_of_the_user),
        cmocka_unit_test(t_refused_bytes),
        cmocka_unit_test(t_gateway),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
