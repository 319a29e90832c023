/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler and the block pool on a device made of numbers: a KV cell
 * holds a digest of all tokens up to its own, so that a test that reads a cell
 * that is not what it should be finds out at once; the next token follows
 * from the digest, so every output is foretold. Steps run in order; their
 * results come back depth steps later.
 */
#ifndef FDD_TESTS_UNIT_SCHED_FIXTURE_H
#define FDD_TESTS_UNIT_SCHED_FIXTURE_H

#include <stdint.h>

#include "daemon/worker/scheduler.h"

#define FX_MAX_DEPTH 4

struct fx_cfg {
    struct sch_cfg sch;
    int32_t max_req; /* 0: 64 */
    int32_t n_block, block_size;
    int32_t max_len; /* 0: all of the pool */
    int32_t n_host, max_copy, max_drop;
    int32_t n_group, window[KV_MAX_GROUP]; /* struct kv_cfg; a window is at least 2 */
    int32_t depth;                         /* steps in flight while the next is picked */
    int cached;                            /* requests use the prefix cache */
    int append_first;                      /* tokens before sch_collected(), not after */
    int no_check;                          /* sch_check() only when asked */
};

struct fx_ask {                   /* a request to make */
    int32_t n_prompt, max_new, n; /* n 0: 1 */
    int32_t n_prior;              /* of n_prompt tokens, those that are PRIOR_IDS */
    int32_t priority, penalized, scores;
    const uint32_t *ids; /* the prompt, NULL: by text */
    uint64_t text;       /* requests of one text share their prompts' beginning */
    int32_t n_same;      /* tokens in common, 0: all */
    uint64_t user;
    int stops; /* some tokens end it */
    uint64_t deadline_queue_ns, deadline_total_ns;
};

struct fx_seq {        /* what must come out, and how far it is */
    uint32_t *ids;     /* [max_len] foretold */
    uint64_t *digest;  /* [max_len] */
    int32_t end;       /* length at its own end */
    int32_t next;      /* position its next row must start at */
    int32_t n_prefill; /* prompt tokens computed since it was admitted last */
};
struct fx_req {
    struct req *r;
    struct fx_seq *seqs;
    int touched;
};

struct fx_out {
    int32_t slot;
    uint32_t generation, token;
    int32_t pos;
};
struct fx_rec {
    uint64_t epoch;
    int32_t n_out;
    struct fx_out *outs;
};

struct fx_state { /* a slot on the device */
    uint32_t last_token;
    int32_t len, done;
};

struct fx {
    struct fx_cfg cfg;
    struct req_pool rp;
    struct kv *kv;
    struct sch *sch;
    struct sch_step st;
    uint64_t now; /* moves on by step_ns with each step */
    uint64_t step_ns;
    uint64_t rng, id;
    uint64_t *cell;         /* [n_block + 1][block_size] */
    uint64_t *host;         /* [n_host][block_size] */
    struct fx_state *state; /* [max_seqs] */
    struct fx_req *reqs;    /* [max_req] by req.idx */
    struct fx_rec rec[FX_MAX_DEPTH + 1];
    uint64_t done; /* steps up to it are collected */
    /* counts */
    uint64_t n_step, n_ended, n_token, n_late, n_copy, n_dup, n_cached, n_shared, n_urged;
    struct req *last_ended; /* not put back yet when keep is set */
    int keep;               /* ended requests stay for the test to look at */
};

struct fx *fx_new(const struct fx_cfg *cfg);
/* Everything must have ended. */
void fx_free(struct fx *f);
uint32_t fx_rand(struct fx *f, uint32_t lo, uint32_t hi); /* inclusive */

struct req *fx_add(struct fx *f, const struct fx_ask *a);
/* n_prompt tokens of its own, max_new more. */
struct req *fx_plain(struct fx *f, int32_t n_prompt, int32_t max_new);
/* Pick, run, and collect what depth says; rows picked. */
int32_t fx_step(struct fx *f);
/* Collect the oldest step in flight; 0: there was none. */
int fx_collect(struct fx *f);
/* Until nothing is left; at most max_steps. */
void fx_drain(struct fx *f, int32_t max_steps);
/* End what a host decision ends. */
void fx_cancel(struct fx *f, struct req *r);
/* The row of s in the last step, or NULL. */
const struct sch_row *fx_row(const struct fx *f, const struct seq *s);

#endif
