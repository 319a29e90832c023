/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The arrays of a step: padding, ids from the row's state, block tables by delta,
 * outputs, and the bounds of the layout. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/worker/batch.h"
#include "daemon/worker/sampler.h"
#include "daemon/worker/scheduler_priv.h"

#define S_MAX 4
#define T_MAX 40
#define V_MAX 2000

struct fix {
    struct req_pool rp;
    struct kv *kv;
    struct sch *sch;
    struct sch_step st;
    struct bat *bat;
    struct cap cap;
    uint16_t *counts;
    struct bat_rec rec;
    struct fdk_batch v;
    const struct fdk_delta *delta;
};

static struct fix *
fix_new(void)
{
    struct sch_cfg cfg = { .max_seqs = S_MAX,
        .max_tokens = T_MAX,
        .max_scores = 8,
        .chunked = 1,
        .n_penalty = 2 };
    struct kv_cfg kc = { .n_block = 32, .block_size = 16, .n_slot = S_MAX, .max_len = 128 };
    struct bat_dims d = { .T = T_MAX,
        .S = S_MAX,
        .O = S_MAX + 8,
        .stride = 8,
        .block_size = 16 };
    struct fix *f = mem_zalloc(sizeof(*f));

    assert_int_equal(req_pool_init(&f->rp, 8), 0);
    f->kv = kv_new(&kc);
    f->sch = sch_new(&cfg, f->kv);
    assert_int_equal(sch_step_init(&f->st, S_MAX), 0);
    f->bat = bat_new(&d);
    cap_default(T_MAX, &f->cap);
    f->bat->cap = &f->cap;
    f->counts = mem_array(2 * V_MAX, sizeof(*f->counts));
    f->bat->counts = f->counts;
    f->bat->vocab = V_MAX;
    f->rec.plan = mem_aligned(256, bat_plan_bytes(&d));
    f->rec.outs = mem_array((size_t)d.O, sizeof(*f->rec.outs));
    f->rec.entry = mem_array((size_t)d.S, sizeof(*f->rec.entry));
    memset(f->rec.plan, 0x5a, bat_plan_bytes(&d));
    return f;
}

static void
fix_free(struct fix *f)
{
    free(f->rec.plan);
    free(f->rec.outs);
    free(f->rec.entry);
    free(f->counts);
    bat_free(f->bat);
    sch_step_fini(&f->st);
    sch_free(f->sch);
    kv_free(f->kv);
    req_pool_fini(&f->rp);
    free(f);
}

static struct req *
add_as(struct fix *f, int32_t n_prompt, unsigned set, int32_t penalized)
{
    struct req *r = req_get(&f->rp, f->rp.order + 50);

    r->where = REQ_IN_ENGINE;
    r->n_prompt = r->n_ids = n_prompt;
    r->max_len = 100;
    r->n_seq = 1;
    r->p.set = set;
    r->p.logprobs = 4;
    r->p.prompt_logprobs = 2;
    r->p.seed = 42;
    r->p.temperature = 0.5f;
    r->penalized = penalized;
    r->ids = mem_array((size_t)n_prompt, 4);
    for (int32_t i = 0; i < n_prompt; i++)
        r->ids[i] = (uint32_t)(1000 + i);
    assert_int_equal(req_make_seqs(r), 0);
    sch_add(f->sch, r);
    return r;
}

static struct req *
add(struct fix *f, int32_t n_prompt, unsigned set)
{
    return add_as(f, n_prompt, set, 0);
}

static void
step(struct fix *f)
{
    assert_true(sch_pick(f->sch, 1, &f->st) > 0);
    bat_fill(f->bat, &f->st, f->kv, &f->rec);
    bat_view(&f->bat->dims, f->rec.T_pad, f->rec.plan, 0, NULL, &f->v);
    f->delta = (const struct fdk_delta *)(f->rec.plan + f->rec.upd.delta);
    sch_collected(f->sch, f->st.epoch);
    for (int32_t i = 0; i < f->st.n_row; i++)
        if (f->st.rows[i].sample)
            sch_append(f->sch, f->st.rows[i].seq, 7, 0);
}

/* For every padded size: arrays are in order, do not overlap, have no byte more than the
 * step needs, and are followed by the updates. */
