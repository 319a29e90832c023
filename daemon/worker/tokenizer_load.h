/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the loader's files. Functions return 0 or the negative errno that
 * tok_load() returns, with the reason already written to err.
 */
#ifndef FDD_DAEMON_WORKER_TOKENIZER_LOAD_H
#define FDD_DAEMON_WORKER_TOKENIZER_LOAD_H

#include "daemon/worker/tokenizer_priv.h"

/* A large value of the file, kept as text: jansson does not parse it. */
struct tok_value {
    const char *s;
    size_t n; /* 0: absent */
    size_t n_items;
};

struct tok_ld {
    const char *file;   /* named in messages */
    const char *config; /* path of tokenizer_config.json */
    const char *tokens; /* name of the file of the tokens, for other files' messages */
    char *err;
    size_t err_bytes;
    struct tok *tok;
    json_t *model, *added;          /* members of the file, borrowed */
    struct tok_value vocab, merges; /* of the model */
    bool tekken;                    /* the file is a tekken.json; vocab is its member
                                       "vocab" */
    bool byte_level;                /* the pre-tokenizer has ByteLevel */
    bool spelled;                   /* and the stage of it that spells bytes */
    bool dec_bytes;                 /* the decoder has ByteLevel */
    struct bpe_opts opts;
    struct tok_buf scratch;
};

__attribute__((format(printf, 3, 4))) int
tok_ld_err(struct tok_ld *ld, int rc, const char *fmt, ...);

int tok_ld_no_memory(struct tok_ld *ld);

/* ---- members of an object: tokenizer_load_member.c ---- */

const char *tok_ld_type(const json_t *o);

/* Reads a boolean member; *ret is `missing` if it is absent or not a boolean. */
int
tok_ld_bool(struct tok_ld *ld, const json_t *o, const char *name, bool missing, bool *ret);

/* Reads a member of one character. */
int tok_ld_char(struct tok_ld *ld, const json_t *o, const char *name, uint8_t *ret,
    uint8_t *ret_n);

/* Reads a text of at most TOK_MAX_TEXT bytes. */
int tok_ld_text(struct tok_ld *ld, const json_t *o, const char *name, struct tok_buf *ret);

/* Reads "pattern": {"String": ...} or {"Regex": ...}; a String goes to *ret_text if
 * that is not NULL. */
int tok_ld_pattern(struct tok_ld *ld, const json_t *o, struct tok_rx *rx,
    struct tok_buf *ret_text);

/* Appends decoded base64, padded or not, to ret; -EINVAL, -ENOMEM.
 * tokenizer_load_norm.c */
int tok_base64(const char *s, size_t n, struct tok_buf *ret);

/* The array in a Sequence that is nested `depth` deep. */
int tok_ld_list(struct tok_ld *ld, const json_t *o, const char *name, const char *what,
    int depth, json_t **ret);

/* ---- members of a tokenizer.json ---- */

int tok_ld_normalizer(struct tok_ld *ld, const json_t *o, int depth);

int tok_ld_pre_tokenizer(struct tok_ld *ld, const json_t *o, int depth);

/* Adds the stages that the model needs. Call after the model. */
int tok_ld_stages(struct tok_ld *ld);

int tok_ld_post_processor(struct tok_ld *ld, const json_t *o, int depth);

/* o may be NULL: no decoder. Call after added tokens. */
int tok_ld_decoder(struct tok_ld *ld, const json_t *o);

/* Whether the decoder begins with ByteLevel. */
bool tok_ld_is_bytes(const json_t *decoder);

/* Reads the model's vocabulary and options: tokenizer_vocab.c. */
int tok_ld_model(struct tok_ld *ld);

/* Reads added_tokens and seals the vocabulary: tokenizer_added.c. */
int tok_ld_added(struct tok_ld *ld);

/* Enters added_tokens, for which the sets have room. */
int tok_ld_added_enter(struct tok_ld *ld);

/* ---- tokens as the file spells them: tokenizer_put.c ---- */

/* Adds a token given by its spelling in the file. */
int tok_ld_put(struct tok_ld *ld, const uint8_t *s, size_t n, uint32_t id, unsigned flags);

/* The id of a vocabulary entry by its spelling in the file, or -ENOENT. */
int tok_ld_find(struct tok_ld *ld, const char *s, size_t n);

/*
 * Turns the spelling of a token in the file into its bytes: characters of the byte
 * alphabet into the bytes they stand for or, if there is any other character, the text
 * itself (*ret_raw is then true). out has room for n bytes. For BPE of bytes.
 */
size_t tok_ld_bytes(const uint8_t *s, size_t n, uint8_t *out, bool *ret_raw);

/* ---- added tokens: tokenizer_added.c ---- */

/* Makes room for n entries in each set of added tokens. */
int tok_ld_sets(struct tok_ld *ld, size_t n);

/* Adds an added token to a set: `all`, and raw or normed. */
int tok_ld_set_put(struct tok_ld *ld, struct tok_set *set, const struct tok_added *t,
    const void *bytes, size_t n);

/* Sorts the sets and seals the vocabulary. */
int tok_ld_seal(struct tok_ld *ld);

/* ---- merges: tokenizer_merges.c ---- */

/* Adds the n merges of ld->merges, which is an array. */
int tok_ld_merges(struct tok_ld *ld, size_t n);

/* Merges that are not added to the vocabulary yet. */
struct tok_merges {
    struct bpe_merge *m;
    size_t n, cap;
};

/* Collects the merges of two tokens that make token id; chars: only those that split it
 * between characters. */
int tok_ld_halves(struct tok_ld *ld, uint32_t id, uint32_t rank, bool chars,
    struct tok_merges *to);

/* Adds the merges to a vocabulary that has none, and frees them. */
int tok_ld_enter(struct tok_ld *ld, struct tok_merges *m);

/* ---- files of other formats: tokenizer_ranks.c, tokenizer_spm.c ---- */

/* Adds a special token, searched in the text before normalization. */
int tok_ld_special(struct tok_ld *ld, uint32_t id, const char *s, size_t n);

/* ld->vocab is the file's array "vocab"; root has the other members. */
int tok_ld_tekken(struct tok_ld *ld, const json_t *root);

int tok_ld_tiktoken(struct tok_ld *ld, const char *s, size_t n);

/* ld->added has the added tokens that other files list. */
int tok_ld_sentencepiece(struct tok_ld *ld, const uint8_t *s, size_t n);

#endif
