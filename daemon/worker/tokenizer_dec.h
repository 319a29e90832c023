/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * How ids become text. What a decoder makes of one token is worked out while
 * loading; what needs the tokens around it is left to detok.c.
 */
#ifndef FDD_DAEMON_WORKER_TOKENIZER_DEC_H
#define FDD_DAEMON_WORKER_TOKENIZER_DEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOK_MAX_DECODERS 8u
#define TOK_CHAR_BYTES   4u

/* Places of a token: a sum of these. */
#define TOK_AT_FIRST 1u /* the first of the text */
#define TOK_AT_LAST  2u
#define TOK_PLACES   4u

/* A character, and what stands for it. */
struct tok_swap {
    uint8_t from[TOK_CHAR_BYTES], to[TOK_CHAR_BYTES];
    uint8_t n_from, n_to;
};

struct tok_dec_text {
    uint32_t off, n; /* in tok_dec.bytes */
};

struct tok_dec {
    /* [n_ids] by place; those that are the same share an array. NULL: the
     * vocabulary's bytes. */
    struct tok_dec_text *text[TOK_PLACES];
    uint8_t *bytes;
    bool by_first, by_last; /* text differs by place */
    bool lossy;             /* tokens are bytes: what is no UTF-8 is replaced */
    bool fallback;          /* "<0xXX>" is a byte, and a run of these a text */
    struct tok_swap swap;   /* in such a run; n_from 0: none */
    /* Of the whole text: this character goes, so often at most. */
    uint8_t strip[TOK_CHAR_BYTES], n_strip;
    uint32_t strip_start, strip_stop;
    size_t max_bytes; /* of a token's text */
};

struct tok;

/* The text of an id at a place; -ENOENT. *ret_byte: its byte, or -1. */
int tok_dec_text(const struct tok *tok, uint32_t id, unsigned place, const uint8_t **ret,
    size_t *ret_n, unsigned *ret_flags, int *ret_byte);

void tok_dec_fini(struct tok_dec *dec);

const struct tok_dec *tok_dec_of(const struct tok *tok);

#endif
