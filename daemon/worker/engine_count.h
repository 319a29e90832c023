/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What is counted and traced of the engine's steps. The engine thread calls.
 */
#ifndef FDD_DAEMON_WORKER_ENGINE_COUNT_H
#define FDD_DAEMON_WORKER_ENGINE_COUNT_H

#include "daemon/worker/engine.h"

/* The time the device had nothing to do before a step although there was work. */
uint64_t eng_gap(const struct engine *e, const struct bat_rec *rec, uint64_t begin_ns);
/* A step is with the device: what its trace knows by now. */
void eng_trace_launch(struct engine *e, struct bat_rec *rec, int32_t n_copy, int graph);
/* A step is over. */
void eng_count(struct engine *e, struct bat_rec *rec, uint64_t begin_ns, uint64_t end_ns);
/* What is there now: requests, blocks, steps on their way. */
void eng_gauges(struct engine *e);
/* What the target for the time between tokens is, as soon as and whenever step times
 * are known. */
void eng_tell_target(struct engine *e);

#endif
