/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/scheduler_pick_priv.h"

#include "daemon/common/obj.h"

/* After this many steps in which decodes used up the time, prefill gets a block. */
#define SCH_MAX_STARVED 3

/* ---- a row's tokens -------------------------------------------------------------- */

/* By its whole length, not by the rest of it: a long prompt stays long to its end. */
int
sch_is_long(const struct sch *sch, const struct seq *s)
{
    return sch->cfg.long_threshold > 0 && s->device_len > sch->cfg.long_threshold;
}

/* Number of prompt logprobs that q tokens of s from position from on give. */
static int32_t
sch_scores(const struct seq *s, int32_t from, int32_t q, int32_t *ret_first)
{
    int32_t lo = from, hi = from + q;

    if (!req_wants_scores(s))
        return 0;
    if (lo < s->n_scored - 1)
        lo = s->n_scored - 1;
    if (hi > s->req->n_prompt - 1)
        hi = s->req->n_prompt - 1;
    *ret_first = lo;
    return hi > lo ? hi - lo : 0;
}

int64_t
sch_pairs(int32_t from, int32_t q)
{
    return (int64_t)q * from + (int64_t)q * (q + 1) / 2;
}

void
sch_add_prompt(const struct sch *sch, int32_t from, int32_t q, struct cost_step *ret)
{
    int split = sch->cfg.n_copy > 1 && q >= sch->cfg.min_split;

    cost_add_prompt(ret, q, sch_pairs(from, q), split ? sch->cfg.n_copy : 1);
}

int
sch_in_time(const struct sch_pick *p, int32_t from, int32_t q, uint64_t ns)
{
    struct cost_step c = p->st->cost;

    sch_add_prompt(p->sch, from, q, &c);
    return cost_predict(p->sch->cfg.cost, &c) <= ns;
}

/* Of q tokens, those up to the end of the step's last full tile. Returns -1 if these are
 * fewer than least, or if that loses more than most_over tokens. */
static int32_t
sch_whole_tiles(const struct sch_pick *p, int32_t q, int32_t least, int32_t tile,
    int32_t most_over)
{
    int32_t over = (p->st->n_tok + q) % tile;

    return q - over < least || (!p->tiled && over > most_over) ? -1 : q - over;
}

/* Round q, the tokens for which there is time, to full tiles, from least to most. Returns
 * the tokens. The rest of a tile is not filled later in the step. */
static int32_t
sch_tiled(struct sch_pick *p, int32_t from, int32_t q, int32_t least, int32_t most)
{
    int32_t all = p->st->n_tok + q, tile = all < SCH_TILE_BEST ? SCH_TILE_FEW : SCH_TILE;
    int32_t more = (tile - all % tile) % tile, n;

    if (p->sch->cfg.itl_target_ns != SCH_ITL_AUTO)
        return q;
    n = sch_whole_tiles(p, q, least, SCH_TILE_BEST, all / 8);
    if (n < 0 && more <= all / 5 && q + more <= most &&
        sch_in_time(p, from, q + more, p->most_ns))
        n = q + more;
    if (n < 0)
        n = sch_whole_tiles(p, q, least, tile, all / 4);
    if (n < 0)
        n = sch_whole_tiles(p, q, least, SCH_TILE_FEW, all / 8);
    if (n < 0)
        return q;
    p->tiled = 1;
    return n;
}

