/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/dispatch.h"

#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/link.h"
#include "daemon/common/obj.h"
#include "daemon/gate/fair.h"
#include "daemon/gate/journal.h"
#include "daemon/gate/wlink.h"

void
dsp_init(struct dispatch *d)
{
    memset(d, 0, sizeof(*d));
}

void
dsp_add(struct dispatch *d, struct wlk *l)
{
    ASSERT(d->n < DSP_LINKS);
    d->link[d->n++] = l;
}

/* ---- what the workers can do ----------------------------------------------- */

uint32_t
dsp_credits(const struct dispatch *d)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < d->n; i++)
        sum += d->link[i]->up ? d->link[i]->ready.credits : 0;
    return sum;
}

uint64_t
dsp_load_ms(const struct dispatch *d, uint64_t now_ns)
{
    uint64_t best = 0;

    for (uint32_t i = 0; i < d->n; i++) {
        const struct wlk *l = d->link[i];
        int percent = wlk_load_percent(l);
        uint64_t ms;

        if (l->up || percent <= 0 || now_ns <= l->t_join)
            continue;
        ms = (now_ns - l->t_join) / CLK_MS * (uint64_t)(100 - percent) / (uint64_t)percent;
        best = best == 0 || ms < best ? ms + 1 : best;
    }
    return best;
}

uint64_t
dsp_loaded_ms(const struct dispatch *d)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < d->n; i++)
        most = d->link[i]->loaded_ns > most ? d->link[i]->loaded_ns : most;
    return most / CLK_MS;
}

/* ---- down ------------------------------------------------------------------ */

/* The link that is up with most credits left. */
static struct wlk *
dsp_choose(const struct dispatch *d)
{
    struct wlk *best = NULL;
    int64_t most = 0;

    for (uint32_t i = 0; i < d->n; i++) {
        struct wlk *l = d->link[i];
        int64_t left = (int64_t)l->ready.credits - l->credits_used;

        if (l->up && wlk_is_open(l) && (best == NULL || left > most)) {
            best = l;
            most = left;
        }
    }
    return best;
}

/* Its next items; 1: some went. */
static int
dsp_piece(struct wlk *l, struct jreq *r)
{
    int some = wlk_put_blob(l, r, DSP_PIECE);

    if (r->sent < r->blob_bytes)
        return some;
    if (r->in_sendq) {
        TAILQ_REMOVE(&l->sendq, r, send);
        l->n_sending--;
        r->in_sendq = 0;
    }
    if (r->st == JNL_SENDING)
        r->st = JNL_RUNNING;
    return 1;
}

int
dsp_send(struct dispatch *d, struct jreq *r, uint32_t place)
{
    struct wlk *l = dsp_choose(d);

    ASSERT(r->with == NULL);
    r->sent = 0;
    if (l == NULL || !wlk_put_submit(l, r, place))
        return 0;
    r->st = JNL_SENDING;
    r->with = l;
    l->credits_used += r->price;
    if (fair_deadline(r) != 0 && r->kind == FAIR_GEN) {
        TAILQ_INSERT_TAIL(&l->startq, r, start);
        r->in_startq = 1;
    }
    (void)dsp_piece(l, r);
    if (r->st == JNL_SENDING) {
        TAILQ_INSERT_TAIL(&l->sendq, r, send);
        l->n_sending++;
        r->in_sendq = 1;
    }
    return 1;
}

/* Pieces by turns, while half of the ring is free. */
static int
dsp_send_items(struct wlk *l)
{
    int n = 0;

    while (l->n_sending != 0 &&
        fdr_prod_room(&l->lnk.out, LNK_DOWN_SLOTS / 2) >= (int64_t)LNK_DOWN_SLOTS / 2) {
        struct jreq *r = TAILQ_FIRST(&l->sendq);

        if (!dsp_piece(l, r))
            break;
        n++;
        if (r->in_sendq) {
            TAILQ_REMOVE(&l->sendq, r, send);
            TAILQ_INSERT_TAIL(&l->sendq, r, send);
        }
    }
    return n;
}

int
dsp_send_due(struct dispatch *d)
{
    int n = 0;

    for (uint32_t i = 0; i < d->n; i++) {
        struct wlk *l = d->link[i];

        if (!wlk_is_open(l))
            continue;
        if (l->pend != 0 || !TAILQ_EMPTY(&l->cancelq))
            n += wlk_send_due(l);
        n += dsp_send_items(l);
    }
    return n;
}

int
dsp_is_sending(const struct dispatch *d)
{
    for (uint32_t i = 0; i < d->n; i++) {
        if (d->link[i]->n_sending != 0)
            return 1;
    }
    return 0;
}

void
dsp_begun(struct jreq *r)
{
    if (r->in_startq)
        TAILQ_REMOVE(&r->with->startq, r, start);
    r->in_startq = 0;
}

void
dsp_end(struct jreq *r)
{
    struct wlk *l = r->with;

    if (l == NULL)
        return;
    ASSERT(l->credits_used >= r->price);
    l->credits_used -= r->price;
    if ((r->in_cancelq | r->in_startq | r->in_sendq) != 0)
        wlk_forget(l, r);
    r->with = NULL;
}

void
dsp_flush(struct dispatch *d)
{
    for (uint32_t i = 0; i < d->n; i++) {
        if (wlk_is_open(d->link[i]))
            lnk_flush(&d->link[i]->lnk);
    }
}

void
dsp_check(const struct dispatch *d, uint32_t credits_used)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < d->n; i++) {
        const struct wlk *l = d->link[i];
        const struct jreq *r;
        uint32_t n = 0;

        TAILQ_FOREACH(r, &l->sendq, send)
        {
            ASSERT(r->with == l && r->in_sendq && r->sent < r->blob_bytes);
            n++;
        }
        ASSERT(n == l->n_sending);
        sum += l->credits_used;
    }
    ASSERT(sum == credits_used);
}
