/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/tokenizer_priv.h"

#include <errno.h>
#include <stdlib.h>

struct tok_words {
    const struct tok *tok;
    struct bpe_work *bpe;
    struct uni_work *uni;
    struct tok_buf bytes; /* bytes of a pretoken that was spelled */
    struct tok_buf ids;   /* ids of WordPiece */
    size_t n_ids;
};

struct tok_words *
tok_words_new(const struct tok *tok)
{
    struct tok_words *w = calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    w->tok = tok;
    if (tok->kind == TOK_MODEL_UNIGRAM)
        w->uni = uni_work_new();
    else if (tok->kind != TOK_MODEL_WORDPIECE)
        w->bpe = bpe_work_new();
    if (tok->kind != TOK_MODEL_WORDPIECE && !w->uni && !w->bpe)
        return tok_words_free(w);
    return w;
}

struct tok_words *
tok_words_free(struct tok_words *w)
{
    if (w) {
        bpe_work_free(w->bpe);
        uni_work_free(w->uni);
        tok_buf_fini(&w->bytes);
        tok_buf_fini(&w->ids);
        free(w);
    }
    return NULL;
}

void
tok_words_trim(struct tok_words *w)
{
    if (w->bpe)
        bpe_work_trim(w->bpe);
    if (w->uni)
        uni_work_trim(w->uni);
    tok_buf_fini(&w->bytes);
    tok_buf_fini(&w->ids);
    w->n_ids = 0;
}

/* Converts the printable alphabet back to bytes. */
static int
words_unspell(struct tok_words *w, const uint8_t *s, size_t n)
{
    size_t i = 0;
    uint32_t cp;

    w->bytes.n = 0;
    if (tok_buf_room(&w->bytes, n))
        return -ENOMEM;
    while (i < n) {
        i += tok_utf8_get(s + i, &cp);
        w->bytes.p[w->bytes.n++] = (uint8_t)bpe_char_to_byte(cp);
    }
    return 0;
}

int
tok_words_begin(struct tok_words *w, const uint8_t *pretoken, size_t n)
{
    const struct tok *tok = w->tok;

    if (tok->unspell) {
        if (words_unspell(w, pretoken, n))
            return -ENOMEM;
        pretoken = w->bytes.p;
        n = w->bytes.n;
    }
    if (w->bpe)
        return bpe_begin(w->bpe, tok->bpe, pretoken, n);
    if (w->uni)
        return uni_begin(w->uni, tok->uni, pretoken, n);
    w->ids.n = 0;
    if (tok_buf_room(&w->ids, n * sizeof(uint32_t)))
        return -ENOMEM;
    w->n_ids = wpc_word(&tok->wpc, pretoken, n, (uint32_t *)(void *)w->ids.p);
    return 0;
}

int
tok_words_step(struct tok_words *w, size_t *budget)
{
    if (w->bpe)
        return bpe_step(w->bpe, budget);
    return w->uni ? uni_step(w->uni, budget) : 1;
}

const uint32_t *
tok_words_ids(const struct tok_words *w, size_t *ret_n)
{
    if (w->bpe)
        return bpe_ids(w->bpe, ret_n);
    if (w->uni)
        return uni_ids(w->uni, ret_n);
    *ret_n = w->n_ids;
    return (const uint32_t *)(const void *)w->ids.p;
}
