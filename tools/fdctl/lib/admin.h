/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What commands of the admin socket share: one question, its answer as JSON or as text.
 */
#ifndef FDD_TOOLS_FDCTL_LIB_ADMIN_H
#define FDD_TOOLS_FDCTL_LIB_ADMIN_H

#include "tools/fdctl/lib/fct.h"

/* Arguments of a command that asks one question. */
struct fct_plain {
    json_t *ask; /* options add to it: FCT_ASK() */
    int json;
};
/* --json and --help of such a command. */
extern const struct fct_opt fct_json_opts[];

/* {"cmd": name} */
json_t *fct_question(const char *name);
/* Print the answer, which passes, without its "ok"; fdctl's exit code. */
int fct_finish(json_t *answer, int json, void (*show)(const json_t *answer));
/* The whole of such a command, whose name is l->command and which l->show() shows. */
int fct_plain_cmd(const struct fct *f, const struct fct_line *l, int argc, char **argv);
/* "850 ms", "12.3 s", "5 min", "2.0 h", "3 days" */
void fct_age(long long ms, char *ret, size_t ret_bytes);

#endif
