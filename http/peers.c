/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/peers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/sha256.h"

void
peer_init(struct peers *ps)
{
    memset(ps, 0, sizeof(*ps));
    (void)pthread_mutex_init(&ps->lock, NULL);
}

void
peer_fini(struct peers *ps)
{
    for (size_t i = 0; i < PEER_LIST; i++)
        while (ps->list[i] != NULL) {
            struct peer *p = ps->list[i];

            ps->list[i] = p->next;
            free(p);
        }
    (void)pthread_mutex_destroy(&ps->lock);
}

uint64_t
peer_user(const char *kind, const void *name, size_t n)
{
    struct sha256 s;
    uint8_t hash[32];
    uint64_t v;

    sha256_init(&s);
    sha256_add(&s, kind, strlen(kind) + 1);
    sha256_add(&s, name, n);
    sha256_end(&s, hash);
    memcpy(&v, hash, sizeof(v));
    return v | 1ull << 63;
}

/* The pointer to the address's entry, or to the NULL at which it would be added. */
static struct peer **
place(struct peers *ps, const char *name)
{
    struct peer **at = &ps->list[peer_user("address", name, strlen(name)) % PEER_LIST];

    while (*at != NULL && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

int
peer_add(struct peers *ps, const char *name, uint32_t most)
{
    struct peer **at;
    int rc = 0;

    (void)pthread_mutex_lock(&ps->lock);
    at = place(ps, name);
    if (*at == NULL) {
        *at = calloc(1, sizeof(**at));
        if (*at != NULL)
            (void)snprintf((*at)->name, sizeof((*at)->name), "%s", name);
    }
    if (*at == NULL)
        rc = -ENOMEM;
    else if ((*at)->n >= most)
        rc = -EMFILE;
    else
        (*at)->n++;
    (void)pthread_mutex_unlock(&ps->lock);
    return rc;
}

void
peer_drop(struct peers *ps, const char *name)
{
    struct peer **at, *p;

    (void)pthread_mutex_lock(&ps->lock);
    at = place(ps, name);
    p = *at;
    if (p != NULL && --p->n == 0) {
        *at = p->next;
        free(p);
    }
    (void)pthread_mutex_unlock(&ps->lock);
}
