/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"

static const struct fct_cmd cmds[] = {
    { "status", "state of the daemon, its worker and its model", .ask = &fct_line_status },
    { "ls", "the daemons of this machine", .fn = fct_cmd_ls },
    { "generate", "text or tokens for a prompt", .fn = fct_cmd_generate },
    { "chat", "a conversation with the model", .fn = fct_cmd_chat },
    { "tokenize", "token ids of a text", .fn = fct_cmd_tokenize },
    { "detokenize", "text of token ids", .fn = fct_cmd_detokenize },
    { "ping", "round trip through shared memory", .fn = fct_cmd_ping },
    { "stat", "counters", .fn = fct_cmd_stat },
    { "requests", "requests that have not ended", .ask = &fct_line_requests },
    { "clients", "sessions of client programs", .ask = &fct_line_clients },
    { "cancel", "end requests", .ask = &fct_line_cancel },
    { "config", "parameters in force", .ask = &fct_line_config },
    { "set", "change a parameter while the daemon runs", .ask = &fct_line_set },
    { "reload", "read the configuration file again", .ask = &fct_line_reload },
    { "model", "the model's sizes and memory, or one of its files", .ask = &fct_line_model },
    { "memory", "every buffer of the worker and the KV pool", .ask = &fct_line_memory },
    { "program", "the operations of one step", .ask = &fct_line_program },
    { "top", "what the daemon does now, on the terminal", .fn = fct_cmd_top },
    { "trace", "the last steps and requests", .fn = fct_cmd_trace },
    { "profile", "time of every operation of a step", .ask = &fct_line_profile },
    { "doctor", "what this machine has and lacks", .fn = fct_cmd_doctor },
    { "up", "a daemon for one model, as long as this runs", .fn = fct_cmd_up,
        .starts_one = 1 },
    { "drain", "take no new requests", .ask = &fct_line_drain },
    { "pause", "start no queued request, or go on", .ask = &fct_line_pause },
    { "stop", "end the daemon", .ask = &fct_line_stop },
    { "debug", "debug bits, self-check, text of a dead worker", .fn = fct_cmd_debug },
    { .name = NULL }
};

int
main(int argc, char **argv)
{
    return fct_main("fdctl", cmds, argc, argv);
}
