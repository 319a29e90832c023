/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/watch.h"

#include <errno.h>
#include <unistd.h>

#include "daemon/common/obj.h"

#define WCH_KIND_BITS 15u

int
wch_init(struct watch *w)
{
    w->at = w->n = 0;
    w->epfd = epoll_create1(EPOLL_CLOEXEC);
    return w->epfd >= 0 ? 0 : -errno;
}

void
wch_fini(struct watch *w)
{
    if (w->epfd >= 0)
        (void)close(w->epfd);
    w->epfd = -1;
}

static uint64_t
wch_data(enum wch_kind kind, const void *obj)
{
    ASSERT(((uintptr_t)obj & WCH_KIND_BITS) == 0);
    return (uint64_t)(uintptr_t)obj | (uint64_t)kind;
}

int
wch_add(struct watch *w, int fd, uint32_t events, enum wch_kind kind, void *obj)
{
    struct epoll_event e = { .events = events };

    e.data.u64 = wch_data(kind, obj);
    return epoll_ctl(w->epfd, EPOLL_CTL_ADD, fd, &e) == 0 ? 0 : -errno;
}

void
wch_change(struct watch *w, int fd, uint32_t events, enum wch_kind kind, void *obj)
{
    struct epoll_event e = { .events = events };

    e.data.u64 = wch_data(kind, obj);
    (void)epoll_ctl(w->epfd, EPOLL_CTL_MOD, fd, &e);
}

void
wch_del(struct watch *w, int fd, const void *obj)
{
    (void)epoll_ctl(w->epfd, EPOLL_CTL_DEL, fd, NULL);
    for (int i = w->at; i < w->n; i++) {
        if ((w->ev[i].data.u64 & ~(uint64_t)WCH_KIND_BITS) == (uint64_t)(uintptr_t)obj)
            w->ev[i].data.u64 = WCH_NONE;
    }
}

int
wch_has_more(const struct watch *w)
{
    return w->at < w->n;
}

int
wch_wait(struct watch *w, int timeout_ms)
{
    int n = epoll_wait(w->epfd, w->ev, WCH_EVENTS, timeout_ms);

    w->at = 0;
    w->n = n > 0 ? n : 0;
    return w->n;
}

int
wch_next(struct watch *w, struct wch_event *ret)
{
    const struct epoll_event *e;

    if (w->at >= w->n)
        return 0;
    e = &w->ev[w->at++];
    ret->kind = (enum wch_kind)(e->data.u64 & WCH_KIND_BITS);
    ret->obj = (void *)(uintptr_t)(e->data.u64 & ~(uint64_t)WCH_KIND_BITS);
    ret->events = e->events;
    return 1;
}
