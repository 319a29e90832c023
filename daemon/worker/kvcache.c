#include "config.h"

#include "daemon/worker/kvcache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/worker/kvcache_priv.h"

/* How far ahead buckets and blocks of a big pool are fetched: they are not in the
 * processor's cache. */
#define KV_AHEAD 8

int32_t
kv_owner(int32_t pos)
{
    (void)pos;
    return 0;
}

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

static void
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
}

struct kv_list *
kv_defer_list(const struct kv *kv, int32_t b)
{
    return &kv->index->defer[kv->block[b].epoch % KV_N_DEFER];
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

    return b < kv->n_block ? &ix->dev[h->a & ix->dev_mask] :
        &ix->host[h->a & ix->host_mask];
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
kv_name(struct kv *kv, int32_t b, const struct kv_hash *h)
{
    int32_t *first = kv_bucket(kv, b, h);

    kv->block[b].h = *h;
    kv->block[b].chain = *first;
    *first = b;
}

static void
kv_unname(struct kv *kv, int32_t b)
{
    struct kv_block *k = &kv->block[b];
    int32_t *at = kv_bucket(kv, b, &k->h);

    while (*at != b)
        at = &kv->block[*at].chain;
    *at = k->chain;
    k->chain = -1;
    k->h = (struct kv_hash) { 0 };
}

/* ---- set up --------------------------------------------------------------------- */

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
    struct kv_index *ix = mem_zalloc(sizeof(*ix));

    kv->index = ix;
    kv->table = mem_array((size_t)kv->n_slot * (size_t)kv->stride, sizeof(*kv->table));
    kv->n_held = mem_array((size_t)kv->n_slot, sizeof(*kv->n_held));
    kv->copy = mem_array(n_copy, sizeof(*kv->copy));
    kv->block = mem_aligned(_Alignof(struct kv_block), n * sizeof(*kv->block));
    if (ix == NULL || kv->table == NULL || kv->n_held == NULL || kv->copy == NULL ||
        kv->block == NULL)
        return -ENOMEM;
    ix->dev = kv_buckets(kv->n_block, &ix->dev_mask);
    ix->host = kv_buckets(kv->cfg.n_host, &ix->host_mask);
    ix->copied = mem_array(n_copy, sizeof(*ix->copied));
    ix->mark = mem_array(n, sizeof(*ix->mark));
    ix->at = mem_array(n, sizeof(*ix->at));
    if (ix->dev == NULL || ix->host == NULL || ix->copied == NULL || ix->mark == NULL ||
        ix->at == NULL)
        return -ENOMEM;
    return 0;
}

struct kv *
kv_new(const struct kv_cfg *cfg)
{
    struct kv_list none = { -1, -1 };
    struct kv_index *ix;
    struct kv *kv;

    ASSERT(cfg->n_block > 0 && cfg->block_size > 0 && cfg->n_slot > 0);
    ASSERT(cfg->max_len > 0 && cfg->n_host >= 0 && cfg->max_copy >= 0);
    ASSERT(cfg->n_block < INT32_MAX - cfg->n_host);
    OBJ_ALLOC(kv, KV_MAGIC);
    if (kv == NULL)
        return NULL;
    kv->cfg = *cfg;
    kv->n_block = cfg->n_block + 1;
    kv->block_size = cfg->block_size;
    kv->n_slot = cfg->n_slot;
    kv->stride = kv_blocks(kv, cfg->max_len);
    if (kv_alloc(kv) != 0)
        return kv_free(kv);
    ix = kv->index;
    ix->free = ix->idle = ix->host_free = ix->host_used = none;
    for (int i = 0; i < KV_N_DEFER; i++)
        ix->defer[i] = none;
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
        free(kv->index->mark);
        free(kv->index->at);
    }
    free(kv->index);
    free(kv->table);
    free(kv->n_held);
    free(kv->copy);
    free(kv->block);
    OBJ_FREE(kv, KV_MAGIC);
    return NULL;
}

/* ---- blocks that nobody holds --------------------------------------------------- */

static void
kv_order(struct kv *kv, int32_t dev, int32_t host, int to_host, const struct kv_hash *h)
{
    ASSERT(kv->n_copy < kv->cfg.max_copy);
    kv->index->copied[kv->n_copy] = *h;
    kv->copy[kv->n_copy++] = (struct kv_copy) { .dev = dev, .host = host - kv->n_block,
        .to_host = to_host };
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
    kv_unname(kv, x);
    return x;
}

/* Idle block b loses its contents; the host keeps them where it has them or
 * an order is left beside those the caller needs. */
static void
kv_evict(struct kv *kv, int32_t b, int32_t n_keep)
{
    struct kv_index *ix = kv->index;
    struct kv_hash h = kv->block[b].h;
    int32_t x = kv_find_host(kv, &h);

    kv_unlink(kv, &ix->idle, b);
    kv_unname(kv, b);
    kv->n_cached--;
    kv->n_evicted++;
    if (x >= 0) {
        if (kv->block[x].where == KV_HOST_USED) {
            kv_unlink(kv, &ix->host_used, x);
            kv_link_after(kv, &ix->host_used, ix->host_used.tail, x);
        }
        return;
    }
    if (kv->cfg.n_host == 0 || kv->n_copy + n_keep >= kv->cfg.max_copy)
        return;
    x = kv_take_host(kv);
    if (x < 0)
        return;
    kv->block[x].where = KV_HOST_USED;
    kv_name(kv, x, &h);
    kv_link_after(kv, &ix->host_used, ix->host_used.tail, x);
    kv_order(kv, b, x, 1, &h);
}

