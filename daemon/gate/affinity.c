/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/affinity.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"

_Static_assert(AFF_BYTES == 131072u, "128 KiB of a prompt: some 10 us of the loop's time");

int
aff_init(struct aff *a, uint32_t n_max, const uint64_t key[2])
{
    ASSERT((n_max & (n_max - 1)) == 0 && n_max >= AFF_HASHES);
    memset(a, 0, sizeof(*a));
    a->entry = mem_array(n_max, sizeof(*a->entry));
    a->bucket = mem_array(n_max, sizeof(*a->bucket));
    if (a->entry == NULL || a->bucket == NULL) {
        aff_fini(a);
        return -ENOMEM;
    }
    memset(a->bucket, 0xff, n_max * sizeof(*a->bucket));
    a->n_max = n_max;
    a->mask = n_max - 1;
    a->newest = a->oldest = AFF_NONE;
    a->key[0] = key[0];
    a->key[1] = key[1] | 1;
    return 0;
}

void
aff_fini(struct aff *a)
{
    free(a->entry);
    free(a->bucket);
    memset(a, 0, sizeof(*a));
}

/* ---- chains ---------------------------------------------------------------- */

static uint64_t
aff_word(const unsigned char *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof(v));
    return v;
}

/* Mixes both halves of a product: each bit of the result depends on all of a and b. */
static uint64_t
aff_mix(uint64_t a, uint64_t b)
{
    unsigned __int128 p = (unsigned __int128)a * b;

    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* Hash h continued over n more bytes, a multiple of 16. */
static uint64_t
aff_feed(const struct aff *a, uint64_t h, const unsigned char *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 16)
        h = aff_mix(aff_word(p + i) ^ a->key[1], aff_word(p + i + 8) ^ h);
    return aff_mix(h ^ a->key[0], a->key[1]);
}

void
aff_chain(const struct aff *a, uint64_t user, const uint8_t salt[16], uint32_t kind,
    const unsigned char *prompt, uint64_t n, struct aff_chain *ret)
{
    uint64_t h = aff_mix(user ^ a->key[0], a->key[1] ^ kind);
    uint32_t at = 0;

    h = aff_feed(a, h, salt, 16);
    for (ret->n = 0; ret->n < AFF_HASHES && aff_bytes(ret->n) <= n; ret->n++) {
        uint32_t end = aff_bytes(ret->n);

        h = aff_feed(a, h, prompt + at, end - at);
        ret->hash[ret->n] = h;
        at = end;
    }
}

/* ---- the table ------------------------------------------------------------- */

static uint32_t
aff_look(const struct aff *a, uint64_t hash)
{
    uint32_t i = a->bucket[hash & a->mask];

    while (i != AFF_NONE && a->entry[i].hash != hash)
        i = a->entry[i].next;
    return i;
}

uint32_t
aff_find(const struct aff *a, const struct aff_chain *c, const uint32_t *generation,
    uint32_t n_group, uint32_t *ret_bytes)
{
    uint32_t best = AFF_NONE;

    *ret_bytes = 0;
    for (uint32_t k = 0; k < c->n; k++) {
        uint32_t i = aff_look(a, c->hash[k]);
        const struct aff_entry *e = &a->entry[i];

        if (i == AFF_NONE)
            break;
        if (e->group >= n_group || e->generation != generation[e->group])
            continue; /* earlier worker: another group may have less of it */
        best = e->group;
        *ret_bytes = aff_bytes(k);
    }
    return best;
}

static void
aff_unlink(struct aff *a, uint32_t i)
{
    struct aff_entry *e = &a->entry[i];

    if (e->newer != AFF_NONE)
        a->entry[e->newer].older = e->older;
    else
        a->newest = e->older;
    if (e->older != AFF_NONE)
        a->entry[e->older].newer = e->newer;
    else
        a->oldest = e->newer;
}

static void
aff_link_newest(struct aff *a, uint32_t i)
{
    struct aff_entry *e = &a->entry[i];

    e->newer = AFF_NONE;
    e->older = a->newest;
    if (a->newest != AFF_NONE)
        a->entry[a->newest].newer = i;
    else
        a->oldest = i;
    a->newest = i;
}

/* A free entry, or the least recently used one. */
static uint32_t
aff_take(struct aff *a)
{
    uint32_t i = a->oldest, *p;

    if (a->n < a->n_max)
        return a->n++;
    aff_unlink(a, i);
    p = &a->bucket[a->entry[i].hash & a->mask];
    while (*p != i)
        p = &a->entry[*p].next;
    *p = a->entry[i].next;
    return i;
}

void
aff_note(struct aff *a, const struct aff_chain *c, uint32_t group, uint32_t generation)
{
    /* From the longest prefix: a shorter one is used no less recently than its
     * continuation, and so is never evicted before it. */
    for (uint32_t k = c->n; k-- > 0;) {
        uint32_t i = aff_look(a, c->hash[k]);
        struct aff_entry *e;

        if (i == AFF_NONE) {
            i = aff_take(a);
            e = &a->entry[i];
            e->hash = c->hash[k];
            e->next = a->bucket[e->hash & a->mask];
            a->bucket[e->hash & a->mask] = i;
        } else {
            aff_unlink(a, i);
            e = &a->entry[i];
        }
        e->group = group;
        e->generation = generation;
        aff_link_newest(a, i);
    }
}

void
aff_check(const struct aff *a)
{
    uint32_t n = 0, last = AFF_NONE;

    if (a->entry == NULL)
        return;
    for (uint32_t i = a->newest; i != AFF_NONE; i = a->entry[i].older) {
        ASSERT(a->entry[i].newer == last && aff_look(a, a->entry[i].hash) == i);
        last = i;
        n++;
        ASSERT(n <= a->n);
    }
    ASSERT(n == a->n && a->oldest == last);
}
