/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Ingress alone, fed by hand as the gate would: hashing by turns, whose
 * prompts share names, who is refused. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/mem.h"
#include "daemon/worker/ingress.h"
#include "daemon/worker/null_tok.h"
#include "daemon/worker/tokenizer.h"

#define B        64
#define MAX_REQS 8
#define VOCAB    259

struct fix {
    struct lnk_seg *seg;
    int fd;
    struct lnk gate, worker;
    struct que q_eng, q_egr, q_freed, q_text, q_ids;
    struct encode enc; /* the thread of long texts; fix_encode() */
    struct cnt_worker cnt;
    struct tok *tok;
    struct ingress *g;
    uint64_t next_id, now;
    struct fdp_req p; /* of the next request */
    uint64_t user;
    struct req *added[MAX_REQS];
    int n_added;
    int n_open;
    int32_t done; /* of the last QUE_OPEN */
    struct que_msg fail;
    int n_fail;
};

static struct fix *
fix_new(int prefix, int n_penalty)
{
    struct fix *f = mem_aligned(128, sizeof(*f));
    struct ing_cfg c;
    char err[256] = "";

    assert_int_equal(lnk_create(NULL, 1, &f->seg, &f->fd), 0);
    lnk_init_gate(&f->gate, f->seg, -1);
    lnk_init_worker(&f->worker, f->seg, -1);
    assert_int_equal(que_init(&f->q_eng, 64, NULL), 0);
    assert_int_equal(que_init(&f->q_egr, 64, NULL), 0);
    assert_int_equal(que_init(&f->q_freed, 64, NULL), 0);
    assert_int_equal(ntk_load(&f->tok, err, sizeof(err)), 0);
    c = (struct ing_cfg){ .lnk = &f->worker,
        .q_eng = &f->q_eng,
        .q_egr = &f->q_egr,
        .q_freed = &f->q_freed,
        .tok = f->tok,
        .max_reqs = MAX_REQS,
        .vocab = VOCAB,
        .max_len = 1 << 20,
        .block_size = B,
        .prefix = prefix,
        .key = { 5, 6 },
        .n_penalty = n_penalty,
        .max_logprobs = 20,
        .cnt = &f->cnt };
    f->g = ing_new(&c);
    assert_non_null(f->g);
    f->now = 1000;
    f->user = 1000;
    f->p = (struct fdp_req){ .op = FDP_OP_SUBMIT,
        .n = 1,
        .max_new = 10,
        .top_p = 1,
        .repetition_penalty = 1,
        .set = FDP_S_MAX_NEW | FDP_S_TEMPERATURE | FDP_S_TOP_P | FDP_S_PRESENCE |
            FDP_S_FREQUENCY | FDP_S_REPETITION };
    return f;
}

/* Long texts have a thread of their own: the caller of enc_poll(). */
static void
fix_encode(struct fix *f)
{
    assert_int_equal(que_init(&f->q_text, MAX_REQS, NULL), 0);
    assert_int_equal(que_init(&f->q_ids, MAX_REQS, NULL), 0);
    enc_init(&f->enc,
        &(struct enc_cfg){ .tok = f->tok,
            .vocab = VOCAB,
            .cnt = &f->cnt,
            .in = &f->q_text,
            .out = &f->q_ids });
    f->g->cfg.q_text = &f->q_text;
    f->g->cfg.q_ids = &f->q_ids;
}

static void
fix_free(struct fix *f)
{
    ing_free(f->g);
    enc_fini(&f->enc);
    que_fini(&f->q_text);
    que_fini(&f->q_ids);
    tok_free(f->tok);
    que_fini(&f->q_eng);
    que_fini(&f->q_egr);
    que_fini(&f->q_freed);
    lnk_leave(f->seg);
    (void)close(f->fd);
    free(f);
}

static void
give_back(struct fix *f, struct req *r)
{
    struct que_msg m = { .req = r, .kind = QUE_FREED, .n_top = QUE_NO_LOGPROB };

    que_push(&f->q_freed, &m);
}

/* One poll, and what came of it. */
static void
poll(struct fix *f)
{
    uint32_t n;

    (void)ing_poll(f->g, f->now);
    n = que_recheck(&f->q_egr);
    for (uint32_t i = 0; i < n; i++) {
        const struct que_msg *m = &que_peek(&f->q_egr, i)->m;

        f->n_open += m->kind == QUE_OPEN;
        if (m->kind == QUE_OPEN)
            f->done = m->done;
        if (m->kind != QUE_FAIL)
            continue;
        f->fail = *m;
        f->n_fail++;
        give_back(f, m->req);
    }
    que_pop(&f->q_egr, n);
    n = que_recheck(&f->q_eng);
    for (uint32_t i = 0; i < n; i++) {
        const struct que_msg *m = &que_peek(&f->q_eng, i)->m;

        if (m->kind == QUE_ADD)
            f->added[f->n_added++] = m->req;
    }
    que_pop(&f->q_eng, n);
}

static void *
claim(struct fix *f, uint64_t id, unsigned type, uint32_t len)
{
    void *p;

    while ((p = lnk_claim(&f->gate, id, type, 0, 0, len)) == NULL) {
        lnk_flush(&f->gate);
        poll(f);
    }
    return p;
}

