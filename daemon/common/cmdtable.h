/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of admin commands and their arguments (daemon/tbl/ctl_cmds.h) as data. The
 * gate checks requests against it, fdctl writes requests by it, and the page that
 * documents the commands is made from it.
 */
#ifndef FDD_DAEMON_COMMON_CMDTABLE_H
#define FDD_DAEMON_COMMON_CMDTABLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum cmd_perm { CTL_READ, CTL_ADMIN };
enum cmd_effect { CMD_SHOW, CMD_CHANGE };
enum cmd_type { CMD_BOOL, CMD_INT, CMD_STR, CMD_ENUM };
enum cmd_need { CMD_ANY, CMD_MUST, CMD_ONE };
enum cmd_form { CMD_OPT, CMD_WORD, CMD_OWN };

/* Index of a row: CMD_IDX_status, ... */
enum cmd_idx {
#define CTL_CMD(name, perm, effect, help) CMD_IDX_##name,
#define CTL_ARG(cmd, name, letter, type, need, min, max, form, value, help)
#include "daemon/tbl/ctl_cmds.h"
#undef CTL_CMD
#undef CTL_ARG
    CMD_IDX__N
};

struct cmd_row {
    const char *name, *help;
    int perm, effect; /* enum cmd_perm, cmd_effect */
};

struct cmd_arg {
    const char *name, *value, *help;
    int cmd;              /* enum cmd_idx */
    int type, need, form; /* enum cmd_type, cmd_need, cmd_form */
    char letter;
    int64_t min, max;
};

extern const struct cmd_row cmd_rows[CMD_IDX__N];
/* The arguments of one command are adjacent. */
extern const struct cmd_arg cmd_args[];
extern const size_t cmd_n_args;

/* Index of a command, or -1 if there is none of that name. */
int cmd_find(const char *name);
/* Index of the command with the most similar name, or -1 if none is similar. */
int cmd_nearest(const char *name);
/* An argument of a command, or NULL if it has none of that name. */
const struct cmd_arg *cmd_find_arg(int cmd, const char *name);
/* The argument with the most similar name, or NULL if none is similar. */
const struct cmd_arg *cmd_nearest_arg(int cmd, const char *name);
/* Is this word of n bytes a choice of the CMD_ENUM argument? */
int cmd_is_choice(const struct cmd_arg *a, const char *word, size_t n);
/* The values an argument accepts, for an error or a page: "a whole number from 1 to 9".
 * Returns ret. */
const char *cmd_takes(const struct cmd_arg *a, char *ret, size_t ret_bytes);
/* Print the table of doc/control.md. */
void cmd_print_md(FILE *out);

#endif
