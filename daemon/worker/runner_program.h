/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A program's operations without their pointers. For runner_program.c, which lays out and
 * measures what they need, and runner_bind.c, which gives them their pointers.
 */
#ifndef FDD_DAEMON_WORKER_RUNNER_PROGRAM_H
#define FDD_DAEMON_WORKER_RUNNER_PROGRAM_H

#include "daemon/worker/runner.h"

/* Does operation i come before SAMPLE in each slice? */
int run_is_head(const struct mdl_program *p, int32_t i);
/* -ENOTSUP: no backend has such an operation. */
int run_shape_op(const struct runner *run, const struct mdl_op *o, struct fdk_op *ret);
/* Operation i takes a slice of its rows, where it has slices. */
void run_slice(const struct runner *run, int32_t i, struct fdk_op *op);

#endif
