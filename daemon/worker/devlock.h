/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * One daemon per device: a lock (flock) on a file named by the device's UUID, in the
 * folder that all daemons of a user share (libclient/fdwhere.h). The worker holds it
 * until it ends, in whatever way. Only the owner can open the file, since a process that
 * can open it can lock it. A second file, readable by all, names the holder
 * (daemon/common/devowner.h). Neither file is ever unlinked: else two daemons could each
 * hold the lock on a file of this name.
 */
#ifndef FDD_DAEMON_WORKER_DEVLOCK_H
#define FDD_DAEMON_WORKER_DEVLOCK_H

#include <stddef.h>
#include <sys/types.h>

struct dlk_owner {
    pid_t pid;            /* of the gate, fdd */
    const char *instance; /* "": the unnamed instance */
    const char *home;     /* its runtime folder */
};

/* Locks the device uuid (letters, digits, - and _) in dir, which is created if missing.
 * shared: other daemons that also pass shared may hold it too. Returns 0, -EBUSY if
 * another fdd has it, else -errno. On failure err has one line that names the holder, or
 * the folder, and the fix. */
int dlk_take(const char *dir, const char *uuid, int shared, const struct dlk_owner *o,
    int *ret_fd, char *err, size_t err_bytes);
/* Releases the lock; fd may be -1. */
void dlk_drop(int fd);

#endif
