/* The policy, by hand: what a step takes, who waits, who gives way. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/worker/scheduler.h"

#define MAX_REQ 16

struct fix {
    struct req_pool rp;
    struct kv *kv;
    struct sch *sch;
    struct sch_step st;
    uint64_t now;
};

static struct fix *
fix_new(int32_t n_block, struct sch_cfg cfg)
{
    struct fix *f = mem_zalloc(sizeof(*f));

    assert_int_equal(req_pool_init(&f->rp, MAX_REQ), 0);
    f->kv = kv_new(n_block, 16, cfg.max_seqs, n_block * 16);
    f->sch = sch_new(&cfg, f->kv);
    assert_int_equal(sch_step_init(&f->st, cfg.max_seqs), 0);
    f->now = 1000;
    return f;
}

static void
fix_free(struct fix *f)
{
    sch_step_fini(&f->st);
    sch_free(f->sch);
    kv_free(f->kv);
    req_pool_fini(&f->rp);
    free(f);
}

static struct req *
add(struct fix *f, int32_t n_prompt, int32_t max_new, int32_t priority, int32_t n)
{
    static uint64_t id;
    struct req *r = req_get(&f->rp, ++id);

    assert_non_null(r);
    r->where = REQ_IN_ENGINE;
    r->n_prompt = r->n_ids = n_prompt;
    r->max_len = n_prompt + max_new;
    r->n_seq = n;
    r->p.priority = priority;
    r->ids = mem_array((size_t)n_prompt, 4);
    assert_int_equal(req_make_seqs(r), 0);
    sch_add(f->sch, r);
    return r;
}

/* Run a step: sampled rows get token 7. Returns its rows. */
static int32_t
step(struct fix *f)
{
    int32_t n = sch_pick(f->sch, f->now++, &f->st);

    sch_check(f->sch);
    if (n == 0)
        return 0;
    sch_collected(f->sch, f->st.epoch);
    for (int32_t i = 0; i < n; i++) {
        struct seq *s = f->st.rows[i].seq;

        if (f->st.rows[i].sample && s->slot >= 0)
            sch_append(f->sch, s, 7, s->n_tok + 1 == s->max_len);
    }
    sch_check(f->sch);
    return n;
}

static const struct sch_cfg roomy = { 8, 32, 4, 1 };

static void
prompt_is_chunked_and_decode_goes_first(void **state)
{
    struct fix *f = fix_new(64, roomy);
    struct req *a = add(f, 10, 5, 0, 1), *b;

    (void)state;
    assert_int_equal(step(f), 1);
    assert_int_equal(f->st.n_tok, 10);
    assert_int_equal(a->seqs[0].n_tok, 11);
    b = add(f, 100, 5, 0, 1);
    assert_int_equal(step(f), 2);
    assert_ptr_equal(f->st.rows[0].seq, &a->seqs[0]);
    assert_int_equal(f->st.rows[0].q_len, 1);
    assert_int_equal(f->st.rows[1].q_len, 31);
    assert_false(f->st.rows[1].sample);
    assert_true(f->st.rows[1].fresh);
    assert_int_equal(step(f), 2);
    assert_int_equal(f->st.rows[1].first, 31);
    assert_false(f->st.rows[1].fresh);
    assert_int_equal(step(f), 2);
    assert_int_equal(step(f), 2);
    /* 31 + 31 + 31 + 7: the last chunk samples */
    assert_int_equal(f->st.rows[1].q_len, 7);
    assert_true(f->st.rows[1].sample);
    assert_int_equal(b->seqs[0].n_tok, 101);
    assert_int_equal(a->seqs[0].state, REQ_ST_ENDED);
    assert_ptr_equal(sch_take_ended(f->sch), a);
    assert_null(sch_take_ended(f->sch));
    fix_free(f);
}

static void
whole_prompts_when_not_chunked(void **state)
{
    struct fix *f = fix_new(64, (struct sch_cfg) { 8, 32, 4, 0 });
    struct req *a = add(f, 20, 5, 0, 1), *b = add(f, 20, 5, 0, 1);

    (void)state;
    assert_int_equal(step(f), 1);
    assert_int_equal(b->seqs[0].state, REQ_ST_WAITING);
    assert_int_equal(step(f), 2);
    assert_int_equal(f->st.rows[1].q_len, 20);
    (void)a;
    fix_free(f);
}

static void
priority_then_arrival(void **state)
{
    struct fix *f = fix_new(64, (struct sch_cfg) { 1, 32, 4, 1 });
    struct req *a = add(f, 4, 1, 0, 1), *b = add(f, 4, 1, 0, 1), *c = add(f, 4, 1, -1, 1);

    (void)state;
    assert_int_equal(step(f), 1);
    assert_ptr_equal(sch_take_ended(f->sch), c);
    assert_int_equal(step(f), 1);
    assert_ptr_equal(sch_take_ended(f->sch), a);
    assert_int_equal(step(f), 1);
    assert_ptr_equal(sch_take_ended(f->sch), b);
    assert_int_equal(step(f), 0);
    assert_false(sch_busy(f->sch));
    fix_free(f);
}

