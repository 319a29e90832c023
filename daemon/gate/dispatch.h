/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Which worker gets a request, and how it goes down that worker's link.
 *
 * A record and the first DSP_PIECE bytes of its items go at once. The rest of
 * long items goes by turns, DSP_PIECE bytes each, as long as half of the ring
 * stays free: a text of megabytes holds up no short request.
 *
 * There is one link now. With more, the choice among those that are up is made
 * here, at the moment a request leaves its user's queue.
 */
#ifndef FDD_DAEMON_GATE_DISPATCH_H
#define FDD_DAEMON_GATE_DISPATCH_H

#include <stdint.h>

#include "daemon/gate/wlink.h"

#define DSP_LINKS 8u
#define DSP_PIECE 16384u

struct dispatch {
    struct wlk *link[DSP_LINKS];
    uint32_t n;
};

void dsp_init(struct dispatch *d);
void dsp_add(struct dispatch *d, struct wlk *l);
/* What the workers serve; NULL: none is up. */
static inline const struct lnk_ready *
dsp_ready(const struct dispatch *d)
{
    for (uint32_t i = 0; i < d->n; i++) {
        if (d->link[i]->up)
            return &d->link[i]->ready;
    }
    return NULL;
}
/* Do workers take requests? */
static inline int
dsp_is_up(const struct dispatch *d)
{
    return dsp_ready(d) != NULL;
}
/* Credits that the workers which are up have granted. */
uint32_t dsp_credits(const struct dispatch *d);
/* ms until the first worker that is loading takes requests, if loading goes on as
 * it went so far. 0: nothing is known. */
uint64_t dsp_load_ms(const struct dispatch *d, uint64_t now_ns);
/* ms that the slowest worker took from its start until it was ready. */
uint64_t dsp_loaded_ms(const struct dispatch *d);

/* Send r, whose price is known, down a link. place: its own among all open
 * requests. 1, or 0 when no ring has room now. */
int dsp_send(struct dispatch *d, struct jreq *r, uint32_t place);
/* Are items of long requests, CANCEL or other records due? */
static inline int
dsp_has_due(const struct dispatch *d)
{
    for (uint32_t i = 0; i < d->n; i++) {
        const struct wlk *l = d->link[i];

        if (l->n_sending != 0 || l->pend != 0 || !TAILQ_EMPTY(&l->cancelq))
            return 1;
    }
    return 0;
}
/* Send them. Returns the records and pieces that went. */
int dsp_send_due(struct dispatch *d);
/* Are items of a request still to go down? */
int dsp_is_sending(const struct dispatch *d);
/* r is with its worker no more: the credits come back. */
void dsp_end(struct jreq *r);
/* r has begun, or its client has gone: its deadlines are not looked at any more. */
void dsp_begun(struct jreq *r);
/* Publish what was written. */
void dsp_flush(struct dispatch *d);
void dsp_check(const struct dispatch *d, uint32_t credits_used);

#endif
