/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Users and the order in which their requests reach the worker.
 *
 * A user is a uid or a delegated user id (one number space). Each has two
 * queues of accepted requests: those that generate, and all others
 * (tokenize, detokenize, deep ping), which take no row of a batch and must
 * not wait for one.
 *
 * Order. Within a user by priority (sched.policy), then arrival. Between users by
 * tokens (prompt and output), divided by the user's weight (sched.user_weights, else 1):
 * next is the user that has least. What it has are the tokens of its requests that ended,
 * and for each that is with the worker the mean of its last ones, at most what the request
 * may need. So users that stay backlogged have tokens in the ratio of their weights,
 * whatever their numbers of requests, lengths and samples, and in whatever order the
 * worker serves them. The difference is at most what the worker holds of them.
 *
 * A user whose queue becomes active begins where others are (start): time without
 * requests is no credit. Of what the worker holds of them it counts half as done.
 *
 * Credits. A worker grants as many credits as sequences fit its batch, and a few more so
 * that a free row does not wait for the gate. This module has the sum over all workers. A
 * request costs min(n, credits of one worker) credits from sending to its terminal record. The request
 * whose turn it is waits until enough of them are free, and those behind it wait too:
 * otherwise a request of many samples would not start.
 *
 * Reserve. The last credits, and so the last rows of a batch
 * (sched.reserved_seqs), go to users that hold none: one with long answers does not
 * make another wait until one of them ends.
 *
 * A user's entry exists while it has sessions or requests, until its connect
 * bucket is full again (a flood earns no new burst by leaving), and for
 * USR_REST_FORGET_NS after it made the loop wait.
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
#define FAIR_MEAN_OF       8     /* requests, for what the next is thought to need */
#define FAIR_SCALE         65536 /* of a token, in what is divided by a weight */
#define FAIR_WEIGHT_MAX    1000u
#define FAIR_WEIGHTS       128u /* items of sched.user_weights; its text has 511 bytes */
#define USR_RATIO          16u  /* of the loop's time, while others are here */
#define USR_REST_MIN_NS    100000000u /* of usr_rest() */
#define USR_REST_MAX_NS    10000000000ull
#define USR_REST_FORGET_NS 60000000000ull /* after the last rest */
#define FAIR_OTHER_MAX     64u            /* requests of FAIR_OTHER with the worker */

enum fair_kind { FAIR_GEN = 0, FAIR_OTHER, FAIR_KINDS };

/* A user's queue of one kind. */
struct uqueue {
    TAILQ_ENTRY(uqueue) act; /* in fair.active while it is not empty */
    struct heap_node turn;   /* in fair.turn; key: level */
    struct heap_node free;   /* in fair.free while its user holds no credit */
    int is_ranked, is_free;  /* in the one, in both */
    struct usr *usr;
    int active;
    int64_t served; /* tokens that it had, by its weight, in 1 / FAIR_SCALE */
    int64_t held;   /* tokens that its requests with the worker are thought to need */
    int64_t mean;   /* tokens that a request needed, of the last ones; 0: none ended */
    int64_t level;  /* served, and held by its weight */
    uint64_t cost;  /* tokens queued */
    struct jreq_q q;
    struct jreq *put; /* of q, that fair_unpop() put there last; or NULL */
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
    uint64_t bytes;     /* requests and held records */
    uint64_t bucket_ns; /* connects: 1e9 / connects_per_second each */
    uint64_t t_bucket;
    uint64_t refused_ns; /* error budget used: 1e9 / the rate per rejection, at most a second */
    uint64_t t_refused;
    uint64_t loop; /* iteration that the next three are of */
    uint32_t loop_bytes, loop_records, loop_ns;
    uint32_t n_jobs;   /* requests whose items come in pieces */
    uint32_t n_reads;  /* sessions of which a thread reads: intake.h */
    uint64_t rest_ns;  /* length of the last pause of its rings: rest.h */
    uint64_t t_rest;   /* until then; its sessions' t_read */
    struct share time; /* of its rings, in USR_RATIO: usr_until() */
    struct uqueue queue[FAIR_KINDS];
};

struct fair_weight {
    uint64_t key;
    uint32_t weight;
};

