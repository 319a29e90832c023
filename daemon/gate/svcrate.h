/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The service rate: how fast the workers serve queued work, in tokens of the requests'
 * cost per second. Counted are output tokens, prompts once they are accepted, and the
 * cost that a request which ends early does not need. Only time in which requests were
 * queued counts: the rate at low load says nothing about the capacity.
 *
 * Eight slots of half a second, so that the rate follows the load. Slots older than
 * SVC_OLD_NS do not count; when all are older, the rate is not known.
 */
#ifndef FDD_DAEMON_GATE_SVCRATE_H
#define FDD_DAEMON_GATE_SVCRATE_H

#include <stdint.h>

#define SVC_SLOTS   8u
#define SVC_SLOT_NS 500000000ull
#define SVC_OLD_NS  10000000000ull
#define SVC_MIN_NS  250000000ull /* with less time the rate is not known */

struct svcrate {
    struct svcrate_slot {
        uint64_t tokens, ns, t_end;
    } slot[SVC_SLOTS];
    uint32_t at;      /* slot that is being filled */
    uint64_t pending; /* tokens since the last tick */
    uint64_t t_tick;  /* 0: none yet */
    uint64_t t_since; /* since when requests have been queued; 0: none are */
};

/* Counts served tokens. */
void svc_add(struct svcrate *d, uint64_t tokens);
/* Advances the time; waiting: are requests queued now? */
void svc_tick(struct svcrate *d, int waiting, uint64_t now_ns);
/* The worker is new: forgets the old one's rate. */
void svc_reset(struct svcrate *d);
/* The rate in tokens per second; 0: not known. */
double svc_rate(const struct svcrate *d, uint64_t now_ns);
/* ms in which these tokens are served, 1..limit_ms. While no rate is known: the time for
 * which requests have been queued so far. */
uint32_t
svc_ms(const struct svcrate *d, uint64_t tokens, uint64_t now_ns, uint32_t limit_ms);

#endif
