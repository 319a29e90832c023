/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The admin commands: their replies, permissions, and the socket. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/log.h"
#include "daemon/gate/session.h"
#include "tests/unit/gate_fixture.h"

static long json_live; /* allocations of jansson that are live */

static void *
json_take(size_t n)
{
    json_live++;
    return malloc(n);
}

static void
json_give(void *p)
{
    json_live -= p != NULL;
    free(p);
}

static json_t *
ask(struct fix *f, int perm, const char *line)
{
    return fix_ctl(f, perm, line);
}

static void
t_control(void **state)
{
    static const char *const bad[][2] = { { "{\"cmd\":\"statsu\"}", "stat" },
        { "{\"cmd\":\"status\",\"x\":1}", "\"x\"" }, { "{}", "cmd" },
        { "{\"cmd\":\"cancel\"}", "id" }, { "{\"cmd\":\"cancel\",\"id\":123}", "123" },
        { "{\"cmd\":\"set\",\"name\":\"sched.max_num_seqs\",\"value\":\"3\"}", "cannot" },
        { "{\"cmd\":\"set\",\"name\":\"log.level\",\"value\":\"loud\"}", "loud" },
        { "{\"cmd\":\"set\",\"name\":\"log.debug\",\"value\":\"loud\"}", "loud" },
        { "{\"cmd\":\"config\",\"name\":\"nope\"}", "nope" },
        { "{\"cmd\":\"debug\",\"bits\":\"+nope\"}", "nope" },
        { "{\"cmd\":\"debug\",\"level\":3}",
            "debug: \"level\" is 3; it takes one of error warn info debug trace" },
        { "{\"cmd\":\"debug\",\"level\":\"debu\"}", "\"level\" is \"debu\"; it takes" },
        { "{\"cmd\":\"debug\",\"bits\":\"+kv\",\"topic\":[]}",
            "\"topic\" is []; it takes a text of 1 to 511 bytes" },
        { "{\"cmd\":\"status\",\"\":1}", "unknown argument \"\"; it takes: none" },
        { "{\"cmd\":\"drain\",\"\":1}", "it takes: wait, off, timeout_ms" },
        { "{\"cmd\":\"drain\",\"wait \":true}", "did you mean \"wait\"?" },
        { "{\"cmd\":\"drain\",\"timeout\":1}", "did you mean \"timeout_ms\"?" },
        { "{\"cmd\":\"drain\",\"wait\":1}", "\"wait\" is 1; it takes true or false" },
        { "{\"cmd\":\"cancel\",\"id\":1,\"session\":1}", "exactly one of \"id\" and" },
        { "{\"cmd\":\"cancel\",\"id\":0}", "\"id\" is 0; it takes a whole number from 1" },
        /* Regression: the help allowed 0 and the worker did not */
        { "{\"cmd\":\"profile\",\"context\":0}",
            "\"context\" is 0; it takes a whole number from 1 to 2147483647" },
        { "{\"cmd\":\"set\",\"name\":\"log.level\"}", "\"value\" is missing" },
        /* text that a message cuts within a character is still reported */
        { "{\"cmd\":\"debug\",\"topic\":\"xéééééééééééééééééééééééééééééé\"}",
            "unknown log topic \"x" },
        { "{\"cmd\":\"drain\",\"timeout_ms\":-1}", "timeout_ms" } };
    static const char *const good[] = { "{\"cmd\":\"help\"}", "{\"cmd\":\"status\"}",
        "{\"cmd\":\"stat\"}", "{\"cmd\":\"requests\"}", "{\"cmd\":\"clients\"}",
        "{\"cmd\":\"config\"}", "{\"cmd\":\"config\",\"name\":\"max-num-seqs\"}",
        "{\"cmd\":\"set\",\"name\":\"ipc.slow-client-ms\",\"value\":\"500\"}",
        "{\"cmd\":\"reload\"}", "{\"cmd\":\"debug\"}", "{\"cmd\":\"debug\",\"panic\":true}",
        "{\"cmd\":\"debug\",\"selfcheck\":true}", "{\"cmd\":\"cancel\",\"id\":1}",
        "{\"cmd\":\"drain\"}", "{\"cmd\":\"drain\",\"off\":true}" };
    struct fix f;
    struct fcl c;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_submit(&c, 9, 4, 10);
    fix_step(&f, 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        json_t *r = ask(&f, CTL_ADMIN, bad[i][0]);
        const char *e = json_string_value(json_object_get(r, "error"));

        assert_true(json_is_false(json_object_get(r, "ok")));
        if (e == NULL || strstr(e, bad[i][1]) == NULL)
            fail_msg("%s: %s", bad[i][0], e != NULL ? e : "(none)");
        json_decref(r);
    }
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        json_t *r = ask(&f, CTL_ADMIN, good[i]);

        if (!json_is_true(json_object_get(r, "ok")))
            fail_msg("%s: %s", good[i], json_string_value(json_object_get(r, "error")));
        json_decref(r);
    }
    fcl_close(&c);
    fix_close(&f);
}

