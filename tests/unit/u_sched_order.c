/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Order of prompts: less remaining work first, within a user and between
 * users, for a limited time. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "tests/unit/sched_fixture.h"

/* Steps take 1 ms; a request may be overtaken for 100 ms. */
static const struct fx_cfg order = { .block_size = 16,
    .n_block = 2000,
    .max_req = 128,
    .max_len = 20000,
    .sch = { .max_seqs = 32,
        .max_tokens = 256,
        .max_scores = 4,
        .chunked = 1,
        .max_partial = 1,
        .max_overtake_ns = 100000000 } };

static struct req *
ask(struct fx *f, uint64_t user, int32_t n_prompt, int32_t priority)
{
    struct req *r = fx_add(f,
        &(struct fx_ask){ .n_prompt = n_prompt,
            .max_new = 2,
            .text = 1000 + f->id,
            .user = user,
            .priority = priority });

    r->user = user;
    return r;
}

/* Requests that end make room for others. */
static void
sweep(struct fx *f, const struct req *but)
{
    for (int k = 0; k < f->cfg.max_req; k++) {
        struct req *r = f->reqs[k].r;

        if (r == NULL || r == but || r->n_live > 0)
            continue;
        free(f->reqs[k].seqs[0].ids);
        free(f->reqs[k].seqs[0].digest);
        free(f->reqs[k].seqs);
        f->reqs[k].r = NULL;
        req_put(&f->rp, r);
    }
}

/* A short request is not delayed by a waiting or a partly computed one. */
static void
short_passes_long(void **state)
{
    (void)state;
    for (int under_way = 0; under_way < 2; under_way++) {
        for (int on = 0; on < 2; on++) {
            struct fx_cfg c = order;
            struct fx *f;
            struct req *lng, *sh;

            c.sch.max_overtake_ns *= (uint64_t)on;
            f = fx_new(&c);
            f->keep = 1;
            lng = ask(f, 1, 10000, 0);
            if (under_way)
                (void)fx_step(f);
            sh = ask(f, 1, 100, 0);
            (void)fx_step(f);
            assert_int_equal(fx_row(f, &sh->seqs[0]) != NULL, on);
            assert_int_equal(fx_row(f, &lng->seqs[0])->q_len, on ? 156 : 256);
            fx_drain(f, 100);
            fx_free(f);
        }
    }
}

/* A small difference does not change the order. */
static void
arrival_counts_between_like_ones(void **state)
{
    struct fx *f = fx_new(&order);
    struct req *a = ask(f, 1, 300, 0), *b = ask(f, 1, 240, 0), *d = ask(f, 1, 170, 0);

    (void)state;
    f->keep = 1;
    (void)fx_step(f);
    /* 170 is enough less than 300 and 240, but 240 is not enough less than 300 */
    assert_non_null(fx_row(f, &d->seqs[0]));
    assert_non_null(fx_row(f, &a->seqs[0]));
    assert_null(fx_row(f, &b->seqs[0]));
    fx_drain(f, 100);
    fx_free(f);
}

/* Tokens in the prefix cache do not count as work. */
static void
cached_prefix_is_no_work(void **state)
{
    struct fx_cfg c = order;
    struct fx *f;
    struct req *a, *b, *d;

    (void)state;
    c.cached = 1;
    f = fx_new(&c);
    f->keep = 1;
    a = fx_add(f, &(struct fx_ask){ .n_prompt = 2000, .max_new = 1, .text = 7 });
    fx_drain(f, 20);
    assert_int_equal(a->n_live, 0);
    d = fx_add(f, &(struct fx_ask){ .n_prompt = 1000, .max_new = 1, .text = 9 });
    b = fx_add(f,
        &(struct fx_ask){ .n_prompt = 2050, .n_same = 2000, .max_new = 1, .text = 7 });
    (void)fx_step(f);
    assert_non_null(fx_row(f, &b->seqs[0]));
    assert_int_equal(fx_row(f, &b->seqs[0])->first, 2000);
    assert_int_equal(fx_row(f, &d->seqs[0])->q_len, 256 - 50);
    fx_drain(f, 20);
    fx_free(f);
}

/* Short requests arrive without end, enough for every step: a long one is overtaken only
 * for its limited time, while it waits and while it is computed. */
static void
passed_so_long_only(void **state)
{
    struct fx *f = fx_new(&order);
    struct req *lng = ask(f, 1, 2000, 0);
    int at = -1, n = 0;

    (void)state;
    f->keep = 1;
    for (; lng->n_live > 0; n++) {
        for (int k = 0; k < 3 && f->sch->waiting.n < 20; k++)
            (void)ask(f, 1, 120, 0);
        (void)fx_step(f);
        if (at < 0 && lng->seqs[0].cached_len >= 256)
            at = n;
        sweep(f, lng);
        /* 100 steps, in which there is room for it next to the tokens of answers */
        assert_true(n < 112);
    }
    assert_true(at > 90);
    for (int k = 0; k < f->cfg.max_req; k++)
        if (f->reqs[k].r != NULL && f->reqs[k].r->n_live > 0)
            fx_cancel(f, f->reqs[k].r);
    fx_drain(f, 100);
    fx_free(f);
}

