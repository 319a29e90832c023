/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/ingress.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/worker/rules.h"

/* Most messages to egress that one record or text slice causes. */
#define ING_EGR_SLOTS 4

struct ingress *
ing_new(const struct ing_cfg *cfg)
{
    struct ingress *g;

    OBJ_ALLOC(g, ING_MAGIC);
    if (g == NULL)
        return NULL;
    g->cfg = *cfg;
    enc_init(&g->texts,
        &(struct enc_cfg){ .tok = cfg->tok, .vocab = cfg->vocab, .cnt = cfg->cnt });
    if (req_pool_init(&g->pool, cfg->max_reqs) != 0)
        return ing_free(g);
    return g;
}

struct ingress *
ing_free(struct ingress *g)
{
    if (g == NULL)
        return NULL;
    for (uint32_t i = 0; g->pool.reqs != NULL && i < g->pool.n; i++)
        enc_drop(&g->texts, &g->pool.reqs[i]);
    enc_fini(&g->texts);
    req_pool_fini(&g->pool);
    OBJ_FREE(g, ING_MAGIC);
    return NULL;
}

uint32_t
ing_open(const struct ingress *g)
{
    return g->pool.n - g->pool.n_free;
}

/* ---- hand-over ------------------------------------------------------------------------- */

static void
ing_to_egress(struct ingress *g, struct req *r, enum que_kind kind, struct ing_bad bad)
{
    struct que_msg m = { .req = r,
        .kind = (uint8_t)kind,
        .a = bad.code,
        .idx = bad.detail,
        .x = bad.arg,
        .serial = bad.limit,
        .sample = (uint16_t)bad.item,
        .n_top = QUE_NO_LOGPROB };

    que_push(g->cfg.q_egr, &m);
}

static void
ing_fail(struct ingress *g, struct req *r, struct ing_bad bad)
{
    enc_drop(&g->texts, r);
    r->where = REQ_IN_EGRESS;
    ing_to_egress(g, r, QUE_FAIL, bad);
}

static void
ing_refuse(struct ingress *g, uint64_t id, int32_t code)
{
    struct que_msg m = { .id = id, .kind = QUE_REFUSE, .a = code, .n_top = QUE_NO_LOGPROB };

    que_push(g->cfg.q_egr, &m);
}

static void
ing_to_engine(struct ingress *g, struct req *r)
{
    struct que_msg m = { .req = r,
        .kind = QUE_ADD,
        .idx = r->idx,
        .serial = r->serial,
        .n_top = QUE_NO_LOGPROB };

    r->where = REQ_IN_ENGINE;
    que_push(g->cfg.q_eng, &m);
}

static void
ing_cancel_engine(struct ingress *g, struct req *r)
{
    struct que_msg m = { .idx = r->idx,
        .serial = r->serial,
        .kind = QUE_CANCEL,
        .a = r->cancel,
        .n_top = QUE_NO_LOGPROB };

    if (r->cancel_sent)
        return;
    r->cancel_sent = 1;
    que_push(g->cfg.q_eng, &m);
}

/* All ids are known: queues r for hashing and then the engine, or passes it to egress if
 * nothing is to run. */
static void
ing_submit(struct ingress *g, struct req *r)
{
    struct ing_bad bad = { 0 };
    int32_t done = FDK_DONE_NO;
    int rc = ing_prompt(&g->cfg, r, &done, &bad);

    if (rc == 0 && r->rules != NULL && rls_pack(r->rules) != 0)
        rc = ing_bad(&bad, FDP_E_OVERLOAD, FDP_D_NONE, 0);
    free(r->blob);
    r->blob = NULL;
    r->n_words = 0;
    r->text = NULL;
    if (rc < 0) {
        ing_fail(g, r, bad);
        return;
    }
    if (rc > 0) {
        struct que_msg m = { .req = r,
            .kind = QUE_OPEN,
            .done = done,
            .n_top = QUE_NO_LOGPROB };

        r->where = REQ_IN_EGRESS;
        que_push(g->cfg.q_egr, &m);
        return;
    }
    /* queued even if nothing is to be hashed, so that requests reach the engine in order
     * of arrival where possible */
    r->where = REQ_IN_HASH;
    req_append(&g->hashes, r);
}

static void
ing_answer(struct ingress *g, struct req *r)
{
    if (r->p.op == FDP_OP_DETOKENIZE) {
        r->p.flags |= FDP_F_TEXT;
        r->n_seq = 1;
        r->max_len = r->n_ids;
        if (r->n_ids > 0 && req_make_seqs(r) != 0) {
            ing_fail(g, r, (struct ing_bad){ .code = FDP_E_OVERLOAD });
            return;
        }
        /* no ids: answered as an empty TOKENIZE */
        if (r->n_ids == 0) {
            r->n_seq = 0;
            r->p.op = FDP_OP_TOKENIZE;
        }
    }
    r->where = REQ_IN_EGRESS;
    ing_to_egress(g, r, QUE_ANSWER, (struct ing_bad){ 0 });
}

