/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/stats.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/common/mem.h"
#include "http/json.h"
#include "libclient/fdclient.h"

#define STA_ASK_MS    1000 /* between two requests for the descriptor */
#define STA_ANSWER_MS 5000
#define STA_VALUES    64 /* most JSON values of an answer */

static void
say(struct stats *s, const char *text, int os_error)
{
    (void)snprintf(s->why, sizeof(s->why), "%s%s%s", text, os_error != 0 ? ": " : "",
        os_error != 0 ? strerror(os_error) : "");
}

static void
hang_up(struct stats *s)
{
    if (s->is_asked)
        (void)close(s->fd);
    s->is_asked = 0;
}

static void
drop_segment(struct stats *s)
{
    if (s->seg != NULL)
        cnt_unlook(s->seg);
    s->seg = NULL;
}

void
sta_fini(struct stats *s)
{
    hang_up(s);
    drop_segment(s);
}

const char *
sta_why(const struct stats *s)
{
    return s->why;
}

/* Address of admin.sock in the folder of the clients' socket. 0 or -ENAMETOOLONG. */
static int
admin_address(const char *socket, struct sockaddr_un *ret)
{
    const char *slash;
    int n;

    if (socket[0] == '\0')
        socket = fdc_default_socket();
    slash = strrchr(socket, '/');
    memset(ret, 0, sizeof(*ret));
    ret->sun_family = AF_UNIX;
    n = snprintf(ret->sun_path, sizeof(ret->sun_path), "%.*sadmin.sock",
        slash != NULL ? (int)(slash - socket) + 1 : 0, socket);
    return n < 0 || (size_t)n >= sizeof(ret->sun_path) ? -ENAMETOOLONG : 0;
}

static void
ask(struct stats *s, const char *socket_path, uint64_t now_ms)
{
    static const char question[] = "{\"cmd\": \"stat_fd\"}\n";
    struct sockaddr_un un;
    int rc = admin_address(socket_path, &un);

    s->asked_ms = now_ms;
    s->n_reply = 0;
    s->fd = rc == 0 ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    if (s->fd < 0) {
        say(s, "no statistics from fdd", rc != 0 ? -rc : errno);
        return;
    }
    s->is_asked = 1;
    if (connect(s->fd, (const struct sockaddr *)&un, sizeof(un)) != 0 ||
        send(s->fd, question, sizeof(question) - 1, MSG_NOSIGNAL) !=
            (ssize_t)sizeof(question) - 1) {
        say(s, "no statistics from fdd, its admin socket cannot be reached", errno);
        hang_up(s);
    }
}

static void
take_segment(struct stats *s, int fd, uint64_t now_ms)
{
    const struct cnt_seg *seg = NULL;
    int rc = cnt_look(fd, &seg);

    (void)close(fd);
    hang_up(s);
    if (rc != 0) {
        say(s, "the statistics of fdd cannot be read", -rc);
        return;
    }
    s->seg = seg;
    s->uptime_ns = cnt_get(&s->seg->g.uptime_ns);
    s->moved_ms = s->stepped_ms = now_ms;
    s->is_still = 0;
    s->why[0] = '\0';
}

/* Keep the error text of an answer without a descriptor. */
static void
take_refusal(struct stats *s)
{
    struct jr j = { NULL };
    struct buf b = { NULL };
    uint32_t i = JR_NONE;

    if (jr_read(&j, s->reply, s->n_reply, STA_VALUES) == 0)
        i = jr_member(&j, 0, "error");
    if (jr_type(&j, i) == JR_STRING)
        jr_text(&j, i, &b);
    s->is_still = 0;
    say(s, "fdd refuses to send its statistics", 0);
    if (b.p != NULL)
        (void)snprintf(s->why, sizeof(s->why), "fdd refuses to send its statistics: %s",
            b.p);
    buf_fini(&b);
    jr_fini(&j);
    hang_up(s);
}

/* Receive the answer. The descriptor comes with its first byte. */
static void
take_answer(struct stats *s, uint64_t now_ms)
{
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = { s->reply + s->n_reply, sizeof(s->reply) - s->n_reply };
    struct msghdr m = { .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control.room,
        .msg_controllen = sizeof(control.room) };
    struct cmsghdr *c;
    ssize_t n = recvmsg(s->fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    int fd;

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (now_ms - s->asked_ms <= STA_ANSWER_MS)
            return;
        say(s, "fdd does not answer at its admin socket", 0);
        hang_up(s);
        return;
    }
    if (n <= 0) {
        say(s, "fdd closed its admin socket", n < 0 ? errno : 0);
        hang_up(s);
        return;
    }
    c = CMSG_FIRSTHDR(&m);
    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
        memcpy(&fd, CMSG_DATA(c), sizeof(fd));
        take_segment(s, fd, now_ms);
        return;
    }
    s->n_reply += (size_t)n;
    if (memchr(s->reply, '\n', s->n_reply) != NULL || s->n_reply == sizeof(s->reply))
        take_refusal(s);
}

static int
is_alive(struct stats *s, uint64_t now_ms)
{
    uint64_t uptime = cnt_get(&s->seg->g.uptime_ns);

    if (uptime != s->uptime_ns) {
        s->uptime_ns = uptime;
        s->moved_ms = now_ms;
    }
    return __atomic_load_n(&s->seg->magic, __ATOMIC_ACQUIRE) == CNT_MAGIC &&
        now_ms - s->moved_ms <= STA_STILL_MS;
}

static void
look_at_steps(struct stats *s, uint64_t now_ms)
{
    uint64_t steps = 0;

    for (uint32_t i = 0; i < cnt_n_group(s->seg); i++)
        steps += cnt_get(&s->seg[i].w.steps);
    if (steps != s->steps || cnt_get(&s->seg->g.requests_running) == 0)
        s->stepped_ms = now_ms;
    s->steps = steps;
}

uint64_t
sta_step_age_ms(const struct stats *s, uint64_t now_ms)
{
    return s->seg != NULL ? now_ms - s->stepped_ms : 0;
}

const struct cnt_seg *
sta_get(struct stats *s, const char *socket, uint64_t now_ms)
{
    if (s->seg != NULL && !is_alive(s, now_ms)) {
        s->is_still = __atomic_load_n(&s->seg->magic, __ATOMIC_ACQUIRE) == CNT_MAGIC;
        drop_segment(s);
        say(s, "fdd has ended, or does not move", 0);
    }
    if (s->seg == NULL && !s->is_asked &&
        (s->asked_ms == 0 || now_ms - s->asked_ms >= STA_ASK_MS))
        ask(s, socket, now_ms);
    if (s->seg == NULL && s->is_asked)
        take_answer(s, now_ms);
    if (s->seg != NULL)
        look_at_steps(s, now_ms);
    return s->seg;
}
