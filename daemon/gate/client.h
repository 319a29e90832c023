/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A client as the modules below its session see it: who it is, its requests,
 * its two rings. Records go to the completion ring; what does not fit a full
 * ring is held in memory, in order, and counts in its user's
 * max_bytes_per_user. Terminal records are always held, so that each accepted
 * request has one. Held records may be many megabytes: they go to a client that reads
 * again, and their memory is given back, some in each iteration.
 *
 * Output becomes visible once per loop iteration and client (cli_flush), with
 * at most one wake-up.
 *
 * cli_kill() only marks: the session ends the client at the end of the loop
 * iteration, so that no caller loses it under its hands.
 */
#ifndef FDD_DAEMON_GATE_CLIENT_H
#define FDD_DAEMON_GATE_CLIENT_H

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "daemon/gate/journal.h"
#include "daemon/gate/region.h"
#include "libclient/fdproto.h"
#include "libclient/fdring.h"

struct cli_chunk;
struct env;
struct itk_job;
struct usr;

#define CLI_CHUNK       16384u /* bytes of a block of held records */
#define CLI_CHUNKS      64u    /* of these are given back in an iteration */
#define CLI_UNHOLD      4096u  /* slots of held records go to rings in an iteration */
#define CLI_PAGES       512u /* slots that can be copied while REGION_STEP bytes get pages */
#define CLI_CHUNK_PAGES 128u /* and while a block does */

/* MAKES: its memory is made off the loop. MAPS: it has its memory, and has not rung yet, or
 * its memory is not sealed yet; until then nothing is read of it. */
enum cli_st { CLI_HELLO = 1, CLI_MAKES, CLI_MAPS, CLI_OPEN, CLI_DOOMED };
#define CLI_RESTS_LOOP 1 /* before t_read: rest.h */
#define CLI_RESTS_READ 2 /* before some of it has been read: intake.h */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define CLI_ST_READ ((uint16_t)CLI_OPEN)
#else
#define CLI_ST_READ ((uint16_t)(CLI_OPEN << 8))
#endif

struct client {
    union {
        struct {
            uint8_t st;    /* enum cli_st */
            uint8_t rests; /* CLI_RESTS_*: its ring is not looked at */
        };
        uint16_t st_rests; /* both: CLI_ST_READ where it is open and does not rest */
    };
    uint8_t trusted;
    uint8_t dirty;          /* has output to publish in this iteration */
    uint8_t quiet;          /* when closing: send no GOODBYE, the peer disconnected */
    uint8_t slow;           /* its requests were cancelled with E_SLOW */
    uint8_t growing;        /* d2c has not all of its pages yet */
    int32_t why;            /* FDP_E_* of the kill */
    int fd;                 /* control socket, for wake-ups */
    struct region c2d, d2c; /* its memory: the client's to write, and ours */
    struct fdr_cons sq;     /* requests; positions are ours */
    struct fdr_prod cq;     /* completions */
    uint32_t *p_cq_wait;    /* in c2d */
    uint32_t *p_sq_wait;
    uint32_t arena_off, arena_bytes; /* in c2d */
    TAILQ_ENTRY(client) out;         /* of those with output */

    struct cli_chunk *hold_first, *hold_last; /* records that did not fit */
    TAILQ_ENTRY(client) hold;                 /* of those that hold some */
    uint32_t n_held;
    uint64_t held_bytes;
    uint64_t t_full;    /* since when the ring is full without progress */
    uint32_t full_head; /* cq_head then */

    uint64_t id;
    uid_t uid;
    gid_t gid;
    pid_t pid;
    struct usr *usr;
    char name[33];  /* printable ASCII */
    char shown[72]; /* name as log lines have it: log_quote() */
    uint32_t n_inflight;
    uint64_t n_requests;
    struct jreq_q reqs;
    uint64_t t_used;     /* last request; if none, when it came */
    struct itk_job *job; /* items that are partly here */
    uint64_t t_read;     /* its requests are not looked at before */
    uint64_t t_refused;  /* last refusal; 0: none */
    uint32_t n_eager;    /* requests rejected unread since the last pause */
};
TAILQ_HEAD(client_q, client);

struct clients {
    const struct env *env;
    struct client_q outq;  /* with output in this iteration */
    struct client_q holdq; /* with held records, by turns */
    struct cli_chunk *old; /* of clients that went: cli_sweep() */
    uint64_t quota;        /* slots that the relay may go on with; see CLI_PAGES */
    uint32_t n_hello, n_doomed;
};

void cli_init(struct clients *k, const struct env *env);
/* Mark for the end of this iteration. code FDP_OK: the peer has gone. */
void cli_kill(struct clients *k, struct client *c, int code);

/* Send a record of this type, without a sample and a position: ring, or held.
 * best_effort: drop instead of hold. 0, or -ENOBUFS when it was dropped. len is at
 * most FDP_REC_MAX_LEN. */
int cli_emit(struct clients *k, struct client *c, uint64_t tag, unsigned type,
    const void *payload, uint32_t len, int best_effort);
void
cli_error(struct clients *k, struct client *c, uint64_t tag, const struct fdp_error *e);
/* Move held records to the rings, publish, wake. 1: some could still be moved. */
int cli_flush(struct clients *k);
/* What is held, or not published yet, goes with the client. */
void cli_drop(struct clients *k, struct client *c);
/* Give back memory of those that went; all: at the end of the daemon. Returns the work
 * done. */
int cli_sweep(struct clients *k, int all);

enum cli_slow { CLI_KEEPS_UP = 0, CLI_SLOW, CLI_STUCK };
/* How a client with held records reads: CLI_SLOW after slow_ns without
 * progress; CLI_STUCK if it then did not even read its terminal records. Kills
 * one whose cursor is impossible. */
enum cli_slow cli_check_slow(struct clients *k, struct client *c, uint64_t slow_ns);

/* ---- the hot path: a record to a ring with room costs no call ------------------ */

/* The client's cursor cannot be. */
void cli_bad_cursor(struct clients *k, struct client *c);
/* In the first pass through the ring: pages for the next cost slots. 0: none. */
int cli_grow(struct clients *k, struct client *c, uint32_t cost);
/* Room for a record of n slots that the ring does not take; NULL: it is dropped. */
struct fdp_rec *cli_place(struct clients *k, struct client *c, uint32_t n, int best_effort);

static inline void
cli_touch(struct clients *k, struct client *c)
{
    if (!c->dirty) {
        c->dirty = 1;
        TAILQ_INSERT_TAIL(&k->outq, c, out);
        /* for cli_flush() */
        __builtin_prefetch(c->cq.p_tail, 1);
        __builtin_prefetch(c->p_cq_wait, 0);
    }
}

/* Place for n slots in the client's ring, NULL when it has none now. */
static inline struct fdp_rec *
cli_claim(struct clients *k, struct client *c, uint32_t n)
{
    struct fdr_prod *p = &c->cq;
    uint32_t cost = fdr_prod_cost(p, n);
    int64_t room = fdr_prod_room(p, cost);
    struct fdp_rec *rec;

    if (room < (int64_t)cost) {
        if (room < 0) /* V3 */
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

/* Send a record with this tag; head has the rest, and payload head->len bytes. As
 * cli_emit(). */
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
    /* Only len bytes: what follows in the worker's slot may be another
     * client's. */
    memcpy(to + 1, payload, head->len);
    return 0;
}

#endif