/* The request f->p, whose items take n bytes. */
static uint64_t
submit_rec(struct fix *f, uint32_t bytes)
{
    uint64_t id = ++f->next_id;
    struct lnk_submit *s;

    f->p.len = bytes;
    s = claim(f, id, LNK_T_SUBMIT, sizeof(*s));
    *s = (struct lnk_submit){ .req = f->p, .user = f->user, .t_submit_ns = f->now };
    return id;
}

/* One record of items, from *at on. */
static void
submit_piece(struct fix *f, uint64_t id, const unsigned char *blob, uint32_t bytes,
    uint32_t *at)
{
    uint32_t k = bytes - *at < FDP_REC_MAX_LEN ? bytes - *at : FDP_REC_MAX_LEN;

    memcpy(claim(f, id, LNK_T_BLOB, k), blob + *at, k);
    *at += k;
}

static unsigned char *
item(unsigned type, const void *p, uint32_t len)
{
    unsigned char *blob = mem_zalloc(FDP_ITEM_SPAN(len));
    struct fdp_item it = { .type = (uint16_t)type, .len = len };

    assert_non_null(blob);
    memcpy(blob, &it, sizeof(it));
    memcpy(blob + sizeof(it), p, len);
    return blob;
}

/* The request f->p with this item. */
static uint64_t
submit_item(struct fix *f, unsigned type, const void *p, uint32_t len)
{
    uint32_t bytes = (uint32_t)FDP_ITEM_SPAN(len), at = 0;
    unsigned char *blob = item(type, p, len);
    uint64_t id = submit_rec(f, bytes);

    while (at < bytes)
        submit_piece(f, id, blob, bytes, &at);
    lnk_flush(&f->gate);
    free(blob);
    return id;
}

static void
cancel(struct fix *f, uint64_t id)
{
    struct lnk_cancel *c = claim(f, id, LNK_T_CANCEL, sizeof(*c));

    *c = (struct lnk_cancel){ .code = FDP_E_CANCELLED };
    lnk_flush(&f->gate);
}

static uint64_t
submit(struct fix *f, const uint32_t *ids, uint32_t n)
{
    return submit_item(f, FDP_IT_PROMPT_IDS, ids, n * 4);
}

/* The request, as the engine gets it; it must come at once. */
static struct req *
taken(struct fix *f, const uint32_t *ids, uint32_t n)
{
    int had = f->n_added;

    (void)submit(f, ids, n);
    poll(f);
    assert_int_equal(f->n_added, had + 1);
    return f->added[had];
}

static uint32_t *
prompt(uint32_t n)
{
    uint32_t *ids = mem_array(n, 4);

    assert_non_null(ids);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (i * 31 + i / 100) % VOCAB;
    return ids;
}

static void
are_hashes_of(const struct fix *f, const struct req *r, const uint32_t *ids)
{
    struct kv_hash h;

    pfx_root(&f->g->cfg.key, r->user, r->p.salt, 0, &h);
    assert_memory_equal(&h, &r->hash_root, sizeof(h));
    assert_int_equal(r->n_hash, r->n_ids / B);
    assert_int_equal(r->n_hashed, r->n_hash);
    for (int32_t i = 0; i < r->n_hash; i++) {
        pfx_next(&f->g->cfg.key, &h, ids + (size_t)i * B, B, &h);
        assert_memory_equal(&h, &r->hash[i], sizeof(h));
    }
    req_check(r);
}

/* ---- hashing ------------------------------------------------------------------------- */

static void
long_prompts_are_hashed_by_turns(void **state)
{
    uint32_t n = 12 * ING_HASH_SLICE + 100, *ids = prompt(n);
    struct fix *f = fix_new(1, 0);
    uint64_t a, b, c;
    struct req *ra;
    int polls = 0;

    (void)state;
    a = submit(f, ids, n);
    while ((ra = req_find(&f->g->pool, a)) == NULL || ra->where != REQ_IN_HASH)
        poll(f);
    assert_int_equal(f->n_open, 0);
    b = submit(f, ids, 3 * ING_HASH_SLICE);
    c = submit(f, ids, 200);
    while (f->n_added < 3) {
        int32_t had = ra->n_hashed;

        poll(f);
        polls++;
        /* a poll costs others no more than a slice */
        assert_in_range(ra->n_hashed - had, 0, ING_HASH_SLICE / B);
    }
    /* the shortest first, and each opened before */
    assert_int_equal(f->added[0]->id, c);
    assert_int_equal(f->added[1]->id, b);
    assert_ptr_equal(f->added[2], ra);
    assert_int_equal(f->n_open, 3);
    assert_true(polls >= 12);
    for (int i = 0; i < 3; i++)
        are_hashes_of(f, f->added[i], ids);
    free(ids);
    fix_free(f);
}

