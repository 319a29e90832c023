/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

static const struct fct_cmd cmds[] = {
    { "serve", fdb_cmd_serve, "load: latencies, throughput, goodput", 0 },
    { "latency", fdb_cmd_latency, "fixed batches: prefill and time per step", 0 },
    { "ipc", fdb_cmd_ipc, "round trips, wake-ups, processor time a token", 0 },
    { "start", fdb_cmd_start, "time to the first token of a daemon that starts", 1 },
    FCT_CMD_END
};

int
main(int argc, char **argv)
{
    return fct_main("fdbench", cmds, argc, argv);
}
