/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Token ids to text, one id at a time. A `struct dtk` is embedded in its
 * sequence and owned by the thread that serves it; it allocates nothing.
 *
 * The joined output of all pushes and the finish equals that of decoding all ids at once.
 * It is valid UTF-8, cut between characters. Output that depends on later ids is held
 * back:
 * - bytes of an unfinished character (ByteLevel: each maximal part of an
 *   invalid sequence becomes U+FFFD, EF BF BD);
 * - a run of "<0xXX>" tokens (ByteFallback: if the run as a whole is no UTF-8, each of
 *   its bytes becomes U+FFFD). A run longer than DTK_RUN bytes gives out its whole
 *   characters before its end;
 * - text that a decoder would change if its token were the last, or would strip from the
 *   end.
 */
#ifndef FDD_DAEMON_WORKER_DETOK_H
#define FDD_DAEMON_WORKER_DETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tok;

/* cap was too small; the state is unchanged. */
#define DTK_NO_SPACE SIZE_MAX

/* At most this many bytes of a run are held back. */
#define DTK_RUN 252

struct dtk {
    const struct tok *tok;
    bool skip_special; /* special tokens give no text */
    bool begun;        /* a token with text was pushed */
    bool body;         /* the text has begun: no more stripping at its start */
    bool bad_run;      /* the run is not valid UTF-8 */
    uint8_t held_place;
    uint8_t n_pend;
    uint8_t n_run;
    uint8_t pend[4]; /* the beginning of a character */
    uint8_t run[DTK_RUN];
    uint32_t n_lead, n_trail; /* characters stripped at the start; held back at the end */
    uint32_t held, held_at;   /* id + 1 of a token whose text from held_at on is held
                                 back, 0: none */
};

/* tok must stay until the last call with d. */
void dtk_init(struct dtk *d, const struct tok *tok, bool skip_special);

/*
 * Call after dtk_init(): the text continues after these ids, which give no output. If any
 * of them has text, the decoders' special treatment of a text's beginning is skipped.
 */
void dtk_resume(struct dtk *d, const uint32_t *ids, size_t n);

/*
 * Writes the characters that id completes to out and returns their bytes. An id without a
 * token gives nothing. A cap of dtk_max_bytes() always suffices; DTK_NO_SPACE if cap is
 * smaller and might not suffice for this id. With out NULL the text is dropped and 0
 * returned, for ids whose text was delivered before.
 */
size_t dtk_push(struct dtk *d, uint32_t id, uint8_t *out, size_t cap);

/*
 * Ends the text: writes the text held back, with an unfinished character as U+FFFD.
 * DTK_NO_SPACE as above. The next push begins a new text.
 */
size_t dtk_finish(struct dtk *d, uint8_t *out, size_t cap);

/* The largest output of one dtk_push() or dtk_finish(), in bytes. */
size_t dtk_max_bytes(const struct tok *tok);

#endif
