/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <time.h>
#include <unistd.h>

#include "libclient/priv.h"

uint64_t
fdc__now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t
fdc__deadline(int timeout_ms)
{
    if (timeout_ms < 0)
        return FDC_NEVER;
    return timeout_ms == 0 ? 0 : fdc__now() + (uint64_t)timeout_ms * 1000000u;
}

int
fdc__over(uint64_t deadline)
{
    return deadline != 0 && deadline != FDC_NEVER && fdc__now() >= deadline;
}

static int
is_forked(const struct fdc *s)
{
    return s->pid ? s->pid != (uint64_t)getpid() : *s->alive == 0;
}

int
fdc__check(const struct fdc *s)
{
    if (s == NULL || s->magic != FDC_MAGIC)
        return FDP_E_INVAL;
    return is_forked(s) ? FDP_E_FORKED : 0;
}

int
fdc__check_req(const struct fdc_req *r)
{
    return r == NULL || r->magic != FDC_REQ_MAGIC ? FDP_E_INVAL : fdc__check(r->s);
}