/* What a request may grow to, prompt and output, says how its keys are rotated. */
static void
rotation_is_part_of_names(void **state)
{
    static const struct {
        int32_t from, each, longer; /* than the request's greatest length */
        int32_t want;               /* -1: that length */
    } cases[] = { { 0, 0, 0, 0 }, { 0, 1, 0, 0 }, { 1, 0, 0, 0 }, { 1, 1, 0, 0 },
        { 1, 0, -1, 1 }, { 1, 1, -1, -1 } };
    uint32_t *ids = prompt(64);

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fix *f = fix_new(1, 0);
        int32_t longest = taken(f, ids, 64)->max_len;
        const struct req *r;
        struct kv_hash h;

        f->g->cfg.rope_from = cases[i].from ? longest + cases[i].longer : 0;
        f->g->cfg.rope_each = cases[i].each;
        r = taken(f, ids, 64);
        assert_int_equal(r->max_len, longest);
        pfx_root(&f->g->cfg.key, r->user, r->p.salt,
            cases[i].want < 0 ? longest : cases[i].want, &h);
        assert_memory_equal(&h, &r->hash_root, sizeof(h));
        fix_free(f);
    }
    free(ids);
}

static void
texts_are_hashed_too(void **state)
{
    struct fix *f = fix_new(1, 0);
    char text[1000];

    (void)state;
    memset(text, 'x', sizeof(text));
    (void)submit_item(f, FDP_IT_PROMPT_TEXT, text, sizeof(text));
    while (f->n_added == 0)
        poll(f);
    assert_true(f->added[0]->n_hash >= 15);
    are_hashes_of(f, f->added[0], f->added[0]->ids);
    fix_free(f);
}

static void
ends_while_it_is_hashed(void **state)
{
    uint32_t n = 4 * ING_HASH_SLICE, *ids = prompt(n);
    struct fix *f = fix_new(1, 0);
    uint64_t id;

    (void)state;
    id = submit(f, ids, n);
    while (f->g->hashes.head == NULL)
        poll(f);
    cancel(f, id);
    poll(f);
    assert_int_equal(f->n_fail, 1);
    assert_int_equal(f->fail.a, FDP_E_CANCELLED);
    poll(f);
    assert_int_equal(ing_open(f->g), 0);
    assert_int_equal(f->n_added + f->n_open, 0);
    free(ids);
    fix_free(f);
}

/* ---- items in pieces ------------------------------------------------------------------- */

/* Long items of several requests come by turns, and short ones in between. */
static void
pieces_take_turns(void **state)
{
    uint32_t n = 60 * B, bytes = (uint32_t)FDP_ITEM_SPAN(n * 4), at[2] = { 0, 0 };
    uint32_t *ids[2] = { prompt(n), prompt(n) };
    struct fix *f = fix_new(1, 0);
    unsigned char *blob[2];
    uint64_t id[2];

    (void)state;
    assert_true(bytes > FDP_REC_MAX_LEN);
    for (uint32_t i = 0; i < n; i++)
        ids[1][i] = VOCAB - 1 - ids[1][i];
    for (int i = 0; i < 2; i++) {
        blob[i] = item(FDP_IT_PROMPT_IDS, ids[i], n * 4);
        id[i] = submit_rec(f, bytes);
    }
    for (int i = 0; at[i] < bytes; i = !i)
        submit_piece(f, id[i], blob[i], bytes, &at[i]);
    submit_piece(f, id[1], blob[1], bytes, &at[1]);
    (void)submit(f, ids[0], 3);
    poll(f);
    assert_int_equal(f->n_added, 3);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(f->added[i]->id, id[i]);
        assert_int_equal(f->added[i]->n_ids, n);
        assert_memory_equal(f->added[i]->ids, ids[i], n * 4);
        are_hashes_of(f, f->added[i], ids[i]);
        free(ids[i]);
        free(blob[i]);
    }
    fix_free(f);
}

/* The gate sends nothing more of a request that it cancels: it ends at once. */
static void
ends_between_pieces(void **state)
{
    uint32_t n = 20 * B, bytes = (uint32_t)FDP_ITEM_SPAN(n * 4), at = 0;
    uint32_t *ids = prompt(n);
    unsigned char *blob = item(FDP_IT_PROMPT_IDS, ids, n * 4);
    struct fix *f = fix_new(1, 0);
    uint64_t id;

    (void)state;
    for (int i = 0; i < 2 * MAX_REQS; i++) { /* more than it has places for */
        at = 0;
        id = submit_rec(f, bytes);
        submit_piece(f, id, blob, bytes, &at);
        cancel(f, id);
        poll(f);
        assert_int_equal(f->n_fail, i + 1);
        assert_int_equal(f->fail.a, FDP_E_CANCELLED);
        poll(f);
        assert_int_equal(ing_open(f->g), 0);
    }
    (void)taken(f, ids, n);
    free(ids);
    free(blob);
    fix_free(f);
}

/* ---- names --------------------------------------------------------------------------- */

static void
names_are_of_one_user_and_salt(void **state)
{
    uint32_t *ids = prompt(2 * B);
    struct fix *f = fix_new(1, 0);
    struct req *r, *same, *user, *salt;

    (void)state;
    r = taken(f, ids, 2 * B);
    same = taken(f, ids, 2 * B);
    f->user = 1001;
    user = taken(f, ids, 2 * B);
    f->user = 1000;
    f->p.salt[3] = 1;
    salt = taken(f, ids, 2 * B);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(&r->hash[i], &same->hash[i], sizeof(r->hash[i]));
        assert_memory_not_equal(&r->hash[i], &user->hash[i], sizeof(r->hash[i]));
        assert_memory_not_equal(&r->hash[i], &salt->hash[i], sizeof(r->hash[i]));
        assert_memory_not_equal(&user->hash[i], &salt->hash[i], sizeof(r->hash[i]));
    }
    free(ids);
    fix_free(f);
}

