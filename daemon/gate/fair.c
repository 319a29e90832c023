/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/fair.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/obj.h"

#define USR_BURST 3u /* size of the connect bucket, in seconds of connects_per_second */

void
fair_init(struct fair *f)
{
    memset(f, 0, sizeof(*f));
    f->credits = f->credits_one = 1;
    for (int k = 0; k < FAIR_KINDS; k++)
        TAILQ_INIT(&f->active[k]);
}

static uint32_t
usr_n_seals(const struct usr *u)
{
    return __atomic_load_n(&u->n_seals, __ATOMIC_ACQUIRE);
}

void
fair_fini(struct fair *f)
{
    for (uint32_t b = 0; b < USR_BUCKETS; b++) {
        while (f->hash[b] != NULL) {
            struct usr *u = f->hash[b];

            f->hash[b] = u->hnext;
            if (usr_n_seals(u) != 0)
                continue; /* a hung thread still uses it */
            OBJ_FREE(u, USR_MAGIC);
        }
    }
    f->n_usr = 0;
}

/* ---- weights ------------------------------------------------------------- */

static int __attribute__((format(printf, 4, 5)))
fair_bad_item(const char *item, char *err, size_t err_bytes, const char *fmt, ...)
{
    char why[256];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    (void)snprintf(err, err_bytes, "sched.user_weights: \"%.80s\": %s", item, why);
    return -EINVAL;
}

/* Parses a number of digits only, at most max. 0, -EINVAL or -ERANGE. */
static int
fair_number(const char *text, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0;

    if (text[0] == '\0')
        return -EINVAL;
    for (; *text != '\0'; text++) {
        if (!isdigit((unsigned char)*text))
            return -EINVAL;
        if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*text - '0'), &v) || v > max)
            return -ERANGE;
    }
    *ret = v;
    return 0;
}

static int
fair_parse_item(const char *item, struct fair_weight *ret, char *err, size_t err_bytes)
{
    const char *colon = strrchr(item, ':');
    const struct passwd *pw;
    uint64_t weight;
    char name[128];

    if (colon == NULL)
        return fair_bad_item(item, err, err_bytes,
            "no weight; write user:weight, like "
            "alice:4");
    if (colon == item)
        return fair_bad_item(item, err, err_bytes,
            "no user before the colon; write a "
            "name or a uid");
    if (fair_number(colon + 1, FAIR_WEIGHT_MAX, &weight) != 0 || weight == 0)
        return fair_bad_item(item, err, err_bytes,
            "the weight must be a whole number "
            "from 1 to %u",
            FAIR_WEIGHT_MAX);
    (void)snprintf(name, sizeof(name), "%.*s", (int)(colon - item), item);
    ret->weight = (uint32_t)weight;
    switch (fair_number(name, UINT64_MAX, &ret->key)) {
    case 0:
        return 0;
    case -ERANGE:
        return fair_bad_item(item, err, err_bytes, "a user number has at most 64 bits");
    }
    pw = (size_t)(colon - item) < sizeof(name) ? getpwnam(name) : NULL;
    if (pw == NULL)
        return fair_bad_item(item, err, err_bytes,
            "this system has no user of that "
            "name; write a name of getent passwd, or a uid");
    ret->key = pw->pw_uid;
    return 0;
}

int
fair_parse_weights(const char *text, struct fair_weight *ret, uint32_t *ret_n, char *err,
    size_t err_bytes)
{
    uint32_t n = 0;

    for (text += strspn(text, ", "); *text != '\0'; text += strspn(text, ", ")) {
        size_t len = strcspn(text, ", ");
        struct fair_weight w;
        char item[512];
        int rc;

        (void)snprintf(item, sizeof(item), "%.*s", (int)len, text);
        rc = fair_parse_item(item, &w, err, err_bytes);
        if (rc != 0)
            return rc;
        for (uint32_t i = 0; i < n; i++) {
            if (ret[i].key == w.key)
                return fair_bad_item(item, err, err_bytes,
                    "user %" PRIu64 " has a "
                    "weight already",
                    w.key);
        }
        if (n == FAIR_WEIGHTS)
            return fair_bad_item(item, err, err_bytes,
                "at most %u users can have a "
                "weight",
                FAIR_WEIGHTS);
        ret[n++] = w;
        text += len;
    }
    *ret_n = n;
    return 0;
}

