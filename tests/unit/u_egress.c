/* Egress alone, its queues fed by hand: order, grouping, stops, errors. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/mem.h"
#include "daemon/worker/egress.h"
#include "daemon/worker/null_tok.h"
#include "daemon/worker/runner.h"
#include "daemon/worker/tokenizer.h"

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
    unsigned char types[64];   /* records of the last poll */
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
fix_new(void)
{
    struct fix *f = mem_aligned(128, sizeof(*f));
    struct egr_cfg c;
    char err[256] = "";

    assert_int_equal(lnk_create(NULL, 1, &f->seg, &f->fd), 0);
    lnk_init_gate(&f->gate, f->seg, -1);
    lnk_init_worker(&f->worker, f->seg, -1);
    assert_int_equal(que_init(&f->q_ing, 64, NULL), 0);
    assert_int_equal(que_init(&f->q_eng, 64, NULL), 0);
    assert_int_equal(que_init(&f->q_stop, 64, NULL), 0);
    assert_int_equal(que_init(&f->q_freed, 64, NULL), 0);
    assert_int_equal(req_pool_init(&f->rp, 4), 0);
    assert_int_equal(ntk_load(&f->tok, err, sizeof(err)), 0);
    c = (struct egr_cfg) { .lnk = &f->worker, .q_ing = &f->q_ing, .q_eng = &f->q_eng,
        .q_stop = &f->q_stop, .q_freed = &f->q_freed, .tok = f->tok, .ready = &f->ready,
        .cnt = &f->cnt, .wait_room = no_room };
    f->g = egr_new(&c);
    return f;
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
    struct que_msg m = { .req = r, .kind = (uint8_t)kind, .a = code,
        .n_top = QUE_NO_LOGPROB };

    que_push(&f->q_ing, &m);
}

static void
send_token(struct fix *f, struct req *r, int sample, uint32_t at, int32_t token,
    int32_t done)
{
    struct que_msg m = { .req = r, .kind = QUE_TOKEN, .sample = (uint16_t)sample,
        .a = token, .x = at, .done = done, .n_top = QUE_NO_LOGPROB };

    r->seqs[sample].out[at] = (uint32_t)token;
    que_push(&f->q_eng, &m);
}

static void
send_end(struct fix *f, struct req *r, int32_t code)
{
    struct que_msg m = { .req = r, .kind = QUE_END, .a = code, .n_top = QUE_NO_LOGPROB };

    que_push(&f->q_eng, &m);
}

/* Poll and take the records; their types must be these, 0 ended. */
static void
expect(struct fix *f, const unsigned char *types)
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
    assert_int_equal(f->n, strlen((const char *)types));
    assert_memory_equal(f->types, types, (size_t)f->n);
}
#define EXPECT(f, ...) expect(f, (const unsigned char[]) { __VA_ARGS__, 0 })
#define NOTHING(f) expect(f, (const unsigned char[]) { 0 })

static void
opening_comes_first(void **state)
{
    struct fix *f = fix_new();
    struct req *r = make(f, FDP_F_TEXT | FDP_F_PROMPT_IDS, 0, NULL, 1);
    struct fdp_choice_end ce;
    struct fdp_done d;

    (void)state;
    /* the engine's token is there in the same poll */
    send_ing(f, r, QUE_OPEN, 0);
    send_token(f, r, 0, 0, 'h', FDK_DONE_NO);
    send_token(f, r, 0, 1, RUN_NULL_EOS, FDK_DONE_STOP);
    send_end(f, r, 0);
    EXPECT(f, LNK_T_TOKENIZED, FDP_T_ACCEPTED, FDP_T_PROMPT_IDS, FDP_T_IDS, FDP_T_TEXT,
        FDP_T_IDS, FDP_T_CHOICE_END, FDP_T_DONE);
    assert_int_equal(f->rec[4].len, 1);
    /* eos is an id but no text */
    memcpy(&ce, f->body[6], sizeof(ce));
    assert_int_equal(ce.finish, FDP_FIN_STOP);
    assert_int_equal(ce.stop_id, RUN_NULL_EOS);
    assert_int_equal(ce.n_tokens, 2);
    memcpy(&d, f->body[7], sizeof(d));
    assert_int_equal(d.output_tokens, 2);
    assert_int_equal(d.t_first, 5000);
    assert_int_equal(que_avail(&f->q_freed), 1);
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
    EXPECT(f, FDP_T_IDS, FDP_T_TEXT);
    assert_int_equal(f->rec[0].len, 12);
    assert_memory_equal(f->body[1], "abc", 3);
    send_token(f, r, 0, 3, 'd', FDK_DONE_LENGTH);
    send_end(f, r, 0);
    EXPECT(f, FDP_T_IDS, FDP_T_TEXT, FDP_T_CHOICE_END, FDP_T_DONE);
    assert_int_equal(f->rec[0].position, 3);
    assert_int_equal(f->rec[1].position, 3);
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
    EXPECT(f, FDP_T_IDS, FDP_T_TEXT, FDP_T_IDS);
    send_token(f, r, 0, 2, 'y', FDK_DONE_NO);
    send_token(f, r, 0, 3, 'z', FDK_DONE_NO);
    EXPECT(f, FDP_T_IDS, FDP_T_IDS, FDP_T_CHOICE_END);
    assert_int_equal(que_avail(&f->q_stop), 1);
    m = &que_peek(&f->q_stop, 0)->m;
    assert_true(m->kind == QUE_STOP && m->idx == r->idx && m->serial == r->serial);
    assert_int_equal(m->sample, 0);
    /* late tokens vanish, and the engine is told again */
    send_token(f, r, 0, 4, 'q', FDK_DONE_NO);
    NOTHING(f);
    assert_int_equal(que_recheck(&f->q_stop), 2);
    /* the other sample goes on; what it held back comes with its end */
    send_token(f, r, 1, 0, 'x', FDK_DONE_NO);
    send_token(f, r, 1, 1, 'y', FDK_DONE_LENGTH);
    send_end(f, r, 0);
    EXPECT(f, FDP_T_IDS, FDP_T_IDS, FDP_T_TEXT, FDP_T_CHOICE_END, FDP_T_DONE);
    assert_int_equal(f->rec[2].len, 2);
    assert_int_equal(f->rec[2].sample, 1);
    fix_free(f);
}

static void
errors(void **state)
{
    struct fix *f = fix_new();
    struct req *r = make(f, 0, 0, NULL, 2);
    struct que_msg m = { .id = 99, .kind = QUE_REFUSE, .a = FDP_E_QUEUE_FULL,
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
    /* refused before it was accepted: the error alone */
    req_put(&f->rp, r);
    r = make(f, 0, 0, NULL, 1);
    send_ing(f, r, QUE_FAIL, FDP_E_TOO_LONG);
    EXPECT(f, FDP_T_ERROR);
    assert_int_equal(f->g->n_terminal, 3);
    fix_free(f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_comes_first),
        cmocka_unit_test(interval_groups_tokens),
        cmocka_unit_test(stop_string_drops_what_follows),
        cmocka_unit_test(errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
