/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON of a request: one pass, no recursion, and bounded memory: a node of 16 bytes for
 * each value, at most as many as the caller allows.
 * Strict (RFC 8259): valid UTF-8 throughout, no comments, no trailing commas, no control
 * characters or half surrogates in strings, 64 deep at most.
 *
 * Nodes lie in the order of the text. A container's children begin with the node after it
 * and end before its next; those of an object are key, value, key, value. Strings and
 * numbers stay in the text and are decoded when they are read; the text must outlive the
 * nodes.
 */
#ifndef FDD_HTTP_JSON_H
#define FDD_HTTP_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "http/buf.h"

#define JR_MAX_DEPTH 64
#define JR_NONE      UINT32_MAX /* no node */

enum jr_type { JR_NULL, JR_FALSE, JR_TRUE, JR_NUMBER, JR_STRING, JR_ARRAY, JR_OBJECT };

struct jr_node {
    uint32_t at, bytes; /* in the text, quotes and brackets included */
    uint32_t next;      /* the node after this value and its children */
    uint8_t type;       /* enum jr_type */
    uint8_t escaped;    /* a string with a backslash */
    uint16_t rsv;
};

struct jr {
    const char *text;
    struct jr_node *node; /* node[0] is the whole document */
    uint32_t n, room, most;
    size_t err_at;   /* offset at which the text was refused, */
    const char *err; /* and the reason */
};

/* Returns 0; -EINVAL: err and err_at say why; -E2BIG: more values than most; -ENOMEM. */
int jr_read(struct jr *j, const char *text, size_t n, uint32_t most);
void jr_fini(struct jr *j);

enum jr_type jr_type(const struct jr *j, uint32_t i);
const char *jr_type_name(enum jr_type t); /* "a string" */
/* The value of a member, the last if it is repeated; JR_NONE: none, or i is no object. */
uint32_t jr_member(const struct jr *j, uint32_t i, const char *key);
/* Number of children of an array; of an object: keys and values. */
uint32_t jr_count(const struct jr *j, uint32_t i);
/* Is it the string s? */
int jr_is(const struct jr *j, uint32_t i, const char *s);
/* An integer of 64 bits, which may be written like 4.0. Returns 0 or -ERANGE. */
int jr_int(const struct jr *j, uint32_t i, int64_t *ret);
double jr_real(const struct jr *j, uint32_t i);
/* Add a string's text to b; nothing for other values and JR_NONE. */
void jr_text(const struct jr *j, uint32_t i, struct buf *b);

#endif
