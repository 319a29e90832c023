/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipeline: four stages on four threads, and the queues between them.
 *
 *   thread    stage     reads                      writes
 *   ingress   ing_poll  down ring, freed, ids      add, open, text
 *   tokenize  enc_poll  text                       ids
 *   engine    eng_poll  add, stop                  token
 *   egress    egr_poll  open, token                up ring, stop, freed
 *
 * Threads only call the stages' poll functions. A test calls pip_poll() with its
 * own clock to run the same pipeline in one thread.
 */
#ifndef FDD_DAEMON_WORKER_PIPELINE_H
#define FDD_DAEMON_WORKER_PIPELINE_H

#include <pthread.h>
#include <stdint.h>

#include "daemon/common/link.h"
#include "daemon/worker/egress.h"
#include "daemon/worker/encode.h"
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
    struct eng_cfg eng;           /* the caller sets all but the queues */
    struct ing_cfg ing;           /* the caller sets all but link, queues, tok and cnt */
    void (*wait_room)(void *arg); /* tests: egr_cfg.wait_room; else NULL */
    void *arg;
    uint64_t spin_ns;
};

struct pipeline {
    uint32_t magic;
#define PIP_MAGIC 0x50495045u
    struct pip_cfg cfg;
    struct lnk_cursor *bell_eng, *bell_egr; /* in the link's segment */
    struct lnk_cursor bell_enc;
    struct que q_add, q_open, q_token, q_stop, q_freed, q_text, q_ids;
    struct ingress *ing;
    struct encode enc;
    struct engine *eng;
    struct egress *egr;
    pthread_t th_ing, th_enc, th_eng, th_egr;
    int n_thread;
    uint32_t stop;
    pid_t parent;
};

/* Returns 0, or -ENOMEM, -ENOTSUP with one line in err. */
int pip_new(const struct pip_cfg *cfg, struct pipeline **ret, char *err, size_t err_bytes);
/* All threads must have been joined. */
struct pipeline *pip_free(struct pipeline *p);
/* Send LNK_T_READY; before pip_start() only. */
void pip_ready(struct pipeline *p);
/* Start the threads. Returns 0 or -errno; then none runs. */
int pip_start(struct pipeline *p);
/* Wait for LNK_T_RELOAD. Returns 1 when it has come: call ing_set_limits(); 0 when the
 * threads are ending. */
int pip_wait_reload(struct pipeline *p);
/* Are the threads ending? */
int pip_stopped(const struct pipeline *p);
/* Wait for the threads, which end after LNK_T_DRAIN when every request has ended. */
void pip_join(struct pipeline *p);
/* Poll each stage once, in the calling thread. Returns whether any had work. */
int pip_poll(struct pipeline *p, uint64_t now_ns);
/* Wake the engine, so that it sees a request for a snapshot (eng_snap_ask) or for
 * graphs. */
void pip_ring_engine(struct pipeline *p);

#endif
