/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"
#include "tools/fdctl/lib/admin.h"

#include <string.h>

static const struct fct_opt opts[] = {
    { "now", 0, NULL, NULL, FCT_ASK(struct fct_plain, ask, 0) },
    { "timeout-ms", 0, "", NULL, FCT_ASK(struct fct_plain, ask, INT64_MAX) },
    FCT_OPT_JSON(struct fct_plain, "the answer as JSON"), FCT_OPT_HELP, FCT_OPT_END
};

static void
show_stop(const json_t *o)
{
    const char *unit = fct_str(o, "socket_unit");
    int n;

    printf("pid %lld is stopping, %lld requests left\n", fct_num(o, "pid"),
        fct_num(o, "requests"));
    if (unit[0] == '\0')
        return;
    n = strlen(unit) > 7 && strcmp(unit + strlen(unit) - 7, ".socket") == 0
        ? (int)strlen(unit) - 7
        : 0;
    if (n == 0)
        printf("the service manager still listens: the next client starts fdd again\n");
    else
        printf("%s still listens: the next client starts fdd again; to keep it stopped:\n"
               "  sudo systemctl stop %s %.*s\n",
            unit, unit, n, unit);
}

const struct fct_line fct_line_stop = {
    .usage = "fdctl stop [--now] [--timeout-ms MS] [--json]",
    .about = "End the daemon when the running requests have ended.",
    .opts = { opts },
    .command = "stop",
    .hint = FCT_HINT_USAGE,
    .show = show_stop
};
