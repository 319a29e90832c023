/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the connections of each address, over all loops. Without keys each address is a
 * user of the daemon, and so is each uid at the other end of a UNIX socket.
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
/* Count one more connection of name. Returns 0; -EMFILE: it has `most`
 * already; -ENOMEM. */
int peer_add(struct peers *ps, const char *name, uint32_t most);
/* Count one fewer. */
void peer_drop(struct peers *ps, const char *name);

/* The number of a user for the daemon, derived from a kind and a name of n bytes. It is
 * no uid of the system, and the same in every process. */
uint64_t peer_user(const char *kind, const void *name, size_t n);

#endif
