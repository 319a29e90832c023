/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Pins a rank's launch thread to the processors near its device, so that its reads and
 * writes of device memory cross no link between sockets.
 */
#include "config.h"

#include "daemon/worker/runner.h"

#include <errno.h>
#include <sched.h>

#include "daemon/common/log.h"
#include "daemon/common/text.h"

#define NEAR_TEXT 4096

int
run_cpus_parse(const char *list, cpu_set_t *ret)
{
    unsigned long from, to;
    int rc;

    CPU_ZERO(ret);
    while ((rc = txt_range(&list, &from, &to)) == 1 && to < CPU_SETSIZE)
        for (; from <= to; from++)
            CPU_SET(from, ret);
    return rc == 0 && *list == '\0' ? 0 : -EINVAL;
}

void
run_pin(const struct run_dev *dev)
{
    const struct runner *run = dev->run;
    cpu_set_t near, may, both;
    char list[NEAR_TEXT] = "";

    if (run->k->device_cpus == NULL ||
        run->k->device_cpus(run->ctx, dev->idx, list, sizeof(list)) != 0 || list[0] == '\0')
        return;
    if (run_cpus_parse(list, &near) != 0) {
        log_warn("runner: %s is said to be near processors \"%s\", which is no list of them",
            dev->name, list);
        return;
    }
    if (sched_getaffinity(0, sizeof(may), &may) != 0)
        return;
    CPU_AND(&both, &near, &may);
    if (CPU_COUNT(&both) == 0) {
        log_warn("runner: rank %d (%s): none of the processors near the device, %s, may be "
                 "used; its launch thread runs on others (systemd: CPUAffinity)",
            run_rank(dev), dev->name, list);
        return;
    }
    if (CPU_EQUAL(&both, &may) || sched_setaffinity(0, sizeof(both), &both) != 0)
        return;
    log_info("runner: rank %d (%s): its launch thread runs on processors %s, near the device",
        run_rank(dev), dev->name, list);
}
