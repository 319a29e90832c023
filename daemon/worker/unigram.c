/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/unigram.h"
#include "daemon/worker/tokenizer_trie.h"
#include "daemon/worker/tokenizer_utf8.h"
#include "daemon/worker/wordcache.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNI_UNK_PENALTY 10.0
#define UNI_KEEP        65536u /* a larger scratch is freed by uni_work_trim() */

struct uni {
    struct tri trie;
    double *score; /* [n_ids] */
    uint32_t *id;  /* [n], as they were added; until sealed */
    uint32_t n;
    uint32_t n_ids, unk_id;
    double min_score, unk_score;
    const struct bpe *voc;
    bool byte_fallback, single;
};

/* The best way to divide the pretoken up to this position. */
struct uni_node {
    double score;
    uint32_t id;
    uint32_t from; /* position before its last token; UNI_NONE: no way yet */
};

#define UNI_NONE UINT32_MAX

struct uni_work {
    const struct uni *uni;
    const uint8_t *pretoken;
    size_t n, at;
    struct uni_node *node; /* [n + 1] */
    uint32_t *ids;         /* [n] */
    size_t cap;
    const uint32_t *res;
    size_t n_res;
    bool done;
    struct wca_word *place; /* where to cache the pretoken, NULL: nowhere */
    struct wca cache;
};

struct uni *
uni_new(uint32_t n_ids)
{
    struct uni *uni = calloc(1, sizeof(*uni));

    if (!uni)
        return NULL;
    uni->n_ids = n_ids;
    uni->min_score = INFINITY;
    uni->score = calloc(n_ids ? n_ids : 1, sizeof(*uni->score));
    uni->id = calloc(n_ids ? n_ids : 1, sizeof(*uni->id));
    return uni->score && uni->id ? uni : uni_free(uni);
}

struct uni *
uni_free(struct uni *uni)
{
    if (uni) {
        tri_fini(&uni->trie);
        free(uni->score);
        free(uni->id);
        free(uni);
    }
    return NULL;
}

int
uni_add(struct uni *uni, uint32_t id, double score)
{
    if (id >= uni->n_ids || uni->n == uni->n_ids)
        return -EINVAL;
    uni->score[id] = score;
    if (score < uni->min_score)
        uni->min_score = score;
    uni->id[uni->n++] = id;
    return 0;
}

/* Builds the trie of all entries. */
static int
uni_index(struct uni *uni)
{
    struct tri_entry *e = calloc(uni->n ? uni->n : 1, sizeof(*e));
    unsigned flags;
    uint32_t i;
    size_t n;
    int rc = e ? 0 : -ENOMEM;

    for (i = 0; !rc && i < uni->n; i++) {
        if (bpe_token(uni->voc, uni->id[i], &e[i].s, &n, &flags))
            rc = -EINVAL;
        else
            e[i].n = (uint32_t)n;
        e[i].value = (int32_t)uni->id[i];
    }
    rc = rc ? rc : tri_build(&uni->trie, e, uni->n);
    free(e);
    free(uni->id);
    uni->id = NULL;
    return rc;
}

int
uni_seal(struct uni *uni, const struct bpe *voc, uint32_t unk_id, bool byte_fallback)
{
    if (unk_id >= uni->n_ids)
        return -EINVAL;
    uni->voc = voc;
    uni->unk_id = unk_id;
    uni->byte_fallback = byte_fallback;
    uni->unk_score = uni->min_score - UNI_UNK_PENALTY;
    return uni_index(uni);
}

void
uni_single(struct uni *uni)
{
    uni->single = true;
    uni->unk_score = (float)uni->unk_score;
}

struct uni_work *
uni_work_new(void)
{
    return calloc(1, sizeof(struct uni_work));
}

struct uni_work *
uni_work_free(struct uni_work *w)
{
    if (w) {
        free(w->node);
        free(w->ids);
        free(w);
    }
    return NULL;
}

void
uni_work_trim(struct uni_work *w)
{
    w->done = true;
    w->n_res = 0;
    if (w->cap <= UNI_KEEP)
        return;
    free(w->node);
    free(w->ids);
    w->node = NULL;
    w->ids = NULL;
    w->cap = 0;
}

