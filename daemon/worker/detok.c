/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/detok.h"
#include "daemon/worker/tokenizer.h"
#include "daemon/worker/tokenizer_dec.h"
#include "daemon/worker/tokenizer_utf8.h"

#include <string.h>

#include "daemon/common/text.h"

static const uint8_t dtk_mark[3] = { 0xef, 0xbf, 0xbd };

void
dtk_init(struct dtk *d, const struct tok *tok, bool skip_special)
{
    *d = (struct dtk){ .tok = tok, .skip_special = skip_special };
}

void
dtk_resume(struct dtk *d, const uint32_t *ids, size_t n)
{
    const uint8_t *p;
    unsigned flags;
    size_t len;
    int byte;

    while (n-- && !d->begun)
        d->begun = !tok_dec_text(d->tok, ids[n], 0, &p, &len, &flags, &byte) &&
            !(d->skip_special && flags & TOK_ID_SPECIAL);
    d->body = d->begun;
}

size_t
dtk_max_bytes(const struct tok *tok)
{
    const struct tok_dec *dec = tok_dec_of(tok);

    /* Each byte may be invalid, and so may the bytes held back. */
    return sizeof(dtk_mark) * (dec->max_bytes + 1) +
        (dec->fallback ? sizeof(dtk_mark) * (DTK_RUN + 1) : 0) +
        (dec->by_last ? dec->max_bytes : 0) + (size_t)dec->strip_stop * dec->n_strip;
}

/* Writes bytes to out, which may be NULL; returns the end of the output. */
static uint8_t *
dtk_copy(uint8_t *out, const uint8_t *s, size_t n)
{
    if (!out || !n)
        return out;
    memcpy(out, s, n);
    return out + n;
}

/* Writes whole characters, except those stripped from both ends of the text. */
static uint8_t *
dtk_text(struct dtk *d, const uint8_t *s, size_t n, uint8_t *out)
{
    const struct tok_dec *dec = tok_dec_of(d->tok);
    size_t i, len;

    if (!dec->n_strip)
        return dtk_copy(out, s, n);
    for (i = 0; i < n; i += len) {
        uint32_t cp;
        bool is;

        len = tok_utf8_get(s + i, &cp);
        is = len == dec->n_strip && !memcmp(s + i, dec->strip, len);
        if (is && !d->body && d->n_lead < dec->strip_start) {
            d->n_lead++;
            continue;
        }
        d->body = true;
        if (is && d->n_trail < dec->strip_stop) {
            d->n_trail++;
            continue;
        }
        for (; !is && d->n_trail; d->n_trail--)
            out = dtk_copy(out, dec->strip, dec->n_strip);
        out = dtk_copy(out, s + i, len);
    }
    return out;
}

static uint8_t *
dtk_marks(struct dtk *d, size_t n, uint8_t *out)
{
    while (n--)
        out = dtk_text(d, dtk_mark, sizeof(dtk_mark), out);
    return out;
}

/* Takes one byte of ByteLevel output. */
static uint8_t *
dtk_byte(struct dtk *d, uint8_t c, uint8_t *out)
{
    size_t len;

    if (!d->n_pend && c < 0x80)
        return dtk_text(d, &c, 1, out);
    len = txt_goes_on(d->pend, d->n_pend, c);
    if (len == 0) {
        out = dtk_marks(d, 1, out);
        if (d->n_pend) { /* c may begin another character */
            d->n_pend = 0;
            out = dtk_byte(d, c, out);
        }
        return out;
    }
    d->pend[d->n_pend++] = c;
    if (d->n_pend == len) {
        out = dtk_text(d, d->pend, len, out);
        d->n_pend = 0;
    }
    return out;
}

/* ---- runs of ByteFallback ---- */

/* Writes the first n bytes of the run, whole characters. */
static uint8_t *
dtk_run_out(struct dtk *d, size_t n, uint8_t *out)
{
    const struct tok_swap *swap = &tok_dec_of(d->tok)->swap;
    size_t i, len;
    uint32_t cp;

    if (!swap->n_from)
        return dtk_text(d, d->run, n, out);
    for (i = 0; i < n; i += len) {
        len = tok_utf8_get(d->run + i, &cp);
        if (len == swap->n_from && !memcmp(d->run + i, swap->from, len))
            out = dtk_text(d, swap->to, swap->n_to, out);
        else
            out = dtk_text(d, d->run + i, len, out);
    }
    return out;
}

static uint8_t *
dtk_run_end(struct dtk *d, uint8_t *out)
{
    out = d->n_pend ? dtk_marks(d, d->n_run, out) : dtk_run_out(d, d->n_run, out);
    d->n_run = d->n_pend = 0;
    d->bad_run = false;
    return out;
}

/* Takes one byte of a run. The last n_pend bytes of the run are an unfinished
 * character. */
