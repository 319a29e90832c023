/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/top/top.h"

#include <sys/socket.h>

#define ANSWER_MAX ((size_t)64 << 20)

void
top_link_init(struct top_link *l, const char *path, top_answer *on_answer, void *arg)
{
    *l = (struct top_link){ .path = path,
        .fd = -1,
        .q = json_array(),
        .in = { .got_fd = -1 },
        .on_answer = on_answer,
        .arg = arg };
}

void
top_link_fini(struct top_link *l)
{
    if (l->fd >= 0)
        close(l->fd);
    if (l->in.got_fd >= 0)
        close(l->in.got_fd);
    json_decref(l->q);
    free(l->line);
    free(l->in.buf);
}

int
top_link_ask(struct top_link *l, json_t *question)
{
    json_t *o;
    size_t i;

    json_array_foreach(l->q, i, o) {
        if (strcmp(fct_str(o, "cmd"), fct_str(question, "cmd")) == 0) {
            json_decref(question);
            return -EEXIST;
        }
    }
    return json_array_append_new(l->q, question) == 0 ? 0 : -ENOMEM;
}

/* The first question is over. */
static void
answered(struct top_link *l, const json_t *answer, const char *why)
{
    json_t *question = json_incref(json_array_get(l->q, 0));

    json_array_remove(l->q, 0);
    free(l->line);
    l->line = NULL;
    l->sent = l->in.n = 0;
    l->on_answer(l->arg, fct_str(question, "cmd"), answer, why);
    json_decref(question);
}

uint64_t
top_link_wait(const struct top_link *l, uint64_t now_ns, uint64_t max_ns, struct pollfd *ret)
{
    uint64_t end = l->t_asked + TOP_ASK_NS, left = end > now_ns ? end - now_ns : 0;
    size_t n = json_array_size(l->q);

    *ret = (struct pollfd){ .fd = n > 0 ? l->fd : -1, .events = POLLIN };
    if (n == 0)
        return max_ns;
    if (l->line == NULL)
        return 0;
    if (l->sent < strlen(l->line))
        ret->events |= POLLOUT;
    return left < max_ns ? left : max_ns;
}

void
top_link_step(struct top_link *l, uint64_t now_ns)
{
    char why[160];
    json_t *answer;
    int rc;

    while (json_array_size(l->q) > 0) {
        if (l->line == NULL) {
            l->line = fct_line_of(json_incref(json_array_get(l->q, 0)));
            l->t_asked = now_ns;
        }
        if (l->fd < 0) {
            l->fd = fct_dial(l->path, SOCK_NONBLOCK, -1);
            l->failed = l->fd < 0 ? -l->fd : 0;
        }
        rc = l->line == NULL ? -ENOMEM
            : l->fd < 0      ? l->fd
                             : fct_send(l->fd, l->line, &l->sent);
        if (rc == 0)
            rc = fct_receive(l->fd, &l->in, ANSWER_MAX);
        if (rc == 1 && now_ns - l->t_asked < TOP_ASK_NS)
            return;
        answer = rc == 0 ? json_loadb(l->in.buf, l->in.n, JSON_ALLOW_NUL, NULL) : NULL;
        if (json_is_object(answer)) {
            answered(l, answer, NULL);
        } else {
            snprintf(why, sizeof(why), "%s: %s", l->path,
                rc == -EPIPE ? "closed by the daemon" : strerror(-rc));
            /* no answer will come: none to those that wait, either */
            if (l->fd >= 0)
                close(l->fd);
            l->fd = -1;
            for (size_t n = json_array_size(l->q); n > 0; n--)
                answered(l, NULL,
                    rc == 1       ? "the daemon did not answer within 1 s"
                        : rc == 0 ? "the daemon's answer is no JSON object"
                                  : why);
        }
        json_decref(answer);
    }
}
