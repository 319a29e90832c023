/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"
#include "tools/fdctl/lib/admin.h"

static const struct fct_opt opts[] = {
    { "off", 0, NULL, NULL, FCT_ASK(struct fct_plain, ask, 0) },
    FCT_OPT_JSON(struct fct_plain, "the answer as JSON"), FCT_OPT_HELP, FCT_OPT_END
};

static void
show_pause(const json_t *o)
{
    printf("%s, %lld requests queued, %lld running\n", fct_str(o, "state"),
        fct_num(o, "queued"), fct_num(o, "running"));
}

const struct fct_line fct_line_pause = { .usage = "fdctl pause [--off] [--json]",
    .about = "Queue what comes and start none of it; those that run go on. Ends with --off,\n"
             "or when the daemon drains or stops.",
    .opts = { opts },
    .command = "pause",
    .hint = FCT_HINT_USAGE,
    .show = show_pause };
