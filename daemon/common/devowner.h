/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The holder of a device lock (daemon/worker/devlock.h): one line "pid instance home",
 * with "-" for the instance without a name, in the file PATH.holder next to the lock
 * file. Every user may read it. The file stays when its daemon has ended; the lock
 * (flock) says whether the device is held.
 */
#ifndef FDD_DAEMON_COMMON_DEVOWNER_H
#define FDD_DAEMON_COMMON_DEVOWNER_H

#include <stddef.h>

#define DOW_SUFFIX ".holder"

struct dow {
    long pid;          /* process id of fdd; 0: not in the file */
    char instance[64]; /* "": the instance without a name */
    char home[600];    /* its runtime folder */
};

/* Parse the line of a holder file. Returns 0; -EINVAL, with *ret empty, if it is bad. */
int dow_parse(const char *text, struct dow *ret);
/* "fdd (pid 12, instance qwen, in /run/fdd/qwen)", or "fdd". */
void dow_text(const struct dow *o, char *ret, size_t ret_bytes);
/* Read the holder of the lock file at path from PATH.holder; pid 0: none. */
void dow_read(const char *path, struct dow *ret);
/* Does fdd run as pid? A zombie does not count, nor does another program that was given
 * the same pid later. */
int dow_is_alive(long pid);
/* Is the device of the lock file at path held? 1: yes, with the holder in *ret; 0: no;
 * else -errno. Takes the lock for a moment; a worker that wants it then tries again. A
 * caller that may not open the lock file gets the last holder if a process fdd with its
 * pid runs. */
int dow_look(const char *path, struct dow *ret);

#endif
