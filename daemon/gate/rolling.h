/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Rolling restart: the workers of all groups are started again one after another, each
 * when another group takes requests. A group first finishes its requests, for at most
 * daemon.drain_timeout_ms; its remaining requests without output then move to another
 * group. A group that does not come back ends the rolling restart, and the others stay as
 * they are. Groups that had failed are started first, which needs no other group. While
 * the daemon drains no further group is restarted.
 */
#ifndef FDD_DAEMON_GATE_ROLLING_H
#define FDD_DAEMON_GATE_ROLLING_H

#include <stdint.h>

struct dispatch;
struct env;
struct sup;
struct wrk;

enum rol_phase { ROL_NONE = 0, ROL_WAITS, ROL_DRAINS, ROL_STARTS };

struct rolling {
    const struct env *env;
    const struct dispatch *dsp;
    struct sup *sup;
    struct wrk *wrk; /* n_wrk of them */
    uint32_t n_wrk;
    enum rol_phase phase;
    uint32_t at;     /* group whose turn it is; n_wrk: all are done */
    uint64_t todo;   /* bit i: group i is still to be restarted */
    char error[256]; /* why the last rolling restart did not complete; "" */
};

static inline int
rol_is_active(const struct rolling *r)
{
    return r->phase != ROL_NONE;
}
/* Returns 0; -EBUSY: one is under way, or the daemon ends; -ENOTSUP: there is one
 * group. */
int rol_begin(struct rolling *r);
void rol_tick(struct rolling *r);
/* "", or the phase of the group whose turn it is. */
const char *rol_phase_name(const struct rolling *r);

#endif
