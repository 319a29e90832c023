/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Client sessions: identify, handshake, shared memory, end. What the modules
 * below need of one is its struct client.
 *
 * Identity is SO_PEERCRED of the connected socket. The daemon makes both
 * regions (region.h: c2d is the client's to write, d2c is ours) and sends
 * their descriptors; it never receives any (there is never a control
 * buffer). Everything read from c2d is hostile, and nothing is read before the client has
 * rung and c2d is sealed. When a session ends, its
 * regions are emptied, d2c of one that the daemon ends some seconds later.
 *
 * A session ends in three steps, so that no caller loses it under its
 * hands: cli_kill() marks it at any place; the end of the loop iteration takes
 * its requests and closes it.
 */
#ifndef FDD_DAEMON_GATE_SESSION_H
#define FDD_DAEMON_GATE_SESSION_H

#include <stdint.h>
#include <sys/types.h>

#include "daemon/common/param.h"
#include "daemon/gate/client.h"
#include "daemon/gate/region.h"

struct admit;
struct env;
struct intake;
struct names;
struct ofl;
struct opening;
struct reqs;
struct watch;

#define SES_MAGIC       0x53455331u
#define SES_MAX         65536u /* ipc.max_clients at most */
#define SES_FDS         PAR_SESSION_FDS

#define SES_BELL_EVENTS (EPOLLIN | EPOLLET)

struct ses {
    uint32_t magic;
    uint32_t slot; /* place in the table */
    struct client c;
    int doorbell;
    struct opening *opening; /* from its hello to its welcome */
    uint8_t is_sealing;      /* c2d; its doorbell has rung */
    uint8_t is_deaf;         /* its doorbell is not watched: its user has had its share */
    uint32_t *p_need_wakeup; /* in d2c */
    uint64_t t_open;
    struct fdp_event ev; /* of the last announcement while CLI_MAPS */
};

struct sessions {
    const struct env *env;
    const struct names *names;
    const struct admit *adm;
    struct watch *watch;
    struct clients *clients;
    struct reqs *reqs;
    struct intake *intake;
    struct ofl *ofl; /* NULL in tests: its work is done at once */
    struct ses **v;  /* 0..n-1, in no order */
    uint32_t n, max; /* max: as many as there are descriptors for */
    uint32_t first;  /* whose ring the next iteration looks at first */
    uint64_t t_read; /* of ses_park(): a ring that waits is read then; 0: none */
    uint64_t next_id;
    struct region_bin bin; /* of sessions that have ended */
    uint64_t t_watch;      /* who makes the loop wait is looked for until then */
    uint32_t n_rest;       /* sessions whose rings rest: rest.h */
    uint32_t n_seals;      /* whose memory is being sealed */
    uint32_t n_opens;      /* and made */
    STAILQ_HEAD(, opening) unwanted; /* being made for sessions that have ended */
};

/* Room for SES_MAX, so that max_clients can rise by reload. The other fields are
 * set by then. -ENOMEM. */
int ses_init(struct sessions *t);
/* Call region_bin_fini() and opn_sweep() when ofl has ended. */
void ses_fini(struct sessions *t);
/* Take over a connected socket with this identity. Refusals are answered and
 * closed. Returns 0 when a session exists now. */
int ses_adopt(struct sessions *t, int fd, pid_t pid, uid_t uid, gid_t gid);
/* The socket has something: hello, hang-up, or a violation. */
void ses_event(struct sessions *t, struct ses *s);
/* Its doorbell rang; the first time its memory is sealed (region.h), off the loop. */
void ses_bell(struct sessions *t, struct ses *s);
/* Some memory has been made, sealed or read: its session goes on. */
void ses_off_done(struct sessions *t);
/* Take requests from all rings, by turns. Returns the work done. */
int ses_poll(struct sessions *t);
/* Close doomed sessions, some where many end at once; cancel their requests. */
void ses_reap(struct sessions *t);
/* Handshake deadlines, slow clients, regions to empty. */
void ses_tick(struct sessions *t);
/* All sessions: state word (FDP_ST_*) and an EVENT record if kind != 0. */
void ses_announce(struct sessions *t, uint32_t state, uint32_t kind, uint32_t arg);
/* GOODBYE to all, and close them. */
void ses_goodbye(struct sessions *t, int code);
/* Raise or lower sq_need_wakeup of all; raising returns 1 when requests are
 * there already. Rings that are not read before a time of their own (eager
 * clients) do not count: t_read is the first of those times. */
int ses_park(struct sessions *t);
void ses_unpark(struct sessions *t);
/* With all requests and the journal. */
void ses_check(const struct sessions *t);

#endif
