/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Attacks on the rings and the memory that client and daemon share. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libclient/fdring.h"
#include "tests/sys/hostile/attack.h"

#define RING_PAGE     4096
#define RING_HERD     3000
#define RING_PAUSE_US 500

static const uint32_t odd[] = { 0, 1, 7, 8, 64, 4096, 1048576, 0x7fffffff, 0x80000000u,
    0xfffffff8u, 0xffffffffu };
#define N_ODD (sizeof(odd) / sizeof(odd[0]))

static uint32_t
odd_word(struct attack *a)
{
    return odd[atk_rnd(a) % N_ODD];
}

/* Makes a mostly plausible request, sometimes with a wrong field. */
static struct fdp_req
wild_req(struct attack *a, const struct raw *r, uint64_t tag)
{
    struct fdp_req q =
        raw_generate(r, tag, (uint32_t)(atk_rnd(a) % 512), 1 + (uint32_t)(atk_rnd(a) % 8));

    q.op = (uint16_t)(1 + atk_rnd(a) % FDP_OP__N);
    if (q.op == FDP_OP_TOKENIZE)
        q.len = raw_item(r, q.off, FDP_IT_PROMPT_TEXT, "all that glitters", 17);
    if (q.op != FDP_OP_SUBMIT)
        q.flags = 0;
    if (q.op != FDP_OP_SUBMIT && q.op != FDP_OP_TOKENIZE && q.op != FDP_OP_DETOKENIZE)
        q.len = 0;
    if (atk_rnd(a) % 4 == 0)
        ((uint32_t *)(void *)&q)[atk_rnd(a) % (sizeof(q) / 4)] = odd_word(a);
    if (atk_rnd(a) % 8 == 0)
        q.len = odd_word(a);
    return q;
}

static void
wild_batch(struct attack *a, struct raw *r, uint64_t *tag, uint32_t n)
{
    for (; n != 0 && raw_room(r) != 0; n--) {
        struct fdp_req q = wild_req(a, r, atk_rnd(a) % 8 != 0 ? ++*tag : atk_rnd(a) % 32);

        raw_put(r, &q);
        a->n_op++;
    }
    raw_publish(r);
    (void)raw_skip(r);
}

/* Opens a new session if the daemon has ended the last one. */
static int
renew(struct attack *a, struct raw *r)
{
    if (r->sock >= 0) {
        if (!raw_gone(r))
            return 0;
        a->n_ended++;
        raw_close(r);
    }
    return atk_session(a, r, NULL);
}

/* Overwrites random words of the memory that the daemon reads, all the time. */
void
atk_random(struct attack *a)
{
    struct raw r = { .sock = -1 };

    while (atk_left(a) && renew(a, &r) == 0) {
        for (int i = 0; i < 4096; i++) {
            uint32_t n = atk_rnd(a) % 4 != 0 ? FDP_C2D_SLOTS : r.w.c2d_bytes;

            *raw_word(&r, atk_rnd(a) % (n / 4) * 4) =
                (uint32_t)(atk_rnd(a) % 2 != 0 ? atk_rnd(a) : atk_rnd(a) % 64);
            a->n_op++;
        }
        raw_ring(&r);
    }
}

void
atk_wild(struct attack *a)
{
    struct raw r = { .sock = -1 };
    uint64_t tag = 0;

    while (atk_left(a) && renew(a, &r) == 0) {
        wild_batch(a, &r, &tag, 16);
        usleep(RING_PAUSE_US);
    }
}

/* Impossible cursors, one after another. */
void
atk_cursors(struct attack *a)
{
    struct raw r = { .sock = -1 };
    struct fdp_req q = raw_req(1, FDP_OP_PING);

    while (atk_left(a) && renew(a, &r) == 0) {
        for (int i = 0; i < 8; i++)
            raw_put(&r, &q);
        raw_publish(&r);
        if (atk_rnd(a) % 2 != 0)
            fdr_publish(raw_word(&r, FDP_C2D_CQ_HEAD), odd_word(a));
        else
            fdr_publish(raw_word(&r, FDP_C2D_SQ_TAIL), odd_word(a));
        raw_ring(&r);
        a->n_op++;
        usleep(RING_PAUSE_US);
    }
}

/* Slots and arena flip between two values while the daemon copies them. */
struct flipper {
    const struct raw *r;
    uint64_t rng;
    int stop;
};

static void
flip(uint32_t *p, uint32_t v)
{
    uint32_t old = fdr_load_relaxed(p);

    fdr_store_relaxed(p, v);
    fdr_store_relaxed(p, old);
}

