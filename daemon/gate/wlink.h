/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate's end of the link to the worker of one group: the worker's grants, and the
 * records to send to it. supervise.h starts and ends the worker's process; dispatch.h
 * chooses the link for a request.
 *
 * All of its state belongs to one group: a daemon with n groups has n links.
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
    int is_closed;       /* its process has ended: nothing more is sent */
    int is_news;         /* READY came, and the supervisor has not handled it yet */
    struct lnk_seg *seg; /* NULL: no worker */
    uint64_t t_join;     /* when its worker was started */
    uint64_t loaded_ns;  /* time from start to READY, the last time */
    struct lnk lnk;
    struct lnk_ready ready; /* payload of the last READY */
    uint32_t credits_used;
    uint32_t n_sending;
    struct jreq_q sendq;   /* requests whose items are being sent, in turn */
    struct jreq_q cancelq; /* requests whose CANCEL is to be sent */
    struct jreq_q startq;  /* requests with a deadline that may not have begun */
    uint32_t pend;         /* WLK_PEND_*: DRAIN and RELOAD records to send */
    uint32_t n_with;       /* requests with its worker */
    uint64_t due;          /* prompt tokens that it has yet to compute */
    uint64_t n_sent;       /* requests sent, in all */
    uint32_t generation;   /* generation of its worker, from 1 */
    int is_failed;         /* its worker will not be started again */
    /* Set by dsp_measure(). at_*: the counters at its last call. token_ns: least time per
     * token in an interval. row_ns: running mean of the step time per sequence.
     * row_tokens: row_ns / token_ns, from 1 to DSP_SHARE. */
    uint64_t at_ns, at_seqs, at_tokens;
    double token_ns, row_ns;
    uint32_t row_tokens;
};

void wlk_init(struct wlk *l, int group);
/* Takes over a new worker's segment. The old one must have been left. */
void wlk_join(struct wlk *l, struct lnk_seg *seg, int efd, uint64_t now_ns);
/* Releases the segment and its records. Every request of it must have ended. */
void wlk_leave(struct wlk *l);
/* Percentage of the weights loaded; 100: it takes requests. */
int wlk_load_percent(const struct wlk *l);
/* May records be written to it? */
int wlk_is_open(const struct wlk *l);

/* Does it compute a step, as far as the gate knows? At most for twice the step's expected
 * time; 0 while that is not known. */
int wlk_has_step(const struct wlk *l, uint64_t now_ns);

/* Each returns 1, or 0 if the ring has no room now. */
int wlk_put_submit(struct wlk *l, const struct jreq *r, uint32_t place);
/* Sends at most max bytes of r's items; r->sent counts them. Returns 1 if any were
 * sent. */
int wlk_put_blob(struct wlk *l, struct jreq *r, uint32_t max);

/* Queues a CANCEL: the worker is to end r with r->end_code. */
void wlk_cancel(struct wlk *l, struct jreq *r);
/* r has ended: removes it from the link's queues. */
void wlk_forget(struct wlk *l, struct jreq *r);
/* Sends CANCELs and WLK_PEND_* records. Returns how many. */
int wlk_send_due(struct wlk *l);

#endif
