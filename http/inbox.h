/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What other threads hand to a loop: messages in the order in which they were put. The
 * loop sleeps on fd. A message is embedded in what it is about; it must not be used by the
 * thread that put it any more.
 */
#ifndef FDD_HTTP_INBOX_H
#define FDD_HTTP_INBOX_H

#include <pthread.h>

struct post {
    struct post *next;
    void (*fn)(struct post *p); /* in the loop */
};

struct inbox {
    pthread_mutex_t lock;
    struct post *first, *last;
    int fd;
};

/* 0 or -errno. */
int ibx_init(struct inbox *b);
/* What is in it still is handed out first: fn() of each. */
void ibx_fini(struct inbox *b);
/* Any thread. */
void ibx_put(struct inbox *b, struct post *p);
/* Any thread: the loop begins an iteration. */
void ibx_wake(struct inbox *b);
/* The loop: fn() of each. */
void ibx_take(struct inbox *b);

#endif
