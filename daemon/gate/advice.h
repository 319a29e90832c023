/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What to do when a model or a runtime folder cannot be used. No advice
 * changes owner or mode of a folder that fdd did not make.
 */
#ifndef FDD_DAEMON_GATE_ADVICE_H
#define FDD_DAEMON_GATE_ADVICE_H

#include <stddef.h>
#include <sys/types.h>

struct names;

/* The first part of the path that this user cannot pass or read, and why as an
 * errno. 0: none. */
int adv_blocked_at(const char *path, char *ret, size_t ret_bytes);
/* For a model directory that cannot be read or is not there, "" when the path
 * is not at fault. unit: of the service manager, such as "fdd". no_right: a
 * file in it cannot be read, too. names: in the loop, which must not wait for the
 * name service; NULL: it may be asked, also which group would help. */
void adv_model(const char *path, const char *unit, int no_right,
    const struct names *names, char *ret, size_t ret_bytes);
/* A daemon listens in this folder, or the service manager for it; its pid (0: not
 * known) and user. Starts none. */
int adv_daemon_in(const char *dir, pid_t *ret_pid, uid_t *ret_uid);
/* "another fdd (pid, user) runs in dir", and how to go on. */
void adv_other_daemon(const char *dir, pid_t pid, uid_t uid, char *ret, size_t ret_bytes);
/* A runtime folder that this user may make: for "or another ...". */
void adv_own_dir(char *ret, size_t ret_bytes);

#endif