static void
not_everything_is_cached(void **state)
{
    uint32_t *ids = prompt(2 * B);
    struct fix *f = fix_new(1, 0), *off = fix_new(0, 0);
    struct req *r;

    (void)state;
    r = taken(off, ids, 2 * B);
    assert_int_equal(r->hash_root.a | r->hash_root.b, 0);
    assert_int_equal(r->block_size, 0);
    assert_int_equal(r->n_hash, 0);
    assert_int_equal(r->seqs[0].n_hash, 0);
    req_check(r);
    /* what it computes can be found by others */
    f->p.flags = 0;
    f->p.set |= FDP_S_PROMPT_LOGPROBS;
    f->p.prompt_logprobs = 1;
    r = taken(f, ids, 2 * B);
    assert_int_equal(r->n_hash, 2);
    req_check(r);
    free(ids);
    fix_free(f);
    fix_free(off);
}

/* ---- penalties ----------------------------------------------------------------------- */

/* The error of a request with these penalties, or 0; *ret_used its mark. */
static int
penalties(int n_penalty, float presence, float frequency, float repetition, int *ret_used)
{
    struct fix *f = fix_new(0, n_penalty);
    uint32_t id = 1;
    int code;

    f->p.presence_penalty = presence;
    f->p.frequency_penalty = frequency;
    f->p.repetition_penalty = repetition;
    (void)submit(f, &id, 1);
    poll(f);
    assert_int_equal(f->n_added + f->n_fail, 1);
    code = f->fail.a;
    if (f->n_fail > 0)
        assert_int_equal(f->fail.idx,
            presence != 0        ? FDP_D_PRESENCE
                : frequency != 0 ? FDP_D_FREQUENCY
                                 : FDP_D_PENALTY);
    else
        *ret_used = f->added[0]->penalized;
    fix_free(f);
    return code;
}

/* What a request does not set is the model's; what it sets is its own. */
static void
unset_is_the_models(void **state)
{
    struct fix *f = fix_new(0, 4);
    uint32_t id = 1;
    const struct fdp_req *p;

    (void)state;
    f->g->cfg.dflt = (struct ing_defaults){ .temperature = 0.6f,
        .top_p = 0.9f,
        .min_p = 0.25f,
        .repetition_penalty = 1.5f,
        .top_k = 20 };
    f->p.set = FDP_S_MAX_NEW | FDP_S_TOP_P;
    f->p.repetition_penalty = 0;
    (void)submit(f, &id, 1);
    poll(f);
    assert_int_equal(f->n_added, 1);
    p = &f->added[0]->p;
    assert_true(p->temperature == 0.6f && p->top_p == 1 && p->min_p == 0.25f);
    assert_true(p->top_k == 20 && p->repetition_penalty == 1.5f);
    assert_int_equal(f->added[0]->penalized, 1);
    fix_free(f);
}

static void
penalties_need_a_pool(void **state)
{
    int used = -1;

    (void)state;
    assert_int_equal(penalties(0, 0, 0, 1, &used), 0);
    assert_int_equal(used, 0);
    assert_int_equal(penalties(4, 0, 0, 0, &used), FDP_E_BAD_PARAM);
    assert_int_equal(penalties(0, 0.5f, 0, 1, &used), FDP_E_UNSUPPORTED);
    assert_int_equal(penalties(0, 0, -2, 1, &used), FDP_E_UNSUPPORTED);
    assert_int_equal(penalties(0, 0, 0, 1.5f, &used), FDP_E_UNSUPPORTED);
    assert_int_equal(penalties(1, 0.5f, 0, 1, &used), 0);
    assert_int_equal(used, 1);
    assert_int_equal(penalties(1, 0, -2, 1, &used), 0);
    assert_int_equal(used, 1);
    assert_int_equal(penalties(1, 0, 0, 0.5f, &used), 0);
    assert_int_equal(used, 1);
    assert_int_equal(penalties(1, 2.5f, 0, 1, &used), FDP_E_BAD_PARAM);
    assert_int_equal(penalties(1, 0, NAN, 1, &used), FDP_E_BAD_PARAM);
    assert_int_equal(penalties(1, 0, 0, -1, &used), FDP_E_BAD_PARAM);
    assert_int_equal(penalties(1, 0, 0, 2.5f, &used), FDP_E_BAD_PARAM);
    assert_int_equal(penalties(1, 0, 0, 1e-38f, &used), FDP_E_BAD_PARAM);
    assert_int_equal(penalties(1, 0, 0, 0.001f, &used), 0);
}

/* What does not fit behind a prompt is refused where max_new is set, however the prompt
 * came; where it is not set, there is what the prompt leaves. */
