/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* How copies divide a step: each token of a divided prompt is computed by one copy, rows
 * that are not divided by all copies, and each output by one. */
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
#include "daemon/worker/cost.h"

enum { T_MAX = 5000, S_MAX = 6, STRIDE = 400, BLOCK = 16, GROUPS = 2, DECODE = 3 };

/* Shards cover all tokens in their order; sizes differ by one at most. */
static void
t_shards(void **state)
{
    (void)state;
    for (int32_t P = 1; P <= 8; P++)
        for (int32_t len = 0; len <= 32768; len = len < 130 ? len + 1 : 2 * len + 1) {
            int32_t n = 2 * P, least = INT32_MAX, most = 0, sum = 0;

            assert_int_equal(bat_shard(len, 0, n), 0);
            assert_int_equal(bat_shard(len, n, n), len);
            for (int32_t s = 0; s < n; s++) {
                int32_t size = bat_shard(len, s + 1, n) - bat_shard(len, s, n);

                least = size < least ? size : least;
                most = size > most ? size : most;
            }
            assert_true(least >= 0 && most - least <= 1);
            /* the last token is copy 0's */
            assert_true(len == 0 || bat_shard(len, n - 1, n) < len);
            assert_int_equal(bat_shard_of(0, 1, P), n - 1);
            for (int32_t p = 0; p < P; p++) {
                assert_int_equal(bat_shard_of(p, 0, P) + bat_shard_of(p, 1, P), n - 1);
                sum += bat_share(len, p, P);
            }
            assert_int_equal(sum, len);
        }
}

/* Intermediate results do not overflow 32 bits. */
static void
t_long(void **state)
{
    (void)state;
    assert_int_equal(bat_shard(2000000000, 15, 16), 1875000000);
}

/* ---- plans ------------------------------------------------------------------------------ */

struct fix {
    struct bat_dims d;
    struct bat *bat;
    struct bat_rec rec;
    int32_t *table;
};

static struct fix *
fix_new(int32_t P, int32_t min_split)
{
    struct fix *f = mem_zalloc(sizeof(*f));
    size_t n = (size_t)GROUPS * (DECODE + 1) * STRIDE;

    f->d = (struct bat_dims){ .T = T_MAX,
        .S = S_MAX,
        .O = S_MAX + 8,
        .stride = STRIDE,
        .block_size = BLOCK,
        .n_group = GROUPS,
        .n_copy = P,
        .min_split = min_split };
    f->bat = bat_new(&f->d);
    f->bat->vocab = 1000;
    f->rec.plan = mem_aligned(256, bat_plan_bytes(&f->d));
    f->rec.outs = mem_array((size_t)f->d.O, sizeof(*f->rec.outs));
    f->rec.table = mem_array((size_t)(S_MAX * GROUPS), sizeof(*f->rec.table));
    f->rec.split = mem_array(S_MAX, 1);
    f->rec.copy = mem_array((size_t)P, sizeof(*f->rec.copy));
    f->table = mem_array(n, sizeof(*f->table));
    for (int32_t p = 0; p < P; p++) {
        f->rec.copy[p].plan = mem_aligned(256, bat_plan_bytes(&f->d));
        memset(f->rec.copy[p].plan, 0x5a, bat_plan_bytes(&f->d));
    }
    for (size_t i = 0; i < n; i++)
        f->table[i] = (int32_t)i + 1;
    return f;
}

static void
fix_free(struct fix *f)
{
    for (int32_t p = 0; p < f->d.n_copy; p++)
        free(f->rec.copy[p].plan);
    free(f->rec.copy);
    free(f->rec.split);
    free(f->rec.table);
    free(f->rec.outs);
    free(f->rec.plan);
    free(f->table);
    bat_free(f->bat);
    free(f);
}

struct view {
    struct fdk_batch b[GROUPS];
    const int32_t *counts, *out_at;
};

static struct view
view(const struct fix *f, int32_t T_pad, const struct bat_layout *l, unsigned char *plan)
{
    struct view v;

    for (int32_t g = 0; g < GROUPS; g++)
        bat_view(&f->d, T_pad, plan, g, NULL, &v.b[g]);
    v.counts = (const int32_t *)(plan + l->counts);
    v.out_at = (const int32_t *)(plan + l->out_at);
    return v;
}

/* Token t of a copy is token `of` of the step, at position pos. */
static void
same_token(const struct view *c, int32_t t, const struct view *all, int32_t of, int32_t pos)
{
    assert_int_equal(c->b[0].pos[t], pos);
    assert_int_equal(c->b[0].ids[t], all->b[0].ids[of]);
    for (int32_t g = 0; g < GROUPS; g++)
        assert_int_equal(c->b[g].slot_map[t], all->b[g].slot_map[of]);
}

/* Checks a prompt of len tokens after decoding rows. seen: number of copies that
 * compute each of its tokens. */
