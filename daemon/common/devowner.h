/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds a device lock (daemon/worker/devlock.h): one line "pid instance home",
 * with "-" for the instance without a name, in the file PATH.holder next to the
 * lock's, which every user may read. It stays when its daemon has ended; the lock
 * (flock) says whether somebody has the device.
 */
#ifndef FDD_DAEMON_COMMON_DEVOWNER_H
#define FDD_DAEMON_COMMON_DEVOWNER_H

#include <stddef.h>

#define DOW_SUFFIX ".holder"

struct dow {
    long pid;                 /* of fdd; 0: the file does not say */
    char instance[64];        /* "": the one without a name */
    char home[600];           /* its runtime folder */
};

/* 0; -EINVAL: no such line, *ret says nothing. */
int dow_parse(const char *text, struct dow *ret);
/* "fdd (pid 12, instance qwen, in /run/fdd/qwen)", or "fdd". */
void dow_text(const struct dow *o, char *ret, size_t ret_bytes);
/* The holder of the lock file at path as its own file has it; pid 0: nothing there. */
void dow_read(const char *path, struct dow *ret);
/* Whose is the device of the lock file at path? 1: *ret has it, 0: it is free, else
 * -errno. Takes the lock for a moment to see: a worker that wants it then tries
 * again. Who may not open the lock gets the last holder while a process fdd of its
 * pid is there. */
int dow_look(const char *path, struct dow *ret);

#endif
