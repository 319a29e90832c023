/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the tokenizer: what the tokenizer_load files build and
 * tokenizer.c runs.
 *
 * The path of a text: added tokens that match the text as it is are cut out;
 * what lies between is normalized; added tokens that match normalized text
 * are cut out; what lies between goes through the pre-tokenizer's stages,
 * each cutting the pieces of the one before; each last piece is a pretoken, of
 * which the model makes ids.
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
#define TOK_MAX_DEPTH    16 /* of Sequences */
#define TOK_MAX_TEXT     4096u

enum tok_behavior {
    TOK_REMOVED,
    TOK_ISOLATED,
    TOK_MERGED_PREV,
    TOK_MERGED_NEXT,
    TOK_CONTIGUOUS
};

enum tok_stage_kind {
    TOK_STAGE_PASS,  /* the piece as it is */
    TOK_STAGE_RX,    /* matches of a pattern */
    TOK_STAGE_SPACE, /* of white space */
    TOK_STAGE_PUNCT, /* of punctuation */
    TOK_STAGE_META,  /* spaces become a mark, before which pieces begin */
    TOK_STAGE_SPELL, /* bytes become the printable alphabet */
    TOK_STAGE_CUT    /* where no merge joins: for speed */
};

enum tok_prepend { TOK_PREPEND_NEVER, TOK_PREPEND_FIRST, TOK_PREPEND_ALWAYS };

struct tok_stage {
    enum tok_stage_kind kind;
    struct tok_rx rx;
    enum tok_behavior behavior;
    bool invert;
    bool prefix_space;                    /* give a piece a leading space first */
    uint8_t mark[TOK_CHAR_BYTES], n_mark; /* META */
    enum tok_prepend prepend;
    bool split;
};

/* An added token as it is looked for. */
struct tok_added {
    uint32_t off; /* into the set's bytes */
    uint32_t n;
    uint32_t id;
    bool special, single_word, lstrip, rstrip;
};

/* Added tokens sorted by bytes, found longest first. */
struct tok_set {
    struct tok_added *e;
    uint32_t n;
    struct tok_buf bytes;
    uint32_t first[256]; /* index of the first whose first byte is not less */
};

/*
 * The index of the longest entry that s begins with, -1 if none. For
 * an exact look-up compare the length.
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
    struct bpe *bpe; /* the vocabulary, of every kind */
    struct uni *uni;
    struct wpc wpc;
    struct tok_norm norm;
    struct tok_stage stage[TOK_MAX_STAGES];
    unsigned n_stages;
    bool unspell; /* pretokens are spelled in the alphabet, the model takes bytes */
    struct tok_dec dec;
    struct tok_set all;    /* every added token by its content */
    struct tok_set raw;    /* looked for before normalizing */
    struct tok_set normed; /* looked for after it */
    uint32_t prefix[TOK_MAX_TEMPLATE], suffix[TOK_MAX_TEMPLATE];
    unsigned n_prefix, n_suffix;
    int bos, eos;
    size_t max_token_bytes;
};

/* What tokenizer_words.c needs of an encoder: one thread's scratch of a model. */
struct tok_words;

struct tok_words *tok_words_new(const struct tok *tok);

struct tok_words *tok_words_free(struct tok_words *w);

void tok_words_trim(struct tok_words *w);

/* As bpe_begin(), bpe_step() and bpe_ids(), for the tokenizer's model. */
int tok_words_begin(struct tok_words *w, const uint8_t *pretoken, size_t n);

int tok_words_step(struct tok_words *w, size_t *budget);

const uint32_t *tok_words_ids(const struct tok_words *w, size_t *ret_n);

#endif
