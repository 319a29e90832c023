/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/control.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/common/text.h"
#include "daemon/gate/gate.h"
#include "daemon/gate/offloop.h"
#include "daemon/gate/peer.h"

#define CTL_CONN_MAGIC 0x43544c31u
#define CTL_ANSWER_MAX (8u << 20)
#define CTL_WORKER_LINE 65536u

enum ctl_wait { CTL_WAIT_NONE = 0, CTL_WAIT_DRAIN, CTL_WAIT_ASK, CTL_WAIT_ANSWER };

struct ctl_conn {
    uint32_t magic;
    int fd;
    int slot;
    uint8_t eof, bye;         /* no more input; close when all is written */
    uint8_t watch_out;
    uint8_t wait;             /* enum ctl_wait: the reply comes later */
    uint64_t t_until;
    json_t *question;         /* CTL_WAIT_ASK */
    uint64_t ask_ns;          /* how long its answer may take */
    pid_t pid;
    uid_t uid;
    int may_read, may_admin;
    size_t n_in, n_out;
    char *out;
    int out_fd;               /* goes with the byte out[out_fd_at]; -1: none */
    size_t out_fd_at;
    char in[CTL_LINE_MAX];
};

static void ctl_serve(struct gate *g, struct ctl_conn *c, uint64_t now_ns);

json_t *
ctl_fail(const char *fix, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    json_t *r;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    r = json_pack("{s:b, s:s}", "ok", 0, "error", text);
    if (r == NULL) { /* cut within a character */
        for (char *p = text; *p != '\0'; p++)
            *p = (*p & 0x80) != 0 ? '?' : *p;
        r = json_pack("{s:b, s:s}", "ok", 0, "error", text);
    }
    if (r != NULL && fix != NULL && fix[0] != '\0')
        (void)json_object_set_new(r, "fix", json_string(fix));
    return r;
}

