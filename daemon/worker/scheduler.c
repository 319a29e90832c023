/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/scheduler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/worker/scheduler_priv.h"

/* ---- lists ----------------------------------------------------------------------- */

static void
sch_unlink(struct sch_list *l, struct seq *s)
{
    if (s->prev != NULL)
        s->prev->next = s->next;
    else
        l->head = s->next;
    if (s->next != NULL)
        s->next->prev = s->prev;
    else
        l->tail = s->prev;
    s->prev = s->next = NULL;
    l->n--;
}

/* Link s after at, or first if at is NULL. */
static void
sch_link(struct sch_list *l, struct seq *at, struct seq *s)
{
    s->prev = at;
    s->next = at != NULL ? at->next : l->head;
    if (s->next != NULL)
        s->next->prev = s;
    else
        l->tail = s;
    if (at != NULL)
        at->next = s;
    else
        l->head = s;
    l->n++;
}

int32_t
sch_priority(const struct sch *sch, const struct seq *s)
{
    return sch->cfg.fcfs ? 0 : s->req->p.priority;
}

int
sch_before(const struct sch *sch, const struct seq *a, const struct seq *b)
{
    int32_t pa = sch_priority(sch, a), pb = sch_priority(sch, b);

    if (pa != pb)
        return pa < pb;
    if (a->req->order != b->req->order)
        return a->req->order < b->req->order;
    return a->sample < b->sample;
}

/* First of the marks whose priority is at least that value. */
static int32_t
sch_mark_at(const struct sch *sch, int32_t priority)
{
    int32_t i = 0;

    while (i < sch->n_mark && sch->mark[i].priority < priority)
        i++;
    return i;
}

/* New sequences belong after the last of their priority, preempted ones near the first.
 * The marks only say where to start searching. */
static void
sch_wait(struct sch *sch, struct seq *s, int preempted)
{
    int32_t pr = sch_priority(sch, s), i = sch_mark_at(sch, pr);
    int marked = i < sch->n_mark && sch->mark[i].priority == pr;
    struct seq *at = marked && !preempted ? sch->mark[i].tail
        : i > 0                           ? sch->mark[i - 1].tail
                                          : NULL;
    struct seq *nx = at != NULL ? at->next : sch->waiting.head;

    while (nx != NULL && sch_before(sch, nx, s)) {
        at = nx;
        nx = nx->next;
    }
    while (at != NULL && sch_before(sch, s, at))
        at = at->prev;
    s->state = REQ_ST_WAITING;
    sch_link(&sch->waiting, at, s);
    if (!marked && sch->n_mark < SCH_MAX_MARK) {
        /* others of this priority may wait already, from a time when there were too
         * many priorities to mark */
        while (s->next != NULL && sch_priority(sch, s->next) == pr)
            s = s->next;
        memmove(&sch->mark[i + 1], &sch->mark[i],
            (size_t)(sch->n_mark - i) * sizeof(sch->mark[0]));
        sch->mark[i] = (struct sch_mark){ pr, s };
        sch->n_mark++;
    } else if (marked && sch->mark[i].tail->next == s) {
        sch->mark[i].tail = s;
    }
}

static void
sch_wait_no_more(struct sch *sch, struct seq *s)
{
    int32_t pr = sch_priority(sch, s), i = sch_mark_at(sch, pr);

    if (i < sch->n_mark && sch->mark[i].tail == s) {
        if (s->prev != NULL && sch_priority(sch, s->prev) == pr) {
            sch->mark[i].tail = s->prev;
        } else {
            sch->n_mark--;
            memmove(&sch->mark[i], &sch->mark[i + 1],
                (size_t)(sch->n_mark - i) * sizeof(sch->mark[0]));
        }
    }
    if (sch->scan == s)
        sch->scan = s->next;
    if (sch->want.s == s)
        sch->want.s = NULL;
    sch_unlink(&sch->waiting, s);
}

/* ---- life ------------------------------------------------------------------------ */

