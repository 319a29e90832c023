/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The Unigram model: of all ways to divide a pretoken into tokens, the one with the
 * highest sum of scores. Sums are doubles added from the pretoken's start, and of equal
 * ones the first found is kept, as in the reference.
 *
 * A `struct uni` is filled once and then read by any thread; a `struct uni_work` is the
 * scratch of one thread.
 */
#ifndef FDD_DAEMON_WORKER_UNIGRAM_H
#define FDD_DAEMON_WORKER_UNIGRAM_H

#include "daemon/worker/bpe.h"

struct uni;
struct uni_work;

/* Make a model for ids below n_ids. NULL: out of memory. */
struct uni *uni_new(uint32_t n_ids);

struct uni *uni_free(struct uni *uni);

/* Add a vocabulary entry; each id once, valid UTF-8, not empty. 0 or -EINVAL. */
int uni_add(struct uni *uni, uint32_t id, double score);

/*
 * Ends the filling. voc is sealed and has the entries' bytes; it must outlive uni.
 * -EINVAL: an id is out of range or not in voc; -ENOMEM.
 */
int uni_seal(struct uni *uni, const struct bpe *voc, uint32_t unk_id, bool byte_fallback);

/* Round sums to floats, as SentencePiece does. Call before the first pretoken. */
void uni_single(struct uni *uni);

struct uni_work *uni_work_new(void);

struct uni_work *uni_work_free(struct uni_work *w);

/* As bpe_work_trim(). */
void uni_work_trim(struct uni_work *w);

/* As bpe_begin(), bpe_step() and bpe_ids(). A step is one character. */
int uni_begin(struct uni_work *w, const struct uni *uni, const uint8_t *pretoken, size_t n);

int uni_step(struct uni_work *w, size_t *budget);

const uint32_t *uni_ids(const struct uni_work *w, size_t *ret_n);

#endif
