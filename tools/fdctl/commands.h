/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdctl's commands, for the table in main.c. */
#ifndef FDD_TOOLS_FDCTL_COMMANDS_H
#define FDD_TOOLS_FDCTL_COMMANDS_H

#include "tools/fdctl/lib/fct.h"

fct_cmd_fn fct_cmd_generate, fct_cmd_tokenize, fct_cmd_detokenize, fct_cmd_ping,
    fct_cmd_stat, fct_cmd_ls, fct_cmd_debug, fct_cmd_chat, fct_cmd_trace, fct_cmd_top,
    fct_cmd_doctor, fct_cmd_up;
extern const struct fct_line fct_line_status, fct_line_requests, fct_line_clients,
    fct_line_reload, fct_line_memory, fct_line_program, fct_line_pause, fct_line_stop,
    fct_line_profile, fct_line_drain, fct_line_config, fct_line_model, fct_line_set,
    fct_line_cancel;

#endif
