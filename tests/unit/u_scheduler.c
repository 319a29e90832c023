/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The policy, by hand: which rows a step takes, which requests
 * wait, which are preempted. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "daemon/worker/scheduler_priv.h"
#include "tests/unit/sched_fixture.h"

static const struct fx_cfg roomy = { .block_size = 16,
    .n_block = 64,
    .sch = { .max_seqs = 8, .max_tokens = 32, .max_scores = 4, .chunked = 1 } };

static void
prompt_is_chunked_and_decode_goes_first(void **state)
{
    struct fx *f = fx_new(&roomy);
    struct req *a = fx_plain(f, 10, 5), *b;

    (void)state;
    f->keep = 1;
    assert_int_equal(fx_step(f), 1);
    assert_int_equal(f->st.n_tok, 10);
    assert_int_equal(a->seqs[0].n_tok, 11);
    b = fx_plain(f, 100, 5);
    assert_int_equal(fx_step(f), 2);
    assert_ptr_equal(f->st.rows[0].seq, &a->seqs[0]);
    assert_int_equal(f->st.rows[0].q_len, 1);
    assert_true(f->st.rows[0].decode);
    assert_int_equal(f->st.rows[1].q_len, 31);
    assert_false(f->st.rows[1].sample);
    assert_true(f->st.rows[1].fresh);
    assert_int_equal(fx_step(f), 2);
    assert_int_equal(f->st.rows[1].first, 31);
    assert_false(f->st.rows[1].fresh);
    assert_int_equal(fx_step(f), 2);
    assert_int_equal(fx_step(f), 2);
    /* 31 + 31 + 31 + 7: the last chunk samples */
    assert_int_equal(f->st.rows[1].q_len, 7);
    assert_true(f->st.rows[1].sample);
    assert_int_equal(b->seqs[0].n_tok, 101);
    assert_int_equal(a->seqs[0].state, REQ_ST_ENDED);
    assert_ptr_equal(f->last_ended, a);
    fx_drain(f, 10);
    fx_free(f);
}

/* The composition of a step is the input of the cost model. */
static void
step_cost_counts_tokens_context_and_pairs(void **state)
{
    struct fx *f = fx_new(&roomy);

    (void)state;
    (void)fx_plain(f, 10, 5);
    (void)fx_step(f);
    assert_int_equal(f->st.cost.n_tok, 10);
    assert_int_equal(f->st.cost.n_ctx, 0);
    assert_int_equal(f->st.cost.n_pair, 55);
    (void)fx_plain(f, 40, 5);
    (void)fx_step(f);
    assert_int_equal(f->st.cost.n_tok, 32);
    assert_int_equal(f->st.cost.n_ctx, 11);
    assert_int_equal(f->st.cost.n_pair, 31 * 32 / 2);
    (void)fx_step(f);
    assert_int_equal(f->st.cost.n_ctx, 12);
    assert_int_equal(f->st.cost.n_pair, 9 * 31 + 45);
    fx_drain(f, 10);
    fx_free(f);
}

static void
order_of(int fcfs, const int32_t priority[4], const int expect[4])
{
    struct fx_cfg c = roomy;
    struct fx *f;
    struct req *r[4];

    c.sch.max_seqs = 1;
    c.sch.fcfs = fcfs;
    f = fx_new(&c);
    f->keep = 1;
    for (int i = 0; i < 4; i++)
        r[i] = fx_add(f,
            &(struct fx_ask){ .n_prompt = 4, .max_new = 1, .priority = priority[i] });
    for (int i = 0; i < 4; i++) {
        assert_int_equal(fx_step(f), 1);
        assert_ptr_equal(f->last_ended, r[expect[i]]);
    }
    assert_int_equal(fx_step(f), 0);
    fx_free(f);
}