struct sch *
sch_new(const struct sch_cfg *cfg, struct kv *kv)
{
    struct sch *sch;

    OBJ_CHECK(kv, KV_MAGIC);
    ASSERT(cfg->max_seqs > 0 && cfg->max_tokens > 0 && cfg->max_scores > 0);
    ASSERT(kv->n_slot == cfg->max_seqs && cfg->n_penalty >= 0);
    ASSERT(cfg->reserve_blocks >= 0 && cfg->decode_blocks >= 0);
    OBJ_ALLOC(sch, SCH_MAGIC);
    if (sch == NULL)
        return NULL;
    sch->cfg = *cfg;
    sch->kv = kv;
    sch->slot_seq = mem_array((size_t)cfg->max_seqs, sizeof(struct seq *));
    sch->slot_gen = mem_array((size_t)cfg->max_seqs, sizeof(uint32_t));
    sch->slot_free = mem_array((size_t)cfg->max_seqs, sizeof(int32_t));
    sch->penalty_free = mem_array((size_t)cfg->n_penalty, sizeof(int32_t));
    sch->dl = mem_array(SCH_N_TICK, sizeof(struct req *));
    sch->hash_buf = mem_array((size_t)kv->stride, sizeof(struct kv_hash));
    sch->id_buf = mem_array((size_t)kv->block_size, sizeof(uint32_t));
    if (sch->slot_seq == NULL || sch->slot_gen == NULL || sch->slot_free == NULL ||
        sch->penalty_free == NULL || sch->dl == NULL || sch->hash_buf == NULL ||
        sch->id_buf == NULL)
        return sch_free(sch);
    for (int32_t i = cfg->max_seqs - 1; i >= 0; i--)
        sch->slot_free[sch->n_slot_free++] = i;
    for (int32_t i = cfg->n_penalty - 1; i >= 0; i--)
        sch->penalty_free[sch->n_penalty_free++] = i;
    return sch;
}

struct sch *
sch_free(struct sch *sch)
{
    if (sch == NULL)
        return NULL;
    free(sch->slot_seq);
    free(sch->slot_gen);
    free(sch->slot_free);
    free(sch->penalty_free);
    free(sch->dl);
    free(sch->hash_buf);
    free(sch->id_buf);
    OBJ_FREE(sch, SCH_MAGIC);
    return NULL;
}

int
sch_step_init(struct sch_step *st, int32_t max_seqs)
{
    memset(st, 0, sizeof(*st));
    st->rows = mem_array((size_t)max_seqs, sizeof(struct sch_row));
    return st->rows != NULL ? 0 : -ENOMEM;
}

void
sch_step_fini(struct sch_step *st)
{
    free(st->rows);
    st->rows = NULL;
}

/* ---- slots ----------------------------------------------------------------------- */

/* Index of a user's counter. Users who share a counter are taken for one: their
 * sequences may then bypass each other less often. */
static uint64_t
sch_user(const struct seq *s)
{
    return s->req->user * 0x9e3779b97f4a7c15ull >> 54;
}

int32_t *
sch_served(struct sch *sch, const struct seq *s)
{
    return &sch->served[sch_user(s)];
}

uint64_t *
sch_spent(struct sch *sch, const struct seq *s)
{
    return &sch->spent[sch_user(s)];
}

static void
sch_slot_take(struct sch *sch, struct seq *s)
{
    ASSERT(sch->n_slot_free > 0 && s->slot < 0);
    s->slot = sch->slot_free[--sch->n_slot_free];
    s->generation = ++sch->slot_gen[s->slot];
    s->fresh = 1;
    s->slide_pos = 0;
    sch->slot_seq[s->slot] = s;
    sch->n_req_running += s->req->n_slot++ == 0;
    (*sch_served(sch, s))++;
    s->penalty = -1;
    if (s->req->penalized) {
        ASSERT(sch->n_penalty_free > 0);
        s->penalty = sch->penalty_free[--sch->n_penalty_free];
    }
}

