/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/scheduler_pick_priv.h"

#include <errno.h>
#include <string.h>

#include "daemon/common/obj.h"

/* A longer prefix, in blocks, is not looked up once p->look_up is used up. */
#define SCH_FEW 64

struct sch_fit { /* how a waiting sequence would start */
    const struct kv_hash *h;
    int32_t n_h;             /* hashes that may be used */
    int32_t attach;          /* places to attach */
    int32_t ask;             /* hashes to attach by: attach, or n_h */
    int32_t q;               /* tokens in this step */
    int32_t want;            /* places to have in the end */
    int32_t lack;            /* blocks the pool is short of */
    struct kv_match m;       /* the blocks of these attach places */
    const struct seq *donor; /* another sample that has the prompt, or NULL */
    int32_t common;          /* tokens shared with donor; attach is their full blocks */
};

/* ---- looking up blocks ----------------------------------------------------------- */

static int32_t
sch_blocks_known(const struct sch *sch, const struct seq *s)
{
    return kv_blocks(sch->kv, s->device_len);
}

void
sch_promise(struct sch_pick *p)
{
    for (const struct seq *s = p->sch->running.head; s != NULL; s = s->next) {
        int32_t n = kv_lack(p->sch->kv, s->slot, sch_blocks_known(p->sch, s));

        p->promised += n > s->n_owed ? n : s->n_owed;
    }
}

/* Set the hashes of the leading blocks that may be attached, contiguous. At least one
 * token must be left to compute. */
static void
sch_hashes(const struct sch *sch, const struct seq *s, struct sch_fit *f)
{
    const struct req *r = s->req;

    f->h = r->hash;
    f->n_h = 0;
    if (!sch_is_cached(sch, s))
        return;
    f->n_h = (s->device_len - 1) / sch->kv->block_size;
    if (f->n_h > s->n_hash)
        f->n_h = s->n_hash;
    /* logprobs of prompt tokens come from computing the position before */
    if (req_wants_scores(s) && s->n_scored < r->n_prompt &&
        f->n_h > (s->n_scored - 1) / sch->kv->block_size)
        f->n_h = (s->n_scored - 1) / sch->kv->block_size;
    if (f->n_h <= r->n_hash)
        return;
    memcpy(sch->hash_buf, r->hash, (size_t)r->n_hash * sizeof(*r->hash));
    memcpy(sch->hash_buf + r->n_hash, s->hash,
        (size_t)(f->n_h - r->n_hash) * sizeof(*r->hash));
    f->h = sch->hash_buf;
}

/* The amount by which a look-up reduces p->look_up. */
static int32_t
sch_looked(const struct sch *sch, const struct sch_fit *f)
{
    return sch->kv->n_windowed > 0 ? f->m.n_seen : f->m.n;
}

int32_t
sch_find(struct sch_pick *p, struct seq *s)
{
    struct sch_fit f = { 0 };

    sch_hashes(p->sch, s, &f);
    if (f.n_h > 0)
        kv_find(p->sch->kv, f.h, f.n_h, &f.m);
    p->look_up -= sch_looked(p->sch, &f);
    return s->n_found = f.m.n * p->sch->kv->block_size;
}

/* Tokens that s could share with another sample of its request; at least one is left to
 * compute. 0: also for a prompt without a full block, which each sample computes. */
static int32_t
sch_common(const struct sch *sch, const struct seq *s)
{
    const struct req *r = s->req;
    int32_t n = r->n_ids < s->device_len ? r->n_ids : s->device_len - 1;

    if (r->n_seq == 1 || sch->cfg.unshared)
        return 0;
    /* logprobs of prompt tokens come from computing them; generated tokens that were
     * registered are found after the prompt */
    if ((req_wants_scores(s) && s->n_scored < r->n_prompt) ||
        (s->n_tok > r->n_ids && sch_is_cached(sch, s)))
        return 0;
    return n >= sch->kv->block_size ? n : 0;
}

/* A sample of the same request whose prompt was computed before this step, and whose
 * blocks s could continue at n_tok; NULL: none. *ret_soon: 1 if a sample is computing
 * it. */
static const struct seq *
sch_donor(const struct sch *sch, const struct seq *s, int32_t n_tok, int *ret_soon)
{
    const struct req *r = s->req;

    *ret_soon = 0;
    for (int32_t i = 0; i < r->n_seq; i++) {
        const struct seq *t = &r->seqs[i];

        if (t->slot < 0)
            continue;
        /* epoch + 1 is the step being chosen */
        if (t->ids_epoch == 0 || t->ids_epoch > sch->epoch)
            *ret_soon |= t->state == REQ_ST_RUNNING;
        else if (kv_can_share(sch->kv, t->slot, n_tok))
            return t;
    }
    return NULL;
}