static void
priority_then_arrival(void **state)
{
    (void)state;
    order_of(0, (int32_t[]){ 0, 0, -1, 7 }, (int[]){ 2, 0, 1, 3 });
    order_of(0, (int32_t[]){ 5, INT32_MIN, 5, INT32_MAX }, (int[]){ 1, 0, 2, 3 });
    order_of(1, (int32_t[]){ 5, INT32_MIN, 5, INT32_MAX }, (int[]){ 0, 1, 2, 3 });
}

static void
cancel_one(struct fx *f, int32_t i)
{
    if (f->reqs[i].r != NULL && f->reqs[i].r->n_live > 0)
        fx_cancel(f, f->reqs[i].r);
}

/* More priorities than have a marker, in any order; sch_check() checks the list. */
static void
many_priorities_stay_sorted(void **state)
{
    struct fx_cfg c = roomy;
    struct fx *f;

    (void)state;
    c.max_req = 400;
    f = fx_new(&c);
    for (int i = 0; i < 400; i++) {
        (void)fx_add(f,
            &(struct fx_ask){ .n_prompt = 1,
                .max_new = 1 + i % 3,
                .priority = (int32_t)fx_rand(f, 0, 150) * 1000 - 70000,
                .n = 1 + i % 2 });
        if (i % 20 == 0)
            sch_check(f->sch);
        if (i % 7 == 0)
            cancel_one(f, (int32_t)fx_rand(f, 0, (uint32_t)i));
        if (i % 10 == 0)
            (void)fx_step(f);
    }
    fx_drain(f, 1000);
    fx_free(f);
}

static void
last_in_gives_way_and_loses_nothing(void **state)
{
    struct fx_cfg c = roomy;
    struct fx *f;
    struct req *a, *b;
    int preempted = 0;

    (void)state;
    c.n_block = 6;
    f = fx_new(&c);
    f->keep = 1;
    a = fx_plain(f, 30, 60);
    b = fx_plain(f, 31, 60);
    for (int i = 0; i < 300 && (a->n_live > 0 || b->n_live > 0); i++) {
        (void)fx_step(f);
        preempted += f->st.n_preempted;
        if (f->st.n_preempted > 0) {
            assert_int_equal(b->seqs[0].state, REQ_ST_WAITING);
            assert_int_equal(b->seqs[0].cached_len, 0);
            assert_true(b->seqs[0].n_tok > 31);
            assert_int_equal(f->st.n_row, 1);
        }
    }
    assert_true(preempted > 0);
    assert_int_equal(a->n_preempted, 0);
    assert_int_equal(b->n_preempted, preempted);
    assert_int_equal(a->seqs[0].n_tok, 90);
    assert_int_equal(b->seqs[0].n_tok, 91);
    fx_free(f);
}

/* Each sequence that lacks a block gets exactly one: four sequences with one block each
 * that all need a second cause two preemptions. */
static void
as_many_give_way_as_are_short(void **state)
{
    (void)state;
    for (int32_t depth = 0; depth <= 4; depth++) {
        struct fx_cfg c = roomy;
        struct fx *f;
        int32_t n = 0;

        c.n_block = 4;
        c.depth = depth;
        f = fx_new(&c);
        for (int i = 0; i < 4; i++)
            (void)fx_plain(f, 8, 20);
        while (n == 0) {
            (void)fx_step(f);
            n = f->st.n_preempted;
        }
        assert_int_equal(n, 2);
        fx_drain(f, 200);
        fx_free(f);
    }
}

static void
prompt_logprobs_fit_their_budget_and_come_once(void **state)
{
    struct fx_cfg c = roomy;
    struct fx *f;
    int32_t next = 1, n = 0;

    (void)state;
    c.n_block = 8;
    c.cached = 1;
    f = fx_new(&c);
    /* blocks are not attached if logprobs of their tokens are to be sent */
    for (int k = 0; k < 2; k++) {
        (void)fx_add(f, &(struct fx_ask){ .n_prompt = 36, .max_new = 20, .scores = 1 });
        next = 1;
        n = 0;
        for (int i = 0; i < 20; i++) {
            assert_int_equal(fx_step(f), 1);
            assert_true(f->st.n_score <= 4);
            if (f->st.n_score > 0)
                assert_int_equal(f->st.rows[0].score_first + 1, next);
            next += f->st.n_score;
            n += f->st.n_score;
        }
        /* positions 1 to 35 */
        assert_int_equal(n, 35);
        fx_drain(f, 40);
    }
    assert_int_equal(f->n_cached, 0);
    fx_free(f);
}

