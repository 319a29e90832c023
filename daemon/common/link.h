/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate-worker link: one POSIX shared-memory object, made for each
 * worker and unlinked at once; the worker inherits the descriptor. Gate and
 * worker trust each other, so records are read in place.
 *
 * Two rings of 64-byte slots carry struct fdp_rec records of 1 to
 * FDP_REC_MAX_SLOTS slots:
 *
 *   down  gate to worker   LNK_T_SUBMIT, LNK_T_BLOB, LNK_T_CANCEL, ...
 *   up    worker to gate   FDP_T_* with rec.tag = request id, LNK_T_*
 *
 * so that the gate relays a completion by copying its slots and replacing
 * the tag. rec.tag is the gate's request id in both directions.
 *
 * Waking: the worker's ingress thread sleeps on a process-shared semaphore
 * when worker_parked is raised; the gate sleeps in epoll on an eventfd when
 * gate_parked is raised. Both follow the protocol of fdring.h.
 *
 * Admin questions travel as JSON over a SOCK_SEQPACKET pair, never here.
 */
#ifndef FDD_DAEMON_COMMON_LINK_H
#define FDD_DAEMON_COMMON_LINK_H

#include <semaphore.h>
#include <stdint.h>

#include "daemon/common/log_queue.h"
#include "daemon/common/param.h"
#include "libclient/fdproto.h"
#include "libclient/fdring.h"

#define LNK_MAGIC   0x4b4e4c46u
#define LNK_VERSION 7

/* record types beyond FDP_T_* */
enum lnk_type {
    LNK_T_SUBMIT = 64,   /* down: struct lnk_submit; any fdp_op that has an answer */
    LNK_T_BLOB = 65,     /* down: next len bytes of the submit's blob, in order. The
                            blobs of several requests may interleave. None follow a
                            cancel */
    LNK_T_CANCEL = 66,   /* down: struct lnk_cancel */
    LNK_T_DRAIN = 67,    /* down: finish the running requests, then exit 0 */
    LNK_T_RELOAD = 68,   /* down: parameters in lnk_seg.par changed */
    LNK_T_READY = 69,    /* up: struct lnk_ready */
    LNK_T_STATE = 70,    /* up: phase or progress in lnk_seg.w changed */
    LNK_T_TOKENIZED = 71 /* up: struct lnk_tokenized: the length of the request's prompt
                            is known (admission by tokens) */
};

struct lnk_submit {
    struct fdp_req req;   /* as checked by the gate; seed always set */
    uint64_t user;        /* uid, or delegated user */
    uint64_t t_submit_ns; /* CLOCK_MONOTONIC */
    uint64_t deadline_queue_ns, deadline_total_ns; /* absolute, 0 = none */
    uint32_t place; /* its entry in lnk_seg.started while the request is open */
    uint32_t rsv;
};
struct lnk_cancel {
    int32_t code;
    uint32_t rsv;
}; /* FDP_E_* of the ERROR record */
struct lnk_tokenized {
    uint32_t prompt_len, rsv;
};
struct lnk_ready {
    uint32_t credits;
    uint32_t model_len; /* the model's maximum; info has the served length */
    struct fdp_info info;
};

enum lnk_phase {
    LNK_PH_START = 0,
    LNK_PH_LOAD,
    LNK_PH_WARM,
    LNK_PH_READY,
    LNK_PH_DRAIN,
    LNK_PH_EXIT,
    LNK_PH_FAILED,
    LNK_PH__N
};
#define LNK_PHASE_NAMES \
    { \
        "starting", "loading", "warming up", "ready", "draining", "exiting", "failed" \
    }

/* State of the engine thread. */
enum lnk_activity { LNK_ACT_LOAD = 0, LNK_ACT_SERVE, LNK_ACT_CAPTURE, LNK_ACT_PROFILE };

/* Heartbeat: the engine writes, the gate reads (hang.h). Relaxed stores: they publish
 * nothing, and a value that is one step old is harmless. */
struct lnk_beat {
    uint64_t beats;          /* counts polls of the engine that do not find it waiting for
                                a step, at least one per 100 ms */
    uint64_t step_began_ns;  /* launch of the newest step, CLOCK_MONOTONIC; 0: none yet */
    uint64_t step_expect_ns; /* longest expected time of the steps in flight at that
                                launch; 0: unknown */
    uint64_t itl_target_ns;  /* effective sched.itl_target_ms; 0: none, or not yet */
    uint32_t activity;       /* enum lnk_activity */
    uint32_t rsv;
};

#define LNK_MAX_DEVICES 32
#define LNK_NO_RANK     UINT32_MAX
struct lnk_device {          /* an entry of device.list */
    char name[16], uuid[48]; /* "cuda:2"; "": none */
    uint32_t rank;           /* rank in the group, or LNK_NO_RANK */
};
struct lnk_worker_state { /* the worker writes, the gate reads */
    uint32_t phase;       /* enum lnk_phase */
    uint32_t rsv;
    struct lnk_beat beat;
    uint64_t load_done_bytes, load_total_bytes;
    uint32_t n_device;  /* entries of device.list; 0: not chosen yet */
    uint32_t n_rank;    /* devices of the list that compute; set before n_device */
    uint32_t n_copy;    /* copies of the model that these ranks form; set before
                          n_device */
    int32_t exec_errno; /* why its program could not be executed, or 0 */
    struct lnk_device device[LNK_MAX_DEVICES];
    char all_reduce[160]; /* how ranks sum, "": there is one rank; set before READY */
    char copies[96];      /* how copies divide prompts, "": there is one copy; set
                             before READY */
    char error[512];      /* why it failed, set before phase FAILED */
    char effective[3072]; /* effective values of parameters, set before READY: lines of
                             section.key=value, NUL after the last */
};

