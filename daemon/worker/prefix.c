/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/prefix.h"

#include <errno.h>
#include <sys/random.h>

struct pfx_sip {
    uint64_t v0, v1, v2, v3;
};

/* Length of the message that pfx_root() hashes: user, salt, rope, and one more byte. The
 * length of a block's message is a multiple of 4, so the two never coincide. */
#define PFX_ROOT_LEN 29

static uint64_t
pfx_rotl(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static void
pfx_round(struct pfx_sip *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = pfx_rotl(s->v1, 13) ^ s->v0;
    s->v3 = pfx_rotl(s->v3, 16) ^ s->v2;
    s->v0 = pfx_rotl(s->v0, 32);
    s->v2 += s->v1;
    s->v0 += s->v3;
    s->v1 = pfx_rotl(s->v1, 17) ^ s->v2;
    s->v3 = pfx_rotl(s->v3, 21) ^ s->v0;
    s->v2 = pfx_rotl(s->v2, 32);
}

static void
pfx_word(struct pfx_sip *s, uint64_t m)
{
    s->v3 ^= m;
    pfx_round(s);
    pfx_round(s);
    s->v0 ^= m;
}

/* The constants, here and in pfx_end(), are those of the algorithm's 128-bit
 * variant. */
static struct pfx_sip
pfx_begin(const struct pfx_key *key)
{
    return (struct pfx_sip){ .v0 = key->k0 ^ 0x736f6d6570736575u,
        .v1 = key->k1 ^ 0x646f72616e646f6du ^ 0xeeu,
        .v2 = key->k0 ^ 0x6c7967656e657261u,
        .v3 = key->k1 ^ 0x7465646279746573u };
}

static uint64_t
pfx_fold(struct pfx_sip *s)
{
    for (int i = 0; i < 4; i++)
        pfx_round(s);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

/* last: the message's last bytes, fewer than 8; len: length of the whole message. */
static void
pfx_end(struct pfx_sip *s, uint64_t last, size_t len, struct kv_hash *ret)
{
    pfx_word(s, last | (uint64_t)len << 56);
    s->v2 ^= 0xeeu;
    ret->a = pfx_fold(s);
    s->v1 ^= 0xddu;
    ret->b = pfx_fold(s);
    if ((ret->a | ret->b) == 0)
        ret->b = 1;
}

static uint64_t
pfx_load(const uint8_t *p, size_t n)
{
    uint64_t v = 0;

    while (n-- > 0)
        v = v << 8 | p[n];
    return v;
}

int
pfx_key_new(struct pfx_key *ret)
{
    struct pfx_key key;

    /* getrandom() never returns part of so few bytes */
    if (getrandom(&key, sizeof(key), 0) != (ssize_t)sizeof(key))
        return errno != 0 ? -errno : -EIO;
    *ret = key;
    return 0;
}

void
pfx_root(const struct pfx_key *key, uint64_t user, const uint8_t salt[16], int32_t rope,
    struct kv_hash *ret)
{
    struct pfx_sip s = pfx_begin(key);

    pfx_word(&s, user);
    pfx_word(&s, pfx_load(salt, 8));
    pfx_word(&s, pfx_load(salt + 8, 8));
    pfx_end(&s, (uint32_t)rope, PFX_ROOT_LEN, ret);
}

void
pfx_next(const struct pfx_key *key, const struct kv_hash *prev, const uint32_t *ids,
    int32_t n, struct kv_hash *ret)
{
    struct pfx_sip s = pfx_begin(key);
    int32_t i;

    pfx_word(&s, prev->a);
    pfx_word(&s, prev->b);
    for (i = 0; i + 1 < n; i += 2)
        pfx_word(&s, ids[i] | (uint64_t)ids[i + 1] << 32);
    pfx_end(&s, i < n ? ids[i] : 0, sizeof(*prev) + (size_t)n * sizeof(*ids), ret);
}

void
pfx_bytes(const struct pfx_key *key, const void *p, size_t len, struct kv_hash *ret)
{
    struct pfx_sip s = pfx_begin(key);
    const uint8_t *b = p;
    size_t at;

    for (at = 0; len - at >= 8; at += 8)
        pfx_word(&s, pfx_load(b + at, 8));
    pfx_end(&s, pfx_load(b + at, len - at), len, ret);
}
