/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

static const struct fct_cmd cmds[] = {
    { "serve", "load: latencies, throughput, goodput", .fn = fdb_cmd_serve },
    { "latency", "fixed batches: prefill and time per step", .fn = fdb_cmd_latency },
    { "ipc", "round trips, wake-ups, processor time a token", .fn = fdb_cmd_ipc },
    { "start", "time to the first token of a daemon that starts", .fn = fdb_cmd_start,
        .starts_one = 1 },
    { .name = NULL }
};

int
main(int argc, char **argv)
{
    return fct_main("fdbench", cmds, argc, argv);
}
