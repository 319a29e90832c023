/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A gate in this process, driven by a fake clock: sessions over socketpairs,
 * a client that writes raw records, and a fake worker on the other side of
 * the link. Nothing here sleeps.
 */
#ifndef FDD_TESTS_UNIT_GATE_FIXTURE_H
#define FDD_TESTS_UNIT_GATE_FIXTURE_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "daemon/common/link.h"
#include "daemon/gate/gate.h"
#include "libclient/fdproto.h"
#include "libclient/fdring.h"

#define FIX_VOCAB   1000u
#define FIX_MAX_LEN 4096u
#define FIX_CREDITS 8u

/* A request that the fake worker is receiving; `got` bytes of its items are here. */
struct fix_part {
    uint64_t id;
    struct lnk_submit sub;
    unsigned char *blob;
    uint32_t got;
};
#define FIX_PARTS  64u
#define FIX_GROUPS 4u

/* State of a fake worker that is not the current one. */
struct fix_side {
    struct lnk w;
    struct lnk_seg *seg;
    int worker_admin_fd;
    struct fix_part part[FIX_PARTS];
    uint32_t n_part;
};

struct fix {
    struct gate *g;
    uint64_t now;
    struct lnk w; /* the worker's side */
    struct lnk_seg *seg;
    int worker_admin_fd; /* the worker's end of the admin pair */
    uint32_t n_spawn;
    struct fix_part part[FIX_PARTS]; /* in order of arrival */
    uint32_t n_part;
    uint32_t at; /* group of the current worker, to which all of the above belongs */
    struct fix_side side[FIX_GROUPS];
};

/* A raw client, which can do all that a program could do, hostile or honest. */
struct fcl {
    int fd, bell;
    int c2d_fd, d2c_fd;
    unsigned char *c2d, *d2c;
    struct fdp_welcome w;
    struct fdr_prod sq;
    struct fdr_cons cq;
};

/* A copy of a completion record. */
struct frec {
    struct fdp_rec h;
    unsigned char data[FDP_REC_MAX_LEN];
};

/* sets: NULL-terminated "section.key=value" strings, or NULL; sched.reserved_seqs=0 is
 * set before them. The fake worker is started but not ready. */
void fix_open(struct fix *f, const char *const *sets);
void fix_close(struct fix *f);
/* The calls that follow are about the worker of this group; at first it is group 0. */
void fix_use(struct fix *f, uint32_t group);
/* Opens a listening socket of the gate with this backlog. Returns its address in ret. */
void fix_listen(struct fix *f, int backlog, struct sockaddr_un *ret, socklen_t *ret_len);
/* Advances the clock and runs the gate's loop until nothing is left to do. */
void fix_step(struct fix *f, uint64_t ms);
void fix_ready(struct fix *f);
/* fix_ready() with another vocabulary and maximum length. */
void fix_ready_as(struct fix *f, uint32_t vocab, uint32_t max_len);
/* Returns the next record that the worker received, or NULL;
 * release it with fix_wnext(). */
const struct fdp_rec *fix_wpeek(struct fix *f);
void fix_wnext(struct fix *f, const struct fdp_rec *r);
/* The worker sends a record, visible at once. */
void fix_wsend(struct fix *f, uint64_t id, unsigned type, const void *p, uint32_t len);
void fix_wdone(struct fix *f, uint64_t id);
/* The worker accepts a request with a prompt of n_prompt tokens; the worker sends n
 * output tokens from position 0. */
void fix_waccept(struct fix *f, uint64_t id, uint32_t n_prompt);
void fix_wtokens(struct fix *f, uint64_t id, uint32_t n);
void fix_werror(struct fix *f, uint64_t id, int code);
/* fix_take() takes the next request whose items have all arrived and begins it. It
 * returns the id, or 0 if there is none. Items of several requests may be interleaved.
 * fix_unbegin() lets the request wait again. */
void fix_unbegin(struct fix *f, const struct lnk_submit *sub);
uint64_t
fix_take(struct fix *f, struct lnk_submit *ret, unsigned char *blob, uint32_t *ret_bytes);
/* Takes the next CANCEL. Returns its id, or 0 if there is none. */
uint64_t fix_take_cancel(struct fix *f, int *ret_code);
/* The worker's process has ended with this wait status. */
void fix_die(struct fix *f, int status);

/* A worker with a fixed rate of tokens per second, which serves one row after another. */
#define FSL_ROWS 64
struct fslow {
    struct {
        uint64_t id, tag;
        uint32_t left;
    } row[FSL_ROWS];
    uint32_t n;
    double budget;
};
/* Takes the requests and cancels sent to the worker. */
void fslow_take(struct fix *f, struct fslow *w);
/* Works for ms of virtual time, in steps of 10 ms. */
void fslow_work(struct fix *f, struct fslow *w, double rate, uint64_t ms);

/* fcl_open() connects as this uid and rings the doorbell; fcl_connect() does not ring.
 * Both return the err of the welcome. */
int fcl_connect(struct fix *f, struct fcl *c, uid_t uid, const struct fdp_hello *hello);
void fcl_ring(struct fcl *c);
int fcl_open(struct fix *f, struct fcl *c, uid_t uid, const struct fdp_hello *hello);
void fcl_hello(struct fdp_hello *h);
void fcl_close(struct fcl *c);
/* Fills in a request with default parameters. */
void fcl_req(struct fdp_req *q, unsigned op, uint64_t tag);
/* Appends an item at buf + at. Returns the new end. */
uint32_t
fcl_item(unsigned char *buf, uint32_t at, unsigned type, const void *p, uint32_t len);
/* Copies blob to arena offset off and puts the record into the ring. */
void
fcl_send(struct fcl *c, struct fdp_req *q, const void *blob, uint32_t len, uint32_t off);
/* Submits a prompt of n_ids ids, all 1. */
void fcl_submit(struct fcl *c, uint64_t tag, uint32_t n_ids, uint32_t max_new);
/* Submits a prompt of one id with n samples; user: the delegated user of a
 * trusted client (0: its own). */
void
fcl_submit_for(struct fcl *c, uint64_t tag, unsigned n, uint32_t max_new, uint64_t user);
/* Parameters of a request with a prompt of one id. */
struct fask {
    uint64_t tag;
    uint32_t max_new, ttl_queue_ms, ttl_total_ms;
    uint64_t user;
};
void fcl_ask(struct fcl *c, struct fask a);
void fcl_cancel(struct fcl *c, uint64_t tag);
void fcl_ping(struct fcl *c, uint64_t tag);
/* Takes the next completion record, skipping padding. Returns 0 if there is none. */
int fcl_recv(struct fcl *c, struct frec *ret);
/* The next completion must be an ERROR for tag with this code. */
void fcl_want_error(struct fcl *c, uint64_t tag, int code, uint32_t detail);
/* Skips all records up to the ERROR for tag, which must be there. */
struct fdp_error fcl_error(struct fcl *c, uint64_t tag);
/* Reads all records. Returns the number of ERRORs for tag. */
int fcl_errors(struct fcl *c, uint64_t tag);
/* Runs an admin command, a line of JSON, for a peer with this permission (CTL_*). Returns
 * a new reference to the reply. */
json_t *fix_ctl(struct fix *f, int perm, const char *line);
uint32_t fcl_state(const struct fcl *c);
uint32_t fcl_reason(const struct fcl *c);

#endif
