/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The states of the daemon: running, paused, draining, stopping, degraded. Writes env.st
 * and env.paused.
 *
 * A stop has four steps: wait for the open requests, cancel the remaining ones at the
 * deadline, end the workers, leave.
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
    struct wrk *wrk; /* n_wrk of them */
    uint32_t n_wrk;
    int stop_exit; /* exit code when the stop is done */
    enum life_step step;
    uint64_t t_step;
    uint64_t t_degraded;
    int n_signals;     /* number of SIGTERM and SIGINT; the second one ends at once */
    int is_ready_told; /* READY=1 was sent to the service manager */
    uint32_t n_told;   /* number of ready groups last reported to it */
    int exit_code;     /* -1: the daemon continues */
};

/* SIGTERM or SIGINT: drains and ends; a second one ends at once. */
void life_signal(struct life *v);
void life_drain(struct life *v, int on);
/* Sends no request to a worker until the pause is taken back. New requests are accepted
 * and queued, running ones continue. The pause ends by itself when the daemon drains,
 * stops or degrades, since then the queue must empty. -EBUSY: it does so already. */
int life_pause(struct life *v, int on);
/* Drains for at most timeout_ns, then ends with exit_code. */
void life_stop(struct life *v, uint64_t timeout_ns, int exit_code);
/* Ends now: every request gets its terminal record, sessions get GOODBYE. */
void life_stop_now(struct life *v, int exit_code);
/* No worker will start: ends queued requests, rejects new ones. */
void life_degrade(struct life *v);
/* The worker of a group will not start again: it died too often, or, if cannot_run is not
 * 0, it would end with that exit code each time. The daemon ends when no group is
 * left. */
void life_group_failed(struct life *v, const struct wrk *w, int cannot_run);
/* Publishes the daemon's state to all sessions. kind: FDP_EV_*, or 0. */
void life_announce(struct life *v, uint32_t kind);
void life_tick(struct life *v);
/* "running", "starting", "paused", ... */
const char *life_state_name(const struct life *v);

#endif
