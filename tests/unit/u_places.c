/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Which client gets a session: a full table, idle sessions, root; no descriptors left; a
 * hello that waited while the loop was blocked. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/gate/places.h"
#include "tests/unit/gate_fixture.h"

#define N 8

/* ---- the rule -------------------------------------------------------------- */

static int
pick(uint32_t mine, const struct plc_ses *s, int n)
{
    struct plc p;

    plc_begin(&p, mine, 1000 * CLK_S);
    for (int i = 0; i < n; i++)
        plc_look(&p, i, &s[i]);
    return p.at;
}

static void
t_rule(void **state)
{
    const uint64_t now = 1000 * CLK_S, old = now - PLC_IDLE_S * CLK_S;
    struct plc_ses s[4] = { { 2, 0, now }, { 3, 0, now - 1 }, { 3, 0, now - 2 },
        { 9, 1, old } };

    (void)state;
    assert_int_equal(pick(0, s, 4), 2); /* most sessions, longest idle */
    assert_int_equal(pick(1, s, 4), 2);
    assert_int_equal(pick(2, s, 4), -1); /* would have more than the others */
    s[3].sessions = 2 + PLC_CROWD;
    assert_int_equal(pick(2, s, 4), 3); /* busy, but of the user with most */
    assert_int_equal(pick(1, s, 4), 2); /* an idle one first */
    s[0] = (struct plc_ses){ 1, 0, old + 1 };
    assert_int_equal(pick(0, s, 1), -1); /* its only session, used lately */
    s[0].t_used = old;
    assert_int_equal(pick(0, s, 1), 0);
    assert_int_equal(pick(1, s, 1), -1); /* no user takes another's only session */
    s[0] = (struct plc_ses){ 20, 3, now };
    s[1] = (struct plc_ses){ 20, 1, now };
    assert_int_equal(pick(0, s, 2), 1); /* fewest open requests */
    assert_int_equal(pick(0, s, 0), -1);
}

/* ---- in the gate ----------------------------------------------------------- */

static const char *const eight[] = { "ipc.max_clients=8", "ipc.max_clients_per_user=4",
    "ipc.connects_per_second=1000", NULL };

/* Uids 1000 and 1001 have four sessions each, opened alternately, 1 s apart. */
static void
crowd(struct fix *f, struct fcl *c)
{
    fix_open(f, eight);
    for (int i = 0; i < N; i++) {
        assert_int_equal(fcl_open(f, &c[i], 1000 + (uid_t)i % 2, NULL), FDP_OK);
        fix_step(f, 1000);
    }
}

static void
t_idle(void **state)
{
    struct fcl c[N], late[4], root;
    struct frec rec;
    struct fdp_req q;
    struct fix f;

    (void)state;
    crowd(&f, c);
    /* the oldest session is active: a ping is answered by the gate, but is a request */
    fcl_req(&q, FDP_OP_PING, 1);
    q.max_new = 0;
    fcl_send(&c[0], &q, NULL, 0, 0);
    fix_step(&f, 1000);
    assert_true(fcl_recv(&c[0], &rec));
    assert_int_equal(fcl_open(&f, &late[0], 1002, NULL), FDP_OK);
    assert_int_equal(f.g->ses.n, N);
    assert_int_equal(fcl_state(&c[0]), FDP_ST_RUN);
    assert_int_equal(fcl_state(&c[1]), FDP_ST_GOODBYE);
    assert_int_equal(fcl_reason(&c[1]), -FDP_E_DISCONNECTED);
    /* 4 and 3 are left: 1000 loses one, then each loses one more */
    assert_int_equal(fcl_open(&f, &late[1], 1002, NULL), FDP_OK);
    assert_int_equal(fcl_state(&c[0]), FDP_ST_RUN);
    assert_int_equal(fcl_state(&c[2]), FDP_ST_GOODBYE);
    /* 3, 3, 2: 1002 gets no more */
    assert_int_equal(fcl_open(&f, &late[2], 1002, NULL), FDP_E_LIMIT);
    assert_int_equal(fcl_open(&f, &late[2], 1000, NULL), FDP_E_LIMIT);
    /* but another uid does, and root without closing one */
    assert_int_equal(fcl_open(&f, &late[2], 1003, NULL), FDP_OK);
    assert_int_equal(f.g->ses.n, N);
    assert_int_equal(fcl_open(&f, &root, 0, NULL), FDP_OK);
    assert_int_equal(f.g->ses.n, N + 1);
    for (int i = 0; i < N; i++)
        fcl_close(&c[i]);
    fix_close(&f);
}