static uint32_t
fair_weight_of(const struct fair *f, uint64_t key)
{
    for (uint32_t i = 0; i < f->n_weights; i++) {
        if (f->weights[i].key == key)
            return f->weights[i].weight;
    }
    return 1;
}

/* n tokens divided by u's weight, in 1 / FAIR_SCALE. */
static int64_t
fair_scaled(const struct usr *u, int64_t n)
{
    return n * FAIR_SCALE / u->weight;
}

static enum fair_kind
fair_kind_of(const struct uqueue *l)
{
    return l == &l->usr->queue[FAIR_GEN] ? FAIR_GEN : FAIR_OTHER;
}

/* Updates l's place in the heaps from its level. is_last: after queues of the same
 * level. */
static void
fair_rank(struct fair *f, struct uqueue *l, int is_last)
{
    enum fair_kind kind = fair_kind_of(l);

    if (l->is_ranked)
        heap_remove(&f->turn[kind], &l->turn);
    if (l->is_free)
        heap_remove(&f->free[kind], &l->free);
    l->is_ranked = l->active;
    l->is_free = l->active && l->usr->n_held == 0;
    l->turn.key = l->free.key = l->level;
    if (is_last)
        l->turn.seq = l->free.seq = ++f->seq;
    if (l->is_ranked)
        heap_add(&f->turn[kind], &l->turn);
    if (l->is_free)
        heap_add(&f->free[kind], &l->free);
}

static void
fair_weigh(struct fair *f, struct uqueue *l, int is_last)
{
    l->level = l->served + fair_scaled(l->usr, l->held);
    fair_rank(f, l, is_last);
}

/* l's level if its requests with the worker count as half done. */
static int64_t
fair_middle(const struct uqueue *l)
{
    return l->served + (l->level - l->served) / 2;
}

void
fair_set_weights(struct fair *f, const struct fair_weight *list, uint32_t n)
{
    ASSERT(n <= FAIR_WEIGHTS);
    if (n != 0)
        memcpy(f->weights, list, n * sizeof(*list));
    f->n_weights = n;
    for (uint32_t b = 0; b < USR_BUCKETS; b++) {
        for (struct usr *u = f->hash[b]; u != NULL; u = u->hnext) {
            uint32_t weight = fair_weight_of(f, u->key);

            if (u->counted)
                f->weight_active += (uint64_t)weight - u->weight;
            if (u->queue[FAIR_GEN].active)
                f->weight_queued += (uint64_t)weight - u->weight;
            u->weight = weight;
            for (int k = 0; k < FAIR_KINDS; k++)
                fair_weigh(f, &u->queue[k], 0);
        }
    }
}

/* ---- users --------------------------------------------------------------- */

static uint32_t
usr_bucket(uint64_t key)
{
    key *= 0x9e3779b97f4a7c15ull;
    return (uint32_t)(key >> 32) & (USR_BUCKETS - 1);
}

struct usr *
usr_get(struct fair *f, uint64_t key, uint64_t now_ns)
{
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
    u->weight = fair_weight_of(f, key);
    for (int k = 0; k < FAIR_KINDS; k++) {
        u->queue[k].usr = u;
        TAILQ_INIT(&u->queue[k].q);
    }
    u->hnext = f->hash[b];
    f->hash[b] = u;
    f->n_usr++;
    return u;
}

/* Refills the connect bucket. It is kept in "seconds of rate": it fills by 1 ns per ns,
 * up to three seconds, and a connect costs 1 s / rate. */
static void
usr_refill(struct usr *u, uint64_t now_ns)
{
    uint64_t full = USR_BURST * CLK_S;
    uint64_t dt = now_ns > u->t_bucket ? now_ns - u->t_bucket : 0;

    u->bucket_ns = dt >= full - u->bucket_ns ? full : u->bucket_ns + dt;
    u->t_bucket = now_ns;
}

