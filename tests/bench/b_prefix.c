/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The prefix cache with a prompt of 100,000 tokens: the cost of hashing its blocks in
 * ingress, and of finding and attaching them in the engine thread, whose limit is 1 ms.
 *
 * The pool is full of other prompts' blocks, as many as the index has buckets, and the
 * prompt's own blocks are scattered in it. Cold: the processor's caches are flushed
 * before each run, as by steps of a real model. Medians and the slowest of REPEAT runs.
 *
 * Then the cost of ending long sequences whose blocks are as scattered.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/worker/kvcache.h"

#define N_TOK    100000
#define BLOCK    64
#define N_FULL   (N_TOK / BLOCK)
#define N_POOL   131071 /* with the dummy block as many as buckets */
#define APART    (N_POOL / N_FULL)
#define REPEAT   101
#define SWEEP    (64u << 20)
#define LIMIT_NS 1e6

#define N_ROW    64   /* rows that end in one step */
#define N_LONG   2000 /* blocks of each */

enum what { FIND, ATTACH, DROP, MISS, EVICT, N_WHAT };

struct bench {
    struct kv *kv;
    struct pfx_key key;
    uint32_t *ids;
    unsigned char *sweep;
    unsigned seed;
    uint64_t sum;
    struct kv_hash h[N_FULL], other[N_FULL];
    double ns[N_WHAT][REPEAT];
};

static uint64_t
any(struct bench *b)
{
    uint64_t v = (uint64_t)rand_r(&b->seed) << 32;

    return v ^ (uint64_t)rand_r(&b->seed) << 11 ^ (uint64_t)rand_r(&b->seed);
}

static int
by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void
line(const char *name, double *ns, const char *note)
{
    qsort(ns, REPEAT, sizeof(*ns), by_value);
    printf("%-22s %8.1f us median, %8.1f us slowest  (%s)\n", name, ns[REPEAT / 2] / 1e3,
        ns[REPEAT - 1] / 1e3, note);
}

static void
swept(struct bench *b)
{
    for (size_t i = 0; i < SWEEP; i += 64)
        b->sum += ++b->sweep[i];
}

/* ---- ingress ------------------------------------------------------------------------ */

static void
hash_prompt(struct bench *b, struct kv_hash *ret)
{
    static const uint8_t salt[16];
    struct kv_hash h;

    pfx_root(&b->key, 1000, salt, 0, &h);
    for (int32_t i = 0; i < N_FULL; i++) {
        pfx_next(&b->key, &h, b->ids + (size_t)i * BLOCK, BLOCK, &h);
        ret[i] = h;
    }
}

static void
hashing(struct bench *b)
{
    double ns[REPEAT];

    for (int i = 0; i < REPEAT; i++) {
        uint64_t t0 = clk_now_ns();

        hash_prompt(b, b->h);
        ns[i] = (double)(clk_now_ns() - t0);
    }
    line("hash the prompt", ns, "in ingress, off the engine thread");
    printf("  %.2f ns a token, %.2f GB/s of ids\n", ns[REPEAT / 2] / N_TOK,
        4.0 * N_TOK / ns[REPEAT / 2]);
}

/* ---- engine thread -------------------------------------------------------------------- */

/* Slot 0 gets the prompt, slot 1 the blocks between those of the prompt. */
static void
fill(struct bench *b)
{
    struct kv *kv = b->kv;

    for (int32_t i = 0; i < N_FULL; i++) {
        ASSERT_Z(kv_grow(kv, 0, (i + 1) * BLOCK));
        kv_register(kv, 0, i, &b->h[i]);
        ASSERT_Z(kv_grow(kv, 1, (i + 1) * (APART - 1) * BLOCK));
        for (int32_t k = i * (APART - 1); k < (i + 1) * (APART - 1); k++)
            kv_register(kv, 1, k, &(struct kv_hash){ any(b), any(b) | 1 });
    }
    while (kv->n_free > 0) {
        int32_t n = kv->n_held[1];

        ASSERT_Z(kv_grow(kv, 1, (n + 1) * BLOCK));
        kv_register(kv, 1, n, &(struct kv_hash){ any(b), any(b) | 1 });
    }
    kv_drop(kv, 1, 0);
    kv_drop(kv, 0, 0);
    ASSERT(kv_reclaim(kv, N_POOL) == N_POOL && kv->n_free == 0);
}

