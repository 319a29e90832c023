/*
 * Users and the order in which their requests reach the worker.
 *
 * A user is a uid or a delegated user id (one number space). Each has a
 * queue of accepted requests, ordered by priority, then arrival. Queues are
 * served by deficit round-robin over the requests' token cost (prompt
 * estimate plus output limit), so that a user with many or long requests
 * does not delay another by more than one quantum per user.
 *
 * A user exists while it has sessions or requests, or its connect bucket is
 * not full again (a flood must not earn a new burst by leaving).
 */
#ifndef FDD_DAEMON_GATE_FAIR_H
#define FDD_DAEMON_GATE_FAIR_H

#include <stdint.h>
#include <sys/queue.h>

struct gate;
struct jreq;

#define USR_MAGIC   0x55535231u
#define USR_BUCKETS 1024u
#define USR_MAX     65536u
#define FAIR_QUANTUM 2048 /* tokens a user may send per round */

TAILQ_HEAD(jreq_q, jreq);

struct usr {
    uint32_t magic;
    int active;               /* in the round */
    uint64_t key;
    struct usr *hnext;
    TAILQ_ENTRY(usr) act;
    uint32_t n_ses, n_inflight;
    uint64_t bytes;           /* requests and held records */
    uint64_t bucket_ns;       /* connects: 1e9 / connects_per_second each */
    uint64_t t_bucket;
    int64_t deficit;          /* tokens */
    struct jreq_q q;
};
TAILQ_HEAD(usr_q, usr);

struct fair {
    struct usr *hash[USR_BUCKETS];
    struct usr_q round;       /* users with something queued */
    uint32_t n_usr;
    uint32_t n_queued;
};

void fair_init(struct fair *f);
void fair_fini(struct fair *f);

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
/* The request that is due, removed from its queue. NULL: none. */
struct jreq *fair_pop(struct gate *g);
/* Counts agree with the lists; aborts when they do not. */
void fair_check(const struct gate *g);

#endif
