/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/intake.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/common/text.h"
#include "daemon/gate/gate.h"
#include "daemon/gate/relay.h"

#define ITK_TTL_MAX_MS 604800000u /* a week */
#define ITK_BYTES_PER_TOKEN 4 /* of text; few languages need fewer bytes */
#define ITK_OUTPUT_GUESS 256
#define ITK_RETRY_MAX_MS 60000u

/* Items that this build refuses with E_UNSUPPORTED. Penalties other than
 * neutral are refused in the same way by itk_check_sampling(). */
static const struct itk_unsupported {
    uint16_t type;
    uint16_t detail;
} itk_unsupported[] = {
    { FDP_IT_LOGIT_BIAS, FDP_D_BIAS },
    { FDP_IT_BAD_WORDS, FDP_D_BAD_WORDS },
    { FDP_IT_ALLOWED_IDS, FDP_D_ALLOWED },
    { FDP_IT_GRAMMAR, FDP_D_GRAMMAR },
    { FDP_IT_CHAT, FDP_D_CHAT },
};

#define ITEM(t) (1u << FDP_IT_##t)
#define ITK_ONCE (ITEM(PROMPT_TEXT) | ITEM(PROMPT_IDS) | ITEM(PRIOR_IDS) |     \
    ITEM(STOP_IDS))

/* Items each operation takes. */
static const uint32_t itk_allowed[FDP_OP__N] = {
    [FDP_OP_SUBMIT] = ITEM(PROMPT_TEXT) | ITEM(PROMPT_IDS) | ITEM(PRIOR_IDS) |
        ITEM(STOP_STRING) | ITEM(STOP_IDS),
    [FDP_OP_TOKENIZE] = ITEM(PROMPT_TEXT),
    [FDP_OP_DETOKENIZE] = ITEM(PROMPT_IDS),
};

static const uint32_t itk_flags[FDP_OP__N] = {
    [FDP_OP_SUBMIT] = FDP_F__ALL & ~FDP_F_DEEP,
    [FDP_OP_CANCEL] = 0,
    [FDP_OP_TOKENIZE] = FDP_F_NO_SPECIAL | FDP_F_PARSE_SPECIAL | FDP_F_PROMPT_IDS,
    [FDP_OP_DETOKENIZE] = FDP_F_KEEP_SPECIAL | FDP_F_TEXT,
    [FDP_OP_INFO] = 0,
    [FDP_OP_PING] = FDP_F_DEEP,
};

static int
itk_fail(struct itk_err *e, int code, unsigned detail, uint64_t arg)
{
    e->code = code;
    e->detail = detail;
    e->arg = arg > UINT32_MAX ? UINT32_MAX : (uint32_t)arg;
    e->retry_ms = 0;
    return 1;
}

/* A float as the argument of an error: its bits. */
static uint32_t
itk_bits(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    return u;
}

static int
itk_check_penalties(const struct fdp_req *q, struct itk_err *e)
{
    float p[3] = { q->presence_penalty, q->frequency_penalty, q->repetition_penalty };

    for (int i = 0; i < 2; i++) {
        if (!(p[i] >= -2.0f && p[i] <= 2.0f))
            return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_PENALTY, itk_bits(p[i]));
    }
    if (!(p[2] >= FDP_MIN_REPETITION && p[2] <= 2.0f))
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_PENALTY, itk_bits(p[2]));
    return 0;
}

static int
itk_check_logprobs(const struct fdp_req *q, const struct itk_limits *lim,
    struct itk_err *e)
{
    int32_t most = lim->max_logprobs;

    if (most < 0 && (q->flags & (FDP_F_LOGPROBS | FDP_F_PROMPT_LOGPROBS)) != 0)
        return itk_fail(e, FDP_E_UNSUPPORTED, FDP_D_LOGPROBS, 0);
    most = most < 0 ? 0 : most;
    if (q->logprobs > most)
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_LOGPROBS, q->logprobs);
    if (q->prompt_logprobs > most)
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_LOGPROBS, q->prompt_logprobs);
    return 0;
}