static void
output_must_fit(void **state)
{
    static const unsigned types[] = { FDP_IT_PROMPT_IDS, FDP_IT_PROMPT_TEXT };
    uint32_t *ids = prompt(64);
    char text[64];

    (void)state;
    memset(text, 'x', sizeof(text));
    for (int i = 0; i < 2; i++) {
        const void *p = i == 0 ? (const void *)ids : text;
        uint32_t len = i == 0 ? 64 * 4 : sizeof(text), n;
        struct fix *f = fix_new(0, 0);

        (void)submit_item(f, types[i], p, len);
        for (int k = 0; k < 4; k++)
            poll(f);
        assert_int_equal(f->n_added, 1);
        n = (uint32_t)f->added[0]->n_prompt;
        assert_int_equal(f->added[0]->max_len, n + 10);
        give_back(f, f->added[0]);
        f->g->cfg.max_len = (int32_t)n + 10; /* just */
        (void)submit_item(f, types[i], p, len);
        for (int k = 0; k < 4; k++)
            poll(f);
        assert_int_equal(f->n_added, 2);
        give_back(f, f->added[1]);
        f->p.max_new = 11;
        (void)submit_item(f, types[i], p, len);
        for (int k = 0; k < 4; k++)
            poll(f);
        assert_int_equal(f->n_fail, 1);
        assert_int_equal(f->fail.a, FDP_E_TOO_LONG);
        assert_int_equal(f->fail.idx, FDP_D_MAX_NEW);
        assert_int_equal(f->fail.x, n + 11);
        assert_int_equal(f->fail.serial, n + 10);
        assert_int_equal(f->fail.sample, types[i]);
        f->p.max_new = 0;
        f->p.set &= ~FDP_S_MAX_NEW;
        f->g->cfg.default_max_tokens = 11;
        (void)submit_item(f, types[i], p, len);
        for (int k = 0; k < 4; k++)
            poll(f);
        assert_int_equal(f->n_added, 3);
        assert_int_equal(f->added[2]->max_len, n + 10);
        /* regression: the limit left no token for the output */
        f->g->cfg.max_len = (int32_t)n;
        (void)submit_item(f, types[i], p, len);
        for (int k = 0; k < 4; k++)
            poll(f);
        assert_int_equal(f->n_fail, 2);
        assert_int_equal(f->fail.idx, FDP_D_PROMPT);
        assert_int_equal(f->fail.x, n);
        assert_int_equal(f->fail.serial, n - 1);
        fix_free(f);
    }
    free(ids);
}

/* ---- rules ----------------------------------------------------------------------------- */

/* A prompt of one id and these items, which may be of any number. */
static void
submit_rules(struct fix *f, const unsigned *type, const void *const *p,
    const uint32_t *len, int n)
{
    static unsigned char blob[1 << 17] __attribute__((aligned(8)));
    uint32_t id = 1, bytes = 0, at = 0;
    unsigned char *b = item(FDP_IT_PROMPT_IDS, &id, 4);
    uint64_t req;

    memcpy(blob, b, FDP_ITEM_SPAN(4));
    bytes = FDP_ITEM_SPAN(4);
    free(b);
    for (int i = 0; i < n; i++) {
        b = item(type[i], p[i], len[i]);
        memcpy(blob + bytes, b, FDP_ITEM_SPAN(len[i]));
        bytes += (uint32_t)FDP_ITEM_SPAN(len[i]);
        free(b);
    }
    req = submit_rec(f, bytes);
    while (at < bytes)
        submit_piece(f, req, blob, bytes, &at);
    lnk_flush(&f->gate);
}

static void
submit_rule(struct fix *f, unsigned type, const void *p, uint32_t len)
{
    submit_rules(f, &type, &p, &len, 1);
}

/* The one failure so far. */
static void
refused(struct fix *f, int n_penalty, unsigned type, const void *p, uint32_t len,
    const struct ing_bad *b)
{
    f->n_fail = 0;
    f->g->cfg.n_penalty = n_penalty;
    submit_rule(f, type, p, len);
    for (int i = 0; i < 4 && f->n_fail == 0; i++)
        poll(f);
    assert_int_equal(f->n_fail, 1);
    assert_int_equal(f->n_added, 0);
    assert_int_equal(f->fail.a, b->code);
    assert_int_equal(f->fail.idx, b->detail);
    assert_int_equal(f->fail.x, b->arg);
    assert_int_equal(f->fail.serial, b->limit);
    assert_int_equal(f->fail.sample, type);
}

