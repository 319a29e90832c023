/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The launch threads of a group of ranks. The engine thread posts each piece of work
 * once, to a ring that all threads read; each thread does it for its own device. Posting
 * wakes thread 0 and each thread wakes two others, so the cost of posting does not grow
 * with the number of ranks. No launch thread waits for another: devices synchronize in
 * collectives.
 */
#include "config.h"

#include "daemon/worker/runner.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/worker/queue.h"

#define RUN_POLL_NS  (20 * CLK_US)  /* the poster's interval of polling run_rank.done */
#define RUN_SPIN_NS  (50 * CLK_US)  /* how long a launch thread spins after work */
#define RUN_PARK_NS  (100 * CLK_MS) /* longest sleep of a parked launch thread */
#define RUN_BLAME_NS (100 * CLK_MS) /* a late rank has this long to report its error */

/* ---- the launch threads --------------------------------------------------------------- */

static int
run_do_copies(struct run_dev *dev, const struct run_post *p, uint64_t at)
{
    const struct run_ranks *g = dev->run->ranks;
    int rc = run_copies_begin(dev);

    for (int32_t i = 1; i <= p->n && rc == 0; i++)
        rc = run_copy_one(dev, &g->post[(at + (uint64_t)i) & g->mask].copy);
    return rc != 0 ? rc : run_copies_end(dev, p->n);
}

static int
run_do(struct run_dev *dev, const struct run_post *p, uint64_t at)
{
    switch (p->kind) {
    case RUN_POST_STEP:
        return run_launch_rank(dev, p->rec);
    case RUN_POST_COPIES:
        return run_do_copies(dev, p, at);
    case RUN_POST_COPY:
        return 0; /* done by the RUN_POST_COPIES before it */
    case RUN_POST_DUP:
        return run_dup_one(dev, &p->dup);
    case RUN_POST_CLEAR:
        return run_clear_one(dev, p->n);
    case RUN_POST_FAIL:
        return p->n == run_rank(dev) ? dev->run->k->stream_fail(dev->stream) : 0;
    case RUN_POST_CALL:
        return p->call.fn(dev, p->n);
    }
    return -EINVAL;
}

static void
run_ring_at(struct run_ranks *g, int32_t rank)
{
    if (rank < g->n)
        lnk_ring(&g->at[rank].bell);
}

/* Tests: run the hook before a step, and stall while run_stall() asks for it. */
static void
run_step_hook(struct run_ranks *g, int32_t rank)
{
    if (g->hook != NULL)
        g->hook(g->hook_arg, rank);
    while (__atomic_load_n(&g->stalled, __ATOMIC_RELAXED) == rank + 1 &&
        !__atomic_load_n(&g->stop, __ATOMIC_ACQUIRE))
        clk_sleep_ns(CLK_MS);
}

static void
run_abort(const struct runner *run, struct fdk_group *group, int32_t rank)
{
    if (group != NULL)
        run->k->group_abort(group, rank);
}

/* Only the first failure counts: the other ranks are waiting for that rank, so the
 * collectives it takes part in are aborted. */
static void
run_rank_failed(struct runner *run, int32_t rank, int rc)
{
    int32_t copy = run_copy(&run->dev[rank]), place = run_place_of(&run->dev[rank]);
    struct run_ranks *g = run->ranks;
    int32_t none = 0;

    if (!__atomic_compare_exchange_n(&g->failed, &none, rank + 1, 0, __ATOMIC_ACQ_REL,
            __ATOMIC_ACQUIRE))
        return;
    run_abort(run, run->group[copy], place);
    run_abort(run, run->copies[place], copy);
    run_abort(run, run->owners[run_owners_at(&run->dev[rank])], run_own(&run->dev[rank]));
    __atomic_store_n(&g->rc, rc, __ATOMIC_RELEASE);
}

static int
run_has_failed(const struct run_ranks *g)
{
    return __atomic_load_n(&g->failed, __ATOMIC_ACQUIRE) != 0;
}

