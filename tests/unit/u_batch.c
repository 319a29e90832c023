/* Steps as arrays: padding, ids from the row's state, tables by delta,
 * outputs, and the layout's bounds. */
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

#define S_MAX 4
#define T_MAX 40

struct fix {
    struct req_pool rp;
    struct kv *kv;
    struct sch *sch;
    struct sch_step st;
    struct bat *bat;
    struct bat_rec rec;
    struct fdk_batch v;
};

static struct fix *
fix_new(void)
{
    struct sch_cfg cfg = { S_MAX, T_MAX, 8, 1 };
    struct bat_dims d = { .T = T_MAX, .S = S_MAX, .O = S_MAX + 8, .stride = 8,
        .block_size = 16 };
    struct fix *f = mem_zalloc(sizeof(*f));

    assert_int_equal(req_pool_init(&f->rp, 8), 0);
    f->kv = kv_new(32, 16, S_MAX, 128);
    f->sch = sch_new(&cfg, f->kv);
    assert_int_equal(sch_step_init(&f->st, S_MAX), 0);
    f->bat = bat_new(&d);
    f->rec.plan = mem_aligned(256, f->bat->layout.bytes);
    f->rec.outs = mem_array((size_t)d.O, sizeof(*f->rec.outs));
    bat_view(&d, &f->bat->layout, f->rec.plan, &f->v);
    return f;
}

static void
fix_free(struct fix *f)
{
    free(f->rec.plan);
    free(f->rec.outs);
    bat_free(f->bat);
    sch_step_fini(&f->st);
    sch_free(f->sch);
    kv_free(f->kv);
    req_pool_fini(&f->rp);
    free(f);
}

static struct req *
add(struct fix *f, int32_t n_prompt, unsigned flags)
{
    struct req *r = req_get(&f->rp, f->rp.order + 50);

    r->where = REQ_IN_ENGINE;
    r->n_prompt = r->n_ids = n_prompt;
    r->max_len = 100;
    r->n_seq = 1;
    r->p.flags = flags;
    r->p.logprobs = 4;
    r->p.prompt_logprobs = 2;
    r->p.seed = 42;
    r->p.temperature = 0.5f;
    r->ids = mem_array((size_t)n_prompt, 4);
    for (int32_t i = 0; i < n_prompt; i++)
        r->ids[i] = (uint32_t)(1000 + i);
    assert_int_equal(req_make_seqs(r), 0);
    sch_add(f->sch, r);
    return r;
}

static void
step(struct fix *f)
{
    assert_true(sch_pick(f->sch, 1, &f->st) > 0);
    bat_fill(f->bat, &f->st, f->kv, &f->rec);
    sch_collected(f->sch, f->st.epoch);
    for (int32_t i = 0; i < f->st.n_row; i++)
        if (f->st.rows[i].sample)
            sch_append(f->sch, f->st.rows[i].seq, 7, 0);
}

static void
pad_list(void **state)
{
    static const int32_t want[][2] = { { 1, 1 }, { 2, 2 }, { 3, 4 }, { 4, 4 }, { 5, 8 },
        { 9, 16 }, { 128, 128 }, { 129, 144 }, { 256, 256 }, { 257, 288 }, { 289, 320 },
        { 1000, 1024 }, { 1025, 2048 }, { 2049, 3000 }, { 3000, 3000 } };
    int32_t last = 0, n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        assert_int_equal(bat_pad(want[i][0], 3000), want[i][1]);
    assert_int_equal(bat_pad(3, 3), 3);
    /* 35 sizes up to 512, as counted by hand */
    for (int32_t t = 1; t <= 512; t++) {
        int32_t p = bat_pad(t, 2048);

        assert_true(p >= t && p >= last && bat_pad(p, 2048) == p);
        n += p != last;
        last = p;
    }
    assert_int_equal(n, 35);
}

