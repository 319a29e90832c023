/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The pre-tokenizer at work: from a piece of normalized text to pretokens. */
#ifndef FDD_DAEMON_WORKER_TOKENIZER_PRE_H
#define FDD_DAEMON_WORKER_TOKENIZER_PRE_H

#include "daemon/worker/tokenizer_priv.h"

/* A piece between two matches, or a match. */
struct tok_pre_elem {
    size_t a, b;
    bool match;
};

/* One stage at work on one piece. */
struct tok_pre_iter {
    const uint8_t *s;
    size_t n;
    bool busy;                 /* there is a piece */
    size_t first;              /* bytes of it that the text's first character is */
    bool ascii;                /* all of it */
    bool end, held, have_last; /* no match is left; a look ahead; last is set */
    size_t at, prev, last;     /* next search; end of what is out; last match's end */
    bool pend;
    size_t pend_a, pend_b; /* a match behind the element just given */
    struct tok_pre_elem ahead;
};

/* Zeroed, then tok and rx set. */
struct tok_pre {
    const struct tok *tok;
    struct tok_rx_run *rx;
    struct tok_pre_iter it[TOK_MAX_STAGES];
    struct tok_buf buf[TOK_MAX_STAGES]; /* pieces that a stage has rewritten */
};

/* Forgets the piece and gives back buffers of more than `keep` bytes. */
void tok_pre_reset(struct tok_pre *pre, size_t keep);

/* Starts on s[0 .. n), whose first bytes come from the text's first character, if
 * first is not 0. -ENOMEM. */
int tok_pre_begin(struct tok_pre *pre, const uint8_t *s, size_t n, size_t first);

/* The next pretoken: 1 and *ret_s, *ret_n, 0 at the end of the piece, -errno. */
int tok_pre_next(struct tok_pre *pre, const uint8_t **ret_s, size_t *ret_n);

#endif
