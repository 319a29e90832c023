/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the block pool: kvcache.c, kvcache_prefix.c, kvcache_setup.c and
 * kvcache_check.c.
 */
#ifndef FDD_DAEMON_WORKER_KVCACHE_PRIV_H
#define FDD_DAEMON_WORKER_KVCACHE_PRIV_H

#include <stddef.h>

#include "daemon/worker/kvcache.h"

/* Deferred blocks are in lists by their epoch modulo this. It is more than the launched
 * steps, so that each list holds one epoch only and stays sorted. */
#define KV_N_DEFER 16

enum kv_where {
    KV_FREE,
    KV_HELD,
    KV_DEFERRED, /* once its epoch is collected it counts as free or idle: kv_where() */
    KV_IDLE,
    KV_HOST_FREE,
    KV_HOST_USED,
    KV_HOST_WANTED /* in no list: source of an attach in progress */
};

/* A device block; host blocks follow, with consecutive numbers. */
struct kv_block {
    struct kv_hash h;   /* what it is indexed by; {0, 0}: not indexed */
    uint64_t epoch;     /* last step that may touch it */
    int32_t prev, next; /* in the list of its state, -1: none */
    int32_t chain;      /* next block of its hash bucket, -1: none */
    int32_t ref;
    uint32_t batch; /* number of the batch of copy commands in which it was allocated; of
                       a host block: in which it was last read */
    uint8_t where;
} __attribute__((aligned(64)));

struct kv_list {
    int32_t head, tail, n;
};

/* A table given back: the next n blocks of the pending ring. */
struct kv_given {
    uint64_t epoch;
    int32_t n;
};

struct kv_index {
    struct kv_list free, idle, host_free, host_used;
    struct kv_list defer[2][KV_N_DEFER]; /* [0]: not indexed, [1]: indexed */
    int32_t *dev, *host;                 /* hash buckets: first block, -1: none */
    uint32_t dev_mask, host_mask;
    uint32_t batch;         /* number of the current batch of copy commands: kv_copied()
                               increments it */
    struct kv_hash *copied; /* [max_copy] hash of the block that each command copies */
    int32_t *save;          /* [max_save] ring of commands that copy to the host, oldest
                               at save_at */
    int32_t n_save, max_save, save_at; /* commands beyond max_save are for copies back */
    int32_t *pending; /* [max_pending] ring of the n_pending blocks to be freed, oldest at
                         pending_at */
    int32_t max_pending, pending_at;
    struct kv_given *given; /* [n_slot * n_group] ring: the tables that these blocks were
                               in */
    int32_t n_given, given_at;
    int32_t quota;      /* blocks that kv_drop() may still free until the next
                           kv_collect() */
    int32_t *mark, *at; /* [n_block + n_host] for kv_check() */
};

/* How many entries ahead hash buckets and blocks are prefetched: in a big pool they are
 * not in the processor's cache. */
#define KV_AHEAD 8

/* Puts b into l after block after; after < 0: at the front. */
void kv_link_after(struct kv *kv, struct kv_list *l, int32_t after, int32_t b);
/* Number of leading empty places in a group's table of a slot. */
static inline int32_t *
kv_empty(const struct kv *kv, int32_t slot, int32_t group)
{
    return &kv->empty[(size_t)slot * (size_t)kv->n_group + (size_t)group];
}
/* The hash by which the group's block with the tokens of h is indexed. */
static inline struct kv_hash
kv_name(const struct kv_hash *h, int32_t group)
{
    return (struct kv_hash){ h->a ^ (uint64_t)group, h->b };
}
static inline int
kv_is_known(const struct kv_block *k)
{
    return (k->h.a | k->h.b) != 0;
}
static inline int
kv_same(const struct kv_hash *x, const struct kv_hash *y)
{
    return x->a == y->a && x->b == y->b;
}
/* Indexes block b by h. The caller moves it to the right list. */
void kv_index_block(struct kv *kv, int32_t b, const struct kv_hash *h);
/* Queues a copy of the block indexed by h. host: number of the host block, counted after
 * the device blocks. */
void
kv_command(struct kv *kv, int32_t dev, int32_t host, int to_host, const struct kv_hash *h);
/* Removes a holder of b. */
void kv_unref(struct kv *kv, int32_t b, uint64_t last_epoch);
/* Puts b into the list of its epoch, sorted. */
void kv_defer(struct kv *kv, int32_t b);
/* Allocates a block, with one holder and not indexed, evicting one if needed; -1: none.
 * An eviction leaves n_keep copy commands unused. */
int32_t kv_take(struct kv *kv, int32_t n_keep);

/* ---- used on every path ---------------------------------------------------------- */

/* The list of a deferred block, by its epoch. */
static inline struct kv_list *
kv_defer_list(const struct kv *kv, int32_t b)
{
    const struct kv_block *k = &kv->block[b];

    return &kv->index->defer[kv_is_known(k)][k->epoch % KV_N_DEFER];
}

/* The state of a block. Lists are moved as a whole without updating their blocks, so that
 * `where` may be outdated. */
static inline enum kv_where
kv_where(const struct kv *kv, int32_t b)
{
    const struct kv_block *k = &kv->block[b];

    if (k->where == KV_DEFERRED && k->epoch <= kv->collected)
        return kv_is_known(k) ? KV_IDLE : KV_FREE;
    return (enum kv_where)k->where;
}

static inline int32_t
kv_find_in(const struct kv *kv, int32_t b, const struct kv_hash *h)
{
    while (b >= 0 && !kv_same(&kv->block[b].h, h))
        b = kv->block[b].chain;
    return b;
}

/* The block indexed by h on the device, or on the host; -1: none. */
static inline int32_t
kv_find_dev(const struct kv *kv, const struct kv_hash *h)
{
    return kv_find_in(kv, kv->index->dev[h->a & kv->index->dev_mask], h);
}

static inline int32_t
kv_find_host(const struct kv *kv, const struct kv_hash *h)
{
    if (kv->cfg.n_host == 0)
        return -1;
    return kv_find_in(kv, kv->index->host[h->a & kv->index->host_mask], h);
}

static inline void
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

static inline int32_t *
kv_bucket(const struct kv *kv, int32_t b, const struct kv_hash *h)
{
    struct kv_index *ix = kv->index;

    return b < kv->n_block ? &ix->dev[h->a & ix->dev_mask] : &ix->host[h->a & ix->host_mask];
}

/* Unindexes a block. */
static inline void
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

/* Adds a holder to a block. */
static inline void
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

#endif
