/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/detok.h"
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

/* Whether byte c can stand behind the pend bytes of a character. */
static bool
dtk_fits(const struct dtk *d, uint8_t c)
{
    if (d->n_pend == 1) {
        switch (d->pend[0]) {
        case 0xe0:
            return c >= 0xa0 && c <= 0xbf;
        case 0xed:
            return c >= 0x80 && c <= 0x9f;
        case 0xf0:
            return c >= 0x90 && c <= 0xbf;
        case 0xf4:
            return c >= 0x80 && c <= 0x8f;
        }
    }
    return (c & 0xc0) == 0x80;
}

/* Takes one byte; returns the end of the output. */
static uint8_t *
dtk_byte(struct dtk *d, uint8_t c, uint8_t *out)
{
    if (d->n_pend) {
        if (dtk_fits(d, c)) {
            unsigned len = d->pend[0] < 0xe0 ? 2 : d->pend[0] < 0xf0 ? 3 : 4;

            d->pend[d->n_pend++] = c;
            if (d->n_pend == len) {
                memcpy(out, d->pend, len);
                out += len;
                d->n_pend = 0;
            }
            return out;
        }
        memcpy(out, dtk_mark, sizeof(dtk_mark));
        out += sizeof(dtk_mark);
        d->n_pend = 0;
    }
    if (c < 0x80) {
        *out++ = c;
    } else if (c >= 0xc2 && c <= 0xf4) {
        d->pend[d->n_pend++] = c;
    } else {
        memcpy(out, dtk_mark, sizeof(dtk_mark));
        out += sizeof(dtk_mark);
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
