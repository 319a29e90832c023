/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Both sides of the ring and of its doorbell as coroutines. At every shared access a
 * seeded scheduler decides which side goes on, and when a store leaves a side's store
 * buffer (total store order, as on x86: weaker than what a real machine may do with one
 * access in flight, stronger than what plain interleaving shows). Checks: every record
 * arrives once, in order and complete; no side sleeps with work in the ring. The same run
 * without the barrier or the second look must fail, or the test would prove nothing.
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
#include <ucontext.h>

static uint32_t il_load(const uint32_t *p);
static void il_store(uint32_t *p, uint32_t v);
static uint32_t il_exchange(uint32_t *p, uint32_t v);

/* Replaces fdring.h's accesses to cursors and flags. Its copies of data are 64 bits
 * wide and are not replaced. */
#define __atomic_load_n(p, order) \
    _Generic(*(p), uint32_t \
             : il_load((const uint32_t *)(p)), default \
             : __atomic_load_n(p, order))
#define __atomic_store_n(p, v, order)    il_store(p, v)
#define __atomic_exchange_n(p, v, order) il_exchange(p, v)
#include "libclient/fdproto.h"
#include "libclient/fdring.h"
#undef __atomic_load_n
#undef __atomic_store_n
#undef __atomic_exchange_n

#define N_SLOT   8u
#define BUFFER   4 /* stores in flight of one side */
#define STACK    (64 * 1024)
#define MESSAGES 40u

enum { PROD, CONS, N_SIDE };
enum mutant { SOUND, NO_FENCE, NO_RECHECK, EARLY_PUBLISH };

struct pending {
    uint32_t *p, v;
};
struct side {
    ucontext_t ctx;
    char *stack;
    struct pending buf[BUFFER];
    int n_buf, done, asleep;
};

static struct side side[N_SIDE];
static ucontext_t sched_ctx;
static int running = -1; /* -1: set-up, accesses take effect at once */
static uint64_t rng;
static uint32_t w_tail, w_head, w_flag;
static unsigned char slots[N_SLOT * FDP_SLOT] __attribute__((aligned(64)));
static int bell;
static enum mutant mutant;
static const char *wrong; /* the error that the run found */

static uint32_t
draw(uint32_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng >> 33) % n;
}

static void
step(void)
{
    swapcontext(&side[running].ctx, &sched_ctx);
}

static void
flush_one(struct side *s)
{
    *s->buf[0].p = s->buf[0].v;
    s->n_buf--;
    memmove(s->buf, s->buf + 1, sizeof(s->buf[0]) * (size_t)s->n_buf);
}

static uint32_t
il_load(const uint32_t *p)
{
    if (running < 0)
        return *p;
    step();
    for (int i = side[running].n_buf - 1; i >= 0; i--)
        if (side[running].buf[i].p == p)
            return side[running].buf[i].v;
    return *p;
}

static void
il_store(uint32_t *p, uint32_t v)
{
    struct side *s = &side[running];

    if (running < 0) {
        *p = v;
        return;
    }
    step();
    if (s->n_buf == BUFFER)
        flush_one(s);
    s->buf[s->n_buf++] = (struct pending){ p, v };
}

/* A barrier: all earlier stores of this side become visible, then this one. */
static uint32_t
il_exchange(uint32_t *p, uint32_t v)
{
    struct side *s = &side[running];
    uint32_t old;

    if (mutant == NO_FENCE) {
        il_store(p, v);
        return 0;
    }
    step();
    while (s->n_buf)
        flush_one(s);
    old = *p;
    *p = v;
    return old;
}

/* ---- the two programs ------------------------------------------------------ */

/* Message i: 1 to 3 slots, each filled with a pattern of its number. */
static uint32_t
size_of(uint32_t i)
{
    return 1 + i * 7 % 3;
}

static void
producer(void)
{
    struct fdr_prod p;
    uint32_t i, k;

    fdr_prod_init(&p, slots, &w_tail, &w_head, N_SLOT, FDP_SLOT);
    for (i = 0; i < MESSAGES; i++) {
        struct fdp_rec h = { .tag = i, .type = FDP_T_IDS, .n_slot = (uint8_t)size_of(i) };
        uint32_t cost = fdr_prod_cost(&p, h.n_slot), first = p.tail;
        int64_t room;
        while ((room = fdr_prod_room(&p, cost)) < (int64_t)cost)
            if (room < 0)
                wrong = "producer sees an impossible head";
        p.tail += cost;
        if (mutant == EARLY_PUBLISH)
            fdr_publish(&w_tail, p.tail);
        if (cost != h.n_slot) {
            struct fdp_rec pad = { .type = FDP_T_PAD, .n_slot = (uint8_t)(cost - h.n_slot) };
            memcpy(fdr_prod_slot(&p, first), &pad, sizeof(pad));
            first += cost - h.n_slot;
        }
        for (k = 0; k < h.n_slot; k++) {
            unsigned char *d = fdr_prod_slot(&p, first + k);
            memset(d, (int)(i + 1), FDP_SLOT);
            if (k == 0)
                memcpy(d, &h, sizeof(h));
            step();
        }
        p.pub = p.tail;
        fdr_publish(&w_tail, p.tail);
        if (fdr_flag_check(&w_flag))
            bell = 1;
    }
    side[PROD].done = 1;
    step();
}

