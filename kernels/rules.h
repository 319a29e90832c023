/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules of a row restrict its choice of tokens beyond struct fdk_row. A row with rules
 * has an entry in a pool, fdk_rules_words() words of 32 bits: struct fdk_rules, then its
 * lists, each at the word index that the struct gives. The host writes an entry when the
 * row is new on the device; from then on the device updates `recent` and the reasoning
 * counts, because the host lags by the steps in flight.
 *
 * The functions define the rules for the host and for every backend.
 */
#ifndef FDD_KERNELS_RULES_H
#define FDD_KERNELS_RULES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define FDK_BOTH static __host__ __device__ inline
#else
#define FDK_BOTH static inline
#endif

#define FDK_MAX_BIAS    1024 /* ids with a bias */
#define FDK_MAX_BAN_LEN 32   /* ids of a banned sequence */
#define FDK_MAX_BANS    768  /* banned sequences */
#define FDK_MAX_BAN_IDS 8192 /* ids of all banned sequences */
#define FDK_MAX_CHOSEN  64   /* ids whose logprobs are returned */

struct fdk_rules {
    int32_t n_bias, bias; /* ids in ascending order, each once, then their biases */
    int32_t allowed;    /* bit mask: bit id % 32 of word id / 32 is 1 if id may be chosen.
                             0: no mask, all ids may. A grammar's mask will be a second
                             one: both must allow an id */
    int32_t n_ban, ban; /* n_ban + 1 words: where each sequence begins, counted from the
                             entry's start, and where the last ends */
    int32_t n_chosen, chosen;
    /* A row has at most max_reason tokens between open_id and close_id; then close_id is
     * forced. max_reason -1: no limit. */
    int32_t open_id, close_id, max_reason;
    int32_t n_reason, in_reason; /* such tokens so far; 1 after open_id until close_id */
    int32_t recent[FDK_MAX_BAN_LEN]; /* the token at position p is at p %
                                        FDK_MAX_BAN_LEN */
};
#define FDK_RULES_HEAD ((int32_t)(sizeof(struct fdk_rules) / 4))

/* Words of an entry with the longest lists; a multiple of 64. */
FDK_BOTH size_t
fdk_rules_words(int32_t V)
{
    size_t n = (size_t)FDK_RULES_HEAD + 2 * FDK_MAX_BIAS + ((size_t)V + 31) / 32 +
        FDK_MAX_BANS + 1 + FDK_MAX_BAN_IDS + FDK_MAX_CHOSEN;
    return (n + 63) / 64 * 64;
}

/* Updates *in and *n for a sampled token; reasoning is between open_id and close_id. */
FDK_BOTH void
fdk_reason_took(int32_t open_id, int32_t close_id, int32_t token, int32_t *in, int32_t *n)
{
    if (token == close_id)
        *in = 0;
    else if (*in != 0)
        *n += *n < INT32_MAX;
    else if (token == open_id)
        *in = 1;
}

/* Updates the rules for the token at position pos. now: r, or a copy of it that is faster
 * to read. */
FDK_BOTH void
fdk_rules_took(struct fdk_rules *r, const struct fdk_rules *now, int32_t pos, int32_t token)
{
    int32_t in = now->in_reason, n = now->n_reason;
    r->recent[pos % FDK_MAX_BAN_LEN] = token;
    if (now->max_reason < 0)
        return;
    fdk_reason_took(now->open_id, now->close_id, token, &in, &n);
    r->in_reason = in;
    r->n_reason = n;
}

/* The one id that may come next; -1: no id is forced. */
FDK_BOTH int32_t
fdk_rules_forced(const struct fdk_rules *r)
{
    return r->max_reason >= 0 && r->in_reason != 0 && r->n_reason >= r->max_reason
        ? r->close_id
        : -1;
}

/* The id that banned sequence i forbids next in a row of len tokens; -1: none. */
FDK_BOTH int32_t
fdk_rules_banned(const struct fdk_rules *r, const int32_t *entry, int32_t i, int32_t len)
{
    int32_t end = entry[r->ban + i + 1], n = end - entry[r->ban + i] - 1;
    if (n > len)
        return -1;
    for (int32_t j = 1; j <= n; j++)
        if (r->recent[(len - j) % FDK_MAX_BAN_LEN] != entry[end - 1 - j])
            return -1;
    return entry[end - 1];
}

FDK_BOTH int
fdk_rules_allow(const struct fdk_rules *r, const int32_t *entry, int32_t id)
{
    return r->allowed == 0 || ((uint32_t)entry[r->allowed + id / 32] >> id % 32 & 1) != 0;
}

/* Do the rules change logits? */
FDK_BOTH int
fdk_rules_active(const struct fdk_rules *r)
{
    return r->n_bias > 0 || r->allowed != 0 || r->n_ban > 0;
}

#endif
