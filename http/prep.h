/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that read, check and render long bodies, so that these do not block a loop.
 * Jobs are done in order and come back to their loops. A job frees all memory but its
 * result on the prep thread: unmapping 32 MiB takes milliseconds.
 */
#ifndef FDD_HTTP_PREP_H
#define FDD_HTTP_PREP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "http/inbox.h"

#define PREP_BYTES 32768 /* a body of fewer bytes is read by its loop */
#define PREP_MAX   16    /* threads */

struct prep_job {
    struct post post; /* must be first; its fn is called in the loop when work() is done */
    struct prep_job *next;
    struct inbox *back;               /* of the loop to which it returns */
    void (*work)(struct prep_job *j); /* on a prep thread */
    atomic_int is_cancelled;          /* the result is not needed: work() may do less */
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
/* Ends the threads after their current jobs; queued jobs come back undone, marked as
 * cancelled. */
void prep_fini(struct prep *p);
void prep_put(struct prep *p, struct prep_job *j);

#endif
