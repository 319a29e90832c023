/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Rules V1 to V8: each refusal by its code, detail and argument. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gate/check.h"
#include "daemon/gate/intake.h"
#include "tests/unit/gate_fixture.h"

static const struct chk_limits lim = { FIX_VOCAB, FIX_MAX_LEN, 20, 0, 0, 1 };

/* A blob at once, and byte by byte: both say the same. */
static int
check_items(struct fdp_req *q, const unsigned char *blob, uint32_t n,
    struct chk_items *ret, struct chk_err *e)
{
    struct chk_scan all = { .at = 0 }, piece = { .at = 0 };
    struct chk_err pe = { 0 };
    int rc, prc = 0;

    memset(e, 0, sizeof(*e));
    q->len = n;
    rc = chk_scan(&all, q, blob, n, e);
    for (uint32_t have = 0; have <= n && prc == 0; have++)
        prc = chk_scan(&piece, q, blob, have, &pe);
    assert_int_equal(rc, prc);
    assert_memory_equal(e, &pe, sizeof(pe));
    *ret = all.items;
    return rc;
}

static int
check_model(struct fdp_req *q, const unsigned char *blob, uint32_t n,
    const struct chk_limits *l, struct chk_err *e)
{
    struct chk_scan sc = { .at = 0 };

    q->len = n;
    for (uint32_t have = 0; have <= n; have += 4)
        (void)chk_scan(&sc, q, blob, have, e);
    return chk_model(q, &sc.items, l, e);
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

#define SCALAR(field, value, code, detail) \
    do { \
        struct fdp_req q_; \
        struct chk_err e_ = { 0 }; \
        fcl_req(&q_, FDP_OP_SUBMIT, 1); \
        q_.set = FDP_S__ALL; \
        q_.field = (value); \
        want(chk_req(&q_, &lim, &e_), &e_, code, detail); \
    } while (0)

static void
t_scalars(void **state)
{
    (void)state;
    SCALAR(tag, 1, FDP_OK, 0);
    SCALAR(tag, 0, FDP_E_BAD_PARAM, FDP_D_TAG);
    SCALAR(op, 0, FDP_E_BAD_PARAM, FDP_D_OP);
    SCALAR(op, FDP_OP__N, FDP_E_BAD_PARAM, FDP_D_OP);
    SCALAR(op, 65535, FDP_E_BAD_PARAM, FDP_D_OP);
    SCALAR(flags, 1u << 13, FDP_E_BAD_PARAM, FDP_D_FLAGS);
    SCALAR(flags, 1u << 7, FDP_E_BAD_PARAM, FDP_D_FLAGS);  /* of version 1 */
    SCALAR(flags, 1u << 11, FDP_E_BAD_PARAM, FDP_D_FLAGS); /* of version 2 */
    SCALAR(flags, FDP_F_PARSE_SPECIAL, FDP_OK, 0);
    SCALAR(flags, FDP_F_DEEP, FDP_E_BAD_PARAM, FDP_D_FLAGS);
    SCALAR(flags, FDP_F__ALL & ~FDP_F_DEEP, FDP_OK, 0);
    SCALAR(best_of, 2, FDP_OK, 0);
    SCALAR(best_of, FDP_MAX_N, FDP_OK, 0);
    SCALAR(max_new, 0, FDP_OK, 0);
    SCALAR(op, FDP_OP_FILE, FDP_OK, 0);
    SCALAR(rsv[5], 1, FDP_E_BAD_PARAM, FDP_D_RESERVED);
    SCALAR(n, 0, FDP_E_BAD_PARAM, FDP_D_N);
    SCALAR(n, FDP_MAX_N, FDP_OK, 0);
    SCALAR(n, FDP_MAX_N + 1, FDP_E_BAD_PARAM, FDP_D_N);
    SCALAR(max_new, FIX_MAX_LEN, FDP_OK, 0);
    SCALAR(max_new, FIX_MAX_LEN + 1, FDP_E_TOO_LONG, FDP_D_MAX_NEW);
    SCALAR(max_new, UINT32_MAX, FDP_E_TOO_LONG, FDP_D_MAX_NEW);
    SCALAR(min_new, 17, FDP_E_BAD_PARAM, FDP_D_MIN_NEW);
    SCALAR(temperature, -0.5f, FDP_E_BAD_PARAM, FDP_D_TEMPERATURE);
    SCALAR(temperature, NAN, FDP_E_BAD_PARAM, FDP_D_TEMPERATURE);
    SCALAR(temperature, INFINITY, FDP_E_BAD_PARAM, FDP_D_TEMPERATURE);
    SCALAR(temperature, 2.0f, FDP_OK, 0);
    SCALAR(top_p, 0.0f, FDP_E_BAD_PARAM, FDP_D_TOP_P);
    SCALAR(top_p, 1.0001f, FDP_E_BAD_PARAM, FDP_D_TOP_P);
    SCALAR(top_p, NAN, FDP_E_BAD_PARAM, FDP_D_TOP_P);
    SCALAR(top_k, 0x80000000u, FDP_E_BAD_PARAM, FDP_D_TOP_K);
    SCALAR(top_k, 40, FDP_OK, 0);
    SCALAR(min_p, 1.5f, FDP_E_BAD_PARAM, FDP_D_MIN_P);
    SCALAR(min_p, NAN, FDP_E_BAD_PARAM, FDP_D_MIN_P);
    SCALAR(min_p, 0.1f, FDP_OK, 0);
    SCALAR(presence_penalty, 2.5f, FDP_E_BAD_PARAM, FDP_D_PRESENCE);
    SCALAR(presence_penalty, -2.5f, FDP_E_BAD_PARAM, FDP_D_PRESENCE);
    SCALAR(frequency_penalty, NAN, FDP_E_BAD_PARAM, FDP_D_FREQUENCY);
    SCALAR(frequency_penalty, 2.01f, FDP_E_BAD_PARAM, FDP_D_FREQUENCY);
    SCALAR(repetition_penalty, 0.0f, FDP_E_BAD_PARAM, FDP_D_PENALTY);
    SCALAR(repetition_penalty, 2.5f, FDP_E_BAD_PARAM, FDP_D_PENALTY);
    /* was accepted and ended with E_NUMERIC: a logit divided by it is infinite */
    SCALAR(repetition_penalty, 1e-38f, FDP_E_BAD_PARAM, FDP_D_PENALTY);
    SCALAR(repetition_penalty, 0.0009f, FDP_E_BAD_PARAM, FDP_D_PENALTY);
    SCALAR(repetition_penalty, 0.001f, FDP_OK, 0);
    SCALAR(logprobs, 20, FDP_OK, 0);
    SCALAR(logprobs, 21, FDP_E_BAD_PARAM, FDP_D_LOGPROBS);
    SCALAR(prompt_logprobs, 21, FDP_E_BAD_PARAM, FDP_D_PROMPT_LOGPROBS);
    SCALAR(prompt_from, UINT32_MAX, FDP_OK, 0);
    SCALAR(best_of, 1, FDP_OK, 0);
    SCALAR(best_of, FDP_MAX_N + 1, FDP_E_BAD_PARAM, FDP_D_BEST_OF);
    SCALAR(set, FDP_S__ALL + 1, FDP_E_BAD_PARAM, FDP_D_SET);
    SCALAR(ttl_queue_ms, UINT32_MAX, FDP_E_BAD_PARAM, FDP_D_TTL);
    SCALAR(ttl_total_ms, UINT32_MAX, FDP_E_BAD_PARAM, FDP_D_TTL);
    SCALAR(user, 5, FDP_E_BAD_PARAM, FDP_D_USER);
}

/* output.enable_logprob = no still delivered the log-probability of each token. */
static void
t_no_logprobs(void **state)
{
    struct chk_limits none = lim;
    struct chk_err e;
    struct fdp_req q;

    (void)state;
    none.max_logprobs = -1;
    fcl_req(&q, FDP_OP_SUBMIT, 1);
    want(chk_req(&q, &none, &e), &e, FDP_OK, 0);
    q.set |= FDP_S_LOGPROBS;
    want(chk_req(&q, &none, &e), &e, FDP_E_UNSUPPORTED, FDP_D_LOGPROBS);
    q.set ^= FDP_S_LOGPROBS | FDP_S_PROMPT_LOGPROBS;
    want(chk_req(&q, &none, &e), &e, FDP_E_UNSUPPORTED, FDP_D_PROMPT_LOGPROBS);
    q.set ^= FDP_S_PROMPT_LOGPROBS; /* best_of ranks by logprobs */
    q.best_of = 2;
    want(chk_req(&q, &none, &e), &e, FDP_E_UNSUPPORTED, FDP_D_BEST_OF);
    q.best_of = 0;
    q.set ^= FDP_S_PROMPT_LOGPROBS;
    none.max_logprobs = 0;
    want(chk_req(&q, &none, &e), &e, FDP_OK, 0);
    q.prompt_logprobs = 1;
    want(chk_req(&q, &none, &e), &e, FDP_E_BAD_PARAM, FDP_D_PROMPT_LOGPROBS);
}

/* Items: build, then break. */
static void
t_items(void **state)
{
    unsigned char b[4096] __attribute__((aligned(8)));
    struct chk_items items;
    struct chk_err e;
    struct fdp_req q;
    uint32_t ids[3] = { 1, 2, 3 };
    uint32_t n;

    (void)state;
    fcl_req(&q, FDP_OP_SUBMIT, 1);
    want(check_items(&q, b, 0, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_PROMPT);
    n = fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, 12);
    want(check_items(&q, b, n, &items, &e), &e, FDP_OK, 0);
    assert_int_equal(items.n_prompt_ids, 3);
    assert_true(items.has_ids && !items.has_text);
    /* cut at every place */
    for (uint32_t cut = 8; cut < n; cut += 8)
        want(check_items(&q, b, cut, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_BLOB);
    b[n - 1] = 7; /* padding */
    want(check_items(&q, b, n, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_RESERVED);
    b[n - 1] = 0;
    b[3] = 1; /* item.rsv */
    want(check_items(&q, b, n, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_RESERVED);
    b[3] = 0;
    memset(b + 4, 0xff, 4); /* item.len: span overflows 32 bits */
    want(check_items(&q, b, n, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_BLOB);
    n = fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, 10);
    want(check_items(&q, b, n, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_PROMPT);
    n = fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, 0);
    want(check_items(&q, b, n, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_PROMPT);
    n = fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, 12);
    n = fcl_item(b, n, FDP_IT_PROMPT_IDS, ids, 12);
    want(check_items(&q, b, n, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_ITEM);
    n = fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, 12);
    n = fcl_item(b, n, FDP_IT_PROMPT_TEXT, "x", 1);
    want(check_items(&q, b, n, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_PROMPT);
    n = fcl_item(b, 0, FDP_IT_PROMPT_TEXT, "a\xff", 2);
    want(check_items(&q, b, n, &items, &e), &e, FDP_E_BAD_TEXT, FDP_D_PROMPT);
    assert_int_equal(e.arg, 1);
    q.n_prior = 2;
    n = fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, 12);
    want(check_items(&q, b, n, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_PRIOR);
    n = fcl_item(b, n, FDP_IT_PRIOR_IDS, ids, 8);
    want(check_items(&q, b, n, &items, &e), &e, FDP_OK, 0);
}

static void
t_stops(void **state)
{
    unsigned char b[8192] __attribute__((aligned(8)));
    static const char text[FDP_MAX_STOP_LEN + 1] = "";
    struct chk_items items;
    struct chk_err e;
    struct fdp_req q;
    uint32_t ids[FDP_MAX_STOP_IDS + 1] = { 1 };
    uint32_t base, n;

    (void)state;
    fcl_req(&q, FDP_OP_SUBMIT, 1);
    base = fcl_item(b, 0, FDP_IT_PROMPT_TEXT, "hello", 5);
    n = fcl_item(b, base, FDP_IT_STOP_STRING, "", 0);
    want(check_items(&q, b, n, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_STOP);
    n = fcl_item(b, base, FDP_IT_STOP_STRING, text, FDP_MAX_STOP_LEN);
    want(check_items(&q, b, n, &items, &e), &e, FDP_OK, 0);
    n = fcl_item(b, base, FDP_IT_STOP_STRING, text, FDP_MAX_STOP_LEN + 1);
    want(check_items(&q, b, n, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_STOP);
    n = fcl_item(b, base, FDP_IT_STOP_STRING, "\xc0\x80", 2);
    want(check_items(&q, b, n, &items, &e), &e, FDP_E_BAD_TEXT, FDP_D_STOP);
    n = base;
    for (unsigned i = 0; i <= FDP_MAX_STOP; i++) {
        n = fcl_item(b, n, FDP_IT_STOP_STRING, "end", 3);
        want(check_items(&q, b, n, &items, &e), &e,
            i < FDP_MAX_STOP ? FDP_OK : FDP_E_BAD_PARAM, FDP_D_STOP);
    }
    n = fcl_item(b, base, FDP_IT_STOP_IDS, ids, FDP_MAX_STOP_IDS * 4);
    want(check_items(&q, b, n, &items, &e), &e, FDP_OK, 0);
    n = fcl_item(b, base, FDP_IT_STOP_IDS, ids, (FDP_MAX_STOP_IDS + 1) * 4);
    want(check_items(&q, b, n, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_STOP);
}

/* Unknown, retired, of another version, not offered, of another operation: by number. */
static void
t_unsupported(void **state)
{
    static const struct {
        unsigned type, version, op;
        int code;
        unsigned detail, arg;
    } rows[] = { { FDP_IT_GRAMMAR, 0, FDP_OP_SUBMIT, FDP_E_UNSUPPORTED, FDP_D_GRAMMAR,
                     FDP_IT_GRAMMAR },
        { FDP_IT_ADAPTER, 0, FDP_OP_SUBMIT, FDP_E_UNSUPPORTED, FDP_D_ADAPTER,
            FDP_IT_ADAPTER },
        { FDP_IT_IMAGE, 0, FDP_OP_SUBMIT, FDP_E_UNSUPPORTED, FDP_D_IMAGE, FDP_IT_IMAGE },
        { 0, 0, FDP_OP_SUBMIT, FDP_E_UNSUPPORTED, FDP_D_ITEM, 0 },
        { 10, 0, FDP_OP_SUBMIT, FDP_E_UNSUPPORTED, FDP_D_ITEM, 10 }, /* of version 2 */
        { FDP_IT__N, 0, FDP_OP_SUBMIT, FDP_E_UNSUPPORTED, FDP_D_ITEM, FDP_IT__N },
        { 65535, 0, FDP_OP_SUBMIT, FDP_E_UNSUPPORTED, FDP_D_ITEM, 65535 },
        { FDP_IT_STOP_IDS, 1, FDP_OP_SUBMIT, FDP_E_UNSUPPORTED, FDP_D_ITEM, 1 },
        { FDP_IT_STOP_IDS, 255, FDP_OP_SUBMIT, FDP_E_UNSUPPORTED, FDP_D_ITEM, 255 },
        { FDP_IT_STOP_IDS, 0, FDP_OP_TOKENIZE, FDP_E_BAD_PARAM, FDP_D_ITEM, FDP_IT_STOP_IDS },
        { FDP_IT_FILE, 0, FDP_OP_SUBMIT, FDP_E_BAD_PARAM, FDP_D_ITEM, FDP_IT_FILE } };
    unsigned char b[256] __attribute__((aligned(8)));
    struct chk_items items;
    struct chk_err e;
    struct fdp_req q;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint32_t n, at;

        fcl_req(&q, rows[i].op, 1);
        at = n = fcl_item(b, 0, FDP_IT_PROMPT_TEXT, "x", 1);
        n = fcl_item(b, n, rows[i].type, "abcdefgh", 8);
        b[at + 2] = (unsigned char)rows[i].version;
        want(check_items(&q, b, n, &items, &e), &e, rows[i].code, rows[i].detail);
        assert_int_equal(e.arg, rows[i].arg);
        assert_int_equal(e.item, rows[i].type);
    }
}

/* A value whose bit says that it is not set. */
static void
t_unset(void **state)
{
    static const struct {
        uint32_t bit;
        size_t at;
    } rows[] = { { FDP_S_MAX_NEW, offsetof(struct fdp_req, max_new) },
        { FDP_S_TEMPERATURE, offsetof(struct fdp_req, temperature) },
        { FDP_S_TOP_P, offsetof(struct fdp_req, top_p) },
        { FDP_S_TOP_K, offsetof(struct fdp_req, top_k) },
        { FDP_S_MIN_P, offsetof(struct fdp_req, min_p) },
        { FDP_S_PRESENCE, offsetof(struct fdp_req, presence_penalty) },
        { FDP_S_FREQUENCY, offsetof(struct fdp_req, frequency_penalty) },
        { FDP_S_REPETITION, offsetof(struct fdp_req, repetition_penalty) },
        { FDP_S_LOGPROBS, offsetof(struct fdp_req, logprobs) },
        { FDP_S_PROMPT_LOGPROBS, offsetof(struct fdp_req, prompt_logprobs) },
        { FDP_S_PROMPT_LOGPROBS, offsetof(struct fdp_req, prompt_from) },
        { FDP_S_SEED, offsetof(struct fdp_req, seed) },
        { FDP_S_SEED, offsetof(struct fdp_req, seed) + 7 } };
    struct chk_err e;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fdp_req q = { .tag = 1, .op = FDP_OP_SUBMIT, .n = 1 };

        want(chk_req(&q, &lim, &e), &e, FDP_OK, 0);
        ((unsigned char *)&q)[rows[i].at] = 1;
        want(chk_req(&q, &lim, &e), &e, FDP_E_BAD_PARAM, FDP_D_SET);
        assert_int_equal(e.arg, rows[i].bit);
    }
}

/* The bound that was passed goes with the value. */
static void
t_bounds(void **state)
{
    const float cold = -0.5f, hot = 101, least = 0, most = 100;
    struct chk_err e;
    struct fdp_req q;
    uint32_t bits;

    (void)state;
    fcl_req(&q, FDP_OP_SUBMIT, 1);
    q.n = FDP_MAX_N + 1;
    want(chk_req(&q, &lim, &e), &e, FDP_E_BAD_PARAM, FDP_D_N);
    assert_true(e.arg == FDP_MAX_N + 1 && e.limit == FDP_MAX_N && e.item == 0);
    q.n = 1;
    q.max_new = FIX_MAX_LEN + 9;
    want(chk_req(&q, &lim, &e), &e, FDP_E_TOO_LONG, FDP_D_MAX_NEW);
    assert_true(e.arg == FIX_MAX_LEN + 9 && e.limit == FIX_MAX_LEN);
    q.max_new = 1;
    q.temperature = cold;
    want(chk_req(&q, &lim, &e), &e, FDP_E_BAD_PARAM, FDP_D_TEMPERATURE);
    memcpy(&bits, &cold, 4);
    assert_int_equal(e.arg, bits);
    memcpy(&bits, &least, 4);
    assert_int_equal(e.limit, bits);
    q.temperature = hot;
    want(chk_req(&q, &lim, &e), &e, FDP_E_BAD_PARAM, FDP_D_TEMPERATURE);
    memcpy(&bits, &most, 4);
    assert_int_equal(e.limit, bits);
}

static void
t_spans(void **state)
{
    static const struct {
        struct fdp_span s[2];
        unsigned n;
        int code;
        uint32_t arg;
    } rows[] = { { { { 0, 1 } }, 1, FDP_OK, 0 }, { { { 0, 2 }, { 2, 5 } }, 2, FDP_OK, 0 },
        { { { 4, 3 } }, 1, FDP_OK, 0 }, { { { 0, 0 } }, 1, FDP_E_BAD_PARAM, 0 },
        { { { 2, 2 }, { 3, 1 } }, 2, FDP_E_BAD_PARAM, 3 },
        { { { 4, 4 } }, 1, FDP_E_BAD_PARAM, 8 },
        { { { UINT32_MAX, UINT32_MAX } }, 1, FDP_E_BAD_PARAM, UINT32_MAX },
        { { { 0, 3 } }, 1, FDP_E_BAD_TEXT, 0 }, { { { 3, 1 } }, 1, FDP_E_BAD_TEXT, 3 } };
    unsigned char b[256] __attribute__((aligned(8)));
    struct chk_items items;
    struct chk_err e;
    struct fdp_req q;
    uint32_t n;

    (void)state;
    fcl_req(&q, FDP_OP_SUBMIT, 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        n = fcl_item(b, 0, FDP_IT_SPANS, rows[i].s, rows[i].n * 8); /* in any order */
        n = fcl_item(b, n, FDP_IT_PROMPT_TEXT, "ab\xc3\xa9xyz", 7);
        want(check_items(&q, b, n, &items, &e), &e, rows[i].code, FDP_D_SPANS);
        if (rows[i].code != FDP_OK)
            assert_true(e.arg == rows[i].arg && e.item == FDP_IT_SPANS);
    }
    n = fcl_item(b, 0, FDP_IT_SPANS, rows[0].s, 8);
    n = fcl_item(b, n, FDP_IT_PROMPT_IDS, rows[0].s, 8);
    want(check_items(&q, b, n, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_SPANS);
}

static void
t_structs(void **state)
{
    static const struct {
        struct fdp_repetition r;
        int code;
        unsigned detail, limit;
    } rep[] = { { { 1, 1, 2, 0 }, FDP_OK, 0, 0 },
        { { 1, FDP_MAX_REPEAT, FDP_MAX_REPEATS, 0 }, FDP_OK, 0, 0 },
        { { 0, 4, 2, 0 }, FDP_E_BAD_PARAM, FDP_D_REPETITION, 1 },
        { { 0, 0, 2, 0 }, FDP_E_BAD_PARAM, FDP_D_REPETITION, 1 },
        { { 5, 4, 2, 0 }, FDP_E_BAD_PARAM, FDP_D_REPETITION, 4 },
        { { 1, FDP_MAX_REPEAT + 1, 2, 0 }, FDP_E_BAD_PARAM, FDP_D_REPETITION,
            FDP_MAX_REPEAT },
        { { 1, 4, 1, 0 }, FDP_E_BAD_PARAM, FDP_D_REPETITION, 2 },
        { { 1, 4, FDP_MAX_REPEATS + 1, 0 }, FDP_E_BAD_PARAM, FDP_D_REPETITION,
            FDP_MAX_REPEATS },
        { { 1, 4, 2, 1 }, FDP_E_BAD_PARAM, FDP_D_RESERVED, 0 } };
    static const struct {
        struct fdp_file_ask f;
        const char *name;
        int code;
        unsigned detail;
    } file[] = { { { 0, 1, 0 }, "vocabulary", FDP_OK, 0 },
        { { UINT64_MAX, FDP_MAX_FILE_READ, 0 }, "x", FDP_OK, 0 },
        { { 0, 0, 0 }, "x", FDP_E_BAD_PARAM, FDP_D_FILE },
        { { 0, FDP_MAX_FILE_READ + 1, 0 }, "x", FDP_E_BAD_PARAM, FDP_D_FILE },
        { { 0, 1, 7 }, "x", FDP_E_BAD_PARAM, FDP_D_RESERVED },
        { { 0, 1, 0 }, "\xff", FDP_E_BAD_TEXT, FDP_D_FILE },
        { { 0, 1, 0 }, "", FDP_E_BAD_PARAM, FDP_D_FILE } };
    unsigned char b[256] __attribute__((aligned(8))), p[64];
    struct chk_items items;
    struct chk_err e;
    struct fdp_req q;
    uint32_t n;

    (void)state;
    fcl_req(&q, FDP_OP_SUBMIT, 1);
    for (size_t i = 0; i < sizeof(rep) / sizeof(rep[0]); i++) {
        n = fcl_item(b, 0, FDP_IT_PROMPT_TEXT, "x", 1);
        n = fcl_item(b, n, FDP_IT_REPETITION, &rep[i].r, 16);
        want(check_items(&q, b, n, &items, &e), &e, rep[i].code, rep[i].detail);
        if (rep[i].code != FDP_OK)
            assert_int_equal(e.limit, rep[i].limit);
    }
    n = fcl_item(b, 0, FDP_IT_PROMPT_TEXT, "x", 1);
    n = fcl_item(b, n, FDP_IT_REPETITION, &rep[0].r, 12);
    want(check_items(&q, b, n, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_REPETITION);
    fcl_req(&q, FDP_OP_FILE, 1);
    want(check_items(&q, b, 0, &items, &e), &e, FDP_E_BAD_PARAM, FDP_D_FILE);
    for (size_t i = 0; i < sizeof(file) / sizeof(file[0]); i++) {
        memcpy(p, &file[i].f, 16);
        memcpy(p + 16, file[i].name, strlen(file[i].name));
        n = fcl_item(b, 0, FDP_IT_FILE, p, 16 + (uint32_t)strlen(file[i].name));
        want(check_items(&q, b, n, &items, &e), &e, file[i].code, file[i].detail);
    }
}

static void
t_model(void **state)
{
    unsigned char b[FIX_MAX_LEN * 4 + 64] __attribute__((aligned(8)));
    static uint32_t ids[FIX_MAX_LEN + 1];
    struct chk_limits no_tok = lim;
    struct chk_err e;
    struct fdp_req q;
    uint32_t n;

    (void)state;
    fcl_req(&q, FDP_OP_SUBMIT, 1);
    ids[1] = FIX_VOCAB - 1;
    n = fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, 8);
    want(check_model(&q, b, n, &lim, &e), &e, FDP_OK, 0);
    ids[1] = FIX_VOCAB;
    n = fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, 8);
    want(check_model(&q, b, n, &lim, &e), &e, FDP_E_BAD_TOKEN, FDP_D_PROMPT_ID);
    assert_int_equal(e.arg, FIX_VOCAB);
    n = fcl_item(b, 0, FDP_IT_STOP_IDS, ids, 8);
    want(check_model(&q, b, n, &lim, &e), &e, FDP_E_BAD_TOKEN, FDP_D_STOP);
    n = fcl_item(b, 0, FDP_IT_PRIOR_IDS, ids, 8);
    want(check_model(&q, b, n, &lim, &e), &e, FDP_E_BAD_TOKEN, FDP_D_PRIOR);
    ids[0] = FIX_VOCAB + 1; /* of all pieces, not of the last */
    ids[1] = 0;
    n = fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, 8);
    want(check_model(&q, b, n, &lim, &e), &e, FDP_E_BAD_TOKEN, FDP_D_PROMPT_ID);
    assert_int_equal(e.arg, FIX_VOCAB + 1);
    ids[0] = 0;
    q.max_new = 0;
    n = fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, (FIX_MAX_LEN - 1) * 4);
    want(check_model(&q, b, n, &lim, &e), &e, FDP_OK, 0);
    q.max_new = 2;
    want(check_model(&q, b, n, &lim, &e), &e, FDP_E_TOO_LONG, FDP_D_MAX_NEW);
    assert_true(e.arg == FIX_MAX_LEN + 1 && e.limit == FIX_MAX_LEN);
    assert_int_equal(e.item, FDP_IT_PROMPT_IDS);
    q.max_new = 0;
    q.set &= ~FDP_S_MAX_NEW;
    n = fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, FIX_MAX_LEN * 4);
    want(check_model(&q, b, n, &lim, &e), &e, FDP_E_TOO_LONG, FDP_D_PROMPT);
    /* regression: a limit that a prompt of that length did not exceed */
    assert_true(e.arg == FIX_MAX_LEN && e.limit == FIX_MAX_LEN - 1);
    q.set |= FDP_S_MAX_NEW; /* without a token behind it */
    want(check_model(&q, b, n, &lim, &e), &e, FDP_OK, 0);
    n = fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, (FIX_MAX_LEN + 1) * 4);
    want(check_model(&q, b, n, &lim, &e), &e, FDP_E_TOO_LONG, FDP_D_PROMPT);
    assert_true(e.arg == FIX_MAX_LEN + 1 && e.limit == FIX_MAX_LEN);
    no_tok.has_tokenizer = 0;
    n = fcl_item(b, 0, FDP_IT_PROMPT_TEXT, "x", 1);
    want(check_model(&q, b, n, &no_tok, &e), &e, FDP_E_NO_MODEL, FDP_D_PROMPT);
}

/* A request that went on after its worker died was refused as too long when it had asked for all
 * that the model has room for: max_new counts the ids that came before. */
static void
t_model_prior(void **state)
{
    unsigned char b[FIX_MAX_LEN * 4 + 64] __attribute__((aligned(8)));
    static uint32_t ids[FIX_MAX_LEN];
    struct chk_err e;
    struct fdp_req q;
    uint32_t n;

    (void)state;
    fcl_req(&q, FDP_OP_SUBMIT, 1);
    q.max_new = FIX_MAX_LEN - 100;
    n = fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, 100 * 4);
    q.n_prior = FIX_MAX_LEN - 101;
    want(check_model(&q, b, fcl_item(b, n, FDP_IT_PRIOR_IDS, ids, q.n_prior * 4), &lim, &e),
        &e, FDP_OK, 0);
    q.n_prior = FIX_MAX_LEN - 100; /* all of them came, and not the end */
    want(check_model(&q, b, fcl_item(b, n, FDP_IT_PRIOR_IDS, ids, q.n_prior * 4), &lim, &e),
        &e, FDP_OK, 0);
    q.max_new++;
    want(check_model(&q, b, fcl_item(b, n, FDP_IT_PRIOR_IDS, ids, q.n_prior * 4), &lim, &e),
        &e, FDP_E_TOO_LONG, FDP_D_MAX_NEW);
    assert_int_equal(e.arg, FIX_MAX_LEN + 1);
    q.max_new = 0;
    q.set &= ~FDP_S_MAX_NEW;
    q.n_prior = FIX_MAX_LEN - 99;
    want(check_model(&q, b, fcl_item(b, n, FDP_IT_PRIOR_IDS, ids, q.n_prior * 4), &lim, &e),
        &e, FDP_E_TOO_LONG, FDP_D_PRIOR);
    assert_true(e.arg == FIX_MAX_LEN - 99 && e.limit == FIX_MAX_LEN - 100);
}

/* Megabytes of ids that waited for a model are not looked at again when it comes. */
static void
t_model_late(void **state)
{
    static uint32_t ids[FIX_MAX_LEN / 2];
    unsigned char b[sizeof(ids) + 64] __attribute__((aligned(8)));
    struct fdp_error e;
    struct jreq *r = NULL;
    struct fdp_req q;
    struct fix f;
    struct fcl c;
    uint32_t n;

    (void)state;
    ids[7] = FIX_VOCAB + 5;
    fix_open(&f, NULL);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_req(&q, FDP_OP_SUBMIT, 1);
    n = fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, sizeof(ids));
    q.len = n;
    fcl_send(&c, &q, b, n, 0);
    fix_step(&f, 0);
    assert_int_equal(f.g->fair.n_queued, 1);
    for (uint32_t i = 0; i < f.g->jnl.n_max && r == NULL; i++)
        r = f.g->jnl.pool[i].st == JNL_QUEUED ? &f.g->jnl.pool[i] : NULL;
    assert_non_null(r);
    memset(r->blob + sizeof(struct fdp_item), 0, sizeof(ids));
    fix_ready(&f);
    e = fcl_error(&c, 1);
    assert_true(e.code == FDP_E_BAD_TOKEN && e.detail == FDP_D_PROMPT_ID);
    assert_int_equal(e.arg, FIX_VOCAB + 5);
    fcl_close(&c);
    fix_step(&f, 0);
    fix_close(&f);
}