static void *
flip_run(void *arg)
{
    struct flipper *f = arg;
    struct attack mine = { .rng = f->rng };

    while (!__atomic_load_n(&f->stop, __ATOMIC_RELAXED)) {
        uint64_t x = atk_rnd(&mine);

        flip((uint32_t *)(void *)raw_slot(f->r, (uint32_t)x) + (x >> 16) % 32,
            (uint32_t)(x >> 32));
        flip(raw_word(f->r, f->r->w.arena_off + (x >> 40) % 16384 * 4), ~0u);
    }
    return NULL;
}

void
atk_toctou(struct attack *a)
{
    uint64_t tag = 0;

    while (atk_left(a)) {
        struct raw r;
        struct flipper f = { .r = &r, .rng = atk_rnd(a) };
        pthread_t t;

        if (atk_session(a, &r, NULL) != 0 || pthread_create(&t, NULL, flip_run, &f) != 0)
            return;
        while (atk_left(a) && !raw_gone(&r))
            wild_batch(a, &r, &tag, 32);
        __atomic_store_n(&f.stop, 1, __ATOMIC_RELAXED);
        pthread_join(t, NULL);
        a->n_ended += raw_gone(&r) != 0;
        raw_close(&r);
    }
}

/* Removes pages while requests run, if the kernel allows it; without the first
 * page the cursors are 0 again. */
