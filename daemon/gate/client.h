/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A client as the modules below its session see it: its identity, its requests, its two
 * rings. Records go to the completion ring. A record that does not fit a full ring is
 * held in memory, in order, and counts in its user's max_bytes_per_user. Terminal records
 * are always held, so that each accepted request has one. Held records may be many
 * megabytes: when a client reads again, they are moved to its ring and their memory is
 * given back over many iterations.
 *
 * Output becomes visible in a loop iteration once after the requests that came were read
 * and once at the end (cli_publish, cli_flush), for each client with at most one
 * wake-up.
 *
 * cli_kill() only marks: the session ends the client at the end of the loop iteration, so
 * that no caller is left with a freed client.
 */
#ifndef FDD_DAEMON_GATE_CLIENT_H
#define FDD_DAEMON_GATE_CLIENT_H

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "daemon/gate/journal.h"
#include "daemon/gate/pages.h"
#include "daemon/gate/region.h"
#include "libclient/fdproto.h"
#include "libclient/fdring.h"

struct cli_chunk;
struct env;
struct itk_job;
struct usr;

#define CLI_CHUNK       16384u /* bytes of a chunk of held records */
#define CLI_CHUNKS      16u    /* chunks given back per iteration */
#define CLI_PIECE       256u /* slots of held records moved between looks at the clock */
#define CLI_PAGES       512u /* slots copied in the time that new pages take */
#define CLI_CHUNK_PAGES 128u /* the same, for the pages of a chunk */

/* MAKES: its memory is being made off the loop. MAPS: it has its memory, but has not rung
 * yet or its memory is not sealed yet; until then nothing in it is read. */
enum cli_st { CLI_HELLO = 1, CLI_MAKES, CLI_MAPS, CLI_OPEN, CLI_DOOMED };
#define CLI_RESTS_LOOP 1 /* paused until t_read: rest.h */
#define CLI_RESTS_READ 2 /* paused until an off-loop read is done: intake.h */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define CLI_ST_READ ((uint16_t)CLI_OPEN)
#else
#define CLI_ST_READ ((uint16_t)(CLI_OPEN << 8))
#endif

struct client {
    union {
        struct {
            uint8_t st;    /* enum cli_st */
            uint8_t rests; /* CLI_RESTS_*: why its ring is not polled; 0: it is */
        };
        uint16_t st_rests; /* st and rests: CLI_ST_READ if open and not paused */
    };
    uint8_t trusted;
    uint8_t dirty;          /* has output to publish in this iteration */
    uint8_t quiet;          /* when closing: send no GOODBYE, the peer disconnected */
    uint8_t slow;           /* its requests were cancelled with E_SLOW */
    uint8_t growing;        /* d2c has not all of its pages yet */
    int32_t why;            /* FDP_E_* of cli_kill() */
    int fd;                 /* control socket, for wake-ups */
    struct region c2d, d2c; /* its memory: c2d from, d2c to the client */
    struct fdr_cons sq;     /* request ring; the cursors are the gate's copies */
    struct fdr_prod cq;     /* completion ring */
    uint32_t *p_cq_wait;    /* in c2d */
    uint32_t *p_sq_wait;
    uint32_t arena_off, arena_bytes; /* in c2d */
    TAILQ_ENTRY(client) out;         /* in clients.outq while it has output */

    struct cli_chunk *hold_first, *hold_last; /* held records */
    TAILQ_ENTRY(client) hold;                 /* in clients.holdq while it holds some */
    uint32_t n_held;
    uint64_t held_bytes;
    uint64_t t_full;    /* since when the ring has been full without progress */
    uint32_t full_head; /* cq_head at t_full */

    uint64_t id;
    uid_t uid;
    gid_t gid;
    pid_t pid;
    struct usr *usr;
    char name[33];  /* printable ASCII */
    char shown[72]; /* name as log_quote() makes it for log lines */
    uint32_t n_inflight;
    uint64_t n_requests;
    struct jreq_q reqs;
    uint64_t t_used;     /* time of the last request; if none, of the connect */
    struct itk_job *job; /* request whose items have not all arrived */
    uint64_t t_read;     /* its requests are not looked at before this time */
    uint64_t t_refused;  /* time of the last rejection; 0: none */
    uint32_t n_eager;    /* requests rejected unread since the ring's last pause */
};
TAILQ_HEAD(client_q, client);

struct clients {
    const struct env *env;
    struct client_q outq;  /* with output in this iteration */
    struct client_q holdq; /* clients with held records, taken in turn */
    struct cli_chunk *old; /* chunks of clients that have ended: cli_sweep() */
    struct pages pages;    /* of chunks */
    uint64_t quota;        /* slots that the relay may still copy; see CLI_PAGES */
    uint32_t n_hello, n_doomed;
};

