/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The step trace: the ring as worker and readers see it, and what fdctl makes
 * of a copy. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/trace.h"
#include "tools/fdctl/lib/fct.h"
#include "tools/fdctl/trace/trace.h"

static const uint64_t boot[2] = { 0x1111, 0x2222 };

struct fx {
    struct trc_seg *seg;
    int fd;
    struct trc t;
};

static int
setup(void **state)
{
    struct fx *x = calloc(1, sizeof(*x));

    assert_non_null(x);
    assert_int_equal(trc_create(boot, &x->seg, &x->fd), 0);
    trc_init(&x->t, x->seg, 1);
    *state = x;
    return 0;
}

static int
teardown(void **state)
{
    struct fx *x = *state;

    trc_destroy(x->seg, x->fd);
    free(x);
    return 0;
}

/* Every field follows from the epoch and whether it is collected, so that a
 * mixture of two records shows. Times of step k: 1000 k us and what follows. */
static struct trc_step
step(uint64_t epoch, uint32_t flags)
{
    uint64_t ms = epoch * 1000000;
    int32_t v = (int32_t)(epoch % 1000000);
    struct trc_step s = { .epoch = epoch,
        .flags = flags,
        .n_tok = v + 1,
        .n_pad = v + 2,
        .n_row = v + 3,
        .n_decode = v + 3,
        .n_out = v + 5,
        .n_preempted = v + 6,
        .n_cached = v + 7,
        .n_copy = v + 8,
        .n_waiting = v + 9,
        .blocks_used = v + 10,
        .blocks_free = v + 11,
        .t_pick_ns = ms,
        .t_launch_ns = ms + 10000,
        .t_queued_ns = ms + 20000 };

    if ((flags & TRC_DONE) != 0) {
        s.t_begin_ns = ms + 100000;
        s.t_end_ns = ms + 900000;
        s.t_collect_ns = ms + 910000;
        s.t_done_ns = ms + 920000;
    }
    return s;
}

static int
is_step(const struct trc_step *got, uint64_t epoch)
{
    struct trc_step want = step(epoch, got->flags);

    want.seq = got->seq;
    want.generation = got->generation;
    return memcmp(&want, got, sizeof(want)) == 0;
}

static void
put(struct trc *t, uint64_t epoch, uint32_t flags)
{
    struct trc_step s = step(epoch, flags);

    trc_put_step(t, &s);
}

/* ---- ring ------------------------------------------------------------------------ */

static void
test_empty(void **state)
{
    struct fx *x = *state;
    struct trc_step s;
    struct trc_event e;

    assert_int_equal(trc_n_step(x->seg), 0);
    assert_int_equal(trc_n_event(x->seg), 0);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(trc_get_step(x->seg, i, &s), 0);
        assert_int_equal(trc_get_event(x->seg, i, &e), 0);
    }
    assert_int_equal(trc_get_step(x->seg, TRC_STEPS, &s), 0);
    assert_int_equal(trc_get_step(x->seg, UINT64_MAX, &s), 0);
}

static void
test_launch_then_done(void **state)
{
    struct fx *x = *state;
    struct trc_step s;

    put(&x->t, 1, TRC_GRAPH);
    put(&x->t, 2, 0);
    assert_int_equal(trc_n_step(x->seg), 2);
    assert_int_equal(trc_get_step(x->seg, 1, &s), 1);
    assert_int_equal(s.flags, TRC_GRAPH);
    assert_int_equal(s.t_end_ns, 0);
    assert_true(is_step(&s, 1));
    put(&x->t, 1, TRC_GRAPH | TRC_DONE | TRC_FOLLOWS);
    /* the rewrite neither counts nor moves the newest */
    assert_int_equal(trc_n_step(x->seg), 2);
    assert_int_equal(trc_get_step(x->seg, 1, &s), 1);
    assert_int_equal(s.flags, TRC_GRAPH | TRC_DONE | TRC_FOLLOWS);
    assert_int_equal(s.seq, 1);
    assert_int_equal(s.generation, 1);
    assert_true(is_step(&s, 1));
    assert_int_equal(trc_get_step(x->seg, 2, &s), 1);
    assert_int_equal(s.flags, 0);
    trc_put_event(&x->t, 77, TRC_FIRST, 9, 3, 5, 6);
    {
        struct trc_event e;

        assert_int_equal(trc_get_event(x->seg, 1, &e), 1);
        assert_int_equal(e.epoch, 2); /* last launched, not last collected */
        assert_int_equal(e.t_ns, 77);
        assert_int_equal(e.kind, TRC_FIRST);
        assert_int_equal(e.id, 9);
        assert_int_equal(e.sample, 3);
        assert_int_equal(e.a, 5);
        assert_int_equal(e.b, 6);
        assert_int_equal(e.generation, 1);
    }
}

