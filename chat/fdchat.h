/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * libfdchat: chat templates for programs that speak with a model. Rendering takes
 * the messages of a request and the template that a model ships, and gives the text
 * of the prompt, to the byte what transformers' apply_chat_template() gives.
 *
 * A string of the request never becomes markup: the result says which ranges came out
 * of the request, whatever the template did with them, so that names of special
 * tokens in them stay text.
 *
 * Functions return 0 or -errno and one line in err. A template may be used by any
 * number of threads at once.
 */
#ifndef FDCHAT_H
#define FDCHAT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FDCHAT_ERR_BYTES 512

typedef struct fdchat_template fdchat_template_t;

/* text: a Jinja template of at most 1 MiB. -EINVAL: err names line and cause;
 * -E2BIG; -ENOMEM. */
int fdchat_template_new(const char *text, size_t bytes, fdchat_template_t **ret,
    char err[FDCHAT_ERR_BYTES]);
void fdchat_template_free(fdchat_template_t *t);

struct fdchat_span { size_t at, bytes; };

struct fdchat_prompt {
    char *text;              /* [bytes], and a zero behind it */
    size_t bytes;
    struct fdchat_span *spans; /* what came out of the request, in order */
    size_t n_span;
};

struct fdchat_args {
    size_t size;             /* sizeof(struct fdchat_args) */
    /* Variables of the model: a JSON object (bos_token, eos_token, ...), or NULL. */
    const char *model;
    size_t model_bytes;
    /* Variables of the request: a JSON object (messages, tools, documents,
     * add_generation_prompt, ...). They win over those of the model. */
    const char *request;
    size_t request_bytes;
    int64_t now_s;           /* for strftime_now(); 0: now */
};

/* -EINVAL: the template refuses (raise_exception), does what Python refuses, takes too
 * many steps (2 million) or too much memory, or renders more than 16 MiB; -ENOMEM. */
int fdchat_render(const fdchat_template_t *t, const struct fdchat_args *a,
    struct fdchat_prompt *ret, char err[FDCHAT_ERR_BYTES]);
/* Frees what it holds. */
void fdchat_prompt_free(struct fdchat_prompt *p);

#ifdef __cplusplus
}
#endif
#endif
