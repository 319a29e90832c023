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

/* NULL, or what is wrong with the line. An empty one leaves k->name empty. */
static const char *
read_key(char *line, struct key *k)
{
    char *save = NULL, *w = strtok_r(line, " \t\r\n", &save);
    uint64_t v;

    memset(k, 0, sizeof(*k));
    if (w == NULL || w[0] == '#')
        return NULL;
    if (read_hash(w, k->hash) != 0)
        return "does not begin with 64 hex digits: printf %s KEY | sha256sum";
    w = strtok_r(NULL, " \t\r\n", &save);
    if (w == NULL || strlen(w) >= sizeof(k->name) || strchr(w, '=') != NULL)
        return "has no name of at most 63 bytes behind the hash";
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
        } else {
            return "has a word other than user=N, inflight=N and priority";
        }
    }
    return NULL;
}

static struct key *
by_hash(const struct keys *ks, const uint8_t hash[32])
{
    for (size_t i = 0; i < ks->n; i++)
        if (memcmp(ks->k[i]->hash, hash, 32) == 0)
            return ks->k[i];
    return NULL;
}

static int
add(struct keys *ks, const struct key *k)
{
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
    *copy = *k;
    ks->k[ks->n++] = copy;
    return 0;
}

/* Take over what the file said; pointers to keys stay valid. */
static int
merge(struct keys *ks, const struct keys *read)
{
    int rc = 0;

    for (size_t i = 0; i < read->n && rc == 0; i++)
        if (by_hash(ks, read->k[i]->hash) == NULL)
            rc = add(ks, read->k[i]);
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < ks->n; i++) {
        const struct key *k = by_hash(read, ks->k[i]->hash);
        uint32_t running = ks->k[i]->running;

        if (k != NULL) {
            *ks->k[i] = *k;
            ks->k[i]->running = running;
        } else {
            ks->k[i]->is_gone = 1;
        }
    }
    ks->in_use = 1;
    return 0;
}

int
keys_read(struct keys *ks, const char *path, char *err, size_t err_bytes)
{
    struct keys read = { NULL };
    const char *what = NULL;
    char line[1024];
    unsigned at = 0;
    struct key k;
    FILE *f;
    int rc = 0;

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
        what = strchr(line, '\n') == NULL && !feof(f)
            ? "is longer than 1022 bytes"
            : read_key(line, &k);
        if (what == NULL && k.name[0] != '\0') {
            if (by_hash(&read, k.hash) != NULL)
                what = "has a key that an earlier line has";
            else
                rc = add(&read, &k);
        }
    }
    (void)fclose(f);
    if (what != NULL) {
        (void)snprintf(err, err_bytes, "%s: line %u %s", path, at, what);
        rc = -EINVAL;
    } else if (rc == 0) {
        rc = merge(ks, &read);
    }
    if (rc != 0 && what == NULL)
        (void)snprintf(err, err_bytes, "%s: %s", path, strerror(-rc));
    keys_fini(&read);
    return rc;
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
