/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine stage: schedule, plan, launch, collect. One thread; after
 * "ready" it makes no allocation, takes no lock and touches no file.
 *
 *   in    QUE_ADD, QUE_CANCEL from ingress; QUE_STOP, QUE_ADD from egress
 *   out   QUE_TOKEN, QUE_SCORE, QUE_END to egress
 *
 * eng_poll() collects every step that is done and launches at most one, when
 * lookahead.h says that it is due. It launches none while egress has no room for
 * what all steps on their way can send, so a slow reader slows the engine and
 * loses nothing. A message for a request that has ended meanwhile is known by its
 * serial and dropped.
 *
 * Steps go through D + 1 records. With D = 0 each is collected before the
 * next is picked: the simple loop, the reference. Else up to D steps are
 * launched ahead of the one whose results are awaited, none sooner than the
 * device needs it; what the host learns late (a stop id, a stop string, a
 * cancel) costs the rows concerned at most D steps more, whose results find
 * the row gone and are dropped.
 * Nothing here waits for the device but eng_wait() and, with D = 0, a step.
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

/* Prompt logprobs in one step. */
#define ENG_MAX_SCORES 256
/* device.overlap_depth */
#define ENG_MAX_DEPTH 4
/* Copies of KV blocks between two steps: at most this many (the CPU device queues
 * 1,024 commands), fewer where ENG_COPY_BYTES is less, at least ENG_MIN_COPY. */
#define ENG_MAX_COPY   960
#define ENG_MIN_COPY   64
#define ENG_COPY_BYTES (512ll << 20)
/* With more than this in the device's queue no third step is launched: CUDA's holds
 * 1,024 launches and makes who launches more wait. */
#define ENG_MAX_QUEUED 350

struct eng_cfg {
    int32_t max_reqs; /* sched.max_concurrency */
    int32_t max_len;  /* tokens of a sequence */
    int32_t n_block, block_size;
    int32_t n_group;              /* KV groups, 0: one */
    int32_t window[KV_MAX_GROUP]; /* struct kv_cfg */
    int32_t n_host;               /* host blocks behind the prefix cache */
    int32_t depth;                /* 0 to ENG_MAX_DEPTH */
    int32_t n_copy;               /* of the model, 0: one */
    int32_t min_split;  /* tokens of a prompt in a step from which on copies divide
                                        them; 0: eng_prime() measures that */
    struct sch_cfg sch; /* all but max_scores and cost */
    struct que *q_in;   /* from ingress */
    struct que *q_stop; /* from egress */
    struct que *q_out;  /* to egress, eng_out_slots() at least */
    struct cnt_worker *cnt;
    struct cnt_hist *hist; /* [CNT_H__N], or NULL */
    struct lnk_beat *beat; /* signs of life; may be NULL */
};

/* What `requests` shows. */
struct eng_snap_row {
    uint64_t id;
    int32_t sample, state, n_prompt, n_tok, cached_len, max_len, n_block, priority;
    uint32_t n_preempted;
};
#define ENG_SNAP_ROWS 4096
struct eng_snap {
    uint32_t want, have; /* want: asked for; have: answered */
    int32_t n, n_total;
    struct eng_snap_row *rows; /* [ENG_SNAP_ROWS] */
};

/* Another way to launch: steps on their way are collected first. */
struct eng_change {
    uint32_t want, have; /* as in eng_snap */
    int use_graph;
    struct cap cap;
};

/* Steps to measure (profile.h). */
struct prf;
struct eng_profile {
    uint32_t want, have; /* as in eng_snap */
    struct prf *ask;     /* the requester owns it again when have == want */
    struct prf *on;      /* the engine's while it measures */
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
    int32_t n_flight;      /* steps launched, not collected: epochs up to epoch */
    uint64_t t_collect_ns; /* when the last was collected */
    uint64_t t_end_ns;     /* when the device ended it */
    uint64_t t_pick_ns, now_ns;
    struct lka lka;
    int64_t skew_ns;              /* the least between the device's end of a step and its
                                collect, of late */
    int32_t n_queued, max_queued; /* commands of the steps on their way; ENG_MAX_QUEUED */
    int held;                     /* a pick waits for lka_due() */
    int nothing_due;    /* the last pick found nothing: not again before a step is
                                collected or a command comes */
    uint64_t t_work_ns; /* since when there is work without a pause */
    int told_target;    /* what an automatic sched.itl_target_ms became is logged */
    int busy;
    struct eng_live *live; /* [max_reqs] */
    int32_t n_live;
    uint32_t room; /* slots a step's results can take */
    struct eng_snap snap;
    struct eng_change change;
    struct eng_profile profile;
    int32_t fail, stall; /* tests: a rank from 1 on, 0: none */
};

/* Slots q_out needs; rows and outputs of the largest step. */
uint32_t eng_out_slots(const struct eng_cfg *cfg);
void eng_dims(const struct eng_cfg *cfg, struct bat_dims *ret);
/* Blocks of a KV group with this window (eng_cfg.window) that a sequence holds at most. */
int32_t eng_kv_most(const struct eng_cfg *cfg, int32_t window);

/* run must be set up with eng_dims(), depth + 1 records and what cfg says of
 * the penalty pool and host blocks. -EINVAL: depth; -ENOMEM. */
int eng_new(const struct eng_cfg *cfg, struct runner *run, struct engine **ret, char *err,
    size_t err_bytes);
struct engine *eng_free(struct engine *e);
/* Copies divide prompts of that many tokens in a step, or more. */
int32_t eng_min_split(const struct engine *e);
/* Before the first eng_poll(): learn what steps take (prime.h). -errno. */
int eng_prime(struct engine *e, uint64_t budget_ns);
/* Returns the work done: 0 when there was nothing to do. */
int eng_poll(struct engine *e, uint64_t now_ns);
/* Steps are on their way and eng_poll() had nothing to do: wait until the
 * oldest is done, the next is due or a command came. Returns 0 when none is. */
int eng_wait(struct engine *e);
/* Anything queued? For parking. */
int eng_pending(struct engine *e);
/* Work is there that waits for room at egress. */
int eng_stalled(const struct engine *e);
/* Any other thread: ask for a snapshot; then ring the engine's bell and look
 * at eng_snap_ready(). The rows are the asker's until it asks again. */
void eng_snap_ask(struct engine *e);
int eng_snap_ready(const struct engine *e);
/* Any one other thread: replay these graphs, or none, from now on; none too when
 * there is no memory for them. Then ring the bell. One change at a time: -EBUSY
 * while the last is under way. */
int eng_set_graph(struct engine *e, int use_graph, const struct cap *cap);
/* Any one other thread, as with eng_set_graph(): measure as p says. -EBUSY. p is
 * the engine's until eng_profile_ready(); prf_stop() makes that soon. */
int eng_profile(struct engine *e, struct prf *p);
int eng_profile_ready(const struct engine *e);
/* Any thread, tests: a rank's device fails in the next step, or its launch thread stops
 * answering. */
void eng_fail(struct engine *e, int32_t rank);
void eng_stall(struct engine *e, int32_t rank);
/* Walk everything; panics. */
void eng_check(const struct engine *e);

#endif