static void
layout_does_not_overlap(void **state)
{
    struct bat_dims d = { .T = 300, .S = 17, .O = 25, .stride = 3, .block_size = 16 };
    size_t last = 0;

    (void)state;
    for (int32_t T = 1; T <= d.T; T++) {
        size_t S = (size_t)(T < 17 ? T : 17), O = (size_t)(T < 25 ? T : 25);
        struct bat_layout l;

        bat_layout(&d, T, &l);
        assert_int_equal(bat_pad_rows(&d, T), S);
        assert_int_equal(bat_pad_outs(&d, T), O);
        assert_true(l.q_start >= l.counts + BAT_N_COUNT * 4);
        assert_true(l.kv_len >= l.q_start + 4 * (S + 1) && l.state >= l.kv_len + 4 * S);
        assert_true(l.out >= l.state + 4 * S && l.out % 64 == 0);
        assert_true(l.ids >= l.out + O * sizeof(struct fdk_out));
        assert_true(l.pos >= l.ids + 4 * (size_t)T && l.slot_map >= l.pos + 4 * (size_t)T);
        assert_true(
            l.row >= l.slot_map + 4 * (size_t)T && l.bytes >= l.row + 4 * (size_t)T);
        assert_true(l.bytes >= last && l.bytes <= bat_plan_bytes(&d));
        last = l.bytes;
    }
    assert_true(bat_plan_bytes(&d) >=
        last + 17 * (4 + sizeof(struct fdk_row)) + 17 * 3 * sizeof(struct fdk_delta));
}

/* Without a list of sizes, or above the largest, a step is not padded. */
static void
padding_follows_the_list(void **state)
{
    struct fix *f = fix_new();
    char err[256];

    (void)state;
    assert_int_equal(cap_parse("4,24", T_MAX, &f->cap, err, sizeof(err)), 0);
    (void)add(f, 23, 0);
    step(f);
    assert_true(f->rec.T_pad == 24 && f->rec.graph == 1);
    step(f);
    assert_true(f->rec.T_pad == 4 && f->rec.graph == 1);
    (void)add(f, 30, 0);
    step(f);
    assert_true(f->rec.n_tok == 31 && f->rec.T_pad == 31 && f->rec.graph == 0);
    f->bat->cap = NULL;
    step(f);
    assert_true(f->rec.n_tok == 2 && f->rec.T_pad == 2 && f->rec.graph == 0);
    fix_free(f);
}

/* Checks that the step sends entries first .. first + n - 1 of the block table. */
static void
expect_deltas(const struct fix *f, const struct seq *s, int32_t first, int32_t n)
{
    assert_int_equal(f->rec.n_delta, n);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(f->delta[i].at, s->slot * 8 + first + i);
        assert_int_equal(f->delta[i].block, f->kv->table[s->slot * 8 + first + i]);
    }
}

static void
prefill_then_decode(void **state)
{
    struct fix *f = fix_new();
    struct req *r = add(f, 20, FDP_S_LOGPROBS);
    struct fdk_row *row;

    (void)state;
    step(f);
    assert_int_equal(*f->v.n_tok, 20);
    assert_int_equal(*f->v.n_row, 1);
    assert_int_equal(*f->v.n_out, 1);
    assert_int_equal(f->rec.T_pad, 24);
    for (int32_t t = 0; t < 20; t++) {
        assert_int_equal(f->v.ids[t], 1000 + t);
        assert_int_equal(f->v.pos[t], t);
        assert_int_equal(f->v.row[t], 0);
        assert_int_equal(f->v.slot_map[t],
            f->kv->table[r->seqs[0].slot * 8 + t / 16] * 16 + t % 16);
    }
    /* padding goes to the dummy block */
    for (int32_t t = 20; t < 24; t++)
        assert_true(f->v.slot_map[t] < 16 && f->v.ids[t] == 0);
    assert_int_equal(f->v.q_start[1], 20);
    assert_int_equal(f->v.kv_len[0], 20);
    assert_int_equal(f->v.kv_len[1], 0);
    assert_int_equal(f->v.state[1], S_MAX);
    assert_int_equal(f->v.out[0].tok, 19);
    assert_int_equal(f->v.out[0].pos, 20);
    assert_int_equal(f->v.out[0].n_top, 4);
    assert_int_equal(f->rec.n_update, 1);
    row = (struct fdk_row *)(f->rec.plan + f->rec.upd.rows);
    assert_int_equal(row->len, 20);
    assert_int_equal(row->max_len, 100);
    assert_int_equal(row->last_token, 1019);
    assert_int_equal(row->generation, r->seqs[0].generation);
    assert_true(row->seed == 42 && row->temperature == 0.5f && row->penalty == -1);
    expect_deltas(f, &r->seqs[0], 0, 2);

    step(f);
    /* the sampled token is taken from the row's state; nothing to update */
    assert_int_equal(f->rec.T_pad, 1);
    assert_int_equal(f->v.ids[0], -1);
    assert_int_equal(f->v.pos[0], 20);
    assert_int_equal(f->v.kv_len[0], 21);
    assert_int_equal(f->rec.n_update, 0);
    assert_int_equal(f->rec.n_delta, 0);
    assert_int_equal(f->rec.upd.bytes, f->rec.layout.bytes);
    for (int i = 0; i < 12; i++)
        step(f);
    /* 33 tokens: a third block, and only that is sent */
    assert_int_equal(f->v.kv_len[0], 33);
    expect_deltas(f, &r->seqs[0], 2, 1);
    fix_free(f);
}

