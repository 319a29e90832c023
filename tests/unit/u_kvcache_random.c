/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The block pool at random compared with a naive model, with contents: the bytes moved by
 * copy commands and written by steps must be those that a sequence expects when it
 * attaches a block. FDD_SIM_STEPS: number of steps of all pools together.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/kv_fixture.h"

#define M_BLOCK 64
#define M_HOST  32
#define M_SLOT  6
#define M_LEN   40 /* ten blocks of four */
#define M_ROWS  10
#define M_STEPS 8 /* more than the steps that can be in flight */

struct mseq {
    int on, in_step;
    int32_t len, want; /* tokens chosen so far, and in total */
    int32_t first;     /* block in which its step begins */
    int32_t n_named;
    uint64_t last;
    struct kv_hash h[M_ROWS];
};

/* The expected state of the pool, found by a search of all of it each time. */
struct model {
    struct kv *kv;
    unsigned seed;
    int32_t n_block, n_host, max_copy, n_copy;
    struct kv_copy copy[256];
    struct kv_hash moves[256];
    int32_t save[256], n_save, save_at;      /* copies to the host that were ordered */
    uint8_t handed[M_BLOCK], source[M_HOST]; /* since the last launch */
    struct kv_hash name[M_BLOCK], host_name[M_HOST];
    int32_t ref[M_BLOCK];
    uint64_t epoch[M_BLOCK], idle_at[M_BLOCK], host_at[M_HOST];
    int wanted[M_HOST];
    uint64_t clock, epoch_now, collected;
    /* contents of blocks */
    uint64_t dev[M_BLOCK], host[M_HOST];
    /* blocks that a step reads or writes, [epoch % M_STEPS] */
    uint8_t touched[M_STEPS][M_BLOCK];
    struct mseq seq[M_SLOT];
    uint64_t n_attached, n_preempted, n_in, n_instead;
};

static int
same(const struct kv_hash *x, const struct kv_hash *y)
{
    return x->a == y->a && x->b == y->b;
}

static int
named(const struct kv_hash *x)
{
    return (x->a | x->b) != 0;
}

static int32_t
pick(struct model *m, int32_t n)
{
    return rand_r(&m->seed) % n;
}

static int32_t
m_dev(const struct model *m, const struct kv_hash *h)
{
    for (int32_t b = 1; b <= m->n_block; b++)
        if (same(&m->name[b], h))
            return b;
    return -1;
}

static int32_t
m_host(const struct model *m, const struct kv_hash *h)
{
    for (int32_t x = 0; x < m->n_host; x++)
        if (same(&m->host_name[x], h))
            return x;
    return -1;
}

static int
m_waits(const struct model *m, int32_t b)
{
    return m->ref[b] == 0 && m->epoch[b] > m->collected;
}

static int
m_idle(const struct model *m, int32_t b)
{
    return m->ref[b] == 0 && !m_waits(m, b) && named(&m->name[b]);
}

static int32_t
m_count(const struct model *m, int (*is)(const struct model *, int32_t))
{
    int32_t n = 0;

    for (int32_t b = 1; b <= m->n_block; b++)
        n += is(m, b) != 0;
    return n;
}

static int
m_unused(const struct model *m, int32_t b)
{
    return m->ref[b] == 0 && !m_waits(m, b) && !named(&m->name[b]);
}

/* The pool's next copy command must be this one. Returns its host block;
 * m_agree() checks the device block. */
static int32_t
m_order(struct model *m, int32_t dev, int32_t host, int to_host, const struct kv_hash *h)
{
    const struct kv_copy *c = &m->kv->copy[m->n_copy];

    assert_true(m->n_copy < m->kv->n_copy && m->n_copy < 256);
    assert_int_equal(c->to_host != 0, to_host);
    if (host >= 0)
        assert_int_equal(c->host, host);
    m->moves[m->n_copy] = *h;
    m->copy[m->n_copy++] = (struct kv_copy){ dev, c->host, to_host };
    return c->host;
}

/* No command is left: takes that of a block evicted earlier whose copy
 * is not needed, out of four. */
static void
m_instead(struct model *m, int32_t b)
{
    for (int i = 0; i < 4 && i < m->n_save && !m->handed[b]; i++) {
        int32_t o = m->save[m->save_at], x = m->copy[o].host;

        m->save_at = (m->save_at + 1) % m->n_save;
        if (m->wanted[x] || m->source[x] || !same(&m->host_name[x], &m->moves[o]))
            continue;
        m->moves[o] = m->host_name[x] = m->name[b];
        m->copy[o].dev = b;
        m->host_at[x] = ++m->clock;
        m->n_instead++;
        return;
    }
}

/* b loses its contents: they go to the host if it has room; the
 * oldest host block is evicted. */
