/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's launch thread runs on the processors near its device: what it writes to the
 * device, and reads of it, then crosses no link between sockets.
 */
#include "config.h"

#include "daemon/worker/runner.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/log.h"

#define NEAR_TEXT 4096

/* One of "3" and "0-15", to *end. */
static int
near_range(const char *p, cpu_set_t *ret, const char **end)
{
    char *at;
    unsigned long from = strtoul(p, &at, 10), to = from;

    if (at == p || *p < '0' || *p > '9')
        return -EINVAL;
    if (*at == '-') {
        p = at + 1;
        to = strtoul(p, &at, 10);
        if (at == p || *p < '0' || *p > '9')
            return -EINVAL;
    }
    if (from > to || to >= CPU_SETSIZE)
        return -EINVAL;
    for (unsigned long i = from; i <= to; i++)
        CPU_SET(i, ret);
    *end = at;
    return 0;
}

int
run_cpus_parse(const char *list, cpu_set_t *ret)
{
    CPU_ZERO(ret);
    for (const char *p = list; *p != '\0';) {
        int rc = near_range(p, ret, &p);

        if (rc != 0 || (*p != '\0' && *p != ','))
            return -EINVAL;
        if (*p == ',' && *++p == '\0')
            return -EINVAL;
    }
    return 0;
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
