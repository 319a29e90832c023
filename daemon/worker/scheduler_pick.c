/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/scheduler_pick_priv.h"

#include "daemon/common/obj.h"

/* After this many prefix hits in a step, waiting sequences that may have more than
 * SCH_FEW blocks are not looked up any more. */
#define SCH_LOOK_UP 2048
/* Times that waiting sequences are examined again in a step. */
#define SCH_ROUNDS 4

/* ---- decodes --------------------------------------------------------------------- */

static int
sch_decodes(const struct seq *s)
{
    return s->device_len - s->cached_len == 1 && s->device_len < s->max_len;
}

/* Do the held blocks have no place for its next token? */
static int
sch_lacks(const struct sch *sch, const struct seq *s)
{
    return s->cached_len >= sch->kv->n_held[s->slot] * sch->kv->block_size;
}

/* Does it need a block for a token that is to be computed? */
static int
sch_wants_block(const struct sch *sch, const struct seq *s)
{
    return sch_lacks(sch, s) && (sch_decodes(s) || req_is_prefill(s));
}

/* Get a block for the next token of s, by preempting later sequences if need be; else s
 * sits out this step. */
static void
sch_claim_block(struct sch_pick *p, struct seq *s)
{
    struct sch *sch = p->sch;

    int32_t G = sch->kv->n_group;

    while (kv_reclaim(sch->kv, p->kept + G) < p->kept + G) {
        struct seq *victim = NULL;

        if (sch_coming(sch) < (p->n_out + 1) * G)
            victim = sch_victim(sch);
        if (victim == NULL || victim == s) {
            p->n_out++;
            return;
        }
        sch_preempt(sch, victim);
        p->st->n_preempted++;
    }
    ASSERT_Z(sch_grow(sch, s, s->cached_len + 1));
}

/* Claim the block that s needs now, and as many of its owed blocks as there are. */
static void
sch_claim(struct sch_pick *p, struct seq *s)
{
    int32_t n;

    if (sch_wants_block(p->sch, s))
        sch_claim_block(p, s);
    n = kv_reclaim(p->sch->kv, p->kept + s->n_owed) - p->kept;
    s->n_may = n < s->n_owed ? n : s->n_owed;
    p->kept += s->n_may;
}

/* When blocks may be scarce, let running sequences claim them: best priority first, in
 * order of admission, before any has its row. A preempted sequence is the last in that
 * order. */
static void
sch_claim_all(struct sch_pick *p)
{
    const struct sch *sch = p->sch;
    int64_t level = INT64_MIN, next;

    p->scarce =
        kv_available(sch->kv) < (int64_t)sch->running.n * sch->kv->n_group + sch->n_owed;
    if (!p->scarce)
        return;
    do {
        next = INT64_MAX;
        for (struct seq *s = sch->running.head; s != NULL; s = s->next) {
            int32_t pr;

            if (s->n_owed == 0 && !sch_wants_block(sch, s))
                continue;
            pr = sch_priority(sch, s);
            if (pr == level)
                sch_claim(p, s);
            else if (pr > level && pr < next)
                next = pr;
        }
        level = next;
    } while (next < INT64_MAX);
}

/* Note a sequence that does not decode; the first unfinished prompt is the oldest. */
static void
sch_see_partial(struct sch_pick *p, const struct seq *s)
{
    if (p->oldest == NULL && req_is_prefill(s))
        p->oldest = s;
    sch_count_partial(p, s);
}

static void
sch_pick_decodes(struct sch_pick *p)
{
    for (struct seq *s = p->sch->running.head; s != NULL && p->tokens > 0; s = s->next) {
        if (!sch_decodes(s))
            sch_see_partial(p, s);
        else if (!sch_lacks(p->sch, s) ||
            (!p->scarce && sch_grow(p->sch, s, s->cached_len + 1) == 0))
            sch_give(p, sch_row(p, s), 1);
    }
}

/* ---- unfinished prompts ---------------------------------------------------------- */

static void
sch_count_partials(struct sch_pick *p)
{
    p->n_partial = p->n_long = p->n_ahead = 0;
    for (const struct seq *s = p->sch->running.head; s != NULL; s = s->next)
        sch_count_partial(p, s);
    p->n_long_had = p->n_long;
}

/* Add a running prompt that is not in the step yet. Returns its tokens. */
static int32_t
sch_go_on(struct sch_pick *p, struct seq *s, int32_t most)
{
    int32_t q;

    if (p->oldest == s)
        p->oldest = NULL;
    q = sch_hold(p, s, sch_chunk(p, s, s->cached_len, most, 0));
    if (q > 0)
        sch_give(p, sch_row(p, s), q);
    return q;
}

static void
sch_pick_prefill(struct sch_pick *p, struct seq *s)
{
    int is_long = sch_is_long(p->sch, s);
    int32_t q = sch_go_on(p, s, sch_share(p, s));

    if (is_long)
        p->long_left -= q;
    p->n_wanting += q == 0;
    if (req_is_prefill(s)) {
        p->n_long_had += is_long;
    } else {
        p->n_partial--;
        p->n_long -= is_long;
    }
}

/* Give the tokens left over to running prompts that got none, then to the others.
 * Returns how many prompts that completed. */
