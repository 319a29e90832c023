/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/peer.h"

#include <errno.h>

#ifndef SO_PASSRIGHTS /* missing in the oldest headers that fdd is built for */
#define SO_PASSRIGHTS 83
#endif

int
peer_forbid_fds(int listen_fd)
{
    int off = 0;

    return setsockopt(listen_fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) == 0
        ? 0
        : -errno;
}

ssize_t
peer_recv(int fd, void *buf, size_t n)
{
    struct iovec iov = { buf, n };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
    ssize_t got = recvmsg(fd, &m, MSG_DONTWAIT | MSG_PEEK);

    if (got <= 0)
        return got;
    /* Without room for control data, MSG_CTRUNC means that the message has some. The
     * references that the peek took are not the last: the message still holds others. */
    if (m.msg_flags & MSG_CTRUNC) {
        errno = EBADMSG;
        return -1;
    }
    /* On a stream, take no bytes that came after the peek. A packet is taken whole in any
     * case. */
    return recv(fd, buf, (size_t)got, MSG_DONTWAIT);
}
