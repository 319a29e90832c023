/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Folders and files that fdd makes for itself. */
#ifndef FDD_DAEMON_COMMON_DIR_H
#define FDD_DAEMON_COMMON_DIR_H

#include <sys/types.h>

/* Make a folder unless there is something of that name, and with_parent the
 * folder it lies in: open to all for root, else to the user alone. 0 or -errno;
 * what is there may be no folder, or another user's. */
int dir_make(const char *path, int with_parent);

/* Modes. A process that may open a file, if only to read it, may lock it (flock) and so keep
 * others from its lock: a file that is locked is its owner's alone, and what other
 * users need to read is in a file of its own. */
#define DIR_LOCK     0600
#define DIR_READABLE 0644

/* A file of ours in a folder that no other user may write: made if it is not there,
 * open to read and write, of this mode whatever the umask, and whatever mode it had
 * before. 0 or -errno; -EPERM: no regular file with one name. */
int dir_open(const char *path, mode_t mode, int *ret_fd);

/* Put text in the place of a file's contents: a reader meanwhile sees the first line
 * of the old or of the new text. 0 or -errno. */
int dir_put(int fd, const char *text);

#endif
