/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The limits that control groups set for a process. A process's own group and all
 * groups around it are read, and the tightest of each limit counts. Version 1, version
 * 2 and both at a time. */
#ifndef FDD_DAEMON_COMMON_CGROUP_H
#define FDD_DAEMON_COMMON_CGROUP_H

#include <stddef.h>
#include <stdint.h>

#define CGR_NO_LIMIT UINT64_MAX

struct cgr {
    uint64_t memory_max; /* bytes; CGR_NO_LIMIT: no limit, or not known */
    uint64_t tasks_max;
    uint64_t memory_used; /* bytes used in the group that sets memory_max; 0: not known */
    double cpus;          /* limit of CPU time, in processors; 0: no limit, or not
                             known */
};

/* The limits of this process. root: "" or, in tests, a folder that stands for /. Never
 * fails. */
void cgr_read(const char *root, struct cgr *ret);
/* The limits of the process whose folder in /proc is proc, such as "/proc/12". */
void cgr_read_of(const char *root, const char *proc, struct cgr *ret);
/* Returns 1, with an explanation in ret, if bytes of memory, of which `pinned` are
 * pinned, exceed the limit, else 0. */
int cgr_memory_short(const struct cgr *c, uint64_t bytes, uint64_t pinned, char *ret,
    size_t ret_bytes);
int cgr_tasks_short(const struct cgr *c, uint64_t tasks, char *ret, size_t ret_bytes);

#endif
