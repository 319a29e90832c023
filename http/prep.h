/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that read, check and render long bodies, so that no loop stands still for one.
 * A job is done in turn and comes back to its loop. What a job holds besides its result it
 * gives back on the prep thread: unmapping 32 MiB takes milliseconds.
 */
#ifndef FDD_HTTP_PREP_H
#define FDD_HTTP_PREP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "http/inbox.h"

#define PREP_BYTES 32768 /* of a body; what is shorter its loop reads */
#define PREP_MAX   16    /* threads */

struct prep_job {
    struct post post; /* must be first; fn: done, in the loop */
    struct prep_job *next;
    struct inbox *back;
    void (*work)(struct prep_job *j); /* on a prep thread */
    atomic_int is_cancelled;          /* no one waits: work() may leave out what it can */
};

struct prep {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct prep_job *first, *last;
    pthread_t thread[PREP_MAX];
    unsigned n_thread;
    int end;
};

/* 0 or -errno. */
int prep_init(struct prep *p, unsigned n_thread);
/* Ends the threads behind the jobs that they have; the others come back undone, marked as
 * cancelled. */
void prep_fini(struct prep *p);
void prep_put(struct prep *p, struct prep_job *j);

#endif
