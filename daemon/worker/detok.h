/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Token ids to text, one id at a time. A `struct dtk` is embedded in its
 * sequence and owned by the thread that serves it; it allocates nothing.
 *
 * The output of all pushes and the finish, joined, is what decoding all ids
 * at once gives. It is valid UTF-8, cut between characters. What depends on ids
 * to come is kept back:
 * - bytes of an unfinished character (ByteLevel: each maximal part of an
 *   invalid sequence becomes U+FFFD, EF BF BD);
 * - a run of "<0xXX>" tokens (ByteFallback: if the run as a whole is no UTF-8,
 *   each of its bytes becomes U+FFFD). Of a run longer than DTK_RUN bytes the
 *   whole characters so far are given out before its end;
 * - what a decoder makes otherwise of the last token, or takes off the end.
 */
#ifndef FDD_DAEMON_WORKER_DETOK_H
#define FDD_DAEMON_WORKER_DETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tok;

/* cap was too small: nothing has happened. */
#define DTK_NO_SPACE SIZE_MAX

/* Bytes of a run that are kept back at most. */
#define DTK_RUN 252

struct dtk {
    const struct tok *tok;
    bool skip_special; /* special tokens yield nothing */
    bool begun;        /* a token has come */
    bool body;         /* nothing is taken off the beginning any more */
    bool bad_run;      /* the run is no UTF-8 */
    uint8_t held_place;
    uint8_t n_pend;
    uint8_t n_run;
    uint8_t pend[4]; /* the beginning of a character */
    uint8_t run[DTK_RUN];
    uint32_t n_lead, n_trail; /* of what is taken off both ends */
    uint32_t held, held_at;   /* id + 1 whose text is out up to held_at */
};

/* tok must stay until the last call with d. */
void dtk_init(struct dtk *d, const struct tok *tok, bool skip_special);

/*
 * After dtk_init(): the text goes on behind these ids, which yield nothing. If
 * any of them has text, what decoders do to a text's beginning is not done.
 */
void dtk_resume(struct dtk *d, const uint32_t *ids, size_t n);

/*
 * Writes at out the characters that id completes and returns their bytes. An
 * id that no token has yields nothing. cap of dtk_max_bytes() always
 * suffices; DTK_NO_SPACE if it is less and could be too small for this id.
 * With out NULL the text is dropped and 0 returned: to go over ids whose text
 * was delivered before.
 */
size_t dtk_push(struct dtk *d, uint32_t id, uint8_t *out, size_t cap);

/*
 * Ends the text: gives out what was kept back, an unfinished character as
 * U+FFFD. DTK_NO_SPACE as above. A push after it begins a new text.
 */
size_t dtk_finish(struct dtk *d, uint8_t *out, size_t cap);

/* The most bytes that one push, or the finish, can yield. */
size_t dtk_max_bytes(const struct tok *tok);

#endif
