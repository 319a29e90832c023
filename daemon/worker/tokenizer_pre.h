/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Running the pre-tokenizer: from a piece of normalized text to pretokens. */
#ifndef FDD_DAEMON_WORKER_TOKENIZER_PRE_H
#define FDD_DAEMON_WORKER_TOKENIZER_PRE_H

#include "daemon/worker/tokenizer_priv.h"

/* A match, or the text between two matches. */
struct tok_pre_elem {
    size_t a, b;
    bool match;
};

/* A stage's progress in its piece. */
struct tok_pre_iter {
    const uint8_t *s;
    size_t n;
    bool busy;                 /* there is a piece */
    size_t first;              /* bytes of the piece that come from the text's first
                                  character */
    bool ascii;                /* the whole piece is ASCII */
    bool end, held, have_last; /* no match is left; `ahead` is valid; `last` is valid */
    size_t at, prev, last;     /* where the next search starts; end of the output so
                                  far; end of the last match */
    bool pend;
    size_t pend_a, pend_b; /* a match that follows the element returned last */
    struct tok_pre_elem ahead;
};

/* Zero it, then set tok and rx. */
struct tok_pre {
    const struct tok *tok;
    struct tok_rx_run *rx;
    struct tok_pre_iter it[TOK_MAX_STAGES];
    struct tok_buf buf[TOK_MAX_STAGES]; /* pieces rewritten by a stage */
};

/* Discards the piece and frees buffers of more than `keep` bytes. */
void tok_pre_reset(struct tok_pre *pre, size_t keep);

/* Starts on s[0 .. n). first: how many bytes at its beginning come from the text's
 * first character, or 0. 0 or -ENOMEM. */
int tok_pre_begin(struct tok_pre *pre, const uint8_t *s, size_t n, size_t first);

/* The next pretoken. 1: in *ret_s and *ret_n; 0: end of the piece; or -errno. */
int tok_pre_next(struct tok_pre *pre, const uint8_t **ret_s, size_t *ret_n);

#endif
