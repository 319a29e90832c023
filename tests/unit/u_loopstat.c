/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The cost of an iteration of the gate's loop: CPU time, context switches, bytes. The
 * test sets the wall time; CPU time and switches of the thread are real. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <time.h>

#include "daemon/common/clk.h"
#include "daemon/common/counter.h"
#include "daemon/gate/loopstat.h"

struct world {
    struct cnt_gate cnt;
    struct cnt_hist hist[CNT_H__N];
    struct loopstat ls;
    uint64_t now;
};

static void
begin(struct world *w)
{
    memset(w, 0, sizeof(*w));
    loopstat_init(&w->ls, &w->cnt, w->hist);
    w->now = CLK_S;
    loopstat_next(&w->ls, w->now);
}

static void
next(struct world *w, uint64_t ns)
{
    w->now += ns;
    loopstat_next(&w->ls, w->now);
}

static void
burn(uint64_t ns)
{
    struct timespec t, u;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &u);
    while ((uint64_t)(u.tv_sec - t.tv_sec) * CLK_S + (uint64_t)u.tv_nsec -
            (uint64_t)t.tv_nsec <
        ns);
}

/* Number of iterations that took longer than ns, which must be a bucket's bound. */
static uint64_t
longer(const struct world *w, enum cnt_hist_idx i, uint64_t ns)
{
    const struct cnt_hist_row *row = cnt_hist_row(i);
    uint64_t n = 0;
    uint32_t b = 0;

    while (row->bound[b] != ns)
        b++;
    while (++b <= row->n_bound)
        n += w->hist[i].bucket[b];
    return n;
}

static uint64_t
seen(const struct world *w, enum cnt_hist_idx i)
{
    uint64_t n = 0;

    for (uint32_t b = 0; b <= cnt_hist_row(i)->n_bound; b++)
        n += w->hist[i].bucket[b];
    return n;
}

static void
short_ones_are_counted(void **state)
{
    struct world w;

    (void)state;
    begin(&w);
    for (int i = 0; i < 60; i++)
        next(&w, 1000);
    assert_int_equal(seen(&w, CNT_H_loop_ns), 50); /* up to the last base */
    assert_int_equal(w.hist[CNT_H_loop_ns].sum, 50000);
    assert_int_equal(longer(&w, CNT_H_loop_ns, LOOPSTAT_QUICK_NS), 0);
    assert_int_equal(seen(&w, CNT_H_loop_wall_ns), 50);
}

static void
long_one_by_cpu_time(void **state)
{
    struct world w;

    (void)state;
    begin(&w);
    burn(3500 * CLK_US);
    next(&w, 40 * CLK_MS);
    assert_int_equal(longer(&w, CNT_H_loop_ns, 3 * CLK_MS), 1);
    assert_int_equal(longer(&w, CNT_H_loop_ns, 30 * CLK_MS), 0);
    assert_int_equal(longer(&w, CNT_H_loop_wall_ns, 30 * CLK_MS), 1);
    /* the next iteration is not charged for it */
    next(&w, 40 * CLK_MS);
    assert_int_equal(longer(&w, CNT_H_loop_ns, 3 * CLK_MS), 1);
}

static void
cpu_time_is_never_above_wall_time(void **state)
{
    struct world w;

    (void)state;
    begin(&w);
    next(&w, 1000); /* the base is older than the next iteration */
    burn(3 * CLK_MS);
    next(&w, 500 * CLK_US);
    assert_int_equal(longer(&w, CNT_H_loop_ns, 500 * CLK_US), 0);
    assert_int_equal(longer(&w, CNT_H_loop_ns, 300 * CLK_US), 1);
}

static void
blocked_outside_the_sleep(void **state)
{
    struct world w;

    (void)state;
    begin(&w);
    clk_sleep_ns(5 * CLK_MS);
    next(&w, 5 * CLK_MS);
    assert_int_equal(longer(&w, CNT_H_loop_ns, 2 * CLK_MS), 0);
    assert_int_equal(longer(&w, CNT_H_loop_wall_ns, 3 * CLK_MS), 1);
    assert_int_equal(w.cnt.loop_switches, 1);
    /* and right before the sleep */
    clk_sleep_ns(5 * CLK_MS);
    loopstat_sleep(&w.ls, w.now + 30000);
    assert_int_equal(w.cnt.loop_switches, 2);
}

static void
sleep_belongs_to_no_iteration(void **state)
{
    struct world w;

    (void)state;
    begin(&w);
    for (int i = 0; i < 5; i++) {
        loopstat_sleep(&w.ls, w.now += i % 2 == 0 ? 5000 : 40000);
        clk_sleep_ns(2 * CLK_MS);
        loopstat_wake(&w.ls, w.now += 2 * CLK_MS);
        next(&w, 1000); /* counts for the iteration that the wake-up began */
        next(&w, 1000);
    }
    next(&w, LOOPSTAT_BASE_NS);
    assert_int_equal(w.cnt.loop_switches, 0);
    assert_int_equal(seen(&w, CNT_H_loop_ns), 11);
    assert_int_equal(longer(&w, CNT_H_loop_wall_ns, LOOPSTAT_QUICK_NS), 0);
    assert_int_equal(w.hist[CNT_H_loop_wall_ns].sum / 1000, 5 * 2 + 3 * 5 + 2 * 40 + 50);
}

static void
most_bytes_of_one_iteration(void **state)
{
    struct world w;

    (void)state;
    begin(&w);
    w.cnt.copied_bytes += 700;
    next(&w, 1000);
    w.cnt.copied_bytes += 500;
    next(&w, 1000);
    assert_int_equal(w.cnt.loop_copied_max, 700);
    w.cnt.copied_bytes += 900;
    loopstat_sleep(&w.ls, w.now + 1000);
    assert_int_equal(w.cnt.loop_copied_max, 900);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_ones_are_counted),
        cmocka_unit_test(long_one_by_cpu_time),
        cmocka_unit_test(cpu_time_is_never_above_wall_time),
        cmocka_unit_test(blocked_outside_the_sleep),
        cmocka_unit_test(sleep_belongs_to_no_iteration),
        cmocka_unit_test(most_bytes_of_one_iteration),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
