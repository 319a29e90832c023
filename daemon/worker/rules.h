/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of a request: biases, allowed ids, banned sequences, ids whose logprobs are
 * returned, a limit of reasoning tokens. Ingress collects them and packs them into the
 * words at the head of a sequence's entry in the device's pool (kernels/rules.h);
 * constant after.
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
    int32_t *words;                        /* [n_words] made by rls_pack() */
    int32_t n_words;
};

/* A sample's state of reasoning: inside it?, and its number of reasoning tokens. */
struct rls_reason {
    int32_t in, n;
};

struct rls *rls_new(int32_t vocab); /* NULL: out of memory */
struct rls *rls_free(struct rls *r);

/* Ids must be within the vocabulary. All return 0, -ENOMEM or the errors named. */
/* n at most FDK_MAX_BIAS; may be called once. -EEXIST: id *ret_id occurs twice. */
int rls_bias(struct rls *r, const struct fdp_bias *b, uint32_t n, uint32_t *ret_id);
int rls_allow(struct rls *r, const uint32_t *ids, uint32_t n);
/* Ban a sequence of 1 to FDK_MAX_BAN_LEN ids. -ENOSPC: too many bans or ids. */
int rls_ban(struct rls *r, const uint32_t *ids, uint32_t n);
/* n at most FDK_MAX_CHOSEN. */
void rls_choose(struct rls *r, const uint32_t *ids, uint32_t n);
void rls_reasoning(struct rls *r, const struct fdp_reasoning *p);
/* Set words and n_words; call after all the functions above. */
int rls_pack(struct rls *r);

/* Does the prompt end inside reasoning, so that the output continues it? */
int rls_begins_inside(const struct rls *r, const uint32_t *prompt, int32_t n);
/* Count one more token of a sample. */
static inline void
rls_took(const struct rls *r, struct rls_reason *s, uint32_t id)
{
    if (r->max_reason >= 0)
        fdk_reason_took(r->open_id, r->close_id, (int32_t)id, &s->in, &s->n);
}

#endif
