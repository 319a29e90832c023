/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/unit/sched_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"

static const struct pfx_key fx_key = { 0x1234, 0x5678 };

static uint64_t
fx_mix(uint64_t a, uint64_t b)
{
    uint64_t z = a * 0x9e3779b97f4a7c15ull + b + 0x632be59bd9b4e019ull;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

uint32_t
fx_rand(struct fx *f, uint32_t lo, uint32_t hi)
{
    f->rng = fx_mix(f->rng, 1);
    return lo + (uint32_t)(f->rng >> 33) % (hi - lo + 1);
}

/* The model: the token that follows a digest. */
static uint32_t
fx_next(uint64_t digest, int32_t sample)
{
    return (uint32_t)(fx_mix(digest, (uint64_t)sample + 77) >> 33) % 50000;
}

static int
fx_is_stop(const struct req *r, uint32_t token)
{
    return r->n_stop > 0 && token % 61 == 0;
}

/* ---- begin and end --------------------------------------------------------------- */

struct fx *
fx_new(const struct fx_cfg *cfg)
{
    struct fx *f = mem_zalloc(sizeof(*f));
    struct kv_cfg kc = { .n_block = cfg->n_block,
        .block_size = cfg->block_size,
        .n_slot = cfg->sch.max_seqs,
        .n_host = cfg->n_host,
        .max_copy = cfg->max_copy,
        .max_drop = cfg->max_drop,
        .n_group = cfg->n_group,
        .max_step = cfg->sch.max_tokens };
    size_t B = (size_t)cfg->block_size;

    f->cfg = *cfg;
    f->cfg.sch.key = fx_key;
    if (f->cfg.max_req == 0)
        f->cfg.max_req = 64;
    if (f->cfg.max_len == 0)
        f->cfg.max_len = cfg->n_block * cfg->block_size;
    kc.max_len = f->cfg.max_len;
    memcpy(kc.window, cfg->window, sizeof(kc.window));
    f->rng = 42;
    f->now = 1000000000;
    f->step_ns = 1000000;
    assert_int_equal(req_pool_init(&f->rp, (uint32_t)f->cfg.max_req), 0);
    f->kv = kv_new(&kc);
    assert_non_null(f->kv);
    f->sch = sch_new(&f->cfg.sch, f->kv);
    assert_non_null(f->sch);
    assert_int_equal(sch_step_init(&f->st, cfg->sch.max_seqs), 0);
    f->cell = mem_array((size_t)(cfg->n_block + 1) * B, sizeof(uint64_t));
    f->host = mem_array((size_t)cfg->n_host * B, sizeof(uint64_t));
    f->state = mem_array((size_t)cfg->sch.max_seqs, sizeof(*f->state));
    f->reqs = mem_array((size_t)f->cfg.max_req, sizeof(*f->reqs));
    for (int i = 0; i <= FX_MAX_DEPTH; i++)
        f->rec[i].outs = mem_array((size_t)cfg->sch.max_seqs, sizeof(struct fx_out));
    return f;
}

static void
fx_forget(struct fx_req *q, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        free(q->seqs[i].ids);
        free(q->seqs[i].digest);
    }
    free(q->seqs);
    memset(q, 0, sizeof(*q));
}

void
fx_free(struct fx *f)
{
    while (fx_collect(f))
        continue;
    sch_check(f->sch);
    assert_false(sch_busy(f->sch));
    assert_int_equal(kv_reclaim(f->kv, f->cfg.n_block), f->cfg.n_block);
    assert_int_equal(f->kv->n_deferred, 0);
    assert_int_equal(f->sch->n_dl, 0);
    assert_int_equal(f->sch->n_penalty_free, f->cfg.sch.n_penalty);
    for (int32_t i = 0; i < f->cfg.max_req; i++)
        if (f->reqs[i].r != NULL)
            fx_forget(&f->reqs[i], f->reqs[i].r->n_seq);
    for (int i = 0; i <= FX_MAX_DEPTH; i++)
        free(f->rec[i].outs);
    free(f->cell);
    free(f->host);
    free(f->state);
    free(f->reqs);
    sch_step_fini(&f->st);
    (void)sch_free(f->sch);
    (void)kv_free(f->kv);
    req_pool_fini(&f->rp);
    free(f);
}

/* ---- requests -------------------------------------------------------------------- */

/* Computes the expected output, as the simple loop would give it. */
static void
fx_foretell(struct fx_seq *x, const struct req *r, int32_t sample)
{
    uint64_t d = 0;

    x->ids = mem_array((size_t)r->max_len, sizeof(*x->ids));
    x->digest = mem_array((size_t)r->max_len, sizeof(*x->digest));
    x->end = r->max_len;
    for (int32_t p = 0; p < r->max_len; p++) {
        x->ids[p] = p < r->n_ids ? r->ids[p] : fx_next(d, sample);
        d = x->digest[p] = fx_mix(d, x->ids[p]);
        if (p >= r->n_ids && fx_is_stop(r, x->ids[p])) {
            x->end = p + 1;
            return;
        }
    }
}

