/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The token table of a vocabulary of any kind; byte pair encoding: its merge
 * table, and the merging of one pretoken.
 *
 * A `struct bpe` is filled once by the loader, sealed, and never changed
 * again: any number of threads may read it. A `struct bpe_work` is the
 * scratch of one thread; it keeps its memory between pretokens, and a bounded
 * cache of short pretokens.
 *
 * Pretokens and tokens are plain bytes here. A pretoken starts as its bytes or, with
 * `chars`, as the characters of its UTF-8.
 *
 * The printable alphabet in which a byte-level tokenizer.json spells its bytes
 * exists in the file only; bpe_byte_to_char() and bpe_char_to_byte() translate.
 * A vocabulary entry that is not spelled in this alphabet cannot come out of a
 * byte-level text: it is kept as its UTF-8 bytes with BPE_TOK_RAW and no pretoken
 * ever matches it.
 *
 * Memory for a vocabulary of 128k tokens and as many merges: about 7 MB.
 */
#ifndef FDD_DAEMON_WORKER_BPE_H
#define FDD_DAEMON_WORKER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BPE_MAX_IDS         1048576u /* ids are below this */
#define BPE_MAX_TOKEN_BYTES 4096u
#define BPE_MAX_WORD_BYTES  (1u << 29)
#define BPE_MAX_AFFIX       16u
#define BPE_MAX_MERGES      8388608u

#define BPE_TOK_RAW         1u  /* bytes are UTF-8, not reachable by merging */
#define BPE_TOK_ADDED       2u  /* listed in added_tokens */
#define BPE_TOK_SPECIAL     4u  /* listed there as special */
#define BPE_TOK_VOCAB       8u  /* in the model's vocabulary */
#define BPE_TOK_LAST        16u /* with VOCAB: of equal entries the last is found */

struct bpe;
struct bpe_work;

struct bpe_opts {
    bool ignore_merges; /* a pretoken that is itself a token is that token */
    bool byte_fallback; /* unknown byte or character: tokens "<0xXX>", if all exist */
    bool fuse_unk;      /* a run of unknown ones is one unk token */
    bool chars;         /* pretokens start as characters, not as bytes */
    int64_t unk_id;     /* -1: unknown ones are dropped */
    /* With chars: written before each character but a pretoken's first, behind its
     * last; at most BPE_MAX_AFFIX bytes each, not with byte_fallback. */
    uint8_t prefix[BPE_MAX_AFFIX], suffix[BPE_MAX_AFFIX];
    uint8_t n_prefix, n_suffix;
};

/* Room for ids 0 .. n_ids - 1 and n_merges merges. NULL: out of memory. */
struct bpe *bpe_new(uint32_t n_ids, uint32_t n_merges);

struct bpe *bpe_free(struct bpe *bpe);

/*
 * Enters one token. -EINVAL: id or length out of range; -EEXIST: the id has
 * other bytes already (equal bytes join the flags); -ENOTUNIQ: another id of
 * the vocabulary has these bytes; -ENOMEM.
 */
int bpe_add_token(struct bpe *bpe, uint32_t id, const uint8_t *bytes, size_t n,
    unsigned flags);

/* Sets flags of a token that was entered, or takes them. */
void bpe_flag(struct bpe *bpe, uint32_t id, unsigned flags, bool on);

/* Makes room for n merges instead, of a table that has none yet. -ENOMEM. */
int bpe_room(struct bpe *bpe, uint32_t n);

/*
 * Enters the merge (left, right) -> id of priority rank, lower first. A
 * later merge of the same pair replaces the earlier one. -EINVAL: an id out
 * of range; -ENOSPC: more merges than bpe_new() made room for.
 */
int
bpe_add_merge(struct bpe *bpe, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);

struct bpe_merge {
    uint32_t left, right, rank, id;
};

/* The same of each in turn, faster: what the next need is fetched meanwhile. */
int bpe_add_merges(struct bpe *bpe, const struct bpe_merge *m, size_t n);

/* Ends the filling. -EINVAL: opts->unk_id out of range; -ENOMEM. */
int bpe_seal(struct bpe *bpe, const struct bpe_opts *opts);

/* The id of a vocabulary entry that is spelled in bytes, or -ENOENT. */
int bpe_find(const struct bpe *bpe, const uint8_t *bytes, size_t n);

/* The same of one that is BPE_TOK_RAW. */
int bpe_find_raw(const struct bpe *bpe, const uint8_t *bytes, size_t n);

/* An entry looked for: n bytes at s, spelled in bytes or raw. */
struct bpe_key {
    const uint8_t *s;
    size_t n;
    bool raw;
    uint32_t hash; /* set by bpe_find_all() */
    int id;        /* set by bpe_find_all(): as by bpe_find() or bpe_find_raw() */
};

/* Looks for each key, faster: memory is fetched for all at once. A few dozen. */
void bpe_find_all(const struct bpe *bpe, struct bpe_key *key, size_t n);

/* The id of "<0xXX>", or -1. After bpe_seal(). */
int bpe_fallback(const struct bpe *bpe, uint8_t byte);

/*
 * Of pretokens of characters: the end of the first part of s[at .. n) that can be
 * merged by itself with the same result; n > at.
 */
size_t bpe_cut(const struct bpe *bpe, const uint8_t *s, size_t n, size_t at);

/* Bytes and flags of a token; -ENOENT for an id that no token has. */
int bpe_token(const struct bpe *bpe, uint32_t id, const uint8_t **ret_bytes,
    size_t *ret_n, unsigned *ret_flags);

/* The code point that stands for a byte in tokenizer.json. */
uint32_t bpe_byte_to_char(uint8_t byte);

/* Its inverse; -1 for a code point that stands for no byte. */
int bpe_char_to_byte(uint32_t cp);

/* Scratch of one thread. NULL: out of memory. */
struct bpe_work *bpe_work_new(void);

struct bpe_work *bpe_work_free(struct bpe_work *w);

/* Gives back memory that a huge pretoken has taken, keeps the cached pretokens: between
 * texts. */
void bpe_work_trim(struct bpe_work *w);

/*
 * Starts on a pretoken, which must stay valid until it is done. The vocabulary
 * of one bpe_work must stay the same.
 * -E2BIG: longer than BPE_MAX_WORD_BYTES; -ENOMEM.
 */
int bpe_begin(struct bpe_work *w, const struct bpe *bpe, const uint8_t *pretoken, size_t n);

/*
 * Goes on for about `budget` elementary steps (a byte entered or a merge
 * tried), of which a pretoken of n bytes needs at most 4 n, and subtracts what
 * it used. 1: done; 0: more to do; -ENOMEM.
 */
int bpe_step(struct bpe_work *w, size_t *budget);

/* The tokens of the finished pretoken; valid until the next bpe_begin(). */
const uint32_t *bpe_ids(const struct bpe_work *w, size_t *ret_n);

#endif
