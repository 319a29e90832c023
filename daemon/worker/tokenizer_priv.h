/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the tokenizer: what tokenizer_load.c builds, tokenizer.c
 * runs, tokenizer_norm.c and tokenizer_regex.c provide.
 *
 * The path of a text: added tokens that match the text as it is are cut out;
 * what lies between is normalized; added tokens that match normalized text
 * are cut out; what lies between goes through the pre-tokenizer's stages,
 * each cutting the pieces of the one before; each last piece is a word.
 */
#ifndef FDD_DAEMON_WORKER_TOKENIZER_PRIV_H
#define FDD_DAEMON_WORKER_TOKENIZER_PRIV_H

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <jansson.h>
#include <pcre2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/worker/bpe.h"

#define TOK_MAGIC        0x544f4b31u
#define TOK_MAX_STAGES   16
#define TOK_MAX_NORMS    16
#define TOK_MAX_TEMPLATE 64

/* A growable run of bytes. */
struct tok_buf {
    uint8_t *p;
    size_t n, cap;
};

/* Appends; -ENOMEM. p may be NULL with n 0. */
int tok_buf_put(struct tok_buf *b, const void *p, size_t n);

void tok_buf_fini(struct tok_buf *b);

/* A pattern; jit tells whether it was compiled to machine code. */
struct tok_rx {
    pcre2_code *code;
    pcre2_code *ascii; /* the same for ASCII subjects, faster; may be NULL */
    bool jit;
};

/*
 * Compiles a pattern written for Oniguruma (literal: a plain string), with
 * its meaning: classes are written out where PCRE2's differ. What would mean
 * something else in PCRE2 is refused. 0, -ENOTSUP, -EINVAL or -ENOMEM with a
 * reason in err.
 */
int tok_rx_compile(struct tok_rx *rx, const char *pattern, size_t n, bool literal,
    char *err, size_t err_bytes);

void tok_rx_fini(struct tok_rx *rx);

/* Where one thread matches. */
struct tok_rx_run {
    pcre2_match_data *md;
    pcre2_match_context *mc;
    pcre2_jit_stack *stack;
};

int tok_rx_run_init(struct tok_rx_run *run);

void tok_rx_run_fini(struct tok_rx_run *run);

/* Bounds the work of one match in a text of n bytes. */
void tok_rx_run_limit(struct tok_rx_run *run, size_t n);

/*
 * Looks in s[0 .. n), valid UTF-8 and said to be ASCII or not, from offset at.
 * 1: found at *ret_a .. *ret_b; 0: not found; -E2BIG, -ENOMEM.
 */
int tok_rx_find(const struct tok_rx *rx, struct tok_rx_run *run, const uint8_t *s,
    size_t n, bool ascii, size_t at, size_t *ret_a, size_t *ret_b);

/* Whether cp is a word character of those that came after Unicode 14. */
bool tok_rx_is_newer_word(uint32_t cp);

enum tok_norm_kind {
    TOK_NORM_NFC,
    TOK_NORM_NFD,
    TOK_NORM_NFKC,
    TOK_NORM_NFKD,
    TOK_NORM_LOWERCASE,
    TOK_NORM_STRIP,
    TOK_NORM_PREPEND,
    TOK_NORM_REPLACE
};

struct tok_norm_op {
    enum tok_norm_kind kind;
    bool left, right;    /* STRIP: which sides */
    struct tok_rx rx;    /* REPLACE: what */
    struct tok_buf text; /* PREPEND: what, REPLACE: by what */
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
};

void tok_norm_fini(struct tok_norm *norm);

void tok_norm_run_fini(struct tok_norm_run *run);

/* Whether normalizing s leaves it as it is; false where in doubt. */
bool tok_norm_is_inert(const struct tok_norm *norm, const uint8_t *s, size_t n);

/*
 * Where a text may be cut so that its parts can be normalized one by one: an
 * offset in (at, n], near at + want if possible; n if there is no place or
 * the normalizer cannot work in parts.
 */
size_t tok_norm_cut(const struct tok_norm *norm, const uint8_t *s, size_t n, size_t at,
    size_t want);

/* Appends the normal form of s to out. -ENOMEM, -E2BIG. */
int tok_norm_apply(const struct tok_norm *norm, struct tok_norm_run *run,
    const uint8_t *s, size_t n, struct tok_buf *out);

/* Reads one character of valid UTF-8 at s; returns its length. */
unsigned tok_utf8_get(const uint8_t *s, uint32_t *ret_cp);

bool tok_is_ascii(const uint8_t *s, size_t n);

/* White space and word characters as the reference's added tokens see them. */
bool tok_is_space(uint32_t cp);

bool tok_is_word(uint32_t cp);

enum tok_behavior {
    TOK_REMOVED,
    TOK_ISOLATED,
    TOK_MERGED_PREV,
    TOK_MERGED_NEXT,
    TOK_CONTIGUOUS
};

struct tok_stage {
    struct tok_rx rx; /* code NULL: pass the piece through */
    enum tok_behavior behavior;
    bool invert;
    bool prefix_space; /* give a piece a leading space first */
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

/*
 * What the two loader files share. ld_ functions return 0 or the negative
 * errno that tok_load() is to return, with the reason written.
 */
struct tok_ld {
    const char *file; /* named in messages */
    char *err;
    size_t err_bytes;
    struct tok *tok;
    bool byte_level;       /* the part being read has a ByteLevel */
    json_t *model, *added; /* borrowed */
    struct bpe_opts opts;
};

__attribute__((format(printf, 3, 4))) int
tok_ld_err(struct tok_ld *ld, int rc, const char *fmt, ...);

/* The model's vocabulary and merges, then added_tokens: tokenizer_vocab.c. */
int tok_ld_model(struct tok_ld *ld);

int tok_ld_added(struct tok_ld *ld);

struct tok {
    uint32_t magic;
    uint32_t n_ids;
    struct bpe *bpe;
    struct tok_norm norm;
    struct tok_stage stage[TOK_MAX_STAGES];
    unsigned n_stages;
    struct tok_set all;    /* every added token by its content */
    struct tok_set raw;    /* looked for before normalizing */
    struct tok_set normed; /* looked for after it */
    uint32_t prefix[TOK_MAX_TEMPLATE], suffix[TOK_MAX_TEMPLATE];
    unsigned n_prefix, n_suffix;
    int bos, eos;
    size_t max_token_bytes;
};

#endif
