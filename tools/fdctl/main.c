/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"

static const struct fct_cmd cmds[] = {
    { "status", fct_cmd_status, "state of the daemon, its worker and its model", 0 },
    { "ls", fct_cmd_ls, "the daemons of this machine", 0 },
    { "generate", fct_cmd_generate, "text or tokens for a prompt", 0 },
    { "tokenize", fct_cmd_tokenize, "token ids of a text", 0 },
    { "detokenize", fct_cmd_detokenize, "text of token ids", 0 },
    { "ping", fct_cmd_ping, "round trip through shared memory", 0 },
    { "stat", fct_cmd_stat, "counters", 0 },
    { "requests", fct_cmd_requests, "requests that have not ended", 0 },
    { "clients", fct_cmd_clients, "sessions of client programs", 0 },
    { "cancel", fct_cmd_cancel, "end requests", 0 },
    { "config", fct_cmd_config, "parameters in force", 0 },
    { "set", fct_cmd_set, "change a parameter while the daemon runs", 0 },
    { "reload", fct_cmd_reload, "read the configuration file again", 0 },
    { "model", fct_cmd_model, "the model's sizes and memory", 0 },
    { "memory", fct_cmd_memory, "every buffer of the worker and the KV pool", 0 },
    { "program", fct_cmd_program, "the operations of one step", 0 },
    { "top", fct_cmd_top, "what the daemon does now, on the terminal", 0 },
    { "trace", fct_cmd_trace, "the last steps and requests", 0 },
    { "profile", fct_cmd_profile, "time of every operation of a step", 0 },
    { "doctor", fct_cmd_doctor, "what this machine has and lacks", 0 },
    { "drain", fct_cmd_drain, "take no new requests", 0 },
    { "pause", fct_cmd_pause, "start no queued request, or go on", 0 },
    { "stop", fct_cmd_stop, "end the daemon", 0 },
    { "debug", fct_cmd_debug, "debug bits, self-check, text of a dead worker", 0 },
    FCT_CMD_END
};

int
main(int argc, char **argv)
{
    return fct_main("fdctl", cmds, argc, argv);
}