static void
check_copy(struct fix *f, int32_t p, int32_t len, int32_t *seen)
{
    const struct bat_copy *c = &f->rec.copy[p];
    struct view v, all = view(f, f->rec.T_pad, &f->rec.layout, f->rec.plan);
    int32_t n_row;

    bat_copy_fill(&f->d, &f->rec, p);
    v = view(f, f->rec.copy_pad, &c->layout, c->plan);
    n_row = *v.b[0].n_row;
    assert_int_equal(*v.b[0].n_tok, DECODE + bat_share(len, p, f->d.n_copy));
    assert_true(*v.b[0].n_tok <= f->rec.copy_pad && n_row <= v.b[0].max_row);
    assert_int_equal(v.counts[BAT_SHARE], DECODE);
    assert_int_equal(v.counts[BAT_SHARE_END], *v.b[0].n_tok);
    assert_int_equal(v.counts[BAT_N_UPDATE], f->rec.n_update);
    for (int32_t r = 0; r < n_row; r++) {
        int32_t first = v.b[0].q_start[r], end = v.b[0].q_start[r + 1];

        assert_true(end > first);
        assert_int_equal(v.b[0].state[r], r < DECODE ? r : DECODE);
        /* a row's queries are the last of the tokens that it attends to */
        for (int32_t t = first; t < end; t++) {
            int32_t pos = v.b[0].kv_len[r] - (end - t);

            assert_int_equal(v.b[0].row[t], r);
            same_token(&v, t, &all, r < DECODE ? t : DECODE + pos, pos);
            if (r >= DECODE)
                seen[pos]++;
        }
    }
    for (int32_t t = *v.b[0].n_tok; t < f->rec.copy_pad; t++)
        assert_true(v.b[1].slot_map[t] < BLOCK); /* in the dummy block */
    assert_int_equal(*v.b[0].n_out, p == 0 ? DECODE + 1 : 0);
    for (int32_t o = 0; o < *v.b[0].n_out; o++) {
        assert_int_equal(v.out_at[o], o);
        assert_int_equal(v.b[0].out[o].tok,
            o < DECODE ? o : *v.b[0].n_tok - 1); /* the prompt's last token */
        assert_int_equal(v.b[0].out[o].row, o < DECODE ? o : n_row - 1);
    }
    /* rows that are new on the device follow the head, as in the step's own plan */
    assert_memory_equal(c->plan + c->upd.rows, f->rec.plan + f->rec.upd.rows,
        (size_t)f->rec.n_update * sizeof(struct fdk_row));
    assert_memory_equal(c->plan + c->upd.idx, f->rec.plan + f->rec.upd.idx,
        (size_t)f->rec.n_update * sizeof(int32_t));
}

static void
t_plans(void **state)
{
    static int32_t seen[T_MAX];

    (void)state;
    for (int32_t P = 2; P <= 8; P++)
        for (int32_t len = 1; len < T_MAX - DECODE; len = len < 40 ? len + 1 : 3 * len) {
            struct fix *f = fix_new(P, 1);
            const struct bat_synth m = { .n_decode = DECODE,
                .context = 77,
                .n_prefill = len,
                .table = f->table,
                .own = f->table };

            memset(seen, 0, sizeof(seen));
            bat_make(f->bat, &m, 1, &f->rec);
            assert_int_equal(f->rec.n_split, 1);
            assert_true(!f->rec.split[0] && f->rec.split[DECODE]);
            for (int32_t p = 0; p < P; p++)
                check_copy(f, p, len, seen);
            for (int32_t i = 0; i < len; i++)
                assert_int_equal(seen[i], 1);
            fix_free(f);
        }
}

/* Prompts below the limit are not divided, and with one copy none is. */
static void
t_least(void **state)
{
    static const struct {
        int32_t P, least, len, n_split;
    } t[] = { { 2, 64, 63, 0 }, { 2, 64, 64, 1 }, { 2, INT32_MAX, 4000, 0 },
        { 1, 1, 64, 0 } };

    (void)state;
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        struct fix *f = fix_new(t[i].P, 16);
        const struct bat_synth m = { .n_decode = DECODE,
            .context = 1,
            .n_prefill = t[i].len,
            .table = f->table,
            .own = f->table };

        f->bat->min_split = t[i].least;
        bat_make(f->bat, &m, 0, &f->rec);
        assert_int_equal(f->rec.n_split, t[i].n_split);
        assert_int_equal(f->rec.T_pad, DECODE + t[i].len);
        fix_free(f);
    }
}

/* There is room for two rows for each divided prompt. */
static void
t_rows(void **state)
{
    struct bat_dims d = { .T = 1000, .S = 100, .O = 100, .stride = 4, .block_size = 16 };

    (void)state;
    assert_int_equal(bat_pad_rows(&d, 1000), 100);
    d.n_copy = 2;
    d.min_split = 64;
    assert_int_equal(bat_pad_rows(&d, 1000), 115);
    d.min_split = 1;
    assert_int_equal(bat_pad_rows(&d, 1000), 200);
    assert_int_equal(bat_pad_rows(&d, 7), 7);
}

/* The cost of a divided prompt is that of the tokens one copy computes. */
static void
t_cost(void **state)
{
    struct cost_step s = { .n_tok = 5, .n_pair = 7 };

    (void)state;
    cost_add_prompt(&s, 100, 5050, 1);
    assert_true(s.n_tok == 105 && s.n_pair == 5057);
    cost_add_prompt(&s, 101, 900, 4);
    assert_true(s.n_tok == 131 && s.n_pair == 5282);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_shards),
        cmocka_unit_test(t_long),
        cmocka_unit_test(t_plans),
        cmocka_unit_test(t_least),
        cmocka_unit_test(t_rows),
        cmocka_unit_test(t_cost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