static int
itk_check_sampling(const struct fdp_req *q, const struct itk_limits *lim,
    struct itk_err *e)
{
    if (q->n < 1 || q->n > FDP_MAX_N)
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_N, q->n);
    if (lim->max_model_len != 0 && q->max_new > lim->max_model_len)
        return itk_fail(e, FDP_E_TOO_LONG, FDP_D_MAX_NEW, lim->max_model_len);
    if (q->max_new != 0 && q->min_new > q->max_new)
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_MIN_NEW, q->min_new);
    if (lim->max_model_len != 0 && q->min_new > lim->max_model_len)
        return itk_fail(e, FDP_E_TOO_LONG, FDP_D_MIN_NEW, lim->max_model_len);
    if (!(q->temperature >= 0.0f && q->temperature <= 100.0f))
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_TEMPERATURE, itk_bits(q->temperature));
    if (!(q->top_p > 0.0f && q->top_p <= 1.0f))
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_TOP_P, itk_bits(q->top_p));
    if (q->top_k > INT32_MAX)
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_TOP_K, q->top_k);
    if (!(q->min_p >= 0.0f && q->min_p <= 1.0f))
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_MIN_P, itk_bits(q->min_p));
    if (itk_check_logprobs(q, lim, e))
        return 1;
    if (q->n_prior != 0 && q->n != 1)
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_PRIOR, q->n_prior);
    return itk_check_penalties(q, e);
}

int
itk_check_req(const struct fdp_req *q, const struct itk_limits *lim,
    struct itk_err *ret_err)
{
    struct itk_err *e = ret_err;

    if (q->op == 0 || q->op >= FDP_OP__N)
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_OP, q->op);
    if (q->flags & ~itk_flags[q->op])
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_FLAGS, q->flags & ~itk_flags[q->op]);
    for (size_t i = 0; i < sizeof(q->rsv); i++) {
        if (q->rsv[i] != 0)
            return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_RESERVED, q->rsv[i]);
    }
    if (q->tag == 0)
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_TAG, 0);
    if (q->op == FDP_OP_CANCEL)
        return 0;
    if (q->ttl_queue_ms > ITK_TTL_MAX_MS)
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_TTL, q->ttl_queue_ms);
    if (q->ttl_total_ms > ITK_TTL_MAX_MS)
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_TTL, q->ttl_total_ms);
    if (q->user != 0 && !lim->trusted)
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_USER, q->user);
    if (q->op == FDP_OP_SUBMIT)
        return itk_check_sampling(q, lim, e);
    return 0;
}

/* One item; at most a few comparisons, text is checked once. */
static int
itk_check_item(const struct fdp_item *it, const unsigned char *p, uint16_t op,
    struct itk_items *n, struct itk_err *e)
{
    size_t ok;

    for (size_t i = 0; i < sizeof(itk_unsupported) / sizeof(itk_unsupported[0]); i++) {
        if (it->type == itk_unsupported[i].type)
            return itk_fail(e, FDP_E_UNSUPPORTED, itk_unsupported[i].detail, it->type);
    }
    if (!(itk_allowed[op] & (1u << it->type)))
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_ITEM, it->type);
    switch (it->type) {
    case FDP_IT_PROMPT_TEXT:
        ok = txt_utf8(p, it->len);
        if (ok != it->len)
            return itk_fail(e, FDP_E_BAD_TEXT, FDP_D_PROMPT, ok);
        n->has_text = 1;
        n->prompt_text_bytes = it->len;
        return 0;
    case FDP_IT_PROMPT_IDS:
        if (it->len % 4 != 0)
            return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_PROMPT, it->len);
        n->has_ids = 1;
        n->n_prompt_ids = it->len / 4;
        return 0;
    case FDP_IT_PRIOR_IDS:
        if (it->len % 4 != 0)
            return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_PRIOR, it->len);
        n->n_prior = it->len / 4;
        return 0;
    case FDP_IT_STOP_STRING:
        if (it->len == 0 || it->len > FDP_MAX_STOP_LEN)
            return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_STOP, it->len);
        if (++n->n_stop > FDP_MAX_STOP)
            return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_STOP, n->n_stop);
        ok = txt_utf8(p, it->len);
        if (ok != it->len)
            return itk_fail(e, FDP_E_BAD_TEXT, FDP_D_STOP, ok);
        return 0;
    default: /* FDP_IT_STOP_IDS */
        if (it->len % 4 != 0 || it->len / 4 > FDP_MAX_STOP_IDS)
            return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_STOP, it->len / 4);
        n->n_stop_ids = it->len / 4;
        return 0;
    }
}

