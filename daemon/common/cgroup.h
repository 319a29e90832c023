/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* What the control group of this process, and those around it, allow. */
#ifndef FDD_DAEMON_COMMON_CGROUP_H
#define FDD_DAEMON_COMMON_CGROUP_H

#include <stddef.h>
#include <stdint.h>

#define CGR_NO_LIMIT UINT64_MAX

struct cgr {
    uint64_t memory_max;   /* bytes; CGR_NO_LIMIT: none, or not known */
    uint64_t tasks_max;
};

/* root: "" or, in tests, a folder that stands for /. Never fails. */
void cgr_read(const char *root, struct cgr *ret);
/* Is bytes of memory, pinned ones among them, more than it may have? Then what
 * to say. */
int cgr_memory_short(const struct cgr *c, uint64_t bytes, uint64_t pinned, char *ret,
    size_t ret_bytes);
int cgr_tasks_short(const struct cgr *c, uint64_t tasks, char *ret, size_t ret_bytes);

#endif
