/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/tokenizer.h"
#include "daemon/worker/tokenizer_pre.h"
#include "daemon/worker/tokenizer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/text.h"

#define ENC_MAGIC      0x54454e31u
#define ENC_MAX_TEXT   ((size_t)512 << 20)
#define ENC_KEEP_BYTES ((size_t)1 << 20) /* larger buffers are freed after a text */
#define ENC_SCAN_COST  16                /* bytes scanned at the cost of one encoded */

/* State of cutting added tokens out of a text. */
struct enc_scan {
    const uint8_t *s;
    size_t n;
    size_t at;    /* where the search continues */
    size_t start; /* the text before it has been returned */
    bool have;    /* a token was found, and the text before it has been returned */
    uint32_t id;
};

enum enc_got { GOT_END, GOT_MORE, GOT_TEXT, GOT_TOKEN };

enum enc_phase {
    ENC_IDLE,
    ENC_RAW,   /* look for added tokens in the text */
    ENC_NORM,  /* normalize the text between them */
    ENC_NSCAN, /* look for added tokens in the normalized text */
    ENC_WORD,  /* get the next pretoken */
    ENC_MERGE, /* get its ids from the model */
    ENC_DONE
};

struct tok_enc {
    uint32_t magic;
    const struct tok *tok;
    struct tok_words *words;
    struct tok_rx_run rx;
    struct tok_norm_run norm;
    uint32_t *ids;
    size_t n_ids, cap_ids;
    unsigned flags;
    const struct tok_span *spans; /* spans in which special tokens are plain text */
    size_t n_spans;
    enum enc_phase phase;
    struct enc_scan raw, normed;
    size_t seg_a, seg_b, seg_at; /* segment of the text that is being normalized */
    struct tok_buf seg;          /* its normal form */
    size_t seg_first;            /* bytes of seg that come from the text's first
                                    character */
    struct tok_pre pre;
};

uint32_t
tok_vocab_size(const struct tok *tok)
{
    return tok->n_ids;
}

int
tok_bos_id(const struct tok *tok)
{
    return tok->bos;
}

int
tok_eos_id(const struct tok *tok)
{
    return tok->eos;
}

int
tok_token_id(const struct tok *tok, const char *bytes, size_t n)
{
    int64_t i = tok_set_match(&tok->all, (const uint8_t *)bytes, n);

    if (i >= 0 && tok->all.e[i].n == n)
        return (int)tok->all.e[i].id;
    return bpe_find(tok->bpe, (const uint8_t *)bytes, n);
}

int
tok_id_bytes(const struct tok *tok, uint32_t id, const uint8_t **ret, size_t *ret_n,
    unsigned *ret_flags)
{
    int byte;

    return tok_dec_text(tok, id, 0, ret, ret_n, ret_flags, &byte);
}

int64_t
tok_set_match(const struct tok_set *set, const uint8_t *s, size_t n)
{
    uint32_t lo, hi;
    int64_t best = -1;
    size_t d;

    if (!n || !set->n)
        return -1;
    lo = set->first[s[0]];
    hi = s[0] == 255 ? set->n : set->first[s[0] + 1];
    /* entries lo .. hi - 1 all share the first d bytes with s */
    for (d = 1; lo < hi; d++) {
        uint32_t a, b;

        if (set->e[lo].n == d)
            best = lo++;
        if (d == n)
            break;
        for (a = lo, b = hi; a < b;) {
            uint32_t mid = a + (b - a) / 2;
            if (set->bytes.p[set->e[mid].off + d] < s[d])
                a = mid + 1;
            else
                b = mid;
        }
        lo = a;
        for (b = hi; a < b;) {
            uint32_t mid = a + (b - a) / 2;
            if (set->bytes.p[set->e[mid].off + d] <= s[d])
                a = mid + 1;
            else
                b = mid;
        }
        hi = a;
    }
    return best;
}

struct tok_enc *
tok_enc_new(const struct tok *tok)
{
    struct tok_enc *enc = calloc(1, sizeof(*enc));

    if (!enc)
        return NULL;
    enc->magic = ENC_MAGIC;
    enc->tok = tok;
    enc->norm.rx = &enc->rx;
    enc->pre = (struct tok_pre){ .tok = tok, .rx = &enc->rx };
    enc->words = tok_words_new(tok);
    if (!enc->words || tok_rx_run_init(&enc->rx))
        return tok_enc_free(enc);
    return enc;
}