/* Execute all new posts. Returns 0 if there were none, else 1. */
static int
run_thread_poll(struct run_dev *dev)
{
    struct run_ranks *g = dev->run->ranks;
    struct run_rank *me = &g->at[run_rank(dev)];
    uint64_t tail = __atomic_load_n(&g->tail, __ATOMIC_ACQUIRE), at = me->done;

    if (at == tail)
        return 0;
    run_ring_at(g, 2 * run_rank(dev) + 1);
    run_ring_at(g, 2 * run_rank(dev) + 2);
    for (; at < tail; at++) {
        const struct run_post *p = &g->post[at & g->mask];
        int rc = 0;

        if (p->kind == RUN_POST_STEP)
            run_step_hook(g, run_rank(dev));
        if (!run_has_failed(g))
            rc = run_do(dev, p, at);
        if (rc != 0)
            run_rank_failed(dev->run, run_rank(dev), rc);
        __atomic_store_n(&me->done, at + 1, __ATOMIC_RELEASE);
    }
    return 1;
}

static void *
run_thread_main(void *arg)
{
    struct run_dev *dev = arg;
    struct run_ranks *g = dev->run->ranks;
    struct run_rank *me = &g->at[run_rank(dev)];
    uint64_t last = clk_now_ns();

    run_pin(dev);
    while (!__atomic_load_n(&g->stop, __ATOMIC_ACQUIRE)) {
        if (run_thread_poll(dev)) {
            last = clk_now_ns();
            continue;
        }
        if (clk_now_ns() - last < g->spin_ns) {
            clk_relax();
            sched_yield();
            continue;
        }
        que_park(&me->bell);
        if (__atomic_load_n(&g->tail, __ATOMIC_SEQ_CST) != me->done ||
            __atomic_load_n(&g->stop, __ATOMIC_SEQ_CST))
            que_unpark(&me->bell);
        else
            (void)que_sleep(&me->bell, RUN_PARK_NS);
    }
    return NULL;
}

int
run_ranks_start(struct runner *run, int32_t n_post)
{
    uint64_t size = 64;
    struct run_ranks *g;

    if (run->n_rank == 1)
        return 0;
    while (size < (uint64_t)n_post)
        size *= 2;
    g = run->ranks = mem_aligned(_Alignof(struct run_ranks), sizeof(*g));
    if (g == NULL)
        return -ENOMEM;
    g->n = run->n_rank;
    g->mask = size - 1;
    g->spin_ns = run->spin ? RUN_SPIN_NS : 0;
    g->post = mem_array((size_t)size, sizeof(*g->post));
    g->seq = mem_array((size_t)run->n_rec, sizeof(*g->seq));
    g->ended = mem_array((size_t)run->n_rec, sizeof(*g->ended));
    if (g->post == NULL || g->seq == NULL || g->ended == NULL)
        return -ENOMEM;
    for (; g->n_thread < g->n; g->n_thread++) {
        struct run_rank *r = &g->at[g->n_thread];
        int rc = pthread_create(&r->thread, NULL, run_thread_main, &run->dev[g->n_thread]);

        if (rc != 0)
            return -rc;
        (void)pthread_setname_np(r->thread, "fdd-launch");
    }
    return 0;
}

void
run_ranks_stop(struct runner *run)
{
    struct run_ranks *g = run->ranks;

    if (g == NULL)
        return;
    __atomic_store_n(&g->stop, 1, __ATOMIC_SEQ_CST);
    for (int32_t i = 0; i < g->n_thread; i++)
        run_ring_at(g, i);
    for (int32_t i = 0; i < g->n_thread; i++)
        (void)pthread_join(g->at[i].thread, NULL);
    free(g->post);
    free(g->seq);
    free(g->ended);
    free(g);
    run->ranks = NULL;
}

/* ---- posting ------------------------------------------------------------------------------ */

int
run_ranks_rc(const struct runner *run)
{
    return __atomic_load_n(&run->ranks->rc, __ATOMIC_ACQUIRE);
}

/* Number of posts that all threads have executed. */
static uint64_t
run_ranks_done(const struct run_ranks *g)
{
    uint64_t least = UINT64_MAX;

    for (int32_t i = 0; i < g->n; i++) {
        uint64_t done = __atomic_load_n(&g->at[i].done, __ATOMIC_ACQUIRE);

        least = done < least ? done : least;
    }
    return least;
}

/* Wait for room for n more posts. The ring holds the posts of all records, so this waits
 * only for posts that belong to no record: when many blocks are cleared. */
static int
run_post_room(struct runner *run, uint64_t n)
{
    struct run_ranks *g = run->ranks;
    int rc;

    ASSERT(n <= g->mask);
    while ((rc = run_ranks_rc(run)) == 0 && g->tail + n - run_ranks_done(g) > g->mask)
        clk_sleep_ns(RUN_POLL_NS);
    return rc;
}

