/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/check.h"

#include <string.h>

#include "daemon/common/link.h"
#include "daemon/common/param.h"
#include "daemon/common/text.h"
#include "libclient/fdproto.h"

#define CHK_TTL_MAX_MS 604800000u /* a week: limit of ttl_queue_ms and ttl_total_ms */

/* Rules for each item type. ops 0: this build rejects it. */
struct chk_rule {
    uint32_t ops; /* bits 1 << FDP_OP_*: operations that may have it */
    uint32_t size, least, most, times;
    uint8_t known, version, detail;
};

#define CHK_OPS_S    (1u << FDP_OP_SUBMIT)
#define CHK_OPS_ST   (CHK_OPS_S | 1u << FDP_OP_TOKENIZE)
#define CHK_OPS_SD   (CHK_OPS_S | 1u << FDP_OP_DETOKENIZE)
#define CHK_OPS_F    (1u << FDP_OP_FILE)
#define CHK_OPS_NONE 0

static const struct chk_rule chk_rules[FDP_IT__N] = {
#define FDP_ITEM(name, value, version_, text, ops_, size_, least_, most_, times_, detail_) \
    [FDP_IT_##name] = { .ops = CHK_OPS_##ops_, \
        .size = size_, \
        .least = least_, \
        .most = most_, \
        .times = times_, \
        .known = 1, \
        .version = version_, \
        .detail = FDP_D_##detail_ },
#include "libclient/tbl/items.h"
#undef FDP_ITEM
};

#define ITEM(t) (1u << FDP_IT_##t)
#define CHK_IDS \
    (ITEM(PROMPT_IDS) | ITEM(PRIOR_IDS) | ITEM(STOP_IDS) | ITEM(ALLOWED_IDS) | \
        ITEM(BAD_IDS) | ITEM(LOGPROB_IDS))
#define CHK_TEXTS (ITEM(STOP_STRING) | ITEM(BAD_WORDS) | ITEM(ADAPTER))
/* A sequence with one of these items takes an entry of the pool that penalties use,
 * too. */
#define CHK_RULES \
    (ITEM(LOGIT_BIAS) | ITEM(BAD_WORDS) | ITEM(ALLOWED_IDS) | ITEM(BAD_IDS) | \
        ITEM(LOGPROB_IDS) | ITEM(REASONING))

#define CHK_MAX_BIAS        100.0f
#define CHK_MAX_TEMPERATURE 100.0f

static const uint32_t chk_flags[FDP_OP__N] = {
    [FDP_OP_SUBMIT] = FDP_F__ALL & ~FDP_F_DEEP,
    [FDP_OP_CANCEL] = 0,
    [FDP_OP_TOKENIZE] = FDP_F_NO_SPECIAL | FDP_F_PARSE_SPECIAL | FDP_F_PROMPT_IDS,
    [FDP_OP_DETOKENIZE] = FDP_F_KEEP_SPECIAL | FDP_F_TEXT,
    [FDP_OP_INFO] = 0,
    [FDP_OP_PING] = FDP_F_DEEP,
    [FDP_OP_FILE] = 0,
};

static uint32_t
chk_u32(uint64_t v)
{
    return v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
}

int
chk_over(struct chk_err *e, int code, unsigned detail, uint64_t arg, uint64_t limit)
{
    e->code = code;
    e->detail = detail;
    e->arg = chk_u32(arg);
    e->limit = chk_u32(limit);
    e->item = e->retry_ms = 0;
    return 1;
}

int
chk_fail(struct chk_err *e, int code, unsigned detail, uint64_t arg)
{
    return chk_over(e, code, detail, arg, 0);
}

struct fdp_error
chk_tell(const struct chk_err *e)
{
    return (struct fdp_error){ .code = e->code,
        .detail = e->detail,
        .arg = e->arg,
        .limit = e->limit,
        .item = e->item };
}

uint64_t
chk_offered(const struct par *par)
{
    uint64_t set = 0;

    for (unsigned i = 0; i < FDP_IT__N; i++)
        set |= (uint64_t)(chk_rules[i].ops != 0) << i;
    return par->sched_max_penalty_seqs > 0 ? set : set & ~(uint64_t)CHK_RULES;
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

/* The bits of a float, as an error's argument. */
static uint32_t
chk_bits(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    return u;
}

/* A float between two bounds; NaN is outside. above: the lower bound itself is
 * excluded. */
static int
chk_float(struct chk_err *e, unsigned detail, float v, float least, float most, int above)
{
    if (above ? v > least && v <= most : v >= least && v <= most)
        return 0;
    return chk_over(e, FDP_E_BAD_PARAM, detail, chk_bits(v),
        chk_bits(v > most ? most : least));
}

/* FDP_S_* bits of the fields that are not 0 (floats: whose bits are not 0). Without
 * branches, since it runs for every request. */
static uint32_t
chk_given(const struct fdp_req *q)
{
#define CHK_IF(bit, v) ((v) != 0 ? FDP_S_##bit : 0)
    return CHK_IF(MAX_NEW, q->max_new) | CHK_IF(TEMPERATURE, chk_bits(q->temperature)) |
        CHK_IF(TOP_P, chk_bits(q->top_p)) | CHK_IF(TOP_K, q->top_k) |
        CHK_IF(MIN_P, chk_bits(q->min_p)) |
        CHK_IF(PRESENCE, chk_bits(q->presence_penalty)) |
        CHK_IF(FREQUENCY, chk_bits(q->frequency_penalty)) |
        CHK_IF(REPETITION, chk_bits(q->repetition_penalty)) |
        CHK_IF(LOGPROBS, q->logprobs) |
        CHK_IF(PROMPT_LOGPROBS, q->prompt_logprobs | q->prompt_from) |
        CHK_IF(SEED, q->seed);
#undef CHK_IF
}

/* A field whose FDP_S_* bit is not set must be 0. */
static int
chk_unset(const struct fdp_req *q, struct chk_err *e)
{
    uint32_t given = chk_given(q) & ~q->set;

    if (q->set & ~FDP_S__ALL)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_SET, q->set & ~FDP_S__ALL);
    if (given != 0) /* the lowest of these bits */
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_SET, given & -given);
    return 0;
}

