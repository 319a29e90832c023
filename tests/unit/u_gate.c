/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate as a whole: one terminal record per accepted request on every
 * path, relay, slow clients, worker death, drain and stop.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/gate/relay.h"
#include "tests/unit/gate_fixture.h"

static void
send_ids(struct fix *f, uint64_t id, uint32_t pos, uint32_t n)
{
    uint32_t *to = lnk_claim(&f->w, id, FDP_T_IDS, 0, pos, n * 4);

    assert_non_null(to);
    for (uint32_t i = 0; i < n; i++)
        to[i] = pos + i;
    lnk_flush(&f->w);
}

static void
send_tokens(struct fix *f, uint64_t id, uint32_t pos, uint32_t id0, const char *text)
{
    uint32_t n = (uint32_t)strlen(text);
    struct fdp_tokens *t =
        lnk_claim(&f->w, id, FDP_T_TOKENS, 0, pos, (uint32_t)FDP_TOKENS_LEN(1, n));

    assert_non_null(t);
    *t = (struct fdp_tokens){ 5, 1, (uint16_t)n };
    memcpy(t + 1, &id0, 4);
    memcpy((char *)(t + 1) + 4, text, n);
    lnk_flush(&f->w);
}

static void
t_relay(void **state)
{
    struct fdp_accepted acc = { 1, 0, 99 };
    struct fdp_choice_end ce = { FDP_FIN_LENGTH, 3, -1, -1, 0, 0 };
    struct lnk_submit sub;
    struct fdp_done d;
    struct fix f;
    struct fcl c;
    struct frec r;
    uint64_t id;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_submit(&c, 0xfeedfacecafe, 1, 3);
    fix_step(&f, 0);
    id = fix_take(&f, &sub, NULL, NULL);
    assert_true(id != 0 && sub.user == 1000 && sub.req.n == 1);
    assert_true(sub.t_submit_ns == f.now);
    fix_wsend(&f, id, FDP_T_ACCEPTED, &acc, sizeof(acc));
    send_ids(&f, id, 0, 2);
    fix_wsend(&f, id, FDP_T_TEXT, "hello", 5);
    send_ids(&f, id, 2, 1);
    send_tokens(&f, id, 3, 77, "you");
    fix_step(&f, 0);
    assert_int_equal(jnl_find(&f.g->jnl, id)->n_out, 4);
    fix_wsend(&f, id, FDP_T_CHOICE_END, &ce, sizeof(ce));
    fix_wdone(&f, id);
    fix_step(&f, 0);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_ACCEPTED);
    assert_true(r.h.tag == 0xfeedfacecafe);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_IDS && r.h.len == 8);
    assert_int_equal(((uint32_t *)(void *)r.data)[1], 1);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_TEXT);
    assert_memory_equal(r.data, "hello", 5);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_IDS && r.h.position == 2);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_TOKENS && r.h.position == 3);
    assert_true(r.h.len == 15 && r.h.tag == 0xfeedfacecafe);
    assert_memory_equal(r.data, "\5\0\0\0\1\0\3\0\115\0\0\0you", 15);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_CHOICE_END);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_DONE);
    memcpy(&d, r.data, sizeof(d));
    assert_true(d.t_submit == sub.t_submit_ns);
    assert_false(fcl_recv(&c, &r));
    assert_int_equal(f.g->jnl.n_open, 0);
    assert_int_equal(f.g->env.cnt->tokens_relayed, 4);
    /* what comes for a request that is over goes nowhere */
    send_ids(&f, id, 3, 1);
    fix_wdone(&f, id);
    fix_step(&f, 0);
    assert_false(fcl_recv(&c, &r));
    fcl_close(&c);
    fix_close(&f);
}

/* Terminals of a worker that dies, of every length but the right one: the request ends
 * once, with a record that the client can read. */
static void
t_broken_end(void **state)
{
    static const struct {
        uint32_t type, len;
    } lies[] = {
        { FDP_T_DONE, 0 },
        { FDP_T_DONE, 8 },
        { FDP_T_DONE, sizeof(struct fdp_done) - 1 },
        { FDP_T_DONE, sizeof(struct fdp_done) + 8 },
        { FDP_T_ERROR, 0 },
        { FDP_T_ERROR, sizeof(struct fdp_error) - 1 },
        { FDP_T_ERROR, sizeof(struct fdp_error) + 1 },
    };
    char text[sizeof(struct fdp_done) + 8];
    struct fix f;
    struct fcl c;
    struct frec r;
    uint64_t id;

    (void)state;
    memset(text, 1, sizeof(text));
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        fcl_submit(&c, 7 + i, 1, 3);
        fix_step(&f, 0);
        id = fix_take(&f, NULL, NULL, NULL);
        fix_wsend(&f, id, lies[i].type, text, lies[i].len);
        fix_step(&f, 0);
        fcl_want_error(&c, 7 + i, FDP_E_INTERNAL, 0);
        assert_false(fcl_recv(&c, &r));
        assert_int_equal(f.g->jnl.n_open, 0);
        assert_int_equal(f.g->env.cnt->requests_error, i + 1);
        assert_int_equal(f.g->env.cnt->requests_done, 0);
    }
    fcl_close(&c);
    fix_close(&f);
}

