/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The admin commands: what they answer, who may, and over the socket. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/gate_fixture.h"

static json_t *
ask(struct fix *f, int perm, const char *line)
{
    json_t *rq = json_loads(line, 0, NULL);
    json_t *r;

    assert_non_null(rq);
    (void)perm;
    r = ctl_execute(f->g, NULL, rq, perm, f->now);
    json_decref(rq);
    assert_non_null(r);
    return r;
}

static void
t_control(void **state)
{
    static const char *const bad[][2] = {
        { "{\"cmd\":\"statsu\"}", "stat" }, { "{\"cmd\":\"status\",\"x\":1}", "\"x\"" },
        { "{}", "cmd" }, { "{\"cmd\":\"cancel\"}", "id" },
        { "{\"cmd\":\"cancel\",\"id\":123}", "123" },
        { "{\"cmd\":\"set\",\"name\":\"sched.max_num_seqs\",\"value\":\"3\"}", "cannot" },
        { "{\"cmd\":\"set\",\"name\":\"log.level\",\"value\":\"loud\"}", "loud" },
        { "{\"cmd\":\"set\",\"name\":\"log.debug\",\"value\":\"loud\"}", "loud" },
        { "{\"cmd\":\"config\",\"name\":\"nope\"}", "nope" },
        { "{\"cmd\":\"debug\",\"bits\":\"+nope\"}", "nope" },
        { "{\"cmd\":\"debug\",\"level\":3}", "\"level\" must be text" },
        { "{\"cmd\":\"debug\",\"bits\":\"+kv\",\"topic\":[]}", "\"topic\" must be text" },
        /* what a message cuts within a character is still told */
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
            fail_msg("%s: %s", good[i],
                json_string_value(json_object_get(r, "error")));
        json_decref(r);
    }
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
dial(struct fix *f, uid_t uid, gid_t gid)
{
    int sv[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sv), 0);
    assert_int_equal(ctl_adopt(f->g, sv[0], 1, uid, gid, f->now), 0);
    return sv[1];
}

/* What the worker is asked next that has this in it. */
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

/* A profile may take as long as it is told to; who goes away ends it, and its
 * late answer is nobody else's. */
static void
slow_questions(struct fix *f, int fd)
{
    char late[128];
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
    (void)snprintf(late, sizeof(late), "{\"ok\":true,\"id\":%lld,\"late\":[",
        (long long)f->g->ctl.ask_id - 1);
    assert_int_equal(send(f->worker_admin_fd, late, strlen(late), 0), (ssize_t)strlen(late));
    assert_null(talk(f, fd, NULL));
    assert_int_equal(send(f->worker_admin_fd, "1]}\n", 4, 0), 4);
    assert_null(talk(f, fd, NULL));
    assert_int_equal(send(f->worker_admin_fd, "{\"ok\":true,\"a\":[7]}\n", 20, 0), 20);
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
    /* who may what */
    fd = dial(&f, 5000, 70000);
    r = talk(&f, fd, "{\"cmd\":\"status\"}\n");
    assert_non_null(strstr(json_string_value(json_object_get(r, "fix")), "usermod -aG fdd "));
    json_decref(r);
    (void)close(fd);
    fd = dial(&f, 5000, 71000);
    r = talk(&f, fd, "{\"cmd\":\"status\"}\n");
    assert_true(json_is_true(json_object_get(r, "ok")));
    assert_string_equal(json_string_value(json_object_get(r, "state")), "starting");
    json_decref(r);
    r = talk(&f, fd, "{\"cmd\":\"requests\"}\n");
    assert_non_null(strstr(json_string_value(json_object_get(r, "fix")), "fdd-admin"));
    json_decref(r);
    (void)close(fd);
    fd = dial(&f, 5000, 72000);
    r = talk(&f, fd, "{\"cmd\":\"requests\"}\n");
    assert_true(json_is_true(json_object_get(r, "ok")));
    json_decref(r);
    /* in pieces; nonsense ends the connection */
    assert_null(talk(&f, fd, "{\"cmd\":"));
    r = talk(&f, fd, "\"help\"}\n");
    assert_true(json_array_size(json_object_get(r, "commands")) >= 14);
    json_decref(r);
    r = talk(&f, fd, "nonsense\n");
    assert_true(json_is_false(json_object_get(r, "ok")));
    json_decref(r);
    assert_int_equal(recv(fd, q, sizeof(q), MSG_DONTWAIT), 0);
    (void)close(fd);
    /* the worker's questions: an answer in two parts, then silence */
    fd = dial(&f, 0, 0);
    assert_null(talk(&f, fd, "{\"cmd\":\"model\"}\n"));
    n = recv(f.worker_admin_fd, q, sizeof(q), 0);
    assert_true(n > 0 && q[n - 1] == '\n');
    assert_int_equal(send(f.worker_admin_fd, "{\"ok\":true,\"a\":", 15, 0), 15);
    assert_int_equal(send(f.worker_admin_fd, "[1,2]}\n", 7, 0), 7);
    r = talk(&f, fd, NULL);
    assert_int_equal(json_array_size(json_object_get(r, "a")), 2);
    json_decref(r);
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

/* What waits, how fast it goes, who may have how much. */
static void
t_sharing(void **state)
{
    static const char *const bad[] = { "1000", "1000:0", "nobody-of-that-name:1",
        "1:2,1:3" };
    struct fix f;
    struct fcl c;
    json_t *r, *q;
    char line[256];

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        (void)snprintf(line, sizeof(line), "{\"cmd\":\"set\","
            "\"name\":\"sched.user-weights\",\"value\":\"%s\"}", bad[i]);
        r = ask(&f, CTL_ADMIN, line);
        assert_true(json_is_false(json_object_get(r, "ok")));
        assert_non_null(strstr(json_string_value(json_object_get(r, "error")),
            strrchr(bad[i], ',') != NULL ? "\"1:3\"" : bad[i]));
        assert_non_null(json_object_get(r, "fix"));
        json_decref(r);
        assert_string_equal(f.g->par->sched_user_weights, "");
    }
    r = ask(&f, CTL_ADMIN, "{\"cmd\":\"set\",\"name\":\"sched.user_weights\","
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
    assert_int_equal(json_integer_value(json_object_get(q, "drain_rate")), 0);
    assert_int_equal(json_integer_value(json_object_get(q, "shed")), 0);
    json_decref(r);
    r = ask(&f, CTL_ADMIN, "{\"cmd\":\"clients\"}");
    q = json_array_get(json_object_get(r, "clients"), 0);
    assert_int_equal(json_integer_value(json_object_get(q, "weight")), 7);
    assert_int_equal(json_integer_value(json_object_get(q, "user_queued_tokens")), 300);
    assert_int_equal(json_integer_value(json_object_get(q, "user_running")), FIX_CREDITS);
    json_decref(r);
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
    q = json_object_get(json_object_get(r, "requests"), "drain_rate");
    assert_in_range(json_integer_value(q), 1900, 2100);
    json_decref(r);
    fcl_close(&c);
    fix_close(&f);
}

/* Last words of a killed worker: whatever they hold, they are UTF-8 without
 * controls, and only administrators see them. They stay when the next worker is
 * ready. */
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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_control),
        cmocka_unit_test(t_control_socket),
        cmocka_unit_test(t_drain_wait),
        cmocka_unit_test(t_sharing),
        cmocka_unit_test(t_last_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