static void
bad_rules_are_refused(void **state)
{
    static const struct fdp_bias twice[] = { { 5, 1 }, { 4, 1 }, { 5, 1 } };
    static const struct fdp_bias far[] = { { VOCAB, 1 } };
    static const uint32_t ids[] = { 1, VOCAB };
    static const struct fdp_reasoning re = { 1, 2, VOCAB, 0 };
    char word[FDP_MAX_BAD_IDS + 1];
    struct fix *f = fix_new(0, 4);

    (void)state;
    memset(word, 'x', sizeof(word));
    refused(f, 4, FDP_IT_LOGIT_BIAS, twice, 24,
        &(struct ing_bad){ FDP_E_BAD_PARAM, FDP_D_BIAS_TWICE, 5, 0, 0 });
    refused(f, 4, FDP_IT_LOGIT_BIAS, far, 8,
        &(struct ing_bad){ FDP_E_BAD_TOKEN, FDP_D_BIAS_IDS, VOCAB, VOCAB - 1, 0 });
    refused(f, 4, FDP_IT_ALLOWED_IDS, ids, 8,
        &(struct ing_bad){ FDP_E_BAD_TOKEN, FDP_D_ALLOWED, VOCAB, VOCAB - 1, 0 });
    refused(f, 4, FDP_IT_BAD_IDS, ids, 8,
        &(struct ing_bad){ FDP_E_BAD_TOKEN, FDP_D_BAD_WORDS, VOCAB, VOCAB - 1, 0 });
    refused(f, 4, FDP_IT_REASONING, &re, 16,
        &(struct ing_bad){ FDP_E_BAD_TOKEN, FDP_D_REASONING, VOCAB, VOCAB - 1, 0 });
    refused(f, 4, FDP_IT_LOGPROB_IDS, ids, 4,
        &(struct ing_bad){ FDP_E_BAD_PARAM, FDP_D_SET, FDP_S_LOGPROBS, 0, 0 });
    /* nothing but spaces; with a space before it, one id too long */
    refused(f, 4, FDP_IT_BAD_WORDS, "   ", 3,
        &(struct ing_bad){ FDP_E_BAD_PARAM, FDP_D_BAD_WORDS, 0, 1, 0 });
    refused(f, 4, FDP_IT_BAD_WORDS, word, FDP_MAX_BAD_IDS,
        &(struct ing_bad){ FDP_E_BAD_PARAM, FDP_D_BAD_WORDS, FDP_MAX_BAD_IDS + 1,
            FDP_MAX_BAD_IDS, 0 });
    /* without a pool there are none */
    refused(f, 0, FDP_IT_LOGIT_BIAS, twice, 16,
        &(struct ing_bad){ FDP_E_UNSUPPORTED, FDP_D_BIAS_IDS, 0, 0, 0 });
    refused(f, 0, FDP_IT_BAD_WORDS, "a", 1,
        &(struct ing_bad){ FDP_E_UNSUPPORTED, FDP_D_BAD_WORDS, 0, 0, 0 });
    poll(f);
    assert_int_equal(ing_open(f->g), 0);
    fix_free(f);
}

/* Sequences of ids as they came, then each word without a space before it and with one. */
static void
words_are_banned_both_ways(void **state)
{
    static const uint32_t ids[] = { 7, 8 };
    static const unsigned type[] = { FDP_IT_BAD_WORDS, FDP_IT_BAD_IDS, FDP_IT_BAD_WORDS };
    const void *const p[] = { "  ab", ids, "c" };
    static const uint32_t len[] = { 4, 8, 1 };
    static const int32_t want[] = { 7, 8, ' ', 'a', 'b', 'a', 'b', ' ', 'c', 'c' };
    static const int32_t size[] = { 2, 3, 2, 2, 1 };
    struct fix *f = fix_new(0, 4);
    const struct rls *r;
    int at = 0;

    (void)state;
    submit_rules(f, type, p, len, 3);
    for (int i = 0; i < 4 && f->n_added == 0; i++)
        poll(f);
    assert_int_equal(f->n_added, 1);
    r = f->added[0]->rules;
    assert_int_equal(f->added[0]->penalized, 1);
    assert_int_equal(r->n_ban, 5);
    for (int i = 0; i < 5; i++) {
        at += size[i];
        assert_int_equal(r->ban_end[i], at);
    }
    assert_memory_equal(r->ban_ids, want, sizeof(want));
    assert_non_null(r->words);
    give_back(f, f->added[0]);
    poll(f);
    assert_int_equal(ing_open(f->g), 0);
    fix_free(f);
}

/* Many words before a prompt do not hold up other requests by more than a slice. */
static void
words_take_turns(void **state)
{
    static unsigned type[FDP_MAX_BAD];
    static const void *p[FDP_MAX_BAD];
    static uint32_t len[FDP_MAX_BAD];
    struct fix *f = fix_new(0, 4);
    uint32_t id = 1;
    int polls = 0;

    (void)state;
    for (int i = 0; i < FDP_MAX_BAD; i++) {
        type[i] = FDP_IT_BAD_WORDS;
        p[i] = "abcdefghij";
        len[i] = 10;
    }
    submit_rules(f, type, p, len, FDP_MAX_BAD);
    poll(f);
    (void)submit(f, &id, 1);
    for (; f->n_added < 2 && polls < 20; polls++)
        poll(f);
    assert_int_equal(f->n_added, 2);
    assert_int_equal(f->added[0]->id, 2);
    assert_int_equal(f->added[1]->rules->n_ban, 2 * FDP_MAX_BAD);
    assert_true(polls >= 3);
    fix_free(f);
}

/* The logprobs of LOGPROB_IDS count in what best_of may keep. */
static void
chosen_count_in_best_of(void **state)
{
    static const uint32_t ids[] = { 5, 6 };
    struct fix *f = fix_new(0, 4);

    (void)state;
    f->p.max_new = (uint32_t)(REQ_HELD_BYTES / 10 / (3 * sizeof(struct fdp_logprob)));
    f->p.set |= FDP_S_LOGPROBS;
    f->p.best_of = 10;
    submit_rule(f, FDP_IT_LOGPROB_IDS, ids, sizeof(ids));
    poll(f);
    assert_int_equal(f->n_added, 1);
    f->p.best_of = 11;
    submit_rule(f, FDP_IT_LOGPROB_IDS, ids, sizeof(ids));
    poll(f);
    assert_int_equal(f->n_fail, 1);
    assert_int_equal(f->fail.a, FDP_E_BAD_PARAM);
    assert_int_equal(f->fail.idx, FDP_D_BEST_OF);
    assert_int_equal(f->fail.serial, 10);
    fix_free(f);
}