/* ---- texts ---------------------------------------------------------------------------------- */

/* Puts r where its bad words, or else its text, are tokenized. */
static void
ing_text_push(struct ingress *g, struct req *r)
{
    struct que_msg m = { .req = r, .kind = QUE_TEXT, .n_top = QUE_NO_LOGPROB };

    r->where = REQ_IN_TEXT;
    if (r->word_at < r->n_words)
        req_append(&g->bans, r);
    else if (r->n_text > ENC_SLICE && g->cfg.q_text != NULL)
        que_push(g->cfg.q_text, &m);
    else
        enc_put(&g->texts, r);
}

static void
ing_text_ended(struct ingress *g, const struct enc_done *d)
{
    struct ing_bad bad = { .code = FDP_E_OVERLOAD, .detail = FDP_D_PROMPT };

    if (d->rc == 0) {
        if (d->r->p.op == FDP_OP_SUBMIT)
            ing_submit(g, d->r);
        else
            ing_answer(g, d->r);
        return;
    }
    if (d->rc == -ECANCELED)
        bad = (struct ing_bad){ .code = (int32_t)d->arg };
    else if (d->rc == -EILSEQ)
        bad.code = FDP_E_BAD_TEXT;
    else if (d->rc == -E2BIG)
        bad = (struct ing_bad){ FDP_E_TOO_LONG, FDP_D_PROMPT, 0, (uint32_t)g->cfg.max_len,
            FDP_IT_PROMPT_TEXT };
    else if (d->rc == -ERANGE)
        bad = (struct ing_bad){ FDP_E_BAD_TOKEN, FDP_D_PROMPT, d->arg,
            (uint32_t)g->cfg.vocab - 1, FDP_IT_PROMPT_TEXT };
    ing_fail(g, d->r, bad);
}

/* Fails r if its client disconnected or cancelled it, or its deadline has passed. Returns
 * 1 if so. */
static int
ing_given_up(struct ingress *g, struct req *r)
{
    int32_t code = req_given_up(r, g->now_ns);

    if (code == 0)
        return 0;
    ing_fail(g, r, (struct ing_bad){ .code = code });
    return 1;
}

/* Tokenizes some bad words of the request whose turn it is; its prompt's text comes
 * after them. Returns their cost in bytes. */
static uint32_t
ing_words_slice(struct ingress *g, uint32_t max_bytes)
{
    struct req *r = req_first(&g->bans);
    struct ing_bad bad = { 0 };
    uint32_t cost = 0;
    int rc;

    if (ing_given_up(g, r))
        return 64;
    rc = r->enc != NULL ? 0 : enc_take(&g->texts, r);
    if (rc != 0)
        (void)ing_bad(&bad, FDP_E_OVERLOAD, FDP_D_BAD_WORDS, r->n_words);
    for (; rc == 0 && r->word_at < r->n_words && cost < max_bytes;
         cost += 2 * FDP_MAX_BAD_LEN)
        rc = ing_ban_word(g, r, &bad);
    if (rc == 0 && r->word_at == r->n_words)
        enc_drop(&g->texts, r);
    if (rc != 0)
        ing_fail(g, r, bad);
    else if (r->word_at < r->n_words || r->text != NULL)
        ing_text_push(g, r);
    else
        ing_submit(g, r);
    return cost + 64;
}

static int
ing_texts(struct ingress *g)
{
    uint32_t left = ENC_SLICE;
    int work = 0;

    while ((g->bans.head != NULL || enc_is_busy(&g->texts)) && left > 0 &&
        que_has_room(g->cfg.q_egr, ING_EGR_SLOTS)) {
        struct enc_done d = { .r = NULL };
        uint32_t cost;

        g->bans_turn = g->bans.head != NULL && !(g->bans_turn && enc_is_busy(&g->texts));
        if (g->bans_turn)
            cost = ing_words_slice(g, left);
        else
            cost = enc_slice(&g->texts, g->now_ns, left, &d);
        if (d.r != NULL)
            ing_text_ended(g, &d);
        left -= cost < left ? cost : left;
        work = 1;
    }
    return work;
}

