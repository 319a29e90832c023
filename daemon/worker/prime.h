/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What steps take, before there is a request: synthetic steps of some decode
 * batches and prefill chunks are run and learned, so that the first steps of
 * requests can be predicted. They count as a step each; what the steps of
 * requests take soon counts for more. Before the engine's thread is started.
 */
#ifndef FDD_DAEMON_WORKER_PRIME_H
#define FDD_DAEMON_WORKER_PRIME_H

#include <stdint.h>

#include "daemon/worker/batch.h"
#include "daemon/worker/cost.h"
#include "daemon/worker/runner.h"

struct prm_result {
    int32_t n_shape;         /* measured */
    uint64_t ns;             /* in all */
};

/* Nothing is begun that would take longer than the rest of budget_ns, as far as is
 * known; where that leaves too few shapes, nothing is predicted yet. No sequence holds
 * blocks. 0, -ENOMEM, or what the device failed with. */
int prm_run(struct runner *run, struct bat *bat, struct cost *cost, int32_t max_len,
    uint64_t budget_ns, struct prm_result *ret);

#endif
