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
#include "daemon/worker/tokenizer.h"

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
    if (req_pool_init(&g->pool, cfg->max_reqs) != 0)
        return ing_free(g);
    return g;
}

static void
ing_drop_enc(struct ingress *g, struct req *r)
{
    if (r->enc == NULL)
        return;
    if (g->n_enc < ING_ENCODERS)
        g->enc[g->n_enc++] = r->enc;
    else
        (void)tok_enc_free(r->enc);
    r->enc = NULL;
}

struct ingress *
ing_free(struct ingress *g)
{
    if (g == NULL)
        return NULL;
    for (uint32_t i = 0; g->pool.reqs != NULL && i < g->pool.n; i++)
        ing_drop_enc(g, &g->pool.reqs[i]);
    while (g->n_enc > 0)
        (void)tok_enc_free(g->enc[--g->n_enc]);
    req_pool_fini(&g->pool);
    OBJ_FREE(g, ING_MAGIC);
    return NULL;
}

uint32_t
ing_open(const struct ingress *g)
{
    return g->pool.n - g->pool.n_free;
}

/* ---- turns ---------------------------------------------------------------------- */

static void
ing_append(struct ing_list *l, struct req *r)
{
    r->ing_next = NULL;
    if (l->tail != NULL)
        l->tail->ing_next = r;
    else
        l->head = r;
    l->tail = r;
}

static struct req *
ing_first(struct ing_list *l)
{
    struct req *r = l->head;

    l->head = r->ing_next;
    if (l->head == NULL)
        l->tail = NULL;
    r->ing_next = NULL;
    return r;
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
    ing_drop_enc(g, r);
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
    ing_append(&g->hashes, r);
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

static int
ing_take_enc(struct ingress *g, struct req *r)
{
    r->enc = g->n_enc > 0 ? g->enc[--g->n_enc] : tok_enc_new(g->cfg.tok);
    return r->enc != NULL ? 0 : -ENOMEM;
}

static int
ing_text_begin(struct ingress *g, struct req *r)
{
    unsigned flags = 0;
    int rc;

    if (ing_take_enc(g, r) != 0)
        return -ENOMEM;
    if ((r->p.flags & FDP_F_NO_SPECIAL) == 0)
        flags |= TOK_ADD_SPECIAL;
    if ((r->p.flags & FDP_F_PARSE_SPECIAL) != 0)
        flags |= TOK_PARSE_SPECIAL;
    rc = tok_enc_begin(r->enc, r->text, r->n_text, flags);
    if (rc == 0 && r->n_spans > 0)
        tok_enc_spans(r->enc, r->spans, r->n_spans);
    return rc;
}

static void
ing_text_fail(struct ingress *g, struct req *r, int rc)
{
    struct ing_bad bad = { .code = FDP_E_OVERLOAD, .detail = FDP_D_PROMPT };

    if (rc == -EILSEQ)
        bad.code = FDP_E_BAD_TEXT;
    else if (rc == -E2BIG)
        bad = (struct ing_bad){ FDP_E_TOO_LONG, FDP_D_PROMPT, 0, (uint32_t)g->cfg.max_len,
            FDP_IT_PROMPT_TEXT };
    ing_fail(g, r, bad);
}

static void
ing_text_push(struct ingress *g, struct req *r)
{
    r->where = REQ_IN_TEXT;
    ing_append(&g->texts, r);
}

/* The encoder has all ids of r's text: puts them before the prior ids. */
static void
ing_text_done(struct ingress *g, struct req *r)
{
    size_t n = 0, n_prior = (size_t)(r->n_ids - r->n_prompt);
    const uint32_t *ids = tok_enc_ids(r->enc, &n);
    uint32_t *all;

    if (n + n_prior > INT32_MAX / 8) {
        ing_text_fail(g, r, -E2BIG);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= (uint32_t)g->cfg.vocab) {
            ing_fail(g, r,
                (struct ing_bad){ FDP_E_BAD_TOKEN, FDP_D_PROMPT, ids[i],
                    (uint32_t)g->cfg.vocab - 1, FDP_IT_PROMPT_TEXT });
            return;
        }
    }
    all = mem_array(n + n_prior + 1, sizeof(*all));
    if (all == NULL) {
        ing_text_fail(g, r, -ENOMEM);
        return;
    }
    if (n > 0)
        memcpy(all, ids, n * sizeof(*all));
    memcpy(all + n, r->ids, n_prior * sizeof(*all));
    free(r->ids);
    r->ids = all;
    r->n_prompt = (int32_t)n;
    r->n_ids = (int32_t)(n + n_prior);
    ing_drop_enc(g, r);
    if (r->p.op == FDP_OP_SUBMIT)
        ing_submit(g, r);
    else
        ing_answer(g, r);
}

