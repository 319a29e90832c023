/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Between start.c, which makes a struct gen, and gen.c, which runs it. */
#ifndef FDD_HTTP_GEN_PRIV_H
#define FDD_HTTP_GEN_PRIV_H

#include "http/gen.h"

/* Shorten the prompts as truncate_prompt_tokens says, then submit them. */
void gen_truncate(struct gen *g);
/* It ends with this error: what runs of it is cancelled. */
void gen_fail(struct gen *g, const struct problem *bad);
/* Submit what has not been: what the session has no room for waits in g->waiting. */
void gen_submit(struct gen *g);
/* Of struct conn: the client has left; put what is pending into out; time passes. */
void gen_drop(struct conn *c);
void gen_flush(struct conn *c);
void gen_tick(struct conn *c);
/* Ends requests that run. */
void gen_free(struct gen *g);

#endif
