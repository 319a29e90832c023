/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/bpe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BPE_MAGIC      0x42504531u
#define BPE_WORK_MAGIC 0x42505731u
#define BPE_ABSENT     UINT16_MAX
#define BPE_SHORT      40 /* words up to this length merge by scanning */
#define BPE_NO_RANK    UINT32_MAX
#define BPE_KEEP_SYMS  65536u /* a larger scratch is given back by trim */

#define BPE_CACHE_LOG2 13
#define BPE_CACHE_KEY  30
#define BPE_CACHE_IDS  8

struct bpe_merge {
    uint32_t left, right, rank, id;
};

/* What a byte of a word starts as. */
struct bpe_byte {
    uint32_t id[2];
    uint8_t n; /* 0: unknown */
};

struct bpe {
    uint32_t magic;
    uint32_t n_ids;
    uint32_t *off;  /* [n_ids] into arena */
    uint16_t *len;  /* [n_ids], BPE_ABSENT: no such token */
    uint8_t *flags; /* [n_ids] */
    uint8_t *arena;
    size_t arena_n, arena_cap;
    uint32_t *slot; /* id + 1, 0: empty */
    uint32_t slot_mask;
    struct bpe_merge *merge; /* rank BPE_NO_RANK: empty */
    uint32_t merge_mask, n_merges, max_merges;
    struct bpe_byte byte[256];
    unsigned max_per_byte; /* most tokens that one byte starts as */
    struct bpe_opts opts;
};

struct bpe_sym {
    uint32_t id;
    int32_t prev, next; /* prev -2: merged into its left neighbour */
};

struct bpe_cand {
    uint32_t rank, pos, id;
};

struct bpe_cached {
    uint8_t n_key, n_ids;
    uint8_t key[BPE_CACHE_KEY];
    uint32_t ids[BPE_CACHE_IDS];
};

struct bpe_work {
    uint32_t magic;
    const struct bpe *bpe;
    const uint8_t *word;
    size_t n, at; /* at: bytes entered */
    bool done, unk;
    struct bpe_sym *sym;
    size_t n_sym, cap_sym;
    struct bpe_cand *heap;
    size_t n_heap, cap_heap;
    uint32_t *res;
    size_t n_res;
    struct bpe_cached *hit; /* where to remember the word, NULL: nowhere */
    uint32_t small[2 * BPE_SHORT + 2];
    uint32_t rank[2 * BPE_SHORT + 2];
    uint32_t into[2 * BPE_SHORT + 2];
    struct bpe_cached cache[1u << BPE_CACHE_LOG2];
};

uint32_t
bpe_byte_to_char(uint8_t byte)
{
    if (byte <= 32)
        return 256u + byte;
    if (byte >= 127 && byte <= 160)
        return 256u + 33u + (byte - 127u);
    if (byte == 173)
        return 256u + 67u;
    return byte;
}

int
bpe_char_to_byte(uint32_t cp)
{
    if (cp < 256)
        return bpe_byte_to_char((uint8_t)cp) == cp ? (int)cp : -1;
    if (cp < 256 + 33)
        return (int)(cp - 256);
    if (cp < 256 + 67)
        return (int)(cp - 256 - 33 + 127);
    return cp == 256 + 67 ? 173 : -1;
}

static uint32_t
bpe_hash(const uint8_t *p, size_t n)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ n;

    while (n >= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        h = (h ^ v) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
        p += 8;
        n -= 8;
    }
    if (n) {
        uint64_t v = 0;
        memcpy(&v, p, n);
        h = (h ^ v) * 0xc4ceb9fe1a85ec53u;
        h ^= h >> 32;
    }
    h *= 0xff51afd7ed558ccdu;
    return (uint32_t)(h >> 32);
}

static uint32_t
bpe_pair_hash(uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 35);
}

/* The power of two that holds n entries at a load of two thirds at most. */
static uint32_t
bpe_table_size(uint32_t n)
{
    uint32_t size = 16;

    while (size - size / 3 < n)
        size *= 2;
    return size;
}

