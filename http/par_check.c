/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* What fdd-http's own parameters demand of each other: its part of param.h. */
#include "config.h"

#include <string.h>

#include "chat/fdchat.h"
#include "daemon/common/param_priv.h"
#include "http/listen.h"

const char par_program[] = "fdd-http", par_about[] = "the HTTP gateway of fdd";

static void
check_parser(const struct par *p, struct par_say *say)
{
    const char *name;

    if (p->chat_parser[0] == '\0' || strcmp(p->chat_parser, "none") == 0)
        return;
    for (size_t i = 0; (name = fdchat_format_name(i)) != NULL; i++)
        if (strcmp(name, p->chat_parser) == 0)
            return;
    par_say_error(say,
        "chat.parser = %s: no such format; fdchat(3) lists them, and none parses nothing",
        p->chat_parser);
}

void
par_check_each(const struct par *p, struct par_say *say)
{
    char err[256];

    if (lis_check(p, err, sizeof(err)) != 0)
        par_say_error(say, "%s", err);
    if (p->http_root_path[0] != '\0' &&
        (p->http_root_path[0] != '/' ||
            p->http_root_path[strlen(p->http_root_path) - 1] == '/'))
        par_say_error(say,
            "http.root_path = %s: begins with a slash and does not end with one",
            p->http_root_path);
    check_parser(p, say);
}
