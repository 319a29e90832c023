/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The prefix cache: finds and attaches the cached blocks of each group that a sequence
 * begins with.
 */
#include "config.h"

#include "daemon/worker/kvcache.h"

#include "daemon/common/obj.h"
#include "daemon/worker/kvcache_priv.h"

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

/* Looks up the group's block with the tokens of h. Returns 0 if the device lacks it and
 * the host lacks it or there is no copy command for it; else 1. */
static inline int
kv_see(const struct kv *kv, const struct kv_hash *h, int32_t group, struct kv_match *m)
{
    struct kv_hash name = kv_name(h, group);
    int32_t b = kv_find_dev(kv, &name);

    if (b >= 0)
        m->n_idle += kv_where(kv, b) == KV_IDLE;
    else if (m->n_host < kv->cfg.max_copy - kv->n_copy && kv_find_host(kv, &name) >= 0)
        m->n_host++;
    else
        return 0;
    return 1;
}

/* ---- groups with a window ---------------------------------------------------------- */

/* The longest prefix of at most n places after which a token finds its whole window in
 * the group. */
static int32_t
kv_whole_of(const struct kv *kv, int32_t group, const struct kv_hash *h, int32_t n,
    int host, struct kv_match *m)
{
    int32_t B = kv->block_size;

    for (int32_t i = n - 1; i >= kv_first(kv, group, n * B); i--) {
        struct kv_hash name = kv_name(&h[i], group);

        m->n_seen++;
        if (kv_find_dev(kv, &name) < 0 && (!host || kv_find_host(kv, &name) < 0))
            n = i;
    }
    return n;
}

/* The same for all groups with a window, and the counts of its blocks. */
static struct kv_match
kv_whole(const struct kv *kv, const struct kv_hash *h, int32_t n, int host)
{
    struct kv_match m = { .n = n };
    int32_t same = 0;

    for (int32_t g = 0; same < kv->n_group; g = (g + 1) % kv->n_group) {
        n = kv->cfg.window[g] > 0 ? kv_whole_of(kv, g, h, m.n, host, &m) : m.n;
        same = n == m.n ? same + 1 : 1;
        m.n = n;
    }
    for (int32_t g = 0; g < kv->n_group; g++)
        for (int32_t i = kv_first(kv, g, m.n * kv->block_size); i < m.n; i++)
            if (!kv_see(kv, &h[i], g, &m))
                return (struct kv_match){ .n_seen = m.n_seen + m.n };
    m.n_seen += m.n;
    m.n_dev = m.n;
    m.n_dev_idle = m.n_idle;
    return m;
}

/* Shortens the prefix *m of the groups without a window to what groups with one have.
 * Host blocks for which no copy commands are left do not count: a window must be
 * complete. */
static void
kv_find_windowed(const struct kv *kv, const struct kv_hash *h, struct kv_match *m)
{
    struct kv_match dev = kv_whole(kv, h, m->n_dev, 0), all;

    dev.n_seen += m->n_seen;
    if (kv->cfg.n_host > 0) {
        all = kv_whole(kv, h, m->n, 1);
        all.n_seen += dev.n_seen;
        all.n_dev = dev.n_dev;
        all.n_dev_idle = dev.n_dev_idle;
        if (all.n > dev.n)
            dev = all;
    }
    *m = dev;
}

/* ---- look-ups ---------------------------------------------------------------------- */

/* Looks up a place's blocks in all groups without a window. */
static int
kv_see_all(const struct kv *kv, const struct kv_hash *h, struct kv_match *m)
{
    struct kv_match was = *m;

    for (int32_t g = 0; g < kv->n_group; g++)
        if (kv->cfg.window[g] == 0 && !kv_see(kv, h, g, m)) {
            *m = was;
            return 0;
        }
    return 1;
}

void
kv_find(const struct kv *kv, const struct kv_hash *h, int32_t n, struct kv_match *ret)
{
    struct kv_match m = { 0 };
    int simple = kv->n_group == 1 && kv->n_windowed == 0;

    for (; m.n < n; m.n++) {
        kv_fetch(kv, h, m.n, n);
        if (!(simple ? kv_see(kv, &h[m.n], 0, &m) : kv_see_all(kv, &h[m.n], &m)))
            break;
        if (m.n_host == 0) {
            m.n_dev = m.n + 1;
            m.n_dev_idle = m.n_idle;
        }
    }
    m.n_seen = m.n;
    if (kv->n_windowed > 0)
        kv_find_windowed(kv, h, &m);
    *ret = m;
}