void cli_init(struct clients *k, const struct env *env);
/* Marks c to be ended at the end of this iteration. code FDP_OK: the peer has
 * disconnected. */
void cli_kill(struct clients *k, struct client *c, int code);

/* Sends a record of this type, without a sample and a position: to the ring, or held.
 * best_effort: drop it instead of holding it. Returns 0, or -ENOBUFS when it was dropped.
 * len is at most FDP_REC_MAX_LEN. */
int cli_emit(struct clients *k, struct client *c, uint64_t tag, unsigned type,
    const void *payload, uint32_t len, int best_effort);
void
cli_error(struct clients *k, struct client *c, uint64_t tag, const struct fdp_error *e);
/* Makes what is in the rings visible and wakes the clients. */
void cli_publish(struct clients *k);
/* Moves held records to the rings, then publishes. Returns 1 if more can still be moved. */
int cli_flush(struct clients *k);
/* Wakes one thread that sleeps on c's completion cursor; reads nothing of c's. */
void cli_wake_thread(const struct client *c);
/* Drops c's held and unpublished records. */
void cli_drop(struct clients *k, struct client *c);
/* Gives back chunks of clients that have ended, CLI_CHUNKS at most. Returns their
 * number. */
int cli_sweep(struct clients *k);
/* All clients have ended: gives all chunks back. */
void cli_fini(struct clients *k);

enum cli_slow { CLI_KEEPS_UP = 0, CLI_SLOW, CLI_STUCK };
/* Checks how a client with held records reads: CLI_SLOW after slow_ns without progress;
 * CLI_STUCK if after that it did not even read its terminal records. Kills a client whose
 * cursor is impossible. */
enum cli_slow cli_check_slow(struct clients *k, struct client *c, uint64_t slow_ns);

/* ---- the hot path: a record to a ring with room costs no call ------------------ */

/* The client's cursor is impossible: kills it. */
void cli_bad_cursor(struct clients *k, struct client *c);
/* First pass through the ring: gets pages for the next cost slots. Returns 0 if there are
 * none. */
int cli_grow(struct clients *k, struct client *c, uint32_t cost);
/* Holds a record of n slots that the ring has no room for. Returns its place; NULL: it is
 * dropped. */
struct fdp_rec *cli_place(struct clients *k, struct client *c, uint32_t n, int best_effort);

static inline void
cli_touch(struct clients *k, struct client *c)
{
    if (!c->dirty) {
        c->dirty = 1;
        TAILQ_INSERT_TAIL(&k->outq, c, out);
        /* cli_flush() will use them */
        __builtin_prefetch(c->cq.p_tail, 1);
        __builtin_prefetch(c->p_cq_wait, 0);
    }
}

/* Claims n slots in the client's ring; NULL when it has no room now. */
static inline struct fdp_rec *
cli_claim(struct clients *k, struct client *c, uint32_t n)
{
    struct fdr_prod *p = &c->cq;
    uint32_t cost = fdr_prod_cost(p, n);
    int64_t room = fdr_prod_room(p, cost);
    struct fdp_rec *rec;

    if (room < (int64_t)cost) {
        if (room < 0) /* impossible cursor */
            cli_bad_cursor(k, c);
        return NULL;
    }
    if (c->growing && !cli_grow(k, c, cost))
        return NULL;
    rec = fdr_prod_slot(p, p->tail);
    if (cost != n) {
        memset(rec, 0, sizeof(*rec));
        rec->type = FDP_T_PAD;
        rec->n_slot = (uint8_t)(cost - n);
        rec = fdr_prod_slot(p, p->tail + cost - n);
    }
    p->tail += cost;
    return rec;
}

/* Sends a record with this tag; head has its other fields, payload head->len bytes.
 * Otherwise as cli_emit(). */
static inline int
cli_put(struct clients *k, struct client *c, uint64_t tag, const struct fdp_rec *head,
    const void *payload, int best_effort)
{
    uint32_t n = FDP_REC_SLOTS(head->len);
    struct fdp_rec *to = NULL;

    if (c->st != CLI_OPEN)
        return -ENOBUFS;
    if (c->n_held == 0)
        to = cli_claim(k, c, n);
    if (to != NULL) {
        cli_touch(k, c);
    } else {
        to = cli_place(k, c, n, best_effort);
        if (to == NULL)
            return -ENOBUFS;
    }
    to->tag = tag;
    to->type = head->type;
    to->n_slot = (uint8_t)n;
    to->sample = head->sample;
    to->position = head->position;
    to->len = head->len;
    to->rsv = 0;
    /* Copy only len bytes: the rest of the worker's slot may belong to another client. */
    memcpy(to + 1, payload, head->len);
    return 0;
}

#endif
