/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The loops of fdd-http: each is a thread with an epoll. */
#ifndef FDD_HTTP_LOOP_H
#define FDD_HTTP_LOOP_H

#include "http/gateway.h"

/* Open listeners, keys and links. Returns 0, or an exit code after logging why. */
int loops_open(struct shared *sh);
/* Serve until SIGTERM or SIGINT, then until running requests have ended. */
void loops_run(struct shared *sh);
void loops_close(struct shared *sh);

#endif
