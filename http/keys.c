/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/sha256.h"
#include "http/buf.h"
#include "http/peers.h"

#define KEYS_MAX 10000

static int
read_hash(const char *word, uint8_t ret[32])
{
    if (word == NULL || strlen(word) != 64)
        return -EINVAL;
    for (int i = 0; i < 32; i++) {
        int hi = buf_hex(word[2 * i]), lo = buf_hex(word[2 * i + 1]);

        if (hi < 0 || lo < 0)
            return -EINVAL;
        ret[i] = (uint8_t)(hi * 16 + lo);
    }
    return 0;
}

static int
read_number(const char *text, uint64_t most, uint64_t *ret)
{
    char *end;

    errno = 0;
    *ret = strtoull(text, &end, 10);
    return text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || *ret > most
        ? -EINVAL
        : 0;
}

/* Read a line. Returns NULL, or what is wrong with it. An empty line leaves k->name
 * empty. */
static const char *
read_key(char *line, struct key *k)
{
    char *save = NULL, *w = strtok_r(line, " \t\r\n", &save);
    uint64_t v;

    if (w == NULL || w[0] == '#')
        return NULL;
    if (read_hash(w, k->hash) != 0)
        return "does not begin with 64 hex digits: printf %s KEY | sha256sum";
    w = strtok_r(NULL, " \t\r\n", &save);
    if (w == NULL || strlen(w) >= sizeof(k->name) || strchr(w, '=') != NULL)
        return "has no name of at most 63 bytes after the hash";
    (void)snprintf(k->name, sizeof(k->name), "%s", w);
    while ((w = strtok_r(NULL, " \t\r\n", &save)) != NULL) {
        if (strncmp(w, "user=", 5) == 0 && read_number(w + 5, UINT32_MAX, &v) == 0 &&
            v > 0) {
            k->user = v;
        } else if (strncmp(w, "inflight=", 9) == 0 &&
            read_number(w + 9, 1000000, &v) == 0 && v > 0) {
            k->inflight = (uint32_t)v;
        } else if (strcmp(w, "priority") == 0) {
            k->may_prioritize = 1;
        } else if (strcmp(w, "delegate") == 0) {
            k->may_delegate = 1;
        } else {
            return "has a word other than user=N, inflight=N, priority and delegate";
        }
    }
    return NULL;
}

/* Returns -1, 0 or 1 if a is less than, equal to or greater than b. All bytes are
 * compared without branches, in constant time. */
static int
compare(const uint8_t a[32], const uint8_t b[32])
{
    int less = 0, more = 0;

    for (int i = 0; i < 32; i++) {
        int open = 1 - (less | more);

        less |= open & (int)((unsigned)(a[i] - b[i]) >> 31);
        more |= open & (int)((unsigned)(b[i] - a[i]) >> 31);
    }
    return more - less;
}

/* Index of the hash in the sorted keys, or of its place there. The number of steps is the
 * same for every hash. */
static size_t
place(const struct keys *ks, const uint8_t hash[32])
{
    size_t from = 0;

    for (size_t n = ks->n; n > 0; n /= 2) {
        size_t half = n - n / 2; /* n/2 keys remain in either case */
        size_t is_behind = compare(ks->k[from + half - 1]->hash, hash) < 0;

        from += half * is_behind;
    }
    return from;
}

static struct key *
by_hash(const struct keys *ks, const uint8_t hash[32])
{
    size_t at = place(ks, hash);

    return at < ks->n && compare(ks->k[at]->hash, hash) == 0 ? ks->k[at] : NULL;
}

static int
add(struct keys *ks, const struct key *k)
{
    size_t at = place(ks, k->hash);
    struct key **p, *copy;

    if (ks->n == KEYS_MAX)
        return -E2BIG;
    p = realloc(ks->k, (ks->n + 1) * sizeof(*p));
    copy = malloc(sizeof(*copy));
    if (p != NULL)
        ks->k = p;
    if (p == NULL || copy == NULL) {
        free(copy);
        return -ENOMEM;
    }
    memcpy(copy, k, sizeof(*copy));
    atomic_init(&copy->running, 0);
    memmove(p + at + 1, p + at, (ks->n - at) * sizeof(*p));
    p[at] = copy;
    ks->n++;
    return 0;
}

