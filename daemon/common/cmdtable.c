/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/cmdtable.h"

#include <string.h>

#include "daemon/common/text.h"

#define CMD_NEAR 4u /* names at this distance or more are not suggested */

const struct cmd_row cmd_rows[CMD_IDX__N] = {
#define CTL_CMD(name, perm, effect, help) { #name, help, CTL_##perm, CMD_##effect },
#define CTL_ARG(cmd, name, letter, type, need, min, max, form, value, help)
#include "daemon/tbl/ctl_cmds.h"
#undef CTL_CMD
#undef CTL_ARG
};

const struct cmd_arg cmd_args[] = {
#define CTL_CMD(name, perm, effect, help)
#define CTL_ARG(cmd, name, letter, type, need, min, max, form, value, help) \
    { #name, value, help, CMD_IDX_##cmd, CMD_##type, CMD_##need, CMD_##form, letter, \
        min, max },
#include "daemon/tbl/ctl_cmds.h"
#undef CTL_CMD
#undef CTL_ARG
};
const size_t cmd_n_args = sizeof(cmd_args) / sizeof(cmd_args[0]);

int
cmd_find(const char *name)
{
    for (int i = 0; i < CMD_IDX__N; i++) {
        if (strcmp(cmd_rows[i].name, name) == 0)
            return i;
    }
    return -1;
}

int
cmd_nearest(const char *name)
{
    unsigned best = CMD_NEAR;
    int nearest = -1;

    for (int i = 0; i < CMD_IDX__N; i++) {
        unsigned d = txt_distance(name, cmd_rows[i].name);

        if (d < best) {
            best = d;
            nearest = i;
        }
    }
    return nearest;
}

const struct cmd_arg *
cmd_find_arg(int cmd, const char *name)
{
    for (size_t i = 0; i < cmd_n_args; i++) {
        if (cmd_args[i].cmd == cmd && strcmp(cmd_args[i].name, name) == 0)
            return &cmd_args[i];
    }
    return NULL;
}

const struct cmd_arg *
cmd_nearest_arg(int cmd, const char *name)
{
    const struct cmd_arg *nearest = NULL;
    unsigned best = CMD_NEAR;

    for (size_t i = 0; i < cmd_n_args; i++) {
        unsigned d =
            cmd_args[i].cmd == cmd ? txt_distance(name, cmd_args[i].name) : CMD_NEAR;

        /* if every letter differs, the names are not similar */
        if (d < best && d < strlen(cmd_args[i].name)) {
            best = d;
            nearest = &cmd_args[i];
        }
    }
    return nearest;
}

int
cmd_is_choice(const struct cmd_arg *a, const char *word, size_t n)
{
    for (const char *p = a->value; *p != '\0';) {
        size_t len = strcspn(p, "|");

        if (len == n && memcmp(p, word, n) == 0)
            return 1;
        p += len + (p[len] == '|');
    }
    return 0;
}

const char *
cmd_takes(const struct cmd_arg *a, char *ret, size_t ret_bytes)
{
    switch (a->type) {
    case CMD_BOOL:
        (void)snprintf(ret, ret_bytes, "true or false");
        break;
    case CMD_INT:
        (void)snprintf(ret, ret_bytes,
            a->max == INT64_MAX ? "a whole number from %lld"
                                : "a whole number from %lld to %lld",
            (long long)a->min, (long long)a->max);
        break;
    case CMD_STR:
        (void)snprintf(ret, ret_bytes, "a text of %lld to %lld bytes", (long long)a->min,
            (long long)a->max);
        break;
    default: /* CMD_ENUM */
        (void)snprintf(ret, ret_bytes, "one of %s", a->value);
        for (char *p = ret; (p = strchr(p, '|')) != NULL;)
            *p = ' ';
        break;
    }
    return ret;
}

static void
cmd_print_arg(FILE *out, const struct cmd_arg *a, int is_first)
{
    static const char *const needs[] = { "", " (must be there)",
        " (one of those marked so)" };
    char takes[256];

    (void)fprintf(out, "%s`%s`%s: %s: %s%s", is_first ? "" : "; ", a->name,
        a->need == CMD_ANY ? "?" : "", cmd_takes(a, takes, sizeof(takes)), a->help,
        needs[a->need]);
}

void
cmd_print_md(FILE *out)
{
    static const char *const perms[] = { "READ", "ADMIN" };

    (void)fputs("| command | permission | what it does | arguments |\n"
                "| --- | --- | --- | --- |\n",
        out);
    for (int i = 0; i < CMD_IDX__N; i++) {
        int is_first = 1;

        (void)fprintf(out, "| %s | %s | %s | ", cmd_rows[i].name, perms[cmd_rows[i].perm],
            cmd_rows[i].help);
        for (size_t k = 0; k < cmd_n_args; k++) {
            if (cmd_args[k].cmd == i) {
                cmd_print_arg(out, &cmd_args[k], is_first);
                is_first = 0;
            }
        }
        (void)fputs(is_first ? "|\n" : " |\n", out);
    }
}
