/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Pauses clients that make the loop wait. A client that punches holes into its own c2d
 * blocks its reader in a page fault for as long as the punch takes. A seal prevents that
 * (region.h), but kernels before 5.1 have none, and memory may be slow for other reasons.
 * So the harm that one user can do is bounded:
 *
 * After a wait outside epoll_wait (loopstat.h) the loop watches for RST_WATCH_NS. During
 * that time, before it reads the ring of a session, it only touches all memory that it
 * will read, and checks whether it waited meanwhile. If so, the rings of all sessions of
 * that user are paused: for 100 ms at first, four times as long each time, at most 10 s.
 * A user whose memory is slow for another reason (swapped out) is paused too, and loses
 * little.
 *
 * Called by the loop's thread.
 */
#ifndef FDD_DAEMON_GATE_REST_H
#define FDD_DAEMON_GATE_REST_H

#define RST_WATCH_NS 1000000000u

struct client;
struct sessions;

/* The loop has waited: starts looking for the client that caused it. */
void rst_watch(struct sessions *t);
/* Replaces ses_poll() while t->t_watch is set. Returns the work done. */
int rst_poll(struct sessions *t);
/* A session has just opened: it is paused if its user is. */
void rst_open(struct sessions *t, struct client *c);
/* Ends pauses that are over. */
void rst_tick(struct sessions *t);

#endif