/* ---- through a ring -------------------------------------------------------- */

static void
t_blob_bounds(void **state)
{
    struct fix f;
    struct fcl c;
    struct fdp_req q;
    uint32_t cases[][2] = { { 4, 8 }, { 0, 12 }, { 0xfffffff8u, 16 }, { 0, 0xfffffff8u },
        { 8, 0 }, { 0, 0 } };

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    cases[4][0] = c.w.arena_bytes;
    cases[4][1] = 8;
    cases[5][0] = c.w.arena_bytes - 8;
    cases[5][1] = 16;
    for (size_t i = 0; i < 6; i++) {
        fcl_req(&q, FDP_OP_SUBMIT, 10 + i);
        q.off = cases[i][0];
        q.len = cases[i][1];
        fcl_send(&c, &q, NULL, 0, 0);
        fix_step(&f, 1100);
        fcl_want_error(&c, 10 + i, FDP_E_BAD_PARAM, FDP_D_BLOB);
    }
    /* the last bytes of the arena are good */
    fcl_submit(&c, 99, 1, 4);
    fix_step(&f, 0);
    assert_true(fix_take(&f, NULL, NULL, NULL) != 0);
    fcl_close(&c);
    fix_close(&f);
}

static void
t_duplicate_tag(void **state)
{
    struct fix f;
    struct fcl c;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    fcl_submit(&c, 7, 1, 4);
    fcl_submit(&c, 7, 1, 4);
    fcl_cancel(&c, 12345);
    fix_step(&f, 0);
    fcl_want_error(&c, 7, FDP_E_BAD_PARAM, FDP_D_TAG);
    assert_int_equal(f.g->env.cnt->cancels_unknown, 1);
    assert_int_equal(f.g->jnl.n_open, 1);
    fcl_close(&c);
    fix_close(&f);
}

