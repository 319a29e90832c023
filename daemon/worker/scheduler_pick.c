/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "daemon/common/obj.h"
#include "daemon/worker/scheduler_priv.h"

/* Waiting sequences looked at in a step: so many of the first, so many
 * further back, from where the last look ended. */
#define SCH_LOOK_FIRST 32
/* After so many blocks found in the prefix cache for them, those that may
 * have more than a few are not looked up any more. */
#define SCH_LOOK_UP    2048
#define SCH_FEW        64
/* Passed over so often, a sequence lets nobody else take blocks. */
#define SCH_MAX_PASSED 16
/* With the time used up by decodes, prefill gets a block's worth after so
 * many steps without. */
#define SCH_MAX_DRY    3
/* Times that waiting ones are looked at again in a step. */
#define SCH_ROUNDS     4
/* Who passes another has no more than this share of its work left: the order of
 * arrival is not given up for little. */
#define SCH_PASS_NUM   3
#define SCH_PASS_DEN   4
/* Unfinished prompts that waiting ones are compared with. */
#define SCH_MAX_TWIN   16

struct sch_pick {            /* one step in the making */
    struct sch *sch;
    struct sch_step *st;
    uint64_t now_ns;
    int32_t tokens, scores;  /* left of the step */
    int32_t long_left;       /* tokens left for long prompts in the first round */
    uint64_t long_ns;        /* predicted time of the step that they may fill */
    int first;               /* the first round: long prompts have half of it */
    int32_t n_partial, n_long; /* unfinished prompts, with what they got by now */
    int32_t n_long_had;      /* of the long ones, those that had their turn */
    const struct seq *oldest; /* prompt under way that has not had its turn, or NULL */
    int n_wanting;           /* prompts under way that got nothing so far */
    int closed;              /* no other waiting sequence goes */
    int admit;               /* waiting ones may go */
    struct seq *scan;        /* behind the last candidate that waits */
    int32_t n_waiting;       /* candidates that wait */
    int32_t owed;            /* blocks that sequences sitting out wait for */
    int32_t promised;        /* blocks that running ones will need for known tokens */
    int32_t look_up;         /* blocks that may still be found */
    uint64_t target_ns;      /* time of the step; 0: none, or not predicted */
    int timed;               /* prefill is cut by it: somebody would wait longer */
    int cut;                 /* it was */
    int tiled;               /* to a multiple of SCH_TILES */
    int dry;                 /* prefill had no time in too many steps: some goes */
    int32_t floor;           /* prefill tokens that may go whatever is predicted */
    int32_t n_prefill;       /* prefill tokens of the step */
    const struct seq *twin[SCH_MAX_TWIN];
    int32_t n_twin;
    int32_t lack;            /* blocks the pool was short of for the last one refused */
    const struct seq *wanted; /* others may have been preempted for it already */
    int weighed;             /* whether some are to be was looked into */
};

/* What became of a waiting sequence. */
enum sch_verdict {
    SCH_GOES,
    SCH_STOP,                /* nobody else goes either: nothing is left */
    SCH_LATER,               /* its prefix is being computed */
    SCH_LIMIT,               /* no room among unfinished prompts, penalties, scores */
    SCH_SHORT                /* not enough blocks, or tokens to go in one step */
};

struct sch_fit {             /* how a waiting sequence would start */
    const struct kv_hash *h;
    int32_t n_h;             /* hashes that may be used */
    int32_t attach;          /* blocks to attach */
    int32_t ask;             /* hashes to attach by: attach, or all */
    int32_t q;               /* tokens in the step */
    int32_t want;            /* blocks to hold */
    int32_t lack;            /* blocks the pool is short of */
    struct kv_match m;       /* of these attach blocks */
};

/* ---- a row's tokens -------------------------------------------------------------- */

/* By its length, not by what is left of it: a long prompt stays one to its end. */
static int
sch_is_long(const struct sch *sch, const struct seq *s)
{
    return sch->cfg.long_threshold > 0 && s->device_len > sch->cfg.long_threshold;
}

/* Prompt logprobs that q tokens of s from position from on give. */
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