static json_int_t
counter(struct fix *f, const char *name)
{
    json_t *r = ask(f, CTL_READ, "{\"cmd\":\"stat\"}"), *row;
    json_int_t v = -1;
    size_t i;

    json_array_foreach(json_object_get(r, "counters"), i, row) {
        if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0)
            v = json_integer_value(json_object_get(row, "value"));
    }
    json_decref(r);
    return v;
}

/* stat shows the present values, not those of the last tick. */
static void
t_stat_is_now(void **state)
{
    struct fix f;
    struct fcl c;

    (void)state;
    fix_open(&f, NULL);
    fix_step(&f, 10);
    assert_int_equal(counter(&f, "sessions"), 0);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    f.g->env.now += 5000000000ull;
    assert_int_equal(counter(&f, "sessions"), 1);
    assert_int_equal(counter(&f, "uptime_ns"), f.g->env.now - f.g->env.t_boot);
    fcl_close(&c);
    fix_close(&f);
}

static json_t *
talk(struct fix *f, int fd, const char *line)
{
    static char buf[1 << 20];
    size_t n = 0;

    if (line != NULL)
        assert_int_equal(send(fd, line, strlen(line), MSG_NOSIGNAL), strlen(line));
    for (int i = 0; i < 200; i++) {
        ssize_t k;

        fix_step(f, 0);
        k = recv(fd, buf + n, sizeof(buf) - n - 1, MSG_DONTWAIT);
        if (k > 0)
            n += (size_t)k;
        if (n > 0 && buf[n - 1] == '\n')
            return json_loadb(buf, n, 0, NULL);
        if (k == 0)
            break;
    }
    return NULL;
}

static int
dial_rc(struct fix *f, uid_t uid, gid_t gid, int *ret_fd)
{
    int sv[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sv), 0);
    *ret_fd = sv[1];
    return ctl_adopt(&f->g->ctl, sv[0], 1, uid, gid, f->now);
}

static int
dial(struct fix *f, uid_t uid, gid_t gid)
{
    int fd;

    assert_int_equal(dial_rc(f, uid, gid, &fd), 0);
    return fd;
}

/* Takes the worker's admin questions up to the next that contains this text. */
static void
asked(struct fix *f, const char *what)
{
    char q[4096];

    for (;;) {
        ssize_t n = recv(f->worker_admin_fd, q, sizeof(q) - 1, MSG_DONTWAIT);

        assert_true(n > 0);
        q[n] = '\0';
        if (strstr(q, what) != NULL)
            return;
    }
}

/* Answers the question that came `back` questions ago: the head of an answer, then this
 * text. -1: the text without a head. */
static void
answer(struct fix *f, int back, const char *text)
{
    char line[256];
    int n = back >= 0
        ? snprintf(line, sizeof(line), "{\"id\":%llu,%s",
              (unsigned long long)f->g->ctl.ask_id - (unsigned)back, text)
        : snprintf(line, sizeof(line), "%s", text);

    assert_int_equal(send(f->worker_admin_fd, line, (size_t)n, 0), n);
}

/* A profile may take the time it was given. It ends when its client disconnects, and its
 * late answer goes to no other connection. */
static void
slow_questions(struct fix *f, int fd)
{
    json_t *r;
    int other = dial(f, 0, 0);

    r = talk(f, fd, "{\"cmd\":\"profile\",\"step\":3}\n");
    assert_non_null(strstr(json_string_value(json_object_get(r, "error")), "\"step\""));
    json_decref(r);
    assert_null(talk(f, fd, "{\"cmd\":\"profile\",\"within_ms\":9000}\n"));
    asked(f, "profile");
    fix_step(f, 60000);
    assert_null(talk(f, fd, NULL));
    fix_step(f, 10000);
    r = talk(f, fd, NULL);
    assert_non_null(strstr(json_string_value(json_object_get(r, "error")), "69 s"));
    json_decref(r);
    asked(f, "cancel");
    assert_null(talk(f, other, "{\"cmd\":\"profile\",\"steps\":1}\n"));
    (void)close(other);
    fix_step(f, 0);
    asked(f, "cancel");
    assert_null(talk(f, fd, "{\"cmd\":\"model\"}\n"));
    answer(f, 1, "\"ok\":true,\"late\":[");
    assert_null(talk(f, fd, NULL));
    answer(f, -1, "1]}\n");
    assert_null(talk(f, fd, NULL));
    answer(f, 1, "\"ok\":true,\"late\":[1]}\n"); /* and in one piece with the expected
                                                  * one */
    answer(f, 0, "\"ok\":true,\"a\":[7]}\n");
    r = talk(f, fd, NULL);
    assert_non_null(json_object_get(r, "a"));
    json_decref(r);
}

