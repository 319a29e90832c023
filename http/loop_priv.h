/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Between loop.c, which runs one loop, and loops.c, which has them all. */
#ifndef FDD_HTTP_LOOP_PRIV_H
#define FDD_HTTP_LOOP_PRIV_H

#include "http/gateway.h"

/* ---- loop.c ------------------------------------------------------------------------- */

/* A loop without listeners and links; NULL: errno says why not. */
struct gw *loop_new(struct shared *sh, unsigned index);
/* Watch its listeners. 0 or -errno. */
int loop_listen(struct gw *g);
/* Links as sh->served says: what is new is looked for, what is not there takes no more. */
void loop_follow(struct gw *g);
void loop_run(struct gw *g);
/* Close its connections: nothing waits for what other threads do any more. */
void loop_leave(struct gw *g);
void loop_free(struct gw *g);

/* ---- loops.c ------------------------------------------------------------------------ */

/* The first loop: a signal has come. */
void loops_signal(struct shared *sh);
/* Wait until the others go on. */
void loops_stand(struct gw *g);

#endif
