/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine stage: schedule, plan, launch, collect. One thread; after
 * "ready" it makes no allocation, takes no lock and touches no file.
 *
 *   in    QUE_ADD, QUE_CANCEL from ingress; QUE_STOP, QUE_ADD from egress
 *   out   QUE_TOKEN, QUE_SCORE, QUE_END to egress
 *
 * eng_poll() collects every finished step and launches at most one, when lookahead.h says
 * that it is due. It launches none while q_out lacks room for the largest results of all
 * launched steps, so a slow reader slows the engine and loses nothing. A message for a
 * request that has ended meanwhile is recognized by its serial and dropped.
 *
 * Steps use D + 1 records (D: device.overlap_depth). With D = 0 each step is collected
 * before the next is picked: the reference. Else up to D steps are launched ahead of the
 * one whose results are awaited, none sooner than the device needs it. A sequence whose
 * end the host learns late (a stop id, a stop string, a cancel) runs in at most D more
 * steps, whose results for it are dropped. Only eng_wait() and, with D = 0, a step wait
 * for the device.
 */
#ifndef FDD_DAEMON_WORKER_ENGINE_H
#define FDD_DAEMON_WORKER_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/common/counter.h"
#include "daemon/common/link.h"
#include "daemon/worker/batch.h"
#include "daemon/worker/kvcache.h"
#include "daemon/worker/lookahead.h"
#include "daemon/worker/queue.h"
#include "daemon/worker/req.h"
#include "daemon/worker/runner.h"
#include "daemon/worker/scheduler.h"

/* Prompt logprobs in one step, at most. */
#define ENG_MAX_SCORES 256
/* Largest device.overlap_depth. */
#define ENG_MAX_DEPTH 4
/* Copies of KV blocks between two steps: at most ENG_MAX_COPY (the CPU device queues
 * 1,024 commands) and ENG_COPY_BYTES, but at least ENG_MIN_COPY. */
#define ENG_MAX_COPY   960
#define ENG_MIN_COPY   64
#define ENG_COPY_BYTES (512ll << 20)
/* With more commands than this in the device's queue no third step is launched: CUDA's
 * queue holds 1,024 launches, and a launch into a full queue blocks. */
#define ENG_MAX_QUEUED 350

struct eng_cfg {
    int32_t max_reqs; /* sched.max_concurrency */
    int32_t max_len;  /* tokens of a sequence */
    int32_t n_block, block_size;
    int32_t n_group;              /* KV groups, 0: one */
    int32_t window[KV_MAX_GROUP]; /* as in struct kv_cfg */
    int32_t n_host;               /* host blocks, the second level of the prefix cache */
    int32_t depth;                /* device.overlap_depth, 0 to ENG_MAX_DEPTH */
    int32_t n_copy;               /* copies of the model, 0: one */
    int32_t min_split;  /* prompts with at least this many tokens in a step are divided
                           among copies; 0: eng_prime() measures the threshold */
    struct sch_cfg sch; /* all except max_scores and cost, which eng_new() sets */
    struct que *q_in;   /* from ingress */
    struct que *q_stop; /* from egress */
    struct que *q_out;  /* to egress, at least eng_out_slots() */
    struct cnt_worker *cnt;
    struct cnt_hist *hist; /* [CNT_H__N], or NULL */
    struct lnk_beat *beat; /* heartbeat for the gate's hang check; may be NULL */
};

/* A row of fdctl's list of requests. */
struct eng_snap_row {
    uint64_t id;
    int32_t sample, state, n_prompt, n_tok, cached_len, max_len, n_block, priority;
    uint32_t n_preempted;
};
#define ENG_SNAP_ROWS 4096
struct eng_snap {
    uint32_t want, have; /* want: number of the last request for a snapshot; have: of the
                            last answer */
    int32_t n, n_total;
    struct eng_snap_row *rows; /* [ENG_SNAP_ROWS] */
};

/* A change of how steps are launched; applied when all launched steps are collected. */
struct eng_change {
    uint32_t want, have; /* as in eng_snap */
    int use_graph;
    struct cap cap;
};

/* Steps to be measured (profile.h). */
struct prf;
struct eng_profile {
    uint32_t want, have; /* as in eng_snap */
    struct prf *ask;     /* the caller's; the caller owns it again when have == want */
    struct prf *on;      /* the profile being measured; NULL: none */
};

