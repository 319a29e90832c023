/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The request log (log.requests) and the log of slow requests: one line of topic request
 * for each request that has ended or was rejected. It has the user, the numbers of
 * tokens, the end, the times; never the prompt or the answer, as text or as ids. Called
 * where a request gets its terminal record.
 *
 * Lines of accepted requests are not limited; those of rejected ones and of slow ones
 * obey log.rate, since a client may cause any number of them.
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

/* The modules that a line takes its values from. */
struct rql {
    const struct env *env;
    const struct names *names;
    const struct jnl *jnl;
    const struct fair *fair;
};

/* Logs the end of r with this FDP_E_* code, or with DONE when code is FDP_OK. done: the
 * worker's numbers, or NULL. Called before r leaves its session, once for each request;
 * later calls do nothing. */
void rql_end(const struct rql *q, struct jreq *r, int code, const struct fdp_done *done);
/* Logs a request that was rejected and is in no journal. */
void rql_refused(const struct rql *q, const struct client *c, const struct fdp_req *req,
    int code, uint32_t detail);

#endif
