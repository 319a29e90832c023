/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Why a request is refused, or ended: what becomes an answer in OpenAI's form. */
#ifndef FDD_HTTP_PROBLEM_H
#define FDD_HTTP_PROBLEM_H

#include <stdint.h>

#include "http/buf.h"
#include "libclient/fdclient.h"

struct problem {
    int status;       /* of HTTP; 0: no problem */
    const char *type; /* NULL: by the status */
    const char *code; /* NULL: none */
    char param[64];   /* the field; "": none */
    char text[700];
    uint32_t n_prompt, n_asked, limit; /* tokens, which do not fit together; 0: not this */
    uint32_t retry_ms;                 /* 0: none is said */
};

/* 400 that names a field. Returns -1. */
__attribute__((format(printf, 3, 4))) int
prb_field(struct problem *p, const char *field, const char *fmt, ...);
__attribute__((format(printf, 4, 5))) int
prb_set(struct problem *p, int status, const char *code, const char *fmt, ...);
/* What an error of fdd means here. */
void prb_from_error(struct problem *p, const struct fdc_error *e);
void prb_from_status(struct problem *p, int status);
/* Call fields by other names: each was and is, NULL behind the last; or NULL. */
void prb_rename(struct problem *p, const char *const (*names)[2]);
/* {"error":{...}} */
void prb_json(const struct problem *p, struct buf *b);
/* {"type":"error","error":{...}}, as Anthropic's API has it */
void prb_json_messages(const struct problem *p, struct buf *b);

#endif