/* Bad requests are answered, however many, and never end the session; beyond what a
 * second allows, the user's requests are refused unseen and its ring is looked at
 * less often. Another user's are taken as ever. */
static void
t_error_rate(void **state)
{
    uint32_t n_bad = 0, n_eager = 0, retry = 0;
    struct fdp_error e;
    struct fdp_req q;
    struct fcl c, other;
    struct frec r;
    struct fix f;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &other, 1001, NULL), FDP_OK);
    memset(&q, 0, sizeof(q));
    q.tag = 5;
    q.op = FDP_OP_SUBMIT; /* no prompt */
    q.n = 1;
    for (uint32_t i = 0; i < 2 * ITK_REFUSED_PER_S; i++) {
        fcl_send(&c, &q, NULL, 0, 0);
        fix_step(&f, 0);
        while (fcl_recv(&c, &r)) {
            memcpy(&e, r.data, sizeof(e));
            assert_true(r.h.type == FDP_T_ERROR && r.h.tag == 5);
            n_bad += e.code == FDP_E_BAD_PARAM;
            n_eager += e.code == FDP_E_LIMIT && e.retry_after_ms != 0;
            retry = e.retry_after_ms;
        }
        if (i == ITK_REFUSED_PER_S - 1)
            assert_int_equal(n_bad, ITK_REFUSED_PER_S);
        if (n_eager == ITK_EAGER_BATCH)
            break;
    }
    assert_int_equal(n_bad, ITK_REFUSED_PER_S);
    assert_int_equal(n_eager, ITK_EAGER_BATCH);
    assert_int_equal(f.g->env.cnt->requests_unseen, ITK_EAGER_BATCH);
    fcl_submit(&other, 1, 1, 4);
    fix_step(&f, 0);
    assert_int_equal(f.g->jnl.n_open, 1);
    /* not looked at; then, after what it was told, looked at as ever */
    fcl_send(&c, &q, NULL, 0, 0);
    fix_step(&f, 5);
    assert_int_equal(fcl_recv(&c, &r), 0);
    fix_step(&f, retry + 10);
    assert_true(fcl_recv(&c, &r));
    memcpy(&e, r.data, sizeof(e));
    assert_int_equal(e.code, FDP_E_BAD_PARAM);
    assert_int_equal(fcl_state(&c), FDP_ST_RUN);
    fcl_close(&c);
    fcl_close(&other);
    fix_step(&f, 0);
    fix_close(&f);
}

