/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Token ids to text, one id at a time. A `struct dtk` is embedded in its
 * sequence and owned by the thread that serves it; it allocates nothing.
 *
 * The output of all pushes and the finish, joined, is what decoding all ids
 * at once gives: the tokens' bytes joined, each maximal part of an invalid
 * sequence replaced by U+FFFD (EF BF BD). It is valid UTF-8, cut between
 * characters; the first bytes of an unfinished character are kept back.
 */
#ifndef FDD_DAEMON_WORKER_DETOK_H
#define FDD_DAEMON_WORKER_DETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tok;

/* cap was too small: nothing has happened. */
#define DTK_NO_SPACE SIZE_MAX

struct dtk {
    const struct tok *tok;
    bool skip_special; /* special tokens yield nothing */
    uint8_t n_pend;
    uint8_t pend[4]; /* the beginning of a character */
};

/* tok must stay until the last call with d. */
void dtk_init(struct dtk *d, const struct tok *tok, bool skip_special);

/*
 * Writes at out the characters that id completes and returns their bytes. An
 * id that no token has yields nothing. cap of dtk_max_bytes() always
 * suffices; DTK_NO_SPACE if it is less and could be too small for this id.
 * With out NULL the text is dropped and 0 returned: to go over ids whose text
 * was delivered before.
 */
size_t dtk_push(struct dtk *d, uint32_t id, uint8_t *out, size_t cap);

/*
 * Ends the text: an unfinished character becomes U+FFFD. Writes 0 or 3
 * bytes; DTK_NO_SPACE as above. A push after it begins a new text.
 */
size_t dtk_finish(struct dtk *d, uint8_t *out, size_t cap);

/* The most bytes that one push, or the finish, can yield. */
size_t dtk_max_bytes(const struct tok *tok);

#endif
