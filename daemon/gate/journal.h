/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepted requests, from acceptance to their one terminal record: the checked request,
 * its items, its state, and counts of its output. The journal outlives the workers. This
 * module keeps and finds requests; request.h acts on them.
 *
 *   QUEUED   in its user's queue
 *   SENDING  taken from the queue, its items are being sent to a worker
 *   RUNNING  with the worker
 *   ENDING   with the worker, cancel sent or about to be
 *
 * The terminal record frees the entry. cli is NULL when the client has disconnected; such
 * a request is ENDING and its output is dropped.
 */
#ifndef FDD_DAEMON_GATE_JOURNAL_H
#define FDD_DAEMON_GATE_JOURNAL_H

#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "daemon/gate/pages.h"
#include "daemon/gate/check.h"
#include "libclient/fdproto.h"

struct client;
struct usr;
struct wlk;

#define JREQ_MAGIC        0x4a524551u
#define JREQ_FIN_MIXED    255u /* a request's samples ended in different ways */

#define JNL_TOLD_ACCEPTED 1u
#define JNL_TOLD_OUTPUT   2u /* some of its output */

TAILQ_HEAD(jreq_q, jreq);

enum jnl_st { JNL_FREE = 0, JNL_QUEUED, JNL_SENDING, JNL_RUNNING, JNL_ENDING };

/* Samples that a request draws. */
static inline uint32_t
jnl_samples(const struct fdp_req *q)
{
    return q->best_of > q->n ? q->best_of : q->n;
}

struct jreq {
    uint32_t magic;
    uint8_t st;      /* enum jnl_st */
    uint8_t checked; /* ids and lengths were checked against the model */
    uint8_t in_cancelq;
    uint8_t in_sendq;
    uint64_t id; /* never reused */
    struct jreq *id_next, *tag_next;
    struct client *cli; /* NULL: disconnected */
    struct usr *usr;
    uint64_t tag;
    TAILQ_ENTRY(jreq) of_ses; /* in client.reqs, or the journal's orphans */
    TAILQ_ENTRY(jreq) link;   /* in its user's queue, wlk.cancelq, or the free list */
    TAILQ_ENTRY(jreq) start;  /* in wlk.startq: its worker may not have begun it */
    TAILQ_ENTRY(jreq) send;   /* in wlk.sendq: its items are being sent */
    struct wlk *with;         /* link of the worker that has the request; NULL: none */
    uint32_t sent;            /* bytes of blob sent */
    unsigned char *blob;      /* its items, a private copy */
    uint32_t blob_bytes;
    uint32_t due;        /* prompt tokens that its worker has yet to compute */
    uint32_t cost;       /* estimated tokens, for fairness */
    uint32_t prompt_len; /* tokens, 0 = not known yet */
    uint32_t n_out;      /* output tokens relayed so far */
    int32_t end_code;    /* FDP_E_* of the cancel when ENDING */
    uint32_t est_prompt; /* prompt tokens within cost */
    uint32_t price;      /* if charged: credits that it holds */
    uint32_t held;       /* if charged: tokens that it is expected to need */
    uint8_t kind;        /* enum fair_kind */
    uint8_t charged;     /* it is with the worker and holds its price in credits */
    uint8_t accepted;    /* the worker has accepted its prompt */
    uint8_t logged;      /* it is in the request log */
    uint8_t finish;      /* enum fdp_finish of its samples, or JREQ_FIN_MIXED */
    uint8_t in_startq;
    uint8_t first;   /* its user had no other request when it came */
    uint8_t told;    /* JNL_TOLD_*: records that its client has received */
    uint8_t n_moved; /* times that it moved to another worker because its worker died */
    uint64_t t_submit;
    uint64_t deadline_queue, deadline_total; /* absolute ns, 0 = none */
    uint64_t t_sent;
    uint64_t t_first;      /* when the first output tokens were relayed, 0: not yet */
    uint32_t cached_len;   /* prompt tokens found in the prefix cache */
    uint32_t n_concurrent; /* other requests with workers when it was sent */
    pid_t client_pid;      /* of its client; kept, as client is, after the session */
    char client[33];
    struct chk_items items;
    struct fdp_req req;
};

struct jnl {
    struct jreq *pool;
    struct jreq **by_id, **by_tag;
    struct jreq_q free;
    struct jreq_q orphans; /* requests whose client disconnected, linked by of_ses */
    uint32_t n_max, n_open;
    uint32_t mask; /* mask of both hash tables */
    uint64_t next_id;
    uint64_t bytes;     /* memory of all requests and their blobs */
    struct pages pages; /* of long blobs */
};

int jnl_init(struct jnl *j, uint32_t n_max);
void jnl_fini(struct jnl *j);

/* Enters a request of c, charged to u. blob, from blb_new(), passes to the journal. NULL:
 * no entry is free, and the caller keeps blob. The caller queues the request next. */
struct jreq *jnl_add(struct jnl *j, struct client *c, struct usr *u,
    const struct fdp_req *req, unsigned char *blob, uint32_t blob_bytes, uint64_t now_ns);
struct jreq *jnl_find(const struct jnl *j, uint64_t id);
struct jreq *jnl_find_tag(const struct jnl *j, const struct client *c, uint64_t tag);
/* The client disconnected: removes r from its requests and from the tag table. */
void jnl_orphan(struct jnl *j, struct jreq *r);
/* r must be in no queue and hold no credits. */
void jnl_free(struct jnl *j, struct jreq *r);
const char *jnl_state_name(int st);
/* Checks that the requests of one client agree with its count. Adds to *n and *bytes. */
void jnl_check_client(const struct jnl *j, const struct client *c, uint32_t *n,
    uint64_t *bytes);
/* n and bytes: the sums over all clients. Aborts on any mismatch. */
void jnl_check(const struct jnl *j, uint32_t n, uint64_t bytes);

#endif
