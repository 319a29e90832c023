/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/wlink.h"

#include <string.h>

#include "daemon/common/obj.h"
#include "daemon/gate/fair.h"
#include "libclient/fdproto.h"

void
wlk_init(struct wlk *l, int group)
{
    memset(l, 0, sizeof(*l));
    l->group = group;
    TAILQ_INIT(&l->sendq);
    TAILQ_INIT(&l->cancelq);
    TAILQ_INIT(&l->startq);
}

void
wlk_join(struct wlk *l, struct lnk_seg *seg, int efd, uint64_t now_ns)
{
    ASSERT(l->seg == NULL && TAILQ_EMPTY(&l->sendq) && TAILQ_EMPTY(&l->cancelq));
    ASSERT(l->n_with == 0 && l->due == 0);
    l->seg = seg;
    l->generation = (uint32_t)seg->generation;
    l->at_ns = l->at_seqs = l->at_tokens = 0;
    l->token_ns = l->row_ns = 0;
    l->row_tokens = 0;
    l->t_join = now_ns;
    l->pend = 0;
    l->is_news = l->is_closed = 0;
    memset(&l->ready, 0, sizeof(l->ready));
    lnk_init_gate(&l->lnk, seg, efd);
}

void
wlk_leave(struct wlk *l)
{
    lnk_leave(l->seg);
    l->seg = NULL;
    l->up = 0;
    l->pend = 0;
}

int
wlk_load_percent(const struct wlk *l)
{
    uint64_t done, total;

    if (l->up)
        return 100;
    if (l->seg == NULL)
        return 0;
    done = __atomic_load_n(&l->seg->w.load_done_bytes, __ATOMIC_RELAXED);
    total = __atomic_load_n(&l->seg->w.load_total_bytes, __ATOMIC_RELAXED);
    if (total == 0)
        return 0;
    return done >= total ? 99 : (int)(done / (total / 100 + 1));
}

int
wlk_has_step(const struct wlk *l, uint64_t now_ns)
{
    const struct lnk_beat *b;

    if (l->seg == NULL || l->n_with == 0)
        return 0;
    b = &l->seg->w.beat;
    return __atomic_load_n(&b->step_began_ns, __ATOMIC_RELAXED) +
        2 * __atomic_load_n(&b->step_expect_ns, __ATOMIC_RELAXED) >
        now_ns;
}

int
wlk_is_open(const struct wlk *l)
{
    return l->seg != NULL && !l->lnk.bad && !l->is_closed;
}

int
wlk_put_submit(struct wlk *l, const struct jreq *r, uint32_t place)
{
    struct lnk_submit sub;
    void *to = lnk_claim(&l->lnk, r->id, LNK_T_SUBMIT, 0, 0, sizeof(sub));

    if (to == NULL)
        return 0;
    memset(&sub, 0, sizeof(sub));
    sub.req = r->req;
    sub.user = r->usr->key;
    sub.t_submit_ns = r->t_submit;
    sub.deadline_queue_ns = r->deadline_queue;
    sub.deadline_total_ns = r->deadline_total;
    sub.place = place;
    memcpy(to, &sub, sizeof(sub));
    return 1;
}

int
wlk_put_blob(struct wlk *l, struct jreq *r, uint32_t max)
{
    uint32_t end = r->blob_bytes - r->sent < max ? r->blob_bytes : r->sent + max;
    uint32_t before = r->sent;

    while (r->sent < end) {
        uint32_t n = end - r->sent < FDP_REC_MAX_LEN ? end - r->sent : FDP_REC_MAX_LEN;
        void *to = lnk_claim(&l->lnk, r->id, LNK_T_BLOB, 0, 0, n);

        if (to == NULL)
            break;
        memcpy(to, r->blob + r->sent, n);
        r->sent += n;
    }
    return r->sent != before;
}

void
wlk_cancel(struct wlk *l, struct jreq *r)
{
    ASSERT(!r->in_cancelq);
    r->in_cancelq = 1;
    TAILQ_INSERT_TAIL(&l->cancelq, r, link);
    if (r->in_sendq) { /* the worker does not need the rest of its items */
        TAILQ_REMOVE(&l->sendq, r, send);
        l->n_sending--;
        r->in_sendq = 0;
    }
}

void
wlk_forget(struct wlk *l, struct jreq *r)
{
    if (r->in_cancelq)
        TAILQ_REMOVE(&l->cancelq, r, link);
    if (r->in_startq)
        TAILQ_REMOVE(&l->startq, r, start);
    if (r->in_sendq) {
        TAILQ_REMOVE(&l->sendq, r, send);
        l->n_sending--;
    }
    r->in_cancelq = r->in_startq = r->in_sendq = 0;
}

static int
wlk_send_cancels(struct wlk *l)
{
    struct jreq *r;
    int n = 0;

    while ((r = TAILQ_FIRST(&l->cancelq)) != NULL) {
        struct lnk_cancel *c = lnk_claim(&l->lnk, r->id, LNK_T_CANCEL, 0, 0, sizeof(*c));

        if (c == NULL)
            break;
        c->code = r->end_code;
        c->rsv = 0;
        TAILQ_REMOVE(&l->cancelq, r, link);
        r->in_cancelq = 0;
        n++;
    }
    return n;
}

int
wlk_send_due(struct wlk *l)
{
    static const struct {
        uint32_t bit;
        unsigned type;
    } what[] = { { WLK_PEND_RELOAD, LNK_T_RELOAD }, { WLK_PEND_DRAIN, LNK_T_DRAIN } };
    int n = wlk_send_cancels(l);

    for (size_t i = 0; l->pend != 0 && i < sizeof(what) / sizeof(what[0]); i++) {
        if ((l->pend & what[i].bit) &&
            lnk_claim(&l->lnk, 0, what[i].type, 0, 0, 0) != NULL) {
            l->pend &= ~what[i].bit;
            n++;
        }
    }
    return n;
}
