/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/kvcache.h"

#include <errno.h>
#include <string.h>

#include "daemon/common/obj.h"
#include "daemon/worker/kvcache_priv.h"

/* How far ahead buckets and blocks of a big pool are fetched: they are not in the
 * processor's cache. */
#define KV_AHEAD 8
/* Copy commands examined for one that can be replaced. */
#define KV_TRIES 4

int32_t *
kv_row(const struct kv *kv, int32_t slot)
{
    ASSERT(slot >= 0 && slot < kv->n_slot);
    return kv->table + (size_t)slot * (size_t)kv->stride;
}

int32_t
kv_slot(const struct kv *kv, int32_t slot, int32_t pos)
{
    int32_t b = pos / kv->block_size;

    DIAG(slot >= 0 && slot < kv->n_slot && b < kv->n_held[slot]);
    return kv->table[(size_t)slot * (size_t)kv->stride + (size_t)b] * kv->block_size +
        pos % kv->block_size;
}

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

static void
kv_unlink(struct kv *kv, struct kv_list *l, int32_t b)
{
    struct kv_block *k = &kv->block[b];

    if (k->prev < 0)
        l->head = k->next;
    else
        kv->block[k->prev].next = k->next;
    if (k->next < 0)
        l->tail = k->prev;
    else
        kv->block[k->next].prev = k->prev;
    k->prev = k->next = -1;
    l->n--;
}

/* All of from behind to's last, or before its first. */
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

struct kv_list *
kv_defer_list(const struct kv *kv, int32_t b)
{
    const struct kv_block *k = &kv->block[b];

    return &kv->index->defer[kv_is_known(k)][k->epoch % KV_N_DEFER];
}

enum kv_where
kv_where(const struct kv *kv, int32_t b)
{
    const struct kv_block *k = &kv->block[b];

    if (k->where == KV_DEFERRED && k->epoch <= kv->collected)
        return kv_is_known(k) ? KV_IDLE : KV_FREE;
    return (enum kv_where)k->where;
}

/* ---- hash index ----------------------------------------------------------------- */

int
kv_is_known(const struct kv_block *k)
{
    return (k->h.a | k->h.b) != 0;
}

int
kv_same(const struct kv_hash *x, const struct kv_hash *y)
{
    return x->a == y->a && x->b == y->b;
}

static int32_t *
kv_bucket(const struct kv *kv, int32_t b, const struct kv_hash *h)
{
    struct kv_index *ix = kv->index;

    return b < kv->n_block ? &ix->dev[h->a & ix->dev_mask] : &ix->host[h->a & ix->host_mask];
}

static int32_t
kv_find_in(const struct kv *kv, int32_t b, const struct kv_hash *h)
{
    while (b >= 0 && !kv_same(&kv->block[b].h, h))
        b = kv->block[b].chain;
    return b;
}

int32_t
kv_find_dev(const struct kv *kv, const struct kv_hash *h)
{
    return kv_find_in(kv, kv->index->dev[h->a & kv->index->dev_mask], h);
}

int32_t
kv_find_host(const struct kv *kv, const struct kv_hash *h)
{
    if (kv->cfg.n_host == 0)
        return -1;
    return kv_find_in(kv, kv->index->host[h->a & kv->index->host_mask], h);
}

static void
kv_fetch(const struct kv *kv, const struct kv_hash *h, int32_t i, int32_t n)
{
    const struct kv_index *ix = kv->index;

    if (i + KV_AHEAD < n)
        __builtin_prefetch(&ix->dev[h[i + KV_AHEAD].a & ix->dev_mask]);
    if (i + KV_AHEAD / 2 < n) {
        int32_t b = ix->dev[h[i + KV_AHEAD / 2].a & ix->dev_mask];

        if (b >= 0)
            __builtin_prefetch(&kv->block[b]);
    }
}

static void
kv_index_block(struct kv *kv, int32_t b, const struct kv_hash *h)
{
    int32_t *first = kv_bucket(kv, b, h);

    kv->block[b].h = *h;
    kv->block[b].chain = *first;
    *first = b;
}

static void
kv_unindex(struct kv *kv, int32_t b)
{
    struct kv_block *k = &kv->block[b];
    int32_t *at = kv_bucket(kv, b, &k->h);

    while (*at != b)
        at = &kv->block[*at].chain;
    *at = k->chain;
    k->chain = -1;
    k->h = (struct kv_hash){ 0 };
}

/* ---- blocks without a holder --------------------------------------------------- */

static void
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

/* A host block to put something in, -1: all are wanted. */
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

/* Save idle block b, indexed by h, to the host. Uses a copy command beyond the n_keep that
 * the caller needs; where none is left, that of the block evicted first since the last
 * launch. That block may be a continuation of b, and is not found without b. */
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
    /* that command may come before the one that fills b */
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

/* Idle block b loses its contents; the host keeps them where it can. */
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

