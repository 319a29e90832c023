/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptors that the loop sleeps on: an epoll set whose entries are a kind and an
 * object, and the events of the last wait that are not taken yet. wch_del() also drops
 * the events of an object that is freed.
 */
#ifndef FDD_DAEMON_GATE_WATCH_H
#define FDD_DAEMON_GATE_WATCH_H

#include <stdint.h>
#include <sys/epoll.h>

#define WCH_EVENTS 64 /* most events of one wait */

/* Kind of an event; stored in the low bits of the object's address. */
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

/* 0 or -errno. */
int wch_init(struct watch *w);
void wch_fini(struct watch *w);
/* obj: 16-byte aligned, or NULL. Returns 0 or -errno. */
int wch_add(struct watch *w, int fd, uint32_t events, enum wch_kind kind, void *obj);
/* Changes the events of a descriptor that is in the set. */
void wch_change(struct watch *w, int fd, uint32_t events, enum wch_kind kind, void *obj);
/* Call before fd is closed: no event for obj follows, neither from this wait nor from a
 * later one. close() is not enough while a client or a forked process has the same open
 * file. obj is the one that wch_add() got. With NULL it would also drop the events of the
 * listening sockets, which come only once. */
void wch_del(struct watch *w, int fd, const void *obj);
/* Are there events that were not taken yet? */
int wch_has_more(const struct watch *w);
/* Waits at most timeout_ms. Returns the number of events. Events that were not taken come
 * again. */
int wch_wait(struct watch *w, int timeout_ms);
/* Takes the next event of the last wait. Returns 0 if there is none. */
int wch_next(struct watch *w, struct wch_event *ret);

#endif
