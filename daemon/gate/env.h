/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What every module of the gate may read: the parameters in force, the time
 * of this loop iteration, whether the daemon takes requests. Counters are the
 * one thing all of them write.
 *
 * Time bounds an iteration where counts do not: a record that needs fresh pages
 * or a system call costs a hundred times what most do. The loop sets a time for
 * each phase; a module that has more to do asks env_is_late() after each piece of
 * some 50 us, and leaves the rest, in order, for the next iteration. Each does one
 * piece in every iteration, however late it is.
 *
 * st, stop_deadline and paused are written by life.c alone, now and until by the
 * loop.
 */
#ifndef FDD_DAEMON_GATE_ENV_H
#define FDD_DAEMON_GATE_ENV_H

#include <stdint.h>

#include "daemon/common/clk.h"
#include "daemon/common/counter.h"
#include "daemon/common/param.h"

enum gate_st { GATE_RUNNING = 0, GATE_DRAINING, GATE_STOPPING, GATE_DEGRADED };

struct env {
    const struct par *par; /* in force */
    struct cnt_gate *cnt;
    uint64_t now;           /* CLOCK_MONOTONIC, ns */
    uint64_t until;         /* what can wait is not begun after it; 0: no limit */
    uint64_t t_boot;        /* when the daemon began */
    uint64_t boot_id[2];    /* drawn at start */
    int st;                 /* enum gate_st */
    uint64_t stop_deadline; /* STOPPING: what is left is cancelled then */
    int paused;             /* RUNNING, and nothing goes to a worker */
};

/* Is the time of this phase over? */
static inline int
env_is_late(const struct env *e)
{
    return e->until != 0 && clk_now_ns() >= e->until;
}

#endif
