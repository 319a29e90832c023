/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Which requests are accepted, which are rejected immediately, and when a queued one
 * expires: limits in requests and tokens, deadlines.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/obj.h"
#include "tests/unit/gate_fixture.h"

/* ---- requests -------------------------------------------------------------- */

static void
e13_n_accepted_next_refused(void **state)
{
    static const char *const sets[] = { "sched.max_concurrency=5",
        "ipc.trusted_users=1001", NULL };
    struct fdp_error e;
    struct fix f;
    struct fcl a, b;
    struct fdp_req q;
    uint64_t id;

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &a, 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &b, 1001, NULL), FDP_OK);
    for (unsigned i = 1; i <= 5; i++)
        fcl_ask(i % 2 ? &a : &b, (struct fask){ .tag = i, .max_new = 10 });
    fix_step(&f, 0);
    assert_int_equal(f.g->jnl.n_open, 5);
    fcl_ask(&a, (struct fask){ .tag = 6, .max_new = 10 });
    fix_step(&f, 0);
    e = fcl_error(&a, 6);
    assert_true(e.code == FDP_E_LOADING && e.retry_after_ms > 0);
    fix_ready(&f);
    id = fix_take(&f, NULL, NULL, NULL);
    fcl_ask(&b, (struct fask){ .tag = 7, .max_new = 10 }); /* a trusted client gets no
                                                            * extra room */
    fcl_req(&q, FDP_OP_PING, 8);
    q.flags = FDP_F_DEEP;
    fcl_send(&a, &q, NULL, 0, 0);
    fcl_req(&q, FDP_OP_PING, 9); /* answered by the gate: takes no entry */
    fcl_send(&b, &q, NULL, 0, 0);
    fix_step(&f, 0);
    e = fcl_error(&b, 7);
    assert_true(e.code == FDP_E_QUEUE_FULL && e.retry_after_ms > 0 && e.arg == 5);
    assert_int_equal(fcl_error(&a, 8).code, FDP_E_QUEUE_FULL);
    assert_int_equal(f.g->env.cnt->pings, 1);
    assert_int_equal(f.g->jnl.n_open, 5);
    fix_wdone(&f, id);
    fix_step(&f, 0);
    fcl_ask(&b, (struct fask){ .tag = 10, .max_new = 10 });
    fcl_ask(&b, (struct fask){ .tag = 11, .max_new = 10 });
    fix_step(&f, 0);
    assert_int_equal(fcl_error(&b, 11).code, FDP_E_QUEUE_FULL);
    assert_int_equal(f.g->jnl.n_open, 5);
    fcl_close(&a);
    fcl_close(&b);
    fix_close(&f);
}

/* One user's valid requests do not lock the others out: the last entries go to users who
 * have no request, one each. */
static void
last_entries_are_kept(void **state)
{
    static const char *const sets[] = { "sched.max_concurrency=32",
        "ipc.trusted_users=1000", NULL };
    const uint32_t kept = 32 / ADM_KEPT_SHARE;
    struct fdp_error e;
    struct fix f;
    struct fcl greedy, other[3];

    (void)state;
    assert_int_equal(kept, 2);
    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &greedy, 1000, NULL), FDP_OK);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(fcl_open(&f, &other[i], 1001 + i, NULL), FDP_OK);
    for (unsigned i = 1; i <= 40; i++)
        fcl_ask(&greedy, (struct fask){ .tag = i, .max_new = 10 });
    fix_step(&f, 0);
    assert_int_equal(f.g->jnl.n_open, 32 - kept);
    e = fcl_error(&greedy, 32 - kept + 1);
    assert_true(e.code == FDP_E_QUEUE_FULL && e.retry_after_ms > 0);
    for (unsigned i = 0; i < 3; i++) {
        fcl_ask(&other[i], (struct fask){ .tag = 1, .max_new = 10 });
        fcl_ask(&other[i], (struct fask){ .tag = 2, .max_new = 10 });
        fix_step(&f, 0);
        assert_int_equal(f.g->jnl.n_open, 32 - kept + (i < kept ? i + 1 : kept));
        assert_int_equal(fcl_error(&other[i], i < kept ? 2 : 1).code, FDP_E_QUEUE_FULL);
    }
    fcl_close(&greedy);
    for (unsigned i = 0; i < 3; i++)
        fcl_close(&other[i]);
    fix_close(&f);
}

