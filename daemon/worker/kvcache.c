/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/kvcache.h"

#include <errno.h>
#include <string.h>

#include "daemon/common/obj.h"
#include "daemon/worker/kvcache_priv.h"

/* How many copy commands kv_save() examines to find one to replace. */
#define KV_TRIES 4

/* ---- lists ---------------------------------------------------------------------- */

void
kv_link_after(struct kv *kv, struct kv_list *l, int32_t after, int32_t b)
{
    struct kv_block *k = &kv->block[b];

    k->prev = after;
    k->next = after < 0 ? l->head : kv->block[after].next;
    if (after < 0)
        l->head = b;
    else
        kv->block[after].next = b;
    if (k->next < 0)
        l->tail = b;
    else
        kv->block[k->next].prev = b;
    l->n++;
}

/* Moves all blocks of `from` after the last of `to`, or, with first, before its first. */
static void
kv_splice(struct kv *kv, struct kv_list *to, struct kv_list *from, int first)
{
    int32_t at = first ? -1 : to->tail, next = first ? to->head : -1;

    if (from->n == 0)
        return;
    kv->block[from->head].prev = at;
    kv->block[from->tail].next = next;
    if (at < 0)
        to->head = from->head;
    else
        kv->block[at].next = from->head;
    if (next < 0)
        to->tail = from->tail;
    else
        kv->block[next].prev = from->tail;
    to->n += from->n;
    *from = (struct kv_list){ -1, -1, 0 };
}

/* ---- hash index ----------------------------------------------------------------- */

void
kv_index_block(struct kv *kv, int32_t b, const struct kv_hash *h)
{
    int32_t *first = kv_bucket(kv, b, h);

    kv->block[b].h = *h;
    kv->block[b].chain = *first;
    *first = b;
}

/* ---- blocks without a holder --------------------------------------------------- */

void
kv_command(struct kv *kv, int32_t dev, int32_t host, int to_host, const struct kv_hash *h)
{
    ASSERT(kv->n_copy < kv->cfg.max_copy);
    kv->index->copied[kv->n_copy] = *h;
    kv->copy[kv->n_copy++] =
        (struct kv_copy){ .dev = dev, .host = host - kv->n_block, .to_host = to_host };
    if (to_host)
        kv->n_out++;
    else
        kv->n_in++;
}

/* Takes a host block for new contents; -1: all are sources of an attach in progress. */
static int32_t
kv_take_host(struct kv *kv)
{
    struct kv_index *ix = kv->index;
    int32_t x = ix->host_free.head;

    if (x >= 0) {
        kv_unlink(kv, &ix->host_free, x);
        kv->n_host_used++;
        return x;
    }
    x = ix->host_used.head;
    if (x < 0)
        return -1;
    kv_unlink(kv, &ix->host_used, x);
    kv_unindex(kv, x);
    return x;
}

/* Saves idle block b, indexed by h, to the host. Uses a copy command beyond the n_keep
 * that the caller needs. If none is left it replaces the command for the block evicted
 * first since the last launch: that block may be a continuation of b, and is not found
 * without b. */
static void
kv_save(struct kv *kv, int32_t b, const struct kv_hash *h, int32_t n_keep)
{
    struct kv_index *ix = kv->index;

    if (ix->n_save < ix->max_save && kv->n_copy + n_keep < kv->cfg.max_copy) {
        int32_t x = kv_take_host(kv);

        if (x < 0)
            return;
        kv->block[x].where = KV_HOST_USED;
        kv_index_block(kv, x, h);
        kv_link_after(kv, &ix->host_used, ix->host_used.tail, x);
        ix->save[ix->n_save++] = kv->n_copy;
        kv_command(kv, b, x, 1, h);
        return;
    }
    /* the replaced command might run before the one that fills b */
    if (kv->block[b].batch == ix->batch)
        return;
    for (int i = 0; i < KV_TRIES && i < ix->n_save; i++) {
        int32_t o = ix->save[ix->save_at], x = kv->n_block + kv->copy[o].host;
        struct kv_block *k = &kv->block[x];

        ix->save_at = (ix->save_at + 1) % ix->n_save;
        if (k->where != KV_HOST_USED || k->batch == ix->batch ||
            !kv_same(&k->h, &ix->copied[o]))
            continue;
        kv_unlink(kv, &ix->host_used, x);
        kv_unindex(kv, x);
        kv_index_block(kv, x, h);
        kv_link_after(kv, &ix->host_used, ix->host_used.tail, x);
        ix->copied[o] = *h;
        kv->copy[o].dev = b;
        return;
    }
}

