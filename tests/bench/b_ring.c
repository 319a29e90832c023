/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring and the machine's own limit: two threads on two processors that pass one word
 * back and forth through two cache lines.
 *
 * A sample is the mean of BATCH round trips, so that reading the clock does not matter.
 * The cost of a cache line varies with its page (the slice of the last-level cache) by a
 * factor of two. So bare and ring run REPEAT times in turn, each time in new pages, and
 * the medians of the runs' p50 and p99 count. The parked figures sleep in FUTEX_WAIT on
 * both sides of every trip, each trip a sample.
 */
#include "config.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libclient/fdproto.h"
#include "libclient/fdring.h"

#define BATCH   32
#define SAMPLES 1000
#define REPEAT  41
#define PARKED  3000
#define STREAM  (4u << 20)
#define N_SLOT  4096u
#define BUFFER  64u /* records passed at once, in one direction */

struct lane {
    uint32_t tail __attribute__((aligned(128)));
    uint32_t head __attribute__((aligned(128)));
    uint32_t wait __attribute__((aligned(128)));
    unsigned char slots[N_SLOT * FDP_SLOT] __attribute__((aligned(128)));
};

struct line {
    uint32_t v __attribute__((aligned(128)));
};

static struct lane *lanes; /* [2] forward, back */
static struct line *word;  /* [2] */
static int cpus[2];
static double samples[PARKED];

static uint64_t
now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline void
relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void
pin(int i)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpus[i], &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

static int
by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct figures {
    double p50[REPEAT], p99[REPEAT];
};

static double
median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), by_value);
    return v[n / 2];
}

static void
summarize(struct figures *f, int i, int n)
{
    qsort(samples, (size_t)n, sizeof(samples[0]), by_value);
    f->p50[i] = samples[n / 2];
    f->p99[i] = samples[n * 99 / 100];
}

/* Returns the median p50. */
static double
report(const char *name, struct figures *f, int n, const char *unit, double scale)
{
    double p50 = median(f->p50, n), p99 = median(f->p99, n);
    printf("%-34s p50 %8.1f  p99 %8.1f %s  (p50 of %d runs: %.1f to %.1f)\n", name,
        p50 / scale, p99 / scale, unit, n, f->p50[0] / scale, f->p50[n - 1] / scale);
    return p50;
}

static void *
fresh(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
        MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED)
        abort();
    return p;
}

/* ---- bare -------------------------------------------------------------------- */

static inline void
wait_word(const uint32_t *p, uint32_t v)
{
    while (__atomic_load_n(p, __ATOMIC_ACQUIRE) != v)
        relax();
}

