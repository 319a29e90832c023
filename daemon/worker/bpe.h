/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The token table of a vocabulary, of any tokenizer model; and byte pair encoding: the
 * merge table and the merging of one pretoken.
 *
 * A `struct bpe` is filled once by the loader, sealed, and constant after that: any
 * number of threads may read it. A `struct bpe_work` is the scratch of one thread; it
 * keeps its memory, and a bounded cache of short pretokens, from one pretoken to the
 * next.
 *
 * Pretokens and tokens are plain bytes here. A pretoken starts as its bytes or, with
 * `chars`, as the characters of its UTF-8.
 *
 * A byte-level tokenizer.json spells bytes in a printable alphabet, which is used only in
 * that file; bpe_byte_to_char() and bpe_char_to_byte() translate. A vocabulary entry that
 * is not spelled in this alphabet cannot result from byte-level text: it is kept as its
 * UTF-8 bytes with BPE_TOK_RAW and never matches a pretoken.
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
#define BPE_TOK_ADDED       2u  /* in added_tokens */
#define BPE_TOK_SPECIAL     4u  /* in added_tokens, as special */
#define BPE_TOK_VOCAB       8u  /* in the model's vocabulary */
#define BPE_TOK_LAST        16u /* with VOCAB: the last of equal entries is found */

struct bpe;
struct bpe_work;

struct bpe_opts {
    bool ignore_merges; /* a pretoken that is itself a token is that token */
    bool byte_fallback; /* unknown byte or character: becomes tokens "<0xXX>", if all
                           exist */
    bool fuse_unk;      /* a run of unknown bytes or characters becomes one unk token */
    bool chars;         /* pretokens start as characters, not as bytes */
    int64_t unk_id;     /* -1: unknown bytes or characters are dropped */
    /* With chars: prefix is written before each character but a pretoken's first, suffix
     * after its last; at most BPE_MAX_AFFIX bytes each. Not with byte_fallback. */
    uint8_t prefix[BPE_MAX_AFFIX], suffix[BPE_MAX_AFFIX];
    uint8_t n_prefix, n_suffix;
};

/* Room for ids 0 .. n_ids - 1 and n_merges merges. NULL: out of memory. */
struct bpe *bpe_new(uint32_t n_ids, uint32_t n_merges);

struct bpe *bpe_free(struct bpe *bpe);

/*
 * Enters one token. If the id has the same bytes already, the flags are added. -EINVAL:
 * id or length out of range; -EEXIST: the id has other bytes; -ENOTUNIQ: another id of
 * the vocabulary has these bytes; -ENOMEM.
 */
int bpe_add_token(struct bpe *bpe, uint32_t id, const uint8_t *bytes, size_t n,
    unsigned flags);

/* Sets (on) or clears flags of an entered token. */
void bpe_flag(struct bpe *bpe, uint32_t id, unsigned flags, bool on);

/* Resizes the empty merge table for n merges. -ENOMEM. */
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

/* Enters n merges in turn, faster than one by one: cells are prefetched. Errors as
 * above. */
int bpe_add_merges(struct bpe *bpe, const struct bpe_merge *m, size_t n);

/* Ends filling. -EINVAL: opts->unk_id out of range; -ENOMEM. */
int bpe_seal(struct bpe *bpe, const struct bpe_opts *opts);

/* The id of the vocabulary entry with these bytes (not BPE_TOK_RAW), or -ENOENT. */
int bpe_find(const struct bpe *bpe, const uint8_t *bytes, size_t n);

/* The id of the BPE_TOK_RAW entry with these bytes, or -ENOENT. */
int bpe_find_raw(const struct bpe *bpe, const uint8_t *bytes, size_t n);

/* One lookup: the entry with the n bytes at s, BPE_TOK_RAW if raw. */
struct bpe_key {
    const uint8_t *s;
    size_t n;
    bool raw;
    uint32_t hash; /* set by bpe_find_all() */
    int id;        /* set by bpe_find_all(): the result of bpe_find() or bpe_find_raw() */
};

/* Looks up n keys, a few dozen at most, faster than one by one: memory is prefetched for
 * all of them at once. */
void bpe_find_all(const struct bpe *bpe, struct bpe_key *key, size_t n);

/* The id of "<0xXX>", or -1. After bpe_seal(). */
int bpe_fallback(const struct bpe *bpe, uint8_t byte);

/*
 * For pretokens that start as characters (opts.chars): the end of the first part of s[at
 * .. n) that can be merged separately with the same result; n > at.
 */
size_t bpe_cut(const struct bpe *bpe, const uint8_t *s, size_t n, size_t at);

/* Bytes and flags of a token; -ENOENT for an id that no token has. */
int bpe_token(const struct bpe *bpe, uint32_t id, const uint8_t **ret_bytes,
    size_t *ret_n, unsigned *ret_flags);

/* The code point that stands for a byte in tokenizer.json. */
uint32_t bpe_byte_to_char(uint8_t byte);

/* Inverse of bpe_byte_to_char(); -1: cp stands for no byte. */
int bpe_char_to_byte(uint32_t cp);

/* Scratch of one thread. NULL: out of memory. */
struct bpe_work *bpe_work_new(void);

struct bpe_work *bpe_work_free(struct bpe_work *w);

/* Call between texts: frees memory that a huge pretoken needed, keeps the cached
 * pretokens. */
void bpe_work_trim(struct bpe_work *w);

/*
 * Begins a pretoken, which must stay valid until it is done. One bpe_work must always be
 * used with the same vocabulary. -E2BIG: longer than BPE_MAX_WORD_BYTES; -ENOMEM.
 */
int bpe_begin(struct bpe_work *w, const struct bpe *bpe, const uint8_t *pretoken, size_t n);

/*
 * Continues for about *budget elementary steps (a byte entered or a merge tried) and
 * subtracts the steps taken. A pretoken of n bytes needs at most 4 n. Returns 1 when
 * done, 0 if there is more to do, or -ENOMEM.
 */
int bpe_step(struct bpe_work *w, size_t *budget);

/* The tokens of the finished pretoken; valid until the next bpe_begin(). */
const uint32_t *bpe_ids(const struct bpe_work *w, size_t *ret_n);

#endif
