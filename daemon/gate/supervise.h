/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers: start, watch, restart, end. One table entry for now.
 *
 *   NONE      not started
 *   STARTING  process runs, READY has not come (start timeout runs)
 *   READY     takes requests within its credits
 *   STOPPING  told to drain; killed when it takes too long
 *   BACKOFF   dead, started again at t_restart
 *   FAILED    not started again: permanent failure or crash loop
 *
 * A permanent failure is an exit for configuration, permission, a missing
 * model or device before any worker was ready. The same exit later means that
 * something is away that was there: it is retried with back-off for as long as
 * the daemon runs, and does not count towards the crash loop.
 *
 * Every start makes a new link segment; the old one is thrown away with
 * whatever it holds. The worker dies with the gate (PR_SET_PDEATHSIG).
 */
#ifndef FDD_DAEMON_GATE_SUPERVISE_H
#define FDD_DAEMON_GATE_SUPERVISE_H

#include <stdint.h>
#include <sys/types.h>

#include "daemon/common/link.h"
#include "daemon/gate/crash.h"
#include "daemon/gate/fair.h"
#include "daemon/gate/hang.h"

struct gate;
struct jreq;

enum wrk_st { WRK_NONE = 0, WRK_STARTING, WRK_READY, WRK_STOPPING, WRK_BACKOFF,
    WRK_FAILED };

#define SUP_DEATHS_MAX 1000u
#define WRK_PEND_DRAIN  1u
#define WRK_PEND_RELOAD 2u

struct wrk {
    int idx;
    int st;                    /* enum wrk_st */
    pid_t pid;                 /* 0: none */
    int pidfd, efd, admin_fd, link_fd;
    struct lnk_seg *seg;
    struct lnk lnk;
    struct lnk_ready ready;    /* of the last READY */
    uint32_t credits_used;
    uint32_t dead;             /* process ended; status below */
    int status;                /* as waitpid */
    uint64_t generation;
    uint64_t t_start, t_ready, t_restart, t_stop;
    uint32_t backoff_ms;
    uint32_t n_deaths;         /* entries of deaths, a ring */
    uint64_t deaths[SUP_DEATHS_MAX];
    uint64_t n_starts, n_died;
    uint64_t n_ready;          /* of n_starts: those that came to READY */
    struct hng hng;
    uint64_t t_progress;
    struct jreq *sending;      /* its blob is going down */
    uint32_t sent;             /* bytes of it sent */
    struct jreq_q cancelq;     /* CANCEL records to send */
    struct jreq_q startq;      /* with it, a deadline, and not known to have begun */
    uint32_t pend;             /* WRK_PEND_*: other records to send */
    char panic[LNK_PANIC_BYTES]; /* of the last death */
    uint64_t panic_generation;
    char last_death[256];
    struct crs crash;          /* the last one that was not asked for */
    char error[512];           /* what the last worker reported */
    char fix[768];
};

void sup_init(struct wrk *w, int idx);
/* Start at once; 0 or -errno (counted as a death by sup_poll's rules). */
int sup_start(struct gate *g, struct wrk *w, uint64_t now_ns);
/* Timers, heartbeat, death. Returns 1 when something changed. */
int sup_poll(struct gate *g, struct wrk *w, uint64_t now_ns);
/* Collect the status of an ended process (its pidfd is readable). */
void sup_reap(struct gate *g, struct wrk *w);
/* Tell it to drain and exit; killed after grace_ns. */
void sup_stop(struct gate *g, struct wrk *w, uint64_t now_ns, uint64_t grace_ns);
void sup_kill(struct gate *g, struct wrk *w, const char *why);
void sup_fini(struct gate *g, struct wrk *w);
/* Records of the worker that concern itself. */
void sup_on_ready(struct gate *g, struct wrk *w, const struct lnk_ready *rd,
    uint64_t now_ns);
/* Parameters changed: hand them over. */
void sup_reload(struct gate *g, struct wrk *w);
int sup_load_percent(const struct wrk *w);
const char *sup_phase_name(const struct wrk *w);
/* The command that repairs a permanent failure, or "". */
void sup_fix_text(const struct gate *g, int exit_code, char *ret, size_t ret_bytes);
/* Find the worker program: daemon.worker, else in the folder of fdd, ../libexec/fdd
 * or the installed place; fdd-worker-cuda before fdd-worker unless device.backend
 * wants no GPU. 0 or -errno. */
int sup_find_worker(const struct gate *g, char *ret, size_t ret_bytes);

/* The default for gate.spawn: fork and exec. Returns the pid or -errno. */
int sup_spawn(struct gate *g, struct wrk *w, int worker_admin_fd);

#endif
