/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/wordpiece.h"

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

    for (i = 0; i < n; i++)
        chars += (pretoken[i] & 0xc0) != 0x80;
    if (chars > wpc->max_chars)
        return wpc_unknown(wpc, out);
    while (at < n) {
        uint32_t node = at ? wpc->inner : TRI_ROOT;
        size_t end = 0;

        for (i = at; node && i < n && (node = tri_step(&wpc->trie, node, pretoken[i]));) {
            int32_t id = tri_value(&wpc->trie, node);

            i++;
            if (id >= 0) {
                out[k] = (uint32_t)id;
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
