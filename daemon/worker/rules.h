/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of a request: biases, allowed ids, banned sequences, ids whose logprobs are
 * wanted, a bound of reasoning. Ingress collects them and packs them into the words that
 * a sequence's entry of the device's pool begins with (kernels/rules.h); constant after.
 */
#ifndef FDD_DAEMON_WORKER_RULES_H
#define FDD_DAEMON_WORKER_RULES_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/rules.h"
#include "libclient/fdproto.h"

struct rls {
    uint32_t magic;
#define RLS_MAGIC 0x524c5331u
    int32_t vocab;
    int32_t n_bias, n_allowed, n_ban, n_ban_ids, n_chosen;
    struct fdp_bias *bias; /* in ascending order of ids */
    uint32_t *allowed;     /* bitmap of the vocabulary; NULL: all */
    int32_t *ban_end;      /* [FDK_MAX_BANS] ends of the sequences in ban_ids */
    int32_t *ban_ids;      /* [FDK_MAX_BAN_IDS] */
    uint32_t chosen[FDK_MAX_CHOSEN];
    int32_t open_id, close_id, max_reason; /* max_reason -1: none */
    int32_t *words;                        /* [n_words] of rls_pack() */
    int32_t n_words;
};

/* What a sample has of its reasoning. */
struct rls_reason {
    int32_t in, n;
};

struct rls *rls_new(int32_t vocab); /* NULL: no memory */
struct rls *rls_free(struct rls *r);

/* Ids are within the vocabulary. All return 0, -ENOMEM or what is said. */
/* n at most FDK_MAX_BIAS, once. -EEXIST: *ret_id comes twice. */
int rls_bias(struct rls *r, const struct fdp_bias *b, uint32_t n, uint32_t *ret_id);
int rls_allow(struct rls *r, const uint32_t *ids, uint32_t n);
/* A sequence of 1 to FDK_MAX_BAN_LEN ids. -ENOSPC: no room for it. */
int rls_ban(struct rls *r, const uint32_t *ids, uint32_t n);
/* n at most FDK_MAX_CHOSEN. */
void rls_choose(struct rls *r, const uint32_t *ids, uint32_t n);
void rls_reasoning(struct rls *r, const struct fdp_reasoning *p);
/* After all of these: words and n_words. */
int rls_pack(struct rls *r);

/* Does the reasoning of an output begin within the prompt? */
int rls_begins_inside(const struct rls *r, const uint32_t *prompt, int32_t n);
/* A sample gets one more token. */
static inline void
rls_took(const struct rls *r, struct rls_reason *s, uint32_t id)
{
    if (r->max_reason >= 0)
        fdk_reason_took(r->open_id, r->close_id, (int32_t)id, &s->in, &s->n);
}

#endif
