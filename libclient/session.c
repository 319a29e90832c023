/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes a session, and reports its state. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "libclient/priv.h"

/* Stores what is needed to open the session again. */
static int
make_reopen(struct fdc *s, const struct fdc_open_opts *o, int32_t *ret_os)
{
    struct epoll_event ev = { .events = EPOLLIN };
    struct reopen *re = &s->re;

    if (o->reconnect_ms == 0)
        return 0;
    re->ms = o->reconnect_ms;
    re->o = *o;
    re->o.ret_error = NULL;
    /* dial() has refused an abstract or longer path before. */
    snprintf(re->path, sizeof(re->path), "%s", o->path ? o->path : fdc_default_socket());
    re->o.path = re->path;
    if (o->name)
        snprintf(re->name, sizeof(re->name), "%s", o->name);
    re->o.name = o->name ? re->name : NULL;
    memcpy(re->digest, s->w.model_digest, sizeof(re->digest));
    re->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (re->timer < 0)
        return fdc__no_fd(ret_os);
    return epoll_ctl(s->ep, EPOLL_CTL_ADD, re->timer, &ev) ? FDP_E_NOMEM : 0;
}

/* Fills the program's fdc_open_error, as far as its size goes. */
static void
tell_failure(const struct fdc_open_opts *o, int rc, struct fdc_open_error *e)
{
    const char *path = o->path ? o->path : fdc_default_socket();

    if (o->ret_error == NULL)
        return;
    errno = e->os_error; /* for %m, since strerror() is not thread-safe */
    if (rc == FDP_E_CONNECT && path[0] == '\0')
        snprintf(e->text, sizeof(e->text), "%s",
            o->path ? "the path of the socket is empty"
                    : "no socket: FDD_INSTANCE is not an instance's name, or the path that "
                      "the environment gives is too long");
    else if (rc == FDP_E_CONNECT)
        snprintf(e->text, sizeof(e->text), "cannot connect to %s: %m", path);
    else if (rc == FDP_E_VERSION)
        snprintf(e->text, sizeof(e->text),
            "the daemon at %s speaks protocol %u.%u, this program's library %u.%u", path,
            e->major, e->minor, FDP_MAJOR, FDP_MINOR);
    else
        snprintf(e->text, sizeof(e->text), "%s: %s", path, fdc_strerror(rc));
    e->size = o->ret_error->size;
    memcpy(o->ret_error, e, e->size < sizeof(*e) ? e->size : sizeof(*e));
}

int
fdc_open(const struct fdc_open_opts *opts, fdc_t **ret_session)
{
    struct fdc_open_error err = { 0 };
    struct fdc_open_opts o = { 0 };
    struct fdc *s;
    int rc;

    if (ret_session == NULL)
        return FDP_E_INVAL;
    if (opts) {
        if (opts->size < offsetof(struct fdc_open_opts, path))
            return FDP_E_INVAL;
        memcpy(&o, opts, opts->size < sizeof(o) ? opts->size : sizeof(o));
        if (o.ret_error && o.ret_error->size < sizeof(*o.ret_error))
            return FDP_E_INVAL;
        for (size_t i = sizeof(o); i < opts->size; i++)
            if (((const unsigned char *)opts)[i]) {
                tell_failure(&o, FDP_E_UNSUPPORTED, &err);
                return FDP_E_UNSUPPORTED;
            }
    }
    rc = fdc__dial(&o, &s, &err);
    if (rc == 0)
        rc = make_reopen(s, &o, &err.os_error);
    if (rc) {
        tell_failure(&o, rc, &err);
        if (s)
            fdc__session_free(s, 0);
        return rc;
    }
    *ret_session = s;
    return 0;
}

void
fdc_close(fdc_t *s)
{
    int forked;

    if (s == NULL || s->magic != FDC_MAGIC)
        return;
    forked = fdc__check(s) != 0;
    while (s->all)
        fdc__req_drop(s->all);
    fdc__session_free(s, forked);
}

int
fdc_state(fdc_t *s, uint32_t *ret_flags)
{
    int rc = fdc__check(s);
    if (rc)
        return rc;
    pthread_mutex_lock(&s->mtx);
    fdc__look(s);
    rc = s->dead;
    if (ret_flags) {
        *ret_flags = s->flags;
        if (s->re.down)
            *ret_flags |= FDC_S_RECONNECTING;
        if (fdr_load_acquire(&s->state->state) == FDP_ST_DRAIN)
            *ret_flags |= FDC_S_DRAIN;
    }
    pthread_mutex_unlock(&s->mtx);
    return rc;
}