/* Who asks for the model until it is there is not slowed for it. */
static void
t_info_while_loading(void **state)
{
    struct fix f;
    struct fcl c;
    struct fdp_req q;

    (void)state;
    fix_open(&f, NULL);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (uint64_t tag = 1; tag <= 2 * ITK_REFUSED_PER_S; tag++) {
        memset(&q, 0, sizeof(q));
        q.op = tag % 2 != 0 ? FDP_OP_INFO : FDP_OP_FILE;
        q.tag = tag;
        fcl_send(&c, &q, NULL, 0, 0);
        fix_step(&f, 0);
        fcl_want_error(&c, tag, FDP_E_LOADING, 0);
    }
    fix_ready(&f);
    fcl_submit(&c, 9999, 1, 4);
    fix_step(&f, 0);
    assert_int_equal(f.g->jnl.n_open, 1);
    fcl_close(&c);
    fix_step(&f, 0);
    fix_close(&f);
}

/* Limits are answered, and do not end the session however many. */
static void
t_limits(void **state)
{
    static const char *const sets[] = { "sched.max_inflight_per_client=3",
        "sched.max_inflight_per_user=5", "sched.max_concurrency=6", NULL };
    struct fix f;
    struct fcl a, b, c;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &a, 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &b, 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &c, 1001, NULL), FDP_OK);
    for (unsigned i = 1; i <= 30; i++)
        fcl_submit(&a, i, 1, 4);
    fix_step(&f, 0);
    assert_int_equal(f.g->jnl.n_open, 3);
    for (unsigned i = 4; i <= 30; i++)
        fcl_want_error(&a, i, FDP_E_LIMIT, 0);
    for (unsigned i = 1; i <= 3; i++)
        fcl_submit(&b, i, 1, 4);
    fix_step(&f, 0);
    fcl_want_error(&b, 3, FDP_E_LIMIT, 0); /* the user has five */
    fcl_submit(&c, 1, 1, 4);
    fcl_submit(&c, 2, 1, 4);
    fix_step(&f, 0);
    fcl_want_error(&c, 2, FDP_E_QUEUE_FULL, 0);
    assert_int_equal(fcl_state(&a), FDP_ST_RUN);
    fcl_close(&a);
    fcl_close(&b);
    fcl_close(&c);
    fix_step(&f, 0);
    fix_close(&f);
}

