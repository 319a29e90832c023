/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"
#include "tools/fdctl/lib/admin.h"

#include <string.h>

struct args {
    int json, origin;
    struct fct_operands name;
};

static const struct fct_opt opts[] = {
    { "origin", 0, NULL, "show where each value comes from", FCT_FLAG(struct args, origin) },
    FCT_OPT_JSON(struct args, "the answer as JSON"), FCT_OPT_HELP, FCT_OPT_END
};

static const struct fct_line line = { .usage = "fdctl config [NAME] [--origin] [--json]",
    .about = "Parameters in force, or the value of one.",
    .opts = { opts },
    .operands = 1 + offsetof(struct args, name),
    .max_operands = 1,
    .hint = FCT_HINT_USAGE };

/* "    (auto: 512)", "    (in force: 512)", "    (after a restart: 7, FILE:3)". */
static void
config_notes(const json_t *p, char *ret, size_t ret_bytes)
{
    const json_t *w = json_object_get(p, "waiting");
    const char *now = fct_str(p, "effective"), *at = fct_str(w, "where");
    size_t n = 0;

    ret[0] = '\0';
    if (now[0] != '\0')
        n = (size_t)snprintf(ret, ret_bytes, "    (%s: %s)",
            json_is_true(json_object_get(p, "auto")) ? "auto" : "in force", now);
    if (w != NULL && n < ret_bytes)
        snprintf(ret + n, ret_bytes - n, "    (after a restart: %s%s%s)",
            fct_str(w, "value")[0] != '\0' ? fct_str(w, "value") : "nothing",
            at[0] != '\0' ? ", " : "", at);
}

/* name: what was asked for, or NULL. A row that goes by its own name is shown as its
 * value alone, which scripts read; the rest goes to standard error. */
static void
show_config(const json_t *o, int origin, const char *name)
{
    const json_t *list = json_object_get(o, "config"), *p;
    char notes[1536];
    size_t i;

    if (fct_str(o, "note")[0] != '\0')
        fct_fail(0, "%s", fct_str(o, "note"));
    json_array_foreach(list, i, p) {
        const char *from = fct_str(p, "origin"), *at = fct_str(p, "where");

        config_notes(p, notes, sizeof(notes));
        if (name != NULL && !origin && strcmp(name, fct_str(p, "name")) == 0) {
            puts(fct_str(p, "value"));
            if (notes[0] != '\0')
                fct_fail(0, "%s%s", name, notes);
        } else if (origin) {
            printf("%s = %s%s    (%s%s%s)\n", fct_str(p, "name"), fct_str(p, "value"),
                notes, from, at[0] != '\0' ? " " : "", at);
        } else {
            printf("%s = %s%s\n", fct_str(p, "name"), fct_str(p, "value"), notes);
        }
    }
}

int
fct_cmd_config(const struct fct *f, int argc, char **argv)
{
    struct args a = { .json = 0 };
    json_t *answer, *q;
    int rc = fct_parse(&line, argc, argv, &a);

    if (rc != FCT_GO)
        return rc;
    q = fct_question("config");
    if (a.name.n > 0)
        json_object_set_new(q, "name", json_string(a.name.text[0]));
    rc = fct_ask_once(f, q, 0, &answer);
    if (rc != 0)
        return rc;
    json_object_del(answer, "ok");
    if (a.json)
        return fct_print_json(answer);
    show_config(answer, a.origin, a.name.text[0]);
    json_decref(answer);
    return 0;
}