int
usr_connect(struct usr *u, uint64_t per_second, uint64_t now_ns)
{
    uint64_t cost = CLK_S / per_second;

    OBJ_CHECK(u, USR_MAGIC);
    usr_refill(u, now_ns);
    if (u->bucket_ns < cost)
        return 0;
    u->bucket_ns -= cost;
    return 1;
}

/* The error budget refills with time. */
static void
usr_pay(struct usr *u, uint64_t now_ns)
{
    uint64_t dt = now_ns > u->t_refused ? now_ns - u->t_refused : 0;

    u->refused_ns = u->refused_ns > dt ? u->refused_ns - dt : 0;
    u->t_refused = now_ns;
}

void
usr_refused(struct usr *u, uint32_t n, uint32_t per_second, uint64_t now_ns)
{
    usr_pay(u, now_ns);
    u->refused_ns += n * (uint64_t)CLK_S / per_second;
}

uint32_t
usr_eager_ms(struct usr *u, uint32_t per_second, uint64_t now_ns)
{
    uint64_t most = CLK_S - CLK_S / per_second;

    if (u->refused_ns <= most)
        return 0;
    usr_pay(u, now_ns);
    return u->refused_ns <= most ? 0 : (uint32_t)((u->refused_ns - most) / CLK_MS) + 1;
}

uint64_t
usr_rest(struct usr *u, uint64_t now_ns)
{
    if (u->rest_ns == 0 || now_ns >= u->t_rest + USR_REST_FORGET_NS)
        u->rest_ns = USR_REST_MIN_NS;
    else
        u->rest_ns = u->rest_ns < USR_REST_MAX_NS / 4 ? 4 * u->rest_ns : USR_REST_MAX_NS;
    u->t_rest = now_ns + u->rest_ns;
    return u->t_rest;
}

void
usr_enter(struct fair *f, struct usr *u)
{
    f->n_here += u->n_ses == 0;
    u->n_ses++;
}

void
usr_leave(struct fair *f, struct usr *u)
{
    ASSERT(u->n_ses > 0);
    u->n_ses--;
    f->n_here -= u->n_ses == 0;
}

void
usr_sweep(struct fair *f, uint64_t now_ns)
{
    for (uint32_t b = 0; b < USR_BUCKETS; b++) {
        struct usr **p = &f->hash[b];

        while (*p != NULL) {
            struct usr *u = *p;

            usr_refill(u, now_ns);
            usr_pay(u, now_ns);
            if (u->n_ses == 0 && u->n_inflight == 0 && u->n_jobs == 0 &&
                usr_n_seals(u) == 0 && u->bucket_ns == USR_BURST * CLK_S &&
                u->refused_ns == 0 &&
                (u->rest_ns == 0 || now_ns >= u->t_rest + USR_REST_FORGET_NS)) {
                ASSERT(!u->counted && u->bytes == 0);
                *p = u->hnext;
                OBJ_FREE(u, USR_MAGIC);
                f->n_usr--;
            } else {
                p = &u->hnext;
            }
        }
    }
}

/* ---- queues -------------------------------------------------------------- */

static struct uqueue *
fair_queue_of(const struct jreq *r)
{
    return &r->usr->queue[r->kind];
}

/* Counts u's weight in the totals while it has requests queued or with the worker. */
static void
fair_note(struct fair *f, struct usr *u)
{
    int active = u->queue[FAIR_GEN].active || u->n_held != 0;

    if (active == u->counted)
        return;
    u->counted = active;
    f->weight_active += active ? (uint64_t)u->weight : -(uint64_t)u->weight;
    f->n_active += active ? 1u : -1u;
}

static void
fair_activate(struct fair *f, struct uqueue *l, enum fair_kind kind)
{
    l->active = 1;
    if (fair_middle(l) < f->start[kind])
        l->served += f->start[kind] - fair_middle(l);
    fair_weigh(f, l, 1);
    TAILQ_INSERT_TAIL(&f->active[kind], l, act);
    if (kind == FAIR_GEN) {
        f->weight_queued += l->usr->weight;
        fair_note(f, l->usr);
    }
}