struct tok_enc *
tok_enc_free(struct tok_enc *enc)
{
    if (enc && enc->magic == ENC_MAGIC) {
        enc->magic = 0;
        tok_words_free(enc->words);
        tok_rx_run_fini(&enc->rx);
        tok_norm_run_fini(&enc->norm);
        tok_buf_fini(&enc->seg);
        tok_pre_reset(&enc->pre, 0);
        free(enc->ids);
        free(enc);
    }
    return NULL;
}

static int
enc_put(struct tok_enc *enc, const uint32_t *ids, size_t n)
{
    if (n > enc->cap_ids - enc->n_ids) {
        size_t cap = enc->cap_ids ? enc->cap_ids : 256;
        uint32_t *p;

        while (cap - enc->n_ids < n)
            cap *= 2;
        p = realloc(enc->ids, cap * sizeof(*p));
        if (!p)
            return -ENOMEM;
        enc->ids = p;
        enc->cap_ids = cap;
    }
    if (n)
        memcpy(enc->ids + enc->n_ids, ids, n * sizeof(*ids));
    enc->n_ids += n;
    return 0;
}

static void
enc_scan_start(struct enc_scan *sc, const uint8_t *s, size_t n)
{
    *sc = (struct enc_scan){ .s = s, .n = n };
}

static void
enc_trim(struct tok_enc *enc)
{
    tok_words_trim(enc->words);
    tok_pre_reset(&enc->pre, ENC_KEEP_BYTES);
    if (enc->seg.cap > ENC_KEEP_BYTES)
        tok_buf_fini(&enc->seg);
    if (enc->norm.a.cap > ENC_KEEP_BYTES || enc->norm.b.cap > ENC_KEEP_BYTES ||
        enc->norm.cap_cp > ENC_KEEP_BYTES)
        tok_norm_run_fini(&enc->norm);
    if (enc->cap_ids > ENC_KEEP_BYTES) {
        free(enc->ids);
        enc->ids = NULL;
        enc->cap_ids = 0;
    }
}

int
tok_enc_begin(struct tok_enc *enc, const char *text, size_t n, unsigned flags)
{
    enc->phase = ENC_IDLE;
    enc->n_ids = 0;
    enc_trim(enc);
    if (n > ENC_MAX_TEXT)
        return -E2BIG;
    if (txt_utf8(text, n) != n)
        return -EILSEQ;
    enc->flags = flags;
    enc->n_spans = 0;
    enc_scan_start(&enc->raw, (const uint8_t *)text, n);
    tok_rx_run_limit(&enc->rx, n);
    if (flags & TOK_ADD_SPECIAL && enc_put(enc, enc->tok->prefix, enc->tok->n_prefix))
        return -ENOMEM;
    enc->phase = ENC_RAW;
    return 0;
}

void
tok_enc_spans(struct tok_enc *enc, const struct tok_span *spans, size_t n)
{
    enc->spans = spans;
    enc->n_spans = n;
}

