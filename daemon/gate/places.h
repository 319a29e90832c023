/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses which session is closed for a new one when the table of sessions is full. Idle
 * sessions cost only their place, so no timeout ends them while there is room. When it is
 * full, places are shared by user; a session may be closed if it is
 *
 *   - an idle one (no open request) of a user who would still have no
 *     fewer than the newcomer's user, or who has more and has not used this
 *     one for PLC_IDLE_S;
 *   - a busy one of a user with PLC_CROWD sessions more.
 *
 * Among these, idle ones come first, then those of the user with most sessions, then
 * those with fewest open requests, then the one longest without a request. If there is
 * none, the newcomer is refused. So no user shuts others out by opening sessions, and no
 * two users take places from each other in turn.
 *
 * Root, the daemon's own user and trusted users have PLC_KEPT places beyond
 * ipc.max_clients.
 */
#ifndef FDD_DAEMON_GATE_PLACES_H
#define FDD_DAEMON_GATE_PLACES_H

#include <stdint.h>

#include "daemon/common/param.h"

#define PLC_KEPT   PAR_KEPT_CLIENTS
#define PLC_IDLE_S 60u
#define PLC_CROWD  8u

struct plc_ses {
    uint32_t sessions; /* sessions of its user */
    uint32_t n_open;   /* open requests of this session */
    uint64_t t_used;   /* time of its last request; if none, of its connect */
};

struct plc {
    uint32_t mine; /* sessions of the newcomer's user, not counting the new one */
    uint64_t now;
    int at; /* place of the session to close; -1: none */
    struct plc_ses best;
};

void plc_begin(struct plc *p, uint32_t mine, uint64_t now_ns);
/* Considers the session at this place. */
void plc_look(struct plc *p, int at, const struct plc_ses *s);

#endif
