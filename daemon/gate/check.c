/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/check.h"

#include <string.h>

#include "daemon/common/link.h"
#include "daemon/common/param.h"
#include "daemon/common/text.h"
#include "libclient/fdproto.h"

#define CHK_TTL_MAX_MS 604800000u /* a week */

/* Items that this build refuses with E_UNSUPPORTED. Penalties other than
 * neutral are refused in the same way by chk_sampling(). */
static const struct chk_unsupported {
    uint16_t type;
    uint16_t detail;
} chk_unsupported[] = {
    { FDP_IT_LOGIT_BIAS, FDP_D_BIAS },
    { FDP_IT_BAD_WORDS, FDP_D_BAD_WORDS },
    { FDP_IT_ALLOWED_IDS, FDP_D_ALLOWED },
    { FDP_IT_GRAMMAR, FDP_D_GRAMMAR },
    { FDP_IT_CHAT, FDP_D_CHAT },
};

#define ITEM(t) (1u << FDP_IT_##t)
#define CHK_ONCE (ITEM(PROMPT_TEXT) | ITEM(PROMPT_IDS) | ITEM(PRIOR_IDS) |     \
    ITEM(STOP_IDS))
#define CHK_IDS (ITEM(PROMPT_IDS) | ITEM(PRIOR_IDS) | ITEM(STOP_IDS))

/* Items each operation takes. */
static const uint32_t chk_allowed[FDP_OP__N] = {
    [FDP_OP_SUBMIT] = ITEM(PROMPT_TEXT) | ITEM(PROMPT_IDS) | ITEM(PRIOR_IDS) |
        ITEM(STOP_STRING) | ITEM(STOP_IDS),
    [FDP_OP_TOKENIZE] = ITEM(PROMPT_TEXT),
    [FDP_OP_DETOKENIZE] = ITEM(PROMPT_IDS),
};

static const uint32_t chk_flags[FDP_OP__N] = {
    [FDP_OP_SUBMIT] = FDP_F__ALL & ~FDP_F_DEEP,
    [FDP_OP_CANCEL] = 0,
    [FDP_OP_TOKENIZE] = FDP_F_NO_SPECIAL | FDP_F_PARSE_SPECIAL | FDP_F_PROMPT_IDS,
    [FDP_OP_DETOKENIZE] = FDP_F_KEEP_SPECIAL | FDP_F_TEXT,
    [FDP_OP_INFO] = 0,
    [FDP_OP_PING] = FDP_F_DEEP,
};

int
chk_fail(struct chk_err *e, int code, unsigned detail, uint64_t arg)
{
    e->code = code;
    e->detail = detail;
    e->arg = arg > UINT32_MAX ? UINT32_MAX : (uint32_t)arg;
    e->retry_ms = 0;
    return 1;
}

void
chk_limits(const struct par *par, const struct lnk_ready *ready, int trusted,
    struct chk_limits *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->max_logprobs = par_max_logprobs(par);
    ret->default_max_new = (uint32_t)par->output_default_max_tokens;
    ret->trusted = trusted;
    ret->has_tokenizer = -1;
    if (ready == NULL)
        return;
    ret->vocab = ready->info.vocab;
    ret->max_model_len = ready->info.max_model_len;
    ret->has_tokenizer = ready->info.has_tokenizer != 0;
    if (ret->max_logprobs > (int32_t)ready->info.max_logprobs)
        ret->max_logprobs = (int32_t)ready->info.max_logprobs;
}

/* A float as the argument of an error: its bits. */
static uint32_t
chk_bits(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    return u;
}

static int
chk_penalties(const struct fdp_req *q, struct chk_err *e)
{
    float p[3] = { q->presence_penalty, q->frequency_penalty, q->repetition_penalty };

    for (int i = 0; i < 2; i++) {
        if (!(p[i] >= -2.0f && p[i] <= 2.0f))
            return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_PENALTY, chk_bits(p[i]));
    }
    if (!(p[2] >= FDP_MIN_REPETITION && p[2] <= 2.0f))
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_PENALTY, chk_bits(p[2]));
    return 0;
}

static int
chk_logprobs(const struct fdp_req *q, const struct chk_limits *lim,
    struct chk_err *e)
{
    int32_t most = lim->max_logprobs;

    if (most < 0 && (q->flags & (FDP_F_LOGPROBS | FDP_F_PROMPT_LOGPROBS)) != 0)
        return chk_fail(e, FDP_E_UNSUPPORTED, FDP_D_LOGPROBS, 0);
    most = most < 0 ? 0 : most;
    if (q->logprobs > most)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_LOGPROBS, q->logprobs);
    if (q->prompt_logprobs > most)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_LOGPROBS, q->prompt_logprobs);
    return 0;
}

