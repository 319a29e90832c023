/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Who listens at a UNIX socket, without a connection to it: where the service manager
 * listens, that would start a daemon. */
#ifndef FDD_DAEMON_COMMON_LISTENED_H
#define FDD_DAEMON_COMMON_LISTENED_H

/* Does a program listen at path, as the kernel's list of sockets says it? path as it
 * was bound. 0 where /proc is not there. */
int lsn_is_listened(const char *path);

#endif
