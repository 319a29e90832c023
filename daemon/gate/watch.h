/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptors that the loop sleeps on: an epoll set whose entries are a
 * kind and an object, and the events of the last wait that are not taken
 * yet. An object that goes away takes its events with it.
 */
#ifndef FDD_DAEMON_GATE_WATCH_H
#define FDD_DAEMON_GATE_WATCH_H

#include <stdint.h>
#include <sys/epoll.h>

#define WCH_EVENTS 64 /* of one wait */

/* What an event refers to; in the low bits of the object's address. */
enum wch_kind {
    WCH_LISTEN = 0,
    WCH_ADMIN,
    WCH_SES,
    WCH_BELL,
    WCH_CTL,
    WCH_WRK_EFD,
    WCH_WRK_PID,
    WCH_WRK_ADMIN,
    WCH_SIGNAL,
    WCH_OFL,
    WCH_NONE
};

struct watch {
    int epfd;
    int at, n; /* events not taken yet: ev[at..n-1] */
    struct epoll_event ev[WCH_EVENTS];
};

struct wch_event {
    enum wch_kind kind;
    void *obj;
    uint32_t events;
};

/* -errno. */
int wch_init(struct watch *w);
void wch_fini(struct watch *w);
/* obj: 16-byte aligned, or NULL. -errno. */
int wch_add(struct watch *w, int fd, uint32_t events, enum wch_kind kind, void *obj);
/* Other events for a descriptor that is in the set. */
void wch_change(struct watch *w, int fd, uint32_t events, enum wch_kind kind, void *obj);
/* Before fd is closed: nothing about obj any more, neither from this wait nor
 * from a later one. close() alone does not say so while a client or a process
 * forked meanwhile has the same open file. */
void wch_del(struct watch *w, int fd, const void *obj);
/* Are there events that were not taken yet? */
int wch_has_more(const struct watch *w);
/* Wait at most timeout_ms. Returns how many events there are to take. Those that
 * were not taken come again. */
int wch_wait(struct watch *w, int timeout_ms);
/* The next event of the last wait. 0: there is none. */
int wch_next(struct watch *w, struct wch_event *ret);

#endif
