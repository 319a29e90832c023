/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON to values and back. Reading keeps the order of keys (a key that comes again
 * replaces the value and keeps its place) and the digits of numbers beyond 64 bits;
 * text is strict JSON in valid UTF-8, nested 64 deep at most. Writing is Python's
 * json.dumps().
 */
#ifndef FDD_CHAT_JSON_H
#define FDD_CHAT_JSON_H

#include "chat/value.h"

#define JSN_MAX_DEPTH 64

/* Strings of it are marked as said. Fails with the byte at which it goes wrong. */
struct val jsn_read(struct val_ctx *c, const char *p, size_t n, int marked);

struct jsn_form {
    int ascii;              /* escape what is not ASCII */
    int sort;               /* keys in their order */
    const char *indent;     /* of a level, NULL: all in one line */
    const char *item, *key; /* separators */
};
extern const struct jsn_form jsn_plain; /* ", " and ": " */
void
jsn_write(struct val_ctx *c, struct val_buf *b, struct val v, const struct jsn_form *f);

#endif