static void
test_wrap(void **state)
{
    struct fx *x = *state;
    const uint64_t n = 2 * TRC_STEPS + 5, m = TRC_EVENTS + 7;
    struct trc_step s;
    struct trc_event e;

    for (uint64_t i = 1; i <= n; i++) {
        put(&x->t, i, 0);
        put(&x->t, i, TRC_DONE);
    }
    for (uint64_t i = 1; i <= m; i++)
        trc_put_event(&x->t, i, TRC_END, i, 0, 0, (int32_t)i);
    assert_int_equal(trc_n_step(x->seg), n);
    for (uint64_t i = 1; i <= n + 2; i++) {
        assert_int_equal(trc_get_step(x->seg, i, &s), i > n - TRC_STEPS && i <= n);
        if (i > n - TRC_STEPS && i <= n)
            assert_true(s.seq == i && is_step(&s, i));
    }
    for (uint64_t i = 1; i <= m + 2; i++) {
        assert_int_equal(trc_get_event(x->seg, i, &e), i > m - TRC_EVENTS && i <= m);
        if (i > m - TRC_EVENTS && i <= m)
            assert_true(e.seq == i && e.id == i && e.b == (int32_t)i);
    }
}

static void
test_generations(void **state)
{
    struct fx *x = *state;
    struct trc two;
    struct trc_step s;
    struct trc_event e;

    for (uint64_t i = 1; i <= 5; i++)
        put(&x->t, i, i < 5 ? TRC_DONE : 0);
    trc_put_event(&x->t, 1, TRC_START, 1, 0, 0, 0);
    trc_init(&two, x->seg, 2);
    trc_put_event(&two, 2, TRC_SUBMIT, 2, 0, 0, 0);
    put(&two, 1, 0);
    put(&two, 1, TRC_DONE);
    put(&two, 2, 0);
    assert_int_equal(trc_n_step(x->seg), 7);
    assert_int_equal(trc_get_step(x->seg, 5, &s), 1);
    assert_true(s.generation == 1 && s.epoch == 5 && (s.flags & TRC_DONE) == 0);
    assert_int_equal(trc_get_step(x->seg, 6, &s), 1);
    assert_true(s.generation == 2 && s.epoch == 1 && s.seq == 6);
    assert_int_equal(trc_get_event(x->seg, 1, &e), 1);
    assert_true(e.epoch == 5 && e.generation == 1);
    assert_int_equal(trc_get_event(x->seg, 2, &e), 1);
    assert_true(e.epoch == 0 && e.generation == 2);
}

static void
test_null(void **state)
{
    struct trc_step s = step(1, TRC_DONE);
    struct trc t;

    (void)state;
    trc_put_step(NULL, &s);
    trc_put_event(NULL, 1, TRC_END, 1, 0, 0, 0);
    trc_init(&t, NULL, 3);
    trc_put_step(&t, &s);
    trc_put_event(&t, 1, TRC_END, 1, 0, 0, 0);
    assert_int_equal(t.epoch, 0);
    assert_int_equal(s.generation, 0);
    trc_leave(NULL);
    trc_destroy(NULL, -1);
}

/* ---- writer and readers at the same time ----------------------------------------- */

#define RACE_STEPS 100000
#ifdef __SANITIZE_THREAD__
#define RACE_READS 100000
#else
#define RACE_READS 2000000
#endif

struct race {
    struct fx *x;
    int stop;
    uint64_t n_read, n_old, n_bad, last;
};