/* What must and must not be together. */
static int
itk_check_set(const struct fdp_req *q, const struct itk_items *n, struct itk_err *e)
{
    int want_text = q->op == FDP_OP_TOKENIZE;
    int want_ids = q->op == FDP_OP_DETOKENIZE;

    if (q->op == FDP_OP_INFO || q->op == FDP_OP_PING)
        return 0;
    if (n->has_text && n->has_ids)
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_PROMPT, 2);
    if ((want_text && !n->has_text) || (want_ids && !n->has_ids) ||
        (!n->has_text && !n->has_ids))
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_PROMPT, 0);
    if (q->op == FDP_OP_SUBMIT && n->has_ids && n->n_prompt_ids == 0)
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_PROMPT, 0);
    if (q->op == FDP_OP_SUBMIT && n->n_prior != q->n_prior)
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_PRIOR, n->n_prior);
    return 0;
}

int
itk_check_items(const struct fdp_req *q, const unsigned char *blob, uint32_t blob_bytes,
    struct itk_items *ret_items, struct itk_err *ret_err)
{
    uint32_t seen = 0;
    uint64_t at = 0;

    memset(ret_items, 0, sizeof(*ret_items));
    while (at < blob_bytes) {
        struct fdp_item it;
        uint64_t span;

        if (blob_bytes - at < sizeof(it))
            return itk_fail(ret_err, FDP_E_BAD_PARAM, FDP_D_BLOB, blob_bytes - at);
        memcpy(&it, blob + at, sizeof(it));
        if (it.type == 0 || it.type >= FDP_IT__N)
            return itk_fail(ret_err, FDP_E_BAD_PARAM, FDP_D_ITEM, it.type);
        if (it.rsv != 0)
            return itk_fail(ret_err, FDP_E_BAD_PARAM, FDP_D_RESERVED, it.rsv);
        span = FDP_ITEM_SPAN(it.len);
        if (span > blob_bytes - at)
            return itk_fail(ret_err, FDP_E_BAD_PARAM, FDP_D_BLOB, it.len);
        for (uint64_t i = sizeof(it) + it.len; i < span; i++) {
            if (blob[at + i] != 0)
                return itk_fail(ret_err, FDP_E_BAD_PARAM, FDP_D_RESERVED, blob[at + i]);
        }
        if ((seen & (1u << it.type) & ITK_ONCE) != 0)
            return itk_fail(ret_err, FDP_E_BAD_PARAM, FDP_D_ITEM, it.type);
        seen |= 1u << it.type;
        if (itk_check_item(&it, blob + at + sizeof(it), q->op, ret_items, ret_err))
            return 1;
        at += span;
    }
    return itk_check_set(q, ret_items, ret_err);
}

/* Ids of one item below vocab? Otherwise the first that is not. */
static int
itk_check_ids(const unsigned char *p, uint32_t n, uint32_t vocab, uint32_t *ret_bad)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id;

        memcpy(&id, p + (size_t)i * 4, 4);
        if (id >= vocab) {
            *ret_bad = id;
            return 1;
        }
    }
    return 0;
}

int
itk_check_model(const struct fdp_req *q, const unsigned char *blob, uint32_t blob_bytes,
    const struct itk_limits *lim, struct itk_err *ret_err)
{
    uint64_t n_prompt = 0, total;
    uint64_t at = 0;
    uint32_t bad;

    while (at < blob_bytes) {
        struct fdp_item it;
        unsigned detail = 0;

        memcpy(&it, blob + at, sizeof(it));
        if (it.type == FDP_IT_PROMPT_IDS)
            detail = FDP_D_PROMPT_ID;
        else if (it.type == FDP_IT_PRIOR_IDS)
            detail = FDP_D_PRIOR;
        else if (it.type == FDP_IT_STOP_IDS)
            detail = FDP_D_STOP;
        else if (it.type == FDP_IT_PROMPT_TEXT && lim->has_tokenizer == 0)
            return itk_fail(ret_err, FDP_E_NO_MODEL, FDP_D_PROMPT, 0);
        if (detail != 0 && itk_check_ids(blob + at + sizeof(it), it.len / 4,
            lim->vocab, &bad))
            return itk_fail(ret_err, FDP_E_BAD_TOKEN, detail, bad);
        if (it.type == FDP_IT_PROMPT_IDS || it.type == FDP_IT_PRIOR_IDS)
            n_prompt += it.len / 4;
        at += FDP_ITEM_SPAN(it.len);
    }
    if (q->op != FDP_OP_SUBMIT)
        return 0;
    if (q->max_new > lim->max_model_len)
        return itk_fail(ret_err, FDP_E_TOO_LONG, FDP_D_MAX_NEW, lim->max_model_len);
    if (n_prompt >= lim->max_model_len)
        return itk_fail(ret_err, FDP_E_TOO_LONG, FDP_D_PROMPT, lim->max_model_len);
    total = n_prompt + q->max_new;
    if (total > lim->max_model_len)
        return itk_fail(ret_err, FDP_E_TOO_LONG, FDP_D_MAX_NEW, lim->max_model_len);
    return 0;
}

