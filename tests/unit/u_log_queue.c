/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The queue of log lines: bounds, order over many laps, dropped lines and their report,
 * the last lines, and threads together with the reader. */
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
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/log_queue.h"

static struct lgq q;
static char buf[LGQ_BYTES + 1];

static int
setup(void **state)
{
    (void)state;
    lgq_init(&q);
    return 0;
}

static int
put(const char *text)
{
    return lgq_put(&q, text, strlen(text));
}

/* Takes all lines as text in buf. Returns its length. */
static size_t
take_all(void)
{
    char some[LGQ_LINE_BYTES];
    size_t used = 0, n;
    uint64_t next;

    while ((n = lgq_take(&q, some, sizeof(some), &next)) != 0) {
        memcpy(buf + used, some, n);
        used += n;
        lgq_release(&q, next);
    }
    buf[used] = '\0';
    return used;
}

static void
t_misuse(void **state)
{
    static char big[LGQ_LINE_BYTES + 1];

    (void)state;
    memset(big, 'x', sizeof(big));
    assert_int_equal(lgq_put(&q, big, 0), -EINVAL);
    assert_int_equal(lgq_put(&q, big, sizeof(big)), -EINVAL);
    assert_int_equal(take_all(), 0);
    assert_int_equal(lgq_lost(&q), 0);
    assert_int_equal(lgq_put(&q, big, LGQ_LINE_BYTES), 0);
    assert_int_equal(take_all(), LGQ_LINE_BYTES);
    assert_int_equal(lgq_last(&q, buf, 1), 0);
}

static void
t_lines_stay_until_released(void **state)
{
    char some[LGQ_LINE_BYTES];
    uint64_t next;

    (void)state;
    assert_int_equal(put("one\n"), 0);
    assert_int_equal(put("two two\n"), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(lgq_take(&q, some, sizeof(some), &next), 12);
        assert_memory_equal(some, "one\ntwo two\n", 12);
    }
    lgq_release(&q, next);
    assert_int_equal(lgq_take(&q, some, sizeof(some), &next), 0);
}

/* Lines of all lengths over many laps come back unchanged, none twice. */
static void
t_laps(void **state)
{
    static char line[LGQ_LINE_BYTES];
    uint32_t seed = 7, n_in = 0, n_out = 0;

    (void)state;
    for (int round = 0; round < 400; round++) {
        for (int i = 0; i < 20; i++) {
            size_t n = 8 + (seed = seed * 1103515245 + 12345) / 65536 % 600;

            memset(line, 'a' + (int)(n_in % 26), n);
            (void)snprintf(line, sizeof(line), "%06u", n_in++);
            line[6] = ' ';
            line[n - 1] = '\n';
            assert_int_equal(lgq_put(&q, line, n), 0);
        }
        (void)take_all();
        for (char *p = buf; *p != '\0'; p = strchr(p, '\n') + 1) {
            assert_int_equal(strtoul(p, NULL, 10), n_out++);
            assert_true(p[7] == '\n' || p[7] == 'a' + (int)((n_out - 1) % 26));
        }
    }
    assert_int_equal(n_in, n_out);
}

/* Bytes of a former lap at the place of a header are not taken as a record, though they
 * look like one; nor is a record that claims to be longer than a line. */
static void
t_former_laps(void **state)
{
    char some[LGQ_LINE_BYTES];
    uint64_t next;

    (void)state;
    for (int i = 0; i < 3 * (int)LGQ_BYTES / 16; i++) {
        assert_int_equal(put("seven7\n"), 0);
        assert_int_equal(take_all(), 7);
        assert_int_equal(lgq_take(&q, some, sizeof(some), &next), 0);
    }
    /* claimed by a thread that has not copied its line yet */
    q.tail += 16;
    assert_int_equal(lgq_take(&q, some, sizeof(some), &next), 0);
    assert_int_equal(put("behind\n"), 0);
    assert_int_equal(lgq_take(&q, some, sizeof(some), &next), 0);
    /* cursors of a process that overwrote memory before it died */
    q.head = q.tail - 3;
    assert_int_equal(lgq_take(&q, some, sizeof(some), &next), 0);
    q.head = 8;
    assert_int_equal(lgq_take(&q, some, sizeof(some), &next), 0);
    q.tail = UINT64_MAX;
    (void)lgq_last(&q, buf, 4096);
    /* a last record that would end after the last possible position */
    *(uint64_t *)(void *)(q.data + LGQ_BYTES - 16) = ((UINT64_MAX - 15) / 8 + 1) << 16 | 7;
    (void)alarm(10);
    assert_int_equal(lgq_last(&q, buf, 4096), 0);
    (void)alarm(0);
}

static void
t_full(void **state)
{
    unsigned n = 0, lost = 5;
    char line[32];

    (void)state;
    while (put("0123456\n") == 0)
        n++;
    assert_int_equal(n, LGQ_BYTES / 16);
    assert_int_equal(lgq_lost(&q), 0); /* what is queued comes before that */
    for (unsigned i = 1; i < lost; i++)
        assert_int_equal(put("0123456\n"), -ENOBUFS);
    assert_int_equal(take_all(), n * 8);
    assert_int_equal(lgq_lost(&q), lost);
    assert_int_equal(lgq_lost(&q), 0);
    assert_int_equal(put("on\n"), 0);
    assert_int_equal(take_all(), 3);
    /* a line that is too long for the room left is dropped, a short one fits */
    while (put("0123456\n") == 0)
        continue;
    (void)lgq_take(&q, buf, LGQ_LINE_BYTES, &(uint64_t){ 0 });
    lgq_release(&q, q.head + 16);
    (void)snprintf(line, sizeof(line), "longer than one\n");
    assert_int_equal(put(line), -ENOBUFS);
    assert_int_equal(put("0123456\n"), 0);
    assert_int_equal(put("0123456\n"), -ENOBUFS);
}

