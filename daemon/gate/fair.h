/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Users and the order in which their requests reach the worker.
 *
 * A user is a uid or a delegated user id (one number space). Each has two queues of
 * accepted requests: generating requests, and all others (tokenize, detokenize, deep
 * ping), which take no row of a batch and must not wait for one.
 *
 * Order. Requests of one user are ordered by priority (sched.policy), then arrival.
 * Between users, next is the one with the fewest tokens (prompt and output) divided by
 * its weight (sched.user_weights, else 1). Counted are the tokens of its requests that
 * ended and, for each request with the worker, the mean of its last ones, at most the
 * request's own cost. So users that stay backlogged get tokens in the ratio of their
 * weights, whatever their numbers of requests, lengths and samples, and in whatever order
 * the worker serves them. The deviation is at most the tokens of their requests with the
 * worker.
 *
 * A user whose queue becomes active begins at the level of the others (start): time
 * without requests earns no credit. For that level, requests with the worker count as
 * half done.
 *
 * Credits. A worker grants as many credits as sequences fit its batch, and a few more so
 * that a free row does not wait for the gate. This module keeps the sum over all workers.
 * A request costs min(n, credits of one worker) credits from sending to its terminal
 * record. The request whose turn it is waits until enough credits are free, and those
 * after it wait too: otherwise a request of many samples would not start.
 *
 * Reserve. The last credits, and so the last rows of a batch (sched.reserved_seqs), go to
 * users that hold none, so that they need not wait until another user's long answers end.
 *
 * A user's entry exists while it has sessions, requests or seals, until its connect bucket is
 * full again (a flood earns no new burst by leaving), and for USR_REST_FORGET_NS after it
 * made the loop wait.
 */
#ifndef FDD_DAEMON_GATE_FAIR_H
#define FDD_DAEMON_GATE_FAIR_H

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/gate/heap.h"
#include "daemon/gate/journal.h"
#include "daemon/gate/share.h"
#include "daemon/gate/svcrate.h"

#define USR_MAGIC          0x55535231u
#define USR_BUCKETS        1024u
#define USR_MAX            65536u
#define FAIR_MEAN_OF       8     /* requests in the mean that predicts the next one */
#define FAIR_SCALE         65536 /* fixed-point scale of tokens divided by a weight */
#define FAIR_WEIGHT_MAX    1000u
#define FAIR_WEIGHTS       128u /* items of sched.user_weights; its text has 511 bytes */
#define USR_RATIO          16u  /* 1/16 of the loop's time, while others are here */
#define USR_REST_MIN_NS    100000000u /* first pause by usr_rest() */
#define USR_REST_MAX_NS    10000000000ull
#define USR_REST_FORGET_NS 60000000000ull /* then the last pause is forgotten */
#define FAIR_OTHER_MAX     64u            /* requests of FAIR_OTHER with the worker */

enum fair_kind { FAIR_GEN = 0, FAIR_OTHER, FAIR_KINDS };

/* A user's queue of one kind. */
struct uqueue {
    TAILQ_ENTRY(uqueue) act; /* in fair.active while it is not empty */
    struct heap_node turn;   /* in fair.turn while active; key: level */
    struct heap_node free;   /* in fair.free while its user holds no credit */
    int is_ranked, is_free;  /* 1: in fair.turn; in fair.free */
    struct usr *usr;
    int active;
    int64_t served; /* tokens of its ended requests / weight, in 1 / FAIR_SCALE */
    int64_t held;   /* tokens that its requests with the worker are expected to need */
    int64_t mean;   /* mean tokens of its last requests; 0: no request has ended */
    int64_t level;  /* served, plus held divided by its weight */
    uint64_t cost;  /* tokens queued */
    struct jreq_q q;
    struct jreq *put; /* request of q that fair_unpop() inserted last; or NULL */
};
TAILQ_HEAD(uqueue_list, uqueue);

struct usr {
    uint32_t magic;
    uint32_t weight;
    uint64_t key;
    struct usr *hnext;
    uint32_t n_ses, n_inflight;
    uint32_t n_held;    /* credits of its requests with the worker */
    int counted;        /* its weight is in fair.weight_active */
    uint64_t bytes;     /* of its requests and held records */
    uint64_t bucket_ns; /* connect budget: a connect costs 1e9 / connects_per_second */
    uint64_t t_bucket;
    uint64_t refused_ns; /* used part of the error budget: 1e9 / rate ns per rejection; at
                            most 1 s may be used */
    uint64_t t_refused;
    uint64_t loop; /* iteration for which loop_bytes, loop_records and loop_ns count */
    uint32_t loop_bytes, loop_records, loop_ns;
    uint32_t n_jobs;   /* requests whose items have not all arrived */
    uint32_t n_reads;  /* sessions that an off-loop thread is reading: intake.h */
    uint32_t n_seals;  /* seals of its memory that are not done: ofl_seal() */
    uint64_t rest_ns;  /* length of the last pause of its rings: rest.h */
    uint64_t t_rest;   /* end of that pause; t_read of its sessions */
    struct share time; /* loop time that its rings used: usr_until() */
    struct uqueue queue[FAIR_KINDS];
};

struct fair_weight {
    uint64_t key;
    uint32_t weight;
};

