/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * fair SOCKET N_OPEN OTHER_TOKENS N_REQUESTS N_TOKENS
 *
 * Runs the load of fair_load.h and prints one line: the slowest request and
 * the median gap between tokens in ms, and how many requests of the other
 * user ended and were refused meanwhile.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/sys/fair_load.h"

int
main(int argc, char **argv)
{
    struct fair_load cfg = { .settle_ms = 500 };
    struct fair_seen seen;

    if (argc != 6) {
        fprintf(stderr, "usage: fair SOCKET N_OPEN OTHER_TOKENS N_REQUESTS N_TOKENS\n");
        return 64;
    }
    cfg.sock = argv[1];
    cfg.n_open = (uint32_t)strtoul(argv[2], NULL, 10);
    cfg.other_tokens = (uint32_t)strtoul(argv[3], NULL, 10);
    cfg.n_requests = (uint32_t)strtoul(argv[4], NULL, 10);
    cfg.n_tokens = (uint32_t)strtoul(argv[5], NULL, 10);
    if (fair_load_run(&cfg, &seen) != 0)
        return 1;
    printf("%.1f %.2f %llu %llu\n",
        (double)fair_quantile(seen.total, cfg.n_requests, 1.0) / 1e6,
        (double)fair_quantile(seen.gap, seen.n_gap, 0.5) / 1e6,
        (unsigned long long)seen.other_done, (unsigned long long)seen.other_refused);
    free(seen.gap);
    free(seen.total);
    return 0;
}
