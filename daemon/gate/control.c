/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/counter.h"
#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/gate/control_priv.h"
#include "daemon/gate/env.h"
#include "daemon/gate/journal.h"
#include "daemon/gate/listen.h"
#include "daemon/gate/offloop.h"
#include "daemon/gate/peer.h"
#include "daemon/gate/runtime.h"
#include "daemon/gate/supervise.h"
#include "daemon/gate/watch.h"

#define CTL_IN_FIRST 4096u /* first input buffer; it grows for administrators */

static void
ctl_close(struct ctl *ctl, struct ctl_conn *c)
{
    ctl_ask_end(ctl, c);
    ctl->conns[c->slot] = NULL;
    ctl->out_bytes -= c->n_out;
    wch_del(ctl->watch, c->fd, c);
    (void)ofl_close(ctl->ofl, c->fd);
    if (c->out_fd >= 0)
        (void)close(c->out_fd);
    free(c->in);
    free(c->out);
    OBJ_FREE(c, CTL_CONN_MAGIC);
}

/* ---- output --------------------------------------------------------------- */

/* Sends the rest of the reply, with the descriptor at its beginning. */
static ssize_t
ctl_send(struct ctl_conn *c)
{
    char ctl[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = { 0 };
    struct iovec iov = { c->out + c->out_at, c->n_out - c->out_at };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
    ssize_t n;

    if (c->out_fd >= 0) {
        struct cmsghdr *h;

        m.msg_control = ctl;
        m.msg_controllen = sizeof(ctl);
        h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(h), &c->out_fd, sizeof(int));
    }
    n = sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0 && c->out_fd >= 0) {
        (void)close(c->out_fd);
        c->out_fd = -1;
    }
    return n;
}

/* Watches for input when no line waits, for room when there is output, and for
 * writability, which comes at once, when an administrator's line is to be answered. */
static void
ctl_rewatch(struct ctl *ctl, struct ctl_conn *c)
{
    int idle = c->n_out == 0 && c->wait == CTL_WAIT_NONE && !c->closing;
    uint32_t want = 0;

    if (idle && c->line == 0 && !c->eof)
        want |= EPOLLIN;
    if (c->n_out != 0 || (idle && c->line != 0 && c->may_admin))
        want |= EPOLLOUT;
    if (idle && c->line != 0 && !c->may_admin)
        ctl->later = 1;
    if (want == c->watched)
        return;
    c->watched = want;
    wch_change(ctl->watch, c->fd, want, WCH_CTL, c);
}

static void
ctl_out_free(struct ctl *ctl, struct ctl_conn *c)
{
    ctl->out_bytes -= c->n_out;
    free(c->out);
    c->out = NULL;
    c->n_out = c->out_at = 0;
}

/* Writes as much output as the socket takes; closes the connection when it has failed or
 * is done. Returns 1 if it is closed. */
static int
ctl_push(struct ctl *ctl, struct ctl_conn *c, uint64_t now_ns)
{
    while (c->out_at < c->n_out) {
        ssize_t n = ctl_send(c);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            ctl_close(ctl, c);
            return 1;
        }
        c->out_at += (size_t)n;
        c->t_out = now_ns;
    }
    if (c->out_at == c->n_out && c->n_out != 0)
        ctl_out_free(ctl, c);
    if (c->n_out == 0 && c->wait == CTL_WAIT_NONE &&
        (c->closing || (c->eof && c->line == 0))) {
        ctl_close(ctl, c);
        return 1;
    }
    ctl_rewatch(ctl, c);
    return 0;
}

/* Returns a reply as a line of *ret_n bytes. NULL: no memory. */
static char *
ctl_text(const json_t *r, size_t *ret_n)
{
    const char *made = json_string_value(r);
    char *text = r == NULL ? NULL
        : made != NULL     ? strdup(made)
                           : json_dumps(r, JSON_COMPACT);
    size_t n = text != NULL ? strlen(text) : 0;
    char *line = text != NULL ? mem_regrow(text, n + 1, 1) : NULL;

    if (line == NULL) {
        free(text);
        return NULL;
    }
    line[n] = '\n';
    *ret_n = n + 1;
    return line;
}