void
itk_limits(const struct gate *g, const struct ses *s, struct itk_limits *ret)
{
    const struct wrk *w = &g->wrk[0];

    memset(ret, 0, sizeof(*ret));
    ret->max_logprobs = par_max_logprobs(g->par);
    ret->default_max_new = (uint32_t)g->par->output_default_max_tokens;
    ret->trusted = s != NULL && s->trusted;
    ret->has_tokenizer = -1;
    if (w->st == WRK_READY) {
        ret->vocab = w->ready.info.vocab;
        ret->max_model_len = w->ready.info.max_model_len;
        ret->has_tokenizer = w->ready.info.has_tokenizer != 0;
        if (ret->max_logprobs > (int32_t)w->ready.info.max_logprobs)
            ret->max_logprobs = (int32_t)w->ready.info.max_logprobs;
    }
}

uint32_t
itk_max_logprobs(const struct gate *g)
{
    struct itk_limits lim;

    itk_limits(g, NULL, &lim);
    return lim.max_logprobs < 0 ? 0 : (uint32_t)lim.max_logprobs;
}

/* ---- one request of a session -------------------------------------------- */

/* Answer a refusal. Only what the client itself got wrong counts towards
 * the end of its session; limits and loading do not. */
static void
itk_refuse(struct gate *g, struct ses *s, const struct fdp_req *q,
    const struct itk_err *e, uint64_t now_ns)
{
    uint32_t retry = 0;

    cnt_add(&g->cnt->requests_refused, 1);
    if (e->code <= FDP_E_QUEUE_FULL && e->code > FDP_E_DEADLINE)
        retry = e->retry_ms != 0 ? e->retry_ms : gate_retry_ms(g);
    log_debug("intake: session %llu request refused: code %d detail %u arg %u",
        (unsigned long long)s->id, e->code, e->detail, e->arg);
    rql_refused(g, s, q, e->code, e->detail);
    rly_emit_error(g, s, q->tag, e->code, retry, e->detail, e->arg);
    if (e->code != FDP_E_BAD_PARAM && e->code != FDP_E_BAD_TOKEN &&
        e->code != FDP_E_BAD_TEXT)
        return;
    if (now_ns - s->t_err > CLK_S) {
        s->t_err = now_ns;
        s->n_err = 0;
    }
    if (++s->n_err >= ITK_ERRORS_PER_S) {
        log_warn("intake: session %llu (%s, pid %d) sent %u bad requests in a second",
            (unsigned long long)s->id, s->shown, (int)s->pid, s->n_err);
        ses_kill(g, s, FDP_E_PROTO);
    }
}

/* A limit of its own: until one of the user's requests ends, at its share of
 * what is done. */
static int
itk_over_limit(const struct gate *g, const struct usr *u, unsigned detail, int64_t limit,
    struct itk_err *e)
{
    uint64_t tokens = fair_mean_cost(g) * g->fair.weight_active / u->weight;

    (void)itk_fail(e, FDP_E_LIMIT, detail, (uint64_t)limit);
    if (g->wrk[0].st == WRK_READY && !g->paused)
        e->retry_ms = drain_ms(&g->fair.drain, tokens, g->now, ITK_RETRY_MAX_MS);
    return 1;
}

static int
itk_check_admission(struct gate *g, struct ses *s, struct usr *u, uint64_t bytes,
    struct itk_err *e)
{
    const struct par *par = g->par;

