/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/cpu.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/*
 * A job is open while the low half of its ticket is below the number of items. Threads
 * claim an item by compare and swap on the whole ticket, so a late thread
 * cannot claim an item of a newer job with an older job's fields: the
 * ticket is closed, with a new generation, before the fields change. The caller does not
 * wait for threads that have claimed no item.
 */
#define ITEM_CLOSED 0xffffffffu
#define NICE_MOST   19

struct pool_thread {
    pthread_t thread;
    struct cpu_pool *pool;
    void *scratch;
};

struct cpu_pool {
    int n_thread, nice;
    int n_started;
    struct cpu_spin *spin;
    struct pool_thread *threads;
    _Atomic uint32_t busy; /* one stream at a time */
    char pad0[CPU_CACHELINE];
    _Atomic uint64_t ticket; /* generation << 32 | next item */
    _Atomic uint32_t wake;   /* sleepers' futex word, incremented per job */
    _Atomic uint32_t n_sleep;
    _Atomic uint32_t stop;
    _Atomic(cpu_item_fn *) fn;
    _Atomic(const void *) arg;
    _Atomic uint32_t n_item;
    char pad1[CPU_CACHELINE];
    _Atomic uint32_t n_done;
    _Atomic uint32_t n_wait;
};

uint64_t
cpu_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void
cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void
cpu_futex_wait(_Atomic uint32_t *word, uint32_t val)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, val, NULL, NULL, 0);
}

static struct timespec
timespec_of(uint64_t ns)
{
    return (struct timespec){ (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };
}

static void
futex_wait_ns(_Atomic uint32_t *word, uint32_t val, uint64_t ns)
{
    struct timespec ts = timespec_of(ns);
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, val, &ts, NULL, 0);
}

void
cpu_thread_nice(int add)
{
    const id_t id = (id_t)syscall(SYS_gettid);
    int v = getpriority(PRIO_PROCESS, id) + add;
    if (add != 0)
        (void)setpriority(PRIO_PROCESS, id, v < NICE_MOST ? v : NICE_MOST);
}

void
cpu_nap(uint64_t ns)
{
    struct timespec ts = timespec_of(ns);
    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
}

void
cpu_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

#define YIELD_LATE_NS 300000
#define CROWDED_NS    50000000

int
cpu_spin_more(struct cpu_spin *spin, uint64_t *until)
{
    uint64_t now = cpu_now_ns();
    if (*until == 0)
        *until = now + spin->ns;
    if (now >= *until ||
        now < atomic_load_explicit(&spin->crowded_until, memory_order_relaxed))
        return 0;
    sched_yield();
    uint64_t back = cpu_now_ns();
    if (back - now < YIELD_LATE_NS)
        return 1;
    atomic_store_explicit(&spin->crowded_until, back + CROWDED_NS, memory_order_relaxed);
    return 0;
}

void
cpu_wait_ge(_Atomic uint32_t *word, uint32_t target, _Atomic uint32_t *n_wait,
    struct cpu_spin *spin)
{
    uint64_t until = 0;
    for (uint32_t i = 0;; i++) {
        if ((int32_t)(atomic_load_explicit(word, memory_order_acquire) - target) >= 0)
            return;
        cpu_relax();
        if ((i & 63) == 63 && !cpu_spin_more(spin, &until))
            break;
    }
    atomic_fetch_add(n_wait, 1);
    for (;;) {
        uint32_t v = atomic_load(word);
        if ((int32_t)(v - target) >= 0)
            break;
        cpu_futex_wait(word, v);
    }
    atomic_fetch_sub(n_wait, 1);
}

int
cpu_wait_ge_until(_Atomic uint32_t *word, uint32_t target, _Atomic uint32_t *n_wait,
    struct cpu_spin *spin, uint64_t expect_ns, uint64_t until_ns)
{
    uint64_t spun = 0, early = spin->ns / 2;
    uint64_t from = expect_ns > early ? expect_ns - early : 0;

    for (;;) {
        uint64_t now = cpu_now_ns(), to = now < from && from < until_ns ? from : until_ns;
        uint32_t v = atomic_load(word);
        if ((int32_t)(v - target) >= 0)
            return 1;
        if (now >= until_ns)
            return 0;
        if (now >= from && (expect_ns == 0 || now < expect_ns + early) &&
            cpu_spin_more(spin, &spun)) {
            for (int i = 0; i < 64 && atomic_load(word) == v; i++)
                cpu_relax();
            continue;
        }
        atomic_fetch_add(n_wait, 1);
        v = atomic_load(word);
        if ((int32_t)(v - target) < 0)
            futex_wait_ns(word, v, to - now);
        atomic_fetch_sub(n_wait, 1);
    }
}

void
cpu_wake(_Atomic uint32_t *word, _Atomic uint32_t *n_wait)
{
    if (atomic_load(n_wait) != 0)
        cpu_futex_wake(word);
}

