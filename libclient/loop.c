/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdc_fd() and fdc_dispatch(), for programs with an event loop of their own. */
#include "config.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libclient/priv.h"

#define MAX_WAKEUPS 1024 /* read at once: a socket's queue holds fewer */

int
fdc_fd(fdc_t *s)
{
    int rc = fdc__check(s);
    return rc ? rc : s->ep;
}

/* Reads the daemon's wake-ups, or its hang-up. */
static void
eat_socket(struct fdc *s)
{
    char buf[16];
    ssize_t n;
    int k = 0;

    /* Wake-ups that are left keep the descriptor readable. */
    do
        n = recv(s->sock, buf, sizeof(buf), MSG_DONTWAIT);
    while (++k < MAX_WAKEUPS && (n > 0 || (n < 0 && errno == EINTR)));
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        s->eof = 1;
}

/* Empties the wake-up channels; the caller then checks the ring. */
static void
eat_wakeups(struct fdc *s)
{
    uint64_t v;
    ssize_t n;

    if (!s->re.down)
        eat_socket(s);
    n = read(s->local, &v, sizeof(v));
    if (s->re.timer >= 0)
        n = read(s->re.timer, &v, sizeof(v));
    (void)n;
}

int
fdc_dispatch(fdc_t *s)
{
    int rc = fdc__check(s);

    if (rc)
        return rc;
    pthread_mutex_lock(&s->mtx);
    s->fd_armed = 0;
    if (!s->parked)
        fdr_store_relaxed(s->cq_wait, FDP_WAIT_SPIN);
    eat_wakeups(s);
    for (;;) {
        rc = fdc__drain(s);
        if (s->n_ready) {
            rc = (int)s->n_ready;
            break;
        }
        if (rc < 0)
            break;
        /* A thread parked on the ring keeps its own wake-up; it drains the ring and then
         * signals fdc_fd(). */
        s->fd_armed = 1;
        rc = 0;
        if (s->parked || s->re.down || fdc__arm(s)) {
            if (s->room_due)
                fdc__signal_local(s);
            s->room_due = 0;
            break;
        }
        s->fd_armed = 0;
        fdr_store_relaxed(s->cq_wait, FDP_WAIT_SPIN);
    }
    pthread_mutex_unlock(&s->mtx);
    return rc;
}