/* Evicts idle block b; the host keeps its contents if possible. */
static void
kv_evict(struct kv *kv, int32_t b, int32_t n_keep)
{
    struct kv_index *ix = kv->index;
    struct kv_hash h = kv->block[b].h;
    int32_t x = kv_find_host(kv, &h);

    kv_unlink(kv, &ix->idle, b);
    kv_unindex(kv, b);
    kv->n_cached--;
    kv->n_evicted++;
    if (x < 0 && kv->cfg.n_host > 0) {
        kv_save(kv, b, &h, n_keep);
    } else if (x >= 0 && kv->block[x].where == KV_HOST_USED) {
        kv_unlink(kv, &ix->host_used, x);
        kv_link_after(kv, &ix->host_used, ix->host_used.tail, x);
    }
}

/* Block b is no longer used by any step: it becomes idle or free. */
static void
kv_rest(struct kv *kv, int32_t b)
{
    struct kv_block *k = &kv->block[b];

    kv->n_back++;
    if (kv_is_known(k)) {
        k->where = KV_IDLE;
        kv_link_after(kv, &kv->index->idle, kv->index->idle.tail, b);
        kv->n_cached++;
    } else {
        k->where = KV_FREE;
        kv_link_after(kv, &kv->index->free, -1, b);
        kv->n_free++;
    }
}

void
kv_defer(struct kv *kv, int32_t b)
{
    struct kv_block *k = &kv->block[b];
    struct kv_list *l = kv_defer_list(kv, b);
    int32_t p = l->tail;

    while (p >= 0 && kv->block[p].epoch > k->epoch)
        p = kv->block[p].prev;
    k->where = KV_DEFERRED;
    kv_link_after(kv, l, p, b);
}

void
kv_unref(struct kv *kv, int32_t b, uint64_t last_epoch)
{
    struct kv_block *k = &kv->block[b];

    ASSERT(b > 0 && b < kv->n_block && k->where == KV_HELD && k->ref > 0);
    if (last_epoch > k->epoch)
        k->epoch = last_epoch;
    if (--k->ref > 0)
        return;
    if (k->epoch <= kv->collected) {
        kv_rest(kv, b);
        return;
    }
    kv_defer(kv, b);
    kv->n_deferred++;
}

/* ---- tables given up, block by block --------------------------------------------- */

/* Frees the oldest pending blocks, at most n. */
static void
kv_free_pending(struct kv *kv, int32_t n)
{
    struct kv_index *ix = kv->index;

    for (; n > 0 && kv->n_pending > 0; n--) {
        int32_t ahead = ix->pending_at + KV_AHEAD;
        struct kv_given *given = &ix->given[ix->given_at];

        __builtin_prefetch(&kv->block[ix->pending[ahead < ix->max_pending ? ahead : 0]], 1);
        kv_unref(kv, ix->pending[ix->pending_at], given->epoch);
        if (++ix->pending_at == ix->max_pending)
            ix->pending_at = 0;
        kv->n_pending--;
        if (--given->n == 0) {
            ix->given_at = (ix->given_at + 1) % (kv->n_slot * kv->n_group);
            ix->n_given--;
        }
    }
}

