/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/kvcache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/worker/kvcache_priv.h"

static int32_t *
kv_buckets(int32_t n, uint32_t *ret_mask)
{
    uint32_t size = 16;
    int32_t *p;

    while (size < (uint32_t)n)
        size *= 2;
    p = mem_array(size, sizeof(*p));
    if (p == NULL)
        return NULL;
    memset(p, 0xff, size * sizeof(*p));
    *ret_mask = size - 1;
    return p;
}

static int
kv_alloc(struct kv *kv)
{
    size_t n = (size_t)kv->n_block + (size_t)kv->cfg.n_host;
    size_t n_copy = (size_t)kv->cfg.max_copy;
    size_t n_table = (size_t)kv->n_slot * (size_t)kv->n_group;
    struct kv_index *ix = mem_zalloc(sizeof(*ix));

    kv->index = ix;
    kv->table = mem_array(n_table * (size_t)kv->stride, sizeof(*kv->table));
    kv->empty = mem_array(n_table, sizeof(*kv->empty));
    kv->n_empty = mem_array((size_t)kv->n_slot, sizeof(*kv->n_empty));
    kv->n_held = mem_array((size_t)kv->n_slot, sizeof(*kv->n_held));
    kv->copy = mem_array(n_copy, sizeof(*kv->copy));
    kv->dup = mem_array(n_table, sizeof(*kv->dup));
    kv->block = mem_aligned(_Alignof(struct kv_block), n * sizeof(*kv->block));
    if (ix == NULL || kv->table == NULL || kv->n_held == NULL || kv->copy == NULL ||
        kv->dup == NULL || kv->block == NULL || kv->empty == NULL || kv->n_empty == NULL)
        return -ENOMEM;
    ix->dev = kv_buckets(kv->n_block, &ix->dev_mask);
    ix->host = kv_buckets(kv->cfg.n_host, &ix->host_mask);
    ix->copied = mem_array(n_copy, sizeof(*ix->copied));
    ix->max_save = kv->cfg.max_copy - kv->cfg.max_copy / 4;
    ix->save = mem_array((size_t)ix->max_save, sizeof(*ix->save));
    ix->max_pending = kv->n_block > kv->stride ? kv->n_block : kv->stride;
    ix->pending = mem_array((size_t)ix->max_pending, sizeof(*ix->pending));
    ix->given = mem_array(n_table, sizeof(*ix->given));
    ix->mark = mem_array(n, sizeof(*ix->mark));
    ix->at = mem_array(n, sizeof(*ix->at));
    if (ix->dev == NULL || ix->host == NULL || ix->copied == NULL || ix->mark == NULL ||
        ix->at == NULL || ix->save == NULL || ix->pending == NULL || ix->given == NULL)
        return -ENOMEM;
    return 0;
}

struct kv *
kv_new(const struct kv_cfg *cfg)
{
    struct kv_list none = { -1, -1, 0 };
    struct kv_index *ix;
    struct kv *kv;

    ASSERT(cfg->n_block > 0 && cfg->block_size > 0 && cfg->n_slot > 0);
    ASSERT(cfg->max_len > 0 && cfg->n_host >= 0 && cfg->max_copy >= 0);
    ASSERT(cfg->n_block < INT32_MAX - cfg->n_host);
    ASSERT(cfg->n_group >= 0 && cfg->n_group <= KV_MAX_GROUP);
    OBJ_ALLOC(kv, KV_MAGIC);
    if (kv == NULL)
        return NULL;
    kv->cfg = *cfg;
    if (kv->cfg.max_drop <= 0)
        kv->cfg.max_drop = KV_MAX_DROP;
    kv->n_block = cfg->n_block + 1;
    kv->block_size = cfg->block_size;
    kv->n_slot = cfg->n_slot;
    kv->stride = kv_blocks(kv, cfg->max_len);
    kv->n_group = cfg->n_group > 0 ? cfg->n_group : 1;
    kv->group_step = (size_t)kv->n_slot * (size_t)kv->stride;
    for (int32_t g = 0; g < kv->n_group; g++) {
        int32_t most = kv_most(cfg->window[g], cfg->max_step, cfg->block_size);

        kv->most[g] = cfg->window[g] > 0 && most < kv->stride ? most : kv->stride;
        kv->n_windowed += cfg->window[g] > 0;
    }
    ASSERT(kv->n_windowed == 0 || cfg->max_step > 0);
    if (kv_alloc(kv) != 0)
        return kv_free(kv);
    ix = kv->index;
    ix->free = ix->idle = ix->host_free = ix->host_used = none;
    for (int i = 0; i < KV_N_DEFER; i++)
        ix->defer[0][i] = ix->defer[1][i] = none;
    ix->batch = 1;
    ix->quota = kv->cfg.max_drop;
    for (int32_t b = kv->n_block + cfg->n_host - 1; b >= 0; b--) {
        kv->block[b].chain = kv->block[b].prev = kv->block[b].next = -1;
        kv->block[b].where = b < kv->n_block ? KV_FREE : KV_HOST_FREE;
        if (b > 0)
            kv_link_after(kv, b < kv->n_block ? &ix->free : &ix->host_free, -1, b);
    }
    kv->n_free = cfg->n_block;
    return kv;
}

struct kv *
kv_free(struct kv *kv)
{
    if (kv == NULL)
        return NULL;
    if (kv->index != NULL) {
        free(kv->index->dev);
        free(kv->index->host);
        free(kv->index->copied);
        free(kv->index->save);
        free(kv->index->pending);
        free(kv->index->given);
        free(kv->index->mark);
        free(kv->index->at);
    }
    free(kv->index);
    free(kv->table);
    free(kv->empty);
    free(kv->n_empty);
    free(kv->n_held);
    free(kv->copy);
    free(kv->dup);
    free(kv->block);
    OBJ_FREE(kv, KV_MAGIC);
    return NULL;
}
