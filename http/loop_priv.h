/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Interface between loop.c, which runs one loop, and loops.c, which manages them. */
#ifndef FDD_HTTP_LOOP_PRIV_H
#define FDD_HTTP_LOOP_PRIV_H

#include "http/gateway.h"

/* ---- loop.c ------------------------------------------------------------------------- */

/* A loop without listeners and links; NULL: errno says why. */
struct gw *loop_new(struct shared *sh, unsigned index);
/* Add its listeners to epoll. 0 or -errno. */
int loop_listen(struct gw *g);
/* Update the links to sh->served: a new daemon gets a link, a removed one no more
 * requests. */
void loop_follow(struct gw *g);
void loop_run(struct gw *g);
/* Close its connections, so that none waits for jobs of other threads. */
void loop_leave(struct gw *g);
void loop_free(struct gw *g);

/* ---- loops.c ------------------------------------------------------------------------ */

/* Called by the first loop when a signal has come. */
void loops_signal(struct shared *sh);
/* Called by the other loops: wait until the pause ends. */
void loops_stand(struct gw *g);

#endif
