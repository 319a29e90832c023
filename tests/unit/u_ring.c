/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The ring: cursors, padding, protocol violations of the peer,
 * two threads with parking. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libclient/fdproto.h"
#include "libclient/fdring.h"

#define N_SLOT 8u

struct mem {
    uint32_t tail __attribute__((aligned(128)));
    uint32_t head __attribute__((aligned(128)));
    uint32_t wait __attribute__((aligned(128)));
    unsigned char slots[N_SLOT * FDP_SLOT] __attribute__((aligned(128)));
};

static struct mem mem;
static struct fdr_prod prod;
static struct fdr_cons cons;

static void
ring_at(uint32_t cursor)
{
    memset(&mem, 0, sizeof(mem));
    mem.tail = mem.head = cursor;
    fdr_prod_init(&prod, mem.slots, &mem.tail, &mem.head, N_SLOT, FDP_SLOT);
    fdr_cons_init(&cons, mem.slots, &mem.tail, &mem.head, N_SLOT, FDP_SLOT);
}

static void
put1(uint32_t v)
{
    memcpy(fdr_prod_slot(&prod, prod.tail), &v, 4);
    prod.tail++;
}

static uint32_t
get1(void)
{
    uint32_t v;
    memcpy(&v, fdr_cons_slot(&cons, cons.head), 4);
    fdr_cons_release(&cons, 1);
    return v;
}

/* Full and empty at every position of the ring, across the wrap of the cursor. */
static void
t_fill(void **state)
{
    (void)state;
    for (uint32_t start = (uint32_t)-20; start != 20; start++) {
        ring_at(start);
        assert_int_equal(fdr_cons_avail(&cons), 0);
        for (uint32_t i = 0; i < N_SLOT; i++) {
            assert_int_equal(fdr_prod_room(&prod, 1), N_SLOT - i);
            put1(start + i);
        }
        assert_int_equal(fdr_prod_room(&prod, 1), 0);
        assert_int_equal(fdr_cons_avail(&cons), 0); /* not committed yet */
        fdr_prod_commit(&prod);
        assert_int_equal(fdr_cons_avail(&cons), N_SLOT);
        for (uint32_t i = 0; i < N_SLOT; i++) {
            assert_int_equal(get1(), start + i);
            assert_int_equal(fdr_prod_room(&prod, 1), 1);
            put1(0);
            prod.tail--; /* an abandoned claim leaves no trace */
        }
        assert_int_equal(fdr_cons_avail(&cons), 0);
        assert_int_equal(fdr_prod_room(&prod, N_SLOT), N_SLOT);
    }
}

static void
t_cost(void **state)
{
    (void)state;
    for (uint32_t start = (uint32_t)-16; start != 16; start++)
        for (uint32_t n = 1; n <= N_SLOT; n++) {
            uint32_t at = start & (N_SLOT - 1);
            ring_at(start);
            assert_int_equal(fdr_prod_cost(&prod, n),
                at + n <= N_SLOT ? n : n + N_SLOT - at);
        }
}

/* The cached cursor: the shared cursor is read only if necessary. */
static void
t_cached(void **state)
{
    (void)state;
    ring_at(0);
    for (uint32_t i = 0; i < 4; i++)
        put1(i);
    fdr_prod_commit(&prod);
    assert_int_equal(fdr_cons_avail(&cons), 4);
    put1(4);
    fdr_prod_commit(&prod);
    assert_int_equal(fdr_cons_avail(&cons), 4);
    assert_int_equal(fdr_cons_recheck(&cons), 5);
    fdr_cons_release(&cons, 5);
    assert_int_equal(fdr_prod_room(&prod, 3), 3);
    assert_int_equal(fdr_prod_room(&prod, 4), 8);
}

