/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON of choices, as OpenAI's: objects text_completion, chat.completion and
 * chat.completion.chunk.
 *
 * A choice's logprobs are kept as JSON already: of chat the elements of content in lp; of
 * completions those of tokens in lp, and of token_logprobs, top_logprobs and
 * text_offset in the other three.
 */
#ifndef FDD_HTTP_SHAPE_H
#define FDD_HTTP_SHAPE_H

#include "http/gen.h"

/* A piece of text of a choice that does not come as content of a parser. */
void shp_piece(struct gen *g, struct choice *ch, const struct fdchat_piece *p);
/* TOKEN_TEXT: the texts of the tokens that ch->taken has. */
void shp_logprobs(struct gen *g, struct choice *ch, const struct fdc_event *ev);
/* The same of a prompt. */
void shp_prompt_logprobs(const struct gen *g, struct prompt *p, const struct fdc_event *ev);
/* PROMPT_IDS, IDS. */
void shp_prompt_ids(struct prompt *p, const struct fdc_event *ev);
void shp_ids(const struct gen *g, struct choice *ch, const struct fdc_event *ev);
/* The prompt, and its logprobs, before the text of all its choices, once. */
void shp_echo(struct gen *g, struct prompt *p);
/* Set g->prefix. */
void shp_begin(struct gen *g);
/* Is there something to send of the choice? */
int shp_has_news(const struct gen *g, const struct choice *ch);
/* Its event, and forget what it held. */
void shp_event(struct gen *g, struct choice *ch, struct buf *b);
/* The event of usage. */
void shp_usage_event(struct gen *g, struct buf *b);
/* The whole answer. */
void shp_whole(struct gen *g, struct buf *b);

#endif
