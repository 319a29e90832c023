/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What /v1/messages and /v1/responses share: an answer is a list of items
 * (reasoning, text, calls) in the order in which the model wrote them, and an item is told
 * of when it begins, as it grows, and when it has ended. And what both do to bodies.
 *
 * struct choice holds the items (gen.h). Text that has come is passed on when the stream is
 * flushed or the item ends, so that an item has one event in an iteration of the loop.
 */
#ifndef FDD_HTTP_ITEMS_H
#define FDD_HTTP_ITEMS_H

#include "http/gen.h"

/* What an API makes of them. Events go into ch->items.out, for a stream alone. */
struct item_ops {
    /* What a stream begins with. */
    void (*start)(struct gen *g, struct buf *b);
    void (*open)(struct gen *g, struct choice *ch);
    /* More of the open one: p[n], of a call its arguments. */
    void (*more)(struct gen *g, struct choice *ch, const char *p, size_t n);
    /* All that it says is in said. is_cut: a call that the answer's end cut off. */
    void (*close)(struct gen *g, struct choice *ch, int is_cut);
};

/* For struct face: what a stream has to send is its start, then what is fresh, then the last
 * item's end. */
void itm_piece(struct gen *g, struct choice *ch, const struct fdchat_piece *p);
void itm_event(struct gen *g, struct choice *ch, struct buf *b);
/* The answer has ended. */
void itm_end(struct gen *g, struct choice *ch);
int itm_has_news(const struct gen *g, const struct choice *ch);
int itm_failed(const struct items *it);
void itm_fini(struct items *it);

/* ---- bodies ---------------------------------------------------------------------- */

/* Messages of chat completions that are being written. */
struct itm_talk {
    const struct jr *j;
    struct buf *b;
    struct problem *bad;
    const char *sep; /* "" at first */
};
/* A message, with or without its last brace. */
void itm_message(struct itm_talk *t, const char *role, const struct buf *content);
void itm_begin_message(struct itm_talk *t, const char *role, const struct buf *content);

/* The value without blanks, but in strings, so that it is one line. */
void itm_raw(const struct jr *j, uint32_t i, struct buf *b);
/* ,"name":VALUE of the member as, if there is one that is not null. */
void
itm_copy(const struct jr *j, uint32_t i, const char *as, const char *name, struct buf *b);
/* Where a member is and not null; JR_NONE. */
uint32_t itm_member(const struct jr *j, uint32_t i, const char *name);
/* ,"name":TEXT */
void itm_text(struct buf *b, const char *name, const struct buf *text);
/* What an object calls its type, cut off. Returns ret. */
#define ITM_TYPE_BYTES 64
const char *itm_type(const struct jr *j, uint32_t i, char ret[ITM_TYPE_BYTES]);
/* A text: a string, or an array of objects with a text and a type among the n types;
 * others are refused for field. They are joined by a line feed. 0 or -1. */
int itm_parts(const struct jr *j, uint32_t i, const char *field, const char *const *types,
    size_t n, struct buf *ret, struct problem *bad);
/* ,"function":{"name":NAME of what has a name. */
void itm_function(const struct jr *j, uint32_t i, struct buf *b);
/* ,"tools":[...] of those of the body, which are of this type and have their schema, an
 * object, in the member as (must_have: each); others are refused. 0 or -1. */
int itm_tools(const struct jr *j, const char *type, const char *as, int must_have,
    struct buf *b, struct problem *bad);

/* Fields of a body, each once. */
enum item_field_kind {
    ITF_READ,     /* the API's own code reads it */
    ITF_PASSED,   /* to chat completions, as the field as */
    ITF_HARMLESS, /* without effect here */
    ITF_REFUSED   /* unless it says "do not", for the reason as */
};
struct item_field {
    const char *name, *as;
    enum item_field_kind kind;
};
/* The fields that are passed on, and the judgement of the others: those in the table, those
 * that every API here has, and those that are not known. 0 or -1. */
int itm_fields(const struct jr *j, const struct item_field *f, size_t n, struct buf *b,
    struct buf *ignored, struct problem *bad);
/* face->translate() of a body, into g->body, g->said and g->ignored. */
int itm_translate(struct gen *g, const char *body, size_t n, struct problem *bad);

#endif
