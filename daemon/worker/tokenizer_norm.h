/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Normalizers, and classes of characters. */
#ifndef FDD_DAEMON_WORKER_TOKENIZER_NORM_H
#define FDD_DAEMON_WORKER_TOKENIZER_NORM_H

#include "daemon/worker/tokenizer_rx.h"
#include "daemon/worker/tokenizer_utf8.h"

#define TOK_MAX_NORMS 32

/* Limit of bytes that a text of n bytes may grow to; U+FDFA grows elevenfold. */
#define TOK_NORM_LIMIT(n) ((n)*18u + 65536u)

enum tok_norm_kind {
    TOK_NORM_NFC,
    TOK_NORM_NFD,
    TOK_NORM_NFKC,
    TOK_NORM_NFKD,
    TOK_NORM_LOWERCASE,
    TOK_NORM_STRIP,
    TOK_NORM_PREPEND,
    TOK_NORM_REPLACE,
    TOK_NORM_STRIP_ACCENTS,
    TOK_NORM_PRECOMPILED,
    TOK_NORM_BERT_CLEAN,   /* clean_text of BertNormalizer */
    TOK_NORM_BERT_CHINESE, /* handle_chinese_chars */
    TOK_NORM_BERT_MARKS,   /* strip_accents, after NFD */
    TOK_NORM_SENTENCEPIECE /* as in a tokenizer.model's normalizer_spec */
};

/* A precompiled_charsmap: a double array that maps text to its replacement. */
struct tok_charsmap {
    uint32_t *cell;
    size_t n_cells;
    uint8_t *text; /* replacements, each NUL terminated */
    size_t n_text;
    uint8_t keep[128]; /* by ASCII character: not replaced if ASCII follows, or at the
                          end */
};

struct tok_norm_op {
    enum tok_norm_kind kind;
    bool left, right;    /* STRIP: which sides */
    struct tok_rx rx;    /* REPLACE: the pattern searched for */
    struct tok_buf find; /* REPLACE: the text searched for; n 0: rx is used */
    struct tok_buf text; /* PREPEND: the prefix, REPLACE: the replacement */
    struct tok_charsmap map;
    bool dummy_prefix, one_space, escape; /* SENTENCEPIECE */
};

struct tok_norm {
    struct tok_norm_op op[TOK_MAX_NORMS];
    unsigned n_ops;
};

/* Scratch of a thread for tok_norm_run(). */
struct tok_norm_run {
    struct tok_buf a, b;
    int32_t *cp;
    size_t cap_cp;
    struct tok_rx_run *rx;
    bool later;   /* s is not the beginning of the text: nothing is prepended */
    bool cut_off; /* set if the beginning of the text is removed */
};

void tok_norm_fini(struct tok_norm *norm);

void tok_norm_run_fini(struct tok_norm_run *run);

/* Whether normalization surely leaves s unchanged; false if in doubt. */
bool tok_norm_is_inert(const struct tok_norm *norm, const uint8_t *s, size_t n);

/*
 * Where a text may be cut so that its pieces can be normalized separately: an offset in
 * (at, n], near at + want if possible; n if there is no such offset or the normalizer
 * cannot work on pieces.
 */
size_t tok_norm_cut(const struct tok_norm *norm, const uint8_t *s, size_t n, size_t at,
    size_t want);

/* Appends the normal form of s to out. -ENOMEM, -E2BIG. */
int tok_norm_apply(const struct tok_norm *norm, struct tok_norm_run *run,
    const uint8_t *s, size_t n, struct tok_buf *out);

/* White space and word characters as the reference's added tokens define them. */
bool tok_is_space(uint32_t cp);

bool tok_is_word(uint32_t cp);

/* Punctuation as Punctuation and BertPreTokenizer define it. */
bool tok_is_punct(uint32_t cp);

/* Sorted ranges of characters. */
struct tok_range {
    uint32_t lo, hi;
};

bool tok_in(const struct tok_range *r, size_t n, uint32_t cp);

/* tokenizer_tables.c */
extern const struct tok_range tok_tab_bert_drop[], tok_tab_bert_mark[], tok_tab_mark[],
    tok_tab_punct[], tok_tab_extend[], tok_tab_prepend[];
extern const size_t tok_n_bert_drop, tok_n_bert_mark, tok_n_mark, tok_n_punct,
    tok_n_extend, tok_n_prepend;

/*
 * Internal. Unicode normal forms: tokenizer_norm_form.c; normalizers of single
 * characters: tokenizer_norm_char.c; charsmaps: tokenizer_norm_map.c.
 */
bool tok_norm_form_inert(enum tok_norm_kind kind, const uint8_t *s, size_t n);

int tok_norm_form(enum tok_norm_kind kind, struct tok_norm_run *run, const uint8_t *s,
    size_t n, struct tok_buf *out);

int tok_norm_chars(enum tok_norm_kind kind, struct tok_norm_run *run, const uint8_t *s,
    size_t n, struct tok_buf *out);

int tok_norm_map(const struct tok_charsmap *map, struct tok_norm_run *run,
    const uint8_t *s, size_t n, struct tok_buf *out);

int tok_norm_sentencepiece(const struct tok_norm_op *op, struct tok_norm_run *run,
    const uint8_t *s, size_t n, struct tok_buf *out);

/*
 * Reads a charsmap from the bytes of blob. -EINVAL with a reason in *ret_why; -ENOMEM.
 */
int tok_charsmap_init(struct tok_charsmap *map, const uint8_t *blob, size_t n,
    const char **ret_why);

void tok_charsmap_fini(struct tok_charsmap *map);

#endif