struct req *
fx_add(struct fx *f, const struct fx_ask *a)
{
    struct req *r = req_get(&f->rp, ++f->id);
    struct fx_req *q;
    uint8_t salt[16] = { 0 };

    assert_non_null(r);
    q = &f->reqs[r->idx];
    r->where = REQ_IN_ENGINE;
    r->n_ids = a->n_prompt;
    r->n_prompt = a->n_prompt - a->n_prior;
    r->max_len = a->n_prompt + a->max_new;
    assert_true(a->max_new > 0 && r->max_len <= f->cfg.max_len);
    r->n_seq = a->n > 0 ? a->n : 1;
    r->n_stop = a->stops;
    r->p.priority = a->priority;
    r->penalized = a->penalized;
    r->p.set |= a->scores ? FDP_S_PROMPT_LOGPROBS : 0;
    r->deadline_queue_ns = a->deadline_queue_ns;
    r->deadline_total_ns = a->deadline_total_ns;
    r->ids = mem_array((size_t)a->n_prompt, 4);
    for (int32_t i = 0; i < a->n_prompt; i++)
        r->ids[i] = a->ids != NULL
            ? a->ids[i]
            : (uint32_t)(fx_mix(a->n_same > 0 && i >= a->n_same ? a->text + f->id * 1000
                                                                : a->text,
                             (uint64_t)i) %
                  50000);
    /* prompt logprobs come from computed tokens only */
    if (f->cfg.cached && !a->scores) {
        r->block_size = f->cfg.block_size;
        pfx_root(&fx_key, a->user, salt, 0, &r->hash_root);
    }
    assert_int_equal(req_make_seqs(r), 0);
    if (f->cfg.cached)
        assert_int_equal(req_hash_step(r, &fx_key, INT32_MAX), 1);
    q->r = r;
    q->seqs = mem_array((size_t)r->n_seq, sizeof(*q->seqs));
    for (int32_t i = 0; i < r->n_seq; i++)
        fx_foretell(&q->seqs[i], r, i);
    sch_add(f->sch, r);
    return r;
}

struct req *
fx_plain(struct fx *f, int32_t n_prompt, int32_t max_new)
{
    return fx_add(f,
        &(struct fx_ask){ .n_prompt = n_prompt, .max_new = max_new, .text = 1000000 + f->id });
}

void
fx_cancel(struct fx *f, struct req *r)
{
    f->reqs[r->idx].touched = 1;
    sch_end_req(f->sch, r, FDP_E_CANCELLED);
}

/* Ended requests must have the expected tokens, and all of them
 * unless the host ended them. */
static void
fx_ended(struct fx *f)
{
    struct req *r;

    while ((r = sch_take_ended(f->sch)) != NULL) {
        struct fx_req *q = &f->reqs[r->idx];

        assert_ptr_equal(q->r, r);
        for (int32_t i = 0; i < r->n_seq; i++) {
            const struct seq *s = &r->seqs[i];
            const struct fx_seq *x = &q->seqs[i];

            assert_int_equal(s->state, REQ_ST_ENDED);
            assert_true(s->n_tok <= x->end);
            if (r->code == 0 && !q->touched)
                assert_int_equal(s->n_tok, x->end);
            for (int32_t p = r->n_ids; p < s->n_tok; p++)
                assert_int_equal(req_token(s, p), x->ids[p]);
        }
        f->n_ended++;
        f->last_ended = r;
        if (f->keep)
            continue;
        fx_forget(q, r->n_seq);
        req_put(&f->rp, r);
    }
}

/* ---- the device ------------------------------------------------------------------ */

static uint64_t *
fx_cell(struct fx *f, const struct seq *s, int32_t group, int32_t pos)
{
    return &f->cell[kv_slot(f->kv, s->slot, group, pos)];
}

/* Writes a token's KV cells of one group and checks the cells
 * that the token attends to. */
static void
fx_run_group(struct fx *f, const struct sch_row *row, int32_t group)
{
    const struct seq *s = row->seq;
    const struct fx_seq *x = &f->reqs[s->req->idx].seqs[s->sample];
    int32_t begin = kv_first(f->kv, group, row->first) * f->kv->block_size;
    int32_t end = row->first + row->q_len;

    for (int32_t p = row->first; p < end && group > 0; p++)
        *fx_cell(f, s, group, p) = fx_mix(x->digest[p], (uint64_t)group);
    for (int32_t p = begin; p < end; p++)
        assert_int_equal(*fx_cell(f, s, group, p),
            group > 0 ? fx_mix(x->digest[p], (uint64_t)group) : x->digest[p]);
}

