/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The opening of a session, from its hello to its welcome: both regions and the doorbell
 * are made off the loop (memfile.h); then the loop maps them and sends their descriptors.
 */
#ifndef FDD_DAEMON_GATE_OPENING_H
#define FDD_DAEMON_GATE_OPENING_H

struct fdp_hello;
struct ses;
struct sessions;

/* Begins with the geometry that h hints at. Returns 0 with s->opening set, or -errno. */
int opn_begin(struct sessions *t, struct ses *s, const struct fdp_hello *h);
/* Maps the regions and sends the welcome. Returns 0; -EINPROGRESS: they are not made yet;
 * or -errno: the session cannot be opened (-EPIPE, -ECONNRESET: its client has
 * disconnected). */
int opn_end(struct sessions *t, struct ses *s);
/* The session ends before: its descriptors are closed once they are made. */
void opn_drop(struct sessions *t, struct ses *s);
/* Closes descriptors made for sessions that have ended. */
void opn_sweep(struct sessions *t);

#endif