/* The same of records that do not end it: the client gets none of them, and its
 * session goes on. */
static void
t_broken_record(void **state)
{
    static const struct {
        uint32_t type, len;
        unsigned char text[16];
    } broken[] = {
        { FDP_T_TOKENS, 0, "" }, { FDP_T_TOKENS, 7, "" },
        { FDP_T_TOKENS, 15, { 0, 0, 0, 0, 2, 0, 3, 0 } }, /* two ids in 4 bytes */
        { FDP_T_TOKENS, 16, { 0, 0, 0, 0, 1, 0, 3, 0 } }, /* and a byte more */
        { FDP_T_TOKENS, 12, { 0, 0, 0, 0, 1, 0, 0, 0 } }, /* no text */
        { FDP_T_ACCEPTED, sizeof(struct fdp_accepted) - 1, "" }, { FDP_T_ACCEPTED, 0, "" },
        { FDP_T_CHOICE_END, 8, "" }, { FDP_T_IDS, 6, "" }, { FDP_T_PROMPT_IDS, 2, "" },
        { FDP_T_LOGPROBS, 0, "" }, { FDP_T_PROMPT_LOGPROBS, 12, "" },
        { FDP_T_EVENT, 8, "" }, { FDP_T_TEXT, 1, "x" }, /* of a sample that there is not */
        { FDP_T_SPECIAL, 7, "" },
        { FDP_T_SPECIAL, 9, { 1, 0, 0, 0, 2 } },                  /* two bytes in one */
        { FDP_T_SPECIAL, 10, { 1, 0, 0, 0, 1 } },                 /* and a byte more */
        { FDP_T_TOKEN_TEXT, 1, "" }, { FDP_T_TOKEN_TEXT, 2, "" }, /* of no token */
        { FDP_T_TOKEN_TEXT, 4, { 2, 0, 0, 0 } },                  /* two sizes in one */
        { FDP_T_TOKEN_TEXT, 5, { 1, 0, 2, 0, 'a' } },             /* two bytes in one */
        { FDP_T_TOKEN_TEXT, 6, { 1, 0, 1, 0, 'a' } },             /* and a byte more */
    };
    struct fix f;
    struct fcl c;
    struct frec r;
    uint64_t id;
    int code;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        fcl_submit(&c, 7 + i, 1, 3);
        fix_step(&f, 0);
        id = fix_take(&f, NULL, NULL, NULL);
        memcpy(lnk_claim(&f.w, id, broken[i].type, broken[i].type == FDP_T_TEXT, 0,
                   broken[i].len),
            broken[i].text, broken[i].len);
        send_ids(&f, id, 0, 1);
        fix_step(&f, 0);
        assert_int_equal(jnl_find(&f.g->jnl, id)->finish, FDP_FIN_NONE);
        assert_int_equal(fix_take_cancel(&f, &code), id);
        assert_int_equal(code, FDP_E_INTERNAL);
        fix_werror(&f, id, code);
        fix_step(&f, 0);
        assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_IDS);
        fcl_want_error(&c, 7 + i, FDP_E_INTERNAL, 0);
        assert_false(fcl_recv(&c, &r));
    }
    assert_int_equal(f.g->jnl.n_open, 0);
    fcl_close(&c);
    fix_close(&f);
}

static void
t_own_answers(void **state)
{
    struct fdp_info info;
    struct fix f;
    struct fcl c;
    struct fdp_req q;
    struct frec r;

    (void)state;
    fix_open(&f, NULL);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_req(&q, FDP_OP_INFO, 1);
    fcl_send(&c, &q, NULL, 0, 0);
    fcl_req(&q, FDP_OP_PING, 2);
    fcl_send(&c, &q, NULL, 0, 0);
    fix_step(&f, 0);
    fcl_want_error(&c, 1, FDP_E_LOADING, 0);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_DONE && r.h.tag == 2);
    fix_ready(&f);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_EVENT && r.h.tag == 0);
    fcl_req(&q, FDP_OP_INFO, 3);
    fcl_send(&c, &q, NULL, 0, 0);
    fcl_req(&q, FDP_OP_PING, 4);
    q.flags = FDP_F_DEEP;
    fcl_send(&c, &q, NULL, 0, 0);
    fix_step(&f, 0);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_REPLY && r.h.len == sizeof(info));
    memcpy(&info, r.data, sizeof(info));
    assert_int_equal(info.vocab, FIX_VOCAB);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_DONE && r.h.tag == 3);
    fix_wdone(&f, fix_take(&f, NULL, NULL, NULL));
    fix_step(&f, 0);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_DONE && r.h.tag == 4);
    fcl_close(&c);
    fix_close(&f);
}