/* ---- ends ------------------------------------------------------------------------ */

static void
samples_and_cancel(void **state)
{
    struct fx *f = fx_new(&roomy);
    struct req *a = fx_add(f, &(struct fx_ask){ .n_prompt = 4, .max_new = 9, .n = 3 });
    struct req *b = fx_plain(f, 4, 9);

    (void)state;
    f->keep = 1;
    assert_int_equal(fx_step(f), 4);
    assert_int_equal(f->sch->n_req_running, 2);
    f->reqs[a->idx].touched = 1;
    sch_end(f->sch, &a->seqs[1]);
    assert_null(f->sch->ended_head);
    sch_end_req(f->sch, a, FDP_E_CANCELLED);
    sch_end_req(f->sch, a, FDP_E_SLOW);
    assert_ptr_equal(f->sch->ended_head, a);
    assert_int_equal(a->code, FDP_E_CANCELLED);
    sch_check(f->sch);
    assert_int_equal(fx_step(f), 1);
    fx_drain(f, 20);
    assert_int_equal(b->code, 0);
    fx_free(f);
}

static void
deadlines_whatever_the_state(void **state)
{
    struct fx_cfg c = roomy;
    struct fx *f;
    struct req *a, *b, *d, *e;
    uint64_t t;

    (void)state;
    c.sch.max_seqs = 2;
    f = fx_new(&c);
    f->keep = 1;
    t = f->now;
    f->step_ns = 0;
    /* running, total: ends at its time, not one ns before */
    a = fx_add(f,
        &(struct fx_ask){ .n_prompt = 4,
            .max_new = 90,
            .deadline_total_ns = t + 50000000,
            .deadline_queue_ns = t + 20000000 });
    b = fx_plain(f, 4, 90);
    /* waiting: the queue's deadline */
    d = fx_add(f,
        &(struct fx_ask){ .n_prompt = 4,
            .max_new = 9,
            .deadline_queue_ns = t + 7000000,
            .deadline_total_ns = t + 90000000 });
    /* waiting: far in the future, beyond one turn of the wheel */
    e = fx_add(f,
        &(struct fx_ask){ .n_prompt = 4,
            .max_new = 9,
            .deadline_total_ns = t + 20000000000ull });
    (void)fx_step(f);
    assert_int_equal(f->sch->running.n, 2);
    f->now = t + 6999999;
    assert_int_equal(fx_step(f), 2);
    assert_int_equal(d->n_live, 1);
    f->now = t + 7000000;
    assert_int_equal(fx_step(f), 2);
    assert_int_equal(d->n_live, 0);
    assert_int_equal(d->code, FDP_E_DEADLINE);
    /* the queue's deadline does not apply to a running request */
    f->now = t + 49999999;
    assert_int_equal(fx_step(f), 2);
    assert_int_equal(a->code, 0);
    f->now = t + 50000000;
    (void)fx_step(f);
    assert_int_equal(a->code, FDP_E_DEADLINE);
    assert_null(fx_row(f, &a->seqs[0]));
    /* e took its place */
    assert_non_null(fx_row(f, &e->seqs[0]));
    assert_int_equal(b->code, 0);
    f->now = t + 20000000000ull;
    (void)fx_step(f);
    assert_int_equal(e->code, FDP_E_DEADLINE);
    /* a request that is late before it is added */
    e = fx_add(f,
        &(struct fx_ask){ .n_prompt = 4, .max_new = 9, .deadline_total_ns = t + 1 });
    (void)fx_step(f);
    assert_int_equal(e->code, FDP_E_DEADLINE);
    assert_int_equal(e->t_start_ns, 0);
    fx_drain(f, 100);
    fx_free(f);
}

