/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Is a ready worker hung? A judge without system calls and without a clock of
 * its own: the caller says what the link segment holds and what time it is.
 *
 * A worker's engine counts a beat in each poll, and at least every 100 ms when
 * it has nothing to do. It counts none while it waits for a step. So a worker
 * is hung that counted no beat for longer than
 *
 *     max(daemon.worker_hang_ms, HNG_FACTOR x the expected time of its step)
 *
 * and for longer than daemon.worker_start_timeout_ms while nothing is known of
 * its steps yet. Only a worker that serves is judged: loading, recording graphs
 * and profiling take as long as they take. Times without a look do not
 * count: then the gate itself, or the machine, stood still.
 */
#ifndef FDD_DAEMON_GATE_HANG_H
#define FDD_DAEMON_GATE_HANG_H

#include <stddef.h>
#include <stdint.h>

#define HNG_FACTOR 10u
#define HNG_GAP_NS 2000000000ull /* no look for that long: begin again */
#define HNG_WARN_NS 5000000000ull /* without beat, when none is killed for it */

struct lnk_beat;

/* One worker's. Zeroed by hng_init(). */
struct hng {
    uint64_t beats, t_beat;  /* the last beat, and when it was seen */
    uint64_t t_look;
    int warned;
};

/* What the parameters say. */
struct hng_limits {
    uint64_t hang_ns;        /* daemon.worker_hang_ms; 0: none is killed */
    uint64_t first_ns;       /* daemon.worker_start_timeout_ms */
};

enum hng_verdict {
    HNG_FINE,
    HNG_WARN,                /* half of the time is over; said once */
    HNG_MOVES,               /* it was warned of, and beats again */
    HNG_KILL
};

void hng_init(struct hng *h, uint64_t now_ns);
/* why gets the reason of HNG_WARN and HNG_KILL, one line. After HNG_KILL call
 * hng_excuse() if it is not killed, for example since a debugger holds it. */
enum hng_verdict hng_look(struct hng *h, const struct lnk_beat *b,
    const struct hng_limits *l, uint64_t now_ns, char *why, size_t why_bytes);
/* The time without a beat begins again. */
void hng_excuse(struct hng *h, uint64_t now_ns);
/* Does the text of /proc/PID/status name a tracer? */
int hng_has_tracer(const char *status);

#endif
