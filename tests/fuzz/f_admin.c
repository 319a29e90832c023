/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines to the admin plane from peers with no right, with READ and with ADMIN.
 *
 * Input: the first byte selects the state of the daemon; then come pieces, each a byte
 * for the peer (0 none, 1 READ, 2 ADMIN) and text up to a NUL, which is sent to the
 * peer's connection, with the NUL as the end of a line.
 *
 * A peer gets at most one reply for each of its lines, each a JSON object
 * with "ok". A peer without rights gets only one short line. Without ADMIN no
 * command changes anything.
 */
#include "config.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/obj.h"
#include "tests/unit/gate_fixture.h"

#define G_READ  71000
#define G_ADMIN 72000
#define REFUSAL 1024u /* most bytes sent to a peer without rights */
/* After a line that took t ns, a reader's next one waits 19 t. On a busy machine t may be
 * long, so the fake clock advances by up to 100 s. */
#define TURNS 1000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct peer {
    int fd;
    int gone;        /* closed by the daemon */
    uint32_t n_sent; /* lines */
    size_t n_line;   /* bytes of the line that has not ended */
    uint32_t n_got;
    int late; /* some lines may have no reply yet */
    char *in; /* the incomplete last line of its replies */
    size_t n_in, n_bytes;
};

static struct run {
    struct fix f;
    struct peer peer[3];
} t;

static void
dial(struct peer *p, gid_t gid)
{
    int sv[2];

    memset(p, 0, sizeof(*p));
    ASSERT_Z(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv));
    p->fd = sv[1];
    (void)ctl_adopt(&t.f.g->ctl, sv[0], 1, 5000, gid, t.f.now);
}

static void
hang_up(struct peer *p)
{
    (void)close(p->fd);
    free(p->in);
    p->in = NULL;
}

static void
take_line(struct peer *p, const char *line, size_t n)
{
    json_t *r = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);

    ASSERT(json_is_object(r) && json_is_boolean(json_object_get(r, "ok")));
    if (json_is_false(json_object_get(r, "ok")))
        ASSERT(json_string_length(json_object_get(r, "error")) > 0);
    json_decref(r);
    p->n_got++;
}

static void
take_replies(struct peer *p)
{
    static char buf[65536];
    size_t at = 0;
    char *nl;
    ssize_t n;

    while ((n = recv(p->fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0) {
        p->in = realloc(p->in, p->n_in + (size_t)n);
        ASSERT(p->in != NULL);
        memcpy(p->in + p->n_in, buf, (size_t)n);
        p->n_in += (size_t)n;
        p->n_bytes += (size_t)n;
    }
    p->gone |= n == 0;
    while (p->n_in > at && (nl = memchr(p->in + at, '\n', p->n_in - at)) != NULL) {
        take_line(p, p->in + at, (size_t)(nl - (p->in + at)));
        at = (size_t)(nl - p->in) + 1;
    }
    if (at != 0)
        memmove(p->in, p->in + at, p->n_in - at);
    p->n_in -= at;
}

struct state {
    struct par par;
    int st, paused, exit_code;
    uint32_t pend, n_open;
    char *debug; /* log levels and trace bits, as JSON */
};

static void
look(struct state *s)
{
    json_t *rq = json_loads("{\"cmd\":\"debug\"}", 0, NULL);
    json_t *r = ctl_execute(&t.f.g->ctl, NULL, rq, CTL_ADMIN, t.f.now);

    memset(s, 0, sizeof(*s));
    s->par = *t.f.g->env.par;
    s->st = t.f.g->env.st;
    s->paused = t.f.g->env.paused;
    s->exit_code = t.f.g->life.exit_code;
    s->pend = t.f.g->wrk[0].link.pend;
    s->n_open = t.f.g->jnl.n_open;
    s->debug = json_dumps(r, JSON_COMPACT);
    json_decref(rq);
    json_decref(r);
    ASSERT(s->debug != NULL);
}

static void
want_unchanged(struct state *was)
{
    struct state now;

    look(&now);
    ASSERT(memcmp(&was->par, &now.par, sizeof(now.par)) == 0);
    ASSERT(was->st == now.st && was->paused == now.paused);
    ASSERT(was->exit_code == now.exit_code && was->pend == now.pend);
    /* A daemon that stops ends requests by itself. */
    ASSERT(was->n_open == now.n_open || was->st != GATE_RUNNING);
    ASSERT(strcmp(was->debug, now.debug) == 0);
    free(now.debug);
    free(was->debug);
}

/* Returns whether the reply may need the worker and take
 * longer. Escapes may hide a name. */
static int
may_wait(const uint8_t *text, size_t n)
{
    static const char *const words[] = { "model", "memory", "program", "profile", "wait",
        "fail_device", "\\" };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (memmem(text, n, words[i], strlen(words[i])) != NULL)
            return 1;
    }
    return 0;
}

/* Sends one piece to one peer. */
static void
say(uint32_t who, const uint8_t *text, size_t n)
{
    struct peer *p = &t.peer[who];
    struct state was;

    if (p->gone)
        return;
    if (who != 2)
        look(&was);
    p->late |= may_wait(text, n) || memchr(text, '\n', n - 1) != NULL;
    if (send(p->fd, text, n, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)n)
        p->late = 1;
    for (size_t i = 0; i < n; i++) {
        p->n_sent += text[i] == '\n' && p->n_line != 0; /* an empty line gets no reply */
        p->n_line = text[i] == '\n' ? 0 : p->n_line + 1;
    }
    for (int i = 0; i < TURNS; i++) {
        fix_step(&t.f, i == 0 ? 0 : i < 4 ? 2 : 100);
        take_replies(p);
        if (p->gone || p->n_got >= p->n_sent || (p->late && i >= 4))
            break;
    }
    ASSERT(p->n_got <= p->n_sent + (p->gone ? 1 : 0));
    ASSERT(p->late || p->gone || p->n_got == p->n_sent || t.f.g->life.exit_code >= 0);
    if (who != 2)
        want_unchanged(&was);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const gid_t gids[] = { 70000, G_READ, G_ADMIN };
    uint8_t line[8192 + 1];
    struct fcl c;
    size_t at = 1, k;

    if (n < 2 || n > 8192)
        return 0;
    memset(&t, 0, sizeof(t));
    fix_open(&t.f, NULL);
    t.f.g->rt.group = G_READ;
    t.f.g->rt.admin_group = G_ADMIN;
    if (data[0] & 1)
        fix_ready(&t.f);
    ASSERT(fcl_open(&t.f, &c, 1000, NULL) == FDP_OK);
    if (data[0] & 2)
        fcl_submit(&c, 9, 4, 10);
    fix_step(&t.f, 0);
    for (int i = 0; i < 3; i++)
        dial(&t.peer[i], gids[i]);
    fix_step(&t.f, 0);
    take_replies(&t.peer[0]);
    while (at < n && t.f.g->life.exit_code < 0) {
        uint32_t who = data[at++] % 3;
        const uint8_t *nul = memchr(data + at, 0, n - at);
        size_t len = nul != NULL ? (size_t)(nul - (data + at)) : n - at;

        memcpy(line, data + at, len);
        at += len;
        k = len;
        if (nul != NULL) {
            line[k++] = '\n';
            at++;
        }
        if (k > 0)
            say(who, line, k);
        ASSERT(t.peer[0].n_bytes <= REFUSAL && t.peer[0].n_got <= 1);
    }
    for (int i = 0; i < 3; i++)
        hang_up(&t.peer[i]);
    fcl_close(&c);
    fix_step(&t.f, 0);
    fix_close(&t.f);
    return 0;
}
