/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/clk.h"

#include <errno.h>
#include <time.h>

uint64_t
clk_of_ns(clockid_t id)
{
    struct timespec ts = { .tv_sec = 0 };

    (void)clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * CLK_S + (uint64_t)ts.tv_nsec;
}

uint64_t
clk_now_ns(void)
{
    return clk_of_ns(CLOCK_MONOTONIC);
}

uint64_t
clk_wall_ns(void)
{
    return clk_of_ns(CLOCK_REALTIME);
}

void
clk_sleep_ns(uint64_t ns)
{
    struct timespec ts = { (time_t)(ns / CLK_S), (long)(ns % CLK_S) };

    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, &ts) == EINTR)
        continue;
}