static void
t_bytes_limit(void **state)
{
    static const char *const sets[] = { "sched.max_bytes_per_user=1048576",
        "sched.max_inflight_per_client=100", NULL };
    struct fix f;
    struct fcl c;
    struct frec r;
    unsigned n_ok = 0, n_limit = 0;

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (unsigned i = 1; i <= 12; i++) {
        fcl_submit(&c, i, 40000, 4); /* 160 kB; the model is not known yet */
        fix_step(&f, 0);
        if (fcl_recv(&c, &r)) {
            struct fdp_error e;

            memcpy(&e, r.data, sizeof(e));
            assert_int_equal(e.code, FDP_E_LIMIT);
            n_limit++;
        } else {
            n_ok++;
        }
    }
    assert_int_equal(n_ok, 6);
    assert_int_equal(n_limit, 6);
    assert_true(f.g->jnl.bytes <= 1048576);
    fcl_close(&c);
    fix_step(&f, 0);
    assert_int_equal(f.g->jnl.bytes, 0);
    fix_close(&f);
}

/* V7: a full ring of one client does not take the round from others. */
static void
t_bounded_round(void **state)
{
    struct fix f;
    struct fcl a, b;

    (void)state;
    fix_open(&f, NULL);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &a, 1000, NULL), FDP_OK);
    assert_int_equal(fcl_open(&f, &b, 1001, NULL), FDP_OK);
    for (unsigned i = 0; i < 200; i++)
        fcl_cancel(&a, 1 + i);
    fcl_submit(&b, 1, 1, 4);
    (void)gate_poll(f.g, f.now);
    assert_int_equal(f.g->env.cnt->cancels_unknown, ITK_BATCH);
    assert_int_equal(f.g->jnl.n_open, 1);
    fix_step(&f, 0);
    assert_int_equal(f.g->env.cnt->cancels_unknown, 200);
    fcl_close(&a);
    fcl_close(&b);
    fix_close(&f);
}

