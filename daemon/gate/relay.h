/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Records between worker and clients.
 *
 * Up: completions are copied from the link to the client's ring with the
 * tag put in place of the request id. What does not fit a full ring is held
 * in memory of the session, in order; held bytes count in the user's
 * max_bytes_per_user. A session that exceeds that, or makes no progress for
 * slow_client_ms with a full ring, has its requests cancelled with E_SLOW.
 * Terminal records are always held, so that each accepted request has one.
 * The up ring never waits for a client.
 *
 * Output becomes visible once per round and session (rly_flush), with at
 * most one wake-up.
 *
 * Down: requests that are due go to the worker within its credits; a blob
 * longer than the ring's room goes in parts over rounds.
 */
#ifndef FDD_DAEMON_GATE_RELAY_H
#define FDD_DAEMON_GATE_RELAY_H

#include <stdint.h>

#include "libclient/fdproto.h"

struct gate;
struct jreq;
struct ses;
struct wrk;

#define RLY_BATCH  8192u      /* records of the up ring per round */
#define RLY_CHUNK  16384u     /* bytes of a block of held records */

/* Send a record to a client: ring, or held. best_effort: drop instead of
 * hold. Returns 0, or -ENOBUFS when it was dropped. */
int rly_emit(struct gate *g, struct ses *s, uint64_t tag, unsigned type,
    unsigned sample, uint32_t position, const void *payload, uint32_t len,
    int best_effort);
void rly_emit_error(struct gate *g, struct ses *s, uint64_t tag, int code,
    uint32_t retry_after_ms, uint32_t detail, uint32_t arg);
/* End a request here: ERROR to its client (if any), entry freed. The
 * request must not be with a live worker. */
void rly_end(struct gate *g, struct jreq *r, int code, uint32_t retry_after_ms,
    uint32_t detail, uint32_t arg);
/* Cancel wherever it is: queued requests end now, others when the worker
 * says so. */
void rly_cancel(struct gate *g, struct jreq *r, int code);
/* Records of the worker. Returns how many. */
int rly_poll(struct gate *g, struct wrk *w, uint64_t now_ns);
/* Move held records to the rings, publish, wake. */
void rly_flush(struct gate *g);
void rly_drop_held(struct gate *g, struct ses *s);
/* Sessions that are slow: called from ses_tick. */
void rly_check_slow(struct gate *g, struct ses *s, uint64_t now_ns);

/* Send what is due to the worker. Returns how many records. */
int rly_down(struct gate *g, struct wrk *w, uint64_t now_ns);
/* Requests whose queue or total deadline passes while they are queued end here;
 * the worker never sees them. */
void rly_deadlines(struct gate *g, uint64_t now_ns);
/* Total deadlines that the worker has not kept (it hangs): the client gets its
 * ERROR from here, the worker's terminal record only the credit back. */
void rly_overdue(struct gate *g, uint64_t now_ns);
/* The worker is gone: in flight requests end, a half-sent one is queued
 * again. */
void rly_worker_gone(struct gate *g, struct wrk *w);

#endif
