/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The egress stage by itself, its queues filled by the test:
 * order, grouping, stops, errors. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/common/mem.h"
#include "daemon/worker/egress.h"
#include "daemon/worker/null_tok.h"
#include "daemon/worker/runner.h"
#include "daemon/worker/tokenizer.h"
#include "tests/tok_fixture.h"

struct fix {
    struct lnk_seg *seg;
    int fd;
    struct lnk gate, worker;
    struct que q_ing, q_eng, q_stop, q_freed;
    struct req_pool rp;
    struct cnt_worker cnt;
    struct lnk_ready ready;
    struct tok *tok;
    struct egress *g;
    unsigned char types[64]; /* records of the last poll */
    struct fdp_rec rec[64];
    unsigned char body[64][256];
    int n;
};

static void
no_room(void *arg)
{
    (void)arg;
    fail_msg("the ring cannot be full here");
}

static struct fix *
fix_with(struct tok *tok)
{
    struct fix *f = mem_aligned(128, sizeof(*f));
    struct egr_cfg c;

    assert_int_equal(lnk_create(NULL, 1, &f->seg, &f->fd), 0);
    lnk_init_gate(&f->gate, f->seg, -1);
    lnk_init_worker(&f->worker, f->seg, -1);
    assert_int_equal(que_init(&f->q_ing, 64, NULL), 0);
    assert_int_equal(que_init(&f->q_eng, 64, NULL), 0);
    assert_int_equal(que_init(&f->q_stop, 64, NULL), 0);
    assert_int_equal(que_init(&f->q_freed, 64, NULL), 0);
    assert_int_equal(req_pool_init(&f->rp, 4), 0);
    f->tok = tok;
    c = (struct egr_cfg){ .lnk = &f->worker,
        .q_ing = &f->q_ing,
        .q_eng = &f->q_eng,
        .q_stop = &f->q_stop,
        .q_freed = &f->q_freed,
        .tok = f->tok,
        .ready = &f->ready,
        .cnt = &f->cnt,
        .wait_room = no_room };
    f->g = egr_new(&c);
    return f;
}

static struct fix *
fix_new(void)
{
    char err[256] = "";
    struct tok *tok;

    assert_int_equal(ntk_load(&tok, err, sizeof(err)), 0);
    return fix_with(tok);
}

static void
fix_free(struct fix *f)
{
    egr_free(f->g);
    tok_free(f->tok);
    req_pool_fini(&f->rp);
    que_fini(&f->q_ing);
    que_fini(&f->q_eng);
    que_fini(&f->q_stop);
    que_fini(&f->q_freed);
    lnk_leave(f->seg);
    (void)close(f->fd);
    free(f);
}

static struct fdp_repetition repetition; /* settings of the next request */

static struct req *
make(struct fix *f, unsigned flags, uint16_t interval, const char *stop, int n)
{
    struct req *r = req_get(&f->rp, 70);

    r->where = REQ_IN_ENGINE;
    r->p.op = FDP_OP_SUBMIT;
    r->p.flags = flags;
    r->p.stream_interval = interval;
    r->n_prompt = r->n_ids = 2;
    r->max_len = 40;
    r->n_seq = n;
    r->repetition = repetition;
    r->ids = mem_array(2, 4);
    r->ids[1] = 1;
    if (stop != NULL) {
        r->stops = fin_set_new();
        assert_int_equal(fin_set_add(r->stops, stop, strlen(stop)), 0);
    }
    assert_int_equal(req_make_seqs(r), 0);
    return r;
}

static void
send_ing(struct fix *f, struct req *r, enum que_kind kind, int32_t code)
{
    struct que_msg m = { .req = r, .kind = (uint8_t)kind, .a = code, .n_top = QUE_NO_LOGPROB };

    que_push(&f->q_ing, &m);
}

static void
send_token(struct fix *f, struct req *r, int sample, uint32_t at, int32_t token,
    int32_t done)
{
    struct que_msg m = { .req = r,
        .kind = QUE_TOKEN,
        .sample = (uint16_t)sample,
        .a = token,
        .x = at,
        .done = done,
        .n_top = QUE_NO_LOGPROB };

    r->seqs[sample].out[at] = (uint32_t)token;
    que_push(&f->q_eng, &m);
}

static void
send_end(struct fix *f, struct req *r, int32_t code)
{
    struct que_msg m = { .req = r, .kind = QUE_END, .a = code, .n_top = QUE_NO_LOGPROB };

    que_push(&f->q_eng, &m);
}

/* Polls and takes the records. */
static void
take(struct fix *f)
{
    const struct fdp_rec *rec;

    (void)egr_poll(f->g, 5000);
    f->n = 0;
    while ((rec = lnk_peek(&f->gate)) != NULL) {
        assert_true(f->n < 64);
        f->rec[f->n] = *rec;
        f->types[f->n] = rec->type;
        memcpy(f->body[f->n], rec + 1, rec->len < 256 ? rec->len : 256);
        f->n++;
        lnk_next(&f->gate, rec);
    }
}

/* Polls; the types of the records must be these. The list ends with 0. */
static void
expect(struct fix *f, const unsigned char *types)
{
    take(f);
    assert_int_equal(f->n, strlen((const char *)types));
    assert_memory_equal(f->types, types, (size_t)f->n);
}
#define EXPECT(f, ...) expect(f, (const unsigned char[]){ __VA_ARGS__, 0 })
#define NOTHING(f)     expect(f, (const unsigned char[]){ 0 })