/* Queues the reply, the bytes from line + at to line + n; takes line over. Replaced by an
 * error if it is longer than the limit of this peer's replies, or of all replies. */
static void
ctl_reply_line(struct ctl *ctl, struct ctl_conn *c, char *line, size_t at, size_t n,
    uint64_t now_ns)
{
    size_t most = c->may_admin ? CTL_OUT_MAX : CTL_OUT_READER;
    size_t room = ctl->out_bytes < CTL_OUT_ALL ? CTL_OUT_ALL - ctl->out_bytes : 0;
    json_t *r;

    ASSERT(c->n_out == 0); /* no request is answered while output waits */
    if (line != NULL && (n > most || n > room)) {
        free(line);
        r = ctl_fail("read the replies before, or ask with sudo",
            "the reply has %zu bytes, and there is room for %zu", n - 1 - at,
            most < room ? most : room);
        at = 0;
        line = ctl_text(r, &n);
        json_decref(r);
    }
    c->wait = CTL_WAIT_NONE;
    c->t_used = c->t_out = now_ns;
    cnt_add(&ctl->env->cnt->admin_requests, 1);
    if (line == NULL) {
        log_warn("control: no memory for a reply to pid %d", (int)c->pid);
        c->closing = 1;
        return;
    }
    c->out = line;
    c->n_out = n;
    c->out_at = at;
    ctl->out_bytes += n;
}

/* Queues a reply; takes over the reference. */
static void
ctl_reply(struct ctl *ctl, struct ctl_conn *c, json_t *r, uint64_t now_ns)
{
    size_t n = 0;
    char *line = ctl_text(r, &n);

    json_decref(r);
    ctl_reply_line(ctl, c, line, 0, n, now_ns);
}

/* ---- input ---------------------------------------------------------------- */

static size_t
ctl_line_limit(const struct ctl_conn *c)
{
    return c->may_admin ? CTL_LINE_MAX : CTL_LINE_READER;
}

/* Finds the end of the first line. Empty lines are skipped. */
static void
ctl_find_line(struct ctl_conn *c)
{
    size_t skip = 0;
    const char *nl;

    while (skip < c->n_in && c->in[skip] == '\n')
        skip++;
    memmove(c->in, c->in + skip, c->n_in - skip);
    c->n_in -= skip;
    nl = c->n_in != 0 ? memchr(c->in, '\n', c->n_in) : NULL;
    c->line = nl != NULL ? (size_t)(nl - c->in) + 1 : 0;
}

/* Makes room for input. -ENOBUFS: the line is too long already; -ENOMEM. */
static int
ctl_make_room(struct ctl_conn *c)
{
    size_t bytes = c->in_bytes == 0 ? CTL_IN_FIRST : c->in_bytes * 2;
    char *p;

    if (c->n_in < c->in_bytes)
        return 0;
    if (c->n_in >= ctl_line_limit(c))
        return -ENOBUFS;
    p = mem_regrow(c->in, bytes, 1);
    if (p == NULL)
        return -ENOMEM;
    c->in = p;
    c->in_bytes = bytes;
    return 0;
}

/* Executes one request. Its reply is queued, now or later. */
static void
ctl_line(struct ctl *ctl, struct ctl_conn *c, const char *line, size_t n, uint64_t now_ns)
{
    json_error_t je;
    json_t *rq = json_loadb(line, n, JSON_REJECT_DUPLICATES, &je);
    json_t *r;

    if (!json_is_object(rq)) {
        ctl_reply(ctl, c,
            ctl_fail("{\"cmd\": \"status\"}", "the request is not a JSON object: %s",
                rq == NULL ? je.text : "another type"),
            now_ns);
        json_decref(rq);
        c->closing = 1;
        return;
    }
    r = ctl_execute(ctl, c, rq, c->may_admin ? CTL_ADMIN : CTL_READ, now_ns);
    json_decref(rq);
    if (r != NULL)
        ctl_reply(ctl, c, r, now_ns);
    else if (c->wait == CTL_WAIT_NONE && c->n_out == 0)
        ctl_reply(ctl, c, ctl_fail(NULL, "no memory"), now_ns);
}

