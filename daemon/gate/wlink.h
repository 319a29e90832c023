/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate's end of the link to the worker of one group: what the worker
 * granted, and what is due on its way down. Who starts and ends the worker's
 * process is supervise.h; which request goes down which link, dispatch.h.
 *
 * Nothing of another group is here, so that a daemon with n groups has n of
 * these.
 */
#ifndef FDD_DAEMON_GATE_WLINK_H
#define FDD_DAEMON_GATE_WLINK_H

#include <stdint.h>

#include "daemon/common/link.h"
#include "daemon/gate/journal.h"

#define WLK_PEND_DRAIN  1u
#define WLK_PEND_RELOAD 2u

struct wlk {
    int group;
    int up;              /* its worker takes requests */
    int is_closed;       /* its process has ended: nothing more goes down */
    int is_news;         /* ready came since the supervisor looked */
    struct lnk_seg *seg; /* NULL: no worker */
    uint64_t t_join;     /* when its worker was started */
    uint64_t loaded_ns;  /* from there until it was ready, the last time */
    struct lnk lnk;
    struct lnk_ready ready; /* of the last READY */
    uint32_t credits_used;
    uint32_t n_sending;
    struct jreq_q sendq;   /* their items go down, by turns */
    struct jreq_q cancelq; /* CANCEL records to send */
    struct jreq_q startq;  /* with it, a deadline, and not known to have begun */
    uint32_t pend;         /* WLK_PEND_*: other records to send */
    uint32_t n_with;       /* requests with its worker */
    uint64_t due;          /* tokens of their prompts that are not computed yet */
    uint64_t n_sent;       /* requests, ever */
    uint32_t generation;   /* of its worker, from 1 */
    int is_failed;         /* there will be no worker */
    /* What its worker reports (dsp_measure): the counters at the last look, the least time
     * that a token took in an interval, a sequence's share of a step, and its worth. */
    uint64_t at_ns, at_seqs, at_tokens;
    double token_ns, row_ns;
    uint32_t row_tokens;
};

void wlk_init(struct wlk *l, int group);
/* A new worker's segment. The old one must have been left. */
void wlk_join(struct wlk *l, struct lnk_seg *seg, int efd, uint64_t now_ns);
/* Throw the segment away, with whatever is in it. Every request of it has ended. */
void wlk_leave(struct wlk *l);
/* Weights loaded, in percent; 100: it takes requests. */
int wlk_load_percent(const struct wlk *l);
/* May records be written? */
int wlk_is_open(const struct wlk *l);

/* Each returns 1, or 0 when the ring has no room now. */
int wlk_put_submit(struct wlk *l, const struct jreq *r, uint32_t place);
/* At most max bytes of its items; r->sent counts them. 1: some went. */
int wlk_put_blob(struct wlk *l, struct jreq *r, uint32_t max);

/* The worker is to end r with r->end_code. */
void wlk_cancel(struct wlk *l, struct jreq *r);
/* r is over: no queue of the link holds it. */
void wlk_forget(struct wlk *l, struct jreq *r);
/* CANCEL records and WLK_PEND_*. Returns how many went. */
int wlk_send_due(struct wlk *l);

#endif