static void
sch_slot_give(struct sch *sch, struct seq *s)
{
    ASSERT(s->slot >= 0 && sch->slot_seq[s->slot] == s);
    kv_drop(sch->kv, s->slot, s->last_epoch);
    sch->slot_seq[s->slot] = NULL;
    /* results for the old owner now find another generation */
    sch->slot_gen[s->slot]++;
    sch->slot_free[sch->n_slot_free++] = s->slot;
    s->slot = -1;
    sch->n_req_running -= --s->req->n_slot == 0;
    (*sch_served(sch, s))--;
    if (s->penalty >= 0)
        sch->penalty_free[sch->n_penalty_free++] = s->penalty;
    s->penalty = -1;
}

struct seq *
sch_slot(const struct sch *sch, int32_t slot, uint32_t generation)
{
    if (slot < 0 || slot >= sch->cfg.max_seqs || sch->slot_gen[slot] != generation)
        return NULL;
    return sch->slot_seq[slot];
}

/* Does a launched step that is not collected have the row? */
static int
sch_in_flight(const struct sch *sch, const struct seq *s)
{
    return s->last_epoch > sch->kv->collected;
}

/* ---- blocks ---------------------------------------------------------------------- */

void
sch_owe(struct sch *sch, struct seq *s, int32_t n)
{
    int32_t owed = kv_lack(sch->kv, s->slot, n);

    sch->n_owed += owed - s->n_owed;
    s->n_owed = owed;
    s->n_want = n;
}

int
sch_grow(struct sch *sch, struct seq *s, int32_t n_tok)
{
    int32_t had = sch->kv->n_held[s->slot], owed = s->n_owed;

    if (kv_grow(sch->kv, s->slot, n_tok) != 0)
        return -ENOSPC;
    if (s->n_want > had) {
        sch_owe(sch, s, s->n_want);
        sch->n_filled += (uint64_t)(owed - s->n_owed);
    }
    return 0;
}

void
sch_slide(struct sch *sch)
{
    for (struct seq *s = sch->running.head; s != NULL; s = s->next) {
        /* a sample that is admitted a step after another one begins with the last token
         * of the prompt */
        int32_t pos = s->cached_len - 1;

        if (pos < s->slide_pos)
            continue;
        s->slide_pos = kv_slide(sch->kv, s->slot, pos, s->last_epoch);
        if (s->n_want > sch->kv->n_held[s->slot])
            sch_owe(sch, s, s->n_want);
    }
}

void
sch_start(struct sch *sch, struct seq *s)
{
    sch_wait_no_more(sch, s);
    s->state = REQ_ST_RUNNING;
    sch_slot_take(sch, s);
    if (sch->running.n == 0 || sch->worst < sch_priority(sch, s))
        sch->worst = sch_priority(sch, s);
    sch_link(&sch->running, sch->running.tail, s);
}

static void
sch_run_no_more(struct sch *sch, struct seq *s)
{
    sch_owe(sch, s, 0);
    sch_unlink(&sch->running, s);
}

/* ---- deadlines: a wheel of ticks, a list of requests in each --------------------- */

#define SCH_TICK_SHIFT 22 /* 4.2 ms */

static uint64_t
sch_deadline(const struct req *r)
{
    uint64_t d = r->deadline_total_ns != 0 ? r->deadline_total_ns : UINT64_MAX;

    if (r->t_start_ns == 0 && r->deadline_queue_ns != 0 && r->deadline_queue_ns < d)
        d = r->deadline_queue_ns;
    return d;
}

static void
sch_dl_unlink(struct sch *sch, struct req *r)
{
    if (r->dl == 0)
        return;
    if (r->dl_prev != NULL)
        r->dl_prev->dl_next = r->dl_next;
    else
        sch->dl[r->dl - 1] = r->dl_next;
    if (r->dl_next != NULL)
        r->dl_next->dl_prev = r->dl_prev;
    r->dl_prev = r->dl_next = NULL;
    r->dl = 0;
    sch->n_dl--;
}

