/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Primes the cost model before the first request: runs synthetic steps of some decode
 * batches and prefill chunks, so that the times of the first real steps can be
 * predicted. Each counts as one step; real steps soon outweigh them. Runs before the
 * engine thread starts.
 */
#ifndef FDD_DAEMON_WORKER_PRIME_H
#define FDD_DAEMON_WORKER_PRIME_H

#include <stdint.h>

#include "daemon/worker/batch.h"
#include "daemon/worker/cost.h"
#include "daemon/worker/runner.h"

/* Copies divide a prompt if a step computes at least bat.min_split of its tokens.
 * Smallest value without a parameter, and the value if none was measured. */
#define PRM_LEAST_SPLIT 64
#define PRM_SPLIT       512

struct prm_result {
    int32_t n_shape; /* number of step shapes measured */
    uint64_t ns;     /* total time */
};

/* Measure steps into cost. Starts no step that is predicted to exceed the rest of
 * budget_ns; if too few shapes were measured, the cost model predicts nothing yet. No
 * sequence may hold blocks. Returns 0, -ENOMEM or the device's error. */
int prm_run(struct runner *run, struct bat *bat, struct cost *cost, int32_t max_len,
    uint64_t budget_ns, struct prm_result *ret);

/* Measure from how many tokens on a prompt takes less time if copies divide it,
 * trying doubling numbers of tokens, and set bat->min_split; INT32_MAX: dividing
 * never gains. If budget_ns is too short to measure any, bat->min_split stays
 * unchanged. Returns as prm_run(). */
int prm_split(struct runner *run, struct bat *bat, int32_t max_len, uint64_t budget_ns);

#endif
