/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Finds out whether a program listens at a UNIX socket, without connecting to it: where
 * the service manager listens, a connection would start a daemon. */
#ifndef FDD_DAEMON_COMMON_LISTENED_H
#define FDD_DAEMON_COMMON_LISTENED_H

/* Does a program listen at path, according to /proc/net/unix? path must be as it was
 * bound. Returns 0 if /proc is not mounted. */
int lsn_is_listened(const char *path);

#endif
