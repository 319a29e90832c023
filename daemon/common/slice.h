/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * How soon a thread runs after it was woken. Linux' fair scheduler (EEVDF) lets the
 * thread that has a processor keep it for its slice, some 3 ms and up to the next tick, even
 * if its nice value is 19 and what was woken is a daemon that needs 20 us. A thread with a
 * shorter slice has an earlier deadline, so it runs at once; its share of the processor
 * stays what its nice value says. Needs no privilege; Linux 6.12 and later.
 */
#ifndef FDD_DAEMON_COMMON_SLICE_H
#define FDD_DAEMON_COMMON_SLICE_H

#include <stdint.h>

/* The gate's: the shortest that the kernel takes. Of two threads with one slice the woken
 * one waits: so those of the worker have longer ones, and those that compute, the longest
 * that is still below the kernel's default. */
#define SLC_NS         100000u
#define SLC_WORKER_NS  300000u
#define SLC_COMPUTE_NS 1000000u

/* Set slices of ns (0: the kernel's default) for the calling thread, and for the threads
 * and processes that it makes. -errno: -ENOSYS or -EINVAL where the kernel has none. */
int slc_set(uint64_t ns);
/* The slice in force, ns; 0: unknown. */
uint64_t slc_get(void);

#endif
