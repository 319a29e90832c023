/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The WordPiece model: at each place of a pretoken the longest token, which behind
 * the pretoken's start is one that begins with the prefix of continuing pieces. A
 * pretoken of which some of it has none, or that is too long, is one unknown token.
 */
#ifndef FDD_DAEMON_WORKER_WORDPIECE_H
#define FDD_DAEMON_WORKER_WORDPIECE_H

#include "daemon/worker/tokenizer_trie.h"

#include <stddef.h>
#include <stdint.h>

struct wpc {
    struct tri trie;
    uint32_t inner; /* node behind the prefix; 0: no token has it */
    uint32_t unk_id;
    size_t max_chars;
};

/*
 * Writes at out the ids of a pretoken of n > 0 bytes of valid UTF-8 and returns
 * how many. out has room for one per byte.
 */
size_t wpc_word(const struct wpc *wpc, const uint8_t *pretoken, size_t n, uint32_t *out);

#endif
