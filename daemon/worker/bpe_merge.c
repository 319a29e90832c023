/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/bpe.h"
#include "daemon/worker/bpe_priv.h"
#include "daemon/worker/wordcache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BPE_WORK_MAGIC 0x42505731u
#define BPE_SHORT      40     /* pretokens up to this length are merged by scanning */
#define BPE_KEEP_SYMS  65536u /* bpe_work_trim() frees a larger scratch */
#define BPE_OPEN       256u   /* a power of two */
#define BPE_ENTER      (1 + BPE_CHAR_BYTES)

struct bpe_sym {
    uint32_t id;
    int32_t prev, next; /* prev -2: merged into its left neighbour */
};

/*
 * Possible merges are queued. Each queue has the candidates of one merge, in order of
 * position; a repetitive text has few queues. In the heap queues are sorted by rank, then
 * by the position of their first candidate.
 */
struct bpe_queue {
    uint32_t id;        /* resulting token of the merge */
    uint32_t last;      /* position of the last candidate */
    int32_t head, tail; /* nodes after the first candidate, -1: none; free queues are
                           chained by head */
};

struct bpe_node {
    uint32_t pos;
    int32_t next;
};

struct bpe_top {
    uint32_t rank, pos; /* position of the queue's first candidate */
    int32_t queue;
};

struct bpe_open {
    uint32_t rank; /* BPE_NO_RANK: empty */
    int32_t queue;
};

struct bpe_work {
    uint32_t magic;
    const struct bpe *bpe;
    const uint8_t *pretoken;
    size_t n, at; /* at: bytes entered so far */
    bool done, unk;
    struct bpe_sym *sym;
    size_t n_sym, cap_sym;
    struct bpe_top *heap;
    struct bpe_queue *queue;
    size_t n_heap, n_queue, cap_queue; /* cap_queue: also the heap's capacity */
    int32_t free_queue;                /* -1: none */
    struct bpe_node *node;
    size_t n_node, cap_node;
    int32_t free_node;
    struct bpe_open open[BPE_OPEN]; /* queues to append to, indexed by rank modulo
                                       BPE_OPEN */
    const uint32_t *res;
    size_t n_res;
    struct wca_word *place; /* cache entry for the pretoken's result, NULL: none */
    uint32_t small[2 * BPE_SHORT + 2];
    uint32_t rank[2 * BPE_SHORT + 2];
    uint32_t into[2 * BPE_SHORT + 2];
    struct wca cache;
};

struct bpe_work *
bpe_work_new(void)
{
    struct bpe_work *w = calloc(1, sizeof(*w));

    if (w)
        w->magic = BPE_WORK_MAGIC;
    return w;
}

static void
bpe_scratch_free(struct bpe_work *w)
{
    free(w->sym);
    free(w->heap);
    free(w->queue);
    free(w->node);
    w->sym = NULL;
    w->heap = NULL;
    w->queue = NULL;
    w->node = NULL;
    w->cap_sym = w->cap_queue = w->cap_node = 0;
}

struct bpe_work *
bpe_work_free(struct bpe_work *w)
{
    if (w && w->magic == BPE_WORK_MAGIC) {
        w->magic = 0;
        bpe_scratch_free(w);
        free(w);
    }
    return NULL;
}

void
bpe_work_trim(struct bpe_work *w)
{
    w->done = true;
    w->n_res = 0;
    if (w->cap_sym > BPE_KEEP_SYMS)
        bpe_scratch_free(w);
}

/* Writes a pending unk token, before a known token. */
static size_t
bpe_enter_unk(struct bpe_work *w, uint32_t *out)
{
    if (!w->unk)
        return 0;
    w->unk = false;
    *out = (uint32_t)w->bpe->opts.unk_id;
    return 1;
}

/* An unknown byte or character: its unk token becomes pending, and an earlier pending one
 * is written unless fuse_unk. */
static size_t
bpe_enter_unknown(struct bpe_work *w, uint32_t *out)
{
    size_t n = 0;

    if (w->bpe->opts.unk_id < 0)
        return 0;
    if (!w->bpe->opts.fuse_unk)
        n = bpe_enter_unk(w, out);
    w->unk = true;
    return n;
}

