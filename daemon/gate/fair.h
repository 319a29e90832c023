/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Users and the order in which their requests reach the worker.
 *
 * A user is a uid or a delegated user id (one number space). Each has two
 * queues of accepted requests (lanes): those that generate, and all others
 * (tokenize, detokenize, deep ping), which take no row of a batch and must
 * not wait for one.
 *
 * Order. Within a user by priority (sched.policy), then arrival. Between
 * users by weighted deficit round-robin over the requests' token cost
 * (prompt estimate plus output limit): a user of weight w (sched.user_weights,
 * else 1) may send w * FAIR_QUANTUM tokens per round. Over any time in which
 * a set of users stays backlogged and below the cap, what each has sent
 * differs from its weight's share by at most its tokens per round and one
 * request. What a request turns out to have cost is settled when it ends.
 *
 * Credits. The worker's queue is first come, first served, so what waits
 * there is beyond fairness; it grants as many credits as sequences fit its
 * batch, and a few more so that a free row never waits for the gate. A
 * request costs min(n, credits) of them from sending to its terminal record.
 * The request whose turn it is waits until enough of them are free, and those
 * behind it wait too: else one of many samples would never start.
 *
 * Cap. A user that came first must not hold all rows while others wait. With
 * W the weights of all active users (something queued or with the worker), a
 * user holds at most ceil(credits * w / W) + 1 credits as long as somebody
 * below this cap has something queued. When nobody below it has, the cap
 * does not count: no credit stays unused. A user that holds nothing may
 * always have one request with the worker, however many samples it has.
 *
 * A user exists while it has sessions or requests, or its connect bucket is
 * not full again (a flood must not earn a new burst by leaving).
 */
#ifndef FDD_DAEMON_GATE_FAIR_H
#define FDD_DAEMON_GATE_FAIR_H

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/gate/drain.h"

struct gate;
struct jreq;
struct wrk;

#define USR_MAGIC   0x55535231u
#define USR_BUCKETS 1024u
#define USR_MAX     65536u
#define FAIR_QUANTUM 256 /* tokens a user of weight 1 may send per round */
#define FAIR_WEIGHT_MAX 1000u
#define FAIR_WEIGHTS 128u /* items of sched.user_weights; its text has 511 bytes */
#define FAIR_SETTLE_ROUNDS 128 /* a settlement moves a user so far at most */
#define FAIR_SIDE_MAX 64u /* requests of FAIR_SIDE with the worker */

TAILQ_HEAD(jreq_q, jreq);

enum fair_kind { FAIR_GEN = 0, FAIR_SIDE, FAIR_KINDS };

/* A user's queue of one kind. */
struct lane {
    TAILQ_ENTRY(lane) act;    /* in the round while it is not empty */
    struct usr *usr;
    int active;
    int64_t deficit;          /* tokens */
    uint64_t cost;            /* tokens queued */
    struct jreq_q q;
};
TAILQ_HEAD(lane_q, lane);

struct usr {
    uint32_t magic;
    uint32_t weight;
    uint64_t key;
    struct usr *hnext;
    uint32_t n_ses, n_inflight;
    uint32_t n_held;          /* credits of its requests with the worker */
    int counted;              /* its weight is in fair.weight_active */
    uint64_t bytes;           /* requests and held records */
    uint64_t bucket_ns;       /* connects: 1e9 / connects_per_second each */
    uint64_t t_bucket;
    struct lane lane[FAIR_KINDS];
};

struct fair_weight { uint64_t key; uint32_t weight; };

struct fair {
    struct usr *hash[USR_BUCKETS];
    struct lane_q round[FAIR_KINDS]; /* lanes with something queued */
    uint32_t n_usr;
    uint32_t n_queued;        /* requests, of both kinds */
    uint32_t n_side;          /* requests of FAIR_SIDE with the worker */
    int fcfs;                 /* priorities do not count */
    uint64_t cost_queued;     /* tokens of FAIR_GEN: accepted, not sent */
    uint64_t cost_open;       /* the same, and those with the worker */
    uint32_t n_gen;           /* requests of FAIR_GEN, queued or sent */
    uint64_t weight_queued;   /* of users with FAIR_GEN queued */
    uint64_t weight_active;   /* of those and of users with credits */
    uint64_t t_next;          /* no deadline of a request that has not begun is before;
                               * 0: none */
    struct drain drain;
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
void fair_set_weights(struct gate *g, const struct fair_weight *list, uint32_t n);

/* Find or make. NULL: no memory or too many users. */
struct usr *usr_get(struct gate *g, uint64_t key, uint64_t now_ns);
/* May this user connect now? Takes one token of its bucket. */
int usr_connect(struct gate *g, struct usr *u, uint64_t now_ns);
/* Forget users that nothing refers to. */
void usr_sweep(struct gate *g, uint64_t now_ns);

void fair_push(struct gate *g, struct jreq *r);
/* Back to the front of its queue (it was taken and not sent). */
void fair_unpop(struct gate *g, struct jreq *r);
void fair_remove(struct gate *g, struct jreq *r);
/* The request of this kind that is due and has its credits, removed from its
 * queue. NULL: none, or it must wait. */
struct jreq *fair_pop(struct gate *g, const struct wrk *w, enum fair_kind kind);
/* It goes to the worker: take its credits. */
void fair_charge(struct gate *g, struct wrk *w, struct jreq *r);
/* When a request that has not begun must end: the earlier of its deadlines. 0: never. */
uint64_t fair_deadline(const struct jreq *r);
/* It has begun there, or nobody cares: its deadlines are not looked at any more. */
void fair_begun(struct wrk *w, struct jreq *r);
/* It is no longer with the worker: give them back. Nothing if it has none. */
void fair_return(struct gate *g, struct wrk *w, struct jreq *r);
/* It ended with the worker: its user pays what it took, not what was thought. */
void fair_settle(struct gate *g, struct jreq *r);
/* It is over, and in no queue: credits and totals go. */
void fair_drop(struct gate *g, struct jreq *r);
/* Credits that u may hold while others wait. */
uint32_t fair_cap(const struct gate *g, const struct wrk *w, const struct usr *u);
/* Tokens that the worker will do before a request of u with this priority
 * starts, if everybody's share goes on as it is. */
uint64_t fair_ahead(const struct gate *g, const struct usr *u, int32_t priority);
/* Tokens of an open request, on average. */
uint64_t fair_mean_cost(const struct gate *g);
/* Counts agree with the lists; aborts when they do not. */
void fair_check(const struct gate *g);

#endif