static int
chk_sampling(const struct fdp_req *q, const struct chk_limits *lim,
    struct chk_err *e)
{
    if (q->n < 1 || q->n > FDP_MAX_N)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_N, q->n);
    if (lim->max_model_len != 0 && q->max_new > lim->max_model_len)
        return chk_fail(e, FDP_E_TOO_LONG, FDP_D_MAX_NEW, lim->max_model_len);
    if (q->max_new != 0 && q->min_new > q->max_new)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_MIN_NEW, q->min_new);
    if (lim->max_model_len != 0 && q->min_new > lim->max_model_len)
        return chk_fail(e, FDP_E_TOO_LONG, FDP_D_MIN_NEW, lim->max_model_len);
    if (!(q->temperature >= 0.0f && q->temperature <= 100.0f))
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_TEMPERATURE, chk_bits(q->temperature));
    if (!(q->top_p > 0.0f && q->top_p <= 1.0f))
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_TOP_P, chk_bits(q->top_p));
    if (q->top_k > INT32_MAX)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_TOP_K, q->top_k);
    if (!(q->min_p >= 0.0f && q->min_p <= 1.0f))
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_MIN_P, chk_bits(q->min_p));
    if (chk_logprobs(q, lim, e))
        return 1;
    if (q->n_prior != 0 && q->n != 1)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_PRIOR, q->n_prior);
    return chk_penalties(q, e);
}

int
chk_req(const struct fdp_req *q, const struct chk_limits *lim,
    struct chk_err *ret_err)
{
    struct chk_err *e = ret_err;

    if (q->op == 0 || q->op >= FDP_OP__N)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_OP, q->op);
    if (q->flags & ~chk_flags[q->op])
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_FLAGS, q->flags & ~chk_flags[q->op]);
    for (size_t i = 0; i < sizeof(q->rsv); i++) {
        if (q->rsv[i] != 0)
            return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_RESERVED, q->rsv[i]);
    }
    if (q->tag == 0)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_TAG, 0);
    if (q->op == FDP_OP_CANCEL)
        return 0;
    if (q->ttl_queue_ms > CHK_TTL_MAX_MS)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_TTL, q->ttl_queue_ms);
    if (q->ttl_total_ms > CHK_TTL_MAX_MS)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_TTL, q->ttl_total_ms);
    if (q->user != 0 && !lim->trusted)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_USER, q->user);
    if (q->op == FDP_OP_SUBMIT)
        return chk_sampling(q, lim, e);
    return 0;
}

/* One item; at most a few comparisons, text and ids are looked at once. most: the
 * largest of its ids. */
static int
chk_item(const struct fdp_item *it, const unsigned char *p, uint16_t op, uint32_t most,
    struct chk_items *n, struct chk_err *e)
{
    size_t ok;

    for (size_t i = 0; i < sizeof(chk_unsupported) / sizeof(chk_unsupported[0]); i++) {
        if (it->type == chk_unsupported[i].type)
            return chk_fail(e, FDP_E_UNSUPPORTED, chk_unsupported[i].detail, it->type);
    }
    if (!(chk_allowed[op] & (1u << it->type)))
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_ITEM, it->type);
    switch (it->type) {
    case FDP_IT_PROMPT_TEXT: /* its bytes: chk_text() */
        n->has_text = 1;
        n->prompt_text_bytes = it->len;
        return 0;
    case FDP_IT_PROMPT_IDS:
        if (it->len % 4 != 0)
            return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_PROMPT, it->len);
        n->has_ids = 1;
        n->n_prompt_ids = it->len / 4;
        n->most_prompt = most;
        return 0;
    case FDP_IT_PRIOR_IDS:
        if (it->len % 4 != 0)
            return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_PRIOR, it->len);
        n->n_prior = it->len / 4;
        n->most_prior = most;
        return 0;
    case FDP_IT_STOP_STRING:
        if (it->len == 0 || it->len > FDP_MAX_STOP_LEN)
            return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_STOP, it->len);
        if (++n->n_stop > FDP_MAX_STOP)
            return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_STOP, n->n_stop);
        ok = txt_utf8(p, it->len);
        if (ok != it->len)
            return chk_fail(e, FDP_E_BAD_TEXT, FDP_D_STOP, ok);
        return 0;
    default: /* FDP_IT_STOP_IDS */
        if (it->len % 4 != 0 || it->len / 4 > FDP_MAX_STOP_IDS)
            return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_STOP, it->len / 4);
        n->n_stop_ids = it->len / 4;
        n->most_stop = most;
        return 0;
    }
}

/* What must and must not be together. */
static int
chk_set(const struct fdp_req *q, const struct chk_items *n, struct chk_err *e)
{
    int want_text = q->op == FDP_OP_TOKENIZE;
    int want_ids = q->op == FDP_OP_DETOKENIZE;

    if (q->op == FDP_OP_INFO || q->op == FDP_OP_PING)
        return 0;
    if (n->has_text && n->has_ids)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_PROMPT, 2);
    if ((want_text && !n->has_text) || (want_ids && !n->has_ids) ||
        (!n->has_text && !n->has_ids))
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_PROMPT, 0);
    if (q->op == FDP_OP_SUBMIT && n->has_ids && n->n_prompt_ids == 0)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_PROMPT, 0);
    if (q->op == FDP_OP_SUBMIT && n->n_prior != q->n_prior)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_PRIOR, n->n_prior);
    return 0;
}

