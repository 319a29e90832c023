/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's pipeline in one thread: a link segment with this program as the gate, a
 * fake clock, the null backend (or another). Every record from the worker is checked
 * against its request; with the null model every token is known in advance.
 *
 * With exec = FDK_EXEC_DEFER the device runs in the same thread: each poll runs some of
 * its commands, a number that follows from pace and seed, so that any interleaving of
 * host and device can be repeated.
 */
#ifndef FDD_TESTS_SIM_SIM_H
#define FDD_TESTS_SIM_SIM_H

#include <stdint.h>

#include "daemon/common/counter.h"
#include "daemon/common/link.h"
#include "daemon/worker/pipeline.h"
#include "daemon/worker/quant.h"
#include "daemon/worker/runner.h"

#define SIM_MAX_N   4         /* most samples of a random request, */
#define SIM_SAMPLES FDP_MAX_N /* and of any request */

struct sim_rng {
    uint64_t s;
};
uint32_t sim_u32(struct sim_rng *r);
/* lo <= result <= hi */
uint32_t sim_range(struct sim_rng *r, uint32_t lo, uint32_t hi);
/* The seed: argv[1], else $SEED, else a fixed one. Prints it. */
uint64_t sim_seed(int argc, char **argv);
/* Number of steps: $FDD_SIM_STEPS, else def (less under a sanitizer). */
uint64_t sim_steps(uint64_t def);

/* How many of its commands the device runs between two polls. */
enum sim_pace {
    SIM_PACE_RANDOM = 0, /* changes between none, a few, those of a step or more, all */
    SIM_PACE_SLOW,       /* less than those of a step */
    SIM_PACE_FAST,       /* all */
    SIM_PACE_NONE        /* none: the test calls sim_device() */
};

struct sim_cfg {
    int32_t max_reqs, max_seqs, max_tokens, max_len, block_size;
    int32_t n_block; /* of each KV group */
    int32_t chunked, graph;
    int32_t depth; /* steps launched ahead, 0 to 4 */
    enum fdk_exec exec;
    enum sim_pace pace;
    uint64_t seed;          /* of the random pace */
    uint64_t delay_ns;      /* device time added to each step */
    int32_t prefix, n_host; /* prefix cache on; host blocks for swapping */
    int32_t n_penalty;
    const char *capture;   /* batch sizes to capture; NULL: the default list */
    int32_t lazy;          /* graphs are recorded by the first steps, not at the start */
    struct sch_cfg sch;    /* uses max_partial, max_long, long_threshold, reserve_blocks,
                            * decode_blocks, fcfs, itl_target_ns */
    int check_tokens;      /* null model: check output tokens against the expected ones */
    int32_t drain_every;   /* the gate reads the up ring once in this many steps */
    const char *model_dir; /* NULL: the null model; else requests are in ids; dummy
                            * weights if it has no weights file */
    struct qnt quant;      /* of the model's weights; zeros: none */
    int32_t kv_dtype;      /* enum fdk_dtype + 1; 0: bf16, or fp32 for fp32 weights */
    const char *backend;   /* for a model; NULL: $FDD_SIM_BACKEND, else "cpu" */
    int32_t threads;
    int32_t real_clock; /* for benchmarks */
    int32_t all_tokens; /* steps compute all rows to the end, not only those with an
                         * output */
    int32_t any_order;  /* not deterministic: sums may depend on the number of rows */
    const struct files *files;
    int32_t no_instruments;    /* neither histograms nor trace */
    int32_t learn;             /* step times steer the scheduler; else a run depends only
                                * on its seed */
    const struct fdk_ops *ops; /* used instead of the backend's own; same devices; NULL:
                                * the backend's own */
    void (*edit)(struct mdl_program *p); /* changes the program before it is loaded */
    int32_t keep_all;                    /* 1: 1: KV blocks that left the window are
                                          * kept */
    int32_t n_rank;    /* size of a tensor-parallel group, 0: one; on the CPU only with
                        * EXEC_THREAD */
    int32_t n_copy;    /* copies of the model, of n_rank ranks each, 0: one; CPU as for
                        * n_rank */
    int32_t min_split; /* fewest tokens of a prompt in a step that are divided between
                        * copies */
    int32_t kv_split;  /* ranks that share the tokens of their KV heads, 0: one */
    int32_t n_split;   /* one device computes as this number of ranks would, 0: none */
    int32_t in_host;   /* ranks cannot access each other's memory; sums go through the
                        * host */
    int32_t spin_limit_ms; /* the group's limit for a late rank; 0: long, for a loaded
                            * machine */
    int32_t unfused;
    int32_t halves; /* run_open_args.halves_least */
};

