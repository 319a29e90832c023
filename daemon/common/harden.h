/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Rights that a process gives up at its start. Gate and worker call both functions from
 * the main thread, before another thread exists.
 */
#ifndef FDD_DAEMON_COMMON_HARDEN_H
#define FDD_DAEMON_COMMON_HARDEN_H

/* 1 in builds for work on fdd itself (--enable-developer, sanitizers): debuggers,
 * profilers and leak checks of the same user attach, and core dumps are written. */
int hdn_is_open(void);
/* No program that this process starts, or that those start, has more rights than
 * it has: set-uid programs run without. -errno. */
int hdn_no_new_privs(void);
/* Other processes of the same user cannot attach to this one, read its memory or
 * take its descriptors, and it leaves no core dump: its memory holds prompts.
 * /proc/PID belongs to root from then on: write oom_score_adj before. Lasts until
 * execve(). Not where hdn_is_open(). -errno. */
int hdn_no_dump(void);

#endif