#define N_MAX 16
#define N_CLI 3

struct cycle {
    struct fix f;
    struct fcl c[N_CLI];
    uint64_t tag[N_CLI][N_MAX]; /* open for the client */
    uint32_t n_tag[N_CLI];
    uint64_t id[N_MAX]; /* ids at the worker */
    uint32_t n_id;
    uint64_t n_refused;
    unsigned seed;
};

static void
cycle_end(struct cycle *y, uint32_t i, int how)
{
    if (how == 0)
        fix_werror(&y->f, y->id[i], FDP_E_DEADLINE);
    else
        fix_wdone(&y->f, y->id[i]);
    y->id[i] = y->id[--y->n_id];
}

static void
cycle_worker(struct cycle *y)
{
    uint64_t id;

    for (;;) {
        if ((id = fix_take(&y->f, NULL, NULL, NULL)) != 0) {
            assert_true(y->n_id < N_MAX);
            y->id[y->n_id++] = id;
        } else if ((id = fix_take_cancel(&y->f, NULL)) != 0) {
            for (uint32_t i = 0; i < y->n_id; i++) {
                if (y->id[i] == id) {
                    cycle_end(y, i, 0);
                    break;
                }
            }
        } else {
            return;
        }
    }
}

/* Runs the gate until nothing is left to do, without the check of all
 * structures that fix_step() makes. */
static void
cycle_poll(struct cycle *y)
{
    do
        cycle_worker(y);
    while (gate_poll(y->f.g, y->f.now) != 0);
}

static void
cycle_read(struct cycle *y, unsigned k)
{
    struct frec r;

    while (fcl_recv(&y->c[k], &r)) {
        if (r.h.type != FDP_T_DONE && r.h.type != FDP_T_ERROR)
            continue;
        for (uint32_t i = 0; i < y->n_tag[k]; i++) {
            if (y->tag[k][i] == r.h.tag) {
                y->tag[k][i] = y->tag[k][--y->n_tag[k]];
                break;
            }
        }
    }
}

static uint32_t
cycle_open(const struct cycle *y)
{
    uint32_t n = 0;

    for (unsigned k = 0; k < N_CLI; k++)
        n += y->n_tag[k];
    return n;
}

/* Sends one request more than there is room for; then one ends in one of several ways. */
static void
cycle_once(struct cycle *y, uint64_t tag)
{
    unsigned k = (unsigned)rand_r(&y->seed) % N_CLI, v;
    uint32_t before = cycle_open(y), room = N_MAX;
    struct fdp_error e;
    struct frec r;

    fcl_ask(&y->c[k], (struct fask){ .tag = tag, .max_new = 10 });
    cycle_poll(y);
    /* the last entry goes to a user who has no request */
    if (y->n_tag[k] != 0)
        room -= N_MAX / ADM_KEPT_SHARE;
    assert_int_equal(y->f.g->jnl.n_open, before < room ? before + 1 : before);
    if (before < room) {
        y->tag[k][y->n_tag[k]++] = tag;
        return;
    }
    assert_true(fcl_recv(&y->c[k], &r) && r.h.type == FDP_T_ERROR && r.h.tag == tag);
    memcpy(&e, r.data, sizeof(e));
    assert_int_equal(e.code, FDP_E_QUEUE_FULL);
    y->n_refused++;
    v = (unsigned)rand_r(&y->seed) % 100;
    if (v < 40) {
        cycle_end(y, (uint32_t)rand_r(&y->seed) % y->n_id, 1);
    } else if (v < 60) {
        cycle_end(y, (uint32_t)rand_r(&y->seed) % y->n_id, 0);
    } else if (v < 98) {
        k = (unsigned)rand_r(&y->seed) % N_CLI;
        if (y->n_tag[k] != 0)
            fcl_cancel(&y->c[k], y->tag[k][rand_r(&y->seed) % (int)y->n_tag[k]]);
    } else { /* the client disconnects with all its requests */
        fcl_close(&y->c[k]);
        fix_step(&y->f, 0);
        y->n_tag[k] = 0;
        cycle_poll(y);
        assert_int_equal(fcl_open(&y->f, &y->c[k], 1000 + k, NULL), FDP_OK);
    }
    cycle_poll(y);
    for (k = 0; k < N_CLI; k++)
        cycle_read(y, k);
    assert_int_equal(cycle_open(y), y->f.g->jnl.n_open);
}