struct sim_sample {
    uint32_t *ids; /* as delivered, PRIOR_IDS included */
    uint32_t n_ids;
    char *text;
    uint32_t n_text, text_at; /* text_at: position of the first byte */
    uint32_t n_special;       /* number of n_ids that came as SPECIAL */
    uint32_t n_logprobs;
    uint64_t lp_hash; /* hash of the bits of all logprobs */
    int ended;
    struct fdp_choice_end end;
};
struct sim_req {
    uint64_t id;
    uint64_t user;
    uint32_t content; /* number of its content (ref.h) */
    int used, terminal, cancelled, accepted;
    struct fdp_req p;
    uint32_t *prompt; /* prompt ids, where the chain of tokens starts; NULL: not known */
    uint32_t n_prompt, prompt_len;
    uint32_t *prior;
    uint32_t n_prior;
    uint32_t stop[8], n_stop;
    char stop_text[4][32];
    uint32_t n_stop_text;
    unsigned char *items; /* more items, complete with headers; outputs are then not
                           * checked */
    uint32_t n_items;     /* size of items in bytes */
    uint32_t n_chosen;    /* number of ids in LOGPROB_IDS, if that is among the items */
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
    const char *file; /* FDP_OP_FILE: the file's name, */
    struct fdp_file_ask file_ask;
    uint64_t file_size;
    unsigned char *bytes; /* and the bytes received */
    uint32_t n_bytes;
    char *prompt_text;
    uint32_t n_prompt_text;
    uint32_t n_token_text;
    uint32_t lp_ids[1 + FDP_MAX_LOGPROBS + FDP_MAX_LOGPROB_IDS]; /* of the last
                                                                  * logprobs */
    uint32_t lp_n, lp_position;                                  /* record */
    int owes_text; /* its TOKEN_TEXT has not come yet */
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
    struct sim_rng rng;        /* for the random pace */
    int32_t burst, burst_left; /* most commands per poll at present; polls until that
                                * changes */
    void (*ended)(void *arg, struct sim_req *r); /* called at a terminal record; or
                                                  * NULL */
    void *ended_arg;
    /* Called with each record of a request before it is checked; or NULL. */
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
/* All requests must have ended; checks that all blocks are free. */
void sim_free(struct sim *s);
/* Frees a simulation whose device has failed; requests may be open. */
void sim_drop(struct sim *s);

/* Returns a free entry with default parameters (greedy, n 1),
 * or NULL if all are in use. */
struct sim_req *sim_req(struct sim *s);
/* Sends r. text may be NULL; stop strings, ids and prior ids come from r. */
void sim_submit(struct sim *s, struct sim_req *r, const char *text);
void sim_cancel(struct sim *s, struct sim_req *r, int32_t code);
/* Cancels each open request with a probability of 1 / share. */
void sim_cancel_some(struct sim *s, struct sim_rng *g, uint32_t share);
/* Checks that no request failed without a reason (a cancel, a deadline). */
void sim_check_errors(const struct sim *s);
/* Polls all stages once, advances the clock, reads and checks records, and verifies all
 * data structures. Returns 0 if there was no work. */
int sim_poll(struct sim *s);
/* Returns whether its device is virtual, with host memory. */
int sim_is_virtual(const struct sim *s);
/* FDK_EXEC_DEFER: runs up to n commands of the device. Returns the number run. */
int32_t sim_device(struct sim *s, int32_t n);
/* Reads and checks the worker's records; for tests that use the threads of
 * pip_start() and do not poll. */
void sim_records(struct sim *s);
/* Polls until r has its terminal record. */
void sim_wait(struct sim *s, struct sim_req *r);
/* Polls until no request is open. */
void sim_drain(struct sim *s);
/* Frees the entry of an ended request. */
void sim_forget(struct sim *s, struct sim_req *r);
/* Null model: the expected token i of r; *ret_stop is set if it is a stop id. */
uint32_t sim_expect(const struct sim *s, const struct sim_req *r, uint32_t i,
    uint32_t prev, int *ret_stop);

/* Internal to sim.c and sim_more.c: append an item to r's; take ids and text of a
 * sample; handle records that few requests use. sim_more_record() returns 0 if
 * the record is none of these. */
void sim_item(struct sim *s, struct sim_req *r, unsigned type, const void *p, uint32_t len);
void sim_ids(struct sim *s, struct sim_sample *sm, uint32_t position, const void *ids,
    uint32_t n);
void sim_more_items(struct sim *s, struct sim_req *r);
int sim_more_record(struct sim *s, struct sim_req *r, const struct fdp_rec *rec);
/* Takes a record of logprobs. */
void sim_more_logprobs(struct sim_req *r, const struct fdp_rec *rec);
void sim_more_forget(struct sim_req *r);

/* Settings for a few sequences of at most 512 tokens. */
extern const struct sim_cfg sim_small;
/* Calls fn on simulations like `like` with every overlap
 * depth, with and without graphs. */
void sim_everywhere(const struct sim_cfg *like, struct sim_rng *g,
    void (*fn)(struct sim *s, struct sim_rng *g));

/* Makes a directory with the config.json of a tiny model; path has 64 bytes. */
void sim_model(char *path);
void sim_model_rm(const char *path);

/* Number of GPUs if $FDD_SIM_BACKEND is cuda; 0: devices are virtual. */
int sim_gpus(void);
/* Returns whether there are n devices; always true for virtual ones. */
int sim_has(int32_t n);

/* Named tests of a program; sim_run() runs all, or the one that $SIM_TEST names. */
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
