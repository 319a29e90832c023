/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps measured operation by operation. The admin thread makes a struct prf
 * with all the memory and events it takes, gives it to the engine
 * (eng_profile) and gets it back when all is measured, or soon after
 * prf_stop(); then it reads the sums.
 *
 *   live   the next n_step steps are launched with an event after every
 *          operation, and the n_step after those without, for comparison.
 *          Their results do not change.
 *   synthetic  steps of a given shape on an idle engine, without a request:
 *          one measured, one without events, in turn. They read blocks all
 *          over the KV pool and write the free ones among them, which
 *          are filled with zeros first; instead of a cached block they write
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

/* In steps: how many it ran in, time in all and in the shortest. */
struct prf_line {
    int32_t n;
    uint64_t sum_ns, min_ns;
};

/* Sums over steps. */
struct prf_steps {
    int32_t n, n_graph; /* steps; of these replayed from a graph */
    int32_t n_split;    /* divided among copies: what follows is copy 0's share of them */
    uint64_t sum_ns, min_ns; /* the device's begin to its end */
    double tok, pad, row, decode, out;
    double ctx;  /* KV tokens of the rows */
    double pair; /* KV tokens seen, of all tokens */
};

/* Of a rank, in steps. What ranks exchange is the time in collectives: to wait for the others,
 * and to bring what they have. */
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
    /* the engine's while it has it */
    int32_t n_busy;          /* synthetic: requests that were there; it did not begin */
    int interrupted;         /* synthetic: ended by a request */
    int32_t n_out;           /* steps in flight */
    int32_t n_taken[2];      /* launched: measured, plain */
    int32_t n_warm;          /* synthetic: steps before the first that counts */
    uint64_t warm_ns;        /* their time */
    int64_t n_place;         /* synthetic: entries of the tables */
    int64_t fill_at;         /* of these looked at */
    struct run_marks *marks; /* [n_rec][ranks] */
    struct run_mark *mark;   /* [n_rec][ranks][max] */
    uint8_t *role;           /* [n_rec] enum prf_role */
    int32_t *table, *own;    /* synthetic: [rows][stride], as in struct bat_synth */
    uint64_t *step_ns;       /* [n_line] of one step */
    struct prf_line *line;   /* [n_line] */
    struct prf_steps measured, plain;
    struct prf_rank rank[FDK_MAX_RANKS]; /* of the measured steps */
    uint64_t exposed_ns; /* of each step the least time that a rank exchanges: none waits for
                            the last one to come, which waits for the transfer alone */
};

/* ---- the requester: any thread ------------------------------------------------------- */

/* synth NULL: live. n_step from 1 to PRF_MAX_STEPS; synth as prf_synth_check() says;
 * synth->table and own are not read. 0 or -ENOMEM. */
int prf_new(struct runner *run, int32_t n_step, const struct bat_synth *synth,
    struct prf **ret);
struct prf *prf_free(struct prf *p);
/* Can the engine make such a step? -EINVAL with one line in err. */
int prf_synth_check(const struct runner *run, const struct bat_synth *m, int32_t max_len,
    char *err, size_t err_bytes);
/* No more steps. */
void prf_stop(struct prf *p);

/* ---- engine thread ----------------------------------------------------------------- */

/* What a synthetic step needs of an engine without steps in flight; busy: it has
 * something else to do. */
struct prf_idle {
    struct bat *bat;
    struct kv *kv;
    int busy;
};

/* n_busy: requests that the engine has. */
void prf_begin(struct prf *p, int32_t n_busy);
/* Before a launch: where to record the step's events, or NULL to launch without. */
struct run_marks *prf_take(struct prf *p, const struct bat_rec *rec);
/* The step is done; rec is unchanged since its launch. */
void prf_collected(struct prf *p, const struct bat_rec *rec, uint64_t begin_ns,
    uint64_t end_ns);
/* Synthetic steps: launch or collect one. -errno: the device is lost. */
int prf_poll(struct prf *p, const struct prf_idle *idle, int *ret_work);
/* Is a synthetic step in flight? */
int prf_has_device(const struct prf *p);
int prf_wait(struct prf *p);
/* Nothing is left to do. */
int prf_over(const struct prf *p);

#endif
