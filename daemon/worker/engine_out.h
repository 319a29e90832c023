/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What steps computed, as messages to egress (queue.h) and as the scheduler's next tokens.
 * The engine thread calls.
 */
#ifndef FDD_DAEMON_WORKER_ENGINE_OUT_H
#define FDD_DAEMON_WORKER_ENGINE_OUT_H

#include "daemon/worker/engine.h"

/* The results of a collected step. Its messages have room: eng_room(). */
void eng_results(struct engine *e, const struct bat_rec *rec);
/* The ends of requests, while there is room that is not promised to the results of steps on
 * their way. Returns how many were sent. */
int eng_send_ended(struct engine *e);

#endif
