/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys: a file whose lines are
 *
 *   SHA256 NAME [user=N] [inflight=N] [priority]
 *
 * SHA256 is the key's hash in hex, so that the file gives no key away. user: the number
 * that fdd counts its requests under (request.user), so that each has its share; inflight:
 * requests at a time; priority: it may set the field of that name. What a client presents is
 * hashed and then looked up, so that the time taken says nothing of a key.
 *
 * A key that a later reading no longer has stays in memory, for the requests that run
 * under it; it opens nothing.
 */
#ifndef FDD_HTTP_KEYS_H
#define FDD_HTTP_KEYS_H

#include <stddef.h>
#include <stdint.h>

struct key {
    uint8_t hash[32];
    char name[64];
    uint64_t user;     /* 0: that of fdd-http itself */
    uint32_t inflight; /* 0: no bound */
    uint32_t running;
    int may_prioritize;
    int is_gone;
};

struct keys {
    struct key **k;
    size_t n;
    int in_use; /* a file was read: without a key there is no way in */
};

/* Read the file; "" leaves all as it is. 0, or -errno and a sentence with the line, and
 * nothing has changed. */
int keys_read(struct keys *ks, const char *path, char *err, size_t err_bytes);
/* The key that was presented; NULL: there is none. */
struct key *keys_find(const struct keys *ks, const char *text, size_t n);
void keys_fini(struct keys *ks);

#endif