/* A block with ref 1 and no name, -1: none. */
static int32_t
kv_take(struct kv *kv, int32_t n_keep)
{
    struct kv_index *ix = kv->index;
    int32_t b = ix->free.head;

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

static void
kv_ref(struct kv *kv, int32_t b)
{
    struct kv_block *k = &kv->block[b];

    if (k->where == KV_IDLE) {
        kv_unlink(kv, &kv->index->idle, b);
        kv->n_cached--;
    } else if (k->where == KV_DEFERRED) {
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

static void
kv_unref(struct kv *kv, int32_t b, uint64_t last_epoch)
{
    struct kv_block *k = &kv->block[b];
    struct kv_list *l;
    int32_t p;

    ASSERT(b > 0 && b < kv->n_block && k->where == KV_HELD && k->ref > 0);
    if (last_epoch > k->epoch)
        k->epoch = last_epoch;
    if (--k->ref > 0)
        return;
    if (k->epoch <= kv->collected) {
        kv_rest(kv, b);
        return;
    }
    l = kv_defer_list(kv, b);
    for (p = l->tail; p >= 0 && kv->block[p].epoch > k->epoch; p = kv->block[p].prev)
        continue;
    k->where = KV_DEFERRED;
    kv_link_after(kv, l, p, b);
    kv->n_deferred++;
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
    if (want - have > kv_available(kv))
        return -ENOSPC;
    for (; have < want; have++)
        t[have] = kv_take(kv, 0);
    kv->n_held[slot] = have;
    return 0;
}

void
kv_drop(struct kv *kv, int32_t slot, uint64_t last_epoch)
{
    int32_t *t = kv_row(kv, slot);

    /* the end first: it shall lose its place before the beginning does */
    for (int32_t i = kv->n_held[slot] - 1; i >= 0; i--) {
        if (i >= KV_AHEAD)
            __builtin_prefetch(&kv->block[t[i - KV_AHEAD]], 1);
        kv_unref(kv, t[i], last_epoch);
        t[i] = 0;
    }
    kv->n_held[slot] = 0;
}

void
kv_collect(struct kv *kv, uint64_t epoch)
{
    uint64_t n = epoch - kv->collected, e = kv->collected;

    ASSERT(epoch >= kv->collected);
    kv->collected = epoch;
    for (uint64_t i = 0; i < (n < KV_N_DEFER ? n : KV_N_DEFER); i++) {
        struct kv_list *l = &kv->index->defer[++e % KV_N_DEFER];

        while (l->head >= 0 && kv->block[l->head].epoch <= epoch) {
            int32_t b = l->head;

            kv_unlink(kv, l, b);
            kv->n_deferred--;
            kv_rest(kv, b);
        }
    }
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
            m.n_idle += kv->block[b].where == KV_IDLE;
        else if (kv_find_host(kv, &h[m.n]) >= 0)
            m.n_host++;
        else
            break;
    }
    *ret = m;
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
        x = kv_find_host(kv, &h[i]);
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

/* Bring block x of the host back, -1: no block or no order left. */
static int32_t
kv_fill(struct kv *kv, int32_t x)
{
    struct kv_hash h = kv->block[x].h;
    int32_t b = kv_find_dev(kv, &h);

    if (b >= 0) {
        kv_ref(kv, b);
        return b;
    }
    if (kv->n_copy >= kv->cfg.max_copy)
        return -1;
    b = kv_take(kv, 1);
    if (b < 0)
        return -1;
    kv_name(kv, b, &h);
    kv_order(kv, b, x, 0, &h);
    return b;
}

int32_t
kv_attach(struct kv *kv, int32_t slot, const struct kv_hash *h, int32_t n)
{
    int32_t *t = kv_row(kv, slot), n_host, n_claim, got;

    ASSERT(kv->n_held[slot] == 0 && n >= 0 && n <= kv->stride);
    n_claim = kv_claim(kv, t, h, n, &n_host);
    for (got = 0; got < n_claim; got++) {
        int32_t b = t[got] > 0 ? t[got] : kv_fill(kv, -t[got]);

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
    /* only what has a name is ever shared */
    ASSERT(k->ref == 1);
    if (kv_find_dev(kv, h) < 0)
        kv_name(kv, t[i], h);
}

void
kv_copied(struct kv *kv)
{
    kv->n_copy = 0;
    kv->index->batch++;
}

void
kv_forget(struct kv *kv)
{
    struct kv_index *ix = kv->index;
    int32_t b;

    while ((b = ix->idle.head) >= 0) {
        kv_unlink(kv, &ix->idle, b);
        kv_unname(kv, b);
        kv->n_cached--;
        kv_rest(kv, b);
    }
    for (int i = 0; i < KV_N_DEFER; i++)
        for (b = ix->defer[i].head; b >= 0; b = kv->block[b].next)
            if (kv_is_known(&kv->block[b]))
                kv_unname(kv, b);
    while ((b = ix->host_used.head) >= 0) {
        kv_unlink(kv, &ix->host_used, b);
        kv_unname(kv, b);
        kv->block[b].where = KV_HOST_FREE;
        kv_link_after(kv, &ix->host_free, -1, b);
        kv->n_host_used--;
    }
}