static void *
bare_peer(void *arg)
{
    (void)arg;
    pin(1);
    for (uint32_t i = 1; i <= SAMPLES * BATCH; i++) {
        wait_word(&word[0].v, i);
        __atomic_store_n(&word[1].v, i, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void
bare(struct figures *f, int run)
{
    uint32_t v = 0;
    pthread_t th;

    word = fresh(sizeof(*word) * 2);
    pthread_create(&th, NULL, bare_peer, NULL);
    for (int i = 0; i < SAMPLES; i++) {
        uint64_t t = now_ns();
        for (int j = 0; j < BATCH; j++) {
            __atomic_store_n(&word[0].v, ++v, __ATOMIC_RELEASE);
            wait_word(&word[1].v, v);
        }
        samples[i] = (double)(now_ns() - t) / BATCH;
    }
    pthread_join(th, NULL);
    munmap(word, sizeof(*word) * 2);
    summarize(f, run, SAMPLES);
}

/* ---- ring ---------------------------------------------------------------------- */

struct end {
    struct fdr_prod out;
    struct fdr_cons in;
    uint32_t *wait_out, *wait_in;
};

static void
end_init(struct end *e, int i)
{
    struct lane *o = &lanes[i], *n = &lanes[!i];

    fdr_prod_init(&e->out, o->slots, &o->tail, &o->head, N_SLOT, FDP_SLOT);
    fdr_cons_init(&e->in, n->slots, &n->tail, &n->head, N_SLOT, FDP_SLOT);
    e->wait_out = &o->wait;
    e->wait_in = &n->wait;
}

/* Sends as the gate and the library do: room, record, barrier, flag. */
static inline void
send_rec(struct end *e, uint32_t v)
{
    struct fdp_rec h = { .tag = 7, .type = FDP_T_IDS, .n_slot = 1, .len = 4 };
    unsigned char *d;

    while (fdr_prod_room(&e->out, 1) < 1)
        relax();
    d = (unsigned char *)fdr_prod_slot(&e->out, e->out.tail);
    memcpy(d, &h, sizeof(h));
    memcpy(d + sizeof(h), &v, sizeof(v));
    e->out.pub = ++e->out.tail;
    fdr_publish(e->out.p_tail, e->out.tail);
    if (fdr_flag_check(e->wait_out))
        syscall(SYS_futex, e->out.p_tail, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static inline uint32_t
recv_rec(struct end *e)
{
    struct fdp_rec h;
    const unsigned char *d;
    uint32_t v;

    while (fdr_cons_avail(&e->in) < 1)
        relax();
    d = (const unsigned char *)fdr_cons_slot(&e->in, e->in.head);
    memcpy(&h, d, sizeof(h));
    memcpy(&v, d + sizeof(h), sizeof(v));
    if (h.tag != 7 || h.n_slot != 1)
        abort();
    fdr_cons_release(&e->in, 1);
    return v;
}

static void
park(struct end *e)
{
    while (fdr_cons_avail(&e->in) < 1) {
        uint32_t seen = e->in.head;
        fdr_flag_raise(e->wait_in, 1);
        if (fdr_cons_recheck(&e->in) == 0)
            syscall(SYS_futex, e->in.p_tail, FUTEX_WAIT, seen, NULL, NULL, 0);
        fdr_store_relaxed(e->wait_in, 0);
    }
}

static void *
ring_peer(void *arg)
{
    struct end e;
    int parked = *(int *)arg;
    uint32_t n = parked ? PARKED : SAMPLES * BATCH;

    pin(1);
    end_init(&e, 1);
    for (uint32_t i = 1; i <= n; i++) {
        if (parked)
            park(&e);
        send_rec(&e, recv_rec(&e));
    }
    return NULL;
}

static void
ring(struct figures *f, int run, int parked)
{
    int n = parked ? PARKED : SAMPLES, batch = parked ? 1 : BATCH;
    uint32_t v = 0;
    struct end e;
    pthread_t th;

    lanes = fresh(sizeof(*lanes) * 2);
    end_init(&e, 0);
    pthread_create(&th, NULL, ring_peer, &parked);
    for (int i = 0; i < n; i++) {
        uint64_t t = now_ns();
        for (int j = 0; j < batch; j++) {
            send_rec(&e, ++v);
            if (parked)
                park(&e);
            if (recv_rec(&e) != v)
                abort();
        }
        samples[i] = (double)(now_ns() - t) / batch;
    }
    pthread_join(th, NULL);
    munmap(lanes, sizeof(*lanes) * 2);
    summarize(f, run, n);
}

/* ---- one way --------------------------------------------------------------------- */

static void *
stream_peer(void *arg)
{
    struct end e;
    uint64_t *sum = arg;

    pin(1);
    end_init(&e, 1);
    for (uint32_t i = 0; i < STREAM;) {
        int64_t n = fdr_cons_avail(&e.in);
        for (int64_t k = 0; k < n; k++) {
            uint32_t v;
            memcpy(&v,
                (const unsigned char *)fdr_cons_slot(&e.in, e.in.head + (uint32_t)k) +
                    sizeof(struct fdp_rec),
                sizeof(v));
            *sum += v;
        }
        if (n > 0) {
            fdr_cons_release(&e.in, (uint32_t)n);
            i += (uint32_t)n;
        } else {
            relax();
        }
    }
    return NULL;
}

static void
stream(void)
{
    uint64_t sum = 0, want = 0, t;
    struct end e;
    pthread_t th;

    lanes = fresh(sizeof(*lanes) * 2);
    end_init(&e, 0);
    pthread_create(&th, NULL, stream_peer, &sum);
    t = now_ns();
    for (uint32_t i = 0; i < STREAM; i++) {
        struct fdp_rec h = { .tag = 7, .type = FDP_T_IDS, .n_slot = 1, .len = 4 };
        unsigned char *d;
        while (fdr_prod_room(&e.out, 1) < 1)
            relax();
        d = (unsigned char *)fdr_prod_slot(&e.out, e.out.tail);
        memcpy(d, &h, sizeof(h));
        memcpy(d + sizeof(h), &i, sizeof(i));
        want += i;
        if (++e.out.tail % BUFFER == 0)
            fdr_prod_commit(&e.out);
    }
    fdr_prod_commit(&e.out);
    pthread_join(th, NULL);
    t = now_ns() - t;
    if (sum != want)
        abort();
    printf("%-34s %12.1f M records/s (%u at a time)\n", "ring, one way",
        (double)STREAM * 1e3 / (double)t, BUFFER);
}

int
main(void)
{
    static struct figures f_bare, f_ring, f_parked;
    double a, b;
    cpu_set_t set;
    int n = 0;

    if (sched_getaffinity(0, sizeof(set), &set))
        return 1;
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET(i, &set))
            cpus[n++] = i;
    if (n < 2) {
        puts("skipped: needs two processors");
        return 77;
    }
    pin(0);
    for (int i = 0; i < REPEAT; i++) {
        bare(&f_bare, i);
        ring(&f_ring, i, 0);
    }
    ring(&f_parked, 0, 1);
    a = report("bare ping-pong, two lines", &f_bare, REPEAT, "ns", 1);
    b = report("ring round trip, both spinning", &f_ring, REPEAT, "ns", 1);
    printf("%-34s p50 %8.2f (goal 1.30)\n", "ring / bare", b / a);
    report("ring round trip, both parked", &f_parked, 1, "us", 1000);
    stream();
    return 0;
}
