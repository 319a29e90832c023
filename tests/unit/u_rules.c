/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Items that restrict or bias the choice of tokens: the gate's
 * checks, and the worker's tables. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gate/check.h"
#include "daemon/worker/rules.h"
#include "tests/unit/gate_fixture.h"

static const struct chk_limits lim = { FIX_VOCAB, FIX_MAX_LEN, 20, 0, 0, 1 };

static int
check_items(struct fdp_req *q, const unsigned char *blob, uint32_t n,
    struct chk_items *ret, struct chk_err *e)
{
    struct chk_scan sc = { .at = 0 };
    int rc;

    memset(e, 0, sizeof(*e));
    q->len = n;
    rc = chk_scan(&sc, q, blob, n, e);
    *ret = sc.items;
    return rc;
}

static int
check_model(struct fdp_req *q, const unsigned char *blob, uint32_t n,
    const struct chk_limits *l, struct chk_err *e)
{
    struct chk_items items;

    assert_int_equal(check_items(q, blob, n, &items, e), 0);
    return chk_model(q, &items, l, e);
}

static void
want(int rc, const struct chk_err *e, int code, unsigned detail)
{
    assert_int_equal(rc, code != FDP_OK);
    if (code != FDP_OK) {
        assert_int_equal(e->code, code);
        assert_int_equal(e->detail, detail);
    }
}