    if (g->st == GATE_DEGRADED)
        return itk_fail(e, FDP_E_GPU_LOST, 0, 0);
    if (g->st != GATE_RUNNING)
        return itk_fail(e, FDP_E_DRAINING, 0, 0);
    if (g->jnl.n_open >= g->jnl.n_max)
        return itk_fail(e, g->wrk[0].st == WRK_READY ? FDP_E_QUEUE_FULL : FDP_E_LOADING,
            0, g->jnl.n_max);
    if (s->trusted)
        return 0;
    if (s->n_inflight >= (uint64_t)par->sched_max_inflight_per_client)
        return itk_over_limit(g, u, 0, par->sched_max_inflight_per_client, e);
    if (u->n_inflight >= (uint64_t)par->sched_max_inflight_per_user)
        return itk_over_limit(g, u, 0, par->sched_max_inflight_per_user, e);
    if (u->bytes + bytes > (uint64_t)par->sched_max_bytes_per_user)
        return itk_over_limit(g, u, FDP_D_BLOB, par->sched_max_bytes_per_user, e);
    return 0;
}

/* ---- what may wait -------------------------------------------------------- */

/* A request's deadline for its start, in ms from now; 0: none. */
static uint64_t
itk_patience_ms(const struct gate *g, const struct fdp_req *q)
{
    uint64_t ms = (uint64_t)g->par->sched_max_waiting_time_ms;

    if (q->ttl_queue_ms != 0 && (ms == 0 || q->ttl_queue_ms < ms))
        ms = q->ttl_queue_ms;
    if (q->ttl_total_ms != 0 && (ms == 0 || q->ttl_total_ms < ms))
        ms = q->ttl_total_ms;
    return ms;
}

/* Tokens that must be done before cost more may wait; 0: they may. */
static uint64_t
itk_excess(const struct gate *g, uint64_t cost)
{
    uint64_t max = (uint64_t)g->par->sched_max_queued_tokens;

    if (max == 0)
        max = (uint64_t)g->jnl.n_max * ITK_TOKENS_EACH;
    if (g->fair.cost_queued == 0 || g->fair.cost_queued + cost <= max)
        return 0;
    return g->fair.cost_queued + cost - max;
}

/* ms by which its deadline would pass before it starts; 0: it will not, or
 * nobody knows. */
static uint64_t
itk_lateness_ms(const struct gate *g, const struct usr *u, const struct fdp_req *q,
    uint64_t now_ns)
{
    uint64_t patience = itk_patience_ms(g, q);
    double rate, ms;

    if (patience == 0)
        return 0;
    rate = drain_rate(&g->fair.drain, now_ns);
    if (rate <= 0 || (double)g->fair.cost_queued * 1e3 / rate <= (double)patience)
        return 0;
    ms = (double)fair_ahead(g, u, q->priority) * 1e3 / rate;
    return ms > (double)patience ? (uint64_t)(ms - (double)patience) + 1 : 0;
}

/* Refuse now what would only wait to be refused. */
static int
itk_check_queue(struct gate *g, const struct usr *u, const struct fdp_req *q,
    uint64_t cost, uint64_t now_ns, struct itk_err *e)
{
    uint64_t excess, late;
    int ready = g->wrk[0].st == WRK_READY;

    if (q->op != FDP_OP_SUBMIT)
        return 0;
    if (ready && (itk_excess(g, cost) != 0 || itk_lateness_ms(g, u, q, now_ns) != 0))
        (void)rly_down(g, &g->wrk[0], now_ns); /* some of it does not have to wait */
    excess = itk_excess(g, cost);
    if (excess != 0) {
        (void)itk_fail(e, ready ? FDP_E_QUEUE_FULL : FDP_E_LOADING, FDP_D_MAX_NEW,
            g->fair.cost_queued + cost - excess);
        if (ready && !g->paused)
            e->retry_ms = drain_ms(&g->fair.drain, excess, now_ns, ITK_RETRY_MAX_MS);
        return 1;
    }
    late = ready ? itk_lateness_ms(g, u, q, now_ns) : 0;
    if (late != 0) {
        cnt_add(&g->cnt->requests_shed, 1);
        (void)itk_fail(e, FDP_E_OVERLOAD, FDP_D_TTL, late + itk_patience_ms(g, q));
        e->retry_ms = late < ITK_RETRY_MAX_MS ? (uint32_t)late : ITK_RETRY_MAX_MS;
        return 1;
    }
    return 0;
}

