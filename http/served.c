/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/served.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct served *
section(struct served_list *l, const struct par *p, const char *label)
{
    struct served *s;

    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->s[i].label, label) == 0)
            return &l->s[i];
    s = realloc(l->s, (l->n + 1) * sizeof(*s));
    if (s == NULL)
        return NULL;
    l->s = s;
    s += l->n++;
    memset(s, 0, sizeof(*s));
    (void)snprintf(s->label, sizeof(s->label), "%s", label);
    (void)snprintf(s->names, sizeof(s->names), "%s", label);
    (void)snprintf(s->template, sizeof(s->template), "%s", p->chat_template);
    (void)snprintf(s->parser, sizeof(s->parser), "%s", p->chat_parser);
    return s;
}

static void
set_key(struct served *s, const struct par_named *row)
{
    char *to = strcmp(row->key, "socket") == 0 ? s->socket
        : strcmp(row->key, "name") == 0        ? s->names
        : strcmp(row->key, "template") == 0
        ? s->template
        : s->parser;

    if (to == s->names && row->value[0] == '\0')
        return;
    memcpy(to, row->value, PAR_STR_BYTES);
}

int
srv_read(const struct par_set *ps, struct served_list *ret)
{
    const struct par *p = par_get(ps);
    struct served_list l = { NULL, 0 };
    const struct par_named *row;
    struct served *s;

    for (size_t i = 0; (row = par_named(ps, i)) != NULL; i++) {
        s = section(&l, p, row->name);
        if (s == NULL)
            goto no_memory;
        set_key(s, row);
    }
    if (l.n == 0) {
        s = section(&l, p, "");
        if (s == NULL)
            goto no_memory;
        memcpy(s->socket, p->daemon_socket, sizeof(s->socket));
        memcpy(s->names, p->model_name, sizeof(s->names));
    }
    *ret = l;
    return 0;
no_memory:
    srv_free(&l);
    return -ENOMEM;
}

void
srv_free(struct served_list *l)
{
    free(l->s);
    memset(l, 0, sizeof(*l));
}

int
srv_same(const struct served *a, const struct served *b)
{
    return strcmp(a->label, b->label) == 0 && strcmp(a->socket, b->socket) == 0 &&
        strcmp(a->names, b->names) == 0 && strcmp(a->template, b->template) == 0 &&
        strcmp(a->parser, b->parser) == 0;
}
