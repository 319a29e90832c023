/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The fdd process: gate and supervisor. One thread; all state hangs off
 * struct gate. Every part is a poll function taking the time, so that tests
 * drive it with a fake clock and a fake worker on the link.
 *
 * A round (gate_poll): take requests from client rings, send what is due to
 * the worker, relay its records, publish and wake once per session, end
 * what is doomed. Nothing in it blocks, and its work per client is bounded.
 *
 * The loop (gate_run) repeats rounds while there is traffic, spins for
 * ipc.spin_us after it, and else sleeps in epoll_wait with all parking flags
 * raised.
 */
#ifndef FDD_DAEMON_GATE_GATE_H
#define FDD_DAEMON_GATE_GATE_H

#include <signal.h>
#include <stdint.h>

#include "daemon/common/counter.h"
#include "daemon/common/param.h"
#include "daemon/common/trace.h"
#include "daemon/gate/control.h"
#include "daemon/gate/fair.h"
#include "daemon/gate/journal.h"
#include "daemon/gate/listen.h"
#include "daemon/gate/loopstat.h"
#include "daemon/gate/names.h"
#include "daemon/gate/reqlog.h"
#include "daemon/gate/runtime.h"
#include "daemon/gate/session.h"
#include "daemon/gate/supervise.h"

struct ofl;

#define GATE_MAGIC 0x47415445u

enum gate_st { GATE_RUNNING = 0, GATE_DRAINING, GATE_STOPPING, GATE_DEGRADED };

/* What an epoll event refers to: a kind in the low bits of data.u64 beside
 * a pointer (objects are at least 16-byte aligned). */
enum gate_ev { GATE_EV_LISTEN = 0, GATE_EV_ADMIN, GATE_EV_SES, GATE_EV_BELL,
    GATE_EV_CTL, GATE_EV_WRK_EFD, GATE_EV_WRK_PID, GATE_EV_WRK_ADMIN,
    GATE_EV_SIGNAL, GATE_EV_NONE };

struct gate {
    uint32_t magic;
    int st;                   /* enum gate_st */
    int paused;               /* RUNNING, and nothing goes to the worker */
    struct par_set *ps;
    const struct par *par;    /* of ps */
    struct par_src src;       /* what is read at a reload */
    struct par_set *ps_file;  /* as last read; NULL: as ps */
    uint64_t boot_id[2];
    uint64_t t_boot;
    uint64_t rng;             /* seeds of requests that name none */
    struct rtd rt;
    struct names names;
    struct crs before;        /* how the daemon before ended, if badly */
    int crash_fd;             /* crash.h */
    int epfd, sigfd;
    struct epoll_event *ev;   /* those not dispatched yet */
    int n_ev;

    struct ses **ses;         /* 0..n_ses-1, in no order */
    uint32_t n_ses, max_ses;
    uint32_t n_hello;
    uint32_t n_doomed;
    uint32_t n_holding;       /* sessions with held records */
    uint64_t next_ses_id;
    struct ses_q outq;        /* sessions with output in this round */
    struct region_late late;
    struct lsn lsn, lsn_admin;
    struct ofl *ofl;          /* NULL in tests: its work is done at once */

    struct jnl jnl;
    struct fair fair;
    struct wrk wrk[1] __attribute__((aligned(16)));
    uint32_t n_wrk;
    int (*spawn)(struct gate *g, struct wrk *w, int worker_admin_fd);
    struct ctl ctl;

    struct cnt_seg *seg;
    struct cnt_gate *cnt;
    struct loopstat loop;
    int seg_fd;
    struct trc_seg *trc;
    int trc_fd;

    uint64_t now;             /* of this round */
    uint64_t t_tick;
    uint64_t t_traffic;       /* last round that found work */
    uint64_t t_notify;
    uint64_t watchdog_ns;
    uint64_t spin_ns;
    uint64_t answer_ns;       /* poll so long for the answer to what went down */
    uint64_t t_down;          /* last record to the worker */
    uint64_t stop_deadline;   /* STOPPING: cancel what is left then */
    int stop_exit;            /* exit code when the stop is done */
    int stop_phase;           /* 0 wait, 1 cancelled, 2 worker told, 3 done */
    uint64_t t_stop_phase;
    uint64_t t_degraded;
    int n_signals;
    int ready_notified;
    int exit_code;            /* -1: go on */
};

/* Take over ps. No sockets, folders or processes yet. NULL: no memory. */
struct gate *gate_new(struct par_set *ps, uint64_t now_ns);
/* Bring up the statistics and the trace segment. -errno. */
int gate_open(struct gate *g);
struct gate *gate_free(struct gate *g);

/* One round without system calls beyond wake-ups. Returns the work done. */
int gate_poll(struct gate *g, uint64_t now_ns);
/* Timers; called by gate_poll when a tick has passed. */
void gate_tick(struct gate *g, uint64_t now_ns);
/* The gauges of the statistics segment as they are now. */
void gate_gauges(struct gate *g, uint64_t now_ns);
/* Look at the sockets, waiting at most timeout_ms. */
int gate_events(struct gate *g, int timeout_ms);
/* Until the end; returns the exit code. */
int gate_run(struct gate *g);

int gate_watch(struct gate *g, int fd, uint32_t events, enum gate_ev ev, void *obj);
/* Before fd is closed: nothing about obj any more, neither from this round of
 * events nor from a later one. close() alone does not say so while a client
 * or a process forked meanwhile has the same open file. */
void gate_unwatch(struct gate *g, int fd, const void *obj);

void gate_drain(struct gate *g, int on);
/* Hand no request to the worker until this is taken back; those that come are
 * accepted and queued, those that run go on. Ends by itself when the daemon
 * drains, stops or degrades, for then the queue must empty. -EBUSY: it does. */
int gate_pause(struct gate *g, int on);
/* Drain at most timeout_ns, then end with exit_code. */
void gate_stop(struct gate *g, uint64_t now_ns, uint64_t timeout_ns, int exit_code);
/* End now: every request gets its terminal, sessions GOODBYE. */
void gate_stop_now(struct gate *g, int exit_code);
/* No worker will come: end what is queued, refuse what comes. */
void gate_degrade(struct gate *g, uint64_t now_ns);
/* Parameters changed: logs, weights, worker. */
void gate_apply(struct gate *g);
/* ms after which a refused client may try again: when, as fast as requests end
 * now, one has ended; all of them, if none is taken before. */
uint32_t gate_retry_ms(const struct gate *g);
const char *gate_state_name(const struct gate *g);
uint64_t gate_draw_seed(struct gate *g);
/* Walk all structures; aborts when they disagree. */
void gate_check(const struct gate *g);

#endif