static int
chk_logprobs(const struct fdp_req *q, const struct chk_limits *lim, struct chk_err *e)
{
    uint32_t most = lim->max_logprobs < 0 ? 0 : (uint32_t)lim->max_logprobs;

    if (lim->max_logprobs < 0 && (q->set & FDP_S_LOGPROBS) != 0)
        return chk_fail(e, FDP_E_UNSUPPORTED, FDP_D_LOGPROBS, 0);
    if (lim->max_logprobs < 0 && (q->set & FDP_S_PROMPT_LOGPROBS) != 0)
        return chk_fail(e, FDP_E_UNSUPPORTED, FDP_D_PROMPT_LOGPROBS, 0);
    if (q->logprobs > most)
        return chk_over(e, FDP_E_BAD_PARAM, FDP_D_LOGPROBS, q->logprobs, most);
    if (q->prompt_logprobs > most)
        return chk_over(e, FDP_E_BAD_PARAM, FDP_D_PROMPT_LOGPROBS, q->prompt_logprobs, most);
    return 0;
}

static int
chk_counts(const struct fdp_req *q, const struct chk_limits *lim, struct chk_err *e)
{
    if (q->n < 1 || q->n > FDP_MAX_N)
        return chk_over(e, FDP_E_BAD_PARAM, FDP_D_N, q->n, q->n < 1 ? 1 : FDP_MAX_N);
    if (q->best_of > FDP_MAX_N || (q->best_of != 0 && q->best_of < q->n))
        return chk_over(e, FDP_E_BAD_PARAM, FDP_D_BEST_OF, q->best_of,
            q->best_of > FDP_MAX_N ? FDP_MAX_N : q->n);
    if (q->best_of > q->n && lim->max_logprobs < 0)
        return chk_fail(e, FDP_E_UNSUPPORTED, FDP_D_BEST_OF, q->best_of);
    if (lim->max_model_len != 0 && q->max_new > lim->max_model_len)
        return chk_over(e, FDP_E_TOO_LONG, FDP_D_MAX_NEW, q->max_new, lim->max_model_len);
    if ((q->set & FDP_S_MAX_NEW) != 0 && q->min_new > q->max_new)
        return chk_over(e, FDP_E_BAD_PARAM, FDP_D_MIN_NEW, q->min_new, q->max_new);
    if (lim->max_model_len != 0 && q->min_new > lim->max_model_len)
        return chk_over(e, FDP_E_TOO_LONG, FDP_D_MIN_NEW, q->min_new, lim->max_model_len);
    if (q->n_prior != 0 && (q->n != 1 || q->best_of > 1))
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_PRIOR, q->n_prior);
    return chk_logprobs(q, lim, e);
}