/* With sched.max_penalty_seqs = 0 INFO offered items that each request with one of them
 * was refused for. */
static void
t_offered(void **state)
{
    static const char *const none[] = { "sched.max_penalty_seqs=0", NULL };
    const uint64_t rules = 1ull << FDP_IT_LOGIT_BIAS | 1ull << FDP_IT_BAD_WORDS |
        1ull << FDP_IT_ALLOWED_IDS | 1ull << FDP_IT_BAD_IDS | 1ull << FDP_IT_LOGPROB_IDS |
        1ull << FDP_IT_REASONING;
    const uint64_t others = 1ull << FDP_IT_PROMPT_TEXT | 1ull << FDP_IT_PROMPT_IDS |
        1ull << FDP_IT_PRIOR_IDS | 1ull << FDP_IT_STOP_STRING | 1ull << FDP_IT_STOP_IDS |
        1ull << FDP_IT_SPANS | 1ull << FDP_IT_REPETITION | 1ull << FDP_IT_FILE;

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct fdp_info info;
        struct fix f;
        struct fcl c;
        struct fdp_req q;
        struct frec r;

        fix_open(&f, i == 0 ? NULL : none);
        fix_ready(&f);
        assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
        fcl_req(&q, FDP_OP_INFO, 3);
        fcl_send(&c, &q, NULL, 0, 0);
        fix_step(&f, 0);
        assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_REPLY && r.h.len == sizeof(info));
        memcpy(&info, r.data, sizeof(info));
        assert_int_equal(info.items, i == 0 ? others | rules : others);
        fcl_close(&c);
        fix_close(&f);
    }
}

/* A blob larger than the ring goes down in parts; cancel and death of the
 * client in the middle of it. */
static void
t_large_blob(void **state)
{
    static const char *const sets[] = { "ipc.arena_bytes=8388608", NULL };
    unsigned char *buf = calloc(1, 4 << 20), *got = calloc(1, 4 << 20);
    struct lnk_submit sub;
    struct fix f;
    struct fcl c;
    struct fdp_req q;
    uint32_t n, n_got, polls;
    uint64_t id;
    int code;

    (void)state;
    for (int mode = 0; mode < 4; mode++) {
        fix_open(&f, sets);
        fix_ready(&f);
        assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
        memset(buf, 'x', 3000000);
        for (int i = 0; i < 3000000; i += 1000)
            buf[i] = (unsigned char)('a' + i / 1000 % 26);
        memmove(buf + 8, buf, 3000000);
        *(struct fdp_item *)(void *)buf =
            (struct fdp_item){ .type = FDP_IT_PROMPT_TEXT, .len = 3000000 };
        n = (uint32_t)FDP_ITEM_SPAN(3000000);
        fcl_req(&q, FDP_OP_SUBMIT, 1);
        fcl_send(&c, &q, buf, n, 0);
        fcl_req(&q, FDP_OP_SUBMIT, 1);
        if (mode == 3) { /* it is not even copied */
            (void)gate_poll(f.g, f.now);
            assert_int_equal(f.g->itk.n_jobs, 1);
            fcl_close(&c);
            fix_step(&f, 0);
            assert_int_equal(f.g->itk.n_jobs, 0);
            assert_int_equal(f.g->env.cnt->requests_total, 0);
            fix_close(&f);
            continue;
        }
        for (polls = 0; fdr_load_acquire(c.sq.p_head) == 0; polls++)
            (void)gate_poll(f.g, f.now);
        assert_int_equal(polls, (n + ITK_INLINE - 1) / ITK_INLINE); /* a piece each */
        memset(c.c2d + c.w.arena_off, 0, n);
        fcl_submit(&c, 2, 3, 4); /* reuses the arena */
        fix_step(&f, 0);
        assert_true(dsp_is_sending(&f.g->dsp));
        if (mode == 1)
            fcl_cancel(&c, 1);
        if (mode == 2)
            fcl_close(&c);
        fix_step(&f, 0);
        /* the short one does not wait for the rest of the long one */
        id = fix_take(&f, &sub, got, &n_got);
        assert_true(id != 0 && n_got < 100);
        fix_werror(&f, id, FDP_E_INTERNAL);
        if (mode == 0) {
            id = fix_take(&f, &sub, got, &n_got);
            assert_true(id != 0 && n_got == n);
            assert_memory_equal(got, buf, n);
            fix_wdone(&f, id);
        } else {
            assert_int_equal(fix_take(&f, &sub, got, &n_got), 0);
            fix_step(&f, 0); /* there is room now: for no more of its items */
            id = fix_take_cancel(&f, &code);
            assert_true(id != 0);
            while (fix_wpeek(&f) != NULL)
                assert_true(fix_take_cancel(&f, NULL) != 0);
            fix_werror(&f, id, code);
        }
        fix_step(&f, 0);
        assert_int_equal(f.g->jnl.n_open, 0);
        assert_false(dsp_is_sending(&f.g->dsp));
        if (mode != 2)
            fcl_close(&c);
        fix_close(&f);
    }
    free(buf);
    free(got);
}

