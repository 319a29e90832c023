/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"

_Static_assert(FDP_MAX_BIAS <= FDK_MAX_BIAS && FDP_MAX_BAD_IDS <= FDK_MAX_BAN_LEN &&
        FDP_MAX_BAD * FDP_MAX_BAD_IDS <= FDK_MAX_BAN_IDS &&
        FDP_MAX_BAD * 3 <= FDK_MAX_BANS && FDP_MAX_LOGPROB_IDS <= FDK_MAX_CHOSEN,
    "an entry holds the rules of any request: each bad word is two sequences");

struct rls *
rls_new(int32_t vocab)
{
    struct rls *r;

    OBJ_ALLOC(r, RLS_MAGIC);
    if (r == NULL)
        return NULL;
    r->vocab = vocab;
    r->max_reason = -1;
    return r;
}

struct rls *
rls_free(struct rls *r)
{
    if (r == NULL)
        return NULL;
    free(r->bias);
    free(r->allowed);
    free(r->ban_end);
    free(r->ban_ids);
    free(r->words);
    OBJ_FREE(r, RLS_MAGIC);
    return NULL;
}

static int
rls_by_id(const void *a, const void *b)
{
    uint32_t x = ((const struct fdp_bias *)a)->id, y = ((const struct fdp_bias *)b)->id;

    return (x > y) - (x < y);
}

int
rls_bias(struct rls *r, const struct fdp_bias *b, uint32_t n, uint32_t *ret_id)
{
    OBJ_CHECK(r, RLS_MAGIC);
    ASSERT(n > 0 && n <= FDK_MAX_BIAS && r->bias == NULL);
    r->bias = mem_array(n, sizeof(*b));
    if (r->bias == NULL)
        return -ENOMEM;
    memcpy(r->bias, b, (size_t)n * sizeof(*b));
    qsort(r->bias, n, sizeof(*b), rls_by_id);
    r->n_bias = (int32_t)n;
    for (uint32_t i = 1; i < n; i++) {
        if (r->bias[i].id != r->bias[i - 1].id)
            continue;
        *ret_id = r->bias[i].id;
        return -EEXIST;
    }
    return 0;
}

static size_t
rls_bitmap_words(const struct rls *r)
{
    return ((size_t)r->vocab + 31) / 32;
}

int
rls_allow(struct rls *r, const uint32_t *ids, uint32_t n)
{
    OBJ_CHECK(r, RLS_MAGIC);
    ASSERT(r->allowed == NULL);
    r->allowed = mem_array(rls_bitmap_words(r), sizeof(uint32_t));
    if (r->allowed == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        r->allowed[ids[i] / 32] |= 1u << ids[i] % 32;
    return 0;
}

int
rls_ban(struct rls *r, const uint32_t *ids, uint32_t n)
{
    OBJ_CHECK(r, RLS_MAGIC);
    ASSERT(n >= 1 && n <= FDK_MAX_BAN_LEN);
    if (r->ban_ids == NULL) {
        r->ban_end = mem_array(FDK_MAX_BANS, sizeof(int32_t));
        r->ban_ids = mem_array(FDK_MAX_BAN_IDS, sizeof(int32_t));
        if (r->ban_end == NULL || r->ban_ids == NULL)
            return -ENOMEM;
    }
    if (r->n_ban == FDK_MAX_BANS || r->n_ban_ids + (int32_t)n > FDK_MAX_BAN_IDS)
        return -ENOSPC;
    for (uint32_t i = 0; i < n; i++)
        r->ban_ids[r->n_ban_ids++] = (int32_t)ids[i];
    r->ban_end[r->n_ban++] = r->n_ban_ids;
    return 0;
}

void
rls_choose(struct rls *r, const uint32_t *ids, uint32_t n)
{
    OBJ_CHECK(r, RLS_MAGIC);
    ASSERT(n <= FDK_MAX_CHOSEN);
    memcpy(r->chosen, ids, (size_t)n * sizeof(*ids));
    r->n_chosen = (int32_t)n;
}

void
rls_reasoning(struct rls *r, const struct fdp_reasoning *p)
{
    OBJ_CHECK(r, RLS_MAGIC);
    r->open_id = (int32_t)p->open_id;
    r->close_id = (int32_t)p->close_id;
    r->max_reason = p->max_tokens < INT32_MAX ? (int32_t)p->max_tokens : INT32_MAX;
}

/* ---- packing ---------------------------------------------------------------------- */

/* Append a list of n words; returns the index at which it begins. */
static int32_t
rls_put(struct rls *r, const void *from, size_t n)
{
    int32_t at = r->n_words;

    if (from != NULL)
        memcpy(r->words + at, from, n * sizeof(int32_t));
    r->n_words += (int32_t)n;
    return at;
}

static void
rls_put_bias(struct rls *r, struct fdk_rules *h)
{
    h->n_bias = r->n_bias;
    h->bias = rls_put(r, NULL, 2 * (size_t)r->n_bias);
    for (int32_t i = 0; i < r->n_bias; i++) {
        r->words[h->bias + i] = (int32_t)r->bias[i].id;
        memcpy(&r->words[h->bias + r->n_bias + i], &r->bias[i].bias, sizeof(float));
    }
}

static void
rls_put_bans(struct rls *r, struct fdk_rules *h)
{
    int32_t ids;

    h->n_ban = r->n_ban;
    h->ban = rls_put(r, NULL, (size_t)r->n_ban + 1);
    ids = rls_put(r, r->ban_ids, (size_t)r->n_ban_ids);
    r->words[h->ban] = ids;
    for (int32_t i = 0; i < r->n_ban; i++)
        r->words[h->ban + 1 + i] = ids + r->ban_end[i];
}

int
rls_pack(struct rls *r)
{
    struct fdk_rules h = { .open_id = r->open_id,
        .close_id = r->close_id,
        .max_reason = r->max_reason };
    size_t n = (size_t)FDK_RULES_HEAD + 2 * (size_t)r->n_bias + (size_t)r->n_ban + 1 +
        (size_t)r->n_ban_ids + (size_t)r->n_chosen +
        (r->allowed != NULL ? rls_bitmap_words(r) : 0);

    OBJ_CHECK(r, RLS_MAGIC);
    ASSERT(r->words == NULL && n <= fdk_rules_words(r->vocab));
    r->words = mem_array(n, sizeof(int32_t));
    if (r->words == NULL)
        return -ENOMEM;
    r->n_words = FDK_RULES_HEAD;
    rls_put_bias(r, &h);
    if (r->allowed != NULL)
        h.allowed = rls_put(r, r->allowed, rls_bitmap_words(r));
    rls_put_bans(r, &h);
    h.n_chosen = r->n_chosen;
    h.chosen = rls_put(r, r->chosen, (size_t)r->n_chosen);
    memcpy(r->words, &h, sizeof(h));
    ASSERT((size_t)r->n_words == n);
    return 0;
}

int
rls_begins_inside(const struct rls *r, const uint32_t *prompt, int32_t n)
{
    if (r->max_reason < 0)
        return 0;
    while (n-- > 0)
        if (prompt[n] == (uint32_t)r->open_id || prompt[n] == (uint32_t)r->close_id)
            return prompt[n] == (uint32_t)r->open_id;
    return 0;
}
