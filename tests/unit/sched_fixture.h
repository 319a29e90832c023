/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler and the block pool with a simulated device. A KV cell holds a digest of
 * all tokens up to its own, so reading a wrong cell is noticed at once. The next token
 * follows from the digest, so every output is known in advance. Steps run in order; their
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
    int32_t max_len; /* 0: 0: the whole pool */
    int32_t n_host, max_copy, max_drop;
    int32_t n_group, window[KV_MAX_GROUP]; /* as in struct kv_cfg; a window is at least
                                            * 2 */
    int32_t depth;                         /* most steps in flight while the next is
                                            * picked */
    int cached;                            /* requests use the prefix cache */
    int append_first;                      /* append tokens before sch_collected(), not
                                            * after */
    int no_check;                          /* fx_step() does not call sch_check() */
};

struct fx_ask {                   /* a request to make */
    int32_t n_prompt, max_new, n; /* n 0: 1 */
    int32_t n_prior;              /* number of the n_prompt tokens that are PRIOR_IDS */
    int32_t priority, penalized, scores;
    const uint32_t *ids; /* the prompt; NULL: generated from text */
    uint64_t text;       /* requests with equal text have prompts with a common
                          * beginning */
    int32_t n_same;      /* number of tokens in common, 0: all */
    uint64_t user;
    int stops; /* some tokens are stop ids */
    uint64_t deadline_queue_ns, deadline_total_ns;
};

struct fx_seq {        /* expected output, and progress */
    uint32_t *ids;     /* [max_len] expected tokens */
    uint64_t *digest;  /* [max_len] */
    int32_t end;       /* length at which it ends by itself */
    int32_t next;      /* position where its next row must start */
    int32_t n_prefill; /* prompt tokens computed since its last admission */
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

struct fx_state { /* a state slot on the device */
    uint32_t last_token;
    int32_t len, done;
};

struct fx {
    struct fx_cfg cfg;
    struct req_pool rp;
    struct kv *kv;
    struct sch *sch;
    struct sch_step st;
    uint64_t now; /* advances by step_ns with each step */
    uint64_t step_ns;
    uint64_t rng, id;
    uint64_t *cell;         /* [n_block + 1][block_size] */
    uint64_t *host;         /* [n_host][block_size] */
    struct fx_state *state; /* [max_seqs] */
    struct fx_req *reqs;    /* [max_req] by req.idx */
    struct fx_rec rec[FX_MAX_DEPTH + 1];
    uint64_t done; /* epoch up to which steps are collected */
    /* counts */
    uint64_t n_step, n_ended, n_token, n_late, n_copy, n_dup, n_cached, n_shared, n_urged;
    struct req *last_ended; /* not yet returned to the pool if keep is set */
    int keep;               /* ended requests stay for the test to look at */
};

struct fx *fx_new(const struct fx_cfg *cfg);
/* All requests must have ended. */
void fx_free(struct fx *f);
uint32_t fx_rand(struct fx *f, uint32_t lo, uint32_t hi); /* lo and hi inclusive */

struct req *fx_add(struct fx *f, const struct fx_ask *a);
/* Adds a request with a prompt of n_prompt tokens of its own and up
 * to max_new output tokens. */
struct req *fx_plain(struct fx *f, int32_t n_prompt, int32_t max_new);
/* Picks and runs a step, then collects until at most depth are in flight. Returns
 * the number of rows picked. */
int32_t fx_step(struct fx *f);
/* Collects the oldest step in flight. Returns 0 if there was none. */
int fx_collect(struct fx *f);
/* Runs steps until no request is left, at most max_steps. */
void fx_drain(struct fx *f, int32_t max_steps);
/* Cancels r, as the host would. */
void fx_cancel(struct fx *f, struct req *r);
/* Returns the row of s in the last step, or NULL. */
const struct sch_row *fx_row(const struct fx *f, const struct seq *s);

#endif