static void *
writer(void *arg)
{
    struct race *r = arg;

    for (uint64_t i = 1; i <= RACE_STEPS; i++) {
        put(&r->x->t, i, 0);
        if (i > 1)
            put(&r->x->t, i - 1, TRC_DONE | TRC_FOLLOWS);
        trc_put_event(&r->x->t, i * 3, TRC_RESUME, i * 5, (uint32_t)(i % 65536),
            (int32_t)(i * 7), (int32_t)(i * 11));
    }
    /* the same place again and again, with other numbers, until it was seen often */
    for (uint64_t i = 1; i <= 20 * RACE_STEPS &&
         (i < RACE_STEPS || __atomic_load_n(&r->n_read, __ATOMIC_RELAXED) < RACE_READS);
         i++) {
        r->last = RACE_STEPS + i * TRC_STEPS;
        put(&r->x->t, r->last, 0);
        put(&r->x->t, r->last, TRC_DONE);
    }
    __atomic_store_n(&r->stop, 1, __ATOMIC_RELEASE);
    return NULL;
}

static int
is_event(const struct trc_event *e, uint64_t i)
{
    return e->seq == i && e->t_ns == i * 3 && e->id == i * 5 && e->epoch == i &&
        e->sample == i % 65536 && e->a == (int32_t)(i * 7) && e->b == (int32_t)(i * 11) &&
        e->kind == TRC_RESUME && e->generation == 1;
}

static void
look_at(struct race *r, uint64_t i)
{
    struct trc_step s;

    if (!trc_get_step(r->x->seg, i, &s)) {
        r->n_old++;
        return;
    }
    __atomic_fetch_add(&r->n_read, 1, __ATOMIC_RELAXED);
    r->n_bad += s.seq != i || !is_step(&s, i);
}

static void *
reader(void *arg)
{
    struct race *r = arg;
    struct trc_event e;

    do {
        uint64_t n = trc_n_step(r->x->seg), m = trc_n_event(r->x->seg);
        uint64_t old = n > TRC_STEPS ? n - TRC_STEPS + 1 : 1;
        const uint64_t ev[] = { m, m > TRC_EVENTS ? m - TRC_EVENTS + 1 : 1 };

        /* those that are written next, so that its writer has to wait for the
         * second half of one whose first half it has written */
        for (size_t k = 0; k < 16 && n > 1; k++) {
            look_at(r, trc_n_step(r->x->seg));
            look_at(r, n - 1);
            look_at(r, old + k);
        }
        for (size_t k = 0; k < 2 && m > 0; k++)
            if (trc_get_event(r->x->seg, ev[k], &e))
                r->n_bad += !is_event(&e, ev[k]);
    } while (!__atomic_load_n(&r->stop, __ATOMIC_ACQUIRE));
    return NULL;
}

static void
test_race(void **state)
{
    struct race r = { .x = *state };
    pthread_t w, rd;
    struct trc_step s;

    assert_int_equal(pthread_create(&rd, NULL, reader, &r), 0);
    assert_int_equal(pthread_create(&w, NULL, writer, &r), 0);
    pthread_join(w, NULL);
    pthread_join(rd, NULL);
    assert_true(r.n_read > 0);
    assert_int_equal(r.n_bad, 0);
    assert_int_equal(trc_get_step(r.x->seg, r.last, &s), 1);
}

/* A record half written is not given out. */
static void
test_half_written(void **state)
{
    struct fx *x = *state;
    struct trc_step s;
    uint64_t seq;

    put(&x->t, 1, TRC_DONE);
    seq = x->seg->step[0].seq;
    x->seg->step[0].seq = 0;
    assert_int_equal(trc_get_step(x->seg, 1, &s), 0);
    x->seg->step[0].seq = seq;
    assert_int_equal(trc_get_step(x->seg, 1, &s), 1);
    assert_int_equal(trc_get_step(x->seg, 1 + TRC_STEPS, &s), 0);
}

/* ---- segments -------------------------------------------------------------------- */

