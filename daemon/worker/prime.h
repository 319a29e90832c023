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

struct prm_result {
    int32_t n_shape; /* measured */
    uint64_t ns;     /* in all */
};

/* Starts no step that is predicted to exceed the rest of budget_ns; where that leaves too
 * few shapes, the model predicts nothing yet. No sequence holds
 * blocks. 0, -ENOMEM, or what the device failed with. */
int prm_run(struct runner *run, struct bat *bat, struct cost *cost, int32_t max_len,
    uint64_t budget_ns, struct prm_result *ret);

#endif