/* A request that has ended and only waits to be collected is not late. */
static void
deadline_after_the_end(void **state)
{
    struct fx_cfg c = roomy;
    struct fx *f;
    struct req *a;

    (void)state;
    c.depth = 2;
    f = fx_new(&c);
    f->keep = 1;
    a = fx_add(f,
        &(struct fx_ask){ .n_prompt = 4,
            .max_new = 90,
            .deadline_total_ns = f->now + 5 * f->step_ns });
    for (int i = 0; i < 4; i++)
        (void)fx_step(f);
    f->reqs[a->idx].touched = 1;
    sch_end(f->sch, &a->seqs[0]);
    assert_int_equal(a->seqs[0].state, REQ_ST_FINISHING);
    f->now += 10 * f->step_ns;
    fx_drain(f, 10);
    assert_int_equal(a->n_live, 0);
    assert_int_equal(a->code, 0);
    fx_free(f);
}

/* A thousand deadlines, each kept to the step. */
static void
deadlines_by_the_wheel(void **state)
{
    struct fx_cfg c = roomy;
    struct fx *f;

    (void)state;
    c.sch.max_seqs = 1;
    c.max_req = 1001;
    c.no_check = 1;
    f = fx_new(&c);
    f->keep = 1;
    (void)fx_plain(f, 4, 1000);
    (void)fx_step(f);
    f->step_ns = 5700000;
    for (int i = 0; i < 1000; i++)
        (void)fx_add(f,
            &(struct fx_ask){ .n_prompt = 4,
                .max_new = 1,
                .deadline_queue_ns = f->now + fx_rand(f, 0, 800) * 7000000ull });
    for (int i = 0; i < 990; i++) {
        (void)fx_step(f);
        if (i % 50 == 0)
            sch_check(f->sch);
        for (int k = 0; k < 1001; k++) {
            const struct req *r = f->reqs[k].r;

            if (r->deadline_queue_ns != 0)
                assert_int_equal(r->code,
                    r->deadline_queue_ns <= f->now ? FDP_E_DEADLINE : 0);
        }
    }
    assert_int_equal(f->n_ended, 1000);
    fx_drain(f, 100);
    fx_free(f);
}

static void
rows_in_flight_leave_late(void **state)
{
    struct fx_cfg c = roomy;
    struct fx *f;
    struct req *a;
    int32_t slot;
    uint32_t generation;

    (void)state;
    c.depth = 1;
    f = fx_new(&c);
    f->keep = 1;
    a = fx_plain(f, 4, 9);
    assert_int_equal(fx_step(f), 1);
    slot = a->seqs[0].slot;
    generation = a->seqs[0].generation;
    assert_ptr_equal(sch_slot(f->sch, slot, generation), &a->seqs[0]);
    fx_cancel(f, a);
    assert_int_equal(a->seqs[0].state, REQ_ST_FINISHING);
    assert_int_equal(a->seqs[0].slot, slot);
    sch_check(f->sch);
    assert_null(f->sch->ended_head);
    assert_int_equal(fx_step(f), 0);
    assert_int_equal(a->seqs[0].state, REQ_ST_ENDED);
    /* a late token of the old owner finds no sequence */
    assert_null(sch_slot(f->sch, slot, generation));
    assert_ptr_equal(f->last_ended, a);
    assert_int_equal(f->n_late, 1);
    fx_free(f);
}