/* Requests that came before the model are checked when it is there. */
static void
t_late_check(void **state)
{
    unsigned char b[64] __attribute__((aligned(8)));
    uint32_t ids[2] = { 1, FIX_VOCAB };
    struct fix f;
    struct fcl c;
    struct fdp_req q;
    struct frec r;

    (void)state;
    fix_open(&f, NULL);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    assert_int_equal(c.w.vocab, 0);
    fcl_req(&q, FDP_OP_SUBMIT, 3);
    fcl_send(&c, &q, b, fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, 8), 0);
    fcl_req(&q, FDP_OP_SUBMIT, 4);
    q.max_new = FIX_MAX_LEN;
    fcl_send(&c, &q, b, fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, 4), 64);
    fcl_req(&q, FDP_OP_SUBMIT, 5);
    fcl_send(&c, &q, b, fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, 4), 128);
    fix_step(&f, 0);
    assert_int_equal(f.g->jnl.n_open, 3);
    fix_ready(&f);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_EVENT && r.h.tag == 0);
    fcl_want_error(&c, 3, FDP_E_BAD_TOKEN, FDP_D_PROMPT_ID);
    fcl_want_error(&c, 4, FDP_E_TOO_LONG, FDP_D_MAX_NEW);
    assert_int_equal(f.g->jnl.n_open, 1);
    assert_int_equal(f.g->env.cnt->requests_error, 2);
    fcl_close(&c);
    fix_close(&f);
}

