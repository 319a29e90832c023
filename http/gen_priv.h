/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Interface between start.c, which makes a struct gen, and gen.c, which runs it. */
#ifndef FDD_HTTP_GEN_PRIV_H
#define FDD_HTTP_GEN_PRIV_H

#include "http/gen.h"

/* Shorten the prompts as truncate_prompt_tokens says, then submit them. */
void gen_truncate(struct gen *g);
/* End the request with this error and cancel its running prompts. */
void gen_fail(struct gen *g, const struct problem *bad);
/* Submit the prompts not yet submitted. While the session has no room for them, the
 * request waits in link->waiting. */
void gen_submit(struct gen *g);
/* The functions drop, flush and tick of struct conn. */
void gen_drop(struct conn *c);
void gen_flush(struct conn *c);
void gen_tick(struct conn *c);
/* Free it; its running requests are cancelled. */
void gen_free(struct gen *g);

#endif