struct eng_live {
    struct req *req;
    uint32_t serial;
};

struct engine {
    uint32_t magic;
#define ENG_MAGIC 0x454e4731u
    struct eng_cfg cfg;
    struct runner *run;
    struct kv *kv;
    struct sch *sch;
    struct bat *bat;
    struct sch_step step;
    struct cost cost;
    uint64_t epoch;        /* of the last step launched */
    int32_t n_flight;      /* steps launched and not collected; the newest is `epoch` */
    uint64_t t_collect_ns; /* when the last step was collected */
    uint64_t t_end_ns;     /* when the device ended it */
    uint64_t t_pick_ns, now_ns;
    struct lka lka;
    int64_t skew_ns;              /* recent minimum of collect time - the device's end
                                     time; see eng_skew() */
    int32_t n_queued, max_queued; /* commands of the launched steps; limit,
                                     ENG_MAX_QUEUED */
    int held;                     /* 1: lka_due() delayed the next pick */
    int nothing_due;    /* 1: the last pick found no work; retried after a collect or a
                           command */
    uint64_t t_work_ns; /* start of the current busy period */
    int told_target;    /* 1: the value of an automatic sched.itl_target_ms is logged */
    int busy;
    struct eng_live *live; /* [max_reqs] */
    int32_t n_live;
    uint32_t room; /* most slots that a step's results take */
    struct eng_snap snap;
    struct eng_change change;
    struct eng_profile profile;
    int32_t fail, stall; /* for tests: rank + 1 that is to fail or stall, 0: none */
};

/* Slots that q_out needs. eng_dims(): dimensions of the largest step. */
uint32_t eng_out_slots(const struct eng_cfg *cfg);
void eng_dims(const struct eng_cfg *cfg, struct bat_dims *ret);
/* The most blocks that a sequence holds of a KV group with this window
 * (eng_cfg.window). */
int32_t eng_kv_most(const struct eng_cfg *cfg, int32_t window);

/* run must be set up with eng_dims(), depth + 1 records, and cfg's penalty pool and host
 * blocks. -EINVAL: depth out of range; -ENOMEM. err gets one line. */
int eng_new(const struct eng_cfg *cfg, struct runner *run, struct engine **ret, char *err,
    size_t err_bytes);
struct engine *eng_free(struct engine *e);
/* Prompts with at least this many tokens in a step are divided among copies. */
int32_t eng_min_split(const struct engine *e);
/* Before the first eng_poll(): measures how long steps take (prime.h). 0 or -errno. */
int eng_prime(struct engine *e, uint64_t budget_ns);
/* Returns nonzero if there was work. */
int eng_poll(struct engine *e, uint64_t now_ns);
/* Call when eng_poll() had no work: waits until the oldest launched step is done, the
 * next step is due or a command came. Returns 0 at once if no step is launched, else
 * 1. */
int eng_wait(struct engine *e);
/* Is there a command to handle? For parking. */
int eng_pending(struct engine *e);
/* Is there work that waits for room at egress? */
int eng_stalled(const struct engine *e);
/* From any one other thread: requests a snapshot. Then ring the engine's doorbell and
 * poll eng_snap_ready(). The caller may read the rows until its next request. */
void eng_snap_ask(struct engine *e);
int eng_snap_ready(const struct engine *e);
/* From any one other thread: replay graphs of these sizes, or none, from now on; also
 * none if there is no memory for them. Then ring the doorbell. -EBUSY: the last change is
 * still in progress. */
int eng_set_graph(struct engine *e, int use_graph, const struct cap *cap);
/* From any one other thread, as eng_set_graph(): measure steps as p says. -EBUSY. The
 * engine owns p until eng_profile_ready(); eng_profile_stop() hastens that, and the gate
 * no longer tolerates that a live step takes long. */
int eng_profile(struct engine *e, struct prf *p);
void eng_profile_stop(struct engine *e, struct prf *p);
int eng_profile_ready(const struct engine *e);
/* From any thread, for tests: a rank's device fails in the next step, or its launch
 * thread stops responding. */
void eng_fail(struct engine *e, int32_t rank);
void eng_stall(struct engine *e, int32_t rank);
/* Checks all invariants; panics if one does not hold. */
void eng_check(const struct engine *e);

#endif
