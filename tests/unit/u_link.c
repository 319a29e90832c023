/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The gate-worker link: records, padding, wrap, wake-ups, a peer
 * that violates the protocol. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/link.h"

struct pair {
    struct lnk_seg *seg, *seg_w;
    int fd, efd;
    struct lnk g, w;
};

static void
pair_open(struct pair *p)
{
    assert_int_equal(lnk_create(NULL, 7, &p->seg, &p->fd), 0);
    assert_int_equal(lnk_join(p->fd, &p->seg_w), 0);
    p->efd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    lnk_init_gate(&p->g, p->seg, p->efd);
    lnk_init_worker(&p->w, p->seg_w, p->efd);
}

static void
pair_close(struct pair *p)
{
    lnk_leave(p->seg);
    lnk_leave(p->seg_w);
    (void)close(p->fd);
    (void)close(p->efd);
}

static void
t_join_refuses(void **state)
{
    struct lnk_seg *seg = NULL;
    int fd = memfd_create("x", MFD_CLOEXEC);

    (void)state;
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(lnk_join(fd, &seg), -EINVAL);
    assert_int_equal(ftruncate(fd, sizeof(struct lnk_seg)), 0);
    assert_int_equal(lnk_join(fd, &seg), -EINVAL); /* right size, no magic */
    assert_null(seg);
    (void)close(fd);
    assert_int_equal(lnk_join(-1, &seg), -EBADF);
}

/* The name that a segment has for a moment does not reveal the next one's. */
static void
t_name(void **state)
{
    struct lnk_seg *seg[2];
    char link[64], path[96], *name[2];
    struct stat st;
    int fd[2], same = 0;

    (void)state;
    for (int i = 0; i < 2; i++) {
        ssize_t n;

        assert_int_equal(lnk_create(NULL, 1, &seg[i], &fd[i]), 0);
        assert_int_equal(fstat(fd[i], &st), 0);
        assert_int_equal(st.st_nlink, 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd[i]);
        n = readlink(link, path, sizeof(path) - 1);
        assert_true(n > 0);
        path[n] = '\0';
        name[i] = strstr(path, "/fdd-link-");
        assert_non_null(name[i]);
        name[i] = strdup(name[i] + 10);
        assert_int_equal(strspn(name[i], "0123456789abcdef"), 32);
        assert_string_equal(name[i] + 32, " (deleted)");
    }
    /* 2 of 32 agree on average, by chance */
    for (int i = 0; i < 32; i++)
        same += name[0][i] == name[1][i];
    assert_true(same < 14);
    for (int i = 0; i < 2; i++) {
        lnk_leave(seg[i]);
        (void)close(fd[i]);
        free(name[i]);
    }
}

/* Records of random lengths through many wraps, in both directions, equal those sent. */
static void
t_random(void **state)
{
    struct pair p;
    unsigned char want;
    uint64_t sent = 0, got = 0;
    unsigned seed = 1;

    (void)state;
    pair_open(&p);
    assert_int_equal(p.seg_w->generation, 7);
    for (int round = 0; round < 3000; round++) {
        int n = rand_r(&seed) % 12;

        for (int i = 0; i < n; i++) {
            /* the length of record k is a function of k */
            uint32_t len = (uint32_t)(sent * 2654435761u) % (FDP_REC_MAX_LEN + 1);
            unsigned char *to = lnk_claim(&p.g, sent, LNK_T_BLOB, 3, 9, len);

            if (to == NULL)
                break;
            memset(to, (int)(sent & 0xff), len);
            sent++;
        }
        assert_true(round > 0 || lnk_peek(&p.w) == NULL); /* not before the flush */
        lnk_flush(&p.g);
        for (int i = rand_r(&seed) % 12; i > 0; i--) {
            const struct fdp_rec *r = lnk_peek(&p.w);
            uint32_t len = (uint32_t)(got * 2654435761u) % (FDP_REC_MAX_LEN + 1);

            if (r == NULL)
                break;
            want = (unsigned char)(got & 0xff);
            assert_int_equal(r->tag, got);
            assert_int_equal(r->type, LNK_T_BLOB);
            assert_int_equal(r->sample, 3);
            assert_int_equal(r->position, 9);
            assert_int_equal(r->len, len);
            if (len > 0) {
                const unsigned char *d = (const void *)(r + 1);

                assert_int_equal(d[0], want);
                assert_int_equal(d[len - 1], want);
            }
            lnk_next(&p.w, r);
            got++;
        }
    }
    assert_true(sent > 9000 && p.g.out.tail > 4 * LNK_DOWN_SLOTS);
    assert_false(p.g.bad || p.w.bad);
    pair_close(&p);
}