static void
fx_copies(struct fx *f)
{
    size_t B = (size_t)f->cfg.block_size;

    for (int32_t i = 0; i < f->kv->n_copy; i++) {
        const struct kv_copy *c = &f->kv->copy[i];
        uint64_t *dev = f->cell + (size_t)c->dev * B;
        uint64_t *host = f->host + (size_t)c->host * B;

        assert_true(c->dev > 0 && c->dev <= f->cfg.n_block);
        assert_true(c->host >= 0 && c->host < f->cfg.n_host);
        memcpy(c->to_host ? host : dev, c->to_host ? dev : host, B * sizeof(uint64_t));
    }
    for (int32_t i = 0; i < f->kv->n_dup; i++)
        memcpy(f->cell + (size_t)f->kv->dup[i].to * B,
            f->cell + (size_t)f->kv->dup[i].from * B, B * sizeof(uint64_t));
    f->n_dup += (uint64_t)f->kv->n_dup;
    f->n_copy += (uint64_t)f->kv->n_copy;
    kv_copied(f->kv);
}

/* Checks where a row starts and which tokens of its prompt it computes. */
static void
fx_check_row(struct fx *f, const struct sch_row *row)
{
    const struct seq *s = row->seq;
    struct fx_seq *x = &f->reqs[s->req->idx].seqs[s->sample];

    if (row->fresh) {
        /* after a preemption only the sequence that it made room for is admitted */
        assert_int_equal(f->st.n_preempted, f->st.n_urged);
        if (f->st.n_urged > 0)
            assert_true(!f->cfg.sch.fcfs && s->req->p.priority < f->st.urged);
        if (row->first % f->cfg.block_size != 0 || !f->cfg.cached)
            assert_true(row->first == 0 || (s->req->n_seq > 1 && !f->cfg.sch.unshared));
        f->n_cached += (uint64_t)row->first;
        x->n_prefill = row->first;
    } else {
        assert_int_equal(row->first, x->next);
    }
    assert_true(row->q_len > 0 && s->state == REQ_ST_RUNNING);
    x->next = row->first + row->q_len;
    assert_int_equal(x->next, s->cached_len);
    if (!row->decode)
        x->n_prefill += row->q_len;
    if (row->decode) {
        assert_int_equal(row->q_len, 1);
        assert_true(row->first >= s->req->n_ids && row->sample);
    }
    /* the chunks add up to the known tokens */
    if (row->sample && !row->decode)
        assert_int_equal(x->n_prefill, x->next);
}

/* Computes a row's tokens; a row that is done writes nothing. */
static void
fx_run_row(struct fx *f, const struct sch_row *row, struct fx_rec *rec)
{
    const struct seq *s = row->seq;
    const struct req *r = s->req;
    struct fx_state *d = &f->state[s->slot];
    uint64_t digest = 0;

    if (row->fresh)
        *d = (struct fx_state){ .last_token = req_token(s, s->n_tok - 1), .len = s->n_tok };
    for (int32_t i = 0; i < row->q_len && !d->done; i++) {
        int32_t p = row->first + i;
        uint32_t id = row->decode && !row->fresh ? d->last_token : req_token(s, p);

        digest = fx_mix(p > 0 ? *fx_cell(f, s, 0, p - 1) : 0, id);
        *fx_cell(f, s, 0, p) = digest;
    }
    for (int32_t g = 0; g < f->kv->n_group && !d->done; g++)
        fx_run_group(f, row, g);
    if (!row->sample)
        return;
    rec->outs[rec->n_out++] = (struct fx_out){ s->slot, s->generation,
        d->done ? 99999 : fx_next(digest, s->sample), row->first + row->q_len };
    if (d->done)
        return;
    assert_int_equal(d->len, row->first + row->q_len);
    d->last_token = fx_next(digest, s->sample);
    d->len++;
    d->done = fx_is_stop(r, d->last_token) || d->len >= r->max_len;
}

static void
fx_run(struct fx *f)
{
    struct fx_rec *rec = &f->rec[f->st.epoch % (FX_MAX_DEPTH + 1)];
    const struct sch_cfg *c = &f->cfg.sch;
    int32_t n_tok = 0, n_score = 0, n_sample = 0, n_decode = 0;

    rec->epoch = f->st.epoch;
    rec->n_out = 0;
    fx_copies(f);
    for (int32_t i = 0; i < f->st.n_row; i++) {
        const struct sch_row *row = &f->st.rows[i];

        for (int32_t k = 0; k < i; k++)
            assert_ptr_not_equal(row->seq, f->st.rows[k].seq);
        fx_check_row(f, row);
        fx_run_row(f, row, rec);
        n_tok += row->q_len;
        n_score += row->n_score;
        n_sample += row->sample;
        n_decode += row->decode;
    }
    assert_true(n_tok <= c->max_tokens && n_score <= c->max_scores);
    assert_int_equal(n_tok, f->st.n_tok);
    assert_int_equal(n_score, f->st.n_score);
    assert_int_equal(n_sample, f->st.n_sample);
    assert_int_equal(n_decode, f->st.n_decode);
    assert_int_equal(n_tok, f->st.cost.n_tok);
}