static void
m_evict(struct model *m, int32_t b, int32_t keep)
{
    int32_t x = m_host(m, &m->name[b]), oldest = -1, n_empty = 0;

    if (x >= 0) {
        if (!m->wanted[x])
            m->host_at[x] = ++m->clock;
        return;
    }
    if (m->n_host > 0 &&
        (m->n_save >= m->max_copy - m->max_copy / 4 || m->n_copy + keep >= m->max_copy)) {
        m_instead(m, b);
        return;
    }
    for (int32_t i = 0; i < m->n_host; i++) {
        n_empty += !named(&m->host_name[i]);
        if (named(&m->host_name[i]) && !m->wanted[i] &&
            (oldest < 0 || m->host_at[i] < m->host_at[oldest]))
            oldest = i;
    }
    if (n_empty == 0 && oldest < 0)
        return;
    m->save[m->n_save++] = m->n_copy;
    x = m_order(m, b, n_empty > 0 ? -1 : oldest, 1, &m->name[b]);
    assert_true(n_empty == 0 || !named(&m->host_name[x]));
    m->host_name[x] = m->name[b];
    m->host_at[x] = ++m->clock;
}

/* The pool allocated b. */
static void
m_take(struct model *m, int32_t b, int32_t keep)
{
    assert_true(b > 0 && b <= m->n_block && m->ref[b] == 0 && !m_waits(m, b));
    /* no step in flight reads or writes it */
    for (uint64_t e = m->collected + 1; e <= m->epoch_now; e++)
        assert_false(m->touched[e % M_STEPS][b]);
    if (m_count(m, m_unused) > 0) {
        assert_false(named(&m->name[b]));
    } else {
        for (int32_t i = 1; i <= m->n_block; i++)
            assert_true(!m_idle(m, i) || m->idle_at[i] >= m->idle_at[b]);
        m_evict(m, b, keep);
    }
    m->name[b] = (struct kv_hash){ 0 };
    m->ref[b] = 1;
    m->handed[b] = 1;
}

static void
m_unref(struct model *m, int32_t b, uint64_t last)
{
    if (last > m->epoch[b])
        m->epoch[b] = last;
    assert_true(m->ref[b] > 0);
    if (--m->ref[b] == 0)
        m->idle_at[b] = ++m->clock;
}

static void
m_drop(struct model *m, int32_t slot, uint64_t last)
{
    const int32_t *t = m->kv->table + (ptrdiff_t)slot * m->kv->stride;

    for (int32_t i = m->kv->n_held[slot] - 1; i >= 0; i--)
        m_unref(m, t[i], last);
    kv_drop(m->kv, slot, last);
    m->seq[slot].on = 0;
}

static void
m_find(const struct model *m, const struct kv_hash *h, int32_t n, struct kv_match *ret)
{
    *ret = (struct kv_match){ 0 };
    for (; ret->n < n; ret->n++) {
        int32_t b = m_dev(m, &h[ret->n]);

        if (b < 0 && (m_host(m, &h[ret->n]) < 0 || ret->n_host >= m->max_copy - m->n_copy))
            return;
        ret->n_host += b < 0;
        ret->n_idle += b >= 0 && m_idle(m, b);
        if (ret->n_host == 0) {
            ret->n_dev++;
            ret->n_dev_idle = ret->n_idle;
        }
    }
}

/* Follows the pool's attach: blocks that it must keep are held first. */
static void
m_attach(struct model *m, int32_t slot, const struct kv_hash *h, int32_t n)
{
    const int32_t *t = m->kv->table + (ptrdiff_t)slot * m->kv->stride;
    int32_t from[M_ROWS], got, i, keep;
    struct kv_match want;
    struct kv_match have;

    kv_find(m->kv, h, n, &have);
    m_find(m, h, n, &want);
    want.n_seen = want.n;
    assert_memory_equal(&want, &have, sizeof(want));
    got = kv_attach(m->kv, slot, h, n);
    for (i = 0; i < want.n; i++) {
        from[i] = m_dev(m, &h[i]);
        if (from[i] >= 0)
            m->ref[from[i]]++;
        else
            m->wanted[m_host(m, &h[i])] = 1;
    }
    keep = want.n_host;
    for (i = 0; i < want.n; i++) {
        if (from[i] < 0) {
            if (m_count(m, m_unused) + m_count(m, m_idle) == 0)
                break;
            assert_true(i < got);
            m_take(m, t[i], keep--);
            m->name[t[i]] = h[i];
            m->source[m_order(m, t[i], m_host(m, &h[i]), 0, &h[i])] = 1;
            m->n_in++;
            continue;
        }
        assert_true(i < got);
        assert_int_equal(t[i], from[i]);
    }
    assert_int_equal(got, i);
    for (i = want.n - 1; i >= got; i--)
        if (from[i] >= 0)
            m_unref(m, from[i], 0);
    for (i = want.n - 1; i >= 0; i--) {
        int32_t x = m_host(m, &h[i]);

        if (x >= 0 && m->wanted[x]) {
            m->wanted[x] = 0;
            m->host_at[x] = ++m->clock;
        }
    }
    m->seq[slot].len = got * 4;
    m->seq[slot].n_named = got;
    m->n_attached += (uint64_t)got;
}