static void
t_cancel(void **state)
{
    struct fix f;
    struct fcl c;
    struct frec r;
    uint64_t id;
    int code;

    (void)state;
    fix_open(&f, NULL);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    /* queued: ends at once */
    fcl_submit(&c, 1, 1, 4);
    fcl_cancel(&c, 1);
    fix_step(&f, 0);
    fcl_want_error(&c, 1, FDP_E_CANCELLED, 0);
    fix_ready(&f);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_EVENT);
    /* running: when the worker says so; twice is once; DONE may overtake */
    fcl_submit(&c, 2, 1, 4);
    fix_step(&f, 0);
    id = fix_take(&f, NULL, NULL, NULL);
    fcl_cancel(&c, 2);
    fcl_cancel(&c, 2);
    fix_step(&f, 0);
    assert_int_equal(fix_take_cancel(&f, &code), id);
    assert_int_equal(code, FDP_E_CANCELLED);
    assert_int_equal(fix_take_cancel(&f, &code), 0);
    assert_false(fcl_recv(&c, &r));
    send_ids(&f, id, 0, 1);
    fix_wdone(&f, id);
    fix_werror(&f, id, FDP_E_CANCELLED); /* must not reach the client */
    fix_step(&f, 0);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_IDS);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_DONE);
    assert_false(fcl_recv(&c, &r));
    assert_int_equal(f.g->wrk[0].link.credits_used, 0);
    fcl_close(&c);
    fix_close(&f);
}

/* The client stops reading: nothing is lost or reordered, the up ring never
 * waits, and after the limit its requests end with E_SLOW. */
static void
t_slow(void **state)
{
    static const char *const sets[] = { "ipc.cq_slots=128", "ipc.slow_client_ms=1000",
        NULL };
    struct fix f;
    struct fcl c, other;
    struct frec r;
    uint64_t id, id2;
    uint32_t next = 0;
    int code;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &other, 1000, NULL), FDP_OK);
    fcl_submit(&c, 1, 1, 4000);
    fcl_submit(&other, 1, 1, 4000);
    fix_step(&f, 0);
    id = fix_take(&f, NULL, NULL, NULL);
    id2 = fix_take(&f, NULL, NULL, NULL);
    for (uint32_t i = 0; i < 3000; i++) {
        send_ids(&f, id, i, 1);
        if (i % 100 == 0)
            fix_step(&f, 0);
    }
    send_ids(&f, id2, 0, 1);
    fix_step(&f, 0);
    assert_true(!TAILQ_EMPTY(&f.g->clients.holdq) && f.g->env.cnt->records_held > 2800);
    assert_true(fcl_recv(&other, &r) && r.h.type == FDP_T_IDS); /* others go on */
    /* it reads a little: that is progress */
    for (int i = 0; i < 5; i++) {
        fix_step(&f, 900);
        assert_true(fcl_recv(&c, &r) && r.h.position == next++);
    }
    assert_int_equal(f.g->env.cnt->sessions_slow, 0);
    /* it reads all */
    while (next < 3000) {
        fix_step(&f, 0);
        while (fcl_recv(&c, &r))
            assert_int_equal(r.h.position, next++);
    }
    fix_step(&f, 0);
    assert_int_equal(f.g->env.cnt->held_bytes, 0);
    assert_true(TAILQ_EMPTY(&f.g->clients.holdq));
    /* it stops for good */
    for (uint32_t i = 0; i < 300; i++)
        send_ids(&f, id, 3000 + i, 1);
    fix_step(&f, 0);
    fix_step(&f, 1100);
    assert_int_equal(f.g->env.cnt->sessions_slow, 1);
    assert_int_equal(fix_take_cancel(&f, &code), id);
    assert_int_equal(code, FDP_E_SLOW);
    send_ids(&f, id, 3300, 1); /* dropped from now on */
    fix_werror(&f, id, code);
    fix_step(&f, 0);
    assert_int_equal(f.g->jnl.n_open, 1);
    /* it wakes up: what was sent, then the one terminal record */
    for (code = 0; code == 0;) {
        fix_step(&f, 0);
        while (fcl_recv(&c, &r)) {
            if (r.h.type == FDP_T_ERROR)
                code = 1;
            else
                assert_int_equal(r.h.position, next++);
        }
    }
    assert_int_equal(next, 3300);
    assert_int_equal(fcl_state(&c), FDP_ST_RUN);
    fcl_close(&c);
    fcl_close(&other);
    fix_close(&f);
}

