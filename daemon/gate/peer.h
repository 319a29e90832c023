/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading from a UNIX socket whose other end may be hostile, without receiving the
 * descriptors that it passes.
 *
 * The daemon wants no descriptors. If one arrives with a message and the receiver has no
 * room for it, the kernel closes it in the receiver's context. If that is its last
 * reference, the close may sleep for as long as the client wants: a TCP socket with
 * SO_LINGER and unsent data. So:
 *
 *   - peer_forbid_fds() is called on the listening socket, and accepted ones inherit it:
 *     sendmsg() with descriptors fails at the sender (Linux 6.16 and later).
 *   - peer_recv() peeks first and takes a message only if it carries none. It also covers
 *     older kernels, and connections that a service manager's socket had before the
 *     daemon started.
 *   - Descriptors that are left in a socket are closed with it: close it by ofl_close(),
 *     never on the loop.
 */
#ifndef FDD_DAEMON_GATE_PEER_H
#define FDD_DAEMON_GATE_PEER_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Returns 0 or -errno; -ENOPROTOOPT before Linux 6.16. */
int peer_forbid_fds(int listen_fd);
/* As recv() without waiting. -1 with errno EBADMSG: the message has descriptors; nothing
 * was taken, and the connection is to be closed. */
ssize_t peer_recv(int fd, void *buf, size_t n);

#endif