/* A sequence that is preempted when the device has already ended it: it ends. */
static void
end_while_giving_way(void **state)
{
    int by_stop = 0;

    (void)state;
    for (int32_t depth = 1; depth <= 4; depth++) {
        for (uint64_t text = 0; text < 60; text++) {
            struct fx_cfg c = roomy;
            struct fx *f;
            struct req *b;
            struct seq *s;
            int32_t end;

            c.depth = depth;
            c.append_first = text & 1;
            f = fx_new(&c);
            f->keep = 1;
            b = fx_add(f,
                &(struct fx_ask){ .n_prompt = 5, .max_new = 30, .text = text, .stops = 1 });
            s = &b->seqs[0];
            end = f->reqs[b->idx].seqs[0].end;
            by_stop += end < s->max_len;
            while (s->device_len < end)
                (void)fx_step(f);
            assert_int_equal(s->state, REQ_ST_RUNNING);
            sch_preempt(f->sch, s);
            assert_int_equal(s->state, REQ_ST_PREEMPT_PENDING);
            sch_check(f->sch);
            while (fx_collect(f))
                sch_check(f->sch);
            assert_int_equal(s->state, REQ_ST_ENDED);
            assert_int_equal(s->n_tok, end);
            fx_free(f);
        }
    }
    assert_true(by_stop > 10);
}

/* ---- blocks ---------------------------------------------------------------------- */

/* Preempts a sequence when it has computed `at` tokens: its output is the same as
 * without (the fixture compares). */
static void
d5_give_way(int32_t n_prompt, int32_t at, int32_t depth, int cached)
{
    struct fx_cfg c = { .block_size = 16,
        .n_block = 16,
        .depth = depth,
        .cached = cached,
        .append_first = at & 1,
        .sch = { .max_seqs = 2, .max_tokens = 16, .max_scores = 1, .chunked = 1 } };
    struct fx *f = fx_new(&c);
    const struct sch_row *row;
    struct req *b;
    struct seq *s;
    int32_t full, known;

    f->keep = 1;
    (void)fx_plain(f, 3, 90);
    b = fx_plain(f, n_prompt, 50);
    s = &b->seqs[0];
    while (s->cached_len < at)
        (void)fx_step(f);
    full = s->cached_len / 16;
    sch_preempt(f->sch, s);
    assert_int_equal(s->state, depth > 0 ? REQ_ST_PREEMPT_PENDING : REQ_ST_WAITING);
    sch_check(f->sch);
    for (int i = 0; s->state != REQ_ST_RUNNING; i++) {
        (void)fx_step(f);
        assert_true(i <= depth);
    }
    /* full blocks are attached again */
    row = fx_row(f, s);
    assert_non_null(row);
    assert_true(row->fresh);
    known = s->device_len - row->sample;
    assert_int_equal(row->first,
        !cached ? 0 : 16 * ((known - 1) / 16 < full ? (known - 1) / 16 : full));
    fx_drain(f, 400);
    assert_int_equal(s->n_tok, n_prompt + 50);
    assert_int_equal(b->n_preempted, 1);
    assert_int_equal(b->n_cached, 0);
    fx_free(f);
}

static void
d5_block_boundaries(void **state)
{
    (void)state;
    for (int32_t depth = 0; depth <= 4; depth += 2)
        for (int cached = 0; cached < 2; cached++)
            for (int32_t blocks = 1; blocks <= 3; blocks++)
                for (int32_t m = 1; m <= blocks + 2; m++)
                    for (int32_t d = -1; d <= 1; d++)
                        d5_give_way(blocks * 16, m * 16 + d, depth, cached);
}

/* An admission reserves exactly decode_blocks, which are not
 * held before they are needed. */