/* 10^5 requests opened and closed, 10^6 with FDD_LONG: the limit N stays exact. */
static void
e13_open_close_cycles_never_change_n(void **state)
{
    static const char *const sets[] = { "sched.max_concurrency=16",
        "ipc.connects_per_second=1000000", "ipc.cq_slots=128", "ipc.sq_slots=16",
        "ipc.arena_bytes=65536", NULL };
    static struct cycle y;
    int n = getenv("FDD_LONG") != NULL ? 1000000 : 100000;

    (void)state;
    memset(&y, 0, sizeof(y));
    y.seed = getenv("SEED") != NULL ? (unsigned)atoi(getenv("SEED")) : 3;
    print_message("SEED=%u, %d cycles\n", y.seed, n);
    fix_open(&y.f, sets);
    fix_ready(&y.f);
    for (unsigned k = 0; k < N_CLI; k++)
        assert_int_equal(fcl_open(&y.f, &y.c[k], 1000 + k, NULL), FDP_OK);
    for (int i = 1; i <= n; i++) {
        y.f.now += 5000000; /* stay below ITK_REFUSED_PER_S refusals, which another test
                             * covers */
        cycle_once(&y, (uint64_t)i);
        if (i % 1000 == 0)
            gate_check(y.f.g);
    }
    print_message("%llu accepted, %llu refused\n",
        (unsigned long long)y.f.g->env.cnt->requests_total,
        (unsigned long long)y.n_refused);
    assert_true(y.n_refused > (uint64_t)n / 4);
    /* all entries come back and can be used again */
    while (y.n_id != 0) {
        cycle_end(&y, 0, 1);
        cycle_poll(&y);
    }
    for (unsigned k = 0; k < N_CLI; k++)
        cycle_read(&y, k);
    assert_true(cycle_open(&y) == 0 && y.f.g->jnl.n_open == 0);
    assert_true(y.f.g->wrk[0].link.credits_used == 0 && y.f.g->fair.cost_open == 0);
    for (uint64_t i = 0; i < N_MAX; i++)
        fcl_ask(&y.c[i == 0], (struct fask){ .tag = (uint64_t)n + 1 + i, .max_new = 10 });
    cycle_poll(&y);
    assert_int_equal(y.f.g->jnl.n_open, N_MAX);
    for (unsigned k = 0; k < N_CLI; k++)
        fcl_close(&y.c[k]);
    fix_close(&y.f);
}

/* ---- waiting time ------------------------------------------------------------ */

static void
e13_waiting_time_is_exact(void **state)
{
    static const char *const sets[] = { "sched.max_waiting_time_ms=500", NULL };
    uint64_t due[51] = { 0 }, sent = 0, ended = 0;
    struct fix f;
    struct fcl c;
    struct frec r;

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    while (ended < 50) { /* an iteration each 0.1 ms, as the loop would run */
        if (sent < 50 && f.now % 3700000 < 100000) {
            due[++sent] = f.now + 500 * CLK_MS;
            fcl_ask(&c, (struct fask){ .tag = sent, .max_new = 10 });
        }
        (void)gate_poll(f.g, f.now);
        while (fcl_recv(&c, &r)) {
            assert_true(r.h.type == FDP_T_ERROR);
            assert_true(f.now >= due[r.h.tag]);
            assert_true(f.now - due[r.h.tag] < 10 * CLK_MS);
            ended++;
        }
        f.now += 100000;
    }
    assert_int_equal(f.g->env.cnt->requests_expired, 50);
    fcl_close(&c);
    fix_close(&f);
}

/* The waiting time by the real clock, with the loop asleep in between. The gate is a
 * forked process: its memory is a copy of this one's, the rings are shared. */
