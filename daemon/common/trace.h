/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The step trace: a ring of the last TRC_STEPS engine steps and one of the last
 * TRC_EVENTS events in the lives of requests. Each group has a memfd of its own for it,
 * separate from the statistics segment. Always on. The gate makes it, only the worker's
 * engine thread writes it, and it outlives the worker: the last steps of a dead worker
 * stay readable.
 *
 * It shows users, times and lengths of requests, so only administrators get it, by the
 * admin command trace_fd. It holds no text.
 *
 * A record's first word is 0 while the record is being written, then its number
 * (counted from 1) shifted left by one; the lowest bit says that it will not be written
 * again. A reader copies the record and checks that word again. Steps are written
 * twice: when launched (TRC_DONE not set) and when collected.
 *
 * Times: CLOCK_MONOTONIC, ns. Any process may read, at any time.
 */
#ifndef FDD_DAEMON_COMMON_TRACE_H
#define FDD_DAEMON_COMMON_TRACE_H

#include <stdint.h>

#define TRC_MAGIC   0x43525446u
#define TRC_VERSION 2u
#define TRC_STEPS   4096u /* powers of two */
#define TRC_EVENTS  16384u
#define TRC_MEMFD   "fdd-trace" /* as /proc/PID/fd of the gate shows it */

enum trc_flag {
    TRC_DONE = 1,     /* collected: all times below are set */
    TRC_GRAPH = 2,    /* replayed a graph; else launched operation by operation */
    TRC_FOLLOWS = 4,  /* there was work ever since the step before: idle time of the
                         device between the two is lost */
    TRC_PROFILED = 8, /* launched with an event after every operation */
    TRC_DIVIDED = 16  /* divided among copies: n_pad is of each copy's share */
};

#define TRC_RANKS 8
struct trc_step {
    uint64_t seq;         /* trc_get_step() sets it to the record's number in the ring,
                             from 1 */
    uint64_t epoch;       /* number of the step, from 1 for each worker */
    uint32_t generation;  /* of the worker */
    uint32_t flags;       /* enum trc_flag */
    int32_t n_tok, n_pad; /* tokens, padded tokens */
    int32_t n_row;        /* sequences */
    int32_t n_decode;     /* sequences with one token */
    int32_t n_verify;     /* sequences with drafted tokens; the others prefill */
    int32_t n_out;        /* output rows */
    int32_t n_preempted;  /* sequences preempted while choosing */
    int32_t n_cached;     /* prompt tokens found in the prefix cache */
    int32_t n_copy;       /* KV blocks copied to or from the host before the step */
    int32_t n_waiting;    /* waiting sequences, after choosing */
    int32_t blocks_used, blocks_free; /* KV blocks held by sequences; without content */
    uint64_t t_pick_ns;               /* the engine began to choose the batch */
    uint64_t t_launch_ns;             /* began to launch */
    uint64_t t_queued_ns;             /* the launch was complete */
    uint64_t t_begin_ns, t_end_ns;    /* times of the device */
    uint64_t t_collect_ns;            /* the engine took the results */
    uint64_t t_done_ns;               /* the engine had processed the results */
    /* With several ranks: begin and end on the device of each rank, relative to
     * t_begin_ns. */
    int32_t rank_begin_ns[TRC_RANKS], rank_end_ns[TRC_RANKS];
    int32_t n_rank; /* 0: one device */
    int32_t rsv[15];
};
_Static_assert(sizeof(struct trc_step) == 256, "a step is four cache lines");

enum trc_kind {
    TRC_SUBMIT = 1, /* at the gate. a: prompt tokens, b: output tokens asked */
    TRC_READY,      /* the engine has the request: tokenized, checked */
    TRC_START,      /* its first tokens were scheduled. a: cached tokens,
                                 b: state slot */
    TRC_PREEMPT,    /* lost its blocks. a: tokens it had */
    TRC_RESUME,     /* scheduled again. a: tokens found in the cache, b: slot */
    TRC_FIRST,      /* first output token collected */
    TRC_END,        /* a: 0 or FDP_E_*, b: output tokens of all samples */
    TRC__N
};
#define TRC_KIND_NAMES \
    { \
        "", "submit", "ready", "start", "preempt", "resume", "first token", "end" \
    }

struct trc_event {
    uint64_t seq;
    uint64_t t_ns;
    uint64_t id;    /* request id, as fdctl requests shows it */
    uint64_t epoch; /* last step launched before the event */
    uint32_t generation;
    uint16_t kind; /* enum trc_kind */
    uint16_t sample;
    int32_t a, b;
    uint64_t rsv[2];
};
_Static_assert(sizeof(struct trc_event) == 64, "an event is a cache line");

struct trc_seg {
    uint32_t magic, version;  /* magic is stored last */
    uint32_t n_step, n_event; /* TRC_STEPS, TRC_EVENTS of the writer */
    uint64_t boot_id[2];
    uint32_t group, rsv; /* the group whose worker writes it; set after trc_create() */
    uint64_t steps __attribute__((aligned(128))); /* records ever begun */
    uint64_t events;
    struct trc_step step[TRC_STEPS] __attribute__((aligned(128)));
    struct trc_event event[TRC_EVENTS];
};

/* ---- gate ------------------------------------------------------------------------- */

/* 0 or -errno. */
int trc_create(const uint64_t boot_id[2], struct trc_seg **ret_seg, int *ret_fd);
void trc_destroy(struct trc_seg *seg, int fd);

/* ---- worker: the engine thread -------------------------------------------------------- */

/* seg NULL: no trace. Then, and if t is NULL, the functions below do nothing. */
struct trc {
    struct trc_seg *seg;
    uint64_t base;  /* steps in the ring before this worker's first */
    uint64_t epoch; /* of the last step launched */
    uint32_t generation;
};

/* Map an inherited descriptor. -EINVAL: not a trace of this version. */
int trc_join(int fd, struct trc_seg **ret_seg);
void trc_leave(struct trc_seg *seg);
void trc_init(struct trc *t, struct trc_seg *seg, uint32_t generation);
/* Write s; seq and generation are filled in. Called when a step is launched and when it
 * is collected. */
void trc_put_step(struct trc *t, struct trc_step *s);
void trc_put_event(struct trc *t, uint64_t t_ns, enum trc_kind kind, uint64_t id,
    uint32_t sample, int32_t a, int32_t b);

/* ---- readers -------------------------------------------------------------------------- */

/* Map the trace that fd refers to for reading; fd stays open. 0; -EPROTO: not a trace,
 * or of another version; else -errno. */
int trc_look(int fd, const struct trc_seg **ret_seg);
uint64_t trc_n_step(const struct trc_seg *seg);
uint64_t trc_n_event(const struct trc_seg *seg);
/* Read record number i, counted from 1. Returns 0 if it is overwritten, being written
 * or not there yet, else 1. */
int trc_get_step(const struct trc_seg *seg, uint64_t i, struct trc_step *ret);
int trc_get_event(const struct trc_seg *seg, uint64_t i, struct trc_event *ret);

#endif