uint64_t
fair_deadline(const struct jreq *r)
{
    uint64_t q = r->deadline_queue, t = r->deadline_total;

    return q == 0 || (t != 0 && t < q) ? t : q;
}

void
fair_note_deadline(struct fair *f, const struct jreq *r)
{
    uint64_t t = fair_deadline(r);

    if (t != 0 && (f->t_next == 0 || t < f->t_next))
        f->t_next = t;
}

/* Adds a request to the totals of its queue, or takes it out. */
static void
fair_enter(struct fair *f, struct uqueue *l, struct jreq *r)
{
    fair_note_deadline(f, r);
    r->st = JNL_QUEUED;
    l->cost += r->cost;
    f->n_queued++;
    if (r->kind != FAIR_GEN)
        return;
    f->cost_queued += r->cost;
    f->cost_first += r->first ? r->cost : 0;
}

static void
fair_leave(struct fair *f, struct uqueue *l, const struct jreq *r)
{
    l->cost -= r->cost;
    f->n_queued--;
    if (r->kind != FAIR_GEN)
        return;
    f->cost_queued -= r->cost;
    f->cost_first -= r->first ? r->cost : 0;
}

void
fair_push(struct fair *f, struct jreq *r)
{
    struct uqueue *l = fair_queue_of(r);
    struct jreq *at;

    OBJ_CHECK(r, JREQ_MAGIC);
    TAILQ_FOREACH_REVERSE(at, &l->q, jreq_q, link)
    {
        if (f->fcfs || at->req.priority <= r->req.priority)
            break;
    }
    if (at != NULL)
        TAILQ_INSERT_AFTER(&l->q, at, r, link);
    else
        TAILQ_INSERT_HEAD(&l->q, r, link);
    fair_enter(f, l, r);
    if (r->kind == FAIR_GEN) {
        f->cost_open += r->cost;
        f->n_gen++;
    }
    if (!l->active)
        fair_activate(f, l, r->kind);
}

/* Does a come before b in their user's queue? */
static int
fair_precedes(const struct fair *f, const struct jreq *a, const struct jreq *b)
{
    if (!f->fcfs && a->req.priority != b->req.priority)
        return a->req.priority < b->req.priority;
    return a->id < b->id;
}

/* The request in l before which r belongs; NULL: r is the last. When a worker dies many
 * requests come back at once, so the one that came back last is nearer than the head of
 * the queue. */
static struct jreq *
fair_place(const struct fair *f, const struct uqueue *l, const struct jreq *r)
{
    struct jreq *at = l->put != NULL ? l->put : TAILQ_FIRST(&l->q), *before;

    while (at != NULL && fair_precedes(f, at, r))
        at = TAILQ_NEXT(at, link);
    for (; at != NULL; at = before) {
        before = TAILQ_PREV(at, jreq_q, link);
        if (before == NULL || fair_precedes(f, before, r))
            break;
    }
    return at;
}

void
fair_unpop(struct fair *f, struct jreq *r)
{
    struct uqueue *l = fair_queue_of(r);
    struct jreq *at = fair_place(f, l, r);

    OBJ_CHECK(r, JREQ_MAGIC);
    l->put = r;
    if (at != NULL)
        TAILQ_INSERT_BEFORE(at, r, link);
    else
        TAILQ_INSERT_TAIL(&l->q, r, link);
    fair_enter(f, l, r);
    if (!l->active)
        fair_activate(f, l, r->kind);
}

void
fair_remove(struct fair *f, struct jreq *r)
{
    struct uqueue *l = fair_queue_of(r);

    OBJ_CHECK(r, JREQ_MAGIC);
    ASSERT(r->st == JNL_QUEUED && f->n_queued > 0 && l->cost >= r->cost);
    if (l->put == r)
        l->put = NULL;
    TAILQ_REMOVE(&l->q, r, link);
    fair_leave(f, l, r);
    if (!TAILQ_EMPTY(&l->q))
        return;
    l->active = 0;
    fair_rank(f, l, 0);
    TAILQ_REMOVE(&f->active[r->kind], l, act);
    if (r->kind == FAIR_GEN) {
        f->weight_queued -= l->usr->weight;
        fair_note(f, l->usr);
    }
}

