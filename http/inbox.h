/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of other threads to a loop, handed out in the order in which they were put.
 * The loop sleeps on fd. A message is embedded in another structure, which the thread
 * that put the message must not use any more.
 */
#ifndef FDD_HTTP_INBOX_H
#define FDD_HTTP_INBOX_H

#include <pthread.h>

struct post {
    struct post *next;
    void (*fn)(struct post *p); /* called in the loop */
};

struct inbox {
    pthread_mutex_t lock;
    struct post *first, *last;
    int fd;
};

/* 0 or -errno. */
int ibx_init(struct inbox *b);
/* Calls fn() of each remaining message first. */
void ibx_fini(struct inbox *b);
/* Any thread. */
void ibx_put(struct inbox *b, struct post *p);
/* Any thread: make the loop begin an iteration. */
void ibx_wake(struct inbox *b);
/* The loop: call fn() of each message. */
void ibx_take(struct inbox *b);

#endif
