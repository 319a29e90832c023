/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the two files of run_sums_check() and run_sums_choose(): runner_sums_rank.c,
 * which runs on each rank, and runner_sums.c, which drives it.
 */
#ifndef FDD_DAEMON_WORKER_RUNNER_SUMS_H
#define FDD_DAEMON_WORKER_RUNNER_SUMS_H

#include "daemon/worker/runner.h"

#define SUMS_MOST      (8u << 20) /* most bytes of an operand, or of a result */
#define SUMS_MOST_HOST (1u << 20) /* that limit for a backend on the host */
#define SUMS_ALIGN     256

enum sums_op { SUMS_SUM, SUMS_GATHER, SUMS_AHEAD, SUMS_OP__N };

struct run_sums {
    size_t n; /* elements of a rank's operand */
    enum sums_op op;
    size_t row; /* elements of a row with a residual and a norm, of which n is a multiple; 0:
                   plain sums */
    size_t residual; /* offset of the residual in the activations, the norm's weights behind */
    char *h[FDK_MAX_RANKS];     /* each rank's host buffer: operand, then result */
    int64_t bad[FDK_MAX_RANKS]; /* first wrong element, -1: none */
    float was[FDK_MAX_RANKS], want[FDK_MAX_RANKS]; /* its value, and the right one */
};

static inline size_t
sums_elt(const struct runner *run)
{
    return fdk_dtype_bytes(run->act);
}

/* Largest size in bytes of an operand, and of a result. */
static inline size_t
sums_most(const struct runner *run)
{
    size_t n = (size_t)run_root(run)->mem.activations / 2;
    size_t most = run->k->on_host ? SUMS_MOST_HOST : SUMS_MOST;

    n = n < most ? n : most;
    return n / SUMS_ALIGN * SUMS_ALIGN;
}

/* For run_on_all(): run one collective and check its result; time a chain of collectives
 * between the two events ev_copy of the rank. */
run_dev_fn sums_check_rank, sums_time_rank;

#endif
