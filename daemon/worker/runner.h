/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The runner: the devices of a group's ranks, the program bound to each of them, and the
 * steps in flight. A step record is independent of the device: every rank launches it.
 * Opened and filled by the worker's main thread (run_new, run_load,
 * run_setup, in this order), then used by the engine thread only.
 *
 * One rank: the engine thread launches. Several: it plans the step and posts it, and a
 * launch thread for each rank does the rest (runner_ranks.c): uploads, updates of rows,
 * block copies, the program or its graph, results. These threads never wait for each
 * other; devices synchronize in the program's collectives, which have a time limit. Every
 * rank samples all rows from the same gathered logits with the same kernel, so all ranks
 * choose the same tokens and the state of a row is never exchanged. Each device repeats
 * the sampling, which saves two collectives per step. The host reads rank 0's results.
 *
 *   run_launch()   plan up, updates, program (graph or eager), results down (rank 0's),
 *                  event: all asynchronous, on one stream per device
 *   run_collect()  waits for the events of one record
 *
 * Steps run in order on the stream, so a step may be launched before the step
 * ahead of it is done. Copies of KV blocks to and from the host use a second
 * stream while a step runs; the stream of the next step waits for them.
 *
 * There are n_copy copies of the program's ranks: rank p * prog->n_rank + t is place t of
 * copy p. A step that copies divide (bat_rec.n_split) has one plan per copy. The engine
 * thread makes these plans before it posts the step, because block tables may change
 * afterwards. Any other step has one plan for all copies. Only copy 0 has the outputs of
 * rows that all copies compute, and samples them; MDL_OP_ROWSHARE sends the results to
 * the other copies.
 *
 * A step with bat_rec.mark set reports when about three quarters of it are
 * done: run_marked(). The mark is a launch of its own, so small steps, whose GEMM time is
 * that of reading the weights (fdk_ops.gemm_rows), have none.
 *
 * The order of setup keeps graph capture from running out of memory: buffers,
 * the KV pool's addresses without memory (run_setup), graphs (run_warm), the
 * KV pool's memory (run_map_kv). Nothing is allocated after that, except by
 * graphs captured lazily: if graph.use_cudagraph is on and the backend has
 * graphs, the first step of each size in the capture list captures its graph.
 * run_warm() captures them before the worker reports "ready".
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

/* Upper bound in bytes of the logits buffer, which holds one slice of rows (at least 1).
 * On the host a slice stays in the caches; a device reads the head's weights
 * once per slice. */
#define RUN_LOGITS_BYTES     (16u << 20)
#define RUN_LOGITS_BYTES_DEV (512u << 20)

struct run_open_args {
    const char *backend;   /* "auto", "cpu", "cuda", "null" */
    int32_t n_device;      /* fdk_open_args.n_device; 0: one */
    const int32_t *device; /* fdk_open_args.device */
    uint32_t dead;         /* fdk_open_args.dead */
    int32_t n_rank;        /* ranks of the group, over all copies; 0: one */
    int32_t n_copy;        /* 0: one; divides n_rank */
    const int32_t *rank;   /* [n_rank] index of each rank's device, no index twice; NULL:
                              0, 1, .. */
    const char *const *name; /* [n_device] for errors; NULL: backend and number */
    uint32_t spin_limit_us;  /* fdk_group_args.spin_limit_us; 0: no collectives */
    int in_host;       /* ranks cannot access each other's memory: shared data is in host
                          memory. Needs n_copy 1 */
    int32_t kv_split;  /* mdl_program.kv_split; 0: one */
    int32_t kv_copies; /* mdl_program.kv_copies; 0: one */
    int32_t n_thread, nice, spin_us;
    int32_t max_token;
    enum fdk_exec exec;   /* virtual devices: which thread runs the commands */
    int deterministic;    /* fdk_open_args.deterministic */
    int unfused;          /* each operation is a launch of its own */
    int32_t halves_least; /* eager steps of at least that many tokens run in halves
                             (fdk_step.halves) if a copy has two ranks; 0: no step does */
    const struct mdl_program *prog; /* with halves_least: as for run_load() */
    const struct wts_plan *wp;      /* with halves_least: as for run_load() */
    const char *cache_dir;          /* fdk_open_args.cache_dir; NULL: none */
};

struct run_setup_args {
    struct bat_dims dims;
    struct fdk_kv kv[FDK_MAX_KV_GROUPS]; /* the program's KV groups without base, scale */
    const float *kv_scale; /* the model's scales, in host memory, [layers][2][K]; NULL:
                              all 1. Ignored if kv.dtype has no scales */
    int32_t max_block;     /* KV blocks to reserve addresses for, dummy included */
    int32_t n_rec;         /* maximum of steps in flight */
    int32_t n_host;        /* host blocks, 0: none */
    int32_t n_penalty;     /* entries of the pool of penalty counts and rules */
    int use_graph;
    struct cap cap;    /* sizes to capture */
    uint64_t delay_ns; /* device time added to every step (virtual devices) */
};

/* The program with one tail, bound to the device. Each slice of logits and sampling is an
 * operation of its own. */
struct run_form {
    struct fdk_op *op;
    int32_t *line; /* [n] index of each op in the program's operations */
    int32_t n;
    struct fdk_bound *bound;
};

/* A run_mark is an event at the end of a section of a step. Its line is the index of the
 * program's operation, or n_op + enum run_line for the sections outside the program. */
enum run_line {
    RUN_LINE_DELAY,   /* waiting for delay_ns */
    RUN_LINE_UPLOAD,  /* uploading the step plan */
    RUN_LINE_UPDATES, /* updating row states, block tables, penalty counts, rules */
    RUN_LINE_RESULTS, /* copying results to the host */
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

/* An attention plan within a step plan, in host or device memory. */
struct run_att {
    int32_t *counts;       /* [2] tiles, tiles done */
    struct fdk_work *work; /* [n_work] */
    void *plan;            /* the backend's own data */
    int32_t group;         /* index of the KV group */
};

/* One padded size: its launch bounds and, once captured, its graph. */
struct run_pad {
    int32_t T, S, O; /* O 0: no outputs, and no operation that only outputs need */
    int32_t most;    /* outputs of the copy with the most */
    enum mdl_tail tail;
    int split;                     /* copies divide the step */
    const int32_t *out_at;         /* with split: bat_layout.out_at on the device */
    const struct run_views *views; /* with split, if copies share tokens: their plans */
    int32_t n_work;                /* maximum of attention tiles */
    struct run_att att[FDK_MAX_KV_GROUPS + 1]; /* for each KV group the plan of all its
                                tiles, then the tail's plan, of the tiles with outputs */
    struct fdk_batch b[FDK_MAX_KV_GROUPS];
    struct fdk_graph *graph;
};

/* Each copy's view of a divided step, for a rank that holds KV of some tokens of all
 * copies; stage: the view whose slots are those of this rank's stage. */
struct run_views {
    struct run_att att[FDK_MAX_RANKS][FDK_MAX_KV_GROUPS + 1];
    struct fdk_batch b[FDK_MAX_RANKS][FDK_MAX_KV_GROUPS];
    struct fdk_batch stage;
};

/* Memory of a rank in bytes. state: rows and block tables; plan: the step plan and
 * results; collectives: the workspace of the group. */
struct run_mem {
    uint64_t weights, kv, kv_scales, activations, scratch, state, plan, penalty, graphs;
    uint64_t collectives;
    uint64_t host_kv;
    uint64_t in_host; /* host memory for in_host: workspaces, embedding shard */
};

/* A rank's device: its memory, and the program bound to the addresses of that memory. */
struct runner;
struct run_dev {
    struct runner *run;
    int32_t idx; /* device index in run->ctx */
    char name[24];
    char refused[160]; /* error text of a refused launch or of a failed allocation */
    fdk_stream_t stream, copy_stream;
    void *d_weights, *d_act, *d_scratch, *d_inv_freq;
    unsigned char *d_kv; /* the KV pool: kv_reserved bytes, kv_mapped of them mapped */
    uint64_t kv_reserved, kv_mapped;
    float *d_kv_scale;       /* KV scales of all KV groups, or NULL */
    struct fdk_row *d_state; /* [S + 1], the last is the dummy row */
    int32_t *d_table;        /* [groups][S + 1][stride] */
    unsigned char *d_plan;
    unsigned char *d_others; /* if copies share tokens: [n_copy] plans, run_plan_at() */
    int32_t *d_slots;        /* [T] slot map of the stage: 0, 1, .. */
    unsigned char *d_stage;  /* keys and values of one layer for all tokens of a step */
    struct fdk_result *d_results; /* [O] */
    struct fdk_result *d_all;     /* [O] results of all copies in step order; NULL:
                                     one copy */
    uint16_t *d_counts;           /* the pool's penalty counts, [n_penalty][vocab] */
    int32_t *d_rules;    /* the pool's rules, [n_penalty][fdk_rules_words(vocab)] */
    float *d_chosen;     /* logprobs of chosen ids, [n_penalty][FDK_MAX_CHOSEN] */
    unsigned char *h_kv; /* [n_host] host KV blocks, pinned */
    struct fdk_kv kv[FDK_MAX_KV_GROUPS]; /* runner.kv with this device's addresses */
    struct run_form form[2];             /* see run_form() */
    struct run_form split[2];            /* for steps that copies divide */
    struct fdk_launch *launch;           /* launches of the program being launched */
    struct run_pad *pad;                 /* [cap.n] for the maximum of outputs */
    struct run_pad *few; /* [cap.n] for up to run_few() outputs; T 0: run_few() is 0 */
    struct run_pad *divided; /* [cap.n] with several copies: for steps that copies divide,
                                with few's limit of outputs, or pad's if few has T 0 */
    int32_t n_pad;
    struct run_pad full;       /* the largest step */
    struct run_pad full_split; /* with several copies: the largest step, divided */
    struct run_views *views;   /* [CAP_MAX + 1 + n_rec] views of divided, full_split and
                                  eager, if copies share tokens */
    struct run_pad *eager;     /* [n_rec] bounds of a record's step that fits no captured
                                  size: unchanged until the step is done */
    fdk_event_t *ev_begin;     /* [n_rec] */
    fdk_event_t *ev_end;       /* [n_rec] */
    fdk_event_t ev_copy[2];    /* begin and end of the last batch of block copies */
    int32_t n_copy;            /* blocks in that batch; 0: its time was read already */
    struct run_marks *marks;   /* events of the step being launched; NULL: no events */
    uint32_t *h_mark;  /* pinned: the epoch of the last step that has passed its mark */
    int marking;       /* the program being launched has a mark */
    int single;        /* the program is launched without fusions: the step is measured */
    int halves;        /* the program is launched in halves */
    uint64_t n_halves; /* steps launched in halves; written by the launching thread */
    struct run_mem mem;
    uint64_t mem_before; /* bytes free before graphs were captured */
};

/* A post: one entry of the ring that all launch threads read. */
enum run_post_kind {
    RUN_POST_STEP,   /* launch rec */
    RUN_POST_COPIES, /* begin a batch of n block copies, the next n posts */
    RUN_POST_COPY,
    RUN_POST_DUP,
    RUN_POST_CLEAR, /* fill block n with zeros */
    RUN_POST_FAIL,  /* tests: make the device of rank n fail */
    RUN_POST_CALL   /* run call.fn(dev, n) */
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
    uint64_t done; /* posts executed; written by this thread */
    pthread_t thread;
};
struct run_ranks {
    struct run_rank at[FDK_MAX_RANKS];
    uint64_t tail; /* number of posts so far; written by the poster */
    uint64_t mask;
    struct run_post *post; /* [mask + 1] */
    uint64_t *seq;         /* [n_rec] number of posts up to and with the record's step */
    int32_t *ended;        /* [n_rec] the step has ended on ranks below it;
                              the poster's */
    int32_t look;          /* the rank whose device was last checked for a failure */
    int32_t failed; /* 1 + the first rank that failed, 0: none. Then the group has failed:
                       all threads skip the remaining posts */
    int rc;         /* -errno of that rank */
    uint64_t spin_ns;
    int32_t n, n_thread;
    int stop;
    int32_t stalled; /* tests: 1 + the rank whose thread is stopped, 0: none */
    /* Tests: a launch thread calls hook before it launches a step. Set only while
     * idle. */
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
    int32_t kv_split;  /* mdl_program.kv_split: ranks that share a KV head's tokens */
    int32_t kv_copies; /* mdl_program.kv_copies: copies that these ranks belong to */
    struct fdk_group *group[FDK_MAX_RANKS]; /* [copy] collectives of its ranks, or NULL */
    struct fdk_group *copies[FDK_MAX_RANKS]; /* [place] of the ranks there in
                                                all copies */
    struct fdk_group *owners[FDK_MAX_RANKS]; /* [run_owners_at()] of ranks that
                                                share tokens */
    uint32_t spin_limit_us;
    int in_host;                           /* run_open_args.in_host */
    unsigned char *h_embed[FDK_MAX_RANKS]; /* in_host: each rank's shard of the table of
                                              embeddings, pinned */
    struct run_ranks *ranks;               /* the launch threads; NULL: one rank */
    int spin;                              /* threads may spin before they park */
    struct run_sums *sums;                 /* while run_sums_*() run */
    int use_graph;
    struct cap cap;
    uint64_t delay_ns;
    struct mdl_program *prog;
    const struct wts_plan *wp;
    char error[512];    /* text that run_error() returns with several ranks */
    uint16_t *h_counts; /* host copies of penalty counts and rules, uploaded by
                           all ranks */
    int32_t *h_rules;
    int32_t n_penalty, n_host;
    struct fdk_kv kv[FDK_MAX_KV_GROUPS]; /* the layouts, without base and scale */
    struct bat_dims dims;
    enum fdk_dtype act;   /* type of activations */
    int32_t att_a, att_b; /* query rows per token; query rows per tile */
    uint32_t *att_bytes;  /* [dims.T + 1] bytes of a step's attention plans;
                             is dims.more */
    int32_t att_op;       /* the first attention operation, -1: none */
    int32_t R;            /* rows of a logits slice */
    int unfused;          /* each operation is a launch of its own */
    int32_t halves_least; /* run_open_args.halves_least; 0: sums cannot be sent ahead */
    struct bat_rec *rec;  /* [n_rec] */
    int32_t n_rec;
    uint64_t n_graph, n_eager;   /* steps launched as a graph, and operation
                                    by operation */
    uint64_t n_split;            /* steps launched that copies divided */
    uint64_t host, host_penalty; /* pinned bytes of all records, and of the
                                    penalty pool */
    int32_t mark_op;             /* the operation that the mark precedes */
    uint64_t t_marked_ns; /* shortest host time to launch a measured step, 0: not known */
};

/* Rank 0's device. Its results and times are those of the step. */
static inline struct run_dev *
run_root(const struct runner *run)
{
    return run->dev;
}

/* Number of steps that ran in halves; any thread may call. */
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

/* Number of ranks per copy; the device's copy; its place in that copy. */
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

/* The rank's index among the ranks that share the tokens of its KV heads (run_own), and
 * the index of that set of ranks (run_owners_at). */
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

/* Returns 0, -ENODEV (no such device), -ENOTSUP (unknown backend) or -ENOMEM; err
 * says why. */
int
run_new(const struct run_open_args *a, struct runner **ret, char *err, size_t err_bytes);
struct runner *run_free(struct runner *run);
/* Bytes of free memory on the device. */
uint64_t run_mem_free(const struct run_dev *dev);

/* Take the program and load its weights. wp NULL: the program has no weights. prog and
 * wp must stay valid until run_free(). */
int run_load(struct runner *run, struct mdl_program *prog, const struct wts_plan *wp,
    const struct wts_load_args *la, char *err, size_t err_bytes);
/* Wait until the weights are on all devices; after run_load(), before the first real
 * step. Each byte of the files is read once, whatever the number of ranks. */
int run_load_wait(struct runner *run, char *err, size_t err_bytes);
/* Place buffers, reserve the KV pool's addresses, bind the program and make
 * the step records. */
int
run_setup(struct runner *run, const struct run_setup_args *a, char *err, size_t err_bytes);
/* Run an empty step and, with record, capture the graphs of all sizes. If memory for a
 * graph is lacking: before run_map_kv() returns -ENOMEM, after it turns graphs off. */
int run_warm(struct runner *run, int record);
/* Map memory for n_block blocks of the KV pool, dummy included. */
int run_map_kv(struct runner *run, int32_t n_block, char *err, size_t err_bytes);
/* Change the capture sizes or turn graphs on or off while no step is in flight. Drops all
 * graphs; run_warm() or the first step of each size captures the new ones. */
int run_recapture(struct runner *run, int use_graph, const struct cap *cap);

/* Run copy commands before the next step that is launched. */
int run_copies(struct runner *run, const struct kv_copy *copy, int32_t n);
/* Copy device blocks to other device blocks, after these copy commands and after all
 * steps launched so far. */
int run_dups(struct runner *run, const struct kv_dup *dup, int32_t n);
/* Fill a block with zeros, in the same order as run_dups(). */
int run_clear(struct runner *run, int32_t block);
/* Tests: make a rank's device fail, after all launched work. */
int run_fail(struct runner *run, int32_t rank);
/* Tests: stop a rank's launch thread before the next step that is posted. */
void run_stall(struct runner *run, int32_t rank);
/* Returns the time that the last batch of block copies took, once per batch, and sets
 * *ret_n to its number of blocks; 0: no batch, or its time is not known yet. */
uint64_t run_copy_ns(struct runner *run, int32_t *ret_n);
/* Launch a filled record, or post it to the launch threads. Returns 0, or -errno: the
 * device is lost. With rec->marks each operation is a launch of its own, with an event
 * after it; run_max_marks() events are enough. */
int run_launch(struct runner *run, struct bat_rec *rec);
int32_t run_max_marks(const struct runner *run);
/* Is the step done? Returns 1, 0 or -errno. */
int run_done(struct runner *run, const struct bat_rec *rec);
/* May steps of that padded size have marks? */
int run_can_mark(const struct runner *run, int32_t T_pad);
/* Has the device passed rec->mark of this step? */
int run_marked(const struct runner *run, const struct bat_rec *rec);
/* Wait until the step is done. Returns 0 or -errno. */
int run_wait(struct runner *run, const struct bat_rec *rec);
/* Wait until the step is done, but not beyond until_ns. Returns 1 done, 0 not yet,
 * -errno. expect_ns: predicted end of the step, 0: unknown; host threads sleep until
 * shortly before it. */
int run_wait_until(struct runner *run, const struct bat_rec *rec, uint64_t expect_ns,
    uint64_t until_ns);
/* Number of commands that launching a step puts into the device's queue: one per
 * operation; the backend adds less than half as many. */
int32_t run_n_cmd(const struct runner *run, const struct bat_rec *rec);
/* Wait for the step; then rec->results[0 .. n_out) are valid. *ret_begin_ns and
 * *ret_end_ns: when the device began and ended it, CLOCK_MONOTONIC in ns. */
int run_collect(struct runner *run, struct bat_rec *rec, uint64_t *ret_begin_ns,
    uint64_t *ret_end_ns);
/* The times of the step on one rank's device; after run_collect(). */
void run_times(const struct runner *run, const struct bat_rec *rec, int32_t rank,
    uint64_t *ret_begin_ns, uint64_t *ret_end_ns);
/* Are graphs replayed now? Any thread may call. */
static inline int
run_uses_graph(const struct runner *run)
{
    return __atomic_load_n(&run->use_graph, __ATOMIC_RELAXED);
}
/* Why a launch failed: the device's error text, or the operation that no kernel computes.
 * With several ranks it names the rank at fault and its device. */
const char *run_error(struct runner *run);

/* ---- runner_ranks.c: several ranks --------------------------------------------- */

/* Start the launch threads; one rank has none. n_post: smallest capacity of the ring
 * of posts. */
int run_ranks_start(struct runner *run, int32_t n_post);
void run_ranks_stop(struct runner *run);
int run_post(struct runner *run, const struct run_post *p);
int run_post_copies(struct runner *run, const struct kv_copy *copy, int32_t n);
/* Call fn for each rank, on its launch thread if it has one, after all earlier posts.
 * Waits until all ranks have called it; returns 0 or the first error. */
int run_on_all(struct runner *run, run_dev_fn *fn, int32_t arg);
/* Have all posts been executed? */
int run_ranks_idle(const struct runner *run);
/* The first error of a launch thread, or 0. */
int run_ranks_rc(const struct runner *run);
/* Has a record's step ended on all ranks? Returns 1, 0, or the error of any rank. */
int run_ranks_query(struct runner *run, size_t rec);
/* Wait for the end of a record's step on all ranks, as run_wait_until(). */
int run_ranks_wait(struct runner *run, size_t rec, uint64_t expect_ns, uint64_t until_ns);
/* The text of run_error() for several ranks. */
void run_ranks_error(const struct runner *run, char *ret, size_t ret_bytes);

/* ---- runner_near.c ------------------------------------------------------------------- */

/* Restrict the calling thread to the processors near the device, if it may use any of
 * them; logs the result. */
void run_pin(const struct run_dev *dev);
/* Parse a list of processors like "0-3,8". Returns 0 or -EINVAL. */
int run_cpus_parse(const char *list, cpu_set_t *ret);

/* ---- runner_sums.c: a group's collectives before they are used -------------------- */

/* Check the results of all-reduce and all-gather for sizes from 16 bytes to the largest
 * that fits into the activations. Call after run_setup() while no step runs; overwrites
 * the activations. Returns 0 (at once with one rank), or -EIO: err names the rank and
 * the size. */
int run_sums_check(struct runner *run, char *err, size_t err_bytes);
/* Measure which way of summing is fastest for each size, and use it from now on: *ret.
 * Starts no size once budget_ns is over; then returns 1 and keeps the ways in use.
 * Otherwise returns 0, -ENOMEM or the device's error. Every way adds in the order of
 * ranks, so results do not change. */
int run_sums_choose(struct runner *run, uint64_t budget_ns, struct fdk_group_ways *ret);
/* Elements of a row that is summed with a residual and a norm; 0: the program fuses no sum
 * with them. */
int32_t run_sums_row(const struct runner *run);
/* Set the ways of summing for the groups of all copies. */
void run_sums_set(const struct runner *run, const struct fdk_group_ways *ways);

/* ---- runner_launch.c: one rank ---------------------------------------------------- */

int run_launch_rank(struct run_dev *dev, struct bat_rec *rec);
int run_copies_begin(struct run_dev *dev);
int run_copy_one(struct run_dev *dev, const struct kv_copy *c);
int run_copies_end(struct run_dev *dev, int32_t n);
int run_dup_one(struct run_dev *dev, const struct kv_dup *d);
int run_clear_one(struct run_dev *dev, int32_t block);
/* The launch bounds of a size of the capture list. */
struct run_pad *run_pad_of(struct run_dev *dev, int32_t T_pad, int32_t n_out);
/* The launch bounds of a divided step of that size. */
struct run_pad *run_divided_of(const struct run_dev *dev, int32_t T_pad);
/* Do the outputs of a divided step, whose plans are made, fit the graph of its size? In
 * the graph only copy 0 has outputs: those of other copies are prompt logprobs. */
int run_split_fits(const struct runner *run, const struct bat_rec *rec);
/* The largest number of outputs of any copy. */
int32_t run_most_outs(const struct runner *run, const struct bat_rec *rec);
/* Will the step be launched as a graph? */
int run_replays(const struct runner *run, const struct bat_rec *rec);
/* Functions for run_on_all(), in this order: choose GEMM algorithms; launch the largest
 * step; launch and capture size i; count the memory of graphs; take the sizes of
 * run->cap; wait for the stream. */
run_dev_fn run_warm_choose, run_warm_full, run_record_size, run_warm_end, run_new_pads,
    run_sync_dev;

/* ---- runner_program.c --------------------------------------------------------- */

/* Make the program of the null model, which only samples. Returns NULL if out of
 * memory. */
struct mdl_program *run_null_program(void);
#define RUN_NULL_VOCAB 259
#define RUN_NULL_BOS   256
#define RUN_NULL_EOS   257
#define RUN_NULL_LEN   65536
/* Compute the offsets off[n_buf] of the program's buffers in one arena. Buffers alive at
 * the same time never overlap; inputs of a backend's fusion stay alive until it ends;
 * with halves, so do all buffers of operations that may be launched in halves. Returns 0
 * or -ENOMEM. */
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
/* Bytes of scratch that the largest launch needs. Reads the runner's k, ctx, prog, wp,
 * kv, dims, act, R, att_a and att_b, so it works before anything is allocated. */
size_t run_scratch_bytes(const struct runner *run);

/* ---- runner_bind.c ------------------------------------------------------------ */

/* Bind the program; all of the device's memory must be allocated. */
int run_bind(struct run_dev *dev, const size_t *off);
void run_unbind(struct run_dev *dev);
/* The bound program with this tail, for steps that are not divided. */
const struct run_form *run_form(const struct run_dev *dev, enum mdl_tail tail);
/* The bound program that a step of that padded size launches. */
const struct run_form *run_pad_form(const struct run_dev *dev, const struct run_pad *pad);
/* The launch arguments of a step of that padded size. */
void run_step(const struct run_pad *pad, struct fdk_step *ret);
/* Let the backend choose the algorithm of each GEMM (fdk_ops.gemm_choose), so that no
 * step waits for that. */
int run_choose(struct run_dev *dev);
/* Launch the whole program for one padded size. */
int run_program(struct run_dev *dev, const struct run_pad *pad);
/* Choose mark_op, the operation that the mark precedes. */
void run_place_mark(struct runner *run);
/* Record an event: the work launched since the previous one counts for this line. Does
 * nothing without dev->marks. */
int run_mark(struct run_dev *dev, int32_t line);

/* ---- runner_check.c ----------------------------------------------------------- */

/* Check after run_setup() that the backend has kernels for all operations. Returns 0, or
 * -ENOTSUP with the operation's name, its shape and the supported shapes in err. Logs
 * operations that only a slow kernel computes, and the findings of run_check_sizes(). */
#define RUN_TAKES_TEXT 512
int run_check(struct runner *run, char *err, size_t err_bytes);
/* runner_embed.c: the table of embeddings in host memory, for in_host. Returns the bytes
 * of a rank's shard. */
uint64_t run_embed_bytes(const struct mdl_program *prog, const struct wts_plan *wp);
/* Allocate and free the shards of all ranks. 0 or -errno with one line in err. */
int run_embed_new(struct runner *run, char *err, size_t err_bytes);
void run_embed_free(struct runner *run);
/* Copy the shards to host memory; after run_load_wait(). 0 or -errno with one line
 * in err. */
int run_load_embed(struct runner *run, char *err, size_t err_bytes);

/* After run_warm(): log run_fell_back(), if the first launches fell back. */
void run_check_launches(struct runner *run);
/* The backend's text on a fallback of its launches (fdk_ops.fell_back), or "". */
const char *run_fell_back(const struct runner *run);
/* Log where the list of sizes cuts a class of rows (fdk_ops.gemm_class) in two. */
void run_check_sizes(struct runner *run);
/* Call fdk_ops.op_takes() for operation i of the form in that step. */
int run_op_takes(const struct run_dev *dev, const struct run_form *f, int32_t i,
    const struct fdk_step *s, char *why, size_t why_bytes);

/* ---- runner_setup.c, called by run_setup() --------------------------------------- */

/*
 * Steps of T tokens with at most this many outputs have a graph of their own, with
 * MDL_TAIL_OUTPUTS; 0: they have none. It is half of T, at most fdk_ops.gemm_rows on a
 * device where GEMM rows up to that number cost nothing, and 0 for T up to that number.
 * So a decoding step, all of whose tokens are outputs, never uses this graph.
 */
int32_t run_few(const struct fdk_ops *k, const struct mdl_program *p, int32_t T);
/* Number of graphs of all sizes. */
int32_t
run_n_graph(const struct fdk_ops *k, const struct mdl_program *p, const struct cap *cap);
/* The tail of a step of T tokens with at most O outputs. */
enum mdl_tail run_tail(const struct runner *run, int32_t T, int32_t O);
/* Fill the launch bounds of T tokens with at most O outputs, for steps that are not
 * divided. In these only copy 0 has outputs: on other copies ret->O is 0. */
void run_pad_init(const struct run_dev *dev, int32_t T, int32_t O, struct run_pad *ret);
/* Turn the replay of graphs on or off. */
void run_set_graph(struct runner *run, int on);
/* The type of activations; it follows from the type of the program's first matrix. */
enum fdk_dtype
run_act(const struct fdk_ops *k, const struct mdl_program *p, const struct wts_plan *wp);
/* Set the shape of attention tiles (att_a, att_b) and the bytes of their plans (att_bytes
 * and dims.more); the caller frees att_bytes. Returns 0 or -ENOMEM. */
int run_tiles(struct runner *run);
/* Attention plan i of a step of T tokens, whose step plan begins at base. */
struct run_att
run_att_at(const struct runner *run, int32_t T, int32_t i, unsigned char *base);
/* Fill the launch bounds of a divided step in which this copy has O outputs and the copy
 * with the most has `most`. */
void run_split_init(const struct run_dev *dev, int32_t T, int32_t O, int32_t most,
    struct run_pad *ret);
/* Fill these bounds for the step of a record, in run_dev.eager[rec]. */
void
run_eager_split(const struct run_dev *dev, size_t rec, int32_t T, int32_t O, int32_t most);
/* Address on the device of copy p's plan, p being this device's copy or another. */
unsigned char *run_plan_at(const struct run_dev *dev, int32_t p);
/* Fill the attention plans of a step plan, for the tail of pad. plan: the record's, or a
 * copy's. */
int run_att_plans(struct runner *run, const struct bat_rec *rec, unsigned char *plan,
    const struct run_pad *pad);
/* Bytes of the buffers whose size depends only on the dimensions and the tiles. */
struct run_sizes {
    uint64_t rows, tables, plan, results;
    uint64_t all;                  /* results of all copies; 0: one copy */
    uint64_t others, slots, stage; /* if copies share tokens: the copies' plans, the
                                      stage's slots, the stage; else 0 */
};
struct run_sizes run_sizes(const struct runner *run);
/* Allocate device memory; on failure err names `what`. */
int run_dev_alloc(struct run_dev *dev, const char *what, uint64_t bytes, void *ret_p,
    char *err, size_t err_bytes);
/* The allocations and the binding of run_setup(). */
int run_setup_all(struct runner *run, const struct run_setup_args *a, char *err,
    size_t err_bytes);
/* Drop all graphs and take the sizes of cap. */
void run_pads(struct run_dev *dev, const struct cap *cap);
/* Free everything run_setup() made. */
void run_teardown(struct runner *run);
/* Wait for all launched work on all devices. */
int run_sync(struct runner *run);

#endif