static void
e8_decode_blocks(void **state)
{
    static const int32_t grants[] = { 0, 1, 2, 8 };

    (void)state;
    for (int32_t n_prompt = 1; n_prompt < 80; n_prompt += 5) {
        for (int i = 0; i < 4; i++) {
            struct fx_cfg c = roomy;
            struct fx *f;
            struct req *a;
            const struct seq *s;

            c.sch.decode_blocks = grants[i];
            f = fx_new(&c);
            a = fx_plain(f, n_prompt, 160);
            s = &a->seqs[0];
            do
                (void)fx_step(f);
            while (s->cached_len < n_prompt);
            assert_int_equal(f->kv->n_held[s->slot], kv_blocks(f->kv, n_prompt));
            assert_int_equal(s->n_owed, grants[i]);
            assert_int_equal(f->sch->n_owed, grants[i]);
            /* it grows into the reserved blocks, up to the last */
            for (int k = 1; k < 150; k++) {
                int32_t more = kv_blocks(f->kv, n_prompt + k) - kv_blocks(f->kv, n_prompt);

                (void)fx_step(f);
                assert_int_equal(f->kv->n_held[s->slot], kv_blocks(f->kv, n_prompt + k));
                assert_int_equal(s->n_owed, grants[i] > more ? grants[i] - more : 0);
            }
            fx_drain(f, 200);
            assert_int_equal(f->sch->n_owed, 0);
            /* no more than it can ever use */
            a = fx_plain(f, n_prompt, 2);
            (void)fx_step(f);
            assert_true(f->kv->n_held[a->seqs[0].slot] + a->seqs[0].n_owed <=
                kv_blocks(f->kv, n_prompt + 2));
            fx_drain(f, 20);
            fx_free(f);
        }
    }
}

/* An admission leaves exactly the reserve; decoding may use it up;
 * an idle engine ignores it. */
static void
e7_reserve(void **state)
{
    (void)state;
    /* the number in the parameter document: 1 - 0.75 of 17220 blocks */
    assert_int_equal((int32_t)(17220 * 0.75), 12915);
    for (int32_t more = 0; more <= 1; more++) {
        struct fx_cfg c = { .block_size = 16,
            .n_block = 40,
            .sch = { .max_seqs = 8,
                .max_tokens = 4096,
                .max_scores = 1,
                .chunked = 1,
                .reserve_blocks = 10 } };
        struct fx *f = fx_new(&c);
        struct req *a = fx_plain(f, 20 * 16 - 8, 300), *b;
        int32_t low = 40;

        (void)fx_step(f);
        /* 20 blocks are left: an admission may take ten, not eleven */
        b = fx_plain(f, 10 * 16 - 8 + more * 16, 120);
        f->keep = 1;
        (void)fx_step(f);
        if (more) {
            assert_int_equal(b->seqs[0].state, REQ_ST_WAITING);
            assert_int_equal(kv_available(f->kv), 20);
        } else {
            assert_int_equal(b->seqs[0].state, REQ_ST_RUNNING);
            assert_int_equal(kv_available(f->kv), 10);
        }
        while (sch_busy(f->sch)) {
            (void)fx_step(f);
            if (kv_available(f->kv) < low)
                low = kv_available(f->kv);
        }
        assert_true(more || low < 10);
        (void)a;
        fx_free(f);
    }
}

/* Blocks that running sequences are about to need are not given to others, and a
 * preempted one is not resumed if that takes the last block. */
static void
e7_nobody_is_admitted_into_a_shortage(void **state)
{
    (void)state;
    for (int32_t left = 0; left <= 1; left++) {
        struct fx_cfg c = { .block_size = 16,
            .n_block = 40,
            .sch = { .max_seqs = 8, .max_tokens = 4096, .max_scores = 1, .chunked = 1 } };
        struct fx *f = fx_new(&c);
        struct req *b;

        f->keep = 1;
        /* the token it samples in the next step needs the 21st block */
        (void)fx_plain(f, 20 * 16 - 1, 8);
        (void)fx_step(f);
        b = fx_plain(f, (20 - left) * 16 - 8, 4);
        (void)sch_pick(f->sch, f->now, &f->st);
        assert_int_equal(b->seqs[0].state, left ? REQ_ST_RUNNING : REQ_ST_WAITING);
        for (int i = 0; i < 2; i++)
            if (f->reqs[i].r != NULL)
                fx_cancel(f, f->reqs[i].r);
        sch_collected(f->sch, f->st.epoch);
        f->done = f->sch->epoch;
        fx_drain(f, 10);
        while (sch_take_ended(f->sch) != NULL)
            continue;
        fx_free(f);
    }
    for (int32_t left = 0; left <= 1; left++) {
        struct fx_cfg c = { .block_size = 16,
            .n_block = 40,
            .sch = { .max_seqs = 8, .max_tokens = 4096, .max_scores = 1, .chunked = 1 } };
        struct fx *f = fx_new(&c);
        struct req *b;

        f->keep = 1;
        (void)fx_plain(f, 20 * 16 - 8, 30);
        b = fx_plain(f, (20 - left) * 16 - 8, 4);
        (void)fx_step(f);
        assert_int_equal(b->seqs[0].state, REQ_ST_RUNNING);
        sch_preempt(f->sch, &b->seqs[0]);
        (void)fx_step(f);
        assert_int_equal(b->seqs[0].state, left ? REQ_ST_RUNNING : REQ_ST_WAITING);
        fx_drain(f, 100);
        fx_free(f);
    }
}