/* ---- prior ids --------------------------------------------------------------------------- */

/* A prompt of one id with n prior ids, the last of which is `last`. */
static void
submit_prior(struct fix *f, uint32_t n, uint32_t last)
{
    uint32_t *ids = prompt(n);

    ids[n - 1] = last;
    f->p.n_prior = n;
    submit_rule(f, FDP_IT_PRIOR_IDS, ids, n * 4);
    poll(f);
    free(ids);
}

/* Regression: a client that resumed an answer after output.default_max_tokens was lowered
 * got E_BAD_PARAM for prior ids that its program had not set. */
static void
default_was_lowered(void **state)
{
    struct fix *f = fix_new(0, 0);

    (void)state;
    f->g->cfg.default_max_tokens = 3;
    f->p.max_new = 0;
    f->p.set &= ~FDP_S_MAX_NEW;
    submit_prior(f, 5, 7);
    assert_int_equal(f->n_fail, 0);
    assert_int_equal(f->n_open, 1);
    assert_int_equal(f->done, FDK_DONE_LENGTH);
    /* what a program sets itself still counts, and so does the model's length */
    f->g->cfg.max_len = 5;
    submit_prior(f, 5, 7);
    assert_int_equal(f->n_fail, 1);
    assert_int_equal(f->fail.a, FDP_E_BAD_PARAM);
    f->p.max_new = 3;
    f->p.set |= FDP_S_MAX_NEW;
    submit_prior(f, 4, 7);
    assert_int_equal(f->n_fail, 2);
    assert_int_equal(f->fail.idx, FDP_D_PRIOR);
    assert_int_equal(f->fail.serial, 3);
    assert_int_equal(f->n_open, 1);
    fix_free(f);
}

/* Regression: prior ids that end with a stop id ended a request whose min_new is higher. */
static void
stop_id_before_min_new(void **state)
{
    struct fix *f = fix_new(0, 0);

    (void)state;
    f->g->cfg.n_eos = 1;
    f->g->cfg.eos[0] = 7;
    for (uint32_t min = 3; min <= 5; min++) {
        f->p.min_new = min;
        submit_prior(f, 5, 7);
        assert_int_equal(f->n_open, min - 2);
        assert_int_equal(f->done, min < 5 ? FDK_DONE_STOP : FDK_DONE_NO);
    }
    assert_int_equal(f->n_fail, 0);
    fix_free(f);
}

/* ---- limits that change --------------------------------------------------------------- */

/* fdctl set output.max_logprobs=30, and at once a request that asks for 25. */
static void
records_wait_for_new_limits(void **state)
{
    static const struct ing_limits more = { .max_logprobs = 30 };
    struct fix *f = fix_new(0, 0);
    uint32_t ids[] = { 1, 2, 3 };

    (void)state;
    f->p.set |= FDP_S_LOGPROBS;
    f->p.logprobs = 20;
    give_back(f, taken(f, ids, 3));
    assert_int_equal(ing_wait_reload(f->g, 1), 0);
    f->p.logprobs = 25;
    (void)claim(f, 0, LNK_T_RELOAD, 0);
    (void)submit(f, ids, 3);
    for (int i = 0; i < 3; i++) {
        poll(f);
        assert_int_equal(ing_wait_reload(f->g, 1), 1);
    }
    assert_int_equal(f->n_added + f->n_fail, 1);
    ing_set_limits(f->g, &more);
    assert_int_equal(ing_wait_reload(f->g, 1), 0);
    poll(f);
    assert_int_equal(f->n_fail, 0);
    assert_int_equal(f->n_added, 2);
    give_back(f, f->added[1]);
    poll(f);
    assert_int_equal(ing_open(f->g), 0);
    fix_free(f);
}

/* ---- long texts ---------------------------------------------------------------------- */

#define LONG (20 * ENC_SLICE + 7)

static char *
long_text(void)
{
    char *text = malloc(LONG);

    assert_non_null(text);
    memset(text, 'x', LONG);
    return text;
}

/* The text's items have come, and the thread has it. */
static void
long_text_comes(struct fix *f)
{
    for (int i = 0; que_recheck(&f->q_text) == 0; i++) {
        assert_in_range(i, 0, 100);
        poll(f);
    }
}

/* Runs the thread until a text has ended; returns the number of its polls. */
static int
encode(struct fix *f)
{
    int n = 0, ended = 0;

    for (; !ended; n++)
        assert_int_not_equal(enc_poll(&f->enc, f->now, &ended), 0);
    return n;
}

/* A text of more than a slice is left to the thread; ingress takes other requests
 * meanwhile, a short text as well. */
