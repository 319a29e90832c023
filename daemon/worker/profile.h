/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps measured operation by operation. The admin thread makes a struct prf
 * with all its memory and events, gives it to the engine (eng_profile) and gets
 * it back when all steps are measured, or soon after prf_stop(); then it reads
 * the sums.
 *
 *   live   the next n_step steps are launched with an event after every
 *          operation, and the n_step after those without, for comparison.
 *          Their results do not change, except for the last bits on a GPU
 *          that is not deterministic.
 *   synthetic  steps of a given shape on an idle engine, without a request:
 *          measured steps and steps without events alternate. They read blocks
 *          all over the KV pool, and write those of them that are free, after
 *          filling them with zeros; in place of a cached block they write
 *          the dummy block. A request that arrives ends the profile after the
 *          step in flight.
 *
 * A line of the profile is an operation of the program, by its index, or
 * n_op + enum run_line.
 */
#ifndef FDD_DAEMON_WORKER_PROFILE_H
#define FDD_DAEMON_WORKER_PROFILE_H

#include <stdint.h>

#include "daemon/worker/batch.h"
#include "daemon/worker/kvcache.h"
#include "daemon/worker/runner.h"

#define PRF_MAX_STEPS 10000

/* A line's number of steps in which it ran, its total time and the shortest in a step. */
struct prf_line {
    int32_t n;
    uint64_t sum_ns, min_ns;
};

/* Number of steps with or without events, and sums over them. */
struct prf_steps {
    int32_t n, n_graph;      /* steps; those of them replayed from a graph */
    int32_t n_split;         /* steps that copies divided; members below: copy
                                0's share */
    uint64_t sum_ns, min_ns; /* device time from the begin of a step to its end */
    double tok, pad, row, decode, out;
    double ctx;  /* sum of the rows' context lengths, in tokens */
    double pair; /* sum over all tokens of the number of KV tokens that each sees */
};

/* Times of a rank, summed over steps. exchange_ns: time in collectives, for waiting and
 * for the transfer. */
struct prf_rank {
    uint64_t compute_ns, exchange_ns;
};

enum prf_role { PRF_NONE, PRF_MEASURED, PRF_PLAIN };

struct prf {
    uint32_t magic;
#define PRF_MAGIC 0x50524631u
    struct runner *run;
    int32_t n_step;
    int is_synthetic;
    struct bat_synth synth;
    int32_t n_line;
    uint32_t stop; /* set by the requester */
    /* below: used by the engine while it has the profile */
    int32_t n_busy;          /* synthetic: requests in the engine at prf_begin() */
    int interrupted;         /* synthetic: ended by a request */
    int32_t n_out;           /* steps in flight */
    int32_t n_taken[2];      /* steps launched: measured, plain */
    int32_t n_warm;          /* synthetic: warm-up steps launched */
    uint64_t warm_ns;        /* device time of warm-up steps */
    int64_t n_place;         /* synthetic: entries of the tables */
    int64_t fill_at;         /* synthetic: entries whose blocks have been filled */
    struct run_marks *marks; /* [n_rec][ranks] */
    struct run_mark *mark;   /* [n_rec][ranks][max] */
    uint8_t *role;           /* [n_rec] enum prf_role */
    int32_t *table, *own;    /* synthetic: [rows][stride], as in struct bat_synth */
    uint64_t *step_ns;       /* [n_line] times in one step */
    struct prf_line *line;   /* [n_line] */
    struct prf_steps measured, plain;
    struct prf_rank rank[FDK_MAX_RANKS]; /* times in the measured steps */
    uint64_t exposed_ns; /* sum of each step's least exchange_ns over the ranks: that of
                            the last rank to arrive, which waits only for the transfer */
};

/* ---- the requester: any thread ------------------------------------------------------- */

/* Make a profile. synth NULL: live. n_step: 1 to PRF_MAX_STEPS. synth must pass
 * prf_synth_check(); its table and own are not read. 0 or -ENOMEM. */
int prf_new(struct runner *run, int32_t n_step, const struct bat_synth *synth,
    struct prf **ret);
struct prf *prf_free(struct prf *p);
/* Can the engine run such a step? Returns 0, or -EINVAL with one line in err. */
int prf_synth_check(const struct runner *run, const struct bat_synth *m, int32_t max_len,
    char *err, size_t err_bytes);
/* Stop the profile: no more of its steps are launched. */
void prf_stop(struct prf *p);

/* ---- engine thread ----------------------------------------------------------------- */

/* The members of an engine without steps in flight that synthetic steps use; busy: the
 * engine has requests. */
struct prf_idle {
    struct bat *bat;
    struct kv *kv;
    int busy;
};

/* The engine takes the profile. n_busy: number of requests in the engine. */
void prf_begin(struct prf *p, int32_t n_busy);
/* Call before a launch. Returns where to record the step's events, or NULL to launch
 * without events. */
struct run_marks *prf_take(struct prf *p, const struct bat_rec *rec);
/* Add the times of a step that is done; rec must be unchanged since its launch. */
void prf_collected(struct prf *p, const struct bat_rec *rec, uint64_t begin_ns,
    uint64_t end_ns);
/* Synthetic steps: launch or collect one. Returns 0, or -errno: the device is lost. */
int prf_poll(struct prf *p, const struct prf_idle *idle, int *ret_work);
/* Is a synthetic step in flight? */
int prf_has_device(const struct prf *p);
/* Wait for that step. */
int prf_wait(struct prf *p);
/* Is the profile complete or stopped, without steps in flight? */
int prf_over(const struct prf *p);

#endif
