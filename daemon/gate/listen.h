/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepting connections without spinning. A listening socket is watched edge-triggered:
 * when no descriptor or memory is left, accept() fails, the connections wait in the
 * backlog, and a timer tries again; a level-triggered one would be reported in each loop
 * iteration. A caller that stops before -EAGAIN calls lsn_later(), since no event reports
 * the connections that are still in the backlog.
 */
#ifndef FDD_DAEMON_GATE_LISTEN_H
#define FDD_DAEMON_GATE_LISTEN_H

#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "daemon/gate/share.h"

struct ofl;

#define LSN_EVENTS   (EPOLLIN | EPOLLET)
#define LSN_RETRY_MS 100u
#define LSN_RATIO    20u /* a socket gets 1/20 of the loop's time */
#define LSN_REFUSED_NS \
    100000u /* cost of a refused connection, including the thread that closes it */

struct lsn {
    uint64_t t_retry; /* when to try again; 0: when an event comes */
    uint8_t is_short; /* no descriptor or memory at the last try; logged once */
    struct share time;
};

/* Accepts one connection of fd: returns its descriptor, with the peer's identity in *ret.
 * -EAGAIN: there is none, or none can be taken now. what: "client" or the like, for the
 * log. */
int lsn_accept(struct lsn *l, int fd, const char *what, struct ofl *ofl, uint64_t now_ns,
    struct ucred *ret);
/* Charges ns of the loop's time for a connection. When the share is used up, the next
 * connections of all users wait in the backlog. */
void lsn_spend(struct lsn *l, uint64_t ns, int is_refused, uint64_t now_ns);
/* More connections may be waiting: lsn_due() returns 1 at the next tick. */
void lsn_later(struct lsn *l, uint64_t now_ns);
/* Is it time to accept without an event? */
int lsn_is_late(const struct lsn *l, uint64_t now_ns);
/* As lsn_is_late(), and resets it. */
int lsn_due(struct lsn *l, uint64_t now_ns);

#endif
