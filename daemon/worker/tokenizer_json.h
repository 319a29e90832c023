/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A JSON reader that builds no values, for the large members of a tokenizer.json. The
 * text must be valid UTF-8.
 */
#ifndef FDD_DAEMON_WORKER_TOKENIZER_JSON_H
#define FDD_DAEMON_WORKER_TOKENIZER_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tok_js {
    const char *s;
    size_t n, at;
    const char *why; /* the error at `at`; NULL: none */
    size_t n_items;  /* elements of the array or object that tok_js_skip() has read */
};

/* A string as written in the text, without its quotes. */
struct tok_js_text {
    const char *s;
    size_t n;
    bool escaped; /* it contains escapes */
};

/* Skips white space. */
void tok_js_space(struct tok_js *js);

/* The next byte that is not white space, without taking it; 0 at the end. */
static inline char
tok_js_peek(struct tok_js *js)
{
    if (js->at < js->n && (unsigned char)js->s[js->at] <= ' ')
        tok_js_space(js);
    return js->at < js->n ? js->s[js->at] : 0;
}

/* Takes c if it is the next byte. */
static inline bool
tok_js_maybe(struct tok_js *js, char c)
{
    if (tok_js_peek(js) != c)
        return false;
    js->at++;
    return true;
}

/* Takes c; returns false and sets why if another byte is next. */
bool tok_js_take(struct tok_js *js, char c);

bool tok_js_string(struct tok_js *js, struct tok_js_text *ret);

/* Writes the string with escapes decoded to out, which has room for n bytes; returns
 * its length. */
size_t tok_js_plain(const struct tok_js_text *t, uint8_t *out);

bool tok_js_number(struct tok_js *js, double *ret);

/* An integer in 0 .. 2^53; otherwise false, with `why` set. */
bool tok_js_integer(struct tok_js *js, int64_t *ret);

/* Skips any value, nested no deeper than 1024. */
bool tok_js_skip(struct tok_js *js);

/* Whether the string equals literal. */
bool tok_js_is(const struct tok_js_text *t, const char *literal);

/* Line and column of the position `at`, both from 1. */
void tok_js_place(const struct tok_js *js, size_t *ret_line, size_t *ret_column);

#endif