static void
t_control_socket(void **state)
{
    char q[256];
    struct fix f;
    json_t *r;
    ssize_t n;
    int fd;

    (void)state;
    fix_open(&f, NULL);
    f.g->rt.group = 71000;
    f.g->rt.admin_group = 72000;
    /* permissions */
    assert_int_equal(dial_rc(&f, 5000, 70000, &fd), -EACCES);
    r = talk(&f, fd, NULL);
    assert_non_null(
        strstr(json_string_value(json_object_get(r, "fix")), "usermod -aG fdd "));
    json_decref(r);
    (void)close(fd);
    fd = dial(&f, 5000, 71000);
    r = talk(&f, fd, "{\"cmd\":\"status\"}\n");
    assert_true(json_is_true(json_object_get(r, "ok")));
    assert_string_equal(json_string_value(json_object_get(r, "state")), "starting");
    json_decref(r);
    fix_step(&f, 1000);
    r = talk(&f, fd, "{\"cmd\":\"requests\"}\n");
    assert_non_null(strstr(json_string_value(json_object_get(r, "fix")), "fdd-admin"));
    json_decref(r);
    (void)close(fd);
    fd = dial(&f, 5000, 72000);
    r = talk(&f, fd, "{\"cmd\":\"requests\"}\n");
    assert_true(json_is_true(json_object_get(r, "ok")));
    json_decref(r);
    /* a command in pieces; nonsense ends the connection */
    assert_null(talk(&f, fd, "{\"cmd\":"));
    r = talk(&f, fd, "\"help\"}\n");
    assert_true(json_array_size(json_object_get(r, "commands")) >= 14);
    json_decref(r);
    r = talk(&f, fd, "nonsense\n");
    assert_true(json_is_false(json_object_get(r, "ok")));
    json_decref(r);
    assert_int_equal(recv(fd, q, sizeof(q), MSG_DONTWAIT), 0);
    (void)close(fd);
    /* questions to the worker: an answer in two pieces, then none */
    fd = dial(&f, 0, 0);
    assert_null(talk(&f, fd, "{\"cmd\":\"model\"}\n"));
    n = recv(f.worker_admin_fd, q, sizeof(q), 0);
    assert_true(n > 0 && q[n - 1] == '\n');
    answer(&f, 0, "\"ok\":true,\"a\":");
    answer(&f, -1, "[1,2]}\n");
    r = talk(&f, fd, NULL);
    assert_int_equal(json_array_size(json_object_get(r, "a")), 2);
    assert_null(json_object_get(r, "id"));
    json_decref(r);
    /* invalid answers: without a number, with text instead of it, without an end */
    for (size_t i = 0; i < 4; i++) {
        static const char *const bad[] = { "{\"ok\":true}\n", "[]\n",
            "{\"id\":\"1\",\"a\":1}\n", "{\"id\":}\n" };

        assert_null(talk(&f, fd, "{\"cmd\":\"model\"}\n"));
        answer(&f, -1, bad[i]);
        r = talk(&f, fd, NULL);
        assert_non_null(
            strstr(json_string_value(json_object_get(r, "error")), "JSON object"));
        json_decref(r);
    }
    assert_null(talk(&f, fd, "{\"cmd\":\"memory\"}\n"));
    fix_step(&f, 5100);
    r = talk(&f, fd, NULL);
    assert_non_null(strstr(json_string_value(json_object_get(r, "error")), "5 s"));
    json_decref(r);
    slow_questions(&f, fd);
    assert_null(talk(&f, fd, "{\"cmd\":\"program\"}\n"));
    fix_die(&f, 9);
    r = talk(&f, fd, NULL);
    assert_true(json_is_false(json_object_get(r, "ok")));
    json_decref(r);
    (void)close(fd);
    fix_step(&f, 0);
    fix_close(&f);
}

static void
t_drain_wait(void **state)
{
    struct fix f;
    struct fcl c;
    uint64_t id;
    json_t *r;
    int fd;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_submit(&c, 9, 4, 10);
    fix_step(&f, 0);
    id = fix_take(&f, NULL, NULL, NULL);
    fd = dial(&f, 0, 0);
    assert_null(talk(&f, fd, "{\"cmd\":\"drain\",\"wait\":true,\"timeout_ms\":60000}\n"));
    fix_step(&f, 1000);
    assert_null(talk(&f, fd, NULL));
    fix_wdone(&f, id);
    fix_step(&f, 0);
    fix_step(&f, 2);
    r = talk(&f, fd, NULL);
    assert_true(json_is_true(json_object_get(r, "drained")));
    json_decref(r);
    (void)close(fd);
    fcl_close(&c);
    fix_step(&f, 0);
    fix_close(&f);
}

