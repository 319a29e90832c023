/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The wiring: three stages on three threads, and the queues between them.
 *
 *   thread    stage     reads                      writes
 *   ingress   ing_poll  down ring, freed           add, open
 *   engine    eng_poll  add, stop                  token
 *   egress    egr_poll  open, token                up ring, stop, freed
 *
 * Threads only call polls; a test calls pip_poll() with a clock of its own
 * and gets the same pipeline in one thread.
 */
#ifndef FDD_DAEMON_WORKER_PIPELINE_H
#define FDD_DAEMON_WORKER_PIPELINE_H

#include <pthread.h>
#include <stdint.h>

#include "daemon/common/link.h"
#include "daemon/worker/egress.h"
#include "daemon/worker/engine.h"
#include "daemon/worker/ingress.h"
#include "daemon/worker/queue.h"

struct pip_cfg {
    struct lnk *lnk;
    struct runner *run;
    const struct tok *tok;
    const struct lnk_ready *ready;
    struct cnt_worker *cnt;
    struct cnt_hist *hist;        /* [CNT_H__N], or NULL */
    struct trc *trc;              /* or NULL */
    struct eng_cfg eng;           /* all but the queues */
    struct ing_cfg ing;           /* all but link, queues, tok and cnt */
    void (*wait_room)(void *arg); /* tests; else NULL */
    void *arg;
    uint64_t spin_ns;
};

struct pipeline {
    uint32_t magic;
#define PIP_MAGIC 0x50495045u
    struct pip_cfg cfg;
    struct lnk_cursor *bell_eng, *bell_egr; /* in the link's segment */
    struct que q_add, q_open, q_token, q_stop, q_freed;
    struct ingress *ing;
    struct engine *eng;
    struct egress *egr;
    pthread_t th_ing, th_eng, th_egr;
    int n_thread;
    uint32_t stop;
    pid_t parent;
};

/* -ENOMEM, -ENOTSUP with one line in err. */
int pip_new(const struct pip_cfg *cfg, struct pipeline **ret, char *err, size_t err_bytes);
/* Threads must be joined. */
struct pipeline *pip_free(struct pipeline *p);
/* Send LNK_T_READY; before pip_start() only. */
void pip_ready(struct pipeline *p);
/* -errno. */
int pip_start(struct pipeline *p);
/* LNK_T_RELOAD came, and ing_set_limits() is due: 1; the threads end: 0. */
int pip_wait_reload(struct pipeline *p);
/* Do the threads end? */
int pip_stopped(const struct pipeline *p);
/* Ends when LNK_T_DRAIN came and every request has ended. */
void pip_join(struct pipeline *p);
/* All stages once, in one thread. Returns the work done. */
int pip_poll(struct pipeline *p, uint64_t now_ns);
/* Let the engine look at what it was asked (eng_snap_ask). */
void pip_ring_engine(struct pipeline *p);

#endif
