/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A program's operations without their pointers. Used by runner_program.c, which computes
 * buffer offsets and scratch sizes, and by runner_bind.c, which sets the pointers.
 */
#ifndef FDD_DAEMON_WORKER_RUNNER_PROGRAM_H
#define FDD_DAEMON_WORKER_RUNNER_PROGRAM_H

#include "daemon/worker/runner.h"

/* Does operation i run before SAMPLE for each slice of rows? */
int run_is_head(const struct mdl_program *p, int32_t i);
/* Fill an operation for the backend, without pointers. Returns 0, or -ENOTSUP: the
 * backend has no such operation. */
int run_shape_op(const struct runner *run, const struct mdl_op *o, struct fdk_op *ret);
/* Set op->slice if operation i runs slice by slice. */
void run_slice(const struct runner *run, int32_t i, struct fdk_op *op);

#endif
