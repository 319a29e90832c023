/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Intake: moves requests from the clients' rings to the journal. It keeps the rules of
 * the protocol (doc/protocol.md): each shared word is loaded once, each record and each
 * blob is copied once, and only the copy is read; no access outside the copy depends on a
 * number that the client wrote.
 *
 * Checks before the copy. Length, limits and budgets are checked from the 128-byte
 * record. Then its items are copied, at most ITK_USER_BYTES per user and ITK_LOOP_BYTES
 * in all per loop iteration (and one blob of ITK_INLINE more), so that a text of
 * megabytes takes many iterations and does not delay other users. The slot in the ring is
 * given back when the last piece has been copied. All of it is bounded by time (env.h):
 * the next iteration begins with the session at which this one stopped.
 *
 * A page that the client has not written, or that was swapped out, is read by a thread
 * off the loop (region.h), for at most ITK_READS sessions of a user at a time; their
 * rings are paused meanwhile.
 *
 * A bad request is answered, whatever its error, and never ends the session; an
 * impossible cursor does. A rejection counts against its user, and once more for each
 * ITK_INLINE bytes of items that were copied. Above ITK_REFUSED_PER_S, requests of the
 * user's sessions that sent bad ones lately are rejected unread (E_LIMIT with
 * retry_after_ms), and the rings of these sessions are polled less often.
 * Requests that a gateway sends for the user do not slow its ring, which other users
 * share.
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
#define ITK_USER_BATCH    64u    /* records of one user per iteration */
#define ITK_INLINE        65536u /* longer items are copied in pieces of this size */
#define ITK_USER_BYTES    65536u
#define ITK_LOOP_BYTES    262144u
#define ITK_REFUSED_PER_S 256u /* rejections per second, and burst */
#define ITK_READS         2u
#define ITK_READ_NS       20000u /* charged for one off-loop read */
#define ITK_LOOK          32u    /* work, in records, between looks at the clock */
#define ITK_LOOK_BYTES    2048u  /* bytes copied and checked that count as one record */
#define ITK_EAGER_BATCH   4u
/* While other users are here: records per turn, bytes per piece, and the time per
 * iteration after which a user's turns wait for the next one. */
#define ITK_USER_TURN  8u
#define ITK_USER_PIECE 16384u
#define ITK_USER_NS    20000u
/* Most time that is charged for one turn; a longer one is due to the machine. */
#define ITK_TURN_NS  100000u
#define ITK_EAGER_NS 10000000u /* pause of an eager client's ring */

struct intake {
    const struct env *env;
    struct clients *clients;
    struct reqs *reqs;
    const struct admit *adm;
    uint64_t rng;     /* state of the generator of seeds for requests without one */
    uint64_t loop;    /* number of the iteration */
    uint32_t bytes;   /* bytes copied in this iteration */
    uint32_t cost;    /* work since the last look at the clock, in records */
    int is_late;      /* this iteration's time is over */
    uint32_t n_jobs;  /* requests whose items have not all arrived */
    uint32_t n_waits; /* clients whose ring is paused for an off-loop read */
    struct ofl *ofl;  /* NULL in tests */
};

/* Begins an iteration: resets the budgets. */
void itk_begin(struct intake *k);
/* May c's ring be read, and has it records? No further requests are taken from a client
 * that does not read its answers. */
static inline int
itk_is_due(struct client *c)
{
    return c->st_rests == CLI_ST_READ && c->n_held == 0 && fdr_cons_avail(&c->sq) != 0;
}
/* Returns the time before which c's ring is not read, since its user has used its share;
 * 0: it may be read now. */
static inline uint64_t
itk_until(const struct client *c)
{
    return c->trusted ? 0 : usr_until(c->usr);
}
/* Charges ns of the loop's time to c's user, if time bounds the loop and other users are
 * here. */
void itk_spend_time(struct intake *k, const struct client *c, uint64_t ns);
/* Looks at the clock. Returns 1 if this iteration's time is over. */
int itk_look(struct intake *k);
/* Are this iteration's budgets used up? */
static inline int
itk_is_spent(struct intake *k)
{
    return k->bytes >= ITK_LOOP_BYTES || (k->cost >= ITK_LOOK && itk_look(k));
}
/* Touches the client's memory that itk_poll() would read first. */
void itk_touch(const struct client *c);
/* Takes records of a client whose ring is due. Returns the number of records and
 * pieces. */
int itk_poll(struct intake *k, struct client *c);
/* An off-loop read is done, for c or another client: c's paused ring may continue. */
void itk_read_done(struct intake *k, struct client *c);
/* Frees a request of c whose items have not all arrived. */
void itk_drop(struct intake *k, struct client *c);
/* Most alternatives that a request may ask for now. */
uint32_t itk_max_logprobs(const struct intake *k);

#endif
