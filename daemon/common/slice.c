/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/slice.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* struct sched_attr of linux/sched/types.h, first version; glibc has it since 2.41. */
struct slc_attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime; /* slice of a thread of the fair class, ns */
    uint64_t deadline, period;
};

static int
slc_read(struct slc_attr *ret)
{
    memset(ret, 0, sizeof(*ret));
    return syscall(SYS_sched_getattr, 0, ret, sizeof(*ret), 0) == 0 ? 0 : -errno;
}

int
slc_set(uint64_t ns)
{
    struct slc_attr a;
    int rc = slc_read(&a);

    if (rc != 0)
        return rc;
    a.size = sizeof(a);
    a.runtime = ns;
    return syscall(SYS_sched_setattr, 0, &a, 0) == 0 ? 0 : -errno;
}

uint64_t
slc_get(void)
{
    struct slc_attr a;

    return slc_read(&a) == 0 ? a.runtime : 0;
}
