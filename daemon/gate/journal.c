/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/journal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/gate/blob.h"
#include "daemon/gate/client.h"
#include "daemon/gate/fair.h"

int
jnl_init(struct jnl *j, uint32_t n_max)
{
    uint32_t n_hash = 64;

    memset(j, 0, sizeof(*j));
    TAILQ_INIT(&j->free);
    TAILQ_INIT(&j->orphans);
    while (n_hash < 2 * n_max)
        n_hash *= 2;
    j->pool = mem_array(n_max, sizeof(*j->pool));
    j->by_id = mem_array(n_hash, sizeof(*j->by_id));
    j->by_tag = mem_array(n_hash, sizeof(*j->by_tag));
    if (j->pool == NULL || j->by_id == NULL || j->by_tag == NULL) {
        jnl_fini(j);
        return -ENOMEM;
    }
    j->n_max = n_max;
    j->mask = n_hash - 1;
    j->next_id = 1;
    for (uint32_t i = 0; i < n_max; i++)
        TAILQ_INSERT_TAIL(&j->free, &j->pool[i], link);
    return 0;
}

void
jnl_fini(struct jnl *j)
{
    if (j->pool != NULL) {
        for (uint32_t i = 0; i < j->n_max; i++)
            blb_free(&j->pages, j->pool[i].blob, j->pool[i].blob_bytes,
                j->pool[i].blob_bytes);
    }
    pgs_fini(&j->pages);
    free(j->pool);
    free(j->by_id);
    free(j->by_tag);
    memset(j, 0, sizeof(*j));
}

static struct jreq **
jnl_tag_at(const struct jnl *j, const struct client *c, uint64_t tag)
{
    uint64_t h = (tag ^ (c->id * 0xd6e8feb86659fd93ull)) * 0x9e3779b97f4a7c15ull;

    return &j->by_tag[(uint32_t)(h >> 32) & j->mask];
}

static uint64_t
jnl_bytes(const struct jreq *r)
{
    return sizeof(*r) + r->blob_bytes;
}

struct jreq *
jnl_add(struct jnl *j, struct client *c, struct usr *u, const struct fdp_req *req,
    unsigned char *blob, uint32_t blob_bytes, uint64_t now_ns)
{
    struct jreq *r = TAILQ_FIRST(&j->free);
    struct jreq **at;

    if (r == NULL)
        return NULL;
    TAILQ_REMOVE(&j->free, r, link);
    ASSERT(r->st == JNL_FREE);
    memset(r, 0, sizeof(*r));
    r->magic = JREQ_MAGIC;
    r->id = j->next_id++;
    r->cli = c;
    r->usr = u;
    r->tag = req->tag;
    r->req = *req;
    r->blob = blob;
    r->blob_bytes = blob_bytes;
    r->t_submit = now_ns;
    r->client_pid = c->pid;
    memcpy(r->client, c->name, sizeof(r->client));

    /* Ids are consecutive, so their low bits are evenly spread. */
    at = &j->by_id[(uint32_t)r->id & j->mask];
    r->id_next = *at;
    *at = r;
    at = jnl_tag_at(j, c, r->tag);
    r->tag_next = *at;
    *at = r;
    TAILQ_INSERT_TAIL(&c->reqs, r, of_ses);

    r->first = u->n_inflight == 0;
    c->n_inflight++;
    c->n_requests++;
    u->n_inflight++;
    u->bytes += jnl_bytes(r);
    j->bytes += jnl_bytes(r);
    j->n_open++;
    return r;
}

struct jreq *
jnl_find(const struct jnl *j, uint64_t id)
{
    struct jreq *r = j->by_id[(uint32_t)id & j->mask];

    while (r != NULL && r->id != id)
        r = r->id_next;
    return r;
}

struct jreq *
jnl_find_tag(const struct jnl *j, const struct client *c, uint64_t tag)
{
    struct jreq *r = *jnl_tag_at(j, c, tag);

    while (r != NULL && (r->cli != c || r->tag != tag))
        r = r->tag_next;
    return r;
}

static void
jnl_unhash_id(struct jnl *j, struct jreq *r)
{
    struct jreq **p = &j->by_id[(uint32_t)r->id & j->mask];

    while (*p != r) {
        ASSERT(*p != NULL);
        p = &(*p)->id_next;
    }
    *p = r->id_next;
}

static void
jnl_leave_client(struct jnl *j, struct jreq *r)
{
    struct jreq **p = jnl_tag_at(j, r->cli, r->tag);

    while (*p != r) {
        ASSERT(*p != NULL);
        p = &(*p)->tag_next;
    }
    *p = r->tag_next;
    TAILQ_REMOVE(&r->cli->reqs, r, of_ses);
    ASSERT(r->cli->n_inflight > 0);
    r->cli->n_inflight--;
    r->cli = NULL;
}

void
jnl_orphan(struct jnl *j, struct jreq *r)
{
    OBJ_CHECK(r, JREQ_MAGIC);
    ASSERT(r->cli != NULL);
    jnl_leave_client(j, r);
    TAILQ_INSERT_TAIL(&j->orphans, r, of_ses);
}

void
jnl_free(struct jnl *j, struct jreq *r)
{
    struct usr *u = r->usr;

    OBJ_CHECK(r, JREQ_MAGIC);
    ASSERT(r->st != JNL_FREE && !r->charged);
    if (r->cli != NULL)
        jnl_leave_client(j, r);
    else
        TAILQ_REMOVE(&j->orphans, r, of_ses);
    jnl_unhash_id(j, r);
    ASSERT(u->n_inflight > 0 && u->bytes >= jnl_bytes(r));
    ASSERT(j->n_open > 0 && j->bytes >= jnl_bytes(r));
    u->n_inflight--;
    u->bytes -= jnl_bytes(r);
    j->bytes -= jnl_bytes(r);
    j->n_open--;
    blb_free(&j->pages, r->blob, r->blob_bytes, r->blob_bytes);
    r->blob = NULL;
    r->magic = 0;
    r->st = JNL_FREE;
    /* At the head: the next request gets an entry that is still in the processor's
     * cache. */
    TAILQ_INSERT_HEAD(&j->free, r, link);
}

const char *
jnl_state_name(int st)
{
    static const char *const names[] = { "free", "queued", "running", "running", "ending" };

    return st >= 0 && st <= JNL_ENDING ? names[st] : "?";
}

static void
jnl_check_list(const struct jnl *j, const struct jreq_q *q, const struct client *c,
    uint32_t *n, uint64_t *bytes)
{
    const struct jreq *r;

    TAILQ_FOREACH(r, q, of_ses)
    {
        OBJ_CHECK(r, JREQ_MAGIC);
        ASSERT(r->cli == c && r->st != JNL_FREE);
        ASSERT(jnl_find(j, r->id) == r);
        ASSERT(c == NULL || jnl_find_tag(j, c, r->tag) == r);
        (*n)++;
        *bytes += jnl_bytes(r);
    }
}

void
jnl_check_client(const struct jnl *j, const struct client *c, uint32_t *n, uint64_t *bytes)
{
    uint32_t before = *n;

    jnl_check_list(j, &c->reqs, c, n, bytes);
    ASSERT(*n - before == c->n_inflight);
}

void
jnl_check(const struct jnl *j, uint32_t n, uint64_t bytes)
{
    const struct jreq *r;
    uint32_t n_free = 0;

    jnl_check_list(j, &j->orphans, NULL, &n, &bytes);
    TAILQ_FOREACH(r, &j->free, link)
    n_free++;
    ASSERT(n == j->n_open && bytes == j->bytes);
    ASSERT(n + n_free == j->n_max);
}
