/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The request log (log.requests) and the log of slow requests: one line for
 * each request that has ended or was refused, of topic request. Whose it was,
 * how many tokens, how it ended, its times; never what was asked or answered,
 * as text or as ids. Called where a request gets its terminal record.
 *
 * Lines of accepted requests are as many as there are; those of refused ones
 * and of slow ones obey log.rate, for a client may make them at will.
 */
#ifndef FDD_DAEMON_GATE_REQLOG_H
#define FDD_DAEMON_GATE_REQLOG_H

#include <stdint.h>

struct client;
struct env;
struct fair;
struct fdp_done;
struct fdp_req;
struct jnl;
struct jreq;
struct names;

/* What a line needs to know. */
struct rql {
    const struct env *env;
    const struct names *names;
    const struct jnl *jnl;
    const struct fair *fair;
};

/* r ends with this FDP_E_* code, or with DONE when code is FDP_OK; done: the
 * worker's numbers, NULL when there are none. Before r leaves its session.
 * Once for each request; later calls do nothing. */
void rql_end(const struct rql *q, struct jreq *r, int code, const struct fdp_done *done);
/* A request was refused and is in no journal. */
void rql_refused(const struct rql *q, const struct client *c, const struct fdp_req *req,
    int code, uint32_t detail);

#endif