/* Fails r if its client disconnected or cancelled it, or its deadline has passed. Returns
 * 1 if so. */
static int
ing_given_up(struct ingress *g, struct req *r)
{
    int32_t code = r->cancel;

    if (code == 0 && r->deadline_total_ns != 0 && r->deadline_total_ns <= g->now_ns)
        code = FDP_E_DEADLINE;
    if (code == 0)
        return 0;
    ing_fail(g, r, (struct ing_bad){ .code = code });
    return 1;
}

/* Tokenizes a slice of r's bad words, which come before its prompt's text; returns its
 * cost in bytes. */
static uint32_t
ing_words_slice(struct ingress *g, struct req *r, uint32_t max_bytes)
{
    struct ing_bad bad = { 0 };
    uint32_t cost = 0;
    int rc = r->enc != NULL ? 0 : ing_take_enc(g, r);

    if (rc != 0)
        (void)ing_bad(&bad, FDP_E_OVERLOAD, FDP_D_BAD_WORDS, r->n_words);
    for (; rc == 0 && r->word_at < r->n_words && cost < max_bytes;
         cost += 2 * FDP_MAX_BAD_LEN)
        rc = ing_ban_word(g, r, &bad);
    if (rc != 0) {
        ing_fail(g, r, bad);
    } else if (r->word_at < r->n_words) {
        ing_text_push(g, r);
    } else {
        ing_drop_enc(g, r);
        if (r->text != NULL)
            ing_text_push(g, r);
        else
            ing_submit(g, r);
    }
    return cost + 64;
}

/* Tokenizes one slice of the text whose turn it is; returns its cost in bytes. */
static uint32_t
ing_text_slice(struct ingress *g, uint32_t max_bytes)
{
    struct req *r = ing_first(&g->texts);
    uint32_t cost = r->n_text < max_bytes ? r->n_text + 64 : max_bytes;
    uint64_t t0 = clk_now_ns();
    int rc = 0;

    if (ing_given_up(g, r))
        return 64;
    if (r->word_at < r->n_words)
        return ing_words_slice(g, r, max_bytes);
    if (r->enc == NULL)
        rc = ing_text_begin(g, r);
    if (rc == 0)
        rc = tok_enc_step(r->enc, max_bytes);
    cnt_add(&g->cfg.cnt->tokenize_ns, clk_now_ns() - t0);
    if (rc < 0) {
        ing_text_fail(g, r, rc);
    } else if (rc == 0) {
        ing_text_push(g, r);
    } else {
        cnt_add(&g->cfg.cnt->tokenized_bytes, r->n_text);
        ing_text_done(g, r);
    }
    return cost;
}

static int
ing_texts(struct ingress *g)
{
    uint32_t left = ING_SLICE;
    int work = 0;

    while (g->texts.head != NULL && left > 0 && que_has_room(g->cfg.q_egr, ING_EGR_SLOTS)) {
        uint32_t cost = ing_text_slice(g, left);

        left -= cost < left ? cost : left;
        work = 1;
    }
    return work;
}

/* ---- hashes --------------------------------------------------------------------- */

/* Hashes a slice of the prompt whose turn it is; returns its cost in ids. */
static int32_t
ing_hash_slice(struct ingress *g, int32_t max_ids)
{
    struct req *r = ing_first(&g->hashes);
    int32_t n = r->n_hashed, max = 0;

    if (ing_given_up(g, r))
        return 64;
    if (r->block_size > 0)
        max = max_ids > r->block_size ? max_ids / r->block_size : 1;
    if (req_hash_step(r, &g->cfg.key, max)) {
        ing_to_egress(g, r, QUE_OPEN, (struct ing_bad){ 0 });
        r->where = REQ_IN_ENGINE;
        if (!req_echoes(r)) /* else egress passes it on */
            ing_to_engine(g, r);
    } else {
        ing_append(&g->hashes, r);
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
    work |= ing_texts(g);
    work |= ing_hashes(g);
    return work;
}