static int
m_grow(struct model *m, int32_t slot, int32_t n_tok)
{
    const int32_t *t = m->kv->table + (ptrdiff_t)slot * m->kv->stride;
    int32_t had = m->kv->n_held[slot], need = (n_tok + 3) / 4 - had;
    int rc = kv_grow(m->kv, slot, n_tok);

    assert_int_equal(rc == 0, need <= m_count(m, m_unused) + m_count(m, m_idle));
    for (int32_t i = had; i < m->kv->n_held[slot]; i++)
        m_take(m, t[i], 0);
    return rc;
}

static void
m_agree(const struct model *m)
{
    const struct kv *kv = m->kv;
    int32_t n_used = 0;

    kv_check(kv);
    assert_int_equal(kv->n_free, m_count(m, m_unused));
    assert_int_equal(kv->n_cached, m_count(m, m_idle));
    assert_int_equal(kv->n_deferred, m_count(m, m_waits));
    assert_int_equal(kv->n_copy, m->n_copy);
    if (m->n_copy > 0)
        assert_memory_equal(kv->copy, m->copy, (size_t)m->n_copy * sizeof(*kv->copy));
    for (int32_t x = 0; x < m->n_host; x++)
        n_used += named(&m->host_name[x]);
    assert_int_equal(kv->n_host_used, n_used);
}

/* Makes a sequence of one of a few texts with common beginnings. */
static void
m_start(struct model *m, int32_t slot)
{
    struct mseq *s = &m->seq[slot];

    memset(s, 0, sizeof(*s));
    s->on = 1;
    s->want = 1 + pick(m, M_LEN);
    hashes((uint64_t)pick(m, 2), (uint32_t)pick(m, 9), M_ROWS, s->h);
    /* at least one token is left to compute */
    m_attach(m, slot, s->h, (s->want - 1) / 4);
}

/* Chooses tokens for slot; sequences that hold the needed blocks are dropped. */
static void
m_choose(struct model *m, int32_t slot)
{
    struct mseq *s = &m->seq[slot];
    int32_t len = s->len + 1 + pick(m, 12);

    if (len > s->want)
        len = s->want;
    while (m_grow(m, slot, len) != 0) {
        int32_t victim = pick(m, M_SLOT);

        if (!m->seq[victim].on || m->seq[victim].in_step) {
            if (pick(m, 4) == 0)
                return;
            continue;
        }
        m_drop(m, victim, m->seq[victim].last);
        m->n_preempted++;
        if (victim == slot)
            return;
    }
    s->in_step = 1;
    s->first = s->len / 4;
    s->len = len;
    for (; s->n_named < len / 4; s->n_named++) {
        const struct kv_hash *h = &s->h[s->n_named];

        kv_register(m->kv, slot, s->n_named, h);
        if (m_dev(m, h) < 0)
            m->name[m->kv->table[slot * m->kv->stride + s->n_named]] = *h;
    }
}

/* Runs the copy commands, then the step: all writes before any read. */
static void
m_launch(struct model *m)
{
    uint64_t e = ++m->epoch_now;
    uint8_t *touched = m->touched[e % M_STEPS];

    for (int32_t i = 0; i < m->kv->n_copy; i++) {
        const struct kv_copy *c = &m->kv->copy[i];

        if (c->to_host)
            m->host[c->host] = m->dev[c->dev];
        else
            m->dev[c->dev] = m->host[c->host];
    }
    kv_copied(m->kv);
    m->n_copy = m->n_save = m->save_at = 0;
    memset(m->handed, 0, sizeof(m->handed));
    memset(m->source, 0, sizeof(m->source));
    memset(touched, 0, M_BLOCK);
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t s = 0; s < M_SLOT; s++) {
            struct mseq *q = &m->seq[s];
            const int32_t *t = m->kv->table + (ptrdiff_t)s * m->kv->stride;

            if (!q->on || !q->in_step)
                continue;
            for (int32_t i = 0; i < m->kv->n_held[s]; i++) {
                touched[t[i]] = 1;
                if (pass == 0 && i >= q->first)
                    m->dev[t[i]] = i < q->len / 4 ? q->h[i].a : ~e;
                else if (pass == 1 && i < q->len / 4)
                    assert_int_equal(m->dev[t[i]], q->h[i].a);
            }
        }
    }
}