int32_t
sch_shared(const struct sch *sch, const struct seq *s)
{
    int32_t n = sch_common(sch, s);
    int soon;

    return n > 0 && sch_donor(sch, s, n, &soon) != NULL ? n : 0;
}

/* Does s begin with the blocks of another sample, or wait for them? SCH_GOES: neither,
 * or with those of f->donor. */
static enum sch_verdict
sch_look_beside(const struct sch *sch, const struct seq *s, struct sch_fit *f)
{
    int soon = 0;

    f->common = sch_common(sch, s);
    if (f->common == 0)
        return SCH_GOES;
    f->donor = sch_donor(sch, s, f->common, &soon);
    if (f->donor == NULL)
        return soon ? SCH_LATER : SCH_GOES;
    f->attach = f->m.n = f->common / sch->kv->block_size;
    return SCH_GOES;
}

/* Is an unfinished prompt about to compute the next block that s would need? */
static int
sch_has_duplicate(const struct sch_pick *p, const struct sch_fit *f)
{
    int32_t i = f->m.n;

    if (i >= f->n_h)
        return 0;
    for (int32_t k = 0; k < p->n_ahead; k++) {
        const struct seq *t = p->ahead[k];
        const struct kv_hash *h;

        if (i >= t->n_hash || t->cached_len >= (i + 1) * p->sch->kv->block_size)
            continue;
        h = req_block_hash(t, i);
        if (h->a == f->h[i].a && h->b == f->h[i].b)
            return 1;
    }
    return 0;
}

/* Use copies from the host only if they take less time than computing. */
static void
sch_weigh_host(struct sch_pick *p, struct sch_fit *f)
{
    const struct cost *c = p->sch->cfg.cost;
    int32_t n_all = f->m.n * p->sch->kv->block_size;
    int32_t n_dev = f->m.n_dev * p->sch->kv->block_size;
    struct cost_step all = { 0 }, dev = { 0 };

    sch_add_prompt(p->sch, 0, n_all, &all);
    sch_add_prompt(p->sch, 0, n_dev, &dev);
    if (f->m.n_host == 0 || c == NULL || c->copy_ns == 0 || cost_predict(c, &all) == 0)
        return;
    if (c->copy_ns * f->m.n_host <= (double)(cost_predict(c, &all) - cost_predict(c, &dev)))
        return;
    f->ask = f->m.n_dev;
    f->m = (struct kv_match){ .n = f->m.n_dev,
        .n_idle = f->m.n_dev_idle,
        .n_dev = f->m.n_dev,
        .n_dev_idle = f->m.n_dev_idle };
}

/* Would s, with the first f->attach blocks attached, get tokens and a place in this
 * step? Sets f->q. */
static enum sch_verdict
sch_fit_step(struct sch_pick *p, const struct seq *s, struct sch_fit *f)
{
    const struct sch_cfg *c = &p->sch->cfg;
    int32_t from = f->donor != NULL ? f->common : f->attach * p->sch->kv->block_size;
    int32_t need = s->device_len - from, left;
    int whole = !c->chunked && s->n_passed < SCH_MAX_PASSED;
    /* a sequence that shares a prompt is not held up as a long one */
    int32_t most = whole || f->donor != NULL ? p->tokens : sch_share(p, s);

    f->q = sch_chunk(p, s, from, most, whole);
    if (f->q == 0) {
        if (p->tokens > 0 && most > 0 && p->timed && (p->floor == 0 || !p->starved) &&
            !sch_in_time(p, 0, 1, p->target_ns > p->floor_ns ? p->target_ns : p->floor_ns))
            return SCH_STOP;
        return whole && need > p->tokens ? SCH_SHORT : SCH_LIMIT;
    }
    left = need - f->q;
    if (left > 1 && c->max_partial > 0 && p->n_partial >= c->max_partial)
        return SCH_LIMIT;
    if (left > 1 && sch_is_long(p->sch, s) && c->max_long > 0 && p->n_long >= c->max_long)
        return SCH_LIMIT;
    return SCH_GOES;
}

/* Would the pool hold s? Sets f->want and f->lack. */
static enum sch_verdict
sch_fit_pool(const struct sch_pick *p, const struct seq *s, struct sch_fit *f)
{
    const struct sch *sch = p->sch;
    int32_t known = sch_blocks_known(sch, s), most = kv_blocks(sch->kv, s->max_len);
    int32_t from = f->donor != NULL ? f->common : f->attach * sch->kv->block_size;
    /* blocks that attaching takes from the available ones */
    int32_t taken = f->m.n_host + f->m.n_idle, need, available;

    f->want = known + sch->cfg.decode_blocks;
    if (f->want > most)
        f->want = most;
    need = taken + kv_lack_from(sch->kv, from, f->want, 0);
    if (sch->running.n == 0) {
        available = kv_reclaim(sch->kv, need);
        while (need > available && f->want > known)
            need = taken + kv_lack_from(sch->kv, from, --f->want, 0);
        f->lack = need - available;
        return f->lack <= 0 ? SCH_GOES : SCH_SHORT;
    }
    need += p->promised + sch->cfg.reserve_blocks;
    /* a preempted sequence must not come back to the same shortage */
    if (s->n_preempted > 0)
        need += (sch->running.n + 3) / 4 * sch->kv->n_group;
    available = kv_reclaim(sch->kv, need);
    f->lack = need - available;
    return f->lack <= 0 ? SCH_GOES : SCH_SHORT;
}