/* Checks that record i of the last poll has these ids and this text. */
static void
is_tokens(const struct fix *f, int i, uint32_t position, const uint32_t *ids, uint16_t n,
    uint32_t text_off, const char *text)
{
    struct fdp_tokens t;

    memcpy(&t, f->body[i], sizeof(t));
    assert_int_equal(f->rec[i].type, FDP_T_TOKENS);
    assert_int_equal(f->rec[i].position, position);
    assert_int_equal(f->rec[i].n_slot, 1);
    assert_int_equal(t.n_ids, n);
    assert_int_equal(t.n_text, strlen(text));
    assert_int_equal(t.text_off, text_off);
    assert_int_equal(f->rec[i].len, 8 + 4 * n + strlen(text));
    assert_memory_equal(f->body[i] + 8, ids, n * 4u);
    assert_memory_equal(f->body[i] + 8 + 4 * n, text, strlen(text));
}

static void
opening_comes_first(void **state)
{
    struct fix *f = fix_new();
    struct req *r = make(f, FDP_F_TEXT, 0, NULL, 1);
    struct fdp_choice_end ce;
    struct fdp_done d;

    (void)state;
    /* the engine's token arrives in the same poll */
    send_ing(f, r, QUE_OPEN, 0);
    send_token(f, r, 0, 0, 'h', FDK_DONE_NO);
    send_token(f, r, 0, 1, RUN_NULL_EOS, FDK_DONE_STOP);
    send_end(f, r, 0);
    EXPECT(f, LNK_T_TOKENIZED, FDP_T_ACCEPTED, FDP_T_TOKENS, FDP_T_IDS, FDP_T_CHOICE_END,
        FDP_T_DONE);
    is_tokens(f, 2, 0, (const uint32_t[]){ 'h' }, 1, 0, "h");
    /* eos is an id but no text */
    memcpy(&ce, f->body[4], sizeof(ce));
    assert_int_equal(ce.finish, FDP_FIN_STOP);
    assert_int_equal(ce.stop_id, RUN_NULL_EOS);
    assert_int_equal(ce.n_tokens, 2);
    memcpy(&d, f->body[5], sizeof(d));
    assert_int_equal(d.output_tokens, 2);
    assert_int_equal(d.t_first, 5000);
    assert_int_equal(que_recheck(&f->q_freed), 1);
    fix_free(f);
}

static void
interval_groups_tokens(void **state)
{
    struct fix *f = fix_new();
    struct req *r = make(f, FDP_F_TEXT, 3, NULL, 1);

    (void)state;
    send_ing(f, r, QUE_OPEN, 0);
    EXPECT(f, LNK_T_TOKENIZED, FDP_T_ACCEPTED);
    send_token(f, r, 0, 0, 'a', FDK_DONE_NO);
    send_token(f, r, 0, 1, 'b', FDK_DONE_NO);
    NOTHING(f);
    send_token(f, r, 0, 2, 'c', FDK_DONE_NO);
    EXPECT(f, FDP_T_TOKENS);
    is_tokens(f, 0, 0, (const uint32_t[]){ 'a', 'b', 'c' }, 3, 0, "abc");
    send_token(f, r, 0, 3, 'd', FDK_DONE_LENGTH);
    send_end(f, r, 0);
    EXPECT(f, FDP_T_TOKENS, FDP_T_CHOICE_END, FDP_T_DONE);
    is_tokens(f, 0, 3, (const uint32_t[]){ 'd' }, 1, 3, "d");
    fix_free(f);
}

/* Six ids and their six bytes are 38 bytes of payload, seven are 43. */
static void
more_than_a_slot_goes_as_two(void **state)
{
    static const uint32_t six[] = { 'a', 'b', 'c', 'd', 'e', 'f' };
    struct fix *f = fix_new();
    struct req *r = make(f, FDP_F_TEXT, 6, NULL, 1);
    uint32_t at = 0;

    (void)state;
    send_ing(f, r, QUE_OPEN, 0);
    EXPECT(f, LNK_T_TOKENIZED, FDP_T_ACCEPTED);
    for (; at < 6; at++)
        send_token(f, r, 0, at, (int32_t)six[at], FDK_DONE_NO);
    EXPECT(f, FDP_T_TOKENS);
    is_tokens(f, 0, 0, six, 6, 0, "abcdef");
    r->p.stream_interval = 7;
    for (; at < 13; at++)
        send_token(f, r, 0, at, 'g', FDK_DONE_NO);
    EXPECT(f, FDP_T_IDS, FDP_T_TEXT);
    assert_int_equal(f->rec[0].position, 6);
    assert_int_equal(f->rec[0].len, 28);
    assert_int_equal(f->rec[1].position, 6);
    assert_memory_equal(f->body[1], "ggggggg", 7);
    /* also at the end */
    for (; at < 19; at++)
        send_token(f, r, 0, at, 'h', FDK_DONE_NO);
    send_token(f, r, 0, at, 'h', FDK_DONE_LENGTH);
    send_end(f, r, 0);
    EXPECT(f, FDP_T_IDS, FDP_T_TEXT, FDP_T_CHOICE_END, FDP_T_DONE);
    assert_int_equal(f->rec[1].position, 13);
    fix_free(f);
}