static void
run_post_now(struct run_ranks *g, uint64_t n)
{
    __atomic_store_n(&g->tail, g->tail + n, __ATOMIC_SEQ_CST);
    run_ring_at(g, 0);
}

int
run_post(struct runner *run, const struct run_post *p)
{
    struct run_ranks *g = run->ranks;
    int rc = run_post_room(run, 1);

    if (rc != 0)
        return rc;
    g->post[g->tail & g->mask] = *p;
    if (p->kind == RUN_POST_STEP) {
        g->seq[p->rec - run->rec] = g->tail + 1;
        g->ended[p->rec - run->rec] = 0;
    }
    run_post_now(g, 1);
    return 0;
}

int
run_post_copies(struct runner *run, const struct kv_copy *copy, int32_t n)
{
    struct run_ranks *g = run->ranks;
    int rc = n > 0 ? run_post_room(run, (uint64_t)n + 1) : 0;

    if (rc != 0 || n == 0)
        return rc;
    g->post[g->tail & g->mask] = (struct run_post){ .kind = RUN_POST_COPIES, .n = n };
    for (int32_t i = 0; i < n; i++)
        g->post[(g->tail + 1 + (uint64_t)i) & g->mask] =
            (struct run_post){ .kind = RUN_POST_COPY, .copy = copy[i] };
    run_post_now(g, (uint64_t)n + 1);
    return 0;
}

int
run_on_all(struct runner *run, run_dev_fn *fn, int32_t arg)
{
    const struct run_post p = { .kind = RUN_POST_CALL, .n = arg, .call = { fn } };
    uint64_t until;
    int rc = 0;

    if (run->ranks == NULL) {
        for (int32_t i = 0; i < run->n_rank && rc == 0; i++)
            rc = fn(&run->dev[i], arg);
        return rc;
    }
    rc = run_post(run, &p);
    while (rc == 0 && run_ranks_done(run->ranks) != run->ranks->tail) {
        rc = run_ranks_rc(run);
        clk_sleep_ns(RUN_POLL_NS);
    }
    /* after a failure: let the other ranks leave their collectives before the caller
     * frees the memory that fn uses */
    until = clk_now_ns() + run->spin_limit_us * UINT64_C(1000) + CLK_S;
    while (rc != 0 && !run_ranks_idle(run) && clk_now_ns() < until)
        clk_sleep_ns(RUN_POLL_NS);
    return rc != 0 ? rc : run_ranks_rc(run);
}

void
run_stall(struct runner *run, int32_t rank)
{
    if (run->ranks != NULL)
        __atomic_store_n(&run->ranks->stalled, rank + 1, __ATOMIC_RELAXED);
}