/* Answers the first line and removes it from the buffer. */
static void
ctl_take_line(struct ctl *ctl, struct ctl_conn *c, uint64_t now_ns)
{
    uint64_t t = clk_now_ns();
    size_t n = c->line;

    ctl_line(ctl, c, c->in, n - 1, now_ns);
    memmove(c->in, c->in + n, c->n_in - n);
    c->n_in -= n;
    ctl_find_line(c);
    if (!c->may_admin) {
        ctl_readers_wait(ctl, now_ns + 1 + CTL_READER_SHARE * (clk_now_ns() - t));
        ctl->turn = c->slot + 1;
    }
}

static int
ctl_is_due(const struct ctl_conn *c)
{
    return c->line != 0 && c->wait == CTL_WAIT_NONE && c->n_out == 0 && !c->closing;
}

/* Answers one line, if there is one and it is its turn. Returns 1 if the connection is
 * closed. */
static int
ctl_serve(struct ctl *ctl, struct ctl_conn *c, uint64_t now_ns)
{
    if (ctl_is_due(c)) {
        if (c->may_admin || (!ctl->later && now_ns >= ctl->t_reader))
            ctl_take_line(ctl, c, now_ns);
        else
            ctl->later = 1;
    } else if (c->n_in >= ctl_line_limit(c) && c->line == 0 && c->wait == CTL_WAIT_NONE &&
        c->n_out == 0 && !c->closing) {
        ctl_reply(ctl, c,
            ctl_fail(NULL, "a request line has at most %zu bytes", ctl_line_limit(c)),
            now_ns);
        c->closing = 1;
    }
    return ctl_push(ctl, c, now_ns);
}

void
ctl_event(struct ctl *ctl, struct ctl_conn *c, uint32_t events, uint64_t now_ns)
{
    ssize_t n;

    OBJ_CHECK(c, CTL_CONN_MAGIC);
    if (events & (EPOLLHUP | EPOLLERR)) {
        ctl_close(ctl, c);
        return;
    }
    if ((events & EPOLLIN) && (c->watched & EPOLLIN) != 0) {
        if (ctl_make_room(c) != 0) {
            ctl_close(ctl, c);
            return;
        }
        n = peer_recv(c->fd, c->in + c->n_in, c->in_bytes - c->n_in);
        if (n == 0)
            c->eof = 1;
        else if (n < 0 && errno != EAGAIN && errno != EINTR) {
            ctl_close(ctl, c);
            return;
        } else if (n > 0) {
            c->n_in += (size_t)n;
            ctl_find_line(c);
        }
    }
    (void)ctl_serve(ctl, c, now_ns);
}

/* ---- answers of the worker -------------------------------------------------- */

/* Sends r, the answer to c's question; NULL: there is none yet. */
static void
ctl_answer(struct ctl *ctl, struct ctl_conn *c, json_t *r, uint64_t now_ns)
{
    if (r == NULL)
        return;
    ctl_reply(ctl, c, r, now_ns);
    (void)ctl_push(ctl, c, now_ns);
}

void
ctl_worker_event(struct ctl *ctl, struct wrk *w, uint64_t now_ns)
{
    struct ctl_answer a;
    int rc = 1;

    while (w->admin_fd >= 0 && (rc = ctl_ask_read(ctl, w, &a)) > 0) {
        if (a.line != NULL) {
            ctl_reply_line(ctl, a.conn, a.line, a.at, a.n, now_ns);
            (void)ctl_push(ctl, a.conn, now_ns);
        } else if (a.conn != NULL) {
            ctl_answer(ctl, a.conn, a.error, now_ns);
        }
    }
    if (w->admin_fd >= 0 && rc == 0)
        wch_del(ctl->watch, w->admin_fd, w);
}

