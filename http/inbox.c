/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/inbox.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

int
ibx_init(struct inbox *b)
{
    memset(b, 0, sizeof(*b));
    b->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (b->fd < 0)
        return -errno;
    (void)pthread_mutex_init(&b->lock, NULL);
    return 0;
}

void
ibx_fini(struct inbox *b)
{
    if (b->fd < 0)
        return;
    ibx_take(b);
    (void)close(b->fd);
    b->fd = -1;
    (void)pthread_mutex_destroy(&b->lock);
}

void
ibx_wake(struct inbox *b)
{
    static const uint64_t one = 1;

    /* It fails only if the counter is full: the descriptor is readable then. */
    if (write(b->fd, &one, sizeof(one)) < 0)
        return;
}

void
ibx_put(struct inbox *b, struct post *p)
{
    int was_empty;

    p->next = NULL;
    (void)pthread_mutex_lock(&b->lock);
    was_empty = b->first == NULL;
    if (was_empty)
        b->first = p;
    else
        b->last->next = p;
    b->last = p;
    (void)pthread_mutex_unlock(&b->lock);
    if (was_empty)
        ibx_wake(b);
}

void
ibx_take(struct inbox *b)
{
    struct post *p, *next;
    uint64_t n;

    if (read(b->fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
        return;
    (void)pthread_mutex_lock(&b->lock);
    p = b->first;
    b->first = b->last = NULL;
    (void)pthread_mutex_unlock(&b->lock);
    for (; p != NULL; p = next) {
        next = p->next;
        p->fn(p);
    }
}