/* ---- whose turn ---------------------------------------------------------- */

void
fair_grant(struct fair *f, uint32_t credits, uint32_t kept)
{
    f->credits = f->credits_one = credits != 0 ? credits : 1;
    f->credits_kept = kept < f->credits ? kept : f->credits - 1;
}

void
fair_grant_one(struct fair *f, uint32_t credits)
{
    if (credits != 0 && credits < f->credits)
        f->credits_one = credits;
}

static uint32_t
fair_price(const struct fair *f, const struct jreq *r)
{
    if (r->kind != FAIR_GEN)
        return 0;
    uint32_t n = jnl_samples(&r->req);

    return n < f->credits_one ? n : f->credits_one;
}

/* The queue whose turn it is: lowest level first. */
static struct uqueue *
fair_first(const struct heap *turn)
{
    return turn->first != NULL
        ? (struct uqueue *)(void *)((char *)turn->first - offsetof(struct uqueue, turn))
        : NULL;
}

static struct uqueue *
fair_first_free(const struct heap *free)
{
    return free->first != NULL
        ? (struct uqueue *)(void *)((char *)free->first - offsetof(struct uqueue, free))
        : NULL;
}

/* The queue of generating requests whose turn it is. NULL: too few credits are free. */
static struct uqueue *
fair_turn_gen(const struct fair *f)
{
    struct uqueue *l = fair_first(&f->turn[FAIR_GEN]);
    uint32_t most = f->credits - f->credits_kept;

    if (l != NULL && l->usr->n_held != 0 &&
        f->credits_used + fair_price(f, TAILQ_FIRST(&l->q)) > most) {
        if (f->credits_used < most)
            return NULL; /* until enough are free for its samples */
        l = fair_first_free(&f->free[FAIR_GEN]);
    }
    if (l == NULL || f->credits_used + fair_price(f, TAILQ_FIRST(&l->q)) > f->credits)
        return NULL;
    return l;
}

struct jreq *
fair_pop(struct fair *f, enum fair_kind kind)
{
    struct uqueue *l;
    struct jreq *r;

    if (kind == FAIR_GEN ? f->credits_used >= f->credits : f->n_side >= FAIR_OTHER_MAX)
        return NULL;
    l = kind == FAIR_GEN ? fair_turn_gen(f) : fair_first(&f->turn[kind]);
    if (l == NULL)
        return NULL;
    r = TAILQ_FIRST(&l->q);
    if (fair_middle(l) > f->start[kind])
        f->start[kind] = fair_middle(l);
    fair_remove(f, r);
    fair_rank(f, l, 1);
    return r;
}

/* ---- with the worker ----------------------------------------------------- */

/* Estimated tokens of r: few answers reach their maximum length. */
static uint32_t
fair_expected(const struct jreq *r)
{
    int64_t mean = fair_queue_of(r)->mean;

    return mean != 0 && mean < r->cost ? (uint32_t)mean : r->cost;
}

void
fair_charge(struct fair *f, struct jreq *r)
{
    struct uqueue *l = fair_queue_of(r);
    struct usr *u = r->usr;

    ASSERT(!r->charged);
    r->charged = 1;
    r->price = fair_price(f, r);
    f->credits_used += r->price;
    u->n_held += r->price;
    r->held = fair_expected(r);
    l->held += r->held;
    fair_weigh(f, l, 0);
    if (r->kind == FAIR_OTHER)
        f->n_side++;
    fair_note(f, u);
}

void
fair_return(struct fair *f, struct jreq *r)
{
    struct uqueue *l = fair_queue_of(r);
    struct usr *u = r->usr;

    if (!r->charged)
        return;
    ASSERT(f->credits_used >= r->price && u->n_held >= r->price);
    r->charged = 0;
    f->credits_used -= r->price;
    u->n_held -= r->price;
    l->held -= r->held;
    fair_weigh(f, l, 0);
    if (r->kind == FAIR_OTHER)
        f->n_side--;
    fair_note(f, u);
}