struct bpe *
bpe_new(uint32_t n_ids, uint32_t n_merges)
{
    struct bpe *bpe;
    uint32_t i, n_slots, n_cells;

    if (n_ids > BPE_MAX_IDS || n_merges > 2 * BPE_MAX_IDS)
        return NULL;
    bpe = calloc(1, sizeof(*bpe));
    if (!bpe)
        return NULL;
    bpe->magic = BPE_MAGIC;
    bpe->n_ids = n_ids;
    bpe->max_merges = n_merges;
    n_slots = bpe_table_size(n_ids);
    n_cells = bpe_table_size(n_merges);
    bpe->slot_mask = n_slots - 1;
    bpe->merge_mask = n_cells - 1;
    bpe->off = calloc(n_ids ? n_ids : 1, sizeof(*bpe->off));
    bpe->len = malloc((n_ids ? n_ids : 1) * sizeof(*bpe->len));
    bpe->flags = calloc(n_ids ? n_ids : 1, 1);
    bpe->slot = calloc(n_slots, sizeof(*bpe->slot));
    bpe->merge = malloc(n_cells * sizeof(*bpe->merge));
    if (!bpe->off || !bpe->len || !bpe->flags || !bpe->slot || !bpe->merge)
        return bpe_free(bpe);
    memset(bpe->len, 0xff, (n_ids ? n_ids : 1) * sizeof(*bpe->len));
    for (i = 0; i < n_cells; i++)
        bpe->merge[i].rank = BPE_NO_RANK;
    return bpe;
}

struct bpe *
bpe_free(struct bpe *bpe)
{
    if (bpe && bpe->magic == BPE_MAGIC) {
        bpe->magic = 0;
        free(bpe->off);
        free(bpe->len);
        free(bpe->flags);
        free(bpe->slot);
        free(bpe->merge);
        free(bpe->arena);
        free(bpe);
    }
    return NULL;
}

int
bpe_add_token(struct bpe *bpe, uint32_t id, const uint8_t *bytes, size_t n, unsigned flags)
{
    if (id >= bpe->n_ids || n > BPE_MAX_TOKEN_BYTES)
        return -EINVAL;
    if (bpe->len[id] != BPE_ABSENT) {
        if (bpe->len[id] != n || (n && memcmp(bpe->arena + bpe->off[id], bytes, n)))
            return -EEXIST;
        bpe->flags[id] |= (uint8_t)flags;
        return 0;
    }
    if (bpe->arena_cap - bpe->arena_n < n + 1) {
        size_t cap = 2 * bpe->arena_cap + 2 * BPE_MAX_TOKEN_BYTES;
        uint8_t *p;

        if (cap > UINT32_MAX)
            return -ENOMEM;
        p = realloc(bpe->arena, cap);
        if (!p)
            return -ENOMEM;
        bpe->arena = p;
        bpe->arena_cap = cap;
    }
    bpe->off[id] = (uint32_t)bpe->arena_n;
    bpe->len[id] = (uint16_t)n;
    bpe->flags[id] = (uint8_t)flags;
    if (n)
        memcpy(bpe->arena + bpe->arena_n, bytes, n);
    bpe->arena_n += n;
    return 0;
}

static struct bpe_merge *
bpe_merge_cell(const struct bpe *bpe, uint32_t left, uint32_t right)
{
    uint32_t i = bpe_pair_hash(left, right) & bpe->merge_mask;

    for (;; i = (i + 1) & bpe->merge_mask) {
        struct bpe_merge *m = &bpe->merge[i];
        if (m->rank == BPE_NO_RANK || (m->left == left && m->right == right))
            return m;
    }
}

int
bpe_add_merge(struct bpe *bpe, uint32_t left, uint32_t right, uint32_t rank, uint32_t id)
{
    struct bpe_merge *m;

    if (left >= bpe->n_ids || right >= bpe->n_ids || id >= bpe->n_ids || rank == BPE_NO_RANK)
        return -EINVAL;
    m = bpe_merge_cell(bpe, left, right);
    if (m->rank == BPE_NO_RANK) {
        if (bpe->n_merges == bpe->max_merges)
            return -ENOSPC;
        bpe->n_merges++;
    }
    *m = (struct bpe_merge){ left, right, rank, id };
    return 0;
}

int
bpe_find(const struct bpe *bpe, const uint8_t *bytes, size_t n)
{
    uint32_t i;

    if (n > BPE_MAX_TOKEN_BYTES)
        return -ENOENT;
    i = bpe_hash(bytes, n) & bpe->slot_mask;
    for (; bpe->slot[i]; i = (i + 1) & bpe->slot_mask) {
        uint32_t id = bpe->slot[i] - 1;
        if (bpe->len[id] == n && !memcmp(bpe->arena + bpe->off[id], bytes, n))
            return (int)id;
    }
    return -ENOENT;
}