static void
recomputed_output_comes_from_the_host(void **state)
{
    struct fix *f = fix_new();
    struct req *r = add(f, 10, 0);
    struct seq *s = &r->seqs[0];
    const struct fdk_row *row;

    (void)state;
    r->p.temperature = 1e-33f; /* its inverse is no fp32 number */
    for (int i = 0; i < 6; i++)
        step(f);
    assert_int_equal(s->n_tok, 16);
    /* preempt it; the next step admits it again */
    sch_preempt(f->sch, s);
    assert_true(s->state == REQ_ST_WAITING && s->slot < 0);
    step(f);
    assert_int_equal(*f->v.n_tok, 16);
    for (int32_t t = 0; t < 16; t++)
        assert_int_equal(f->v.ids[t], t < 10 ? 1000 + t : 7);
    assert_int_equal(f->rec.n_update, 1);
    row = (const struct fdk_row *)(f->rec.plan + f->rec.upd.rows);
    assert_true(row->temperature == 1e-30f);
    step(f);
    assert_int_equal(f->v.ids[0], -1);
    fix_free(f);
}

/* The next owner of a slot sends its whole table, whatever the last owner sent. */
static void
table_of_a_reused_slot_goes_up_whole(void **state)
{
    struct fix *f = fix_new();
    struct req *a = add(f, 40, 0), *b;
    int32_t slot;

    (void)state;
    step(f);
    slot = a->seqs[0].slot;
    expect_deltas(f, &a->seqs[0], 0, 3);
    sch_end(f->sch, &a->seqs[0]);
    b = add(f, 17, 0);
    step(f);
    assert_int_equal(b->seqs[0].slot, slot);
    expect_deltas(f, &b->seqs[0], 0, 2);
    fix_free(f);
}

/* Prompt ids are marked, output ids counted, and a pool entry starts afresh
 * with each owner. */
static void
penalty_counts(void **state)
{
    struct fix *f = fix_new();
    struct req *a = add_as(f, 4, 0, 1), *b;
    uint16_t *c = f->counts;

    (void)state;
    step(f);
    assert_int_equal(f->rec.n_entry, 1);
    c += a->seqs[0].penalty * V_MAX;
    assert_true(f->rec.entry[0].at == a->seqs[0].penalty && f->rec.entry[0].counts);
    for (int32_t i = 0; i < V_MAX; i++)
        assert_int_equal(c[i], i >= 1000 && i < 1004 ? 0x8000 : 0);
    step(f);
    assert_int_equal(f->rec.n_entry, 0);
    /* two tokens more, then preempted and resumed: the host counts them */
    sch_preempt(f->sch, &a->seqs[0]);
    step(f);
    assert_int_equal(f->rec.n_entry, 1);
    c = f->counts + a->seqs[0].penalty * V_MAX;
    assert_int_equal(c[7], 2);
    assert_int_equal(c[1000], 0x8000);
    sch_end(f->sch, &a->seqs[0]);
    b = add_as(f, 2, 0, 1);
    step(f);
    c = f->counts + b->seqs[0].penalty * V_MAX;
    for (int32_t i = 0; i < V_MAX; i++)
        assert_int_equal(c[i], i >= 1000 && i < 1002 ? 0x8000 : 0);
    fix_free(f);
}

static void
scores_and_company(void **state)
{
    struct fix *f = fix_new();
    struct req *a = add(f, 6, FDP_S_PROMPT_LOGPROBS),
               *b = add(f, 30, FDP_S_PROMPT_LOGPROBS);

    (void)state;
    step(f);
    /* five scores and a sample of a; three scores of b, the rest of the budget */
    assert_int_equal(*f->v.n_row, 2);
    assert_int_equal(*f->v.n_out, 9);
    for (int32_t o = 0; o < 5; o++) {
        assert_int_equal(f->v.out[o].kind, FDK_OUT_SCORE);
        assert_int_equal(f->v.out[o].target, 1001 + o);
        assert_int_equal(f->v.out[o].pos, 1 + o);
        assert_int_equal(f->v.out[o].tok, o);
        assert_int_equal(f->v.out[o].n_top, 2);
    }
    assert_int_equal(f->v.out[5].kind, FDK_OUT_SAMPLE);
    assert_int_equal(f->v.out[5].n_top, -1);
    assert_int_equal(f->v.out[6].tok, 6);
    assert_int_equal(f->v.out[6].row, 1);
    assert_int_equal(f->rec.outs[6].kind, BAT_OUT_SCORE);
    assert_int_equal(f->rec.outs[6].slot, b->seqs[0].slot);
    assert_int_equal(f->v.row[5], 0);
    assert_int_equal(f->v.row[6], 1);
    assert_int_equal(f->v.q_start[1], 6);
    (void)a;
    fix_free(f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_does_not_overlap),
        cmocka_unit_test(padding_follows_the_list),
        cmocka_unit_test(prefill_then_decode),
        cmocka_unit_test(recomputed_output_comes_from_the_host),
        cmocka_unit_test(table_of_a_reused_slot_goes_up_whole),
        cmocka_unit_test(penalty_counts),
        cmocka_unit_test(scores_and_company),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
