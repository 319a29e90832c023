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
    if (fd >= 0) /* the worker need not go on */
        (void)send(fd, line, strlen(line), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The question as a line to the worker. -errno. */
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
    uint32_t i = (uint32_t)json_integer_value(group);

    *ret_error = NULL;
    if (i >= ctl->n_wrk) {
        *ret_error = ctl_fail("fdctl status", "there is no group %u: they are 0 to %u", i,
            ctl->n_wrk - 1);
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
        return ctl_fail("fdctl status", "no worker is running");
    if (c == NULL)
        return ctl_fail(NULL, "no connection to answer on");
    c->question = json_incref(rq);
    c->who = w;
    c->ask_ns = timeout_ns;
    c->wait = CTL_WAIT_ASK;
    (void)json_object_del(rq, "group"); /* the worker knows no others */
    return ctl->asking == NULL ? ctl_ask_start(ctl, c, now_ns) : NULL;
}

/* More of the answer has come. The answer, when its line has ended, else NULL: to parse it
 * each time more comes would take the square of its length. */
static json_t *
ctl_ask_part(struct ctl *ctl, const char *part, size_t n)
{
    char *p = ctl->ans_bytes + n <= CTL_ANSWER_MAX
        ? mem_regrow(ctl->ans, ctl->ans_bytes + n, 1)
        : NULL;
    json_t *r;

    if (p == NULL) {
        ctl->ans_bytes = 0;
        return ctl_fail(NULL, "the worker's answer is too long");
    }
    ctl->ans = p;
    memcpy(p + ctl->ans_bytes, part, n);
    ctl->ans_bytes += n;
    if (p[ctl->ans_bytes - 1] != '\n')
        return NULL;
    r = json_loadb(p, ctl->ans_bytes, 0, NULL);
    ctl->ans_bytes = 0;
    if (json_is_object(r))
        return r;
    json_decref(r);
    return ctl_fail(NULL, "the worker's answer is not a JSON object");
}

int
ctl_ask_read(struct ctl *ctl, const struct wrk *w, struct ctl_conn **ret_conn, json_t **ret)
{
    static char part[CTL_WORKER_PART];
    ssize_t n = recv(w->admin_fd, part, sizeof(part), MSG_DONTWAIT);
    json_int_t id;
    json_t *r;

    *ret_conn = NULL;
    *ret = NULL;
    if (n <= 0)
        return n == 0 ? 0 : -errno;
    if (ctl->asking != NULL && ctl->asking->who != w)
        return 1; /* the end of an answer that was given up; another's is coming */
    if (ctl->ans_who != w)
        ctl->ans_bytes = 0;
    ctl->ans_who = w;
    r = ctl_ask_part(ctl, part, (size_t)n);
    id = r != NULL ? json_integer_value(json_object_get(r, "id")) : 0;
    if (r == NULL || ctl->asking == NULL || (id != 0 && id != (json_int_t)ctl->ask_id)) {
        json_decref(r); /* to a question that was given up */
        return 1;
    }
    *ret_conn = ctl->asking;
    ctl->asking = NULL;
    (void)json_object_del(r, "id");
    if (json_object_get(r, "ok") == NULL)
        (void)json_object_set_new(r, "ok", json_true());
    *ret = r;
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
