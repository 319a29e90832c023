/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the worker takes work off the gate, in tokens per second of the
 * requests' cost: what was output, prompts when they are computed, and what
 * a request that ends early does not need any more. Only time in which work
 * waited counts: what is done for two clients says nothing about what can be
 * done for two hundred.
 *
 * Eight slots of half a second, so that the figure follows the load; slots
 * older than SVC_OLD_NS count no more, and then nothing is known.
 */
#ifndef FDD_DAEMON_GATE_SVCRATE_H
#define FDD_DAEMON_GATE_SVCRATE_H

#include <stdint.h>

#define SVC_SLOTS   8u
#define SVC_SLOT_NS 500000000ull
#define SVC_OLD_NS  10000000000ull
#define SVC_MIN_NS  250000000ull /* less time than this is no measurement */

struct svcrate {
    struct svcrate_slot {
        uint64_t tokens, ns, t_end;
    } slot[SVC_SLOTS];
    uint32_t at;      /* the slot that is being filled */
    uint64_t pending; /* tokens since the last tick */
    uint64_t t_tick;  /* 0: none yet */
    uint64_t t_since; /* since when work waits; 0: none does */
};

/* Tokens were done. */
void svc_add(struct svcrate *d, uint64_t tokens);
/* Time goes on; waiting: did work wait just now? */
void svc_tick(struct svcrate *d, int waiting, uint64_t now_ns);
/* The worker is new: what was measured of the old one is not its. */
void svc_reset(struct svcrate *d);
/* Tokens per second; 0: not known. */
double svc_rate(const struct svcrate *d, uint64_t now_ns);
/* ms that these tokens take, at least 1, at most limit_ms. As long as no rate
 * is known: as long as work has waited so far. */
uint32_t
svc_ms(const struct svcrate *d, uint64_t tokens, uint64_t now_ns, uint32_t limit_ms);

#endif