int
run_ranks_idle(const struct runner *run)
{
    return run->ranks == NULL || run_ranks_done(run->ranks) == run->ranks->tail;
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* Has the rank launched the record's step? */
static int
run_is_launched(const struct run_ranks *g, int32_t rank, size_t rec)
{
    return __atomic_load_n(&g->at[rank].done, __ATOMIC_ACQUIRE) >= g->seq[rec];
}

/* Has the step ended on the rank's device? Returns 1, 0, or the device's error. */
static int
run_rank_query(struct runner *run, int32_t rank, size_t rec)
{
    int done = run_is_launched(run->ranks, rank, rec)
        ? run->k->event_query(run->dev[rank].ev_end[rec])
        : 0;

    if (done < 0)
        run_rank_failed(run, rank, done);
    return done;
}

/* Ranks on which the step has ended are not queried again. While one rank is awaited,
 * each call also queries one of the ranks after it: its device may have failed, which no
 * other call would show. */
int
run_ranks_query(struct runner *run, size_t rec)
{
    struct run_ranks *g = run->ranks;
    int32_t *i = &g->ended[rec];
    int rc = run_ranks_rc(run), done = 1;

    while (rc == 0 && *i < g->n && (done = run_rank_query(run, *i, rec)) == 1)
        ++*i;
    if (rc != 0 || done != 0)
        return rc != 0 ? rc : done;
    g->look = (g->look + 1) % g->n;
    done = g->look > *i ? run_rank_query(run, g->look, rec) : 0;
    return done < 0 ? done : 0;
}

int
run_ranks_wait(struct runner *run, size_t rec, uint64_t expect_ns, uint64_t until_ns)
{
    const struct run_ranks *g = run->ranks;
    int rc = run_ranks_query(run, rec);

    while (rc == 0) {
        uint64_t now = clk_now_ns(), look = now + CLK_MS;
        int32_t i = g->ended[rec];

        if (now >= until_ns)
            return 0;
        if (!run_is_launched(g, i, rec))
            clk_sleep_ns(RUN_POLL_NS);
        else
            (void)run->k->event_wait(run->dev[i].ev_end[rec], expect_ns,
                look < until_ns ? look : until_ns);
        rc = run_ranks_query(run, rec);
    }
    return rc;
}

/* ---- errors --------------------------------------------------------------------------------- */

/* The error text of rank i's device, or "". */
static const char *
run_rank_error(const struct runner *run, int32_t i)
{
    const char *t = run->k->error_text(run->ctx, run->dev[i].idx);

    return t != NULL ? t : "";
}

/* The rank that a collective's error text names as at fault, or -1. */
static int32_t
run_rank_late(const struct runner *run, const char *text)
{
    const char *at = strstr(text, "collective: rank ");
    long q = at != NULL ? strtol(at + strlen("collective: rank "), NULL, 10) : -1;

    return q >= 0 && q < run->n_rank ? (int32_t)q : -1;
}

/* The error text for a launch that failed on a device without a fault. */
static void
run_launch_error(const struct runner *run, char *ret, size_t ret_bytes)
{
    const struct run_ranks *g = run->ranks;
    int32_t rank = g == NULL ? 0 : __atomic_load_n(&g->failed, __ATOMIC_ACQUIRE);

    ret[0] = '\0';
    if (rank > 0) {
        const struct run_dev *dev = &run->dev[rank - 1];

        (void)snprintf(ret, ret_bytes, "rank %d (%s): %s", rank - 1, dev->name,
            dev->refused[0] != '\0' ? dev->refused : "a launch was refused");
    }
}

/* A rank of several groups may be late in one because it waited in another; then it
 * reports a late rank itself, now or soon. Follows these reports to the rank that
 * waited for none and returns it. *who: the rank that reported the late rank; updated
 * at each step. */
static int32_t
run_rank_first_late(const struct runner *run, int32_t late, int32_t *who)
{
    int groups = (run->n_copy > 1 && run_copy_ranks(run) > 1) ||
        (run->kv_split > 1 && run->kv_split < run->n_rank);
    uint64_t until = clk_now_ns() + RUN_BLAME_NS;

    for (int32_t i = 0; groups && late >= 0 && i < run->n_rank; i++) {
        int32_t next;

        /* a GPU's error is set only by a call on that GPU */
        while (run_rank_error(run, late)[0] == '\0' && clk_now_ns() < until) {
            if (run->dev[late].ev_copy[0] != NULL)
                (void)run->k->event_query(run->dev[late].ev_copy[0]);
            clk_sleep_ns(CLK_MS);
        }
        next = run_rank_late(run, run_rank_error(run, late));
        if (next < 0 || next == late)
            break;
        *who = late;
        late = next;
    }
    return late;
}

/* Prefers a device's own fault to the errors of collectives, which follow from it. */
void
run_ranks_error(const struct runner *run, char *ret, size_t ret_bytes)
{
    int32_t who = -1, late;

    for (int32_t i = run->n_rank - 1; i >= 0; i--)
        if (run_rank_error(run, i)[0] != '\0' &&
            (who < 0 || strncmp(run_rank_error(run, i), "collective: ", 12) != 0 ||
                strncmp(run_rank_error(run, who), "collective: ", 12) == 0))
            who = i;
    if (who < 0) {
        run_launch_error(run, ret, ret_bytes);
        return;
    }
    late = run_rank_first_late(run, run_rank_late(run, run_rank_error(run, who)), &who);
    if (late >= 0)
        (void)snprintf(ret, ret_bytes, "rank %d (%s): %s, says rank %d (%s)", late,
            run->dev[late].name, run_rank_error(run, who), who, run->dev[who].name);
    else
        (void)snprintf(ret, ret_bytes, "rank %d (%s): %s", who, run->dev[who].name,
            run_rank_error(run, who));
}
