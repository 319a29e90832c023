/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * fdd-http: what its modules share. Each loop (struct gw) is a thread with connections,
 * sessions with the daemons and counters of its own: it sleeps in epoll on listeners,
 * connections, those sessions and its inbox (inbox.h), into which the helper threads
 * (link.h) and the prep threads (prep.h) put results. In each loop iteration everything
 * that has arrived is taken first; then each connection with news gets at most one
 * send(). The first loop runs in the main thread and takes the signals.
 *
 * Data that all loops read (parameters, keys, the list of daemons) changes only while all
 * loops are paused (loops_pause()). The helper and prep threads do not read it.
 */
#ifndef FDD_HTTP_GATEWAY_H
#define FDD_HTTP_GATEWAY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/common/param.h"
#include "http/buf.h"
#include "http/inbox.h"
#include "http/keys.h"
#include "http/link.h"
#include "http/listen.h"
#include "http/live.h"
#include "http/metrics.h"
#include "http/model.h"
#include "http/peers.h"
#include "http/prep.h"
#include "http/served.h"

#define GW_MAX_LOOPS 16
#define GW_SCRATCH   65536
#define GW_FLUSH     16 /* connections whose events are written, then sent, together */

struct conn;
struct shared;

struct gw {
    struct shared *sh;
    unsigned index;
    const struct par *par;
    const struct keys *keys;
    int epoll;
    uint64_t now_ms; /* CLOCK_MONOTONIC, of this loop iteration */
    struct lis lis;
    struct inbox inbox;
    struct link *links;
    unsigned links_of; /* the sh->version from which links was made */
    struct metrics met;
    struct live live;
    char *scratch;            /* GW_SCRATCH bytes, for received bytes */
    struct buf event;         /* an event of a stream while it is written */
    struct buf out[GW_FLUSH]; /* unused buffers for answers: conn.h */
    unsigned n_out;

    struct conn *conns, *dead; /* all connections; those to be freed */
    /* Connections with output, in the order in which it came: the streams of a step get
     * their tokens in the same order, however many of these arrive in one iteration. */
    STAILQ_HEAD(conn_list, conn) dirty;
    struct conn *paced;   /* connections whose bodies wait for the next millisecond */
    struct conn *tick_at; /* the next one whose deadlines are checked; NULL: none */
    uint64_t paced_ms;    /* now_ms of the last bytes counted in paced_n */
    size_t paced_n;       /* bytes of bodies read in that millisecond */
    uint32_t n_conn;
    int is_full;  /* no connections are accepted now */
    int is_short; /* a descriptor was lacking for one; until the next tick */
    int draining;
    uint64_t drain_until_ms;
};

struct shared {
    struct par_set *ps;
    struct par_src src;
    struct keys keys;
    struct served_list served;
    unsigned version; /* of served and the parameters; a reload increments it */
    struct peers peers;
    struct prep prep;
    atomic_uint n_conn;         /* connections of all loops */
    atomic_uint_least64_t held; /* bytes of long bodies in memory */
    atomic_uint drain;          /* 1: end after the running requests; 2: end at once */

    struct gw *loop[GW_MAX_LOOPS];
    unsigned n_loop;
    pthread_t thread[GW_MAX_LOOPS]; /* [0] is unused: the main thread */
    int signals;
    /* under lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_int pausing;          /* read without the lock too */
    unsigned n_running, n_still; /* threads of loops but the first; those that are paused */
    struct metrics met[GW_MAX_LOOPS]; /* of each loop, published a few times a second */
    uint32_t connected[GW_MAX_LOOPS]; /* sessions of each loop */
};

/* The link of the model of this name. name NULL: the only one. NULL: *bad says why. */
struct link *gw_link(const struct gw *g, const char *name, size_t n, struct problem *bad);
/* Returns 0 if a request can be sent to this link's daemon now, else -1 and why
 * in *bad. */
int gw_is_ready(const struct gw *g, const struct link *l, struct problem *bad);
/* The model of this name in a list; NULL: *bad says why. */
struct model *gw_model(struct model *const *m, size_t n_model, const char *name, size_t n,
    struct problem *bad);
/* Takes references to the models of all links that stay, in their order. Returns their
 * number. */
size_t gw_models(const struct gw *g, struct model *ret[SRV_MAX]);
/* The first link that is not leaving; NULL: none. */
struct link *gw_first(const struct gw *g);
/* The link of a model, by its label; NULL: it has none any more. */
struct link *gw_link_of(const struct gw *g, const struct model *m);

#endif
