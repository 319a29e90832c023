/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * How soon a thread runs after it was woken. Linux' fair scheduler (EEVDF) lets a
 * running thread keep its processor for its slice, about 3 ms and up to the next tick.
 * That holds even if its nice value is 19 and the woken thread is a daemon that needs
 * 20 us. A thread with a shorter slice has an earlier deadline, so it runs at once; its
 * share of the processor still follows its nice value. Needs no privilege; Linux 6.12
 * and later.
 */
#ifndef FDD_DAEMON_COMMON_SLICE_H
#define FDD_DAEMON_COMMON_SLICE_H

#include <stdint.h>

/* SLC_NS is the gate's: the shortest slice that the kernel allows. A woken thread waits
 * for a running one with the same slice, so the worker's threads have longer slices.
 * The threads that compute have the longest, still below the kernel's default. */
#define SLC_NS         100000u
#define SLC_WORKER_NS  300000u
#define SLC_COMPUTE_NS 1000000u
/* Above the kernel's default, so that every thread that is woken runs before one with it;
 * not far above, or such a thread gets no processor for long while others compute. */
#define SLC_LONG_NS 4000000u

/* Set slices of ns (0: the kernel's default) for the calling thread, and for the
 * threads and processes that it creates. 0 or -errno: -ENOSYS or -EINVAL if the kernel
 * does not support it. */
int slc_set(uint64_t ns);
/* The slice in force, ns; 0: unknown. */
uint64_t slc_get(void);

#endif