static void
logprobs_stand_between(void **state)
{
    struct fix *f = fix_new();
    struct req *r = make(f, FDP_F_TEXT, 0, NULL, 1);
    struct que_msg m = { .req = r,
        .kind = QUE_TOKEN,
        .a = 'a',
        .logprob = -2,
        .done = FDK_DONE_NO,
        .n_top = 0 };

    (void)state;
    send_ing(f, r, QUE_OPEN, 0);
    EXPECT(f, LNK_T_TOKENIZED, FDP_T_ACCEPTED);
    r->seqs[0].out[0] = 'a';
    que_push(&f->q_eng, &m);
    EXPECT(f, FDP_T_IDS, FDP_T_LOGPROBS, FDP_T_TEXT);
    r->seqs[0].out[1] = 'b';
    m.a = 'b';
    m.x = 1;
    m.done = FDK_DONE_LENGTH;
    que_push(&f->q_eng, &m);
    send_end(f, r, 0);
    EXPECT(f, FDP_T_IDS, FDP_T_LOGPROBS, FDP_T_TEXT, FDP_T_CHOICE_END, FDP_T_DONE);
    fix_free(f);
}

static void
stop_string_drops_what_follows(void **state)
{
    struct fix *f = fix_new();
    struct req *r = make(f, FDP_F_TEXT, 0, "xyz", 2);
    const struct que_msg *m;

    (void)state;
    send_ing(f, r, QUE_OPEN, 0);
    EXPECT(f, LNK_T_TOKENIZED, FDP_T_ACCEPTED);
    send_token(f, r, 0, 0, 'a', FDK_DONE_NO);
    send_token(f, r, 0, 1, 'x', FDK_DONE_NO);
    EXPECT(f, FDP_T_TOKENS, FDP_T_IDS);
    send_token(f, r, 0, 2, 'y', FDK_DONE_NO);
    send_token(f, r, 0, 3, 'z', FDK_DONE_NO);
    EXPECT(f, FDP_T_IDS, FDP_T_IDS, FDP_T_CHOICE_END);
    assert_int_equal(que_recheck(&f->q_stop), 1);
    m = &que_peek(&f->q_stop, 0)->m;
    assert_true(m->kind == QUE_STOP && m->idx == r->idx && m->serial == r->serial);
    assert_int_equal(m->sample, 0);
    /* late tokens are dropped, and the engine is told again */
    send_token(f, r, 0, 4, 'q', FDK_DONE_NO);
    NOTHING(f);
    assert_int_equal(que_recheck(&f->q_stop), 2);
    /* the other sample goes on; the text it held back comes with its end */
    send_token(f, r, 1, 0, 'x', FDK_DONE_NO);
    send_token(f, r, 1, 1, 'y', FDK_DONE_LENGTH);
    send_end(f, r, 0);
    EXPECT(f, FDP_T_IDS, FDP_T_TOKENS, FDP_T_CHOICE_END, FDP_T_DONE);
    is_tokens(f, 1, 1, (const uint32_t[]){ 'y' }, 1, 0, "xy");
    assert_int_equal(f->rec[1].sample, 1);
    fix_free(f);
}

/* A program may continue after an error: text that the next token could complete to a
 * stop string is still held back. */
static void
errors_hold(void **state)
{
    struct fix *f = fix_new();
    struct req *r = make(f, FDP_F_TEXT, 0, "xyz", 1);

    (void)state;
    send_ing(f, r, QUE_OPEN, 0);
    send_token(f, r, 0, 0, 'a', FDK_DONE_NO);
    send_token(f, r, 0, 1, 'x', FDK_DONE_NO);
    send_end(f, r, FDP_E_CANCELLED);
    EXPECT(f, LNK_T_TOKENIZED, FDP_T_ACCEPTED, FDP_T_TOKENS, FDP_T_IDS, FDP_T_CHOICE_END,
        FDP_T_ERROR);
    is_tokens(f, 2, 0, (const uint32_t[]){ 'a' }, 1, 0, "a");
    fix_free(f);
}

static void
errors(void **state)
{
    struct fix *f = fix_new();
    struct req *r = make(f, 0, 0, NULL, 2);
    struct que_msg m = { .id = 99,
        .kind = QUE_REFUSE,
        .a = FDP_E_QUEUE_FULL,
        .n_top = QUE_NO_LOGPROB };
    struct fdp_choice_end ce;
    struct fdp_error e;

    (void)state;
    que_push(&f->q_ing, &m);
    EXPECT(f, FDP_T_ERROR);
    assert_int_equal(f->rec[0].tag, 99);
    memcpy(&e, f->body[0], sizeof(e));
    assert_true(e.code == FDP_E_QUEUE_FULL && e.retry_after_ms > 0);
    /* accepted, then cancelled: every sample still has its end */
    send_ing(f, r, QUE_OPEN, 0);
    send_token(f, r, 0, 0, 5, FDK_DONE_LENGTH);
    send_end(f, r, FDP_E_CANCELLED);
    EXPECT(f, LNK_T_TOKENIZED, FDP_T_ACCEPTED, FDP_T_IDS, FDP_T_CHOICE_END,
        FDP_T_CHOICE_END, FDP_T_ERROR);
    memcpy(&ce, f->body[3], sizeof(ce));
    assert_int_equal(ce.finish, FDP_FIN_LENGTH);
    memcpy(&ce, f->body[4], sizeof(ce));
    assert_int_equal(ce.finish, FDP_FIN_ERROR);
    memcpy(&e, f->body[5], sizeof(e));
    assert_true(e.code == FDP_E_CANCELLED && e.retry_after_ms == 0);
    /* refused before it was accepted: only the error */
    req_put(&f->rp, r);
    r = make(f, 0, 0, NULL, 1);
    send_ing(f, r, QUE_FAIL, FDP_E_TOO_LONG);
    EXPECT(f, FDP_T_ERROR);
    assert_int_equal(f->g->n_terminal, 3);
    fix_free(f);
}

