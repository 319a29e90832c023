#include "config.h"

#include "daemon/gate/fair.h"

#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/obj.h"
#include "daemon/gate/gate.h"

#define USR_BURST 3u /* connects, times connects_per_second */

void
fair_init(struct fair *f)
{
    memset(f, 0, sizeof(*f));
    TAILQ_INIT(&f->round);
}

void
fair_fini(struct fair *f)
{
    for (uint32_t b = 0; b < USR_BUCKETS; b++) {
        while (f->hash[b] != NULL) {
            struct usr *u = f->hash[b];

            f->hash[b] = u->hnext;
            OBJ_FREE(u, USR_MAGIC);
        }
    }
    f->n_usr = 0;
}

static uint32_t
usr_bucket(uint64_t key)
{
    key *= 0x9e3779b97f4a7c15ull;
    return (uint32_t)(key >> 32) & (USR_BUCKETS - 1);
}

struct usr *
usr_get(struct gate *g, uint64_t key, uint64_t now_ns)
{
    struct fair *f = &g->fair;
    uint32_t b = usr_bucket(key);
    struct usr *u;

    for (u = f->hash[b]; u != NULL; u = u->hnext) {
        if (u->key == key)
            return u;
    }
    if (f->n_usr >= USR_MAX)
        return NULL;
    OBJ_ALLOC(u, USR_MAGIC);
    if (u == NULL)
        return NULL;
    u->key = key;
    u->bucket_ns = USR_BURST * CLK_S;
    u->t_bucket = now_ns;
    TAILQ_INIT(&u->q);
    u->hnext = f->hash[b];
    f->hash[b] = u;
    f->n_usr++;
    return u;
}

/* The bucket is kept in "seconds of rate": it fills by 1 ns per ns up to
 * three seconds, and a connect costs 1 s / rate. */
static void
usr_refill(struct usr *u, uint64_t now_ns)
{
    uint64_t full = USR_BURST * CLK_S;
    uint64_t dt = now_ns > u->t_bucket ? now_ns - u->t_bucket : 0;

    u->bucket_ns = dt >= full - u->bucket_ns ? full : u->bucket_ns + dt;
    u->t_bucket = now_ns;
}

int
usr_connect(struct gate *g, struct usr *u, uint64_t now_ns)
{
    uint64_t cost = CLK_S / (uint64_t)g->par->ipc_connects_per_second;

    OBJ_CHECK(u, USR_MAGIC);
    usr_refill(u, now_ns);
    if (u->bucket_ns < cost)
        return 0;
    u->bucket_ns -= cost;
    return 1;
}

void
usr_sweep(struct gate *g, uint64_t now_ns)
{
    struct fair *f = &g->fair;

    for (uint32_t b = 0; b < USR_BUCKETS; b++) {
        struct usr **p = &f->hash[b];

        while (*p != NULL) {
            struct usr *u = *p;

            usr_refill(u, now_ns);
            if (u->n_ses == 0 && u->n_inflight == 0 &&
                u->bucket_ns == USR_BURST * CLK_S) {
                ASSERT(!u->active && u->bytes == 0);
                *p = u->hnext;
                OBJ_FREE(u, USR_MAGIC);
                f->n_usr--;
            } else {
                p = &u->hnext;
            }
        }
    }
}

static void
fair_activate(struct fair *f, struct usr *u)
{
    if (u->active)
        return;
    u->active = 1;
    u->deficit = 0;
    TAILQ_INSERT_TAIL(&f->round, u, act);
}

static void
fair_idle(struct fair *f, struct usr *u)
{
    if (u->active && TAILQ_EMPTY(&u->q)) {
        u->active = 0;
        TAILQ_REMOVE(&f->round, u, act);
    }
}

void
fair_push(struct gate *g, struct jreq *r)
{
    struct usr *u = r->usr;
    struct jreq *at;

    OBJ_CHECK(r, JREQ_MAGIC);
    TAILQ_FOREACH_REVERSE(at, &u->q, jreq_q, link) {
        if (at->req.priority <= r->req.priority)
            break;
    }
    if (at != NULL)
        TAILQ_INSERT_AFTER(&u->q, at, r, link);
    else
        TAILQ_INSERT_HEAD(&u->q, r, link);
    r->st = JNL_QUEUED;
    g->fair.n_queued++;
    fair_activate(&g->fair, u);
}

void
fair_unpop(struct gate *g, struct jreq *r)
{
    struct usr *u = r->usr;

    OBJ_CHECK(r, JREQ_MAGIC);
    TAILQ_INSERT_HEAD(&u->q, r, link);
    r->st = JNL_QUEUED;
    g->fair.n_queued++;
    if (!u->active) {
        fair_activate(&g->fair, u);
    }
    u->deficit += r->cost;
}

void
fair_remove(struct gate *g, struct jreq *r)
{
    OBJ_CHECK(r, JREQ_MAGIC);
    ASSERT(r->st == JNL_QUEUED);
    TAILQ_REMOVE(&r->usr->q, r, link);
    ASSERT(g->fair.n_queued > 0);
    g->fair.n_queued--;
    fair_idle(&g->fair, r->usr);
}

struct jreq *
fair_pop(struct gate *g)
{
    struct fair *f = &g->fair;
    struct usr *u;

    /* Ends: each visit adds a quantum and costs are bounded. */
    while ((u = TAILQ_FIRST(&f->round)) != NULL) {
        struct jreq *r = TAILQ_FIRST(&u->q);
        int alone = TAILQ_NEXT(u, act) == NULL;

        if (alone && u->deficit < r->cost)
            u->deficit = r->cost; /* nobody waits for this user's turn to end */
        if (u->deficit >= r->cost) {
            u->deficit -= r->cost;
            fair_remove(g, r);
            return r;
        }
        u->deficit += FAIR_QUANTUM;
        TAILQ_REMOVE(&f->round, u, act);
        TAILQ_INSERT_TAIL(&f->round, u, act);
    }
    return NULL;
}

void
fair_check(const struct gate *g)
{
    const struct fair *f = &g->fair;
    uint32_t n_usr = 0, n_queued = 0;

    for (uint32_t b = 0; b < USR_BUCKETS; b++) {
        for (const struct usr *u = f->hash[b]; u != NULL; u = u->hnext) {
            const struct jreq *r;
            uint32_t n = 0;

            OBJ_CHECK(u, USR_MAGIC);
            TAILQ_FOREACH(r, &u->q, link) {
                OBJ_CHECK(r, JREQ_MAGIC);
                ASSERT(r->usr == u && r->st == JNL_QUEUED);
                n++;
            }
            ASSERT(u->active == (n > 0));
            ASSERT(n <= u->n_inflight);
            n_queued += n;
            n_usr++;
        }
    }
    ASSERT(n_usr == f->n_usr);
    ASSERT(n_queued == f->n_queued);
}
