/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A bounded share of the loop's time. Counts bound the work of one user or one socket in
 * an iteration; a share bounds it over time, so that a program that never stops sending
 * cannot take a whole processor: others would wait for the gate, and on a small machine
 * for the worker's threads too.
 *
 * Time spent is a debt, repaid at 1/ratio of the time that passes. A user or socket that
 * owes more than SHR_BURST_NS waits until it owes that much, so short bursts run at full
 * speed. From then on, until it has used no time for SHR_FRESH_NS, it also waits after
 * each piece of work for as long as repaying that piece takes. Otherwise the loop, which
 * sleeps for at least a millisecond, would do all the repaid work at once: some 60 us in
 * which a client that it woke on the same processor cannot run.
 * Called by the loop's thread.
 */
#ifndef FDD_DAEMON_GATE_SHARE_H
#define FDD_DAEMON_GATE_SHARE_H

#include <stdint.h>

#define SHR_BURST_NS 4000000u
#define SHR_PIECE_NS 100000u /* a longer piece counts as this much in t_even */
#define SHR_FRESH_NS 100000000u

struct share {
    uint64_t debt_ns; /* time owed, as of t */
    uint64_t t;       /* up to this time the debt is repaid */
    uint64_t t_work;  /* time of the last piece of work */
    uint64_t t_even;  /* no further piece before this time; 0: at any time */
};

/* Charges ns of the loop's time. */
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
    if (s->debt_ns == 0 && now_ns - s->t_work >= SHR_FRESH_NS)
        s->t_even = 0;
    s->debt_ns += ns;
    s->t_work = now_ns;
    if (s->debt_ns > SHR_BURST_NS || s->t_even != 0)
        s->t_even = now_ns + (ns < SHR_PIECE_NS ? ns : SHR_PIECE_NS) * ratio;
}

/* Returns the time before which no work may be done; 0: it may be done now. */
static inline uint64_t
shr_until(const struct share *s, uint32_t ratio)
{
    uint64_t t;

    if (s->debt_ns <= SHR_BURST_NS)
        return s->t_even;
    t = s->t + (s->debt_ns - SHR_BURST_NS) * ratio;
    return t > s->t_even ? t : s->t_even;
}

#endif