static uint8_t *
dtk_run_byte(struct dtk *d, uint8_t c, uint8_t *out)
{
    size_t len, whole;

    if (d->bad_run)
        return dtk_marks(d, 1, out);
    len = txt_goes_on(d->run + d->n_run - d->n_pend, d->n_pend, c);
    if (!len) {
        out = dtk_marks(d, d->n_run + 1u, out);
        d->n_run = d->n_pend = 0;
        d->bad_run = true;
        return out;
    }
    d->run[d->n_run++] = c;
    d->n_pend = ++d->n_pend == len ? 0 : d->n_pend;
    if (d->n_run < DTK_RUN)
        return out;
    whole = (size_t)d->n_run - d->n_pend;
    out = dtk_run_out(d, whole, out);
    memmove(d->run, d->run + whole, d->n_pend);
    d->n_run = d->n_pend;
    return out;
}

/* ---- tokens ---- */

/* The held token's text from held_at on, decoded for this place. */
static size_t
dtk_held(const struct dtk *d, unsigned place, const uint8_t **ret)
{
    unsigned flags;
    size_t n = 0;
    int byte;

    if (!d->held ||
        tok_dec_text(d->tok, d->held - 1, d->held_place | place, ret, &n, &flags, &byte))
        return 0;
    *ret += d->held_at;
    return n - d->held_at;
}

/* Holds back the text from where it would differ if id were the last token; returns the
 * number of bytes before that. */
static size_t
dtk_hold(struct dtk *d, uint32_t id, unsigned place, const uint8_t *p, size_t n)
{
    const uint8_t *last;
    unsigned flags;
    size_t n_last, i;
    int byte;

    if (tok_dec_text(d->tok, id, place | TOK_AT_LAST, &last, &n_last, &flags, &byte))
        return n;
    for (i = 0; i < n && i < n_last && p[i] == last[i]; i++)
        ;
    while (i &&
        ((i < n && (p[i] & 0xc0) == 0x80) || (i < n_last && (last[i] & 0xc0) == 0x80)))
        i--;
    d->held = id + 1;
    d->held_place = (uint8_t)place;
    d->held_at = (uint32_t)i;
    return i;
}

/* The most bytes that one more token of n bytes can give. */
static size_t
dtk_need(const struct dtk *d, size_t n)
{
    const struct tok_dec *dec = tok_dec_of(d->tok);
    const uint8_t *p;

    return (dec->lossy || dec->fallback ? sizeof(dtk_mark) * (n + 1) : n) +
        sizeof(dtk_mark) * d->n_run + dtk_held(d, 0, &p) +
        (size_t)d->n_trail * dec->n_strip;
}

size_t
dtk_push(struct dtk *d, uint32_t id, uint8_t *out, size_t cap)
{
    const struct tok_dec *dec = tok_dec_of(d->tok);
    unsigned flags, place = d->begun ? 0 : TOK_AT_FIRST;
    uint8_t *at = out;
    const uint8_t *p, *held;
    size_t n, i;
    int byte;

    if (tok_dec_text(d->tok, id, place, &p, &n, &flags, &byte) ||
        (d->skip_special && flags & TOK_ID_SPECIAL))
        return 0;
    if (out && cap < dtk_need(d, n))
        return DTK_NO_SPACE;
    d->begun = true;
    i = dtk_held(d, 0, &held);
    if (i)
        at = dtk_text(d, held, i, at);
    d->held = 0;
    if (byte >= 0) {
        at = dtk_run_byte(d, (uint8_t)byte, at);
        return out ? (size_t)(at - out) : 0;
    }
    if (dec->fallback)
        at = dtk_run_end(d, at);
    if (dec->lossy && (d->n_pend || !tok_is_ascii(p, n))) {
        for (i = 0; i < n; i++)
            at = dtk_byte(d, p[i], at);
    } else {
        if (dec->by_last && !dec->lossy)
            n = dtk_hold(d, id, place, p, n);
        at = dtk_text(d, p, n, at);
    }
    return out ? (size_t)(at - out) : 0;
}

size_t
dtk_finish(struct dtk *d, uint8_t *out, size_t cap)
{
    const struct tok_dec *dec = tok_dec_of(d->tok);
    const uint8_t *held;
    size_t n = dtk_held(d, TOK_AT_LAST, &held);
    uint8_t *at = out;

    if (cap < n + sizeof(dtk_mark) * (d->n_run + (d->n_pend != 0 && !dec->fallback)) +
            (size_t)d->n_trail * dec->n_strip)
        return DTK_NO_SPACE;
    if (n)
        at = dtk_text(d, held, n, at);
    if (dec->fallback)
        at = dtk_run_end(d, at);
    else if (d->n_pend)
        at = dtk_marks(d, 1, at);
    dtk_init(d, d->tok, d->skip_special);
    return (size_t)(at - out);
}