static void
e13_waiting_time_by_the_wall(void **state)
{
    static const char *const sets[] = { "sched.max_waiting_time_ms=141", NULL };
    uint64_t late_ns = UINT64_MAX;
    struct fix f;
    struct fcl c;
    struct frec r;
    pid_t pid;

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(gate_run(f.g));
    /* Not a multiple of the 20 ms for which the loop sleeps with work queued. The best of
     * five counts, as other programs run here too. */
    for (uint64_t tag = 1; tag <= 5; tag++) {
        uint64_t t0 = clk_now_ns(), t, one = 1;

        fcl_ask(&c, (struct fask){ .tag = tag, .max_new = 10 });
        assert_int_equal(write(c.bell, &one, sizeof(one)), sizeof(one));
        while (!fcl_recv(&c, &r)) {
            assert_true(clk_now_ns() - t0 < 20 * CLK_S);
            (void)usleep(200);
        }
        t = clk_now_ns() - t0;
        assert_true(r.h.type == FDP_T_ERROR && r.h.tag == tag);
        assert_true(t >= 141 * CLK_MS);
        late_ns = t - 141 * CLK_MS < late_ns ? t - 141 * CLK_MS : late_ns;
    }
    print_message("late by %.2f ms\n", (double)late_ns / 1e6);
    assert_true(late_ns < 10 * CLK_MS);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    fcl_close(&c);
    fix_close(&f);
}

/* A row becomes free in the same iteration in which the next request expires: the worker
 * must not get that request. */
static void
expired_at_the_turn(void **state)
{
    struct fix f;
    struct fcl c;
    struct fslow w = { .n = 0 };

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (unsigned i = 1; i <= FIX_CREDITS; i++)
        fcl_ask(&c, (struct fask){ .tag = i, .max_new = 10 });
    fcl_ask(&c, (struct fask){ .tag = 20, .max_new = 10, .ttl_queue_ms = 50 });
    fcl_ask(&c, (struct fask){ .tag = 21, .max_new = 10, .ttl_total_ms = 50 });
    fcl_ask(&c, (struct fask){ .tag = 22, .max_new = 10, .ttl_total_ms = 51 });
    fix_step(&f, 0);
    fslow_take(&f, &w);
    assert_int_equal(w.n, FIX_CREDITS);
    fix_wdone(&f, w.row[0].id);
    f.now += 50 * CLK_MS;
    (void)gate_poll(f.g, f.now); /* the records first, the timers after */
    w.n = 0;
    fslow_take(&f, &w);
    assert_int_equal(w.n, 1);
    assert_int_equal(w.row[0].tag, 22);
    fix_step(&f, 0);
    assert_int_equal(f.g->env.cnt->requests_expired, 2);
    assert_int_equal(fcl_error(&c, 20).code, FDP_E_DEADLINE);
    assert_int_equal(fcl_error(&c, 21).code, FDP_E_DEADLINE);
    fcl_close(&c);
    fix_close(&f);
}

/* At random: each request that the worker gets has time left,
 * and the others get an error. */
static void
expired_never_reach_the_worker(void **state)
{
    unsigned seed = getenv("SEED") != NULL ? (unsigned)atoi(getenv("SEED")) : 5;
    uint64_t id[FIX_CREDITS + 1], tag = 1, n_seen = 0;
    uint32_t n = 0;
    struct lnk_submit sub;
    struct fix f;
    struct fcl c;
    struct frec r;

    (void)state;
    print_message("SEED=%u\n", seed);
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (int i = 0; i < 20000; i++) {
        if (rand_r(&seed) % 8 == 0)
            fcl_ask(&c,
                (struct fask){ .tag = tag++,
                    .max_new = 10,
                    .ttl_queue_ms = rand_r(&seed) % 3 ? 1 + (uint32_t)rand_r(&seed) % 60 : 0,
                    .ttl_total_ms =
                        rand_r(&seed) % 3 ? 1 + (uint32_t)rand_r(&seed) % 90 : 0 });
        if (n != 0 && rand_r(&seed) % 32 == 0) {
            fix_wdone(&f, id[0]);
            memmove(id, id + 1, --n * sizeof(id[0]));
        }
        f.now += (uint64_t)(rand_r(&seed) % 1500000);
        (void)gate_poll(f.g, f.now);
        while ((id[n] = fix_take(&f, &sub, NULL, NULL)) != 0) {
            assert_true(sub.deadline_queue_ns == 0 || f.now < sub.deadline_queue_ns);
            assert_true(sub.deadline_total_ns == 0 || f.now < sub.deadline_total_ns);
            n_seen++;
            if (++n == FIX_CREDITS)
                break;
        }
        while (fcl_recv(&c, &r))
            continue;
    }
    gate_check(f.g);
    print_message("%llu expired, %llu shed, %llu seen\n",
        (unsigned long long)f.g->env.cnt->requests_expired,
        (unsigned long long)f.g->env.cnt->requests_shed, (unsigned long long)n_seen);
    assert_true(f.g->env.cnt->requests_expired > 100 && n_seen > 300);
    fcl_close(&c);
    fix_close(&f);
}

