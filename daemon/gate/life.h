/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of the daemon: runs, is paused, drains, stops, is degraded. Writes
 * env.st and env.paused.
 *
 * A stop goes in steps: wait for the requests that are open, cancel what is
 * left at the deadline, end the workers, leave.
 */
#ifndef FDD_DAEMON_GATE_LIFE_H
#define FDD_DAEMON_GATE_LIFE_H

#include <stdint.h>

struct admit;
struct env;
struct reqs;
struct sessions;
struct sup;
struct wrk;

enum life_step { LIFE_WAITS = 0, LIFE_CANCELLED, LIFE_ENDS_WORKERS, LIFE_DONE };

struct life {
    struct env *env;
    const struct admit *adm;
    struct sessions *ses;
    struct reqs *reqs;
    struct sup *sup;
    struct wrk *wrk; /* n of them */
    uint32_t n_wrk;
    int stop_exit; /* exit code when the stop is done */
    enum life_step step;
    uint64_t t_step;
    uint64_t t_degraded;
    int n_signals;     /* SIGTERM, SIGINT: the second one ends at once */
    int is_ready_told; /* to the service manager */
    uint32_t n_told;   /* groups that are ready, as it knows */
    int exit_code;     /* -1: go on */
};

/* SIGTERM or SIGINT: drain and end; a second one ends at once. */
void life_signal(struct life *v);
void life_drain(struct life *v, int on);
/* Hand no request to a worker until this is taken back; those that come are
 * accepted and queued, those that run go on. Ends by itself when the daemon
 * drains, stops or degrades, for then the queue must empty. -EBUSY: it does. */
int life_pause(struct life *v, int on);
/* Drain at most timeout_ns, then end with exit_code. */
void life_stop(struct life *v, uint64_t timeout_ns, int exit_code);
/* End now: every request gets its terminal, sessions GOODBYE. */
void life_stop_now(struct life *v, int exit_code);
/* No worker will start: end queued requests, reject new ones. */
void life_degrade(struct life *v);
/* The worker of a group will not start again: it died too often, or, where cannot_run is
 * not 0, it would end with that exit code each time. The daemon ends when none is left. */
void life_group_failed(struct life *v, const struct wrk *w, int cannot_run);
/* Tell all sessions the daemon's state. kind: FDP_EV_*, or 0. */
void life_announce(struct life *v, uint32_t kind);
void life_tick(struct life *v);
/* "running", "starting", "paused", ... */
const char *life_state_name(const struct life *v);

#endif
