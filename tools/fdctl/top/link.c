/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/top/top.h"

#include <sys/socket.h>

#define ANSWER_MAX ((size_t)64 << 20)

void
top_link_init(struct top_link *l, const char *path)
{
    memset(l, 0, sizeof(*l));
    snprintf(l->path, sizeof(l->path), "%s", path);
    l->fd = l->in.got_fd = -1;
}

static void
hang_up(struct top_link *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    l->t_asked = 0;
    l->sent = l->in.n = 0;
}

void
top_link_reset(struct top_link *l)
{
    hang_up(l);
    for (size_t i = 0; i < l->n_q; i++)
        free(l->q[i].line);
    l->n_q = 0;
    l->failed = 0;
}

void
top_link_fini(struct top_link *l)
{
    top_link_reset(l);
    if (l->in.got_fd >= 0)
        close(l->in.got_fd);
    free(l->in.buf);
    memset(&l->in, 0, sizeof(l->in));
}

int
top_link_ask(struct top_link *l, int what, json_t *question)
{
    char *line;
    int rc = question != NULL ? 0 : -ENOMEM;

    for (size_t i = 0; i < l->n_q && rc == 0; i++)
        if (l->q[i].what == what)
            rc = -EEXIST;
    if (rc == 0 && l->n_q == TOP_ASKS)
        rc = -EBUSY;
    if (rc != 0) {
        json_decref(question);
        return rc;
    }
    line = fct_line_of(question);
    if (line == NULL)
        return -ENOMEM;
    l->q[l->n_q].what = what;
    l->q[l->n_q++].line = line;
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
    l->sent = l->in.n = 0;
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
        if (l->fd < 0) {
            l->fd = fct_dial(l->path, SOCK_NONBLOCK, -1);
            l->failed = l->fd < 0 ? -l->fd : 0;
        }
        rc = l->fd < 0 ? l->fd : fct_send(l->fd, l->q[0].line, &l->sent);
        if (rc == 0)
            rc = fct_receive(l->fd, &l->in, ANSWER_MAX);
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
        answer = json_loadb(l->in.buf, l->in.n, JSON_ALLOW_NUL, NULL);
        if (!json_is_object(answer)) {
            json_decref(answer);
            broken(l, "the daemon's answer is no JSON object");
            return;
        }
        answered(l, answer, NULL);
        json_decref(answer);
    }
}
