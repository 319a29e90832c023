/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The request log: which lines are logged, for which requests, with which fields, and
 * that no line has any of a request's contents. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/obj.h"
#include "libclient/fdname.h"
#include "tests/unit/gate_fixture.h"

static int cap_fd = -1, cap_saved = -1;
static char cap_text[1 << 18];

static void
cap_begin(void)
{
    cap_fd = memfd_create("log", MFD_CLOEXEC);
    cap_saved = dup(STDERR_FILENO);
    assert_true(cap_fd >= 0 && cap_saved >= 0);
    assert_true(dup2(cap_fd, STDERR_FILENO) >= 0);
}

static int
cap_end(void)
{
    ssize_t n;
    int lines = 0;

    assert_true(dup2(cap_saved, STDERR_FILENO) >= 0);
    n = pread(cap_fd, cap_text, sizeof(cap_text) - 1, 0);
    assert_true(n >= 0);
    (void)close(cap_fd);
    (void)close(cap_saved);
    cap_text[n] = '\0';
    for (ssize_t i = 0; i < n; i++)
        lines += cap_text[i] == '\n';
    return lines;
}

struct world {
    struct fix f;
    struct fcl c;
};

static void
world_open(struct world *w, const char *const *sets)
{
    struct fdp_hello h;

    fix_open(&w->f, sets);
    (void)log_apply(PAR_LOG_LEVEL_INFO, "", PAR_LOG_FORMAT_JSON, 0);
    fix_ready(&w->f);
    fcl_hello(&h);
    (void)snprintf(h.name, sizeof(h.name), "pro\"gram");
    assert_int_equal(fcl_open(&w->f, &w->c, 1000, &h), FDP_OK);
}

static void
world_close(struct world *w, int with_client)
{
    if (with_client)
        fcl_close(&w->c);
    fix_close(&w->f);
    (void)log_apply(PAR_LOG_LEVEL_ERROR, "", PAR_LOG_FORMAT_TEXT, 0);
}