/* Queued requests, the service rate, and quotas of users. */
static void
t_sharing(void **state)
{
    static const char *const bad[] = { "1000", "1000:0", "nobody-of-that-name:1",
        "1:2,1:3" };
    struct fix f;
    struct fcl c;
    json_t *r, *q;
    char line[256];
    int sv[2];
    long live;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        (void)snprintf(line, sizeof(line),
            "{\"cmd\":\"set\","
            "\"name\":\"sched.user-weights\",\"value\":\"%s\"}",
            bad[i]);
        r = ask(&f, CTL_ADMIN, line);
        assert_true(json_is_false(json_object_get(r, "ok")));
        assert_non_null(strstr(json_string_value(json_object_get(r, "error")),
            strrchr(bad[i], ',') != NULL ? "\"1:3\"" : bad[i]));
        assert_non_null(json_object_get(r, "fix"));
        json_decref(r);
        assert_string_equal(f.g->env.par->sched_user_weights, "");
    }
    r = ask(&f, CTL_ADMIN,
        "{\"cmd\":\"set\",\"name\":\"sched.user_weights\","
        "\"value\":\"1000:7\"}");
    assert_true(json_is_true(json_object_get(r, "ok")));
    json_decref(r);
    for (unsigned i = 1; i <= FIX_CREDITS + 3; i++)
        fcl_submit(&c, i, 4, 95); /* 100 tokens each */
    fix_step(&f, 10);
    r = ask(&f, CTL_READ, "{\"cmd\":\"status\"}");
    q = json_object_get(r, "requests");
    assert_int_equal(json_integer_value(json_object_get(q, "queued")), 3);
    assert_int_equal(json_integer_value(json_object_get(q, "queued_tokens")), 300);
    assert_int_equal(json_integer_value(json_object_get(q, "service_rate")), 0);
    assert_int_equal(json_integer_value(json_object_get(q, "shed")), 0);
    json_decref(r);
    /* a connection that has sent nothing is not listed, and leaves no trace */
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
    assert_int_equal(ses_adopt(&f.g->ses, sv[0], 100, 1000, 1000), 0);
    live = json_live;
    r = ask(&f, CTL_ADMIN, "{\"cmd\":\"clients\"}");
    q = json_array_get(json_object_get(r, "clients"), 0);
    assert_int_equal(json_array_size(json_object_get(r, "clients")), 1);
    assert_int_equal(json_integer_value(json_object_get(q, "weight")), 7);
    assert_int_equal(json_integer_value(json_object_get(q, "user_queued_tokens")), 300);
    assert_int_equal(json_integer_value(json_object_get(q, "user_running")), FIX_CREDITS);
    json_decref(r);
    assert_int_equal(json_live, live);
    (void)close(sv[1]);
    fix_step(&f, 0);
    r = ask(&f, CTL_ADMIN, "{\"cmd\":\"requests\"}");
    q = json_array_get(json_object_get(r, "requests"), 0);
    assert_int_equal(json_integer_value(json_object_get(q, "cost")), 100);
    assert_int_equal(json_integer_value(json_object_get(q, "weight")), 7);
    json_decref(r);
    for (uint64_t i = 0; i < 100; i++) {
        fix_wtokens(&f, 1, 20);
        fix_step(&f, 10);
    }
    r = ask(&f, CTL_READ, "{\"cmd\":\"status\"}");
    q = json_object_get(json_object_get(r, "requests"), "service_rate");
    assert_in_range(json_integer_value(q), 1900, 2100);
    json_decref(r);
    fcl_close(&c);
    fix_close(&f);
}

/* Last words of a killed worker: any bytes become UTF-8 without control characters, and
 * only administrators see them. They stay when the next worker is ready. */
static void
t_last_words(void **state)
{
    static const char nasty[] = "<6>fdd-worker: x\x1b[2J\xff\xc3 \xe2\x82\xac\n";
    static const char panic[] = "panic: \x9b\nsecond \"\xf0\x9f\n";
    struct fix f;
    json_t *r, *crash, *lines;
    int fd;

    (void)state;
    fix_open(&f, NULL);
    f.g->rt.group = 4242;
    fix_ready(&f);
    assert_int_equal(lgq_put(&f.seg->log, nasty, sizeof(nasty) - 1), 0);
    memcpy(f.seg->panic, panic, sizeof(panic));
    fix_die(&f, 9);
    fix_step(&f, 200);
    fix_ready(&f);
    r = ask(&f, CTL_ADMIN, "{\"cmd\":\"status\"}");
    crash = json_object_get(json_object_get(r, "worker"), "last_crash");
    assert_string_equal(json_string_value(json_object_get(crash, "program")), "fdd-worker");
    assert_string_equal(json_string_value(json_object_get(crash, "how")),
        "ended by signal 9 (Killed)");
    assert_true(json_integer_value(json_object_get(crash, "ended_s")) > 0);
    lines = json_object_get(crash, "lines");
    assert_int_equal(json_array_size(lines), 1);
    assert_string_equal(json_string_value(json_array_get(lines, 0)),
        "fdd-worker: x?[2J?? \xe2\x82\xac");
    lines = json_object_get(crash, "panic");
    assert_int_equal(json_array_size(lines), 2);
    assert_string_equal(json_string_value(json_array_get(lines, 0)), "panic: ?");
    assert_string_equal(json_string_value(json_array_get(lines, 1)), "second \"??");
    assert_true(json_is_null(json_object_get(r, "last_crash")));
    json_decref(r);
    fd = dial(&f, 5000, 4242);
    r = talk(&f, fd, "{\"cmd\":\"status\"}\n");
    assert_true(json_is_true(json_object_get(r, "ok")));
    crash = json_object_get(json_object_get(r, "worker"), "last_crash");
    assert_string_equal(json_string_value(json_object_get(crash, "how")),
        "ended by signal 9 (Killed)");
    assert_true(json_is_null(json_object_get(crash, "lines")));
    assert_true(json_is_null(json_object_get(crash, "panic")));
    json_decref(r);
    (void)close(fd);
    fix_close(&f);
}