/* Only the sample with the first text ends, at this place; the others go on. */
static void
repetition_ends_a_sample(void **state)
{
    static const struct {
        struct fdp_repetition r;
        const char *text;
        uint32_t end;
    } rows[] = { { { 1, 1, 3, 0 }, "abccc", 5 }, { { 1, 4, 2, 0 }, "xabab", 5 },
        { { 2, 2, 3, 0 }, "aaaaaa", 6 }, { { 3, 8, 2, 0 }, "abcaabca", 8 },
        { { 4, 4, 2, 0 }, "abcdabce", 0 }, { { 2, 4, 3, 0 }, "abababa", 6 } };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fix *f = fix_new();
        struct fdp_choice_end ce;
        struct req *r;
        uint32_t n = (uint32_t)strlen(rows[i].text), end = 0;

        repetition = rows[i].r;
        r = make(f, FDP_F_TEXT, 0, NULL, 2);
        memset(&repetition, 0, sizeof(repetition));
        send_ing(f, r, QUE_OPEN, 0);
        EXPECT(f, LNK_T_TOKENIZED, FDP_T_ACCEPTED);
        for (uint32_t k = 0; k < n && end == 0; k++) {
            send_token(f, r, 0, k, rows[i].text[k], FDK_DONE_NO);
            send_token(f, r, 1, k, 'a' + (int)k, FDK_DONE_NO);
            if (k + 1 != rows[i].end) {
                EXPECT(f, FDP_T_TOKENS, FDP_T_TOKENS);
                continue;
            }
            EXPECT(f, FDP_T_TOKENS, FDP_T_CHOICE_END, FDP_T_TOKENS);
            memcpy(&ce, f->body[1], sizeof(ce));
            assert_true(ce.finish == FDP_FIN_REPETITION && ce.n_tokens == rows[i].end);
            assert_true(ce.stop_id == -1 && ce.stop_str == -1);
            assert_int_equal(que_recheck(&f->q_stop), 1); /* the engine is told */
            end = k + 1;
        }
        assert_int_equal(end, rows[i].end);
        fix_free(f);
    }
}

/* ---- long answers ------------------------------------------------------------- */

/* Makes a request whose prompt has n tokens, all 'x'. */
static struct req *
make_long(struct fix *f, unsigned op, unsigned flags, uint32_t n, int n_seq, int n_shown)
{
    struct req *r = req_get(&f->rp, 80);

    r->where = REQ_IN_ENGINE;
    r->p.op = (uint16_t)op;
    r->p.flags = flags;
    r->n_prompt = r->n_ids = (int32_t)n;
    r->max_len = (int32_t)n + 2000;
    r->n_seq = n_seq;
    r->n_shown = n_shown;
    r->held = n_seq > n_shown;
    r->ids = mem_array(n, 4);
    for (uint32_t i = 0; i < n; i++)
        r->ids[i] = 'x';
    assert_int_equal(req_make_seqs(r), 0);
    return r;
}

/* Record i of the last poll as the end of a sample. */
static struct fdp_choice_end
ended(const struct fix *f, int i)
{
    struct fdp_choice_end ce;

    assert_int_equal(f->rec[i].type, FDP_T_CHOICE_END);
    memcpy(&ce, f->body[i], sizeof(ce));
    return ce;
}

/* Checks that the last poll has one error, as its last record. */
static void
is_error(const struct fix *f, int32_t code)
{
    struct fdp_error e;

    assert_true(f->n > 0 && f->rec[f->n - 1].type == FDP_T_ERROR);
    memcpy(&e, f->body[f->n - 1], sizeof(e));
    assert_int_equal(e.code, code);
}

/* Regression: sending back a prompt of a megabyte in one poll
 * held up every other stream. */
static void
prompts_go_back_in_pieces(void **state)
{
    struct fix *f = fix_new();
    struct req *other = make(f, 0, 0, NULL, 1);
    struct req *r =
        make_long(f, FDP_OP_SUBMIT, FDP_F_PROMPT_IDS | FDP_F_PROMPT_TEXT, 10000, 1, 1);
    uint32_t n_ids = 0, n_text = 0, polls = 0;

    (void)state;
    send_ing(f, other, QUE_OPEN, 0);
    send_ing(f, r, QUE_OPEN, 0);
    for (; n_text < 10000 && polls < 20; polls++) {
        uint32_t bytes = 0, n_other = 0;

        assert_int_equal(que_recheck(&f->q_stop), 0); /* the engine does not have the
                                                       * request yet */
        send_token(f, other, 0, polls, 'o', FDK_DONE_NO);
        take(f);
        for (int i = 0; i < f->n; i++) {
            if (f->rec[i].tag != r->id) {
                n_other += f->rec[i].type == FDP_T_IDS;
                continue;
            }
            bytes += f->rec[i].len;
            if (f->rec[i].type == FDP_T_PROMPT_IDS) {
                assert_int_equal(f->rec[i].position, n_ids);
                n_ids += f->rec[i].len / 4;
            } else if (f->rec[i].type == FDP_T_PROMPT_TEXT) {
                assert_int_equal(f->rec[i].position, n_text);
                assert_int_equal(n_ids, 10000);
                n_text += f->rec[i].len;
            }
        }
        assert_int_equal(n_other, 1);
        assert_in_range(bytes, 1, 4 * FDP_REC_MAX_LEN + 256);
    }
    assert_int_equal(n_text, 10000);
    assert_in_range(polls, 6, 8);
    assert_int_equal(que_recheck(&f->q_stop), 1);
    assert_int_equal(que_peek(&f->q_stop, 0)->m.kind, QUE_ADD);
    assert_ptr_equal(que_peek(&f->q_stop, 0)->m.req, r);
    send_token(f, r, 0, 0, 'a', FDK_DONE_LENGTH);
    send_end(f, r, 0);
    EXPECT(f, FDP_T_IDS, FDP_T_CHOICE_END, FDP_T_DONE);
    fix_free(f);
}