/* Returns the only line, as JSON. */
static json_t *
only_line(const char *msg)
{
    json_t *o;

    assert_int_equal(cap_end(), 1);
    o = json_loads(cap_text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(o);
    assert_string_equal(json_string_value(json_object_get(o, "topic")), "request");
    assert_string_equal(json_string_value(json_object_get(o, "msg")), msg);
    return o;
}

static int64_t
num(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    assert_true(json_is_number(v));
    return llround(json_number_value(v));
}

static void
want_text(const json_t *o, const char *key, const char *want)
{
    assert_string_equal(json_string_value(json_object_get(o, key)), want);
}

/* The worker ends the request after ms, having begun it after a quarter of that. */
static void
done_in(struct world *w, uint64_t id, uint64_t t_submit, uint64_t ms, uint32_t n_out)
{
    struct fdp_choice_end end = { .finish = FDP_FIN_LENGTH, .n_tokens = n_out };
    struct fdp_done d = { .prompt_tokens = 7,
        .cached_tokens = 3,
        .output_tokens = n_out,
        .n_preempted = 2 };

    fix_waccept(&w->f, id, 7);
    fix_wtokens(&w->f, id, n_out);
    d.t_start = t_submit + ms / 4 * CLK_MS;
    d.t_first = t_submit + ms / 2 * CLK_MS;
    d.t_end = t_submit + ms * CLK_MS;
    fix_wsend(&w->f, id, FDP_T_CHOICE_END, &end, sizeof(end));
    fix_wsend(&w->f, id, FDP_T_DONE, &d, sizeof(d));
    fix_step(&w->f, ms);
}

static uint64_t
submit(struct world *w, uint64_t tag, uint32_t max_new)
{
    uint64_t id;

    fcl_submit(&w->c, tag, 7, max_new);
    fix_step(&w->f, 1);
    id = fix_take(&w->f, NULL, NULL, NULL);
    assert_true(id != 0);
    return id;
}

/* A request that may have 11 tokens, gets 5 and ends after ms. Returns its id. */
static uint64_t
answered_in(struct world *w, uint64_t ms)
{
    uint64_t id = submit(w, 5, 11);

    done_in(w, id, jnl_find(&w->f.g->jnl, id)->t_submit, ms, 5);
    return id;
}

static void
t_done_has_its_numbers(void **state)
{
    static const char *const sets[] = { "log.requests=all", NULL };
    struct world w;
    uint64_t id;
    json_t *o;

    (void)state;
    world_open(&w, sets);
    cap_begin();
    id = answered_in(&w, 400);
    o = only_line("done");
    want_text(o, "level", "info");
    want_text(o, "client", "pro\"gram");
    want_text(o, "op", "submit");
    want_text(o, "finish", "length");
    assert_int_equal(num(o, "id"), id);
    assert_int_equal(num(o, "client_pid"), w.f.g->ses.v[0]->c.pid);
    assert_int_equal(num(o, "n"), 1);
    assert_int_equal(num(o, "max_new"), 11);
    assert_int_equal(num(o, "prompt_tokens"), 7);
    assert_int_equal(num(o, "cached_tokens"), 3);
    assert_int_equal(num(o, "output_tokens"), 5);
    assert_int_equal(num(o, "preempted"), 2);
    assert_int_equal(num(o, "queue_ms"), 100);
    assert_int_equal(num(o, "ttft_ms"), 200);
    assert_int_equal(num(o, "total_ms"), 400);
    assert_non_null(json_object_get(o, "user"));
    json_decref(o);
    world_close(&w, 1);
}

/* Submits one request that ends in a given way. Returns the lines logged with "errors". */
static json_t *
ended(struct world *w, int how, const char *msg)
{
    uint64_t id;

    cap_begin();
    id = submit(w, 5, 11);
    switch (how) {
    case 0: /* cancelled while it runs */
        fcl_cancel(&w->c, 5);
        fix_step(&w->f, 250);
        assert_int_equal(fix_take_cancel(&w->f, NULL), id);
        fix_werror(&w->f, id, FDP_E_CANCELLED);
        break;
    case 1: /* the client disconnects; its numbers are still known */
        fcl_close(&w->c);
        for (int i = 0; i < 50 && w->f.g->ses.n != 0; i++) {
            (void)gate_events(w->f.g, 10);
            fix_step(&w->f, 1);
        }
        assert_int_equal(w->f.g->ses.n, 0);
        fix_werror(&w->f, id, FDP_E_CANCELLED);
        break;
    case 2:
        fix_werror(&w->f, id, FDP_E_NUMERIC);
        break;
    default:
        fix_wdone(&w->f, id);
        break;
    }
    fix_step(&w->f, 1);
    return msg != NULL ? only_line(msg) : NULL;
}

static void
t_ends_of_all_kinds(void **state)
{
    static const char *const sets[] = { "log.requests=errors", NULL };
    struct world w;
    json_t *o;

    (void)state;
    world_open(&w, sets);
    o = ended(&w, 0, "cancelled");
    want_text(o, "level", "info");
    want_text(o, "error", "E_CANCELLED");
    assert_int_equal(num(o, "code"), FDP_E_CANCELLED);
    assert_true(num(o, "total_ms") >= 250);
    assert_null(json_object_get(o, "ttft_ms"));
    json_decref(o);
    o = ended(&w, 2, "failed");
    want_text(o, "level", "warn");
    want_text(o, "error", "E_NUMERIC");
    json_decref(o);
    (void)ended(&w, 3, NULL);
    assert_int_equal(cap_end(), 0);
    o = ended(&w, 1, "client gone");
    want_text(o, "client", "pro\"gram");
    assert_true(num(o, "client_pid") > 0);
    json_decref(o);
    world_close(&w, 0);
}

/* A deadline that the gate enforces instead of the worker is logged once, although the
 * worker ends the request later too. */
static void
t_deadlines_are_told_once(void **state)
{
    static const char *const sets[] = { "log.requests=all", NULL };
    struct world w;
    uint64_t id;
    json_t *o;

    (void)state;
    world_open(&w, sets);
    cap_begin();
    fcl_ask(&w.c, (struct fask){ .tag = 9, .max_new = 4, .ttl_total_ms = 1500 });
    fix_step(&w.f, 1);
    id = fix_take(&w.f, NULL, NULL, NULL);
    assert_true(id != 0);
    for (int i = 0; i < 4; i++)
        fix_step(&w.f, 1000);
    fix_werror(&w.f, id, FDP_E_DEADLINE);
    fix_step(&w.f, 1);
    o = only_line("failed");
    want_text(o, "error", "E_DEADLINE");
    want_text(o, "client", "pro\"gram");
    json_decref(o);
    world_close(&w, 1);
}

static void
t_rejected_are_limited(void **state)
{
    static const char *const sets[] = { "log.requests=errors", "log.rate=3", NULL };
    struct world w;
    uint64_t before;
    json_t *o;

    (void)state;
    world_open(&w, sets);
    cap_begin();
    fcl_ask(&w.c, (struct fask){ .tag = 9, .max_new = FIX_MAX_LEN + 1 });
    fix_step(&w.f, 1);
    o = only_line("rejected");
    want_text(o, "level", "warn");
    want_text(o, "error", "E_TOO_LONG");
    want_text(o, "op", "submit");
    assert_int_equal(num(o, "detail"), FDP_D_MAX_NEW);
    assert_int_equal(num(o, "max_new"), FIX_MAX_LEN + 1);
    json_decref(o);
    (void)log_apply(PAR_LOG_LEVEL_INFO, "", PAR_LOG_FORMAT_TEXT, 3);
    before = w.f.g->env.cnt->log_dropped;
    cap_begin();
    for (int i = 0; i < 60; i++) {
        fcl_ask(&w.c, (struct fask){ .tag = 9, .max_new = FIX_MAX_LEN + 1 });
        fix_step(&w.f, 1);
    }
    log_flush(1);
    assert_true(cap_end() < 60);
    assert_true(w.f.g->env.cnt->log_dropped > before);
    assert_non_null(strstr(cap_text, "lines like this were not shown: rejected"));
    world_close(&w, 1);
}

static void
t_slow_says_where(void **state)
{
    static const char *const sets[] = { "log.slow_request_ms=500",
        "log.slow_first_token_ms=300", NULL };
    struct world w;
    uint64_t other;
    json_t *o;

    (void)state;
    world_open(&w, sets);
    /* neither limit reached */
    cap_begin();
    (void)answered_in(&w, 400);
    assert_int_equal(cap_end(), 0);
    assert_int_equal(w.f.g->env.cnt->requests_slow, 0);
    /* all fields, with another request at the same time */
    cap_begin();
    other = submit(&w, 6, 11);
    (void)answered_in(&w, 520);
    o = only_line("slow request");
    want_text(o, "level", "warn");
    assert_int_equal(num(o, "queue_ms"), 130);
    assert_int_equal(num(o, "prefill_ms"), 130);
    assert_int_equal(num(o, "decode_ms"), 260);
    assert_int_equal(num(o, "tpot_ms"), 65);
    assert_int_equal(num(o, "total_ms"), 520);
    assert_int_equal(num(o, "concurrent_at_start"), 1);
    assert_int_equal(num(o, "concurrent_at_end"), 1);
    json_decref(o);
    /* no token came at all in that time */
    cap_begin();
    fix_werror(&w.f, other, FDP_E_NUMERIC);
    fix_step(&w.f, 1);
    o = only_line("slow request");
    assert_int_equal(num(o, "output_tokens"), 0);
    assert_null(json_object_get(o, "ttft_ms"));
    json_decref(o);
    assert_int_equal(w.f.g->env.cnt->requests_slow, 2);
    /* a request that never reached the worker does not count itself */
    assert_int_equal(life_pause(&w.f.g->life, 1), 0);
    cap_begin();
    fcl_ask(&w.c, (struct fask){ .tag = 7, .max_new = 4, .ttl_queue_ms = 900 });
    fix_step(&w.f, 1);
    fix_step(&w.f, 1000);
    o = only_line("slow request");
    assert_int_equal(num(o, "concurrent_at_start"), 0);
    assert_int_equal(num(o, "concurrent_at_end"), 0);
    assert_int_equal(num(o, "queue_ms"), num(o, "total_ms"));
    json_decref(o);
    world_close(&w, 1);
}

static void
t_slow_first_token_alone(void **state)
{
    static const char *const sets[] = { "log.slow_first_token_ms=300", NULL };
    struct world w;
    json_t *o;

    (void)state;
    world_open(&w, sets);
    cap_begin();
    (void)answered_in(&w, 400);
    assert_int_equal(cap_end(), 0);
    cap_begin();
    (void)answered_in(&w, 800);
    o = only_line("slow request");
    assert_int_equal(num(o, "ttft_ms"), 400);
    json_decref(o);
    assert_int_equal(w.f.g->env.cnt->requests_slow, 1);
    world_close(&w, 1);
}

/* The delegated user of a trusted program is named, also in a refusal. */
static void
t_user_is_whose_it_was(void **state)
{
    static const char *const sets[] = { "log.requests=all", "ipc.trusted_users=1000", NULL };
    struct world w;
    json_t *o;

    (void)state;
    world_open(&w, sets);
    cap_begin();
    fcl_ask(&w.c, (struct fask){ .tag = 9, .max_new = FIX_MAX_LEN + 1, .user = 77001 });
    fix_step(&w.f, 1);
    o = only_line("rejected");
    want_text(o, "user", "77001");
    json_decref(o);
    cap_begin();
    fcl_ask(&w.c, (struct fask){ .tag = 9, .max_new = 4, .user = 77001 });
    fix_step(&w.f, 1);
    fix_wdone(&w.f, fix_take(&w.f, NULL, NULL, NULL));
    fix_step(&w.f, 1);
    o = only_line("done");
    want_text(o, "user", "77001");
    json_decref(o);
    world_close(&w, 1);
}

/* Whatever the request, no line has its prompt or ids. */
static void
t_contents_are_never_logged(void **state)
{
    static const char *const sets[] = { "log.requests=all", "log.slow_request_ms=1",
        "log.level=trace", "log.debug=sched,batch,kv,ring,selfcheck", NULL };
    static const char text[] = "Xyzzy-in-the-prompt";
    static const uint32_t ids[] = { 941, 942, 943 };
    unsigned char buf[64] __attribute__((aligned(8)));
    struct fdp_req q;
    struct world w;
    uint64_t id;

    (void)state;
    world_open(&w, sets);
    cap_begin();
    cnf_apply(&w.f.g->cnf);
    for (int k = 0; k < 2; k++) {
        fcl_req(&q, FDP_OP_SUBMIT, 3);
        fcl_send(&w.c, &q, buf,
            k == 0 ? fcl_item(buf, 0, FDP_IT_PROMPT_TEXT, text, sizeof(text) - 1)
                   : fcl_item(buf, 0, FDP_IT_PROMPT_IDS, ids, sizeof(ids)),
            0);
        fix_step(&w.f, 1);
        while (fix_wpeek(&w.f)->type != LNK_T_SUBMIT)
            fix_wnext(&w.f, fix_wpeek(&w.f));
        id = fix_take(&w.f, NULL, NULL, NULL);
        fix_wsend(&w.f, id, FDP_T_IDS, ids, sizeof(ids));
        fix_wsend(&w.f, id, FDP_T_TEXT, text, sizeof(text) - 1);
        fix_wdone(&w.f, id);
        fix_step(&w.f, 100);
    }
    assert_true(cap_end() >= 4);
    assert_null(strstr(cap_text, "Xyzzy"));
    assert_null(strstr(cap_text, "942"));
    assert_non_null(strstr(cap_text, "request: done"));
    world_close(&w, 1);
}

/* A program with a name like a piece of a log line cannot forge one. */
static void
t_names_are_quoted(void **state)
{
    struct world w;
    struct fdp_hello h;
    struct fix f;

    (void)state;
    fix_open(&f, NULL);
    (void)log_apply(PAR_LOG_LEVEL_INFO, "", PAR_LOG_FORMAT_TEXT, 0);
    fix_ready(&f);
    fcl_hello(&h);
    (void)snprintf(h.name, sizeof(h.name), "a, pid 1) left\" \\ \x1b[2J\n");
    assert_int_equal(fcl_open(&f, &w.c, 1000, &h), FDP_OK);
    cap_begin();
    assert_int_equal(send(w.c.fd, "x", 1, MSG_NOSIGNAL), 1);
    fix_step(&f, 10);
    assert_int_equal(cap_end(), 1);
    assert_non_null(strstr(cap_text, "(\"a, pid 1) left\\\" \\\\ ?[2J?\", pid "));
    fcl_close(&w.c);
    fix_close(&f);
    (void)log_apply(PAR_LOG_LEVEL_ERROR, "", PAR_LOG_FORMAT_TEXT, 0);
}

static void
t_names(void **state)
{
    (void)state;
    for (uint32_t op = 1; op < FDP_OP__N; op++)
        assert_string_not_equal(fdn_op_name(op), "?");
    assert_string_equal(fdn_op_name(FDP_OP_DETOKENIZE), "detokenize");
    assert_string_equal(fdn_op_name(0), "?");
    assert_string_equal(fdn_op_name(UINT32_MAX), "?");
    assert_string_equal(fdn_status_name(FDP_E_DEADLINE), "E_DEADLINE");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_done_has_its_numbers),
        cmocka_unit_test(t_ends_of_all_kinds),
        cmocka_unit_test(t_deadlines_are_told_once),
        cmocka_unit_test(t_rejected_are_limited),
        cmocka_unit_test(t_slow_says_where),
        cmocka_unit_test(t_slow_first_token_alone),
        cmocka_unit_test(t_user_is_whose_it_was),
        cmocka_unit_test(t_contents_are_never_logged),
        cmocka_unit_test(t_names_are_quoted),
        cmocka_unit_test(t_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