static void
test_join(void **state)
{
    struct fx *x = *state;
    struct trc_seg *other;
    struct trc_step s;
    struct trc t;
    int fd, pipefd[2];

    assert_int_equal(trc_join(x->fd, &other), 0);
    trc_init(&t, other, 4);
    put(&t, 1, TRC_DONE);
    assert_int_equal(trc_get_step(x->seg, 1, &s), 1);
    assert_int_equal(s.generation, 4);
    trc_leave(other);

    x->seg->version++;
    assert_int_equal(trc_join(x->fd, &other), -EINVAL);
    x->seg->version--;
    x->seg->n_step /= 2;
    assert_int_equal(trc_join(x->fd, &other), -EINVAL);
    x->seg->n_step *= 2;
    x->seg->n_event++;
    assert_int_equal(trc_join(x->fd, &other), -EINVAL);
    x->seg->n_event--;
    x->seg->magic = 0;
    assert_int_equal(trc_join(x->fd, &other), -EINVAL);
    x->seg->magic = TRC_MAGIC;

    assert_int_equal(trc_join(-1, &other), -EINVAL);
    assert_int_equal(pipe(pipefd), 0);
    assert_int_equal(trc_join(pipefd[0], &other), -EINVAL);
    close(pipefd[0]);
    close(pipefd[1]);
    fd = memfd_create("short", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)sizeof(struct trc_seg) - 1), 0);
    assert_int_equal(trc_join(fd, &other), -EINVAL);
    close(fd);
}

