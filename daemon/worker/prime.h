/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Primes the cost model before the first request: runs synthetic steps of some decode
 * batches and prefill chunks, so that the first steps of requests can be predicted. Each
 * counts as one step; steps of requests soon outweigh them. Before the engine's thread is started.
 */
#ifndef FDD_DAEMON_WORKER_PRIME_H
#define FDD_DAEMON_WORKER_PRIME_H

#include <stdint.h>

#include "daemon/worker/batch.h"
#include "daemon/worker/cost.h"
#include "daemon/worker/runner.h"

/* A prompt of fewer tokens in a step is not divided unless a parameter says so; what is
 * taken where nothing is measured. */
#define PRM_LEAST_SPLIT 64
#define PRM_SPLIT       512

struct prm_result {
    int32_t n_shape; /* measured */
    uint64_t ns;     /* in all */
};

/* Starts no step that is predicted to exceed the rest of budget_ns; where that leaves too
 * few shapes, the model predicts nothing yet. No sequence holds
 * blocks. 0, -ENOMEM, or what the device failed with. */
int prm_run(struct runner *run, struct bat *bat, struct cost *cost, int32_t max_len,
    uint64_t budget_ns, struct prm_result *ret);

/* From how many tokens on a prompt takes less time where copies divide it: measured, in doubling
 * numbers of tokens, into bat->min_split; INT32_MAX: it never does. Where budget_ns leaves
 * nothing to measure that stays as it is. 0 or as prm_run(). */
int prm_split(struct runner *run, struct bat *bat, int32_t max_len, uint64_t budget_ns);

#endif