int
kv_has(const struct kv *kv, const struct kv_hash *h)
{
    for (int32_t g = 0; g < kv->n_group; g++) {
        struct kv_hash name = kv_name(h, g);

        if (kv_find_dev(kv, &name) < 0)
            return 0;
    }
    return 1;
}

/* ---- attaching ----------------------------------------------------------------------- */

/* Adds a holder to the block indexed by name, or marks its host block so that it is not
 * reused; *n counts those. Returns the block, -block for the host, 0: not found. */
static int32_t
kv_claim_block(struct kv *kv, const struct kv_hash *name, int32_t *n)
{
    int32_t b = kv_find_dev(kv, name), x;

    if (b >= 0) {
        kv_ref(kv, b);
        return b;
    }
    x = *n < kv->cfg.max_copy - kv->n_copy ? kv_find_host(kv, name) : -1;
    if (x < 0)
        return 0;
    if (kv->block[x].where == KV_HOST_USED)
        kv_unlink(kv, &kv->index->host_used, x);
    kv->block[x].where = KV_HOST_WANTED;
    (*n)++;
    return -x;
}

/* Claims the blocks of n places for slot's tables, except places before the windows.
 * Returns how many places are complete. */
static int32_t
kv_claim(struct kv *kv, int32_t slot, const struct kv_hash *h, int32_t n, int32_t *ret_host)
{
    const int32_t *empty = kv_empty(kv, slot, 0);
    int32_t *t = kv_row(kv, slot, 0), i;

    *ret_host = 0;
    for (i = 0; i < n; i++) {
        kv_fetch(kv, h, i, n);
        for (int32_t g = 0; g < kv->n_group; g++) {
            struct kv_hash name = kv_name(&h[i], g);
            int32_t *at = t + (size_t)g * kv->group_step + (size_t)i;

            if (i < empty[g])
                continue;
            *at = kv_claim_block(kv, &name, ret_host);
            if (*at == 0)
                return i;
        }
    }
    return i;
}

/* Brings host block x back, with n_keep copy commands reserved, its own included. Returns
 * the device block; -1: no block is left. */
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

/* Gets device blocks for the host blocks claimed at n places. Returns how many places are
 * complete. */
static int32_t
kv_fill_all(struct kv *kv, int32_t slot, int32_t n, int32_t n_host)
{
    int32_t *t = kv_row(kv, slot, 0);

    for (int32_t i = 0; n_host > 0 && i < n; i++)
        for (int32_t g = 0; g < kv->n_group; g++) {
            int32_t *at = t + (size_t)g * kv->group_step + (size_t)i, b;

            if (*at >= 0)
                continue;
            b = kv_fill(kv, -*at, n_host--);
            if (b < 0)
                return i;
            *at = b;
        }
    return n;
}

/* Releases the blocks claimed at places [from, n). */
static void
kv_unclaim(struct kv *kv, int32_t slot, int32_t from, int32_t n)
{
    int32_t *t = kv_row(kv, slot, 0);

    for (int32_t i = n - 1; i >= from; i--)
        for (int32_t g = 0; g < kv->n_group; g++) {
            int32_t *at = t + (size_t)g * kv->group_step + (size_t)i;

            if (*at > 0)
                kv_unref(kv, *at, 0);
            *at = 0;
        }
}

/* Host blocks of the first n places may be reused again. */
static void
kv_unwant(struct kv *kv, const struct kv_hash *h, int32_t n)
{
    for (int32_t i = n - 1; i >= 0; i--)
        for (int32_t g = 0; g < kv->n_group; g++) {
            struct kv_hash name = kv_name(&h[i], g);
            int32_t x = kv_find_host(kv, &name);

            if (x < 0 || kv->block[x].where != KV_HOST_WANTED)
                continue;
            kv->block[x].where = KV_HOST_USED;
            kv_link_after(kv, &kv->index->host_used, kv->index->host_used.tail, x);
        }
}

/* Sets the empty places of slot's tables, before blocks for n_tok tokens are attached. */
static void
kv_set_empty(struct kv *kv, int32_t slot, int32_t n_tok)
{
    kv->n_empty[slot] = 0;
    for (int32_t g = 0; g < kv->n_group; g++) {
        *kv_empty(kv, slot, g) = kv_first(kv, g, n_tok);
        kv->n_empty[slot] += *kv_empty(kv, slot, g);
    }
}

