/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The WordPiece model: at each position of a pretoken the longest matching token is
 * taken; after the pretoken's start it must begin with the prefix of continuing pieces.
 * A pretoken for which that fails somewhere, or that is too long, becomes one unknown
 * token.
 */
#ifndef FDD_DAEMON_WORKER_WORDPIECE_H
#define FDD_DAEMON_WORKER_WORDPIECE_H

#include "daemon/worker/tokenizer_trie.h"

#include <stddef.h>
#include <stdint.h>

struct wpc {
    struct tri trie;
    uint32_t inner; /* node after the prefix; 0: no token has the prefix */
    uint32_t unk_id;
    size_t max_chars;
};

/*
 * Writes the ids of a pretoken of n > 0 bytes of valid UTF-8 to out, which has room for
 * one per byte. Returns their number.
 */
size_t wpc_word(const struct wpc *wpc, const uint8_t *pretoken, size_t n, uint32_t *out);

#endif
