/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"
#include "tools/fdctl/lib/admin.h"

static const char *
shown(const json_t *o, const char *key)
{
    return fct_str(o, key)[0] != '\0' ? fct_str(o, key) : "(nothing)";
}

static void
show_reload(const json_t *o)
{
    const json_t *w;
    size_t i;

    json_array_foreach(json_object_get(o, "changes"), i, w)
        printf("%s: %s -> %s\n", fct_str(w, "name"), shown(w, "old"), shown(w, "new"));
    json_array_foreach(json_object_get(o, "waiting"), i, w)
        printf("%s: %s -> %s waits for a restart%s%s%s\n", fct_str(w, "name"),
            shown(w, "running"), shown(w, "new"),
            fct_str(w, "where")[0] != '\0' ? " (" : "", fct_str(w, "where"),
            fct_str(w, "where")[0] != '\0' ? ")" : "");
    printf("%lld changed\n", fct_num(o, "changed"));
    json_array_foreach(json_object_get(o, "warnings"), i, w)
        printf("warning: %s\n", json_is_string(w) ? json_string_value(w) : "");
}

const struct fct_line fct_line_reload = { .usage = "fdctl reload [--json]",
    .about = "Read the configuration file again and take over what may change.",
    .opts = { fct_json_opts },
    .command = "reload",
    .hint = FCT_HINT_USAGE,
    .show = show_reload };