static void
bpe_index_byte(struct bpe *bpe, unsigned b)
{
    static const char hex[] = "0123456789ABCDEF";
    struct bpe_byte *to = &bpe->byte[b];
    uint8_t one = (uint8_t)b, utf8[2];
    uint32_t cp = bpe_byte_to_char(one);
    int id = bpe_find(bpe, &one, 1), n, i;

    to->n = 0;
    if (id >= 0) {
        to->id[0] = (uint32_t)id;
        to->n = 1;
        return;
    }
    if (!bpe->opts.byte_fallback)
        return;
    /* The fallback spells the bytes of the character that stands for b. */
    n = cp < 0x80 ? 1 : 2;
    utf8[0] = (uint8_t)(n == 1 ? cp : 0xc0 | cp >> 6);
    utf8[1] = (uint8_t)(0x80 | (cp & 0x3f));
    for (i = 0; i < n; i++) {
        uint8_t name[6] = { '<', '0', 'x', (uint8_t)hex[utf8[i] >> 4],
            (uint8_t)hex[utf8[i] & 15], '>' };
        id = bpe_find(bpe, name, sizeof(name));
        if (id < 0)
            return;
        to->id[i] = (uint32_t)id;
    }
    to->n = (uint8_t)n;
}

int
bpe_seal(struct bpe *bpe, const struct bpe_opts *opts)
{
    uint8_t *p;
    uint32_t id;
    unsigned b;

    if (opts->unk_id >= (int64_t)bpe->n_ids)
        return -EINVAL;
    bpe->opts = *opts;
    for (id = 0; id < bpe->n_ids; id++) {
        uint32_t i;

        if (bpe->len[id] == BPE_ABSENT || bpe->flags[id] & BPE_TOK_RAW ||
            !(bpe->flags[id] & BPE_TOK_VOCAB))
            continue;
        i = bpe_hash(bpe->arena + bpe->off[id], bpe->len[id]) & bpe->slot_mask;
        while (bpe->slot[i])
            i = (i + 1) & bpe->slot_mask;
        bpe->slot[i] = id + 1;
    }
    bpe->max_per_byte = 1;
    for (b = 0; b < 256; b++) {
        bpe_index_byte(bpe, b);
        if (bpe->byte[b].n > bpe->max_per_byte)
            bpe->max_per_byte = bpe->byte[b].n;
    }
    p = realloc(bpe->arena, bpe->arena_n + 1);
    if (p) {
        bpe->arena = p;
        bpe->arena_cap = bpe->arena_n + 1;
    }
    return 0;
}

int
bpe_token(const struct bpe *bpe, uint32_t id, const uint8_t **ret_bytes, size_t *ret_n,
    unsigned *ret_flags)
{
    if (id >= bpe->n_ids || bpe->len[id] == BPE_ABSENT)
        return -ENOENT;
    *ret_bytes = bpe->arena + bpe->off[id];
    *ret_n = bpe->len[id];
    *ret_flags = bpe->flags[id];
    return 0;
}

struct bpe_work *
bpe_work_new(void)
{
    struct bpe_work *w = calloc(1, sizeof(*w));

    if (w)
        w->magic = BPE_WORK_MAGIC;
    return w;
}

struct bpe_work *
bpe_work_free(struct bpe_work *w)
{
    if (w && w->magic == BPE_WORK_MAGIC) {
        w->magic = 0;
        free(w->sym);
        free(w->heap);
        free(w);
    }
    return NULL;
}

void
bpe_work_trim(struct bpe_work *w)
{
    w->done = true;
    w->n_res = 0;
    if (w->cap_sym <= BPE_KEEP_SYMS)
        return;
    free(w->sym);
    free(w->heap);
    w->sym = NULL;
    w->heap = NULL;
    w->cap_sym = w->cap_heap = 0;
}

