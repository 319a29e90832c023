/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The loop of fdd-http: one thread, one epoll. */
#ifndef FDD_HTTP_LOOP_H
#define FDD_HTTP_LOOP_H

#include "http/gateway.h"

/* Open what the parameters say; 0 or an exit code, said in the log. */
int loop_open(struct gw *g);
/* Serve until SIGTERM or SIGINT, then until running requests have ended. */
void loop_run(struct gw *g);
void loop_close(struct gw *g);

#endif
