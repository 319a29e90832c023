/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The runner: the devices of a group's ranks, the program bound to each of them, and the
 * steps on their way. A step record says nothing of a device: every rank launches it.
 * Opened and filled by the worker's main thread (run_new, run_load,
 * run_setup, in this order), then used by the engine thread alone.
 *
 * One rank: the engine thread launches. Several: it plans the step and posts it, and a launch
 * thread for each rank does the rest (runner_ranks.c): uploads, updates of rows, block copies,
 * the program or its graph, results. These threads never wait for each other; devices
 * meet in the program's collectives, which have a time limit. Every rank samples all rows
 * from the same gathered logits with the same kernel, so that all choose the same tokens and
 * a row's state needs no exchange: that costs each device the sampling of one, and saves
 * two meetings a step. The host reads rank 0's results.
 *
 *   run_launch()   plan up, updates, program (graph or eager), results down (rank 0's),
 *                  event: all asynchronous on one stream a device
 *   run_collect()  waits for the events of one record
 *
 * Steps follow each other on the stream, so a step may be launched before
 * the one ahead of it is done. Copies of KV blocks to and from the host go
 * over a stream of their own while the step runs; the next step waits
 * for them there.
 *
 * Ranks are n_copy copies of the program's: rank p * prog->n_rank + t is place t of copy p. A step
 * that copies divide (bat_rec.n_split) has a plan for each, which the engine thread makes before it
 * posts the step: block tables may change behind that. Every other step's plan is that of all. Copy 0
 * alone has the outputs of rows that all compute, and samples; MDL_OP_ROWSHARE tells the others.
 *
 * A step that was asked to (bat_rec.mark) says when about three quarters of it are
 * done: run_marked(). The mark is a launch of its own, so steps of few tokens, whose GEMMs
 * take the time of their weights (fdk_ops.gemm_rows), have none.
 *
 * The order of setting up keeps graphs from running out of memory: buffers,
 * the KV pool's addresses without memory (run_setup), graphs (run_warm), the
 * KV pool's memory (run_map_kv). Nothing is allocated after that, but for
 * graphs recorded lazily: the first step of each size of the capture list
 * records its own when graph.use_cudagraph is on and the backend
 * has them; run_warm() does so ahead of "ready".
 */
#ifndef FDD_DAEMON_WORKER_RUNNER_H
#define FDD_DAEMON_WORKER_RUNNER_H

#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/link.h"
#include "daemon/worker/batch.h"
#include "daemon/worker/model.h"
#include "daemon/worker/weights.h"
#include "kernels/collective.h"
#include "kernels/program.h"

/* Logits buffer: rows of one slice so that it stays below this, at least 1.
 * On the host a slice stays in the caches; a device reads the head's weights
 * once for each. */
#define RUN_LOGITS_BYTES     (16u << 20)
#define RUN_LOGITS_BYTES_DEV (512u << 20)

struct run_open_args {
    const char *backend;   /* "auto", "cpu", "cuda", "null" */
    int32_t n_device;      /* struct fdk_open_args, 0: one */
    const int32_t *device; /* the same */
    uint32_t dead;         /* the same */
    int32_t n_rank;        /* of the group, all copies', 0: one */
    int32_t n_copy;        /* 0: one; divides n_rank */
    const int32_t *rank;   /* [n_rank] which of the devices a rank has, each once; NULL:
                                0, 1, .. */
    const char *const *name; /* [n_device] for errors; NULL: the backend's name and a number */
    uint32_t spin_limit_us; /* of the ranks' collectives (fdk_group_args); 0: they have none */
    int in_host; /* ranks do not reach each other's memory: what they share is in the host's.
                        One copy */
    int32_t kv_split;  /* mdl_program.kv_split; 0: one */
    int32_t kv_copies; /* mdl_program.kv_copies; 0: one */
    int32_t n_thread, spin_us;
    int32_t max_token;
    enum fdk_exec exec;   /* virtual devices: who runs the commands */
    int deterministic;    /* struct fdk_open_args */
    int unfused;          /* each operation is a launch of its own */
    int32_t halves_least; /* steps of that many tokens and more, which are no graphs, go in
                              halves (fdk_step.halves) where a copy has two ranks; 0: none */
    const struct mdl_program *prog; /* with halves_least: what run_load() will get, */
    const struct wts_plan *wp;      /* this too */
    const char *cache_dir;          /* struct fdk_open_args; NULL: none */
};

struct run_setup_args {
    struct bat_dims dims;
    struct fdk_kv kv[FDK_MAX_KV_GROUPS]; /* of the program's: all but base and scale */
    const float *kv_scale; /* of the host and the model, [layers][2][K]; NULL: all 1. Ignored where
                                kv.dtype has none */
    int32_t max_block; /* KV blocks to have addresses for, dummy included */
    int32_t n_rec;     /* steps on their way at a time */
    int32_t n_host;    /* host blocks, 0: none */
    int32_t n_penalty; /* entries of the pool of penalty counts and rules */
    int use_graph;
    struct cap cap;    /* sizes to record */
    uint64_t delay_ns; /* device time added to every step (virtual devices) */
};

/* The program with one tail, bound to the device. Each slice of logits and sampling is an
 * operation of its own. */
struct run_form {
    struct fdk_op *op;
    int32_t *line; /* which of the program's operations it is */
    int32_t n;
    struct fdk_bound *bound;
};

/* An event that ends a part of a step: operation line of the program, or one of
 * what else there is in a step. */
enum run_line {       /* counted from the program's end */
    RUN_LINE_DELAY,   /* delay_ns */
    RUN_LINE_UPLOAD,  /* the plan */
    RUN_LINE_UPDATES, /* row states, block tables, penalty counts, rules */
    RUN_LINE_RESULTS, /* copied to the host */
    RUN_LINE__N
};
struct run_mark {
    fdk_event_t ev;
    int32_t line;
};
struct run_marks {
    int32_t n, max;
    struct run_mark *at;
};

/* A plan of attention, in a step plan of the host or of the device. */
struct run_att {
    int32_t *counts;       /* [2] tiles, tiles done */
    struct fdk_work *work; /* [n_work] */
    void *plan;            /* what the backend notes besides */
    int32_t group;         /* KV group */
};

/* One padded size: its launch bounds and, once recorded, its graph. */
struct run_pad {
    int32_t T, S, O; /* O 0: no output, and nothing that only outputs need */
    int32_t most;    /* outputs of the copy that has most */
    enum mdl_tail tail;
    int split;                     /* copies divide the step */
    const int32_t *out_at;         /* then: bat_layout.out_at */
    const struct run_views *views; /* then: of all copies' plans, where they share tokens */
    int32_t n_work;                /* attention tiles at most */
    struct run_att att[FDK_MAX_KV_GROUPS + 1]; /* of all tiles of each KV group; of those
                                with outputs, for the tail */
    struct fdk_batch b[FDK_MAX_KV_GROUPS];
    struct fdk_graph *graph;
};

/* A divided step as each copy computes it, on a rank that has some of the tokens of all of
 * them; and the slots of its own stage. */
struct run_views {
    struct run_att att[FDK_MAX_RANKS][FDK_MAX_KV_GROUPS + 1];
    struct fdk_batch b[FDK_MAX_RANKS][FDK_MAX_KV_GROUPS];
    struct fdk_batch stage;
};

/* Bytes of a rank. state: rows and block tables; plan: the step plan and results;
 * collectives: the workspace of the group. */
struct run_mem {
    uint64_t weights, kv, kv_scales, activations, scratch, state, plan, penalty, graphs;
    uint64_t collectives;
    uint64_t host_kv;
    uint64_t in_host; /* run_open_args.in_host: workspaces, a shard of the embeddings */
};

/* A rank's device: what it holds, and what is bound to its addresses. */
struct runner;
struct run_dev {
    struct runner *run;
    int32_t idx; /* in run->ctx */
    char name[24];
    char refused[160]; /* the launch that was, or what there is no memory for */
    fdk_stream_t stream, copy_stream;
    void *d_weights, *d_act, *d_scratch, *d_inv_freq;
    unsigned char *d_kv; /* kv_reserved bytes of addresses, kv_mapped of memory */
    uint64_t kv_reserved, kv_mapped;
    float *d_kv_scale;       /* of all groups, or NULL */
    struct fdk_row *d_state; /* [S + 1], the last is the dummy row */
    int32_t *d_table;        /* [groups][S + 1][stride] */
    unsigned char *d_plan;
    unsigned char *d_others; /* [n_copy] plans, of run_dev_plan(); copies that share tokens */
    int32_t *d_slots;        /* [T] 0, 1, ..: of the stage */
    unsigned char *d_stage; /* keys and values of a step's tokens, a layer at a time */
    struct fdk_result *d_results; /* [O] */
    struct fdk_result *d_all; /* [O] of all copies, in the step's order; NULL: one copy */
    uint16_t *d_counts;       /* the pool: penalty counts, [n_penalty][vocab] */
    int32_t *d_rules;         /* rules, [n_penalty][fdk_rules_words(vocab)] */
    float *d_chosen;          /* [n_penalty][FDK_MAX_CHOSEN] */
    unsigned char *h_kv;      /* [n_host] blocks */
    struct fdk_kv kv[FDK_MAX_KV_GROUPS]; /* runner.kv at this device's addresses */
    struct run_form form[2];             /* run_form() */
    struct run_form split[2];            /* of steps that copies divide; several copies */
    struct fdk_launch *launch;           /* of the program being launched */
    struct run_pad *pad;                 /* [cap.n] for as many outputs as there may be */
    struct run_pad *few; /* [cap.n] for run_few() outputs; T 0 where that is none */
    struct run_pad *divided; /* [cap.n] of steps that copies divide, with the outputs of few, or
                                of pad where that is none; several copies */
    int32_t n_pad;
    struct run_pad full;       /* the largest step */
    struct run_pad full_split; /* the same, divided; several copies */
    struct run_views *views; /* [CAP_MAX + 1 + n_rec] of divided, full_split and eager; copies
                                  that share tokens */
    struct run_pad *eager;   /* [n_rec] a record's step that no size holds: must
                                stay as it is until the step is done */
    fdk_event_t *ev_begin;   /* [n_rec] */
    fdk_event_t *ev_end;     /* [n_rec] */
    fdk_event_t ev_copy[2];  /* begin and end of the last block copies */
    int32_t n_copy;          /* blocks of those, 0: time taken already */
    struct run_marks *marks; /* of the step being launched; NULL: it is not measured */
    uint32_t *h_mark;  /* pinned: the epoch of the last step that has passed its mark */
    int marking;       /* the program that is being launched has a mark */
    int single;        /* it goes operation by operation: the step is measured */
    int halves;        /* it goes in halves */
    uint64_t n_halves; /* steps that did; the launching thread's */
    struct run_mem mem;
    uint64_t mem_before; /* free before graphs were recorded */
};

/* What is posted to the launch threads. */
enum run_post_kind {
    RUN_POST_STEP,   /* rec */
    RUN_POST_COPIES, /* n posts RUN_POST_COPY follow: one batch */
    RUN_POST_COPY,
    RUN_POST_DUP,
    RUN_POST_CLEAR, /* block n */
    RUN_POST_FAIL,  /* tests: the device of rank n */
    RUN_POST_CALL   /* call.fn(dev, n) */
};
typedef int run_dev_fn(struct run_dev *dev, int32_t arg);
struct run_post {
    enum run_post_kind kind;
    int32_t n;
    union {
        struct bat_rec *rec;
        struct kv_copy copy;
        struct kv_dup dup;
        struct {
            run_dev_fn *fn;
        } call;
    };
};

/* A rank's launch thread. */
struct run_rank {
    struct lnk_cursor bell;
    uint64_t done; /* posts it is done with; its own */
    pthread_t thread;
};
struct run_ranks {
    struct run_rank at[FDK_MAX_RANKS];
    uint64_t tail; /* posts; the poster's */
    uint64_t mask;
    struct run_post *post; /* [mask + 1] */
    uint64_t *seq;         /* [n_rec] posts up to the record's step */
    int32_t *ended; /* [n_rec] ranks, from 0 on, that the step has ended on; the poster's */
    int32_t look;   /* the rank whose device was last asked whether it failed */
    int32_t failed; /* 1 + the first rank that failed, 0: none. It is the group's: from
                                then on no thread does what is posted */
    int rc;         /* its error */
    uint64_t spin_ns;
    int32_t n, n_thread;
    int stop;
    int32_t stalled; /* tests: a rank from 1 on whose thread has stopped */
    /* Tests: called by a launch thread before it launches a step; set while it is idle. */
    void (*hook)(void *arg, int32_t rank);
    void *hook_arg;
};

/* The group: one program and its steps, on the devices of its ranks. */
struct runner {
    uint32_t magic;
#define RUN_MAGIC 0x52554e31u
    const struct fdk_ops *k;
    struct fdk_ctx *ctx;
    struct run_dev *dev; /* [n_rank] */
    int32_t n_rank;
    int32_t n_copy;
    int32_t kv_split;  /* ranks that share the tokens of their KV heads, */
    int32_t kv_copies; /* those of kv_copies copies: mdl_program.kv_copies */
    struct fdk_group *group[FDK_MAX_RANKS]; /* [copy] of its ranks' collectives, or NULL */
    struct fdk_group *copies[FDK_MAX_RANKS]; /* [place] of the ranks there, or NULL */
    struct fdk_group *owners[FDK_MAX_RANKS]; /* [run_owners_at()] of those that share, or NULL */
    uint32_t spin_limit_us;
    int in_host;                           /* run_open_args.in_host */
    unsigned char *h_embed[FDK_MAX_RANKS]; /* in_host: each rank's shard of the table of
                                                 embeddings, pinned */
    struct run_ranks *ranks;               /* the launch threads; NULL: one rank */
    int spin;                              /* threads may poll */
    struct run_sums *sums;                 /* while run_sums_*() run */
    int use_graph;
    struct cap cap;
    uint64_t delay_ns;
    struct mdl_program *prog;
    const struct wts_plan *wp;
    char error[512];    /* run_error() of several ranks */
    uint16_t *h_counts; /* what the pools of all ranks are filled from */
    int32_t *h_rules;
    int32_t n_penalty, n_host;
    struct fdk_kv kv[FDK_MAX_KV_GROUPS]; /* the layouts: base and scale are the devices' */
    struct bat_dims dims;
    enum fdk_dtype act;   /* of activations */
    int32_t att_a, att_b; /* query rows per token and of a tile */
    uint32_t *att_bytes;  /* dims.more: of a size's attention plans */
    int32_t att_op;       /* the first attention operation, -1: none */
    int32_t R;            /* rows of a logits slice */
    int unfused;          /* each operation is a launch of its own */
    int32_t halves_least; /* run_open_args.halves_least, 0 where nothing goes ahead */
    struct bat_rec *rec;  /* [n_rec] */
    int32_t n_rec;
    uint64_t n_graph, n_eager;   /* steps launched */
    uint64_t n_split;            /* of them, those that copies divided */
    uint64_t host, host_penalty; /* pinned bytes: of all records; of the pool */
    int32_t mark_op;             /* the operation that the mark precedes */
    uint64_t t_marked_ns; /* least host time that launching a measured step took, 0 */
};

/* Its results are the step's, its times too. */
static inline struct run_dev *
run_root(const struct runner *run)
{
    return run->dev;
}

/* Steps that went in halves; any thread's. */
static inline uint64_t
run_halved(const struct runner *run)
{
    return __atomic_load_n(&run_root(run)->n_halves, __ATOMIC_RELAXED);
}

static inline int32_t
run_rank(const struct run_dev *dev)
{
    return (int32_t)(dev - dev->run->dev);
}

/* Ranks of a copy, the device's copy, and its place there. */
static inline int32_t
run_copy_ranks(const struct runner *run)
{
    return run->n_rank / run->n_copy;
}

static inline int32_t
run_copy(const struct run_dev *dev)
{
    return run_rank(dev) / run_copy_ranks(dev->run);
}

static inline int32_t
run_place_of(const struct run_dev *dev)
{
    return run_rank(dev) % run_copy_ranks(dev->run);
}

/* Of those that share the tokens of the rank's KV heads: which it is, and which group they
 * are. */
static inline int32_t
run_own(const struct run_dev *dev)
{
    int32_t copies = dev->run->kv_copies, each = dev->run->kv_split / copies;

    return (copies > 1 ? run_copy(dev) : 0) * each + run_place_of(dev) % each;
}

static inline int32_t
run_owners_at(const struct run_dev *dev)
{
    int32_t copies = dev->run->kv_copies, each = dev->run->kv_split / copies;
    int32_t n = run_copy_ranks(dev->run) / each;

    return (copies > 1 ? 0 : run_copy(dev) * n) + run_place_of(dev) / each;
}

/* -ENODEV (no such device here), -ENOTSUP (unknown backend), -ENOMEM; err
 * says why. */
int
run_new(const struct run_open_args *a, struct runner **ret, char *err, size_t err_bytes);
struct runner *run_free(struct runner *run);
/* Memory the device has left. */
uint64_t run_mem_free(const struct run_dev *dev);

/* Take the program and fill its weights. wp NULL: the program has none. Both
 * must stay until run_free(). */
int run_load(struct runner *run, struct mdl_program *prog, const struct wts_plan *wp,
    const struct wts_load_args *la, char *err, size_t err_bytes);
/* After run_load(), before the first step that counts: the weights are on all devices. Each byte
 * of the files is read once, whatever the number of ranks. */
int run_load_wait(struct runner *run, char *err, size_t err_bytes);
/* Place buffers, reserve the KV pool's addresses, bind the program and make
 * the step records. */
int
run_setup(struct runner *run, const struct run_setup_args *a, char *err, size_t err_bytes);
/* Run an empty step and, with record, do the graphs of all sizes. Without memory
 * for one: -ENOMEM before run_map_kv(), graphs are off after it. */
int run_warm(struct runner *run, int record);
/* Give the KV pool memory for n_block blocks, dummy included. */
int run_map_kv(struct runner *run, int32_t n_block, char *err, size_t err_bytes);
/* Other sizes, or graphs on or off, while no step is on its way: graphs are
 * dropped; run_warm() records the new ones, or the first steps do. */
int run_recapture(struct runner *run, int use_graph, const struct cap *cap);

/* Run copy commands before the next step that is launched. */
int run_copies(struct runner *run, const struct kv_copy *copy, int32_t n);
/* Behind those, and behind the steps launched before: blocks of the device to others. */
int run_dups(struct runner *run, const struct kv_dup *dup, int32_t n);
/* Zeros in a block, of the same order. */
int run_clear(struct runner *run, int32_t block);
/* Tests: a rank's device fails, behind all that was launched. */
int run_fail(struct runner *run, int32_t rank);
/* Tests: a rank's launch thread stops, before the next step that is posted. */
void run_stall(struct runner *run, int32_t rank);
/* Time the last block copies took, once; 0: none, or not known yet. *ret_n:
 * blocks. */
uint64_t run_copy_ns(struct runner *run, int32_t *ret_n);
/* Launch a filled record, or have it launched. 0 or -errno, after which the device is lost. With
 * rec->marks it goes operation by operation, with an event after each; run_max_marks()
 * of them are enough. */
int run_launch(struct runner *run, struct bat_rec *rec);
int32_t run_max_marks(const struct runner *run);
/* Is it done? 1, 0 or -errno. */
int run_done(struct runner *run, const struct bat_rec *rec);
/* May steps of that padded size have marks? */
int run_can_mark(const struct runner *run, int32_t T_pad);
/* Is the step with rec->mark past its mark? */
int run_marked(const struct runner *run, const struct bat_rec *rec);
/* Wait until it is. 0 or -errno. */
int run_wait(struct runner *run, const struct bat_rec *rec);
/* The same until until_ns at most: 1 done, 0 not yet, -errno. expect_ns: when it will be
 * done as far as is known, 0 unknown; host threads sleep until shortly before. */
int run_wait_until(struct runner *run, const struct bat_rec *rec, uint64_t expect_ns,
    uint64_t until_ns);
/* What launching a step puts into the device's queue: a command an operation, to which
 * a backend adds less than half as many. */
int32_t run_n_cmd(const struct runner *run, const struct bat_rec *rec);
/* Wait for it: rec->results[0 .. n_out) are valid. When the device began and
 * ended it: CLOCK_MONOTONIC, ns. */
int run_collect(struct runner *run, struct bat_rec *rec, uint64_t *ret_begin_ns,
    uint64_t *ret_end_ns);
/* The same of one rank, after run_collect(). */
void run_times(const struct runner *run, const struct bat_rec *rec, int32_t rank,
    uint64_t *ret_begin_ns, uint64_t *ret_end_ns);
/* Any thread: are graphs replayed now? */
static inline int
run_uses_graph(const struct runner *run)
{
    return __atomic_load_n(&run->use_graph, __ATOMIC_RELAXED);
}
/* Why a launch failed: what a device says, or the operation that there is no kernel for. Of
 * several ranks it names the one at fault and its device. */
const char *run_error(struct runner *run);

/* ---- runner_ranks.c: several ranks --------------------------------------------- */

/* Start the launch threads; one rank has none. n_post: posts that there is room for. */
int run_ranks_start(struct runner *run, int32_t n_post);
void run_ranks_stop(struct runner *run);
int run_post(struct runner *run, const struct run_post *p);
int run_post_copies(struct runner *run, const struct kv_copy *copy, int32_t n);
/* fn on each rank, by its launch thread if there are any, behind all that was posted. Returns
 * when all have done it, or the first error. */
int run_on_all(struct runner *run, run_dev_fn *fn, int32_t arg);
/* Is all done that was posted? */
int run_ranks_idle(const struct runner *run);
/* The first error of a launch thread, or 0. */
int run_ranks_rc(const struct runner *run);
/* Has a record's step ended on all ranks? 1, 0, or the error of any rank. */
int run_ranks_query(struct runner *run, size_t rec);
/* Wait for that, as run_wait_until(). */
int run_ranks_wait(struct runner *run, size_t rec, uint64_t expect_ns, uint64_t until_ns);
void run_ranks_error(const struct runner *run, char *ret, size_t ret_bytes);

/* ---- runner_near.c ------------------------------------------------------------------- */

/* The calling thread runs on the processors near the device, as far as it may use some of
 * them; says so. */
void run_pin(const struct run_dev *dev);
/* "0-3,8". -EINVAL. */
int run_cpus_parse(const char *list, cpu_set_t *ret);

/* ---- runner_sums.c: a group's collectives before they are used -------------------- */

/* Sums over ranks and what they gather, of sizes from 16 bytes on to the largest that the
 * activations have room for, against what must come out. After run_setup(), while nothing
 * runs; activations are overwritten. One rank: 0. -EIO: err names the rank and the size. */
int run_sums_check(struct runner *run, char *err, size_t err_bytes);
/* The way that is the fastest for each size becomes the group's: *ret. Starts no size when
 * budget_ns is over: then 1, and the ways are as they were. 0, or what a device failed
 * with, or -ENOMEM. The order of additions is that of ranks either way, so numbers do not change. */
int run_sums_choose(struct runner *run, uint64_t budget_ns, struct fdk_group_ways *ret);
/* These for the groups of all copies. */
void run_sums_set(const struct runner *run, const struct fdk_group_ways *ways);

/* ---- runner_launch.c: one rank ---------------------------------------------------- */

int run_launch_rank(struct run_dev *dev, struct bat_rec *rec);
int run_copies_begin(struct run_dev *dev);
int run_copy_one(struct run_dev *dev, const struct kv_copy *c);
int run_copies_end(struct run_dev *dev, int32_t n);
int run_dup_one(struct run_dev *dev, const struct kv_dup *d);
int run_clear_one(struct run_dev *dev, int32_t block);
/* The bounds of a size of the capture list. */
struct run_pad *run_pad_of(struct run_dev *dev, int32_t T_pad, int32_t n_out);
/* The same of a divided step. */
struct run_pad *run_divided_of(const struct run_dev *dev, int32_t T_pad);
/* Has a divided step of such a size, whose plans are made, the outputs of its graph? Copy 0
 * alone has outputs there: the others' are prompt logprobs. */
int run_split_fits(const struct runner *run, const struct bat_rec *rec);
/* Of the copies' outputs the most. */
int32_t run_most_outs(const struct runner *run, const struct bat_rec *rec);
/* Is the step to be a graph? */
int run_replays(const struct runner *run, const struct bat_rec *rec);
/* What all ranks do, of run_on_all(): choose how products are computed; launch the largest step;
 * launch and record size i; count what graphs took; take the sizes of run->cap; wait. */
run_dev_fn run_warm_choose, run_warm_full, run_record_size, run_warm_end, run_new_pads,
    run_sync_dev;

/* ---- runner_program.c --------------------------------------------------------- */

/* The program of the null model: it only samples. NULL: no memory. */
struct mdl_program *run_null_program(void);
#define RUN_NULL_VOCAB 259
#define RUN_NULL_BOS   256
#define RUN_NULL_EOS   257
#define RUN_NULL_LEN   65536
/* Offsets of the program's buffers in one arena such that buffers alive at
 * the same time never overlap, nor those that a fusion of the backend reads until it ends, nor,
 * with halves, those of operations that may be launched in halves; off[n_buf]. */
int
run_place(const struct fdk_ops *k, const struct mdl_program *p, const struct bat_dims *d,
    int32_t R, enum fdk_dtype act, int halves, size_t *off, size_t *ret_bytes);
/* Bytes of buffer i. */
size_t run_buf_bytes(const struct mdl_program *p, const struct bat_dims *d, int32_t R,
    enum fdk_dtype act, int32_t i);
/* Bytes of an array of fdk_sample_args.chosen. */
static inline uint64_t
run_chosen_bytes(int32_t n_entry)
{
    return (uint64_t)n_entry * FDK_MAX_CHOSEN * sizeof(float);
}
/* Rows of a logits slice. */
int32_t run_logits_rows(const struct fdk_ops *k, int32_t vocab, int32_t O);
/* Scratch for the largest launch. Of the runner: k, ctx, prog, wp, kv, dims, act, R and the
 * shape of attention tiles; nothing needs to be allocated. */
size_t run_scratch_bytes(const struct runner *run);

/* ---- runner_bind.c ------------------------------------------------------------ */

/* Bind the program; needs everything allocated. */
int run_bind(struct run_dev *dev, const size_t *off);
void run_unbind(struct run_dev *dev);
/* With this tail. */
const struct run_form *run_form(const struct run_dev *dev, enum mdl_tail tail);
/* Of that size's launch. */
const struct run_form *run_pad_form(const struct run_dev *dev, const struct run_pad *pad);
/* What a padded size brings. */
void run_step(const struct run_pad *pad, struct fdk_step *ret);
/* Have the backend find out how it computes each product (fdk_ops.gemm_choose), so that no
 * step waits for that. */
int run_choose(struct run_dev *dev);
/* Launch the whole program for one padded size. */
int run_program(struct run_dev *dev, const struct run_pad *pad);
/* Where marks go: mark_op. */
void run_place_mark(struct runner *run);
/* What was launched since the mark before is this line. Nothing without dev->marks. */
int run_mark(struct run_dev *dev, int32_t line);

/* ---- runner_check.c ----------------------------------------------------------- */

/* After run_setup(): 0, or -ENOTSUP where no kernel takes an operation, with
 * its name, its shape and what is taken in err. What only a slow kernel takes is logged, and
 * what run_check_sizes() finds. */
#define RUN_TAKES_TEXT 512
int run_check(struct runner *run, char *err, size_t err_bytes);
/* runner_embed.c: the table of embeddings in the host's memory, with in_host. Bytes of a rank's
 * shard. */
uint64_t run_embed_bytes(const struct mdl_program *prog, const struct wts_plan *wp);
/* Memory for it, and what was taken is given back. 0 or -errno with one line in err. */
int run_embed_new(struct runner *run, char *err, size_t err_bytes);
void run_embed_free(struct runner *run);
/* After run_load_wait(): the shards are there. The same. */
int run_load_embed(struct runner *run, char *err, size_t err_bytes);

/* After run_warm(): log what the first launches did otherwise than run_check() found. */
void run_check_launches(struct runner *run);
/* It, or "". */
const char *run_fell_back(const struct runner *run);
/* Log where the list of sizes cuts a class of rows (fdk_ops.gemm_class) in two. */
void run_check_sizes(struct runner *run);
/* As fdk_ops.op_takes(), of operation i of the form in that step. */
int run_op_takes(const struct run_dev *dev, const struct run_form *f, int32_t i,
    const struct fdk_step *s, char *why, size_t why_bytes);

/* ---- runner_setup.c, run_setup()'s parts ----------------------------------------- */

/*
 * Up to how many outputs a step of T tokens has a graph of its own, with
 * MDL_TAIL_OUTPUTS; 0: none. At most half of the tokens, and on a device where the rows
 * of a GEMM cost nothing up to a number of them, this number, for steps of more tokens.
 * So a decoding step, all of whose tokens are outputs, never takes it.
 */
int32_t run_few(const struct fdk_ops *k, const struct mdl_program *p, int32_t T);
/* Graphs of all sizes. */
int32_t
run_n_graph(const struct fdk_ops *k, const struct mdl_program *p, const struct cap *cap);
/* The tail of a step of T tokens with at most O outputs. */
enum mdl_tail run_tail(const struct runner *run, int32_t T, int32_t O);
/* What a launch of T tokens with at most O outputs needs to know. Of copies that have no
 * outputs in steps that are not divided: O 0. */
void run_pad_init(const struct run_dev *dev, int32_t T, int32_t O, struct run_pad *ret);
/* Are graphs replayed from now on? The engine thread alone. */
void run_set_graph(struct runner *run, int on);
/* The type of activations: what the first matrix of the program asks for. */
enum fdk_dtype
run_act(const struct fdk_ops *k, const struct mdl_program *p, const struct wts_plan *wp);
/* The shape of attention tiles, and room for their plans in dims: att_bytes, the caller's
 * to free. -ENOMEM. */
int run_tiles(struct runner *run);
/* Where plan i of a step of T tokens lies in a step plan at base. */
struct run_att
run_att_at(const struct runner *run, int32_t T, int32_t i, unsigned char *base);
/* The same of a divided step, in which the copy has O outputs and the one that has most of
 * them `most`. */
void run_split_init(const struct run_dev *dev, int32_t T, int32_t O, int32_t most,
    struct run_pad *ret);
/* The same for a record's step: run_dev.eager[rec]. */
void
run_eager_split(const struct run_dev *dev, size_t rec, int32_t T, int32_t O, int32_t most);
/* Where the device has the plan of copy p, which may be its own. */
unsigned char *run_plan_at(const struct run_dev *dev, int32_t p);
/* Fill a plan's attention plans for the tail that it will have. plan: the record's, or a
 * copy's. */
int run_att_plans(struct runner *run, const struct bat_rec *rec, unsigned char *plan,
    const struct run_pad *pad);
/* Bytes of what follows from the dimensions and the tiles alone. */
struct run_sizes {
    uint64_t rows, tables, plan, results;
    uint64_t all;                  /* results of all copies; 0: one copy */
    uint64_t others, slots, stage; /* of copies that share tokens: plans, the stage's slots,
                                      keys and values of a layer; else 0 */
};
struct run_sizes run_sizes(const struct runner *run);
/* Allocate on the device; err says for what. */
int run_dev_alloc(struct run_dev *dev, const char *what, uint64_t bytes, void *ret_p,
    char *err, size_t err_bytes);
/* All of run_setup() but launching. */
int run_setup_all(struct runner *run, const struct run_setup_args *a, char *err,
    size_t err_bytes);
/* Other sizes, without graphs. */
void run_pads(struct run_dev *dev, const struct cap *cap);
/* Everything run_setup() made. */
void run_teardown(struct runner *run);
/* Wait for all that was launched, on all devices. */
int run_sync(struct runner *run);

#endif
