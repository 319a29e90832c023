/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/top/top.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_MAX ((size_t)64 << 20)

void
top_link_init(struct top_link *l, const char *path)
{
    memset(l, 0, sizeof(*l));
    snprintf(l->path, sizeof(l->path), "%s", path);
    l->fd = -1;
}

static void
hang_up(struct top_link *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    l->t_asked = 0;
    l->sent = l->n_in = 0;
}

void
top_link_reset(struct top_link *l)
{
    size_t i;

    hang_up(l);
    for (i = 0; i < l->n_q; i++)
        free(l->q[i].line);
    l->n_q = 0;
    l->failed = 0;
}

void
top_link_fini(struct top_link *l)
{
    top_link_reset(l);
    free(l->in);
    l->in = NULL;
    l->cap_in = 0;
}

int
top_link_ask(struct top_link *l, int what, json_t *question)
{
    char *line = NULL, *p;
    size_t i;
    int rc = question != NULL ? 0 : -ENOMEM;

    for (i = 0; i < l->n_q && rc == 0; i++)
        if (l->q[i].what == what)
            rc = -EEXIST;
    if (rc == 0 && l->n_q == TOP_ASKS)
        rc = -EBUSY;
    if (rc == 0)
        line = json_dumps(question, JSON_COMPACT);
    json_decref(question);
    if (rc != 0)
        return rc;
    p = line != NULL ? realloc(line, strlen(line) + 2) : NULL;
    if (p == NULL) {
        free(line);
        return -ENOMEM;
    }
    l->q[l->n_q].what = what;
    l->q[l->n_q++].line = strcat(p, "\n");
    return 0;
}

int
top_link_busy(const struct top_link *l)
{
    return l->n_q > 0;
}

/* The question at the head is over. */
static void
answered(struct top_link *l, const json_t *answer, const char *why)
{
    int what = l->q[0].what;

    free(l->q[0].line);
    l->n_q--;
    memmove(&l->q[0], &l->q[1], l->n_q * sizeof(l->q[0]));
    l->t_asked = 0;
    l->sent = l->n_in = 0;
    l->on_answer(l->arg, what, answer, why);
}

/* No answer will come to what was asked: none to those that wait, either. */
static void
broken(struct top_link *l, const char *why)
{
    size_t n = l->n_q;

    hang_up(l);
    while (n-- > 0 && l->n_q > 0)
        answered(l, NULL, why);
}

static int
dial(struct top_link *l)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };

    memcpy(un.sun_path, l->path, strnlen(l->path, sizeof(un.sun_path) - 1));
    l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    l->failed = 0;
    if (l->fd >= 0 && connect(l->fd, (struct sockaddr *)&un, sizeof(un)) == 0)
        return 0;
    l->failed = errno;
    hang_up(l);
    return -l->failed;
}

/* 0: go on, 1: the socket takes no more now, -errno. */
static int
push(struct top_link *l)
{
    const char *line = l->q[0].line;
    size_t n = strlen(line);

    while (l->sent < n) {
        ssize_t k = send(l->fd, line + l->sent, n - l->sent, MSG_NOSIGNAL);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return errno == EAGAIN ? 1 : -errno;
        l->sent += (size_t)k;
    }
    return 0;
}

/* 0: a whole line, 1: not yet, -errno. */
static int
pull(struct top_link *l)
{
    for (;;) {
        ssize_t k;

        if (l->cap_in - l->n_in < 32768) {
            size_t cap = l->cap_in * 2 + 65536;
            char *p = cap <= ANSWER_MAX ? realloc(l->in, cap) : NULL;

            if (p == NULL)
                return -ENOMEM;
            l->in = p;
            l->cap_in = cap;
        }
        k = recv(l->fd, l->in + l->n_in, l->cap_in - l->n_in, 0);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return errno == EAGAIN ? 1 : -errno;
        if (k == 0)
            return -EPIPE;
        l->n_in += (size_t)k;
        if (l->in[l->n_in - 1] == '\n')
            return 0;
    }
}

uint64_t
top_link_wait(const struct top_link *l, uint64_t now_ns, uint64_t max_ns, struct pollfd *ret)
{
    uint64_t end = l->t_asked + TOP_ASK_NS, left;

    ret->fd = l->n_q > 0 ? l->fd : -1;
    ret->events = POLLIN;
    ret->revents = 0;
    if (l->n_q == 0)
        return max_ns;
    if (l->t_asked == 0)
        return 0;
    if (l->sent < strlen(l->q[0].line))
        ret->events |= POLLOUT;
    left = end > now_ns ? end - now_ns : 0;
    return left < max_ns ? left : max_ns;
}

void
top_link_step(struct top_link *l, uint64_t now_ns)
{
    char why[160];
    json_t *answer;
    int rc;

    while (l->n_q > 0) {
        if (l->t_asked == 0)
            l->t_asked = now_ns;
        rc = l->fd < 0 ? dial(l) : 0;
        if (rc == 0)
            rc = push(l);
        if (rc == 0)
            rc = pull(l);
        if (rc == 1 && now_ns - l->t_asked >= TOP_ASK_NS) {
            broken(l, "the daemon did not answer within 1 s");
            return;
        }
        if (rc == 1)
            return;
        if (rc < 0) {
            snprintf(why, sizeof(why), "%s: %s", l->path,
                rc == -EPIPE ? "closed by the daemon" : strerror(-rc));
            broken(l, why);
            return;
        }
        answer = json_loadb(l->in, l->n_in, JSON_ALLOW_NUL, NULL);
        if (!json_is_object(answer)) {
            json_decref(answer);
            broken(l, "the daemon's answer is no JSON object");
            return;
        }
        answered(l, answer, NULL);
        json_decref(answer);
    }
}
