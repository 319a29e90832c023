/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A bounded share of the loop's time. Counts bound what one user or one socket makes
 * the loop do in an iteration; a share bounds it over time, so that a program that
 * never stops asking cannot have a processor of its own: others would wait for the gate,
 * and on a small machine for the worker's threads too.
 *
 * Time spent is a debt. It is repaid at 1/ratio of the time that passes. Who owes
 * more than SHR_BURST_NS waits until it owes that much; so short bursts run at full speed.
 * Called by the thread of the loop.
 */
#ifndef FDD_DAEMON_GATE_SHARE_H
#define FDD_DAEMON_GATE_SHARE_H

#include <stdint.h>

#define SHR_BURST_NS 4000000u

struct share {
    uint64_t debt_ns; /* at t */
    uint64_t t;       /* repaid until then */
};

/* ns of the loop's time were spent. */
static inline void
shr_spend(struct share *s, uint64_t ns, uint32_t ratio, uint64_t now_ns)
{
    uint64_t paid = now_ns > s->t ? (now_ns - s->t) / ratio : 0;

    if (paid >= s->debt_ns) {
        s->debt_ns = 0;
        s->t = now_ns;
    } else {
        s->debt_ns -= paid;
        s->t += paid * ratio;
    }
    s->debt_ns += ns;
}

/* Nothing before this time; 0: whenever. */
static inline uint64_t
shr_until(const struct share *s, uint32_t ratio)
{
    return s->debt_ns <= SHR_BURST_NS ? 0 : s->t + (s->debt_ns - SHR_BURST_NS) * ratio;
}

#endif
