/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * One daemon to a device: a lock (flock) on a file of the device's UUID, in the
 * folder that all daemons of a user share (libclient/fdwhere.h). The worker holds
 * it as long as it lives, however it ends. The file is its owner's alone, since
 * a process that can open it can lock it; a second file names the holder to all
 * (daemon/common/devowner.h). Both stay: unlinked, two daemons could hold "the" lock
 * on two files.
 */
#ifndef FDD_DAEMON_WORKER_DEVLOCK_H
#define FDD_DAEMON_WORKER_DEVLOCK_H

#include <stddef.h>
#include <sys/types.h>

struct dlk_owner {
    pid_t pid;            /* of fdd */
    const char *instance; /* "": the one without a name */
    const char *home;     /* its runtime folder */
};

/* Lock the device uuid (letters, digits, - and _) in dir, which is made if it is not there.
 * shared: together with others that say so too. 0; -EBUSY: another fdd has it; else
 * -errno. On failure err has one line that names the holder, or the folder, and
 * the fix. */
int dlk_take(const char *dir, const char *uuid, int shared, const struct dlk_owner *o,
    int *ret_fd, char *err, size_t err_bytes);
/* Gives it back; -1 is fine. */
void dlk_drop(int fd);

#endif
