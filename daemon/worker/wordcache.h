/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache of the ids of short pretokens, for one thread and one vocabulary. Of
 * pretokens with the same hash the last two are kept.
 */
#ifndef FDD_DAEMON_WORKER_WORDCACHE_H
#define FDD_DAEMON_WORKER_WORDCACHE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define WCA_LOG2 13
#define WCA_WAYS 2
#define WCA_KEY  30 /* longest pretoken, in bytes */
#define WCA_IDS  8

struct wca_word {
    uint8_t n_key, n_ids; /* n_key 0: empty */
    uint8_t key[WCA_KEY];
    uint32_t ids[WCA_IDS];
};

struct wca {
    struct wca_word pretoken[1u << WCA_LOG2][WCA_WAYS]; /* sets, each with the latest
                                                           first */
};

/* A hash of n bytes, all bits of which are well distributed. */
static inline uint32_t
wca_hash(const uint8_t *p, size_t n)
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

/*
 * Find a pretoken of n > 0 bytes. If it is not there, returns NULL, and *ret_place is
 * the place for wca_put(), or NULL if the pretoken is longer than WCA_KEY.
 */
static inline const struct wca_word *
wca_find(struct wca *c, const uint8_t *pretoken, size_t n, struct wca_word **ret_place)
{
    struct wca_word *w;
    unsigned i;

    *ret_place = NULL;
    if (n > WCA_KEY)
        return NULL;
    *ret_place = w = c->pretoken[wca_hash(pretoken, n) >> (32 - WCA_LOG2)];
    for (i = 0; i < WCA_WAYS; i++)
        if (w[i].n_key == n && !memcmp(w[i].key, pretoken, n))
            return &w[i];
    return NULL;
}

/* Put a pretoken and its ids at place w, which may be NULL, if they fit. */
static inline void
wca_put(struct wca_word *w, const uint8_t *pretoken, size_t n, const uint32_t *ids,
    size_t n_ids)
{
    if (!w || n_ids > WCA_IDS)
        return;
    memmove(w + 1, w, (WCA_WAYS - 1) * sizeof(*w));
    memcpy(w->key, pretoken, n);
    w->n_key = (uint8_t)n;
    w->n_ids = (uint8_t)n_ids;
    memcpy(w->ids, ids, n_ids * sizeof(*ids));
}

#endif
