/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Helpers with which commands build their replies. */
#include "config.h"

#include "daemon/gate/control.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "daemon/common/text.h"
#include "daemon/gate/control_priv.h"
#include "daemon/gate/env.h"
#include "daemon/gate/journal.h"

json_t *
ctl_ok(void)
{
    return json_pack("{s:b}", "ok", 1);
}

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
    if (r == NULL) { /* invalid UTF-8: a character was cut */
        for (char *p = text; *p != '\0'; p++)
            *p = (*p & 0x80) != 0 ? '?' : *p;
        r = json_pack("{s:b, s:s}", "ok", 0, "error", text);
    }
    if (r != NULL && fix != NULL && fix[0] != '\0')
        (void)json_object_set_new(r, "fix", json_string(fix));
    return r;
}

void
ctl_put(json_t *o, const char *key, json_t *v)
{
    (void)json_object_set_new(o, key, v);
}

json_t *
ctl_string(const char *p, size_t n)
{
    char text[16384];
    size_t len = 0;

    text[0] = '\0';
    /* Copies first, since the worker may change the text meanwhile. */
    for (; len < n && len < sizeof(text) && p[len] != '\0'; len++)
        text[len] = p[len];
    if (txt_utf8(text, len) != len) {
        for (size_t i = 0; i < len; i++)
            text[i] = (text[i] & 0x80) != 0 ? '?' : text[i];
    }
    return json_stringn(text, len);
}

json_t *
ctl_made(FILE *f, char **text)
{
    json_t *r = fclose(f) == 0 ? json_string(*text) : NULL;

    free(*text);
    *text = NULL;
    return r;
}

int
ctl_is_admin(const struct ctl_conn *c)
{
    return c == NULL || c->may_admin;
}

json_t *
ctl_drain_state(const struct ctl *ctl)
{
    json_t *r = ctl_ok();

    ctl_put(r, "state", json_string(ctl->env->st == GATE_RUNNING ? "running" : "draining"));
    ctl_put(r, "requests", json_integer((json_int_t)ctl->jnl->n_open));
    ctl_put(r, "drained",
        json_boolean(ctl->env->st != GATE_RUNNING && ctl->jnl->n_open == 0));
    return r;
}

int
ctl_defer_drain(struct ctl_conn *c, uint64_t until_ns)
{
    if (c == NULL)
        return -1;
    c->wait = CTL_WAIT_DRAIN;
    c->t_until = until_ns;
    return 0;
}

json_t *
ctl_unknown_bit(const char *bit)
{
    static const char known[] =
#define DBG_BIT(name, help) " " #name
#include "daemon/tbl/debug_bits.h"
#undef DBG_BIT
        ;

    return ctl_fail("fdctl debug", "unknown debug bit \"%s\"; the bits are%s", bit, known);
}

int
ctl_send_fd(struct ctl_conn *c, int fd)
{
    int unread = 0;

    /* Descriptors in flight count against a limit of the daemon's user: each connection
     * has at most one. */
    if (c == NULL || c->out_fd >= 0 || ioctl(c->fd, SIOCOUTQ, &unread) != 0 || unread != 0) {
        (void)close(fd);
        return -EBUSY;
    }
    c->out_fd = fd;
    return 0;
}
