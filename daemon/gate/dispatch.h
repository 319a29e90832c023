/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Which worker gets a request, and how it goes down that worker's link.
 *
 * A record and the first DSP_PIECE bytes of its items go at once. The rest of
 * long items goes by turns, DSP_PIECE bytes each, as long as half of the ring
 * stays free: a text of megabytes holds up no short request.
 *
 * With several groups the choice among those that are up is made here, at the moment a
 * request leaves its user's queue. The group that has most of the prompt in its prefix
 * cache (affinity.h) gets it, unless its load is larger than the least loaded group's by
 * more than the tokens that the cache saves; where none has any of it, the least loaded.
 * Load is in tokens: of prompts that the group has and did not compute yet, and for each
 * sequence the prompt tokens that it could compute in one sequence's share of a step, as
 * its worker reports.
 */
#ifndef FDD_DAEMON_GATE_DISPATCH_H
#define FDD_DAEMON_GATE_DISPATCH_H

#include <stdint.h>

#include "daemon/common/counter.h"
#include "daemon/gate/affinity.h"
#include "daemon/gate/wlink.h"

#define DSP_LINKS  32u
#define DSP_PIECE  16384u
#define DSP_SMOOTH 8   /* looks at what a worker reports, for a mean */
#define DSP_SHARE  64u /* tokens that a sequence's share of a step is worth, at most */

_Static_assert(DSP_LINKS == CNT_MAX_GROUPS, "a link for each group");

struct dispatch {
    struct wlk *link[DSP_LINKS];
    uint32_t n;
    struct aff aff;    /* where n > 1 */
    uint64_t n_cached; /* requests that went where the beginning of their prompt was */
};

void dsp_init(struct dispatch *d);
void dsp_fini(struct dispatch *d);
void dsp_add(struct dispatch *d, struct wlk *l);
/* All links are there; key: random. 0 or -ENOMEM. */
int dsp_open(struct dispatch *d, const uint64_t key[2]);
/* What all workers that are up serve: of several, what the one with the shortest length
 * does. NULL: none is up. */
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
/* Do workers take requests? */
static inline int
dsp_is_up(const struct dispatch *d)
{
    for (uint32_t i = 0; i < d->n; i++) {
        if (d->link[i]->up)
            return 1;
    }
    return 0;
}
/* How many do. */
uint32_t dsp_n_up(const struct dispatch *d);
/* Credits that the workers which are up have granted, and those in use with workers that
 * end what they have; *ret_one: the most that one of them granted. */
uint32_t dsp_credits(const struct dispatch *d, uint32_t *ret_one);
/* Look at what a worker reports of its steps, some times a second. */
void dsp_measure(struct wlk *l, const struct cnt_worker *c);
/* Load of a group, in tokens. */
uint64_t dsp_load(const struct wlk *l);
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
/* Its first token came: its prompt is computed. */
static inline void
dsp_computed(struct jreq *r)
{
    r->with->due -= r->due;
    r->due = 0;
}
/* r has begun, or its client has gone: its deadlines are not looked at any more. */
void dsp_begun(struct jreq *r);
/* Publish what was written. */
void dsp_flush(struct dispatch *d);
void dsp_check(const struct dispatch *d, uint32_t credits_used);

#endif
