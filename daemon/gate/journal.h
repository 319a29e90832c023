/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepted requests, from acceptance to their one terminal record: the
 * request as checked, its items, its state, and the answers so far. The journal
 * survives a worker. This module keeps and finds requests; request.h acts on them.
 *
 *   QUEUED   in its user's queue
 *   SENDING  taken from the queue, its items are going down a link
 *   RUNNING  with the worker
 *   ENDING   with the worker, cancel sent or about to be
 *
 * A terminal record frees the entry. cli is NULL when the client has disconnected;
 * such a request is ENDING and its output is dropped.
 */
#ifndef FDD_DAEMON_GATE_JOURNAL_H
#define FDD_DAEMON_GATE_JOURNAL_H

#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "daemon/gate/blob.h"
#include "daemon/gate/check.h"
#include "libclient/fdproto.h"

struct client;
struct usr;
struct wlk;

#define JREQ_MAGIC        0x4a524551u
#define JREQ_FIN_MIXED    255u /* samples ended differently */

#define JNL_TOLD_ACCEPTED 1u
#define JNL_TOLD_OUTPUT   2u /* of it */

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
    uint8_t checked; /* against the model's vocabulary and length */
    uint8_t in_cancelq;
    uint8_t in_sendq;
    uint64_t id; /* never reused */
    struct jreq *id_next, *tag_next;
    struct client *cli; /* NULL: disconnected */
    struct usr *usr;
    uint64_t tag;
    TAILQ_ENTRY(jreq) of_ses; /* the session's requests */
    TAILQ_ENTRY(jreq) link;   /* user's queue or the worker's cancel queue */
    TAILQ_ENTRY(jreq) start;  /* requests that the worker may not have begun */
    TAILQ_ENTRY(jreq) send;   /* requests whose items are being sent */
    struct wlk *with;         /* whose worker has it, while it is charged */
    uint32_t sent;            /* bytes of blob */
    unsigned char *blob;      /* items, private copy */
    uint32_t blob_bytes;
    uint32_t due;        /* tokens of its prompt that its worker has to compute */
    uint32_t cost;       /* tokens, for fairness */
    uint32_t prompt_len; /* tokens, 0 = not known yet */
    uint32_t n_out;      /* output tokens relayed */
    int32_t end_code;    /* FDP_E_* of the cancel when ENDING */
    uint32_t est_prompt; /* tokens of cost that are prompt */
    uint32_t price;      /* credits, when charged, */
    uint32_t held;       /* and tokens that it is thought to need */
    uint8_t kind;        /* enum fair_kind */
    uint8_t charged;     /* with the worker: holds its price */
    uint8_t accepted;    /* the worker has its prompt */
    uint8_t logged;      /* the request log has it */
    uint8_t finish;      /* enum fdp_finish of its samples */
    uint8_t in_startq;
    uint8_t first;   /* its user had none when it came */
    uint8_t told;    /* JNL_TOLD_*: what its client has of the answer */
    uint8_t n_moved; /* workers that died with it, and it went to another */
    uint64_t t_submit;
    uint64_t deadline_queue, deadline_total; /* absolute ns, 0 = none */
    uint64_t t_sent;
    uint64_t t_first;      /* first output tokens relayed, 0: none yet */
    uint32_t cached_len;   /* tokens of the prompt */
    uint32_t n_concurrent; /* other requests with the worker when it went there */
    pid_t client_pid;      /* these outlive the session */
    char client[33];
    struct chk_items items;
    struct fdp_req req;
};

struct jnl {
    struct jreq *pool;
    struct jreq **by_id, **by_tag;
    struct jreq_q free;
    struct jreq_q orphans; /* requests without session, of_ses links */
    uint32_t n_max, n_open;
    uint32_t mask; /* of both hash tables */
    uint64_t next_id;
    uint64_t bytes;     /* of requests and blobs held */
    struct blobs blobs; /* of theirs, freed: blb_sweep() */
};

int jnl_init(struct jnl *j, uint32_t n_max);
void jnl_fini(struct jnl *j);

/* Enter a request of c, charged to u; blob, of blb_new(), passes to the journal. NULL: no
 * entry is free, blob stays the caller's. Queueing it is the caller's next step. */
struct jreq *jnl_add(struct jnl *j, struct client *c, struct usr *u,
    const struct fdp_req *req, unsigned char *blob, uint32_t blob_bytes, uint64_t now_ns);
struct jreq *jnl_find(const struct jnl *j, uint64_t id);
struct jreq *jnl_find_tag(const struct jnl *j, const struct client *c, uint64_t tag);
/* The client disconnected: its tag is not valid any more. */
void jnl_orphan(struct jnl *j, struct jreq *r);
/* r must be in no queue and hold no credits. */
void jnl_free(struct jnl *j, struct jreq *r);
const char *jnl_state_name(int st);
/* The requests of one client agree with its count. Adds to *n and *bytes. */
void jnl_check_client(const struct jnl *j, const struct client *c, uint32_t *n,
    uint64_t *bytes);
/* n and bytes: the sums over all clients. Aborts on any mismatch. */
void jnl_check(const struct jnl *j, uint32_t n, uint64_t bytes);

#endif
