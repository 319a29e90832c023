/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What this build was made from. tools/dev/version.sh finds the commit at every make,
 * and it is compiled into version.c only, so that a new commit recompiles one file. Any
 * thread.
 */
#ifndef FDD_DAEMON_COMMON_VERSION_H
#define FDD_DAEMON_COMMON_VERSION_H

/* "abc1234"; "abc1234-dirty" if files differed from that commit; "" if not known. */
const char *ver_commit(void);
/* "0.2.0 (abc1234)", or "0.2.0" without a known commit. */
const char *ver_text(void);

#endif