/* Takes the long texts that ended. */
static int
ing_long_texts(struct ingress *g)
{
    uint32_t n = g->cfg.q_ids != NULL ? que_recheck(g->cfg.q_ids) : 0, i = 0;

    for (; i < n && que_has_room(g->cfg.q_egr, ING_EGR_SLOTS); i++) {
        const struct que_msg *m = &que_peek(g->cfg.q_ids, i)->m;

        ing_text_ended(g, &(struct enc_done){ .r = m->req, .rc = m->a, .arg = m->x });
    }
    if (i > 0)
        que_pop(g->cfg.q_ids, i);
    return i > 0;
}

/* ---- hashes --------------------------------------------------------------------- */

/* Hashes a slice of the prompt whose turn it is; returns its cost in ids. */
static int32_t
ing_hash_slice(struct ingress *g, int32_t max_ids)
{
    struct req *r = req_first(&g->hashes);
    int32_t n = r->n_hashed, max = 0;

    if (ing_given_up(g, r))
        return 64;
    if (r->block_size > 0)
        max = max_ids > r->block_size ? max_ids / r->block_size : 1;
    if (req_hash_step(r, &g->cfg.key, max)) {
        ing_to_egress(g, r, QUE_OPEN, (struct ing_bad){ 0 });
        r->where = REQ_IN_ENGINE;
        if (!req_via_egress(r)) /* else egress passes it on */
            ing_to_engine(g, r);
    } else {
        req_append(&g->hashes, r);
    }
    return (r->n_hashed - n) * r->block_size + 64;
}

static int
ing_hashes(struct ingress *g)
{
    int32_t left = ING_HASH_SLICE;
    int work = 0;

    while (g->hashes.head != NULL && left > 0 && que_has_room(g->cfg.q_egr, ING_EGR_SLOTS)) {
        left -= ing_hash_slice(g, left);
        work = 1;
    }
    return work;
}

/* ---- records ------------------------------------------------------------------------------------ */

/* The record and its blob have been received. */
static void
ing_complete(struct ingress *g, struct req *r)
{
    struct ing_bad bad = { 0 };

    cnt_add(&g->cfg.cnt->requests_total, 1);
    if (r->cancel != 0) {
        ing_fail(g, r, (struct ing_bad){ .code = r->cancel });
        return;
    }
    if (ing_items(&g->cfg, r, &bad) != 0) {
        ing_fail(g, r, bad);
        return;
    }
    switch (r->p.op) {
    case FDP_OP_SUBMIT:
        if (r->text != NULL || r->n_words > 0)
            ing_text_push(g, r);
        else
            ing_submit(g, r);
        break;
    case FDP_OP_TOKENIZE:
        if (r->text == NULL)
            ing_fail(g, r,
                (struct ing_bad){
                    .code = g->cfg.tok == NULL ? FDP_E_NO_MODEL : FDP_E_BAD_PARAM,
                    .detail = FDP_D_PROMPT });
        else
            ing_text_push(g, r);
        break;
    case FDP_OP_PING:
        r->n_seq = 0;
        ing_to_engine(g, r);
        break;
    default:
        ing_answer(g, r);
    }
}

static int ing_freed(struct ingress *g);

static void
ing_take_submit(struct ingress *g, const struct fdp_rec *rec)
{
    const struct lnk_submit *s = (const struct lnk_submit *)(rec + 1);
    uint64_t wait_ns = (uint64_t)g->cfg.max_waiting_ms * CLK_MS;
    struct req *r;

    ASSERT(rec->len == sizeof(*s));
    /* the gate may have seen the end of a request before this stage did */
    if (g->pool.n_free == 0)
        (void)ing_freed(g);
    r = s->req.len > FDP_MAX_BLOB ? NULL : req_get(&g->pool, rec->tag);
    if (r == NULL) {
        ing_refuse(g, rec->tag,
            s->req.len > FDP_MAX_BLOB ? FDP_E_BAD_PARAM : FDP_E_QUEUE_FULL);
        return;
    }
    r->p = s->req;
    r->user = s->user;
    r->t_submit_ns = s->t_submit_ns;
    r->deadline_queue_ns = s->deadline_queue_ns;
    r->deadline_total_ns = s->deadline_total_ns;
    r->started = &g->cfg.lnk->seg->started[s->place % LNK_PLACES];
    if (wait_ns > 0 &&
        (r->deadline_queue_ns == 0 || s->t_submit_ns + wait_ns < r->deadline_queue_ns))
        r->deadline_queue_ns = s->t_submit_ns + wait_ns;
    r->where = REQ_IN_BLOB;
    if (r->p.len > 0) {
        r->blob = malloc(((size_t)r->p.len + 7) & ~(size_t)7);
        if (r->blob == NULL) {
            ing_fail(g, r,
                (struct ing_bad){ .code = FDP_E_OVERLOAD,
                    .detail = FDP_D_BLOB,
                    .arg = r->p.len });
            return;
        }
        return;
    }
    ing_complete(g, r);
}

