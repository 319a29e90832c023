/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepting connections without spinning. A listening socket is watched
 * edge-triggered: when no descriptor or memory is left, accept() fails, the
 * connections wait in the backlog, and a timer tries again; a level-triggered
 * one would be reported in each loop iteration. A caller that stops before
 * -EAGAIN calls lsn_later(), for no event tells of what is still in the
 * backlog.
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
#define LSN_RATIO    20u /* of the loop's time */
#define LSN_REFUSED_NS \
    100000u /* what one costs that is refused, with the thread that closes it */

struct lsn {
    uint64_t t_retry; /* try again then; 0: an event tells */
    uint8_t is_short; /* no descriptor or memory at the last try: logged once */
    struct share time;
};

/* Accept one connection of fd: its descriptor, with who it is. -EAGAIN: none is
 * there, or none can be taken now. what: of the log line. */
int lsn_accept(struct lsn *l, int fd, const char *what, struct ofl *ofl, uint64_t now_ns,
    struct ucred *ret);
/* The loop worked ns for a connection. With too many of them the next ones wait in the
 * backlog, those of any user. */
void lsn_spend(struct lsn *l, uint64_t ns, int is_refused, uint64_t now_ns);
/* There may be more; lsn_due() says so at the next tick. */
void lsn_later(struct lsn *l, uint64_t now_ns);
/* Is it time to accept without an event? */
int lsn_is_late(const struct lsn *l, uint64_t now_ns);
/* The same; then it is no longer. */
int lsn_due(struct lsn *l, uint64_t now_ns);

#endif
