/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A connection to the admin socket. Only for control*.c. */
#ifndef FDD_DAEMON_GATE_CONTROL_PRIV_H
#define FDD_DAEMON_GATE_CONTROL_PRIV_H

#include "daemon/gate/control.h"

#define CTL_CONN_MAGIC 0x43544c31u

/* No line of a reader is answered before t_ns. */
static inline void
ctl_readers_wait(struct ctl *ctl, uint64_t t_ns)
{
    if (t_ns > ctl->t_reader)
        ctl->t_reader = t_ns;
}

enum ctl_wait { CTL_WAIT_NONE = 0, CTL_WAIT_DRAIN, CTL_WAIT_ASK, CTL_WAIT_ANSWER };

struct ctl_conn {
    uint32_t magic;
    int fd;
    int slot;
    uint8_t may_admin;    /* 1: it may use all commands; 0: only those that read */
    uint8_t eof, closing; /* no more input; close when all output is written */
    uint8_t wait;         /* enum ctl_wait: the reply comes later */
    uint32_t watched;     /* EPOLL* bits watched now */
    pid_t pid;
    uid_t uid;
    uint64_t t_until; /* CTL_WAIT_DRAIN: reply at this time at the latest */
    json_t *question; /* CTL_WAIT_ASK: the request to send to `who` */
    struct wrk *who;  /* worker that gets the question; NULL: none */
    uint64_t ask_ns;  /* time that its answer may take */
    uint64_t t_used;  /* time of the last reply, or of the accept */
    uint64_t t_out;   /* time of the last progress of its output */
    char *in;         /* in_bytes of space, n_in used */
    size_t in_bytes, n_in;
    size_t line; /* bytes of the first complete line, 0: none */
    char *out;   /* the reply, n_out bytes, sent up to out_at */
    size_t n_out, out_at;
    int out_fd; /* sent with the reply's first byte; -1: none */
};

/* ---- control_exec.c ----------------------------------------------------------- */

/* The error for a peer that may not use the command; cmd NULL: any command. */
json_t *ctl_forbidden(const struct ctl *ctl, uid_t uid, const char *cmd, int perm);

/* ---- control_ask.c ------------------------------------------------------------- */

/* The connection whose question is sent next; NULL: none, or one is at a worker
 * already. */
struct ctl_conn *ctl_ask_next(const struct ctl *ctl);
/* Sends its question. Returns NULL, or an error reply. */
json_t *ctl_ask_start(struct ctl *ctl, struct ctl_conn *c, uint64_t now_ns);
/* c does not wait for an answer any more. */
void ctl_ask_end(struct ctl *ctl, struct ctl_conn *c);
/* A worker's answer to conn's question; conn NULL: it is not complete yet. The bytes from
 * line + at are a JSON object and a newline; line has n bytes in all and is to be freed.
 * Or error is set. The loop does not parse it: a table of some 100 KB would take
 * milliseconds. */
struct ctl_answer {
    struct ctl_conn *conn;
    json_t *error;
    char *line;
    size_t at, n;
};

/* Reads a part of w's answer, a line `{"id":N, members of the reply}`. Returns 1 with
 * *ret set; 0: the worker has closed the channel; or -errno. */
int ctl_ask_read(struct ctl *ctl, const struct wrk *w, struct ctl_answer *ret);

#endif