/* ---- tokens ------------------------------------------------------------------ */

static void
queued_tokens_have_a_limit(void **state)
{
    static const char *const sets[] = { "sched.max_queued_tokens=1000", NULL };
    struct fdp_error e;
    struct fix f;
    struct fcl c;
    struct fslow w = { .n = 0 };
    char err[256];

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    /* while the model loads every request waits */
    fcl_ask(&c, (struct fask){ .tag = 100, .max_new = 4000 }); /* the only one: never too
                                                                * long */
    fcl_ask(&c, (struct fask){ .tag = 101, .max_new = 1 });
    fix_step(&f, 0);
    e = fcl_error(&c, 101);
    assert_true(e.code == FDP_E_LOADING && e.arg == 1000);
    fcl_cancel(&c, 100);
    fix_ready(&f);
    /* a request that starts at once has no waiting time, however long it is */
    for (unsigned i = 1; i <= FIX_CREDITS; i++)
        fcl_ask(&c, (struct fask){ .tag = i, .max_new = 900 });
    fix_step(&f, 0);
    fslow_take(&f, &w);
    assert_int_equal(w.n, FIX_CREDITS);
    for (unsigned i = 11; i <= 14; i++) /* 302 tokens each */
        fcl_ask(&c, (struct fask){ .tag = i, .max_new = 300 });
    fix_step(&f, 0);
    e = fcl_error(&c, 14);
    assert_true(e.code == FDP_E_QUEUE_FULL && e.detail == FDP_D_MAX_NEW && e.arg == 1000);
    assert_true(e.retry_after_ms > 0);
    assert_int_equal(f.g->fair.cost_queued, 906);
    fcl_ask(&c, (struct fask){ .tag = 15, .max_new = 92 }); /* exactly full */
    fcl_ask(&c, (struct fask){ .tag = 16, .max_new = 1 });
    fix_step(&f, 0);
    assert_int_equal(f.g->fair.cost_queued, 1000);
    assert_int_equal(fcl_error(&c, 16).code, FDP_E_QUEUE_FULL);
    assert_int_equal(par_set_text(f.g->cnf.ps, "sched.max_queued_tokens", "1003",
                         PAR_FROM_RUNTIME, err, sizeof(err)),
        0);
    fcl_ask(&c, (struct fask){ .tag = 17, .max_new = 1 });
    fix_step(&f, 0);
    assert_int_equal(f.g->fair.cost_queued, 1003);
    assert_int_equal(fcl_errors(&c, 17), 0);
    fcl_close(&c);
    fix_close(&f);
}

/* One user's long requests do not lock out users who have
 * none: those get tokens on top. */
static void
last_tokens_are_kept(void **state)
{
    static const char *const sets[] = { "sched.max_queued_tokens=1600", NULL };
    struct fdp_error e;
    struct fix f;
    struct fcl greedy, other[3];
    struct fslow w = { .n = 0 };

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &greedy, 1000, NULL), FDP_OK);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(fcl_open(&f, &other[i], 1001 + i, NULL), FDP_OK);
    for (unsigned i = 1; i <= FIX_CREDITS + 3; i++) /* 802 tokens each */
        fcl_ask(&greedy, (struct fask){ .tag = i, .max_new = 800 });
    fix_step(&f, 0);
    fslow_take(&f, &w);
    assert_int_equal(fcl_error(&greedy, FIX_CREDITS + 2).code, FDP_E_QUEUE_FULL);
    fcl_ask(&greedy, (struct fask){ .tag = 100, .max_new = 796 }); /* exactly full */
    fix_step(&f, 0);
    assert_int_equal(f.g->fair.cost_queued, 1600);
    /* one request of any length, then 1600 / ADM_KEPT_SHARE tokens */
    fcl_ask(&other[0], (struct fask){ .tag = 1, .max_new = 58 });
    fcl_ask(&other[1], (struct fask){ .tag = 1, .max_new = 38 });
    fcl_ask(&other[2], (struct fask){ .tag = 1, .max_new = 1 });
    fcl_ask(&other[0], (struct fask){ .tag = 2, .max_new = 1 });
    fix_step(&f, 0);
    assert_int_equal(f.g->fair.cost_queued, 1700);
    e = fcl_error(&other[2], 1);
    assert_true(e.code == FDP_E_QUEUE_FULL && e.arg == 1600 && e.retry_after_ms > 0);
    assert_int_equal(fcl_error(&other[0], 2).code, FDP_E_QUEUE_FULL);
    fcl_cancel(&other[0], 1);
    fcl_cancel(&other[1], 1);
    fix_step(&f, 0);
    fcl_ask(&other[2], (struct fask){ .tag = 2, .max_new = 4000 });
    fix_step(&f, 0);
    assert_int_equal(f.g->fair.cost_queued, 1600 + 4002);
    fcl_close(&greedy);
    for (unsigned i = 0; i < 3; i++)
        fcl_close(&other[i]);
    fix_close(&f);
}

