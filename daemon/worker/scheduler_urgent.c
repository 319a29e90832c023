/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/scheduler_pick_priv.h"

int32_t
sch_coming(const struct sch *sch)
{
    int32_t n = sch->kv->n_deferred + sch->kv->n_pending;

    for (const struct seq *s = sch->leaving.head; s != NULL; s = s->next)
        n += kv_held(sch->kv, s->slot);
    return n;
}

void
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
        lack -= kv_held(sch->kv, v->slot) + v->n_owed;
        rows--;
        p->st->urged = sch_priority(sch, v);
        p->st->n_urged++;
        p->st->n_preempted++;
        sch_preempt(sch, v);
    }
}

int
sch_is_urgent(const struct sch_pick *p, const struct seq *s)
{
    return p->wanted == s ||
        (p->sch->running.n > 0 && sch_priority(p->sch, s) < p->sch->worst);
}

void
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
            n_block += kv_held(sch->kv, v->slot) + v->n_owed;
            n_row++;
        }
    }
    sch->worst = worst;
    if (n_block < lack || n_row == 0)
        return;
    sch->want = (struct sch_want){ .s = s,
        .priority = pr,
        .lack = lack,
        .rows = rows,
        .n_back = sch->kv->n_back };
}