/* Nobody waits for the answer any more. */
static void
ctl_give_up(struct gate *g)
{
    const struct wrk *w = &g->wrk[0];
    char line[64];
    int n = snprintf(line, sizeof(line), "{\"id\":%llu,\"cmd\":\"cancel\"}\n",
        (unsigned long long)g->ctl.ask_id);

    if (w->admin_fd >= 0)
        (void)send(w->admin_fd, line, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void
ctl_close(struct gate *g, struct ctl_conn *c)
{
    if (g->ctl.asking == c) {
        g->ctl.asking = NULL;
        ctl_give_up(g);
    }
    g->ctl.conns[c->slot] = NULL;
    if (c->question != NULL)
        json_decref(c->question);
    gate_unwatch(g, c->fd, c);
    (void)ofl_close(g->ofl, c->fd);
    if (c->out_fd >= 0)
        (void)close(c->out_fd);
    free(c->out);
    OBJ_FREE(c, CTL_CONN_MAGIC);
}

static void
ctl_rewatch(struct gate *g, struct ctl_conn *c)
{
    struct epoll_event e;

    e.events = (c->eof ? 0 : EPOLLIN) | (c->n_out != 0 ? EPOLLOUT : 0);
    e.data.u64 = (uint64_t)(uintptr_t)c | GATE_EV_CTL;
    (void)epoll_ctl(g->epfd, EPOLL_CTL_MOD, c->fd, &e);
}

int
ctl_send_fd(struct ctl_conn *c, int fd)
{
    int unread = 0;

    /* Descriptors on their way count against a limit of the daemon's user: each
     * connection has one at most. */
    if (c == NULL || c->out_fd >= 0 || ioctl(c->fd, SIOCOUTQ, &unread) != 0 || unread != 0) {
        (void)close(fd);
        return -EBUSY;
    }
    c->out_fd = fd;
    c->out_fd_at = c->n_out;
    return 0;
}

/* send() from out[at] on, with the descriptor where its reply begins. */
static ssize_t
ctl_send(struct ctl_conn *c, size_t at)
{
    char ctl[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = { 0 };
    struct iovec iov = { c->out + at, c->n_out - at };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
    int here = c->out_fd >= 0 && at == c->out_fd_at;
    ssize_t n;

    if (c->out_fd >= 0 && !here)
        iov.iov_len = c->out_fd_at - at;
    if (here) {
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
    if (n > 0 && here) {
        (void)close(c->out_fd);
        c->out_fd = -1;
    }
    return n;
}

/* Write what the socket takes. 1: the connection is gone. */
static int
ctl_push(struct gate *g, struct ctl_conn *c)
{
    size_t at = 0;

    while (at < c->n_out) {
        ssize_t n = ctl_send(c, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            ctl_close(g, c);
            return 1;
        }
        at += (size_t)n;
    }
    if (at != 0)
        memmove(c->out, c->out + at, c->n_out - at);
    c->n_out -= at;
    if (c->out_fd >= 0)
        c->out_fd_at -= at;
    if (c->n_out == 0 && c->wait == CTL_WAIT_NONE && (c->eof || c->bye)) {
        ctl_close(g, c);
        return 1;
    }
    ctl_rewatch(g, c);
    return 0;
}

/* Queue a reply; the reference passes. */
static void
ctl_reply(struct gate *g, struct ctl_conn *c, json_t *r)
{
    char *text = r != NULL ? json_dumps(r, JSON_COMPACT) : NULL;
    size_t n = text != NULL ? strlen(text) : 0;
    char *p;

    json_decref(r);
    c->wait = CTL_WAIT_NONE;
    cnt_add(&g->cnt->admin_requests, 1);
    p = text != NULL && c->n_out + n + 1 <= CTL_OUT_MAX ?
        mem_regrow(c->out, c->n_out + n + 1, 1) : NULL;
    if (p == NULL) {
        log_warn("control: no memory for a reply to pid %d", (int)c->pid);
        c->bye = 1;
    } else {
        c->out = p;
        memcpy(p + c->n_out, text, n);
        p[c->n_out + n] = '\n';
        c->n_out += n + 1;
    }
    free(text);
}

/* ---- questions to the worker --------------------------------------------- */

static void
ctl_ask(struct gate *g, struct ctl_conn *c, uint64_t now_ns)
{
    struct wrk *w = &g->wrk[0];
    json_t *q = c->question;
    char *text;
    ssize_t n = -1;

    c->question = NULL;
    (void)json_object_set_new(q, "id", json_integer((json_int_t)++g->ctl.ask_id));
    text = json_dumps(q, JSON_COMPACT);
    json_decref(q);
    if (text != NULL && w->admin_fd >= 0) {
        size_t len = strlen(text);
        char *line = mem_regrow(text, len + 2, 1);

        if (line != NULL) {
            text = line;
            line[len] = '\n';
            n = send(w->admin_fd, line, len + 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        }
    }
    free(text);
    if (n < 0) {
        ctl_reply(g, c, ctl_fail("fdctl status",
            "the worker does not take questions now"));
        return;
    }
    c->wait = CTL_WAIT_ANSWER;
    g->ctl.asking = c;
    g->ctl.t_ask = now_ns;
    g->ctl.ask_ns = c->ask_ns;
}

json_t *
ctl_ask_worker(struct gate *g, struct ctl_conn *c, json_t *rq, uint64_t now_ns,
    uint64_t timeout_ns)
{
    const struct wrk *w = &g->wrk[0];

    if (w->admin_fd < 0 || w->dead)
        return ctl_fail("fdctl status", "no worker is running");
    if (c == NULL)
        return ctl_fail(NULL, "no connection to answer on");
    c->question = json_incref(rq);
    c->ask_ns = timeout_ns;
    c->wait = CTL_WAIT_ASK;
    if (g->ctl.asking == NULL)
        ctl_ask(g, c, now_ns);
    return NULL;
}

static void
ctl_answer(struct gate *g, json_t *r, uint64_t now_ns)
{
    struct ctl_conn *c = g->ctl.asking;

    g->ctl.asking = NULL;
    if (c == NULL) {
        json_decref(r);
        return;
    }
    (void)json_object_del(r, "id");
    if (json_object_get(r, "ok") == NULL)
        (void)json_object_set_new(r, "ok", json_true());
    ctl_reply(g, c, r);
    if (ctl_push(g, c) == 0)
        ctl_serve(g, c, now_ns);
}

void
ctl_worker_event(struct gate *g, struct wrk *w, uint64_t now_ns)
{
    struct ctl *ctl = &g->ctl;
    static char part[CTL_WORKER_LINE * 4];
    json_t *r;
    json_int_t id;
    char *p;
    ssize_t n = -1;

    while (w->admin_fd >= 0 &&
        (n = recv(w->admin_fd, part, sizeof(part), MSG_DONTWAIT)) > 0) {
        p = ctl->ans_bytes + (size_t)n <= CTL_ANSWER_MAX ?
            mem_regrow(ctl->ans, ctl->ans_bytes + (size_t)n, 1) : NULL;
        if (p == NULL) {
            ctl->ans_bytes = 0;
            ctl_answer(g, ctl_fail(NULL, "the worker's answer is too long"), now_ns);
            continue;
        }
        ctl->ans = p;
        memcpy(p + ctl->ans_bytes, part, (size_t)n);
        ctl->ans_bytes += (size_t)n;
        /* Whole when it ends its line, or parses. */
        r = json_loadb(ctl->ans, ctl->ans_bytes, 0, NULL);
        if (r == NULL && ctl->ans[ctl->ans_bytes - 1] != '\n')
            continue;
        ctl->ans_bytes = 0;
        if (!json_is_object(r)) {
            json_decref(r);
            r = ctl_fail(NULL, "the worker's answer is not a JSON object");
        }
        id = json_integer_value(json_object_get(r, "id"));
        if (id != 0 && id != (json_int_t)ctl->ask_id) {
            json_decref(r); /* to a question that was given up */
            continue;
        }
        ctl_answer(g, r, now_ns);
    }
    if (w->admin_fd >= 0 && n == 0)
        (void)epoll_ctl(g->epfd, EPOLL_CTL_DEL, w->admin_fd, NULL);
}

void
ctl_worker_gone(struct gate *g)
{
    g->ctl.ans_bytes = 0;
    if (g->ctl.asking != NULL)
        ctl_answer(g, ctl_fail("fdctl status", "the worker ended before it answered"),
            g->now);
}

/* ---- requests ------------------------------------------------------------ */

int
ctl_defer_drain(struct gate *g, struct ctl_conn *c, uint64_t until_ns)
{
    (void)g;
    if (c == NULL)
        return -EINVAL;
    c->wait = CTL_WAIT_DRAIN;
    c->t_until = until_ns;
    return 0;
}

static const struct ctl_row {
    const char *name;
    int perm;
    ctl_cmd_fn *fn;
} ctl_rows[] = {
#define CTL_CMD(name, perm, help) { #name, CTL_##perm, ctl_do_##name },
#include "daemon/tbl/ctl_cmds.h"
#undef CTL_CMD
};
#define CTL_N_ROWS (sizeof(ctl_rows) / sizeof(ctl_rows[0]))

static json_t *
ctl_unknown(const char *cmd)
{
    const char *near = NULL;
    unsigned best = 4;

    for (size_t i = 0; i < CTL_N_ROWS; i++) {
        unsigned d = txt_distance(cmd, ctl_rows[i].name);

        if (d < best) {
            best = d;
            near = ctl_rows[i].name;
        }
    }
    if (near != NULL)
        return ctl_fail("fdctl --help", "unknown command \"%.40s\"; did you mean \"%s\"?",
            cmd, near);
    return ctl_fail("fdctl --help", "unknown command \"%.40s\"", cmd);
}

int
ctl_is_admin(const struct ctl_conn *c)
{
    return c == NULL || c->may_admin;
}

static json_t *
ctl_forbidden(const struct gate *g, const struct ctl_conn *c, const char *cmd, int perm)
{
    int admin = perm == CTL_ADMIN || g->rt.group == (gid_t)-1;
    const char *group = admin ? g->par->ipc_admin_group : g->par->ipc_group;
    char user[64], fix[256];

    names_of(&g->names, c->uid, user, sizeof(user));
    if ((admin ? g->rt.admin_group : g->rt.group) == (gid_t)-1 && group[0] != '\0')
        (void)snprintf(fix, sizeof(fix), "sudo groupadd --system %.60s && sudo usermod "
            "-aG %.60s %s, then restart fdd and log in again", group, group, user);
    else
        (void)snprintf(fix, sizeof(fix), "sudo usermod -aG %.100s %s, then log in again; "
            "or sudo fdctl %s", group, user, cmd);
    return ctl_fail(fix, "user %s may not use \"%s\": that takes group %s", user, cmd,
        group);
}

json_t *
ctl_execute(struct gate *g, struct ctl_conn *c, json_t *rq, int perm, uint64_t now_ns)
{
    const char *cmd = json_string_value(json_object_get(rq, "cmd"));

    if (cmd == NULL)
        return ctl_fail("{\"cmd\": \"status\"}", "the request has no \"cmd\"");
    for (size_t i = 0; i < CTL_N_ROWS; i++) {
        if (strcmp(cmd, ctl_rows[i].name) != 0)
            continue;
        if (ctl_rows[i].perm > perm && c != NULL)
            return ctl_forbidden(g, c, cmd, ctl_rows[i].perm);
        return ctl_rows[i].fn(g, c, rq, now_ns);
    }
    return ctl_unknown(cmd);
}

static void
ctl_line(struct gate *g, struct ctl_conn *c, const char *line, size_t n, uint64_t now_ns)
{
    json_error_t je;
    json_t *rq = json_loadb(line, n, JSON_REJECT_DUPLICATES, &je);
    json_t *r;

    if (!json_is_object(rq)) {
        json_decref(rq);
        ctl_reply(g, c, ctl_fail("{\"cmd\": \"status\"}",
            "the request is not a JSON object: %s",
            rq == NULL ? je.text : "another type"));
        c->bye = 1;
        return;
    }
    r = ctl_execute(g, c, rq, c->may_admin ? CTL_ADMIN : c->may_read ? CTL_READ : -1,
        now_ns);
    json_decref(rq);
    if (r != NULL)
        ctl_reply(g, c, r);
    else if (c->wait == CTL_WAIT_NONE && c->n_out == 0)
        ctl_reply(g, c, ctl_fail(NULL, "no memory"));
}

/* Requests that are here and may be answered now. */
static void
ctl_serve(struct gate *g, struct ctl_conn *c, uint64_t now_ns)
{
    size_t at = 0;
    char *nl;

    while (c->wait == CTL_WAIT_NONE && !c->bye &&
        (nl = memchr(c->in + at, '\n', c->n_in - at)) != NULL) {
        size_t n = (size_t)(nl - (c->in + at));

        if (n > 0)
            ctl_line(g, c, c->in + at, n, now_ns);
        at += n + 1;
    }
    memmove(c->in, c->in + at, c->n_in - at);
    c->n_in -= at;
    if (c->n_in == sizeof(c->in) && c->wait == CTL_WAIT_NONE && !c->bye) {
        ctl_reply(g, c, ctl_fail(NULL, "a request line has at most %u bytes",
            CTL_LINE_MAX));
        c->bye = 1;
    }
    (void)ctl_push(g, c);
}

void
ctl_event(struct gate *g, struct ctl_conn *c, uint32_t events, uint64_t now_ns)
{
    ssize_t n;

    OBJ_CHECK(c, CTL_CONN_MAGIC);
    if (events & (EPOLLHUP | EPOLLERR)) {
        ctl_close(g, c);
        return;
    }
    if ((events & EPOLLIN) && !c->eof) {
        if (c->n_in == sizeof(c->in)) { /* it talks on while a reply is due */
            ctl_close(g, c);
            return;
        }
        n = peer_recv(c->fd, c->in + c->n_in, sizeof(c->in) - c->n_in);
        if (n == 0)
            c->eof = 1;
        else if (n < 0 && errno != EAGAIN && errno != EINTR) {
            ctl_close(g, c);
            return;
        } else if (n > 0) {
            c->n_in += (size_t)n;
        }
    }
    ctl_serve(g, c, now_ns);
}

int
ctl_adopt(struct gate *g, int fd, pid_t pid, uid_t uid, gid_t gid, uint64_t now_ns)
{
    static const char full[] =
        "{\"ok\":false,\"error\":\"too many admin connections\",\"fix\":\"try again\"}\n";
    struct ctl_conn *c = NULL;
    int boss = uid == 0 || uid == geteuid();
    gid_t readers = g->rt.group != (gid_t)-1 ? g->rt.group : getegid();
    int slot;

    (void)now_ns;
    for (slot = 0; slot < CTL_CONNS && g->ctl.conns[slot] != NULL; slot++)
        continue;
    if (slot < CTL_CONNS)
        OBJ_ALLOC(c, CTL_CONN_MAGIC);
    if (c == NULL) {
        (void)send(fd, full, sizeof(full) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)ofl_close(g->ofl, fd);
        return -EBUSY;
    }
    c->fd = fd;
    c->out_fd = -1;
    c->slot = slot;
    c->pid = pid;
    c->uid = uid;
    c->may_admin = boss || rtd_peer_in_group(fd, gid, g->rt.admin_group);
    c->may_read = c->may_admin || rtd_peer_in_group(fd, gid, readers);
    if (gate_watch(g, fd, EPOLLIN, GATE_EV_CTL, c) != 0) {
        (void)ofl_close(g->ofl, fd);
        OBJ_FREE(c, CTL_CONN_MAGIC);
        return -ENOMEM;
    }
    g->ctl.conns[slot] = c;
    return 0;
}

int
ctl_accept(struct gate *g, uint64_t now_ns)
{
    int n;

    for (n = 0; n < CTL_CONNS; n++) {
        struct ucred cred;
        socklen_t len = sizeof(cred);
        int fd = accept4(g->rt.admin_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0)
            break;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0) {
            (void)ofl_close(g->ofl, fd);
            continue;
        }
        (void)ctl_adopt(g, fd, cred.pid, cred.uid, cred.gid, now_ns);
    }
    return n;
}

void
ctl_tick(struct gate *g, uint64_t now_ns)
{
    if (g->ctl.asking != NULL && now_ns - g->ctl.t_ask >= g->ctl.ask_ns) {
        ctl_give_up(g);
        ctl_answer(g, ctl_fail("fdctl status", "the worker did not answer within %d s",
            (int)(g->ctl.ask_ns / 1000000000ull)), now_ns);
    }
    for (int i = 0; i < CTL_CONNS; i++) {
        struct ctl_conn *c = g->ctl.conns[i];

        if (c == NULL)
            continue;
        if (c->wait == CTL_WAIT_ASK && g->ctl.asking == NULL) {
            ctl_ask(g, c, now_ns);
            if (c->wait == CTL_WAIT_NONE)
                ctl_serve(g, c, now_ns);
        } else if (c->wait == CTL_WAIT_DRAIN &&
            (g->jnl.n_open == 0 || now_ns >= c->t_until)) {
            ctl_reply(g, c, ctl_drain_state(g));
            ctl_serve(g, c, now_ns);
        }
    }
}

void
ctl_fini(struct gate *g)
{
    for (int i = 0; i < CTL_CONNS; i++) {
        if (g->ctl.conns[i] != NULL)
            ctl_close(g, g->ctl.conns[i]);
    }
    free(g->ctl.ans);
    g->ctl.ans = NULL;
}