/* ---- shortages remembered -------------------------------------------------------- */

static struct sch_short *
sch_short_at(struct sch *sch, const struct seq *s)
{
    return &sch->lack[(s->req->order + s->sample) % SCH_N_SHORT];
}

static void
sch_short_note(struct sch_pick *p, const struct seq *s, const struct sch_fit *f)
{
    struct sch *sch = p->sch;

    *sch_short_at(sch, s) = (struct sch_short){ .order = s->req->order,
        .sample = s->sample,
        .n_tok = s->device_len,
        .n_preempted = s->n_preempted,
        .n_h = f->n_h,
        .n_found = f->m.n,
        .lack = f->lack,
        .promised = p->promised,
        .n_running = sch->running.n,
        .n_back = sch->kv->n_back,
        .n_filled = sch->n_filled };
}

/* Is the pool still too short for s? Each block that came back makes up for at most
 * one, and so does each promise that ended, unless its block was taken. The first hash
 * that was not found still ends the prefix until it is there. */
static int
sch_still_short(struct sch_pick *p, const struct seq *s)
{
    struct sch *sch = p->sch;
    const struct sch_short *k = sch_short_at(sch, s);
    const struct kv *kv = sch->kv;
    int64_t more;

    if (k->lack <= 0 || k->order != s->req->order || k->sample != s->sample ||
        k->n_tok != s->device_len || k->n_preempted != s->n_preempted ||
        sch->running.n == 0 || (s->n_preempted > 0 && sch->running.n < k->n_running))
        return 0;
    more = (int64_t)(kv->n_back - k->n_back) + kv->n_pending + k->promised - p->promised -
        (int64_t)(sch->n_filled - k->n_filled);
    if (more >= k->lack)
        return 0;
    p->lack = (int32_t)(k->lack - more);
    return k->n_found >= k->n_h || !kv_has(kv, req_block_hash(s, k->n_found));
}

/* ---- one admission --------------------------------------------------------------- */

/* Owe s the blocks it wants beyond the attached ones, if they are not owed to others.
 * If nothing else runs, s makes do with the blocks for its known tokens. */
static int
sch_owe_rest(const struct sch_pick *p, struct seq *s, struct sch_fit *f, int idle)
{
    struct sch *sch = p->sch;
    int32_t need = kv_lack(sch->kv, s->slot, f->want);
    int32_t n = kv_reclaim(sch->kv, p->promised + need) - p->promised;

    while (idle && need > n && f->want > sch_blocks_known(sch, s))
        need = kv_lack(sch->kv, s->slot, --f->want);
    if (need > n)
        return -ENOSPC;
    sch_owe(sch, s, f->want);
    s->n_may = s->n_owed;
    return 0;
}

/* Fill the table with the full places of f->donor's, or from the prefix cache. Returns
 * the number of places. */
static int32_t
sch_begin_table(struct sch *sch, const struct seq *s, const struct sch_fit *f)
{
    if (f->donor == NULL)
        return f->ask > 0 ? kv_attach(sch->kv, s->slot, f->h, f->ask) : 0;
    kv_share(sch->kv, s->slot, f->donor->slot, f->common);
    return f->attach;
}

/* Copy the donor's tokens of the next, partial block before the step. */
static void
sch_copy_rest(struct sch_pick *p, struct seq *s, const struct sch_fit *f)
{
    struct sch *sch = p->sch;
    int32_t owed = s->n_owed;

    s->cached_len = f->common;
    if (f->common % sch->kv->block_size == 0)
        return;
    ASSERT_Z(sch_grow(sch, s, f->common));
    s->n_may -= owed - s->n_owed;
    kv_dup(sch->kv, s->slot, f->donor->slot, f->attach, p->st->epoch);
}

