/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * State that every module of the gate may read: the parameters in force, the time of this
 * loop iteration, whether the daemon takes requests. The counters are the only part that
 * all modules write.
 *
 * Where counts do not bound an iteration, time does: a record that needs fresh pages or a
 * system call costs a hundred times as much as most. The loop sets a time limit for each
 * phase. A module with more work calls env_is_late() after each piece of some 50 us, and
 * leaves the rest, in order, for the next iteration. Each module does one piece in every
 * iteration, however late it is.
 *
 * Only life.c writes st, stop_deadline and paused; only the loop writes now and until.
 */
#ifndef FDD_DAEMON_GATE_ENV_H
#define FDD_DAEMON_GATE_ENV_H

#include <stdint.h>

#include "daemon/common/clk.h"
#include "daemon/common/counter.h"
#include "daemon/common/param.h"

enum gate_st { GATE_RUNNING = 0, GATE_DRAINING, GATE_STOPPING, GATE_DEGRADED };

struct env {
    const struct par *par; /* parameters in force */
    struct cnt_gate *cnt;
    uint64_t now;           /* time of this iteration: CLOCK_MONOTONIC, ns */
    uint64_t until;         /* end of this phase for deferrable work; 0: no limit */
    uint64_t t_boot;        /* start of the daemon */
    uint64_t boot_id[2];    /* random, drawn at start */
    int st;                 /* enum gate_st */
    uint64_t stop_deadline; /* STOPPING: requests still open then are cancelled */
    int paused;             /* RUNNING, but no request is sent to a worker */
};

/* Is the time of this phase over? */
static inline int
env_is_late(const struct env *e)
{
    return e->until != 0 && clk_now_ns() >= e->until;
}

#endif