static void
kv_ref(struct kv *kv, int32_t b)
{
    struct kv_block *k = &kv->block[b];
    enum kv_where where = kv_where(kv, b);

    if (where == KV_IDLE) {
        kv_unlink(kv, &kv->index->idle, b);
        kv->n_cached--;
    } else if (where == KV_DEFERRED) {
        kv_unlink(kv, kv_defer_list(kv, b), b);
        kv->n_deferred--;
    }
    k->where = KV_HELD;
    k->ref++;
}

/* No step touches b any more. */
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

/* Into the list of its epoch, which is sorted. */
static void
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

static void
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

/* Free the oldest of the pending blocks, at most n. */
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
            ix->given_at = (ix->given_at + 1) % kv->n_slot;
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

/* Table t of n blocks goes, the end first, later. */
static void
kv_queue(struct kv *kv, const int32_t *t, int32_t n, uint64_t last_epoch)
{
    struct kv_index *ix = kv->index;
    int32_t at;

    while (ix->max_pending - kv->n_pending < n || ix->n_given == kv->n_slot)
        kv_free_pending(kv, 1);
    at = (int32_t)(((int64_t)ix->pending_at + kv->n_pending) % ix->max_pending);
    for (int32_t i = n - 1; i >= 0; i--) {
        ix->pending[at] = t[i];
        if (++at == ix->max_pending)
            at = 0;
    }
    at = (int32_t)(((int64_t)ix->given_at + ix->n_given++) % kv->n_slot);
    ix->given[at] = (struct kv_given){ last_epoch, n };
    kv->n_pending += n;
}

/* A block with ref 1 and no name, -1: none. */
static int32_t
kv_take(struct kv *kv, int32_t n_keep)
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

int
kv_grow(struct kv *kv, int32_t slot, int32_t n_tok)
{
    int32_t want = kv_blocks(kv, n_tok), *t = kv_row(kv, slot), have;

    ASSERT(want <= kv->stride);
    have = kv->n_held[slot];
    if (want <= have)
        return 0;
    if (want - have > kv_reclaim(kv, want - have))
        return -ENOSPC;
    for (; have < want; have++)
        t[have] = kv_take(kv, 0);
    kv->n_held[slot] = have;
    return 0;
}

void
kv_drop(struct kv *kv, int32_t slot, uint64_t last_epoch)
{
    int32_t *t = kv_row(kv, slot), n = kv->n_held[slot];
    struct kv_index *ix = kv->index;

    if (n == 0)
        return;
    kv->n_held[slot] = 0;
    if (kv->n_pending > 0 || n > ix->quota) {
        kv_queue(kv, t, n, last_epoch);
    } else {
        ix->quota -= n;
        /* the end first: it shall lose its place before the beginning does */
        for (int32_t i = n - 1; i >= 0; i--) {
            if (i >= KV_AHEAD)
                __builtin_prefetch(&kv->block[t[i - KV_AHEAD]], 1);
            kv_unref(kv, t[i], last_epoch);
        }
    }
    memset(t, 0, (size_t)n * sizeof(*t));
}

/* Those of l that are collected, at once where all are. */
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

/* ---- prefix cache --------------------------------------------------------------- */

void
kv_find(const struct kv *kv, const struct kv_hash *h, int32_t n, struct kv_match *ret)
{
    struct kv_match m = { 0 };

    for (; m.n < n; m.n++) {
        int32_t b;

        kv_fetch(kv, h, m.n, n);
        b = kv_find_dev(kv, &h[m.n]);
        if (b >= 0)
            m.n_idle += kv_where(kv, b) == KV_IDLE;
        else if (m.n_host < kv->cfg.max_copy - kv->n_copy && kv_find_host(kv, &h[m.n]) >= 0)
            m.n_host++;
        else
            break;
        if (m.n_host == 0) {
            m.n_dev = m.n + 1;
            m.n_dev_idle = m.n_idle;
        }
    }
    *ret = m;
}

int
kv_has(const struct kv *kv, const struct kv_hash *h)
{
    return kv_find_dev(kv, h) >= 0;
}

/* Hold what is on the device of the prefix and keep what is on the host from
 * losing its place (t[i] = -block). Returns the length of the prefix. */
static int32_t
kv_claim(struct kv *kv, int32_t *t, const struct kv_hash *h, int32_t n, int32_t *ret_host)
{
    int32_t i, n_host = 0;

    for (i = 0; i < n; i++) {
        int32_t b, x;

        kv_fetch(kv, h, i, n);
        b = kv_find_dev(kv, &h[i]);
        if (b >= 0) {
            kv_ref(kv, b);
            t[i] = b;
            continue;
        }
        x = n_host < kv->cfg.max_copy - kv->n_copy ? kv_find_host(kv, &h[i]) : -1;
        if (x < 0)
            break;
        if (kv->block[x].where == KV_HOST_USED)
            kv_unlink(kv, &kv->index->host_used, x);
        kv->block[x].where = KV_HOST_WANTED;
        t[i] = -x;
        n_host++;
    }
    *ret_host = n_host;
    return i;
}

