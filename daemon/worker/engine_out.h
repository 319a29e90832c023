/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Delivers the results of steps: as messages to egress (queue.h) and as the scheduler's
 * next tokens. Engine thread.
 */
#ifndef FDD_DAEMON_WORKER_ENGINE_OUT_H
#define FDD_DAEMON_WORKER_ENGINE_OUT_H

#include "daemon/worker/engine.h"

/* Delivers a collected step's results. q_out has room for the messages: eng_room(). */
void eng_results(struct engine *e, const struct bat_rec *rec);
/* Sends the ends of requests while q_out has room beyond that reserved for launched
 * steps. Returns how many were sent. */
int eng_send_ended(struct engine *e);

#endif
