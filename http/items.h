/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Code shared by /v1/messages and /v1/responses. Their answers are lists of items
 * (reasoning, text, calls) in the order in which the model wrote them, with events when
 * an item begins, grows and ends. Both translate their bodies into those of chat
 * completions.
 *
 * struct choice holds the items (gen.h). New text is passed on when the stream is flushed
 * or the item ends, so that an item has one event with text per loop iteration.
 */
#ifndef FDD_HTTP_ITEMS_H
#define FDD_HTTP_ITEMS_H

#include "http/gen.h"

/* How an API writes items. Events go into ch->items.out, only for a stream. */
struct item_ops {
    /* Write the first events of a stream. */
    void (*start)(struct gen *g, struct buf *b);
    void (*open)(struct gen *g, struct choice *ch);
    /* The open item grew by p[n]: text, or arguments of a call. */
    void (*more)(struct gen *g, struct choice *ch, const char *p, size_t n);
    /* The open item ends; `said` has all of its text. is_cut: the answer ends within a
     * call. */
    void (*close)(struct gen *g, struct choice *ch, int is_cut);
};

/* For struct face: a stream sends its start, then fresh text, then the end of the last
 * item. */
void itm_piece(struct gen *g, struct choice *ch, const struct fdchat_piece *p);
void itm_event(struct gen *g, struct choice *ch, struct buf *b);
/* The answer has ended. */
void itm_end(struct gen *g, struct choice *ch);
int itm_has_news(const struct gen *g, const struct choice *ch);
int itm_failed(const struct items *it);
void itm_fini(struct items *it);

/* ---- bodies ---------------------------------------------------------------------- */

/* The messages of chat completions while they are written. */
struct itm_talk {
    const struct jr *j;
    struct buf *b;
    struct problem *bad;
    const char *sep; /* "" at first */
};
/* Write a message, with or without its closing brace. */
void itm_message(struct itm_talk *t, const char *role, const struct buf *content);
void itm_begin_message(struct itm_talk *t, const char *role, const struct buf *content);

/* Write the value on one line, without blanks outside of strings. */
void itm_raw(const struct jr *j, uint32_t i, struct buf *b);
/* Write ,"name":VALUE of the member `as`, if it exists and is not null. */
void
itm_copy(const struct jr *j, uint32_t i, const char *as, const char *name, struct buf *b);
/* The value of a member; JR_NONE: it is missing or null. */
uint32_t itm_member(const struct jr *j, uint32_t i, const char *name);
/* Write ,"name":TEXT */
void itm_text(struct buf *b, const char *name, const struct buf *text);
/* The text of an object's member type, cut to fit ret. Returns ret. */
#define ITM_TYPE_BYTES 64
const char *itm_type(const struct jr *j, uint32_t i, char ret[ITM_TYPE_BYTES]);
/* Add a content's text: a string, or an array of objects with a text and one of n types.
 * Texts are joined by line feeds; other contents are refused with an error that names
 * field. Returns 0 or -1. */
int itm_parts(const struct jr *j, uint32_t i, const char *field, const char *const *types,
    size_t n, struct buf *ret, struct problem *bad);
/* Write ,"function":{"name":NAME of an object with a name. */
void itm_function(const struct jr *j, uint32_t i, struct buf *b);
/* Write ,"tools":[...] of the body's tools. Each must be of this type and have its
 * schema, an object, in the member `as` (which may be missing unless must_have). 0
 * or -1. */
int itm_tools(const struct jr *j, const char *type, const char *as, int must_have,
    struct buf *b, struct problem *bad);

/* A table of the fields of a body. */
enum item_field_kind {
    ITF_READ,     /* the API's own code reads it */
    ITF_PASSED,   /* copied to the field `as` of chat completions */
    ITF_HARMLESS, /* without effect here */
    ITF_REFUSED   /* refused unless ask_is_off(); `as` is the reason */
};
struct item_field {
    const char *name, *as;
    enum item_field_kind kind;
};
/* Copy or refuse the fields of a body as f[n] and the table of the fields that all APIs
 * share say. The names of unknown fields are added to ignored. Returns 0 or -1. */
int itm_fields(const struct jr *j, const struct item_field *f, size_t n, struct buf *b,
    struct buf *ignored, struct problem *bad);
/* Translate a body by face->translate() into g->body, g->said and g->ignored. */
int itm_translate(struct gen *g, const char *body, size_t n, struct problem *bad);

#endif