static void
test_look(void **state)
{
    struct fx *x = *state;
    const struct trc_seg *seen;
    int fd;

    assert_int_equal(trc_look(-1, &seen), -EPROTO);
    assert_int_equal(trc_look(x->fd, &seen), 0);
    assert_int_equal(seen->boot_id[1], boot[1]);
    trc_leave((struct trc_seg *)(uintptr_t)seen);
    x->seg->version++;
    assert_int_equal(trc_look(x->fd, &seen), -EPROTO);
    x->seg->version--;
    /* who maps what its owner can cut short may be ended by SIGBUS */
    fd = memfd_create("cut", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(write(fd, x->seg, sizeof(*x->seg)), (ssize_t)sizeof(*x->seg));
    assert_int_equal(trc_look(fd, &seen), -EPROTO);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(trc_look(fd, &seen), 0);
    trc_leave((struct trc_seg *)(uintptr_t)seen);
    assert_int_equal(ftruncate(fd, sizeof(*x->seg) + 4096), 0);
    assert_int_equal(trc_look(fd, &seen), -EPROTO);
    (void)close(fd);
}

/* ---- what fdctl makes of it ------------------------------------------------------ */

static void
test_read_overwritten(void **state)
{
    struct fx *x = *state;
    struct ftr_snap s = { 0 };

    for (uint64_t i = 1; i <= TRC_STEPS + 10; i++)
        put(&x->t, i, TRC_DONE);
    s.steps = calloc(TRC_STEPS + 10, sizeof(*s.steps));
    assert_non_null(s.steps);
    /* what is asked for was all there when it was asked for */
    ftr_read_steps(x->seg, 5, 20, &s);
    assert_int_equal(s.n_step, 10);
    assert_int_equal(s.lost_steps, 6);
    assert_int_equal(s.torn_steps, 0);
    for (uint64_t i = 0; i < 10; i++)
        assert_true(is_step(&s.steps[i].s, 11 + i));
    /* one that its writer died over */
    x->seg->step[20].seq = 0;
    s.n_step = s.lost_steps = 0;
    ftr_read_steps(x->seg, 20, 22, &s);
    assert_int_equal(s.n_step, 2);
    assert_int_equal(s.lost_steps, 0);
    assert_int_equal(s.torn_steps, 1);
    ftr_free(&s);
    assert_int_equal(ftr_read(x->seg, TRC_STEPS + 7, &s), 0);
    assert_int_equal(s.n_step, 4);
    assert_int_equal(s.steps[0].s.seq, TRC_STEPS + 7);
    ftr_free(&s);
}

static void
test_derive(void **state)
{
    struct fx *x = *state;
    struct ftr_snap s;
    struct trc two;

    put(&x->t, 1, TRC_DONE);
    put(&x->t, 2, TRC_DONE | TRC_FOLLOWS);
    put(&x->t, 3, TRC_DONE);
    put(&x->t, 4, 0);
    trc_init(&two, x->seg, 2);
    put(&two, 1, TRC_DONE | TRC_FOLLOWS);
    put(&two, 2, 0);
    assert_int_equal(ftr_read(x->seg, 0, &s), 0);
    assert_int_equal(s.n_step, 6);
    ftr_derive(&s);
    assert_true(s.steps[0].gap_ns == FTR_NONE);
    assert_int_equal(s.steps[1].gap_ns, 200000);
    assert_true(s.steps[2].gap_ns == FTR_NONE); /* it waited for work */
    assert_true(s.steps[4].gap_ns == FTR_NONE); /* another worker's before it */
    assert_true(s.steps[3].lost && !s.steps[5].lost);
    s.generation = 3;
    ftr_derive(&s);
    assert_true(s.steps[5].lost);
    s.generation = 0;
    s.ended = 1;
    ftr_derive(&s);
    assert_true(s.steps[5].lost && !s.steps[0].lost);
    assert_int_equal(s.n_base, 2);
    assert_int_equal(s.bases[0].base, 4);
    assert_int_equal(s.bases[1].base, 0);
    ftr_free(&s);
}

static void
test_filter(void **state)
{
    struct fx *x = *state;
    struct ftr_filter f;
    struct ftr_snap s;

    for (uint64_t i = 1; i <= 100; i++) {
        trc_put_event(&x->t, i * 1000000, TRC_START, i % 10 + 1, 0, 0, 0);
        put(&x->t, i, TRC_DONE | TRC_FOLLOWS);
    }
#define FILTERED(n_steps, n_events, first) \
    do { \
        assert_int_equal(ftr_read(x->seg, 0, &s), 0); \
        ftr_derive(&s); \
        ftr_filter(&s, &f); \
        assert_int_equal(s.n_step, n_steps); \
        assert_int_equal(s.n_event, n_events); \
        assert_int_equal(s.n_step > 0 ? s.steps[0].s.seq : 0, first); \
        ftr_free(&s); \
    } while (0)
    f = (struct ftr_filter)FTR_ALL;
    FILTERED(100, 100, 1);
    f.last = 7;
    FILTERED(7, 7, 94);
    f.last = 0;
    f.since_ns = 50 * 1000000 + 10000; /* step 50's launch */
    FILTERED(51, 50, 50);
    f.until_ns = 60 * 1000000;
    FILTERED(10, 10, 50);
    f.request = 3;
    FILTERED(10, 1, 50);
    f = (struct ftr_filter)FTR_ALL;
    f.step_a = 20;
    f.step_b = 29;
    FILTERED(10, 10, 20);
    f = (struct ftr_filter)FTR_ALL;
    f.slow_ns = 800000; /* longer than, not as long as */
    FILTERED(0, 100, 0);
    f.slow_ns = 799999;
    FILTERED(100, 100, 1);
#undef FILTERED
}

/* A request's start and end choose its steps; a slow gap makes a step slow. */
static void
test_life(void **state)
{
    struct fx *x = *state;
    struct ftr_snap s;
    struct ftr_life l;
    uint64_t a = 0, b = 0;

    trc_put_event(&x->t, 100, TRC_SUBMIT, 5, 0, 12, 40);
    trc_put_event(&x->t, 200, TRC_SUBMIT, 6, 0, 12, 40);
    put(&x->t, 1, TRC_DONE);
    trc_put_event(&x->t, 1000, TRC_START, 5, 0, 0, 0);
    put(&x->t, 2, TRC_DONE);
    trc_put_event(&x->t, 3000, TRC_FIRST, 5, 0, 0, 0);
    trc_put_event(&x->t, 4000, TRC_PREEMPT, 5, 0, 13, 0);
    put(&x->t, 3, TRC_DONE);
    trc_put_event(&x->t, 7000, TRC_RESUME, 5, 0, 0, 0);
    put(&x->t, 4, TRC_DONE);
    trc_put_event(&x->t, 9000, TRC_END, 5, 0, 0, 40);
    put(&x->t, 5, TRC_DONE);
    trc_put_event(&x->t, 9500, TRC_END, 6, 0, -3, 0);
    assert_int_equal(ftr_read(x->seg, 0, &s), 0);
    ftr_derive(&s);
    assert_int_equal(ftr_life(&s, 7, &l), -ENOENT);
    assert_int_equal(ftr_life(&s, 5, &l), 0);
    assert_int_equal(l.t_submit, 100);
    assert_int_equal(l.t_start, 1000);
    assert_int_equal(l.t_first, 3000);
    assert_int_equal(l.t_end, 9000);
    assert_int_equal(l.n_preempted, 1);
    assert_int_equal(l.preempted_ns, 3000);
    assert_int_equal(l.n_out, 40);
    assert_int_equal(ftr_life_steps(&s, &l, &a, &b), 0);
    assert_int_equal(a, 2);
    assert_int_equal(b, 4);
    /* it never ran */
    assert_int_equal(ftr_life(&s, 6, &l), 0);
    assert_int_equal(ftr_life_steps(&s, &l, &a, &b), -ENOENT);
    assert_true(l.t_start == FTR_NONE && l.code == -3);
    assert_string_equal(ftr_code(l.code), "E_PERM");
    ftr_free(&s);
}

/* The sum over n steps has this number at key. */
static void
sum_is(const struct ftr_step *steps, size_t n, const char *key, double want)
{
    json_t *sum = ftr_sum(steps, n);

    assert_non_null(sum);
    assert_true(json_is_number(json_object_get(sum, key)));
    assert_true(fabs(fct_real(sum, key) - want) < 1e-6);
    json_decref(sum);
}

static void
test_sum(void **state)
{
    struct ftr_step steps[200];
    json_t *sum;

    (void)state;
    for (uint64_t i = 0; i < 200; i++) {
        steps[i] =
            (struct ftr_step){ .s = step(i + 1, TRC_DONE | (i % 4 == 0 ? TRC_GRAPH : 0)),
                .gap_ns = i == 0 ? FTR_NONE : i };
        steps[i].s.t_end_ns = steps[i].s.t_begin_ns + (i + 1) * 1000;
        if (i > 0)
            steps[i].s.t_pick_ns = steps[i].s.t_begin_ns - (i + 1) * 100;
    }
    sum_is(steps, 200, "collected", 200);
    sum_is(steps, 200, "graphs", 50);
    sum_is(steps, 200, "tokens", 200 * 201 / 2 + 200);
    sum_is(steps, 200, "device_mean_us", 100.5);
    sum_is(steps, 200, "device_p99_us", 198);
    sum_is(steps, 200, "gap_mean_us", 0.1);
    sum_is(steps, 200, "gap_p99_us", 0.198);  /* the 198th of 199 */
    sum_is(steps, 200, "ahead_p50_us", 10.1); /* the 100th of 200, 200 to 20000 and one */
    sum_is(steps, 200, "ahead_p99_us", 19.9);
    sum_is(steps, 200, "ahead_max_us", 100);
    sum_is(steps, 200, "span_us", 199 * 1000 + 100 + 200);
    /* the device did others until 7 ns before the first */
    steps[0].gap_ns = 7;
    sum_is(steps, 200, "span_us", 199 * 1000 + 200 + 0.007);
    sum_is(steps, 0, "span_us", 0);
    sum_is(steps, 0, "collected", 0);
    sum_is(steps, 0, "device_p99_us", 0);
    sum = ftr_sum(steps, 0);
    assert_true(json_is_null(json_object_get(sum, "gap_mean_us")));
    assert_true(json_is_null(json_object_get(sum, "ahead_p50_us")));
    json_decref(sum);
    steps[0].s.flags = 0;
    sum_is(steps, 1, "collected", 0);
    sum_is(steps, 1, "tokens", 0);
}

static void
test_time(void **state)
{
    /* 2024-03-05 14:03:00.5 UTC, 100 s after the machine started */
    const struct ftr_clock now = { 100000000000u, 1709647380500000000u };
    static const char *const bad[] = { "", "5", "5 s", "-5s", "s", "5x", "nan", "infs",
        "14:03", "25:00:00", "14:60:00", "14:03:00.", "14:03:00,5", "14:03:00.5x", "1e" };
    char text[32];
    uint64_t t = 0;

    (void)state;
    setenv("TZ", "UTC0", 1);
    tzset();
    assert_int_equal(ftr_time("--since", "5s", &now, &t), 0);
    assert_int_equal(t, 95000000000u);
    assert_int_equal(ftr_time("--since", "200ms", &now, &t), 0);
    assert_int_equal(t, 99800000000u);
    assert_int_equal(ftr_time("--since", "1.5m", &now, &t), 0);
    assert_int_equal(t, 10000000000u);
    assert_int_equal(ftr_time("--since", "0s", &now, &t), 0);
    assert_int_equal(t, now.mono_ns);
    assert_int_equal(ftr_time("--since", "3h", &now, &t), 0);
    assert_int_equal(t, 0); /* before the machine started */
    assert_int_equal(ftr_time("--since", "14:02:59", &now, &t), 0);
    assert_int_equal(t, 98500000000u);
    assert_int_equal(ftr_time("--since", "14:02:59.250", &now, &t), 0);
    assert_int_equal(t, 98750000000u);
    assert_int_equal(ftr_time("--since", "14:03:01", &now, &t), 0);
    assert_int_equal(t, 0); /* yesterday's */
    ftr_time_text(&now, 98750000000u, text);
    assert_string_equal(text, "14:02:59.250000");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(ftr_time("--since", bad[i], &now, &t), EX_USAGE);
}

/* A trace with nothing in it is an object for the viewer too. */
static void
test_perfetto_empty(void **state)
{
    struct ftr_snap s = { .clock = { 5, 6 } };
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    json_t *doc;

    (void)state;
    assert_non_null(out);
    assert_int_equal(ftr_perfetto(out, &s), 0);
    fclose(out);
    doc = json_loadb(text, n, 0, NULL);
    assert_true(json_is_array(json_object_get(doc, "traceEvents")));
    json_decref(doc);
    free(text);
}

/* A trace with everything in it is one object with as many slices as steps. */
static void
test_perfetto(void **state)
{
    struct fx *x = *state;
    char *text = NULL;
    size_t n = 0, i, slices = 0, begun = 0, ended = 0;
    struct ftr_snap s;
    json_t *doc, *e;
    FILE *out;

    for (uint64_t k = 1; k <= 20; k++) {
        trc_put_event(&x->t, k * 1000000, TRC_SUBMIT, k, 0, 1, 2);
        trc_put_event(&x->t, k * 1000000 - 5, TRC_READY, k, 0, 0, 0); /* clocks differ */
        if (k % 2 == 0)
            trc_put_event(&x->t, k * 1000000 + 9, TRC_START, k, k % 3, 0, 0);
        if (k % 4 == 0)
            trc_put_event(&x->t, k * 1000000 + 20, TRC_END, k, 0, 0, 2);
        put(&x->t, k, k < 19 ? TRC_DONE : 0);
    }
    assert_int_equal(ftr_read(x->seg, 0, &s), 0);
    ftr_derive(&s);
    out = open_memstream(&text, &n);
    assert_non_null(out);
    assert_int_equal(ftr_perfetto(out, &s), 0);
    fclose(out);
    doc = json_loadb(text, n, 0, NULL);
    assert_non_null(doc);
    json_array_foreach(json_object_get(doc, "traceEvents"), i, e) {
        const char *ph = json_string_value(json_object_get(e, "ph"));

        slices +=
            strcmp(ph, "X") == 0 && json_integer_value(json_object_get(e, "pid")) == 1;
        begun += strcmp(ph, "b") == 0;
        ended += strcmp(ph, "e") == 0;
    }
    assert_int_equal(slices, 18);
    assert_true(begun >= 40 && begun == ended);
    json_decref(doc);
    free(text);
    ftr_free(&s);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_empty, setup, teardown),
        cmocka_unit_test_setup_teardown(test_launch_then_done, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrap, setup, teardown),
        cmocka_unit_test_setup_teardown(test_generations, setup, teardown),
        cmocka_unit_test(test_null),
        cmocka_unit_test_setup_teardown(test_race, setup, teardown),
        cmocka_unit_test_setup_teardown(test_half_written, setup, teardown),
        cmocka_unit_test_setup_teardown(test_join, setup, teardown),
        cmocka_unit_test_setup_teardown(test_look, setup, teardown),
        cmocka_unit_test_setup_teardown(test_read_overwritten, setup, teardown),
        cmocka_unit_test_setup_teardown(test_derive, setup, teardown),
        cmocka_unit_test_setup_teardown(test_filter, setup, teardown),
        cmocka_unit_test_setup_teardown(test_life, setup, teardown),
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_perfetto_empty),
        cmocka_unit_test_setup_teardown(test_perfetto, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
