/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A model as fdd-http uses it: its names, the chat template with the variables from the
 * tokenizer's configuration, and the format of its answers. It does not change once
 * others than its creator have a reference, so that any thread may render with it.
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
    char label[64];             /* NAME of its section; "" if there are no sections */
    char names[PAR_STR_BYTES];  /* names from the configuration; "": only `name` */
    char name[256];             /* the name that is shown; "" until it is known */
    struct fdc_model_info info; /* vocab 0: fdd has not reported it yet */
    fdchat_template_t *chat;    /* NULL: no chat */
    char *variables;            /* JSON object: bos_token, eos_token */
    const char *format;         /* of answers; NULL: the whole answer is content */
    uint32_t *special;          /* ids of special tokens, ascending; NULL: not known */
    uint32_t n_special;
    char why_no_chat[256]; /* for the error, while chat is NULL */
    int64_t created_s;
};

/* A new model, of which only the configuration is known, with one reference; NULL: no
 * memory. */
struct model *model_new(const struct served *conf);
struct model *model_ref(struct model *m);
void model_unref(struct model *m); /* NULL is fine */
/* Take over the results of a LOOK job, once. -EINVAL: its template cannot be read, which
 * is logged; chat is refused then. */
int model_set(struct model *m, const struct served *conf, struct link_job *found);
/* Is it one of the model's names? */
int model_has_name(const struct model *m, const char *name, size_t n);

int model_is_special(const struct model *m, uint32_t id);

/* Render the prompt of a chat request: its messages and tools in the model's template.
 * root: the node of the request in j. */
int model_render(const struct model *m, const struct jr *j, uint32_t root,
    struct fdchat_prompt *ret, struct problem *bad);

/* For echo: the text of the last message, if the answer continues it or has its role. */
void model_echo(const struct jr *j, uint32_t root, struct buf *ret);

#endif