static void
fx_append(struct fx *f, const struct fx_rec *rec)
{
    for (int32_t i = 0; i < rec->n_out; i++) {
        const struct fx_out *o = &rec->outs[i];
        struct seq *s = sch_slot(f->sch, o->slot, o->generation);
        const struct fx_seq *x;

        if (s == NULL || s->state == REQ_ST_FINISHING) {
            f->n_late++;
            continue;
        }
        x = &f->reqs[s->req->idx].seqs[s->sample];
        assert_int_equal(o->pos, s->n_tok);
        assert_int_equal(o->token, x->ids[o->pos]);
        f->n_token++;
        sch_append(f->sch, s, o->token, s->n_tok + 1 == x->end);
    }
}

int
fx_collect(struct fx *f)
{
    const struct fx_rec *rec = &f->rec[(f->done + 1) % (FX_MAX_DEPTH + 1)];

    if (f->done == f->sch->epoch)
        return 0;
    f->done++;
    assert_int_equal(rec->epoch, f->done);
    if (f->cfg.append_first)
        fx_append(f, rec);
    sch_collected(f->sch, f->done);
    if (!f->cfg.append_first)
        fx_append(f, rec);
    fx_ended(f);
    return 1;
}

/* No sequence holds more blocks than its tokens need and one for the next token. If a
 * sequence was admitted, all blocks reserved for prompts are still there. */
static void
fx_check_blocks(struct fx *f)
{
    int fresh = 0;

    for (int32_t i = 0; i < f->st.n_row; i++)
        fresh |= f->st.rows[i].fresh;
    if (fresh && f->st.n_preempted == 0)
        assert_true(kv_reclaim(f->kv, (int32_t)f->sch->n_owed) >= f->sch->n_owed);
    for (const struct seq *s = f->sch->running.head; s != NULL; s = s->next) {
        assert_true(f->kv->n_held[s->slot] <= kv_blocks(f->kv, s->cached_len) + 1);
        assert_true(
            kv_held(f->kv, s->slot) <= kv_lack_from(f->kv, 0, f->kv->n_held[s->slot], 1));
    }
}

/* Limits on unfinished prompts hold after every step. */
static void
fx_check_limits(const struct fx *f)
{
    const struct sch_cfg *c = &f->cfg.sch;
    int32_t n = 0, n_long = 0;

    for (const struct seq *s = f->sch->running.head; s != NULL; s = s->next) {
        n += req_is_prefill(s);
        n_long += req_is_prefill(s) && c->long_threshold > 0 &&
            s->device_len > c->long_threshold;
    }
    assert_true(c->max_partial == 0 || n <= c->max_partial);
    assert_true(c->max_long == 0 || n_long <= c->max_long);
}

int32_t
fx_step(struct fx *f)
{
    int32_t n;

    f->now += f->step_ns;
    n = sch_pick(f->sch, f->now, &f->st);
    fx_ended(f);
    assert_true(f->st.n_urged <= (f->cfg.sch.fcfs ? 0 : SCH_MAX_URGED));
    f->n_urged += (uint64_t)f->st.n_urged;
    if (!f->cfg.no_check)
        sch_check(f->sch);
    if (n > 0) {
        f->n_step++;
        fx_check_limits(f);
        fx_check_blocks(f);
        fx_run(f);
    } else {
        /* with nothing in flight there is always something to run */
        assert_true(f->done < f->sch->epoch || !sch_busy(f->sch));
        (void)fx_collect(f);
    }
    while (f->sch->epoch - f->done > (uint64_t)f->cfg.depth)
        (void)fx_collect(f);
    if (!f->cfg.no_check)
        sch_check(f->sch);
    return n;
}

void
fx_drain(struct fx *f, int32_t max_steps)
{
    while (sch_busy(f->sch)) {
        assert_true(max_steps-- > 0);
        (void)fx_step(f);
    }
}

const struct sch_row *
fx_row(const struct fx *f, const struct seq *s)
{
    for (int32_t i = 0; i < f->st.n_row; i++)
        if (f->st.rows[i].seq == s)
            return &f->st.rows[i];
    return NULL;
}