/* It never reads again: the session ends. And the byte limit. */
static void
t_slow_for_good(void **state)
{
    static const char *const sets[] = { "ipc.cq_slots=128", "ipc.slow_client_ms=1000",
        "sched.max_bytes_per_user=1048576", NULL };
    unsigned char text[4000];
    struct fix f;
    struct fcl c;
    uint64_t id;
    int code;

    (void)state;
    memset(text, 'x', sizeof(text));
    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_submit(&c, 1, 1, 4000);
    fix_step(&f, 0);
    id = fix_take(&f, NULL, NULL, NULL);
    for (int i = 0; i < 400; i++) {
        fix_wsend(&f, id, FDP_T_TEXT, text, sizeof(text));
        if (i % 50 == 0)
            fix_step(&f, 0);
    }
    fix_step(&f, 0);
    assert_int_equal(f.g->env.cnt->sessions_slow, 1); /* at once, by bytes */
    assert_true(f.g->env.cnt->held_bytes < 1200000);
    assert_int_equal(fix_take_cancel(&f, &code), id);
    fix_werror(&f, id, code);
    fix_step(&f, 0);
    fix_step(&f, 1100);
    fix_step(&f, 1100);
    assert_int_equal(f.g->ses.n, 0);
    assert_int_equal(fcl_reason(&c), -FDP_E_SLOW);
    assert_int_equal(f.g->env.cnt->held_bytes, 0);
    fcl_close(&c);
    fix_close(&f);
}

static void
t_wakes(void **state)
{
    struct fix f;
    struct fcl c;
    uint64_t id;
    char b[8];

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_submit(&c, 1, 1, 4);
    fix_step(&f, 0);
    id = fix_take(&f, NULL, NULL, NULL);
    send_ids(&f, id, 0, 1);
    fix_step(&f, 0);
    assert_int_equal(recv(c.fd, b, sizeof(b), MSG_DONTWAIT), -1); /* it spins */
    fdr_flag_raise((uint32_t *)(void *)(c.c2d + FDP_C2D_CQ_WAIT), FDP_WAIT_FD);
    for (uint32_t i = 1; i < 10; i++)
        send_ids(&f, id, i, 1);
    (void)gate_poll(f.g, f.now);
    assert_int_equal(recv(c.fd, b, sizeof(b), MSG_DONTWAIT), 1); /* one a round */
    assert_int_equal(recv(c.fd, b, sizeof(b), MSG_DONTWAIT), -1);
    fdr_flag_raise((uint32_t *)(void *)(c.c2d + FDP_C2D_CQ_WAIT), FDP_WAIT_FUTEX);
    send_ids(&f, id, 10, 1);
    fix_step(&f, 0);
    assert_int_equal(f.g->env.cnt->wakes_futex, 1);
    fdr_flag_raise((uint32_t *)(void *)(c.c2d + FDP_C2D_CQ_WAIT), 77); /* a lie */
    send_ids(&f, id, 11, 1);
    fix_step(&f, 0);
    assert_int_equal(f.g->env.cnt->wakes_futex + f.g->env.cnt->wakes_fd, 2);
    fcl_close(&c);
    fix_close(&f);
}

/* ---- worker ---------------------------------------------------------------- */

static void
t_worker_death(void **state)
{
    struct fix f;
    struct fcl c;
    struct frec r;
    uint64_t ids[FIX_CREDITS];
    int n_event = 0, n_done = 0, n_reset = 0;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (unsigned i = 1; i <= 20; i++)
        fcl_submit(&c, i, 4, 10);
    fix_step(&f, 0);
    for (unsigned i = 0; i < FIX_CREDITS; i++)
        ids[i] = fix_take(&f, NULL, NULL, NULL);
    (void)snprintf(f.seg->panic, sizeof(f.seg->panic), "panic: test");
    fix_wdone(&f, ids[0]); /* published before it died: counts */
    fix_die(&f, 11);
    while (fcl_recv(&c, &r)) {
        struct fdp_error e;

        n_event += r.h.type == FDP_T_EVENT;
        n_done += r.h.type == FDP_T_DONE;
        if (r.h.type == FDP_T_ERROR) {
            memcpy(&e, r.data, sizeof(e));
            assert_int_equal(e.code, FDP_E_GPU_RESET);
            assert_true(e.retry_after_ms > 0);
            n_reset++;
        }
    }
    assert_int_equal(n_done, 1);
    assert_int_equal(n_event, 1);
    /* its credit went to a ninth before the death was seen, or not */
    assert_true(n_reset == FIX_CREDITS - 1 || n_reset == FIX_CREDITS);
    assert_string_equal(f.g->wrk[0].panic, "panic: test");
    assert_int_equal(f.g->wrk[0].st, WRK_BACKOFF);
    assert_int_equal(f.g->jnl.n_open, f.g->fair.n_queued);
    /* the next one takes the rest */
    fix_step(&f, 50);
    assert_int_equal(f.n_spawn, 1);
    fix_step(&f, 60);
    assert_int_equal(f.n_spawn, 2);
    assert_int_equal(f.seg->generation, 2);
    fix_ready(&f);
    assert_true(fix_take(&f, NULL, NULL, NULL) != 0);
    fcl_close(&c);
    fix_close(&f);
}

