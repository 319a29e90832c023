/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission control. Judges a request from its record, before a byte of its items is
 * copied, and again from the cost of the items. Nothing is changed here.
 *
 * The last entries of the journal are reserved for users without a request, so that one
 * user's valid requests do not shut others out. When the queue holds its limit of tokens,
 * such a user's request may still be queued, in a reserve on top.
 */
#ifndef FDD_DAEMON_GATE_ADMIT_H
#define FDD_DAEMON_GATE_ADMIT_H

#include <stdint.h>

struct chk_err;
struct client;
struct dispatch;
struct env;
struct fair;
struct fdp_req;
struct jnl;
struct usr;

#define ADM_TOKENS_EACH  1024u /* per journal entry; sched.max_queued_tokens = 0 */
#define ADM_RETRY_MAX_MS 60000u
#define ADM_KEPT_SHARE   16u /* one in this many entries and queued tokens is reserved */
#define ADM_KEPT_MAX     64u

struct admit {
    const struct env *env;
    const struct jnl *jnl;
    const struct fair *fair;
    const struct dispatch *dsp;
};

/* Checks the daemon's state, free entries and the limits of client and user, for a
 * request whose items take this number of bytes. Returns 0, or 1 with *e set. */
int adm_check(const struct admit *a, const struct client *c, const struct usr *u,
    uint64_t bytes, struct chk_err *e);
/* Queue limit and load shedding: rejects a request for which the queue has no room, or
 * whose deadline would pass before it starts. cost: tokens. Returns 0, or 1 with *e
 * set. */
int adm_check_queue(const struct admit *a, const struct usr *u, const struct fdp_req *q,
    uint64_t cost, struct chk_err *e);
/* Would one more request be queued or rejected? */
int adm_is_full(const struct admit *a);
/* sched.max_queued_tokens, or the value that its 0 stands for. */
uint64_t adm_max_queued(const struct admit *a);
/* retry_after_ms: the time in which one request ends at the current rate; while the
 * daemon drains or stops, the time until all have ended. */
uint32_t adm_retry_ms(const struct admit *a);

#endif