/* Bring block x of the host back, the first of n_keep; -1: no block is left. */
static int32_t
kv_fill(struct kv *kv, int32_t x, int32_t n_keep)
{
    struct kv_hash h = kv->block[x].h;
    int32_t b = kv_find_dev(kv, &h);

    if (b >= 0) {
        kv_ref(kv, b);
        return b;
    }
    b = kv_take(kv, n_keep);
    if (b < 0)
        return -1;
    kv->block[x].batch = kv->index->batch;
    kv_index_block(kv, b, &h);
    kv_command(kv, b, x, 0, &h);
    return b;
}

int32_t
kv_attach(struct kv *kv, int32_t slot, const struct kv_hash *h, int32_t n)
{
    int32_t *t = kv_row(kv, slot), n_host, n_claim, got, n_keep;

    ASSERT(kv->n_held[slot] == 0 && n >= 0 && n <= kv->stride);
    n_claim = kv_claim(kv, t, h, n, &n_host);
    n_keep = n_host;
    for (got = 0; got < n_claim; got++) {
        int32_t b = t[got] > 0 ? t[got] : kv_fill(kv, -t[got], n_keep--);

        if (b < 0)
            break;
        t[got] = b;
    }
    for (int32_t i = n_claim - 1; i >= got; i--) {
        if (t[i] > 0)
            kv_unref(kv, t[i], 0);
        t[i] = 0;
    }
    for (int32_t i = n_claim - 1; i >= 0 && n_host > 0; i--) {
        int32_t x = kv_find_host(kv, &h[i]);

        if (x < 0 || kv->block[x].where != KV_HOST_WANTED)
            continue;
        kv->block[x].where = KV_HOST_USED;
        kv_link_after(kv, &kv->index->host_used, kv->index->host_used.tail, x);
    }
    kv->n_held[slot] = got;
    kv->n_lookup += (uint64_t)n;
    kv->n_hit += (uint64_t)got;
    return got;
}

void
kv_register(struct kv *kv, int32_t slot, int32_t i, const struct kv_hash *h)
{
    const int32_t *t = kv_row(kv, slot);
    struct kv_block *k;

    ASSERT(i >= 0 && i < kv->n_held[slot] && (h->a | h->b) != 0);
    k = &kv->block[t[i]];
    if (kv_is_known(k)) {
        ASSERT(kv_same(&k->h, h));
        return;
    }
    if (kv_find_dev(kv, h) < 0)
        kv_index_block(kv, t[i], h);
}

/* Device block b loses its name, wherever it is. */
static void
kv_forget_dev(struct kv *kv, int32_t b)
{
    struct kv_block *k = &kv->block[b];

    switch (kv_where(kv, b)) {
    case KV_IDLE:
        kv_unlink(kv, &kv->index->idle, b);
        kv->n_cached--;
        kv_unindex(kv, b);
        k->where = KV_FREE;
        kv_link_after(kv, &kv->index->free, -1, b);
        kv->n_free++;
        return;
    case KV_DEFERRED:
        kv_unlink(kv, kv_defer_list(kv, b), b);
        kv_unindex(kv, b);
        kv_defer(kv, b);
        return;
    default:
        kv_unindex(kv, b);
    }
}

void
kv_forget(struct kv *kv, const struct kv_hash *h)
{
    int32_t b = kv_find_dev(kv, h), x = kv_find_host(kv, h);

    if (b >= 0)
        kv_forget_dev(kv, b);
    if (x < 0)
        return;
    kv_unlink(kv, &kv->index->host_used, x);
    kv_unindex(kv, x);
    kv->block[x].where = KV_HOST_FREE;
    kv_link_after(kv, &kv->index->host_free, kv->index->host_free.tail, x);
    kv->n_host_used--;
}

void
kv_share(struct kv *kv, int32_t slot, int32_t from, int32_t n)
{
    int32_t *t = kv_row(kv, slot);
    const int32_t *f = kv_row(kv, from);

    ASSERT(slot != from && kv->n_held[slot] == 0 && n >= 0 && n <= kv->n_held[from]);
    for (int32_t i = 0; i < n; i++) {
        if (i + KV_AHEAD < n)
            __builtin_prefetch(&kv->block[f[i + KV_AHEAD]], 1);
        kv_ref(kv, f[i]);
        t[i] = f[i];
    }
    kv->n_held[slot] = n;
}

void
kv_dup(struct kv *kv, int32_t slot, int32_t from, int32_t i, uint64_t epoch)
{
    int32_t to = kv_row(kv, slot)[i], b = kv_row(kv, from)[i];

    ASSERT(i < kv->n_held[slot] && i < kv->n_held[from] && kv->n_dup < kv->n_slot);
    ASSERT(to != b && kv->block[to].ref == 1 && !kv_is_known(&kv->block[to]));
    /* it is not filled again before that step has read it */
    if (kv->block[b].epoch < epoch)
        kv->block[b].epoch = epoch;
    kv->dup[kv->n_dup++] = (struct kv_dup){ b, to };
}

void
kv_copied(struct kv *kv)
{
    kv->n_copy = kv->n_dup = 0;
    kv->index->batch++;
    kv->index->n_save = kv->index->save_at = 0;
}