/* Enters the byte's tokens at out; returns how many (0 to 3). */
static size_t
bpe_enter(struct bpe_work *w, uint8_t byte, uint32_t *out)
{
    const struct bpe *bpe = w->bpe;
    const struct bpe_byte *b = &bpe->byte[byte];
    uint32_t unk = (uint32_t)bpe->opts.unk_id;
    size_t n = 0;
    bool known;

    if (!b->n) {
        if (bpe->opts.unk_id < 0)
            return 0;
        if (w->unk && !bpe->opts.fuse_unk)
            out[n++] = unk;
        w->unk = true;
        return n;
    }
    /*
     * A pending unknown token is written before the next byte that the
     * vocabulary has, but after the fallback tokens of one that it has not:
     * so does the reference.
     */
    known = !(bpe->opts.byte_fallback && (b->n == 2 || bpe->len[b->id[0]] != 1));
    if (w->unk && known) {
        out[n++] = unk;
        w->unk = false;
    }
    out[n++] = b->id[0];
    if (b->n == 2)
        out[n++] = b->id[1];
    return n;
}

static void
bpe_short_pair(struct bpe_work *w, size_t i)
{
    const struct bpe_merge *m = bpe_merge_cell(w->bpe, w->small[i], w->small[i + 1]);

    w->rank[i] = m->rank;
    w->into[i] = m->id;
}

/* Merges a short word by looking for the best pair again and again. */
static void
bpe_short(struct bpe_work *w)
{
    size_t n = 0, i, best;

    for (i = 0; i < w->n; i++)
        n += bpe_enter(w, w->word[i], w->small + n);
    if (w->unk)
        w->small[n++] = (uint32_t)w->bpe->opts.unk_id;
    for (i = 0; i + 1 < n; i++)
        bpe_short_pair(w, i);
    while (n > 1) {
        best = 0;
        for (i = 1; i + 1 < n; i++)
            if (w->rank[i] < w->rank[best])
                best = i;
        if (w->rank[best] == BPE_NO_RANK)
            break;
        w->small[best] = w->into[best];
        n--;
        for (i = best + 1; i < n; i++) {
            w->small[i] = w->small[i + 1];
            w->rank[i] = w->rank[i + 1];
            w->into[i] = w->into[i + 1];
        }
        if (best + 1 < n)
            bpe_short_pair(w, best);
        if (best)
            bpe_short_pair(w, best - 1);
    }
    w->res = w->small;
    w->n_res = n;
}

static void
bpe_remember(struct bpe_work *w)
{
    struct bpe_cached *c = w->hit;

    if (!c || w->n_res > BPE_CACHE_IDS)
        return;
    memcpy(c->key, w->word, w->n);
    c->n_key = (uint8_t)w->n;
    c->n_ids = (uint8_t)w->n_res;
    memcpy(c->ids, w->res, w->n_res * sizeof(*w->res));
}

static int
bpe_reserve(struct bpe_work *w, size_t n_sym)
{
    struct bpe_sym *sym;
    struct bpe_cand *heap;

    if (n_sym > w->cap_sym) {
        sym = realloc(w->sym, n_sym * sizeof(*sym));
        if (!sym)
            return -ENOMEM;
        w->sym = sym;
        w->cap_sym = n_sym;
    }
    /* Each merge removes a symbol, takes one candidate and adds up to two. */
    if (2 * n_sym > w->cap_heap) {
        heap = realloc(w->heap, 2 * n_sym * sizeof(*heap));
        if (!heap)
            return -ENOMEM;
        w->heap = heap;
        w->cap_heap = 2 * n_sym;
    }
    return 0;
}

int
bpe_begin(struct bpe_work *w, const struct bpe *bpe, const uint8_t *word, size_t n)
{
    uint32_t h;
    int id;

    if (n > BPE_MAX_WORD_BYTES)
        return -E2BIG;
    w->bpe = bpe;
    w->word = word;
    w->n = n;
    w->at = w->n_sym = w->n_heap = 0;
    w->unk = false;
    w->hit = NULL;
    w->done = true;
    w->res = w->small;
    w->n_res = 0;
    if (!n)
        return 0;
    if (n <= BPE_CACHE_KEY) {
        h = bpe_hash(word, n);
        w->hit = &w->cache[h >> (32 - BPE_CACHE_LOG2)];
        if (w->hit->n_key == n && !memcmp(w->hit->key, word, n)) {
            w->res = w->hit->ids;
            w->n_res = w->hit->n_ids;
            return 0;
        }
    }
    if (bpe->opts.ignore_merges) {
        id = bpe_find(bpe, word, n);
        if (id >= 0) {
            w->small[0] = (uint32_t)id;
            w->n_res = 1;
            bpe_remember(w);
            return 0;
        }
    }
    if (n <= BPE_SHORT) {
        bpe_short(w);
        bpe_remember(w);
        return 0;
    }
    w->done = false;
    return bpe_reserve(w, bpe->max_per_byte * n + 1);
}