void
atk_punch(struct attack *a)
{
    struct raw r = { .sock = -1 };
    uint64_t tag = 0;

    while (atk_left(a) && renew(a, &r) == 0) {
        wild_batch(a, &r, &tag, 8);
        (void)fallocate(r.fd[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            (off_t)((atk_rnd(a) % 8 != 0) + atk_rnd(a) % (r.w.c2d_bytes / RING_PAGE)) *
                RING_PAGE,
            16 * RING_PAGE);
    }
}

/* Rings the doorbell as fast as possible, on a descriptor made blocking. */
void
atk_bell(struct attack *a)
{
    struct raw r;
    uint64_t one = 1, v;

    if (atk_session(a, &r, NULL) != 0)
        return;
    (void)fcntl(r.fd[2], F_SETFL, 0);
    while (atk_left(a)) {
        for (int i = 0; i < 100; i++)
            if (write(r.fd[2], &one, sizeof(one)) > 0)
                a->n_op++;
        (void)fcntl(r.fd[2], F_SETFL, O_NONBLOCK);
        if (read(r.fd[2], &v, sizeof(v)) < 0 && errno != EAGAIN)
            return;
        (void)fcntl(r.fd[2], F_SETFL, 0);
    }
}

/* Valid requests that need no work of the worker. */
void
atk_pings(struct attack *a)
{
    struct raw r = { .sock = -1 };
    uint64_t tag = 0;

    while (atk_left(a) && renew(a, &r) == 0) {
        for (uint32_t n = raw_room(&r); n != 0; n--) {
            struct fdp_req q = raw_req(tag, tag % 2 != 0 ? FDP_OP_PING : FDP_OP_CANCEL);

            raw_put(&r, &q);
            tag++;
            a->n_op++;
        }
        raw_publish(&r);
        (void)raw_skip(&r);
    }
}

static void *
herd_sleep(void *arg)
{
    const struct raw *r = arg;
    const struct timespec ts = { .tv_sec = 5 };

    for (;;)
        (void)syscall(SYS_futex, r->d2c + FDP_D2C_CQ_TAIL, FUTEX_WAIT,
            raw_read(r, FDP_D2C_CQ_TAIL), &ts, NULL, 0);
    return NULL;
}

/* Thousands of threads asleep on one completion cursor. */
void
atk_herd(struct attack *a)
{
    static struct raw r;
    pthread_attr_t at;
    uint64_t tag = 0;

    if (atk_session(a, &r, NULL) != 0)
        return;
    pthread_attr_init(&at);
    pthread_attr_setstacksize(&at, PTHREAD_STACK_MIN > 32768 ? PTHREAD_STACK_MIN : 32768);
    for (int i = 0; i < RING_HERD; i++) {
        pthread_t t;

        if (pthread_create(&t, &at, herd_sleep, &r) != 0)
            break;
    }
    while (atk_left(a) && !raw_gone(&r)) {
        struct fdp_req q = raw_req(++tag, FDP_OP_PING);

        fdr_flag_raise(raw_word(&r, FDP_C2D_CQ_WAIT), FDP_WAIT_FUTEX);
        raw_put(&r, &q);
        raw_publish(&r);
        (void)raw_skip(&r);
        a->n_op++;
        usleep(RING_PAUSE_US);
    }
}

/* ---- what the kernel must refuse ------------------------------------------- */

static void
must_fail(struct attack *a, const char *what, int allowed)
{
    a->n_op++;
    if (!allowed)
        return;
    printf("ALLOWED: %s\n", what);
    a->bad = 1;
}

static int
maps_writable(int fd)
{
    void *p = mmap(NULL, RING_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (p == MAP_FAILED)
        return 0;
    munmap(p, RING_PAGE);
    return 1;
}

/* The daemon's region by another path: its file, opened again for writing. */
static void
seals_by_proc(struct attack *a, const struct raw *r)
{
    char path[64];
    int fd;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", r->fd[1]);
    (void)fchmod(r->fd[1], 0777);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    must_fail(a, "map the daemon's region opened again", maps_writable(fd));
    must_fail(a, "write the daemon's region opened again", pwrite(fd, "x", 1, 0) == 1);
    must_fail(a, "shrink the daemon's region opened again", ftruncate(fd, 0) == 0);
    close(fd);
}

/* Memory that the daemon reads cannot be removed: tried after it has read. */
static void
seals_when_read(struct attack *a, struct raw *r)
{
    struct fdp_req q = raw_req(1, FDP_OP_PING);

    raw_put(r, &q);
    raw_publish(r);
    while (atk_left(a) && !raw_gone(r) && raw_skip(r) == 0)
        usleep(RING_PAUSE_US);
    if (!atk_left(a) || raw_gone(r))
        return;
    must_fail(a, "punch c2d",
        fallocate(r->fd[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, RING_PAGE) == 0);
    must_fail(a, "remove pages of c2d", madvise(r->c2d, RING_PAGE, MADV_REMOVE) == 0);
    must_fail(a, "map c2d writable once more", maps_writable(r->fd[0]));
}

static void
seals_of(struct attack *a, const struct raw *r)
{
    int c2d = r->fd[0], d2c = r->fd[1];
    int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    void *at = (void *)(uintptr_t)r->d2c;

    must_fail(a, "map the daemon's region writable", maps_writable(d2c));
    must_fail(a, "make the mapping writable",
        mprotect(at, RING_PAGE, PROT_READ | PROT_WRITE) == 0);
    must_fail(a, "shrink c2d", ftruncate(c2d, 0) == 0);
    must_fail(a, "shrink d2c", ftruncate(d2c, 0) == 0);
    must_fail(a, "grow c2d", ftruncate(c2d, 1 << 30) == 0);
    must_fail(a, "grow d2c", ftruncate(d2c, 1 << 30) == 0);
    must_fail(a, "grow c2d by allocation",
        fallocate(c2d, 0, 0, (off_t)r->w.c2d_bytes + (1 << 20)) == 0);
    must_fail(a, "punch d2c", fallocate(d2c, hole, 0, RING_PAGE) == 0);
    must_fail(a, "write d2c", pwrite(d2c, "x", 1, 0) == 1);
    must_fail(a, "seal c2d against the daemon", fcntl(c2d, F_ADD_SEALS, F_SEAL_WRITE) == 0);
    must_fail(a, "seal d2c against the daemon", fcntl(d2c, F_ADD_SEALS, F_SEAL_WRITE) == 0);
    must_fail(a, "remove pages of d2c", madvise(at, RING_PAGE, MADV_REMOVE) == 0);
    seals_by_proc(a, r);
}

void
atk_seals(struct attack *a)
{
    while (atk_left(a)) {
        struct raw r;

        if (atk_session(a, &r, NULL) != 0)
            return;
        seals_of(a, &r);
        seals_when_read(a, &r);
        raw_close(&r);
        usleep(10000);
    }
}

/* The process that connected stops; its child keeps writing to the mapping. */
void
atk_stopped(struct attack *a)
{
    struct raw r;
    pid_t parent = getpid(), child;

    if (atk_session(a, &r, NULL) != 0)
        return;
    for (uint32_t i = 0; i < 20; i++) {
        struct fdp_req q = raw_generate(&r, i + 1, i, 200);

        raw_put(&r, &q);
    }
    raw_publish(&r);
    child = fork();
    if (child != 0) {
        (void)raise(SIGSTOP);
        waitpid(child, NULL, 0);
        return;
    }
    while (atk_left(a)) {
        for (int i = 0; i < 1000; i++)
            *raw_word(&r, atk_rnd(a) % (r.w.c2d_bytes / 4) * 4) = (uint32_t)atk_rnd(a);
        usleep(1000);
    }
    (void)kill(parent, SIGCONT);
    _exit(0);
}