/*
 * Byte-fallback tokens do not end a run of unknown bytes, as in the reference.
 */
static size_t
bpe_enter_byte(struct bpe_work *w, uint32_t *out)
{
    const struct bpe *bpe = w->bpe;
    const struct bpe_byte *b = &bpe->byte[w->pretoken[w->at++]];
    size_t n = 0;

    if (!b->n)
        return bpe_enter_unknown(w, out);
    if (!bpe->opts.byte_fallback || (b->n == 1 && bpe->token[b->id[0]].len == 1))
        n = bpe_enter_unk(w, out);
    out[n++] = b->id[0];
    if (b->n == 2)
        out[n++] = b->id[1];
    return n;
}

/* The id of the character at s, with prefix and suffix; below 0: unknown. */
static int
bpe_char_id(const struct bpe_work *w, const uint8_t *s, unsigned len)
{
    const struct bpe_opts *o = &w->bpe->opts;
    uint8_t name[BPE_CHAR_BYTES + 2 * BPE_MAX_AFFIX];
    size_t n = 0;

    if (!o->n_prefix && !o->n_suffix)
        return len == 1 ? w->bpe->ascii[*s] : bpe_find(w->bpe, s, len);
    if (s != w->pretoken) {
        memcpy(name, o->prefix, o->n_prefix);
        n = o->n_prefix;
    }
    memcpy(name + n, s, len);
    n += len;
    if (s + len == w->pretoken + w->n) {
        memcpy(name + n, o->suffix, o->n_suffix);
        n += o->n_suffix;
    }
    return bpe_find(w->bpe, name, n);
}

static size_t
bpe_enter_char(struct bpe_work *w, uint32_t *out)
{
    const struct bpe *bpe = w->bpe;
    const uint8_t *s = w->pretoken + w->at;
    unsigned len = bpe_char_len(*s), i;
    int id = bpe_char_id(w, s, len);
    size_t n;

    w->at += len;
    if (id >= 0) {
        n = bpe_enter_unk(w, out);
        out[n] = (uint32_t)id;
        return n + 1;
    }
    for (i = 0; bpe->opts.byte_fallback && i < len && bpe->fallback[s[i]] >= 0; i++)
        out[i] = (uint32_t)bpe->fallback[s[i]];
    return i == len ? len : bpe_enter_unknown(w, out);
}

/* Enters the next byte or character: writes at most BPE_ENTER ids to out; returns how
 * many. */
static size_t
bpe_enter(struct bpe_work *w, uint32_t *out)
{
    return w->bpe->opts.chars ? bpe_enter_char(w, out) : bpe_enter_byte(w, out);
}

static void
bpe_short_pair(struct bpe_work *w, size_t i)
{
    const struct bpe_merge *m = bpe_merge_cell(w->bpe, w->small[i], w->small[i + 1]);

    w->rank[i] = m->rank;
    w->into[i] = m->id;
}

/* Merges a short pretoken by searching for the best merge repeatedly. */
static void
bpe_short(struct bpe_work *w)
{
    size_t n = 0, i, best;

    while (w->at < w->n)
        n += bpe_enter(w, w->small + n);
    n += bpe_enter_unk(w, w->small + n);
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

static int
bpe_reserve(struct bpe_work *w, size_t n_sym)
{
    struct bpe_sym *sym;
    size_t i;

    if (n_sym > w->cap_sym) {
        sym = realloc(w->sym, n_sym * sizeof(*sym));
        if (!sym)
            return -ENOMEM;
        w->sym = sym;
        w->cap_sym = n_sym;
    }
    w->n_heap = w->n_queue = w->n_node = 0;
    w->free_queue = w->free_node = -1;
    for (i = 0; i < BPE_OPEN; i++)
        w->open[i].rank = BPE_NO_RANK;
    return 0;
}

int
bpe_begin(struct bpe_work *w, const struct bpe *bpe, const uint8_t *pretoken, size_t n)
{
    const struct wca_word *hit;
    int id;

    if (n > BPE_MAX_WORD_BYTES)
        return -E2BIG;
    w->bpe = bpe;
    w->pretoken = pretoken;
    w->n = n;
    w->at = w->n_sym = 0;
    w->unk = false;
    w->done = true;
    w->res = w->small;
    w->n_res = 0;
    if (!n)
        return 0;
    hit = wca_find(&w->cache, pretoken, n, &w->place);
    if (hit) {
        w->res = hit->ids;
        w->n_res = hit->n_ids;
        return 0;
    }
    if (bpe->opts.ignore_merges) {
        id = bpe_find(bpe, pretoken, n);
        if (id >= 0) {
            w->small[0] = (uint32_t)id;
            w->n_res = 1;
            wca_put(w->place, pretoken, n, w->res, w->n_res);
            return 0;
        }
    }
    if (n <= BPE_SHORT) {
        bpe_short(w);
        wca_put(w->place, pretoken, n, w->res, w->n_res);
        return 0;
    }
    w->done = false;
    return bpe_reserve(w, (bpe->opts.byte_fallback ? 2 : 1) * n + 1);
}

/* ---- the queues ---- */

static bool
bpe_before(const struct bpe_top *a, const struct bpe_top *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->pos < b->pos);
}