/* Sessions with open requests stay, and root still gets one. */
static void
t_busy(void **state)
{
    struct fcl c[N], late, root[PLC_KEPT + 1];
    struct fix f;

    (void)state;
    crowd(&f, c);
    for (int i = 0; i < N; i++)
        fcl_submit(&c[i], 1, 2, 4);
    fix_step(&f, 0);
    assert_int_equal(fcl_open(&f, &late, 1002, NULL), FDP_E_LIMIT);
    assert_int_equal(fcl_open(&f, &root[0], 0, NULL), FDP_OK);
    assert_int_equal(f.g->ses.n, N + 1);
    for (int i = 0; i < N; i++)
        assert_int_equal(fcl_state(&c[i]), FDP_ST_RUN);
    fix_close(&f);
}

/* A connection refused for another reason closes no session. */
static void
t_refused(void **state)
{
    static const char *const sets[] = { "ipc.max_clients=3", "ipc.connects_per_second=1",
        NULL };
    struct fcl c[3], late;
    struct fix f;

    (void)state;
    fix_open(&f, sets);
    for (int i = 0; i < 3; i++) { /* all that 1001 may open at once */
        assert_int_equal(fcl_open(&f, &late, 1001, NULL), FDP_OK);
        fcl_close(&late);
        fix_step(&f, 0);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(fcl_open(&f, &c[i], 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &late, 1001, NULL), FDP_E_LIMIT); /* too often */
    assert_int_equal(f.g->ses.n, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fcl_state(&c[i]), FDP_ST_RUN);
    assert_int_equal(fcl_open(&f, &late, 1002, NULL), FDP_OK);
    assert_int_equal(f.g->ses.n, 3);
    assert_int_equal(fcl_state(&c[0]), FDP_ST_GOODBYE);
    fix_close(&f);
}

/* ---- accept and hello ------------------------------------------------------ */

/* While no descriptor is left there is one event and no more; later
 * the connection is accepted. */
static void
t_no_descriptor(void **state)
{
    struct sockaddr_un sa;
    socklen_t len;
    struct rlimit rl, none;
    struct fix f;
    int c, events = 0;

    (void)state;
    fix_open(&f, NULL);
    c = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    fix_listen(&f, 4, &sa, &len);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &rl), 0);
    none = rl;
    none.rlim_cur = (rlim_t)dup(c); /* the lowest free one */
    assert_int_equal(close((int)none.rlim_cur), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(connect(c, (struct sockaddr *)&sa, len), 0);
    for (int i = 0; i < 20; i++)
        events += gate_events(f.g, 0) > 0;
    assert_int_equal(events, 1);
    assert_int_equal(f.g->ses.n, 0);
    fix_step(&f, LSN_RETRY_MS + 10); /* retried without success */
    assert_int_equal(f.g->ses.n, 0);
    assert_int_not_equal(f.g->lsn.t_retry, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &rl), 0);
    fix_step(&f, LSN_RETRY_MS + 10);
    assert_int_equal(f.g->ses.n, 1);
    assert_int_equal(f.g->lsn.t_retry, 0);
    (void)close(c);
    fix_close(&f);
}

/* More connections than are accepted in one iteration: there is no event for the rest. */
static void
t_backlog(void **state)
{
    static const char *const sets[] = { "ipc.connects_per_second=1000",
        "ipc.max_clients_per_user=100", NULL };
    struct sockaddr_un sa;
    socklen_t len;
    struct fix f;
    int c[80];

    (void)state;
    fix_open(&f, sets);
    fix_listen(&f, 100, &sa, &len);
    for (int i = 0; i < 80; i++) {
        c[i] = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        assert_int_equal(connect(c[i], (struct sockaddr *)&sa, len), 0);
    }
    (void)gate_events(f.g, 0);
    assert_in_range(f.g->ses.n, 1, 16);
    for (int i = 0; i < 20; i++)
        fix_step(&f, 10);
    assert_int_equal(f.g->ses.n, 80);
    for (int i = 0; i < 80; i++)
        (void)close(c[i]);
    fix_step(&f, 0);
    fix_close(&f);
}