struct fair {
    struct usr *hash[USR_BUCKETS];
    struct uqueue_list active[FAIR_KINDS]; /* per-user queues that are not empty */
    struct heap turn[FAIR_KINDS];          /* the active queues, lowest level first */
    struct heap free[FAIR_KINDS];          /* active queues whose user holds no credit */
    uint64_t seq;                          /* last seq given to a node of the heaps */
    int64_t start[FAIR_KINDS];             /* least level of a queue that becomes
                                              active */
    uint32_t n_usr;
    uint32_t n_here;      /* users with a session */
    uint32_t n_queued;    /* requests, of both kinds */
    uint32_t n_side;      /* requests of FAIR_OTHER with the worker */
    uint32_t credits;     /* granted by all workers that take requests; at least 1 */
    uint32_t credits_one; /* most credits granted by one worker; no price is higher */
    uint32_t credits_used;
    uint32_t credits_kept;  /* of credits: reserved for users that hold none */
    int fcfs;               /* 1: first come, first served; priorities do not count */
    uint64_t cost_queued;   /* tokens of FAIR_GEN requests accepted and not sent */
    uint64_t cost_first;    /* of cost_queued: tokens of requests with jreq.first set */
    uint64_t cost_open;     /* cost_queued, plus tokens of requests with a worker */
    uint32_t n_gen;         /* open requests of FAIR_GEN, queued or with a worker */
    uint64_t weight_queued; /* sum of the weights of users with FAIR_GEN queued */
    uint64_t weight_active; /* same sum, for users with FAIR_GEN queued or with credits */
    uint32_t n_active;      /* number of users counted in weight_active */
    uint64_t t_next;        /* lower bound of deadlines for the begin; 0: none */
    struct svcrate svcrate;
    uint32_t n_weights;
    struct fair_weight weights[FAIR_WEIGHTS];
};

void fair_init(struct fair *f);
void fair_fini(struct fair *f);

/* Parses sched.user_weights. Writes at most FAIR_WEIGHTS items; -EINVAL with one line in
 * err that names the item and its error. Looks names up in the system's user database. */
int fair_parse_weights(const char *text, struct fair_weight *ret, uint32_t *ret_n,
    char *err, size_t err_bytes);
/* Sets the weights of present and future users. */
void fair_set_weights(struct fair *f, const struct fair_weight *list, uint32_t n);

/* Finds or makes a user. NULL: no memory or too many users. */
struct usr *usr_get(struct fair *f, uint64_t key, uint64_t now_ns);
/* May this user connect now, at this rate? Takes one token of its bucket. */
int usr_connect(struct usr *u, uint64_t per_second, uint64_t now_ns);
/* n requests of u were rejected: takes them from its error budget. */
void usr_refused(struct usr *u, uint32_t n, uint32_t per_second, uint64_t now_ns);
/* ms until u's error budget, which refills at per_second, allows a request; 0: now. */
uint32_t usr_eager_ms(struct usr *u, uint32_t per_second, uint64_t now_ns);
/* Frees entries of users that nothing refers to. */
void usr_sweep(struct fair *f, uint64_t now_ns);
/* The loop had to wait for memory of u: u's rings are not read until the returned time.
 * Each such pause is four times as long as the one before. */
uint64_t usr_rest(struct usr *u, uint64_t now_ns);
/* A session of u begins; ends. */
void usr_enter(struct fair *f, struct usr *u);
void usr_leave(struct fair *f, struct usr *u);
/* Returns the time before which u's rings are not read; 0: they may be read now. */
static inline uint64_t
usr_until(const struct usr *u)
{
    return shr_until(&u->time, USR_RATIO);
}

void fair_push(struct fair *f, struct jreq *r);
/* Undoes fair_pop() for a request that was not sent. It returns to its place near the
 * front of its queue, in order with others that return. */
void fair_unpop(struct fair *f, struct jreq *r);
void fair_remove(struct fair *f, struct jreq *r);
/* Takes the request of this kind whose turn it is, if its credits are free. NULL: none,
 * or it must wait. */
struct jreq *fair_pop(struct fair *f, enum fair_kind kind);
/* The workers' grants have changed; `kept` of the credits are reserved for users that
 * hold none. */
void fair_grant(struct fair *f, uint32_t credits, uint32_t kept);
/* Called after fair_grant() with several workers: the most credits that one of them
 * granted. */
void fair_grant_one(struct fair *f, uint32_t credits);
/* r is sent to a worker: takes its r->price credits. */
void fair_charge(struct fair *f, struct jreq *r);
/* The earlier of the deadlines by which a request must begin. 0: none. */
uint64_t fair_deadline(const struct jreq *r);
/* Updates fair.t_next with r's deadline. */
void fair_note_deadline(struct fair *f, const struct jreq *r);
/* r has left its worker: returns its credits, if it has any. */
void fair_return(struct fair *f, struct jreq *r);
/* r ended at the worker, before fair_return(): counts the tokens it needed for its
 * user. */
void fair_settle(struct jreq *r);
/* r has ended, is in no queue and has no credits: takes it out of the totals. */
void fair_drop(struct fair *f, struct jreq *r);
/* Tokens that the worker serves before a new request of u with this priority starts, if
 * all shares stay as they are. */
uint64_t fair_ahead(const struct fair *f, const struct usr *u, int32_t priority);
/* Mean tokens of the open requests. */
uint64_t fair_mean_cost(const struct fair *f);
/* Checks that counts and lists agree; aborts if they do not. */
void fair_check(const struct fair *f);

#endif