static int32_t
bpe_node_new(struct bpe_work *w, uint32_t pos)
{
    int32_t i = w->free_node;

    if (i >= 0) {
        w->free_node = w->node[i].next;
    } else {
        if (w->n_node == w->cap_node) {
            size_t cap = w->cap_node ? 2 * w->cap_node : 256;
            struct bpe_node *p = realloc(w->node, cap * sizeof(*p));

            if (!p)
                return -1;
            w->node = p;
            w->cap_node = cap;
        }
        i = (int32_t)w->n_node++;
    }
    w->node[i] = (struct bpe_node){ pos, -1 };
    return i;
}

/* Makes room for another queue, also in the heap. */
static int32_t
bpe_queue_new(struct bpe_work *w)
{
    int32_t i = w->free_queue;

    if (i >= 0) {
        w->free_queue = w->queue[i].head;
        return i;
    }
    if (w->n_queue == w->cap_queue) {
        size_t cap = w->cap_queue ? 2 * w->cap_queue : 256;
        struct bpe_queue *q = realloc(w->queue, cap * sizeof(*q));
        struct bpe_top *h;

        if (!q)
            return -1;
        w->queue = q;
        h = realloc(w->heap, cap * sizeof(*h));
        if (!h)
            return -1;
        w->heap = h;
        w->cap_queue = cap;
    }
    return (int32_t)w->n_queue++;
}

static void
bpe_sift_down(struct bpe_work *w, struct bpe_top top)
{
    size_t i = 0, kid;

    while ((kid = 2 * i + 1) < w->n_heap) {
        if (kid + 1 < w->n_heap && bpe_before(&w->heap[kid + 1], &w->heap[kid]))
            kid++;
        if (!bpe_before(&w->heap[kid], &top))
            break;
        w->heap[i] = w->heap[kid];
        i = kid;
    }
    w->heap[i] = top;
}

static int
bpe_queue_begin(struct bpe_work *w, const struct bpe_merge *m, uint32_t pos)
{
    int32_t q = bpe_queue_new(w);
    struct bpe_top top = { m->rank, pos, q };
    size_t i = w->n_heap;

    if (q < 0)
        return -ENOMEM;
    w->queue[q] = (struct bpe_queue){ m->id, pos, -1, -1 };
    w->open[m->rank & (BPE_OPEN - 1)] = (struct bpe_open){ m->rank, q };
    for (w->n_heap++; i; i = (i - 1) / 2) {
        if (!bpe_before(&top, &w->heap[(i - 1) / 2]))
            break;
        w->heap[i] = w->heap[(i - 1) / 2];
    }
    w->heap[i] = top;
    return 0;
}

