/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * fdd-http: what its modules share. Each loop (struct gw) is a thread with connections,
 * sessions with the daemons and counters of its own: it sleeps in epoll on listeners,
 * connections, those sessions and its inbox (inbox.h), into which the helper threads
 * (link.h) and the prep threads (prep.h) put results. In each loop iteration everything
 * that has arrived is taken first; then each connection with news gets at most one send().
 * The first loop runs in the main thread and takes the signals.
 *
 * What all loops read (parameters, keys, the list of daemons) changes only while all of
 * them stand still (loops_pause()). The helper and prep threads do not read it.
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
#define GW_FLUSH     16 /* connections whose events are written, and then sent */

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
    unsigned links_of; /* sh->version that they follow */
    struct metrics met;
    struct live live;
    char *scratch;            /* GW_SCRATCH bytes, for what is received */
    struct buf event;         /* what a stream gets, while it is written */
    struct buf out[GW_FLUSH]; /* memory that no answer needs now: conn.h */
    unsigned n_out;

    struct conn *conns, *dead; /* all; to be freed */
    /* With news, in the order in which they came: however many of a step's tokens are here in
     * one iteration, its streams get theirs in the same order each time. */
    STAILQ_HEAD(conn_list, conn) dirty;
    struct conn *paced;   /* their bodies wait for the next millisecond */
    struct conn *tick_at; /* whose deadlines are looked at next; NULL: none */
    uint64_t paced_ms;    /* when what follows was read */
    size_t paced_n;       /* bytes */
    uint32_t n_conn;
    int is_full; /* no more connections are accepted now */
    int draining;
    uint64_t drain_until_ms;
};

struct shared {
    struct par_set *ps;
    struct par_src src;
    struct keys keys;
    struct served_list served;
    unsigned version; /* of served and parameters, counted by reload */
    struct peers peers;
    struct prep prep;
    atomic_uint n_conn;         /* of all loops */
    atomic_uint_least64_t held; /* bytes of long bodies that are here */
    atomic_uint drain;          /* 1: end; 2: at once */

    struct gw *loop[GW_MAX_LOOPS];
    unsigned n_loop;
    pthread_t thread[GW_MAX_LOOPS]; /* not of the first */
    int signals;
    /* under lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_int pausing;          /* read without it too */
    unsigned n_running, n_still; /* all loops but the first: that run; that stand still */
    struct metrics met[GW_MAX_LOOPS]; /* of each loop, a few times a second */
    uint32_t connected[GW_MAX_LOOPS]; /* its sessions */
};

/* The link that a model's name stands for; NULL and why. name may be NULL: the only one. */
struct link *gw_link(const struct gw *g, const char *name, size_t n, struct problem *bad);
/* Can a request of this link be answered now? */
int gw_is_ready(const struct gw *g, const struct link *l, struct problem *bad);
/* The model of a list that a name stands for, or NULL and why. */
struct model *gw_model(struct model *const *m, size_t n_model, const char *name, size_t n,
    struct problem *bad);
/* References of all models, in the order of the links: their number. */
size_t gw_models(const struct gw *g, struct model *ret[SRV_MAX]);
/* The first of the links that stay; NULL: there is none. */
struct link *gw_first(const struct gw *g);
/* The link of a model, by its label; NULL: there is none any more. */
struct link *gw_link_of(const struct gw *g, const struct model *m);

#endif
