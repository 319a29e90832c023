/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON of choices in OpenAI's form: objects text_completion, chat.completion and
 * chat.completion.chunk.
 *
 * A choice's logprobs are kept as JSON. Chat: lp has the elements of content.
 * Completions: lp has those of tokens, lp_values of token_logprobs, lp_top of
 * top_logprobs and lp_offset of text_offset.
 */
#ifndef FDD_HTTP_SHAPE_H
#define FDD_HTTP_SHAPE_H

#include "http/gen.h"

/* Add a piece of an answer to a choice: content, reasoning or a call. */
void shp_piece(struct gen *g, struct choice *ch, const struct fdchat_piece *p);
/* Handle TOKEN_TEXT: the texts of the tokens in ch->taken. */
void shp_logprobs(struct gen *g, struct choice *ch, const struct fdc_event *ev);
/* The same for the tokens of a prompt. */
void shp_prompt_logprobs(const struct gen *g, struct prompt *p, const struct fdc_event *ev);
/* Handle PROMPT_IDS and IDS. */
void shp_prompt_ids(struct prompt *p, const struct fdc_event *ev);
void shp_ids(const struct gen *g, struct choice *ch, const struct fdc_event *ev);
void shp_id(const struct gen *g, struct choice *ch, uint32_t id);
/* Put the prompt and its logprobs before the text of all its choices, once. */
void shp_echo(struct gen *g, struct prompt *p);
/* Set g->prefix. */
void shp_begin(struct gen *g);
/* Has the choice output to send? */
int shp_has_news(const struct gen *g, const struct choice *ch);
/* Write its event and empty its buffers. */
void shp_event(struct gen *g, struct choice *ch, struct buf *b);
/* Write the event with the usage. */
void shp_usage_event(struct gen *g, struct buf *b);
/* Write the whole answer. */
void shp_whole(struct gen *g, struct buf *b);

#endif