/* Checks the ranges of the fields that are set. */
static int
chk_sampling(const struct fdp_req *q, struct chk_err *e)
{
    uint32_t set = q->set;

    return ((set & FDP_S_TEMPERATURE) != 0 &&
               chk_float(e, FDP_D_TEMPERATURE, q->temperature, 0, CHK_MAX_TEMPERATURE, 0)) ||
        ((set & FDP_S_TOP_P) != 0 && chk_float(e, FDP_D_TOP_P, q->top_p, 0, 1, 1)) ||
        (q->top_k > INT32_MAX &&
            chk_over(e, FDP_E_BAD_PARAM, FDP_D_TOP_K, q->top_k, INT32_MAX)) ||
        chk_float(e, FDP_D_MIN_P, q->min_p, 0, 1, 0) ||
        chk_float(e, FDP_D_PRESENCE, q->presence_penalty, -2, 2, 0) ||
        chk_float(e, FDP_D_FREQUENCY, q->frequency_penalty, -2, 2, 0) ||
        ((set & FDP_S_REPETITION) != 0 &&
            chk_float(e, FDP_D_PENALTY, q->repetition_penalty, FDP_MIN_REPETITION, 2, 0));
}

int
chk_req(const struct fdp_req *q, const struct chk_limits *lim, struct chk_err *ret_err)
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
        return chk_over(e, FDP_E_BAD_PARAM, FDP_D_TTL, q->ttl_queue_ms, CHK_TTL_MAX_MS);
    if (q->ttl_total_ms > CHK_TTL_MAX_MS)
        return chk_over(e, FDP_E_BAD_PARAM, FDP_D_TTL, q->ttl_total_ms, CHK_TTL_MAX_MS);
    if (q->user != 0 && !lim->trusted)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_USER, q->user);
    if (q->op != FDP_OP_SUBMIT)
        return 0;
    return chk_unset(q, e) || chk_counts(q, lim, e) || chk_sampling(q, e);
}

/* ---- one item ------------------------------------------------------------------ */

static int
chk_biases(const unsigned char *p, uint32_t n, uint32_t *ret_most, struct chk_err *e)
{
    struct fdp_bias b;

    for (uint32_t i = 0; i < n; i++) {
        memcpy(&b, p + (size_t)i * sizeof(b), sizeof(b));
        *ret_most = b.id > *ret_most ? b.id : *ret_most;
        if (chk_float(e, FDP_D_BIAS, b.bias, -CHK_MAX_BIAS, CHK_MAX_BIAS, 0))
            return 1;
    }
    return 0;
}

static int
chk_spans(const unsigned char *p, uint32_t n, struct chk_err *e)
{
    uint64_t end = 0;
    struct fdp_span sp;

    for (uint32_t i = 0; i < n; i++) {
        memcpy(&sp, p + (size_t)i * sizeof(sp), sizeof(sp));
        if (sp.len == 0 || sp.off < end)
            return chk_over(e, FDP_E_BAD_PARAM, FDP_D_SPANS, sp.len == 0 ? 0 : sp.off, end);
        end = (uint64_t)sp.off + sp.len;
    }
    return 0;
}

static int
chk_repetition(const unsigned char *p, struct chk_err *e)
{
    struct fdp_repetition r;

    memcpy(&r, p, sizeof(r));
    if (r.rsv != 0)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_RESERVED, r.rsv);
    if (r.max_len < 1 || r.max_len > FDP_MAX_REPEAT)
        return chk_over(e, FDP_E_BAD_PARAM, FDP_D_REPETITION, r.max_len,
            r.max_len < 1 ? 1 : FDP_MAX_REPEAT);
    if (r.min_len < 1 || r.min_len > r.max_len)
        return chk_over(e, FDP_E_BAD_PARAM, FDP_D_REPETITION, r.min_len,
            r.min_len < 1 ? 1 : r.max_len);
    if (r.count < 2 || r.count > FDP_MAX_REPEATS)
        return chk_over(e, FDP_E_BAD_PARAM, FDP_D_REPETITION, r.count,
            r.count < 2 ? 2 : FDP_MAX_REPEATS);
    return 0;
}