/* There is a limit even if none is set. */
static void
queued_tokens_default(void **state)
{
    static const char *const sets[] = { "sched.max_concurrency=4", NULL };
    struct fix f;
    struct fcl c;

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_ask(&c, (struct fask){ .tag = 1, .max_new = 2000 });
    fcl_ask(&c, (struct fask){ .tag = 2, .max_new = 2092 });
    fcl_ask(&c, (struct fask){ .tag = 3, .max_new = 1 });
    fix_step(&f, 0);
    assert_int_equal(f.g->fair.cost_queued, 4 * 1024);
    assert_int_equal(fcl_error(&c, 3).arg, 4 * 1024);
    fcl_close(&c);
    fix_close(&f);
}

/* Numbers from clients at the ends of their ranges. */
static void
hostile_values(void **state)
{
    static const char *const sets[] = { "ipc.trusted_users=1000", NULL };
    struct fdp_req q;
    unsigned char b[16] __attribute__((aligned(8)));
    const uint32_t one = 1;
    struct fix f;
    struct fcl c;

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_req(&q, FDP_OP_SUBMIT, 1); /* the model is not known: any length is accepted */
    q.max_new = UINT32_MAX;
    q.n = FDP_MAX_N;
    q.user = UINT64_MAX;
    q.priority = INT32_MIN;
    q.ttl_queue_ms = q.ttl_total_ms = 604800000;
    fcl_send(&c, &q, b, fcl_item(b, 0, FDP_IT_PROMPT_IDS, &one, 4), 0);
    fix_step(&f, 0);
    assert_int_equal(f.g->fair.cost_queued, INT32_MAX); /* saturated */
    q.tag = 2;
    q.priority = INT32_MAX;
    q.user = 1;
    fcl_send(&c, &q, b, fcl_item(b, 0, FDP_IT_PROMPT_IDS, &one, 4), 0);
    fix_step(&f, 0);
    assert_int_equal(fcl_error(&c, 2).code, FDP_E_LOADING); /* no room for tokens */
    fix_ready(&f); /* now it is known, and the first request is too long */
    fix_step(&f, 0);
    assert_int_equal(fcl_error(&c, 1).code, FDP_E_TOO_LONG);
    assert_int_equal(f.g->fair.cost_queued, 0);
    q.tag = 3;
    q.max_new = FIX_MAX_LEN - 1;
    fcl_send(&c, &q, b, fcl_item(b, 0, FDP_IT_PROMPT_IDS, &one, 4), 0);
    q.tag = 4;
    q.user = 2;
    fcl_send(&c, &q, b, fcl_item(b, 0, FDP_IT_PROMPT_IDS, &one, 4), 0);
    fix_step(&f, 0);
    assert_int_equal(f.g->wrk[0].link.credits_used, FIX_CREDITS);
    assert_int_equal(f.g->fair.cost_queued, 2 + 64 * (FIX_MAX_LEN - 1));
    fcl_close(&c);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e13_n_accepted_next_refused),
        cmocka_unit_test(last_entries_are_kept),
        cmocka_unit_test(e13_open_close_cycles_never_change_n),
        cmocka_unit_test(e13_waiting_time_is_exact),
        cmocka_unit_test(e13_waiting_time_by_the_wall),
        cmocka_unit_test(expired_at_the_turn),
        cmocka_unit_test(expired_never_reach_the_worker),
        cmocka_unit_test(queued_tokens_have_a_limit),
        cmocka_unit_test(last_tokens_are_kept),
        cmocka_unit_test(queued_tokens_default),
        cmocka_unit_test(hostile_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
