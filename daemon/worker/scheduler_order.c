/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/scheduler_pick_priv.h"

/* Waiting sequences examined in a step: this many from the front, the rest of SCH_LOOK
 * further back, from where the last step ended. */
#define SCH_LOOK_FIRST 32
/* A sequence that bypasses another has at most this share of its work left: the order
 * of arrival is not given up for a small gain. */
#define SCH_PASS_NUM 3
#define SCH_PASS_DEN 4
/* A user with less than this share of another user's rows counts as new. */
#define SCH_NEW_DEN 2

/* Predicted time to compute the prompt from position from on; without a model, tokens. */
static uint64_t
sch_work(const struct sch_pick *p, const struct seq *s, int32_t from)
{
    const struct cost *c = p->sch->cfg.cost;
    int32_t q = s->device_len - from;
    struct cost_step work = { 0 };
    uint64_t ns;

    sch_add_prompt(p->sch, from, q, &work);
    ns = c != NULL ? cost_predict(c, &work) : 0;
    return ns > 0 ? ns : (uint64_t)q;
}

/* Set the work of a candidate. For a waiting one, tokens in the prefix cache count as
 * found when it was last looked up. */
static void
sch_weigh(struct sch_pick *p, struct sch_cand *c)
{
    struct seq *s = c->s;
    int32_t found = s->n_found, shared;

    if (found < 0)
        found = s->state == REQ_ST_WAITING && p->look_up > 0 ? sch_find(p, s) : 0;
    shared = s->state == REQ_ST_WAITING ? sch_shared(p->sch, s) : 0;
    found = shared > found ? shared : found;
    c->whole = sch_work(p, s, found);
    c->work = s->state == REQ_ST_RUNNING ? sch_work(p, s, s->cached_len) : c->whole;
}

static void
sch_cand(struct sch_pick *p, struct seq *s, int32_t n)
{
    struct sch *sch = p->sch;

    if (s->t_seen_ns == 0)
        s->t_seen_ns = p->now_ns;
    sch->cand[n] = (struct sch_cand){ .s = s,
        .pos = n,
        .late = p->now_ns - s->t_seen_ns >= sch->cfg.max_overtake_ns ||
            s->n_passed >= SCH_MAX_PASSED };
    if (sch->cfg.max_overtake_ns > 0 || sch->cfg.itl_target_ns == SCH_ITL_AUTO)
        sch_weigh(p, &sch->cand[n]);
    sch->cand[n].served = *sch_served(sch, s);
    sch->cand[n].spent = *sch_spent(sch, s);
}

/* Has the user of c few rows compared with the user of d, and got at most a step's
 * worth more prompt tokens lately? Then c does not wait for all earlier requests of
 * that user. */
static int
sch_is_new(const struct sch *sch, const struct sch_cand *c, const struct sch_cand *d)
{
    return sch->cfg.max_overtake_ns > 0 && c->s->req->user != d->s->req->user &&
        c->served * SCH_NEW_DEN < d->served &&
        c->spent <= d->spent + (uint64_t)sch->cfg.max_tokens;
}

/* May c go before d, which came earlier? */
static int
sch_passes(const struct sch *sch, const struct sch_cand *c, const struct sch_cand *d)
{
    if (!sch->cfg.fcfs && c->s->req->p.priority != d->s->req->p.priority)
        return c->s->req->p.priority < d->s->req->p.priority;
    if (sch_is_new(sch, c, d))
        return 1;
    return !d->late && c->work <= d->work / SCH_PASS_DEN * SCH_PASS_NUM &&
        (c->s->req->user == d->s->req->user || c->served <= d->served);
}

/* Move candidate n ahead, past each one that it may bypass. */
static void
sch_insert(struct sch *sch, int32_t n)
{
    struct sch_cand c = sch->cand[n];

    for (; n > 0 && sch_passes(sch, &c, &sch->cand[n - 1]); n--)
        sch->cand[n] = sch->cand[n - 1];
    sch->cand[n] = c;
}

int32_t
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
        (*sch_served(sch, s))++; /* later candidates count it as a row of their user */
        sch_insert(sch, n++);
        n_look++;
    }
    for (int32_t i = 0; i < n; i++)
        if (sch->cand[i].s->state == REQ_ST_WAITING)
            (*sch_served(sch, sch->cand[i].s))--;
    p->scan = s;
    p->n_waiting = n_look;
    return n;
}
