/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/bpe.h"
#include "daemon/worker/bpe_priv.h"
#include "daemon/worker/wordcache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BPE_MAGIC  0x42504531u
#define BPE_ABSENT UINT16_MAX
#define BPE_AHEAD  16u /* merges whose cells are prefetched ahead */

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

/* The power of two that holds n entries at a load of at most two thirds. */
static uint32_t
bpe_table_size(uint32_t n)
{
    uint32_t size = 16;

    while (size - size / 3 < n)
        size *= 2;
    return size;
}

int
bpe_room(struct bpe *bpe, uint32_t n)
{
    uint32_t n_cells = bpe_table_size(n), i;
    struct bpe_merge *m;

    if (n > BPE_MAX_MERGES || bpe->n_merges)
        return -ENOMEM;
    m = realloc(bpe->merge, n_cells * sizeof(*m));
    if (!m)
        return -ENOMEM;
    bpe->merge = m;
    bpe->merge_mask = n_cells - 1;
    bpe->max_merges = n;
    for (i = 0; i < n_cells; i++)
        m[i].rank = BPE_NO_RANK;
    return 0;
}

struct bpe *
bpe_new(uint32_t n_ids, uint32_t n_merges)
{
    struct bpe *bpe;
    uint32_t n_slots, i;

    if (n_ids > BPE_MAX_IDS)
        return NULL;
    bpe = calloc(1, sizeof(*bpe));
    if (!bpe)
        return NULL;
    bpe->magic = BPE_MAGIC;
    bpe->n_ids = n_ids;
    n_slots = bpe_table_size(n_ids);
    bpe->slot_mask = n_slots - 1;
    bpe->token = malloc((n_ids ? n_ids : 1) * sizeof(*bpe->token));
    bpe->slot = calloc(n_slots, sizeof(*bpe->slot));
    if (!bpe->token || !bpe->slot || bpe_room(bpe, n_merges))
        return bpe_free(bpe);
    for (i = 0; i < n_ids; i++)
        bpe->token[i] = (struct bpe_token){ .len = BPE_ABSENT };
    return bpe;
}

struct bpe *
bpe_free(struct bpe *bpe)
{
    if (bpe && bpe->magic == BPE_MAGIC) {
        bpe->magic = 0;
        free(bpe->token);
        free(bpe->slot);
        free(bpe->merge);
        free(bpe->arena);
        free(bpe->join);
        free(bpe);
    }
    return NULL;
}

/* The slot of a vocabulary entry, or the empty slot where it belongs. */
static struct bpe_slot *
bpe_slot(const struct bpe *bpe, const uint8_t *bytes, size_t n, unsigned raw, uint32_t hash)
{
    uint32_t i = hash & bpe->slot_mask;

    for (; bpe->slot[i].id; i = (i + 1) & bpe->slot_mask) {
        const struct bpe_token *t = &bpe->token[bpe->slot[i].id - 1];
        if (bpe->slot[i].hash == hash && t->len == n && (t->flags & BPE_TOK_RAW) == raw &&
            !memcmp(bpe->arena + t->off, bytes, n))
            break;
    }
    return &bpe->slot[i];
}

static int
bpe_index(struct bpe *bpe, uint32_t id, const uint8_t *bytes, size_t n, unsigned flags)
{
    uint32_t hash = wca_hash(bytes, n);
    struct bpe_slot *slot = bpe_slot(bpe, bytes, n, flags & BPE_TOK_RAW, hash);

    if (slot->id && slot->id != id + 1 && !(flags & BPE_TOK_LAST))
        return -ENOTUNIQ;
    *slot = (struct bpe_slot){ id + 1, hash };
    return 0;
}

static int
bpe_arena_room(struct bpe *bpe, size_t n)
{
    size_t cap = 2 * bpe->arena_cap + 2 * BPE_MAX_TOKEN_BYTES;
    uint8_t *p;

    if (bpe->arena_cap - bpe->arena_n > n)
        return 0;
    p = cap <= UINT32_MAX ? realloc(bpe->arena, cap) : NULL;
    if (!p)
        return -ENOMEM;
    bpe->arena = p;
    bpe->arena_cap = cap;
    return 0;
}