/* Queues the merge of the symbol at pos and the next one, if there is one. */
static int
bpe_offer(struct bpe_work *w, uint32_t pos)
{
    uint32_t left = w->sym[pos].id, right = w->sym[w->sym[pos].next].id;
    const struct bpe_merge *m = bpe_merge_cell(w->bpe, left, right);
    const struct bpe_open *open = &w->open[m->rank & (BPE_OPEN - 1)];
    struct bpe_queue *q;
    int32_t node;

    if (m->rank == BPE_NO_RANK)
        return 0;
    if (open->rank != m->rank || w->queue[open->queue].last > pos)
        return bpe_queue_begin(w, m, pos);
    q = &w->queue[open->queue];
    if (q->last == pos)
        return 0;
    node = bpe_node_new(w, pos);
    if (node < 0)
        return -ENOMEM;
    if (q->head < 0)
        q->head = node;
    else
        w->node[q->tail].next = node;
    q->tail = node;
    q->last = pos;
    return 0;
}

/* Removes the first candidate of all: returns its position and the resulting token. */
static uint32_t
bpe_take(struct bpe_work *w, uint32_t *ret_id)
{
    struct bpe_top top = w->heap[0];
    struct bpe_queue *q = &w->queue[top.queue];
    struct bpe_open *open = &w->open[top.rank & (BPE_OPEN - 1)];
    int32_t node = q->head;

    *ret_id = q->id;
    if (node >= 0) {
        q->head = w->node[node].next;
        bpe_sift_down(w, (struct bpe_top){ top.rank, w->node[node].pos, top.queue });
        w->node[node].next = w->free_node;
        w->free_node = node;
        return top.pos;
    }
    if (open->rank == top.rank && open->queue == top.queue)
        open->rank = BPE_NO_RANK;
    q->head = w->free_queue;
    w->free_queue = top.queue;
    if (--w->n_heap)
        bpe_sift_down(w, w->heap[w->n_heap]);
    return top.pos;
}

/* ---- merging ---- */

static int
bpe_append(struct bpe_work *w, uint32_t id)
{
    int32_t at = (int32_t)w->n_sym++;

    w->sym[at] = (struct bpe_sym){ id, at - 1, -1 };
    if (!at)
        return 0;
    w->sym[at - 1].next = at;
    return bpe_offer(w, (uint32_t)(at - 1));
}

/* Tries the best candidate; drops it if its symbols have changed. */
static int
bpe_try(struct bpe_work *w)
{
    uint32_t id, pos = bpe_take(w, &id);
    struct bpe_sym *s = &w->sym[pos], *right;
    const struct bpe_merge *m;
    int rc = 0;

    if (s->prev == -2 || s->next < 0)
        return 0;
    right = &w->sym[s->next];
    m = bpe_merge_cell(w->bpe, s->id, right->id);
    if (m->rank == BPE_NO_RANK || m->id != id)
        return 0;
    s->id = id;
    s->next = right->next;
    right->prev = -2;
    if (s->prev >= 0)
        rc = bpe_offer(w, (uint32_t)s->prev);
    if (s->next < 0)
        return rc;
    w->sym[s->next].prev = (int32_t)pos;
    return rc ? rc : bpe_offer(w, pos);
}

static void
bpe_finish(struct bpe_work *w)
{
    /* Written over the symbols: an id never overwrites a symbol that is still to be
     * read. */
    uint32_t *res = (uint32_t *)(void *)w->sym;
    int32_t i, next;
    size_t n = 0;

    for (i = w->n_sym ? 0 : -1; i >= 0; i = next) {
        uint32_t id = w->sym[i].id;

        next = w->sym[i].next;
        res[n++] = id;
    }
    w->res = res;
    w->n_res = n;
    w->done = true;
}

int
bpe_step(struct bpe_work *w, size_t *budget)
{
    uint32_t ids[BPE_ENTER];
    size_t n, i;
    int rc = 0;

    if (w->done)
        return 1;
    while (w->at < w->n) {
        if (!*budget)
            return 0;
        --*budget;
        n = bpe_enter(w, ids);
        for (i = 0; !rc && i < n; i++)
            rc = bpe_append(w, ids[i]);
        if (rc)
            return rc;
    }
    if (bpe_enter_unk(w, ids) && (rc = bpe_append(w, ids[0])))
        return rc;
    while (w->n_heap) {
        if (!*budget)
            return 0;
        --*budget;
        rc = bpe_try(w);
        if (rc)
            return rc;
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