static void
t_crash_loop(void **state)
{
    static const char *const sets[] = { "daemon.crash_max=3", NULL };
    struct fix f;
    struct fcl c;
    struct frec r;
    struct fdp_error e;

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_submit(&c, 1, 4, 10);
    for (int i = 0; i < 3; i++) {
        fix_die(&f, 9);
        fix_step(&f, 1000);
    }
    assert_int_equal(f.n_spawn, 3);
    assert_int_equal(f.g->env.st, GATE_DEGRADED);
    assert_string_equal(life_state_name(&f.g->life), "degraded");
    do
        assert_true(fcl_recv(&c, &r));
    while (r.h.type == FDP_T_EVENT);
    memcpy(&e, r.data, sizeof(e));
    assert_int_equal(e.code, FDP_E_GPU_LOST);
    while (fcl_recv(&c, &r))
        continue;
    fcl_submit(&c, 2, 4, 10);
    fix_step(&f, 0);
    fcl_want_error(&c, 2, FDP_E_GPU_LOST, 0);
    assert_int_equal(f.g->life.exit_code, -1);
    fix_step(&f, 5000);
    assert_int_equal(f.g->life.exit_code, 75);
    assert_int_equal(fcl_state(&c), FDP_ST_GOODBYE);
    fcl_close(&c);
    fix_close(&f);
}

/* Deaths far apart are no loop. */
static void
t_rare_crashes(void **state)
{
    static const char *const sets[] = { "daemon.crash_max=3", "daemon.crash_window_s=10",
        NULL };
    struct fix f;

    (void)state;
    fix_open(&f, sets);
    for (int i = 0; i < 12; i++) {
        fix_ready(&f);
        fix_step(&f, 20000);
        fix_die(&f, 9);
        for (int k = 0; k < 6 && f.g->wrk[0].st == WRK_BACKOFF; k++)
            fix_step(&f, 2500);
    }
    assert_int_equal(f.g->env.st, GATE_RUNNING);
    assert_int_equal(f.n_spawn, 13);
    fix_close(&f);
}

static void
t_permanent(void **state)
{
    static const int codes[][2] = { { 77, 77 }, { 69, 69 }, { 78, 66 }, { 66, 66 } };
    static const char *const sets[] = { "model.path=/nonexistent/model", NULL };
    struct fix f;
    struct fcl c;
    struct frec r;

    (void)state;
    for (int i = 0; i < 4; i++) {
        fix_open(&f, sets);
        assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
        fcl_submit(&c, 1, 4, 10);
        fix_step(&f, 0);
        (void)snprintf(f.seg->w.error, sizeof(f.seg->w.error), "why");
        fix_die(&f, codes[i][0] << 8);
        assert_int_equal(f.g->life.exit_code, codes[i][1]);
        assert_int_equal(f.n_spawn, 1);
        assert_string_equal(f.g->wrk[0].error, "why");
        assert_true(f.g->wrk[0].fix[0] != '\0');
        assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_EVENT);
        fcl_want_error(&c, 1, FDP_E_GPU_LOST, 0);
        assert_int_equal(fcl_state(&c), FDP_ST_GOODBYE);
        fcl_close(&c);
        fix_close(&f);
    }
}

/* Regression: right after fdctl --wait, status reported no model. The worker had set its
 * state to ready, but the gate had not read its record yet. */
static void
t_ready_unread(void **state)
{
    struct fix f;

    (void)state;
    fix_open(&f, NULL);
    f.seg->w.phase = LNK_PH_READY;
    fix_step(&f, 2);
    assert_int_equal(f.g->wrk[0].st, WRK_STARTING);
    assert_string_equal(sup_phase_name(&f.g->wrk[0]), "warming up");
    fix_ready(&f);
    assert_string_equal(sup_phase_name(&f.g->wrk[0]), "ready");
    fix_close(&f);
}

/* What is away after a worker was ready is waited for, and shown: no end of the daemon,
 * no crash loop. */
static void
t_blocked(void **state)
{
    static const char *const sets[] = { "model.path=/nonexistent/model",
        "daemon.crash_max=3", NULL };
    struct fix f;
    struct wrk *w;

    (void)state;
    fix_open(&f, sets);
    w = &f.g->wrk[0];
    fix_ready(&f);
    assert_int_equal(f.seg->is_quiet, 0);
    assert_string_equal(life_state_name(&f.g->life), "running");
    for (uint32_t i = 1; i <= 12; i++) {
        (void)snprintf(f.seg->w.error, sizeof(f.seg->w.error), "no such folder");
        fix_die(&f, 78 << 8);
        assert_int_equal(f.g->life.exit_code, -1);
        assert_int_equal(w->st, WRK_BACKOFF);
        assert_string_equal(life_state_name(&f.g->life), "blocked");
        assert_string_equal(sup_phase_name(w), "blocked");
        assert_int_equal(w->rty.n, i);
        assert_int_equal(w->rty.code, 66); /* its folder is not there */
        fix_step(&f, 11000);
        assert_int_equal(w->st, WRK_STARTING);
        assert_int_equal(f.seg->is_quiet, 1);
        /* while a try is under way all of it is still known */
        assert_string_equal(life_state_name(&f.g->life), "blocked");
        assert_string_equal(w->rty.error, "no such folder");
        assert_non_null(strstr(w->rty.fix, "/nonexistent"));
    }
    assert_true(f.now - w->rty.t_since >= 11 * 11000000000ull);
    fix_ready(&f);
    assert_string_equal(life_state_name(&f.g->life), "running");
    assert_int_equal(w->rty.n, 0);
    /* a crash is none of it, also between two tries */
    fix_die(&f, 78 << 8);
    assert_int_equal(w->rty.n, 1);
    fix_step(&f, 11000);
    fix_die(&f, 9);
    assert_int_equal(w->rty.n, 0);
    assert_string_equal(life_state_name(&f.g->life), "starting");
    fix_close(&f);
}

