/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"
#include "tools/fdctl/lib/admin.h"

/* Commands that print the answer as it is, or a list in it. */

static void
show_requests(const json_t *o)
{
    fct_show(stdout, json_object_get(o, "requests"), 0);
}

static void
show_clients(const json_t *o)
{
    fct_show(stdout, json_object_get(o, "clients"), 0);
}

static void
show_any(const json_t *o)
{
    fct_show(stdout, o, 0);
}

#define PLAIN(cmd, text, how) \
    const struct fct_line fct_line_##cmd = { .usage = "fdctl " #cmd " [--json]", \
        .about = text, \
        .opts = { fct_json_opts }, \
        .command = #cmd, \
        .hint = FCT_HINT_USAGE, \
        .show = how };
PLAIN(requests, "Requests that have not ended.", show_requests)
PLAIN(clients, "Sessions of client programs.", show_clients)
PLAIN(program, "The operations that make up one step of the model.", show_any)
