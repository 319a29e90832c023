/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What fdd-http knows of a model: its names, the chat template with the variables that the
 * tokenizer's configuration gives it, and the format of its answers. It is not changed once
 * others than its maker hold it, so that any thread may render with it.
 */
#ifndef FDD_HTTP_MODEL_H
#define FDD_HTTP_MODEL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "chat/fdchat.h"
#include "http/json.h"
#include "http/problem.h"
#include "http/served.h"

struct link_job;

struct model {
    atomic_uint refs;
    char label[64];             /* of its section; "" */
    char names[PAR_STR_BYTES];  /* that the configuration gives it; "": name alone */
    char name[256];             /* what is shown; "" until it is known */
    struct fdc_model_info info; /* vocab 0: fdd has not said */
    fdchat_template_t *chat;    /* NULL: no chat */
    char *variables;            /* JSON object: bos_token, eos_token */
    const char *format;         /* of answers; NULL: all is content */
    char why_no_chat[256];      /* for the error, while chat is NULL */
    int64_t created_s;
};

/* One reference, of a model of which nothing is known but its configuration; NULL: no
 * memory. */
struct model *model_new(const struct served *conf);
struct model *model_ref(struct model *m);
void model_unref(struct model *m); /* NULL is fine */
/* Take over what a look at the daemon found, once. -EINVAL: a template that cannot be read,
 * which the log says; chat is refused then. */
int model_set(struct model *m, const struct served *conf, const struct link_job *found);
/* Is it one of the model's names? */
int model_has_name(const struct model *m, const char *name, size_t n);

/* The prompt of a chat request: its messages and tools in the model's template.
 * j's node root is the request. */
int model_render(const struct model *m, const struct jr *j, uint32_t root,
    struct fdchat_prompt *ret, struct problem *bad);

/* For echo: the text of the last message, if the answer is one of the same role. */
void model_echo(const struct jr *j, uint32_t root, struct buf *ret);

#endif