static void
layout_does_not_overlap(void **state)
{
    struct bat_dims d = { .T = 7, .S = 3, .O = 5, .stride = 2, .block_size = 16 };
    struct bat_layout l;

    (void)state;
    bat_layout(&d, &l);
    assert_true(l.q_start >= l.counts + 16 && l.kv_len >= l.q_start + 16);
    assert_true(l.state >= l.kv_len + 12 && l.out >= l.state + 12);
    assert_true(l.ids >= l.out + 5 * sizeof(struct fdk_out) && l.pos >= l.ids + 28);
    assert_true(l.slot_map >= l.pos + 28 && l.row >= l.slot_map + 28);
    assert_true(l.upd_idx >= l.row + 28 && l.upd_rows >= l.upd_idx + 12);
    assert_true(l.table >= l.upd_rows + 3 * sizeof(struct fdk_row));
    assert_true(l.bytes >= l.table + 24);
}

static void
prefill_then_decode(void **state)
{
    struct fix *f = fix_new();
    struct req *r = add(f, 20, FDP_F_LOGPROBS);
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
        assert_int_equal(f->v.slot_map[t], f->kv->table[r->seqs[0].slot * 8 + t / 16] * 16 +
            t % 16);
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
    row = (struct fdk_row *)(f->rec.plan + f->bat->layout.upd_rows);
    assert_int_equal(row->len, 20);
    assert_int_equal(row->max_len, 100);
    assert_int_equal(row->last_token, 1019);
    assert_int_equal(row->generation, r->seqs[0].generation);
    assert_true(row->seed == 42 && row->temperature == 0.5f && row->penalty == -1);
    assert_true(f->rec.table_lo == 0 && f->rec.table_hi == 1);

    step(f);
    /* the sampled token is taken from the row's state; nothing to update */
    assert_int_equal(f->rec.T_pad, 1);
    assert_int_equal(f->v.ids[0], -1);
    assert_int_equal(f->v.pos[0], 20);
    assert_int_equal(f->v.kv_len[0], 21);
    assert_int_equal(f->rec.n_update, 0);
    assert_true(f->rec.table_hi <= f->rec.table_lo);
    for (int i = 0; i < 12; i++)
        step(f);
    /* 33 tokens: a third block, so its table goes up again */
    assert_int_equal(f->v.kv_len[0], 33);
    assert_int_equal(f->rec.table_hi, 1);
    fix_free(f);
}

static void
recomputed_output_comes_from_the_host(void **state)
{
    struct fix *f = fix_new();
    struct req *r = add(f, 10, 0);
    struct seq *s = &r->seqs[0];

    (void)state;
    for (int i = 0; i < 6; i++)
        step(f);
    assert_int_equal(s->n_tok, 16);
    /* give its row away and back, as preemption does */
    kv_drop(f->kv, s->slot, 0);
    assert_int_equal(kv_grow(f->kv, s->slot, 16), 0);
    s->cached_len = 0;
    s->fresh = 1;
    step(f);
    assert_int_equal(*f->v.n_tok, 16);
    for (int32_t t = 0; t < 16; t++)
        assert_int_equal(f->v.ids[t], t < 10 ? 1000 + t : 7);
    assert_int_equal(f->rec.n_update, 1);
    step(f);
    assert_int_equal(f->v.ids[0], -1);
    fix_free(f);
}

static void
scores_and_company(void **state)
{
    struct fix *f = fix_new();
    struct req *a = add(f, 6, FDP_F_PROMPT_LOGPROBS), *b = add(f, 30, FDP_F_PROMPT_LOGPROBS);

    (void)state;
    step(f);
    /* five scores and a sample of a; three scores of b, the budget's rest */
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
        cmocka_unit_test(pad_list),
        cmocka_unit_test(layout_does_not_overlap),
        cmocka_unit_test(prefill_then_decode),
        cmocka_unit_test(recomputed_output_comes_from_the_host),
        cmocka_unit_test(scores_and_company),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