static void
sch_dl_link(struct sch *sch, struct req *r)
{
    uint64_t d = sch_deadline(r), tick = d >> SCH_TICK_SHIFT;
    uint32_t i;

    if (d == UINT64_MAX)
        return;
    /* a deadline in the past goes where the next examination begins */
    if (tick < sch->dl_tick)
        tick = sch->dl_tick;
    i = (uint32_t)(tick % SCH_N_TICK);
    r->dl_prev = NULL;
    r->dl_next = sch->dl[i];
    if (r->dl_next != NULL)
        r->dl_next->dl_prev = r;
    sch->dl[i] = r;
    r->dl = i + 1;
    sch->n_dl++;
}

/* Is any sequence of r not yet ended or finishing? */
static int
sch_goes_on(const struct req *r)
{
    for (int32_t i = 0; i < r->n_seq; i++)
        if (r->seqs[i].state != REQ_ST_ENDED && r->seqs[i].state != REQ_ST_FINISHING)
            return 1;
    return 0;
}

static void
sch_expire_tick(struct sch *sch, uint32_t i, uint64_t now_ns)
{
    struct req *next;

    for (struct req *r = sch->dl[i]; r != NULL; r = next) {
        uint64_t d = sch_deadline(r);

        next = r->dl_next;
        if (d > now_ns && (d >> SCH_TICK_SHIFT) % SCH_N_TICK == i)
            continue;
        /* a request that started has a later deadline than it was filed under */
        sch_dl_unlink(sch, r);
        if (d > now_ns)
            sch_dl_link(sch, r);
        else if (sch_goes_on(r))
            sch_end_req(sch, r, FDP_E_DEADLINE);
    }
}

void
sch_expire(struct sch *sch, uint64_t now_ns)
{
    uint64_t now = now_ns >> SCH_TICK_SHIFT, t = sch->dl_tick;

    if (now < t)
        return;
    if (sch->n_dl > 0) {
        if (now - t >= SCH_N_TICK)
            t = now - (SCH_N_TICK - 1);
        /* requests filed again must not land before the hand */
        sch->dl_tick = now;
        for (; t <= now; t++)
            sch_expire_tick(sch, (uint32_t)(t % SCH_N_TICK), now_ns);
    }
    sch->dl_tick = now;
}

void
sch_add(struct sch *sch, struct req *r)
{
    OBJ_CHECK(r, REQ_MAGIC);
    ASSERT(kv_lack_from(sch->kv, 0, kv_blocks(sch->kv, r->max_len), 1) < sch->kv->n_block);
    ASSERT(!r->penalized || sch->cfg.n_penalty > 0);
    for (int32_t i = 0; i < r->n_seq; i++) {
        ASSERT(r->seqs[i].state == REQ_ST_NEW);
        r->seqs[i].n_found = -1;
        sch_wait(sch, &r->seqs[i], 0);
    }
    sch_dl_link(sch, r);
}

/* ---- ends ------------------------------------------------------------------------ */

void
sch_pass(struct sch *sch, struct req *r)
{
    ASSERT(r->n_live == 0);
    r->ended_next = NULL;
    if (sch->ended_tail != NULL)
        sch->ended_tail->ended_next = r;
    else
        sch->ended_head = r;
    sch->ended_tail = r;
}

static void
sch_ended(struct sch *sch, struct seq *s)
{
    s->state = REQ_ST_ENDED;
    ASSERT(s->req->n_live > 0);
    if (--s->req->n_live == 0) {
        sch_dl_unlink(sch, s->req);
        sch_pass(sch, s->req);
    }
}

struct req *
sch_take_ended(struct sch *sch)
{
    struct req *r = sch->ended_head;

    if (r == NULL)
        return NULL;
    sch->ended_head = r->ended_next;
    if (sch->ended_head == NULL)
        sch->ended_tail = NULL;
    return r;
}

