/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* What the control groups of a process, its own and those around it, allow: the
 * tightest of each counts. Version 1, version 2 and both at a time. */
#ifndef FDD_DAEMON_COMMON_CGROUP_H
#define FDD_DAEMON_COMMON_CGROUP_H

#include <stddef.h>
#include <stdint.h>

#define CGR_NO_LIMIT UINT64_MAX

struct cgr {
    uint64_t memory_max; /* bytes; CGR_NO_LIMIT: none, or not known */
    uint64_t tasks_max;
    uint64_t memory_used; /* in the group that has memory_max; 0: not known */
    double cpus;          /* processors' time; 0: no limit, or not known */
};

/* Of this process. root: "" or, in tests, a folder that stands for /. Never fails. */
void cgr_read(const char *root, struct cgr *ret);
/* Of the process whose folder in /proc this is: "/proc/12". */
void cgr_read_of(const char *root, const char *proc, struct cgr *ret);
/* Does bytes of memory, pinned included, exceed the limit? Then *ret explains it. */
int cgr_memory_short(const struct cgr *c, uint64_t bytes, uint64_t pinned, char *ret,
    size_t ret_bytes);
int cgr_tasks_short(const struct cgr *c, uint64_t tasks, char *ret, size_t ret_bytes);

#endif
