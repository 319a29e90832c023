/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's pipeline in one thread: a link segment with this program as
 * the gate, a fake clock, the null backend (or another). Every record that
 * comes up is checked against what was asked; with the null model every
 * token is foretold.
 *
 * With exec = FDK_EXEC_DEFER the device is another actor of the same thread:
 * each poll runs some of its commands, as many as pace and seed say, so that
 * a run of any interleaving of host and device can be had again.
 */
#ifndef FDD_TESTS_SIM_SIM_H
#define FDD_TESTS_SIM_SIM_H

#include <stdint.h>

#include "daemon/common/counter.h"
#include "daemon/common/link.h"
#include "daemon/worker/pipeline.h"
#include "daemon/worker/quant.h"
#include "daemon/worker/runner.h"

#define SIM_MAX_N   4         /* samples of a random request, */
#define SIM_SAMPLES FDP_MAX_N /* and of any */

struct sim_rng {
    uint64_t s;
};
uint32_t sim_u32(struct sim_rng *r);
/* lo <= result <= hi */
uint32_t sim_range(struct sim_rng *r, uint32_t lo, uint32_t hi);
/* From argv[1], $SEED, or fixed; printed. */
uint64_t sim_seed(int argc, char **argv);
/* $FDD_SIM_STEPS, or def (less under a sanitizer). */
uint64_t sim_steps(uint64_t def);

/* How many of its commands the device runs between two polls. */
enum sim_pace {
    SIM_PACE_RANDOM = 0, /* by turns none, a few, a step's, all */
    SIM_PACE_SLOW,       /* less than a step's */
    SIM_PACE_FAST,       /* all */
    SIM_PACE_NONE        /* none: the test runs them by sim_device() */
};

struct sim_cfg {
    int32_t max_reqs, max_seqs, max_tokens, max_len, block_size;
    int32_t n_block; /* of each KV group */
    int32_t chunked, graph;
    int32_t depth; /* steps launched ahead, 0 to 4 */
    enum fdk_exec exec;
    enum sim_pace pace;
    uint64_t seed;          /* of the pace */
    uint64_t delay_ns;      /* device time added to each step */
    int32_t prefix, n_host; /* prefix cache; host blocks behind it */
    int32_t n_penalty;
    const char *capture;   /* sizes; NULL: the default list */
    int32_t lazy;          /* graphs are recorded by the first steps */
    struct sch_cfg sch;    /* max_partial, max_long, long_threshold,
                                reserve_blocks, decode_blocks, fcfs, itl_target_ns */
    int check_tokens;      /* null model: outputs are foretold */
    int32_t drain_every;   /* the gate reads the up ring once in this many steps */
    const char *model_dir; /* NULL: the null model; else by ids, on the cpu
                                backend, dummy weights when it has none */
    struct qnt quant;      /* of the model's weights; zeros: none */
    int32_t kv_dtype;      /* enum fdk_dtype + 1; 0: bf16, or fp32 for fp32 weights */
    const char *backend;   /* of a model; NULL: $FDD_SIM_BACKEND, else "cpu" */
    int32_t threads;
    int32_t real_clock; /* benchmarks */
    int32_t all_tokens; /* steps never go on with their output rows alone */
    int32_t any_order;  /* a device's sums may depend on the number of rows */
    const struct files *files;
    int32_t no_instruments;    /* neither histograms nor trace */
    int32_t learn;             /* step times steer the scheduler; else a run depends on
                                nothing but its seed */
    const struct fdk_ops *ops; /* in place of the backend's, whose devices it has; NULL:
                                  that */
    void (*edit)(struct mdl_program *p); /* changes the program before it is loaded */
    int32_t keep_all;                    /* 1: KV blocks behind windows stay */
    int32_t n_rank;    /* of a tensor-parallel group, 0: one; cpu: THREAD */
    int32_t n_copy;    /* of these ranks, 0: one; the same */
    int32_t min_split; /* tokens of a prompt in a step from which on they are divided */
    int32_t kv_split;  /* ranks that share the tokens of their KV heads, 0: one */
    int32_t n_split;   /* one device in place of as many ranks, 0: none */
    int32_t in_host;   /* ranks do not reach each other's memory */
    int32_t spin_limit_ms; /* of the group; 0: long, whatever else the machine does */
    int32_t unfused;
    int32_t halves; /* run_open_args.halves_least */
};

struct sim_sample {
    uint32_t *ids; /* as delivered, PRIOR_IDS included */
    uint32_t n_ids;
    char *text;
    uint32_t n_text, text_at; /* text_at: bytes delivered before (prior) */
    uint32_t n_special;       /* of n_ids, those that came as SPECIAL */
    uint32_t n_logprobs;
    uint64_t lp_hash; /* of all logprobs' bits */
    int ended;
    struct fdp_choice_end end;
};
struct sim_req {
    uint64_t id;
    uint64_t user;
    uint32_t content; /* of the reference (ref.h) */
    int used, terminal, cancelled, accepted;
    struct fdp_req p;
    uint32_t *prompt; /* what the chain starts from; NULL: not known */
    uint32_t n_prompt, prompt_len;
    uint32_t *prior;
    uint32_t n_prior;
    uint32_t stop[8], n_stop;
    char stop_text[4][32];
    uint32_t n_stop_text;
    unsigned char *items; /* more items, whole; then outputs are not foretold */
    uint32_t n_items;     /* their bytes */
    uint32_t n_chosen;    /* ids of LOGPROB_IDS among them */
    uint32_t n_scores, next_score;
    uint64_t score_hash;
    uint32_t *prompt_ids; /* PROMPT_IDS delivered */
    uint32_t n_prompt_ids;
    int32_t code; /* 0: DONE */
    uint32_t detail, arg, limit;
    struct fdp_done done;
    struct fdp_info info;
    struct sim_sample s[SIM_SAMPLES];
    /* sim_more.c */
    const char *file; /* of FDP_OP_FILE: which, */
    struct fdp_file_ask file_ask;
    uint64_t file_size;
    unsigned char *bytes; /* and what came */
    uint32_t n_bytes;
    char *prompt_text;
    uint32_t n_prompt_text;
    uint32_t n_token_text;
    uint32_t lp_ids[1 + FDP_MAX_LOGPROBS + FDP_MAX_LOGPROB_IDS]; /* of the last record */
    uint32_t lp_n, lp_position;                                  /* of logprobs */
    int owes_text; /* TOKEN_TEXT of it has not come */
};