/* Checks the exact code, detail, item, value and bound. */
static void
t_rules(void **state)
{
    static const struct fdp_bias ok[2] = { { 3, -100 }, { 4, 100 } };
    static const struct fdp_bias low[1] = { { 3, -100.5f } }, nan[1] = { { 3, NAN } };
    static const struct fdp_reasoning re[] = { { 5, 1, 2, 0 }, { 5, 2, 2, 0 },
        { 5, 1, 2, 9 } };
    static uint32_t ids[FDP_MAX_BAD_IDS + 1], many[FDP_MAX_LOGPROB_IDS + 1];
    static const struct fdp_bias most[FDP_MAX_BIAS + 1];
    static const unsigned char word[FDP_MAX_BAD_LEN + 1] = { 'a', 0xff };
    static const float bound = -100, low_bias = -100.5f;
    uint32_t bound_bits, low_bits;
    memcpy(&bound_bits, &bound, 4);
    memcpy(&low_bits, &low_bias, 4);
    const struct {
        unsigned type;
        const void *p;
        uint32_t len;
        int code;
        unsigned detail, arg, limit;
    } rows[] = { { FDP_IT_LOGIT_BIAS, ok, 16, FDP_OK, 0, 0, 0 },
        { FDP_IT_LOGIT_BIAS, most, FDP_MAX_BIAS * 8, FDP_OK, 0, 0, 0 },
        { FDP_IT_LOGIT_BIAS, most, FDP_MAX_BIAS * 8 + 8, FDP_E_BAD_PARAM, FDP_D_BIAS_IDS,
            FDP_MAX_BIAS + 1, FDP_MAX_BIAS },
        { FDP_IT_LOGIT_BIAS, ok, 0, FDP_E_BAD_PARAM, FDP_D_BIAS_IDS, 0, 1 },
        { FDP_IT_LOGIT_BIAS, ok, 12, FDP_E_BAD_PARAM, FDP_D_BIAS_IDS, 12, 8 },
        { FDP_IT_LOGIT_BIAS, low, 8, FDP_E_BAD_PARAM, FDP_D_BIAS, low_bits, bound_bits },
        { FDP_IT_LOGIT_BIAS, nan, 8, FDP_E_BAD_PARAM, FDP_D_BIAS, 0x7fc00000, bound_bits },
        { FDP_IT_ALLOWED_IDS, ids, 8, FDP_OK, 0, 0, 0 },
        { FDP_IT_ALLOWED_IDS, ids, 0, FDP_E_BAD_PARAM, FDP_D_ALLOWED, 0, 1 },
        { FDP_IT_ALLOWED_IDS, ids, 7, FDP_E_BAD_PARAM, FDP_D_ALLOWED, 7, 4 },
        { FDP_IT_BAD_IDS, ids, FDP_MAX_BAD_IDS * 4, FDP_OK, 0, 0, 0 },
        { FDP_IT_BAD_IDS, ids, FDP_MAX_BAD_IDS * 4 + 4, FDP_E_BAD_PARAM, FDP_D_BAD_WORDS,
            FDP_MAX_BAD_IDS + 1, FDP_MAX_BAD_IDS },
        { FDP_IT_BAD_IDS, ids, 0, FDP_E_BAD_PARAM, FDP_D_BAD_WORDS, 0, 1 },
        { FDP_IT_BAD_WORDS, "abc", 3, FDP_OK, 0, 0, 0 },
        { FDP_IT_BAD_WORDS, word, 0, FDP_E_BAD_PARAM, FDP_D_BAD_WORDS, 0, 1 },
        { FDP_IT_BAD_WORDS, word, 2, FDP_E_BAD_TEXT, FDP_D_BAD_WORDS, 1, 0 },
        { FDP_IT_BAD_WORDS, word, FDP_MAX_BAD_LEN + 1, FDP_E_BAD_PARAM, FDP_D_BAD_WORDS,
            FDP_MAX_BAD_LEN + 1, FDP_MAX_BAD_LEN },
        { FDP_IT_LOGPROB_IDS, many, 4, FDP_OK, 0, 0, 0 },
        { FDP_IT_LOGPROB_IDS, many, FDP_MAX_LOGPROB_IDS * 4 + 4, FDP_E_BAD_PARAM,
            FDP_D_LOGPROB_IDS, FDP_MAX_LOGPROB_IDS + 1, FDP_MAX_LOGPROB_IDS },
        { FDP_IT_REASONING, &re[0], 16, FDP_OK, 0, 0, 0 },
        { FDP_IT_REASONING, &re[1], 16, FDP_E_BAD_PARAM, FDP_D_REASONING, 2, 0 },
        { FDP_IT_REASONING, &re[2], 16, FDP_E_BAD_PARAM, FDP_D_RESERVED, 9, 0 },
        { FDP_IT_REASONING, &re[0], 12, FDP_E_BAD_PARAM, FDP_D_REASONING, 12, 16 } };
    static unsigned char b[16384] __attribute__((aligned(8)));
    struct chk_items items;
    struct chk_err e;
    struct fdp_req q;
    uint32_t n;

    (void)state;
    fcl_req(&q, FDP_OP_SUBMIT, 1);
    q.set |= FDP_S_LOGPROBS;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        n = fcl_item(b, 0, FDP_IT_PROMPT_TEXT, "x", 1);
        n = fcl_item(b, n, rows[i].type, rows[i].p, rows[i].len);
        want(check_items(&q, b, n, &items, &e), &e, rows[i].code, rows[i].detail);
        if (rows[i].code == FDP_OK)
            continue;
        assert_int_equal(e.item, rows[i].type);
        assert_int_equal(e.arg, rows[i].arg);
        assert_int_equal(e.limit, rows[i].limit);
    }
    /* each item may occur once, except sequences and words */
    for (unsigned i = 0; i < 3; i++) {
        static const uint8_t type[] = { FDP_IT_LOGIT_BIAS, FDP_IT_ALLOWED_IDS,
            FDP_IT_REASONING };

        n = fcl_item(b, 0, FDP_IT_PROMPT_TEXT, "x", 1);
        n = fcl_item(b, n, type[i], i == 2 ? (const void *)&re[0] : ok, 16);
        n = fcl_item(b, n, type[i], i == 2 ? (const void *)&re[0] : ok, 16);
        want(check_items(&q, b, n, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_ITEM);
        assert_int_equal(e.limit, 1);
    }
    n = fcl_item(b, 0, FDP_IT_PROMPT_TEXT, "x", 1);
    for (int i = 0; i <= FDP_MAX_BAD; i++)
        n = fcl_item(b, n, i % 2 ? FDP_IT_BAD_IDS : FDP_IT_BAD_WORDS, "abcd", 4);
    want(check_items(&q, b, n, &items, &e), &e, FDP_OK, 0);
    n = fcl_item(b, 0, FDP_IT_PROMPT_TEXT, "x", 1);
    for (int i = 0; i <= FDP_MAX_BAD; i++)
        n = fcl_item(b, n, FDP_IT_BAD_WORDS, "abcd", 4);
    want(check_items(&q, b, n, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_BAD_WORDS);
    assert_int_equal(e.arg, FDP_MAX_BAD + 1);
    assert_int_equal(e.limit, FDP_MAX_BAD);
    /* logprobs of ids need logprobs */
    q.set &= ~FDP_S_LOGPROBS;
    n = fcl_item(b, 0, FDP_IT_PROMPT_TEXT, "x", 1);
    n = fcl_item(b, n, FDP_IT_LOGPROB_IDS, many, 4);
    want(check_items(&q, b, n, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_SET);
    assert_int_equal(e.arg, FDP_S_LOGPROBS);
    assert_int_equal(e.item, FDP_IT_LOGPROB_IDS);
}

/* Checks the ids of these items against the vocabulary. */
static void
t_rules_vocab(void **state)
{
    static const struct {
        unsigned type, detail;
        uint32_t w[4], len;
    } rows[] = { { FDP_IT_LOGIT_BIAS, FDP_D_BIAS_IDS, { FIX_VOCAB, 0 }, 8 },
        { FDP_IT_ALLOWED_IDS, FDP_D_ALLOWED, { 0, FIX_VOCAB }, 8 },
        { FDP_IT_BAD_IDS, FDP_D_BAD_WORDS, { 1, FIX_VOCAB }, 8 },
        { FDP_IT_LOGPROB_IDS, FDP_D_LOGPROB_IDS, { FIX_VOCAB }, 4 },
        { FDP_IT_REASONING, FDP_D_REASONING, { 1, 2, FIX_VOCAB, 0 }, 16 } };
    unsigned char b[128] __attribute__((aligned(8)));
    struct chk_err e;
    struct fdp_req q;

    (void)state;
    fcl_req(&q, FDP_OP_SUBMIT, 1);
    q.set |= FDP_S_LOGPROBS;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint32_t n = fcl_item(b, 0, FDP_IT_PROMPT_TEXT, "x", 1);

        n = fcl_item(b, n, rows[i].type, rows[i].w, rows[i].len);
        want(check_model(&q, b, n, &lim, &e), &e, FDP_E_BAD_TOKEN, rows[i].detail);
        assert_int_equal(e.item, rows[i].type);
        assert_int_equal(e.arg, FIX_VOCAB);
        assert_int_equal(e.limit, FIX_VOCAB - 1);
    }
}

/* ---- the worker's -------------------------------------------------------------- */

static void
t_pack(void **state)
{
    static const struct fdp_bias bias[] = { { 70, 1.5f }, { 2, -3 }, { 40, 0 } };
    static const uint32_t allowed[] = { 0, 31, 32, 99, 31 }, a[] = { 5 }, c[] = { 6, 7, 8 };
    static const uint32_t chosen[] = { 9, 9, 1 };
    struct fdp_reasoning re = { UINT32_MAX, 3, 4, 0 };
    struct rls *r = rls_new(100);
    const struct fdk_rules *h;
    uint32_t id = 0;
    float v[3];

    (void)state;
    assert_non_null(r);
    assert_int_equal(rls_bias(r, bias, 3, &id), 0);
    assert_int_equal(rls_allow(r, allowed, 5), 0);
    assert_int_equal(rls_ban(r, a, 1) | rls_ban(r, c, 3), 0);
    rls_choose(r, chosen, 3);
    rls_reasoning(r, &re);
    assert_int_equal(rls_pack(r), 0);
    h = (const struct fdk_rules *)(const void *)r->words;
    assert_int_equal(h->n_bias, 3);
    assert_int_equal(r->words[h->bias], 2);
    assert_int_equal(r->words[h->bias + 1], 40);
    assert_int_equal(r->words[h->bias + 2], 70);
    memcpy(v, &r->words[h->bias + 3], sizeof(v));
    assert_true(v[0] == -3 && v[1] == 0 && v[2] == 1.5f);
    for (int32_t i = 0; i < 100; i++)
        assert_int_equal(fdk_rules_allow(h, r->words, i),
            i == 0 || i == 31 || i == 32 || i == 99);
    assert_int_equal(h->n_ban, 2);
    assert_int_equal(fdk_rules_banned(h, r->words, 0, 0), 5);
    assert_int_equal(fdk_rules_banned(h, r->words, 1, 50), -1);
    assert_memory_equal(&r->words[h->chosen], chosen, sizeof(chosen));
    assert_int_equal(h->max_reason, INT32_MAX);
    assert_true(h->open_id == 3 && h->close_id == 4);
    rls_free(r);
}

static void
t_refused(void **state)
{
    static const struct fdp_bias twice[] = { { 70, 1 }, { 2, -3 }, { 70, 1 } };
    static uint32_t ids[FDK_MAX_BAN_LEN];
    struct rls *r = rls_new(100);
    uint32_t id = 0;

    (void)state;
    assert_int_equal(rls_bias(r, twice, 3, &id), -EEXIST);
    assert_int_equal(id, 70);
    for (int i = 0; i < FDK_MAX_BAN_IDS / FDK_MAX_BAN_LEN; i++)
        assert_int_equal(rls_ban(r, ids, FDK_MAX_BAN_LEN), 0);
    assert_int_equal(rls_ban(r, ids, 1), -ENOSPC);
    rls_free(r);
    r = rls_new(100);
    for (int i = 0; i < FDK_MAX_BANS; i++)
        assert_int_equal(rls_ban(r, ids, 2), 0);
    assert_int_equal(rls_ban(r, ids, 1), -ENOSPC);
    assert_int_equal(rls_pack(r), 0);
    rls_free(r);
}

/* The later of the two ids in the prompt decides whether reasoning has begun. */
static void
t_inside(void **state)
{
    static const struct {
        uint32_t p[5];
        int inside;
    } rows[] = { { { 1, 2, 1, 2, 1 }, 0 }, { { 3, 1, 1, 1, 1 }, 1 },
        { { 3, 1, 4, 1, 1 }, 0 }, { { 3, 1, 4, 1, 3 }, 1 }, { { 4, 4, 4, 3, 3 }, 1 },
        { { 3, 3, 3, 3, 4 }, 0 } };
    struct fdp_reasoning re = { 5, 3, 4, 0 };
    struct rls *r = rls_new(100);

    (void)state;
    assert_int_equal(rls_begins_inside(r, rows[1].p, 5), 0); /* no such rule */
    rls_reasoning(r, &re);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(rls_begins_inside(r, rows[i].p, 5), rows[i].inside);
    assert_int_equal(rls_begins_inside(r, rows[1].p, 0), 0);
    rls_free(r);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_rules),
        cmocka_unit_test(t_rules_vocab),
        cmocka_unit_test(t_pack),
        cmocka_unit_test(t_refused),
        cmocka_unit_test(t_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
