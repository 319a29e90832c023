/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Client sessions: accept, identify, handshake, shared memory, end.
 *
 * Identity is SO_PEERCRED of the connected socket. The daemon makes both
 * regions (region.h: c2d is the client's to write, d2c is ours) and sends
 * their descriptors; it never receives any (there is never a control
 * buffer). Everything read from c2d is hostile. When a session ends, its
 * regions are emptied, d2c of one that the daemon ends some seconds later.
 *
 * A session ends in three steps, so that no caller loses it under its
 * hands: ses_kill() marks it at any place; the end of the round takes its
 * requests and closes it.
 */
#ifndef FDD_DAEMON_GATE_SESSION_H
#define FDD_DAEMON_GATE_SESSION_H

#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "daemon/gate/fair.h"
#include "daemon/gate/region.h"
#include "libclient/fdproto.h"
#include "libclient/fdring.h"

struct gate;
struct jreq;
struct rly_chunk;

#define SES_MAGIC 0x53455331u

enum ses_st { SES_HELLO = 1, SES_OPEN, SES_DOOMED };

struct ses {
    uint32_t magic;
    uint8_t st;              /* enum ses_st */
    uint8_t trusted;
    uint8_t dirty;           /* has output to publish in this round */
    uint8_t quiet;           /* doomed: peer is gone, no GOODBYE */
    uint8_t slow;            /* its requests were cancelled with E_SLOW */
    uint8_t growing;         /* d2c has not all of its pages yet */
    int32_t why;             /* FDP_E_* of the kill */
    uint32_t slot;           /* place in gate.ses */
    int fd;                  /* control socket */
    int doorbell;
    struct fdr_cons sq;      /* requests; positions are ours */
    struct fdr_prod cq;      /* completions */
    uint32_t *p_cq_wait;     /* in c2d */
    uint32_t *p_need_wakeup; /* in d2c */
    const unsigned char *arena; /* in c2d */
    uint32_t arena_bytes;
    TAILQ_ENTRY(ses) out;    /* sessions with output */

    struct rly_chunk *hold_first, *hold_last; /* records that did not fit */
    uint32_t n_held;
    uint64_t held_bytes;
    uint64_t t_full;         /* since when the ring is full without progress */
    uint32_t full_head;      /* cq_head then */

    struct region c2d, d2c;
    uint64_t id;
    uid_t uid;
    gid_t gid;
    pid_t pid;
    struct usr *usr;
    char name[33];
    char shown[72];          /* name as log lines have it: log_quote() */
    uint32_t n_inflight;
    uint64_t n_requests;
    struct jreq_q reqs;
    uint64_t t_open;
    uint64_t t_used;         /* last request; if none, t_open */
    uint64_t t_err;          /* start of the error window */
    uint32_t n_err;          /* errors in it */
};
TAILQ_HEAD(ses_q, ses);

/* Accept what waits on the listening socket. Returns how many. */
int ses_accept(struct gate *g, uint64_t now_ns);
/* Take over a connected socket as if accepted; identity as given. Refusals
 * are answered and closed. Returns 0 when a session exists now. */
int ses_adopt(struct gate *g, int fd, pid_t pid, uid_t uid, gid_t gid, uint64_t now_ns);
/* The socket has something: hello, hang-up, or a violation. */
void ses_event(struct gate *g, struct ses *s, uint64_t now_ns);
/* Mark for the end of this round. code FDP_OK: the peer has gone. */
void ses_kill(struct gate *g, struct ses *s, int code);
/* Close doomed sessions; cancel their requests. */
void ses_reap(struct gate *g, uint64_t now_ns);
/* Handshake deadlines, slow clients, regions to empty. */
void ses_tick(struct gate *g, uint64_t now_ns);
/* All sessions: state word (FDP_ST_*) and an EVENT record if kind != 0. */
void ses_announce(struct gate *g, uint32_t state, uint32_t kind, uint32_t arg);
/* GOODBYE to all, and close them. */
void ses_goodbye(struct gate *g, int code);
/* Raise or lower sq_need_wakeup of all; raising returns 1 when requests are
 * there already. */
int ses_park(struct gate *g);
void ses_unpark(struct gate *g);
void ses_check(const struct gate *g);

#endif
