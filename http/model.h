/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What fdd-http knows of the model: its names, the chat template with the variables
 * that the tokenizer's configuration gives it, and the format of its answers.
 */
#ifndef FDD_HTTP_MODEL_H
#define FDD_HTTP_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "chat/fdchat.h"
#include "daemon/common/param.h"
#include "http/json.h"
#include "http/problem.h"

struct link_job;

struct model {
    char name[256];          /* what is shown; "" until it is known */
    fdchat_template_t *chat; /* NULL: no chat */
    char *variables;         /* JSON object: bos_token, eos_token */
    const char *format;      /* of answers; NULL: all is content */
    char why_no_chat[256];   /* for the error, while chat is NULL */
    int64_t created_s;
};

/* Take over what a look at the daemon found. -EINVAL: a template that cannot be read,
 * which the log says; chat is refused then. */
int model_set(struct model *m, const struct par *p, const struct link_job *found);
void model_fini(struct model *m);
/* Is it one of the model's names? */
int model_has_name(const struct model *m, const struct par *p, const char *name, size_t n);

/* The prompt of a chat request: its messages and tools in the model's template.
 * j's node root is the request. */
int model_render(const struct model *m, const struct jr *j, uint32_t root,
    struct fdchat_prompt *ret, struct problem *bad);

/* For echo: the text of the last message, if the answer is one of the same role. */
void model_echo(const struct jr *j, uint32_t root, struct buf *ret);

#endif