/* Commit the admission, and undo it if the pool does not have the blocks after all. */
static enum sch_verdict
sch_start_row(struct sch_pick *p, struct seq *s, struct sch_fit *f)
{
    struct sch *sch = p->sch;
    int32_t B = sch->kv->block_size, got, rc, hit;
    int idle = sch->running.n == 0;

    sch_start(sch, s);
    got = sch_begin_table(sch, s, f);
    ASSERT(f->donor != NULL || got <= f->n_h);
    rc = sch_owe_rest(p, s, f, idle);
    if (rc == 0 && got != f->attach) {
        f->attach = got;
        rc = (int32_t)sch_fit_step(p, s, f);
    }
    if (rc != 0) {
        /* counted again when it is admitted */
        sch->kv->n_lookup -= (uint64_t)f->ask;
        sch->kv->n_hit -= f->donor == NULL ? (uint64_t)got : 0;
        sch_unstart(sch, s);
        return SCH_SHORT;
    }
    s->cached_len = got * B;
    s->n_registered = sch_is_cached(sch, s) ? got : 0;
    if (f->donor != NULL)
        sch_copy_rest(p, s, f);
    hit = s->cached_len < s->req->n_prompt ? s->cached_len : s->req->n_prompt;
    p->st->n_cached += hit;
    if (s->sample == 0 && s->n_preempted == 0)
        s->req->n_cached = (uint32_t)hit;
    s->n_passed = 0;
    if (s->req->t_start_ns == 0) {
        s->req->t_start_ns = p->now_ns;
        if (s->req->started != NULL) /* pairs with rly_expire_sent() */
            __atomic_store_n(s->req->started, s->req->id, __ATOMIC_RELEASE);
    }
    trc_put_event(sch->cfg.trc, p->now_ns, s->n_preempted > 0 ? TRC_RESUME : TRC_START,
        s->req->id, s->sample, hit, s->slot);
    return SCH_GOES;
}

/* Look s up in the prefix cache, and decide whether it may start if there is room. */
static enum sch_verdict
sch_look_up(struct sch_pick *p, struct seq *s, struct sch_fit *f)
{
    struct sch *sch = p->sch;
    enum sch_verdict v;

    if (s->req->penalized && sch->n_penalty_free == 0)
        return SCH_LIMIT;
    v = sch_look_beside(sch, s, f);
    if (v != SCH_GOES || f->donor != NULL)
        return v;
    if (sch_still_short(p, s))
        return SCH_SHORT;
    p->lack = 0;
    sch_hashes(sch, s, f);
    if (p->look_up <= 0 && f->n_h > SCH_FEW)
        return SCH_LIMIT;
    f->ask = f->n_h;
    if (f->n_h > 0) {
        kv_find(sch->kv, f->h, f->n_h, &f->m);
        sch->n_found++;
        p->look_up -= sch_looked(sch, f);
        s->n_found = f->m.n * sch->kv->block_size;
        if (sch_has_duplicate(p, f))
            return SCH_LATER;
        sch_weigh_host(p, f);
    }
    f->attach = f->m.n;
    return SCH_GOES;
}

static enum sch_verdict
sch_fit(struct sch_pick *p, struct seq *s, struct sch_fit *f)
{
    enum sch_verdict v = sch_look_up(p, s, f);

    if (v == SCH_GOES)
        v = sch_fit_step(p, s, f);
    if (v == SCH_GOES) {
        v = sch_fit_pool(p, s, f);
        p->lack = f->lack;
        if (f->lack > 0)
            sch_short_note(p, s, f);
    }
    return v;
}

enum sch_verdict
sch_admit(struct sch_pick *p, struct seq *s)
{
    struct sch *sch = p->sch;
    struct sch_fit f = { 0 };
    enum sch_verdict v;
    int32_t left;

    p->lack = 0;
    v = sch_fit(p, s, &f);
    if (v == SCH_GOES)
        v = sch_start_row(p, s, &f);
    if (v != SCH_GOES)
        return v;
    p->promised += s->n_owed;
    ASSERT(sch_hold(p, s, f.q) == f.q);
    sch_give(p, sch_row(p, s), f.q);
    if (sch_is_long(sch, s))
        p->long_left -= f.q;
    sch_count_partial(p, s);
    p->n_long_had += req_is_prefill(s) && sch_is_long(sch, s);
    left = kv_lack(sch->kv, s->slot, sch_blocks_known(sch, s)) - s->n_owed;
    p->promised += left > 0 ? left : 0;
    return SCH_GOES;
}

void
sch_want_rows(struct sch_pick *p)
{
    struct sch *sch = p->sch;
    struct seq *s = sch->waiting.head;
    struct sch_fit f = { 0 };
    enum sch_verdict v;
    int32_t rows = 0;

    if (!p->first || !p->admit || sch->n_slot_free > 0 || s == NULL || !sch_is_urgent(p, s))
        return;
    p->lack = 0;
    v = sch_fit(p, s, &f);
    if (v != SCH_GOES && (v != SCH_SHORT || p->lack <= 0))
        return;
    for (const struct seq *w = s;
         w != NULL && rows < SCH_MAX_URGED && (w == s || sch_is_urgent(p, w)); w = w->next)
        rows++;
    sch_want(p, s, p->lack, rows);
}
