/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/detok.h"
#include "daemon/common/text.h"
#include "daemon/worker/tokenizer.h"
#include "daemon/worker/tokenizer_priv.h"

#include <string.h>

static const uint8_t dtk_mark[3] = { 0xef, 0xbf, 0xbd };

void
dtk_init(struct dtk *d, const struct tok *tok, bool skip_special)
{
    *d = (struct dtk){ .tok = tok, .skip_special = skip_special };
}

size_t
dtk_max_bytes(const struct tok *tok)
{
    /* Each byte may be invalid, and so may the kept beginning. */
    return sizeof(dtk_mark) * (tok->max_token_bytes + 1);
}

/* Takes one byte; returns the end of the output. */
static uint8_t *
dtk_byte(struct dtk *d, uint8_t c, uint8_t *out)
{
    size_t len;

    if (!d->n_pend && c < 0x80) {
        *out++ = c;
        return out;
    }
    len = txt_goes_on(d->pend, d->n_pend, c);
    if (len == 0) {
        memcpy(out, dtk_mark, sizeof(dtk_mark));
        out += sizeof(dtk_mark);
        if (d->n_pend) { /* c may begin another */
            d->n_pend = 0;
            out = dtk_byte(d, c, out);
        }
        return out;
    }
    d->pend[d->n_pend++] = c;
    if (d->n_pend == len) {
        memcpy(out, d->pend, len);
        out += len;
        d->n_pend = 0;
    }
    return out;
}

size_t
dtk_push(struct dtk *d, uint32_t id, uint8_t *out, size_t cap)
{
    uint8_t sink[8], *at = out;
    const uint8_t *p;
    size_t n, i;
    unsigned flags;

    if (tok_id_bytes(d->tok, id, &p, &n, &flags) ||
        (d->skip_special && flags & TOK_ID_SPECIAL))
        return 0;
    if (!out) {
        for (i = 0; i < n; i++)
            dtk_byte(d, p[i], sink);
        return 0;
    }
    if (cap < sizeof(dtk_mark) * (n + 1))
        return DTK_NO_SPACE;
    for (i = 0; i < n; i++)
        at = dtk_byte(d, p[i], at);
    return (size_t)(at - out);
}

size_t
dtk_finish(struct dtk *d, uint8_t *out, size_t cap)
{
    if (!d->n_pend)
        return 0;
    if (cap < sizeof(dtk_mark))
        return DTK_NO_SPACE;
    d->n_pend = 0;
    memcpy(out, dtk_mark, sizeof(dtk_mark));
    return sizeof(dtk_mark);
}
