/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Intake: request rings to the journal. The rules of the protocol
 * (doc/protocol.md) hold here: each shared word is loaded once, each record and each blob is copied
 * once and only the copy is looked at; nothing outside the copy follows a
 * number the client wrote.
 *
 * Cost before copy. Length, limits and budgets are judged from the 128-byte
 * record. Then its items are copied, at most ITK_USER_BYTES a user and
 * ITK_LOOP_BYTES in all per loop iteration (one blob of ITK_INLINE more), so
 * that a text of megabytes takes many iterations and no other user's time. The
 * place in the ring is given back when the last piece is here. Time bounds all of it
 * (env.h): the next iteration goes on with the session that this one came to.
 *
 * A page that the client has not written, or that was swapped out, is read by a thread off
 * the loop (region.h), of ITK_READS sessions of a user at a time; their rings rest
 * meanwhile.
 *
 * A bad request is answered, whatever is wrong with it, and never ends the
 * session; an impossible cursor does. Refusals cost, one of a long item as many as it has
 * ITK_INLINE bytes that were copied: beyond ITK_REFUSED_PER_S
 * a user's requests are refused unseen (E_LIMIT with retry_after_ms) and rings
 * looked at less often, of those of its sessions that sent refused ones lately.
 * A gateway's ring is not: others share it.
 */
#ifndef FDD_DAEMON_GATE_INTAKE_H
#define FDD_DAEMON_GATE_INTAKE_H

#include <stdint.h>

#include "daemon/gate/client.h"
#include "daemon/gate/fair.h"

struct admit;
struct env;
struct itk_job;
struct ofl;
struct reqs;

#define ITK_BATCH         32u    /* records of one client per iteration */
#define ITK_USER_BATCH    64u    /* of one user */
#define ITK_INLINE        65536u /* longer items come in pieces of this size */
#define ITK_USER_BYTES    65536u
#define ITK_LOOP_BYTES    262144u
#define ITK_REFUSED_PER_S 256u /* and as many at once */
#define ITK_READS         2u
#define ITK_READ_NS       20000u /* what one takes of the loop's and the thread's time */
#define ITK_LOOK          32u   /* records, or as much work, between looks at the clock */
#define ITK_LOOK_BYTES    2048u /* copied and checked: a record's work */
#define ITK_EAGER_BATCH   4u
/* While other users are here: records of a turn, bytes of a piece, and the time of a
 * user's turns after which the next iteration goes on with them. */
#define ITK_USER_TURN  8u
#define ITK_USER_PIECE 16384u
#define ITK_USER_NS    20000u
/* Of one turn, the most that is charged: what is longer is the machine's doing. */
#define ITK_TURN_NS  100000u
#define ITK_EAGER_NS 10000000u /* then this long nothing */

struct intake {
    const struct env *env;
    struct clients *clients;
    struct reqs *reqs;
    const struct admit *adm;
    uint64_t rng;     /* seeds of requests that name none */
    uint64_t loop;    /* number of the iteration */
    uint32_t bytes;   /* copied in it */
    uint32_t cost;    /* work since the last look at the clock, in records */
    int is_late;      /* the time of it is over */
    uint32_t n_jobs;  /* items that are partly here */
    uint32_t n_waits; /* clients whose ring rests for a thread that reads */
    struct ofl *ofl;  /* NULL in tests */
};

/* A new iteration: budgets are fresh. */
void itk_begin(struct intake *k);
/* May c's ring be read, and is something in it? A client that does not read its answers
 * is not asked for more. */
static inline int
itk_is_due(struct client *c)
{
    return c->st_rests == CLI_ST_READ && c->n_held == 0 && fdr_cons_avail(&c->sq) != 0;
}
/* Its rings are not looked at before this time: its user has had its share. */
static inline uint64_t
itk_until(const struct client *c)
{
    return c->trusted ? 0 : usr_until(c->usr);
}
/* The loop works ns for c. Counts while time bounds the loop and other users are here. */
void itk_spend_time(struct intake *k, const struct client *c, uint64_t ns);
/* Look at the clock. */
int itk_look(struct intake *k);
/* Is nothing taken any more in this iteration? */
static inline int
itk_is_spent(struct intake *k)
{
    return k->bytes >= ITK_LOOP_BYTES || (k->cost >= ITK_LOOK && itk_look(k));
}
/* Read what itk_poll() would of the client's memory, first of all. */
void itk_touch(const struct client *c);
/* Take records of a client whose ring is due. Returns the work done. */
int itk_poll(struct intake *k, struct client *c);
/* A thread has read, for c or for another: c's ring, which rests, may go on. */
void itk_read_done(struct intake *k, struct client *c);
/* What is partly here of c is not wanted any more. */
void itk_drop(struct intake *k, struct client *c);
/* Alternatives that a request may ask for now. */
uint32_t itk_max_logprobs(const struct intake *k);

#endif
