/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The gauges of the statistics segment, from the current state of the modules. They are
 * set at each tick, and before the admin socket shows them.
 */
#ifndef FDD_DAEMON_GATE_GAUGE_H
#define FDD_DAEMON_GATE_GAUGE_H

#include <stdint.h>

struct cnt_seg;
struct dispatch;
struct env;
struct fair;
struct jnl;
struct sessions;
struct wrk;

struct gauges {
    const struct env *env;
    const struct sessions *ses;
    const struct jnl *jnl;
    const struct fair *fair;
    const struct dispatch *dsp;
    const struct wrk *wrk; /* n_wrk of them */
    uint32_t n_wrk;
    struct cnt_seg *seg;
};

void gau_set(const struct gauges *g);

#endif
