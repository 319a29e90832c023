/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of a log line for the thread that logs it: written by that thread to a file,
 * and queued for the writer thread, in bursts, with pauses after which the writer must be
 * woken, and with a queue that is full because no process reads. Each line is timed;
 * median, p99 and maximum.
 */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"

#define N_LINE  20000
#define N_WAKE  500
#define WAKE_NS (5 * CLK_MS)

static double ns[N_LINE];

static int
by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static void
lines(const char *what, int n, int every, uint64_t pause_ns)
{
    for (int i = 0; i < n; i++) {
        uint64_t t = clk_now_ns();

        log_info("request: done: id %d user alice client bench op submit n 1 prompt_tokens "
                 "128 output_tokens 256 queue_ms 0.123 ttft_ms 12.345 total_ms 1234.567",
            i);
        ns[i] = (double)(clk_now_ns() - t);
        if (pause_ns != 0 && i % every == every - 1)
            clk_sleep_ns(pause_ns);
    }
    qsort(ns, (size_t)n, sizeof(ns[0]), by_size);
    (void)printf("%-52s %8.2f us  p99 %8.2f us  max %8.2f us\n", what, ns[n / 2] / 1e3,
        ns[n * 99 / 100] / 1e3, ns[n - 1] / 1e3);
    (void)fflush(stdout);
}

static void
to_file(void)
{
    char path[] = "/tmp/b_log.XXXXXX";
    int fd = mkstemp(path);

    if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
        exit(1);
    (void)unlink(path);
    (void)close(fd);
}

int
main(void)
{
    int fds[2];

    log_init("bench", "info");
    (void)log_apply(PAR_LOG_LEVEL_INFO, "", PAR_LOG_FORMAT_TEXT, 0);
    to_file();
    lines("written by the caller", N_LINE, 1, 0);
    if (log_start(NULL) != 0)
        return 1;
    lines("queued, bursts of 100", N_LINE, 100, WAKE_NS);
    lines("queued, the writer sleeps each time", N_WAKE, 1, WAKE_NS);
    (void)log_fini();
    if (pipe(fds) != 0 || dup2(fds[1], STDERR_FILENO) < 0 || log_start(NULL) != 0)
        return 1;
    lines("not read, the queue is full", N_LINE, 1, 0);
    return 0;
}