/* output.default_max_tokens is not what a client wants: with a prompt that leaves less, it gets
 * less, whether the model was there or came later. */
static void
t_default_output(void **state)
{
    static const char *const sets[] = { "output.default_max_tokens=4000", NULL };
    static uint32_t ids[200];
    static unsigned char b[sizeof(ids) + 64] __attribute__((aligned(8)));
    struct lnk_submit sub;
    struct fix f;
    struct fcl c;
    struct fdp_req q;

    (void)state;
    fix_open(&f, sets);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (unsigned i = 1; i <= 2; i++) {
        fcl_req(&q, FDP_OP_SUBMIT, i);
        q.set &= ~FDP_S_MAX_NEW;
        q.max_new = 0;
        fcl_send(&c, &q, b, fcl_item(b, 0, FDP_IT_PROMPT_IDS, ids, sizeof(ids)), 0);
        fix_step(&f, 0);
        if (i == 1)
            fix_ready(&f);
        assert_true(fix_take(&f, &sub, NULL, NULL) != 0);
        assert_int_equal(sub.req.tag, i);
        assert_int_equal(sub.req.set & FDP_S_MAX_NEW, 0);
    }
    assert_int_equal(f.g->env.cnt->requests_error, 0);
    fcl_close(&c);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_scalars),
        cmocka_unit_test(t_no_logprobs),
        cmocka_unit_test(t_items),
        cmocka_unit_test(t_stops),
        cmocka_unit_test(t_unsupported),
        cmocka_unit_test(t_unset),
        cmocka_unit_test(t_bounds),
        cmocka_unit_test(t_spans),
        cmocka_unit_test(t_structs),
        cmocka_unit_test(t_model),
        cmocka_unit_test(t_model_prior),
        cmocka_unit_test(t_model_late),
        cmocka_unit_test(t_blob_bounds),
        cmocka_unit_test(t_duplicate_tag),
        cmocka_unit_test(t_error_rate),
        cmocka_unit_test(t_info_while_loading),
        cmocka_unit_test(t_limits),
        cmocka_unit_test(t_bytes_limit),
        cmocka_unit_test(t_bounded_round),
        cmocka_unit_test(t_late_check),
        cmocka_unit_test(t_default_output),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
