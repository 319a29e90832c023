/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON to values and back. Reading keeps the order of keys (a repeated key replaces the
 * value and keeps its place) and the digits of integers beyond 64 bits; the text must be
 * strict JSON in valid UTF-8, nested at most 64 deep. Writing gives what Python's
 * json.dumps() gives.
 */
#ifndef FDD_CHAT_JSON_H
#define FDD_CHAT_JSON_H

#include "chat/value.h"

#define JSN_MAX_DEPTH 64

/* Read n bytes at p. marked: the mark of the strings (value.h). Errors name the byte. */
struct val jsn_read(struct val_ctx *c, const char *p, size_t n, int marked);

struct jsn_form {
    int ascii;              /* 1: escape non-ASCII characters */
    int sort;               /* sort the keys */
    const char *indent;     /* for each level; NULL: all in one line */
    const char *item, *key; /* separators after an item and after a key */
};
extern const struct jsn_form jsn_plain; /* one line, separators as json.dumps() */
void
jsn_write(struct val_ctx *c, struct val_buf *b, struct val v, const struct jsn_form *f);

#endif