static int
whole(const unsigned char *d, uint32_t i, uint32_t k)
{
    for (uint32_t b = k ? 0 : sizeof(struct fdp_rec); b < FDP_SLOT; b++)
        if (d[b] != (unsigned char)(i + 1))
            return 0;
    return 1;
}

static void
take(struct fdr_cons *c, uint32_t *want)
{
    struct fdp_rec h;
    memcpy(&h, fdr_cons_slot(c, c->head), sizeof(h));
    if (h.n_slot == 0 || h.n_slot > N_SLOT) {
        wrong = "record without a size";
        h.n_slot = 1;
    } else if (h.type != FDP_T_PAD) {
        if (h.tag != *want || h.n_slot != size_of(*want))
            wrong = "record out of order";
        for (uint32_t k = 0; k < h.n_slot; k++) {
            step();
            if (!whole(fdr_cons_slot(c, c->head + k), *want, k))
                wrong = "record torn or overwritten";
        }
        ++*want;
    }
    fdr_cons_release(c, h.n_slot);
}

static void
consumer(void)
{
    struct fdr_cons c;
    uint32_t want = 0;

    fdr_cons_init(&c, slots, &w_tail, &w_head, N_SLOT, FDP_SLOT);
    while (want < MESSAGES && !wrong) {
        int64_t n = fdr_cons_avail(&c);
        if (n < 0)
            wrong = "consumer sees an impossible tail";
        else if (n > 0)
            take(&c, &want);
        else {
            fdr_flag_raise(&w_flag, 1);
            if (mutant == NO_RECHECK || fdr_cons_recheck(&c) == 0) {
                side[CONS].asleep = 1;
                step();
                bell = 0;
            }
            fdr_store_relaxed(&w_flag, 0);
        }
    }
    side[CONS].done = 1;
    step();
}

/* ---- the scheduler ------------------------------------------------------------ */

static void
start(int i, void (*fn)(void))
{
    struct side *s = &side[i];
    char *stack = s->stack ? s->stack : malloc(STACK);

    memset(s, 0, sizeof(*s));
    s->stack = stack;
    getcontext(&s->ctx);
    s->ctx.uc_stack.ss_sp = stack;
    s->ctx.uc_stack.ss_size = STACK;
    s->ctx.uc_link = NULL;
    makecontext(&s->ctx, fn, 0);
}

/* Returns the error, or NULL. */
static const char *
run(uint64_t seed, enum mutant how, uint32_t *ret_steps)
{
    uint32_t steps = 0;

    rng = seed * 0x9e3779b97f4a7c15u + 1;
    w_tail = w_head = (uint32_t) - (int)draw(20);
    w_flag = 0;
    bell = 0;
    wrong = NULL;
    mutant = how;
    memset(slots, 0, sizeof(slots));
    start(PROD, producer);
    start(CONS, consumer);
    while (!side[CONS].done && !wrong) {
        int i = (int)draw(N_SIDE);
        struct side *s = &side[i];
        if (s->n_buf && draw(3) == 0)
            flush_one(s);
        if (s->asleep && bell)
            s->asleep = 0;
        if (s->done || s->asleep) {
            /* Nothing can ring the doorbell any more: the sleeper sleeps for ever. */
            if (side[PROD].done && !side[PROD].n_buf && side[CONS].asleep && !bell &&
                !side[CONS].n_buf)
                wrong = "lost wake-up";
            continue;
        }
        running = i;
        swapcontext(&sched_ctx, &s->ctx);
        running = -1;
        if (++steps > 200000)
            wrong = "no progress";
    }
    if (ret_steps)
        *ret_steps += steps;
    return wrong;
}

static void
t_sound(void **state)
{
    uint32_t steps = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        const char *w = run(seed, SOUND, &steps);
        if (w)
            fail_msg("seed %llu: %s", (unsigned long long)seed, w);
    }
    print_message("%u shared accesses scheduled\n", steps);
}

static void
must_fail(enum mutant how, const char *why)
{
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        const char *w = run(seed, how, NULL);
        if (w) {
            print_message("seed %llu: %s\n", (unsigned long long)seed, w);
            assert_memory_equal(w, why, strlen(why));
            return;
        }
    }
    fail_msg("the mutant was not found out");
}

static void
t_mutants(void **state)
{
    (void)state;
    must_fail(NO_FENCE, "lost wake-up");
    must_fail(NO_RECHECK, "lost wake-up");
    must_fail(EARLY_PUBLISH, "record");
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_sound),
        cmocka_unit_test(t_mutants),
    };
#ifdef FDD_TSAN
    puts("skipped: the thread sanitizer does not follow swapcontext()");
    return 77;
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