#define LNK_DOWN_SLOTS  8192u
#define LNK_UP_SLOTS    16384u
#define LNK_PLACES      65536u /* upper bound of sched.max_concurrency */
#define LNK_PANIC_BYTES 8192u

struct lnk_cursor {
    uint32_t v;
    uint32_t rsv[31];
} __attribute__((aligned(128)));

struct lnk_seg {
    uint32_t magic, version;
    uint64_t bytes;
    uint64_t generation; /* of the worker, counts restarts */
    int32_t gate_pid;
    uint32_t is_quiet;       /* the worker logs nothing before it is ready: the gate has
                                already logged the same failed start */
    uint32_t group, n_group; /* number of the worker's group, from 0; number of groups */
    struct lnk_cursor down_tail, down_head, up_tail, up_head;
    struct lnk_cursor worker_parked, gate_parked;
    struct lnk_cursor bell_eng, bell_egr; /* futex words of the worker's engine and
                               egress threads: 1 = asleep */
    sem_t worker_sem;                     /* process-shared, posted by the gate */
    struct lnk_worker_state w;
    uint64_t started[LNK_PLACES]; /* by place: the worker writes a request's id when its
                                     first step is planned; the gate ends the requests
                                     whose deadline passes before that */
    uint32_t par_seq;             /* odd while the gate writes par */
    char instance[64]; /* name of the gate's instance, set before the worker starts */
    char runtime_dir[PAR_STR_BYTES], device_dir[PAR_STR_BYTES]; /* its folders */
    struct par par;              /* effective parameters: lnk_put_par, lnk_get_par */
    char panic[LNK_PANIC_BYTES]; /* text of a dying worker, NUL terminated */
    struct lgq log;              /* the worker's log lines: those not written yet, and
                                    the last ones */
    unsigned char down[LNK_DOWN_SLOTS * FDP_SLOT] __attribute__((aligned(128)));
    unsigned char up[LNK_UP_SLOTS * FDP_SLOT] __attribute__((aligned(128)));
};

/* Gate: publish changed parameters. Call before LNK_T_RELOAD. */
void lnk_put_par(struct lnk_seg *seg, const struct par *par);
/* Worker: read a consistent copy of the parameters. -EAGAIN: the gate did not finish
 * writing within some milliseconds; try again later. */
int lnk_get_par(struct lnk_seg *seg, struct par *ret);

/* One side's view. */
struct lnk {
    struct lnk_seg *seg;
    struct fdr_prod out; /* gate: down; worker: up */
    struct fdr_cons in;  /* gate: up;   worker: down */
    int efd;             /* eventfd that wakes the gate */
    int is_gate;
    int bad; /* a cursor or record of the peer was impossible: the link is not used any
                more; claim and peek return NULL */
};

/* Gate: make a segment (shm_open, unlinked, mapped, formatted with magic last) and
 * return its descriptor. 0 or -errno. */
int lnk_create(const struct par *par, uint64_t generation, struct lnk_seg **ret_seg,
    int *ret_fd);
/* Worker: map and check an inherited descriptor. -EINVAL: not a segment of this
 * version. */
int lnk_join(int fd, struct lnk_seg **ret_seg);
void lnk_leave(struct lnk_seg *seg);

void lnk_init_gate(struct lnk *l, struct lnk_seg *seg, int efd);
void lnk_init_worker(struct lnk *l, struct lnk_seg *seg, int efd);

/* Claim a record of len payload bytes: returns its payload, header filled
 * in, or NULL when the ring has no room now. Nothing is visible before
 * lnk_flush(). len <= FDP_REC_MAX_LEN. */
void *lnk_claim(struct lnk *l, uint64_t id, unsigned type, unsigned sample,
    uint32_t position, uint32_t len);
/* Are that many slots of the outgoing ring free? */
int lnk_has_room(struct lnk *l, uint32_t slots);
/* Publish all claims and wake the peer if it is parked. */
void lnk_flush(struct lnk *l);
/* Next record or NULL; valid until lnk_next() releases it. */
const struct fdp_rec *lnk_peek(struct lnk *l);
void lnk_next(struct lnk *l, const struct fdp_rec *rec);
/* Worker's ingress thread: sleep until the gate posts, at most timeout_ns. Returns at
 * once if a record is there. 1: woken, 0: timeout. */
int lnk_worker_park(struct lnk *l, uint64_t timeout_ns);
/* Another thread of the worker: wake the ingress thread, or its next sleep ends at once.
 * Call after publishing what it is to see. */
void lnk_wake_ingress(struct lnk *l);
/* Gate: raise gate_parked. Returns 1 if records are there: do not sleep. */
int lnk_gate_park(struct lnk *l);
void lnk_gate_unpark(struct lnk *l);
/* Wake the thread that sleeps on a bell, if any. Call after publishing. */
void lnk_ring(struct lnk_cursor *bell);
/* Gate: wake all sleeping threads of the worker before work arrives, so that their
 * wake-ups overlap. */
void lnk_wake_worker(struct lnk *l);

#endif