static void
t_full(void **state)
{
    struct pair p;
    uint32_t n = 0;

    (void)state;
    pair_open(&p);
    while (lnk_claim(&p.w, n, FDP_T_IDS, 0, 0, 4) != NULL)
        n++;
    assert_int_equal(n, LNK_UP_SLOTS);
    lnk_flush(&p.w);
    assert_null(lnk_claim(&p.w, n, FDP_T_IDS, 0, 0, 4));
    lnk_next(&p.g, lnk_peek(&p.g));
    assert_non_null(lnk_claim(&p.w, n, FDP_T_IDS, 0, 0, 4));
    assert_null(lnk_claim(&p.w, n, FDP_T_IDS, 0, 0, 100));
    pair_close(&p);
}

static void
t_bad_peer(void **state)
{
    struct pair p;
    struct fdp_rec *r;

    (void)state;
    pair_open(&p);
    p.seg->up_tail.v = LNK_UP_SLOTS + 1;
    assert_null(lnk_peek(&p.g));
    assert_true(p.g.bad);
    pair_close(&p);

    for (int i = 0; i < 4; i++) {
        pair_open(&p);
        (void)lnk_claim(&p.w, 1, FDP_T_IDS, 0, 0, 4);
        lnk_flush(&p.w);
        r = (struct fdp_rec *)(void *)p.seg->up;
        if (i == 0)
            r->n_slot = 0;
        else if (i == 1)
            r->n_slot = 2; /* more than published */
        else if (i == 2)
            r->len = 41; /* more than its slot holds */
        assert_int_equal(lnk_peek(&p.g) == NULL, i < 3);
        assert_int_equal(p.g.bad, i < 3);
        pair_close(&p);
    }

    pair_open(&p);
    p.seg->down_head.v = LNK_DOWN_SLOTS + 100; /* never claimed */
    while (!p.g.bad && lnk_claim(&p.g, 1, LNK_T_BLOB, 0, 0, 4000) != NULL)
        continue;
    assert_true(p.g.bad);
    pair_close(&p);
}

static void
t_wake_gate(void **state)
{
    struct pair p;
    uint64_t n;

    (void)state;
    pair_open(&p);
    /* awake: no system call */
    (void)lnk_claim(&p.w, 1, FDP_T_IDS, 0, 0, 4);
    lnk_flush(&p.w);
    assert_int_equal(read(p.efd, &n, 8), -1);
    /* a record is there: do not sleep */
    assert_int_equal(lnk_gate_park(&p.g), 1);
    lnk_gate_unpark(&p.g);
    lnk_next(&p.g, lnk_peek(&p.g));
    assert_int_equal(lnk_gate_park(&p.g), 0);
    for (int i = 0; i < 3; i++) {
        (void)lnk_claim(&p.w, 1, FDP_T_IDS, 0, 0, 4);
        lnk_flush(&p.w);
    }
    assert_int_equal(read(p.efd, &n, 8), 8);
    assert_int_equal(n, 1); /* one wake-up for each sleep */
    lnk_gate_unpark(&p.g);
    pair_close(&p);
}

static void *
worker_thread(void *arg)
{
    struct pair *p = arg;
    uint64_t n = 0;

    while (n < 2000) {
        const struct fdp_rec *r = lnk_peek(&p->w);

        if (r == NULL) {
            lnk_worker_park(&p->w, 10 * CLK_S);
            continue;
        }
        n++;
        lnk_next(&p->w, r);
    }
    return NULL;
}

