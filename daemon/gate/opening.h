/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * From the hello of a session to its welcome: both regions and the doorbell are made off
 * the loop (memfile.h), which then maps them and sends their descriptors.
 */
#ifndef FDD_DAEMON_GATE_OPENING_H
#define FDD_DAEMON_GATE_OPENING_H

struct fdp_hello;
struct ses;
struct sessions;

/* Begin with the geometry that h wants. 0: s->opening is set; or -errno. */
int opn_begin(struct sessions *t, struct ses *s, const struct fdp_hello *h);
/* Map and send the welcome. 0, -EINPROGRESS: it is not made yet, or -errno: the session
 * cannot be opened (-EPIPE, -ECONNRESET: its client has left). */
int opn_end(struct sessions *t, struct ses *s);
/* The session ends first: what is being made is closed when it is made. */
void opn_drop(struct sessions *t, struct ses *s);
/* Close what was made for sessions that have ended. */
void opn_sweep(struct sessions *t);

#endif