/* ---- end ------------------------------------------------------------------- */

static void
t_drain_stop(void **state)
{
    struct fix f;
    struct fcl c;
    struct frec r;
    uint64_t id, id2;
    int code;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_submit(&c, 1, 4, 10);
    fcl_submit(&c, 2, 4, 10);
    fix_step(&f, 0);
    id = fix_take(&f, NULL, NULL, NULL);
    id2 = fix_take(&f, NULL, NULL, NULL);
    life_drain(&f.g->life, 1);
    fix_step(&f, 0);
    assert_int_equal(fcl_state(&c), FDP_ST_DRAIN);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_EVENT);
    fcl_submit(&c, 3, 4, 10);
    fix_step(&f, 0);
    fcl_want_error(&c, 3, FDP_E_DRAINING, 0);
    life_drain(&f.g->life, 0);
    fix_step(&f, 0);
    assert_int_equal(fcl_state(&c), FDP_ST_RUN);
    while (fcl_recv(&c, &r))
        assert_int_equal(r.h.type, FDP_T_EVENT);
    life_stop(&f.g->life, 3000000000ull, 0);
    fix_wdone(&f, id);
    fix_step(&f, 2900);
    while (fcl_recv(&c, &r) && r.h.type == FDP_T_EVENT)
        continue;
    assert_true(r.h.type == FDP_T_DONE && r.h.tag == 1);
    assert_int_equal(fix_take_cancel(&f, &code), 0);
    fix_step(&f, 200); /* time is up for the second */
    assert_int_equal(fix_take_cancel(&f, &code), id2);
    assert_int_equal(code, FDP_E_DRAINING);
    fix_werror(&f, id2, code);
    fix_step(&f, 10);
    fcl_want_error(&c, 2, FDP_E_DRAINING, 0);
    fix_step(&f, 10);
    assert_int_equal(fix_wpeek(&f)->type, LNK_T_DRAIN);
    assert_int_equal(f.g->life.exit_code, -1);
    fix_die(&f, 0);
    fix_step(&f, 10);
    assert_int_equal(f.g->life.exit_code, 0);
    assert_int_equal(fcl_state(&c), FDP_ST_GOODBYE);
    fcl_close(&c);
    fix_close(&f);
}

/* ---- all paths at random --------------------------------------------------- */

#define N_CLI 6
#define N_TAG 4000

struct track {
    uint8_t open[N_TAG]; /* 1 sent, 2 ended */
    uint32_t next_tag;
    struct fcl c;
    int up;
};

static void
track_read(struct track *t)
{
    struct frec r;

    while (t->up && fcl_recv(&t->c, &r)) {
        if (r.h.tag == 0)
            continue;
        assert_true(r.h.tag < N_TAG);
        assert_int_equal(t->open[r.h.tag], 1); /* nothing after the terminal */
        if (r.h.type == FDP_T_DONE || r.h.type == FDP_T_ERROR)
            t->open[r.h.tag] = 2;
    }
}

struct pend {
    uint64_t id;
    uint32_t left, pos;
};

static void
fake_work(struct fix *f, struct pend *p, uint32_t *n, unsigned *seed)
{
    uint64_t id;
    int code;

    for (;;) {
        if ((id = fix_take(f, NULL, NULL, NULL)) != 0) {
            assert_true(*n < FIX_CREDITS);
            p[(*n)++] = (struct pend){ id, rand_r(seed) % 30, 0 };
        } else if ((id = fix_take_cancel(f, &code)) != 0) {
            for (uint32_t i = 0; i < *n; i++) {
                if (p[i].id == id) {
                    fix_werror(f, id, code);
                    p[i--] = p[--*n];
                }
            }
        } else {
            break;
        }
    }
    for (uint32_t i = 0; i < *n; i++) {
        if (rand_r(seed) % 3 == 0)
            continue;
        if (p[i].left-- == 0) {
            fix_wdone(f, p[i].id);
            p[i--] = p[--*n];
        } else {
            send_ids(f, p[i].id, p[i].pos++, 1);
        }
    }
}