struct fair {
    struct usr *hash[USR_BUCKETS];
    struct uqueue_list active[FAIR_KINDS]; /* per-user queues that are not empty */
    struct heap turn[FAIR_KINDS];          /* those, who has had and has least first */
    struct heap free[FAIR_KINDS];          /* of those, whose user holds no credit */
    uint64_t seq;                          /* of the queue that was put last in order */
    int64_t start[FAIR_KINDS];             /* of a queue that becomes active, at least */
    uint32_t n_usr;
    uint32_t n_here;   /* users with a session */
    uint32_t n_queued; /* requests, of both kinds */
    uint32_t n_side;   /* requests of FAIR_OTHER with the worker */
    uint32_t credits;  /* granted by the workers that take requests, 1 at least */
    uint32_t credits_one; /* the most that one of them granted: what a request costs at most */
    uint32_t credits_used;
    uint32_t credits_kept;  /* of credits: for users that hold none */
    int fcfs;               /* priorities do not count */
    uint64_t cost_queued;   /* tokens of FAIR_GEN: accepted, not sent */
    uint64_t cost_first;    /* of those, of requests whose user had none */
    uint64_t cost_open;     /* the same, and those with the worker */
    uint32_t n_gen;         /* requests of FAIR_GEN, queued or sent */
    uint64_t weight_queued; /* of users with FAIR_GEN queued */
    uint64_t weight_active; /* of those and of users with credits */
    uint32_t n_active;      /* those users */
    uint64_t t_next;        /* no deadline of a request that has not begun is before;
                               * 0: none */
    struct svcrate svcrate;
    uint32_t n_weights;
    struct fair_weight weights[FAIR_WEIGHTS];
};

void fair_init(struct fair *f);
void fair_fini(struct fair *f);

/* sched.user_weights as text. Writes at most FAIR_WEIGHTS items; -EINVAL with
 * one line in err that names the item and what is wrong with it. Looks names
 * up in the system's user database. */
int fair_parse_weights(const char *text, struct fair_weight *ret, uint32_t *ret_n,
    char *err, size_t err_bytes);
/* The weights in force, for users that exist and that come. */
void fair_set_weights(struct fair *f, const struct fair_weight *list, uint32_t n);

/* Find or make. NULL: no memory or too many users. */
struct usr *usr_get(struct fair *f, uint64_t key, uint64_t now_ns);
/* May this user connect now, at this rate? Takes one token of its bucket. */
int usr_connect(struct usr *u, uint64_t per_second, uint64_t now_ns);
/* A request of u was rejected: takes n from its error budget. */
void usr_refused(struct usr *u, uint32_t n, uint32_t per_second, uint64_t now_ns);
/* ms until u's error budget, refilled at per_second, allows a request; 0: now. */
uint32_t usr_eager_ms(struct usr *u, uint32_t per_second, uint64_t now_ns);
/* Forget users that nothing refers to. */
void usr_sweep(struct fair *f, uint64_t now_ns);
/* The loop had to wait for memory of u: u's rings are not read until the returned time.
 * Each such pause is four times as long as the one before. */
uint64_t usr_rest(struct usr *u, uint64_t now_ns);
/* A session of u begins, ends. */
void usr_enter(struct fair *f, struct usr *u);
void usr_leave(struct fair *f, struct usr *u);
/* Its rings are not read before this time; 0: whenever. */
static inline uint64_t
usr_until(const struct usr *u)
{
    return shr_until(&u->time, USR_RATIO);
}

void fair_push(struct fair *f, struct jreq *r);
/* Undo fair_pop() for a request that was not sent. It returns to the front of its queue,
 * in order with others that return. */
void fair_unpop(struct fair *f, struct jreq *r);
void fair_remove(struct fair *f, struct jreq *r);
/* The request of this kind that is due and has its credits, removed from its
 * queue. NULL: none, or it must wait. */
struct jreq *fair_pop(struct fair *f, enum fair_kind kind);
/* The workers' grants changed; `kept` of the credits are for users that hold none. */
void fair_grant(struct fair *f, uint32_t credits, uint32_t kept);
/* Then, where there are several workers: the most that one of them granted. */
void fair_grant_one(struct fair *f, uint32_t credits);
/* r goes to a worker: take its r->price credits. */
void fair_charge(struct fair *f, struct jreq *r);
/* The earlier of the deadlines that hold before a request has begun. 0: none. */
uint64_t fair_deadline(const struct jreq *r);
/* Include r in fair.t_next. */
void fair_note_deadline(struct fair *f, const struct jreq *r);
/* r has left its worker: give its credits back, if it has any. */
void fair_return(struct fair *f, struct jreq *r);
/* r ended at the worker, which has its credits still: its user had what it needed. */
void fair_settle(struct jreq *r);
/* r has ended, in no queue and without credits: take it out of the totals. */
void fair_drop(struct fair *f, struct jreq *r);
/* Tokens that the worker serves before a request of u with this priority starts,
 * if all shares stay as they are. */
uint64_t fair_ahead(const struct fair *f, const struct usr *u, int32_t priority);
/* Tokens of an open request, on average. */
uint64_t fair_mean_cost(const struct fair *f);
/* Counts agree with the lists; aborts when they do not. */
void fair_check(const struct fair *f);

#endif
