/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the worker for a request and sends the request over that worker's link.
 *
 * A record and the first DSP_PIECE bytes of its items are sent at once. Requests with
 * longer items take turns to send the rest, DSP_PIECE bytes each, as long as half of the
 * ring stays free: a text of megabytes does not delay short requests.
 *
 * With several groups, one of those that are up is chosen when a request leaves its
 * user's queue. The group that has most of the prompt in its prefix cache (affinity.h)
 * gets it, unless its load is larger than the least loaded group's by more than twice
 * the tokens that the cache saves; if none has any of it, the least loaded group gets it.
 * Load is in tokens: the prompt tokens that the group has yet to compute, plus, for each
 * sequence, the prompt tokens that the worker could compute in one sequence's share of a
 * step, as measured by its counters.
 */
#ifndef FDD_DAEMON_GATE_DISPATCH_H
#define FDD_DAEMON_GATE_DISPATCH_H

#include <stdint.h>

#include "daemon/common/counter.h"
#include "daemon/gate/affinity.h"
#include "daemon/gate/wlink.h"

#define DSP_LINKS  32u
#define DSP_PIECE  16384u
#define DSP_SMOOTH 8   /* measurements averaged by the moving mean of row_ns */
#define DSP_SHARE  64u /* upper bound of wlk.row_tokens */

_Static_assert(DSP_LINKS == CNT_MAX_GROUPS, "a link for each group");

struct dispatch {
    struct wlk *link[DSP_LINKS];
    uint32_t n;
    struct aff aff;    /* only used if n > 1 */
    uint64_t n_cached; /* requests sent where their prompt's beginning is cached */
};

void dsp_init(struct dispatch *d);
void dsp_fini(struct dispatch *d);
void dsp_add(struct dispatch *d, struct wlk *l);
/* All links have been added; key: random. Returns 0 or -ENOMEM. */
int dsp_open(struct dispatch *d, const uint64_t key[2]);
/* What the workers that are up report; of several, the one with the smallest
 * max_model_len.
 * NULL: none is up. */
static inline const struct lnk_ready *
dsp_ready(const struct dispatch *d)
{
    const struct lnk_ready *r = NULL;

    for (uint32_t i = 0; i < d->n; i++) {
        const struct lnk_ready *one = &d->link[i]->ready;

        if (d->link[i]->up && (r == NULL || one->info.max_model_len < r->info.max_model_len))
            r = one;
    }
    return r;
}
/* Is any worker up? */
static inline int
dsp_is_up(const struct dispatch *d)
{
    for (uint32_t i = 0; i < d->n; i++) {
        if (d->link[i]->up)
            return 1;
    }
    return 0;
}
/* Number of workers that are up. */
uint32_t dsp_n_up(const struct dispatch *d);
/* Credits granted by the workers that are up, plus those in use at workers that only
 * finish their requests. *ret_one: the most that one worker granted. */
uint32_t dsp_credits(const struct dispatch *d, uint32_t *ret_one);
/* Reads a worker's step counters; called some times a second. */
void dsp_measure(struct wlk *l, const struct cnt_worker *c);
/* The load of a group, in tokens; see above. */
uint64_t dsp_load(const struct wlk *l);
/* ms until the first of the loading workers takes requests, if it loads on at the same
 * rate. 0: not known. */
uint64_t dsp_load_ms(const struct dispatch *d, uint64_t now_ns);
/* Longest time in ms that a worker took from its start until it was ready. */
uint64_t dsp_loaded_ms(const struct dispatch *d);

/* Sends r, whose price is known, over a link. place: index that no other open request
 * has. Returns 1, or 0 when no ring has room now. */
int dsp_send(struct dispatch *d, struct jreq *r, uint32_t place);
/* Are items of long requests, CANCELs or other records to be sent? */
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
/* Sends them. Returns the number of records and pieces sent. */
int dsp_send_due(struct dispatch *d);
/* Are items of any request still to be sent? */
int dsp_is_sending(const struct dispatch *d);
/* r is not with its worker any more: the link's credits come back. */
void dsp_end(struct jreq *r);
/* r's first token arrived, so its prompt is computed. */
static inline void
dsp_computed(struct jreq *r)
{
    r->with->due -= r->due;
    r->due = 0;
}
/* r has begun, or its client has disconnected: its deadlines do not matter any more. */
void dsp_begun(struct jreq *r);
/* Publishes the written records. */
void dsp_flush(struct dispatch *d);
void dsp_check(const struct dispatch *d, uint32_t credits_used);

#endif