static int32_t
sch_pick_more(struct sch_pick *p)
{
    int32_t was = p->n_partial, given = 0;

    if (p->st->n_decode == p->st->n_row && p->n_wanting == 0)
        return 0;
    for (struct seq *s = p->sch->running.head; s != NULL && p->n_wanting > 0; s = s->next)
        if (req_is_prefill(s) && s->last_epoch < p->st->epoch && p->tokens > 0)
            given += sch_go_on(p, s, p->tokens);
    p->n_wanting = 0;
    for (int32_t i = 0; i < p->st->n_row && p->tokens > 0; i++) {
        struct sch_row *row = &p->st->rows[i];
        struct seq *s = row->seq;

        if (!row->sample && s->cached_len < s->device_len) {
            int32_t q = sch_hold(p, s, sch_chunk(p, s, s->cached_len, p->tokens, 0));

            if (q > 0)
                sch_give(p, row, q);
            given += q;
        }
    }
    if (given == 0)
        return 0;
    sch_count_partials(p);
    return was - p->n_partial;
}

/* ---- a round --------------------------------------------------------------------- */

/* Returns whether the sequence was admitted. */
static int
sch_pick_waiting(struct sch_pick *p, struct sch_cand *c)
{
    enum sch_verdict v = sch_admit(p, c->s);

    if (v == SCH_SHORT && p->lack > 0 && !p->weighed && sch_is_urgent(p, c->s))
        sch_want(p, c->s, p->lack, 1);
    c->skipped = v != SCH_GOES && v != SCH_LATER && v != SCH_STOP;
    if (v == SCH_STOP ||
        (v == SCH_SHORT && (c->s->n_passed >= SCH_MAX_PASSED || p->sch->want.s == c->s)))
        p->closed = 1;
    return v == SCH_GOES;
}

/* Each candidate has its turn. Returns whether many were admitted. */
static int
sch_round(struct sch_pick *p)
{
    struct sch *sch = p->sch;
    int32_t n, last = -1, n_tried = 0, n_gone = 0;

    sch_want_rows(p);
    n = sch_candidates(p);
    if (p->first && p->target_ns > 0)
        sch_share_time(p, n);

    for (int32_t i = 0; i < n && p->tokens > 0; i++) {
        struct sch_cand *c = &sch->cand[i];

        if (c->s->state == REQ_ST_RUNNING) {
            sch_pick_prefill(p, c->s);
            continue;
        }
        if (p->closed || sch->n_slot_free == 0)
            continue;
        if (p->st->n_urged > 0 && sch_priority(sch, c->s) >= p->st->urged)
            continue;
        n_tried++;
        if (!sch_pick_waiting(p, c))
            continue;
        n_gone++;
        last = c->pos > last ? c->pos : last;
    }
    /* bypassed, counted once for all later candidates that were admitted */
    for (int32_t i = 0; i < n; i++)
        if (sch->cand[i].skipped && sch->cand[i].pos < last)
            sch->cand[i].s->n_passed++;
    /* sequences that were not examined are next */
    if (n_tried > 0 && n_tried == p->n_waiting)
        sch->scan = p->scan;
    return n_gone * 2 > SCH_LOOK;
}

/* ---- a step ---------------------------------------------------------------------- */

/* Halve the users' counts of prompt tokens when that is due. */
static void
sch_forget(struct sch *sch, uint64_t now_ns)
{
    if (now_ns < sch->half_ns && sch->half_ns - now_ns <= SCH_HALF_NS)
        return;
    for (int i = 0; i < SCH_N_SERVED; i++)
        sch->spent[i] >>= 1;
    sch->half_ns = now_ns + SCH_HALF_NS;
}

int32_t
sch_pick(struct sch *sch, uint64_t now_ns, struct sch_step *st)
{
    struct sch_pick p = { .sch = sch,
        .st = st,
        .now_ns = now_ns,
        .tokens = sch->cfg.max_tokens,
        .scores = sch->cfg.max_scores,
        .look_up = SCH_LOOK_UP };

    *st = (struct sch_step){ .epoch = sch->epoch + 1, .rows = st->rows };
    sch->now_ns = now_ns;
    sch_expire(sch, now_ns);
    sch_forget(sch, now_ns);
    if (sch->kv->n_windowed > 0)
        sch_slide(sch);
    sch_urge(&p);
    sch_claim_all(&p);
    sch_pick_decodes(&p);
    sch_begin_prompts(&p);
    p.admit = sch->waiting.n > 0 && st->n_preempted == st->n_urged && p.n_out == 0;
    if (p.admit) {
        sch->want.s = NULL;
        sch_promise(&p);
    }
    /* prompts completed by more tokens make room for others */
    for (int i = 0; i < SCH_ROUNDS; i++) {
        while (sch_round(&p) && !p.closed)
            p.first = 0;
        p.first = 0;
        if (sch_pick_more(&p) == 0)
            break;
        p.long_left = p.tokens;
        p.closed = 0;
    }
    sch->n_starved = p.cut && p.n_prefill < sch->kv->block_size ? sch->n_starved + 1 : 0;
    if (st->n_row > 0)
        sch->epoch = st->epoch;
    return st->n_row;
}