void
fair_settle(struct jreq *r)
{
    struct uqueue *l = fair_queue_of(r);
    int64_t did = r->cost;

    if (!r->charged)
        return;
    if (r->kind == FAIR_GEN)
        did = (int64_t)r->n_out + (r->accepted ? (int64_t)r->prompt_len : 0);
    l->served += fair_scaled(l->usr, did);
    l->mean = l->mean == 0 ? did : l->mean + (did - l->mean) / FAIR_MEAN_OF;
}

void
fair_drop(struct fair *f, struct jreq *r)
{
    if (r->kind != FAIR_GEN)
        return;
    ASSERT(f->n_gen > 0 && f->cost_open >= r->cost);
    f->n_gen--;
    f->cost_open -= r->cost;
}

uint64_t
fair_ahead(const struct fair *f, const struct usr *u, int32_t priority)
{
    const struct uqueue *l = &u->queue[FAIR_GEN];
    uint64_t weights = f->weight_queued + (l->active ? 0 : u->weight);
    const struct jreq *r;
    double own = 0;

    TAILQ_FOREACH(r, &l->q, link)
    {
        if (!f->fcfs && r->req.priority > priority)
            break;
        own += r->cost;
    }
    own = own * (double)weights / (double)u->weight;
    return own < (double)f->cost_queued ? (uint64_t)own : f->cost_queued;
}

uint64_t
fair_mean_cost(const struct fair *f)
{
    return f->n_gen != 0 ? f->cost_open / f->n_gen : 0;
}

/* ---- check --------------------------------------------------------------- */

static void
fair_check_queue(const struct usr *u, int kind, uint32_t *n, uint64_t *first)
{
    const struct uqueue *l = &u->queue[kind];
    const struct jreq *r;
    uint64_t cost = 0;
    uint32_t before = *n;

    ASSERT(l->usr == u);
    TAILQ_FOREACH(r, &l->q, link)
    {
        OBJ_CHECK(r, JREQ_MAGIC);
        ASSERT(r->usr == u && r->st == JNL_QUEUED && r->kind == kind && !r->charged);
        cost += r->cost;
        *first += kind == FAIR_GEN && r->first ? r->cost : 0;
        (*n)++;
    }
    ASSERT(l->active == (*n > before));
    ASSERT(l->is_ranked == l->active && (!l->active || l->turn.key == l->level));
    ASSERT(kind != FAIR_GEN || l->is_free == (l->active && u->n_held == 0));
    ASSERT(l->cost == cost);
}

void
fair_check(const struct fair *f)
{
    uint32_t n_usr = 0, n_queued = 0, n_held = 0, n_active = 0;
    uint64_t cost = 0, first = 0, active = 0, queued = 0;

    for (uint32_t b = 0; b < USR_BUCKETS; b++) {
        for (const struct usr *u = f->hash[b]; u != NULL; u = u->hnext) {
            const struct uqueue *gen = &u->queue[FAIR_GEN];
            uint32_t n = 0;

            OBJ_CHECK(u, USR_MAGIC);
            for (int k = 0; k < FAIR_KINDS; k++)
                fair_check_queue(u, k, &n, &first);
            ASSERT(n <= u->n_inflight);
            ASSERT(u->counted == (gen->active || u->n_held != 0));
            active += u->counted ? u->weight : 0;
            n_active += u->counted ? 1 : 0;
            queued += gen->active ? u->weight : 0;
            cost += gen->cost;
            n_held += u->n_held;
            n_queued += n;
            n_usr++;
        }
    }
    ASSERT(n_usr == f->n_usr);
    ASSERT(n_queued == f->n_queued);
    ASSERT(cost == f->cost_queued && cost <= f->cost_open);
    ASSERT(first == f->cost_first);
    ASSERT(n_active == f->n_active);
    ASSERT(active == f->weight_active && queued == f->weight_queued);
    ASSERT(n_held == f->credits_used);
}
