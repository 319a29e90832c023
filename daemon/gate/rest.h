/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that make the loop wait. One that punches holes into its own c2d holds up
 * its reader, in a page fault, for as long as the punch takes. A seal prevents that
 * (region.h); a kernel before 5.1 has none, and memory may be slow for other reasons. So
 * what one user can do is bounded:
 *
 * After a wait outside epoll_wait (loopstat.h) the loop watches for RST_WATCH_NS.
 * Before it reads the ring of a session it then touches all that it will read, and
 * nothing else, and sees whether it waited meanwhile. If so, the rings of all sessions
 * of that user rest: 100 ms at first, four times as long each time, 10 s at most. A user
 * whose memory is slow for another reason (swapped out) rests too, and loses little.
 *
 * Called by the thread of the loop.
 */
#ifndef FDD_DAEMON_GATE_REST_H
#define FDD_DAEMON_GATE_REST_H

#define RST_WATCH_NS 1000000000u

struct client;
struct sessions;

/* The loop has waited: find out for whom. */
void rst_watch(struct sessions *t);
/* ses_poll() while t->t_watch is set. Returns the work done. */
int rst_poll(struct sessions *t);
/* A session that has just opened. */
void rst_open(struct sessions *t, struct client *c);
/* Rings that have rested long enough are read again. */
void rst_tick(struct sessions *t);

#endif