static int
uni_reserve(struct uni_work *w, size_t n)
{
    size_t cap = n < 256 ? 256 : n;

    if (n <= w->cap)
        return 0;
    free(w->node);
    free(w->ids);
    w->node = malloc((cap + 1) * sizeof(*w->node));
    w->ids = malloc(cap * sizeof(*w->ids));
    w->cap = w->node && w->ids ? cap : 0;
    return w->cap ? 0 : -ENOMEM;
}

int
uni_begin(struct uni_work *w, const struct uni *uni, const uint8_t *pretoken, size_t n)
{
    const struct wca_word *hit;
    size_t i;

    if (n > BPE_MAX_WORD_BYTES)
        return -E2BIG;
    w->uni = uni;
    w->pretoken = pretoken;
    w->n = n;
    w->at = 0;
    w->done = true;
    w->n_res = 0;
    if (!n)
        return 0;
    hit = wca_find(&w->cache, pretoken, n, &w->place);
    if (hit) {
        w->res = hit->ids;
        w->n_res = hit->n_ids;
        return 0;
    }
    if (uni_reserve(w, n))
        return -ENOMEM;
    for (i = 1; i <= n; i++)
        w->node[i].from = UNI_NONE;
    w->node[0] = (struct uni_node){ 0 };
    w->done = false;
    return 0;
}

static void
uni_offer(struct uni_work *w, size_t to, double score, uint32_t id)
{
    struct uni_node *node = &w->node[to];

    if (w->uni->single)
        score = (float)score;
    if (node->from == UNI_NONE || score > node->score)
        *node = (struct uni_node){ score, id, (uint32_t)w->at };
}

/* Offers every token that matches at w->at. */
static void
uni_char(struct uni_work *w)
{
    const struct uni *uni = w->uni;
    double till = w->node[w->at].score;
    uint32_t node = TRI_ROOT, cp;
    size_t first = w->at + tok_utf8_get(w->pretoken + w->at, &cp), i = w->at;
    bool single = false;

    while (i < w->n && (node = tri_step(&uni->trie, node, w->pretoken[i]))) {
        int32_t id = tri_value(&uni->trie, node);

        i++;
        if (id < 0)
            continue;
        uni_offer(w, i, uni->score[id] + till, (uint32_t)id);
        single |= i == first;
    }
    if (!single)
        uni_offer(w, first, uni->unk_score + till, uni->unk_id);
    w->at = first;
}

/* Writes the ids of the unknown characters pretoken[a .. b) before ids[*k], backwards. */
static void
uni_unknown(struct uni_work *w, size_t a, size_t b, size_t *k)
{
    const struct uni *uni = w->uni;
    int id = bpe_find(uni->voc, w->pretoken + a, b - a);
    size_t i;

    for (i = a; id < 0 && uni->byte_fallback && i < b; i++)
        if (bpe_fallback(uni->voc, w->pretoken[i]) < 0)
            break;
    if (id < 0 && uni->byte_fallback && i == b) {
        for (i = b; i > a; i--)
            w->ids[--*k] = (uint32_t)bpe_fallback(uni->voc, w->pretoken[i - 1]);
        return;
    }
    w->ids[--*k] = id < 0 ? uni->unk_id : (uint32_t)id;
}

/* Follows the best way back, writing ids from the end of w->ids. */
static void
uni_finish(struct uni_work *w)
{
    size_t k = w->n, end = w->n, unk_end = 0;

    while (end) {
        const struct uni_node *node = &w->node[end];

        if (node->id == w->uni->unk_id) {
            unk_end = unk_end ? unk_end : end;
        } else {
            if (unk_end)
                uni_unknown(w, end, unk_end, &k);
            unk_end = 0;
            w->ids[--k] = node->id;
        }
        end = node->from;
    }
    if (unk_end)
        uni_unknown(w, 0, unk_end, &k);
    w->res = w->ids + k;
    w->n_res = w->n - k;
    w->done = true;
    wca_put(w->place, w->pretoken, w->n, w->res, w->n_res);
}

int
uni_step(struct uni_work *w, size_t *budget)
{
    if (w->done)
        return 1;
    while (w->at < w->n) {
        if (!*budget)
            return 0;
        --*budget;
        uni_char(w);
    }
    uni_finish(w);
    return 1;
}

const uint32_t *
uni_ids(const struct uni_work *w, size_t *ret_n)
{
    *ret_n = w->n_res;
    return w->res;
}