static bool
bpe_before(const struct bpe_cand *a, const struct bpe_cand *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->pos < b->pos);
}

/* Offers the pair that starts at symbol pos. */
static void
bpe_offer(struct bpe_work *w, uint32_t pos)
{
    uint32_t left = w->sym[pos].id, right = w->sym[w->sym[pos].next].id;
    const struct bpe_merge *m = bpe_merge_cell(w->bpe, left, right);
    struct bpe_cand c = { m->rank, pos, m->id };
    size_t i = w->n_heap;

    if (m->rank == BPE_NO_RANK)
        return;
    w->n_heap++;
    while (i) {
        size_t up = (i - 1) / 2;
        if (!bpe_before(&c, &w->heap[up]))
            break;
        w->heap[i] = w->heap[up];
        i = up;
    }
    w->heap[i] = c;
}

static struct bpe_cand
bpe_take(struct bpe_work *w)
{
    struct bpe_cand top = w->heap[0], last = w->heap[--w->n_heap];
    size_t i = 0, kid;

    while ((kid = 2 * i + 1) < w->n_heap) {
        if (kid + 1 < w->n_heap && bpe_before(&w->heap[kid + 1], &w->heap[kid]))
            kid++;
        if (!bpe_before(&w->heap[kid], &last))
            break;
        w->heap[i] = w->heap[kid];
        i = kid;
    }
    w->heap[i] = last;
    return top;
}

static void
bpe_append(struct bpe_work *w, uint32_t id)
{
    int32_t at = (int32_t)w->n_sym++;

    w->sym[at] = (struct bpe_sym){ id, at - 1, -1 };
    if (at) {
        w->sym[at - 1].next = at;
        bpe_offer(w, (uint32_t)(at - 1));
    }
}

/* Tries the best candidate; a stale one is dropped. */
static void
bpe_try(struct bpe_work *w)
{
    struct bpe_cand c = bpe_take(w);
    struct bpe_sym *s = &w->sym[c.pos], *right;
    const struct bpe_merge *m;

    if (s->prev == -2 || s->next < 0)
        return;
    right = &w->sym[s->next];
    m = bpe_merge_cell(w->bpe, s->id, right->id);
    if (m->rank != c.rank)
        return;
    s->id = c.id;
    s->next = right->next;
    right->prev = -2;
    if (s->next >= 0) {
        w->sym[s->next].prev = (int32_t)c.pos;
        bpe_offer(w, c.pos);
    }
    if (s->prev >= 0)
        bpe_offer(w, (uint32_t)s->prev);
}

static void
bpe_finish(struct bpe_work *w)
{
    int32_t i;
    size_t n = 0;

    /* The heap is empty by now and has room for twice the symbols. */
    w->res = (uint32_t *)(void *)w->heap;
    for (i = w->n_sym ? 0 : -1; i >= 0; i = w->sym[i].next)
        w->res[n++] = w->sym[i].id;
    w->n_res = n;
    w->done = true;
}

int
bpe_step(struct bpe_work *w, size_t *budget)
{
    uint32_t ids[3];
    size_t n, i;

    if (w->done)
        return 1;
    for (; w->at < w->n; w->at++) {
        if (!*budget)
            return 0;
        --*budget;
        n = bpe_enter(w, w->word[w->at], ids);
        for (i = 0; i < n; i++)
            bpe_append(w, ids[i]);
    }
    if (w->unk) {
        bpe_append(w, (uint32_t)w->bpe->opts.unk_id);
        w->unk = false;
    }
    while (w->n_heap) {
        if (!*budget)
            return 0;
        --*budget;
        bpe_try(w);
    }
    bpe_finish(w);
    return 1;
}

const uint32_t *
bpe_ids(const struct bpe_work *w, size_t *ret_n)
{
    *ret_n = w->n_res;
    return w->res;
}