/* Each argument of the table is named in the error if its value has the wrong type. */
static void
t_arguments(void **state)
{
    struct fix f;
    char line[256], want[256], takes[256];
    json_t *r;

    (void)state;
    fix_open(&f, NULL);
    assert_true(cmd_n_args >= 24);
    for (size_t i = 0; i < cmd_n_args; i++) {
        const struct cmd_arg *a = &cmd_args[i];
        const char *name = cmd_rows[a->cmd].name;

        (void)snprintf(line, sizeof(line), "{\"cmd\":\"%s\",\"%s\":{}}", name, a->name);
        (void)snprintf(want, sizeof(want), "%s: \"%s\" is {}; it takes %s", name, a->name,
            cmd_takes(a, takes, sizeof(takes)));
        r = ask(&f, CTL_ADMIN, line);
        assert_string_equal(json_string_value(json_object_get(r, "error")), want);
        json_decref(r);
    }
    fix_close(&f);
}

/* doc/control.md agrees with the table. */
static void
t_page(void **state)
{
    const char *src = getenv("FDD_SRC");
    char path[512], *table = NULL, *page = NULL;
    size_t n_table, n_page;
    FILE *f, *o;
    int c;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/doc/control.md", src != NULL ? src : ".");
    f = fopen(path, "re");
    if (f == NULL)
        skip();
    o = open_memstream(&page, &n_page);
    while ((c = fgetc(f)) != EOF)
        (void)fputc(c, o);
    (void)fclose(o);
    (void)fclose(f);
    o = open_memstream(&table, &n_table);
    cmd_print_md(o);
    (void)fclose(o);
    if (strstr(page, table) == NULL)
        fail_msg("the table in doc/control.md is not that of ./gen_params commands");
    free(table);
    free(page);
}

static void
t_places(void **state)
{
    int fd[CTL_CONNS], other, n = 0, before;
    struct fix f;
    json_t *r;

    (void)state;
    fix_open(&f, NULL);
    f.g->rt.group = 71000;
    f.g->rt.admin_group = 72000;
    /* without a permission: one line, then the connection ends */
    assert_int_equal(dial_rc(&f, 5000, 70000, &other), -EACCES);
    r = talk(&f, other, NULL);
    assert_non_null(strstr(json_string_value(json_object_get(r, "error")),
        "may not use any admin command: that takes group fdd"));
    json_decref(r);
    assert_null(talk(&f, other, NULL));
    (void)close(other);
    /* limits of one user, then of all readers */
    for (n = 0; n < CTL_CONNS_USER; n++)
        fd[n] = dial(&f, 5000, 71000);
    assert_int_equal(dial_rc(&f, 5000, 71000, &other), -EBUSY);
    r = talk(&f, other, NULL);
    assert_non_null(strstr(json_string_value(json_object_get(r, "error")), "too many"));
    json_decref(r);
    (void)close(other);
    for (; n < CTL_CONNS_READER; n++)
        fd[n] = dial(&f, 6000 + (uid_t)(n / CTL_CONNS_USER), 71000);
    assert_int_equal(dial_rc(&f, 7000, 71000, &other), -EBUSY);
    (void)close(other);
    /* the other half is for administrators */
    for (; n < CTL_CONNS; n++)
        fd[n] = dial(&f, n % 2 == 0 ? 0 : 5000, n % 2 == 0 ? 0 : 72000);
    assert_int_equal(dial_rc(&f, 0, 0, &other), -EBUSY);
    (void)close(other);
    r = talk(&f, fd[n - 1], "{\"cmd\":\"requests\"}\n");
    assert_true(json_is_true(json_object_get(r, "ok")));
    json_decref(r);
    /* idle readers are closed, administrators stay; a byte now and then is no request */
    before = n;
    fix_step(&f, CTL_IDLE_NS / 2000000);
    assert_int_equal(send(fd[1], "{", 1, 0), 1);
    r = talk(&f, fd[0], "{\"cmd\":\"status\"}\n");
    assert_true(json_is_true(json_object_get(r, "ok")));
    json_decref(r);
    fix_step(&f, CTL_IDLE_NS / 2000000 + 1);
    fix_step(&f, 10);
    for (int i = n = 0; i < CTL_CONNS; i++)
        n += f.g->ctl.conns[i] != NULL;
    assert_int_equal(n, before - CTL_CONNS_READER + 1);
    for (int i = 0; i < CTL_CONNS; i++)
        (void)close(fd[i]);
    fix_step(&f, 0);
    fix_close(&f);
}