/* Seconds by which the real-time clock is ahead of the time by which the kernel waits. */
static _Atomic int64_t ahead_s;

int
clock_gettime(clockid_t id, struct timespec *ts)
{
    int rc = (int)syscall(SYS_clock_gettime, id, ts);

    if (rc == 0 && id == CLOCK_REALTIME)
        ts->tv_sec += ahead_s;
    return rc;
}

/* Regression: ingress slept until a time of day, for hours if the clock was set
 * back by hours at that moment. */
static void
park_under_clock(struct lnk *worker, int64_t ahead)
{
    uint64_t t0 = clk_now_ns();

    ahead_s = ahead;
    (void)alarm(20);
    assert_int_equal(lnk_worker_park(worker, 20 * CLK_MS), 0);
    assert_true(clk_now_ns() - t0 >= 20 * CLK_MS); /* nor does it spin */
    (void)alarm(0);
    ahead_s = 0;
}

/* A lost wake-up would cost ten seconds each. */
static void
t_wake_worker(void **state)
{
    struct pair p;
    pthread_t th;
    uint64_t t0 = clk_now_ns();

    (void)state;
    pair_open(&p);
    lnk_worker_park(&p.w, 1 * CLK_MS); /* nothing arrives: returns */
    park_under_clock(&p.w, 10800);
    park_under_clock(&p.w, -10800);
    lnk_wake_ingress(&p.w); /* before the sleep that it ends */
    assert_int_equal(lnk_worker_park(&p.w, 10 * CLK_S), 1);
    assert_int_equal(lnk_worker_park(&p.w, 1 * CLK_MS), 0);
    assert_int_equal(pthread_create(&th, NULL, worker_thread, &p), 0);
    for (int i = 0; i < 2000; i++) {
        while (lnk_claim(&p.g, 1, LNK_T_CANCEL, 0, 0, 8) == NULL)
            clk_relax();
        lnk_flush(&p.g);
        if (i % 7 == 0)
            clk_sleep_ns(20 * CLK_US);
    }
    assert_int_equal(pthread_join(th, NULL), 0);
    assert_true(clk_now_ns() - t0 < 9 * CLK_S);
    pair_close(&p);
}

/* The worker reads a consistent set of parameters. */
static void *
par_writer(void *arg)
{
    struct lnk_seg *seg = arg;
    struct par *p = calloc(1, sizeof(*p));

    for (uint32_t i = 0; i < 2000; i++) {
        memset(p, (int)(i % 2) * 0x55, sizeof(*p));
        lnk_put_par(seg, p);
    }
    free(p);
    return NULL;
}

static void
parameters_of_one_moment(void **state)
{
    struct lnk_seg *seg;
    struct par *p = calloc(1, sizeof(*p));
    pthread_t th;
    int fd, n = 0;

    (void)state;
    assert_non_null(p);
    assert_int_equal(lnk_create(p, 1, &seg, &fd), 0);
    assert_int_equal(pthread_create(&th, NULL, par_writer, seg), 0);
    for (int i = 0; i < 2000; i++) {
        const unsigned char *b = (const unsigned char *)p;

        if (lnk_get_par(seg, p) != 0)
            continue;
        n++;
        for (size_t k = 1; k < sizeof(*p); k += 61)
            assert_int_equal(b[k], b[0]);
    }
    (void)pthread_join(th, NULL);
    assert_true(n > 0);
    /* a gate that stopped in the middle of an update */
    seg->par_seq++;
    assert_int_equal(lnk_get_par(seg, p), -EAGAIN);
    lnk_leave(seg);
    (void)close(fd);
    free(p);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_of_one_moment),
        cmocka_unit_test(t_join_refuses),
        cmocka_unit_test(t_name),
        cmocka_unit_test(t_bad_peer),
        cmocka_unit_test(t_full),
        cmocka_unit_test(t_random),
        cmocka_unit_test(t_wake_gate),
        cmocka_unit_test(t_wake_worker),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