static int
chk_reasoning(const unsigned char *p, uint32_t *ret_most, struct chk_err *e)
{
    struct fdp_reasoning r;

    memcpy(&r, p, sizeof(r));
    if (r.rsv != 0)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_RESERVED, r.rsv);
    if (r.open_id == r.close_id)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_REASONING, r.close_id);
    *ret_most = r.open_id > r.close_id ? r.open_id : r.close_id;
    return 0;
}

static int
chk_file(const unsigned char *p, uint32_t len, struct chk_err *e)
{
    struct fdp_file_ask f;
    size_t ok;

    memcpy(&f, p, sizeof(f));
    if (f.rsv != 0)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_RESERVED, f.rsv);
    if (f.len < 1 || f.len > FDP_MAX_FILE_READ)
        return chk_over(e, FDP_E_BAD_PARAM, FDP_D_FILE, f.len, FDP_MAX_FILE_READ);
    ok = txt_utf8(p + sizeof(f), len - sizeof(f));
    return ok != len - sizeof(f) ? chk_fail(e, FDP_E_BAD_TEXT, FDP_D_FILE, ok) : 0;
}

/* Checks the payload of an item whose length its rule allows. most: the largest of its
 * ids. */
static int
chk_payload(struct chk_scan *sc, const struct fdp_item *it, const unsigned char *p,
    uint32_t *most, struct chk_err *e)
{
    const struct chk_rule *u = &chk_rules[it->type];
    struct chk_items *n = &sc->items;
    size_t ok;

    if ((CHK_TEXTS & (1u << it->type)) != 0) {
        ok = txt_utf8(p, it->len);
        return ok != it->len ? chk_fail(e, FDP_E_BAD_TEXT, u->detail, ok) : 0;
    }
    switch (it->type) {
    case FDP_IT_PROMPT_TEXT: /* chk_text() checks its bytes */
        n->has_text = 1;
        n->prompt_text_bytes = it->len;
        sc->text_at = (uint32_t)sc->at + (uint32_t)sizeof(*it);
        return 0;
    case FDP_IT_PROMPT_IDS:
        n->has_ids = 1;
        n->n_prompt_ids = it->len / 4;
        return 0;
    case FDP_IT_PRIOR_IDS:
        n->n_prior = it->len / 4;
        return 0;
    case FDP_IT_LOGIT_BIAS:
        return chk_biases(p, it->len / 8, most, e);
    case FDP_IT_SPANS:
        sc->spans_at = (uint32_t)sc->at + (uint32_t)sizeof(*it);
        sc->n_spans = it->len / 8;
        return chk_spans(p, sc->n_spans, e);
    case FDP_IT_REPETITION:
        return chk_repetition(p, e);
    case FDP_IT_REASONING:
        return chk_reasoning(p, most, e);
    case FDP_IT_FILE:
        return chk_file(p, it->len, e);
    }
    return 0;
}

/* Checks a complete item: its rule, then its payload. */
static int
chk_item(struct chk_scan *sc, const struct fdp_item *it, const unsigned char *p,
    struct chk_err *e)
{
    const struct chk_rule *u = &chk_rules[it->type];
    uint32_t most = sc->most, n = it->len / u->size;

    if (it->len % u->size != 0)
        return chk_over(e, FDP_E_BAD_PARAM, u->detail, it->len, u->size);
    if (n < u->least || n > u->most)
        return chk_over(e, FDP_E_BAD_PARAM, u->detail, n, n < u->least ? u->least : u->most);
    if (sc->n[it->type] >= u->times)
        return chk_over(e, FDP_E_BAD_PARAM, u->times == 1 ? FDP_D_ITEM : u->detail,
            u->times == 1 ? it->type : sc->n[it->type] + 1u, u->times);
    sc->n[it->type]++;
    if (chk_payload(sc, it, p, &most, e))
        return 1;
    if (most > sc->items.most[it->type])
        sc->items.most[it->type] = most;
    if (most > sc->items.most_id)
        sc->items.most_id = most;
    return 0;
}