int32_t
kv_reclaim(struct kv *kv, int32_t n)
{
    while (kv_available(kv) < n && kv->n_pending > 0)
        kv_free_pending(kv, 1);
    return kv_available(kv);
}

/* Queues table t of n blocks to be freed later, last block first. */
static void
kv_queue(struct kv *kv, const int32_t *t, int32_t n, uint64_t last_epoch)
{
    struct kv_index *ix = kv->index;
    int32_t at;

    while (ix->max_pending - kv->n_pending < n || ix->n_given == kv->n_slot * kv->n_group)
        kv_free_pending(kv, 1);
    at = (int32_t)(((int64_t)ix->pending_at + kv->n_pending) % ix->max_pending);
    for (int32_t i = n - 1; i >= 0; i--) {
        ix->pending[at] = t[i];
        if (++at == ix->max_pending)
            at = 0;
    }
    at = (ix->given_at + ix->n_given++) % (kv->n_slot * kv->n_group);
    ix->given[at] = (struct kv_given){ last_epoch, n };
    kv->n_pending += n;
}

static inline int32_t
kv_take_one(struct kv *kv, int32_t n_keep)
{
    struct kv_index *ix = kv->index;
    int32_t b;

    if (kv_available(kv) == 0)
        (void)kv_reclaim(kv, 1);
    b = ix->free.head;
    if (b >= 0) {
        kv_unlink(kv, &ix->free, b);
        kv->n_free--;
    } else {
        b = ix->idle.head;
        if (b < 0)
            return -1;
        kv_evict(kv, b, n_keep);
    }
    kv->block[b].where = KV_HELD;
    kv->block[b].ref = 1;
    kv->block[b].batch = ix->batch;
    return b;
}

int32_t
kv_take(struct kv *kv, int32_t n_keep)
{
    return kv_take_one(kv, n_keep);
}

/* ---- tables --------------------------------------------------------------------- */

int32_t
kv_blocks(const struct kv *kv, int32_t n_tok)
{
    return (int32_t)(((int64_t)n_tok + kv->block_size - 1) / kv->block_size);
}

int32_t
kv_available(const struct kv *kv)
{
    return kv->n_free + kv->n_cached;
}

int32_t
kv_most(int32_t window, int32_t max_step, int32_t block_size)
{
    /* kv_slide() is a token late; the first and the last block may be used only
     * partially */
    return (int32_t)(((int64_t)window + max_step + block_size - 2) / block_size) + 1;
}

int32_t
kv_first(const struct kv *kv, int32_t group, int32_t pos)
{
    int32_t window = kv->cfg.window[group];

    return window == 0 || pos < window ? 0 : (pos - window + 1) / kv->block_size;
}

/* Blocks that a group lacks for n places if its table has blocks at places [empty,
 * held). */
static int32_t
kv_lack_of(const struct kv *kv, int32_t group, int32_t empty, int32_t held, int32_t n)
{
    int32_t most = n - empty < kv->most[group] ? n - empty : kv->most[group];

    return most > held - empty ? most - (held - empty) : 0;
}

int32_t
kv_lack_windowed(const struct kv *kv, int32_t slot, int32_t n)
{
    int32_t held = kv->n_held[slot], sum = 0;

    for (int32_t g = 0; g < kv->n_group; g++)
        sum += kv_lack_of(kv, g, *kv_empty(kv, slot, g), held, n);
    return sum;
}

int32_t
kv_lack_from_windowed(const struct kv *kv, int32_t n_tok, int32_t n, int all)
{
    int32_t held = n_tok / kv->block_size, sum = 0;

    for (int32_t g = 0; g < kv->n_group; g++) {
        int32_t empty = kv_first(kv, g, n_tok);

        sum += kv_lack_of(kv, g, empty, all ? empty : held, n);
    }
    return sum;
}