/* Operations the gate answers itself. 1: done with. */
static int
itk_answer(struct gate *g, struct ses *s, const struct fdp_req *q, uint64_t now_ns)
{
    struct fdp_info info = g->wrk[0].ready.info;
    struct fdp_done done;
    struct itk_err e;

    if (q->op == FDP_OP_INFO && g->wrk[0].st != WRK_READY) {
        (void)itk_fail(&e, g->st == GATE_DEGRADED ? FDP_E_GPU_LOST : FDP_E_LOADING, 0, 0);
        itk_refuse(g, s, q, &e, now_ns);
        return 1;
    }
    info.max_logprobs = itk_max_logprobs(g);
    if (q->op == FDP_OP_INFO)
        (void)rly_emit(g, s, q->tag, FDP_T_REPLY, 0, 0, &info, sizeof(info), 0);
    else if (q->op == FDP_OP_PING && !(q->flags & FDP_F_DEEP))
        cnt_add(&g->cnt->pings, 1);
    else
        return 0;
    memset(&done, 0, sizeof(done));
    done.t_submit = done.t_start = done.t_first = done.t_end = now_ns;
    (void)rly_emit(g, s, q->tag, FDP_T_DONE, 0, 0, &done, sizeof(done), 0);
    return 1;
}

static void
itk_cancel(struct gate *g, struct ses *s, uint64_t tag)
{
    struct jreq *r = jnl_find_tag(&g->jnl, s, tag);

    if (r == NULL) {
        cnt_add(&g->cnt->cancels_unknown, 1);
        return;
    }
    cnt_add(&g->cnt->cancels, 1);
    rly_cancel(g, r, FDP_E_CANCELLED);
}

/* V5: the items lie in the arena. */
static int
itk_check_place(const struct ses *s, const struct fdp_req *q, struct itk_err *e)
{
    if (q->off % 8 != 0 || q->len % 8 != 0 || q->off > s->arena_bytes ||
        q->len > s->arena_bytes - q->off)
        return itk_fail(e, FDP_E_BAD_PARAM, FDP_D_BLOB,
            q->len > s->arena_bytes ? q->len : q->off);
    return 0;
}

/* Copy the items out of the arena, once. */
static int
itk_copy_blob(struct gate *g, const struct ses *s, const struct fdp_req *q,
    unsigned char **ret_blob, struct itk_err *e)
{
    unsigned char *blob;

    if (q->len == 0)
        return 0;
    blob = malloc(q->len);
    if (blob == NULL)
        return itk_fail(e, FDP_E_OVERLOAD, FDP_D_BLOB, q->len);
    fdr_copy_in(blob, s->arena + q->off, q->len);
    cnt_add(&g->cnt->copied_bytes, q->len);
    *ret_blob = blob;
    return 0;
}

static void
itk_deadlines(const struct gate *g, struct jreq *r, uint64_t now_ns)
{
    const struct fdp_req *q = &r->req;
    uint64_t wait = (uint64_t)g->par->sched_max_waiting_time_ms;

    if (q->ttl_queue_ms != 0 && (wait == 0 || q->ttl_queue_ms < wait))
        wait = q->ttl_queue_ms;
    if (wait != 0)
        r->deadline_queue = now_ns + wait * CLK_MS;
    if (q->ttl_total_ms != 0)
        r->deadline_total = now_ns + q->ttl_total_ms * CLK_MS;
}

/* What it may cost, in tokens. max_new 0 is what the model's length leaves,
 * which few requests use: a guess, settled when it ends. */
static uint32_t
itk_cost(const struct fdp_req *q, const struct itk_items *items,
    const struct itk_limits *lim, uint32_t *ret_prompt)
{
    uint64_t out = q->max_new != 0 ? q->max_new : lim->default_max_new;
    uint64_t cost = (uint64_t)items->n_prompt_ids + items->n_prior +
        items->prompt_text_bytes / ITK_BYTES_PER_TOKEN + 1;

    *ret_prompt = (uint32_t)cost; /* of 64 MiB at most */
    if (q->op == FDP_OP_SUBMIT)
        cost += q->n * (out != 0 ? out : ITK_OUTPUT_GUESS);
    return cost > INT32_MAX ? INT32_MAX : (uint32_t)cost;
}