static void
long_texts_delay_nobody(void **state)
{
    struct fix *f = fix_new(1, 0);
    char *text = long_text();
    static const uint32_t ids[3] = { 1, 2, 3 };

    (void)state;
    fix_encode(f);
    (void)submit_item(f, FDP_IT_PROMPT_TEXT, text, LONG);
    long_text_comes(f);
    for (int i = 0; i < 40; i++)
        poll(f);
    assert_int_equal(f->n_added, 0);
    assert_int_equal(f->cnt.tokenize_ns, 0);
    (void)taken(f, ids, 3);
    (void)submit_item(f, FDP_IT_PROMPT_TEXT, text, ENC_SLICE);
    for (int i = 0; i < 10; i++)
        poll(f);
    assert_int_equal(f->n_added, 2);
    assert_true(encode(f) >= 20);
    assert_int_equal(f->cnt.tokenized_bytes, LONG + ENC_SLICE);
    assert_int_equal(f->n_added, 2);
    while (f->n_added == 2)
        poll(f);
    assert_int_equal(f->added[2]->n_prompt, LONG);
    for (uint32_t i = 0; i < LONG; i++)
        assert_int_equal(f->added[2]->ids[i], 'x');
    are_hashes_of(f, f->added[2], f->added[2]->ids);
    free(text);
    fix_free(f);
}

/* What it bans is tokenized before. */
static void
long_texts_come_after_bans(void **state)
{
    struct fix *f = fix_new(0, 4);
    uint32_t n = (uint32_t)FDP_ITEM_SPAN(1), at = 0;
    unsigned char *blob = mem_zalloc(n + FDP_ITEM_SPAN(LONG)),
                  *ban = item(FDP_IT_BAD_WORDS, "q", 1);
    char *text = long_text();
    unsigned char *rest = item(FDP_IT_PROMPT_TEXT, text, LONG);
    uint64_t id;

    (void)state;
    fix_encode(f);
    memcpy(blob, ban, n);
    memcpy(blob + n, rest, FDP_ITEM_SPAN(LONG));
    n += (uint32_t)FDP_ITEM_SPAN(LONG);
    id = submit_rec(f, n);
    while (at < n)
        submit_piece(f, id, blob, n, &at);
    lnk_flush(&f->gate);
    long_text_comes(f);
    (void)encode(f);
    poll(f);
    assert_int_equal(f->n_fail, 0);
    assert_int_equal(f->n_added, 1);
    assert_int_equal(f->added[0]->n_prompt, LONG);
    assert_int_equal(f->added[0]->rules->n_ban, 2);
    free(blob);
    free(ban);
    free(rest);
    free(text);
    fix_free(f);
}

/* It ends early, or is no text. */
static void
long_texts_fail(void **state)
{
    struct fix *f = fix_new(0, 0);
    char *text = long_text();
    uint64_t id;
    int ended;

    (void)state;
    fix_encode(f);
    id = submit_item(f, FDP_IT_PROMPT_TEXT, text, LONG);
    long_text_comes(f);
    assert_int_not_equal(enc_poll(&f->enc, f->now, &ended), 0);
    cancel(f, id);
    poll(f);
    assert_int_equal(f->n_fail, 0);
    assert_int_equal(encode(f), 1);
    poll(f);
    assert_int_equal(f->n_fail, 1);
    assert_int_equal(f->fail.a, FDP_E_CANCELLED);
    /* ingress reads its clock before the thread does */
    (void)submit_item(f, FDP_IT_PROMPT_TEXT, text, LONG);
    long_text_comes(f);
    f->g->pool.reqs[0].deadline_total_ns = f->now + 10;
    f->now += 10;
    assert_int_equal(encode(f), 1);
    f->now -= 5;
    poll(f);
    assert_int_equal(f->n_fail, 2);
    assert_int_equal(f->fail.a, FDP_E_DEADLINE);
    text[LONG - 1] = (char)0xff;
    (void)submit_item(f, FDP_IT_PROMPT_TEXT, text, LONG);
    long_text_comes(f);
    assert_int_equal(encode(f), 1);
    poll(f);
    assert_int_equal(f->n_fail, 3);
    assert_int_equal(f->fail.a, FDP_E_BAD_TEXT);
    poll(f);
    assert_int_equal(ing_open(f->g), 0);
    free(text);
    fix_free(f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_texts_delay_nobody),
        cmocka_unit_test(long_texts_come_after_bans),
        cmocka_unit_test(long_texts_fail),
        cmocka_unit_test(long_prompts_are_hashed_by_turns),
        cmocka_unit_test(rotation_is_part_of_names),
        cmocka_unit_test(texts_are_hashed_too),
        cmocka_unit_test(ends_while_it_is_hashed),
        cmocka_unit_test(pieces_take_turns),
        cmocka_unit_test(ends_between_pieces),
        cmocka_unit_test(names_are_of_one_user_and_salt),
        cmocka_unit_test(not_everything_is_cached),
        cmocka_unit_test(unset_is_the_models),
        cmocka_unit_test(penalties_need_a_pool),
        cmocka_unit_test(output_must_fit),
        cmocka_unit_test(bad_rules_are_refused),
        cmocka_unit_test(words_are_banned_both_ways),
        cmocka_unit_test(words_take_turns),
        cmocka_unit_test(chosen_count_in_best_of),
        cmocka_unit_test(default_was_lowered),
        cmocka_unit_test(stop_id_before_min_new),
        cmocka_unit_test(records_wait_for_new_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
