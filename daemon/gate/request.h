/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues, sends, cancels and ends accepted requests, and watches their deadlines. Every
 * accepted request ends once, in rq_end(), whatever ends it: the worker, a deadline, the
 * client, the death of the worker, the end of the daemon.
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

#define RQ_SEND_BATCH 8192u /* records sent to workers per loop iteration */
#define RQ_LOOK       16u   /* requests sent between looks at the clock */
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
    struct usr *usr; /* user that is charged: the client's or a delegated one */
    const struct fdp_req *req;
    unsigned char *blob; /* from blb_new(); passes to the request */
    uint32_t blob_bytes;
    uint32_t cost, est_prompt;     /* cost in tokens; est_prompt of them are prompt */
    const struct chk_items *items; /* contents of its items */
    int checked;                   /* ids and lengths were checked against the model */
};

/* Queues it. The journal must have a free entry. */
void rq_add(struct reqs *rs, const struct rq_new *n);

/* Ends a request: its client, if still connected, gets rec, the worker's terminal record
 * (E_INTERNAL if its length is wrong), or, if rec is NULL, ERROR with *e. Returns its
 * credits and frees its entry. */
void rq_end(struct reqs *rs, struct jreq *r, const struct fdp_rec *rec,
    const struct fdp_error *e);
/* Cancels a request: a queued one ends now, another one when its worker ends it. retry_ms
 * is sent with the ERROR if it ends now. */
void rq_cancel(struct reqs *rs, struct jreq *r, int code, uint32_t retry_ms);
/* Cancels all requests of c; orphan: c disconnects and gets no terminal records. */
void rq_cancel_client(struct reqs *rs, struct client *c, int code, int orphan);
/* c is a slow client: cancels its requests with E_SLOW, once. */
void rq_slow(struct reqs *rs, struct client *c, const char *why);
void rq_cancel_all(struct reqs *rs, int code, uint32_t retry_ms);
/* Ends all requests immediately; later records of workers for them are dropped. */
void rq_end_all(struct reqs *rs, int code, uint32_t retry_ms);

/* Sends what is due to the workers: queued requests within their credits, items, CANCELs.
 * Returns the number of records. */
int rq_send(struct reqs *rs);
/* Ends requests whose queue or total deadline passed before they began. The worker does
 * not get them, or gets a CANCEL. */
void rq_deadlines(struct reqs *rs);
/* Handles total deadlines that a hung worker missed: the client gets ERROR from the gate;
 * the worker's terminal record, if it comes, only returns the credits. */
void rq_overdue(struct reqs *rs);
/* The worker of l has ended. Requests whose items were not sent completely are queued
 * again. With several groups, so are those without output, for another group, RQ_MOVES
 * times each. All others end with code. */
void rq_link_gone(struct reqs *rs, struct wlk *l, int died, int code, uint32_t retry_ms);
void rq_check(const struct reqs *rs);

#endif
