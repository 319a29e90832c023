/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Folders and files that fdd makes for itself, and small ones that it reads. */
#ifndef FDD_DAEMON_COMMON_DIR_H
#define FDD_DAEMON_COMMON_DIR_H

#include <sys/types.h>

/* Make a folder unless the name exists; with_parent: its parent folder too. Mode 0755
 * for root, else 0700. 0 or -errno. An existing name may be a file, or another user's. */
int dir_make(const char *path, int with_parent);

/* Modes. A process that may open a file, even only for reading, can lock it (flock) and
 * so keep others from the lock. So a lock file is readable by its owner only, and data
 * that other users need to read is in a file of its own. */
#define DIR_LOCK     0600
#define DIR_READABLE 0644

/* Open a file in a folder that no other user may write, for reading and writing; create
 * it if it is missing. Its mode becomes mode, whatever the umask and its mode before.
 * 0 or -errno; -EPERM: not a regular file with one link. */
int dir_open(const char *path, mode_t mode, int *ret_fd);

/* Replace a file's contents by text. A concurrent reader sees the old or the new first
 * line. 0 or -errno. */
int dir_put(int fd, const char *text);

/* A regular file's text, as far as it fits; a NUL follows. flags: further ones of open().
 * Its length or -errno, and then ret is empty; -EINVAL: not a regular file. */
ssize_t dir_read(const char *path, int flags, char *ret, size_t ret_bytes);

/* Folder for what can be made again: param, or where it is empty $CACHE_DIRECTORY (its
 * first), /var/cache/fdd if is_system, $XDG_CACHE_HOME/fdd, $HOME/.cache/fdd. 0;
 * -ENOENT: none; -ENAMETOOLONG. */
int dir_cache(const char *param, int is_system, char *ret, size_t ret_bytes);

#endif