/* Number of bytes received. */
static size_t
got(int fd)
{
    static char b[1 << 20];
    size_t n = 0;
    ssize_t k;

    while ((k = recv(fd, b, sizeof(b), MSG_DONTWAIT)) > 0)
        n += (size_t)k;
    return n;
}

static int
lines(int fd)
{
    static char b[1 << 20];
    ssize_t k;
    int n = 0;

    while ((k = recv(fd, b, sizeof(b), MSG_DONTWAIT)) > 0) {
        for (ssize_t i = 0; i < k; i++)
            n += b[i] == '\n';
    }
    return n;
}

static void
fill(int fd, int n)
{
    static const char q[] = "{\"cmd\":\"help\"}\n";

    for (int i = 0; i < n; i++)
        assert_int_equal(send(fd, q, sizeof(q) - 1, MSG_NOSIGNAL), (ssize_t)sizeof(q) - 1);
}

/* In an iteration each connection of an administrator gets one reply, and
 * all readers together one. */
static void
t_one_line_at_a_time(void **state)
{
    int a, b, r[3], n[3] = { 0 }, least = 1000, most = 0;
    struct fix f;

    (void)state;
    fix_open(&f, NULL);
    f.g->rt.group = 71000;
    a = dial(&f, 0, 0);
    b = dial(&f, 0, 0);
    fill(a, 20);
    fill(b, 3);
    (void)gate_events(f.g, 0);
    assert_int_equal(lines(a), 1);
    assert_int_equal(lines(b), 1);
    (void)gate_events(f.g, 0);
    (void)gate_events(f.g, 0);
    assert_int_equal(lines(a), 2);
    assert_int_equal(lines(b), 2);
    for (int i = 0; i < 40; i++)
        (void)gate_events(f.g, 0);
    assert_int_equal(lines(a), 17);
    for (int i = 0; i < 3; i++) {
        r[i] = dial(&f, 5000 + (uid_t)i, 71000);
        fill(r[i], 60);
    }
    f.now += 1000000000;
    f.g->env.now = f.now;
    (void)gate_events(f.g, 0);
    (void)gate_events(f.g, 0);
    assert_int_equal(lines(r[0]) + lines(r[1]) + lines(r[2]), 1);
    assert_true(f.g->ctl.later);
    for (int i = 0; i < 90; i++)
        fix_step(&f, 1000);
    for (int i = 0; i < 3; i++) {
        n[i] = lines(r[i]);
        least = n[i] < least ? n[i] : least;
        most = n[i] > most ? n[i] : most;
    }
    assert_true(n[0] + n[1] + n[2] >= 85);
    assert_true(most - least <= 1);
    (void)close(a);
    (void)close(b);
    for (int i = 0; i < 3; i++)
        (void)close(r[i]);
    fix_step(&f, 0);
    fix_close(&f);
}

/* The time spent on readers' commands is followed by a time in
 * which no reader gets a reply. */
static void
t_readers_share(void **state)
{
    uint64_t t;
    struct fix f;
    int fd;

    (void)state;
    fix_open(&f, NULL);
    f.g->rt.group = 71000;
    fd = dial(&f, 5000, 71000);
    assert_int_equal(send(fd, "{\"cmd\":\"config\"}\n", 17, 0), 17);
    fix_step(&f, 0);
    (void)gate_events(f.g, 0);
    assert_int_equal(lines(fd), 1);
    t = f.g->ctl.t_reader - f.now;
    assert_true(t > CTL_READER_SHARE * 10000ull); /* a reply takes at least 10 us */
    fill(fd, 1);
    f.now += t - 1;
    f.g->env.now = f.now;
    (void)gate_events(f.g, 0);
    ctl_tick(&f.g->ctl, f.now);
    assert_int_equal(lines(fd), 0);
    ctl_tick(&f.g->ctl, f.now + 1);
    assert_int_equal(lines(fd), 1);
    /* a question to the worker has a pause of its own */
    fix_step(&f, 1000);
    t = f.now;
    assert_null(talk(&f, fd, "{\"cmd\":\"model\"}\n"));
    assert_true(f.g->ctl.t_reader >= t + CTL_READER_ASK_NS);
    (void)close(fd);
    fix_step(&f, 0);
    fix_close(&f);
}