/* No launched step holds the row any more: release it. */
static void
sch_leave(struct sch *sch, struct seq *s)
{
    sch_slot_give(sch, s);
    sch_ended(sch, s);
}

void
sch_end(struct sch *sch, struct seq *s)
{
    switch ((enum req_st)s->state) {
    case REQ_ST_ENDED:
    case REQ_ST_FINISHING:
        return;
    case REQ_ST_WAITING:
        sch_wait_no_more(sch, s);
        sch_ended(sch, s);
        return;
    case REQ_ST_PREEMPT_PENDING:
        if (sch_in_flight(sch, s)) {
            s->state = REQ_ST_FINISHING;
            return;
        }
        sch_unlink(&sch->leaving, s);
        sch_leave(sch, s);
        return;
    case REQ_ST_RUNNING:
        sch_run_no_more(sch, s);
        if (sch_in_flight(sch, s)) {
            s->state = REQ_ST_FINISHING;
            sch_link(&sch->leaving, sch->leaving.tail, s);
            return;
        }
        sch_leave(sch, s);
        return;
    default:
        WRONG("sequence was never added");
    }
}

/* The blocks that its sequences computed or attached must not be a prefix of another
 * request. */
static void
sch_forget(struct sch *sch, const struct req *r)
{
    for (int32_t i = 0; i < r->n_seq; i++)
        for (int32_t k = i == 0 ? 0 : r->n_hash; k < r->seqs[i].n_hash; k++)
            kv_forget(sch->kv, req_block_hash(&r->seqs[i], k));
}

void
sch_end_req(struct sch *sch, struct req *r, int32_t code)
{
    if (r->n_live == 0)
        return;
    if (code == FDP_E_NUMERIC)
        sch_forget(sch, r);
    if (r->code == 0)
        r->code = code;
    for (int32_t i = 0; i < r->n_seq; i++)
        sch_end(sch, &r->seqs[i]);
}

/* ---- preemption ------------------------------------------------------------------ */

struct seq *
sch_victim(const struct sch *sch)
{
    struct seq *ret = NULL;

    for (struct seq *s = sch->running.tail; s != NULL; s = s->prev)
        if (ret == NULL || sch_priority(sch, s) > sch_priority(sch, ret))
            ret = s;
    return ret;
}

int
sch_may_urge(const struct sch *sch, int32_t priority, const struct seq *s)
{
    return sch_priority(sch, s) > priority && s->n_preempted < SCH_MAX_PREEMPTED;
}

struct seq *
sch_victim_of(const struct sch *sch, int32_t priority)
{
    struct seq *ret = NULL;

    for (struct seq *s = sch->running.tail; s != NULL; s = s->prev)
        if (sch_may_urge(sch, priority, s) &&
            (ret == NULL || sch_priority(sch, s) > sch_priority(sch, ret)))
            ret = s;
    return ret;
}

static void
sch_requeue(struct sch *sch, struct seq *s)
{
    ASSERT(s->device_len == s->n_tok);
    sch_slot_give(sch, s);
    s->cached_len = 0;
    s->ids_epoch = 0;
    s->n_registered = 0;
    sch_wait(sch, s, 1);
}

void
sch_unstart(struct sch *sch, struct seq *s)
{
    sch_run_no_more(sch, s);
    sch_requeue(sch, s);
}

void
sch_preempt(struct sch *sch, struct seq *s)
{
    ASSERT(s->state == REQ_ST_RUNNING);
    sch_run_no_more(sch, s);
    s->n_preempted++;
    s->req->n_preempted++;
    sch->n_preempted++;
    trc_put_event(sch->cfg.trc, sch->now_ns, TRC_PREEMPT, s->req->id, s->sample, s->n_tok,
        0);
    if (sch_in_flight(sch, s)) {
        s->state = REQ_ST_PREEMPT_PENDING;
        sch_link(&sch->leaving, sch->leaving.tail, s);
        return;
    }
    sch_requeue(sch, s);
}

