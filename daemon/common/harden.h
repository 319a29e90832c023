/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Rights that a process gives up at its start. Gate and worker call hdn_no_new_privs()
 * and hdn_no_dump() from the main thread, before another thread exists.
 */
#ifndef FDD_DAEMON_COMMON_HARDEN_H
#define FDD_DAEMON_COMMON_HARDEN_H

/* Is this a build for work on fdd itself (--enable-developer, sanitizers)? In such a
 * build debuggers, profilers and leak checks of the same user can attach, and core
 * dumps are written. */
int hdn_is_open(void);
/* This process and its descendants can gain no rights by execve(): set-uid programs run
 * without theirs. 0 or -errno. */
int hdn_no_new_privs(void);
/* Other processes of the same user cannot attach to this one, read its memory or take
 * its descriptors, and it leaves no core dump: its memory holds prompts. /proc/PID
 * belongs to root from then on: write oom_score_adj before. Lasts until execve(). Not
 * to be called where hdn_is_open(). 0 or -errno. */
int hdn_no_dump(void);

#endif