/* A prompt that is only sent back. Regression: its end was a separate message, and if
 * that came in the next poll the engine had already got the request. */
static void
prompt_alone(void **state)
{
    (void)state;
    for (unsigned flags = 0; flags < 2; flags++) {
        struct fix *f = fix_new();
        struct req *r = make_long(f, FDP_OP_SUBMIT, flags * FDP_F_PROMPT_IDS, 30, 1, 1);
        struct que_msg m = { .req = r,
            .kind = QUE_OPEN,
            .done = FDK_DONE_LENGTH,
            .n_top = QUE_NO_LOGPROB };

        que_push(&f->q_ing, &m);
        if (flags != 0)
            EXPECT(f, LNK_T_TOKENIZED, FDP_T_ACCEPTED, FDP_T_PROMPT_IDS, FDP_T_CHOICE_END,
                FDP_T_DONE);
        else
            EXPECT(f, LNK_T_TOKENIZED, FDP_T_ACCEPTED, FDP_T_CHOICE_END, FDP_T_DONE);
        assert_int_equal(ended(f, f->n - 2).finish, FDP_FIN_LENGTH);
        assert_int_equal(que_recheck(&f->q_stop), 0);
        assert_int_equal(que_recheck(&f->q_freed), 1);
        fix_free(f);
    }
}

/* After a cancel the rest of the prompt is not sent, and nothing is computed. */
static void
cancelled_while_prompt_goes_back(void **state)
{
    struct fix *f = fix_new();
    struct req *r = make_long(f, FDP_OP_SUBMIT, FDP_F_PROMPT_IDS, 10000, 2, 2);

    (void)state;
    send_ing(f, r, QUE_OPEN, 0);
    take(f);
    assert_int_equal(f->rec[f->n - 1].type, FDP_T_PROMPT_IDS);
    r->cancel = FDP_E_CANCELLED;
    EXPECT(f, FDP_T_CHOICE_END, FDP_T_CHOICE_END, FDP_T_ERROR);
    assert_true(ended(f, 0).finish == FDP_FIN_ERROR && f->rec[1].sample == 1);
    is_error(f, FDP_E_CANCELLED);
    assert_int_equal(que_recheck(&f->q_stop), 0);
    assert_int_equal(que_recheck(&f->q_freed), 1);
    NOTHING(f);
    fix_free(f);
}

/* Makes a request with n prior ids, each of which is compared with many others. */
static struct req *
make_resumed(struct fix *f, uint32_t n)
{
    struct req *r;

    repetition = (struct fdp_repetition){ 1, 256, 1024, 0 };
    r = make(f, FDP_F_TEXT, 0, "xxz", 1);
    memset(&repetition, 0, sizeof(repetition));
    free(r->ids);
    free(r->body);
    r->id = 90;
    r->n_ids = r->n_prompt + (int32_t)n;
    r->max_len = r->n_ids + 10;
    r->ids = mem_array((size_t)r->n_ids, 4);
    for (int32_t i = 0; i < r->n_ids; i++)
        r->ids[i] = i % 100 == 99 ? 'y' : 'x';
    assert_int_equal(req_make_seqs(r), 0);
    return r;
}

/* Regression: all prior ids of a request were replayed in one poll, which held up every
 * other stream. */
static void
prior_ids_in_pieces(void **state)
{
    struct fix *f = fix_new();
    struct req *other = make(f, 0, 0, NULL, 1), *r = make_resumed(f, 5000);
    struct que_msg m = { .req = r,
        .kind = QUE_TOKEN,
        .a = 'z',
        .x = 5000,
        .done = FDK_DONE_NO,
        .n_top = QUE_NO_LOGPROB };
    uint32_t polls = 0;

    (void)state;
    send_ing(f, other, QUE_OPEN, 0);
    send_ing(f, r, QUE_OPEN, 0);
    EXPECT(f, LNK_T_TOKENIZED, FDP_T_ACCEPTED, LNK_T_TOKENIZED, FDP_T_ACCEPTED);
    while (que_recheck(&f->q_stop) == 0 && polls < 38) {
        send_token(f, other, 0, polls++, 'o', FDK_DONE_NO);
        EXPECT(f, FDP_T_IDS);
    }
    assert_in_range(polls, 10, 37);
    assert_int_equal(que_peek(&f->q_stop, 0)->m.kind, QUE_ADD);
    assert_ptr_equal(que_peek(&f->q_stop, 0)->m.req, r);
    r->seqs[0].out[0] = 'z';
    que_push(&f->q_eng, &m);
    EXPECT(f, FDP_T_IDS, FDP_T_CHOICE_END); /* the stop string began in the prior ids */
    assert_int_equal(f->rec[0].position, 5000);
    assert_true(ended(f, 1).stop_str == 0 && ended(f, 1).n_tokens == 5001);
    fix_free(f);
}

