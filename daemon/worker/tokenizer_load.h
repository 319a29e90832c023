/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What the loader's files share. Functions return 0 or the negative errno that
 * tok_load() is to return, with the reason written.
 */
#ifndef FDD_DAEMON_WORKER_TOKENIZER_LOAD_H
#define FDD_DAEMON_WORKER_TOKENIZER_LOAD_H

#include "daemon/worker/tokenizer_priv.h"

/* What is large in a file, as text: jansson does not see it. */
struct tok_value {
    const char *s;
    size_t n; /* 0: not there */
    size_t n_items;
};

struct tok_ld {
    const char *file; /* named in messages */
    char *err;
    size_t err_bytes;
    struct tok *tok;
    json_t *model, *added;          /* borrowed */
    struct tok_value vocab, merges; /* of the model */
    bool tekken;                    /* it is a tekken.json, vocab its "vocab" */
    bool byte_level;                /* the pre-tokenizer has ByteLevel, */
    bool spelled;                   /* and its stage that spells */
    bool dec_bytes;                 /* the decoder has ByteLevel */
    struct bpe_opts opts;
    struct tok_buf scratch;
};

__attribute__((format(printf, 3, 4))) int
tok_ld_err(struct tok_ld *ld, int rc, const char *fmt, ...);

int tok_ld_no_memory(struct tok_ld *ld);

/* ---- members of an object: tokenizer_load_member.c ---- */

const char *tok_ld_type(const json_t *o);

/* A boolean member; `missing` where it is absent or refused. */
int
tok_ld_bool(struct tok_ld *ld, const json_t *o, const char *name, bool missing, bool *ret);

/* A member of one character. */
int tok_ld_char(struct tok_ld *ld, const json_t *o, const char *name, uint8_t *ret,
    uint8_t *ret_n);

/* A text of at most TOK_MAX_TEXT bytes. */
int tok_ld_text(struct tok_ld *ld, const json_t *o, const char *name, struct tok_buf *ret);

/* "pattern": {"String": ...} or {"Regex": ...}; a text goes to *ret_text, if not NULL. */
int tok_ld_pattern(struct tok_ld *ld, const json_t *o, struct tok_rx *rx,
    struct tok_buf *ret_text);

/* Decodes base64, padded or not, behind ret; -EINVAL, -ENOMEM. tokenizer_load_norm.c */
int tok_base64(const char *s, size_t n, struct tok_buf *ret);

/* The array in a Sequence so deep in others. */
int tok_ld_list(struct tok_ld *ld, const json_t *o, const char *name, const char *what,
    int depth, json_t **ret);

/* ---- members of a tokenizer.json ---- */

int tok_ld_normalizer(struct tok_ld *ld, const json_t *o, int depth);

int tok_ld_pre_tokenizer(struct tok_ld *ld, const json_t *o, int depth);

/* After the model: stages that the model needs. */
int tok_ld_stages(struct tok_ld *ld);

int tok_ld_post_processor(struct tok_ld *ld, const json_t *o, int depth);

/* o may be NULL: none. After added tokens. */
int tok_ld_decoder(struct tok_ld *ld, const json_t *o);

/* Whether a decoder begins with ByteLevel. */
bool tok_ld_is_bytes(const json_t *decoder);

/* The model's vocabulary and the like: tokenizer_vocab.c. */
int tok_ld_model(struct tok_ld *ld);

/* added_tokens; seals the vocabulary: tokenizer_added.c. */
int tok_ld_added(struct tok_ld *ld);

/* ---- tokens as the file spells them: tokenizer_put.c ---- */

/* Enters a token as the file spells it. */
int tok_ld_put(struct tok_ld *ld, const uint8_t *s, size_t n, uint32_t id, unsigned flags);

/* The id of a vocabulary entry by its spelling in the file, or -ENOENT. */
int tok_ld_find(struct tok_ld *ld, const char *s, size_t n);

/*
 * Turns the spelling of a token in the file into its bytes: characters of the
 * byte alphabet into the bytes they stand for or, if there is any other, the
 * text itself (*ret_raw). out has n bytes. For BPE of bytes.
 */
size_t tok_ld_bytes(const uint8_t *s, size_t n, uint8_t *out, bool *ret_raw);

/* ---- added tokens: tokenizer_added.c ---- */

/* Room for n entries in each set of added tokens. */
int tok_ld_sets(struct tok_ld *ld, size_t n);

/* Enters an added token in `all`, and in raw or normed. */
int tok_ld_set_put(struct tok_ld *ld, struct tok_set *set, const struct tok_added *t,
    const void *bytes, size_t n);

/* Sorts the sets and seals the vocabulary. */
int tok_ld_seal(struct tok_ld *ld);

/* ---- merges: tokenizer_merges.c ---- */

/* Enters the n merges of ld->merges, which is an array. */
int tok_ld_merges(struct tok_ld *ld, size_t n);

/* Merges that are not entered yet. */
struct tok_merges {
    struct bpe_merge *m;
    size_t n, cap;
};

/* Adds the ways to write a token as two others, of whole characters or bytes. */
int tok_ld_halves(struct tok_ld *ld, uint32_t id, uint32_t rank, bool chars,
    struct tok_merges *to);

/* Enters them into a vocabulary that has none, and frees them. */
int tok_ld_enter(struct tok_ld *ld, struct tok_merges *m);

/* ---- files of other formats: tokenizer_ranks.c, tokenizer_spm.c ---- */

/* A special token, looked for in the text as it is. */
int tok_ld_special(struct tok_ld *ld, uint32_t id, const char *s, size_t n);

/* ld->vocab is its array "vocab", root has the other members. */
int tok_ld_tekken(struct tok_ld *ld, const json_t *root);

int tok_ld_tiktoken(struct tok_ld *ld, const char *s, size_t n);

int tok_ld_sentencepiece(struct tok_ld *ld, const uint8_t *s, size_t n);

#endif
