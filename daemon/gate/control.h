/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The admin socket: one JSON object per line in each direction. Commands,
 * arguments, replies and permissions: CONTROL.md beside this file; the
 * table is daemon/tbl/ctl_cmds.h.
 */
#ifndef FDD_DAEMON_GATE_CONTROL_H
#define FDD_DAEMON_GATE_CONTROL_H

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

struct gate;
struct wrk;
struct ctl_conn;

#define CTL_CONNS      32
#define CTL_LINE_MAX   65536u
#define CTL_OUT_MAX    (16u << 20)
#define CTL_WORKER_TIMEOUT_NS 5000000000ull
/* Beyond what a question is told to take: measuring what the device can do, and
 * steps on their way. */
#define CTL_WORKER_SLOW_NS 60000000000ull

enum ctl_perm { CTL_READ, CTL_ADMIN };

struct ctl {
    struct ctl_conn *conns[CTL_CONNS];
    struct ctl_conn *asking;  /* whose question is with the worker */
    uint64_t ask_id, t_ask, ask_ns; /* ask_ns: how long its answer may take */
    char *ans;                /* parts of the answer */
    size_t ans_bytes;
};

int ctl_accept(struct gate *g, uint64_t now_ns);
/* Take over a connected socket with this identity; closes it when there are
 * too many. */
int ctl_adopt(struct gate *g, int fd, pid_t pid, uid_t uid, gid_t gid, uint64_t now_ns);
void ctl_event(struct gate *g, struct ctl_conn *c, uint32_t events, uint64_t now_ns);
/* The worker answered a question. */
void ctl_worker_event(struct gate *g, struct wrk *w, uint64_t now_ns);
/* The worker has gone: its question is answered with an error. */
void ctl_worker_gone(struct gate *g);
/* Waiting replies (drain with wait), timeouts. */
void ctl_tick(struct gate *g, uint64_t now_ns);
void ctl_fini(struct gate *g);

/* Execute one request object as this peer; the reply is a new reference.
 * NULL: the reply comes later (c keeps the question). */
json_t *ctl_execute(struct gate *g, struct ctl_conn *c, json_t *rq, int perm,
    uint64_t now_ns);

/* control_cmds.c */
typedef json_t *ctl_cmd_fn(struct gate *g, struct ctl_conn *c, json_t *rq,
    uint64_t now_ns);
/* NULL, or an error naming an argument that the command does not take. known: names,
 * each followed by a space. */
json_t *ctl_args(json_t *rq, const char *known);
json_t *ctl_ok(void);
/* May it use commands of CTL_ADMIN? NULL: yes. */
int ctl_is_admin(const struct ctl_conn *c);
void ctl_put(json_t *o, const char *key, json_t *v);
json_t *ctl_unknown_bit(const char *bit);
json_t *ctl_fail(const char *fix, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Keep the reply of this connection open until no request is left. */
int ctl_defer_drain(struct gate *g, struct ctl_conn *c, uint64_t until_ns);
/* fd goes to the peer with the first byte of the reply that is queued next, and is
 * closed then. -EBUSY, and fd closed: no connection, or its peer has not read all
 * replies before. */
int ctl_send_fd(struct ctl_conn *c, int fd);
/* Pass the question to the worker, which may take so long to answer; questions of
 * others to the worker wait meanwhile. NULL or an error reply. */
json_t *ctl_ask_worker(struct gate *g, struct ctl_conn *c, json_t *rq,
    uint64_t now_ns, uint64_t timeout_ns);
json_t *ctl_drain_state(struct gate *g);
#define CTL_CMD(name, perm, help) ctl_cmd_fn ctl_do_##name;
#include "daemon/tbl/ctl_cmds.h"
#undef CTL_CMD

#endif
