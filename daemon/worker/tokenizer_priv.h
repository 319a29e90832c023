/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the tokenizer: the structures that the tokenizer_load files build and
 * tokenizer.c uses.
 *
 * The path of a text: added tokens that match the raw text are cut out; the text
 * between them is normalized; added tokens that match normalized text are cut out; the
 * text between these passes the pre-tokenizer's stages, each of which cuts the pieces
 * of the stage before. The final pieces are pretokens, which the model turns into ids.
 */
#ifndef FDD_DAEMON_WORKER_TOKENIZER_PRIV_H
#define FDD_DAEMON_WORKER_TOKENIZER_PRIV_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/worker/bpe.h"
#include "daemon/worker/tokenizer_dec.h"
#include "daemon/worker/tokenizer_norm.h"
#include "daemon/worker/unigram.h"
#include "daemon/worker/wordpiece.h"

#define TOK_MAGIC        0x544f4b31u
#define TOK_MAX_STAGES   24
#define TOK_MAX_TEMPLATE 64
#define TOK_MAX_DEPTH    16 /* nesting of Sequences */
#define TOK_MAX_TEXT     4096u

enum tok_behavior {
    TOK_REMOVED,
    TOK_ISOLATED,
    TOK_MERGED_PREV,
    TOK_MERGED_NEXT,
    TOK_CONTIGUOUS
};

enum tok_stage_kind {
    TOK_STAGE_PASS,  /* the piece unchanged */
    TOK_STAGE_RX,    /* matches of a pattern */
    TOK_STAGE_SPACE, /* matches of white space */
    TOK_STAGE_PUNCT, /* matches of punctuation */
    TOK_STAGE_META,  /* spaces become a mark; pieces begin at marks */
    TOK_STAGE_SPELL, /* bytes become characters of the printable alphabet */
    TOK_STAGE_CUT    /* cuts where no merge joins: for speed */
};

enum tok_prepend { TOK_PREPEND_NEVER, TOK_PREPEND_FIRST, TOK_PREPEND_ALWAYS };

struct tok_stage {
    enum tok_stage_kind kind;
    struct tok_rx rx;
    enum tok_behavior behavior;
    bool invert;
    bool prefix_space;                    /* prepend a space to a piece without one */
    uint8_t mark[TOK_CHAR_BYTES], n_mark; /* META */
    enum tok_prepend prepend;
    bool split;
};

/* An added token in the form that is searched for. */
struct tok_added {
    uint32_t off; /* into the set's bytes */
    uint32_t n;
    uint32_t id;
    bool special, single_word, lstrip, rstrip;
};

/* Added tokens sorted by bytes; the longest match counts. */
struct tok_set {
    struct tok_added *e;
    uint32_t n;
    struct tok_buf bytes;
    uint32_t first[256]; /* index of the first entry whose first byte is not less */
};

/*
 * The index of the longest entry that s begins with, or -1. For an exact look-up
 * compare the length.
 */
int64_t tok_set_match(const struct tok_set *set, const uint8_t *s, size_t n);

enum tok_model_kind {
    TOK_MODEL_BYTES, /* BPE of bytes */
    TOK_MODEL_CHARS, /* BPE of characters */
    TOK_MODEL_UNIGRAM,
    TOK_MODEL_WORDPIECE
};

struct tok {
    uint32_t magic;
    uint32_t n_ids;
    enum tok_model_kind kind;
    struct bpe *bpe; /* the vocabulary, for every kind of model */
    struct uni *uni;
    struct wpc wpc;
    struct tok_norm norm;
    struct tok_stage stage[TOK_MAX_STAGES];
    unsigned n_stages;
    bool unspell; /* pretokens are spelled in the printable alphabet, but the model
                     takes bytes */
    struct tok_dec dec;
    struct tok_set all;    /* all added tokens by content */
    struct tok_set raw;    /* those searched before normalization */
    struct tok_set normed; /* those searched after it */
    uint32_t prefix[TOK_MAX_TEMPLATE], suffix[TOK_MAX_TEMPLATE];
    unsigned n_prefix, n_suffix;
    int bos, eos;
    size_t max_token_bytes;
};

/* An encoder's scratch for the model, of one thread: tokenizer_words.c. */
struct tok_words;

struct tok_words *tok_words_new(const struct tok *tok);

struct tok_words *tok_words_free(struct tok_words *w);

void tok_words_trim(struct tok_words *w);

/* As bpe_begin(), bpe_step() and bpe_ids(), for the tokenizer's model. */
int tok_words_begin(struct tok_words *w, const uint8_t *pretoken, size_t n);

int tok_words_step(struct tok_words *w, size_t *budget);

const uint32_t *tok_words_ids(const struct tok_words *w, size_t *ret_n);

#endif