static uint32_t
n_open(const struct fix *f)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->g->ses.n; i++)
        n += f->g->ses.v[i]->c.st == CLI_OPEN || f->g->ses.v[i]->c.st == CLI_MAPS;
    return n;
}

/* Many sessions that begin and end at once: others are served in between, and
 * no one-time event is lost. */
static void
t_many_events(void **state)
{
    static const char *const sets[] = { "ipc.connects_per_second=1000",
        "ipc.max_clients_per_user=100", NULL };
    enum { MANY = 40 };
    struct sockaddr_un sa;
    socklen_t len;
    struct fdp_hello h;
    struct fix f;
    struct fcl c;
    int sv[MANY][2], last;

    (void)state;
    fix_open(&f, sets);
    last = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    fix_listen(&f, 4, &sa, &len);
    assert_int_equal(fcl_open(&f, &c, 1001, NULL), FDP_OK);
    fcl_hello(&h);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, sv[i]), 0);
        assert_int_equal(ses_adopt(&f.g->ses, sv[i][0], 1, 1000, 1000), 0);
        assert_int_equal(send(sv[i][1], &h, sizeof(h), 0), sizeof(h));
    }
    assert_int_equal(connect(last, (struct sockaddr *)&sa, len), 0);
    for (uint32_t i = 1; n_open(&f) < MANY + 1; i++) {
        (void)gate_events(f.g, 0);
        assert_int_equal(n_open(&f), 1 + i * GATE_EVENTS);
        (void)gate_poll(f.g, f.now);
    }
    assert_int_equal(f.g->ses.n, MANY + 1);
    (void)gate_events(f.g, 0);
    assert_int_equal(f.g->ses.n, MANY + 2); /* the connection */
    for (int i = 0; i < MANY; i++)
        (void)close(sv[i][1]);
    for (uint32_t i = 1; n_open(&f) > 1; i++) {
        (void)gate_events(f.g, 0);
        (void)gate_poll(f.g, f.now);
        assert_int_equal(n_open(&f), 1 + MANY - i * GATE_EVENTS);
    }
    fcl_close(&c);
    (void)close(last);
    fix_step(&f, 0);
    assert_int_equal(f.g->ses.n, 0);
    fix_close(&f);
}

/* A worker ends while a connection waits: that event, which comes once, is not dropped
 * with the worker's. */
static void
t_worker_ends(void **state)
{
    struct sockaddr_un sa;
    socklen_t len;
    struct fix f;
    int c;

    (void)state;
    fix_open(&f, NULL);
    fix_listen(&f, 4, &sa, &len);
    c = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    (void)close(f.worker_admin_fd);
    f.worker_admin_fd = -1;
    assert_int_equal(connect(c, (struct sockaddr *)&sa, len), 0);
    fix_step(&f, 0);
    assert_int_equal(f.g->ses.n, 1);
    (void)close(c);
    fix_step(&f, 0);
    fix_close(&f);
}

/* The loop was blocked for longer than the time limit of a handshake. */
static void
t_stall(void **state)
{
    struct fdp_welcome w;
    struct fdp_hello h;
    struct fix f;
    int sv[2];

    (void)state;
    fix_open(&f, NULL);
    fcl_hello(&h);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, sv), 0);
    assert_int_equal(ses_adopt(&f.g->ses, sv[0], 1, 1000, 1000), 0);
    assert_int_equal(send(sv[1], &h, sizeof(h), 0), sizeof(h));
    f.now += 5 * CLK_S;
    (void)gate_poll(f.g, f.now); /* timers run before sockets */
    assert_int_equal(f.g->ses.n, 1);
    assert_int_equal(recv(sv[1], &w, sizeof(w), 0), sizeof(w));
    assert_int_equal(w.err, FDP_OK);
    (void)close(sv[1]);
    fix_step(&f, 0);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_rule),
        cmocka_unit_test(t_idle),
        cmocka_unit_test(t_busy),
        cmocka_unit_test(t_refused),
        cmocka_unit_test(t_no_descriptor),
        cmocka_unit_test(t_backlog),
        cmocka_unit_test(t_many_events),
        cmocka_unit_test(t_worker_ends),
        cmocka_unit_test(t_stall),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
