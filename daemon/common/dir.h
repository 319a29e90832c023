/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Folders that fdd makes for itself. */
#ifndef FDD_DAEMON_COMMON_DIR_H
#define FDD_DAEMON_COMMON_DIR_H

/* Make a folder unless there is something of that name, and with_parent the
 * folder it lies in: open to all for root, else to the user alone. 0 or -errno;
 * what is there may be no folder, or another user's. */
int dir_make(const char *path, int with_parent);

#endif