/* Once its steps are collected and their tokens are known, a sequence can wait again. */
static void
sch_settle(struct sch *sch, struct seq *s)
{
    if (sch_in_flight(sch, s) || s->n_tok != s->device_len)
        return;
    sch_unlink(&sch->leaving, s);
    sch_requeue(sch, s);
}

void
sch_collected(struct sch *sch, uint64_t epoch)
{
    struct seq *next;

    kv_collect(sch->kv, epoch);
    for (struct seq *s = sch->leaving.head; s != NULL; s = next) {
        next = s->next;
        if (s->state == REQ_ST_PREEMPT_PENDING) {
            sch_settle(sch, s);
        } else if (!sch_in_flight(sch, s)) {
            sch_unlink(&sch->leaving, s);
            sch_leave(sch, s);
        }
    }
}

/* ---- tokens ---------------------------------------------------------------------- */

int
sch_is_cached(const struct sch *sch, const struct seq *s)
{
    return s->req->block_size == sch->kv->block_size &&
        (s->req->hash_root.a | s->req->hash_root.b) != 0;
}

/* Hash the next block, if all its tokens are known. */
static int
sch_hash(struct sch *sch, struct seq *s)
{
    const struct req *r = s->req;
    int32_t B = sch->kv->block_size, i = s->n_hash, at = i * B;
    const uint32_t *ids = sch->id_buf;

    if (s->n_tok - at < B)
        return -EAGAIN;
    if (at >= r->n_ids)
        ids = s->out + (at - r->n_ids);
    else
        for (int32_t k = 0; k < B; k++)
            sch->id_buf[k] = req_token(s, at + k);
    ASSERT(i >= r->n_hash);
    pfx_next(&sch->cfg.key, i > 0 ? req_block_hash(s, i - 1) : &r->hash_root, ids, B,
        &s->hash[i - r->n_hash]);
    s->n_hash++;
    return 0;
}

void
sch_register(struct sch *sch, struct seq *s)
{
    int32_t B = sch->kv->block_size;

    if (s->cached_len - s->n_registered * B < B || !sch_is_cached(sch, s))
        return;
    while (s->cached_len - s->n_registered * B >= B) {
        int32_t i = s->n_registered;

        if (i >= s->n_hash && sch_hash(sch, s) != 0)
            return;
        kv_register(sch->kv, s->slot, i, req_block_hash(s, i));
        s->n_registered++;
    }
}

void
sch_append(struct sch *sch, struct seq *s, uint32_t token, int finished)
{
    ASSERT(s->n_tok < s->device_len && s->n_tok < s->max_len);
    ASSERT(s->state == REQ_ST_RUNNING || s->state == REQ_ST_PREEMPT_PENDING);
    s->out[s->n_tok - s->req->n_ids] = token;
    s->n_tok++;
    if (finished) {
        /* no block is indexed any more: a device that ended the row did not write this
         * token's KV */
        sch_end(sch, s);
        return;
    }
    sch_register(sch, s);
    if (s->state == REQ_ST_PREEMPT_PENDING)
        sch_settle(sch, s);
}

int
sch_busy(const struct sch *sch)
{
    return sch->waiting.n + sch->running.n + sch->leaving.n > 0;
}

/* ---- check ----------------------------------------------------------------------- */