static int64_t
sch_pairs(int32_t from, int32_t q)
{
    return (int64_t)q * from + (int64_t)q * (q + 1) / 2;
}

/* Of q tokens that the time leaves, those that fill tiles: no less than floor. What is
 * left of the last tile is not filled up again. */
static int32_t
sch_tiled(struct sch_pick *p, int32_t q, int32_t floor)
{
    static const int32_t tiles[] = SCH_TILES;
    int32_t all = p->st->n_tok + q;

    if (p->sch->cfg.itl_target_ns != SCH_ITL_AUTO)
        return q;
    for (size_t i = 0; i < sizeof(tiles) / sizeof(tiles[0]); i++) {
        int32_t over = all % tiles[i];

        if (over > q || q - over < floor || (!p->tiled && over > all / 8))
            continue;
        p->tiled = 1;
        return q - over;
    }
    return q;
}

static int
sch_in_time(const struct sch_pick *p, int32_t from, int32_t q, uint64_t ns)
{
    struct cost_step c = p->st->cost;

    c.n_tok += q;
    c.n_pair += sch_pairs(from, q);
    return cost_predict(p->sch->cfg.cost, &c) <= ns;
}

/* As many of q prefill tokens as there is time for; half: of a long prompt
 * that leaves the other half to others. */
static int32_t
sch_time_cap(struct sch_pick *p, int32_t from, int32_t q, int half)
{
    uint64_t ns = half ? p->long_ns : p->target_ns;
    int32_t lo = half ? (p->floor + 1) / 2 : p->floor, hi = q;

    if (!p->timed || q <= lo || sch_in_time(p, from, q, ns))
        return q;
    /* lo goes, hi does not */
    while (hi - lo > 1) {
        int32_t mid = lo + (hi - lo) / 2;

        if (sch_in_time(p, from, mid, ns))
            lo = mid;
        else
            hi = mid;
    }
    p->cut = 1;
    return sch_tiled(p, lo, p->floor);
}

/* Tokens of s from position from on in this step, most at most; 0: none.
 * whole: all that is missing or nothing, where a step can hold it. */
static int32_t
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
    else if (timed < q && (!p->dry || p->floor == 0))
        return 0;
    n = sch_scores(s, from, q, &first);
    if (n > p->scores)
        q = first + p->scores - from;
    return q > 0 ? q : 0;
}

static struct sch_row *
sch_row(struct sch_pick *p, struct seq *s)
{
    struct sch_row *row = &p->st->rows[p->st->n_row++];

    DIAG(p->sch->slot_seq[s->slot] == s && s->last_epoch < p->st->epoch);
    *row = (struct sch_row) { .seq = s, .first = s->cached_len, .fresh = s->fresh,
        .decode = s->cached_len >= s->req->n_ids && s->cached_len + 1 == s->device_len };
    p->st->n_decode += row->decode;
    s->fresh = 0;
    s->last_epoch = p->st->epoch;
    return row;
}

/* q more tokens for a row. */
static void
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
    st->cost.n_tok += q;
    if (row->decode) {
        st->cost.n_ctx += s->device_len;
    } else {
        st->cost.n_pair += sch_pairs(s->cached_len, q);
        p->n_prefill += q;
        p->floor -= q < p->floor ? q : p->floor;
    }
    row->q_len += q;
    s->cached_len += q;
    if (s->cached_len == s->device_len && s->device_len < s->max_len) {
        row->sample = 1;
        s->device_len++;
        st->n_sample++;
        /* its token comes with the end of the step */
        p->timed = p->target_ns > 0;
    }
    st->n_tok += q;
    st->n_score += n;
    p->tokens -= q;
    p->scores -= n;
    /* the row is in the step for good: others may share its blocks */
    sch_register(p->sch, s);
}

/* ---- preemption for a better priority -------------------------------------------- */

/* Blocks that come back when what was launched is collected; those that are
 * shared are counted too: then less comes, and the next step sees that. */
static int32_t
sch_coming(const struct sch *sch)
{
    int32_t n = sch->kv->n_deferred + sch->kv->n_pending;

    for (const struct seq *s = sch->leaving.head; s != NULL; s = s->next)
        n += sch->kv->n_held[s->slot];
    return n;
}

