/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON of a request: one pass, no recursion, and memory in proportion to a bound that is
 * known before: a node of 16 bytes for each value, at most as many as the caller allows.
 * Strict (RFC 8259): valid UTF-8 throughout, no comments, no trailing commas, no control
 * characters or half surrogates in strings, 64 deep at most.
 *
 * Nodes lie in the order of the text. A container's children begin behind it and end at
 * its next; those of an object are key, value, key, value. Strings and numbers stay in
 * the text and are decoded when asked for; the text must outlive the nodes.
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
    uint32_t next;      /* the node behind this value and all in it */
    uint8_t type;       /* enum jr_type */
    uint8_t escaped;    /* a string with a backslash */
    uint16_t rsv;
};

struct jr {
    const char *text;
    struct jr_node *node; /* node[0] is the whole */
    uint32_t n, room, most;
    size_t err_at;   /* of a text that was refused: the byte, */
    const char *err; /* and why */
};

/* 0; -EINVAL: err and err_at say why; -E2BIG: more values than most; -ENOMEM. */
int jr_read(struct jr *j, const char *text, size_t n, uint32_t most);
void jr_fini(struct jr *j);

enum jr_type jr_type(const struct jr *j, uint32_t i);
const char *jr_type_name(enum jr_type t); /* "a string" */
/* The value of a member; JR_NONE: none, or i is no object. The last of several. */
uint32_t jr_member(const struct jr *j, uint32_t i, const char *key);
/* Children of an array (of an object keys and values). */
uint32_t jr_count(const struct jr *j, uint32_t i);
/* Is it the string s? */
int jr_is(const struct jr *j, uint32_t i, const char *s);
/* A number without fraction and exponent in 64 bits, or one like 4.0. 0 or -ERANGE. */
int jr_int(const struct jr *j, uint32_t i, int64_t *ret);
double jr_real(const struct jr *j, uint32_t i);
/* A string's text, added to b; of other values, and JR_NONE, nothing. */
void jr_text(const struct jr *j, uint32_t i, struct buf *b);

#endif