static void
itk_accept(struct gate *g, struct ses *s, struct usr *u, struct fdp_req *q,
    unsigned char *blob, const struct itk_items *items, const struct itk_limits *lim,
    uint64_t now_ns)
{
    uint32_t cost, est_prompt;
    struct jreq *r;

    cost = itk_cost(q, items, lim, &est_prompt);
    if (q->op == FDP_OP_SUBMIT) {
        if (q->max_new == 0)
            q->max_new = lim->default_max_new;
        if (!(q->flags & FDP_F_SEED)) {
            q->seed = gate_draw_seed(g);
            q->flags |= FDP_F_SEED;
        }
    }
    q->off = 0;
    r = jnl_add(g, s, u, q, blob, q->len, now_ns);
    ASSERT(r != NULL); /* itk_check_admission() saw room */
    r->cost = cost;
    r->est_prompt = est_prompt;
    r->kind = q->op == FDP_OP_SUBMIT ? FAIR_GEN : FAIR_SIDE;
    r->prompt_len = items->n_prompt_ids;
    r->checked = lim->vocab != 0;
    itk_deadlines(g, r, now_ns);
    cnt_add(&g->cnt->requests_total, 1);
    fair_push(g, r);
}

static void
itk_request(struct gate *g, struct ses *s, struct fdp_req *q, uint64_t now_ns)
{
    unsigned char *blob = NULL;
    struct itk_limits lim;
    struct itk_items items;
    struct itk_err e;
    struct usr *u = s->usr;
    uint32_t prompt;

    itk_limits(g, s, &lim);
    if (itk_check_req(q, &lim, &e))
        goto refuse;
    if (q->op == FDP_OP_CANCEL) {
        itk_cancel(g, s, q->tag);
        return;
    }
    if (jnl_find_tag(&g->jnl, s, q->tag) != NULL) {
        (void)itk_fail(&e, FDP_E_BAD_PARAM, FDP_D_TAG, q->tag);
        goto refuse;
    }
    if (itk_answer(g, s, q, now_ns))
        return;
    if (q->user != 0 && (u = usr_get(g, q->user, now_ns)) == NULL) {
        (void)itk_fail(&e, FDP_E_OVERLOAD, FDP_D_USER, q->user);
        goto refuse;
    }
    if (itk_check_place(s, q, &e) ||
        itk_check_admission(g, s, u, q->len + sizeof(struct jreq), &e) ||
        itk_copy_blob(g, s, q, &blob, &e) ||
        itk_check_items(q, blob, q->len, &items, &e) ||
        (lim.vocab != 0 && itk_check_model(q, blob, q->len, &lim, &e)) ||
        itk_check_queue(g, u, q, itk_cost(q, &items, &lim, &prompt), now_ns, &e))
        goto refuse;
    itk_accept(g, s, u, q, blob, &items, &lim, now_ns);
    return;

refuse:
    free(blob);
    itk_refuse(g, s, q, &e, now_ns);
}

int
itk_poll(struct gate *g, struct ses *s, uint64_t now_ns)
{
    int64_t avail;
    uint32_t bytes = 0;
    uint32_t n = 0;

    /* A client that does not read its answers is not asked for more. */
    if (s->st != SES_OPEN || s->n_held != 0)
        return 0;
    avail = fdr_cons_avail(&s->sq);
    if (avail == 0)
        return 0;
    if (avail < 0) {
        log_warn("intake: session %llu (%s, pid %d) has an impossible request cursor",
            (unsigned long long)s->id, s->shown, (int)s->pid);
        ses_kill(g, s, FDP_E_PROTO);
        return 1;
    }
    while (n < ITK_BATCH && n < (uint64_t)avail && bytes < ITK_BATCH_BYTES &&
        s->st == SES_OPEN && s->n_held == 0) {
        struct fdp_req q __attribute__((aligned(8)));

        fdr_copy_in(&q, fdr_cons_slot(&s->sq, s->sq.head + n), sizeof(q));
        itk_request(g, s, &q, now_ns);
        bytes += q.len <= s->arena_bytes ? q.len : 0;
        n++;
    }
    /* After the copies: the client may use slots and arena again. */
    fdr_cons_release(&s->sq, n);
    s->t_used = now_ns;
    return (int)n;
}