/* Checks an item's header: is the type known, its version known, offered, and allowed for
 * this operation? */
static int
chk_head(const struct fdp_req *q, const struct fdp_item *it, struct chk_err *e)
{
    const struct chk_rule *u;

    if (it->type >= FDP_IT__N || !chk_rules[it->type].known)
        return chk_fail(e, FDP_E_UNSUPPORTED, FDP_D_ITEM, it->type);
    u = &chk_rules[it->type];
    if (it->rsv != 0)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_RESERVED, it->rsv);
    if (u->ops == 0)
        return chk_fail(e, FDP_E_UNSUPPORTED, u->detail, it->type);
    if (it->version > u->version)
        return chk_over(e, FDP_E_UNSUPPORTED, FDP_D_ITEM, it->version, u->version);
    if (!(u->ops & (1u << q->op)))
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_ITEM, it->type);
    return 0;
}

/* ---- all items ----------------------------------------------------------------- */

static int
chk_is_inside(const unsigned char *text, uint32_t n, uint32_t at)
{
    return at < n && (text[at] & 0xc0) == 0x80; /* a continuation byte */
}

/* Checks that the spans are within the text and end between characters. */
static int
chk_in_text(const struct chk_scan *sc, const unsigned char *blob, struct chk_err *e)
{
    const unsigned char *text = blob + sc->text_at;
    uint32_t n = sc->items.prompt_text_bytes;
    struct fdp_span sp;

    for (uint32_t i = 0; i < sc->n_spans; i++) {
        memcpy(&sp, blob + sc->spans_at + (size_t)i * sizeof(sp), sizeof(sp));
        if ((uint64_t)sp.off + sp.len > n)
            (void)chk_over(e, FDP_E_BAD_PARAM, FDP_D_SPANS, (uint64_t)sp.off + sp.len, n);
        else if (chk_is_inside(text, n, sp.off) || chk_is_inside(text, n, sp.off + sp.len))
            (void)chk_fail(e, FDP_E_BAD_TEXT, FDP_D_SPANS, sp.off);
        else
            continue;
        e->item = FDP_IT_SPANS;
        return 1;
    }
    return 0;
}

/* Checks which items are required together and which exclude each other. */
static int
chk_set(const struct fdp_req *q, const struct chk_scan *sc, const unsigned char *blob,
    struct chk_err *e)
{
    const struct chk_items *n = &sc->items;
    int want_text = q->op == FDP_OP_TOKENIZE;
    int want_ids = q->op == FDP_OP_DETOKENIZE;

    if (q->op == FDP_OP_INFO || q->op == FDP_OP_PING)
        return 0;
    if (q->op == FDP_OP_FILE)
        return sc->n[FDP_IT_FILE] ? 0 : chk_fail(e, FDP_E_BAD_PARAM, FDP_D_FILE, 0);
    if (n->has_text && n->has_ids)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_PROMPT, 2);
    if ((want_text && !n->has_text) || (want_ids && !n->has_ids) ||
        (!n->has_text && !n->has_ids))
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_PROMPT, 0);
    if (q->op == FDP_OP_SUBMIT && n->has_ids && n->n_prompt_ids == 0)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_PROMPT, 0);
    if (q->op == FDP_OP_SUBMIT && n->n_prior != q->n_prior)
        return chk_over(e, FDP_E_BAD_PARAM, FDP_D_PRIOR, n->n_prior, q->n_prior);
    if (sc->n_spans != 0 && !n->has_text)
        return chk_fail(e, FDP_E_BAD_PARAM, FDP_D_SPANS, sc->n_spans);
    if (sc->n[FDP_IT_LOGPROB_IDS] != 0 && !(q->set & FDP_S_LOGPROBS)) {
        (void)chk_fail(e, FDP_E_BAD_PARAM, FDP_D_SET, FDP_S_LOGPROBS);
        e->item = FDP_IT_LOGPROB_IDS;
        return 1;
    }
    return sc->n_spans != 0 ? chk_in_text(sc, blob, e) : 0;
}

/* Checks the bytes of a text that have arrived. have: their number; the last character
 * may be cut. */
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

/* Looks at the ids that have arrived. */
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