/* A client that does not read has one reply waiting, is not read from, and is closed. */
static void
t_no_reading(void **state)
{
    struct fix f;
    size_t n_in = 0;
    int fd, small = 4096;

    (void)state;
    fix_open(&f, NULL);
    fd = dial(&f, 0, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    for (int i = 0; i < 4000; i++) {
        static const char q[] = "{\"cmd\":\"config\"}\n";
        ssize_t k = send(fd, q, sizeof(q) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);

        n_in += k > 0 ? (size_t)k : 0;
        fix_step(&f, 1);
    }
    assert_in_range(f.g->ctl.out_bytes, 1, 512 << 10); /* one reply */
    assert_true(n_in < 1 << 20);
    assert_non_null(f.g->ctl.conns[0]);
    fix_step(&f, CTL_STALL_NS / 1000000);
    fix_step(&f, 10);
    assert_null(f.g->ctl.conns[0]);
    assert_int_equal(f.g->ctl.out_bytes, 0);
    assert_true(got(fd) > 0);
    (void)close(fd);
    fix_close(&f);
}

/* A reader's line has at most 4 KiB, an administrator's 64. */
static void
t_long_lines(void **state)
{
    static char line[CTL_LINE_MAX + 2];
    struct fix f;
    json_t *r;
    int fd;

    (void)state;
    fix_open(&f, NULL);
    f.g->rt.group = 71000;
    memset(line, ' ', sizeof(line));
    memcpy(line, "{\"cmd\":\"help\"}", 14);
    line[CTL_LINE_READER - 1] = '\n';
    line[CTL_LINE_READER] = '\0';
    fd = dial(&f, 5000, 71000);
    r = talk(&f, fd, line);
    assert_true(json_is_true(json_object_get(r, "ok")));
    json_decref(r);
    line[CTL_LINE_READER - 1] = ' ';
    r = talk(&f, fd, line);
    assert_non_null(strstr(json_string_value(json_object_get(r, "error")), "4096 bytes"));
    json_decref(r);
    assert_null(talk(&f, fd, NULL));
    (void)close(fd);
    line[CTL_LINE_READER] = ' ';
    line[CTL_LINE_MAX - 1] = '\n';
    line[CTL_LINE_MAX] = '\0';
    fd = dial(&f, 0, 0);
    r = talk(&f, fd, line);
    assert_true(json_is_true(json_object_get(r, "ok")));
    json_decref(r);
    line[CTL_LINE_MAX - 1] = ' ';
    r = talk(&f, fd, line);
    assert_non_null(strstr(json_string_value(json_object_get(r, "error")), "65536 bytes"));
    json_decref(r);
    (void)close(fd);
    fix_step(&f, 0);
    fix_close(&f);
}

/* Connections of the daemon's own user, as which the worker runs too. */
static void
t_own_uid(void **state)
{
    static const char *const sets[] = { "ipc.refuse_own_uid=yes", NULL };
    uid_t me = geteuid() != 0 ? geteuid() : 4711;
    struct fix f;
    json_t *r;
    int fd;

    (void)state;
    if (me == 4711 && seteuid(me) != 0)
        skip();
    fix_open(&f, NULL);
    fd = dial(&f, me, 70000);
    r = talk(&f, fd, "{\"cmd\":\"requests\"}\n");
    assert_true(json_is_true(json_object_get(r, "ok")));
    json_decref(r);
    (void)close(fd);
    fix_step(&f, 0);
    fix_close(&f);
    fix_open(&f, sets);
    f.g->rt.group = 71000;
    f.g->rt.admin_group = 72000;
    assert_int_equal(dial_rc(&f, me, 70000, &fd), -EACCES);
    (void)close(fd);
    fd = dial(&f, me, 71000);
    r = talk(&f, fd, "{\"cmd\":\"stop\"}\n");
    assert_true(json_is_false(json_object_get(r, "ok")));
    json_decref(r);
    (void)close(fd);
    fd = dial(&f, me, 72000);
    r = talk(&f, fd, "{\"cmd\":\"requests\"}\n");
    assert_true(json_is_true(json_object_get(r, "ok")));
    json_decref(r);
    (void)close(fd);
    fd = dial(&f, 0, 0);
    r = talk(&f, fd, "{\"cmd\":\"requests\"}\n");
    assert_true(json_is_true(json_object_get(r, "ok")));
    json_decref(r);
    (void)close(fd);
    fix_step(&f, 0);
    fix_close(&f);
    assert_int_equal(seteuid(getuid()), 0);
}

static char said[1 << 16];

/* Runs this command and puts what is logged meanwhile into said. */
static void
hear(struct fix *f, int fd, const char *line)
{
    int log_fd = memfd_create("log", MFD_CLOEXEC), saved = dup(STDERR_FILENO);
    ssize_t n;

    assert_true(log_fd >= 0 && saved >= 0 && dup2(log_fd, STDERR_FILENO) >= 0);
    json_decref(talk(f, fd, line));
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    n = pread(log_fd, said, sizeof(said) - 1, 0);
    assert_true(n >= 0);
    said[n] = '\0';
    (void)close(saved);
    (void)close(log_fd);
}

static int
count(const char *what)
{
    int n = 0;

    for (const char *p = said; (p = strstr(p, what)) != NULL; p++)
        n++;
    return n;
}

/* The log has each command that changes something, with the
 * user, and whether it failed. */
static void
t_commands_are_logged(void **state)
{
    struct fix f;
    int fd;

    (void)state;
    fix_open(&f, NULL);
    (void)log_apply(PAR_LOG_LEVEL_INFO, "", PAR_LOG_FORMAT_TEXT, 5);
    fd = dial(&f, 0, 0);
    hear(&f, fd, "{\"cmd\":\"set\",\"name\":\"ipc.slow_client_ms\",\"value\":\"501\"}\n");
    assert_int_equal(count("control: user root (uid 0, pid 1) commands {\"cmd\":\"set\","
                           "\"name\":\"ipc.slow_client_ms\",\"value\":\"501\"}"),
        1);
    hear(&f, fd, "{\"cmd\":\"set\",\"name\":\"a\\nb\\u001b\\u00e9\",\"value\":\"1\"}\n");
    assert_int_equal(count("\n"), 2);
    assert_int_equal(count("commands {\"cmd\":\"set\",\"name\":\"a\\nb\\u001B\\u00E9\""), 1);
    assert_int_equal(count("control: set of pid 1 failed: \""), 1);
    hear(&f, fd, "{\"cmd\":\"status\"}\n");
    assert_int_equal(count("control"), 0);
    hear(&f, fd, "{\"cmd\":\"cancel\",\"x\":\"wrong\"}\n");
    assert_int_equal(count("control"), 0);
    (void)log_apply(PAR_LOG_LEVEL_DEBUG, "", PAR_LOG_FORMAT_TEXT, 5);
    hear(&f, fd, "{\"cmd\":\"status\"}\n");
    assert_int_equal(count("control: user root (uid 0, pid 1) asks {\"cmd\":\"status\"}"),
        1);
    (void)log_apply(PAR_LOG_LEVEL_INFO, "", PAR_LOG_FORMAT_TEXT, 5);
    /* all of them are logged, whatever log.rate is */
    for (int i = 0; i < 12; i++) {
        hear(&f, fd, "{\"cmd\":\"pause\"}\n");
        assert_int_equal(count(" commands {\"cmd\":\"pause\"}"), 1);
    }
    (void)log_apply(PAR_LOG_LEVEL_ERROR, "", PAR_LOG_FORMAT_TEXT, 0);
    (void)close(fd);
    fix_step(&f, 0);
    fix_close(&f);
}

/* Regression: text of a worker without its NUL, and text that is not UTF-8 (a path, cut
 * text). With the first status read past the end, with the second it gave no reply. */
static void
t_foreign_text(void **state)
{
    const json_t *w;
    struct fix f;
    json_t *r;
    int fd;

    (void)state;
    fix_open(&f, NULL);
    memset(f.seg->w.device, 'd', sizeof(f.seg->w.device));
    f.seg->w.device[1].rank = 0;
    f.seg->w.n_device = 1000;
    (void)snprintf(f.seg->w.error, sizeof(f.seg->w.error), "no model in /m\xff");
    fd = dial(&f, 0, 0);
    r = talk(&f, fd, "{\"cmd\":\"status\"}\n");
    assert_non_null(r);
    w = json_object_get(r, "worker");
    assert_int_equal(json_string_length(json_object_get(w, "device")),
        sizeof(f.seg->w.device[1].name));
    w = json_object_get(w, "devices");
    assert_int_equal(json_array_size(w), LNK_MAX_DEVICES);
    assert_true(json_is_null(json_object_get(json_array_get(w, 0), "rank")));
    assert_int_equal(json_integer_value(json_object_get(json_array_get(w, 1), "rank")), 0);
    w = json_object_get(r, "worker");
    assert_string_equal(json_string_value(json_object_get(w, "error")), "no model in /m?");
    json_decref(r);
    (void)close(fd);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_control),
        cmocka_unit_test(t_control_socket),
        cmocka_unit_test(t_stat_is_now),
        cmocka_unit_test(t_drain_wait),
        cmocka_unit_test(t_sharing),
        cmocka_unit_test(t_last_words),
        cmocka_unit_test(t_arguments),
        cmocka_unit_test(t_foreign_text),
        cmocka_unit_test(t_page),
        cmocka_unit_test(t_places),
        cmocka_unit_test(t_one_line_at_a_time),
        cmocka_unit_test(t_readers_share),
        cmocka_unit_test(t_no_reading),
        cmocka_unit_test(t_long_lines),
        cmocka_unit_test(t_own_uid),
        cmocka_unit_test(t_commands_are_logged),
    };

    json_set_alloc_funcs(json_take, json_give);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
