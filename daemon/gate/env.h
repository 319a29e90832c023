/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What every module of the gate may read: the parameters in force, the time
 * of this loop iteration, whether the daemon takes requests. Counters are the
 * one thing all of them write.
 *
 * st, stop_deadline and paused are written by life.c alone, now by the loop.
 */
#ifndef FDD_DAEMON_GATE_ENV_H
#define FDD_DAEMON_GATE_ENV_H

#include <stdint.h>

#include "daemon/common/counter.h"
#include "daemon/common/param.h"

enum gate_st { GATE_RUNNING = 0, GATE_DRAINING, GATE_STOPPING, GATE_DEGRADED };

struct env {
    const struct par *par;    /* in force */
    struct cnt_gate *cnt;
    uint64_t now;             /* CLOCK_MONOTONIC, ns */
    uint64_t t_boot;          /* when the daemon began */
    uint64_t boot_id[2];      /* drawn at start */
    int st;                   /* enum gate_st */
    uint64_t stop_deadline;   /* STOPPING: what is left is cancelled then */
    int paused;               /* RUNNING, and nothing goes to a worker */
};

#endif
