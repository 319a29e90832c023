/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Client sessions: identity, handshake, shared memory, end. The modules below use only a
 * session's struct client.
 *
 * Identity is SO_PEERCRED of the connected socket. The daemon makes both regions
 * (region.h: the client writes c2d, the gate d2c) and sends their descriptors; it never
 * receives any (no receive call has a control buffer). Everything read from c2d is
 * hostile, and nothing is read before the client has rung its doorbell and c2d is sealed.
 * When a session ends, its regions are emptied; if the daemon ended it, d2c some seconds
 * later.
 *
 * A session ends in steps, so that no caller is left with a freed one: cli_kill() marks
 * it anywhere; at the end of the loop iteration its requests are cancelled and it is
 * closed.
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
#define SES_MAX         65536u /* upper limit of ipc.max_clients */
#define SES_FDS         PAR_SESSION_FDS

#define SES_BELL_EVENTS (EPOLLIN | EPOLLET)

struct ses {
    uint32_t magic;
    uint32_t slot; /* place in the table */
    struct client c;
    int doorbell;
    struct opening *opening; /* from its hello to its welcome */
    uint8_t is_sealing;      /* c2d is being sealed, or is to be; its doorbell has rung */
    uint8_t is_deaf;         /* its doorbell is ignored: its user used up its share */
    uint32_t *p_need_wakeup; /* in d2c */
    uint64_t t_open;
    struct fdp_event ev; /* last announcement while CLI_MAPS, sent once it is open */
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
    struct ses **v;  /* sessions v[0..n-1], in no order */
    uint32_t n, max; /* max: limit by the number of descriptors */
    uint32_t first;  /* index of the session whose ring the next iteration reads first */
    uint64_t t_read; /* from ses_park(): when a paused ring is read again; 0: none */
    uint64_t next_id;
    struct region_bin bin; /* regions of ended sessions */
    uint64_t t_watch;      /* until then rest.h looks for the client that blocks */
    uint32_t n_rest;       /* sessions whose rings are paused: rest.h */
    uint32_t n_seals;      /* sessions whose memory is being sealed */
    uint32_t n_opens;      /* sessions whose memory is being made */
    STAILQ_HEAD(, opening) unwanted; /* memory being made for sessions that have ended */
};

/* Allocates the table for SES_MAX sessions, so that a reload can raise max_clients. The
 * other fields are set before. 0 or -ENOMEM. */
int ses_init(struct sessions *t);
/* After it, and after ofl_free(), call region_bin_fini() and opn_sweep(). */
void ses_fini(struct sessions *t);
/* Takes over a connected socket with this identity. A refused peer gets a reason and is
 * closed. Returns 0 if the session now exists. */
int ses_adopt(struct sessions *t, int fd, pid_t pid, uid_t uid, gid_t gid);
/* The socket is readable: hello, hang-up, or a violation. */
void ses_event(struct sessions *t, struct ses *s);
/* Its doorbell rang; the first time starts sealing its memory (region.h), off the
 * loop. */
void ses_bell(struct sessions *t, struct ses *s);
/* Some memory has been made, sealed or read: the sessions concerned continue. */
void ses_off_done(struct sessions *t);
/* Takes requests from all rings, each in turn. Returns the number of records and
 * pieces. */
int ses_poll(struct sessions *t);
/* Closes killed sessions, a few per call when many end at once; all: without a limit, at
 * the end of the daemon. Cancels their requests. */
void ses_reap(struct sessions *t, int all);
/* Handles handshake deadlines, slow clients and regions to empty. */
void ses_tick(struct sessions *t);
/* Sets the state word (FDP_ST_*) of all sessions, and sends an EVENT record if kind !=
 * 0. */
void ses_announce(struct sessions *t, uint32_t state, uint32_t kind, uint32_t arg);
/* ipc.trusted_users may have changed. Requests that are open stay with the user for whom
 * they were accepted; those that wait for the model are checked again. */
void ses_trust(struct sessions *t);
/* Sends GOODBYE to all sessions, and closes them, however long it takes. */
void ses_goodbye(struct sessions *t, int code);
/* Raises or lowers sq_need_wakeup of all sessions; raising returns 1 if requests are
 * there already. Rings that are not read before a later time (eager clients) do not
 * count: t_read is the first of those times. */
int ses_park(struct sessions *t);
void ses_unpark(struct sessions *t);
/* Checks the sessions, all requests and the journal. */
void ses_check(const struct sessions *t);

#endif