static void
t_lies(void **state)
{
    (void)state;
    for (uint32_t start = (uint32_t)-3; start != 3; start++) {
        /* the producer's tail beyond the ring's size, far away, or moved back */
        ring_at(start);
        mem.tail = start + N_SLOT + 1;
        assert_int_equal(fdr_cons_avail(&cons), -1);
        mem.tail = start - 1;
        assert_int_equal(fdr_cons_avail(&cons), -1);
        mem.tail = start + 0x80000000u;
        assert_int_equal(fdr_cons_avail(&cons), -1);
        mem.tail = start + N_SLOT;
        assert_int_equal(fdr_cons_avail(&cons), N_SLOT);
        mem.tail = start + 2;
        assert_int_equal(fdr_cons_recheck(&cons), -1);
        mem.tail = start + N_SLOT + 1;
        assert_int_equal(fdr_cons_recheck(&cons), -1);

        /* the consumer's head past our tail, or moved back */
        ring_at(start);
        put1(1);
        put1(2);
        fdr_prod_commit(&prod);
        mem.head = start + 3;
        assert_int_equal(fdr_prod_room(&prod, N_SLOT), -1);
        mem.head = start - 1;
        assert_int_equal(fdr_prod_room(&prod, N_SLOT), -1);
        mem.head = start + 1;
        assert_int_equal(fdr_prod_room(&prod, N_SLOT), N_SLOT - 1);
        mem.head = start;
        assert_int_equal(fdr_prod_room(&prod, N_SLOT), -1);
    }
}

static void
t_copy_in(void **state)
{
    unsigned char src[128] __attribute__((aligned(8)));
    unsigned char dst[128 + 8];

    (void)state;
    for (unsigned i = 0; i < sizeof(src); i++)
        src[i] = (unsigned char)(i * 3);
    memset(dst, 0xaa, sizeof(dst));
    fdr_copy_in(dst, src, 120);
    assert_memory_equal(dst, src, 120);
    assert_int_equal(dst[120], 0xaa);
}

/* ---- two threads, each parking on a futex --------------------------------- */

#define MESSAGES 60000u

static void
sleep_on(uint32_t *word, uint32_t seen)
{
    struct timespec ts = { .tv_sec = 5 };
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &ts, NULL, 0);
}

static void
wake(uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

struct tally {
    uint64_t sum;
    uint32_t n, slow; /* sleeps that took seconds, from lost wake-ups */
};

static void *
consume(void *arg)
{
    struct tally *t = arg;
    struct timespec a, b;

    while (t->n < MESSAGES) {
        int64_t n = fdr_cons_avail(&cons);
        if (n == 0) {
            uint32_t seen = cons.head;
            fdr_flag_raise(&mem.wait, 1);
            clock_gettime(CLOCK_MONOTONIC, &a);
            if (fdr_cons_recheck(&cons) == 0)
                sleep_on(&mem.tail, seen);
            clock_gettime(CLOCK_MONOTONIC, &b);
            t->slow += b.tv_sec - a.tv_sec >= 4;
            fdr_store_relaxed(&mem.wait, 0);
            continue;
        }
        for (; n > 0; n--, t->n++)
            t->sum += get1();
    }
    return NULL;
}

static void
t_threads(void **state)
{
    struct tally t = { 0 };
    uint64_t want = 0;
    pthread_t th;

    (void)state;
    ring_at((uint32_t)-1000);
    assert_int_equal(pthread_create(&th, NULL, consume, &t), 0);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        while (fdr_prod_room(&prod, 1) < 1)
            sched_yield();
        put1(i * 2654435761u);
        want += (uint32_t)(i * 2654435761u);
        prod.pub = prod.tail;
        fdr_publish(&mem.tail, prod.tail);
        if (fdr_flag_check(&mem.wait))
            wake(&mem.tail);
        if (i % 512 == 0)
            usleep(50); /* so that the other side goes to sleep */
    }
    pthread_join(th, NULL);
    assert_true(t.sum == want);
    assert_int_equal(t.slow, 0);
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_fill),
        cmocka_unit_test(t_cost),
        cmocka_unit_test(t_cached),
        cmocka_unit_test(t_lies),
        cmocka_unit_test(t_copy_in),
        cmocka_unit_test(t_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