/* The most tokens from lo to hi, lo whatever it takes, that end within ns. */
static int32_t
sch_fit(const struct sch_pick *p, int32_t from, int32_t lo, int32_t hi, uint64_t ns)
{
    int32_t split = p->sch->cfg.n_copy > 1 ? p->sch->cfg.min_split : 0;

    if (hi <= lo || sch_in_time(p, from, hi, ns))
        return hi;
    /* a prompt that copies divide may take less time than a shorter one */
    if (split > lo && split < hi && sch_in_time(p, from, split, ns))
        lo = split;
    while (hi - lo > 1) {
        int32_t mid = lo + (hi - lo) / 2;

        if (sch_in_time(p, from, mid, ns))
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* The fewest of q tokens that a chunk has even if they end after ns. Attention to a long
 * context is work as well: then fewer tokens make the device efficient. */
static int32_t
sch_least(const struct sch_pick *p, int32_t from, int32_t q, int half, uint64_t ns)
{
    int32_t least = half ? (p->floor + 1) / 2 : p->floor, B = p->sch->kv->block_size, n;
    uint64_t floor_ns = half ? p->half_floor_ns : p->floor_ns;

    least = least < q ? least : q;
    /* the first prompt of a step gets a token at least */
    n = sch_fit(p, from, p->n_prefill == 0, least, ns > floor_ns ? ns : floor_ns);
    if (!p->starved || n >= B - p->n_prefill)
        return n;
    return least < B - p->n_prefill ? least : B - p->n_prefill;
}

/* As many of q prefill tokens as there is time for. half: of a long prompt, which
 * leaves half of the time to others. */
static int32_t
sch_time_cap(struct sch_pick *p, int32_t from, int32_t q, int half)
{
    uint64_t ns = half ? p->long_ns : p->target_ns;
    int32_t least, n;

    if (!p->timed || sch_in_time(p, from, q, ns))
        return q;
    least = sch_least(p, from, q, half, ns);
    if (least == q)
        return q;
    n = sch_fit(p, from, least, q, ns);
    p->cut = 1;
    /* half a step is not rounded up */
    return sch_tiled(p, from, n, least, half ? n : q);
}

int32_t
sch_chunk(struct sch_pick *p, const struct seq *s, int32_t from, int32_t most, int whole)
{
    int32_t need = s->device_len - from, q = need, timed, first = 0, n;

    if (q > most)
        q = most;
    if (q > p->tokens - (p->oldest != NULL && p->oldest != s))
        q = p->tokens - (p->oldest != NULL && p->oldest != s);
    whole = whole && need <= p->sch->cfg.max_tokens;
    if (q <= 0 || (whole && q < need))
        return 0;
    timed = sch_time_cap(p, from, q, p->first && !whole && sch_is_long(p->sch, s));
    if (!whole)
        q = timed;
    else if (timed < q && (!p->starved || p->floor == 0))
        return 0;
    n = sch_scores(s, from, q, &first);
    if (n > p->scores)
        q = first + p->scores - from;
    return q > 0 ? q : 0;
}

struct sch_row *
sch_row(struct sch_pick *p, struct seq *s)
{
    struct sch_row *row = &p->st->rows[p->st->n_row++];

    DIAG(p->sch->slot_seq[s->slot] == s && s->last_epoch < p->st->epoch);
    *row = (struct sch_row){ .seq = s,
        .first = s->cached_len,
        .fresh = s->fresh,
        .decode = s->cached_len >= s->req->n_ids && s->cached_len + 1 == s->device_len };
    p->st->n_decode += row->decode;
    s->fresh = 0;
    s->last_epoch = p->st->epoch;
    return row;
}

int32_t
sch_hold(struct sch_pick *p, struct seq *s, int32_t q)
{
    struct sch *sch = p->sch;
    int32_t had = sch->kv->n_held[s->slot], owed = s->n_owed, most = had;

    if (s->n_want > had)
        most = s->n_want;
    if (p->scarce && had + s->n_may / sch->kv->n_group < most)
        most = had + s->n_may / sch->kv->n_group;
    if (kv_blocks(sch->kv, s->cached_len + q) > most)
        q = most * sch->kv->block_size - s->cached_len;
    if (q <= 0)
        return 0;
    ASSERT_Z(sch_grow(sch, s, s->cached_len + q));
    s->n_may -= (sch->kv->n_held[s->slot] - had) * sch->kv->n_group;
    p->promised -= owed - s->n_owed;
    return q;
}

/* Add the cost of q more tokens of the row's prompt. Its earlier tokens may now be
 * divided among copies. */
static void
sch_give_cost(const struct sch *sch, const struct sch_row *row, int32_t q,
    struct cost_step *ret)
{
    struct cost_step had = { 0 };

    sch_add_prompt(sch, row->first, row->q_len, &had);
    sch_add_prompt(sch, row->first, row->q_len + q, ret);
    ret->n_tok -= had.n_tok;
    ret->n_pair -= had.n_pair;
}

void
sch_give(struct sch_pick *p, struct sch_row *row, int32_t q)
{
    struct sch_step *st = p->st;
    struct seq *s = row->seq;
    int32_t first = 0, n = sch_scores(s, s->cached_len, q, &first);

    if (n > 0) {
        if (row->n_score == 0)
            row->score_first = first;
        row->n_score += n;
        s->n_scored = first + n + 1;
    }
    if (row->decode) {
        st->cost.n_tok += q;
        st->cost.n_ctx += s->device_len;
    } else {
        sch_give_cost(p->sch, row, q, &st->cost);
        p->n_prefill += q;
        *sch_spent(p->sch, s) += (uint64_t)q;
        p->floor -= q < p->floor ? q : p->floor;
    }
    row->q_len += q;
    s->cached_len += q;
    if (s->ids_epoch == 0 && s->cached_len >= s->req->n_ids)
        s->ids_epoch = st->epoch;
    if (s->cached_len == s->device_len && s->device_len < s->max_len) {
        row->sample = 1;
        s->device_len++;
        st->n_sample++;
        /* from now on the step's time matters: a first token waits for its end */
        p->timed = p->target_ns > 0;
    }
    st->n_tok += q;
    st->n_score += n;
    p->tokens -= q;
    p->scores -= n;
    /* the row is in the step for good: others may share its blocks */
    sch_register(p->sch, s);
}

int32_t
sch_share(const struct sch_pick *p, const struct seq *s)
{
    int32_t n = p->sch->cfg.max_long > 0 ? p->sch->cfg.max_long - p->n_long_had : 2;
    int32_t left = p->long_left;

    if (!sch_is_long(p->sch, s))
        return p->tokens;
    /* new long prompts do not take all of it either */
    if (p->first && s->state == REQ_ST_WAITING && left > (p->tokens + 1) / 2)
        left = (p->tokens + 1) / 2;
    if (left <= 0)
        return 0;
    return n > 1 ? (left + n - 1) / n : left;
}

void
sch_count_partial(struct sch_pick *p, const struct seq *s)
{
    if (!req_is_prefill(s))
        return;
    p->n_partial++;
    p->n_long += sch_is_long(p->sch, s);
    if (p->n_ahead < SCH_MAX_DUPLICATE && sch_is_cached(p->sch, s))
        p->ahead[p->n_ahead++] = s;
}

/* ---- time ------------------------------------------------------------------------ */

/* Prompt tokens that a step gets however long they take, with an automatic target. */
static int32_t
sch_efficient(const struct sch *sch)
{
    int32_t most = sch->cfg.max_tokens;

    if (sch->cfg.itl_target_ns != SCH_ITL_AUTO)
        return 0;
    return cost_efficient(sch->cfg.cost, SCH_EFFICIENT,
        most < SCH_MAX_EFFICIENT ? most : SCH_MAX_EFFICIENT);
}

/* Time of the step with the tokens that are allowed whatever the target, without context
 * and not divided among copies. */
static uint64_t
sch_floor_ns(const struct sch_pick *p)
{
    struct cost_step c = p->st->cost;

    cost_add_prompt(&c, p->floor, sch_pairs(0, p->floor), 1);
    return cost_predict(p->sch->cfg.cost, &c);
}

/* The target for a step with these decodes only; 0: there is no target, or no
 * prediction. */
static uint64_t
sch_target(const struct sch *sch, const struct cost_step *decodes)
{
    const struct sch_cfg *c = &sch->cfg;

    if (c->itl_target_ns == 0 || c->cost == NULL || cost_predict(c->cost, decodes) == 0)
        return 0;
    return c->itl_target_ns == SCH_ITL_AUTO ? SCH_ITL_NS : c->itl_target_ns;
}

uint64_t
sch_itl_target(struct sch *sch)
{
    struct cost_step s = { .n_tok = 1 };
    uint64_t learned = sch->cfg.cost != NULL ? sch->cfg.cost->n : 0, least;

    if (sch->itl_ns > 0 && learned < sch->itl_learned + SCH_ITL_STEPS)
        return sch->itl_ns;
    sch->itl_learned = learned;
    sch->itl_ns = sch_target(sch, &s);
    if (sch->itl_ns == 0)
        return 0;
    s.n_tok += sch_efficient(sch);
    s.n_pair = sch_pairs(0, s.n_tok - 1);
    least = s.n_tok > 1 ? cost_predict(sch->cfg.cost, &s) : 0;
    sch->itl_ns = sch->itl_ns > least ? sch->itl_ns : least;
    return sch->itl_ns;
}

void
sch_begin_prompts(struct sch_pick *p)
{
    struct sch *sch = p->sch;

    p->first = 1;
    p->long_left = (p->tokens + 1) / 2;
    /* the target matters only to prompts */
    if (p->st->n_decode == sch->running.n && sch->waiting.n == 0)
        return;
    p->target_ns = sch_target(sch, &p->st->cost);
    if (p->target_ns > 0) {
        p->timed = p->st->n_decode > 0;
        p->starved = sch->n_starved >= SCH_MAX_STARVED;
        p->floor = sch_efficient(sch);
        p->floor_ns = sch_floor_ns(p);
        if (p->starved && p->floor < sch->kv->block_size)
            p->floor = sch->kv->block_size;
    }
}

/* The most room for prompts in a step with decodes of this time. */
static uint64_t
sch_most_room(uint64_t decodes, int is_long)
{
    uint64_t room = decodes / (100 - SCH_EFFICIENT) * SCH_EFFICIENT;

    if (is_long || room > SCH_ROOM_MOST_NS)
        return SCH_ROOM_MOST_NS;
    return room > SCH_ROOM_LEAST_NS ? room : SCH_ROOM_LEAST_NS;
}

/* Set the end of the step with an automatic target. Answers are not held up for a
 * single prompt, while many prompts or a long one are computed fast. decodes: time of
 * the step's decodes; n: number of prompts examined. */
static void
sch_auto_target(struct sch_pick *p, uint64_t decodes, int32_t n)
{
    const struct sch_cand *cand = p->sch->cand;
    uint64_t range = SCH_WORK_MANY_NS - SCH_WORK_FEW_NS, work = 0;
    uint64_t most, least = decodes + SCH_ROOM_LEAST_NS;
    int is_long = 0;

    for (int32_t i = 0; i < n; i++) {
        is_long |= cand[i].whole > SCH_WORK_LONG_NS;
        work += cand[i].work < SCH_WORK_MANY_NS ? cand[i].work : SCH_WORK_MANY_NS;
    }
    most = decodes + sch_most_room(decodes, is_long);
    if (is_long && most < SCH_ITL_NS)
        most = SCH_ITL_NS;
    work = work > SCH_WORK_FEW_NS ? work - SCH_WORK_FEW_NS : 0;
    work = is_long || work > range ? range : work;
    p->target_ns = least + work * ((most - least) / 1000) / (range / 1000);
    p->most_ns = most;
}

void
sch_share_time(struct sch_pick *p, int32_t n)
{
    uint64_t now = cost_predict(p->sch->cfg.cost, &p->st->cost);

    if (p->sch->cfg.itl_target_ns == SCH_ITL_AUTO)
        sch_auto_target(p, now, n);
    p->long_ns = now < p->target_ns ? now + (p->target_ns - now) / 2 : p->target_ns;
    p->half_floor_ns = now < p->floor_ns ? now + (p->floor_ns - now) / 2 : p->floor_ns;
}