static void
last_in_gives_way_and_loses_nothing(void **state)
{
    struct fix *f = fix_new(6, roomy);
    struct req *a = add(f, 30, 60, 0, 1), *b = add(f, 30, 60, 0, 1);
    int preempted = 0;

    (void)state;
    for (int i = 0; i < 300 && (a->n_live > 0 || b->n_live > 0); i++) {
        (void)step(f);
        preempted += f->st.n_preempted;
        if (f->st.n_preempted > 0) {
            assert_int_equal(b->seqs[0].state, REQ_ST_WAITING);
            assert_int_equal(b->seqs[0].cached_len, 0);
            assert_true(b->seqs[0].n_tok > 30);
            assert_int_equal(f->st.n_row, 1);
        }
    }
    assert_true(preempted > 0);
    assert_int_equal(a->n_preempted, 0);
    assert_int_equal(b->n_preempted, preempted);
    assert_int_equal(a->seqs[0].n_tok, 90);
    assert_int_equal(b->seqs[0].n_tok, 90);
    for (int i = 0; i < 60; i++)
        assert_int_equal(b->seqs[0].out[i], 7);
    assert_ptr_equal(sch_take_ended(f->sch), a);
    assert_ptr_equal(sch_take_ended(f->sch), b);
    assert_int_equal(f->kv->n_free, 6);
    fix_free(f);
}

static void
prompt_logprobs_fit_their_budget_and_come_once(void **state)
{
    struct fix *f = fix_new(6, roomy);
    struct req *a = add(f, 20, 60, 0, 1);
    int32_t next = 1, n = 0;

    (void)state;
    a->p.flags |= FDP_F_PROMPT_LOGPROBS;
    for (int i = 0; i < 40; i++) {
        assert_int_equal(sch_pick(f->sch, f->now++, &f->st), 1);
        assert_true(f->st.n_score <= 4);
        if (f->st.n_score > 0)
            assert_int_equal(f->st.rows[0].score_first + 1, next);
        next += f->st.n_score;
        n += f->st.n_score;
        sch_collected(f->sch, f->st.epoch);
        if (f->st.rows[0].sample)
            sch_append(f->sch, &a->seqs[0], 7, 0);
    }
    /* positions 1 to 19 */
    assert_int_equal(n, 19);
    fix_free(f);
}

static void
samples_cancel_and_deadline(void **state)
{
    struct fix *f = fix_new(64, roomy);
    struct req *a = add(f, 4, 9, 0, 3), *b = add(f, 4, 9, 0, 1), *c;

    (void)state;
    b->deadline_total_ns = 1003;
    /* sch_add() has not seen it */
    f->sch->next_deadline = 1003;
    assert_int_equal(step(f), 4);
    assert_int_equal(f->sch->n_req_running, 2);
    sch_end(f->sch, &a->seqs[1]);
    assert_null(sch_take_ended(f->sch));
    sch_end_req(f->sch, a, FDP_E_CANCELLED);
    sch_end_req(f->sch, a, FDP_E_SLOW);
    assert_ptr_equal(sch_take_ended(f->sch), a);
    assert_int_equal(a->code, FDP_E_CANCELLED);
    sch_check(f->sch);
    f->now = 1003;
    assert_int_equal(step(f), 0);
    assert_ptr_equal(sch_take_ended(f->sch), b);
    assert_int_equal(b->code, FDP_E_DEADLINE);
    assert_int_equal(f->kv->n_free, 64);
    /* a queue deadline does not end what has started */
    c = add(f, 4, 9, 0, 1);
    c->deadline_queue_ns = 2000;
    f->sch->next_deadline = 2000;
    assert_int_equal(step(f), 1);
    f->now = 3000;
    assert_int_equal(step(f), 1);
    assert_int_equal(c->code, 0);
    fix_free(f);
}

static void
rows_in_flight_leave_late(void **state)
{
    struct fix *f = fix_new(64, roomy);
    struct req *a = add(f, 4, 9, 0, 1);
    int32_t slot;

    (void)state;
    assert_int_equal(sch_pick(f->sch, 1, &f->st), 1);
    slot = a->seqs[0].slot;
    assert_ptr_equal(sch_slot(f->sch, slot, a->seqs[0].generation), &a->seqs[0]);
    sch_end_req(f->sch, a, FDP_E_CANCELLED);
    assert_int_equal(a->seqs[0].state, REQ_ST_FINISHING);
    assert_int_equal(a->seqs[0].slot, slot);
    sch_check(f->sch);
    assert_null(sch_take_ended(f->sch));
    sch_collected(f->sch, f->st.epoch);
    assert_int_equal(a->seqs[0].state, REQ_ST_ENDED);
    /* a late token of the old owner finds nobody */
    assert_null(sch_slot(f->sch, slot, a->seqs[0].generation));
    assert_ptr_equal(sch_take_ended(f->sch), a);
    sch_check(f->sch);
    fix_free(f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompt_is_chunked_and_decode_goes_first),
        cmocka_unit_test(whole_prompts_when_not_chunked),
        cmocka_unit_test(priority_then_arrival),
        cmocka_unit_test(last_in_gives_way_and_loses_nothing),
        cmocka_unit_test(prompt_logprobs_fit_their_budget_and_come_once),
        cmocka_unit_test(samples_cancel_and_deadline),
        cmocka_unit_test(rows_in_flight_leave_late),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