static void
e7_idle_engine_admits_what_fits(void **state)
{
    struct fx_cfg c = { .block_size = 16,
        .n_block = 40,
        .sch = { .max_seqs = 8,
            .max_tokens = 4096,
            .max_scores = 1,
            .chunked = 1,
            .reserve_blocks = 39,
            .decode_blocks = 30 } };
    struct fx *f = fx_new(&c);
    struct req *a = fx_plain(f, 639, 1), *b = fx_plain(f, 4, 4);

    (void)state;
    f->keep = 1;
    assert_int_equal(fx_step(f), 1);
    assert_int_equal(a->n_live, 0);
    assert_int_equal(b->seqs[0].state, REQ_ST_WAITING);
    fx_drain(f, 10);
    fx_free(f);
}

static void
penalty_pool_blocks_only_its_own(void **state)
{
    struct fx_cfg c = roomy;
    struct fx *f;
    struct req *r[3], *plain;

    (void)state;
    c.sch.n_penalty = 2;
    c.depth = 2;
    f = fx_new(&c);
    f->keep = 1;
    for (int i = 0; i < 3; i++)
        r[i] = fx_add(f, &(struct fx_ask){ .n_prompt = 4, .max_new = 5, .penalized = 1 });
    plain = fx_plain(f, 4, 20);
    assert_int_equal(fx_step(f), 3);
    assert_true(r[0]->seqs[0].penalty >= 0 && r[1]->seqs[0].penalty >= 0);
    assert_true(r[0]->seqs[0].penalty != r[1]->seqs[0].penalty);
    assert_int_equal(r[2]->seqs[0].state, REQ_ST_WAITING);
    assert_int_equal(plain->seqs[0].penalty, -1);
    while (r[2]->t_start_ns == 0)
        (void)fx_step(f);
    /* not before one sequence was collected for the last time */
    assert_int_equal(r[0]->n_live, 0);
    fx_drain(f, 40);
    fx_free(f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompt_is_chunked_and_decode_goes_first),
        cmocka_unit_test(step_cost_counts_tokens_context_and_pairs),
        cmocka_unit_test(priority_then_arrival),
        cmocka_unit_test(many_priorities_stay_sorted),
        cmocka_unit_test(last_in_gives_way_and_loses_nothing),
        cmocka_unit_test(as_many_give_way_as_are_short),
        cmocka_unit_test(prompt_logprobs_fit_their_budget_and_come_once),
        cmocka_unit_test(samples_and_cancel),
        cmocka_unit_test(deadlines_whatever_the_state),
        cmocka_unit_test(deadline_after_the_end),
        cmocka_unit_test(deadlines_by_the_wheel),
        cmocka_unit_test(rows_in_flight_leave_late),
        cmocka_unit_test(end_while_giving_way),
        cmocka_unit_test(d5_block_boundaries),
        cmocka_unit_test(e7_reserve),
        cmocka_unit_test(e7_nobody_is_admitted_into_a_shortage),
        cmocka_unit_test(e7_idle_engine_admits_what_fits),
        cmocka_unit_test(e8_decode_blocks),
        cmocka_unit_test(penalty_pool_blocks_only_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