/* The text of a stop id that ended the earlier output is hidden; before min_new it did
 * not end it. */
static void
prior_stop_id(void **state)
{
    (void)state;
    for (int min = 97; min <= 98; min++) {
        struct fix *f = fix_new();
        struct req *r = make_resumed(f, 98);
        struct que_msg m = { .req = r,
            .kind = QUE_TOKEN,
            .a = 'a',
            .x = 98,
            .done = FDK_DONE_NO,
            .n_top = QUE_NO_LOGPROB };

        r->n_stop = 1;
        r->stop_ids[0] = 'y';
        r->min_len = r->n_prompt + min;
        r->seqs[0].out[0] = 'a';
        send_ing(f, r, QUE_OPEN, 0);
        EXPECT(f, LNK_T_TOKENIZED, FDP_T_ACCEPTED);
        que_push(&f->q_eng, &m);
        EXPECT(f, FDP_T_TOKENS);
        is_tokens(f, 0, 98, (const uint32_t[]){ 'a' }, 1, min < 98 ? 95 : 98,
            min < 98 ? "xxa" : "a");
        fix_free(f);
    }
}

/* A cancel ends the replay; the prior ids still count. */
static void
cancelled_between_prior_ids(void **state)
{
    struct fix *f = fix_new();
    struct req *r = make_resumed(f, 5000);

    (void)state;
    send_ing(f, r, QUE_OPEN, 0);
    EXPECT(f, LNK_T_TOKENIZED, FDP_T_ACCEPTED);
    r->cancel = FDP_E_CANCELLED;
    EXPECT(f, FDP_T_CHOICE_END, FDP_T_ERROR);
    assert_true(ended(f, 0).finish == FDP_FIN_ERROR && ended(f, 0).n_tokens == 5000);
    is_error(f, FDP_E_CANCELLED);
    assert_int_equal(que_recheck(&f->q_stop), 0);
    assert_int_equal(que_recheck(&f->q_freed), 1);
    NOTHING(f);
    fix_free(f);
}

/* Answers that need no engine end too, also by their deadline. */
static void
cancelled_between_pieces(void **state)
{
    struct fix *f = fix_new();
    struct req *r = make_long(f, FDP_OP_TOKENIZE, 0, 10000, 1, 1);
    struct req *late = make_long(f, FDP_OP_DETOKENIZE, FDP_F_TEXT, 10000, 1, 1);

    (void)state;
    late->deadline_total_ns = 5000; /* the time of the polls */
    send_ing(f, r, QUE_ANSWER, 0);
    take(f);
    assert_int_equal(f->rec[f->n - 1].type, FDP_T_PROMPT_IDS);
    r->cancel = FDP_E_SLOW;
    EXPECT(f, FDP_T_ERROR);
    is_error(f, FDP_E_SLOW);
    send_ing(f, late, QUE_ANSWER, 0);
    EXPECT(f, FDP_T_ERROR);
    is_error(f, FDP_E_DEADLINE);
    assert_int_equal(que_recheck(&f->q_freed), 2);
    fix_free(f);
}

/* Regression: a cancel while the best samples were being sent had no effect: the client
 * still got megabytes, and then DONE. */
static void
best_cancelled_while_sent(void **state)
{
    struct fix *f = fix_new();
    struct req *r = make_long(f, FDP_OP_SUBMIT, FDP_F_TEXT, 1, 3, 2);
    struct que_msg m = { .req = r, .kind = QUE_TOKEN, .n_top = 0 };
    uint32_t n_ids = 0;

    (void)state;
    send_ing(f, r, QUE_OPEN, 0);
    EXPECT(f, LNK_T_TOKENIZED, FDP_T_ACCEPTED);
    for (uint32_t k = 0; k < 900; k++) {
        for (uint16_t i = 0; i < 3; i++) {
            r->seqs[i].out[k] = 'a';
            m.sample = i;
            m.a = 'a';
            m.x = k;
            m.logprob = -1.0f - i; /* sample 0 is the best */
            m.done = k == 899 ? FDK_DONE_LENGTH : FDK_DONE_NO;
            que_push(&f->q_eng, &m);
        }
        NOTHING(f);
    }
    send_end(f, r, 0);
    take(f);
    for (int i = 0; i < f->n; i++) {
        assert_int_equal(f->rec[i].sample, 0);
        if (f->rec[i].type == FDP_T_IDS)
            n_ids += f->rec[i].len / 4;
    }
    assert_in_range(n_ids, 1, 899); /* a piece of the first sample */
    r->cancel = FDP_E_CANCELLED;
    take(f);
    is_error(f, FDP_E_CANCELLED);
    for (int i = 0; i < f->n; i++)
        if (f->rec[i].type == FDP_T_IDS)
            n_ids += f->rec[i].len / 4;
    assert_true(f->n >= 3 && n_ids < 900);
    assert_int_equal(ended(f, f->n - 3).finish, FDP_FIN_ERROR);
    assert_int_equal(ended(f, f->n - 3).n_tokens, n_ids); /* all tokens that it counts
                                                           * have arrived */
    assert_int_equal(ended(f, f->n - 2).finish, FDP_FIN_ERROR);
    assert_int_equal(ended(f, f->n - 2).n_tokens, 0);
    assert_int_equal(f->rec[f->n - 2].sample, 1);
    assert_int_equal(que_recheck(&f->q_freed), 1);
    NOTHING(f);
    fix_free(f);
}

