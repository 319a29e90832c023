/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A conversation with the model: its messages, the template that makes them a prompt, and
 * one turn of it. What a person says is content: names of special tokens in it are text.
 */
#ifndef FDD_TOOLS_FDCTL_CHAT_TALK_H
#define FDD_TOOLS_FDCTL_CHAT_TALK_H

#include <jansson.h>

#include "chat/fdchat.h"
#include "tools/fdctl/lib/fct.h"

struct talk {
    fdc_t *s;
    struct fct_req *req; /* parameters of every turn */
    fdchat_template_t *template;
    const char *format; /* of answers; NULL: all is content */
    char *variables;    /* JSON object for the template */
    json_t *messages;   /* array */
    int is_terminal;    /* colours, and no controls from the model */
    int quiet;          /* print nothing of the answer */
};

/* path: a file with the template; NULL: the model's own. 0 or an exit code, with the
 * message printed. */
int tlk_open(struct talk *t, const char *path);
void tlk_close(struct talk *t);

/* Add a message. 0 or an exit code. */
int tlk_say(struct talk *t, const char *role, const char *text);
/* Replace the system message, or add one in front. */
int tlk_system(struct talk *t, const char *text);
/* Let the model answer what has been said: its text is printed as it comes, and the
 * message added. *ret (may be NULL) gets it with finish_reason and counts, a new
 * reference. 0; an exit code with the message printed and nothing added;
 * FCT_EX_INT: interrupted, what came until then is added. */
int tlk_answer(struct talk *t, json_t **ret);

#endif