struct sim {
    struct sim_cfg cfg;
    struct lnk_seg *seg;
    int fd;
    struct lnk gate, worker;
    struct cnt_seg *cnt;
    struct trc_seg *trc_seg; /* NULL: no trace */
    struct trc trc;
    int trc_fd;
    struct mdl_program *prog;
    struct wts_plan *wp;
    struct tok *tok;
    struct runner *run;
    struct lnk_ready ready;
    struct pipeline *pip;
    uint64_t now_ns, n_poll, next_id;
    struct sim_rng rng;        /* of the pace */
    int32_t burst, burst_left; /* most commands a poll now, polls to go */
    void (*ended)(void *arg, struct sim_req *r); /* a terminal record came; or NULL */
    void *ended_arg;
    /* Sees each record of a request before it is checked; or NULL. */
    void (*record)(void *arg, struct sim_req *r, const struct fdp_rec *rec);
    void *record_arg;
    struct sim_req *reqs; /* [max_reqs] open or just ended */
    int32_t n_open, last_req;
    uint64_t n_done, n_error, n_tokens;
    uint64_t n_combined; /* TOKENS records */
    int ready_seen;
    void *blob; /* scratch of sim_submit() */
};

struct sim *sim_new(const struct sim_cfg *cfg);
/* Everything must have ended; checks that all blocks are free. */
void sim_free(struct sim *s);
/* The same of one whose device has failed, whatever is open. */
void sim_drop(struct sim *s);

/* A free entry with fair defaults (greedy, n 1); NULL: all open. */
struct sim_req *sim_req(struct sim *s);
/* Send it. text may be NULL; stop strings, ids and prior come from r. */
void sim_submit(struct sim *s, struct sim_req *r, const char *text);
void sim_cancel(struct sim *s, struct sim_req *r, int32_t code);
/* Cancel each open request with a chance of 1 in share. */
void sim_cancel_some(struct sim *s, struct sim_rng *g, uint32_t share);
/* Requests without a reason to fail (a cancel, a deadline) did not. */
void sim_check_errors(const struct sim *s);
/* One poll of all stages, the clock moves, records are read and checked,
 * all structures walked. Returns the work done. */
int sim_poll(struct sim *s);
/* Its device's memory is the program's own. */
int sim_is_virtual(const struct sim *s);
/* DEFER: run up to n commands. Returns how many ran. */
int32_t sim_device(struct sim *s, int32_t n);
/* Read and check what came up; for those who run pip_start()'s threads and
 * do not poll. */
void sim_records(struct sim *s);
/* Until r has its terminal record. */
void sim_wait(struct sim *s, struct sim_req *r);
/* Until nothing is open. */
void sim_drain(struct sim *s);
/* Forget an ended request. */
void sim_forget(struct sim *s, struct sim_req *r);
/* Null model: the chain's token i for r; *ret_stop when it is a stop id. */
uint32_t sim_expect(const struct sim *s, const struct sim_req *r, uint32_t i,
    uint32_t prev, int *ret_stop);

/* sim.c's and sim_more.c's own: an item behind r's others; ids and text of a sample;
 * records that few requests want. 0: it is none. */
void sim_item(struct sim *s, struct sim_req *r, unsigned type, const void *p, uint32_t len);
void sim_ids(struct sim *s, struct sim_sample *sm, uint32_t position, const void *ids,
    uint32_t n);
void sim_more_items(struct sim *s, struct sim_req *r);
int sim_more_record(struct sim *s, struct sim_req *r, const struct fdp_rec *rec);
/* A record of logprobs came. */
void sim_more_logprobs(struct sim_req *r, const struct fdp_rec *rec);
void sim_more_forget(struct sim_req *r);

/* A few sequences of 512 tokens at most. */
extern const struct sim_cfg sim_small;
/* fn on simulations like that one of every depth, with graphs and without. */
void sim_everywhere(const struct sim_cfg *like, struct sim_rng *g,
    void (*fn)(struct sim *s, struct sim_rng *g));

/* A directory with the config.json of a tiny model; path[64]. */
void sim_model(char *path);
void sim_model_rm(const char *path);

/* GPUs that $FDD_SIM_BACKEND=cuda has; 0: devices are virtual. */
int sim_gpus(void);
/* Whether there are n devices: always, where they are virtual. */
int sim_has(int32_t n);

/* Named parts of a program: all, or the one $SIM_TEST names. */
struct sim_test {
    const char *name;
    void (*fn)(struct sim_rng *g);
};
#define SIM_TEST(f) \
    { \
#f, f \
    }
int sim_run(int argc, char **argv, const struct sim_test *t, size_t n);

#define SIM_CHECK(e) \
    do { \
        if (!(e)) \
            sim_fail(__FILE__, __LINE__, #e); \
    } while (0)
__attribute__((noreturn)) void sim_fail(const char *file, int line, const char *what);

#endif