/* Checks the item at sc->at, the first `have` bytes of which have arrived. */
static int
chk_scan_item(struct chk_scan *sc, const struct fdp_item *it, const unsigned char *p,
    uint64_t have, struct chk_err *e)
{
    uint64_t span = FDP_ITEM_SPAN(it->len);

    if (it->type == FDP_IT_PROMPT_TEXT &&
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
    if (chk_item(sc, it, p + sizeof(*it), e))
        return 1;
    sc->at += span;
    sc->looked = sc->most = 0;
    return 0;
}

/* Checks the next item, or the bytes of it that have arrived. */
static int
chk_scan_next(struct chk_scan *sc, const struct fdp_req *q, const unsigned char *blob,
    uint32_t have, struct chk_err *e)
{
    struct fdp_item it;

    memcpy(&it, blob + sc->at, sizeof(it));
    if (chk_head(q, &it, e) == 0 &&
        (FDP_ITEM_SPAN(it.len) > q->len - sc->at
                ? chk_fail(e, FDP_E_BAD_PARAM, FDP_D_BLOB, it.len)
                : chk_scan_item(sc, &it, blob + sc->at, have - sc->at, e)) == 0)
        return 0;
    e->item = it.type;
    return 1;
}

int
chk_scan(struct chk_scan *sc, const struct fdp_req *q, const unsigned char *blob,
    uint32_t have, struct chk_err *ret_err)
{
    while (sc->at < q->len) {
        uint64_t before = sc->at;

        if (q->len - sc->at < sizeof(struct fdp_item))
            return chk_fail(ret_err, FDP_E_BAD_PARAM, FDP_D_BLOB, q->len - sc->at);
        if (have < sc->at + sizeof(struct fdp_item))
            return 0;
        if (chk_scan_next(sc, q, blob, have, ret_err))
            return 1;
        if (sc->at == before) /* the rest of it has not arrived yet */
            return 0;
    }
    return have < q->len ? 0 : chk_set(q, sc, blob, ret_err);
}

/* Checks the largest ids against the vocabulary. */
static int
chk_vocab(const struct chk_items *n, uint32_t vocab, struct chk_err *e)
{
    if (n->most_id < vocab)
        return 0;
    for (uint32_t i = 0; i < FDP_IT__N; i++) {
        if (n->most[i] == 0 || n->most[i] < vocab)
            continue;
        (void)chk_over(e, FDP_E_BAD_TOKEN,
            i == FDP_IT_PROMPT_IDS ? FDP_D_PROMPT_ID : chk_rules[i].detail, n->most[i],
            vocab - 1);
        e->item = i;
        return 1;
    }
    return 0;
}

int
chk_model(const struct fdp_req *q, const struct chk_items *n,
    const struct chk_limits *lim, struct chk_err *ret_err)
{
    uint64_t n_prompt = n->n_prompt_ids, most = lim->max_model_len;
    int scored = (q->set & FDP_S_MAX_NEW) != 0 && q->max_new == 0;

    if (n->has_text && lim->has_tokenizer == 0)
        return chk_fail(ret_err, FDP_E_NO_MODEL, FDP_D_PROMPT, 0);
    if (chk_vocab(n, lim->vocab, ret_err))
        return 1;
    if (q->op != FDP_OP_SUBMIT)
        return 0;
    if (q->max_new > most)
        return chk_over(ret_err, FDP_E_TOO_LONG, FDP_D_MAX_NEW, q->max_new, most);
    if (n_prompt >= most + (uint64_t)scored)
        return chk_over(ret_err, FDP_E_TOO_LONG, FDP_D_PROMPT, n_prompt,
            most - 1 + (uint64_t)scored);
    if (n_prompt + n->n_prior > most)
        return chk_over(ret_err, FDP_E_TOO_LONG, FDP_D_PRIOR, n->n_prior, most - n_prompt);
    if (n_prompt + q->max_new > most) {
        (void)chk_over(ret_err, FDP_E_TOO_LONG, FDP_D_MAX_NEW, n_prompt + q->max_new, most);
        ret_err->item = FDP_IT_PROMPT_IDS;
        return 1;
    }
    return 0;
}

uint64_t
chk_tokens(const struct fdp_req *q, const struct chk_items *n)
{
    uint32_t out = q->max_new > n->n_prior ? q->max_new : n->n_prior;

    return (uint64_t)n->n_prompt_ids + out;
}