/* As much of a text as is there. have: bytes of it; a character may be cut. */
static int
chk_text(struct chk_scan *sc, const struct fdp_item *it, const unsigned char *p,
    uint64_t have, struct chk_err *e)
{
    uint64_t end = have < it->len ? have : it->len;

    sc->looked += txt_utf8(p + sc->looked, end - sc->looked);
    if (sc->looked != end && (end == it->len || end - sc->looked >= CHK_CHAR_MAX))
        return chk_fail(e, FDP_E_BAD_TEXT, FDP_D_PROMPT, sc->looked);
    return 0;
}

/* As many ids as are there. */
static void
chk_ids(struct chk_scan *sc, const struct fdp_item *it, const unsigned char *p,
    uint64_t have)
{
    uint64_t n = (have < it->len ? have : it->len) / 4;
    uint32_t id, most = sc->most;

    for (uint64_t i = sc->looked / 4; i < n; i++) {
        memcpy(&id, p + i * 4, 4);
        most = id > most ? id : most;
    }
    sc->most = most;
    sc->looked = n * 4;
}

/* The item at sc->at, of which have bytes are there. */
static int
chk_scan_item(struct chk_scan *sc, const struct fdp_req *q, const struct fdp_item *it,
    const unsigned char *p, uint64_t have, struct chk_err *e)
{
    uint64_t span = FDP_ITEM_SPAN(it->len);
    uint32_t most;

    if (it->type == FDP_IT_PROMPT_TEXT && (chk_allowed[q->op] & (1u << it->type)) &&
        chk_text(sc, it, p + sizeof(*it), have - sizeof(*it), e))
        return 1;
    if ((CHK_IDS & (1u << it->type)) != 0)
        chk_ids(sc, it, p + sizeof(*it), have - sizeof(*it));
    if (have < span)
        return 0;
    for (uint64_t i = sizeof(*it) + it->len; i < span; i++) {
        if (p[i] != 0)
            return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_RESERVED, p[i]);
    }
    if ((sc->seen & (1u << it->type) & CHK_ONCE) != 0)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_ITEM, it->type);
    sc->seen |= 1u << it->type;
    most = sc->most;
    sc->at += span;
    sc->looked = sc->most = 0;
    return chk_item(it, p + sizeof(*it), q->op, most, &sc->items, e);
}

int
chk_scan(struct chk_scan *sc, const struct fdp_req *q, const unsigned char *blob,
    uint32_t have, struct chk_err *ret_err)
{
    while (sc->at < q->len) {
        struct fdp_item it;
        uint64_t before = sc->at;

        if (q->len - sc->at < sizeof(it))
            return chk_fail(ret_err, FDP_E_BAD_PARAM, FDP_D_BLOB, q->len - sc->at);
        if (have < sc->at + sizeof(it))
            return 0;
        memcpy(&it, blob + sc->at, sizeof(it));
        if (it.type == 0 || it.type >= FDP_IT__N)
            return chk_fail(ret_err, FDP_E_BAD_PARAM, FDP_D_ITEM, it.type);
        if (it.rsv != 0)
            return chk_fail(ret_err, FDP_E_BAD_PARAM, FDP_D_RESERVED, it.rsv);
        if (FDP_ITEM_SPAN(it.len) > q->len - sc->at)
            return chk_fail(ret_err, FDP_E_BAD_PARAM, FDP_D_BLOB, it.len);
        if (chk_scan_item(sc, q, &it, blob + sc->at, have - sc->at, ret_err))
            return 1;
        if (sc->at == before) /* the rest of it is not there yet */
            return 0;
    }
    return have < q->len ? 0 : chk_set(q, &sc->items, ret_err);
}

int
chk_model(const struct fdp_req *q, const struct chk_items *n, const struct chk_limits *lim,
    struct chk_err *ret_err)
{
    const struct { unsigned detail; uint32_t most; } ids[] = {
        { FDP_D_PROMPT_ID, n->most_prompt }, { FDP_D_PRIOR, n->most_prior },
        { FDP_D_STOP, n->most_stop } };
    uint64_t n_prompt = (uint64_t)n->n_prompt_ids + n->n_prior;

    if (n->has_text && lim->has_tokenizer == 0)
        return chk_fail(ret_err, FDP_E_NO_MODEL, FDP_D_PROMPT, 0);
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        if (ids[i].most != 0 && ids[i].most >= lim->vocab)
            return chk_fail(ret_err, FDP_E_BAD_TOKEN, ids[i].detail, ids[i].most);
    }
    if (q->op != FDP_OP_SUBMIT)
        return 0;
    if (q->max_new > lim->max_model_len)
        return chk_fail(ret_err, FDP_E_TOO_LONG, FDP_D_MAX_NEW, lim->max_model_len);
    if (n_prompt >= lim->max_model_len)
        return chk_fail(ret_err, FDP_E_TOO_LONG, FDP_D_PROMPT, lim->max_model_len);
    if (n_prompt + q->max_new > lim->max_model_len)
        return chk_fail(ret_err, FDP_E_TOO_LONG, FDP_D_MAX_NEW, lim->max_model_len);
    return 0;
}