static void
sch_check_list(const struct sch *sch, const struct sch_list *l, unsigned states)
{
    const struct seq *prev = NULL;
    int32_t n = 0;

    for (const struct seq *s = l->head; s != NULL; prev = s, s = s->next, n++) {
        ASSERT(s->prev == prev && n < l->n && (states >> s->state & 1) != 0);
        req_check(s->req);
        ASSERT((s->penalty >= 0) == (s->slot >= 0 && s->req->penalized));
        ASSERT(s->n_registered * sch->kv->block_size <= s->cached_len);
        if (s->slot >= 0) {
            ASSERT(sch->slot_seq[s->slot] == s);
            ASSERT(sch->slot_gen[s->slot] == s->generation);
            ASSERT(sch->kv->n_held[s->slot] >= kv_blocks(sch->kv, s->cached_len));
        }
        ASSERT(s->n_owed >= 0 && (s->n_owed == 0 || l == &sch->running));
        /* the blocks that its prompt lacks are owed to it */
        if (l == &sch->running && req_is_prefill(s))
            ASSERT(s->n_want >= kv_blocks(sch->kv, s->device_len) ||
                sch->kv->n_held[s->slot] >= kv_blocks(sch->kv, s->device_len));
        if (l == &sch->running)
            ASSERT(s->n_owed == kv_lack(sch->kv, s->slot, s->n_want));
        if (l == &sch->waiting && prev != NULL)
            ASSERT(sch_before(sch, prev, s));
    }
    ASSERT(prev == l->tail && n == l->n);
}

static void
sch_check_marks(const struct sch *sch)
{
    int32_t n = 0;

    for (int32_t i = 0; i < sch->n_mark; i++) {
        const struct seq *s = sch->mark[i].tail;
        int32_t pr = sch->mark[i].priority;

        ASSERT(s->state == REQ_ST_WAITING && sch_priority(sch, s) == pr);
        ASSERT(i == 0 || sch->mark[i - 1].priority < pr);
        ASSERT(s->next == NULL || sch_priority(sch, s->next) > pr);
    }
    ASSERT(sch->scan == NULL || sch->scan->state == REQ_ST_WAITING);
    ASSERT(sch->want.s == NULL || sch->want.s->state == REQ_ST_WAITING);
    for (const struct seq *s = sch->running.head; s != NULL; s = s->next)
        ASSERT(sch_priority(sch, s) <= sch->worst);
    for (uint32_t i = 0; i < SCH_N_TICK; i++) {
        for (const struct req *r = sch->dl[i]; r != NULL; r = r->dl_next, n++) {
            ASSERT(r->dl == i + 1 && r->n_live > 0);
            ASSERT(r->dl_next == NULL || r->dl_next->dl_prev == r);
        }
    }
    ASSERT(n == sch->n_dl);
}

void
sch_check(const struct sch *sch)
{
    int32_t held = 0, n_penalty = 0, n_served = 0;
    int64_t n_owed = 0;

    OBJ_CHECK(sch, SCH_MAGIC);
    kv_check(sch->kv);
    sch_check_list(sch, &sch->waiting, 1u << REQ_ST_WAITING);
    sch_check_list(sch, &sch->running, 1u << REQ_ST_RUNNING);
    sch_check_list(sch, &sch->leaving,
        1u << REQ_ST_PREEMPT_PENDING | 1u << REQ_ST_FINISHING);
    sch_check_marks(sch);
    for (int32_t i = 0; i < sch->cfg.max_seqs; i++) {
        held += sch->slot_seq[i] != NULL;
        if (sch->slot_seq[i] == NULL)
            ASSERT(sch->kv->n_held[i] == 0);
        else
            n_penalty += sch->slot_seq[i]->penalty >= 0;
    }
    for (uint32_t i = 0; i < SCH_N_SERVED; i++) {
        ASSERT(sch->served[i] >= 0);
        n_served += sch->served[i];
    }
    ASSERT(held == n_served && held == sch->running.n + sch->leaving.n);
    ASSERT(held + sch->n_slot_free == sch->cfg.max_seqs);
    ASSERT(n_penalty + sch->n_penalty_free == sch->cfg.n_penalty);
    for (const struct seq *s = sch->running.head; s != NULL; s = s->next)
        n_owed += s->n_owed;
    ASSERT(n_owed == sch->n_owed);
    for (const struct req *r = sch->ended_head; r != NULL; r = r->ended_next)
        ASSERT(r->n_live == 0);
}
