#include "config.h"

#include "daemon/worker/scheduler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"

/* Reserve for the growth of running sequences at an admission: this share
 * of the pool, and one block for every fourth of them. */
#define SCH_RESERVE_SHARE 100
#define SCH_RESERVE_ROWS  4

/* ---- lists ---------------------------------------------------------------------- */

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

/* Behind at; at NULL: first. */
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

static int
sch_before(const struct seq *a, const struct seq *b)
{
    if (a->req->p.priority != b->req->p.priority)
        return a->req->p.priority < b->req->p.priority;
    if (a->req->order != b->req->order)
        return a->req->order < b->req->order;
    return a->sample < b->sample;
}

/* New ones belong near the tail, preempted ones near the head. */
static void
sch_wait(struct sch *sch, struct seq *s, int preempted)
{
    struct seq *at;

    if (preempted) {
        struct seq *nx = sch->waiting.head;

        while (nx != NULL && sch_before(nx, s))
            nx = nx->next;
        at = nx != NULL ? nx->prev : sch->waiting.tail;
    } else {
        at = sch->waiting.tail;
        while (at != NULL && sch_before(s, at))
            at = at->prev;
    }
    s->state = REQ_ST_WAITING;
    sch_link(&sch->waiting, at, s);
}

/* ---- life ------------------------------------------------------------------------ */