int
kv_grow(struct kv *kv, int32_t slot, int32_t n_tok)
{
    int32_t want = kv_blocks(kv, n_tok), have = kv->n_held[slot], n;

    ASSERT(want <= kv->stride);
    if (want <= have)
        return 0;
    n = (want - have) * kv->n_group;
    if (n > kv_reclaim(kv, n))
        return -ENOSPC;
    for (int32_t g = 0; g < kv->n_group; g++) {
        int32_t *t = kv_row(kv, slot, g);

        for (int32_t i = have; i < want; i++)
            t[i] = kv_take_one(kv, 0);
    }
    kv->n_held[slot] = want;
    return 0;
}

int32_t
kv_slide(struct kv *kv, int32_t slot, int32_t pos, uint64_t last_epoch)
{
    int32_t next = INT32_MAX, B = kv->block_size;

    for (int32_t g = 0; g < kv->n_group; g++) {
        const int32_t *t = kv_row(kv, slot, g);
        int32_t *empty = kv_empty(kv, slot, g);
        int32_t first = kv_first(kv, g, pos), window = kv->cfg.window[g];

        ASSERT(first <= kv->n_held[slot]);
        for (; *empty < first; (*empty)++, kv->n_empty[slot]++)
            kv_unref(kv, t[*empty], last_epoch);
        if (window > 0 && (*empty + 1) * B + window - 1 < next)
            next = (*empty + 1) * B + window - 1;
    }
    return next;
}

static void
kv_drop_table(struct kv *kv, const int32_t *t, int32_t n, uint64_t last_epoch)
{
    struct kv_index *ix = kv->index;

    if (n == 0)
        return;
    if (kv->n_pending > 0 || n > ix->quota) {
        kv_queue(kv, t, n, last_epoch);
    } else {
        ix->quota -= n;
        /* the end first, so that it is evicted before the beginning */
        for (int32_t i = n - 1; i >= 0; i--) {
            if (i >= KV_AHEAD)
                __builtin_prefetch(&kv->block[t[i - KV_AHEAD]], 1);
            kv_unref(kv, t[i], last_epoch);
        }
    }
}

void
kv_drop(struct kv *kv, int32_t slot, uint64_t last_epoch)
{
    int32_t n = kv->n_held[slot];

    kv->n_held[slot] = kv->n_empty[slot] = 0;
    for (int32_t g = 0; g < kv->n_group; g++) {
        int32_t *t = kv_row(kv, slot, g), *empty = kv_empty(kv, slot, g);

        kv_drop_table(kv, t + *empty, n - *empty, last_epoch);
        memset(t, 0, (size_t)n * sizeof(*t));
        *empty = 0;
    }
}

/* Makes the collected blocks of l available; the whole list at once if all are
 * collected. */
static void
kv_collect_list(struct kv *kv, struct kv_list *l, int known)
{
    struct kv_index *ix = kv->index;

    if (l->tail >= 0 && kv->block[l->tail].epoch <= kv->collected) {
        kv->n_deferred -= l->n;
        kv->n_back += (uint64_t)l->n;
        *(known ? &kv->n_cached : &kv->n_free) += l->n;
        kv_splice(kv, known ? &ix->idle : &ix->free, l, !known);
        return;
    }
    while (l->head >= 0 && kv->block[l->head].epoch <= kv->collected) {
        int32_t b = l->head;

        kv_unlink(kv, l, b);
        kv->n_deferred--;
        kv_rest(kv, b);
    }
}

void
kv_collect(struct kv *kv, uint64_t epoch)
{
    uint64_t n = epoch - kv->collected, e = kv->collected;

    ASSERT(epoch >= kv->collected);
    kv->collected = epoch;
    for (uint64_t i = 0; i < (n < KV_N_DEFER ? n : KV_N_DEFER); i++) {
        e++;
        kv_collect_list(kv, &kv->index->defer[0][e % KV_N_DEFER], 0);
        kv_collect_list(kv, &kv->index->defer[1][e % KV_N_DEFER], 1);
    }
    kv_free_pending(kv, kv->cfg.max_drop);
    kv->index->quota = kv->cfg.max_drop;
}
