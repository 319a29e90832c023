/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The admin socket: one JSON object per line in each direction. Commands, arguments,
 * replies and permissions: doc/control.md; the table is daemon/tbl/ctl_cmds.h. control.c
 * has the connections; below it are control_exec.c (who may, arguments, log),
 * control_cmds.c and control_config.c (the commands), control_ask.c (questions to the
 * worker) and control_reply.c.
 *
 * Everybody may connect, so that a refusal can say what to do. Peers without rights cost
 * others nothing:
 *   - A peer that may use no command gets one line and is closed, before anything is
 *     allocated for it.
 *   - Half of the CTL_CONNS places are reserved for administrators (root,
 *     ipc.admin_group, the daemon's own user). Readers share the others, at most
 *     CTL_CONNS_USER per user, and are closed after CTL_IDLE_NS without a request.
 *   - One line per connection is answered in a loop iteration. Of all readers'
 *     connections together it is one, each in turn, and then none for
 *     CTL_READER_SHARE times as long as that took, and for CTL_READER_ASK_NS if it asked
 *     a worker, whose answer takes a processor for up to some milliseconds.
 *   - A connection is not read from while a complete line or output of it is pending,
 *     and is closed when its output makes no progress for CTL_STALL_NS.
 *
 * Memory: CTL_CONNS connections, each with an input line (CTL_LINE_MAX, readers
 * CTL_LINE_READER) and one reply (CTL_OUT_MAX, readers CTL_OUT_READER; CTL_OUT_ALL for
 * all replies together), and one answer of the worker (CTL_ANSWER_MAX). At most 42 MiB.
 */
#ifndef FDD_DAEMON_GATE_CONTROL_H
#define FDD_DAEMON_GATE_CONTROL_H

#include <jansson.h>
#include <stdio.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/common/cmdtable.h"

struct cnf;
struct cnt_seg;
struct crs;
struct ctl_conn;
struct dispatch;
struct env;
struct fair;
struct gauges;
struct intake;
struct jnl;
struct life;
struct lsn;
struct names;
struct ofl;
struct reqs;
struct rolling;
struct rtd;
struct sessions;
struct watch;
struct wrk;

#define CTL_CONNS             32
#define CTL_CONNS_READER      (CTL_CONNS / 2)
#define CTL_CONNS_USER        4
#define CTL_ACCEPT_MAX        8 /* connections accepted per loop iteration */
#define CTL_LINE_MAX          65536u
#define CTL_LINE_READER       4096u
#define CTL_OUT_MAX           (16u << 20)
#define CTL_OUT_READER        (1u << 20)
#define CTL_OUT_ALL           (32u << 20)
#define CTL_ANSWER_MAX        (8u << 20)
#define CTL_IDLE_NS           30000000000ull
#define CTL_STALL_NS          30000000000ull
#define CTL_READER_SHARE      49 /* readers get 1/50, 2 % of the loop's time */
#define CTL_READER_ASK_NS     100000000ull
#define CTL_WORKER_TIMEOUT_NS 5000000000ull
/* Limit for questions that take longer than their own time says: measuring the device,
 * and waiting for steps under way. */
#define CTL_WORKER_SLOW_NS 60000000000ull

/* Members for the connections, then those that commands show, then those that commands
 * change. */
struct ctl {
    const struct env *env;
    const struct rtd *rt;
    struct watch *watch;
    struct lsn *lsn;
    struct ofl *ofl; /* NULL in tests: its work is done at once */

    const struct names *names;
    const struct sessions *ses;
    const struct fair *fair;
    const struct intake *itk;
    const struct gauges *gauges;
    const struct cnt_seg *seg;
    int stat_fd; /* descriptor of the statistics segment */
    const struct dispatch *dsp;
    const struct crs *before; /* how the previous daemon ended, if badly */

    struct jnl *jnl;
    struct reqs *reqs;
    struct life *life;
    struct cnf *cnf;
    struct rolling *rolling;
    struct wrk *wrk; /* the groups' workers, n_wrk of them */
    uint32_t n_wrk;

    struct ctl_conn *conns[CTL_CONNS];
    size_t out_bytes;               /* bytes of all unsent replies */
    uint64_t t_reader;              /* no line of a reader is answered before this time */
    int turn;                       /* slot after that of the reader served last */
    int later;                      /* a reader's line waits: ctl_tick() is due in 2 ms */
    struct ctl_conn *asking;        /* connection whose question is at a worker */
    uint64_t ask_id, t_ask, ask_ns; /* question's number; ask_ns: time to answer */
    char *ans;                      /* parts of ans_who's answer received so far */
    const struct wrk *ans_who;
    size_t ans_bytes;
    uint64_t cut; /* bit i: worker i next sends the rest of a dropped answer */
};

int ctl_accept(struct ctl *ctl, uint64_t now_ns);
/* Takes over a connected socket with this identity, or refuses it with a line and closes
 * it: -EACCES, -EBUSY, -ENOMEM. */
int ctl_adopt(struct ctl *ctl, int fd, pid_t pid, uid_t uid, gid_t gid, uint64_t now_ns);
void ctl_event(struct ctl *ctl, struct ctl_conn *c, uint32_t events, uint64_t now_ns);
/* The worker's admin channel is readable. */
void ctl_worker_event(struct ctl *ctl, struct wrk *w, uint64_t now_ns);
/* The worker has ended: its question is answered with an error. */
void ctl_worker_gone(struct ctl *ctl, const struct wrk *w);
/* Handles waiting lines, unsent replies and timeouts. */
void ctl_tick(struct ctl *ctl, uint64_t now_ns);
void ctl_fini(struct ctl *ctl);

/* Executes one request object for this peer (c NULL: for the daemon itself). Returns a
 * new reference to the reply: an object, or a string with the text of an object. NULL:
 * the reply comes later (c keeps the question). */
json_t *
ctl_execute(struct ctl *ctl, struct ctl_conn *c, json_t *rq, int perm, uint64_t now_ns);

/* For the commands. Their arguments are checked before: types, and that required ones are
 * present. */
typedef json_t *
ctl_cmd_fn(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns);
json_t *ctl_ok(void);
/* May this peer use commands of CTL_ADMIN? */
int ctl_is_admin(const struct ctl_conn *c);
void ctl_put(json_t *o, const char *key, json_t *v);
/* A JSON string from foreign text of up to n bytes, cut at 16 KiB; if it is not UTF-8,
 * each byte beyond ASCII becomes '?'. */
json_t *ctl_string(const char *p, size_t n);
/* A whole reply that was written as text: closes the open_memstream() and frees its
 * text. */
json_t *ctl_made(FILE *f, char **text);
json_t *ctl_unknown_bit(const char *bit);
json_t *
ctl_fail(const char *fix, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* drain's reply, sent at once or later. */
json_t *ctl_drain_state(const struct ctl *ctl);
/* Defers this connection's reply until no request is left. */
int ctl_defer_drain(struct ctl_conn *c, uint64_t until_ns);
/* Sends fd to the peer with the first byte of the reply that is queued next, then closes
 * it. -EBUSY, with fd closed: there is no connection, or its peer has not read all
 * earlier replies. */
int ctl_send_fd(struct ctl_conn *c, int fd);
/* The worker of the group in the request's "group", else the first that is ready, else
 * the first. NULL: no such group; *ret_error is the reply. */
struct wrk *ctl_group(const struct ctl *ctl, json_t *rq, json_t **ret_error);
/* Passes the question to the worker of its group, which may take timeout_ns to answer;
 * other questions to workers wait meanwhile. Returns NULL, or an error reply. */
json_t *ctl_ask_worker(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns,
    uint64_t timeout_ns);
#define CTL_CMD(name, perm, effect, help) ctl_cmd_fn ctl_do_##name;
#define CTL_ARG(cmd, name, letter, type, need, min, max, form, value, help)
#include "daemon/tbl/ctl_cmds.h"
#undef CTL_CMD
#undef CTL_ARG

#endif
