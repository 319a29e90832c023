/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/listen.h"

#include <errno.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/gate/offloop.h"

static void
lsn_short(struct lsn *l, const char *what, int error, uint64_t now_ns)
{
    if (!l->is_short)
        log_warn("session: cannot accept a %s: %s; connections wait; raise LimitNOFILE or lower "
                 "ipc.max_clients",
            what, strerror(error));
    l->is_short = 1;
    l->t_retry = now_ns + LSN_RETRY_MS * CLK_MS;
}

int
lsn_accept(struct lsn *l, int fd, const char *what, struct ofl *ofl, uint64_t now_ns,
    struct ucred *ret)
{
    if (shr_until(&l->time, LSN_RATIO) > now_ns) {
        l->t_retry = shr_until(&l->time, LSN_RATIO);
        return -EAGAIN;
    }
    for (;;) {
        socklen_t len = sizeof(*ret);
        int c = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (c < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (c < 0) {
            if (errno != EAGAIN)
                lsn_short(l, what, errno, now_ns);
            return -EAGAIN;
        }
        l->is_short = 0;
        if (getsockopt(c, SOL_SOCKET, SO_PEERCRED, ret, &len) == 0)
            return c;
        (void)ofl_close(ofl, c);
    }
}

void
lsn_spend(struct lsn *l, uint64_t ns, int is_refused, uint64_t now_ns)
{
    shr_spend(&l->time, ns + (is_refused ? LSN_REFUSED_NS : 0), LSN_RATIO, now_ns);
}

void
lsn_later(struct lsn *l, uint64_t now_ns)
{
    l->t_retry = now_ns;
}

int
lsn_is_late(const struct lsn *l, uint64_t now_ns)
{
    return l->t_retry != 0 && now_ns >= l->t_retry;
}

int
lsn_due(struct lsn *l, uint64_t now_ns)
{
    if (!lsn_is_late(l, now_ns))
        return 0;
    l->t_retry = 0;
    return 1;
}
