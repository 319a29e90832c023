/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Waiting threads, the list of readable requests, and tags. */
#include "config.h"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libclient/priv.h"

/* ---- waking -------------------------------------------------------------- */

void
fdc__wake_waiter(struct waiter *w)
{
    __atomic_store_n(&w->wake, 1, __ATOMIC_RELEASE);
    (void)syscall(SYS_futex, &w->wake, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* r: a request that has something to read; NULL: wakes all. */
void
fdc__wake_for(struct fdc *s, const struct fdc_req *r)
{
    for (struct waiter *w = s->waiters; w; w = w->next)
        if (r == NULL || w->req == r || w->kind != WAIT_REQ)
            fdc__wake_waiter(w);
}

/* Makes waiting threads check again, and the parked one, unless it is just about to
 * sleep, which it does for at most FDC_PARK_NS. */
void
fdc__kick(struct fdc *s)
{
    fdc__wake_for(s, NULL);
    if (s->parked)
        (void)syscall(SYS_futex, s->cq.p_tail, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void
fdc__signal_local(struct fdc *s)
{
    uint64_t one = 1;
    ssize_t n = write(s->local, &one, sizeof(one));
    (void)n; /* non-blocking; a full counter is readable, too */
    s->fd_armed = 0;
}

void
fdc__signal_loop(struct fdc *s)
{
    /* The next fdc_dispatch() takes this wake-up: the program may be about to call it. */
    s->room_due |= s->wants_room;
    s->wants_room = 0;
    if (s->fd_armed)
        fdc__signal_local(s);
}

/* Appends r to the list of requests that have something to read. */
void
fdc__append_ready(struct fdc *s, struct fdc_req *r)
{
    r->ready = 1;
    r->rdy_prev = s->rdy_last;
    r->rdy_next = NULL;
    if (s->rdy_last)
        s->rdy_last->rdy_next = r;
    else
        s->rdy_first = r;
    s->rdy_last = r;
    s->n_ready++;
}

void
fdc__ready(struct fdc_req *r)
{
    struct fdc *s = r->s;

    if (!r->internal && !r->ready)
        fdc__append_ready(s, r);
    if (r->n_waiter || s->n_any)
        fdc__wake_for(s, r);
}

void
fdc__unready(struct fdc_req *r)
{
    struct fdc *s = r->s;

    if (!r->ready)
        return;
    r->ready = 0;
    s->n_ready--;
    if (r->rdy_prev)
        r->rdy_prev->rdy_next = r->rdy_next;
    else
        s->rdy_first = r->rdy_next;
    if (r->rdy_next)
        r->rdy_next->rdy_prev = r->rdy_prev;
    else
        s->rdy_last = r->rdy_prev;
}

/* ---- tags ---------------------------------------------------------------- */

/* Adds r to the list of all requests when it gets its first tag. */
static void
link_req(struct fdc *s, struct fdc_req *r)
{
    r->all_next = s->all;
    if (s->all)
        s->all->all_prev = r;
    s->all = r;
}

int
fdc__tag_take(struct fdc *s, struct fdc_req *r)
{
    struct tag_entry *t;

    if (s->tag_free == 0)
        return 0;
    if (r->all_prev == NULL && s->all != r)
        link_req(s, r);
    t = &s->tags[s->tag_free - 1];
    r->tag = (uint64_t)t->gen << 32 | (s->tag_free - 1);
    s->tag_free = t->next_free;
    t->used = 1;
    t->cancel = 0;
    t->req = r;
    s->n_open++;
    r->open = 1;
    return 1;
}

void
fdc__tag_untake(struct fdc *s, struct fdc_req *r)
{
    struct tag_entry *t = &s->tags[(uint32_t)r->tag];

    r->sending = 0;
    if (!r->open)
        return;
    r->open = 0;
    t->used = 0;
    t->req = NULL;
    t->next_free = s->tag_free;
    s->tag_free = (uint32_t)r->tag + 1;
    s->n_open--;
}

void
fdc__tag_release(struct fdc *s, uint32_t i)
{
    struct tag_entry *t = &s->tags[i];

    if (t->cancel)
        s->n_cancel--;
    t->cancel = 0;
    t->used = 0;
    t->req = NULL;
    if (++t->gen == 0)
        t->gen = 1;
    t->next_free = s->tag_free;
    s->tag_free = i + 1;
    s->n_open--;
    if (s->n_any)
        fdc__wake_for(s, NULL);
    if (s->wants_room)
        fdc__signal_loop(s);
}

void
fdc__end_error(struct fdc_req *r, const struct fdp_error *e)
{
    memset(&r->end, 0, sizeof(r->end));
    r->end.error = *e;
    r->term = FDP_T_ERROR;
    r->open = 0;
    fdc__ready(r);
}

/* The daemon has taken requests since a thread asked for room. */
static void
room_event(struct fdc *s)
{
    s->room = 1;
    fdr_store_relaxed(s->sq_wait, 0);
    if (s->n_any)
        fdc__kick(s);
    if (s->wants_room)
        fdc__signal_loop(s);
}

void
fdc__session_event(struct fdc *s, const void *payload, uint32_t len)
{
    struct fdp_event ev;

    if (len < sizeof(ev))
        return;
    memcpy(&ev, payload, sizeof(ev));
    if (ev.kind == FDP_EV_READY)
        s->flags &= ~FDC_S_DOWN;
    else if (ev.kind == FDP_EV_DOWN)
        s->flags |= FDC_S_DOWN;
    else if (ev.kind == FDP_EV_DRAIN)
        s->flags |= FDC_S_DRAIN;
    else if (ev.kind == FDP_EV_ROOM)
        room_event(s);
}
