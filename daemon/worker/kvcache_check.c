/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/kvcache.h"

#include <string.h>

#include "daemon/common/obj.h"
#include "daemon/worker/kvcache_priv.h"

/* Checks a list: all blocks are in state `where` and have no holder. Returns their
 * number. */
static int32_t
kv_check_list(const struct kv *kv, const struct kv_list *l, enum kv_where where)
{
    int32_t n = 0, prev = -1;

    for (int32_t b = l->head; b >= 0; b = kv->block[b].next, n++) {
        const struct kv_block *k = &kv->block[b];

        ASSERT(b > 0 && b < kv->n_block + kv->cfg.n_host);
        ASSERT(kv_where(kv, b) == where && k->ref == 0 && k->prev == prev);
        ASSERT(n < kv->n_block + kv->cfg.n_host);
        if (where != KV_DEFERRED)
            ASSERT(kv_is_known(k) == (where == KV_IDLE || where == KV_HOST_USED));
        if (where == KV_FREE || where == KV_IDLE)
            ASSERT(k->epoch <= kv->collected);
        if (where == KV_DEFERRED)
            ASSERT(k->epoch > kv->collected && kv_defer_list(kv, b) == l &&
                (prev < 0 || kv->block[prev].epoch <= k->epoch));
        prev = b;
    }
    ASSERT(l->tail == prev && l->n == n);
    return n;
}

/* Checks a group's table of a slot: blocks after the leading empty places, each shared
 * only at the same place of a sequence. */
static void
kv_check_table(const struct kv *kv, int32_t s, int32_t g)
{
    const struct kv_index *ix = kv->index;
    const int32_t *t = kv_row(kv, s, g);
    int32_t empty = *kv_empty(kv, s, g);

    ASSERT(kv->n_held[s] >= 0 && kv->n_held[s] <= kv->stride);
    ASSERT(empty >= 0 && empty <= kv->n_held[s] && (empty == 0 || kv->cfg.window[g] > 0));
    for (int32_t i = empty; i < kv->n_held[s]; i++) {
        ASSERT(t[i] > 0 && t[i] < kv->n_block && kv->block[t[i]].where == KV_HELD);
        ASSERT(ix->mark[t[i]] == 0 || ix->at[t[i]] == i * kv->n_group + g);
        ix->mark[t[i]]++;
        ix->at[t[i]] = i * kv->n_group + g;
    }
}

/* Every block is in one list, or held by as many tables as it has holders. */
static void
kv_check_blocks(const struct kv *kv)
{
    const struct kv_index *ix = kv->index;
    int32_t n_deferred = 0, n_held = 0, n_given = 0;

    for (int i = 0; i < KV_N_DEFER; i++)
        n_deferred += kv_check_list(kv, &ix->defer[0][i], KV_DEFERRED) +
            kv_check_list(kv, &ix->defer[1][i], KV_DEFERRED);
    ASSERT(kv_check_list(kv, &ix->free, KV_FREE) == kv->n_free);
    ASSERT(kv_check_list(kv, &ix->idle, KV_IDLE) == kv->n_cached);
    ASSERT(n_deferred == kv->n_deferred);
    memset(ix->mark, 0, (size_t)kv->n_block * sizeof(*ix->mark));
    for (int32_t s = 0; s < kv->n_slot; s++) {
        int32_t n_empty = 0;

        for (int32_t g = 0; g < kv->n_group; g++) {
            kv_check_table(kv, s, g);
            n_empty += *kv_empty(kv, s, g);
        }
        ASSERT(n_empty == kv->n_empty[s]);
    }
    for (int32_t i = 0; i < kv->n_pending; i++)
        ix->mark[ix->pending[(ix->pending_at + (int64_t)i) % ix->max_pending]]++;
    for (int32_t i = 0; i < ix->n_given; i++)
        n_given += ix->given[(ix->given_at + i) % (kv->n_slot * kv->n_group)].n;
    ASSERT(n_given == kv->n_pending && (n_given > 0) == (ix->n_given > 0));
    for (int32_t b = 1; b < kv->n_block; b++) {
        ASSERT(kv->block[b].ref == ix->mark[b]);
        ASSERT((kv->block[b].where == KV_HELD) == (kv->block[b].ref > 0));
        n_held += kv->block[b].ref > 0;
    }
    ASSERT(kv->block[0].ref == 0 && !kv_is_known(&kv->block[0]));
    ASSERT(1 + kv->n_free + kv->n_deferred + kv->n_cached + n_held == kv->n_block);
}