/* Lines put after a loss are taken after the loss was reported, however much
 * room the reader's buffer has. */
static void
t_loss_in_its_place(void **state)
{
    char some[2 * LGQ_LINE_BYTES];
    uint64_t next;
    size_t n = 0, k;

    (void)state;
    while (put("0123456\n") == 0)
        continue;
    k = lgq_take(&q, some, 16, &next);
    assert_int_equal(k, 16);
    lgq_release(&q, next);
    assert_int_equal(put("later\n"), 0);
    do {
        n += k;
        assert_int_equal(lgq_lost(&q), 0);
        k = lgq_take(&q, some, sizeof(some), &next);
        lgq_release(&q, next);
    } while (memchr(some, 'l', k) == NULL && n + k < LGQ_BYTES / 2);
    assert_int_equal(n + k, LGQ_BYTES / 2);
    assert_null(memchr(some, 'l', k));
    assert_int_equal(lgq_lost(&q), 1);
    assert_int_equal(lgq_take(&q, some, sizeof(some), &next), 6);
}

static void
t_last_lines(void **state)
{
    char last[64], line[16];

    (void)state;
    assert_int_equal(lgq_last(&q, last, sizeof(last)), 0);
    assert_string_equal(last, "");
    assert_int_equal(put("first\n"), 0);
    assert_int_equal(lgq_last(&q, last, sizeof(last)), 6);
    for (int i = 0; i < 50000; i++) {
        (void)snprintf(line, sizeof(line), "%d\n", i);
        (void)put(line);
        if (i % 100 == 0)
            (void)take_all();
    }
    (void)take_all(); /* the line may be taken or not */
    assert_int_equal(lgq_last(&q, last, sizeof(last)), 3 * 6);
    assert_string_equal(last, "49997\n49998\n49999\n");
    q.tail += 16; /* claimed by a thread that died before it copied its line */
    assert_true(lgq_last(&q, last, sizeof(last)) > 0);
    assert_string_equal(last + strlen(last) - 6, "49999\n");
}

#define THREADS 4
#define EACH    20000

struct filler {
    pthread_t th;
    int no;
    uint64_t lost;
};

static void *
fill(void *arg)
{
    struct filler *f = arg;
    char line[64];

    for (int i = 0; i < EACH; i++) {
        int n = snprintf(line, sizeof(line), "%d %d %.*s\n", f->no, i, i % 32,
            "................................");

        f->lost += lgq_put(&q, line, (size_t)n) == -ENOBUFS;
    }
    return NULL;
}

/* Each line arrives once, complete, and in the order of its
 * thread, or is counted as lost. */
static void
t_threads(void **state)
{
    struct filler f[THREADS] = { { 0 } };
    int seen[THREADS] = { 0 }, n_seen = 0;
    uint64_t lost = 0, told = 0, next, end = clk_now_ns() + 60 * CLK_S;
    char some[LGQ_LINE_BYTES + 1];
    size_t n;

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        f[i].no = i;
        seen[i] = -1;
        assert_int_equal(pthread_create(&f[i].th, NULL, fill, &f[i]), 0);
    }
    while (n_seen + (int)told < THREADS * EACH && clk_now_ns() < end) {
        n = lgq_take(&q, some, sizeof(some) - 1, &next);
        some[n] = '\0';
        for (size_t at = 0; at < n;) {
            const char *nl = memchr(some + at, '\n', n - at);
            char *p;
            int no, i;

            assert_non_null(nl);
            no = (int)strtol(some + at, &p, 10);
            i = (int)strtol(p, &p, 10);
            assert_true(no >= 0 && no < THREADS && i > seen[no]);
            assert_int_equal(nl - p, 1 + i % 32);
            seen[no] = i;
            n_seen++;
            at = (size_t)(nl - some) + 1;
        }
        if (n != 0)
            lgq_release(&q, next);
        else
            lgq_wait(&q, 10 * CLK_MS);
        told += lgq_lost(&q);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(f[i].th, NULL), 0);
        lost += f[i].lost;
    }
    assert_int_equal(told, lost);
    assert_int_equal(n_seen + (int)lost, THREADS * EACH);
}

static void *
put_late(void *arg)
{
    clk_sleep_ns(50 * CLK_MS);
    (void)lgq_put(arg, "x\n", 2);
    return NULL;
}

/* A thread that waits for a line is woken by it, not by its timeout. */
static void
t_wakes(void **state)
{
    uint64_t t = clk_now_ns();
    pthread_t th;

    (void)state;
    assert_int_equal(pthread_create(&th, NULL, put_late, &q), 0);
    while (take_all() == 0 && clk_now_ns() - t < 60 * CLK_S)
        lgq_wait(&q, 60 * CLK_S);
    assert_true(clk_now_ns() - t < 30 * CLK_S);
    assert_int_equal(pthread_join(th, NULL), 0);
    lgq_wait(&q, 1); /* this wait times out */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(t_misuse, setup),
        cmocka_unit_test_setup(t_lines_stay_until_released, setup),
        cmocka_unit_test_setup(t_laps, setup),
        cmocka_unit_test_setup(t_former_laps, setup),
        cmocka_unit_test_setup(t_full, setup),
        cmocka_unit_test_setup(t_loss_in_its_place, setup),
        cmocka_unit_test_setup(t_last_lines, setup),
        cmocka_unit_test_setup(t_threads, setup),
        cmocka_unit_test_setup(t_wakes, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