static void
t_chaos(void **state)
{
    static const char *const sets[] = { "ipc.connects_per_second=1000000",
        "ipc.cq_slots=128", "daemon.crash_max=1000", "sched.max_inflight_per_client=10",
        NULL };
    static struct track t[N_CLI];
    unsigned seed = getenv("SEED") != NULL ? (unsigned)atoi(getenv("SEED")) : 7;
    struct pend p[FIX_CREDITS];
    uint32_t n = 0;
    struct fix f;

    (void)state;
    memset(t, 0, sizeof(t));
    fix_open(&f, sets);
    fix_ready(&f);
    for (int step = 0; step < 6000; step++) {
        struct track *k = &t[rand_r(&seed) % N_CLI];
        unsigned what = rand_r(&seed) % 100;

        if (!k->up) {
            memset(k->open, 0, sizeof(k->open));
            k->next_tag = 1;
            assert_int_equal(fcl_open(&f, &k->c, 1000 + (uid_t)(k - t) / 2, NULL), FDP_OK);
            k->up = 1;
        } else if (what < 50 && k->next_tag < N_TAG && fdr_prod_room(&k->c.sq, 1) > 0) {
            k->open[k->next_tag] = 1;
            fcl_submit(&k->c, k->next_tag++, 1 + what, 20);
        } else if (what < 60 && k->next_tag > 1 && fdr_prod_room(&k->c.sq, 1) > 0) {
            fcl_cancel(&k->c, 1 + rand_r(&seed) % (k->next_tag - 1));
        } else if (what < 62) {
            fcl_close(&k->c); /* killed */
            k->up = 0;
        } else if (what == 62 && rand_r(&seed) % 10 == 0) {
            n = 0;
            fix_die(&f, 9);
            while (f.g->wrk[0].st == WRK_BACKOFF) {
                fix_step(&f, 1000);
                for (int i = 0; i < N_CLI; i++)
                    track_read(&t[i]);
            }
            fix_ready(&f);
        } else {
            track_read(k);
        }
        fake_work(&f, p, &n, &seed);
        fix_step(&f, what % 3);
    }
    for (int i = 0; i < 2000 && f.g->jnl.n_open != 0; i++) {
        fake_work(&f, p, &n, &seed);
        for (int k = 0; k < N_CLI; k++)
            track_read(&t[k]);
        fix_step(&f, 2);
    }
    for (int k = 0; k < N_CLI; k++) {
        fix_step(&f, 2);
        track_read(&t[k]);
        for (uint32_t i = 1; t[k].up && i < t[k].next_tag; i++)
            assert_int_equal(t[k].open[i], 2);
        fcl_close(&t[k].c);
    }
    fix_step(&f, 2);
    assert_int_equal(f.g->jnl.n_open, 0);
    assert_int_equal(f.g->ses.n, 0);
    assert_int_equal(f.g->wrk[0].link.credits_used, 0);
    assert_true(f.g->env.cnt->requests_total > 1500);
    assert_int_equal(f.g->env.cnt->requests_total,
        f.g->env.cnt->requests_done + f.g->env.cnt->requests_error +
            f.g->env.cnt->requests_dropped);
    fix_close(&f);
}

/* However much the worker has said: an iteration copies a bounded amount of it. */
static void
t_relay_budget(void **state)
{
    struct fix f;
    struct fcl c;
    uint64_t id;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_submit(&c, 1, 1, 4000);
    fix_step(&f, 0);
    id = fix_take(&f, NULL, NULL, NULL);
    f.g->env.cnt->slots_relayed = 0;
    fix_wtokens(&f, id, 200 * (FDP_REC_MAX_LEN / 4)); /* of 64 slots each */
    (void)gate_poll(f.g, f.now);
    assert_in_range(f.g->env.cnt->slots_relayed, RLY_SLOTS, RLY_SLOTS + FDP_REC_MAX_SLOTS);
    (void)gate_poll(f.g, f.now);
    assert_int_equal(f.g->env.cnt->slots_relayed, 200 * FDP_REC_MAX_SLOTS);
    fcl_close(&c);
    fix_step(&f, 0);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_relay),
        cmocka_unit_test(t_broken_end),
        cmocka_unit_test(t_broken_record),
        cmocka_unit_test(t_own_answers),
        cmocka_unit_test(t_offered),
        cmocka_unit_test(t_large_blob),
        cmocka_unit_test(t_relay_budget),
        cmocka_unit_test(t_cancel),
        cmocka_unit_test(t_slow),
        cmocka_unit_test(t_slow_for_good),
        cmocka_unit_test(t_wakes),
        cmocka_unit_test(t_worker_death),
        cmocka_unit_test(t_crash_loop),
        cmocka_unit_test(t_rare_crashes),
        cmocka_unit_test(t_permanent),
        cmocka_unit_test(t_ready_unread),
        cmocka_unit_test(t_blocked),
        cmocka_unit_test(t_drain_stop),
        cmocka_unit_test(t_chaos),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