static void
m_collect(struct model *m, uint64_t epoch)
{
    for (uint64_t e = m->collected + 1; e <= epoch; e++) {
        uint64_t done = m->clock;

        /* blocks of a step become idle in the order in which they were dropped */
        for (;;) {
            int32_t first = -1;

            for (int32_t b = 1; b <= m->n_block; b++)
                if (m->ref[b] == 0 && m->epoch[b] == e && m->idle_at[b] <= done &&
                    (first < 0 || m->idle_at[b] < m->idle_at[first]))
                    first = b;
            if (first < 0)
                break;
            m->idle_at[first] = ++m->clock;
        }
    }
    m->collected = epoch;
    kv_collect(m->kv, epoch);
}

static void
m_step(struct model *m)
{
    int n = 0;

    for (int32_t i = 0; i < M_SLOT; i++) {
        int32_t s = (i + (int32_t)m->epoch_now) % M_SLOT;

        if (!m->seq[s].on && pick(m, 2) == 0)
            m_start(m, s);
        if (m->seq[s].on && pick(m, 12) == 0)
            m_drop(m, s, m->seq[s].last);
        if (m->seq[s].on && m->seq[s].len < m->seq[s].want && pick(m, 4) > 0)
            m_choose(m, s);
        n += m->seq[s].in_step;
        m_agree(m);
    }
    if (n > 0)
        m_launch(m);
    for (int32_t s = 0; s < M_SLOT; s++) {
        struct mseq *q = &m->seq[s];

        if (!q->on)
            continue;
        if (q->in_step)
            q->last = m->epoch_now;
        q->in_step = 0;
        if (q->len == q->want && pick(m, 2) == 0)
            m_drop(m, s, q->last);
        m_agree(m);
    }
    if (m->epoch_now > m->collected + 4 || pick(m, 2) == 0)
        m_collect(m,
            m->collected + (uint64_t)pick(m, (int32_t)(m->epoch_now - m->collected) + 1));
    m_agree(m);
}

#ifdef FDD_SANITIZED
#define N_STEP 1500
#else
#define N_STEP 6000
#endif
#define N_RUN 9

static void
run(int32_t n_block, int32_t n_host, int32_t max_copy)
{
    const char *seed = getenv("SEED"), *all = getenv("FDD_SIM_STEPS");
    int n_step = all != NULL ? atoi(all) / N_RUN + 1 : N_STEP;
    struct model *m = calloc(1, sizeof(*m));

    assert_non_null(m);
    assert_true(n_block < M_BLOCK && n_host <= M_HOST);
    m->kv = pool(n_block, 4, M_SLOT, M_LEN, n_host, max_copy);
    m->n_block = n_block;
    m->n_host = n_host;
    m->max_copy = max_copy;
    m->seed = seed != NULL ? (unsigned)strtoul(seed, NULL, 10) : 7;
    (void)printf("seed %u: ", m->seed);
    for (int i = 0; i < n_step; i++)
        m_step(m);
    (void)printf("%d blocks, %d on the host, %d orders: %llu attached, %llu brought back, "
                 "%llu evicted, %llu saved, %llu gave way\n",
        n_block, n_host, max_copy, (unsigned long long)m->n_attached,
        (unsigned long long)m->n_in, (unsigned long long)m->kv->n_evicted,
        (unsigned long long)m->kv->n_out, (unsigned long long)m->n_preempted);
    assert_true(m->n_attached > 0 && m->kv->n_evicted > 0);
    assert_int_equal(m->kv->n_hit, m->n_attached);
    assert_int_equal(m->kv->n_in, m->n_in);
    assert_true(m->n_instead > 0 || max_copy < 3 || max_copy > 16);
    assert_true((m->kv->n_out > 0) == (n_host > 0 && max_copy > 0));
    for (int32_t s = 0; s < M_SLOT; s++)
        m_drop(m, s, m->seq[s].last);
    m_collect(m, m->epoch_now);
    m_agree(m);
    assert_int_equal(m->kv->n_free + m->kv->n_cached, n_block);
    kv_free(m->kv);
    free(m);
}

static void
e9_blocks_are_free_held_deferred_or_cached(void **state)
{
    (void)state;
    run(11, 0, 0);
    run(24, 0, 0);
    run(63, 0, 0);
}

static void
e9_with_a_second_level_on_the_host(void **state)
{
    (void)state;
    run(11, 6, 64);
    run(14, 1, 64);
    run(18, 32, 64);
    run(18, 32, 3);
    run(12, 8, 1);
    run(12, 8, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e9_blocks_are_free_held_deferred_or_cached),
        cmocka_unit_test(e9_with_a_second_level_on_the_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
