/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Advice for a model or a runtime folder that cannot be used. No advice changes the owner
 * or mode of a folder that fdd did not make.
 */
#ifndef FDD_DAEMON_GATE_ADVICE_H
#define FDD_DAEMON_GATE_ADVICE_H

#include <stddef.h>
#include <sys/types.h>

struct names;

/* Finds the first component of the path that this user cannot enter or read. Returns the
 * errno of the attempt, or 0 if there is none. */
int adv_blocked_at(const char *path, char *ret, size_t ret_bytes);
/* Advice for a model directory that cannot be read or does not exist; "" when the path is
 * not the cause. unit: name at the service manager, such as "fdd". no_right: a file in it
 * cannot be read, either. names: given in the loop, which must not wait for the name
 * service; NULL: the name service may be asked, also for a group that would help. */
void adv_model(const char *path, const char *unit, int no_right,
    const struct names *names, char *ret, size_t ret_bytes);
/* Returns 1 if a daemon, or the service manager for it, listens in this folder, with its
 * pid (0: not known) and user. Starts none. */
int adv_daemon_in(const char *dir, pid_t *ret_pid, uid_t *ret_uid);
/* The error "another fdd (pid, user) runs in dir" with its fix. */
void adv_other_daemon(const char *dir, pid_t pid, uid_t uid, char *ret, size_t ret_bytes);
/* A runtime folder that this user may make, for the advice "or another ...". */
void adv_own_dir(char *ret, size_t ret_bytes);

#endif