/* Is the name of a special token, found at a .. b, plain text? */
static bool
enc_is_literal(const struct tok_enc *enc, const struct enc_scan *sc, size_t a, size_t b)
{
    size_t lo = 0, hi = enc->n_spans;

    if (!(enc->flags & TOK_PARSE_SPECIAL))
        return true;
    if (sc != &enc->raw) { /* then it is in the normal form of this segment of the text */
        a = enc->seg_a;
        b = enc->seg_b;
    }
    while (lo < hi) { /* find the first span that ends after a */
        size_t mid = (lo + hi) / 2;

        if ((size_t)enc->spans[mid].off + enc->spans[mid].len > a)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo < enc->n_spans && enc->spans[lo].off < b;
}

static bool
enc_word_before(const uint8_t *s, size_t end)
{
    uint32_t cp;

    if (!end)
        return false;
    for (end--; (s[end] & 0xc0) == 0x80; end--)
        ;
    tok_utf8_get(s + end, &cp);
    return tok_is_word(cp);
}

static bool
enc_word_at(const uint8_t *s, size_t n, size_t at)
{
    uint32_t cp;

    if (at == n)
        return false;
    tok_utf8_get(s + at, &cp);
    return tok_is_word(cp);
}

/* Where the white space that ends at `end` begins, but not before floor. */
static size_t
enc_space_before(const uint8_t *s, size_t floor, size_t end)
{
    uint32_t cp;

    while (end > floor) {
        size_t i = end - 1;
        while ((s[i] & 0xc0) == 0x80)
            i--;
        tok_utf8_get(s + i, &cp);
        if (!tok_is_space(cp))
            break;
        end = i;
    }
    return end;
}

static size_t
enc_space_after(const uint8_t *s, size_t n, size_t at)
{
    uint32_t cp;

    while (at < n) {
        unsigned len = tok_utf8_get(s + at, &cp);
        if (!tok_is_space(cp))
            break;
        at += len;
    }
    return at;
}

static void
enc_spend(size_t *budget, size_t n)
{
    *budget -= n < *budget ? n : *budget;
}

static enum enc_got
enc_scan_end(struct enc_scan *sc, size_t *ret_a, size_t *ret_b)
{
    if (sc->start >= sc->n)
        return GOT_END;
    *ret_a = sc->start;
    *ret_b = sc->n;
    sc->start = sc->n;
    return GOT_TEXT;
}

/*
 * The next added token (its id in sc->id) or the text before it. A rejected match is
 * skipped as a whole. White space taken by rstrip can be the beginning of the next
 * match, but cannot be all of a match with lstrip: as in the reference.
 */
static enum enc_got
enc_scan_next(struct tok_enc *enc, const struct tok_set *set, struct enc_scan *sc,
    size_t *budget, size_t *ret_a, size_t *ret_b)
{
    size_t from = sc->at, room = *budget * ENC_SCAN_COST, a, b;

    if (sc->have) {
        sc->have = false;
        return GOT_TOKEN;
    }
    if (!set->n)
        sc->at = sc->n;
    while (sc->at < sc->n) {
        const struct tok_added *t;
        unsigned c = sc->s[sc->at];
        int64_t i;

        if (sc->at - from >= room) {
            *budget = 0;
            return GOT_MORE;
        }
        if (set->first[c] == (c == 255 ? set->n : set->first[c + 1]) ||
            (i = tok_set_match(set, sc->s + sc->at, sc->n - sc->at)) < 0) {
            sc->at++;
            continue;
        }
        t = &set->e[i];
        a = sc->at;
        b = sc->at += t->n;
        if (t->special && enc_is_literal(enc, sc, a, b))
            continue;
        if (t->single_word && (enc_word_before(sc->s, a) || enc_word_at(sc->s, sc->n, b)))
            continue;
        if (t->lstrip)
            a = enc_space_before(sc->s, sc->start < a ? sc->start : a, a);
        if (t->rstrip)
            b = enc_space_after(sc->s, sc->n, b);
        if (t->lstrip && b <= sc->start)
            continue;
        enc_spend(budget, (sc->at - from) / ENC_SCAN_COST + t->n);
        sc->id = t->id;
        *ret_a = sc->start;
        *ret_b = a;
        sc->have = *ret_a < *ret_b;
        sc->start = b;
        return sc->have ? GOT_TEXT : GOT_TOKEN;
    }
    enc_spend(budget, (sc->at - from) / ENC_SCAN_COST);
    return enc_scan_end(sc, ret_a, ret_b);
}

static int
enc_step_raw(struct tok_enc *enc, size_t *budget)
{
    switch (
        enc_scan_next(enc, &enc->tok->raw, &enc->raw, budget, &enc->seg_a, &enc->seg_b)) {
    case GOT_MORE:
        return 0;
    case GOT_TOKEN:
        return enc_put(enc, &enc->raw.id, 1);
    case GOT_TEXT:
        enc->seg.n = 0;
        enc->seg_at = enc->seg_a;
        enc->phase = ENC_NORM;
        return 0;
    default:
        if (enc->flags & TOK_ADD_SPECIAL &&
            enc_put(enc, enc->tok->suffix, enc->tok->n_suffix))
            return -ENOMEM;
        enc->phase = ENC_DONE;
        return 0;
    }
}

/*
 * Sets seg_first: if the segment begins the text, the bytes of its normal form that
 * come from the text's first character.
 */
static int
enc_first(struct tok_enc *enc, const uint8_t *s, size_t n)
{
    struct tok_buf out = { 0 };
    uint32_t cp;
    int rc = 0;

    enc->seg_first = 0;
    if (enc->seg_a || !n)
        return 0;
    enc->norm.later = false;
    rc = tok_norm_apply(&enc->tok->norm, &enc->norm, s, tok_utf8_get(s, &cp), &out);
    /* normalized alone, the character is also the end of a text and may be removed for
     * that; in a longer text, cut_off is set when it is removed */
    enc->seg_first = out.n > 0 ? out.n : 1;
    tok_buf_fini(&out);
    return rc;
}

static int
enc_step_norm(struct tok_enc *enc, size_t *budget)
{
    const struct tok_norm *norm = &enc->tok->norm;
    const uint8_t *s = enc->raw.s + enc->seg_a;
    size_t n = enc->seg_b - enc->seg_a, at = enc->seg_at - enc->seg_a, end;
    int rc = at ? 0 : enc_first(enc, s, n);

    if (rc)
        return rc;
    enc->norm.later = at != 0;
    if (!at)
        enc->norm.cut_off = false;
    if (!at && tok_norm_is_inert(norm, s, n)) {
        enc_scan_start(&enc->normed, s, n);
        enc->phase = ENC_NSCAN;
        return 0;
    }
    end = tok_norm_cut(norm, s, n, at, *budget);
    rc = tok_norm_apply(norm, &enc->norm, s + at, end - at, &enc->seg);
    if (rc)
        return rc;
    enc_spend(budget, end - at);
    enc->seg_at = enc->seg_a + end;
    if (end == n) {
        if (enc->norm.cut_off)
            enc->seg_first = 0;
        enc_scan_start(&enc->normed, enc->seg.p, enc->seg.n);
        enc->phase = ENC_NSCAN;
    }
    return 0;
}

static int
enc_step_nscan(struct tok_enc *enc, size_t *budget)
{
    size_t a, b;

    switch (enc_scan_next(enc, &enc->tok->normed, &enc->normed, budget, &a, &b)) {
    case GOT_MORE:
        return 0;
    case GOT_TOKEN:
        return enc_put(enc, &enc->normed.id, 1);
    case GOT_TEXT:
        enc->phase = ENC_WORD;
        return tok_pre_begin(&enc->pre, enc->normed.s + a, b - a,
            enc->seg_first > a ? enc->seg_first - a : 0);
    default:
        enc->phase = ENC_RAW;
        return 0;
    }
}

/* Both phases for pretokens in one loop: short pretokens then cost no pass of the step
 * loop. */
static int
enc_step_words(struct tok_enc *enc, size_t *budget)
{
    const uint32_t *ids;
    const uint8_t *s = NULL;
    size_t n = 0;
    int rc;

    do {
        if (enc->phase == ENC_WORD) {
            rc = tok_pre_next(&enc->pre, &s, &n);
            if (rc < 0)
                return rc;
            if (!rc) {
                enc->phase = ENC_NSCAN;
                return 0;
            }
            rc = tok_words_begin(enc->words, s, n);
            if (rc)
                return rc;
            enc->phase = ENC_MERGE;
            enc_spend(budget, n);
        }
        rc = tok_words_step(enc->words, budget);
        if (rc <= 0)
            return rc;
        ids = tok_words_ids(enc->words, &n);
        rc = enc_put(enc, ids, n);
        if (rc)
            return rc;
        enc->phase = ENC_WORD;
    } while (*budget);
    return 0;
}

int
tok_enc_step(struct tok_enc *enc, size_t max_bytes)
{
    size_t budget = max_bytes ? max_bytes : 1;
    int rc = 0;

    while (!rc && budget) {
        switch (enc->phase) {
        case ENC_RAW:
            rc = enc_step_raw(enc, &budget);
            break;
        case ENC_NORM:
            rc = enc_step_norm(enc, &budget);
            break;
        case ENC_NSCAN:
            rc = enc_step_nscan(enc, &budget);
            break;
        case ENC_WORD:
        case ENC_MERGE:
            rc = enc_step_words(enc, &budget);
            break;
        case ENC_DONE:
            return 1;
        default:
            return -EINVAL;
        }
    }
    if (rc) {
        enc->phase = ENC_IDLE;
        return rc;
    }
    return enc->phase == ENC_DONE;
}

const uint32_t *
tok_enc_ids(const struct tok_enc *enc, size_t *ret_n)
{
    *ret_n = enc->n_ids;
    return enc->ids;
}