/* Before anybody is in the step. */
static void
sch_urge(struct sch_pick *p)
{
    struct sch *sch = p->sch;
    struct sch_want w = sch->want;
    int64_t lack, rows;

    p->wanted = w.s;
    if (w.s == NULL)
        return;
    lack = w.lack - (int64_t)(sch->kv->n_back - w.n_back) - sch_coming(sch);
    rows = w.rows - sch->n_slot_free - sch->leaving.n;
    while ((lack > 0 || rows > 0) && p->st->n_urged < SCH_MAX_URGED) {
        struct seq *v = sch_victim_of(sch, w.priority);

        if (v == NULL)
            return;
        lack -= sch->kv->n_held[v->slot];
        rows--;
        p->st->urged = sch_priority(sch, v);
        p->st->n_urged++;
        p->st->n_preempted++;
        sch_preempt(sch, v);
    }
}

/* Could s be one that others are preempted for? */
static int
sch_is_urgent(const struct sch_pick *p, const struct seq *s)
{
    return p->wanted == s ||
        (p->sch->running.n > 0 && sch_priority(p->sch, s) < p->sch->worst);
}

/* s is refused: it lacks blocks, or a row. Nobody is preempted where that would
 * not be enough. */
static void
sch_want(struct sch_pick *p, struct seq *s, int32_t lack, int32_t rows)
{
    struct sch *sch = p->sch;
    int32_t pr = sch_priority(sch, s), worst = INT32_MIN;
    int64_t n_block = sch_coming(sch), n_row = sch->n_slot_free + sch->leaving.n;

    p->weighed = 1;
    for (const struct seq *v = sch->running.head; v != NULL; v = v->next) {
        if (sch_priority(sch, v) > worst)
            worst = sch_priority(sch, v);
        if (sch_may_urge(sch, pr, v)) {
            n_block += sch->kv->n_held[v->slot];
            n_row++;
        }
    }
    sch->worst = worst;
    if (n_block < lack || n_row == 0)
        return;
    sch->want = (struct sch_want) { .s = s, .priority = pr, .lack = lack, .rows = rows,
        .n_back = sch->kv->n_back };
}

/* ---- decodes --------------------------------------------------------------------- */

static int
sch_decodes(const struct seq *s)
{
    return s->device_len - s->cached_len == 1 && s->device_len < s->max_len;
}

/* Has it no place for its next token? */
static int
sch_lacks(const struct sch *sch, const struct seq *s)
{
    return s->cached_len >= sch->kv->n_held[s->slot] * sch->kv->block_size;
}

/* A block for the next token of s, taken from those behind it if need be; or s
 * sits out this step. */
static void
sch_claim(struct sch_pick *p, const struct seq *s)
{
    struct sch *sch = p->sch;

    while (kv_grow(sch->kv, s->slot, s->cached_len + 1) != 0) {
        struct seq *victim = NULL;

        if (sch_coming(sch) <= p->owed)
            victim = sch_victim(sch);
        if (victim == NULL || victim == s) {
            p->owed++;
            return;
        }
        sch_preempt(sch, victim);
        p->st->n_preempted++;
    }
}

/* Where decodes may lack blocks: to the best priority first, in the order of
 * admission, before any has its row. Whoever is preempted comes last in that order. */
static void
sch_claim_all(struct sch_pick *p)
{
    const struct sch *sch = p->sch;
    int64_t level = INT64_MIN, next;

    if (kv_available(sch->kv) >= sch->running.n)
        return;
    do {
        next = INT64_MAX;
        for (const struct seq *s = sch->running.head; s != NULL; s = s->next) {
            int32_t pr;

            if (!sch_lacks(sch, s) || !sch_decodes(s))
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

static void
sch_count_partial(struct sch_pick *p, const struct seq *s)
{
    if (!req_is_prefill(s))
        return;
    p->n_partial++;
    p->n_long += sch_is_long(p->sch, s);
    if (p->n_twin < SCH_MAX_TWIN && sch_is_cached(p->sch, s))
        p->twin[p->n_twin++] = s;
}

/* One that is no decode: of prompts under way the first is the oldest. */
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
            kv_grow(p->sch->kv, s->slot, s->cached_len + 1) == 0)
            sch_give(p, sch_row(p, s), 1);
    }
}