void
ctl_worker_gone(struct ctl *ctl, const struct wrk *w)
{
    struct ctl_conn *c = ctl->asking;

    if (ctl->ans_who == w)
        ctl->ans_bytes = 0;
    ctl->cut &= ~(UINT64_C(1) << w->idx);
    if (c == NULL || c->who != w)
        return;
    ctl->asking = NULL;
    ctl_answer(ctl, c, ctl_fail("fdctl status", "the worker ended before it answered"),
        ctl->env->now);
}

/* Ends a question that takes too long, and sends the next one. */
static void
ctl_ask_tick(struct ctl *ctl, uint64_t now_ns)
{
    struct ctl_conn *c = ctl->asking;

    if (c != NULL && now_ns - ctl->t_ask >= ctl->ask_ns) {
        ctl_ask_end(ctl, c);
        ctl_answer(ctl, c,
            ctl_fail("fdctl status", "the worker did not answer within %d s",
                (int)(ctl->ask_ns / 1000000000ull)),
            now_ns);
    }
    c = ctl_ask_next(ctl);
    if (c != NULL)
        ctl_answer(ctl, c, ctl_ask_start(ctl, c, now_ns), now_ns);
}

/* ---- connections ---------------------------------------------------------- */

/* Sends one line to a peer that gets no connection, and closes it. */
static int
ctl_refuse(struct ctl *ctl, int fd, json_t *r, int rc)
{
    char line[2048];
    size_t n = r != NULL ? json_dumpb(r, line, sizeof(line) - 1, JSON_COMPACT) : 0;

    if (n > 0 && n < sizeof(line)) {
        line[n] = '\n';
        (void)send(fd, line, n + 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    json_decref(r);
    (void)ofl_close(ctl->ofl, fd);
    return rc;
}

/* A free slot; -1: there is none; -2: readers, or those of this user, have used up
 * theirs. */
static int
ctl_free_slot(const struct ctl *ctl, uid_t uid, int may_admin)
{
    int slot = -1, n_readers = 0, n_user = 0;

    for (int i = CTL_CONNS - 1; i >= 0; i--) {
        const struct ctl_conn *c = ctl->conns[i];

        if (c == NULL)
            slot = i;
        else if (!c->may_admin) {
            n_readers++;
            n_user += c->uid == uid;
        }
    }
    if (!may_admin && (n_readers >= CTL_CONNS_READER || n_user >= CTL_CONNS_USER))
        return -2;
    return slot;
}

/* Root, the administrators' group, or the daemon's own user, as which the worker runs
 * too, unless ipc.refuse_own_uid is set. */
static int
ctl_may_admin(const struct ctl *ctl, int fd, uid_t uid, gid_t gid)
{
    return uid == 0 || (uid == geteuid() && !ctl->env->par->ipc_refuse_own_uid) ||
        rtd_peer_in_group(fd, gid, ctl->rt->admin_group);
}

static int
ctl_may_read(const struct ctl *ctl, int fd, gid_t gid)
{
    return rtd_peer_in_group(fd, gid,
        ctl->rt->group != (gid_t)-1 ? ctl->rt->group : getegid());
}

int
ctl_adopt(struct ctl *ctl, int fd, pid_t pid, uid_t uid, gid_t gid, uint64_t now_ns)
{
    int may_admin = ctl_may_admin(ctl, fd, uid, gid);
    struct ctl_conn *c;
    int slot;

    if (!may_admin && !ctl_may_read(ctl, fd, gid))
        return ctl_refuse(ctl, fd, ctl_forbidden(ctl, uid, NULL, CTL_READ), -EACCES);
    slot = ctl_free_slot(ctl, uid, may_admin);
    if (slot < 0)
        return ctl_refuse(ctl, fd,
            ctl_fail("try again",
                slot == -1 ? "too many admin connections"
                           : "too many admin connections of users who are "
                             "not administrators, or of this user"),
            -EBUSY);
    OBJ_ALLOC(c, CTL_CONN_MAGIC);
    if (c == NULL)
        return ctl_refuse(ctl, fd, ctl_fail("try again", "no memory"), -ENOMEM);
    c->fd = fd;
    c->out_fd = -1;
    c->slot = slot;
    c->pid = pid;
    c->uid = uid;
    c->may_admin = may_admin != 0;
    c->t_used = now_ns;
    c->watched = EPOLLIN;
    if (wch_add(ctl->watch, fd, EPOLLIN, WCH_CTL, c) != 0) {
        OBJ_FREE(c, CTL_CONN_MAGIC);
        return ctl_refuse(ctl, fd, NULL, -ENOMEM);
    }
    ctl->conns[slot] = c;
    return 0;
}

int
ctl_accept(struct ctl *ctl, uint64_t now_ns)
{
    int n;

    for (n = 0; n < CTL_ACCEPT_MAX; n++) {
        uint64_t t = clk_now_ns();
        struct ucred cred;
        int rc,
            fd = lsn_accept(ctl->lsn, ctl->rt->admin_fd, "connection of the admin socket",
                ctl->ofl, now_ns, &cred);

        if (fd < 0)
            return n;
        rc = ctl_adopt(ctl, fd, cred.pid, cred.uid, cred.gid, now_ns);
        if (ctl->env->until != 0)
            lsn_spend(ctl->lsn, clk_now_ns() - t, rc != 0, now_ns);
    }
    lsn_later(ctl->lsn, now_ns);
    return n;
}

/* Has a reader's connection been idle too long, or has the peer not taken its reply? */
static int
ctl_is_overdue(const struct ctl_conn *c, uint64_t now_ns)
{
    if (c->n_out != 0)
        return now_ns - c->t_out >= CTL_STALL_NS;
    return !c->may_admin && c->wait == CTL_WAIT_NONE && c->line == 0 &&
        now_ns - c->t_used >= CTL_IDLE_NS;
}

/* Answers the line of one reader, each in turn. */
static void
ctl_serve_reader(struct ctl *ctl, uint64_t now_ns)
{
    int i, slot;

    ctl->later = 0;
    for (i = 0; i < CTL_CONNS; i++) {
        slot = (ctl->turn + i) % CTL_CONNS;
        if (ctl->conns[slot] == NULL || ctl->conns[slot]->may_admin ||
            !ctl_is_due(ctl->conns[slot]))
            continue;
        if (now_ns < ctl->t_reader) {
            ctl->later = 1;
            return;
        }
        (void)ctl_serve(ctl, ctl->conns[slot], now_ns);
    }
}

void
ctl_tick(struct ctl *ctl, uint64_t now_ns)
{
    if (lsn_due(ctl->lsn, now_ns))
        (void)ctl_accept(ctl, now_ns);
    ctl_ask_tick(ctl, now_ns);
    for (int i = 0; i < CTL_CONNS; i++) {
        struct ctl_conn *c = ctl->conns[i];

        if (c == NULL)
            continue;
        if (c->wait == CTL_WAIT_DRAIN && (ctl->jnl->n_open == 0 || now_ns >= c->t_until)) {
            ctl_reply(ctl, c, ctl_drain_state(ctl), now_ns);
            (void)ctl_push(ctl, c, now_ns);
        } else if (ctl_is_overdue(c, now_ns)) {
            log_debug("control: connection of pid %d closed: it %s", (int)c->pid,
                c->n_out != 0 ? "does not read" : "asks nothing");
            ctl_close(ctl, c);
        }
    }
    if (ctl->later)
        ctl_serve_reader(ctl, now_ns);
}

void
ctl_fini(struct ctl *ctl)
{
    for (int i = 0; i < CTL_CONNS; i++) {
        if (ctl->conns[i] != NULL)
            ctl_close(ctl, ctl->conns[i]);
    }
    free(ctl->ans);
    ctl->ans = NULL;
}
