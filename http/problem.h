/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The error with which a request is refused or ends; it becomes an answer in OpenAI's
 * form. */
#ifndef FDD_HTTP_PROBLEM_H
#define FDD_HTTP_PROBLEM_H

#include <stdint.h>

#include "http/buf.h"
#include "libclient/fdclient.h"

struct problem {
    int status;       /* HTTP status; 0: no problem */
    const char *type; /* NULL: derived from the status */
    const char *code; /* NULL: none */
    char param[64];   /* the field; "": none */
    char text[700];
    uint32_t n_prompt, n_asked,
        limit;         /* tokens: n_prompt + n_asked > limit; 0: other error */
    uint32_t retry_ms; /* when to retry; 0: not told */
};

/* Set status 400 for a field. Returns -1. */
__attribute__((format(printf, 3, 4))) int
prb_field(struct problem *p, const char *field, const char *fmt, ...);
__attribute__((format(printf, 4, 5))) int
prb_set(struct problem *p, int status, const char *code, const char *fmt, ...);
/* Translate an error of fdd. */
void prb_from_error(struct problem *p, const struct fdc_error *e);
void prb_from_status(struct problem *p, int status);
/* Rename fields in param and text: names[i] is old and new name, NULL after the last;
 * names may be NULL. */
void prb_rename(struct problem *p, const char *const (*names)[2]);
/* Write {"error":{...}} */
void prb_json(const struct problem *p, struct buf *b);
/* Write {"type":"error","error":{...}}, the form of Anthropic's API */
void prb_json_messages(const struct problem *p, struct buf *b);

#endif
