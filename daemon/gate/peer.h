/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A UNIX socket whose other end may be hostile: reading from it without taking
 * over what it passes.
 *
 * The daemon wants no descriptors. One that arrives with a message is closed
 * by the receiver's kernel code if the receiver has no room for it, and that
 * close sleeps for as long as the client wants when it is the last one: a TCP
 * socket with SO_LINGER and unsent data. So:
 *
 *   - peer_forbid_fds() on the listening socket, which accepted ones inherit:
 *     sendmsg() with descriptors fails at the sender (Linux 6.16 and later).
 *   - peer_recv() looks first and takes a message only if it carries none. It
 *     also covers older kernels, and connections that a service manager's
 *     socket had before the daemon started.
 *   - The descriptors that are left in a socket go with it: close it by
 *     ofl_close(), never on the loop.
 */
#ifndef FDD_DAEMON_GATE_PEER_H
#define FDD_DAEMON_GATE_PEER_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

/* 0 or -errno; -ENOPROTOOPT before Linux 6.16. */
int peer_forbid_fds(int listen_fd);
/* recv() without waiting. -1 with errno EBADMSG: descriptors came along;
 * nothing was taken, and the connection is to be closed. */
ssize_t peer_recv(int fd, void *buf, size_t n);

#endif