/* ---- unfinished prompts ---------------------------------------------------------- */

/* Tokens that a prompt may have in the first round. */
static int32_t
sch_share(const struct sch_pick *p, const struct seq *s)
{
    int32_t n = p->sch->cfg.max_long > 0 ? p->sch->cfg.max_long - p->n_long_had : 2;
    int32_t left = p->long_left;

    if (!sch_is_long(p->sch, s))
        return p->tokens;
    /* nor do long ones that are new take it all */
    if (p->first && s->state == REQ_ST_WAITING && left > (p->tokens + 1) / 2)
        left = (p->tokens + 1) / 2;
    if (left <= 0)
        return 0;
    return n > 1 ? (left + n - 1) / n : left;
}

static void
sch_count_partials(struct sch_pick *p)
{
    p->n_partial = p->n_long = p->n_twin = 0;
    for (const struct seq *s = p->sch->running.head; s != NULL; s = s->next)
        sch_count_partial(p, s);
    p->n_long_had = p->n_long;
}

/* A prompt under way that is not in the step yet. Returns its tokens. */
static int32_t
sch_go_on(struct sch_pick *p, struct seq *s, int32_t most)
{
    int32_t q;

    if (p->oldest == s)
        p->oldest = NULL;
    q = sch_chunk(p, s, s->cached_len, most, 0);
    if (q > 0) {
        /* granted at its admission */
        ASSERT_Z(kv_grow(p->sch->kv, s->slot, s->cached_len + q));
        sch_give(p, sch_row(p, s), q);
    }
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

/* What the first round left: to prompts under way that got nothing, then to the
 * others. Returns how many prompts that completed. */
static int32_t
sch_pick_more(struct sch_pick *p)
{
    int32_t was = p->n_partial, given = 0;

    for (struct seq *s = p->sch->running.head; s != NULL && p->n_wanting > 0; s = s->next)
        if (req_is_prefill(s) && s->last_epoch < p->st->epoch && p->tokens > 0)
            given += sch_go_on(p, s, p->tokens);
    p->n_wanting = 0;
    for (int32_t i = 0; i < p->st->n_row && p->tokens > 0; i++) {
        struct sch_row *row = &p->st->rows[i];
        const struct seq *s = row->seq;

        if (!row->sample && s->cached_len < s->device_len) {
            int32_t q = sch_chunk(p, s, s->cached_len, p->tokens, 0);

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

/* ---- admission ------------------------------------------------------------------- */

static int32_t
sch_blocks_known(const struct sch *sch, const struct seq *s)
{
    return kv_blocks(sch->kv, s->device_len);
}

/* The hashes of the leading blocks that may be attached, in one piece: one
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

/* Is somebody about to compute the next block that s would need? */
static int
sch_has_twin(const struct sch_pick *p, const struct sch_fit *f)
{
    int32_t i = f->m.n;

    if (i >= f->n_h)
        return 0;
    for (int32_t k = 0; k < p->n_twin; k++) {
        const struct seq *t = p->twin[k];
        const struct kv_hash *h;

        if (i >= t->n_hash || t->cached_len >= (i + 1) * p->sch->kv->block_size)
            continue;
        h = req_block_hash(t, i);
        if (h->a == f->h[i].a && h->b == f->h[i].b)
            return 1;
    }
    return 0;
}

/* Copies from the host only where they take less than computing. */
static void
sch_weigh_host(struct sch_pick *p, struct sch_fit *f)
{
    const struct cost *c = p->sch->cfg.cost;
    int32_t n_all = f->m.n * p->sch->kv->block_size;
    int32_t n_dev = f->m.n_dev * p->sch->kv->block_size;
    struct cost_step all = { .n_tok = n_all, .n_pair = sch_pairs(0, n_all) };
    struct cost_step dev = { .n_tok = n_dev, .n_pair = sch_pairs(0, n_dev) };

    if (f->m.n_host == 0 || c == NULL || c->copy_ns == 0 || cost_predict(c, &all) == 0)
        return;
    if (c->copy_ns * f->m.n_host <=
        (double)(cost_predict(c, &all) - cost_predict(c, &dev)))
        return;
    f->ask = f->m.n_dev;
    f->m = (struct kv_match) { .n = f->m.n_dev, .n_idle = f->m.n_dev_idle,
        .n_dev = f->m.n_dev, .n_dev_idle = f->m.n_dev_idle };
}

/* Would s, with the first f->attach blocks attached, have tokens and a place
 * in this step? Sets f->q. */
static enum sch_verdict
sch_fit_step(struct sch_pick *p, const struct seq *s, struct sch_fit *f)
{
    const struct sch_cfg *c = &p->sch->cfg;
    int32_t from = f->attach * p->sch->kv->block_size, need = s->device_len - from, left;
    int whole = !c->chunked && s->n_passed < SCH_MAX_PASSED;
    int32_t most = whole ? p->tokens : sch_share(p, s);

    f->q = sch_chunk(p, s, from, most, whole);
    if (f->q == 0) {
        if (p->tokens > 0 && most > 0 && p->timed && p->floor == 0 &&
            !sch_in_time(p, from, 1, p->target_ns))
            return SCH_STOP;
        return whole && need > p->tokens ? SCH_SHORT : SCH_LIMIT;
    }
    left = need - f->q;
    if (left > 1 && c->max_partial > 0 && p->n_partial >= c->max_partial)
        return SCH_LIMIT;
    if (left > 1 && sch_is_long(p->sch, s) && c->max_long > 0 &&
        p->n_long >= c->max_long)
        return SCH_LIMIT;
    return SCH_GOES;
}

/* Would the pool hold it? Sets f->want and f->lack. */
static enum sch_verdict
sch_fit_pool(const struct sch_pick *p, const struct seq *s, struct sch_fit *f)
{
    const struct sch *sch = p->sch;
    int32_t known = sch_blocks_known(sch, s), most = kv_blocks(sch->kv, s->max_len);
    /* what attaching takes from those that can be handed out */
    int32_t base = f->m.n_host + f->m.n_idle - f->m.n, need, available;

    f->want = known + sch->cfg.decode_blocks;
    if (f->want > most)
        f->want = most;
    if (sch->running.n == 0) {
        available = kv_reclaim(sch->kv, f->want + base);
        if (f->want + base > available)
            f->want = available - base;
        f->lack = known - f->want;
        return f->lack <= 0 ? SCH_GOES : SCH_SHORT;
    }
    need = base + f->want + p->promised + sch->cfg.reserve_blocks;
    /* who had to give way does not come back to the same shortage */
    if (s->n_preempted > 0)
        need += (sch->running.n + 3) / 4;
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

    *sch_short_at(sch, s) = (struct sch_short) { .order = s->req->order,
        .sample = s->sample, .n_tok = s->device_len, .n_preempted = s->n_preempted,
        .n_h = f->n_h, .n_found = f->m.n, .lack = f->lack, .promised = p->promised,
        .n_running = sch->running.n, .n_back = sch->kv->n_back };
}

/* Is the pool still too short for s? Each block that came back makes up for
 * one at most, and what was not found ends the prefix until it is there. */
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
    more = (int64_t)(kv->n_back - k->n_back) + kv->n_pending + k->promised - p->promised;
    if (more >= k->lack)
        return 0;
    p->lack = (int32_t)(k->lack - more);
    return k->n_found >= k->n_h || !kv_has(kv, req_block_hash(s, k->n_found));
}

/* ---- one admission --------------------------------------------------------------- */

/* Commit; what the pool then does not give after all is undone. */
static enum sch_verdict
sch_start_row(struct sch_pick *p, struct seq *s, struct sch_fit *f)
{
    struct sch *sch = p->sch;
    int32_t B = sch->kv->block_size, known = sch_blocks_known(sch, s), got, rc, hit;
    int idle = sch->running.n == 0;

    sch_start(sch, s);
    got = f->ask > 0 ? kv_attach(sch->kv, s->slot, f->h, f->ask) : 0;
    ASSERT(got <= f->n_h);
    rc = kv_grow(sch->kv, s->slot, f->want * B);
    if (rc != 0 && idle)
        rc = kv_grow(sch->kv, s->slot, known * B);
    if (rc == 0 && got != f->attach) {
        f->attach = got;
        rc = (int32_t)sch_fit_step(p, s, f);
    }
    if (rc != 0) {
        /* asked for again when it is admitted */
        sch->kv->n_lookup -= (uint64_t)f->ask;
        sch->kv->n_hit -= (uint64_t)got;
        sch_unstart(sch, s);
        return SCH_SHORT;
    }
    s->cached_len = got * B;
    s->n_registered = got;
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

/* What the prefix cache has of s, and whether it may start where there is room. */
static enum sch_verdict
sch_look_up(struct sch_pick *p, struct seq *s, struct sch_fit *f)
{
    struct sch *sch = p->sch;

    if (s->req->penalized && sch->n_penalty_free == 0)
        return SCH_LIMIT;
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
        p->look_up -= f->m.n;
        s->n_found = f->m.n * sch->kv->block_size;
        if (sch_has_twin(p, f))
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

static enum sch_verdict
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
    sch_give(p, sch_row(p, s), f.q);
    if (sch_is_long(sch, s))
        p->long_left -= f.q;
    sch_count_partial(p, s);
    p->n_long_had += req_is_prefill(s) && sch_is_long(sch, s);
    left = sch_blocks_known(sch, s) - sch->kv->n_held[s->slot];
    p->promised += left > 0 ? left : 0;
    return SCH_GOES;
}

/* With all rows taken: the first that waits, and others of a priority better than a
 * running one's. */
static void
sch_want_rows(struct sch_pick *p)
{
    struct sch *sch = p->sch;
    struct seq *s = sch->waiting.head;
    struct sch_fit f = { 0 };
    enum sch_verdict v;
    int32_t rows = 0;

    if (!p->first || !p->admit || sch->n_slot_free > 0 || s == NULL ||
        !sch_is_urgent(p, s))
        return;
    p->lack = 0;
    v = sch_fit(p, s, &f);
    if (v != SCH_GOES && (v != SCH_SHORT || p->lack <= 0))
        return;
    for (const struct seq *w = s; w != NULL && rows < SCH_MAX_URGED &&
        (w == s || sch_is_urgent(p, w)); w = w->next)
        rows++;
    sch_want(p, s, p->lack, rows);
}

/* ---- order ----------------------------------------------------------------------- */

/* Time that is left to compute of its prompt; without a model, tokens. What the
 * prefix cache has of one that waits counts as found when it was last looked up. */
static uint64_t
sch_work(struct sch_pick *p, struct seq *s)
{
    const struct cost *c = p->sch->cfg.cost;
    int32_t from = s->state == REQ_ST_RUNNING ? s->cached_len : s->n_found, q;
    struct cost_step work;
    uint64_t ns;

    if (from < 0) {
        struct sch_fit f = { 0 };

        from = 0;
        if (p->look_up > 0) {
            sch_hashes(p->sch, s, &f);
            if (f.n_h > 0)
                kv_find(p->sch->kv, f.h, f.n_h, &f.m);
            p->look_up -= f.m.n;
            from = s->n_found = f.m.n * p->sch->kv->block_size;
        }
    }
    q = s->device_len - from;
    work = (struct cost_step) { .n_tok = q, .n_pair = sch_pairs(from, q) };
    ns = c != NULL ? cost_predict(c, &work) : 0;
    return ns > 0 ? ns : (uint64_t)q;
}

static void
sch_cand(struct sch_pick *p, struct seq *s, int32_t n)
{
    struct sch *sch = p->sch;

    if (s->t_seen_ns == 0)
        s->t_seen_ns = p->now_ns;
    sch->cand[n] = (struct sch_cand) { .s = s, .pos = n,
        .late = p->now_ns - s->t_seen_ns >= sch->cfg.max_overtake_ns ||
            s->n_passed >= SCH_MAX_PASSED };
    if (sch->cfg.max_overtake_ns > 0 || sch->cfg.itl_target_ns == SCH_ITL_AUTO)
        sch->cand[n].work = sch_work(p, s);
    sch->cand[n].served = *sch_served(sch, s);
}

/* May c go before d, which came before it? */
static int
sch_passes(const struct sch *sch, const struct sch_cand *c, const struct sch_cand *d)
{
    if (!sch->cfg.fcfs && c->s->req->p.priority != d->s->req->p.priority)
        return c->s->req->p.priority < d->s->req->p.priority;
    return !d->late && c->work <= d->work / SCH_PASS_DEN * SCH_PASS_NUM &&
        (c->s->req->user == d->s->req->user || c->served <= d->served);
}

/* Candidate n goes where nobody whom it may not pass is behind it. */
static void
sch_insert(struct sch *sch, int32_t n)
{
    struct sch_cand c = sch->cand[n];

    for (; n > 0 && sch_passes(sch, &c, &sch->cand[n - 1]); n--)
        sch->cand[n] = sch->cand[n - 1];
    sch->cand[n] = c;
}

/* Prompts under way in order of admission, then some that wait in theirs, put in the
 * order in which they may go. Returns how many. */
static int32_t
sch_candidates(struct sch_pick *p)
{
    struct sch *sch = p->sch;
    struct seq *s = sch->running.head;
    int32_t n = 0, n_look = 0;

    for (; s != NULL && p->first && p->n_partial > 0; s = s->next) {
        if (!req_is_prefill(s))
            continue;
        if (n == SCH_LOOK) {
            p->n_wanting++;
            break;
        }
        sch_cand(p, s, n);
        sch_insert(sch, n++);
    }
    if (!p->admit || p->closed || sch->n_slot_free == 0 || p->tokens <= 0)
        return n;
    for (s = sch->waiting.head; s != NULL && n_look < SCH_LOOK; s = s->next) {
        if (n_look == SCH_LOOK_FIRST && sch->scan != NULL && sch_before(sch, s, sch->scan))
            s = sch->scan;
        sch_cand(p, s, n);
        sch_insert(sch, n++);
        n_look++;
    }
    p->scan = s;
    p->n_waiting = n_look;
    return n;
}

/* ---- a round --------------------------------------------------------------------- */

/* Returns whether it goes. */
static int
sch_pick_waiting(struct sch_pick *p, struct sch_cand *c)
{
    enum sch_verdict v = sch_admit(p, c->s);

    if (v == SCH_SHORT && p->lack > 0 && !p->weighed && sch_is_urgent(p, c->s))
        sch_want(p, c->s, p->lack, 1);
    c->skipped = v != SCH_GOES && v != SCH_LATER && v != SCH_STOP;
    if (v == SCH_STOP || (v == SCH_SHORT && (c->s->n_passed >= SCH_MAX_PASSED ||
        p->sch->want.s == c->s)))
        p->closed = 1;
    return v == SCH_GOES;
}

/* The end of the step with an automatic target: answers do not pause for one prompt,
 * and many come through fast. decodes: how long those of the step take; work: all
 * prompts that were looked at. */
static uint64_t
sch_auto_target(uint64_t decodes, uint64_t work)
{
    uint64_t most = decodes + SCH_ROOM_MOST_NS, least = decodes + SCH_ROOM_LEAST_NS;
    uint64_t range = SCH_WORK_MANY_NS - SCH_WORK_FEW_NS;

    most = most > SCH_ITL_NS ? most : SCH_ITL_NS;
    work = work > SCH_WORK_FEW_NS ? work - SCH_WORK_FEW_NS : 0;
    work = work < range ? work : range;
    return least + work * ((most - least) / 1000) / (range / 1000);
}

/* The step's time, and the half of it that is for long prompts in the first round. */
static void
sch_share_time(struct sch_pick *p, int32_t n)
{
    const struct sch *sch = p->sch;
    uint64_t now = cost_predict(sch->cfg.cost, &p->st->cost), work = 0;

    if (sch->cfg.itl_target_ns == SCH_ITL_AUTO) {
        for (int32_t i = 0; i < n && work < SCH_WORK_MANY_NS; i++)
            work += sch->cand[i].work;
        p->target_ns = sch_auto_target(now, work);
    }
    p->long_ns = now < p->target_ns ? now + (p->target_ns - now) / 2 : p->target_ns;
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
    /* each once in a round that admitted somebody who came later */
    for (int32_t i = 0; i < n; i++)
        if (sch->cand[i].skipped && sch->cand[i].pos < last)
            sch->cand[i].s->n_passed++;
    /* what was not looked at is the next to be */
    if (n_tried > 0 && n_tried == p->n_waiting)
        sch->scan = p->scan;
    return n_gone * 2 > SCH_LOOK;
}

/* ---- a step ---------------------------------------------------------------------- */

/* Prompt tokens that a step has whatever it takes: of an automatic target. */
static int32_t
sch_efficient(const struct sch *sch)
{
    int32_t most = sch->cfg.max_tokens;

    if (sch->cfg.itl_target_ns != SCH_ITL_AUTO)
        return 0;
    return cost_efficient(sch->cfg.cost, SCH_EFFICIENT, most < SCH_MAX_EFFICIENT ? most :
        SCH_MAX_EFFICIENT);
}

/* With these decodes alone; 0: there is no target, or nothing to predict by. */
static uint64_t
sch_target(const struct sch *sch, const struct cost_step *decodes)
{
    const struct sch_cfg *c = &sch->cfg;

    if (c->itl_target_ns == 0 || c->cost == NULL || cost_predict(c->cost, decodes) == 0)
        return 0;
    return c->itl_target_ns == SCH_ITL_AUTO ? SCH_ITL_NS : c->itl_target_ns;
}

uint64_t
sch_itl_target(const struct sch *sch)
{
    struct cost_step s = { .n_tok = 1 };
    uint64_t ns = sch_target(sch, &s), least;

    if (ns == 0)
        return 0;
    s.n_tok += sch_efficient(sch);
    s.n_pair = sch_pairs(0, s.n_tok - 1);
    least = s.n_tok > 1 ? cost_predict(sch->cfg.cost, &s) : 0;
    return ns > least ? ns : least;
}

static void
sch_pick_begin(struct sch_pick *p)
{
    struct sch *sch = p->sch;

    p->target_ns = sch_target(sch, &p->st->cost);
    if (p->target_ns > 0) {
        p->timed = p->st->n_decode > 0;
        p->dry = sch->n_dry >= SCH_MAX_DRY;
        p->floor = sch_efficient(sch);
        if (p->dry && p->floor < sch->kv->block_size)
            p->floor = sch->kv->block_size;
    }
    p->first = 1;
    p->long_left = (p->tokens + 1) / 2;
    p->look_up = SCH_LOOK_UP;
}

/* Blocks for the tokens that running sequences have or are about to have. */
static void
sch_promise(struct sch_pick *p)
{
    for (const struct seq *s = p->sch->running.head; s != NULL; s = s->next) {
        int32_t n = sch_blocks_known(p->sch, s) - p->sch->kv->n_held[s->slot];

        p->promised += n > 0 ? n : 0;
    }
}

int32_t
sch_pick(struct sch *sch, uint64_t now_ns, struct sch_step *st)
{
    struct sch_pick p = { .sch = sch, .st = st, .now_ns = now_ns,
        .tokens = sch->cfg.max_tokens, .scores = sch->cfg.max_scores };

    *st = (struct sch_step) { .epoch = sch->epoch + 1, .rows = st->rows };
    sch->now_ns = now_ns;
    sch_expire(sch, now_ns);
    sch_urge(&p);
    sch_claim_all(&p);
    sch_pick_decodes(&p);
    sch_pick_begin(&p);
    p.admit = sch->waiting.n > 0 && st->n_preempted == st->n_urged && p.owed == 0;
    if (p.admit) {
        sch->want.s = NULL;
        sch_promise(&p);
    }
    /* prompts that more tokens complete make room for others */
    for (int i = 0; i < SCH_ROUNDS; i++) {
        while (sch_round(&p) && !p.closed)
            p.first = 0;
        p.first = 0;
        if (sch_pick_more(&p) == 0)
            break;
        p.long_left = p.tokens;
        p.closed = 0;
    }
    sch->n_dry = p.cut && p.n_prefill < sch->kv->block_size ? sch->n_dry + 1 : 0;
    if (st->n_row > 0)
        sch->epoch = st->epoch;
    return st->n_row;
}
