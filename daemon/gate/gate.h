/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The fdd process: gate and supervisor. One thread. struct gate, used only here and in
 * gate.c, holds the state of all modules. Each module has its own state, and pointers to
 * the modules below it:
 *
 *   listen -> session -> intake -> admit -> request -> fair -> dispatch -> wlink
 *
 * relay copies the workers' records to clients; control, the admin socket, shows and
 * changes the state of all modules. Every module takes the time from env.h, so that tests
 * can run the gate with a fake clock and a fake worker on the link.
 *
 * An iteration (gate_poll): take requests from client rings, send due records to the
 * workers, relay their records, publish and wake once per session, end killed sessions.
 * Nothing in it blocks, and its work per client is bounded, by counts and by time
 * (env.h). So is its work for sockets (gate_events): many connects or hang-ups at once
 * are spread over many iterations, and requests are taken in between.
 *
 * The loop (gate_run) iterates while there is traffic, spins for ipc.spin_us after it,
 * and else sleeps in epoll_wait with all parking flags raised.
 */
#ifndef FDD_DAEMON_GATE_GATE_H
#define FDD_DAEMON_GATE_GATE_H

#include <stdint.h>

#include "daemon/gate/admit.h"
#include "daemon/gate/client.h"
#include "daemon/gate/conf.h"
#include "daemon/gate/control.h"
#include "daemon/gate/crash.h"
#include "daemon/gate/dispatch.h"
#include "daemon/gate/env.h"
#include "daemon/gate/fair.h"
#include "daemon/gate/gauge.h"
#include "daemon/gate/intake.h"
#include "daemon/gate/journal.h"
#include "daemon/gate/life.h"
#include "daemon/gate/listen.h"
#include "daemon/gate/loopstat.h"
#include "daemon/gate/names.h"
#include "daemon/gate/reqlog.h"
#include "daemon/gate/request.h"
#include "daemon/gate/rolling.h"
#include "daemon/gate/runtime.h"
#include "daemon/gate/session.h"
#include "daemon/gate/supervise.h"
#include "daemon/gate/watch.h"

struct cnt_seg;
struct ofl;
struct par_set;
struct par_src;
struct trc_seg;

#define GATE_MAGIC   0x47415445u
#define GATE_EVENTS  8u /* per iteration; few, as a new session takes 60 us */
#define GATE_ACCEPTS 8u /* connections accepted per iteration */

/* Time limits of an iteration's phases, from its beginning: after its limit a phase
 * begins no further piece of work. */
#define GATE_INTAKE_NS   50000u
#define GATE_RELAY_NS    80000u
#define GATE_SEND_NS     110000u
#define GATE_TICK_END_NS 160000u
#define GATE_FLUSH_NS    190000u
/* Time limit for handling socket events and for ending sessions, from their beginning. */
#define GATE_PIECE_NS 50000u

struct gate {
    uint32_t magic;
    struct env env;
    struct rtd rt;
    struct crs before; /* how the previous daemon ended, if badly */
    int crash_fd;      /* descriptor of the crash file: crash.h */
    struct cnf cnf;
    struct names names;
    struct watch watch;
    struct lsn lsn, lsn_admin;
    struct ofl *ofl; /* NULL in tests: its work is done at once */

    struct clients clients;
    struct jnl jnl;
    struct fair fair;
    struct dispatch dsp;
    struct rql rql;
    struct reqs reqs;
    struct admit adm;
    struct intake itk;
    struct sessions ses;
    struct sup sup;
    struct wrk *wrk; /* the workers of the device groups, n_wrk of them */
    uint32_t n_wrk;
    uint32_t first_wrk; /* worker whose records are read first in this iteration */
    struct life life;
    struct rolling rolling;
    struct gauges gauges;
    struct ctl ctl;

    struct cnt_seg *seg; /* [n_wrk] segments of statistics */
    int seg_fd;
    struct trc_seg *trc[CNT_MAX_GROUPS]; /* their descriptors: wrk.trace_fd */
    struct loopstat loop;

    uint64_t t_begun;  /* start of this iteration; 0: no time limits (tests) */
    uint64_t switches; /* cnt->loop_switches when last checked */
    uint64_t t_tick;
    uint64_t t_second;    /* last run of gate_second() */
    uint64_t t_measure;   /* with several groups: last dsp_measure() */
    uint64_t t_traffic;   /* last iteration that had work */
    uint64_t t_down;      /* last record sent to a worker */
    uint64_t watchdog_ns; /* interval of messages to the service manager; 0: none */
    uint64_t t_watchdog;  /* the last one */
    int yields;           /* to clients, after its own answers */
    uint64_t answer_ns;   /* time to poll for the answer to such a record */
    int sigfd;
};

/* Options for the start of a daemon, other than its parameters. */
struct gate_opts {
    const struct par_src *src; /* their sources, for reloads */
    const char *instance;      /* NULL: the main instance */
    int is_named;
};

/* Runs a daemon with these parameters, which it takes over, until its end. Returns the
 * exit code. */
int gate_serve(struct par_set *ps, const struct gate_opts *o);

/* For tests: the stages of gate_serve(). gate_new() takes over ps and opens no sockets,
 * folders or processes yet. NULL: no memory. */
struct gate *gate_new(struct par_set *ps, uint64_t now_ns);
/* Makes the statistics and trace segments. 0 or -errno. */
int gate_open(struct gate *g);
struct gate *gate_free(struct gate *g);

/* Runs one iteration, without system calls except wake-ups and, with few processors, a
 * yield after its own answers; and the timers when a tick has passed. Returns a measure of
 * the work done, 0 for none. */
int gate_poll(struct gate *g, uint64_t now_ns);
/* Waits for socket events, at most timeout_ms; not while events of the last wait are
 * left. Handles GATE_EVENTS of them, not counting doorbells. */
int gate_events(struct gate *g, int timeout_ms);
/* Runs the loop until the daemon ends; returns the exit code. */
int gate_run(struct gate *g);
/* Checks all structures; aborts if they disagree. */
void gate_check(const struct gate *g);

#endif
