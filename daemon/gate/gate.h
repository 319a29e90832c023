/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The fdd process: gate and supervisor. One thread; struct gate holds the state
 * of all modules, and only this file and gate.c know it. Each module has its
 * own state, and pointers to those below it:
 *
 *   listen -> session -> intake -> admit -> request -> fair -> dispatch -> wlink
 *
 * relay copies what comes up a link, and control, the admin socket, shows and
 * changes what all of them have. Every module takes the time from
 * env.h, so that tests drive the whole with a fake clock and a fake worker on
 * the link.
 *
 * An iteration (gate_poll): take requests from client rings, send what is due
 * to the workers, relay their records, publish and wake once per session, end
 * what is doomed. Nothing in it blocks, and its work per client is bounded, by
 * counts and by time (env.h). So is what it does for sockets (gate_events): many that
 * connect or leave at once do so over many iterations, and requests are taken in
 * between.
 *
 * The loop (gate_run) iterates while there is traffic, spins for ipc.spin_us
 * after it, and else sleeps in epoll_wait with all parking flags raised.
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
#define GATE_EVENTS  8u /* of sockets in an iteration: a new session takes 60 us */
#define GATE_ACCEPTS 8u /* connections in an iteration */

/* From the beginning of an iteration: none begins another piece of its work later. */
#define GATE_INTAKE_NS   400000u
#define GATE_RELAY_NS    800000u
#define GATE_SEND_NS     1100000u
#define GATE_TICK_END_NS 1300000u
#define GATE_FLUSH_NS    1500000u
/* From the first event of an iteration, the first session that ends. */
#define GATE_PIECE_NS 50000u

struct gate {
    uint32_t magic;
    struct env env;
    struct rtd rt;
    struct crs before; /* how the daemon before ended, if badly */
    int crash_fd;      /* crash.h */
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
    struct wrk *wrk; /* of the groups of devices, n of them */
    uint32_t n_wrk;
    uint32_t first_wrk; /* whose answers are read first in this iteration */
    struct life life;
    struct rolling rolling;
    struct gauges gauges;
    struct ctl ctl;

    struct cnt_seg *seg; /* [n_wrk] */
    int seg_fd;
    struct trc_seg *trc[CNT_MAX_GROUPS]; /* a descriptor of each: wrk.trace_fd */
    struct loopstat loop;

    uint64_t t_begun;  /* this iteration; 0: time does not bound it (tests) */
    uint64_t switches; /* cnt->loop_switches, as far as looked into */
    uint64_t t_tick;
    uint64_t t_second;  /* what is done once a second */
    uint64_t t_measure; /* of several groups: last look at what they report */
    uint64_t t_traffic; /* last iteration that found work */
    uint64_t t_down;    /* last record to a worker */
    uint64_t watchdog_ns;
    uint64_t answer_ns; /* poll so long for the answer to what went down */
    int sigfd;
};

/* How a daemon is started, apart from its parameters. */
struct gate_opts {
    const struct par_src *src; /* where they came from, for reloads */
    const char *instance;      /* NULL: the main one */
    int is_named;
};

/* Run a daemon with these parameters, which pass over, until its end. Returns the
 * exit code. */
int gate_serve(struct par_set *ps, const struct gate_opts *o);

/* For tests: the parts of gate_serve(). Take over ps. No sockets, folders or
 * processes yet. NULL: no memory. */
struct gate *gate_new(struct par_set *ps, uint64_t now_ns);
/* Bring up the statistics and the trace segment. -errno. */
int gate_open(struct gate *g);
struct gate *gate_free(struct gate *g);

/* One iteration without system calls beyond wake-ups, and the timers when a tick has
 * passed. Returns the work done. */
int gate_poll(struct gate *g, uint64_t now_ns);
/* Look at the sockets, waiting at most timeout_ms; not while events of the last look
 * are left. Handles GATE_EVENTS of them, besides those that cost nothing. */
int gate_events(struct gate *g, int timeout_ms);
/* Until the end; returns the exit code. */
int gate_run(struct gate *g);
/* Walk all structures; aborts when they disagree. */
void gate_check(const struct gate *g);

#endif