static void
pool_work(struct cpu_pool *p, uint64_t ticket, void *scratch)
{
    cpu_item_fn *fn = atomic_load_explicit(&p->fn, memory_order_acquire);
    const void *arg = atomic_load_explicit(&p->arg, memory_order_acquire);
    uint32_t n = atomic_load_explicit(&p->n_item, memory_order_acquire);
    uint32_t gen = (uint32_t)(ticket >> 32);
    uint32_t done = 0;
    while ((uint32_t)(ticket >> 32) == gen && (uint32_t)ticket < n) {
        if (!atomic_compare_exchange_weak(&p->ticket, &ticket, ticket + 1))
            continue;
        fn(arg, (int)(uint32_t)ticket, scratch);
        done++;
        ticket = atomic_load(&p->ticket);
    }
    /* The job cannot end, and n_done cannot be reset, before this addition. */
    if (done != 0) {
        atomic_fetch_add(&p->n_done, done);
        cpu_wake(&p->n_done, &p->n_wait);
    }
}

static int
pool_open(uint64_t ticket, uint32_t n)
{
    return (uint32_t)ticket != ITEM_CLOSED && (uint32_t)ticket < n;
}

static void *
pool_main(void *arg)
{
    struct pool_thread *t = arg;
    struct cpu_pool *p = t->pool;
    uint64_t until = 0;
    cpu_thread_nice(p->nice);
    for (uint32_t i = 0; !atomic_load_explicit(&p->stop, memory_order_acquire); i++) {
        uint64_t ticket = atomic_load(&p->ticket);
        if (pool_open(ticket, atomic_load_explicit(&p->n_item, memory_order_acquire))) {
            pool_work(p, ticket, t->scratch);
            until = 0;
            i = UINT32_MAX;
            continue;
        }
        cpu_relax();
        if ((i & 63) != 63 || cpu_spin_more(p->spin, &until))
            continue;
        uint32_t wake = atomic_load(&p->wake);
        atomic_fetch_add(&p->n_sleep, 1);
        if (!pool_open(atomic_load(&p->ticket), atomic_load(&p->n_item)) &&
            !atomic_load(&p->stop))
            cpu_futex_wait(&p->wake, wake);
        atomic_fetch_sub(&p->n_sleep, 1);
        until = 0;
    }
    return NULL;
}

int
cpu_pool_new(int n_thread, int nice, struct cpu_spin *spin, struct cpu_pool **ret_pool)
{
    struct cpu_pool *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return -ENOMEM;
    p->n_thread = n_thread;
    p->nice = nice;
    p->spin = spin;
    atomic_store(&p->ticket, ITEM_CLOSED);
    p->threads = calloc((size_t)n_thread, sizeof(*p->threads));
    if (p->threads == NULL) {
        free(p);
        return -ENOMEM;
    }
    for (int i = 0; i < n_thread - 1; i++) {
        struct pool_thread *t = &p->threads[i];
        t->pool = p;
        t->scratch = aligned_alloc(CPU_CACHELINE, CPU_SCRATCH_BYTES);
        int err =
            t->scratch == NULL ? ENOMEM : pthread_create(&t->thread, NULL, pool_main, t);
        if (err != 0) {
            free(t->scratch);
            cpu_pool_free(p);
            return -err;
        }
        p->n_started++;
        pthread_setname_np(t->thread, "fdk-pool");
    }
    *ret_pool = p;
    return 0;
}

void
cpu_pool_free(struct cpu_pool *p)
{
    if (p == NULL)
        return;
    atomic_store(&p->stop, 1);
    atomic_fetch_add(&p->wake, 1);
    cpu_futex_wake(&p->wake);
    for (int i = 0; i < p->n_started; i++) {
        pthread_join(p->threads[i].thread, NULL);
        free(p->threads[i].scratch);
    }
    free(p->threads);
    free(p);
}

void
cpu_pool_run(struct cpu_pool *p, cpu_item_fn *fn, const void *arg, int n, void *scratch)
{
    if (n <= 1 || p->n_thread == 1 || atomic_exchange(&p->busy, 1) != 0) {
        for (int i = 0; i < n; i++)
            fn(arg, i, scratch);
        return;
    }
    uint64_t gen = (atomic_load_explicit(&p->ticket, memory_order_relaxed) >> 32) + 1;
    atomic_store(&p->ticket, gen << 32 | ITEM_CLOSED);
    atomic_store_explicit(&p->fn, fn, memory_order_release);
    atomic_store_explicit(&p->arg, arg, memory_order_release);
    atomic_store_explicit(&p->n_item, (uint32_t)n, memory_order_release);
    atomic_store(&p->n_done, 0);
    atomic_store(&p->ticket, gen << 32);
    atomic_fetch_add(&p->wake, 1);
    if (atomic_load(&p->n_sleep) != 0)
        cpu_futex_wake(&p->wake);
    pool_work(p, gen << 32, scratch);
    cpu_wait_ge(&p->n_done, (uint32_t)n, &p->n_wait, p->spin);
    atomic_store(&p->busy, 0);
}
