/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys: a file whose lines are
 *
 *   SHA256 NAME [user=N] [inflight=N] [priority] [delegate]
 *
 * SHA256 is the key's hash in hex, so that the file gives no key away. user: the number
 * that fdd counts its requests under (request.user), else one of its own, so that each
 * has its share; inflight: requests at a time; priority: it may set the field of that name;
 * delegate: the field user of a request is one of the key's own users, each of which has its
 * share. What a client presents is hashed, and the hash is compared with as many others, whole, whichever it is:
 * the time taken says nothing of a key.
 *
 * A key that a later reading no longer has stays in memory, for the requests that run
 * under it; it opens nothing.
 *
 * The loops share a table, and its keys' numbers of requests. Reading the file again is for
 * one of them while the others stand still.
 */
#ifndef FDD_HTTP_KEYS_H
#define FDD_HTTP_KEYS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct key {
    uint8_t hash[32];
    char name[64];
    uint64_t user;     /* 0: one that follows from its hash */
    uint32_t inflight; /* 0: no bound */
    atomic_uint running;
    int may_prioritize, may_delegate;
    int is_gone;
};

struct keys {
    struct key **k; /* by hash */
    size_t n;
    int in_use; /* a file was read: without a key there is no way in */
};

/* Read a file; "" reads nothing. 0, or -errno and a sentence with the line; *ret is empty
 * then. keys_fini() either way. */
int keys_load(struct keys *ret, const char *path, char *err, size_t err_bytes);
/* Take over what a file said; pointers to keys stay valid. 0, -E2BIG or -ENOMEM: keys that
 * are new are missing. */
int keys_take(struct keys *ks, const struct keys *read);
/* Both. With an error in the file nothing has changed. */
int keys_read(struct keys *ks, const char *path, char *err, size_t err_bytes);
/* Another request of the key begins: 0, or -EAGAIN: it has as many as it may. k may be
 * NULL. */
int keys_begin(struct key *k);
void keys_end(struct key *k);
/* Whom its requests count under, with what the field user says, or n 0. */
uint64_t keys_user(const struct key *k, const char *user, size_t n);
/* The key that was presented; NULL: there is none. */
struct key *keys_find(const struct keys *ks, const char *text, size_t n);
void keys_fini(struct keys *ks);

#endif