/* ---- bytes of tokens ----------------------------------------------------------- */

/* A tokenizer of five tokens: 0 and 1 have 3000 bytes, 2 has 1500, 3 and 4 have one. */
static struct tok *
long_tokens(void)
{
    int fd = memfd_create("u_egress-tokenizer", MFD_CLOEXEC);
    FILE *w = fdopen(fd, "w");
    char path[64], err[256] = "";
    struct tok *tok = NULL;

    assert_non_null(w);
    fprintf(w,
        "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
        "\"use_regex\":false},\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\"},"
        "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (int i = 0; i < 5; i++) {
        static const int bytes[] = { 3000, 3000, 1500, 1, 1 };

        fprintf(w, "%s\"", i > 0 ? "," : "");
        for (int k = 0; k < bytes[i]; k++)
            fputc("ABCDE"[i], w);
        fprintf(w, "\":%d", i);
    }
    fprintf(w, "}}}\n");
    assert_int_equal(fflush(w), 0);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (tok_load(path, &tok, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    (void)fclose(w);
    return tok;
}

/* TOKEN_TEXT with more bytes than a record holds: each token's bytes are cut at an equal
 * share of the record; shorter ones are complete. */
static void
token_texts_are_cut(void **state)
{
    static const struct {
        uint32_t id[4], n;
        uint16_t len[4];
    } rows[] = { { { 0 }, 1, { 3000 } }, { { 2, 2 }, 2, { 1500, 1500 } },
        { { 0, 1 }, 2, { 2033, 2033 } }, { { 0, 3, 1 }, 3, { 1354, 1, 1354 } },
        { { 2, 0, 4 }, 3, { 1354, 1354, 1 } },
        { { 2, 2, 2, 3 }, 4, { 1015, 1015, 1015, 1 } } };
    struct fix *f = fix_new();
    struct tok *tok = long_tokens();
    struct req *r;

    (void)state;
    f->g->cfg.tok = tok;
    r = make_long(f, FDP_OP_SUBMIT, FDP_F_TOKEN_TEXT, 1, 1, 1);
    send_ing(f, r, QUE_OPEN, 0);
    EXPECT(f, LNK_T_TOKENIZED, FDP_T_ACCEPTED);
    for (uint32_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        uint16_t n = (uint16_t)rows[k].n, at = 0;
        const struct fdp_rec *rec;
        const unsigned char *p;
        union que_slot *slot = que_claim(&f->q_eng);

        slot->m = (struct que_msg){ .req = r,
            .kind = QUE_TOKEN,
            .a = (int32_t)rows[k].id[0],
            .x = k,
            .n_top = (uint8_t)(n - 1) };
        r->seqs[0].out[k] = rows[k].id[0];
        if (n > 1)
            slot = que_claim(&f->q_eng);
        for (uint32_t i = 1; i < n; i++)
            slot->top[i - 1].id = rows[k].id[i];
        que_publish(&f->q_eng);
        (void)egr_poll(f->g, 5000);
        while ((rec = lnk_peek(&f->gate)) != NULL && rec->type != FDP_T_TOKEN_TEXT)
            lnk_next(&f->gate, rec);
        assert_non_null(rec);
        p = (const unsigned char *)(rec + 1);
        assert_memory_equal(p, &n, 2);
        assert_memory_equal(p + 2, rows[k].len, 2u * n);
        for (uint32_t i = 0; i < n; i++)
            for (uint16_t b = 0; b < rows[k].len[i]; b++)
                assert_int_equal(p[2 + 2 * n + at++], "ABCDE"[rows[k].id[i]]);
        assert_int_equal(rec->len, 2 + 2 * n + at);
        lnk_next(&f->gate, rec);
        NOTHING(f);
    }
    fix_free(f);
    tok_free(tok);
}

/* Regression: a text longer than its buffer came before the logprobs of its token. */
static void
logprobs_before_long_text(void **state)
{
    struct fix *f = fix_with(long_tokens());
    struct req *r = make_long(f, FDP_OP_SUBMIT, FDP_F_TEXT, 1, 1, 1);
    struct que_msg m = { .req = r, .kind = QUE_TOKEN, .done = FDK_DONE_NO, .n_top = 0 };

    (void)state;
    send_ing(f, r, QUE_OPEN, 0);
    EXPECT(f, LNK_T_TOKENIZED, FDP_T_ACCEPTED);
    que_push(&f->q_eng, &m);
    EXPECT(f, FDP_T_IDS, FDP_T_LOGPROBS, FDP_T_TEXT, FDP_T_TEXT, FDP_T_TEXT, FDP_T_TEXT);
    fix_free(f);
}

/* Regression: a piece of a DETOKENIZE was 4,096 ids, of whatever length, so that megabytes
 * went to the ring before the tokens of others. */
static void
text_goes_in_pieces(void **state)
{
    struct fix *f = fix_with(long_tokens());
    struct req *r;
    uint32_t n = 0, polls = 0;

    (void)state;
    r = make_long(f, FDP_OP_DETOKENIZE, FDP_F_TEXT, 100, 1, 1);
    memset(r->ids, 0, 100 * 4);
    send_ing(f, r, QUE_ANSWER, 0);
    do {
        uint32_t bytes = 0;

        take(f);
        polls++;
        for (int i = 0; i < f->n; i++)
            bytes += f->types[i] == FDP_T_TEXT ? f->rec[i].len : 0;
        assert_in_range(bytes, 1, 4 * FDP_REC_MAX_LEN + 3000 + REQ_TEXT_BYTES);
        n += bytes;
    } while (f->types[f->n - 1] != FDP_T_DONE);
    assert_int_equal(n, 100 * 3000);
    assert_in_range(polls, 15, 20);
    fix_free(f);
}

/* ---- stop strings in text held back -------------------------------------------- */

/* A tokenizer of bytes that are decoded together: a text, a line feed and an end. */
static struct tok *
byte_tokens(void)
{
    static const char json[] =
        "{\"added_tokens\":[{\"id\":2,\"content\":\"</s>\",\"special\":true}],"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},"
        "{\"type\":\"Fuse\"}]},\"model\":{\"type\":\"BPE\",\"merges\":[],"
        "\"vocab\":{\"a\":0,\"<0x0A>\":1,\"</s>\":2}}}";
    struct tok *tok = NULL;
    char err[512];

    if (load_bytes("tokenizer.json", json, strlen(json), &tok, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    return tok;
}

/* Checks the end of a sample that a stop string in held-back text ends, and its text. */
static void
held_text_stops(unsigned flags, int32_t last, int32_t done, const char *text)
{
    struct fix *f = fix_with(byte_tokens());
    struct req *r = make(f, FDP_F_TEXT | flags, 8, "\n", 1);
    struct fdp_choice_end ce = { .n_tokens = 0 };
    char got[16] = "";
    uint32_t n_ids = 0;

    send_ing(f, r, QUE_OPEN, 0);
    EXPECT(f, LNK_T_TOKENIZED, FDP_T_ACCEPTED);
    send_token(f, r, 0, 0, 0, FDK_DONE_NO);
    send_token(f, r, 0, 1, 1, last < 0 ? done : FDK_DONE_NO);
    if (last >= 0)
        send_token(f, r, 0, 2, last, done);
    take(f);
    for (int i = 0; i < f->n; i++) {
        struct fdp_tokens t = { .n_ids = (uint16_t)(f->rec[i].len / 4) };
        const unsigned char *at = f->body[i];

        assert_int_not_equal(f->types[i], FDP_T_SPECIAL);
        if (f->types[i] == FDP_T_TOKENS) {
            memcpy(&t, at, sizeof(t));
            at += sizeof(t) + 4u * t.n_ids;
        } else if (f->types[i] == FDP_T_TEXT) {
            t = (struct fdp_tokens){ .n_text = (uint16_t)f->rec[i].len };
        } else if (f->types[i] != FDP_T_IDS) {
            continue;
        }
        n_ids += t.n_ids;
        assert_true(strlen(got) + t.n_text < sizeof(got));
        strncat(got, (const char *)at, t.n_text);
    }
    assert_string_equal(got, text);
    assert_int_equal(f->types[f->n - 1], FDP_T_CHOICE_END);
    memcpy(&ce, f->body[f->n - 1], sizeof(ce));
    assert_int_equal(ce.finish, FDP_FIN_STOP);
    assert_int_equal(ce.stop_str, 0);
    assert_int_equal(ce.stop_id, -1);
    assert_int_equal(ce.n_tokens, last < 0 ? 2 : 3);
    assert_int_equal(n_ids, ce.n_tokens);
    assert_int_equal(que_recheck(&f->q_stop), done == FDK_DONE_NO);
    fix_free(f);
}

/* Regression: a byte token is held back until another token, or the end, comes. A stop
 * string in the text that the end released stayed in the text and was not reported. */
static void
held_text_has_stop(void **state)
{
    (void)state;
    held_text_stops(0, 2, FDK_DONE_STOP, "a");
    held_text_stops(0, -1, FDK_DONE_LENGTH, "a");
    held_text_stops(FDP_F_KEEP_STOP, -1, FDK_DONE_LENGTH, "a\n");
}

/* Regression: nor did it end a sample before a token that is sent separately. */
static void
held_text_has_stop_before_alone(void **state)
{
    (void)state;
    held_text_stops(FDP_F_ALONE, 2, FDK_DONE_NO, "a");
    held_text_stops(FDP_F_ALONE, 2, FDK_DONE_STOP, "a");
    held_text_stops(FDP_F_ALONE | FDP_F_KEEP_STOP, 2, FDK_DONE_NO, "a\n");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repetition_ends_a_sample),
        cmocka_unit_test(opening_comes_first),
        cmocka_unit_test(interval_groups_tokens),
        cmocka_unit_test(more_than_a_slot_goes_as_two),
        cmocka_unit_test(logprobs_stand_between),
        cmocka_unit_test(stop_string_drops_what_follows),
        cmocka_unit_test(errors),
        cmocka_unit_test(errors_hold),
        cmocka_unit_test(prompts_go_back_in_pieces),
        cmocka_unit_test(prompt_alone),
        cmocka_unit_test(cancelled_while_prompt_goes_back),
        cmocka_unit_test(prior_ids_in_pieces),
        cmocka_unit_test(cancelled_between_prior_ids),
        cmocka_unit_test(prior_stop_id),
        cmocka_unit_test(cancelled_between_pieces),
        cmocka_unit_test(best_cancelled_while_sent),
        cmocka_unit_test(token_texts_are_cut),
        cmocka_unit_test(logprobs_before_long_text),
        cmocka_unit_test(text_goes_in_pieces),
        cmocka_unit_test(held_text_has_stop),
        cmocka_unit_test(held_text_has_stop_before_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
