/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Relays a worker's records to the rings of clients: each is copied from the link with
 * the client's tag in place of the request id. A terminal record ends its request. The
 * link's ring never waits for a client: a record that does not fit the client's ring is
 * held (client.h).
 */
#ifndef FDD_DAEMON_GATE_RELAY_H
#define FDD_DAEMON_GATE_RELAY_H

struct reqs;
struct wlk;

/* Slots read from the up ring per loop iteration, 512 KiB. The worker refills it
 * meanwhile. */
#define RLY_SLOTS 8192u
#define RLY_LOOK  256u /* between looks at the clock; fewer with new pages */

/* Relays records of the worker of l. Returns how many. Sets l->is_news when it reported
 * READY, and l->lnk.bad when its cursors or records are impossible. */
int rly_poll(struct reqs *rs, struct wlk *l);

#endif
