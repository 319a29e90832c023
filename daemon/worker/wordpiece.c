/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/wordpiece.h"
#include "daemon/worker/tokenizer_utf8.h"

static size_t
wpc_unknown(const struct wpc *wpc, uint32_t *out)
{
    *out = wpc->unk_id;
    return 1;
}

size_t
wpc_word(const struct wpc *wpc, const uint8_t *pretoken, size_t n, uint32_t *out)
{
    size_t at = 0, k = 0, chars = 0, i;
    uint32_t cp;

    for (i = 0; i < n; i++)
        chars += (pretoken[i] & 0xc0) != 0x80;
    if (chars > wpc->max_chars)
        return wpc_unknown(wpc, out);
    while (at < n) {
        uint32_t node = at ? wpc->inner : TRI_ROOT;
        size_t end = 0;

        for (i = at; node && i < n;) {
            const struct tri_cell *c;

            i += tok_utf8_get(pretoken + i, &cp);
            c = tri_step(&wpc->trie, node, cp);
            node = c ? c->node : 0;
            if (c && c->value >= 0) {
                out[k] = (uint32_t)c->value;
                end = i;
            }
        }
        if (!end)
            return wpc_unknown(wpc, out);
        k++;
        at = end;
    }
    return k;
}