int
keys_take(struct keys *ks, const struct keys *read)
{
    int rc = 0;

    if (!read->in_use)
        return 0;
    for (size_t i = 0; i < read->n && rc == 0; i++)
        if (by_hash(ks, read->k[i]->hash) == NULL)
            rc = add(ks, read->k[i]);
    for (size_t i = 0; i < ks->n; i++) {
        struct key *to = ks->k[i];
        const struct key *k = by_hash(read, to->hash);

        to->is_gone = k == NULL;
        if (k == NULL)
            continue;
        (void)memcpy(to->name, k->name, sizeof(to->name));
        to->user = k->user;
        to->inflight = k->inflight;
        to->may_prioritize = k->may_prioritize;
        to->may_delegate = k->may_delegate;
    }
    ks->in_use = 1;
    return rc;
}

int
keys_load(struct keys *ret, const char *path, char *err, size_t err_bytes)
{
    const char *what = NULL;
    char line[1024];
    unsigned at = 0;
    struct key k;
    FILE *f;
    int rc = 0;

    memset(ret, 0, sizeof(*ret));
    if (path[0] == '\0')
        return 0;
    f = fopen(path, "re");
    if (f == NULL) {
        rc = -errno;
        (void)snprintf(err, err_bytes, "keys.file = %s: %s", path, strerror(-rc));
        return rc;
    }
    while (rc == 0 && what == NULL && fgets(line, sizeof(line), f) != NULL) {
        at++;
        memset(&k, 0, sizeof(k));
        what = strchr(line, '\n') == NULL && !feof(f)
            ? "is longer than 1022 bytes"
            : read_key(line, &k);
        if (what == NULL && k.name[0] != '\0') {
            if (by_hash(ret, k.hash) != NULL)
                what = "has a key that an earlier line has";
            else
                rc = add(ret, &k);
        }
    }
    (void)fclose(f);
    if (what != NULL) {
        (void)snprintf(err, err_bytes, "%s: line %u %s", path, at, what);
        rc = -EINVAL;
    } else if (rc == -E2BIG) {
        (void)snprintf(err, err_bytes, "%s: more than %d keys", path, KEYS_MAX);
    } else if (rc != 0) {
        (void)snprintf(err, err_bytes, "%s: %s", path, strerror(-rc));
    }
    ret->in_use = 1;
    if (rc != 0)
        keys_fini(ret);
    return rc;
}

int
keys_read(struct keys *ks, const char *path, char *err, size_t err_bytes)
{
    struct keys read;
    int rc = keys_load(&read, path, err, err_bytes);

    if (rc == 0)
        rc = keys_take(ks, &read);
    keys_fini(&read);
    return rc;
}

int
keys_begin(struct key *k)
{
    uint32_t was;

    if (k == NULL)
        return 0;
    was = atomic_fetch_add_explicit(&k->running, 1, memory_order_relaxed);
    if (k->inflight == 0 || was < k->inflight)
        return 0;
    keys_end(k);
    return -EAGAIN;
}

void
keys_end(struct key *k)
{
    if (k != NULL)
        (void)atomic_fetch_sub_explicit(&k->running, 1, memory_order_relaxed);
}

uint64_t
keys_user(const struct key *k, const char *user, size_t n)
{
    char kind[sizeof(k->hash) * 2 + 1];

    if (!k->may_delegate || n == 0)
        return k->user != 0 ? k->user : peer_user("key", k->hash, sizeof(k->hash));
    for (size_t i = 0; i < sizeof(k->hash); i++)
        (void)snprintf(kind + 2 * i, 3, "%02x", k->hash[i]);
    return peer_user(kind, user, n);
}

struct key *
keys_find(const struct keys *ks, const char *text, size_t n)
{
    struct sha256 s;
    uint8_t hash[32];
    struct key *k;

    sha256_init(&s);
    sha256_add(&s, text, n);
    sha256_end(&s, hash);
    k = by_hash(ks, hash);
    return k != NULL && !k->is_gone ? k : NULL;
}

void
keys_fini(struct keys *ks)
{
    for (size_t i = 0; i < ks->n; i++)
        free(ks->k[i]);
    free(ks->k);
    memset(ks, 0, sizeof(*ks));
}