/* A user with more rows does not overtake one with fewer, however short its prompts; a
 * user with no more rows does. */
static void
users_pass_by_rows(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) {
        struct fx_cfg c = order;
        struct fx *f;
        struct req *a, *b;

        c.sch.max_tokens = 64;
        f = fx_new(&c);
        f->keep = 1;
        if (more)
            (void)fx_add(f, &(struct fx_ask){ .n_prompt = 4, .max_new = 300 });
        (void)fx_step(f);
        /* the row above belongs to user 0 */
        a = ask(f, 1, 1000, 0);
        b = ask(f, 0, 40, 0);
        (void)fx_step(f);
        assert_non_null(fx_row(f, &a->seqs[0]));
        assert_int_equal(fx_row(f, &b->seqs[0]) == NULL, more);
        fx_drain(f, 400);
        fx_free(f);
    }
}

/* A request whose user has few rows overtakes earlier requests of a user with
 * many rows, late or not. The two share the steps once the first user has had
 * more tokens than the other. */
static void
new_user_passes_late(void **state)
{
    struct fx_cfg c = order;
    struct fx *f;
    struct req *late, *next;
    int32_t was;

    (void)state;
    c.sch.max_tokens = 64;
    c.sch.max_partial = 0;
    f = fx_new(&c);
    f->keep = 1;
    for (int i = 0; i < 4; i++)
        (void)fx_add(f, &(struct fx_ask){ .n_prompt = 4, .max_new = 300 });
    (void)fx_step(f);
    /* the rows above belong to user 0 */
    late = ask(f, 0, 1800, 0);
    (void)fx_step(f);
    f->now += 20 * c.sch.max_overtake_ns;
    (void)fx_step(f);
    next = ask(f, 2, 2000, 0);
    (void)fx_step(f);
    /* all but one token, by which the other advances */
    assert_int_equal(fx_row(f, &late->seqs[0])->q_len, 1);
    assert_int_equal(fx_row(f, &next->seqs[0])->q_len, 59);
    was = late->seqs[0].cached_len;
    for (int i = 0; i < 20; i++)
        (void)fx_step(f);
    assert_in_range(late->seqs[0].cached_len - was, 8 * 59, 12 * 59);
    fx_drain(f, 400);
    fx_free(f);
}

/* A better priority comes first, however much work is left and however late another is. */
static void
priority_before_work(void **state)
{
    (void)state;
    for (int fcfs = 0; fcfs < 2; fcfs++) {
        struct fx_cfg c = order;
        struct fx *f;
        struct req *a, *b;

        c.sch.fcfs = fcfs;
        c.sch.max_overtake_ns = 0;
        c.sch.max_partial = 2;
        f = fx_new(&c);
        f->keep = 1;
        a = ask(f, 1, 600, 5);
        (void)fx_step(f);
        b = ask(f, 2, 900, 0);
        (void)fx_step(f);
        if (fcfs) {
            assert_null(fx_row(f, &b->seqs[0]));
        } else {
            /* all but one token, by which the other advances */
            assert_int_equal(fx_row(f, &b->seqs[0])->q_len, 255);
            assert_int_equal(fx_row(f, &a->seqs[0])->q_len, 1);
        }
        fx_drain(f, 100);
        fx_free(f);
    }
}

/* With thousands waiting, the number of requests looked at is bounded. */
static void
look_is_bounded(void **state)
{
    struct fx_cfg c = order;
    struct fx *f;
    uint64_t was;

    (void)state;
    c.max_req = 10000;
    c.max_len = 640;
    c.cached = c.no_check = 1;
    f = fx_new(&c);
    f->keep = 1;
    for (int i = 0; i < 10000; i++)
        (void)fx_add(f,
            &(struct fx_ask){ .n_prompt = 40 + i * 37 % 600,
                .max_new = 1,
                .text = 100 + (uint64_t)i });
    for (int i = 0; i < 50; i++) {
        was = f->sch->n_found;
        (void)fx_step(f);
        /* admitted ones, and those that one look covers */
        assert_true(f->sch->n_found - was <= 4 * 64 + 64);
    }
    for (int i = 0; i < 10000; i++)
        if (f->reqs[i].r != NULL && f->reqs[i].r->n_live > 0)
            fx_cancel(f, f->reqs[i].r);
    fx_drain(f, 10);
    fx_free(f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_passes_long),
        cmocka_unit_test(arrival_counts_between_like_ones),
        cmocka_unit_test(cached_prefix_is_no_work),
        cmocka_unit_test(passed_so_long_only),
        cmocka_unit_test(users_pass_by_rows),
        cmocka_unit_test(new_user_passes_late),
        cmocka_unit_test(priority_before_work),
        cmocka_unit_test(look_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
