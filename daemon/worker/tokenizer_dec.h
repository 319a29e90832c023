/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * How ids become text. The decoder's output for each token is computed at load; what
 * depends on the tokens around it is done in detok.c.
 */
#ifndef FDD_DAEMON_WORKER_TOKENIZER_DEC_H
#define FDD_DAEMON_WORKER_TOKENIZER_DEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOK_MAX_DECODERS 8u
#define TOK_CHAR_BYTES   4u

/* Position of a token in the text: a sum of these. */
#define TOK_AT_FIRST 1u /* the first of the text */
#define TOK_AT_LAST  2u
#define TOK_PLACES   4u

/* A character and its replacement. */
struct tok_swap {
    uint8_t from[TOK_CHAR_BYTES], to[TOK_CHAR_BYTES];
    uint8_t n_from, n_to;
};

struct tok_dec_text {
    uint32_t off, n; /* in tok_dec.bytes */
};

struct tok_dec {
    /* [n_ids] by position; equal arrays are shared. NULL: the vocabulary's bytes. */
    struct tok_dec_text *text[TOK_PLACES];
    uint8_t *bytes;
    bool by_first, by_last; /* text differs by position */
    bool lossy;             /* tokens are bytes: invalid UTF-8 is replaced */
    bool fallback;          /* "<0xXX>" is a byte, and a run of such bytes is decoded
                               together */
    struct tok_swap swap;   /* applied to the text of such a run; n_from 0: none */
    /* Character that is removed from both ends of the whole text, up to strip_start and
     * strip_stop times. */
    uint8_t strip[TOK_CHAR_BYTES], n_strip;
    uint32_t strip_start, strip_stop;
    size_t max_bytes; /* of the longest text of a token */
};

struct tok;

/* The text of an id at a position. *ret_byte: the byte that the id is, or -1. 0 or
 * -ENOENT. */
int tok_dec_text(const struct tok *tok, uint32_t id, unsigned place, const uint8_t **ret,
    size_t *ret_n, unsigned *ret_flags, int *ret_byte);

void tok_dec_fini(struct tok_dec *dec);

const struct tok_dec *tok_dec_of(const struct tok *tok);

#endif
