/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters and traces of the engine's steps. Engine thread.
 */
#ifndef FDD_DAEMON_WORKER_ENGINE_COUNT_H
#define FDD_DAEMON_WORKER_ENGINE_COUNT_H

#include "daemon/worker/engine.h"

/* How long the device was idle before this step although there was work. */
uint64_t eng_gap(const struct engine *e, const struct bat_rec *rec, uint64_t begin_ns);
/* A step was launched: writes its trace with the values known so far. */
void eng_trace_launch(struct engine *e, struct bat_rec *rec, int32_t n_copy, int graph);
/* A step is collected: updates counters and completes its trace. */
void eng_count(struct engine *e, struct bat_rec *rec, uint64_t begin_ns, uint64_t end_ns);
/* Sets the gauges: requests, blocks, launched steps. */
void eng_gauges(struct engine *e);
/* Publishes the ITL target, and logs an automatic one once step times are known. */
void eng_tell_target(struct engine *e);

#endif
