/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What this build was made from. The commit is found by tools/dev/version.sh
 * at every make and compiled into version.c alone, so that a new commit
 * compiles one file again. Any thread.
 */
#ifndef FDD_DAEMON_COMMON_VERSION_H
#define FDD_DAEMON_COMMON_VERSION_H

/* "abc1234"; "abc1234-dirty" if files differed from it; "" if not known. */
const char *ver_commit(void);
/* "0.2.0 (abc1234)", or "0.2.0" without a known commit. */
const char *ver_text(void);

#endif
