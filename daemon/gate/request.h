/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to accepted requests: queued, sent, cancelled, past their
 * deadline, ended. Every accepted request ends once, in rq_end(), whatever
 * ends it: the worker, a deadline, the client, the death of the
 * worker, the end of the daemon.
 */
#ifndef FDD_DAEMON_GATE_REQUEST_H
#define FDD_DAEMON_GATE_REQUEST_H

#include <stdint.h>

struct chk_items;
struct client;
struct clients;
struct dispatch;
struct env;
struct fair;
struct fdp_error;
struct fdp_rec;
struct fdp_req;
struct jnl;
struct jreq;
struct rql;
struct usr;
struct wlk;

#define RQ_SEND_BATCH 8192u /* records down per loop iteration */
#define RQ_LOOK       16u   /* requests between looks at the clock */
#define RQ_MOVES      2u    /* workers that may die with a request before it ends */

struct reqs {
    const struct env *env;
    struct jnl *jnl;
    struct fair *fair;
    struct clients *clients;
    struct dispatch *dsp;
    const struct rql *log;
};

/* A request that the intake accepted. */
struct rq_new {
    struct client *cli;
    struct usr *usr; /* who pays: the client's user or a delegated one */
    const struct fdp_req *req;
    unsigned char *blob; /* of blb_new(); passes to the request */
    uint32_t blob_bytes;
    uint32_t cost, est_prompt;     /* tokens; est_prompt of cost are prompt */
    const struct chk_items *items; /* its items */
    int checked;                   /* against the model's vocabulary and length */
};

/* Queue it. There must be a free entry in the journal. */
void rq_add(struct reqs *rs, const struct rq_new *n);

/* The one end of a request: its client, if there still is one, gets rec, the
 * worker's terminal record (E_INTERNAL instead of one of a wrong length), or, where
 * rec is NULL, ERROR with *e. Credits and the entry come back. */
void rq_end(struct reqs *rs, struct jreq *r, const struct fdp_rec *rec,
    const struct fdp_error *e);
/* Cancel wherever it is: queued requests end now, others when the worker says so.
 * retry_ms goes with the ERROR of those that end now. */
void rq_cancel(struct reqs *rs, struct jreq *r, int code, uint32_t retry_ms);
/* Cancel all requests of c; orphan: c disconnects and gets no terminal records. */
void rq_cancel_client(struct reqs *rs, struct client *c, int code, int orphan);
/* c is a slow client: cancel its requests with E_SLOW, once. */
void rq_slow(struct reqs *rs, struct client *c, const char *why);
void rq_cancel_all(struct reqs *rs, int code, uint32_t retry_ms);
/* End all requests immediately; later records of workers for them are dropped. */
void rq_end_all(struct reqs *rs, int code, uint32_t retry_ms);

/* Send what is due to the workers: queued requests within their credits, items,
 * cancels. Returns how many records. */
int rq_send(struct reqs *rs);
/* End requests whose queue or total deadline passed before they began. The worker does
 * not see them, or gets a cancel. */
void rq_deadlines(struct reqs *rs);
/* Total deadlines that a hung worker did not keep: the client gets ERROR from here; the
 * worker's terminal record, if it comes, only returns the credit. */
void rq_overdue(struct reqs *rs);
/* The worker of l died. Requests whose items were not sent completely are queued again, and
 * with several groups those without output, for another group, RQ_MOVES times each; all
 * others end with code. */
void rq_link_gone(struct reqs *rs, struct wlk *l, int died, int code, uint32_t retry_ms);
void rq_check(const struct reqs *rs);

#endif
