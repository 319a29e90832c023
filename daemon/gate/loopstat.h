/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What one iteration of the gate's loop costs: CPU time of its thread, wall time,
 * voluntary context switches outside epoll_wait, bytes copied. An iteration goes from one
 * look at the clock to the next; sleep in epoll_wait belongs to none, and the handling of
 * the event that woke the loop belongs to the next iteration.
 *
 * The lowest bound of the two histograms is LOOPSTAT_QUICK_NS. An iteration that took
 * less wall time cannot have used more CPU time. So the thread's CPU clock (a system
 * call) is read only after longer ones, and once in LOOPSTAT_BASE_NS as a base to count
 * from: the CPU time of an iteration is never understated, and overstated by at most
 * LOOPSTAT_BASE_NS.
 *
 * The count of switches is read after each sleep, and before the next one unless that
 * comes within LOOPSTAT_AWAKE_NS: a call that blocks for longer is always counted.
 *
 * Called by the loop's thread.
 */
#ifndef FDD_DAEMON_GATE_LOOPSTAT_H
#define FDD_DAEMON_GATE_LOOPSTAT_H

#include <stdint.h>

struct cnt_gate;
struct cnt_hist;

#define LOOPSTAT_QUICK_NS 100000ull /* lowest bound of both histograms */
#define LOOPSTAT_BASE_NS  50000ull
#define LOOPSTAT_AWAKE_NS 20000ull

struct loopstat {
    struct cnt_gate *cnt;
    struct cnt_hist *hist;      /* the histograms of the segment */
    uint64_t t_begin;           /* start of this iteration; 0: none yet */
    uint64_t t_base;            /* when cpu_base was read */
    uint64_t cpu_base;          /* CPU time of the thread at t_base */
    uint64_t n_quick, quick_ns; /* short iterations not yet in the histograms */
    uint64_t copied;            /* cnt->copied_bytes when this iteration began */
    uint64_t t_wake;            /* end of the last sleep */
    int64_t switches;           /* switches of the thread so far, outside sleeps */
    int woke;                   /* the next look at the clock begins no iteration */
};

/* Starts counting for the calling thread. cnt and hist outlive ls. */
void loopstat_init(struct loopstat *ls, struct cnt_gate *cnt, struct cnt_hist *hist);
/* Voluntary context switches of the calling thread, so far. */
int64_t loopstat_switches(void);
/* The loop has read the clock: an iteration ends and the next one begins. */
void loopstat_next(struct loopstat *ls, uint64_t now_ns);
/* Call right before an epoll_wait that may sleep, and right after it. */
void loopstat_sleep(struct loopstat *ls, uint64_t now_ns);
void loopstat_wake(struct loopstat *ls, uint64_t now_ns);

#endif