int32_t
kv_attach(struct kv *kv, int32_t slot, const struct kv_hash *h, int32_t n)
{
    int32_t want = n, claimed, got, n_host;

    ASSERT(kv->n_held[slot] == 0 && n >= 0 && n <= kv->stride);
    if (kv->n_windowed > 0) {
        struct kv_match m;

        kv_find(kv, h, n, &m);
        want = m.n;
    }
    kv_set_empty(kv, slot, want * kv->block_size);
    claimed = kv_claim(kv, slot, h, want, &n_host);
    got = kv_fill_all(kv, slot, claimed, n_host);
    if (got < want && kv->n_windowed > 0)
        got = 0;
    if (got < want)
        kv_unclaim(kv, slot, got, claimed < want ? claimed + 1 : want);
    if (n_host > 0)
        kv_unwant(kv, h, claimed < want ? claimed + 1 : want);
    if (got < want)
        kv_set_empty(kv, slot, got * kv->block_size);
    kv->n_held[slot] = got;
    kv->n_lookup += (uint64_t)n;
    kv->n_hit += (uint64_t)got;
    return got;
}

void
kv_register(struct kv *kv, int32_t slot, int32_t i, const struct kv_hash *h)
{
    ASSERT(i >= 0 && i < kv->n_held[slot] && (h->a | h->b) != 0);
    for (int32_t g = 0; g < kv->n_group; g++) {
        int32_t b = kv_row(kv, slot, g)[i];
        struct kv_hash name = kv_name(h, g);

        if (i < *kv_empty(kv, slot, g))
            continue;
        if (kv_is_known(&kv->block[b]))
            ASSERT(kv_same(&kv->block[b].h, &name));
        else if (kv_find_dev(kv, &name) < 0)
            kv_index_block(kv, b, &name);
    }
}

/* Unindexes device block b, in whatever state it is. */
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
    for (int32_t g = 0; g < kv->n_group; g++) {
        struct kv_hash name = kv_name(h, g);
        int32_t b = kv_find_dev(kv, &name), x = kv_find_host(kv, &name);

        if (b >= 0)
            kv_forget_dev(kv, b);
        if (x < 0)
            continue;
        kv_unlink(kv, &kv->index->host_used, x);
        kv_unindex(kv, x);
        kv->block[x].where = KV_HOST_FREE;
        kv_link_after(kv, &kv->index->host_free, kv->index->host_free.tail, x);
        kv->n_host_used--;
    }
}

/* ---- sharing -------------------------------------------------------------------------- */

int
kv_can_share(const struct kv *kv, int32_t slot, int32_t n_tok)
{
    for (int32_t g = 0; kv->n_empty[slot] > 0 && g < kv->n_group; g++)
        if (*kv_empty(kv, slot, g) > kv_first(kv, g, n_tok))
            return 0;
    return 1;
}

void
kv_share(struct kv *kv, int32_t slot, int32_t from, int32_t n_tok)
{
    int32_t n = n_tok / kv->block_size;

    ASSERT(slot != from && kv->n_held[slot] == 0 && n_tok >= 0 && n <= kv->n_held[from]);
    ASSERT(kv_can_share(kv, from, n_tok));
    kv_set_empty(kv, slot, n_tok);
    for (int32_t g = 0; g < kv->n_group; g++) {
        int32_t *t = kv_row(kv, slot, g);
        const int32_t *f = kv_row(kv, from, g);

        for (int32_t i = *kv_empty(kv, slot, g); i < n; i++) {
            if (i + KV_AHEAD < n)
                __builtin_prefetch(&kv->block[f[i + KV_AHEAD]], 1);
            kv_ref(kv, f[i]);
            t[i] = f[i];
        }
    }
    kv->n_held[slot] = n;
}

void
kv_dup(struct kv *kv, int32_t slot, int32_t from, int32_t i, uint64_t epoch)
{
    ASSERT(i < kv->n_held[slot] && i < kv->n_held[from]);
    for (int32_t g = 0; g < kv->n_group; g++) {
        int32_t to = kv_row(kv, slot, g)[i], b = kv_row(kv, from, g)[i];

        ASSERT(kv->n_dup < kv->n_slot * kv->n_group && b > 0);
        ASSERT(to != b && kv->block[to].ref == 1 && !kv_is_known(&kv->block[to]));
        /* it must not be filled again before that step has read it */
        if (kv->block[b].epoch < epoch)
            kv->block[b].epoch = epoch;
        kv->dup[kv->n_dup++] = (struct kv_dup){ b, to };
    }
}

void
kv_copied(struct kv *kv)
{
    kv->n_copy = kv->n_dup = 0;
    kv->index->batch++;
    kv->index->n_save = kv->index->save_at = 0;
}