/* Every indexed block is in the index once, and there is one block per hash. */
static void
kv_check_index(const struct kv *kv)
{
    const struct kv_index *ix = kv->index;
    int32_t n = kv->n_block + kv->cfg.n_host, n_known = 0, n_dev = 0, n_host = 0;

    for (int32_t b = 0; b < n; b++) {
        const struct kv_block *k = &kv->block[b];

        if (!kv_is_known(k))
            continue;
        n_known++;
        ASSERT((b < kv->n_block ? kv_find_dev(kv, &k->h) : kv_find_host(kv, &k->h)) == b);
    }
    for (uint32_t i = 0; i <= ix->dev_mask; i++)
        for (int32_t b = ix->dev[i]; b >= 0; b = kv->block[b].chain, n_dev++)
            ASSERT(b < kv->n_block && n_dev < n_known);
    for (uint32_t i = 0; i <= ix->host_mask; i++)
        for (int32_t b = ix->host[i]; b >= 0; b = kv->block[b].chain, n_host++)
            ASSERT(b >= kv->n_block && b < n && n_host < n_known);
    ASSERT(n_dev + n_host == n_known && n_host == kv->n_host_used);
}

/* Run in order, the copy commands read the intended contents and leave every block with
 * the contents it is indexed by. Their device blocks were allocated in this batch, so no
 * other sequence's blocks are touched. */
static void
kv_check_commands(const struct kv *kv)
{
    const struct kv_index *ix = kv->index;
    int32_t n = kv->n_block + kv->cfg.n_host, *last = ix->mark;

    ASSERT(kv->n_copy >= 0 && kv->n_copy <= kv->cfg.max_copy);
    ASSERT(kv->n_dup >= 0 && kv->n_dup <= kv->n_slot * kv->n_group);
    for (int32_t i = 0; i < kv->n_dup; i++) {
        /* held by one sequence, or by more if the step fills and registers it */
        ASSERT(kv->block[kv->dup[i].to].where == KV_HELD);
        ASSERT(kv->block[kv->dup[i].to].ref == 1 || kv_is_known(&kv->block[kv->dup[i].to]));
        ASSERT(kv->block[kv->dup[i].to].batch == ix->batch);
        ASSERT(!kv_is_free(kv, kv->dup[i].from));
    }
    ASSERT(ix->n_save <= ix->max_save && ix->n_save <= kv->n_copy);
    if (kv->n_copy == 0)
        return;
    memset(last, 0xff, (size_t)n * sizeof(*last));
    for (int32_t i = 0; i < kv->n_copy; i++) {
        const struct kv_copy *c = &kv->copy[i];
        int32_t x = kv->n_block + c->host, from = c->to_host ? c->dev : x;

        ASSERT(c->dev > 0 && c->dev < kv->n_block && c->host >= 0 && x < n);
        ASSERT(kv->block[c->dev].batch == ix->batch);
        ASSERT(last[from] < 0 || kv_same(&ix->copied[last[from]], &ix->copied[i]));
        last[c->to_host ? x : c->dev] = i;
    }
    for (int32_t b = 1; b < n; b++)
        if (last[b] >= 0 && (kv_where(kv, b) == KV_IDLE || kv_where(kv, b) == KV_HOST_USED))
            ASSERT(kv_same(&kv->block[b].h, &ix->copied[last[b]]));
}

int
kv_is_free(const struct kv *kv, int32_t b)
{
    ASSERT(b >= 0 && b < kv->n_block);
    return b > 0 && (kv_where(kv, b) == KV_FREE || kv_where(kv, b) == KV_IDLE);
}

int
kv_is_empty(const struct kv *kv, int32_t b)
{
    ASSERT(b >= 0 && b < kv->n_block);
    return b > 0 && kv_where(kv, b) == KV_FREE;
}

void
kv_check(const struct kv *kv)
{
    int32_t n_free, n_used;

    OBJ_CHECK(kv, KV_MAGIC);
    kv_check_blocks(kv);
    n_free = kv_check_list(kv, &kv->index->host_free, KV_HOST_FREE);
    n_used = kv_check_list(kv, &kv->index->host_used, KV_HOST_USED);
    ASSERT(n_used == kv->n_host_used && n_free + n_used == kv->cfg.n_host);
    kv_check_index(kv);
    kv_check_commands(kv);
}
