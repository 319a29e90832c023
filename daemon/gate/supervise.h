/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers: start, watch, restart, end. The process of a group is here; the link
 * to it is wlink.h. sup_poll() returns what happened; the caller acts on
 * requests and sessions.
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
 * something is missing that was there: the start is retried with back-off for as long as
 * the daemon runs, and does not count towards the crash loop. The worker is then
 * blocked (retry.h), until one is ready or ends otherwise.
 *
 * A killed process loses its requests immediately (SUP_KILLED) but may take seconds to
 * end, while the driver frees the GPU's memory. A thread of offloop.h collects its
 * status; the next process starts only after that.
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
#include "daemon/gate/hang.h"
#include "daemon/gate/retry.h"
#include "daemon/gate/wlink.h"

struct env;
struct names;
struct par;
struct rtd;
struct watch;

enum wrk_st {
    WRK_NONE = 0,
    WRK_STARTING,
    WRK_READY,
    WRK_STOPPING,
    WRK_BACKOFF,
    WRK_FAILED
};

struct ofl;
struct ofl_exit;

#define SUP_DEATHS_MAX 1000u
#define SUP_STATE_NAMES \
    { \
        "none", "starting", "ready", "draining", "back-off", "failed" \
    }

struct wrk {
    int idx;   /* of its group */
    int st;    /* enum wrk_st */
    pid_t pid; /* 0: none */
    int pidfd, efd, admin_fd, link_fd;
    int trace_fd;          /* its trace segment; the caller's */
    struct wlk link;       /* seg NULL: no process */
    int is_killed;         /* SIGKILL was sent */
    int is_over;           /* and SUP_KILLED was returned */
    struct ofl_exit *exit; /* on the heap while its status is collected */
    uint32_t dead;         /* process ended; status below */
    int status;            /* as waitpid */
    int permanent;         /* its exit code, where another start would end the same way */
    uint64_t generation;
    uint64_t t_start, t_ready, t_restart, t_stop;
    uint32_t backoff_ms;
    uint32_t n_deaths; /* entries of deaths, a ring */
    uint64_t deaths[SUP_DEATHS_MAX];
    uint64_t n_starts, n_died;
    uint64_t n_ready; /* of n_starts: those that came to READY */
    struct rty rty;   /* n != 0: blocked */
    struct hng hng;
    uint64_t t_progress;
    char panic[LNK_PANIC_BYTES]; /* of the last death */
    uint64_t panic_generation;
    char last_death[256];
    struct crs crash; /* the last death that the gate did not cause */
    char error[512];  /* what the last worker reported */
    char fix[768];
} __attribute__((aligned(16)));

struct sup {
    const struct env *env;
    const struct rtd *rt;
    const struct names *names;
    struct watch *watch;
    struct ofl *ofl;  /* NULL in tests: its work is done at once */
    int stat_fd;      /* the segments of statistics, which workers write to, too */
    uint32_t n_group; /* workers like those given here, each with a group of devices */
    /* Start the program: pid, or -errno. By default fork and exec; tests have
     * their own. */
    int (*spawn)(struct sup *s, struct wrk *w, int worker_admin_fd);
};

void
sup_init(struct sup *s, const struct env *env, const struct rtd *rt, struct watch *watch);
void sup_init_worker(struct wrk *w, int idx);
/* Start at once; 0 or -errno (counted as a death by sup_poll's rules). */
int sup_start(struct sup *s, struct wrk *w);

/* What sup_poll() found. */
enum sup_event {
    SUP_NOTHING = 0,
    SUP_READY,   /* it reported READY */
    SUP_KILLED,  /* end its requests, once; SUP_DEAD follows */
    SUP_DEAD,    /* the process ended: sup_autopsy(), drain its link and
                                  end what it had, sup_drop_link(),
                                  sup_after_death() */
    SUP_NO_START /* it could not be started: sup_after_death() */
};
/* Timers, heartbeat, death. */
enum sup_event sup_poll(struct sup *s, struct wrk *w);
/* Collect the status of an ended process (its pidfd is readable). */
void sup_reap(struct sup *s, struct wrk *w);
/* Before its link is drained: keep the end of its log and its panic text. */
void sup_autopsy(struct sup *s, struct wrk *w);
/* Release its link. */
void sup_drop_link(struct sup *s, struct wrk *w);

/* What follows a death. */
enum sup_verdict { SUP_RESTARTS = 0, SUP_ENDED, SUP_CANNOT_RUN, SUP_CRASH_LOOP };
/* SUP_CANNOT_RUN: *ret_exit is the daemon's exit code. */
enum sup_verdict sup_after_death(struct sup *s, struct wrk *w, int *ret_exit);

/* Tell it to end what it has, and exit; killed after grace_ns. */
void sup_stop(struct sup *s, struct wrk *w, uint64_t grace_ns);
/* Start a worker that was stopped, has failed or is in back-off, with a new crash window. As
 * sup_start(). */
int sup_start_again(struct sup *s, struct wrk *w);
void sup_kill(struct wrk *w, const char *why);
/* Wait at most most_ns for a killed child: a process that sleeps in a driver may not
 * end. 0: it did not. */
int sup_collect(pid_t pid, uint64_t most_ns);
/* Kill it, wait some seconds, release the link. Nothing may be in flight, and ofl has
 * ended. */
void sup_fini(struct sup *s, struct wrk *w);
/* Parameters changed: hand them over. */
void sup_reload(struct sup *s, struct wrk *w);
/* ms until the next worker is ready, if it takes as long as this one did. */
uint32_t sup_restart_ms(const struct wrk *w);
int sup_load_percent(const struct wrk *w);
/* The phase that it is in itself; without a process "blocked", "failed" or "none". */
const char *sup_phase_name(const struct wrk *w);
/* What the gate makes of it: enum wrk_st. */
const char *sup_state_name(const struct wrk *w);
/* The command that repairs a permanent failure, or "". names: as of adv_model(). */
void sup_fix_text(const struct par *par, const struct rtd *rt, const struct names *names,
    int exit_code, char *ret, size_t ret_bytes);
/* Find the worker program: daemon.worker, else in the folder of fdd, ../libexec/fdd
 * or the installed place; fdd-worker-cuda before fdd-worker unless device.backend
 * wants no GPU. 0 or -errno. */
int sup_find_worker(const struct par *par, char *ret, size_t ret_bytes);

#endif