struct sch *
sch_new(const struct sch_cfg *cfg, struct kv *kv)
{
    struct sch *sch;

    OBJ_CHECK(kv, KV_MAGIC);
    ASSERT(cfg->max_seqs > 0 && cfg->max_tokens > 0 && cfg->max_scores > 0);
    ASSERT(kv->n_slot == cfg->max_seqs);
    OBJ_ALLOC(sch, SCH_MAGIC);
    if (sch == NULL)
        return NULL;
    sch->cfg = *cfg;
    sch->kv = kv;
    sch->next_deadline = UINT64_MAX;
    sch->slot_seq = mem_array((size_t)cfg->max_seqs, sizeof(struct seq *));
    sch->slot_gen = mem_array((size_t)cfg->max_seqs, sizeof(uint32_t));
    sch->slot_free = mem_array((size_t)cfg->max_seqs, sizeof(int32_t));
    if (sch->slot_seq == NULL || sch->slot_gen == NULL || sch->slot_free == NULL)
        return sch_free(sch);
    for (int32_t i = cfg->max_seqs - 1; i >= 0; i--)
        sch->slot_free[sch->n_slot_free++] = i;
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

/* ---- slots ------------------------------------------------------------------------ */

static void
sch_slot_take(struct sch *sch, struct seq *s)
{
    ASSERT(sch->n_slot_free > 0 && s->slot < 0);
    s->slot = sch->slot_free[--sch->n_slot_free];
    s->generation = ++sch->slot_gen[s->slot];
    s->fresh = 1;
    sch->slot_seq[s->slot] = s;
    sch->n_req_running += s->req->n_slot++ == 0;
}

static void
sch_slot_give(struct sch *sch, struct seq *s)
{
    ASSERT(s->slot >= 0 && sch->slot_seq[s->slot] == s);
    kv_drop(sch->kv, s->slot, s->last_epoch);
    sch->slot_seq[s->slot] = NULL;
    /* results of the old owner find another generation from now on */
    sch->slot_gen[s->slot]++;
    sch->slot_free[sch->n_slot_free++] = s->slot;
    s->slot = -1;
    sch->n_req_running -= --s->req->n_slot == 0;
}

struct seq *
sch_slot(const struct sch *sch, int32_t slot, uint32_t generation)
{
    if (slot < 0 || slot >= sch->cfg.max_seqs || sch->slot_gen[slot] != generation)
        return NULL;
    return sch->slot_seq[slot];
}

/* ---- ends --------------------------------------------------------------------------- */

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
    if (--s->req->n_live == 0)
        sch_pass(sch, s->req);
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

/* Does a launched step that is not collected hold the row? */
static int
sch_in_flight(const struct sch *sch, const struct seq *s)
{
    return s->last_epoch > sch->kv->collected;
}

void
sch_end(struct sch *sch, struct seq *s)
{
    switch ((enum req_st)s->state) {
    case REQ_ST_ENDED:
    case REQ_ST_FINISHING:
        return;
    case REQ_ST_WAITING:
        sch_unlink(&sch->waiting, s);
        sch_ended(sch, s);
        return;
    case REQ_ST_PREEMPT_PENDING:
        s->state = REQ_ST_FINISHING;
        return;
    case REQ_ST_RUNNING:
        sch_unlink(&sch->running, s);
        if (sch_in_flight(sch, s)) {
            s->state = REQ_ST_FINISHING;
            sch_link(&sch->leaving, sch->leaving.tail, s);
            return;
        }
        sch_slot_give(sch, s);
        sch_ended(sch, s);
        return;
    default:
        WRONG("sequence was never added");
    }
}

void
sch_end_req(struct sch *sch, struct req *r, int32_t code)
{
    if (r->n_live == 0)
        return;
    if (r->code == 0)
        r->code = code;
    for (int32_t i = 0; i < r->n_seq; i++)
        sch_end(sch, &r->seqs[i]);
}

static void
sch_requeue(struct sch *sch, struct seq *s)
{
    ASSERT(s->device_len == s->n_tok);
    sch_slot_give(sch, s);
    s->cached_len = 0;
    sch_wait(sch, s, 1);
}

static void
sch_preempt(struct sch *sch, struct seq *s)
{
    ASSERT(s->state == REQ_ST_RUNNING);
    sch_unlink(&sch->running, s);
    s->n_preempted++;
    s->req->n_preempted++;
    sch->n_preempted++;
    if (sch_in_flight(sch, s)) {
        s->state = REQ_ST_PREEMPT_PENDING;
        sch_link(&sch->leaving, sch->leaving.tail, s);
        return;
    }
    sch_requeue(sch, s);
}

void
sch_collected(struct sch *sch, uint64_t epoch)
{
    struct seq *next;

    kv_collect(sch->kv, epoch);
    for (struct seq *s = sch->leaving.head; s != NULL; s = next) {
        next = s->next;
        if (sch_in_flight(sch, s))
            continue;
        sch_unlink(&sch->leaving, s);
        if (s->state == REQ_ST_PREEMPT_PENDING) {
            sch_requeue(sch, s);
        } else {
            sch_slot_give(sch, s);
            sch_ended(sch, s);
        }
    }
}

void
sch_append(struct sch *sch, struct seq *s, uint32_t token, int finished)
{
    ASSERT(s->n_tok < s->device_len && s->n_tok < s->max_len);
    s->out[s->n_tok - s->req->n_ids] = token;
    s->n_tok++;
    if (finished)
        sch_end(sch, s);
}

/* ---- deadlines ---------------------------------------------------------------------- */

static uint64_t
sch_deadline(const struct req *r)
{
    uint64_t d = r->deadline_total_ns != 0 ? r->deadline_total_ns : UINT64_MAX;

    if (r->t_start_ns == 0 && r->deadline_queue_ns != 0 && r->deadline_queue_ns < d)
        d = r->deadline_queue_ns;
    return d;
}

static void
sch_expire_list(struct sch *sch, struct sch_list *l, uint64_t now_ns)
{
    struct seq *s = l->head;

    while (s != NULL) {
        uint64_t d = sch_deadline(s->req);

        if (d <= now_ns) {
            /* unlinks this sequence and perhaps its neighbours: start over */
            sch_end_req(sch, s->req, FDP_E_DEADLINE);
            s = l->head;
            continue;
        }
        if (d < sch->next_deadline)
            sch->next_deadline = d;
        s = s->next;
    }
}

void
sch_expire(struct sch *sch, uint64_t now_ns)
{
    if (now_ns < sch->next_deadline)
        return;
    sch->next_deadline = UINT64_MAX;
    sch_expire_list(sch, &sch->waiting, now_ns);
    sch_expire_list(sch, &sch->running, now_ns);
}

void
sch_add(struct sch *sch, struct req *r)
{
    uint64_t d = sch_deadline(r);

    OBJ_CHECK(r, REQ_MAGIC);
    for (int32_t i = 0; i < r->n_seq; i++) {
        ASSERT(r->seqs[i].state == REQ_ST_NEW);
        sch_wait(sch, &r->seqs[i], 0);
    }
    if (d < sch->next_deadline)
        sch->next_deadline = d;
}

/* ---- choosing a step ------------------------------------------------------------------ */

struct sch_budget { int32_t tokens, scores; };

/* Prompt logprobs that the next q tokens of s give, from *ret_first on. */
static int32_t
sch_scores(const struct seq *s, int32_t q, int32_t *ret_first)
{
    int32_t lo = s->cached_len, hi = s->cached_len + q;

    if (!req_wants_scores(s))
        return 0;
    if (lo < s->n_scored - 1)
        lo = s->n_scored - 1;
    if (hi > s->req->n_prompt - 1)
        hi = s->req->n_prompt - 1;
    *ret_first = lo;
    return hi > lo ? hi - lo : 0;
}

/* Tokens of s in this step, 0: none. */
static int32_t
sch_chunk(const struct sch *sch, const struct seq *s, const struct sch_budget *b)
{
    int32_t need = s->device_len - s->cached_len, q = need, first = 0, n;

    if (s->device_len >= s->max_len && need <= 0)
        return 0;
    if (q > b->tokens)
        q = b->tokens;
    n = sch_scores(s, q, &first);
    if (n > b->scores)
        q = first + b->scores - s->cached_len;
    if (!sch->cfg.chunked && q < need && need <= sch->cfg.max_tokens &&
        b->tokens < sch->cfg.max_tokens && n <= b->scores)
        return 0;
    return q;
}

static void
sch_take(struct sch *sch, struct sch_step *st, struct seq *s, int32_t q,
    struct sch_budget *b)
{
    struct sch_row *row = &st->rows[st->n_row++];

    *row = (struct sch_row) { .seq = s, .first = s->cached_len, .q_len = q };
    row->n_score = sch_scores(s, q, &row->score_first);
    row->fresh = s->fresh;
    s->fresh = 0;
    s->cached_len += q;
    s->last_epoch = st->epoch;
    if (row->n_score > 0)
        s->n_scored = row->score_first + row->n_score + 1;
    if (s->cached_len == s->device_len && s->device_len < s->max_len) {
        row->sample = 1;
        s->device_len++;
        st->n_sample++;
    }
    st->n_tok += q;
    st->n_score += row->n_score;
    b->tokens -= q;
    b->scores -= row->n_score;
    DIAG(sch->slot_seq[s->slot] == s);
    (void)sch;
}

static void
sch_pick_running(struct sch *sch, struct sch_step *st, struct sch_budget *b)
{
    struct seq *next;

    for (struct seq *s = sch->running.head; s != NULL && b->tokens > 0; s = next) {
        int32_t q = sch_chunk(sch, s, b);

        next = s->next;
        if (q <= 0)
            continue;
        while (kv_grow(sch->kv, s->slot, s->cached_len + q) != 0) {
            struct seq *victim = sch->running.tail;

            sch_preempt(sch, victim);
            st->n_preempted++;
            if (victim == next)
                next = NULL;
            if (victim == s) {
                q = 0;
                break;
            }
        }
        if (q == 0)
            break;
        sch_take(sch, st, s, q, b);
    }
}

/* Blocks for all known tokens and the next one. */
static int32_t
sch_blocks_known(const struct sch *sch, const struct seq *s)
{
    return kv_blocks(sch->kv, s->device_len < s->max_len ? s->device_len + 1 : s->max_len);
}

static void
sch_pick_waiting(struct sch *sch, uint64_t now_ns, struct sch_step *st,
    struct sch_budget *b)
{
    int32_t promised = 0;

    for (const struct seq *s = sch->running.head; s != NULL; s = s->next) {
        int32_t owed = sch_blocks_known(sch, s) - sch->kv->n_held[s->slot];

        promised += owed > 0 ? owed : 0;
    }
    while (sch->waiting.head != NULL && sch->n_slot_free > 0 && b->tokens > 0) {
        struct seq *s = sch->waiting.head;
        int32_t q = sch_chunk(sch, s, b), want = sch_blocks_known(sch, s);
        int32_t reserve = sch->running.n == 0 ? 0 :
            sch->kv->n_block / SCH_RESERVE_SHARE + sch->running.n / SCH_RESERVE_ROWS;

        if (q <= 0)
            return;
        if (sch->running.n > 0 && sch->kv->n_free - promised - want < reserve)
            return;
        if (kv_blocks(sch->kv, q) > sch->kv->n_free)
            return;
        sch_unlink(&sch->waiting, s);
        s->state = REQ_ST_RUNNING;
        sch_slot_take(sch, s);
        sch_link(&sch->running, sch->running.tail, s);
        ASSERT_Z(kv_grow(sch->kv, s->slot, q));
        promised += want - sch->kv->n_held[s->slot];
        if (s->req->t_start_ns == 0)
            s->req->t_start_ns = now_ns;
        sch_take(sch, st, s, q, b);
    }
}

int32_t
sch_pick(struct sch *sch, uint64_t now_ns, struct sch_step *st)
{
    struct sch_budget b = { sch->cfg.max_tokens, sch->cfg.max_scores };

    st->n_row = st->n_tok = st->n_sample = st->n_score = st->n_preempted = 0;
    st->epoch = sch->epoch + 1;
    sch_expire(sch, now_ns);
    sch_pick_running(sch, st, &b);
    if (st->n_preempted == 0)
        sch_pick_waiting(sch, now_ns, st, &b);
    if (st->n_row > 0)
        sch->epoch = st->epoch;
    return st->n_row;
}

int
sch_busy(const struct sch *sch)
{
    return sch->waiting.n + sch->running.n + sch->leaving.n > 0;
}

/* ---- check ------------------------------------------------------------------------------ */

static void
sch_check_list(const struct sch *sch, const struct sch_list *l, unsigned states)
{
    const struct seq *prev = NULL;
    int32_t n = 0;

    for (const struct seq *s = l->head; s != NULL; prev = s, s = s->next, n++) {
        ASSERT(s->prev == prev && n < l->n && (states >> s->state & 1) != 0);
        req_check(s->req);
        if (s->slot >= 0) {
            ASSERT(sch->slot_seq[s->slot] == s);
            ASSERT(sch->slot_gen[s->slot] == s->generation);
            ASSERT(sch->kv->n_held[s->slot] >= kv_blocks(sch->kv, s->cached_len));
        }
        if (l == &sch->waiting && prev != NULL)
            ASSERT(sch_before(prev, s));
    }
    ASSERT(prev == l->tail && n == l->n);
}

void
sch_check(const struct sch *sch)
{
    int32_t held = 0;

    OBJ_CHECK(sch, SCH_MAGIC);
    kv_check(sch->kv);
    sch_check_list(sch, &sch->waiting, 1u << REQ_ST_WAITING);
    sch_check_list(sch, &sch->running, 1u << REQ_ST_RUNNING);
    sch_check_list(sch, &sch->leaving, 1u << REQ_ST_PREEMPT_PENDING |
        1u << REQ_ST_FINISHING);
    for (int32_t i = 0; i < sch->cfg.max_seqs; i++) {
        held += sch->slot_seq[i] != NULL;
        if (sch->slot_seq[i] == NULL)
            ASSERT(sch->kv->n_held[i] == 0);
    }
    ASSERT(held == sch->running.n + sch->leaving.n);
    ASSERT(held + sch->n_slot_free == sch->cfg.max_seqs);
    for (const struct req *r = sch->ended_head; r != NULL; r = r->ended_next)
        ASSERT(r->n_live == 0);
}