static void
ing_take_blob(struct ingress *g, const struct fdp_rec *rec)
{
    struct req *r = req_find(&g->pool, rec->tag);

    /* of a request that was rejected or cancelled */
    if (r == NULL || r->where != REQ_IN_BLOB)
        return;
    ASSERT(rec->len <= r->p.len - r->blob_got);
    memcpy(r->blob + r->blob_got, rec + 1, rec->len);
    r->blob_got += rec->len;
    if (r->blob_got == r->p.len)
        ing_complete(g, r);
}

static void
ing_take_cancel(struct ingress *g, const struct fdp_rec *rec)
{
    const struct lnk_cancel *c = (const struct lnk_cancel *)(rec + 1);
    struct req *r = req_find(&g->pool, rec->tag);

    if (r == NULL || r->cancel != 0)
        return;
    __atomic_store_n(&r->cancel, c->code < 0 ? c->code : FDP_E_CANCELLED, __ATOMIC_RELEASE);
    if (r->where == REQ_IN_ENGINE)
        ing_cancel_engine(g, r);
    else if (r->where == REQ_IN_BLOB) /* the gate sends no more of its items */
        ing_fail(g, r, (struct ing_bad){ .code = r->cancel });
}

/* ---- limits that change ------------------------------------------------------------- */

int
ing_reloading(const struct ingress *g)
{
    return g->n_asked != g->n_taken;
}

/* Acquires the limits that ing_set_limits() published with n_told. */
static void
ing_take_limits(struct ingress *g)
{
    if (fdr_load_acquire(&g->n_told) != g->n_asked)
        return;
    g->cfg.max_logprobs = g->limits.max_logprobs;
    g->cfg.default_max_tokens = g->limits.default_max_tokens;
    g->cfg.max_waiting_ms = g->limits.max_waiting_ms;
    g->n_taken = g->n_asked;
}

int
ing_wait_reload(const struct ingress *g, uint64_t ns)
{
    uint32_t seen = fdr_load_acquire(&g->n_asked);
    struct timespec ts = { .tv_sec = (time_t)(ns / CLK_S), .tv_nsec = (long)(ns % CLK_S) };

    if (seen == g->n_told)
        (void)syscall(SYS_futex, &g->n_asked, FUTEX_WAIT_PRIVATE, seen, &ts, NULL, 0);
    return fdr_load_acquire(&g->n_asked) != g->n_told;
}

void
ing_wake(struct ingress *g)
{
    (void)syscall(SYS_futex, &g->n_asked, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void
ing_set_limits(struct ingress *g, const struct ing_limits *l)
{
    g->limits = *l;
    fdr_publish(&g->n_told, g->n_told + 1);
}

/* ---- records -------------------------------------------------------------------------- */

static int
ing_records(struct ingress *g)
{
    const struct fdp_rec *rec;
    int n = 0;

    while (n < ING_RECORDS && !ing_reloading(g) &&
        que_has_room(g->cfg.q_egr, ING_EGR_SLOTS) && (rec = lnk_peek(g->cfg.lnk)) != NULL) {
        switch (rec->type) {
        case LNK_T_SUBMIT:
            ing_take_submit(g, rec);
            break;
        case LNK_T_BLOB:
            ing_take_blob(g, rec);
            break;
        case LNK_T_CANCEL:
            ing_take_cancel(g, rec);
            break;
        case LNK_T_DRAIN:
            g->draining = 1;
            break;
        case LNK_T_RELOAD:
            fdr_publish(&g->n_asked, g->n_asked + 1);
            ing_wake(g);
            break;
        default:
            log_warn("ingress: record of unknown type %u ignored", (unsigned)rec->type);
        }
        lnk_next(g->cfg.lnk, rec);
        n++;
    }
    return n;
}

static int
ing_freed(struct ingress *g)
{
    uint32_t n = que_recheck(g->cfg.q_freed);

    for (uint32_t i = 0; i < n; i++) {
        struct req *r = que_peek(g->cfg.q_freed, i)->m.req;

        OBJ_CHECK(r, REQ_MAGIC);
        req_put(&g->pool, r);
    }
    que_pop(g->cfg.q_freed, n);
    return n > 0;
}

int
ing_poll(struct ingress *g, uint64_t now_ns)
{
    int work;

    OBJ_CHECK(g, ING_MAGIC);
    g->now_ns = now_ns;
    work = ing_freed(g);
    if (ing_reloading(g))
        ing_take_limits(g);
    work |= ing_records(g) > 0;
    work |= ing_long_texts(g);
    work |= ing_texts(g);
    work |= ing_hashes(g);
    return work;
}
