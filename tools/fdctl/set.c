/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"
#include "tools/fdctl/lib/admin.h"

#include <string.h>

struct args {
    int json;
    struct fct_operands w;
};

static const struct fct_opt opts[] = { FCT_OPT_JSON(struct args, "the answer as JSON"),
    FCT_OPT_HELP, FCT_OPT_END };

static const struct fct_line line = { .usage = "fdctl set NAME=VALUE... [--json]",
    .about = "Change parameters of the running daemon, until its next reload or start.",
    .opts = { opts },
    .operands = 1 + offsetof(struct args, w),
    .max_operands = FCT_OPERANDS_MAX,
    .hint = FCT_HINT_USAGE };

static void
show_set(const json_t *answer)
{
    printf("%s = %s\n", fct_str(answer, "name"), fct_str(answer, "value"));
}

static int
set_one(struct fct_admin *adm, const char *word, int json)
{
    const char *eq = strchr(word, '=');
    json_t *answer, *name, *value, *q;
    int rc;

    name = fct_json_text(word, (size_t)(eq - word));
    value = fct_json_text(eq + 1, strlen(eq + 1));
    q = json_pack("{s:s, s:o, s:o}", "cmd", "set", "name", name, "value", value);
    rc = fct_ask(adm, q, 0, &answer);
    if (rc != 0)
        return rc;
    if (fct_str(answer, "warning")[0] != '\0')
        fct_fail(0, "%s", fct_str(answer, "warning"));
    return fct_finish(answer, json, show_set);
}

int
fct_cmd_set(const struct fct *f, int argc, char **argv)
{
    struct args a = { .json = 0 };
    struct fct_admin *adm;
    int rc = fct_parse(&line, argc, argv, &a);

    if (rc != FCT_GO)
        return rc;
    if (a.w.n == 0)
        return fct_fail(FCT_EX_USAGE, "set: give NAME=VALUE, such as log.level=debug");
    for (int i = 0; i < a.w.n; i++)
        if (strchr(a.w.text[i], '=') == NULL)
            return fct_fail(FCT_EX_USAGE, "set: '%s' has no '='; write NAME=VALUE",
                a.w.text[i]);
    rc = fct_admin_open(f, 0, &adm);
    if (rc != 0)
        return rc;
    for (int i = 0; i < a.w.n && rc == 0; i++)
        rc = set_one(adm, a.w.text[i], a.json);
    fct_admin_close(adm);
    return rc;
}
