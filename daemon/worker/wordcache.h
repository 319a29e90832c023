/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The ids of short pretokens seen before, of one thread and one vocabulary. A pretoken
 * takes the place of another with the same hash.
 */
#ifndef FDD_DAEMON_WORKER_WORDCACHE_H
#define FDD_DAEMON_WORKER_WORDCACHE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define WCA_LOG2 13
#define WCA_KEY  30 /* longest pretoken, in bytes */
#define WCA_IDS  8

struct wca_word {
    uint8_t n_key, n_ids; /* n_key 0: empty */
    uint8_t key[WCA_KEY];
    uint32_t ids[WCA_IDS];
};

struct wca {
    struct wca_word pretoken[1u << WCA_LOG2];
};

/* A hash of n bytes, good in all its bits. */
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

/* The place of a pretoken of 1 to WCA_KEY bytes; NULL for a longer one. */
static inline struct wca_word *
wca_place(struct wca *c, const uint8_t *pretoken, size_t n)
{
    return n > WCA_KEY ? NULL : &c->pretoken[wca_hash(pretoken, n) >> (32 - WCA_LOG2)];
}

/* Whether the place, which may be NULL, holds this pretoken. */
static inline int
wca_holds(const struct wca_word *w, const uint8_t *pretoken, size_t n)
{
    return w && w->n_key == n && !memcmp(w->key, pretoken, n);
}

/* Puts a pretoken and its ids at its place, if both fit. */
static inline void
wca_put(struct wca_word *w, const uint8_t *pretoken, size_t n, const uint32_t *ids,
    size_t n_ids)
{
    if (!w || n_ids > WCA_IDS)
        return;
    memcpy(w->key, pretoken, n);
    w->n_key = (uint8_t)n;
    w->n_ids = (uint8_t)n_ids;
    memcpy(w->ids, ids, n_ids * sizeof(*ids));
}

#endif
