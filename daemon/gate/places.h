/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of sessions is full: which one leaves for a new one? Idle
 * sessions cost only their place, so no timeout ends them while there is
 * room; under pressure places are shared by user:
 *
 *   - an idle session (no open request) of a user who would still have no
 *     fewer than the newcomer's user, or who has more and has not used this
 *     one for PLC_IDLE_S;
 *   - if all are busy: one of a user with PLC_CROWD sessions more.
 *
 * Of those, idle ones first, then of the user with most sessions, then with
 * fewest open requests, then the one longest without a request. None: the
 * newcomer is refused. So no user shuts others out by opening sessions, and
 * no two users take places from each other in turn.
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
    uint32_t sessions; /* of its user */
    uint32_t n_open;   /* its open requests */
    uint64_t t_used;   /* its last request; if none, when it came */
};

struct plc {
    uint32_t mine; /* sessions of the newcomer's user, without it */
    uint64_t now;
    int at; /* the one to leave; -1: none */
    struct plc_ses best;
};

void plc_begin(struct plc *p, uint32_t mine, uint64_t now_ns);
/* Consider the session at this place. */
void plc_look(struct plc *p, int at, const struct plc_ses *s);

#endif
