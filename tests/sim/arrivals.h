/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Serving in virtual time: requests arrive as in a trace, the scheduler, its cost model
 * and the lookahead are those of the daemon, and the device is a table of measured times.
 * 10^5 requests take seconds, and equal seeds give equal results.
 *
 * One host thread acts as the engine: it takes new requests, collects finished steps,
 * picks and launches the next step when it is due, and publishes tokens. Each of these
 * takes host time. The device runs the steps one after another.
 *
 * The scheduler's settings are derived from the parameters as in the worker
 * (wrk_eng_cfg), so a new default has its effect here too.
 */
#ifndef FDD_TESTS_SIM_ARRIVALS_H
#define FDD_TESTS_SIM_ARRIVALS_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/common/param.h"
#include "daemon/worker/cost.h"

/* ---- the device: arrivals_dev.c ------------------------------------------------- */

#define ARR_MAX_POINT 64

struct arr_point {
    int32_t n_tok;
    double us;
};

struct arr_dev {
    char name[32];
    struct arr_point point[ARR_MAX_POINT]; /* time for weights and arithmetic, by n_tok
                                            * ascending */
    int32_t n_point;
    double ctx_us;     /* for each token of context that a decoding row reads */
    double pair_us;    /* for each query-key pair of a prompt */
    double scale;      /* factor on all of these, as GPUs differ */
    double hot;        /* a step gets slower by this factor, times the fraction of the
                        * last second spent in steps without a graph */
    double gap_us;     /* between two steps that are queued */
    double noise;      /* standard deviation, as a fraction of the step's time */
    int32_t graph_tok; /* steps of more tokens are launched operation by operation */
    double graph_us;   /* pick and launch of a step with a graph, */
    double eager_us;   /* and of one without */
    double row_us;     /* additional for each row, for picking and collecting */
    double collect_us;
    int32_t eager_cmds;   /* launches of a step without a graph, */
    int32_t queue_cmds;   /* and capacity of the driver's queue; launching blocks if it is
                           * full */
    double in_us, out_us; /* client to engine, engine to client */
    int32_t n_block;      /* of the KV cache, of 16 tokens */
    int32_t max_len;
};

/* A Llama 8B shape in bf16 on an H200, as measured (bench/RESULTS.md). */
void arr_dev_h200_8b(struct arr_dev *ret);
/* Reads lines "name value", and "point TOKENS US" for each point; values not named are
 * those of arr_dev_h200_8b(). Returns 0, or -errno with one line in err. */
int arr_dev_read(const char *path, struct arr_dev *ret, char *err, size_t err_bytes);
/* How long a step takes, ns, without noise. */
double arr_dev_ns(const struct arr_dev *d, const struct cost_step *s, int32_t n_pad);

/* ---- requests: arrivals_load.c --------------------------------------------------- */

struct arr_req {
    uint64_t at_ns;
    int32_t n_in, n_out;
    int32_t user, priority;
    int32_t kind; /* kinds have separate results; below ARR_N_KIND */
};
#define ARR_N_KIND 2

enum arr_kind {
    ARR_POISSON, /* log-normal prompts of median 700, outputs of 200 */
    ARR_BURST,   /* on for 2 s, off for 2 s, at twice the rate */
    ARR_LONG,    /* one request in 100 has a prompt of 100,000 tokens (kind 1) */
    ARR_TAIL,    /* output lengths by a power law, 20 to 8,192 */
    ARR_GREEDY,  /* user 1 (kind 1) sends 64 at once every 4 s, user 0 the rest */
    ARR_N_ARRIVALS
};
extern const char *const arr_kinds[ARR_N_ARRIVALS];

struct arr_load {
    struct arr_req *req; /* [n] in order of at_ns */
    int32_t n;
    int32_t closed; /* number of concurrent requests, a new one when one ends; 0: by
                     * at_ns */
};

uint64_t arr_rand(uint64_t *state);
double arr_uniform(uint64_t *state); /* (0, 1] */
double arr_normal(uint64_t *state);

/* n requests at rate per second. */
struct arr_load arr_load_make(enum arr_kind kind, double rate, int32_t n, uint64_t seed);
/* n requests of equal lengths, c of them concurrent. */
struct arr_load arr_load_closed(int32_t c, int32_t n, int32_t n_in, int32_t n_out);
/* Reads lines of time in s, prompt tokens, output tokens. Returns 0, or
 * -errno with one line in err. */
int arr_load_read(const char *path, struct arr_load *ret, char *err, size_t err_bytes);
void arr_load_fini(struct arr_load *l);

/* ---- a run: arrivals.c ------------------------------------------------------------- */

enum arr_policy {
    ARR_LOOKAHEAD, /* a step is picked when lka_due() says so */
    ARR_EARLY      /* a step is picked as soon as fewer than depth + 1 are in flight */
};

/* Faults to simulate; zeroed: none. */
struct arr_fault {
    double wrong; /* the cost model learns durations times this; 0: 1 */
    double slow;  /* factor on the time of steps, */
    uint64_t slow_from_ns, slow_to_ns;  /* between these times */
    int64_t jump_ns;                    /* the clock jumps by this */
    uint64_t jump_at_ns, jump_every_ns; /* 0: once */
};

struct arr_cfg {
    const struct par *par; /* sched.*, device.overlap_depth */
    struct arr_dev dev;
    enum arr_policy policy;
    int late;               /* tokens are published after the next launch */
    uint64_t seed;          /* of the noise */
    double ttft_ms, itl_ms; /* limits of a good request, for goodput */
    struct arr_fault fault;
    int check;            /* sch_check() after every step */
    const char *steps;    /* a file for one line a step, or NULL */
    const char *requests; /* a file for one line a request, or NULL */
};

struct arr_dist {
    double p50, p99, max;
};

struct arr_sum {
    int32_t n_ok; /* requests that got all of their tokens */
    int64_t n_out;
    double wall_s, tok_s;
    double goodput; /* requests a second within the limits */
    double n_good;
    struct arr_dist ttft, tpot, itl; /* ms */
    struct arr_dist kind_ttft[ARR_N_KIND];
    uint64_t n_step, n_preempted;
    struct arr_dist ahead; /* from the pick of a step to its begin, ms */
    struct arr_dist gap;   /* time that the device was idle though there was work, us */
    double busy;           /* fraction of the time that the device computed */
    double cpu_s;          /* CPU time of the simulation */
};

/* Runs all requests to their end. Panics if nothing advances though requests are open. */
void arr_run(const struct arr_cfg *cfg, const struct arr_load *load, struct arr_sum *ret);

/* Runs s_arrivals with this command line. Returns the exit status. */
int arr_tool(int argc, char **argv);

#endif
