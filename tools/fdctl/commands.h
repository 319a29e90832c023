/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * fdctl's commands, for the table in main.c.
 */
#ifndef FDD_TOOLS_FDCTL_COMMANDS_H
#define FDD_TOOLS_FDCTL_COMMANDS_H

#include "tools/fdctl/lib/fct.h"

fct_cmd_fn fct_cmd_generate, fct_cmd_tokenize, fct_cmd_detokenize, fct_cmd_ping,
    fct_cmd_status, fct_cmd_stat, fct_cmd_requests, fct_cmd_clients, fct_cmd_cancel,
    fct_cmd_config, fct_cmd_set, fct_cmd_reload, fct_cmd_model, fct_cmd_memory,
    fct_cmd_program, fct_cmd_ls, fct_cmd_drain, fct_cmd_pause, fct_cmd_stop, fct_cmd_debug,
    fct_cmd_trace, fct_cmd_profile, fct_cmd_top, fct_cmd_doctor;

#endif
