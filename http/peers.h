/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses that have connections: how many, over all loops. Without keys an address is a
 * user of the daemon, and so is the uid at the other end of a UNIX socket.
 */
#ifndef FDD_HTTP_PEERS_H
#define FDD_HTTP_PEERS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define PEER_LIST 4096

struct peer {
    struct peer *next;
    uint32_t n;
    char name[48];
};

struct peers {
    pthread_mutex_t lock;
    struct peer *list[PEER_LIST];
};

void peer_init(struct peers *ps);
void peer_fini(struct peers *ps);
/* One more connection of name. 0; -EMFILE: it has most already; -ENOMEM. */
int peer_add(struct peers *ps, const char *name, uint32_t most);
/* One fewer. */
void peer_drop(struct peers *ps, const char *name);

/* A number for what the daemon calls a user, of a kind and what names it. It is none of
 * the system's uids. The same in every process. */
uint64_t peer_user(const char *kind, const void *name, size_t n);

#endif
