/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts, watches, restarts and ends the workers. This module handles a group's process;
 * wlink.h handles the link to it. sup_poll() returns an event; the caller then acts on
 * requests and sessions.
 *
 *   NONE      not started
 *   STARTING  process runs, READY has not come (start timeout runs)
 *   READY     takes requests within its credits
 *   STOPPING  told to drain; killed when it takes too long
 *   BACKOFF   dead, started again at t_restart
 *   FAILED    not started again: permanent failure or crash loop
 *
 * A permanent failure is an exit for configuration, permission, a missing model or device
 * before any worker was ready. The same exit after one was ready means that something
 * disappeared: the start is retried with back-off for as long as the daemon runs, and
 * does not count towards the crash loop. The worker is then blocked (retry.h), until one
 * is ready or ends otherwise.
 *
 * A killed process loses its requests immediately (SUP_KILLED) but may take seconds to
 * end, while the driver frees the GPU's memory. A thread of offloop.h collects its
 * status; the next process starts only after that.
 *
 * Every start makes a new link segment; the old one is released with all its records. The
 * worker dies with the gate (PR_SET_PDEATHSIG).
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
    int idx;   /* number of its group */
    int st;    /* enum wrk_st */
    pid_t pid; /* 0: none */
    int pidfd, efd, admin_fd, link_fd;
    int trace_fd;          /* its trace segment; belongs to the caller */
    struct wlk link;       /* seg is NULL without a process */
    int is_killed;         /* SIGKILL was sent */
    int is_over;           /* SUP_KILLED was returned for this kill */
    struct ofl_exit *exit; /* allocated while its status is being collected */
    uint32_t dead;         /* process has ended; its status follows */
    int status;            /* as waitpid() gives it */
    int permanent;         /* its exit code if a restart would end the same way, else 0 */
    uint64_t generation;
    uint64_t t_start, t_ready, t_restart, t_stop;
    uint32_t backoff_ms;
    uint32_t n_deaths; /* deaths so far; their times are in a ring */
    uint64_t deaths[SUP_DEATHS_MAX];
    uint64_t n_starts, n_died;
    uint64_t n_ready; /* starts that came to READY */
    struct rty rty;   /* retries; n != 0: the worker is blocked */
    struct hng hng;
    uint64_t t_progress;
    char panic[LNK_PANIC_BYTES]; /* panic text of the last death */
    uint64_t panic_generation;
    char last_death[256];
    struct crs crash; /* last death that the gate did not cause */
    char error[512];  /* error that the last worker reported */
    char fix[768];
} __attribute__((aligned(16)));

struct sup {
    const struct env *env;
    const struct rtd *rt;
    const struct names *names;
    struct watch *watch;
    struct ofl *ofl;  /* NULL in tests: its work is done at once */
    int stat_fd;      /* statistics segments; workers write to them, too */
    uint32_t n_group; /* number of groups, each with its worker and devices */
    /* Starts the program: returns its pid, or -errno. By default fork and exec; tests set
     * their own. */
    int (*spawn)(struct sup *s, struct wrk *w, int worker_admin_fd);
};

void
sup_init(struct sup *s, const struct env *env, const struct rtd *rt, struct watch *watch);
void sup_init_worker(struct wrk *w, int idx);
/* Starts at once. Returns 0 or -errno (which counts as a death). */
int sup_start(struct sup *s, struct wrk *w);

/* Events that sup_poll() returns. */
enum sup_event {
    SUP_NOTHING = 0,
    SUP_READY,   /* the worker reported READY */
    SUP_KILLED,  /* end its requests; returned once, SUP_DEAD follows */
    SUP_DEAD,    /* the process has ended: call sup_autopsy(), drain its link and end its
                    requests, sup_drop_link(), sup_after_death() */
    SUP_NO_START /* it could not be started: sup_after_death() */
};
/* Checks timers, heartbeat and death. */
enum sup_event sup_poll(struct sup *s, struct wrk *w);
/* Reaps an ended process (its pidfd is readable). */
void sup_reap(struct sup *s, struct wrk *w);
/* Keeps the end of the worker's log and its panic text. Called before its link is
 * drained. */
void sup_autopsy(struct sup *s, struct wrk *w);
/* Releases the worker's link. */
void sup_drop_link(struct sup *s, struct wrk *w);

/* Consequences of a death. */
enum sup_verdict { SUP_RESTARTS = 0, SUP_ENDED, SUP_CANNOT_RUN, SUP_CRASH_LOOP };
/* Decides what follows a death. SUP_CANNOT_RUN: *ret_exit is the daemon's exit code. */
enum sup_verdict sup_after_death(struct sup *s, struct wrk *w, int *ret_exit);

/* Tells the worker to finish its requests and exit; it is killed after grace_ns. */
void sup_stop(struct sup *s, struct wrk *w, uint64_t grace_ns);
/* Starts a worker that was stopped, has failed or is in back-off, with a new crash
 * window. Returns as sup_start(). */
int sup_start_again(struct sup *s, struct wrk *w);
void sup_kill(struct wrk *w, const char *why);
/* Waits at most most_ns for a killed child: a process that sleeps in a driver may not
 * end. Returns 0 if it did not end. */
int sup_collect(pid_t pid, uint64_t most_ns);
/* Kills it, waits some seconds, releases the link. Nothing may be in flight, and
 * ofl_free() was called before. */
void sup_fini(struct sup *s, struct wrk *w);
/* Passes changed parameters to it. */
void sup_reload(struct sup *s, struct wrk *w);
/* ms until the next worker is ready, if it takes as long as this one did. */
uint32_t sup_restart_ms(const struct wrk *w);
int sup_load_percent(const struct wrk *w);
/* The phase that the worker reports; without a process "blocked", "failed" or "none". */
const char *sup_phase_name(const struct wrk *w);
/* The name of its enum wrk_st. */
const char *sup_state_name(const struct wrk *w);
/* The command that fixes a permanent failure, or "". names: as for adv_model(). */
void sup_fix_text(const struct par *par, const struct rtd *rt, const struct names *names,
    int exit_code, char *ret, size_t ret_bytes);
/* Finds the worker program: daemon.worker, else in the folder of fdd, ../libexec/fdd or
 * the installed place; fdd-worker-cuda before fdd-worker unless device.backend excludes
 * GPUs. Returns 0 or -errno. */
int sup_find_worker(const struct par *par, char *ret, size_t ret_bytes);

#endif
