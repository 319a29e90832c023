/*
 * The engine stage: schedule, plan, launch, collect. One thread; after
 * "ready" it makes no allocation, takes no lock and touches no file.
 *
 *   in    QUE_ADD, QUE_CANCEL from ingress; QUE_STOP from egress
 *   out   QUE_TOKEN, QUE_SCORE, QUE_END to egress
 *
 * eng_poll() runs at most one step. It starts none while egress has no room
 * for what the largest step can send, so a slow reader slows the engine and
 * loses nothing. A message for a request that has ended meanwhile is known
 * by its serial and dropped.
 *
 * Steps go through D + 1 records; with D = 0 (the only depth of this build,
 * eng_new refuses others) each is collected before the next is picked.
 */
#ifndef FDD_DAEMON_WORKER_ENGINE_H
#define FDD_DAEMON_WORKER_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/common/counter.h"
#include "daemon/worker/batch.h"
#include "daemon/worker/kvcache.h"
#include "daemon/worker/queue.h"
#include "daemon/worker/req.h"
#include "daemon/worker/runner.h"
#include "daemon/worker/scheduler.h"

/* Prompt logprobs in one step. */
#define ENG_MAX_SCORES 256

struct eng_cfg {
    int32_t max_reqs;        /* sched.max_concurrency */
    int32_t max_seqs, max_tokens, chunked;
    int32_t max_len;         /* tokens of a sequence */
    int32_t n_block, block_size;
    int32_t depth;
    struct que *q_in;        /* from ingress */
    struct que *q_stop;      /* from egress */
    struct que *q_out;       /* to egress, eng_out_slots() at least */
    struct cnt_worker *cnt;
    uint64_t *heartbeat;     /* bumped by every poll; may be NULL */
};

/* What `requests` shows. */
struct eng_snap_row {
    uint64_t id;
    int32_t sample, state, n_prompt, n_tok, cached_len, max_len, n_block, priority;
    uint32_t n_preempted;
};
#define ENG_SNAP_ROWS 4096
struct eng_snap {
    uint32_t want, have;     /* want: asked for; have: answered */
    int32_t n, n_total;
    struct eng_snap_row *rows; /* [ENG_SNAP_ROWS] */
};

struct eng_live { struct req *req; uint32_t serial; };

struct engine {
    uint32_t magic;
#define ENG_MAGIC 0x454e4731u
    struct eng_cfg cfg;
    struct runner *run;
    struct kv *kv;
    struct sch *sch;
    struct bat *bat;
    struct sch_step step;
    struct eng_live *live;   /* [max_reqs] */
    int32_t n_live;
    uint32_t room;           /* slots the largest poll can send */
    struct eng_snap snap;
};

/* Slots q_out needs; rows and outputs of the largest step. */
uint32_t eng_out_slots(const struct eng_cfg *cfg);
void eng_dims(const struct eng_cfg *cfg, struct bat_dims *ret);

/* run must be set up with eng_dims(). -ENOTSUP: depth; -ENOMEM. */
int eng_new(const struct eng_cfg *cfg, struct runner *run, struct engine **ret, char *err,
    size_t err_bytes);
struct engine *eng_free(struct engine *e);
/* Returns the work done: 0 when there was nothing to do. */
int eng_poll(struct engine *e, uint64_t now_ns);
/* Anything queued? For parking. */
int eng_pending(struct engine *e);
/* Work is there that waits for room at egress. */
int eng_stalled(const struct engine *e);
/* Any other thread: ask for a snapshot; then ring the engine's bell and look
 * at eng_snap_ready(). The rows are the asker's until it asks again. */
void eng_snap_ask(struct engine *e);
int eng_snap_ready(const struct engine *e);
/* Walk everything; panics. */
void eng_check(const struct engine *e);

#endif
