/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * API keys: a file with lines of the form
 *
 *   SHA256 NAME [user=N] [inflight=N] [priority] [delegate]
 *
 *   SHA256    the key's hash in hex, so that the file reveals no key
 *   user      the number under which fdd counts the key's requests (request.user); else
 *             the key is a user of its own
 *   inflight  most requests at a time
 *   priority  requests may set the field of that name
 *   delegate  the field user of a request names one of the key's own users, each of
 *             which has its share
 *
 * A presented key is hashed, and the hash is compared in full with the same number of
 * hashes whichever it is, so that the time taken reveals nothing about the keys.
 *
 * A key that is no longer in the file when it is read again stays in memory for its
 * running requests, but admits no new ones.
 *
 * The loops share one table with the keys' counts of requests. One loop reads the file
 * again while the others are paused.
 */
#ifndef FDD_HTTP_KEYS_H
#define FDD_HTTP_KEYS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct key {
    uint8_t hash[32];
    char name[64];
    uint64_t user;     /* 0: a number derived from its hash */
    uint32_t inflight; /* 0: no limit */
    atomic_uint running;
    int may_prioritize, may_delegate;
    int is_gone;
};

struct keys {
    struct key **k; /* by hash */
    size_t n;
    int in_use; /* a file was read: each request needs a key */
};

/* Read a file; "" reads none. Returns 0, or -errno with a sentence that names the line in
 * err; *ret is empty then. Call keys_fini() in either case. */
int keys_load(struct keys *ret, const char *path, char *err, size_t err_bytes);
/* Take over the keys read from a file; pointers to keys stay valid. Returns 0; -E2BIG or
 * -ENOMEM: some new keys are missing. */
int keys_take(struct keys *ks, const struct keys *read);
/* keys_load() and keys_take(). An error in the file leaves ks unchanged. */
int keys_read(struct keys *ks, const char *path, char *err, size_t err_bytes);
/* Count another request of the key. Returns 0; -EAGAIN: it is at its limit. k may be
 * NULL. */
int keys_begin(struct key *k);
void keys_end(struct key *k);
/* The daemon's user for a request of the key. user: the hash of the field user; n 0:
 * none. */
uint64_t keys_user(const struct key *k, const char *user, size_t n);
/* The key whose text was presented; NULL: there is none. */
struct key *keys_find(const struct keys *ks, const char *text, size_t n);
void keys_fini(struct keys *ks);

#endif
