/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Detects a hung worker. Pure functions: the caller passes the link segment's counters
 * and the time.
 *
 * A worker's engine counts a beat in each poll that finds no step in flight or collects
 * one, and at least every 100 ms when it has nothing to do. It counts none while it waits
 * for a step, whatever commands come. A worker is hung when it counted no beat for longer
 * than
 *
 *     max(daemon.worker_hang_ms, HNG_FACTOR x the expected time of its step)
 *
 * and, while the time of its steps is unknown, for longer than
 * daemon.worker_start_timeout_ms. Loading, graph capture and profiling have no limit, but
 * live steps have it again when their profile's time is over. An interval between two
 * calls longer than HNG_GAP_NS does not count: then the gate itself, or the machine, was
 * stopped.
 */
#ifndef FDD_DAEMON_GATE_HANG_H
#define FDD_DAEMON_GATE_HANG_H

#include <stddef.h>
#include <stdint.h>

#define HNG_FACTOR  10u
#define HNG_GAP_NS  2000000000ull /* a longer interval between calls does not count */
#define HNG_WARN_NS 5000000000ull /* without a beat: HNG_WARN if hang_ns is 0 */

struct lnk_beat;

/* State for one worker. Zeroed by hng_init(). */
struct hng {
    uint64_t beats, t_beat; /* last count of beats, and when it changed */
    uint64_t t_look;
    int warned;
};

/* Limits from the parameters. */
struct hng_limits {
    uint64_t hang_ns;  /* daemon.worker_hang_ms; 0: no worker is killed */
    uint64_t first_ns; /* daemon.worker_start_timeout_ms; for steps of unknown time */
};

enum hng_verdict {
    HNG_FINE,
    HNG_WARN,  /* half of the limit has passed; returned once */
    HNG_MOVES, /* it beats again after a warning */
    HNG_KILL
};

void hng_init(struct hng *h, uint64_t now_ns);
/* Checks the worker. why gets a line with the reason for HNG_WARN and HNG_KILL. After
 * HNG_KILL, call hng_excuse() if it is not killed, for example because a debugger holds
 * it. */
enum hng_verdict hng_look(struct hng *h, const struct lnk_beat *b,
    const struct hng_limits *l, uint64_t now_ns, char *why, size_t why_bytes);
/* Restarts the measured time without a beat. */
void hng_excuse(struct hng *h, uint64_t now_ns);
/* Does the text of /proc/PID/status name a tracer? */
int hng_has_tracer(const char *status);

#endif
