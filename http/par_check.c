/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdd-http's par_check_each() and par_check_named(): checks of its parameters against
 * each other. */
#include "config.h"

#include <string.h>

#include "chat/fdchat.h"
#include "daemon/common/param_priv.h"
#include "http/listen.h"
#include "http/served.h"

const char par_program[] = "fdd-http", par_about[] = "the HTTP gateway of fdd";
const char par_named_kind[] = "model", par_named_keys[] = "socket,name,template,parser";

static int
is_format(const char *parser)
{
    const char *name;

    if (parser[0] == '\0' || strcmp(parser, "none") == 0)
        return 1;
    for (size_t i = 0; (name = fdchat_format_name(i)) != NULL; i++)
        if (strcmp(name, parser) == 0)
            return 1;
    return 0;
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
    if (!is_format(p->chat_parser))
        par_say_error(say,
            "chat.parser = %s: no such format; fdchat(3) lists the formats; none turns parsing "
            "off",
            p->chat_parser);
}

/* ---- sections [model NAME] -------------------------------------------------------- */

/* Do both have a name in common? It is copied to ret. */
static int
share_name(const struct served *a, const struct served *b, char ret[128])
{
    const char *list = a->names;

    for (;;) {
        size_t n;

        list += strspn(list, ", ");
        n = strcspn(list, ", ");
        if (n == 0)
            return 0;
        (void)snprintf(ret, 128, "%.*s", (int)n, list);
        if (par_word_in(ret, b->names))
            return 1;
        list += n;
    }
}

static void
check_section(const struct served_list *l, size_t i, struct par_say *say)
{
    const struct served *s = &l->s[i];
    char name[128];

    if (s->label[0] == '\0' || strpbrk(s->label, ", \t|") != NULL)
        par_say_error(say, "[model %s]: a name has no blank, comma or |", s->label);
    if (s->socket[0] == '\0')
        par_say_error(say,
            "[model %s] names no socket; write socket = /run/fdd/fdd.sock, or the socket "
            "of that model's daemon",
            s->label);
    if (!is_format(s->parser))
        par_say_error(say,
            "[model %s]: parser = %s: no such format; fdchat(3) lists them, and none parses "
            "nothing",
            s->label, s->parser);
    for (size_t k = 0; k < i; k++)
        if (share_name(s, &l->s[k], name))
            par_say_error(say, "[model %s] and [model %s] both have the name %s",
                l->s[k].label, s->label, name);
}

void
par_check_named(const struct par_set *ps, struct par_say *say)
{
    const struct par *p = par_get(ps);
    struct served_list l;

    if (par_n_named(ps) == 0)
        return;
    if (srv_read(ps, &l) != 0) {
        par_say_error(say, "out of memory");
        return;
    }
    if (p->daemon_socket[0] != '\0' || p->model_name[0] != '\0')
        par_say_error(say,
            "%s cannot be used together with sections [model NAME]; fix: move it into one of "
            "them",
            p->daemon_socket[0] != '\0' ? "daemon.socket" : "model.name");
    if (l.n > SRV_MAX)
        par_say_error(say, "%zu sections [model NAME]; at most %d are served", l.n, SRV_MAX);
    for (size_t i = 0; i < l.n; i++)
        check_section(&l, i, say);
    srv_free(&l);
}