int
bpe_add_token(struct bpe *bpe, uint32_t id, const uint8_t *bytes, size_t n, unsigned flags)
{
    int rc = 0;

    if (id >= bpe->n_ids || n > BPE_MAX_TOKEN_BYTES)
        return -EINVAL;
    if (bpe->token[id].len != BPE_ABSENT &&
        (bpe->token[id].len != n ||
            (n && memcmp(bpe->arena + bpe->token[id].off, bytes, n))))
        return -EEXIST;
    if (flags & BPE_TOK_VOCAB)
        rc = bpe_index(bpe, id, bytes, n, flags);
    if (rc)
        return rc;
    if (bpe->token[id].len != BPE_ABSENT) {
        bpe->token[id].flags |= (uint8_t)flags;
        return 0;
    }
    if (bpe_arena_room(bpe, n))
        return -ENOMEM;
    bpe->token[id].off = (uint32_t)bpe->arena_n;
    bpe->token[id].len = (uint16_t)n;
    bpe->token[id].flags = (uint8_t)flags;
    if (n)
        memcpy(bpe->arena + bpe->arena_n, bytes, n);
    bpe->arena_n += n;
    return 0;
}

void
bpe_flag(struct bpe *bpe, uint32_t id, unsigned flags, bool on)
{
    if (on)
        bpe->token[id].flags |= (uint8_t)flags;
    else
        bpe->token[id].flags &= (uint8_t)~flags;
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
bpe_add_merges(struct bpe *bpe, const struct bpe_merge *m, size_t n)
{
    size_t i;
    int rc = 0;

    for (i = 0; !rc && i < n; i++) {
        if (i + BPE_AHEAD < n) {
            const struct bpe_merge *a = &m[i + BPE_AHEAD];
            uint32_t at = bpe_pair_hash(a->left, a->right) & bpe->merge_mask;

            __builtin_prefetch(&bpe->merge[at], 1);
        }
        rc = bpe_add_merge(bpe, m[i].left, m[i].right, m[i].rank, m[i].id);
    }
    return rc;
}

static int
bpe_look(const struct bpe *bpe, const uint8_t *bytes, size_t n, unsigned raw)
{
    const struct bpe_slot *slot;

    if (n > BPE_MAX_TOKEN_BYTES)
        return -ENOENT;
    slot = bpe_slot(bpe, bytes, n, raw, wca_hash(bytes, n));
    return slot->id ? (int)(slot->id - 1) : -ENOENT;
}

int
bpe_find(const struct bpe *bpe, const uint8_t *bytes, size_t n)
{
    return bpe_look(bpe, bytes, n, 0);
}

int
bpe_find_raw(const struct bpe *bpe, const uint8_t *bytes, size_t n)
{
    return bpe_look(bpe, bytes, n, BPE_TOK_RAW);
}

void
bpe_find_all(const struct bpe *bpe, struct bpe_key *key, size_t n)
{
    const struct bpe_slot *slot;
    size_t i;

    for (i = 0; i < n; i++) {
        key[i].hash = key[i].n <= BPE_MAX_TOKEN_BYTES ? wca_hash(key[i].s, key[i].n) : 0;
        __builtin_prefetch(&bpe->slot[key[i].hash & bpe->slot_mask]);
    }
    for (i = 0; i < n; i++) {
        slot = &bpe->slot[key[i].hash & bpe->slot_mask];
        if (slot->id)
            __builtin_prefetch(&bpe->token[slot->id - 1]);
    }
    for (i = 0; i < n; i++) {
        slot = &bpe->slot[key[i].hash & bpe->slot_mask];
        if (slot->id && slot->hash == key[i].hash)
            __builtin_prefetch(bpe->arena + bpe->token[slot->id - 1].off);
    }
    for (i = 0; i < n; i++) {
        key[i].id = -ENOENT;
        if (key[i].n > BPE_MAX_TOKEN_BYTES)
            continue;
        slot = bpe_slot(bpe, key[i].s, key[i].n, key[i].raw ? BPE_TOK_RAW : 0, key[i].hash);
        if (slot->id)
            key[i].id = (int)(slot->id - 1);
    }
}

int
bpe_fallback(const struct bpe *bpe, uint8_t byte)
{
    return bpe->fallback[byte];
}

static void
bpe_seal_fallback(struct bpe *bpe)
{
    static const char hex[] = "0123456789ABCDEF";
    unsigned b;

    bpe->all_fallback = true;
    for (b = 0; b < 256; b++) {
        uint8_t name[6] = { '<', '0', 'x', (uint8_t)hex[b >> 4], (uint8_t)hex[b & 15], '>' };
        int id = bpe_find(bpe, name, sizeof(name));
        bpe->fallback[b] = id < 0 ? -1 : id;
        bpe->all_fallback &= id >= 0;
    }
}

static void
bpe_seal_byte(struct bpe *bpe, unsigned b)
{
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
    /* The fallback spells the bytes of the character that represents b. */
    n = cp < 0x80 ? 1 : 2;
    utf8[0] = (uint8_t)(n == 1 ? cp : 0xc0 | cp >> 6);
    utf8[1] = (uint8_t)(0x80 | (cp & 0x3f));
    for (i = 0; i < n; i++) {
        if (bpe->fallback[utf8[i]] < 0)
            return;
        to->id[i] = (uint32_t)bpe->fallback[utf8[i]];
    }
    to->n = (uint8_t)n;
}

static uint32_t
bpe_char_at(const uint8_t *s)
{
    unsigned n = bpe_char_len(s[0]), i;
    uint32_t v = 0;

    for (i = 0; i < n; i++)
        v = v << 8 | s[i];
    return v;
}

/* The bit of two characters in bpe->join; ASCII needs no hash. */
static uint32_t
bpe_join_bit(uint32_t left, uint32_t right)
{
    if ((left | right) < 128)
        return left << 7 | right;
    return bpe_pair_hash(left, right) & ((1u << BPE_JOIN_LOG2) - 1);
}

/* Does the token represent text that the vocabulary lacks? */
static bool
bpe_is_stand_in(const struct bpe *bpe, uint32_t id)
{
    return id == bpe->opts.unk_id ||
        (bpe->opts.byte_fallback && bpe->token[id].len == 6 &&
            !memcmp(bpe->arena + bpe->token[id].off, "<0x", 3));
}

/*
 * Records which adjacent characters merges can join. Tokens that represent text that the
 * vocabulary lacks (unk, "<0xXX>") have other bytes than that text: if a merge uses
 * one, no pretoken is cut.
 */
static int
bpe_seal_join(struct bpe *bpe)
{
    uint32_t i, bit;

    bpe->join = calloc((1u << BPE_JOIN_LOG2) / 64, sizeof(*bpe->join));
    if (!bpe->join)
        return -ENOMEM;
    for (i = 0; i <= bpe->merge_mask; i++) {
        const struct bpe_merge *m = &bpe->merge[i];
        const uint8_t *l, *r;
        size_t end;

        if (m->rank == BPE_NO_RANK)
            continue;
        l = bpe->arena + bpe->token[m->left].off;
        r = bpe->arena + bpe->token[m->right].off;
        end = bpe->token[m->left].len;
        if (!end || !bpe->token[m->right].len || bpe_is_stand_in(bpe, m->left) ||
            bpe_is_stand_in(bpe, m->right)) {
            free(bpe->join);
            bpe->join = NULL;
            return 0;
        }
        do
            end--;
        while (end && (l[end] & 0xc0) == 0x80);
        bit = bpe_join_bit(bpe_char_at(l + end), bpe_char_at(r));
        bpe->join[bit / 64] |= (uint64_t)1 << bit % 64;
    }
    return 0;
}

size_t
bpe_cut(const struct bpe *bpe, const uint8_t *s, size_t n, size_t at)
{
    /* An unknown character can join others across a cut, unless byte tokens represent it.
     * If it gives no token, its neighbours can join. */
    bool any = bpe->opts.byte_fallback && bpe->all_fallback, dropped = bpe->opts.unk_id < 0;
    size_t i = at + bpe_char_len(s[at]), prev = at;

    if (!bpe->join)
        return n;
    for (; i < n; i += bpe_char_len(s[i])) {
        uint32_t left = bpe_char_at(s + prev), right = bpe_char_at(s + i);
        uint32_t bit = bpe_join_bit(left, right);
        bool known = any ||
            (right < 128 ? bpe->ascii[right] : bpe_find(bpe, s + i, bpe_char_len(s[i]))) >=
                0;

        if (known && !(bpe->join[bit / 64] >> bit % 64 & 1))
            return i;
        if (known || !dropped)
            prev = i;
    }
    return n;
}

int
bpe_seal(struct bpe *bpe, const struct bpe_opts *opts)
{
    uint8_t *p;
    unsigned b;

    if (opts->unk_id >= (int64_t)bpe->n_ids)
        return -EINVAL;
    bpe->opts = *opts;
    bpe_seal_fallback(bpe);
    for (b = 0; b < 256; b++)
        bpe_seal_byte(bpe, b);
    for (b = 0; b < 128; b++) {
        uint8_t c = (uint8_t)b;
        bpe->ascii[b] = bpe_find(bpe, &c, 1);
    }
    if (opts->chars && !opts->n_prefix && !opts->n_suffix && bpe_seal_join(bpe))
        return -ENOMEM;
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
    if (id >= bpe->n_ids || bpe->token[id].len == BPE_ABSENT)
        return -ENOENT;
    *ret_bytes = bpe->arena + bpe->token[id].off;
    *ret_n = bpe->token[id].len;
    *ret_flags = bpe->token[id].flags;
    return 0;
}