static void
engine(struct bench *b, int cold)
{
    struct kv *kv = b->kv;

    for (int i = 0; i < REPEAT; i++) {
        struct kv_match m;
        uint64_t t[N_WHAT + 1];

        if (cold)
            swept(b);
        t[FIND] = clk_now_ns();
        kv_find(kv, b->h, N_FULL, &m);
        t[ATTACH] = clk_now_ns();
        ASSERT(m.n == N_FULL && m.n_idle == N_FULL);
        ASSERT(kv_attach(kv, 2, b->h, m.n) == N_FULL);
        t[DROP] = clk_now_ns();
        kv_drop(kv, 2, 0);
        ASSERT(kv->n_pending == 0);
        t[MISS] = clk_now_ns();
        kv_find(kv, b->other, N_FULL, &m);
        ASSERT(m.n == 0 && kv_attach(kv, 2, b->other, N_FULL) == 0);
        t[EVICT] = clk_now_ns();
        ASSERT_Z(kv_grow(kv, 2, N_TOK));
        t[N_WHAT] = clk_now_ns();
        for (int w = 0; w < N_WHAT; w++)
            b->ns[w][i] = (double)(t[w + 1] - t[w]);
        /* the pool is full again for the next run */
        for (int32_t k = 0; k < kv->n_held[2]; k++)
            kv_register(kv, 2, k, &(struct kv_hash){ any(b), any(b) | 1 });
        kv_drop(kv, 2, 0);
        (void)kv_reclaim(kv, N_POOL);
        kv_collect(kv, kv->collected + 1);
        ASSERT(kv->n_free == 0 && kv->n_pending == 0);
    }
    printf("%s:\n", cold ? "processor's caches swept" : "one after the other");
    for (int i = 0; i < REPEAT; i++)
        b->ns[FIND][i] += b->ns[ATTACH][i];
    line("  hit: find, attach", b->ns[FIND], "on the engine thread");
    printf("  limit               %8.1f us: %.3f of it, %.0f ns a block\n", LIMIT_NS / 1e3,
        b->ns[FIND][REPEAT / 2] / LIMIT_NS, b->ns[FIND][REPEAT / 2] / N_FULL);
    line("  miss: find, attach", b->ns[MISS], "ends at the first block");
    line("  let go", b->ns[DROP], "of all its blocks");
    line("  blocks for a miss", b->ns[EVICT], "each evicts another's");
}

/* Blocks of N_ROW rows, allocated in turn as by decoding rows. */
static void
ends(struct bench *b, int32_t n_row, const char *name)
{
    struct kv_cfg cfg = { .n_block = N_ROW * N_LONG,
        .block_size = BLOCK,
        .n_slot = N_ROW,
        .max_len = N_LONG * BLOCK };
    struct kv *kv = kv_new(&cfg);
    double ns[REPEAT], most = 0;
    uint64_t epoch = 1;

    ASSERT(kv != NULL);
    for (int k = 0; k < REPEAT; k++, epoch++) {
        uint64_t t0;

        for (int32_t i = 0; i < N_LONG; i++)
            for (int32_t r = 0; r < N_ROW; r++) {
                ASSERT_Z(kv_grow(kv, r, (i + 1) * BLOCK));
                kv_register(kv, r, i, &(struct kv_hash){ any(b), any(b) | 1 });
            }
        swept(b);
        t0 = clk_now_ns();
        for (int32_t r = 0; r < n_row; r++)
            kv_drop(kv, r, epoch);
        kv_collect(kv, epoch);
        ns[k] = (double)(clk_now_ns() - t0);
        /* later steps free the rest */
        while (kv->n_pending > 0) {
            t0 = clk_now_ns();
            kv_collect(kv, ++epoch);
            most = most < (double)(clk_now_ns() - t0) ? (double)(clk_now_ns() - t0) : most;
        }
        for (int32_t r = n_row; r < N_ROW; r++)
            kv_drop(kv, r, 0);
        (void)kv_reclaim(kv, cfg.n_block);
    }
    line(name, ns, "drop and collect, caches swept");
    if (most > 0)
        printf("  each step after it  %8.1f us at most\n", most / 1e3);
    kv_check(kv);
    kv_free(kv);
}

int
main(void)
{
    struct bench *b = mem_zalloc(sizeof(*b));
    struct kv_cfg cfg = { .n_block = N_POOL,
        .block_size = BLOCK,
        .n_slot = 3,
        .max_len = N_POOL * BLOCK };

    if (b == NULL || (b->kv = kv_new(&cfg)) == NULL ||
        (b->sweep = mem_zalloc(SWEEP)) == NULL ||
        (b->ids = mem_array(N_TOK, sizeof(*b->ids))) == NULL || pfx_key_new(&b->key) != 0) {
        fprintf(stderr, "b_prefix: no memory\n");
        return 1;
    }
    for (int i = 0; i < N_TOK; i++)
        b->ids[i] = (uint32_t)rand_r(&b->seed) % 128000;
    for (int i = 0; i < N_FULL; i++)
        b->other[i] = (struct kv_hash){ any(b), any(b) | 1 };
    printf("prompt of %d tokens, %d full blocks of %d; pool of %d cached blocks\n", N_TOK,
        N_FULL, BLOCK, N_POOL);
    hashing(b);
    fill(b);
    engine(b, 0);
    engine(b, 1);
    kv_check(b->kv);
    kv_free(b->kv);
    printf("sequences of %d blocks end:\n", N_LONG);
    ends(b, 1, "  give back 2,000");
    ends(b, N_ROW, "  64 rows in one step");
    free(b->sweep);
    free(b->ids);
    free(b);
    return 0;
}
