/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Questions to workers: one at a time, administrators' first. */
#include "config.h"

#include "daemon/gate/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/common/mem.h"
#include "daemon/gate/control_priv.h"
#include "daemon/gate/supervise.h"

#define CTL_WORKER_PART 262144u

void
ctl_ask_end(struct ctl *ctl, struct ctl_conn *c)
{
    int fd = c->who != NULL ? c->who->admin_fd : -1;
    char line[64];

    json_decref(c->question);
    c->question = NULL;
    if (ctl->asking != c)
        return;
    ctl->asking = NULL;
    (void)snprintf(line, sizeof(line), "{\"id\":%llu,\"cmd\":\"cancel\"}\n",
        (unsigned long long)ctl->ask_id);
    if (fd >= 0) /* so that the worker stops working on it */
        (void)send(fd, line, strlen(line), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Sends the question as a line to the worker. 0 or -errno. */
static int
ctl_ask_send(int fd, const json_t *q)
{
    char *text = json_dumps(q, JSON_COMPACT);
    size_t n = text != NULL ? strlen(text) : 0;
    char *line = text != NULL ? mem_regrow(text, n + 1, 1) : NULL;
    ssize_t k = -1;

    if (line != NULL) {
        line[n] = '\n';
        k = fd >= 0 ? send(fd, line, n + 1, MSG_DONTWAIT | MSG_NOSIGNAL) : -1;
    }
    free(line != NULL ? line : text);
    return k < 0 ? -EIO : 0;
}

json_t *
ctl_ask_start(struct ctl *ctl, struct ctl_conn *c, uint64_t now_ns)
{
    json_t *q = c->question;
    int rc;

    c->question = NULL;
    (void)json_object_set_new(q, "id", json_integer((json_int_t)++ctl->ask_id));
    rc = ctl_ask_send(c->who->admin_fd, q);
    json_decref(q);
    if (rc != 0) {
        c->wait = CTL_WAIT_NONE;
        return ctl_fail("fdctl status", "the worker does not take questions now");
    }
    if (!c->may_admin)
        ctl_readers_wait(ctl, now_ns + CTL_READER_ASK_NS);
    c->wait = CTL_WAIT_ANSWER;
    ctl->asking = c;
    ctl->t_ask = now_ns;
    ctl->ask_ns = c->ask_ns;
    return NULL;
}

struct wrk *
ctl_group(const struct ctl *ctl, json_t *rq, json_t **ret_error)
{
    const json_t *group = json_object_get(rq, "group");
    json_int_t i = json_integer_value(group);

    *ret_error = NULL;
    if (i < 0 || i >= (json_int_t)ctl->n_wrk) {
        *ret_error = ctl_fail("fdctl status", "there is no group %lld: they are 0 to %u",
            (long long)i, ctl->n_wrk - 1);
        return NULL;
    }
    for (uint32_t k = 0; group == NULL && k < ctl->n_wrk; k++) {
        if (ctl->wrk[k].st == WRK_READY)
            return &ctl->wrk[k];
    }
    return &ctl->wrk[i];
}

json_t *
ctl_ask_worker(struct ctl *ctl, struct ctl_conn *c, json_t *rq, uint64_t now_ns,
    uint64_t timeout_ns)
{
    json_t *error;
    struct wrk *w = ctl_group(ctl, rq, &error);

    if (w == NULL)
        return error;
    if (w->admin_fd < 0 || w->dead || w->is_killed)
        return ctl->n_wrk > 1
            ? ctl_fail("fdctl status", "no worker of group %d is running", w->idx)
            : ctl_fail("fdctl status", "no worker is running");
    if (c == NULL)
        return ctl_fail(NULL, "no connection to answer on");
    c->question = json_incref(rq);
    c->who = w;
    c->ask_ns = timeout_ns;
    c->wait = CTL_WAIT_ASK;
    (void)json_object_del(rq, "group"); /* the worker has only its own group */
    return ctl->asking == NULL ? ctl_ask_start(ctl, c, now_ns) : NULL;
}

/* Appends a part of the answer. Returns 1 if its line has ended; 0: not yet; -EFBIG: too
 * long, and dropped. */
static int
ctl_ask_part(struct ctl *ctl, const char *part, size_t n)
{
    char *p = ctl->ans_bytes + n <= CTL_ANSWER_MAX
        ? mem_regrow(ctl->ans, ctl->ans_bytes + n, 1)
        : NULL;

    if (p == NULL) {
        ctl->ans_bytes = 0;
        return -EFBIG;
    }
    ctl->ans = p;
    memcpy(p + ctl->ans_bytes, part, n);
    ctl->ans_bytes += n;
    return p[ctl->ans_bytes - 1] == '\n';
}

/* Returns the offset of the comma after `{"id":N` in the last line, where a brace can
 * be written; 0: this is no answer. Lines before it answer questions that were given
 * up. */
static size_t
ctl_ask_members(const char *line, size_t n, uint64_t *ret_id)
{
    static const char head[] = "{\"id\":";
    const char *nl = memrchr(line, '\n', n - 1);
    size_t from = nl != NULL ? (size_t)(nl + 1 - line) : 0, at = from + sizeof(head) - 1;

    *ret_id = 0;
    if (n < at + 4 || memcmp(line + from, head, sizeof(head) - 1) != 0 || line[n - 2] != '}')
        return 0;
    for (; at < n && line[at] >= '0' && line[at] <= '9' && *ret_id < UINT64_MAX / 16; at++)
        *ret_id = *ret_id * 10 + (uint64_t)(line[at] - '0');
    return at < n && line[at] == ',' ? at : 0;
}

/* Sets whether the next data of w are the rest of an answer that was given up, up to the
 * end of its line. */
static void
ctl_ask_cut(struct ctl *ctl, const struct wrk *w, int is_cut)
{
    uint64_t bit = UINT64_C(1) << w->idx;

    ctl->cut = is_cut ? ctl->cut | bit : ctl->cut & ~bit;
}

/* Bytes at the start of text that belong to such an answer. */
static size_t
ctl_ask_skip(struct ctl *ctl, const struct wrk *w, const char *text, size_t n)
{
    const char *nl;

    if ((ctl->cut >> w->idx & 1) == 0)
        return 0;
    nl = memchr(text, '\n', n);
    ctl_ask_cut(ctl, w, nl == NULL);
    return nl == NULL ? n : (size_t)(nl + 1 - text);
}

int
ctl_ask_read(struct ctl *ctl, const struct wrk *w, struct ctl_answer *ret)
{
    static char text[CTL_WORKER_PART];
    ssize_t n = recv(w->admin_fd, text, sizeof(text), MSG_DONTWAIT);
    uint64_t id;
    size_t at;
    int rc;

    memset(ret, 0, sizeof(*ret));
    if (n <= 0)
        return n == 0 ? 0 : -errno;
    if (ctl->asking != NULL && ctl->asking->who != w) { /* another worker's is awaited */
        ctl_ask_cut(ctl, w, text[n - 1] != '\n');
        return 1;
    }
    if (ctl->ans_who != w && ctl->ans_bytes != 0) {
        ctl_ask_cut(ctl, ctl->ans_who, 1);
        ctl->ans_bytes = 0;
    }
    ctl->ans_who = w;
    at = ctl_ask_skip(ctl, w, text, (size_t)n);
    if (at == (size_t)n)
        return 1;
    rc = ctl_ask_part(ctl, text + at, (size_t)n - at);
    if (rc == 0)
        return 1;
    if (rc < 0)
        ctl_ask_cut(ctl, w, text[n - 1] != '\n');
    ret->n = ctl->ans_bytes;
    ctl->ans_bytes = 0;
    ret->at = rc > 0 ? ctl_ask_members(ctl->ans, ret->n, &id) : 0;
    if (ctl->asking == NULL || (ret->at != 0 && id != ctl->ask_id))
        return 1; /* answers a question that was given up */
    ret->conn = ctl->asking;
    ctl->asking = NULL;
    if (ret->at == 0) {
        ret->error = ctl_fail(NULL,
            rc < 0 ? "the worker's answer is too long"
                   : "the worker's answer is not a JSON object");
        return 1;
    }
    ret->line = ctl->ans;
    ret->line[ret->at] = '{';
    ctl->ans = NULL;
    return 1;
}

struct ctl_conn *
ctl_ask_next(const struct ctl *ctl)
{
    struct ctl_conn *next = NULL;

    for (int i = 0; i < CTL_CONNS && ctl->asking == NULL; i++) {
        struct ctl_conn *c = ctl->conns[i];

        if (c != NULL && c->wait == CTL_WAIT_ASK &&
            (next == NULL || (c->may_admin && !next->may_admin)))
            next = c;
    }
    return next;
}
